/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACK_H
#define SC_ACK_H

#include "link/state.h"

/* Tell the sender how its operation has ended. */
void sc_ack_send(struct sc_peer *peer, sc_abi_op op, uint64_t moved, int error);

/*
 * The acknowledgement of a message that was received: now or, if it is fenced, after those before it. `fence`: arrival
 * of a fenced message, 0: it is not fenced.
 */
void sc_ack_message(struct sc_peer *peer, sc_abi_op op, uint64_t moved, uint64_t fence);

/* A message that has waited is done with: those fenced behind it may be acknowledged. */
void sc_ack_fenced_slow(struct sc_peer *peer);

#endif
