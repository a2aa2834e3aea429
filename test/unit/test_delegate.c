/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_delegate: small puts and gets that either side may do: the owner takes them, the initiator withdraws them, some
 * of each, both at the same moment; operations that are posted meanwhile; words that a peer which keeps the rules does
 * not write; and how they end when either side closes, stops or dies. Offers that make no sense are in test_target.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "link/connect.h"
#include "rma/delegate.h"
#include "rma_pair.h"

static const struct route direct = { "copied by CMA", false, WAY_CMA };

/* Each test needs a peer whose memory can be written from here. */
#define OPEN()                                                                                            \
	do {                                                                                              \
		(void)state;                                                                              \
		if (!cma_allowed())                                                                       \
			skip();                                                                           \
		rma_open(&direct);                                                                        \
	} while (0)

/* The owner needs several bounce buffers to answer the largest get. */
static void small_buffers(struct sc_config *config)
{
	config->buf_size = 1024;
}

#define OPEN_WITH_SMALL_BUFFERS()                                                                         \
	do {                                                                                              \
		adjust = small_buffers;                                                                   \
		OPEN();                                                                                   \
		adjust = NULL;                                                                            \
	} while (0)

static const struct sc_counters *counters(void)
{
	return &pair[0].ep->counters;
}

static void put(const void *buf, uint64_t addr, uint64_t len, uint32_t flags)
{
	struct iovec iov = { (void *)buf, len };
	struct sc_remote remote = at(addr, len);

	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | flags), 0);
}

/* One that is offered, and not done yet. */
static void offer(const void *buf, uint64_t addr, uint64_t len, uint32_t flags)
{
	uint64_t offers = counters()->rma_delegated;

	put(buf, addr, len, flags);
	assert_int_equal(counters()->rma_delegated, offers + 1);
	assert_true(end_idle(&pair[0]));
}

static int ask(void *buf, uint64_t addr, uint64_t len)
{
	struct iovec iov = { buf, len };
	struct sc_remote remote = at(addr, len);

	return post(&iov, 1, &remote, 1, 0);
}

/* A get that is offered, and not done yet. */
static void offer_get(void *buf, uint64_t addr, uint64_t len)
{
	uint64_t offers = counters()->rma_delegated;

	assert_int_equal(ask(buf, addr, len), 0);
	assert_int_equal(counters()->rma_delegated, offers + 1);
	assert_true(end_idle(&pair[0]));
}

static void owner_polls(void)
{
	ends_settle(&pair[1], 1);
}

static void we_poll(void)
{
	ends_settle(&pair[0], 1);
}

static void expect_done(int count)
{
	while (count--)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_true(end_idle(&pair[0]));
}

/* The words of the delegated operations are in the owner's segment. */
static uint64_t *claim_word(void)
{
	return &sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->delegation.claim;
}

static struct sc_abi_consumer *consumer(void)
{
	return &sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->consumer;
}

/* ---- short puts ------------------------------------------------------------------------------ */

/* One that is posted as most short puts are. False: it must be posted as any other operation. */
static bool put_short(uint32_t flags)
{
	struct iovec iov = { from, 8 };
	struct sc_remote remote = at(0, 8);
	const struct sc_rma rma = { .iov = &iov,
				    .iov_count = 1,
				    .remote = &remote,
				    .remote_count = 1,
				    .flags = flags | SC_RMA_WRITE };
	uint32_t pending = pair[0].peer->rma.pending;
	bool done;

	assert_true(sc_delegate_is_short(&rma));
	done = sc_delegate_short(pair[0].peer, &rma);
	assert_int_equal(pair[0].peer->rma.pending, pending + done);
	return done;
}

/* Each reason for the other way, alone. */
static void test_short_guards(void **state)
{
	struct sc_peer_delegate *delegate;
	struct sc_peer *peer;

	OPEN();
	peer = pair[0].peer;
	delegate = &peer->delegate;
	assert_false(put_short(0)); /* nothing has been delegated yet */
	offer(from, 0, 8, 0);
	assert_true(put_short(0));
#define REFUSED(word, value)                                                                              \
	do {                                                                                              \
		__typeof__(word) before = (word);                                                         \
		(word) = (value);                                                                         \
		assert_false(put_short(0));                                                               \
		(word) = before;                                                                          \
	} while (0)
	REFUSED(delegate->plain, false);
	REFUSED(delegate->pause, 1);
	REFUSED(delegate->rescue->keeper, SC_RESCUE_RESTS);
	REFUSED(delegate->ours, delegate->end - 1);
	REFUSED(peer->rma.pending, peer->rma.pending + 1);
	REFUSED(peer->order.fence, 1);
	REFUSED(peer->can_read, SC_REACH_NO);
	REFUSED(peer->tx.limit, peer->tx.tail);
	while (delegate->end - delegate->first < SC_ABI_DELEGATED)
		assert_true(put_short(SC_SILENT));
	assert_false(put_short(SC_SILENT));
#undef REFUSED
	owner_polls();
	we_poll();
	expect_done(2);
	while (!pair[0].ep->alone && pair[0].ep->barrier && !sc_peer_shows_life(peer))
		sched_yield();				     /* the daemon's thread starts */
	assert_false(put_short(SC_SEND_INJECT | SC_SILENT)); /* this peer's application counts */
	rma_close();
}

/* Without memory for delegated operations each put is copied at once, the next one too; with memory it is delegated. */
static void test_short_without_memory(void **state)
{
	OPEN();
	if (!core_failing("rescue.open", ENOMEM)) {
		rma_close();
		skip();
	}
	for (int i = 0; i < 3; i++) {
		put(from, 0, 8, 0);
		assert_null(pair[0].peer->delegate.open);
		expect_done(1);
	}
	assert_memory_equal(space, from, 8);
	(void)core_failing(NULL, 0);
	offer(from, 8, 8, 0);
	owner_polls();
	we_poll();
	expect_done(1);
	rma_close();
}

/* An order that binds puts to earlier operations, or their completions. */
static void test_short_in_order(void **state)
{
	static const struct {
		uint32_t order;
		bool plain;
	} orders[] = { { 0, true },
		       { SC_ORDER_SEND, true },
		       { SC_ORDER_MEMORY, false },
		       { SC_ORDER_AFTER_SEND, false },
		       { SC_ORDER_COMPLETE, false } };

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		OPEN();
		pair[0].ep->order = orders[i].order;
		offer(from, 0, 8, 0);
		assert_int_equal(pair[0].peer->delegate.plain, orders[i].plain);
		owner_polls();
		we_poll();
		expect_done(1);
		rma_close();
	}
}

/* A message waits for a put that the peer may still take only if the endpoint asks for that order: it is refused once. */
static void test_message_in_order(void **state)
{
	static const uint32_t orders[] = { SC_ORDER_SEND, SC_ORDER_SEND | SC_ORDER_MEMORY, SC_ORDER_MEMORY,
					   SC_ORDER_COMPLETE };

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		bool waits = orders[i] & SC_ORDER_SEND;

		OPEN();
		pair[0].ep->order = orders[i];
		pair[0].ep->short_end = 0; /* as an endpoint with an order has it */
		offer(from, 0, 8, 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 3, SC_SILENT),
				 waits ? -EAGAIN : 0);
		assert_int_equal(sc_ep_refusals(pair[0].ep), waits);
		owner_polls();
		we_poll();
		expect_done(1);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 3, SC_SILENT), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, SIZE_MAX, 3, SC_SILENT),
				 -EMSGSIZE);
		assert_int_equal(sc_ep_refusals(pair[0].ep), waits);
		rma_close();
	}
}

/* A full queue, and a peer that has closed, refuse a short put as any other. */
static void test_short_refused(void **state)
{
	struct sc_remote remote;
	struct iovec iov = { from, 8 };
	__typeof__(pair[0].tx.head) head;

	OPEN();
	remote = at(0, 8);
	offer(from, 0, 8, 0);
	owner_polls();
	we_poll();
	expect_done(1);
	head = pair[0].tx.head;
	pair[0].tx.head = pair[0].tx.tail - pair[0].tx.limit; /* the queue is full */
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), -EAGAIN);
	pair[0].tx.head = head;
	end_close(&pair[1]);
	assert_int_not_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	rma_close();
}

/* ---- one or the other ------------------------------------------------------------------------ */

static const size_t sizes[] = { 0,   1,	  8,	31,   32,   33,	   88,	  255,
				256, 257, 4095, 4096, 4097, 16384, 32767, 32768 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void test_taken(void **state)
{
	OPEN();
	for (size_t i = 0; i < SIZES; i++) {
		uint32_t data = i % 2 ? SC_SEND_DATA : 0;
		struct sc_comp comp;

		memset(space, 0xa5, SPACE);
		offer(from, 7, sizes[i], data);
		assert_true(is_untouched(0, 0));
		owner_polls();
		assert_memory_equal(space + 7, from, sizes[i]);
		assert_true(is_untouched(7, sizes[i]));
		assert_null(sc_comp_ring_peek(&pair[0].tx));
		we_poll();
		comp = comp_take(&pair[0].tx);
		assert_int_equal(comp.err, 0);
		assert_int_equal(comp.len, sizes[i]);
		assert_int_equal(comp.cq_flags, 0x52);
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, i + 1);
		if (!data)
			continue;
		comp = comp_take(&pair[1].rx);
		assert_int_equal(comp.flags, SC_COMP_WRITTEN | SC_COMP_DATA);
		assert_int_equal(comp.data, 0xda7a);
		assert_int_equal(comp.len, sizes[i]);
	}
	assert_int_equal(counters()->rma_delegated_taken, SIZES);
	assert_int_equal(counters()->rma_direct_bytes, 0);
	assert_int_equal(cntrs[0][SC_EVENT_WRITE].value, SIZES);
	put(from, 0, 32769, 0); /* too large */
	assert_int_equal(counters()->rma_direct_bytes, 32769);
	expect_done(1);
	expect_idle();
	rma_close();
}

