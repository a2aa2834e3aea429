/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_tx: sends on each way that a payload can take, with each flag, at each limit; and a sender whose peer does not
 * keep the rules.
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

#include <sched.h>
#include "core_pair.h"
#include "core_test.h"
#include "link/record.h"
#include "link/connect.h"
#include "ep/rx.h"
#include "msg/bounce.h"

#define BIG ((size_t)5 << 20) /* more than one step of a copy */

static struct end pair[2];
static uint8_t *from; /* BIG bytes */

static int setup(void **state)
{
	from = malloc(BIG);
	return from ? pair_setup(state) : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(from);
	return 0;
}

/* ---- the ways -------------------------------------------------------------------------------- */

static const size_t sizes[] = { 0,     1,     8,     32,    33,	   40,	  41,	 96,	 97,	   199,
				200,   201,   872,   873,   2048,  2049,  4096,	 4097,	 8192,	   8193,
				16384, 30721, 32767, 32768, 32769, 65536, 65537, 300000, 1u << 20, BIG };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* A message from pair[0] to pair[1]: receive posted before or after it comes. */
static void one_message(size_t size, uint32_t flags, bool expected, uint64_t seed)
{
	uint8_t *to = guarded_alloc(size);
	struct sc_comp comp;

	pattern_fill(from, 0, size, seed);
	if (expected)
		assert_int_equal(end_recv(&pair[1], pair[1].peer, to, size, seed, flags & SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, size, seed, flags), 0);
	if (!expected) {
		ends_settle(pair, 2);
		assert_null(sc_comp_ring_peek(&pair[1].rx));
		assert_int_equal(end_recv(&pair[1], pair[1].peer, to, size, seed, flags & SC_TAGGED), 0);
	}
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, size);
	comp = expect_received(&pair[1], pair[1].peer, to, size, seed);
	assert_int_equal(!!(comp.flags & SC_COMP_DATA), !!(flags & SC_SEND_DATA));
	if (flags & SC_SEND_DATA)
		assert_true(comp.data == ~seed);
	assert_true(pattern_is(to, 0, size, seed));
	assert_true(guarded_intact(to, size, size));
	assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
	guarded_free(to);
}

static void test_each_way(void **state)
{
	static const uint32_t flags[] = { SC_TAGGED, SC_TAGGED | SC_SEND_DATA,
					  SC_TAGGED | SC_SEND_DELIVERY,
					  SC_TAGGED | SC_SEND_MATCH | SC_SEND_DATA, SC_SEND_DELIVERY };

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++)
			for (size_t i = 0; i < SIZES; i++) {
				if (sizes[i] == BIG && f)
					continue;
				/* without a tag all messages match: the seed is the tag of the receive */
				one_message(sizes[i], flags[f], true, flags[f] & SC_TAGGED ? i : 0);
				one_message(sizes[i], flags[f], false, flags[f] & SC_TAGGED ? i : 0);
			}
		pair_close(pair);
	}
}

/* Which way it was, by the counters of both sides. */
static void test_counters(void **state)
{
	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		const struct sc_counters *tx, *rx;
		uint64_t large;

		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		tx = sc_ep_counters(pair[0].ep);
		rx = sc_ep_counters(pair[1].ep);
		one_message(SC_ROUTE_BUFFER_MIN - 1, SC_TAGGED, true, 1);
		one_message(SC_ROUTE_BUFFER_MIN, SC_TAGGED, true, 2);
		one_message(32768, SC_TAGGED, false, 3);
		one_message(32769, SC_TAGGED, false, 4);
		one_message(70000, SC_TAGGED, true, 5);
		assert_int_equal(tx->tx_msgs, 5);
		assert_int_equal(tx->tx_bytes,
				 SC_ROUTE_BUFFER_MIN - 1 + SC_ROUTE_BUFFER_MIN + 32768 + 32769 + 70000);
		assert_int_equal(tx->tx_inline, 1);
		assert_int_equal(tx->tx_bounce, 2);
		assert_int_equal(tx->tx_rdv, 2);
		assert_int_equal(rx->rx_msgs, 5);
		assert_int_equal(rx->rx_bytes, tx->tx_bytes);
		assert_int_equal(rx->rx_unexpected, 2);
		large = way == WAY_LOCAL ? rx->rx_local_bytes
			: way == WAY_CMA ? rx->rx_cma_bytes
					 : rx->rx_pulled_bytes;
		/* of the larger one the sender may have copied half */
		assert_int_equal(large + tx->shared_bytes, 32769 + 70000);
		assert_true(way == WAY_CMA || !tx->shared_bytes);
		assert_int_equal(rx->rx_local_bytes + rx->rx_cma_bytes + rx->rx_pulled_bytes, large);
		assert_int_equal(tx->connects, 1);
		assert_int_equal(tx->accepts, 1);
		assert_int_equal(tx->refusals + tx->quarantines + tx->departures, 0);
		pair_close(pair);
	}
}

static void expect_events(int i, enum sc_event event, uint64_t value, uint64_t errors)
{
	assert_int_equal(pair[i].ep->cntrs[event]->value, value);
	assert_int_equal(pair[i].ep->cntrs[event]->errors, errors);
}

/* A receive's own counter counts it, whatever way its message came; so does the endpoint's, unless it is silent. */
static void test_own_counter(void **state)
{
	static const size_t sizes[] = { 0, 8, 400, 5000, 100000 };
	struct sc_cntr own = { 0, 0 }, common = { 0, 0 };
	static uint8_t into[100000];

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	pair[1].ep->cntrs[SC_EVENT_RECV] = &common;
	for (uint32_t i = 0; i < 2 * 5; i++) {
		struct iovec iov = { into, sizes[i / 2] };
		struct sc_recv recv = {
			.iov = &iov, .iov_count = 1, .cntr = &own, .flags = i % 2 ? SC_SILENT : 0
		};

		assert_int_equal(sc_rxq_recv(pair[1].ep->rxq, &recv), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, sizes[i / 2], 0, 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(own.value, i + 1);
		assert_int_equal(common.value, i / 2 + 1);
	}
	pair_close(pair);
}

/* Each operation that ends is counted once: silent, injected and without queue, well or badly. */
static void test_events(void **state)
{
	static const size_t sizes[] = { 0, 8, 5000, 40000, 100000 };
	struct sc_cntr cntrs[2][2];
	static uint8_t into[100000];

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		uint64_t sent = 0, received = 0;

		if (!way_possible(way))
			continue;
		memset(cntrs, 0, sizeof(cntrs));
		pair_open(pair, NULL, way);
		for (int i = 0; i < 2; i++) {
			pair[i].ep->cntrs[SC_EVENT_SEND] = &cntrs[i][0];
			pair[i].ep->cntrs[SC_EVENT_RECV] = &cntrs[i][1];
		}
		for (int i = 0; i < 5 * 4; i++) {
			uint32_t flags = (i % 4 & 1 ? SC_SILENT : 0) | (i % 4 & 2 ? SC_SEND_DELIVERY : 0) |
					 (sizes[i / 4] == 8 ? SC_SEND_INJECT : 0);

			pair[0].ep->tx_cq = i % 4 == 3 ? NULL : &pair[0].tx;
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, sizes[i / 4], 0, flags),
					 0);
			sent += !(flags & SC_SEND_DELIVERY) && sizes[i / 4] <= 32768;
			expect_events(0, SC_EVENT_SEND, sent, 0);
			assert_int_equal(
				end_recv(&pair[1], NULL, into, sizes[i / 4], 0, flags & SC_SILENT), 0);
			ends_settle(pair, 2);
			sent += flags & SC_SEND_DELIVERY || sizes[i / 4] > 32768;
			expect_events(0, SC_EVENT_SEND, sent, 0);
			expect_events(1, SC_EVENT_RECV, ++received, 0);
		}
		pair[0].ep->tx_cq = &pair[0].tx;
		expect_events(0, SC_EVENT_RECV, 0, 0);
		expect_events(1, SC_EVENT_SEND, 0, 0);

		/* truncated, cancelled, and a peer that closes */
		assert_int_equal(end_recv(&pair[1], NULL, into, 10, 0, 0), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 11, 0, 0), 0);
		ends_settle(pair, 2);
		expect_events(0, SC_EVENT_SEND, sent + 1, 0);
		expect_events(1, SC_EVENT_RECV, received, 1);
		assert_int_equal(end_recv(&pair[1], NULL, into, 10, 0, 0), 0);
		assert_int_equal(sc_rx_cancel(pair[1].ep, into), 0);
		expect_events(1, SC_EVENT_RECV, received, 2);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100000, 0, SC_SILENT), 0);
		end_close(&pair[1]);
		ends_settle(pair, 2);
		expect_events(0, SC_EVENT_SEND, sent + 1, 1);
		pair_close(pair);
	}
}

/* Cut `size` bytes at `base` into up to SC_IOV_MAX elements, some of them empty. */
static size_t cut(struct iovec *iov, uint8_t *base, size_t size, uint64_t *random)
{
	size_t count = 1 + pair_random(random) % SC_IOV_MAX, at = 0;

	for (size_t i = 0; i < count; i++) {
		size_t left = size - at;
		size_t len = i + 1 == count ? left : left / (count - i) * (pair_random(random) % 3);

		if (len > left)
			len = left;
		iov[i] = (struct iovec){ len || pair_random(random) % 2 ? base + at : NULL, len };
		at += len;
	}
	return count;
}

static void test_vectors(void **state)
{
	uint64_t random = 7;

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (int round = 0; round < 300; round++) {
			size_t size = pair_random(&random) % (round % 3 ? 1000 : 120000);
			size_t capacity = size + pair_random(&random) % 2 * 100;
			uint8_t *to = guarded_alloc(capacity);
			struct iovec send[SC_IOV_MAX], recv[SC_IOV_MAX];
			size_t send_count = cut(send, from, size, &random);
			size_t recv_count = cut(recv, to, capacity, &random);
			uint32_t flags = round % 5 ? 0 : SC_SEND_DELIVERY;

			pattern_fill(from, 0, size, (uint64_t)round);
			if (round % 2)
				assert_int_equal(end_recvv(&pair[1], NULL, recv, recv_count, 0, 0, 0, to),
						 0);
			assert_int_equal(
				end_sendv(&pair[0], pair[0].peer, send, send_count, 0, flags, from), 0);
			ends_settle(pair, 2);
			if (!(round % 2))
				assert_int_equal(end_recvv(&pair[1], NULL, recv, recv_count, 0, 0, 0, to),
						 0);
			ends_settle(pair, 2);
			expect_sent(&pair[0], from, size);
			expect_received(&pair[1], pair[1].peer, to, size, 0);
			assert_true(pattern_is(to, 0, size, (uint64_t)round));
			assert_true(guarded_intact(to, capacity, size));
			guarded_free(to);
		}
		pair_close(pair);
	}
}

/* No vector at all is a message of no bytes. */
static void test_empty_vector(void **state)
{
	(void)state;
	pair_open(pair, NULL, WAY_LOCAL);
	assert_int_equal(end_sendv(&pair[0], pair[0].peer, NULL, 0, 3, SC_TAGGED, from), 0);
	assert_int_equal(end_recvv(&pair[1], NULL, NULL, 0, 3, 0, SC_TAGGED, &pair), 0);
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, 0);
	expect_received(&pair[1], pair[1].peer, &pair, 0, 3);
	pair_close(pair);
}

/* Truncation on each way: what fits arrives, nothing else is touched, both sides hear of an end. */
static void test_truncation(void **state)
{
	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (size_t i = 1; i < SIZES; i++)
			for (int variant = 0; variant < 6; variant++) {
				size_t size = sizes[i];
				size_t fits = variant / 2 == 0	 ? 0
					      : variant / 2 == 1 ? size / 2
								 : size - 1;
				struct sc_comp comp;
				uint8_t *to;

				if (size == BIG && variant > 2)
					continue;
				to = guarded_alloc(fits);
				pattern_fill(from, 0, size, i);
				if (variant % 2)
					assert_int_equal(end_recv(&pair[1], NULL, to, fits, 0, 0), 0);
				assert_int_equal(end_send(&pair[0], pair[0].peer, from, size, 0, 0), 0);
				ends_settle(pair, 2);
				if (!(variant % 2))
					assert_int_equal(end_recv(&pair[1], NULL, to, fits, 0, 0), 0);
				ends_settle(pair, 2);
				expect_sent(&pair[0], from, size);
				comp = comp_take(&pair[1].rx);
				assert_int_equal(comp.err, EMSGSIZE);
				assert_int_equal(comp.len, fits);
				assert_int_equal(comp.olen, size - fits);
				assert_true(pattern_is(to, 0, fits, i));
				assert_true(guarded_intact(to, fits, fits));
				guarded_free(to);
			}
		pair_close(pair);
	}
}

