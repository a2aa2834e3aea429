/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pattern.c: makes each pattern eight bytes at a time; pattern.h says what it is for.
 *
 * A sanitizer, which would take many times as long if it saw each byte, sees the calls that move and compare pieces, but
 * not how a piece is made.
 */
#include "pattern.h"

#include <string.h>

#define PIECE 1024

/* A piece of a pattern. It begins up to 7 bytes behind the start of the first word. */
struct piece {
	uint64_t words[PIECE / 8 + 1];
};

/* Returns where bytes [offset, offset + len) are, len <= PIECE. No two places and no two seeds are alike. */
__attribute__((no_sanitize_address, no_sanitize_thread)) static const uint8_t *
piece_make(struct piece *piece, size_t offset, size_t len, uint64_t seed)
{
	uint64_t key = (seed + 1) * 0x9e3779b97f4a7c15u;
	size_t skip = offset % 8, count = (skip + len + 7) / 8;

	for (size_t i = 0; i < count; i++) {
		uint64_t word = key + (offset / 8 + i) * 0xd6e8feb86659fd93u;

		piece->words[i] = word ^ word >> 32;
	}
	return (const uint8_t *)piece->words + skip;
}

void pattern_fill(void *buf, size_t offset, size_t len, uint64_t seed)
{
	struct piece piece;
	size_t part;

	for (size_t i = 0; i < len; i += part) {
		part = len - i < PIECE ? len - i : PIECE;
		memcpy((uint8_t *)buf + i, piece_make(&piece, offset + i, part, seed), part);
	}
}

ssize_t pattern_differs(const void *buf, size_t offset, size_t len, uint64_t seed)
{
	struct piece piece;
	size_t part;

	for (size_t i = 0; i < len; i += part) {
		const uint8_t *is = (const uint8_t *)buf + i, *should;
		size_t j = 0;

		part = len - i < PIECE ? len - i : PIECE;
		should = piece_make(&piece, offset + i, part, seed);
		if (!memcmp(is, should, part))
			continue;
		while (is[j] == should[j])
			j++;
		return (ssize_t)(i + j);
	}
	return -1;
}
