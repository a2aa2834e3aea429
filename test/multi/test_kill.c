/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_kill: 2 to 16 processes under checksummed load of all kinds, of which one is killed every few
 * hundredths of a second, at a random moment, and replaced; others are stopped and continued.
 * kernel_kill.c says what the survivors demand.
 *
 * The conductor, which forks the workers, does not use libfabric. It dooms a worker before it kills it, so that
 * an error from a worker that is not doomed is a false death. It takes the time when a pidfd says that the
 * process has ended: by then the kernel has freed its memory and its locks. In the end, once another process has
 * opened a domain, no file of the workers is left in /dev/shm. Worker 0 is only stopped, never killed.
 *
 * The test prints how long the survivors took to get their first error, without those that were stopped themselves
 * meanwhile. With more workers than processors most of that is the time until they run again.
 *
 * TEST_KILL_SEED: of all choices (not of the moments), printed. TEST_KILL_SECONDS: for all cases together,
 * 20 in the full tests (rounds.h), else 6. TEST_KILL_KILLS: go on until there were so many, for as
 * long as it takes.
 * TEST_KILL_LOAD: percent of the processors that the workers may use together; else all, or 70 with
 * TEST_KILL_KILLS: on processors that are never idle the kernel lets a process wait for its turn, and that is
 * not to be measured.
 */
#define _GNU_SOURCE 1
#include "kill.h"
#include "../rounds.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef PATIENCE /* seconds; a last resort */
#define PATIENCE watchdog_wall()
#endif
#define MS 1000000ULL
#define KILL_EVERY (40 * MS) /* on average */
#define STOP_EVERY (60 * MS)
#define SHM_SIZE ((size_t)4 << 30)

struct kill_case {
	const char *name;
	int workers;
	const char *env; /* NAME=value */
	bool automatic;
	double seconds; /* 0: only `kills` counts */
	double load;	/* part of the processors that workers may use; 0: all */
	uint64_t kills, seed;
};

struct worker {
	pid_t pid;
	int pidfd;
	uint64_t incarnation;
	enum kill_way way;   /* it is to end by; KILL_NONE: it is not */
	uint64_t ordered_at; /* when that was said */
	uint64_t restart_at; /* it has ended; 0: it has not */
	uint64_t resume_at;  /* it is stopped; 0: it is not */
};

static struct conductor {
	struct kill_board *board;
	const struct kill_case *test;
	struct mt_random random;
	struct worker workers[KILL_SLOTS];
	uint64_t kills[KILL_WAYS], stops;
	uint64_t kill_at, stop_at;
	int priority; /* of workers; the conductor is to see an end at once, if it may have more */
} c;

/* Of all cases: each is a process of its own. */
static struct totals {
	uint64_t kills, ends_seen, errors, looks, stops, messages, names;
	uint64_t sample_count;
	struct kill_sample samples[KILL_SAMPLES];
} * totals;

/* ---- results --------------------------------------------------------------------------------- */

static uint64_t sum(size_t offset)
{
	uint64_t total = 0;

	for (int i = 0; i < c.board->workers; i++)
		total += atomic_load((_Atomic uint64_t *)((char *)&c.board->slots[i] + offset));
	return total;
}
#define SUM(field) (unsigned long long)sum(offsetof(struct kill_slot, field))

static uint64_t kill_count(void)
{
	uint64_t total = 0;

	for (int way = 0; way < KILL_WAYS; way++)
		total += c.kills[way];
	return total;
}

static int compare_samples(const void *a, const void *b)
{
	const struct kill_sample *left = a, *right = b;

	return left->error < right->error ? -1 : left->error > right->error;
}

static double ms_of(int64_t ns)
{
	return (double)ns / 1e6;
}

/*
 * For the longest ones also prints how long the survivor polled in vain. For the rest of the time it did not poll:
 * others had the processors, or it was checking received bytes.
 */
