/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rma.c: posts one-sided operations. sc_route() decides the way of each put and get, by the facts that this file
 * collects:
 *
 *   delegated     the peer does it if it polls soon, unless this process withdraws it (delegate.c, rescue.c); short puts
 *                 go this way without sc_route() if they can
 *   cooperative   both copy, if the peer polls (assist.c)
 *   CMA           this process copies, at once or together with others (direct.c)
 *   target        the peer does it, and answers (request.c, target.c); all atomics. One that brings nothing back is over
 *                 when its record is written, and needs no answer, unless the application waits for its delivery
 *
 * Order. Operations on one of the first three ways are done in the order of their posts. Before a put or a get goes
 * another way, this process settles delegated operations that the peer may still take, unfinished cooperative ones, and
 * those that are put off (make_way()); before an atomic, the last two (settle()). A peer executes requests in their
 * order. Until the puts and gets among them have ended, later ones become requests behind them (sc_direct_may()). There
 * is no order between puts or gets and atomics, nor between them and messages, unless the endpoint asks for it or there
 * is a fence. Then an operation that this process could copy becomes a request while the peer's ring has unread records
 * that must come before it (must_follow(), fence.h); an atomic waits for delegated operations and gets; messages wait as
 * tx.c says. No operation waits for the match of a message: the peer may match it only after it has seen what was posted
 * behind it.
 *
 * A caller whose peer does not read its ring is pushed back: at OPS_MAX pending operations, or without space for the
 * record of an operation that completes in the post, a post returns -EAGAIN before it does anything. So does the post
 * of an injected put that the peer must do, while it cannot write all records: the caller may never call again.
 *
 * All memory is private; the file of each way says what remains if either side dies.
 */
#include "rma/rma.h"

#include <errno.h>
#include <stdlib.h>
#include "base/iov.h"
#include "link/fence.h"
#include "link/peer.h"
#include "link/record.h"
#include "link/review.h"
#include "link/route.h"
#include "link/turn.h"
#include "link/xfer.h"
#include "proc/calibration.h"
#include "rma/assist.h"
#include "rma/delegate.h"
#include "rma/delegated.h"
#include "rma/direct.h"
#include "rma/request.h"
#include "rma/rmaop.h"

/* Pending operations with one peer. */
#define OPS_MAX 1024

/* ---- what is known --------------------------------------------------------------------------- */

/* Tells whether the peer must do something before this process may do the operation. */
static inline bool must_follow(struct sc_peer *peer)
{
	uint32_t order = peer->ep->order;

	if (__builtin_expect(sc_fence_stands(peer), 0))
		return true;
	if (__builtin_expect(!(order & (SC_ORDER_MEMORY | SC_ORDER_AFTER_SEND)), 1))
		return false;
	return !sc_list_empty(&peer->rma.queued) || !sc_list_empty(&peer->rma.waiting) ||
	       (order & SC_ORDER_AFTER_SEND && sc_fence_is_unread(peer, sc_fence_messages_end(peer)));
}

/* Adds the facts that matter for an operation that is not delegated. To put one off in this process saves no call. */
static inline uint32_t facts_of_shape(const struct sc_peer *peer, const struct sc_rma *rma, uint32_t facts)
{
	if (rma->iov_count == 1)
		facts |= SC_FACT_ONE_PIECE;
	if (!peer->seg->local && !(peer->ep->order & SC_ORDER_SEND))
		facts |= SC_FACT_LOOSE;
	return facts;
}

/* Adds the facts that matter for an operation that is large. sc_delegate_has_open() may find that the peer is lost. */
static uint32_t facts_of_large(struct sc_peer *peer, const struct sc_rma *rma, size_t size, uint32_t facts,
			       struct sc_route_costs *costs)
{
	struct sc_fill *fill = &peer->bounce.fill;
	uint32_t together = facts & SC_FACT_STREAM ? sc_route_together(size) : 1;
	bool trial = rma->flags & SC_RMA_WRITE && sc_fill_has_trial(fill); /* a get fills nothing */
	uint64_t seen_ns = size >= SC_DIRECT_TIMED ? size * peer->rma.copy_cost / 1000 : 0;

