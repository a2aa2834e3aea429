/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_match: which receive and which message the matcher finds, compared with a matcher that scans an array; at how
 * many entries it looks; and that it goes on without memory.
 *
 * Includes match.c to count its probes and to fail its allocations: not to be linked with another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static long allocations_left = -1; /* -1: any number */

static unsigned allocations_fail; /* of a hundred, at random */
static unsigned long refused;

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 20) % n;
}

static bool may_allocate(void)
{
	if (allocations_fail)
		return random_below(100) >= allocations_fail;
	if (allocations_left > 0)
		allocations_left--;
	else if (!allocations_left)
		return false;
	return true;
}

static void *limited_calloc(size_t count, size_t size)
{
	return may_allocate() ? calloc(count, size) : NULL;
}

static void *limited_realloc(void *old, size_t size)
{
	return may_allocate() ? realloc(old, size) : NULL;
}

#define SC_MATCH_COUNT
#define calloc limited_calloc
#define realloc limited_realloc
#include "base/match.c"
#undef calloc
#undef realloc

static char peers[64];
#define A ((const void *)&peers[0])
#define B ((const void *)&peers[1])

static struct sc_match match;

static int setup(void **state)
{
	(void)state;
	allocations_left = -1;
	sc_match_init(&match);
	return 0;
}

/* Receives that nothing fits, so many that those of the test are hashed. */
static struct sc_match_recv crowd[SC_MATCH_SCANNED + 1];

/* Of more than SC_MATCH_SCANNED posted receives none is for this message: they are hashed. */
static void hash_by_search(void)
{
	assert_null(sc_match_find_recv(&match, &peers[62], UINT64_MAX));
	assert_true(match.hashed);
}

static void crowd_post(void)
{
	for (size_t i = 0; i <= SC_MATCH_SCANNED; i++) {
		crowd[i] = (struct sc_match_recv){ .source = &peers[63], .tag = i };
		assert_int_equal(sc_match_post(&match, &crowd[i]), 0);
	}
	assert_false(match.hashed);
	hash_by_search();
}

static int setup_crowded(void **state)
{
	int ret = setup(state);

	crowd_post();
	return ret;
}

static int teardown(void **state)
{
	(void)state;
	allocations_left = -1;
	allocations_fail = 0;
	sc_match_fini(&match);
	return 0;
}

static void post(struct sc_match_recv *recv, const void *source, uint64_t tag, uint64_t ignore)
{
	memset(recv, 0xa5, sizeof(*recv));
	recv->source = source;
	recv->tag = tag;
	recv->tag_mask = ~ignore;
	assert_int_equal(sc_match_post(&match, recv), 0);
}

static void keep(struct sc_match_msg *msg, const void *source, uint64_t tag)
{
	memset(msg, 0xa5, sizeof(*msg));
	msg->source = source;
	msg->tag = tag;
	sc_match_keep(&match, msg);
}

static void take_recv(const void *source, uint64_t tag, struct sc_match_recv *expected)
{
	assert_ptr_equal(sc_match_find_recv(&match, source, tag), expected);
	if (expected)
		sc_match_unpost(&match, expected);
}

static void take_msg(const void *source, uint64_t tag, uint64_t ignore, struct sc_match_msg *expected)
{
	assert_ptr_equal(sc_match_find_msg(&match, source, tag, ignore), expected);
	if (expected)
		sc_match_drop(&match, expected);
}

/* ---- invariants ------------------------------------------------------------------------------ */

static size_t check_table(const struct sc_match_table *table)
{
	size_t entries = 0, keys = 0;

	for (size_t i = 0; table->buckets && i <= table->mask; i++) {
		struct sc_match_node *const *link = &table->buckets[i];

		for (struct sc_match_node *node = *link; node; link = &node->next, node = node->next) {
			struct sc_match_node *other = node;

			assert_ptr_equal(node->link, link);
			assert_int_equal(hash(node->source, node->tag) & table->mask, i);
			for (other = node->next; other; other = other->next)
				assert_false(other->tag == node->tag && other->source == node->source);
			other = node;
			do {
				assert_ptr_equal(other->newer->older, other);
				assert_true(other == node || !other->link);
				assert_true(other->tag == node->tag && other->source == node->source);
				entries++;
				other = other->newer;
			} while (other != node);
			keys++;
		}
	}
	assert_int_equal(table->keys, keys);
	return entries;
}

