/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peek.c: a peek tells the application whether a message waits. It may also reserve the message (claim) or drop it
 * (discard).
 *
 * An application may only peek. Each peek leaves a completion, so reads of the completion queue find entries and make
 * no progress. A peek therefore polls the endpoints of its receive queue, like a read of an empty completion queue.
 *
 * All memory is private: the death of a peer or of this process leaves nothing here.
 */
#include "ep/rx.h"
#include "link/peer.h"
#include "msg/recv.h"
#include "msg/waiting.h"

/*
 * The most polls of one peek; each peer that writes to the endpoint adds one. So the peek finds a message that was
 * there before, and returns although a peer never stops writing.
 */
#define PEEK_POLLS 64

/* Tells whether a ring that the last poll has passed over has a record. */
static bool has_more(struct sc_ep *ep)
{
	return ep->inbound_count > SC_BUSY_RINGS && sc_rx_has_record(ep);
}

/* Polls the endpoint until the message is there or nothing more comes. */
static struct sc_rx_msg *look(struct sc_ep *ep, const struct sc_recv *recv)
{
	struct sc_rx_msg *msg;
	uint32_t polls = PEEK_POLLS + ep->inbound_count;
	int done;

	do {
		done = sc_ep_poll(ep);
		msg = sc_waiting_find(ep->rxq, recv);
	} while (!msg && (done || has_more(ep)) && polls--);
	return msg;
}

static int peek(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	struct sc_rx_msg *msg = NULL;

	/* the polls may free a peer that has gone, and to which nothing refers */
	if (recv->source)
		recv->source->users++;
	/* every endpoint, also when the first one has the message */
	sc_list_for (entry, &rxq->eps)
		msg = look(sc_list_entry(entry, struct sc_ep, of_rxq), recv);
	if (!msg)
		msg = sc_waiting_find(rxq, recv);
	sc_recv_report(rxq, recv, msg);
	if (msg && recv->flags & SC_RECV_DISCARD) {
		sc_waiting_unqueue(msg);
		sc_waiting_discard(msg);
	} else if (msg && recv->flags & SC_RECV_CLAIM) {
		sc_waiting_claim(msg, recv->context);
	}
	if (recv->source)
		sc_peer_put(recv->source);
	return 0;
}

int sc_rxq_recv(struct sc_rxq *rxq, const struct sc_recv *recv)
{
	return recv->flags & SC_RECV_PEEK ? peek(rxq, recv) : sc_recv_post(rxq, recv);
}

int sc_rx_recv(struct sc_ep *ep, const struct sc_recv *recv)
{
	return sc_rxq_recv(ep->rxq, recv);
}
