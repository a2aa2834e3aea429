/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * calibration.c: the costs of the two ways of a message on this machine, measured once for each boot and user, and kept
 * in a file beside the segments for the processes to come.
 *
 * The time of a copy by cross memory attach is a property of the machine, and hardly depends on which processors two
 * processes run on: one thread that reads memory of its own process can measure it, as the kernel goes the same way and
 * pins the same pages. A 2-processor Zen 4 virtual machine, microseconds, three times each: between two processes by
 * test/bench/floor_bench 4 KiB in 2.3, 2.2, 2.0 and 64 KiB in 7.6, 8.0, 6.7; by this thread alone 2.4, 1.6, 2.0 and
 * 7.2, 5.8, 7.0; with 90 runnable processes 1.7 to 2.3 and 5.8 to 7.1.
 *
 * The time of a bounce buffer depends on where the two processes run (fill.h), and so has no one value for the machine;
 * but one thread can measure its bounds: never less than plain copies in its own cache. And, as a sender takes the best
 * of its ways of filling, hardly more than a copy that is streamed to memory and read from there, which is the same
 * wherever the reader runs.
 *
 * From both follows how large an eager message may be at least, and at most (sc_calibration_limits()):
 * between these it is a matter of where the two are, and the library's value without calibration is right for some. So
 * that is changed only where it would be wrong for all; and for a peer, when the time to fill buffers for it has been
 * measured (fill.c), by sc_route().
 *
 * It is measured by the daemon's thread, some time after it has begun, or by the operator's command, never by a sender:
 * 0.5 ms of processor time. The least of many times counts, as nothing makes a copy faster than it is; so a machine
 * that is busy meanwhile does no harm.
 *
 * The file has its bytes before it has its name (shmfile.c), and is written no more then: another takes its
 * place. Several may measure at a time; one of them has its file in the end.
 *
 * Death: at any step there is the old file, or none, or the new one. None is as if there had never been
 * one; so is one of another boot, kernel, processor, owner, mode or size, one that is damaged, and one
 * that says what cannot be.
 *
 * Any thread.
 */
#define _GNU_SOURCE 1
#include "proc/calibration.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include "os/addr.h"
#include "os/cma.h"
#include "shm/fill.h"
#include "os/host.h"
#include "base/fault.h"
#include "base/log.h"
#include "os/otherfile.h"
#include "os/shmfile.h"

#define REPEATS 32

/* No machine is outside of these, nanoseconds: the fastest and the slowest known, far exceeded. */
#define START_MIN 20
#define START_MAX 100000
#define PER_KIB_MIN 1
#define PER_KIB_MAX 10000

/* The time that a rendezvous takes at most for its records, beside the copy and more than an eager message. */
#define RECORDS_NS 1000

/* Eager messages: smaller ones are not worth a rendezvous, larger ones would take all of the pool. */
#define EAGER_MIN 8192u
#define EAGER_MAX 65536u
#define EAGER_STEP 4096u

/*
 * The calibration that this process knows: cma_start in the high half, cma_per_kib in the low one; 0: none. Relaxed:
 * one word, and no other data goes with it.
 */
static atomic_uint_least64_t known;

static void remember(const struct sc_calibration *calibration)
{
	atomic_store_explicit(&known, (uint64_t)calibration->cma_start << 32 | calibration->cma_per_kib,
			      memory_order_relaxed);
}

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

/*
 * The processor's family, model and stepping; a virtual machine may have come to another host. Not its name, as each
 * question is 4 us in a virtual machine, and the name is six.
 */
static uint64_t hash_processor(uint64_t from)
{
#ifdef __x86_64__
	unsigned int signature, unused[3];

	__cpuid(1, signature, unused[0], unused[1], unused[2]);
	from = hash(&signature, sizeof(signature), from);
#endif
	return from;
}

static uint64_t machine(void)
{
	struct utsname name = { 0 };

	(void)uname(&name); /* EFAULT only */
	return hash_processor(hash(name.version, strlen(name.version),
				   hash(name.release, strlen(name.release), HASH_START)));
}

