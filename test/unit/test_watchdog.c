/* SPDX-License-Identifier: BSD-2-Clause */
/* test_watchdog.c: the watchdog of tests ends what turns in circles and what sleeps for ever, and says where. */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "child.h"

static _Atomic int never;

/* The child's report, which it writes to its stderr until it ends. */
static int run_and_read(child_body *body, char *text, size_t size)
{
	struct child child;
	size_t length = 0;
	ssize_t got;
	int ends[2];

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	child_spawn(&child, body, &ends[1]);
	close(ends[1]);
	while ((got = read(ends[0], text + length, size - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	close(ends[0]);
	return child_reap(&child);
}

/* A child of the one that starts the watchdog has the same limit, and its report is under its own number. */
static void turn_in_circles(struct child *self, void *err)
{
	struct child child;
	int status;

	(void)self;
	CHILD_CHECK(dup2(*(int *)err, STDERR_FILENO) == STDERR_FILENO);
	setenv("TEST_DEADLINE_SCALE", "1", 1);
	watchdog_start("circles", 1);
	child.pid = fork();
	CHILD_CHECK(child.pid >= 0);
	if (!child.pid)
		watchdog_await_by(never, (void)getpid());
	CHILD_CHECK(waitpid(child.pid, &status, 0) == child.pid);
	CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == WATCHDOG_EXIT);
	dprintf(STDERR_FILENO, "the child was %d\n", (int)child.pid);
}

static void sleep_for_ever(struct child *self, void *err)
{
	CHILD_CHECK(dup2(*(int *)err, STDERR_FILENO) == STDERR_FILENO);
	setenv("TEST_WATCHDOG_SECONDS", "1", 1);
	watchdog_start("sleeper", 0);
	child_wait(self); /* its parent reads to the end first */
}

static void test_circles(void **state)
{
	char text[8192], name[64];
	int status = run_and_read(turn_in_circles, text, sizeof(text)), pid = 0;
	const char *at = strstr(text, "the child was ");

	(void)state;
	assert_int_equal(status, 0);
	assert_non_null(at);
	assert_int_equal(sscanf(at, "the child was %d", &pid), 1);
	snprintf(name, sizeof(name), "watchdog: circles (pid %d): ", pid);
	assert_non_null(strstr(text, name));
	assert_non_null(strstr(text, " s of processor time have passed; it waits at "));
	assert_non_null(strstr(text, " for: never\n"));
}

static void test_sleeper(void **state)
{
	char text[8192];
	int status = run_and_read(sleep_for_ever, text, sizeof(text));

	(void)state;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == WATCHDOG_EXIT);
	assert_non_null(strstr(text, "watchdog: sleeper (pid "));
	assert_non_null(strstr(text, "): 1 s of time have passed\n"));
}

/* After a step the limits are as far away as at the start. */
static void go_a_step(struct child *self, void *arg)
{
	struct itimerspec left, later;
	struct rlimit limit, next;
	struct timespec used;

	(void)self;
	(void)arg;
	watchdog_start("steps", 5);
	CHILD_CHECK(!getrlimit(RLIMIT_CPU, &limit));
	do
		CHILD_CHECK(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used));
	while (!used.tv_sec);
	CHILD_CHECK(!timer_gettime(watchdog.timer, &left));
	watchdog_progress();
	CHILD_CHECK(!timer_gettime(watchdog.timer, &later));
	CHILD_CHECK(!getrlimit(RLIMIT_CPU, &next));
	CHILD_CHECK(next.rlim_cur > limit.rlim_cur);
	CHILD_CHECK(later.it_value.tv_sec > left.it_value.tv_sec);
}

static void test_progress(void **state)
{
	(void)state;
	assert_int_equal(child_run(go_a_step, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_circles),
		cmocka_unit_test(test_sleeper),
		cmocka_unit_test(test_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
