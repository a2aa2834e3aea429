/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DAEMON_H
#define SC_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <shmcma/core.h>
#include "base/atomic.h"
#include "base/list.h"
#include "shm/seg.h"

/*
 * The daemon tells an endpoint by a count, which goes up when there is something to look at: a watch that says so, or,
 * after an orphan scan, claims of the dead in its segment. The daemon shows itself to peers by the word of life.
 * Embedded in the endpoint.
 */
struct sc_bell {
	struct sc_list all;
	struct sc_abi_presence *presence;
	uint64_t *sleep;    /* the endpoint's, see wake.h */
	uint64_t opened_by; /* sc_host_self(); forked children hear nothing */
	uint32_t rung;	    /* by the daemon */
	uint32_t heard;	    /* by the endpoint */
};

/* The process behind an attached segment, watched. Embedded in the peer. */
struct sc_watch {
	struct sc_list of_process;
	struct sc_daemon_process *process; /* NULL: not watched */
	const struct sc_seg *seg;
	struct sc_bell *bell;
	uint32_t ended; /* by the daemon: proven dead */
};

/*
 * Start the thread, unless it runs. Any thread. False: it does not run, now and maybe later (no thread, no
 * descriptor): an endpoint that polls looks after its peers by itself. Says why, once.
 */
bool sc_daemon_start(const struct sc_config *config);

/* Be rung from now on, and have the word of life in an own segment. Used by one thread at a time. */
void sc_bell_open(struct sc_bell *bell, struct sc_seg *seg);
/* Is there none yet? Then the segment to come is the first by which others see this process. */
bool sc_bell_is_first(void);
/* With no watch left that rings it, and before the segment is destroyed. */
void sc_bell_close(struct sc_bell *bell);

/* To be asked at each poll. */
static inline bool sc_bell_has_rung(const struct sc_bell *bell)
{
	/* relaxed: sc_bell_hear() orders what it tells of */
	return sc_load_relaxed_32(&bell->rung) != bell->heard;
}

static inline void sc_bell_hear(struct sc_bell *bell)
{
	/* D1' acquire: pairs with D1 in ring(): watches that have ended */
	bell->heard = sc_load_acquire_32(&bell->rung);
}

/*
 * Have the owner of an attached segment watched: ring `bell` once it is proven dead. Without memory, without
 * the thread, and for a segment of this process itself nothing is watched.
 */
void sc_watch_add(struct sc_watch *watch, const struct sc_seg *seg, struct sc_bell *bell);
/* To be called before the segment is detached; nothing if it is not watched, or in a forked child. */
void sc_watch_del(struct sc_watch *watch);

/* Proven dead: what sc_reap_owner_is_dead() says, also after its name has been removed. */
static inline bool sc_watch_has_ended(const struct sc_watch *watch)
{
	/* relaxed: the proof is in the kernel, and a process that has ended is no other's order to keep */
	return sc_load_relaxed_32(&watch->ended);
}

#endif
