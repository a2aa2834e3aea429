/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_assist: large puts and gets that their target copies along: one side copies all, both sides copy, the target
 * holds a chunk; operations that are posted meanwhile; operations that the target is never asked to assist with; errors
 * on either side; words and records that a peer which keeps the rules does not write; and the end of an operation when
 * either side closes, stops or dies.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "rma/assist.h"
#include "base/atomic.h"
#include "clock.h"
#include "cma_calls.h"
#include "rma_pair.h"

#define TAIL 64 /* bytes of a put that are written last */

static const struct route direct = { "copied by CMA", false, WAY_CMA };
static uint8_t into[SPACE];

/* From two chunks up to four. */
static const size_t sizes[] = { 131072, 200001, 262144, 524288 + TAIL, SPACE };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void open_pair(void)
{
	if (!cma_allowed())
		skip();
	uncounted = true;
	rma_open(&direct);
	before_read = before_write = NULL;
	reads = writes = 0;
}

static void fill(bool put, uint64_t seed)
{
	pattern_fill(from, 0, SPACE, seed);
	memset(into, 0xa5, SPACE);
	if (put)
		memset(space, 0xa5, SPACE);
	else
		memcpy(space, from, SPACE);
}

static int move(bool put, size_t offset, size_t size)
{
	struct iovec iov = { (put ? from : into) + offset, size };
	struct sc_remote remote = at(offset, size);

	return post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0);
}

static bool has_moved(bool put, size_t size)
{
	const uint8_t *to = put ? space : into;

	return !memcmp(to, from, size) && (size == SPACE || to[size] == 0xa5) &&
	       guarded_intact(space, SPACE, SPACE);
}

static uint32_t asked(void)
{
	return pair[0].peer->xfer.generation;
}

static uint64_t assisted(void)
{
	return pair[0].ep->counters.rma_assisted;
}

static uint64_t theirs(void)
{
	return pair[1].ep->counters.shared_bytes;
}

static struct sc_abi_chunks *words(void)
{
	return &sc_seg_slot(pair[1].ep->seg, pair[1].peer->in_slot)->chunks[0];
}

static void target_polls(int count)
{
	while (count--)
		(void)sc_ep_poll(pair[1].ep);
}

static void we_poll(int count)
{
	while (count--)
		(void)sc_ep_poll(pair[0].ep);
}

static void expect_done(void)
{
	struct sc_comp comp = comp_take(&pair[0].tx);

	assert_int_equal(comp.err, 0);
	assert_int_equal(comp.cq_flags, 0x52);
	assert_true(end_idle(&pair[0]));
	assert_true(sc_list_empty(&pair[0].peer->assist.ops) &&
		    sc_list_empty(&pair[0].ep->work[SC_WORK_ASKING]));
}

/* ---- who copies ------------------------------------------------------------------------------ */

/* A target that does not poll: all is done in the call, and it is not asked again before it has come to the first. */
static void test_alone(void **state)
{
	(void)state;
	open_pair();
	for (int put = 0; put < 2; put++)
		for (size_t i = 0; i < SIZES; i++) {
			uint64_t line = pair[0].peer->tx.tail;
			uint32_t before = asked();
			size_t shared;

			for (int again = 0; again < 2; again++) {
				fill(put, i + 1);
				reads = writes = 0;
				assert_int_equal(move(put, 0, sizes[i]), 0);
				expect_done();
				assert_true(has_moved(put, sizes[i]));
				assert_int_equal(asked(), before + 1);
				assert_int_equal(pair[0].peer->tx.tail, line + 1);
				shared = sizes[i] - (put ? TAIL : 0);
				assert_int_equal(put ? writes : reads, again ? 1 : shared > 524288 ? 4 : 2);
			}
			ends_settle(pair, 2);
			assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_JOINED]));
		}
	assert_int_equal(assisted() + theirs(), 0);
	expect_idle();
	rma_close();
}

static int polls_left;
static size_t moving;

/* The last bytes of a put come when all others are there. */
static int target_assists(void)
{
	if (polls_left-- > 0)
		target_polls(1);
	for (size_t i = moving - TAIL; i < moving; i++)
		assert_int_equal(space[i], 0xa5);
	return 0;
}

static int target_gives(void)
{
	if (polls_left-- > 0)
		target_polls(1);
	return 0;
}

