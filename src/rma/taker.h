/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TAKER_H
#define SC_TAKER_H

#include "link/state.h"

/* A delegated put. -ENOMEM: it stays in the ring, its completion finds no room; -EPROTO with *why. */
int sc_taker_put(struct sc_peer *peer, uint64_t ctl, const char **why);

/* A delegated get. -ENOMEM: it stays in the ring, no buffers are to spare; -EPROTO with *why. */
int sc_taker_get(struct sc_peer *peer, uint64_t ctl, const char **why);

#endif
