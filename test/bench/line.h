/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * line.h: how far two processors are apart: the time of a cache line from one to the other, one way.
 *
 * The host moves a virtual machine's processors to one core, to two that share a cache, to two that share none, each
 * for seconds or less, and the figures of two processes change by a factor of two or three with it. So each sample has
 * the line's time from right before and after it, and samples are compared with those that were taken when that time
 * was similar (figures.py).
 */
#ifndef SHMCMA_TEST_BENCH_LINE_H
#define SHMCMA_TEST_BENCH_LINE_H

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Shared, and 0 while nobody measures: the word says whose turn it is. */
struct line {
	_Alignas(64) _Atomic uint32_t word;
};

/* There and back so often. Both call it, one as 0, the other as 1. `crowded`: on one processor. */
static inline void line_go(struct line *line, uint32_t mine, long count, bool crowded)
{
	while (count--) {
		while (atomic_load_explicit(&line->word, memory_order_acquire) != mine)
			if (crowded)
				sched_yield();
		atomic_store_explicit(&line->word, mine ^ 1, memory_order_release);
	}
}

/* One way, seconds: the least of some stretches, of which none is longer than some ten microseconds. Both call it. */
static inline double line_way(struct line *line, uint32_t mine, bool crowded)
{
	enum { STRETCHES = 8, TRIPS = 32 };
	double least = INFINITY;

	for (int i = 0; i < STRETCHES; i++) {
		struct timespec begin, end;

		clock_gettime(CLOCK_MONOTONIC, &begin);
		line_go(line, mine, TRIPS, crowded);
		clock_gettime(CLOCK_MONOTONIC, &end);
		least = fmin(least, (double)(end.tv_sec - begin.tv_sec) +
					    (double)(end.tv_nsec - begin.tv_nsec) * 1e-9);
	}
	return least / (2 * TRIPS);
}

/* Of a sample, from before and after it: NAN if the processors have been moved meanwhile. */
static inline double line_of_sample(double before, double after)
{
	return fmax(before, after) > 1.4 * fmin(before, after) ? NAN : (before + after) / 2;
}

#endif
