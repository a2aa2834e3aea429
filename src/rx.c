/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rx.c: receiving. A record is taken from a ring, checked, matched and delivered:
 *
 *   ring --> take_message() --posted--> deliver_*() --> completion
 *                 |                        ^
 *                 +--not posted--> sc_rx_msg, waiting --sc_rx_recv()--+
 *
 * A record's control words are copied to private memory once, checked, and only the copy is used; payload
 * goes straight from the ring or the sender's bounce buffer into the receive buffer. What does not make
 * sense ends the connection with that peer (sc_peer_quarantine()), nothing else.
 *
 * Bounce buffers are read when their record is taken, into the receive buffer or into a waiting message,
 * so buffers come back in ring order and a receiver that matches late holds none of them. What a peer may
 * leave waiting is bounded by the window; one that ignores it is in breach of the protocol.
 *
 * A rendezvous message is copied by CMA in steps (sc_rx_progress()), or asked for in pieces. Its operation
 * is known to the sender by an id only. Inside one process CMA is used as well: the addresses were read
 * from shared memory, and the kernel says EFAULT where memcpy() would crash.
 *
 * If the peer dies: what it published in the ring can be delivered; a copy of its memory fails and the
 * operation ends with ECONNRESET. If this process dies nothing of the peer's is held but the buffers named
 * in the ring, which its ledger takes back.
 */
#include "rx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "inject.h"
#include "iov.h"
#include "log.h"
#include "peer.h"
#include "tx.h"

/* Rings that are looked at in each poll; beyond them a few at a time, in turn. */
#define BUSY_RINGS 8
#define QUIET_RINGS 4
/* Records taken from one ring before the next one's turn. */
#define RING_BURST 32
/* Lines read before the writer is told. */
#define PUBLISH_LINES (SC_ABI_RING_LINES / 4)
/* Bytes copied by CMA in one step. */
#define PULL_STEP ((size_t)4 << 20)

/* A message to be delivered: what is known of it, checked, and where its payload is. */
struct message {
	enum sc_abi_kind kind;
	uint32_t flags, lines;
	uint64_t size;
	uint64_t tag, data;
	sc_abi_op op; /* 0: no acknowledgement asked for */
	const struct sc_abi_line *first; /* in the ring; NULL: it has waited and `bytes` is the payload */
	const uint8_t *bytes;
	uint64_t units;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
	uint32_t segment_count;
	struct iovec segments[SC_ABI_RDV_SEGMENTS];
};

static struct sc_match *queue_of(struct sc_ep *ep, bool tagged)
{
	return tagged ? &ep->tagged : &ep->plain;
}

static uint32_t comp_flags(uint32_t abi_flags)
{
	return SC_COMP_RECV | (abi_flags & SC_ABI_F_DATA ? SC_COMP_DATA : 0);
}

