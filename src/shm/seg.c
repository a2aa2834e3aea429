/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * seg.c: segments: one file for each endpoint, mapped by its owner and by the peers connected to it.
 *
 * Owns the mapping and the private copy of the header. One structure of an own segment is used by one thread
 * at a time; different ones, also of the same segment, by any, and so is one of a peer's, which is the same
 * for all endpoints of this process: mapping it takes longer than all else of a connection.
 *
 * Create: file without name -> memory for all but slots, table and most of the pool -> map -> fill -> lock -> name
 * (shmfile.c).
 * A process that opens the name sees a complete header, and a lock that says whether the owner is alive. If the owner
 * dies before the name is given, nothing remains; after it, a complete segment with a free lock, which no attacher
 * accepts and a reaper removes.
 *
 * Attach believes nothing: type, owner, mode and links of the file, a held lock, then a copy of the header
 * checked as a whole by header.c; only the copy is used from there on, so all offsets stay
 * inside the mapping whatever is written to the shared page later. An attacher's death leaves nothing.
 *
 * The parts that an attacher must not write become read-only in its mapping: all but the first pages (presence,
 * claims), the slots that its endpoints have claimed, and the pool once it has been let write into a buffer of it
 * (hold.h). So a wild write there, of the application say, faults, where it would have changed what others read of the
 * owner, or the ring of another peer. That is done some time after it has been attached, in a poll (sc_seg_guard()),
 * not while it connects: two mprotect(2) are a quarter of the time of a connection, and of a job that begins a sixth.
 *
 * An owner that dies while attached leaves the mapping usable: the memory goes with the last of them.
 * A segment of this very process is borrowed, never opened (shmfile.c says why).
 *
 * An endpoint that an address vector asks for is likely to be attached soon: its descriptor and the examined header are
 * kept in `found`, so that attaching looks only whether the descriptor is what it was and the owner lives (a header
 * does not change). A descriptor keeps the memory of a file whose owner dies, so they are few, count as those of
 * attached segments do, and are closed soon: FOUND_MS later in a process that polls, else when a process has died, at
 * the daemon's next tick, or when a segment of this process is closed.
 *
 * All mappings are MADV_DONTFORK: a forked child has no mapping to unmap, and its memory at those addresses is not
 * ours.
 */
#define _GNU_SOURCE 1
#include "shm/seg.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/atomic.h"
#include "shm/header.h"
#include "os/host.h"
#include "base/fault.h"
#include "base/list.h"
#include "os/lifelock.h"
#include "base/log.h"
#include "os/probe.h"

#define NAME_TRIES 16
#define BUFS_MIN 2

static atomic_uint kept_fds; /* descriptors of peers' segments that are open */

/* Attached segments of live peers, by address. Never held over a system call. */
#define SHARED_BUCKETS 256
static pthread_once_t shared_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t shared_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sc_seg *shared[SHARED_BUCKETS];

/* Of all attached segments: slots, guarded, pool_open. */
static pthread_mutex_t access_mutex = PTHREAD_MUTEX_INITIALIZER;

/*
 * Found and not attached yet, in one of FOUND_PLACES places from that of the address on. Under shared_mutex; a place
 * is taken and left in one store, so that a forked child, whose copy of the mutex says nothing, can close what is there.
 */
#define FOUND_PLACES 4
#define FOUND_MS 1000
static struct sc_seg *_Atomic found[SC_SEG_FOUND_MAX];
static int64_t found_since;  /* when the first of them was, ms of CLOCK_MONOTONIC */
static atomic_uint own_segs; /* of this process: without any, who closes what has been found? */
atomic_uint sc_seg_found;

static uint64_t align_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

/* A forked child has none of the segments that the parent has attached. */
static void atfork_child(void)
{
	shared_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	access_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	memset(shared, 0, sizeof(shared));
	own_segs = 0;
	sc_seg_forget_found(); /* the child is alone */
}

static bool can_fork;
static atomic_bool unshared; /* there are attached segments that are not in `shared` */

static void shared_init(void)
{
	can_fork = !SC_TRY("seg.atfork", pthread_atfork(NULL, NULL, atfork_child));
}

/* ---- create ---------------------------------------------------------------------------------- */

static bool is_possible(const struct sc_seg_geometry *geometry)
{
	return geometry->slots && geometry->slots <= SC_ABI_SLOTS_MAX && geometry->buf_count &&
	       geometry->buf_count <= SC_ABI_BUFS_MAX && geometry->buf_size &&
	       geometry->buf_size <= SC_ABI_BUF_SIZE_MAX && geometry->buf_size % SC_ABI_LINE == 0 &&
	       geometry->regs <= SC_ABI_REGS_MAX && geometry->ranges <= SC_ABI_RANGES_MAX &&
	       (geometry->regs || !geometry->ranges);
}

/*
 * The parts follow each other as abi.h draws them; slots, pool and table begin on pages of their own. The slot of the
 * first peer that connects is right behind the claims, so that both are one mapping of that peer, and the parts that it
 * may only read are another: endpoint and first message to 63 peers, the first of each, 2.47 ms with the pool in
 * between, 2.27 so.
 */
