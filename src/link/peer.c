/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.c: makes the peers of an endpoint, and loses, parts and frees them.
 *
 * Owns struct sc_peer. A peer is in one list of its endpoint: in `peers` if reviews look at it, in `absent` if only its
 * address is known or it has gone, in `leaving` until forget.c has looked for references to it. One thread at a time
 * uses an endpoint and its peers. peer.h says how two endpoints connect and part, and what holds if either dies.
 */
#define _GNU_SOURCE 1
#include "link/peer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "link/departed.h"
#include "link/hold.h"
#include "link/peertable.h"
#include "link/rxq.h"
#include "os/addr.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/attach.h"
#include "shm/memory.h"

void sc_peer_bump(const struct sc_seg *seg, uint32_t by)
{
	/* P2 release: pairs with P2' in sc_peers_changed() */
	sc_add_acq_rel_32(&sc_seg_presence(seg)->membership, by);
	(void)SC_FAULT("peer.bumped");
	sc_wake(&sc_seg_presence(seg)->sleep, SC_ABI_SLEEP_ASLEEP);
}

uint64_t sc_peer_ticket(const struct sc_peer *peer)
{
	const struct sc_abi_header *mine = &peer->ep->seg->header;
	bool near = mine->owner.pid_ns && mine->owner.pid_ns == peer->seg->header.owner.pid_ns;

	return SC_ABI_TICKET(mine->owner.pid, mine->nonce[0]) | (near ? 0 : SC_ABI_CLAIM_ELSEWHERE);
}

int sc_peers_init(struct sc_ep *ep)
{
	sc_list_init(&ep->peers);
	sc_list_init(&ep->absent);
	sc_list_init(&ep->leaving);
	sc_list_init(&ep->with_user);
	ep->watched = ep->life_checked = &ep->peers;
	sc_list_init(&ep->borrowers);
	sc_list_init(&ep->holding);
	ep->inbound = calloc(ep->seg->header.slot_count, sizeof(*ep->inbound));
	ep->later = calloc(ep->seg->header.slot_count, sizeof(*ep->later));
	if (ep->inbound && ep->later && !sc_peer_table_init(ep))
		return 0;
	free(ep->inbound);
	free(ep->later);
	return -ENOMEM;
}

static bool has_closed(const struct sc_seg *seg)
{
	return sc_load_acquire_32(&sc_seg_presence(seg)->state) == SC_ABI_CLOSED;
}

/* Clears the mark UNREAD, as either side may. Tells whether this side has cleared it. */
static bool unmark(uint64_t *claim, uint64_t marked)
{
	bool cleared = sc_cas_acq_rel_64(claim, marked, marked & ~SC_ABI_CLAIM_UNREAD);

	(void)SC_FAULT("peer.unmarked");
	return cleared;
}

static void say_goodbye(struct sc_peer *peer)
{
	uint64_t goodbye = sc_peer_ticket(peer) | (peer->unread ? SC_ABI_CLAIM_UNREAD : 0) | SC_ABI_DEPARTED;
	uint64_t *claim;

	if (peer->out_slot != SC_PEER_NO_SLOT) {
		claim = &sc_seg_claims(peer->seg)[peer->out_slot];
		/* P1 release: the last records before claim DEPARTED; pairs with P1' */
		sc_store_release_64(claim, goodbye);
		(void)SC_FAULT("peer.departed");
		sc_fence_seq_cst(); /* P6' */
		if (peer->unread && has_closed(peer->seg) && unmark(claim, goodbye))
			sc_seg_leave(peer->ep->seg);
	}
	peer->out_slot = SC_PEER_NO_SLOT;
	sc_peer_bump(peer->seg, SC_ABI_CHANGED);
}

/* This endpoint closes, and the peer has departed since the last poll. */
static void leave_unseen(struct sc_peer *peer)
{
	uint64_t *claim, value;

	if (!sc_peer_is_heard(peer) || !peer->seg || !sc_seg_is_here(peer->ep->seg))
		return;
	claim = &sc_seg_claims(peer->ep->seg)[peer->in_slot];
	value = sc_load_acquire_64(claim);
	if ((value & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED && value & SC_ABI_CLAIM_UNREAD &&
	    unmark(claim, value))
		sc_seg_leave(peer->seg);
}

/* Removes the file of a dead peer, whose name has waited for this endpoint. A peer that only has closed keeps it. */
static void remove_left(struct sc_peer *peer)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;

	peer->left = false;
	if (sc_addr_parse(peer->address, &parts))
		return;
	sc_addr_file(&parts, name);
	(void)sc_reap_name(name);
}

