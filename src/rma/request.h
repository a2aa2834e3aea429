/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REQUEST_H
#define SC_REQUEST_H

#include "link/state.h"

/* Behind those that are queued; what has room is written at once. It is counted as pending from now on. */
void sc_request_queue(struct sc_rma_op *op);

/*
 * Answers of the process whose memory it is. -EPROTO: to nothing that it was asked; *why says more where it
 * is more than that.
 */
int sc_request_take(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Write the records of operations that wait for room. Returns how many. */
int sc_request_progress(struct sc_ep *ep);

#endif