static void set_geometry(struct sc_abi_header *header, const struct sc_seg_geometry *geometry)
{
	uint64_t claims_end = SC_ABI_PAGE + (uint64_t)geometry->slots * sizeof(uint64_t);
	uint64_t pool_size = (uint64_t)geometry->buf_count * geometry->buf_size;

	header->claims_offset = SC_ABI_PAGE;
	header->slot_count = geometry->slots;
	header->slots_offset = align_up(claims_end, SC_ABI_PAGE);
	header->slot_size = SC_ABI_SLOT_SIZE;
	header->pool_offset = header->slots_offset + (uint64_t)geometry->slots * SC_ABI_SLOT_SIZE;
	header->buf_size = geometry->buf_size;
	header->buf_count = geometry->buf_count;
	header->ring_lines = SC_ABI_RING_LINES;
	header->table_offset = align_up(header->pool_offset + pool_size, SC_ABI_PAGE);
	header->reg_max = geometry->regs;
	header->range_max = geometry->ranges;
	header->length = header->table_offset + SC_ABI_TABLE_SIZE(geometry->regs, geometry->ranges);
}

int sc_ep_name_init(struct sc_ep_name *name)
{
	return sc_host_random(name->nonce, sizeof(name->nonce));
}

static int set_address(struct sc_abi_header *header, const struct sc_ep_name *as, uint16_t index,
		       char name[SC_ADDR_NAME_MAX])
{
	const struct sc_host *host;
	struct sc_addr addr = { .pid = (uint32_t)header->owner.pid, .ep = index };
	int err = sc_host_get(&host);

	if (err)
		return err;
	memcpy(header->nonce, as->nonce, sizeof(header->nonce));
	addr.host = host->id;
	addr.uid = sc_addr_uid(host);
	memcpy(addr.nonce, header->nonce, sizeof(addr.nonce));
	sc_addr_format(&addr, header->address);
	sc_addr_file(&addr, name);
	return 0;
}

/* Of the pool's buffers that have memory, to a whole page. */
static uint64_t pool_memory(const struct sc_seg *seg)
{
	return align_up((uint64_t)seg->buf_count * seg->header.buf_size, SC_ABI_PAGE);
}

/* Of header and claims, and the pool's. */
static uint64_t first_memory(const struct sc_seg *seg)
{
	return seg->header.slots_offset + pool_memory(seg);
}

static int fallocate_first(const struct sc_seg *seg)
{
	const struct sc_abi_header *header = &seg->header;

	return sc_shmfile_fallocate(seg->fd, 0, 0, (off_t)header->slots_offset) ||
			       sc_shmfile_fallocate(seg->fd, 0, (off_t)header->pool_offset,
						(off_t)pool_memory(seg))
		       ? -1
		       : 0;
}

/*
 * Slots, table and the rest of the pool stay sparse. fallocate, not ftruncate alone: a full /dev/shm is an error
 * here, not SIGBUS later.
 */
static int give_memory(const struct sc_seg *seg)
{
	int err = sc_shmfile_check_size(seg->header.length);

	if (err)
		return err;
	if (SC_TRY("seg.ftruncate", ftruncate(seg->fd, (off_t)seg->header.length)) ||
	    SC_TRY("seg.fallocate", fallocate_first(seg)))
		return errno == EDQUOT ? -ENOSPC : -errno;
	return 0;
}

/* Memory for the file, with half the buffers as long as there is not enough. */
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
			" is full: %llu bytes needed for an endpoint; free space there or lower "
			"FI_SHMCMA_BOUNCE_COUNT",
			(unsigned long long)first_memory(seg));
	else if (err && err != -EFBIG)
		sc_warn("no memory for an endpoint's segment of %llu bytes in " SC_HOST_DIR ": %s",
			(unsigned long long)seg->header.length, strerror(-err));
	else if (seg->buf_count < bufs)
		sc_info(SC_HOST_DIR
			" is nearly full: %u bounce buffers instead of %u; free space there to have "
			"more",
			seg->buf_count, bufs);
	return err;
}

static int map(struct sc_seg *seg)
{
	void *base =
		SC_TRY_PTR("seg.mmap", MAP_FAILED,
			   mmap(NULL, seg->header.length, PROT_READ | PROT_WRITE, MAP_SHARED, seg->fd, 0));
	int err = base == MAP_FAILED ? errno : 0;

	if (!err && SC_TRY("seg.madvise", madvise(base, seg->header.length, MADV_DONTFORK)))
		err = errno;
	if (!err) {
		seg->base = base;
		return 0;
	}
	if (base != MAP_FAILED)
		SC_CALL("seg.unmap", munmap(base, seg->header.length));
	sc_warn("cannot map a segment of %llu bytes: %s; see ulimit -v and vm.max_map_count",
		(unsigned long long)seg->header.length, strerror(err));
	return -err;
}

static void unmap(struct sc_seg *seg)
{
	SC_CALL("seg.munmap", munmap(seg->base, seg->header.length));
	seg->base = NULL;
}

static int publish_as(struct sc_seg *seg, const struct sc_ep_name *as, uint16_t index)
{
	char name[SC_ADDR_NAME_MAX];
	int err = set_address(&seg->header, as, index, name);

	if (err)
		return err;
	memcpy(seg->base, &seg->header, sizeof(seg->header));
	(void)SC_FAULT("seg.header");
	return sc_shmfile_publish(&seg->file, name);
}