static uint64_t checksum(const struct sc_abi_calibration *file)
{
	return hash(file, offsetof(struct sc_abi_calibration, checksum), HASH_START);
}

static bool is_cost(int64_t per_kib)
{
	return per_kib >= PER_KIB_MIN && per_kib <= PER_KIB_MAX;
}

static bool is_possible(int64_t start, int64_t cma, int64_t near, int64_t far)
{
	return start >= START_MIN && start <= START_MAX && is_cost(cma) && is_cost(near) && is_cost(far) &&
	       near <= far;
}

int sc_calibration_judge(const struct sc_calibration_times *times, struct sc_calibration *calibration)
{
	/* else the processor is one for which it is the other way round */
	bool ordered = times->near <= times->far;
	int64_t near = (ordered ? times->near : times->far) / (SC_CALIBRATION_BOUNCE / 1024);
	int64_t far = (ordered ? times->far : times->near) / (SC_CALIBRATION_BOUNCE / 1024);
	int64_t cma, start;

	if (times->small <= 0 || times->large <= times->small || times->large > INT32_MAX)
		return -ERANGE;
	cma = (times->large - times->small) / ((SC_CALIBRATION_LARGE - SC_CALIBRATION_SMALL) / 1024);
	start = times->small - cma * (SC_CALIBRATION_SMALL / 1024);
	if (!is_possible(start, cma, near, far))
		return -ERANGE;
	*calibration = (struct sc_calibration){ .cma_start = (uint32_t)start,
						.cma_per_kib = (uint32_t)cma,
						.near_per_kib = (uint32_t)near,
						.far_per_kib = (uint32_t)far };
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
	if (memcmp(file->boot_id, host->boot_id, sizeof(file->boot_id)) || file->machine != machine())
		return -ESTALE;
	if (!is_possible(file->cma_start, file->cma_per_kib, file->near_per_kib, file->far_per_kib))
		return -EPROTO;
	*calibration = (struct sc_calibration){ .cma_start = file->cma_start,
						.cma_per_kib = file->cma_per_kib,
						.near_per_kib = file->near_per_kib,
						.far_per_kib = file->far_per_kib,
						.time = file->time };
	return 0;
}