/* ---- flags ----------------------------------------------------------------------------------- */

static void test_silent(void **state)
{
	static const size_t some[] = { 8, 1000, 100000 };
	uint8_t to[8];

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (int i = 0; i < 3; i++) {
			uint8_t *whole = guarded_alloc(some[i]);

			assert_int_equal(end_recv(&pair[1], NULL, whole, some[i], 0, SC_SILENT), 0);
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, some[i], 0, SC_SILENT), 0);
			ends_settle(pair, 2);
			assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
			assert_true(!memcmp(whole, from, some[i]));
			guarded_free(whole);
		}
		/* not silent about an error */
		assert_int_equal(end_recv(&pair[1], NULL, to, 4, 0, SC_SILENT), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SILENT), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[1].rx).err, EMSGSIZE);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100000, 0, SC_SILENT), 0);
		end_close(&pair[1]);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
		assert_true(end_idle(&pair[0]));
		pair_close(pair);
	}
}

/* Without queues nothing is reported, and all goes on. */
static void test_no_queues(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	struct sc_ep *ep;
	uint8_t to[100];
	struct iovec out = { from, 100 }, in = { to, 100 };
	struct sc_send send = { .iov = &out, .iov_count = 1 };
	struct sc_recv recv = { .iov = &in, .iov_count = 1 };

	(void)state;
	assert_int_equal(sc_ep_create(&attr, &ep), 0);
	assert_int_equal(sc_peer_get(ep, sc_ep_address(ep), &peer), 0);
	pattern_fill(from, 0, 100, 1);
	for (int i = 0; i < 1000; i++) {
		send.flags = i % 2 ? SC_SEND_DELIVERY : 0;
		assert_int_equal(sc_tx_send(ep, peer, &send), 0);
		assert_int_equal(sc_rx_recv(ep, &recv), 0);
		while (sc_ep_poll(ep))
			;
	}
	assert_true(pattern_is(to, 0, 100, 1));
	assert_int_equal(sc_ep_counters(ep)->rx_msgs, 1000);
	sc_ep_destroy(ep);
}

/* Messages of so many bytes, all sent before any is received, `count` of them; they arrive as they were. */
static void burst(size_t size, int count)
{
	static uint8_t from[4096], to[4096];

	for (int i = 0; i < count; i++) {
		pattern_fill(from, 0, size, (uint64_t)i);
		assert_int_equal(
			end_send(&pair[0], pair[0].peer, from, size, 1, SC_TAGGED | SC_SEND_INJECT), 0);
	}
	for (int i = 0; i < count; i++) {
		assert_int_equal(end_recv(&pair[1], NULL, to, size, 1, SC_TAGGED), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
		assert_true(pattern_is(to, 0, size, (uint64_t)i));
	}
	for (int i = 0; i < count; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
}

/* Buffers get their memory when more are under way at a time than have it, and not before. */
static void test_pool_grows(void **state)
{
	struct sc_ep_attr attr = end_attr();
	uint32_t first;

	(void)state;
	attr.config.fill =
		SC_FILL_STREAMED; /* so that they are taken back only when there are none left */
	pair_open(pair, &attr, WAY_LOCAL);
	first = pair[0].ep->pool.have;
	assert_true(first < attr.config.buf_count);
	for (int i = 0; i < 100; i++)
		burst(1000, 1);
	assert_int_equal(pair[0].ep->pool.have, first);
	if (core_failing("memory.pool", ENOSPC)) {
		int sent = 0;
		uint8_t byte[1000] = { 0 };

		while (!end_send(&pair[0], pair[0].peer, byte, sizeof(byte), 1,
				 SC_TAGGED | SC_SEND_INJECT))
			sent++;
		assert_in_range(sent, 1, first);
		core_failing(NULL, 0);
		for (int i = 0; i < sent; i++) {
			assert_int_equal(end_recv(&pair[1], NULL, byte, sizeof(byte), 1, SC_TAGGED), 0);
			ends_settle(pair, 2);
			assert_int_equal(comp_take(&pair[1].rx).err, 0);
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		}
		assert_int_equal(pair[0].ep->pool.have, first);
		assert_int_equal(pair[0].ep->pool.count, first);
		/* it is asked for again, not each time */
		for (int i = 0; i < 3000 && pair[0].ep->pool.have == first; i++)
			(void)sc_record_may_lend(pair[0].peer, first + 1, 0);
	} else {
		burst(1000, (int)first + 1);
	}
	assert_int_equal(pair[0].ep->pool.have, 2 * first);
	burst(1000, (int)first + 1);
	pair_close(pair);
}

/* There is no memory for more buffers, and those that have some do not do: the caller learns it, and a poll asks again. */
static void test_pool_cannot_grow(void **state)
{
	struct sc_pool *pool;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	pair_open(pair, NULL, WAY_LOCAL);
	pool = &pair[0].ep->pool;
	pair[0].ep->wants_room = false;
	core_failing("memory.pool", ENOSPC);
	assert_true(sc_pool_may_lend(pool, &pair[0].peer->bounce.loans, pool->have + 1, 0));
	assert_false(sc_record_may_lend(pair[0].peer, pool->have + 1, 0));
	assert_true(pair[0].ep->wants_room);
	assert_int_equal(pool->count, pool->have);
	assert_true(sc_list_empty(&pair[0].peer->bounce.borrower));
	core_failing(NULL, 0);
	assert_true(sc_record_may_lend(pair[0].peer, 1, 0));
	pair_close(pair);
}

/* A peer writes nonsense as its head: the next record finds that, a look for free buffers takes none back. */
static void test_reuse_of_a_bad_head(void **state)
{
	struct sc_peer *peer;
	uint32_t lent;

	(void)state;
	pair_open(pair, NULL, WAY_LOCAL);
	peer = pair[0].peer;
	burst(1000, 1);
	assert_int_equal(
		end_send(&pair[0], peer, (uint8_t[1000]){ 0 }, 1000, 1, SC_TAGGED | SC_SEND_INJECT), 0);
	lent = peer->bounce.loans.count;
	assert_int_not_equal(lent, 0);
	sc_store_release_64(&peer->tx.consumer->head, peer->tx.tail + 1);
	sc_record_reuse_slow(peer, 0);
	assert_int_equal(peer->bounce.loans.count, lent);
	assert_int_equal(peer->link, SC_LINK_UP);
	assert_int_equal(sc_record_room_slow(peer, 1), -EPROTO);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	pair_close(pair);
}

/* How many buffers are used by messages one after the other, each received. */
static uint32_t buffers_in_turn(void)
{
	struct sc_ep_attr attr = end_attr();
	uint8_t seen[4096] = { 0 };
	uint32_t in_turn = 0;

	attr.config.fill = SC_FILL_CACHED;
	pair_open(pair, &attr, WAY_LOCAL);
	for (uint32_t i = 0; i < 4 * attr.config.buf_count; i++) {
		uint16_t buf;

		burst(1000, 1);
		buf = pair[0].peer->bounce.loans.last;
		in_turn += !seen[buf];
		seen[buf] = 1;
	}
	assert_in_range(pair[0].peer->bounce.loans.count, 1, SC_RECORD_LENT + 1);
	pair_close(pair);
	return in_turn;
}

static void test_turn(void **state)
{
	(void)state;
	assert_in_range(buffers_in_turn(), 2, SC_RECORD_LENT + 2);
}

/* One that is too large to wait waits a little all the same, as long as the peer reads on. */
static void test_while_it_reads(void **state)
{
	struct sc_ep_attr attr = end_attr();
	const struct sc_counters *tx;
	static uint8_t buf[8192];
	uint64_t bounced, by_rdv = 0;
	int refused, sent = 0;

	(void)state;
	attr.config.buf_count = 8;
	attr.config.fill = SC_FILL_CACHED;
	pair_open(pair, &attr, WAY_CMA);
	tx = sc_ep_counters(pair[0].ep);
	for (int turn = 0; turn < 3; turn++) {
		bounced = tx->tx_bounce;
		refused = 0;
		for (int i = 0; i < 10; i++) {
			int ret;

			while ((ret = end_send(&pair[0], pair[0].peer, buf, sizeof(buf), 1, SC_SILENT))) {
				assert_int_equal(ret, -EAGAIN);
				assert_true(++refused < 1000);
			}
			sent++;
		}
		assert_in_range(tx->tx_bounce - bounced, 1, 9);
		assert_int_equal(tx->tx_bounce + tx->tx_rdv, sent);
		assert_in_range(refused, 2, 100); /* then it was not asked again */
		assert_true(tx->tx_rdv > by_rdv);
		by_rdv = tx->tx_rdv;
		ends_settle(pair, 2); /* it reads */
	}
	pair_close(pair);
}

/* The buffer is the caller's again at once, whatever the state of the receiver. */
static void test_inject(void **state)
{
	static const size_t some[] = { 0, 1, 200, 201, 872, 873, SC_INJECT_MAX };
	struct sc_ep_attr attr = end_attr();
	uint8_t *buf = malloc(SC_INJECT_MAX + 1), *to = malloc(SC_INJECT_MAX);
	int sent;

	(void)state;
	assert_true(buf && to);
	attr.config.buf_count = 4;
	for (int eager = 0; eager < 2; eager++)
		for (enum way way = 0; way < WAYS; way++) {
			if (!way_possible(way))
				continue;
			attr.config.eager_max =
				eager ? 32768 : 0; /* 0: injected payload goes by rendezvous */
			attr.config.buf_size = eager ? 2 * SC_INJECT_MAX : SC_INJECT_MAX;
			pair_open(pair, &attr, way);
			assert_int_equal(end_send(&pair[0], pair[0].peer, buf, SC_INJECT_MAX + 1, 0,
						  SC_SEND_INJECT),
					 -EMSGSIZE);
			/* until there is no room, of buffers or in the ring */
			for (sent = 0;; sent++) {
				size_t size = some[sent % 7];
				int ret;

				pattern_fill(buf, 0, size, (uint64_t)sent);
				ret = end_send(&pair[0], pair[0].peer, buf, size, (uint64_t)sent,
					       SC_TAGGED | SC_SEND_INJECT);
				memset(buf, 0xdd, SC_INJECT_MAX);
				if (ret == -EAGAIN)
					break;
				assert_int_equal(ret, 0);
			}
			assert_true(sent > (eager ? 3 : 20));
			for (int i = 0; i < sent; i++) {
				struct sc_comp comp;
				size_t size = some[i % 7];

				assert_int_equal(end_recv(&pair[1], NULL, to, SC_INJECT_MAX, (uint64_t)i,
							  SC_TAGGED),
						 0);
				ends_settle(pair, 2);
				comp = comp_take(&pair[1].rx);
				assert_int_equal(comp.err, 0);
				assert_int_equal(comp.len, size);
				assert_true(pattern_is(to, 0, size, (uint64_t)i));
			}
			for (int i = 0; i < sent; i++)
				assert_int_equal(comp_take(&pair[0].tx).err, 0);
			/* though there are buffers that hold it, as there are for this one */
			assert_int_equal(end_recv(&pair[1], NULL, to, SC_INJECT_MAX, 7, SC_TAGGED), 0);
			assert_int_equal(end_send(&pair[0], pair[0].peer, buf, 1000, 7, SC_TAGGED), 0);
			assert_int_equal(end_send(&pair[0], pair[0].peer, buf, SC_INJECT_MAX + 1, 0,
						  SC_SEND_INJECT),
					 -EMSGSIZE);
			ends_settle(pair, 2);
			expect_sent(&pair[0], buf, 1000);
			expect_received(&pair[1], pair[1].peer, to, 1000, 7);
			assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
			pair_close(pair);
		}
	free(buf);
	free(to);
}

/* A message in several buffers is in as many records, while half of the ring is free; in one, where they are small. */
static void test_parts(void **state)
{
	static uint8_t buf[32768], to[32768];
	struct sc_ep_attr attr = end_attr();
	static const struct {
		size_t size, lines; /* lines in the ring before it */
		uint32_t buf_size, records;
		bool grown;
	} cases[] = { { 4096, 0, 4096, 1, false },   { 4097, 0, 4096, 2, false },
		      { 8192, 0, 4096, 2, false },   { 32768, 0, 4096, 8, false },
		      { 32768, 19, 4096, 8, false }, { 32768, 20, 4096, 1, false },
		      { 32768, 51, 4096, 8, true },  { 32768, 52, 4096, 1, true },
		      { 8193, 25, 4096, 1, false },  { 8193, 24, 4096, 3, false },
		      { 8193, 57, 4096, 1, true },   { 8193, 56, 4096, 3, true },
		      { 32768, 0, 2048, 1, false },  { 32768, 0, 8192, 4, false } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t size = cases[i].size;
		uint64_t tail;

		attr.config.buf_size = cases[i].buf_size;
		pair_open(pair, &attr, WAY_CMA);
		if (cases[i].grown)
			pair_grow(&pair[0], &pair[1]);
		for (size_t n = 0; n < cases[i].lines; n++)
			assert_int_equal(end_send(&pair[0], pair[0].peer, buf, 0, 1, SC_SILENT), 0);
		pattern_fill(buf, 0, size, i);
		tail = pair[0].peer->tx.tail;
		assert_int_equal(end_send(&pair[0], pair[0].peer, buf, size, 0, SC_TAGGED), 0);
		assert_int_equal(pair[0].peer->tx.tail - tail, cases[i].records);
		assert_int_equal(end_recv(&pair[1], NULL, to, size, 0, SC_TAGGED), 0);
		ends_settle(pair, 2);
		expect_sent(&pair[0], buf, size);
		expect_received(&pair[1], pair[1].peer, to, size, 0);
		assert_true(pattern_is(to, 0, size, i));
		assert_int_equal(pair[0].ep->counters.tx_bounce, 1);
		pair_close(pair);
	}
}

/* Records that a message of two buffers is sent in. */
static uint64_t records_of_two_buffers(void)
{
	uint64_t tail = pair[0].peer->tx.tail;
	static uint8_t buf[8192];

	assert_int_equal(end_send(&pair[0], pair[0].peer, buf, sizeof(buf), 0, SC_TAGGED | SC_SILENT), 0);
	return pair[0].peer->tx.tail - tail;
}

static void receive_two_buffers(void)
{
	static uint8_t to[8192];

	assert_int_equal(end_recv(&pair[1], NULL, to, sizeof(to), 0, SC_TAGGED), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[1].rx).len, sizeof(to));
}

/* One who has many buffers to read gets a message in one record, until it has read them. */
static void test_no_parts_behind(void **state)
{
	static const enum sc_fill_way ways[] = { SC_FILL_CACHED, SC_FILL_STREAMED };
	struct sc_ep_attr attr = end_attr();

	(void)state;
	for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
		int unread = 0, looks = 0;

		attr.config.fill = ways[way];
		pair_open(pair, &attr, WAY_LOCAL);
		pair_grow(&pair[0], &pair[1]); /* more than half of it stays free */
		do
			unread++;
		while (records_of_two_buffers() == 2 && unread < 30);
		assert_in_range(unread, 5, 29);
		for (; unread < 20; unread++)
			assert_int_equal(records_of_two_buffers(), 1);
		while (unread--)
			receive_two_buffers();
		while (records_of_two_buffers() == 1) {
			receive_two_buffers();
			assert_true(++looks < 33);
		}
		receive_two_buffers();
		for (uint32_t i = 0; i < 2 * attr.config.buf_count;
		     i++) { /* all have been asked for by now */
			assert_int_equal(records_of_two_buffers(), 2);
			receive_two_buffers();
		}
		pair_close(pair);
	}
}

