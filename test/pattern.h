/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pattern.h: the payloads that tests send and compare. The bytes of a pattern follow from its seed alone, so a receiver
 * makes for itself what the sender has sent.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes the bytes [offset, offset + len) of the pattern of `seed` to `buf`. */
void pattern_fill(void *buf, size_t offset, size_t len, uint64_t seed);

/* Returns the index in `buf` of the first byte that differs from the pattern, or -1. */
ssize_t pattern_differs(const void *buf, size_t offset, size_t len, uint64_t seed);

static inline bool pattern_is(const void *buf, size_t offset, size_t len, uint64_t seed)
{
	return pattern_differs(buf, offset, len, seed) < 0;
}

#endif
