/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rxop.h: a receive, struct sc_rx_op, from its match on: the message that has matched, and the end of the receive. The
 * short way of fast.h consists of these inline functions. Private memory, for the thread that uses the endpoint.
 */
#ifndef SC_RXOP_H
#define SC_RXOP_H

#include <assert.h>
#include "base/comp_ring.h"
#include "link/state.h"

/* A message to deliver: its checked description, and the place of its payload. */
struct sc_message {
	struct sc_peer *peer;
	enum sc_abi_kind kind;
	uint32_t flags, lines;
	uint64_t size, here; /* bytes: of the payload; of it in this record (not of a rendezvous) */
	uint64_t tag, data;
	sc_abi_op op;			 /* 0: no acknowledgement asked for */
	const struct sc_abi_line *first; /* in the ring; NULL: it has waited, and is in `bytes` */
	const uint8_t *bytes;
	uint64_t units;
	/* of a message that has waited: its number among those of the peer; else the number of the next one that will wait */
	uint64_t arrival;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
	uint32_t segment_count;
	struct iovec segments[SC_ABI_RDV_SEGMENTS];
};

/* How a receive ends, or one message of a multi-receive. */
struct sc_received {
	struct sc_peer *peer;
	uint64_t tag, data;
	uint64_t size;	/* of the message */
	size_t done;	/* bytes of it received */
	uint32_t flags; /* SC_COMP_* */
	int error;	/* negative errno */
	void *buf;	/* multi-receive: address of the message */
};

/* Counts a receive, in its own counter `cntr` too, and writes the completion if the flags ask for it. */
static inline __attribute__((always_inline)) void sc_rxop_complete(struct sc_ep *ep, const struct sc_rx_op *op,
								   struct sc_cntr *cntr,
								   const struct sc_received *received)
{
	int error = !received->error && received->size > received->done ? -EMSGSIZE : received->error;
	struct sc_comp_ring *cq = ep->rx_cq;
	struct sc_comp *comp;

	ep->counters.rx_msgs++;
	ep->counters.rx_bytes += received->done;
	sc_ep_count(ep, SC_EVENT_RECV, cntr, op->flags, error);
	if (__builtin_expect(!cq, 0) ||
	    __builtin_expect(
		    op->flags & ep->rx_silent && !error && !(received->flags & SC_COMP_MULTI_DONE), 0))
		return;
	if (!error && received->flags == SC_COMP_RECV && sc_comp_ring_may_by_pass(cq)) {
		*cq->direct++ = (struct sc_entry){ .context = op->context,
						   .cq_flags = op->cq_flags,
						   .len = received->done,
						   .buf = received->buf,
						   .data = received->data,
						   .tag = received->tag };
		return;
	}
	comp = sc_comp_ring_reserve(cq);
	if (!comp)
		return;
	comp->context = op->context;
	comp->len = received->done;
	comp->buf = received->buf;
	comp->data = received->data;
	comp->tag = received->tag;
	comp->source = received->peer;
	if (__builtin_expect(error, 0))
		comp->olen = error == -EMSGSIZE ? received->size - received->done : 0;
	sc_comp_say(comp, op->cq_flags, (uint16_t)-error, (uint16_t)received->flags);
	sc_comp_ring_commit(cq);
}

/* Sets the fields that every posted receive has. */
static inline __attribute__((always_inline)) void sc_rxop_init(struct sc_rx_op *op,
							       const struct sc_recv *recv)
{
	op->flags = recv->flags;
	op->cq_flags = recv->cq_flags;
	op->context = recv->context;
	op->match.source = recv->source ? recv->source->source : NULL;
	op->match.tag = recv->tag;
	op->match.tag_mask = ~recv->ignore;
}

/* Sets all fields of a receive before its match. */
static inline void sc_rxop_fill(struct sc_rx_op *op, const struct sc_recv *recv)
{
	sc_rxop_init(op, recv);
	op->cntr = recv->cntr;
	op->iov_count = recv->iov_count;
	op->capacity = 0;
	for (size_t i = 0; i < recv->iov_count; i++) {
		op->iov[i] = recv->iov[i];
		op->capacity += recv->iov[i].iov_len;
	}
	if (op->iov_count != 1 || op->cntr || op->flags & SC_RECV_MULTI)
		op->flags |= SC_RX_FULL;
}

/* Makes the operation of a receive. NULL: no memory. */
static inline struct sc_rx_op *sc_rxop_open(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	struct sc_rx_op *op = sc_slab_get(&rxq->ops);

	if (op)
		sc_rxop_fill(op, recv);
	return op;
}

/* Sets the remaining fields of a receive that does not go the short way of fast.h. */
static inline void sc_rxop_settle(struct sc_rx_op *op)
{
	if (op->flags & SC_RX_FULL)
		return;
	op->cntr = NULL;
	op->iov_count = 1;
	op->capacity = op->iov[0].iov_len;
}

/* Returns the completion flags of a message with these SC_ABI_F_*. */
static inline uint32_t sc_rxop_comp_flags(uint32_t flags)
{
	static_assert(SC_COMP_DATA == SC_ABI_F_DATA, "flags of a completion");
	return SC_COMP_RECV | (flags & SC_ABI_F_DATA);
}

/*
 * Makes the operation a transfer of its message, with nothing moved yet. Uses these fields of the message: peer, flags,
 * size, tag, data, op; arrival if it is fenced.
 */
static inline void sc_rxop_begin(struct sc_rx_op *op, const struct sc_message *message)
{
	op->peer = message->peer;
	op->tag = message->tag;
	op->data = message->data;
	op->comp_flags = sc_rxop_comp_flags(message->flags);
	op->fence = message->flags & SC_ABI_F_FENCE ? message->arrival : 0;
	op->message = message->op;
	op->size = message->size;
	op->want = op->size < op->capacity ? op->size : op->capacity;
	op->done = 0;
	op->state = SC_RX_ARRIVING;
	op->share.words = NULL;
	sc_list_init(&op->pulling);
	sc_list_append(&op->peer->recv.transfers, &op->of_peer);
}

/* Only this function writes the state of a transfer that has begun. */
static inline void sc_rxop_set_state(struct sc_rx_op *op, enum sc_rx_state state)
{
	assert(state > op->state);
	op->state = state;
}

/* Withdraws a posted receive from the matcher. */
static inline void sc_rxop_unpost(struct sc_rxq *rxq, struct sc_rx_op *op)
{
	sc_match_unpost(sc_rxq_queue(rxq, op->flags & SC_TAGGED), &op->match);
}

/* Tells whether a multi-receive buffer has too few bytes left; its receive is then out of the matcher. */
static inline bool sc_rxop_exhausted(const struct sc_rx_op *op)
{
	return op->capacity < op->multi_min || !op->capacity;
}

#endif
