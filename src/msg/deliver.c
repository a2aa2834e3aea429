/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * deliver.c: delivers a message to a receive operation.
 *
 *   inline, bounce           --payload copied--> completion
 *   in parts, rendezvous     --> transfer (transfer.c)
 *
 * The payload goes from the ring, the sender's bounce buffer or its memory straight into the receive buffer. A
 * multi-receive stays posted while it has space; each message that it receives as a transfer has an operation of its
 * own, which holds its part of the buffer. With SC_ORDER_RECEIVE an eager message behind transfers is a transfer too,
 * with nothing more to move.
 *
 * Owns nothing: an operation is the matcher's before, and then it has ended or is a transfer. If the peer dies,
 * messages that it has published in the ring can be delivered. If this process dies between any two steps, the sender's
 * operation is never acknowledged, and fails with its peer.
 */
#include "msg/deliver.h"

#include <errno.h>
#include <string.h>
#include "base/iov.h"
#include "link/peer.h"
#include "link/record.h"
#include "msg/ack.h"
#include "msg/transfer.h"

/* Takes the part of a multi-receive buffer for a message; withdraws the receive if too little of the buffer is left. */
static void *multi_take(struct sc_ep *ep, struct sc_rx_op *op, size_t bytes)
{
	void *buf = op->iov[0].iov_base;

	op->iov[0].iov_base = (char *)buf + bytes;
	op->iov[0].iov_len -= bytes;
	op->capacity -= bytes;
	if (sc_rxop_exhausted(op))
		sc_rxop_unpost(ep->rxq, op);
	return buf;
}

/* Returns the operation that receives a message: the posted one, or for a multi-receive a new one. NULL: no memory. */
static struct sc_rx_op *transfer_op(struct sc_ep *ep, struct sc_rx_op *posted, uint64_t size)
{
	size_t bytes = size < posted->capacity ? size : posted->capacity;
	struct sc_rx_op *op;

	if (!(posted->flags & SC_RECV_MULTI)) {
		posted->multi = NULL;
		return posted;
	}
	op = sc_slab_get(&ep->rxq->ops);
	if (!op)
		return NULL;
	op->flags = posted->flags & ~SC_RECV_MULTI;
	op->context = posted->context;
	op->cntr = posted->cntr;
	op->cq_flags = posted->cq_flags;
	op->multi = posted;
	op->iov[0] = (struct iovec){ multi_take(ep, posted, bytes), bytes };
	op->iov_count = 1;
	op->capacity = bytes;
	posted->multi_transfers++;
	return op;
}

void sc_deliver_payload(const struct sc_message *message, const struct iovec *iov, size_t iov_count,
			size_t len)
{
	const struct sc_peer *peer = message->peer;

	if (message->bytes) {
		sc_iov_write(iov, iov_count, 0, message->bytes, len);
		return;
	}
	if (message->kind == SC_ABI_INLINE) {
		uint8_t flat[SC_INLINE_MAX];

		if (iov_count == 1) {
			sc_inline_read(&peer->rx.at, message->first, message->flags,
				       iov[0].iov_base, (uint32_t)len);
			return;
		}
		sc_inline_read(&peer->rx.at, message->first, message->flags, flat,
			       (uint32_t)len);
		sc_iov_write(iov, iov_count, 0, flat, len);
		return;
	}
	sc_record_copy(peer->seg, message->bufs, iov, iov_count, (uint32_t)len);
}

static void acknowledge(const struct sc_message *message, uint64_t moved)
{
	sc_ack_message(message->peer, message->op, moved, message->flags & SC_ABI_F_FENCE ? message->arrival : 0);
}

/* Delivers an eager message. The operation ends, unless it is a multi-receive with space left. */
static inline void deliver_eager(struct sc_rx_op *op, const struct sc_message *message)
{
	struct sc_ep *ep = message->peer->ep;
	size_t len = message->size < op->capacity ? message->size : op->capacity;
	struct sc_received received = { .peer = message->peer,
					.tag = message->tag,
					.data = message->data,
					.size = message->size,
					.done = len,
					.flags = sc_rxop_comp_flags(message->flags) };

	if (len)
		sc_deliver_payload(message, op->iov, op->iov_count, len);
	if (op->flags & SC_RECV_MULTI) {
		received.buf = multi_take(ep, op, len);
		if (sc_rxop_exhausted(op) && !op->multi_transfers)
			received.flags |= SC_COMP_MULTI_DONE;
	}
	sc_rxop_complete(ep, op, op->cntr, &received);
	if (message->op)
		acknowledge(message, len);
	if (!(op->flags & SC_RECV_MULTI) || received.flags & SC_COMP_MULTI_DONE)
		sc_slab_put(&ep->rxq->ops, op);
}

