/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PROCESS_H
#define SC_PROCESS_H

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <shmcma/core.h>
#include "base/list.h"
#include "os/addr.h"
#include "os/pidfd.h"
#include "os/pipe.h"
#include "proc/leftover.h"

enum sc_process_state { SC_PROCESS_ALONE, SC_PROCESS_WATCHES, SC_PROCESS_STOPS };

/* The state of a process that has a thread to watch others, see daemon.c. */
struct sc_process {
	pthread_mutex_t mutex; /* all but what the thread alone uses */
	enum sc_process_state state;
	pthread_t thread;
	struct sc_pipe pipe; /* wakes the thread */
	bool said;	     /* why it cannot be started */
	bool scans_ticks;    /* look through all names now and then, though nothing has happened */
	bool calibrates;     /* measure what is the machine's */

	struct sc_list bells; /* bell.c */
	uint32_t tid;	      /* for words of life; 0: none, or not yet */
	struct robust_list_head lives;
	int lives_count;

	struct sc_list watched; /* watch.c: processes that peers belong to; first those of which no pidfd has been asked for */
	int64_t gathers;	/* when those that have come are gathered; 0: no process has come since */
	int64_t gathered;	/* when they were the last time, or this process came */
	int64_t sleeps;		/* so long, at the most, the thread sleeps in poll(2) */

	/* The thread's own. Times in ms of CLOCK_MONOTONIC, which no change of the clock moves. */
	struct pollfd polls[1 + SC_PIDFDS_MAX]; /* the pipe, then as in pidfd.c */
	nfds_t polled;				/* so many of them are */
	bool locks;				/* some process's locks are to be polled */
	int64_t tick, scan;			/* when the next one is due; 0: no scan but with the tick */
	int64_t look;				/* likewise, for processes that have ended */
	int64_t calibration;			/* likewise */
	int scans;				/* left to do after a death */
	struct sc_leftovers leftovers;
	char dead[SC_ADDR_NAME_MAX]; /* a name to remove */
	int dead_count;		     /* there are so many */
};

extern struct sc_process sc_process;

/* To be called before the lists are used. Any thread. False: forked children cannot be told from this process. */
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

/* False: the thread wakes when its time has come, or by the hanging up, unless a child has that end too. */
bool sc_process_wake_locked(void);

#endif
