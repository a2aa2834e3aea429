/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_batch: puts and gets that are posted one after the other: how many of them the initiator puts off and copies in
 * one call; operations of other kinds that are posted behind them; operations that are never put off; one of several
 * that fails, or whose key is closed meanwhile; and how they end when either side closes or dies.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <sched.h>

#include <cmocka.h>

#include "cma_calls.h"
#include "rma_pair.h"

#define AT_ONCE 4 /* of a stream are done in the call */
#define TOGETHER 8

static const struct route direct = { "copied by CMA", false, WAY_CMA };
static uint8_t into[SPACE];

/* The initiator offers no operation and asks for no assistance, so that all operations are direct. */
static void open_pair(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	uncounted = true;
	rma_open(&direct);
	pair[0].peer->delegate.pause = UINT32_MAX;
	pair[0].peer->xfer.copies_not = true;
	memset(space, 0xa5, SPACE);
	memset(into, 0xa5, SPACE);
	before_read = before_write = NULL;
	reads = writes = 0;
}

static void move(bool write, size_t offset, size_t size, uint32_t flags)
{
	struct iovec iov = { (write ? from : into) + offset, size };
	struct sc_remote remote = at(offset, size);

	assert_int_equal(post(&iov, 1, &remote, 1, flags | (write ? SC_RMA_WRITE : 0)), 0);
}

static uint64_t put_off(void)
{
	return pair[0].peer->batch.count;
}

/* The first of a stream, which are done at once. */
static void begin_stream(bool write, size_t size)
{
	sc_ep_poll(pair[0].ep);
	for (int i = 0; i < AT_ONCE; i++) {
		move(write, 0, size, 0);
		assert_int_equal(put_off(), 0);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	}
	reads = writes = 0;
}

static void expect_done(int count)
{
	while (count--) {
		struct sc_comp comp = comp_take(&pair[0].tx);

		assert_int_equal(comp.err, 0);
		assert_int_equal(comp.cq_flags, 0x52);
	}
	assert_true(end_idle(&pair[0]));
}

/* In one process nothing is put off: it would save no call. */
static void test_local(void **state)
{
	static const struct route local = { "copied inside the process", false, WAY_LOCAL };

	(void)state;
	uncounted = true;
	rma_open(&local);
	for (int write = 0; write < 2; write++) {
		memset(space, 0xa5, SPACE);
		for (int i = 0; i < 3 * TOGETHER; i++) {
			move(write, 0, 3000, 0);
			assert_int_equal(put_off(), 0);
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		}
		assert_memory_equal(write ? space : into, write ? from : space, 3000);
	}
	rma_close();
}

/* As many as fit are copied when there are, the others with the next poll; one alone is done in its call. */
static void test_stream(void **state)
{
	static const struct {
		size_t size;
		unsigned int count, together, calls;
	} cases[] = {
		{ 8, 8, 8, 1 },	     { 3000, 9, 8, 1 },	 { 3000, 16, 8, 2 },  { 65536, 8, 8, 1 },
		{ 65537, 8, 8, 1 },  { 70000, 7, 0, 0 }, { 100000, 6, 6, 1 }, { 262144, 2, 2, 1 },
		{ 262144, 3, 2, 1 }, { 3000, 1, 0, 0 },	 { 3000, 7, 0, 0 },
	};

	open_pair(state);
	for (int turn = 0; turn < 4; turn++)
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			bool write = turn % 2;
			unsigned int done = cases[i].calls * cases[i].together;
			unsigned int left = cases[i].count - done;
			size_t size = cases[i].size;

			pair[0].ep->order = turn < 2 ? 0 : SC_ORDER_COMPLETE;
			begin_stream(write, size);
			memset(space, 0xa5, SPACE);
			for (unsigned int n = 0; n < cases[i].count; n++)
				move(write, n * 70000 % (SPACE - size), size, 0);
			assert_int_equal(write ? writes : reads, cases[i].calls);
			if (cases[i].calls)
				assert_int_equal(write ? written_parts : read_parts,
						 size > 8 ? cases[i].together : 0);
			assert_int_equal(put_off(), left);
			expect_done((int)done);
			assert_int_equal(pair[0].peer->rma.pending, left);
			sc_ep_poll(pair[0].ep);
			assert_int_equal(write ? writes : reads, cases[i].calls + (left ? 1 : 0));
			expect_done((int)left);
			for (unsigned int n = 0; write && n < cases[i].count; n++) {
				size_t offset = n * 70000 % (SPACE - size);

				assert_memory_equal(space + offset, from + offset, size);
			}
			/* the next is the first of another */
			move(write, 0, size, 0);
			assert_int_equal(put_off(), 0);
			expect_done(1);
			assert_true(sc_list_empty(&pair[0].peer->order.turns));
			expect_idle();
		}
	assert_true(pair[0].ep->counters.rma_batched > 0);
	rma_close();
}

