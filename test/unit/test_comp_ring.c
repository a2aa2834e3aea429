/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_comp_ring: order, growth at every fill and position, what a reader holds while the queue grows, overrun.
 *
 * Includes comp_ring.c to fail its allocations: not to be linked with another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static bool no_memory;

static void *limited_aligned_alloc(size_t alignment, size_t size)
{
	return no_memory ? NULL : aligned_alloc(alignment, size);
}

#define aligned_alloc limited_aligned_alloc
#include "base/comp_ring.c"
#undef aligned_alloc

static int reset(void **state)
{
	(void)state;
	no_memory = false;
	return 0;
}

/* A completion that shows its number in every field of note. */
static struct sc_comp comp_of(size_t number)
{
	return (struct sc_comp){
		.context = (void *)(uintptr_t)number,
		.cq_flags = ~number,
		.data = number * 3,
		.tag = number << 40,
		.olen = number + 1,
		.err = (int)number,
		.flags = SC_COMP_DATA,
	};
}

static void put(struct sc_comp_ring *cq, size_t number)
{
	struct sc_comp comp = comp_of(number);

	sc_comp_ring_put_slow(cq, &comp);
}

static void check_comp(const struct sc_comp *comp, size_t number)
{
	struct sc_comp expected = comp_of(number);

	assert_non_null(comp);
	assert_ptr_equal(comp->context, expected.context);
	assert_int_equal(comp->cq_flags, expected.cq_flags);
	assert_int_equal(comp->data, expected.data);
	assert_int_equal(comp->tag, expected.tag);
	assert_int_equal(comp->olen, expected.olen);
	assert_int_equal(comp->err, expected.err);
	assert_int_equal(comp->flags, expected.flags);
}

static void take(struct sc_comp_ring *cq, size_t number)
{
	check_comp(sc_comp_ring_peek(cq), number);
	sc_comp_ring_release(cq);
}

static void test_sizes(void **state)
{
	static const size_t wanted[] = { 0, 1, 2, 3, 4, 5, 1000, 1024 };
	static const size_t mask[] = { 0, 0, 1, 3, 3, 7, 1023, 1023 };
	struct sc_comp_ring cq;

	(void)state;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		assert_int_equal(sc_comp_ring_init(&cq, wanted[i]), 0);
		assert_int_equal(cq.mask, mask[i]);
		assert_int_equal((uintptr_t)sc_comp_ring_next(&cq) % 64, 0); /* a cache line of its own */
		assert_null(sc_comp_ring_peek(&cq));
		assert_false(sc_comp_ring_is_overrun(&cq));
		sc_comp_ring_fini(&cq);
	}
}

static void test_init_no_memory(void **state)
{
	struct sc_comp_ring cq;

	(void)state;
	assert_int_equal(sc_comp_ring_init(&cq, SIZE_MAX), -ENOMEM);
	assert_int_equal(sc_comp_ring_init(&cq, SIZE_MAX / 2 + 1), -ENOMEM);
	assert_int_equal(sc_comp_ring_init(&cq, SIZE_MAX / sizeof(struct sc_comp)), -ENOMEM);
	no_memory = true;
	assert_int_equal(sc_comp_ring_init(&cq, 1), -ENOMEM);
}

static void test_order_without_growth(void **state)
{
	struct sc_comp_ring cq;
	size_t in = 0, out = 0;

	(void)state;
	assert_int_equal(sc_comp_ring_init(&cq, 8), 0);
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 1 + round % 8; i++)
			put(&cq, in++);
		while (out < in)
			take(&cq, out++);
		assert_null(sc_comp_ring_peek(&cq));
	}
	assert_int_equal(cq.mask, 7);
	sc_comp_ring_fini(&cq);
}

