/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer.c: moves payloads into receives: of a rendezvous, or of a message in parts.
 *
 *   in parts     sc_rxop_begin() --pieces--> completion
 *   rendezvous   sc_rxop_begin() --> sc_transfer_start() --CMA in steps, or pieces--> completion
 *
 * Owns the transfers: operations that are matched, out of the matcher, and in the list of their peer until all bytes
 * are moved. Peers with payloads that CMA copies are in SC_WORK_PULLING.
 *
 * A rendezvous payload is copied by CMA in steps (sc_transfer_progress()), or the receiver asks for pieces. The sender
 * knows the receive by an id only; a piece names the id, and the receiver checks that the piece is the one that comes
 * next. CMA is used inside one process too: the addresses come from shared memory, and the kernel returns EFAULT
 * where memcpy() would crash. A large copy is shared (xfer.h): the sender learns where the payload goes, and both copy
 * while both poll. If several messages of a peer wait, one call copies parts of them.
 *
 * A receive ends only when no process can write to its buffer any more. Only this process can, and a sender that has
 * chunks in hand. So if an operation fails, a peer is given up or an endpoint closes, the receiver leaves the sender no
 * more chunks, then waits for its report or its death (sc_xfer_is_over()). A sender that has departed has no chunk, as
 * it closes between two steps. A sender that is stopped with chunks in hand may still write: the receiver waits until
 * it goes on or is killed, in sc_transfer_fini() too.
 *
 * With SC_ORDER_RECEIVE a finished transfer stays in the list of its peer, which is in the order of the matches, until
 * the transfers before it have finished.
 *
 * If the peer dies, a message with a part missing fails, as does a copy of the peer's memory, with ECONNRESET
 * (sc_transfer_end_peer(), share_end()). If this process dies between any two steps, the sender's operation is never
 * acknowledged, and fails with its peer; chunks that the sender then writes go nowhere.
 */
#include "msg/transfer.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include "base/iov.h"
#include "base/log.h"
#include "os/probe.h"
#include "link/connect.h"
#include "link/peer.h"
#include "link/record.h"
#include "link/reply.h"
#include "link/xfer.h"
#include "msg/ack.h"
#include "msg/rxop.h"

/* Bytes that one step copies by CMA. */
#define PULL_STEP ((size_t)4 << 20)

/* Ends the copy of an operation, shared or not. */
static void copying_end(struct sc_rx_op *op)
{
	sc_xfer_leave(op->peer, &op->share);
	sc_list_remove(&op->pulling);
	if (sc_list_empty(&op->peer->recv.copying))
		sc_list_remove(&op->peer->work[SC_WORK_PULLING]);
}

/* Removes an operation from all lists. Returns SC_COMP_MULTI_DONE for the last one of a multi-receive buffer. */
static uint32_t transfer_leave(struct sc_ep *ep, struct sc_rx_op *op)
{
	struct sc_rx_op *multi = op->multi;

	copying_end(op);
	if (op->peer->recv.arriving_op == op)
		op->peer->recv.arriving_op = NULL;
	sc_list_remove(&op->of_peer);
	if (!multi || --multi->multi_transfers || !sc_rxop_exhausted(multi))
		return 0;
	sc_slab_put(&ep->rxq->ops, multi);
	return SC_COMP_MULTI_DONE;
}

static void transfer_free(struct sc_ep *ep, struct sc_rx_op *op)
{
	op->peer = NULL;
	sc_slab_put(&ep->rxq->ops, op);
}

static void transfer_report(struct sc_ep *ep, struct sc_rx_op *op, int error)
{
	struct sc_received received = { .peer = op->peer,
					.tag = op->tag,
					.data = op->data,
					.size = op->size,
					.done = error ? 0 : op->want,
					.flags = op->comp_flags | transfer_leave(ep, op),
					.error = error,
					.buf = op->multi ? op->iov[0].iov_base : NULL };

	sc_rxop_complete(ep, op, op->cntr, &received);
	transfer_free(ep, op);
}

