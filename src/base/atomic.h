/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * atomic.h: C11 atomics on plain words of shared memory, with the memory order in the name.
 *
 * The words of abi.h are plain integers, so that the layout does not depend on _Atomic. Every access to a word that
 * another process may access at the same time goes through these functions.
 */
#ifndef SC_ATOMIC_H
#define SC_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>
#include "base/fault.h"

#define SC_ATOMIC_WORD(bits)                                                                              \
	static inline uint##bits##_t sc_load_relaxed_##bits(const uint##bits##_t *word)                   \
	{                                                                                                 \
		return __atomic_load_n(word, __ATOMIC_RELAXED);                                           \
	}                                                                                                 \
	static inline uint##bits##_t sc_load_acquire_##bits(const uint##bits##_t *word)                   \
	{                                                                                                 \
		return __atomic_load_n(word, __ATOMIC_ACQUIRE);                                           \
	}                                                                                                 \
	static inline void sc_store_relaxed_##bits(uint##bits##_t *word, uint##bits##_t value)            \
	{                                                                                                 \
		__atomic_store_n(word, value, __ATOMIC_RELAXED);                                          \
	}                                                                                                 \
	static inline void sc_store_release_##bits(uint##bits##_t *word, uint##bits##_t value)            \
	{                                                                                                 \
		__atomic_store_n(word, value, __ATOMIC_RELEASE);                                          \
	}                                                                                                 \
	static inline uint##bits##_t sc_add_acq_rel_##bits(uint##bits##_t *word, uint##bits##_t value)    \
	{                                                                                                 \
		return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);                                 \
	}                                                                                                 \
	static inline bool sc_cas_acq_rel_##bits(uint##bits##_t *word, uint##bits##_t expected,           \
						 uint##bits##_t desired)                                  \
	{                                                                                                 \
		return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL,     \
						   __ATOMIC_ACQUIRE);                                     \
	}

SC_ATOMIC_WORD(8)
SC_ATOMIC_WORD(16)
SC_ATOMIC_WORD(32)
SC_ATOMIC_WORD(64)

/* Prefetches the line at that address for writing: other processors lose their copies. Only a hint. */
static inline void sc_fetch_to_write(const void *line)
{
#ifdef __x86_64__
	/* compilers emit prefetchw only for processors that have it; older processors execute it as no operation */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* A full fence: a store before it and a load of another word after it do not change places. */
static inline void sc_fence_seq_cst(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* a test lets the other side's store become visible here: the load that follows must find it */
	(void)SC_FAULT("atomic.fence");
}

#endif
