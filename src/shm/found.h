/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_FOUND_H
#define SC_FOUND_H

#include <stdatomic.h>
#include "shm/seg.h"

#define SC_FOUND_MAX 256

/* Segments that this process has created: without any, nobody closes what has been found. */
extern atomic_uint sc_found_owners;

/* Keep one, whose descriptor is counted; or there is no place for it, and it is discarded. */
void sc_found_add(struct sc_seg *seg);
void sc_found_discard(struct sc_seg *seg);

/* The segment that was found under that address, if it is still the same; the caller owns it. */
struct sc_seg *sc_found_take(const char *addr);

/* Close what has been found and not been attached: all, or if the first of it was found a while ago. */
void sc_found_forget(void);
void sc_found_forget_slow(void);

extern atomic_uint sc_found_count; /* how many there are */

/* To be called now and then. */
static inline void sc_found_forget_late(void)
{
	/* relaxed: if it is seen late, it is the next time */
	if (__builtin_expect(atomic_load_explicit(&sc_found_count, memory_order_relaxed) != 0, 0))
		sc_found_forget_slow();
}

/* In a forked child, which is alone. */
void sc_found_fork_child(void);

#endif
