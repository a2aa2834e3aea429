/* SPDX-License-Identifier: BSD-2-Clause */
/* test_iov: slices, writes and reads of random vectors against the flat bytes they stand for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/iov.h"

#define ELEMENTS 16
#define ELEMENT_MAX 40
#define GAP 8

/* A vector in `memory` with gaps between its elements; `flat` numbers its bytes. */
static uint8_t memory[ELEMENTS * (ELEMENT_MAX + GAP) + GAP];
static struct iovec iov[ELEMENTS];
static size_t iov_count, total;
static uint64_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return below ? (uint32_t)(random_state >> 33) % below : 0;
}

static void make_vector(void)
{
	uint8_t *at = memory + GAP;

	iov_count = next_random(ELEMENTS + 1);
	total = 0;
	for (size_t i = 0; i < iov_count; i++) {
		size_t len = next_random(4) ? next_random(ELEMENT_MAX + 1) : 0;

		iov[i] = (struct iovec){ len || next_random(2) ? at : NULL, len };
		at += len + GAP;
		total += len;
	}
}

/* The byte of the vector at that offset. */
static uint8_t *byte_at(size_t offset)
{
	for (size_t i = 0; i < iov_count; i++) {
		if (offset < iov[i].iov_len)
			return (uint8_t *)iov[i].iov_base + offset;
		offset -= iov[i].iov_len;
	}
	fail();
	return NULL;
}

static void test_size(void **state)
{
	const struct iovec wraps[] = { { NULL, 5 }, { NULL, SIZE_MAX - 5 }, { NULL, 1 } };

	(void)state;
	assert_int_equal(sc_iov_size(wraps, 2), SIZE_MAX);
	assert_int_equal(sc_iov_size(wraps, 3), SIZE_MAX);
	assert_int_equal(sc_iov_size(wraps + 1, 1), SIZE_MAX - 5);
	assert_int_equal(sc_iov_size(NULL, 0), 0);
	for (int round = 0; round < 1000; round++) {
		make_vector();
		assert_int_equal(sc_iov_size(iov, iov_count), total);
	}
}

static void test_slice(void **state)
{
	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct iovec out[ELEMENTS];
		size_t offset, len, used, at = 0;

		make_vector();
		offset = next_random((uint32_t)total + 1);
		len = next_random((uint32_t)(total - offset) + 1);
		used = sc_iov_slice(iov, iov_count, offset, len, out);
		assert_true(used <= iov_count);
		assert_int_equal(sc_iov_size(out, used), len);
		for (size_t i = 0; i < used; i++) {
			assert_int_not_equal(out[i].iov_len, 0);
			for (size_t j = 0; j < out[i].iov_len; j++, at++)
				assert_ptr_equal((uint8_t *)out[i].iov_base + j, byte_at(offset + at));
		}
	}
}

static void test_write(void **state)
{
	(void)state;
	for (int round = 0; round < 5000; round++) {
		uint8_t from[sizeof(memory)], expected[sizeof(memory)];
		size_t offset, len;

		make_vector();
		offset = next_random((uint32_t)total + 1);
		len = next_random((uint32_t)(total - offset) + 1);
		memset(memory, 0xa5, sizeof(memory));
		for (size_t i = 0; i < len; i++)
			*byte_at(offset + i) = from[i] = (uint8_t)next_random(256);
		memcpy(expected, memory, sizeof(memory));
		memset(memory, 0xa5, sizeof(memory));
		sc_iov_write(iov, iov_count, offset, from, len);
		assert_memory_equal(memory, expected, sizeof(memory));
	}
}

static void test_read(void **state)
{
	(void)state;
	for (int round = 0; round < 5000; round++) {
		uint8_t to[sizeof(memory) + 1];
		size_t len;

		make_vector();
		for (size_t i = 0; i < sizeof(memory); i++)
			memory[i] = (uint8_t)next_random(256);
		len = next_random((uint32_t)total + 1);
		memset(to, 0xa5, sizeof(to));
		sc_iov_read(iov, iov_count, to, len);
		for (size_t i = 0; i < len; i++)
			assert_int_equal(to[i], *byte_at(i));
		assert_int_equal(to[len], 0xa5);
	}
}

/* Nothing to do: no element is looked at twice, none is needed. */
static void test_nothing(void **state)
{
	struct iovec out[1] = { { NULL, 77 } };

	(void)state;
	assert_int_equal(sc_iov_slice(NULL, 0, 0, 0, out), 0);
	assert_int_equal(sc_iov_slice(NULL, 0, 0, 100, out), 0);
	sc_iov_write(NULL, 0, 0, "", 0);
	sc_iov_read(NULL, 0, out, 0);
	assert_int_equal(out[0].iov_len, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_size), cmocka_unit_test(test_slice),   cmocka_unit_test(test_write),
		cmocka_unit_test(test_read), cmocka_unit_test(test_nothing),
	};

	return cmocka_run_group_tests_name("iov", tests, NULL, NULL);
}
