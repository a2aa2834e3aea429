/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.h: how two endpoints connect, and how they part.
 *
 * An endpoint connects by writing to the peer's segment; the peer need not run. The connecting endpoint
 *
 *   1. attaches the peer's segment,
 *   2. claims a slot there            (claims[i]: 0 -> ticket | CLAIMED, compare and swap)
 *   3. gives the slot memory          (fallocate: a full /dev/shm is an error here, never a SIGBUS later)
 *   4. writes its address into the slot
 *   5. publishes the claim            (claims[i] = ticket | PUBLISHED, release; then membership + CAME)
 *
 * and may write records at once. The owner of the segment sees the count in its next poll, finds the claim, attaches
 * the peer's segment, and answers ACCEPTED, or REFUSED with a reason. The connecting endpoint looks for the answer in
 * its polls (sc_peers_ask()), so an endpoint that only sends notices a refusal, too. An endpoint looks at all its links
 * only when a peer has added CHANGED.
 *
 *   P1 release, sc_peer_connect(): slot before claim PUBLISHED     pairs with  P1' sc_peer_review_claims()
 *      release, say_goodbye(): the last records before claim DEPARTED  pairs with  P1', too
 *   P2 release, sc_peer_bump(): claim, answer, state before count  pairs with P2' sc_peers_changed(), sc_peers_review()
 *   P3 release, sc_peers_close(): published records before CLOSED  pairs with  P3' review_link()
 *   P4 release, sc_peer_answer_slot(): reason before answer        pairs with  P4' review_answer()
 *   P5 release, sc_peer_slot_return(): clean slot before claim 0   pairs with  P5' claim()
 *   P6 fence, sc_peers_close(): CLOSED before the claims   pairs with  P6' say_goodbye(): claim before CLOSED
 *
 * Parting: an endpoint that closes stores CLOSED in its presence and DEPARTED in its claims, then adds to the counts.
 * The peer reads the published records, then frees the slot. If the peer closes before it sees DEPARTED, the peer never
 * reads the file. Then the peer or the owner clears the mark UNREAD (P6) and subtracts 1 from `unread`.
 *
 * forget.c frees a peer that has gone, once everything with it has ended and nothing refers to it. Until then the peer
 * is in sc_ep.absent, as is a peer of which only the address is known: no review looks at that list.
 *
 * An address can come back: a process closes an endpoint and opens the same index of the same name (struct sc_ep_name)
 * again, in a new file. A sender looks for that file once it knows that the last endpoint has gone, and the structure
 * of the last one becomes that of the new one (connect_again()). The two do not mix:
 *
 *   - The owner of the last endpoint departs everywhere and unlinks the file before it opens the name again. An
 *     operation in flight ends with the last endpoint, and only then the sender connects to the new one. The file stays for
 *     nobody (sc_ep_attr.reopens): a peer that has not attached it does not see the answers in its bounce buffers.
 *   - Each send first looks whether the peer has closed (sc_peer_has_closed()), and the last endpoint closes before the
 *     new one opens. So no later message reaches the last one.
 *   - A peer whose messages still wait here does not come back: those messages belong to the last endpoint.
 *   - The new endpoint may connect first, for a receive from one peer. The peer lets it in once everything with the last
 *     one has ended there (is_successor() in accept.c). While messages of the last one wait there, it is refused
 *     (-EALREADY); the provider opens only receive contexts again, which send no messages.
 *   - A claim that the last endpoint has left may be seen only after this side has connected to the new one. It is dropped
 *     (is_of_last() in accept.c).
 *
 * Step 2 fails with -EUSERS while the peer has no free slot: the link stays NONE, attached, and the next operation
 * tries again. If such a full peer asks for an answer, this endpoint gives up the connection and tells the peer so
 * (SC_ABI_BROKEN, EUSERS). Both set `full`; when everything between the two has ended, either may connect as if they
 * had never met (sc_peer_renew()). A peer that comes again while a message of it still waits is refused with EUSERS, so
 * that it stays `full`.
 *
 * If memory or descriptors are short, a record that asks for an answer stays in the ring, and all behind it, until this
 * endpoint has connected (sc_peer_prepare_answer()): once the record is taken, only the end of the connection could
 * tell the peer that no answer comes.
 *
 * If the connecting process dies before 2, nothing is shared. If it dies before 5, a claim remains with the ticket of a
 * dead process. The owner frees the slot in sc_peer_reclaim(), once no process has that pid; the same holds for a
 * refused peer that dies. After 5 the peer is connected and dead, as at any later time, also while it parts: the owner
 * finds the life lock free when it lets the peer in, when the daemon says so, or in sc_peers_watch(); it reads the
 * published records and frees the slot. An endpoint that has claimed a slot of a dead owner finds that in the same way,
 * and gives up its claim.
 *
 * The first process that proves a death writes ENDED for the dead owner (sc_owner_is_dead()), so that all others refuse
 * new operations to it at once. If the name of a peer's file was gone when the peer was let in, its file, if it is
 * back, or its pid shows the death. Such a peer has no answer until it is given up, so it goes on looking for one: without
 * its segment nobody can add CHANGED there. A slot is lost until its owner closes only if the claimant was in another pid
 * namespace and died before 5, or after a refusal.
 */
