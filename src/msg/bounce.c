/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bounce.c: messages in bounce buffers, and what they cost.
 *
 *   bounce   The sender lends its buffers with the record that names them. A payload in several buffers has a record
 *            for each, so that the receiver reads one while the sender fills the next, unless the receiver is behind.
 *   return   The receiver has lent its buffers with an earlier message; they go back with this one, with a record for
 *            each (hold.h).
 *
 * The sender has all buffers of a message, and space in the ring for all its records, before it writes the first
 * record. pool.h and hold.h tell which side has a buffer when.
 *
 * If this process dies before the record is published (R1 in ring.h), the message was never sent. After that, it is
 * complete in shared memory, except a message in parts before its last record: a receive that has matched it fails with
 * the peer. If the peer dies, its loans come back when its link ends (peer.c).
 */
#include "msg/bounce.h"

#include <errno.h>
#include <string.h>
#include "base/copy.h"
#include "base/fault.h"
#include "base/iov.h"
#include "proc/calibration.h"
#include "link/record.h"
#include "link/xfer.h"
#include "msg/send.h"

/*
 * A buffer of this many bytes is worth a record of its own, while half of the ring is free and the receiver is not
 * behind: docs/MEASUREMENTS.md, "Messages in parts".
 */
#define PART_MIN 4096

/*
 * Writes the record of a message in buffers; the caller wakes the reader. Out of line, because a compiler that sees
 * where `record` comes from stores it word by word: docs/MEASUREMENTS.md, "Stores of a call".
 */
static __attribute__((noinline)) void bounce_store(struct sc_peer *peer,
						   const struct sc_abi_bounce *record, uint64_t ctl)
{
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);
	uint32_t size = sc_ctl_size(ctl);

	(void)SC_FAULT("bounce.words");
	/* in one go, and last: the reader polls this line, and each look takes it away from us */
	memcpy(line->bytes, record, sizeof(*record));
	(void)SC_FAULT("bounce.record");
	sc_ring_store(&peer->tx, line, ctl, 1);
	sc_send_count(peer, size, SC_ABI_UNITS(size), &peer->ep->counters.tx_bounce);
}

bool sc_bounce_send_buffer(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	struct sc_abi_bounce record = { .tag = send->tag, .data = send->data };
	struct sc_ep *ep = peer->ep;
	struct sc_pool *pool = &ep->pool;
	uint32_t record_flags = send->flags & SC_MESSAGE_FLAGS;
	bool warm, returnable;

	if (!sc_send_is_ready(peer, SC_ABI_UNITS(size), true) || !sc_ring_has_room(&peer->tx, 1) ||
	    sc_list_empty(&peer->bounce.borrower) ||
	    !sc_pool_may_lend(pool, &peer->bounce.loans, 1, sc_bounce_reserve(peer)) ||
	    !sc_pool_has(pool, 1))
		return false;
	warm = sc_record_is_warm(peer, size);
	returnable = sc_record_may_return(peer, size, 1);
	record.bufs[0] = sc_pool_lend(pool, &peer->bounce.loans, peer->tx.tail);
	record_flags |= sc_record_return_flag(peer, record.bufs[0], returnable);
	if (warm)
		sc_copy_by_words(sc_seg_buf(ep->seg, record.bufs[0]), send->iov->iov_base, size);
	else
		sc_fill_write(&peer->bounce.fill, sc_seg_buf(ep->seg, record.bufs[0]), send->iov->iov_base,
			      size);
	(void)SC_FAULT("bounce.buffer");
	bounce_store(peer, &record, sc_ring_ctl(SC_ABI_BOUNCE, record_flags, 1, size));
	sc_record_reuse(peer, 1);
	sc_send_short_done(peer, send, size);
	sc_record_fetch(peer, size);
	return true;
}

bool sc_bounce_send_return(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	struct sc_abi_bounce record = { .tag = send->tag, .data = send->data };

	if (!sc_send_is_ready(peer, SC_ABI_UNITS(size), true) || !sc_ring_has_room(&peer->tx, 1))
		return false;
	record.bufs[0] = *sc_hold_take(peer, 1);
	sc_copy_by_words(sc_seg_buf(peer->seg, record.bufs[0]), send->iov->iov_base, size);
	(void)SC_FAULT("bounce.return");
	bounce_store(peer, &record,
		     sc_ring_ctl(SC_ABI_BOUNCE, (send->flags & SC_MESSAGE_FLAGS) | SC_ABI_F_RETURNED, 1, size));
	sc_send_short_done(peer, send, size);
	return true;
}

