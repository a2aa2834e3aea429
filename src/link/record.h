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
 * Room for a record of `lines` lines in the peer's ring, or in what it overflows into? -EAGAIN; -EPROTO: the peer has
 * been given up. It may write one that says that the ring has grown, overflows or resumes: so what is reserved, or lent
 * with the next record, comes after it.
 */
static inline int sc_record_room(struct sc_peer *peer, uint32_t lines)
{
	return sc_ring_has_room(&peer->tx, lines) ? 0 : sc_record_room_slow(peer, lines);
}

/* Write a record of one line; there is room. */
void sc_record_put(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t flags, uint32_t size,
		   const uint64_t words[7]);

/*
 * May `buffers` bounce buffers be lent to this peer, with `reserve` left free besides? True is good for the
 * next records, which take so many together. False: not now, or the peer has just been given up. Others may have been
 * in either case.
 */
bool sc_record_may_lend(struct sc_peer *peer, uint32_t buffers, uint32_t reserve);

/*
 * Is it worth asking for one, for what has another way to go? Only this peer is asked what it has read: where all have
 * much to read, as many would be asked as there are, each time.
 */
bool sc_record_may_spare(struct sc_peer *peer, uint32_t reserve);

/* So many may be lent: give more of them memory, if those that have it do not suffice. False: they do not. */
bool sc_record_grow_slow(struct sc_ep *ep, uint32_t buffers);

static inline bool sc_record_grow(struct sc_ep *ep, uint32_t buffers)
{
	return sc_pool_has(&ep->pool, buffers) || sc_record_grow_slow(ep, buffers);
}

/*
 * Lend buffers for `size` bytes with the next record: their numbers, and their memory as a vector. Returns
 * how many.
 */
uint32_t sc_record_lend(struct sc_peer *peer, uint32_t size, uint16_t bufs[SC_ABI_RECORD_BUFS],
			struct iovec iov[SC_ABI_RECORD_BUFS]);

/* The memory of buffers that a record of the peer names, checked by sc_seg_has_bufs(). Returns how many. */
uint32_t sc_record_bufs(const struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS], uint32_t size,
			struct iovec iov[SC_ABI_RECORD_BUFS]);

/* Copy what such buffers of a record hold, checked likewise. The vector is long enough. */
void sc_record_copy(const struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS], const struct iovec *to,
		    size_t to_count, uint32_t size);

/* By memcpy(3), unless that takes string instructions and the two are aliased, which is slow (copy.h). */
static inline void sc_record_copy_bytes(void *to, const void *from, uint32_t size)
{
	if (size > 2 * SC_COPY_BLOCK && sc_copy_is_aliased(to, from))
		sc_copy_backwards(to, from, size);
	else
		memcpy(to, from, size);
}

/* Fill a payload, or a part of one, into buffers lent with the next record. */
void sc_record_fill(struct sc_peer *peer, struct sc_iov_walk payload, uint16_t bufs[SC_ABI_RECORD_BUFS]);

/* Buffers that a peer may have besides those of the last record before they are asked back. */
#define SC_RECORD_LENT 15

void sc_record_reuse_slow(struct sc_peer *peer, uint32_t buffers);

/*
 * Behind the commit of records that have been lent `buffers`: take back what the peer has read of earlier ones,
 * so that few buffers are used again and again, and stay in the processors' caches. Not for each record, as the line
 * that says how far it has read comes from its processor, and goes back there when it reads on: docs/MEASUREMENTS.md,
 * "Buffers asked back".
 */
static inline void sc_record_reuse(struct sc_peer *peer, uint32_t buffers)
{
	if (peer->bounce.loans.count > buffers + SC_RECORD_LENT &&
	    peer->bounce.fill.way != SC_FILL_STREAMED)
		sc_record_reuse_slow(peer, buffers);
}

/* Buffers that it may have read and not said so, or have been written just now; of lines half of the ring's. */
#define SC_RECORD_UNSAID 4

/* Is the peer behind, by what is known of it? The last `newest` buffers have been lent just now; some may be held. */
static inline void sc_record_judge(struct sc_peer *peer, uint32_t newest)
{
	peer->bounce.is_behind =
		peer->bounce.loans.count > newest + SC_RECORD_UNSAID + peer->bounce.returnables.count ||
		peer->tx.tail - peer->tx.head > peer->tx.at.count / 2;
}

/*
 * The message, or the part of one, that the oldest of the returnable buffers has come back with has been read: so have all
 * records up to that which it was lent with. It is lent next, as its lines are here.
 */
static inline __attribute__((always_inline)) void sc_record_returned(struct sc_peer *peer)
{
	struct sc_pool *pool = &peer->ep->pool;
	struct sc_returnables *returnables = &peer->bounce.returnables;
	uint16_t buf = *returnables->bufs;
	uint64_t head;

	if (__builtin_expect(!returnables->count, 0))
		return; /* a sender that takes back a record while it is read gives up its buffers */
	head = pool->at[buf] + 1;
	sc_ring_learn(&peer->tx, head);
	head = head > peer->tx.head ? head : peer->tx.head;
	sc_hold_returnables_drop(peer, 1);
	/* the head may have passed the others, too, which are unread */
	sc_pool_return_others(pool, &peer->bounce.loans, head, returnables->bufs, returnables->count);
	pool->warm = buf;
	sc_record_judge(peer, 0);
}

/* Behind the commit of a message of `size` bytes in buffers: the one that is lent next may be fetched for another. */
static inline void sc_record_fetch(struct sc_peer *peer, uint32_t size)
{
	const struct sc_ep *ep = peer->ep;

	if (sc_pool_has(&ep->pool, 1))
		sc_fill_fetch(&peer->bounce.fill, sc_seg_buf(ep->seg, ep->pool.free_first), size);
}

/* Bytes in the buffers that a record names, one that names some. */
static inline uint32_t sc_record_bytes(const struct sc_seg *seg, uint64_t ctl)
{
	return sc_ctl_kind(ctl) == SC_ABI_BOUNCE && sc_ctl_flags(ctl) & SC_ABI_F_PARTS
		       ? seg->header.buf_size
		       : sc_ctl_size(ctl);
}

/*
 * Does a piece of `size` bytes go on with a message that ends at `end` where it has been taken to, `done`, in buffers
 * that there are?
 */
static inline bool sc_record_is_next_piece(struct sc_seg *seg, const struct sc_abi_piece *piece,
					   uint32_t size, uint64_t done, uint64_t end)
{
	return size && piece->offset == done && size <= end - done &&
	       sc_seg_has_bufs(seg, piece->bufs, size);
}

/*
 * Write the segments of the record to be, but the first, which goes into its first line with the rest.
 * Returns the lines of all.
 */
uint32_t sc_record_segments_write(struct sc_peer *peer, const struct iovec *iov, size_t count);

/*
 * Read `count` segments, the first of them given, the others in the lines behind `line` of a record of
 * `lines`. They must have `size` bytes together. Returns their error as text, or NULL.
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
