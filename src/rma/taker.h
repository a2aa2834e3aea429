/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TAKER_H
#define SC_TAKER_H

#include "link/state.h"

/* Takes a delegated put. -ENOMEM: no space for its completion, so it stays in the ring; -EPROTO with *why. */
int sc_taker_put(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Takes a delegated get. -ENOMEM: no free buffers, so it stays in the ring; -EPROTO with *why. */
int sc_taker_get(struct sc_peer *peer, uint64_t ctl, const char **why);

#endif
