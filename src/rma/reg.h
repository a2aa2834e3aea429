/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REG_H
#define SC_REG_H

#include "link/state.h"

/*
 * Shows the endpoint's peers the registrations in its table from now on, and those that come later. Does nothing if it
 * has no table, or is strict. -ENOSPC: shared memory is full; ...
 */
int sc_regs_join(struct sc_ep *ep);

/*
 * The endpoint shows nothing any more; after sc_peers_close(), before its memory goes. Returns when no
 * peer copies under what it has shown, or to where an operation of ours wants it; one that is stopped, or
 * does not come to an end, is waited for SC_REG_WAIT_MS.
 */
void sc_regs_leave(struct sc_ep *ep);

/* How long sc_reg_close() waits for a peer that is running, milliseconds; then it is -EBUSY. */
#define SC_REG_WAIT_MS 5000

#endif
