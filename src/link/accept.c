/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * accept.c: this endpoint lets in the peers that have claimed a slot of its segment, or tells them why not. It reads
 * what departed peers have left, and takes back the slots of those that died before they were let in. See peer.h.
 *
 * The peer writes everything in a slot. This endpoint checks the address there against the claim and against the
 * segment of that name, before it believes anything else.
 */
#include "link/accept.h"

#include <errno.h>
#include <string.h>
#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "link/connect.h"
#include "link/rxq.h"
#include "os/addr.h"
#include "os/host.h"
#include "proc/owner.h"
#include "shm/attach.h"
#include "shm/memory.h"

/* The time between two tries to let in a peer when memory or descriptors are short, if the endpoint polls or sleeps. */
#define LATER 20000000 /* nanoseconds */

/*
 * Answers in the claim itself, because the slot has no memory for an answer. A peer that has departed meanwhile gets no
 * answer: the next review takes its slot back.
 */
static void refuse_claim(struct sc_ep *ep, uint32_t index, uint64_t claim)
{
	(void)sc_cas_acq_rel_64(&sc_seg_claims(ep->seg)[index], claim, claim | SC_ABI_CLAIM_REFUSED);
	(void)SC_FAULT("accept.refused");
}

/* Checks that the address is an endpoint's, and that its ticket is the one of the claim. */
static int check_introduction(const char *address, uint64_t claim)
{
	struct sc_addr parts;
	uint64_t nonce;

	if (sc_addr_parse(address, &parts))
		return -EINVAL;
	memcpy(&nonce, parts.nonce, sizeof(nonce));
	return SC_ABI_CLAIM_TICKET(claim) == SC_ABI_TICKET(parts.pid, nonce) ? 0 : -EPROTO;
}

static int attach_left(struct sc_peer *peer)
{
	int ret;

	if (peer->seg)
		return 0;
	ret = sc_seg_attach_left(peer->address, &peer->seg);
	peer->left = !ret;
	return ret;
}

/*
 * Tells whether a peer that was found closed or dead has left messages. Only a peer that has departed, or is certainly
 * dead, writes no more.
 */