void sc_peer_detach(struct sc_peer *peer)
{
	sc_seg_detach(peer->seg);
	peer->seg = NULL;
}

void sc_peer_part(struct sc_peer *peer)
{
	if (!peer->seg)
		return;
	sc_rescue_close(peer->delegate.rescue); /* before another process claims the slot */
	peer->delegate.rescue = NULL;
	free(peer->delegate.open);
	peer->delegate.open = NULL;
	peer->delegate.plain = false;
	/* a forked child has no mappings, and must not change what they hold */
	if (sc_seg_is_here(peer->ep->seg)) {
		say_goodbye(peer);
		peer->ended = sc_watch_has_ended(&peer->watch) || !sc_peer_is_open(peer);
	}
	sc_watch_del(&peer->watch);
	peer->dev = peer->seg->dev;
	peer->ino = peer->seg->ino;
	sc_peer_detach(peer);
	if (peer->left)
		remove_left(peer);
}

/* Tells whether our bounce buffers hold messages for a peer that may not have attached our segment yet. */
static bool has_unread(struct sc_peer *peer)
{
	if (peer->link != SC_LINK_UP || !peer->bounce.loans.count || peer->seg->lender == peer->ep->seg ||
	    sc_load_acquire_32(&peer->tx.consumer->answer) != SC_ABI_PENDING || sc_ring_refresh(&peer->tx))
		return false;
	/* this endpoint lends nothing more, so buffers that may come back with a message may stay lent */
	sc_pool_return(&peer->ep->pool, &peer->bounce.loans, peer->tx.head);
	return peer->bounce.loans.count;
}

/* Peers see this endpoint closed from here on, once their count is added to. */
void sc_peers_close(struct sc_ep *ep)
{
	struct sc_abi_presence *presence;
	uint32_t unread = 0;

	if (!sc_seg_is_here(ep->seg))
		return;
	presence = sc_seg_presence(ep->seg);
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		peer->unread = !ep->reopens && has_unread(peer);
		unread += peer->unread;
	}
	ep->seg->keep_name = unread;
	sc_store_relaxed_32(&presence->unread, unread); /* ordered by the next */
	(void)SC_FAULT("peer.unread");
	/* P3 release: `unread` and all published records come first; pairs with P3' in review_link() */
	sc_store_release_32(&presence->state, SC_ABI_CLOSED);
	(void)SC_FAULT("peer.closed");
	sc_fence_seq_cst(); /* P6 */
}

static void drop_replies(struct sc_peer *peer)
{
	sc_list_for_safe (queued, after, &peer->reply.waiting)
		free(sc_list_entry(queued, struct sc_reply, of_peer));
	peer->reply.count = 0;
	/* the list of work keeps the peer: sc_replies_progress() may be walking it */
	sc_list_init(&peer->reply.waiting);
	sc_list_for_safe (held, behind, &peer->recv.fenced)
		free(sc_list_entry(held, struct sc_fenced, of_peer));
	sc_list_init(&peer->recv.fenced);
	peer->recv.fenced_count = 0;
}

static void fini_each(struct sc_list *peers)
{
	sc_list_for_safe (entry, next, peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		leave_unseen(peer);
		sc_peer_part(peer);
		drop_replies(peer);
		free(peer->taker.passed);
		free(peer);
	}
}

void sc_peers_fini(struct sc_ep *ep)
{
	fini_each(&ep->peers);
	fini_each(&ep->absent);
	fini_each(&ep->leaving);
	free(ep->heard);
	sc_peer_table_fini(ep);
	free(ep->inbound);
	free(ep->later);
}