	costs->cma_ns = sc_calibration_cma_ns(size, rma->iov_count, together);
	if (costs->cma_ns && costs->cma_ns < seen_ns)
		costs->cma_ns = seen_ns;
	costs->buffers_ns = fill->read_cost && !trial
				    ? size * ((uint64_t)fill->write_cost + fill->read_cost) / 1000
				    : 0;
	if (size >= peer->ep->config.share_min)
		facts |= SC_FACT_COPIES;
	if (sc_peer_has_delegated(peer) && sc_delegate_has_open(peer))
		facts |= SC_FACT_DELEGATED;
	return facts;
}

/* Adds to `facts` what is known of the peer, which may change between two calls; facts_of_shape() adds the rest. */
static inline uint32_t facts_of(struct sc_peer *peer, const struct sc_rma *rma, size_t size, uint32_t facts,
				struct sc_route_costs *costs)
{
	if (!sc_direct_may(peer) || must_follow(peer))
		return facts;
	facts |= SC_FACT_DIRECT;
	if (peer->seg->local)
		return facts;
	if (__builtin_expect(size > SC_ROUTE_SMALL, 0)) {
		facts = facts_of_large(peer, rma, size, facts, costs);
		if (peer->link == SC_LINK_DOWN)
			return 0; /* sc_delegate_has_open() has found a breach */
	}
	if (__builtin_expect(sc_delegate_may(peer, rma->flags & SC_RMA_WRITE, size), 1))
		facts |= SC_FACT_DELEGABLE;
	return facts;
}

/* ---- post ------------------------------------------------------------------------------------ */

/* With these facts the shape of a small operation does not matter. */
#define DELEGATES (SC_FACT_DELEGABLE | SC_FACT_ONE_RANGE)

/* Tells whether the queue has no place for the completion of an operation with these flags. */
static inline bool is_tx_full(const struct sc_ep *ep, uint32_t flags)
{
	return ep->tx_cq && !(flags & SC_SILENT) && sc_comp_ring_is_full(ep->tx_cq);
}

