/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regtab.h: the table of registrations. The owner has a private table, and believes nothing else. Each of its endpoints
 * shows a copy in its segment, a "view". An initiator reads such a view.
 */
#ifndef SC_REGTAB_H
#define SC_REGTAB_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/atomic.h"
#include "base/list.h"

/* The parts of a table that its reader knows to have memory; all 0: none. Any thread stores what it has seen. */
struct sc_regtab_seen {
	uint32_t regs, ranges; /* the first ones, this many */
	uint32_t bucket_bits;  /* the buckets of this size */
};

/* The table in a segment, of this process or of a peer. Limits are from the checked header. */
struct sc_regtab_view {
	struct sc_regtab_seen *seen;
	struct sc_abi_presence *presence;
	uint32_t *buckets;
	struct sc_abi_reg *regs;
	struct sc_abi_segment *ranges;
	uint32_t reg_max, range_max;
	uint32_t chains; /* owner: the value that it has last stored in the presence */
};

/* ---- the owner's side, private ---------------------------------------------------------------- */

#define SC_REGTAB_CHUNK 256

struct sc_reg {
	struct sc_regtab *regtab;
	uint64_t key;
	uint64_t tag; /* as in the views: odd while the registration is in use */
	uint64_t base, size;
	const struct iovec *ranges; /* none is empty */
	uint32_t range_count;
	uint32_t flags; /* SC_REG_* */
	struct sc_cntr *reads, *writes;
	struct iovec one;     /* the only range; more are on the heap */
	uint32_t first_range; /* place of several ranges in the views */
	uint32_t index;
	uint32_t next;		    /* chain of free entries, or of a bucket: index + 1, or 0 */
	uint32_t generation, first; /* of the key: now, and at the first use of the entry */
	struct sc_probe *memory;    /* knowledge of its pages, or NULL; by compare and swap */
};

struct sc_regtab {
	struct sc_reg *chunks[SC_ABI_REGS_MAX / SC_REGTAB_CHUNK]; /* entries do not move */
	uint32_t count;						  /* entries that exist */
	uint32_t free;		    /* index + 1 of the entry that is used next, or 0 */
	uint32_t *buckets;	    /* of application keys: index + 1, or 0 */
	uint32_t bucket_bits;	    /* log2 of their number; 0: none */
	uint32_t keyed, keyed_most; /* entries in chains; more of them need more buckets */
	uint64_t random;
	uint64_t ranges[SC_ABI_RANGES_MAX / 64]; /* one bit for each place in the views: taken */
	struct sc_list eps;			 /* sc_ep.of_regtab */
	const uint64_t *cookie;			 /* cookie of the process; a forked child has another */
	uint64_t made_by;
};

void sc_regtab_init(struct sc_regtab *regtab, uint64_t seed);
void sc_regtab_fini(struct sc_regtab *regtab);

/*
 * sc_regtab_get() makes a registration as in sc_reg_open(); it is not in use yet. SC_REG_KEY needs buckets.
 * sc_regtab_put() frees a registration that is not in use and that nothing names.
 */
int sc_regtab_get(struct sc_regtab *regtab, const struct sc_reg_attr *attr, struct sc_reg **reg);
void sc_regtab_put(struct sc_regtab *regtab, struct sc_reg *reg);

/* Takes the registration into use: initiators find it from now on, even if they are looking for it now. */
void sc_regtab_begin(struct sc_regtab *regtab, struct sc_reg *reg);

/* Ends the use: the private table does not find the registration any more. The caller must hide it in the views. */
void sc_regtab_end(struct sc_regtab *regtab, struct sc_reg *reg);

/* Changes the number of buckets to 1 << bits. -ENOMEM: the number stays. */
int sc_regtab_rehash(struct sc_regtab *regtab, uint32_t bits);

/* Tells whether the views show the registration. */
static inline bool sc_reg_is_shared(const struct sc_reg *reg)
{
	return reg->flags & (SC_REG_READ | SC_REG_WRITE);
}

