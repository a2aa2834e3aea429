/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REQUEST_H
#define SC_REQUEST_H

#include "link/state.h"

/* Queues an operation behind the others, and counts it as pending. Requests that have space are written at once. */
void sc_request_queue(struct sc_rma_op *op);

/* Takes an answer of the target. -EPROTO: it answers no request; *why may say more. */
int sc_request_take(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Writes records of operations that wait for space. Returns their number. */
int sc_request_progress(struct sc_ep *ep);

#endif