/* Under a name that nobody has: the nonce makes a second try all but impossible. */
static int publish_new(struct sc_seg *seg)
{
	struct sc_ep_name name;
	int err = sc_ep_name_init(&name);

	for (int tries = 0; !err && tries < NAME_TRIES; tries++) {
		err = publish_as(seg, &name, 0);
		if (err != -EEXIST)
			return err;
		err = sc_host_random(name.nonce, sizeof(name.nonce));
	}
	if (err)
		return err;
	sc_warn("%d random names in " SC_HOST_DIR " were all taken", NAME_TRIES);
	return -EEXIST;
}

static int publish(struct sc_seg *seg, const struct sc_seg_geometry *geometry)
{
	int err;

	if (!geometry->name)
		return publish_new(seg);
	err = publish_as(seg, geometry->name, geometry->index);
	return err == -EEXIST ? -EADDRINUSE : err;
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
	err = sc_shmfile_describe(&seg->header.owner);
	if (err)
		return err;
	err = allocate(seg, geometry);
	if (err)
		return err;
	err = map(seg);
	if (err)
		return err;
	/* plain: nobody else sees it before it has a name */
	sc_seg_presence(seg)->state = SC_ABI_OPEN;
	sc_seg_presence(seg)->buf_count = seg->buf_count;
	(void)SC_FAULT("seg.presence");
	err = publish(seg, geometry);
	if (err)
		unmap(seg);
	return err;
}

int sc_seg_create(const struct sc_seg_geometry *geometry, struct sc_seg **out)
{
	struct sc_seg *seg;
	int err;

	if (!is_possible(geometry)) {
		sc_warn("no segment can have %u slots, %u bounce buffers of %u bytes, %u registrations "
			"and "
			"%u ranges",
			geometry->slots, geometry->buf_count, geometry->buf_size, geometry->regs,
			geometry->ranges);
		return -EINVAL;
	}
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
	seg->pid = seg->file.pid;
	seg->made_by = seg->file.made_by;
	seg->own = seg->local = true;
	seg->cma_pid = seg->pid;
	pthread_once(&shared_once, shared_init);
	err = fill_and_publish(seg, geometry);
	if (err)
		goto close_file;
	atomic_fetch_add(&own_segs, 1);
	*out = seg;
	return 0;

close_file:
	(void)sc_shmfile_put(&seg->file); /* never named: there is no borrower */
	sc_shmfile_close(&seg->file);
free_seg:
	free(seg);
	return err;
}

/* One user of an own segment has done with it. The lock goes last, after the mapping. */
static void put_own(struct sc_seg *seg)
{
	if (!sc_shmfile_put(&seg->file))
		return;
	unmap(seg);
	sc_shmfile_close(&seg->file);
	free(seg);
}

void sc_seg_destroy(struct sc_seg *seg)
{
	if (!sc_seg_is_here(seg)) {
		sc_shmfile_close(&seg->file); /* inherited; the lock is not on it */
		free(seg);
		return;
	}
	if (!seg->keep_name)
		sc_shmfile_unlink(&seg->file);
	atomic_fetch_sub(&own_segs, 1);
	sc_seg_forget_found();
	put_own(seg);
}

/* ---- what may be written to ------------------------------------------------------------------ */

static int make_writable(const struct sc_seg *seg, uint64_t offset, uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = offset / page * page;
	uint64_t to = align_up(offset + size, page);

	return SC_TRY("seg.mprotect", mprotect(seg->base + from, to - from, PROT_READ | PROT_WRITE))
		       ? -errno
		       : 0;
}

/* Whole pages of that only. Where it fails (too many mappings) there is less protection, and nothing is wrong. */
static void make_read_only(const struct sc_seg *seg, uint64_t from, uint64_t to)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	from = align_up(from, page);
	to = to / page * page;
	if (from < to)
		(void)SC_TRY("seg.guard", mprotect(seg->base + from, to - from, PROT_READ));
}

static uint64_t slot_offset(const struct sc_seg *seg, uint32_t slot)
{
	return seg->header.slots_offset + (uint64_t)slot * SC_ABI_SLOT_SIZE;
}

