/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tx.c: sending. A message becomes one record in the peer's ring:
 *
 *   inline      payload in the record                           complete on return
 *   bounce      payload in bounce buffers, named in the record  complete on return
 *               (what a record could hold as well too, from SC_TX_BUFFER_MIN on, or, for a receiver that is
 *               behind, from BUFFER_MIN_BEHIND on);
 *               in more than one buffer: a record for each, so that the receiver reads one while the next is filled,
 *               unless it is behind
 *   return      payload in bounce buffers of the receiver's, which were lent to us with a message of its and go back
 *               with this one, see hold.h; a record for each    complete on return
 *   rendezvous  the addresses of the payload in the record; the receiver copies it after the match and may
 *               have us copy along (xfer.h), or asks for it in pieces; it acknowledges in the end
 *                                                               complete with the acknowledgement
 *
 * With delivery or match completion, inline and bounce messages wait for an acknowledgement too.
 *
 * A message is written or refused (-EAGAIN) in the call, never queued, so messages of a pair are in the
 * order of the calls whatever way their payload takes. Only answers to the peer (ack, pull) queue for a
 * full ring: the peer always reads its ring, so they never wait on one another.
 *
 * Two limits push a sender back: the ring, with the buffers that it overflows into (record.c), and the window: the
 * messages that a peer may leave unmatched at the receiver. Where the window or the pool has no place for an eager
 * payload the message goes by rendezvous, which costs the receiver an entry only; so a receiver that looks or matches
 * late does not stop a sender that has messages for others. Injected payload is then copied to memory of our own.
 * tx_size is no limit: a caller that may not go on before the call succeeds would wait for a receiver that waits for
 * its next message. A caller that posts and never polls gets -EAGAIN in the end all the same (OPS_MAX): answers wait
 * for its poll.
 *
 * If this process dies before the record is published (R1 in ring.h) the message was never sent; after it, inline
 * and bounce messages are whole in shared memory; a rendezvous is not, the receiver's copy fails and says so; and so
 * does one in parts before the last of its records: a receive that it has matched fails with the peer. If the
 * peer dies, its loans and operations come back through sc_tx_end_peer().
 */
#include "msg/tx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "proc/calibration.h"
#include "base/copy.h"
#include "link/fence.h"
#include "link/hold.h"
#include "base/fault.h"
#include "base/iov.h"
#include "base/log.h"
#include "os/probe.h"
#include "link/peer.h"
#include "link/connect.h"
#include "link/review.h"
#include "link/record.h"
#include "link/turn.h"
#include "link/xfer.h"

/* Pieces written in one call of sc_tx_progress(), so that a long transfer does not starve the rest. */
#define PUSH_BURST 16
/*
 * Larger payloads go into a record only while half of the ring is free, and half of the window: a peer that does not
 * look at its ring leaves room there for the records of some hundred messages, if their payloads are elsewhere, and one
 * that does not match takes the more of rendezvous.
 */
#define INLINE_ALWAYS 200
/* Bounce buffers of a piece: small enough for both sides to copy at the same time. */
#define PIECE_BUFS 4
/*
 * Bytes that are worth a record of their own, for the receiver to read while the next are filled; as long as half of
 * the ring is free, and the receiver not behind: one that is busy with what came before reads nothing the sooner, and
 * has more records to read: windows of 8 and 16 KiB on a Zen 5 41 and 44 GB/s with them, 43 and 47 without; far apart
 * 12.1 and 12.7, 13.4 and 14.2.
 */
#define PART_MIN 4096
/* Answers that are kept for a peer that does not look at its ring, */
#define REPLIES_MAX 65536
/*
 * and sends that one has not acknowledged: so they are never more than it keeps for us, with those to requests. It has no
 * more of them unmatched by its window, as a rule; the others we have only to look at.
 */
#define OPS_MAX (REPLIES_MAX - 4 * SC_RMA_REQUESTS_MAX)

static void complete(struct sc_ep *ep, const struct sc_tx_op *op, int error)
{
	const struct sc_comp comp = { .context = op->context,
				      .cq_flags = op->cq_flags,
				      .len = op->size,
				      .data = op->data,
				      .tag = op->tag,
				      .err = -error };
	bool silent = !error && op->flags & SC_SILENT;

	sc_ep_count(ep, SC_EVENT_SEND, op->cntr, op->flags, error);
	if (op->turn)
		sc_turn_end(op->peer, op->turn, silent ? NULL : &comp);
	else if (ep->tx_cq && !silent)
		sc_comp_ring_put_slow(ep->tx_cq, &comp);
}

/* Is it a rendezvous of what could be eager? */
static bool is_short_rdv(const struct sc_tx_op *op)
{
	return op->iov_count && op->size <= op->peer->ep->config.eager_max;
}

static void op_free(struct sc_ep *ep, struct sc_tx_op *op)
{
	sc_list_remove(&op->of_peer);
	op->peer->op_count--;
	op->peer->short_rdvs -= is_short_rdv(op);
	if (op->state == SC_TX_PUSHING)
		sc_list_remove(&op->pushing);
	sc_xfer_part(&op->xfer);
	free(op->copy);
	sc_slab_put(&ep->tx_ops, op);
}

static void op_end(struct sc_ep *ep, struct sc_tx_op *op, int error)
{
	complete(ep, op, error);
	op_free(ep, op);
}

/* NULL: no memory, or there are as many as there may be. */
static struct sc_tx_op *op_begin(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send,
				 size_t size)
{
	struct sc_tx_op *op = peer->op_count < OPS_MAX ? sc_slab_get(&ep->tx_ops) : NULL;

	if (!op)
		return NULL;
	op->state = SC_TX_PUBLISHED;
	op->flags = send->flags;
	op->peer = peer;
	op->turn = sc_turn_pass(peer);
	op->context = send->context;
	op->cntr = send->cntr;
	op->cq_flags = send->cq_flags;
	op->tag = send->tag;
	op->data = send->data;
	op->size = size;
	op->copy = NULL;
	op->iov_count = 0;
	sc_list_init(&op->xfer.of_ep);
	peer->op_count++;
	sc_list_append(&peer->ops, &op->of_peer);
	return op;
}

