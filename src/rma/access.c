/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access.c: registered memory of this process, as operations of peers access it here: looked up, written, read, told of.
 *
 * Each look asks the private table (regtab.c), which no other process can write. Called by the thread that polls the
 * endpoint. Private memory but for the bytes themselves: whenever either side dies, they have been moved, or some, or
 * none.
 */
#include "rma/access.h"

#include <errno.h>
#include "base/iov.h"

/* ---- this process's memory ------------------------------------------------------------------- */

/* The registration that a request names, if it allows that. -EKEYREJECTED, -EACCES, -EINVAL. */
int sc_access_find(const struct sc_ep *ep, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
		struct sc_reg **found)
{
	struct sc_reg *reg = ep->regtab ? sc_regtab_own(ep->regtab, key) : NULL;

	*found = reg;
	return reg ? sc_reg_check(reg, addr, len, access) : -EKEYREJECTED;
}

/* Into registered memory, `len` bytes of the vector. */
int sc_access_store(struct sc_ep *ep, const struct sc_reg *reg, uint64_t addr, const struct iovec *from,
		 size_t from_count, uint64_t len)
{
	struct iovec to[SC_IOV_MAX], part[SC_IOV_MAX];
	struct sc_probe_copy copy = { .to = to, .from = part };
	int ret = 0;

	for (uint64_t done = 0, here; done < len && !ret; done += here) {
		here = len - done;
		copy.to_count = sc_reg_slice(reg, addr + done, &here, to, SC_IOV_MAX);
		copy.from_count = sc_iov_slice(from, from_count, done, here, part);
		copy.len = here;
		ret = sc_probe_write(&ep->memory, &copy);
	}
	return ret;
}

/* Out of registered memory. */
int sc_access_load(struct sc_ep *ep, const struct sc_reg *reg, uint64_t addr, const struct iovec *to,
		size_t to_count, uint64_t len)
{
	struct iovec from[SC_IOV_MAX], part[SC_IOV_MAX];
	struct sc_probe_copy copy = { .to = part, .from = from };
	int ret = 0;

	for (uint64_t done = 0, here; done < len && !ret; done += here) {
		here = len - done;
		copy.from_count = sc_reg_slice(reg, addr + done, &here, from, SC_IOV_MAX);
		copy.to_count = sc_iov_slice(to, to_count, done, here, part);
		copy.len = here;
		ret = sc_probe_read(&ep->memory, &copy);
	}
	return ret;
}

/* ---- what is told of it ---------------------------------------------------------------------- */

/*
 * Counts an access to memory here in the counters that are bound for that. reg NULL: closed meanwhile. An operation
 * that returns former values and changes them counts as a read for the endpoint, by fi_endpoint(3), and for the memory
 * as a write as well, as fi_mr(3) has it for all that modifies it; a counter for both counts it once.
 */
void sc_access_count(struct sc_ep *ep, const struct sc_reg *reg, uint32_t access)
{
	struct sc_cntr *reads = reg && access & SC_REG_READ ? reg->reads : NULL;
	struct sc_cntr *writes = reg && access & SC_REG_WRITE ? reg->writes : NULL;

	sc_ep_count(ep, access & SC_REG_READ ? SC_EVENT_REMOTE_READ : SC_EVENT_REMOTE_WRITE, NULL, 0, 0);
	if (writes)
		sc_cntr_add(&writes->value, 1);
	if (reads && reads != writes)
		sc_cntr_add(&reads->value, 1);
}

/* A request has been done; `event`: the last of its operation. */
void sc_access_served(struct sc_ep *ep, const struct sc_reg *reg, uint32_t access, bool event)
{
	ep->counters.rma_served++;
	if (event)
		sc_access_count(ep, reg, access);
}

void sc_access_complete(struct sc_peer *peer, uint64_t data, uint64_t len)
{
	struct sc_ep *ep = peer->ep;
	struct sc_comp *comp = ep->rx_cq ? sc_comp_ring_reserve(ep->rx_cq) : NULL;

	if (!comp)
		return;
	*comp = (struct sc_comp){
		.len = len, .data = data, .source = peer, .flags = SC_COMP_WRITTEN | SC_COMP_DATA
	};
	sc_comp_ring_commit(ep->rx_cq);
}

/* Would its completion be one too many? The peer is pushed back then, by its ring. */
bool sc_access_is_crowded(const struct sc_comp_ring *cq)
{
	return cq && sc_comp_ring_is_full(cq);
}
