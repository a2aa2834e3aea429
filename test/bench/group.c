/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group.c: see group.h.
 *
 * A process that ends otherwise than by returning from its run() ends the group: the parent sees it in
 * waitpid(2) and kills the others, which may be waiting for it. A process that is killed leaves no reason on
 * the board, so the parent puts one there.
 */
#define _GNU_SOURCE
#include "group.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../watchdog.h"
#include "line.h"

struct board {
	_Alignas(64) _Atomic uint32_t arrived;
	_Alignas(64) _Atomic uint32_t generation; /* of the barrier */
	_Alignas(64) _Atomic uint32_t flag;
	_Alignas(64) _Atomic bool ended; /* somebody writes the outcome */
	struct line line;
	struct result result;
	struct seat seats[PROCESSES_MAX];
	char names[NAMES_MAX][NAME_MAX_BYTES];
};

struct cpus cpus;
struct process me;

static struct board *board;
static double line_was = NAN;

/* ---- a process --------------------------------------------------------------------------------- */

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void compute_for(double seconds)
{
	double end = now() + seconds;

	while (now() < end)
		;
}

struct seat *group_seat(int rank)
{
	return &board->seats[rank];
}

char *group_name(int index)
{
	return board->names[index];
}

void group_set_flag(uint32_t value)
{
	atomic_store_explicit(&board->flag, value, memory_order_release);
}

uint32_t group_flag(void)
{
	return atomic_load_explicit(&board->flag, memory_order_acquire);
}

void group_compute(void)
{
	volatile double sum = 1;

	while (!group_flag())
		for (int i = 0; i < 20000; i++)
			sum = sum * 1.0000001 + 0.5;
}

void group_barrier(void (*idle)(void *arg), void *arg)
{
	uint32_t generation = atomic_load(&board->generation);

	if (atomic_fetch_add(&board->arrived, 1) + 1 == (uint32_t)me.processes) {
		atomic_store(&board->arrived, 0);
		atomic_store(&board->generation, generation + 1);
		return;
	}
	while (atomic_load(&board->generation) == generation) {
		if (idle)
			idle(arg);
		if (me.crowded)
			sched_yield();
	}
}

double group_line(void)
{
	if (me.processes != 2 || me.crowded)
		return NAN;
	return line_way(&board->line, (uint32_t)me.rank, false);
}

void group_line_was(double seconds)
{
	line_was = seconds;
}

/* One process of a group has the samples; which one, the measurement says. */
void group_sample(int figure, double x, double value)
{
	struct result *result = &board->result;

	if (result->count == SAMPLES_MAX)
		finish(FAILED, "samples", "too many");
	result->samples[result->count++] = (struct sample){ figure, x, value, line_was };
}

void finish(enum outcome outcome, const char *what, const char *why)
{
	if (outcome == MEASURED)
		_exit(0);
	/* Another one is telling its reason: the parent ends us when it has. */
	while (atomic_exchange(&board->ended, true))
		pause();
	board->result.outcome = outcome;
	snprintf(board->result.why, sizeof(board->result.why), "%s: %s", what, why);
	_exit(1);
}

void *buffer(size_t size)
{
	void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096 + 4096);

	if (!memory)
		finish(FAILED, "buffers", "no memory");
	memset(memory, 1, size);
	return memory;
}

bool attach_memory(pid_t pid, void *here, uint64_t there, size_t size, bool writes)
{
	for (size_t done = 0; done < size;) {
		struct iovec local = { (char *)here + done, size - done };
		struct iovec remote = { (void *)(uintptr_t)(there + done), size - done };
		ssize_t n = writes ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
				   : process_vm_readv(pid, &local, 1, &remote, 1, 0);

		if (n <= 0) {
			errno = n ? errno : 0;
			return false;
		}
		done += (size_t)n;
	}
	return true;
}

void group_use_all_cpus(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < cpus.count; i++)
		CPU_SET((size_t)cpus.cpu[i], &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void run_process(const struct group_attr *attr, int rank)
{
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	watchdog_start(NULL, (unsigned int)attr->seconds);
	CPU_ZERO(&set);
	CPU_SET((size_t)cpus.cpu[rank % cpus.count], &set);
	sched_setaffinity(0, sizeof(set), &set);
	me = (struct process){ rank, attr->processes, attr->processes > cpus.count };
	attr->run(attr->arg);
	finish(MEASURED, "", "");
}

/* ---- the parent -------------------------------------------------------------------------------- */

static bool parse_cpus(const char *list)
{
	char *end;

	for (cpus.count = 0; cpus.count < CPUS_MAX; list = end + 1) {
		long cpu = strtol(list, &end, 10);

		if (end == list || cpu < 0 || cpu >= CPU_SETSIZE)
			return false;
		cpus.cpu[cpus.count++] = (int)cpu;
		if (!*end)
			return true;
		if (*end != ',')
			return false;
	}
	return false;
}

bool group_choose_cpus(const char *list)
{
	cpu_set_t set;

	if (list)
		return parse_cpus(list);
	CPU_ZERO(&set);
	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE && cpus.count < CPUS_MAX; cpu++)
		if (CPU_ISSET((size_t)cpu, &set))
			cpus.cpu[cpus.count++] = cpu;
	return cpus.count > 0;
}

static void give_up(const char *what)
{
	perror(what);
	exit(1);
}

static void kill_all(const pid_t *pids, int count)
{
	for (int i = 0; i < count; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

/* How one of them ended is the reason of all if it could not tell its own. */
static void judge_end(const struct group_attr *attr, int status)
{
	struct result *result = &board->result;

	if (atomic_exchange(&board->ended, true))
		return;
	result->outcome = FAILED;
	if (WIFEXITED(status) && WEXITSTATUS(status) == WATCHDOG_EXIT)
		snprintf(result->why, sizeof(result->why),
			 "it took more than %d s of processor time, or %u s", attr->seconds,
			 watchdog_wall());
	else if (WIFSIGNALED(status))
		snprintf(result->why, sizeof(result->why), "it died of signal %d", WTERMSIG(status));
	else
		snprintf(result->why, sizeof(result->why), "it ended by itself, status %d",
			 WEXITSTATUS(status));
}

static void wait_for(const struct group_attr *attr, pid_t *pids)
{
	for (int left = attr->processes; left > 0; left--) {
		int status = 0;
		pid_t pid = waitpid(-1, &status, 0);

		if (pid < 0 && errno != EINTR)
			give_up("waitpid");
		for (int i = 0; i < attr->processes; i++)
			if (pids[i] == pid)
				pids[i] = 0;
		if (status == 0)
			continue;
		judge_end(attr, status);
		kill_all(pids, attr->processes);
	}
}

void group_run(const struct group_attr *attr, struct result *result)
{
	pid_t pids[PROCESSES_MAX] = { 0 };

	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		give_up("mmap");
	fflush(NULL);
	for (int rank = 0; rank < attr->processes; rank++) {
		pids[rank] = fork();
		if (pids[rank] == 0)
			run_process(attr, rank);
		if (pids[rank] < 0) {
			kill_all(pids, rank);
			give_up("fork");
		}
	}
	wait_for(attr, pids);
	*result = board->result;
	munmap(board, sizeof(*board));
}