/* Puts, and gets of what they have put, in order, over each other. */
static void test_order(void **state)
{
	static uint8_t got[3][4096], sent[12288];

	open_pair(state);
	memcpy(sent, from, sizeof(sent));
	begin_stream(true, 4096);
	for (int i = 0; i < 3; i++) {
		struct iovec out = { from + 1000 * (i + 1), 4096 }, in = { got[i], 4096 };
		struct sc_remote remote = at(5000, 4096);

		assert_int_equal(post(&out, 1, &remote, 1, SC_RMA_WRITE), 0);
		assert_int_equal(post(&in, 1, &remote, 1, 0), 0);
	}
	assert_int_equal(put_off(), 6);
	assert_int_equal(space[5000], 0xa5);
	ends_settle(pair, 2);
	expect_done(6);
	for (int i = 0; i < 3; i++)
		assert_memory_equal(got[i], sent + 1000 * (i + 1), 4096);
	/* of several to one place the last one stays */
	begin_stream(true, 4096);
	for (int i = 0; i < 7; i++) {
		struct iovec out = { from + 1000 * (i + 1), 4096 };
		struct sc_remote remote = at(5000, 4096);

		assert_int_equal(post(&out, 1, &remote, 1, SC_RMA_WRITE), 0);
	}
	ends_settle(pair, 2);
	expect_done(7);
	assert_memory_equal(space + 5000, sent + 7000, 4096);
	expect_idle();
	rma_close();
}

/* Vectors: more elements than fit one copy. */
static void test_vectors(void **state)
{
	open_pair(state);
	begin_stream(true, 4096);
	for (int i = 0; i < 7; i++) {
		struct iovec iov[5];
		struct sc_remote remote = at((uint64_t)i * 5000, 5000);

		for (int k = 0; k < 5; k++)
			iov[k] = (struct iovec){ from + i * 5000 + k * 1000, 1000 };
		assert_int_equal(post(iov, 5, &remote, 1, SC_RMA_WRITE), 0);
	}
	assert_int_equal(put_off(), 7);
	ends_settle(pair, 2);
	assert_int_equal(writes, 3); /* 3, 3 and 1 */
	expect_done(7);
	assert_memory_equal(space, from, 35000);
	assert_true(is_untouched(0, 35000));
	expect_idle();
	rma_close();
}

/* An operation that goes another way is posted behind one that is put off: the first is done first. */
static void test_others_behind(void **state)
{
	uint64_t one = 1, former = 0;
	struct iovec operand = { &one, 8 }, result = { &former, 8 };
	struct sc_remote word;
	struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
				    .type = SC_UINT64,
				    .code = SC_SUM,
				    .iov = &operand,
				    .iov_count = 1,
				    .remote = &word,
				    .remote_count = 1,
				    .result = &result,
				    .result_count = 1 };
	struct sc_remote two[2];
	struct iovec iov = { from, 2000 };
	size_t aligned;

	open_pair(state);
	aligned = -(uintptr_t)space % 8;
	word = at(aligned, 8);
	for (int i = 0; i < 4; i++) {
		begin_stream(true, 64);
		memset(space, 0xa5, SPACE);
		move(true, 0, 5000, 0);
		assert_int_equal(put_off(), 1);
		assert_true(is_untouched(0, 0));
		if (i == 0) {
			move(true, 5000, 300000, 0); /* too large to be put off */
		} else if (i == 1) {
			move(true, 0, 100, SC_SEND_INJECT);
		} else if (i == 2) {
			two[0] = at(5000, 1000);
			two[1] = at(6000, 1000);
			assert_int_equal(post(&iov, 1, two, 2, SC_RMA_WRITE), 0);
		} else {
			assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &atomic), 0);
		}
		assert_int_equal(put_off(), 0);
		assert_memory_equal(space, from, 5000);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		expect_idle();
	}
	assert_memory_equal(&former, from + aligned, 8);
	rma_close();
}

