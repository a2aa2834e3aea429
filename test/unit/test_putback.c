/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_putback: delegated puts whose payload is in a bounce buffer that the target has lent, and delegated puts whose buffer
 * the target holds for its next message or put. The initiator, its daemon's thread, or nobody withdraws them; a buffer
 * with the payload of a put that is withdrawn goes to no other message before the put is done; and peers that break the
 * rules.
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

#include "base/atomic.h"
#include "link/hold.h"
#include "proc/process.h"
#include "proc/rescue.h"
#include "rma/delegate.h"
#include "rma/delegated.h"
#include "rma_pair.h"

#define SIZE 2000
#define MOST 4096 /* bytes of a bounce buffer */

static const struct route direct = { "copied by CMA", false, WAY_CMA };
static struct sc_reg *back; /* memory of pair[0] */
static uint8_t into[MOST], home[MOST];

/* There is no trial of the ways to fill buffers: no buffer comes back then. */
static void fill_plainly(struct sc_config *config)
{
	config->fill = SC_FILL_CACHED;
}

static void open_pair(void)
{
	if (!cma_allowed())
		skip();
	adjust = fill_plainly;
	uncounted = true;
	rma_open(&direct);
	back = reg_open(tab[0], home, sizeof(home), SC_REG_READ | SC_REG_WRITE);
	memset(space, 0xa5, SPACE);
	memset(home, 0xa5, sizeof(home));
	if (pair[0].ep->alone || !pair[0].ep->barrier)
		skip();
	for (int i = 0; i < 2; i++) {
		while (!sc_peer_shows_life(pair[i].peer)) /* the daemon's thread starts */
			sched_yield();
		assert_true(sc_delegated_begin(pair[i].peer));
	}
	/* the thread does nothing from now on, so that no put is withdrawn unless the test does it */
	sc_process_lock();
	sc_store_relaxed_32(&sc_process.rescue_looks, 1);
}

static void close_pair(void)
{
	sc_process_unlock();
	expect_idle();
	assert_int_equal(sc_reg_close(back), 0);
	rma_close();
}

static uint32_t held_by(int who)
{
	return pair[who].peer->hold.count;
}

static uint32_t returnable(int who)
{
	return pair[who].peer->bounce.returnables.count;
}

static uint32_t lent_by(int who)
{
	return pair[who].peer->bounce.loans.count;
}

/* pair[who] sends the other a message, which goes through a bounce buffer of either. */
static void talk(int who)
{
	memset(into, 0, SIZE);
	assert_int_equal(end_recv(&pair[!who], NULL, into, SIZE, 0, 0), 0);
	assert_int_equal(end_send(&pair[who], pair[who].peer, from, SIZE, 0, SC_SILENT), 0);
	(void)sc_ep_poll(pair[!who].ep);
	assert_int_equal(comp_take(&pair[!who].rx).err, 0);
	assert_memory_equal(into, from, SIZE);
}

/* Delegates a put of that many bytes; the application writes its buffer again. */
static void put(int who, size_t size, uint32_t flags)
{
	static uint8_t buf[2 * MOST];
	struct iovec iov = { buf, size };
	struct sc_remote remote = { 0, size, sc_reg_key(who ? back : reg) };
	struct sc_rma rma = { .iov = &iov,
			      .iov_count = 1,
			      .remote = &remote,
			      .remote_count = 1,
			      .flags = SC_RMA_WRITE | SC_SILENT | flags };
	uint64_t before = pair[who].ep->counters.rma_delegated;

	memcpy(buf, from, size);
	pair[who].peer->delegate.pause = 0;
	assert_int_equal(sc_rma_post(pair[who].ep, pair[who].peer, &rma), 0);
	assert_int_equal(pair[who].ep->counters.rma_delegated, before + 1);
	if (flags & SC_SEND_INJECT)
		memset(buf, 0x11, size);
}

static void expect_landed(size_t size)
{
	assert_memory_equal(space, from, size);
	assert_true(is_untouched(0, size));
	memset(space, 0xa5, size);
}

/* pair[0] holds a buffer of pair[1], and puts into it. */
static void put_back(size_t size)
{
	talk(1);
	assert_int_equal(held_by(0), 1);
	put(0, size, SC_SEND_INJECT);
	assert_int_equal(held_by(0), 0);
	assert_int_equal(lent_by(0), 0);
	assert_int_equal(returnable(1), 1);
}