/* The owner computes: it is done all the same, and not again when the owner comes to it. */
static void test_withdrawn(void **state)
{
	for (size_t i = 0; i < SIZES; i++) {
		uint32_t data = i % 2 ? SC_SEND_DATA : 0;

		OPEN();
		memset(space, 0xa5, SPACE);
		offer(from, 7, sizes[i], data);
		we_poll();
		expect_done(1);
		assert_memory_equal(space + 7, from, sizes[i]);
		assert_true(is_untouched(7, sizes[i]));
		assert_int_equal(counters()->rma_direct_bytes, sizes[i]);
		memset(space, 0xa5, SPACE);
		ends_settle(pair, 2);
		assert_true(is_untouched(0, 0));
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 1);
		assert_int_equal(counters()->rma_delegated_taken, 0);
		if (data) {
			assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
		}
		expect_idle();
		rma_close();
	}
}

static uint8_t into[SPACE]; /* gets write here */

static bool is_unwritten(size_t offset, size_t size)
{
	for (size_t i = 0; i < SPACE; i++)
		if ((i < offset || i >= offset + size) && into[i] != 0x5a)
			return false;
	return true;
}

static const size_t get_sizes[] = { 0,	 1,   7,   8,	47,   48,   49,	  103,	104,  105,
				    160, 255, 256, 257, 1023, 1024, 1025, 2049, 4095, 4096 };
#define GET_SIZES (sizeof(get_sizes) / sizeof(get_sizes[0]))

static void test_got(void **state)
{
	OPEN_WITH_SMALL_BUFFERS();
	memcpy(space, from, SPACE);
	for (size_t i = 0; i < GET_SIZES; i++) {
		size_t size = get_sizes[i];
		struct sc_comp comp;

		memset(into, 0x5a, SPACE);
		offer_get(into + 3, 7, size);
		owner_polls();
		assert_true(is_unwritten(0, 0));
		assert_null(sc_comp_ring_peek(&pair[0].tx));
		we_poll();
		assert_memory_equal(into + 3, from + 7, size);
		assert_true(is_unwritten(3, size));
		comp = comp_take(&pair[0].tx);
		assert_int_equal(comp.err, 0);
		assert_int_equal(comp.len, size);
		assert_int_equal(comp.cq_flags, 0x52);
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_READ].value, i + 1);
	}
	assert_int_equal(counters()->rma_delegated_taken, GET_SIZES);
	assert_int_equal(counters()->rma_direct_bytes, 0);
	assert_int_equal(cntrs[0][SC_EVENT_READ].value, GET_SIZES);
	assert_int_equal(ask(into, 0, 4097), 0); /* too large */
	assert_int_equal(counters()->rma_direct_bytes, 4097);
	expect_done(1);
	assert_memory_equal(space, from, SPACE);
	expect_idle();
	rma_close();
}

/* Into several places, from several pieces. */
static void test_got_vector(void **state)
{
	static const size_t sizes_of[][3] = { { 3, 0, 5 }, { 40, 30, 30 }, { 1, 3000, 1000 } };

	OPEN_WITH_SMALL_BUFFERS();
	memcpy(space, from, SPACE);
	for (size_t i = 0; i < sizeof(sizes_of) / sizeof(sizes_of[0]); i++) {
		const size_t *size = sizes_of[i];
		struct iovec ranges[2] = { { space + 20000, 5 }, { space + 40000, 20000 } };
		struct sc_reg_attr attr = { .ranges = ranges, .range_count = 2, .flags = SC_REG_READ };
		struct iovec iov[3] = { { into, size[0] },
					{ into + 10000, size[1] },
					{ into + 20000, size[2] } };
		size_t all = size[0] + size[1] + size[2];
		uint8_t expected[20000];
		struct sc_remote remote;
		struct sc_reg *pieces;

		memset(into, 0x5a, SPACE);
		assert_int_equal(sc_reg_open(tab[1], &attr, &pieces), 0);
		remote = (struct sc_remote){ 1, all, sc_reg_key(pieces) };
		assert_int_equal(post(iov, 3, &remote, 1, 0), 0);
		owner_polls();
		we_poll();
		expect_done(1);
		memcpy(expected, from + 20001, 4);
		memcpy(expected + 4, from + 40000, all - 4);
		assert_memory_equal(into, expected, size[0]);
		assert_memory_equal(into + 10000, expected + size[0], size[1]);
		assert_memory_equal(into + 20000, expected + size[0] + size[1], size[2]);
		assert_int_equal(into[size[0]], 0x5a);
		assert_int_equal(into[20000 + size[2]], 0x5a);
		assert_int_equal(sc_reg_close(pieces), 0);
	}
	assert_int_equal(counters()->rma_delegated_taken, 3);
	expect_idle();
	rma_close();
}

/* A put or get that the owner takes, and that succeeds. */
static void taken(const void *buf, struct sc_remote remote, uint32_t flags)
{
	struct iovec iov = { (void *)buf, remote.len };
	uint64_t before = counters()->rma_delegated_taken;

	assert_int_equal(post(&iov, 1, &remote, 1, flags), 0);
	owner_polls();
	we_poll();
	expect_done(1);
	assert_int_equal(counters()->rma_delegated_taken, before + 1);
}

/* A put into two ranges, at first when nothing is known of their page, and again. */
static void test_put_in_pieces(void **state)
{
	struct sc_reg_attr attr = { .range_count = 2, .flags = SC_REG_WRITE };
	struct iovec ranges[2];
	struct sc_reg *pieces;

	OPEN();
	ranges[0] = (struct iovec){ space + 100, 5 };
	ranges[1] = (struct iovec){ space + 200, 50 };
	attr.ranges = ranges;
	assert_int_equal(sc_reg_open(tab[1], &attr, &pieces), 0);
	for (int i = 0; i < 3; i++) {
		memset(space, 0x5a, SPACE);
		taken(from + 7, (struct sc_remote){ 2, 30, sc_reg_key(pieces) }, SC_RMA_WRITE);
		assert_memory_equal(space + 102, from + 7, 3);
		assert_memory_equal(space + 200, from + 10, 27);
		assert_int_equal(space[101], 0x5a);
		assert_int_equal(space[105], 0x5a);
		assert_int_equal(space[227], 0x5a);
	}
	expect_idle();
	assert_int_equal(sc_reg_close(pieces), 0);
	rma_close();
}

/* Puts into a registration whose addresses are virtual, at first when nothing is known of its page, and again. */
static void test_put_virtual(void **state)
{
	struct sc_reg *virtual;

	OPEN();
	virtual = reg_open(tab[1], space + 64, 4096, SC_REG_WRITE | SC_REG_VIRTUAL);
	for (int i = 0; i < 3; i++) {
		memset(space, 0xa5, SPACE);
		taken(from + 7, (struct sc_remote){ (uintptr_t)space + 100, 30, sc_reg_key(virtual) },
		      SC_RMA_WRITE);
		assert_memory_equal(space + 100, from + 7, 30);
		assert_true(is_untouched(100, 30));
	}
	assert_int_equal(sc_reg_close(virtual), 0);
	rma_close();
}

/* A silent put from one piece or from two has no completion, but its turn among those that complete in order. */
static void test_silent_in_turn(void **state)
{
	struct iovec iov[] = { { from, 4 }, { from + 4, 4 } };

	OPEN();
	pair[0].ep->order = SC_ORDER_COMPLETE;
	for (int i = 0; i < 4; i++) {
		struct sc_remote remote = at(0, 8);

		if (i % 2)
			assert_int_equal(post(iov, 2, &remote, 1, SC_RMA_WRITE | SC_SILENT), 0);
		else
			offer(from, 0, 8, SC_SILENT);
		offer(from, 8, 8, 0);
		owner_polls();
		we_poll();
		expect_done(1);
		assert_null(pair[0].peer->order.turn);
		assert_true(sc_list_empty(&pair[0].peer->order.turns));
		assert_int_equal(sc_slab_used(&pair[0].ep->turns), 0);
	}
	rma_close();
}

/*
 * The owner does not poll, so the initiator withdraws the get and copies. The owner passes over the record later: the
 * get has the value at the time of the copy.
 */
static void test_get_withdrawn(void **state)
{
	for (size_t i = 0; i < GET_SIZES; i++) {
		size_t size = get_sizes[i];

		OPEN_WITH_SMALL_BUFFERS();
		memcpy(space, from, SPACE);
		memset(into, 0x5a, SPACE);
		offer_get(into + 3, 7, size);
		we_poll();
		expect_done(1);
		assert_memory_equal(into + 3, from + 7, size);
		assert_true(is_unwritten(3, size));
		assert_int_equal(counters()->rma_direct_bytes, size);
		memset(space, 0xa5, SPACE);
		ends_settle(pair, 2);
		assert_memory_equal(into + 3, from + 7, size);
		assert_int_equal(counters()->rma_delegated_taken, 0);
		expect_idle();
		rma_close();
	}
}

