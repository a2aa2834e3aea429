/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fence.h: operations that come after messages which the peer has not taken in yet.
 *
 * A message is over for its sender once it stands in the peer's ring, and later records in the ring come after it. A
 * copy that is made from here does not: so it is no copy, but a request (rma.c), while something is unread that it is
 * to follow: all messages, where the endpoint has such an order; those before the last fence (FI_FENCE, fi_msg(3):
 * "operations posted after the fencing will see and/or replace the results of any operations initiated prior to the
 * fenced operation"). Nobody waits to hear how far the peer has read, which it says now and then only.
 *
 * That there are new messages is seen by the units that they took of the window, so that they leave nothing else.
 */
#ifndef SC_FENCE_H
#define SC_FENCE_H

#include "shm/ring.h"
#include "link/state.h"

/* Behind the last message's records, or behind others that have been written since. */
static inline uint64_t sc_fence_messages_end(struct sc_peer *peer)
{
	if (peer->order.units != peer->units_sent) {
		peer->order.units = peer->units_sent;
		peer->order.line = peer->tx.tail;
	}
	return peer->order.line;
}

/* Has the peer not taken all records before this line, as far as is known? */
static inline bool sc_fence_is_unread(struct sc_peer *peer, uint64_t line)
{
	if (peer->order.taken >= line || peer->tx.head >= line)
		return false;
	/* a head that cannot be ends the connection with the next record */
	return sc_ring_refresh(&peer->tx) || peer->tx.head < line;
}

/* Operations that are posted to the peer from here on follow the messages so far. */
static inline void sc_fence_raise(struct sc_peer *peer)
{
	uint64_t line = sc_fence_messages_end(peer);

	if (sc_fence_is_unread(peer, line))
		peer->order.fence = line;
}

/* Is there one, and something unread before it? */
static inline bool sc_fence_stands(struct sc_peer *peer)
{
	if (__builtin_expect(!peer->order.fence, 1))
		return false;
	if (sc_fence_is_unread(peer, peer->order.fence))
		return true;
	peer->order.fence = 0;
	return false;
}

#endif
