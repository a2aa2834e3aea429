/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_fill: each way, and a trial, write the given bytes into a buffer and change nothing beside it; a way that the
 * user gives stays; a trial ends with the better way of those that it has tried, and comes again later and later; for a
 * near reader only plain stores are tried; the known costs give the way that was measured to be better; bytes that are
 * fetched ahead do not change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/copy.h"
#include "shm/fill.h"

#define BUFFER 8192
#define GUARD 64

static uint8_t *buffer; /* BUFFER and GUARD bytes, aligned to a page */
static uint8_t source[BUFFER + GUARD];

static int begin(void **state)
{
	(void)state;
	buffer = aligned_alloc(4096, BUFFER + 4096);
	if (!buffer)
		return -1;
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)(i * 7 + i / 251);
	return 0;
}

static int end(void **state)
{
	(void)state;
	free(buffer);
	return 0;
}

static void check_fill(struct sc_fill *fill, size_t offset, size_t size)
{
	memset(buffer, 0xEE, BUFFER + GUARD);
	sc_fill_write(fill, buffer, source + offset, size);
	assert_memory_equal(buffer, source + offset, size);
	for (size_t i = size; i < size + GUARD; i++)
		assert_int_equal(buffer[i], 0xEE);
}

static void test_bytes(void **state)
{
	static const size_t sizes[] = { 0,    1,    63,	  64,	65,   1023, 1024, 1025, 1087,
					1088, 2000, 4032, 4095, 4096, 4097, 8191, 8192 };

	(void)state;
	for (int way = 0; way <= SC_FILL_TRIED; way++) {
		struct sc_fill fill;

		sc_fill_init(&fill, (enum sc_fill_way)way);
		for (int turn = 0; turn < 20; turn++)
			for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
				check_fill(&fill, (size_t)turn * 3 % 17, sizes[i]);
	}
}

static void test_given(void **state)
{
	(void)state;
	for (int way = 0; way < SC_FILL_WAYS; way++) {
		struct sc_fill fill;
		enum sc_fill_way first;

		sc_fill_init(&fill, (enum sc_fill_way)way);
		first = fill.way;
		assert_true(first == (enum sc_fill_way)way || first == SC_FILL_CACHED);
		for (int i = 0; i < 5000; i++) {
			sc_fill_write(&fill, buffer, source, SC_FILL_MIN);
			assert_int_equal(fill.way, first);
			assert_false(fill.trying);
		}
	}
}

/* One trial, in which each fill takes `longer` nanoseconds more: which ways it went through, in a mask. */
static unsigned int run_trial_of(struct sc_fill *fill, int64_t longer)
{
	unsigned int seen = 0;
	uint32_t pause = fill->left;

	for (uint32_t i = 0; i < pause; i++) {
		assert_false(fill->trying);
		assert_int_equal(fill->way, fill->best[SC_FILL_ALONE]);
		sc_fill_write(fill, buffer, source, SC_FILL_MIN);
	}
	assert_true(fill->trying);
	for (int i = 0; fill->trying; i++) {
		assert_true(i < 1000);
		assert_true(fill->way < SC_FILL_WAYS);
		seen |= 1u << fill->way;
		fill->timing = -longer;
		sc_fill_write(fill, buffer, source, SC_FILL_MIN);
	}
	assert_int_equal(fill->left, fill->pause);
	return seen;
}

static unsigned int run_trial(struct sc_fill *fill)
{
	return run_trial_of(fill, 0);
}

static void test_trials(void **state)
{
	struct sc_fill fill;
	uint32_t pause;

	(void)state;
	sc_fill_init(&fill, SC_FILL_TRIED);
	assert_int_equal(fill.way, SC_FILL_CACHED);
	for (int i = 0; i < 100; i++)
		sc_fill_write(&fill, buffer, source, SC_FILL_MIN - 1); /* too small to be told apart */
	for (int i = 0; i < 8; i++) {
		enum sc_fill_way best[SC_FILL_USES] = { fill.best[0], fill.best[1] };
		unsigned int seen;

		pause = fill.pause;
		seen = run_trial(&fill);
		assert_true(seen & 1u << SC_FILL_CACHED);
		assert_true(seen & 1u << fill.best[SC_FILL_ALONE] &&
			    seen & 1u << fill.best[SC_FILL_STREAM]);
		if (i)
			assert_true(memcmp(best, fill.best, sizeof(best)) ? fill.pause <= pause
									  : fill.pause >= pause);
		assert_int_not_equal(fill.costs.any[fill.best[SC_FILL_ALONE]], UINT32_MAX);
	}
}

