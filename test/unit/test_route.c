/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_route: which way a put, a get or a message goes, by facts alone: each threshold on both sides, each fact
 * taken away from a set that suffices, the costs of copies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/route.h"

enum { PUT = SC_ROUTE_PUT, GET = SC_ROUTE_GET, MESSAGE = SC_ROUTE_MESSAGE };
enum {
	DELEGATED = SC_WAY_DELEGATED,
	COOPERATIVE = SC_WAY_COOPERATIVE,
	LATER = SC_WAY_CMA_LATER,
	CMA = SC_WAY_CMA,
	TARGET = SC_WAY_TARGET,
	INLINE = SC_WAY_INLINE,
	BOUNCE = SC_WAY_BOUNCE,
	RENDEZVOUS = SC_WAY_RENDEZVOUS
};

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

#define ONE (SC_FACT_ONE_RANGE | SC_FACT_ONE_PIECE)
#define TAKES (SC_FACT_DIRECT | SC_FACT_DELEGABLE | ONE)
#define HELPS (SC_FACT_DIRECT | SC_FACT_COPIES | SC_FACT_LOOSE | ONE)
#define STREAMS (SC_FACT_DIRECT | SC_FACT_STREAM | SC_FACT_LOOSE | ONE)
#define ALL (TAKES | HELPS)

struct row {
	int op;
	size_t size;
	uint32_t facts;
	struct sc_route_costs costs;
	int way;
};

static void check(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		int way = sc_route((enum sc_route_op)row->op, row->size, row->facts, &row->costs);

		if (way != row->way)
			print_error("row %zu\n", i);
		assert_int_equal(way, row->way);
	}
}
#define CHECK(rows) check(rows, sizeof(rows) / sizeof((rows)[0]))

static void test_thresholds(void **state)
{
	static const struct row rows[] = {
		/* delegated */
		{ PUT, 0, TAKES, { 0, 0 }, DELEGATED },
		{ PUT, 8, TAKES, { 0, 0 }, DELEGATED },
		{ PUT, 32 * KIB, TAKES, { 0, 0 }, DELEGATED },
		{ PUT, 32 * KIB + 1, TAKES, { 0, 0 }, CMA },
		{ GET, 0, TAKES, { 0, 0 }, DELEGATED },
		{ GET, 4 * KIB, TAKES, { 0, 0 }, DELEGATED },
		{ GET, 4 * KIB + 1, TAKES, { 0, 0 }, CMA },
		/* behind others */
		{ PUT, 32 * KIB, TAKES | SC_FACT_DELEGATED, { 1, 1000000 }, DELEGATED },
		{ PUT, 32 * KIB + 1, TAKES | SC_FACT_DELEGATED, { 1, 1000000 }, CMA },
		{ GET, 16 * KIB, TAKES | SC_FACT_DELEGATED, { 0, 0 }, DELEGATED },
		{ GET, 16 * KIB + 1, TAKES | SC_FACT_DELEGATED, { 0, 0 }, CMA },
		/* cooperative */
		{ PUT, 128 * KIB - 1, HELPS, { 0, 0 }, CMA },
		{ PUT, 128 * KIB, HELPS, { 0, 0 }, COOPERATIVE },
		{ PUT, SIZE_MAX, HELPS, { 0, 0 }, COOPERATIVE },
		{ GET, 64 * KIB - 1, HELPS, { 0, 0 }, CMA },
		{ GET, 64 * KIB, HELPS, { 0, 0 }, COOPERATIVE },
		{ GET, 128 * KIB - 1, HELPS | SC_FACT_STREAM, { 0, 0 }, LATER },
		{ GET, 128 * KIB, HELPS | SC_FACT_STREAM, { 0, 0 }, COOPERATIVE },
		{ PUT, 128 * KIB, HELPS | SC_FACT_STREAM, { 0, 0 }, COOPERATIVE },
		/* together with others */
		{ PUT, 0, STREAMS, { 0, 0 }, CMA },
		{ PUT, 1, STREAMS, { 0, 0 }, LATER },
		{ GET, 1, STREAMS, { 0, 0 }, LATER },
		{ PUT, 256 * KIB, STREAMS, { 0, 0 }, LATER },
		{ PUT, 256 * KIB + 1, STREAMS, { 0, 0 }, CMA },
		{ GET, 256 * KIB, STREAMS, { 0, 0 }, LATER },
		{ GET, 256 * KIB + 1, STREAMS, { 0, 0 }, CMA },
		/* by the target, whatever else is known */
		{ PUT, 8, ALL & ~SC_FACT_DIRECT, { 0, 0 }, TARGET },
		{ GET, MIB, ALL & ~SC_FACT_DIRECT, { 0, 0 }, TARGET },
	};

	(void)state;
	CHECK(rows);
}

