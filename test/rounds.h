/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rounds.h: how much the long tests do. Few rounds are for every commit; all of them are for the full tests, which set
 * SHMCMA_TEST_FULL (test/parts.sh).
 */
#ifndef ROUNDS_H
#define ROUNDS_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool rounds_are_full(void)
{
	const char *full = getenv("SHMCMA_TEST_FULL");

	return full && *full;
}

static inline unsigned int rounds_of(unsigned int all, unsigned int few)
{
	return rounds_are_full() ? all : few;
}

#endif
