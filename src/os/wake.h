/* SPDX-License-Identifier: BSD-2-Clause */
/* wake.h: a thread that waits for another process sleeps, and that process wakes it; see wake.c. */
#ifndef SC_WAKE_H
#define SC_WAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/atomic.h"

/* A word without sleepers. */
extern uint64_t sc_wake_nobody;

void sc_wake_slow(uint64_t *word, uint64_t who);

/*
 * Wakes the sleepers on this word (sc_abi_presence.sleep) that wait for `who` (SC_ABI_SLEEP_*). The caller has just
 * stored something for the owner of the word. Costs one load if no thread sleeps.
 */
static inline void sc_wake(uint64_t *word, uint64_t who)
{
	/*
	 * W1: the compiler keeps the load after the caller's store; a processor may still do it first, see W2.
	 * relaxed: the load publishes and reads nothing else.
	 */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(sc_load_relaxed_64(word) & who, 0))
		sc_wake_slow(word, who);
}

/* Registers this process for the barrier of sleepers (W2). Called once in a process, early. */
bool sc_wake_join(void);

/* Arms the word: writers wake from now on, until one has. *sleep: the word to sleep on. `who`: SC_ABI_SLEEP_*. */
void sc_sleep_arm(uint64_t *word, uint64_t who, struct sc_sleep *sleep);

/* Makes the sleepers look again, without a change of the word. */
void sc_sleep_stir(uint32_t *futex);

/* Disarms the word: no thread sleeps on it any more. Only threads that arm call it, one at a time. */
void sc_sleep_disarm(uint64_t *word);

/*
 * W2: afterwards this thread sees each store of any process that saw no sleeper armed after that store. False: the
 * kernel has no such barrier.
 */
bool sc_sleep_barrier(void);

#endif
