/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_ring: records of every length at every place of the ring, over many laps; lines of earlier laps are never taken
 * for a record; payload in lines; impossible positions; cleaning stays within the lines. Rings are tested as they begin
 * and after they have grown, and they grow at each place where they may.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include "shm/ring.h"

static _Alignas(4096) struct sc_abi_slot slot;
static struct sc_ring_tx tx;
static struct sc_ring_rx rx;
static bool grows;

static void grow(void)
{
	sc_ring_grow(&tx);
	sc_ring_grown(&rx);
}

static int reset(void **state)
{
	(void)state;
	memset(&slot, 0, sizeof(slot));
	sc_ring_tx_init(&tx, &slot);
	sc_ring_rx_init(&rx, &slot);
	if (grows)
		grow();
	return 0;
}

static int as_it_begins(void **state)
{
	grows = false;
	return reset(state);
}

static int has_grown(void **state)
{
	grows = true;
	return reset(state);
}

/* Payload that looks like a published record of both laps in turn. */
static void fill_evil(struct sc_abi_line *line)
{
	for (uint64_t i = 0; i < 7; i++)
		line->words[i] = sc_ring_ctl(SC_ABI_INLINE, 0, 1, 8) | (1 + i % 2) << SC_ABI_CTL_LAP_SHIFT;
}

static void write_record(uint32_t lines, uint32_t number)
{
	struct sc_abi_line *line = sc_ring_reserve(&tx);

	assert_true(sc_ring_has_room(&tx, lines));
	for (uint32_t i = 0; i < lines; i++, line = sc_ring_next(&tx.at, line))
		fill_evil(line);
	sc_ring_commit(&tx, sc_ring_ctl(SC_ABI_BOUNCE, 0x5a, lines, number), lines);
}

static void read_record(uint32_t lines, uint32_t number)
{
	uint64_t ctl = sc_ring_peek(&rx);

	assert_int_not_equal(ctl, 0);
	assert_int_equal(sc_ctl_kind(ctl), SC_ABI_BOUNCE);
	assert_int_equal(sc_ctl_flags(ctl), 0x5a);
	assert_int_equal(sc_ctl_lines(ctl), lines);
	assert_int_equal(sc_ctl_size(ctl), number);
	sc_ring_release(&rx, lines);
}

/* The reader is told of each record as soon as it is there, and of nothing else. */
static void test_one_at_a_time(void **state)
{
	for (uint32_t lines = 1; lines <= SC_ABI_RECORD_LINES; lines++) {
		for (uint32_t shift = 0; shift < SC_ABI_RECORD_LINES; shift++) {
			reset(state);
			for (uint32_t i = 0; i < shift; i++) {
				write_record(1, i);
				read_record(1, i);
			}
			for (uint32_t i = 0; i < 5 * tx.at.count; i++) {
				assert_int_equal(sc_ring_peek(&rx), 0);
				sc_ring_publish(&rx, i);
				assert_int_equal(sc_ring_refresh(&tx), 0);
				write_record(lines, i);
				read_record(lines, i);
			}
			assert_int_equal(rx.head, tx.tail);
			assert_ptr_equal(rx.at.next, tx.at.next);
			assert_int_equal(rx.at.lap, tx.at.lap);
		}
	}
}

