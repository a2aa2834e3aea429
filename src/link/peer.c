/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.c: the other endpoints: how two endpoints connect, and part.
 *
 * Connecting needs nothing of the peer but its memory. The connecting side:
 *
 *   1. attaches the peer's segment,
 *   2. claims a slot there            (claims[i]: 0 -> ticket | CLAIMED, compare and swap)
 *   3. gives the slot memory          (fallocate: a full /dev/shm is an error here, never a SIGBUS later)
 *   4. writes who it is into the slot
 *   5. publishes                      (claims[i] = ticket | PUBLISHED, release; then membership + CAME)
 *
 * and may write records at once. The owner, when it next polls, sees the count, finds the claim, attaches
 * in turn and answers ACCEPTED, or REFUSED with a reason; the connecting side looks for the answer until it
 * has it (sc_peers_ask()), so an endpoint that only sends notices a refusal, too. A peer that comes changes nothing
 * about others: an endpoint looks at its links when one of the peers has CHANGED something.
 *
 *   P1 release, connect(): slot before claim PUBLISHED     pairs with  P1' sc_peers_review()
 *   P2 release, bump(): claim, answer, state before count  pairs with  P2' sc_peers_changed()
 *   P3 release, sc_peers_close(): what was published before CLOSED   with  P3' review_link()
 *   P4 release, answer_slot(): reason before answer        pairs with  P4' review_answer()
 *   P5 release, slot_return(): clean slot before claim 0   pairs with  P5' claim()
 *   P6 fence, sc_peers_close(): CLOSED before the claims   pairs with  P6' say_goodbye(): claim before CLOSED
 *
 * Parting: an endpoint that closes marks its presence CLOSED and its claims DEPARTED, then adds to the
 * counts. The other side reads what was published, then frees the slot. If the other side closes before it sees that,
 * no reader is left for the file: one of the two takes the mark UNREAD away (P6) and counts that.
 *
 * A peer that has gone, and all that there was with it has ended, is forgotten as soon as nothing refers to it: forget.c.
 * Until then it is in sc_ep.absent, as is a peer that has been asked for only: no review looks at those.
 *
 * An address can come back: one index of a name (struct sc_ep_name) is opened again after it was closed, in a new
 * file. A sender looks for the new file once it knows the last endpoint as gone, and the structure of the last one
 * becomes that of the new one (connect_again()). The new file is certainly another one: the owner of the last endpoint
 * departed everywhere, and unlinked the file, before it opened the name again. So no operation in flight to the last
 * endpoint can reach the new one: it ends with the last one, and only then the sender connects to the new one. Nor can
 * a message that is sent after the new one was opened reach the last one: each send looks whether the peer has closed
 * (sc_peer_has_closed()), which the last one had before. A peer whose messages still wait here does not come back:
 * those messages belong to the last one.
 *
 * A place that is taken now may be free later. Step 2 fails with -EUSERS while the target is full: the link stays NONE,
 * attached, and the next operation tries again. A peer that asks for an answer while it is full itself is given up, and
 * told so (SC_ABI_BROKEN, EUSERS); both sides mark it `full`, and once all has ended that there was between the two either may
 * connect as if they had never met (renew()).
 *
 * Death between any two steps: before 2 nothing is shared. After 2 or 3 a claim is left whose ticket names
 * a dead process: the owner returns the slot in reclaim(), once nobody has that pid; so it does with the slot of
 * one that it has refused, and that dies then. After 5 the peer is connected and dead, as at any later time,
 * also in the middle of parting: the owner finds its life lock free, when it lets the peer in, when the daemon
 * says so, or in sc_peers_watch(), reads what was published and frees the slot. The first process that proves the death
 * writes ENDED for the dead owner (sc_reap_owner_is_dead()), so that all others refuse at once what is posted to it. An
 * endpoint that has claimed a slot of an owner that has died takes its claim back in the same way. A peer that was let
 * in without its segment, because its name was gone, is known to be dead by its file, should that be back, or by its
 * pid. Lost until the owner closes are only slots of those that were in another pid namespace and died before 5, or
 * after they were refused.
 */
#define _GNU_SOURCE 1
#include "link/peer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "os/addr.h"
#include "base/atomic.h"
#include "link/departed.h"
#include "link/hold.h"
#include "os/host.h"
#include "base/fault.h"
#include "os/lifelock.h"
#include "base/log.h"
#include "proc/reap.h"
#include "link/rxq.h"

#define TABLE_MIN 64
#define NO_SLOT UINT32_MAX
/* Peers that are passed over in one look for one to watch, as they are known by name only, or gone. */
#define WATCH_PASSES 64
#define GLANCE_PASSES 2
/* Looks at what a peer has in hand, between two at whether it lives. */
#define SHARE_LOOKS 1024
/* One that is given up has ended with what it has in hand when it was seen to run so often, so far apart. */
#define RUNS 200
#define RUNS_APART 100000000 /* nanoseconds */
/*
 * Polls between two looks at the claims of the dead, where no bell rings; a multiple of those for a peer. Those
 * that were refused or given up, and are not watched any more, are looked at as often as a peer.
 */
#define RECLAIM_POLLS (1u << 20)

/*
 * The time between two tries to let in a peer for which there was no memory or descriptor, for an endpoint that polls
 * or sleeps.
 */
#define LATER 20000000 /* nanoseconds */

static int review_claims(struct sc_ep *ep);

/* SC_ABI_CAME or SC_ABI_CHANGED. */
static void bump(const struct sc_seg *seg, uint32_t by)
{
	/* P2 release: pairs with P2' in sc_peers_changed() */
	sc_add_acq_rel_32(&sc_seg_presence(seg)->membership, by);
	(void)SC_FAULT("peer.bumped");
	sc_wake(&sc_seg_presence(seg)->sleep, SC_ABI_SLEEP_ASLEEP);
}

/* Our ticket, in the peer's segment: by it the owner finds out, should we die before step 5. */
static uint64_t ticket(const struct sc_peer *peer)
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
	sc_list_init(&ep->doubted);
	ep->watched = ep->glanced = &ep->peers;
	sc_list_init(&ep->ending);
	sc_list_init(&ep->unanswered);
	sc_list_init(&ep->borrowers);
	sc_list_init(&ep->holding);
	ep->peer_table = calloc(TABLE_MIN, sizeof(*ep->peer_table));
	ep->peer_table_mask = TABLE_MIN - 1;
	ep->inbound = calloc(ep->seg->header.slot_count, sizeof(*ep->inbound));
	ep->later = calloc(ep->seg->header.slot_count, sizeof(*ep->later));
	if (ep->peer_table && ep->inbound && ep->later)
		return 0;
	free(ep->peer_table);
	free(ep->inbound);
	free(ep->later);
	return -ENOMEM;
}