static void check_match(void)
{
	size_t posted = 0, waiting = 0, in_classes = 0;
	uint64_t seq = 0;

	sc_list_for (pos, &match.posted) {
		struct sc_match_recv *recv = sc_list_entry(pos, struct sc_match_recv, all);

		assert_true(!posted++ || !match.hashed || recv->seq > seq);
		seq = recv->seq;
	}
	assert_int_equal(sc_match_posted(&match), posted);
	sc_list_for (pos, &match.waiting) {
		struct sc_match_msg *msg = sc_list_entry(pos, struct sc_match_msg, all);

		assert_true(!waiting++ || msg->seq > seq);
		seq = msg->seq;
	}
	assert_int_equal(match.waiting_count, waiting);
	assert_true(match.class_count - match.populated <= KEPT_CLASSES);
	for (size_t i = 0; i < match.class_count; i++) {
		assert_int_equal(match.classes[i]->position, i);
		assert_int_equal(match.classes[i]->count != 0, i < match.populated);
		assert_int_equal(check_table(&match.classes[i]->table), match.classes[i]->count);
		in_classes += match.classes[i]->count;
	}
	assert_int_equal(in_classes, match.hashed ? posted : 0);
	assert_true(posted || !match.hashed);
	for (unsigned i = 0; i < SC_MATCH_INDEXES; i++)
		assert_int_equal(check_table(&match.indexes[i].table), match.live & 1u << i ? waiting : 0);
}

/* ---- directed: posted receives --------------------------------------------------------------- */

static void test_nothing(void **state)
{
	(void)state;
	assert_null(sc_match_find_recv(&match, A, 0));
	assert_null(sc_match_find_msg(&match, NULL, 0, UINT64_MAX));
	check_match();
}

static void test_recv_exact(void **state)
{
	struct sc_match_recv recv;

	(void)state;
	post(&recv, A, 5, 0);
	take_recv(A, 6, NULL);
	take_recv(B, 5, NULL);
	take_recv(A, 5 | 1ull << 63, NULL);
	assert_ptr_equal(sc_match_find_recv(&match, A, 5), &recv); /* still posted */
	take_recv(A, 5, &recv);
	take_recv(A, 5, NULL);
	check_match();
}

