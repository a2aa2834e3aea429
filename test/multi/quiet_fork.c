/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * quiet_fork: in builds with a sanitizer, fork(2) while the core's thread has nothing in hand.
 *
 * glibc's allocator is made ready for fork(2). A sanitizer's is not: a child that is forked while another thread
 * is in it finds it locked for ever. The core's thread is in it now and then, when it looks around. So a fork
 * waits until that thread is in poll(2), and keeps it from coming out before the child is there.
 *
 * Linked into every test (-u in Makefile.am): there poll(2) is this one, for the provider as well.
 */
#define _GNU_SOURCE 1
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* The symbol by which the linker is asked for this file. */
extern const bool quiet_fork;
const bool quiet_fork = true;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held by who forks */
static pthread_cond_t all_asleep = PTHREAD_COND_INITIALIZER;
static int at_work; /* threads of the core that have come out of poll(2) */
static pthread_key_t working;

static bool is_of_core(void)
{
	char name[16] = "";

	return !pthread_getname_np(pthread_self(), name, sizeof(name)) && !strcmp(name, "shmcma-daemon");
}

static void go_to_sleep(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&gate);
	at_work--;
	pthread_cond_broadcast(&all_asleep);
	pthread_mutex_unlock(&gate);
}

/* Before its first poll(2) the thread allocates nothing, and does not count. */
__attribute__((visibility("default"))) int poll(struct pollfd *polls, nfds_t count, int milliseconds)
{
	struct timespec limit = { .tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L };
	bool of_core = is_of_core();
	int ready;

	if (of_core && pthread_getspecific(working)) {
		pthread_setspecific(working, NULL);
		go_to_sleep(NULL);
	}
	ready = ppoll(polls, count, milliseconds < 0 ? NULL : &limit, NULL);
	if (!of_core)
		return ready;
	pthread_mutex_lock(&gate);
	at_work++;
	pthread_mutex_unlock(&gate);
	pthread_setspecific(working, &working); /* if it ends before it comes again, go_to_sleep() is called */
	return ready;
}

static void before_fork(void)
{
	pthread_mutex_lock(&gate);
	while (at_work)
		pthread_cond_wait(&all_asleep, &gate);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&gate);
}

__attribute__((constructor)) static void quiet_fork_init(void)
{
	if (pthread_key_create(&working, go_to_sleep) || pthread_atfork(before_fork, after_fork, after_fork))
		__builtin_trap();
}