static bool is_heard(const struct sc_peer *peer)
{
	return peer->feed == SC_FEED_UP || peer->feed == SC_FEED_DRAINING;
}

static bool has_closed(const struct sc_seg *seg)
{
	return sc_load_acquire_32(&sc_seg_presence(seg)->state) == SC_ABI_CLOSED;
}

/* A mark that either side may take away: was it us who did? */
static bool unmark(uint64_t *claim, uint64_t marked)
{
	return sc_cas_acq_rel_64(claim, marked, marked & ~SC_ABI_CLAIM_UNREAD);
}

static void say_goodbye(struct sc_peer *peer)
{
	uint64_t goodbye = ticket(peer) | (peer->unread ? SC_ABI_CLAIM_UNREAD : 0) | SC_ABI_DEPARTED;
	uint64_t *claim;

	if (peer->out_slot != NO_SLOT) {
		claim = &sc_seg_claims(peer->seg)[peer->out_slot];
		/* P1 release: the last records before claim DEPARTED; pairs with P1' */
		sc_store_release_64(claim, goodbye);
		(void)SC_FAULT("peer.departed");
		sc_fence_seq_cst(); /* P6' */
		if (peer->unread && has_closed(peer->seg) && unmark(claim, goodbye))
			sc_seg_leave(peer->ep->seg);
	}
	peer->out_slot = NO_SLOT;
	bump(peer->seg, SC_ABI_CHANGED);
}

/* We close, and it has departed since our last poll. */
static void leave_unseen(struct sc_peer *peer)
{
	uint64_t *claim, value;

	if (!is_heard(peer) || !peer->seg || !sc_seg_is_here(peer->ep->seg))
		return;
	claim = &sc_seg_claims(peer->ep->seg)[peer->in_slot];
	value = sc_load_acquire_64(claim);
	if ((value & SC_ABI_CLAIM_STATE) == SC_ABI_DEPARTED && value & SC_ABI_CLAIM_UNREAD &&
	    unmark(claim, value))
		sc_seg_leave(peer->seg);
}

/* The name of a dead peer's segment has waited for us; if it only has closed, its file is none to reap. */
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

static void detach(struct sc_peer *peer)
{
	peer->ep->unclean_count = 0; /* some may be in there */
	sc_seg_detach(peer->seg);
	peer->seg = NULL;
}

void sc_peer_part(struct sc_peer *peer)
{
	if (!peer->seg)
		return;
	/* a forked child has neither the mappings nor any say in what they hold */
	if (sc_seg_is_here(peer->ep->seg))
		say_goodbye(peer);
	sc_watch_del(&peer->watch);
	peer->dev = peer->seg->dev;
	peer->ino = peer->seg->ino;
	detach(peer);
	if (peer->left)
		remove_left(peer);
}

/* Are there messages in bounce buffers of ours for a peer that may not have our segment attached yet? */
static bool has_unread(struct sc_peer *peer)
{
	if (peer->link != SC_LINK_UP || !peer->loans.count || peer->seg->lender == peer->ep->seg ||
	    sc_load_acquire_32(&peer->tx.consumer->answer) != SC_ABI_PENDING || sc_ring_refresh(&peer->tx))
		return false;
	/* nothing is lent any more, so buffers that may be coming back with a message stay as they are */
	sc_pool_return(&peer->ep->pool, &peer->loans, peer->tx.head, SC_POOL_FIRST);
	return peer->loans.count;
}

/* From here on peers see this endpoint closed, once their count is added to. */
void sc_peers_close(struct sc_ep *ep)
{
	struct sc_abi_presence *presence;
	uint32_t unread = 0;

	if (!sc_seg_is_here(ep->seg))
		return;
	presence = sc_seg_presence(ep->seg);
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		peer->unread = has_unread(peer);
		unread += peer->unread;
	}
	ep->seg->keep_name = unread;
	sc_store_relaxed_32(&presence->unread, unread); /* ordered by the next */
	(void)SC_FAULT("peer.unread");
	/* P3 release: unread, and all that was published before; pairs with P3' in review_link() */
	sc_store_release_32(&presence->state, SC_ABI_CLOSED);
	(void)SC_FAULT("peer.closed");
	sc_fence_seq_cst(); /* P6 */
}

static void drop_replies(struct sc_peer *peer)
{
	sc_list_for_safe (queued, after, &peer->replies)
		free(sc_list_entry(queued, struct sc_reply, of_peer));
	peer->ep->replies -= peer->reply_count;
	peer->reply_count = 0;
	sc_list_init(&peer->replies);
	sc_list_for_safe (held, behind, &peer->fenced)
		free(sc_list_entry(held, struct sc_fenced, of_peer));
	sc_list_init(&peer->fenced);
	peer->fenced_count = 0;
}

static void fini_each(struct sc_list *peers)
{
	sc_list_for_safe (entry, next, peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		leave_unseen(peer);
		sc_peer_part(peer);
		drop_replies(peer);
		sc_source_part(peer, 0);
		sc_list_remove(&peer->of_source);
		free(peer);
	}
}

void sc_peers_fini(struct sc_ep *ep)
{
	fini_each(&ep->peers);
	fini_each(&ep->absent);
	fini_each(&ep->leaving);
	free(ep->heard);
	free(ep->peer_table);
	free(ep->inbound);
	free(ep->later);
}

static void table_grow(struct sc_ep *ep)
{
	uint32_t mask = ep->peer_table_mask * 2 + 1;
	struct sc_peer **table = calloc((size_t)mask + 1, sizeof(*table));

	if (!table)
		return; /* longer chains */
	for (uint32_t i = 0; i <= ep->peer_table_mask; i++)
		for (struct sc_peer *peer = ep->peer_table[i], *next; peer; peer = next) {
			struct sc_peer **chain =
				&table[sc_addr_hash(peer->address, strlen(peer->address)) & mask];

			next = peer->next;
			peer->next = *chain;
			*chain = peer;
		}
	free(ep->peer_table);
	ep->peer_table = table;
	ep->peer_table_mask = mask;
}

