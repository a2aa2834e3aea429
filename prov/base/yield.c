/* SPDX-License-Identifier: BSD-2-Clause */
/* yield.c: decides how often a caller that polls in vain yields; yield.h has the rule. */
#define _GNU_SOURCE 1
#include "base/yield.h"

#include <sched.h>
#include <sys/resource.h>
#include "base/param.h"
#include "base/provider.h"

/*
 * Empty polls between two yields, less 1. MANY: about 300 microseconds of polls. docs/MEASUREMENTS.md, "More ranks than
 * processors"
 */
#define FEW 63
#define MANY 16383

/* Returns the involuntary context switches of this thread. The kernel counts a yield to another thread as one. */
static long switches(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nivcsw;
}

/* Tells whether other processes need the processors of this one, by FI_SHMCMA_YIELD. */
static bool is_wanted(void)
{
	if (shmcma_env.config.crowd == SC_CROWD_ASKED)
		return sc_oversub_is_here();
	return shmcma_env.config.crowd == SC_CROWD_ALWAYS;
}

void shmcma_yield_slow(struct shmcma_yield *yield)
{
	/* relaxed: each word is an estimate of its own; several threads of one queue only make it coarser */
	uint32_t mask = atomic_load_explicit(&yield->mask, memory_order_relaxed), next = MANY;

	if (is_wanted()) {
		long before = atomic_load_explicit(&yield->switches, memory_order_relaxed), now;

		sched_yield();
		now = switches();
		atomic_store_explicit(&yield->switches, now, memory_order_relaxed);
		next = now != before ? FEW : mask < MANY ? 2 * mask + 1 : MANY;
	}
	atomic_store_explicit(&yield->mask, next, memory_order_relaxed);
}
