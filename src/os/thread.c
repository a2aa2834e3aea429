/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread.c: starts threads of the core and of prov/. Any thread may call.
 *
 * The process registers for the barrier of sleepers first. The kernel does that in 20 us while the process has one
 * thread; later it waits for all processors, which takes 15 ms, and seconds on a loaded machine.
 *
 * glibc takes the thread-local variables of the program and of the libraries loaded with it out of each thread's stack.
 * They may be larger than the stack that a thread of the library needs, so the size grows by all that there are.
 */
#define _GNU_SOURCE 1
#include "os/wake.h"

#include <link.h>
#include <signal.h>
#include <unistd.h>

static int add_thread_locals(struct dl_phdr_info *object, size_t size, void *sum)
{
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &object->dlpi_phdr[i];

		if (header->p_type == PT_TLS)
			*(size_t *)sum += header->p_memsz + header->p_align;
	}
	return 0; /* go on */
}

static size_t with_thread_locals(size_t stack)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	(void)dl_iterate_phdr(add_thread_locals, &stack);
	return (stack + page - 1) / page * page;
}

int sc_thread_start(pthread_t *thread, size_t stack, void *(*body)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int err = pthread_attr_init(&attr);

	if (err)
		return -err;
	(void)sc_wake_join(); /* sc_ep_create() looks at the answer */
	if (stack)
		(void)pthread_attr_setstacksize(&attr, with_thread_locals(stack));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, &attr, body, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}
