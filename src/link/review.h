/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REVIEW_H
#define SC_REVIEW_H

#include "link/peer.h"

/*
 * Before a send: connects to the peer if it is not connected, or is lost and its address has been opened again.
 * -EAGAIN: polls must first end everything with the last endpoint of that address; else as sc_peer_connect(), or the
 * error that the link was lost with.
 */
int sc_peer_reach(struct sc_peer *peer);

/*
 * Connects to the peer that a receive is directed to, if that peer has neither come nor been sent anything, so that the
 * receive ends when the peer does. sc_source.error then tells whether no endpoint has the address. If the connection
 * fails for another reason that may pass (the peer is full, no descriptor is left), the receive waits for the peer to
 * come.
 */
void sc_peer_expect(struct sc_peer *peer);

/* Tells whether a lost peer's address has been opened again. System calls. */
bool sc_peer_is_back(const struct sc_peer *peer);

/*
 * Tells whether a given-up peer that says it has memory of ours in hand has run for 20 seconds since, so that its words
 * break the rules. False at the first calls, and while its process is stopped. System calls, now and then.
 */
bool sc_peer_is_overdue(struct sc_peer *peer);

/*
 * For gets of a peer that end early: tells whether the peer may still write to their memory. The peer says so by a
 * hazard word in our slot (target.c), and writes nothing once it can see that it has been given up. True: ask again.
 * False also if it is dead or overdue.
 */
bool sc_peer_writes(struct sc_peer *peer);

/*
 * Looks whether the next peer's process lives, by a system call or two; now and then also looks for slots of dead
 * processes. If the peer is dead, this endpoint takes in its published records, then ends everything with it with
 * -ECONNRESET. If it lives, its segment is guarded from then on. Returns how many have ended.
 */
int sc_peers_watch(struct sc_ep *ep);

/*
 * Looks whether the kernel has marked the next peer's word of life, for the time until the daemon's thread gets a
 * processor. One load; system calls only if it is marked. Returns 1 if the peer is dead.
 */
int sc_peers_glance(struct sc_ep *ep);

/*
 * After the daemon's bell: handles the peers that the daemon has found dead, and slots of the dead. Returns how many.
 */
int sc_peers_hear(struct sc_ep *ep);

/* Looks whether the next peer without an answer to our connection has answered. There must be such a peer. */
int sc_peers_ask(struct sc_ep *ep);

/*
 * Looks for peers that have come, answered or gone. `all`: looks at every link, even if the membership count does not
 * say that one has changed. Returns the number of changes.
 */
int sc_peers_review(struct sc_ep *ep, bool all);

/* Handles an attached peer that was seen to have closed or died: it is lost as soon as its records have been read. */
void sc_peer_ended(struct sc_peer *peer);

#endif
