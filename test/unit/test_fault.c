/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_fault: the effect of SHMCMA_FAULT on a process, each case in a child of its own.
 *
 * Includes fault.c as a build with fault injection has it: not to be linked with another one.
 */
#ifndef SC_FAULT_INJECTION
#define SC_FAULT_INJECTION
#endif
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "../watchdog.h"
#include "base/fault.c"

/* Runs in the child, with the environment set; returns its exit status. */
typedef int child_body(void);

struct outcome {
	int status;	  /* of waitpid() */
	char output[512]; /* standard error */
	int stops;	  /* times it stopped and was sent SIGCONT */
};

static void run_child(child_body *body, const char *setting, int output)
{
	dup2(output, STDERR_FILENO);
	unsetenv("SHMCMA_FAULT");
	if (setting)
		setenv("SHMCMA_FAULT", setting, 1);
	watchdog_start(NULL, 0);
	_exit(body());
}

static struct outcome run(child_body *body, const char *setting)
{
	struct outcome outcome = { 0 };
	size_t len = 0;
	ssize_t got;
	int ends[2];
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		run_child(body, setting, ends[1]);
	close(ends[1]);
	while (waitpid(child, &outcome.status, WUNTRACED) == child && WIFSTOPPED(outcome.status)) {
		assert_int_equal(WSTOPSIG(outcome.status), SIGSTOP);
		outcome.stops++;
		kill(child, SIGCONT);
	}
	while ((got = read(ends[0], outcome.output + len, sizeof(outcome.output) - 1 - len)) > 0)
		len += (size_t)got;
	close(ends[0]);
	return outcome;
}

static int exited(struct outcome outcome)
{
	return WIFEXITED(outcome.status) ? WEXITSTATUS(outcome.status) : -1;
}

static int killed(struct outcome outcome)
{
	return WIFSIGNALED(outcome.status) ? WTERMSIG(outcome.status) : -1;
}

/* Passes two points five times. Returns 0 if no pass fails; 40 * pass + errno if a.one alone fails, once; else 255. */
static int passes(void)
{
	int result = 0;

	for (int pass = 1; pass <= 5; pass++) {
		int err = sc_fault("a.one");

		if (sc_fault("a.two") || (err && result))
			return 255;
		if (err)
			result = pass * 40 + err;
	}
	return result;
}

static void test_unarmed(void **state)
{
	struct outcome outcome;

	(void)state;
	outcome = run(passes, NULL);
	assert_int_equal(exited(outcome), 0);
	assert_string_equal(outcome.output, "");
	assert_int_equal(exited(run(passes, "")), 0);
	assert_int_equal(exited(run(passes, "a.three:5")), 0);
	assert_int_equal(exited(run(passes, "a.on:5")), 0);
	assert_int_equal(exited(run(passes, "a.one.more:5")), 0);
}

static void test_errno(void **state)
{
	(void)state;
	assert_int_equal(exited(run(passes, "a.one:28")), 40 + ENOSPC);
	assert_int_equal(exited(run(passes, "a.one:28:1")), 40 + ENOSPC);
	assert_int_equal(exited(run(passes, "a.one:28:4")), 160 + ENOSPC);
	assert_int_equal(exited(run(passes, "a.one:28:6")), 0);
	assert_int_equal(exited(run(passes, "a.two:28:3")), 255);
}

static void test_kill(void **state)
{
	(void)state;
	assert_int_equal(killed(run(passes, "a.one:kill")), SIGKILL);
	assert_int_equal(killed(run(passes, "a.two:kill:5")), SIGKILL);
	assert_int_equal(exited(run(passes, "a.two:kill:6")), 0);
}

static void test_stop(void **state)
{
	struct outcome outcome;

	(void)state;
	outcome = run(passes, "a.two:stop:2");
	assert_int_equal(outcome.stops, 1);
	assert_int_equal(exited(outcome), 0);
}

static void test_nonsense_aborts(void **state)
{
	static const char *const settings[] = {
		"a.one",	"a.one:",     "a.one:die",   ":kill",	      "a.one:0",     "a.one:-5",
		"a.one:5000",	"a.one:5:",   "a.one:5:0",   "a.one:5:x",     "a.one:5:1:1", "a.one:5x",
		"a.one:kill:-", "a.one:Kill", "a.one:kill ", "a.one:stop:1 ",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		struct outcome outcome = run(passes, settings[i]);

		assert_int_equal(killed(outcome), SIGABRT);
		assert_non_null(strstr(outcome.output, settings[i]));
	}
}

static int long_setting(void)
{
	char setting[400];

	memset(setting, 'x', sizeof(setting));
	strcpy(setting + sizeof(setting) - 8, ":kill");
	setenv("SHMCMA_FAULT", setting, 1);
	return passes();
}

static void test_long_setting_aborts(void **state)
{
	(void)state;
	assert_int_equal(killed(run(long_setting, NULL)), SIGABRT);
}

static int environment_changes(void)
{
	if (sc_fault("a.one"))
		return 1;
	setenv("SHMCMA_FAULT", "a.one:5", 1);
	return sc_fault("a.one");
}

static void test_environment_is_read_once(void **state)
{
	(void)state;
	assert_int_equal(exited(run(environment_changes, NULL)), 0);
}

enum { THREADS = 4, ROUNDS = 20000 };

static _Atomic int failures;

static void *reach_often(void *argument)
{
	static const char *const points[] = { "t.a", "t.b", "t.c", "t.d" };

	(void)argument;
	for (int i = 0; i < ROUNDS; i++)
		for (int k = 0; k < 4; k++)
			if (sc_fault(points[k]))
				failures++;
	return NULL;
}

static int threads(void)
{
	pthread_t ids[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&ids[i], NULL, reach_often, NULL))
			return 100;
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	return failures;
}

/* Exactly one of all threads' passes fails. */
static void test_threads(void **state)
{
	(void)state;
	assert_int_equal(exited(run(threads, "t.c:5:65432")), 1);
}

/* A child of fork() goes on counting where its parent was. */
static int fork_after_two(void)
{
	int status;
	pid_t child;

	if (sc_fault("a.one") || sc_fault("a.one"))
		return 1;
	child = fork();
	if (!child)
		_exit(sc_fault("a.one"));
	if (waitpid(child, &status, 0) != child)
		return 2;
	return WEXITSTATUS(status);
}

static void test_fork_inherits(void **state)
{
	(void)state;
	assert_int_equal(exited(run(fork_after_two, "a.one:17:3")), 17);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unarmed),
		cmocka_unit_test(test_errno),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_nonsense_aborts),
		cmocka_unit_test(test_long_setting_aborts),
		cmocka_unit_test(test_environment_is_read_once),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_fork_inherits),
	};

	return cmocka_run_group_tests_name("inject", tests, NULL, NULL);
}