/* All but the slots of ours, and the pool if it is open. */
static void guard_locked(const struct sc_seg *seg)
{
	const struct sc_abi_header *header = &seg->header;
	uint64_t from = header->slots_offset;

	for (uint32_t i = 0; i < seg->slot_count; i++) {
		make_read_only(seg, from, slot_offset(seg, seg->slots[i]));
		from = slot_offset(seg, seg->slots[i]) + SC_ABI_SLOT_SIZE;
	}
	if (seg->pool_open) {
		make_read_only(seg, from, header->pool_offset);
		from = header->pool_offset + (uint64_t)header->buf_count * header->buf_size;
	}
	make_read_only(seg, from, align_up(header->length, (uint64_t)sysconf(_SC_PAGESIZE)));
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
	uint32_t *slots = SC_TRY_PTR("seg.slots", NULL,
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

/* It has been claimed, for an endpoint of this process. */
static int open_slot(struct sc_seg *seg, uint32_t slot)
{
	int err = 0;

	pthread_mutex_lock(&access_mutex);
	if (!has_slot(seg, slot)) {
		if (seg->guarded)
			err = make_writable(seg, slot_offset(seg, slot), SC_ABI_SLOT_SIZE);
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

/* ---- attach ---------------------------------------------------------------------------------- */

static int parse_here(const char *addr, char name[SC_ADDR_NAME_MAX])
{
	const struct sc_host *host;
	struct sc_addr parts;
	int err = sc_addr_parse(addr, &parts);

	if (err) {
		sc_warn("\"%.63s\" is not the address of an endpoint", addr);
		return err;
	}
	err = sc_host_get(&host);
	if (err)
		return err;
	if (parts.host != host->id) {
		sc_info("%s is of another machine, another boot of this one, or another " SC_HOST_DIR
			" (container); reach it by a network provider",
			addr);
		return -EHOSTUNREACH;
	}
	sc_addr_file(&parts, name);
	return 0;
}

static int refuse_dead(const char *addr)
{
	sc_info("%s is not there: its process has ended or closed it", addr);
	return -ECONNREFUSED;
}

static int reject(const char *addr, int err, const char *fault)
{
	sc_warn("cannot attach to %s: %s", addr, fault);
	return err;
}

static int open_file(const char *addr, const char *name, struct stat *st)
{
	int fd = sc_shmfile_open_peer(name, st);

	switch (fd) {
	case -ENOENT:
		return refuse_dead(addr);
	case -EACCES:
		return reject(addr, fd, "its file is not a regular one of this user with mode 0600");
	case -EBUSY:
		return reject(addr, -ECONNREFUSED,
			      "this process holds it, but not by this copy of the library; load it once");
	default:
		return sc_shmfile_move_other(fd);
	}
}

static int read_header(int fd, const char *addr, const struct stat *st, struct sc_abi_header *header)
{
	ssize_t got = SC_TRY("seg.pread", pread(fd, header, sizeof(*header), 0));
	const char *fault;

	if (got < 0)
		return reject(addr, -errno, "its header cannot be read");
	if ((size_t)got < sizeof(*header))
		return reject(addr, -EPROTO, "its file is too short");
	fault = sc_header_fault(header, (uint64_t)st->st_size, addr);
	return fault ? reject(addr, -EPROTO, fault) : 0;
}

/*
 * A reaper, too, holds the lock of a dead owner's file for a moment. An attacher in another pid namespace cannot tell
 * the two apart; it finds the lock free the next time it looks.
 */
static int check_holder(const char *addr, bool left, struct sc_seg *seg)
{
	const struct sc_host *host;
	int err = sc_host_get(&host);

	if (err)
		return err;
	if (seg->header.owner.pid_ns != host->pid_ns || seg->header.owner.pid == seg->cma_pid)
		return 0;
	seg->cma_pid = 0;
	return left ? 0 : refuse_dead(addr);
}

/* All that can be known of a file that has just been opened, in *seg. */
static int examine(const char *addr, bool left, const struct stat *st, struct sc_seg *seg)
{
	int alive = sc_lifelock_check(seg->fd, &seg->cma_pid);
	int err;

	if (alive < 0)
		return reject(addr, alive, "its life lock cannot be read");
	if ((!alive && !left) || !st->st_nlink)
		return refuse_dead(addr);
	if (st->st_nlink > 1)
		return reject(addr, -EACCES, "its file has more than one name");
	err = read_header(seg->fd, addr, st, &seg->header);
	return err ? err : check_holder(addr, left, seg);
}

/* Another process's segment, live or `left`: file open, header checked, nothing mapped. */
static int open_other(const char *addr, const char *name, bool left, struct sc_seg *seg)
{
	struct stat st;
	int err;

	seg->fd = open_file(addr, name, &st);
	if (seg->fd < 0)
		return seg->fd;
	seg->dev = st.st_dev;
	seg->ino = st.st_ino;
	err = examine(addr, left, &st, seg);
	if (err)
		sc_shmfile_close_other(seg->fd);
	return err;
}

static void drop_descriptor(struct sc_seg *seg)
{
	if (seg->fd < 0)
		return;
	atomic_fetch_sub(&kept_fds, 1);
	if (sc_shmfile_is_open(seg->fd, seg->dev, seg->ino))
		sc_shmfile_close_other(seg->fd);
	seg->fd = -1;
}

/* One descriptor more. False: the application needs the others. */
static bool count_descriptor(void)
{
	struct rlimit limit;
	rlim_t most = SC_TRY("seg.limit", getrlimit(RLIMIT_NOFILE, &limit)) ? 0 : limit.rlim_cur / 4;

	return atomic_fetch_add(&kept_fds, 1) < most;
}

/*
 * A descriptor is kept for a quick look at the lock, as long as the application has plenty left; in any case
 * of a process that is not visible from here, as nothing else tells of its death once its name is removed.
 */
static void keep_descriptor(struct sc_seg *seg)
{
	bool few = count_descriptor();

	if (!few && atomic_load(&sc_seg_found)) { /* those first */
		sc_seg_forget_found();
		atomic_fetch_sub(&kept_fds, 1);
		few = count_descriptor();
	}
	if (!few && seg->cma_pid)
		drop_descriptor(seg);
}

static int attach_other(const char *addr, const char *name, bool left, struct sc_seg *seg)
{
	int err = open_other(addr, name, left, seg);

	if (err)
		return err;
	err = map(seg);
	if (err) {
		sc_shmfile_close_other(seg->fd);
		return err;
	}
	keep_descriptor(seg);
	return 0;
}

static int attach_found(struct sc_seg *seg)
{
	int err = map(seg);

	if (err)
		drop_descriptor(seg);
	return err;
}

static void attach_local(struct sc_seg *lender, struct sc_seg *seg)
{
	seg->header = lender->header;
	seg->base = lender->base;
	seg->fd = lender->fd;
	seg->dev = lender->dev;
	seg->ino = lender->ino;
	seg->local = true;
	seg->cma_pid = lender->pid;
	seg->lender = lender;
}

static uint32_t hash_of(const char *addr)
{
	uint32_t hash = sc_addr_hash(addr, strlen(addr));

	return hash ^ hash >> 16;
}

static struct sc_seg **shared_chain(const char *addr)
{
	return &shared[hash_of(addr) % SHARED_BUCKETS];
}

static void shared_add(struct sc_seg *seg)
{
	struct sc_seg **chain = shared_chain(seg->header.address);

	pthread_once(&shared_once, shared_init);
	if (!can_fork) {
		atomic_store(&unshared, true);
		return;
	}
	pthread_mutex_lock(&shared_mutex);
	seg->next = *chain;
	*chain = seg;
	pthread_mutex_unlock(&shared_mutex);
}

/* One user less. True: it was the last, and nobody finds it any more. */
static bool shared_put(struct sc_seg *seg)
{
	struct sc_seg **at = shared_chain(seg->header.address);
	bool last;

	pthread_mutex_lock(&shared_mutex);
	last = !--seg->users;
	if (last) {
		while (*at && *at != seg)
			at = &(*at)->next;
		if (*at)
			*at = seg->next;
	}
	pthread_mutex_unlock(&shared_mutex);
	return last;
}

static struct sc_seg *shared_find_locked(const char *addr)
{
	for (struct sc_seg *seg = *shared_chain(addr); seg; seg = seg->next)
		if (sc_seg_is_here(seg) && !strcmp(seg->header.address, addr))
			return seg;
	return NULL;
}

/* Attached by this process already, and its owner lives: one user more. NULL: not, or it cannot be told. */
static struct sc_seg *shared_get(const char *addr)
{
	struct sc_seg *seg;

	pthread_mutex_lock(&shared_mutex);
	seg = shared_find_locked(addr);
	if (seg)
		seg->users++;
	pthread_mutex_unlock(&shared_mutex);
	if (!seg || sc_seg_check_owner(seg) == 1)
		return seg;
	sc_seg_detach(seg);
	return NULL;
}

static struct sc_seg *new_attached(const char *addr)
{
	struct sc_seg *seg = calloc(1, sizeof(*seg));

	if (!seg) {
		sc_warn("no memory to attach to %s", addr);
		return NULL;
	}
	seg->pid = getpid();
	seg->made_by = sc_host_self();
	seg->users = 1;
	return seg;
}

/* ---- found ahead ----------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	return sc_clock_ns() / 1000000;
}

static void discard(struct sc_seg *seg)
{
	drop_descriptor(seg);
	free(seg);
}

static struct sc_seg *found_remove(uint32_t place)
{
	struct sc_seg *seg = atomic_exchange(&found[place], NULL);

	if (seg)
		atomic_fetch_sub(&sc_seg_found, 1);
	return seg;
}

static bool found_add_locked(struct sc_seg *seg)
{
	uint32_t first = hash_of(seg->header.address) % SC_SEG_FOUND_MAX;

	if (shared_find_locked(seg->header.address))
		return false; /* it is attached */
	for (uint32_t i = first; i < first + FOUND_PLACES; i++) {
		if (found[i % SC_SEG_FOUND_MAX])
			continue;
		if (!atomic_fetch_add(&sc_seg_found, 1))
			found_since = now_ms();
		found[i % SC_SEG_FOUND_MAX] = seg;
		return true;
	}
	return false;
}

/* Its descriptor is counted. */
static void found_add(struct sc_seg *seg)
{
	bool added;

	pthread_mutex_lock(&shared_mutex);
	added = found_add_locked(seg);
	pthread_mutex_unlock(&shared_mutex);
	if (!added)
		discard(seg);
}

static struct sc_seg *found_take_locked(const char *addr)
{
	uint32_t first = hash_of(addr) % SC_SEG_FOUND_MAX;

	for (uint32_t i = first; i < first + FOUND_PLACES; i++) {
		struct sc_seg *seg = found[i % SC_SEG_FOUND_MAX];

		if (seg && sc_seg_is_here(seg) && !strcmp(seg->header.address, addr))
			return found_remove(i % SC_SEG_FOUND_MAX);
	}
	return NULL;
}

/* Is it what has been examined, and does its owner live? */
static bool is_as_found(const struct sc_seg *seg)
{
	struct stat as = {
		.st_dev = seg->dev, .st_ino = seg->ino, .st_size = (off_t)seg->header.length, .st_nlink = 1
	};
	pid_t holder = 0;

	return sc_lifelock_check(seg->fd, &holder) == 1 && holder == seg->cma_pid &&
	       sc_shmfile_is_unchanged(seg->fd, &as);
}

/* The segment that was found under that address, if it is still the same; the caller owns it. */
static struct sc_seg *found_take(const char *addr)
{
	struct sc_seg *seg;

	if (!atomic_load(&sc_seg_found))
		return NULL;
	pthread_mutex_lock(&shared_mutex);
	seg = found_take_locked(addr);
	pthread_mutex_unlock(&shared_mutex);
	if (!seg || is_as_found(seg))
		return seg;
	discard(seg);
	return NULL;
}

void sc_seg_forget_found(void)
{
	for (uint32_t i = 0; i < SC_SEG_FOUND_MAX && atomic_load(&sc_seg_found); i++) {
		struct sc_seg *seg;

		pthread_mutex_lock(&shared_mutex);
		seg = found_remove(i);
		pthread_mutex_unlock(&shared_mutex);
		if (seg)
			discard(seg);
	}
}

void sc_seg_forget_found_slow(void)
{
	bool late;

	pthread_mutex_lock(&shared_mutex);
	late = now_ms() >= found_since + FOUND_MS;
	pthread_mutex_unlock(&shared_mutex);
	if (late)
		sc_seg_forget_found();
}

/* ---- attach and detach ------------------------------------------------------------------------ */

static int attach(const char *addr, bool left, struct sc_seg **out)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_shmfile *file;
	struct sc_seg *seg;
	bool ahead;
	int err = parse_here(addr, name);

	if (err)
		return err;
	seg = left ? NULL : shared_get(addr);
	if (seg) {
		*out = seg;
		return 0;
	}
	seg = left ? NULL : found_take(addr);
	ahead = seg;
	if (!seg)
		seg = new_attached(addr);
	if (!seg)
		return -ENOMEM;
	file = ahead ? NULL : sc_shmfile_borrow(name);
	if (file)
		attach_local(sc_list_entry(file, struct sc_seg, file), seg);
	else
		err = ahead ? attach_found(seg) : attach_other(addr, name, left, seg);
	if (err) {
		free(seg);
		return err;
	}
	if (!file && !left)
		shared_add(seg);
	*out = seg;
	return 0;
}

int sc_seg_attach(const char *addr, struct sc_seg **seg)
{
	return attach(addr, false, seg);
}

int sc_seg_attach_left(const char *addr, struct sc_seg **out)
{
	struct sc_seg *seg = NULL;
	int err = attach(addr, true, &seg);

	if (err)
		return err;
	if (sc_load_acquire_32(&sc_seg_presence(seg)->state) != SC_ABI_CLOSED &&
	    sc_seg_check_owner(seg) != 0) {
		sc_seg_detach(seg);
		return -ECONNREFUSED;
	}
	*out = seg;
	return 0;
}

void sc_seg_leave(struct sc_seg *seg)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_addr parts;

	uint32_t unread = sc_add_acq_rel_32(&sc_seg_presence(seg)->unread, UINT32_MAX);

	(void)SC_FAULT("seg.left");
	if (unread != 1 || sc_addr_parse(seg->header.address, &parts))
		return;
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	if (sc_shmfile_is_named(name, seg->dev, seg->ino) && SC_TRY("seg.unlink", unlink(path)))
		sc_info("cannot remove %s, which its owner has left to be read: %s", path,
			strerror(errno));
}

void sc_seg_detach(struct sc_seg *seg)
{
	bool here = sc_seg_is_here(seg);

	if (seg->lender) {
		if (here)
			put_own(seg->lender);
	} else {
		/* a forked child is alone, whatever its copy of the mutex says */
		if (here ? !shared_put(seg) : --seg->users)
			return;
		if (here)
			unmap(seg);
		drop_descriptor(seg);
		free(seg->slots);
	}
	free(seg);
}

static bool is_open_slot(const struct sc_seg *seg, uint32_t slot)
{
	bool open;

	pthread_mutex_lock(&access_mutex);
	open = has_slot(seg, slot);
	pthread_mutex_unlock(&access_mutex);
	return open;
}

/*
 * Has an endpoint of this process, of that ticket, claimed a slot there that has not been answered? A slot that we
 * have claimed and published has memory; of another's that shows our ticket the answer is not looked at.
 */
static bool is_claimed(const struct sc_seg *seg, uint64_t ticket)
{
	uint64_t *claims = sc_seg_claims(seg);

	for (uint32_t i = 0; i < seg->header.slot_count; i++) {
		uint64_t claim = sc_load_acquire_64(&claims[i]);

		if (SC_ABI_CLAIM_TICKET(claim) != ticket)
			continue;
		if ((claim & SC_ABI_CLAIM_STATE) == SC_ABI_CLAIMED)
			return true;
		if ((claim & SC_ABI_CLAIM_BITS) == SC_ABI_PUBLISHED && is_open_slot(seg, i) &&
		    sc_load_acquire_32(&sc_seg_slot(seg, i)->consumer.answer) == SC_ABI_PENDING)
			return true;
	}
	return false;
}

/* From that one of a chain on. */
static struct sc_seg *find_claimed_locked(struct sc_seg *seg, uint64_t ticket)
{
	for (; seg; seg = seg->next)
		if (sc_seg_is_here(seg) && sc_load_acquire_32(&sc_seg_presence(seg)->state) != SC_ABI_CLOSED &&
		    is_claimed(seg, ticket))
			return seg;
	return NULL;
}

struct sc_seg *sc_seg_next_claimed(struct sc_seg *after, uint64_t ticket)
{
	uint32_t bucket = after ? hash_of(after->header.address) % SHARED_BUCKETS : 0;
	struct sc_seg *seg;

	pthread_mutex_lock(&shared_mutex);
	seg = find_claimed_locked(after ? after->next : shared[0], ticket);
	while (!seg && ++bucket < SHARED_BUCKETS)
		seg = find_claimed_locked(shared[bucket], ticket);
	if (seg)
		seg->users++;
	pthread_mutex_unlock(&shared_mutex);
	if (after)
		sc_seg_detach(after);
	return seg;
}

bool sc_seg_finds_all(void)
{
	return !atomic_load(&unshared);
}

/* Is there one of this process? -errno. */
static int find_own(const char *addr, char name[SC_ADDR_NAME_MAX], bool *own)
{
	struct sc_shmfile *file;
	int err = parse_here(addr, name);

	*own = false;
	if (err)
		return err;
	file = sc_shmfile_borrow(name);
	if (file)
		put_own(sc_list_entry(file, struct sc_seg, file));
	*own = file;
	return 0;
}

int sc_seg_find(const char *addr)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_seg seg = { 0 };
	bool own;
	int err = find_own(addr, name, &own);

	if (err || own)
		return err;
	err = open_other(addr, name, false, &seg);
	if (!err)
		sc_shmfile_close_other(seg.fd);
	return err;
}

