/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_turn: completions come in the order of the turns, not in the order in which operations end; each peer has its
 * own order, and no turn is left behind.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/comp_ring.h"
#include "base/slab.h"
#include "link/turn.h"

#define TURNS 8
#define TURNS_MOST 65536 /* TURNS_MAX of turn.c */

/* The parts of an endpoint and its peers that turn.c looks at. */
struct fake {
	struct sc_ep ep;
	struct sc_comp_ring cq;
	struct sc_peer peers[2];
	char contexts[TURNS];
};

static int setup(void **state)
{
	struct fake *fake = calloc(1, sizeof(*fake));

	assert_non_null(fake);
	assert_int_equal(sc_comp_ring_init(&fake->cq, TURNS), 0);
	fake->cq.limit = TURNS;
	fake->ep.tx_cq = &fake->cq;
	fake->ep.order = SC_ORDER_COMPLETE;
	sc_slab_init(&fake->ep.turns, sizeof(struct sc_turn));
	for (int i = 0; i < 2; i++) {
		fake->peers[i].ep = &fake->ep;
		sc_list_init(&fake->peers[i].order.turns);
	}
	*state = fake;
	return 0;
}

static int teardown(void **state)
{
	struct fake *fake = *state;

	assert_int_equal(sc_slab_used(&fake->ep.turns), 0);
	sc_slab_fini(&fake->ep.turns);
	sc_comp_ring_fini(&fake->cq);
	free(fake);
	return 0;
}

/* An operation is posted, and has its turn from now on. */
static struct sc_turn *begin(struct sc_peer *peer)
{
	struct sc_turn *turn;

	assert_int_equal(sc_turn_take(peer), 0);
	assert_non_null(peer->order.turn);
	turn = sc_turn_pass(peer);
	assert_null(peer->order.turn);
	return turn;
}

static void end(struct fake *fake, struct sc_peer *peer, struct sc_turn *turn, int number, int err)
{
	const struct sc_comp comp = { .context = &fake->contexts[number], .len = (size_t)number, .err = err };

	sc_turn_end(peer, turn, &comp);
}

/* The next completion is of that operation. */
static void expect(struct fake *fake, int number, int err)
{
	const struct sc_comp *comp = sc_comp_ring_peek(&fake->cq);

	assert_non_null(comp);
	assert_ptr_equal(comp->context, &fake->contexts[number]);
	assert_int_equal(comp->len, number);
	assert_int_equal(comp->err, err);
	sc_comp_ring_release(&fake->cq);
}

static void expect_nothing(struct fake *fake)
{
	assert_null(sc_comp_ring_peek(&fake->cq));
}

/* All orders in which four can end. */
static void test_every_order(void **state)
{
	struct fake *fake = *state;
	struct sc_peer *peer = &fake->peers[0];

	for (int order = 0; order < 24; order++) {
		int left[4] = { 0, 1, 2, 3 }, code = order;
		bool ended[4] = { false };
		struct sc_turn *turns[4];
		int reported = 0;

		for (int i = 0; i < 4; i++)
			turns[i] = begin(peer);
		for (int count = 4; count; count--) {
			int at = code % count, number = left[at];

			code /= count;
			memmove(&left[at], &left[at + 1], (size_t)(count - at - 1) * sizeof(left[0]));
			end(fake, peer, turns[number], number, number == 2 ? ECONNRESET : 0);
			ended[number] = true;
			for (; reported < 4 && ended[reported]; reported++)
				expect(fake, reported, reported == 2 ? ECONNRESET : 0);
			expect_nothing(fake);
			assert_int_equal(sc_slab_used(&fake->ep.turns), 4 - reported);
		}
		assert_int_equal(reported, 4);
		assert_true(sc_list_empty(&peer->order.turns));
	}
}

/* One that reports nothing is waited for like any other, and holds up nobody once it has ended. */
static void test_silent(void **state)
{
	struct fake *fake = *state;
	struct sc_peer *peer = &fake->peers[0];
	struct sc_turn *turns[4];

	for (int i = 0; i < 4; i++)
		turns[i] = begin(peer);
	end(fake, peer, turns[1], 1, 0);
	expect_nothing(fake);
	sc_turn_end(peer, turns[0], NULL);
	expect(fake, 1, 0);
	end(fake, peer, turns[3], 3, 0);
	expect_nothing(fake);
	sc_turn_end(peer, turns[2], NULL);
	expect(fake, 3, 0);
	expect_nothing(fake);
}

