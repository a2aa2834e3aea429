/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_BOUNCE_H
#define SC_BOUNCE_H

#include "link/hold.h"
#include "link/record.h"
#include "link/route.h"
#include "link/state.h"
#include "msg/txop.h"

/* A message that may go through buffers begins: it counts as one of a burst, and the way of filling follows from that. */
static inline void sc_bounce_begin(struct sc_peer *peer)
{
	(void)sc_burst_add(&peer->bounce.burst, peer->ep);
	sc_fill_choose(&peer->bounce.fill,
		       sc_burst_is_stream(&peer->bounce.burst) ? SC_FILL_STREAM : SC_FILL_ALONE);
}

/*
 * Returns the buffers that eager messages leave to pieces, and to the ring of the peer, which overflows into them if
 * the peer does not poll: the more buffers a peer has, the more are left. Of 88 it has 48 at most, and 23 are left for
 * records.
 */
static inline uint32_t sc_bounce_reserve(const struct sc_peer *peer)
{
	return sc_record_reserve(peer->ep) + peer->bounce.loans.count / 2;
}

/* Sends a message with one payload buffer the short way in a bounce buffer, or returns false. */
bool sc_bounce_send_buffer(struct sc_peer *peer, const struct sc_send *send, uint32_t size);

/* Does the same in a held buffer of the peer. */
bool sc_bounce_send_return(struct sc_peer *peer, const struct sc_send *send, uint32_t size);

/*
 * Gives sc_route() the costs of a message through bounce buffers and by rendezvous. Returns SC_FACT_STREAM or 0. The
 * cost of buffers is known after some large payloads. The cost by CMA is 0 if that is not known, if the peer cannot
 * copy, or if the fill ways are to be tried again. Where processors are short, both are 0: a rendezvous costs the sender
 * another turn on its processor, which no calibration knows.
 */
uint32_t sc_bounce_costs(struct sc_peer *peer, const struct sc_send *send, size_t size,
			 struct sc_route_costs *costs);

/*
 * Sends through bounce buffers. -ENOBUFS: take another way. -EAGAIN: the ring is full, or the peer has buffers of ours
 * and reads, so they come back soon. The message does not wait for the window, which gets space only when the peer
 * matches, nor for buffers of other peers, which come back when those poll. docs/MEASUREMENTS.md, "Eager message
 * without a free buffer".
 */
int sc_bounce_send(struct sc_peer *peer, const struct sc_send *send, uint32_t size);

#endif
