/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_atomicop: every operation on every type against what fi_atomic(3) says of it, written down a second
 * time; memory beside the target and a target that is refused stay as they are; under contention, of the
 * processor's own atomics too, every former value is seen once and none is lost.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/atomicop.h"
#include "child.h"

__extension__ typedef unsigned __int128 wide;

#define VALUES_MAX 16
#define SIZE_MAX_OF_ALL 32
#define ELEMENTS_MAX (VALUES_MAX * VALUES_MAX * VALUES_MAX)

/* ---- the reference --------------------------------------------------------------------------- */

/* Integers of any width, in the low bits of a wide one. */
static wide read_int(const void *from, size_t size)
{
	wide value = 0;

	memcpy(&value, from, size); /* little endian */
	return value;
}

static bool less_int(wide a, wide b, size_t size, bool is_signed)
{
	wide sign = is_signed ? (wide)1 << (size * 8 - 1) : 0;

	return (a ^ sign) < (b ^ sign);
}

static void reference_int(enum sc_atomic_type type, enum sc_atomic_code code, void *addr, const void *buf,
			  const void *compare)
{
	size_t size = sc_atomic_size(type);
	bool is_signed = type == SC_INT128 || (type < SC_FLOAT && type % 2 == 0);
	wide a = read_int(addr, size), b = read_int(buf, size), c = read_int(compare, size);
	bool less = less_int(c, a, size, is_signed), same = c == a;

	if (code == SC_MIN)
		a = less_int(b, a, size, is_signed) ? b : a;
	else if (code == SC_MAX)
		a = less_int(a, b, size, is_signed) ? b : a;
	else if (code == SC_SUM)
		a = a + b;
	else if (code == SC_PROD)
		a = a * b;
	else if (code == SC_LOR)
		a = a || b;
	else if (code == SC_LAND)
		a = a && b;
	else if (code == SC_BOR)
		a = a | b;
	else if (code == SC_BAND)
		a = a & b;
	else if (code == SC_LXOR)
		a = (a && !b) || (!a && b);
	else if (code == SC_BXOR)
		a = (a | b) & ~(a & b);
	else if (code == SC_ATOMIC_WRITE)
		a = b;
	else if ((code == SC_CSWAP && same) || (code == SC_CSWAP_NE && !same) ||
		 (code == SC_CSWAP_LE && (less || same)) || (code == SC_CSWAP_LT && less) ||
		 (code == SC_CSWAP_GE && !less) || (code == SC_CSWAP_GT && !less && !same))
		a = b;
	else if (code == SC_MSWAP)
		a = (b & c) | (a & ~c);
	memcpy(addr, &a, size);
}

#define REFERENCE_REAL(name, type)                                                                        \
	static void reference_##name(enum sc_atomic_code code, void *addr, const void *buf,               \
				     const void *compare)                                                 \
	{                                                                                                 \
		type a, b, c;                                                                             \
                                                                                                          \
		memcpy(&a, addr, sizeof(a));                                                              \
		memcpy(&b, buf, sizeof(b));                                                               \
		memcpy(&c, compare, sizeof(c));                                                           \
		if ((code == SC_MIN && isless(b, a)) || (code == SC_MAX && isgreater(b, a)) ||            \
		    code == SC_ATOMIC_WRITE || (code == SC_CSWAP && c == a) ||                            \
		    (code == SC_CSWAP_NE && !(c == a)) || (code == SC_CSWAP_LE && islessequal(c, a)) ||   \
		    (code == SC_CSWAP_LT && isless(c, a)) ||                                              \
		    (code == SC_CSWAP_GE && isgreaterequal(c, a)) ||                                      \
		    (code == SC_CSWAP_GT && isgreater(c, a)))                                             \
			a = b;                                                                            \
		else if (code == SC_SUM)                                                                  \
			a += b;                                                                           \
		else if (code == SC_PROD)                                                                 \
			a *= b;                                                                           \
		else if (code == SC_LOR)                                                                  \
			a = a != 0 || b != 0;                                                             \
		else if (code == SC_LAND)                                                                 \
			a = a != 0 && b != 0;                                                             \
		else if (code == SC_LXOR)                                                                 \
			a = (a != 0) != (b != 0);                                                         \
		memcpy(addr, &a, sizeof(a));                                                              \
	}

