/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_FORGET_H
#define SC_FORGET_H

#include "state.h"

/* Is a pass due? */
static inline bool sc_forget_is_due(const struct sc_ep *ep)
{
	return ep->leaving_fresh > ep->leaving_step;
}

/* Forget peers that nothing refers to. No caller has a peer in hand that it has no reference to. */
void sc_forget(struct sc_ep *ep);

#endif