/* It comes to it when we have taken one, two... chunks, and copies as many as it can. */
static void test_together(void **state)
{
	(void)state;
	open_pair();
	for (int put = 0; put < 2; put++)
		for (size_t i = 0; i < SIZES; i++)
			for (int polls = 1; polls < 4; polls++) {
				uint64_t before = assisted(), bytes = theirs();

				fill(put, i + (size_t)polls);
				moving = sizes[i];
				polls_left = polls;
				before_read = put ? NULL : target_gives;
				before_write = put ? target_assists : NULL;
				assert_int_equal(move(put, 0, sizes[i]), 0);
				before_read = before_write = NULL;
				expect_done();
				assert_true(has_moved(put, sizes[i]));
				assert_int_equal(assisted(), before + 1);
				assert_true(theirs() > bytes && theirs() - bytes < sizes[i]);
				ends_settle(pair, 2);
			}
	expect_idle();
	rma_close();
}

/* The generation wraps, and passes over 0, which a new slot holds: the target assists before and after. */
static void test_generation_wraps(void **state)
{
	static const uint32_t next[] = { UINT32_MAX - 1, UINT32_MAX, 1, 2 };

	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		pair[0].peer->xfer.generation = UINT32_MAX - 2;
		for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
			uint64_t before = assisted(), bytes = theirs();

			fill(put, i + 1);
			moving = SPACE;
			polls_left = 1;
			before_read = put ? NULL : target_gives;
			before_write = put ? target_assists : NULL;
			assert_int_equal(move(put, 0, SPACE), 0);
			before_read = before_write = NULL;
			expect_done();
			assert_int_equal(asked(), next[i]);
			assert_int_equal(sc_load_relaxed_64(&words()->done) >> 32, next[i]);
			assert_true(has_moved(put, SPACE));
			assert_int_equal(assisted(), before + 1);
			assert_true(theirs() > bytes);
			ends_settle(pair, 2);
		}
		assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
		expect_idle();
		rma_close();
	}
}

/* A target that polls in a thread of its own, or does not: whatever is posted, it is there in the end, in order. */
static void *target_thread(void *stop)
{
	unsigned random = 7;

	while (!__atomic_load_n((bool *)stop, __ATOMIC_ACQUIRE)) {
		(void)sc_ep_poll(pair[1].ep);
		random = random * 1103515245 + 12345;
		for (unsigned i = random >> 16 & 1023; i > 1000; i--)
			sched_yield();
	}
	return NULL;
}

static int take_ended(void)
{
	int ended = 0;

	we_poll(1);
	for (; sc_comp_ring_peek(&pair[0].tx); ended++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	return ended;
}

/* We have taken the first chunk of four: the target takes one, too. */
static int await_target(void)
{
	while ((uint32_t)sc_load_relaxed_64(&words()->claim) == 1u << 16)
		sched_yield();
	return 0;
}

#define RACES 300

static void test_race(void **state)
{
	uint64_t random = 5;
	bool stop = false;
	pthread_t thread;
	int ended = 0;

	(void)state;
	open_pair();
	fill(true, 1);
	assert_int_equal(pthread_create(&thread, NULL, target_thread, &stop), 0);
	for (int i = 0; i < RACES; i++) {
		static const size_t some[] = { 8, 4000, 70000, 131072, 300000, 599990 };
		size_t size = some[pair_random(&random) % 6];
		bool put = pair_random(&random) % 2;
		int ret;

		while ((ret = move(put, pair_random(&random) % (SPACE - size), size)) == -EAGAIN) {
			ended += take_ended();
			sched_yield();
		}
		assert_int_equal(ret, 0);
		if (pair_random(&random) % 4 == 0)
			ended += take_ended();
	}
	while (ended < RACES) {
		ended += take_ended();
		sched_yield();
	}
	fill(false, 2);
	memset(space, 0, SPACE);
	for (int i = 0; i < 20; i++) { /* the get sees what has been put right before it */
		from[0] = from[SPACE - 1] = (uint8_t)i;
		while (sc_load_relaxed_64(&words()->done) >> 32 != asked())
			sched_yield(); /* it comes to the last record */
		before_write = await_target;
		while (move(true, 0, SPACE))
			(void)take_ended();
		while (move(false, 0, SPACE))
			(void)take_ended();
		while (pair[0].peer->rma.pending)
			(void)take_ended();
		(void)take_ended();
		assert_memory_equal(into, from, SPACE);
		assert_memory_equal(space, from, SPACE);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(thread, NULL), 0);
	before_write = NULL;
	assert_true(assisted() >= 20);
	expect_idle();
	rma_close();
}

static void expect_heard(enum sc_event event, uint64_t count)
{
	ends_settle(pair, 2);
	expect_done();
	assert_int_equal(cntrs[1][event].value, count);
}

/* Moves bytes together, and checks that the target's application has not heard of the operation before its last byte. */
static void move_heard(bool put, uint32_t flags)
{
	struct iovec iov = { put ? from : into, SPACE };
	struct sc_remote remote = at(0, SPACE);
	uint64_t before = assisted();

	fill(put, before + 7);
	moving = SPACE;
	polls_left = 1;
	before_read = put ? NULL : target_gives;
	before_write = put ? target_assists : NULL;
	assert_int_equal(post(&iov, 1, &remote, 1, flags | (put ? SC_RMA_WRITE : 0)), 0);
	before_read = before_write = NULL;
	assert_true(end_idle(&pair[1]));
	assert_int_equal(assisted(), before + 1);
	assert_true(has_moved(put, SPACE));
}

/* The target's application hears of an operation that both have done: by its data, or by a counter. */
static void test_heard(void **state)
{
	struct sc_comp comp;

	(void)state;
	open_pair();
	move_heard(true, SC_SEND_DATA);
	ends_settle(pair, 2);
	expect_done();
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.data, 0xda7a);
	assert_int_equal(comp.len, SPACE);
	sc_reg_set_cntrs(reg, &cntrs[1][SC_EVENT_REMOTE_READ], &cntrs[1][SC_EVENT_REMOTE_WRITE]);
	move_heard(true, 0);
	expect_heard(SC_EVENT_REMOTE_WRITE, 1);
	move_heard(false, 0);
	expect_heard(SC_EVENT_REMOTE_READ, 1);
	sc_reg_set_cntrs(reg, NULL, NULL);
	expect_idle();
	rma_close();

	open_pair();
	rma_close();
	uncounted = false; /* an endpoint that counts */
	rma_open(&direct);
	move_heard(true, 0);
	expect_heard(SC_EVENT_REMOTE_WRITE, 1);
	move_heard(false, 0);
	expect_heard(SC_EVENT_REMOTE_READ, 1);
	expect_idle();
	rma_close();
}