int sc_calibration_format(const struct sc_calibration *calibration, struct sc_abi_calibration *file)
{
	const struct sc_host *host;
	int ret = sc_host_get(&host);

	if (ret)
		return ret;
	if (!is_possible(calibration->cma_start, calibration->cma_per_kib, calibration->near_per_kib,
			 calibration->far_per_kib))
		return -ERANGE;
	*file = (struct sc_abi_calibration){ .magic = SC_ABI_CALIBRATION_MAGIC,
					     .boot_id = { host->boot_id[0], host->boot_id[1] },
					     .machine = machine(),
					     .time = calibration->time,
					     .cma_start = calibration->cma_start,
					     .cma_per_kib = calibration->cma_per_kib,
					     .near_per_kib = calibration->near_per_kib,
					     .far_per_kib = calibration->far_per_kib };
	file->checksum = checksum(file);
	return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

_Static_assert(SC_SHMFILE_PATH_MAX == SC_CALIBRATION_PATH_MAX, "one size");

void sc_calibration_path(char path[SC_CALIBRATION_PATH_MAX])
{
	char name[SC_ADDR_NAME_MAX];

	sc_addr_calibration_file(name);
	sc_shmfile_path(name, path);
}

/* The application may close any descriptor at any time: it is used, and closed, only as long as it is this
 * file's. */
static int read_file(int fd, const struct stat *st, struct sc_calibration *calibration)
{
	struct sc_abi_calibration file;
	ssize_t got;

	if (st->st_size != sizeof(file))
		return -EPROTO;
	if (!sc_shmfile_is_open(fd, st->st_dev, st->st_ino))
		return -EBADF;
	got = SC_TRY("calibration.read", pread(fd, &file, sizeof(file), 0));
	if (got < 0)
		return -errno;
	return got == (ssize_t)sizeof(file) ? sc_calibration_parse(&file, calibration) : -EPROTO;
}

int sc_calibration_load(struct sc_calibration *calibration)
{
	char name[SC_ADDR_NAME_MAX];
	struct stat st;
	int fd, ret;

	sc_addr_calibration_file(name);
	fd = ret = sc_otherfile_open(name, &st);
	if (fd >= 0) {
		ret = read_file(fd, &st, calibration);
		if (sc_shmfile_is_open(fd, st.st_dev, st.st_ino))
			sc_otherfile_close(fd);
	}
	if (!ret)
		remember(calibration);
	else if (ret != -ENOENT)
		sc_info("the calibration " SC_HOST_DIR
			"/%s is of no use: %s; usual costs of copies apply (shmcma-tune -m measures them "
			"anew)",
			name, strerror(-ret));
	return ret;
}

static int write_file(struct sc_shmfile *own, const struct sc_abi_calibration *file)
{
	int fd = sc_shmfile_fd(own);
	ssize_t put;

	if (fd < 0)
		return fd;
	put = SC_TRY("calibration.write", pwrite(fd, file, sizeof(*file), 0));
	if (put < 0)
		return -errno;
	return put == (ssize_t)sizeof(*file) ? 0 : -ENOSPC;
}

/* In place of what has the name. */
static int name_file(struct sc_shmfile *own)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	int ret;

	sc_addr_calibration_file(name);
	ret = sc_shmfile_publish(own, name);
	if (ret != -EEXIST)
		return ret;
	sc_shmfile_path(name, path);
	if (SC_TRY("calibration.unlink", unlink(path)) && errno != ENOENT)
		return -errno;
	(void)SC_FAULT("calibration.unlinked");
	return sc_shmfile_publish(own, name);
}

