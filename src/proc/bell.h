/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_BELL_H
#define SC_BELL_H

#include <stdbool.h>
#include <stdint.h>
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
	/* D1' acquire: pairs with D1 in sc_bell_ring(): watches that have ended */
	bell->heard = sc_load_acquire_32(&bell->rung);
}

/* ---- for the daemon's thread, and watch.c, with the process locked ---------------------------- */

/* There is something to look at. */
void sc_bell_ring(struct sc_bell *bell);

/* ---- for the daemon's thread ------------------------------------------------------------------ */

void sc_bells_ring_all(void);
/* The thread has begun: it is the one of the words of life. It ends. */
void sc_lives_begin(void);
void sc_lives_end(void);

#endif
