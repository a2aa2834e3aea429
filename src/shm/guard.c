/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guard.c: which parts of a peer's segment this process may write.
 *
 * The parts that an attacher must not write become read-only in its mapping. Writable are the first pages (presence,
 * claims), the slots that endpoints of this process have claimed, and the pool once this process may write into one of
 * its buffers (hold.h). So a wild write, of the application for example, faults; it cannot change what others read of
 * the owner, or another peer's ring. sc_seg_guard() does this in a poll some time after the attach, not during a
 * connection: two mprotect(2) are a quarter of the time of a connection, and a sixth of the start of a job.
 *
 * Any thread of any endpoint calls these. Nothing is shared with the owner: the protection belongs to the mapping.
 */
#include "shm/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fault.h"

static int make_writable(const struct sc_seg *seg, uint64_t offset, uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = offset / page * page;
	uint64_t to = sc_seg_align(offset + size, page);

	return SC_TRY("guard.writable", mprotect(seg->base + from, to - from, PROT_READ | PROT_WRITE))
		       ? -errno
		       : 0;
}

/* Protects whole pages inside the part. A failure (too many mappings) only means less protection. */
static void make_read_only(const struct sc_seg *seg, uint64_t from, uint64_t to)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	from = sc_seg_align(from, page);
	to = to / page * page;
	if (from < to)
		(void)SC_TRY("guard.read_only", mprotect(seg->base + from, to - from, PROT_READ));
}

/* Protects all but the slots of this process, and the pool if it is open. */
static void guard_locked(const struct sc_seg *seg)
{
	const struct sc_abi_header *header = &seg->header;
	uint64_t from = header->slots_offset;

	for (uint32_t i = 0; i < seg->slot_count; i++) {
		make_read_only(seg, from, sc_seg_slot_offset(seg, seg->slots[i]));
		from = sc_seg_slot_offset(seg, seg->slots[i]) + SC_ABI_SLOT_SIZE;
	}
	if (seg->pool_open) {
		make_read_only(seg, from, header->pool_offset);
		from = header->pool_offset + (uint64_t)header->buf_count * header->buf_size;
	}
	make_read_only(seg, from, sc_seg_align(header->length, (uint64_t)sysconf(_SC_PAGESIZE)));
}

/* An attached segment of this very process has no mapping of its own: it shares the owner's. */
static bool is_mapped_apart(const struct sc_seg *seg)
{
	return !seg->own && !seg->lender;
}

void sc_seg_guard(struct sc_seg *seg)
{
	if (!is_mapped_apart(seg))
		return;
	pthread_mutex_lock(&sc_segs.access_mutex);
	if (!seg->guarded)
		guard_locked(seg);
	seg->guarded = true;
	pthread_mutex_unlock(&sc_segs.access_mutex);
}

/* Inserts a slot; slots stay in order. */
static int add_slot(struct sc_seg *seg, uint32_t slot)
{
	uint32_t *slots = SC_TRY_PTR("guard.slots", NULL,
				     realloc(seg->slots, (seg->slot_count + 1) * sizeof(seg->slots[0])));
	uint32_t at = seg->slot_count;

	if (!slots)
		return -ENOMEM;
	for (; at && slots[at - 1] > slot; at--)
		slots[at] = slots[at - 1];
	slots[at] = slot;
	seg->slots = slots;
	seg->slot_count++;
	return 0;
}

static bool has_slot(const struct sc_seg *seg, uint32_t slot)
{
	for (uint32_t i = 0; i < seg->slot_count; i++)
		if (seg->slots[i] == slot)
			return true;
	return false;
}

int sc_guard_open_slot(struct sc_seg *seg, uint32_t slot)
{
	int err = 0;

	if (!is_mapped_apart(seg))
		return 0;
	pthread_mutex_lock(&sc_segs.access_mutex);
	if (!has_slot(seg, slot)) {
		if (seg->guarded)
			err = make_writable(seg, sc_seg_slot_offset(seg, slot), SC_ABI_SLOT_SIZE);
		if (!err)
			err = add_slot(seg, slot);
	}
	pthread_mutex_unlock(&sc_segs.access_mutex);
	return err;
}

int sc_seg_pool_open(struct sc_seg *seg)
{
	const struct sc_abi_header *header = &seg->header;
	int err = 0;

	pthread_mutex_lock(&sc_segs.access_mutex);
	if (seg->guarded && !seg->pool_open)
		err = make_writable(seg, header->pool_offset,
				    (uint64_t)header->buf_count * header->buf_size);
	seg->pool_open = !err;
	pthread_mutex_unlock(&sc_segs.access_mutex);
	return err;
}

bool sc_guard_has_slot(const struct sc_seg *seg, uint32_t slot)
{
	bool open;

	pthread_mutex_lock(&sc_segs.access_mutex);
	open = has_slot(seg, slot);
	pthread_mutex_unlock(&sc_segs.access_mutex);
	return open;
}
