/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * calibration.c: what cross memory attach costs on this machine, measured once for each boot and user, and
 * kept in a file beside the segments for all processes to come.
 *
 * That is the machine's, and hardly depends on which processors two processes run on, so it can be
 * measured by one thread that reads memory of its own process: the kernel goes the same way, and pins the
 * same pages. What a pair's other way costs, each pair finds out for itself (crossover.h); of that nothing
 * is kept here. A 2-processor Zen 4 virtual machine, microseconds, three times each: between two processes
 * by test/bench/floor_bench 4 KiB in 2.3, 2.2, 2.0 and 64 KiB in 7.6, 8.0, 6.7; by this thread alone 2.4, 1.6,
 * 2.0 and 7.2, 5.8, 7.0; with 90 runnable processes 1.7 to 2.3 and 5.8 to 7.1.
 *
 * It is measured by the daemon's thread, some time after it has begun, or by the operator's command; never
 * by who sends. Some 0.3 ms of processor time. The least of many times counts, as nothing makes a copy
 * faster than it is: so a machine that is busy meanwhile does no harm.
 *
 * The file has no name but one, and 64 bytes or none. Who measures holds its life lock (live.h), so one
 * does it and the others go on without; it is free when that one ends, whatever way. Any thread; one at a
 * time in a process, for that lock.
 *
 * Death: between creating and writing, an empty file is left, which the next one takes over. Bytes written
 * in part, or by two who have lost the lock (closing any descriptor of the file does it), fail the
 * checksum. All of these are as if there were no file, as is one of another boot, owner or mode; reap.c
 * passes it over.
 */
#define _GNU_SOURCE 1
#include "calibration.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "addr.h"
#include "cma.h"
#include "host.h"
#include "inject.h"
#include "live.h"
#include "log.h"
#include "own.h"

#define REPEATS 32

/* No machine is outside of these, nanoseconds: the fastest and the slowest known, 0.5 and 2, far exceeded. */
#define START_MIN 20
#define START_MAX 100000
#define PER_KIB_MIN 2
#define PER_KIB_MAX 10000

/* What there is to a rendezvous beside the copy: three records, that find their way. */
#define RECORDS_NS 500

/* ---- the bytes ------------------------------------------------------------------------------- */

/* FNV-1a */
static uint64_t hash(const void *bytes, size_t size, uint64_t from)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		from = (from ^ at[i]) * 0x100000001b3u;
	return from;
}

#define HASH_START 0xcbf29ce484222325u

static uint64_t kernel(void)
{
	struct utsname name;

	if (uname(&name))
		return 0; /* EFAULT only */
	return hash(name.version, strlen(name.version), hash(name.release, strlen(name.release), HASH_START));
}

static uint64_t checksum(const struct sc_abi_calibration *file)
{
	return hash(file, offsetof(struct sc_abi_calibration, checksum), HASH_START);
}

static bool is_possible(uint64_t start, uint64_t per_kib)
{
	return start >= START_MIN && start <= START_MAX && per_kib >= PER_KIB_MIN && per_kib <= PER_KIB_MAX;
}

int sc_calibration_judge(int64_t small, int64_t large, struct sc_cost *cma)
{
	int64_t kib = (SC_CALIBRATION_LARGE - SC_CALIBRATION_SMALL) / 1024, per_kib, start;

	if (small <= 0 || large <= small || large > INT32_MAX)
		return -ERANGE;
	per_kib = (large - small) / kib;
	start = small - per_kib * (SC_CALIBRATION_SMALL / 1024);
	if (start <= 0 || !is_possible((uint64_t)start, (uint64_t)per_kib))
		return -ERANGE;
	*cma = (struct sc_cost){ .start = (uint32_t)start, .per_kib = (uint32_t)per_kib };
	return 0;
}