static void peer_init(struct sc_peer *peer, struct sc_ep *ep, struct sc_source *source, const char *addr)
{
	*peer = (struct sc_peer){ .ep = ep,
				  .source = source,
				  .user = UINT64_MAX,
				  .out_slot = SC_PEER_NO_SLOT,
				  .in_slot = SC_PEER_NO_SLOT,
				  .can_return = SC_REACH_UNKNOWN };
	memcpy(peer->address, addr, SC_ADDR_SIZE);
	sc_loans_init(&peer->bounce.loans);
	sc_loans_init(&peer->taker.answers);
	sc_fill_init(&peer->bounce.fill, ep->config.fill);
	sc_list_init(&peer->of_users);
	sc_list_init(&peer->ops);
	sc_list_init(&peer->order.turns);
	sc_list_init(&peer->bounce.borrower);
	sc_list_init(&peer->hold.of_ep);
	sc_list_init(&peer->reply.waiting);
	sc_list_init(&peer->rma.queued);
	sc_list_init(&peer->rma.waiting);
	sc_list_init(&peer->batch.ops);
	sc_list_init(&peer->assist.ops);
	sc_list_init(&peer->assist.xfer.of_ep);
	sc_list_init(&peer->target.ops);
	sc_list_init(&peer->recv.transfers);
	sc_list_init(&peer->recv.copying);
	sc_list_init(&peer->recv.waiting);
	sc_list_init(&peer->recv.fenced);
	for (int work = 0; work < SC_WORK_COUNT; work++)
		sc_list_init(&peer->work[work]);
}

int sc_peer_find_or_make(struct sc_ep *ep, const char *addr, struct sc_peer **found)
{
	struct sc_source *source;
	struct sc_peer *peer;

	if (sc_addr_kind(addr) != SC_ADDR_ENDPOINT)
		return -EINVAL;
	*found = sc_peer_table_find(ep, addr);
	if (*found)
		return 0;
	peer = aligned_alloc(SC_CACHE_LINE, sizeof(*peer));
	if (!peer)
		return -ENOMEM;
	source = sc_rxq_source(ep->rxq, addr);
	if (!source) {
		free(peer);
		return -ENOMEM;
	}
	peer_init(peer, ep, source, addr);
	sc_peer_table_add(peer);
	sc_list_append(&ep->absent, &peer->all);
	sc_list_append(&source->peers, &peer->of_source);
	*found = peer;
	return 0;
}

/* Marks a forgotten peer as gone, as it was before. */
static void set_gone(struct sc_peer *peer)
{
	peer->departed = true;
	sc_peer_set_link(peer, SC_LINK_DOWN);
	peer->error = -ECONNRESET;
	sc_source_part(peer, peer->error);
}

int sc_peer_get(struct sc_ep *ep, const char *addr, struct sc_peer **found)
{
	uint32_t count = ep->peer_count;
	int ret = sc_peer_find_or_make(ep, addr, found);

	if (ret)
		return ret;
	if (ep->peer_count != count && sc_departed_has(ep, addr, SC_ADDR_SIZE)) {
		set_gone(*found);
		sc_peer_reconsider(*found); /* the operation is refused, and then nothing needs the peer */
	}
	(*found)->users++;
	return 0;
}

/* A walk over the list that the peer leaves must allow that (sc_list_for_safe). */
static void move(struct sc_peer *peer, struct sc_list *list)
{
	struct sc_ep *ep = peer->ep;

	if (ep->watched == &peer->all)
		ep->watched = peer->all.prev;
	if (ep->life_checked == &peer->all)
		ep->life_checked = peer->all.prev;
	sc_list_remove(&peer->all);
	sc_list_append(list, &peer->all);
	peer->present = list == &ep->peers;
}

void sc_peer_free(struct sc_peer *peer)
{
	sc_peer_table_remove(peer);
	sc_list_remove(&peer->all);
	sc_list_remove(&peer->of_source);
	sc_list_remove(&peer->of_users);
	sc_list_remove(&peer->work[SC_WORK_DOUBTED]);
	if (peer->source->lost == peer)
		peer->source->lost = NULL;
	if (sc_list_empty(&peer->source->peers))
		sc_rxq_source_free(peer->ep->rxq, peer->source);
	free(peer);
}

const char *sc_peer_address(const struct sc_peer *peer)
{
	return peer->address;
}

int sc_peer_error(const struct sc_peer *peer)
{
	return peer->link == SC_LINK_DOWN ? peer->error : 0;
}