/* Nothing has been sent to it, nor has it come. */
static void peer_init(struct sc_peer *peer, struct sc_ep *ep, struct sc_source *source, const char *addr)
{
	*peer = (struct sc_peer){
		.ep = ep, .source = source, .user = UINT64_MAX, .out_slot = NO_SLOT, .in_slot = NO_SLOT
	};
	memcpy(peer->address, addr, SC_ADDR_SIZE);
	sc_loans_init(&peer->loans);
	sc_loans_init(&peer->answers);
	peer->returnables.count = 0;
	sc_hold_init(peer);
	sc_fill_init(&peer->fill, ep->config.fill);
	sc_list_init(&peer->ops);
	sc_list_init(&peer->turns);
	sc_list_init(&peer->borrower);
	sc_list_init(&peer->replies);
	sc_list_init(&peer->rma_queued);
	sc_list_init(&peer->rma_waiting);
	sc_list_init(&peer->rma_busy);
	sc_list_init(&peer->offers);
	sc_list_init(&peer->offering);
	sc_list_init(&peer->batch);
	sc_list_init(&peer->batching);
	sc_list_init(&peer->assisted);
	sc_list_init(&peer->asking);
	sc_list_init(&peer->assisting);
	sc_list_init(&peer->serving);
	sc_list_init(&peer->serving_peer);
	sc_list_init(&peer->transfers);
	sc_list_init(&peer->copying);
	sc_list_init(&peer->pulling);
	sc_list_init(&peer->waiting);
	sc_list_init(&peer->fenced);
	sc_list_init(&peer->ending);
	sc_list_init(&peer->unanswered);
	sc_list_init(&peer->doubted);
}

static struct sc_peer **chain_of(const struct sc_ep *ep, const char *addr)
{
	return &ep->peer_table[sc_addr_hash(addr, strlen(addr)) & ep->peer_table_mask];
}

static struct sc_peer *find(const struct sc_ep *ep, const char *addr)
{
	struct sc_peer *peer = *chain_of(ep, addr);

	while (peer && strcmp(peer->address, addr))
		peer = peer->next;
	return peer;
}

static int find_or_make(struct sc_ep *ep, const char *addr, struct sc_peer **found)
{
	struct sc_peer **chain, *peer;
	struct sc_source *source;

	if (sc_addr_kind(addr) != SC_ADDR_ENDPOINT)
		return -EINVAL;
	*found = find(ep, addr);
	if (*found)
		return 0;
	chain = chain_of(ep, addr);
	peer = malloc(sizeof(*peer));
	if (!peer)
		return -ENOMEM;
	source = sc_rxq_source(ep->rxq, addr);
	if (!source) {
		free(peer);
		return -ENOMEM;
	}
	peer_init(peer, ep, source, addr);
	peer->next = *chain;
	*chain = peer;
	sc_list_append(&ep->absent, &peer->all);
	sc_list_append(&source->peers, &peer->of_source);
	if (++ep->peer_count > ep->peer_table_mask)
		table_grow(ep);
	*found = peer;
	return 0;
}

/* It has been here, and was forgotten: as if an attempt to connect had shown that nobody has the address. */
static void set_gone(struct sc_peer *peer)
{
	peer->link = SC_LINK_DOWN;
	peer->error = -ECONNREFUSED;
	sc_source_part(peer, peer->error);
}

int sc_peer_get(struct sc_ep *ep, const char *addr, struct sc_peer **found)
{
	uint32_t count = ep->peer_count;
	int ret = find_or_make(ep, addr, found);

	if (ret)
		return ret;
	if (ep->peer_count != count && sc_departed_has(ep, addr, SC_ADDR_SIZE))
		set_gone(*found);
	(*found)->users++;
	return 0;
}

bool sc_peers_have_heard(const struct sc_ep *ep, const char *addr)
{
	const struct sc_source *source = sc_rxq_source_find(ep->rxq, addr);

	if (source)
		sc_list_for (entry, &source->peers) {
			const struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, of_source);

			if (peer->ep == ep && peer->feed != SC_FEED_NONE)
				return true;
		}
	return sc_departed_has(ep, addr, SC_ADDR_STEM);
}

size_t sc_peers_count(const struct sc_ep *ep)
{
	return ep->peer_count;
}

/* Into another of the lists that peers are in. Nobody is on the way through one of them. */
static void move(struct sc_peer *peer, struct sc_list *list)
{
	struct sc_ep *ep = peer->ep;

	if (ep->watched == &peer->all)
		ep->watched = peer->all.prev;
	if (ep->glanced == &peer->all)
		ep->glanced = peer->all.prev;
	sc_list_remove(&peer->all);
	sc_list_append(list, &peer->all);
	peer->present = list == &ep->peers;
}

void sc_peer_free(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	struct sc_peer **link = chain_of(ep, peer->address);

	while (*link != peer)
		link = &(*link)->next;
	*link = peer->next;
	ep->peer_count--;
	sc_list_remove(&peer->all);
	sc_list_remove(&peer->of_source);
	sc_list_remove(&peer->doubted);
	if (peer->source->lost == peer)
		peer->source->lost = NULL;
	if (sc_list_empty(&peer->source->peers))
		sc_rxq_source_free(ep->rxq, peer->source);
	free(peer);
}

const char *sc_peer_address(const struct sc_peer *peer)
{
	return peer->address;
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
}

/* Sets what we know of access to the peer's memory without a try. */
static void prepare_cma(struct sc_peer *peer)
{
	const struct sc_abi_header *header = &peer->seg->header;

	peer->cma = (struct sc_cma){ peer->seg->cma_pid, header->owner.cookie_addr, header->owner.cookie };
	peer->can_read = SC_REACH_NO;
	if (!peer->ep->config.cma)
		sc_info("%s: reading its memory is off (FI_SHMCMA_CMA); large messages from it go through "
			"shared memory",
			peer->address);
	else if (!peer->cma.pid)
		sc_info("%s: not visible in this pid namespace; large messages from it go through shared "
			"memory",
			peer->address);
	else
		peer->can_read = SC_REACH_UNKNOWN;
}