/* Only where plain stores take long is the other way tried: as of a reader that is far. */
static void test_far(void **state)
{
	struct sc_fill fill;

	(void)state;
	sc_fill_init(&fill, SC_FILL_TRIED);
	assert_int_equal(run_trial_of(&fill, -1000000), 1u << SC_FILL_CACHED);
	assert_int_equal(fill.way, SC_FILL_CACHED);
#ifdef __x86_64__
	assert_int_equal(run_trial_of(&fill, 1000000), 1u << SC_FILL_CACHED | 1u << SC_FILL_STREAMED);
	assert_int_equal(fill.way, SC_FILL_STREAMED);
	assert_int_equal(run_trial_of(&fill, -1000000), 1u << SC_FILL_CACHED); /* it has come near */
#else
	assert_int_equal(run_trial_of(&fill, 1000000), 1u << SC_FILL_CACHED);
#endif
	assert_int_equal(fill.way, SC_FILL_CACHED);
}

/* The costs of large fills are known once a trial has had some. The first large fill makes the next trial come soon. */
static void test_large(void **state)
{
	struct sc_fill fill;

	(void)state;
	sc_fill_init(&fill, SC_FILL_TRIED);
	run_trial(&fill);
	assert_int_equal(fill.read_cost, 0);
	assert_true(fill.left > 1000);
	sc_fill_write(&fill, buffer, source, 4095);
	assert_true(fill.left > 1000);
	sc_fill_write(&fill, buffer, source, 4096);
	assert_true(fill.left < 1000);
	run_trial(&fill); /* none is large */
	assert_int_equal(fill.read_cost, 0);
	sc_fill_write(&fill, buffer, source, 4096);
	assert_true(fill.left > 1000);
	while (!fill.trying)
		sc_fill_write(&fill, buffer, source, SC_FILL_MIN);
	while (fill.trying)
		sc_fill_write(&fill, buffer, source, 4096);
	assert_true(fill.write_cost > 0);
	assert_true(fill.read_cost > 0);
	/* one whose way is given tries nothing */
	sc_fill_init(&fill, SC_FILL_CACHED);
	for (int i = 0; i < 5000; i++)
		sc_fill_write(&fill, buffer, source, 4096);
	assert_int_equal(fill.read_cost, 0);
}

/* A payload that does not go through buffers counts as a fill, and has trials too; with a given way it has none. */
static void test_trial_of_others(void **state)
{
	struct sc_fill fill;
	uint32_t left;

	(void)state;
	sc_fill_init(&fill, SC_FILL_TRIED);
	left = fill.left;
	for (uint32_t i = 1; i < left; i++)
		assert_false(sc_fill_has_trial(&fill));
	assert_true(sc_fill_has_trial(&fill));
	assert_true(fill.trying);
	while (fill.trying) {
		assert_true(sc_fill_has_trial(&fill));
		sc_fill_write(&fill, buffer, source, 4096);
	}
	assert_false(sc_fill_has_trial(&fill));
	sc_fill_init(&fill, SC_FILL_STREAMED);
	for (int i = 0; i < 5000; i++)
		assert_false(sc_fill_has_trial(&fill));
}

/* Fragments: a buffer is filled in parts, at any place in it. */
static void test_parts(void **state)
{
	(void)state;
	for (int way = 0; way <= SC_FILL_TRIED; way++)
		for (size_t place = 0; place < 130; place += 13)
			for (size_t size = SC_FILL_MIN; size < SC_FILL_MIN + 70; size += 7) {
				struct sc_fill fill;

				sc_fill_init(&fill, (enum sc_fill_way)way);
				memset(buffer, 0xEE, BUFFER);
				sc_fill_write(&fill, buffer + place, source, size);
				assert_memory_equal(buffer + place, source, size);
				for (size_t i = 0; i < place; i++)
					assert_int_equal(buffer[i], 0xEE);
				for (size_t i = place + size; i < place + size + GUARD; i++)
					assert_int_equal(buffer[i], 0xEE);
			}
}

/*
 * To fetch a buffer ahead does not change it; then that buffer is filled, or another one. Only some sizes are fetched
 * ahead, and none during a trial.
 */
static void test_fetched(void **state)
{
	static const size_t sizes[] = { 0, 100, 511, 512, 1024, 2000, 2048, 2049, 4096 };

	(void)state;
	for (int way = 0; way <= SC_FILL_TRIED; way++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
				size_t size = sizes[i];
				struct sc_fill fill;

				sc_fill_init(&fill, (enum sc_fill_way)way);
				memcpy(buffer, source + 1, BUFFER);
				sc_fill_fetch(&fill, buffer, size);
				assert_memory_equal(buffer, source + 1, BUFFER);
				assert_int_equal(
					fill.fetched_size,
					fill.way == SC_FILL_STREAMED && size >= 512 && size <= 2048 ? size
												    : 0);
				check_fill(&fill, i * j % 17, sizes[j]);
				sc_fill_write(&fill, buffer + 4096, source, sizes[j]);
				assert_memory_equal(buffer + 4096, source, sizes[j]);
			}
	for (int way = 0; way < SC_FILL_WAYS; way++) {
		struct sc_fill fill;

		sc_fill_init(&fill, SC_FILL_TRIED);
		sc_fill_begin_slow(&fill);
		fill.costs.any[SC_FILL_CACHED] = 100;
		fill.way = (enum sc_fill_way)way;
		sc_fill_fetch(&fill, buffer, 1024);
		assert_int_equal(fill.fetched_size, 0);
	}
}