/* The target is not asked: others must not overtake them, or they are too small, or it sleeps. */
static void test_not_asked(void **state)
{
	struct iovec two[2] = { { from, 200000 }, { from + 200000, 200000 } };
	struct sc_remote one, ranges[2];
	uint64_t *sleep;

	(void)state;
	open_pair();
	fill(true, 1);
	one = at(0, 400000);
	ranges[0] = at(0, 200000);
	ranges[1] = at(200000, 200000);
	assert_int_equal(post(two, 2, &one, 1, SC_RMA_WRITE), 0);
	expect_done();
	two[0].iov_len = 400000;
	assert_int_equal(post(two, 1, ranges, 2, SC_RMA_WRITE), 0);
	expect_done();
	pair[0].ep->order = SC_ORDER_SEND;
	assert_int_equal(move(true, 0, 400000), 0);
	expect_done();
	pair[0].ep->order = 0;
	pair[0].ep->config.share_min = 400001;
	assert_int_equal(move(true, 0, 400000), 0);
	expect_done();
	pair[0].ep->config.share_min = 1;
	pair[0].ep->config.crowd = SC_CROWD_ALWAYS;
	assert_int_equal(move(true, 0, 400000), 0);
	expect_done();
	pair[0].ep->config.crowd = SC_CROWD_NEVER;
	sc_ep_poll(pair[0].ep); /* the next ones are no stream */
	assert_int_equal(move(true, 0, 131071), 0);
	expect_done();
	assert_int_equal(move(false, 0, 65535), 0);
	expect_done();
	ends_settle(pair, 2);
	assert_true(sc_assist_may_ask(pair[0].peer));
	pair[0].peer->seg->header.capabilities |= SC_ABI_CAP_STRICT;
	assert_false(sc_assist_may_ask(pair[0].peer)); /* its memory is not copied from here */
	pair[0].peer->seg->header.capabilities &= ~SC_ABI_CAP_STRICT;
	sleep = &sc_seg_presence(pair[1].ep->seg)->sleep;
	sc_store_relaxed_64(sleep, sc_load_relaxed_64(sleep) | SC_ABI_SLEEP_ASLEEP);
	assert_false(sc_assist_may_ask(pair[0].peer));
	assert_int_equal(move(true, 0, 400000), 0);
	expect_done();
	sc_store_relaxed_64(sleep, sc_load_relaxed_64(sleep) & ~SC_ABI_SLEEP_FLAGS);
	assert_int_equal(asked(), 0);
	assert_int_equal(move(false, 0, 65536), 0);
	expect_done();
	assert_int_equal(asked(), 1);
	expect_idle();
	rma_close();
}

