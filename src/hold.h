/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold.h: a bounce buffer of a peer's that has been read, and is not given back at once: the next message to that peer
 * may be written into it, and it comes back with that (SC_ABI_RETURN). Two that talk to each other so write where they
 * have just read: the lines are in this processor's cache, while those of a buffer of one's own are in the reader's,
 * from where each has to be taken first. Two processes on a Zen 4, a payload copied in, a word, and copied out, one way
 * in nanoseconds, a buffer for each side and one for both:
 *
 *                     256 B       1 KiB         4 KiB          16 KiB
 *   one last cache     92, 60     169, 102      440, 227      2070, 630
 *   none              390, 251    750, 407     2230, 790      8400, 2150
 *
 * (where they share none what goes past the caches is faster from 1 KiB on, see fill.h.) Nor is there anything to be
 * said of how far the ring is read, which is a line each time, too.
 *
 * The owner decides which buffer may be held (SC_ABI_F_RETURN): of one peer one at a time, while it has enough of them
 * left. So it knows which one may be written to by the peer, and takes no other for a message; and that one it lends to
 * nobody else before it has read the message, or knows that there is none: a head that has passed it is believed when
 * nothing of the peer's is unread (record.c); or the peer has gone.
 *
 * The message tells how far the ring has been read as well, up to the record of the buffer. So what was lent before that
 * has to be given back before it is sent: no poll ends with such (poll_ring() in rx.c).
 *
 * Held for SC_HOLD_POLLS at most, as the owner may be short of buffers: then, and with whatever else is given back
 * (sc_peer_publish()), and before the endpoint is slept on, it goes back without a message.
 *
 * If this process dies while it holds one, or writes to it, the owner takes it back as anything that was lent; once the
 * record is published the message is in the owner's own memory. If the owner dies, its memory stays as long as it is
 * mapped here.
 */
#ifndef SC_HOLD_H
#define SC_HOLD_H

#include "state.h"

/* Polls without an answer; a poll that finds nothing takes some 20 nanoseconds. */
#define SC_HOLD_POLLS 64

static inline void sc_hold_init(struct sc_peer *peer)
{
	peer->held = SC_POOL_NONE;
	peer->can_return = SC_REACH_UNKNOWN;
	sc_list_init(&peer->holding);
}

static inline bool sc_hold_has(const struct sc_peer *peer)
{
	return peer->held != SC_POOL_NONE;
}

static inline void sc_hold_end(struct sc_peer *peer)
{
	peer->held = SC_POOL_NONE;
	sc_list_remove(&peer->holding);
}

/* Make its buffers writable here, when one could be held for the first time. */
bool sc_hold_may_slow(struct sc_peer *peer);

/*
 * This buffer of a connected peer's, which may come back with a message, has been read; `behind`: in the ring, behind
 * its record. False: it is to be given back as others are; an endpoint whose messages never go the short way (tx.c)
 * answers in none.
 */
static inline bool sc_hold_begin(struct sc_peer *peer, uint16_t buf, uint64_t behind)
{
	struct sc_ep *ep = peer->ep;

	if (!peer->tx.lines || !ep->short_end || peer->can_return == SC_REACH_NO)
		return false;
	if (__builtin_expect(peer->can_return == SC_REACH_UNKNOWN, 0) && !sc_hold_may_slow(peer))
		return false;
	sc_hold_end(peer);
	peer->held = buf;
	peer->held_behind = behind;
	peer->held_at = ep->polls;
	sc_list_append(&ep->holding, &peer->holding);
	return true;
}

/* The one that is held, for a message, which tells how far the ring has been read, too; there is one. */
static inline uint16_t sc_hold_take(struct sc_peer *peer)
{
	uint16_t buf = peer->held;

	sc_hold_end(peer);
	peer->rx.published = peer->held_behind;
	return buf;
}

#endif
