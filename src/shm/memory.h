/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_MEMORY_H
#define SC_MEMORY_H

#include "shm/seg.h"

/*
 * Give a claimed slot its first memory, and make it writable here; give a slot the rest, without a log line on failure;
 * take a slot's memory away (its content is lost, unless this fails). -ENOSPC.
 */
int sc_seg_slot_alloc(struct sc_seg *seg, uint32_t slot);
int sc_seg_slot_grow(struct sc_seg *seg, uint32_t slot);
int sc_seg_slot_free(struct sc_seg *seg, uint32_t slot);

/*
 * Own: gives memory to the first `count` registrations or ranges of the table, and tells peers; or to the table of
 * 2^`count` buckets, which the caller fills before peers are told. -ENOSPC: nothing has changed.
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
 * Own: gives memory to the first `count` bounce buffers, and tells peers. The caller may then send their numbers.
 * -ENOSPC: nothing has changed.
 */
int sc_seg_pool_grow(struct sc_seg *seg, uint32_t count);

/* Attached: tells whether the owner counts this buffer by now, and whether the buffer has memory. */
bool sc_seg_has_buf_slow(struct sc_seg *seg, uint32_t buf);

static inline bool sc_seg_has_buf(struct sc_seg *seg, uint32_t buf)
{
	/*
	 * relaxed: buffers below the number keep their memory, which they had before it was stored; any thread raises
	 * it
	 */
	return buf < sc_load_relaxed_32(&seg->buf_count) || sc_seg_has_buf_slow(seg, buf);
}

/* Tells whether the buffers that a record names exist and hold `size` bytes. */
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

/* Sets a vector of the buffers that a record names, checked by sc_seg_has_bufs(). Returns how many. */
uint32_t sc_seg_bufs(const struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS], uint32_t size,
		     struct iovec iov[SC_ABI_RECORD_BUFS]);

#endif