static bool window_room_slow(struct sc_peer *peer, uint64_t units)
{
	uint64_t back =
		sc_load_relaxed_64(&peer->tx.consumer->window); /* a count of its own, orders nothing */
	if (back > peer->units_sent) {
		sc_peer_quarantine(peer, -EPROTO, "its window is out of range");
		return false;
	}
	peer->units_limit = back + peer->seg->header.window;
	if (peer->units_sent + units <= peer->units_limit)
		return true;
	peer->ep->wants_room = true;
	return false;
}

/* May `units` more wait unmatched at the peer? */
static inline bool window_room(struct sc_peer *peer, uint64_t units)
{
	return __builtin_expect(peer->units_sent + units <= peer->units_limit, 1) ||
	       window_room_slow(peer, units);
}

/* Flags of the message itself: a record has them with the same values. */
#define MESSAGE_FLAGS (SC_TAGGED | SC_SEND_DATA)
static_assert(SC_TAGGED == SC_ABI_F_TAGGED && SC_SEND_DATA == SC_ABI_F_DATA, "flags of a message");

/* And of how it is to be acknowledged. */
static inline uint32_t abi_flags(const struct sc_send *send)
{
	uint32_t flags = send->flags & MESSAGE_FLAGS;

	/* delivery is as soon as the match, and tells of both */
	if (send->flags & (SC_SEND_DELIVERY | SC_SEND_MATCH))
		flags |= SC_ABI_F_ACK | (send->flags & SC_SEND_FENCE ? SC_ABI_F_FENCE : 0);
	return flags;
}

static void count_sent(struct sc_peer *peer, size_t size, uint64_t units, uint64_t *way)
{
	struct sc_counters *counters = &peer->ep->counters;

	peer->units_sent += units;
	counters->tx_msgs++;
	counters->tx_bytes += size;
	++*way;
}

static void eager_done_slow(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	const struct sc_comp comp = { .context = send->context,
				      .cq_flags = send->cq_flags,
				      .len = size,
				      .data = send->data,
				      .tag = send->tag };

	sc_turn_end(peer, sc_turn_pass(peer), send->flags & SC_SILENT ? NULL : &comp);
}

/* Add its completion to the queue, which has room for it. */
static inline __attribute__((always_inline)) void eager_complete(struct sc_comp_ring *cq,
								 const struct sc_send *send, size_t size)
{
	struct sc_comp *comp = sc_comp_ring_next(cq);

	comp->context = send->context;
	comp->len = size;
	comp->buf = NULL;
	comp->data = send->data;
	comp->tag = send->tag;
	sc_comp_say(comp, send->cq_flags, 0, 0);
	sc_comp_ring_commit(cq);
}

/* An eager message has been written: it completes now, unless it waits for an acknowledgement. */
static void eager_done(struct sc_peer *peer, const struct sc_send *send, size_t size, uint32_t flags)
{
	if (flags & SC_ABI_F_ACK)
		return;
	sc_ep_count(peer->ep, SC_EVENT_SEND, send->cntr, send->flags, 0);
	if (__builtin_expect(peer->turn != NULL, 0))
		eager_done_slow(peer, send, size);
	else if (!(send->flags & SC_SILENT) && peer->ep->tx_cq && sc_comp_ring_has_room(peer->ep->tx_cq))
		eager_complete(peer->ep->tx_cq, send, size);
}

static void vector_write(struct sc_peer *peer, struct sc_abi_line *first, uint32_t flags,
			 const struct sc_send *send, uint32_t size)
{
	uint8_t flat[SC_INLINE_MAX];

	sc_iov_read(send->iov, send->iov_count, 0, flat, size);
	sc_inline_write(&peer->tx.at, first, flags, flat, size);
}

static inline void payload_write(struct sc_peer *peer, struct sc_abi_line *first, uint32_t flags,
				 const struct sc_send *send, uint32_t size)
{
	if (__builtin_expect(send->iov_count == 1, 1))
		sc_inline_write(&peer->tx.at, first, flags, send->iov[0].iov_base, size);
	else
		vector_write(peer, first, flags, send, size);
}

struct inline_record {
	uint32_t size; /* of the payload, bytes */
	uint32_t flags, lines;
};

/* Its payload is written, to this line, which is reserved, and those behind it. The reader is still to be woken. */
static inline __attribute__((always_inline)) void inline_store(struct sc_peer *peer,
							       struct sc_abi_line *line, uint64_t tag,
							       uint64_t data, struct inline_record record)
{
	(void)SC_FAULT("tx.inline_payload");
	/* relaxed: published by ctl; one by one, as the reader, maybe in the same core, loads them */
	sc_store_relaxed_64(&line->words[0], tag);
	sc_store_relaxed_64(&line->words[1], data);
	(void)SC_FAULT("tx.inline");
	sc_ring_store(&peer->tx, line, sc_ring_ctl(SC_ABI_INLINE, record.flags, record.lines, record.size),
		      record.lines);
	count_sent(peer, record.size, SC_ABI_UNITS(record.size), &peer->ep->counters.tx_inline);
}

/* Lines, and units of the window, that a payload leaves free besides. */
static inline uint32_t lines_left(const struct sc_peer *peer, size_t size)
{
	return size > INLINE_ALWAYS ? peer->tx.at.count / 2 : 0;
}

static inline uint64_t units_left(const struct sc_peer *peer, bool half)
{
	return half ? peer->seg->header.window / 2 : 0;
}