/* ---- chunks in the target's hands ------------------------------------------------------------- */

static struct sc_share hand;
static struct sc_share_part held;

/* As the target would, which then does nothing for a while. */
static int target_takes(void)
{
	struct sc_abi_share record;

	if (hand.words)
		return 0;
	memcpy(&record, sc_ring_first(&pair[1].peer->rx)->bytes, sizeof(record));
	assert_int_equal(sc_share_join(&hand, words(), &record), 0);
	assert_int_equal(sc_share_take(&hand, &held), 1);
	return 0;
}

/* Posts an operation of which the target has the last chunk in hand. */
static void post_held(bool put, size_t size)
{
	hand.words = NULL;
	before_read = before_write = target_takes;
	assert_int_equal(move(put, 0, size), 0);
	before_read = before_write = NULL;
	assert_non_null(hand.words);
	assert_int_equal(pair[0].peer->rma.pending, 1);
	we_poll(3000);
	assert_true(end_idle(&pair[0]));
}

static void give_up_held(bool put, bool copied)
{
	if (copied && put)
		memcpy(space + held.offset, from + held.offset, held.len);
	else if (copied)
		memcpy(into + held.offset, from + held.offset, held.len);
	sc_share_report(&hand, copied ? 0 : EFAULT);
}

/*
 * While the target has a chunk in hand, the initiator refuses other operations, but one more large one waits behind the
 * first. The initiator copies the chunk that the target fails to copy.
 */
static void test_in_hand(void **state)
{
	(void)state;
	open_pair();
	for (int i = 0; i < 4; i++) {
		bool put = i % 2, copied = i / 2;
		uint64_t one = 1;
		struct iovec operand = { &one, sizeof(one) };
		struct sc_remote word = at(SPACE - 8, 8);
		struct sc_atomic atomic = { .iov = &operand,
					    .iov_count = 1,
					    .remote = &word,
					    .remote_count = 1,
					    .kind = SC_ATOMIC_BASE,
					    .type = SC_UINT64,
					    .code = SC_SUM };

		fill(put, (uint64_t)i + 1);
		post_held(put, 300000);
		assert_int_equal(move(true, 0, 8), -EAGAIN);
		assert_int_equal(move(false, 0, 40000), -EAGAIN);
		assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &atomic), -EAGAIN);
		if (copied)
			assert_int_equal(move(put, 0, 400000), 0);
		assert_int_equal(pair[0].peer->rma.pending, copied ? 2 : 1);
		we_poll(10);
		assert_true(end_idle(&pair[0]));
		assert_false(has_moved(put, 300000));
		give_up_held(put, copied);
		we_poll(10);
		if (copied)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		expect_done();
		assert_true(has_moved(put, copied ? 400000 : 300000));
		sc_store_relaxed_64(&words()->claim, 0); /* the target itself is late */
		expect_idle();
	}
	assert_false(pair[0].peer->xfer.copies_not);
	rma_close();
}

/* Its key is closed while only the target copies: what it has copied by then is not said to have gone well. */
static void test_closed_in_hand(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		fill(put, 2);
		post_held(put, 300000);
		assert_int_equal(sc_reg_close(reg), 0);
		give_up_held(put, true);
		we_poll(2);
		assert_int_equal(comp_take(&pair[0].tx).err, EKEYREJECTED);
		reg = reg_open(tab[1], space, SPACE, SC_REG_READ | SC_REG_WRITE);
		expect_idle();
		rma_close();
	}
}