/* Puts and gets of the same place, some of them taken: each get finds the put before it. */
static void test_put_and_get(void **state)
{
	uint64_t random = 5, ended = 0;

	OPEN();
	pair_grow(&pair[0], &pair[1]);
	for (int round = 0; round < 2000; round++) {
		uint64_t puts[16], gets[16], count = 1 + pair_random(&random) % 16;
		bool taken = pair_random(&random) % 4;

		for (uint64_t i = 0; i < count; i++) {
			puts[i] = pair_random(&random);
			put(&puts[i], 8, 8, pair_random(&random) % 64 ? 0 : SC_SEND_INJECT);
			assert_int_equal(ask(&gets[i], 8, 8), 0);
		}
		if (taken)
			owner_polls();
		we_poll();
		expect_done((int)count * 2);
		assert_memory_equal(gets, puts, count * 8);
		owner_polls();
		ended += count;
	}
	assert_int_equal(cntrs[0][SC_EVENT_READ].value, ended);
	assert_int_equal(cntrs[0][SC_EVENT_WRITE].value, ended);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_READ].value, ended);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, ended);
	assert_true(counters()->rma_delegated_taken > 1000);
	expect_idle();
	rma_close();
}

/* The lines of an answer that has not been looked at are not written again, though their reader is past them. */
static void test_held(void **state)
{
	static const size_t held_sizes[] = { 8, 48, 104, 3000 };

	for (size_t s = 0; s < sizeof(held_sizes) / sizeof(held_sizes[0]); s++) {
		uint64_t sent = 0;
		int ret;

		OPEN_WITH_SMALL_BUFFERS();
		memcpy(space, from, SPACE);
		memset(into, 0x5a, SPACE);
		/* somewhere in the ring */
		for (uint64_t i = 0; i < s * 39; i++)
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, i, SC_SILENT), 0);
		ends_settle(pair, 2);
		offer_get(into, 0, held_sizes[s]);
		owner_polls();
		while ((ret = end_send(&pair[0], pair[0].peer, from, 40, 0, SC_SILENT)) != -EAGAIN) {
			assert_int_equal(ret, 0);
			assert_true(++sent < 1000);
			owner_polls();
		}
		owner_polls();
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SILENT), -EAGAIN);
		assert_true(is_unwritten(0, 0));
		we_poll();
		assert_memory_equal(into, from, held_sizes[s]);
		assert_true(is_unwritten(0, held_sizes[s]));
		expect_done(1);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SILENT), 0);
		expect_idle();
		rma_close();
	}
}

/*
 * The owner answers a get in the lines of its record in the ring. A record that begins in the last line goes on in the
 * first one; the length of this ring decides which line is the last, not the length of the ring of the other direction.
 * The ring does not grow before the owner has answered a get in it.
 */
static void test_straddling(void **state)
{
	const size_t size = 104; /* in two lines */

	for (int grown = 0; grown < 4; grown++)
		for (uint32_t before = 51; before < SC_ABI_RING_LINES; before++) {
			uint32_t sent = 0;

			if (before == SC_ABI_RING_FIRST)
				before = SC_ABI_RING_LINES - 4;
			OPEN();
			memcpy(space, from, SPACE);
			memset(into, 0x5a, SPACE);
			if (grown & 1)
				pair_grow(&pair[0], &pair[1]);
			if (grown & 2)
				pair_grow(&pair[1], &pair[0]);
			for (uint32_t n = 0; n < before; n++) {
				assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT),
						 0);
				owner_polls();
			}
			offer_get(into, 0, size);
			owner_polls();
			while (!end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT)) {
				assert_true(++sent < 1000);
				owner_polls();
			}
			we_poll();
			expect_done(1);
			assert_memory_equal(into, from, size);
			assert_true(is_unwritten(0, size));
			rma_close();
		}
}

#define GETS 10
#define GET_SIZE 4096

/* Gets that small buffers cannot answer all at once. */
static void offer_gets(void)
{
	for (size_t i = 0; i < GETS; i++)
		offer_get(into + i * GET_SIZE, i * GET_SIZE, GET_SIZE);
}

static void expect_gets(void)
{
	expect_done(GETS);
	assert_memory_equal(into, from, GETS * GET_SIZE);
	assert_true(is_unwritten(0, GETS * GET_SIZE));
	owner_polls();
	expect_idle();
}

/* The owner has no buffers to answer in: it is done all the same; they come back, and answers with them. */
static void test_no_buffers(void **state)
{
	uint64_t taken;

	OPEN_WITH_SMALL_BUFFERS();
	memcpy(space, from, SPACE);
	for (int round = 0; round < 3; round++) {
		memset(into, 0x5a, SPACE);
		pair[0].peer->delegate.pause = 0;
		taken = counters()->rma_delegated_taken;
		offer_gets();
		owner_polls();
		owner_polls();
		we_poll();
		assert_true(counters()->rma_delegated_taken > taken);
		assert_true(counters()->rma_delegated_taken < taken + GETS);
		expect_gets();
	}
	rma_close();
}

/* The owner has no memory for more buffers: it answers what it has buffers for, and the initiator does the rest. */
static void test_no_memory_for_buffers(void **state)
{
	uint32_t have;

	OPEN_WITH_SMALL_BUFFERS();
	memcpy(space, from, SPACE);
	memset(into, 0x5a, SPACE);
	have = pair[1].ep->pool.have;
	offer_gets();
	if (core_failing("memory.pool", ENOSPC))
		owner_polls();
	core_failing(NULL, 0);
	assert_int_equal(pair[1].ep->pool.have, have);
	we_poll();
	expect_gets();
	rma_close();
}

/* The initiator makes fewer and fewer offers to an owner that takes none; it makes more once the owner takes one. */
static void test_pause(void **state)
{
	uint64_t passed = 0;

	OPEN();
	for (uint64_t expected = 0; expected < 255;) {
		offer(from, 0, 8, 0);
		we_poll();
		expect_done(1);
		owner_polls();
		expected = 2 * expected + 1 < 255 ? 2 * expected + 1 : 255;
		for (passed = 0; passed < expected; passed++) {
			uint64_t offers = counters()->rma_delegated;

			put(from, 0, 8, 0);
			we_poll();
			expect_done(1);
			owner_polls();	/* for it is to hear of them */
			assert_int_equal(counters()->rma_delegated, offers);
		}
	}
	offer(from, 0, 8, 0);
	ends_settle(pair, 2); /* ours first, then the owner's: one of them */
	expect_done(1);
	while (counters()->rma_delegated_taken < 1) {
		put(from, 0, 8, 0);
		owner_polls();
		we_poll();
		expect_done(1);
	}
	offer(from, 0, 8, 0);
	owner_polls();
	we_poll();
	expect_done(1);
	expect_idle();
	rma_close();
}

/* As many as there may be, round and round in the ring, and some of them withdrawn. */
static void test_many(void **state)
{
	uint64_t random = 1, values[64], ended = 0;

	OPEN();
	for (int round = 0; round < 3000; round++) {
		uint64_t count = pair_random(&random) % 40;

		for (uint64_t i = 0; i < count; i++) {
			size_t size = pair_random(&random) % 8 ? 8 : pair_random(&random) % 400;
			struct iovec iov = { &values[i], 8 };
			struct sc_remote remote = at(i * 8, 8);
			int ret;

			values[i] = pair_random(&random);
			if (size != 8) { /* behind them, elsewhere */
				iov = (struct iovec){ from, size };
				remote = at(10000, size);
			}
			ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE);
			if (ret == -EAGAIN) {
				count = i;
				break;
			}
			assert_int_equal(ret, 0);
			if (size != 8)
				memcpy(&values[i], space + i * 8, 8);
		}
		if (pair_random(&random) % 4)
			owner_polls();
		we_poll();
		expect_done((int)count);
		assert_memory_equal(space, values, count * 8);
		ended += count;
		owner_polls();
	}
	assert_int_equal(cntrs[0][SC_EVENT_WRITE].value, ended);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, ended);
	assert_true(counters()->rma_delegated_taken > 100);
	expect_idle();
	rma_close();
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The owner and the initiator find the same error. */
static void wrong_way(struct sc_remote remote, int err, uint32_t flags)
{
	enum sc_event event = flags & SC_RMA_WRITE ? SC_EVENT_WRITE : SC_EVENT_READ;

	for (int taken = 0; taken < 2; taken++) {
		uint64_t errors = cntrs[0][event].errors, done = counters()->rma_delegated_taken;
		struct iovec iov = { flags & SC_RMA_WRITE ? from : into, remote.len };
		struct sc_comp comp;

		memset(space, 0xa5, SPACE);
		memset(into, 0x5a, SPACE);
		pair[0].peer->delegate.pause = 0;
		assert_int_equal(post(&iov, 1, &remote, 1, flags), 0);
		assert_true(end_idle(&pair[0]));
		if (taken)
			owner_polls();
		we_poll();
		comp = comp_take(&pair[0].tx);
		assert_int_equal(comp.err, err);
		assert_int_equal(comp.olen, 0);
		assert_true(is_untouched(0, 0) && is_unwritten(0, 0));
		assert_int_equal(cntrs[0][event].errors, errors + 1);
		assert_int_equal(counters()->rma_delegated_taken, done + (uint64_t)taken);
		expect_idle();
	}
}

static void wrong(struct sc_remote remote, int err)
{
	wrong_way(remote, err, SC_RMA_WRITE);
}

static void wrong_get(struct sc_remote remote, int err)
{
	wrong_way(remote, err, 0);
}