/* ---- both sides keep the rules ----------------------------------------------------------------- */

/* Puts, or messages and puts, in turn need one buffer together. */
static void test_in_turn(void **state)
{
	(void)state;
	open_pair();
	for (int i = 0; i < 100; i++) {
		put(0, SIZE, i % 2 ? SC_SEND_INJECT : 0);
		(void)sc_ep_poll(pair[1].ep);
		expect_landed(SIZE);
		assert_int_equal(held_by(1), 1);
		(void)sc_ep_poll(pair[0].ep); /* the put has ended */
		if (i % 3) {
			put(1, SIZE, SC_SEND_INJECT);
			(void)sc_ep_poll(pair[0].ep);
			assert_memory_equal(home, from, SIZE);
			memset(home, 0xa5, SIZE);
			(void)sc_ep_poll(pair[1].ep);
		} else {
			talk(1);
		}
		assert_int_equal(held_by(1), 0);
		assert_int_equal(returnable(0), 0);
		assert_int_equal(lent_by(0), 0);
		assert_int_equal(lent_by(1), 0);
	}
	assert_int_equal(pair[0].ep->pool.have, pair[0].ep->pool.free_count);
	close_pair();
}

/* A put that fits its record, one that is too short for a held buffer, and one that is too long for one buffer. */
static void test_sizes(void **state)
{
	static const struct {
		size_t size;
		uint32_t lends, returnable, holds;
	} cases[] = { { 256, 0, 0, 1 }, { 257, 1, 1, 1 },  { 319, 1, 1, 1 },
		      { 320, 0, 0, 0 }, { MOST, 0, 0, 0 }, { MOST + 1, 2, 0, 1 } };

	(void)state;
	open_pair();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		talk(1);
		assert_int_equal(held_by(0), 1);
		put(0, cases[i].size, 0);
		assert_int_equal(lent_by(0), cases[i].lends);
		assert_int_equal(returnable(0), cases[i].returnable);
		assert_int_equal(held_by(0), cases[i].holds);
		(void)sc_ep_poll(pair[1].ep);
		expect_landed(cases[i].size);
		assert_int_equal(held_by(1), cases[i].returnable);
		expect_idle();
		assert_int_equal(returnable(0) + returnable(1), 0);
	}
	close_pair();
}

/* ---- a put that is withdrawn ------------------------------------------------------------------- */

/* The target does not hold the buffer of a put that it has not done: its payload is there. */
static void test_not_held(void **state)
{
	(void)state;
	open_pair();
	put(0, SIZE, SC_SEND_INJECT);
	assert_int_equal(returnable(0), 1);
	assert_int_equal(sc_delegate_settle(pair[0].peer), 0);
	expect_landed(SIZE);
	(void)sc_ep_poll(pair[1].ep);
	assert_int_equal(held_by(1), 0);
	close_pair();
}

/* The endpoint's thread withdraws a put from the target's buffer, before the target looks, and does it. */
static void test_withdrawn(void **state)
{
	static const size_t sizes[] = { 320, SIZE, MOST };

	(void)state;
	open_pair();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		put_back(sizes[i]);
		assert_int_equal(sc_delegate_settle(pair[0].peer), 0);
		expect_landed(sizes[i]);
		ends_settle(pair, 2);
		assert_true(is_untouched(0, 0));
		expect_idle();
		assert_int_equal(returnable(1), 0);
	}
	close_pair();
}

/* As withdraw() of rescue.c. */
static void withdraw_by_hand(void)
{
	struct sc_peer *peer = pair[0].peer;
	struct sc_rescue *rescue = peer->delegate.rescue;
	uint64_t *claim = &sc_seg_slot(peer->seg, peer->out_slot)->delegation.claim;

	sc_store_relaxed_32(&rescue->keeper, SC_RESCUE_COPIES);
	rescue->withdrawn = peer->delegate.end + SC_ABI_DELEGATED;
	rescue->from = rescue->done = peer->delegate.end - 1;
	sc_store_relaxed_64(claim, (uint64_t)rescue->withdrawn << 32 | (uint32_t)*claim);
}

static void give_back_all(int who)
{
	pair[who].ep->polls++;
	sc_peer_publish(pair[who].peer);
	sc_record_reuse_slow(pair[!who].peer, 0);
}

