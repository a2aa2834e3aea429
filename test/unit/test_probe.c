/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_probe: copies inside this process, of which one side may not be there any more: they return an error and cause
 * no signal. The kernel makes pages present on request; or does not (a filter of system calls forbids it); or looks at
 * no single page; or forbids process_vm_writev(2) too: then memory that is there is copied all the same.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "child.h"
#include "core_test.h"
#include "os/probe.h"

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

#define POPULATE_READ 22 /* of madvise(2), as in probe.c */

/*
 * From now on the system call fails with `error` (0: does nothing and returns 0) where that argument of it is
 * from `first` to `last`. False: not allowed here.
 */
static bool forbid(unsigned int call, int arg, unsigned int first, unsigned int last, unsigned int error)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned int)offsetof(struct seccomp_data, args[arg])),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
	};
	struct sock_fprog program = { sizeof(rules) / sizeof(rules[0]), rules };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* As before Linux 5.14: madvise(2) knows no MADV_POPULATE_READ, _WRITE. */
static bool forbid_populate(void)
{
	return forbid(SYS_madvise, 2, POPULATE_READ, POPULATE_READ + 1, EINVAL);
}

/* The look at a page that is to be read: a change of the signal mask that does not exist. */
static bool forbid_peek(unsigned int error)
{
	return forbid(SYS_rt_sigprocmask, 0, UINT32_MAX, UINT32_MAX, error);
}

/* Two pages to write, then two to read only, then two that are not there. */
struct pages {
	size_t size;
	uint8_t *write, *read, *none;
};

