/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_crossover: what a sender makes of the times that its copies have taken, which the test makes up; and
 * that messages go the way that it says.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core_pair.h"
#include "crossover.h"

#define BEGIN 32768u

static const struct sc_cost rendezvous = { .start = 2000, .per_kib = 50 };

/* Copies of 16 KiB, each so many nanoseconds a KiB. */
static void learn(struct sc_crossover *crossover, int count, int64_t per_kib)
{
	for (int i = 0; i < count; i++)
		sc_crossover_learn(crossover, &rendezvous, 16384, 16 * per_kib);
}

static struct sc_crossover begin(void)
{
	struct sc_crossover crossover;

	sc_crossover_init(&crossover, BEGIN, SC_CROSSOVER_MAX);
	return crossover;
}

static void test_near_and_far(void **state)
{
	struct sc_crossover crossover = begin();

	(void)state;
	assert_int_equal(crossover.eager_max, BEGIN); /* nothing is known */
	learn(&crossover, 1, 40);
	assert_int_equal(crossover.eager_max, SC_CROSSOVER_MAX); /* never dearer than a rendezvous */
	crossover = begin();
	learn(&crossover, 1, 100);
	assert_int_equal(crossover.eager_max, 2000 * 1024 / (125 - 50));
	crossover = begin();
	learn(&crossover, 1, 200);
	assert_int_equal(crossover.eager_max, 2000 * 1024 / (250 - 50));
	crossover = begin();
	learn(&crossover, 1, 2000);
	assert_int_equal(crossover.eager_max, SC_CROSSOVER_MIN);
}

/* The one that waited for a processor in the middle of it is a few milliseconds late. */
static void test_interrupted_copy(void **state)
{
	struct sc_crossover crossover = begin();
	uint32_t before;

	(void)state;
	learn(&crossover, 20, 100);
	before = crossover.eager_max;
	learn(&crossover, 1, 200000);
	assert_true(crossover.per_kib <= 175);
	assert_true(crossover.eager_max > before / 3);
	learn(&crossover, 10, 100);
	assert_true(crossover.eager_max > before - before / 100);
	/* the first of all is no better known: the next ones correct it */
	crossover = begin();
	learn(&crossover, 1, 200000);
	assert_int_equal(crossover.eager_max, SC_CROSSOVER_MIN);
	learn(&crossover, 20, 100);
	assert_true(crossover.eager_max > before - before / 100);
}

/* A scheduler has moved one of them. */
static void test_moves(void **state)
{
	struct sc_crossover crossover = begin();

	(void)state;
	for (int i = 0; i < 3; i++) {
		learn(&crossover, 40, 20);
		assert_int_equal(crossover.eager_max, SC_CROSSOVER_MAX);
		learn(&crossover, 40, 400);
		assert_in_range(crossover.eager_max, SC_CROSSOVER_MIN, 4700);
	}
}

static void test_which_are_timed(void **state)
{
	struct sc_crossover crossover = begin();
	int wanted = 0;

	(void)state;
	assert_false(sc_crossover_wants(&crossover, SC_CROSSOVER_MIN - 1));
	assert_true(sc_crossover_wants(&crossover, SC_CROSSOVER_MIN)); /* the first */
	for (int i = 0; i < 10 * SC_CROSSOVER_COPIES; i++)
		wanted += sc_crossover_wants(&crossover, 65536);
	assert_int_equal(wanted, 10);
}

/* One that is tried is timed; the larger the fewer, and none beyond what may go through buffers at all. */
static void test_tries(void **state)
{
	struct sc_crossover crossover = begin();
	int tried[2] = { 0, 0 };

	(void)state;
	for (int i = 0; i < 1024; i++)
		if (sc_crossover_tries(&crossover, 16384)) {
			tried[0]++;
			assert_true(sc_crossover_wants(&crossover, 16384));
		}
	for (int i = 0; i < 1024; i++)
		tried[1] += sc_crossover_tries(&crossover, 65536);
	assert_int_equal(tried[0], 16);
	assert_int_equal(tried[1], 4);
	for (int i = 0; i < 1024; i++)
		assert_false(sc_crossover_tries(&crossover, 65537));
}

/* Whoever has said a size gets it. */
static void test_fixed(void **state)
{
	struct sc_crossover crossover;

	(void)state;
	sc_crossover_init(&crossover, BEGIN, 0);
	for (int i = 0; i < 1024; i++) {
		assert_false(sc_crossover_wants(&crossover, 16384));
		assert_false(sc_crossover_tries(&crossover, 65536));
	}
	assert_int_equal(crossover.eager_max, BEGIN);
}

