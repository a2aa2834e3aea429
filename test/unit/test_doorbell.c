/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_doorbell: the pipe by which processes wake each other's threads: what arrives, and that nothing but that
 * pipe is ever written to, whatever a presence says.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "child.h"
#include "core_test.h"
#include "os/doorbell.h"

static struct sc_doorbell door;
static struct sc_abi_presence presence;

static int setup(void **state)
{
	(void)state;
	watchdog_start(NULL, 0);
	presence = (struct sc_abi_presence){ 0 };
	assert_int_equal(sc_doorbell_open(&door), 0);
	sc_doorbell_show(&door, &presence);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sc_doorbell_close(&door);
	assert_false(sc_doorbell_has_end(&door, 0));
	assert_false(sc_doorbell_has_end(&door, 1));
	return 0;
}

static bool has_come(void)
{
	struct pollfd ready = { .fd = door.ends[0], .events = POLLIN };

	return poll(&ready, 1, 0) == 1;
}

/* What was heard: 0 nothing, 1 ourselves, 2 somebody else as well. */
static int hear(void)
{
	bool came = has_come(), knocked;

	assert_true(sc_doorbell_hear(&door, &knocked));
	assert_true(came || !knocked);
	return came + knocked;
}

static void test_ring(void **state)
{
	(void)state;
	assert_int_equal(hear(), 0);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j <= i; j++)
			assert_true(sc_doorbell_ring(&door));
		assert_int_equal(hear(), 1);
		assert_int_equal(hear(), 0);
	}
}

static void knock(struct child *self, void *arg)
{
	(void)self;
	for (int i = 0; i < *(int *)arg; i++)
		CHILD_CHECK(!sc_doorbell_knock(getppid(), &presence));
}

static void test_knock(void **state)
{
	int times = 1;

	(void)state;
	assert_int_equal(child_run(knock, &times), 0);
	assert_int_equal(hear(), 2);
	times = 5;
	assert_int_equal(child_run(knock, &times), 0);
	assert_true(sc_doorbell_ring(&door));
	assert_int_equal(hear(), 2);
	assert_int_equal(hear(), 0);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), 0);
	assert_int_equal(hear(), 2);
	door.heard = true;
	sc_doorbell_show_heard(&door, &presence);
	assert_true(presence.door & SC_ABI_DOOR_HEARD);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), 0); /* it is there all the same */
	assert_int_equal(hear(), 2);
	sc_doorbell_close(&door);
	assert_false(door.heard);
	sc_doorbell_show_heard(&door, &presence); /* where it was, as far as others know */
	assert_true(presence.door & SC_ABI_DOOR_HEARD);
}

/* More than it holds: nobody waits, and it is heard of for a while. */
static void test_flood(void **state)
{
	int times = 70000, heard = 0;

	(void)state;
	assert_int_equal(child_run(knock, &times), 0);
	assert_true(sc_doorbell_ring(&door));
	while (has_come()) {
		assert_int_equal(hear(), 2);
		heard++;
	}
	assert_true(heard > 1);
	assert_true(sc_doorbell_ring(&door));
	assert_int_equal(hear(), 1);
}

/* For those who knock often; and it is open to them also when nobody is behind it any more. */
static void test_reach(void **state)
{
	int fd = sc_doorbell_reach(getpid(), &presence);

	(void)state;
	assert_true(fd >= 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(write(fd, "k", 1), 1);
		assert_int_equal(hear(), 2);
	}
	sc_doorbell_close(&door);
	assert_int_equal(write(fd, "k", 1), 1); /* and no SIGPIPE */
	close(fd);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), -ENOENT);
}

static void assert_none(const struct sc_abi_presence *other)
{
	assert_int_equal(sc_doorbell_knock(getpid(), other), -ENOENT);
	assert_false(has_come());
}

/* Whatever is in it. */
static void test_scribbled(void **state)
{
	static const uint32_t numbers[] = { 0, 1, INT_MAX, (uint32_t)INT_MAX + 1, UINT32_MAX };
	struct sc_abi_presence other;

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		other = presence;
		other.door = numbers[i];
		assert_none(&other);
	}
	other = presence;
	other.door_ino++;
	assert_none(&other);
	other = presence;
	other.door_dev++;
	assert_none(&other);
	other = presence;
	for (int i = 0; i < 4; i++) { /* threads that there are not, in this process */
		other.life = (uint32_t[]){ 1, SC_ABI_LIFE_ENDED, UINT32_MAX, 0x7fffffff }[i];
		assert_int_equal(sc_doorbell_knock(getpid(), &other), 0);
		assert_int_equal(hear(), 2);
	}
}

/* A file in its place, which the presence describes as it is: only a pipe is written to. */
static void test_no_pipe(void **state)
{
	struct sc_abi_presence other = { 0 };
	FILE *file = tmpfile();
	struct stat st;

	(void)state;
	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &st), 0);
	other.door = (uint32_t)fileno(file) + 1;
	other.door_ino = st.st_ino;
	other.door_dev = st.st_dev;
	assert_none(&other);
	assert_int_equal(fstat(fileno(file), &st), 0);
	assert_int_equal(st.st_size, 0);
	fclose(file);
}

static void test_hidden(void **state)
{
	struct sc_doorbell none = SC_DOORBELL_NONE;

	(void)state;
	sc_doorbell_show(NULL, &presence);
	assert_none(&presence);
	sc_doorbell_show(&door, &presence);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), 0);
	assert_int_equal(hear(), 2);
	sc_doorbell_show(&none, &presence);
	assert_none(&presence);
}

