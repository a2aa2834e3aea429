/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * delegated.c: what this side keeps of the operations that it has delegated to a peer, until they end.
 *
 * A put from one piece, as most are, needs no struct sc_rma_op: its record has its payload, the rescue has its place in
 * the peer's memory, and struct sc_delegated the rest. If it is withdrawn, it becomes an operation like others. All is
 * private memory; the daemon's thread reads what the rescue keeps (rescue.h).
 */
#include "rma/delegated.h"

#include <stdlib.h>

bool sc_delegated_begin_slow(struct sc_peer *peer)
{
	struct sc_peer_delegate *delegate = &peer->delegate;
	struct sc_ep *ep = peer->ep;
	bool thread = !ep->alone && ep->barrier;

	delegate->open = malloc(SC_ABI_DELEGATED * sizeof(delegate->open[0]));
	if (!delegate->open)
		return false;
	delegate->rescue = sc_rescue_open(ep->seg, peer->seg, peer->out_slot, delegate->end, thread);
	if (!delegate->rescue) {
		free(delegate->open);
		delegate->open = NULL;
		return false;
	}
	delegate->plain = !(ep->order & (SC_ORDER_COMPLETE | SC_ORDER_MEMORY | SC_ORDER_AFTER_SEND));
	delegate->injects = thread && !(peer->seg->header.capabilities & SC_ABI_CAP_EVENTS);
	return true;
}

/* Out of line: a silent put that succeeds, such as most injected ones, needs none of it. */
static __attribute__((noinline)) void put_complete(struct sc_peer *peer, const struct sc_delegated *put,
						   int error)
{
	size_t size = sc_delegated_kept(peer)->remote.len;
	const struct sc_ending ending = { .context = put->context,
					  .cntr = put->cntr,
					  .turn = put->turn,
					  .cq_flags = put->cq_flags,
					  .flags = put->flags,
					  .event = SC_EVENT_WRITE,
					  .size = size,
					  .moved = error ? 0 : size,
					  .error = error };

	sc_rmaop_complete(peer, &ending);
}

void sc_delegated_end(struct sc_peer *peer, int error)
{
	const struct sc_delegated *open = sc_delegated_oldest(peer);
	struct sc_rma_op *op = open->op;

	if (op) {
		op->moved = error ? 0 : op->size;
		sc_rmaop_end(op, error);
		return;
	}
	if (__builtin_expect(!error && !open->turn && open->flags & SC_SILENT, 1))
		sc_ep_count(peer->ep, SC_EVENT_WRITE, open->cntr, open->flags, 0);
	else
		put_complete(peer, open, error);
	peer->rma.pending--;
}

/* Makes an operation of the oldest one, a put without any. NULL: no memory. */
static struct sc_rma_op *put_op(struct sc_peer *peer)
{
	const struct sc_delegated *put = sc_delegated_oldest(peer);
	const struct sc_remote *remote = &sc_delegated_kept(peer)->remote;
	const struct iovec iov = { (void *)(uintptr_t)put->buf, remote->len };
	const struct sc_rma rma = { .iov = &iov,
				    .iov_count = 1,
				    .remote = remote,
				    .remote_count = 1,
				    .data = put->data,
				    .context = put->context,
				    .cq_flags = put->cq_flags,
				    .flags = put->flags,
				    .cntr = put->cntr };
	struct sc_turn *posting = peer->order.turn;
	struct sc_rma_op *op;

	peer->order.turn = put->turn;
	op = sc_rmaop_get(peer, SC_RMA_PUT, &rma);
	peer->order.turn = posting;
	return op;
}

/* Copies the payload of the oldest operation, an injected put, from its record or its buffers. -ENOMEM. */
static int payload_own(const struct sc_peer *peer, struct sc_rma_op *op)
{
	struct sc_rescue_payload payload;

	sc_rescue_payload(peer->delegate.rescue, sc_delegated_kept(peer), &payload);
	return sc_rmaop_own(op, payload.iov, payload.count);
}

struct sc_rma_op *sc_delegated_op(struct sc_peer *peer)
{
	struct sc_delegated *open = sc_delegated_oldest(peer);
	struct sc_rma_op *op;

	if (!open->op)
		open->op = put_op(peer);
	op = open->op;
	if (op && op->kind == SC_RMA_PUT && op->flags & SC_SEND_INJECT && op->size && !op->copy &&
	    payload_own(peer, op))
		return NULL;
	return op;
}

void sc_delegated_free(struct sc_peer *peer)
{
	for (uint32_t number = peer->delegate.first; number != peer->delegate.end; number++) {
		const struct sc_rma_op *op = peer->delegate.open[number % SC_ABI_DELEGATED].op;

		if (op)
			free(op->copy);
	}
}
