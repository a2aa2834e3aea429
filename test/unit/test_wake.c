/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_wake: the word that wakes sleepers (wake.c), and when, and for how long, a caller may sleep on an endpoint
 * (sleep.c). models/wait.pml and test/multi/test_wait show that no order of two processes loses a wake-up.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <cmocka.h>

#include "core_pair.h"
#include "proc/reap.h"
#include "link/connect.h"
#include "link/review.h"
#include "shm/seg.h"
#include "os/wake.h"

#define MS INT64_C(1000000)
/* Of sleep.c: looks in a row that find what polls do not take, and peers that are watched at a time. */
#define STUCK_TRIES 16
#define WATCHED 64
/* Of watcher.c, the smallest of the library's threads. */
#define STACK (64 << 10)

/* The wakes so far, which the word counts. */
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
	check_armed(word, &second, SC_ABI_SLEEP_FLAGS); /* the event that the first waits for stays */
	assert_int_not_equal(first.seen, second.seen);
	assert_int_equal(wakes(word), 0);
	for (int i = 0; i < 2; i++) { /* the second time there is nothing to undo */
		sc_sleep_disarm(&word);
		assert_int_equal(word & SC_ABI_SLEEP_FLAGS, 0);
	}
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

#define COUNTS 100000

static void *wake_often(void *word)
{
	for (int i = 0; i < COUNTS; i++)
		sc_wake_slow(word, 0);
	return NULL;
}

/* Of those who change it at once nobody's change is lost. */
static void test_all_count(void **state)
{
	struct sc_sleep sleep;
	pthread_t thread;
	uint64_t word = 0;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, wake_often, &word), 0);
	for (int i = 0; i < COUNTS; i++)
		sc_sleep_arm(&word, 0, &sleep);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(word >> 16 == COUNTS + ((uint64_t)COUNTS << 16));
	assert_int_equal(word & 0xffff, COUNTS * 4 & 0xffff);
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
	assert_int_equal(sc_sleep(sleeps, 1, sc_clock_ns()), -ETIMEDOUT);
	ret = sc_sleep(sleeps, 2, sc_clock_ns());
	assert_true(ret == -ETIMEDOUT || ret == -ENOSYS);
	sc_wake(&words[1], SC_ABI_SLEEP_ASLEEP);
	ret = sc_sleep(sleeps, 2, INT64_MAX);
	assert_true(ret == 0 || ret == -ENOSYS);
	assert_int_equal(sc_sleep(sleeps, SC_SLEEPS_MAX + 1, INT64_MAX), -ENOSYS);
	sc_sleep_bump(sleeps[0].futex);
	assert_int_equal(sc_sleep(sleeps, 1, INT64_MAX), 0);
}

struct sleeper {
	struct sc_sleep sleeps[2];
	int count, ret;
	uint32_t done;
};

static void *sleep_once(void *arg)
{
	struct sleeper *sleeper = arg;

	do
		sleeper->ret = sc_sleep(sleeper->sleeps, sleeper->count, INT64_MAX);
	while (sleeper->ret == -EINTR);
	sc_store_release_32(&sleeper->done, 1);
	return NULL;
}

/* A stir wakes a sleeper whose words count no wake. The test stirs until the thread, which goes to sleep, returns. */
static void test_stirred(void **state)
{
	uint64_t words[2] = { 0 };

	(void)state;
	for (int count = 1; count <= 2; count++) {
		struct sleeper sleeper = { .count = count };
		pthread_t thread;

		for (int i = 0; i < 2; i++)
			sc_sleep_arm(&words[i], SC_ABI_SLEEP_ASLEEP, &sleeper.sleeps[i]);
		assert_int_equal(pthread_create(&thread, NULL, sleep_once, &sleeper), 0);
		while (!sc_load_acquire_32(&sleeper.done)) {
			sc_sleep_stir(sleeper.sleeps[count - 1].futex);
			sched_yield();
		}
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_true(sleeper.ret == 0 || (count > 1 && sleeper.ret == -ENOSYS));
	}
}

