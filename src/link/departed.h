/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DEPARTED_H
#define SC_DEPARTED_H

#include "link/state.h"

/* Remembers the address of a peer that was connected, and is forgotten. */
void sc_departed_add(struct sc_ep *ep, const char *addr);

/* Tells whether one of the last SC_DEPARTED_MAX of these agrees in its first `len` characters: SC_ADDR_STEM or more. */
bool sc_departed_has(const struct sc_ep *ep, const char *addr, size_t len);

#endif
