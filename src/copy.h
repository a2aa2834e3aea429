/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy.h: memcpy(3) in one way for sure. The C library's goes over to the string instruction (rep movsb) at a size
 * that it takes from the processor (2112 bytes on x86-64 with AVX, see glibc.cpu.x86_rep_movsb_threshold), which is
 * right for memory of one processor. Lines that another has, or is to get, are a different matter, see fill.h.
 */
#ifndef SC_COPY_H
#define SC_COPY_H

#include <stddef.h>
#include <string.h>

/* Bytes that no C library leaves to a string instruction. */
#define SC_COPY_BLOCK 1024

/* By loads and stores of its widest registers. */
static inline void sc_copy_by_words(void *to_, const void *from_, size_t size)
{
	const char *from = from_;
	char *to = to_;

	for (; size > SC_COPY_BLOCK; size -= SC_COPY_BLOCK, to += SC_COPY_BLOCK, from += SC_COPY_BLOCK)
		memcpy(to, from, SC_COPY_BLOCK);
	memcpy(to, from, size);
}

/* By one string instruction, where there is one. */
static inline void sc_copy_by_string(void *to, const void *from, size_t size)
{
#ifdef __x86_64__
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
#else
	memcpy(to, from, size);
#endif
}

#endif
