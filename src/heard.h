/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_HEARD_H
#define SC_HEARD_H

#include "state.h"

/* A peer with that address had come, and is forgotten. */
void sc_heard_add(struct sc_ep *ep, const char *addr);

/* Is it one of the last SC_HEARD_MAX of these, as far as its first `len` characters go: SC_ADDR_STEM or more? */
bool sc_heard_has(const struct sc_ep *ep, const char *addr, size_t len);

#endif