struct sc_ep *sc_peer_ep(const struct sc_peer *peer)
{
	return peer->ep;
}

uint64_t sc_peer_user(const struct sc_peer *peer)
{
	return peer->user;
}

void sc_peer_set_user(struct sc_peer *peer, uint64_t user)
{
	peer->user = user;
	sc_list_remove(&peer->of_users);
	sc_list_append(&peer->ep->with_user, &peer->of_users);
}

void sc_peers_unset_users(struct sc_ep *ep)
{
	sc_list_for_safe (entry, next, &ep->with_user) {
		sc_list_entry(entry, struct sc_peer, of_users)->user = UINT64_MAX;
		sc_list_remove(entry);
	}
}

void sc_peer_enter(struct sc_peer *peer)
{
	if (!peer->present)
		move(peer, &peer->ep->peers);
}

void sc_peer_answer_slot(struct sc_ep *ep, uint32_t index, enum sc_abi_answer how, int reason)
{
	struct sc_abi_consumer *consumer = &sc_seg_slot(ep->seg, index)->consumer;

	sc_store_relaxed_32((uint32_t *)&consumer->reason, (uint32_t)-reason); /* ordered by the next */
	(void)SC_FAULT("peer.reason");
	/* P4 release: pairs with P4' in review_answer() and has_unread() */
	sc_store_release_32(&consumer->answer, how);
	(void)SC_FAULT("peer.answered");
}

void sc_peer_answer_broken(struct sc_peer *peer, int reason)
{
	sc_peer_answer_slot(peer->ep, peer->in_slot, SC_ABI_BROKEN, reason);
	if (peer->seg)
		sc_peer_bump(peer->seg, SC_ABI_CHANGED);
}

void sc_peer_take_loans_back(struct sc_peer *peer)
{
	sc_pool_reclaim(&peer->ep->pool, &peer->bounce.loans);
	peer->bounce.returnables.count = 0;
}

void sc_peer_end_link(struct sc_peer *peer, int error)
{
	sc_peer_set_link(peer, SC_LINK_DOWN);
	sc_list_remove(&peer->work[SC_WORK_UNANSWERED]);
	sc_list_remove(&peer->bounce.borrower);
	peer->error = error;
	peer->tx.at.lines = NULL;
	peer->units_limit = 0;
	sc_hold_end(peer);
	/*
	 * after other errors the peer may still read its loans; in any case it may still write into its returnable
	 * buffers
	 */
	if (error == -EPROTO || error == -ECONNRESET)
		sc_pool_return_others(&peer->ep->pool, &peer->bounce.loans, UINT64_MAX,
				      peer->bounce.returnables.bufs, peer->bounce.returnables.count);
	drop_replies(peer);
}

bool sc_peer_is_parted(const struct sc_peer *peer)
{
	return sc_list_empty(&peer->work[SC_WORK_ENDING]) && !sc_peer_is_heard(peer) && !peer->seg;
}

/* Tells whether anything of the peer is in a list, or under way. */
static bool is_busy(const struct sc_peer *peer)
{
	/* clang-format off */
	const struct sc_list *const lists[] = {
		&peer->ops, &peer->order.turns, &peer->bounce.borrower, &peer->hold.of_ep, &peer->rma.queued,
		&peer->rma.waiting, &peer->batch.ops, &peer->assist.ops, &peer->assist.xfer.of_ep, &peer->target.ops,
		&peer->recv.transfers, &peer->recv.copying, &peer->recv.fenced,
	};
	/* clang-format on */

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		if (!sc_list_empty(lists[i]))
			return true;
	for (int work = 0; work < SC_WORK_COUNT; work++)
		if (work != SC_WORK_DOUBTED && !sc_list_empty(&peer->work[work]))
			return true;
	return peer->recv.arriving || peer->recv.arriving_op || peer->rma.pending;
}

/* Tells whether the peer has gone for good or was never here, with nothing under way. */
static bool is_over(struct sc_peer *peer)
{
	/* attached in vain: the peer was full, or did not let this endpoint in; and no receive waits for it */
	if (peer->seg && !peer->users && peer->link == SC_LINK_NONE && peer->feed == SC_FEED_NONE &&
	    sc_list_empty(&peer->work[SC_WORK_UNANSWERED]))
		sc_peer_part(peer);
	if (!sc_peer_is_parted(peer) || peer->in_slot != SC_PEER_NO_SLOT || is_busy(peer))
		return false;
	/* all loans have come back, with the link or with the peer's slot */
	assert(peer->link != SC_LINK_UP && !peer->bounce.loans.count && !peer->taker.answers.count);
	return true;
}

