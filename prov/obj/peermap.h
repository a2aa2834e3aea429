/* SPDX-License-Identifier: BSD-2-Clause */
/* peermap.h: the peers of an endpoint by their fi_addr_t (peermap.c). */
#ifndef SHMCMA_PEERMAP_H
#define SHMCMA_PEERMAP_H

#include "wait/objects.h"

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

/*
 * Has a receive a source, and does it need one? cq_flags: FI_MSG or FI_TAGGED. Endpoints have FI_DIRECTED_RECV for plain
 * and SHMCMA_TAGGED_DIRECTED_RECV for tagged receives (endpoint.c).
 */
static inline bool shmcma_is_directed(const struct shmcma_ep *ep, uint32_t cq_flags)
{
	return ep->caps & (cq_flags & FI_TAGGED ? SHMCMA_TAGGED_DIRECTED_RECV : FI_DIRECTED_RECV);
}

static inline bool shmcma_is_exact(const struct shmcma_ep *ep, uint32_t cq_flags)
{
	return ep->caps & SHMCMA_EXACT_DIRECTED_RECV && shmcma_is_directed(ep, cq_flags);
}

/* Finds the source of a receive, which is any source unless the receive is directed. */
static inline __attribute__((always_inline)) bool
shmcma_recv_source(struct shmcma_ep *ep, uint32_t cq_flags, fi_addr_t source, struct sc_peer **peer)
{
	*peer = NULL;
	if (source == FI_ADDR_UNSPEC || !shmcma_is_directed(ep, cq_flags))
		return true;
	*peer = ep->namer ? shmcma_ep_peer(ep->namer, source) : NULL;
	return *peer != NULL;
}

/* Returns the name of the peer in completions: fi_addr_t, or FI_ADDR_NOTAVAIL (not in the vector, or no FI_SOURCE). */
fi_addr_t shmcma_ep_source_slow(struct shmcma_ep *ep, struct sc_peer *peer);

/*
 * Called by av.c for each bound endpoint: the name of a peer in completions has changed; fi_addr has a new address, or
 * none. All locks of the domain are held.
 */
void shmcma_ep_forget_names(struct shmcma_ep *ep);
void shmcma_ep_forget_peer(struct shmcma_ep *ep, fi_addr_t fi_addr);

/* For the core (sc_ep_attr.release): gives up the references of `peers`. The next call with the fi_addr_t takes one again. */
uint32_t shmcma_ep_release(void *ep, struct sc_peer *peer);

#endif
