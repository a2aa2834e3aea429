/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_BOUNCE_H
#define SC_BOUNCE_H

#include "link/hold.h"
#include "link/route.h"
#include "link/state.h"
#include "msg/txop.h"

/*
 * Buffers that eager messages leave to pieces, which have no other way to go; and, the more of them a peer has, to the
 * ring to it, which goes on in them if that peer does not look: of 88 it has 48 at most, and 23 are left for records.
 */
static inline uint32_t sc_bounce_reserve(const struct sc_peer *peer)
{
	uint32_t half = peer->ep->pool.count / 2;

	return (half < SC_TXOP_PIECE_BUFS ? half : SC_TXOP_PIECE_BUFS) + peer->bounce.loans.count / 2;
}

/* Are some held, have so many of them room for so much, and are they better? */
static inline bool sc_bounce_has_return(struct sc_peer *peer, size_t size, uint32_t buffers)
{
	return sc_hold_has(peer) && size >= SC_ROUTE_BUFFER_MIN &&
	       size <= (size_t)buffers * peer->seg->header.buf_size &&
	       !sc_fill_is_better(&peer->bounce.fill, size) && !sc_fill_wants(&peer->bounce.fill, size);
}

/* The short way of a message of one payload buffer, which a bounce buffer holds, and no record. */
bool sc_bounce_send_buffer(struct sc_peer *peer, const struct sc_send *send, uint32_t size);

/* And in a buffer of the peer's that is held. */
bool sc_bounce_send_return(struct sc_peer *peer, const struct sc_send *send, uint32_t size);

/*
 * Tells for sc_route() the costs of a message of `size` bytes through bounce buffers and by rendezvous. Returns
 * SC_FACT_STREAM or 0. The cost of buffers is known after some large payloads have used them. Where it is not known, or
 * the peer cannot copy, or the ways of filling are to be tried again, the cost by CMA is 0.
 */
uint32_t sc_bounce_costs(struct sc_peer *peer, const struct sc_send *send, size_t size,
			 struct sc_route_costs *costs);

/*
 * Send through bounce buffers. -ENOBUFS: not now, take another way. A message waits (-EAGAIN) if the peer has buffers of
 * ours, as it would for the ring, while it reads: they come back as soon as it looks there. The window has room again
 * only when the peer matches, and buffers that other peers hold come back when they look. docs/MEASUREMENTS.md,
 * "Eager message without a free buffer".
 */
int sc_bounce_send(struct sc_peer *peer, const struct sc_send *send, uint32_t size);

#endif
