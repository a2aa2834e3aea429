/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_inherit: an initiator is killed after it has withdrawn delegated puts, before, while or after it copies them: the
 * target does those that are not done, each once, whether it has passed over their records or not. With remote data the
 * application hears of each put once.
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
#include "link/route.h"
#include "proc/process.h"
#include "proc/rescue.h"
#include "rma/delegated.h"
#include "rma/taker.h"
#include "rma_pair.h"

static const struct route direct = { "copied by CMA", false, WAY_CMA };

/* Inline in the record of one line, of several lines, in one buffer, in several. */
static const size_t sizes[] = { 8, 200, 300, 4000, 0, 32, 256, 4096 };
#define PUTS (sizeof(sizes) / sizeof(sizes[0]))
#define APART ((size_t)8192)

/* The initiator takes these steps, until the target kills it. */
struct plan {
	const char *address; /* of the target */
	uint32_t start;	     /* number of the first put */
	bool data;	     /* its puts have remote data */
	bool polls;	     /* its endpoint's thread withdraws them, else the daemon's thread does */
	uint32_t withdrawn;  /* without `point`: as many are withdrawn, and */
	uint32_t copied;     /* so many of those are done */
	bool leaves;	     /* after them it gives the target up */
	bool asks;	     /* CMA fails, so that the target must do those that are withdrawn */
	bool returns;	     /* the payload of the put of 4000 bytes is in a buffer of the target */
	const char *point;   /* it stops here, for the nth time */
	int nth;
};

/* ---- the initiator --------------------------------------------------------------------------- */

static struct sc_peer *target;
static struct child *me;

static void say(const char *what)
{
	char line[CHILD_LINE];

	snprintf(line, sizeof(line), "%s %u", what, target->out_slot);
	child_tell(me, line);
}

static __attribute__((noreturn)) void say_and_wait(const char *what)
{
	say(what);
	for (;;)
		child_wait(me);
}

static void inject_all(struct sc_ep *ep, bool data)
{
	for (size_t i = 0; i < PUTS; i++) {
		struct iovec iov = { from + i * APART, sizes[i] };
		struct sc_remote remote = at(i * APART, sizes[i]);
		struct sc_rma rma = { .iov = &iov,
				      .iov_count = 1,
				      .remote = &remote,
				      .remote_count = 1,
				      .data = i,
				      .flags = SC_RMA_WRITE | SC_SEND_INJECT | SC_SILENT |
					       (data ? SC_SEND_DATA : 0) };

		target->delegate.pause = 0;
		CHILD_CHECK(!sc_rma_post(ep, target, &rma));
	}
	CHILD_CHECK(sc_ep_counters(ep)->rma_delegated == PUTS);
}

/* As withdraw() of rescue.c, and as if it had copied some. */
static void withdraw_by_hand(const struct plan *plan)
{
	struct sc_rescue *rescue = target->delegate.rescue;
	uint64_t *claim = &sc_seg_slot(target->seg, target->out_slot)->delegation.claim;

	sc_store_relaxed_32(&rescue->keeper, SC_RESCUE_COPIES);
	rescue->withdrawn = plan->start + plan->withdrawn;
	rescue->from = rescue->done = plan->start + plan->copied;
	if (plan->copied)
		sc_rescue_tell_done(rescue, plan->start + plan->copied);
	CHILD_CHECK(sc_cas_acq_rel_64(claim, plan->start,
				      (uint64_t)(plan->start + plan->withdrawn) << 32 | plan->start));
}

/* As if so many had been taken before. */
static void number_from(uint32_t start)
{
	struct sc_peer_delegate *delegate = &target->delegate;
	struct sc_abi_slot *slot = sc_seg_slot(target->seg, target->out_slot);

	delegate->first = delegate->ours = delegate->end = start;
	delegate->unrescuable = delegate->rescuable = delegate->awaited = start;
	sc_store_relaxed_32(&slot->consumer.delegated_done, start);
	sc_store_relaxed_64(&slot->delegation.claim, start);
	CHILD_CHECK(sc_delegated_begin_slow(target));
}

#if defined(SC_FAULT_INJECTION)
static const struct plan *to_follow;

