/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PROCESS_H
#define SC_PROCESS_H

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <shmcma/core.h>
#include "base/list.h"
#include "os/addr.h"
#include "os/pidfd.h"
#include "os/pipe.h"
#include "proc/leftover.h"

enum sc_process_state { SC_PROCESS_ALONE, SC_PROCESS_WATCHES, SC_PROCESS_STOPS };

/* The state of this process for the thread that watches other processes, see daemon.c. */
struct sc_process {
	pthread_mutex_t mutex; /* protects all but the last three parts */
	enum sc_process_state state;
	pthread_t thread;
	struct sc_pipe pipe; /* wakes the thread */
	bool said;	     /* the log says why the thread cannot start; a forked child keeps it */
	bool scans_ticks;    /* scan all names now and then, without a death */
	bool calibrates;     /* measure the machine if it has no calibration */

	struct sc_list bells; /* bell.c */
	uint32_t tid;	      /* for words of life; 0: none, or not yet known */
	struct robust_list_head lives;
	int lives_count;

	struct sc_list watched; /* watch.c: processes of peers; first those that are not gathered yet */
	int64_t gathers;	/* time of the next gathering; 0: no process has come since the last */
	int64_t gathered;	/* time of the last gathering, or of the start of the thread */
	char dead[SC_ADDR_NAME_MAX]; /* watch.c: a name to remove */
	int dead_count;		     /* names to remove; 2 or more: by a scan */
	struct sc_list rescues;	     /* rescue.c */
	uint32_t rescue_looks;	/* the thread looks at them; also read without the lock */
	int rescue_idle;	/* looks without a new put */
	int64_t sleeps;		/* the thread sleeps in poll(2) until this time at most */

	/* oversub.c; any thread, without the lock. Times: ns of CLOCK_MONOTONIC, 0: none yet. */
	struct {
		uint64_t first_look, next_look;
		uint64_t least_next; /* the next look is not before this time */
		uint32_t answer;
	} oversub;

	/* Fields of the thread alone. All times: ms of CLOCK_MONOTONIC. */
	struct pollfd polls[1 + SC_PIDFDS_MAX]; /* the pipe, then the places of pidfd.c */
	nfds_t polled;				/* number of polls in use */
	bool locks;				/* the thread polls life locks of some processes */
	int64_t tick, scan;			/* times of the next; scan 0: only with a tick */
	int64_t look;				/* time of the next look for leftovers; 0: none */
	int64_t calibration;			/* time of the calibration; 0: none */
	int scans;				/* left to do after a death */
	struct sc_leftovers leftovers;

	/* A forked child keeps this part. */
	struct {
		pthread_once_t once;
		bool can_fork;
		/*
		 * The calibration that this process knows: cma_start in the high half, cma_per_kib in the low half; 0:
		 * none. Any thread. Relaxed: no other data goes with this word.
		 */
		atomic_uint_least64_t costs;
		/* Memory of ancestors that a child does not free. These pointers keep it from being a leak. */
		struct {
			struct sc_list watched;
			struct sc_leftover *leftovers;
		} inherited[8];
		unsigned int forks;
	} kept;
};

extern struct sc_process sc_process;

/* Makes the lists ready for use. Any thread. False: a fork has no handler, so children keep this process's state. */
bool sc_process_begin(void);

static inline int64_t sc_process_now_ms(void)
{
	return sc_clock_ns() / 1000000;
}

static inline void sc_process_lock(void)
{
	pthread_mutex_lock(&sc_process.mutex);
}

static inline void sc_process_unlock(void)
{
	pthread_mutex_unlock(&sc_process.mutex);
}

/* Wakes the thread. False: the pipe is lost; the hang-up wakes the thread, unless a child has that end open, too. */
bool sc_process_wake_locked(void);

#endif
