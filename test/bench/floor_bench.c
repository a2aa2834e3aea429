/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * floor_bench.c: the times of this machine without any library: the floor that the figures of messages are compared
 * with.
 *
 *	floor_bench [-n turns] [-s size,size...] [-c cpu,cpu...] [-b milliseconds] [-C | -L | -l]
 *
 * Two processes, each on its own processor. Buffers are used again and again.
 *
 *	cache line	half the time in which a word in shared memory goes to the other processor and back
 *	two lines	the same, where each direction has a word in a line of its own, as rings have: the writer has
 *			to take the line from the reader; with one line for both directions it already has the
 *			line, because it has just read the other's word there
 *	pipe		half the time in which a byte goes through a pipe to a process that sleeps in read(2), and back
 *	memcpy		from one private buffer to another
 *	CMA		process_vm_readv(2) and process_vm_writev(2); like memcpy while the other process computes,
 *			as the target of fabric_bench's passive ones does
 *	CMA by both	one reads the first half of what it is to get, the other writes the second half there
 *
 * Options as those of fabric_bench; with -l only what a cache line takes now, seconds. It judges nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "group.h"
#include "line.h"
#include "repeat.h"
#include "table.h"

#define SIZES_MAX 64
#define DEADLINE 60 /* seconds */

enum {
	LINE_LATENCY,
	LINES_LATENCY,
	PIPE_LATENCY,
	MEMCPY_TIME,
	CMA_READ_TIME,
	CMA_WRITE_TIME,
	CMA_BOTH_TIME,
	FIGURES
};

#define US "bytes", 1e6, 3, true

static const struct figure figures[FIGURES] = {
	[LINE_LATENCY] = { "line_latency", "one cache line one way, us", US },
	[LINES_LATENCY] = { "lines_latency", "one way, with a line for each direction, us", US },
	[PIPE_LATENCY] = { "pipe_latency", "one byte through a pipe to a sleeping process, us", US },
	[MEMCPY_TIME] = { "memcpy_time", "memcpy, us", US },
	[CMA_READ_TIME] = { "cma_read_time", "process_vm_readv, us", US },
	[CMA_WRITE_TIME] = { "cma_write_time", "process_vm_writev, us", US },
	[CMA_BOTH_TIME] = { "cma_both_time", "process_vm_readv and _writev at once, a half each, us", US },
};

static size_t sizes[SIZES_MAX] = { 64, 4096, 65536, 1048576, 4194304 };
static size_t size_count = 5;

static struct line *line, *lines; /* shared; each way's own */

static int pipes[2][2]; /* to each process */

struct copy {
	void *from, *to;
	size_t size;
	pid_t pid;
	uint64_t there, there_to; /* the addresses of `from` and of `to` in the other process */
};

/* ---- rounds ------------------------------------------------------------------------------------ */

static bool line_rounds(void *arg, long count)
{
	(void)arg;
	line_go(line, (uint32_t)me.rank, count, cpus.count < 2);
	return true;
}

static bool lines_rounds(void *arg, long count)
{
	static uint32_t turn;

	(void)arg;
	while (count--) {
		turn++;
		if (me.rank == 0)
			atomic_store_explicit(&lines[0].word, turn, memory_order_release);
		while (atomic_load_explicit(&lines[!me.rank].word, memory_order_acquire) != turn)
			if (cpus.count < 2)
				sched_yield();
		if (me.rank == 1)
			atomic_store_explicit(&lines[1].word, turn, memory_order_release);
	}
	return true;
}

static void write_byte(int rank)
{
	compute_for(WAKEUP_PAUSE);
	if (write(pipes[rank][1], "", 1) != 1)
		finish(FAILED, "pipe", strerror(errno));
}

static void read_byte(void)
{
	char byte;

	if (read(pipes[me.rank][0], &byte, 1) != 1)
		finish(FAILED, "pipe", strerror(errno));
}

static bool pipe_rounds(void *arg, long count)
{
	(void)arg;
	while (count--) {
		if (me.rank == 0)
			write_byte(1);
		read_byte();
		if (me.rank == 1)
			write_byte(0);
	}
	return true;
}

static bool memcpy_rounds(void *arg, long count)
{
	struct copy *copy = arg;

	while (count--) {
		memcpy(copy->to, copy->from, copy->size);
		atomic_signal_fence(memory_order_seq_cst); /* each of them */
	}
	return true;
}

static void attach_all(const struct copy *copy, bool writes)
{
	if (!attach_memory(copy->pid, copy->to, copy->there, copy->size, writes))
		finish(UNAVAILABLE, "cross memory attach", errno ? strerror(errno) : "nothing copied");
}

static bool read_rounds(void *arg, long count)
{
	while (count--)
		attach_all(arg, false);
	return true;
}

static bool write_rounds(void *arg, long count)
{
	while (count--)
		attach_all(arg, true);
	return true;
}

/* ---- both processes ---------------------------------------------------------------------------- */

static void exchange_buffers(struct copy *copy)
{
	struct seat *theirs = group_seat(!me.rank);

	group_seat(me.rank)->words[0] = (uint64_t)getpid();
	group_seat(me.rank)->words[1] = (uint64_t)(uintptr_t)copy->from;
	group_seat(me.rank)->words[2] = (uint64_t)(uintptr_t)copy->to;
	group_barrier(NULL, NULL);
	copy->pid = (pid_t)theirs->words[0];
	copy->there = theirs->words[1];
	copy->there_to = theirs->words[2];
}