/* May we read that process's memory? Each direction of each pair is asked by itself. */
bool sc_peer_can_read_slow(struct sc_peer *peer)
{
	int ret = sc_cma_read(&peer->cma, NULL, 0, NULL, 0, 0);

	if (ret)
		sc_info("%s: process_vm_readv of pid %d: %s; large messages from it go through shared "
			"memory "
			"(same user, dumpable, Yama ptrace_scope 0 and no seccomp filter would allow it)",
			peer->address, (int)peer->cma.pid, strerror(-ret));
	peer->can_read = ret ? SC_REACH_NO : SC_REACH_YES;
	return !ret;
}

/* Reviews look at it from now on: one that is under way, too, as it comes to the end of their list. */
static void enter(struct sc_peer *peer)
{
	if (!peer->present)
		move(peer, &peer->ep->peers);
}

static void meet_seg(struct sc_peer *peer, struct sc_seg *seg)
{
	enter(peer);
	peer->seg = seg;
	prepare_cma(peer);
	sc_watch_add(&peer->watch, seg, &peer->ep->bell);
}

static int attach(struct sc_peer *peer)
{
	struct sc_seg *seg;
	int ret;

	if (peer->seg)
		return 0;
	ret = sc_seg_attach(peer->address, &seg);
	if (!ret)
		meet_seg(peer, seg);
	return ret;
}

static int claim(struct sc_peer *peer)
{
	uint64_t *claims = sc_seg_claims(peer->seg);
	uint64_t mine = ticket(peer) | SC_ABI_CLAIMED;

	for (uint32_t i = 0; i < peer->seg->header.slot_count; i++)
		if (!sc_load_relaxed_64(&claims[i]) && sc_cas_acq_rel_64(&claims[i], 0, mine)) {
			(void)SC_FAULT("peer.claimed");
			peer->out_slot = i;
			return 0;
		}
	return -EUSERS;
}

/*
 * The peer lets us in when it has opened our segment by its name, or already has it, as it has connected to us. When
 * this process ends (exit(3), in another thread, or before this call) the name goes, unless a claim says that it is
 * needed. -EAGAIN: it is being decided.
 */
static int check_name(const struct sc_peer *peer)
{
	enum sc_shmfile_end end;

	sc_fence_seq_cst(); /* E1: our claim before that; pairs with E1' in sc_shmfile_unlink_all() */
	end = sc_shmfile_end(&peer->ep->seg->file);
	if (is_heard(peer) || end == SC_SHMFILE_NAMED || end == SC_SHMFILE_KEPT)
		return 0;
	return end == SC_SHMFILE_ASKED ? -EAGAIN : -ESHUTDOWN;
}

/* It may be another's from now on. */
static void unclaim(struct sc_peer *peer)
{
	sc_store_release_64(&sc_seg_claims(peer->seg)[peer->out_slot], 0);
	(void)SC_FAULT("peer.unclaimed");
	peer->out_slot = NO_SLOT;
}

static const char *connect_advice(int error)
{
	switch (error) {
	case -EUSERS:
		return "it is full: as many peers are connected to it as FI_SHMCMA_PEERS allows there; the next "
		       "operation tries again, or raise that limit";
	case -ENOSPC:
		return "/dev/shm is full; free space there or give the container a larger one";
	case -ECONNREFUSED:
		return "nobody has that address: the process has closed it or ended";
	case -EMFILE:
		return "no descriptor left; raise the limit (ulimit -n)";
	case -EHOSTUNREACH:
		return "it is on another machine or uses another /dev/shm";
	case -EALREADY:
		return "it is connected already";
	case -EPROTO:
		return "it is not what it says it is, or another version";
	case -ESHUTDOWN:
		return "this process is ending: exit(3) has been called, and no new peer can attach its endpoint";
	default:
		return "its own log or the line before says more";
	}
}

/* May it go better the next time? */
static bool is_transient(int error)
{
	return error == -EAGAIN || error == -EMFILE || error == -ENFILE || error == -ENOMEM ||
	       error == -ENOSPC;
}

static void answer_slot(struct sc_ep *ep, uint32_t index, enum sc_abi_answer how, int reason)
{
	struct sc_abi_consumer *consumer = &sc_seg_slot(ep->seg, index)->consumer;

	sc_store_relaxed_32((uint32_t *)&consumer->reason, (uint32_t)-reason); /* ordered by the next */
	(void)SC_FAULT("peer.reason");
	/* P4 release: pairs with P4' in review_answer() and has_unread() */
	sc_store_release_32(&consumer->answer, how);
	(void)SC_FAULT("peer.answered");
}

/* To a peer that has been let in. */
static void answer_broken(struct sc_peer *peer, int reason)
{
	answer_slot(peer->ep, peer->in_slot, SC_ABI_BROKEN, reason);
	if (peer->seg)
		bump(peer->seg, SC_ABI_CHANGED);
}

/* It reads nothing more of what it was lent, nor writes into it; and no message is read that it has left there. */
static void take_loans_back(struct sc_peer *peer)
{
	sc_pool_reclaim(&peer->ep->pool, &peer->loans);
	peer->returnables.count = 0;
}

/* Nothing is sent to it any more, and nothing that was lent to it comes back by itself. */
static void end_link(struct sc_peer *peer, int error)
{
	peer->link = SC_LINK_DOWN;
	sc_list_remove(&peer->unanswered);
	sc_list_remove(&peer->borrower);
	peer->error = error;
	peer->tx.lines = NULL;
	peer->units_limit = 0;
	sc_hold_end(peer);
	/* one that we give up while it keeps the rules may still be reading what it was lent; or be writing there */
	if (error == -EPROTO || error == -ECONNRESET)
		sc_pool_return_others(&peer->ep->pool, &peer->loans, UINT64_MAX, SC_POOL_FIRST,
				      peer->returnables.bufs, peer->returnables.count);
	drop_replies(peer);
}

/*
 * It has come to us, and nobody has its address any more: it has ended, is ending by exit(3), or has lost its
 * name, which is told to it. We take the records that it has written first, see sc_peer_drained(). Its slot is its own
 * until it departs, or is known to be dead.
 */
static int vanish(struct sc_peer *peer)
{
	if (peer->feed == SC_FEED_UP) {
		peer->feed = SC_FEED_DRAINING;
		peer->vanished = true;
		answer_broken(peer, -ECONNRESET);
	}
	end_link(peer, -ECONNRESET);
	return -ECONNRESET;
}