static void test_calls_fail(void **state)
{
	static const struct {
		const char *point;
		int count, error, expected;
	} cases[] = {
		{ "wake.wait", 1, EINTR, -EINTR },
		{ "wake.waitv", 2, EINTR, -EINTR },
		{ "wake.waitv", 2, ENOSYS, -ENOSYS }, /* an old kernel */
		{ "wake.waitv", 2, EPERM, -ENOSYS },  /* a filter */
	};
	uint64_t words[2] = { 0 };
	struct sc_sleep sleeps[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		sc_sleep_arm(&words[i], SC_ABI_SLEEP_ASLEEP, &sleeps[i]);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (core_failing(cases[i].point, cases[i].error))
			assert_int_equal(sc_sleep(sleeps, cases[i].count, sc_clock_ns()),
					 cases[i].expected);
	if (core_failing("wake.join", ENOSYS))
		assert_false(sc_wake_join());
	if (core_failing("wake.barrier", EPERM))
		assert_false(sc_sleep_barrier());
	core_failing(NULL, 0);
}

static void *count_joins(void *joins)
{
	*(int *)joins = core_failed();
	return NULL;
}

/* The kernel registers a process at once only while the process has one thread. */
static void test_thread_joins_first(void **state)
{
	pthread_t thread;
	int joins = 0;

	(void)state;
	if (!core_failing("wake.join", ENOSYS))
		skip();
	assert_int_equal(sc_thread_start(&thread, 0, count_joins, &joins), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	core_failing(NULL, 0);
	assert_int_equal(joins, 1);
}

/* A program may have more thread-local variables than a thread of the library needs of its stack. */
static void *touch_stack(void *touched)
{
	static _Thread_local volatile uint8_t locals[256 << 10];
	volatile uint8_t here[STACK / 2];

	for (size_t i = 0; i < sizeof(here); i++)
		here[i] = (uint8_t)i;
	locals[sizeof(locals) - 1] = 1;
	*(int *)touched = here[255] == 255 && locals[sizeof(locals) - 1];
	return NULL;
}

static void test_thread_has_its_stack(void **state)
{
	pthread_t thread;
	int touched = 0;

	(void)state;
	assert_int_equal(sc_thread_start(&thread, STACK, touch_stack, &touched), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(touched, 1);
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
static void check_rests_by(int (*rest)(struct sc_ep *, struct sc_sleep *, int64_t *), struct end *end,
			   uint64_t who, int64_t limit)
{
	int64_t end_at = INT64_MAX, before = sc_clock_ns();
	struct sc_sleep sleep;

	assert_int_equal(rest(end->ep, &sleep, &end_at), 0);
	check_armed(*word_of(end), &sleep, who);
	if (!limit)
		assert_true(end_at == INT64_MAX);
	else
		assert_true(end_at >= before + limit * MS && end_at <= sc_clock_ns() + limit * MS);
}

static void check_rests(struct end *end, uint64_t who, int64_t limit)
{
	check_rests_by(sc_ep_rest, end, who, limit);
}

/* The same as if the endpoint had not been armed lately. */
static void check_rests_anew(struct end *end, uint64_t who, int64_t limit)
{
	end->ep->armed_at = 0;
	check_rests(end, who, limit);
}

/* The endpoint has something to do: sc_ep_rest() finds this before it changes the word. */
static void check_busy(struct end *end)
{
	uint64_t before = *word_of(end);
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;

	assert_true(sc_ep_is_idle(end->ep));
	assert_int_equal(sc_ep_rest(end->ep, &sleep, &limit), -EAGAIN);
	assert_true(*word_of(end) == before);
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
	/* an endpoint that has not polled since may not sleep */
	assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), -EAGAIN);
	assert_int_equal(sc_ep_poll(pair[1].ep) > 0, 1);
	assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), -EAGAIN);
	ends_settle(pair, 2);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, barrier_ms(&pair[1]));
	sc_ep_rise(pair[1].ep);
	assert_int_equal(*word_of(&pair[1]) & SC_ABI_SLEEP_FLAGS, 0);
	pair_close(pair);
}

/* A bell that has rung, or a peer that comes, keeps an endpoint awake. */
static void test_busy(void **state)
{
	struct end other;

	(void)state;
	open_ends(WAY_LOCAL);
	sc_add_acq_rel_32(&pair[1].ep->bell.rung, 1);
	check_busy(&pair[1]);
	ends_settle(pair, 2);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, barrier_ms(&pair[1]));
	sc_ep_rise(pair[1].ep);
	end_open(&other, NULL);
	assert_int_equal(sc_peer_connect(end_find(&other, &pair[1])), 0);
	check_busy(&pair[1]);
	assert_true(sc_ep_poll(pair[1].ep) > 0);
	end_close(&other);
	pair_close(pair);
}

