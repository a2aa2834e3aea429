/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_cma: reads and writes of another process's memory: which bytes arrive, where a copy stops, and that no byte
 * that is read is believed without the cookie.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>
#include "os/cma.h"
#include "core_pair.h"
#include "base/iov.h"

#define PARTS 16
#define PAGE ((size_t)4096)

/* In a child the same addresses mean its own copies of these. */
static uint64_t cookie = 0x1122334455667788;
static uint8_t there[PARTS * 1000];
static uint8_t *pages; /* 4 pages, the third is not mapped */

static struct child child;
static struct sc_cma to_child, to_self;

static void child_serve(struct child *self, void *arg)
{
	(void)arg;
	cookie = 0x99aabbccddeeff00;
	pattern_fill(there, 0, sizeof(there), 77);
	pattern_fill(pages, 0, 2 * PAGE, 88);
	child_tell(self, "ready");
	child_wait(self);
}

static int group_setup(void **state)
{
	pair_setup(state);
	pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || mprotect(pages + 2 * PAGE, PAGE, PROT_NONE))
		return -1;
	to_self = (struct sc_cma){ getpid(), (uintptr_t)&cookie, cookie };
	if (!child_start(&child, child_serve, NULL))
		return -1;
	to_child = (struct sc_cma){ child.pid, (uintptr_t)&cookie, 0x99aabbccddeeff00 };
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	munmap(pages, 4 * PAGE);
	return child_end(&child);
}

static void need_cma(void)
{
	if (sc_cma_read(&to_child, &(struct sc_cma_copy){ 0 }))
		skip();
}

static void test_self(void **state)
{
	uint8_t here[1000];
	struct iovec local = { here, sizeof(here) }, remote = { there, sizeof(here) };

	(void)state;
	if (!cma_allowed())
		skip();
	pattern_fill(there, 0, sizeof(there), 5);
	assert_int_equal(sc_cma_read(&to_self, &(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(here) }), 0);
	assert_true(pattern_is(here, 0, sizeof(here), 5));
}

static void test_child(void **state)
{
	uint8_t here[sizeof(there)];
	struct iovec local = { here, sizeof(here) }, remote = { there, sizeof(there) };

	(void)state;
	need_cma();
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(here) }), 0);
	assert_true(pattern_is(here, 0, sizeof(here), 77));
}

/* Sixteen elements on each side, of different cuts. */
static void test_vectors(void **state)
{
	uint8_t *here = guarded_alloc(sizeof(there));
	struct iovec local[PARTS], remote[PARTS];
	size_t cut[PARTS + 1] = { 0 };

	(void)state;
	need_cma();
	for (size_t i = 0; i < PARTS; i++) {
		cut[i + 1] = i + 1 < PARTS ? (i + 1) * (i + 2) * 50 : sizeof(there);
		local[i] = (struct iovec){ here + cut[i], cut[i + 1] - cut[i] };
		remote[i] = (struct iovec){ there + i * 1000, 1000 };
	}
	assert_int_equal(sc_cma_read(&to_child,
			&(struct sc_cma_copy){ local, PARTS, remote, PARTS, sizeof(there) }), 0);
	assert_true(pattern_is(here, 0, sizeof(there), 77));
	assert_true(guarded_intact(here, sizeof(there), sizeof(there)));
	guarded_free(here);
}

/* Only the first bytes of both vectors. */
static void test_part(void **state)
{
	uint8_t *here = guarded_alloc(sizeof(there));
	struct iovec local[2] = { { here, 10 }, { here + 10, sizeof(there) - 10 } };
	struct iovec remote[2] = { { there, 700 }, { there + 700, sizeof(there) - 700 } };

	(void)state;
	need_cma();
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ local, 2, remote, 2, 777 }), 0);
	assert_true(pattern_is(here, 0, 777, 77));
	assert_true(guarded_intact(here, sizeof(there), 777));
	guarded_free(here);
}

static void test_nothing(void **state)
{
	(void)state;
	need_cma();
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ 0 }), 0);
}

