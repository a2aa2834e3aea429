/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * forget.c: peers that have gone are forgotten, so that a service to which many come, one after the other, keeps nothing
 * of them and looks at none of them again.
 *
 * Owns sc_ep.leaving. Private memory, used by the thread that uses the endpoint; a peer's death changes
 * nothing here.
 *
 * A peer is over when it is attached no more, or not yet, has no slot here, and nothing is under way
 * with it. Still referring to it are:
 *
 *	users		the caller, by sc_peer_get()
 *	waiting		messages of its that no receive has taken
 *	completions	of receives, in the queue, until the application has read them: they are not counted, for the sake of
 *			the path of each message, but looked for
 *	receives	that are posted and name its source, whose last peer it is; likewise
 *	sc_source.lost	its source has other peers, to which it tells what became of this one
 *	the caller	knows its address (sc_ep_attr.knows): a directed receive from there ends with an error
 *
 * Whenever one of these, or what kept it from being over, may have ended, sc_peer_reconsider() is called, from anywhere; the
 * peer is looked at when nobody is on the way through a list of peers: at the end of a poll, or where the caller gives up a
 * reference. The first two are seen at once. A peer that passes goes to `leaving`, and a pass over all of those looks for the others. A pass looks at
 * every completion that is queued and every receive that is posted; so it waits until so many have come to `leaving` that
 * each of them has its share of that, COST_SHARE entries: the time for one does not grow with the queues, and no more than
 * a part of their length is kept that could be forgotten. With empty queues each pass comes with the next poll.
 *
 * The application may insert an address that came with a message when its sender has been forgotten: heard.c.
 */
#include "forget.h"

#include "heard.h"
#include "peer.h"
#include "rxq.h"

/* Entries of queues that a pass looks at for each peer that has come to `leaving`. */
#define COST_SHARE 16

/* ---- references ------------------------------------------------------------------------------ */

static bool is_last_of_source(const struct sc_peer *peer)
{
	return peer->of_source.next == peer->of_source.prev;
}

/* Look at the completions. Returns how many there are. */
static size_t mark_sources_of(const struct sc_cq *cq)
{
	for (size_t at = cq->head; at != cq->tail; at++) {
		const struct sc_comp *comp = &cq->ring[at & cq->mask];

		if (comp->flags & (SC_COMP_RECV | SC_COMP_WRITTEN) && comp->source)
			comp->source->named = true;
	}
	return cq->tail - cq->head;
}

/* Look at the receives. */
static size_t mark_named_by(const struct sc_match *queue)
{
	size_t count = 0;

	for (const struct sc_list *at = queue->posted.next; at != &queue->posted; at = at->next, count++) {
		const struct sc_rx_op *op = sc_list_entry(at, struct sc_rx_op, match.all);

		if (op->match.source)
			((struct sc_source *)op->match.source)->named = true;
	}
	return count;
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
	return cost + mark_named_by(&ep->rxq->tagged) + mark_named_by(&ep->rxq->plain);
}

/* Is there something that `mark()` has found, or that a later event ends by itself? Then it stays in `leaving`. */
static bool is_referred_to(const struct sc_peer *peer)
{
	return peer->named ||
	       (is_last_of_source(peer) ? peer->source->named : peer->source->lost == peer);
}

static void forget_or_keep(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	if (!sc_peer_is_free(peer) || (ep->knows && ep->knows(ep->knows_arg, peer->address))) {
		sc_peer_keep(peer);
		return;
	}
	if (is_referred_to(peer))
		return;
	if (peer->feed != SC_FEED_NONE)
		sc_heard_add(ep, peer->address);
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

void sc_forget(struct sc_ep *ep)
{
	while (!sc_list_empty(&ep->doubted))
		sc_peer_settle(sc_list_entry(ep->doubted.next, struct sc_peer, doubted));
	if (ep->leaving_fresh > ep->leaving_step)
		pass(ep);
}

/* ---- the caller ------------------------------------------------------------------------------ */

void sc_peer_put(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	peer->users--;
	sc_peer_reconsider(peer);
	sc_forget(ep);
}

void sc_peers_unknown(struct sc_ep *ep, const char *addr)
{
	struct sc_source *source = sc_rxq_source_find(ep->rxq, addr);

	if (!source)
		return;
	sc_list_for (entry, &source->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, of_source);

		if (peer->ep == ep)
			sc_peer_reconsider(peer);
	}
	sc_forget(ep);
}