/*
 * Returns the nanoseconds to copy a payload into bounce buffers and out of them; 0: not known. The sender fills one
 * buffer while the receiver reads another, except for the first.
 */
static uint64_t bounce_ns(const struct sc_peer *peer, uint64_t size)
{
	const struct sc_config *config = &peer->ep->config;
	uint64_t write = peer->bounce.fill.write_cost, read = peer->bounce.fill.read_cost;
	uint64_t first = config->buf_size < PART_MIN || size < config->buf_size ? size : config->buf_size;

	return (first * (write + read) + (size - first) * (write > read ? write : read)) / 1000;
}

/*
 * Tells whether the message is one of several that the peer copies in one call: they are sent without a poll between,
 * or so many rendezvous messages are not acknowledged yet.
 */
static bool is_of_stream(const struct sc_peer *peer)
{
	return sc_burst_is_stream(&peer->bounce.burst) || peer->bounce.rendezvous >= SC_BURST_STREAM_MIN;
}

/*
 * For a stream, the slower of filling and reading the buffers decides; one call of CMA copies as many messages as it
 * may, or a half of each. (A message that is never received counts too: its sender counts as one of a stream.)
 */
uint32_t sc_bounce_costs(struct sc_peer *peer, const struct sc_send *send, size_t size,
			 struct sc_route_costs *costs)
{
	uint32_t together = 1;

	*costs = (struct sc_route_costs){ 0 };
	if (size <= SC_INJECT_MAX || !peer->ep->config.eager_adapts || peer->rma.fetch == SC_FETCH_NO ||
	    !peer->bounce.fill.read_cost || sc_xfer_is_crowded(peer->ep))
		return 0;
	costs->buffers_ns = bounce_ns(peer, size);
	if (is_of_stream(peer)) {
		costs->buffers_ns = size * peer->bounce.fill.stream_cost / 1000;
		if (size >= peer->ep->config.share_min && !peer->writes_fail)
			size /= 2;
		together = sc_cma_together(send->iov_count, size);
	}
	if (!sc_fill_has_trial(&peer->bounce.fill))
		costs->cma_ns = sc_calibration_cma_ns(size, send->iov_count, together);
	return together > 1 ? SC_FACT_STREAM : 0;
}

/* Tells whether half of the ring and `lines` more are free. Loads the peer's head only if they do not look free. */
static bool half_free(struct sc_peer *peer, uint32_t lines)
{
	lines += peer->tx.at.count / 2;
	return sc_ring_has_room(&peer->tx, lines) ||
	       (!sc_ring_refresh(&peer->tx) && sc_ring_has_room(&peer->tx, lines));
}

/* Writes the record of a part; there are space and buffers for it. */
static void part_put(struct sc_peer *peer, const struct sc_send *send, uint32_t offset, uint32_t size, bool returnable)
{
	uint64_t words[7] = { 0, offset };
	uint16_t *bufs = ((struct sc_abi_piece *)words)->bufs;

	sc_record_fill(peer, (struct sc_iov_walk){ send->iov, send->iov_count, offset, size }, bufs);
	sc_record_put(peer, SC_ABI_PIECE, sc_record_return_flag(peer, bufs[0], returnable), size, words);
}