static void test_errors(void **state)
{
	size_t page = (size_t)getpagesize();
	struct sc_reg *readable, *mapped;
	uint8_t *pages;

	OPEN();
	readable = reg_open(tab[1], space, 100, SC_REG_READ);
	pages = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(pages, MAP_FAILED);
	mapped = reg_open(tab[1], pages, 2 * page, SC_REG_READ | SC_REG_WRITE);
	wrong(at(SPACE - 7, 8), EINVAL);
	wrong(at(SPACE, 1), EINVAL);
	wrong(at(UINT64_MAX, 2), EINVAL);
	wrong(at(SPACE - 999, 1000), EINVAL);
	wrong((struct sc_remote){ 0, 8, 0 }, EKEYREJECTED);
	wrong((struct sc_remote){ 0, 8, sc_reg_key(reg) ^ 1ULL << 60 }, EKEYREJECTED);
	wrong((struct sc_remote){ 0, 8, sc_reg_key(readable) }, EACCES);
	wrong((struct sc_remote){ 8, 8, sc_reg_key(mapped) }, EIO);
	wrong((struct sc_remote){ page - 4, 8, sc_reg_key(mapped) }, EIO);
	/* a page that gets have read is not known to be writable */
	for (int i = 0; i < 2; i++) {
		pair[0].peer->delegate.pause = 0;
		taken(into, (struct sc_remote){ 8, 8, sc_reg_key(mapped) }, 0);
	}
	wrong((struct sc_remote){ 8, 8, sc_reg_key(mapped) }, EIO);
	munmap(pages, page);
	wrong((struct sc_remote){ 8, 8, sc_reg_key(mapped) }, EIO);
	assert_int_equal(sc_reg_close(readable), 0);
	assert_int_equal(sc_reg_close(mapped), 0);
	munmap(pages + page, page);
	rma_close();
}

/* Several puts have the same place for their results, one after the other: the initiator gets the result of each. */
static void test_errors_in_turn(void **state)
{
	static const int errors[] = { 0, EINVAL, EKEYREJECTED, EINVAL, 0, 0, EKEYREJECTED, 0 };
	uint64_t value = 1;

	OPEN();
	for (size_t lap = 0; lap < 8; lap++)
		for (size_t i = 0; i < SC_ABI_DELEGATED; i++) {
			int error = errors[(lap + i) % 8];
			struct iovec iov = { &value, 8 };
			struct sc_remote remote = at(error == EINVAL ? SPACE : 0, 8);

			remote.key = error == EKEYREJECTED ? 0 : remote.key;
			assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
			owner_polls();
			we_poll();
			assert_int_equal(comp_take(&pair[0].tx).err, error);
		}
	assert_int_equal(counters()->rma_delegated_taken, 8 * SC_ABI_DELEGATED);
	rma_close();
}

static void test_get_errors(void **state)
{
	size_t page = (size_t)getpagesize(), done;
	struct sc_reg *writable, *mapped;
	uint8_t *pages;

	OPEN_WITH_SMALL_BUFFERS();
	writable = reg_open(tab[1], space, 10000, SC_REG_WRITE);
	pages = mmap(NULL, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(mprotect(pages + 2 * page, page, PROT_NONE), 0);
	mapped = reg_open(tab[1], pages, 3 * page, SC_REG_READ);
	wrong_get(at(SPACE - 7, 8), EINVAL);
	wrong_get(at(SPACE, 1), EINVAL);
	wrong_get(at(UINT64_MAX, 2), EINVAL);
	wrong_get(at(SPACE - 3999, 4000), EINVAL);
	wrong_get((struct sc_remote){ 0, 8, 0 }, EKEYREJECTED);
	wrong_get((struct sc_remote){ 0, 3000, sc_reg_key(reg) ^ 1ULL << 60 }, EKEYREJECTED);
	wrong_get((struct sc_remote){ 0, 8, sc_reg_key(writable) }, EACCES);
	wrong_get((struct sc_remote){ 0, 4000, sc_reg_key(writable) }, EACCES);
	wrong_get((struct sc_remote){ 2 * page, 8, sc_reg_key(mapped) }, EIO);
	munmap(pages + page, page);
	wrong_get((struct sc_remote){ page + 8, 8, sc_reg_key(mapped) }, EIO);
	/* some of it was there: how much is not told of one that the owner took */
	for (int taken = 0; taken < 2; taken++) {
		struct iovec iov = { into, 2000 };
		struct sc_remote remote = { page - 1000, 2000, sc_reg_key(mapped) };
		struct sc_comp comp;

		memset(into, 0x5a, SPACE);
		pair[0].peer->delegate.pause = 0;
		done = counters()->rma_delegated_taken;
		assert_int_equal(post(&iov, 1, &remote, 1, 0), 0);
		if (taken)
			owner_polls();
		we_poll();
		comp = comp_take(&pair[0].tx);
		assert_int_equal(comp.err, EIO);
		assert_int_equal(counters()->rma_delegated_taken, done + (size_t)taken);
		assert_true(is_unwritten(0, taken ? 0 : 1000));
		expect_idle();
	}
	assert_int_equal(sc_reg_close(writable), 0);
	assert_int_equal(sc_reg_close(mapped), 0);
	munmap(pages, page);
	munmap(pages + 2 * page, page);
	rma_close();
}

#ifdef SC_FAULT_INJECTION
static uint32_t asked;

static int count_asked(const char *point)
{
	asked += !strcmp(point, "probe.touch");
	return 0;
}
#endif

static int put_at(struct sc_reg *mapped, uint64_t addr, bool taken)
{
	struct sc_remote remote = { addr, 8, sc_reg_key(mapped) };
	struct iovec iov = { from, 8 };
	uint64_t before = counters()->rma_delegated_taken;

	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	owner_polls();
	we_poll();
	assert_int_equal(counters()->rma_delegated_taken - before, taken);
	return comp_take(&pair[0].tx).err;
}

static int put_into(struct sc_reg *mapped, bool taken)
{
	return put_at(mapped, 0, taken);
}

/* Written to with success, and then not there any more: the owner has registered more than it has. */
static void test_unmapped_meanwhile(void **state)
{
	size_t page = (size_t)getpagesize();
	struct sc_reg *mapped;
	uint8_t *pages;

	OPEN();
	pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(pages, MAP_FAILED);
	munmap(pages + page, page);
	mapped = reg_open(tab[1], pages, 2 * page, SC_REG_READ | SC_REG_WRITE);
	for (int i = 0; i < 3; i++)
		assert_int_equal(put_into(mapped, true), 0);
	munmap(pages, page);
	assert_int_equal(put_into(mapped, true), EIO);
	assert_int_equal(sc_reg_close(mapped), 0);
	rma_close();
}

/* The owner of a large memory asks once for each page, however many there are, also if the memory is in pieces. */
static void test_each_page_asked_once(void **state)
{
#ifdef SC_FAULT_INJECTION
	size_t page = (size_t)getpagesize(), many = 5000;
	uint8_t *pages = mmap(NULL, 2 * many * page, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(pages, MAP_FAILED);
	for (int pieces = 1; pieces <= 2; pieces++) {
		struct iovec ranges[2] = { { pages + many * page, many / 2 * page },
					   { pages, many / 2 * page } };
		struct sc_reg_attr attr = { .ranges = ranges, .range_count = 2, .flags = SC_REG_WRITE };
		struct sc_reg *large;

		if (pieces == 1) {
			attr.range_count = 1;
			ranges[0].iov_len = many * page;
		}
		OPEN();
		assert_int_equal(sc_reg_open(tab[1], &attr, &large), 0);
		sc_fault_hook = count_asked;
		asked = 0;
		for (int lap = 0; lap < 3; lap++)
			for (size_t i = 0; i < many; i += 7)
				assert_int_equal(put_at(large, i * page, true), 0);
		(void)core_failing(NULL, 0);
		/* and once for the lines by which the ring grows */
		assert_in_range(asked, (many + 6) / 7, (many + 6) / 7 + 1);
		assert_int_equal(sc_reg_close(large), 0);
		rma_close();
	}
	munmap(pages, 2 * many * page);
#else
	core_without_points();
	skip();
#endif
	(void)state;
}

/* The initiator waits for each open operation as long, so for several longer, before it does them itself. */
static void test_waits_for_each(void **state)
{
	(void)state;
	for (uint32_t count = 1; count <= 4; count += 3) {
		uint32_t polls = 0;

		OPEN();
		for (uint32_t i = 0; i < count; i++)
			offer(from, 8 * i, 8, 0);
		while (!counters()->rma_direct_bytes) {
			(void)sc_ep_poll(pair[0].ep);
			assert_true(++polls < 1000);
		}
		assert_in_range(polls, 100 * count, 100 * count + 2);
		expect_done((int)count);
		rma_close();
	}
}

#ifdef SC_FAULT_INJECTION
static uint32_t reports;

static int count_reports(const char *point)
{
	reports += !strcmp(point, "taker.delegated_reported");
	return 0;
}
#endif

/* The owner tells of the puts of one look together; also if the record behind them ends the connection. */
static void test_reported_together(void **state)
{
#ifdef SC_FAULT_INJECTION
	for (int breach = 0; breach < 2; breach++) {
		OPEN();
		for (uint32_t i = 0; i < 5; i++)
			offer(from, 8 * i, 8, 0);
		if (breach) {
			memset(sc_ring_reserve(&pair[0].peer->tx)->words, 0xff, 56);
			sc_ring_commit(&pair[0].peer->tx, sc_ring_ctl(SC_ABI_PULL, 0, 1, 0), 1);
		}
		reports = 0;
		sc_fault_hook = count_reports;
		(void)sc_ep_poll(pair[1].ep);
		(void)core_failing(NULL, 0);
		assert_int_equal(reports, 1);
		we_poll();
		expect_done(5);
		rma_close();
	}
#else
	(void)state;
	core_without_points();
	skip();
#endif
}

/* Of memory that is all there the owner asks once for each registration. */
static void test_asked_once(void **state)
{
	size_t page = (size_t)getpagesize();
	struct sc_reg *mapped;
	uint8_t *pages;

	OPEN();
	pages = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(pages, MAP_FAILED);
	mapped = reg_open(tab[1], pages, page, SC_REG_READ | SC_REG_WRITE);
	assert_int_equal(put_into(mapped, true), 0);
	if (!core_failing("probe.touch", EFAULT)) {
		assert_int_equal(sc_reg_close(mapped), 0);
		rma_close();
		skip();
	}
	assert_int_equal(put_into(mapped, true), 0);
	assert_int_equal(sc_reg_close(mapped), 0);
	mapped = reg_open(tab[1], pages, page, SC_REG_READ | SC_REG_WRITE);
	assert_int_equal(put_into(mapped, true), EIO);
	core_failing(NULL, 0);
	assert_int_equal(put_into(mapped, true), 0);
	assert_int_equal(sc_reg_close(mapped), 0);
	munmap(pages, page);
	rma_close();
}

/* The key is closed while it is offered: nobody writes. */
static void test_closed_key(void **state)
{
	for (int taken = 0; taken < 2; taken++) {
		struct sc_reg *other;
		struct iovec iov = { from, 8 };
		struct sc_remote remote = { 0, 8, 0 };

		OPEN();
		other = reg_open(tab[1], space, 100, SC_REG_READ | SC_REG_WRITE);
		remote.key = sc_reg_key(other);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
		assert_int_equal(sc_reg_close(other), 0);
		if (taken)
			owner_polls();
		we_poll();
		assert_int_equal(comp_take(&pair[0].tx).err, EKEYREJECTED);
		assert_true(is_untouched(0, 0));
		expect_idle();
		rma_close();
	}
}

/* ---- with others ----------------------------------------------------------------------------- */

/* An operation that goes another way is done after those that were offered before. */
static void test_order(void **state)
{
	uint64_t one = 1, two = 2, got = 0;

	for (int other = 0; other < 5; other++) {
		struct iovec into_got = { &got, 8 };
		struct sc_remote there;

		OPEN();
		there = at(0, 8);
		offer(&one, 0, 8, 0);
		switch (other) {
		case 0:
			put(&two, 0, 8, SC_SEND_INJECT);
			assert_memory_equal(space, &two, 8);
			expect_done(2);
			break;
		case 1:
			assert_int_equal(post(&into_got, 1, &there, 1, 0), 0);
			we_poll();
			assert_int_equal(got, 1);
			expect_done(2);
			break;
		case 2:
			put(from, 0, 40000, 0);
			assert_memory_equal(space, from, 40000);
			expect_done(2);
			break;
		case 3: /* too large to be offered */
			assert_int_equal(ask(into, 0, 40000), 0);
			assert_memory_equal(into, &one, 8);
			expect_done(2);
			break;
		default: /* done by the end of the endpoint that offered it */
			end_close(&pair[0]);
			assert_memory_equal(space, &one, 8);
			break;
		}
		if (other < 4) {
			memset(space, 0xa5, 100);
			owner_polls();
			assert_true(is_untouched(0, other == 2 ? 40000 : 0));
			expect_idle();
		} else {
			owner_polls();
		}
		rma_close();
	}
}

/* A fence waits for it. */
static void test_fence(void **state)
{
	struct iovec iov = { from, 8 };
	struct sc_remote remote;

	OPEN();
	remote = at(0, 8);
	offer(from, 0, 8, 0);
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_FENCE), -EAGAIN);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), -EAGAIN);
	owner_polls();
	we_poll();
	expect_done(1);
	put(from, 0, 8, SC_SEND_FENCE);
	ends_settle(pair, 2);
	expect_done(1);
	expect_idle();
	rma_close();
}

