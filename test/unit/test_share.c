/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_share: copies that two processes share: the words, with hand-placed values of a peer that is late or
 * mad; then whole transfers: which side copies which bytes, and when a receive ends if the sender refuses, fails, is
 * slow, goes away or dies.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include "base/atomic.h"
#include "link/connect.h"
#include "link/review.h"
#include "link/xfer.h"
#include "clock.h"
#include "cma_calls.h"
#include "core_pair.h"
#include "msg/transfer.h"
#include "ep/rx.h"
#include "shm/share.h"

#define SIZE ((size_t)1 << 20)
#define LARGE ((size_t)200000)

static struct sc_abi_chunks words;
static struct end pair[2];
static uint8_t from[2 * SIZE], into[2 * SIZE];

static uint64_t claim_word(uint32_t generation, uint32_t front, uint32_t back)
{
	return (uint64_t)generation << 32 | front << 16 | back;
}

/* ---- the words ------------------------------------------------------------------------------- */

static void open_both(struct sc_share *receiver, struct sc_share *sender, uint64_t size)
{
	struct sc_abi_share record = { .size = size, .generation = 5 };

	words = (struct sc_abi_chunks){ 0 };
	sc_share_open(receiver, &words, &record);
	assert_false(sc_share_has_come(&words, 5));
	assert_int_equal(sc_share_join(sender, &words, &record), 0);
	assert_int_equal(sender->chunks, receiver->chunks);
	assert_int_equal(sender->chunk, receiver->chunk);
}

/* Both sides take chunks in any order: each byte once. After an error of the sender its part is left undone. */
static void test_parts(void **state)
{
	static const uint64_t sizes[] = { 1,	      4096,	 4097,	 8192,	  65536,
					  65537,      524288,	 524289, 1000000, (1ull << 34) + 1,
					  1ull << 40, SC_SHARE_MAX };
	uint64_t random = 1;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int round = 0; round < 8; round++) {
			struct sc_share receiver, sender;
			struct sc_share_part part;
			uint64_t front = 0, back = sizes[i];
			int error;

			open_both(&receiver, &sender, sizes[i]);
			assert_true(receiver.chunks <= SC_ABI_CHUNKS_MAX);
			for (;;) {
				bool first =
					round % 4 < 2 ? round % 4 == 1 : pair_random(&random) % 2 == 1;

				if (sc_share_take(first ? &receiver : &sender, &part) != 1)
					break;
				assert_true(part.len > 0 && part.len <= receiver.chunk);
				if (first) {
					assert_true(part.offset == front);
					front += part.len;
				} else {
					assert_true(part.offset + part.len == back);
					back = part.offset;
				}
			}
			assert_true(front == back);
			assert_int_equal(sc_share_take(&receiver, &part), 0);
			assert_int_equal(sc_share_take(&sender, &part), 0);
			assert_int_equal(receiver.theirs, sender.mine);
			assert_int_equal(sc_share_outstanding(&receiver, &error, &part), sender.mine);
			sc_share_report(&sender, EIO);
			assert_int_equal(sc_share_outstanding(&receiver, &error, &part), 0);
			assert_int_equal(error, EIO);
			assert_true(part.len == sizes[i] - back);
			assert_true(!part.len || part.offset == back);
		}
}

/* Each side has a half, in whole pages; of a larger copy several chunks of like size. */
static void test_halves(void **state)
{
	struct sc_share one, sender;

	(void)state;
	for (uint64_t size = 8192; size <= 524288; size += 4096) {
		open_both(&one, &sender, size);
		assert_int_equal(one.chunks, 2);
		assert_true(one.chunk >= size / 2 && one.chunk < size / 2 + 4096 && one.chunk % 4096 == 0);
		assert_int_equal(sc_share_largest(&one), one.chunk);
	}
	open_both(&one, &sender, 1);
	assert_int_equal(one.chunks, 1);
	assert_int_equal(sc_share_largest(&one), 1);
	open_both(&one, &sender, 524289);
	assert_int_equal(one.chunks, 4);
}

static void test_reports(void **state)
{
	struct sc_share receiver, sender;
	struct sc_share_part part;
	int error;

	(void)state;
	open_both(&receiver, &sender, 8 * SIZE);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sc_share_take(&sender, &part), 1);
	assert_int_equal(sc_share_close(&receiver), 0);
	assert_int_equal(sc_share_left(&receiver), 0);
	assert_int_equal(sc_share_take(&sender, &part), 0);
	words.done = claim_word(4, 3, 0); /* of the share before */
	assert_int_equal(sc_share_outstanding(&receiver, &error, &part), 3);
	sc_share_report(&sender, 0);
	assert_int_equal(sc_share_outstanding(&receiver, &error, &part), 2);
	sc_share_report(&sender, 0);
	assert_int_equal(sc_share_outstanding(&receiver, &error, &part), 1);
	sc_share_report(&sender, EFAULT);
	assert_int_equal(sc_share_outstanding(&receiver, &error, &part), 0);
	assert_int_equal(error, EFAULT);
	assert_int_equal(part.len, receiver.chunk);
	assert_int_equal(part.offset, 8 * SIZE - 3 * receiver.chunk);
	sc_share_report(&sender, 0);
	assert_int_equal(sc_share_outstanding(&receiver, &error, &part), 0);
	assert_int_equal(error, 0);
	assert_int_equal(part.len, 0);
	words.done = claim_word(5, 4, 0); /* more than it took */
	assert_int_equal(sc_share_outstanding(&receiver, &error, &part), -EPROTO);
	words.done = claim_word(5, 3, 4096); /* no errno */
	assert_int_equal(sc_share_outstanding(&receiver, &error, &part), -EPROTO);
}

/* A sender that comes late finds another share, and touches nothing. */
static void test_stale(void **state)
{
	struct sc_abi_share record = { .size = SIZE, .generation = 6 };
	struct sc_share first, second, sender;
	struct sc_share_part part;

	(void)state;
	open_both(&first, &sender, SIZE);
	assert_true(sc_share_has_come(&words, 5));
	sc_share_open(&second, &words, &record);
	assert_false(sc_share_has_come(&words, 6));
	assert_int_equal(sc_share_take(&sender, &part), -ESTALE);
	assert_true(words.claim == claim_word(6, 0, 0));
	assert_int_equal(sc_share_take(&second, &part), 1);
	assert_int_equal(sc_share_take(&first, &part), -EPROTO); /* for the owner it cannot be */
}

