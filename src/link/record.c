/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * record.c: what all writers of records need: space in a peer's ring, bounce buffers that go with a record, lists of
 * segments. It reads those lists, too.
 *
 * Buffers are lent with the record that is written next: between sc_record_lend() and its commit the caller writes
 * nothing to the peer's ring, and asks for no space there. A buffer comes back when the ring's head has passed the
 * record (pool.h), or with a message (hold.h). A buffer that the ring has overflowed into comes back with the record
 * that leaves it.
 *
 * If this process dies before the commit, the peer has seen nothing. If the peer dies, its loans come back as pool.h
 * says.
 */
#include "link/record.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include "base/fault.h"
#include "base/iov.h"
#include "link/peer.h"

/*
 * An endpoint that got no memory for more buffers, or lines, asks again after it has been short of them this many
 * times.
 */
#define AGAIN 1024

/*
 * Returns how many buffers that the peer's head has passed may still come back with a message, or have the payload of a
 * put. The head passes them in any case; but the record is in the ring before that, so there is none once nothing of the
 * peer's is unread.
 */
static uint32_t returning(struct sc_peer *peer)
{
	const struct sc_returnables *returnables = &peer->bounce.returnables;
	uint32_t passed = 0;

	while (passed < returnables->count && peer->ep->pool.at[returnables->bufs[passed]] < peer->tx.head)
		passed++;
	if (!passed || !peer->rx.at.lines || sc_ring_peek(&peer->rx) || sc_hold_is_pinned(peer))
		return passed;
	sc_hold_returnables_drop(peer, passed);
	return 0;
}

/* Takes back the buffers that the peer is known to have read. The last `newest` buffers have just been lent. */
static void take_back(struct sc_peer *peer, uint32_t newest)
{
	uint32_t kept = returning(peer);

	sc_pool_return_others(&peer->ep->pool, &peer->bounce.loans, peer->tx.head,
			      peer->bounce.returnables.bufs, kept);
	sc_record_judge(peer, newest);
}

/* Writes where the next records are; the ring has space for that. */
static void put_continue(struct sc_peer *peer, uint32_t where)
{
	static const uint64_t words[7];

	sc_record_put(peer, SC_ABI_CONTINUE, 0, where, words);
}

/* Call this after the record that leaves a buffer: the buffer comes back when that record has been read. */
static void leave(struct sc_peer *peer)
{
	if (sc_ring_overflows(&peer->tx))
		peer->ep->pool.at[peer->tx.overflow] = peer->tx.tail - 1;
}

/* Goes on in the ring, which is free: its reader has come to the first buffer. */
static void resume(struct sc_peer *peer)
{
	put_continue(peer, SC_ABI_IN_RING);
	leave(peer);
	sc_ring_resume(&peer->tx);
}

/* Learns how far the peer has read, and takes back the buffers, and the ring if the reader has left it. */
static int refresh(struct sc_peer *peer)
{
	int ret = sc_ring_refresh(&peer->tx);

	if (ret) {
		sc_peer_quarantine(peer, ret, "its ring's head is out of range");
		return ret;
	}
	take_back(peer, 0);
	if (sc_ring_overflows(&peer->tx) && sc_ring_may_resume(&peer->tx))
		resume(peer);
	return 0;
}

/*
 * A ring that has written this many lines grows even if it was never full: in each lap its writer asks how far it is
 * read, and the reader says so, and a line goes between their processors (docs/MEASUREMENTS.md, "Length of a ring").
 */
#define BUSY_LINES 1024

/* Tells whether the ring should have all its lines: it has no space for `lines`, or is a busy one. */
static bool ring_is_to_grow(const struct sc_ring_tx *tx, uint32_t lines)
{
	return !sc_ring_overflows(tx) && tx->at.count == SC_ABI_RING_FIRST &&
	       (tx->tail > BUSY_LINES || !sc_ring_has_room(tx, lines));
}

/*
 * Grows such a ring as soon as it may. Without memory the ring keeps its lines, and asks again after it has often been
 * full.
 */
