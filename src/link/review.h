/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REVIEW_H
#define SC_REVIEW_H

#include "link/peer.h"

/*
 * Before a send: connects to the peer if it is not connected, or is lost and its address is opened again. -EAGAIN:
 * polls must first end everything with the last endpoint of that address; else as sc_peer_connect(), or why the link
 * was lost.
 */
int sc_peer_reach(struct sc_peer *peer);

/*
 * For a receive from a peer that has neither come nor been sent anything: connects to it, so that the receive ends when
 * the peer does. sc_source.error then tells whether no endpoint has the address; SC_SOURCE_UNMET: it cannot be attached
 * now. After another error that may pass (the peer is full) the receive waits for the peer to come.
 */
void sc_peer_expect(struct sc_peer *peer);

/*
 * This endpoint closes: takes it and its peers out of a shared receive queue. If nothing but posted receives refers to a
 * source any more, the first other endpoint of the queue connects to the peer, so that the receives end when the peer
 * does.
 */
void sc_peers_leave_rxq(struct sc_ep *ep);

/*
 * Looks in each poll at an attached peer without a connection: it has not attached this endpoint, which does not hear that
 * it closes. The peer stays until it comes, closes or dies.
 */
void sc_peer_await(struct sc_peer *peer);

/*
 * Tells whether a given-up peer that has memory of ours in hand has run for 20 seconds since, so that its words break
 * the rules. False at the first calls, and while its process is stopped. System calls, now and then.
 */
bool sc_peer_is_overdue(struct sc_peer *peer);

/*
 * Gets of a peer end early: tells whether the peer may still write to their memory. It says so by a hazard word in our
 * slot (target.c), and writes nothing once it can see that it has been given up. True: ask again. False also if it is
 * dead, or overdue as above.
 */
bool sc_peer_writes(struct sc_peer *peer);

/*
 * Looks whether the next peer's process lives, by a system call or two, and now and then for slots of the dead. A dead
 * peer's published records are taken in, then everything with it ends with -ECONNRESET. A live peer's segment is
 * guarded from then on. Returns how many have ended.
 */
int sc_peers_watch(struct sc_ep *ep);

/*
 * Looks whether the next peer's word of life is marked, for the time until the daemon's thread gets a processor. One
 * load; system calls only if it is. Returns 1 if the peer is dead.
 */
int sc_peers_check_life(struct sc_ep *ep);

/* After the daemon's bell: handles peers that the daemon has found dead, and slots of the dead. Returns how many. */
int sc_peers_hear(struct sc_ep *ep);

/* Looks whether the next unanswered connection has been answered. There must be one. */
int sc_peers_ask(struct sc_ep *ep);

/*
 * Looks for peers that have come, answered and gone; `all`: also where the membership count shows no change. Returns
 * the number of changes.
 */
int sc_peers_review(struct sc_ep *ep, bool all);

/* An attached peer was seen to have closed or died: it is lost as soon as its records have been read. */
void sc_peer_ended(struct sc_peer *peer);

#endif