/* Reports the finished transfers that have no unfinished one before them. */
static void transfers_report(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->recv.transfers)) {
		struct sc_rx_op *op = sc_list_entry(peer->recv.transfers.next, struct sc_rx_op, of_peer);

		if (op->state != SC_RX_OVER)
			return;
		transfer_report(peer->ep, op, op->outcome);
	}
}

/* Ends a transfer; the report may have to wait for earlier transfers. */
static void transfer_over(struct sc_ep *ep, struct sc_rx_op *op, int error)
{
	if (!(ep->order & SC_ORDER_RECEIVE)) {
		transfer_report(ep, op, error);
		return;
	}
	copying_end(op);
	sc_rxop_set_state(op, SC_RX_OVER);
	op->outcome = error;
}

/* Ends an operation for both sides, with success or an error. */
static void transfer_finish(struct sc_ep *ep, struct sc_rx_op *op, int error)
{
	struct sc_peer *peer = op->peer;

	if (error)
		sc_reply_end(peer, SC_ABI_ACK, op->message, 0, error);
	else if (op->message)
		sc_ack_message(peer, op->message, op->want, op->fence);
	transfer_over(ep, op, error);
	if (__builtin_expect(ep->order & SC_ORDER_RECEIVE, 0))
		transfers_report(peer);
}

/* Asks the sender for the payload in bounce buffers. `fault`: this one only, because the kernel does not read it. */
static void transfer_ask(struct sc_rx_op *op, bool fault)
{
	uint64_t words[7] = { 0 };
	struct sc_abi_pull *pull = (struct sc_abi_pull *)words;

	sc_rxop_set_state(op, SC_RX_ASKED);
	op->done = 0;
	pull->fault = fault;
	pull->op = op->message;
	pull->to = sc_slab_id(op);
	pull->size = op->want;
	sc_reply(op->peer, SC_ABI_PULL, words);
}

static void receiver_faulted(struct sc_ep *ep, struct sc_rx_op *op)
{
	sc_warn("%s: a message of %llu bytes from it could not be written: the receive buffer is not mapped or "
		"not writable (freed before its operation completed?)",
		op->peer->address, (unsigned long long)op->size);
	transfer_finish(ep, op, -SC_EFAULT_RECEIVER);
}

static void sender_faulted(struct sc_ep *ep, struct sc_rx_op *op)
{
	sc_warn("%s: a message of %llu bytes could not be read: the sender's buffer is not mapped there "
		"(freed before its operation completed?)",
		op->peer->address, (unsigned long long)op->size);
	transfer_finish(ep, op, -EFAULT);
}

/*
 * Handles EFAULT of CMA: one of the buffers is not mapped, or the sender's memory is such that only its own process can
 * read it. In the second case the sender sends this payload.
 */
static void transfer_faulted(struct sc_ep *ep, struct sc_rx_op *op)
{
	struct iovec to[SC_IOV_MAX];
	size_t count = sc_iov_slice(op->iov, op->iov_count, 0, op->want, to);
	int ret = sc_probe_check(NULL, to, count, true);

	if (ret == -EIO) {
		receiver_faulted(ep, op);
	} else if (ret) {
		sc_warn("message of %llu bytes from %s: the kernel does not copy it, and this system "
			"cannot tell which buffer is not mapped: the sender's or the receive buffer",
			(unsigned long long)op->size, op->peer->address);
		transfer_finish(ep, op, -EFAULT);
	} else {
		sc_info("%s: a message of %llu bytes cannot be read by CMA and goes through shared memory",
			op->peer->address, (unsigned long long)op->size);
		copying_end(op);
		transfer_ask(op, true);
	}
}

/* Tells whether the receive buffer is writable: this process writes the pieces itself, and would crash if it is not. */
static bool is_writable(const struct sc_rx_op *op)
{
	struct iovec to[SC_IOV_MAX];
	size_t count = sc_iov_slice(op->iov, op->iov_count, 0, op->want, to);

	return sc_probe_check_ends(to, count, true) != -EIO;
}