/* Is a message of so many bytes sent in a buffer? */
static bool goes_in_a_buffer(size_t size)
{
	uint64_t bounced = pair[0].ep->counters.tx_bounce;
	static uint8_t buf[200];

	assert_int_equal(end_send(&pair[0], pair[0].peer, buf, size, 0, SC_TAGGED | SC_SILENT), 0);
	return pair[0].ep->counters.tx_bounce != bounced;
}

static void receive_short(void)
{
	uint8_t to[200];

	assert_int_equal(end_recv(&pair[1], NULL, to, sizeof(to), 0, SC_TAGGED), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[1].rx).err, 0);
}

/* One who has much of the ring to read gets short messages in buffers, until it has read it. */
static void test_buffers_behind(void **state)
{
	struct sc_ep_attr attr = end_attr();
	int sent = 0, looks = 0;

	(void)state;
	attr.config.fill = SC_FILL_CACHED;
	pair_open(pair, &attr, WAY_LOCAL);
	pair_grow(&pair[0], &pair[1]);
	for (; sent < SC_ABI_RING_LINES - 3; sent++) /* each a line */
		assert_false(goes_in_a_buffer(0));
	assert_int_equal(sc_ep_poll(pair[1].ep), SC_RX_BURST);
	while (!goes_in_a_buffer(
		128)) /* it is asked when it seems that there is no room, which there is */
		assert_true(sent++ < SC_ABI_RING_LINES);
	assert_in_range(++sent, SC_ABI_RING_LINES - 1, SC_ABI_RING_LINES);
	assert_false(goes_in_a_buffer(127));
	assert_true(goes_in_a_buffer(200));
	for (sent += 2; sent; sent--)
		receive_short();
	for (; goes_in_a_buffer(128); receive_short())
		assert_true(++looks < 20);
	receive_short();
	for (int i = 0; i < 2 * SC_ABI_RING_LINES;
	     i++) { /* one after the other it is not behind, whenever it is asked */
		assert_false(goes_in_a_buffer(128));
		receive_short();
	}
	pair_close(pair);
}

/* Into memory that begins some bytes beyond a page's multiple from its bounce buffer, which is copied from the end on. */
static void test_aliased(void **state)
{
	static const size_t sizes[] = { 2048, 2049, 4095, 4096, 4097, 16384, 32768 };
	static uint8_t buf[32768];
	static _Alignas(4096) uint8_t to[2 * 4096 + 32768];

	(void)state;
	for (enum sc_fill_way way = SC_FILL_CACHED; way <= SC_FILL_STREAMED; way++) {
		struct sc_ep_attr attr = end_attr();

		attr.config.fill = way;
		pair_open(pair, &attr, WAY_CMA);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t offset = 0; offset < 48; offset++) {
				int who = offset % 2; /* one answers the other, in its buffer if it fits */

				pattern_fill(buf, 0, sizes[i], i + offset);
				memset(to, 0xa5, sizeof(to));
				assert_int_equal(
					end_recv(&pair[!who], NULL, to + offset, sizes[i], 1, SC_TAGGED),
					0);
				assert_int_equal(
					end_send(&pair[who], pair[who].peer, buf, sizes[i], 1, SC_TAGGED),
					0);
				(void)sc_ep_poll(pair[!who].ep);
				expect_sent(&pair[who], buf, sizes[i]);
				expect_received(&pair[!who], pair[!who].peer, to + offset, sizes[i], 1);
				assert_true(pattern_is(to + offset, 0, sizes[i], i + offset));
				assert_true(!offset || to[offset - 1] == 0xa5);
				assert_int_equal(to[offset + sizes[i]], 0xa5);
			}
		pair_close(pair);
	}
}

/* Each way to fill buffers delivers the payload, into one place or several, to a receive posted before or after. */
static void test_fill_ways(void **state)
{
	static const size_t sizes[] = { SC_FILL_MIN, 1500, 4096, 4097, 9000, 16384, 65536 };
	static uint8_t buf[65536], to[65536];
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.config.inline_max = 100;
	attr.config.eager_max = sizeof(buf);
	for (uint32_t way = 0; way < SC_FILL_WAYS; way++) {
		attr.config.fill = (enum sc_fill_way)way;
		pair_open(pair, &attr, WAY_CMA);
		if (pair[0].peer->bounce.fill.way != attr.config.fill) { /* not this processor's */
			pair_close(pair);
			continue;
		}
		for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++) {
			size_t size = sizes[i / 4], head = i & 1 ? size / 3 : size;
			const struct iovec from[2] = { { buf, head }, { buf + head, size - head } };
			const struct iovec into[2] = { { to, size - head }, { to + size - head, head } };
			bool late = i & 2;

			pattern_fill(buf, 0, size, i);
			memset(to, 0, size);
			if (!late)
				assert_int_equal(end_recvv(&pair[1], NULL, into, 2, 1, 0, SC_TAGGED, to),
						 0);
			assert_int_equal(end_sendv(&pair[0], pair[0].peer, from, 2, 1, SC_TAGGED, buf), 0);
			ends_settle(pair, 2);
			if (late) {
				assert_int_equal(end_recvv(&pair[1], NULL, into, 2, 1, 0, SC_TAGGED, to),
						 0);
				ends_settle(pair, 2);
			}
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
			assert_int_equal(comp_take(&pair[1].rx).err, 0);
			assert_true(pattern_is(to, 0, size, i));
		}
		assert_int_equal(pair[0].ep->counters.tx_rdv, 0);
		pair_close(pair);
	}
}

/* A payload that may not go into a record goes into a buffer, however short it is. */
static void test_nothing_inline(void **state)
{
	static const uint32_t most[] = { 0, 8, 100 };
	struct sc_ep_attr attr = end_attr();
	uint8_t to[128];

	(void)state;
	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		attr.config.inline_max = most[i];
		pair_open(pair, &attr, WAY_PULL);
		for (uint32_t size = most[i]; size < most[i] + 2; size++)
			for (int turn = 0; turn < 3; turn++) {
				assert_int_equal(end_recv(&pair[1], NULL, to, sizeof(to), 7, SC_TAGGED),
						 0);
				assert_int_equal(
					end_send(&pair[0], pair[0].peer, from, size, 7, SC_TAGGED), 0);
				ends_settle(pair, 2);
				expect_sent(&pair[0], from, size);
				expect_received(&pair[1], pair[1].peer, to, size, 7);
			}
		assert_int_equal(pair[0].ep->counters.tx_inline, 3);
		assert_int_equal(pair[0].ep->counters.tx_bounce, 3);
		pair_close(pair);
	}
}

/* A payload of SC_ROUTE_BUFFER_MIN bytes goes into a buffer while one is free, though a record could hold it. */
static void test_rather_in_buffers(void **state)
{
	static const uint32_t flags[] = { SC_TAGGED, SC_TAGGED | SC_SEND_DELIVERY };
	static const uint32_t lengths[] = { SC_ROUTE_BUFFER_MIN - 1, SC_ROUTE_BUFFER_MIN, SC_INLINE_MAX };
	struct sc_ep_attr attr = end_attr();
	const struct sc_counters *tx;
	uint8_t *to = malloc(SC_INLINE_MAX);

	(void)state;
	assert_non_null(to);
	for (int way = 0; way < SC_FILL_WAYS; way++)
		for (uint32_t eager_max = SC_ROUTE_BUFFER_MIN; eager_max <= 4096;
		     eager_max += 4096 - SC_ROUTE_BUFFER_MIN) {
			uint64_t buffers, held;

			attr.config.fill = (enum sc_fill_way)way;
			attr.config.eager_max = eager_max;
			attr.config.buf_count = 2;
			pair_open(pair, &attr, WAY_PULL);
			tx = sc_ep_counters(pair[0].ep);
			for (size_t f = 0; f < 2; f++)
				for (size_t i = 0; i < 3; i++)
					one_message(lengths[i], flags[f], true, i);
			buffers = eager_max == SC_ROUTE_BUFFER_MIN ? 2 : 4;
			assert_int_equal(tx->tx_bounce, buffers);
			assert_int_equal(tx->tx_inline, 6 - buffers);
			pattern_fill(from, 0, SC_ROUTE_BUFFER_MIN, 1);
			/* the receiver holds all that may be lent */
			for (uint64_t tag = 0; tag < 4; tag++)
				assert_int_equal(end_send(&pair[0], pair[0].peer, from,
							  SC_ROUTE_BUFFER_MIN, tag, SC_TAGGED),
						 0);
			held = tx->tx_bounce - buffers;
			assert_in_range(held, 1, 3);
			for (uint64_t tag = 0; tag < 4; tag++) {
				assert_int_equal(
					end_recv(&pair[1], NULL, to, SC_INLINE_MAX, tag, SC_TAGGED), 0);
				ends_settle(pair, 2);
				expect_sent(&pair[0], from, SC_ROUTE_BUFFER_MIN);
				expect_received(&pair[1], pair[1].peer, to, SC_ROUTE_BUFFER_MIN, tag);
				assert_true(pattern_is(to, 0, SC_ROUTE_BUFFER_MIN, 1));
			}
			pair_close(pair);
		}
	free(to);
}