static void *destroy(void *arg)
{
	sc_ep_destroy(pair[0].ep);
	__atomic_store_n((bool *)arg, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* We close, which takes until the target has let go. */
static void close_held(bool put)
{
	bool closed = false;
	pthread_t thread;

	clock_stop();
	assert_int_equal(pthread_create(&thread, NULL, destroy, &closed), 0);
	for (int i = 0; i < 1000; i++) {
		assert_false(__atomic_load_n(&closed, __ATOMIC_SEQ_CST));
		usleep(100);
	}
	give_up_held(put, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	clock_go_on();
	assert_true(closed);
	pair[0].ep = NULL;
}

/* We close: not before the target has let go of our memory; and what is behind it is done as well. */
static void test_close_waits(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		fill(put, 3);
		post_held(put, 300000);
		assert_int_equal(move(put, 0, 400000), 0);
		close_held(put);
		assert_true(has_moved(put, 400000));
		while (sc_comp_ring_peek(&pair[0].tx))
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		ends_settle(pair + 1, 1);
		rma_close();
	}
}

/* The target is given up: its operations wait for what it has in hand. */
static void test_quarantine_waits(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		fill(put, 4);
		post_held(put, 300000);
		assert_int_equal(move(put, 0, 400000), 0);
		sc_peer_quarantine(pair[0].peer, -ENOMEM, "a test");
		we_poll(100);
		assert_true(end_idle(&pair[0]));
		assert_non_null(pair[0].peer->seg);
		give_up_held(put, true);
		we_poll(1);
		for (int i = 0; i < 2; i++)
			assert_int_equal(comp_take(&pair[0].tx).err, ENOMEM);
		assert_int_equal(pair[0].peer->rma.pending, 0);
		assert_null(pair[0].peer->seg);
		rma_close();
	}
}

/* And so does our close, of a target that has been given up. */
static void test_close_waits_for_the_lost(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		fill(put, 3);
		post_held(put, 300000);
		sc_peer_quarantine(pair[0].peer, -ENOMEM, "a test");
		close_held(put);
		ends_settle(pair + 1, 1);
		rma_close();
	}
}

/* It closes; against the rules, with a chunk in hand. */
static void test_target_closes(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		fill(put, 5);
		post_held(put, 300000);
		assert_int_equal(move(put, 0, 400000), 0);
		end_close(&pair[1]);
		we_poll(10);
		for (int i = 0; i < 2; i++)
			assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
		assert_int_equal(pair[0].peer->rma.pending, 0);
		rma_close();
	}
}

static pthread_t leaver;

static void *close_target(void *arg)
{
	(void)arg;
	end_close(&pair[1]);
	return NULL;
}

/* Its close waits for us to end with this chunk. */
static int closes_target(void)
{
	const struct sc_abi_presence *presence = sc_seg_presence(pair[0].peer->seg);

	before_read = before_write = NULL;
	target_polls(1);
	assert_int_equal(pthread_create(&leaver, NULL, close_target, NULL), 0);
	while (sc_load_acquire_32(&presence->state) != SC_ABI_CLOSED)
		sched_yield();
	return 0;
}

/* It has come to it, and closes between two chunks. */
static void test_target_leaves(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		fill(put, 6);
		before_read = before_write = closes_target;
		assert_int_equal(move(put, 0, SPACE), 0);
		assert_int_equal(pthread_join(leaver, NULL), 0);
		we_poll(10);
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
		assert_int_equal(pair[0].peer->rma.pending, 0);
		rma_close();
	}
}

/* ---- what goes wrong -------------------------------------------------------------------------- */

static int target_error;

static int fail_in_target(void)
{
	return target_error;
}

static int assist_from_write(void)
{
	before_write = NULL;
	before_read = fail_in_target;
	target_polls(2);
	return 0;
}

static int assist_from_read(void)
{
	before_read = NULL;
	before_write = fail_in_target;
	target_polls(2);
	return 0;
}

/* The target cannot copy: we do, and it is not asked again, unless it was for that memory only. */
static void test_target_fails(void **state)
{
	static const int errors[] = { EPERM, ENOSYS, EFAULT };

	(void)state;
	for (int put = 0; put < 2; put++)
		for (int i = 0; i < 3; i++) {
			open_pair();
			fill(put, 7);
			target_error = errors[i];
			before_read = put ? NULL : assist_from_read;
			before_write = put ? assist_from_write : NULL;
			assert_int_equal(move(put, 0, SPACE), 0);
			before_read = before_write = NULL;
			expect_done();
			assert_true(has_moved(put, SPACE));
			assert_int_equal(theirs(), 0);
			assert_int_equal(pair[0].peer->xfer.copies_not, errors[i] != EFAULT);
			ends_settle(pair, 2);
			assert_int_equal(move(put, 0, SPACE), 0);
			expect_done();
			assert_int_equal(asked(), errors[i] == EFAULT ? 2 : 1);
			expect_idle();
			rma_close();
		}
}

