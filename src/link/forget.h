/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_FORGET_H
#define SC_FORGET_H

#include "link/state.h"

/* Forget peers that nothing refers to. No caller has a peer in hand that it has no reference to, or goes through a list. */
void sc_forget(struct sc_ep *ep);

#endif
