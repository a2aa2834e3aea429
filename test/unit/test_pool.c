/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_pool: the ledger of bounce buffers against a plain model: no buffer is lent twice, none is lost,
 * they come back by the position they were lent at, and are lent again first or last, as it is said.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/pool.h"

#define BORROWERS 5

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* Every buffer is free or in one queue, once. */
static void check_ledger(const struct sc_pool *pool, const struct sc_loans *loans, size_t borrowers)
{
	uint8_t *seen = calloc(pool->have, 1);
	uint32_t total = pool->free_count;

	assert_non_null(seen);
	for (uint32_t i = 0, buf = pool->free_first; i < pool->free_count; i++, buf = pool->next[buf]) {
		assert_true(buf < pool->have);
		assert_int_equal(seen[buf]++, 0);
		if (i + 1 == pool->free_count)
			assert_int_equal(pool->free_last, buf);
	}
	for (size_t b = 0; b < borrowers; b++) {
		uint16_t buf = loans[b].first;
		uint64_t at = 0;

		for (uint32_t i = 0; i < loans[b].count; i++) {
			assert_true(buf < pool->have);
			assert_int_equal(seen[buf]++, 0);
			assert_true(pool->at[buf] >= at);
			at = pool->at[buf];
			if (i + 1 == loans[b].count)
				assert_int_equal(loans[b].last, buf);
			buf = pool->next[buf];
			total++;
		}
	}
	assert_int_equal(total, pool->have);
	free(seen);
}

static void test_lend_and_return(void **state)
{
	struct sc_loans loans;
	struct sc_pool pool;
	uint16_t a, b, c;

	(void)state;
	assert_int_equal(sc_pool_init(&pool, 8, 8), 0);
	sc_loans_init(&loans);
	sc_pool_return(&pool, &loans, UINT64_MAX);
	a = sc_pool_lend(&pool, &loans, 0);
	b = sc_pool_lend(&pool, &loans, 0);
	c = sc_pool_lend(&pool, &loans, 1);
	assert_true(a != b && b != c && a != c);
	sc_pool_return(&pool, &loans, 0); /* position 0 is not read yet */
	assert_int_equal(loans.count, 3);
	sc_pool_return(&pool, &loans, 1);
	assert_int_equal(loans.count, 1);
	assert_int_equal(loans.first, c);
	assert_int_equal(pool.free_count, 7);
	sc_pool_reclaim(&pool, &loans);
	assert_int_equal(loans.count, 0);
	check_ledger(&pool, &loans, 1);
	sc_pool_fini(&pool);
	assert_int_equal(pool.count, 0);
}

/* All that is before a position comes back but for some, whichever of them those are. */
static void test_return_others(void **state)
{
	enum { LENT = 5 };

	(void)state;
	for (uint32_t mask = 0; mask < 1u << LENT; mask++)
		for (uint32_t head = 0; head < LENT + 2; head++) {
			uint32_t before = head < LENT ? head : LENT, left = LENT - before, kept_count = 0;
			uint16_t kept[LENT + 1], buf;
			struct sc_loans loans;
			struct sc_pool pool;

			assert_int_equal(sc_pool_init(&pool, 8, 8), 0);
			sc_loans_init(&loans);
			for (uint32_t i = 0; i < LENT; i++) {
				buf = sc_pool_lend(&pool, &loans, i);
				if (mask & 1u << i) {
					kept[kept_count++] = buf;
					left += i < before;
				}
			}
			sc_pool_return_others(&pool, &loans, head, kept, kept_count);
			assert_int_equal(loans.count, left);
			check_ledger(&pool, &loans, 1);
			buf = loans.first; /* those that are kept, and the rest behind them */
			for (uint32_t i = 0; i < LENT; i++)
				if (i >= before || mask & 1u << i) {
					assert_int_equal(pool.at[buf], i);
					buf = pool.next[buf];
				}
			for (uint32_t i = LENT; i < 8; i++)
				(void)sc_pool_lend(&pool, &loans, i);
			sc_pool_return(&pool, &loans, LENT);
			assert_int_equal(loans.count, 3);
			check_ledger(&pool, &loans, 1);
			sc_pool_fini(&pool);
		}
}

/* One after the other, each given back: always the same. */
static void test_turn(void **state)
{
	(void)state;
	for (uint32_t count = 1; count < 10; count++) {
		struct sc_loans loans;
		struct sc_pool pool;

		assert_int_equal(sc_pool_init(&pool, count, count), 0);
		sc_loans_init(&loans);
		for (uint32_t i = 0; i < 50; i++) {
			assert_int_equal(sc_pool_lend(&pool, &loans, i), 0);
			sc_pool_return(&pool, &loans, i + 1);
		}
		check_ledger(&pool, &loans, 1);
		sc_pool_fini(&pool);
	}
}

