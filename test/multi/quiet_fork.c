/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * quiet_fork: in builds with a sanitizer, fork(2) while the core's thread has nothing in hand, and none begins.
 *
 * glibc's allocator is made ready for fork(2). A sanitizer's is not: a child that is forked while another thread
 * is in it finds it locked for ever. The daemon thread of the core is in it now and then, when it looks around. So a
 * fork waits until that thread is in poll(2), and keeps it there until the child exists. A thread that begins is in the
 * allocator too, before it runs its function: the sanitizer asks pthread_getattr_np(3) for its stack.
 *
 * Linked into every test (-u in Makefile.am): there poll(2) and pthread_create(3) are these, for the provider as well.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The symbol by which the linker is asked for this file. */
extern const bool quiet_fork;
const bool quiet_fork = true;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held by a thread that forks */
static pthread_cond_t all_asleep = PTHREAD_COND_INITIALIZER;
static int at_work; /* threads of the core that have come out of poll(2), and any that begin */
static pthread_key_t working;

static bool is_of_core(void)
{
	char name[16] = "";

	return !pthread_getname_np(pthread_self(), name, sizeof(name)) && !strcmp(name, "shmcma-daemon");
}

static void come_to_work(void)
{
	pthread_mutex_lock(&gate);
	at_work++;
	pthread_mutex_unlock(&gate);
}

static void go_to_sleep(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&gate);
	at_work--;
	pthread_cond_broadcast(&all_asleep);
	pthread_mutex_unlock(&gate);
}

typedef int create_fn(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *), void *arg);

/* The sanitizer's, where it is linked into the program; where it is a library it is the next in line. */
extern create_fn __interceptor_pthread_create __attribute__((weak));

struct beginning {
	void *(*body)(void *);
	void *arg;
};

static void *begin(void *beginning_)
{
	struct beginning beginning = *(struct beginning *)beginning_;

	free(beginning_);
	go_to_sleep(NULL);
	return beginning.body(beginning.arg);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
							  void *(*body)(void *), void *arg)
{
	create_fn *create = __interceptor_pthread_create;
	struct beginning *beginning = malloc(sizeof(*beginning));
	int err;

	if (!beginning)
		return EAGAIN;
	*beginning = (struct beginning){ body, arg };
	if (!create)
		*(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
	come_to_work();
	err = create(thread, attr, begin, beginning);
	if (!err)
		return 0;
	free(beginning);
	go_to_sleep(NULL);
	return err;
}

/* From its begin to its first poll(2) the thread allocates nothing, and does not count. */
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
	come_to_work();
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