/* Complex numbers as pairs, and the product by hand. */
#define REFERENCE_COMPLEX(name, type)                                                                     \
	static void reference_##name(enum sc_atomic_code code, void *addr, const void *buf,               \
				     const void *compare)                                                 \
	{                                                                                                 \
		type a[2], b[2], c[2], product[2];                                                        \
		bool same, has_a, has_b, truth;                                                           \
                                                                                                          \
		memcpy(a, addr, sizeof(a));                                                               \
		memcpy(b, buf, sizeof(b));                                                                \
		memcpy(c, compare, sizeof(c));                                                            \
		same = c[0] == a[0] && c[1] == a[1];                                                      \
		has_a = a[0] != 0 || a[1] != 0;                                                           \
		has_b = b[0] != 0 || b[1] != 0;                                                           \
		truth = code == SC_LOR	  ? has_a || has_b                                                \
			: code == SC_LAND ? has_a && has_b                                                \
					  : has_a != has_b;                                               \
		product[0] = a[0] * b[0] - a[1] * b[1];                                                   \
		product[1] = a[0] * b[1] + a[1] * b[0];                                                   \
		if (code == SC_LOR || code == SC_LAND || code == SC_LXOR) {                               \
			a[0] = truth;                                                                     \
			a[1] = 0;                                                                         \
		} else if (code == SC_SUM) {                                                              \
			a[0] += b[0];                                                                     \
			a[1] += b[1];                                                                     \
		} else if (code == SC_PROD) {                                                             \
			memcpy(a, product, sizeof(a));                                                    \
		} else if (code == SC_ATOMIC_WRITE || (code == SC_CSWAP && same) ||                       \
			   (code == SC_CSWAP_NE && !same)) {                                              \
			memcpy(a, b, sizeof(a));                                                          \
		}                                                                                         \
		memcpy(addr, a, sizeof(a));                                                               \
	}

REFERENCE_REAL(float, float)
REFERENCE_REAL(double, double)
REFERENCE_REAL(long_double, long double)
REFERENCE_COMPLEX(float_complex, float)
REFERENCE_COMPLEX(double_complex, double)
REFERENCE_COMPLEX(long_double_complex, long double)