static void test_recv_same_key_in_order(void **state)
{
	struct sc_match_recv recv[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		post(&recv[i], A, 5, 0);
	sc_match_unpost(&match, &recv[1]);
	take_recv(A, 5, &recv[0]);
	post(&recv[1], A, 5, 0);
	take_recv(A, 5, &recv[2]);
	take_recv(A, 5, &recv[3]);
	take_recv(A, 5, &recv[1]);
	check_match();
}

static void test_recv_oldest_of_all_classes(void **state)
{
	struct sc_match_recv exact, any, masked, all, exact2;

	(void)state;
	post(&masked, A, 0xff05, 0xff00);
	post(&any, NULL, 5, 0);
	post(&exact, A, 5, 0);
	post(&all, NULL, 0, UINT64_MAX);
	post(&exact2, A, 5, 0);
	check_match();
	take_recv(A, 5, &masked);
	take_recv(A, 5, &any);
	take_recv(A, 5, &exact);
	take_recv(B, 5, &all);
	take_recv(B, 5, NULL);
	take_recv(A, 5, &exact2);
	check_match();
}

/* The tag bits of a receive that it ignores itself do not count. */
static void test_recv_ignored_bits(void **state)
{
	struct sc_match_recv recv;

	(void)state;
	post(&recv, A, 0x1234, 0xff00);
	take_recv(A, 0x1235, NULL);
	take_recv(A, 0x10034, NULL);
	take_recv(B, 0x0034, NULL);
	take_recv(A, 0x5634, &recv);
}

/* One that stays posted, as a multi-receive does, keeps its place. */
static void test_recv_keeps_place(void **state)
{
	struct sc_match_recv first, second;

	(void)state;
	post(&first, NULL, 0, UINT64_MAX);
	post(&second, A, 1, 0);
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(sc_match_find_recv(&match, A, 1), &first);
	take_recv(A, 1, &first);
	take_recv(A, 1, &second);
}

static void test_recv_classes_are_bounded(void **state)
{
	static struct sc_match_recv recv[200];
	size_t n = sizeof(recv) / sizeof(recv[0]);

	(void)state;
	for (size_t i = 0; i < n; i++)
		post(&recv[i], i % 2 ? NULL : A, i << 32, i);
	hash_by_search();
	check_match();
	assert_int_equal(match.populated, n);
	for (size_t i = 0; i < n; i++)
		take_recv(A, i << 32, &recv[i]);
	check_match();
	assert_int_equal(match.class_count, KEPT_CLASSES);
	/* One class after the other beside that of the crowd: those that are empty are used again. */
	crowd_post();
	allocations_left = 1000;
	for (size_t i = 0; i < n; i++) {
		post(&recv[i], A, 0, ~(uint64_t)i);
		take_recv(A, 0, &recv[i]);
		assert_true(match.class_count <= KEPT_CLASSES + 2);
	}
	assert_int_equal(allocations_left, 1000 - 2); /* instead of the one that the crowd has */
	check_match();
}

/* ---- directed: waiting messages -------------------------------------------------------------- */

/* The rules, with few that wait (scanned) and with many in front (indexed). */
static void check_msg_rules(size_t others)
{
	struct sc_match_msg *front = calloc(others + 1, sizeof(*front)), msg[6];

	for (size_t i = 0; i < others; i++)
		keep(&front[i], &peers[2], 1ull << 32 | i);
	keep(&msg[0], A, 5);
	keep(&msg[1], B, 5);
	keep(&msg[2], A, 0x105);
	keep(&msg[3], B, 5);
	keep(&msg[4], A, 5);
	keep(&msg[5], B, 0x105);
	take_msg(A, 6, 0, NULL);
	take_msg(&peers[3], 5, 0, NULL);
	take_msg(&peers[3], 0, UINT64_MAX, NULL);
	assert_ptr_equal(sc_match_find_msg(&match, NULL, 5, 0), &msg[0]); /* still kept */
	assert_ptr_equal(sc_match_find_msg(&match, NULL, 0, UINT64_MAX), others ? &front[0] : &msg[0]);
	check_match();
	take_msg(B, 5, 0, &msg[1]);
	take_msg(NULL, 0xf05, 0xf00, &msg[0]);
	take_msg(NULL, 5, 0, &msg[3]);
	take_msg(A, 5, 0xf00, &msg[2]);
	take_msg(B, 77, UINT64_MAX, &msg[5]);
	take_msg(NULL, 5, 0, &msg[4]);
	take_msg(NULL, 5, 0, NULL);
	check_match();
	for (size_t i = 0; i < others; i++)
		take_msg(NULL, 0, UINT64_MAX, &front[i]);
	assert_int_equal(match.live, 0);
	check_match();
	free(front);
}

static void test_msg_few(void **state)
{
	(void)state;
	check_msg_rules(0);
	assert_null(match.indexes[0].table.buckets);
}

static void test_msg_many(void **state)
{
	(void)state;
	check_msg_rules(FEW + 1);
	check_msg_rules(100); /* again, with tables that have been used */
}

static void test_msg_index_lives_while_some_wait(void **state)
{
	struct sc_match_msg msg[FEW + 2];

	(void)state;
	for (size_t i = 0; i < FEW + 2; i++)
		keep(&msg[i], A, i);
	take_msg(A, 3, 0, &msg[3]);
	assert_int_equal(match.live, 1);
	for (size_t i = 0; i < FEW + 2; i++)
		if (i != 3)
			take_msg(A, i, 0, &msg[i]);
	assert_int_equal(match.live, 0);
	keep(&msg[0], A, 0);
	take_msg(A, 0, 0, &msg[0]);
	assert_int_equal(match.live, 0);
}

/* More classes of searches than indexes: right all the same, and an unused index is replaced. */
static void test_msg_more_classes_than_indexes(void **state)
{
	static struct sc_match_msg msg[100];

	(void)state;
	for (size_t i = 0; i < 100; i++)
		keep(&msg[i], A, i << 8);
	for (int round = 0; round < 3; round++)
		for (unsigned k = 0; k < SC_MATCH_INDEXES + 2; k++)
			assert_ptr_equal(sc_match_find_msg(&match, A, 50 << 8, 1u << k), &msg[50]);
	assert_int_equal(match.live, (1u << SC_MATCH_INDEXES) - 1);
	check_match();
	assert_true(table_serves(&match.indexes[0].table, UINTPTR_MAX, ~(uint64_t)1));
	assert_ptr_equal(sc_match_find_msg(&match, A, 50 << 8, 1), &msg[50]);
	for (int i = 0; i < STALE + 2; i++)
		assert_ptr_equal(sc_match_find_msg(&match, A, 99 << 8, 0xf), &msg[99]);
	assert_true(table_serves(&match.indexes[0].table, UINTPTR_MAX, ~(uint64_t)1));
	assert_true(table_serves(&match.indexes[1].table, UINTPTR_MAX, ~(uint64_t)0xf));
	check_match();
	for (size_t i = 0; i < 100; i++)
		take_msg(A, i << 8, 0xf, &msg[i]);
}

/* ---- random ---------------------------------------------------------------------------------- */

enum { RANDOM_MAX = 300 };

/* The reference: entries in arrays, in order; fits() is the rule of match.h. */
static struct sc_match_recv *ref_recvs[RANDOM_MAX];
static struct sc_match_msg *ref_msgs[RANDOM_MAX];
static size_t ref_recv_count, ref_msg_count;

static bool fits(const void *source, uint64_t tag, uint64_t ignore, const struct sc_match_msg *msg)
{
	return (!source || source == msg->source) && (tag | ignore) == (msg->tag | ignore);
}

static size_t ref_find_recv(const struct sc_match_msg *msg)
{
	size_t i = 0;

	while (i < ref_recv_count &&
	       !fits(ref_recvs[i]->source, ref_recvs[i]->tag, ~ref_recvs[i]->tag_mask, msg))
		i++;
	return i;
}

static size_t ref_find_msg(const struct sc_match_recv *recv)
{
	size_t i = 0;

	while (i < ref_msg_count && !fits(recv->source, recv->tag, ~recv->tag_mask, ref_msgs[i]))
		i++;
	return i;
}

static void remove_recv(size_t i)
{
	sc_match_unpost(&match, ref_recvs[i]);
	free(ref_recvs[i]);
	memmove(&ref_recvs[i], &ref_recvs[i + 1], (--ref_recv_count - i) * sizeof(ref_recvs[0]));
}

static void remove_msg(size_t i)
{
	sc_match_drop(&match, ref_msgs[i]);
	free(ref_msgs[i]);
	memmove(&ref_msgs[i], &ref_msgs[i + 1], (--ref_msg_count - i) * sizeof(ref_msgs[0]));
}

static uint64_t random_tag(void)
{
	static const unsigned shifts[] = { 0, 8, 32, 61 };

	return random_below(4) << shifts[random_below(4)];
}

static uint64_t random_ignore(void)
{
	static const uint64_t ignores[] = { 0, 0, 0, UINT64_MAX, 1, 0x300, 3ull << 61, ~3ull, 3ull << 32 };

	return ignores[random_below(sizeof(ignores) / sizeof(ignores[0]))];
}

/* A message comes: it goes to a receive, or stays, or (probability `stray`) stays although one fits. */
static void random_message(unsigned stray)
{
	struct sc_match_msg *msg = calloc(1, sizeof(*msg));
	struct sc_match_recv *found;
	size_t i;

	msg->source = &peers[random_below(3)];
	msg->tag = random_tag();
	i = ref_find_recv(msg);
	found = sc_match_find_recv(&match, msg->source, msg->tag);
	assert_ptr_equal(found, i < ref_recv_count ? ref_recvs[i] : NULL);
	if (ref_msg_count < RANDOM_MAX && (!found || random_below(100) < stray)) {
		sc_match_keep(&match, msg);
		ref_msgs[ref_msg_count++] = msg;
		return;
	}
	if (found)
		remove_recv(i);
	free(msg);
}

/* A receive comes: the same the other way round. */
static void random_receive(unsigned stray)
{
	struct sc_match_recv *recv = calloc(1, sizeof(*recv));
	struct sc_match_msg *found;
	size_t i;

	recv->source = random_below(3) ? &peers[random_below(3)] : NULL;
	recv->tag = random_tag();
	recv->tag_mask = ~random_ignore();
	i = ref_find_msg(recv);
	found = sc_match_find_msg(&match, recv->source, recv->tag, ~recv->tag_mask);
	assert_ptr_equal(found, i < ref_msg_count ? ref_msgs[i] : NULL);
	if (ref_recv_count < RANDOM_MAX && (!found || random_below(100) < stray)) {
		int err = sc_match_post(&match, recv);

		if (!err) {
			ref_recvs[ref_recv_count++] = recv;
			return;
		}
		assert_int_equal(err, -ENOMEM);
		assert_true(allocations_fail);
		refused++;
		check_match();
		free(recv);
		return;
	}
	if (found)
		remove_msg(i);
	free(recv);
}

static void random_withdrawal(void)
{
	if (random_below(2)) {
		if (ref_recv_count)
			remove_recv(random_below(ref_recv_count));
	} else if (ref_msg_count) {
		remove_msg(random_below(ref_msg_count));
	}
}

/* Phases of different weights: few and many of each side, and both sides empty at times. */
static void run_random(uint64_t seed, size_t steps)
{
	unsigned stray = 0, messages = 50, withdrawals = 5;

	random_state = seed * 0x9e3779b97f4a7c15u + 1;
	for (size_t step = 0; step < steps; step++) {
		if (step % 1000 == 0) {
			stray = random_below(3) ? 0 : random_below(100);
			messages = 10 + random_below(80);
			withdrawals = random_below(5) ? random_below(20) : 70;
			check_match();
		}
		if (random_below(100) < withdrawals)
			random_withdrawal();
		else if (random_below(100) < messages)
			random_message(stray);
		else
			random_receive(stray);
	}
	while (ref_recv_count)
		remove_recv(random_below(ref_recv_count));
	while (ref_msg_count)
		remove_msg(random_below(ref_msg_count));
	check_match();
}

static void test_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++)
		run_random(seed, 25000);
}

