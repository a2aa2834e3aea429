/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TARGET_H
#define SC_TARGET_H

#include "link/state.h"

/*
 * Takes a one-sided request of a peer. -EAGAIN, -ENOMEM: the request is not over, and stays in the ring; -EPROTO with
 * *why.
 */
int sc_target_take(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Goes on with answers. Returns the number of steps. */
int sc_target_progress(struct sc_peer *peer);

/* Drops the answers to a peer that has gone. */
void sc_target_end_peer(struct sc_peer *peer);

void sc_target_fini(struct sc_ep *ep);

#endif
