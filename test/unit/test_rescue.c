/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rescue: injected puts while neither side polls: the daemon thread does them, in order, and once; operations that
 * the endpoint's thread posts meanwhile; operations that the daemon thread leaves; words that a peer which keeps the
 * rules does not write; and the end of the endpoint and of the process.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "proc/process.h"
#include "proc/rescue.h"
#include "rma/delegate.h"
#include "rma/delegated.h"
#include "rma_pair.h"
#include "special.h"

static const struct route direct = { "copied by CMA", false, WAY_CMA };

/* Each test needs a peer whose memory can be written from here, and the thread that does it. */
#define OPEN_COUNTING(counts)                                                                             \
	do {                                                                                              \
		(void)state;                                                                              \
		if (!cma_allowed())                                                                       \
			skip();                                                                           \
		uncounted = !(counts);                                                                    \
		rma_open(&direct);                                                                        \
		memset(space, 0xa5, SPACE);                                                               \
		if (pair[0].ep->alone || !pair[0].ep->barrier)                                            \
			skip();                                                                           \
		while (!sc_peer_shows_life(pair[0].peer)) /* the thread starts */                         \
			sched_yield();                                                                    \
		assert_true(sc_delegated_begin_slow(pair[0].peer));                                       \
	} while (0)

#define OPEN() OPEN_COUNTING(false)

static const struct sc_counters *counters(void)
{
	return &pair[0].ep->counters;
}

static void put(const void *buf, struct sc_remote remote, uint32_t flags)
{
	struct iovec iov = { (void *)buf, remote.len };
	int ret;

	while ((ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE | flags)) == -EAGAIN)
		sc_ep_poll(pair[0].ep);
	assert_int_equal(ret, 0);
}

static void inject(const void *buf, uint64_t addr, uint64_t len)
{
	uint64_t before = counters()->rma_delegated;

	pair[0].peer->delegate.pause = 0;
	put(buf, at(addr, len), SC_SEND_INJECT);
	assert_int_equal(counters()->rma_delegated, before + 1);
}

static void owner_polls(void)
{
	ends_settle(&pair[1], 1);
}

static void expect_done(int count)
{
	ends_settle(&pair[0], 1);
	while (count--)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_true(end_idle(&pair[0]));
}

static struct sc_rescue *rescue(void)
{
	return pair[0].peer->delegate.rescue;
}

static uint64_t *claim_word(void)
{
	return &sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->delegation.claim;
}

/* Waits for the daemon's thread. */
static void wait_rescued(uint32_t count)
{
	while (sc_load_acquire_32(&rescue()->keeper) != SC_RESCUE_RESTS ||
	       rescue()->done - rescue()->from < count)
		sched_yield();
}

static bool holds;

/* The daemon's thread does nothing meanwhile; this thread does, in its place. */
static void hold(void)
{
	sc_process_lock();
	holds = true;
	sc_store_relaxed_32(&sc_process.rescue_looks, 1);
}

static void release(void)
{
	holds = false;
	sc_process_unlock();
}

/* A test that fails before it has released the lock does not stop those that follow. */
static int release_if_held(void **state)
{
	(void)state;
	if (holds)
		release();
	return 0;
}

/* ---- what is done ---------------------------------------------------------------------------- */

static void test_lands(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 32, 33, 88, 89, 200, 255, 256, 257, 1000, 4096 };

	OPEN();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(space, 0xa5, SPACE);
		inject(from, 7, sizes[i]);
		wait_rescued(1);
		assert_memory_equal(space + 7, from, sizes[i]);
		assert_true(is_untouched(7, sizes[i]));
		assert_null(sc_comp_ring_peek(&pair[0].tx));
		expect_done(1);
		assert_int_equal(counters()->rma_rescued, i + 1);
		memset(space, 0xa5, SPACE);
		owner_polls();
		assert_true(is_untouched(0, 0));
	}
	assert_int_equal(counters()->rma_delegated_taken, 0);
	assert_int_equal(counters()->rma_direct_bytes, 0);
	expect_idle();
	rma_close();
}

/* Those that come while the thread rests follow without a call. */
static void test_later_ones_land(void **state)
{
	uint64_t values[SC_ABI_DELEGATED];

	OPEN();
	hold();
	for (uint64_t i = 0; i < SC_ABI_DELEGATED / 2; i++) {
		values[i] = i * 3 + 1;
		inject(&values[i], i * 8, 8);
	}
	sc_rescue_look_locked();
	assert_true(is_untouched(0, 0));
	sc_rescue_look_locked();
	assert_memory_equal(space, values, sizeof(values) / 2);
	release();
	expect_done(SC_ABI_DELEGATED / 2);
	assert_int_equal(counters()->rma_rescued, SC_ABI_DELEGATED / 2);
	expect_idle();
	rma_close();
}

/* One that the owner takes between two looks makes the thread wait. */
static void test_owner_takes(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 8);
	sc_rescue_look_locked();
	owner_polls();
	inject(from + 8, 8, 8);
	sc_rescue_look_locked();
	assert_memory_equal(space, from, 8);
	assert_true(is_untouched(0, 8));
	sc_rescue_look_locked();
	assert_memory_equal(space, from, 16);
	release();
	expect_done(2);
	assert_int_equal(counters()->rma_rescued, 1);
	assert_int_equal(counters()->rma_delegated_taken, 1);
	expect_idle();
	rma_close();
}

