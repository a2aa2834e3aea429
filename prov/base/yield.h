/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * yield.h: a caller that polls in vain gives its processor to another process that is ready to run.
 *
 * With more busy ranks than processors, a caller that spins to the end of its time slice (3 ms) can keep out the very
 * process whose message it waits for. So each queue and counter counts its empty polls, and after some of them the
 * caller yields (sched_yield(2)). It does so only while this machine has more processes with endpoints than processors
 * for them (sc_oversub_is_here()): beside other busy programs a yield would cost a time slice for each message that is
 * late.
 *
 * The kernel's count of context switches shows whether another process ran during the yield. If so, the next yield is
 * due after FEW empty polls; if not, after twice as many as before, up to MANY. So a caller that has its processor to
 * itself hardly ever yields, and not at all while messages come.
 *
 * FI_SHMCMA_YIELD (sc_config.crowd): auto, as above; never; or always, as if there were too few processors at all times.
 *
 * The lock of the queue or counter guards the count of polls. The caller yields without any lock.
 */
#ifndef SHMCMA_YIELD_H
#define SHMCMA_YIELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* All zero: the first empty poll is due. */
struct shmcma_yield {
	uint32_t polls;	       /* empty polls */
	_Atomic uint32_t mask; /* a yield is due when these bits of `polls` are 0 */
	_Atomic long switches; /* the kernel's count for the thread that yielded last, after its yield */
};

/* Counts an empty poll. True: the caller must call shmcma_yield_slow() when it holds no lock. */
static inline bool shmcma_yield_is_due(struct shmcma_yield *yield)
{
	/* relaxed: the number stands alone */
	uint32_t mask = atomic_load_explicit(&yield->mask, memory_order_relaxed);

	return __builtin_expect(!(++yield->polls & mask), 0);
}

/* Any thread may call this, without a lock. */
void shmcma_yield_slow(struct shmcma_yield *yield);

#endif
