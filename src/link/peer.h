/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PEER_H
#define SC_PEER_H

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
 * Make the link to the peer: attach, claim a slot, publish. Does not wait for the peer. -EUSERS: the peer
 * is full, all its slots are taken; -ECONNRESET: it has come to us, and gone; else as sc_seg_attach(),
 * sc_seg_slot_alloc(). Final for this peer, but for -EUSERS, -EAGAIN, -EMFILE and -ENOMEM.
 */
int sc_peer_connect(struct sc_peer *peer);

/*
 * Something is to be sent to it: connect it if it is not connected, or not any more and its address has been opened
 * again. -EAGAIN: all that is under way with the last one of that address has to end first, in polls; else as
 * sc_peer_connect(), or why the link was lost.
 */
int sc_peer_reach(struct sc_peer *peer);

/*
 * A receive is directed to a peer that has not come and that nothing has been sent to. Connect to it, so that the receive
 * ends when the peer does; sc_source.error tells when that shows that nobody has the address. If the peer cannot be
 * connected to for another reason that may pass (it is full, no descriptor is left) the receive waits for it to come.
 */
void sc_peer_expect(struct sc_peer *peer);

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

/* Is it lost, and somebody there who has opened its address again? System calls. */
bool sc_peer_is_back(const struct sc_peer *peer);

/*
 * Make a link to answer it by, if there is none. False: there will be none. It has gone, and nobody waits for an
 * answer; we read its records all the same. Or it cannot be connected to, and is quarantined.
 */
bool sc_peer_can_answer(struct sc_peer *peer);

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
 * Look for peers that have come, answered and gone; `all`: also at what the membership count does not say to have
 * changed. Returns the number of changes found.
 */
int sc_peers_review(struct sc_ep *ep, bool all);

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
	ret = sc_cma_read(&peer->cma, NULL, 0, NULL, 0, 0);
	return ret == -EFAULT ? -ESRCH : ret;
}

/*
 * Read memory of an attached peer, as sc_cma_read(). `prove`: its word of life proves whose it was, for a load, or if
 * that says nothing the cookie, which goes with the read. Else it is for sc_peer_prove_read() to be believed.
 */
static inline int sc_peer_read(const struct sc_peer *peer, const struct iovec *local, size_t local_count,
			       const struct iovec *remote, size_t remote_count, size_t len, bool prove)
{
	struct sc_cma cma = peer->cma;
	bool shows_life = prove && sc_peer_shows_life(peer);
	int ret;

	if (!prove || shows_life)
		cma.cookie_addr = 0;
	ret = sc_cma_read(&cma, local, local_count, remote, remote_count, len);
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

/*
 * An operation ends early of which the peer may have chunks in hand (share.h): it is left nothing more to take. True: it
 * copies none of it any more. It has reported, or is dead, proven by its life lock, which the kernel frees after the
 * last access of a process to any memory; or it breaks the rules: its words cannot be, or it runs and does not report.
 * A chunk is taken, copied and reported in one call, so after 20 seconds of that it has none, whatever the words say.
 * False: it may, at the next call too if it is stopped.
 */
bool sc_peer_leaves(struct sc_peer *peer, struct sc_share *share);

/*
 * Gets of a peer end early: may it be writing to their memory? It says so by a hazard word in our slot (target.c), and
 * writes nothing once it can see that it has been given up. True: ask again. As above, it is dead, or breaks the rules.
 */
bool sc_peer_writes(struct sc_peer *peer);

/*
 * Finds the parts of a shared copy that the peer has in hand, as sc_share_outstanding() does. An impossible value ends
 * the connection; a peer that is found dead is lost.
 */
int sc_peer_outstanding(struct sc_peer *peer, const struct sc_share *share, int *error,
			struct sc_share_part *undone);

/*
 * Does the next peer's process live? One for each call, a system call or two. If it is dead, we take in the records
 * that it has published, then everything with it ends with -ECONNRESET, and the call returns 1. If it lives, its
 * segment is guarded from then on.
 */
int sc_peers_watch(struct sc_ep *ep);

/*
 * Has the next peer's word of life been marked? One load; system calls only then. For the time until the daemon's
 * thread gets a processor. Returns 1 if it was found dead.
 */
int sc_peers_glance(struct sc_ep *ep);

/* The daemon's bell has rung: see to the peers that it has found dead, and to slots of the dead. How many. */
int sc_peers_hear(struct sc_ep *ep);

/* Has the next of those that have not answered our connection done so? Some have not. */
int sc_peers_ask(struct sc_ep *ep);

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

/* Tell the peer how far its ring is read; those lines are cleaned before it has them. */
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
	    peer->rx.lines)
		sc_peer_publish(peer);
}

/*
 * The peer broke the protocol or cannot be answered: nothing is read from it or sent to it any more, it
 * is told by our answer in its slot, and its operations end with `error` (negative errno).
 */
void sc_peer_quarantine(struct sc_peer *peer, int error, const char *why);

/*
 * The process has been seen to have closed this attached peer, or to have ended: it is lost as soon as its records have
 * been read.
 */
void sc_peer_ended(struct sc_peer *peer);

/* The link is lost: pending operations are to end with `error` (negative errno). */
void sc_peer_lose(struct sc_peer *peer, int error);

/* The last of a peer whose link is lost and whose operations have ended: tell it, and let go its memory. */
void sc_peer_part(struct sc_peer *peer);

/* Everything a departed peer has written has been read: give up its slot. */
void sc_peer_drained(struct sc_peer *peer);

#endif