static void test_errors(void **state)
{
	struct sc_remote bad = { 0, 8, 77 };
	struct sc_comp comp;

	OPEN();
	inject(from, 0, 8);
	put(from, bad, SC_SEND_INJECT);
	put(from, at(SPACE - 4, 8), SC_SEND_INJECT);
	put(from, at(8, 8), SC_SEND_INJECT);
	wait_rescued(4);
	assert_memory_equal(space, from, 8);
	assert_memory_equal(space + 8, from, 8);
	assert_true(is_untouched(0, 16));
	ends_settle(&pair[0], 1);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	comp = comp_take(&pair[0].tx);
	assert_int_equal(comp.err, EKEYREJECTED);
	assert_int_equal(comp.olen, 0);
	assert_int_equal(comp_take(&pair[0].tx).err, EINVAL);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	expect_idle();
	rma_close();
}

/* ---- both threads ---------------------------------------------------------------------------- */

#if defined(SC_FAULT_INJECTION)

/* The endpoint's thread does not yet see that the daemon's thread has withdrawn, and posts one; the owner polls. */
static int post_unseen(const char *point)
{
	static const uint64_t later = 0x1a7e;

	static bool was_here;

	if (was_here || strcmp(point, "rescue.withdrawn"))
		return 0;
	was_here = true;
	sc_store_relaxed_32(&rescue()->keeper, SC_RESCUE_NONE);
	inject(&later, 0, 8);
	sc_store_relaxed_32(&rescue()->keeper, SC_RESCUE_COPIES);
	owner_polls();
	assert_true(is_untouched(0, 0));
	return 0;
}

static void test_posted_unseen(void **state)
{
	static const uint64_t first = 0xf125;
	uint64_t value;

	OPEN();
	hold();
	inject(&first, 0, 8);
	sc_rescue_look_locked();
	sc_fault_hook = post_unseen;
	sc_rescue_look_locked();
	release();
	memcpy(&value, space, 8);
	assert_int_equal(value, 0x1a7e);
	assert_int_equal(rescue()->done - rescue()->from, 2);
	expect_done(2);
	/* the number of the claim is right again: the owner takes the next one */
	assert_int_equal((uint32_t)(*claim_word() >> 32), pair[0].peer->delegate.end);
	hold();
	inject(from, 0, 8);
	owner_polls();
	release();
	expect_done(1);
	assert_int_equal(counters()->rma_delegated_taken, 1);
	expect_idle();
	rma_close();
}

/* The owner has taken the first of several; meanwhile the endpoint's thread withdraws the others, and sends messages. */
static int withdraw_amid(const char *point)
{
	static bool was_here;

	if (was_here || strcmp(point, "taker.written"))
		return 0;
	was_here = true;
	for (int poll = 0; poll < 2000; poll++)
		sc_ep_poll(pair[0].ep);
	assert_int_equal(pair[0].peer->delegate.ours - pair[0].peer->delegate.first, 1);
	while (!end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT))
		;
	return 0;
}

/* Injected puts with remote data that are withdrawn do not stay because the ring is full: they keep it full. */
static void test_withdrawn_before_full(void **state)
{
	OPEN();
	for (uint64_t i = 0; i < 8; i++)
		put(from, at(8 * i, 8), SC_SEND_INJECT | SC_SEND_DATA);
	sc_fault_hook = withdraw_amid;
	owner_polls();
	expect_done(8);
	owner_polls();
	for (int i = 0; i < 8; i++)
		assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
	rma_close();
}

static int close_amid(const char *point)
{
	static bool was_here;

	if (was_here || strcmp(point, "taker.written"))
		return 0;
	was_here = true;
	end_close(&pair[0]);
	return 0;
}

/* The endpoint closes while the owner has one in hand: it withdraws the others, and the owner does them. */
static void test_closes_amid(void **state)
{
	OPEN();
	hold();
	for (uint64_t i = 0; i < 8; i++)
		put(from + 8 * i, at(8 * i, 8), SC_SEND_INJECT);
	release();
	sc_fault_hook = close_amid;
	owner_polls();
	assert_memory_equal(space, from, 64);
	rma_close();
}

/* While the daemon's thread copies, the endpoint's thread does not wait for it. */
static int poll_meanwhile(const char *point)
{
	static bool was_here;
	struct iovec iov = { from, 8 };
	struct sc_remote remote;

	if (was_here || strcmp(point, "rescue.hazard"))
		return 0;
	was_here = true;
	remote = at(0, 8);
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), -EAGAIN);
	for (int i = 0; i < 300; i++)
		sc_ep_poll(pair[0].ep);
	assert_null(sc_comp_ring_peek(&pair[0].tx));
	assert_true(is_untouched(0, 0));
	return 0;
}

static void test_meanwhile(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 8);
	sc_rescue_look_locked();
	sc_fault_hook = poll_meanwhile;
	sc_rescue_look_locked();
	release();
	assert_memory_equal(space, from, 8);
	expect_done(1);
	expect_idle();
	rma_close();
}

#endif

/* All threads at once: each put is done once, in order. */
static void test_mixed(void **state)
{
	uint64_t random = 11, last = 0, seen, injected = 0;

	OPEN();
	for (int round = 0; round < 400; round++) {
		uint64_t count = 1 + pair_random(&random) % 20;
		int completions = (int)count;

		pair[0].peer->delegate.pause = 0;
		for (uint64_t i = 0; i < count; i++) {
			last++;
			put(&last, at(0, 8), pair_random(&random) % 4 ? SC_SEND_INJECT : 0);
			injected++;
			if (!(pair_random(&random) % 8))
				owner_polls();
		}
		switch (pair_random(&random) % 3) {
		case 0:
			owner_polls();
			break;
		case 1:
			do
				memcpy(&seen, space, 8);
			while (seen != last && sc_peer_has_delegated(pair[0].peer) &&
			       (sc_ep_poll(pair[0].ep) || true));
			break;
		default:
			break;
		}
		while (completions) {
			sc_ep_poll(pair[0].ep);
			while (sc_comp_ring_peek(&pair[0].tx)) {
				assert_int_equal(comp_take(&pair[0].tx).err, 0);
				completions--;
			}
		}
		memcpy(&seen, space, 8);
		assert_int_equal(seen, last);
		owner_polls();
		memcpy(&seen, space, 8);
		assert_int_equal(seen, last);
	}
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	expect_idle();
	rma_close();
}

