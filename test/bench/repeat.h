/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * repeat.h: how long one round of something takes, from as many of them as fill the time that there is.
 *
 * First rounds are run in growing numbers until they take a tenth of repeat_budget, twice, which warms up
 * and tells how many are needed; those are the ones that are timed. The processes of a group do all rounds
 * together: each takes the time of the slowest, and so all come to the same number.
 */
#ifndef SHMCMA_TEST_BENCH_REPEAT_H
#define SHMCMA_TEST_BENCH_REPEAT_H

#include <stdbool.h>

struct repeat {
	bool (*rounds)(void *arg, long count); /* false: the rounds cannot be done */
	void *arg;
	bool alone;		 /* this process only; the others do not take part */
	void (*idle)(void *arg); /* while it waits for the others, with idle_arg */
	void *idle_arg;
};

/* The times of one round, seconds; NAN: there is no figure. */
struct repeat_time {
	double seconds;
	double cpu; /* of all processes that take part */
};

extern double repeat_budget; /* seconds */

struct repeat_time repeat_time(const struct repeat *repeat);

#endif
