/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * atomicop.c: carries out an atomic operation on memory of this process.
 *
 * Owns nothing but a lock. Any thread may call it, and several threads at once may work on the same memory. The target
 * belongs to the application: the caller has checked that this process may access it, and a fault there is a fault of
 * this process. No other process sees anything of this file: if an initiator dies, each element is done or not done.
 *
 * The meaning of "atomic", for one element (fi_atomic(3) promises no more):
 *
 *   integers of 8 to 64 bits, float, double,      one atomic instruction of the processor, or a loop around
 *   float complex on an address of 8 bytes        compare-and-swap: atomic to all that do the same, also to the
 *                                                 program's own atomics and to other processes
 *   128 bits, long double, wider complex types,   under a lock of this process: atomic to all that comes
 *   float complex on an address of 4 bytes only   through here, not to the program's own accesses
 *
 * Values are compared as their type, as fi_atomic(3) writes it: -0.0 equals 0.0, and NaN equals, precedes and follows
 * nothing. Integers wrap. SC_ATOMIC_READ only loads, so it works on memory that this process cannot write.
 *
 * Order: sequentially consistent. The application may use the words together with others of its own, and C11 promises
 * this order for atomics unless told otherwise. On x86 it costs nothing: all such instructions have it.
 */
#include "base/atomicop.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/fault.h"

_Static_assert(__atomic_always_lock_free(8, 0), "the processor has atomics of 64 bits");

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;
typedef float _Complex float_complex;
typedef double _Complex double_complex;
typedef long double long_double;
typedef long double _Complex long_double_complex;

/* Memory whose type only the application knows. */
typedef uint8_t __attribute__((may_alias)) word8;
typedef uint16_t __attribute__((may_alias)) word16;
typedef uint32_t __attribute__((may_alias)) word32;
typedef uint64_t __attribute__((may_alias)) word64;

/* The unused rest of an operation's buffers; NULL: the operation has no such buffer. */
struct cursor {
	const char *operands, *compare;
	char *result;
};

static inline void take(const char **from, void *to, size_t size)
{
	if (!*from)
		return;
	memcpy(to, *from, size);
	*from += size;
}

static inline void put(char **to, const void *from, size_t size)
{
	if (!*to)
		return;
	memcpy(*to, from, size);
	*to += size;
}

/* ---- one element: fi_atomic(3) in C ---------------------------------------------------------- */

/*
 * next_<type>(): gets the element as it is, and the operand in *value. Returns whether the element is replaced; *value
 * is then its new value.
 */
#define EVERY_CASES                                                                                       \
	default: /* SC_ATOMIC_READ */                                                                     \
		return false;                                                                             \
	case SC_ATOMIC_WRITE:                                                                             \
		return true;                                                                              \
	case SC_LOR:                                                                                      \
		*value = old || *value;                                                                   \
		return true;                                                                              \
	case SC_LAND:                                                                                     \
		*value = old && *value;                                                                   \
		return true;                                                                              \
	case SC_LXOR:                                                                                     \
		*value = !old != !*value;                                                                 \
		return true;                                                                              \
	case SC_CSWAP:                                                                                    \
		return compare == old;                                                                    \
	case SC_CSWAP_NE:                                                                                 \
		return compare != old;

#define ORDERED_CASES                                                                                     \
	case SC_MIN:                                                                                      \
		return *value < old;                                                                      \
	case SC_MAX:                                                                                      \
		return *value > old;                                                                      \
	case SC_CSWAP_LE:                                                                                 \
		return compare <= old;                                                                    \
	case SC_CSWAP_LT:                                                                                 \
		return compare < old;                                                                     \
	case SC_CSWAP_GE:                                                                                 \
		return compare >= old;                                                                    \
	case SC_CSWAP_GT:                                                                                 \
		return compare > old;

/* `wide`: an unsigned type in which sums and products wrap, because small types are promoted to int. */
#define INTEGER_CASES(ctype, wide)                                                                        \
	case SC_SUM:                                                                                      \
		*value = (ctype)((wide)old + (wide)*value);                                               \
		return true;                                                                              \
	case SC_PROD:                                                                                     \
		*value = (ctype)((wide)old * (wide)*value);                                               \
		return true;                                                                              \
	case SC_BOR:                                                                                      \
		*value |= old;                                                                            \
		return true;                                                                              \
	case SC_BAND:                                                                                     \
		*value &= old;                                                                            \
		return true;                                                                              \
	case SC_BXOR:                                                                                     \
		*value ^= old;                                                                            \
		return true;                                                                              \
	case SC_MSWAP:                                                                                    \
		*value = (ctype)((*value & compare) | (old & ~compare));                                  \
		return true;

