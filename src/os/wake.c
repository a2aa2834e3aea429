/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wake.c: how a thread sleeps until another process has written something, and how that process wakes it.
 *
 * Each segment has one word, sc_abi_presence.sleep, a futex that every connected peer can wake. This needs no
 * descriptor, permission, name or common namespace, so it cannot be refused and cannot fail for want of anything. A
 * process that can write a record can wake a sleeper.
 *
 *   63        32 31         16 15        2 1      0
 *   +-----------+-------------+-----------+--------+
 *   |            wakes, 48 bits           | ROOM   |   wakes += 1 by a waker, += 2^16 by a sleeper,
 *   |             ...       |  armings    | ASLEEP |   so no value ever comes again; the futex is the low
 *   +-----------+-------------+-----------+--------+   half, in which each of the two changes something
 *
 *   sleeper (arm, look, sleep)                       writer (publish, look, wake)
 *   A1  word: + arming, ASLEEP                       P1  record, count ...: release store
 *   A2  barrier on all processors (membarrier)       P2  load of the word: ASLEEP?        no: that is all
 *   A3  look at all that others can have written     P3  word: wakes + 1
 *   A4  futex_wait(word, value of A1)                P4  futex_wake(word)
 *                                                    P5  word: ASLEEP off, if it is as after P3
 *
 * No wake-up is lost:
 *
 *   W1  P1 is before P2 in program order. On x86 (TSO) a load may pass the store buffer, so P2 may be done before P1 is
 *       visible. A full fence between them would prevent that, but each message would wait for the line (the time of
 *       small messages doubles). W2 replaces the fence.
 *   W2  A2 is membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED). During A2 each processor that runs a thread of a registered
 *       process (sc_wake_join()) executes a full fence; each other processor did so when it last switched threads. The
 *       fence of the writer is before P2 or after it. After P2: P1, which is before P2, is visible at A3. Before P2: P2
 *       comes after A1 and finds ASLEEP.
 *       If the kernel has no such call, or a peer has not registered (SC_ABI_CAP_BARRIER), the sleeper does A3 once
 *       more, RECHECK_MS after A1, with the word as A1 has left it (sleep.c). A processor empties its store buffer, and
 *       completes or repeats an early load, within microseconds. This is no proof, as no manual gives a bound, but no
 *       processor is known that takes longer.
 *   W3  If P3 has changed the futex between A3 and A4, A4 returns at once. The 14 + 16 bits have the same value again
 *       only after 2^16 wakes, each after another arming, between A3 and A4 of one thread.
 *   W4  P4 wakes all sleepers. P5 removes ASLEEP for these sleepers only: if a thread has armed since P3, the word has
 *       another value. So one record pays for the wake-up, and not each record until the sleeper runs.
 *   W5  Several threads may arm one word, one after the other (the owner's lock). Each sleeps in A4 with its own value,
 *       or finds the value changed and looks again.
 *
 * Death or stop of the writer: a writer that dies or stops after P1, P2 or P3 does not wake the sleeper. ASLEEP stays,
 * so each other writer wakes it. If the writer has died, the daemon's thread of the sleeper's process wakes the sleeper,
 * too: sc_bell_ring() takes the steps P1 to P5. If the writer has stopped, its records wait until it goes on, or until
 * another writer wakes the sleeper. After P4 the writer has no more to do for the sleeper. The death of the sleeper harms no
 * other process. models/wait.pml models this with store buffers, deaths and two writers.
 *
 * A process that has mapped the segment can store any value in the word, as it can overwrite a record. If it removes
 * ASLEEP, no writer wakes the sleeper. If it wakes the sleeper without a record, the sleeper finds nothing, and sleeps
 * again.
 *
 * Costs: docs/MEASUREMENTS.md, "Sleeping and waking".
 */
#define _GNU_SOURCE 1
#include "os/wake.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/fault.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449 /* newer than the oldest headers we build on */
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the low half");

#define ONE_WAKE ((uint64_t)1 << 16)
#define ONE_ARMING ((uint64_t)1 << 32)
#define ARMINGS_LOW 0xfffcu
#define ARMING_LOW 4u

/* Always 0: no thread arms it, so sc_wake() does not write to it. Not const, as words of peers have the same type. */
uint64_t sc_wake_nobody;

static uint32_t *futex_of(uint64_t *word)
{
	return (uint32_t *)word;
}

/* ---- waking ---------------------------------------------------------------------------------- */

void sc_sleep_stir(uint32_t *futex)
{
	SC_CALL("wake.futex", syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0));
}