static int stop_here(const char *point)
{
	static int count;

	if (!strcmp(point, to_follow->point) && ++count == to_follow->nth)
		say_and_wait("stopped");
	return 0;
}

static void go_to_point(struct sc_ep *ep, const struct plan *plan)
{
	to_follow = plan;
	sc_fault_hook = stop_here;
	for (int look = 0; look < 2 && !plan->polls; look++)
		sc_rescue_look_locked();
	for (int poll = 0; poll < 10000; poll++)
		sc_ep_poll(ep);
	say_and_wait("passed");
}
#endif

/* No trial of the ways to fill buffers keeps a buffer from coming back. */
static void fill_plainly(struct sc_config *config)
{
	config->fill = SC_FILL_CACHED;
}

static void initiator(struct child *self, void *arg)
{
	const struct plan *plan = arg;
	struct sc_ep_attr attr = end_attr();
	struct sc_comp_ring cq;
	struct sc_ep *ep;

	fill_plainly(&attr.config);
	me = self;
	child_on_its_own();
	CHILD_CHECK(!sc_comp_ring_init(&cq, 64));
	attr.tx_cq = attr.rx_cq = &cq;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_peer_get(ep, plan->address, &target));
	CHILD_CHECK(!sc_peer_connect(target));
	while (sc_load_relaxed_32(&target->tx.consumer->answer) == SC_ABI_PENDING)
		sc_ep_poll(ep);
	while (plan->returns && !sc_hold_has(target))
		sc_ep_poll(ep);
	child_wait(self); /* the target polls no more */
	CHILD_CHECK(sc_peer_can_read(target));
	while (!sc_peer_shows_life(target))
		sched_yield();
	number_from(plan->start);
	sc_process_lock(); /* the thread does nothing; this thread does, in its place */
	sc_store_relaxed_32(&sc_process.rescue_looks, 1);
	inject_all(ep, plan->data);
	if (plan->asks)
		target->can_read = SC_REACH_NO;
	if (!plan->point) {
		withdraw_by_hand(plan);
		sc_process_unlock();
		say("withdrawn");
		child_wait(me);
		if (plan->leaves)
			sc_peer_quarantine(target, -EPROTO, "a test");
		for (int poll = 0; poll < 20; poll++)
			sc_ep_poll(ep);
		say_and_wait("went on");
	}
#if defined(SC_FAULT_INJECTION)
	go_to_point(ep, plan);
#endif
}

/* ---- the target ------------------------------------------------------------------------------ */

static struct sc_ep *target_ep(void)
{
	return pair[1].ep;
}

static unsigned heard[PUTS];

static void hear(void)
{
	while (sc_comp_ring_peek(&pair[1].rx)) {
		struct sc_comp comp = comp_take(&pair[1].rx);

		assert_in_range(comp.data, 0, PUTS - 1);
		assert_int_equal(comp.len, sizes[comp.data]);
		heard[comp.data]++;
	}
}

static void target_polls(void)
{
	for (int poll = 0; poll < 20; poll++)
		sc_ep_poll(target_ep());
}

static bool is_filled(size_t put, uint8_t byte)
{
	for (size_t i = 0; i < sizes[put]; i++)
		if (space[put * APART + i] != byte)
			return false;
	return true;
}

static struct sc_peer *peer_in(uint32_t slot)
{
	sc_list_for (entry, &target_ep()->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		if (peer != pair[1].peer && peer->in_slot == slot)
			return peer;
	}
	fail();
	return NULL;
}

static struct child child;
static uint32_t slot;

/* Sends the initiator a message in a bounce buffer, which it holds. */
static void lend_buffer(void)
{
	struct sc_peer *peer = NULL;

	sc_list_for (entry, &target_ep()->peers) {
		struct sc_peer *any = sc_list_entry(entry, struct sc_peer, all);

		if (any != pair[1].peer && any->in_slot != SC_PEER_NO_SLOT)
			peer = any;
	}
	assert_non_null(peer);
	assert_int_equal(sc_peer_connect(peer), 0);
	while (sc_load_relaxed_32(&peer->tx.consumer->answer) == SC_ABI_PENDING)
		sc_ep_poll(target_ep());
	assert_int_equal(end_send(&pair[1], peer, from, 1000, 0, SC_SILENT), 0);
	assert_int_equal(peer->bounce.returnables.count, 1);
}