static struct pages map_pages(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *base = mmap(NULL, 6 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHILD_CHECK(base != MAP_FAILED);
	memset(base, 7, 4 * size);
	CHILD_CHECK(!mprotect(base + 2 * size, 2 * size, PROT_READ));
	CHILD_CHECK(!munmap(base + 4 * size, 2 * size));
	return (struct pages){ size, base, base + 2 * size, base + 4 * size };
}

static int copy(bool write, void *to, const void *from, size_t len)
{
	static struct sc_probe_brief brief;
	static uint32_t poll;
	struct sc_probe *memory = sc_probe_around(&brief, write ? to : from, ++poll);
	struct iovec into[3] = { { to, 0 }, { to, len }, { to, 0 } };
	struct iovec out_of = { (void *)(uintptr_t)from, len };
	struct sc_probe_copy both = {
		.to = into, .to_count = 3, .from = &out_of, .from_count = 1, .len = len
	};

	return write ? sc_probe_write(memory, &both) : sc_probe_read(memory, &both);
}

/* Memory that is there is copied, within a page and across two pages. */
static void check_there(const struct pages *pages)
{
	uint8_t bytes[16];

	for (int across = 0; across < 2; across++) {
		size_t at = across ? pages->size - 8 : 8;

		memset(bytes, 1 + across, 16);
		CHILD_CHECK(!copy(true, pages->write + at, bytes, 16));
		CHILD_CHECK(!memcmp(pages->write + at, bytes, 16));
		memset(bytes, 0, 16);
		CHILD_CHECK(!copy(false, bytes, pages->write + at, 16));
		CHILD_CHECK(!memcmp(pages->write + at, bytes, 16));
		CHILD_CHECK(!copy(false, bytes, pages->read + at, 16));
		CHILD_CHECK(bytes[0] == 7 && bytes[15] == 7);
	}
}

static void check_readable(const struct pages *pages)
{
	CHILD_CHECK(sc_probe_readable(pages->write + 8, 0) == 0);
	CHILD_CHECK(sc_probe_readable(pages->write + 8, 1) == 1);
	CHILD_CHECK(sc_probe_readable(pages->write + 8, 3 * pages->size) == 3 * pages->size);
	CHILD_CHECK(sc_probe_readable(pages->none - 5, 5) == 5);
	CHILD_CHECK(sc_probe_readable(pages->none - 5, 64) == 5);
	CHILD_CHECK(sc_probe_readable(pages->write + 8, SIZE_MAX) == 4 * pages->size - 8);
	CHILD_CHECK(sc_probe_readable(pages->none, 1) == 0);
	CHILD_CHECK(sc_probe_readable(NULL, 1) == 0);
	CHILD_CHECK(sc_probe_readable((void *)UINTPTR_MAX, 2) == 0);
	CHILD_CHECK(sc_probe_readable((void *)0x7373656c656d616e, 8) == 0); /* "nameless" */
}

static void check_absent(const struct pages *pages)
{
	uint8_t bytes[32] = { 0 };

	for (int across = 0; across < 2; across++) {
		size_t at = across ? pages->size - 8 : 8;

		CHILD_CHECK(copy(true, pages->read + at, bytes, 16) == -EIO);
		CHILD_CHECK(copy(true, pages->none + at, bytes, 16) == -EIO);
		CHILD_CHECK(copy(false, bytes, pages->none + at, 16) == -EIO);
	}
	CHILD_CHECK(copy(true, pages->none - 16, bytes, 32) == -EIO);
	CHILD_CHECK(copy(false, bytes, pages->none - 16, 32) == -EIO);
}

static void populated(struct child *self, void *arg)
{
	struct iovec all = { NULL, SIZE_MAX }; /* as far as there are addresses */
	struct pages pages = map_pages();

	(void)self, (void)arg;
	check_there(&pages);
	check_absent(&pages);
	CHILD_CHECK(sc_probe_check(NULL, &all, 1, false) == -EIO);
	check_readable(&pages);
}

static void copied_by_kernel(struct child *self, void *arg)
{
	struct pages pages = map_pages();

	(void)self, (void)arg;
	if (!forbid_populate())
		_exit(CHILD_SKIPS);
	check_there(&pages);
	check_absent(&pages);
}

static void nothing_asked(struct child *self, void *arg)
{
	struct pages pages = map_pages();

	(void)self, (void)arg;
	if (!forbid_populate() || !core_failing("cma.writev", EPERM))
		_exit(CHILD_SKIPS);
	check_there(&pages);
	core_failing("cma.readv", ENOSYS);
	check_there(&pages);
}

/* The kernel cannot look at a page that is to be read: the core looks at each page in another way. */
static void no_peek(struct child *self, void *arg)
{
	struct pages pages = map_pages();

	(void)self;
	if (!forbid_peek(*(unsigned int *)arg))
		_exit(CHILD_SKIPS);
	check_there(&pages);
	check_absent(&pages);
	check_readable(&pages);
}

static void no_touch(struct child *self, void *arg)
{
	struct pages pages = map_pages();

	(void)self, (void)arg;
	if (!forbid(SYS_futex, 1, FUTEX_WAKE_OP_PRIVATE, FUTEX_WAKE_OP_PRIVATE, ENOSYS))
		_exit(CHILD_SKIPS);
	check_there(&pages);
	check_absent(&pages);
}

static void no_look_at_all(struct child *self, void *arg)
{
	(void)self, (void)arg;
	if (!forbid_populate() || !forbid_peek(ENOSYS))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(sc_probe_readable(&self, sizeof(self)) == 0); /* nobody can tell */
	copied_by_kernel(self, arg);
}

/* The core cannot ask whether a page is there: it does not copy the page. */
static void fails(struct child *self, void *arg)
{
	struct pages pages = map_pages();
	uint8_t bytes[16] = { 0 };

	(void)self, (void)arg;
	if (!core_failing("probe.populate", ENOMEM))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(copy(true, pages.write + pages.size - 8, bytes, 16) == -EIO);
	core_failing("probe.touch", EFAULT);
	CHILD_CHECK(copy(true, pages.write, bytes, 16) == -EIO);
	core_failing("probe.peek", EFAULT); /* already at the first page: the core looks at pages in another way */
	CHILD_CHECK(!copy(false, bytes, pages.write, 16));
	core_failing(NULL, 0);
	check_there(&pages);
}

/* Of memory that the kernel populates for nobody each page is looked at by itself. */
static void not_populated(struct child *self, void *arg)
{
	struct pages pages = map_pages();

	(void)self, (void)arg;
	if (!core_failing("probe.populate", EINVAL))
		_exit(CHILD_SKIPS);
	check_there(&pages);
	check_absent(&pages);
	CHILD_CHECK(copy(true, pages.none - 16, "0123456789abcdef0123456789abcdef", 32) == -EIO);
}

static void secret(struct child *self, void *arg)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	size_t size = (size_t)32 * getpagesize();
	uint8_t bytes[16] = { 1, 2, 3 };
	struct iovec iov;
	uint8_t *at;

	(void)self, (void)arg;
	if (fd < 0)
		_exit(CHILD_SKIPS);
	CHILD_CHECK(!ftruncate(fd, (off_t)size));
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHILD_CHECK(at != MAP_FAILED);
	iov = (struct iovec){ at, size };
	CHILD_CHECK(!sc_probe_check(NULL, &iov, 1, true) && !sc_probe_check(NULL, &iov, 1, false));
	CHILD_CHECK(!copy(true, at + size / 2 - 8, bytes, 16) && !memcmp(at + size / 2 - 8, bytes, 16));
	CHILD_CHECK(!mprotect(at + size / 2, (size_t)getpagesize(), PROT_READ));
	CHILD_CHECK(sc_probe_check(NULL, &iov, 1, true) == -EIO && !sc_probe_check(NULL, &iov, 1, false));
	CHILD_CHECK(!mprotect(at + size / 2, (size_t)getpagesize(), PROT_NONE));
	CHILD_CHECK(sc_probe_check(NULL, &iov, 1, false) == -EIO);
	CHILD_CHECK(copy(false, bytes, at + size / 2 - 8, 16) == -EIO);
}

