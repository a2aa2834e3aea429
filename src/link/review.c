/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * review.c: this endpoint reads what its peers say of themselves and of it: they answer a connection, close, die, or
 * open their address again. It hands all findings to peer.c, connect.c and accept.c. See peer.h.
 */
#include "link/review.h"

#include <errno.h>
#include <string.h>
#include "base/atomic.h"
#include "base/log.h"
#include "link/accept.h"
#include "link/connect.h"
#include "link/departed.h"
#include "link/rxq.h"
#include "os/host.h"
#include "shm/attach.h"
#include "shm/guard.h"

/* Peers that one look for a watched peer passes over: they are not attached, or gone. */
#define WATCH_PASSES 64
#define LIFE_PASSES 2
/* A given-up peer that was seen to run RUNS times, RUNS_APART apart, has ended its copy in hand. */
#define RUNS 200
#define RUNS_APART 100000000 /* nanoseconds */
/*
 * Polls between two looks at the claims of the dead, where no bell rings: a multiple of the polls between two calls of
 * sc_peers_watch(), which looks. While there may be claims of refused or given-up peers, which nothing watches, each
 * call looks.
 */
#define RECLAIM_POLLS (1u << 20)


/* ---- again ----------------------------------------------------------------------------------- */

/*
 * Looks at the claims once more before it connects to a peer that may be gone. If no endpoint has the peer's address any
 * more, the peer may have come, written and ended since the last look. No peer comes with that address now, so this look
 * finds all. Returns whether the peer is attached, as sc_peer_attach().
 */
static int meet_if_gone(struct sc_peer *peer)
{
	int ret = sc_peer_attach(peer);

	if (ret == -ECONNREFUSED)
		sc_peers_meet_last(peer->ep->rxq);
	return ret;
}

static int connect_or_meet(struct sc_peer *peer)
{
	(void)meet_if_gone(peer);
	return sc_peer_connect(peer);
}

static int connect_again(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	struct sc_seg *seg;
	int ret;

	if (sc_peer_may_retry(peer)) {
		sc_peer_renew(peer);
		return connect_or_meet(peer);
	}
	if (!sc_peer_is_back(peer))
		return peer->error;
	/* the claims of the last endpoint were all made before */
	sc_peers_meet_last(ep->rxq);
	if (!sc_peer_is_parted(peer) || ep->waits) {
		ep->idle = false; /* the next poll continues */
		return -EAGAIN;
	}
	ret = sc_seg_attach(peer->address, &seg);
	if (ret)
		return sc_peer_is_transient(ret) ? ret : peer->error;
	if (sc_load_acquire_32(&sc_seg_presence(seg)->state) != SC_ABI_OPEN) {
		sc_seg_detach(seg);
		return peer->error;
	}
	sc_peer_renew(peer);
	sc_peer_meet_seg(peer, seg);
	sc_info("%s: it has been opened again", peer->address);
	return sc_peer_connect(peer);
}

/* Tells whether an attached peer without a link reads nothing more. */
static bool has_ended(const struct sc_peer *peer)
{
	return peer->seg && !peer->left &&
	       sc_load_acquire_32(&sc_seg_presence(peer->seg)->state) != SC_ABI_OPEN;
}

int sc_peer_reach(struct sc_peer *peer)
{
	if (peer->link == SC_LINK_UP && !sc_peer_has_closed(peer))
		return 0;
	if (peer->link == SC_LINK_UP || (peer->link == SC_LINK_NONE && has_ended(peer))) {
		(void)sc_peers_review(peer->ep, true);
		if (peer->link != SC_LINK_DOWN) {
			peer->ep->idle = false;
			return -EAGAIN; /* this endpoint first reads what it has written */
		}
	}
	/* it has departed or is dead: the address may be the next endpoint's */
	if (peer->link == SC_LINK_NONE && peer->feed == SC_FEED_DRAINING)
		sc_peer_end_link(peer, -ECONNRESET);
	return peer->link == SC_LINK_DOWN ? connect_again(peer) : connect_or_meet(peer);
}