static void reference(enum sc_atomic_type type, enum sc_atomic_code code, void *addr, const void *buf,
		      const void *compare)
{
	switch (type) {
	case SC_FLOAT:
		reference_float(code, addr, buf, compare);
		break;
	case SC_DOUBLE:
		reference_double(code, addr, buf, compare);
		break;
	case SC_LONG_DOUBLE:
		reference_long_double(code, addr, buf, compare);
		break;
	case SC_FLOAT_COMPLEX:
		reference_float_complex(code, addr, buf, compare);
		break;
	case SC_DOUBLE_COMPLEX:
		reference_double_complex(code, addr, buf, compare);
		break;
	case SC_LONG_DOUBLE_COMPLEX:
		reference_long_double_complex(code, addr, buf, compare);
		break;
	default:
		reference_int(type, code, addr, buf, compare);
	}
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_real(enum sc_atomic_type type)
{
	return type == SC_FLOAT || type == SC_DOUBLE || type == SC_LONG_DOUBLE;
}

static bool is_complex(enum sc_atomic_type type)
{
	return type == SC_FLOAT_COMPLEX || type == SC_DOUBLE_COMPLEX || type == SC_LONG_DOUBLE_COMPLEX;
}

static void put_real(void *to, size_t size, long double value)
{
	float f = (float)value;
	double d = (double)value;

	memset(to, 0, size);
	memcpy(to, size == sizeof(f) ? (void *)&f : size == sizeof(d) ? (void *)&d : (void *)&value, size);
}

static long double get_real(const void *from, size_t size)
{
	float f;
	double d;
	long double l;

	memcpy(size == sizeof(f) ? (void *)&f : size == sizeof(d) ? (void *)&d : (void *)&l, from, size);
	return size == sizeof(f) ? f : size == sizeof(d) ? d : l;
}

static size_t int_values(char *values, size_t size)
{
	const wide ones = ~(wide)0, top = (wide)1 << (size * 8 - 1);
	const wide all[] = { 0,	      1,	  2,	      3,	ones,	      ones - 1,
			     top,     top - 1,	  top + 1,    ones / 3, ones / 3 * 2, 100,
			     top / 2, ones - 100, ones / 255, ones / 77 };

	for (size_t i = 0; i < VALUES_MAX; i++)
		memcpy(values + i * size, &all[i], size);
	return VALUES_MAX;
}

static size_t real_values(char *values, size_t size)
{
	const long double all[] = { 0.0L,     -0.0L,  1.0L,	-1.0L,	   0.5L,    -3.25L,
				    1e30L,    -1e30L, INFINITY, -INFINITY, FLT_MIN, FLT_MAX,
				    -FLT_MAX, NAN,    1e-40L,	7.0L };

	for (size_t i = 0; i < VALUES_MAX; i++)
		put_real(values + i * size, size, all[i]);
	return VALUES_MAX;
}

/* Not so large that products need the care of C's annex G, which the reference does not take. */
static size_t complex_values(char *values, size_t size)
{
	const long double all[][2] = {
		{ 0.0L, 0.0L }, { -0.0L, 0.0L }, { 0.0L, -0.0L },  { 1.0L, 0.0L },
		{ 0.0L, 1.0L }, { -1.0L, 2.0L }, { 0.5L, -3.25L }, { 1e9L, -1e9L },
		{ NAN, 0.0L },	{ 0.0L, NAN },	 { 3.0L, 4.0L },   { 1e-9L, 0.0L }
	};
	size_t count = sizeof(all) / sizeof(all[0]);

	for (size_t i = 0; i < count; i++) {
		put_real(values + i * size, size / 2, all[i][0]);
		put_real(values + i * size + size / 2, size / 2, all[i][1]);
	}
	return count;
}

static size_t values_of(enum sc_atomic_type type, char *values)
{
	size_t size = sc_atomic_size(type);

	if (is_complex(type))
		return complex_values(values, size);
	return is_real(type) ? real_values(values, size) : int_values(values, size);
}

/* Equal to the bit, but for the payload of NaNs and what pads a long double. */
static bool same_real(const void *a, const void *b, size_t size)
{
	long double x = get_real(a, size), y = get_real(b, size);

	return (isnan(x) && isnan(y)) || (x == y && !signbit(x) == !signbit(y));
}

static bool same(enum sc_atomic_type type, const char *a, const char *b)
{
	size_t size = sc_atomic_size(type), half = size / 2;

	if (is_real(type))
		return same_real(a, b, size);
	if (is_complex(type))
		return same_real(a, b, half) && same_real(a + half, b + half, half);
	return !memcmp(a, b, size);
}

/* ---- every operation ------------------------------------------------------------------------- */

#define GUARD 64

/* Elements of all combinations of values: what they are, are to become, and the arguments. */
struct trial {
	enum sc_atomic_kind kind;
	enum sc_atomic_type type;
	enum sc_atomic_code code;
	size_t size, count;
	char *before, *after, *operands, *compare; /* the latter two at odd addresses */
	char *target, *result;
};

static char *room_for(size_t len)
{
	char *room = aligned_alloc(64, (len + 63) / 64 * 64 + 2 * GUARD);

	assert_non_null(room);
	memset(room, 0xa5, len + 2 * GUARD);
	return room + GUARD;
}

static void trial_init(struct trial *trial)
{
	char values[VALUES_MAX * SIZE_MAX_OF_ALL];
	size_t size = trial->size = sc_atomic_size(trial->type), n = values_of(trial->type, values);
	size_t compares = trial->kind == SC_ATOMIC_COMPARE ? n : 1, len;

	trial->count = n * n * compares;
	len = trial->count * size;
	trial->before = room_for(len);
	trial->after = room_for(len);
	trial->operands = room_for(len + 1) + 1;
	trial->compare = room_for(len + 1) + 1;
	trial->target = room_for(len + size);
	trial->result = room_for(len + 1) + 1;
	for (size_t i = 0; i < trial->count; i++) {
		memcpy(trial->before + i * size, values + i % n * size, size);
		memcpy(trial->operands + i * size, values + i / n % n * size, size);
		memcpy(trial->compare + i * size, values + i / n / n * size, size);
	}
	memcpy(trial->after, trial->before, len);
	for (size_t i = 0; i < trial->count; i++)
		reference(trial->type, trial->code, trial->after + i * size, trial->operands + i * size,
			  trial->compare + i * size);
}

static void trial_fini(struct trial *trial)
{
	free(trial->before - GUARD);
	free(trial->after - GUARD);
	free(trial->operands - 1 - GUARD);
	free(trial->compare - 1 - GUARD);
	free(trial->target - GUARD);
	free(trial->result - 1 - GUARD);
}

static void check_elements(const struct trial *trial, const char *what, const char *is, const char *should)
{
	for (size_t i = 0; i < trial->count; i++) {
		if (!same(trial->type, is + i * trial->size, should + i * trial->size))
			fail_msg("kind %d type %d code %d: %s of element %zu", trial->kind, trial->type,
				 trial->code, what, i);
	}
}

static void check_guards(const char *room, size_t len)
{
	for (size_t i = 0; i < GUARD; i++) {
		assert_int_equal(*(room - GUARD + i), (char)0xa5);
		assert_int_equal(room[len + i], (char)0xa5);
	}
}

/* `shift`: of the target, bytes. In three pieces, one of them empty; `in_place`: results over operands. */
static void trial_run(struct trial *trial, size_t shift, bool in_place)
{
	size_t len = trial->count * trial->size, first = trial->size * 5;
	char *target = trial->target + shift, *operands = NULL;
	struct iovec pieces[] = { { target, first }, { target, 0 }, { target + first, len - first } };
	struct sc_atomicop op = { .kind = trial->kind, .type = trial->type, .code = trial->code };

	memcpy(target, trial->before, len);
	if (trial->code != SC_ATOMIC_READ)
		op.operands = trial->operands;
	if (in_place) {
		operands = malloc(len);
		assert_non_null(operands);
		op.operands = memcpy(operands, trial->operands, len);
	}
	if (trial->kind == SC_ATOMIC_COMPARE)
		op.compare = trial->compare;
	if (trial->kind != SC_ATOMIC_BASE)
		op.result = in_place ? operands : trial->result;
	assert_int_equal(sc_atomicop_apply(&op, pieces, 3), 0);
	check_elements(trial, "new value", target, trial->after);
	if (op.result)
		check_elements(trial, "former value", op.result, trial->before);
	if (!shift)
		check_guards(target, len + trial->size);
	check_guards(trial->result, len);
	free(operands);
}

static void test_every_operation(void **state)
{
	struct trial trial;
	unsigned int done = 0;

	(void)state;
	for (int kind = 0; kind <= SC_ATOMIC_COMPARE; kind++)
		for (int type = 0; type < SC_ATOMIC_TYPES; type++)
			for (int code = 0; code < SC_ATOMIC_CODES; code++) {
				if (!sc_atomic_valid(kind, type, code))
					continue;
				trial = (struct trial){ .kind = kind, .type = type, .code = code };
				trial_init(&trial);
				trial_run(&trial, 0, false);
				if (kind != SC_ATOMIC_BASE && code != SC_ATOMIC_READ)
					trial_run(&trial, 0, true);
				if (type == SC_FLOAT_COMPLEX)
					trial_run(&trial, 4, false);
				trial_fini(&trial);
				done++;
			}
	assert_int_equal(done, 10 * (11 + 12 + 7) + 3 * (8 + 9 + 6) + 3 * (6 + 7 + 2));
}

/* ---- what there is --------------------------------------------------------------------------- */

/* fi_atomic(3): which codes go with which kind and which type of numbers. */
static bool expect_valid(int kind, int type, int code)
{
	bool swap = code >= SC_CSWAP,
	     bits = code == SC_BOR || code == SC_BAND || code == SC_BXOR || code == SC_MSWAP;
	bool order = code == SC_MIN || code == SC_MAX || (code >= SC_CSWAP_LE && code <= SC_CSWAP_GT);

	if ((kind == SC_ATOMIC_COMPARE) != swap || (kind == SC_ATOMIC_BASE && code == SC_ATOMIC_READ))
		return false;
	if (is_complex(type))
		return !bits && !order;
	return !is_real(type) || !bits;
}

static void test_valid(void **state)
{
	static const int odd[] = { -1, INT_MIN, INT_MAX, 31, 32, 64, 256 };

	(void)state;
	for (int kind = 0; kind <= SC_ATOMIC_COMPARE; kind++)
		for (int type = 0; type < SC_ATOMIC_TYPES; type++)
			for (int code = 0; code < SC_ATOMIC_CODES; code++)
				assert_int_equal(sc_atomic_valid(kind, type, code),
						 expect_valid(kind, type, code));
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		assert_false(sc_atomic_valid(odd[i], SC_INT8, SC_SUM));
		assert_false(sc_atomic_valid(SC_ATOMIC_BASE, odd[i], SC_SUM));
		assert_false(sc_atomic_valid(SC_ATOMIC_BASE, SC_INT8, odd[i]));
		assert_int_equal(sc_atomic_size(odd[i]), 0);
	}
	assert_false(sc_atomic_valid(SC_ATOMIC_COMPARE + 1, SC_INT8, SC_CSWAP));
	assert_false(sc_atomic_valid(SC_ATOMIC_BASE, SC_ATOMIC_TYPES, SC_SUM));
	assert_false(sc_atomic_valid(SC_ATOMIC_COMPARE, SC_INT8, SC_ATOMIC_CODES));
	assert_int_equal(sc_atomic_size(SC_ATOMIC_TYPES), 0);
}

