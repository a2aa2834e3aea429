/* SPDX-License-Identifier: BSD-2-Clause */
/* test_pidfd: the table of pidfds: as many as there may be, and none that is not ours. */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "core_pair.h"
#include "pidfds.h"
#include "os/pidfd.h"

/* A pidfd has an event once it has been polled, and until it is put back. */
static void test_peers(void **state)
{
	struct pollfd polls[SC_PIDFDS_MAX];
	int place = sc_pidfd_get(getpid());

	(void)state;
	for (int i = 0; i < SC_PIDFDS_MAX; i++)
		polls[i].revents = POLLIN;
	assert_true(place != SC_NO_PIDFD);
	assert_true(sc_pidfd_is_open(place));
	assert_int_equal(pidfds_count(0, 0), 1);
	assert_false(
		sc_pidfd_has_event(place, polls)); /* as it is not polled yet, and as its process lives */
	sc_pidfds_arrange(polls);
	assert_false(sc_pidfd_has_event(place, polls));
	polls[place].revents = POLLIN;
	assert_true(sc_pidfd_has_event(place, polls));
	sc_pidfd_put(place);
	assert_int_equal(pidfds_count(0, 0), 0);
	assert_false(sc_pidfd_has_event(place, polls)); /* of nobody any more */
	assert_int_equal(sc_pidfd_get(0x7ffffff0), SC_NO_PIDFD);
	if (core_failing("pidfd.limit", EPERM))
		assert_int_equal(sc_pidfd_get(getpid()), SC_NO_PIDFD);
	if (core_failing("pidfd.open", EMFILE))
		assert_int_equal(sc_pidfd_get(getpid()), SC_NO_PIDFD);
	core_failing(NULL, 0);
}

/* A table that is full, for good measure: as many as there may be, and one more. */
static void fills_table(struct child *self, void *arg)
{
	pid_t pids[SC_PIDFDS_MAX + 1];
	struct rlimit limit = { 4096, 4096 };
	int places[SC_PIDFDS_MAX];

	(void)self, (void)arg;
	child_on_its_own();
	if (setrlimit(RLIMIT_NOFILE, &limit) && getrlimit(RLIMIT_NOFILE, &limit))
		abort();
	if (limit.rlim_cur < 4 * SC_PIDFDS_MAX)
		_exit(CHILD_SKIPS);
	for (int i = 0; i <= SC_PIDFDS_MAX; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	for (int i = 0; i < SC_PIDFDS_MAX; i++) {
		places[i] = sc_pidfd_get(pids[i]);
		assert_true(places[i] != SC_NO_PIDFD);
	}
	assert_int_equal(sc_pidfd_get(pids[SC_PIDFDS_MAX]), SC_NO_PIDFD);
	sc_pidfd_put(places[3]);
	assert_int_equal(sc_pidfd_get(pids[SC_PIDFDS_MAX]), places[3]);
	assert_int_equal(pidfds_count(0, 0), SC_PIDFDS_MAX);
	for (int i = 0; i <= SC_PIDFDS_MAX; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i <= SC_PIDFDS_MAX; i++)
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
}

static void test_table_full(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(fills_table, NULL));
}

/* The application closes a pidfd, and uses its number again; a forked child has none. */
static void forgets(struct child *self, void *arg)
{
	int fd, lost;

	(void)self, (void)arg;
	child_on_its_own();
	fd = dup(STDERR_FILENO);
	close(fd); /* the next one's number */
	lost = sc_pidfd_get(getppid());
	assert_true(lost != SC_NO_PIDFD);
	assert_int_equal(dup2(STDERR_FILENO, fd), fd);
	assert_false(sc_pidfd_is_open(lost));
	sc_pidfd_put(lost);
	assert_return_code(fcntl(fd, F_GETFD), errno); /* the application's stays open */
	assert_int_equal(pidfds_count(0, 0), 0);
	assert_true(sc_pidfd_get(getppid()) != SC_NO_PIDFD);
	sc_pidfds_inherited();
	assert_int_equal(pidfds_count(0, 0), 0);
}

static void test_forgets(void **state)
{
	(void)state;
	assert_int_equal(child_run(forgets, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_peers, pair_setup),
		cmocka_unit_test_setup(test_table_full, pair_setup),
		cmocka_unit_test_setup(test_forgets, pair_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