void sc_peer_expect(struct sc_peer *peer)
{
	struct sc_source *source = peer->source;
	int ret = 0;

	(void)sc_peers_review(peer->ep, true); /* the peer may have come, and gone since */
	/* this endpoint has lost it, and the endpoint that met it since, or lost it later, has closed */
	if (source->error == SC_SOURCE_UNMET && peer->link == SC_LINK_DOWN)
		sc_source_part(peer, peer->error);
	if (source->error == SC_SOURCE_UNMET)
		ret = meet_if_gone(peer);
	if (source->error == SC_SOURCE_UNMET && !sc_peer_is_transient(ret))
		(void)sc_peer_connect(peer);
	/* else it is announced, or memory or descriptors are short: nothing would tell this endpoint of its death */
	if (source->error == SC_SOURCE_UNMET && peer->seg) {
		source->error = 0;
		sc_peer_await(peer);
	}
}

static void expect_elsewhere(struct sc_peer *peer)
{
	const struct sc_source *source = peer->source;
	struct sc_list *eps = &peer->ep->rxq->eps;
	struct sc_peer *other;

	if (source->met || sc_list_empty(eps) || !sc_seg_is_here(peer->ep->seg) ||
	    sc_peer_find_or_make(sc_list_entry(eps->next, struct sc_ep, of_rxq), peer->address, &other))
		return;
	if (source->error == SC_SOURCE_UNMET)
		sc_peer_expect(other);
	if (source->lost && source->lost->ep != peer->ep && source->lost->link == SC_LINK_DOWN)
		sc_peer_begin(source->lost, SC_WORK_ENDING);
	sc_peer_reconsider(other);
	sc_peer_bump(other->ep->seg, SC_ABI_CHANGED); /* a thread may sleep there */
}

static void leave_source(struct sc_peer *peer)
{
	struct sc_source *source = peer->source;

	sc_source_part(peer, 0);
	sc_list_remove(&peer->of_source);
	if (source->named)
		expect_elsewhere(peer);
	else if (sc_list_empty(&source->peers))
		sc_rxq_source_free(peer->ep->rxq, source);
}

void sc_peers_leave_rxq(struct sc_ep *ep)
{
	struct sc_list *const lists[] = { &ep->peers, &ep->absent, &ep->leaving };

	if (!sc_ep_shares_rxq(ep))
		return;
	sc_list_remove(&ep->of_rxq);
	for (int i = 0; i < 3; i++)
		sc_list_for (entry, lists[i])
			sc_list_entry(entry, struct sc_peer, all)->source->named = false;
	(void)sc_rxq_mark_named(ep->rxq);
	for (int i = 0; i < 3; i++)
		sc_list_for (entry, lists[i])
			leave_source(sc_list_entry(entry, struct sc_peer, all));
}

void sc_peer_await(struct sc_peer *peer)
{
	if (peer->seg && peer->link == SC_LINK_NONE && peer->feed == SC_FEED_NONE)
		sc_peer_begin(peer, SC_WORK_UNANSWERED);
}

bool sc_peer_is_overdue(struct sc_peer *peer)
{
	uint64_t time = (uint64_t)sc_clock_ns();

	if (time - peer->xfer.seen < RUNS_APART)
		return false;
	peer->xfer.seen = time;
	if (!peer->seg->cma_pid || sc_host_is_stopped(peer->seg->cma_pid)) {
		peer->xfer.runs = 0;
		return false;
	}
	if (++peer->xfer.runs < RUNS)
		return false;
	if (peer->xfer.runs == RUNS)
		sc_warn("%s: it says that it is copying a message and does not come to an end: its "
			"process "
			"breaks the rules, restart it",
			peer->address);
	return true;
}

bool sc_peer_writes(struct sc_peer *peer)
{
	const uint64_t *word;

	if (peer->in_slot == SC_PEER_NO_SLOT)
		return false; /* it has departed */
	word = &sc_seg_slot(peer->ep->seg, peer->in_slot)->hazards.words[0];
	sc_fence_seq_cst(); /* our answer before its word; pairs with the fence in get_store() of target.c */
	/* acquire: its records come before the word */
	return (uint32_t)sc_load_acquire_64(word) == SC_ABI_HAZARD_OP && !sc_peer_is_dead(peer) &&
	       !sc_peer_is_overdue(peer);
}

static bool is_watched(const struct sc_peer *peer)
{
	return peer->seg && peer->link != SC_LINK_DOWN && peer->feed != SC_FEED_DRAINING;
}