#ifndef SC_PEER_H
#define SC_PEER_H

#include <assert.h>
#include "link/state.h"

int sc_peers_init(struct sc_ep *ep);

/* Notes that a reference to the peer, or an operation with it, has ended. The next sc_forget() looks at the peer. */
void sc_peer_reconsider(struct sc_peer *peer);

/* For forget.c: moves the peer to sc_ep.leaving or sc_ep.absent, or leaves it where it is. */
void sc_peer_settle(struct sc_peer *peer);

/* For forget.c: tells whether the peer is over, and only completions and receives may still refer to it. */
bool sc_peer_is_free(struct sc_peer *peer);
/* For forget.c: takes the peer out of sc_ep.leaving, but keeps it. */
void sc_peer_keep(struct sc_peer *peer);
/* For forget.c: takes the peer out of all lists, and frees it. */
void sc_peer_free(struct sc_peer *peer);

/*
 * Marks this endpoint CLOSED; then parts from all peers and frees them. A forked child touches nothing of the parent's.
 */
void sc_peers_close(struct sc_ep *ep);
void sc_peers_fini(struct sc_ep *ep);

/*
 * Tells whether a connected peer has closed, or has been proven dead. No process reads what is written to it now. One
 * load, of a line that sc_wake() reads anyway.
 */
static inline bool sc_peer_has_closed(const struct sc_peer *peer)
{
	const struct sc_abi_presence *presence =
		sc_list_entry(peer->tx.sleep, struct sc_abi_presence, sleep);

	/* acquire: its closing comes before everything that its owner does later */
	return sc_load_acquire_32(&presence->state) != SC_ABI_OPEN;
}

/*
 * Tells whether the peer has let this endpoint in, by the answer itself: an endpoint may do direct operations and not
 * poll. The peer writes the line of the answer with each operation that it does, so this reads it until it says yes.
 */
static inline bool sc_peer_has_come(struct sc_peer *peer)
{
	/* relaxed: the caller concludes only that the peer polls */
	if (!peer->has_come)
		peer->has_come = sc_load_relaxed_32(&peer->tx.consumer->answer) == SC_ABI_ACCEPTED;
	return peer->has_come;
}

/*
 * The level of a log line about a copy by CMA that has failed with `error` (negative errno): SC_LOG_WARN once in a
 * process if copies are forbidden; SC_LOG_INFO if it concerns one peer.
 */
enum sc_log_level sc_peer_cma_level(int error);

/* Tells whether CMA can read the peer's memory. The first call tries it. */
bool sc_peer_can_read_slow(struct sc_peer *peer);

static inline bool sc_peer_can_read(struct sc_peer *peer)
{
	if (__builtin_expect(peer->can_read == SC_REACH_UNKNOWN, 0))
		return sc_peer_can_read_slow(peer);
	return peer->can_read == SC_REACH_YES;
}

/* Tells whether a connected peer has given up the connection. */
static inline bool sc_peer_has_given_up(const struct sc_peer *peer)
{
	/* acquire: its answer comes before everything that it does with its memory later */
	return sc_load_acquire_32(&peer->tx.consumer->answer) == SC_ABI_BROKEN;
}

/* Tells whether the endpoint of an attached peer is open, and so the memory that it has named is still valid. */
static inline bool sc_peer_is_open(const struct sc_peer *peer)
{
	return sc_load_acquire_32(&sc_seg_presence(peer->seg)->state) == SC_ABI_OPEN;
}

/* Tells whether this process may copy from and to the memory that a peer's request names. */
static inline bool sc_peer_may_copy(struct sc_peer *peer)
{
	return peer->seg && peer->link != SC_LINK_DOWN && sc_peer_is_open(peer) && sc_peer_can_read(peer);
}

