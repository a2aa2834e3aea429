/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regtab.h: the table of registrations: the owner's private one, which alone it believes; copies of it
 * in shared memory, one in each of its endpoints' segments ("views"); and how an initiator reads such a
 * copy.
 */
#ifndef SC_REGTAB_H
#define SC_REGTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/atomic.h"
#include "base/list.h"

/* The parts of a table that its reader knows to have memory; all 0: none. Any thread stores what it has seen. */
struct sc_regtab_seen {
	uint32_t regs, ranges; /* so many, the first ones */
	uint32_t bucket_bits;  /* the buckets of this */
};

/* A registration table as it lies in a segment, ours or a peer's. Limits are those of the checked header. */
struct sc_regtab_view {
	struct sc_regtab_seen *seen;
	struct sc_abi_presence *presence;
	uint32_t *buckets;
	struct sc_abi_reg *regs;
	struct sc_abi_segment *ranges;
	uint32_t reg_max, range_max;
	uint32_t chains; /* by its owner: the value that it has stored there last */
};

/* ---- the owner's side, private ---------------------------------------------------------------- */

#define SC_REGTAB_CHUNK 256

struct sc_reg {
	struct sc_regtab *regtab;
	uint64_t key;
	uint64_t tag; /* as in the views: odd while it is in use */
	uint64_t base, size;
	const struct iovec *ranges; /* none is empty */
	uint32_t range_count;
	uint32_t flags; /* SC_REG_* */
	struct sc_cntr *reads, *writes;
	struct iovec one;     /* the only range; more are on the heap */
	uint32_t first_range; /* in the views, if there are several */
	uint32_t index;
	uint32_t next;		    /* of the free entries, or of the bucket's chain: index + 1, or 0 */
	uint32_t generation, first; /* of the key, the present one and that of its first use */
};

struct sc_regtab {
	struct sc_reg *chunks[SC_ABI_REGS_MAX / SC_REGTAB_CHUNK]; /* entries do not move */
	uint32_t count;						  /* entries there are */
	uint32_t free;		    /* index + 1 of the one to use next, or 0 */
	uint32_t open;		    /* entries in use, or closed and not given back */
	uint32_t *buckets;	    /* of application keys: index + 1, or 0 */
	uint32_t bucket_bits;	    /* log2 of their number; 0: none */
	uint32_t keyed, keyed_most; /* entries in chains; so many before there should be more buckets */
	uint64_t random;
	uint64_t ranges[SC_ABI_RANGES_MAX / 64]; /* a bit each: taken */
	struct sc_list eps;			 /* sc_ep.of_regtab */
	const uint64_t *cookie;			 /* the process's; another in a forked child */
	uint64_t made_by;
};

void sc_regtab_init(struct sc_regtab *regtab, uint64_t seed);
void sc_regtab_fini(struct sc_regtab *regtab);

/*
 * A registration as in sc_reg_open(), which is not in use yet. With SC_REG_KEY there must be buckets.
 * sc_regtab_put(): not in use, or no more, and nothing names it.
 */
int sc_regtab_get(struct sc_regtab *regtab, const struct sc_reg_attr *attr, struct sc_reg **reg);
void sc_regtab_put(struct sc_regtab *regtab, struct sc_reg *reg);

/* It is in use: an initiator that looks for it finds it, also at this moment. */
void sc_regtab_begin(struct sc_regtab *regtab, struct sc_reg *reg);

/* It is not in use any more: nobody finds it here. The views are to be told. */
void sc_regtab_end(struct sc_regtab *regtab, struct sc_reg *reg);

/* So many buckets (log2) from now on. -ENOMEM: as many as before. */
int sc_regtab_rehash(struct sc_regtab *regtab, uint32_t bits);

/* Do peers see it, if there are any? */
static inline bool sc_reg_is_shared(const struct sc_reg *reg)
{
	return reg->flags & (SC_REG_READ | SC_REG_WRITE);
}

/* index < regtab->count */
static inline struct sc_reg *sc_regtab_at(const struct sc_regtab *regtab, uint32_t index)
{
	return &regtab->chunks[index / SC_REGTAB_CHUNK][index % SC_REGTAB_CHUNK];
}

/* The registration of that key that is in use, or NULL. Any thread that keeps it from being ended. */
struct sc_reg *sc_regtab_own(const struct sc_regtab *regtab, uint64_t key);

/* Is [addr, addr + len) of it open for `access` (SC_REG_READ, _WRITE)? -EACCES, -EINVAL. */
int sc_reg_check(const struct sc_reg *reg, uint64_t addr, uint64_t len, uint32_t access);

/* Where that is, after sc_reg_check(): as sc_regtab_slice(). */
size_t sc_reg_slice(const struct sc_reg *reg, uint64_t addr, uint64_t *len, struct iovec *out,
		    size_t count);

/* ---- the owner's side, in a view: the caller has seen to it that there is memory ------------------- */

/* A shared registration that is in use: show it. */
void sc_regtab_show(const struct sc_regtab *regtab, struct sc_regtab_view *view, const struct sc_reg *reg);
/* Its flags anew, while it is in use: SC_REG_EVENT may have come or gone. */
void sc_regtab_show_flags(const struct sc_regtab_view *view, const struct sc_reg *reg);

/* One that has been ended: hide it. To be followed by a full fence before hazard words are looked at. */
void sc_regtab_hide(const struct sc_regtab *regtab, struct sc_regtab_view *view, const struct sc_reg *reg);

/* The buckets, as many as there are now, and all chains. */
void sc_regtab_show_buckets(const struct sc_regtab *regtab, struct sc_regtab_view *view);

/* ---- the initiator's side: what is read is another process's ---------------------------------- */

/* A registration found, as it was then: to be checked again under a hazard word. */
struct sc_reg_ref {
	uint32_t index;
	uint64_t tag;
};

/* Its fields, copied and in range; and the ranges of the table, which are not copied. */
struct sc_reg_span {
	uint64_t base, size, addr;
	uint32_t range_count, first_range, flags;
	const struct sc_abi_segment *ranges;
};

/* The registration of that key. -EKEYREJECTED: there is none; -EAGAIN: the chains are changing just now. */
int sc_regtab_find(const struct sc_regtab_view *view, uint64_t key, struct sc_reg_ref *ref);

/*
 * Is it still in use, and is that memory of it open for `access` (SC_REG_READ, _WRITE)? To be called with a hazard word
 * that names it, after a full fence: it stays what it is until the word is taken back. -EKEYREJECTED, -EACCES, -EINVAL.
 */
int sc_regtab_check(const struct sc_regtab_view *view, const struct sc_reg_ref *ref, const struct sc_remote *memory,
		    uint32_t access, struct sc_reg_span *span);

/*
 * Where [addr, addr + *len) of a checked registration is in its owner's address space: up to `count`
 * elements; *len: the bytes they have, fewer if there are more elements. 0 elements: *len is 0.
 * -EKEYREJECTED: its ranges are impossible.
 */
int sc_regtab_slice(const struct sc_reg_span *span, uint64_t addr, uint64_t *len, struct iovec *out, size_t count);

/* Is it still in use, after the copy? */
static inline bool sc_regtab_holds(const struct sc_regtab_view *view, const struct sc_reg_ref *ref)
{
	sc_fence_seq_cst(); /* the copy comes before */
	return sc_load_relaxed_64(&view->regs[ref->index].tag) == ref->tag;
}

#endif
