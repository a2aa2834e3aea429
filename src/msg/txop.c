/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * txop.c: pending sends: struct sc_tx_op, from the record to the receiver's acknowledgement.
 *
 *   eager        published, for delivery or match completion            --ACK--> completion
 *   rendezvous   published: the receiver copies the payload, alone or with us (xfer.h)
 *                  |                                                    --ACK--> completion
 *                  +--PULL--> pushing: pieces in bounce buffers --> pushed --ACK--> completion
 *
 * Owns the operations, in the list of their peer, oldest first; those that push are in SC_WORK_PUSHING too. The
 * receiver names an operation by its id in the slab. The sender checks that the operation belongs to this peer, and
 * that its state allows the request. The payload stays the application's; the operation owns the copy of an injected
 * payload.
 *
 * If the peer dies, sc_txop_end_peer() ends its operations. If this process dies, the receiver's copy of a rendezvous
 * fails and reports an error; if pieces are missing, the receive fails with the peer. A receiver copies until it sees
 * that the endpoint has closed, so sc_txop_fini() runs after that.
 */
#include "msg/txop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/fault.h"
#include "base/iov.h"
#include "os/probe.h"
#include "link/record.h"
#include "link/reply.h"
#include "link/turn.h"
#include "link/xfer.h"
#include "msg/send.h"

/* One call of sc_txop_progress() writes so many pieces at most, so that a long transfer does not starve the rest. */
#define PUSH_BURST 16
/*
 * The most sends that a peer has not acknowledged. Their acknowledgements, and the answers to our requests, are never
 * more than the SC_REPLIES_MAX answers that the peer keeps for us. The window usually allows fewer unmatched sends; the
 * acknowledgements of matched ones need only our next polls.
 */
#define OPS_MAX (SC_REPLIES_MAX - 4 * SC_RMA_REQUESTS_MAX)

/* Only this function writes the state. */
static void state_set(struct sc_tx_op *op, enum sc_tx_state state)
{
	assert(state == SC_TX_PUBLISHED || state == op->state + 1);
	op->state = state;
}

/* Tells whether it is a rendezvous whose payload is small enough to be eager. */
static bool is_short_rdv(const struct sc_tx_op *op)
{
	return op->iov_count && op->size <= op->peer->ep->config.eager_max;
}

/* Completes an operation and frees it. */
static void op_end(struct sc_ep *ep, struct sc_tx_op *op, int error)
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
	sc_list_remove(&op->of_peer);
	op->peer->op_count--;
	op->peer->bounce.rendezvous -= is_short_rdv(op);
	if (op->state == SC_TX_PUSHING)
		sc_list_remove(&op->pushing);
	sc_xfer_part(&op->xfer);
	free(op->copy);
	sc_slab_put(&ep->tx_ops, op);
}

struct sc_tx_op *sc_txop_begin(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	struct sc_ep *ep = peer->ep;
	struct sc_tx_op *op = peer->op_count < OPS_MAX ? sc_slab_get(&ep->tx_ops) : NULL;

	if (!op)
		return NULL;
	state_set(op, SC_TX_PUBLISHED);
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

/* Fills the operation's own list of the payload's addresses: the caller's memory, or `copy` for its bytes. */
static void rdv_payload(struct sc_tx_op *op, const struct sc_send *send, void *copy)
{
	if (copy) {
		sc_iov_read(send->iov, send->iov_count, copy, op->size);
		op->copy = copy;
		op->iov[0] = (struct iovec){ copy, op->size };
		op->iov_count = 1;
		return;
	}
	for (size_t i = 0; i < send->iov_count; i++)
		if (send->iov[i].iov_len)
			op->iov[op->iov_count++] = send->iov[i];
}

int sc_txop_send_rdv(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = sc_send_abi_flags(send) & ~SC_ABI_F_ACK;
	uint64_t units = SC_ABI_UNITS(0);
	struct sc_abi_rdv *record;
	struct sc_tx_op *op;
	void *copy = NULL;
	uint32_t lines;
	int ret;

	if (!sc_send_window_room(peer, units))
		return peer->error ? peer->error : -EAGAIN;
	ret = sc_record_room(peer, SC_ABI_SEGMENT_LINES(SC_ABI_RDV_SEGMENTS));
	if (ret)
		return ret;
	if (send->flags & SC_SEND_INJECT && size) {
		copy = malloc(size);
		if (!copy)
			return -EAGAIN;
	}
	op = sc_txop_begin(peer, send, size);
	if (!op) {
		free(copy);
		return -EAGAIN;
	}
	rdv_payload(op, send, copy);
	record = (struct sc_abi_rdv *)sc_ring_reserve(&peer->tx)->bytes;
	record->tag = send->tag;
	record->data = send->data;
	record->op = sc_slab_id(op);
	record->size = size;
	record->first = (struct sc_abi_segment){ (uintptr_t)op->iov[0].iov_base, op->iov[0].iov_len };
	(void)SC_FAULT("txop.rdv_words");
	lines = sc_record_segments_write(peer, op->iov, op->iov_count);
	(void)SC_FAULT("txop.rdv");
	peer->bounce.rendezvous += is_short_rdv(op);
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_RDV, flags, lines, (uint32_t)op->iov_count), lines);
	sc_send_count(peer, size, units, &ep->counters.tx_rdv);
	return 0;
}

