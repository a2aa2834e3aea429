/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory.c: slots, bounce buffers and the table of registrations get their memory when they are needed.
 *
 * The owner gives memory to its pool and its table, a peer to the slot that it has claimed. An owner publishes a count
 * after the memory is there; if it dies in between, nothing uses that memory, and it goes with the file. An attacher
 * believes no count: it asks the kernel before it reads a buffer for the first time.
 */
#define _GNU_SOURCE 1
#include "shm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "base/fault.h"
#include "base/log.h"
#include "os/otherfile.h"
#include "os/probe.h"
#include "shm/guard.h"

/* Gives a part of the file memory, or takes it away. */
static int part_fallocate(struct sc_seg *seg, uint64_t offset, uint64_t size, int mode)
{
	struct sc_seg *mine = seg->own ? seg : seg->lender;
	bool kept = mine || sc_shmfile_is_open(seg->fd, seg->dev, seg->ino);
	int fd = mine ? sc_shmfile_fd(&mine->file) : kept ? seg->fd : sc_seg_open_again(seg);
	int err = 0;

	if (fd < 0)
		return fd;
	if (SC_TRY("memory.part", sc_shmfile_fallocate(fd, mode, (off_t)offset, (off_t)size)))
		err = errno == EDQUOT ? -ENOSPC : -errno;
	if (!kept)
		sc_otherfile_close(fd);
	return err;
}

static int slot_fallocate(struct sc_seg *seg, uint32_t slot, uint32_t from, uint32_t to, int mode)
{
	int err = SC_FAIL("memory.slot");

	return err ? -err : part_fallocate(seg, sc_seg_slot_offset(seg, slot) + from, to - from, mode);
}

int sc_seg_slot_alloc(struct sc_seg *seg, uint32_t slot)
{
	int err = slot_fallocate(seg, slot, 0, SC_ABI_SLOT_FIRST, 0);

	if (!err)
		err = sc_guard_open_slot(seg, slot);
	if (err == -ENOSPC)
		sc_warn(SC_HOST_DIR " is full: a connection needs %u bytes in the segment of %s; run "
				    "shmcma reap -v, free space there, or set a lower "
				    "FI_SHMCMA_BOUNCE_COUNT for all processes of the job",
			SC_ABI_SLOT_FIRST, seg->header.address);
	else if (err)
		sc_warn("no memory for a connection in the segment of %s: %s", seg->header.address,
			strerror(-err));
	return err;
}

int sc_seg_slot_grow(struct sc_seg *seg, uint32_t slot)
{
	return slot_fallocate(seg, slot, SC_ABI_SLOT_FIRST, SC_ABI_SLOT_SIZE, 0);
}

int sc_seg_slot_free(struct sc_seg *seg, uint32_t slot)
{
	int err =
		slot_fallocate(seg, slot, 0, SC_ABI_SLOT_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);

	if (err)
		sc_warn("cannot give back the memory of slot %u of %s: %s; it goes with the endpoint",
			slot, seg->header.address, strerror(-err));
	return err;
}

/* ---- pool ------------------------------------------------------------------------------------ */

/* Asks only for the new part: a failure takes no memory away. */
int sc_seg_pool_grow(struct sc_seg *seg, uint32_t count)
{
	uint64_t had_memory = sc_seg_pool_memory(seg), more;
	uint32_t had = seg->buf_count;
	int err = SC_FAIL("memory.pool");

	if (count > seg->header.buf_count)
		return -ENOSPC;
	seg->buf_count = count;
	more = sc_seg_pool_memory(seg) - had_memory;
	if (!err && more)
		err = -part_fallocate(seg, seg->header.pool_offset + had_memory, more, 0);
	if (err) {
		seg->buf_count = had;
		sc_info(SC_HOST_DIR
			" has no room for more than %u of %u bounce buffers: %s; free space there "
			"to have them all",
			had, seg->header.buf_count, strerror(err));
		return -err;
	}
	/* G1 release: memory before its count; pairs with G1' in sc_seg_has_buf_slow() */
	sc_store_release_32(&sc_seg_presence(seg)->buf_count, count);
	(void)SC_FAULT("memory.buf_count");
	return 0;
}

/*
 * The bytes of a peer's pool that are probed together. Probing gives memory to pages without, so not the whole pool is
 * probed: a wild count may cover gigabytes.
 */
#define POOL_STRETCH (SC_ABI_RECORD_BUFS * SC_ABI_BUF_SIZE_MAX)