/* The same while most allocations fail: slower, never wrong; a receive that is refused leaves no trace. */
static void test_random_with_failures(void **state)
{
	(void)state;
	allocations_fail = 75;
	for (uint64_t seed = 101; seed <= 110; seed++)
		run_random(seed, 10000);
	assert_true(refused > 0);
}

/* ---- no memory ------------------------------------------------------------------------------- */

/* Where there is no memory for tables all are scanned; of those that are hashed each class needs some. */
static void test_post_no_memory(void **state)
{
	static struct sc_match_recv recv[SC_MATCH_SCANNED + 2],
		masked = { .source = A, .tag = 1, .tag_mask = ~(uint64_t)6 };
	size_t last = SC_MATCH_SCANNED + 1;

	(void)state;
	for (long left = 0; left <= 5; left++) {
		for (size_t i = 0; i <= last; i++)
			recv[i] = (struct sc_match_recv){ .source = i == last - 1 ? NULL : A,
							  .tag = i,
							  .tag_mask = UINT64_MAX };
		allocations_left = 0; /* posting takes none */
		for (size_t i = 0; i <= last; i++)
			assert_int_equal(sc_match_post(&match, &recv[i]), 0);
		allocations_left = left; /* three for the first class, two for the other */
		assert_ptr_equal(sc_match_find_recv(&match, A, last), &recv[last]);
		assert_int_equal(match.hashed, left == 5);
		check_match();
		assert_null(sc_match_find_recv(&match, A, last + 1));
		if (left == 5)
			break;
		for (size_t i = 0; i <= last; i++)
			take_recv(A, i, &recv[i]);
		sc_match_fini(&match);
		sc_match_init(&match);
	}
	assert_int_equal(allocations_left, 0);
	assert_int_equal(sc_match_post(&match, &masked), -ENOMEM);
	check_match();
	take_recv(A, last - 1, &recv[last - 1]);
	/* An empty class serves where no new one can be had. */
	assert_int_equal(sc_match_post(&match, &masked), 0);
	check_match();
	for (size_t i = 0; i <= last; i++)
		if (i != last - 1)
			take_recv(A, i, &recv[i]);
	take_recv(A, 3, &masked);
}

