/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REG_H
#define SC_REG_H

#include "link/state.h"

/*
 * Shows the registrations of the endpoint's table to its peers from now on, later ones too. Does nothing without a
 * table, or if the endpoint is strict. -ENOSPC: shared memory is full; ...
 */
int sc_regs_join(struct sc_ep *ep);

/*
 * Ends that, after sc_peers_close(), before the endpoint's memory goes. Returns when no peer copies under a
 * registration, or to the destination of an operation of ours; waits SC_REG_WAIT_MS for a peer that is stopped or does
 * not end.
 */
void sc_regs_leave(struct sc_ep *ep);

/* Milliseconds that sc_reg_close() waits for a running peer; then it returns -EBUSY. */
#define SC_REG_WAIT_MS 5000

#endif
