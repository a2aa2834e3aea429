/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy.h: copies by known instructions. From a size on, memcpy(3) of the C library uses the string instruction (rep
 * movsb; from 2112 bytes on x86-64 with AVX, see glibc.cpu.x86_rep_movsb_threshold). That is right for memory that one
 * processor uses, but not for lines that another processor has or gets next, see fill.h.
 */
#ifndef SC_COPY_H
#define SC_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Up to this many bytes no C library uses a string instruction. */
#define SC_COPY_BLOCK 1024

/*
 * Copies by loads and stores of the widest registers. The code hides the length of a block from the compiler: gcc makes
 * a string instruction, rep movsq, of a copy of 1 KiB (docs/MEASUREMENTS.md, "Copies by words").
 */
static inline void sc_copy_by_words(void *to_, const void *from_, size_t size)
{
	const char *from = from_;
	size_t block = SC_COPY_BLOCK;
	char *to = to_;

	__asm__("" : "+r"(block));
	for (; size > SC_COPY_BLOCK; size -= SC_COPY_BLOCK, to += SC_COPY_BLOCK, from += SC_COPY_BLOCK)
		memcpy(to, from, block);
	memcpy(to, from, size);
}

/*
 * Tells whether a copy loads from where it has just stored to, by the lower 12 bits of the addresses. Processors let
 * such a load wait for the store (docs/MEASUREMENTS.md, "Copies a few bytes beyond a page"). A block that malloc(3) has
 * mapped begins 16 bytes into a page, a bounce buffer at its start.
 */
static inline bool sc_copy_is_aliased(const void *to, const void *from)
{
	return ((uintptr_t)to - (uintptr_t)from) % 4096 - 1 < 31;
}

#define SC_COPY_BACK_BLOCK 256

/* Copies from the end on, in blocks: each load is at a lower address than all earlier stores. */
static inline void sc_copy_backwards(void *to_, const void *from_, size_t size)
{
	const char *from = from_;
	char *to = to_;

	while (size > SC_COPY_BACK_BLOCK) {
		size -= SC_COPY_BACK_BLOCK;
		memcpy(to + size, from + size, SC_COPY_BACK_BLOCK);
	}
	memcpy(to, from, size);
}

#endif