/* The owner is at the first of three: nothing goes another way, and the others are done behind it. */
static void test_in_hand(void **state)
{
	uint64_t values[4] = { 1, 2, 3, 4 };
	struct iovec iov = { &values[3], 8 };
	struct sc_remote remote;

	OPEN();
	remote = at(0, 8);
	for (int i = 0; i < 3; i++)
		offer(&values[i], 0, 8, 0);
	assert_true(sc_cas_acq_rel_64(claim_word(), 0, 1));
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT), -EAGAIN);
	assert_true(sc_load_relaxed_64(claim_word()) == (3ull << 32 | 1));
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), -EAGAIN);
	for (int i = 0; i < 1000; i++)
		(void)sc_ep_poll(pair[0].ep);
	assert_true(end_idle(&pair[0]));
	assert_true(is_untouched(0, 0));
	/* it ends, badly */
	consumer()->delegated_errors[0] = EIO;
	sc_store_release_32(&consumer()->delegated_done, 1);
	we_poll();
	assert_int_equal(comp_take(&pair[0].tx).err, EIO);
	expect_done(2);
	assert_memory_equal(space, &values[2], 8);
	put(&values[3], 0, 8, SC_SEND_INJECT);
	expect_done(1);
	assert_int_equal(pair[0].ep->counters.quarantines, 0);
	assert_int_equal(pair[0].peer->rma.pending, 0);
	rma_close();
}

/* The owner has all of them in its hands: there is nothing to withdraw, and they are waited for. */
static void test_all_in_hand(void **state)
{
	uint64_t values[2] = { 1, 2 };

	OPEN();
	for (int i = 0; i < 2; i++)
		offer(&values[i], 0, 8, 0);
	assert_true(sc_cas_acq_rel_64(claim_word(), 0, 2));
	for (int i = 0; i < 1000; i++)
		(void)sc_ep_poll(pair[0].ep);
	assert_true(end_idle(&pair[0]));
	assert_true(sc_load_relaxed_64(claim_word()) == 2);
	assert_int_equal(pair[0].peer->rma.pending, 2);
	sc_store_release_32(&consumer()->delegated_done, 2);
	we_poll();
	expect_done(2);
	assert_true(is_untouched(0, 0));
	rma_close();
}

/* With data, and no place for one more completion there: it stays where it is, or is withdrawn. */
static void test_crowded(void **state)
{
	OPEN();
	pair[1].rx.limit = 1;
	for (uint64_t i = 0; i < 2; i++)
		offer(from, 8 * i, 8, SC_SEND_DATA);
	owner_polls();
	assert_int_equal(sc_comp_ring_peek(&pair[1].rx)->data, 0xda7a);
	assert_true(is_untouched(0, 8));
	we_poll();
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_memory_equal(space, from, 8);
	assert_memory_equal(space + 8, from, 8);
	(void)comp_take(&pair[1].rx);
	ends_settle(pair, 2);
	(void)comp_take(&pair[1].rx);
	expect_done(1);
	assert_int_equal(cntrs[0][SC_EVENT_WRITE].value, 2);
	expect_idle();
	rma_close();
}

/* ---- mad words ------------------------------------------------------------------------------- */

/* The owner writes impossible words while three are offered. The initiator gives it up; each operation ends once. */
static void mad_owner(uint64_t claim, uint32_t done, bool withdrawn_first)
{
	for (int i = 0; i < 3; i++)
		offer(from, 0, 8, 0);
	if (withdrawn_first) {
		struct iovec iov = { from, 8 };
		struct sc_remote remote = at(0, 8);

		sc_store_release_64(claim_word(), 1);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT), -EAGAIN);
	} else {
		sc_store_release_64(claim_word(), claim);
	}
	sc_store_release_32(&consumer()->delegated_done, done);
	we_poll();
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	assert_true(end_idle(&pair[0]));
	assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
	assert_int_equal(pair[0].peer->rma.pending, 0);
	assert_true(is_untouched(0, 0));
}

static void test_mad_owner(void **state)
{
	static const struct {
		uint64_t claim;
		uint32_t done;
		bool withdrawn_first;
	} cases[] = {
		{ 4, 0, false },	  { 60, 0, false },	    { 1ull << 32, 0, false },
		{ 3ull << 32, 0, false }, { UINT64_MAX, 0, false }, { 0, 4, false },
		{ 0, 60, false },	  { 0, 2, true },	    { 0, 3, true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		OPEN();
		mad_owner(cases[i].claim, cases[i].done, cases[i].withdrawn_first);
		rma_close();
	}
}

/* The owner reads the record of one behind which many others were withdrawn, and does not take it. */
static void test_many_withdrawn(void **state)
{
	struct sc_peer_delegate *delegate;
	uint32_t many = 1000;

	OPEN();
	offer(from, 0, 8, 0);
	for (int poll = 0; poll < 300; poll++)
		we_poll();
	expect_done(1);
	memset(space, 0xa5, SPACE);
	delegate = &pair[0].peer->delegate;
	delegate->first = delegate->ours = delegate->end = delegate->withdrawn = many;
	sc_store_relaxed_64(claim_word(), (uint64_t)many << 32);
	owner_polls();
	assert_true(is_untouched(0, 0));
	assert_true(sc_load_relaxed_64(claim_word()) == (uint64_t)many << 32);
	pair[1].peer->taker.seen = many;
	delegate->pause = 0;
	offer(from, 0, 8, 0);
	owner_polls();
	assert_memory_equal(space, from, 8);
	we_poll();
	expect_done(1);
	assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
	expect_idle();
	rma_close();
}

/* Numbers of so long ago that they have gone round say nothing. */
static void test_long_ago(void **state)
{
	static const uint32_t passed[] = { INT32_MAX, (uint32_t)INT32_MAX + 40, UINT32_MAX - 200 };

	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
		struct sc_peer_delegate *delegate;

		OPEN();
		/* this side has withdrawn all since the first one */
		offer(from, 0, 8, 0);
		owner_polls();
		we_poll();
		expect_done(1);
		delegate = &pair[0].peer->delegate;
		delegate->first = delegate->ours = delegate->end = delegate->withdrawn = passed[i];
		pair[1].peer->taker.seen = passed[i];
		sc_store_relaxed_64(claim_word(), (uint64_t)passed[i] << 32 | 1);
		for (uint64_t put = 1; put < 4; put++) {
			delegate->pause = 0;
			offer(from + 8 * put, 8 * put, 8, 0);
			for (int poll = 0; poll < 300; poll++)
				we_poll();
			assert_memory_equal(space + 8 * put, from + 8 * put, 8);
			expect_done(1);
			owner_polls();
		}
		assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
		expect_idle();
		rma_close();
	}
}