/* -ENOBUFS: not now, take another way, which a small one has not. */
static int send_inline(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	struct inline_record record = { .size = size, .flags = abi_flags(send) };
	int ret, no_room = size > INLINE_ALWAYS ? -ENOBUFS : -EAGAIN;
	struct sc_abi_line *line;

	if (size > INLINE_ALWAYS && sc_ring_overflows(&peer->tx))
		return -ENOBUFS; /* the memory is for records */
	record.lines = sc_inline_lines(record.flags, size);
	if (!window_room(peer, SC_ABI_UNITS(size) + units_left(peer, size > INLINE_ALWAYS)))
		return peer->error ? peer->error : no_room;
	ret = sc_record_room(peer, record.lines + lines_left(peer, size));
	if (ret)
		return ret == -EAGAIN ? no_room : ret;
	line = sc_ring_reserve(&peer->tx);
	if (record.flags & SC_ABI_F_ACK) {
		struct sc_tx_op *op = op_begin(peer->ep, peer, send, size);

		if (!op)
			return -EAGAIN;
		line->words[2] = sc_slab_id(op);
		(void)SC_FAULT("tx.inline_op");
	}
	if (size)
		payload_write(peer, line, record.flags, send, size);
	inline_store(peer, line, send->tag, send->data, record);
	sc_ring_wake(&peer->tx);
	eager_done(peer, send, size, record.flags);
	return 0;
}

/* The flags that a message of the short way may have. */
#define SHORT_FLAGS (SC_TAGGED | SC_SILENT | SC_SEND_DATA | SC_SEND_INJECT)

/*
 * Does it fit the window, with half of it left besides, is the peer there, and room for the completion?
 * units_limit is 0 while there is no ring.
 */
static inline __attribute__((always_inline)) bool is_ready(const struct sc_peer *peer, uint64_t units,
							   bool leaves_half)
{
	const struct sc_comp_ring *cq = peer->ep->tx_cq;

	return peer->units_sent + units <= peer->units_limit &&
	       peer->units_sent + units + units_left(peer, leaves_half) <= peer->units_limit &&
	       !sc_peer_has_closed(peer) && !sc_comp_ring_is_full(cq) && cq->tail - cq->head < cq->room;
}

/* Makes a struct sc_send of arguments in registers, without the payload. */
static inline __attribute__((always_inline)) struct sc_send send_of(struct sc_op_flags flags, uint64_t tag,
								    uint64_t data, void *context)
{
	return (struct sc_send){ .tag = tag,
				 .data = data,
				 .context = context,
				 .flags = flags.flags,
				 .cq_flags = flags.cq_flags };
}

/* A message has gone the short way: it completes, and its reader is woken. */
static inline __attribute__((always_inline)) void short_sent(struct sc_peer *peer,
							     const struct sc_send *send, uint32_t size)
{
	sc_ep_count(peer->ep, SC_EVENT_SEND, NULL, send->flags, 0);
	if (!(send->flags & SC_SILENT))
		eager_complete(peer->ep->tx_cq, send, size);
	sc_ring_wake(&peer->tx);
}

/*
 * The short way. It wakes the reader last, and checks first for cases that need a call before that: so it needs few
 * registers. `lines` and `units`, of its record: a message of one line has code of its own, where they are constants.
 */
static inline __attribute__((always_inline)) bool send_short(struct sc_peer *peer, const void *buf,
							     uint32_t size, uint64_t tag, uint64_t data,
							     struct sc_op_flags flags, void *context,
							     uint32_t lines, uint64_t units)
{
	const struct sc_send send = send_of(flags, tag, data, context);
	struct inline_record record = { size, flags.flags & MESSAGE_FLAGS, lines };
	struct sc_abi_line *line;

	if (!is_ready(peer, units, size > INLINE_ALWAYS) ||
	    !sc_ring_has_room(&peer->tx, lines + lines_left(peer, size)))
		return false;
	line = sc_ring_reserve(&peer->tx);
	sc_inline_write(&peer->tx.at, line, 0, buf, size);
	inline_store(peer, line, tag, data, record);
	short_sent(peer, &send, size);
	return true;
}

/* Bytes of payload that records of two lines hold. */
#define TWO_LINES (sc_inline_first(0) + SC_ABI_LINE_BYTES)

/*
 * Two lines have code of their own as well; and where the one before was sent without a poll between, so that others
 * are likely to follow, those of the third from here are fetched from their reader. Windows of 64 B on a 2-processor
 * Zen 4, more than 2,000 pairs: 1.09 times as many a second, fetched 1.32 times; two, four, six ahead 1.27, 1.30, 1.26.
 * The next of a ping-pong would be waited for: fetched each time, 64 B take 1.07 of the time one way. Of records of
 * one line it brought nothing, of three and four it cost 4 and 1 %.
 */
static __attribute__((noinline)) bool send_two_lines(struct sc_peer *peer, const void *buf, size_t size,
						     uint64_t tag, uint64_t data, struct sc_op_flags flags,
						     void *context)
{
	if (!send_short(peer, buf, (uint32_t)size, tag, data, flags, context, 2, SC_ABI_UNITS(TWO_LINES)))
		return false;
	if (sc_burst_add(&peer->two_lines, peer->ep))
		sc_ring_fetch_to_write(&peer->tx, 2 * 3, 2);
	return true;
}

static __attribute__((noinline)) bool send_lines(struct sc_peer *peer, const void *buf, size_t size,
						 uint64_t tag, uint64_t data, struct sc_op_flags flags,
						 void *context)
{
	return send_short(peer, buf, (uint32_t)size, tag, data, flags, context,
			  sc_inline_lines(0, (uint32_t)size), SC_ABI_UNITS(size));
}

/*
 * Buffers that eager messages leave to pieces, which have no other way to go; and, the more of them a peer has, to the ring
 * to it, which goes on in them if that peer does not look: of 88 it has 48 at most, and 23 are left for records. (With 47
 * and 4 of 64 it was sent 370 messages of 1 KiB, so 1400; windows are as fast.)
 */
static inline uint32_t eager_reserve(const struct sc_peer *peer)
{
	uint32_t half = peer->ep->pool.count / 2;

	return (half < PIECE_BUFS ? half : PIECE_BUFS) + peer->loans.count / 2;
}

/*
 * The record of a message whose payload, or a part of it, is in buffers lent with it. The reader is still to be woken.
 * Out of line, as a compiler that sees where `record` comes from stores to the line one by one: windows of 1 KiB had
 * 0.94 of the rate.
 */