void sc_peer_ended(struct sc_peer *peer)
{
	bool dead = sc_peer_is_dead(peer);

	sc_peers_review(peer->ep, true); /* it may have departed, or come and written */
	if (peer->feed == SC_FEED_NONE)
		sc_peers_meet_last(peer->ep->rxq);
	if (!is_watched(peer))
		return;
	if (dead)
		sc_peer_bury(peer); /* even if it was closing: it will not depart any more */
	else if (peer->feed == SC_FEED_NONE)
		sc_peer_lose(peer, -ECONNRESET);
}

/* Tells whether the slot is still ours. No other process may change our claim, except the answer in it. */
static bool holds_slot(const struct sc_peer *peer, uint64_t claim)
{
	return (claim & ~SC_ABI_CLAIM_REFUSED) == (sc_peer_ticket(peer) | SC_ABI_PUBLISHED);
}

/* The peer has sent the reason: it says what the peer has found, here or in its own process. */
static const char *advice_on(uint32_t how, int reason)
{
	switch (reason) {
	case EUSERS:
		return how == SC_ABI_BROKEN
			       ? "this endpoint is full and cannot be answered; raise FI_SHMCMA_PEERS here"
			       : sc_peer_connect_advice(-reason);
	case EALREADY:
	case EHOSTUNREACH:
		return sc_peer_connect_advice(-reason);
	case EPROTO:
		return "it has found a breach of the protocol by this process; the log of the peer names "
		       "it";
	default:
		return "the log of the peer says more";
	}
}

/* Looks whether the peer has answered our connection, or has taken the answer back. */
static int review_answer(struct sc_peer *peer)
{
	/* P4' acquire: pairs with P4 in sc_peer_answer_slot() */
	uint32_t how = sc_load_acquire_32(&peer->tx.consumer->answer);
	/* relaxed: no other word depends on it */
	uint64_t claim = sc_load_relaxed_64(&sc_seg_claims(peer->seg)[peer->out_slot]);
	int reason;

	if (!holds_slot(peer, claim)) {
		peer->out_slot = SC_PEER_NO_SLOT; /* another endpoint may have it */
		sc_peer_quarantine(peer, -EPROTO, "our claim of a slot with it has been overwritten");
		return 1;
	}
	if (how == SC_ABI_PENDING && claim & SC_ABI_CLAIM_REFUSED) {
		sc_warn("the peer %s refuses the connection: the peer has no shared memory for the slot; "
			"free space in /dev/shm; the log of the peer has the error",
			peer->address);
		sc_peer_take_loans_back(peer);
		sc_peer_lose(peer, -ECONNREFUSED);
		return 1;
	}
	if (how != SC_ABI_PENDING)
		sc_list_remove(&peer->work[SC_WORK_UNANSWERED]);
	if (how != SC_ABI_REFUSED && how != SC_ABI_BROKEN)
		return 0;
	reason = (int)sc_load_relaxed_32((uint32_t *)&peer->tx.consumer->reason);
	/* no peer refuses for a transient reason, which would make this endpoint try again for ever */
	if (reason <= 0 || reason > 4095 || (how == SC_ABI_REFUSED && sc_peer_is_transient(-reason)))
		reason = EPROTO;
	peer->full = reason == EUSERS;
	sc_warn("the peer %s has %s the connection: %s: %s", peer->address,
		how == SC_ABI_REFUSED ? "refused" : "given up", strerror(reason), advice_on(how, reason));
	sc_peer_lose(peer, how == SC_ABI_REFUSED || peer->full ? -reason : -ECONNRESET);
	sc_peer_take_loans_back(peer);
	return 1;
}

/*
 * The state is neither OPEN nor CLOSED: a process has proven the peer's death. The word alone is no proof, because
 * every process that has attached the segment can write it.
 */
static int review_ended(struct sc_peer *peer)
{
	if (!is_watched(peer))
		return 0;
	if (sc_peer_is_dead(peer)) {
		if (peer->feed == SC_FEED_NONE)
			sc_peers_meet_last(peer->ep->rxq);
		if (is_watched(peer))
			sc_peer_bury(peer);
		return 1;
	}
	if (sc_seg_check_owner(peer->seg) != 1)
		return 0; /* unknown at present */
	sc_peer_quarantine(peer, -EPROTO,
			   "its state word says that its process has ended, but the process runs: another "
			   "process has overwritten the word");
	return 1;
}

/*
 * Reads what a connected peer says of itself and of us. A closed peer may have come and written since the last look at
 * the claims: they are looked at again, after its state.
 */
