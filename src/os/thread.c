/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread.c: starts threads of the core and of prov/. Any thread may call.
 *
 * The process registers for the barrier of sleepers first. The kernel does that in 20 us while the process has one
 * thread; later it waits for all processors, which takes 15 ms, and seconds on a loaded machine.
 */
#include "os/wake.h"

#include <signal.h>

int sc_thread_start(pthread_t *thread, size_t stack, void *(*body)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int err = pthread_attr_init(&attr);

	if (err)
		return -err;
	(void)sc_wake_join(); /* sc_ep_create() looks at the answer */
	if (stack)
		(void)pthread_attr_setstacksize(&attr, stack);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, &attr, body, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}
