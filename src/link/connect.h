/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CONNECT_H
#define SC_CONNECT_H

#include "link/peer.h"

/*
 * Connects to the peer: attaches, claims a slot, publishes. Does not wait for the peer. -EUSERS: all slots of the peer
 * are taken; -ECONNRESET: the peer has come to us, and gone; else as sc_seg_attach(), sc_seg_slot_alloc(). Final for
 * this peer, except -EUSERS and the errors of sc_peer_is_transient().
 */
int sc_peer_connect(struct sc_peer *peer);

/*
 * Connects to a peer before its record is taken that needs an answer. -ENOMEM: memory or descriptors are short; the
 * record stays in the ring, and a later poll tries again. -ECONNRESET: the peer cannot be connected to, and is
 * quarantined. 0: it is connected, or sc_peer_can_answer() says what happens.
 */
int sc_peer_prepare_answer(struct sc_peer *peer);

/* ---- for accept.c and review.c --------------------------------------------------------------- */

/* Begins to use and watch the peer's segment, which is attached. */
void sc_peer_meet_seg(struct sc_peer *peer, struct sc_seg *seg);
/*
 * Attaches the peer's segment, if it is not attached. Errors as sc_seg_attach(). -ECONNREFUSED also where the segment
 * is attached only to read what a gone peer has left (sc_peer.left). -EAGAIN: its process lives and announces the
 * address, and has no endpoint there yet.
 */
int sc_peer_attach(struct sc_peer *peer);
/* For the log: returns the cause of a connection that fails with `error` (negative errno), and the remedy. */
const char *sc_peer_connect_advice(int error);
/* Tells whether a later try may succeed. */
bool sc_peer_is_transient(int error);

/*
 * Tells whether a peer's address has been opened again, as far as is known: true also if descriptors are short. System
 * calls. False if messages of the last endpoint still wait.
 */
bool sc_peer_is_back(const struct sc_peer *peer);

#endif