int sc_peer_connect(struct sc_peer *peer)
{
	struct sc_abi_slot *slot;
	int ret;

	ret = attach(peer);
	if (ret)
		goto failed;
	ret = claim(peer);
	if (ret)
		goto failed;
	ret = check_name(peer);
	if (!ret)
		ret = sc_seg_slot_alloc(peer->seg, peer->out_slot);
	if (ret) {
		unclaim(peer);
		goto failed;
	}
	slot = sc_seg_slot(peer->seg, peer->out_slot);
	memcpy(slot->intro.address, peer->ep->seg->header.address, SC_ADDR_SIZE);
	(void)SC_FAULT("peer.intro");
	sc_ring_tx_init(&peer->tx, slot);
	peer->tx.sleep = &sc_seg_presence(peer->seg)->sleep;
	peer->units_limit = peer->seg->header.window;
	peer->link = SC_LINK_UP;
	peer->full = false;
	sc_source_meet(peer);
	peer->ep->counters.connects++;
	/* P1 release: pairs with P1' in sc_peers_review() */
	sc_store_release_64(&sc_seg_claims(peer->seg)[peer->out_slot], ticket(peer) | SC_ABI_PUBLISHED);
	(void)SC_FAULT("peer.published");
	bump(peer->seg, SC_ABI_CAME);
	sc_list_append(&peer->ep->unanswered, &peer->unanswered);
	sc_ep_begin(peer->ep);
	return 0;

failed:
	sc_log_again(ret == -EUSERS && peer->full);
	sc_warn("cannot connect to %s: %s: %s", peer->address, strerror(-ret), connect_advice(ret));
	sc_log_again(false);
	peer->full = ret == -EUSERS;
	if (ret == -ECONNREFUSED && is_heard(peer))
		ret = vanish(peer);
	else if (!peer->full && !is_transient(ret))
		sc_peer_lose(peer, ret);
	return ret;
}

/* ---- again ----------------------------------------------------------------------------------- */

/* Is there a file of its name, another than that of the one that is lost? A system call. */
static bool is_back(const struct sc_peer *peer)
{
	ino_t ino = peer->seg ? peer->seg->ino : peer->ino;
	dev_t dev = peer->seg ? peer->seg->dev : peer->dev;
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;

	/* a peer whose file could not be examined, or that is from elsewhere, stays lost */
	if ((!ino && peer->error != -ECONNREFUSED) || !sc_list_empty(&peer->waiting) ||
	    sc_addr_parse(peer->address, &parts))
		return false;
	sc_addr_file(&parts, name);
	return sc_shmfile_is_taken(name, dev, ino);
}

/* Has all ended that there was with it? */
static bool is_parted(const struct sc_peer *peer)
{
	return sc_list_empty(&peer->ending) && !is_heard(peer) && !peer->seg;
}

/* Is there anything of it in a list, or on its way? */
static bool is_busy(const struct sc_peer *peer)
{
	const struct sc_list *const lists[] = {
		&peer->ops,	 &peer->turns,	    &peer->replies,   &peer->borrower,	 &peer->hold.of_ep,
		&peer->rma_queued, &peer->rma_waiting, &peer->rma_busy, &peer->batch,	 &peer->batching,
		&peer->offers,	 &peer->offering,   &peer->assisted,  &peer->asking,	 &peer->assisting,
		&peer->serving,	 &peer->serving_peer, &peer->transfers, &peer->copying, &peer->pulling,
		&peer->fenced,	 &peer->unanswered, &peer->ending,
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		if (!sc_list_empty(lists[i]))
			return true;
	return peer->arriving || peer->arriving_op || peer->rma_pending;
}

/* Has the peer gone for good, or never been here, with nothing under way? Takes back what was lent to it. */
static bool is_over(struct sc_peer *peer)
{
	/* attached in vain: it was full, or was not let in */
	if (peer->seg && !peer->users && peer->link == SC_LINK_NONE && peer->feed == SC_FEED_NONE)
		sc_peer_part(peer);
	if (!is_parted(peer) || peer->link == SC_LINK_UP || peer->in_slot != NO_SLOT || is_busy(peer))
		return false;
	/* it has closed or died, and reads no more; a peer that failed for another reason may still read its loans */
	if (peer->error == -ECONNRESET) {
		take_loans_back(peer);
		sc_pool_reclaim(&peer->ep->pool, &peer->answers);
	}
	return !peer->loans.count && !peer->answers.count;
}

bool sc_peer_is_free(struct sc_peer *peer)
{
	return !peer->users && sc_list_empty(&peer->waiting) && is_over(peer);
}

void sc_peer_keep(struct sc_peer *peer)
{
	if (is_over(peer))
		move(peer, &peer->ep->absent);
	else
		enter(peer);
}

void sc_peer_reconsider(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	if (sc_list_empty(&peer->doubted))
		sc_list_append(&ep->doubted, &peer->doubted);
	sc_ep_begin(ep);
}

void sc_peer_settle(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;

	sc_list_remove(&peer->doubted);
	if (sc_peer_is_free(peer)) {
		move(peer, &ep->leaving);
		ep->leaving_fresh++;
	} else if (is_over(peer)) {
		move(peer, &ep->absent);
	}
}

/* As it was when nothing had been sent to it, but for its places in lists and what others call it. */
static void renew(struct sc_peer *peer)
{
	struct sc_peer last = *peer;

	assert(is_parted(peer) && sc_list_empty(&peer->ops) && sc_list_empty(&peer->turns) &&
	       !peer->rma_pending && sc_list_empty(&peer->serving) && sc_list_empty(&peer->assisting) &&
	       sc_list_empty(&peer->transfers) &&
	       !peer->arriving && !peer->arriving_op);
	/* a closed peer reads no more, whether or not it could say so */
	take_loans_back(peer);
	sc_pool_reclaim(&peer->ep->pool, &peer->answers);
	if (last.source->lost == peer) {
		last.source->lost = NULL;
		last.source->error = 0;
	}
	peer_init(peer, last.ep, last.source, last.address);
	peer->user = last.user;
	peer->users = last.users;
	peer->next = last.next;
	peer->all = last.all;
	peer->present = last.present;
	peer->doubted = last.doubted;
	peer->of_source = last.of_source;
	peer->dev = last.dev;
	peer->ino = last.ino;
	peer->arrivals = last.arrivals;
	peer->hazard_count = last.hazard_count;
}

/* Was the link lost for want of a place, and has all ended that there was with it, its claim of a slot of ours too? */
static bool may_retry(const struct sc_peer *peer)
{
	return peer->full && is_parted(peer) && peer->in_slot == NO_SLOT && sc_list_empty(&peer->waiting);
}

/* The link is lost. */
static int connect_again(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	uint32_t seen = ep->membership;
	struct sc_seg *seg;
	int ret;

	if (may_retry(peer)) {
		renew(peer);
		return sc_peer_connect(peer);
	}
	if (!is_back(peer))
		return peer->error;
	/* the last one's claims, all of them made before */
	review_claims(ep);
	if (!is_parted(peer) || ep->membership != seen) {
		sc_ep_begin(ep); /* it goes on with the next poll */
		return -EAGAIN;
	}
	ret = sc_seg_attach(peer->address, &seg);
	if (ret)
		return is_transient(ret) ? ret : peer->error;
	if (sc_load_acquire_32(&sc_seg_presence(seg)->state) != SC_ABI_OPEN) {
		sc_seg_detach(seg);
		return peer->error;
	}
	renew(peer);
	meet_seg(peer, seg);
	sc_info("%s: it has been opened again", peer->address);
	return sc_peer_connect(peer);
}

int sc_peer_reach(struct sc_peer *peer)
{
	if (peer->link == SC_LINK_UP) {
		if (!sc_peer_has_closed(peer))
			return 0;
		(void)sc_peers_review(peer->ep, true);
		if (peer->link == SC_LINK_UP) {
			sc_ep_begin(peer->ep);
			return -EAGAIN; /* first what it has written */
		}
	}
	return peer->link == SC_LINK_DOWN ? connect_again(peer) : sc_peer_connect(peer);
}

void sc_peer_expect(struct sc_peer *peer)
{
	struct sc_source *source = peer->source;

	(void)sc_peers_review(peer->ep, true); /* it may have come, and gone since */
	if (source->error != SC_SOURCE_UNMET)
		return;
	source->error = 0;
	(void)sc_peer_connect(peer);
}

bool sc_peer_is_back(const struct sc_peer *peer)
{
	return peer->link == SC_LINK_DOWN && is_back(peer) && !sc_seg_find(peer->address);
}

bool sc_peer_can_answer(struct sc_peer *peer)
{
	int ret;

	if (peer->feed == SC_FEED_DRAINING || peer->feed == SC_FEED_DONE)
		return false;
	ret = peer->link == SC_LINK_NONE   ? sc_peer_connect(peer)
	      : peer->link == SC_LINK_DOWN ? peer->error
					   : 0;
	if (ret && !peer->vanished)
		sc_peer_quarantine(peer, ret, "it wants an answer and cannot be connected to");
	return !ret;
}

static void inbound_add(struct sc_peer *peer)
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
	peer->rx.lines = NULL;
}