/* A completion that waits for its turn is a copy, taken when the operation ends. */
static void test_copied(void **state)
{
	struct fake *fake = *state;
	struct sc_peer *peer = &fake->peers[0];
	struct sc_turn *first = begin(peer), *second = begin(peer);
	struct sc_comp comp = { .context = &fake->contexts[1], .len = 1 };

	sc_turn_end(peer, second, &comp);
	memset(&comp, 0xee, sizeof(comp));
	end(fake, peer, first, 0, 0);
	expect(fake, 0, 0);
	expect(fake, 1, 0);
}

/* A post that was refused gives its turn back: those before it do not wait for it, nor does the next. */
static void test_dropped(void **state)
{
	struct fake *fake = *state;
	struct sc_peer *peer = &fake->peers[0];
	struct sc_turn *first = begin(peer), *second;

	assert_int_equal(sc_turn_take(peer), 0);
	sc_turn_drop(peer);
	assert_null(peer->order.turn);
	assert_int_equal(sc_slab_used(&fake->ep.turns), 1);
	sc_turn_drop(peer); /* there is none: nothing happens */
	assert_int_equal(sc_slab_used(&fake->ep.turns), 1);
	second = begin(peer);
	end(fake, peer, second, 1, 0);
	expect_nothing(fake);
	end(fake, peer, first, 0, 0);
	expect(fake, 0, 0);
	expect(fake, 1, 0);
	assert_int_equal(sc_turn_take(peer), 0);
	sc_turn_drop(peer);
	assert_true(sc_list_empty(&peer->order.turns));
}

/* Peers do not wait for each other. */
static void test_peers_apart(void **state)
{
	struct fake *fake = *state;
	struct sc_turn *first = begin(&fake->peers[0]), *other = begin(&fake->peers[1]);
	struct sc_turn *second = begin(&fake->peers[0]);

	end(fake, &fake->peers[0], second, 2, 0);
	expect_nothing(fake);
	end(fake, &fake->peers[1], other, 1, 0);
	expect(fake, 1, 0);
	expect_nothing(fake);
	end(fake, &fake->peers[0], first, 0, 0);
	expect(fake, 0, 0);
	expect(fake, 2, 0);
}

/* An endpoint that has not asked for the order, or has no completion queue, takes no turn. */
static void test_not_asked(void **state)
{
	struct fake *fake = *state;
	struct sc_peer *peer = &fake->peers[0];

	fake->ep.order = SC_ORDER_MEMORY | SC_ORDER_SEND | SC_ORDER_AFTER_SEND | SC_ORDER_RECEIVE;
	assert_int_equal(sc_turn_take(peer), 0);
	assert_null(sc_turn_pass(peer));
	fake->ep.order = SC_ORDER_COMPLETE;
	fake->ep.tx_cq = NULL;
	assert_int_equal(sc_turn_take(peer), 0);
	assert_null(sc_turn_pass(peer));
	assert_int_equal(sc_slab_used(&fake->ep.turns), 0);
}

/* An endpoint may have so many turns: then an operation has to be tried again until one of them has been reported. */
static void test_limit(void **state)
{
	static struct sc_turn *turns[TURNS_MOST];
	struct fake *fake = *state;

	for (int i = 0; i < TURNS_MOST; i++)
		turns[i] = begin(&fake->peers[i & 1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sc_turn_take(&fake->peers[i]), -EAGAIN);
		assert_null(fake->peers[i].order.turn);
		sc_turn_drop(&fake->peers[i]); /* as a refused operation does */
	}
	sc_turn_end(&fake->peers[1], turns[3], NULL); /* ended is not enough, */
	assert_int_equal(sc_turn_take(&fake->peers[0]), -EAGAIN);
	sc_turn_end(&fake->peers[1], turns[1], NULL); /* but now there are two */
	assert_int_equal(sc_slab_used(&fake->ep.turns), TURNS_MOST - 2);
	assert_int_equal(sc_turn_take(&fake->peers[0]), 0);
	sc_turn_drop(&fake->peers[0]);
	for (int i = TURNS_MOST - 1; i >= 0; i--)
		if (i != 1 && i != 3)
			sc_turn_end(&fake->peers[i & 1], turns[i], NULL);
	expect_nothing(fake);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_every_order), TEST(test_silent),    TEST(test_copied), TEST(test_dropped),
		TEST(test_peers_apart), TEST(test_not_asked), TEST(test_limit),
	};

	return cmocka_run_group_tests_name("turn", tests, NULL, NULL);
}