static void test_full_and_empty(void **state)
{
	for (uint32_t lines = 1; lines <= SC_ABI_RECORD_LINES; lines++) {
		uint32_t written = 0, read = 0;

		reset(state);
		for (int lap = 0; lap < 300; lap++) {
			while (sc_ring_has_room(&tx, lines))
				write_record(lines, written++);
			assert_int_equal(sc_ring_refresh(&tx), 0);
			assert_false(sc_ring_has_room(&tx, lines));
			assert_true(tx.tail - tx.head > tx.room - lines);
			while (read < written)
				read_record(lines, read++);
			assert_int_equal(sc_ring_peek(&rx), 0);
			assert_false(sc_ring_has_room(&tx, lines));
			sc_ring_publish(&rx, 0);
			assert_int_equal(sc_ring_refresh(&tx), 0);
			assert_true(sc_ring_has_room(&tx, tx.room));
			assert_false(sc_ring_has_room(&tx, tx.room + 1));
		}
	}
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* The writer grows it when it may for the `growing`-th time. */
static void check_mixed_lengths(uint64_t *random, uint32_t *lengths, uint32_t count, uint32_t growing)
{
	uint32_t written = 0, read = 0, grown = UINT32_MAX;

	while (read < count) {
		uint32_t lines = 1 + next_random(random) % SC_ABI_RECORD_LINES;

		if (written < count && sc_ring_may_grow(&tx) && !growing--) {
			lengths[grown = written] = 1;
			sc_ring_grow(&tx);
			write_record(1, written++);
		} else if (written < count && next_random(random) % 2 && sc_ring_has_room(&tx, lines)) {
			lengths[written] = lines;
			write_record(lines, written++);
		} else if (read < written) {
			if (read == grown)
				sc_ring_grown(&rx);
			read_record(lengths[read], read);
			read++;
		} else {
			assert_int_equal(sc_ring_peek(&rx), 0);
		}
		if (!(next_random(random) % 8)) {
			sc_ring_publish(&rx, read);
			assert_int_equal(sc_ring_refresh(&tx), 0);
			assert_int_equal(slot.consumer.window, read);
			assert_int_equal(slot.consumer.head, rx.head);
		}
	}
	assert_int_equal(sc_ring_peek(&rx), 0);
}

static void test_mixed_lengths(void **state)
{
	static uint32_t lengths[1u << 17];
	uint64_t random = 1;

	(void)state;
	check_mixed_lengths(&random, lengths, sizeof(lengths) / sizeof(lengths[0]), UINT32_MAX);
}

/* It grows at any place, with anything unread that may be: nothing is written over, and both wrap at the same place. */
static void test_growing(void **state)
{
	uint32_t lengths[2000], places[SC_ABI_RING_FIRST] = { 0 };
	uint64_t random = 2;

	for (uint32_t growing = 0; growing < 2000; growing++) {
		reset(state);
		check_mixed_lengths(&random, lengths, sizeof(lengths) / sizeof(lengths[0]), growing / 10);
		assert_int_equal(tx.at.count, SC_ABI_RING_LINES);
		assert_int_equal(rx.at.count, SC_ABI_RING_LINES);
		assert_ptr_equal(rx.at.next, tx.at.next);
	}
	/* full at once: a line is left to say so, wherever it begins */
	for (uint32_t at = 0; at < SC_ABI_RING_FIRST; at++) {
		uint32_t written = 0;

		reset(state);
		for (; written < at; written++) {
			write_record(1, written);
			read_record(1, written);
		}
		sc_ring_publish(&rx, 0);
		assert_int_equal(sc_ring_refresh(&tx), 0);
		while (sc_ring_has_room(&tx, 1)) {
			places[tx.at.next - tx.at.lines] += sc_ring_may_grow(&tx);
			write_record(1, written++);
		}
		assert_int_equal(written, at + SC_ABI_RING_FIRST - 1);
		assert_int_equal(sc_ring_may_grow(&tx), at == 0); /* else what is unread is of two laps */
	}
	for (uint32_t at = 0; at < SC_ABI_RING_FIRST; at++)
		assert_true(places[at] > 0);
}

/* A record that is written but not committed is not there. */
static void test_uncommitted(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3 * tx.at.count; i++) {
		struct sc_abi_line *line = sc_ring_reserve(&tx);

		for (uint32_t n = 0; n < SC_ABI_RECORD_LINES;
		     n++, line = sc_ring_next(&tx.at, line))
			fill_evil(line);
		assert_int_equal(sc_ring_peek(&rx), 0);
		write_record(1, i);
		read_record(1, i);
		sc_ring_publish(&rx, 0);
		assert_int_equal(sc_ring_refresh(&tx), 0);
	}
}

static void test_ctl_fields(void **state)
{
	uint64_t ctl = sc_ring_ctl(SC_ABI_PIECE, 0xff, SC_ABI_RECORD_LINES, UINT32_MAX);

	(void)state;
	assert_int_equal(ctl >> SC_ABI_CTL_LAP_SHIFT, 0);
	assert_int_equal(sc_ctl_kind(ctl), SC_ABI_PIECE);
	assert_int_equal(sc_ctl_flags(ctl), 0xff);
	assert_int_equal(sc_ctl_lines(ctl), SC_ABI_RECORD_LINES);
	assert_int_equal(sc_ctl_size(ctl), UINT32_MAX);
	ctl = UINT64_MAX;
	assert_int_equal((unsigned)sc_ctl_kind(ctl), 255);
	assert_int_equal(sc_ctl_lines(ctl), 255);
}

