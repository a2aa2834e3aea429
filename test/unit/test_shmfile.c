/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_shmfile: the files of a process while the application closes descriptors, removes and replaces names, or
 * forks without the library's knowledge: the library closes, unlinks or believes no file that is not its own.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <cmocka.h>

#include "child.h"
#include "core_test.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "os/otherfile.h"
#include "os/shmfile.h"

#define NAME "shmcma-test-own"
#define ANOTHER "shmcma-test-own-another"
#define COMING "shmcma-test-own-coming"

static bool alone; /* in a /dev/shm of our own, and may mount */

/* ---- a file ---------------------------------------------------------------------------------- */

static int setup(void **state)
{
	static struct sc_shmfile own;

	if (sc_shmfile_create(&own) || sc_shmfile_publish(&own, NAME))
		return 1;
	*state = &own;
	return 0;
}

static int teardown(void **state)
{
	char path[SC_SHMFILE_PATH_MAX];
	struct sc_shmfile *own = *state;

	sc_shmfile_unlink(own);
	(void)sc_shmfile_put(own);
	sc_shmfile_close(own);
	sc_shmfile_path(NAME, path);
	unlink(path);
	return 0;
}

/* A file of that name, which the library knows nothing of; its descriptor. */
static int put_file(const char *name)
{
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	sc_shmfile_path(name, path);
	unlink(path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0600), 0);
	return fd;
}

static void remove_file(const char *name)
{
	char path[SC_SHMFILE_PATH_MAX];

	sc_shmfile_path(name, path);
	assert_int_equal(unlink(path), 0);
}

static bool says_yes(int fd, void *arg)
{
	(void)arg;
	return fd >= 0;
}

static bool says_no(int fd, void *arg)
{
	return !says_yes(fd, arg);
}

/* ---- the same inode -------------------------------------------------------------------------- */

static void test_same_inode(void **state)
{
	const struct sc_shmfile *own = *state;

	assert_true(sc_shmfile_is_named(NAME, own->dev, own->ino));
	assert_false(sc_shmfile_is_named(NAME, own->dev, own->ino + 1));
	assert_false(sc_shmfile_is_named(NAME, own->dev + 1, own->ino));
	assert_int_equal(errno, 0);
	assert_false(sc_shmfile_is_named(ANOTHER, own->dev, own->ino));
	assert_int_equal(errno, ENOENT);
	assert_true(sc_shmfile_is_open(own->fd, own->dev, own->ino));
	assert_false(sc_shmfile_is_open(own->fd, own->dev, own->ino + 1));
	assert_false(sc_shmfile_is_open(own->fd, own->dev + 1, own->ino));
	assert_false(sc_shmfile_is_open(-1, own->dev, own->ino));
	if (core_failing("shmfile.is_open", EBADF)) /* the look at it fails: it does not count as ours */
		assert_false(sc_shmfile_is_open(own->fd, own->dev, own->ino));
	core_failing(NULL, 0);
}

static void test_name_is_anothers(void **state)
{
	struct sc_shmfile *own = *state;
	char path[SC_SHMFILE_PATH_MAX];

	close(put_file(NAME));
	sc_shmfile_unlink(own);
	assert_false(sc_shmfile_has_name(own));
	sc_shmfile_path(NAME, path);
	assert_int_equal(access(path, F_OK), 0); /* not ours to remove */
	sc_shmfile_unlink(own);
	assert_int_equal(access(path, F_OK), 0);
}

/* ---- the application closes ------------------------------------------------------------------ */

static void test_closed_and_opened_again(void **state)
{
	struct sc_shmfile *own = *state;
	int fd = own->fd;

	assert_int_equal(sc_shmfile_fd(own), fd);
	close(fd);
	fd = sc_shmfile_fd(own);
	assert_true(fd >= 0);
	assert_true(sc_shmfile_is_open(fd, own->dev, own->ino));
}

