/* SPDX-License-Identifier: BSD-2-Clause */
/* pair.h: two processes of this machine that send messages to each other over a provider of libfabric, and the time. */
#ifndef UTIL_PAIR_H
#define UTIL_PAIR_H

#include <stdbool.h>
#include <stddef.h>

#define PAIR_CASES 16
#define PAIR_TEXT 160

struct pair_case {
	size_t size;
	bool is_stream; /* messages in one direction, several at a time; else one there and one back */
};

struct pair_plan {
	const char *provider;
	int cpus[2];	/* -1: any */
	double seconds; /* for each case; 0: each goes twice */
	int patience;	/* seconds more than that, until a pair that hangs is ended */
	const struct pair_case *cases;
	size_t count;
};

struct pair_result {
	double share; /* of the time, in which the processes have had their processors; the lesser of both */
	double values[PAIR_CASES]; /* microseconds for one message, or MB/s */
	size_t done; /* cases that both processes have ended; with a fault: the next one failed */
	char fault[PAIR_TEXT];	   /* why nothing was measured; empty: all was */
};

/* Makes both processes, and ends them. */
void pair_measure(const struct pair_plan *plan, struct pair_result *result);

#endif
