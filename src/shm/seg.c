/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * seg.c: a segment is the file of one endpoint, mapped by its owner and by the peers connected to it.
 *
 * Owns the mapping, the descriptor and the private copy of the header. One thread at a time uses a structure of an own
 * segment. Different structures, also of the same segment, may be used by any threads, and so may the structure of a
 * peer's segment, which all endpoints of this process share (attach.c). create.c makes an own segment, memory.c gives
 * its parts memory, guard.c decides which parts of a peer's segment this process may write.
 *
 * The life lock of the file tells whether the owner lives. When an owner dies, the mappings of its peers stay usable;
 * the memory goes with the last mapping. A segment of this very process is borrowed, never opened (shmfile.c says why).
 *
 * All mappings are MADV_DONTFORK: a forked child has no mapping to unmap, and its memory at these addresses is its own.
 */
#define _GNU_SOURCE 1
#include "shm/seg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "base/fault.h"
#include "base/log.h"
#include "os/lifelock.h"
#include "os/otherfile.h"

struct sc_segs sc_segs = { .once = PTHREAD_ONCE_INIT,
			   .shared_mutex = PTHREAD_MUTEX_INITIALIZER,
			   .access_mutex = PTHREAD_MUTEX_INITIALIZER };

int sc_seg_map(struct sc_seg *seg)
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
	if (err == EAGAIN) {
		sc_warn("cannot map a segment of %llu bytes: mlockall(2) of this process would lock more "
			"than its "
			"limit allows; raise the limit (ulimit -l)",
			(unsigned long long)seg->header.length);
		return -ENOMEM;
	}
	sc_warn("cannot map a segment of %llu bytes: %s; see ulimit -v and vm.max_map_count",
		(unsigned long long)seg->header.length, strerror(err));
	return -err;
}

void sc_seg_unmap(struct sc_seg *seg)
{
	SC_CALL("seg.munmap", munmap(seg->base, seg->header.length));
	seg->base = NULL;
}

void sc_seg_put(struct sc_seg *seg)
{
	if (!sc_shmfile_put(&seg->file))
		return;
	sc_seg_unmap(seg);
	sc_shmfile_close(&seg->file);
	free(seg);
}

void sc_seg_drop_descriptor(struct sc_seg *seg)
{
	if (seg->fd < 0)
		return;
	atomic_fetch_sub(&sc_segs.kept_fds, 1);
	if (sc_shmfile_is_open(seg->fd, seg->dev, seg->ino))
		sc_otherfile_close(seg->fd);
	seg->fd = -1;
}

bool sc_seg_count_descriptor(void)
{
	struct rlimit limit;
	rlim_t most = SC_TRY("seg.limit", getrlimit(RLIMIT_NOFILE, &limit)) ? 0 : limit.rlim_cur / 4;

	return atomic_fetch_add(&sc_segs.kept_fds, 1) < most;
}

int sc_seg_open_again(const struct sc_seg *seg)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;
	struct stat st;
	int fd;

	if (sc_addr_parse(seg->header.address, &parts))
		return -ENOENT;
	sc_addr_file(&parts, name);
	fd = sc_otherfile_open(name, &st);
	if (fd < 0 || (st.st_dev == seg->dev && st.st_ino == seg->ino))
		return fd;
	sc_otherfile_close(fd);
	return -ENOENT;
}

/*
 * Tells whether the owner's process holds a lock on the file behind the descriptor. If the descriptor is another file
 * now, after closefrom(3), that process lives all the same.
 */
static bool is_held(const struct sc_seg *seg)
{
	pid_t holder = 0;

	return seg->fd >= 0 && seg->cma_pid && sc_lifelock_check(seg->fd, &holder) == 1 &&
	       holder == seg->cma_pid;
}

/*
 * There is no descriptor and no name left by which to ask the life lock. A missing name proves nothing: the owner, a
 * reaper, logind (RemoveIPC) or a user can remove it. 0: the process has ended; else -ENOENT.
 */
static int check_process_slow(const struct sc_seg *seg)
{
	if (seg->cma_pid && sc_host_has_ended(seg->cma_pid, seg->header.owner.pidfs_ino))
		return 0;
	return -ENOENT;
}

/*
 * Asks the life lock. A reaper also holds the lock for a moment, with its own pid. A process that asks in that moment
 * must not take the owner for alive, because it would not ask again soon.
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
	fd = sc_seg_open_again(seg);
	if (fd < 0)
		return fd == -ENOENT ? check_process_slow(seg) : fd;
	alive = check_lock(seg, fd);
	sc_otherfile_close(fd);
	return alive;
}
