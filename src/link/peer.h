/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer.h: how two endpoints connect, and part.
 *
 *	peer.c		the peers of an endpoint: by address, their memory, the end of a connection
 *	connect.c	this side connects
 *	accept.c	this side lets peers in, and returns the slots of the dead
 *	review.c	looks at what peers say of themselves and of us; peers that come back
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
 *   P1 release, sc_peer_connect(): slot before claim PUBLISHED     pairs with  P1' sc_peer_review_claims()
 *   P2 release, sc_peer_bump(): claim, answer, state before count  pairs with  P2' sc_peers_changed(), sc_peers_review()
 *   P3 release, sc_peers_close(): what was published before CLOSED   with  P3' review_link()
 *   P4 release, sc_peer_answer_slot(): reason before answer        pairs with  P4' review_answer()
 *   P5 release, sc_peer_slot_return(): clean slot before claim 0   pairs with  P5' claim()
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
 * connect as if they had never met (sc_peer_renew()).
 *
 * Death between any two steps: before 2 nothing is shared. After 2 or 3 a claim is left whose ticket names
 * a dead process: the owner returns the slot in sc_peer_reclaim(), once nobody has that pid; so it does with the slot of
 * one that it has refused, and that dies then. After 5 the peer is connected and dead, as at any later time,
 * also in the middle of parting: the owner finds its life lock free, when it lets the peer in, when the daemon
 * says so, or in sc_peers_watch(), reads what was published and frees the slot. The first process that proves the death
 * writes ENDED for the dead owner (sc_owner_is_dead()), so that all others refuse at once what is posted to it. An
 * endpoint that has claimed a slot of an owner that has died takes its claim back in the same way. A peer that was let
 * in without its segment, because its name was gone, is known to be dead by its file, should that be back, or by its
 * pid. Lost until the owner closes are only slots of those that were in another pid namespace and died before 5, or
 * after they were refused.
 */
#ifndef SC_PEER_H
#define SC_PEER_H

#include <assert.h>
#include "link/state.h"

int sc_peers_init(struct sc_ep *ep);

/* Something has ended that referred to the peer, or was under way with it. It stays as it is until the next sc_forget(). */
void sc_peer_reconsider(struct sc_peer *peer);

/* For forget.c: the outcome of a second look at it: it leaves, or is absent, or neither. */
void sc_peer_settle(struct sc_peer *peer);

/* For forget.c: is it as reconsidering wants it, so that its completions and receives are to be looked at? */
bool sc_peer_is_free(struct sc_peer *peer);
/* It is not, or its address is known: out of sc_ep.leaving. */
void sc_peer_keep(struct sc_peer *peer);
/* Take it out of all that finds it, and free it. */
void sc_peer_free(struct sc_peer *peer);

/* Tell that this endpoint closes; then let all go. In a forked child nothing of the parent's is touched. */
void sc_peers_close(struct sc_ep *ep);
void sc_peers_fini(struct sc_ep *ep);

/*
 * Has a connected peer closed, or has somebody proven that its process has died? Nothing that is written to it now is
 * read. One load, of a line that sc_wake() reads anyway.
 */
static inline bool sc_peer_has_closed(const struct sc_peer *peer)
{
	const struct sc_abi_presence *presence =
		sc_list_entry(peer->tx.sleep, struct sc_abi_presence, sleep);

	/* acquire: its closing comes before all that its owner does later */
	return sc_load_acquire_32(&presence->state) != SC_ABI_OPEN;
}

/* Has it let us in? Its own word tells: an endpoint whose operations are all direct need not poll. */
static inline bool sc_peer_has_come(const struct sc_peer *peer)
{
	/* relaxed: it polls, no more is concluded from it */
	return sc_load_relaxed_32(&peer->tx.consumer->answer) == SC_ABI_ACCEPTED;
}

/*
 * The level of a log line about a copy by CMA that has failed with `error` (negative errno): SC_LOG_WARN once in a
 * process if copies are forbidden; SC_LOG_INFO if it concerns one peer.
 */
enum sc_log_level sc_peer_cma_level(int error);

/* May we copy from the peer's memory? From the first to the last time it is asked, which has it tried. */
bool sc_peer_can_read_slow(struct sc_peer *peer);