static int review_link(struct sc_peer *peer)
{
	uint32_t state;

	if (!peer->seg || peer->link == SC_LINK_DOWN)
		return 0;
	/* P3' acquire: pairs with P3 in sc_peers_close() */
	state = sc_load_acquire_32(&sc_seg_presence(peer->seg)->state);
	if (state != SC_ABI_OPEN && state != SC_ABI_CLOSED)
		return review_ended(peer);
	if (state == SC_ABI_CLOSED) {
		if (peer->feed == SC_FEED_NONE)
			sc_peers_meet_last(peer->ep->rxq);
		if (sc_peer_is_heard(peer))
			return 0; /* its records come first: sc_peer_drained() */
		sc_log(sc_list_empty(&peer->ops) ? SC_LOG_INFO : SC_LOG_WARN,
		       "%s: its process has closed it; messages to it that are under way fail",
		       peer->address);
		sc_peer_lose(peer, -ECONNRESET);
		return 1;
	}
	return peer->link == SC_LINK_UP ? review_answer(peer) : 0;
}

/* Returns the next watched peer, or NULL if none of the next `passes` peers is one. */
static struct sc_peer *next_watched(struct sc_ep *ep, struct sc_list **at, int passes)
{
	while (passes--) {
		struct sc_peer *peer = sc_list_entry((*at)->next, struct sc_peer, all);

		*at = (*at)->next;
		if (*at != &ep->peers && is_watched(peer))
			return peer;
	}
	return NULL;
}

int sc_peers_watch(struct sc_ep *ep)
{
	bool due = ep->refused || !(ep->polls & (RECLAIM_POLLS - 1));
	int ended = due ? sc_peer_reclaim(ep) : 0;
	struct sc_peer *peer = next_watched(ep, &ep->watched, WATCH_PASSES);

	if (!peer)
		return ended;
	if (!sc_peer_is_dead(peer)) {
		sc_seg_guard(peer->seg);
		return ended;
	}
	sc_peer_ended(peer);
	return ended + 1;
}

int sc_peers_check_life(struct sc_ep *ep)
{
	struct sc_peer *peer = next_watched(ep, &ep->life_checked, LIFE_PASSES);

	/* the kernel marks the word first, and may take a while to give the memory back */
	if (!peer || !sc_peer_is_marked(peer) || !sc_peer_is_dead(peer))
		return 0;
	sc_peer_ended(peer);
	return 1;
}

int sc_peers_hear(struct sc_ep *ep)
{
	int ended = 0;

	sc_bell_hear(&ep->bell);
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		if (!is_watched(peer) || !sc_watch_has_ended(&peer->watch))
			continue;
		sc_peer_ended(peer);
		ended++;
	}
	return ended + sc_peer_reclaim(ep);
}

int sc_peers_ask(struct sc_ep *ep)
{
	struct sc_peer *peer =
		sc_list_entry(ep->work[SC_WORK_UNANSWERED].next, struct sc_peer, work[SC_WORK_UNANSWERED]);

	/* to the end: the next call asks another peer */
	sc_list_remove(&peer->work[SC_WORK_UNANSWERED]);
	sc_list_append(&ep->work[SC_WORK_UNANSWERED], &peer->work[SC_WORK_UNANSWERED]);
	return review_link(peer); /* it may also have closed without ever seeing us */
}

int sc_peers_review(struct sc_ep *ep, bool all)
{
	/* P2' acquire: pairs with P2 in sc_peer_bump(); first, so that the next review sees a later change */
	uint32_t now = sc_load_acquire_32(&sc_seg_presence(ep->seg)->membership);
	bool changed = (now ^ ep->membership) & ~(SC_ABI_CHANGED - 1);
	int changes;

	ep->membership = now;
	changes = sc_peer_review_claims(ep);
	/* a claim may wait for the end of a link */
	if (!all && !changed && !ep->waits)
		return changes;
	sc_list_for (entry, &ep->peers)
		changes += review_link(sc_list_entry(entry, struct sc_peer, all));
	return changes;
}

bool sc_peers_have_heard(struct sc_ep *ep, const char *addr)
{
	const struct sc_source *source;

	sc_peer_review_claims(ep); /* it may have come since the last poll */
	source = sc_rxq_source_find(ep->rxq, addr);
	if (source)
		sc_list_for (entry, &source->peers) {
			const struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, of_source);

			if (peer->ep == ep && peer->feed != SC_FEED_NONE)
				return true;
		}
	return sc_departed_has(ep, addr, SC_ADDR_STEM);
}
