/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TARGET_H
#define SC_TARGET_H

#include "link/state.h"

/*
 * A one-sided request of a peer. -EAGAIN: not over, it stays in the ring; -ENOMEM: likewise; -EPROTO with
 * *why.
 */
int sc_target_take(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Go on with answers. Returns the steps done. */
int sc_target_progress(struct sc_ep *ep);

/* The peer is gone: nobody waits for its answers. */
void sc_target_end_peer(struct sc_peer *peer);

/* The endpoint closes. */
void sc_target_fini(struct sc_ep *ep);

#endif