/* Those that messages come for in the order of posting are never hashed, however many there are. */
static void test_in_order(void **state)
{
	static struct sc_match_recv recv[1000];

	(void)state;
	allocations_left = 0;
	for (size_t i = 0; i < 1000; i++)
		post(&recv[i], i % 3 ? A : NULL, i, i % 7 ? 0 : UINT64_MAX << 32);
	allocations_left = -1;
	for (size_t i = 0; i < 1000; i += 2) { /* two by two in the other order */
		take_recv(A, i + 1, &recv[i + 1]);
		take_recv(A, i, &recv[i]);
	}
	assert_int_equal(match.class_count, 0);
	check_match();
}

static void test_growth_no_memory(void **state)
{
	static struct sc_match_recv recv[1000];

	(void)state;
	for (size_t i = 0; i <= SC_MATCH_SCANNED; i++)
		post(&recv[i], A, i, 0);
	hash_by_search();
	allocations_left = 0;
	for (size_t i = SC_MATCH_SCANNED + 1; i < 1000; i++)
		post(&recv[i], A, i, 0);
	assert_int_equal(match.classes[0]->table.mask, FIRST_BUCKETS - 1);
	check_match();
	for (size_t i = 0; i < 500; i++)
		take_recv(A, i, &recv[i]);
	allocations_left = -1;
	for (size_t i = 0; i < 500; i++)
		post(&recv[i], A, i, 0);
	assert_true(match.hashed);
	assert_true(match.classes[0]->table.mask >= 31);
	check_match();
	for (size_t i = 0; i < 1000; i++)
		take_recv(A, i, &recv[i]);
}

