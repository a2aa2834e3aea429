/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fence.h: operations that come after messages which the peer has not taken in yet.
 *
 * A message is over for its sender once it is in the peer's ring. Later records come after the message. A copy by CMA may
 * come before the peer reads the message. An atomic without an answer (request.c) counts as a message here. So an
 * operation becomes a request (rma.c) instead of a copy while messages that it has to follow are unread: all messages, if
 * the endpoint has such an order; else those before the last fence (FI_FENCE, fi_msg(3): "operations posted after the
 * fencing will see and/or replace the results of any operations initiated prior to the fenced operation"). The sender
 * does not wait to learn how far the peer has read, which the peer says only now and then.
 *
 * The units of the window that were taken show that there are new messages, so messages store nothing else here.
 */
#ifndef SC_FENCE_H
#define SC_FENCE_H

#include "shm/ring.h"
#include "link/state.h"

/* Notes that all records so far must be taken before an operation that follows them. */
static inline void sc_fence_behind(struct sc_peer *peer)
{
	peer->order.units = peer->units_sent;
	peer->order.line = peer->tx.tail;
}

/* Returns the line behind the last record that no answer follows, or behind later records. */
static inline uint64_t sc_fence_messages_end(struct sc_peer *peer)
{
	if (peer->order.units != peer->units_sent)
		sc_fence_behind(peer);
	return peer->order.line;
}

/* Tells whether the peer has not taken in all records before this line, as far as is known. */
static inline bool sc_fence_is_unread(struct sc_peer *peer, uint64_t line)
{
	if (peer->order.taken >= line || peer->tx.head >= line)
		return false;
	/* the next record ends the connection if the head is out of range */
	return sc_ring_refresh(&peer->tx) || peer->tx.head < line;
}

/* Makes later operations to the peer follow the messages so far. */
static inline void sc_fence_raise(struct sc_peer *peer)
{
	uint64_t line = sc_fence_messages_end(peer);

	if (sc_fence_is_unread(peer, line))
		peer->order.fence = line;
}

/* Tells whether there is a fence with something unread before it. */
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
