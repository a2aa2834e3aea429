/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACCESS_H
#define SC_ACCESS_H

#include "link/state.h"

/* The registration that a request names, if it allows that. -EKEYREJECTED, -EACCES, -EINVAL. */
int sc_access_find(const struct sc_ep *ep, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
		   struct sc_reg **found);

/* Into registered memory, `len` bytes of the vector. */
int sc_access_store(struct sc_ep *ep, const struct sc_reg *reg, uint64_t addr, const struct iovec *from,
		    size_t from_count, uint64_t len);

/* Out of registered memory. */
int sc_access_load(struct sc_ep *ep, const struct sc_reg *reg, uint64_t addr, const struct iovec *to, size_t to_count,
		   uint64_t len);

/* Counts an access in the counters that are bound for that. reg NULL: closed meanwhile. */
void sc_access_count(struct sc_ep *ep, const struct sc_reg *reg, uint32_t access);

/* A request has been done; `event`: the last of its operation. */
void sc_access_served(struct sc_ep *ep, const struct sc_reg *reg, uint32_t access, bool event);

/* The application has the immediate data of a put of `len` bytes. */
void sc_access_complete(struct sc_peer *peer, uint64_t data, uint64_t len);

/* Would that completion be one too many? The peer is pushed back then, by its ring. */
bool sc_access_is_crowded(const struct sc_comp_ring *cq);

#endif