/* Whatever the clock says, and the machine. */
static void test_ranges(void **state)
{
	static const int64_t times[] = { INT64_MIN, -1, 0, 1, 1000, 10000000000, INT64_MAX };
	static const uint32_t costs[] = { 0, 1, 2000, UINT32_MAX };
	static const uint32_t limits[] = { 4096, 8192, 65536, 1u << 24 };

	(void)state;
	for (size_t l = 0; l < 4; l++)
		for (size_t i = 0; i < 7 * 7 * 16; i++) {
			const struct sc_cost cost = { costs[i / 49 % 4], costs[i / 49 / 4] };
			struct sc_crossover crossover;

			sc_crossover_init(&crossover, BEGIN, limits[l]);
			sc_crossover_learn(&crossover, &cost, 4096, times[i % 7]);
			assert_in_range(crossover.eager_max, SC_CROSSOVER_MIN, SC_CROSSOVER_MAX);
			sc_crossover_learn(&crossover, &cost, 65536, times[i / 7 % 7]);
			assert_in_range(crossover.eager_max, SC_CROSSOVER_MIN, SC_CROSSOVER_MAX);
			assert_true(crossover.eager_max <= limits[l]);
			assert_true(crossover.per_kib > 0);
		}
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint8_t from[65536], to[65536];

static void message(struct end *pair, size_t size)
{
	assert_int_equal(end_recv(&pair[1], NULL, to, size, 7, SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, size, 7, SC_TAGGED), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[1].rx).err, 0);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
}

static void test_messages_adapt(void **state)
{
	struct sc_ep_attr attr = end_attr();
	const struct sc_counters *sent;
	struct end pair[2];

	(void)state;
	attr.config.adapt = true;
	pair_open(pair, &attr, WAY_LOCAL);
	sent = sc_ep_counters(pair[0].ep);
	message(pair, 16384);
	assert_int_equal(sent->tx_bounce, 1);
	assert_true(pair[0].peer->crossover.per_kib > 0); /* it has been timed */
	/* far apart: one in 64 shows how far */
	for (int i = 0; i < 128; i++) {
		pair[0].peer->crossover.eager_max = SC_CROSSOVER_MIN;
		message(pair, 16384);
	}
	assert_int_equal(sent->tx_bounce, 1 + 2);
	assert_int_equal(sent->tx_rdv, 126);
	/* close together, beyond what it began with */
	pair[0].peer->crossover.copies = 1;
	pair[0].peer->crossover.eager_max = 65536;
	message(pair, 65536);
	assert_int_equal(sent->tx_bounce, 4);
	pair_close(pair);
}

/* Of a peer that cannot read our memory nothing is to be gained by rendezvous. */
static void test_messages_without_cma(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end pair[2];

	(void)state;
	attr.config.adapt = true;
	pair_open(pair, &attr, WAY_PULL);
	pair[0].peer->crossover.eager_max = SC_CROSSOVER_MIN;
	message(pair, 16384);
	assert_int_equal(sc_ep_counters(pair[0].ep)->tx_rdv, 1);
	assert_int_equal(pair[0].peer->crossover.eager_max, BEGIN);
	for (int i = 0; i < 16; i++)
		message(pair, 16384);
	assert_int_equal(sc_ep_counters(pair[0].ep)->tx_rdv, 1);
	assert_int_equal(pair[0].peer->crossover.per_kib, 0); /* and no time is spent on it */
	pair_close(pair);
}

/* Without being asked for it nothing of the kind. */
static void test_messages_fixed(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end pair[2];

	(void)state;
	attr.config.eager_max = 8192;
	pair_open(pair, &attr, WAY_LOCAL);
	for (int i = 0; i < 100; i++) {
		message(pair, 8192);
		message(pair, 8193);
	}
	assert_int_equal(sc_ep_counters(pair[0].ep)->tx_bounce, 100);
	assert_int_equal(sc_ep_counters(pair[0].ep)->tx_rdv, 100);
	assert_int_equal(pair[0].peer->crossover.per_kib, 0);
	pair_close(pair);
}

/* What is large enough to gain by it is copied by both, as soon as it goes by rendezvous. */
static void test_messages_shared(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end pair[2];

	(void)state;
	if (!cma_allowed())
		skip();
	attr.config.adapt = true;
	for (int large = 0; large < 2; large++) {
		bool shared = false;

		pair_open(pair, &attr, WAY_CMA);
		pair[0].peer->crossover.eager_max = SC_CROSSOVER_MIN;
		assert_int_equal(end_recv(&pair[1], NULL, to, 16384, 7, SC_TAGGED), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 16383 + (size_t)large, 7, SC_TAGGED), 0);
		for (int i = 0; i < 8; i++) {
			(void)sc_ep_poll(pair[1].ep);
			shared |= pair[1].peer->shares != 0;
		}
		assert_int_equal(shared, large);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		pair_close(pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_near_and_far),
		cmocka_unit_test(test_interrupted_copy),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_which_are_timed),
		cmocka_unit_test(test_tries),
		cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_messages_adapt),
		cmocka_unit_test(test_messages_without_cma),
		cmocka_unit_test(test_messages_fixed),
		cmocka_unit_test(test_messages_shared),
	};

	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