#define FLOATING_CASES                                                                                    \
	case SC_SUM:                                                                                      \
		*value = old + *value;                                                                    \
		return true;                                                                              \
	case SC_PROD:                                                                                     \
		*value = old * *value;                                                                    \
		return true;

#define DEFINE_NEXT(name, ctype, cases)                                                                   \
	static inline bool next_##name(enum sc_atomic_code code, ctype old, ctype compare, ctype *value)  \
	{                                                                                                 \
		switch (code) {                                                                           \
			cases                                                                             \
		}                                                                                         \
	}

/*
 * reduce_<type>(): for memory that only this caller uses. The three codes of most reductions have a loop each, without
 * other codes in it.
 */
#define DEFINE_REDUCE(name, ctype)                                                                        \
	static inline __attribute__((always_inline)) void each_##name(                                    \
		enum sc_atomic_code code, char *target, const char *operands, size_t count)               \
	{                                                                                                 \
		ctype old, value;                                                                         \
                                                                                                          \
		for (size_t at = 0; at < count * sizeof(ctype); at += sizeof(ctype)) {                    \
			memcpy(&old, target + at, sizeof(old));                                           \
			memcpy(&value, operands + at, sizeof(value));                                     \
			if (next_##name(code, old, 0, &value))                                            \
				memcpy(target + at, &value, sizeof(value));                               \
		}                                                                                         \
	}                                                                                                 \
	static void reduce_##name(enum sc_atomic_code code, char *target, const char *operands,           \
				  size_t count)                                                           \
	{                                                                                                 \
		switch (code) {                                                                           \
		case SC_SUM:                                                                              \
			each_##name(SC_SUM, target, operands, count);                                     \
			return;                                                                           \
		case SC_MIN:                                                                              \
			each_##name(SC_MIN, target, operands, count);                                     \
			return;                                                                           \
		case SC_MAX:                                                                              \
			each_##name(SC_MAX, target, operands, count);                                     \
			return;                                                                           \
		default:                                                                                  \
			each_##name(code, target, operands, count);                                       \
		}                                                                                         \
	}

#define DEFINE_TYPE(name, ctype, cases)                                                                   \
	DEFINE_NEXT(name, ctype, cases)                                                                   \
	DEFINE_REDUCE(name, ctype)
#define DEFINE_INTEGER(name, ctype, wide)                                                                 \
	DEFINE_TYPE(name, ctype, EVERY_CASES ORDERED_CASES INTEGER_CASES(ctype, wide))
#define DEFINE_REAL(name, ctype) DEFINE_TYPE(name, ctype, EVERY_CASES ORDERED_CASES FLOATING_CASES)
#define DEFINE_COMPLEX(name, ctype) DEFINE_TYPE(name, ctype, EVERY_CASES FLOATING_CASES)

DEFINE_INTEGER(int8, int8_t, uint64_t)
DEFINE_INTEGER(uint8, uint8_t, uint64_t)
DEFINE_INTEGER(int16, int16_t, uint64_t)
DEFINE_INTEGER(uint16, uint16_t, uint64_t)
DEFINE_INTEGER(int32, int32_t, uint64_t)
DEFINE_INTEGER(uint32, uint32_t, uint64_t)
DEFINE_INTEGER(int64, int64_t, uint64_t)
DEFINE_INTEGER(uint64, uint64_t, uint64_t)
DEFINE_INTEGER(int128, int128, uint128)
DEFINE_INTEGER(uint128, uint128, uint128)
DEFINE_REAL(float, float)
DEFINE_REAL(double, double)
DEFINE_REAL(long_double, long_double)
DEFINE_COMPLEX(float_complex, float_complex)
DEFINE_COMPLEX(double_complex, double_complex)
DEFINE_COMPLEX(long_double_complex, long_double_complex)

/* ---- by the processor ------------------------------------------------------------------------ */

