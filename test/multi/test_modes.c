/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_modes: the traffic of test_sizes and test_random where processes may not read each other's memory:
 * by our own switch (FI_SHMCMA_CMA=0) in all ranks or in one, and for real, by the system, because a rank
 * is not dumpable and the others have no privilege. Permission has a direction: what one may not read, the
 * other still may.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define NOBODY 65534
#define RANKS_MAX 8

struct mode {
	const char *name;
	bool random;	     /* kernel_random, else kernel_sizes */
	unsigned off;	     /* ranks with FI_SHMCMA_CMA=0, a bit each */
	bool unprivileged;   /* give up privilege if there is some */
	unsigned undumpable; /* ranks that others may not read */
	bool slow;	     /* no sizes of megabytes, fewer messages */
	const char *env[3];  /* more parameters, NAME=value */
};

static const struct sizes_params sizes = { .max = (4 << 20) + 1 };
static const struct sizes_params smaller_sizes = { .max = (128 << 10) + 1 };
static const struct random_params randoms = { .seed = 7, .phases = 4, .messages = 60, .max = 256 << 10 };
static const struct random_params fewer_randoms = {
	.seed = 7, .phases = 4, .messages = 20, .max = 256 << 10
};

/* ---- privilege ------------------------------------------------------------------------------- */

static bool drop_privilege(void)
{
	return setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0;
}

/* Are all files of the directory readable for us? */
static bool readable(const char *path)
{
	char name[4096];
	struct dirent *entry;
	DIR *dir = opendir(path);
	bool all = dir != NULL;

	while (all && (entry = readdir(dir))) {
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (strstr(entry->d_name, ".so") && access(name, R_OK))
			all = false;
	}
	if (dir)
		closedir(dir);
	return all;
}