static __attribute__((noinline)) void bounce_store(struct sc_peer *peer,
						   const struct sc_abi_bounce *record, uint64_t ctl)
{
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);
	uint32_t size = sc_ctl_size(ctl);

	(void)SC_FAULT("tx.bounce_words");
	/* at once, and last: the reader looks at this line all the time, and each look takes it away from us */
	memcpy(line->bytes, record, sizeof(*record));
	(void)SC_FAULT("tx.bounce");
	sc_ring_store(&peer->tx, line, ctl, 1);
	count_sent(peer, size, SC_ABI_UNITS(size), &peer->ep->counters.tx_bounce);
}

/* Buffers that are left besides, so that a large eager message to another does not wait for those that are held. */
#define RETURN_LEFT (SC_ABI_RECORD_BUFS + PIECE_BUFS)

/*
 * May the buffers of the next message come back with one (hold.h), one in each record? If no others may, the peer has
 * come to us, nothing waits for the peer to say that it has read the message, enough are left, and it is better so.
 */
static inline bool may_return(const struct sc_peer *peer, size_t size, uint32_t buffers)
{
	const struct sc_ep *ep = peer->ep;

	return !peer->returnables.count && peer->feed == SC_FEED_UP &&
	       !(ep->order & SC_ORDER_AFTER_SEND) && sc_pool_left(&ep->pool) >= buffers + RETURN_LEFT &&
	       !sc_fill_is_better(&peer->fill, size);
}

/* This one has been lent with the next record, and is returnable or not. Returns what is to be among its flags. */
static inline uint32_t return_flag(struct sc_peer *peer, uint16_t buf, bool returnable)
{
	if (!returnable)
		return 0;
	sc_hold_returnables_add(peer, buf);
	return SC_ABI_F_RETURN;
}

/* The short way of a message that one buffer holds, and no record. */
static __attribute__((noinline)) bool send_buffer(struct sc_peer *peer, const void *buf, uint32_t size,
						  uint64_t tag, uint64_t data, struct sc_op_flags flags,
						  void *context)
{
	const struct sc_send send = send_of(flags, tag, data, context);
	struct sc_abi_bounce record = { .tag = tag, .data = data };
	struct sc_ep *ep = peer->ep;
	struct sc_pool *pool = &ep->pool;
	uint32_t record_flags = flags.flags & MESSAGE_FLAGS;
	bool warm, returnable;

	if (!is_ready(peer, SC_ABI_UNITS(size), true) || !sc_ring_has_room(&peer->tx, 1) ||
	    sc_list_empty(&peer->borrower) ||
	    !sc_pool_may_lend(pool, &peer->loans, 1, eager_reserve(peer)) || !sc_pool_has(pool, 1))
		return false;
	warm = sc_pool_is_warm(pool) && !sc_fill_wants(&peer->fill, size);
	returnable = may_return(peer, size, 1);
	record.bufs[0] = sc_pool_lend(pool, &peer->loans, peer->tx.tail);
	record_flags |= return_flag(peer, record.bufs[0], returnable);
	if (warm)
		sc_copy_by_words(sc_seg_buf(ep->seg, record.bufs[0]), buf, size);
	else
		sc_fill_write(&peer->fill, sc_seg_buf(ep->seg, record.bufs[0]), buf, size);
	(void)SC_FAULT("tx.buffer");
	bounce_store(peer, &record, sc_ring_ctl(SC_ABI_BOUNCE, record_flags, 1, size));
	sc_record_reuse(peer, 1);
	short_sent(peer, &send, size);
	sc_record_fetch(peer, size);
	return true;
}

/* And in a buffer of the peer's that is held. */
static __attribute__((noinline)) bool send_return(struct sc_peer *peer, const void *buf, uint32_t size,
						  uint64_t tag, uint64_t data, struct sc_op_flags flags,
						  void *context)
{
	const struct sc_send send = send_of(flags, tag, data, context);
	struct sc_abi_bounce record = { .tag = tag, .data = data };

	if (!is_ready(peer, SC_ABI_UNITS(size), true) || !sc_ring_has_room(&peer->tx, 1))
		return false;
	record.bufs[0] = *sc_hold_take(peer, 1);
	sc_copy_by_words(sc_seg_buf(peer->seg, record.bufs[0]), buf, size);
	(void)SC_FAULT("tx.return");
	bounce_store(peer, &record, sc_ring_ctl(SC_ABI_RETURN, flags.flags & MESSAGE_FLAGS, 1, size));
	short_sent(peer, &send, size);
	return true;
}

/* Are some held, have so many of them room for so much, and are they better? */
static inline bool has_return(struct sc_peer *peer, size_t size, uint32_t buffers)
{
	return sc_hold_has(peer) && size >= SC_TX_BUFFER_MIN &&
	       size <= (size_t)buffers * peer->seg->header.buf_size &&
	       !sc_fill_is_better(&peer->fill, size) && !sc_fill_wants(&peer->fill, size);
}

/*
 * Bytes that are better in a buffer than in a record, for one who is behind: it has fewer lines of the ring to read, and
 * need not wait for each. Windows of 128, 192, 256 and 384 B on a Zen 5 4.5, 5.2, 6.0 and 7.8 GB/s in records, 4.7, 5.8,
 * 8.5 and 11.8 in buffers; far apart 1.2, 1.6, 1.4 and 1.9, 1.4, 1.9, 2.5 and 3.7; but of 64 B 0.88 and 0.74.
 */
#define BUFFER_MIN_BEHIND 128

/* Of what a record could hold as well: has the reader it sooner in a buffer? */
static inline bool prefers_buffer(const struct sc_peer *peer, size_t size)
{
	return size >= (peer->is_behind ? BUFFER_MIN_BEHIND : SC_TX_BUFFER_MIN) &&
	       size < peer->ep->buffer_end;
}