/* The owner writes impossible answers to a get. */
static void test_mad_answer(void **state)
{
	for (int which = 0; which < 4; which++) {
		struct sc_abi_delegate *record;

		OPEN_WITH_SMALL_BUFFERS();
		memset(into, 0x5a, SPACE);
		for (int i = 0; i < 2; i++)
			offer_get(into, 0, which < 2 ? 8 : 4000);
		record = (struct sc_abi_delegate *)sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)
				 ->ring[0]
				 .bytes;
		record->bufs[3] = which == 2 ? 64 : UINT16_MAX; /* of four */
		sc_store_release_64(&record->ended, which == 0 ? 4097 : which == 1 ? UINT64_MAX : 1);
		we_poll();
		assert_int_equal(pair[0].ep->counters.quarantines, 1);
		for (int i = 0; i < 2; i++)
			assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
		assert_true(end_idle(&pair[0]));
		assert_true(is_unwritten(0, 0));
		assert_int_equal(pair[0].peer->rma.pending, 0);
		rma_close();
	}
}

/*
 * The initiator says that it has read more or less than the owner has answered: the owner lends it at most half of the
 * buffers, and has all of them again once the initiator has closed.
 */
static void test_mad_reader(void **state)
{
	static const uint64_t reads[] = { 0, 1000, UINT64_MAX };

	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
		uint64_t *read;

		OPEN_WITH_SMALL_BUFFERS();
		read = &sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->answers.read;
		memcpy(space, from, SPACE);
		for (int round = 0; round < 100; round++) {
			memset(into, 0x5a, 3000);
			pair[0].peer->delegate.pause = 0;
			assert_int_equal(ask(into, 0, 3000), 0);
			owner_polls();
			we_poll();
			expect_done(1);
			assert_memory_equal(into, from, 3000);
			sc_store_release_64(read, reads[i]);
		}
		owner_polls();
		assert_int_equal(pair[1].ep->counters.quarantines, 0);
		assert_true(pair[1].ep->pool.count - pair[1].ep->pool.have + pair[1].ep->pool.free_count >=
			    pair[1].ep->pool.count / 2);
		end_close(&pair[0]);
		owner_polls(); /* all are its own again */
		assert_int_equal(pair[1].ep->pool.free_count, pair[1].ep->pool.have);
		rma_close();
	}
}

/* The initiator moves the claim backwards: the owner does no operation of it any more, neither a put nor a get. */
static void test_mad_writer(void **state)
{
	static const uint64_t claims[] = { 1, 2, 7, UINT32_MAX, 1ull << 31 };
	const size_t count = sizeof(claims) / sizeof(claims[0]);

	for (size_t i = 0; i < 2 * count; i++) {
		OPEN();
		memset(into, 0x5a, SPACE);
		if (i < count)
			offer(from, 0, 8, 0);
		else
			offer_get(into, 0, 8);
		sc_store_release_64(claim_word(), claims[i % count]);
		owner_polls();
		assert_true(is_untouched(0, 0));
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_READ].value, 0);
		assert_int_equal(pair[1].ep->counters.quarantines, 1);
		we_poll();
		assert_true(comp_take(&pair[0].tx).err);
		assert_true(end_idle(&pair[0]) && is_unwritten(0, 0));
		rma_close();
	}
}

/*
 * Somebody writes over the claim of the initiator's slot, so that another may have the slot: the operations end, and the
 * initiator writes no word of the slot after that.
 */
static void test_claim_overwritten(void **state)
{
	struct sc_abi_slot *slot;

	OPEN();
	for (int i = 0; i < 3; i++)
		offer(from, 0, 8, 0);
	slot = sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot);
	sc_store_relaxed_64(&slot->delegation.claim, UINT64_MAX);
	sc_store_relaxed_32(&slot->delegation.done, 0x5107);
	sc_store_release_64(&sc_seg_claims(pair[1].ep->seg)[pair[0].peer->out_slot], 0);
	sc_add_acq_rel_32(&sc_seg_presence(pair[0].ep->seg)->membership, SC_ABI_CHANGED);
	we_poll();
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	assert_true(end_idle(&pair[0]));
	assert_true(slot->delegation.claim == UINT64_MAX);
	assert_int_equal(slot->delegation.done, 0x5107);
	assert_true(is_untouched(0, 0));
	rma_close();
}

/* So many offers more have been taken, all of them gets. */
static void gets_pass(uint32_t count)
{
	struct sc_peer *we = pair[0].peer, *owner = pair[1].peer;

	if (!count)
		return;
	we->delegate.first += count;
	we->delegate.ours = we->delegate.end = we->delegate.first;
	owner->taker.taken = owner->taker.seen = we->delegate.first;
	sc_store_release_64(claim_word(), (uint64_t)we->delegate.withdrawn << 32 | owner->taker.taken);
}

/*
 * Between two puts there are so many gets that their numbers begin again at 0: the first put is not taken for the second,
 * nor for one that breaks the rules.
 */
static void test_far_apart(void **state)
{
	static const uint32_t gets[] = { INT32_MAX,	 (uint32_t)INT32_MAX + 1, (uint32_t)INT32_MAX + 2,
					 UINT32_MAX - 9, UINT32_MAX - 1,	  UINT32_MAX };

	for (size_t i = 0; i < sizeof(gets) / sizeof(gets[0]); i++) {
		OPEN();
		memset(space, 0xa5, SPACE);
		for (uint32_t left = gets[i], some; left; left -= some) {
			some = left < 1u << 30 ? left : 1u << 30;
			gets_pass(some - 1);
			pair[0].peer->delegate.pause = 0;
			offer_get(into, 0, 8);
			owner_polls();
			we_poll();
			expect_done(1);
			assert_memory_equal(into, space, 8);
		}
		for (int round = 0; round < 3; round++) {
			pair[0].peer->delegate.pause = 0;
			offer(from, 8 * (uint64_t)round, 8, 0);
			(void)sc_ep_poll(pair[0].ep);
			assert_true(end_idle(&pair[0]) && is_untouched(0, 8 * (size_t)round));
			ends_settle(pair, 2);
			expect_done(1);
			assert_memory_equal(space + 8 * round, from, 8);
		}
		expect_idle();
		rma_close();
	}
}

/* ---- both at once ---------------------------------------------------------------------------- */

#define RACE_PUTS 3000

static void *owner_thread(void *word)
{
	const bool *stop = word;
	uint64_t random = 7, last = 0;

	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		uint64_t value;

		(void)sc_ep_poll(pair[1].ep);
		value = __atomic_load_n((uint64_t *)space, __ATOMIC_RELAXED);
		if (value < last)
			return "a put behind a later one";
		last = value;
		if (pair_random(&random) % 8 == 0)
			sched_yield();
	}
	return NULL;
}

/* One step of ours, and how many operations have ended: one may be refused until what is full has been read. */
static uint64_t step(void)
{
	uint64_t ended = 0;

	(void)sc_ep_poll(pair[0].ep);
	for (; sc_comp_ring_peek(&pair[0].tx); ended++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	return ended;
}

/* The owner polls now and then: each put ends once, and none behind a later one. */
static void test_race(void **state)
{
	static uint64_t values[RACE_PUTS + 1];
	uint64_t random = 3, ended = 0;
	bool stop = false;
	pthread_t thread;
	void *wrong;

	OPEN();
	memset(space, 0, 8);
	assert_int_equal(pthread_create(&thread, NULL, owner_thread, &stop), 0);
	for (uint64_t i = 1; i <= RACE_PUTS; i++) {
		struct iovec iov = { &values[i], 8 };
		struct sc_remote remote = at(0, 8);
		uint32_t flags = pair_random(&random) % 64 ? 0 : SC_SEND_INJECT;
		int ret;

		values[i] = i;
		if (i % 4 == 0)
			pair[0].peer->delegate.pause = 0; /* else it is asked too rarely */
		while ((ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE | flags)) == -EAGAIN) {
			ended += step();
			sched_yield();
		}
		assert_int_equal(ret, 0);
		if (pair_random(&random) % 16 == 0)
			ended += step();
	}
	while (ended < RACE_PUTS) {
		ended += step();
		sched_yield();
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(thread, &wrong), 0);
	assert_null(wrong);
	assert_memory_equal(space, &values[RACE_PUTS], 8);
	ends_settle(pair, 2);
	assert_memory_equal(space, &values[RACE_PUTS], 8);
	assert_int_equal(cntrs[0][SC_EVENT_WRITE].value, RACE_PUTS);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, RACE_PUTS);
	expect_idle();
	rma_close();
}