static void test_reserve_and_commit(void **state)
{
	struct sc_comp_ring cq;
	struct sc_comp *slot;

	(void)state;
	assert_int_equal(sc_comp_ring_init(&cq, 1), 0);
	slot = sc_comp_ring_reserve(&cq);
	*slot = comp_of(1);
	assert_null(sc_comp_ring_peek(&cq)); /* not published yet */
	assert_ptr_equal(sc_comp_ring_reserve(&cq), slot);
	sc_comp_ring_commit(&cq);
	slot = sc_comp_ring_reserve(&cq); /* grows */
	*slot = comp_of(2);
	sc_comp_ring_commit(&cq);
	take(&cq, 1);
	take(&cq, 2);
	assert_null(sc_comp_ring_peek(&cq));
	sc_comp_ring_fini(&cq);
}

/* Growth with the oldest at each position of the ring. */
static void test_growth_at_every_position(void **state)
{
	(void)state;
	for (size_t start = 0; start < 8; start++) {
		struct sc_comp_ring cq;

		assert_int_equal(sc_comp_ring_init(&cq, 4), 0);
		for (size_t i = 0; i < start; i++) {
			put(&cq, i);
			take(&cq, i);
		}
		for (size_t i = 0; i < 100; i++)
			put(&cq, 1000 + i);
		assert_int_equal(cq.mask, 127);
		for (size_t i = 0; i < 100; i++)
			take(&cq, 1000 + i);
		assert_null(sc_comp_ring_peek(&cq));
		sc_comp_ring_fini(&cq);
	}
}

static void test_counters_wrap(void **state)
{
	struct sc_comp_ring cq;

	(void)state;
	assert_int_equal(sc_comp_ring_init(&cq, 4), 0);
	cq.head = cq.tail = SIZE_MAX - 2;
	for (size_t i = 0; i < 20; i++)
		put(&cq, i);
	for (size_t i = 0; i < 20; i++)
		take(&cq, i);
	assert_null(sc_comp_ring_peek(&cq));
	sc_comp_ring_fini(&cq);
}

/* "It stays valid until it is released", whatever is added meanwhile. */
static void test_peeked_stays_valid(void **state)
{
	struct sc_comp_ring cq;
	struct sc_comp *peeked;

	(void)state;
	assert_int_equal(sc_comp_ring_init(&cq, 2), 0);
	put(&cq, 0);
	peeked = sc_comp_ring_peek(&cq);
	for (size_t i = 1; i < 1000; i++)
		put(&cq, i);
	check_comp(peeked, 0);
	for (size_t i = 0; i < 1000; i++)
		take(&cq, i);
	sc_comp_ring_fini(&cq);
}

static void test_overrun(void **state)
{
	struct sc_comp_ring cq;

	(void)state;
	assert_int_equal(sc_comp_ring_init(&cq, 4), 0);
	for (size_t i = 0; i < 4; i++)
		put(&cq, i);
	assert_false(sc_comp_ring_is_overrun(&cq));
	no_memory = true;
	put(&cq, 4);
	assert_true(sc_comp_ring_is_overrun(&cq));
	take(&cq, 0);
	/* Room and memory again; but 4 is lost, so nothing comes after 3. */
	no_memory = false;
	put(&cq, 5);
	assert_null(sc_comp_ring_reserve(&cq));
	take(&cq, 1);
	take(&cq, 2);
	take(&cq, 3);
	assert_null(sc_comp_ring_peek(&cq));
	assert_true(sc_comp_ring_is_overrun(&cq));
	sc_comp_ring_fini(&cq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_sizes, reset),
		cmocka_unit_test_setup(test_init_no_memory, reset),
		cmocka_unit_test_setup(test_order_without_growth, reset),
		cmocka_unit_test_setup(test_reserve_and_commit, reset),
		cmocka_unit_test_setup(test_growth_at_every_position, reset),
		cmocka_unit_test_setup(test_counters_wrap, reset),
		cmocka_unit_test_setup(test_peeked_stays_valid, reset),
		cmocka_unit_test_setup(test_overrun, reset),
	};

	return cmocka_run_group_tests_name("cq", tests, NULL, NULL);
}