/* The short way of what one line does not hold. */
static inline bool send_short_longer(struct sc_peer *peer, const void *buf, size_t size, uint64_t tag,
				     uint64_t data, struct sc_op_flags flags, void *context)
{
	if (size <= TWO_LINES && size <= peer->ep->config.inline_max)
		return send_two_lines(peer, buf, size, tag, data, flags, context);
	if (has_return(peer, size, 1))
		return send_return(peer, buf, (uint32_t)size, tag, data, flags, context);
	if (size <= peer->ep->config.inline_max && !prefers_buffer(peer, size))
		return send_lines(peer, buf, size, tag, data, flags, context);
	return send_buffer(peer, buf, (uint32_t)size, tag, data, flags, context);
}

/*
 * The time to copy a payload into bounce buffers and out of them, nanoseconds; 0: not known. But for the first buffer,
 * one is filled while the other is read: 16 KiB one way on a 2-processor Zen 5 0.62 us for 0.64, apart 2.04 for 2.14.
 */
static uint64_t bounce_ns(const struct sc_peer *peer, uint64_t size)
{
	const struct sc_config *config = &peer->ep->config;
	uint64_t write = peer->fill.write_cost, read = peer->fill.read_cost;
	uint64_t first = config->buf_size < PART_MIN || size < config->buf_size ? size : config->buf_size;

	return (first * (write + read) + (size - first) * (write > read ? write : read)) / 1000;
}

/* Messages that make it likely that there are others for the peer to copy with the next. */
#define STREAM_MIN 4

/*
 * Is it one of several, which the peer copies in one call? They are sent one after the other, without a poll between;
 * or are rendezvous, of which so many are not acknowledged yet.
 */
static bool is_of_stream(struct sc_peer *peer)
{
	return sc_burst_add(&peer->burst, peer->ep) >= STREAM_MIN || peer->short_rdvs >= STREAM_MIN;
}

/*
 * Has the peer it sooner by CMA? By more than an eighth: the calibration's copies stay in one process and its caches;
 * 16 KiB between two on a Zen 5, apart, take 3.0 us for 2.2 that it reckons with. Of a stream the slower of writer and
 * reader of the buffers decides; and a call copies as many messages as it may, or a half of each. (Messages that are
 * never received are on their way, too: a sender that has such counts as one of a stream.)
 */
static bool favours_cma(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	uint64_t write = peer->fill.write_cost, read = peer->fill.read_cost;
	uint64_t ns = bounce_ns(peer, size);
	uint32_t together = 1;

	if (is_of_stream(peer)) {
		ns = size * (write > read ? write : read) / 1000;
		if (size >= peer->ep->config.share_min && !peer->writes_fail)
			size /= 2;
		together = sc_cma_together(send->iov_count, size);
	}
	return sc_calibration_favours_cma(ns * 8 / 9, size, send->iov_count, together);
}

/*
 * Does a payload go through bounce buffers, if there are any? Their cost is known after some large payloads have used
 * them.
 */
static bool is_eager(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	const struct sc_config *config = &peer->ep->config;

	if (size > config->eager_max)
		return false;
	if (size <= SC_INJECT_MAX || !config->eager_adapts || peer->fetch == SC_FETCH_NO ||
	    !peer->fill.read_cost)
		return true;
	return !favours_cma(peer, send, size) || sc_fill_has_trial(&peer->fill);
}

/* Is half of the ring free besides so many lines? The peer is asked only if it does not look so. */
static bool half_free(struct sc_peer *peer, uint32_t lines)
{
	lines += peer->tx.at.count / 2;
	return sc_ring_has_room(&peer->tx, lines) ||
	       (!sc_ring_refresh(&peer->tx) && sc_ring_has_room(&peer->tx, lines));
}

/* A record of a part of a payload, of `to`'s, which there are room and buffers for. */
static void piece_put(struct sc_peer *peer, const struct iovec *iov, size_t iov_count, sc_abi_op to,
		      uint64_t offset, uint32_t size, bool returnable)
{
	uint64_t words[7] = { to, offset };
	uint16_t *bufs = ((struct sc_abi_piece *)words)->bufs;

	sc_record_fill(peer, iov, iov_count, offset, size, bufs);
	sc_record_put(peer, SC_ABI_PIECE, return_flag(peer, bufs[0], returnable), size, words);
}

/* A part of a payload into a buffer of the peer's that is held. */
static void return_fill(struct sc_peer *peer, const struct sc_send *send, size_t offset, uint32_t size,
			uint16_t buf)
{
	struct sc_iov_walk walk = { send->iov, send->iov_count, offset, size };
	uint8_t *to = sc_seg_buf(peer->seg, buf);
	uintptr_t from;
	size_t here;

	for (; sc_iov_next(&walk, &from, &here); to += here)
		sc_copy_by_words(to, (const void *)from, here);
	(void)SC_FAULT("tx.return_part");
}

/* A message in buffers of the peer's that are held, which go back with it: a record for each. There is room. */
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
	return_fill(peer, send, 0, here, *bufs);
	bounce_store(peer, &record, sc_ring_ctl(SC_ABI_RETURN, flags, 1, size));
	sc_ring_wake(&peer->tx);
	for (uint32_t at = here; at < size; at += here) {
		uint64_t words[7] = { 0, at };

		here = size - at < here ? size - at : here;
		((struct sc_abi_piece *)words)->bufs[0] = *++bufs;
		return_fill(peer, send, at, here, *bufs);
		sc_record_put(peer, SC_ABI_RETURN_PIECE, 0, here, words);
	}
}

/*
 * Looks at how far a peer has read that take as long as a rendezvous instead; and for what is small, which takes long that
 * way, those after which a peer that reads at all would have read on.
 */
#define LOOKS 32
#define LOOKS_SMALL 1024

/*
 * Does the peer read what it has been sent, so that its buffers come back sooner than a rendezvous would be over? It
 * has read on since the last looks, or those were few.
 */