#define MANY 12 /* more than each poll looks at */

/* Returns the endpoint whose ring the first one looks at last. */
static struct end *last_of(struct end *many)
{
	const struct sc_ep *ep = many[0].ep;
	const char *address = ep->inbound[ep->inbound_count - 1]->address;

	for (int i = 1; i < MANY; i++)
		if (many[i].ep && !strcmp(sc_ep_address(many[i].ep), address))
			return &many[i];
	return NULL;
}

/* A ring behind others whose turn is long in coming: it is the next; and that of one that departs. */
static void test_rings(void **state)
{
	static struct end many[MANY];
	uint8_t byte = 7;
	struct end *last;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		end_open(&many[i], NULL);
		if (i)
			assert_int_equal(sc_peer_connect(end_find(&many[i], &many[0])), 0);
	}
	ends_settle(many, MANY);
	assert_int_equal(many[0].ep->inbound_count, MANY - 1);
	last = last_of(many);
	assert_non_null(last);
	assert_int_equal(end_send(last, end_find(last, &many[0]), &byte, 1, 1, SC_TAGGED), 0);
	many[0].ep->inbound_cursor = 0;
	check_busy(&many[0]);
	assert_int_equal(many[0].ep->inbound_cursor, MANY - 2);
	assert_int_equal(sc_ep_poll(many[0].ep), 1);
	ends_settle(many, MANY);
	last = last_of(many);
	assert_non_null(last);
	end_close(last);
	assert_int_equal(sc_peers_review(many[0].ep, true), 1);
	check_busy(&many[0]);
	for (int i = 0; i < MANY; i++)
		end_close(&many[i]);
}

/* A record that polls cannot take, for want of memory for instance, does not make it spin. */
static void test_stuck(void **state)
{
	int64_t limit = INT64_MAX, before = sc_clock_ns();
	struct sc_sleep sleep;
	uint8_t byte = 7;

	(void)state;
	open_ends(WAY_LOCAL);
	assert_int_equal(end_send(&pair[0], pair[0].peer, &byte, 1, 1, SC_TAGGED), 0);
	for (int i = 0; i < STUCK_TRIES - 1; i++)
		assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), -EAGAIN);
	while (sc_ep_rest(pair[1].ep, &sleep, &limit) == -EAGAIN)
		;
	assert_true(limit >= before && limit <= sc_clock_ns() + 10 * MS);
	pair_close(pair);
}

/* A thread that waits for room is woken once there is some, or looks after a while. */
static void test_room(void **state)
{
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;
	uint8_t byte = 7;
	int sent = 0, ret;

	(void)state;
	open_ends(WAY_LOCAL);
	assert_int_equal(sc_ep_refusals(pair[0].ep), 0);
	while (!(ret = end_send(&pair[0], pair[0].peer, &byte, 1, 1, SC_TAGGED))) {
		sent++;
		(void)comp_take(&pair[0].tx);
	}
	assert_int_equal(ret, -EAGAIN);
	while (sc_ep_poll(pair[0].ep))
		;
	assert_int_equal(sc_ep_refusals(pair[0].ep), 1);
	/* the record that found none asks for it once, a caller as often as it likes */
	check_rests_anew(&pair[0], SC_ABI_SLEEP_FLAGS, 20 * !barrier_ms(&pair[0]) + barrier_ms(&pair[0]));
	check_rests_anew(&pair[0], SC_ABI_SLEEP_FLAGS, barrier_ms(&pair[0]));
	sc_ep_rise(pair[0].ep);
	check_rests_anew(&pair[0], SC_ABI_SLEEP_ASLEEP, barrier_ms(&pair[0]));
	pair[0].ep->armed_at = 0;
	check_rests_by(sc_ep_rest_refused, &pair[0], SC_ABI_SLEEP_FLAGS,
		       20 * !barrier_ms(&pair[0]) + barrier_ms(&pair[0]));
	while (sc_ep_poll(pair[1].ep))
		;
	assert_int_equal(*word_of(&pair[0]) & SC_ABI_SLEEP_FLAGS, 0);
	assert_int_equal(sc_ep_refusals(pair[0].ep), 1);
	ends_settle(pair, 2);
	assert_int_equal(sc_ep_rest(pair[0].ep, &sleep, &limit), 0);
	assert_int_equal(*word_of(&pair[0]) & SC_ABI_SLEEP_FLAGS, SC_ABI_SLEEP_ASLEEP);
	pair_close(pair);
}

