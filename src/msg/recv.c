/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recv.c: the calls of applications on the receiving side: post, claim, discard, cancel; peek.c has the rest.
 *
 *   sc_recv_post() --waits already--> sc_waiting_deliver()
 *        |
 *        +--no message--> posted in the matcher, until a record fits (rx.c), sc_rxq_cancel(), or the last
 *                         peer of the source that it is directed to is lost (sc_recv_end_peer())
 *
 * Owns operations from sc_slab_get() until they are posted or handed to a delivery, which ends them. At any time an
 * operation is posted, in a transfer, or both (multi-receive). It is never posted while a message that fits waits, so
 * nothing is searched twice.
 *
 * All memory is private. If a peer dies or closes, the messages that it left can be received as waiting.c says. If none
 * of them fits, a receive from that peer alone can only wait for ever: it ends with the peer's error, and later ones
 * are refused. The first receive that is directed to a peer connects to it (sc_peer_expect()), so that this endpoint
 * also sees the end of a peer that has never sent anything. If this process dies, nothing is left.
 */
#include "msg/recv.h"

#include <errno.h>
#include "link/connect.h"
#include "link/review.h"
#include "link/rxq.h"
#include "msg/rxop.h"
#include "msg/waiting.h"

/* Returns the endpoint that reports a receive that no message ends. NULL: no endpoint has the shared queue. */
static struct sc_ep *reporter(const struct sc_rxq *rxq)
{
	return sc_list_empty(&rxq->eps) ? NULL : sc_list_entry(rxq->eps.next, struct sc_ep, of_rxq);
}

void sc_recv_report(struct sc_rxq *rxq, const struct sc_recv *recv, const struct sc_rx_msg *msg)
{
	struct sc_ep *ep = msg ? msg->peer->ep : reporter(rxq);
	bool reports = ep && ep->rx_cq && !(msg && recv->cntr && recv->flags & ep->rx_silent);
	struct sc_comp *comp = reports ? sc_comp_ring_reserve(ep->rx_cq) : NULL;

	if (recv->cntr)
		sc_cntr_add(msg ? &recv->cntr->value : &recv->cntr->errors, 1);
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
		comp->flags = sc_rxop_comp_flags(msg->flags);
	}
	sc_comp_ring_commit(ep->rx_cq);
}

/*
 * Returns the error of a source that can send nothing more, or 0. A source that was full, or that has been opened again,
 * is connected to, so that the receive ends when it does. -EAGAIN: polls must first end what was with the last endpoint,
 * or the source is announced and has no endpoint yet, or cannot be attached now, see sc_peer_expect().
 */
static int lost(const struct sc_recv *recv)
{
	const struct sc_source *source = recv->source ? recv->source->source : NULL;
	int ret;

	if (source && source->error == SC_SOURCE_UNMET)
		sc_peer_expect(recv->source);
	if (!source || source->met || !source->error)
		return 0;
	if (source->error == SC_SOURCE_UNMET) {
		recv->source->ep->refusals++;
		return -EAGAIN;
	}
	if (!source->lost)
		return source->error;
	ret = sc_peer_reach(source->lost);
	recv->source->ep->refusals += ret == -EAGAIN;
	if (source->met || !source->lost)
		return 0;
	sc_peer_await(source->lost);
	/* a peer that is full, or attached again, cannot be connected to yet: it may still come */
	return source->lost->full || (source->lost->seg && source->lost->link == SC_LINK_NONE) ? 0 : ret;
}

static int post(struct sc_rxq *rxq, struct sc_rx_op *op)
{
	if (!sc_match_post(sc_rxq_queue(rxq, op->flags & SC_TAGGED), &op->match))
		return 0;
	sc_slab_put(&rxq->ops, op);
	return -EAGAIN;
}