static void test_facts(void **state)
{
	static const struct row rows[] = {
		{ PUT, 8, ALL, { 0, 0 }, DELEGATED },
		{ PUT, 8, SC_FACT_DIRECT, { 0, 0 }, CMA },
		{ PUT, 8, ALL & ~SC_FACT_DELEGABLE, { 0, 0 }, CMA },
		{ PUT, 8, ALL & ~SC_FACT_ONE_RANGE, { 0, 0 }, CMA },
		{ PUT, 8, ALL & ~SC_FACT_ONE_PIECE, { 0, 0 }, DELEGATED },
		{ PUT, 8, ALL & ~SC_FACT_LOOSE, { 0, 0 }, DELEGATED },
		{ PUT, 8, ALL | SC_FACT_INJECTED, { 0, 0 }, DELEGATED },
		{ PUT, 8, ALL | SC_FACT_STREAM | SC_FACT_LIKELY, { 0, 0 }, DELEGATED },
		/* large ones of a stream, or of what is likely one, are not delegated, but behind others */
		{ PUT, 4 * KIB + 1, TAKES | SC_FACT_LIKELY, { 0, 0 }, CMA },
		{ PUT, 4 * KIB + 1, TAKES | SC_FACT_STREAM, { 0, 0 }, CMA },
		{ PUT, 4 * KIB + 1, TAKES | SC_FACT_STREAM | SC_FACT_DELEGATED, { 0, 0 }, DELEGATED },
		{ GET, 4 * KIB + 1, TAKES | SC_FACT_STREAM | SC_FACT_DELEGATED, { 0, 0 }, CMA },
		{ GET, 4 * KIB + 1, TAKES | SC_FACT_LIKELY | SC_FACT_DELEGATED, { 0, 0 }, DELEGATED },
		{ GET, 4 * KIB, TAKES | SC_FACT_STREAM | SC_FACT_DELEGATED, { 0, 0 }, DELEGATED },
		{ PUT, 4 * KIB, TAKES | SC_FACT_STREAM, { 0, 0 }, DELEGATED },
		{ PUT, MIB, ALL, { 0, 0 }, COOPERATIVE },
		{ PUT, MIB, ALL & ~SC_FACT_COPIES, { 0, 0 }, CMA },
		{ PUT, MIB, ALL & ~SC_FACT_LOOSE, { 0, 0 }, CMA },
		{ PUT, MIB, ALL & ~SC_FACT_ONE_RANGE, { 0, 0 }, CMA },
		{ PUT, MIB, ALL & ~SC_FACT_ONE_PIECE, { 0, 0 }, CMA },
		{ PUT, MIB, ALL & ~SC_FACT_DELEGABLE, { 0, 0 }, COOPERATIVE },
		{ PUT, 64, STREAMS & ~SC_FACT_STREAM, { 0, 0 }, CMA },
		{ PUT, 64, STREAMS & ~SC_FACT_LOOSE, { 0, 0 }, CMA },
		{ PUT, 64, STREAMS & ~SC_FACT_ONE_RANGE, { 0, 0 }, CMA },
		{ PUT, 64, STREAMS & ~SC_FACT_ONE_PIECE, { 0, 0 }, LATER },
		{ PUT, 64, STREAMS | SC_FACT_INJECTED, { 0, 0 }, CMA },
		{ PUT, 8, (ALL & ~SC_FACT_DELEGABLE) | SC_FACT_INJECTED, { 0, 0 }, CMA },
	};

	(void)state;
	CHECK(rows);
}

/* By CMA and through buffers, nanoseconds. */
static void test_costs(void **state)
{
	static const struct row rows[] = {
		{ PUT, 4 * KIB, ALL | SC_FACT_INJECTED, { 1, 1000000 }, DELEGATED },
		{ PUT, 8 * KIB, TAKES, { 2000, 1700 }, DELEGATED },
		{ PUT, 8 * KIB, TAKES, { 2000, 1701 }, CMA },
		{ PUT, 8 * KIB, TAKES, { 1999, 1700 }, CMA },
		{ PUT, 8 * KIB, TAKES, { 0, 1000000 }, DELEGATED },
		{ PUT, 8 * KIB, TAKES, { 1, 0 }, DELEGATED },
		{ PUT, 4 * KIB, TAKES, { 1, 1000000 }, DELEGATED },
		{ GET, 8 * KIB, TAKES, { 2000, 1700 }, DELEGATED },
		{ GET, 8 * KIB, TAKES, { 2000, 1701 }, CMA },
		{ GET, 8 * KIB, TAKES, { 0, 1 }, CMA },
		{ GET, 16 * KIB, TAKES, { 1000000, 1 }, DELEGATED },
		{ GET, 16 * KIB + 1, TAKES, { 1000000, 1 }, CMA },
		{ GET, 8 * KIB, TAKES | SC_FACT_STREAM, { 1000000, 1 }, CMA },
		/* the cost of memory, 1474 ns, where that of buffers is not known */
		{ GET, 8 * KIB, TAKES, { 1774, 0 }, DELEGATED },
		{ GET, 8 * KIB, TAKES, { 1773, 0 }, CMA },
		{ PUT, MIB, HELPS, { 15999, 0 }, CMA },
		{ PUT, MIB, HELPS, { 16000, 0 }, COOPERATIVE },
		{ GET, MIB, HELPS, { 7199, 0 }, CMA },
		{ GET, MIB, HELPS, { 7200, 0 }, COOPERATIVE },
	};

	(void)state;
	CHECK(rows);
}