/*
 * Tells whether the process of an attached peer has died: its life lock is free, and no other sign says that it lives.
 * It touches no memory any more then. A system call, or a few.
 */
bool sc_peer_is_dead(const struct sc_peer *peer);

/*
 * Tells whether the word of life proves that the peer's process has its pid right now. True also proves an earlier read
 * by that pid, if a full fence is between the read and the call: the kernel marks the word before the process loses its
 * memory or its pid. False: unknown. Some loads.
 *
 * A process that is killed for want of memory may lose the list of its words before that. So true needs a peer that the
 * daemon's thread watches, which learns of that within milliseconds (for a new peer: GATHER_APART_MS), or one of this
 * process.
 */
static inline bool sc_peer_shows_life(const struct sc_peer *peer)
{
	/* acquire: no access to its memory moves before this load; it may die between the load and the access */
	uint32_t life = sc_load_acquire_32(&sc_seg_presence(peer->seg)->life);

	return life && !(life & ~SC_ABI_LIFE_TID) && (peer->watch.process || peer->seg->lender) &&
	       !sc_watch_has_ended(&peer->watch);
}

/* Proves that what has been read until now was the peer's memory. 0: it was; -ESRCH and others: unknown. */
static inline int sc_peer_prove_read(const struct sc_peer *peer)
{
	int ret;

	sc_fence_seq_cst(); /* the read comes before the word */
	if (peer->seg && sc_peer_shows_life(peer))
		return 0;
	ret = sc_cma_read(&peer->cma, &(struct sc_cma_copy){ 0 });
	return ret == -EFAULT ? -ESRCH : ret;
}

/*
 * Reads memory of an attached peer, as sc_cma_read(). `prove`: the word of life proves whose memory it was, for a load,
 * or else the cookie, which is part of the read. Otherwise the caller must call sc_peer_prove_read() before it uses the
 * bytes.
 */
static inline int sc_peer_read(const struct sc_peer *peer, const struct sc_cma_copy *copy, bool prove)
{
	struct sc_cma cma = peer->cma;
	bool shows_life = prove && sc_peer_shows_life(peer);
	int ret;

	if (!prove || shows_life)
		cma.cookie_addr = 0;
	ret = sc_cma_read(&cma, copy);
	if (ret == -EFAULT)
		ret = sc_cma_fault(&peer->cma);
	return !ret && shows_life ? sc_peer_prove_read(peer) : ret;
}

/*
 * Tells whether the peer's process has its pid right now, so that its memory may be written by that pid. False also if
 * that is unknown: no other process may be written to. (A read is proven after it, see cma.c.) Some loads if the word
 * of life proves it, else the life lock or the cookie tells.
 */
bool sc_peer_is_there_slow(const struct sc_peer *peer);

static inline bool sc_peer_is_there(const struct sc_peer *peer)
{
	return sc_peer_shows_life(peer) || sc_peer_is_there_slow(peer);
}

static inline bool sc_peers_changed(const struct sc_ep *ep)
{
	/* P2' acquire: pairs with P2 in sc_peer_bump() */
	return sc_load_acquire_32(&sc_seg_presence(ep->seg)->membership) != ep->membership;
}

/* Wakes a peer that waits for `who` (SC_ABI_SLEEP_*), as something that it looks at has changed. */
static inline void sc_peer_wake(const struct sc_peer *peer, uint64_t who)
{
	if (peer->seg)
		sc_wake(&sc_seg_presence(peer->seg)->sleep, who);
}

/* Tells the peer how far its ring is read, which gives back all held buffers. */
void sc_peer_publish(struct sc_peer *peer);

/* Gives back buffers of peers that have been held for `polls` polls or longer, see hold.h. */
void sc_peers_give_back_slow(struct sc_ep *ep, uint32_t polls);

static inline void sc_peers_give_back(struct sc_ep *ep, uint32_t polls)
{
	if (__builtin_expect(!sc_list_empty(&ep->holding), 0))
		sc_peers_give_back_slow(ep, polls);
}

/* Returns units of the window to the peer, and tells the peer now and then. */
static inline void sc_peer_give_back(struct sc_peer *peer, uint64_t units)
{
	peer->units_back += units;
	if (__builtin_expect(peer->units_back - peer->rx.window >= peer->ep->window_step, 0) &&
	    peer->rx.at.lines)
		sc_peer_publish(peer);
}