/* Makes the checks that are common to both kinds of operation. */
static inline int prepare(struct sc_ep *ep, struct sc_peer *peer, uint32_t flags)
{
	int ret;

	if (peer->link != SC_LINK_UP || sc_peer_has_closed(peer)) {
		ret = sc_peer_reach(peer);
		if (ret)
			return ret;
	}
	if (flags & SC_SEND_FENCE) {
		if (!sc_list_empty(&peer->ops) || peer->rma.pending)
			return -EAGAIN;
		sc_fence_raise(peer);
	}
	if (is_tx_full(ep, flags))
		return -EAGAIN;
	if (peer->rma.pending >= OPS_MAX)
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

/* Ends operations on another way, except delegated ones. -EAGAIN: not yet; else the error of the peer. */
static int settle(struct sc_peer *peer, enum sc_way way)
{
	int ret = way == SC_WAY_COOPERATIVE ? 0 : sc_assist_settle(peer);

	return ret || way == SC_WAY_CMA_LATER ? ret : sc_direct_settle(peer);
}

/*
 * Settles operations on another way; some may become requests. 0: there were none; 1: the facts have changed, or one has
 * turned out false; -EAGAIN: not now; else the error of the peer.
 */
static int make_way(struct sc_peer *peer, enum sc_way way, uint32_t *not)
{
	int ret;

	if (peer->link == SC_LINK_DOWN)
		return peer->error;
	/* if the peer does not copy along, operations that are put off need not be settled */
	if (way == SC_WAY_COOPERATIVE && sc_list_empty(&peer->assist.ops) &&
	    (sc_xfer_is_crowded(peer->ep) || !sc_assist_may_ask(peer))) {
		*not |= SC_FACT_COPIES;
		return peer->link == SC_LINK_DOWN ? peer->error : 1;
	}
	if (!peer->rma.pending || (!sc_peer_has_delegated(peer) &&
				   (way == SC_WAY_COOPERATIVE || sc_list_empty(&peer->assist.ops)) &&
				   (way == SC_WAY_CMA_LATER || sc_list_empty(&peer->batch.ops))))
		return 0;
	ret = sc_delegate_settle(peer);
	if (!ret)
		ret = settle(peer, way);
	return ret ? ret : 1;
}

static int post_request(struct sc_peer *peer, const struct sc_rma *rma)
{
	bool injected = rma->flags & SC_SEND_INJECT && rma->flags & SC_RMA_WRITE;
	struct sc_rma_op *op;

	/* the application may never call again, and its memory is not ours after the call */
	if (injected && !sc_request_fits(peer, rma->remote, rma->remote_count))
		return peer->link == SC_LINK_DOWN ? peer->error : -EAGAIN;
	op = sc_rmaop_get(peer, rma->flags & SC_RMA_WRITE ? SC_RMA_PUT : SC_RMA_GET, rma);
	if (!op)
		return -EAGAIN;
	sc_request_queue(op);
	if (injected && !sc_list_empty(&peer->rma.queued) && sc_rmaop_own(op, rma->iov, rma->iov_count))
		op->error = -ENOMEM;
	return 0;
}

/* Tells whether a registration counts the operation, as far as one look tells. */
static bool is_counted(struct sc_peer *peer, const struct sc_rma *rma)
{
	const struct sc_regtab_view table = sc_seg_table(peer->seg);

	for (size_t i = 0; i < rma->remote_count; i++)
		if (sc_regtab_counts(&table, rma->remote[i].key))
			return true;
	return false;
}

/* Returns how many notes tell of an operation at most: one for each key. */
static uint32_t notes_of(const struct sc_rma *rma)
{
	uint32_t notes = 1;

	for (size_t i = 1; i < rma->remote_count; i++)
		notes += rma->remote[i].key != rma->remote[i - 1].key;
	return notes;
}

/*
 * Tells whether an injected put that this process copies leaves no record to write: the application may never call again.
 * The peer's application hears of some by notes.
 */
static bool leaves_nothing(struct sc_peer *peer, const struct sc_rma *rma)
{
	bool note = sc_rma_wants_data(rma) || peer->seg->header.capabilities & SC_ABI_CAP_EVENTS ||
		    is_counted(peer, rma);

	return sc_list_empty(&peer->rma.queued) && !(note && sc_record_room(peer, notes_of(rma)));
}

/* Posts an operation on any way but DELEGATED, after operations on other ways are settled. `facts`: of the operation. */
static __attribute__((noinline)) int post_other(struct sc_peer *peer, const struct sc_rma *rma, size_t size,
						uint32_t facts, enum sc_way way)
{
	enum sc_route_op op = rma->flags & SC_RMA_WRITE ? SC_ROUTE_PUT : SC_ROUTE_GET;
	uint32_t not = SC_FACT_DELEGABLE; /* facts that have turned out false */
	struct sc_route_costs costs;
	int ret = 0;

	while (way == SC_WAY_DELEGATED || (ret = make_way(peer, way, &not)) > 0)
		way = sc_route(op, size,
			       facts_of_shape(peer, rma, facts_of(peer, rma, size, facts, &costs)) & ~not,
			       &costs);
	if (ret)
		return ret;
	if (facts & SC_FACT_INJECTED && !leaves_nothing(peer, rma))
		return peer->link == SC_LINK_DOWN ? peer->error : -EAGAIN;
	switch (way) {
	case SC_WAY_COOPERATIVE:
		return sc_assist_post(peer, rma);
	case SC_WAY_CMA_LATER:
		return sc_direct_put_off(peer, rma, size);
	case SC_WAY_CMA:
		ret = sc_direct_post(peer, rma, size);
		/* only the peer itself can access this memory */
		return ret == -EOPNOTSUPP ? post_request(peer, rma) : ret;
	default:
		return post_request(peer, rma);
	}
}

/* Ends a post, whose return is `ret`. */
static inline int posted(struct sc_peer *peer, int ret)
{
	if (__builtin_expect(ret, 0)) {
		sc_turn_drop(peer);
		peer->ep->refusals += ret == -EAGAIN;
		return ret;
	}
	peer->ep->counters.rma_ops++;
	return 0;
}

/* Counts an operation in the burst. True: it is one of a stream. */
static inline bool count_burst(struct sc_peer *peer)
{
	if (peer->rma.burst.poll != peer->ep->polls)
		peer->rma.streamed = sc_burst_is_stream(&peer->rma.burst);
	return __builtin_expect(sc_burst_add(&peer->rma.burst, peer->ep) >= SC_BURST_STREAM_MIN, 0);
}

/*
 * Posts most puts of a few bytes, after fewer checks than the others need: sc_route() delegates each of them. False:
 * nothing is done.
 */
static inline bool post_short(struct sc_ep *ep, struct sc_peer *peer, const struct sc_rma *rma)
{
	if (!sc_delegate_is_short(rma) || peer->link != SC_LINK_UP || sc_peer_has_closed(peer) ||
	    is_tx_full(ep, rma->flags) || !sc_delegate_short(peer, rma))
		return false;
	(void)count_burst(peer);
	ep->counters.rma_ops++;
	return true;
}

static __attribute__((noinline)) int post_any(struct sc_ep *ep, struct sc_peer *peer,
					      const struct sc_rma *rma)
{
	enum sc_route_op op = rma->flags & SC_RMA_WRITE ? SC_ROUTE_PUT : SC_ROUTE_GET;
	bool injects = op == SC_ROUTE_PUT && rma->flags & SC_SEND_INJECT;
	size_t size = sc_iov_size(rma->iov, rma->iov_count);
	struct sc_route_costs costs;
	uint32_t facts, facts_all;
	enum sc_way way;
	int ret;

	if (!rma->remote_count || rma->remote_count > SC_REMOTE_MAX || rma->iov_count > SC_IOV_MAX ||
	    size != remote_size(rma->remote, rma->remote_count))
		return -EINVAL;
	if (size > (injects ? SC_INJECT_MAX : SC_MESSAGE_MAX))
		return -EMSGSIZE;
	ret = prepare(ep, peer, rma->flags);
	if (ret)
		return ret;
	facts = (rma->remote_count == 1 ? SC_FACT_ONE_RANGE : 0) | (injects ? SC_FACT_INJECTED : 0);
	if (count_burst(peer))
		facts |= SC_FACT_STREAM;
	/* behind a delegated operation others are delegated, too: so the first large ones of a likely stream are not */
	if (__builtin_expect(peer->rma.streamed, 0))
		facts |= SC_FACT_LIKELY;
	facts_all = facts_of(peer, rma, size, facts, &costs);
	/* the shape matters only for an operation that is large, or may not be delegated */
	if (__builtin_expect(size > SC_ROUTE_SMALL || (facts_all & DELEGATES) != DELEGATES, 0))
		facts_all = facts_of_shape(peer, rma, facts_all);
	way = sc_route(op, size, facts_all, &costs);
	ret = way == SC_WAY_DELEGATED ? sc_delegate_post(peer, rma, size) : 1;
	if (ret > 0)
		ret = post_other(peer, rma, size, facts, way);
	return posted(peer, ret);
}

int sc_rma_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_rma *rma)
{
	return __builtin_expect(post_short(ep, peer, rma), 1) ? 0 : post_any(ep, peer, rma);
}