/* Puts and gets of one word by turns, the owner polls now and then: each get finds the put before it. */
static void test_race_of_gets(void **state)
{
	static uint64_t got[RACE_PUTS + 1][1000];
	uint64_t random = 11, ended = 0, values[RACE_PUTS + 1];
	bool stop = false;
	pthread_t thread;
	void *wrong;

	OPEN_WITH_SMALL_BUFFERS();
	memset(space, 0, SPACE);
	assert_int_equal(pthread_create(&thread, NULL, owner_thread, &stop), 0);
	for (uint64_t i = 1; i <= RACE_PUTS; i++) {
		static const size_t sizes_got[] = { 8, 100, 200, 4000 };
		size_t size = sizes_got[pair_random(&random) % 4];
		struct iovec iov = { &values[i], 8 };
		struct sc_remote remote = at(0, 8);
		int ret;

		values[i] = i;
		if (i % 4 == 0)
			pair[0].peer->delegate.pause = 0; /* else it is asked too rarely */
		while ((ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE)) == -EAGAIN)
			ended += step();
		assert_int_equal(ret, 0);
		while ((ret = ask(got[i], 0, size)) == -EAGAIN) {
			ended += step();
			sched_yield();
		}
		assert_int_equal(ret, 0);
		if (pair_random(&random) % 16 == 0)
			ended += step();
	}
	while (ended < 2 * RACE_PUTS) {
		ended += step();
		sched_yield();
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(thread, &wrong), 0);
	assert_null(wrong);
	ends_settle(pair, 2); /* the owner comes to what was withdrawn */
	for (uint64_t i = 1; i <= RACE_PUTS; i++)
		assert_int_equal(got[i][0], i);
	assert_int_equal(cntrs[0][SC_EVENT_READ].value, RACE_PUTS);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_READ].value, RACE_PUTS);
	expect_idle();
	rma_close();
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The owner closes with offers in its ring. */
static void test_owner_closes(void **state)
{
	OPEN();
	for (int i = 0; i < 3; i++)
		offer(from, 0, 8, 0);
	end_close(&pair[1]);
	we_poll();
	for (int i = 0; i < 3; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	assert_true(end_idle(&pair[0]));
	assert_int_equal(pair[0].peer->rma.pending, 0);
	rma_close();
}

/*
 * Where no thread of this process can do puts for it, its applications' puts are delegated all the same, unless they are
 * injected; they are withdrawn, and done, by a poll or when the endpoint closes.
 */
static void test_without_thread(void **state)
{
	for (int which = 0; which < 4; which++) {
		OPEN();
		pair[0].ep->alone = which % 2;
		pair[0].ep->barrier = pair[0].ep->barrier && pair[0].ep->alone;
		offer(from, 0, 8, 0);
		assert_true(sc_list_empty(&pair[0].peer->delegate.rescue->listed));
		if (which < 2) {
			we_poll();
			assert_memory_equal(space, from, 8);
			expect_done(1);
			put(from + 8, 8, 8, SC_SEND_INJECT);
			assert_memory_equal(space + 8, from + 8, 8); /* in the call */
			expect_done(1);
			expect_idle();
		} else {
			end_close(&pair[0]);
			assert_memory_equal(space, from, 8);
		}
		rma_close();
	}
}

/*
 * The initiator closes long after it has withdrawn a put and done it: the owner, which has passed over the record, does not
 * do what the same lines of the ring hold by now.
 */
static void test_closes_long_after(void **state)
{
	uncounted = true;
	OPEN();
	uncounted = false;
	offer(from, 0, 8, 0);
	we_poll();
	expect_done(1);
	owner_polls();
	assert_non_null(pair[1].peer->taker.passed);
	for (int i = 0; i < SC_ABI_DELEGATED; i++) {
		pair[0].peer->delegate.pause = 0;
		offer(from, 8, 8, 0);
		owner_polls();
		we_poll();
		expect_done(1);
	}
	memset(space, 0xa5, SPACE);
	end_close(&pair[0]);
	owner_polls();
	assert_int_equal(pair[1].ep->counters.departures, 1);
	assert_true(is_untouched(0, 0));
	rma_close();
}

/* The owner says that it has ended what has not been delegated: nothing is open with a peer that is given up. */
static void test_mad_end(void **state)
{
	OPEN();
	offer(from, 0, 8, 0);
	owner_polls();
	assert_false(sc_delegate_has_open(pair[0].peer)); /* this one has ended */
	expect_done(1);
	offer(from, 0, 8, 0);
	assert_true(sc_delegate_has_open(pair[0].peer));
	sc_store_release_32(&consumer()->delegated_done, 5);
	assert_false(sc_delegate_has_open(pair[0].peer));
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	we_poll();
	assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	rma_close();
}

/* The owner does two and closes before the initiator looks; the third one, which comes too late, is not done. */
static void test_owner_closes_when_done(void **state)
{
	static const size_t lens[] = { 8, 4096 };

	for (int i = 0; i < 4; i++) {
		size_t len = lens[i / 2];
		bool puts = i % 2;

		OPEN();
		memset(puts ? space : into, 0x5a, SPACE);
		if (!puts)
			memcpy(space, from, SPACE);
		for (size_t n = 0; n < 3; n++) {
			if (n == 2)
				owner_polls();
			if (puts)
				offer(from + n * len, n * len, len, 0);
			else
				offer_get(into + n * len, n * len, len);
		}
		end_close(&pair[1]);
		we_poll();
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
		assert_true(end_idle(&pair[0]));
		assert_memory_equal(puts ? space : into, from, 2 * len);
		assert_int_equal((puts ? space : into)[2 * len], 0x5a);
		assert_int_equal(counters()->rma_delegated_taken, 2);
		assert_int_equal(pair[0].peer->rma.pending, 0);
		rma_close();
	}
}

/* A process that has been connected, and is stopped; then `taken` of three offers are in its hands. */
static struct sc_peer *stopped_owner(struct child *child, struct far *far, uint32_t taken, uint32_t flags)
{
	struct sc_peer *peer;
	struct iovec iov = { flags ? from : into, 8 };
	struct sc_remote remote;
	struct sc_rma rma = {
		.iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1, .flags = flags
	};
	uint64_t *word, claim;

	owner_start(child, far, &peer);
	while (!counters()->rma_delegated_taken) {
		peer->delegate.pause = 0;
		post_far(peer, far, from, 8, SC_RMA_WRITE);
		sched_yield(); /* where there is no processor for it besides ours, it takes it now */
		assert_int_equal(wait_comp().err, 0);
	}
	assert_int_equal(kill(child->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(child->pid, NULL, WUNTRACED), child->pid);
	peer->delegate.pause = 0;
	remote = (struct sc_remote){ 0, 8, far->key };
	for (int i = 0; i < 3; i++)
		assert_int_equal(sc_rma_post(pair[0].ep, peer, &rma), 0);
	assert_true(end_idle(&pair[0]));
	word = &sc_seg_slot(peer->seg, peer->out_slot)->delegation.claim;
	claim = sc_load_relaxed_64(word);
	if (taken)
		assert_true(sc_cas_acq_rel_64(
			word, claim, (claim & ~(uint64_t)UINT32_MAX) | (peer->delegate.first + taken)));
	return peer;
}

/* Dead before it has taken any, or in the middle of it. */
static void test_owner_dies(void **state)
{
	for (uint32_t i = 0; i <= 7; i++) {
		struct far far = { .cma = true, .polls = true };
		struct child child;
		struct sc_peer *peer;

		OPEN();
		memset(into, 0x5a, SPACE);
		peer = stopped_owner(&child, &far, i / 2, i % 2 ? SC_RMA_WRITE : 0);
		child_kill(&child);
		for (int i = 0; i < 3; i++)
			assert_int_equal(wait_comp().err, ECONNRESET);
		we_poll();
		assert_true(end_idle(&pair[0]));
		assert_int_equal(peer->link, SC_LINK_DOWN);
		assert_int_equal(peer->rma.pending, 0);
		assert_true(is_unwritten(0, 0));
		expect_idle();
		rma_close();
	}
}

/* Stopped: what it has not taken is done, what it has is waited for; nothing is behind that. */
static void test_owner_stopped(void **state)
{
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t taken = i % 2;
		struct far far = { .cma = true, .polls = true };
		struct child child;
		struct sc_peer *peer;

		OPEN();
		peer = stopped_owner(&child, &far, taken, i < 2 ? SC_RMA_WRITE : 0);
		for (int i = 0; i < 3000; i++)
			(void)sc_ep_poll(pair[0].ep);
		if (!taken)
			for (int i = 0; i < 3; i++)
				assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_true(end_idle(&pair[0]));
		assert_int_equal(peer->link, SC_LINK_UP);
		assert_int_equal(peer->rma.pending, taken ? 3 : 0);
		child_kill(&child);
		for (int i = 0; i < 3 && taken; i++)
			assert_int_equal(wait_comp().err, ECONNRESET);
		rma_close();
	}
}

/*
 * The initiator dies: the owner may do the operations that it has not withdrawn, and goes on. The initiator has posted
 * more gets than the owner has buffers for, and nobody withdraws those that are left.
 */
#define ASKED 24

static void writer(struct child *self, void *arg)
{
	const char *address = arg;
	struct sc_ep_attr attr = end_attr();
	struct iovec iov = { from, 8 }, large = { into, 4000 };
	struct sc_remote remote = at(0, 8), range = at(0, 4000);
	struct sc_rma rma = {
		.iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1, .flags = SC_RMA_WRITE
	};
	struct sc_rma get = { .iov = &large, .iov_count = 1, .remote = &range, .remote_count = 1 };
	struct sc_peer *peer;
	struct sc_ep *ep;

	child_on_its_own();
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_peer_get(ep, address, &peer));
	CHILD_CHECK(!sc_peer_connect(peer));
	while (sc_load_relaxed_32(&peer->tx.consumer->answer) == SC_ABI_PENDING)
		sc_ep_poll(ep);
	CHILD_CHECK(!sc_rma_post(ep, peer, &rma));
	for (int i = 0; i < ASKED; i++)
		CHILD_CHECK(!sc_rma_post(ep, peer, &get));
	CHILD_CHECK(sc_ep_counters(ep)->rma_delegated == 1 + ASKED);
	child_tell(self, "offered");
	child_wait(self);
}

