/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock.h: the core's clock, in place of src/base/clock.c, which a test can stop. While it is stopped, the core waits
 * without a limit where it else waits for SC_REG_WAIT_MS. So a test that holds the core up for a while passes on a busy
 * machine too.
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>
#include <shmcma/core.h>

static int64_t clock_stopped_at; /* 0: the clock goes. Atomic. */

int64_t sc_clock_ns(void)
{
	int64_t stopped_at = __atomic_load_n(&clock_stopped_at, __ATOMIC_RELAXED);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return stopped_at ? stopped_at : (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void clock_stop(void)
{
	__atomic_store_n(&clock_stopped_at, sc_clock_ns(), __ATOMIC_RELAXED);
}

static inline void clock_go_on(void)
{
	__atomic_store_n(&clock_stopped_at, 0, __ATOMIC_RELAXED);
}

#endif