/* Handles an error of CMA, for this operation or for good: ends the operation, or asks for pieces. */
static void transfer_failed(struct sc_ep *ep, struct sc_rx_op *op, int error)
{
	struct sc_peer *peer = op->peer;

	if (error == -EFAULT) {
		transfer_faulted(ep, op);
		return;
	}
	sc_log(sc_peer_cma_level(error),
	       "%s: process_vm_readv: %s; large messages from it go through shared memory from now on",
	       peer->address, strerror(-error));
	peer->can_read = SC_REACH_NO;
	copying_end(op);
	transfer_ask(op, false);
}

/* Tells whether the peer has closed: its memory, even if readable, is no longer what it sent. */
static bool is_gone(const struct sc_peer *peer)
{
	return peer->link == SC_LINK_DOWN || !peer->seg ||
	       sc_load_acquire_32(&sc_seg_presence(peer->seg)->state) == SC_ABI_CLOSED;
}

/*
 * Ends an operation whose sender has gone, unless records of the sender are unread: then sc_transfer_end_peer() ends it
 * with the others, because no operation may succeed after an earlier one has failed.
 */
static void transfer_lost(struct sc_ep *ep, struct sc_rx_op *op)
{
	const struct sc_peer *peer = op->peer;

	copying_end(op);
	if (peer->link == SC_LINK_DOWN || !peer->seg)
		transfer_finish(ep, op, peer->error ? peer->error : -ECONNRESET);
}

/* Ends an operation whose payload is copied, and proven to be the sender's. */
static void transfer_copied(struct sc_ep *ep, struct sc_rx_op *op)
{
	op->done = op->want;
	if (is_gone(op->peer))
		transfer_lost(ep, op);
	else
		transfer_finish(ep, op, 0);
}

static size_t step_size(const struct sc_rx_op *op)
{
	return op->want - op->done < PULL_STEP ? op->want - op->done : PULL_STEP;
}

/* ---- shared transfers ------------------------------------------------------------------------ */

/* Tells whether we send the peer a large message too: then it is busy with that one, and each side copies alone. */
static bool is_exchange(const struct sc_ep *ep, const struct sc_peer *peer)
{
	const struct sc_tx_op *newest = sc_list_entry(peer->ops.prev, struct sc_tx_op, of_peer);

	return !sc_list_empty(&peer->ops) && newest->iov_count && newest->size >= ep->config.share_min;
}

/* Lets the sender copy along, if the copy may be shared and the sender can be told at once. */
static void share_open(struct sc_ep *ep, struct sc_rx_op *op)
{
	struct sc_peer *peer = op->peer;
	struct iovec to[SC_IOV_MAX];
	struct sc_xfer_offer offer = { .record = { .size = op->want, .message.op = op->message },
				       .to = to };

	if (op->share.words || op->done || is_exchange(ep, peer))
		return;
	if ((peer->link == SC_LINK_NONE && sc_peer_connect(peer)) || !sc_xfer_may_open(peer)) {
		op->unshared = true;
		return;
	}
	offer.to_count = sc_iov_slice(op->iov, op->iov_count, 0, op->want, to);
	if (sc_xfer_open(peer, &op->share, &offer))
		op->proven = false;
}

/* Ends an operation that both sides have ended to copy. */
static void share_end(struct sc_ep *ep, struct sc_rx_op *op)
{
	int error = op->share.failed;

	if (!error && !op->proven)
		error = sc_peer_prove_read(op->peer);
	if (error)
		transfer_failed(ep, op, error);
	else
		transfer_copied(ep, op);
}

/* ---- progress of transfers ------------------------------------------------------------------- */

/* Tells the sender of the next shared copies in advance, so that it need not wait for us. */
static void share_ahead(struct sc_ep *ep, struct sc_peer *peer)
{
	int ahead = 0;

	sc_list_for (entry, &peer->recv.copying) {
		struct sc_rx_op *op = sc_list_entry(entry, struct sc_rx_op, pulling);

		if (ahead++ == SC_ABI_SHARES)
			break;
		if (!op->unshared)
			share_open(ep, op);
	}
}

