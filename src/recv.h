/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RECV_H
#define SC_RECV_H

#include "state.h"

/* See core.h for what applications call. */

/* The link is lost: if it was the last of its source, receives from there alone end with `error` (negative errno). */
void sc_recv_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: forget what is posted, waiting and under way, without completions. */
void sc_recv_fini(struct sc_ep *ep);

#endif