#define EAGER (SC_FACT_RECORD | SC_FACT_BUFFER | SC_FACT_BUFFERS)

static void test_messages(void **state)
{
	static const struct row rows[] = {
		{ MESSAGE, 0, EAGER, { 0, 0 }, INLINE },
		{ MESSAGE, 319, EAGER, { 0, 0 }, INLINE },
		{ MESSAGE, 320, EAGER, { 0, 0 }, BOUNCE },
		{ MESSAGE, 127, EAGER | SC_FACT_BEHIND, { 0, 0 }, INLINE },
		{ MESSAGE, 128, EAGER | SC_FACT_BEHIND, { 0, 0 }, BOUNCE },
		/* one way after the other is not open */
		{ MESSAGE, 320, EAGER & ~SC_FACT_BUFFER, { 0, 0 }, INLINE },
		{ MESSAGE, 128, (EAGER & ~SC_FACT_BUFFER) | SC_FACT_BEHIND, { 0, 0 }, INLINE },
		{ MESSAGE, 320, EAGER & ~SC_FACT_RECORD, { 0, 0 }, BOUNCE },
		{ MESSAGE, 8, EAGER & ~SC_FACT_RECORD, { 0, 0 }, BOUNCE },
		{ MESSAGE, 8, SC_FACT_BUFFER, { 0, 0 }, RENDEZVOUS },
		{ MESSAGE, 8, SC_FACT_RECORD, { 0, 0 }, INLINE },
		{ MESSAGE, MIB, SC_FACT_BUFFERS, { 0, 0 }, BOUNCE },
		{ MESSAGE, MIB, 0, { 0, 0 }, RENDEZVOUS },
		{ MESSAGE, MIB, 0, { 1000000, 1 }, RENDEZVOUS },
	};

	(void)state;
	CHECK(rows);
}

static void test_message_costs(void **state)
{
	static const struct row rows[] = {
		/* more than an eighth, and 0.2 us */
		{ MESSAGE, 16 * KIB, SC_FACT_BUFFERS, { 1600, 2025 }, BOUNCE },
		{ MESSAGE, 16 * KIB, SC_FACT_BUFFERS, { 1600, 2034 }, RENDEZVOUS },
		/* or 0.1 in a stream */
		{ MESSAGE, 16 * KIB, SC_FACT_BUFFERS | SC_FACT_STREAM, { 1700, 2025 }, BOUNCE },
		{ MESSAGE, 16 * KIB, SC_FACT_BUFFERS | SC_FACT_STREAM, { 1700, 2034 }, RENDEZVOUS },
		{ MESSAGE, 16 * KIB, SC_FACT_BUFFERS | SC_FACT_STREAM, { 1600, 2025 }, RENDEZVOUS },
		/* never where a cost is not known, or of what may be injected */
		{ MESSAGE, 16 * KIB, SC_FACT_BUFFERS, { 0, 1000000 }, BOUNCE },
		{ MESSAGE, 16 * KIB, SC_FACT_BUFFERS, { 1, 0 }, BOUNCE },
		{ MESSAGE, 4 * KIB, SC_FACT_BUFFERS, { 1, 1000000 }, BOUNCE },
		{ MESSAGE, 4 * KIB + 1, SC_FACT_BUFFERS, { 1, 1000000 }, RENDEZVOUS },
	};

	(void)state;
	CHECK(rows);
}

/* A put that fits its record is delegated whatever else is known: sc_delegate_short() does not ask. */
static void test_short_puts(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, SC_ROUTE_RECORD };
	static const struct sc_route_costs costs[] = { { 0, 0 }, { 1, UINT32_MAX }, { UINT32_MAX, 1 } };
	const uint32_t all = SC_FACT_DIRECT | SC_FACT_DELEGABLE | SC_FACT_ONE_RANGE;

	(void)state;
	for (uint32_t facts = 0; facts <= SC_FACT_BEHIND * 2 - 1; facts++)
		for (size_t i = 0; (facts & all) == all && i < 12; i++)
			assert_int_equal(sc_route(SC_ROUTE_PUT, sizes[i % 4], facts, &costs[i / 4]),
					 SC_WAY_DELEGATED);
}

static void test_together(void **state)
{
	(void)state;
	assert_int_equal(sc_route_together(1), 8);
	assert_int_equal(sc_route_together(64 * KIB), 8);
	assert_int_equal(sc_route_together(64 * KIB + 1), 8);
	assert_int_equal(sc_route_together(128 * KIB), 4);
	assert_int_equal(sc_route_together(128 * KIB + 1), 4);
	assert_int_equal(sc_route_together(256 * KIB), 2);
	assert_int_equal(sc_route_together(256 * KIB + 1), 1);
	assert_int_equal(sc_route_together(SIZE_MAX), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thresholds),    cmocka_unit_test(test_facts),
		cmocka_unit_test(test_costs),	      cmocka_unit_test(test_messages),
		cmocka_unit_test(test_message_costs), cmocka_unit_test(test_short_puts),
		cmocka_unit_test(test_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
