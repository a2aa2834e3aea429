/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_match: nanoseconds that matching costs for each message, by the number of entries that wait and
 * by the order in which they are asked for. Prints; asserts nothing.
 *
 *	posted		post n receives, then find and unpost each: one post + find + unpost
 *	unexpected	keep n messages, then find and drop each: one keep + find + drop
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/match.h"

enum { COUNT_MAX = 10000, OPERATIONS = 4000000 };

enum order { IN_ORDER, REVERSE, SHUFFLED, ANY_SOURCE, MASKED, ONE_KEY, FOUR_CLASSES, ORDERS };

static const char *const order_names[ORDERS] = { "in order", "reverse", "shuffled",    "any source",
						 "masked",   "one key", "four classes" };

static struct sc_match_recv recvs[COUNT_MAX];
static struct sc_match_msg msgs[COUNT_MAX];
static size_t asked[COUNT_MAX];
static char sources[64];

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void set_asked(enum order order, size_t n)
{
	unsigned long random = 1;

	for (size_t i = 0; i < n; i++)
		asked[i] = order == IN_ORDER || order == ONE_KEY ? i : n - 1 - i;
	for (size_t i = n; order == SHUFFLED && i > 1; i--) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		size_t j = (random >> 33) % i, swap = asked[j];

		asked[j] = asked[i - 1];
		asked[i - 1] = swap;
	}
}

/* The pattern of receive i, and the message that only it fits. */
static void set_pair(enum order order, size_t i)
{
	const char *source = order == ONE_KEY ? sources : &sources[i % sizeof(sources)];
	uint64_t tag = order == ONE_KEY ? 7 : 0x100000000u | i;
	unsigned kind = order == ANY_SOURCE ? 1 : order == MASKED ? 2 : order == FOUR_CLASSES ? i % 4 : 0;

	msgs[i].source = source;
	msgs[i].tag = tag | (kind & 2 ? 0xab00000000000000u : 0);
	recvs[i].source = kind & 1 ? NULL : source;
	recvs[i].tag = tag;
	recvs[i].tag_mask = kind & 2 ? 0x00ffffffffffffffu : UINT64_MAX;
}

static double bench_posted(struct sc_match *match, size_t n)
{
	size_t rounds = OPERATIONS / n;
	double start = now();

	for (size_t round = 0; round < rounds; round++) {
		for (size_t i = 0; i < n; i++)
			if (sc_match_post(match, &recvs[i]))
				exit(1);
		for (size_t i = 0; i < n; i++) {
			struct sc_match_msg *msg = &msgs[asked[i]];
			struct sc_match_recv *recv = sc_match_find_recv(match, msg->source, msg->tag);

			if (recv != &recvs[asked[i]])
				abort();
			sc_match_unpost(match, recv);
		}
	}
	return (now() - start) / (double)(rounds * n);
}

static double bench_unexpected(struct sc_match *match, size_t n)
{
	size_t rounds = OPERATIONS / n;
	double start = now();

	for (size_t round = 0; round < rounds; round++) {
		for (size_t i = 0; i < n; i++)
			sc_match_keep(match, &msgs[i]);
		for (size_t i = 0; i < n; i++) {
			struct sc_match_recv *recv = &recvs[asked[i]];
			struct sc_match_msg *msg =
				sc_match_find_msg(match, recv->source, recv->tag, ~recv->tag_mask);

			if (msg != &msgs[asked[i]])
				abort();
			sc_match_drop(match, msg);
		}
	}
	return (now() - start) / (double)(rounds * n);
}

int main(void)
{
	static const size_t counts[] = { 1, 10, 100, 1000, 10000 };

	printf("%-14s %8s %12s %12s\n", "order", "entries", "posted ns", "unexpected ns");
	for (int order = 0; order < ORDERS; order++) {
		for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
			struct sc_match match;
			double posted;

			sc_match_init(&match);
			set_asked(order, counts[c]);
			for (size_t i = 0; i < counts[c]; i++)
				set_pair(order, i);
			posted = bench_posted(&match, counts[c]);
			printf("%-14s %8zu %12.1f %12.1f\n", order_names[order], counts[c], posted,
			       bench_unexpected(&match, counts[c]));
			sc_match_fini(&match);
		}
	}
	return 0;
}