static void ack(struct sc_peer *peer, sc_abi_op op, uint64_t moved, int error)
{
	uint64_t words[7] = { 0 };
	struct sc_abi_ack *record = (struct sc_abi_ack *)words;

	record->op = op;
	record->moved = moved;
	record->status = -error;
	sc_tx_reply(peer, SC_ABI_ACK, 0, words);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void op_free(struct sc_ep *ep, struct sc_rx_op *op)
{
	sc_slab_put(&ep->rx_ops, op);
}

/*
 * One message has been received: `done` bytes of `size` are in the buffer at `buf` (multi-receive).
 * `error` 0 or a negative errno.
 */
static void complete(struct sc_ep *ep, const struct sc_rx_op *op, struct sc_peer *peer, uint64_t tag,
		     uint64_t data, uint32_t flags, size_t done, uint64_t size, void *buf, int error)
{
	struct sc_comp *comp;

	ep->counters.rx_msgs++;
	ep->counters.rx_bytes += done;
	if (!error && size > done)
		error = -EMSGSIZE;
	if (!ep->rx_cq || (op->flags & SC_SILENT && !error && !(flags & SC_COMP_MULTI_DONE)))
		return;
	comp = sc_cq_reserve(ep->rx_cq);
	if (!comp)
		return;
	comp->context = op->context;
	comp->cq_flags = op->cq_flags;
	comp->len = done;
	comp->buf = buf;
	comp->data = data;
	comp->tag = tag;
	comp->source = peer;
	comp->olen = size - done;
	comp->err = -error;
	comp->flags = flags;
	sc_cq_commit(ep->rx_cq);
}

/* ---- multi-receive --------------------------------------------------------------------------- */

/* Withdraw a posted receive from the matcher. */
static void unpost(struct sc_ep *ep, struct sc_rx_op *op)
{
	sc_match_unpost(queue_of(ep, op->flags & SC_TAGGED), &op->match);
	ep->rx_posted--;
}

/* Is the buffer the application's again after this message? It is taken out of the matcher then. */
static bool multi_exhausted(const struct sc_rx_op *op)
{
	return op->capacity < op->multi_min || !op->capacity;
}

/* The part of a multi-receive buffer for a message; what is left stays posted, or not. */
static void *multi_take(struct sc_ep *ep, struct sc_rx_op *op, size_t bytes)
{
	void *buf = op->iov[0].iov_base;

	op->iov[0].iov_base = (char *)buf + bytes;
	op->iov[0].iov_len -= bytes;
	op->capacity -= bytes;
	if (multi_exhausted(op))
		unpost(ep, op);
	return buf;
}

/* ---- transfers ------------------------------------------------------------------------------- */

static void transfer_end(struct sc_ep *ep, struct sc_rx_op *op, int error)
{
	uint32_t flags = op->comp_flags;
	struct sc_rx_op *multi = op->multi;

	sc_list_remove(&op->of_peer);
	sc_list_remove(&op->pulling);
	if (multi && !--multi->multi_transfers && multi_exhausted(multi)) {
		flags |= SC_COMP_MULTI_DONE;
		op_free(ep, multi);
	}
	complete(ep, op, op->peer, op->tag, op->data, flags, error ? 0 : op->want, op->size,
		 multi ? op->iov[0].iov_base : NULL, error);
	op_free(ep, op);
}

/* Ends well or badly for both sides. */
static void transfer_finish(struct sc_ep *ep, struct sc_rx_op *op, int error)
{
	ack(op->peer, op->message, error ? 0 : op->want, error);
	transfer_end(ep, op, error);
}

static void transfer_ask(struct sc_rx_op *op)
{
	uint64_t words[7] = { 0 };
	struct sc_abi_pull *pull = (struct sc_abi_pull *)words;

	op->done = 0;
	pull->op = op->message;
	pull->to = sc_slab_id(op);
	pull->size = op->want;
	sc_tx_reply(op->peer, SC_ABI_PULL, 0, words);
}

/* CMA has failed for good or for this once: end the operation, or take the other way. */
static void transfer_failed(struct sc_ep *ep, struct sc_rx_op *op, int error)
{
	struct sc_peer *peer = op->peer;

	if (error == -EFAULT) {
		sc_warn("%s: a message of %llu bytes could not be read: the sender's buffer is not mapped there "
			"(freed before the send completed?)", peer->address, (unsigned long long)op->size);
		transfer_finish(ep, op, error);
		return;
	}
	sc_info("%s: process_vm_readv: %s; large messages from it go through shared memory from now on",
		peer->address, strerror(-error));
	peer->can_read = false;
	sc_list_remove(&op->pulling);
	transfer_ask(op);
}

/* Has the peer closed? Then its memory is no longer what it sent, even if it can be read. */
static bool is_gone(const struct sc_peer *peer)
{
	return peer->link == SC_LINK_DOWN || !peer->seg ||
	       sc_load_acquire_32(&sc_seg_presence(peer->seg)->state) == SC_ABI_CLOSED;
}

/* Copy the next step by CMA; the operation may end in it. */
static void transfer_step(struct sc_ep *ep, struct sc_rx_op *op)
{
	size_t len = op->want - op->done < PULL_STEP ? op->want - op->done : PULL_STEP;
	struct iovec to[SC_IOV_MAX], from[SC_ABI_RDV_SEGMENTS];
	size_t to_count = sc_iov_slice(op->iov, op->iov_count, op->done, len, to);
	size_t from_count = sc_iov_slice(op->segments, op->segment_count, op->done, len, from);
	int ret = sc_cma_read(&op->peer->cma, to, to_count, from, from_count, len);

	if (ret) {
		transfer_failed(ep, op, ret);
		return;
	}
	op->done += len;
	*(op->peer->seg->local ? &ep->counters.rx_local_bytes : &ep->counters.rx_cma_bytes) += len;
	if (op->done == op->want)
		transfer_finish(ep, op, is_gone(op->peer) ? -ECONNRESET : 0);
}

/* The operation is matched with a rendezvous message and knows all about it: move the payload. */
static void transfer_start(struct sc_ep *ep, struct sc_rx_op *op)
{
	struct sc_peer *peer = op->peer;

	sc_list_init(&op->pulling);
	sc_list_append(&peer->transfers, &op->of_peer);
	op->done = 0;
	op->want = op->size < op->capacity ? op->size : op->capacity;
	if (is_gone(peer)) {
		transfer_finish(ep, op, peer->error ? peer->error : -ECONNRESET);
	} else if (!op->want) {
		transfer_finish(ep, op, 0);
	} else if (peer->can_read) {
		sc_list_append(&ep->pulling, &op->pulling);
		transfer_step(ep, op);
	} else {
		transfer_ask(op);
	}
}

int sc_rx_progress(struct sc_ep *ep)
{
	int steps = 0;

	sc_list_for_safe(entry, next, &ep->pulling) {
		transfer_step(ep, sc_list_entry(entry, struct sc_rx_op, pulling));
		steps++;
	}
	return steps;
}

/* Do `size` bytes fit into the buffers named, and are there such buffers? */
static bool bounce_exists(const struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS], uint64_t size)
{
	uint64_t held = 0;

	for (uint32_t i = 0; held < size; i++) {
		if (i == SC_ABI_RECORD_BUFS || bufs[i] >= seg->header.buf_count)
			return false;
		held += seg->header.buf_size;
	}
	return true;
}