/* The generations next to the end of 32 bits are told apart as any others; so are those that differ above 16 bits. */
static void test_generations(void **state)
{
	static const uint32_t next[][2] = { { UINT32_MAX - 1, UINT32_MAX },
					    { UINT32_MAX, 1 },
					    { 1, UINT32_MAX },
					    { 5, 0x10005 },
					    { 5, 0x80000005 } };
	struct sc_share first, second, sender, late;
	struct sc_share_part part;
	int error;

	(void)state;
	for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
		struct sc_abi_share record = { .size = SIZE, .generation = next[i][0] };

		words = (struct sc_abi_chunks){ 0 };
		sc_share_open(&first, &words, &record);
		assert_int_equal(sc_share_join(&late, &words, &record), 0);
		assert_int_equal(sc_share_take(&late, &part), 1);
		sc_share_report(&late, 0);
		assert_int_equal(sc_share_close(&first), 0);
		assert_int_equal(sc_share_outstanding(&first, &error, &part), 0);
		assert_int_equal(error, 0);

		record.generation = next[i][1];
		sc_share_open(&second, &words, &record);
		assert_true(words.claim == claim_word(next[i][1], 0, 0));
		assert_int_equal(sc_share_take(&late, &part), -ESTALE);
		assert_true(words.claim == claim_word(next[i][1], 0, 0));
		/* the report is of the first */
		assert_int_equal(sc_share_outstanding(&second, &error, &part), 0);
		assert_int_equal(sc_share_join(&sender, &words, &record), 0);
		assert_int_equal(sc_share_take(&sender, &part), 1);
		assert_int_equal(sc_share_close(&second), 0);
		assert_int_equal(sc_share_outstanding(&second, &error, &part), 1);
		sc_share_report(&sender, 0);
		assert_int_equal(sc_share_outstanding(&second, &error, &part), 0);
		assert_int_equal(part.len, 0);
	}
}

static void test_bad_claims(void **state)
{
	struct sc_share fresh, receiver, sender;
	struct sc_share_part part;

	(void)state;
	open_both(&fresh, &sender, SIZE); /* 4 chunks */
	assert_int_equal(fresh.chunks, 4);
	assert_int_equal(sc_share_take(&fresh, &part), 1);
	assert_int_equal(sc_share_take(&sender, &part), 1);
	assert_int_equal(sc_share_take(&fresh, &part), 1); /* front 2, back 1 seen */
	{
		const uint64_t bad[] = { 0,
					 claim_word(4, 2, 1),
					 claim_word(6, 2, 1),
					 claim_word(5, 1, 1),
					 claim_word(5, 3, 1),
					 claim_word(5, 2, 0),
					 claim_word(5, 2, 3),
					 claim_word(5, 2, 0xffff),
					 claim_word(5, 0xffff, 1),
					 UINT64_MAX };

		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			words.claim = bad[i];
			receiver = fresh;
			assert_int_equal(sc_share_take(&receiver, &part), -EPROTO);
			receiver = fresh;
			assert_int_equal(sc_share_close(&receiver), -EPROTO);
			assert_true(words.claim == bad[i]);
		}
	}
	{
		const uint64_t bad[] = { claim_word(5, 0, 2), claim_word(5, 4, 1),
					 claim_word(5, 0xffff, 1), claim_word(5, 1, 0) };

		words.claim = claim_word(5, 2, 1);
		assert_int_equal(sc_share_take(&sender, &part), 1);
		sender.mine = 1;
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
			struct sc_share view = sender;

			words.claim = bad[i];
			assert_int_equal(sc_share_take(&view, &part), -EPROTO);
		}
	}
}

/* Sizes in bytes, chunks in pages. */
static void test_bad_offers(void **state)
{
	static const struct {
		struct sc_abi_share record;
		uint32_t chunks; /* 0: it cannot be */
	} cases[] = {
		{ { .generation = 0, .size = SIZE, .chunk = 1 }, 0 },
		{ { .generation = 1, .size = 0, .chunk = 1 }, 0 },
		{ { .generation = 1, .size = SIZE, .chunk = 0 }, 0 },
		{ { .generation = 1, .size = SIZE, .chunk = SIZE / 4096 }, 1 },
		{ { .generation = 1, .size = SIZE, .chunk = UINT32_MAX }, 1 },
		{ { .generation = 1, .size = SIZE, .chunk = SIZE / 4096 - 1 }, 2 },
		{ { .generation = 1, .size = 65535 * 4096, .chunk = 1 }, 65535 },
		{ { .generation = 1, .size = 65535 * 4096 + 1, .chunk = 1 }, 0 },
		{ { .generation = 1, .size = UINT64_MAX, .chunk = 1 }, 0 },
		{ { .generation = 1, .size = UINT64_MAX, .chunk = UINT32_MAX }, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sc_share sender;
		int ret = sc_share_join(&sender, &words, &cases[i].record);

		assert_int_equal(ret, cases[i].chunks ? 0 : -EPROTO);
		if (!ret)
			assert_int_equal(sender.chunks, cases[i].chunks);
	}
}

#define RACE_CHUNKS 60000
static uint8_t taken[RACE_CHUNKS];

static void take_all(struct sc_share *share)
{
	struct sc_share_part part;
	int ret;

	while ((ret = sc_share_take(share, &part)) == 1)
		taken[part.offset / 4096] += part.len == 4096; /* no atomic: each is one side's */
	assert(ret == 0);
	(void)ret;
}

static void *race(void *arg)
{
	take_all(arg);
	return NULL;
}

/* Both at once: each chunk is one side's. */
static void test_race(void **state)
{
	struct sc_share receiver, sender;
	pthread_t thread;

	(void)state;
	for (uint32_t round = 1; round <= 20; round++) {
		struct sc_abi_share record = { .size = (uint64_t)RACE_CHUNKS * 4096, .generation = round };

		memset(taken, 0, sizeof(taken));
		sc_share_open(&receiver, &words, &record);
		record.chunk = 1;
		assert_int_equal(sc_share_join(&sender, &words, &record), 0);
		receiver.chunk = 4096;
		receiver.chunks = RACE_CHUNKS;
		assert_int_equal(pthread_create(&thread, NULL, race, &sender), 0);
		take_all(&receiver);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(receiver.mine + sender.mine, RACE_CHUNKS);
		for (size_t i = 0; i < RACE_CHUNKS; i++)
			assert_int_equal(taken[i], 1);
	}
}

/* ---- transfers: pair[0] sends, pair[1] receives ------------------------------------------------ */

static void share_pair_open(void)
{
	struct sc_ep_attr attr = end_attr();

	if (!cma_allowed())
		skip();
	attr.config.share_min = 40000;
	attr.config.crowd = SC_CROWD_NEVER;
	pair_open(pair, &attr, WAY_CMA);
}

static uint64_t by_sender(int i)
{
	return pair[i].ep->counters.shared_bytes;
}

static uint64_t by_receiver(int i)
{
	return pair[i].ep->counters.rx_cma_bytes;
}

static void post(size_t size, size_t capacity)
{
	memset(into, 0xa5, sizeof(into));
	pattern_fill(from, 0, size, 9);
	assert_int_equal(end_recv(&pair[1], NULL, into, capacity, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, size, 0, 0), 0);
}

/* A message is posted on both sides and the receiver has offered to share it; nobody has copied. */
static struct sc_rx_op *begin(size_t size, size_t capacity)
{
	struct sc_rx_op *op;

	post(size, capacity);
	sc_rx_poll(pair[1].ep);
	assert_false(sc_list_empty(&pair[1].peer->recv.copying));
	op = sc_list_entry(pair[1].peer->recv.copying.next, struct sc_rx_op, pulling);
	assert_non_null(op->share.words);
	assert_int_equal(op->done, 0);
	return op;
}

/* The sender has seen the offer, and taken a chunk that it does not copy. */
static struct sc_share *take_in_hand(void)
{
	struct sc_share_part part;
	struct sc_tx_op *op;

	sc_rx_poll(pair[0].ep);
	assert_false(sc_list_empty(&pair[0].ep->work[SC_WORK_JOINED]));
	op = sc_list_entry(pair[0].ep->work[SC_WORK_JOINED].next, struct sc_tx_op, xfer.of_ep);
	assert_int_equal(sc_share_take(&op->xfer.share, &part), 1);
	return &op->xfer.share;
}

static void receiver_polls(int times)
{
	while (times--)
		sc_ep_poll(pair[1].ep);
}

static void expect_message(size_t size)
{
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, size);
	expect_received(&pair[1], pair[1].peer, into, size, 0);
	assert_true(pattern_is(into, 0, size, 9));
	assert_int_equal(into[size], 0xa5);
	assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
	assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
	assert_int_equal(pair[1].peer->xfer.opened, 0);
}