static void test_sizes(void **state)
{
	static const size_t sizes[SC_ATOMIC_TYPES] = { 1,
						       1,
						       2,
						       2,
						       4,
						       4,
						       8,
						       8,
						       sizeof(float),
						       sizeof(double),
						       2 * sizeof(float),
						       2 * sizeof(double),
						       sizeof(long double),
						       2 * sizeof(long double),
						       16,
						       16 };

	(void)state;
	for (int type = 0; type < SC_ATOMIC_TYPES; type++)
		assert_int_equal(sc_atomic_size(type), sizes[type]);
}

/* Misaligned, or an element in two pieces, or no such operation: nothing is done, to no piece. */
static void test_refused(void **state)
{
	_Alignas(64) char memory[128], operands[128], result[128], zeros[128] = { 0 };

	(void)state;
	memset(operands, 0xff, sizeof(operands));
	memset(result, 0, sizeof(result));
	memset(memory, 0, sizeof(memory));
	for (int type = 0; type < SC_ATOMIC_TYPES; type++) {
		size_t size = sc_atomic_size(type);
		struct sc_atomicop op = { SC_ATOMIC_FETCH, type, SC_ATOMIC_WRITE, operands, NULL, result };
		struct iovec bad[] = { { memory, size }, { memory + size + size / 8 + 1, size } };
		struct iovec torn[] = { { memory, size },
					{ memory + size, size / 2 },
					{ memory + 64, size - size / 2 } };

		if (size > 1) {
			assert_int_equal(sc_atomicop_apply(&op, bad, 2), -EINVAL);
			assert_int_equal(sc_atomicop_apply(&op, torn, 3), -EINVAL);
		}
		op.code = SC_CSWAP;
		assert_int_equal(sc_atomicop_apply(&op, torn, 1), -EOPNOTSUPP);
		op.type = SC_ATOMIC_TYPES;
		assert_int_equal(sc_atomicop_apply(&op, torn, 1), -EOPNOTSUPP);
	}
	assert_memory_equal(memory, zeros, sizeof(memory));
	assert_memory_equal(result, zeros, sizeof(result));
}