/* ---- what is left to others ------------------------------------------------------------------ */

/* Behind a get, and behind a put with remote data, an injected put is not delegated; it is done in the call. */
static void test_behind_others(void **state)
{
	uint64_t value = 0;

	OPEN();
	hold();
	put(from, at(0, 8), SC_SEND_INJECT | SC_SEND_DATA);
	assert_int_equal(counters()->rma_delegated, 1);
	for (int i = 0; i < 5; i++)
		sc_rescue_look_locked();
	assert_true(is_untouched(0, 0));
	put(from + 8, at(8, 8), SC_SEND_INJECT);
	assert_memory_equal(space, from, 16);
	owner_polls();
	assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
	expect_done(2);
	pair[0].peer->delegate.pause = 0;
	assert_int_equal(
		post(&(struct iovec){ &value, 8 }, 1, &(struct sc_remote){ 0, 8, sc_reg_key(reg) }, 1, 0),
		0);
	for (int i = 0; i < 5; i++)
		sc_rescue_look_locked();
	put(from, at(16, 8), SC_SEND_INJECT);
	assert_memory_equal(space + 16, from, 8);
	release();
	expect_done(2);
	assert_memory_equal(&value, from, 8);
	assert_int_equal(counters()->rma_rescued, 0);
	expect_idle();
	rma_close();
}

/*
 * One with remote data is not delegated behind one that the daemon's thread may withdraw: it would be withdrawn with that
 * one if it came at this moment, and nobody would do it without a call of ours.
 */
static void test_data_behind_another(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 8);
	put(from + 8, at(8, 8), SC_SEND_INJECT | SC_SEND_DATA);
	assert_int_equal(counters()->rma_delegated, 1);
	release();
	assert_memory_equal(space, from, 16);
	owner_polls();
	assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
	expect_done(2);
	expect_idle();
	rma_close();
}

/* This side withdraws so many that the last one that the owner took is from long ago. */
static void test_behind_withdrawn(void **state)
{
	int completions = 0;

	OPEN();
	hold();
	inject(from, 0, 8);
	owner_polls();
	expect_done(1);
	for (uint64_t i = 0; i < 5 * SC_ABI_DELEGATED; i++) {
		inject(from, 0, 8);
		completions++;
		if (i % SC_ABI_DELEGATED == SC_ABI_DELEGATED - 1) {
			expect_done(completions);
			completions = 0;
			owner_polls();
		}
	}
	inject(from + 8, 8, 8);
	for (int look = 0; look < 2; look++)
		sc_rescue_look_locked();
	assert_memory_equal(space + 8, from + 8, 8);
	release();
	expect_done(1);
	assert_int_equal(counters()->rma_delegated_taken, 1);
	assert_int_equal(counters()->rma_rescued, 1);
	expect_idle();
	rma_close();
}

/* The numbers of operations have wrapped since the last operation of another kind, and since the last withdrawal. */
static void test_numbers(void **state)
{
	static const uint32_t passed[] = { INT32_MAX, (uint32_t)INT32_MAX + 40, UINT32_MAX - 200 };

	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
		struct sc_peer_delegate *delegate;

		OPEN();
		delegate = &pair[0].peer->delegate;
		put(from, at(0, 8), SC_SEND_DATA);
		owner_polls();
		expect_done(1);
		delegate->first = delegate->ours = delegate->end = passed[i];
		pair[1].peer->taker.taken = pair[1].peer->taker.seen = pair[1].peer->taker.reported =
			passed[i];
		sc_store_relaxed_32(
			&sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->consumer.delegated_done,
			passed[i]);
		sc_store_relaxed_64(claim_word(), (uint64_t)delegate->withdrawn << 32 | passed[i]);
		for (uint64_t put = 0; put < 8; put++) {
			hold();
			inject(from + 8 * put, 8 * put, 8);
			for (int look = 0; look < 2; look++)
				sc_rescue_look_locked();
			release();
			assert_memory_equal(space + 8 * put, from + 8 * put, 8);
			expect_done(1);
			owner_polls();
		}
		assert_int_equal(counters()->rma_rescued, 8);
		assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
		expect_idle();
		rma_close();
	}
}

static uint32_t buffers_lent(void)
{
	sc_record_reuse_slow(pair[0].peer, 0);
	return pair[0].ep->pool.have - pair[0].ep->pool.free_count;
}

/*
 * The buffers of a longer put stay lent until it has ended, whichever side does it. Here the thread withdraws the put,
 * the owner passes over the record, and the thread copies only then.
 */
static void test_large(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 300);
	put(from, at(1000, 5000), 0); /* not injected */
	assert_int_equal(buffers_lent(), 3);
	sc_rescue_look_locked();
	/* as withdraw() of rescue.c, which copies at once */
	sc_store_relaxed_32(&rescue()->keeper, SC_RESCUE_COPIES);
	rescue()->withdrawn = 2 + SC_ABI_DELEGATED;
	rescue()->from = rescue()->done = 0;
	sc_store_relaxed_64(claim_word(), (uint64_t)rescue()->withdrawn << 32);
	owner_polls();
	for (int i = 0; i < 1000; i++) /* more than WITHDRAW_POLLS of delegate.c */
		sc_ep_poll(pair[0].ep);
	assert_true(is_untouched(0, 0));
	assert_null(sc_comp_ring_peek(&pair[0].tx));
	assert_int_equal(buffers_lent(), 3);
	sc_store_relaxed_32(&rescue()->keeper, SC_RESCUE_RESTS);
	sc_rescue_look_locked();
	release();
	assert_memory_equal(space, from, 300);
	assert_memory_equal(space + 1000, from, 5000);
	expect_done(2);
	assert_int_equal(counters()->rma_rescued, 2);
	owner_polls();
	expect_idle();
	rma_close();
}

