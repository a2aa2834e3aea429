/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_directory.c: addresses by number for other processes: what a reader finds, and what it does not believe.
 * How one writes for the other through address vectors: test/fabric/test_shared_av.c.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include "os/addr.h"
#include "child.h"
#include "core_test.h"
#include "os/host.h"
#include "os/shmfile.h"
#include "proc/owner.h"
#include "proc/reap.h"

#define NAME "test_directory"
#define CAPACITY 10

static void address(uint16_t n, char addr[SC_ADDR_SIZE])
{
	sc_addr_format(&(struct sc_addr){ .host = 1, .pid = 2, .ep = n }, addr);
}

static struct sc_directory *create(void)
{
	struct sc_directory *directory;

	assert_int_equal(sc_directory_create(NAME, CAPACITY, &directory), 0);
	return directory;
}

static void test_names(void **state)
{
	struct sc_directory *directory = create(), *other;
	char file[SC_ADDR_NAME_MAX];

	(void)state;
	assert_int_equal(sc_directory_create(NAME, CAPACITY, &other), -EADDRINUSE);
	assert_int_equal(sc_directory_create("a/b", CAPACITY, &other), -EINVAL);
	assert_int_equal(sc_directory_create("x", 0, &other), -EINVAL);
	assert_int_equal(sc_directory_create("x", SC_DIRECTORY_MAX + 1, &other), -EINVAL);
	assert_int_equal(sc_directory_open("a/b", &other), -EINVAL);
	assert_int_equal(sc_directory_open("nobody", &other), -ENOENT);
	assert_int_equal(sc_addr_directory_file(NAME, file), 0);
	assert_true(sc_addr_is_service_file(file));
	sc_directory_close(directory);
	assert_int_equal(sc_directory_open(NAME, &other), -ENOENT);
}

static void test_numbers(void **state)
{
	struct sc_directory *writer = create(), *reader;
	char addr[SC_ADDR_SIZE], got[SC_ADDR_SIZE];

	(void)state;
	assert_int_equal(sc_directory_open(NAME, &reader), 0);
	assert_int_equal(sc_directory_capacity(writer), CAPACITY);
	assert_int_equal(sc_directory_count(reader), 0);
	for (uint32_t n = 0; n < CAPACITY; n++)
		assert_false(sc_directory_get(reader, n, got));
	address(4, addr);
	assert_int_equal(sc_directory_put(writer, 4, addr), 0);
	assert_int_equal(sc_directory_count(reader), 5);
	assert_true(sc_directory_get(reader, 4, got));
	assert_string_equal(got, addr);
	assert_false(sc_directory_get(reader, 3, got));
	assert_int_equal(sc_directory_put(writer, 3, addr), 0);
	assert_int_equal(sc_directory_count(reader), 5);
	assert_true(sc_directory_get(reader, 3, got));
	assert_int_equal(sc_directory_numbers(reader)[3], 3);
	sc_directory_del(writer, 4);
	assert_false(sc_directory_get(reader, 4, got));
	assert_true(sc_directory_numbers(reader)[4] == UINT64_MAX);
	assert_false(sc_directory_get(reader, CAPACITY, got));
	/* the writer closes first: the reader still has the addresses */
	sc_directory_close(writer);
	assert_true(sc_directory_get(reader, 3, got));
	sc_directory_close(reader);
}

/* A number that there is no room for would be another's address. */
static void test_full(void **state)
{
	struct sc_directory *writer = create();
	char first[SC_ADDR_SIZE], addr[SC_ADDR_SIZE], got[SC_ADDR_SIZE];

	(void)state;
	address(1, first);
	address(2, addr);
	assert_int_equal(sc_directory_put(writer, 0, first), 0);
	assert_int_equal(sc_directory_put(writer, CAPACITY - 1, addr), 0);
	for (uint32_t n = CAPACITY; n < CAPACITY + 4; n++)
		assert_int_equal(sc_directory_put(writer, n, addr), -ENOSPC);
	assert_int_equal(sc_directory_count(writer), CAPACITY);
	assert_true(sc_directory_get(writer, 0, got));
	assert_string_equal(got, first);
	assert_true(sc_directory_get(writer, CAPACITY - 1, got));
	assert_string_equal(got, addr);
	sc_directory_close(writer);
}

static void create_too_large(struct child *self, void *arg)
{
	struct rlimit limit = { 500, RLIM_INFINITY };
	struct sc_directory *directory;

	(void)self;
	(void)arg;
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
	CHILD_CHECK(sc_directory_create(NAME, CAPACITY, &directory) == -EFBIG);
	limit.rlim_cur = RLIM_INFINITY; /* this process may write counts of coverage at its end */
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
}

