/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REPLY_H
#define SC_REPLY_H

#include "link/state.h"

/* Answers that are kept for a peer that does not look at its ring. */
#define SC_REPLIES_MAX 65536

/* Answer a peer: the record is written now or, if its ring is full, as soon as it has room. */
void sc_reply(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t size, const uint64_t words[7]);

/* Write the answers that there is room for by now. Returns the number of records. */
int sc_replies_progress(struct sc_ep *ep);

#endif
