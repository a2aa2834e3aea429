/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold.h: bounce buffers of a peer that have been read and are not given back at once. The next message or delegated put
 * to that peer may be written into them, and gives them back (SC_ABI_F_RETURNED). So two peers that talk to each other
 * write where they have just read: those lines are in this processor's cache. The lines of a buffer of one's own are in
 * the reader's cache, and each has to be taken from there first (docs/MEASUREMENTS.md, "Held buffers"). So a held buffer is
 * filled by plain stores, whatever way is best for others (fill.h). The message also says how far the ring is read, which
 * takes a line otherwise.
 *
 * The owner decides which buffers may be held (SC_ABI_F_RETURNABLE): for each peer those of one message at a time, a
 * record for each buffer, while the owner has enough of them left. So it knows which buffers the peer may write to, and
 * takes no others for a message. It lends those to no other peer before it has read the message, or the peer has gone,
 * or it knows that there is no message: a head that has passed them proves that once nothing of the peer's is unread
 * (record.c).
 *
 * The buffers come back in the order in which they were lent. A message in fewer buffers is in the last of them, and
 * gives back those before it. The record of a part gives back its own buffer and those before it. It returns no later
 * buffer, even if the head has passed it, because later parts of the same message lie there.
 *
 * The message also tells how far the ring has been read: up to the record of the last held buffer. So this endpoint
 * gives back buffers that were lent before that record before it sends the message: no poll ends with such buffers
 * (poll_ring() in rx.c).
 *
 * A put that is withdrawn (delegate.c) gives nothing back: its payload is in the owner's buffer until the put is done, by
 * the peer, or by the owner if the peer has gone. Until then the returnable buffers are pinned: the head gives none of them
 * back. models/putback.pml.
 *
 * A buffer is held for SC_HOLD_POLLS at most, because the owner may be short of buffers. Held buffers go back without a
 * message then, with others that are given back (sc_peer_publish()), and before a thread sleeps on the endpoint.
 *
 * If this process dies while it holds some, or writes to them, the owner takes them back like all loans; once the
 * record is published, the message or part is in the owner's own memory. If the owner dies, its memory stays as long as
 * it is mapped here.
 */
#ifndef SC_HOLD_H
#define SC_HOLD_H

#include "base/iov.h"
#include "link/route.h"
#include "link/state.h"

/* The most polls without an answer: docs/MEASUREMENTS.md, "Held buffers". */
#define SC_HOLD_POLLS 64

/* ---- the owner ---- */

/* Takes the oldest `buffers` off those that may come back with a message. */
static inline void sc_hold_returnables_drop(struct sc_peer *peer, uint32_t buffers)
{
	struct sc_returnables *returnables = &peer->bounce.returnables;

	returnables->count -= buffers;
	for (uint32_t i = 0; i < returnables->count; i++)
		returnables->bufs[i] = returnables->bufs[i + buffers];
}

/* Adds a buffer that has just been lent. There are fewer than SC_ABI_RETURN_BUFS, all of the same message. */
static inline void sc_hold_returnables_add(struct sc_peer *peer, uint16_t buf)
{
	peer->bounce.returnables.bufs[peer->bounce.returnables.count++] = buf;
}

/* A put of the peer, of that number, is withdrawn, and its payload is in a returnable buffer. */
static inline void sc_hold_pin(struct sc_peer *peer, uint32_t number)
{
	peer->bounce.returnables.pinned = true;
	peer->bounce.returnables.number = number;
}

/* Tells whether such a put is not done yet. */
bool sc_hold_is_pinned(struct sc_peer *peer);

bool sc_hold_comes_back_slow(struct sc_peer *peer, uint16_t buf);

/* Tells whether this buffer may come back. Drops those before it, which the message has passed over. */
static inline bool sc_hold_comes_back(struct sc_peer *peer, uint16_t buf)
{
	const struct sc_returnables *returnables = &peer->bounce.returnables;

	return (returnables->count && *returnables->bufs == buf) || sc_hold_comes_back_slow(peer, buf);
}

/* ---- the peer ---- */

static inline bool sc_hold_has(const struct sc_peer *peer)
{
	return peer->hold.count;
}

/* Tells whether so many held buffers can hold `size` bytes, and are better than new ones. */
static inline bool sc_hold_fits(struct sc_peer *peer, size_t size, uint32_t buffers)
{
	return sc_hold_has(peer) && size >= SC_ROUTE_BUFFER_MIN &&
	       size <= (size_t)buffers * peer->seg->header.buf_size &&
	       !sc_fill_wants(&peer->bounce.fill, size);
}

static inline void sc_hold_end(struct sc_peer *peer)
{
	peer->hold.count = 0;
	sc_list_remove(&peer->hold.of_ep);
}

/* Makes the peer's buffers writable here, when one could be held for the first time. */
bool sc_hold_may_slow(struct sc_peer *peer);

/*
 * Holds a connected peer's buffer that has been read and may come back with a message. `behind`: the line behind its
 * record. False: the caller gives it back as others. An endpoint whose messages never go the short way (tx.c) holds
 * none.
 */
static inline bool sc_hold_begin(struct sc_peer *peer, uint16_t buf, uint64_t behind)
{
	struct sc_ep *ep = peer->ep;
	struct sc_hold *hold = &peer->hold;

	if (!peer->tx.at.lines || !ep->short_end || peer->can_return == SC_REACH_NO ||
	    hold->count == SC_ABI_RETURN_BUFS)
		return false;
	if (__builtin_expect(peer->can_return == SC_REACH_UNKNOWN, 0) && !sc_hold_may_slow(peer))
		return false;
	sc_list_remove(&hold->of_ep);
	hold->bufs[hold->count++] = buf;
	hold->behind = behind;
	hold->poll = ep->polls;
	sc_list_append(&ep->holding, &hold->of_ep);
	return true;
}

/*
 * Takes the last `buffers` held buffers, which are there, for a message, which also tells how far the ring has been
 * read. Those before them go back with it. The caller writes all its records before it does anything else with the
 * peer: a head that it tells in between gives back what is still to come. The array is valid until another buffer is
 * held.
 */
static inline const uint16_t *sc_hold_take(struct sc_peer *peer, uint32_t buffers)
{
	const uint16_t *bufs = peer->hold.bufs + peer->hold.count - buffers;

	sc_hold_end(peer);
	peer->rx.published = peer->hold.behind;
	return bufs;
}

/* Copies a part of a payload into a buffer that sc_hold_take() has returned. */
void sc_hold_fill(const struct sc_peer *peer, uint16_t buf, struct sc_iov_walk part);

#endif
