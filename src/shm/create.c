/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * create.c: an endpoint creates its segment, and destroys it.
 *
 * Create: file without name -> memory for all but slots, table and most of the pool -> map -> fill -> lock -> name
 * (shmfile.c). A process that opens the name sees a complete header, and a lock that tells whether the owner lives. If
 * the owner dies before the file has its name, nothing remains. If it dies later, a complete segment with a free lock
 * remains: no attacher accepts it, and a reaper removes it.
 */
#include "shm/create.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/log.h"
#include "shm/attach.h"

#define BUFS_MIN 2

/*
 * The parts are in the order of abi.h; slots, pool and table begin on a new page. The first slot is right behind the
 * claims: so the first peer that connects has both in one writable mapping, and the rest in one read-only mapping
 * (docs/MEASUREMENTS.md, "Start of an endpoint").
 */
static void set_geometry(struct sc_abi_header *header, const struct sc_seg_geometry *geometry)
{
	uint64_t claims_end = SC_ABI_PAGE + (uint64_t)geometry->slots * sizeof(uint64_t);
	uint64_t pool_size = (uint64_t)geometry->buf_count * geometry->buf_size;

	header->claims_offset = SC_ABI_PAGE;
	header->slot_count = geometry->slots;
	header->slots_offset = sc_seg_align(claims_end, SC_ABI_PAGE);
	header->slot_size = SC_ABI_SLOT_SIZE;
	header->pool_offset = header->slots_offset + (uint64_t)geometry->slots * SC_ABI_SLOT_SIZE;
	header->buf_size = geometry->buf_size;
	header->buf_count = geometry->buf_count;
	header->ring_lines = SC_ABI_RING_LINES;
	header->table_offset = sc_seg_align(header->pool_offset + pool_size, SC_ABI_PAGE);
	header->reg_max = geometry->regs;
	header->range_max = geometry->ranges;
	header->length = header->table_offset + SC_ABI_TABLE_SIZE(geometry->regs, geometry->ranges);
}

int sc_ep_name_init(struct sc_ep_name *name)
{
	return sc_host_random(name->nonce, sizeof(name->nonce));
}

static int address_of(const struct sc_ep_name *as, uint16_t index, struct sc_addr *addr)
{
	const struct sc_host *host;
	int err = sc_host_get(&host);

	if (err)
		return err;
	*addr = (struct sc_addr){
		.host = host->id, .uid = sc_addr_uid(host), .pid = (uint32_t)host->pid, .ep = index
	};
	memcpy(addr->nonce, as->nonce, sizeof(addr->nonce));
	return 0;
}

int sc_ep_name_address(const struct sc_ep_name *name, char *text)
{
	struct sc_addr addr;
	int err = address_of(name, 0, &addr);

	if (!err)
		sc_addr_format(&addr, text);
	return err;
}

static int set_address(struct sc_abi_header *header, const struct sc_ep_name *as, uint16_t index,
		       char name[SC_ADDR_NAME_MAX])
{
	struct sc_addr addr;
	int err = address_of(as, index, &addr);

	if (err)
		return err;
	memcpy(header->nonce, as->nonce, sizeof(header->nonce));
	sc_addr_format(&addr, header->address);
	sc_addr_file(&addr, name);
	return 0;
}

/* Returns the bytes of header, claims, and buffers with memory. */
static uint64_t first_memory(const struct sc_seg *seg)
{
	return seg->header.slots_offset + sc_seg_pool_memory(seg);
}

static int fallocate_first(const struct sc_seg *seg)
{
	const struct sc_abi_header *header = &seg->header;

	return sc_shmfile_fallocate(seg->fd, 0, 0, (off_t)header->slots_offset) ||
			       sc_shmfile_fallocate(seg->fd, 0, (off_t)header->pool_offset,
						(off_t)sc_seg_pool_memory(seg))
		       ? -1
		       : 0;
}

/*
 * Slots, table and the rest of the pool stay sparse. fallocate() makes a full /dev/shm an error here; with ftruncate()
 * alone it would be a SIGBUS later.
 */
static int give_memory(const struct sc_seg *seg)
{
	int err = sc_shmfile_check_size(seg->header.length);

	if (err)
		return err;
	if (SC_TRY("create.ftruncate", ftruncate(seg->fd, (off_t)seg->header.length)) ||
	    SC_TRY("create.fallocate", fallocate_first(seg)))
		return errno == EDQUOT ? -ENOSPC : -errno;
	return 0;
}

