/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * yield.h: a caller that polls in vain gives its processor to another process that is ready to run there.
 *
 * With more busy ranks than processors, a caller that spins until its time slice ends (3 ms) keeps out the very process
 * whose message it waits for. So each queue and counter counts its empty polls, and a caller yields (sched_yield(2))
 * after some of them, but only while this machine has more processes with endpoints than processors for them
 * (sc_oversub_is_here()): beside other busy programs a yield would cost a time slice for each message that is late.
 *
 * The kernel's count of context switches shows whether another process ran in the meantime. If one did, the next yield
 * is due after FEW empty polls; if none did, after twice as many as before, up to MANY. A caller that has its
 * processor to itself so yields hardly ever, and not at all while messages come.
 *
 * FI_SHMCMA_YIELD is auto, the above; never; or always, as if there were too few processors at all times.
 *
 * The count of polls belongs to the lock of the queue or the counter. The yield happens without any lock.
 */
#ifndef SHMCMA_YIELD_H
#define SHMCMA_YIELD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed: the next empty poll is the first to be due. */
struct shmcma_yield {
	uint32_t polls;	       /* empty ones */
	_Atomic uint32_t mask; /* a yield is due when these bits of `polls` are 0 */
	_Atomic long switches; /* of the thread that yielded last, as the kernel counted them then */
};

/* Count an empty poll. True: shmcma_yield_slow() is due, once no lock is held. */
static inline bool shmcma_yield_is_due(struct shmcma_yield *yield)
{
	/* relaxed: a number by itself */
	uint32_t mask = atomic_load_explicit(&yield->mask, memory_order_relaxed);

	return __builtin_expect(!(++yield->polls & mask), 0);
}

/* Any thread, without a lock. */
void shmcma_yield_slow(struct shmcma_yield *yield);

#endif