/* It is to be added, or its descriptor is closed. */
static void found_keep(struct sc_seg *seg)
{
	if (count_descriptor() && can_fork && atomic_load(&own_segs))
		found_add(seg);
	else
		discard(seg);
}

int sc_seg_find_ahead(const char *addr)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_seg *seg;
	bool own;
	int err = find_own(addr, name, &own);

	if (err || own)
		return err;
	seg = found_take(addr);
	if (seg) {
		found_add(seg);
		return 0;
	}
	seg = new_attached(addr);
	if (!seg)
		return -ENOMEM;
	err = open_other(addr, name, false, seg);
	if (err)
		free(seg);
	else
		found_keep(seg);
	return err;
}

/* ---- attached -------------------------------------------------------------------------------- */

/* The file of a segment whose descriptor was closed. -ENOENT: the name is gone, or another file's. */
static int open_again(const struct sc_seg *seg)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;
	struct stat st;
	int fd;

	if (sc_addr_parse(seg->header.address, &parts))
		return -ENOENT;
	sc_addr_file(&parts, name);
	fd = sc_shmfile_open_other(name, &st);
	if (fd < 0 || (st.st_dev == seg->dev && st.st_ino == seg->ino))
		return fd;
	sc_shmfile_close_other(fd);
	return -ENOENT;
}

