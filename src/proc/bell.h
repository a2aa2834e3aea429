/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_BELL_H
#define SC_BELL_H

#include <stdbool.h>
#include <stdint.h>
#include "base/atomic.h"
#include "base/list.h"
#include "shm/seg.h"

/*
 * By a bell, a count, the daemon's thread tells an endpoint to look: at a watch whose process has ended, or, after a
 * scan, at claims of dead processes in the endpoint's segment. The bell also has the word of life that peers see.
 * Embedded in the endpoint.
 */
struct sc_bell {
	struct sc_list all;
	struct sc_abi_presence *presence; /* of the word of life; NULL: there is no such word */
	uint64_t *sleep;		  /* sleep word of the endpoint, see wake.h */
	uint64_t opened_by; /* sc_host_self(); forked children hear nothing */
	uint32_t rung;	    /* by the daemon's thread */
	uint32_t heard;	    /* by the endpoint */
};

/* Opens the bell, and starts the word of life in the endpoint's segment. One thread at a time uses a bell. */
void sc_bell_open(struct sc_bell *bell, struct sc_seg *seg);
/* Tells whether no bell is open: other processes see no segment of this process yet. */
bool sc_bell_is_first(void);
/* Closes the bell, after the watches that ring it and before the segment. */
void sc_bell_close(struct sc_bell *bell);

static inline bool sc_bell_has_rung(const struct sc_bell *bell)
{
	/* relaxed: sc_bell_hear() orders the reads that follow */
	return sc_load_relaxed_32(&bell->rung) != bell->heard;
}

static inline void sc_bell_hear(struct sc_bell *bell)
{
	/* D1' acquire: pairs with D1 in sc_bell_ring(): marks of watches */
	bell->heard = sc_load_acquire_32(&bell->rung);
}

/* ---- for the daemon's thread, and watch.c, with the process locked ---------------------------- */

/* Tells the endpoint to look; wakes a sleeper. */
void sc_bell_ring(struct sc_bell *bell);

/* ---- for the daemon's thread ------------------------------------------------------------------ */

void sc_bells_ring_all(void);
/* The daemon's thread calls these first and last: all words of life get its tid, or 0. */
void sc_lives_begin(void);
void sc_lives_end(void);

#endif