static void test_both_copy(void **state)
{
	static const size_t sizes[] = { 40000, 65536, 100001, 524288, 524289, SIZE, 2 * SIZE - 1 };

	(void)state;
	share_pair_open();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t sent = by_sender(0), received = by_receiver(1);

		begin(sizes[i], sizes[i]);
		expect_message(sizes[i]);
		assert_true(by_sender(0) > sent && by_receiver(1) > received);
		assert_int_equal(by_sender(0) - sent + by_receiver(1) - received, sizes[i]);
	}
	pair_close(pair);
}

/* Where processors are short the receiver copies all. */
static void test_crowd(void **state)
{
	(void)state;
	share_pair_open();
	pair[1].ep->config.crowd = SC_CROWD_ALWAYS;
	post(SIZE, SIZE);
	expect_message(SIZE);
	assert_int_equal(by_sender(0), 0);
	assert_int_equal(by_receiver(1), SIZE);
	pair_close(pair);
}

/* The generation wraps, and passes over 0, which a new slot holds: both sides copy before and after. */
static void test_generation_wraps(void **state)
{
	static const uint32_t next[] = { UINT32_MAX - 1, UINT32_MAX, 1, 2 };

	(void)state;
	share_pair_open();
	pair[1].peer->xfer.generation = UINT32_MAX - 2;
	for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
		uint64_t sent = by_sender(0), received = by_receiver(1);

		assert_int_equal(begin(SIZE, SIZE)->share.generation, next[i]);
		expect_message(SIZE);
		assert_int_equal(pair[1].peer->xfer.generation, next[i]);
		assert_true(by_sender(0) > sent && by_receiver(1) > received);
		assert_int_equal(by_sender(0) - sent + by_receiver(1) - received, SIZE);
	}
	pair_close(pair);
}

/* A small transfer is not shared, nor one inside the process. */
static void test_alone(void **state)
{
	(void)state;
	share_pair_open();
	assert_int_equal(end_recv(&pair[1], NULL, into, 39999, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 39999, 0, 0), 0);
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, 39999);
	expect_received(&pair[1], pair[1].peer, into, 39999, 0);
	pair[1].peer->seg->local = true;
	assert_int_equal(end_recv(&pair[1], NULL, into, LARGE, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, LARGE, 0, 0), 0);
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, LARGE);
	expect_received(&pair[1], pair[1].peer, into, LARGE, 0);
	assert_int_equal(by_sender(0), 0);
	assert_int_equal(pair[1].peer->xfer.generation, 0);
	pair_close(pair);
}

/* The sender does not poll: the receiver does all, and asks it only once, until it has come to that. */
static void test_absent_sender(void **state)
{
	(void)state;
	share_pair_open();
	for (uint64_t i = 1; i <= 3; i++) {
		post(SIZE, SIZE);
		receiver_polls(10);
		expect_received(&pair[1], pair[1].peer, into, SIZE, 0);
		assert_true(pattern_is(into, 0, SIZE, 9));
		assert_int_equal(by_receiver(1), i * SIZE);
		assert_int_equal(pair[1].peer->xfer.generation, 1);
	}
	ends_settle(pair, 2);
	for (int i = 0; i < 3; i++)
		expect_sent(&pair[0], from, SIZE);
	assert_int_equal(by_sender(0), 0);

	begin(SIZE, SIZE);
	expect_message(SIZE);
	assert_int_equal(pair[1].peer->xfer.generation, 2);
	assert_true(by_sender(0) > 0);
	pair_close(pair);
}

static void test_truncation(void **state)
{
	struct sc_comp comp;

	(void)state;
	share_pair_open();
	begin(SIZE, 600001);
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, SIZE);
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.err, EMSGSIZE);
	assert_int_equal(comp.len, 600001);
	assert_int_equal(comp.olen, SIZE - 600001);
	assert_true(pattern_is(into, 0, 600001, 9));
	for (size_t i = 600001; i < sizeof(into); i++)
		assert_int_equal(into[i], 0xa5);
	assert_true(by_sender(0));
	assert_int_equal(by_sender(0) + by_receiver(1), 600001);
	pair_close(pair);
}