static void test_index_no_memory(void **state)
{
	static struct sc_match_msg msg[300];

	(void)state;
	allocations_left = 0;
	for (size_t i = 0; i < 100; i++)
		keep(&msg[i], A, i);
	take_msg(A, 99, 0, &msg[99]);
	assert_int_equal(match.live, 0);
	allocations_left = 1;
	take_msg(A, 98, 0, &msg[98]);
	assert_int_equal(match.live, 1);
	for (size_t i = 98; i < 300; i++) /* the table cannot grow */
		keep(&msg[i], A, i);
	assert_int_equal(match.indexes[0].table.mask, 127);
	check_match();
	for (size_t i = 0; i < 300; i++)
		take_msg(A, i, 0, &msg[i]);
	/* Too small for a new index, but there: used. */
	for (size_t i = 0; i < 300; i++)
		keep(&msg[i], A, i);
	take_msg(A, 299, 0, &msg[299]);
	assert_int_equal(match.live, 1);
	check_match();
	for (size_t i = 0; i < 299; i++)
		take_msg(NULL, 0, UINT64_MAX, &msg[i]);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/*
 * Entries looked at for each entry that is posted, found and unposted (or kept, found and dropped),
 * building and growing of tables included. A scan of 10,000 entries would look at 5,000.
 */
enum { MANY = 10000, PROBES_MAX = 8 };

static struct sc_match_recv many_recvs[MANY];
static struct sc_match_msg many_msgs[MANY];

struct pattern {
	const char *name;
	bool any; /* receives from any source */
	uint64_t ignore;
	unsigned sources;
	uint64_t tag_step; /* 0: one tag for all */
	bool reverse;
};

static const struct pattern patterns[] = {
	{ "in order", false, 0, 1, 1, false },
	{ "reverse", false, 0, 1, 1, true },
	{ "high bits in order", false, 0, 1, 1ull << 50, false },
	{ "high bits reverse", false, 0, 1, 1ull << 50, true },
	{ "middle bits reverse", false, 0, 1, 1ull << 20, true },
	{ "many sources reverse", false, 0, 64, 1, true },
	{ "any source in order", true, 0, 64, 1, false },
	{ "any source reverse", true, 0, 64, 1, true },
	{ "masked in order", false, 0xffull << 56, 1, 1, false },
	{ "masked reverse", false, 0xffull << 56, 64, 1, true },
	{ "low bits masked reverse", false, 0xffff, 64, 1ull << 16, true },
	{ "any source masked reverse", true, 0xffull << 56, 64, 1, true },
	{ "one key", false, 0, 1, 0, false },
	{ "one tag, any source", true, 0, 64, 0, false },
	{ "any source, any tag", true, UINT64_MAX, 64, 1, false },
};

/* Where sources are: the first one, and from one to the next, in bytes. Nobody looks there. */
static struct place {
	uintptr_t first;
	size_t step;
} place;

static const void *pattern_source(const struct pattern *pattern, size_t i)
{
	return (const void *)(place.first + i % pattern->sources * place.step);
}

/* The bits that the receive ignores differ from message to message. */
static uint64_t pattern_tag(const struct pattern *pattern, size_t i)
{
	uint64_t noise = i * 0x9e3779b97f4a7c15u & pattern->ignore;

	return (i * pattern->tag_step & ~pattern->ignore) | noise;
}

static void check_probes(const struct pattern *pattern, const char *what, unsigned long probes)
{
	if (probes > (unsigned long)PROBES_MAX * MANY)
		fail_msg("%s, %s: %lu probes for %d entries", pattern->name, what, probes, MANY);
}

static void cost_posted(const struct pattern *pattern)
{
	unsigned long before = sc_match_probes;

	for (size_t i = 0; i < MANY; i++)
		post(&many_recvs[i], pattern->any ? NULL : pattern_source(pattern, i),
		     i * pattern->tag_step & ~pattern->ignore, pattern->ignore);
	for (size_t k = 0; k < MANY; k++) {
		size_t i = pattern->reverse ? MANY - 1 - k : k;

		take_recv(pattern_source(pattern, i), pattern_tag(pattern, i), &many_recvs[i]);
	}
	check_probes(pattern, "posted", sc_match_probes - before);
}

static void cost_waiting(const struct pattern *pattern)
{
	unsigned long before = sc_match_probes;

	for (size_t i = 0; i < MANY; i++)
		keep(&many_msgs[i], pattern_source(pattern, i), pattern_tag(pattern, i));
	for (size_t k = 0; k < MANY; k++) {
		size_t i = pattern->reverse ? MANY - 1 - k : k;

		take_msg(pattern->any ? NULL : pattern_source(pattern, i), i * pattern->tag_step,
			 pattern->ignore, &many_msgs[i]);
	}
	check_probes(pattern, "waiting", sc_match_probes - before);
}

static void test_cost(void **state)
{
	(void)state;
	place = (struct place){ (uintptr_t)peers, sizeof(peers[0]) };
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		cost_posted(&patterns[i]);
		cost_waiting(&patterns[i]);
	}
}