/*
 * Operations that need no loop, the same for signed and unsigned integers. False: the processor has no such
 * instruction.
 */
#define DEFINE_DIRECT(bits)                                                                               \
	static inline bool direct_##bits(enum sc_atomic_code code, word##bits *target,                    \
					 uint##bits##_t operand, uint##bits##_t compare,                  \
					 uint##bits##_t *old)                                             \
	{                                                                                                 \
		switch (code) {                                                                           \
		case SC_SUM:                                                                              \
			*old = __atomic_fetch_add(target, operand, __ATOMIC_SEQ_CST);                     \
			return true;                                                                      \
		case SC_BOR:                                                                              \
			*old = __atomic_fetch_or(target, operand, __ATOMIC_SEQ_CST);                      \
			return true;                                                                      \
		case SC_BAND:                                                                             \
			*old = __atomic_fetch_and(target, operand, __ATOMIC_SEQ_CST);                     \
			return true;                                                                      \
		case SC_BXOR:                                                                             \
			*old = __atomic_fetch_xor(target, operand, __ATOMIC_SEQ_CST);                     \
			return true;                                                                      \
		case SC_ATOMIC_WRITE:                                                                     \
			*old = __atomic_exchange_n(target, operand, __ATOMIC_SEQ_CST);                    \
			return true;                                                                      \
		case SC_CSWAP:                                                                            \
			*old = compare;                                                                   \
			(void)__atomic_compare_exchange_n(target, old, operand, false, __ATOMIC_SEQ_CST,  \
							  __ATOMIC_SEQ_CST);                              \
			return true;                                                                      \
		default:                                                                                  \
			return false;                                                                     \
		}                                                                                         \
	}

DEFINE_DIRECT(8)
DEFINE_DIRECT(16)
DEFINE_DIRECT(32)
DEFINE_DIRECT(64)

/*
 * run_<type>(): applies the operation to `count` elements. Of floating point only a write needs no loop: CSWAP compares
 * values, not bits.
 */
