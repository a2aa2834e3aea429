/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy.h: memcpy(3) in one way for sure. The C library's goes over to the string instruction (rep movsb) at a size
 * that it takes from the processor (2112 bytes on x86-64 with AVX, see glibc.cpu.x86_rep_movsb_threshold), which is
 * right for memory of one processor. Lines that another has, or is to get, are a different matter, see fill.h.
 */
#ifndef SC_COPY_H
#define SC_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes that no C library leaves to a string instruction. */
#define SC_COPY_BLOCK 1024

/*
 * By loads and stores of the processor's widest registers. The code hides the length of a block from the compiler: of 1
 * KiB gcc makes a string instruction of its own, rep movsq (docs/MEASUREMENTS.md, "Copies by words").
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
 * Does a copy load, sooner or later, what it has just stored to, as far as the lower 12 bits of an address tell? Processors
 * take such a load to wait for the store (docs/MEASUREMENTS.md, "Copies a few bytes beyond a page"). A block that malloc(3)
 * has mapped begins 16 bytes into a page, a bounce buffer with one.
 */
static inline bool sc_copy_is_aliased(const void *to, const void *from)
{
	return ((uintptr_t)to - (uintptr_t)from) % 4096 - 1 < 31;
}

#define SC_COPY_BACK_BLOCK 256

/* From the end on, in blocks: each load then lies before all earlier stores. */
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
