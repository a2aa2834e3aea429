/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * accept.c: this endpoint lets in the peers that have claimed a slot of its segment, or tells them why not; it reads what
 * departed peers have left, and takes back the slots of those that died before they were let in. See peer.h.
 *
 * Everything in a slot is written by the peer: its address is checked against its claim and against the segment of
 * that name, before anything else is believed.
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

/*
 * The time between two tries to let in a peer for which there was no memory or descriptor, for an endpoint that polls
 * or sleeps.
 */
#define LATER 20000000 /* nanoseconds */

/* The answer to a claim whose slot cannot be written to: in the claim itself. */
static void refuse_claim(struct sc_ep *ep, uint32_t index, uint64_t claim)
{
	sc_store_release_64(&sc_seg_claims(ep->seg)[index], claim | SC_ABI_CLAIM_REFUSED);
	(void)SC_FAULT("accept.refused");
}

/* Does the address belong to who has claimed the slot? */
static bool is_introduced(const char *address, uint64_t claim)
{
	struct sc_addr parts;
	uint64_t nonce;

	if (sc_addr_parse(address, &parts))
		return false;
	memcpy(&nonce, parts.nonce, sizeof(nonce));
	return SC_ABI_CLAIM_TICKET(claim) == SC_ABI_TICKET(parts.pid, nonce);
}

static void attach_left(struct sc_peer *peer)
{
	peer->left = !sc_seg_attach_left(peer->address, &peer->seg);
}

/*
 * We found it closed or dead before we saw that it had come to us: has it left messages? Only who has departed,
 * or is certainly dead, writes no more.
 */
static bool has_left(struct sc_peer *peer, uint64_t claim)
{
	if (peer->error != -ECONNREFUSED)
		return false;
	if (!peer->seg)
		attach_left(peer);
	if ((claim & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED || (peer->seg && sc_peer_is_dead(peer)))
		return true;
	if (peer->seg)
		sc_peer_detach(peer);
	peer->left = false;
	return false;
}

/* Has one that has just been let in, without a live segment, died since it came? */
static bool is_left_by_dead(const struct sc_peer *peer, uint64_t claim)
{
	if ((claim & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED)
		return false;
	if (peer->left)
		return sc_peer_is_dead(peer);
	return !peer->seg && sc_owner_left(peer->address);
}

/* Finds or makes the peer that has introduced itself in a slot, and attaches its segment. */
static int meet(struct sc_ep *ep, uint32_t index, uint64_t claim, char address[SC_ADDR_SIZE],
		struct sc_peer **met)
{
	struct sc_peer *peer;
	int ret;

	memcpy(address, sc_seg_slot(ep->seg, index)->intro.address, SC_ADDR_SIZE);
	address[SC_ADDR_SIZE - 1] = '\0';
	ret = sc_peer_find_or_make(ep, address, &peer);
	if (ret)
		return ret;
	*met = peer;
	if (sc_peer_may_retry(peer))
		sc_peer_renew(peer);
	else if (peer->full && peer->in_slot != SC_PEER_NO_SLOT)
		return -EAGAIN; /* its last claim is to be returned first */
	if (peer->feed != SC_FEED_NONE || peer->in_slot != SC_PEER_NO_SLOT)
		return -EALREADY;
	if (peer->link == SC_LINK_DOWN && !has_left(peer, claim))
		return peer->error;
	ret = peer->link == SC_LINK_DOWN ? 0 : sc_peer_attach(peer);
	if (ret == -ECONNREFUSED) {
		/*
		 * closed or dead meanwhile; messages that it left in our memory, and in its own, can still be delivered
		 */
		attach_left(peer);
		ret = 0;
	}
	if (!ret && !is_introduced(address, claim))
		ret = -EPROTO;
	return ret;
}

/* The reason why a newcomer waits is said once. False: it has been. */
static bool put_off(struct sc_ep *ep, uint32_t index, int reason)
{
	bool said = ep->later[index] == -reason;

	ep->later[index] = (uint8_t)-reason;
	return !said;
}

/* A claim of ours that has been published: let its owner in, or say why not. False: later. */
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
	if (ret && peer)
		sc_peer_reconsider(peer); /* it may be known for this claim alone */
	if (ret && sc_peer_is_transient(ret) && !put_off(ep, index, ret))
		return false;
	if (ret) {
		/* anything may stand there: control characters are for no log */
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
	if (peer->link == SC_LINK_DOWN) { /* nothing has been sent to it: it is let in to be read */
		sc_list_remove(&peer->ending);
		peer->error = -ECONNRESET;
	} else {
		sc_source_meet(peer);
	}
	sc_peer_enter(peer);
	peer->in_slot = index;
	sc_ring_rx_init(&peer->rx, sc_seg_slot(ep->seg, index));
	sc_peer_set_feed(peer, SC_FEED_UP);
	sc_peer_inbound_add(peer);
	ep->counters.accepts++;
	sc_peer_answer_slot(ep, index, SC_ABI_ACCEPTED, 0); /* nothing waits for it: sc_peers_ask() will find it */
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
 * A peer that was lost before it departed has no slot any more: the next one in that slot is another peer. Nor does the
 * lost one read what it was lent, see sc_peer_lose().
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

/* The next slot from `i` on that somebody has claimed; `count`: none. Most are free, so this is what a review takes. */
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
			slot_forget(ep, i); /* refused or quarantined, and now gone */
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
	return changes;
}

/* Has the process that made this claim ended, for certain? Nothing but the claim is known of it. */
static bool has_claimant_ended(uint64_t claim)
{
	pid_t pid = (pid_t)(claim >> 32 & INT32_MAX);

	return !(claim & SC_ABI_CLAIM_ELSEWHERE) && pid && sc_host_has_ended(pid, 0);
}

/*
 * Peers that write to us whose segment we do not have: they are known by name, and by their claim. The others
 * are marked in `attached`, by slot.
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
		slot_forget(ep, i);
		sc_peer_slot_return(ep, i, true);
		(void)SC_FAULT("accept.reclaimed");
		ended++;
	}
	return ended;
}