static struct sc_tx_op *op_of_peer(struct sc_peer *peer, sc_abi_op id)
{
	struct sc_tx_op *op = sc_slab_find(&peer->ep->tx_ops, id);

	return op && op->peer == peer ? op : NULL;
}

int sc_txop_acked(struct sc_peer *peer, const struct sc_abi_ack *ack)
{
	struct sc_tx_op *op = op_of_peer(peer, ack->op);

	if (!op || ack->status < 0 || ack->status > 4095)
		return -EPROTO;
	op_end(peer->ep, op, -ack->status);
	return 0;
}

/* Tells whether this process can read the payload: checks all if the receiver could not (`fault`), else the ends. */
static bool is_readable(const struct sc_tx_op *op, bool fault)
{
	/* if nobody can tell, this process does not retry a copy that has failed once */
	return fault ? !sc_probe_check(NULL, op->iov, op->iov_count, false)
		     : sc_probe_check_ends(op->iov, op->iov_count, false) != -EIO;
}

int sc_txop_pulled(struct sc_peer *peer, const struct sc_abi_pull *pull)
{
	struct sc_tx_op *op = op_of_peer(peer, pull->op);

	if (!op || op->state != SC_TX_PUBLISHED || pull->size > op->size || !op->iov_count)
		return -EPROTO;
	sc_xfer_part(&op->xfer);
	if (!pull->fault)
		peer->rma.fetch = SC_FETCH_NO;
	state_set(op, SC_TX_PUSHING);
	op->unreadable = !is_readable(op, pull->fault);
	op->to = pull->to;
	op->push_size = pull->size;
	op->pushed = 0;
	sc_list_init(&op->pushing);
	sc_ep_begin(peer->ep, SC_WORK_PUSHING, &op->pushing);
	return 0;
}

/* Writes a piece of the payload. There are buffers, and space for the record. */
static void piece_put(struct sc_tx_op *op, uint32_t size)
{
	uint64_t words[7] = { op->to, op->pushed };
	uint16_t *bufs = ((struct sc_abi_piece *)words)->bufs;

	sc_record_fill(op->peer, (struct sc_iov_walk){ op->iov, op->iov_count, op->pushed, size }, bufs);
	sc_record_put(op->peer, SC_ABI_PIECE, 0, size, words);
	op->pushed += size;
}

/* Writes one piece of an operation's payload. False: no space. */
static bool push_piece(struct sc_tx_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_ep *ep = peer->ep;
	size_t left = op->push_size - op->pushed;
	uint32_t buffers = SC_RECORD_PIECE_BUFS, size;

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
	piece_put(op, size);
	return true;
}

int sc_txop_progress(struct sc_ep *ep)
{
	int written = 0;

	sc_list_for_safe (entry, next, &ep->work[SC_WORK_PUSHING]) {
		struct sc_tx_op *op = sc_list_entry(entry, struct sc_tx_op, pushing);

		while (written < PUSH_BURST && op->pushed < op->push_size && push_piece(op))
			written++;
		if (op->pushed == op->push_size) {
			sc_list_remove(&op->pushing);
			state_set(op, SC_TX_PUSHED);
		}
	}
	return written;
}

int sc_txop_shared(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl)
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
	 * No copy inside one process is shared. Such a record comes from another process, and would let us write to
	 * ourselves.
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

void sc_txop_end_peer(struct sc_peer *peer, int error)
{
	while (!sc_list_empty(&peer->ops))
		op_end(peer->ep, sc_list_entry(peer->ops.next, struct sc_tx_op, of_peer), error);
}

void sc_txop_fini(struct sc_ep *ep)
{
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		sc_list_for (pending, &peer->ops)
			free(sc_list_entry(pending, struct sc_tx_op, of_peer)->copy);
	}
	sc_slab_fini(&ep->tx_ops);
}