/* `size` bytes at `base` in `count` elements of any sizes. */
static void cut(struct iovec *iov, size_t count, uint8_t *base, size_t size, uint64_t *random)
{
	for (size_t i = 0; i < count; i++) {
		size_t part = pair_random(random) % 4 ? size / (count - i) : 0;
		size_t len = i + 1 == count ? size : part;

		iov[i] = (struct iovec){ base, len };
		base += len;
		size -= len;
	}
}

static void test_vectors(void **state)
{
	uint64_t random = 4;

	(void)state;
	share_pair_open();
	for (int round = 0; round < 100; round++) {
		size_t size = 40000 + pair_random(&random) % 900000;
		struct iovec out[SC_IOV_MAX], in[SC_IOV_MAX];
		size_t out_count = 1 + pair_random(&random) % SC_IOV_MAX;
		size_t in_count = 1 + pair_random(&random) % SC_IOV_MAX;

		memset(into, 0xa5, size + 1);
		pattern_fill(from, 0, size, 9);
		cut(out, out_count, from, size, &random);
		cut(in, in_count, into, size, &random);
		assert_int_equal(end_recvv(&pair[1], NULL, in, in_count, 0, 0, 0, into), 0);
		assert_int_equal(end_sendv(&pair[0], pair[0].peer, out, out_count, 0, 0, from), 0);
		expect_message(size);
	}
	assert_true(by_sender(0) > 0);
	pair_close(pair);
}

/* Many under way, one way, the other, both ways: more than can be shared at once, and than the ring holds. */
static void test_many(void **state)
{
	enum { MANY = 24, STRIDE = 42000 };
	uint8_t *to[2] = { into, into + SIZE };

	(void)state;
	share_pair_open();
	for (int round = 0; round < 20; round++) {
		pattern_fill(from, 0, sizeof(from), (uint64_t)round);
		memset(into, 0, sizeof(into));
		for (int n = 0; n < MANY; n++)
			for (int i = 0; i < 2; i++) {
				uint8_t *here = to[i] + n * STRIDE;

				if (round % 3 == i)
					continue;
				assert_int_equal(end_recv(&pair[i], NULL, here, STRIDE, 0, 0), 0);
				while (end_send(&pair[!i], pair[!i].peer, from + n * 1000,
						(size_t)STRIDE - (n % 4 ? 0 : 3000), 0, 0))
					sc_ep_poll(pair[!i].ep);
			}
		ends_settle(pair, 2);
		for (int i = 0; i < 2; i++)
			for (int n = 0; n < MANY && round % 3 != i; n++) {
				assert_int_equal(comp_take(&pair[!i].tx).err, 0);
				assert_int_equal(comp_take(&pair[i].rx).err, 0);
				assert_memory_equal(to[i] + n * STRIDE, from + n * 1000, STRIDE - 3000);
			}
		assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
	}
	assert_true(by_sender(0) > 0 && by_sender(1) > 0);
	assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
	assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops) + sc_slab_used(&pair[1].ep->tx_ops), 0);
	pair_close(pair);
}

/* ---- several messages in one call -------------------------------------------------------------- */

/* `count` messages of `size` bytes, one behind the other at both sides, that of `nowhere` from memory that is not there. */
static void begin_several(int count, size_t size, int nowhere)
{
	pattern_fill(from, 0, count * size, 9);
	memset(into, 0xa5, sizeof(into));
	for (int n = 0; n < count; n++) {
		struct iovec iov = { n == nowhere ? (void *)4096 : from + n * size, size };

		assert_int_equal(end_recv(&pair[1], NULL, into + n * size, size, 0, 0), 0);
		assert_int_equal(end_sendv(&pair[0], pair[0].peer, &iov, 1, 0, 0, from + n * size), 0);
	}
	sc_rx_poll(pair[1].ep);
	reads = writes = 0;
}

/* All but that one arrive, in any order. */
static void expect_several(int count, size_t size, int nowhere)
{
	int failed[2] = { 0, 0 };

	ends_settle(pair, 2);
	for (int n = 0; n < count; n++) {
		struct sc_comp sent = comp_take(&pair[0].tx), received = comp_take(&pair[1].rx);

		assert_true(!sent.err || sent.err == EFAULT);
		assert_true(!received.err || received.err == EFAULT);
		failed[0] += sent.err != 0;
		failed[1] += received.err != 0;
		if (sent.err)
			assert_ptr_equal(sent.context, from + nowhere * size);
		if (received.err)
			assert_ptr_equal(received.context, into + nowhere * size);
		assert_true(n == nowhere || !memcmp(into + n * size, from + n * size, size));
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(failed[i], nowhere < count);
	assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
	assert_int_equal(pair[1].peer->xfer.opened, 0);
	assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
}

/* Each side copies chunks of the waiting transfers in one call: as many as fit one call, by their number and bytes. */
static void test_several(void **state)
{
	static const struct {
		size_t size;
		unsigned int parts, waiting;
	} cases[] = {
		{ 40000, 6, 6 },  { 65536, 8, 8 },  { 80000, 6, 8 },
		{ 262144, 4, 6 }, { 300000, 3, 6 }, { 524288, 2, 4 },
	};

	(void)state;
	share_pair_open();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int count = (int)cases[i].waiting;
		uint64_t sent = by_sender(0), received = by_receiver(1);

		begin_several(count, cases[i].size, count);
		sc_rx_poll(pair[0].ep); /* the offers */
		assert_int_equal(sc_transfer_progress(pair[1].peer), cases[i].parts);
		assert_int_equal(reads, 1);
		assert_int_equal(read_parts, cases[i].parts);
		assert_int_equal(sc_xfer_progress(pair[0].ep), cases[i].parts);
		assert_int_equal(writes, 1);
		assert_int_equal(written_parts, cases[i].parts);
		expect_several(count, cases[i].size, count);
		assert_int_equal(by_sender(0) - sent + by_receiver(1) - received, count * cases[i].size);
	}
	pair_close(pair);
}

/* Nobody copies along: the receiver has several whole messages in a call. */
static void test_several_alone(void **state)
{
	static const struct {
		size_t size;
		int parts, waiting;
	} cases[] = { { 5000, 16, 20 }, { 39999, 6, 10 }, { 100000, 4, 6 }, { 200000, 2, 4 } };
	struct sc_ep_attr attr = end_attr();

	(void)state;
	if (!cma_allowed())
		skip();
	attr.config.eager_max = 4096;
	pair_open(pair, &attr, WAY_CMA);
	pair[1].peer->xfer.copies_not = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t received = by_receiver(1);
		int count = cases[i].waiting;

		begin_several(count, cases[i].size, count);
		assert_int_equal(sc_transfer_progress(pair[1].peer), cases[i].parts);
		assert_int_equal(reads, 1);
		assert_int_equal(read_parts, cases[i].parts);
		expect_several(count, cases[i].size, count);
		assert_int_equal(by_receiver(1) - received, count * cases[i].size);
	}
	assert_int_equal(by_sender(0), 0);
	pair_close(pair);
}

