/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * group.h: some processes of this machine that measure something together, and what they tell their parent.
 *
 * The parent: group_choose_cpus() once, group_run() for each measurement. All else is for the processes of
 * the group, of which each runs group_attr.run() on its own processor where there are enough.
 *
 * They share one piece of memory, the board: a barrier, a seat for each to write figures down for the
 * others, room for names of endpoints, and the samples, which the parent reads when all have ended.
 * A process writes to a seat or to a name before a barrier, and the others read it after that barrier.
 */
#ifndef SHMCMA_TEST_BENCH_GROUP_H
#define SHMCMA_TEST_BENCH_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESSES_MAX 64
#define NAMES_MAX 128
#define NAME_MAX_BYTES 512
#define SAMPLES_MAX 4096
#define CPUS_MAX 256

enum outcome { MEASURED, UNAVAILABLE, FAILED };

/* A figure at some x: bytes, processes, entries. NAN: not available; `line`: see line.h, NAN: not known. */
struct sample {
	int figure;
	double x, value, line;
};

struct result {
	enum outcome outcome;
	char why[256];
	int count;
	struct sample samples[SAMPLES_MAX]; /* also of a group that came no further */
};

struct group_attr {
	int processes;
	int seconds; /* of processor time, that a process may take */
	void (*run)(void *arg);
	void *arg;
};

/* ---- the parent -------------------------------------------------------------------------------- */

struct cpus {
	int count;
	int cpu[CPUS_MAX];
};

extern struct cpus cpus;

/* "0,1", or NULL: all that we may use. False: the text is no such list. */
bool group_choose_cpus(const char *list);

void group_run(const struct group_attr *attr, struct result *result);

/* ---- a process of the group -------------------------------------------------------------------- */

struct process {
	int rank;
	int processes;
	bool crowded; /* there are more of us than processors: an idle process yields its processor */
};

extern struct process me;

/* The process no longer runs on one processor: it may run on all that were chosen. */
void group_use_all_cpus(void);

/* The figures that a process tells the others. */
struct seat {
	uint64_t words[4];
	double seconds, cpu;
};

struct seat *group_seat(int rank);
char *group_name(int index);

/* All have come to this point; meanwhile `idle`, if given, is called again and again. */
void group_barrier(void (*idle)(void *arg), void *arg);

/* A word that one process sets and others look at, while they do not come to a barrier. */
void group_set_flag(uint32_t value);
uint32_t group_flag(void);

/* Computes, and calls nothing, until the flag is not 0. */
void group_compute(void);

void group_sample(int figure, double x, double value);

/* How far the two of a group are apart, see line.h; both call it, together. NAN: they are not two on two processors. */
double group_line(void);

/* How far they were apart in the measurement that the next samples are of. */
void group_line_was(double seconds);

/* Ends the process and, if it has not MEASURED, the group: the parent sees the first one's reason. */
void finish(enum outcome outcome, const char *what, const char *why) __attribute__((noreturn));

/* ---- clocks and memory ------------------------------------------------------------------------- */

/*
 * Copy `size` bytes by process_vm_readv(2), or process_vm_writev(2), between here and `there` in another process.
 * False: not all of it; errno says why, 0: nothing was copied.
 */
bool attach_memory(pid_t pid, void *here, uint64_t there, size_t size, bool writes);

double now(void);      /* seconds, the same for all processes */
double cpu_time(void); /* of this process, seconds */

/* The time to compute, seconds: a process that waits for us sleeps by then, even if it first polls for a while. */
#define WAKEUP_PAUSE 100e-6
void compute_for(double seconds);

/* Memory whose pages are all present; ends the process if there is no memory. */
void *buffer(size_t size);

#endif
