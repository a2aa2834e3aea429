/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_oversub: the processes with endpoints that share the processors of one.
 *
 * Each answer is asked for by a process that has not asked before, as answers are kept for a while. All is in a
 * /dev/shm of its own: endpoints of other programs would count.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "os/addr.h"
#include "child.h"
#include "os/shmfile.h"

/* The first two processors that this program may use; the second is -1 if there is one alone. */
static int first = -1, second = -1;

static void find_processors(void)
{
	cpu_set_t all;

	assert_return_code(sched_getaffinity(0, sizeof(all), &all), 0);
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		if (first < 0)
			first = i;
		else if (second < 0)
			second = i;
	}
}

/* On that processor, or on both. */
static void run_on(int processor, int other)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	if (other >= 0)
		CPU_SET(other, &set);
	CHILD_CHECK(!sched_setaffinity(0, sizeof(set), &set));
}

static struct sc_ep *endpoint(void)
{
	struct sc_ep_attr attr = { .tx_size = 16, .rx_size = 16 };
	struct sc_ep *ep;

	sc_config_init(&attr.config);
	attr.config.slots = 16;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	return ep;
}

/* Has two endpoints until it is let go; `arg`: its processor. */
static void member(struct child *self, void *arg)
{
	struct sc_ep *one, *two;

	run_on(*(int *)arg, -1);
	one = endpoint();
	two = endpoint();
	child_tell(self, "here");
	child_wait(self);
	sc_ep_destroy(two);
	sc_ep_destroy(one);
	sc_process_fini();
}

struct question {
	int processor, other; /* -1: only the first */
};

static void ask(struct child *self, void *arg)
{
	const struct question *question = arg;
	struct sc_ep *ep;
	bool crowd;

	run_on(question->processor, question->other);
	ep = endpoint();
	crowd = sc_oversub_is_here();
	CHILD_CHECK(sc_oversub_is_here() == crowd);
	sc_ep_destroy(ep);
	sc_process_fini();
	child_tell(self, crowd ? "crowd" : "none");
}

/* Is there a crowd, to a process with an endpoint on these processors? */
static bool is_crowd(int processor, int other)
{
	struct question question = { processor, other };
	struct child child;

	assert_true(child_start(&child, ask, &question));
	assert_int_equal(child_reap(&child), 0);
	return !strcmp(child.line, "crowd");
}

static void let_go(struct child *child)
{
	assert_int_equal(write(child->down, "", 1), 1);
	assert_int_equal(child_reap(child), 0);
}

/* One is none, however many endpoints it has; nor is one with another on a processor of its own. */
static void test_none(void **state)
{
	struct child one;

	(void)state;
	assert_false(is_crowd(first, -1));
	if (second < 0)
		skip();
	assert_true(child_start(&one, member, &second));
	assert_false(is_crowd(first, -1));
	assert_false(is_crowd(first, second));
	let_go(&one);
}

/* Two on one processor are, three on two; it ends when one of them ends, be it that its names are still there. */
static void test_crowd(void **state)
{
	struct child one, two;

	(void)state;
	assert_true(child_start(&one, member, &first));
	assert_true(is_crowd(first, -1));
	if (second >= 0) {
		assert_true(child_start(&two, member, &second));
		assert_true(is_crowd(first, second));
		kill(two.pid, SIGKILL);
		child_reap(&two);
		assert_false(is_crowd(first, second));
	}
	let_go(&one);
	assert_false(is_crowd(first, -1));
}

static void end_at_once(struct child *self, void *arg)
{
	(void)self;
	(void)arg;
}

/* A name of a process that has ended, whose file no reaper removes: its mode is not one that this library gives. */
static void test_names_of_the_dead(void **state)
{
	struct sc_addr parts = { .uid = geteuid() };
	char path[SC_SHMFILE_PATH_MAX], name[SC_ADDR_NAME_MAX];
	struct child child;
	int fd;

	(void)state;
	child_spawn(&child, end_at_once, NULL);
	parts.pid = (uint32_t)child.pid;
	assert_int_equal(child_reap(&child), 0);
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
	assert_return_code(fd, errno);
	assert_return_code(fchmod(fd, 0644), errno);
	assert_return_code(close(fd), errno);
	assert_false(is_crowd(first, -1));
	assert_return_code(unlink(path), errno);
}

/* ---- felt ------------------------------------------------------------------------------------ */

/* Wants the processor until it is ended. */
static void computes(struct child *self, void *arg)
{
	run_on(*(int *)arg, -1);
	(void)endpoint();
	child_tell(self, "here");
	for (;;)
		atomic_signal_fence(memory_order_seq_cst);
}

static void feels(struct child *self, void *arg)
{
	run_on(*(int *)arg, -1);
	(void)endpoint();
	while (!sc_oversub_is_felt())
		;
	sc_process_fini();
	child_tell(self, "felt");
}

/* Another process needs the same processor at the same time. */
static void test_felt(void **state)
{
	struct child one, other;

	(void)state;
	assert_true(child_start(&one, computes, &first));
	assert_true(child_start(&other, feels, &first));
	assert_int_equal(child_reap(&other), 0);
	assert_string_equal(other.line, "felt");
	child_kill(&one);
}

static long switches(void)
{
	struct rusage usage;

	CHILD_CHECK(!getrusage(RUSAGE_SELF, &usage));
	return usage.ru_nivcsw;
}

/* Longer than a count stays, and without a processor: nobody can take that away. */
static void rest(void)
{
	struct timespec time = { .tv_nsec = 11000000 };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/* A count that stays the same says that nobody is in the way. */
static void has_it_alone(struct child *self, void *arg)
{
	bool crowd, felt = true;
	long before = 0, after = -1;

	run_on(*(int *)arg, -1);
	(void)endpoint();
	crowd = sc_oversub_is_here();
	while (after != before) {
		rest();
		before = switches();
		(void)sc_oversub_is_felt();
		rest();
		felt = sc_oversub_is_felt();
		after = switches();
	}
	sc_process_fini();
	child_tell(self, !crowd ? "no crowd" : felt ? "felt" : "not felt");
}

/* The process with the other endpoint sleeps. */
static void test_idle_crowd(void **state)
{
	struct child one, other;

	(void)state;
	assert_true(child_start(&one, member, &first));
	assert_true(child_start(&other, has_it_alone, &first));
	assert_int_equal(child_reap(&other), 0);
	let_go(&one);
	assert_string_equal(other.line, "not felt");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_names_of_the_dead),
		cmocka_unit_test(test_felt),
		cmocka_unit_test(test_idle_crowd),
	};

	if (!child_private_shm("size=64m,mode=1777")) {
		printf("SKIP: no /dev/shm of its own\n");
		return 77;
	}
	find_processors();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
