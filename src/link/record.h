/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RECORD_H
#define SC_RECORD_H

#include "base/copy.h"
#include "link/hold.h"
#include "shm/ring.h"
#include "shm/memory.h"
#include "base/iov.h"
#include "link/state.h"

int sc_record_room_slow(struct sc_peer *peer, uint32_t lines);

/*
 * Finds space for a record of `lines` lines in the peer's ring, or in what it overflows into. -EAGAIN: there is none;
 * -EPROTO: the peer has been given up. The call may write a record that says that the ring has grown, overflows or
 * resumes, so the caller reserves lines and lends buffers after it.
 */
static inline int sc_record_room(struct sc_peer *peer, uint32_t lines)
{
	return sc_ring_has_room(&peer->tx, lines) ? 0 : sc_record_room_slow(peer, lines);
}

/* Writes a record of one line; the caller has found space. */
void sc_record_put(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t flags, uint32_t size,
		   const uint64_t words[7]);

/* Bounce buffers of a piece: few enough for both sides to copy at the same time. */
#define SC_RECORD_PIECE_BUFS 4

/*
 * Returns the buffers that messages and rings leave to pieces, which have no other way: so peers that do not poll keep
 * none waiting that does.
 */
static inline uint32_t sc_record_reserve(const struct sc_ep *ep)
{
	uint32_t half = ep->pool.count / 2;

	return half < SC_RECORD_PIECE_BUFS ? half : SC_RECORD_PIECE_BUFS;
}

/*
 * Tells whether this peer may be lent `buffers` bounce buffers, with `reserve` left free besides. True holds for the
 * next records, if they take no more together. False: not now, or the peer has just been given up. Other peers may have
 * been given up in either case.
 */
bool sc_record_may_lend(struct sc_peer *peer, uint32_t buffers, uint32_t reserve);

/*
 * Tells whether a buffer can be spared for a message that can also go another way. Only this peer is asked what it has
 * read: if all peers have much to read, each call would ask all of them.
 */
bool sc_record_may_spare(struct sc_peer *peer, uint32_t reserve);

/* Makes sure that `buffers` free ones have memory, after sc_pool_may_lend() has allowed them. False: too few have. */
bool sc_record_grow_slow(struct sc_ep *ep, uint32_t buffers);

static inline bool sc_record_grow(struct sc_ep *ep, uint32_t buffers)
{
	return sc_pool_has(&ep->pool, buffers) || sc_record_grow_slow(ep, buffers);
}

/* Returns how many of our bounce buffers hold `size` bytes. */
static inline uint32_t sc_record_bufs(const struct sc_ep *ep, uint64_t size)
{
	return (uint32_t)((size + ep->config.buf_size - 1) >> ep->buf_shift);
}

/* Lends buffers for `size` bytes with the next record: sets their numbers, and a vector of them. Returns how many. */
uint32_t sc_record_lend(struct sc_peer *peer, uint32_t size, uint16_t bufs[SC_ABI_RECORD_BUFS],
			struct iovec iov[SC_ABI_RECORD_BUFS]);

/* Copies the bytes in such buffers, checked likewise, to a vector that is long enough. */
void sc_record_copy(const struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS], const struct iovec *to,
		    size_t to_count, uint32_t size);

/* Copies with memcpy(3), unless it uses string instructions and the addresses are aliased, which is slow (copy.h). */
static inline void sc_record_copy_bytes(void *to, const void *from, uint32_t size)
{
	if (size > 2 * SC_COPY_BLOCK && sc_copy_is_aliased(to, from))
		sc_copy_backwards(to, from, size);
	else
		memcpy(to, from, size);
}

/* Copies a payload, or a part of one, into buffers, and lends those with the next record. */
void sc_record_fill(struct sc_peer *peer, struct sc_iov_walk payload, uint16_t bufs[SC_ABI_RECORD_BUFS]);

/* Buffers that a peer may have besides those of the last record before the sender asks for them back. */
#define SC_RECORD_LENT 15

void sc_record_reuse_slow(struct sc_peer *peer, uint32_t buffers);

/*
 * After the commit of records with `buffers` loans: takes back what the peer has read of earlier ones, so that few
 * buffers are in use, and stay in the processors' caches. Not for each record, because the line with the peer's head
 * comes from the peer's processor, and goes back there when it reads on: docs/MEASUREMENTS.md, "Buffers asked back".
 */
static inline void sc_record_reuse(struct sc_peer *peer, uint32_t buffers)
{
	if (peer->bounce.loans.count > buffers + SC_RECORD_LENT &&
	    peer->bounce.fill.way != SC_FILL_STREAMED)
		sc_record_reuse_slow(peer, buffers);
}

/* Buffers that a peer may have read without saying so, or that are new; of lines, half of the ring's. */
#define SC_RECORD_UNSAID 4

