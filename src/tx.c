/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tx.c: sending. A message becomes one record in the peer's ring:
 *
 *   inline      payload in the record                           complete on return
 *   bounce      payload in bounce buffers, named in the record  complete on return
 *   rendezvous  the addresses of the payload in the record; the receiver copies it after the match, or
 *               asks for it in pieces, and acknowledges         complete with the acknowledgement
 *
 * With delivery or match completion, inline and bounce messages wait for an acknowledgement too.
 *
 * A message is written or refused (-EAGAIN) in the call, never queued, so messages of a pair are in the
 * order of the calls whatever way their payload takes. Only answers to the peer (ack, pull) queue for a
 * full ring: the peer always reads its ring, so they never wait on one another.
 *
 * Two limits push a sender back: the ring, and the window: what a peer may leave unmatched at the
 * receiver. Where the window or the pool has no place for an eager payload the message goes by
 * rendezvous, which costs the receiver an entry only; so a receiver that matches late does not stop a
 * sender that has messages for others. Injected payload is then copied to memory of our own. tx_size is
 * no limit: a caller that may not go on before the call succeeds would wait for a receiver that waits for
 * its next message.
 *
 * If this process dies before sc_ring_commit() the message was never sent; after it, inline and bounce
 * messages are whole in shared memory; a rendezvous is not, the receiver's copy fails and says so. If the
 * peer dies, its loans and operations come back through sc_tx_end_peer().
 */
#include "tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "inject.h"
#include "iov.h"
#include "log.h"
#include "peer.h"

/* Pieces written in one call of sc_tx_progress(), so that a long transfer does not starve the rest. */
#define PUSH_BURST 16
/* Bounce buffers of a piece: small enough for both sides to copy at the same time. */
#define PIECE_BUFS 4
/* Answers that are kept for a peer that does not look at its ring. */
#define REPLIES_MAX 65536

static void complete(struct sc_ep *ep, const struct sc_tx_op *op, int error)
{
	struct sc_comp *comp;

	if (!ep->tx_cq || (!error && op->flags & SC_SILENT))
		return;
	comp = sc_cq_reserve(ep->tx_cq);
	if (!comp)
		return;
	*comp = (struct sc_comp){ .context = op->context,
				  .cq_flags = op->cq_flags,
				  .len = op->size,
				  .data = op->data,
				  .tag = op->tag,
				  .err = -error };
	sc_cq_commit(ep->tx_cq);
}

static void op_end(struct sc_ep *ep, struct sc_tx_op *op, int error)
{
	complete(ep, op, error);
	sc_list_remove(&op->of_peer);
	if (op->state == SC_TX_PUSHING)
		sc_list_remove(&op->pushing);
	free(op->copy);
	sc_slab_put(&ep->tx_ops, op);
}

static struct sc_tx_op *op_begin(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send,
				 size_t size)
{
	struct sc_tx_op *op = sc_slab_get(&ep->tx_ops);

	if (!op)
		return NULL;
	op->state = SC_TX_PUBLISHED;
	op->flags = send->flags;
	op->peer = peer;
	op->context = send->context;
	op->cq_flags = send->cq_flags;
	op->tag = send->tag;
	op->data = send->data;
	op->size = size;
	op->copy = NULL;
	op->iov_count = 0;
	sc_list_append(&peer->ops, &op->of_peer);
	return op;
}

/* Room for `lines` in the ring? -EAGAIN, -EPROTO. */
static int ring_room(struct sc_peer *peer, uint32_t lines)
{
	int ret;

	if (sc_ring_has_room(&peer->tx, lines))
		return 0;
	ret = sc_ring_refresh(&peer->tx);
	if (ret) {
		sc_peer_quarantine(peer, ret, "its ring's head is out of range");
		return ret;
	}
	sc_pool_return(&peer->ep->pool, &peer->loans, peer->tx.head);
	return sc_ring_has_room(&peer->tx, lines) ? 0 : -EAGAIN;
}

/* May `units` more wait unmatched at the peer? */
static bool window_room(struct sc_peer *peer, uint64_t units)
{
	uint64_t back;

	if (peer->units_sent + units <= peer->units_limit)
		return true;
	back = sc_load_relaxed_64(&peer->tx.consumer->window); /* a count of its own, orders nothing */
	if (back > peer->units_sent) {
		sc_peer_quarantine(peer, -EPROTO, "its window is out of range");
		return false;
	}
	peer->units_limit = back + peer->seg->header.window;
	return peer->units_sent + units <= peer->units_limit;
}