static void fill_plainly(struct sc_config *config)
{
	config->fill = SC_FILL_CACHED; /* else buffers that have come back are not used at first */
}

/*
 * The same behind a message whose buffer comes back with the owner's answer. That tells that the owner has passed over the
 * record of the put as well, from which the thread still copies.
 */
static void test_large_before_message(void **state)
{
	uint8_t into[2][2048];

	adjust = fill_plainly;
	OPEN();
	adjust = NULL;
	hold();
	pair[0].peer->bounce.fill.trying =
		true; /* the buffer of the put does not come back with a record */
	inject(from, 0, 1000);
	pair[0].peer->bounce.fill.trying = false;
	sc_store_relaxed_32(&rescue()->keeper, SC_RESCUE_COPIES);
	rescue()->withdrawn = 1 + SC_ABI_DELEGATED;
	rescue()->from = rescue()->done = 0;
	sc_store_relaxed_64(claim_word(), (uint64_t)rescue()->withdrawn << 32);
	owner_polls();
	assert_int_equal(end_recv(&pair[1], NULL, into[1], 2048, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 2048, 0, SC_SILENT), 0);
	sc_ep_poll(pair[1].ep);
	assert_int_equal(pair[1].peer->hold.count, 1);
	assert_int_equal(end_recv(&pair[0], NULL, into[0], 2048, 0, 0), 0);
	assert_int_equal(end_send(&pair[1], pair[1].peer, from, 2048, 0, SC_SILENT), 0);
	assert_int_equal(pair[1].peer->hold.count, 0);
	sc_ep_poll(pair[0].ep);
	assert_int_equal(pair[0].peer->bounce.returnables.count, 0);
	assert_memory_equal(into[0], from, 2048);
	assert_int_equal(buffers_lent(), 2);
	sc_store_relaxed_32(&rescue()->keeper, SC_RESCUE_RESTS);
	sc_rescue_look_locked();
	release();
	assert_memory_equal(space, from, 1000);
	for (int i = 0; i < 2; i++)
		assert_int_equal(comp_take(&pair[i].rx).err, 0);
	expect_done(1);
	owner_polls();
	expect_idle();
	rma_close();
}

/* The application writes its buffer again; then the endpoint's thread withdraws what nobody has taken, and does it. */
static void test_read_back(void **state)
{
	static const size_t sizes[] = { 0, 1, 200, 256, 257, 4096 };
	static uint8_t buf[4096];

	OPEN();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(space, 0xa5, SPACE);
		hold();
		memcpy(buf, from, sizes[i]);
		inject(buf, 3, sizes[i]);
		memset(buf, 0, sizeof(buf));
		expect_done(1);
		release();
		assert_memory_equal(space + 3, from, sizes[i]);
		assert_true(is_untouched(3, sizes[i]));
		owner_polls();
	}
	assert_int_equal(counters()->rma_rescued, 0);
	assert_int_equal(counters()->rma_delegated_taken, 0);
	expect_idle();
	rma_close();
}

/*
 * The endpoint's thread reads the payload back once, and keeps it while the owner changes its table. If the endpoint
 * closes before that has ended, the owner does the put.
 */
static void test_read_back_once(void **state)
{
	static const size_t sizes[] = { 200, 4096 };
	static uint8_t buf[4096];

	for (int i = 0; i < 4; i++) {
		size_t size = sizes[i / 2];
		struct sc_regtab_view table;
		const struct sc_rma_op *op;
		struct sc_reg_ref ref;
		const void *copy;

		OPEN();
		table = sc_seg_table(pair[0].peer->seg);
		assert_int_equal(sc_regtab_find(&table, sc_reg_key(reg), &ref), 0);
		hold();
		memcpy(buf, from, size);
		inject(buf, 3, size);
		memset(buf, 0, sizeof(buf));
		sc_store_relaxed_32(&table.presence->chains, table.chains + 1);
		table.regs[ref.index].key++;
		expect_done(0);
		op = pair[0].peer->delegate.open[0].op;
		assert_non_null(op);
		copy = op->copy;
		assert_non_null(copy);
		for (int poll = 0; poll < 1000; poll++)
			(void)sc_ep_poll(pair[0].ep);
		assert_ptr_equal(op->copy, copy);
		assert_true(is_untouched(0, 0));
		release();
		if (i % 2)
			end_close(&pair[0]);
		table.regs[ref.index].key--;
		sc_store_relaxed_32(&table.presence->chains, table.chains + 2);
		if (i % 2)
			owner_polls();
		else
			expect_done(1);
		assert_memory_equal(space + 3, from, size);
		assert_true(is_untouched(3, size));
		rma_close();
	}
}

/* The owner takes one with remote data when it polls, without another call of ours. */
static void test_data(void **state)
{
	struct sc_comp comp;

	OPEN();
	put(from, at(0, 200), SC_SEND_INJECT | SC_SEND_DATA);
	owner_polls();
	assert_memory_equal(space, from, 200);
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.data, 0xda7a);
	assert_int_equal(comp.len, 200);
	expect_done(1);
	expect_idle();
	rma_close();
}

/*
 * One that the owner does not come to is withdrawn, and a note tells the owner; where there is no space for the note, it
 * stays until the owner polls.
 */
