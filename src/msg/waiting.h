/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_WAITING_H
#define SC_WAITING_H

#include "msg/rxop.h"

/* Keeps a message, or its first part, that has no posted receive. -ENOMEM: leave it in the ring. */
int sc_waiting_keep(const struct sc_message *message);

/*
 * Takes a piece, in buffers of `seg`, of the message sc_peer.recv.arriving. After the last piece the message goes into
 * a receive, or waits for one. -EPROTO: it is no such piece; -ENOMEM: leave it in the ring.
 */
int sc_waiting_piece(struct sc_peer *peer, struct sc_seg *seg, const struct sc_abi_piece *piece,
		     uint64_t ctl);

/* Drops the message that arrives in parts, because the peer is lost or this endpoint closes. */
void sc_waiting_end_peer(struct sc_peer *peer);

/* Delivers a message to a receive. -ENOMEM (multi-receive only): nothing has changed. */
int sc_waiting_deliver(struct sc_rx_op *op, const struct sc_rx_msg *msg);

/* Removes a message from the queue of waiting messages. */
void sc_waiting_unqueue(struct sc_rx_msg *msg);

/* Frees a message that is in no queue, and returns its units to the sender. */
void sc_waiting_free(struct sc_rx_msg *msg);

/* Does the same for a message that nobody will receive; the sender's operation ends with success. */
void sc_waiting_discard(struct sc_rx_msg *msg);

/* Claims a message for the receive with that context. */
void sc_waiting_claim(struct sc_rx_msg *msg, const void *context);

/* Returns the message that is claimed for this receive, or NULL. */
struct sc_rx_msg *sc_waiting_find_claimed(struct sc_rxq *rxq, const struct sc_recv *recv);

/* The endpoint closes: frees all messages. */
void sc_waiting_fini(struct sc_ep *ep);

/* Returns the oldest message that fits the receive, or NULL. */
static inline struct sc_rx_msg *sc_waiting_find(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	const struct sc_source *source = recv->source ? recv->source->source : NULL;
	struct sc_match *queue = sc_rxq_queue(rxq, recv->flags & SC_TAGGED);
	struct sc_match_msg *found = sc_match_find_msg(queue, source, recv->tag, recv->ignore);

	return found ? sc_list_entry(found, struct sc_rx_msg, match) : NULL;
}

#endif