/*
 * The daemon's thread has withdrawn a put from the target's buffer, and still copies. The target has passed over the
 * record, and all that it has sent is read: it lends the buffer to nobody before the put is done.
 */
static void test_pinned(void **state)
{
	uint16_t buf;

	(void)state;
	open_pair();
	put_back(SIZE);
	buf = *pair[1].peer->bounce.returnables.bufs;
	withdraw_by_hand();
	for (int i = 0; i < 3; i++) {
		(void)sc_ep_poll(pair[1].ep);
		give_back_all(0);
		assert_int_equal(returnable(1), 1);
		assert_int_equal(lent_by(1), 1);
		talk(1);
		assert_int_not_equal(pair[1].ep->pool.free_first, buf);
	}
	assert_true(is_untouched(0, 0));
	sc_store_relaxed_32(&pair[0].peer->delegate.rescue->keeper, SC_RESCUE_RESTS);
	sc_rescue_look_locked();
	expect_landed(SIZE);
	give_back_all(0);
	assert_int_equal(returnable(1), 0);
	assert_int_equal(lent_by(1), 0);
	close_pair();
}

/* The initiator has never told how far it has come. After so many others it has ended the put: they could not be open. */
static void test_pinned_for_long(void **state)
{
	struct sc_peer *peer;

	(void)state;
	open_pair();
	put_back(SIZE);
	assert_int_equal(sc_delegate_settle(pair[0].peer), 0);
	ends_settle(pair, 2);
	peer = pair[1].peer;
	assert_true(peer->bounce.returnables.pinned || !returnable(1));
	peer->bounce.returnables.pinned = true;
	sc_store_relaxed_32(&sc_seg_slot(pair[1].ep->seg, peer->in_slot)->delegation.done, 0x40000000);
	peer->bounce.returnables.number = peer->taker.seen - SC_ABI_DELEGATED;
	assert_true(sc_hold_is_pinned(peer));
	peer->bounce.returnables.number--;
	assert_false(sc_hold_is_pinned(peer));
	assert_false(peer->bounce.returnables.pinned);
	expect_landed(SIZE);
	close_pair();
}

/* ---- peers that break the rules ---------------------------------------------------------------- */

enum bad { NOT_LENT, TOO_LONG, NO_SUCH_BUFFER, TWICE, BADS };

/* Writes a record of one line without any check. */
static void put_raw(struct sc_peer *peer, uint32_t size, const struct sc_abi_delegate *record)
{
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);

	memcpy(line->bytes, record, sizeof(*record));
	sc_ring_commit(&peer->tx,
		       sc_ring_ctl(SC_ABI_DELEGATE_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_RETURNED, 1, size), 1);
}

static void bad_put(enum bad bad)
{
	struct sc_abi_delegate record = { .key = sc_reg_key(reg) };
	uint32_t size = SIZE;

	memset(record.bufs, 0, sizeof(record.bufs));
	record.bufs[0] = *pair[1].peer->bounce.returnables.bufs;
	if (bad == NOT_LENT)
		record.bufs[0]++;
	else if (bad == NO_SUCH_BUFFER)
		record.bufs[0] = SC_POOL_NONE;
	else if (bad == TOO_LONG)
		size = MOST + 1;
	for (int i = 0; i <= (bad == TWICE); i++)
		put_raw(pair[0].peer, size, &record);
}

/* A put names a buffer that its writer may not write into: the target gives it up, and touches nothing. */
static void test_bad_puts(void **state)
{
	(void)state;
	for (enum bad bad = 0; bad < BADS; bad++) {
		open_pair();
		talk(1);
		memcpy(sc_seg_buf(pair[1].ep->seg, *pair[1].peer->bounce.returnables.bufs), from, SIZE);
		bad_put(bad);
		sc_process_unlock();
		(void)sc_ep_poll(pair[1].ep);
		assert_int_equal(pair[1].ep->counters.quarantines, 1);
		if (bad == TWICE)
			expect_landed(SIZE);
		assert_true(is_untouched(0, 0));
		assert_int_equal(sc_reg_close(back), 0);
		rma_close();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_turn),	 cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_not_held), cmocka_unit_test(test_withdrawn),
		cmocka_unit_test(test_pinned),	 cmocka_unit_test(test_pinned_for_long),
		cmocka_unit_test(test_bad_puts),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
