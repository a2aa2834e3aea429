/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_wake: the word that sleepers are woken by (wake.c), and when an endpoint may be slept on, and for how long
 * (sleep.c). That no order of two processes loses a wake-up is models/wait.pml's and test/multi/test_wait's.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <time.h>

#include <cmocka.h>

#include "core_pair.h"
#include "seg.h"
#include "wake.h"

#define MS INT64_C(1000000)
#define LOOKS 16 /* of sleep.c: looks in a row that find what polls do not take */

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Wakes so far, as who sleeps counts them. */
static uint32_t wakes(uint64_t word)
{
	return (uint32_t)word >> 16;
}

static void check_armed(uint64_t word, const struct sc_sleep *sleep, uint64_t who)
{
	assert_int_equal(word & SC_ABI_SLEEP_FLAGS, who);
	assert_ptr_not_equal(sleep->futex, NULL);
	assert_int_equal(sleep->seen, (uint32_t)word);
}

/* ---- the word -------------------------------------------------------------------------------- */

static void test_armed(void **state)
{
	struct sc_sleep first, second;
	uint64_t word = 0;

	(void)state;
	sc_sleep_arm(&word, SC_ABI_SLEEP_ASLEEP, &first);
	check_armed(word, &first, SC_ABI_SLEEP_ASLEEP);
	sc_sleep_arm(&word, SC_ABI_SLEEP_ROOM, &second);
	check_armed(word, &second, SC_ABI_SLEEP_FLAGS); /* what the first waits for stays */
	assert_int_not_equal(first.seen, second.seen);
	assert_int_equal(wakes(word), 0);
	sc_sleep_disarm(&word);
	assert_int_equal(word & SC_ABI_SLEEP_FLAGS, 0);
}

/* Armings are as many as fit below the wakes, and never change these. */
static void test_armings_wrap(void **state)
{
	uint64_t word = 5 << 16, before = 0;
	struct sc_sleep sleep;

	(void)state;
	for (int i = 0; i < 1 << 15; i++) {
		sc_sleep_arm(&word, SC_ABI_SLEEP_ASLEEP, &sleep);
		assert_true(word > before);
		assert_int_equal(wakes(word), 5);
		before = word;
	}
}

static void test_wake(void **state)
{
	struct sc_sleep sleep;
	uint64_t word = 0;

	(void)state;
	sc_wake(&word, SC_ABI_SLEEP_ASLEEP);
	assert_int_equal(word, 0); /* nobody sleeps: not even written to */
	sc_sleep_arm(&word, SC_ABI_SLEEP_ASLEEP, &sleep);
	sc_wake(&word, SC_ABI_SLEEP_ROOM);
	check_armed(word, &sleep, SC_ABI_SLEEP_ASLEEP); /* not what it sleeps for */
	sc_wake(&word, SC_ABI_SLEEP_ASLEEP);
	assert_int_equal(wakes(word), 1);
	assert_int_equal(word & SC_ABI_SLEEP_FLAGS, 0); /* the next record pays nothing */
	assert_int_equal(sc_sleep(&sleep, 1, INT64_MAX), 0);
	/* one that comes late counts, and finds nobody */
	sc_wake_slow(&word, SC_ABI_SLEEP_ASLEEP);
	assert_int_equal(wakes(word), 2);
}

/* Until the time that is given, which is over, or until the word is another; several words at once. */
static void test_sleep(void **state)
{
	uint64_t words[2] = { 0 };
	struct sc_sleep sleeps[2];
	int ret;

	(void)state;
	for (int i = 0; i < 2; i++)
		sc_sleep_arm(&words[i], SC_ABI_SLEEP_ASLEEP, &sleeps[i]);
	assert_int_equal(sc_sleep(sleeps, 1, now()), -ETIMEDOUT);
	ret = sc_sleep(sleeps, 2, now());
	assert_true(ret == -ETIMEDOUT || ret == -ENOSYS);
	sc_wake(&words[1], SC_ABI_SLEEP_ASLEEP);
	ret = sc_sleep(sleeps, 2, INT64_MAX);
	assert_true(ret == 0 || ret == -ENOSYS);
	assert_int_equal(sc_sleep(sleeps, SC_SLEEPS_MAX + 1, INT64_MAX), -ENOSYS);
	sc_sleep_bump(sleeps[0].futex);
	assert_int_equal(sc_sleep(sleeps, 1, INT64_MAX), 0);
}