/* Probes the buffers up to `count` that are not known yet, at most POOL_STRETCH. */
static bool has_stretch(struct sc_seg *seg, uint32_t buf, uint32_t count)
{
	uint32_t known = sc_load_relaxed_32(&seg->buf_count), most = POOL_STRETCH / seg->header.buf_size;

	if (buf - known >= most) /* too many, or another thread has raised `known` */
		return false;
	if (count - known > most)
		count = known + most;
	if (!sc_probe_is_there(sc_seg_buf(seg, known), (size_t)(count - known) * seg->header.buf_size))
		return false;
	/* one thread may store less than another one has stored; the buffers are probed again then */
	sc_store_relaxed_32(&seg->buf_count, count);
	return true;
}

/*
 * The owner has counted a buffer before it sends its number in a record. The kernel is asked as well, for each new
 * buffer: a buffer without memory would cost this process a SIGBUS when memory is short.
 */
bool sc_seg_has_buf_slow(struct sc_seg *seg, uint32_t buf)
{
	/* G1' acquire: pairs with G1 in sc_seg_pool_grow() */
	uint32_t count = sc_load_acquire_32(&sc_seg_presence(seg)->buf_count);

	if (count > seg->header.buf_count)
		count = seg->header.buf_count;
	return buf < count && (has_stretch(seg, buf, count) ||
			       sc_probe_is_there(sc_seg_buf(seg, buf), seg->header.buf_size));
}

uint32_t sc_seg_bufs(const struct sc_seg *seg, const uint16_t bufs[SC_ABI_RECORD_BUFS], uint32_t size,
		     struct iovec iov[SC_ABI_RECORD_BUFS])
{
	uint32_t count = 0;

	for (; size; count++) {
		uint32_t here = size < seg->header.buf_size ? size : seg->header.buf_size;

		iov[count] = (struct iovec){ sc_seg_buf(seg, bufs[count]), here };
		size -= here;
	}
	return count;
}

/* ---- registration table ---------------------------------------------------------------------- */

static int table_fallocate(struct sc_seg *seg, const void *from, uint64_t size)
{
	uint64_t offset = (uint64_t)((const uint8_t *)from - seg->base);
	int err = SC_FAIL("memory.table");

	return err ? -err : part_fallocate(seg, offset, size, 0);
}

/* A part of the table: at most `most` elements of `size` bytes; `count` have memory, as `shown` tells peers. */
struct array {
	const void *at;
	uint32_t size, most;
	uint32_t *count, *shown;
};

/*
 * Grows by half, and to whole pages, so that growth is rare; only as much as needed, if memory is short. A failure
 * takes no memory away.
 */
static int grow_array(struct sc_seg *seg, const struct array *array, uint32_t count)
{
	uint32_t have = *array->count, page = SC_ABI_PAGE / array->size;
	const uint8_t *from = (const uint8_t *)array->at + (uint64_t)have * array->size;
	uint64_t need = sc_seg_align(count, page);
	uint64_t want = sc_seg_align(have + have / 2, page);
	int err;

	if (count > array->most)
		return -ENOSPC;
	need = need < array->most ? need : array->most;
	want = want < need ? need : want < array->most ? want : array->most;
	err = table_fallocate(seg, from, (want - have) * array->size);
	if (err == -ENOSPC && want > need) {
		want = need;
		err = table_fallocate(seg, from, (want - have) * array->size);
	}
	if (err)
		return err;
	*array->count = (uint32_t)want;
	/* release: memory before its count */
	sc_store_release_32(array->shown, (uint32_t)want);
	(void)SC_FAULT("memory.count");
	return 0;
}

static int grow_buckets(struct sc_seg *seg, uint32_t bits)
{
	struct sc_regtab_view view = sc_seg_table(seg);
	uint64_t size = (uint64_t)sizeof(*view.buckets) << bits;
	int err;

	if (bits > SC_ABI_BUCKET_BITS_MAX || !view.reg_max)
		return -ENOSPC;
	err = table_fallocate(seg, (uint8_t *)view.buckets + size, size);
	if (!err)
		seg->bucket_bits = bits;
	return err;
}

int sc_seg_table_grow_slow(struct sc_seg *seg, enum sc_seg_part part, uint32_t count)
{
	struct sc_regtab_view view = sc_seg_table(seg);
	const struct array arrays[] = {
		[SC_SEG_REGS] = { view.regs, sizeof(*view.regs), view.reg_max, &seg->reg_count,
				  &view.presence->reg_count },
		[SC_SEG_RANGES] = { view.ranges, sizeof(*view.ranges), view.range_max, &seg->range_count,
				    &view.presence->range_count },
	};
	int err =
		part == SC_SEG_BUCKETS ? grow_buckets(seg, count) : grow_array(seg, &arrays[part], count);

	if (err == -ENOSPC)
		sc_warn(SC_HOST_DIR " is full, or there are too many of them: no room for more registered "
				    "memory in %s; "
				    "free space there or close registrations",
			seg->header.address);
	else if (err)
		sc_warn("no shared memory for registrations in %s: %s", seg->header.address,
			strerror(-err));
	return err;
}