bool sc_peer_is_free(struct sc_peer *peer)
{
	return !peer->users && sc_list_empty(&peer->recv.waiting) && is_over(peer);
}

void sc_peer_keep(struct sc_peer *peer)
{
	if (is_over(peer))
		move(peer, &peer->ep->absent);
	else
		sc_peer_enter(peer);
}

void sc_peer_reconsider(struct sc_peer *peer)
{
	sc_peer_begin(peer, SC_WORK_DOUBTED);
}

void sc_peer_settle(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	sc_list_remove(&peer->work[SC_WORK_DOUBTED]);
	/* a living peer, with which the connection is lost, stays lost while the caller has it */
	if (peer->users && ep->release && peer->error == -ECONNRESET && is_over(peer) &&
	    (peer->ended || peer->departed))
		peer->users -= ep->release(ep->release_arg, peer);
	if (sc_peer_is_free(peer)) {
		move(peer, &ep->leaving);
		ep->leaving_fresh++;
	} else if (is_over(peer)) {
		move(peer, &ep->absent);
	}
}

void sc_peer_renew(struct sc_peer *peer)
{
	struct sc_peer last = *peer;

	assert(sc_peer_is_parted(peer) && !is_busy(peer));
	/* a closed peer reads no more, even if it could not say so */
	sc_peer_take_loans_back(peer);
	sc_pool_reclaim(&peer->ep->pool, &peer->taker.answers);
	peer_init(peer, last.ep, last.source, last.address);
	peer->user = last.user;
	peer->of_users = last.of_users;
	peer->users = last.users;
	peer->next = last.next;
	peer->all = last.all;
	peer->present = last.present;
	peer->work[SC_WORK_DOUBTED] = last.work[SC_WORK_DOUBTED];
	peer->of_source = last.of_source;
	peer->dev = last.dev;
	peer->ino = last.ino;
	peer->recv.arrivals = last.recv.arrivals;
	peer->rma.hazard_count = last.rma.hazard_count;
}

bool sc_peer_may_retry(const struct sc_peer *peer)
{
	return peer->full && sc_peer_is_parted(peer) && peer->in_slot == SC_PEER_NO_SLOT &&
	       sc_list_empty(&peer->recv.waiting);
}

void sc_peer_inbound_add(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	peer->inbound_index = ep->inbound_count;
	ep->inbound[ep->inbound_count++] = peer;
}

static void inbound_remove(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	struct sc_peer *last = ep->inbound[--ep->inbound_count];

	ep->inbound[peer->inbound_index] = last;
	last->inbound_index = peer->inbound_index;
	peer->rx.at.lines = NULL;
}

void sc_peer_slot_return(struct sc_ep *ep, uint32_t slot, bool refused)
{
	if (sc_seg_slot_free(ep->seg, slot)) {
		if (refused)
			return;
		memset(sc_seg_slot(ep->seg, slot), 0, SC_ABI_SLOT_FIRST);
		(void)SC_FAULT("peer.slot_cleared");
	}
	ep->accepted[slot / 64] &= ~(1ULL << slot % 64);
	ep->later[slot] = 0;
	/* P5 release: the slot is clean before it is free; pairs with the compare and swap in claim() */
	sc_store_release_64(&sc_seg_claims(ep->seg)[slot], 0);
	(void)SC_FAULT("peer.slot_returned");
}