/*
 * Gives up a peer that broke the protocol or cannot be answered: this endpoint reads nothing more from it and sends
 * nothing more to it, says so in its slot, and ends its operations with `error` (negative errno).
 */
void sc_peer_quarantine(struct sc_peer *peer, int error, const char *why);

/* Marks the link as lost: polls end the pending operations with `error` (negative errno). */
void sc_peer_lose(struct sc_peer *peer, int error);

/* Ends a lost connection whose operations have ended: tells the peer, and detaches it. */
void sc_peer_part(struct sc_peer *peer);

/* Gives up the slot of a departed peer, after all its records have been read. */
void sc_peer_drained(struct sc_peer *peer);

/* ---- for connect.c, accept.c and review.c ---------------------------------------------------- */

#define SC_PEER_NO_SLOT UINT32_MAX

/* Tells whether this endpoint takes in the peer's records. */
static inline bool sc_peer_is_heard(const struct sc_peer *peer)
{
	return peer->feed == SC_FEED_UP || peer->feed == SC_FEED_DRAINING;
}

/* state.h draws the permitted changes. */
static inline void sc_peer_set_link(struct sc_peer *peer, enum sc_link link)
{
	assert(link == SC_LINK_UP ? peer->link == SC_LINK_NONE
				  : link == SC_LINK_DOWN && peer->link != SC_LINK_DOWN);
	peer->link = link;
}

static inline void sc_peer_set_feed(struct sc_peer *peer, enum sc_feed feed)
{
	assert(feed == SC_FEED_UP ? peer->feed == SC_FEED_NONE
				  : feed > SC_FEED_UP && sc_peer_is_heard(peer));
	peer->feed = feed;
}

/* Adds SC_ABI_CAME or SC_ABI_CHANGED to the segment's membership count, and wakes its owner if it sleeps. */
void sc_peer_bump(const struct sc_seg *seg, uint32_t by);

/* Returns our ticket, for the peer's segment. It shows the owner if this process dies before step 5. */
uint64_t sc_peer_ticket(const struct sc_peer *peer);

void sc_peer_detach(struct sc_peer *peer);

/* Finds the peer with that address, or makes it. -EINVAL: no address of an endpoint; -ENOMEM. */
int sc_peer_find_or_make(struct sc_ep *ep, const char *addr, struct sc_peer **found);

/* Makes reviews look at the peer. A review that is under way does, too: the peer goes to the end of its list. */
void sc_peer_enter(struct sc_peer *peer);

/* Answers the peer that has claimed that slot of this endpoint; `reason`: negative errno, or 0. */
void sc_peer_answer_slot(struct sc_ep *ep, uint32_t index, enum sc_abi_answer how, int reason);

/* Takes back the acceptance of a peer, and tells the peer. `reason`: negative errno. */
void sc_peer_answer_broken(struct sc_peer *peer, int reason);

/*
 * Takes back all buffers lent to the peer, which must not read or write them any more. Messages left in them are not
 * read.
 */
void sc_peer_take_loans_back(struct sc_peer *peer);

/* Sets the link to DOWN: nothing more is sent to the peer, and lent buffers do not come back by themselves. */
void sc_peer_end_link(struct sc_peer *peer, int error);

/* Tells whether everything with the peer has ended, and it is detached. */
bool sc_peer_is_parted(const struct sc_peer *peer);

/*
 * Makes the peer new, as if nothing had been sent to it, except for its places in lists and how others know it. A source
 * that was lost with it stays lost until it is connected: sc_source_meet().
 */
void sc_peer_renew(struct sc_peer *peer);

/* Tells whether one side had no free slot, and everything between the two has ended, also the peer's claim here. */
bool sc_peer_may_retry(const struct sc_peer *peer);

/* Adds the ring of this peer to those that are polled. */
void sc_peer_inbound_add(struct sc_peer *peer);

/*
 * Frees a slot. The next peer must not find the lines of the last one: if the kernel does not take the memory back, the
 * function clears it, or keeps the slot out of use if it may have no memory (`refused`). It clears the first page only;
 * the writer that lets the ring grow clears the rest.
 */
void sc_peer_slot_return(struct sc_ep *ep, uint32_t slot, bool refused);

/* Tells whether the kernel says that the peer's process ends, or execs. */
bool sc_peer_is_marked(const struct sc_peer *peer);

/*
 * Marks the peer as dead: it writes nothing more, neither records nor its claim. Its published records are taken in
 * first.
 */
void sc_peer_bury(struct sc_peer *peer);

#endif