static void print_latency(struct kill_sample *samples, uint64_t count)
{
	uint64_t slow = 0, late = 0;

	if (!count)
		return;
	qsort(samples, count, sizeof(samples[0]), compare_samples);
	for (uint64_t i = 0; i < count; i++) {
		slow += samples[i].error > (int64_t)(10 * MS);
		late += samples[i].unseen > (int64_t)(10 * MS);
	}
	printf("  first error after the end of the process, ms: median %.3f, 99th percentile %.3f, "
	       "largest %.3f\n",
	       ms_of(samples[count / 2].error), ms_of(samples[count * 99 / 100].error),
	       ms_of(samples[count - 1].error));
	printf("  %llu of %llu took more than 10, %llu of them while the survivor polled; the longest:",
	       (unsigned long long)slow, (unsigned long long)count, (unsigned long long)late);
	for (uint64_t i = 1; i <= 5 && i <= count; i++)
		printf("%s %.1f (polled for %.1f)", i > 1 ? "," : "", ms_of(samples[count - i].error),
		       ms_of(samples[count - i].unseen));
	printf("\n");
}

static uint64_t samples_taken(void)
{
	uint64_t count = atomic_load(&c.board->sample_count);

	return count < KILL_SAMPLES ? count : KILL_SAMPLES;
}

static void add_totals(void)
{
	uint64_t count = samples_taken();

	totals->kills += kill_count();
	totals->ends_seen += SUM(deaths_seen);
	totals->errors += SUM(failed_ops);
	totals->looks += SUM(stopped_checks);
	totals->stops += c.stops;
	totals->messages += SUM(messages);
	for (uint64_t i = 0; i < count && totals->sample_count < KILL_SAMPLES; i++)
		totals->samples[totals->sample_count++] = c.board->samples[i];
}

static void print_totals(void)
{
	printf("test_kill: %llu ends of processes, seen by %llu others, %llu operations failed, %llu "
	       "messages; "
	       "0 false deaths in %llu looks at stopped ones (%llu stops); %llu names left\n",
	       (unsigned long long)totals->kills, (unsigned long long)totals->ends_seen,
	       (unsigned long long)totals->errors, (unsigned long long)totals->messages,
	       (unsigned long long)totals->looks, (unsigned long long)totals->stops,
	       (unsigned long long)totals->names);
	print_latency(totals->samples, totals->sample_count);
}

static void print_results(void)
{
	printf("  %llu kills (%llu of them stopped), %llu by themselves: %llu exit, %llu _exit, %llu "
	       "exec, %llu "
	       "close; %llu stops\n",
	       (unsigned long long)(c.kills[KILL_SIGNAL] + c.kills[KILL_STOPPED]),
	       (unsigned long long)c.kills[KILL_STOPPED],
	       (unsigned long long)(kill_count() - c.kills[KILL_SIGNAL] - c.kills[KILL_STOPPED]),
	       (unsigned long long)c.kills[KILL_EXIT], (unsigned long long)c.kills[KILL_ABRUPT],
	       (unsigned long long)c.kills[KILL_EXEC], (unsigned long long)c.kills[KILL_CLOSE],
	       (unsigned long long)c.stops);
	printf("  %llu messages, %llu bytes, %llu puts, %llu gets, %llu atomics, all right\n",
	       SUM(messages), SUM(bytes), SUM(puts), SUM(gets), SUM(atomics));
	printf("  %llu ends seen, %llu operations failed, %llu refused; 0 false deaths in %llu looks at "
	       "stopped "
	       "ones\n",
	       SUM(deaths_seen), SUM(failed_ops), SUM(refused_posts), SUM(stopped_checks));
	if (SUM(lost))
		printf("  %llu messages lost with the memory of those who were not known yet\n",
		       SUM(lost));
	for (int err = 0; err < KILL_ERRORS; err++)
		if (atomic_load(&c.board->errors[err]))
			printf("  %llu completions with: %s\n",
			       (unsigned long long)atomic_load(&c.board->errors[err]), fi_strerror(err));
	print_latency(c.board->samples, samples_taken());
	add_totals();
}

/* ---- workers --------------------------------------------------------------------------------- */

static void start_worker(int slot)
{
	struct worker *worker = &c.workers[slot];
	pid_t conductor = getpid();

	worker->incarnation++;
	worker->way = KILL_NONE;
	worker->restart_at = worker->resume_at = 0;
	atomic_store(&c.board->slots[slot].order, KILL_NONE);
	fflush(stdout);
	worker->pid = fork();
	mt_require(worker->pid >= 0, "fork: %s", strerror(errno));
	if (worker->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != conductor)
			_exit(1);
		setpriority(PRIO_PROCESS, 0, c.priority);
		mt_rank = mt_ranks + slot;
		kill_worker(c.board, slot, worker->incarnation);
		exit(0);
	}
	worker->pidfd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
	mt_require(worker->pidfd >= 0, "pidfd_open: %s", strerror(errno));
}