/* Nothing is heard before the receiver has taken it. */
static void test_delivery_and_match(void **state)
{
	static const uint32_t flags[] = { SC_SEND_DELIVERY, SC_SEND_MATCH,
					  SC_SEND_DELIVERY | SC_SEND_MATCH };
	static const size_t some[] = { 0, 8, 200, 201, 872, 873, 30000, 40000 };

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (int f = 0; f < 3; f++)
			for (int i = 0; i < 8; i++) {
				uint8_t *to = guarded_alloc(some[i]);
				struct sc_recv drop = { .flags = SC_RECV_PEEK | SC_RECV_DISCARD,
							.context = to };

				assert_int_equal(
					end_send(&pair[0], pair[0].peer, from, some[i], 0, flags[f]), 0);
				ends_settle(pair, 2);
				assert_true(end_idle(&pair[0]));
				assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 1);
				assert_int_equal(end_recv(&pair[1], NULL, to, some[i], 0, 0), 0);
				ends_settle(pair, 2);
				expect_received(&pair[1], pair[1].peer, to, some[i], 0);
				expect_sent(&pair[0], from, some[i]);
				/* and the same when it is dropped */
				assert_int_equal(
					end_send(&pair[0], pair[0].peer, from, some[i], 0, flags[f]), 0);
				ends_settle(pair, 2);
				assert_true(end_idle(&pair[0]));
				assert_int_equal(sc_rx_recv(pair[1].ep, &drop), 0);
				ends_settle(pair, 2);
				assert_int_equal(comp_take(&pair[1].rx).len, some[i]);
				expect_sent(&pair[0], from, some[i]);
				assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
				/* and where a receive waits already: not in the call itself */
				assert_int_equal(end_recv(&pair[1], NULL, to, some[i], 0, 0), 0);
				assert_int_equal(
					end_send(&pair[0], pair[0].peer, from, some[i], 0, flags[f]), 0);
				assert_true(end_idle(&pair[0]));
				assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 1);
				ends_settle(pair, 2);
				expect_received(&pair[1], pair[1].peer, to, some[i], 0);
				expect_sent(&pair[0], from, some[i]);
				assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
				guarded_free(to);
			}
		pair_close(pair);
	}
}

static void test_fence(void **state)
{
	uint8_t to[8];

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 1, SC_TAGGED | SC_SEND_DELIVERY), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), -EAGAIN);
	ends_settle(pair, 2);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), -EAGAIN);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), 0);
	assert_int_equal(end_recv(&pair[1], NULL, to, 8, 1, SC_TAGGED), 0);
	ends_settle(pair, 2);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), 0);
	/* one-sided operations count as well (test_rma.c has real ones) */
	pair[0].peer->rma.pending++;
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), -EAGAIN);
	pair[0].peer->rma.pending--;
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), 0);
	pair_close(pair);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Sends messages of changing sizes until the receiver takes no more unmatched ones; then receives all, in order. */
static void flood_and_drain(const struct sc_ep_attr *attr, enum way way, const size_t *some, size_t count)
{
	uint8_t *to = malloc(BIG);
	uint32_t sent = 0;
	int stuck = 0;

	assert_non_null(to);
	pair_open(pair, attr, way);
	for (;;) {
		size_t size = some[sent % count];
		int ret = end_send(&pair[0], pair[0].peer, from + sent % 1000, size, sent, SC_TAGGED);

		if (!ret) {
			sent++;
			stuck = 0;
			while (sc_comp_ring_peek(&pair[0].tx))
				sc_comp_ring_release(&pair[0].tx);
			continue;
		}
		assert_int_equal(ret, -EAGAIN);
		if (++stuck > 3)
			break;
		ends_settle(pair, 2);
	}
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	assert_true(pair[1].peer->recv.units_held <= pair[1].ep->config.window);
	assert_true(pair[1].peer->recv.units_held + SC_ABI_UNITS(200) > pair[1].ep->config.window);
	/* larger eager messages leave the upper half of the window to rendezvous */
	assert_true(some[0] <= 200 ||
		    (pair[0].ep->counters.tx_rdv + 1) * SC_ABI_UNITS(0) > pair[1].ep->config.window / 2);
	for (uint32_t i = 0; i < sent; i++) {
		struct sc_comp comp;

		/* any tag: they come in the order they were sent */
		assert_int_equal(end_recvv(&pair[1], NULL, &(struct iovec){ to, BIG }, 1, 0, UINT64_MAX,
					   SC_TAGGED, to),
				 0);
		ends_settle(pair, 2);
		comp = comp_take(&pair[1].rx);
		assert_int_equal(comp.err, 0);
		assert_int_equal(comp.tag, i);
		assert_int_equal(comp.len, some[i % count]);
		assert_int_equal(memcmp(to, from + i % 1000, comp.len), 0);
	}
	assert_true(!sc_comp_ring_peek(&pair[1].rx));
	assert_int_equal(pair[1].peer->recv.units_held, 0);
	assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, some[0], 0, SC_TAGGED), 0);
	pair_close(pair);
	free(to);
}

static void test_window(void **state)
{
	static const size_t small[] = { 0, 8, 200 }, eager[] = { 1000, 8192, 30000 },
			    large[] = { 40000, 32769 }, mixed[] = { 8, 1000, 40000, 200, 20000, 0 },
			    roomy[] = { 201, 872 };
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.config.window = 1024;
	pattern_fill(from, 0, 1u << 16, 3);
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		flood_and_drain(&attr, way, small, 3);
		flood_and_drain(&attr, way, eager, 3);
		flood_and_drain(&attr, way, large, 2);
		flood_and_drain(&attr, way, mixed, 6);
		flood_and_drain(&attr, way, roomy, 2);
	}
}

/* Messages of `size` bytes, their numbers for tags, until there is room for no more. Returns the next one's number. */
static uint32_t flood(uint32_t next, size_t size)
{
	while (!end_send(&pair[0], pair[0].peer, from, size, next, SC_TAGGED | SC_SILENT))
		next++;
	return next;
}

/* They are received, those from the first number up to the end. */
static void receive_flood(uint32_t first, uint32_t end, size_t size)
{
	uint8_t to[300];

	ends_settle(&pair[1], 1);
	for (uint32_t n = first; n < end; n++) {
		assert_int_equal(end_recv(&pair[1], NULL, to, sizeof(to), n, SC_TAGGED), 0);
		expect_received(&pair[1], pair[1].peer, to, size, n);
		assert_int_equal(memcmp(to, from, size), 0);
	}
	assert_true(end_idle(&pair[1]));
}

/*
 * A ring has the lines of its first page, and grows within the lap when it has been full, wherever that was and whatever
 * its records are; nothing is lost or written over by that, and it takes as much memory as it says.
 */
static void test_ring_grows(void **state)
{
	static const size_t sizes[] = { 0, 96, 152, 200 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t before = 0; before < SC_ABI_RING_FIRST; before++) {
			uint32_t sent = before, lines = sc_inline_lines(0, (uint32_t)sizes[i]);
			blkcnt_t blocks;

			pair_open(pair, NULL, WAY_LOCAL);
			blocks = end_blocks(&pair[1]);
			for (uint32_t n = 0; n < before; n++) {
				assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, n,
							  SC_TAGGED | SC_SILENT),
						 0);
				receive_flood(n, n + 1, 0);
			}
			assert_int_equal(pair[0].peer->tx.at.count, SC_ABI_RING_FIRST);
			assert_int_equal(end_blocks(&pair[1]), blocks);
			sent = flood(sent, sizes[i]);
			if (!before && sizes[i] < 128) /* longer ones go in buffers then */
				assert_in_range(sent * lines, PAIR_RING_ROOM - lines, PAIR_RING_ROOM);
			for (int rounds = 0; pair[0].peer->tx.at.count == SC_ABI_RING_FIRST; rounds++) {
				assert_true(rounds < 2);
				ends_settle(&pair[1], 1);
				sent = flood(sent, sizes[i]);
			}
			receive_flood(before, sent, sizes[i]);
			assert_int_equal(end_blocks(&pair[1]) - blocks,
					 (SC_ABI_SLOT_SIZE - SC_ABI_SLOT_FIRST) / 512);
			assert_int_equal(pair[1].peer->rx.at.count, SC_ABI_RING_LINES);
			pair_close(pair);
		}
}

/* One whose reader is never behind grows after a while: it has to ask less often how far that is. */
static void test_ring_busy(void **state)
{
	uint32_t sent = 0;

	(void)state;
	pair_open(pair, NULL, WAY_LOCAL);
	for (; pair[0].peer->tx.at.count == SC_ABI_RING_FIRST; sent++) {
		assert_true(sent < 10000);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, sent, SC_TAGGED | SC_SILENT),
				 0);
		receive_flood(sent, sent + 1, 8);
	}
	assert_true(sent > 1000);
	pair_close(pair);
}

/* There is no memory for it to grow: it goes on as it is, and grows later. */
static void test_ring_without_memory(void **state)
{
	uint32_t sent = 0, next, floods = 0;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	pair_open(pair, NULL, WAY_LOCAL);
	core_failing("memory.slot", ENOSPC);
	for (int i = 0; i < 10; i++, sent = next) {
		next = flood(sent, 8);
		assert_int_equal(next - sent, SC_RING_FIRST_ROOM);
		receive_flood(sent, next, 8);
		assert_int_equal(pair[0].peer->tx.at.count, SC_ABI_RING_FIRST);
	}
	assert_int_equal(core_failed(), 1); /* not each time */
	core_failing(NULL, 0);
	for (; pair[0].peer->tx.at.count == SC_ABI_RING_FIRST; sent = next) {
		assert_true(++floods < 10000);
		next = flood(sent, 8);
		receive_flood(sent, next, 8);
	}
	pair_close(pair);
}

/* The receiver does not look: the ring is full; then it does. */
static void test_ring_full(void **state)
{
	static const size_t some[] = { 0, 40, 200, 500, 1000, 50000 };

	(void)state;
	for (int i = 0; i < 6; i++) {
		uint32_t sent = 0;
		uint8_t *to = malloc(some[i] + 1);

		assert_non_null(to);
		pair_open(pair, NULL, WAY_PULL);
		/* twice: where it is refused it shows that the receiver is behind, and less of the ring is needed */
		for (int refused = 0; refused < 2; refused++)
			while (!end_send(&pair[0], pair[0].peer, from, some[i], sent, SC_TAGGED))
				sent++;
		assert_true(sent >= 20 && sent <= SC_ABI_RING_LINES);
		/* in the ring, and in buffers once half of it is taken */
		if (some[i] == 500) {
			uint64_t in_ring = pair[0].ep->counters.tx_inline;

			assert_true(in_ring && pair[0].ep->counters.tx_bounce);
			assert_true(in_ring * sc_inline_lines(0, 500) + pair[0].ep->counters.tx_bounce <
				    SC_ABI_RING_LINES - SC_ABI_RING_LINES / 2);
		}
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, some[i], sent, SC_TAGGED),
				 -EAGAIN);
		sc_ep_poll(pair[0].ep);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, some[i], sent, SC_TAGGED),
				 -EAGAIN);
		ends_settle(pair, 2);
		assert_int_equal(pair[1].ep->counters.rx_unexpected, sent);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, some[i], sent, SC_TAGGED), 0);
		sent++;
		for (uint32_t n = 0; n < sent; n++) {
			assert_int_equal(end_recv(&pair[1], NULL, to, some[i], n, SC_TAGGED), 0);
			ends_settle(pair, 2);
			expect_received(&pair[1], pair[1].peer, to, some[i], n);
			expect_sent(&pair[0], from, some[i]);
		}
		free(to);
		pair_close(pair);
	}
}

/*
 * As many messages as are taken for a receiver that does not look, however often they are tried; each from another place.
 * Returns the next one's number.
 */