/* Opens the target, and lets the initiator go to its end. Returns it as the target sees it. */
static struct sc_peer *begin(struct plan *plan)
{
	char line[CHILD_LINE];
	struct sc_peer *peer;

	if (!cma_allowed())
		skip();
	adjust = fill_plainly;
	uncounted = true;
	rma_open(&direct);
	memset(space, 0xa5, SPACE);
	memset(heard, 0, sizeof(heard));
	if (target_ep()->alone || !target_ep()->barrier)
		skip();
	plan->address = sc_ep_address(target_ep());
	child_spawn(&child, initiator, plan);
	while (target_ep()->counters.accepts < 2)
		sc_ep_poll(target_ep());
	if (plan->returns)
		lend_buffer();
	assert_int_equal(send(child.down, "", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(read(child.up, line, sizeof(line)), sizeof(line));
	assert_int_equal(sscanf(line, plan->point ? "stopped %u" : "withdrawn %u", &slot), 1);
	peer = peer_in(slot);
	peer->taker.seen = peer->taker.taken = peer->taker.reported = plan->start;
	return peer;
}

static uint32_t count_done(const struct plan *plan)
{
	uint32_t count = sc_seg_slot(target_ep()->seg, slot)->delegation.done - plan->start;

	return count <= PUTS ? count : 0; /* 0: the initiator has never told */
}

/* Expects the bytes of the puts from `first` on, the bytes of mark() in place of earlier puts, and no other change. */
static void expect_landed(uint32_t first)
{
	for (size_t i = 0; i < PUTS; i++) {
		if (i < first)
			assert_true(is_filled(i, 0x77));
		else
			assert_memory_equal(space + i * APART, from + i * APART, sizes[i]);
		memset(space + i * APART, 0xa5, sizes[i]);
	}
	assert_true(is_untouched(0, 0));
}

/* The application changes what the first puts have written. */
static void mark(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		memset(space + i * APART, 0x77, sizes[i]);
}

static void wait_departed(void)
{
	while (target_ep()->counters.departures < 1)
		sc_ep_poll(target_ep());
}

/* The target has passed over the put, and looks how far the peer has read: the buffer stays lent. */
static void expect_kept(void)
{
	struct sc_peer *peer = peer_in(slot);

	sc_record_reuse_slow(peer, 0);
	assert_int_equal(peer->bounce.returnables.count, 1);
	assert_int_equal(peer->bounce.loans.count, 1);
}

/*
 * The initiator goes to its end, and is killed there. `passes`: the target polls before that. Each put lands. Those that
 * were done before are not written again.
 */
static void follow(struct plan plan, bool passes)
{
	uint32_t done;

	begin(&plan);
	done = count_done(&plan);
	if (passes)
		target_polls();
	if (plan.returns && passes)
		expect_kept();
	mark(done);
	child_kill(&child);
	wait_departed();
	expect_landed(done);
	hear();
	for (size_t i = 0; i < PUTS; i++)
		assert_int_equal(heard[i], plan.data);
	assert_int_equal(target_ep()->counters.quarantines, 0);
	rma_close();
}

/*
 * The initiator has withdrawn all puts, or the first ones, and has done some. The numbers of the puts are small or large. The
 * last ones wrap: then the initiator has always done some, because the target would take the first value of `done`, 0, for
 * a number that the initiator has written.
 */
static void test_withdrawn(void **state)
{
	static const uint32_t starts[] = { 0, INT32_MAX, (uint32_t)INT32_MAX + 40, UINT32_MAX - 2 };

	(void)state;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		for (uint32_t withdrawn = 1; withdrawn <= PUTS; withdrawn += 3)
			for (uint32_t copied = i == 3; copied <= withdrawn; copied += 2)
				for (int passes = 0; passes < 2; passes++)
					follow((struct plan){ .start = starts[i],
							      .withdrawn = withdrawn,
							      .copied = copied },
					       passes);
}

/* The payload of one put is in a buffer that the target has lent. The target uses the buffer for nothing else before. */
static void test_returned(void **state)
{
	(void)state;
	for (uint32_t copied = 0; copied < 6; copied++)
		for (int passes = 0; passes < 2; passes++)
			follow((struct plan){ .withdrawn = PUTS, .copied = copied, .returns = true },
			       passes);
}

/* The application hears of each. */
static void test_with_data(void **state)
{
	(void)state;
	for (int passes = 0; passes < 2; passes++)
		follow((struct plan){ .data = true, .withdrawn = PUTS }, passes);
}

/* There is space for the first completions only, until the application reads them. */
static void test_crowded(void **state)
{
	struct plan plan = { .data = true, .withdrawn = PUTS };

	(void)state;
	begin(&plan);
	target_polls();
	pair[1].rx.limit = 3;
	child_kill(&child);
	while (pair[1].rx.tail - pair[1].rx.head < 3)
		sc_ep_poll(target_ep());
	target_polls();
	assert_int_equal(pair[1].rx.tail - pair[1].rx.head, 3);
	assert_int_equal(target_ep()->counters.departures, 0);
	while (target_ep()->counters.departures < 1) {
		hear();
		sc_ep_poll(target_ep());
	}
	hear();
	expect_landed(0);
	for (size_t i = 0; i < PUTS; i++)
		assert_int_equal(heard[i], 1);
	rma_close();
}

static void let_go_on(void)
{
	char line[CHILD_LINE];

	assert_int_equal(send(child.down, "", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(read(child.up, line, sizeof(line)), sizeof(line));
}

/* The initiator gives the target up, and lives or dies: nobody does the puts that have failed there. */
static void test_leaves(void **state)
{
	struct plan plan = { .withdrawn = PUTS, .copied = 2, .leaves = true };

	(void)state;
	for (int dies = 0; dies < 2; dies++) {
		begin(&plan);
		target_polls();
		let_go_on();
		if (dies)
			child_kill(&child);
		wait_departed();
		assert_true(is_untouched(0, 0));
		if (!dies)
			child_kill(&child);
		rma_close();
	}
}

/* Nothing proves that the initiator has gone: it may still do them. */
static void test_vanished(void **state)
{
	struct plan plan = { .withdrawn = PUTS };
	struct sc_peer *peer;

	(void)state;
	peer = begin(&plan);
	target_polls();
	peer->vanished = true;
	assert_true(sc_taker_inherit(peer));
	peer->vanished = false;
	assert_true(is_untouched(0, 0));
	child_kill(&child);
	wait_departed();
	expect_landed(0);
	rma_close();
}

/* The initiator's segment, which has its buffers, is gone: the puts of which the ring has the bytes are done. */
static void test_without_buffers(void **state)
{
	struct plan plan = { .withdrawn = PUTS };
	struct sc_peer *peer;
	struct sc_seg *seg;

	(void)state;
	peer = begin(&plan);
	target_polls();
	child_kill(&child);
	seg = peer->seg;
	peer->seg = NULL;
	assert_true(sc_taker_inherit(peer));
	peer->seg = seg;
	wait_departed();
	for (size_t i = 0; i < PUTS; i++)
		if (sizes[i] <= SC_ROUTE_RECORD)
			assert_memory_equal(space + i * APART, from + i * APART, sizes[i]);
		else
			assert_true(is_filled(i, 0xa5));
	rma_close();
}

/* The owner closes the memory first: nothing is written after that. */
static void test_closed(void **state)
{
	struct plan plan = { .withdrawn = PUTS };

	(void)state;
	begin(&plan);
	target_polls();
	assert_int_equal(sc_reg_close(reg), 0);
	child_kill(&child);
	wait_departed();
	assert_true(is_untouched(0, 0));
	reg = reg_open(tab[1], space, SPACE, SC_REG_READ | SC_REG_WRITE);
	rma_close();
}

/* An initiator gone mad withdraws a put in a buffer of its own, which it may take away. */
static void test_in_overflow(void **state)
{
	struct plan plan = { .withdrawn = PUTS };
	struct sc_peer *peer;

	(void)state;
	peer = begin(&plan);
	peer->rx.left = peer->rx.at;
	target_polls();
	assert_int_equal(target_ep()->counters.quarantines, 1);
	assert_true(is_untouched(0, 0));
	child_kill(&child);
	rma_close();
}

#if defined(SC_FAULT_INJECTION)

static bool no_memory;

static int fail_passed(const char *point)
{
	return no_memory && !strcmp(point, "taker.passed") ? ENOMEM : 0;
}

/* Without memory the record stays in the ring for a later poll. */
static void test_without_memory(void **state)
{
	struct plan plan = { .withdrawn = PUTS };
	struct sc_peer *peer;

	(void)state;
	peer = begin(&plan);
	sc_fault_hook = fail_passed;
	no_memory = true;
	target_polls();
	no_memory = false;
	assert_int_equal(peer->taker.seen, 0);
	target_polls();
	assert_int_equal(peer->taker.seen, PUTS);
	child_kill(&child);
	wait_departed();
	expect_landed(0);
	rma_close();
}

/* Stops at each point, first and later; the numbers of the puts are far from that of any withdrawal before. */
static void follow_to(const char *const *points, struct plan plan)
{
	for (; *points; points++)
		for (plan.nth = 1; plan.nth <= (strstr(*points, "withdrawn") ? 1 : (int)PUTS);
		     plan.nth += 3)
			for (int passes = 0; passes < 2; passes++) {
				plan.point = *points;
				plan.start = passes ? 0 : (uint32_t)INT32_MAX + 40;
				follow(plan, passes);
			}
}

static const char *const points_of_thread[] = { "rescue.withdrawn",    "rescue.hazard", "rescue.copied",
						"rescue.hazard_clear", "rescue.told",	NULL };
static const char *const points_of_endpoint[] = { "delegate.withdrawn", "direct.copied",
						  "direct.hazard_clear", "rescue.told", NULL };
static const char *const points_of_note[] = { "ring.committed", NULL };

static void test_thread_withdraws(void **state)
{
	(void)state;
	follow_to(points_of_thread, (struct plan){ .data = false });
}

static void test_endpoint_withdraws(void **state)
{
	(void)state;
	follow_to(points_of_endpoint, (struct plan){ .polls = true });
	follow_to(points_of_endpoint, (struct plan){ .polls = true, .data = true });
	follow_to(points_of_note, (struct plan){ .polls = true, .data = true });
}

/*
 * A withdrawn put that only the target can do becomes a request, and the initiator is killed on the way: the target does it
 * once, or not at all if the initiator has told that it is done and has not written the request.
 */
static void test_becomes_a_request(void **state)
{
	static const char *const points[] = { "delegate.withdrawn", "rescue.told", "ring.committed" };

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (int nth = 1; nth <= (i ? 7 : 1); nth += 3)
			for (int passes = 0; passes < 2; passes++) {
				struct plan plan = { .data = true,
						     .polls = true,
						     .asks = true,
						     .point = points[i],
						     .nth = nth };
				size_t lost = i == 1 ? (size_t)nth - 1 : PUTS;

				begin(&plan);
				if (passes)
					target_polls();
				child_kill(&child);
				wait_departed();
				hear();
				for (size_t put = 0; put < PUTS; put++) {
					assert_int_equal(heard[put], put != lost);
					if (put != lost)
						assert_memory_equal(space + put * APART,
								    from + put * APART, sizes[put]);
				}
				assert_int_equal(target_ep()->counters.quarantines, 0);
				rma_close();
			}
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_withdrawn),
		cmocka_unit_test(test_returned),
		cmocka_unit_test(test_with_data),
		cmocka_unit_test(test_crowded),
		cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_vanished),
		cmocka_unit_test(test_without_buffers),
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_in_overflow),
#if defined(SC_FAULT_INJECTION)
		cmocka_unit_test(test_without_memory),
		cmocka_unit_test(test_thread_withdraws),
		cmocka_unit_test(test_endpoint_withdraws),
		cmocka_unit_test(test_becomes_a_request),
#endif
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