/*
 * That process holds a lock on what the descriptor is of. Should that be another file since closefrom(3), the
 * process lives all the same.
 */
static bool is_held(const struct sc_seg *seg)
{
	pid_t holder = 0;

	return seg->fd >= 0 && seg->cma_pid && sc_lifelock_check(seg->fd, &holder) == 1 &&
	       holder == seg->cma_pid;
}

/*
 * Neither descriptor nor name is left to ask the life lock by. That the name is gone says nothing: its owner
 * removes it, or a reaper, but so do logind (RemoveIPC) and people. 0: the process has ended; -ENOENT.
 */
static int check_process_slow(const struct sc_seg *seg)
{
	if (seg->cma_pid && sc_host_has_ended(seg->cma_pid, seg->header.owner.pidfs_ino))
		return 0;
	return -ENOENT;
}

/*
 * A reaper, too, holds the lock for a moment, with its own pid: a process that looks just then must not take the owner
 * for alive, as nothing would have it look again soon.
 */
static int check_lock(const struct sc_seg *seg, int fd)
{
	pid_t holder = 0;
	int held = sc_lifelock_check(fd, &holder);

	return held == 1 && holder != seg->cma_pid ? 0 : held;
}

int sc_seg_check_owner(const struct sc_seg *seg)
{
	int fd, alive;

	if (seg->own)
		return 1;
	if (seg->lender)
		return sc_shmfile_has_name(&seg->lender->file);
	if (is_held(seg))
		return 1; /* the common case in one system call */
	if (sc_shmfile_is_open(seg->fd, seg->dev, seg->ino))
		return check_lock(seg, seg->fd);
	fd = open_again(seg);
	if (fd < 0)
		return fd == -ENOENT ? check_process_slow(seg) : fd;
	alive = check_lock(seg, fd);
	sc_shmfile_close_other(fd);
	return alive;
}