/* Copy `len` bytes from bounce buffers into the vector at `offset`. */
static void bounce_read(const struct sc_seg *seg, const uint16_t *bufs, const struct iovec *iov,
			size_t iov_count, size_t offset, size_t len)
{
	while (len) {
		size_t here = seg->header.buf_size;

		if (here > len)
			here = len;
		sc_iov_write(iov, iov_count, offset, sc_seg_buf(seg, *bufs++), here);
		offset += here;
		len -= here;
	}
}

/* -EPROTO */
static int take_piece(struct sc_peer *peer, const struct sc_abi_piece *piece, uint32_t size)
{
	struct sc_ep *ep = peer->ep;
	struct sc_rx_op *op = sc_slab_find(&ep->rx_ops, piece->to);

	if (!op || op->peer != peer || sc_list_empty(&op->of_peer))
		return -EPROTO;
	if (piece->status) {
		transfer_end(ep, op, -EIO);
		return 0;
	}
	if (!size || piece->offset != op->done || size > op->want - op->done ||
	    !bounce_exists(peer->seg, piece->bufs, size))
		return -EPROTO;
	bounce_read(peer->seg, piece->bufs, op->iov, op->iov_count, op->done, size);
	op->done += size;
	ep->counters.rx_pulled_bytes += size;
	if (op->done == op->want)
		transfer_finish(ep, op, 0);
	return 0;
}

/* ---- delivery -------------------------------------------------------------------------------- */

/* The operation that receives a message: the posted one, or a child of it (multi-receive). NULL: no memory. */
static struct sc_rx_op *transfer_op(struct sc_ep *ep, struct sc_rx_op *posted, uint64_t size)
{
	size_t bytes = size < posted->capacity ? size : posted->capacity;
	struct sc_rx_op *op;

	if (!(posted->flags & SC_RECV_MULTI)) {
		posted->multi = NULL;
		return posted;
	}
	op = sc_slab_get(&ep->rx_ops);
	if (!op)
		return NULL;
	op->flags = posted->flags & ~SC_RECV_MULTI;
	op->context = posted->context;
	op->cq_flags = posted->cq_flags;
	op->multi = posted;
	op->iov[0] = (struct iovec){ multi_take(ep, posted, bytes), bytes };
	op->iov_count = 1;
	op->capacity = bytes;
	posted->multi_transfers++;
	return op;
}

static void transfer_take(struct sc_rx_op *op, struct sc_peer *peer, uint64_t tag, uint64_t data,
			  uint32_t flags, sc_abi_op message, uint64_t size)
{
	op->peer = peer;
	op->tag = tag;
	op->data = data;
	op->comp_flags = comp_flags(flags);
	op->message = message;
	op->size = size;
}

/* Payload of a record into the first `len` bytes of a vector. */
static void payload_read(const struct sc_peer *peer, const struct message *message, const struct iovec *iov,
			 size_t iov_count, size_t len)
{
	if (message->bytes) {
		sc_iov_write(iov, iov_count, 0, message->bytes, len);
		return;
	}
	if (message->kind == SC_ABI_INLINE) {
		uint8_t flat[SC_INLINE_MAX];

		if (iov_count == 1) {
			sc_inline_read(peer->rx.lines, message->first, message->flags, iov[0].iov_base,
				       (uint32_t)len);
			return;
		}
		sc_inline_read(peer->rx.lines, message->first, message->flags, flat, (uint32_t)len);
		sc_iov_write(iov, iov_count, 0, flat, len);
		return;
	}
	bounce_read(peer->seg, message->bufs, iov, iov_count, 0, len);
}

