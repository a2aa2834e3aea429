/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_oversub: the processes with endpoints that share the processors of one.
 *
 * Each answer is asked for by a process that has not asked before, as answers are kept for a while. All is in a
 * /dev/shm of its own: endpoints of other programs would count.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "os/addr.h"
#include "child.h"
#include "os/shmfile.h"
#include "proc/oversub.h"
#include "proc/process.h"

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

static void run_until_let_go(struct child *self)
{
	struct pollfd poller = { .fd = self->down, .events = POLLIN };

	while (!poll(&poller, 1, 0))
		;
}

static void *run_in_thread(void *arg)
{
	child_tell(arg, "runs");
	run_until_let_go(arg);
	return NULL;
}

enum kind { RUNS, SLEEPS, RUNS_IN_A_THREAD };

struct place {
	const int *processor;
	enum kind kind;
};

/* Tells its address, or that its thread runs, and has two endpoints until it is let go; `arg`: its struct place. */
static void member(struct child *self, void *arg)
{
	const struct place *place = arg;
	struct sc_ep *one, *two;
	pthread_t thread;

	run_on(*place->processor, -1);
	one = endpoint();
	two = endpoint();
	if (place->kind == RUNS_IN_A_THREAD) {
		CHILD_CHECK(!pthread_create(&thread, NULL, run_in_thread, self));
		CHILD_CHECK(!pthread_join(thread, NULL));
	} else {
		child_tell(self, sc_ep_address(one));
	}
	if (place->kind == RUNS)
		run_until_let_go(self);
	child_wait(self);
	sc_ep_destroy(two);
	sc_ep_destroy(one);
	sc_process_fini();
}

static const struct place on_first = { &first, RUNS }, on_second = { &second, RUNS };

static void start(struct child *child, const struct place *place)
{
	assert_true(child_start(child, member, (void *)(uintptr_t)place));
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
	start(&one, &on_second);
	assert_false(is_crowd(first, -1));
	assert_false(is_crowd(first, second));
	let_go(&one);
}

/* Two on one processor are, three on two; it ends when one of them ends, be it that its names are still there. */
static void test_crowd(void **state)
{
	struct child one, two;

	(void)state;
	start(&one, &on_first);
	assert_true(is_crowd(first, -1));
	if (second >= 0) {
		start(&two, &on_second);
		assert_true(is_crowd(first, second));
		kill(two.pid, SIGKILL);
		child_reap(&two);
		assert_false(is_crowd(first, second));
	}
	let_go(&one);
	assert_false(is_crowd(first, -1));
}

/* A process whose threads all sleep needs no processor. A process needs one if any of its threads runs. */
static void test_asleep(void **state)
{
	static const struct place sleeps = { &first, SLEEPS }, runs = { &first, RUNS_IN_A_THREAD };
	struct child one;

	(void)state;
	start(&one, &sleeps);
	while (is_crowd(first, -1)) /* until it sleeps */
		;
	let_go(&one);
	start(&one, &runs);
	assert_true(is_crowd(first, -1));
	let_go(&one);
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

static void meets(struct child *self, void *arg)
{
	struct sc_ep *ep;
	struct sc_peer *peer;

	run_on(first, -1);
	/* as if it had looked before the other came, and did not look again for long */
	sc_process.oversub.first_look = 1;
	sc_process.oversub.next_look = UINT64_MAX;
	ep = endpoint();
	CHILD_CHECK(!sc_oversub_is_here());
	CHILD_CHECK(!sc_peer_get(ep, arg, &peer));
	CHILD_CHECK(!sc_tx_send_buf(peer, (struct iovec){ 0 }, (struct sc_tag_data){ 0 },
				    (struct sc_op_flags){ 0 }, NULL));
	CHILD_CHECK(sc_process.oversub.next_look < UINT64_MAX);
	while (!sc_oversub_is_here())
		;
	sc_peer_put(peer);
	sc_ep_destroy(ep);
	sc_process_fini();
	child_tell(self, "crowd");
}

/* A process that has polled alone for long sees that another one comes as soon as it meets it. */
static void test_comes_later(void **state)
{
	struct child one, other;

	(void)state;
	start(&one, &on_first);
	assert_true(child_start(&other, meets, one.line));
	assert_int_equal(child_reap(&other), 0);
	assert_string_equal(other.line, "crowd");
	let_go(&one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),	    cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_asleep),	    cmocka_unit_test(test_names_of_the_dead),
		cmocka_unit_test(test_comes_later),
	};

	if (!child_private_shm("size=64m,mode=1777")) {
		printf("SKIP: no /dev/shm of its own\n");
		return 77;
	}
	find_processors();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
