/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACK_H
#define SC_ACK_H

#include "link/state.h"

/*
 * Acknowledges a received message: at once or, if it is fenced, after the messages before it. `fence`: arrival of a
 * fenced message; 0: not fenced.
 */
void sc_ack_message(struct sc_peer *peer, sc_abi_op op, uint64_t moved, uint64_t fence);

/* Acknowledges fenced messages that no waiting message precedes any more. Called when a waiting message has ended. */
void sc_ack_fenced_slow(struct sc_peer *peer);

#endif