#define DEFINE_RUN(name, ctype, bits, integer)                                                            \
	static uint##bits##_t loop_##name(enum sc_atomic_code code, word##bits *target,                   \
					  uint##bits##_t operand, uint##bits##_t compare)                 \
	{                                                                                                 \
		uint##bits##_t old = __atomic_load_n(target, __ATOMIC_SEQ_CST), new;                      \
		ctype was, other, value;                                                                  \
                                                                                                          \
		memcpy(&other, &compare, sizeof(other));                                                  \
		do {                                                                                      \
			memcpy(&was, &old, sizeof(was));                                                  \
			memcpy(&value, &operand, sizeof(value));                                          \
			if (!next_##name(code, was, other, &value))                                       \
				break;                                                                    \
			memcpy(&new, &value, sizeof(new));                                                \
		} while (!__atomic_compare_exchange_n(target, &old, new, false, __ATOMIC_SEQ_CST,         \
						      __ATOMIC_SEQ_CST));                                 \
		return old;                                                                               \
	}                                                                                                 \
	static void run_##name(enum sc_atomic_code code, struct cursor *at, void *memory, size_t count)   \
	{                                                                                                 \
		bool direct = integer || code == SC_ATOMIC_WRITE;                                         \
		uint##bits##_t operand = 0, compare = 0, old;                                             \
                                                                                                          \
		for (word##bits *target = memory; count; target++, count--) {                             \
			take(&at->operands, &operand, sizeof(operand));                                   \
			take(&at->compare, &compare, sizeof(compare));                                    \
			if (!direct || !direct_##bits(code, target, operand, compare, &old))              \
				old = loop_##name(code, target, operand, compare);                        \
			put(&at->result, &old, sizeof(old));                                              \
		}                                                                                         \
	}

DEFINE_RUN(int8, int8_t, 8, true)
DEFINE_RUN(uint8, uint8_t, 8, true)
DEFINE_RUN(int16, int16_t, 16, true)
DEFINE_RUN(uint16, uint16_t, 16, true)
DEFINE_RUN(int32, int32_t, 32, true)
DEFINE_RUN(uint32, uint32_t, 32, true)
DEFINE_RUN(int64, int64_t, 64, true)
DEFINE_RUN(uint64, uint64_t, 64, true)
DEFINE_RUN(float, float, 32, false)
DEFINE_RUN(double, double, 64, false)
DEFINE_RUN(float_complex, float_complex, 64, false)

/* ---- under the lock -------------------------------------------------------------------------- */

/* Held for one piece, which is at most SC_ATOMIC_MAX bytes. It stays here: this room does not know proc/process.h. */
static struct {
	pthread_mutex_t mutex;
	pthread_once_t once;
} lock = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_ONCE_INIT };

/*
 * A child that is forked while another thread holds the lock would find it held for ever. The lock guards only memory
 * of the application. It is not taken around fork(2): a thread that holds it may hold other locks.
 */
static void atfork_child(void)
{
	pthread_mutex_init(&lock.mutex, NULL);
}

static void watch_forks(void)
{
	(void)SC_TRY("atomicop.atfork", pthread_atfork(NULL, NULL, atfork_child));
}

static void acquire(void)
{
	pthread_once(&lock.once, watch_forks);
	pthread_mutex_lock(&lock.mutex);
}

/* locked_<type>(): the same as run_<type>(), for types without processor instructions. */
#define DEFINE_LOCKED(name, ctype)                                                                        \
	static void locked_##name(enum sc_atomic_code code, struct cursor *at, void *memory,              \
				  size_t count)                                                           \
	{                                                                                                 \
		ctype old, compare = 0, value = 0;                                                        \
                                                                                                          \
		acquire();                                                                                \
		for (char *target = memory; count; target += sizeof(ctype), count--) {                    \
			take(&at->operands, &value, sizeof(value));                                       \
			take(&at->compare, &compare, sizeof(compare));                                    \
			memcpy(&old, target, sizeof(old));                                                \
			if (next_##name(code, old, compare, &value))                                      \
				memcpy(target, &value, sizeof(value));                                    \
			put(&at->result, &old, sizeof(old));                                              \
		}                                                                                         \
		pthread_mutex_unlock(&lock.mutex);                                                        \
	}

DEFINE_LOCKED(int128, int128)
DEFINE_LOCKED(uint128, uint128)
DEFINE_LOCKED(long_double, long_double)
DEFINE_LOCKED(float_complex, float_complex)
DEFINE_LOCKED(double_complex, double_complex)
DEFINE_LOCKED(long_double_complex, long_double_complex)

/*
 * In C the type is two floats with their alignment. One element is always done the same way, so both ways together are
 * as atomic as each.
 */
static void either_float_complex(enum sc_atomic_code code, struct cursor *at, void *memory, size_t count)
{
	if ((uintptr_t)memory % sizeof(word64))
		locked_float_complex(code, at, memory, count);
	else
		run_float_complex(code, at, memory, count);
}

/* ---- what there is --------------------------------------------------------------------------- */

#define CODE(code) (1u << (code))

#define SWAPS (CODE(SC_CSWAP) | CODE(SC_CSWAP_NE))
#define ORDERED_SWAPS (CODE(SC_CSWAP_LE) | CODE(SC_CSWAP_LT) | CODE(SC_CSWAP_GE) | CODE(SC_CSWAP_GT))
#define BITWISE (CODE(SC_BOR) | CODE(SC_BAND) | CODE(SC_BXOR))

#define COMPLEX                                                                                           \
	(CODE(SC_SUM) | CODE(SC_PROD) | CODE(SC_LOR) | CODE(SC_LAND) | CODE(SC_LXOR) |                    \
	 CODE(SC_ATOMIC_READ) | CODE(SC_ATOMIC_WRITE) | SWAPS)
#define REAL (COMPLEX | CODE(SC_MIN) | CODE(SC_MAX) | ORDERED_SWAPS)
#define INTEGER (REAL | BITWISE | CODE(SC_MSWAP))

#define COMPARES (SWAPS | ORDERED_SWAPS | CODE(SC_MSWAP))
#define FETCHES (INTEGER & ~COMPARES)

static const uint32_t kinds[] = {
	[SC_ATOMIC_BASE] = FETCHES & ~CODE(SC_ATOMIC_READ),
	[SC_ATOMIC_FETCH] = FETCHES,
	[SC_ATOMIC_COMPARE] = COMPARES,
};

/*
 * align: for types that the processor does, the alignment that it needs; else that of C. A program whose compiler has
 * no 128-bit type may use two words of 64 bits.
 */
static const struct {
	void (*run)(enum sc_atomic_code code, struct cursor *at, void *memory, size_t count);
	void (*reduce)(enum sc_atomic_code code, char *target, const char *operands, size_t count);
	uint32_t codes;
	uint16_t size, align;
} types[] = {
	[SC_INT8] = { run_int8, reduce_int8, INTEGER, 1, 1 },
	[SC_UINT8] = { run_uint8, reduce_uint8, INTEGER, 1, 1 },
	[SC_INT16] = { run_int16, reduce_int16, INTEGER, 2, 2 },
	[SC_UINT16] = { run_uint16, reduce_uint16, INTEGER, 2, 2 },
	[SC_INT32] = { run_int32, reduce_int32, INTEGER, 4, 4 },
	[SC_UINT32] = { run_uint32, reduce_uint32, INTEGER, 4, 4 },
	[SC_INT64] = { run_int64, reduce_int64, INTEGER, 8, 8 },
	[SC_UINT64] = { run_uint64, reduce_uint64, INTEGER, 8, 8 },
	[SC_FLOAT] = { run_float, reduce_float, REAL, 4, 4 },
	[SC_DOUBLE] = { run_double, reduce_double, REAL, 8, 8 },
	[SC_FLOAT_COMPLEX] = { either_float_complex, reduce_float_complex, COMPLEX, 8, 4 },
	[SC_DOUBLE_COMPLEX] = { locked_double_complex, reduce_double_complex, COMPLEX, 16, 8 },
	[SC_LONG_DOUBLE] = { locked_long_double, reduce_long_double, REAL, sizeof(long_double),
			     _Alignof(long_double) },
	[SC_LONG_DOUBLE_COMPLEX] = { locked_long_double_complex, reduce_long_double_complex, COMPLEX,
				     sizeof(long_double_complex), _Alignof(long_double_complex) },
	[SC_INT128] = { locked_int128, reduce_int128, INTEGER, 16, 8 },
	[SC_UINT128] = { locked_uint128, reduce_uint128, INTEGER, 16, 8 },
};

_Static_assert(sizeof(types) / sizeof(types[0]) == SC_ATOMIC_TYPES, "every type");
_Static_assert(SC_ATOMIC_CODES <= 32, "a set of codes");

size_t sc_atomic_size(enum sc_atomic_type type)
{
	return (unsigned int)type < SC_ATOMIC_TYPES ? types[type].size : 0;
}

bool sc_atomic_valid(enum sc_atomic_kind kind, enum sc_atomic_type type, enum sc_atomic_code code)
{
	return (unsigned int)kind <= SC_ATOMIC_COMPARE && (unsigned int)type < SC_ATOMIC_TYPES &&
	       (unsigned int)code < SC_ATOMIC_CODES && kinds[kind] & types[type].codes & CODE(code);
}

static bool whole_elements(enum sc_atomic_type type, const struct iovec *target, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if ((uintptr_t)target[i].iov_base % types[type].align ||
		    target[i].iov_len % types[type].size)
			return false;
	}
	return true;
}

int sc_atomicop_apply(const struct sc_atomicop *op, const struct iovec *target, size_t target_count)
{
	struct cursor at = {
		.operands = op->code == SC_ATOMIC_READ ? NULL : op->operands,
		.compare = op->kind == SC_ATOMIC_COMPARE ? op->compare : NULL,
		.result = op->kind == SC_ATOMIC_BASE ? NULL : op->result,
	};

	if (!sc_atomic_valid(op->kind, op->type, op->code))
		return -EOPNOTSUPP;
	if (!whole_elements(op->type, target, target_count))
		return -EINVAL;
	for (size_t i = 0; i < target_count; i++)
		types[op->type].run(op->code, &at, target[i].iov_base,
				    target[i].iov_len / types[op->type].size);
	return 0;
}

int sc_atomic_reduce(enum sc_atomic_type type, enum sc_atomic_code code, void *target,
		     const void *operands, size_t count)
{
	if (!sc_atomic_valid(SC_ATOMIC_BASE, type, code))
		return -EOPNOTSUPP;
	types[type].reduce(code, target, operands, count);
	return 0;
}
