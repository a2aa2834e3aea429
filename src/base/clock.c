/* SPDX-License-Identifier: BSD-2-Clause */
/* clock.c: the time, for callers that wait. Any thread, also in a forked child. */
#include <shmcma/core.h>

#include <time.h>

int64_t sc_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