void sc_wake_slow(uint64_t *word, uint64_t who)
{
	/* P3, acq_rel: a sleeper that arms after P3 finds the records published before it */
	uint64_t woken = sc_add_acq_rel_64(word, ONE_WAKE) + ONE_WAKE;

	(void)SC_FAULT("wake.counted");
	if (!(woken & who))
		return;		    /* awake by now */
	sc_sleep_stir(futex_of(word)); /* P4 */
	/* P5 */
	(void)sc_cas_acq_rel_64(word, woken, woken & ~SC_ABI_SLEEP_FLAGS);
	(void)SC_FAULT("wake.cleared");
}

void sc_sleep_bump(uint32_t *futex)
{
	sc_add_acq_rel_32(futex, 1);
	sc_sleep_stir(futex);
}

bool sc_wake_join(void)
{
	return !SC_TRY("wake.join",
		       syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0));
}

/* ---- sleeping -------------------------------------------------------------------------------- */

void sc_sleep_arm(uint64_t *word, uint64_t who, struct sc_sleep *sleep)
{
	uint64_t old, armed;

	do { /* A1; a failed try is another's wake */
		old = sc_load_relaxed_64(word);
		armed = (old & ~(uint64_t)ARMINGS_LOW) + ONE_ARMING;
		armed |= ((uint32_t)old + ARMING_LOW) & ARMINGS_LOW;
		armed |= who;
	} while (!sc_cas_acq_rel_64(word, old, armed));
	(void)SC_FAULT("wake.armed");
	*sleep = (struct sc_sleep){ futex_of(word), (uint32_t)armed };
}

void sc_sleep_disarm(uint64_t *word)
{
	uint64_t old = sc_load_relaxed_64(word); /* a failed try is another wake, which has disarmed it */

	if (old & SC_ABI_SLEEP_FLAGS)
		(void)sc_cas_acq_rel_64(word, old, old & ~SC_ABI_SLEEP_FLAGS);
	(void)SC_FAULT("wake.disarmed");
}

bool sc_sleep_barrier(void)
{
	return !SC_TRY("wake.barrier", syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0));
}

static struct timespec *time_of(int64_t end, struct timespec *time)
{
	if (end == INT64_MAX)
		return NULL;
	*time = (struct timespec){ .tv_sec = end / 1000000000, .tv_nsec = end % 1000000000 };
	return time;
}

int sc_sleep(const struct sc_sleep *sleeps, int count, int64_t end)
{
	struct futex_waitv waits[SC_SLEEPS_MAX];
	struct timespec time, *limit = time_of(end, &time);
	long ret;

	if (count > SC_SLEEPS_MAX)
		return -ENOSYS;
	if (count == 1) {
		ret = SC_TRY("wake.wait", syscall(SYS_futex, sleeps->futex, FUTEX_WAIT_BITSET,
						  sleeps->seen, limit, NULL, FUTEX_BITSET_MATCH_ANY));
		return ret < 0 && errno != EAGAIN ? -errno : 0;
	}
	for (int i = 0; i < count; i++)
		waits[i] = (struct futex_waitv){ .val = sleeps[i].seen,
						 .uaddr = (uintptr_t)sleeps[i].futex,
						 .flags = FUTEX_32 };
	ret = SC_TRY("wake.waitv", syscall(SYS_futex_waitv, waits, count, 0, limit, CLOCK_MONOTONIC));
	if (ret < 0 && (errno == EPERM || errno == ENOSYS))
		return -ENOSYS; /* a system call filter does not know the call */
	return ret < 0 && errno != EAGAIN ? -errno : 0;
}
