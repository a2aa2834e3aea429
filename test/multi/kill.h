/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kill.h: what the conductor of test_kill and its workers tell each other, in memory that all of them see.
 *
 * A worker is named by its slot, 0 to workers - 1, and its incarnation, from 1 on: the conductor starts
 * another incarnation in a slot when the last one has ended. Each word has one writer.
 */
#ifndef KILL_H
#define KILL_H

#include "multi.h"

#define KILL_SLOTS 16
#define KILL_KEPT 64 /* incarnations of a slot of which something is remembered */
#define KILL_NEWEST 8
#define KILL_ERRORS 256
#define KILL_SAMPLES (1 << 18)

/* How a worker ends. All but the first two are its own doing. */
enum kill_way {
	KILL_NONE,
	KILL_SIGNAL,  /* SIGKILL */
	KILL_STOPPED, /* the same while it is stopped */
	KILL_EXIT,    /* exit() with everything open */
	KILL_ABRUPT,  /* _exit() */
	KILL_EXEC,    /* another program takes its place, which lives on for a moment */
	KILL_CLOSE,   /* in good order, with operations under way */
	KILL_WAYS
};

enum kill_phase { KILL_RUN, KILL_DRAIN, KILL_LEAVE };

struct kill_place {
	uint64_t key, addr;
};

struct kill_slot {
	/* the worker's: valid when `up` is the same before and after reading */
	_Alignas(64) _Atomic uint64_t up; /* incarnation whose address this is; 0: changing */
	char address[MT_NAME_SIZE];
	struct kill_place gallery; /* to be read: bytes of a pattern */
	struct kill_place yard;	   /* one piece for each other slot: puts and atomics */
	/* messages to each slot that have completed here, by incarnation of this one */
	_Atomic uint64_t sent[KILL_KEPT][KILL_SLOTS];
	_Atomic uint64_t newest[KILL_KEPT][KILL_SLOTS][KILL_NEWEST]; /* of those, for reports */
	_Atomic uint64_t drained; /* incarnation that has nothing under way any more */
	_Atomic uint64_t steps, messages, bytes, puts, gets, atomics, stopped_checks;
	_Atomic uint64_t failed_ops, refused_posts, deaths_seen, lost;

	/* the conductor's */
	_Alignas(64) _Atomic uint64_t doomed; /* incarnation that may be dead */
	_Atomic uint64_t ended;		      /* incarnation that has ended, at `ended_at` */
	_Atomic uint64_t ended_at;	      /* ns, CLOCK_MONOTONIC; 0: cannot be said */
	_Atomic uint64_t order;		      /* enum kill_way of the present one, for itself to do */
	_Atomic uint64_t stopped;	      /* is stopped */
	_Atomic uint64_t resumed_at;	      /* ns: the last time that it was continued; 0: never */
};

/* How long a survivor took to hear of the end of a process, ns. */
struct kill_sample {
	int64_t error;	/* from the end to the first error of an operation that was in flight to it */
	int64_t unseen; /* of that, before the last poll that had nothing began: the rest it did not poll */
};

struct kill_board {
	int workers;
	uint64_t seed;
	bool automatic;
	double share;	 /* of a processor that a worker may use; 0: all that it gets */
	double patience; /* seconds after which something hangs */
	_Atomic uint64_t phase;
	struct kill_slot slots[KILL_SLOTS];
	_Atomic uint64_t errors[KILL_ERRORS]; /* completions with that error */
	_Atomic uint64_t sample_count;
	struct kill_sample samples[KILL_SAMPLES];
};

uint64_t kill_now(void);

/* A worker's life, in a process that has not called libfabric yet; returns when all are to leave. */
void kill_worker(struct kill_board *board, int slot, uint64_t incarnation);

#endif