/*
 * Free a slot. The next peer must not find the lines of the last one: if the memory cannot be given back
 * it is cleared, and if it is not sure that there is any (`refused`), the slot stays out of use. Beyond its first page
 * the writer that lets the ring grow clears it.
 */
static void slot_return(struct sc_ep *ep, uint32_t slot, bool refused)
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

/* Read nothing more from the peer; if it has not gone itself, tell it. */
static void end_feed(struct sc_peer *peer, int error)
{
	bool departed = peer->feed == SC_FEED_DRAINING && !peer->vanished;
	bool gone = departed || (error == -ECONNRESET && !peer->vanished);
	uint64_t claim;

	inbound_remove(peer);
	peer->feed = SC_FEED_DONE;
	/* one that keeps the rules may still be reading its answers; that it has gone is seen later */
	if (gone || error == -EPROTO)
		sc_pool_reclaim(&peer->ep->pool, &peer->answers);
	if (gone)
		take_loans_back(peer);
	if (!departed) {
		answer_broken(peer, error);
		peer->ep->refused = true;
		return;
	}
	claim = sc_load_relaxed_64(&sc_seg_claims(peer->ep->seg)[peer->in_slot]); /* DEPARTED: its last */
	if (claim & SC_ABI_CLAIM_UNREAD && peer->seg)
		sc_seg_leave(peer->seg);
	slot_return(peer->ep, peer->in_slot, false);
	peer->in_slot = NO_SLOT;
}

void sc_peer_lose(struct sc_peer *peer, int error)
{
	struct sc_ep *ep = peer->ep;

	if (is_heard(peer))
		end_feed(peer, error);
	if (sc_list_empty(&peer->ending))
		sc_list_append(&ep->ending, &peer->ending);
	sc_ep_begin(ep);
	/* of one that has vanished, only now: its messages could be received */
	if (peer->link != SC_LINK_DOWN || peer->met)
		sc_source_part(peer, error);
	if (peer->link != SC_LINK_DOWN)
		end_link(peer, error);
}

void sc_peer_publish(struct sc_peer *peer)
{
	if (peer->ep->cleans)
		sc_ring_clean(&peer->rx, peer->ep->polls);
	sc_hold_end(peer);
	sc_ring_publish(&peer->rx, peer->units_back);
	peer->lent = 0;
	sc_peer_wake(peer, SC_ABI_SLEEP_ROOM);
}

void sc_peers_give_back_slow(struct sc_ep *ep, uint32_t polls)
{
	sc_list_for_safe (entry, next, &ep->holding) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, hold.of_ep);

		if (ep->polls - peer->hold.poll < polls)
			return; /* nor have the others been for longer */
		sc_peer_publish(peer);
	}
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
	return peer->cma.pid && !sc_cma_read(&peer->cma, NULL, 0, NULL, 0, 0);
}

bool sc_peer_is_dead(const struct sc_peer *peer)
{
	return sc_watch_has_ended(&peer->watch) || sc_reap_owner_is_dead(peer->seg);
}

/* Has the kernel said that its process ends, or execs? */
static bool is_marked(const struct sc_peer *peer)
{
	/* relaxed: the proof comes from the kernel */
	return sc_load_relaxed_32(&sc_seg_presence(peer->seg)->life) & SC_ABI_LIFE_ENDED;
}

/* A process that execs has its life lock still when its memory is already another program's; its word is marked. */
bool sc_peer_is_there_slow(const struct sc_peer *peer)
{
	if (is_marked(peer))
		return shows_cookie(peer);
	return sc_seg_check_owner(peer->seg) == 1 || shows_cookie(peer);
}

