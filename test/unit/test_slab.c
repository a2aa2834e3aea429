/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_slab: objects do not move, ids tell which are in use, and an id that has ended or was made up finds no object.
 *
 * Includes slab.c to fail its allocations: not to be linked with another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int allowed = -1; /* allocations that succeed, -1: all */

static bool allow(void)
{
	return allowed < 0 || allowed-- > 0;
}

static void *limited_realloc(void *old, size_t size)
{
	return allow() ? realloc(old, size) : NULL;
}

static void *limited_calloc(size_t count, size_t size)
{
	return allow() ? calloc(count, size) : NULL;
}

#define realloc limited_realloc
#define calloc limited_calloc
#include "base/slab.c"
#undef realloc
#undef calloc

struct thing {
	struct sc_slab_object slab;
	uint64_t number;
	uint8_t more[37];
};

static int reset(void **state)
{
	(void)state;
	allowed = -1;
	return 0;
}

/* The last one given back is the next one out; more are made only when none is free. */
static void test_reuse(void **state)
{
	struct sc_slab slab;
	void *objects[200];

	(void)state;
	sc_slab_init(&slab, sizeof(struct thing));
	for (uint32_t i = 0; i < 200; i++) {
		objects[i] = sc_slab_get(&slab);
		assert_non_null(objects[i]);
		assert_int_equal(sc_slab_used(&slab), i + 1);
	}
	for (uint32_t i = 0; i < 200; i++)
		sc_slab_put(&slab, objects[i]);
	assert_int_equal(sc_slab_used(&slab), 0);
	for (uint32_t i = 200; i-- > 0;)
		assert_ptr_equal(sc_slab_get(&slab), objects[i]);
	assert_int_equal(sc_slab_used(&slab), 200);
	sc_slab_fini(&slab);
}

static void test_objects_stay(void **state)
{
	struct thing *things[500];
	struct sc_slab slab;

	(void)state;
	sc_slab_init(&slab, sizeof(struct thing));
	for (uint32_t i = 0; i < 500; i++) {
		things[i] = sc_slab_get(&slab);
		assert_non_null(things[i]);
		assert_int_equal((uintptr_t)things[i] % 16, 0);
		things[i]->number = i;
		memset(things[i]->more, (int)i, sizeof(things[i]->more));
	}
	for (uint32_t i = 0; i < 500; i++) {
		assert_int_equal(things[i]->number, i);
		assert_int_equal(things[i]->more[36], (uint8_t)i);
		assert_ptr_equal(sc_slab_find(&slab, sc_slab_id(things[i])), things[i]);
		for (uint32_t j = 0; j < i; j++)
			assert_int_not_equal(things[i]->slab.index, things[j]->slab.index);
	}
	sc_slab_fini(&slab);
}

static void test_ids_that_are_none(void **state)
{
	struct thing *thing, *other;
	struct sc_slab slab;
	uint64_t id;

	(void)state;
	sc_slab_init(&slab, sizeof(struct thing));
	assert_null(sc_slab_find(&slab, 0));
	assert_null(sc_slab_find(&slab, 1ull << 32));
	assert_null(sc_slab_find(&slab, UINT64_MAX));
	thing = sc_slab_get(&slab);
	other = sc_slab_get(&slab);
	id = sc_slab_id(thing);
	assert_ptr_equal(sc_slab_find(&slab, id), thing);
	assert_ptr_equal(sc_slab_find(&slab, sc_slab_id(other)), other);
	assert_null(sc_slab_find(&slab, id + (1ull << 32)));
	assert_null(sc_slab_find(&slab, id - (1ull << 32)));
	assert_null(sc_slab_find(&slab, id + 2)); /* free: its generation is 0 */
	assert_null(sc_slab_find(&slab, 2));
	for (uint64_t index = 0; index < 300; index++) {
		assert_null(sc_slab_find(&slab, index));
		assert_null(sc_slab_find(&slab, index | 2ull << 32));
		assert_null(sc_slab_find(&slab, index | 3ull << 32));
		assert_null(sc_slab_find(&slab, index | (uint64_t)UINT32_MAX << 32));
	}
	assert_null(sc_slab_find(&slab, 1ull << 32 | 99)); /* in a chunk that is not there */
	assert_null(sc_slab_find(&slab, 1ull << 32 | 100));
	assert_null(sc_slab_find(&slab, 1ull << 32 | UINT32_MAX));
	sc_slab_put(&slab, thing);
	assert_null(sc_slab_find(&slab, id));
	assert_null(sc_slab_find(&slab, id + (1ull << 32)));
	assert_ptr_equal(sc_slab_get(&slab), thing);
	assert_null(sc_slab_find(&slab, id));
	assert_null(sc_slab_find(&slab, id + (1ull << 32))); /* it has no id yet, */
	assert_null(sc_slab_find(&slab, id + (2ull << 32))); /* not even the one that it will have */
	assert_ptr_equal(sc_slab_find(&slab, sc_slab_id(thing)), thing);
	assert_int_not_equal(sc_slab_id(thing), id);
	sc_slab_fini(&slab);
}

