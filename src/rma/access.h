/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACCESS_H
#define SC_ACCESS_H

#include "link/state.h"

/* An access to registered memory of this process. */
struct sc_access {
	uint64_t key, addr, len;
	uint32_t how;		  /* SC_REG_READ, SC_REG_WRITE, or both */
	const struct sc_reg *reg; /* the registration, once found */
};

/* The registration that has the key, if it allows the access. -EKEYREJECTED, -EACCES, -EINVAL. */
int sc_access_find(const struct sc_ep *ep, struct sc_access *access);

/* Copies all bytes: from the vector with SC_REG_WRITE, else into it. -EIO: the memory is not there. */
int sc_access_copy(struct sc_ep *ep, const struct sc_access *access, const struct iovec *iov, size_t count);

/*
 * Counts an access in the counters that are bound for that. reg NULL: closed meanwhile. An operation that returns former
 * values and changes them counts as a read for the endpoint, by fi_endpoint(3), and for the memory as a write as well,
 * as fi_mr(3) has it for all that modifies it; a counter for both counts it once.
 */
void sc_access_count(struct sc_ep *ep, const struct sc_reg *reg, uint32_t how);

/* A request has been done; `event`: the last of its operation. */
void sc_access_served(struct sc_ep *ep, const struct sc_access *access, bool event);

/* The application has the immediate data of a put of `len` bytes. */
void sc_access_complete(struct sc_peer *peer, uint64_t data, uint64_t len);

/* Would such a completion be one too many? The peer is pushed back then, by its ring. */
bool sc_access_is_crowded(const struct sc_comp_ring *cq);

#endif