static bool is_whole(const struct sc_atomic *atomic, size_t element)
{
	for (size_t i = 0; i < atomic->remote_count; i++)
		if (atomic->remote[i].len % element)
			return false;
	return true;
}

/* Tells whether all vectors of the atomic are as long as its remote side. */
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

/* Keeps where former values go. */
static void results_keep(struct sc_rma_op *op, const struct sc_atomic *atomic)
{
	for (size_t i = 0; atomic->kind != SC_ATOMIC_BASE && i < atomic->result_count; i++)
		if (atomic->result[i].iov_len)
			op->iov[op->iov_count++] = atomic->result[i];
}

/* Copies operands and values to compare with. */
static int operands_keep(struct sc_rma_op *op, const struct sc_atomic *atomic)
{
	bool compares = atomic->kind == SC_ATOMIC_COMPARE;

	op->copy = malloc(op->size * (compares ? 2 : 1));
	if (!op->copy)
		return -ENOMEM;
	if (atomic->code != SC_ATOMIC_READ)
		sc_iov_read(atomic->iov, atomic->iov_count, op->copy, op->size);
	if (compares)
		sc_iov_read(atomic->compare, atomic->compare_count, op->copy + op->size, op->size);
	return 0;
}

/*
 * Tells whether an atomic is over once its record is written: no value comes back, the application does not ask for its
 * end at the target, and the target's table permits it now. Else the target's answer tells.
 */