/* It may not read our memory, as far as it knows; or it has found that we have closed, which we have not. */
static void test_target_may_not(void **state)
{
	(void)state;
	for (int which = 0; which < 2; which++) {
		open_pair();
		fill(true, 7);
		moving = SPACE;
		polls_left = 2;
		if (which == 0)
			pair[1].peer->can_read = SC_REACH_NO;
		else
			pair[1].peer->link = SC_LINK_DOWN;
		before_write = target_assists;
		assert_int_equal(move(true, 0, SPACE), 0);
		before_write = NULL;
		expect_done();
		assert_true(has_moved(true, SPACE));
		assert_int_equal(theirs(), 0);
		assert_true(pair[0].peer->xfer.copies_not);
		if (which == 0)
			expect_idle();
		rma_close();
	}
}

/* Its head is nowhere in the ring: it is given up when room is looked for, with what waits for it. */
static void test_bad_head(void **state)
{
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		open_pair();
		fill(true, 7);
		if (waits) {
			post_held(true, 300000);
			assert_int_equal(move(true, 0, 400000), 0);
		}
		pair[0].peer->tx.head = 0;
		pair[0].peer->tx.tail = SC_ABI_RING_LINES;
		sc_store_release_64(&pair[0].peer->tx.consumer->head, UINT64_MAX);
		if (waits)
			give_up_held(true, true);
		else
			assert_int_equal(move(true, 0, 300000), -EPROTO);
		we_poll(5);
		if (waits) {
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
			assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
		}
		assert_int_equal(pair[0].ep->counters.quarantines, 1);
		assert_int_equal(pair[0].peer->rma.pending, 0);
		rma_close();
	}
}

static int our_errno;

/* Ours, while the target copies well. */
static int fail_here(void)
{
	int error = our_errno;

	before_read = before_write = NULL;
	target_polls(1);
	before_read = before_write = fail_here;
	return error;
}

/* We cannot: the target does all, on request. */
static void test_we_fail(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++) {
		open_pair();
		fill(put, 8);
		our_errno = EPERM;
		before_read = put ? NULL : fail_here;
		before_write = put ? fail_here : NULL;
		assert_int_equal(move(put, 0, SPACE), 0);
		before_read = before_write = NULL;
		ends_settle(pair, 2);
		expect_done();
		assert_true(has_moved(put, SPACE));
		assert_true(theirs() > 0);
		assert_false(sc_peer_can_read(pair[0].peer));
		assert_int_equal(move(put, 0, SPACE), 0);
		ends_settle(pair, 2);
		expect_done();
		assert_int_equal(asked(), 1);
		expect_idle();
		rma_close();
	}
}

/* Memory that is not there, of either: as it is said of any other. */
static void test_no_memory(void **state)
{
	uint8_t *nothing = mmap(NULL, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sc_reg *there;

	(void)state;
	for (int put = 0; put < 2; put++) {
		struct sc_remote remote;
		struct iovec iov;

		open_pair();
		iov = (struct iovec){ nothing, SPACE };
		remote = at(0, SPACE);
		assert_int_equal(post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, SC_EIO_INITIATOR);
		there = reg_open(tab[1], nothing, SPACE, SC_REG_READ | SC_REG_WRITE);
		iov.iov_base = put ? from : into;
		remote.key = sc_reg_key(there);
		assert_int_equal(post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, EIO);
		assert_int_equal(sc_reg_close(there), 0);
		remote.key = sc_reg_key(reg) ^ 1ull << 40;
		assert_int_equal(post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0), 0);
		assert_int_equal(comp_take(&pair[0].tx).err, EKEYREJECTED);
		remote = at(1, SPACE);
		assert_int_equal(post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0), 0);
		assert_int_equal(comp_take(&pair[0].tx).err, EINVAL);
		expect_idle();
		rma_close();
	}
	munmap(nothing, SPACE);
}

/* Its owner, which has copied a chunk already, closes the registration. */
static int close_meanwhile(void)
{
	before_read = before_write = NULL;
	target_polls(1);
	close_in_thread();
	return 0;
}

static void test_closed_meanwhile(void **state)
{
	(void)state;
	for (int put = 0; put < 2; put++)
		for (int size = 300000; size <= SPACE; size += 300000) {
			struct iovec iov = { put ? from : into, (size_t)size };
			struct sc_remote remote;

			open_pair();
			closing = reg_open(tab[1], space, SPACE, SC_REG_READ | SC_REG_WRITE);
			remote = (struct sc_remote){ 0, (uint64_t)size, sc_reg_key(closing) };
			before_read = put ? NULL : close_meanwhile;
			before_write = put ? close_meanwhile : NULL;
			assert_int_equal(post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0), 0);
			assert_int_equal(pthread_join(closer, NULL), 0);
			ends_settle(pair, 2);
			assert_int_equal(comp_take(&pair[0].tx).err, EKEYREJECTED);
			expect_idle();
			rma_close();
		}
}