/* Take back what peers have read by now. */
static void pool_collect(struct sc_ep *ep)
{
	sc_list_for_safe(entry, next, &ep->borrowers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, borrower);

		if (sc_ring_refresh(&peer->tx))
			continue; /* its next send finds out */
		sc_pool_return(&ep->pool, &peer->loans, peer->tx.head);
		if (!peer->loans.count)
			sc_list_remove(&peer->borrower);
	}
}

/* Bounce buffers for this peer, with `reserve` more left free? */
static bool pool_room(struct sc_peer *peer, uint32_t buffers, uint32_t reserve)
{
	struct sc_ep *ep = peer->ep;

	if (!sc_pool_may_lend(&ep->pool, &peer->loans, buffers, reserve)) {
		pool_collect(ep);
		if (!sc_pool_may_lend(&ep->pool, &peer->loans, buffers, reserve))
			return false;
	}
	if (sc_list_empty(&peer->borrower))
		sc_list_append(&ep->borrowers, &peer->borrower);
	return true;
}

static uint32_t abi_flags(const struct sc_send *send)
{
	uint32_t flags = send->flags & SC_TAGGED ? SC_ABI_F_TAGGED : 0;

	if (send->flags & SC_SEND_DATA)
		flags |= SC_ABI_F_DATA;
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

/* An eager message has been written: it completes now, unless it waits for an acknowledgement. */
static void eager_done(struct sc_ep *ep, const struct sc_send *send, size_t size, uint32_t flags)
{
	struct sc_comp *comp;

	if (flags & SC_ABI_F_ACK || send->flags & SC_SILENT || !ep->tx_cq)
		return;
	comp = sc_cq_reserve(ep->tx_cq);
	if (!comp)
		return;
	comp->context = send->context;
	comp->cq_flags = send->cq_flags;
	comp->len = size;
	comp->buf = NULL;
	comp->data = send->data;
	comp->tag = send->tag;
	comp->source = NULL;
	comp->olen = 0;
	comp->err = 0;
	comp->flags = 0;
	sc_cq_commit(ep->tx_cq);
}

static void payload_write(struct sc_peer *peer, struct sc_abi_line *first, uint32_t flags,
			  const struct sc_send *send, uint32_t size)
{
	uint8_t flat[SC_INLINE_MAX];

	if (send->iov_count == 1) {
		sc_inline_write(peer->tx.lines, first, flags, send->iov[0].iov_base, size);
		return;
	}
	sc_iov_read(send->iov, send->iov_count, 0, flat, size);
	sc_inline_write(peer->tx.lines, first, flags, flat, size);
}

static int send_inline(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = abi_flags(send);
	uint32_t lines = sc_inline_lines(flags, size);
	uint64_t units = SC_ABI_UNITS(size);
	struct sc_abi_line *line;
	int ret;

	if (!window_room(peer, units))
		return peer->error ? peer->error : -EAGAIN;
	ret = ring_room(peer, lines);
	if (ret)
		return ret;
	line = sc_ring_reserve(&peer->tx);
	if (flags & SC_ABI_F_ACK) {
		struct sc_tx_op *op = op_begin(ep, peer, send, size);

		if (!op)
			return -EAGAIN;
		line->words[2] = sc_slab_id(op);
	}
	line->words[0] = send->tag;
	line->words[1] = send->data;
	if (size)
		payload_write(peer, line, flags, send, size);
	(void)SC_INJECT("tx.inline");
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_INLINE, flags, lines, size), lines);
	(void)SC_INJECT("tx.committed");
	count_sent(peer, size, units, &ep->counters.tx_inline);
	eager_done(ep, send, size, flags);
	return 0;
}

/* Fill `size` bytes of a payload, from `offset` on, into buffers lent with the next record. */
static void bounce_fill(struct sc_peer *peer, const struct iovec *iov, size_t iov_count, size_t offset,
			uint32_t size, uint16_t bufs[SC_ABI_RECORD_BUFS])
{
	struct sc_ep *ep = peer->ep;

	while (size) {
		uint32_t here = size < ep->config.buf_size ? size : ep->config.buf_size;

		*bufs = sc_pool_lend(&ep->pool, &peer->loans, peer->tx.tail);
		sc_iov_read(iov, iov_count, offset, sc_seg_buf(ep->seg, *bufs++), here);
		offset += here;
		size -= here;
	}
}