/* A put that could be offered is posted behind one that is put off: it is put off too, and not offered. */
static void test_offer_behind(void **state)
{
	open_pair(state);
	begin_stream(true, 64);
	memset(space, 0xa5, SPACE);
	move(true, 0, 5000, 0);
	assert_int_equal(put_off(), 1);
	pair[0].peer->delegate.pause = 0;
	move(true, 1000, 100, 0);
	assert_int_equal(pair[0].ep->counters.rma_delegated, 0);
	assert_int_equal(put_off(), 2);
	ends_settle(pair, 2);
	expect_done(2);
	assert_memory_equal(space, from, 5000);
	/* once both are done, one is offered; and no operation is put off while the peer may take that one */
	move(true, 1000, 100, 0);
	assert_int_equal(pair[0].ep->counters.rma_delegated, 1);
	pair[0].peer->delegate.pause = UINT32_MAX;
	move(true, 2000, 100, 0);
	assert_int_equal(put_off(), 0);
	assert_true(!sc_peer_has_delegated(pair[0].peer));
	ends_settle(pair, 2);
	expect_done(2);
	expect_idle();
	rma_close();
}

/* One of those in a call cannot be: it fails, and no other; no bytes of others are put twice. */
static void test_one_fails(void **state)
{
	open_pair(state);
	for (int write = 0; write < 2; write++)
		for (int bad = 0; bad < TOGETHER; bad++)
			for (int how = 0; how < 3; how++) {
				static const int errors[] = { EKEYREJECTED, EINVAL, SC_EIO_INITIATOR };

				begin_stream(write, 64);
				for (int n = 0; n < TOGETHER; n++) {
					struct iovec iov = { (write ? from : into) + n * 1000, 1000 };
					struct sc_remote remote = at((uint64_t)n * 1000, 1000);

					if (n == bad && how == 0)
						remote.key ^= 1ull << 40;
					if (n == bad && how == 1)
						remote.addr = SPACE - 999;
					if (n == bad && how == 2)
						iov.iov_base = (void *)4096;
					assert_int_equal(
						post(&iov, 1, &remote, 1, write ? SC_RMA_WRITE : 0), 0);
				}
				assert_int_equal(put_off(), 0);
				for (int n = 0; n < TOGETHER; n++)
					assert_int_equal(comp_take(&pair[0].tx).err,
							 n == bad ? errors[how] : 0);
				assert_memory_equal((write ? space : into) + (bad ? 0 : 1000),
						    (write ? from : space) + (bad ? 0 : 1000), 1000);
				if (write && how == 2) /* up to it in one, it alone, then each by itself */
					assert_int_equal(writes, (bad ? 1 : 0) + 1 + TOGETHER - bad);
				else if (write)
					assert_int_equal(writes, TOGETHER - 1);
				expect_idle();
			}
	assert_true(sc_peer_can_read(pair[0].peer));
	rma_close();
}

static int close_meanwhile(void)
{
	before_read = before_write = NULL;
	close_in_thread();
	return 0;
}