/* Could a process without privilege load the provider? The build may be below a private directory. */
static bool nobody_can_load(void)
{
	const char *path = getenv("FI_PROVIDER_PATH");
	int status;
	pid_t pid;

	if (!path)
		return true;
	pid = fork();
	if (pid == 0)
		_exit(drop_privilege() && readable(path) ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void load_provider(void)
{
	struct fi_info *info = NULL;

	fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info);
	fi_freeinfo(info);
}

static void become_unprivileged(void)
{
	if (geteuid() == 0) {
		if (!nobody_can_load())
			load_provider();
		if (!drop_privilege())
			mt_skip("user ids cannot be changed here: %s", strerror(errno));
	}
	/* a process that changes its user id is not dumpable at first */
	prctl(PR_SET_DUMPABLE, 1);
}

/* ---- what the system permits ----------------------------------------------------------------- */

/* Flags: where a rank's probe word is, and whether rank a can read rank b's. */
#define FLAG_WORD(rank) (16 + (rank))
#define FLAG_CAN(a, b) (32 + (a)*RANKS_MAX + (b))

static void probe(void)
{
	static uint64_t word = 0x5AFE;
	uint64_t got;

	atomic_store(mt_flag(FLAG_WORD(mt_rank)), (uint64_t)(uintptr_t)&word);
	mt_barrier(NULL);
	for (int i = 0; i < mt_ranks; i++) {
		struct iovec local = { &got, sizeof(got) };
		struct iovec remote = { (void *)(uintptr_t)atomic_load(mt_flag(FLAG_WORD(i))),
					sizeof(got) };

		if (process_vm_readv(mt_pid(i), &local, 1, &remote, 1, 0) == (ssize_t)sizeof(got))
			atomic_store(mt_flag(FLAG_CAN(mt_rank, i)), 1);
	}
	mt_barrier(NULL);
}

static void mode_rank(const void *arg)
{
	const struct mode *mode = arg;
	struct mt_ep ep;

	mt_doing("setting up what others may do with this process");
	for (size_t i = 0; i < sizeof(mode->env) / sizeof(mode->env[0]) && mode->env[i]; i++)
		putenv((char *)mode->env[i]);
	if (mode->off & 1u << mt_rank)
		setenv("FI_SHMCMA_CMA", "0", 1);
	if (mode->unprivileged)
		become_unprivileged();
	if (mode->undumpable & 1u << mt_rank)
		prctl(PR_SET_DUMPABLE, 0);
	probe();
	if (mode->undumpable && !(mode->undumpable & 1u << mt_rank))
		for (int i = 0; i < mt_ranks; i++)
			if ((mode->undumpable & 1u << i) && atomic_load(mt_flag(FLAG_CAN(mt_rank, i))))
				mt_skip("this system lets anybody read the memory of others");
	mt_open(&ep, NULL);
	if (mode->random)
		random_run(&ep, mode->slow ? &fewer_randoms : &randoms);
	else
		sizes_run(&ep, mode->slow ? &smaller_sizes : &sizes);
	mt_barrier(&ep);
	mt_close(&ep);
	mt_barrier(NULL);
	/* a leak checker wants to look at us in the end */
	prctl(PR_SET_DUMPABLE, 1);
}

/* ---- judgement ------------------------------------------------------------------------------- */

/* Of the other ranks, how many may this one read, as far as it goes by the system and our switch? */
static int may_read(const struct mode *mode, int rank, int ranks)
{
	int n = 0;

	if (mode->off & 1u << rank)
		return 0;
	for (int i = 0; i < ranks; i++)
		n += i != rank && atomic_load(mt_flag(FLAG_CAN(rank, i)));
	return n;
}

static bool judge_mode(const struct mt_counters *c, int ranks, const void *arg)
{
	const struct mode *mode = arg;
	bool fine = true;

	for (int i = 0; i < ranks; i++) {
		int may = may_read(mode, i, ranks);
		/* the provider may have Yama's consent, for which it asks; a plain probe does not have it */
		bool sure = (mode->off & 1u << i) || mode->undumpable;

		if (may == 0 && sure && c[i].rx_cma_bytes) {
			printf("  rank %d received %llu bytes by CMA, which it must not use\n", i,
			       (unsigned long long)c[i].rx_cma_bytes);
			fine = false;
		}
		if (may == 0 && sure && c[i].shared_bytes) {
			printf("  rank %d copied %llu bytes for others by CMA, which it must not use\n", i,
			       (unsigned long long)c[i].shared_bytes);
			fine = false;
		}
		if (may < ranks - 1 && sure && !c[i].rx_pulled_bytes) {
			printf("  rank %d may not read all others and received nothing through bounce "
			       "buffers\n",
			       i);
			fine = false;
		}
		if (may > 0 && !c[i].rx_cma_bytes) {
			printf("  rank %d may read others' memory and received nothing by CMA\n", i);
			fine = false;
		}
	}
	return fine;
}

#define ALL 0xFF
#define FEW_BUFFERS "FI_SHMCMA_BOUNCE_COUNT=2"
#define SMALL_BUFFERS "FI_SHMCMA_BOUNCE_SIZE=256"
#define NO_INLINE "FI_SHMCMA_INLINE_MAX=0"
#define NO_EAGER "FI_SHMCMA_EAGER_MAX=0"
#define STREAMED "FI_SHMCMA_FILL=streamed"

int main(void)
{
	static const struct mode modes[] = {
		{ .name = "sizes-off", .off = ALL },
		{ .name = "sizes-off-in-0", .off = 1 },
		{ .name = "sizes-off-in-1", .off = 2 },
		{ .name = "random-off", .random = true, .off = ALL },
		{ .name = "random-off-in-1", .random = true, .off = 2 },
		{ .name = "sizes-unprivileged", .unprivileged = true },
		{ .name = "sizes-undumpable-1", .unprivileged = true, .undumpable = 2 },
		{ .name = "sizes-undumpable-0", .unprivileged = true, .undumpable = 1 },
		{ .name = "sizes-undumpable-all", .unprivileged = true, .undumpable = ALL },
		{ .name = "random-undumpable-2", .random = true, .unprivileged = true, .undumpable = 4 },
		{ .name = "sizes-few-buffers", .env = { FEW_BUFFERS } },
		{ .name = "random-few-buffers", .random = true, .env = { FEW_BUFFERS } },
		{ .name = "sizes-few-buffers-off", .off = ALL, .slow = true, .env = { FEW_BUFFERS } },
		{ .name = "random-few-buffers-off", .random = true, .off = ALL, .env = { FEW_BUFFERS } },
		{ .name = "random-few-small-off",
		  .random = true,
		  .off = ALL,
		  .slow = true,
		  .env = { FEW_BUFFERS, SMALL_BUFFERS } },
		{ .name = "sizes-no-inline", .env = { NO_INLINE } },
		{ .name = "random-streamed", .random = true, .env = { STREAMED } },
		{ .name = "random-streamed-off", .random = true, .off = ALL, .env = { STREAMED } },
		{ .name = "sizes-no-eager", .env = { NO_EAGER } },
		{ .name = "random-rendezvous-only", .random = true, .env = { NO_INLINE, NO_EAGER } },
		{ .name = "random-pieces-only",
		  .random = true,
		  .off = ALL,
		  .env = { NO_INLINE, NO_EAGER } },
	};

	mt_init("test_modes");
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		struct mt_case test = { .name = modes[i].name,
					.ranks = modes[i].random ? 4 : 2,
					.rank = mode_rank,
					.arg = &modes[i],
					.judge = judge_mode };

		mt_run(&test);
	}
	return mt_end();
}
