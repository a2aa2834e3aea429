/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access.c: accesses of peers' operations to registered memory of this process: found, copied, counted.
 *
 * Each access searches the private table (regtab.c), which no other process can write. The thread that polls the
 * endpoint calls this. If either process dies, all bytes have been copied, or some, or none.
 */
#include "rma/access.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/iov.h"

int sc_access_find(const struct sc_ep *ep, struct sc_access *access)
{
	access->reg = ep->regtab ? sc_regtab_own(ep->regtab, access->key) : NULL;
	return access->reg ? sc_reg_check(access->reg, access->addr, access->len, access->how) : -EKEYREJECTED;
}

static __attribute__((noinline)) struct sc_probe *memory_make(struct sc_reg *reg)
{
	struct sc_probe *made = sc_probe_new(reg->ranges, reg->range_count), *there = NULL;

	/* release: what it points to; the first one stays, another thread may have made it */
	if (!made || __atomic_compare_exchange_n(&reg->memory, &there, made, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_ACQUIRE))
		return made;
	free(made);
	return there;
}

/* Returns the knowledge of the registration's pages, if it lasts; else NULL, also if there is no memory for it. */
static struct sc_probe *memory_of(struct sc_reg *reg)
{
	struct sc_probe *memory = __atomic_load_n(&reg->memory, __ATOMIC_ACQUIRE);

	if (__builtin_expect(!memory, 0))
		memory = memory_make(reg);
	return memory && memory->count ? memory : NULL;
}

/* Returns where the access is, if the registration has one range. */
static void *place_of(const struct sc_access *access)
{
	const struct sc_reg *reg = access->reg;

	return reg->range_count == 1 ? (char *)reg->ranges[0].iov_base + (access->addr - reg->base) : NULL;
}

/*
 * A page stays known as long as the registration is open: a correct application does not take registered memory away.
 * It stays known for one poll if the endpoint is strict, or if some of the memory was not mapped at the first access:
 * such an application has registered its whole address space, for example, and maps and unmaps parts of it later. An
 * operation with a wrong address must then fail, and not end the process. Memory that is mapped without access
 * (PROT_NONE) counts as mapped. For one poll, too, where ranges span more than SC_PROBE_PAGES.
 */
struct sc_probe *sc_access_memory(struct sc_ep *ep, const struct sc_access *access)
{
	struct sc_probe *memory = ep->config.strict ? NULL : memory_of(access->reg);
	struct iovec first = { place_of(access), 0 };
	uint64_t len = access->len;

	if (memory)
		return memory;
	if (!first.iov_base)
		(void)sc_reg_slice(access->reg, access->addr, &len, &first, 1);
	return sc_probe_around(&ep->memory, first.iov_base, ep->polls);
}

void *sc_access_known(struct sc_ep *ep, const struct sc_access *access)
{
	void *at = place_of(access);

	return at && sc_probe_knows(sc_access_memory(ep, access), at, access->len,
				    access->how == SC_REG_WRITE)
		       ? at
		       : NULL;
}

/* A function of its own for test/tsan.supp: the application may use the memory at the same time. */
static inline void copy_in_page(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
}

static int copy_slices(struct sc_probe *memory, const struct sc_access *access, const struct iovec *iov,
		       size_t count)
{
	bool write = access->how == SC_REG_WRITE;
	struct iovec ours[SC_IOV_MAX], part[SC_IOV_MAX];
	int ret = 0;

	for (uint64_t done = 0, here; done < access->len && !ret; done += here) {
		struct sc_probe_copy copy = { .to = write ? ours : part, .from = write ? part : ours };
		size_t ours_count, part_count;

		here = access->len - done;
		ours_count = sc_reg_slice(access->reg, access->addr + done, &here, ours, SC_IOV_MAX);
		part_count = sc_iov_slice(iov, count, done, here, part);
		copy.to_count = write ? ours_count : part_count;
		copy.from_count = write ? part_count : ours_count;
		copy.len = here;
		ret = write ? sc_probe_write(memory, &copy) : sc_probe_read(memory, &copy);
	}
	return ret;
}

int sc_access_copy(struct sc_ep *ep, const struct sc_access *access, const struct iovec *iov, size_t count)
{
	void *at = count == 1 ? sc_access_known(ep, access) : NULL;
	bool write = access->how == SC_REG_WRITE;

	if (!at)
		return copy_slices(sc_access_memory(ep, access), access, iov, count);
	copy_in_page(write ? at : iov->iov_base, write ? iov->iov_base : at, access->len);
	return 0;
}

void sc_access_count(struct sc_ep *ep, const struct sc_reg *reg, uint32_t how, uint32_t flags)
{
	struct sc_cntr *reads = reg && how & SC_REG_READ ? reg->reads : NULL;
	struct sc_cntr *writes = reg && how & SC_REG_WRITE ? reg->writes : NULL;

	if (!(flags & (SC_ABI_F_EVENT | SC_ABI_F_KEYED)))
		return;
	if (flags & SC_ABI_F_EVENT)
		sc_ep_count(ep, how & SC_REG_READ ? SC_EVENT_REMOTE_READ : SC_EVENT_REMOTE_WRITE, NULL, 0,
			    0);
	if (writes)
		sc_cntr_add(&writes->value, 1);
	if (reads && reads != writes)
		sc_cntr_add(&reads->value, 1);
}

void sc_access_served(struct sc_ep *ep, const struct sc_access *access, uint32_t flags)
{
	ep->counters.rma_served++;
	sc_access_count(ep, access->reg, access->how, flags);
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