/* By the name alone can it be had again. */
static void test_closed_without_name(void **state)
{
	struct sc_shmfile *own = *state;

	close(own->fd);
	remove_file(NAME);
	assert_int_equal(sc_shmfile_fd(own), -EBADF);
	close(put_file(NAME));
	assert_int_equal(sc_shmfile_fd(own), -EBADF);
	assert_false(sc_shmfile_any(says_yes, NULL));
	assert_true(sc_shmfile_any(says_no, NULL));
	sc_shmfile_unlink(own);
	assert_int_equal(sc_shmfile_fd(own), -EBADF);
}

static void test_closed_and_short(void **state)
{
	struct sc_shmfile *own = *state;

	close(own->fd);
	if (!core_failing("shmfile.again", EMFILE))
		skip();
	assert_int_equal(sc_shmfile_fd(own), -EMFILE);
	core_failing("shmfile.reopen", EMFILE);
	assert_int_equal(sc_shmfile_fd(own), -EMFILE);
	core_failing(NULL, 0);
	assert_true(sc_shmfile_fd(own) >= 0);
}

/* Another holds the lock of a file that is another's: says so, and waits. */
static void hold_lock(struct child *self, void *arg)
{
	const struct sc_shmfile *own = arg;

	CHILD_CHECK(!sc_lifelock_lock(own->fd));
	child_tell(self, "");
	child_wait(self);
}

static void find_locked(struct child *self, void *arg)
{
	(void)self;
	CHILD_CHECK(sc_lifelock_lock(((const struct sc_shmfile *)arg)->fd) == -EAGAIN);
}

static void test_lock_is_anothers(void **state)
{
	struct sc_shmfile *own = *state;
	char path[SC_SHMFILE_PATH_MAX];
	struct child child;

	assert_int_equal(sc_shmfile_keep_all(), 0);
	sc_shmfile_path(NAME, path);
	close(open(path, O_RDWR | O_CLOEXEC)); /* and so the lock is dropped */
	assert_int_equal(sc_lifelock_check(own->fd, NULL), 0);
	assert_true(child_start(&child, hold_lock, own));
	assert_int_equal(sc_shmfile_keep_all(), -EAGAIN);
	assert_int_equal(child_end(&child), 0);
	assert_int_equal(sc_shmfile_keep_all(), 0);
	assert_int_equal(child_run(find_locked, own), 0);
}

/* ---- others' files --------------------------------------------------------------------------- */

static void test_own_is_not_opened(void **state)
{
	struct sc_shmfile *own = *state, second;
	struct stat st;
	int fd;

	assert_int_equal(sc_shmfile_create(&second), 0);
	assert_int_equal(sc_otherfile_open(NAME, &st), -EBUSY);
	assert_int_equal(sc_shmfile_keep_all(), 0); /* a file without name stays as it is */
	assert_true(sc_shmfile_any(says_yes, NULL));
	assert_false(sc_shmfile_any(says_no, NULL));
	assert_int_equal(sc_shmfile_publish(&second, ANOTHER), 0);
	assert_true(sc_shmfile_any(says_yes, NULL)); /* the first that is asked */
	sc_shmfile_unlink(&second);
	assert_ptr_equal(sc_shmfile_borrow(NAME), own);
	assert_false(sc_shmfile_put(own));
	assert_null(sc_shmfile_borrow(ANOTHER));

	close(put_file(ANOTHER));
	fd = sc_otherfile_open(ANOTHER, &st);
	assert_true(fd >= 0);
	sc_otherfile_close(fd);
	remove_file(ANOTHER);
	assert_int_equal(sc_otherfile_open(ANOTHER, &st), -ENOENT);
	assert_true(sc_shmfile_put(&second));
	sc_shmfile_close(&second);
	assert_int_equal(child_run(find_locked, own), 0); /* no lock has been dropped */
}

