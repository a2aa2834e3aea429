/* SPDX-License-Identifier: BSD-2-Clause */
/* peermap.h: the peers of an endpoint by their fi_addr_t (peermap.c). */
#ifndef SHMCMA_PEERMAP_H
#define SHMCMA_PEERMAP_H

#include "wait/state.h"

/* Slow path of shmcma_ep_peer(): the peer of fi_addr, or NULL (no such entry, no memory). */
struct sc_peer *shmcma_ep_peer_slow(struct shmcma_ep *ep, fi_addr_t fi_addr);
/* Why there is no peer: -FI_EINVAL, no such entry; -FI_EAGAIN, no memory now; -FI_EOPBADSTATE, see shared.c. */
int shmcma_ep_no_peer(struct shmcma_ep *ep, fi_addr_t fi_addr);

/* The place of fi_addr in `peers`: the context is in the low bits, so that places in use are close together. */
static inline uint64_t shmcma_ep_place(const struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	return fi_addr << ep->rx_ctx_bits | fi_addr >> (-ep->rx_ctx_bits & 63);
}

/* Returns the peer of fi_addr if it was looked up before; NULL says nothing. */
static inline struct sc_peer *shmcma_ep_peer_known(const struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint64_t place = shmcma_ep_place(ep, fi_addr);

	return __builtin_expect(place < ep->peer_count, 1) ? ep->peers[place] : NULL;
}

static inline struct sc_peer *shmcma_ep_peer(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	struct sc_peer *peer = shmcma_ep_peer_known(ep, fi_addr);

	return __builtin_expect(peer != NULL, 1) ? peer : shmcma_ep_peer_slow(ep, fi_addr);
}

/* Finds the source of a receive; without FI_DIRECTED_RECV an endpoint receives from any source. */
static inline __attribute__((always_inline)) bool
shmcma_recv_source(struct shmcma_ep *ep, fi_addr_t source, struct sc_peer **peer)
{
	*peer = NULL;
	if (source == FI_ADDR_UNSPEC || !(ep->caps & FI_DIRECTED_RECV))
		return true;
	*peer = ep->namer ? shmcma_ep_peer(ep->namer, source) : NULL;
	return *peer != NULL;
}

/* Returns the name of the peer in completions: fi_addr_t, or FI_ADDR_NOTAVAIL (not in the vector, or no FI_SOURCE). */
fi_addr_t shmcma_ep_source_slow(struct shmcma_ep *ep, struct sc_peer *peer);

/* Called by av.c for each bound endpoint: fi_addr has a new address, or none. All locks of the domain are held. */
void shmcma_ep_forget_peer(struct shmcma_ep *ep, fi_addr_t fi_addr);
void shmcma_ep_forget_address(struct shmcma_ep *ep, fi_addr_t fi_addr, const char *address);

/* For the core (sc_ep_attr.knows): tells whether the endpoint's vector has the address. */
bool shmcma_ep_knows(void *ep, const char *address);

#endif