/* The same key, of a registration that came later: the target does not touch it. */
static void test_registered_anew(void **state)
{
	struct iovec range, iov = { from, 300000 };
	struct sc_reg_attr attr = { .ranges = &range,
				    .range_count = 1,
				    .key = 77,
				    .flags = SC_REG_READ | SC_REG_WRITE | SC_REG_KEY };
	struct sc_remote remote = { 0, 300000, 77 };
	struct sc_reg *first, *second;

	(void)state;
	open_pair();
	fill(true, 9);
	range = (struct iovec){ space, SPACE };
	assert_int_equal(sc_reg_open(tab[1], &attr, &first), 0);
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	expect_done();
	assert_int_equal(sc_reg_close(first), 0);
	assert_int_equal(sc_reg_open(tab[1], &attr, &second), 0);
	memset(space, 0xa5, SPACE);
	sc_store_relaxed_64(&words()->claim, (uint64_t)asked() << 32); /* as if nothing had been taken */
	ends_settle(pair, 2);
	assert_true(is_untouched(0, 0));
	assert_int_equal(words()->done & 0xffffffff, EKEYREJECTED);
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	expect_done();
	assert_true(has_moved(true, 300000));
	assert_int_equal(asked(), 2);
	assert_int_equal(sc_reg_close(second), 0);
	expect_idle();
	rma_close();
}

/* ---- against the rules ------------------------------------------------------------------------ */

static uint64_t mad_claim, mad_done;

static int target_is_mad(void)
{
	before_read = before_write = NULL;
	if (mad_claim)
		sc_store_relaxed_64(&words()->claim, mad_claim);
	if (mad_done)
		sc_store_release_64(&words()->done, mad_done);
	return 0;
}

/* The target writes impossible words: the operation fails, and the initiator does not hang. */
static void test_mad_target(void **state)
{
	static const struct {
		uint64_t claim, done;
	} cases[] = {
		{ 2ull << 32, 0 },		    /* of another generation */
		{ 1ull << 32, 0 },		    /* the chunk of the initiator is free again */
		{ 1ull << 32 | 2 << 16, 0 },	    /* one more chunk is taken for the initiator */
		{ 1ull << 32 | 1 << 16 | 9, 0 },    /* more chunks than there are */
		{ 0, 1ull << 32 | 1 << 16 },	    /* it has copied a chunk that it has not taken */
		{ 0, 1ull << 32 | 65535ull << 16 }, /* likewise */
		{ 0, 1ull << 32 | 65535 },	    /* no errno */
	};

	(void)state;
	for (int put = 0; put < 2; put++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			open_pair();
			fill(put, 10);
			mad_claim = cases[i].claim;
			mad_done = cases[i].done;
			before_read = put ? NULL : target_is_mad;
			before_write = put ? target_is_mad : NULL;
			assert_int_equal(move(put, 0, SPACE), 0);
			we_poll(5);
			assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
			assert_int_equal(pair[0].ep->counters.quarantines, 1);
			assert_int_equal(pair[0].peer->rma.pending, 0);
			rma_close();
		}
}

/* Chunks of so many pages. */
static void record_write(uint64_t there, uint64_t size, uint32_t chunk, uint32_t generation)
{
	struct sc_abi_share *record;

	assert_int_equal(sc_ring_refresh(&pair[0].peer->tx), 0);
	record = (struct sc_abi_share *)sc_ring_reserve(&pair[0].peer->tx)->bytes;
	*record = (struct sc_abi_share){
		.size = size,
		.chunk = chunk,
		.generation = generation,
		.memory = { .key = sc_reg_key(reg), .tag = reg->tag, .there = there },
	};
	sc_ring_commit(&pair[0].peer->tx, sc_ring_ctl(SC_ABI_SHARE, SC_ABI_F_MEMORY | SC_ABI_F_PUT, 1, 0), 1);
}

/* Records that make no sense. */
static void test_bad_records(void **state)
{
	static const struct {
		uint64_t there, size;
		uint32_t chunk, generation;
	} cases[] = {
		{ 4096, 8192, 1, 0 }, { 4096, 0, 1, 1 },	  { 4096, 8192, 0, 1 },
		{ 4096, 1ull << 40, 1, 1 }, { UINT64_MAX - 8191, 8192, 1, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_pair();
		fill(true, 11);
		record_write(cases[i].there, cases[i].size, cases[i].chunk, cases[i].generation);
		target_polls(2);
		assert_int_equal(pair[1].ep->counters.quarantines, 1);
		assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_JOINED]));
		assert_true(is_untouched(0, 0));
		rma_close();
	}
}