/* A bad address in each place of the vector, also in the middle of an element. */
static void test_fault_at_each_element(void **state)
{
	uint8_t here[PARTS * 1000];
	struct iovec local = { here, sizeof(here) }, remote[PARTS];

	(void)state;
	need_cma();
	for (size_t bad = 0; bad < PARTS; bad++) {
		for (size_t i = 0; i < PARTS; i++)
			remote[i] = (struct iovec){ there + i * 1000, 1000 };
		remote[bad].iov_base = pages + 2 * PAGE;
		assert_int_equal(sc_cma_read(&to_child,
				&(struct sc_cma_copy){ &local, 1, remote, PARTS, sizeof(here) }), -EFAULT);
		remote[bad].iov_base = pages + 2 * PAGE - 500;
		assert_int_equal(sc_cma_read(&to_child,
				&(struct sc_cma_copy){ &local, 1, remote, PARTS, sizeof(here) }), -EFAULT);
		remote[bad].iov_base = (void *)16;
		assert_int_equal(sc_cma_read(&to_child,
				&(struct sc_cma_copy){ &local, 1, remote, PARTS, sizeof(here) }), -EFAULT);
	}
	remote[0] = (struct iovec){ pages, 3 * PAGE };
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ &local, 1, remote, 1, 3 * PAGE }), -EFAULT);
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ &local, 1, remote, 1, 2 * PAGE }), 0);
	assert_true(pattern_is(here, 0, 2 * PAGE, 88));
}

/* This process's own buffer is bad. */
static void test_fault_here(void **state)
{
	struct iovec local[2] = { { pages, PAGE }, { pages + 2 * PAGE, PAGE } };
	struct iovec remote = { there, 2 * PAGE };

	(void)state;
	need_cma();
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ local, 2, &remote, 1, 2 * PAGE }), -EFAULT);
}

static void test_wrong_cookie(void **state)
{
	uint8_t here[64];
	struct iovec local = { here, sizeof(here) }, remote = { there, sizeof(here) };
	struct sc_cma cma = to_child;

	(void)state;
	need_cma();
	cma.cookie ^= 1;
	assert_int_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(here) }), -ESRCH);
	assert_int_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ 0 }), -ESRCH);
	cma = to_child;
	cma.cookie_addr = (uintptr_t)pages + 2 * PAGE; /* data can be read, the cookie not */
	assert_int_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(here) }), -ESRCH);
	cma.cookie_addr = (uintptr_t)pages + 2 * PAGE - 4; /* half of it */
	assert_int_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(here) }), -ESRCH);
	cma = to_child;
	cma.pid = getpid(); /* alive, the same addresses, another process */
	assert_int_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(here) }), -ESRCH);
}

static void leave(struct child *self, void *arg)
{
	(void)arg;
	child_tell(self, "leaving");
}

static void test_dead(void **state)
{
	uint8_t here[64];
	struct iovec local = { here, sizeof(here) }, remote = { there, sizeof(here) };
	struct sc_cma cma = to_self;
	struct child dead;

	(void)state;
	need_cma();
	assert_true(child_start(&dead, leave, NULL));
	cma.pid = dead.pid;
	assert_int_equal(child_reap(&dead), 0);
	assert_int_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(here) }), -ESRCH);
	assert_int_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ 0 }), -ESRCH);
}

/* Ended, not waited for: it has no memory any more. */
static void test_zombie(void **state)
{
	struct sc_cma cma = to_self;
	struct child dead;
	siginfo_t info;

	(void)state;
	need_cma();
	assert_true(child_start(&dead, leave, NULL));
	assert_int_equal(waitid(P_PID, (id_t)dead.pid, &info, WEXITED | WNOWAIT), 0);
	cma.pid = dead.pid;
	assert_int_not_equal(sc_cma_read(&cma, &(struct sc_cma_copy){ 0 }), 0);
	assert_int_equal(child_reap(&dead), 0);
}