static uint32_t flood_past_the_ring(uint32_t next, size_t size, uint32_t flags)
{
	for (int refused = 0; refused < 3000;) {
		int ret = end_send(&pair[0], pair[0].peer, from + next % 1000, size, next,
				   SC_TAGGED | SC_SILENT | flags);

		assert_true(!ret || ret == -EAGAIN);
		refused = ret ? refused + 1 : 0;
		next += !ret;
	}
	return next;
}

/* They are received in the order in which they were sent, whatever their tags. */
static void receive_in_order(uint32_t first, uint32_t end, size_t size, uint8_t *to)
{
	for (uint32_t n = first; n < end; n++) {
		assert_int_equal(end_recvv(&pair[1], NULL, &(struct iovec){ to, size }, 1, 0, UINT64_MAX,
					   SC_TAGGED, to),
				 0);
		ends_settle(pair, 2);
		expect_received(&pair[1], pair[1].peer, to, size, n);
		assert_int_equal(memcmp(to, from + n % 1000, size), 0);
	}
}

/*
 * A ring whose reader does not look goes on in buffers, wherever it was, so that many messages are taken; in the end no
 * more are, and when they have been read it is a ring again, and the buffers can be used again.
 */
static void test_ring_overflows(void **state)
{
	static const struct {
		size_t size;
		uint32_t least; /* messages */
		uint32_t flags;
	} some[] = { { 0, 3000, 0 },	{ 40, 3000, 0 },   { 96, 1500, 0 },
		     { 200, 600, 0 },	{ 1000, 1000, 0 }, { 4096, 1000, SC_SEND_INJECT },
		     { 50000, 1000, 0 } };
	static const uint32_t before[] = { 0, 5, SC_ABI_RING_FIRST - 1, SC_ABI_RING_FIRST, 100 };
	uint8_t *to = malloc(BIG);

	(void)state;
	assert_non_null(to);
	pattern_fill(from, 0, 1u << 17, 5);
	for (enum way way = 0; way < WAYS; way++)
		for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
			uint32_t sent = before[i % 5], first;

			if (!way_possible(way))
				continue;
			pair_open(pair, NULL, way);
			for (uint32_t n = 0; n < sent; n++) {
				assert_int_equal(end_send(&pair[0], pair[0].peer, from + n, 0, n,
							  SC_TAGGED | SC_SILENT),
						 0);
				receive_in_order(n, n + 1, 0, to);
			}
			for (int round = 0; round < 4; round++) {
				uint64_t overflows = pair[0].ep->counters.tx_overflows;

				first = sent;
				sent = flood_past_the_ring(first, some[i].size, some[i].flags);
				assert_true(sent - first >= some[i].least);
				assert_true(pair[0].ep->counters.tx_overflows > overflows);
				receive_in_order(first, sent, some[i].size, to);
				for (int n = 0; n < 200; n++, sent++) { /* around the ring */
					assert_int_equal(end_send(&pair[0], pair[0].peer,
								  from + sent % 1000, some[i].size, sent,
								  SC_TAGGED | SC_SILENT),
							 0);
					receive_in_order(sent, sent + 1, some[i].size, to);
					assert_false(sc_ring_overflows(&pair[0].peer->tx));
				}
				/* looks at all */
				(void)sc_record_may_lend(pair[0].peer, pair[0].ep->pool.count, 0);
				assert_true(pair[0].peer->bounce.loans.count <= SC_ABI_RETURN_BUFS);
			}
			assert_int_equal(pair[1].ep->counters.quarantines, 0);
			pair_close(pair);
		}
	free(to);
}

/* Of any size, in any order, with a reader that looks now and then: all come, once and in order. */
static void test_ring_overflows_at_random(void **state)
{
	static const size_t sizes[] = { 0, 8, 40, 41, 97, 200, 500, 872, 1000, 4096, 9000, 32768, 40000 };
	enum { MANY = 30000 };
	uint64_t random = 17;
	uint8_t *to = malloc(BIG);

	(void)state;
	assert_non_null(to);
	for (uint32_t buf_size = 1024; buf_size <= 8192; buf_size *= 2) {
		struct sc_ep_attr attr = end_attr();
		uint32_t sent = 0, got = 0;

		attr.config.buf_size = buf_size;
		pair_open(pair, &attr, WAY_LOCAL);
		while (got < MANY) {
			uint32_t tries = pair_random(&random) % 4 ? pair_random(&random) % 40
								  : pair_random(&random) % 3000;
			uint32_t polls = pair_random(&random) % 4;

			while (tries-- && sent < MANY) {
				size_t size = sizes[(sent * 7919u) % 97 % 13];
				int ret = end_send(&pair[0], pair[0].peer, from + sent % 1000, size, sent,
						   SC_TAGGED | SC_SILENT);

				assert_true(!ret || ret == -EAGAIN);
				sent += !ret;
			}
			for (sc_ep_poll(pair[0].ep); polls--;)
				sc_ep_poll(pair[1].ep);
			for (uint32_t most = pair_random(&random) % 200; most-- && got < sent; got++) {
				size_t size = sizes[(got * 7919u) % 97 % 13];

				assert_int_equal(end_recvv(&pair[1], NULL, &(struct iovec){ to, BIG }, 1,
							   0, UINT64_MAX, SC_TAGGED, to),
						 0);
				while (!sc_comp_ring_peek(&pair[1].rx)) {
					sc_ep_poll(pair[1].ep);
					sc_ep_poll(pair[0].ep);
				}
				expect_received(&pair[1], pair[1].peer, to, size, got);
				assert_int_equal(memcmp(to, from + got % 1000, size), 0);
			}
		}
		/* one that is as short as a record may be is of no use */
		assert_int_equal(pair[0].ep->counters.tx_overflows > 0, buf_size > 1024);
		assert_int_equal(pair[1].ep->counters.quarantines, 0);
		pair_close(pair);
	}
	free(to);
}

/* As soon as its reader has come to the first buffer, all of the ring can be written again. */
static void test_ring_resumes(void **state)
{
	uint32_t sent, again;
	uint8_t to[8];

	(void)state;
	pair_open(pair, NULL, WAY_LOCAL);
	sent = flood_past_the_ring(0, 8, 0);
	while (!pair[1].peer->rx.left.lines)
		assert_true(sc_ep_poll(pair[1].ep) > 0);
	again = flood(sent, 8);
	assert_false(sc_ring_overflows(&pair[0].peer->tx));
	assert_int_equal(again - sent, SC_RING_ROOM);
	receive_in_order(0, sent, 8, to);
	receive_flood(sent, again, 8);
	pair_close(pair);
}

/* A sender closes while its ring overflows, before the receiver has heard of it: all messages arrive. */
static void test_overflow_left(void **state)
{
	uint8_t *to = malloc(BIG);
	struct sc_peer *source;
	uint32_t sent;

	(void)state;
	assert_non_null(to);
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	pair[0].peer = end_find(&pair[0], &pair[1]);
	assert_int_equal(sc_peer_connect(pair[0].peer), 0);
	sent = flood_past_the_ring(0, 8, 0);
	assert_true(sc_ring_overflows(&pair[0].peer->tx));
	source = end_find(&pair[1], &pair[0]);
	end_close(&pair[0]);
	ends_settle(&pair[1], 1);
	for (uint32_t n = 0; n < sent; n++) {
		assert_int_equal(end_recv(&pair[1], NULL, to, 8, n, SC_TAGGED), 0);
		expect_received(&pair[1], source, to, 8, n);
		assert_memory_equal(to, from + n % 1000, 8);
	}
	end_close(&pair[1]);
	free(to);
}

/* One that does not look takes no more buffers than are due to it: others have some. */
static void test_overflow_leaves_some(void **state)
{
	struct end third;

	(void)state;
	pair_open(pair, NULL, WAY_LOCAL);
	end_open(&third, NULL);
	third.peer = end_find(&pair[0], &third);
	(void)flood_past_the_ring(0, 0, 0);
	assert_int_equal(end_send(&pair[0], third.peer, from, 20000, 0, SC_TAGGED | SC_SILENT), 0);
	assert_int_equal(pair[0].ep->counters.tx_bounce, 1);
	end_close(&third);
	pair_close(pair);
}

/* At the queue's limit a send returns -EAGAIN; a silent one does not. */
static void test_queue_full(void **state)
{
	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	pair[0].tx.limit = 4;
	for (int i = 0; i < 4; i++)
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), -EAGAIN);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SILENT), 0);
	sc_comp_ring_release(&pair[0].tx);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), -EAGAIN);
	pair_close(pair);
}

static void test_room(void **state)
{
	struct sc_ep_attr attr = end_attr();
	uint8_t to[8];

	(void)state;
	attr.tx_size = 3;
	pair_open(pair, &attr, WAY_PULL);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(sc_tx_room(pair[0].ep), 3 - i);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_DELIVERY), 0);
	}
	assert_int_equal(sc_tx_room(pair[0].ep), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_DELIVERY), 0);
	assert_int_equal(sc_tx_room(pair[0].ep), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(end_recv(&pair[1], NULL, to, 8, 0, 0), 0);
	ends_settle(pair, 2);
	assert_int_equal(sc_tx_room(pair[0].ep), 3);
	pair_close(pair);
}

/* Both rings full of messages that want an answer: both sides get out of it. */
static void test_answers_with_full_rings(void **state)
{
	uint8_t *to = malloc(40000);
	uint32_t sent[2] = { 0, 0 };

	(void)state;
	assert_non_null(to);
	pair_open(pair, NULL, WAY_PULL);
	for (int i = 0; i < 2; i++)
		while (!end_send(&pair[i], pair[i].peer, from, sent[i] % 2 ? 40000 : 8, 0,
				 SC_SEND_DELIVERY))
			sent[i]++;
	for (int i = 0; i < 2; i++)
		for (uint32_t n = 0; n < sent[!i]; n++)
			assert_int_equal(end_recv(&pair[i], NULL, to, 40000, 0, 0), 0);
	ends_settle(pair, 2);
	for (int i = 0; i < 2; i++) {
		assert_true(sc_list_empty(&pair[i].ep->work[SC_WORK_REPLYING]));
		assert_int_equal(sc_slab_used(&pair[i].ep->tx_ops), 0);
		assert_int_equal(pair[i].tx.tail, sent[i]);
		assert_int_equal(pair[i].rx.tail, sent[!i]);
		assert_int_equal(pair[i].ep->pool.free_count + pair[i].peer->bounce.loans.count,
				 pair[i].ep->pool.have);
	}
	pair_close(pair);
	free(to);
}

/*
 * More messages that are to be acknowledged than answers are kept for a peer that does not look at its ring: their sender
 * is pushed back, and nothing is lost.
 */
#define UNREAD_ANSWERS 70000

static void test_answers_unread(void **state)
{
	uint32_t sent = 0, received = 0, refused = 0, completed = 0;
	uint8_t to[8];

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	while (sent < UNREAD_ANSWERS) {
		int ret = end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_DELIVERY);

		assert_true(!ret || ret == -EAGAIN);
		sent += !ret;
		if (!ret)
			assert_int_equal(end_recv(&pair[1], NULL, to, 8, 0, 0), 0);
		for (int moved = 1; moved;) {
			moved = sc_ep_poll(pair[1].ep);
			for (; sc_comp_ring_peek(&pair[1].rx); received++)
				assert_int_equal(comp_take(&pair[1].rx).err, 0);
		}
		if (!ret)
			continue;
		refused++;
		sc_ep_poll(pair[0].ep);
		for (; sc_comp_ring_peek(&pair[0].tx); completed++)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
	}
	assert_true(refused && received == sent);
	while (completed < sent) {
		ends_settle(pair, 2);
		assert_non_null(sc_comp_ring_peek(&pair[0].tx));
		for (; sc_comp_ring_peek(&pair[0].tx); completed++)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
	}
	assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair[i].ep->counters.quarantines, 0);
	pair_close(pair);
}

/* Eager messages to that peer until no more buffers are lent to it. Returns how many were sent. */
static uint32_t lend_all(struct end *end, struct sc_peer *to)
{
	uint64_t large = end->ep->counters.tx_rdv;
	uint32_t sent = 0;

	while (end->ep->counters.tx_rdv == large && !end_send(end, to, from, 4096, 0, SC_SILENT))
		sent++;
	return sent;
}