/* The key of one is closed while several are copied: that one fails, and none is copied again. */
static void test_closed_meanwhile(void **state)
{
	open_pair(state);
	for (int write = 0; write < 2; write++)
		for (int last = 0; last < TOGETHER; last++) {
			closing = reg_open(tab[1], space, SPACE, SC_REG_READ | SC_REG_WRITE);
			begin_stream(write, 64);
			before_read = before_write = close_meanwhile;
			for (int n = 0; n < TOGETHER; n++) {
				struct iovec iov = { (write ? from : into) + n * 1000, 1000 };
				struct sc_remote remote = at((uint64_t)n * 1000, 1000);

				if (n == last)
					remote.key = sc_reg_key(closing);
				assert_int_equal(post(&iov, 1, &remote, 1, write ? SC_RMA_WRITE : 0), 0);
			}
			assert_int_equal(pthread_join(closer, NULL), 0);
			assert_int_equal(put_off(), 0);
			assert_int_equal(write ? writes : reads, 1);
			for (int n = 0; n < TOGETHER; n++)
				assert_int_equal(comp_take(&pair[0].tx).err, n == last ? EKEYREJECTED : 0);
			expect_idle();
		}
	rma_close();
}

static int forbidden(void)
{
	return EPERM;
}

/* CMA fails for the one that is put off: it becomes a request. An operation behind it that CMA could do comes after. */
static void test_requests_first(void **state)
{
	open_pair(state);
	begin_stream(true, 64);
	move(true, 0, 5000, 0);
	assert_int_equal(put_off(), 1);
	before_write = forbidden; /* reads are allowed */
	move(false, 0, 300000, 0);
	assert_int_equal(reads, 0);
	ends_settle(pair, 2);
	expect_done(2);
	assert_memory_equal(into, from, 5000);
	expect_idle();
	rma_close();

	open_pair(state);
	begin_stream(false, 64);
	memset(into, 0, 200000);
	move(false, 0, 200000, 0);
	assert_int_equal(put_off(), 1);
	pair[0].peer->delegate.pause = 0;
	before_read = forbidden;
	move(true, 0, 100, 0);
	assert_int_equal(put_off(), 2);
	assert_int_equal(pair[0].ep->counters.rma_delegated, 0);
	ends_settle(pair, 2);
	expect_done(2);
	for (size_t i = 0; i < 200000; i++)
		assert_int_equal(into[i], 0xa5);
	assert_memory_equal(space, from, 100);
	expect_idle();
	rma_close();
}

/* The call itself does operations of these kinds, also in a stream. */
static void test_not_put_off(void **state)
{
	open_pair(state);
	begin_stream(true, 64);
	move(true, 0, 64, SC_SEND_INJECT);
	assert_int_equal(put_off(), 0);
	move(true, 0, 0, 0);
	assert_int_equal(put_off(), 0);
	pair[0].ep->order = SC_ORDER_SEND;
	move(true, 0, 64, 0);
	assert_int_equal(put_off(), 0);
	pair[0].ep->order = 0;
	ends_settle(pair, 2);
	expect_done(3);
	expect_idle();
	rma_close();
}

/* They are copied in one call, and the peer's application hears of each after that: by its data, or by a counter. */
static void test_heard(void **state)
{
	struct sc_reg *heard;

	open_pair(state);
	begin_stream(true, 64);
	memset(space, 0xa5, SPACE);
	for (int n = 0; n < TOGETHER; n++)
		move(true, (size_t)n * 3000, 3000, n % 2 ? SC_SEND_DATA : 0);
	assert_int_equal(put_off(), 0);
	assert_int_equal(writes, 1);
	assert_true(end_idle(&pair[1]));
	assert_memory_equal(space, from, TOGETHER * 3000);
	ends_settle(pair, 2);
	expect_done(TOGETHER);
	for (int n = 0; n < TOGETHER / 2; n++) {
		struct sc_comp comp = comp_take(&pair[1].rx);

		assert_int_equal(comp.data, 0xda7a);
		assert_int_equal(comp.len, 3000);
	}
	assert_true(end_idle(&pair[1]));
	/* the copy of several finds that the peer counts one of them */
	heard = reg_open(tab[1], space, 5000, SC_REG_READ | SC_REG_WRITE | SC_REG_EVENT);
	sc_reg_set_cntrs(heard, NULL, &cntrs[1][SC_EVENT_REMOTE_WRITE]);
	begin_stream(true, 64);
	for (int n = 0; n < TOGETHER; n++) {
		struct iovec iov = { from, 64 };
		struct sc_remote remote = at(0, 64);

		if (n == 3)
			remote.key = sc_reg_key(heard);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	}
	assert_int_equal(put_off(), 0);
	assert_int_equal(writes, 1);
	ends_settle(pair, 2);
	expect_done(TOGETHER);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 1);
	assert_int_equal(sc_reg_close(heard), 0);
	expect_idle();
	rma_close();
}

