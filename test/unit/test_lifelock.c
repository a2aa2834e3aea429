/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_lifelock: the life lock against everything that may happen to its owner.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include <shmcma/abi.h>
#include "child.h"
#include "os/lifelock.h"

/* A file with a name, for the owners to open by themselves; the test's descriptor is *state. */
static char path[] = "/dev/shm/test_live.XXXXXX";
static char base[] = "/dev/shm/test_live.XXXXXX";

static int open_it(void)
{
	return open(path, O_RDWR | O_CLOEXEC);
}

static int setup(void **state)
{
	int fd;

	strcpy(path, base);
	fd = mkostemp(path, O_CLOEXEC);
	*state = (void *)(intptr_t)fd;
	return fd < 0;
}

static int teardown(void **state)
{
	close((int)(intptr_t)*state);
	return unlink(path);
}

static void own(struct child *self, void *arg)
{
	int fd = open_it();

	(void)arg;
	CHILD_CHECK(!sc_lifelock_lock(fd));
	child_tell(self, "locked");
	child_wait(self);
}

static void assert_holder(int fd, pid_t holder)
{
	pid_t pid = -1;

	assert_int_equal(sc_lifelock_check(fd, &pid), 1);
	assert_int_equal(pid, holder);
	assert_int_equal(sc_lifelock_check(fd, NULL), 1);
	assert_int_equal(sc_lifelock_lock(fd), -EAGAIN);
}

static void assert_free(int fd)
{
	pid_t pid = -1;

	assert_int_equal(sc_lifelock_check(fd, &pid), 0);
	assert_int_equal(pid, -1);
}

/* Another byte of the file says nothing; a lock of an open file, which has no process, has no holder to be named. */
static void test_other_locks(void **state)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SC_ABI_LIFE_BYTE + 1, .l_len = 8
	};
	int fd = (int)(intptr_t)*state, other = open_it();

	assert_int_equal(fcntl(other, F_OFD_SETLK, &lock), 0);
	assert_free(fd);
	lock.l_start = SC_ABI_LIFE_BYTE;
	assert_int_equal(fcntl(other, F_OFD_SETLK, &lock), 0);
	assert_holder(fd, 0);
	close(other);
	assert_free(fd);
}

static void test_free_and_own(void **state)
{
	int fd = (int)(intptr_t)*state;

	assert_free(fd);
	assert_int_equal(sc_lifelock_lock(fd), 0);
	assert_int_equal(sc_lifelock_lock(fd), 0); /* again: no change */
	assert_free(fd);		       /* one's own is not in one's way */
	assert_int_equal(sc_lifelock_check(-1, NULL), -EBADF);
	assert_int_equal(sc_lifelock_lock(-1), -EBADF);
}

static void test_held_until_exit(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;

	assert_true(child_start(&owner, own, NULL));
	assert_holder(fd, owner.pid);
	assert_int_equal(child_end(&owner), 0);
	assert_free(fd);
	assert_int_equal(sc_lifelock_lock(fd), 0);
}

static void test_held_until_killed(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;

	assert_true(child_start(&owner, own, NULL));
	assert_holder(fd, owner.pid);
	child_kill(&owner);
	assert_free(fd);
}

static void test_stopped_is_alive(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;
	int status;

	assert_true(child_start(&owner, own, NULL));
	kill(owner.pid, SIGSTOP);
	assert_int_equal(waitpid(owner.pid, &status, WUNTRACED), owner.pid);
	assert_true(WIFSTOPPED(status));
	assert_holder(fd, owner.pid);
	kill(owner.pid, SIGCONT);
	assert_int_equal(child_end(&owner), 0);
}

static void test_zombie_is_dead(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;
	siginfo_t info;

	assert_true(child_start(&owner, own, NULL));
	kill(owner.pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)owner.pid, &info, WEXITED | WNOWAIT), 0);
	assert_free(fd);
	child_reap(&owner);
}

/* The owner's child has the descriptor, and tells its own parent's parent by the pipe. */
static void own_and_fork(struct child *self, void *arg)
{
	int fd = open_it();
	char pid[16];
	pid_t heir;

	(void)arg;
	CHILD_CHECK(!sc_lifelock_lock(fd));
	heir = fork();
	if (!heir) {
		watchdog_start("the heir of test_fork_does_not_inherit", 0);
		child_wait(self);
		_exit(0);
	}
	snprintf(pid, sizeof(pid), "%d", (int)heir);
	child_tell(self, pid);
	pause();
}