/* One way, without a pause in it. */
static void measure_way(int figure, bool (*rounds)(void *arg, long count), double bytes, double pause)
{
	struct repeat repeat = { .rounds = rounds };
	double seconds = repeat_time(&repeat).seconds / 2 - pause;

	if (me.rank == 0)
		group_sample(figure, bytes, seconds);
}

/* The first process is to get what the second one has. */
static void measure_both(const struct copy *copy)
{
	for (size_t i = 0; i < size_count; i++) {
		size_t first = sizes[i] / 2;
		struct copy half = *copy;
		struct repeat repeat = { .rounds = me.rank ? write_rounds : read_rounds, .arg = &half };
		double seconds;

		if (!first)
			continue;
		half.size = me.rank ? sizes[i] - first : first;
		if (me.rank) {
			half.to = (char *)copy->from + first;
			half.there = copy->there_to + first;
		}
		seconds = repeat_time(&repeat).seconds;
		if (me.rank == 0)
			group_sample(CMA_BOTH_TIME, (double)sizes[i], seconds);
	}
}

static void measure_copies(struct copy *copy)
{
	static const struct {
		int figure;
		bool (*rounds)(void *arg, long count);
	} ways[] = {
		{ MEMCPY_TIME, memcpy_rounds },
		{ CMA_READ_TIME, read_rounds },
		{ CMA_WRITE_TIME, write_rounds },
	};

	for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++)
		for (size_t i = 0; i < size_count; i++) {
			struct repeat repeat = { .rounds = ways[way].rounds, .arg = copy, .alone = true };

			copy->size = sizes[i];
			if (copy->size)
				group_sample(ways[way].figure, (double)copy->size,
					     repeat_time(&repeat).seconds);
		}
}

static void run_line(void *arg)
{
	double seconds = group_line();

	(void)arg;
	if (me.rank == 0)
		group_sample(LINE_LATENCY, 64, seconds);
}

/*
 * While the first process copies the second one computes: with a processor at rest beside it the first one may be
 * faster than any library can be with a target that computes.
 */
static void run_process(void *arg)
{
	struct copy copy = { 0 };
	size_t largest = 0;

	(void)arg;
	for (size_t i = 0; i < size_count; i++)
		largest = sizes[i] > largest ? sizes[i] : largest;
	copy.from = buffer(largest);
	copy.to = buffer(largest);
	exchange_buffers(&copy);
	measure_way(LINE_LATENCY, line_rounds, 64, 0);
	measure_way(LINES_LATENCY, lines_rounds, 64, 0);
	measure_way(PIPE_LATENCY, pipe_rounds, 1, WAKEUP_PAUSE);
	measure_both(&copy);
	if (me.rank == 0) {
		measure_copies(&copy);
		group_set_flag(1);
	} else {
		group_compute();
	}
}

/* ---- the parent -------------------------------------------------------------------------------- */

static void usage(void)
{
	fprintf(stderr,
		"usage: floor_bench [-n turns] [-s size,size...] [-c cpu,cpu...] [-b milliseconds] "
		"[-C | -L | -l]\n");
	exit(2);
}

static void parse_sizes(char *text)
{
	size_count = table_parse_list(text, sizes, SIZES_MAX);
	if (!size_count)
		usage();
}

static void share_line_and_pipes(void)
{
	line = mmap(NULL, 3 * sizeof(*line), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	lines = line + 1;
	if (line == MAP_FAILED || pipe(pipes[0]) || pipe(pipes[1])) {
		perror("floor_bench");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static char *subjects[] = { "machine" };
	static const struct group_attr attr = { 2, DEADLINE, run_process, NULL };
	static const struct group_attr line_attr = { 2, DEADLINE, run_line, NULL };
	static struct result result;
	struct table table = { figures, FIGURES, subjects, 1, NULL, 0, 0 };
	const char *cpu_list = NULL;
	int option, turns = 7;
	bool csv = false, only_line = false;

	while ((option = getopt(argc, argv, "n:s:c:b:CLl")) != -1) {
		if (option == 'n')
			turns = atoi(optarg);
		else if (option == 's')
			parse_sizes(optarg);
		else if (option == 'c')
			cpu_list = optarg;
		else if (option == 'b')
			repeat_budget = atof(optarg) * 1e-3;
		else if (option == 'C')
			csv = true;
		else if (option == 'l')
			only_line = true;
		else if (option == 'L')
			return table_list_figures(&table), 0;
		else
			usage();
	}
	if (turns < 1 || turns > TURNS_MAX || optind != argc || repeat_budget <= 0 ||
	    !group_choose_cpus(cpu_list))
		usage();
	if (only_line) {
		group_run(&line_attr, &result);
		printf("%.3g\n", result.count ? result.samples[0].value : NAN);
		return result.outcome == FAILED;
	}
	for (int turn = 0; turn < turns; turn++) {
		share_line_and_pipes();
		group_run(&attr, &result);
		table_add(&table, 0, &result);
		if (result.outcome != MEASURED)
			fprintf(stderr, "floor_bench: %s\n", result.why);
	}
	if (csv)
		table_print_csv(&table);
	else
		table_print(&table);
	return result.outcome == FAILED;
}