static bool has_room(const struct sc_cma_parts *parts, const struct sc_rx_op *op)
{
	return sc_cma_has_room(parts, op->iov_count, op->segment_count,
			       op->share.words ? sc_share_largest(&op->share) : step_size(op));
}

/* Tells whether this part may be the last of its message. Its copy then proves whose memory it was. */
static bool may_be_last(const struct sc_rx_op *op, const struct sc_share_part *part)
{
	return op->share.words ? sc_share_left(&op->share) <= 1 : op->done + part->len == op->want;
}

/* Finds the next part to copy. 1: *part; else as sc_xfer_next(). */
static int next_part(struct sc_rx_op *op, struct sc_share_part *part)
{
	if (!op->share.words) {
		*part = (struct sc_share_part){ op->done, step_size(op) };
		return 1;
	}
	return sc_xfer_next(op->peer, &op->share, part);
}

/* Notes that a part is copied, the last one with proof (`proven`), or handles its error. The operation may end. */
static void part_moved(struct sc_ep *ep, const struct sc_cma_part *part, bool proven)
{
	struct sc_rx_op *op = part->payload;

	if (!part->error)
		*(op->peer->seg->local ? &ep->counters.rx_local_bytes : &ep->counters.rx_cma_bytes) +=
			part->len;
	if (op->share.words) {
		op->proven = proven;
		if (part->error) /* the sender may have another chunk in hand */
			sc_xfer_fail(op->peer, &op->share, part->error);
		return;
	}
	if (part->error) {
		transfer_failed(ep, op, part->error);
		return;
	}
	op->done += part->len;
	if (op->done == op->want)
		transfer_copied(ep, op);
}

/* Copies a part of each of the oldest operations in one call. */
int sc_transfer_progress(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	enum sc_xfer_way way = SC_XFER_READ;
	struct sc_cma_parts parts;
	int ended = 0;

	if (!sc_list_empty(&peer->work[SC_WORK_ENDING]))
		return 0; /* lost: its operations are about to end */
	sc_cma_parts_init(&parts);
	share_ahead(ep, peer);
	sc_list_for_safe (entry, next, &peer->recv.copying) {
		struct sc_rx_op *op = sc_list_entry(entry, struct sc_rx_op, pulling);
		struct sc_share_part part;
		int ret;

		if (!has_room(&parts, op))
			break;
		ret = next_part(op, &part);
		if (ret > 0) {
			sc_cma_add(&parts, op,
				   &(struct sc_cma_copy){ op->iov, op->iov_count, op->segments,
							  op->segment_count, part.len },
				   part.offset);
			if (may_be_last(op, &part))
				way = SC_XFER_READ_PROVEN;
		} else if (!ret) {
			share_end(ep, op);
			ended++;
		}
		if (!sc_list_empty(&peer->work[SC_WORK_ENDING]))
			return ended; /* lost in the meantime */
	}
	if (parts.count)
		sc_xfer_copy(peer, &parts, way);
	for (uint32_t i = 0; i < parts.count; i++)
		part_moved(ep, &parts.part[i], way == SC_XFER_READ_PROVEN);
	return ended + (int)parts.count;
}

void sc_transfer_start(struct sc_ep *ep, struct sc_rx_op *op, bool more)
{
	struct sc_peer *peer = op->peer;
	bool first = sc_list_empty(&peer->recv.copying);

	op->unshared = op->want < ep->config.share_min || sc_xfer_is_crowded(ep);
	if (is_gone(peer)) {
		transfer_lost(ep, op);
		return;
	}
	if (!op->want) {
		transfer_finish(ep, op, 0);
		return;
	}
	if (!sc_peer_can_read(peer)) {
		if (is_writable(op))
			transfer_ask(op, false);
		else
			receiver_faulted(ep, op);
		return;
	}
	sc_peer_begin(peer, SC_WORK_PULLING);
	sc_list_append(&peer->recv.copying, &op->pulling);
	sc_rxop_set_state(op, SC_RX_COPYING);
	if (!op->unshared)
		share_open(ep, op);
	if (op->share.words)
		return; /* the sender needs a moment to see it; the next record may be shared too */
	if (first && !more)
		(void)sc_transfer_progress(peer);
}