/* ---- an endpoint ----------------------------------------------------------------------------- */

static struct end pair[2];

static uint64_t *word_of(const struct end *end)
{
	return &sc_seg_presence(end->ep->seg)->sleep;
}

/* Connected and at rest, so that nothing but what a test does limits a sleep. */
static void open_ends(enum way way)
{
	pair_open(pair, NULL, way);
	for (int i = 0; i < 2; i++) {
		pair[i].ep->alone = false;
		ends_settle(pair, 2);
		assert_true(sc_ep_is_idle(pair[i].ep));
	}
}

/* It may be slept on; `limit` in ms, 0: without one. */
static void check_rests(struct end *end, uint64_t who, int64_t limit)
{
	int64_t end_at = INT64_MAX, before = now();
	struct sc_sleep sleep;

	assert_int_equal(sc_ep_rest(end->ep, &sleep, &end_at), 0);
	check_armed(*word_of(end), &sleep, who);
	if (!limit)
		assert_true(end_at == INT64_MAX);
	else
		assert_true(end_at >= before + limit * MS && end_at <= now() + limit * MS);
}

/* Without the barrier the first look of a sleep is not the last. */
static int64_t barrier_ms(const struct end *end)
{
	return end->ep->barrier ? 0 : 1;
}

static void test_rest(void **state)
{
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;
	uint8_t byte = 7;
	uint64_t woken;

	(void)state;
	open_ends(WAY_LOCAL);
	assert_int_equal(*word_of(&pair[1]) & SC_ABI_SLEEP_FLAGS, 0);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, barrier_ms(&pair[1]));
	sleep = sc_ep_sleep(pair[1].ep);
	assert_int_equal(end_send(&pair[0], pair[0].peer, &byte, 1, 1, SC_TAGGED), 0);
	woken = *word_of(&pair[1]);
	assert_int_equal(woken & SC_ABI_SLEEP_FLAGS, 0);
	assert_int_equal(wakes(woken), (sleep.seen >> 16) + 1);
	/* who does not poll does not sleep */
	assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), -EAGAIN);
	assert_int_equal(sc_ep_poll(pair[1].ep) > 0, 1);
	assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), -EAGAIN);
	ends_settle(pair, 2);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, barrier_ms(&pair[1]));
	sc_ep_rise(pair[1].ep);
	assert_int_equal(*word_of(&pair[1]) & SC_ABI_SLEEP_FLAGS, 0);
	pair_close(pair);
}

/* A record that polls cannot take, for want of memory for instance, does not make it spin. */
static void test_stuck(void **state)
{
	int64_t limit = INT64_MAX, before = now();
	struct sc_sleep sleep;
	uint8_t byte = 7;

	(void)state;
	open_ends(WAY_LOCAL);
	assert_int_equal(end_send(&pair[0], pair[0].peer, &byte, 1, 1, SC_TAGGED), 0);
	for (int i = 0; i < LOOKS - 1; i++)
		assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), -EAGAIN);
	while (sc_ep_rest(pair[1].ep, &sleep, &limit) == -EAGAIN)
		;
	assert_true(limit >= before && limit <= now() + 10 * MS);
	pair_close(pair);
}

/* A send that found no room is told of it once there is some. */
static void test_room(void **state)
{
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;
	uint8_t byte = 7;
	int sent = 0, ret;

	(void)state;
	open_ends(WAY_LOCAL);
	assert_false(sc_ep_was_refused(pair[0].ep));
	while (!(ret = end_send(&pair[0], pair[0].peer, &byte, 1, 1, SC_TAGGED))) {
		sent++;
		(void)comp_take(&pair[0].tx);
	}
	assert_int_equal(ret, -EAGAIN);
	while (sc_ep_poll(pair[0].ep))
		;
	check_rests(&pair[0], SC_ABI_SLEEP_FLAGS, 20 * !barrier_ms(&pair[0]) + barrier_ms(&pair[0]));
	while (sc_ep_poll(pair[1].ep))
		;
	assert_int_equal(*word_of(&pair[0]) & SC_ABI_SLEEP_FLAGS, 0);
	assert_true(sc_ep_was_refused(pair[0].ep));
	assert_false(sc_ep_was_refused(pair[0].ep));
	ends_settle(pair, 2);
	assert_int_equal(sc_ep_rest(pair[0].ep, &sleep, &limit), 0);
	assert_int_equal(*word_of(&pair[0]) & SC_ABI_SLEEP_FLAGS, SC_ABI_SLEEP_ASLEEP);
	pair_close(pair);
}

