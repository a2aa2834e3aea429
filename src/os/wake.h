/* SPDX-License-Identifier: BSD-2-Clause */
/* wake.h: a thread that waits for another process sleeps, and that process wakes it; see wake.c. */
#ifndef SC_WAKE_H
#define SC_WAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/atomic.h"

/* A word that nobody sleeps on. */
extern uint64_t sc_wake_nobody;

void sc_wake_slow(uint64_t *word, uint64_t who);

/*
 * Something has been stored for the owner of this word (sc_abi_presence.sleep): wake those `who`
 * (SC_ABI_SLEEP_*) wait for such a thing. One load if nobody does.
 */
static inline void sc_wake(uint64_t *word, uint64_t who)
{
	/*
	 * W1: the load is compiled after the caller's store. A processor may take it first all the same; see W2.
	 * relaxed: nothing is read by it.
	 */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(sc_load_relaxed_64(word) & who, 0))
		sc_wake_slow(word, who);
}

/* This process's stores take part in the barrier of sleepers. Asked for once in a process, early. */
bool sc_wake_join(void);

/* Arms the word: from now on writers wake, until one has; returns the word to sleep on. `who`: SC_ABI_SLEEP_*. */
void sc_sleep_arm(uint64_t *word, uint64_t who, struct sc_sleep *sleep);

/* Have those who sleep look again, without a change. */
void sc_sleep_stir(uint32_t *futex);

/* Nobody sleeps here any more. Only threads that arm call it, one at a time. */
void sc_sleep_disarm(uint64_t *word);

/*
 * W2: after this, this thread sees every store of a process that has seen no sleeper armed after its store. False: the
 * kernel does not do that.
 */
bool sc_sleep_barrier(void);

#endif