static void test_fork_does_not_inherit(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;

	assert_true(child_start(&owner, own_and_fork, NULL));
	assert_holder(fd, owner.pid);
	kill(owner.pid, SIGKILL);
	waitpid(owner.pid, NULL, 0);
	assert_int_equal(kill(atoi(owner.line), 0), 0); /* the heir lives, with the descriptor open */
	assert_free(fd);
	close(owner.down);
	close(owner.up);
}

static void own_and_let_child_close(struct child *self, void *arg)
{
	int fd = open_it();
	pid_t heir;
	int status;

	(void)arg;
	CHILD_CHECK(!sc_lifelock_lock(fd));
	heir = fork();
	if (!heir) {
		close(fd);
		close(open_it());
		_exit(0);
	}
	CHILD_CHECK(waitpid(heir, &status, 0) == heir && !status);
	child_tell(self, "locked");
	child_wait(self);
}

static void test_child_closing_is_harmless(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;

	assert_true(child_start(&owner, own_and_let_child_close, NULL));
	assert_holder(fd, owner.pid);
	assert_int_equal(child_end(&owner), 0);
}

struct exec_arg {
	bool keep;     /* the descriptor over exec */
	int inherited; /* another of the inode: exec would close it, and drop the lock */
};

/* The pipe's end goes with exec, as O_CLOEXEC says. */
static void own_and_exec(struct child *self, void *arg)
{
	struct exec_arg *how = arg;
	int fd = open_it();

	close(how->inherited);
	CHILD_CHECK(!sc_lifelock_lock(fd));
	if (how->keep)
		CHILD_CHECK(!fcntl(fd, F_SETFD, 0));
	(void)self;
	execlp("sleep", "sleep", "infinity", (char *)NULL);
	_exit(127);
}

static void test_exec(void **state)
{
	int fd = (int)(intptr_t)*state;

	for (int keep = 0; keep < 2; keep++) {
		struct exec_arg how = { keep, fd };
		struct child owner;
		char byte;

		child_spawn(&owner, own_and_exec, &how);
		assert_int_equal(read(owner.up, &byte, 1), 0); /* exec has closed the other end */
		if (keep) {
			assert_holder(fd, owner.pid);
		} else {
			watchdog_await(!sc_lifelock_check(fd, NULL)); /* exec closes one after the other */
		}
		assert_int_equal(waitpid(owner.pid, NULL, WNOHANG), 0);
		child_kill(&owner);
	}
}

static void own_twice(struct child *self, void *arg)
{
	int fd = open_it();

	(void)arg;
	CHILD_CHECK(!sc_lifelock_lock(fd));
	close(open_it());
	child_tell(self, "lost");
	child_wait(self);
}

/* Not a wish but a fact: why shmfile.c takes such care. And O_PATH, which it relies on, is different. */
static void test_second_descriptor_drops(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;

	assert_true(child_start(&owner, own_twice, NULL));
	assert_free(fd);
	assert_int_equal(child_end(&owner), 0);
}

static void own_and_look(struct child *self, void *arg)
{
	int fd = open_it();

	(void)arg;
	CHILD_CHECK(!sc_lifelock_lock(fd));
	close(open(path, O_PATH | O_CLOEXEC));
	child_tell(self, "kept");
	child_wait(self);
}

static void test_path_descriptor_keeps(void **state)
{
	int fd = (int)(intptr_t)*state;
	struct child owner;

	assert_true(child_start(&owner, own_and_look, NULL));
	assert_holder(fd, owner.pid);
	assert_int_equal(child_end(&owner), 0);
}

static void look_from_elsewhere(struct child *self, void *arg)
{
	pid_t pid, holder = -1;
	int status;

	(void)self;
	(void)arg;
	if (unshare(CLONE_NEWPID))
		_exit(CHILD_SKIPS);
	pid = fork(); /* the first of the new namespace */
	if (!pid) {
		CHILD_CHECK(sc_lifelock_check(open_it(), &holder) == 1);
		CHILD_CHECK(holder == 0);
		_exit(0);
	}
	CHILD_CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void test_other_namespace(void **state)
{
	struct child owner;
	int status;

	(void)state;
	assert_true(child_start(&owner, own, NULL));
	status = child_run(look_from_elsewhere, NULL);
	assert_int_equal(child_end(&owner), 0);
	CHILD_ASSERT(status);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_other_locks),
		TEST(test_free_and_own),
		TEST(test_held_until_exit),
		TEST(test_held_until_killed),
		TEST(test_stopped_is_alive),
		TEST(test_zombie_is_dead),
		TEST(test_fork_does_not_inherit),
		TEST(test_child_closing_is_harmless),
		TEST(test_exec),
		TEST(test_second_descriptor_drops),
		TEST(test_path_descriptor_keeps),
		TEST(test_other_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
