/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REQUEST_H
#define SC_REQUEST_H

#include "link/state.h"

/* Queues it behind the others; requests that have room are written at once. It is counted as pending from now on. */
void sc_request_queue(struct sc_rma_op *op);

/*
 * Takes an answer of the target. -EPROTO: it answers no request; *why says more where that is not all.
 */
int sc_request_take(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Write the records of operations that wait for room. Returns how many. */
int sc_request_progress(struct sc_ep *ep);

#endif
