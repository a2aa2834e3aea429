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

static void turn_in_circles(struct child *self, void *err)
{
	(void)self;
	CHILD_CHECK(dup2(*(int *)err, STDERR_FILENO) == STDERR_FILENO);
	setenv("TEST_DEADLINE_SCALE", "1", 1);
	watchdog_start("circles", 1);
	watchdog_await_by(never, (void)getpid());
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
	char text[8192];
	int status = run_and_read(turn_in_circles, text, sizeof(text));

	(void)state;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == WATCHDOG_EXIT);
	assert_non_null(strstr(text, "watchdog: circles (pid "));
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

/* A child has its parent's limit, and its report is under its own number. */
static void fork_and_turn(struct child *self, void *err)
{
	struct child child;
	int status;

	(void)self;
	CHILD_CHECK(dup2(*(int *)err, STDERR_FILENO) == STDERR_FILENO);
	setenv("TEST_DEADLINE_SCALE", "1", 1);
	watchdog_start("parent", 1);
	child.pid = fork();
	CHILD_CHECK(child.pid >= 0);
	while (!child.pid)
		;
	CHILD_CHECK(waitpid(child.pid, &status, 0) == child.pid);
	CHILD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == WATCHDOG_EXIT);
	dprintf(STDERR_FILENO, "the child was %d\n", (int)child.pid);
}

static void test_child(void **state)
{
	const char *at;
	char text[8192], name[64];
	int status = run_and_read(fork_and_turn, text, sizeof(text)), pid = 0;

	(void)state;
	assert_int_equal(status, 0);
	at = strstr(text, "the child was ");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "the child was %d", &pid), 1);
	snprintf(name, sizeof(name), "watchdog: parent (pid %d): ", pid);
	assert_non_null(strstr(text, name));
}

/* Each step has the whole limit: together they take more. */
static void go_step_by_step(struct child *self, void *arg)
{
	struct timespec begin, now;

	(void)self;
	(void)arg;
	setenv("TEST_DEADLINE_SCALE", "1", 1);
	watchdog_start("steps", 2);
	for (int step = 0; step < 8; step++) {
		CHILD_CHECK(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin));
		do
			CHILD_CHECK(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now));
		while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 800);
		watchdog_progress();
	}
}

static void test_progress(void **state)
{
	(void)state;
	assert_int_equal(child_run(go_step_by_step, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_circles),
		cmocka_unit_test(test_sleeper),
		cmocka_unit_test(test_child),
		cmocka_unit_test(test_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