/* Where the barrier is not to be had: one more look after a millisecond, then none. */
static void test_without_barrier(void **state)
{
	uint64_t armed;

	(void)state;
	open_ends(WAY_LOCAL);
	pair[1].ep->barrier = false;
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
	armed = *word_of(&pair[1]);
	pair[1].ep->armed_at -= 2 * MS;
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 0);
	assert_int_equal(*word_of(&pair[1]), armed); /* as the first time: it has been looked at since */
	pair_close(pair);
}

/* Somebody is to watch the peers. */
static void test_alone(void **state)
{
	(void)state;
	open_ends(WAY_LOCAL);
	if (pair[1].ep->barrier) {
		pair[1].ep->alone = true;
		check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 100);
	}
	pair_close(pair);
}

/* A wake is counted, a stir is not; both end a sleep. */
static void test_stir(void **state)
{
	struct sc_sleep before, after;

	(void)state;
	open_ends(WAY_LOCAL);
	before = sc_ep_sleep(pair[0].ep);
	sc_ep_stir(pair[0].ep);
	after = sc_ep_sleep(pair[0].ep);
	assert_int_not_equal(before.seen, after.seen);
	assert_int_equal(before.seen >> 16, after.seen >> 16);
	assert_int_equal(sc_sleep(&before, 1, INT64_MAX), 0);
	sc_ep_wake(pair[0].ep);
	assert_int_equal(sc_ep_sleep(pair[0].ep).seen >> 16, (after.seen >> 16) + 1);
	pair_close(pair);
}

/* What is begun in a call goes on with polls: another thread that sleeps is told. */
static void test_begun(void **state)
{
	static uint8_t out[1 << 20], in[1 << 20];

	(void)state;
	for (enum way way = WAY_CMA; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		open_ends(way);
		assert_int_equal(end_send(&pair[0], pair[0].peer, out, sizeof(out), 1, SC_TAGGED), 0);
		for (int i = 0; i < 4; i++)
			(void)sc_ep_poll(pair[1].ep);
		assert_true(sc_ep_is_idle(pair[1].ep));
		assert_int_equal(end_recv(&pair[1], NULL, in, sizeof(in), 1, SC_TAGGED), 0);
		if (way == WAY_CMA)
			assert_true(!sc_ep_is_idle(pair[1].ep) || !end_idle(&pair[1]));
		ends_settle(pair, 2);
		(void)expect_received(&pair[1], pair[1].peer, in, sizeof(in), 1);
		assert_true(sc_ep_is_idle(pair[1].ep));
		expect_sent(&pair[0], out, sizeof(out));
		pair_close(pair);
	}
}

/* ---- asleep ---------------------------------------------------------------------------------- */

static void *sleeps(void *arg)
{
	struct sc_sleep *sleep = arg;

	while (sc_sleep(sleep, 1, INT64_MAX) == -EINTR)
		;
	return NULL;
}

static void test_asleep(void **state)
{
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;
	uint8_t byte = 7;
	pthread_t thread;

	(void)state;
	open_ends(WAY_LOCAL);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), 0);
		assert_int_equal(pthread_create(&thread, NULL, sleeps, &sleep), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, &byte, 1, 1, SC_TAGGED), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		ends_settle(pair, 2);
		(void)comp_take(&pair[0].tx);
	}
	pair_close(pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_armed), cmocka_unit_test(test_armings_wrap),
		cmocka_unit_test(test_wake),  cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_rest),  cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_room),  cmocka_unit_test(test_without_barrier),
		cmocka_unit_test(test_alone), cmocka_unit_test(test_stir),
		cmocka_unit_test(test_begun), cmocka_unit_test(test_asleep),
	};

	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