/*
 * The cost does not depend on the bits in which tags differ, nor on the addresses of the sources: those of the heap and
 * of mapped memory as a kernel may choose them, the same in each run of this test.
 */
static void test_cost_of_places(void **state)
{
	static const size_t steps[] = { 1, 64, 192, 4096, 1 << 24 };
	enum { PLACES = 64, BITS = 50 };
	struct pattern pattern = { .name = "places" };

	(void)state;
	for (unsigned bit = 0; bit <= BITS; bit++) {
		for (size_t i = 0; i < PLACES; i++) {
			uintptr_t drawn = (bit * PLACES + i + 1) * 0x9e3779b97f4a7c15u >> 24;

			place.first = (i % 2 ? 0x7f0000000000u : 0x550000000000u) | (drawn & ~15ull);
			place.step = steps[(bit + i) % (sizeof(steps) / sizeof(steps[0]))];
			pattern.sources = i % 3 ? 1 : 64;
			pattern.tag_step = 1ull << bit;
			cost_posted(&pattern);
		}
	}
}

/* Many of one key do not hide another key, whatever bucket it is in. */
static void test_cost_beside_one_key(void **state)
{
	static struct sc_match_recv others[256];
	static struct sc_match_msg other_msgs[256];
	unsigned long before;

	(void)state;
	for (size_t i = 0; i < MANY; i++) {
		post(&many_recvs[i], A, 1ull << 40, 0);
		keep(&many_msgs[i], A, 1ull << 40);
	}
	hash_by_search();
	assert_int_equal(match.classes[0]->table.mask, FIRST_BUCKETS - 1);
	before = sc_match_probes;
	for (size_t i = 0; i < 256; i++) { /* some of them in its bucket */
		post(&others[i], A, i, 0);
		take_recv(A, i, &others[i]);
	}
	check_probes(&patterns[0], "beside one key", (sc_match_probes - before) * MANY / 256);
	take_msg(A, 1ull << 41, 0, NULL); /* builds the index */
	before = sc_match_probes;
	for (size_t i = 0; i < 256; i++) {
		keep(&other_msgs[i], A, i);
		take_msg(A, i, 0, &other_msgs[i]);
	}
	check_probes(&patterns[0], "waiting beside one key", (sc_match_probes - before) * MANY / 256);
	/* From the middle, the newest, the oldest. */
	before = sc_match_probes;
	sc_match_unpost(&match, &many_recvs[MANY / 2]);
	sc_match_unpost(&match, &many_recvs[MANY - 1]);
	sc_match_unpost(&match, &many_recvs[0]);
	take_recv(A, 1ull << 40, &many_recvs[1]);
	assert_true(sc_match_probes - before < 10);
}