static void test_data_waits(void **state)
{
	struct sc_comp comp;

	for (int full = 0; full < 2; full++) {
		OPEN();
		put(from, at(0, 200), SC_SEND_INJECT | SC_SEND_DATA);
		while (full && !end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT))
			;
		for (int poll = 0; poll < 300; poll++)
			sc_ep_poll(pair[0].ep);
		assert_int_equal(is_untouched(0, 0), full);
		owner_polls();
		assert_memory_equal(space, from, 200);
		comp = comp_take(&pair[1].rx);
		assert_int_equal(comp.data, 0xda7a);
		expect_done(1);
		rma_close();
	}
}

/*
 * Several of them: they are withdrawn only if there is space for all notes. Else some would wait for a further call of
 * ours.
 */
static void test_data_waits_together(void **state)
{
	OPEN();
	for (uint64_t i = 0; i < 20; i++)
		put(from, at(8 * i, 8), SC_SEND_INJECT | SC_SEND_DATA);
	pair[0].ep->config.buf_size = SC_ABI_LINE; /* the ring does not overflow */
	while (!sc_record_room(pair[0].peer, 18))
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT), 0);
	for (int poll = 0; poll < 20 * 200; poll++)
		sc_ep_poll(pair[0].ep);
	owner_polls();
	for (int i = 0; i < 20; i++)
		assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
	pair[0].ep->config.buf_size = pair[1].ep->config.buf_size;
	expect_done(20);
	rma_close();
}

/*
 * The application counts what is done to that memory: it has to poll for that. It may have begun to count when the put
 * lay in the ring.
 */
static void test_counted(void **state)
{
	struct sc_cntr writes = { 0 };
	struct sc_reg *counted;
	uint8_t *memory;

	OPEN();
	memory = guarded_alloc(64);
	counted = reg_open(tab[1], memory, 64, SC_REG_READ | SC_REG_WRITE);
	for (uint64_t late = 1; late < 3; late++) {
		hold();
		if (late == 2)
			sc_reg_set_cntrs(counted, NULL, &writes);
		put(from, (struct sc_remote){ 0, 64, sc_reg_key(counted) }, SC_SEND_INJECT);
		sc_reg_set_cntrs(counted, NULL, &writes);
		for (int i = 0; i < 5; i++)
			sc_rescue_look_locked();
		release();
		assert_false(sc_rescue_has_begun(rescue()));
		owner_polls();
		assert_memory_equal(memory, from, 64);
		assert_int_equal(writes.value, late);
		expect_done(1);
	}
	assert_int_equal(counters()->rma_rescued, 0);
	assert_int_equal(sc_reg_close(counted), 0);
	guarded_free(memory);
	expect_idle();
	rma_close();
}

/* One that is counted, and one that is not, are never in the ring together: the one would keep the other there. */
static void test_counted_and_not(void **state)
{
	static const size_t sizes[] = { 8, 1000 };
	struct sc_cntr writes = { 0 };
	struct sc_reg *counted;
	uint64_t rounds = 0;
	uint8_t *memory;

	OPEN();
	memory = guarded_alloc(1000);
	counted = reg_open(tab[1], memory, 1000, SC_REG_READ | SC_REG_WRITE);
	sc_reg_set_cntrs(counted, NULL, &writes);
	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct sc_remote remotes[] = { { 0, sizes[i / 2], sc_reg_key(counted) },
					       at(0, sizes[i / 2]) };

		memset(memory, 0, 1000);
		memset(space, 0xa5, SPACE);
		pair[0].peer->delegate.pause = 0;
		hold();
		put(from, remotes[i % 2], SC_SEND_INJECT);
		assert_true(sc_peer_has_delegated(pair[0].peer));
		put(from, remotes[!(i % 2)], SC_SEND_INJECT);
		for (int look = 0; look < 2; look++)
			sc_rescue_look_locked();
		release();
		assert_memory_equal(memory, from, sizes[i / 2]);
		assert_memory_equal(space, from, sizes[i / 2]);
		owner_polls();
		assert_int_equal(writes.value, ++rounds);
		expect_done(2);
	}
	assert_int_equal(sc_reg_close(counted), 0);
	guarded_free(memory);
	expect_idle();
	rma_close();
}

/*
 * The thread withdraws no put to memory that CMA does not reach, and none with it: the owner does them, or the thread once
 * the memory can be reached. Here one page of two cannot, for now.
 */
static void test_unreachable(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct sc_reg *two;
	uint8_t *memory;

	OPEN();
	memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	two = reg_open(tab[1], memory, 2 * page, SC_REG_READ | SC_REG_WRITE);
	for (int polls = 0; polls < 2; polls++) {
		memset(memory, 0, 2 * page);
		memset(space, 0xa5, SPACE);
		assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
		hold();
		inject(from, 0, 8);
		put(from, (struct sc_remote){ page - 100, 200, sc_reg_key(two) }, SC_SEND_INJECT);
		inject(from + 8, 8, 8);
		for (int look = 0; look < 30; look++)
			sc_rescue_look_locked();
		assert_false(sc_rescue_has_begun(rescue()));
		assert_true(is_untouched(0, 0));
		assert_int_equal(memory[page - 100], 0);
		assert_int_equal(mprotect(memory + page, page, PROT_READ | PROT_WRITE), 0);
		if (polls)
			owner_polls();
		else
			sc_rescue_look_locked();
		release();
		assert_memory_equal(memory + page - 100, from, 200);
		assert_memory_equal(space, from, 16);
		expect_done(3);
		owner_polls();
	}
	assert_int_equal(counters()->rma_rescued, 3);
	assert_int_equal(counters()->rma_delegated_taken, 3);
	assert_int_equal(sc_reg_close(two), 0);
	assert_int_equal(munmap(memory, 2 * page), 0);
	expect_idle();
	rma_close();
}

