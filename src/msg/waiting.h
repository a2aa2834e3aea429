/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_WAITING_H
#define SC_WAITING_H

#include "msg/rxop.h"

/* Nobody has posted a receive for it yet: keep it, or what is there of it. -ENOMEM: leave it in the ring. */
int sc_waiting_keep(const struct sc_message *message);

/*
 * A piece, in buffers of `seg`, of what has been kept so (sc_peer.recv.arriving). With the last of them it goes into a
 * receive, or waits for one. -EPROTO: it is none; -ENOMEM: leave it in the ring.
 */
int sc_waiting_piece(struct sc_peer *peer, struct sc_seg *seg, const struct sc_abi_piece *piece,
		     uint64_t ctl);

/* The peer, or this endpoint, is at an end: so is what was arriving. */
void sc_waiting_end_peer(struct sc_peer *peer);

/* Into a receive. -ENOMEM (multi-receive only): nothing has changed. */
int sc_waiting_deliver(struct sc_rx_op *op, const struct sc_rx_msg *msg);

/* Out of the queue of those that wait. */
void sc_waiting_unqueue(struct sc_rx_msg *msg);

/* Done with one that is in no queue: its sender may send more. */
void sc_waiting_free(struct sc_rx_msg *msg);

/* The same for one that nobody will receive: its sender's operation ends well. */
void sc_waiting_discard(struct sc_rx_msg *msg);

/* Set it aside for the receive with that context. */
void sc_waiting_claim(struct sc_rx_msg *msg, const void *context);

/* The one that was set aside for this receive, or NULL. */
struct sc_rx_msg *sc_waiting_find_claimed(struct sc_rxq *rxq, const struct sc_recv *recv);

/* The endpoint closes: forget them all. */
void sc_waiting_fini(struct sc_ep *ep);

/* The oldest that fits the receive, or NULL. */
static inline struct sc_rx_msg *sc_waiting_find(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	const struct sc_source *source = recv->source ? recv->source->source : NULL;
	struct sc_match *queue = sc_rxq_queue(rxq, recv->flags & SC_TAGGED);
	struct sc_match_msg *found = sc_match_find_msg(queue, source, recv->tag, recv->ignore);

	return found ? sc_list_entry(found, struct sc_rx_msg, match) : NULL;
}

#endif
