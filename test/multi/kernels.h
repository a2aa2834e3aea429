/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kernels.h: traffic that several programs run under different conditions. Each is a rank function for
 * struct mt_case.
 */
#ifndef KERNELS_H
#define KERNELS_H

#include "multi.h"

/*
 * kernel_sizes: two ranks, one message at a time: every size around every threshold, both directions and
 * queues, expected and unexpected, in pieces, cut short; nothing written outside the buffers.
 */
struct sizes_params {
	size_t max; /* sizes up to this (the largest in the list is 64 MiB + 1) */
	/* runs before anything of libfabric; may be NULL */
	void (*prepare)(const struct sizes_params *params);
};
void sizes_rank(const void *params);
void sizes_run(struct mt_ep *ep, const struct sizes_params *params);

/*
 * kernel_random: any number of ranks, random traffic all-to-all from a seed, with wildcards; which receive
 * got which message is checked against the rules of matching.
 */
struct random_params {
	uint64_t seed;
	int phases;
	int messages; /* of each pair in a phase */
	size_t max;   /* largest message, at least 64 */
	void (*prepare)(const struct random_params *params);
};
void random_rank(const void *params);
void random_run(struct mt_ep *ep, const struct random_params *params);
/* Does the reference tell right from wrong? Simulated engines, no traffic; several ranks. */
void random_reference_rank(const void *params);

#endif