/*
 * An object that has been put back does not have its old id any more, whether it is in use again or not; an object
 * without an id gets none by the question.
 */
static void test_has_id(void **state)
{
	struct sc_slab slab;
	uint64_t id;
	void *object;

	(void)state;
	sc_slab_init(&slab, sizeof(struct thing));
	object = sc_slab_get(&slab);
	sc_slab_put(&slab, object);
	assert_ptr_equal(sc_slab_get(&slab), object);
	id = sc_slab_id(object);
	assert_int_equal(id >> 32, 1); /* the first */
	assert_true(sc_slab_has_id(object, id));
	assert_true(sc_slab_id(object) == id);
	sc_slab_put(&slab, object);
	assert_false(sc_slab_has_id(object, id));
	assert_ptr_equal(sc_slab_get(&slab), object);
	assert_false(sc_slab_has_id(object, id));
	assert_int_not_equal(sc_slab_id(object), id);
	assert_false(sc_slab_has_id(object, id));
	sc_slab_fini(&slab);
}

/* A stale id is not found again for 2^31 ids of its object; here for many. */
static void test_stale_ids(void **state)
{
	struct sc_slab slab;
	uint64_t first;
	void *object;

	(void)state;
	sc_slab_init(&slab, sizeof(struct thing));
	object = sc_slab_get(&slab);
	first = sc_slab_id(object);
	for (int i = 0; i < 100000; i++) {
		sc_slab_put(&slab, object);
		assert_null(sc_slab_find(&slab, first));
		object = sc_slab_get(&slab);
		assert_null(sc_slab_find(&slab, first));
		assert_ptr_equal(sc_slab_find(&slab, sc_slab_id(object)), object);
		assert_null(sc_slab_find(&slab, first));
	}
	sc_slab_fini(&slab);
}

static void test_no_memory(void **state)
{
	struct sc_slab slab;
	void *object;

	(void)state;
	sc_slab_init(&slab, sizeof(struct thing));
	allowed = 0;
	assert_null(sc_slab_get(&slab));
	assert_null(sc_slab_find(&slab, 1ull << 32));
	allowed = 1; /* the list of chunks grows, but there is no memory for the chunk */
	assert_null(sc_slab_get(&slab));
	assert_int_equal(sc_slab_used(&slab), 0);
	allowed = -1;
	for (int i = 0; i < 64; i++) {
		object = sc_slab_get(&slab);
		assert_non_null(object);
		(void)sc_slab_id(object);
	}
	allowed = 0;
	assert_null(sc_slab_get(&slab));
	assert_int_equal(sc_slab_used(&slab), 64);
	object = sc_slab_find(&slab, 1ull << 32);
	assert_non_null(object);
	sc_slab_put(&slab, object);
	assert_ptr_equal(sc_slab_get(&slab), object);
	sc_slab_fini(&slab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_reuse, reset),
		cmocka_unit_test_setup(test_objects_stay, reset),
		cmocka_unit_test_setup(test_ids_that_are_none, reset),
		cmocka_unit_test_setup(test_has_id, reset),
		cmocka_unit_test_setup(test_stale_ids, reset),
		cmocka_unit_test_setup(test_no_memory, reset),
	};

	return cmocka_run_group_tests_name("slab", tests, NULL, NULL);
}