/* Records that make sense, of memory that is not the initiator's to touch, or with words that are not what they say. */
static void test_mad_initiator(void **state)
{
	(void)state;
	for (int which = 0; which < 4; which++) {
		open_pair();
		fill(true, 12);
		sc_store_relaxed_64(&words()->claim, 1ull << 32 | (which == 0 ? 1 : 0));
		if (which == 1)
			sc_store_relaxed_64(&words()->claim, 5ull << 32); /* late: it has gone on */
		record_write(which == 2 ? 64 : (uintptr_t)from, which == 3 ? SPACE + 1 : 8192, 1, 1);
		target_polls(3);
		assert_int_equal(pair[1].ep->counters.quarantines, which == 0);
		assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_JOINED]));
		assert_true(is_untouched(0, 0));
		if (which >= 2)
			assert_int_equal(words()->done & 0xffff, which == 2 ? EFAULT : EINVAL);
		rma_close();
	}
}

/* ---- death ------------------------------------------------------------------------------------ */

static pid_t parent;

/* In the target: it has a chunk in hand, and is stopped. */
static int stop_here(void)
{
	if (getpid() != parent)
		raise(SIGSTOP);
	return 0;
}

static struct sc_peer *far_peer;

/* Until the target has taken a chunk. */
static int wait_taken(void)
{
	const struct sc_abi_chunks *chunks = &sc_seg_slot(far_peer->seg, far_peer->out_slot)->chunks[0];

	before_read = before_write = NULL;
	while (!(sc_load_relaxed_64(&chunks->claim) & 0xffff))
		sched_yield();
	return 0;
}

/* Its process stops with a chunk in hand: nothing ends. Then it goes on, or is killed. */
static void test_target_stops(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		bool put = i % 2, dies = i / 2;
		struct far far = { .cma = true, .polls = true };
		struct child child;
		struct sc_comp comp;

		open_pair();
		pattern_fill(from, 0, SPACE, 1);
		memset(space, 0x5a, SPACE);
		parent = getpid();
		before_read = put ? stop_here : NULL;
		before_write = put ? NULL : stop_here;
		owner_start(&child, &far, &far_peer);
		before_read = before_write = NULL;
		do { /* until it has let us in */
			assert_int_equal(run_far(far_peer, &far, into, 8, 0).err, 0);
		} while (sc_load_relaxed_32(&far_peer->tx.consumer->answer) != SC_ABI_ACCEPTED);
		before_read = put ? NULL : wait_taken;
		before_write = put ? wait_taken : NULL;
		post_far(far_peer, &far, put ? from : into, SPACE, put ? SC_RMA_WRITE : 0);
		assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
		we_poll(5000);
		assert_true(end_idle(&pair[0]));
		assert_int_equal(far_peer->rma.pending, 1);
		if (dies)
			child_kill(&child);
		else
			assert_int_equal(kill(child.pid, SIGCONT), 0);
		comp = wait_comp();
		assert_int_equal(comp.err, dies ? ECONNRESET : 0);
		assert_int_equal(far_peer->rma.pending, 0);
		if (!dies) {
			if (put)
				assert_int_equal(run_far(far_peer, &far, into, SPACE, 0).err, 0);
			for (size_t n = 0; n < SPACE; n++)
				assert_int_equal(into[n], put ? from[n] : 0x5a);
			child_kill(&child);
		}
		rma_close();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_generation_wraps),
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_heard),
		cmocka_unit_test(test_not_asked),
		cmocka_unit_test(test_in_hand),
		cmocka_unit_test(test_closed_in_hand),
		cmocka_unit_test(test_close_waits),
		cmocka_unit_test(test_quarantine_waits),
		cmocka_unit_test(test_close_waits_for_the_lost),
		cmocka_unit_test(test_target_closes),
		cmocka_unit_test(test_target_leaves),
		cmocka_unit_test(test_target_fails),
		cmocka_unit_test(test_target_may_not),
		cmocka_unit_test(test_bad_head),
		cmocka_unit_test(test_we_fail),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_closed_meanwhile),
		cmocka_unit_test(test_registered_anew),
		cmocka_unit_test(test_mad_target),
		cmocka_unit_test(test_bad_records),
		cmocka_unit_test(test_mad_initiator),
		cmocka_unit_test(test_target_stops),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests(tests, setup, NULL);
}
