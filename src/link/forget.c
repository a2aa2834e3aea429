/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * forget.c: the endpoint frees peers that have gone. So a service that many clients visit one after the other keeps
 * nothing of them, and walks none of them again.
 *
 * Owns sc_ep.leaving. All of it is private memory of the thread that uses the endpoint; the death of a peer changes
 * nothing here.
 *
 * A peer is over when it is not attached, has no slot here, and has no operation under way. These may still refer to
 * it:
 *
 *	users		the caller, from sc_peer_get() to sc_peer_put(), or to sc_ep_attr.release()
 *	waiting		its messages that no receive has matched
 *	completions	those of receives, until the application reads them. A count would cost each message an
 *			instruction; a pass looks through the queue instead
 *	receives	those posted for its source, if it is the last peer of that source; a pass looks for them, too
 *	sc_source.lost	its source has other peers, and tells receives what became of this one
 *
 * sc_peer_reconsider() notes a peer when one of these may have ended, from anywhere in the core. The endpoint looks at
 * the peer later, when no function walks a list of peers: at the end of a poll, or when the caller gives up a
 * reference. `users` and `waiting` are counters. A peer that passes these two goes to `leaving`, and a pass over
 * `leaving` looks for the other references. A pass reads every queued completion and every posted receive. It therefore
 * waits until one peer for each COST_SHARE entries of the queues has come to `leaving`. So the time for each peer does
 * not grow with the length of the queues, and with empty queues each poll makes its pass.
 *
 * departed.c remembers the addresses of forgotten peers: operations with them are refused as before.
 */
#include "link/forget.h"

#include "link/departed.h"
#include "link/peer.h"
#include "link/rxq.h"

/* Entries of queues that a pass reads for each peer that has come to `leaving`. */
#define COST_SHARE 16

/* ---- references ------------------------------------------------------------------------------ */

static bool is_last_of_source(const struct sc_peer *peer)
{
	return peer->of_source.next == peer->of_source.prev;
}

/* Marks the sources of completions. Returns how many completions there are. */
static size_t mark_sources_of(const struct sc_comp_ring *cq)
{
	for (size_t at = cq->head; at != cq->tail; at++) {
		const struct sc_comp *comp = &cq->ring[at & cq->mask];

		if (comp->flags & (SC_COMP_RECV | SC_COMP_WRITTEN) && comp->source)
			comp->source->named = true;
	}
	return cq->tail - cq->head;
}

static size_t mark(struct sc_ep *ep)
{
	size_t cost = 0;

	sc_list_for (entry, &ep->leaving) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		peer->named = peer->source->named = false;
		cost++;
	}
	if (ep->rx_cq)
		cost += mark_sources_of(ep->rx_cq);
	return cost + sc_rxq_mark_named(ep->rxq);
}

/* Tells whether mark() has found a reference, or a later event ends one by itself. Then the peer stays in `leaving`. */
static bool is_referred_to(const struct sc_peer *peer)
{
	return peer->named ||
	       (is_last_of_source(peer) ? peer->source->named : peer->source->lost == peer);
}

static void forget_or_keep(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	if (!sc_peer_is_free(peer)) {
		sc_peer_keep(peer);
		return;
	}
	if (is_referred_to(peer))
		return;
	if (!peer->departed && (peer->feed != SC_FEED_NONE || peer->error == -ECONNRESET))
		sc_departed_add(ep, peer->address);
	sc_peer_free(peer);
}

static void pass(struct sc_ep *ep)
{
	size_t cost = mark(ep);

	sc_list_for_safe (entry, next, &ep->leaving)
		forget_or_keep(sc_list_entry(entry, struct sc_peer, all));
	ep->leaving_fresh = 0;
	ep->leaving_step = sc_list_empty(&ep->leaving) ? 0 : (uint32_t)(cost / COST_SHARE);
}

int sc_forget(struct sc_ep *ep)
{
	while (!sc_list_empty(&ep->work[SC_WORK_DOUBTED]))
		sc_peer_settle(sc_list_entry(ep->work[SC_WORK_DOUBTED].next, struct sc_peer,
					     work[SC_WORK_DOUBTED]));
	if (ep->leaving_fresh > ep->leaving_step)
		pass(ep);
	return 0;
}

/* ---- the caller ------------------------------------------------------------------------------ */

void sc_peer_put(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	peer->users--;
	sc_peer_reconsider(peer);
	(void)sc_forget(ep);
}