/* Without the barrier: one more look after a millisecond, then none. */
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
	/* not if that is too short ago, nor after a wake */
	pair[1].ep->armed_at = sc_clock_ns() + 1000 * MS;
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
	pair[1].ep->armed_at -= 2 * MS;
	sc_ep_wake(pair[1].ep);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
	pair_close(pair);
}

/* The barrier helps only if all peers that may write to the endpoint take part in it; and it may fail. */
static void test_joined(void **state)
{
	struct sc_peer *peer;
	struct sc_seg *seg;
	struct end other;

	(void)state;
	open_ends(WAY_LOCAL);
	if (!pair[1].ep->barrier) {
		pair_close(pair);
		skip();
	}
	end_open(&other, NULL);
	peer = end_find(&pair[1], &other);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 0); /* the endpoint has only the address of that one */
	assert_int_equal(sc_peer_connect(peer), 0);
	assert_int_equal(sc_ep_poll(pair[1].ep), 0);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 20); /* until it answers */
	assert_true(sc_ep_poll(other.ep) > 0);
	ends_settle(pair, 2);
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, 0);
	assert_int_equal(peer->feed, SC_FEED_NONE); /* it writes no records, but answers */
	peer->seg->header.capabilities &= ~SC_ABI_CAP_BARRIER;
	check_rests_anew(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
	peer->link = SC_LINK_DOWN; /* as of one that is lost, and whose operations have not ended */
	check_rests_anew(&pair[1], SC_ABI_SLEEP_ASLEEP, 0);
	peer->link = SC_LINK_UP;
	peer->seg->header.capabilities |= SC_ABI_CAP_BARRIER;
	seg = pair[1].peer->seg;
	pair[1].peer->seg = NULL; /* as of one whose name was gone when it was let in */
	check_rests_anew(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
	pair[1].peer->seg = seg;
	if (core_failing("wake.barrier", EPERM))
		check_rests_anew(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
	core_failing(NULL, 0);
	end_close(&other);
	pair_close(pair);
}

/* Work that other processes have in hand is due after a millisecond: copies, offers, memory of a lost peer. */
static void test_in_hand(void **state)
{
	struct sc_ep *ep;

	(void)state;
	open_ends(WAY_LOCAL);
	ep = pair[1].ep;
	for (int i = 0; i < 4; i++) {
		static const enum sc_work works[] = { SC_WORK_PULLING, SC_WORK_DELEGATED, SC_WORK_ASKING,
						      SC_WORK_ENDING };

		ep->due = 1u << works[i];
		check_rests_anew(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
		ep->due = 0;
		check_rests_anew(&pair[1], SC_ABI_SLEEP_ASLEEP, barrier_ms(&pair[1]));
	}
	pair_close(pair);
}

/* Somebody is to watch the peers, and not too many at a time. */
static void test_alone(void **state)
{
	char address[SC_ADDR_SIZE];
	struct sc_peer *peer;

	(void)state;
	open_ends(WAY_LOCAL);
	for (uint16_t i = 0; i <= WATCHED; i++) {
		sc_addr_format(&(struct sc_addr){ .host = 1, .pid = 2, .ep = i }, address);
		assert_int_equal(sc_peer_get(pair[1].ep, address, &peer), 0);
	}
	pair[1].ep->alone = true;
	check_rests(&pair[1], SC_ABI_SLEEP_ASLEEP, barrier_ms(&pair[1]) ? 1 : 100);
	pair[1].ep->barrier = false;
	pair[1].ep->watched_at = INT64_MAX / 2; /* not again */
	check_rests_anew(&pair[1], SC_ABI_SLEEP_ASLEEP, 1);
	pair_close(pair);
}

static void stay(struct child *self, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, NULL);
	child_tell(self, sc_ep_address(end.ep));
	child_wait(self);
}

/* Without a daemon thread, an endpoint that is about to sleep finds that a peer has died. */
static void test_watches(void **state)
{
	struct sc_ep_attr attr = end_attr();
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;
	struct sc_peer *peer;
	struct child child;

	(void)state;
	attr.config.daemon = false;
	end_open(&pair[0], &attr);
	assert_true(child_start(&child, stay, NULL));
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	assert_int_equal(sc_peer_connect(peer), 0);
	assert_int_equal(sc_ep_poll(pair[0].ep), 0);
	assert_int_equal(sc_ep_rest(pair[0].ep, &sleep, &limit), 0);
	child_kill(&child);
	pair[0].ep->watched_at = 0;
	assert_int_equal(sc_ep_rest(pair[0].ep, &sleep, &limit), -EAGAIN);
	assert_int_equal(pair[0].ep->counters.deaths, 1);
	(void)sc_reap_scan();
	end_close(&pair[0]);
}

#ifdef SC_FAULT_INJECTION

static int send_at_arming(const char *point)
{
	static uint8_t byte;

	if (!strcmp(point, "wake.armed"))
		CHILD_CHECK(!end_send(&pair[0], pair[0].peer, &byte, 1, 1, SC_TAGGED));
	return 0;
}

/* Between the two looks: it is seen by the second, and has taken back what would have had others wake. */
static void test_second_look(void **state)
{
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;

	(void)state;
	open_ends(WAY_LOCAL);
	sc_fault_hook = send_at_arming;
	assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), -EAGAIN);
	core_failing(NULL, 0);
	assert_int_equal(*word_of(&pair[1]) & SC_ABI_SLEEP_FLAGS, 0);
	assert_true(limit - sc_clock_ns() > 1000 * MS || barrier_ms(&pair[1]));
	pair_close(pair);
}