int sc_calibration_store(const struct sc_calibration *calibration)
{
	struct sc_abi_calibration file;
	struct sc_shmfile own;
	int ret = sc_calibration_format(calibration, &file);

	if (!ret)
		ret = sc_shmfile_create(&own);
	if (ret)
		return ret;
	ret = write_file(&own, &file);
	if (!ret)
		ret = name_file(&own);
	(void)sc_shmfile_put(&own);
	sc_shmfile_close(&own);
	if (!ret)
		remember(calibration);
	return ret;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Memory to copy from, through and to, SC_CALIBRATION_LARGE each. */
struct ground {
	char *from, *through, *to;
};

/* The least of many, nanoseconds; negative errno. */
static int64_t cma_time(const struct sc_cma *cma, const struct ground *ground, size_t size)
{
	const struct iovec local = { ground->to, size }, remote = { ground->from, size };
	int64_t least = INT64_MAX;

	for (int i = 0; i < REPEATS; i++) {
		int64_t begun = sc_clock_ns(), took;
		int ret = sc_cma_read(cma, &(struct sc_cma_copy){ &local, 1, &remote, 1, size });

		if (ret)
			return ret;
		took = sc_clock_ns() - begun;
		least = took < least ? took : least;
	}
	return least;
}

/* The same through a bounce buffer. -ENOTSUP: this processor does not fill it that way. */
static int64_t bounce_time(enum sc_fill_way way, const struct ground *ground)
{
	int64_t least = INT64_MAX;
	struct sc_fill fill;

	sc_fill_init(&fill, way);
	if (fill.way != way)
		return -ENOTSUP;
	for (int i = 0; i < REPEATS; i++) {
		int64_t begun = sc_clock_ns(), took;

		sc_fill_write(&fill, ground->through, ground->from, SC_CALIBRATION_BOUNCE);
		memcpy(ground->to, ground->through, SC_CALIBRATION_BOUNCE);
		__asm__ volatile("" : : "r"(ground->to) : "memory"); /* it is read */
		took = sc_clock_ns() - begun;
		least = took < least ? took : least;
	}
	return least;
}

static int measure_times(const struct ground *ground, struct sc_calibration_times *times)
{
	const struct sc_host *host;
	struct sc_cma cma;
	int ret = sc_host_get(&host);

	if (ret)
		return ret;
	cma = (struct sc_cma){ .pid = getpid(),
			       .cookie_addr = (uintptr_t)&host->cookie,
			       .cookie = host->cookie };
	times->near = bounce_time(SC_FILL_CACHED, ground);
	times->far = bounce_time(SC_FILL_STREAMED, ground);
	if (times->far < 0)
		return (int)times->far;
	times->small = cma_time(&cma, ground, SC_CALIBRATION_SMALL);
	if (times->small < 0)
		return (int)times->small;
	times->large = cma_time(&cma, ground, SC_CALIBRATION_LARGE);
	return times->large < 0 ? (int)times->large : 0;
}

int sc_calibration_measure(struct sc_calibration *calibration)
{
	size_t size = 3 * SC_CALIBRATION_LARGE;
	char *memory =
		SC_TRY_PTR("calibration.memory", MAP_FAILED,
			   mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	struct sc_calibration_times times;
	struct ground ground;
	int ret;

	if (memory == MAP_FAILED)
		return -errno;
	memset(memory, 1, size); /* there are pages */
	ground = (struct ground){ memory, memory + SC_CALIBRATION_LARGE,
				  memory + 2 * SC_CALIBRATION_LARGE };
	ret = measure_times(&ground, &times);
	SC_CALL("calibration.unmap", munmap(memory, size));
	if (!ret)
		ret = sc_calibration_judge(&times, calibration);
	if (!ret)
		calibration->time = time(NULL);
	return ret;
}

void sc_calibration_make(void)
{
	struct sc_calibration calibration;
	int ret;

	if (!sc_calibration_load(&calibration))
		return;
	ret = sc_calibration_measure(&calibration);
	if (!ret)
		ret = sc_calibration_store(&calibration);
	if (ret)
		sc_info("the cost of copies on this machine could not be measured, or not stored: %s; "
			"usual costs apply",
			strerror(-ret));
}

/* ---- use ------------------------------------------------------------------------------------- */

static uint32_t clamp(uint64_t value, uint32_t least, uint32_t most)
{
	return value < least ? least : value > most ? most : (uint32_t)value;
}

/* The size, a multiple of EAGER_STEP, from which on what costs `start` more, but less for each KiB, is
 * cheaper. */
static uint32_t crossing(uint64_t start, uint32_t per_kib, uint32_t dearer_per_kib)
{
	uint64_t size;

	if (dearer_per_kib <= per_kib)
		return EAGER_MAX;
	size = start * 1024 / (dearer_per_kib - per_kib);
	return clamp(size / EAGER_STEP * EAGER_STEP, EAGER_MIN, EAGER_MAX);
}

/*
 * A rendezvous at its best is copied by both sides, each one half; at its worst by one. Buffers at their best are filled
 * and read at the same time.
 */
void sc_calibration_limits(const struct sc_calibration *calibration, uint32_t *least, uint32_t *most)
{
	*least = crossing(calibration->cma_start, calibration->cma_per_kib / 2, calibration->far_per_kib);
	*most = crossing(calibration->cma_start + RECORDS_NS, calibration->cma_per_kib,
			 calibration->near_per_kib / 2);
}

/* Where the way of filling is given, it is not the best one everywhere. */
void sc_calibration_apply(const struct sc_calibration *calibration, struct sc_config *config)
{
	uint32_t least, most;

	if (config->fill != SC_FILL_TRIED)
		return;
	sc_calibration_limits(calibration, &least, &most);
	config->eager_max = clamp(config->eager_max, least, most);
}

uint64_t sc_calibration_cma_ns(size_t size, size_t fragments, uint32_t together)
{
	uint64_t costs = atomic_load_explicit(&known, memory_order_relaxed);
	uint64_t start = costs >> 32, per_kib = costs & UINT32_MAX;

	return start / together + (size + (fragments - 1) * SC_CMA_ELEMENT) * per_kib / 1024;
}