static bool is_over_at_once(struct sc_peer *peer, const struct sc_atomic *atomic)
{
	const struct sc_remote *remote = &atomic->remote[0];
	struct sc_regtab_view table;
	struct sc_reg_span span;
	struct sc_reg_ref ref;

	if (atomic->kind != SC_ATOMIC_BASE || atomic->flags & (SC_SEND_DELIVERY | SC_SEND_MATCH))
		return false;
	table = sc_seg_table(peer->seg);
	return !sc_regtab_find(&table, remote->key, &ref) &&
	       !sc_regtab_check(&table, &ref, remote, SC_REG_WRITE, &span) && span.range_count == 1 &&
	       !((span.addr + remote->addr - span.base) & (sc_atomic_size(atomic->type) - 1)); /* a power of two */
}

static int atomic_tell(struct sc_peer *peer, const struct sc_atomic *atomic, size_t size)
{
	struct sc_ending ending = { .context = atomic->context,
				    .cntr = atomic->cntr,
				    .cq_flags = atomic->cq_flags,
				    .flags = atomic->flags,
				    .event = SC_EVENT_WRITE,
				    .size = size };
	int ret = sc_request_one(peer, atomic, size, NULL);

	if (ret)
		return ret;
	ending.turn = sc_turn_pass(peer);
	sc_rmaop_complete(peer, &ending);
	return 0;
}

static int atomic_ask(struct sc_peer *peer, const struct sc_atomic *atomic, size_t size, bool one)
{
	struct sc_rma_op *op = sc_rmaop_begin(peer, SC_RMA_ATOMIC, atomic->remote, atomic->remote_count);
	int ret;

	if (!op)
		return -EAGAIN;
	op->event = atomic->kind == SC_ATOMIC_BASE ? SC_EVENT_WRITE : SC_EVENT_READ;
	op->flags = atomic->flags & ~(uint32_t)SC_SEND_DATA;
	op->context = atomic->context;
	op->cntr = atomic->cntr;
	op->cq_flags = atomic->cq_flags;
	op->atomic_kind = atomic->kind;
	op->atomic_type = atomic->type;
	op->atomic_code = atomic->code;
	results_keep(op, atomic);
	ret = one ? sc_request_one(peer, atomic, size, op) : -EAGAIN;
	if (!ret)
		return 0;
	if (ret != -EAGAIN || operands_keep(op, atomic)) {
		sc_rmaop_forget(op);
		return ret;
	}
	sc_request_queue(op);
	return 0;
}

int sc_atomic_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_atomic *atomic)
{
	size_t element = sc_atomic_size(atomic->type);
	size_t size = remote_size(atomic->remote, atomic->remote_count);
	bool one;
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
		ret = settle(peer, SC_WAY_TARGET);
	if (!ret && ep->order & SC_ORDER_MEMORY && sc_peer_has_delegated(peer))
		ret = -EAGAIN; /* the peer takes them soon, or they are withdrawn */
	if (!ret) {
		one = sc_request_is_one(peer, atomic, size);
		ret = one && is_over_at_once(peer, atomic) ? atomic_tell(peer, atomic, size)
							   : atomic_ask(peer, atomic, size, one);
	}
	return posted(peer, ret);
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

	if (peer->rma.gets && sc_peer_writes(peer))
		return false;
	sc_delegate_end_peer(peer, error);
	end_list(&peer->batch.ops, error);
	sc_list_remove(&peer->work[SC_WORK_BATCHING]);
	peer->batch.count = 0;
	peer->batch.bytes = 0;
	end_list(&peer->rma.waiting, error);
	end_list(&peer->rma.queued, error);
	sc_list_remove(&peer->work[SC_WORK_RMA_BUSY]);
	peer->rma.requests = peer->rma.gets = peer->rma.fars = peer->rma.undone = 0;
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

		sc_delegated_free(peer);
		forget(&peer->batch.ops);
		forget(&peer->assist.ops);
		forget(&peer->rma.queued);
		forget(&peer->rma.waiting);
	}
	sc_slab_fini(&ep->rma_ops);
}