int sc_transfer_piece(struct sc_peer *peer, struct sc_seg *seg, const struct sc_abi_piece *piece,
		     uint64_t ctl)
{
	struct sc_ep *ep = peer->ep;
	struct sc_rx_op *op = piece->to ? sc_slab_find(&ep->rxq->ops, piece->to) : peer->recv.arriving_op;
	struct iovec to[SC_IOV_MAX];
	uint32_t size = sc_ctl_size(ctl);
	uint64_t end;
	size_t here;

	if (!op || op->peer != peer || op->state != (piece->to ? SC_RX_ASKED : SC_RX_ARRIVING))
		return -EPROTO;
	if (piece->to && !size && !piece->offset && !op->done) { /* the sender could not read it */
		sender_faulted(ep, op);
		return 0;
	}
	/* a pull asks for the bytes that fit; a message in parts comes whole */
	end = piece->to ? op->want : op->size;
	if (!sc_record_is_next_piece(seg, piece, size, op->done, end))
		return -EPROTO;
	here = op->done < op->want ? op->want - op->done : 0;
	here = here < size ? here : size;
	if (here)
		sc_record_copy(seg, piece->bufs, to,
			       sc_iov_slice(op->iov, op->iov_count, op->done, here, to), (uint32_t)here);
	op->done += size;
	if (piece->to)
		ep->counters.rx_pulled_bytes += size;
	if (op->done != end)
		return 0;
	if (!piece->to)
		peer->recv.arriving_op =
			NULL; /* the next message may arrive, though this one waits for its report */
	transfer_finish(ep, op, 0);
	return 0;
}

bool sc_transfer_end_peer(struct sc_peer *peer, int error)
{
	sc_list_for_safe (entry, next, &peer->recv.transfers) {
		struct sc_rx_op *op = sc_list_entry(entry, struct sc_rx_op, of_peer);

		if (sc_xfer_is_over(peer, &op->share) && op->state != SC_RX_OVER)
			transfer_over(peer->ep, op, error);
	}
	transfers_report(peer);
	return sc_list_empty(&peer->recv.transfers);
}

/* Ends the transfers of a peer. The peers end with the endpoint, so the completions name no sender. */
static void cancel_transfers(struct sc_peer *peer)
{
	sc_list_for_safe (entry, next, &peer->recv.transfers) {
		struct sc_rx_op *op = sc_list_entry(entry, struct sc_rx_op, of_peer);
		struct sc_received received = { .tag = op->tag,
						.size = op->size,
						.flags = transfer_leave(peer->ep, op),
						.error = op->state == SC_RX_OVER ? op->outcome
										 : -ECANCELED };

		if (!received.error) { /* it was only waiting for its report */
			received.data = op->data;
			received.done = op->want;
			received.flags |= op->comp_flags;
			received.buf = op->multi ? op->iov[0].iov_base : NULL;
		}
		sc_rxop_complete(peer->ep, op, op->cntr, &received);
		transfer_free(peer->ep, op);
	}
}

static void wait_for_writers(struct sc_ep *ep)
{
	if (!sc_seg_is_here(ep->seg))
		return; /* a forked child: the buffers are its parent's */
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		sc_list_for (transfer, &peer->recv.transfers)
			while (!sc_xfer_is_over(peer, &sc_list_entry(transfer, struct sc_rx_op, of_peer)->share))
				sched_yield();
	}
}

void sc_transfer_fini(struct sc_ep *ep)
{
	wait_for_writers(ep);
	if (!sc_ep_shares_rxq(ep))
		return;
	sc_list_for (entry, &ep->peers)
		cancel_transfers(sc_list_entry(entry, struct sc_peer, all));
}