/* Buffers that eager messages leave to pieces, which have no other way to go. */
static uint32_t piece_reserve(const struct sc_ep *ep)
{
	return ep->pool.count / 2 < PIECE_BUFS ? ep->pool.count / 2 : PIECE_BUFS;
}

/*
 * -ENOBUFS: not now, take another way. A small message waits if the peer has buffers of ours, as it would
 * for the ring: they come back as soon as it looks there. The window has room again only when it matches,
 * and what other peers hold comes back when they look.
 */
static int send_bounce(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = abi_flags(send);
	uint32_t buffers = (size + ep->config.buf_size - 1) >> ep->buf_shift;
	uint64_t units = SC_ABI_UNITS(size);
	struct sc_abi_bounce *record;
	int ret;

	/* the upper half of the window is for rendezvous, which take less of it */
	if (!window_room(peer, units + peer->seg->header.window / 2))
		return peer->error ? peer->error : -ENOBUFS;
	ret = ring_room(peer, 1);
	if (ret)
		return ret;
	if (!pool_room(peer, buffers, piece_reserve(ep)))
		return size <= SC_INJECT_MAX && peer->loans.count ? -EAGAIN : -ENOBUFS;
	record = (struct sc_abi_bounce *)sc_ring_reserve(&peer->tx)->bytes;
	record->op = 0;
	if (flags & SC_ABI_F_ACK) {
		struct sc_tx_op *op = op_begin(ep, peer, send, size);

		if (!op)
			return -EAGAIN;
		record->op = sc_slab_id(op);
	}
	record->tag = send->tag;
	record->data = send->data;
	bounce_fill(peer, send->iov, send->iov_count, 0, size, record->bufs);
	(void)SC_INJECT("tx.bounce");
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_BOUNCE, flags, 1, size), 1);
	count_sent(peer, size, units, &ep->counters.tx_bounce);
	eager_done(ep, send, size, flags);
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

static int send_rdv(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = abi_flags(send) & ~SC_ABI_F_ACK;
	uint64_t units = SC_ABI_UNITS(0);
	struct sc_abi_line *line;
	struct sc_abi_rdv *record;
	struct sc_tx_op *op;
	uint32_t lines;
	int ret;

	if (!window_room(peer, units))
		return peer->error ? peer->error : -EAGAIN;
	ret = ring_room(peer, 1 + (SC_ABI_RDV_SEGMENTS - 1) / SC_ABI_RDV_PER_LINE);
	if (ret)
		return ret;
	op = op_begin(ep, peer, send, size);
	if (!op)
		return -EAGAIN;
	if (rdv_payload(op, send)) {
		op->flags |= SC_SILENT;
		op_end(ep, op, 0);
		return -EAGAIN;
	}
	line = sc_ring_reserve(&peer->tx);
	record = (struct sc_abi_rdv *)line->bytes;
	record->tag = send->tag;
	record->data = send->data;
	record->op = sc_slab_id(op);
	record->size = size;
	record->first = (struct sc_abi_segment){ (uintptr_t)op->iov[0].iov_base, op->iov[0].iov_len };
	lines = 1;
	for (size_t i = 1; i < op->iov_count; i++) {
		size_t place = (i - 1) % SC_ABI_RDV_PER_LINE;

		if (!place) {
			line = sc_ring_next(peer->tx.lines, line);
			lines++;
		}
		line->words[2 * place] = (uintptr_t)op->iov[i].iov_base;
		line->words[2 * place + 1] = op->iov[i].iov_len;
	}
	(void)SC_INJECT("tx.rdv");
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_RDV, flags, lines, (uint32_t)op->iov_count), lines);
	count_sent(peer, size, units, &ep->counters.tx_rdv);
	return 0;
}

/* What is not checked on the fast path: a link to be made, one that is lost, a fence. */
static int prepare(struct sc_peer *peer, const struct sc_send *send)
{
	if (peer->link == SC_LINK_DOWN) {
		if (!peer->told)
			sc_warn("%s: sends to it fail: %s", peer->address, strerror(-peer->error));
		peer->told = true;
		return peer->error;
	}
	if (send->flags & SC_SEND_FENCE && !sc_list_empty(&peer->ops))
		return -EAGAIN;
	return peer->link == SC_LINK_UP ? 0 : sc_peer_connect(peer);
}

