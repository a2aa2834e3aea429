/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guard.c: which parts of a peer's segment this process may write.
 *
 * The parts that an attacher must not write become read-only in its mapping: all but the first pages (presence,
 * claims), the slots that its endpoints have claimed, and the pool once it has been let write into a buffer of it
 * (hold.h). So a wild write there, of the application say, faults, where it would have changed what others read of the
 * owner, or the ring of another peer. That is done some time after it has been attached, in a poll (sc_seg_guard()),
 * not while it connects: two mprotect(2) are a quarter of the time of a connection, and of a job that begins a sixth.
 *
 * Any thread calls these, of any endpoint. Nothing is shared with the owner: the protection goes with the mapping.
 */
#include "shm/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fault.h"

/* Of all attached segments: slots, guarded, pool_open. */
static pthread_mutex_t access_mutex = PTHREAD_MUTEX_INITIALIZER;

void sc_guard_fork_child(void)
{
	access_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static int make_writable(const struct sc_seg *seg, uint64_t offset, uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = offset / page * page;
	uint64_t to = sc_seg_align(offset + size, page);

	return SC_TRY("guard.writable", mprotect(seg->base + from, to - from, PROT_READ | PROT_WRITE))
		       ? -errno
		       : 0;
}

/* Whole pages of that only. Where it fails (too many mappings) there is less protection, and nothing is wrong. */
static void make_read_only(const struct sc_seg *seg, uint64_t from, uint64_t to)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	from = sc_seg_align(from, page);
	to = to / page * page;
	if (from < to)
		(void)SC_TRY("guard.read_only", mprotect(seg->base + from, to - from, PROT_READ));
}

/* All but the slots of ours, and the pool if it is open. */
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

/* A segment of this process has one mapping, which its owner and its attachers share. */
static bool is_mapped_apart(const struct sc_seg *seg)
{
	return !seg->own && !seg->lender;
}

void sc_seg_guard(struct sc_seg *seg)
{
	if (!is_mapped_apart(seg))
		return;
	pthread_mutex_lock(&access_mutex);
	if (!seg->guarded)
		guard_locked(seg);
	seg->guarded = true;
	pthread_mutex_unlock(&access_mutex);
}

/* One more of ours, in their order. */
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
	pthread_mutex_lock(&access_mutex);
	if (!has_slot(seg, slot)) {
		if (seg->guarded)
			err = make_writable(seg, sc_seg_slot_offset(seg, slot), SC_ABI_SLOT_SIZE);
		if (!err)
			err = add_slot(seg, slot);
	}
	pthread_mutex_unlock(&access_mutex);
	return err;
}

int sc_seg_pool_open(struct sc_seg *seg)
{
	const struct sc_abi_header *header = &seg->header;
	int err = 0;

	pthread_mutex_lock(&access_mutex);
	if (seg->guarded && !seg->pool_open)
		err = make_writable(seg, header->pool_offset,
				    (uint64_t)header->buf_count * header->buf_size);
	seg->pool_open = !err;
	pthread_mutex_unlock(&access_mutex);
	return err;
}

bool sc_guard_has_slot(const struct sc_seg *seg, uint32_t slot)
{
	bool open;

	pthread_mutex_lock(&access_mutex);
	open = has_slot(seg, slot);
	pthread_mutex_unlock(&access_mutex);
	return open;
}