/* An eager message into a receive. The operation ends, but for a multi-receive with room left. */
static void deliver_eager(struct sc_ep *ep, struct sc_peer *peer, struct sc_rx_op *op,
			  const struct message *message)
{
	size_t len = message->size < op->capacity ? message->size : op->capacity;
	uint32_t flags = comp_flags(message->flags);
	void *buf = NULL;

	if (len)
		payload_read(peer, message, op->iov, op->iov_count, len);
	if (op->flags & SC_RECV_MULTI) {
		buf = multi_take(ep, op, len);
		if (multi_exhausted(op) && !op->multi_transfers)
			flags |= SC_COMP_MULTI_DONE;
	}
	complete(ep, op, peer, message->tag, message->data, flags, len, message->size, buf, 0);
	if (message->op)
		ack(peer, message->op, len, 0);
	if (!(op->flags & SC_RECV_MULTI) || flags & SC_COMP_MULTI_DONE)
		op_free(ep, op);
}

/* A rendezvous message into a receive. -ENOMEM: nothing has changed. */
static int deliver_rdv(struct sc_ep *ep, struct sc_peer *peer, struct sc_rx_op *posted,
		       const struct message *message)
{
	struct sc_rx_op *op = transfer_op(ep, posted, message->size);

	if (!op)
		return -ENOMEM;
	transfer_take(op, peer, message->tag, message->data, message->flags, message->op, message->size);
	op->segment_count = message->segment_count;
	memcpy(op->segments, message->segments, message->segment_count * sizeof(op->segments[0]));
	transfer_start(ep, op);
	return 0;
}

/* -ENOMEM: nothing has changed. */
static int deliver(struct sc_ep *ep, struct sc_peer *peer, struct sc_rx_op *op, const struct message *message)
{
	if (message->kind == SC_ABI_RDV)
		return deliver_rdv(ep, peer, op, message);
	deliver_eager(ep, peer, op, message);
	return 0;
}

/* Nobody has posted a receive for it yet: keep it. -ENOMEM: leave it in the ring. */
static int keep(struct sc_ep *ep, struct sc_peer *peer, const struct message *message)
{
	size_t extra = message->kind == SC_ABI_RDV ?
			       message->segment_count * sizeof(struct iovec) : (size_t)message->size;
	struct sc_rx_msg *msg = malloc(sizeof(*msg) + extra);

	if (!msg)
		return -ENOMEM;
	msg->match.source = peer;
	msg->match.tag = message->tag;
	msg->peer = peer;
	msg->kind = message->kind;
	msg->flags = message->flags;
	msg->data = message->data;
	msg->op = message->op;
	msg->size = message->size;
	msg->units = message->units;
	msg->segment_count = message->segment_count;
	if (message->kind == SC_ABI_RDV) {
		memcpy(msg->segments, message->segments, extra);
	} else if (extra) {
		struct iovec whole = { msg->bytes, extra };

		payload_read(peer, message, &whole, 1, extra);
	}
	if (sc_match_keep(queue_of(ep, message->flags & SC_ABI_F_TAGGED), &msg->match)) {
		free(msg);
		return -ENOMEM;
	}
	peer->units_held += message->units;
	ep->counters.rx_unexpected++;
	return 0;
}

/* The peer may send that much again. */
static void give_back(struct sc_peer *peer, uint64_t units)
{
	peer->units_back += units;
	if (peer->rx.lines && peer->units_back - peer->rx.window >= peer->ep->config.window / 4)
		sc_ring_publish(&peer->rx, peer->units_back);
}

/* ---- records --------------------------------------------------------------------------------- */

static const char *parse_bounce(const struct sc_peer *peer, struct message *message)
{
	struct sc_abi_bounce record;

	if (!peer->seg)
		return "a payload in the memory of a peer that has closed";
	memcpy(&record, message->first->bytes, sizeof(record));
	message->tag = record.tag;
	message->data = record.data;
	message->op = message->flags & SC_ABI_F_ACK ? record.op : 0;
	memcpy(message->bufs, record.bufs, sizeof(message->bufs));
	if (!bounce_exists(peer->seg, message->bufs, message->size))
		return "bounce buffers that do not exist";
	return NULL;
}