static inline bool sc_peer_can_read(struct sc_peer *peer)
{
	if (__builtin_expect(peer->can_read == SC_REACH_UNKNOWN, 0))
		return sc_peer_can_read_slow(peer);
	return peer->can_read == SC_REACH_YES;
}

/* Has one that we are connected to said that it has given us up? */
static inline bool sc_peer_has_given_up(const struct sc_peer *peer)
{
	/* acquire: its saying so comes before all that it does with its memory later */
	return sc_load_acquire_32(&peer->tx.consumer->answer) == SC_ABI_BROKEN;
}

/* Is the endpoint of an attached peer open, and its memory what it was when it asked? */
static inline bool sc_peer_is_open(const struct sc_peer *peer)
{
	return sc_load_acquire_32(&sc_seg_presence(peer->seg)->state) == SC_ABI_OPEN;
}

/* Can be copied from and to its memory, for what it has asked? */
static inline bool sc_peer_may_copy(struct sc_peer *peer)
{
	return peer->seg && peer->link != SC_LINK_DOWN && sc_peer_is_open(peer) && sc_peer_can_read(peer);
}

/*
 * Has the process of an attached peer died? Its life lock is free, and nothing else says that it lives: after
 * that it touches no memory any more. A system call, or a few.
 */
bool sc_peer_is_dead(const struct sc_peer *peer);

/*
 * Does its word of life say that it is that process that has the pid, right now? True proves reads from its memory
 * until now, too, of a caller that has had a fence in between: the kernel marks the word before the process gives up
 * its memory or its pid. One that is killed for want of memory may have lost the list of its words by then; so this is
 * for peers that the daemon's thread watches, too, which hears of that within milliseconds (of one that has just been
 * met: GATHER_APART_MS); and for this process itself. False: it cannot be told by that. Some loads.
 */
static inline bool sc_peer_shows_life(const struct sc_peer *peer)
{
	/* acquire: no access to its memory moves before this load; it may die after the load, before the access */
	uint32_t life = sc_load_acquire_32(&sc_seg_presence(peer->seg)->life);

	return life && !(life & ~SC_ABI_LIFE_TID) && (peer->watch.process || peer->seg->lender) &&
	       !sc_watch_has_ended(&peer->watch);
}

/* Was it the peer's memory that has been read until now? 0: yes; -ESRCH and others: it cannot be told. */
static inline int sc_peer_prove_read(const struct sc_peer *peer)
{
	int ret;

	sc_fence_seq_cst(); /* the read comes before */
	if (peer->seg && sc_peer_shows_life(peer))
		return 0;
	ret = sc_cma_read(&peer->cma, &(struct sc_cma_copy){ 0 });
	return ret == -EFAULT ? -ESRCH : ret;
}

/*
 * Read memory of an attached peer, as sc_cma_read(). `prove`: its word of life proves whose it was, for a load, or if
 * that says nothing the cookie, which goes with the read. Else it is for sc_peer_prove_read() to be believed.
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
 * Is it that process, right now, that has the pid by which memory of the peer's is to be written? False when
 * it cannot be told: others are not to be written to. (A read is proven after it, see cma.c.) One load, if its
 * word of life is well; else life lock or cookie say.
 */
bool sc_peer_is_there_slow(const struct sc_peer *peer);

static inline bool sc_peer_is_there(const struct sc_peer *peer)
{
	return sc_peer_shows_life(peer) || sc_peer_is_there_slow(peer);
}

/* The membership count has changed since it was last reviewed. */
static inline bool sc_peers_changed(const struct sc_ep *ep)
{
	return sc_load_acquire_32(&sc_seg_presence(ep->seg)->membership) != ep->membership;
}

/* It writes for us, or waits for us; something that it looks at has changed. */
static inline void sc_peer_wake(const struct sc_peer *peer, uint64_t who)
{
	if (peer->seg)
		sc_wake(&sc_seg_presence(peer->seg)->sleep, who);
}

/* Tell the peer how far its ring is read. */
void sc_peer_publish(struct sc_peer *peer);

/* Buffers of peers' that have been held for so many polls, or longer, are theirs again, see hold.h. */
void sc_peers_give_back_slow(struct sc_ep *ep, uint32_t polls);

