/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * calibration.c: what copies by CMA and by bounce buffers cost on this machine. The first processes of a boot and user
 * measure the costs, and keep the least for later processes in a file beside the segments. Any thread may call.
 *
 * The time of a copy by CMA is a property of the machine, and hardly depends on the processors of the two processes.
 * One thread can measure it by a read of its own process's memory, as the kernel goes the same way and pins the same
 * pages (docs/MEASUREMENTS.md, "Calibration").
 *
 * The time of a bounce buffer depends on the processors of the two processes (fill.h). But one thread can measure its
 * bounds. Lower bound: a plain copy in the own cache. Upper bound: a streamed copy to memory and a read from memory. The
 * second takes the same time wherever the reader runs. The sender uses the faster way, so it hardly exceeds this bound.
 *
 * Both costs give the least and the largest limit of eager messages (sc_calibration_limits()). Between the two, the
 * right limit depends on the processors of the two processes, and the library's default is right for some. So the
 * calibration only moves the default into these bounds. sc_route() changes the limit for a single peer when the time to
 * fill buffers for this peer is known (fill.c).
 *
 * The daemon's thread or the operator's command measures, never a sender: 0.5 ms of processor time. The least of many
 * times counts, as no disturbance makes a copy faster. But a processor can be slow for longer than one measurement. So
 * the daemons' threads measure SC_CALIBRATION_ROUNDS times, with pauses (docs/MEASUREMENTS.md, "Calibration").
 *
 * The file gets its bytes before its name (shmfile.c); later nothing writes to it, but another file takes its place.
 * Several processes may measure at a time; the file of one of them remains.
 *
 * If the process dies at any step, there is the old file, no file or the new file. A reader treats these as no file: a
 * file of another boot, kernel, processor, owner, mode or size, a damaged file, a file with impossible costs.
 */
#define _GNU_SOURCE 1
#include "proc/calibration.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
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
#include "proc/process.h"

#define REPEATS 32

/* Bounds of possible costs, nanoseconds: far below the fastest and far above the slowest machine known. */
#define START_MIN 20
#define START_MAX 100000
#define PER_KIB_MIN 1
#define PER_KIB_MAX 10000

/* The most that the records of a rendezvous take, beside the copy, more than those of an eager message. */
#define RECORDS_NS 1000

/* Bounds of the eager limit: a smaller message is not worth a rendezvous, a larger one takes all of the pool. */
#define EAGER_MIN 8192u
#define EAGER_MAX 65536u
#define EAGER_STEP 4096u

static void remember(const struct sc_calibration *calibration)
{
	atomic_store_explicit(&sc_process.kept.costs,
			      (uint64_t)calibration->cma_start << 32 | calibration->cma_per_kib,
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
 * Adds the processor's family, model and stepping, as a virtual machine may move to another host. Not the name: it
 * takes six CPUID instructions, each 4 us in a virtual machine.
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
	/* on some processors streamed copies are the faster ones */
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
						.time = file->time,
						.rounds = file->rounds };
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
					     .far_per_kib = calibration->far_per_kib,
					     .rounds = calibration->rounds };
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

/* The application may close any descriptor at any time, so the inode is checked before each use. */
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
			"/%s is of no use: %s; usual costs of copies apply (shmcma tune -m measures them "
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

/* Gives the file its name, in place of a file that has this name. */
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
		ret = sc_shmfile_check_size(sizeof(file));
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

/* Memory to copy from, through and to, SC_CALIBRATION_LARGE bytes each. */
struct ground {
	char *from, *through, *to;
};

/* Returns the least time of many reads by CMA, nanoseconds, or a negative errno. */
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

/* The same through a bounce buffer. -ENOTSUP: this processor does not have that fill way. */
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
		__asm__ volatile("" : : "r"(ground->to) : "memory"); /* keeps the copy */
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
	memset(memory, 1, size); /* allocates the pages */
	ground = (struct ground){ memory, memory + SC_CALIBRATION_LARGE,
				  memory + 2 * SC_CALIBRATION_LARGE };
	ret = measure_times(&ground, &times);
	SC_CALL("calibration.unmap", munmap(memory, size));
	if (!ret)
		ret = sc_calibration_judge(&times, calibration);
	if (!ret) {
		calibration->time = time(NULL);
		calibration->rounds = 1;
	}
	return ret;
}

/* Bytes of the copy by which two measurements of CMA are compared. */
#define TYPICAL 16384

static uint64_t cma_ns(uint64_t start, uint64_t per_kib, uint64_t size)
{
	return start + size * per_kib / 1024;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

void sc_calibration_merge(struct sc_calibration *calibration, const struct sc_calibration *other)
{
	/* the start and the slope of one measurement belong together */
	if (cma_ns(other->cma_start, other->cma_per_kib, TYPICAL) <
	    cma_ns(calibration->cma_start, calibration->cma_per_kib, TYPICAL)) {
		calibration->cma_start = other->cma_start;
		calibration->cma_per_kib = other->cma_per_kib;
	}
	calibration->near_per_kib = least(calibration->near_per_kib, other->near_per_kib);
	calibration->far_per_kib = least(calibration->far_per_kib, other->far_per_kib);
	calibration->rounds += other->rounds;
}

bool sc_calibration_make(void)
{
	struct sc_calibration calibration, stored;
	bool is_stored = !sc_calibration_load(&stored);
	int ret;

	if (is_stored && stored.rounds >= SC_CALIBRATION_ROUNDS)
		return false;
	ret = sc_calibration_measure(&calibration);
	if (!ret && is_stored)
		sc_calibration_merge(&calibration, &stored);
	if (!ret)
		ret = sc_calibration_store(&calibration);
	if (ret)
		sc_info("the cost of copies on this machine could not be measured, or not stored: %s; "
			"usual costs apply",
			strerror(-ret));
	return !ret && calibration.rounds < SC_CALIBRATION_ROUNDS;
}

/* ---- use ------------------------------------------------------------------------------------- */

static uint32_t clamp(uint64_t value, uint32_t least, uint32_t most)
{
	return value < least ? least : value > most ? most : (uint32_t)value;
}

/*
 * Returns the size, a multiple of EAGER_STEP, from which a way that costs `start` more, but `per_kib` instead of
 * `dearer_per_kib` for each KiB, is cheaper.
 */
static uint32_t crossing(uint64_t start, uint32_t per_kib, uint32_t dearer_per_kib)
{
	uint64_t size;

	if (dearer_per_kib <= per_kib)
		return EAGER_MAX;
	size = start * 1024 / (dearer_per_kib - per_kib);
	return clamp(size / EAGER_STEP * EAGER_STEP, EAGER_MIN, EAGER_MAX);
}

/*
 * At best both sides of a rendezvous copy, each one half; at worst one side copies all. At best the receiver reads
 * buffers while the sender fills others.
 */
void sc_calibration_limits(const struct sc_calibration *calibration, uint32_t *least, uint32_t *most)
{
	*least = crossing(calibration->cma_start, calibration->cma_per_kib / 2, calibration->far_per_kib);
	*most = crossing(calibration->cma_start + RECORDS_NS, calibration->cma_per_kib,
			 calibration->near_per_kib / 2);
}

/* The bounds do not hold for a configured fill way, which is not the best one everywhere. */
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
	uint64_t costs = atomic_load_explicit(&sc_process.kept.costs, memory_order_relaxed);
	uint64_t start = costs >> 32, per_kib = costs & UINT32_MAX;

	return cma_ns(start / together, per_kib, size + (fragments - 1) * SC_CMA_ELEMENT);
}
