/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_SEG_H
#define SC_SEG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/atomic.h"
#include "os/host.h"
#include "os/shmfile.h"
#include "shm/regtab.h"

/* The contents of a new segment; see struct sc_config. */
struct sc_seg_geometry {
	uint32_t slots;
	uint32_t buf_size, buf_count;
	uint32_t bufs_first; /* of them to have memory from the start; 0: all */
	uint64_t window;
	uint32_t capabilities;
	uint32_t regs, ranges;	       /* limits of the registration table; 0: none */
	const struct sc_ep_name *name; /* that it is to have, NULL: a new one; */
	uint16_t index;		       /* under it */
};

/*
 * A mapped segment, this process's own or a peer's. `header` is a private copy, taken once and checked;
 * the shared one is never read again. A live peer's is mapped once for all endpoints that attach it: its structure has
 * several users then, and does not change any more.
 */
struct sc_seg {
	struct sc_abi_header header;
	uint8_t *base;
	int fd; /* attached: -1 when descriptors are short, see sc_seg_check_owner() */
	dev_t dev;
	ino_t ino;
	bool own;	/* created here: sc_seg_destroy(); else sc_seg_detach() */
	bool local;	/* its owner is this process: memory can be copied directly */
	bool keep_name; /* own: sc_seg_destroy() leaves the file for those who have messages to read in it */
	pid_t cma_pid;	       /* attached: pid of the owner as seen from here, 0: not visible from here */
	pid_t pid;	       /* process that made this structure, */
	uint64_t made_by;      /* and its sc_host_self(); its forked children have nothing mapped */
	struct sc_seg *lender; /* attached, local: the own segment whose mapping and fd are borrowed */
	unsigned int users;    /* attached, not local */
	struct sc_seg *next;   /* attached: hash chain of those that can be shared */
	uint32_t *slots; /* attached, not lent: those that this process has claimed, in their order, */
	uint32_t slot_count;	 /* so many */
	bool guarded, pool_open; /* likewise: read-only but for them / and but for the pool */
	uint32_t reg_count, range_count, bucket_bits; /* own: of the table, that have memory */
	struct sc_regtab_seen table_seen;	      /* attached: of the table, that is known to */
	uint32_t buf_count; /* of the pool, that have memory; attached: that are known to */
	struct sc_shmfile file; /* own: the mapping outlives destroy until all borrowers have detached */
};

/*
 * Create, fill, lock and name this process's segment: a named segment whose life lock is free is dead
 * by construction. With too little shared memory fewer buffers are given it (half, down to 2).
 * -EINVAL: no possible geometry; -EADDRINUSE: there is one of that name and index; -ENOSPC, -EMFILE, -ENOMEM, -EACCES...
 */
int sc_seg_create(const struct sc_seg_geometry *geometry, struct sc_seg **seg);

/* Was it made in this process, not in one that this was forked from? */
static inline bool sc_seg_is_here(const struct sc_seg *seg)
{
	return seg->made_by == sc_host_self();
}

/* Unlink, unlock, unmap. In a forked child: nothing of the parent's is touched. */
void sc_seg_destroy(struct sc_seg *seg);

/*
 * Map the segment of the endpoint with that address (endpoint form). File type, owner, mode, links and
 * size are checked against the geometry before anything in it is believed. The outcomes:
 * -EINVAL no address; -EHOSTUNREACH other host; -ECONNREFUSED no such file or dead owner; -EACCES wrong
 * file type, owner or mode; -EPROTO not a segment, or another layout or version; -EMFILE, -ENOMEM.
 */
int sc_seg_attach(const char *addr, struct sc_seg **seg);

/*
 * Map what an endpoint has left: as above, but nobody holds its life lock, or it has closed with messages
 * unread (sc_seg.keep_name). When they are read, sc_seg_leave() is to follow if it has closed, and
 * sc_reap_name() if it has died.
 */
int sc_seg_attach_left(const char *addr, struct sc_seg **seg);

/*
 * One of the peers for which a closed segment has kept its name has read it, or never will; the last removes the name.
 */
void sc_seg_leave(struct sc_seg *seg);

void sc_seg_detach(struct sc_seg *seg);

/*
 * The next attached segment after `after` (NULL: the first) whose owner has yet to let in an endpoint of that ticket,
 * which is one of this process's; it is the caller's to detach. `after` is detached.
 */
struct sc_seg *sc_seg_next_claimed(struct sc_seg *after, uint64_t ticket);

/* Does sc_seg_next_claimed() find all attached segments? False: for some there was no memory. */
bool sc_seg_finds_all(void);

/* Would sc_seg_attach() find a live segment? Same outcomes; nothing is mapped. */
int sc_seg_find(const char *addr);

