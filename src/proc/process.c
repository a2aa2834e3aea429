/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * process.c: the only instance of struct sc_process, and what a forked child does with its copy. A test program that
 * starts the library anew sets the instance, but not its part `kept`, to its first value.
 *
 * A forked child has no daemon's thread, cannot use its copies of endpoints, and watches none of its parent's peers.
 * Its lists may be half changed: it does not walk them, and begins with empty ones.
 *
 * No other process sees this state.
 */
#define _GNU_SOURCE 1
#include "proc/process.h"

#include "base/fault.h"

struct sc_process sc_process = { .mutex = PTHREAD_MUTEX_INITIALIZER,
				 .pipe = SC_PIPE_NONE,
				 .kept.once = PTHREAD_ONCE_INIT };

static void init_lists(void)
{
	sc_process.lives.list.next = &sc_process.lives.list;
	sc_list_init(&sc_process.watched);
	sc_list_init(&sc_process.bells);
	sc_list_init(&sc_process.rescues);
}

static void atfork_child(void)
{
	size_t count = sizeof(sc_process.kept.inherited) / sizeof(sc_process.kept.inherited[0]);
	unsigned int at = sc_process.kept.forks++ % count;

	sc_pidfds_inherited();
	sc_pipe_close(&sc_process.pipe);
	sc_process.kept.inherited[at].watched = sc_process.watched;
	sc_process.kept.inherited[at].leftovers = sc_process.leftovers.processes;
	sc_process = (struct sc_process){ .mutex = PTHREAD_MUTEX_INITIALIZER,
					  .pipe = SC_PIPE_NONE,
					  .said = sc_process.said,
					  .kept = sc_process.kept };
	init_lists();
}

static void begin_once(void)
{
	init_lists();
	sc_process.kept.can_fork = !SC_TRY("process.atfork", pthread_atfork(NULL, NULL, atfork_child));
}

bool sc_process_begin(void)
{
	pthread_once(&sc_process.kept.once, begin_once);
	return sc_process.kept.can_fork;
}

bool sc_process_wake_locked(void)
{
	if (sc_pipe_ring(&sc_process.pipe))
		return true;
	sc_pipe_hang_up(&sc_process.pipe);
	return false;
}