/* A file beyond the limit is an error, not the end of the process. */
static void test_file_limit(void **state)
{
	(void)state;
	assert_int_equal(child_run(create_too_large, NULL), 0);
}

/* The writer's file as a process that scribbles over it has it. */
static struct sc_abi_directory *scribble_open(int *fd)
{
	char file[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	void *base;

	assert_int_equal(sc_addr_directory_file(NAME, file), 0);
	sc_shmfile_path(file, path);
	*fd = open(path, O_RDWR | O_CLOEXEC);
	assert_return_code(*fd, errno);
	base = mmap(NULL, SC_ABI_DIRECTORY_SIZE(CAPACITY), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

/* As another process opens it, which leaves the writer's lock alone. */
static int others_open(void)
{
	struct sc_directory *reader;
	char got[SC_ADDR_SIZE];
	pid_t child = fork();
	int status, ret;

	assert_return_code(child, errno);
	if (!child) {
		ret = sc_directory_open(NAME, &reader);
		if (ret)
			_exit(-ret);
		for (uint32_t n = 0; n < sc_directory_count(reader); n++)
			(void)sc_directory_get(reader, n, got);
		sc_directory_close(reader);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

/* The child scribbles, so that closing its descriptor drops no lock of the writer's. */
static void scribble(void (*how)(struct sc_abi_directory *base, int fd))
{
	pid_t child = fork();
	int status, fd;

	assert_return_code(child, errno);
	if (!child) {
		struct sc_abi_directory *base = scribble_open(&fd);

		how(base, fd);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void bad_count(struct sc_abi_directory *base, int fd)
{
	(void)fd;
	base->count = UINT32_MAX;
}

static void bad_address(struct sc_abi_directory *base, int fd)
{
	uint64_t *numbers = (uint64_t *)(base + 1);

	(void)fd;
	numbers[0] = 0;
	numbers[1] = 7; /* another's */
	memset(numbers + CAPACITY, 'x', SC_ABI_ADDR_SIZE);
}

static void bad_magic(struct sc_abi_directory *base, int fd)
{
	(void)fd;
	base->magic++;
}

static void good_magic_bad_capacity(struct sc_abi_directory *base, int fd)
{
	(void)fd;
	base->magic--;
	base->capacity++;
}

static void huge_size(struct sc_abi_directory *base, int fd)
{
	(void)base;
	assert_return_code(ftruncate(fd, (off_t)SC_ABI_DIRECTORY_SIZE(SC_DIRECTORY_MAX + 1)), errno);
}

static void bad_size(struct sc_abi_directory *base, int fd)
{
	(void)base;
	assert_return_code(ftruncate(fd, (off_t)SC_ABI_DIRECTORY_SIZE(CAPACITY) + 1), errno);
}

static void short_size(struct sc_abi_directory *base, int fd)
{
	(void)base;
	assert_return_code(ftruncate(fd, (off_t)sizeof(*base) - 1), errno);
}

/* No header is there: to read it would be a SIGBUS. */
static void no_header(struct sc_abi_directory *base, int fd)
{
	(void)base;
	assert_return_code(ftruncate(fd, 0), errno);
}

static void no_size(struct sc_abi_directory *base, int fd)
{
	(void)base;
	assert_return_code(ftruncate(fd, (off_t)SC_ABI_DIRECTORY_SIZE(0)), errno);
}

static void test_scribbled(void **state)
{
	struct sc_directory *writer = create(), *reader;
	char got[SC_ADDR_SIZE];

	(void)state;
	assert_int_equal(others_open(), 0);
	assert_int_equal(sc_directory_open(NAME, &reader), 0);
	scribble(bad_count);
	assert_int_equal(sc_directory_count(reader), CAPACITY);
	assert_false(sc_directory_get(reader, CAPACITY, got));
	assert_false(sc_directory_get(reader, UINT32_MAX, got)); /* far behind what is mapped */
	scribble(bad_address);
	assert_false(sc_directory_get(reader, 0, got));
	assert_false(sc_directory_get(reader, 1, got));
	assert_int_equal(others_open(), 0);
	scribble(bad_magic);
	assert_int_equal(others_open(), -EPROTO);
	scribble(good_magic_bad_capacity);
	assert_int_equal(others_open(), -EPROTO);
	scribble(huge_size);
	assert_int_equal(others_open(), -EPROTO);
	scribble(bad_size);
	assert_int_equal(others_open(), -EPROTO);
	scribble(no_size);
	assert_int_equal(others_open(), -EPROTO);
	scribble(short_size);
	assert_int_equal(others_open(), -EPROTO);
	scribble(no_header);
	assert_int_equal(others_open(), -EPROTO);
	sc_directory_close(reader);
	sc_directory_close(writer);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* Another's, until it may go; or, with `arg`, until it dies. */
static void write_one(struct child *self, void *arg)
{
	struct sc_directory *directory;
	char addr[SC_ADDR_SIZE];

	CHILD_CHECK(!sc_directory_create(NAME, CAPACITY, &directory));
	address(6, addr);
	CHILD_CHECK(!sc_directory_put(directory, 6, addr));
	child_tell(self, addr);
	if (arg)
		raise(SIGKILL);
	child_wait(self);
	sc_directory_close(directory);
}

static void test_anothers(void **state)
{
	struct sc_directory *reader, *directory;
	char got[SC_ADDR_SIZE];
	struct child writer;

	(void)state;
	assert_true(child_start(&writer, write_one, NULL));
	assert_int_equal(sc_directory_create(NAME, CAPACITY, &directory), -EADDRINUSE);
	assert_int_equal(sc_directory_open(NAME, &reader), 0);
	assert_int_equal(child_end(&writer), 0);
	assert_true(sc_directory_get(reader, 6, got)); /* the reader's mapping stays */
	assert_string_equal(got, writer.line);
	sc_directory_close(reader);
	assert_int_equal(sc_directory_open(NAME, &reader), -ENOENT);
}

/* Not read any more, and the name is free. */
static void test_deads(void **state)
{
	struct sc_directory *directory;
	char file[SC_ADDR_NAME_MAX];
	struct child writer;
	int status;

	(void)state;
	assert_true(child_start(&writer, write_one, &writer));
	status = child_reap(&writer);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(others_open(), -ENOENT);
	assert_int_equal(sc_addr_directory_file(NAME, file), 0);
	if (core_failing("lifelock.check", ENOLCK)) /* the writer may live, as far as can be told */
		assert_false(sc_owner_left_service(file));
	core_failing(NULL, 0);
	assert_true(sc_owner_left_service(file));
	directory = create();
	assert_int_equal(sc_directory_count(directory), 0);
	sc_directory_close(directory);
}

/* The writer closes a second descriptor of the file, which frees the lock, and lives on. */
static void write_and_lose(struct child *self, void *arg)
{
	struct sc_directory *directory;
	char addr[SC_ADDR_SIZE], file[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];

	(void)arg;
	CHILD_CHECK(!sc_directory_create(NAME, CAPACITY, &directory));
	address(6, addr);
	sc_directory_put(directory, 6, addr);
	CHILD_CHECK(!sc_addr_directory_file(NAME, file));
	sc_shmfile_path(file, path);
	close(open(path, O_RDONLY | O_CLOEXEC));
	child_tell(self, addr);
	child_wait(self);
}

static void test_lost_lock(void **state)
{
	struct sc_directory *reader, *directory;
	char file[SC_ADDR_NAME_MAX], got[SC_ADDR_SIZE];
	struct child writer;

	(void)state;
	assert_int_equal(sc_addr_directory_file(NAME, file), 0);
	assert_true(child_start(&writer, write_and_lose, NULL));
	assert_int_equal(sc_reap_name(file), -EBUSY);
	assert_int_equal(sc_directory_create(NAME, CAPACITY, &directory), -EADDRINUSE);
	assert_int_equal(sc_directory_open(NAME, &reader), 0);
	assert_true(sc_directory_get(reader, 6, got));
	assert_string_equal(got, writer.line);
	sc_directory_close(reader);
	/* the file does not say which process owns it: only the lock could show that the owner lives */
	scribble(bad_magic);
	assert_int_equal(sc_directory_open(NAME, &reader), -ENOENT);
	scribble(bad_size);
	assert_int_equal(sc_directory_open(NAME, &reader), -ENOENT);
	assert_int_equal(sc_reap_name(file), 1);
	assert_int_equal(child_end(&writer), 0);

	assert_true(child_start(&writer, write_and_lose, NULL));
	child_kill(&writer);
	assert_int_equal(sc_directory_open(NAME, &reader), -ENOENT);
	directory = create();
	sc_directory_close(directory);
}

/* Where a directory has no room for what the dead have left, that goes. */
static void create_where_it_is_full(struct child *self, void *arg)
{
	struct sc_directory *directory;
	struct child dead;
	struct statvfs fs;
	int fd;

	(void)self, (void)arg;
	if (!child_private_shm("size=1m,mode=1777"))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(child_start(&dead, write_one, NULL));
	child_kill(&dead);
	CHILD_CHECK(!statvfs("/dev/shm", &fs));
	fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	CHILD_CHECK(fd >= 0 && !fallocate(fd, 0, 0, (off_t)(fs.f_bavail * fs.f_bsize)));
	CHILD_CHECK(!sc_directory_create("another", CAPACITY, &directory));
	sc_directory_close(directory);
	close(fd);
}

static void test_left_in_the_way(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(create_where_it_is_full, NULL));
}

static struct sc_directory *inherited[2];

static void close_inherited(struct child *self, void *arg)
{
	(void)self;
	(void)arg;
	for (int i = 0; i < 2; i++)
		sc_directory_close(inherited[i]);
}

/* A forked child has no mapping to undo, and takes no name away. */
static void test_fork(void **state)
{
	struct sc_directory *writer = create();
	char addr[SC_ADDR_SIZE], got[SC_ADDR_SIZE];

	(void)state;
	assert_int_equal(sc_directory_open(NAME, &inherited[0]), 0);
	inherited[1] = writer;
	assert_int_equal(child_run(close_inherited, NULL), 0);
	assert_int_equal(others_open(), 0);
	address(1, addr);
	assert_int_equal(sc_directory_put(writer, 1, addr), 0);
	assert_true(sc_directory_get(inherited[0], 1, got));
	sc_directory_close(writer);
	sc_directory_close(inherited[0]);
}

/* Of this process, but not by this copy of the library: it is not opened, which would cost the lock. */
static void test_own_by_other_name(void **state)
{
	struct sc_directory *writer = create(), *reader;
	char file[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX], other[SC_SHMFILE_PATH_MAX];

	(void)state;
	assert_int_equal(sc_addr_directory_file(NAME, file), 0);
	sc_shmfile_path(file, path);
	assert_int_equal(sc_addr_directory_file(NAME ".other", file), 0);
	sc_shmfile_path(file, other);
	assert_return_code(link(path, other), errno);
	assert_int_equal(sc_directory_open(NAME ".other", &reader), -ENOENT);
	assert_return_code(unlink(other), errno);
	assert_int_equal(others_open(), 0);
	sc_directory_close(writer);
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static int interruptions, full;

int fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (!interruptions && !full)
		return (int)syscall(SYS_fallocate, fd, mode, offset, len);
	errno = interruptions ? EINTR : full;
	interruptions -= !!interruptions;
	return -1;
}

static void test_creation_fails(void **state)
{
	static const struct {
		int error, expected;
	} cases[] = { { ENOSPC, -ENOSPC }, { EDQUOT, -ENOSPC }, { EFBIG, -EFBIG } };
	static const char *const points[] = { "shmfile.tmpfile", "directory.fallocate", "directory.map",
					       "shmfile.link" };
	struct sc_directory *directory;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		full = cases[i].error;
		assert_int_equal(sc_directory_create(NAME, CAPACITY, &directory), cases[i].expected);
	}
	full = 0;
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		if (core_failing(points[i], ENOMEM))
			assert_int_equal(sc_directory_create(NAME, CAPACITY, &directory), -ENOMEM);
	if (core_failing("directory.map", EAGAIN)) /* mlockall(2) has locked all that it may */
		assert_int_equal(sc_directory_create(NAME, CAPACITY, &directory), -ENOMEM);
	core_failing(NULL, 0);
	assert_int_equal(sc_directory_open(NAME, &directory), -ENOENT);
	interruptions = 3; /* as of older kernels */
	directory = create();
	assert_int_equal(interruptions, 0);
	sc_directory_close(directory);
}

static void test_opening_fails(void **state)
{
	static const char *const points[] = { "lifelock.check", "otherfile.open", "directory.map" };
	struct sc_directory *writer = create();

	(void)state;
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		if (core_failing(points[i], ENOLCK))
			assert_int_equal(others_open(), -ENOLCK);
	core_failing(NULL, 0);
	assert_int_equal(others_open(), 0);
	sc_directory_close(writer);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_file_limit),
		cmocka_unit_test(test_scribbled),
		cmocka_unit_test(test_anothers),
		cmocka_unit_test(test_deads),
		cmocka_unit_test(test_lost_lock),
		cmocka_unit_test(test_left_in_the_way),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_own_by_other_name),
		cmocka_unit_test(test_creation_fails),
		cmocka_unit_test(test_opening_fails),
	};

	sc_log_set(child_log);
	(void)child_private_shm("size=64m,mode=1777"); /* else two runs at a time have one name */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
