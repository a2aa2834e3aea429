/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * waiting.c: messages that came before their receive was posted.
 *
 * Owns struct sc_rx_msg. Each is in one queue: that of the matcher, where it waits, or that of claimed messages. A
 * message in parts is in no queue until all parts have come. A waiting message holds nothing of the sender: an eager
 * payload is copied when its record is taken, so bounce buffers come back in ring order, even if the receiver matches
 * late; of a rendezvous only the addresses are kept. The window bounds the messages that a peer may leave waiting.
 * Their units are counted in sc_peer.recv.units_held, and returned with the message.
 *
 * A queue with a matcher (core.h) has none of its messages in its own matcher: each is in `claimed` from its first part
 * on, and the caller receives or drops it by its pointer. Its receive may then come before its last part, and so may the
 * end of its endpoint: the message stays in `claimed`, without a peer, until the caller returns it or ends the queue.
 *
 * If the sender dies, eager messages can still be received, except one with parts missing, which counts as not sent; a
 * rendezvous ends with ECONNRESET when it is received. If this process dies, nothing is left of the messages; senders
 * that wait for an acknowledgement learn of it with their peer.
 */
#include "msg/waiting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "link/peer.h"
#include "link/record.h"
#include "msg/ack.h"
#include "msg/deliver.h"

/* Tells whether the caller of the core matches the message. */
static inline bool is_matched(const struct sc_rx_msg *msg)
{
	return msg->peer->ep->rxq->matcher;
}

static void enqueue(struct sc_rx_msg *msg)
{
	struct sc_peer *peer = msg->peer;
	struct sc_ep *ep = peer->ep;

	if (is_matched(msg))
		sc_list_append(&ep->rxq->claimed, &msg->claimed);
	else
		sc_match_keep(sc_rxq_queue(ep->rxq, msg->flags & SC_ABI_F_TAGGED), &msg->match);
	msg->arrival = ++peer->recv.arrivals;
	sc_list_append(&peer->recv.waiting, &msg->of_peer);
	ep->counters.rx_unexpected++;
}

/* Gives the message, or NULL, to the matcher of the queue, which has found no receive. */
static int hand_over(struct sc_rxq *rxq, struct sc_rx_msg *msg)
{
	if (msg) {
		msg->rxq = rxq;
		msg->dropped = msg->lost = false;
	}
	return rxq->matcher->keep(rxq->matcher_arg, msg);
}

int sc_waiting_keep(const struct sc_message *message)
{
	struct sc_peer *peer = message->peer;
	struct sc_rxq *rxq = peer->ep->rxq;
	bool whole = message->kind == SC_ABI_RDV || message->here == message->size;
	size_t extra = message->kind == SC_ABI_RDV ? message->segment_count * sizeof(struct iovec)
						   : (size_t)message->size;
	struct sc_rx_msg *msg = malloc(sizeof(*msg) + extra);

	if (!msg) {
		if (rxq->matcher)
			(void)hand_over(rxq, NULL);
		return -ENOMEM;
	}
	msg->match.source = peer->source;
	msg->match.tag = message->tag;
	msg->peer = peer;
	msg->kind = message->kind;
	msg->flags = message->flags;
	msg->data = message->data;
	msg->op = message->op;
	msg->size = message->size;
	msg->units = message->units;
	msg->arrived = message->here;
	msg->segment_count = message->segment_count;
	if (message->kind == SC_ABI_RDV) {
		memcpy(msg->segments, message->segments, extra);
	} else if (extra) {
		struct iovec whole = { msg->bytes, extra };

		sc_deliver_payload(message, &whole, 1, message->here);
	}
	if (rxq->matcher && hand_over(rxq, msg)) {
		free(msg);
		return -ENOMEM;
	}
	if (!whole)
		peer->recv.arriving = msg;
	if (whole || rxq->matcher)
		enqueue(msg);
	peer->recv.units_held += message->units;
	return 0;
}

