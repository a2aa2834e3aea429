/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RMA_H
#define SC_RMA_H

#include "state.h"

/* Requests of ours that a peer has not answered. */
#define SC_RMA_REQUESTS_MAX 64

/*
 * Answers of the process whose memory it is. -EPROTO: to nothing that it was asked; *why says more where it
 * is more than that.
 */
int sc_rma_take(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Write the records of operations that wait for room. Returns how many. */
int sc_rma_progress(struct sc_ep *ep);

/* The peer is lost: operations end with `error` (negative errno). */
void sc_rma_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: forget what is pending, without completions. */
void sc_rma_fini(struct sc_ep *ep);

#endif
