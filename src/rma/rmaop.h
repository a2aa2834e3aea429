/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RMAOP_H
#define SC_RMAOP_H

#include "link/state.h"

/* How a one-sided operation ends. */
struct sc_ending {
	void *context;
	struct sc_cntr *cntr;
	struct sc_turn *turn; /* or NULL */
	uint32_t cq_flags;
	uint32_t flags;
	enum sc_event event;
	size_t size, moved;
	int error; /* negative errno */
};

/* Counts the end of an operation, and completes it. */
void sc_rmaop_complete(struct sc_peer *peer, const struct sc_ending *ending);

static inline bool sc_rma_wants_data(const struct sc_rma *rma)
{
	return (rma->flags & (SC_RMA_WRITE | SC_SEND_DATA)) == (SC_RMA_WRITE | SC_SEND_DATA);
}

/* Makes an operation on that memory, in no list. NULL: no memory. */
struct sc_rma_op *sc_rmaop_begin(struct sc_peer *peer, enum sc_rma_kind kind,
				 const struct sc_remote *remote, size_t remote_count);

/* Does the same, with a copy of all that the operation needs of `rma`, except the payload. */
struct sc_rma_op *sc_rmaop_get(struct sc_peer *peer, enum sc_rma_kind kind, const struct sc_rma *rma);

/* Returns what has been posted. It refers to the memory of the operation. */
struct sc_rma sc_rmaop_rma(const struct sc_rma_op *op);

/* Copies the payload of an injected put, 1 byte or more: the operation owns it until it ends. -ENOMEM. */
int sc_rmaop_own(struct sc_rma_op *op, const struct iovec *iov, size_t count);

/* Frees an operation in no list and not counted. Its turn, if any, becomes that of the operation being posted. */
void sc_rmaop_forget(struct sc_rma_op *op);

/* Ends an operation that has been queued, delegated or put off. */
void sc_rmaop_end(struct sc_rma_op *op, int error);

#endif
