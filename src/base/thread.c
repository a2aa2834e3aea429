/* SPDX-License-Identifier: BSD-2-Clause */
/* thread.c: starts threads of the core and of prov/. Any thread may call. */
#include <shmcma/core.h>

#include <signal.h>

int sc_thread_start(pthread_t *thread, size_t stack, void *(*body)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int err = pthread_attr_init(&attr);

	if (err)
		return -err;
	if (stack)
		(void)pthread_attr_setstacksize(&attr, stack);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, &attr, body, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}