/* Has it run for so long that it would have reported what it had in hand? */
static bool is_overdue_slow(struct sc_peer *peer)
{
	uint64_t time = (uint64_t)sc_clock_ns();

	if (time - peer->share_seen < RUNS_APART)
		return false;
	peer->share_seen = time;
	if (!peer->seg->cma_pid || sc_host_is_stopped(peer->seg->cma_pid)) {
		peer->share_runs = 0;
		return false;
	}
	if (++peer->share_runs < RUNS)
		return false;
	if (peer->share_runs == RUNS)
		sc_warn("%s: it says that it is copying a message and does not come to an end: its "
			"process "
			"breaks the rules, restart it",
			peer->address);
	return true;
}

bool sc_peer_leaves(struct sc_peer *peer, struct sc_share *share)
{
	struct sc_share_part undone;
	int error;

	return sc_share_close(share) || sc_share_outstanding(share, &error, &undone) <= 0 ||
	       sc_peer_is_dead(peer) || is_overdue_slow(peer);
}

bool sc_peer_writes(struct sc_peer *peer)
{
	const uint64_t *word;

	if (peer->in_slot == NO_SLOT || !peer->seg)
		return false; /* it has departed */
	word = &sc_seg_slot(peer->ep->seg, peer->in_slot)->hazards.words[0];
	sc_fence_seq_cst(); /* our answer before its word; pairs with the fence in get_store() of target.c */
	/* acquire: its records come before */
	return (uint32_t)sc_load_acquire_64(word) == SC_ABI_HAZARD_OP && !sc_peer_is_dead(peer) &&
	       !is_overdue_slow(peer);
}

int sc_peer_outstanding(struct sc_peer *peer, const struct sc_share *share, int *error,
			struct sc_share_part *undone)
{
	int ret = sc_share_outstanding(share, error, undone);

	if (ret < 0)
		sc_peer_quarantine(peer, ret, "chunks that it cannot have copied");
	/* now and then: it costs as much as 100 looks at the words */
	if (ret > 0 && ++peer->share_looks % SHARE_LOOKS == 0 && sc_peer_is_dead(peer))
		sc_peer_ended(peer);
	return ret;
}

/* Dead: it writes nothing more, neither records nor its claim. We take in the records that it has published first. */
static void bury(struct sc_peer *peer)
{
	peer->ep->counters.deaths++;
	sc_warn("%s: its process has died; operations with it fail", peer->address);
	if (peer->feed == SC_FEED_UP || peer->vanished)
		peer->feed = SC_FEED_DRAINING;
	else
		sc_peer_lose(peer, -ECONNRESET);
	peer->vanished = false;
}

static bool is_watched(const struct sc_peer *peer)
{
	return peer->seg && peer->link != SC_LINK_DOWN && peer->feed != SC_FEED_DRAINING;
}

void sc_peer_ended(struct sc_peer *peer)
{
	bool dead = sc_peer_is_dead(peer);

	sc_peers_review(peer->ep, true); /* has it departed, or come and written? */
	if (!is_watched(peer))
		return;
	if (dead)
		bury(peer); /* in the middle of closing, maybe: it will not depart */
	else if (peer->feed == SC_FEED_NONE)
		sc_peer_lose(peer, -ECONNRESET);
}

/* The answer to a claim whose slot cannot be written to: in the claim itself. */
static void refuse_claim(struct sc_ep *ep, uint32_t index, uint64_t claim)
{
	sc_store_release_64(&sc_seg_claims(ep->seg)[index], claim | SC_ABI_CLAIM_REFUSED);
	(void)SC_FAULT("peer.refused");
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
		detach(peer);
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
	return !peer->seg && sc_reap_is_orphan(peer->address);
}

/* Finds or makes the peer that has introduced itself in a slot, and attaches its segment. */
static int meet(struct sc_ep *ep, uint32_t index, uint64_t claim, char address[SC_ADDR_SIZE],
		struct sc_peer **met)
{
	struct sc_peer *peer;
	int ret;