/* Describes a message; if its receive comes before its last part, then only a matcher has found it. */
static void describe(const struct sc_rx_msg *msg, struct sc_message *message)
{
	bool arrives = msg->peer->recv.arriving == msg && is_matched(msg);

	*message = (struct sc_message){ .peer = msg->peer,
					.kind = msg->kind,
					.flags = msg->flags,
					.size = msg->size,
					.here = arrives ? msg->arrived : msg->size,
					.tag = msg->match.tag,
					.data = msg->data,
					.op = msg->op,
					.units = msg->units,
					.arrival = msg->arrival,
					.bytes = msg->bytes,
					.segment_count = msg->segment_count };
	memcpy(message->segments, msg->segments, msg->segment_count * sizeof(message->segments[0]));
}

int sc_waiting_deliver(struct sc_rx_op *op, const struct sc_rx_msg *msg)
{
	struct sc_message message;

	describe(msg, &message);
	return sc_deliver_message(op, &message);
}

/* Handles a message whose last part has come; its receive may be posted by now. -ENOMEM: nothing has changed. */
static int complete(struct sc_rx_msg *msg)
{
	struct sc_message message;
	int ret;

	if (is_matched(msg)) {
		if (msg->dropped)
			sc_waiting_discard(msg);
		return 0;
	}
	msg->arrival = msg->peer->recv.arrivals + 1;
	describe(msg, &message);
	ret = sc_deliver_to_posted(&message);
	if (ret < 0)
		return ret;
	if (ret) {
		msg->peer->recv.units_held -= msg->units;
		free(msg);
	} else {
		enqueue(msg);
	}
	return 0;
}

int sc_waiting_piece(struct sc_peer *peer, struct sc_seg *seg, const struct sc_abi_piece *piece,
		     uint64_t ctl)
{
	struct sc_rx_msg *msg = peer->recv.arriving;
	uint32_t size = sc_ctl_size(ctl);
	struct iovec to = { msg->bytes + msg->arrived, size };
	int ret;

	if (!sc_record_is_next_piece(seg, piece, size, msg->arrived, msg->size))
		return -EPROTO;
	sc_record_copy(seg, piece->bufs, &to, 1, size);
	if (size < msg->size - msg->arrived) {
		msg->arrived += size;
		return 0;
	}
	ret = complete(msg);
	if (!ret)
		peer->recv.arriving = NULL;
	return ret;
}

void sc_waiting_end_peer(struct sc_peer *peer)
{
	struct sc_rx_msg *msg = peer->recv.arriving;
	bool matched = peer->ep->rxq->matcher;

	if (!msg)
		return;
	peer->recv.arriving = NULL;
	if (matched && !msg->dropped) {
		msg->lost = true;
		return;
	}
	if (matched)
		sc_list_remove(&msg->of_peer);
	peer->recv.units_held -= msg->units;
	free(msg);
}

void sc_waiting_unqueue(struct sc_rx_msg *msg)
{
	sc_match_drop(sc_rxq_queue(msg->peer->ep->rxq, msg->flags & SC_ABI_F_TAGGED), &msg->match);
}

void sc_waiting_free(struct sc_rx_msg *msg)
{
	struct sc_peer *peer = msg->peer;

	peer->recv.units_held -= msg->units;
	sc_peer_give_back(peer, msg->units);
	sc_list_remove(&msg->of_peer);
	free(msg);
	if (__builtin_expect(!sc_list_empty(&peer->recv.fenced), 0))
		sc_ack_fenced_slow(peer);
	if (__builtin_expect(peer->link == SC_LINK_DOWN, 0))
		sc_peer_reconsider(peer);
}

void sc_waiting_discard(struct sc_rx_msg *msg)
{
	if (msg->op)
		sc_ack_message(msg->peer, msg->op, 0, msg->flags & SC_ABI_F_FENCE ? msg->arrival : 0);
	sc_waiting_free(msg);
}