/* Give a part of the file memory, or take it away. */
static int part_fallocate(struct sc_seg *seg, uint64_t offset, uint64_t size, int mode)
{
	struct sc_seg *mine = seg->own ? seg : seg->lender;
	bool kept = mine || sc_shmfile_is_open(seg->fd, seg->dev, seg->ino);
	int fd = mine ? sc_shmfile_fd(&mine->file) : kept ? seg->fd : open_again(seg);
	int err = 0;

	if (fd < 0)
		return fd;
	if (SC_TRY("seg.part", sc_shmfile_fallocate(fd, mode, (off_t)offset, (off_t)size)))
		err = errno == EDQUOT ? -ENOSPC : -errno;
	if (!kept)
		sc_shmfile_close_other(fd);
	return err;
}

static int slot_fallocate(struct sc_seg *seg, uint32_t slot, uint32_t from, uint32_t to, int mode)
{
	int err = SC_FAIL("seg.slot");

	return err ? -err : part_fallocate(seg, slot_offset(seg, slot) + from, to - from, mode);
}

int sc_seg_slot_alloc(struct sc_seg *seg, uint32_t slot)
{
	int err = slot_fallocate(seg, slot, 0, SC_ABI_SLOT_FIRST, 0);

	if (!err && is_mapped_apart(seg))
		err = open_slot(seg, slot);
	if (err == -ENOSPC)
		sc_warn(SC_HOST_DIR
			" is full: %u bytes needed to connect to %s; free space there or lower "
			"FI_SHMCMA_BOUNCE_COUNT",
			SC_ABI_SLOT_FIRST, seg->header.address);
	else if (err)
		sc_warn("no memory to connect to %s: %s", seg->header.address, strerror(-err));
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

/* Only what is new is asked for: a failure takes back nothing that there was. */
int sc_seg_pool_grow(struct sc_seg *seg, uint32_t count)
{
	uint64_t had_memory = pool_memory(seg), more;
	uint32_t had = seg->buf_count;
	int err = SC_FAIL("seg.pool");

	if (count > seg->header.buf_count)
		return -ENOSPC;
	seg->buf_count = count;
	more = pool_memory(seg) - had_memory;
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
	(void)SC_FAULT("seg.buf_count");
	return 0;
}

/*
 * Bytes of a peer's pool that are looked at together. Not all that it counts: that may be gigabytes without memory, which
 * they would get by it.
 */
#define POOL_STRETCH (SC_ABI_RECORD_BUFS * SC_ABI_BUF_SIZE_MAX)

/* All up to `count` that are not known yet, but not too many. */
static bool has_stretch(struct sc_seg *seg, uint32_t buf, uint32_t count)
{
	uint32_t known = sc_load_relaxed_32(&seg->buf_count), most = POOL_STRETCH / seg->header.buf_size;

	if (buf - known >= most) /* or another thread has raised it */
		return false;
	if (count - known > most)
		count = known + most;
	if (!sc_probe_is_there(sc_seg_buf(seg, known), (size_t)(count - known) * seg->header.buf_size))
		return false;
	/* one thread may store less than another has: then it is looked at again */
	sc_store_relaxed_32(&seg->buf_count, count);
	return true;
}

/*
 * A number that has come in a record is one that its owner has counted before. The kernel is asked as well, each time that
 * there are more: a buffer that has been counted without memory would cost us a SIGBUS where there is none left.
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

/* ---- registration table ---------------------------------------------------------------------- */

static int table_fallocate(struct sc_seg *seg, const void *from, uint64_t size)
{
	uint64_t offset = (uint64_t)((const uint8_t *)from - seg->base);
	int err = SC_FAIL("seg.table");

	return err ? -err : part_fallocate(seg, offset, size, 0);
}

struct array {
	const void *at;
	uint32_t size, most, count; /* bytes of an element; elements at most, and with memory */
};

/*
 * Half as much again and whole pages, so that it is done seldom; if there is not so much memory, as much as needed.
 * Only new memory is asked for: a failure takes back none that there was.
 */
static int grow_array(struct sc_seg *seg, const struct array *array, uint32_t *count)
{
	const uint8_t *from = (const uint8_t *)array->at + (uint64_t)array->count * array->size;
	uint32_t page = SC_ABI_PAGE / array->size;
	uint64_t need = align_up(*count, page);
	uint64_t want = align_up(array->count + array->count / 2, page);
	int err;

	if (*count > array->most)
		return -ENOSPC;
	need = need < array->most ? need : array->most;
	want = want < need ? need : want < array->most ? want : array->most;
	err = table_fallocate(seg, from, (want - array->count) * array->size);
	if (err == -ENOSPC && want > need) {
		want = need;
		err = table_fallocate(seg, from, (want - array->count) * array->size);
	}
	*count = (uint32_t)want;
	return err;
}

static int grow_regs(struct sc_seg *seg, uint32_t count)
{
	struct sc_regtab_view view = sc_seg_table(seg);
	struct array array = { view.regs, sizeof(*view.regs), view.reg_max, seg->reg_count };
	int err = grow_array(seg, &array, &count);

	if (err)
		return err;
	seg->reg_count = count;
	/* release: memory before its count */
	sc_store_release_32(&view.presence->reg_count, count);
	(void)SC_FAULT("seg.reg_count");
	return 0;
}

static int grow_ranges(struct sc_seg *seg, uint32_t count)
{
	struct sc_regtab_view view = sc_seg_table(seg);
	struct array array = { view.ranges, sizeof(*view.ranges), view.range_max, seg->range_count };
	int err = grow_array(seg, &array, &count);

	if (err)
		return err;
	seg->range_count = count;
	/* release: memory before its count */
	sc_store_release_32(&view.presence->range_count, count);
	(void)SC_FAULT("seg.range_count");
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
	int err = part == SC_SEG_REGS	  ? grow_regs(seg, count)
		  : part == SC_SEG_RANGES ? grow_ranges(seg, count)
					  : grow_buckets(seg, count);

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