/* index < regtab->count */
static inline struct sc_reg *sc_regtab_at(const struct sc_regtab *regtab, uint32_t index)
{
	return &regtab->chunks[index / SC_REGTAB_CHUNK][index % SC_REGTAB_CHUNK];
}

/* Returns the registration in use with that key, or NULL. The calling thread must prevent its end. */
struct sc_reg *sc_regtab_own(const struct sc_regtab *regtab, uint64_t key);

/* Checks that [addr, addr + len) of the registration is open for `access` (SC_REG_READ, _WRITE). -EACCES, -EINVAL. */
int sc_reg_check(const struct sc_reg *reg, uint64_t addr, uint64_t len, uint32_t access);

/* Finds that memory after sc_reg_check(), as sc_regtab_slice() does. */
size_t sc_reg_slice(const struct sc_reg *reg, uint64_t addr, uint64_t *len, struct iovec *out,
		    size_t count);

/* ---- the owner's side, in a view: the caller has made sure of memory ------------------------------- */

/* Shows a shared registration that is in use. */
void sc_regtab_show(const struct sc_regtab *regtab, struct sc_regtab_view *view, const struct sc_reg *reg);
/* Shows the flags again, while the registration is in use: SC_REG_EVENT may have come or gone. */
void sc_regtab_show_flags(const struct sc_regtab_view *view, const struct sc_reg *reg);

/* Hides a registration that has been ended. The caller must do a full fence before it looks at hazard words. */
void sc_regtab_hide(const struct sc_regtab *regtab, struct sc_regtab_view *view, const struct sc_reg *reg);

/* Shows the present number of buckets, and all chains. */
void sc_regtab_show_buckets(const struct sc_regtab *regtab, struct sc_regtab_view *view);

/* ---- the initiator's side: another process writes what is read ------------------------------------ */

/* A registration as it was found. The initiator must check it again under a hazard word. */
struct sc_reg_ref {
	uint32_t index;
	uint64_t tag;
};

/* Its fields, copied and in range. The ranges of the table are not copied. */
struct sc_reg_span {
	uint64_t base, size, addr;
	uint32_t range_count, first_range, flags;
	const struct sc_abi_segment *ranges;
};

/* Finds the registration of a key. -EKEYREJECTED: there is none; -EAGAIN: the chains are changing just now. */
int sc_regtab_find(const struct sc_regtab_view *view, uint64_t key, struct sc_reg_ref *ref);

/*
 * Checks that the registration is still in use, and that `memory` in it is open for `access` (SC_REG_READ, _WRITE). The
 * caller has named it in a hazard word and done a full fence: so it does not change until the caller takes the word
 * back. -EKEYREJECTED, -EACCES, -EINVAL.
 */
int sc_regtab_check(const struct sc_regtab_view *view, const struct sc_reg_ref *ref, const struct sc_remote *memory,
		    uint32_t access, struct sc_reg_span *span);

/*
 * Finds where [addr, addr + *len) of a checked registration is in its owner's address space, at most `count` elements.
 * *len becomes their bytes: fewer, if there are more elements; 0, if there are none. -EKEYREJECTED: impossible ranges.
 */
int sc_regtab_slice(const struct sc_reg_span *span, uint64_t addr, uint64_t *len, struct iovec *out, size_t count);

/* Tells whether the owner counts accesses under this key, as far as one look tells; -EAGAIN: the look does not tell. */
static inline int sc_regtab_counts(const struct sc_regtab_view *view, uint64_t key)
{
	struct sc_reg_ref ref;
	int ret = sc_regtab_find(view, key, &ref);

	return ret == -EAGAIN ? ret
			      : !ret && sc_load_relaxed_32(&view->regs[ref.index].flags) & SC_REG_EVENT;
}

/* Tells, after the copy, whether the registration is still in use. */
static inline bool sc_regtab_holds(const struct sc_regtab_view *view, const struct sc_reg_ref *ref)
{
	sc_fence_seq_cst(); /* the copy comes before */
	return sc_load_relaxed_64(&view->regs[ref->index].tag) == ref->tag;
}

#endif