/* Sends a peer that does not look so many small messages that its ring goes on in all buffers that it may have. */
static uint32_t lend_to_ring(struct end *end, struct sc_peer *to)
{
	uint32_t sent = 0;

	for (int refused = 0; refused < 3000;) {
		int ret = end_send(end, to, from, 180, 0, SC_SILENT);

		assert_true(!ret || ret == -EAGAIN);
		refused = ret ? refused + 1 : 0;
		sent += !ret;
	}
	return sent;
}

/* ends[0] is connected to all the others, and its pool is as small as given. */
static void star_open(struct end *ends, int count, uint32_t buf_count)
{
	struct sc_ep_attr attr = end_attr();

	attr.config.buf_count = buf_count;
	attr.config.buf_size = 4096;
	for (int i = 0; i < count; i++)
		end_open(&ends[i], &attr);
	for (int i = 1; i < count; i++)
		assert_int_equal(sc_peer_connect(end_find(&ends[0], &ends[i])), 0);
	ends_settle(ends, (size_t)count);
}

/*
 * Buffers that a peer has read are free, also for another peer. The endpoint sends nothing more to the first one, so it
 * looks how far that one has read only when it needs a buffer for another. For a message that can go another way it
 * does not look.
 */
static void test_buffers_of_others(void **state)
{
	static const size_t lengths[] = { 4096, 100000, SC_ROUTE_BUFFER_MIN };
	uint8_t *to = malloc(100000);

	(void)state;
	assert_non_null(to);
	for (int i = 0; i < 3; i++) {
		struct sc_peer *first, *second;
		struct end ends[3];
		uint32_t sent, lent;
		uint64_t eager;

		star_open(ends, 3, 4);
		first = end_find(&ends[0], &ends[1]);
		second = end_find(&ends[0], &ends[2]);
		sent = lend_all(&ends[0], first);
		ends_settle(ends, 3);
		assert_int_equal(ends[1].ep->counters.rx_unexpected, sent);
		end_take_way(&ends[2], end_find(&ends[2], &ends[0]), WAY_PULL);
		eager = ends[0].ep->counters.tx_bounce;
		lent = first->bounce.loans.count;
		assert_int_equal(end_send(&ends[0], second, from, lengths[i], 7, SC_TAGGED), 0);
		assert_int_equal(ends[0].ep->counters.tx_bounce, eager + !i);
		if (i == 2) {
			assert_int_equal(first->bounce.loans.count, lent);
			assert_int_equal(end_send(&ends[0], first, from, lengths[i], 7, SC_TAGGED), 0);
			assert_int_equal(ends[0].ep->counters.tx_bounce, eager + 1); /* its own */
		}
		assert_int_equal(end_recv(&ends[2], NULL, to, 100000, 7, SC_TAGGED), 0);
		ends_settle(ends, 3);
		expect_received(&ends[2], end_find(&ends[2], &ends[0]), to, lengths[i], 7);
		for (int n = 0; n < 3; n++)
			end_close(&ends[n]);
	}
	free(to);
}

/* Peers that do not look hold what they were lent; one that does is not kept waiting for them. */
static void send_beside_silent(uint32_t buf_count, uint32_t (*lend)(struct end *, struct sc_peer *),
			       size_t length)
{
	enum { SILENT = 6 };
	struct end ends[SILENT + 2];
	uint8_t *to = malloc(length);
	struct sc_peer *peer;

	assert_non_null(to);
	star_open(ends, SILENT + 2, buf_count);
	for (int n = 2; n < SILENT + 2; n++)
		(void)lend(&ends[0], end_find(&ends[0], &ends[n]));
	peer = end_find(&ends[0], &ends[1]);
	end_take_way(&ends[1], end_find(&ends[1], &ends[0]), WAY_PULL);
	assert_int_equal(end_send(&ends[0], peer, from, length, 7, SC_TAGGED), 0);
	assert_int_equal(end_recv(&ends[1], NULL, to, length, 7, SC_TAGGED), 0);
	ends_settle(ends, 2);
	expect_received(&ends[1], end_find(&ends[1], &ends[0]), to, length, 7);
	for (int n = 0; n < SILENT + 2; n++)
		end_close(&ends[n]);
	free(to);
}

static void test_silent_peers(void **state)
{
	static const size_t lengths[] = { 1000, 100000 };

	(void)state;
	for (uint32_t buf_count = 2; buf_count <= 128; buf_count *= 4)
		for (int i = 0; i < 2; i++) {
			send_beside_silent(buf_count, lend_all, lengths[i]);
			send_beside_silent(buf_count, lend_to_ring, lengths[i]);
		}
}

/* ---- many ------------------------------------------------------------------------------------ */

/* Both directions at once, changing sizes, posted late and early: all arrive, in order. */
static void test_order(void **state)
{
	static const size_t some[] = { 8, 40000, 0, 1000, 200, 33000, 41, 8192, 20000 };
	enum { COUNT = 9, MESSAGES = 3000, BUFFERS = 3 };
	uint8_t *to = malloc((size_t)BUFFERS * 65536);

	(void)state;
	assert_non_null(to);
	pattern_fill(from, 0, 1u << 17, 9);
	for (enum way way = 0; way < WAYS; way++) {
		uint32_t sent[2] = { 0 }, posted[2] = { 0 }, received[2] = { 0 };
		bool busy[BUFFERS] = { false };
		uint64_t random = 5;

		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (long rounds = 0; received[0] < MESSAGES || received[1] < MESSAGES; rounds++) {
			int i = (int)(pair_random(&random) % 2);
			struct sc_comp *comp;

			assert_true(rounds < PAIR_ROUNDS * 10l);
			for (int n = (int)(pair_random(&random) % 8); n > 0 && sent[i] < MESSAGES; n--) {
				int ret = end_send(&pair[i], pair[i].peer, from + sent[i] % 5000,
						   some[sent[i] % COUNT], sent[i], SC_TAGGED);

				assert_true(!ret || ret == -EAGAIN);
				sent[i] += !ret;
			}
			if (i == 0 && posted[0] < MESSAGES && posted[0] - received[0] < 1) {
				assert_int_equal(end_recvv(&pair[0], NULL, &(struct iovec){ to, 65536 }, 1,
							   0, UINT64_MAX, SC_TAGGED, to),
						 0);
				posted[0]++;
			}
			/* the other side posts by tag, one ahead; they may complete in another order */
			for (int n = 1; n < BUFFERS && i == 1 && posted[1] < MESSAGES; n++)
				if (!busy[n]) {
					assert_int_equal(end_recv(&pair[1], pair[1].peer, to + 65536 * n,
								  65536, posted[1]++, SC_TAGGED),
							 0);
					busy[n] = true;
				}
			sc_ep_poll(pair[pair_random(&random) % 2].ep);
			while ((comp = sc_comp_ring_peek(&pair[i].rx))) {
				uint32_t number = i ? (uint32_t)comp->tag : received[i];

				assert_int_equal(comp->err, 0);
				assert_int_equal(comp->tag, number);
				assert_int_equal(comp->len, some[number % COUNT]);
				assert_true(!memcmp(comp->context, from + number % 5000, comp->len));
				received[i]++;
				busy[((uint8_t *)comp->context - to) / 65536] = false;
				sc_comp_ring_release(&pair[i].rx);
			}
			while (sc_comp_ring_peek(&pair[i].tx)) {
				assert_int_equal(comp_take(&pair[i].tx).err, 0);
			}
		}
		ends_settle(pair, 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(pair[i].ep->counters.tx_msgs, MESSAGES);
			assert_int_equal(pair[i].ep->counters.rx_msgs, MESSAGES);
			assert_int_equal(sc_slab_used(&pair[i].ep->tx_ops), 0);
			assert_int_equal(sc_slab_used(&pair[i].ep->rxq->ops), 0);
			assert_int_equal(pair[i].peer->recv.units_held, 0);
		}
		pair_close(pair);
	}
	free(to);
}

static void test_self(void **state)
{
	struct end self;

	(void)state;
	end_open(&self, NULL);
	self.peer = end_find(&self, &self);
	for (size_t i = 0; i < SIZES; i++)
		for (int late = 0; late < 2; late++) {
			uint8_t *to = guarded_alloc(sizes[i]);

			pattern_fill(from, 0, sizes[i], i);
			if (!late)
				assert_int_equal(end_recv(&self, self.peer, to, sizes[i], i, SC_TAGGED),
						 0);
			assert_int_equal(end_send(&self, self.peer, from, sizes[i], i,
						  SC_TAGGED | SC_SEND_DELIVERY),
					 0);
			ends_settle(&self, 1);
			if (late)
				assert_int_equal(end_recv(&self, NULL, to, sizes[i], i, SC_TAGGED), 0);
			ends_settle(&self, 1);
			expect_sent(&self, from, sizes[i]);
			expect_received(&self, self.peer, to, sizes[i], i);
			assert_true(pattern_is(to, 0, sizes[i], i));
			assert_true(guarded_intact(to, sizes[i], sizes[i]));
			guarded_free(to);
		}
	assert_int_equal(self.ep->counters.connects, 1);
	assert_int_equal(self.ep->counters.accepts, 1);
	for (int i = 0; i < 20000; i++) {
		uint8_t to[16];

		assert_int_equal(end_send(&self, self.peer, from, 16, 1, SC_TAGGED), 0);
		assert_int_equal(end_recv(&self, self.peer, to, 16, 1, SC_TAGGED), 0);
		while (!sc_comp_ring_peek(&self.rx))
			sc_ep_poll(self.ep);
		sc_comp_ring_release(&self.rx);
		sc_comp_ring_release(&self.tx);
	}
	end_close(&self);
}

/* More peers than are looked at in each poll: all are heard, each in its order. */
static void test_many_peers(void **state)
{
	enum { PEERS = 24, MESSAGES = 400 };
	struct sc_ep_attr attr = end_attr();
	struct end *ends = calloc(PEERS + 1, sizeof(*ends));
	uint32_t sent[PEERS + 1] = { 0 }, received[PEERS + 1] = { 0 }, total = 0;
	uint8_t *to = malloc(65536);

	(void)state;
	assert_true(ends && to);
	attr.config.slots = PEERS;
	pattern_fill(from, 0, 1u << 17, 9);
	for (int i = 0; i <= PEERS; i++) {
		end_open(&ends[i], &attr);
		if (i) {
			ends[i].peer = end_find(&ends[i], &ends[0]);
			sc_peer_set_user(end_find(&ends[0], &ends[i]), (uint64_t)i);
		}
	}
	assert_int_equal(
		end_recvv(&ends[0], NULL, &(struct iovec){ to, 65536 }, 1, 0, UINT64_MAX, SC_TAGGED, to),
		0);
	for (long rounds = 0; total < PEERS * MESSAGES; rounds++) {
		assert_true(rounds < PAIR_ROUNDS);
		for (int i = 1; i <= PEERS; i++) {
			size_t size = (sent[i] + (uint32_t)i) % 16 == 0 ? 40000 : (sent[i] * 37u) % 3000;

			if (sent[i] < MESSAGES && !end_send(&ends[i], ends[i].peer, from + i, size,
							    sent[i], SC_TAGGED | SC_SILENT))
				sent[i]++;
			sc_ep_poll(ends[i].ep);
		}
		sc_ep_poll(ends[0].ep);
		while (sc_comp_ring_peek(&ends[0].rx)) {
			struct sc_comp comp = comp_take(&ends[0].rx);
			uint64_t who = sc_peer_user(comp.source);

			assert_true(who >= 1 && who <= PEERS);
			assert_int_equal(comp.err, 0);
			assert_int_equal(comp.tag, received[who]);
			assert_true(!memcmp(to, from + who, comp.len));
			received[who]++;
			total++;
			assert_int_equal(end_recvv(&ends[0], NULL, &(struct iovec){ to, 65536 }, 1, 0,
						   UINT64_MAX, SC_TAGGED, to),
					 0);
		}
	}
	for (int i = 0; i <= PEERS; i++)
		end_close(&ends[i]);
	free(ends);
	free(to);
}

/* ---- between processes ----------------------------------------------------------------------- */

#define STRESS_MESSAGES 1200
#define STRESS_MAX 150000

struct stress {
	char address[SC_ADDR_SIZE];
	bool cma;
};

static size_t stress_size(uint64_t *random)
{
	static const size_t limits[] = { 64, 64, 400, 400, 5000, 33000, STRESS_MAX };

	return pair_random(random) % limits[pair_random(random) % 7];
}