void sc_waiting_claim(struct sc_rx_msg *msg, const void *context)
{
	sc_waiting_unqueue(msg);
	msg->claim = context;
	sc_list_append(&msg->peer->ep->rxq->claimed, &msg->claimed);
}

struct sc_rx_msg *sc_waiting_find_claimed(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	sc_list_for (entry, &rxq->claimed) {
		struct sc_rx_msg *msg = sc_list_entry(entry, struct sc_rx_msg, claimed);

		if (msg->claim == recv->context &&
		    !(msg->flags & SC_ABI_F_TAGGED) == !(recv->flags & SC_TAGGED))
			return msg;
	}
	return NULL;
}

/* ---- messages that the caller of the core matches ---------------------------------------------- */

/* Ends the receive of a message that cannot come whole any more. */
static void fail(struct sc_rx_op *op, const struct sc_rx_msg *msg)
{
	struct sc_ep *ep = msg->peer->ep;
	const struct sc_received received = { .peer = msg->peer,
					      .tag = msg->match.tag,
					      .data = msg->data,
					      .size = msg->size,
					      .flags = sc_rxop_comp_flags(msg->flags),
					      .error = -ECONNRESET };

	sc_rxop_complete(ep, op, op->cntr, &received);
	sc_slab_put(&ep->rxq->ops, op);
}

int sc_waiting_receive(struct sc_rx_msg *msg, const struct sc_recv *recv)
{
	struct sc_rx_op *op = msg->peer ? sc_rxop_open(msg->rxq, recv) : NULL;

	if (msg->peer && !op)
		return -ENOMEM;
	sc_list_remove(&msg->claimed);
	if (!op) {
		free(msg);
		return -ENOTCONN;
	}
	if (msg->lost)
		fail(op, msg);
	else
		(void)sc_waiting_deliver(op, msg); /* a single receive cannot fail */
	if (msg->peer->recv.arriving == msg)
		msg->peer->recv.arriving = NULL; /* the receive takes the other parts */
	sc_waiting_free(msg);
	return 0;
}

void sc_waiting_drop(struct sc_rx_msg *msg)
{
	sc_list_remove(&msg->claimed);
	if (!msg->peer)
		free(msg);
	else if (msg->peer->recv.arriving == msg)
		msg->dropped = true;
	else
		sc_waiting_discard(msg);
}

struct sc_rxq *sc_waiting_rxq(const struct sc_rx_msg *msg)
{
	return msg->rxq;
}

struct sc_peer *sc_waiting_source(const struct sc_rxq *rxq, const void *searched)
{
	sc_list_for (entry, &rxq->claimed)
		if (sc_list_entry(entry, struct sc_rx_msg, claimed) == searched)
			return sc_list_entry(entry, struct sc_rx_msg, claimed)->peer;
	return NULL;
}

/* ---- the endpoint closes ----------------------------------------------------------------------- */

static void forget(struct sc_match *queue, const struct sc_ep *ep)
{
	sc_list_for_safe (entry, next, &queue->waiting) {
		struct sc_rx_msg *msg = sc_list_entry(entry, struct sc_rx_msg, match.all);

		if (msg->peer->ep != ep)
			continue;
		sc_match_drop(queue, &msg->match);
		free(msg);
	}
}

void sc_waiting_fini(struct sc_ep *ep)
{
	forget(&ep->rxq->tagged, ep);
	forget(&ep->rxq->plain, ep);
	sc_list_for_safe (entry, next, &ep->rxq->claimed) {
		struct sc_rx_msg *msg = sc_list_entry(entry, struct sc_rx_msg, claimed);

		if (!msg->peer || msg->peer->ep != ep)
			continue;
		if (ep->rxq->matcher) {
			msg->peer = NULL; /* the caller still has the message */
			continue;
		}
		sc_list_remove(&msg->claimed);
		free(msg);
	}
	sc_list_for (entry, &ep->peers)
		sc_waiting_end_peer(sc_list_entry(entry, struct sc_peer, all));
}