/* A read needs no more than memory that can be read, whatever the type. */
static void test_read_only(void **state)
{
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char result[SIZE_MAX_OF_ALL];

	(void)state;
	assert_ptr_not_equal(page, MAP_FAILED);
	for (int type = 0; type < SC_ATOMIC_TYPES; type++) {
		struct sc_atomicop op = { SC_ATOMIC_FETCH, type, SC_ATOMIC_READ, NULL, NULL, result };
		struct iovec target = { page, sc_atomic_size(type) };

		memset(result, 1, sizeof(result));
		assert_int_equal(sc_atomicop_apply(&op, &target, 1), 0);
		assert_memory_equal(result, page, target.iov_len);
	}
	munmap(page, 4096);
}

/* ---- contention ------------------------------------------------------------------------------ */

#define THREADS 4
#define ROUNDS 20000

/* The threads of a test share these. */
static _Alignas(64) char shared[64];
static uint64_t *fetched; /* THREADS * ROUNDS */
static enum sc_atomic_type shared_type;

static void apply_one(enum sc_atomic_kind kind, enum sc_atomic_type type, enum sc_atomic_code code,
		      void *target, const void *operand, const void *compare, void *result)
{
	struct sc_atomicop op = { kind, type, code, operand, compare, result };
	struct iovec piece = { target, sc_atomic_size(type) };

	if (sc_atomicop_apply(&op, &piece, 1))
		abort();
}