/* A name leads to a file on another file system, which may have the same inode number: it is no own file. */
static void test_another_file_system(void **state)
{
	char from[] = "/tmp/test_own.XXXXXX", path[SC_SHMFILE_PATH_MAX];
	int fd = mkstemp(from);
	struct stat st;

	(void)state;
	if (!alone)
		skip();
	assert_true(fd >= 0);
	close(fd);
	close(put_file(ANOTHER));
	sc_shmfile_path(ANOTHER, path);
	assert_int_equal(mount(from, path, NULL, MS_BIND, NULL), 0);
	fd = sc_otherfile_open(ANOTHER, &st);
	assert_true(fd >= 0);
	sc_otherfile_close(fd);
	assert_int_equal(umount(path), 0);
	remove_file(ANOTHER);
	unlink(from);
}

static void finds_lock(struct child *self, void *arg)
{
	(void)self;
	CHILD_CHECK(sc_lifelock_check(*(const int *)arg, NULL) == 1);
}

/*
 * A second copy of the library in this process has a POSIX lock on a file that this copy does not list. This copy does
 * not open the file: to close it would free that lock.
 */
static void test_lock_of_a_twin(void **state)
{
	static const char *const untold[] = { "otherfile.fdinfo", "otherfile.fdinfo_read",
					      "otherfile.readdir" };
	struct stat st;
	int twin = put_file(ANOTHER), fd;

	(void)state;
	assert_int_equal(flock(twin, LOCK_EX), 0); /* of another kind: no life lock */
	fd = sc_otherfile_open(ANOTHER, &st);
	assert_true(fd >= 0);
	sc_otherfile_close(fd);
	assert_int_equal(sc_lifelock_lock(twin), 0);
	assert_int_equal(sc_otherfile_open(ANOTHER, &st), -EBUSY);
	/* whether there is a lock cannot be told: it counts as locked, unless the descriptor is gone */
	for (size_t i = 0; i < sizeof(untold) / sizeof(untold[0]); i++)
		if (core_failing(untold[i], EMFILE))
			assert_int_equal(sc_otherfile_open(ANOTHER, &st), -EMFILE);
	core_failing(NULL, 0);
	assert_int_equal(child_run(finds_lock, &twin), 0);
	if (core_failing("otherfile.fdinfo", ENOENT)) {
		fd = sc_otherfile_open(ANOTHER, &st);
		assert_true(fd >= 0);
		sc_otherfile_close(fd);
	}
	core_failing(NULL, 0);
	close(twin);
	remove_file(ANOTHER);
}

#define PEER "shmcma-00000000-00000001-00010203040506ff-0000" /* process 1's, by its name */
#define CALIBRATION "shmcma.calibration-test-own"

/*
 * The core opens a file by the name of a peer's segment, and closes it again if it is no segment's file; but not if it
 * is a file of this process, which would lose its lock.
 */
static void test_peer(void **state)
{
	/* the special bits count as well */
	static const mode_t others[] = { 0640, 0604, 0700, 0400, 01600, 02600, 04600, 07600 };
	static const int not_files[] = { ELOOP, EISDIR, ENXIO, EACCES, EWOULDBLOCK, ETXTBSY };
	char path[SC_SHMFILE_PATH_MAX], from[SC_SHMFILE_PATH_MAX];
	struct sc_shmfile *own = *state;
	int before, fd, next;
	struct stat st;

	fd = put_file(PEER);
	sc_shmfile_path(PEER, path);
	before = sc_otherfile_open_peer(PEER, &st);
	assert_true(before >= 0 && st.st_nlink == 1);
	sc_otherfile_close(before);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		assert_int_equal(fchmod(fd, others[i]), 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_mode & 07777, others[i]);
		assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EACCES);
		assert_int_equal(sc_otherfile_open(PEER, &st), -EACCES);
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(sc_otherfile_open_peer(PEER, &st), -ENOENT);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EACCES);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0600), 0);
	assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EACCES);
	assert_int_equal(rmdir(path), 0);
	sc_shmfile_path(NAME, from);
	assert_int_equal(symlink(from, path), 0);
	assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EACCES);
	assert_int_equal(sc_otherfile_open(PEER, &st), -EACCES);
	assert_int_equal(unlink(path), 0);
	next = dup(fd);
	assert_int_equal(next, before); /* nothing has been left open */
	close(next);
	close(fd);
	if (core_failing("otherfile.peer", EMFILE))
		assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EMFILE);
	for (size_t i = 0; i < sizeof(not_files) / sizeof(not_files[0]); i++)
		if (core_failing("otherfile.peer", not_files[i]))
			assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EACCES);
	core_failing(NULL, 0);

	assert_int_equal(link(from, path), 0);
	assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EBUSY);
	next = dup(own->fd);
	assert_int_equal(sc_otherfile_open_peer(PEER, &st), -EBUSY);
	before = dup(own->fd);
	assert_int_equal(before, next + 1); /* no more than one descriptor is left for it */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(child_run(find_locked, own), 0);
}