static const char *parse_rdv(const struct sc_peer *peer, struct message *message)
{
	uint32_t count = (uint32_t)message->size; /* ctl's size counts the segments */
	const struct sc_abi_line *line = message->first;
	struct sc_abi_rdv record;
	uint64_t sum = 0;

	memcpy(&record, line->bytes, sizeof(record));
	message->tag = record.tag;
	message->data = record.data;
	message->op = record.op;
	message->size = record.size;
	if (count > SC_ABI_RDV_SEGMENTS ||
	    message->lines != 1 + (count ? (count - 1 + SC_ABI_RDV_PER_LINE - 1) / SC_ABI_RDV_PER_LINE : 0))
		return "a rendezvous with too many segments";
	for (uint32_t i = 0; i < count; i++) {
		struct sc_abi_segment segment = record.first;

		if (i) {
			uint32_t place = (i - 1) % SC_ABI_RDV_PER_LINE;

			if (!place)
				line = sc_ring_next(peer->rx.lines, line);
			memcpy(&segment, &line->words[2 * place], sizeof(segment));
		}
		if (segment.len > record.size - sum)
			return "a rendezvous whose segments are longer than the message";
		sum += segment.len;
		message->segments[i].iov_base = (void *)(uintptr_t)segment.addr;
		message->segments[i].iov_len = segment.len;
	}
	if (sum != record.size)
		return "a rendezvous whose segments are shorter than the message";
	message->segment_count = count;
	return NULL;
}

static const char *parse_inline(struct message *message)
{
	const struct sc_abi_line *line = message->first;

	message->tag = line->words[0];
	message->data = line->words[1];
	message->op = message->flags & SC_ABI_F_ACK ? line->words[2] : 0;
	if (message->size > SC_INLINE_MAX ||
	    sc_inline_lines(message->flags, (uint32_t)message->size) != message->lines)
		return "an inline message of another size than its record";
	return NULL;
}

/* A message: match it, deliver or keep it. -ENOMEM: it stays in the ring; -EPROTO with *why. */
static int take_message(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_ep *ep = peer->ep;
	struct message message;
	struct sc_match_recv *found;
	int ret = 0;

	message.kind = sc_ctl_kind(ctl);
	message.flags = sc_ctl_flags(ctl);
	message.lines = sc_ctl_lines(ctl);
	message.size = sc_ctl_size(ctl);
	message.first = sc_ring_first(&peer->rx);
	message.bytes = NULL;
	message.segment_count = 0;
	if (message.kind == SC_ABI_INLINE)
		*why = parse_inline(&message);
	else if (message.kind == SC_ABI_BOUNCE)
		*why = parse_bounce(peer, &message);
	else
		*why = parse_rdv(peer, &message);
	if (*why)
		return -EPROTO;
	message.units = SC_ABI_UNITS(message.kind == SC_ABI_RDV ? 0 : message.size);
	if (message.units > ep->config.window - peer->units_held) {
		*why = "more unmatched messages than its window allows";
		return -EPROTO;
	}
	found = sc_match_find_recv(queue_of(ep, message.flags & SC_ABI_F_TAGGED), peer, message.tag);
	if (found) {
		struct sc_rx_op *op = sc_list_entry(found, struct sc_rx_op, match);

		if (!(op->flags & SC_RECV_MULTI))
			unpost(ep, op);
		ret = deliver(ep, peer, op, &message);
		if (!ret)
			give_back(peer, message.units);
		return ret;
	}
	return keep(ep, peer, &message);
}

/* -EPROTO with *why, -ENOMEM */
static int take_record(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	uint64_t words[7];

	switch (sc_ctl_kind(ctl)) {
	case SC_ABI_INLINE:
	case SC_ABI_BOUNCE:
	case SC_ABI_RDV:
		return take_message(peer, ctl, why);
	case SC_ABI_ACK:
		memcpy(words, line->words, sizeof(words));
		*why = "an acknowledgement of nothing that it was sent";
		return sc_tx_acked(peer, (const struct sc_abi_ack *)words);
	case SC_ABI_PULL:
		memcpy(words, line->words, sizeof(words));
		*why = "a request for nothing that it was sent";
		return sc_tx_pulled(peer, (const struct sc_abi_pull *)words);
	case SC_ABI_PIECE:
		memcpy(words, line->words, sizeof(words));
		*why = "a piece of nothing that was asked for";
		return peer->seg ? take_piece(peer, (const struct sc_abi_piece *)words, sc_ctl_size(ctl)) :
				   -EPROTO;
	}
	*why = "a record of unknown kind";
	return -EPROTO;
}