/* One of the chunks in a call cannot be copied: its transfer fails, and no other. */
static void test_several_one_fails(void **state)
{
	(void)state;
	for (int alone = 0; alone < 2; alone++)
		for (int nowhere = 0; nowhere < 6; nowhere++) {
			share_pair_open();
			pair[1].peer->xfer.copies_not = alone;
			begin_several(6, 65536, nowhere);
			expect_several(6, 65536, nowhere);
			assert_false(pair[0].peer->writes_fail);
			assert_int_equal(pair[1].peer->can_read, SC_REACH_YES);
			pair_close(pair);
		}
}

static uint32_t life_before;

/* The receiver's process has ended, and its pid may be another's. */
static int end_receiver(void)
{
	life_before = life_take(pair[0].peer, LIFE_ENDED);
	pair[0].peer->cma.cookie ^= 1;
	return ESRCH;
}

/*
 * The sender cannot write several chunks since the receiver's process has ended: it does not try each chunk by itself,
 * as another process may have the pid.
 */
static void test_several_gone(void **state)
{
	(void)state;
	share_pair_open();
	begin_several(3, 65536, 3);
	sc_rx_poll(pair[0].ep);
	before_write = end_receiver;
	assert_int_equal(sc_xfer_progress(pair[0].ep), 3);
	assert_int_equal(writes, 1);
	before_write = NULL;
	pair[0].peer->cma.cookie ^= 1;
	life_restore(life_before);
	expect_several(3, 65536, 3);
	assert_int_equal(by_receiver(1), 3 * 65536);
	pair_close(pair);
}

/* Elements of both sides as they come: what does not fit a call goes with the next. */
static void test_several_vectors(void **state)
{
	enum { MANY = 12, STRIDE = 60000 };
	uint64_t random = 6;

	(void)state;
	share_pair_open();
	for (int round = 0; round < 100; round++) {
		pattern_fill(from, 0, MANY * STRIDE, (uint64_t)round);
		memset(into, 0xa5, sizeof(into));
		for (int n = 0; n < MANY; n++) {
			size_t size = 33000 + pair_random(&random) % (STRIDE - 33000);
			size_t out_count = 1 + pair_random(&random) % (n % 2 ? SC_IOV_MAX : 2);
			size_t in_count = 1 + pair_random(&random) % (n % 3 ? 2 : SC_IOV_MAX);
			struct iovec out[SC_IOV_MAX], in[SC_IOV_MAX];

			memset(from + n * STRIDE + size, 0xa5, STRIDE - size);
			cut(out, out_count, from + n * STRIDE, size, &random);
			cut(in, in_count, into + n * STRIDE, size, &random);
			assert_int_equal(end_recvv(&pair[1], NULL, in, in_count, 0, 0, 0, into), 0);
			while (end_sendv(&pair[0], pair[0].peer, out, out_count, 0, 0, from))
				ends_settle(pair, 2);
		}
		ends_settle(pair, 2);
		for (int n = 0; n < MANY; n++) {
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
			assert_int_equal(comp_take(&pair[1].rx).err, 0);
		}
		assert_memory_equal(into, from, MANY * STRIDE);
	}
	assert_true(by_sender(0) > 0);
	pair_close(pair);
}

/* Receivers of what waits are several: each is another's memory. */
static void test_several_receivers(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *to_third;
	struct end third;

	(void)state;
	share_pair_open();
	attr.config.share_min = 40000;
	attr.config.crowd = SC_CROWD_NEVER;
	end_open(&third, &attr);
	to_third = end_find(&pair[0], &third);
	assert_int_equal(end_send(&pair[0], to_third, from, 8, 0, SC_SILENT), 0);
	assert_int_equal(end_recv(&third, NULL, into, 8, 0, 0), 0);
	ends_settle(pair, 2);
	ends_settle(&third, 1);
	assert_int_equal(comp_take(&third.rx).err, 0);
	assert_int_equal(sc_peer_connect(end_find(&third, &pair[0])), 0);
	ends_settle(pair, 2);
	end_take_way(&third, end_find(&third, &pair[0]), WAY_CMA);
	end_take_way(&pair[0], to_third, WAY_CMA);
	to_third->cma.pid = INT32_MAX; /* ESRCH */

	begin_several(2, 65536, 2);
	assert_int_equal(end_recv(&third, NULL, into + SIZE, 65536, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], to_third, from, 65536, 0, 0), 0);
	sc_rx_poll(third.ep);
	sc_rx_poll(pair[0].ep);
	assert_int_equal(sc_transfer_progress(pair[1].peer), 2);
	assert_int_equal(sc_xfer_progress(pair[0].ep), 2);
	assert_int_equal(sc_xfer_progress(pair[0].ep), 1);
	assert_true(to_third->writes_fail);
	assert_int_equal(by_sender(0), 65536);
	for (int i = 0; i < 100; i++) {
		sc_ep_poll(third.ep);
		sc_ep_poll(pair[0].ep);
		sc_ep_poll(pair[1].ep);
	}
	assert_int_equal(comp_take(&third.rx).err, 0);
	assert_memory_equal(into + SIZE, from, 65536);
	for (int i = 0; i < 3; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
	end_close(&third);
	pair_close(pair);
}

/* Both send and receive: each has its own to do. */
static void test_exchange(void **state)
{
	(void)state;
	share_pair_open();
	pattern_fill(from, 0, SIZE, 9);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(end_recv(&pair[i], NULL, into + i * SIZE, SIZE, 0, 0), 0);
		assert_int_equal(end_send(&pair[i], pair[i].peer, from, SIZE, 0, 0), 0);
	}
	ends_settle(pair, 2);
	for (int i = 0; i < 2; i++) {
		expect_sent(&pair[i], from, SIZE);
		expect_received(&pair[i], pair[i].peer, into + i * SIZE, SIZE, 0);
		assert_true(pattern_is(into + i * SIZE, 0, SIZE, 9));
		assert_int_equal(by_receiver(i), SIZE);
		assert_int_equal(by_sender(i), 0);
	}
	pair_close(pair);
}