static void test_writer_dies(void **state)
{
	struct child child;
	char byte;

	OPEN_WITH_SMALL_BUFFERS();
	child_spawn(&child, writer, (void *)sc_ep_address(pair[1].ep));
	while (pair[1].ep->counters.accepts < 2)
		sc_ep_poll(pair[1].ep);
	assert_int_equal(read(child.up, &byte, 1), 1);
	child_kill(&child);
	while (pair[1].ep->counters.departures < 1)
		sc_ep_poll(pair[1].ep);
	assert_memory_equal(space, from, 8);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	assert_true(cntrs[1][SC_EVENT_REMOTE_READ].value < ASKED);
	assert_int_equal(pair[1].ep->pool.free_count,
			 pair[1].ep->pool.have); /* its answers are nobody's */
	offer(from, 8, 8, 0);
	owner_polls();
	we_poll();
	expect_done(1);
	rma_close();
}

/* ---- neither as it was when it was offered ------------------------------------------------------ */

static void fill_ring(void)
{
	for (int i = 0; i < PAIR_RING_ROOM; i++)
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT), 0);
}

/* The ring has no room: a put goes another way. A reader's head beyond the tail is a breach of the protocol. */
static void test_no_room(void **state)
{
	struct iovec iov = { from, 4096 };
	struct sc_remote remote;

	OPEN();
	fill_ring();
	put(from, 0, 4096, 0);
	assert_int_equal(counters()->rma_delegated, 0);
	ends_settle(pair, 2);
	expect_done(1);
	assert_memory_equal(space, from, 4096);
	rma_close();

	OPEN();
	remote = at(0, 4096);
	fill_ring();
	sc_store_release_64(&consumer()->head, UINT64_MAX / 2);
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), -EPROTO);
	assert_int_equal(counters()->quarantines, 1);
	assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
	rma_close();
}

/* Withdrawn, when its memory cannot be written to any more: the owner does it after all. */
/* As many empty messages as are taken, or as make the ring overflow. */
static void flood(void)
{
	for (int refused = 0; refused < 3000 && !sc_ring_overflows(&pair[0].peer->tx);)
		refused = end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT) ? refused + 1 : 0;
}

/*
 * A ring does not overflow while something is offered that is answered in its lines; and in what it overflows into nothing
 * is offered.
 */
static void test_overflow(void **state)
{
	uint64_t offers;

	OPEN();
	memcpy(space, from, SPACE);
	offer_get(into, 7, 100);
	flood();
	assert_int_equal(counters()->tx_overflows, 0);
	owner_polls();
	we_poll();
	expect_done(1);
	assert_memory_equal(into, from + 7, 100);
	flood();
	assert_true(counters()->tx_overflows > 0);
	offers = counters()->rma_delegated;
	assert_int_equal(ask(into, 9, 100), 0);
	put(from, 0, 8, 0);
	assert_int_equal(counters()->rma_delegated, offers);
	ends_settle(pair, 2);
	expect_done(2);
	assert_memory_equal(into, from + 9, 100);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	rma_close();
}

static void test_withdrawn_too_late(void **state)
{
	OPEN();
	for (int i = 0; i < 3; i++)
		offer(from + 8 * i, (uint64_t)(8 * i), 8, 0);
	pair[0].peer->can_read = false;
	we_poll();
	assert_true(end_idle(&pair[0]));
	assert_true(is_untouched(0, 0));
	ends_settle(pair, 2);
	expect_done(3);
	assert_memory_equal(space, from, 24);
	assert_true(is_untouched(0, 24));
	assert_int_equal(counters()->rma_direct_bytes, 0);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 3);
	expect_idle();
	rma_close();
}

/* Withdrawn, when its key is not to be found for now: later. */
static void test_withdrawn_too_soon(void **state)
{
	struct iovec iov = { from, 8 };
	struct sc_remote remote;
	uint32_t *chains;

	OPEN();
	remote = at(0, 8);
	remote.key++;
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	assert_int_equal(counters()->rma_delegated, 1);
	chains = &sc_seg_presence(pair[1].ep->seg)->chains;
	sc_add_acq_rel_32(chains, 1); /* it is at work on them */
	for (int i = 0; i < 1000; i++)
		(void)sc_ep_poll(pair[0].ep);
	assert_true(end_idle(&pair[0]));
	assert_int_equal(pair[0].peer->rma.pending, 1);
	sc_add_acq_rel_32(chains, 1);
	we_poll();
	assert_int_equal(comp_take(&pair[0].tx).err, EKEYREJECTED);
	assert_true(is_untouched(0, 0));
	expect_idle();
	rma_close();
}

/* By one that has never written to us: that it has closed is found out in the middle of doing it. */
static void test_withdrawn_from_closed(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct iovec iov = { from, 8 };
	struct sc_remote remote;
	struct sc_rma rma = {
		.iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1, .flags = SC_RMA_WRITE
	};
	struct end silent, ends[2];
	struct sc_peer *peer;

	OPEN();
	attr.regtab = tab[1];
	end_open(&silent, &attr);
	peer = end_find(&pair[0], &silent);
	assert_int_equal(sc_peer_connect(peer), 0);
	ends[0] = pair[0];
	ends[1] = silent;
	ends_settle(ends, 2);
	end_take_way(&pair[0], peer, WAY_CMA);
	remote = at(0, 8);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sc_rma_post(pair[0].ep, peer, &rma), 0);
	assert_int_equal(counters()->rma_delegated, 3);
	assert_int_equal(peer->feed, SC_FEED_NONE);
	sc_store_release_32(&sc_seg_presence(peer->seg)->state, SC_ABI_CLOSED);
	assert_int_equal(sc_delegate_settle_slow(peer), -ECONNRESET);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	we_poll();
	for (int i = 0; i < 3; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	assert_true(end_idle(&pair[0]));
	assert_true(is_untouched(0, 0));
	sc_store_release_32(&sc_seg_presence(silent.ep->seg)->state, 0);
	end_close(&silent);
	rma_close();
}

/* The end of an endpoint, when its peer has just been given up: they are not withdrawn from it. */
static void test_end_after_loss(void **state)
{
	OPEN();
	for (int i = 0; i < 3; i++)
		offer(from, 0, 8, 0);
	sc_peer_lose(pair[0].peer, -EPROTO);
	end_close(&pair[0]);
	assert_true(is_untouched(0, 0));
	rma_close();
}

/* The polls end the operations again and again with a lost peer that keeps another piece of our memory in hand. */
static void test_ended_by_several_polls(void **state)
{
	OPEN();
	for (int i = 0; i < 3; i++)
		offer(from, 0, 8, 0);
	sc_peer_lose(pair[0].peer, -ECONNRESET);
	for (int i = 0; i < 3; i++)
		assert_true(sc_rma_end_peer(pair[0].peer, -ECONNRESET));
	assert_true(is_untouched(0, 0));
	end_close(&pair[0]);
	rma_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_short_guards),
		cmocka_unit_test(test_short_without_memory),
		cmocka_unit_test(test_short_in_order),
		cmocka_unit_test(test_message_in_order),
		cmocka_unit_test(test_short_refused),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_without_thread),
		cmocka_unit_test(test_mad_end),
		cmocka_unit_test(test_ended_by_several_polls),
		cmocka_unit_test(test_withdrawn),
		cmocka_unit_test(test_got),
		cmocka_unit_test(test_got_vector),
		cmocka_unit_test(test_get_withdrawn),
		cmocka_unit_test(test_put_and_get),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_straddling),
		cmocka_unit_test(test_no_buffers),
		cmocka_unit_test(test_no_memory_for_buffers),
		cmocka_unit_test(test_get_errors),
		cmocka_unit_test(test_mad_answer),
		cmocka_unit_test(test_mad_reader),
		cmocka_unit_test(test_race_of_gets),
		cmocka_unit_test(test_pause),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_errors_in_turn),
		cmocka_unit_test(test_unmapped_meanwhile),
		cmocka_unit_test(test_asked_once),
		cmocka_unit_test(test_each_page_asked_once),
		cmocka_unit_test(test_waits_for_each),
		cmocka_unit_test(test_put_in_pieces),
		cmocka_unit_test(test_put_virtual),
		cmocka_unit_test(test_silent_in_turn),
		cmocka_unit_test(test_reported_together),
		cmocka_unit_test(test_closed_key),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_in_hand),
		cmocka_unit_test(test_crowded),
		cmocka_unit_test(test_mad_owner),
		cmocka_unit_test(test_many_withdrawn),
		cmocka_unit_test(test_long_ago),
		cmocka_unit_test(test_mad_writer),
		cmocka_unit_test(test_claim_overwritten),
		cmocka_unit_test(test_closes_long_after),
		cmocka_unit_test(test_far_apart),
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_owner_closes),
		cmocka_unit_test(test_owner_closes_when_done),
		cmocka_unit_test(test_owner_dies),
		cmocka_unit_test(test_owner_stopped),
		cmocka_unit_test(test_writer_dies),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_overflow),
		cmocka_unit_test(test_withdrawn_too_late),
		cmocka_unit_test(test_withdrawn_too_soon),
		cmocka_unit_test(test_withdrawn_from_closed),
		cmocka_unit_test(test_end_after_loss),
		cmocka_unit_test(test_all_in_hand),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests(tests, setup, NULL);
}