/* Writes a message in held buffers of the peer, with a record for each; there is space. */
static __attribute__((noinline)) void return_put(struct sc_peer *peer, const struct sc_send *send,
						 uint32_t size, uint32_t flags)
{
	uint32_t here = peer->seg->header.buf_size, buffers = (size + here - 1) / here;
	const uint16_t *bufs = sc_hold_take(peer, buffers);
	struct sc_abi_bounce record = { .tag = send->tag, .data = send->data, .bufs = { *bufs } };

	if (buffers > 1)
		flags |= SC_ABI_F_PARTS;
	else
		here = size;
	sc_hold_fill(peer, *bufs, (struct sc_iov_walk){ send->iov, send->iov_count, 0, here });
	bounce_store(peer, &record, sc_ring_ctl(SC_ABI_BOUNCE, flags | SC_ABI_F_RETURNED, 1, size));
	sc_ring_wake(&peer->tx);
	for (uint32_t at = here; at < size; at += here) {
		uint64_t words[7] = { 0, at };

		here = size - at < here ? size - at : here;
		((struct sc_abi_piece *)words)->bufs[0] = *++bufs;
		sc_hold_fill(peer, *bufs, (struct sc_iov_walk){ send->iov, send->iov_count, at, here });
		sc_record_put(peer, SC_ABI_PIECE, SC_ABI_F_RETURNED, here, words);
	}
}

/*
 * So many reads of a peer's head take as long as a rendezvous. A small payload, which takes long by rendezvous, waits
 * for more of them: a peer that polls at all has read on by then.
 */
#define HEAD_READS 32
#define HEAD_READS_SMALL 1024

/*
 * Tells whether the peer reads, so that buffers come back sooner than a rendezvous ends: its head has moved since it was
 * last read, or it has been read only a few times at this place.
 */
static bool is_reading(struct sc_peer *peer, size_t size)
{
	if (peer->bounce.head_seen != peer->tx.head) {
		peer->bounce.head_seen = peer->tx.head;
		peer->bounce.head_reads = 0;
	}
	return peer->bounce.head_reads++ < (size > SC_INJECT_MAX ? HEAD_READS : HEAD_READS_SMALL);
}

int sc_bounce_send(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = sc_send_abi_flags(send);
	uint32_t buffers = sc_record_bufs(ep, size);
	uint64_t units = SC_ABI_UNITS(size);
	struct sc_abi_bounce record = { .tag = send->tag, .data = send->data };
	uint32_t here = size;
	bool returnable;
	int ret;

	if (sc_ring_overflows(&peer->tx))
		return -ENOBUFS; /* those buffers are for records */
	/* the other half is for rendezvous messages, which take less of it */
	if (!sc_send_window_room(peer, units + sc_send_units_left(peer, true)))
		return peer->error ? peer->error : -ENOBUFS;
	ret = sc_record_room(peer, 1);
	if (ret)
		return ret;
	if (!(flags & SC_ABI_F_ACK) && sc_hold_fits(peer, size, peer->hold.count) &&
	    half_free(peer, SC_ABI_RETURN_BUFS)) {
		return_put(peer, send, size, flags);
		sc_send_done(peer, send, size, flags);
		return 0;
	}
	if (!sc_record_may_lend(peer, buffers, sc_bounce_reserve(peer))) {
		if (peer->link == SC_LINK_DOWN)
			return peer->error;
		return peer->bounce.loans.count && is_reading(peer, size) ? -EAGAIN : -ENOBUFS;
	}
	if (buffers > 1 && ep->config.buf_size >= PART_MIN && !peer->bounce.is_behind &&
	    half_free(peer, buffers)) {
		here = ep->config.buf_size;
		flags |= SC_ABI_F_PARTS;
	}
	if (flags & SC_ABI_F_ACK) {
		struct sc_tx_op *op = sc_txop_begin(peer, send, size);

		if (!op)
			return -EAGAIN;
		record.op = sc_slab_id(op);
		(void)SC_FAULT("bounce.op");
	}
	returnable = (here < size || buffers == 1) && buffers <= SC_ABI_RETURN_BUFS &&
		     sc_record_may_return(peer, size, buffers);
	sc_record_fill(peer, (struct sc_iov_walk){ send->iov, send->iov_count, 0, here }, record.bufs);
	flags |= sc_record_return_flag(peer, record.bufs[0], returnable);
	bounce_store(peer, &record, sc_ring_ctl(SC_ABI_BOUNCE, flags, 1, size));
	sc_ring_wake(&peer->tx);
	for (uint32_t at = here; at < size; at += here) {
		here = size - at < here ? size - at : here;
		part_put(peer, send, at, here, returnable);
	}
	sc_record_reuse(peer, buffers);
	sc_send_done(peer, send, size, flags);
	sc_record_fetch(peer, size);
	return 0;
}