static void ring_grow(struct sc_peer *peer, uint32_t lines)
{
	struct sc_ring_tx *tx = &peer->tx;

	if (!ring_is_to_grow(tx, lines) || (tx->grows_after && --tx->grows_after))
		return;
	sc_ring_set_room(tx, 0); /* so that each record comes here */
	if (!sc_ring_may_grow(tx))
		return;
	if (sc_seg_slot_grow(peer->seg, peer->out_slot)) {
		sc_ring_set_room(tx, SC_RING_FIRST_ROOM);
		tx->grows_after = AGAIN;
		return;
	}
	(void)SC_FAULT("record.ring_memory");
	/* the last peer of the slot may have left lines, if the kernel did not take the memory back */
	memset(tx->at.lines + SC_ABI_RING_FIRST, 0, SC_ABI_SLOT_SIZE - SC_ABI_SLOT_FIRST);
	(void)SC_FAULT("record.ring_cleared");
	sc_ring_grow(tx);
	put_continue(peer, SC_ABI_IN_RING);
}

/*
 * Tries without space, while the reader stays where it is, before the ring overflows: docs/MEASUREMENTS.md, "Overflow
 * of a ring". A reader that looks frees lines sooner, and a short ring stays in the processors' caches.
 */
#define OVERFLOWS_AFTER 256

/* The position of a buffer that the ring has not left yet: only the end of the link takes it back. */
#define NOT_LEFT (UINT64_MAX - 1)

/* Tells whether the reader of a full ring has not looked for a while. An endpoint that closes does not try again. */
static bool is_stuck(const struct sc_ep *ep, struct sc_ring_tx *tx)
{
	if (tx->stuck_at != tx->head) {
		tx->stuck_at = tx->head;
		tx->stuck = 0;
	}
	return tx->stuck++ >= OVERFLOWS_AFTER || ep->closes;
}

/*
 * Goes on in one more buffer, for any record. False: no buffer is free or long enough, or the peer has been given up.
 */
static bool overflow(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	uint32_t count = ep->config.buf_size / SC_ABI_LINE;
	uint16_t buf;
	uint8_t *to;

	if (!sc_ring_may_overflow(count) || !sc_record_may_lend(peer, 1, sc_record_reserve(ep)))
		return false;
	buf = sc_pool_lend(&ep->pool, &peer->bounce.loans, NOT_LEFT);
	to = sc_seg_buf(ep->seg, buf);
	memset(to, 0, ep->config.buf_size);
	(void)SC_FAULT("record.overflow_cleared");
	put_continue(peer, SC_ABI_IN_BUFFER(buf));
	leave(peer);
	sc_ring_overflow(&peer->tx, (struct sc_abi_line *)to, count);
	peer->tx.overflow = buf;
	ep->counters.tx_overflows++;
	return true;
}

/* Finds space in the ring, or in a buffer if it overflows. False: there is none, or the peer has been given up. */
static bool find_room(struct sc_peer *peer, uint32_t lines)
{
	struct sc_ring_tx *tx = &peer->tx;

	if (sc_ring_overflows(tx))
		return sc_ring_overflow_has_room(tx, lines) || overflow(peer);
	ring_grow(peer, lines);
	if (sc_ring_has_room(tx, lines) || (!tx->room && sc_ring_has_room_yet(tx, lines)))
		return true;
	/* the peer answers delegated gets in lines of the ring, not of a buffer */
	return is_stuck(peer->ep, tx) && !sc_peer_has_delegated(peer) && overflow(peer);
}

int sc_record_room_slow(struct sc_peer *peer, uint32_t lines)
{
	int ret = refresh(peer);

	if (ret || find_room(peer, lines))
		return ret;
	peer->ep->wants_room = true;
	return peer->link == SC_LINK_DOWN ? peer->error : -EAGAIN;
}

void sc_record_put(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t flags, uint32_t size,
		   const uint64_t words[7])
{
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);

	memcpy(line->words, words, sizeof(line->words));
	(void)SC_FAULT("record.line");
	sc_ring_commit(&peer->tx, sc_ring_ctl(kind, flags, 1, size), 1);
}

/*
 * Takes back what peers have read. Gives up a peer whose head is out of range: it gives nothing back any more, while
 * all peers wait for its buffers, and perhaps no later record to it would show the error.
 */
static void collect(struct sc_ep *ep)
{
	sc_list_for_safe (entry, next, &ep->borrowers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, bounce.borrower);

		if (refresh(peer))
			continue;
		if (!peer->bounce.loans.count)
			sc_list_remove(&peer->bounce.borrower);
	}
}