static inline void sc_peers_give_back(struct sc_ep *ep, uint32_t polls)
{
	if (__builtin_expect(!sc_list_empty(&ep->holding), 0))
		sc_peers_give_back_slow(ep, polls);
}

/* Units of its messages are done with: the peer may send that much again, and is told so now and then. */
static inline void sc_peer_give_back(struct sc_peer *peer, uint64_t units)
{
	peer->units_back += units;
	if (__builtin_expect(peer->units_back - peer->rx.window >= peer->ep->window_step, 0) &&
	    peer->rx.at.lines)
		sc_peer_publish(peer);
}

/*
 * The peer broke the protocol or cannot be answered: nothing is read from it or sent to it any more, it
 * is told by our answer in its slot, and its operations end with `error` (negative errno).
 */
void sc_peer_quarantine(struct sc_peer *peer, int error, const char *why);

/* The link is lost: pending operations are to end with `error` (negative errno). */
void sc_peer_lose(struct sc_peer *peer, int error);

/* The last of a peer whose link is lost and whose operations have ended: tell it, and let go its memory. */
void sc_peer_part(struct sc_peer *peer);

/* Everything a departed peer has written has been read: give up its slot. */
void sc_peer_drained(struct sc_peer *peer);

/* ---- for connect.c, accept.c and review.c ---------------------------------------------------- */

#define SC_PEER_NO_SLOT UINT32_MAX

/* Are the records that it writes taken in? */
static inline bool sc_peer_is_heard(const struct sc_peer *peer)
{
	return peer->feed == SC_FEED_UP || peer->feed == SC_FEED_DRAINING;
}

/* The edges are drawn in state.h. */
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

/* Add SC_ABI_CAME or SC_ABI_CHANGED to the segment's membership count, and wake its owner if it sleeps. */
void sc_peer_bump(const struct sc_seg *seg, uint32_t by);

/* Our ticket, in the peer's segment: by it the owner finds out, should we die before step 5. */
uint64_t sc_peer_ticket(const struct sc_peer *peer);

/* Let the peer's segment go. */
void sc_peer_detach(struct sc_peer *peer);

/* The peer of that address; it is made if there is none. -EINVAL: no address of an endpoint; -ENOMEM. */
int sc_peer_find_or_make(struct sc_ep *ep, const char *addr, struct sc_peer **found);

/* Reviews look at it from now on: one that is under way, too, as it comes to the end of their list. */
void sc_peer_enter(struct sc_peer *peer);

/* Answer the peer that has claimed that slot here; `reason`: negative errno, or 0. */
void sc_peer_answer_slot(struct sc_ep *ep, uint32_t index, enum sc_abi_answer how, int reason);

/* Take the acceptance of a peer back, and tell it. `reason`: negative errno. */
void sc_peer_answer_broken(struct sc_peer *peer, int reason);

/* It reads nothing more of what it was lent, nor writes into it; and no message is read that it has left there. */
void sc_peer_take_loans_back(struct sc_peer *peer);

/* Nothing is sent to it any more, and nothing that was lent to it comes back by itself. */
void sc_peer_end_link(struct sc_peer *peer, int error);

/* Has all ended that there was with it? */
bool sc_peer_is_parted(const struct sc_peer *peer);

/* As it was when nothing had been sent to it, but for its places in lists and what others call it. */
void sc_peer_renew(struct sc_peer *peer);

/* Was the link lost for want of a place, and has all ended that there was with it, its claim of a slot of ours too? */
bool sc_peer_may_retry(const struct sc_peer *peer);

/* The rings that are polled include that of this peer from now on. */
void sc_peer_inbound_add(struct sc_peer *peer);

/*
 * Free a slot. The next peer must not find the lines of the last one: if the memory cannot be given back
 * it is cleared, and if it is not sure that there is any (`refused`), the slot stays out of use. Beyond its first page
 * the writer that lets the ring grow clears it.
 */
void sc_peer_slot_return(struct sc_ep *ep, uint32_t slot, bool refused);

/* Has the kernel said that its process ends, or execs? */
bool sc_peer_is_marked(const struct sc_peer *peer);

/* Dead: it writes nothing more, neither records nor its claim. We take in the records that it has published first. */
void sc_peer_bury(struct sc_peer *peer);

#endif