/* A lock on a calibration is no life lock: the core opens such a file without a look through all descriptors. */
static void test_lock_of_a_calibration(void **state)
{
	struct stat st;
	int twin = put_file(CALIBRATION), fd;

	(void)state;
	assert_int_equal(sc_lifelock_lock(twin), 0);
	fd = sc_otherfile_open(CALIBRATION, &st);
	assert_true(fd >= 0);
	sc_otherfile_close(fd);
	close(twin);
	remove_file(CALIBRATION);
}

#ifdef SC_FAULT_INJECTION

/* Between the look at what has the name ANOTHER and its opening it becomes what is now called COMING. */
static int rename_at_look(const char *point)
{
	char from[SC_SHMFILE_PATH_MAX], to[SC_SHMFILE_PATH_MAX];

	if (strcmp(point, "otherfile.other_stat.done"))
		return 0;
	sc_shmfile_path(COMING, from);
	sc_shmfile_path(ANOTHER, to);
	return rename(from, to) ? EIO : 0;
}

/* The same, and what has been opened cannot be looked at. */
static int rename_and_hide(const char *point)
{
	return strcmp(point, "otherfile.other") ? rename_at_look(point) : EIO;
}

/* Between the look and the opening a file of another file system is mounted there. */
static const char *mounted;

static int mount_at_look(const char *point)
{
	char path[SC_SHMFILE_PATH_MAX];

	if (strcmp(point, "otherfile.other_stat.done"))
		return 0;
	sc_shmfile_path(ANOTHER, path);
	return mount(mounted, path, NULL, MS_BIND, NULL) ? EIO : 0;
}

/* The opened file is not the one that was looked at, although the numbers of the inodes may be the same. */
static void test_mounted_meanwhile(void **state)
{
	char from[] = "/tmp/test_own.XXXXXX", path[SC_SHMFILE_PATH_MAX];
	int fd = mkstemp(from);
	struct stat st, other;

	(void)state;
	if (!alone)
		skip();
	assert_return_code(fstat(fd, &other), errno);
	close(fd);
	close(put_file(ANOTHER));
	sc_shmfile_path(ANOTHER, path);
	mounted = from;
	sc_fault_hook = mount_at_look;
	fd = sc_otherfile_open(ANOTHER, &st);
	core_failing(NULL, 0);
	assert_true(fd >= 0);
	assert_true(st.st_dev == other.st_dev && st.st_ino == other.st_ino);
	sc_otherfile_close(fd);
	assert_return_code(umount(path), errno);
	remove_file(ANOTHER);
	unlink(from);
}

