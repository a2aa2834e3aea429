/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CONNECT_H
#define SC_CONNECT_H

#include "link/peer.h"

/*
 * Make the link to the peer: attach, claim a slot, publish. Does not wait for the peer. -EUSERS: the peer
 * is full, all its slots are taken; -ECONNRESET: it has come to us, and gone; else as sc_seg_attach(),
 * sc_seg_slot_alloc(). Final for this peer, but for -EUSERS, -EAGAIN, -EMFILE and -ENOMEM.
 */
int sc_peer_connect(struct sc_peer *peer);

/*
 * Make a link to answer it by, if there is none. False: there will be none. It has gone, and nobody waits for an
 * answer; we read its records all the same. Or it cannot be connected to, and is quarantined.
 */
bool sc_peer_can_answer(struct sc_peer *peer);

/* ---- for accept.c and review.c --------------------------------------------------------------- */

/* The peer's segment is attached: it is watched from now on. */
void sc_peer_meet_seg(struct sc_peer *peer, struct sc_seg *seg);
/* Attach the peer's segment, unless it is. Errors as sc_seg_attach(). */
int sc_peer_attach(struct sc_peer *peer);
/* For the log: the cause of a connection that fails with `error` (negative errno), and the remedy. */
const char *sc_peer_connect_advice(int error);
/* May it go better the next time? */
bool sc_peer_is_transient(int error);

#endif
