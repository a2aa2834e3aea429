/* SPDX-License-Identifier: BSD-2-Clause */
/* peermap.h: the peers of an endpoint by their fi_addr_t (peermap.c). */
#ifndef SHMCMA_PEERMAP_H
#define SHMCMA_PEERMAP_H

#include "wait/state.h"

/* The peer of fi_addr, or NULL (no such entry, no memory); slow path of the inline one in msg code. */
struct sc_peer *shmcma_ep_peer_slow(struct shmcma_ep *ep, fi_addr_t fi_addr);
/* Why there was none: -FI_EINVAL, no such entry, or -FI_EAGAIN, no memory just now. */
int shmcma_ep_no_peer(struct shmcma_ep *ep, fi_addr_t fi_addr);

/* The context in the low bits, so that what is in use is close together. */
static inline uint64_t shmcma_ep_place(const struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	return fi_addr << ep->rx_ctx_bits | fi_addr >> (-ep->rx_ctx_bits & 63);
}

/* The peer of fi_addr if it has been asked for before; NULL says nothing. */
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

/* Only an endpoint with FI_DIRECTED_RECV looks at the source; the others take from anybody. */
static inline __attribute__((always_inline)) bool
shmcma_recv_source(struct shmcma_ep *ep, fi_addr_t source, struct sc_peer **peer)
{
	*peer = NULL;
	if (source == FI_ADDR_UNSPEC || !(ep->caps & FI_DIRECTED_RECV))
		return true;
	*peer = ep->namer ? shmcma_ep_peer(ep->namer, source) : NULL;
	return *peer != NULL;
}

/* The name of the peer in completions: fi_addr_t, or FI_ADDR_NOTAVAIL (not in the AV, or without FI_SOURCE). */
fi_addr_t shmcma_ep_source_slow(struct shmcma_ep *ep, struct sc_peer *peer);

/* av.c tells each bound endpoint that fi_addr has a new address, or is gone; all locks of the domain are held. */
void shmcma_ep_forget_peer(struct shmcma_ep *ep, fi_addr_t fi_addr);
void shmcma_ep_forget_address(struct shmcma_ep *ep, fi_addr_t fi_addr, const char *address);

/* For the core (sc_ep_attr.knows): is the address in the endpoint's vector? */
bool shmcma_ep_knows(void *ep, const char *address);

#endif
