/* SPDX-License-Identifier: BSD-2-Clause */
/* test_tagged.c: fi_tagged(3), call by call; traffic.h has the tests that it shares with plain messages. */
#include "traffic.h"

TRAFFIC(true)

static char out[64], in[64];

/* send_tag & ~ignore == recv_tag & ~ignore: every bit of both words counts. */
static void every_bit(void)
{
	struct pair pair;
	struct done done;

	pair_open(&pair, NULL);
	for (int bit = 0; bit < 64; bit++) {
		uint64_t tag = 1ULL << bit;

		gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0, 0, (void *)1), 0);
		gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, tag, 0, (void *)2), 0);
		post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, tag));
		done = pair_done(&pair, &pair.b);
		must(done.entry.op_context == (void *)2);
		gives(done.entry.tag, tag);
		/* ignored on either side */
		gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, tag, tag, (void *)3), 0);
		post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, 0));
		must(pair_done(&pair, &pair.b).entry.op_context == (void *)1);
		post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, 0));
		done = pair_done(&pair, &pair.b);
		must(done.entry.op_context == (void *)3);
		gives(done.entry.tag, 0);
	}
	pair_close(&pair);
}

/* The oldest receive that fits, whatever its mask. */
static void posted_order(void)
{
	static const struct {
		uint64_t tag, ignore;
	} posted[] = { { 1, 0 }, { 0, UINT64_MAX }, { 2, 0 }, { 2, 1 }, { 1, 0 }, { 0, 3 } };
	static const struct {
		uint64_t tag;
		uintptr_t taken_by;
	} sent[] = { { 2, 1 }, { 3, 3 }, { 2, 2 }, { 1, 0 }, { 1, 4 }, { 1, 5 } };
	struct pair pair;

	pair_open(&pair, NULL);
	for (uintptr_t i = 0; i < 6; i++)
		gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, posted[i].tag, posted[i].ignore,
			       (void *)i),
		      0);
	for (int i = 0; i < 6; i++) {
		post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, sent[i].tag));
		must(pair_done(&pair, &pair.b).entry.op_context == (void *)sent[i].taken_by);
	}
	pair_close(&pair);
}

/* The oldest message that fits, among those that wait. */
static void waiting_order(void)
{
	static const uint64_t sent[] = { 1, 2, 1, 3, 2 };
	static const struct {
		uint64_t tag, ignore;
		uint64_t gets; /* which message */
	} taken[] = { { 3, 0, 3 }, { 2, 0, 1 }, { 0, UINT64_MAX, 0 }, { 0, UINT64_MAX, 2 }, { 3, 1, 4 } };
	struct pair pair;

	pair_open(&pair, NULL);
	for (uint64_t i = 0; i < 5; i++)
		post(&pair, fi_tinject(pair.a.ep, &i, sizeof(i), pair.a.peer, sent[i]));
	for (int i = 0; i < 100; i++)
		pair_progress(&pair);
	for (int i = 0; i < 5; i++) {
		uint64_t got = 99;

		gives(fi_trecv(pair.b.ep, &got, sizeof(got), NULL, FI_ADDR_UNSPEC, taken[i].tag,
			       taken[i].ignore, NULL),
		      0);
		gives(pair_done(&pair, &pair.b).entry.tag, sent[taken[i].gets]);
		gives(got, taken[i].gets);
	}
	pair_close(&pair);
}

/* A message for nobody waits, and stops none behind it. */
static void unmatched(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, 1));
	gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, (void *)2), 0);
	pair_quiet(&pair, &pair.b);
	post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, 2));
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)2);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, (void *)1), 0);
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)1);
	pair_close(&pair);
}

/* Source and tag together; without FI_DIRECTED_RECV the tag alone. */
static void directed(void)
{
	struct pair_want want = { .caps = FI_TAGGED };
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, pair.b.self, 5, 0, (void *)1), 0);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, pair.b.peer, 6, 0, (void *)2), 0);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, pair.b.peer, 5, 0, (void *)3), 0);
	post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, 5));
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)3);
	gives(fi_tinject(pair.b.ep, out, 8, pair.b.self, 6), 0);
	pair_quiet(&pair, &pair.b);
	gives(fi_tinject(pair.b.ep, out, 8, pair.b.self, 5), 0);
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)1);
	pair_close(&pair);

	pair_open(&pair, &want);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, pair.b.self, 5, 0, (void *)1), 0);
	post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, 5));
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)1);
	pair_close(&pair);
}

/* Ten thousand receives with tags of their own, served backwards. */
static void many_posted(void)
{
	enum { RECEIVES = 10000 };
	struct pair_want want = { .rx_size = RECEIVES };
	struct pair pair;

	pair_open(&pair, &want);
	for (uintptr_t i = 0; i < RECEIVES; i++)
		gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, i, 0, (void *)i), 0);
	for (uintptr_t i = RECEIVES; i-- > 0;) {
		post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, i));
		must(pair_done(&pair, &pair.b).entry.op_context == (void *)i);
	}
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(every_bit), ALONE(posted_order), ALONE(waiting_order), ALONE(unmatched),
		ALONE(directed),  ALONE(many_posted),  TRAFFIC_TESTS,
	};
	const struct CMUnitTest full[] = { TRAFFIC_LARGE_TESTS };
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	if (rounds_are_full())
		failed += cmocka_run_group_tests(full, NULL, NULL);
	return failed;
}
