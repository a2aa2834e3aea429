/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold.h: bounce buffers of a peer's that have been read, and are not given back at once: the next message to that peer
 * may be written into them, and they come back with that (SC_ABI_F_RETURNED). Two that talk to each other so write where
 * they have just read: the lines are in this processor's cache, while those of a buffer of one's own are in the
 * reader's, from where each has to be taken first (docs/MEASUREMENTS.md, "Held buffers"). Where the processors share no
 * cache, stores past the caches are faster from 1 KiB on, see fill.h. The message also says how far the ring is read,
 * which takes a line otherwise.
 *
 * The owner decides which buffers may be held (SC_ABI_F_RETURNABLE): of one peer those of one message at a time, a
 * record for each, while it has enough of them left. So it knows which ones may be written to by the peer, and takes
 * no others for a message; and those it lends to nobody else before it has read the message, or knows that there is
 * none: a head that has passed them is believed when nothing of the peer's is unread (record.c); or the peer has gone.
 *
 * They come back in the order in which they were lent. A message in fewer buffers is in the last of them, and gives back
 * those before it; the record of a part gives back its own and those before it, no others, though the head may have
 * passed them: they hold the parts behind it.
 *
 * The message tells how far the ring has been read as well, up to the record of the last buffer that was held. So
 * buffers that were lent before that have to be given back before it is sent: no poll ends with such (poll_ring() in
 * rx.c).
 *
 * Held for SC_HOLD_POLLS at most, as the owner may be short of buffers: then, and with any others that are given back
 * (sc_peer_publish()), and before a thread sleeps on the endpoint, they go back without a message.
 *
 * If this process dies while it holds some, or writes to them, the owner takes them back as anything that was lent; once
 * the record is published the message, or the part of it, is in the owner's own memory. If the owner dies, its memory
 * stays as long as it is mapped here.
 */
#ifndef SC_HOLD_H
#define SC_HOLD_H

#include "link/state.h"

/* Polls without an answer: docs/MEASUREMENTS.md, "Held buffers". */
#define SC_HOLD_POLLS 64

/* ---- the owner ---- */

/* So many of those that may come back with a message, the oldest, do no more. */
static inline void sc_hold_returnables_drop(struct sc_peer *peer, uint32_t buffers)
{
	struct sc_returnables *returnables = &peer->bounce.returnables;

	returnables->count -= buffers;
	for (uint32_t i = 0; i < returnables->count; i++)
		returnables->bufs[i] = returnables->bufs[i + buffers];
}

/* This one may, which has been lent with the next record; there are less than SC_ABI_RETURN_BUFS, of its message. */
static inline void sc_hold_returnables_add(struct sc_peer *peer, uint16_t buf)
{
	peer->bounce.returnables.bufs[peer->bounce.returnables.count++] = buf;
}

bool sc_hold_comes_back_slow(struct sc_peer *peer, uint16_t buf);

/* Is this one of them? It is the oldest from here on: those before it, which the message has passed over, do no more. */
static inline bool sc_hold_comes_back(struct sc_peer *peer, uint16_t buf)
{
	const struct sc_returnables *returnables = &peer->bounce.returnables;

	return (returnables->count && *returnables->bufs == buf) || sc_hold_comes_back_slow(peer, buf);
}

/* ---- the peer ---- */

static inline void sc_hold_init(struct sc_peer *peer)
{
	peer->hold.count = 0;
	peer->can_return = SC_REACH_UNKNOWN;
	sc_list_init(&peer->hold.of_ep);
}

static inline bool sc_hold_has(const struct sc_peer *peer)
{
	return peer->hold.count;
}

static inline void sc_hold_end(struct sc_peer *peer)
{
	peer->hold.count = 0;
	sc_list_remove(&peer->hold.of_ep);
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
 * The last so many that are held, for a message, which tells how far the ring has been read, too; there are as many.
 * Those before them go back with it. All its records are to be written before anything else is done with the peer: a
 * head that is told in between gives back what is still to come. The array is good until another is held.
 */
static inline const uint16_t *sc_hold_take(struct sc_peer *peer, uint32_t buffers)
{
	const uint16_t *bufs = peer->hold.bufs + peer->hold.count - buffers;

	sc_hold_end(peer);
	peer->rx.published = peer->hold.behind;
	return bufs;
}

#endif
