/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * process.c: the state of this process among others, in one place: the only instance of struct sc_process, and what a
 * forked child makes of its copy. A test program that ends one life and begins another sets it to its first value.
 *
 * The child has no thread, and its copies of endpoints are of no use. It watches none of the processes that its parent
 * watches. Lists may be half changed in it: it takes none apart, and begins anew.
 *
 * Nothing here is seen by another process.
 */
#define _GNU_SOURCE 1
#include "proc/process.h"

#include "base/fault.h"

struct sc_process sc_process = { .mutex = PTHREAD_MUTEX_INITIALIZER, .pipe = SC_PIPE_NONE };

/* By forked children, which leave it alone; so that it is no leak. */
static struct {
	struct sc_list watched;
	uint32_t *pids;
} inherited[8];
static unsigned int forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool can_fork;

static void init_lists(void)
{
	sc_process.lives.list.next = &sc_process.lives.list;
	sc_list_init(&sc_process.watched);
	sc_list_init(&sc_process.bells);
}

static void atfork_child(void)
{
	unsigned int at = forks++ % (sizeof(inherited) / sizeof(inherited[0]));

	sc_pidfds_inherited();
	sc_pipe_close(&sc_process.pipe);
	inherited[at].watched = sc_process.watched;
	inherited[at].pids = sc_process.leftovers.pids;
	sc_process = (struct sc_process){ .mutex = PTHREAD_MUTEX_INITIALIZER,
					  .pipe = SC_PIPE_NONE,
					  .said = sc_process.said };
	init_lists();
}

static void begin_once(void)
{
	init_lists();
	can_fork = !SC_TRY("process.atfork", pthread_atfork(NULL, NULL, atfork_child));
}

bool sc_process_begin(void)
{
	pthread_once(&once, begin_once);
	return can_fork;
}

bool sc_process_wake_locked(void)
{
	if (sc_pipe_ring(&sc_process.pipe))
		return true;
	sc_pipe_hang_up(&sc_process.pipe);
	return false;
}