static void check_status(int slot, int status)
{
	const struct worker *worker = &c.workers[slot];
	bool killed = worker->way == KILL_SIGNAL || worker->way == KILL_STOPPED;
	bool leaves = atomic_load(&c.board->phase) == KILL_LEAVE || worker->way != KILL_NONE;

	if (killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return;
	if (leaves && !killed && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	mt_fail("worker %d.%llu ended with status %#x, was %s: %s", slot,
		(unsigned long long)worker->incarnation, status, mt_deed(mt_ranks + slot),
		mt_failure(mt_ranks + slot));
}

/* Its pidfd says so. Only then do the others know that it has no operation under way any more. */
static void worker_ended(int slot, uint64_t now)
{
	struct worker *worker = &c.workers[slot];
	struct kill_slot *line = &c.board->slots[slot];
	int status;

	mt_require(waitpid(worker->pid, &status, 0) == worker->pid, "waitpid: %s", strerror(errno));
	close(worker->pidfd);
	check_status(slot, status);
	/* the other program of an exec lived longer than the endpoint, closing took its time */
	atomic_store(&line->ended_at, worker->way == KILL_EXEC || worker->way == KILL_CLOSE ? 0 : now);
	atomic_store(&line->ended, worker->incarnation);
	atomic_store(&line->stopped, 0);
	c.kills[worker->way]++;
	worker->restart_at = now + mt_below(&c.random, 20 * MS);
}

static void kill_worker_now(int slot, enum kill_way way)
{
	struct worker *worker = &c.workers[slot];

	worker->way = way;
	worker->ordered_at = kill_now();
	atomic_store(&c.board->slots[slot].doomed, worker->incarnation);
	if (way == KILL_SIGNAL || way == KILL_STOPPED)
		kill(worker->pid, SIGKILL);
	else
		atomic_store(&c.board->slots[slot].order, way);
}

/* A worker that runs and is not to end, but for number 0; mostly one that has opened. -1: there is none. */
static int choose(void)
{
	int first = (int)mt_below(&c.random, (uint64_t)c.board->workers);
	bool any = mt_below(&c.random, 8) == 0;

	for (int i = 0; i < c.board->workers; i++) {
		int slot = (first + i) % c.board->workers;
		const struct worker *worker = &c.workers[slot];

		if (slot && !worker->restart_at && !worker->resume_at && worker->way == KILL_NONE &&
		    (any || atomic_load(&c.board->slots[slot].up) == worker->incarnation))
			return slot;
	}
	return -1;
}

static void kill_some(void)
{
	static const enum kill_way ways[] = { KILL_EXIT, KILL_ABRUPT, KILL_EXEC, KILL_CLOSE };
	uint64_t count = 1;

	if (mt_below(&c.random, 10) == 0)
		count += mt_below(&c.random, (uint64_t)c.board->workers / 2);
	while (count--) {
		int slot = choose();

		if (slot < 0)
			return;
		kill_worker_now(slot, mt_below(&c.random, 4) ? KILL_SIGNAL : ways[mt_below(&c.random, 4)]);
	}
}

/* One of them, worker 0 too; now and then for long. */
static void stop_one(uint64_t now)
{
	int slot = mt_below(&c.random, (uint64_t)c.board->workers) ? choose() : 0;

	if (slot < 0 || c.workers[slot].resume_at)
		return;
	c.workers[slot].resume_at =
		now + mt_below(&c.random, (mt_below(&c.random, 16) ? 50 : 1000) * MS) + 1;
	atomic_store(&c.board->slots[slot].stopped, 1);
	kill(c.workers[slot].pid, SIGSTOP);
	c.stops++;
}

/* Continued or, in one case of four, killed. */
static void resume(int slot)
{
	struct worker *worker = &c.workers[slot];

	worker->resume_at = 0;
	atomic_store(&c.board->slots[slot].resumed_at, kill_now());
	atomic_store(&c.board->slots[slot].stopped, 0);
	if (slot && atomic_load(&c.board->phase) == KILL_RUN && mt_below(&c.random, 4) == 0)
		kill_worker_now(slot, KILL_STOPPED);
	else
		kill(worker->pid, SIGCONT);
}

/* ---- conducting ------------------------------------------------------------------------------ */

static void run_timers(bool kills)
{
	uint64_t now = kill_now();

	for (int i = 0; i < c.board->workers; i++) {
		struct worker *worker = &c.workers[i];

		if (worker->restart_at && now >= worker->restart_at &&
		    atomic_load(&c.board->phase) != KILL_LEAVE)
			start_worker(i);
		if (worker->resume_at && now >= worker->resume_at)
			resume(i);
		mt_require(worker->way == KILL_NONE || worker->restart_at ||
				   now < worker->ordered_at + (uint64_t)(2 * c.board->patience * 1e9),
			   "worker %d.%llu does not end, by way %d: %s", i,
			   (unsigned long long)worker->incarnation, worker->way, mt_deed(mt_ranks + i));
	}
	if (kills && now >= c.kill_at) {
		kill_some();
		c.kill_at = now + mt_below(&c.random, 2 * KILL_EVERY);
	}
	if (kills && now >= c.stop_at) {
		stop_one(now);
		c.stop_at = now + mt_below(&c.random, 2 * STOP_EVERY);
	}
}

/* Wait a millisecond for ends. */
static void watch_workers(void)
{
	struct pollfd fds[KILL_SLOTS];
	uint64_t now;

	for (int i = 0; i < c.board->workers; i++)
		fds[i] = (struct pollfd){ .fd = c.workers[i].restart_at ? -1 : c.workers[i].pidfd,
					  .events = POLLIN };
	if (poll(fds, (nfds_t)c.board->workers, 1) <= 0)
		return;
	now = kill_now();
	for (int i = 0; i < c.board->workers; i++)
		if (fds[i].revents)
			worker_ended(i, now);
}

/* However slow this machine is just now, some ends have been noticed. */
static bool is_enough(double start)
{
	if (c.test->kills)
		return kill_count() >= c.test->kills;
	return mt_now() - start >= c.test->seconds && sum(offsetof(struct kill_slot, deaths_seen)) &&
	       sum(offsetof(struct kill_slot, refused_posts)) && sum(offsetof(struct kill_slot, messages));
}

/* Nobody is stopped, ending or being started. */
static bool is_settled(void)
{
	for (int i = 0; i < c.board->workers; i++)
		if (c.workers[i].way != KILL_NONE || c.workers[i].restart_at || c.workers[i].resume_at ||
		    atomic_load(&c.board->slots[i].up) != c.workers[i].incarnation)
			return false;
	return true;
}

static bool is_drained(void)
{
	for (int i = 0; i < c.board->workers; i++)
		if (atomic_load(&c.board->slots[i].drained) != c.workers[i].incarnation)
			return false;
	return true;
}

/* Until it is true, with all that is due meanwhile. */
static void await(bool (*is_true)(void), const char *what)
{
	double end = mt_now() + 3 * c.board->patience;

	mt_doing("%s", what);
	while (!is_true()) {
		watch_workers();
		run_timers(false);
		for (int i = 0; mt_now() > end && i < c.board->workers; i++)
			fprintf(stderr, "worker %d.%llu was %s\n", i,
				(unsigned long long)c.workers[i].incarnation, mt_deed(mt_ranks + i));
		mt_require(mt_now() < end, "%s takes more than %.0f s", what, 3 * c.board->patience);
	}
}

static bool all_have_left(void)
{
	for (int i = 0; i < c.board->workers; i++)
		if (!c.workers[i].restart_at)
			return false;
	return true;
}

/* ---- what is left ---------------------------------------------------------------------------- */

static int count_names(char *example, size_t size)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	int count = 0;

	mt_require(dir, "/dev/shm: %s", strerror(errno));
	while ((entry = readdir(dir)))
		if (!strncmp(entry->d_name, "shmcma", 6) &&
		    strncmp(entry->d_name, "shmcma.calibration-", 19)) { /* which is to stay */
			snprintf(example, size, "%s", entry->d_name);
			count++;
		}
	closedir(dir);
	return count;
}

/*
 * A process that opens an endpoint, which removes what dead ones have left, and stays until there are no more names than
 * so many, besides its own: under the pid of one that has become another program they are found by its thread, later.
 */
static void sweep(int before)
{
	char example[256];
	int status;
	pid_t pid = fork();

	mt_require(pid >= 0, "fork: %s", strerror(errno));
	if (pid == 0) {
		struct mt_ep ep;

		mt_rank = mt_ranks + KILL_SLOTS;
		mt_open(&ep, NULL);
		watchdog_await(count_names(example, sizeof(example)) - 1 <= before);
		mt_close(&ep);
		exit(0);
	}
	mt_require(waitpid(pid, &status, 0) == pid && status == 0, "opening an endpoint: status %#x",
		   status);
}

/* Where no /dev/shm of our own is permitted, other jobs may come and go. */
static void check_names(int before)
{
	char example[256] = "";
	int left = count_names(example, sizeof(example));

	mt_doing("looking at /dev/shm");
	if (left > before)
		printf("  %d names left by the dead, until the next process comes\n", left - before);
	sweep(before);
	left = count_names(example, sizeof(example));
	totals->names += (uint64_t)(left > before ? left - before : 0);
	mt_require(left <= before, "%d names in /dev/shm more than before, such as %s", left - before,
		   example);
}

static void kill_rank(const void *arg)
{
	char example[256];
	double start;
	int before;

	c.test = arg;
	setenv("FI_LOG_LEVEL", "warn", 1);
	if (c.test->env)
		putenv((char *)c.test->env);
	sweep(INT_MAX);
	before = count_names(example, sizeof(example));
	c.board = mmap(NULL, sizeof(*c.board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	mt_require(c.board != MAP_FAILED, "no memory");
	c.board->workers = c.test->workers;
	c.board->automatic = c.test->automatic;
	c.board->patience = PATIENCE;
	if (c.test->load > 0)
		c.board->share = c.test->load * (double)sysconf(_SC_NPROCESSORS_ONLN) / c.test->workers;
	c.priority = getpriority(PRIO_PROCESS, 0);
	setpriority(PRIO_PROCESS, 0, -20);
	c.board->seed = c.random.state = c.test->seed;
	for (int i = 0; i < c.board->workers; i++)
		start_worker(i);
	start = mt_now();
	while (!is_enough(start)) {
		mt_doing("conducting");
		watch_workers();
		run_timers(true);
	}
	await(is_settled, "waiting until all live");
	atomic_store(&c.board->phase, KILL_DRAIN);
	await(is_drained, "waiting for what is under way");
	atomic_store(&c.board->phase, KILL_LEAVE);
	for (int i = 0; i < c.board->workers; i++)
		atomic_store(&c.board->slots[i].doomed, c.workers[i].incarnation);
	await(all_have_left, "waiting for all to leave");
	c.kills[KILL_NONE] = 0;
	check_names(before);
	print_results();
	mt_require(SUM(messages) && SUM(refused_posts), "there was no traffic");
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

int main(void)
{
	static struct kill_case cases[] = {
		{ .name = "kill-2", .workers = 2 },
		{ .name = "kill-4", .workers = 4 },
		{ .name = "kill-4-nocma", .workers = 4, .env = "FI_SHMCMA_CMA=0" },
		{ .name = "kill-4-strict",
		  .workers = 4,
		  .env = "FI_SHMCMA_RMA=strict",
		  .automatic = true },
		{ .name = "kill-8", .workers = 8 },
		{ .name = "kill-16", .workers = 16 },
	};
	size_t count = sizeof(cases) / sizeof(cases[0]);
	uint64_t seed = number("TEST_KILL_SEED", 20261), kills = number("TEST_KILL_KILLS", 0);
	double seconds = (double)number("TEST_KILL_SECONDS", rounds_of(20, 6));
	double load = (double)number("TEST_KILL_LOAD", kills ? 70 : 0) / 100;
	int result;

	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (totals == MAP_FAILED) {
		perror("memory for results");
		return MT_FAIL;
	}
	/* the names of other jobs would count as left by the dead */
	(void)mt_private_shm(SHM_SIZE);
	mt_init("test_kill");
	printf("test_kill: seed %llu\n", (unsigned long long)seed);
	for (size_t i = 0; i < count; i++) {
		cases[i].seed = seed + i;
		cases[i].seconds = seconds / (double)count;
		cases[i].kills = (kills + count - 1) / count;
		cases[i].load = load;
		mt_run(&(struct mt_case){ .name = cases[i].name,
					  .ranks = 1,
					  .deadline = 300 + (unsigned)cases[i].seconds +
						      (unsigned)cases[i].kills,
					  .rank = kill_rank,
					  .arg = &cases[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	}
	result = mt_end();
	if (result == MT_OK)
		print_totals();
	return result;
}