/* Judges whether the peer is behind. The last `newest` buffers have just been lent; some buffers may be held. */
static inline void sc_record_judge(struct sc_peer *peer, uint32_t newest)
{
	peer->bounce.is_behind =
		peer->bounce.loans.count > newest + SC_RECORD_UNSAID + peer->bounce.returnables.count ||
		peer->tx.tail - peer->tx.head > peer->tx.at.count / 2;
}

/*
 * Tells whether plain stores fill the next buffer best, because its lines are in this processor's cache, and no trial asks
 * for another way.
 */
static inline bool sc_record_is_warm(struct sc_peer *peer, size_t size)
{
	return sc_pool_is_warm(&peer->ep->pool) && !sc_fill_wants(&peer->bounce.fill, size);
}

/* Buffers that stay free, so that a large eager message to another peer does not wait for held buffers. */
#define SC_RECORD_RETURN_LEFT (SC_ABI_RECORD_BUFS + SC_RECORD_PIECE_BUFS)

/*
 * Tells whether the buffers of the next message or put may come back with one of the peer (hold.h), one in each record.
 * They may if no others may, the peer has connected to us, no operation waits to hear that the peer has read the
 * message, enough buffers stay free, and no trial measures its fill (a buffer that comes back has its lines in this cache).
 */
static inline bool sc_record_may_return(const struct sc_peer *peer, size_t size, uint32_t buffers)
{
	const struct sc_ep *ep = peer->ep;

	return !peer->bounce.returnables.count && peer->feed == SC_FEED_UP &&
	       !(ep->order & SC_ORDER_AFTER_SEND) &&
	       sc_pool_left(&ep->pool) >= buffers + SC_RECORD_RETURN_LEFT &&
	       !sc_fill_is_tried(&peer->bounce.fill, size);
}

/* Notes a buffer that is lent with the next record, if it is returnable. Returns the flag for the record. */
static inline uint32_t sc_record_return_flag(struct sc_peer *peer, uint16_t buf, bool returnable)
{
	if (!returnable)
		return 0;
	sc_hold_returnables_add(peer, buf);
	return SC_ABI_F_RETURNABLE;
}

/*
 * Takes back the oldest returnable buffer, after the message, or the part of one, in it has been read. The peer has
 * read all records up to the one that it was lent with. It is lent next, because its lines are in this cache; but it stays
 * lent behind a delegated operation that has not ended, whose lines and buffers are in use (sc_ring_tx.held).
 */
static inline __attribute__((always_inline)) void sc_record_returned(struct sc_peer *peer)
{
	struct sc_pool *pool = &peer->ep->pool;
	struct sc_returnables *returnables = &peer->bounce.returnables;
	uint16_t buf = *returnables->bufs;

	if (__builtin_expect(!returnables->count, 0))
		return; /* a peer that clears a record while it is read loses them: returning() */
	sc_ring_learn(&peer->tx, pool->at[buf] + 1);
	sc_hold_returnables_drop(peer, 1);
	/* the head may have passed the other returnables, whose messages are unread */
	sc_pool_return_others(pool, &peer->bounce.loans, peer->tx.head, returnables->bufs,
			      returnables->count);
	pool->warm = buf;
	sc_record_judge(peer, 0);
}

/* After the commit of a message of `size` bytes in buffers: may fetch the next free buffer for another message. */
static inline void sc_record_fetch(struct sc_peer *peer, uint32_t size)
{
	const struct sc_ep *ep = peer->ep;

	if (sc_pool_has(&ep->pool, 1))
		sc_fill_fetch(&peer->bounce.fill, sc_seg_buf(ep->seg, ep->pool.free_first), size);
}

/* Returns the bytes in the buffers of a record that names some. */
static inline uint32_t sc_record_bytes(const struct sc_seg *seg, uint64_t ctl)
{
	return sc_ctl_kind(ctl) == SC_ABI_BOUNCE && sc_ctl_flags(ctl) & SC_ABI_F_PARTS
		       ? seg->header.buf_size
		       : sc_ctl_size(ctl);
}

/* Tells whether a piece of `size` bytes goes on at `done` with a message that ends at `end`, in buffers that exist. */
static inline bool sc_record_is_next_piece(struct sc_seg *seg, const struct sc_abi_piece *piece,
					   uint32_t size, uint64_t done, uint64_t end)
{
	return size && piece->offset == done && size <= end - done &&
	       sc_seg_has_bufs(seg, piece->bufs, size);
}

/*
 * Writes the segments of the next record, except the first one, which the caller writes into the first line. Returns
 * the lines of the record.
 */
uint32_t sc_record_segments_write(struct sc_peer *peer, const struct iovec *iov, size_t count);

/*
 * Reads `count` segments, which must have `size` bytes together: the first is given, the others are behind `line` of a
 * record of `lines`. Returns their error as text, or NULL.
 */
struct sc_record_segments {
	const struct sc_abi_line *line;
	struct sc_abi_segment first;
	uint32_t lines, count;
	uint64_t size;
};
const char *sc_record_segments_read(const struct sc_peer *peer, const struct sc_record_segments *segments,
				    struct iovec iov[SC_ABI_RDV_SEGMENTS]);

#endif