/* ---- senders that cannot, are slow, or go ------------------------------------------------------ */

/* It may not read us, so it may not write: it says so once. */
static void test_refused(void **state)
{
	(void)state;
	share_pair_open();
	pair[0].peer->can_read = false;
	begin(LARGE, LARGE);
	sc_rx_poll(pair[0].ep);
	expect_message(LARGE);
	assert_true(pair[1].peer->xfer.copies_not);
	assert_int_equal(by_sender(0), 0);
	assert_int_equal(by_receiver(1), LARGE);
	assert_int_equal(end_recv(&pair[1], NULL, into, LARGE, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, LARGE, 0, 0), 0);
	expect_message(LARGE);
	assert_int_equal(pair[1].peer->xfer.generation, 1);
	pair_close(pair);
}

/* Its write fails with a chunk in hand: the receiver copies that one too. */
static void test_write_fails(void **state)
{
	(void)state;
	share_pair_open();
	pair[0].peer->cma.pid = INT32_MAX; /* ESRCH */
	begin(SIZE, SIZE);
	expect_message(SIZE);
	assert_true(pair[0].peer->writes_fail);
	assert_true(pair[1].peer->xfer.copies_not);
	assert_int_equal(by_sender(0), 0);
	assert_int_equal(by_receiver(1), SIZE);
	pair_close(pair);
}

/* The receiver may not read any more: what the sender has copied is for nothing, it goes in pieces. */
static void test_read_fails(void **state)
{
	(void)state;
	share_pair_open();
	pair[1].peer->cma.pid = INT32_MAX;
	begin(SIZE, SIZE);
	expect_message(SIZE);
	assert_false(pair[1].peer->can_read);
	assert_int_equal(by_receiver(1), 0);
	assert_int_equal(pair[1].ep->counters.rx_pulled_bytes, SIZE);
	pair_close(pair);
}

/* The memory that was read, of one or several, was not proven to be the sender's: nothing of it counts. */
static void unproven(int count, bool alone, int life)
{
	uint32_t before;

	share_pair_open();
	pair[1].peer->cma.cookie ^= 1;
	before = life_take(pair[1].peer, life);
	if (before) {
		pair[1].peer->xfer.copies_not = alone;
		begin_several(count, 65536, count);
		expect_several(count, 65536, count);
		life_restore(before);
		assert_false(pair[1].peer->can_read);
		assert_int_equal(pair[1].ep->counters.rx_pulled_bytes, count * 65536);
	}
	pair_close(pair);
}

static void test_proof_fails(void **state)
{
	(void)state;
	for (int life = LIFE_ENDED; life < LIVES; life++)
		for (int alone = 0; alone < 2; alone++) {
			unproven(1, alone, life);
			unproven(6, alone, life);
		}
}

/* The payload is not there: an error for both, and nothing else. */
static void test_no_payload(void **state)
{
	struct iovec nowhere = { (void *)4096, LARGE };
	struct sc_comp comp;

	(void)state;
	share_pair_open();
	assert_int_equal(end_sendv(&pair[0], pair[0].peer, &nowhere, 1, 0, 0, from), 0);
	assert_int_equal(end_recv(&pair[1], NULL, into, LARGE, 0, 0), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, EFAULT);
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.err, EFAULT);
	assert_int_equal(comp.len, 0);
	assert_int_equal(comp.olen, 0); /* all of it would have fitted */
	assert_false(pair[0].peer->writes_fail || pair[1].peer->xfer.copies_not);
	begin(LARGE, LARGE);
	expect_message(LARGE);
	assert_true(by_sender(0));
	pair_close(pair);
}

/* A chunk in the sender's hands: the receiver ends only when it is reported, copied or not. */
static void test_slow_sender(void **state)
{
	(void)state;
	for (int copied = 0; copied < 2; copied++) {
		struct sc_share *hand;

		share_pair_open();
		begin(SIZE, SIZE);
		hand = take_in_hand();
		receiver_polls(5000);
		assert_true(end_idle(&pair[1]));
		assert_int_equal(by_receiver(1), SIZE - hand->chunk);
		if (copied)
			memcpy(into + SIZE - hand->chunk, from + SIZE - hand->chunk,
			       hand->chunk);
		sc_share_report(hand, copied ? 0 : EFAULT);
		expect_message(SIZE);
		assert_int_equal(by_receiver(1), SIZE - (copied ? hand->chunk : 0));
		pair_close(pair);
	}
}

static void *destroy(void *arg)
{
	sc_ep_destroy(pair[1].ep);
	__atomic_store_n((bool *)arg, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* The receiver closes: not before the sender has let go of its memory. */
static void test_close_waits(void **state)
{
	bool closed = false;
	struct sc_share *hand;
	pthread_t thread;

	(void)state;
	share_pair_open();
	begin(SIZE, SIZE);
	hand = take_in_hand();
	clock_stop();
	assert_int_equal(pthread_create(&thread, NULL, destroy, &closed), 0);
	while ((sc_load_relaxed_64(&hand->words->claim) >> 16 & 0xffff) != 3) /* all that was left */
		sched_yield();
	for (int i = 0; i < 1000; i++) {
		assert_false(__atomic_load_n(&closed, __ATOMIC_SEQ_CST));
		sched_yield();
	}
	sc_share_report(hand, 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	clock_go_on();
	assert_true(closed);
	pair[1].ep = NULL;
	ends_settle(pair, 1);
	assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	pair_close(pair);
}

/* The peer is given up while it has a chunk in hand: its receive waits for that. */
static void test_quarantine_waits(void **state)
{
	struct sc_share *hand;

	(void)state;
	share_pair_open();
	begin(SIZE, SIZE);
	hand = take_in_hand();
	sc_peer_quarantine(pair[1].peer, -ENOMEM, "a test");
	receiver_polls(100);
	assert_true(end_idle(&pair[1]));
	assert_non_null(pair[1].peer->seg);
	sc_share_report(hand, 0);
	receiver_polls(1);
	assert_int_equal(comp_take(&pair[1].rx).err, ENOMEM);
	assert_null(pair[1].peer->seg);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	pair_close(pair);
}

/*
 * It says that it has a chunk in hand, and has not: a scribbled word that makes sense. When it is given up, or
 * the endpoint closes, it is not waited for forever.
 */
static void test_never_reports(void **state)
{
	(void)state;
	for (int closes = 0; closes < 2; closes++) {
		share_pair_open();
		begin(SIZE, SIZE)->share.words->claim = claim_word(1, 0, 1);
		receiver_polls(10);
		assert_true(end_idle(&pair[1]));
		pair[1].peer->xfer.runs = 195; /* of 200: the last half second of it will do */
		if (!closes) {
			sc_peer_quarantine(pair[1].peer, -EPROTO, "a test");
			receiver_polls(100);
			assert_true(end_idle(&pair[1]));
			while (end_idle(&pair[1]))
				sc_ep_poll(pair[1].ep);
			assert_int_equal(comp_take(&pair[1].rx).err, EPROTO);
			assert_null(pair[1].peer->seg);
		}
		end_close(&pair[1]);
		end_close(&pair[0]);
	}
}

/* The sender closes while it shares; also, against the rules, with a chunk in hand. */
static void test_sender_closes(void **state)
{
	struct sc_comp comp;

	(void)state;
	for (int variant = 0; variant < 4; variant++) {
		share_pair_open();
		begin(SIZE, SIZE);
		if (variant & 1)
			(void)take_in_hand();
		if (variant & 2)
			receiver_polls(2);
		end_close(&pair[0]);
		receiver_polls(100);
		comp = comp_take(&pair[1].rx);
		assert_int_equal(comp.err, ECONNRESET);
		assert_int_equal(comp.olen, 0);
		assert_true(end_idle(&pair[1]));
		assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_PULLING]));
		assert_int_equal(pair[1].ep->counters.departures, 1);
		pair_close(pair);
	}
}