/* Injects puts to `space`, one behind the other, until the ring is full; each fills its place with bytes of its own. */
static uint32_t inject_until_full(size_t size, uint32_t flags)
{
	const struct iovec iov = { from, size };
	uint32_t count = 0;
	int ret;

	do {
		struct sc_remote remote = at(count * size, size);

		pair[0].peer->delegate.pause = 0;
		memset(from, (int)count + 1, size);
		ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT | flags);
		count += !ret;
	} while (!ret);
	assert_int_equal(ret, -EAGAIN);
	pattern_fill(from, 0, sizeof(from), 1);
	return count;
}

static void expect_filled(size_t size, uint32_t count)
{
	for (size_t i = 0; i < size * count; i++)
		assert_int_equal(space[i], i / size + 1);
	assert_true(is_untouched(0, size * count));
}

/*
 * The first of many is for memory that CMA does not reach, and the ring has no space for requests. The target does all,
 * whether the endpoint's thread polls, whether the target has read them before, and whether the endpoint closes; the first
 * only if it is injected as well, or if the endpoint stays.
 */
static void test_behind_unreachable(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (int i = 0; i < 16; i++) {
		bool polls = i & 1, closes = i & 2, reads = i & 8;
		uint32_t inject = i & 4 ? SC_SEND_INJECT : 0, count;
		struct sc_reg *two;
		uint8_t *memory;

		OPEN();
		memory = special_map(SPECIAL_REFUSED, page);
		assert_ptr_not_equal(memory, MAP_FAILED);
		two = reg_open(tab[1], memory, page, SC_REG_READ | SC_REG_WRITE);
		put(from, (struct sc_remote){ 0, 8, sc_reg_key(two) }, inject);
		assert_int_equal(counters()->rma_delegated, 1);
		count = inject_until_full(200, 0);
		for (int poll = 0; polls && poll < 10000; poll++)
			sc_ep_poll(pair[0].ep);
		assert_true(is_untouched(0, 0));
		if (reads)
			owner_polls();
		if (closes)
			end_close(&pair[0]);
		assert_true(reads || is_untouched(0, 0));
		owner_polls();
		if (!closes) {
			ends_settle(pair, 2);
			expect_done((int)count + 1);
		}
		expect_filled(200, count);
		if (inject)
			assert_memory_equal(memory, from, 8);
		assert_int_equal(sc_reg_close(two), 0);
		special_unmap(memory, page);
		rma_close();
	}
}

static void expect_heard(uint32_t count)
{
	while (count--)
		assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
	assert_null(sc_comp_ring_peek(&pair[1].rx));
}

/* The endpoint closes, and the ring has no space for notes, or many buffers hold payloads: the target hears of each put. */
static void test_closes_before_notes(void **state)
{
	static const size_t sizes[] = { 200, 3000 };

	for (int i = 0; i < 2; i++) {
		uint32_t count;

		OPEN();
		count = inject_until_full(sizes[i], SC_SEND_DATA);
		end_close(&pair[0]);
		owner_polls();
		expect_filled(sizes[i], count);
		expect_heard(count);
		rma_close();
	}
}

/* A get has made the puts that were before it, and their notes found no space; then the endpoint closes. */
static void test_closes_behind_a_get(void **state)
{
	static uint8_t large[400000];
	const struct iovec iov = { large, sizeof(large) };
	struct sc_remote remote;
	uint32_t count;
	int ret;

	OPEN();
	remote = at(100000, sizeof(large));
	count = inject_until_full(200, SC_SEND_DATA);
	while ((ret = post(&iov, 1, &remote, 1, 0)) == -EAGAIN)
		sc_ep_poll(pair[0].ep);
	assert_int_equal(ret, 0);
	end_close(&pair[0]);
	owner_polls();
	expect_filled(200, count);
	expect_heard(count);
	rma_close();
}

/* The answer to a message waits with requests that fill the ring; then the endpoint closes. */
static void test_closes_with_an_answer(void **state)
{
	static uint64_t one = 1;
	const struct iovec iov = { &one, sizeof(one) };
	struct sc_remote remote;
	const struct sc_atomic sum = { .kind = SC_ATOMIC_BASE,
				       .type = SC_UINT64,
				       .code = SC_SUM,
				       .iov = &iov,
				       .iov_count = 1,
				       .remote = &remote,
				       .remote_count = 1,
				       .flags = SC_SEND_DELIVERY };
	uint8_t byte;

	OPEN();
	pair[1].peer = end_find(&pair[1], &pair[0]);
	remote = at(0, sizeof(one));
	assert_int_equal(end_recv(&pair[0], NULL, &byte, 1, 5, SC_TAGGED), 0);
	while (!end_send(&pair[0], pair[0].peer, from, 8, 9, SC_TAGGED | SC_SILENT))
		if (pair[0].peer->tx.room < 2)
			break;
	for (int i = 0; i < 60; i++)
		assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &sum), 0);
	assert_int_equal(end_send(&pair[1], pair[1].peer, from, 1, 5, SC_TAGGED | SC_SEND_DELIVERY), 0);
	(void)sc_ep_poll(pair[0].ep);
	assert_int_not_equal(pair[0].peer->reply.count, 0);
	(void)sc_ep_poll(pair[1].ep);
	end_close(&pair[0]);
	ends_settle(&pair[1], 1);
	assert_int_equal(comp_take(&pair[1].tx).err, 0);
	rma_close();
}