/* Stops reading from the peer; tells it so, if it has not gone itself. */
static void end_feed(struct sc_peer *peer, int error)
{
	bool departed = peer->feed == SC_FEED_DRAINING && !peer->vanished;
	bool gone = departed || (error == -ECONNRESET && !peer->vanished);
	uint64_t claim;

	inbound_remove(peer);
	free(peer->taker.passed);
	peer->taker.passed = NULL;
	sc_peer_set_feed(peer, SC_FEED_DONE);
	/* a peer that keeps the rules may still read its answers; a later poll sees that it has gone */
	if (gone || error == -EPROTO)
		sc_pool_reclaim(&peer->ep->pool, &peer->taker.answers);
	if (gone)
		sc_peer_take_loans_back(peer);
	if (!departed) {
		sc_peer_answer_broken(peer, error);
		peer->ep->refused = true;
		return;
	}
	claim = sc_load_relaxed_64(&sc_seg_claims(peer->ep->seg)[peer->in_slot]); /* DEPARTED: final */
	if (claim & SC_ABI_CLAIM_UNREAD && peer->seg)
		sc_seg_leave(peer->seg);
	sc_peer_slot_return(peer->ep, peer->in_slot, false);
	peer->in_slot = SC_PEER_NO_SLOT;
}

void sc_peer_lose(struct sc_peer *peer, int error)
{
	/* before other messages use the buffers that it copies from */
	if (peer->delegate.rescue)
		sc_rescue_quit(peer->delegate.rescue);
	if (sc_peer_is_heard(peer))
		end_feed(peer, error);
	sc_peer_begin(peer, SC_WORK_ENDING);
	/* for a vanished peer only now: its messages could be received until here */
	if (peer->link != SC_LINK_DOWN || peer->met)
		sc_source_part(peer, error);
	if (peer->link != SC_LINK_DOWN)
		sc_peer_end_link(peer, error);
}

enum sc_log_level sc_peer_cma_level(int error)
{
	return error == -EPERM || error == -ENOSYS ? sc_log_first(SC_LOG_CMA_FORBIDDEN) : SC_LOG_INFO;
}

/* Tries to read the process's memory. Each direction of each pair is tried by itself. */
bool sc_peer_can_read_slow(struct sc_peer *peer)
{
	int ret = sc_cma_read(&peer->cma, &(struct sc_cma_copy){ 0 });

	if (ret)
		sc_log(sc_peer_cma_level(ret),
		       "%s: process_vm_readv of pid %d: %s; large messages from it go through shared "
		       "memory (same user, "
		       "dumpable, Yama ptrace_scope 0 and no seccomp filter would allow it)",
		       peer->address, (int)peer->cma.pid, strerror(-ret));
	peer->can_read = ret ? SC_REACH_NO : SC_REACH_YES;
	return !ret;
}

void sc_peer_quarantine(struct sc_peer *peer, int error, const char *why)
{
	sc_warn("%s: %s; nothing more is taken from it or sent to it%s", peer->address, why,
		error == -EPROTO
			? ". Its process, or another that is connected to it or to this one, has "
			  "written over shared memory or has another build of shmcma: look for wild "
			  "writes, and restart it"
			: "");
	peer->ep->counters.quarantines++;
	sc_peer_lose(peer, error);
}

void sc_peer_drained(struct sc_peer *peer)
{
	peer->ep->counters.departures++;
	sc_peer_lose(peer, -ECONNRESET);
}

static bool shows_cookie(const struct sc_peer *peer)
{
	return peer->cma.pid && !sc_cma_read(&peer->cma, &(struct sc_cma_copy){ 0 });
}

bool sc_peer_is_dead(const struct sc_peer *peer)
{
	return sc_watch_has_ended(&peer->watch) || sc_owner_is_dead(peer->seg);
}

bool sc_peer_is_marked(const struct sc_peer *peer)
{
	/* relaxed: the kernel gives the proof */
	return sc_load_relaxed_32(&sc_seg_presence(peer->seg)->life) & SC_ABI_LIFE_ENDED;
}

/* A process that execs still holds its life lock when its memory is another program's already; its word is marked. */
bool sc_peer_is_there_slow(const struct sc_peer *peer)
{
	if (sc_peer_is_marked(peer))
		return shows_cookie(peer);
	return sc_seg_check_owner(peer->seg) == 1 || shows_cookie(peer);
}

void sc_peer_bury(struct sc_peer *peer)
{
	peer->ep->counters.deaths++;
	sc_warn("%s: its process has died; operations with it fail", peer->address);
	if (peer->feed == SC_FEED_UP || peer->vanished)
		sc_peer_set_feed(peer, SC_FEED_DRAINING);
	else
		sc_peer_lose(peer, -ECONNRESET);
	peer->vanished = false;
}