/*
 * The same for one that is likely to be attached soon: the segment that has been found is kept, and only looked at
 * again when it is attached. As long as this process has a segment of its own, and no more than SC_SEG_FOUND_MAX.
 */
#define SC_SEG_FOUND_MAX 256
int sc_seg_find_ahead(const char *addr);

/* Close what has been found and not been attached: all, or if the first of it was found a while ago. */
void sc_seg_forget_found(void);
void sc_seg_forget_found_slow(void);

extern atomic_uint sc_seg_found; /* how many there are */

/* To be called now and then. */
static inline void sc_seg_forget_found_late(void)
{
	/* relaxed: if it is seen late, it is the next time */
	if (__builtin_expect(atomic_load_explicit(&sc_seg_found, memory_order_relaxed) != 0, 0))
		sc_seg_forget_found_slow();
}

/*
 * Does the owner of an attached segment live? 1: yes; 0: its process has ended or closed it, and touches no
 * memory through it any more; negative errno: cannot tell. -ENOENT: there is neither descriptor nor name, and
 * the process has not been seen to have ended.
 */
int sc_seg_check_owner(const struct sc_seg *seg);

/*
 * Give a slot its memory, to be written to from here / what it has not had so far, with no word if there is none / take it
 * away (its content is gone, unless that fails). -ENOSPC.
 */
int sc_seg_slot_alloc(struct sc_seg *seg, uint32_t slot);
int sc_seg_slot_grow(struct sc_seg *seg, uint32_t slot);
int sc_seg_slot_free(struct sc_seg *seg, uint32_t slot);

/*
 * Own: give the first `count` registrations or ranges of the table memory, and let peers know; or the
 * table of 2^`count` buckets, to be filled before they know. -ENOSPC: nothing has changed.
 */
enum sc_seg_part { SC_SEG_REGS, SC_SEG_RANGES, SC_SEG_BUCKETS };
int sc_seg_table_grow_slow(struct sc_seg *seg, enum sc_seg_part part, uint32_t count);

static inline int sc_seg_table_grow(struct sc_seg *seg, enum sc_seg_part part, uint32_t count)
{
	uint32_t have = part == SC_SEG_REGS	? seg->reg_count
			: part == SC_SEG_RANGES ? seg->range_count
						: seg->bucket_bits;

	return count <= have ? 0 : sc_seg_table_grow_slow(seg, part, count);
}

/*
 * Own: give the first `count` bounce buffers memory, and let peers know: before their numbers are told to anybody.
 * -ENOSPC: nothing has changed.
 */
int sc_seg_pool_grow(struct sc_seg *seg, uint32_t count);

/* Attached: its bounce buffers are to be written to. -ENOMEM: too many mappings. */
int sc_seg_pool_open(struct sc_seg *seg);

/*
 * Attached: make read-only what is not to be written to from here, but for what is opened before or after. To be called
 * when there is time for it, any number of times.
 */
void sc_seg_guard(struct sc_seg *seg);

static inline uint64_t *sc_seg_claims(const struct sc_seg *seg)
{
	return (uint64_t *)(seg->base + seg->header.claims_offset);
}

static inline struct sc_abi_presence *sc_seg_presence(const struct sc_seg *seg)
{
	return (struct sc_abi_presence *)(seg->base + SC_ABI_PRESENCE);
}

/* The registration table. The part behind the presence's counts has no memory. */
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

/* slot < header.slot_count; the slot has memory, its first page at least */
static inline struct sc_abi_slot *sc_seg_slot(const struct sc_seg *seg, uint32_t slot)
{
	return (struct sc_abi_slot *)(seg->base + seg->header.slots_offset) + slot;
}

/* buf < buf_count */
static inline uint8_t *sc_seg_buf(const struct sc_seg *seg, uint32_t buf)
{
	return seg->base + seg->header.pool_offset + (uint64_t)buf * seg->header.buf_size;
}

/* Attached: does its owner count that number by now, and is there memory behind it? */
bool sc_seg_has_buf_slow(struct sc_seg *seg, uint32_t buf);

static inline bool sc_seg_has_buf(struct sc_seg *seg, uint32_t buf)
{
	/*
	 * relaxed: buffers below the number keep their memory, which was there before the number; any thread raises it
	 */
	return buf < sc_load_relaxed_32(&seg->buf_count) || sc_seg_has_buf_slow(seg, buf);
}

/* Do `size` bytes fit into the buffers that a record names, and are there such buffers? */
static inline bool sc_seg_has_bufs(struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS],
				   uint64_t size)
{
	uint64_t held = 0;

	for (uint32_t i = 0; held < size; i++) {
		if (i == SC_ABI_RECORD_BUFS || !sc_seg_has_buf(seg, bufs[i]))
			return false;
		held += seg->header.buf_size;
	}
	return true;
}

#endif