/* Take what the peer's ring has, up to RING_BURST records. */
static int poll_ring(struct sc_peer *peer)
{
	int taken = 0;
	bool lent = false;
	uint64_t ctl;

	while (taken < RING_BURST && (ctl = sc_ring_peek(&peer->rx))) {
		uint32_t lines = sc_ctl_lines(ctl);
		enum sc_abi_kind kind = sc_ctl_kind(ctl);
		const char *why = "a record of impossible length";
		int ret = -EPROTO;

		if (lines - 1 < SC_ABI_RECORD_LINES)
			ret = take_record(peer, ctl, &why);
		if (ret == -ENOMEM)
			break;
		if (ret) {
			sc_peer_quarantine(peer, -EPROTO, why);
			return taken + 1;
		}
		taken++;
		if (!peer->rx.lines)
			return taken; /* quarantined while it was answered */
		sc_ring_release(&peer->rx, lines);
		lent |= kind == SC_ABI_BOUNCE || kind == SC_ABI_PIECE;
	}
	if (taken && (lent || peer->rx.head - peer->rx.published >= PUBLISH_LINES))
		sc_ring_publish(&peer->rx, peer->units_back);
	return taken;
}

/* This one is busy: have it looked at in each poll, in the place of another. */
static void inbound_promote(struct sc_ep *ep, uint32_t index)
{
	uint32_t victim = ep->inbound_victim;
	struct sc_peer *peer = ep->inbound[index];

	ep->inbound_victim = victim + 1 < BUSY_RINGS ? victim + 1 : 0;
	ep->inbound[index] = ep->inbound[victim];
	ep->inbound[index]->inbound_index = index;
	ep->inbound[victim] = peer;
	peer->inbound_index = victim;
}

static int poll_peer(struct sc_ep *ep, uint32_t index)
{
	struct sc_peer *peer = ep->inbound[index];
	int taken = poll_ring(peer);

	if (__builtin_expect(!taken && peer->feed == SC_FEED_DRAINING, 0) && !sc_ring_peek(&peer->rx)) {
		sc_peer_drained(peer);
		return 1;
	}
	return taken;
}

int sc_rx_poll(struct sc_ep *ep)
{
	int taken = 0;
	uint32_t quiet;

	for (uint32_t i = 0; i < BUSY_RINGS && i < ep->inbound_count; i++)
		taken += poll_peer(ep, i);
	if (__builtin_expect(ep->inbound_count <= BUSY_RINGS, 1))
		return taken;
	for (quiet = 0; quiet < QUIET_RINGS && ep->inbound_count > BUSY_RINGS; quiet++) {
		uint32_t index = ep->inbound_cursor;
		int here;

		if (index < BUSY_RINGS || index >= ep->inbound_count)
			index = BUSY_RINGS;
		ep->inbound_cursor = index + 1;
		here = poll_peer(ep, index);
		if (here && index < ep->inbound_count)
			inbound_promote(ep, index);
		taken += here;
	}
	return taken;
}

/* ---- posting --------------------------------------------------------------------------------- */

/* A waiting message is done with: its sender may send more. */
static void msg_free(struct sc_rx_msg *msg)
{
	msg->peer->units_held -= msg->units;
	give_back(msg->peer, msg->units);
	free(msg);
}

/* A waiting message into a receive; the message is done with then. -ENOMEM: nothing has changed. */
static int deliver_waiting(struct sc_ep *ep, struct sc_rx_op *op, const struct sc_rx_msg *msg)
{
	struct message message = { .kind = msg->kind,
				   .flags = msg->flags,
				   .size = msg->size,
				   .tag = msg->match.tag,
				   .data = msg->data,
				   .op = msg->op,
				   .bytes = msg->bytes,
				   .segment_count = msg->segment_count };

	memcpy(message.segments, msg->segments, msg->segment_count * sizeof(message.segments[0]));
	return deliver(ep, msg->peer, op, &message);
}

static struct sc_rx_msg *msg_find(struct sc_ep *ep, const struct sc_recv *recv)
{
	struct sc_match *queue = queue_of(ep, recv->flags & SC_TAGGED);
	struct sc_match_msg *found;

	if (!queue->waiting_count)
		return NULL;
	found = sc_match_find_msg(queue, recv->source, recv->tag, recv->ignore);
	return found ? sc_list_entry(found, struct sc_rx_msg, match) : NULL;
}