/* The receiver closes while its sender shares: its slot may be another's, and is not written to. */
static void test_receiver_departs(void **state)
{
	struct sc_abi_chunks *chunks, before;

	(void)state;
	share_pair_open();
	begin(SIZE, SIZE);
	chunks = &sc_seg_slot(pair[0].ep->seg, pair[0].peer->in_slot)->chunks[0];
	sc_rx_poll(pair[0].ep);
	assert_false(sc_list_empty(&pair[0].ep->work[SC_WORK_JOINED]));
	end_close(&pair[1]);
	(void)sc_peers_review(pair[0].ep, true);
	before = *chunks = (struct sc_abi_chunks){ claim_word(1, 0, 0), claim_word(1, 7, 7) };
	assert_int_equal(sc_xfer_progress(pair[0].ep), 0);
	assert_memory_equal(chunks, &before, sizeof(before));
	ends_settle(pair, 1);
	assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	pair_close(pair);
}

/* It toys with the words: that connection is over, for both. */
static void test_mad_words(void **state)
{
	(void)state;
	for (int variant = 0; variant < 4; variant++) {
		struct sc_abi_chunks *chunks;
		struct sc_rx_op *op;

		share_pair_open();
		op = begin(SIZE, SIZE);
		chunks = op->share.words;
		if (variant == 0) /* another generation */
			chunks->claim += 1ull << 32;
		else if (variant == 1) /* more than there are */
			chunks->claim = claim_word(op->share.generation, 0, 5);
		else if (variant == 2) /* the receiver's count */
			chunks->claim = claim_word(op->share.generation, 1, 0);
		else { /* a report of what it never took */
			chunks->claim = claim_word(op->share.generation, 0, 1);
			chunks->done = claim_word(op->share.generation, 2, 0);
		}
		receiver_polls(10);
		assert_int_equal(comp_take(&pair[1].rx).err, EPROTO);
		assert_int_equal(pair[1].ep->counters.quarantines, 1);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
		pair_close(pair);
	}
	share_pair_open();
	begin(SIZE, SIZE)->share.words->claim = claim_word(1, 9, 0);
	ends_settle(&pair[0], 1);
	assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	pair_close(pair);
}

/* ---- offers that cannot be: pair[1] writes them to pair[0] -------------------------------------- */

static void offer(const struct sc_abi_share *share, uint32_t segments, uint32_t lines)
{
	struct sc_abi_line *line = sc_ring_reserve(&pair[1].peer->tx);

	memcpy(line->bytes, share, sizeof(*share));
	for (uint32_t i = 1; i < lines; i++) {
		line = sc_ring_next(&pair[1].peer->tx.at, line);
		memset(line->bytes, 0, sizeof(line->bytes));
	}
	sc_ring_commit(&pair[1].peer->tx, sc_ring_ctl(SC_ABI_SHARE, 0, lines, segments), lines);
}

static void test_bad_records(void **state)
{
	(void)state;
	for (int variant = 0; variant < 12; variant++) {
		struct sc_abi_share share = { .size = LARGE, .chunk = 1, .generation = 1 };
		uint32_t segments = 1, lines = 1;

		share_pair_open();
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, LARGE, 0, 0), 0);
		share.message.op = sc_slab_id(sc_list_entry(pair[0].peer->ops.next, struct sc_tx_op, of_peer));
		share.message.first = (struct sc_abi_segment){ (uintptr_t)into, LARGE };
		switch (variant) {
		case 0:
			share.message.op++;
			break;
		case 1:
			share.message.op += 1ull << 32;
			break;
		case 2:
			share.message.first.len = ++share.size;
			break;
		case 3:
			share.message.first.len--;
			break;
		case 4:
			share.message.first.len++;
			break;
		case 5:
			share.index = SC_ABI_SHARES;
			break;
		case 6:
			share.chunk = 0;
			break;
		case 7:
			share.index = UINT32_MAX;
			break;
		case 8:
			share.generation = 0;
			break;
		case 9:
			segments = 0;
			break;
		case 10:
			segments = 17, lines = 7;
			break;
		case 11:
			lines = 2;
			break;
		}
		offer(&share, segments, lines);
		sc_ep_poll(pair[0].ep);
		assert_int_equal(pair[0].ep->counters.quarantines, 1);
		assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
		pair_close(pair);
	}
}

/* An offer of what is shared already; one of a message without payload. */
static void test_offers_out_of_place(void **state)
{
	struct sc_abi_share share = { .size = LARGE, .chunk = 1, .generation = 1 };

	(void)state;
	share_pair_open();
	begin(LARGE, LARGE);
	sc_rx_poll(pair[0].ep);
	share.message.op = sc_slab_id(sc_list_entry(pair[0].peer->ops.next, struct sc_tx_op, of_peer));
	share.message.first = (struct sc_abi_segment){ (uintptr_t)into, LARGE };
	offer(&share, 1, 1);
	sc_rx_poll(pair[0].ep);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	pair_close(pair);

	share_pair_open();
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SEND_DELIVERY), 0);
	share.message.op = sc_slab_id(sc_list_entry(pair[0].peer->ops.next, struct sc_tx_op, of_peer));
	share.size = share.message.first.len = 0;
	offer(&share, 1, 1);
	sc_rx_poll(pair[0].ep);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	pair_close(pair);
}

