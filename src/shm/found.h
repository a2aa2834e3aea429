/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_FOUND_H
#define SC_FOUND_H

#include <stdatomic.h>
#include "shm/seg.h"

/* Keeps a found segment, whose descriptor is counted; discards it if there is no place. */
void sc_found_add(struct sc_seg *seg);
void sc_found_discard(struct sc_seg *seg);

/* Returns the segment found under that address, if it has not changed; the caller owns it. */
struct sc_seg *sc_found_take(const char *addr);

/* Close the segments that were found and not attached: at once; if the first was found long ago (FOUND_MS). */
void sc_found_forget(void);
void sc_found_forget_slow(void);

/* Called now and then. */
static inline void sc_found_forget_late(void)
{
	/* relaxed: a count that is seen late is seen at the next call */
	if (__builtin_expect(atomic_load_explicit(&sc_segs.found_count, memory_order_relaxed) != 0, 0))
		sc_found_forget_slow();
}

#endif
