/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RMA_H
#define SC_RMA_H

#include "link/state.h"

/*
 * The peer is lost: operations end with `error` (negative errno). False: it has one in hand, ask again (assist.h).
 */
bool sc_rma_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: forget what is pending, without completions. */
void sc_rma_fini(struct sc_ep *ep);

#endif
