/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACCESS_H
#define SC_ACCESS_H

#include "link/state.h"

/* An access to registered memory of this process. */
struct sc_access {
	uint64_t key, addr, len;
	uint32_t how;		  /* SC_REG_READ, SC_REG_WRITE, or both */
	struct sc_reg *reg;	  /* once found */
};

/* Finds the registration of the key, if it allows the access. -EKEYREJECTED, -EACCES, -EINVAL. */
int sc_access_find(const struct sc_ep *ep, struct sc_access *access);

/* Returns the knowledge of the pages of an access that its registration allows. */
struct sc_probe *sc_access_memory(struct sc_ep *ep, const struct sc_access *access);

/*
 * Returns where the access is, if that is one range in one page that is known to allow it, as for most small accesses.
 * NULL: that is not known.
 */
void *sc_access_known(struct sc_ep *ep, const struct sc_access *access);

/* Copies all bytes: from the vector with SC_REG_WRITE, else into it. -EIO: the memory is not mapped. */
int sc_access_copy(struct sc_ep *ep, const struct sc_access *access, const struct iovec *iov, size_t count);

/*
 * Counts an access in the counters that are bound for it. `flags`, of its record: SC_ABI_F_EVENT: it is the last one of
 * its operation; SC_ABI_F_KEYED: the last one to this registration, whose counters alone hear of it; neither: it does not
 * count. reg NULL: closed meanwhile. An operation that returns former
 * values and changes them counts as a read for the endpoint, by fi_endpoint(3), and also as a write for the memory, by
 * fi_mr(3); a counter for both counts it once.
 */
void sc_access_count(struct sc_ep *ep, const struct sc_reg *reg, uint32_t how, uint32_t flags);

/* Counts a request that is done; `flags` as for sc_access_count(). */
void sc_access_served(struct sc_ep *ep, const struct sc_access *access, uint32_t flags);

/* Reports the immediate data of a put of `len` bytes to the application. */
void sc_access_complete(struct sc_peer *peer, uint64_t data, uint64_t len);

/* Tells whether the record has remote data, and the queue no space for its completion. The ring then pushes the peer back. */
static inline bool sc_access_is_crowded(const struct sc_peer *peer, uint64_t ctl)
{
	const struct sc_comp_ring *cq = peer->ep->rx_cq;

	return sc_ctl_flags(ctl) & SC_ABI_F_DATA && cq && sc_comp_ring_is_full(cq);
}

#endif