int sc_calibration_parse(const struct sc_abi_calibration *file, struct sc_calibration *calibration)
{
	const struct sc_host *host;
	int ret = sc_host_get(&host);

	if (ret)
		return ret;
	if (file->magic != SC_ABI_CALIBRATION_MAGIC || file->checksum != checksum(file))
		return -EPROTO;
	if (memcmp(file->boot_id, host->boot_id, sizeof(file->boot_id)) || file->kernel != kernel())
		return -ESTALE;
	if (!is_possible(file->cma_start, file->cma_per_kib))
		return -EPROTO;
	*calibration = (struct sc_calibration){ .cma = { file->cma_start, file->cma_per_kib },
						.time = file->time };
	return 0;
}

int sc_calibration_format(const struct sc_calibration *calibration, struct sc_abi_calibration *file)
{
	const struct sc_host *host;
	int ret = sc_host_get(&host);

	if (ret)
		return ret;
	if (!is_possible(calibration->cma.start, calibration->cma.per_kib))
		return -ERANGE;
	*file = (struct sc_abi_calibration){ .magic = SC_ABI_CALIBRATION_MAGIC,
					     .boot_id = { host->boot_id[0], host->boot_id[1] },
					     .kernel = kernel(),
					     .time = calibration->time,
					     .cma_start = calibration->cma.start,
					     .cma_per_kib = calibration->cma.per_kib };
	file->checksum = checksum(file);
	return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Opened. After closefrom(3) by the application the descriptor may be another's: it is asked before each use. */
struct opened {
	int fd;
	struct stat st;
};

static bool is_ours(const struct opened *file)
{
	return sc_own_is_open(file->fd, file->st.st_dev, file->st.st_ino);
}

/* Negative errno as of sc_own_open_other(). */
static int open_file(struct opened *file)
{
	char name[SC_ADDR_NAME_MAX];

	sc_addr_calibration_file(name);
	file->fd = sc_own_open_other(name, &file->st);
	return file->fd < 0 ? file->fd : 0;
}

static void close_file(const struct opened *file)
{
	if (is_ours(file))
		sc_own_close_other(file->fd);
}

/* -ENOENT: there is none, or an empty one. */
static int read_file(const struct opened *opened, struct sc_calibration *calibration)
{
	struct sc_abi_calibration file;
	ssize_t got;

	if (!is_ours(opened))
		return -EBADF;
	got = SC_TRY("calibration.read", pread(opened->fd, &file, sizeof(file), 0));
	if (got < 0)
		return -errno;
	if (!got)
		return -ENOENT;
	return got == (ssize_t)sizeof(file) ? sc_calibration_parse(&file, calibration) : -EPROTO;
}

static int write_file(const struct opened *opened, const struct sc_calibration *calibration)
{
	struct sc_abi_calibration file;
	int ret = sc_calibration_format(calibration, &file);
	ssize_t put;

	if (ret)
		return ret;
	if (!is_ours(opened))
		return -EBADF;
	put = SC_TRY("calibration.write", pwrite(opened->fd, &file, sizeof(file), 0));
	if (put < 0)
		return -errno;
	return put == (ssize_t)sizeof(file) ? 0 : -ENOSPC;
}

/* An empty one, unless there is one. */
static int create_file(void)
{
	char path[SC_CALIBRATION_PATH_MAX];
	int fd;

	sc_calibration_path(path);
	fd = SC_TRY("calibration.create",
		    open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return errno == EEXIST ? 0 : -errno;
	SC_CALL("calibration.created", close(fd)); /* unlocked: others may have it by now */
	return 0;
}

/* Locked. -EAGAIN: another process has it. */
static int open_to_write(struct opened *file)
{
	int ret = create_file();

	if (!ret)
		ret = open_file(file);
	if (ret)
		return ret;
	ret = sc_live_lock(file->fd);
	if (ret)
		close_file(file);
	return ret;
}

int sc_calibration_load(struct sc_calibration *calibration)
{
	struct opened file;
	int ret = open_file(&file);

	if (!ret) {
		ret = read_file(&file, calibration);
		close_file(&file);
	}
	if (ret && ret != -ENOENT)
		sc_info("the calibration in " SC_HOST_DIR " is of no use: %s; what is measured once a machine is "
			"taken as usual (shmcma-tune -m measures it anew)",
			strerror(-ret));
	return ret;
}

int sc_calibration_store(const struct sc_calibration *calibration)
{
	struct opened file;
	int ret = open_to_write(&file);

	if (ret)
		return ret;
	ret = write_file(&file, calibration);
	close_file(&file);
	return ret;
}

int sc_calibration_remove(void)
{
	char path[SC_CALIBRATION_PATH_MAX];

	sc_calibration_path(path);
	return SC_TRY("calibration.unlink", unlink(path)) ? -errno : 0;
}

_Static_assert(SC_OWN_PATH_MAX == SC_CALIBRATION_PATH_MAX, "one size");

void sc_calibration_path(char path[SC_CALIBRATION_PATH_MAX])
{
	char name[SC_ADDR_NAME_MAX];

	sc_addr_calibration_file(name);
	sc_own_path(name, path);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* The least of many, nanoseconds; negative errno. */
static int64_t copy_time(const struct sc_cma *cma, char *to, char *from, size_t size)
{
	const struct iovec local = { to, size }, remote = { from, size };
	int64_t least = INT64_MAX;

	for (int i = 0; i < REPEATS; i++) {
		int64_t begun = sc_clock_ns(), took;
		int ret = sc_cma_read(cma, &local, 1, &remote, 1, size);

		if (ret)
			return ret;
		took = sc_clock_ns() - begun;
		least = took < least ? took : least;
	}
	return least;
}

int sc_calibration_measure(struct sc_calibration *calibration)
{
	const struct sc_host *host;
	struct sc_cma cma;
	int64_t small, large;
	char *memory;
	int ret = sc_host_get(&host);

	if (ret)
		return ret;
	memory = aligned_alloc(SC_ABI_PAGE, 2 * SC_CALIBRATION_LARGE);
	if (!memory)
		return -ENOMEM;
	memset(memory, 1, 2 * SC_CALIBRATION_LARGE); /* there are pages */
	cma = (struct sc_cma){ .pid = getpid(),
			       .cookie_addr = (uintptr_t)&host->cookie,
			       .cookie = host->cookie };
	small = copy_time(&cma, memory, memory + SC_CALIBRATION_LARGE, SC_CALIBRATION_SMALL);
	large = small < 0 ? small : copy_time(&cma, memory, memory + SC_CALIBRATION_LARGE, SC_CALIBRATION_LARGE);
	free(memory);
	if (large < 0)
		return (int)large;
	calibration->time = time(NULL);
	return sc_calibration_judge(small, large, &calibration->cma);
}

/* With the lock: unless another has just done it. */
static int make_locked(const struct opened *file)
{
	struct sc_calibration calibration;
	int ret;

	if (!read_file(file, &calibration))
		return 0;
	ret = sc_calibration_measure(&calibration);
	return ret ? ret : write_file(file, &calibration);
}

int sc_calibration_make(void)
{
	struct sc_calibration calibration;
	struct opened file;
	int ret;

	if (!sc_calibration_load(&calibration))
		return 0;
	ret = open_to_write(&file);
	if (!ret) {
		ret = make_locked(&file);
		close_file(&file);
	}
	if (ret && ret != -EAGAIN)
		sc_info("what copies cost on this machine is not measured, or not kept: %s; it is taken as usual",
			strerror(-ret));
	return ret;
}

/* ---- use ------------------------------------------------------------------------------------- */

/* Most are copied by both sides, each one half. */
void sc_calibration_apply(const struct sc_calibration *calibration, struct sc_config *config)
{
	config->rendezvous = (struct sc_cost){ .start = calibration->cma.start + RECORDS_NS,
					       .per_kib = (calibration->cma.per_kib + 1) / 2 };
}