static bool has_left(struct sc_peer *peer, uint64_t claim)
{
	bool attached = peer->seg;

	if (peer->error != -ECONNREFUSED && !peer->departed)
		return false;
	(void)attach_left(peer);
	if ((claim & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED || (peer->seg && sc_peer_is_dead(peer)))
		return true;
	if (peer->seg && !attached) {
		sc_peer_detach(peer);
		peer->left = false;
	}
	return false;
}

/* Tells whether a peer that has just been let in has died since it came. */
static bool is_left_by_dead(const struct sc_peer *peer, uint64_t claim)
{
	if ((claim & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED)
		return false;
	return peer->seg ? sc_peer_is_dead(peer) : sc_owner_left(peer->address);
}

/*
 * Tells whether the claim is not of the endpoint that this peer has been, but of the next one with its address. Another
 * file has the name; and its owner has made the claim, as the claim still stands after that look: an endpoint departs
 * before the next one opens.
 */
static bool is_successor(const struct sc_peer *peer, uint32_t index)
{
	uint64_t *claims = sc_seg_claims(peer->ep->seg);

	return sc_peer_is_back(peer) &&
	       (sc_load_acquire_64(&claims[index]) & SC_ABI_CLAIM_STATE) == SC_ABI_PUBLISHED;
}

/*
 * Makes a peer new that comes again: one side was full, or the next endpoint has its address. -EAGAIN: everything with
 * the last connection must end first. -EUSERS: its messages still wait here; the peer stays full, and tries again.
 */
static int renew(struct sc_peer *peer, uint32_t index)
{
	bool was_full = peer->full && (peer->link == SC_LINK_DOWN || peer->in_slot != SC_PEER_NO_SLOT);

	if (!was_full && !is_successor(peer, index))
		return 0;
	if (!sc_peer_is_parted(peer) || peer->in_slot != SC_PEER_NO_SLOT)
		return -EAGAIN;
	if (!sc_list_empty(&peer->recv.waiting))
		return -EUSERS;
	sc_peer_renew(peer);
	return 0;
}

/*
 * Attaches the peer's segment. After a claimant has departed, the name may be the next endpoint's. -EAGAIN: it has departed
 * meanwhile, and the segment is open, as is that of the next one.
 */
static int attach(struct sc_peer *peer, uint32_t index, uint64_t claim)
{
	bool attached = peer->seg;
	int ret;

	if ((claim & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED)
		return -ECONNREFUSED;
	ret = sc_peer_attach(peer);
	/* P1': it closes, departs, and gives its name up, in this order */
	if (ret || attached || sc_load_acquire_64(&sc_seg_claims(peer->ep->seg)[index]) == claim ||
	    !sc_peer_is_open(peer))
		return ret;
	sc_watch_del(&peer->watch);
	sc_peer_detach(peer);
	return -EAGAIN;
}

/*
 * Tells whether the claim is of the last endpoint with this address, while this side has attached the next one for its own
 * link. An open endpoint may also depart itself: it has given up the link from here then, and nothing of it is read.
 */
static bool is_of_last(const struct sc_peer *peer, uint64_t claim)
{
	return (claim & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED && peer->seg &&
	       peer->link != SC_LINK_DOWN && sc_peer_is_open(peer);
}

/* -ESTALE: the last endpoint with the address of an attached peer has left this claim, which must not end that peer. */
static int meet(struct sc_ep *ep, uint32_t index, uint64_t claim, char address[SC_ADDR_SIZE],
		struct sc_peer **met)
{
	struct sc_peer *peer;
	int ret;

	memcpy(address, sc_seg_slot(ep->seg, index)->intro.address, SC_ADDR_SIZE);
	address[SC_ADDR_SIZE - 1] = '\0';
	ret = check_introduction(address, claim); /* first: others can do nothing in its name */
	if (!ret)
		ret = sc_peer_find_or_make(ep, address, &peer);
	if (ret)
		return ret;
	*met = peer;
	ret = renew(peer, index);
	if (ret)
		return ret;
	if (is_of_last(peer, claim))
		return -ESTALE;
	if (peer->feed != SC_FEED_NONE)
		return -EALREADY;
	if (peer->link == SC_LINK_DOWN && !has_left(peer, claim))
		return peer->error;
	ret = peer->link == SC_LINK_DOWN ? 0 : attach(peer, index, claim);
	if (ret == -ECONNREFUSED) {
		/* it has closed or died meanwhile; messages in our memory, and in its own, can still be delivered */
		ret = attach_left(peer);
		if (!sc_peer_is_transient(ret))
			ret = 0;
	}
	return ret;
}

/* Notes why a peer has to wait. Returns whether that reason is new, to be logged once. */
static bool put_off(struct sc_ep *ep, uint32_t index, int reason)
{
	bool said = ep->later[index] == -reason;

	ep->later[index] = (uint8_t)-reason;
	return !said;
}

/* Lets the claimant in, or tells it why not. False: the endpoint tries again later. */
static bool accept_slot(struct sc_ep *ep, uint32_t index, uint64_t claim)
{
	char address[SC_ADDR_SIZE] = "";
	struct sc_peer *peer = NULL;
	int memory, ret;

	sc_log_again(ep->later[index]);
	/* a peer that published without giving the slot memory would cost us a SIGBUS */
	memory = sc_seg_slot_alloc(ep->seg, index);
	ret = memory ? memory : meet(ep, index, claim, address, &peer);
	sc_log_again(false);
	if (ret == -ESTALE)
		return true; /* its slot comes back, as that of a refused peer which has gone */
	if (ret && peer)
		sc_peer_reconsider(peer); /* this claim may be the only reason to know it */
	if (ret && sc_peer_is_transient(ret) && !put_off(ep, index, ret))
		return false;
	if (ret) {
		/* the peer wrote the address: no control characters may get into the log */
		sc_warn("%s a peer that calls itself '%s' (slot %u): %s: %s",
			sc_peer_is_transient(ret) ? "cannot let in yet" : "refused",
			sc_addr_kind(address) == SC_ADDR_INVALID ? "(no address)" : address, index,
			strerror(-ret), sc_peer_connect_advice(ret));
		if (sc_peer_is_transient(ret))
			return false;
		ep->counters.refusals++;
		ep->refused = true;
		if (memory)
			refuse_claim(ep, index, claim);
		else
			sc_peer_answer_slot(ep, index, SC_ABI_REFUSED, ret);
		return true;
	}
	if (peer->link == SC_LINK_DOWN) { /* nothing has been sent to it; it is let in only to be read */
		sc_list_remove(&peer->work[SC_WORK_ENDING]);
		peer->error = -ECONNRESET;
	} else {
		sc_source_meet(peer);
	}
	if (peer->link == SC_LINK_NONE)
		sc_list_remove(&peer->work[SC_WORK_UNANSWERED]); /* sc_peer_await() */
	sc_peer_enter(peer);
	peer->in_slot = index;
	sc_ring_rx_init(&peer->rx, sc_seg_slot(ep->seg, index));
	sc_peer_set_feed(peer, SC_FEED_UP);
	sc_peer_inbound_add(peer);
	ep->counters.accepts++;
	/*
	 * No wake: sc_peers_ask() sees it. Without its segment a peer cannot be told that the answer is taken back; so it
	 * has none, and goes on looking for one.
	 */
	if (peer->seg)
		sc_peer_answer_slot(ep, index, SC_ABI_ACCEPTED, 0);
	if (is_left_by_dead(peer, claim))
		sc_peer_bury(peer);
	return true;
}

static struct sc_peer *peer_of_slot(const struct sc_ep *ep, uint32_t slot)
{
	for (uint32_t i = 0; i < ep->inbound_count; i++)
		if (ep->inbound[i]->in_slot == slot)
			return ep->inbound[i];
	return NULL;
}

/*
 * Takes the slot from a peer that was lost before it departed: the next one in it is another peer. The lost peer no
 * longer reads what it was lent, see sc_peer_lose().
 */
static void slot_forget(struct sc_ep *ep, uint32_t slot)
{
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		if (peer->in_slot != slot)
			continue;
		peer->in_slot = SC_PEER_NO_SLOT;
		sc_peer_take_loans_back(peer);
		sc_pool_reclaim(&ep->pool, &peer->taker.answers);
		sc_peer_reconsider(peer);
	}
}

/* Returns the next claimed slot from `i` on, or `count`. Most slots are free, so this loop is the cost of a review. */
static uint32_t next_claimed(uint64_t *claims, uint32_t i, uint32_t count)
{
	while (i < count && !sc_load_relaxed_64(&claims[i]))
		i++;
	return i;
}

int sc_peer_review_claims(struct sc_ep *ep)
{
	const uint32_t count = ep->seg->header.slot_count;
	uint64_t *claims = sc_seg_claims(ep->seg);
	bool again = !ep->later_at || sc_clock_ns() >= ep->later_at;
	bool failed = false, waits = false;
	int changes = 0;

	for (uint32_t i = next_claimed(claims, 0, count); i < count;
	     i = next_claimed(claims, i + 1, count)) {
		/* P1' acquire: pairs with P1 in sc_peer_connect() */
		uint64_t value = sc_load_acquire_64(&claims[i]);
		uint64_t state = value & SC_ABI_CLAIM_STATE;
		bool known = ep->accepted[i / 64] >> i % 64 & 1;
		struct sc_peer *peer;

		if (state != SC_ABI_PUBLISHED && state != SC_ABI_DEPARTED)
			continue;
		if (!known) {
			bool tries = again || !ep->later[i];

			if (!tries || !accept_slot(ep, i, value)) {
				failed |= tries;
				waits = true;
				continue;
			}
			ep->later[i] = 0;
			ep->accepted[i / 64] |= 1ULL << i % 64;
			changes++;
		}
		if (state != SC_ABI_DEPARTED)
			continue;
		peer = peer_of_slot(ep, i);
		if (!peer) {
			slot_forget(ep, i); /* it was refused or quarantined, and has now gone */
			sc_peer_slot_return(ep, i, true);
			changes++;
		} else if (peer->feed == SC_FEED_UP || peer->vanished) {
			sc_peer_set_feed(peer, SC_FEED_DRAINING);
			peer->vanished = false;
			changes++;
		}
	}
	if (failed)
		ep->later_at = sc_clock_ns() + LATER;
	else if (!waits)
		ep->later_at = 0;
	ep->membership -= waits; /* the next poll looks again */
	ep->waits = waits;
	return changes;
}

void sc_peers_meet(struct sc_rxq *rxq)
{
	sc_list_for (entry, &rxq->eps)
		sc_peer_review_claims(sc_list_entry(entry, struct sc_ep, of_rxq));
}

void sc_peers_meet_last(struct sc_rxq *rxq)
{
	sc_list_for (entry, &rxq->eps)
		sc_list_entry(entry, struct sc_ep, of_rxq)->later_at = 0;
	sc_peers_meet(rxq);
}

/* Tells whether the process that made this claim has certainly ended. The claim is all that is known of it. */
static bool has_claimant_ended(uint64_t claim)
{
	pid_t pid = (pid_t)(claim >> 32 & INT32_MAX);

	return !(claim & SC_ABI_CLAIM_ELSEWHERE) && pid && sc_host_has_ended(pid, 0);
}

/*
 * Buries dead peers that are not attached: only their address and their claim are known. Marks the slots of all peers
 * whose rings are polled in `attached`.
 */
static int reclaim_inbound(struct sc_ep *ep, uint64_t attached[SC_ABI_SLOTS_MAX / 64])
{
	int ended = 0;

	for (uint32_t i = 0; i < ep->inbound_count; i++) {
		struct sc_peer *peer = ep->inbound[i];
		uint64_t claim = sc_load_acquire_64(&sc_seg_claims(ep->seg)[peer->in_slot]);

		attached[peer->in_slot / 64] |= 1ULL << peer->in_slot % 64;
		if (peer->seg || (peer->feed != SC_FEED_UP && !peer->vanished))
			continue;
		if (!sc_owner_left(peer->address) && !has_claimant_ended(claim))
			continue;
		sc_peer_bury(peer);
		ended++;
	}
	return ended;
}

int sc_peer_reclaim(struct sc_ep *ep)
{
	uint64_t *claims = sc_seg_claims(ep->seg), attached[SC_ABI_SLOTS_MAX / 64] = { 0 };
	int ended = reclaim_inbound(ep, attached);

	ep->refused = false;
	for (uint32_t i = 0; i < ep->seg->header.slot_count; i++) {
		uint64_t claim = sc_load_acquire_64(&claims[i]);
		bool refused = ep->accepted[i / 64] >> i % 64 & 1;

		if (attached[i / 64] >> i % 64 & 1 ||
		    ((claim & SC_ABI_CLAIM_STATE) != SC_ABI_CLAIMED && !refused))
			continue;
		if (!has_claimant_ended(claim)) {
			ep->refused |= refused;
			continue;
		}
		(void)SC_FAULT("accept.ended");
		if (sc_load_acquire_64(&claims[i]) != claim)
			continue; /* it went on before it ended: a later look finds how far */
		slot_forget(ep, i);
		sc_peer_slot_return(ep, i, true);
		(void)SC_FAULT("accept.reclaimed");
		ended++;
	}
	return ended;
}