static bool is_reading(struct sc_peer *peer, size_t size)
{
	if (peer->looked_at != peer->tx.head) {
		peer->looked_at = peer->tx.head;
		peer->looks = 0;
	}
	return peer->looks++ < (size > SC_INJECT_MAX ? LOOKS : LOOKS_SMALL);
}

/*
 * -ENOBUFS: not now, take another way. A message waits if the peer has buffers of ours, as it would for the ring, while it
 * reads: they come back as soon as it looks there. Where it was sent by rendezvous each time that the sender was ahead,
 * of 16 KiB in windows 6% were, and the rate half of what it is. The window has room again only when the peer matches,
 * and buffers that other peers hold come back when they look.
 */
static __attribute__((noinline)) int send_bounce(struct sc_peer *peer, const struct sc_send *send,
						 uint32_t size)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = abi_flags(send);
	uint32_t buffers = (size + ep->config.buf_size - 1) >> ep->buf_shift;
	uint64_t units = SC_ABI_UNITS(size);
	struct sc_abi_bounce record = { .tag = send->tag, .data = send->data };
	uint32_t here = size;
	bool returnable;
	int ret;

	if (sc_ring_overflows(&peer->tx))
		return -ENOBUFS; /* they are for records */
	/* the upper half of the window is for rendezvous, which take less of it */
	if (!window_room(peer, units + units_left(peer, true)))
		return peer->error ? peer->error : -ENOBUFS;
	ret = sc_record_room(peer, 1);
	if (ret)
		return ret;
	if (!(flags & SC_ABI_F_ACK) && has_return(peer, size, peer->hold.count) &&
	    half_free(peer, SC_ABI_RETURN_BUFS)) {
		return_put(peer, send, size, flags);
		eager_done(peer, send, size, flags);
		return 0;
	}
	if (!sc_record_may_lend(peer, buffers, eager_reserve(peer))) {
		if (peer->link == SC_LINK_DOWN)
			return peer->error;
		return peer->loans.count && is_reading(peer, size) ? -EAGAIN : -ENOBUFS;
	}
	if (buffers > 1 && ep->config.buf_size >= PART_MIN && !peer->is_behind &&
	    half_free(peer, buffers)) {
		here = ep->config.buf_size;
		flags |= SC_ABI_F_PARTS;
	}
	if (flags & SC_ABI_F_ACK) {
		struct sc_tx_op *op = op_begin(ep, peer, send, size);

		if (!op)
			return -EAGAIN;
		record.op = sc_slab_id(op);
		(void)SC_FAULT("tx.bounce_op");
	}
	returnable = (here < size || buffers == 1) && buffers <= SC_ABI_RETURN_BUFS &&
		     may_return(peer, size, buffers);
	sc_record_fill(peer, send->iov, send->iov_count, 0, here, record.bufs);
	flags |= return_flag(peer, record.bufs[0], returnable);
	bounce_store(peer, &record, sc_ring_ctl(SC_ABI_BOUNCE, flags, 1, size));
	sc_ring_wake(&peer->tx);
	for (uint32_t at = here; at < size; at += here) {
		here = size - at < here ? size - at : here;
		piece_put(peer, send->iov, send->iov_count, 0, at, here, returnable);
	}
	sc_record_reuse(peer, buffers);
	eager_done(peer, send, size, flags);
	sc_record_fetch(peer, size);
	return 0;
}

/* The operation's own list of the payload's places: the caller's, or a copy of it. */
static int rdv_payload(struct sc_tx_op *op, const struct sc_send *send)
{
	if (send->flags & SC_SEND_INJECT && op->size) {
		op->copy = malloc(op->size);
		if (!op->copy)
			return -ENOMEM;
		sc_iov_read(send->iov, send->iov_count, 0, op->copy, op->size);
		op->iov[0] = (struct iovec){ op->copy, op->size };
		op->iov_count = 1;
		return 0;
	}
	for (size_t i = 0; i < send->iov_count; i++)
		if (send->iov[i].iov_len)
			op->iov[op->iov_count++] = send->iov[i];
	return 0;
}

static __attribute__((noinline)) int send_rdv(struct sc_peer *peer, const struct sc_send *send,
					      size_t size)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = abi_flags(send) & ~SC_ABI_F_ACK;
	uint64_t units = SC_ABI_UNITS(0);
	struct sc_abi_rdv *record;
	struct sc_tx_op *op;
	uint32_t lines;
	int ret;

	if (!window_room(peer, units))
		return peer->error ? peer->error : -EAGAIN;
	ret = sc_record_room(peer, SC_ABI_SEGMENT_LINES(SC_ABI_RDV_SEGMENTS));
	if (ret)
		return ret;
	op = op_begin(ep, peer, send, size);
	if (!op)
		return -EAGAIN;
	if (rdv_payload(op, send)) {
		peer->turn = op->turn;
		op_free(ep, op);
		return -EAGAIN;
	}
	record = (struct sc_abi_rdv *)sc_ring_reserve(&peer->tx)->bytes;
	record->tag = send->tag;
	record->data = send->data;
	record->op = sc_slab_id(op);
	record->size = size;
	record->first = (struct sc_abi_segment){ (uintptr_t)op->iov[0].iov_base, op->iov[0].iov_len };
	(void)SC_FAULT("tx.rdv_words");
	lines = sc_record_segments_write(peer, op->iov, op->iov_count);
	(void)SC_FAULT("tx.rdv");
	peer->short_rdvs += is_short_rdv(op);
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_RDV, flags, lines, (uint32_t)op->iov_count), lines);
	count_sent(peer, size, units, &ep->counters.tx_rdv);
	return 0;
}

/*
 * Would the peer read a message now before it has done all that it was asked to do with its memory? Puts and
 * atomics are done when their records are taken; gets take longer, and a put that it cannot fetch comes again.
 */
static bool overtakes_memory(const struct sc_peer *peer)
{
	return !sc_list_empty(&peer->rma_queued) || !sc_list_empty(&peer->offers) || peer->rma_gets ||
	       peer->rma_fars;
}

