/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fast.h: the short way of a received message, from the ring to its completion. The message is inline, in one bounce
 * buffer or in parts, and asks for no acknowledgement. Its receive is the oldest posted one, for one message, with one
 * buffer that is large enough and no counter of its own. The endpoint asks for no order of completions
 * (sc_ep.line_end). The message does not wait, so the window does not limit it.
 *
 * If a function returns NULL or false, it has changed nothing, and the message goes the way of rx.c.
 */
#ifndef SC_FAST_H
#define SC_FAST_H

#include "link/peer.h"
#include "shm/ring.h"
#include "link/state.h"
#include "msg/rxop.h"

#define SC_FAST_INLINE static inline __attribute__((always_inline))

/* Returns the receive for a message with this ctl, and takes it out of the matcher. */
SC_FAST_INLINE struct sc_rx_op *sc_fast_match(struct sc_rxq *rxq, const struct sc_peer *peer,
						uint64_t tag, uint64_t ctl)
{
	struct sc_match *queue = sc_rxq_queue(rxq, sc_ctl_flags(ctl) & SC_ABI_F_TAGGED);
	struct sc_match_recv *first = sc_match_first_recv(queue, peer->source, tag);
	struct sc_rx_op *op;

	if (!first)
		return NULL;
	op = sc_list_entry(first, struct sc_rx_op, match);
	if (op->flags & SC_RX_FULL || sc_ctl_size(ctl) > op->iov[0].iov_len)
		return NULL;
	sc_match_unpost(queue, first);
	return op;
}

SC_FAST_INLINE void sc_fast_complete(struct sc_ep *ep, struct sc_rx_op *op,
				       const struct sc_received *received)
{
	sc_rxop_complete(ep, op, NULL, received);
	sc_slab_put(&ep->rxq->ops, op);
}

SC_FAST_INLINE void sc_fast_end(struct sc_ep *ep, struct sc_rx_op *op, struct sc_peer *peer,
				struct sc_tag_data word, uint64_t ctl)
{
	uint32_t size = sc_ctl_size(ctl);
	struct sc_received received = { .peer = peer,
					.tag = word.tag,
					.data = word.data,
					.size = size,
					.done = size,
					.flags = sc_rxop_comp_flags(sc_ctl_flags(ctl)) };

	sc_fast_complete(ep, op, &received);
	sc_peer_give_back(peer, SC_ABI_UNITS(size));
}

/* Begins a receive whose first `here` bytes are copied; sc_fast_part() adds the other parts. */
SC_FAST_INLINE void sc_fast_begin(struct sc_rx_op *op, struct sc_peer *peer, struct sc_tag_data word,
				  uint64_t ctl, uint32_t here)
{
	struct sc_message message;

	message.peer = peer;
	message.flags = sc_ctl_flags(ctl) & ~SC_ABI_F_FENCE; /* only acknowledgements use it */
	message.size = sc_ctl_size(ctl);
	message.tag = word.tag;
	message.data = word.data;
	message.op = 0;
	op->multi = NULL;
	sc_rxop_settle(op);
	sc_rxop_begin(op, &message);
	op->done = here;
	peer->recv.arriving_op = op;
	sc_peer_give_back(peer, SC_ABI_UNITS(op->size));
}

/* Tells whether such a message arrives from the peer in parts. */
SC_FAST_INLINE bool sc_fast_arrives(const struct sc_peer *peer)
{
	const struct sc_rx_op *op = peer->recv.arriving_op;

	return op && !(op->flags & SC_RX_FULL) && op->size <= op->capacity && !op->message &&
	       peer->ep->line_end;
}

/* Adds `here` bytes, already copied, to that message. The last part ends the receive. */
SC_FAST_INLINE void sc_fast_part(struct sc_peer *peer, uint32_t here)
{
	struct sc_rx_op *op = peer->recv.arriving_op;
	struct sc_received received = { .peer = peer,
					.tag = op->tag,
					.data = op->data,
					.size = op->size,
					.done = op->size,
					.flags = op->comp_flags };

	op->done += here;
	if (op->done != op->size)
		return;
	peer->recv.arriving_op = NULL;
	op->peer = NULL;
	sc_list_remove(&op->of_peer);
	sc_fast_complete(peer->ep, op, &received);
}

/* The ctl of an inline record of one line without other flags; under the mask, such a ctl differs in the size alone. */
#define SC_FAST_LINE_CTL sc_ring_ctl(SC_ABI_INLINE, 0, 1, 0)
#define SC_FAST_LINE_MASK sc_ring_ctl(0xff, 0xff & ~(SC_ABI_F_TAGGED | SC_ABI_F_DATA), 0xff, UINT32_MAX)

/* Takes the record at the head of the peer's ring, with this ctl, if one line holds such a message. */
SC_FAST_INLINE bool sc_fast_take_line(struct sc_ep *ep, struct sc_peer *peer,
					const struct sc_abi_line *line, uint64_t ctl)
{
	struct sc_rx_op *op;
	uint64_t tag, data;

	if (((ctl ^ SC_FAST_LINE_CTL) & SC_FAST_LINE_MASK) >= ep->line_end)
		return false;
	tag = sc_load_relaxed_64(&line->words[0]); /* ctl publishes both words */
	op = sc_fast_match(ep->rxq, peer, tag, ctl);
	if (!op)
		return false;
	data = sc_load_relaxed_64(&line->words[1]);
	sc_line_copy(op->iov[0].iov_base, line->bytes + SC_ABI_LINE_BYTES - sc_inline_first(0),
		     sc_ctl_size(ctl));
	sc_fast_end(ep, op, peer, (struct sc_tag_data){ tag, data }, ctl);
	sc_ring_release(&peer->rx, 1);
	sc_ring_fetch(&peer->rx, 1);
	return true;
}

#endif
