/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_WATCH_H
#define SC_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "base/atomic.h"
#include "base/list.h"
#include "proc/bell.h"
#include "shm/seg.h"

/* The process behind an attached segment, watched. Embedded in the peer. */
struct sc_watch {
	struct sc_list of_process;
	struct sc_watched *process; /* NULL: not watched */
	const struct sc_seg *seg;
	struct sc_bell *bell;
	uint32_t ended; /* by the daemon: proven dead */
};

/*
 * Have the owner of an attached segment watched: ring `bell` once it is proven dead. Without memory, without
 * the thread, and for a segment of this process itself nothing is watched.
 */
void sc_watch_add(struct sc_watch *watch, const struct sc_seg *seg, struct sc_bell *bell);
/* To be called before the segment is detached; nothing if it is not watched, or in a forked child. */
void sc_watch_del(struct sc_watch *watch);

/* Proven dead: what sc_owner_is_dead() says, also after its name has been removed. */
static inline bool sc_watch_has_ended(const struct sc_watch *watch)
{
	/* relaxed: the proof is in the kernel, and a process that has ended is no other's order to keep */
	return sc_load_relaxed_32(&watch->ended);
}

/* ---- for the daemon's thread ------------------------------------------------------------------ */

/* Is there a process that nothing but its life locks tells of? */
bool sc_watches_need_locks_locked(void);
/* After poll(2): look at the processes that it tells of, and at those; `all`: at each. */
void sc_watches_look_locked(bool all);
/* Open again pidfds that the application has closed, or that there was no room for. */
void sc_watches_repair_locked(void);
/* Open pidfds of processes that have come, if that is due. */
void sc_watches_gather(void);
/* Remove what those have left that have been found dead. False: there are none. */
bool sc_watches_reap(void);

#endif