/* The application closes it, and uses the numbers again: for a pipe of its own. */
static void test_lost(void **state)
{
	struct sc_doorbell lost = door;
	bool knocked = true;
	int ends[2];

	(void)state;
	close(door.ends[0]);
	close(door.ends[1]);
	assert_int_equal(pipe(ends), 0);
	assert_true(ends[0] == lost.ends[0] && ends[1] == lost.ends[1]);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), -ENOENT);
	assert_false(sc_doorbell_ring(&door));
	assert_false(sc_doorbell_hear(&door, &knocked));
	assert_false(knocked);
	sc_doorbell_hang_up(&door);
	sc_doorbell_close(&door);
	assert_int_equal(write(ends[1], "x", 1), 1); /* still open, and empty till now */
	assert_int_equal(read(ends[0], (char[2]){ 0 }, 2), 1);
	close(ends[0]);
	close(ends[1]);
}

static void test_hang_up(void **state)
{
	bool knocked;

	(void)state;
	sc_doorbell_hang_up(&door);
	assert_true(has_come());
	assert_false(sc_doorbell_ring(&door));
	assert_false(sc_doorbell_hear(&door, &knocked));
}

/* One end only: what is written would be lost, and is a SIGPIPE. */
static void test_half_lost(void **state)
{
	bool knocked;

	(void)state;
	close(door.ends[0]);
	assert_false(sc_doorbell_ring(&door));
	assert_false(sc_doorbell_hear(&door, &knocked));
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), -ENOENT);
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
	struct sc_doorbell none;
	int before = lowest_free();

	(void)state;
	if (!core_failing("doorbell.pipe", EMFILE))
		skip();
	assert_int_equal(sc_doorbell_open(&none), -EMFILE);
	assert_true(none.ends[0] == -1 && none.ends[1] == -1);
	core_failing("doorbell.pipe_stat", EIO);
	assert_int_equal(sc_doorbell_open(&none), -EIO);
	assert_true(none.ends[0] == -1 && none.ends[1] == -1);
	core_failing(NULL, 0);
	assert_int_equal(lowest_free(), before);
	assert_false(sc_doorbell_ring(&none));
}

/* A full pipe is as good as a byte in it; of any other failure the caller hears, and the next one is tried. */
static void test_ring_fails(void **state)
{
	bool knocked;

	(void)state;
	if (!core_failing("doorbell.ring", EIO))
		skip();
	assert_false(sc_doorbell_ring(&door));
	core_failing("doorbell.ring", EAGAIN);
	assert_true(sc_doorbell_ring(&door));
	core_failing("doorbell.hear", EINTR);
	assert_true(sc_doorbell_hear(&door, &knocked)); /* it is not lost */
	assert_false(knocked);
	core_failing(NULL, 0);
	assert_true(sc_doorbell_ring(&door));
	assert_int_equal(hear(), 1);
}

/* Said to who knocks, and no descriptor left. */
static void test_knock_fails(void **state)
{
	int before = lowest_free();

	(void)state;
	if (!core_failing("doorbell.find", EACCES))
		skip();
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), -EACCES);
	core_failing("doorbell.stat", EIO);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), -ENOENT);
	core_failing("doorbell.reach", EMFILE);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), -EMFILE);
	core_failing("doorbell.knock", EIO);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), -EIO);
	assert_false(has_come());
	core_failing("doorbell.knock", EAGAIN);
	assert_int_equal(sc_doorbell_knock(getpid(), &presence), 0);
	core_failing(NULL, 0);
	assert_int_equal(lowest_free(), before);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* Shows its door in memory that both have, says when it is knocked at. */
static void *await_knock(void *arg)
{
	struct child *self = arg;
	struct sc_abi_presence *shown = (struct sc_abi_presence *)presence.door_ino;
	struct pollfd ready = { .events = POLLIN };
	bool knocked = false;

	CHILD_CHECK(!sc_doorbell_open(&door));
	shown->life = (uint32_t)syscall(SYS_gettid);
	sc_doorbell_show(&door, shown);
	child_tell(self, "open");
	ready.fd = door.ends[0];
	CHILD_CHECK(poll(&ready, 1, -1) == 1 && sc_doorbell_hear(&door, &knocked) && knocked);
	child_tell(self, "heard");
	_exit(0);
}

static void leader_ends(struct child *self, void *arg)
{
	pthread_t thread;

	presence.door_ino = (uint64_t)(uintptr_t)arg;
	CHILD_CHECK(!pthread_create(&thread, NULL, await_knock, self));
	syscall(SYS_exit, 0);
}

static bool shows_descriptors(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, STDERR_FILENO);
	return !access(path, F_OK);
}

/* The first thread has ended, and with it what is in /proc/<pid>/fd. */
static void test_leader_ended(void **state)
{
	struct sc_abi_presence *shown =
		mmap(NULL, sizeof(*shown), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sc_abi_presence without;
	struct child child;

	(void)state;
	assert_true(shown != MAP_FAILED);
	assert_true(child_start(&child, leader_ends, shown));
	without = *shown;
	without.life = 0;
	watchdog_await(!shows_descriptors(child.pid));
	assert_int_equal(sc_doorbell_knock(child.pid, &without), -ENOENT);
	assert_int_equal(sc_doorbell_knock(child.pid, shown), 0);
	assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
	assert_string_equal(child.line, "heard");
	assert_int_equal(child_reap(&child), 0);
	assert_int_equal(sc_doorbell_knock(child.pid, shown), -ENOENT);
	munmap(shown, sizeof(*shown));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ring, setup, teardown),
		cmocka_unit_test_setup_teardown(test_knock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_flood, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reach, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scribbled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_pipe, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hidden, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hang_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_half_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_opened, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ring_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_knock_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_leader_ended, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