/*
 * Gives memory to twice as many buffers. Without memory the endpoint keeps those that it has, and asks again after it
 * has often been short of them.
 */
bool sc_record_grow_slow(struct sc_ep *ep, uint32_t buffers)
{
	struct sc_pool *pool = &ep->pool;
	uint32_t have = 2 * pool->have, least = pool->have + buffers - pool->free_count;

	if (pool->have == pool->most)
		return false;
	have = have < least ? least : have;
	have = have < pool->most ? have : pool->most;
	if (sc_seg_pool_grow(ep->seg, have)) {
		sc_pool_grow_failed(pool);
		return false;
	}
	sc_pool_grow(pool, have);
	return sc_pool_has(pool, buffers);
}

/* The next record reports a head that is out of range. */
void sc_record_reuse_slow(struct sc_peer *peer, uint32_t buffers)
{
	if (sc_ring_refresh(&peer->tx))
		return;
	take_back(peer, buffers);
	ring_grow(peer, 1); /* a link that comes here for buffers hardly ever comes for lines */
}

/*
 * Finds more buffers with memory. First takes back what peers have read: messages that are answered one by one need no
 * more. If some are still lent, more messages will come, so more buffers get memory: each look at how far a peer has
 * read takes a line from its processor.
 */
static bool get_bufs_slow(struct sc_ep *ep, uint32_t buffers)
{
	struct sc_pool *pool = &ep->pool;

	collect(ep);
	if (!sc_pool_has(pool, buffers) || pool->free_count < pool->have)
		(void)sc_record_grow_slow(ep, buffers);
	return sc_pool_has(pool, buffers);
}

/* Asks now and then for memory for more buffers, after there was none. */
static void ask_again(struct sc_ep *ep)
{
	struct sc_pool *pool = &ep->pool;

	if (pool->have < pool->most && !(++pool->short_of % AGAIN))
		(void)sc_record_grow_slow(ep, 0);
}

bool sc_record_may_lend(struct sc_peer *peer, uint32_t buffers, uint32_t reserve)
{
	struct sc_ep *ep = peer->ep;

	if (!sc_pool_may_lend(&ep->pool, &peer->bounce.loans, buffers, reserve)) {
		collect(ep);
		if (!sc_pool_may_lend(&ep->pool, &peer->bounce.loans, buffers, reserve)) {
			ask_again(ep);
			ep->wants_room = true;
			return false;
		}
	}
	if (!sc_pool_has(&ep->pool, buffers) &&
	    (!get_bufs_slow(ep, buffers) ||
	     !sc_pool_may_lend(&ep->pool, &peer->bounce.loans, buffers, reserve))) {
		ep->wants_room = true;
		return false;
	}
	if (!peer->tx.at.lines)
		return false; /* the peer has been given up */
	if (sc_list_empty(&peer->bounce.borrower))
		sc_list_append(&ep->borrowers, &peer->bounce.borrower);
	return true;
}

bool sc_record_may_spare(struct sc_peer *peer, uint32_t reserve)
{
	const struct sc_pool *pool = &peer->ep->pool;

	if (!sc_pool_may_lend(pool, &peer->bounce.loans, 1, reserve) && peer->bounce.loans.count)
		sc_record_reuse_slow(peer, 0);
	return sc_pool_may_lend(pool, &peer->bounce.loans, 1, reserve);
}

uint32_t sc_record_lend(struct sc_peer *peer, uint32_t size, uint16_t bufs[SC_ABI_RECORD_BUFS],
			struct iovec iov[SC_ABI_RECORD_BUFS])
{
	struct sc_ep *ep = peer->ep;
	uint32_t count = sc_record_bufs(ep, size);

	for (uint32_t i = 0; i < count; i++)
		bufs[i] = sc_pool_lend(&ep->pool, &peer->bounce.loans, peer->tx.tail);
	return sc_seg_bufs(ep->seg, bufs, size, iov);
}

