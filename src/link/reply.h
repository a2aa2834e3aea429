/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REPLY_H
#define SC_REPLY_H

#include "link/state.h"

/* The most answers that wait for a peer that does not read its ring. */
#define SC_REPLIES_MAX 65536

/* Answers a peer: writes the record now or, if the peer's ring is full, as soon as it has space. */
void sc_reply(struct sc_peer *peer, enum sc_abi_kind kind, const uint64_t words[7]);

/* Answers with ACK or DONE: the peer's operation has ended. */
void sc_reply_end(struct sc_peer *peer, enum sc_abi_kind kind, sc_abi_op op, uint64_t moved, int error);

/* Writes the waiting answers that now have space. Returns the number of records. */
int sc_replies_progress(struct sc_peer *peer);

#endif