/* Searches that find nothing among many cost no more. */
static void test_cost_of_nothing(void **state)
{
	unsigned long before;

	(void)state;
	for (size_t i = 0; i < MANY; i++) {
		post(&many_recvs[i], A, i, 0);
		keep(&many_msgs[i], A, i);
	}
	before = sc_match_probes;
	for (size_t i = 0; i < MANY; i++) {
		take_recv(B, i, NULL);
		take_recv(A, MANY + i, NULL);
		take_msg(B, i, 0, NULL);
		take_msg(NULL, MANY + i, 0, NULL);
		take_msg(B, 0, UINT64_MAX, NULL);
		take_msg(NULL, MANY * 2 + i * 2, 1, NULL);
	}
	/* Six searches each, four of which look at the oldest message first, and four indexes are built. */
	assert_true(sc_match_probes - before < 20ul * MANY);
}

/* Messages that are received in the order in which they have come need no index. */
static void test_cost_in_order(void **state)
{
	unsigned long before;

	(void)state;
	for (size_t i = 0; i < MANY; i++)
		keep(&many_msgs[i], A, i);
	before = sc_match_probes;
	for (size_t i = 0; i < MANY; i++)
		take_msg(i % 2 ? A : NULL, i, i % 3 ? 0 : 1ull << 40, &many_msgs[i]);
	assert_int_equal(sc_match_probes - before, MANY);
	assert_int_equal(match.live, 0);
}

/* The same where receives are hashed. */
#define CROWDED(test)                                                                                     \
	{                                                                                                 \
#test " crowded", test, setup_crowded, teardown, NULL                                     \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
		CROWDED(test_nothing),
		cmocka_unit_test_setup_teardown(test_recv_exact, setup, teardown),
		CROWDED(test_recv_exact),
		cmocka_unit_test_setup_teardown(test_recv_same_key_in_order, setup, teardown),
		CROWDED(test_recv_same_key_in_order),
		cmocka_unit_test_setup_teardown(test_recv_oldest_of_all_classes, setup, teardown),
		CROWDED(test_recv_oldest_of_all_classes),
		cmocka_unit_test_setup_teardown(test_recv_ignored_bits, setup, teardown),
		CROWDED(test_recv_ignored_bits),
		cmocka_unit_test_setup_teardown(test_recv_keeps_place, setup, teardown),
		CROWDED(test_recv_keeps_place),
		cmocka_unit_test_setup_teardown(test_recv_classes_are_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_msg_few, setup, teardown),
		cmocka_unit_test_setup_teardown(test_msg_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_msg_index_lives_while_some_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(test_msg_more_classes_than_indexes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random_with_failures, setup, teardown),
		cmocka_unit_test_setup_teardown(test_post_no_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_growth_no_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_index_no_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cost_of_places, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cost_beside_one_key, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cost_of_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cost_in_order, setup, teardown),
	};

	return cmocka_run_group_tests_name("match", tests, NULL, NULL);
}
