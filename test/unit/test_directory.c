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
#include <sys/wait.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include "addr.h"
#include "directory.h"
#include "host.h"
#include "own.h"

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
	sc_directory_put(writer, 4, addr);
	assert_int_equal(sc_directory_count(reader), 5);
	assert_true(sc_directory_get(reader, 4, got));
	assert_string_equal(got, addr);
	assert_false(sc_directory_get(reader, 3, got));
	sc_directory_put(writer, 3, addr);
	assert_int_equal(sc_directory_count(reader), 5);
	assert_true(sc_directory_get(reader, 3, got));
	assert_int_equal(sc_directory_numbers(reader)[3], 3);
	sc_directory_del(writer, 4);
	assert_false(sc_directory_get(reader, 4, got));
	assert_true(sc_directory_numbers(reader)[4] == UINT64_MAX);
	assert_false(sc_directory_get(reader, CAPACITY, got));
	/* whoever goes first */
	sc_directory_close(writer);
	assert_true(sc_directory_get(reader, 3, got));
	sc_directory_close(reader);
}

/* The writer's file as a process that scribbles over it has it. */
static struct sc_abi_directory *scribble_open(int *fd)
{
	char file[SC_ADDR_NAME_MAX], path[SC_OWN_PATH_MAX];
	void *base;

	assert_int_equal(sc_addr_directory_file(NAME, file), 0);
	sc_own_path(file, path);
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

static void bad_size(struct sc_abi_directory *base, int fd)
{
	(void)base;
	assert_return_code(ftruncate(fd, (off_t)SC_ABI_DIRECTORY_SIZE(CAPACITY) + 1), errno);
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
	scribble(bad_address);
	assert_false(sc_directory_get(reader, 0, got));
	assert_false(sc_directory_get(reader, 1, got));
	assert_int_equal(others_open(), 0);
	scribble(bad_magic);
	assert_int_equal(others_open(), -EPROTO);
	scribble(bad_size);
	assert_int_equal(others_open(), -EPROTO);
	scribble(no_size);
	assert_int_equal(others_open(), -EPROTO);
	sc_directory_close(reader);
	sc_directory_close(writer);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_scribbled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
