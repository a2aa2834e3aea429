/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_FORGET_H
#define SC_FORGET_H

#include "link/state.h"

/*
 * Frees peers that nothing refers to. The caller must hold no peer without a reference, and walk no list of peers.
 * Returns 0: a poll does not count it as progress.
 */
int sc_forget(struct sc_ep *ep);

#endif
