/* SPDX-License-Identifier: BSD-2-Clause */
/* repeat.c: see repeat.h. Called by processes of a group. */
#include "repeat.h"

#include <math.h>

#include "group.h"
#include "line.h"

#define ROUNDS_MAX 10000000L

double repeat_budget = 0.04;

/* The slowest's time, and the processor time of all. */
static struct repeat_time sum_up(const struct repeat *repeat, struct repeat_time mine)
{
	struct repeat_time all = { 0, 0 };

	if (repeat->alone)
		return mine;
	group_seat(me.rank)->seconds = mine.seconds;
	group_seat(me.rank)->cpu = mine.cpu;
	group_barrier(repeat->idle, repeat->idle_arg);
	for (int rank = 0; rank < me.processes; rank++) {
		all.seconds = fmax(all.seconds, group_seat(rank)->seconds);
		all.cpu += group_seat(rank)->cpu;
	}
	return all;
}

static struct repeat_time run(const struct repeat *repeat, long count)
{
	struct repeat_time time;
	bool done;

	if (!repeat->alone)
		group_barrier(repeat->idle, repeat->idle_arg);
	time.seconds = now();
	time.cpu = cpu_time();
	done = repeat->rounds(repeat->arg, count);
	time.seconds = done ? now() - time.seconds : NAN;
	time.cpu = cpu_time() - time.cpu;
	return sum_up(repeat, time);
}

static double line_now(const struct repeat *repeat)
{
	return repeat->alone ? NAN : group_line();
}

/*
 * So many rounds that they take a tenth of the budget, and their time. Memory that is touched for the first time makes a
 * run longer than those to come: so they have to take as long once more. Not a number: they cannot be had.
 */
static struct repeat_time warm_up(const struct repeat *repeat, long *count)
{
	double least = repeat_budget / 10;
	struct repeat_time time;

	for (*count = 2;; *count *= 4) {
		time = run(repeat, *count);
		if (time.seconds >= least)
			time = run(repeat, *count);
		if (!(time.seconds < least) || *count >= ROUNDS_MAX)
			return time;
	}
}

struct repeat_time repeat_time(const struct repeat *repeat)
{
	struct repeat_time time;
	double line;
	long count;

	time = warm_up(repeat, &count);
	if (isnan(time.seconds)) {
		group_line_was(NAN);
		return time;
	}
	count = (long)ceil((double)count * repeat_budget / time.seconds);
	count = count < 3 ? 3 : count > ROUNDS_MAX ? ROUNDS_MAX : count;
	line = line_now(repeat);
	time = run(repeat, count);
	group_line_was(line_of_sample(line, line_now(repeat)));
	time.seconds /= (double)count;
	time.cpu /= (double)count;
	return time;
}