/* Out of the queue of those that wait. */
static void msg_unqueue(struct sc_ep *ep, struct sc_rx_msg *msg)
{
	sc_match_drop(queue_of(ep, msg->flags & SC_ABI_F_TAGGED), &msg->match);
}

static struct sc_rx_msg *claimed_find(struct sc_ep *ep, const struct sc_recv *recv)
{
	sc_list_for(entry, &ep->claimed) {
		struct sc_rx_msg *msg = sc_list_entry(entry, struct sc_rx_msg, claimed);

		if (msg->claim == recv->context && !(msg->flags & SC_ABI_F_TAGGED) == !(recv->flags & SC_TAGGED))
			return msg;
	}
	return NULL;
}

/* A message that nobody will receive: its sender's operation ends well. */
static void msg_discard(struct sc_rx_msg *msg)
{
	if (msg->op)
		ack(msg->peer, msg->op, 0, 0);
	msg_free(msg);
}

/* A completion that tells of a message without receiving it; NULL: there is none. */
static void complete_peek(struct sc_ep *ep, const struct sc_recv *recv, const struct sc_rx_msg *msg)
{
	struct sc_comp *comp = ep->rx_cq ? sc_cq_reserve(ep->rx_cq) : NULL;

	if (!comp)
		return;
	*comp = (struct sc_comp){ .context = recv->context,
				  .cq_flags = recv->cq_flags,
				  .tag = recv->tag,
				  .err = msg ? 0 : ENOMSG,
				  .flags = SC_COMP_RECV };
	if (msg) {
		comp->tag = msg->match.tag;
		comp->len = msg->size;
		comp->data = msg->data;
		comp->source = msg->peer;
		comp->flags = comp_flags(msg->flags);
	}
	sc_cq_commit(ep->rx_cq);
}

static int peek(struct sc_ep *ep, const struct sc_recv *recv)
{
	struct sc_rx_msg *msg = msg_find(ep, recv);

	/* whoever does nothing but peek must make progress by it: its queue is never empty */
	if (sc_peers_changed(ep))
		sc_peers_review(ep);
	sc_rx_progress(ep);
	sc_tx_progress(ep);
	while (!msg && sc_rx_poll(ep))
		msg = msg_find(ep, recv);
	complete_peek(ep, recv, msg);
	if (!msg)
		return 0;
	if (recv->flags & (SC_RECV_CLAIM | SC_RECV_DISCARD))
		msg_unqueue(ep, msg);
	if (recv->flags & SC_RECV_DISCARD) {
		msg_discard(msg);
	} else if (recv->flags & SC_RECV_CLAIM) {
		msg->claim = recv->context;
		sc_list_append(&ep->claimed, &msg->claimed);
	}
	return 0;
}

static struct sc_rx_op *op_begin(struct sc_ep *ep, const struct sc_recv *recv)
{
	struct sc_rx_op *op = sc_slab_get(&ep->rx_ops);

	if (!op)
		return NULL;
	op->flags = recv->flags;
	op->context = recv->context;
	op->cq_flags = recv->cq_flags;
	op->match.source = recv->source;
	op->match.tag = recv->tag;
	op->match.ignore = recv->ignore;
	op->iov_count = recv->iov_count;
	op->capacity = 0;
	for (size_t i = 0; i < recv->iov_count; i++) {
		op->iov[i] = recv->iov[i];
		op->capacity += recv->iov[i].iov_len;
	}
	op->multi = NULL;
	op->multi_min = recv->multi_min;
	op->multi_transfers = 0;
	op->peer = NULL;
	sc_list_init(&op->of_peer);
	sc_list_init(&op->pulling);
	return op;
}

static int post(struct sc_ep *ep, struct sc_rx_op *op)
{
	if (sc_match_post(queue_of(ep, op->flags & SC_TAGGED), &op->match)) {
		op_free(ep, op);
		return -EAGAIN;
	}
	ep->rx_posted++;
	return 0;
}

/* Receive the message that was set aside for this context, or drop it. */
static int recv_claimed(struct sc_ep *ep, const struct sc_recv *recv)
{
	struct sc_rx_msg *msg = claimed_find(ep, recv);
	struct sc_rx_op *op;

	if (!msg)
		return -EINVAL;
	if (recv->flags & SC_RECV_DISCARD) {
		sc_list_remove(&msg->claimed);
		complete_peek(ep, recv, msg);
		msg_discard(msg);
		return 0;
	}
	op = op_begin(ep, recv);
	if (!op)
		return -EAGAIN;
	op->flags &= ~SC_RECV_MULTI; /* so it cannot fail */
	sc_list_remove(&msg->claimed);
	(void)deliver_waiting(ep, op, msg);
	msg_free(msg);
	return 0;
}