/* The first and the last page of each element, and no other. */
static void only_ends(struct child *self, void *arg)
{
	struct pages pages = map_pages();
	uint8_t *end = pages.write + 4 * pages.size;
	struct iovec iov[] = { { pages.write, 8 }, { NULL, 0 }, { pages.write, 0 } };

	(void)self, (void)arg;
	iov[2].iov_len = (size_t)(end - pages.write);
	CHILD_CHECK(!sc_probe_check_ends(iov, 2, true) && !sc_probe_check_ends(iov, 3, false));
	iov[0] = (struct iovec){ pages.none, 8 };
	CHILD_CHECK(sc_probe_check_ends(iov, 3, false) == -EIO);
	iov[0] = (struct iovec){ pages.none - 8, 16 };
	CHILD_CHECK(sc_probe_check_ends(iov, 1, false) == -EIO);
	iov[0] = (struct iovec){ pages.read, 8 };
	CHILD_CHECK(sc_probe_check_ends(iov, 1, true) == -EIO && !sc_probe_check_ends(iov, 1, false));
}

static void cannot_populate(struct child *self, void *arg)
{
	if (!core_failing("probe.can", EINVAL))
		_exit(CHILD_SKIPS);
	copied_by_kernel(self, arg);
}

static void run_with(child_body *body, void *arg)
{
	int status = child_run(body, arg);

	CHILD_ASSERT(status);
}

static void run(child_body *body)
{
	run_with(body, NULL);
}

static void test_populated(void **state)
{
	(void)state;
	run(populated);
}

static void test_copied_by_kernel(void **state)
{
	(void)state;
	run(copied_by_kernel);
}

static void test_nothing_asked(void **state)
{
	(void)state;
	run(nothing_asked);
}

static void test_no_peek(void **state)
{
	unsigned int errors[] = { ENOSYS, EFAULT, EINVAL, 0 }; /* for each address, mapped or not */

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		run_with(no_peek, &errors[i]);
}

static void test_no_touch(void **state)
{
	(void)state;
	run(no_touch);
}

static void test_no_look_at_all(void **state)
{
	(void)state;
	run(no_look_at_all);
}

static void test_fails(void **state)
{
	(void)state;
	run(fails);
	run(cannot_populate);
}

static void test_special(void **state)
{
	(void)state;
	run(only_ends);
	run(not_populated);
}

static void test_secret(void **state)
{
	(void)state;
	run(secret);
}