/* Of an endpoint with an order: -EAGAIN if it is not the message's turn yet. */
static int take_turn(struct sc_peer *peer)
{
	if (peer->ep->order & SC_ORDER_SEND && overtakes_memory(peer))
		return -EAGAIN;
	return sc_turn_take(peer);
}

/* Checks the conditions that the fast path does not: a link to be made, one that is lost, a fence, an order. */
static int prepare(struct sc_peer *peer, const struct sc_send *send)
{
	bool connects = peer->link == SC_LINK_NONE; /* says by itself why not */
	int ret;

	if (send->flags & SC_SEND_FENCE && peer->link == SC_LINK_UP) {
		if (!sc_list_empty(&peer->ops) || peer->rma_pending)
			return -EAGAIN;
		sc_fence_raise(peer);
	}
	ret = sc_peer_reach(peer);
	if (ret && ret != -EAGAIN && !connects) {
		if (!peer->told)
			sc_warn("%s: sends to it fail: %s", peer->address, strerror(-ret));
		peer->told = true;
	}
	return !ret && peer->ep->order ? take_turn(peer) : ret;
}

static __attribute__((noinline)) int message_send(struct sc_ep *ep, struct sc_peer *peer,
						  const struct sc_send *send)
{
	size_t size = __builtin_expect(send->iov_count == 1, 1) ? send->iov[0].iov_len
								: sc_iov_size(send->iov, send->iov_count);
	int ret;

	if (__builtin_expect(!peer->tx.at.lines || send->flags & SC_SEND_FENCE || ep->order ||
				     sc_peer_has_closed(peer),
			     0)) {
		ret = prepare(peer, send);
		if (ret)
			return ret;
	}
	if (__builtin_expect(size > (send->flags & SC_SEND_INJECT ? SC_INJECT_MAX : SC_MESSAGE_MAX), 0))
		return -EMSGSIZE;
	/* completions that nobody reads would pile up: the caller is to read them first */
	if (__builtin_expect(ep->tx_cq && !(send->flags & SC_SILENT) && sc_comp_ring_is_full(ep->tx_cq), 0))
		return -EAGAIN;
	if (size <= ep->config.inline_max) {
		if (prefers_buffer(peer, size) && sc_record_may_spare(peer, eager_reserve(peer))) {
			ret = send_bounce(peer, send, (uint32_t)size);
			if (ret != -ENOBUFS && ret != -EAGAIN)
				return ret;
		}
		ret = send_inline(peer, send, (uint32_t)size);
		if (ret != -ENOBUFS)
			return ret;
	}
	if (is_eager(peer, send, size)) {
		ret = send_bounce(peer, send, (uint32_t)size);
		if (ret != -ENOBUFS)
			return ret;
	}
	return send_rdv(peer, send, size);
}

/* Any message, any way but the short one. */
static int send_any(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send)
{
	int ret = message_send(ep, peer, send);

	if (__builtin_expect(ret, 0)) {
		sc_turn_drop(peer);
		ep->pushed_back |= ret == -EAGAIN;
	}
	return ret;
}

/* One buffer, any way but the short one. */
static __attribute__((noinline)) int send_whole(struct sc_peer *peer, const void *buf, size_t size,
						uint64_t tag, uint64_t data, struct sc_op_flags flags,
						void *context)
{
	const struct iovec iov = { (void *)buf, size };
	struct sc_send send = send_of(flags, tag, data, context);

	if (!buf && size)
		return -EINVAL;
	send.iov = &iov;
	send.iov_count = 1;
	return send_any(peer->ep, peer, &send);
}

/* Out of line, so that the code for a payload of one line needs few registers. */
static __attribute__((noinline)) int send_longer(struct sc_peer *peer, const void *buf, size_t size,
						 uint64_t tag, uint64_t data, struct sc_op_flags flags,
						 void *context)
{
	if (send_short_longer(peer, buf, size, tag, data, flags, context))
		return 0;
	return send_whole(peer, buf, size, tag, data, flags, context);
}

int sc_tx_send_buf(struct sc_peer *peer, const void *buf, size_t size, uint64_t tag, uint64_t data,
		   struct sc_op_flags flags, void *context)
{
	if (__builtin_expect(size >= peer->ep->short_end || flags.flags & ~SHORT_FLAGS, 0))
		return send_whole(peer, buf, size, tag, data, flags, context);
	if (__builtin_expect(size > sc_inline_first(0), 0))
		return send_longer(peer, buf, size, tag, data, flags, context);
	if (__builtin_expect(!send_short(peer, buf, (uint32_t)size, tag, data, flags, context, 1,
					 SC_ABI_UNITS(sc_inline_first(0))),
			     0))
		return send_whole(peer, buf, size, tag, data, flags, context);
	return 0;
}

int sc_tx_send(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send)
{
	const struct sc_op_flags flags = { send->flags, send->cq_flags };

	if (send->iov_count != 1 || send->cntr)
		return send_any(ep, peer, send);
	return sc_tx_send_buf(peer, send->iov->iov_base, send->iov->iov_len, send->tag, send->data, flags,
			      send->context);
}

size_t sc_tx_room(const struct sc_ep *ep)
{
	size_t used = sc_slab_used(&ep->tx_ops);

	return used < ep->tx_size ? ep->tx_size - used : 0;
}

static int reply_write(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t size, const uint64_t words[7])
{
	int ret = sc_record_room(peer, 1);

	if (!ret)
		sc_record_put(peer, kind, 0, size, words);
	return ret;
}

void sc_tx_reply(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t size, const uint64_t words[7])
{
	struct sc_reply *reply;

	if (!sc_peer_can_answer(peer))
		return; /* nobody waits */
	if (sc_list_empty(&peer->replies) && reply_write(peer, kind, size, words) != -EAGAIN)
		return;
	reply = peer->reply_count < REPLIES_MAX ? malloc(sizeof(*reply)) : NULL;
	if (!reply) {
		sc_peer_quarantine(peer, -ENOMEM, "no memory for more answers that it does not read");
		return;
	}
	reply->kind = kind;
	reply->size = size;
	memcpy(reply->words, words, sizeof(reply->words));
	sc_list_append(&peer->replies, &reply->of_peer);
	sc_ep_begin(peer->ep);
	peer->reply_count++;
	peer->ep->replies++;
}