int sc_tx_send(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send)
{
	size_t size = send->iov_count == 1 ? send->iov[0].iov_len : sc_iov_size(send->iov, send->iov_count);
	int ret;

	if (__builtin_expect(!peer->tx.lines || send->flags & SC_SEND_FENCE, 0)) {
		ret = prepare(peer, send);
		if (ret)
			return ret;
	}
	if (__builtin_expect(send->flags & SC_SEND_INJECT && size > SC_INJECT_MAX, 0))
		return -EMSGSIZE;
	/* completions that nobody reads would pile up: the caller is to read them first */
	if (__builtin_expect(ep->tx_cq && !(send->flags & SC_SILENT) &&
			     ep->tx_cq->tail - ep->tx_cq->head >= ep->tx_cq->limit, 0))
		return -EAGAIN;
	if (size <= ep->config.inline_max)
		return send_inline(peer, send, (uint32_t)size);
	if (size <= ep->config.eager_max) {
		ret = send_bounce(peer, send, (uint32_t)size);
		if (ret != -ENOBUFS)
			return ret;
	}
	return send_rdv(peer, send, size);
}

size_t sc_tx_room(const struct sc_ep *ep)
{
	return ep->tx_ops.used < ep->tx_size ? ep->tx_size - ep->tx_ops.used : 0;
}

static int reply_write(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t size, const uint64_t words[7])
{
	struct sc_abi_line *line;
	int ret = ring_room(peer, 1);

	if (ret)
		return ret;
	line = sc_ring_reserve(&peer->tx);
	memcpy(line->words, words, sizeof(line->words));
	(void)SC_INJECT("tx.reply");
	sc_ring_commit(&peer->tx, sc_ring_ctl(kind, 0, 1, size), 1);
	return 0;
}

void sc_tx_reply(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t size, const uint64_t words[7])
{
	struct sc_reply *reply;
	int ret;

	if (peer->feed == SC_FEED_DRAINING || peer->feed == SC_FEED_DONE)
		return; /* it has gone: nobody waits */
	ret = peer->link == SC_LINK_NONE ? sc_peer_connect(peer) : peer->link == SC_LINK_DOWN ? peer->error : 0;
	if (ret) {
		sc_peer_quarantine(peer, ret, "it wants an answer and cannot be connected to");
		return;
	}
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

int sc_tx_pulled(struct sc_peer *peer, const struct sc_abi_pull *pull)
{
	struct sc_tx_op *op = op_of_peer(peer, pull->op);

	if (!op || op->state != SC_TX_PUBLISHED || pull->size > op->size || !op->iov_count)
		return -EPROTO;
	op->state = SC_TX_PUSHING;
	op->to = pull->to;
	op->push_size = pull->size;
	op->pushed = 0;
	sc_list_append(&peer->ep->pushing, &op->pushing);
	return 0;
}

/* One piece of an operation's payload. False: no room. */
static bool push_piece(struct sc_tx_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_ep *ep = peer->ep;
	size_t left = op->push_size - op->pushed;
	uint32_t buffers = PIECE_BUFS, size;
	uint64_t words[7] = { op->to, op->pushed };

	if (peer->link != SC_LINK_UP || ring_room(peer, 1))
		return false;
	while (!pool_room(peer, buffers, 0))
		if (!(buffers /= 2))
			return false;
	size = buffers << ep->buf_shift;
	if (left < size)
		size = (uint32_t)left;
	bounce_fill(peer, op->iov, op->iov_count, op->pushed, size, ((struct sc_abi_piece *)words)->bufs);
	reply_write(peer, SC_ABI_PIECE, size, words);
	op->pushed += size;
	return true;
}

static int push_some(struct sc_ep *ep)
{
	int written = 0;

	sc_list_for_safe(entry, next, &ep->pushing) {
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

static int reply_some(struct sc_ep *ep)
{
	int written = 0;

	sc_list_for(entry, &ep->peers) {
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

	if (__builtin_expect(ep->replies, 0))
		written += reply_some(ep);
	if (__builtin_expect(!sc_list_empty(&ep->pushing), 0))
		written += push_some(ep);
	return written;
}

void sc_tx_end_peer(struct sc_peer *peer, int error)
{
	while (!sc_list_empty(&peer->ops))
		op_end(peer->ep, sc_list_entry(peer->ops.next, struct sc_tx_op, of_peer), error);
}

void sc_tx_fini(struct sc_ep *ep)
{
	if (ep->replies && ep->seg->pid == getpid())
		(void)reply_some(ep); /* what has room yet: the senders have been received */
	sc_list_for(entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		sc_list_for(pending, &peer->ops)
			free(sc_list_entry(pending, struct sc_tx_op, of_peer)->copy);
	}
	sc_slab_fini(&ep->tx_ops);
}