static void test_name_changes_hands(void **state)
{
	struct sc_shmfile *own = *state;
	char from[SC_SHMFILE_PATH_MAX], to[SC_SHMFILE_PATH_MAX];
	struct stat st;
	int fd;

	sc_shmfile_path(COMING, to);
	/* another's: as if it had come a little earlier */
	close(put_file(ANOTHER));
	fd = put_file(COMING);
	assert_return_code(fstat(fd, &st), errno);
	close(fd);
	{
		ino_t ino = st.st_ino;

		sc_fault_hook = rename_at_look;
		fd = sc_otherfile_open(ANOTHER, &st);
		core_failing(NULL, 0);
		assert_true(fd >= 0);
		assert_int_equal(st.st_ino, ino);
		sc_otherfile_close(fd);
	}
	/* a pipe */
	assert_return_code(mkfifo(to, 0600), errno);
	sc_fault_hook = rename_at_look;
	assert_int_equal(sc_otherfile_open(ANOTHER, &st), -EACCES);
	core_failing(NULL, 0);
	remove_file(ANOTHER);
	/* an own file, by another name: it is opened, and so must stay open */
	close(put_file(ANOTHER));
	sc_shmfile_path(NAME, from);
	assert_return_code(link(from, to), errno);
	sc_fault_hook = rename_at_look;
	assert_int_equal(sc_otherfile_open(ANOTHER, &st), -EBUSY);
	core_failing(NULL, 0);
	assert_int_equal(child_run(find_locked, own), 0);
	remove_file(ANOTHER);
	/* the same, and what was opened cannot be looked at: it stays open all the same */
	close(put_file(ANOTHER));
	assert_return_code(link(from, to), errno);
	sc_fault_hook = rename_and_hide;
	assert_int_equal(sc_otherfile_open(ANOTHER, &st), -EIO);
	core_failing(NULL, 0);
	assert_int_equal(child_run(find_locked, own), 0);
	remove_file(ANOTHER);
}

#else