/* ---- inline payload -------------------------------------------------------------------------- */

/* One payload that begins in line `at`: it arrives, and nothing but its bytes is written. */
static void check_inline(uint32_t at, uint32_t flags, uint32_t size)
{
	static struct sc_abi_line before[SC_ABI_RING_LINES];
	uint8_t from[SC_INLINE_MAX], to[SC_INLINE_MAX + 16];
	uint32_t lines = sc_inline_lines(flags, size);
	uint32_t untouched = 0;

	for (uint32_t i = 0; i < size; i++)
		from[i] = (uint8_t)(i * 7 + size + at);
	memset(to, 0xa5, sizeof(to));
	memset(slot.ring, 0xee, sizeof(slot.ring));
	memcpy(before, slot.ring, sizeof(before));
	sc_inline_write(&tx.at, &slot.ring[at], flags, from, size);
	sc_inline_read(&tx.at, &slot.ring[at], flags, to + 8, size);
	assert_memory_equal(to + 8, from, size);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(to[i], 0xa5);
		assert_int_equal(to[8 + size + i], 0xa5);
	}
	/* the words before the payload, every ctl, every other line */
	assert_memory_equal(slot.ring[at].bytes, before[at].bytes,
			    SC_ABI_LINE_BYTES - sc_inline_first(flags));
	for (uint32_t i = 0; i < SC_ABI_RING_LINES; i++) {
		uint32_t from_first = (i + tx.at.count - at) % tx.at.count;

		assert_int_equal(slot.ring[i].ctl, before[i].ctl);
		if (i >= tx.at.count || from_first >= lines) {
			assert_memory_equal(slot.ring[i].bytes, before[i].bytes, SC_ABI_LINE_BYTES);
			untouched++;
		}
	}
	assert_int_equal(untouched, SC_ABI_RING_LINES - lines);
}

static void test_inline_every_size_and_place(void **state)
{
	static const uint32_t flags[] = { 0, SC_ABI_F_ACK,
					  SC_ABI_F_ACK | SC_ABI_F_TAGGED | SC_ABI_F_DATA };

	(void)state;
	for (uint32_t f = 0; f < 2; f++)
		for (uint32_t size = 0; size <= SC_INLINE_MAX; size++)
			for (uint32_t at = tx.at.count - 17; at < tx.at.count + 2; at++)
				check_inline(at % tx.at.count, flags[f], size);
	check_inline(30, flags[2], SC_INLINE_MAX);
}

/* Part of a payload can be read. */
static void test_inline_truncated(void **state)
{
	uint8_t from[SC_INLINE_MAX], to[SC_INLINE_MAX + 1];

	(void)state;
	for (uint32_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 3);
	sc_inline_write(&tx.at, &slot.ring[tx.at.count - 5], 0, from, sizeof(from));
	for (uint32_t size = 0; size <= SC_INLINE_MAX; size++) {
		memset(to, 0xa5, sizeof(to));
		sc_inline_read(&tx.at, &slot.ring[tx.at.count - 5], 0, to, size);
		assert_memory_equal(to, from, size);
		assert_int_equal(to[size], 0xa5);
	}
}

static void test_inline_lines(void **state)
{
	(void)state;
	assert_int_equal(sc_inline_lines(0, 0), 1);
	assert_int_equal(sc_inline_lines(0, 40), 1);
	assert_int_equal(sc_inline_lines(0, 41), 2);
	assert_int_equal(sc_inline_lines(0, 96), 2);
	assert_int_equal(sc_inline_lines(0, 97), 3);
	assert_int_equal(sc_inline_lines(SC_ABI_F_ACK, 32), 1);
	assert_int_equal(sc_inline_lines(SC_ABI_F_ACK, 33), 2);
	assert_int_equal(sc_inline_lines(SC_ABI_F_ACK, SC_INLINE_MAX), SC_ABI_RECORD_LINES);
	assert_true(sc_inline_lines(0, SC_INLINE_MAX) <= SC_ABI_RECORD_LINES);
}

/* ---- positions that cannot be ---------------------------------------------------------------- */