/* Where the reader is far nothing is: the lines would come too late. */
static void test_fetched_too_late(void **state)
{
	struct sc_fill fill;

	(void)state;
	sc_fill_init(&fill, SC_FILL_STREAMED);
	fill.costs.any[SC_FILL_CACHED] = 201;
	sc_fill_fetch(&fill, buffer, 1024);
	assert_int_equal(fill.fetched_size, 0);
	check_fill(&fill, 1, 512);
	fill.costs.any[SC_FILL_CACHED] = 200;
	sc_fill_fetch(&fill, buffer, 1024);
#ifdef __x86_64__
	assert_int_equal(fill.fetched_size, 1024);
#else
	assert_int_equal(fill.fetched_size, 0); /* this processor does not stream */
#endif
}

/* The best by what each way took where it was measured, if plain stores or if that itself was the best so far. */
static void test_best(void **state)
{
#define NO UINT32_MAX
	static const struct {
		uint32_t costs[SC_FILL_WAYS];	     /* cached, streamed */
		enum sc_fill_way best[SC_FILL_USES]; /* alone, in a stream */
	} cases[] = {
		{ { 380, 78 },
		  { SC_FILL_STREAMED, SC_FILL_STREAMED } },	    /* Zen 4: no last cache in common */
		{ { 22, 72 }, { SC_FILL_CACHED, SC_FILL_CACHED } }, /* one core */
		{ { 25, 80 }, { SC_FILL_CACHED, SC_FILL_CACHED } }, /* Zen 5: one last cache */
		{ { 160, 55 }, { SC_FILL_STREAMED, SC_FILL_STREAMED } }, /* none */
		{ { 118, 145 }, { SC_FILL_CACHED, SC_FILL_STREAMED } },	 /* Xeon: a slow last cache */
		/* an eighth is asked for: of 150, and of 150 */
		{ { 100, 42 }, { SC_FILL_CACHED, SC_FILL_STREAMED } },
		{ { 100, 41 }, { SC_FILL_STREAMED, SC_FILL_STREAMED } },
		{ { 100, 132 }, { SC_FILL_CACHED, SC_FILL_CACHED } },
		{ { 100, 131 }, { SC_FILL_CACHED, SC_FILL_STREAMED } },
		{ { 60, NO }, { SC_FILL_CACHED, SC_FILL_CACHED } }, /* not tried */
	};
	static const uint32_t near[SC_FILL_WAYS] = { 99, NO };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (enum sc_fill_use use = SC_FILL_ALONE; use < SC_FILL_USES; use++) {
			enum sc_fill_way best = cases[i].best[use];

			assert_int_equal(sc_fill_best(cases[i].costs, use, SC_FILL_CACHED), best);
			assert_int_equal(sc_fill_best(cases[i].costs, use, best), best);
		}
	/* the better so far, if it has not been tried again, is not kept */
	assert_int_equal(sc_fill_best(near, SC_FILL_ALONE, SC_FILL_STREAMED), SC_FILL_CACHED);
	assert_int_equal(sc_fill_best(near, SC_FILL_STREAM, SC_FILL_STREAMED), SC_FILL_CACHED);
#undef NO
}

/* From the end on: nothing is left out, nothing else touched, whatever is left of the last block. */
static void test_backwards(void **state)
{
	static _Alignas(4096) uint8_t from[3 * 4096], to[3 * 4096];

	(void)state;
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 7 + i / 251);
	for (size_t size = 0; size <= 2 * 4096; size += size < 1100 ? 1 : 509)
		for (size_t offset = 0; offset < 34; offset += 11) {
			memset(to, 0xa5, sizeof(to));
			sc_copy_backwards(to + 64 + offset, from, size);
			assert_memory_equal(to + 64 + offset, from, size);
			for (size_t i = 0; i < 64 + offset; i++)
				assert_int_equal(to[i], 0xa5);
			for (size_t i = 64 + offset + size; i < 64 + offset + size + 300; i++)
				assert_int_equal(to[i], 0xa5);
		}
	for (size_t offset = 0; offset < 8192; offset++) {
		assert_int_equal(sc_copy_is_aliased(to + offset, from),
				 offset % 4096 >= 1 && offset % 4096 < 32);
		assert_int_equal(sc_copy_is_aliased(to, from + offset), offset % 4096 > 4096 - 32);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bytes, begin, end),
		cmocka_unit_test_setup_teardown(test_given, begin, end),
		cmocka_unit_test_setup_teardown(test_trials, begin, end),
		cmocka_unit_test_setup_teardown(test_far, begin, end),
		cmocka_unit_test_setup_teardown(test_large, begin, end),
		cmocka_unit_test_setup_teardown(test_trial_of_others, begin, end),
		cmocka_unit_test_setup_teardown(test_parts, begin, end),
		cmocka_unit_test_setup_teardown(test_fetched, begin, end),
		cmocka_unit_test_setup_teardown(test_fetched_too_late, begin, end),
		cmocka_unit_test(test_best),
		cmocka_unit_test(test_backwards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
