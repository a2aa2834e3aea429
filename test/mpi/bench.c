/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.c - latency and bandwidth between ranks 0 and 1, to compare ways that an MPI library goes.
 *
 *	bench [milliseconds for each figure] [size,size...]
 *
 * Prints lines "figure,size,value,line" for test/bench/bench.py: mpi_latency, half a round trip, seconds;
 * mpi_bandwidth, windows of WINDOW messages (fewer of the large ones) from one buffer into one
 * buffer, each window answered, bytes per second. Each rank goes to the processor of its number, if it may.
 * It asserts data, once for each size, and no time. `line`: what a cache line took between the processors, line.h.
 */
#define _GNU_SOURCE
#include "mpitest.h"

#include <math.h>
#include <sched.h>

#include "../bench/line.h"

enum { WINDOW = 64, SIZES_MAX = 64 };

static const size_t window_bytes = (size_t)64 << 20;
static size_t sizes[SIZES_MAX] = { 0, 8, 64, 1024, 4096, 65536, 1048576 };
static size_t size_count = 7;
static double budget = 0.04;
static unsigned char *ping, *pong;
static struct line *line; /* shared by both */
static bool crowded;	  /* there is one processor */

static void pin(void)
{
	cpu_set_t all, mine;
	int seen = 0;

	CPU_ZERO(&all);
	CPU_ZERO(&mine);
	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	crowded = CPU_COUNT(&all) < mt_size;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && seen++ == mt_rank % CPU_COUNT(&all))
			CPU_SET(cpu, &mine);
	sched_setaffinity(0, sizeof(mine), &mine);
}

static void round_trips(size_t size, long count)
{
	for (long i = 0; i < count; i++) {
		if (mt_rank == 0)
			MPI_Send(ping, (int)size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(pong, (int)size, MPI_BYTE, !mt_rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (mt_rank == 1)
			MPI_Send(ping, (int)size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
}

static int window_of(size_t size)
{
	size_t fits = size ? window_bytes / size : WINDOW;

	return (int)(fits > WINDOW ? WINDOW : fits < 4 ? 4 : fits);
}

static void windows(size_t size, long count)
{
	MPI_Request requests[WINDOW];
	int window = window_of(size);

	for (long i = 0; i < count; i++) {
		for (int k = 0; k < window; k++) {
			if (mt_rank == 0)
				MPI_Isend(ping, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[k]);
			else
				MPI_Irecv(pong, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[k]);
		}
		MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
		if (mt_rank == 0)
			MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
	}
}

/* The first rank's, told to both so that they go on alike. */
static double timed(void (*run)(size_t, long), size_t size, long count)
{
	double seconds;

	MPI_Barrier(MPI_COMM_WORLD);
	seconds = MPI_Wtime();
	run(size, count);
	seconds = MPI_Wtime() - seconds;
	MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	return seconds;
}

static double line_now(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	return line_way(line, (uint32_t)mt_rank, crowded);
}

/* Of one; growing numbers warm up and tell how many fill the time. */
static double measure(void (*run)(size_t, long), size_t size, double *line_of)
{
	long count = 2;
	double seconds = timed(run, size, count), before;

	while (seconds < budget / 10 && count < 10000000) {
		count *= 4;
		seconds = timed(run, size, count);
	}
	count = (long)fmax(3, fmin(1e7, ceil((double)count * budget / seconds)));
	before = line_now();
	seconds = timed(run, size, count);
	*line_of = line_of_sample(before, line_now());
	return seconds / (double)count;
}

static void check_data(size_t size)
{
	mt_fill(ping, size, mt_seed(1, size, (uint64_t)mt_rank));
	memset(pong, 0, size);
	round_trips(size, 1);
	MT_PATTERN(pong, size, mt_seed(1, size, (uint64_t)!mt_rank));
}

static void measure_size(size_t size)
{
	double latency, window, latency_line, window_line;

	mt_enter("size");
	check_data(size);
	latency = measure(round_trips, size, &latency_line) / 2;
	window = measure(windows, size, &window_line);
	if (mt_rank)
		return;
	printf("mpi_latency,%zu,%.9g,%.3g\n", size, latency, latency_line);
	if (size)
		printf("mpi_bandwidth,%zu,%.9g,%.3g\n", size, (double)size * window_of(size) / window,
		       window_line);
	fflush(stdout);
}

/* In the first one's memory. */
static void share_line(MPI_Win *window)
{
	MPI_Aint bytes = mt_rank ? 0 : 2 * sizeof(struct line);
	int unit;

	MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &line, window);
	MPI_Win_shared_query(*window, 0, &bytes, &unit, &line);
	line = (struct line *)(((uintptr_t)line + 63) / 64 * 64);
	if (!mt_rank)
		line->word = 0;
	MPI_Barrier(MPI_COMM_WORLD);
}

static void parse_sizes(char *text)
{
	size_count = 0;
	for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
		MT_CHECK(size_count < SIZES_MAX, "more than %d sizes", SIZES_MAX);
		sizes[size_count++] = strtoul(item, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	size_t largest = 1;
	MPI_Win window;

	mt_init(&argc, &argv, "bench");
	MT_CHECK(mt_size == 2, "needs two ranks");
	if (argc > 1)
		budget = atof(argv[1]) * 1e-3;
	if (argc > 2)
		parse_sizes(argv[2]);
	pin();
	share_line(&window);
	for (size_t i = 0; i < size_count; i++)
		largest = sizes[i] > largest ? sizes[i] : largest;
	ping = mt_alloc(largest);
	pong = mt_alloc(largest);
	for (size_t i = 0; i < size_count; i++)
		measure_size(sizes[i]);
	mt_free(ping);
	mt_free(pong);
	MPI_Win_free(&window);
	mt_enter("finish");
	MPI_Finalize();
	return EXIT_SUCCESS;
}