/* Begins a transfer of an eager message, and copies the payload that the record has. NULL: no memory. */
static struct sc_rx_op *transfer_eager(struct sc_rx_op *posted, const struct sc_message *message)
{
	struct sc_rx_op *op = transfer_op(message->peer->ep, posted, message->size);
	size_t here;

	if (!op)
		return NULL;
	sc_rxop_begin(op, message);
	op->done = message->here;
	here = message->here < op->want ? message->here : op->want;
	if (here)
		sc_deliver_payload(message, op->iov, op->iov_count, here);
	return op;
}

/* Delivers the first part of a message; pieces follow. -ENOMEM. */
static int deliver_part(struct sc_rx_op *posted, const struct sc_message *message)
{
	message->peer->recv.arriving_op = transfer_eager(posted, message);
	return message->peer->recv.arriving_op ? 0 : -ENOMEM;
}

/* Delivers a whole eager message behind transfers, as a transfer with nothing more to move. -ENOMEM. */
static int deliver_behind(struct sc_rx_op *posted, const struct sc_message *message)
{
	struct sc_rx_op *op = transfer_eager(posted, message);

	if (!op)
		return -ENOMEM;
	sc_rxop_set_state(op, SC_RX_OVER);
	op->outcome = 0;
	if (message->op)
		acknowledge(message, op->want);
	return 0;
}

/* Begins to receive a rendezvous message. -ENOMEM: nothing has changed. */
static int deliver_rdv(struct sc_rx_op *posted, const struct sc_message *message)
{
	struct sc_ep *ep = message->peer->ep;
	struct sc_rx_op *op = transfer_op(ep, posted, message->size);
	uint64_t next = 0; /* the ctl of the next record; 0: not known */

	if (!op)
		return -ENOMEM;
	sc_rxop_begin(op, message);
	op->segment_count = message->segment_count;
	memcpy(op->segments, message->segments, message->segment_count * sizeof(op->segments[0]));
	if (message->first)
		next = sc_ring_peek_next(&message->peer->rx, message->lines);
	sc_transfer_start(ep, op, sc_ctl_kind(next) == SC_ABI_RDV);
	return 0;
}

int sc_deliver_message(struct sc_rx_op *op, const struct sc_message *message)
{
	if (message->kind == SC_ABI_RDV)
		return deliver_rdv(op, message);
	if (__builtin_expect(message->here != message->size, 0))
		return deliver_part(op, message);
	if (__builtin_expect(message->peer->ep->order & SC_ORDER_RECEIVE, 0) &&
	    !sc_list_empty(&message->peer->recv.transfers))
		return deliver_behind(op, message);
	deliver_eager(op, message);
	return 0;
}

/* The same for a queue whose matcher posts the receives: asks it for the receive. */
static __attribute__((noinline)) int deliver_matched(const struct sc_message *message)
{
	struct sc_peer *peer = message->peer;
	struct sc_rxq *rxq = peer->ep->rxq;
	const struct sc_envelope envelope = { .source = peer,
					      .tag = message->tag,
					      .data = message->data,
					      .size = message->size,
					      .flags =
						      message->flags & (SC_ABI_F_TAGGED | SC_ABI_F_DATA) };
	struct sc_rx_op *op = sc_slab_get(&rxq->ops);
	struct sc_recv recv;
	int ret;

	static_assert(SC_TAGGED == SC_ABI_F_TAGGED && SC_SEND_DATA == SC_ABI_F_DATA,
		      "flags of an envelope");
	if (!op)
		return -ENOMEM;
	ret = rxq->matcher->match(rxq->matcher_arg, &envelope, &recv);
	if (ret != 1) {
		sc_slab_put(&rxq->ops, op);
		return ret < 0 ? -ENOMEM : 0;
	}
	sc_rxop_fill(op, &recv);
	(void)sc_deliver_message(op, message); /* a single receive cannot fail */
	sc_peer_give_back(peer, message->units);
	return 1;
}

int sc_deliver_to_posted(const struct sc_message *message)
{
	struct sc_peer *peer = message->peer;
	struct sc_rxq *rxq = peer->ep->rxq;
	struct sc_match_recv *found = sc_match_find_recv(
		sc_rxq_queue(rxq, message->flags & SC_ABI_F_TAGGED), peer->source, message->tag);
	struct sc_rx_op *op;

	if (!found)
		return __builtin_expect(rxq->matcher != NULL, 0) ? deliver_matched(message) : 0;
	op = sc_list_entry(found, struct sc_rx_op, match);
	sc_rxop_settle(op);
	if (!(op->flags & SC_RECV_MULTI))
		sc_rxop_unpost(rxq, op);
	if (sc_deliver_message(op, message))
		return -ENOMEM;
	sc_peer_give_back(peer, message->units);
	return 1;
}
