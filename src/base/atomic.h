/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * atomic.h: C11 atomics on plain words of shared memory, with the order in the name.
 *
 * Words of abi.h are plain integers, so that the layout does not depend on _Atomic; every access to one
 * that another process may touch at the same time goes through here.
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

/* Have the line at that address brought here, to be written: nobody else has it then. Only a hint. */
static inline void sc_fetch_to_write(const void *line)
{
#ifdef __x86_64__
	/* no compiler emits it unless told that the processor has it; older processors execute it as no operation */
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* Between a store and a load of different words that must not change places: a full fence. */
static inline void sc_fence_seq_cst(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* where a test lets the other side's store become visible: the load that follows must find it */
	(void)SC_FAULT("atomic.fence");
}

#endif