void sc_record_copy(const struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS], const struct iovec *to,
		    size_t to_count, uint32_t size)
{
	struct iovec from[SC_ABI_RECORD_BUFS];
	uint32_t count = sc_seg_bufs(seg, bufs, size, from);
	size_t done = 0;

	for (uint32_t i = 0; i < count; done += from[i].iov_len, i++) {
		struct sc_iov_walk walk = { to, to_count, done, from[i].iov_len };
		const char *at = from[i].iov_base;
		uintptr_t base;
		size_t here;

		for (; sc_iov_next(&walk, &base, &here); at += here)
			sc_record_copy_bytes((void *)base, at, (uint32_t)here);
	}
}

/* Copies a part of a payload into one buffer. `warm`: its lines are in this processor's cache. */
static void buffer_fill(struct sc_peer *peer, uint8_t *to, struct sc_iov_walk part, bool warm)
{
	uintptr_t from;
	size_t here;

	for (; sc_iov_next(&part, &from, &here); to += here)
		if (warm)
			sc_copy_by_words(to, (const void *)from, here);
		else
			sc_fill_write(&peer->bounce.fill, to, (const void *)from, here);
	(void)SC_FAULT("record.buffer");
}

void sc_record_fill(struct sc_peer *peer, struct sc_iov_walk payload, uint16_t bufs[SC_ABI_RECORD_BUFS])
{
	struct iovec to[SC_ABI_RECORD_BUFS];
	uint32_t count = 1, size = (uint32_t)payload.left;
	bool warm = sc_record_is_warm(peer, size);

	if (size && size <= peer->ep->config.buf_size) {
		bufs[0] = sc_pool_lend(&peer->ep->pool, &peer->bounce.loans, peer->tx.tail);
		to[0] = (struct iovec){ sc_seg_buf(peer->ep->seg, bufs[0]), size };
	} else {
		count = sc_record_lend(peer, size, bufs, to);
	}
	for (uint32_t i = 0; i < count; i++) {
		payload.left = to[i].iov_len;
		buffer_fill(peer, to[i].iov_base, payload, warm && !i);
		payload.offset += to[i].iov_len;
	}
}

uint32_t sc_record_segments_write(struct sc_peer *peer, const struct iovec *iov, size_t count)
{
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);

	for (size_t i = 1; i < count; i++) {
		size_t place = (i - 1) % SC_ABI_RDV_PER_LINE;

		if (!place)
			line = sc_ring_next(&peer->tx.at, line);
		line->words[2 * place] = (uintptr_t)iov[i].iov_base;
		line->words[2 * place + 1] = iov[i].iov_len;
		(void)SC_FAULT("record.segment");
	}
	return SC_ABI_SEGMENT_LINES((uint32_t)count);
}

const char *sc_record_segments_read(const struct sc_peer *peer, const struct sc_record_segments *segments,
				    struct iovec iov[SC_ABI_RDV_SEGMENTS])
{
	const struct sc_abi_line *line = segments->line;
	struct sc_abi_segment segment = segments->first;
	uint64_t sum = 0;

	if (segments->count > SC_ABI_RDV_SEGMENTS ||
	    segments->lines != SC_ABI_SEGMENT_LINES(segments->count))
		return "too many segments";
	for (uint32_t i = 0; i < segments->count; i++) {
		uint32_t place = (i - 1) % SC_ABI_RDV_PER_LINE;

		if (i) {
			if (!place)
				line = sc_ring_next(&peer->rx.at, line);
			memcpy(&segment, &line->words[2 * place], sizeof(segment));
		}
		if (segment.len > segments->size - sum)
			return "segments that are longer than it says";
		sum += segment.len;
		iov[i] = (struct iovec){ (void *)(uintptr_t)segment.addr, segment.len };
	}
	return sum == segments->size ? NULL : "segments that are shorter than it says";
}

void sc_peer_publish(struct sc_peer *peer)
{
	sc_hold_end(peer);
	sc_ring_publish(&peer->rx, peer->units_back);
	peer->recv.lent = 0;
	sc_peer_wake(peer, SC_ABI_SLEEP_ROOM);
}

void sc_peers_give_back_slow(struct sc_ep *ep, uint32_t polls)
{
	sc_list_for_safe (entry, next, &ep->holding) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, hold.of_ep);

		if (ep->polls - peer->hold.poll < polls)
			return; /* the others have been held for less time */
		sc_peer_publish(peer);
	}
}