static struct sc_tx_op *op_of_peer(struct sc_peer *peer, sc_abi_op id)
{
	struct sc_tx_op *op = sc_slab_find(&peer->ep->tx_ops, id);

	return op && op->peer == peer ? op : NULL;
}

int sc_tx_acked(struct sc_peer *peer, const struct sc_abi_ack *ack)
{
	struct sc_tx_op *op = op_of_peer(peer, ack->op);

	if (!op || ack->status < 0 || ack->status > 4095)
		return -EPROTO;
	op_end(peer->ep, op, -ack->status);
	return 0;
}

/*
 * Can this process read the payload itself? Asked because the receiver could not (`fault`), else as far as costs little.
 */
static bool is_readable(const struct sc_tx_op *op, bool fault)
{
	/* where nobody can tell, a copy that has failed once is not tried here */
	return fault ? !sc_probe_check(NULL, op->iov, op->iov_count, false)
		     : sc_probe_check_ends(op->iov, op->iov_count, false) != -EIO;
}

int sc_tx_pulled(struct sc_peer *peer, const struct sc_abi_pull *pull)
{
	struct sc_tx_op *op = op_of_peer(peer, pull->op);

	if (!op || op->state != SC_TX_PUBLISHED || pull->size > op->size || !op->iov_count)
		return -EPROTO;
	sc_xfer_part(&op->xfer);
	if (!pull->fault)
		peer->fetch = SC_FETCH_NO;
	op->state = SC_TX_PUSHING;
	op->unreadable = !is_readable(op, pull->fault);
	op->to = pull->to;
	op->push_size = pull->size;
	op->pushed = 0;
	sc_list_append(&peer->ep->pushing, &op->pushing);
	sc_ep_begin(peer->ep);
	return 0;
}

/* One piece of an operation's payload. False: no room. */
static bool push_piece(struct sc_tx_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_ep *ep = peer->ep;
	size_t left = op->push_size - op->pushed;
	uint32_t buffers = PIECE_BUFS, size;

	if (peer->link != SC_LINK_UP || sc_record_room(peer, 1))
		return false;
	if (op->unreadable) {
		const uint64_t words[7] = { op->to };

		sc_record_put(peer, SC_ABI_PIECE, 0, 0, words);
		op->pushed = op->push_size;
		return true;
	}
	while (!sc_record_may_lend(peer, buffers, 0))
		if (!(buffers /= 2))
			return false;
	size = buffers << ep->buf_shift;
	if (left < size)
		size = (uint32_t)left;
	piece_put(peer, op->iov, op->iov_count, op->to, op->pushed, size, false);
	op->pushed += size;
	return true;
}

static int push_some(struct sc_ep *ep)
{
	int written = 0;

	sc_list_for_safe (entry, next, &ep->pushing) {
		struct sc_tx_op *op = sc_list_entry(entry, struct sc_tx_op, pushing);

		while (written < PUSH_BURST && op->pushed < op->push_size && push_piece(op))
			written++;
		if (op->pushed == op->push_size) {
			sc_list_remove(&op->pushing);
			op->state = SC_TX_PUSHED;
		}
	}
	return written;
}

/* ---- shared copies --------------------------------------------------------------------------- */

int sc_tx_shared(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl)
{
	struct sc_record_segments segments = { .line = first,
					       .lines = sc_ctl_lines(ctl),
					       .count = sc_ctl_size(ctl) };
	struct sc_abi_share record;
	struct sc_tx_op *op;

	memcpy(&record, first->bytes, sizeof(record));
	segments.first = record.message.first;
	segments.size = record.size;
	op = op_of_peer(peer, record.message.op);
	/*
	 * no copy inside one process is shared: such a record is of another process, and would have us write to
	 * ourselves
	 */
	if (!op || op->state != SC_TX_PUBLISHED || !sc_list_empty(&op->xfer.of_ep) || !op->iov_count ||
	    peer->link != SC_LINK_UP || peer->seg->local || record.size > op->size || !segments.count ||
	    sc_record_segments_read(peer, &segments, op->segments))
		return -EPROTO;
	op->xfer = (struct sc_xfer){ .peer = peer,
				     .ours = op->iov,
				     .ours_count = op->iov_count,
				     .theirs = op->segments,
				     .theirs_count = segments.count };
	return sc_xfer_join(&op->xfer, &record);
}

/* ---- progress -------------------------------------------------------------------------------- */

static int reply_some(struct sc_ep *ep)
{
	int written = 0;

	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		while (!sc_list_empty(&peer->replies)) {
			struct sc_reply *reply =
				sc_list_entry(peer->replies.next, struct sc_reply, of_peer);

			if (reply_write(peer, reply->kind, reply->size, reply->words))
				break;
			sc_list_remove(&reply->of_peer);
			free(reply);
			peer->reply_count--;
			ep->replies--;
			written++;
		}
	}
	return written;
}

int sc_tx_progress(struct sc_ep *ep)
{
	int written = 0;

	if (ep->replies)
		written += reply_some(ep);
	if (!sc_list_empty(&ep->pushing))
		written += push_some(ep);
	return written;
}

void sc_tx_end_peer(struct sc_peer *peer, int error)
{
	while (!sc_list_empty(&peer->ops))
		op_end(peer->ep, sc_list_entry(peer->ops.next, struct sc_tx_op, of_peer), error);
}

void sc_tx_leave(struct sc_ep *ep)
{
	if (ep->replies && sc_seg_is_here(ep->seg))
		(void)reply_some(ep); /* the senders have been received */
}

void sc_tx_fini(struct sc_ep *ep)
{
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		sc_list_for (pending, &peer->ops)
			free(sc_list_entry(pending, struct sc_tx_op, of_peer)->copy);
	}
	sc_slab_fini(&ep->tx_ops);
}