static void test_impossible_heads(void **state)
{
	static const uint64_t bad[] = { 51,	   124,	       1u << 20, UINT64_MAX, UINT64_MAX - 49,
					INT64_MAX, 1ull << 63, 9,	 0 };

	(void)state;
	for (int i = 0; i < 50; i++)
		write_record(1, 0);
	for (int i = 0; i < 10; i++)
		read_record(1, 0);
	sc_ring_publish(&rx, 0);
	assert_int_equal(sc_ring_refresh(&tx), 0);
	assert_int_equal(tx.head, 10);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		slot.consumer.head = bad[i];
		assert_int_equal(sc_ring_refresh(&tx), -EPROTO);
		assert_int_equal(tx.head, 10);
	}
	for (uint64_t good = 10; good <= 50; good++) {
		slot.consumer.head = good;
		assert_int_equal(sc_ring_refresh(&tx), 0);
		assert_int_equal(tx.head, good);
	}
}

/* A reader that believes a wrong length finds nothing or something of no kind, never memory outside. */
static void test_release_wraps(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		sc_ring_release(&rx, 1 + i % SC_ABI_RECORD_LINES);
		assert_true(rx.at.next >= rx.at.lines && rx.at.next <= rx.at.last);
		assert_int_equal(rx.at.next - rx.at.lines, rx.head % rx.at.count);
		assert_int_equal(rx.at.lap >> SC_ABI_CTL_LAP_SHIFT, rx.head / rx.at.count % 2 ? 2 : 1);
		(void)sc_ring_peek(&rx);
	}
}

/* The hint of the record behind the next one is right at each place, also where the ring begins again, in each lap. */
static void test_peek_next(void **state)
{
	(void)state;
	write_record(1, 0);
	for (uint32_t i = 0; i < 5 * SC_ABI_RING_LINES; i++) {
		uint32_t lines = 1 + i % 3, before = i ? 1 + (i - 1) % 3 : 1;

		assert_int_equal(sc_ring_peek_next(&rx, before), 0);
		write_record(lines, i + 1);
		assert_int_equal(sc_ctl_size(sc_ring_peek_next(&rx, before)), i + 1);
		assert_int_equal(sc_ctl_lines(sc_ring_peek_next(&rx, before)), lines);
		read_record(before, i);
		sc_ring_publish(&rx, 0);
		sc_ring_refresh(&tx);
	}
}

#define AS_IT_BEGINS(test)                                                                                \
	{                                                                                                 \
#test, test, as_it_begins, NULL, NULL                                                     \
	}
#define HAS_GROWN(test)                                                                                   \
	{                                                                                                 \
#test "_grown", test, has_grown, NULL, NULL                                               \
	}

/* A ring that has come back from a buffer, and is going to grow: what is unread in the buffer takes none of its lines. */
static void test_room_after_overflow(void **state)
{
	struct sc_ring_tx tx = {
		.tail = 2000, .head = 1900, .since = 1990, .at.count = SC_ABI_RING_FIRST
	};

	(void)state;
	assert_true(sc_ring_has_room_yet(&tx, SC_ABI_RING_FIRST - 11));
	assert_false(sc_ring_has_room_yet(&tx, SC_ABI_RING_FIRST - 10));
	tx.head = 1995;
	assert_true(sc_ring_has_room_yet(&tx, SC_ABI_RING_FIRST - 6));
	assert_false(sc_ring_has_room_yet(&tx, SC_ABI_RING_FIRST - 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		AS_IT_BEGINS(test_one_at_a_time),
		HAS_GROWN(test_one_at_a_time),
		AS_IT_BEGINS(test_full_and_empty),
		HAS_GROWN(test_full_and_empty),
		AS_IT_BEGINS(test_mixed_lengths),
		HAS_GROWN(test_mixed_lengths),
		AS_IT_BEGINS(test_growing),
		AS_IT_BEGINS(test_uncommitted),
		HAS_GROWN(test_uncommitted),
		AS_IT_BEGINS(test_ctl_fields),
		AS_IT_BEGINS(test_inline_every_size_and_place),
		HAS_GROWN(test_inline_every_size_and_place),
		AS_IT_BEGINS(test_inline_truncated),
		HAS_GROWN(test_inline_truncated),
		AS_IT_BEGINS(test_inline_lines),
		AS_IT_BEGINS(test_impossible_heads),
		AS_IT_BEGINS(test_peek_next),
		HAS_GROWN(test_peek_next),
		AS_IT_BEGINS(test_release_wraps),
		HAS_GROWN(test_release_wraps),
		cmocka_unit_test(test_room_after_overflow),
	};

	return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