/* Both processes do this: send and receive random messages; false with what went wrong. */
static const char *stress_run(struct end *end, struct sc_peer *peer, uint64_t send_seed,
			      uint64_t recv_seed)
{
	uint64_t send_random = send_seed, recv_random = recv_seed;
	uint8_t *out = malloc(STRESS_MAX), *in = malloc(STRESS_MAX);
	bool out_free = true, in_posted = false;
	int sent = 0, received = 0;
	size_t size = 0;
	struct sc_comp *comp;

	while (received < STRESS_MESSAGES || sent < STRESS_MESSAGES || !out_free) {
		if (out_free && sent < STRESS_MESSAGES) {
			uint64_t again = send_random;
			uint32_t flags = sent % 7 ? SC_TAGGED : SC_TAGGED | SC_SEND_DELIVERY;
			int ret;

			size = stress_size(&send_random);
			pattern_fill(out, 0, size, (uint64_t)sent);
			ret = end_send(end, peer, out, size, (uint64_t)sent, flags);
			if (ret && ret != -EAGAIN)
				return "a send failed";
			if (ret)
				send_random = again;
			else
				out_free = false, sent++;
		}
		if (!in_posted && received < STRESS_MESSAGES) {
			if (end_recv(end, received % 2 ? peer : NULL, in, STRESS_MAX, (uint64_t)received,
				     SC_TAGGED))
				return "a receive failed";
			in_posted = true;
		}
		if (!sc_ep_poll(end->ep))
			sched_yield();
		if ((comp = sc_comp_ring_peek(&end->tx))) {
			if (comp->err || comp->len != size)
				return "a completion of a send is wrong";
			sc_comp_ring_release(&end->tx);
			out_free = true;
		}
		if ((comp = sc_comp_ring_peek(&end->rx))) {
			if (comp->err || comp->len != stress_size(&recv_random) || comp->source != peer ||
			    comp->tag != (uint64_t)received)
				return "a completion of a receive is wrong";
			if (!pattern_is(in, 0, comp->len, (uint64_t)received))
				return "a payload is wrong";
			sc_comp_ring_release(&end->rx);
			in_posted = false;
			received++;
		}
	}
	free(out);
	free(in);
	return NULL;
}

/* While one peer's answers are looked at, room for them makes it known that the next one has broken the rules. */
static void test_lost_behind_answers(void **state)
{
	struct sc_list *answered;
	struct sc_loans elsewhere;
	struct sc_peer *peers[2];
	struct end third;
	struct sc_ep *ep;

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	ep = pair[1].ep;
	answered = &ep->work[SC_WORK_REPLYING];
	end_open(&third, NULL);
	third.peer = end_find(&third, &pair[1]);
	peers[0] = pair[1].peer;
	peers[1] = end_find(&pair[1], &third);
	for (int i = 0; i < 2; i++) {
		while (!end_send(&pair[1], peers[i], from, 0, 0, SC_SILENT))
			;
		assert_int_equal(end_recv(&pair[1], peers[i], NULL, 0, 1, 0), 0);
	}
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, 1, SC_SEND_DELIVERY), 0);
	assert_int_equal(end_send(&third, third.peer, from, 0, 1, SC_SEND_DELIVERY), 0);
	(void)sc_ep_poll(ep);
	peers[0] = sc_list_entry(answered->next, struct sc_peer, work[SC_WORK_REPLYING]);
	peers[1] = sc_list_entry(answered->next->next, struct sc_peer, work[SC_WORK_REPLYING]);
	assert_int_equal(peers[0]->reply.count + peers[1]->reply.count, 2);
	/* all buffers are lent */
	sc_loans_init(&elsewhere);
	while (sc_record_grow(ep, 1))
		(void)sc_pool_lend(&ep->pool, &elsewhere, 0);
	if (sc_list_empty(&peers[1]->bounce.borrower))
		sc_list_append(&ep->borrowers, &peers[1]->bounce.borrower);
	sc_store_release_64(&peers[1]->tx.consumer->head, peers[1]->tx.tail + 1);
	peers[0]->tx.stuck_at = peers[0]->tx.head;
	peers[0]->tx.stuck = 1000;
	(void)sc_ep_poll(ep);
	assert_int_equal(ep->counters.quarantines, 1);
	assert_int_equal(peers[1]->link, SC_LINK_DOWN);
	assert_int_equal(peers[0]->reply.count, 1);
	assert_true(answered->next->next == answered);
	sc_pool_reclaim(&ep->pool, &elsewhere);
	end_close(&third);
	pair_close(pair);
}

static void stress_child(struct child *self, void *arg)
{
	const struct stress *stress = arg;
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	const char *fault;
	struct end end = { 0 };

	CHILD_CHECK(!sc_comp_ring_init(&end.tx, 1024) && !sc_comp_ring_init(&end.rx, 1024));
	attr.tx_cq = &end.tx;
	attr.rx_cq = &end.rx;
	attr.config.cma = stress->cma;
	CHILD_CHECK(!sc_ep_create(&attr, &end.ep));
	CHILD_CHECK(!sc_peer_get(end.ep, stress->address, &peer));
	child_tell(self, sc_ep_address(end.ep));
	fault = stress_run(&end, peer, 1, 2);
	if (fault)
		fprintf(stderr, "child: %s\n", fault);
	CHILD_CHECK(!fault);
	CHILD_CHECK(stress->cma || !sc_ep_counters(end.ep)->rx_cma_bytes);
	/* acknowledgements are queued while the ring is full: writes all that the other process waits for */
	while (!sc_list_empty(&end.ep->work[SC_WORK_REPLYING]))
		sc_ep_poll(end.ep);
	child_wait(self);
	sc_ep_destroy(end.ep);
	sc_comp_ring_fini(&end.tx);
	sc_comp_ring_fini(&end.rx);
}

static void test_stress(void **state)
{
	(void)state;
	for (int both = 0; both < 4; both++) {
		struct sc_ep_attr attr = end_attr();
		struct stress stress = { .cma = both & 1 };
		struct sc_peer *peer;
		struct child child;
		const char *fault;
		struct end end;

		attr.config.cma = both & 2;
		end_open(&end, &attr);
		memcpy(stress.address, sc_ep_address(end.ep), SC_ADDR_SIZE);
		assert_true(child_start(&child, stress_child, &stress));
		assert_int_equal(sc_peer_get(end.ep, child.line, &peer), 0);
		fault = stress_run(&end, peer, 2, 1);
		if (fault)
			print_error("%s\n", fault);
		assert_null(fault);
		while (!sc_list_empty(&end.ep->work[SC_WORK_REPLYING]))
			sc_ep_poll(end.ep);
		assert_int_equal(child_end(&child), 0);
		ends_settle(&end, 1);
		assert_int_equal(end.ep->counters.rx_msgs, STRESS_MESSAGES);
		assert_int_equal(end.ep->counters.quarantines, 0);
		assert_int_equal(end.ep->counters.departures, 1);
		if (!attr.config.cma)
			assert_int_equal(end.ep->counters.rx_cma_bytes, 0);
		end_close(&end);
	}
}

/* ---- peers that close, or break the rules ---------------------------------------------------- */

/* Each pending send ends exactly once, with an error, and the next send fails. */
static void test_peer_closes(void **state)
{
	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		int errors = 0;

		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (int i = 0; i < 10; i++) {
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, 0), 0);
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 1000, 0, SC_SEND_DELIVERY),
					 0);
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 0, SC_SEND_MATCH), 0);
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 0, SC_SEND_INJECT),
					 0);
			if (i == 4)
				ends_settle(pair, 2); /* half of them wait there, half are in the ring */
		}
		for (int i = 0; i < 10; i++)
			expect_sent(&pair[0], from, 100);
		assert_true(end_idle(&pair[0]));
		end_close(&pair[1]);
		ends_settle(pair, 2);
		while (sc_comp_ring_peek(&pair[0].tx)) {
			struct sc_comp comp = comp_take(&pair[0].tx);

			assert_int_equal(comp.err, ECONNRESET);
			assert_ptr_equal(comp.context, from);
			errors++;
		}
		assert_int_equal(errors, 30);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), -ECONNRESET);
		assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
		assert_int_equal(pair[0].ep->pool.free_count, pair[0].ep->pool.have);
		assert_int_equal(pair[0].ep->counters.departures, 1);
		pair_close(pair);
	}
}

#ifdef SC_FAULT_INJECTION

static uint8_t late_into[SC_INJECT_MAX];
static bool late_posted;

/* The sender closes, and nobody can see that yet: the receiver copies its message. */
static int receive_late(const char *point)
{
	if (strcmp(point, "peer.unread") || late_posted)
		return 0;
	late_posted = true;
	assert_int_equal(end_recv(&pair[1], NULL, late_into, SC_INJECT_MAX, 0, 0), 0);
	for (int i = 0; i < 10; i++)
		sc_ep_poll(pair[1].ep);
	return 0;
}

/* An injected payload that the receiver has not copied stays as it is until it can see that the sender has closed. */
static void test_injected_and_closed(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_comp comp;

	(void)state;
	if (!way_possible(WAY_CMA))
		skip();
	attr.config.eager_max = attr.config.inline_max = 0;
	pair_open(pair, &attr, WAY_CMA);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, SC_INJECT_MAX, 0, SC_SEND_INJECT), 0);
	assert_int_equal(pair[0].ep->counters.tx_rdv, 1);
	ends_settle(&pair[1], 1);
	late_posted = false;
	(void)core_failing(NULL, 0);
	sc_fault_hook = receive_late;
	end_close(&pair[0]);
	(void)core_failing(NULL, 0);
	assert_true(late_posted);
	ends_settle(&pair[1], 1);
	comp = comp_take(&pair[1].rx);
	if (!comp.err)
		assert_memory_equal(late_into, from, SC_INJECT_MAX);
	end_close(&pair[1]);
}

#endif

/* The peer's ring position or window is a number that cannot be: it is given up, others are not. */
static void test_impossible_consumer(void **state)
{
	for (int variant = 0; variant < 6; variant++) {
		struct sc_abi_consumer *consumer;
		struct end third;
		struct sc_peer *to_third;
		uint8_t to[8];
		int ret;

		(void)state;
		pair_open(pair, NULL, WAY_PULL);
		end_open(&third, NULL);
		to_third = end_find(&pair[0], &third);
		assert_int_equal(end_send(&pair[0], to_third, from, 8, 0, SC_SILENT), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, 0), 0);
		consumer = pair[0].peer->tx.consumer;
		if (variant < 3) {
			consumer->head = variant == 0 ? 1000 : variant == 1 ? UINT64_MAX : INT64_MAX;
		} else {
			consumer->window = variant == 3 ? 1000000 : variant == 4 ? UINT64_MAX : 1u << 30;
			pair[0].peer->units_limit = 0; /* so that it looks */
		}
		for (int i = 0;
		     i < 1000 && !(ret = end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SILENT)); i++)
			;
		assert_true(ret == -ECONNRESET || ret == -EPROTO);
		assert_int_equal(pair[0].ep->counters.quarantines, 1);
		sc_ep_poll(pair[0].ep);
		assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
		assert_true(end_idle(&pair[0]));
		assert_true(end_send(&pair[0], pair[0].peer, from, 8, 0, 0) < 0);
		ends_settle(&third, 1);
		assert_int_equal(end_recv(&third, NULL, to, 8, 0, 0), 0);
		assert_int_equal(comp_take(&third.rx).err, 0);
		end_close(&third);
		pair_close(pair);
	}
}

/*
 * A peer with lent buffers writes an impossible head, which gives no buffer back. The sender finds it when it needs a
 * buffer for this peer or for another: the peer's ring may never be full, so that nothing else looks at the head.
 */
static void test_impossible_head_of_a_borrower(void **state)
{
	(void)state;
	for (int wants = 1; wants <= 2; wants++) {
		struct end ends[3];
		struct sc_peer *first;
		uint64_t eager;
		int ret;

		star_open(ends, 3, 4);
		first = end_find(&ends[0], &ends[1]);
		lend_all(&ends[0], first);
		assert_true(first->bounce.loans.count > 0);
		first->tx.consumer->head = UINT64_MAX / 3;
		eager = ends[0].ep->counters.tx_bounce;
		ret = end_send(&ends[0], end_find(&ends[0], &ends[wants]), from, 4096, 0, SC_SILENT);
		assert_int_equal(ret, wants == 1 ? -EPROTO : 0);
		assert_int_equal(ends[0].ep->counters.tx_bounce, eager + (wants == 2));
		assert_int_equal(ends[0].ep->counters.quarantines, 1);
		assert_int_equal(first->link, SC_LINK_DOWN);
		assert_int_equal(first->bounce.loans.count, 0);
		ends_settle(ends, 3);
		assert_null(first->seg);
		for (int n = 0; n < 3; n++)
			end_close(&ends[n]);
	}
}