/* Gives the file memory, with half as many buffers each time that there is too little. */
static int allocate(struct sc_seg *seg, const struct sc_seg_geometry *geometry)
{
	uint32_t all = geometry->buf_count;
	uint32_t bufs = geometry->bufs_first && geometry->bufs_first < all ? geometry->bufs_first : all;
	int err;

	set_geometry(&seg->header, geometry);
	for (seg->buf_count = bufs;;) {
		err = give_memory(seg);
		if (err != -ENOSPC || seg->buf_count <= BUFS_MIN)
			break;
		seg->buf_count = seg->buf_count / 2 < BUFS_MIN ? BUFS_MIN : seg->buf_count / 2;
	}
	if (err == -ENOSPC)
		sc_warn(SC_HOST_DIR
			" is full: an endpoint needs %llu bytes; run shmcma reap -v, free space there, or "
			"set a lower FI_SHMCMA_BOUNCE_COUNT for all processes of the job",
			(unsigned long long)first_memory(seg));
	else if (err && err != -EFBIG)
		sc_warn("cannot make a segment of %llu bytes in " SC_HOST_DIR ": %s; %s",
			(unsigned long long)seg->header.length, strerror(-err), sc_shmfile_remedy(-err));
	else if (seg->buf_count < bufs)
		sc_info(SC_HOST_DIR
			" is nearly full: %u bounce buffers instead of %u; free space there to have "
			"more",
			seg->buf_count, bufs);
	return err;
}

static int publish_as(struct sc_seg *seg, const struct sc_ep_name *as, uint16_t index)
{
	char name[SC_ADDR_NAME_MAX];
	int err = set_address(&seg->header, as, index, name);

	if (err)
		return err;
	memcpy(seg->base, &seg->header, sizeof(seg->header));
	(void)SC_FAULT("create.header");
	return sc_shmfile_publish(&seg->file, name);
}

/* Uses the wanted name, or a new one, which is unique because it has 64 random bits: SC_ADDR_NONCE bytes of the nonce. */
static int publish(struct sc_seg *seg, const struct sc_seg_geometry *geometry)
{
	struct sc_ep_name own;
	int err;

	if (geometry->name) {
		err = publish_as(seg, geometry->name, geometry->index);
		return err == -EEXIST ? -EADDRINUSE : err;
	}
	err = sc_ep_name_init(&own);
	return err ? err : publish_as(seg, &own, 0);
}

static int fill_and_publish(struct sc_seg *seg, const struct sc_seg_geometry *geometry)
{
	int err;

	seg->header.magic = SC_ABI_MAGIC;
	seg->header.major = SC_ABI_MAJOR;
	seg->header.minor = SC_ABI_MINOR;
	seg->header.layout = SC_ABI_LAYOUT;
	seg->header.capabilities = geometry->capabilities;
	seg->header.window = geometry->window;
	if (geometry->counters) {
		seg->header.counters_addr = (uintptr_t)geometry->counters;
		seg->header.counters_size = sizeof(*geometry->counters);
		seg->header.free_bufs_offset =
			(int32_t)((intptr_t)geometry->free_bufs - (intptr_t)geometry->counters);
	}
	err = sc_shmfile_describe(&seg->header.owner);
	if (err)
		return err;
	err = allocate(seg, geometry);
	if (err)
		return err;
	err = sc_seg_map(seg);
	if (err)
		return err;
	/* plain stores: no other process sees the file before it has a name */
	sc_seg_presence(seg)->state = SC_ABI_OPEN;
	sc_seg_presence(seg)->buf_count = seg->buf_count;
	(void)SC_FAULT("create.presence");
	err = publish(seg, geometry);
	if (err)
		sc_seg_unmap(seg);
	return err;
}

int sc_seg_create(const struct sc_seg_geometry *geometry, struct sc_seg **out)
{
	struct sc_seg *seg;
	int err;

	seg = calloc(1, sizeof(*seg));
	if (!seg) {
		sc_warn("no memory for an endpoint");
		return -ENOMEM;
	}
	err = sc_shmfile_create(&seg->file);
	if (err)
		goto free_seg;
	seg->fd = seg->file.fd;
	seg->dev = seg->file.dev;
	seg->ino = seg->file.ino;
	seg->made_by = seg->file.made_by;
	seg->own = seg->local = true;
	seg->cma_pid = seg->file.pid;
	(void)sc_attach_init();
	err = fill_and_publish(seg, geometry);
	if (err)
		goto close_file;
	*out = seg;
	return 0;

close_file:
	(void)sc_shmfile_put(&seg->file); /* it never had a name, so nothing borrows it */
	sc_shmfile_close(&seg->file);
free_seg:
	free(seg);
	return err;
}

void sc_seg_destroy(struct sc_seg *seg)
{
	if (!sc_seg_is_here(seg)) {
		sc_shmfile_close(&seg->file); /* inherited; this process has no lock on it */
		free(seg);
		return;
	}
	if (!seg->keep_name)
		sc_shmfile_unlink(&seg->file);
	sc_seg_put(seg);
}