/* A withdrawn put that fails for now is tried at each look, until the peer has gone: nobody else does it without a call. */
static void test_tried_again(void **state)
{
	uint32_t *chains, *life;

	OPEN();
	chains = &sc_seg_presence(pair[0].peer->seg)->chains;
	life = &sc_seg_presence(pair[0].peer->seg)->life;
	hold();
	inject(from, 0, 8);
	/* as withdraw() of rescue.c, and a copy in vain: the owner changes its table for a while, and this key has gone */
	sc_store_relaxed_32(&rescue()->keeper, SC_RESCUE_RESTS);
	rescue()->withdrawn = 1 + SC_ABI_DELEGATED;
	rescue()->from = rescue()->done = 0;
	sc_store_relaxed_64(claim_word(), (uint64_t)rescue()->withdrawn << 32);
	rescue()->kept[0].remote.key++;
	sc_store_relaxed_32(chains, sc_load_relaxed_32(chains) + 1);
	for (int look = 0; look < 50; look++)
		sc_rescue_look_locked();
	assert_int_equal(sc_load_relaxed_32(&sc_process.rescue_looks), 1);
	assert_int_equal(rescue()->done, 0);
	sc_store_relaxed_32(life, 0);
	for (int look = 0; look < 50; look++)
		sc_rescue_look_locked();
	assert_int_equal(sc_load_relaxed_32(&sc_process.rescue_looks), 0);
	sc_store_relaxed_32(life, sc_process.tid);
	rescue()->kept[0].remote.key--;
	sc_store_relaxed_32(chains, sc_load_relaxed_32(chains) - 1);
	sc_store_relaxed_32(&sc_process.rescue_looks, 1);
	sc_rescue_look_locked();
	release();
	assert_memory_equal(space, from, 8);
	expect_done(1);
	owner_polls();
	expect_idle();
	rma_close();
}

/*
 * A registration of the target counts, perhaps that of the put: the target changes its table, and the key is not in it
 * just now. The daemon's thread would leave a put that may count, and the target need not poll for one that does not.
 */
static void test_table_changes(void **state)
{
	static const size_t sizes[] = { 8, 1000 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const struct iovec iov = { from, sizes[i] };
		struct sc_remote remote;
		struct sc_rma rma = { .iov = &iov,
				      .iov_count = 1,
				      .remote = &remote,
				      .remote_count = 1,
				      .flags = SC_RMA_WRITE | SC_SEND_INJECT };
		struct sc_regtab_view table;
		struct sc_reg_ref ref;

		OPEN();
		remote = at(0, sizes[i]);
		table = sc_seg_table(pair[0].peer->seg);
		assert_int_equal(sc_regtab_find(&table, remote.key, &ref), 0);
		sc_store_relaxed_32(&table.presence->counting, 1);
		sc_store_relaxed_32(&table.presence->chains, table.chains + 1);
		table.regs[ref.index].key++;
		assert_int_equal(post(&iov, 1, &remote, 1, rma.flags), -EAGAIN);
		assert_int_equal(sc_delegate_post(pair[0].peer, &rma, sizes[i]), 1);
		assert_int_equal(counters()->rma_delegated, 0);
		table.regs[ref.index].key--;
		sc_store_relaxed_32(&table.presence->chains, table.chains + 2);
		inject(from, 0, sizes[i]);
		wait_rescued(1);
		assert_memory_equal(space, from, sizes[i]);
		expect_done(1);
		owner_polls();
		expect_idle();
		rma_close();
	}
}

/*
 * The endpoint of the target counts. No put is injected into its ring, but the thread looks at others that are posted,
 * because puts to another peer have woken it. The target has to hear of them.
 */
static void test_counting_endpoint(void **state)
{
	OPEN_COUNTING(true);
	hold();
	put(from, at(0, 8), 0);
	assert_int_equal(counters()->rma_delegated, 1);
	for (int i = 0; i < 5; i++)
		sc_rescue_look_locked();
	release();
	assert_true(is_untouched(0, 0));
	owner_polls();
	assert_memory_equal(space, from, 8);
	assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 1);
	expect_done(1);
	expect_idle();
	rma_close();
}

/* Without the thread on either side an injected put is done in the call. */
static void test_alone(void **state)
{
	uint32_t *life;

	OPEN();
	pair[0].peer->delegate.injects = false; /* as if it had been so from the beginning */
	pair[0].ep->alone = true;
	put(from, at(0, 8), SC_SEND_INJECT);
	assert_memory_equal(space, from, 8);
	pair[0].ep->alone = false;
	pair[0].ep->barrier = false;
	put(from + 8, at(8, 8), SC_SEND_INJECT);
	assert_memory_equal(space, from, 16);
	pair[0].ep->barrier = pair[0].peer->delegate.injects = true;
	life = &sc_seg_presence(pair[0].peer->seg)->life;
	hold();
	sc_store_relaxed_32(life, 0);
	put(from + 16, at(16, 8), SC_SEND_INJECT);
	sc_store_relaxed_32(life, sc_process.tid);
	release();
	assert_memory_equal(space, from, 24);
	assert_int_equal(counters()->rma_delegated, 0);
	expect_done(3);
	expect_idle();
	rma_close();
}

/* ---- a peer gone mad ------------------------------------------------------------------------- */

/*
 * The daemon's thread withdraws over a claim that says nothing of operations to come. One that cannot be ends the
 * connection, and so does any other once that thread has withdrawn.
 */
static void test_mad_claim(void **state)
{
	static const struct {
		uint64_t word;
		bool possible;
	} claims[] = { { UINT64_MAX, true },
		       { 5, false },
		       { (uint64_t)5 << 32, true },
		       { 0x8000000080000000, false } };

	for (size_t i = 0; i < 2 * sizeof(claims) / sizeof(claims[0]); i++) {
		bool withdrawn = i % 2, fails = withdrawn || !claims[i / 2].possible;

		OPEN();
		hold();
		inject(from, 0, 8);
		for (int look = 0; withdrawn && look < 2; look++)
			sc_rescue_look_locked();
		sc_store_relaxed_64(claim_word(), claims[i / 2].word);
		for (int look = 0; look < 3; look++)
			sc_rescue_look_locked();
		release();
		if (withdrawn || !fails)
			assert_memory_equal(space, from, 8);
		for (int poll = 0; poll < 300; poll++)
			sc_ep_poll(pair[0].ep);
		assert_int_equal(counters()->quarantines, fails);
		assert_int_equal(comp_take(&pair[0].tx).err, fails ? EPROTO : 0);
		rma_close();
	}
}

