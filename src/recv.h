/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RECV_H
#define SC_RECV_H

#include "state.h"

/* See core.h for what applications call. */

/* The endpoint closes: forget what is posted, waiting and under way, without completions. */
void sc_recv_fini(struct sc_ep *ep);

#endif