static void test_mounted_meanwhile(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

static void test_name_changes_hands(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

#endif

/* A process that is not told of forks finds out in each call who it is. */
static void know_who(struct child *self, void *arg)
{
	const struct sc_host *host;
	int status;
	pid_t pid;

	(void)self, (void)arg;
	if (!core_failing("self.atfork", ENOMEM))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(sc_host_get(&host) == -ENOMEM && !host);
	core_failing("host.wipe", EINVAL);
	CHILD_CHECK(!sc_host_get(&host) && host->pid == getpid());
	core_failing(NULL, 0);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	CHILD_CHECK(pid >= 0);
	if (!pid) {
		CHILD_CHECK(!sc_host_get(&host) && host->pid == (pid_t)syscall(SYS_getpid));
		_exit(0);
	}
	CHILD_CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void test_knows_who(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(know_who, NULL));
}

static void check_read_only(struct child *self, void *arg)
{
	(void)self, (void)arg;
	if (!child_private_shm("size=1m,mode=1777"))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(!sc_host_check());
	CHILD_CHECK(!mount(NULL, "/dev/shm", NULL, MS_REMOUNT | MS_RDONLY, NULL));
	CHILD_CHECK(sc_host_check() == -EROFS);
}

/* An endpoint needs a directory that this user may write to. */
static void test_read_only(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(check_read_only, NULL));
}

/* ---- a child that no handler of pthread_atfork() has seen ------------------------------------ */

static bool nobody_awaits(const char *name)
{
	(void)name;
	return false;
}

static void in_bare_child(struct sc_shmfile *own)
{
	struct sc_shmfile copy = *own;
	struct stat st;
	int fd;

	watchdog_start("the child of test_bare_fork", 0);
	CHILD_CHECK(sc_shmfile_fd(own) == -EPERM);
	sc_shmfile_unlink(own);
	sc_shmfile_unlink_all(nobody_awaits);
	CHILD_CHECK(sc_shmfile_has_name(own));
	CHILD_CHECK(!sc_shmfile_borrow(NAME));
	CHILD_CHECK(!sc_shmfile_any(says_yes, NULL));
	CHILD_CHECK(!sc_shmfile_keep_all());
	fd = sc_otherfile_open(NAME, &st); /* its parent's, so another's */
	CHILD_CHECK(fd >= 0 && st.st_ino == copy.ino);
	CHILD_CHECK(sc_lifelock_check(fd, NULL) == 1);
	sc_otherfile_close(fd);
}

static void test_bare_fork(void **state)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	assert_true(pid >= 0);
	if (!pid) {
		in_bare_child(*state);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(sc_shmfile_is_named(NAME, ((struct sc_shmfile *)*state)->dev, ((struct sc_shmfile *)*state)->ino));
}

/* ---- the end of the process ------------------------------------------------------------------ */

static struct sc_shmfile *second;

/* Another thread closes the second file while it is asked about. */
static bool closed_meanwhile(const char *name)
{
	if (!strcmp(name, ANOTHER))
		sc_shmfile_unlink(second);
	return !strcmp(name, ANOTHER);
}

/* Another thread ends the process too while a file is asked about: it asks about the others. */
static bool ended_by_two(const char *name)
{
	static bool nested;

	if (!nested) {
		nested = true;
		sc_shmfile_unlink_all(ended_by_two);
		nested = false;
		return false;
	}
	return !strcmp(name, NAME) || !strcmp(name, ANOTHER);
}

static void open_second(struct sc_shmfile *file)
{
	second = file;
	assert_int_equal(sc_shmfile_create(file), 0);
	assert_int_equal(sc_shmfile_publish(file, ANOTHER), 0);
}

static void close_second(void)
{
	sc_shmfile_unlink(second);
	assert_true(sc_shmfile_put(second));
	sc_shmfile_close(second);
}

static void test_end(void **state)
{
	struct sc_shmfile *own = *state, another;

	open_second(&another);
	sc_shmfile_unlink_all(ended_by_two);
	/* the one that was asked about second is kept */
	assert_true(sc_shmfile_has_name(&another) != sc_shmfile_has_name(own));
	close_second();

	open_second(&another);
	sc_shmfile_unlink_all(closed_meanwhile);
	assert_false(sc_shmfile_has_name(&another));
	assert_false(sc_shmfile_has_name(own)); /* nobody awaits it */
	close_second();
}

/* ---- all fails ------------------------------------------------------------------------------- */

static void test_cannot_publish(void **state)
{
	struct sc_shmfile own;

	(void)state;
	assert_int_equal(sc_shmfile_create(&own), 0);
	assert_int_equal(sc_shmfile_publish(&own, NAME), -EEXIST);
	if (core_failing("lifelock.lock", ENOLCK))
		assert_int_equal(sc_shmfile_publish(&own, ANOTHER), -ENOLCK);
	core_failing(NULL, 0);
	assert_false(sc_shmfile_has_name(&own));
	assert_true(sc_shmfile_put(&own));
	sc_shmfile_close(&own);
	assert_int_equal(own.fd, -1);
}

static void test_cannot_unlink(void **state)
{
	struct sc_shmfile *own = *state;

	if (!core_failing("shmfile.named", EACCES))
		skip();
	sc_shmfile_unlink(own); /* left as it is, and said */
	core_failing(NULL, 0);
	assert_true(sc_shmfile_is_named(NAME, own->dev, own->ino));
}

static void create_below_limit(struct child *self, void *arg)
{
	struct rlimit limit = { 4096, RLIM_INFINITY };

	(void)self, (void)arg;
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
	CHILD_CHECK(!sc_shmfile_check_size(4096));
	CHILD_CHECK(sc_shmfile_check_size(4097) == -EFBIG);
	if (core_failing("shmfile.limit", EPERM))
		CHILD_CHECK(!sc_shmfile_check_size(4097));
	limit.rlim_cur = RLIM_INFINITY; /* this process may write counts of coverage at its end */
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
}

/* A limit that cannot be read is left to the kernel. */
static void test_limit(void **state)
{
	(void)state;
	assert_int_equal(child_run(create_below_limit, NULL), 0);
}

static void open_as_input(struct child *self, void *arg)
{
	int above;

	(void)self, (void)arg;
	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		CHILD_CHECK(sc_shmfile_above_streams(fd) > STDERR_FILENO);
	close(STDIN_FILENO);
	CHILD_CHECK(open("/dev/null", O_RDONLY | O_CLOEXEC) == STDIN_FILENO);
	if (core_failing("shmfile.above", EMFILE))
		CHILD_CHECK(sc_shmfile_above_streams(STDIN_FILENO) == STDIN_FILENO);
	core_failing(NULL, 0);
	above = sc_shmfile_above_streams(STDIN_FILENO);
	CHILD_CHECK(above > STDERR_FILENO);
	CHILD_CHECK(sc_shmfile_above_streams(above) == above);
}

/* A descriptor stays where the application expects its own stream only if there is no other. */
static void test_streams(void **state)
{
	(void)state;
	assert_int_equal(child_run(open_as_input, NULL), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define INTERRUPTED_BYTES (16 * SC_ABI_PAGE + 1)

static off_t uninterrupted; /* 0: no signals */
static int interruptions;

/* As if a signal came before the kernel has done more than that, and it took all back; not for ever. */
int fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (!uninterrupted || len <= uninterrupted)
		return (int)syscall(SYS_fallocate, fd, mode, offset, len);
	errno = interruptions++ < 32 ? EINTR : ENOSPC;
	return -1;
}

static void ignore_alarm(int number)
{
	(void)number;
}

/* Signals that come faster than the kernel gives all of the memory do not keep the process from getting it. */
static void test_interrupted(void **state)
{
	static const struct itimerval fast = { { 0, 200 }, { 0, 200 } }, none;
	static const off_t steps[] = { INTERRUPTED_BYTES - 1, 3 * SC_ABI_PAGE, SC_ABI_PAGE };
	const struct sc_shmfile *own = *state;
	struct stat st;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		uninterrupted = steps[i];
		assert_int_equal(ftruncate(own->fd, 0), 0);
		assert_int_equal(sc_shmfile_fallocate(own->fd, 0, SC_ABI_PAGE, INTERRUPTED_BYTES), 0);
		assert_int_equal(fstat(own->fd, &st), 0);
		assert_int_equal(st.st_size, SC_ABI_PAGE + INTERRUPTED_BYTES);
		assert_int_equal(st.st_blocks * 512, 17 * SC_ABI_PAGE);
	}
	uninterrupted = 0;
	assert_int_equal(ftruncate(own->fd, 0), 0);
	signal(SIGALRM, ignore_alarm);
	assert_int_equal(setitimer(ITIMER_REAL, &fast, NULL), 0);
	assert_int_equal(sc_shmfile_fallocate(own->fd, 0, 0, 8 << 20), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &none, NULL), 0);
	signal(SIGALRM, SIG_DFL);
	assert_int_equal(fstat(own->fd, &st), 0);
	assert_int_equal(st.st_blocks * 512, 8 << 20);
	assert_int_equal(sc_shmfile_fallocate(own->fd, 0, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
}

/* The child has to find out who it is. */
static void describe_unknown(struct child *self, void *arg)
{
	struct sc_abi_owner owner;

	(void)self, (void)arg;
	if (core_failing("host.open", EMFILE))
		CHILD_CHECK(sc_shmfile_describe(&owner) == -EMFILE);
	core_failing(NULL, 0);
	CHILD_CHECK(!sc_shmfile_describe(&owner) && owner.pid == getpid());
}

static void test_describe(void **state)
{
	(void)state;
	assert_int_equal(child_run(describe_unknown, NULL), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_knows_who), /* before this process knows */
		cmocka_unit_test(test_read_only),
		TEST(test_same_inode),
		TEST(test_name_is_anothers),
		TEST(test_closed_and_opened_again),
		TEST(test_closed_without_name),
		TEST(test_closed_and_short),
		TEST(test_lock_is_anothers),
		TEST(test_own_is_not_opened),
		TEST(test_another_file_system),
		TEST(test_peer),
		TEST(test_lock_of_a_twin),
		TEST(test_lock_of_a_calibration),
		TEST(test_name_changes_hands),
		TEST(test_mounted_meanwhile),
		TEST(test_bare_fork),
		TEST(test_end),
		TEST(test_cannot_publish),
		TEST(test_cannot_unlink),
		TEST(test_limit),
		TEST(test_streams),
		TEST(test_interrupted),
		TEST(test_describe),
	};

	alone = child_private_shm("size=16m,mode=1777");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