/* CMA is not permitted any more when it is their turn: they are the peer's to do. */
static void test_become_requests(void **state)
{
	open_pair(state);
	begin_stream(true, 64);
	for (int n = 0; n < 5; n++)
		move(true, (size_t)n * 5000, 5000, 0);
	assert_int_equal(put_off(), 5);
	pair[0].peer->can_read = SC_REACH_NO;
	pair[1].peer->can_read = SC_REACH_NO;
	ends_settle(pair, 2);
	assert_int_equal(writes, 0);
	expect_done(5);
	assert_memory_equal(space, from, 25000);
	expect_idle();
	rma_close();
}

/* A fence waits for them. */
static void test_fence(void **state)
{
	struct iovec iov = { from, 64 };
	struct sc_remote remote;

	open_pair(state);
	remote = at(0, 64);
	begin_stream(true, 64);
	move(true, 0, 64, 0);
	assert_int_equal(put_off(), 1);
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_FENCE), -EAGAIN);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), -EAGAIN);
	ends_settle(pair, 2);
	expect_done(1);
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_FENCE), 0);
	expect_done(1);
	rma_close();
}

/* The endpoint closes: they are done. */
static void test_close(void **state)
{
	open_pair(state);
	begin_stream(true, 64);
	move(true, 0, 5000, 0);
	move(true, 5000, 5000, 0);
	assert_int_equal(put_off(), 2);
	assert_true(is_untouched(0, 64));
	sc_ep_destroy(pair[0].ep);
	pair[0].ep = NULL;
	assert_memory_equal(space, from, 10000);
	expect_done(2);
	rma_close();
}

/* The peer is lost, or killed: they end with it. */
static void test_peer_ends(void **state)
{
	struct far far = { .strict = false, .cma = true };
	struct sc_peer *peer;
	struct child child;

	open_pair(state);
	begin_stream(true, 64);
	move(true, 0, 5000, 0);
	sc_peer_quarantine(pair[0].peer, -EPROTO, "a test");
	ends_settle(pair, 1);
	assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	assert_true(is_untouched(0, 64));
	assert_true(sc_list_empty(&pair[0].peer->batch.ops) &&
		    sc_list_empty(&pair[0].ep->work[SC_WORK_BATCHING]));
	assert_int_equal(pair[0].peer->rma.pending, 0);
	rma_close();

	open_pair(state);
	owner_start(&child, &far, &peer);
	peer->delegate.pause = UINT32_MAX;
	for (int i = 0; i < AT_ONCE; i++)
		assert_int_equal(run_far(peer, &far, from, 1000, SC_RMA_WRITE).err, 0);
	sc_ep_poll(pair[0].ep);
	for (int i = 0; i < AT_ONCE + 5; i++)
		post_far(peer, &far, from, 1000, SC_RMA_WRITE);
	assert_int_equal(peer->batch.count, 5);
	for (int i = 0; i < AT_ONCE; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	child_kill(&child);
	for (int i = 0; i < 5; i++)
		assert_int_equal(wait_comp().err, ECONNRESET);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	expect_idle();
	rma_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local),	       cmocka_unit_test(test_stream),
		cmocka_unit_test(test_order),	       cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_others_behind),  cmocka_unit_test(test_offer_behind),
		cmocka_unit_test(test_one_fails),      cmocka_unit_test(test_closed_meanwhile),
		cmocka_unit_test(test_requests_first), cmocka_unit_test(test_not_put_off),
		cmocka_unit_test(test_heard),	       cmocka_unit_test(test_become_requests),
		cmocka_unit_test(test_fence),	       cmocka_unit_test(test_close),
		cmocka_unit_test(test_peer_ends),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