/* Makes room for what is known of six pages, the last two of which are not mapped any more. */
static struct sc_probe *probe_new(const struct pages *pages)
{
	struct iovec parts[2] = { { pages->read + 1, 1 }, { pages->write + 1, pages->size } };
	struct sc_probe *memory;

	assert_ptr_not_equal(mmap(pages->none, 2 * pages->size, PROT_READ,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			     MAP_FAILED);
	parts[0].iov_len = 4 * pages->size - 1;
	memory = sc_probe_new(parts, 2);
	assert_non_null(memory);
	assert_int_equal(memory->count, 6);
	assert_int_equal(munmap(pages->none, 2 * pages->size), 0);
	return memory;
}

/* Bytes are known if they are in one page that was looked at for the same access, or for a write. */
static void test_known_bytes(void **state)
{
	struct pages pages = map_pages();
	struct iovec write = { pages.write, 1 }, read = { pages.read, 1 };
	struct sc_probe *memory = probe_new(&pages);

	(void)state;
	assert_false(sc_probe_knows(memory, pages.write, 1, false));
	if (sc_probe_check(memory, &write, 1, true) == -ENOSYS)
		skip();
	assert_int_equal(sc_probe_check(memory, &read, 1, false), 0);
	assert_true(sc_probe_knows(memory, pages.write, pages.size, true));
	assert_true(sc_probe_knows(memory, pages.write, pages.size, false));
	assert_true(sc_probe_knows(memory, pages.read + pages.size - 1, 1, false));
	assert_false(sc_probe_knows(memory, pages.read, 1, true));
	assert_int_equal(sc_probe_check(memory, &write, 1, false), 0);
	assert_true(sc_probe_knows(memory, pages.write, 1, true));
	assert_false(sc_probe_knows(memory, pages.write + pages.size - 1, 2, true));
	assert_false(sc_probe_knows(memory, pages.write + 1, SIZE_MAX, true));
	assert_false(sc_probe_knows(memory, pages.write - 1, 1, false));
	assert_false(sc_probe_knows(memory, pages.none + 2 * pages.size, 1, false));
	free(memory);
}

/* A page stays known for the access that was looked at. */
static void test_known(void **state)
{
	struct pages pages = map_pages();
	struct iovec write = { pages.write, 1 }, read = { pages.read, 1 };
	struct iovec to_the_end = { pages.read + 1, 2 * pages.size - 1 }, nothing = { pages.none, 0 };
	struct iovec both = { pages.write, pages.size + 1 }, beyond = { pages.read, 2 * pages.size + 1 };
	struct sc_probe *memory = probe_new(&pages);

	(void)state;
	if (sc_probe_check(memory, &write, 1, true) == -ENOSYS)
		skip();
	for (int again = 0; again < 2; again++) {
		assert_int_equal(sc_probe_check(memory, &read, 1, false), 0);
		assert_int_equal(sc_probe_check(memory, &read, 1, true), -EIO);
		assert_int_equal(sc_probe_check(memory, &write, 1, false), 0);
		assert_int_equal(sc_probe_check(memory, &write, 1, true), 0);
		assert_int_equal(sc_probe_check(memory, &both, 1, true), 0);
		assert_int_equal(sc_probe_check(memory, &to_the_end, 1, false), 0);
		assert_int_equal(sc_probe_check(NULL, &nothing, 1, true), 0);
		assert_int_equal(sc_probe_check(memory, &beyond, 1, false), -EIO);
	}
	assert_int_equal(munmap(pages.write, 4 * pages.size), 0);
	assert_int_equal(sc_probe_check(memory, &both, 1, true), 0);
	assert_int_equal(sc_probe_check(memory, &both, 1, false), 0);
	assert_int_equal(sc_probe_check(memory, &to_the_end, 1, false), 0);
	assert_int_equal(sc_probe_check(memory, &read, 1, true), -EIO);
	assert_int_equal(sc_probe_check(NULL, &both, 1, false), -EIO);
	free(memory);
}

/* For a short time: until the next poll, and until memory elsewhere is asked for. */
static void test_known_briefly(void **state)
{
	struct pages pages = map_pages();
	struct iovec write = { pages.write, 1 };
	struct sc_probe_brief brief = { 0 };

	(void)state;
	if (sc_probe_check(sc_probe_around(&brief, pages.write, 0), &write, 1, true) == -ENOSYS)
		skip();
	assert_int_equal(munmap(pages.write, 4 * pages.size), 0);
	assert_int_equal(sc_probe_check(sc_probe_around(&brief, pages.write, 0), &write, 1, true), 0);
	assert_int_equal(sc_probe_check(sc_probe_around(&brief, pages.write, 1), &write, 1, true), -EIO);
	brief.known[((uintptr_t)pages.write / (size_t)pages.size) % SC_PROBE_AROUND] = 3;
	assert_int_equal(sc_probe_check(sc_probe_around(&brief, pages.write, 1), &write, 1, true), 0);
	(void)sc_probe_around(&brief, NULL, 1);
	assert_int_equal(sc_probe_check(sc_probe_around(&brief, pages.write, 1), &write, 1, true), -EIO);
}

/* Nothing is known of no memory, of memory that is not all mapped, of too many pages, nor without memory to know it in. */
static void test_nothing_to_know(void **state)
{
	struct pages pages = map_pages();
	struct iovec apart[2] = { { pages.write, 1 }, { pages.write, 1 } };
	struct sc_probe *memory;

	(void)state;
	memory = sc_probe_new(apart, 0);
	assert_int_equal(memory->count, 0);
	assert_false(sc_probe_knows(memory, pages.write, 1, false));
	free(memory);
	apart[1].iov_base = pages.none;
	memory = sc_probe_new(apart, 2);
	assert_int_equal(memory->count, 0);
	assert_false(sc_probe_knows(memory, pages.write, 1, false));
	free(memory);
	apart[1].iov_base = mmap((void *)(1ull << 30), (size_t)pages.size, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(apart[1].iov_base, MAP_FAILED);
	memory = sc_probe_new(apart, 2);
	assert_int_equal(memory->count > 0,
			 llabs((char *)apart[1].iov_base - (char *)pages.write) / pages.size <
				 (long)SC_PROBE_PAGES);
	free(memory);
	assert_int_equal(munmap(apart[1].iov_base, (size_t)pages.size), 0);
	if (core_failing("probe.new", ENOMEM))
		assert_null(sc_probe_new(apart, 1));
	core_failing(NULL, 0);
}

/* Mapped is what has an address, whatever may be done with it. No range is too long to ask. */
static void test_mapped(void **state)
{
	struct pages pages = map_pages();
	uintptr_t all = UINTPTR_MAX - (uintptr_t)pages.size;
	struct iovec some[2] = { { pages.write + 1, 2 * pages.size }, { pages.read + 5, pages.size } };

	(void)state;
	assert_true(sc_probe_is_mapped(some, 2));
	assert_true(sc_probe_is_mapped(some, 0));
	if (core_failing("probe.mapped", ENOMEM))
		assert_false(sc_probe_is_mapped(some, 2));
	core_failing(NULL, 0);
	assert_int_equal(mprotect(pages.read, pages.size, PROT_NONE), 0);
	assert_true(sc_probe_is_mapped(some, 2));
	some[1] = (struct iovec){ pages.none, 1 };
	assert_false(sc_probe_is_mapped(some, 2));
	for (uintptr_t more = 0; more < 2 * pages.size; more += pages.size - 1) {
		some[1] = (struct iovec){ NULL, all + more < all ? UINTPTR_MAX : all + more };
		assert_false(sc_probe_is_mapped(some, 2));
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_populated),	cmocka_unit_test(test_copied_by_kernel),
		cmocka_unit_test(test_nothing_asked),	cmocka_unit_test(test_no_peek),
		cmocka_unit_test(test_no_touch),	cmocka_unit_test(test_no_look_at_all),
		cmocka_unit_test(test_fails),		cmocka_unit_test(test_special),
		cmocka_unit_test(test_secret),		cmocka_unit_test(test_known_bytes),
		cmocka_unit_test(test_known),		cmocka_unit_test(test_known_briefly),
		cmocka_unit_test(test_nothing_to_know), cmocka_unit_test(test_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
