/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rmaop.c: makes, ends and reports one-sided operations that are not over in the call that posts them.
 *
 * An operation is in one list of its peer from the moment that it is queued, delegated or put off until it ends, and
 * sc_peer.rma.pending counts it. Each ends once, with a completion, or is forgotten when the endpoint closes. Private
 * memory: no other process sees it, whenever one dies.
 */
#include "rma/rmaop.h"

#include <errno.h>
#include <stdlib.h>
#include "base/iov.h"
#include "link/turn.h"

/*
 * Fills a completion where it stays. A copy of it right after these stores would load two fields at once, and wait until
 * both stores have reached the cache.
 */
static inline void comp_fill(struct sc_comp *comp, const struct sc_ending *ending)
{
	comp->context = ending->context;
	comp->len = ending->size;
	comp->buf = NULL;
	comp->data = 0;
	comp->tag = 0;
	comp->source = NULL;
	comp->olen = ending->error ? ending->moved : 0;
	comp->cq_flags = ending->cq_flags;
	comp->err = (uint16_t)-ending->error;
	comp->flags = 0;
}

static bool is_silent(const struct sc_ending *ending)
{
	return !ending->error && ending->flags & SC_SILENT;
}

static void complete_in_turn(struct sc_peer *peer, const struct sc_ending *ending)
{
	struct sc_comp comp;

	comp_fill(&comp, ending);
	sc_turn_end(peer, ending->turn, is_silent(ending) ? NULL : &comp);
}

void sc_rmaop_complete(struct sc_peer *peer, const struct sc_ending *ending)
{
	struct sc_ep *ep = peer->ep;
	struct sc_comp *comp;

	sc_ep_count(ep, ending->event, ending->cntr, ending->flags, ending->error);
	if (__builtin_expect(ending->turn != NULL, 0)) {
		complete_in_turn(peer, ending);
		return;
	}
	if (!ep->tx_cq || is_silent(ending))
		return;
	comp = sc_comp_ring_reserve(ep->tx_cq);
	if (!comp)
		return;
	comp_fill(comp, ending);
	sc_comp_ring_commit(ep->tx_cq);
}

/*
 * Copies word by word. The caller has just stored the words one by one: a load of two at once would wait until all
 * earlier stores have reached the cache, those of the last record too.
 */
static inline void remote_copy(struct sc_remote *to, const struct sc_remote *from)
{
	to->addr = from->addr;
	to->len = from->len;
	to->key = from->key;
}

struct sc_rma_op *sc_rmaop_begin(struct sc_peer *peer, enum sc_rma_kind kind,
				 const struct sc_remote *remote, size_t remote_count)
{
	struct sc_ep *ep = peer->ep;
	struct sc_rma_op *op = sc_slab_get(&ep->rma_ops);

	if (!op)
		return NULL;
	op->kind = kind;
	op->peer = peer;
	op->turn = sc_turn_pass(peer);
	op->size = op->begun = op->moved = op->got = 0;
	op->far = op->again = false;
	op->answers = 0;
	op->error = 0;
	/* a note is made when its operation is the oldest one, or when none is open */
	op->number = peer->delegate.first;
	op->copy = NULL;
	op->iov_count = 0;
	op->remote_count = 0;
	for (size_t i = 0; i < remote_count; i++) {
		op->size += remote[i].len;
		/* an empty range needs no request, unless there is nothing else */
		if (remote[i].len || (i + 1 == remote_count && !op->size))
			remote_copy(&op->remote[op->remote_count++], &remote[i]);
	}
	sc_list_init(&op->of_peer);
	return op;
}

void sc_rmaop_forget(struct sc_rma_op *op)
{
	if (op->turn)
		op->peer->order.turn = op->turn;
	if (__builtin_expect(op->copy != NULL, 0))
		free(op->copy);
	sc_slab_put(&op->peer->ep->rma_ops, op);
}

/* Out of line: a silent operation that succeeds, such as most injected puts, needs none of it. */
static __attribute__((noinline)) void complete(struct sc_rma_op *op, int error)
{
	const struct sc_ending ending = { .context = op->context,
					  .cntr = op->cntr,
					  .turn = op->turn,
					  .cq_flags = op->cq_flags,
					  .flags = op->flags,
					  .event = op->event,
					  .size = op->size,
					  .moved = op->moved,
					  .error = error };

	sc_rmaop_complete(op->peer, &ending);
	op->turn = NULL;
}

void sc_rmaop_end(struct sc_rma_op *op, int error)
{
	if (__builtin_expect(!error && !op->turn && op->flags & SC_SILENT, 1))
		sc_ep_count(op->peer->ep, op->event, op->cntr, op->flags, 0);
	else
		complete(op, error);
	sc_list_remove(&op->of_peer);
	op->peer->rma.pending--;
	sc_rmaop_forget(op);
}

int sc_rmaop_own(struct sc_rma_op *op, const struct iovec *iov, size_t count)
{
	op->copy = malloc(op->size);
	if (!op->copy)
		return -ENOMEM;
	sc_iov_read(iov, count, op->copy, op->size);
	op->iov[0] = (struct iovec){ op->copy, op->size };
	op->iov_count = 1;
	return 0;
}

struct sc_rma_op *sc_rmaop_get(struct sc_peer *peer, enum sc_rma_kind kind, const struct sc_rma *rma)
{
	struct sc_rma_op *op = sc_rmaop_begin(peer, kind, rma->remote, rma->remote_count);

	if (!op)
		return NULL;
	op->event = rma->flags & SC_RMA_WRITE ? SC_EVENT_WRITE : SC_EVENT_READ;
	op->flags = sc_rma_wants_data(rma) ? rma->flags : rma->flags & ~SC_SEND_DATA;
	op->context = rma->context;
	op->cntr = rma->cntr;
	op->cq_flags = rma->cq_flags;
	op->data = rma->data;
	if (kind == SC_RMA_NOTE) {
		op->moved = op->size;
		return op;
	}
	for (size_t i = 0; i < rma->iov_count; i++)
		if (rma->iov[i].iov_len)
			op->iov[op->iov_count++] = rma->iov[i];
	return op;
}

struct sc_rma sc_rmaop_rma(const struct sc_rma_op *op)
{
	return (struct sc_rma){ .iov = op->iov,
				.iov_count = op->iov_count,
				.remote = op->remote,
				.remote_count = op->remote_count,
				.data = op->data,
				.context = op->context,
				.cq_flags = op->cq_flags,
				.flags = op->flags,
				.cntr = op->cntr };
}
