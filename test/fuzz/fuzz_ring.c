/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_ring: the writer's side of a ring, whose reader may write anything into its consumer line; and the
 * ledger of the buffers that were lent with its records.
 *
 * Input: a byte for each step, and behind some a word. There are never more lines in the ring than it has, no
 * buffer is lent twice, and none is lost.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shm/pool.h"
#include "shm/ring.h"

enum { BUFS = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                  \
	do {                                                                                              \
		if (!(condition))                                                                         \
			abort();                                                                          \
	} while (0)

struct state {
	struct sc_ring_tx tx;
	struct sc_pool pool;
	struct sc_loans loans[2]; /* of this ring's reader, and of another that gives nothing back */
};

static bool take(const uint8_t **data, size_t *size, void *to, size_t len)
{
	if (*size < len)
		return false;
	memcpy(to, *data, len);
	*data += len;
	*size -= len;
	return true;
}

/* Every buffer is free or lent once. */
static void check_pool(const struct state *state)
{
	const struct sc_pool *pool = &state->pool;
	uint32_t seen = 0, count = pool->free_count;

	CHECK(pool->free_count <= BUFS);
	for (uint32_t i = 0, buf = pool->free_first; i < pool->free_count; i++, buf = pool->next[buf]) {
		CHECK(buf < BUFS && !(seen >> buf & 1));
		CHECK(i + 1 < pool->free_count || buf == pool->free_last);
		seen |= 1u << buf;
	}
	for (int i = 0; i < 2; i++) {
		uint16_t buf = state->loans[i].first;

		for (uint32_t left = state->loans[i].count; left; left--, count++, buf = pool->next[buf]) {
			CHECK(buf < BUFS && !(seen >> buf & 1));
			seen |= 1u << buf;
		}
	}
	CHECK(count == BUFS);
}

static void write_record(struct state *state, uint32_t lines, uint32_t bufs)
{
	struct sc_abi_line *line = sc_ring_reserve(&state->tx);

	CHECK(line >= state->tx.at.lines && line < state->tx.at.lines + state->tx.at.count);
	if (!sc_ring_has_room(&state->tx, lines))
		return;
	if (sc_pool_may_lend(&state->pool, &state->loans[0], bufs, 1))
		while (bufs--)
			(void)sc_pool_lend(&state->pool, &state->loans[0], state->tx.tail);
	for (uint32_t i = 0; i < lines; i++, line = sc_ring_next(&state->tx.at, line))
		memset(line->bytes, 0xff, sizeof(line->bytes));
	sc_ring_commit(&state->tx, sc_ring_ctl(SC_ABI_INLINE, 0, lines, 0), lines);
}

/* False: the reader has broken the rules. */
static bool refresh(struct state *state)
{
	uint64_t before = state->tx.head;

	if (sc_ring_refresh(&state->tx)) {
		CHECK(state->tx.head == before);
		sc_pool_reclaim(&state->pool, &state->loans[0]);
		CHECK(!state->loans[0].count);
		return false;
	}
	CHECK(state->tx.head >= before && state->tx.head <= state->tx.tail);
	sc_pool_return(&state->pool, &state->loans[0], state->tx.head);
	return true;
}

static void run(struct state *state, const uint8_t *data, size_t size)
{
	struct sc_abi_consumer *consumer = state->tx.consumer;
	uint64_t word;
	uint8_t what;

	while (take(&data, &size, &what, 1)) {
		switch (what & 7) {
		case 0: /* any word */
			if (!take(&data, &size, &word, sizeof(word)))
				return;
			consumer->head = word;
			break;
		case 1: /* one near what it was */
			consumer->head += (uint64_t)(int8_t)what >> 3;
			break;
		case 2: /* one that can be */
			consumer->head = state->tx.tail - (what >> 3);
			break;
		case 3:
			if (!refresh(state))
				return;
			break;
		case 4:
			if (what >> 5 == 7 && sc_ring_may_grow(&state->tx))
				sc_ring_grow(&state->tx);
			else if (state->loans[1].count < BUFS &&
				 sc_pool_may_lend(&state->pool, &state->loans[1], 1, 0))
				(void)sc_pool_lend(&state->pool, &state->loans[1], 0);
			break;
		default:
			write_record(state, 1 + (what >> 3) % SC_ABI_RECORD_LINES, what >> 6);
		}
		CHECK(state->tx.tail - state->tx.head <= state->tx.room);
		check_pool(state);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sc_abi_slot *slot = calloc(1, sizeof(*slot));
	struct state state;

	if (!slot || sc_pool_init(&state.pool, BUFS, BUFS))
		abort();
	sc_ring_tx_init(&state.tx, slot);
	sc_loans_init(&state.loans[0]);
	sc_loans_init(&state.loans[1]);
	run(&state, data, size);
	sc_pool_fini(&state.pool);
	free(slot);
	return 0;
}
