/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peermap.c: the peers of an endpoint: the peer that an fi_addr_t names, and the name of a peer in completions.
 *
 * Owns the array `peers` of struct shmcma_ep. The data calls read it inline (peermap.h); a missing peer is looked up
 * here, once, in the address vector. A poll may remove the entry of a peer that has gone. Under the endpoint's lock;
 * av.c removes entries with all locks of the domain held.
 */
#include "obj/peermap.h"

#include <stdlib.h>
#include <string.h>
#include "obj/avtable.h"

/* Splits an fi_addr_t into the entry of the vector and the receive context. */
static fi_addr_t split(const struct shmcma_ep *ep, fi_addr_t fi_addr, uint16_t *index)
{
	unsigned int bits = ep->rx_ctx_bits;

	*index = bits ? (uint16_t)(fi_addr >> (64 - bits)) : 0;
	return bits ? fi_addr << bits >> bits : fi_addr;
}

static bool grow_peers(struct shmcma_ep *ep, size_t count)
{
	struct sc_peer **peers;

	if (count < ep->peer_count * 2)
		count = ep->peer_count * 2;
	peers = realloc(ep->peers, count * sizeof(struct sc_peer *));
	if (!peers)
		return false;
	memset(peers + ep->peer_count, 0, (count - ep->peer_count) * sizeof(struct sc_peer *));
	ep->peers = peers;
	ep->peer_count = count;
	return true;
}

struct sc_peer *shmcma_ep_peer_slow(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint64_t place = shmcma_ep_place(ep, fi_addr);
	char of_context[SC_ADDR_SIZE];
	const char *address;
	struct sc_peer *peer;
	uint16_t index;

	address = shmcma_av_address(ep->av, split(ep, fi_addr, &index));
	if (!address)
		return NULL;
	if (place >= ep->peer_count && !grow_peers(ep, place + 1))
		return NULL;
	if (index && !sc_addr_context(address, index, of_context))
		address = of_context;
	if (sc_peer_get(ep->core, address, &peer))
		return NULL;
	ep->peers[place] = peer;
	return peer;
}

int shmcma_ep_no_peer(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint16_t index;

	if (!ep->namer)
		return -FI_EOPBADSTATE;
	ep = ep->namer;
	return shmcma_av_address(ep->av, split(ep, fi_addr, &index)) ? -FI_EAGAIN : -FI_EINVAL;
}

fi_addr_t shmcma_ep_source_slow(struct shmcma_ep *ep, struct sc_peer *peer)
{
	fi_addr_t source;

	if (!(ep->caps & FI_SOURCE))
		return FI_ADDR_NOTAVAIL;
	source = shmcma_av_find(ep->av, sc_peer_address(peer));
	if (source != FI_ADDR_NOTAVAIL)
		sc_peer_set_user(peer, source);
	return source;
}

/* Removes all names, without a search for the peer that had the address. */
void shmcma_ep_forget_names(struct shmcma_ep *ep)
{
	if (ep->core)
		sc_peers_unset_users(ep->core);
}

void shmcma_ep_forget_peer(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint64_t place = shmcma_ep_place(ep, fi_addr), end = place + (1ull << ep->rx_ctx_bits);

	shmcma_ep_forget_names(ep);
	for (; place < end && place < ep->peer_count; place++) {
		struct sc_peer *peer = ep->peers[place];

		ep->peers[place] = NULL;
		if (peer)
			sc_peer_put(peer);
	}
}

/* Gives up the places of one fi_addr_t that refer to the peer. Returns their number. */
static uint32_t release_at(struct shmcma_ep *ep, fi_addr_t fi_addr, const struct sc_peer *peer)
{
	uint64_t place = shmcma_ep_place(ep, fi_addr), end = place + (1ull << ep->rx_ctx_bits);
	uint32_t count = 0;

	for (; place < end && place < ep->peer_count; place++)
		if (ep->peers[place] == peer) {
			ep->peers[place] = NULL;
			count++;
		}
	return count;
}

uint32_t shmcma_ep_release(void *arg, struct sc_peer *peer)
{
	const char *address = sc_peer_address(peer);
	struct shmcma_ep *ep = arg;
	fi_addr_t at = FI_ADDR_NOTAVAIL;
	uint32_t count = 0;

	if (!ep->peer_count)
		return 0; /* an endpoint without a vector */
	while ((at = shmcma_av_next_of(ep->av, address, at)) != FI_ADDR_NOTAVAIL)
		count += release_at(ep, at, peer);
	return count;
}