/* A peer in the same process offers a share, which the core never does there: it is a breach of the protocol. */
static void test_offer_from_within(void **state)
{
	struct sc_abi_share share = { .size = LARGE, .chunk = 1, .generation = 1 };

	(void)state;
	share_pair_open();
	pair[0].peer->seg->local = true;
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, LARGE, 0, 0), 0);
	share.message.op = sc_slab_id(sc_list_entry(pair[0].peer->ops.next, struct sc_tx_op, of_peer));
	share.message.first = (struct sc_abi_segment){ (uintptr_t)into, LARGE };
	offer(&share, 1, 1);
	sc_rx_poll(pair[0].ep);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	pair_close(pair);
}

/* An offer that has no meaning any more when it is seen: nothing is written. */
static void test_stale_offer(void **state)
{
	struct sc_abi_share share = { .size = LARGE, .chunk = 1, .generation = 77 };

	(void)state;
	share_pair_open();
	memset(into, 0xa5, LARGE);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, LARGE, 0, 0), 0);
	share.message.op = sc_slab_id(sc_list_entry(pair[0].peer->ops.next, struct sc_tx_op, of_peer));
	share.message.first = (struct sc_abi_segment){ (uintptr_t)into, LARGE };
	offer(&share, 1, 1);
	ends_settle(pair, 2);
	assert_int_equal(by_sender(0), 0);
	for (size_t i = 0; i < LARGE; i++)
		assert_int_equal(into[i], 0xa5);
	assert_true(sc_list_empty(&pair[0].ep->work[SC_WORK_JOINED]));
	assert_int_equal(pair[0].ep->counters.quarantines, 0);
	pair_close(pair);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Send a message, take a chunk of it when it is shared, and go no further. */
static void child_takes(struct child *self, void *arg)
{
	struct sc_share_part part;
	struct end end = { 0 };
	struct sc_tx_op *op;

	child_on_its_own();
	CHILD_CHECK(!sc_comp_ring_init(&end.tx, 64) && !sc_comp_ring_init(&end.rx, 64));
	{
		struct sc_ep_attr attr = end_attr();

		attr.tx_cq = &end.tx;
		attr.rx_cq = &end.rx;
		CHILD_CHECK(!sc_ep_create(&attr, &end.ep));
	}
	CHILD_CHECK(!sc_peer_get(end.ep, arg, &end.peer));
	CHILD_CHECK(!end_send(&end, end.peer, from, SIZE, 0, 0));
	while (sc_list_empty(&end.ep->work[SC_WORK_JOINED])) {
		if (sc_peers_changed(end.ep))
			sc_peers_review(end.ep, true);
		sc_rx_poll(end.ep);
	}
	op = sc_list_entry(end.ep->work[SC_WORK_JOINED].next, struct sc_tx_op, xfer.of_ep);
	CHILD_CHECK(sc_share_take(&op->xfer.share, &part) == 1);
	child_tell(self, "taken");
	child_wait(self);
}

/* A message is under way, of which the sender has a chunk in hand. */
static void receive_from_taker(struct end *end, struct child *child)
{
	end_open(end, NULL);
	assert_int_equal(end_recv(end, NULL, into, SIZE, 0, 0), 0);
	child_spawn(child, child_takes, (void *)sc_ep_address(end->ep));
	/* it takes its chunk as long as the receiver does not come back for another */
	while (sc_list_empty(&end->ep->work[SC_WORK_PULLING])) {
		if (sc_peers_changed(end->ep))
			sc_peers_review(end->ep, true);
		sc_rx_poll(end->ep);
	}
	assert_int_equal(read(child->up, child->line, sizeof(child->line)), sizeof(child->line));
}

/* It is stopped with a chunk in hand and may still write: nothing ends. It dies: the message is lost. */
static void test_sender_dies(void **state)
{
	struct child child;
	struct end end;

	(void)state;
	if (!cma_allowed())
		skip();
	receive_from_taker(&end, &child);
	kill(child.pid, SIGSTOP);
	for (int i = 0; i < 20000; i++)
		sc_ep_poll(end.ep);
	assert_true(end_idle(&end));
	child_kill(&child);
	for (int i = 0; i < 20000 && end_idle(&end); i++)
		sc_ep_poll(end.ep);
	assert_int_equal(comp_take(&end.rx).err, ECONNRESET);
	assert_int_equal(end.ep->counters.rx_cma_bytes, SIZE - 262144);
	end_close(&end);
}

/* The receiver closes, its sender dead with a chunk in hand: nothing to wait for. */
static void test_close_after_death(void **state)
{
	struct child child;
	struct end end;

	(void)state;
	if (!cma_allowed())
		skip();
	receive_from_taker(&end, &child);
	child_kill(&child);
	end_close(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_halves),
		cmocka_unit_test(test_reports),
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_bad_claims),
		cmocka_unit_test(test_bad_offers),
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_both_copy),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_generation_wraps),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_absent_sender),
		cmocka_unit_test(test_truncation),
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_several_alone),
		cmocka_unit_test(test_several_one_fails),
		cmocka_unit_test(test_several_gone),
		cmocka_unit_test(test_several_vectors),
		cmocka_unit_test(test_several_receivers),
		cmocka_unit_test(test_exchange),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_write_fails),
		cmocka_unit_test(test_read_fails),
		cmocka_unit_test(test_proof_fails),
		cmocka_unit_test(test_no_payload),
		cmocka_unit_test(test_slow_sender),
		cmocka_unit_test(test_close_waits),
		cmocka_unit_test(test_quarantine_waits),
		cmocka_unit_test(test_never_reports),
		cmocka_unit_test(test_sender_closes),
		cmocka_unit_test(test_receiver_departs),
		cmocka_unit_test(test_mad_words),
		cmocka_unit_test(test_bad_records),
		cmocka_unit_test(test_offers_out_of_place),
		cmocka_unit_test(test_offer_from_within),
		cmocka_unit_test(test_stale_offer),
		cmocka_unit_test(test_sender_dies),
		cmocka_unit_test(test_close_after_death),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests_name("share", tests, pair_setup, NULL);
}
