/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rma.c: one-sided operations, posted, and the way that each goes:
 *
 *   direct     this process copies by itself, if the peer lets its memory be touched and CMA can (direct.c)
 *              of several that are posted in a row some are put off, and copied together (batch.c)
 *   assisted   a large one of that kind: the peer copies along, if it polls just now (assist.c)
 *   offered    a small one of that kind: the peer may do it, if it polls just now (delegate.c)
 *   requests   else, and for all atomics: records that the peer executes and answers (request.c)
 *
 * Order. Direct operations are over one after the other, assisted ones too, offers are taken in order, and nothing goes
 * another way while there are offers that the peer might still take, assisted ones that are not over, or direct ones
 * put off: they are settled first.
 * Requests of one peer are executed in their order. Between operations on memory and atomics there is none, nor
 * between them and messages, unless the endpoint asks for it, or there is a fence: then an operation that could be done
 * directly becomes a request as long as the peer's ring has records that must come before it (must_follow(), fence.h),
 * an atomic waits for what is offered and for gets, and messages wait as tx.c has it. Nothing waits for the match of a
 * message: the peer may match it only when it sees what was posted behind.
 *
 * A peer that does not read its ring is pushed back: so many operations may be pending with one
 * (OPS_MAX), then it is -EAGAIN, before anything is done.
 *
 * Private memory only; the file of each way says what remains if either side dies.
 */
#include "rma/rma.h"

#include <errno.h>
#include <stdlib.h>
#include "rma/assist.h"
#include "rma/batch.h"
#include "rma/direct.h"
#include "link/fence.h"
#include "base/iov.h"
#include "rma/delegate.h"
#include "link/peer.h"
#include "link/review.h"
#include "rma/request.h"
#include "rma/rmaop.h"
#include "link/turn.h"

/* Operations with one peer that are not over. */
#define OPS_MAX 1024
/* Puts and gets that are posted without a poll between, before there are likely to be more. */
#define STREAM_MIN 4

/* ---- order ----------------------------------------------------------------------------------- */

/* Has something to be done by the peer before this operation may be done from here? */
static bool must_follow(struct sc_peer *peer)
{
	uint32_t order = peer->ep->order;

	if (__builtin_expect(sc_fence_stands(peer), 0))
		return true;
	if (__builtin_expect(!(order & (SC_ORDER_MEMORY | SC_ORDER_AFTER_SEND)), 1))
		return false;
	return !sc_list_empty(&peer->rma_queued) || !sc_list_empty(&peer->rma_waiting) ||
	       (order & SC_ORDER_AFTER_SEND && sc_fence_is_unread(peer, sc_fence_messages_end(peer)));
}

/* ---- post ------------------------------------------------------------------------------------ */

/* The checks that both kinds of operation begin with. */
static int prepare(struct sc_ep *ep, struct sc_peer *peer, uint32_t flags)
{
	int ret;

	if (peer->link != SC_LINK_UP || sc_peer_has_closed(peer)) {
		ret = sc_peer_reach(peer);
		if (ret)
			return ret;
	}
	if (flags & SC_SEND_FENCE) {
		if (!sc_list_empty(&peer->ops) || peer->rma_pending)
			return -EAGAIN;
		sc_fence_raise(peer);
	}
	if (ep->tx_cq && !(flags & SC_SILENT) && sc_comp_ring_is_full(ep->tx_cq))
		return -EAGAIN;
	if (peer->rma_pending >= OPS_MAX)
		return -EAGAIN;
	return sc_turn_take(peer);
}

static size_t remote_size(const struct sc_remote *remote, size_t count)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(size, remote[i].len, &size))
			return SIZE_MAX;
	return size;
}

static bool may_be_direct(struct sc_peer *peer)
{
	return sc_direct_may(peer) && !must_follow(peer);
}

/*
 * Directly, at once or soon, or by a request: not before what has been offered or put off is settled, which may have
 * made requests of it.
 */