static void run_threads(void *(*body)(void *))
{
	pthread_t ids[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, body, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void check_each_once(void)
{
	qsort(fetched, THREADS * ROUNDS, sizeof(*fetched), by_value);
	for (uint64_t i = 0; i < THREADS * ROUNDS; i++)
		assert_int_equal(fetched[i], i);
}

/* Every other thread by the processor's own instruction. */
static void *add_threads(void *arg)
{
	uintptr_t self = (uintptr_t)arg;
	uint64_t one = 1, old = 0;
	uint32_t old32 = 0;

	for (size_t i = 0; i < ROUNDS; i++) {
		if (shared_type == SC_UINT32 && self % 2) {
			old = __atomic_fetch_add((uint32_t *)shared, 1, __ATOMIC_RELAXED);
		} else if (shared_type == SC_UINT32) {
			apply_one(SC_ATOMIC_FETCH, SC_UINT32, SC_SUM, shared, &one, NULL, &old32);
			old = old32;
		} else if (self % 2) {
			old = __atomic_fetch_add((uint64_t *)shared, 1, __ATOMIC_RELAXED);
		} else {
			apply_one(SC_ATOMIC_FETCH, SC_UINT64, SC_SUM, shared, &one, NULL, &old);
		}
		fetched[self * ROUNDS + i] = old;
	}
	return NULL;
}

static void test_contended_sum(void **state)
{
	static const enum sc_atomic_type types[] = { SC_UINT32, SC_UINT64 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		memset(shared, 0, sizeof(shared));
		shared_type = types[i];
		run_threads(add_threads);
		check_each_once();
	}
}

/* Increments by CSWAP, and by the processor's; the value wraps. */
static void *swap_threads(void *arg)
{
	uintptr_t self = (uintptr_t)arg;

	for (size_t i = 0; i < ROUNDS; i++) {
		uint16_t seen = __atomic_load_n((uint16_t *)shared, __ATOMIC_RELAXED), old, next;

		if (self % 2) {
			__atomic_fetch_add((uint16_t *)shared, 1, __ATOMIC_RELAXED);
			continue;
		}
		for (;; seen = old) {
			next = (uint16_t)(seen + 1);
			apply_one(SC_ATOMIC_COMPARE, SC_UINT16, SC_CSWAP, shared, &next, &seen, &old);
			if (old == seen)
				break;
		}
	}
	return NULL;
}

static void test_contended_swap(void **state)
{
	uint16_t value;

	(void)state;
	memset(shared, 0, sizeof(shared));
	run_threads(swap_threads);
	memcpy(&value, shared, sizeof(value));
	assert_int_equal(value, (uint16_t)(THREADS * ROUNDS));
	assert_int_equal(shared[2], 0);
}

/* Towards lower values, in loops (MIN) and by the processor's compare and swap: never up again. */
static void *min_threads(void *arg)
{
	uintptr_t self = (uintptr_t)arg;
	int32_t last = INT32_MAX;

	for (int32_t i = 0; i < ROUNDS; i++) {
		int32_t mine = -(i * THREADS + (int32_t)self), old;

		if (self % 2) {
			old = __atomic_load_n((int32_t *)shared, __ATOMIC_RELAXED);
			while (mine < old &&
			       !__atomic_compare_exchange_n((int32_t *)shared, &old, mine, false,
							    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
				;
		} else {
			apply_one(SC_ATOMIC_FETCH, SC_INT32, SC_MIN, shared, &mine, NULL, &old);
		}
		if (old > last)
			return "went up";
		last = old < mine ? old : mine;
	}
	return NULL;
}

static void test_contended_min(void **state)
{
	pthread_t ids[THREADS];
	int32_t value;

	(void)state;
	memset(shared, 0, sizeof(shared));
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, min_threads, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		void *error;

		pthread_join(ids[i], &error);
		assert_null(error);
	}
	memcpy(&value, shared, sizeof(value));
	assert_int_equal(value, -((ROUNDS - 1) * THREADS + THREADS - 1));
}

/* Sums of small whole numbers are exact in all types; the threads fetch each sum once. */
static void *sum_threads(void *arg)
{
	uintptr_t self = (uintptr_t)arg;
	size_t size = sc_atomic_size(shared_type);
	char one[SIZE_MAX_OF_ALL] = { 1 }, old[SIZE_MAX_OF_ALL];

	if (is_real(shared_type))
		put_real(one, size, 1);
	if (is_complex(shared_type)) {
		put_real(one, size / 2, 1);
		put_real(one + size / 2, size / 2, 1);
	}
	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t seen = 0;

		apply_one(SC_ATOMIC_FETCH, shared_type, SC_SUM,
			  shared + 4 * (shared_type == SC_FLOAT_COMPLEX), one, NULL, old);
		if (is_real(shared_type))
			seen = (uint64_t)get_real(old, size);
		else if (is_complex(shared_type))
			seen = (uint64_t)get_real(old + size / 2, size / 2);
		else
			memcpy(&seen, old, sizeof(seen));
		fetched[self * ROUNDS + i] = seen;
	}
	return NULL;
}

static void test_contended_types(void **state)
{
	static const enum sc_atomic_type types[] = { SC_FLOAT,		SC_DOUBLE,
						     SC_LONG_DOUBLE,	SC_FLOAT_COMPLEX,
						     SC_DOUBLE_COMPLEX, SC_LONG_DOUBLE_COMPLEX,
						     SC_INT128,		SC_UINT128 };

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		memset(shared, 0, sizeof(shared));
		shared_type = types[i];
		run_threads(sum_threads);
		check_each_once();
	}
}

/* The double is added to by one thread's loop around CSWAP, and by the operation SUM of the others. */
static void *double_threads(void *arg)
{
	double one = 1, old, next;
	uint64_t seen, bits;

	for (size_t i = 0; i < ROUNDS; i++) {
		if ((uintptr_t)arg % 2) {
			apply_one(SC_ATOMIC_BASE, SC_DOUBLE, SC_SUM, shared, &one, NULL, NULL);
			continue;
		}
		seen = __atomic_load_n((uint64_t *)shared, __ATOMIC_RELAXED);
		do {
			memcpy(&old, &seen, sizeof(old));
			next = old + 1;
			memcpy(&bits, &next, sizeof(bits));
		} while (!__atomic_compare_exchange_n((uint64_t *)shared, &seen, bits, false,
						      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	}
	return NULL;
}

static void test_contended_double(void **state)
{
	double value;

	(void)state;
	memset(shared, 0, sizeof(shared));
	run_threads(double_threads);
	memcpy(&value, shared, sizeof(value));
	assert_true(value == (double)THREADS * ROUNDS);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static bool stop;

static void *keep_locking(void *arg)
{
	long double values[256] = { 0 };
	struct sc_atomicop op = { SC_ATOMIC_BASE, SC_LONG_DOUBLE, SC_SUM, values, NULL, NULL };
	struct iovec target = { arg, sizeof(values) };

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		if (sc_atomicop_apply(&op, &target, 1))
			abort();
	return NULL;
}

static void lock_in_child(struct child *self, void *arg)
{
	long double one = 1, target = 1;

	(void)self;
	(void)arg;
	apply_one(SC_ATOMIC_BASE, SC_LONG_DOUBLE, SC_SUM, &target, &one, NULL, NULL);
	CHILD_CHECK(target == 2);
}

/* A child that is made while another thread is under the lock can do operations of its own. */
static void test_fork(void **state)
{
	static long double memory[256];
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, keep_locking, memory), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(child_run(lock_in_child, NULL), 0);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}

static int setup(void **state)
{
	(void)state;
	fetched = calloc(THREADS * ROUNDS, sizeof(*fetched));
	return fetched ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(fetched);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_operation),
		cmocka_unit_test(test_valid),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_contended_sum),
		cmocka_unit_test(test_contended_swap),
		cmocka_unit_test(test_contended_min),
		cmocka_unit_test(test_contended_types),
		cmocka_unit_test(test_contended_double),
		cmocka_unit_test(test_fork),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
