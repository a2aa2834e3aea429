/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CONNECT_H
#define SC_CONNECT_H

#include "link/peer.h"

/*
 * Connects to the peer: attaches its segment, claims a slot, publishes the claim. Does not wait for the peer. -EUSERS:
 * all slots of the peer are taken; -ECONNRESET: the peer had come to this endpoint, and has gone; others as
 * sc_seg_attach() and sc_seg_slot_alloc(). Final for this peer, except -EUSERS and those of sc_peer_is_transient().
 */
int sc_peer_connect(struct sc_peer *peer);

/*
 * Connects to the peer, unless it is connected, to answer it. False: there will be no link. The peer has gone and does
 * not wait for answers, though its records are still read; or it cannot be connected to, and is quarantined.
 */
bool sc_peer_can_answer(struct sc_peer *peer);

/* ---- for accept.c and review.c --------------------------------------------------------------- */

/* Begins to use and watch the peer's segment, which is attached. */
void sc_peer_meet_seg(struct sc_peer *peer, struct sc_seg *seg);
/* Attaches the peer's segment, if it is not attached. Errors as sc_seg_attach(). */
int sc_peer_attach(struct sc_peer *peer);
/* Returns, for the log, the cause of a connection that fails with `error` (negative errno), and the remedy. */
const char *sc_peer_connect_advice(int error);
/* Tells whether a later try may succeed after this error. */
bool sc_peer_is_transient(int error);

#endif