/* The buffer is posted first: as many waiting messages as it has room for go into it. */
static int recv_multi(struct sc_ep *ep, const struct sc_recv *recv)
{
	struct sc_rx_op *op;
	struct sc_rx_msg *msg;
	uint64_t id;
	int ret;

	if (recv->iov_count != 1)
		return -EINVAL;
	op = op_begin(ep, recv);
	if (!op)
		return -EAGAIN;
	ret = post(ep, op);
	if (ret)
		return ret;
	id = sc_slab_id(op);
	do {
		msg = msg_find(ep, recv);
		if (!msg || deliver_waiting(ep, op, msg))
			break; /* none; or no memory, and it waits for the next receive */
		msg_unqueue(ep, msg);
		msg_free(msg);
	} while (sc_slab_id(op) == id && !multi_exhausted(op));
	return 0;
}

static int recv_special(struct sc_ep *ep, const struct sc_recv *recv)
{
	if (recv->flags & SC_RECV_PEEK)
		return peek(ep, recv);
	if (recv->flags & SC_RECV_CLAIM)
		return recv_claimed(ep, recv);
	if (recv->flags & SC_RECV_MULTI)
		return recv_multi(ep, recv);
	return -EINVAL;
}

int sc_rx_recv(struct sc_ep *ep, const struct sc_recv *recv)
{
	struct sc_rx_msg *msg;
	struct sc_rx_op *op;

	if (__builtin_expect(recv->flags &
			     (SC_RECV_MULTI | SC_RECV_PEEK | SC_RECV_CLAIM | SC_RECV_DISCARD), 0))
		return recv_special(ep, recv);
	op = op_begin(ep, recv);
	if (!op)
		return -EAGAIN;
	msg = msg_find(ep, recv);
	if (!msg)
		return post(ep, op);
	msg_unqueue(ep, msg);
	(void)deliver_waiting(ep, op, msg); /* a single receive cannot fail */
	msg_free(msg);
	return 0;
}

/* The newest posted receive with this context in one queue. */
static struct sc_rx_op *posted_find(struct sc_match *queue, const void *context)
{
	for (struct sc_list *entry = queue->posted.prev; entry != &queue->posted; entry = entry->prev) {
		struct sc_rx_op *op = sc_list_entry(entry, struct sc_rx_op, match.all);

		if (op->context == context)
			return op;
	}
	return NULL;
}

int sc_rx_cancel(struct sc_ep *ep, const void *context)
{
	struct sc_rx_op *op = posted_find(&ep->tagged, context);
	struct sc_comp *comp;

	if (!op)
		op = posted_find(&ep->plain, context);
	if (!op)
		return -ENOENT;
	unpost(ep, op);
	comp = ep->rx_cq ? sc_cq_reserve(ep->rx_cq) : NULL;
	if (comp) {
		*comp = (struct sc_comp){ .context = op->context,
					  .cq_flags = op->cq_flags,
					  .tag = op->match.tag,
					  .err = ECANCELED };
		if (op->flags & SC_RECV_MULTI && !op->multi_transfers)
			comp->flags = SC_COMP_MULTI_DONE;
		sc_cq_commit(ep->rx_cq);
	}
	if (op->multi_transfers)
		op->capacity = 0; /* the last transfer into it gives it back */
	else
		op_free(ep, op);
	return 0;
}

size_t sc_rx_room(const struct sc_ep *ep)
{
	return ep->rx_posted < ep->rx_size ? ep->rx_size - ep->rx_posted : 0;
}

void sc_rx_end_peer(struct sc_peer *peer, int error)
{
	while (!sc_list_empty(&peer->transfers))
		transfer_end(peer->ep, sc_list_entry(peer->transfers.next, struct sc_rx_op, of_peer), error);
}

static void forget_waiting(struct sc_match *queue)
{
	sc_list_for_safe(entry, next, &queue->waiting)
		free(sc_list_entry(entry, struct sc_rx_msg, match.all));
}

void sc_rx_fini(struct sc_ep *ep)
{
	forget_waiting(&ep->tagged);
	forget_waiting(&ep->plain);
	sc_list_for_safe(entry, next, &ep->claimed)
		free(sc_list_entry(entry, struct sc_rx_msg, claimed));
	sc_slab_fini(&ep->rx_ops);
}