static int post_now(struct sc_peer *peer, const struct sc_rma *rma, size_t size, bool stream)
{
	struct sc_rma_op *op;
	int ret = sc_delegate_settle(peer);

	if (ret)
		return ret;
	ret = may_be_direct(peer) ? sc_assist_post(peer, rma, size, stream) : -EOPNOTSUPP;
	if (ret != -EOPNOTSUPP)
		return ret;
	ret = sc_assist_settle(peer);
	if (ret)
		return ret;
	ret = stream && may_be_direct(peer) ? sc_batch_post(peer, rma, size) : -EOPNOTSUPP;
	if (ret != -EOPNOTSUPP)
		return ret;
	ret = sc_batch_settle(peer);
	if (ret)
		return ret;
	ret = may_be_direct(peer) ? sc_direct_post(peer, rma, size) : -EOPNOTSUPP;
	if (ret != -EOPNOTSUPP)
		return ret;
	op = sc_rmaop_get(peer, rma->flags & SC_RMA_WRITE ? SC_RMA_PUT : SC_RMA_GET, rma);
	if (!op)
		return -EAGAIN;
	sc_request_queue(op);
	return 0;
}

/*
 * Was the burst before this operation's a stream? The first ones of another, offered, would have the others offered
 * behind them. To be asked before the operation is added to its burst.
 */
static bool is_likely_stream(struct sc_peer *peer)
{
	if (peer->rma_burst.poll != peer->ep->polls)
		peer->rma_streamed = peer->rma_burst.count > STREAM_MIN;
	return peer->rma_streamed;
}

int sc_rma_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_rma *rma)
{
	bool injects = rma->flags & SC_RMA_WRITE && rma->flags & SC_SEND_INJECT;
	size_t size = sc_iov_size(rma->iov, rma->iov_count);
	bool stream, likely;
	int ret;

	if (!rma->remote_count || rma->remote_count > SC_REMOTE_MAX || rma->iov_count > SC_IOV_MAX ||
	    size != remote_size(rma->remote, rma->remote_count))
		return -EINVAL;
	if (size > (injects ? SC_INJECT_MAX : SC_MESSAGE_MAX))
		return -EMSGSIZE;
	ret = prepare(ep, peer, rma->flags);
	if (ret)
		return ret;
	likely = is_likely_stream(peer);
	stream = sc_burst_add(&peer->rma_burst, ep) >= STREAM_MIN;
	ret = must_follow(peer) ? -EOPNOTSUPP : sc_delegate_post(peer, rma, size, stream || likely);
	if (ret == -EOPNOTSUPP)
		ret = post_now(peer, rma, size, stream);
	if (ret)
		sc_turn_drop(peer);
	ep->counters.rma_ops += !ret;
	return ret;
}

static bool is_whole(const struct sc_atomic *atomic, size_t element)
{
	for (size_t i = 0; i < atomic->remote_count; i++)
		if (atomic->remote[i].len % element)
			return false;
	return true;
}

/* Are all vectors of the atomic as long as its remote side? */
static bool is_even(const struct sc_atomic *atomic, size_t size)
{
	if (atomic->code != SC_ATOMIC_READ && sc_iov_size(atomic->iov, atomic->iov_count) != size)
		return false;
	if (atomic->kind == SC_ATOMIC_COMPARE &&
	    sc_iov_size(atomic->compare, atomic->compare_count) != size)
		return false;
	return atomic->kind == SC_ATOMIC_BASE ||
	       (atomic->result_count <= SC_IOV_MAX &&
		sc_iov_size(atomic->result, atomic->result_count) == size);
}