static uint64_t stirred;

static int arm_at_wake(const char *point)
{
	struct sc_sleep sleep;

	if (!strcmp(point, "wake.counted"))
		sc_sleep_arm(&stirred, SC_ABI_SLEEP_ASLEEP, &sleep);
	return 0;
}

/* Another thread arms the word between the wake-up and its end: it is not what has been woken, and stays asleep. */
static void test_armed_amid_a_wake(void **state)
{
	struct sc_sleep sleep;

	(void)state;
	stirred = 0;
	sc_sleep_arm(&stirred, SC_ABI_SLEEP_ASLEEP, &sleep);
	sc_fault_hook = arm_at_wake;
	sc_wake_slow(&stirred, SC_ABI_SLEEP_ASLEEP);
	core_failing(NULL, 0);
	assert_int_equal(wakes(stirred), 1);
	assert_int_equal(stirred & SC_ABI_SLEEP_FLAGS, SC_ABI_SLEEP_ASLEEP);
	sc_wake_slow(&stirred, SC_ABI_SLEEP_ASLEEP);
	assert_int_equal(stirred & SC_ABI_SLEEP_FLAGS, 0);
}

#else

static void test_second_look(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

static void test_armed_amid_a_wake(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

#endif

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
	after = pair[0].ep->armed;
	sc_ep_stir(pair[0].ep); /* this does not change `armed`: the endpoint has been woken since */
	assert_int_equal(pair[0].ep->armed.seen, after.seen);
	pair_close(pair);
}

/* A call begins a receive that goes on with polls: sc_ep_is_idle() tells this to another thread, which sleeps. */
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
		/* the core's own thread may have had something for it meanwhile */
		while (sc_ep_rest(pair[1].ep, &sleep, &limit) == -EAGAIN)
			(void)sc_ep_poll(pair[1].ep);
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
		cmocka_unit_test(test_armed),
		cmocka_unit_test(test_armings_wrap),
		cmocka_unit_test(test_all_count),
		cmocka_unit_test(test_wake),
		cmocka_unit_test(test_sleep),
		cmocka_unit_test(test_stirred),
		cmocka_unit_test(test_calls_fail),
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_without_barrier),
		cmocka_unit_test(test_joined),
		cmocka_unit_test(test_in_hand),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_watches),
		cmocka_unit_test(test_second_look),
		cmocka_unit_test(test_armed_amid_a_wake),
		cmocka_unit_test(test_thread_joins_first),
		cmocka_unit_test(test_thread_has_its_stack),
		cmocka_unit_test(test_stir),
		cmocka_unit_test(test_begun),
		cmocka_unit_test(test_asleep),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
