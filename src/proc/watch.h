/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_WATCH_H
#define SC_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "base/atomic.h"
#include "base/list.h"
#include "proc/bell.h"
#include "shm/seg.h"

/* The watch on the owner of an attached segment. Embedded in the peer. */
struct sc_watch {
	struct sc_list of_process;
	struct sc_watched *process; /* NULL: not watched */
	const struct sc_seg *seg;
	struct sc_bell *bell;
	uint32_t ended; /* the daemon's thread has proven the death */
};

/*
 * Watches the owner of an attached segment: the daemon's thread rings `bell` when it has proven the owner's death. Does
 * nothing without memory or without the thread, nor for a segment of this process.
 */
void sc_watch_add(struct sc_watch *watch, const struct sc_seg *seg, struct sc_bell *bell);
/*
 * Ends the watch, before the caller detaches the segment; tells the thread if the caller has proven the death, so that
 * it removes the name. Does nothing without a watch, or in a forked child.
 */
void sc_watch_del(struct sc_watch *watch);

/* Tells whether the owner is proven dead (sc_owner_is_dead()), also after the removal of its name. */
static inline bool sc_watch_has_ended(const struct sc_watch *watch)
{
	/* relaxed: the proof is in the kernel, and a process that has ended writes nothing that needs an order */
	return sc_load_relaxed_32(&watch->ended);
}

/* ---- for the daemon's thread ------------------------------------------------------------------ */

/* Tells whether only the life locks can show the death of some watched process. */
bool sc_watches_need_locks_locked(void);
/* After poll(2): checks the processes with an event and those without pidfd; `all`: every process. */
void sc_watches_look_locked(bool all);
/* Opens pidfds again that the application has closed, or for which no descriptor was free. */
void sc_watches_repair_locked(void);
/* Opens pidfds of new processes, if that is due. */
void sc_watches_gather(void);
/* Removes the files of processes that were found dead. False: there are none. */
bool sc_watches_reap(void);

#endif