/* The peer says that it has ended a put which the daemon's thread has withdrawn from it. */
static void test_mad_end(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 8);
	inject(from + 8, 8, 8);
	for (int look = 0; look < 2; look++)
		sc_rescue_look_locked();
	release();
	assert_true(sc_rescue_has_begun(rescue()));
	sc_store_release_32(
		&sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->consumer.delegated_done, 1);
	for (int poll = 0; poll < 300; poll++)
		sc_ep_poll(pair[0].ep);
	assert_int_equal(counters()->quarantines, 1);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	rma_close();
}

static struct sc_abi_line *record_of(uint32_t number)
{
	return sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->ring +
	       SC_RESCUE_LINE(rescue()->kept[number % SC_ABI_DELEGATED].place);
}

/* Over the record, its size and the numbers of buffers: both threads know these themselves. */
static void test_mad_record(void **state)
{
	static const size_t sizes[] = { 8, 1000 };

	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i / 2];
		struct sc_abi_line *line;

		OPEN();
		hold();
		inject(from, 0, size);
		line = record_of(0);
		line->ctl |= UINT32_MAX;
		((struct sc_abi_delegate *)line->bytes)->addr = 5;
		((struct sc_abi_delegate *)line->bytes)->key++;
		if (size > 256)
			memset(((struct sc_abi_delegate *)line->bytes)->bufs, 0xff, 32);
		for (int look = 0; i % 2 && look < 3; look++)
			sc_rescue_look_locked();
		assert_int_equal(sc_rescue_has_begun(rescue()), i % 2);
		expect_done(1); /* before the daemon's thread can do what this one has not withdrawn yet */
		release();
		assert_int_equal(counters()->rma_rescued, i % 2);
		assert_memory_equal(space, from, size);
		assert_true(is_untouched(0, size));
		rma_close();
	}
}

/* A peer that is given up: its buffers do not go to others while the thread copies from them. */
static void test_lost_meanwhile(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 1000);
	release();
	sc_peer_quarantine(pair[0].peer, -EPROTO, "a test");
	assert_true(sc_list_empty(&rescue()->listed));
	ends_settle(&pair[0], 1);
	assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
	rma_close();
}

/* ---- the end --------------------------------------------------------------------------------- */

static void test_process_ends(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 200);
	release();
	sc_rescue_finish();
	assert_memory_equal(space, from, 200);
	expect_done(1);
	expect_idle();
	rma_close();
}

static void test_endpoint_closes(void **state)
{
	for (int looks = 0; looks < 3; looks++) {
		OPEN();
		hold();
		inject(from, 0, 200);
		for (int look = 0; look < looks; look++)
			sc_rescue_look_locked();
		release();
		end_close(&pair[0]);
		assert_memory_equal(space, from, 200);
		assert_true(sc_list_empty(&sc_process.rescues));
		rma_close();
	}
}

/* The owner closes after the thread has done a put: the put has no error. */
static void test_owner_closes(void **state)
{
	OPEN();
	hold();
	inject(from, 0, 8);
	sc_rescue_look_locked();
	sc_rescue_look_locked();
	release();
	assert_memory_equal(space, from, 8);
	assert_int_equal(sc_reg_close(reg), 0);
	end_close(&pair[1]);
	ends_settle(&pair[0], 1);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_int_equal(counters()->rma_rescued, 1);
	reg = reg_open(tab[1], space, SPACE, SC_REG_READ | SC_REG_WRITE);
	rma_close();
}

int main(void)
{
	struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lands),
		cmocka_unit_test(test_later_ones_land),
		cmocka_unit_test(test_owner_takes),
		cmocka_unit_test(test_errors),
#if defined(SC_FAULT_INJECTION)
		cmocka_unit_test(test_posted_unseen),
		cmocka_unit_test(test_meanwhile),
		cmocka_unit_test(test_withdrawn_before_full),
		cmocka_unit_test(test_closes_amid),
#endif
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_behind_others),
		cmocka_unit_test(test_data_behind_another),
		cmocka_unit_test(test_behind_withdrawn),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_large_before_message),
		cmocka_unit_test(test_read_back),
		cmocka_unit_test(test_read_back_once),
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_data_waits),
		cmocka_unit_test(test_data_waits_together),
		cmocka_unit_test(test_counted),
		cmocka_unit_test(test_counted_and_not),
		cmocka_unit_test(test_unreachable),
		cmocka_unit_test(test_behind_unreachable),
		cmocka_unit_test(test_closes_before_notes),
		cmocka_unit_test(test_closes_behind_a_get),
		cmocka_unit_test(test_closes_with_an_answer),
		cmocka_unit_test(test_tried_again),
		cmocka_unit_test(test_table_changes),
		cmocka_unit_test(test_counting_endpoint),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_mad_claim),
		cmocka_unit_test(test_mad_end),
		cmocka_unit_test(test_mad_record),
		cmocka_unit_test(test_lost_meanwhile),
		cmocka_unit_test(test_process_ends),
		cmocka_unit_test(test_endpoint_closes),
		cmocka_unit_test(test_owner_closes),
	};

	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		tests[i].teardown_func = release_if_held;
	return cmocka_run_group_tests(tests, setup, NULL);
}
