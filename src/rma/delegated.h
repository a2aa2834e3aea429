/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DELEGATED_H
#define SC_DELEGATED_H

#include "link/state.h"
#include "link/turn.h"
#include "rma/rmaop.h"

bool sc_delegated_begin_slow(struct sc_peer *peer);

/* Prepares for the first operation; the daemon's thread may do puts from then on, if there is one. False: no memory. */
static inline bool sc_delegated_begin(struct sc_peer *peer)
{
	return __builtin_expect(peer->delegate.open != NULL, 1) || sc_delegated_begin_slow(peer);
}

/* Tells whether an operation is more than struct sc_delegated holds, and needs a struct sc_rma_op: a get, a put of pieces. */
static inline bool sc_delegated_needs_op(const struct sc_rma *rma)
{
	return !(rma->flags & SC_RMA_WRITE) || rma->iov_count != 1;
}

/* Keeps what ends the operation of the next record, as number `end`. `op` NULL: it needs none. */
static inline __attribute__((always_inline)) void
sc_delegated_keep(struct sc_peer *peer, const struct sc_rma *rma, struct sc_rma_op *op)
{
	struct sc_delegated *open = &peer->delegate.open[peer->delegate.end % SC_ABI_DELEGATED];

	open->op = op;
	open->at = peer->tx.tail;
	open->flags = rma->flags;
	open->cq_flags = rma->cq_flags;
	if (op)
		return;
	open->buf = rma->iov[0].iov_base;
	open->context = rma->context;
	open->cntr = rma->cntr;
	open->turn = sc_turn_pass(peer);
	open->data = rma->data;
}

static inline struct sc_delegated *sc_delegated_oldest(const struct sc_peer *peer)
{
	return &peer->delegate.open[peer->delegate.first % SC_ABI_DELEGATED];
}

/* Returns what the rescue keeps of the oldest operation. */
static inline const struct sc_rescue_kept *sc_delegated_kept(const struct sc_peer *peer)
{
	return &peer->delegate.rescue->kept[peer->delegate.first % SC_ABI_DELEGATED];
}

/* Tells whether the oldest operation is a get. */
static inline bool sc_delegated_is_get(const struct sc_peer *peer)
{
	return !(sc_delegated_oldest(peer)->flags & SC_RMA_WRITE);
}

/* Ends the oldest operation, with a negative errno or 0; the caller counts it. */
void sc_delegated_end(struct sc_peer *peer, int error);

/*
 * Makes the oldest operation, which is withdrawn, one for sc_direct_do(). Reads the payload of an injected put back: the
 * application may have changed its buffer since. NULL: no memory.
 */
struct sc_rma_op *sc_delegated_op(struct sc_peer *peer);

/* Frees what the operations hold, without completions. */
void sc_delegated_free(struct sc_peer *peer);

#endif