static int atomic_copy(struct sc_rma_op *op, const struct sc_atomic *atomic)
{
	bool compares = atomic->kind == SC_ATOMIC_COMPARE;

	op->copy = malloc(op->size * (compares ? 2 : 1));
	if (!op->copy)
		return -ENOMEM;
	if (atomic->code != SC_ATOMIC_READ)
		sc_iov_read(atomic->iov, atomic->iov_count, 0, op->copy, op->size);
	if (compares)
		sc_iov_read(atomic->compare, atomic->compare_count, 0, op->copy + op->size, op->size);
	if (atomic->kind == SC_ATOMIC_BASE)
		return 0;
	for (size_t i = 0; i < atomic->result_count; i++)
		if (atomic->result[i].iov_len)
			op->iov[op->iov_count++] = atomic->result[i];
	return 0;
}

int sc_atomic_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_atomic *atomic)
{
	size_t element = sc_atomic_size(atomic->type);
	size_t size = remote_size(atomic->remote, atomic->remote_count);
	struct sc_rma_op *op;
	int ret;

	if (!sc_atomic_valid(atomic->kind, atomic->type, atomic->code))
		return -EOPNOTSUPP;
	if (!atomic->remote_count || atomic->remote_count > SC_REMOTE_MAX || !size ||
	    !is_whole(atomic, element) || !is_even(atomic, size))
		return -EINVAL;
	if (size > SC_ATOMIC_MAX)
		return -EMSGSIZE;
	ret = prepare(ep, peer, atomic->flags);
	if (!ret)
		ret = sc_assist_settle(peer);
	if (!ret)
		ret = sc_batch_settle(peer);
	if (!ret && ep->order & SC_ORDER_MEMORY && !sc_list_empty(&peer->offers))
		ret = -EAGAIN; /* the peer takes them in a moment, or they are taken back */
	op = ret ? NULL : sc_rmaop_begin(peer, SC_RMA_ATOMIC, atomic->remote, atomic->remote_count);
	if (!op) {
		sc_turn_drop(peer);
		return ret ? ret : -EAGAIN;
	}
	op->event = atomic->kind == SC_ATOMIC_BASE ? SC_EVENT_WRITE : SC_EVENT_READ;
	op->flags = atomic->flags & ~(uint32_t)SC_SEND_DATA;
	op->context = atomic->context;
	op->cntr = atomic->cntr;
	op->cq_flags = atomic->cq_flags;
	op->atomic_kind = atomic->kind;
	op->atomic_type = atomic->type;
	op->atomic_code = atomic->code;
	if (atomic_copy(op, atomic)) {
		sc_rmaop_forget(op);
		sc_turn_drop(peer);
		return -EAGAIN;
	}
	ep->counters.rma_ops++;
	sc_request_queue(op);
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void end_list(struct sc_list *ops, int error)
{
	while (!sc_list_empty(ops))
		sc_rmaop_end(sc_list_entry(ops->next, struct sc_rma_op, of_peer), error);
}

bool sc_rma_end_peer(struct sc_peer *peer, int error)
{
	bool over = sc_assist_end_peer(peer, error);

	if (peer->rma_gets && sc_peer_writes(peer))
		return false;
	sc_delegate_end_peer(peer);
	end_list(&peer->offers, error);
	sc_list_remove(&peer->offering);
	end_list(&peer->batch, error);
	sc_list_remove(&peer->batching);
	peer->batch_count = 0;
	peer->batch_bytes = 0;
	end_list(&peer->rma_waiting, error);
	end_list(&peer->rma_queued, error);
	sc_list_remove(&peer->rma_busy);
	peer->rma_requests = peer->rma_gets = peer->rma_fars = 0;
	return over;
}

static void forget(struct sc_list *ops)
{
	sc_list_for (entry, ops)
		free(sc_list_entry(entry, struct sc_rma_op, of_peer)->copy);
}

void sc_rma_fini(struct sc_ep *ep)
{
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		forget(&peer->offers);
		forget(&peer->batch);
		forget(&peer->assisted);
		forget(&peer->rma_queued);
		forget(&peer->rma_waiting);
	}
	sc_slab_fini(&ep->rma_ops);
}