/* Receives or drops the message that is claimed for this context. */
static int recv_claimed(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	struct sc_rx_msg *msg = sc_waiting_find_claimed(rxq, recv);
	struct sc_rx_op *op;

	if (!msg)
		return -EINVAL;
	if (recv->flags & SC_RECV_DISCARD) {
		sc_list_remove(&msg->claimed);
		if (recv->cntr || !(recv->flags & msg->peer->ep->rx_silent))
			sc_recv_report(rxq, recv, msg);
		sc_waiting_discard(msg);
		return 0;
	}
	op = sc_rxop_open(rxq, recv);
	if (!op)
		return -EAGAIN;
	op->flags &= ~SC_RECV_MULTI; /* so it cannot fail */
	sc_list_remove(&msg->claimed);
	(void)sc_waiting_deliver(op, msg);
	sc_waiting_free(msg);
	return 0;
}

/* Ends a posted receive. If messages are on their way into a multi-receive buffer, the last of them gives it back. */
static void withdraw(struct sc_rxq *rxq, struct sc_rx_op *op, int error)
{
	bool multi = op->flags & SC_RECV_MULTI, busy = multi && op->multi_transfers;
	struct sc_ep *ep = reporter(rxq);
	struct sc_comp *comp;

	sc_rxop_settle(op);
	sc_rxop_unpost(rxq, op);
	if (ep)
		sc_ep_count(ep, SC_EVENT_RECV, op->cntr, op->flags, error);
	comp = ep && ep->rx_cq ? sc_comp_ring_reserve(ep->rx_cq) : NULL;
	if (comp) {
		*comp = (struct sc_comp){ .context = op->context,
					  .cq_flags = op->cq_flags,
					  .tag = op->match.tag,
					  .err = -error };
		if (multi && !busy)
			comp->flags = SC_COMP_MULTI_DONE;
		sc_comp_ring_commit(ep->rx_cq);
	}
	if (busy)
		op->capacity = 0;
	else
		sc_slab_put(&rxq->ops, op);
}

/* Posts the buffer first; then as many waiting messages as fit go into it. */
static int recv_multi(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	struct sc_rx_op *op;
	struct sc_rx_msg *msg;
	uint64_t id;
	int ret;

	if (recv->iov_count != 1)
		return -EINVAL;
	ret = lost(recv);
	if (ret && !sc_waiting_find(rxq, recv))
		return ret;
	op = sc_rxop_open(rxq, recv);
	if (!op)
		return -EAGAIN;
	op->multi_min = recv->multi_min;
	op->multi_transfers = 0;
	ret = post(rxq, op);
	if (ret)
		return ret;
	id = sc_slab_id(op);
	do {
		msg = sc_waiting_find(rxq, recv);
		if (!msg || sc_waiting_deliver(op, msg))
			break; /* none waits; or no memory, and the message waits for the next receive */
		sc_waiting_unqueue(msg);
		sc_waiting_free(msg);
	} while (sc_slab_has_id(op, id) && !sc_rxop_exhausted(op));
	ret = lost(recv);
	if (ret && !sc_peer_is_transient(ret) && sc_slab_has_id(op, id) && !sc_rxop_exhausted(op))
		withdraw(rxq, op, ret);
	return 0;
}

/* Posts any receive but a peek, on any way but the short one. */
static int recv_any(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	struct sc_rx_msg *msg;
	struct sc_rx_op *op;
	int ret;

	if (recv->flags & SC_RECV_CLAIM)
		return recv_claimed(rxq, recv);
	if (recv->flags & SC_RECV_MULTI)
		return recv_multi(rxq, recv);
	if (recv->flags & SC_RECV_DISCARD)
		return -EINVAL;
	op = sc_rxop_open(rxq, recv);
	if (!op)
		return -EAGAIN;
	msg = sc_waiting_find(rxq, recv);
	if (!msg) {
		ret = lost(recv);
		if (!ret)
			return post(rxq, op);
		sc_slab_put(&rxq->ops, op);
		return ret;
	}
	sc_waiting_unqueue(msg);
	(void)sc_waiting_deliver(op, msg); /* a single receive cannot fail */
	sc_waiting_free(msg);
	return 0;
}

/* Makes a struct sc_recv of arguments in registers, without the buffer. */
static inline __attribute__((always_inline)) struct sc_recv
recv_of(struct sc_peer *source, struct sc_tag_mask tag, struct sc_op_args args)
{
	return (struct sc_recv){ .source = source,
				 .tag = tag.tag,
				 .ignore = tag.ignore,
				 .context = args.context,
				 .flags = args.flags.flags,
				 .cq_flags = args.flags.cq_flags };
}

