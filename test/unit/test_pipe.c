/* SPDX-License-Identifier: BSD-2-Clause */
/* test_pipe: the pipe by which a thread is woken: what arrives, and that nothing but that pipe is touched. */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <poll.h>

#include <cmocka.h>

#include "child.h"
#include "core_test.h"
#include "os/pipe.h"

static struct sc_pipe wake;

static int setup(void **state)
{
	(void)state;
	watchdog_start(NULL, 0);
	assert_int_equal(sc_pipe_open(&wake), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sc_pipe_close(&wake);
	assert_true(wake.ends[0] == -1 && wake.ends[1] == -1);
	return 0;
}

static bool has_come(void)
{
	struct pollfd ready = { .fd = wake.ends[0], .events = POLLIN };

	return poll(&ready, 1, 0) == 1;
}

static void test_ring(void **state)
{
	(void)state;
	assert_true(sc_pipe_hear(&wake));
	for (int i = 0; i < 3; i++) {
		assert_false(has_come());
		for (int j = 0; j <= i; j++)
			assert_true(sc_pipe_ring(&wake));
		assert_true(has_come());
		assert_true(sc_pipe_hear(&wake));
	}
	assert_false(has_come());
}

/* The application closes it, and uses the numbers again: for a pipe of its own. */
static void test_lost(void **state)
{
	struct sc_pipe lost = wake;
	int ends[2];

	(void)state;
	close(wake.ends[0]);
	close(wake.ends[1]);
	assert_int_equal(pipe(ends), 0);
	assert_true(ends[0] == lost.ends[0] && ends[1] == lost.ends[1]);
	assert_false(sc_pipe_ring(&wake));
	assert_false(sc_pipe_hear(&wake));
	sc_pipe_hang_up(&wake);
	sc_pipe_close(&wake);
	assert_int_equal(write(ends[1], "x", 1), 1); /* still open, and empty till now */
	assert_int_equal(read(ends[0], (char[2]){ 0 }, 2), 1);
	close(ends[0]);
	close(ends[1]);
}

static void test_hang_up(void **state)
{
	(void)state;
	sc_pipe_hang_up(&wake);
	assert_true(has_come());
	assert_false(sc_pipe_ring(&wake));
	assert_false(sc_pipe_hear(&wake));
}

/* One end only: what is written would be lost, and is a SIGPIPE. */
static void test_half_lost(void **state)
{
	(void)state;
	close(wake.ends[0]);
	assert_false(sc_pipe_ring(&wake));
	assert_false(sc_pipe_hear(&wake));
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static int lowest_free(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

/* There is none then, and nothing is left open. */
static void test_not_opened(void **state)
{
	struct sc_pipe none;
	int before = lowest_free();

	(void)state;
	if (!core_failing("pipe.open", EMFILE))
		skip();
	assert_int_equal(sc_pipe_open(&none), -EMFILE);
	assert_true(none.ends[0] == -1 && none.ends[1] == -1);
	core_failing("pipe.stat", EIO);
	assert_int_equal(sc_pipe_open(&none), -EIO);
	assert_true(none.ends[0] == -1 && none.ends[1] == -1);
	core_failing(NULL, 0);
	assert_int_equal(lowest_free(), before);
	assert_false(sc_pipe_ring(&none));
}

/* A full pipe is as good as a byte in it; of any other failure the caller hears, and the next one is tried. */
static void test_ring_fails(void **state)
{
	(void)state;
	if (!core_failing("pipe.ring", EIO))
		skip();
	assert_false(sc_pipe_ring(&wake));
	core_failing("pipe.ring", EAGAIN);
	assert_true(sc_pipe_ring(&wake));
	core_failing("pipe.hear", EINTR);
	assert_true(sc_pipe_hear(&wake)); /* it is not lost */
	core_failing(NULL, 0);
	assert_true(sc_pipe_ring(&wake));
	assert_true(has_come());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ring, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hang_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_half_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_opened, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ring_fails, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
