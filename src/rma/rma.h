/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RMA_H
#define SC_RMA_H

#include "link/state.h"

/*
 * Ends the operations with a lost peer with `error` (negative errno). False: the peer still has one in hand; call again
 * (assist.h).
 */
bool sc_rma_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: frees pending operations, without completions. */
void sc_rma_fini(struct sc_ep *ep);

#endif