/* Large messages that it has asked for wait for the same buffers. */
static void test_impossible_head_in_a_push(void **state)
{
	static uint8_t to[400000];

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	assert_int_equal(end_recv(&pair[1], NULL, to, sizeof(to), 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, sizeof(to), 0, 0), 0);
	sc_ep_poll(pair[1].ep); /* it asks */
	for (int i = 0; i < 100; i++)
		sc_ep_poll(pair[0].ep);
	assert_true(end_idle(&pair[0]));
	pair[0].peer->tx.consumer->head = UINT64_MAX / 3;
	for (int i = 0; i < 100; i++)
		sc_ep_poll(pair[0].ep);
	assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	assert_int_equal(pair[0].ep->pool.free_count, pair[0].ep->pool.have);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[1].rx).err, ECONNRESET);
	pair_close(pair);
}

/* A record that the other side of the pair did not mean to write. */
static void raw_record(struct sc_peer *to, enum sc_abi_kind kind, uint32_t size, uint64_t op,
		       uint64_t second, uint64_t third)
{
	uint64_t words[7] = { op, second, third };

	memcpy(sc_ring_reserve(&to->tx)->words, words, sizeof(words));
	sc_ring_commit(&to->tx, sc_ring_ctl(kind, 0, 1, size), 1);
}

/* pair[1] answers to no operation, with these words: operations of pair[0] to it end, and a third peer goes on. */
static void bad_answer(enum sc_abi_kind kind, uint64_t op, uint64_t second, uint64_t third_word)
{
	struct sc_peer *to_third;
	struct end third;
	uint8_t to[8];

	end_open(&third, NULL);
	to_third = end_find(&pair[0], &third);
	assert_int_equal(end_send(&pair[0], to_third, from, 8, 0, SC_SEND_DELIVERY),
			 0); /* op of another */
	if (op == UINT64_MAX)
		op = sc_slab_id(sc_list_entry(to_third->ops.next, struct sc_tx_op, of_peer));
	raw_record(pair[1].peer, kind, 0, op, second, third_word);
	ends_settle(pair, 2);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
	assert_int_equal(end_send(&pair[1], pair[1].peer, from, 8, 0, 0), -ECONNRESET);
	ends_settle(&third, 1);
	assert_int_equal(end_recv(&third, NULL, to, 8, 0, 0), 0);
	ends_settle(&third, 1);
	sc_ep_poll(pair[0].ep);
	while (sc_comp_ring_peek(&pair[0].tx) && pair[0].tx.tail - pair[0].tx.head > 1)
		assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	expect_sent(&pair[0], from, 8);
	assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
	end_close(&third);
	pair_close(pair);
}

static uint64_t pending_id(void)
{
	return sc_slab_id(sc_list_entry(pair[0].peer->ops.prev, struct sc_tx_op, of_peer));
}

static void test_bad_ack(void **state)
{
	(void)state;
	for (int variant = 0; variant < 8; variant++) {
		static const uint64_t ids[] = { 0, 1ull << 32, 3ull << 32 | 1, UINT64_MAX };
		uint64_t id;

		pair_open(pair, NULL, WAY_PULL);
		if (variant < 4) {
			bad_answer(SC_ABI_ACK, ids[variant], 0, 0); /* the last: another peer's */
			continue;
		}
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, 0), 0);
		id = pending_id();
		switch (variant) {
		case 4: /* one status that is none */
			bad_answer(SC_ABI_ACK, id, 0, 4096);
			break;
		case 5:
			bad_answer(SC_ABI_ACK, id, 0, (uint32_t)-1);
			break;
		case 6:
			bad_answer(SC_ABI_ACK, id, 0, (uint32_t)INT32_MIN);
			break;
		default: /* an old one */
			bad_answer(SC_ABI_ACK, id - (2ull << 32), 0, 0);
		}
	}
}

static void test_bad_pull(void **state)
{
	(void)state;
	for (int variant = 0; variant < 6; variant++) {
		static const uint64_t ids[] = { 0, 1ull << 32 | 77, UINT64_MAX };

		pair_open(pair, NULL, WAY_PULL);
		if (variant < 3) {
			bad_answer(SC_ABI_PULL, ids[variant], 1, 1);
			continue;
		}
		switch (variant) {
		case 3: /* more than the message has */
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, 0), 0);
			bad_answer(SC_ABI_PULL, pending_id(), 1, 40001);
			break;
		case 4: /* a message that is no rendezvous */
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 0, SC_SEND_DELIVERY),
					 0);
			bad_answer(SC_ABI_PULL, pending_id(), 1, 8);
			break;
		default: /* twice */
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, 0), 0);
			raw_record(pair[1].peer, SC_ABI_PULL, 0, pending_id(), 1, 0);
			bad_answer(SC_ABI_PULL, pending_id(), 1, 8);
		}
	}
}

/* An acknowledgement with an error is the operation's error, and no more than that. */
static void test_ack_with_error(void **state)
{
	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, SC_SILENT), 0);
	raw_record(pair[1].peer, SC_ABI_ACK, 0, pending_id(), 0, EFAULT);
	sc_ep_poll(pair[0].ep);
	assert_int_equal(comp_take(&pair[0].tx).err, EFAULT);
	assert_int_equal(pair[0].ep->counters.quarantines, 0);
	pair_close(pair);
}

/* It ends while its pieces are being written: the rest is not written. */
static void test_ack_while_pushing(void **state)
{
	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 1u << 20, 0, 0), 0);
	raw_record(pair[1].peer, SC_ABI_PULL, 0, pending_id(), 1ull << 32 | 5, 1u << 20);
	sc_ep_poll(pair[0].ep);
	assert_false(sc_list_empty(&pair[0].ep->work[SC_WORK_PUSHING]));
	raw_record(pair[1].peer, SC_ABI_ACK, 0, pending_id(), 0, EIO);
	sc_ep_poll(pair[0].ep);
	assert_true(sc_list_empty(&pair[0].ep->work[SC_WORK_PUSHING]));
	assert_int_equal(comp_take(&pair[0].tx).err, EIO);
	assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
	pair_close(pair);
}

/*
 * A fenced message whose delivery is acknowledged tells of all before it as well, fi_cq(3): the
 * acknowledgement waits for earlier messages that nobody has received yet, and for no later ones.
 */
static void test_fence_tells_of_earlier(void **state)
{
	static const size_t sizes[] = { 100, 1000, 50000 };

	uint8_t *to = malloc(50000);

	(void)state;
	assert_non_null(to);
	for (enum way way = 0; way < WAYS; way++)
		for (int i = 0; i < 3; i++)
			for (int late = 0; late < 2; late++) {
				const uint32_t fenced = SC_TAGGED | SC_SEND_FENCE | SC_SEND_DELIVERY;
				uint8_t small[8];

				if (!way_possible(way))
					continue;
				pair_open(pair, NULL, way);
				assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 1,
							  SC_TAGGED | SC_SILENT),
						 0);
				assert_int_equal(
					end_send(&pair[0], pair[0].peer, from, sizes[i], 2, fenced), 0);
				assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 3,
							  SC_TAGGED | SC_SILENT),
						 0);
				if (late)
					ends_settle(pair, 2);
				assert_int_equal(end_recv(&pair[1], NULL, to, sizes[i], 2, SC_TAGGED), 0);
				ends_settle(pair, 2);
				expect_received(&pair[1], pair[1].peer, to, sizes[i], 2);
				assert_null(sc_comp_ring_peek(&pair[0].tx));
				assert_int_equal(end_recv(&pair[1], NULL, small, 8, 1, SC_TAGGED), 0);
				ends_settle(pair, 2);
				expect_received(&pair[1], pair[1].peer, small, 8, 1);
				expect_sent(&pair[0], from, sizes[i]);
				pair_close(pair);
			}
	free(to);
}

#ifdef SC_FAULT_INJECTION

/* The program does this when it is started with the address of an endpoint: see the test. */
static int send_and_die(const char *address)
{
	struct sc_peer *peer;
	struct end end;

	from = calloc(1, BIG);
	watchdog_start("the sender of test_killed_before_commit", 0);
	end_open(&end, NULL);
	assert_int_equal(sc_peer_get(end.ep, address, &peer), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(end_send(&end, peer, from, 100, 42, SC_TAGGED), 0);
	return 0;
}

/* A process of its own: points are armed when a process reaches the first one. */
static void exec_sender(struct child *self, void *address)
{
	char *const argv[] = { (char *)"test_tx", address, NULL };

	setenv("SHMCMA_FAULT", "tx.inline:kill:3", 1);
	execv("/proc/self/exe", argv);
	CHILD_CHECK(!self);
}

/* The sender is killed after it has written a record, and before it publishes it: only the earlier records arrive. */
static void test_killed_before_commit(void **state)
{
	struct child child;
	uint8_t into[3][100];
	int status;

	(void)state;
	end_open(&pair[0], NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(end_recv(&pair[0], NULL, into[i], 100, 42, SC_TAGGED), 0);
	child_spawn(&child, exec_sender, (void *)sc_ep_address(pair[0].ep));
	status = child_reap(&child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ends_settle(pair, 1);
	assert_int_equal(pair[0].ep->counters.accepts, 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(comp_take(&pair[0].rx).len, 100);
	assert_null(sc_comp_ring_peek(&pair[0].rx));
	assert_int_equal(pair[0].ep->counters.rx_unexpected, 0); /* with whatever tag */
	assert_int_equal(pair[0].ep->counters.quarantines, 0);
	end_close(&pair[0]);
}

#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifdef SC_FAULT_INJECTION
		cmocka_unit_test(test_killed_before_commit),
		cmocka_unit_test(test_injected_and_closed),
#endif
		cmocka_unit_test(test_fence_tells_of_earlier),
		cmocka_unit_test(test_each_way),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_own_counter),
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_empty_vector),
		cmocka_unit_test(test_truncation),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_no_queues),
		cmocka_unit_test(test_pool_grows),
		cmocka_unit_test(test_pool_cannot_grow),
		cmocka_unit_test(test_reuse_of_a_bad_head),
		cmocka_unit_test(test_turn),
		cmocka_unit_test(test_while_it_reads),
		cmocka_unit_test(test_inject),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_no_parts_behind),
		cmocka_unit_test(test_buffers_behind),
		cmocka_unit_test(test_fill_ways),
		cmocka_unit_test(test_aliased),
		cmocka_unit_test(test_nothing_inline),
		cmocka_unit_test(test_rather_in_buffers),
		cmocka_unit_test(test_delivery_and_match),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_ring_full),
		cmocka_unit_test(test_ring_grows),
		cmocka_unit_test(test_ring_busy),
		cmocka_unit_test(test_ring_without_memory),
		cmocka_unit_test(test_ring_overflows),
		cmocka_unit_test(test_ring_overflows_at_random),
		cmocka_unit_test(test_ring_resumes),
		cmocka_unit_test(test_overflow_left),
		cmocka_unit_test(test_overflow_leaves_some),
		cmocka_unit_test(test_queue_full),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_answers_with_full_rings),
		cmocka_unit_test(test_lost_behind_answers),
		cmocka_unit_test(test_answers_unread),
		cmocka_unit_test(test_buffers_of_others),
		cmocka_unit_test(test_silent_peers),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_many_peers),
		cmocka_unit_test(test_stress),
		cmocka_unit_test(test_peer_closes),
		cmocka_unit_test(test_impossible_consumer),
		cmocka_unit_test(test_impossible_head_of_a_borrower),
		cmocka_unit_test(test_impossible_head_in_a_push),
		cmocka_unit_test(test_bad_ack),
		cmocka_unit_test(test_bad_pull),
		cmocka_unit_test(test_ack_with_error),
		cmocka_unit_test(test_ack_while_pushing),
	};

#ifdef SC_FAULT_INJECTION
	if (argc > 1)
		return send_and_die(argv[1]);
#else
	(void)argc;
	(void)argv;
#endif
	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests_name("tx", tests, setup, teardown);
}