	memcpy(address, sc_seg_slot(ep->seg, index)->intro.address, SC_ADDR_SIZE);
	address[SC_ADDR_SIZE - 1] = '\0';
	ret = find_or_make(ep, address, &peer);
	if (ret)
		return ret;
	*met = peer;
	if (may_retry(peer))
		renew(peer);
	else if (peer->full && peer->in_slot != NO_SLOT)
		return -EAGAIN; /* its last claim is to be returned first */
	if (peer->feed != SC_FEED_NONE || peer->in_slot != NO_SLOT)
		return -EALREADY;
	if (peer->link == SC_LINK_DOWN && !has_left(peer, claim))
		return peer->error;
	ret = peer->link == SC_LINK_DOWN ? 0 : attach(peer);
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
	if (ret && is_transient(ret) && !put_off(ep, index, ret))
		return false;
	if (ret) {
		/* anything may stand there: control characters are for no log */
		sc_warn("%s a peer that calls itself '%s' (slot %u): %s: %s",
			is_transient(ret) ? "cannot let in yet" : "refused",
			sc_addr_kind(address) == SC_ADDR_INVALID ? "(no address)" : address, index,
			strerror(-ret), connect_advice(ret));
		if (is_transient(ret))
			return false;
		ep->counters.refusals++;
		ep->refused = true;
		if (memory)
			refuse_claim(ep, index, claim);
		else
			answer_slot(ep, index, SC_ABI_REFUSED, ret);
		return true;
	}
	if (peer->link == SC_LINK_DOWN) { /* nothing has been sent to it: it is let in to be read */
		sc_list_remove(&peer->ending);
		peer->error = -ECONNRESET;
	} else {
		sc_source_meet(peer);
	}
	enter(peer);
	peer->in_slot = index;
	sc_ring_rx_init(&peer->rx, sc_seg_slot(ep->seg, index));
	peer->feed = SC_FEED_UP;
	inbound_add(peer);
	ep->counters.accepts++;
	answer_slot(ep, index, SC_ABI_ACCEPTED, 0); /* nothing waits for it: sc_peers_ask() will find it */
	if (is_left_by_dead(peer, claim))
		bury(peer);
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
		peer->in_slot = NO_SLOT;
		take_loans_back(peer);
		sc_pool_reclaim(&ep->pool, &peer->answers);
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

static int review_claims(struct sc_ep *ep)
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
			slot_return(ep, i, true);
			changes++;
		} else if (peer->feed == SC_FEED_UP || peer->vanished) {
			peer->feed = SC_FEED_DRAINING;
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

/* Is the slot ours as we have left it? A claim is nobody else's to change, but for the answer in it. */
static bool holds_slot(const struct sc_peer *peer, uint64_t claim)
{
	return (claim & ~SC_ABI_CLAIM_REFUSED) == (ticket(peer) | SC_ABI_PUBLISHED);
}

/* Has the peer answered our connection, or taken the answer back? */
static int review_answer(struct sc_peer *peer)
{
	/* P4' acquire: pairs with P4 in answer_slot() */
	uint32_t how = sc_load_acquire_32(&peer->tx.consumer->answer);
	/* relaxed: a word of its own */
	uint64_t claim = sc_load_relaxed_64(&sc_seg_claims(peer->seg)[peer->out_slot]);
	int reason;

	if (!holds_slot(peer, claim)) {
		peer->out_slot = NO_SLOT; /* it may be another's */
		sc_peer_quarantine(peer, -EPROTO, "our claim of a slot with it has been overwritten");
		return 1;
	}
	if (how == SC_ABI_PENDING && claim & SC_ABI_CLAIM_REFUSED) {
		sc_warn("%s: refused the connection: it has no memory for it; see its own log",
			peer->address);
		take_loans_back(peer);
		sc_peer_lose(peer, -ECONNREFUSED);
		return 1;
	}
	if (how != SC_ABI_PENDING)
		sc_list_remove(&peer->unanswered);
	if (how != SC_ABI_REFUSED && how != SC_ABI_BROKEN)
		return 0;
	reason = (int)sc_load_relaxed_32((uint32_t *)&peer->tx.consumer->reason);
	/* no peer refuses for a reason that may pass, and an endpoint that is told to try again would for ever */
	if (reason <= 0 || reason > 4095 || (how == SC_ABI_REFUSED && is_transient(-reason)))
		reason = EPROTO;
	peer->full = reason == EUSERS;
	sc_warn("%s: %s: %s: %s", peer->address,
		how == SC_ABI_REFUSED ? "refused the connection" : "has given up the connection",
		strerror(reason),
		how == SC_ABI_BROKEN && peer->full
			? "this endpoint is full and cannot be answered; raise FI_SHMCMA_PEERS here"
			: connect_advice(-reason));
	sc_peer_lose(peer, how == SC_ABI_REFUSED || peer->full ? -reason : -ECONNRESET);
	take_loans_back(peer);
	return 1;
}

/*
 * Its state is neither OPEN nor CLOSED: somebody has proven that its process has died. The word alone is no proof, as
 * anybody who has the segment attached can write there.
 */
static int review_ended(struct sc_peer *peer)
{
	if (!is_watched(peer))
		return 0;
	if (sc_peer_is_dead(peer)) {
		if (peer->feed == SC_FEED_NONE)
			review_claims(peer->ep);
		if (is_watched(peer))
			bury(peer);
		return 1;
	}
	if (sc_seg_check_owner(peer->seg) != 1)
		return 0; /* it cannot be told just now */
	sc_peer_quarantine(peer, -EPROTO, "its state has been overwritten: it says that its process has ended, which runs");
	return 1;
}

/*
 * Reads what a peer that we send to says about itself and about us. One that has closed may have come to us, and
 * written, since the claims were looked at: they are once more, after its state.
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
			review_claims(peer->ep);
		if (is_heard(peer))
			return 0; /* first what it has written: sc_peer_drained() */
		sc_log(sc_list_empty(&peer->ops) ? SC_LOG_INFO : SC_LOG_WARN,
		       "%s: its process has closed it; messages to it that are under way fail",
		       peer->address);
		sc_peer_lose(peer, -ECONNRESET);
		return 1;
	}
	return peer->link == SC_LINK_UP ? review_answer(peer) : 0;
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
		if (!sc_reap_is_orphan(peer->address) && !has_claimant_ended(claim))
			continue;
		bury(peer);
		ended++;
	}
	return ended;
}

/*
 * Slots of the dead that nobody returns: they died before they had published, or had been refused. The claims of a
 * process that has ended do not change any more.
 */
static int reclaim(struct sc_ep *ep)
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
		slot_return(ep, i, true);
		(void)SC_FAULT("peer.reclaimed");
		ended++;
	}
	return ended;
}

/* The next that there is something to ask about, NULL: none among the next `passes`. */
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
	int ended = due ? reclaim(ep) : 0;
	struct sc_peer *peer = next_watched(ep, &ep->watched, WATCH_PASSES);

	sc_seg_forget_found_late();
	if (!peer)
		return ended;
	if (!sc_peer_is_dead(peer)) {
		sc_seg_guard(peer->seg);
		return ended;
	}
	sc_peer_ended(peer);
	return ended + 1;
}

int sc_peers_glance(struct sc_ep *ep)
{
	struct sc_peer *peer = next_watched(ep, &ep->glanced, GLANCE_PASSES);

	/* marked before its memory is given back: the rest may take a while */
	if (!peer || !is_marked(peer) || !sc_peer_is_dead(peer))
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
	return ended + reclaim(ep);
}

int sc_peers_ask(struct sc_ep *ep)
{
	struct sc_peer *peer = sc_list_entry(ep->unanswered.next, struct sc_peer, unanswered);

	/* to the end: the next call asks another */
	sc_list_remove(&peer->unanswered);
	sc_list_append(&ep->unanswered, &peer->unanswered);
	return review_link(peer); /* it may have closed, too, without ever having heard of us */
}

int sc_peers_review(struct sc_ep *ep, bool all)
{
	/* P2' acquire: pairs with P2 in bump(); first, so that a later change is seen next time */
	uint32_t now = sc_load_acquire_32(&sc_seg_presence(ep->seg)->membership);
	bool changed = (now ^ ep->membership) & ~(SC_ABI_CHANGED - 1);
	int changes;

	ep->membership = now;
	changes = review_claims(ep);
	if (!all && !changed)
		return changes;
	sc_list_for (entry, &ep->peers)
		changes += review_link(sc_list_entry(entry, struct sc_peer, all));
	return changes;
}