static __attribute__((noinline)) int recv_whole(struct sc_rxq *rxq, struct sc_peer *source,
						struct iovec buffer, struct sc_tag_mask tag,
						struct sc_op_args args)
{
	struct sc_recv recv = recv_of(source, tag, args);

	recv.iov = &buffer;
	recv.iov_count = 1;
	return recv_any(rxq, &recv);
}

/*
 * Posts the receive the short way if no message waits, the queue is not hashed, there is memory, and the source is not
 * lost.
 */
int sc_rxq_recv_buf(struct sc_rxq *rxq, struct sc_peer *source, struct iovec buffer,
		    struct sc_tag_mask tag, struct sc_op_args args)
{
	const struct sc_recv recv = recv_of(source, tag, args);
	struct sc_match *queue = sc_rxq_queue(rxq, args.flags.flags & SC_TAGGED);
	struct sc_rx_op *op;

	if (__builtin_expect(queue->waiting_count || queue->hashed || !rxq->ops.free ||
				     (source && source->source->error),
			     0))
		return recv_whole(rxq, source, buffer, tag, args);
	op = sc_slab_get(&rxq->ops);
	sc_rxop_init(op, &recv);
	op->iov[0].iov_base = buffer.iov_base;
	op->iov[0].iov_len = buffer.iov_len;
	return sc_match_post(queue, &op->match);
}

int sc_recv_post(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	const struct sc_op_args args = { { recv->flags, recv->cq_flags }, recv->context };

	if (recv->iov_count != 1 || recv->cntr || recv->flags & ~(SC_TAGGED | SC_SILENT))
		return recv_any(rxq, recv);
	return sc_rxq_recv_buf(rxq, recv->source, *recv->iov,
			       (struct sc_tag_mask){ recv->tag, recv->ignore }, args);
}

static bool has_context(struct sc_list *posted, const void *context)
{
	return sc_list_entry(posted, struct sc_rx_op, match.all)->context == context;
}

/*
 * Returns a posted receive with this context in one queue. The search goes from both ends to the middle: applications
 * cancel their receives in the order of posting, or against it.
 */
static struct sc_rx_op *posted_find(struct sc_match *queue, const void *context)
{
	struct sc_list *newer = queue->posted.prev, *older = queue->posted.next;

	while (newer != &queue->posted) {
		if (has_context(newer, context))
			return sc_list_entry(newer, struct sc_rx_op, match.all);
		if (has_context(older, context))
			return sc_list_entry(older, struct sc_rx_op, match.all);
		if (newer == older || newer->prev == older)
			break;
		newer = newer->prev;
		older = older->next;
	}
	return NULL;
}

int sc_rxq_cancel(struct sc_rxq *rxq, const void *context)
{
	struct sc_rx_op *op = posted_find(&rxq->tagged, context);

	if (!op)
		op = posted_find(&rxq->plain, context);
	if (!op)
		return -ENOENT;
	withdraw(rxq, op, -ECANCELED);
	return 0;
}

size_t sc_rxq_room(const struct sc_rxq *rxq)
{
	size_t posted = sc_match_posted(&rxq->tagged) + sc_match_posted(&rxq->plain);

	return posted < rxq->size ? rxq->size - posted : 0;
}

int sc_rx_cancel(struct sc_ep *ep, const void *context)
{
	return sc_rxq_cancel(ep->rxq, context);
}

static void end_directed(struct sc_rxq *rxq, struct sc_match *queue, const struct sc_source *source,
			 int error)
{
	sc_list_for_safe (entry, next, &queue->posted) {
		struct sc_rx_op *op = sc_list_entry(entry, struct sc_rx_op, match.all);

		if (op->match.source == source)
			withdraw(rxq, op, error);
	}
}

void sc_recv_end_peer(struct sc_peer *peer, int error)
{
	struct sc_rxq *rxq = peer->ep->rxq;

	if (peer->source->met)
		return; /* other peers of this source can still send */
	end_directed(rxq, &rxq->tagged, peer->source, error);
	end_directed(rxq, &rxq->plain, peer->source, error);
}
