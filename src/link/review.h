/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REVIEW_H
#define SC_REVIEW_H

#include "link/peer.h"

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

/* Is it lost, and somebody there who has opened its address again? System calls. */
bool sc_peer_is_back(const struct sc_peer *peer);

/*
 * A peer that is given up has memory of ours in hand: has it run for so long, 20 seconds, that it would have ended with
 * that, so that its words break the rules? False at the first calls, and while its process is stopped. System calls,
 * now and then.
 */
bool sc_peer_is_overdue(struct sc_peer *peer);

/*
 * Gets of a peer end early: may it be writing to their memory? It says so by a hazard word in our slot (target.c), and
 * writes nothing once it can see that it has been given up. True: ask again. As above, it is dead, or breaks the rules.
 */
bool sc_peer_writes(struct sc_peer *peer);

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

/*
 * Look for peers that have come, answered and gone; `all`: also at what the membership count does not say to have
 * changed. Returns the number of changes found.
 */
int sc_peers_review(struct sc_ep *ep, bool all);

/*
 * The process has been seen to have closed this attached peer, or to have ended: it is lost as soon as its records have
 * been read.
 */
void sc_peer_ended(struct sc_peer *peer);

#endif