/* A write that is cut differently on both sides puts the right bytes there, and changes no byte beside them. */
static void test_write(void **state)
{
	uint8_t out[5000], back[sizeof(there)];
	struct iovec local[3] = { { out, 1000 }, { out + 1000, 0 }, { out + 1000, 4000 } };
	struct iovec remote[2] = { { there + 100, 2500 }, { there + 3000, 2500 } };
	struct iovec all = { there, sizeof(there) }, whole = { back, sizeof(back) };
	size_t moved;

	(void)state;
	need_cma();
	pattern_fill(out, 0, sizeof(out), 3);
	assert_int_equal(sc_cma_write(to_child.pid,
			&(struct sc_cma_copy){ local, 3, remote, 2, sizeof(out) }, &moved), 0);
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ &whole, 1, &all, 1, sizeof(back) }), 0);
	assert_memory_equal(back + 100, out, 2500);
	assert_memory_equal(back + 3000, out + 2500, 2500);
	assert_true(pattern_is(back, 0, 100, 77));
	assert_true(pattern_is(back + 2600, 2600, 400, 77));
	assert_true(pattern_is(back + 5500, 5500, sizeof(back) - 5500, 77));
	pattern_fill(back, 0, sizeof(back), 77);
	assert_int_equal(sc_cma_write(to_child.pid,
			&(struct sc_cma_copy){ &whole, 1, &all, 1, sizeof(back) }, &moved), 0);
	/* the first bytes of one element on each side */
	memset(back, 0x5a, sizeof(back));
	assert_int_equal(
		sc_cma_write(to_child.pid, &(struct sc_cma_copy){ &whole, 1, &all, 1, 10 }, &moved), 0);
	assert_int_equal(moved, 10);
	assert_int_equal(sc_cma_read(&to_child, &(struct sc_cma_copy){ &whole, 1, &all, 1, sizeof(back) }),
			 0);
	assert_true(pattern_is(back + 10, 10, sizeof(back) - 10, 77));
	pattern_fill(back, 0, 10, 77);
	assert_int_equal(
		sc_cma_write(to_child.pid, &(struct sc_cma_copy){ &whole, 1, &all, 1, 10 }, &moved), 0);
}

static void test_write_fails(void **state)
{
	static uint8_t out[3 * PAGE];
	struct iovec local = { out, sizeof(out) }, remote = { pages, sizeof(out) };
	struct sc_cma nobody = { INT32_MAX, 0, 0 };
	size_t moved;

	(void)state;
	need_cma();
	assert_int_equal(sc_cma_write(to_child.pid,
			&(struct sc_cma_copy){ &local, 1, &remote, 1, sizeof(out) }, &moved), -EFAULT);
	assert_in_range(moved, PAGE, sizeof(out) - 1);
	assert_int_equal(sc_cma_write(to_child.pid, &(struct sc_cma_copy){ &local, 1, &remote, 1, PAGE }, &moved), 0);
	assert_int_equal(sc_cma_write(nobody.pid, &(struct sc_cma_copy){ &local, 1,
		&remote, 1, PAGE }, &moved), -ESRCH);
	assert_int_equal(sc_cma_write(nobody.pid, &(struct sc_cma_copy){ &local, 1, &remote, 1, 0 }, &moved), 0);
	local.iov_base = NULL;
	assert_int_equal(sc_cma_write(to_child.pid, &(struct sc_cma_copy){ &local, 1,
		&remote, 1, PAGE }, &moved), -EFAULT);
}

/* As many copies fit one call as sc_cma_together() says. */
static void test_together(void **state)
{
	static const size_t sizes[] = { 1, 4096, 8192, 16384, 20000, 32768, 50000, 65536, 131072 };
	static uint8_t bytes[131072];
	struct iovec iov[PARTS];

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (size_t elements = 1; elements <= PARTS && elements <= sizes[i]; elements++) {
			struct sc_cma_parts parts;
			size_t part = sizes[i] / elements;

			for (size_t k = 0; k < elements; k++)
				iov[k] = (struct iovec){ bytes + k * part,
							 k + 1 < elements ? part : sizes[i] - k * part };
			sc_cma_parts_init(&parts);
			while (sc_cma_has_room(&parts, elements, elements, sizes[i]))
				sc_cma_add(&parts, NULL,
					   &(struct sc_cma_copy){ iov, elements, iov, elements, sizes[i] },
					   0);
			assert_int_equal(parts.count, sc_cma_together(elements, sizes[i]));
			assert_int_equal(parts.all.len, parts.count * sizes[i]);
			assert_int_equal(parts.all.local_count, parts.count * elements);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_child),
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_part),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_fault_at_each_element),
		cmocka_unit_test(test_fault_here),
		cmocka_unit_test(test_wrong_cookie),
		cmocka_unit_test(test_dead),
		cmocka_unit_test(test_zombie),
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_fails),
	};

	return cmocka_run_group_tests_name("cma", tests, group_setup, group_teardown);
}
