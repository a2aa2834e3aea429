/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_SEG_H
#define SC_SEG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/atomic.h"
#include "os/addr.h"
#include "os/host.h"
#include "os/shmfile.h"
#include "shm/regtab.h"

/*
 * A mapped segment, of this process or of a peer. `header` is a private copy, checked once; the shared header is never
 * read again. A live peer's segment is mapped once for all endpoints of this process that attach it: its structure then
 * has several users and does not change any more.
 */
struct sc_seg {
	struct sc_abi_header header;
	uint8_t *base;
	int fd; /* attached: -1 when descriptors are scarce, see sc_seg_check_owner() */
	dev_t dev;
	ino_t ino;
	bool own;	/* created here, ends by sc_seg_destroy(); else by sc_seg_detach() */
	bool local;	/* the owner is this process: memory can be copied directly */
	bool keep_name; /* own: sc_seg_destroy() leaves the file, because peers have messages to read in it */
	pid_t cma_pid;	       /* attached: pid of the owner as seen from here, 0: not visible from here */
	uint64_t made_by; /* sc_host_self() of the process that made it; forked children have no mapping */
	struct sc_seg *lender; /* attached, local: the own segment whose mapping and fd are borrowed */
	unsigned int users;    /* attached, not local */
	struct sc_seg *next;   /* attached: hash chain of segments that endpoints can share */
	uint32_t *slots;     /* attached, not lent: slots that this process has claimed, in their order, */
	uint32_t slot_count; /* and their number */
	bool guarded, pool_open; /* likewise: the rest is read-only; but not the pool */
	uint32_t reg_count, range_count, bucket_bits; /* own: parts of the table that have memory */
	struct sc_regtab_seen table_seen;	      /* attached: the same, as far as known */
	uint32_t buf_count;	/* buffers that have memory; attached: as far as known */
	struct sc_shmfile file; /* own: the mapping outlives destroy until all borrowers have detached */
};

#define SC_SEGS_SHARED 256

/* The state of this process in the modules of this room. No mutex is held over a system call, except access_mutex. */
struct sc_segs {
	pthread_once_t once; /* see sc_attach_init() */
	bool can_fork;

	pthread_mutex_t shared_mutex;	       /* attach.c: */
	struct sc_seg *shared[SC_SEGS_SHARED]; /* attached segments of live peers, by address */
	atomic_bool unshared;		       /* some are not there */

	pthread_mutex_t
		access_mutex; /* guard.c: for `slots`, `guarded` and `pool_open` of all attached segments */
	atomic_uint kept_fds; /* descriptors of peers' segments that are open */
};

extern struct sc_segs sc_segs;

/* Tells whether this process made the structure, not a parent process. */
static inline bool sc_seg_is_here(const struct sc_seg *seg)
{
	return seg->made_by == sc_host_self();
}

/*
 * Tells whether the owner of an attached segment lives. 1: yes. 0: its process has ended or closed the segment, and
 * touches no memory through it any more. Negative errno: cannot tell; -ENOENT: there is neither descriptor nor name,
 * and the process has not been seen to have ended.
 */
int sc_seg_check_owner(const struct sc_seg *seg);

static inline uint64_t *sc_seg_claims(const struct sc_seg *seg)
{
	return (uint64_t *)(seg->base + seg->header.claims_offset);
}

static inline struct sc_abi_presence *sc_seg_presence(const struct sc_seg *seg)
{
	return (struct sc_abi_presence *)(seg->base + SC_ABI_PRESENCE);
}

/* The registration table. Elements beyond the counts of the presence have no memory. */
static inline struct sc_regtab_view sc_seg_table(struct sc_seg *seg)
{
	const struct sc_abi_header *header = &seg->header;
	uint8_t *table = seg->base + header->table_offset;
	uint8_t *regs = table + (header->reg_max ? SC_ABI_TABLE_BUCKETS : 0);

	return (struct sc_regtab_view){
		.seen = &seg->table_seen,
		.presence = sc_seg_presence(seg),
		.buckets = (uint32_t *)table,
		.regs = (struct sc_abi_reg *)regs,
		.ranges = (struct sc_abi_segment *)((struct sc_abi_reg *)regs + header->reg_max),
		.reg_max = header->reg_max,
		.range_max = header->range_max,
	};
}

static inline uint64_t sc_seg_slot_offset(const struct sc_seg *seg, uint32_t slot)
{
	return seg->header.slots_offset + (uint64_t)slot * SC_ABI_SLOT_SIZE;
}

/* slot < header.slot_count; the slot has memory, its first page at least */
static inline struct sc_abi_slot *sc_seg_slot(const struct sc_seg *seg, uint32_t slot)
{
	return (struct sc_abi_slot *)(seg->base + sc_seg_slot_offset(seg, slot));
}

/* buf < buf_count */
static inline uint8_t *sc_seg_buf(const struct sc_seg *seg, uint32_t buf)
{
	return seg->base + seg->header.pool_offset + (uint64_t)buf * seg->header.buf_size;
}

static inline uint64_t sc_seg_align(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

/* Returns the bytes of the pool that have memory, whole pages. */
static inline uint64_t sc_seg_pool_memory(const struct sc_seg *seg)
{
	return sc_seg_align((uint64_t)seg->buf_count * seg->header.buf_size, SC_ABI_PAGE);
}

static inline uint32_t sc_seg_hash(const char *addr)
{
	uint32_t hash = sc_addr_hash(addr, strlen(addr));

	return hash ^ hash >> 16;
}

/* Maps the whole file. Returns 0 or a negative errno. */
int sc_seg_map(struct sc_seg *seg);
void sc_seg_unmap(struct sc_seg *seg);

/* One user of an own segment ends its use. The last one unmaps the segment and then lets the life lock go. */
void sc_seg_put(struct sc_seg *seg);

/*
 * Counts a descriptor of an attached segment. Tells whether these are few; if not, the application needs the others.
 */
bool sc_seg_count_descriptor(void);

/* Closes the descriptor of an attached segment, if it has one. */
void sc_seg_drop_descriptor(struct sc_seg *seg);

/*
 * Opens the file of an attached segment whose descriptor was closed. -ENOENT: the name is gone, or names another file.
 */
int sc_seg_open_again(const struct sc_seg *seg);

#endif