static void test_against_model(void **state)
{
	struct sc_loans loans[BORROWERS];
	uint64_t random = 1, at[BORROWERS] = { 0 }, head[BORROWERS] = { 0 };
	struct sc_pool pool;

	(void)state;
	assert_int_equal(sc_pool_init(&pool, 37, 3), 0);
	for (int i = 0; i < BORROWERS; i++)
		sc_loans_init(&loans[i]);
	for (int round = 0; round < 100000; round++) {
		uint32_t who = next_random(&random) % BORROWERS;
		uint32_t want = 1 + next_random(&random) % 4;

		switch (next_random(&random) % 16) {
		case 0:
			sc_pool_reclaim(&pool, &loans[who]);
			assert_int_equal(loans[who].count, 0);
			break;
		case 1 ... 6:
			if (head[who] < at[who])
				head[who] += 1 + next_random(&random) % (at[who] - head[who]);
			sc_pool_return(&pool, &loans[who], head[who]);
			break;
		default:
			if (!sc_pool_may_lend(&pool, &loans[who], want, 0))
				break;
			if (!sc_pool_has(&pool,
					 want)) /* as if there had been memory for all from the start */
				sc_pool_grow(&pool, pool.have + want < 37 ? pool.have + want : 37);
			assert_true(sc_pool_has(&pool, want));
			while (want--)
				sc_pool_lend(&pool, &loans[who], at[who]);
			at[who]++;
		}
		if (round % 16 == 0)
			check_ledger(&pool, loans, BORROWERS);
	}
	for (int i = 0; i < BORROWERS; i++)
		sc_pool_reclaim(&pool, &loans[i]);
	assert_true(pool.have > 30);
	assert_int_equal(pool.free_count, pool.have);
	sc_pool_fini(&pool);
}

static void test_more_than_there_are(void **state)
{
	struct sc_loans loans;
	struct sc_pool pool;

	(void)state;
	assert_int_equal(sc_pool_init(&pool, 2, 2), 0);
	sc_loans_init(&loans);
	assert_true(sc_pool_may_lend(&pool, &loans, 2, 0));
	assert_false(sc_pool_may_lend(&pool, &loans, 3, 0));
	assert_false(sc_pool_may_lend(&pool, &loans, UINT32_MAX, 0));
	sc_pool_lend(&pool, &loans, 0);
	sc_pool_lend(&pool, &loans, 0);
	assert_false(sc_pool_may_lend(&pool, &loans, 1, 0));
	sc_pool_fini(&pool);
}

/* One borrower that gives nothing back leaves some for a second one. */
static void test_one_cannot_take_all(void **state)
{
	(void)state;
	for (uint32_t count = 8; count <= 4096; count *= 2) {
		struct sc_loans greedy, other;
		struct sc_pool pool;

		assert_int_equal(sc_pool_init(&pool, count, count), 0);
		sc_loans_init(&greedy);
		sc_loans_init(&other);
		while (sc_pool_may_lend(&pool, &greedy, 1, 0))
			sc_pool_lend(&pool, &greedy, 0);
		assert_true(greedy.count >= count / 2);
		assert_true(pool.free_count);
		assert_true(sc_pool_may_lend(&pool, &other, 1, 0));
		sc_pool_reclaim(&pool, &greedy);
		sc_pool_fini(&pool);
	}
}

/* sc_pool_may_lend() counts buffers without memory, until there is no memory for them; the oldest are lent first. */
static void test_grow(void **state)
{
	struct sc_loans loans;
	struct sc_pool pool;

	(void)state;
	assert_int_equal(sc_pool_init(&pool, 8, 2), 0);
	sc_loans_init(&loans);
	assert_int_equal(sc_pool_lend(&pool, &loans, 0), 0);
	assert_true(sc_pool_has(&pool, 1));
	assert_false(sc_pool_has(&pool, 2));
	assert_true(sc_pool_may_lend(&pool, &loans, 3, 4));
	assert_false(sc_pool_may_lend(&pool, &loans, 4, 4));
	sc_pool_grow(&pool, 4);
	assert_true(sc_pool_has(&pool, 3));
	for (uint16_t i = 1; i < 4; i++)
		assert_int_equal(sc_pool_lend(&pool, &loans, 0), i);
	sc_pool_grow_failed(&pool);
	assert_int_equal(pool.count, 4);
	assert_false(sc_pool_may_lend(&pool, &loans, 1, 0));
	sc_pool_return(&pool, &loans, 1);
	assert_false(sc_pool_may_lend(&pool, &loans, 5, 0));
	check_ledger(&pool, &loans, 1);
	sc_pool_grow(&pool, 8); /* by now there is memory */
	assert_int_equal(pool.count, 8);
	assert_true(sc_pool_may_lend(&pool, &loans, 6, 0));
	check_ledger(&pool, &loans, 1);
	sc_pool_fini(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lend_and_return),	    cmocka_unit_test(test_turn),
		cmocka_unit_test(test_against_model),	    cmocka_unit_test(test_more_than_there_are),
		cmocka_unit_test(test_one_cannot_take_all), cmocka_unit_test(test_grow),
		cmocka_unit_test(test_return_others),
	};

	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
