/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_atomic.c: fi_atomic(3) and fi_query_atomic(3): every operation, inside one process and between
 * processes; calls that are refused, with their errors; many processes on one word.
 */
#include "pair.h"
#include <rdma/fi_atomic.h>

#define CAPS (FI_MSG | FI_RMA | FI_ATOMIC | FI_FENCE)

enum kind { BASE, FETCH, COMPARE, KINDS };
enum { TYPES = FI_UINT128 + 1, OPS = FI_MSWAP + 1, SIZE_LARGEST = 32, BYTES_LIMIT = 4096 };

static const size_t sizes[TYPES] = {
	[FI_INT8] = 1,
	[FI_UINT8] = 1,
	[FI_INT16] = 2,
	[FI_UINT16] = 2,
	[FI_INT32] = 4,
	[FI_UINT32] = 4,
	[FI_INT64] = 8,
	[FI_UINT64] = 8,
	[FI_FLOAT] = sizeof(float),
	[FI_DOUBLE] = sizeof(double),
	[FI_FLOAT_COMPLEX] = sizeof(float _Complex),
	[FI_DOUBLE_COMPLEX] = sizeof(double _Complex),
	[FI_LONG_DOUBLE] = sizeof(long double),
	[FI_LONG_DOUBLE_COMPLEX] = sizeof(long double _Complex),
	[FI_INT128] = 16,
	[FI_UINT128] = 16,
};

/* ---- numbers --------------------------------------------------------------------------------- */

static bool is_real(int type)
{
	return type == FI_FLOAT || type == FI_DOUBLE || type == FI_LONG_DOUBLE;
}

static bool is_complex(int type)
{
	return type == FI_FLOAT_COMPLEX || type == FI_DOUBLE_COMPLEX || type == FI_LONG_DOUBLE_COMPLEX;
}

/* A whole number that is not negative, as that type has it; the rest of an element is 0. */
static void encode(int type, void *to, uint64_t value)
{
	size_t size = sizes[type] / (is_complex(type) ? 2 : 1);
	long double l = (long double)value;
	double d = (double)value;
	float f = (float)value;

	memset(to, 0, sizes[type]);
	if (!is_real(type) && !is_complex(type))
		memcpy(to, &value, size < sizeof(value) ? size : sizeof(value));
	else if (size == sizeof(f))
		memcpy(to, &f, size);
	else if (size == sizeof(d))
		memcpy(to, &d, size);
	else
		memcpy(to, &l, size);
}

static uint64_t decode(int type, const void *from)
{
	size_t size = sizes[type] / (is_complex(type) ? 2 : 1);
	uint64_t value = 0;
	long double l;
	double d;
	float f;

	if (!is_real(type) && !is_complex(type)) {
		memcpy(&value, from, size < sizeof(value) ? size : sizeof(value));
		return value;
	}
	if (size == sizeof(f)) {
		memcpy(&f, from, size);
		return (uint64_t)f;
	}
	if (size == sizeof(d)) {
		memcpy(&d, from, size);
		return (uint64_t)d;
	}
	memcpy(&l, from, size);
	return (uint64_t)l;
}

/* fi_atomic(3), for small whole numbers: addr[i] afterwards. */
static uint64_t outcome(int op, uint64_t addr, uint64_t buf, uint64_t compare)
{
	switch (op) {
	case FI_MIN:
		return buf < addr ? buf : addr;
	case FI_MAX:
		return buf > addr ? buf : addr;
	case FI_SUM:
		return addr + buf;
	case FI_PROD:
		return addr * buf;
	case FI_LOR:
		return addr || buf;
	case FI_LAND:
		return addr && buf;
	case FI_BOR:
		return addr | buf;
	case FI_BAND:
		return addr & buf;
	case FI_LXOR:
		return (addr && !buf) || (!addr && buf);
	case FI_BXOR:
		return addr ^ buf;
	case FI_ATOMIC_WRITE:
		return buf;
	case FI_CSWAP:
		return compare == addr ? buf : addr;
	case FI_CSWAP_NE:
		return compare != addr ? buf : addr;
	case FI_CSWAP_LE:
		return compare <= addr ? buf : addr;
	case FI_CSWAP_LT:
		return compare < addr ? buf : addr;
	case FI_CSWAP_GE:
		return compare >= addr ? buf : addr;
	case FI_CSWAP_GT:
		return compare > addr ? buf : addr;
	case FI_MSWAP:
		return (buf & compare) | (addr & ~compare);
	default:
		return addr;
	}
}

static bool exists(int kind, int type, int op)
{
	bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP;
	bool order = op == FI_MIN || op == FI_MAX || (op >= FI_CSWAP_LE && op <= FI_CSWAP_GT);

	if (type < 0 || type >= TYPES || op < 0 || op >= OPS)
		return false;
	if ((kind == COMPARE) != (op >= FI_CSWAP) || (kind == BASE && op == FI_ATOMIC_READ))
		return false;
	return !(bits && (is_real(type) || is_complex(type))) && !(order && is_complex(type));
}

/* ---- memory and operations ------------------------------------------------------------------- */

struct region {
	struct fid_mr *mr;
	uint64_t key, base; /* remote address of the first byte */
};

#define ACCESS (FI_REMOTE_READ | FI_REMOTE_WRITE)

static struct region region_open(struct pair *pair, void *memory, size_t len, uint64_t access)
{
	bool virtual = pair->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	static uint64_t keys = 4711;
	struct region region;

	gives(fi_mr_reg(pair->domain, memory, len, access, 0, keys++, 0, &region.mr, NULL), 0);
	region.key = fi_mr_key(region.mr);
	region.base = virtual ? (uintptr_t)memory : 0;
	return region;
}

static void region_close(struct region *region)
{
	gives(fi_close(&region->mr->fid), 0);
}

/* Where, and the buffers of an operation of either kind on consecutive elements. */
struct call {
	fi_addr_t dest;
	uint64_t addr, key;
	int type, op;
	size_t count;
	const void *operands, *compare;
	void *result;
	void *context;
};

static ssize_t start(struct side *side, int kind, const struct call *call)
{
	enum fi_datatype type = (enum fi_datatype)call->type;
	enum fi_op op = (enum fi_op)call->op;

	if (kind == BASE)
		return fi_atomic(side->ep, call->operands, call->count, NULL, call->dest, call->addr,
				 call->key, type, op, call->context);
	if (kind == FETCH)
		return fi_fetch_atomic(side->ep, call->operands, call->count, NULL, call->result, NULL,
				       call->dest, call->addr, call->key, type, op, call->context);
	return fi_compare_atomic(side->ep, call->operands, call->count, NULL, call->compare, NULL,
				 call->result, NULL, call->dest, call->addr, call->key, type, op,
				 call->context);
}

static void finish(struct pair *pair, struct side *side, int kind, const void *context)
{
	struct done done = pair_done(pair, side);

	must(done.entry.op_context == context);
	gives(done.entry.flags, FI_ATOMIC | (kind == BASE ? FI_WRITE : FI_READ));
}

static void perform(struct pair *pair, struct side *side, int kind, const struct call *call)
{
	post(pair, start(side, kind, call));
	finish(pair, side, kind, call->context);
}

/* A base operation may be complete before the target does it. A read behind it comes back after that. */
static void flush(struct pair *pair, struct side *side, const struct call *call)
{
	char former;
	struct call read = { .dest = call->dest,
			     .addr = call->addr,
			     .key = call->key,
			     .type = FI_INT8,
			     .op = FI_ATOMIC_READ,
			     .count = 1,
			     .result = &former,
			     .context = &former };

	perform(pair, side, FETCH, &read);
}

/* Of one 64-bit word; its former value. */
static uint64_t word(struct pair *pair, struct call call, int op, uint64_t operand, uint64_t compare)
{
	uint64_t former = ~0ULL;

	call.type = FI_UINT64;
	call.op = op;
	call.count = 1;
	call.operands = op == FI_ATOMIC_READ ? NULL : &operand;
	call.compare = &compare;
	call.result = &former;
	call.context = &former;
	perform(pair, &pair->a, op >= FI_CSWAP ? COMPARE : FETCH, &call);
	return former;
}

/* ---- every operation ------------------------------------------------------------------------- */

#define ELEMENTS 64 /* 4 by 4 by 4 values */

static uint64_t element_before(size_t i)
{
	return i % 4 * 3;
}

static uint64_t element_operand(size_t i)
{
	return i / 4 % 4 * 2;
}

static uint64_t element_compare(size_t i)
{
	return i / 16 * 3;
}

static void encode_all(int type, void *to, uint64_t (*value)(size_t i))
{
	for (size_t i = 0; i < ELEMENTS; i++)
		encode(type, (char *)to + i * sizes[type], value(i));
}

/* `memory`: what `call` reaches, ELEMENTS of the largest size. */
static void check_operation(struct pair *pair, struct side *side, int kind, struct call call, char *memory)
{
	char operands[ELEMENTS * SIZE_LARGEST + 1], compare[ELEMENTS * SIZE_LARGEST + 1];
	char result[ELEMENTS * SIZE_LARGEST + 1];
	size_t size = sizes[call.type];

	encode_all(call.type, memory, element_before);
	encode_all(call.type, operands + 1, element_operand);
	encode_all(call.type, compare + 1, element_compare);
	call.operands = call.op == FI_ATOMIC_READ ? NULL : operands + 1;
	call.compare = compare + 1;
	call.result = result + 1;
	call.context = &call;
	perform(pair, side, kind, &call);
	if (kind == BASE)
		flush(pair, side, &call);
	for (size_t i = 0; i < call.count; i++) {
		gives(decode(call.type, memory + i * size),
		      outcome(call.op, element_before(i), element_operand(i), element_compare(i)));
		if (kind != BASE)
			gives(decode(call.type, result + 1 + i * size), element_before(i));
	}
	for (size_t i = call.count; i < ELEMENTS; i++)
		gives(decode(call.type, memory + i * size), element_before(i));
}

static void check_operations(struct pair *pair, struct side *side, struct call call, char *memory)
{
	static const size_t counts[] = { 1, 2, 7, ELEMENTS };
	unsigned int done = 0;

	for (int kind = 0; kind < KINDS; kind++)
		for (call.type = 0; call.type < TYPES; call.type++)
			for (call.op = 0; call.op < OPS; call.op++) {
				if (!exists(kind, call.type, call.op))
					continue;
				for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
					call.count = counts[i];
					check_operation(pair, side, kind, call, memory);
				}
				done++;
			}
	gives(done, 10 * (11 + 12 + 7) + 3 * (8 + 9 + 6) + 3 * (6 + 7 + 2));
}

static _Alignas(64) char memory[2 * BYTES_LIMIT];

static void every_operation(void)
{
	struct pair_want want = { .caps = CAPS };
	struct region region;
	struct pair pair;

	pair_open(&pair, &want);
	region = region_open(&pair, memory, sizeof(memory), ACCESS);
	check_operations(&pair, &pair.a,
			 (struct call){ .dest = pair.a.peer, .addr = region.base, .key = region.key },
			 memory);
	/* to itself, and not at the beginning */
	check_operations(&pair, &pair.a,
			 (struct call){ .dest = pair.a.self, .addr = region.base + 64, .key = region.key },
			 memory + 64);
	region_close(&region);
	pair_close(&pair);
}

/* ---- what there is --------------------------------------------------------------------------- */

static int ask_valid(struct side *side, int kind, int type, int op, size_t *count)
{
	enum fi_datatype t = (enum fi_datatype)type;
	enum fi_op o = (enum fi_op)op;

	return kind == BASE    ? fi_atomicvalid(side->ep, t, o, count)
	       : kind == FETCH ? fi_fetch_atomicvalid(side->ep, t, o, count)
			       : fi_compare_atomicvalid(side->ep, t, o, count);
}

static const uint64_t query_flags[KINDS] = { 0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC };

/* The endpoint, the domain and the call itself agree. */
static void check_valid(struct pair *pair, int kind, struct call *call)
{
	bool there = exists(kind, call->type, call->op);
	struct fi_atomic_attr attr = { .count = 99, .size = 99 };
	int want = there ? 0 : -FI_EOPNOTSUPP;
	size_t count = 99;

	gives(ask_valid(&pair->a, kind, call->type, call->op, &count), want);
	gives(fi_query_atomic(pair->domain, (enum fi_datatype)call->type, (enum fi_op)call->op, &attr,
			      query_flags[kind]),
	      want);
	gives(count, there ? BYTES_LIMIT / sizes[call->type] : 99);
	gives(attr.count, count);
	gives(attr.size, there ? sizes[call->type] : 99);
	if (there)
		perform(pair, &pair->a, kind, call);
	else
		gives(start(&pair->a, kind, call), want);
}

static void valid(void)
{
	char buffer[SIZE_LARGEST] = { 0 }, result[SIZE_LARGEST];
	static const int odd[] = { -1, 63, 64, 1 << 16, INT32_MIN };
	struct pair_want want = { .caps = CAPS };
	struct fi_atomic_attr attr;
	struct region region;
	struct pair pair;
	struct call call;

	pair_open(&pair, &want);
	region = region_open(&pair, memory, sizeof(memory), ACCESS);
	call = (struct call){ .dest = pair.a.peer,
			      .addr = region.base,
			      .key = region.key,
			      .count = 1,
			      .operands = buffer,
			      .compare = buffer,
			      .result = result,
			      .context = &call };
	for (int kind = 0; kind < KINDS; kind++) {
		for (call.type = 0; call.type < TYPES + 8; call.type++)
			for (call.op = 0; call.op < OPS + 8; call.op++)
				check_valid(&pair, kind, &call);
		for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
			call.type = odd[i];
			call.op = kind == COMPARE ? FI_CSWAP : FI_SUM;
			check_valid(&pair, kind, &call);
			call.op = odd[i];
			call.type = FI_UINT64;
			check_valid(&pair, kind, &call);
		}
		gives(fi_query_atomic(pair.domain, FI_UINT64, FI_SUM, &attr,
				      query_flags[kind] | FI_TAGGED),
		      -FI_EOPNOTSUPP);
		gives(fi_query_atomic(pair.domain, FI_UINT64, FI_SUM, &attr, query_flags[kind] | FI_RMA),
		      -FI_EBADFLAGS);
	}
	gives(fi_query_atomic(pair.domain, FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
	      -FI_EBADFLAGS);
	pair_quiet(&pair, &pair.a);
	region_close(&region);
	pair_close(&pair);
}

/* As many elements as atomicvalid tells, not one more, and at least one. */
static void limits(void)
{
	static char operands[BYTES_LIMIT + SIZE_LARGEST], compare[BYTES_LIMIT + SIZE_LARGEST];
	static char result[BYTES_LIMIT + SIZE_LARGEST];
	struct pair_want want = { .caps = CAPS };
	struct region region;
	struct pair pair;
	struct call call;

	pair_open(&pair, &want);
	region = region_open(&pair, memory, sizeof(memory), ACCESS);
	call = (struct call){ .dest = pair.a.peer,
			      .addr = region.base,
			      .key = region.key,
			      .operands = operands,
			      .compare = compare,
			      .result = result,
			      .context = &call };
	for (int kind = 0; kind < KINDS; kind++) {
		for (call.type = 0; call.type < TYPES; call.type++) {
			size_t size = sizes[call.type], count;

			call.op = kind == COMPARE ? FI_CSWAP : FI_ATOMIC_WRITE;
			gives(ask_valid(&pair.a, kind, call.type, call.op, &count), 0);
			for (size_t i = 0; i <= count; i++) {
				encode(call.type, memory + i * size, i % 100);
				encode(call.type, compare + i * size, i % 100);
				encode(call.type, operands + i * size, i % 50 + 1);
			}
			call.count = count;
			perform(&pair, &pair.a, kind, &call);
			for (size_t i = 0; i < count; i++) {
				gives(decode(call.type, memory + i * size), i % 50 + 1);
				if (kind != BASE)
					gives(decode(call.type, result + i * size), i % 100);
			}
			gives(decode(call.type, memory + count * size), count % 100);
			call.count = count + 1;
			gives(start(&pair.a, kind, &call), -FI_EMSGSIZE);
			call.count = size > 1 ? SIZE_MAX / size + 2 : SIZE_MAX; /* as bytes it wraps */
			gives(start(&pair.a, kind, &call), -FI_EMSGSIZE);
			call.count = 0;
			gives(start(&pair.a, kind, &call), -FI_EINVAL);
		}
	}
	gives(fi_inject_atomic(pair.a.ep, operands, BYTES_LIMIT / 8 + 1, pair.a.peer, region.base,
			       region.key, FI_UINT64, FI_SUM),
	      -FI_EMSGSIZE);
	gives(fi_inject_atomic(pair.a.ep, operands, 0, pair.a.peer, region.base, region.key, FI_UINT64,
			       FI_SUM),
	      -FI_EINVAL);
	pair_quiet(&pair, &pair.a);
	region_close(&region);
	pair_close(&pair);
}

/* ---- vectors --------------------------------------------------------------------------------- */

#define WORDS 24

/* The words of an operation in pieces: `lens` are their numbers of elements. */
static size_t cut(uint64_t *words, const size_t *lens, size_t count, struct fi_ioc *ioc)
{
	size_t at = 0;

	for (size_t i = 0; i < count; at += lens[i++])
		ioc[i] = (struct fi_ioc){ .addr = words + at, .count = lens[i] };
	return count;
}

struct vectors {
	uint64_t operands[WORDS], compare[WORDS], result[WORDS];
	struct fi_ioc operand_iov[8], compare_iov[8], result_iov[8];
	size_t operand_count, compare_count, result_count;
};

static void vectors_init(struct vectors *vectors, uint64_t *target)
{
	static const size_t three[] = { 1, 20, 3 }, two[] = { 12, 12 };
	static const size_t eight[] = { 3, 3, 3, 0, 3, 3, 3, 6 };

	memset(vectors, 0, sizeof(*vectors));
	for (uint64_t i = 0; i < WORDS; i++) {
		target[i] = 100 + i;
		vectors->operands[i] = 1000 * i;
		vectors->compare[i] = i % 2 ? target[i] : 0;
	}
	vectors->operand_count = cut(vectors->operands, three, 3, vectors->operand_iov);
	vectors->compare_count = cut(vectors->compare, two, 2, vectors->compare_iov);
	vectors->result_count = cut(vectors->result, eight, 8, vectors->result_iov);
}

static void vectors_check(const struct vectors *vectors, int kind, const uint64_t *target)
{
	int op = kind == COMPARE ? FI_CSWAP : FI_SUM;

	for (uint64_t i = 0; i < WORDS; i++) {
		gives(target[i], outcome(op, 100 + i, vectors->operands[i], vectors->compare[i]));
		if (kind != BASE)
			gives(vectors->result[i], 100 + i);
	}
}

static ssize_t start_v(struct side *side, int kind, struct vectors *v, const struct call *call)
{
	if (kind == BASE)
		return fi_atomicv(side->ep, v->operand_iov, NULL, v->operand_count, call->dest, call->addr,
				  call->key, FI_UINT64, FI_SUM, call->context);
	if (kind == FETCH)
		return fi_fetch_atomicv(side->ep, v->operand_iov, NULL, v->operand_count, v->result_iov,
					NULL, v->result_count, call->dest, call->addr, call->key,
					FI_UINT64, FI_SUM, call->context);
	return fi_compare_atomicv(side->ep, v->operand_iov, NULL, v->operand_count, v->compare_iov, NULL,
				  v->compare_count, v->result_iov, NULL, v->result_count, call->dest,
				  call->addr, call->key, FI_UINT64, FI_CSWAP, call->context);
}

/* With the operands, compare and result of `v`; the rest is in the message. */
static ssize_t start_msg(struct side *side, int kind, struct vectors *v, struct fi_msg_atomic *msg,
			 uint64_t flags)
{
	msg->msg_iov = v->operand_iov;
	msg->iov_count = v->operand_count;
	if (kind == BASE)
		return fi_atomicmsg(side->ep, msg, flags);
	if (kind == FETCH)
		return fi_fetch_atomicmsg(side->ep, msg, v->result_iov, NULL, v->result_count, flags);
	return fi_compare_atomicmsg(side->ep, msg, v->compare_iov, NULL, v->compare_count, v->result_iov,
				    NULL, v->result_count, flags);
}

static struct fi_msg_atomic message(int kind, fi_addr_t dest, const struct fi_rma_ioc *remote,
				    size_t count, void *context)
{
	return (struct fi_msg_atomic){ .addr = dest,
				       .rma_iov = remote,
				       .rma_iov_count = count,
				       .datatype = FI_UINT64,
				       .op = kind == COMPARE ? FI_CSWAP : FI_SUM,
				       .context = context };
}

static void vectors(void)
{
	static uint64_t first[WORDS], second[WORDS], target[WORDS];
	struct pair_want want = { .caps = CAPS };
	struct region a, b;
	struct vectors v;
	struct pair pair;

	pair_open(&pair, &want);
	a = region_open(&pair, first, sizeof(first), ACCESS);
	b = region_open(&pair, second, sizeof(second), ACCESS);
	for (int kind = 0; kind < KINDS; kind++) {
		struct call call = { .dest = pair.a.peer, .addr = a.base, .key = a.key, .context = &call };
		/* of the second region, the first, the second again, and nothing of a key that is none */
		struct fi_rma_ioc remote[] = { { b.base + 8, 7, b.key },
					       { a.base, 10, a.key },
					       { 0, 0, ~b.key },
					       { b.base + 64, 7, b.key } };
		struct fi_msg_atomic msg = message(kind, pair.a.peer, remote, 4, &msg);

		vectors_init(&v, first);
		post(&pair, start_v(&pair.a, kind, &v, &call));
		finish(&pair, &pair.a, kind, &call);
		flush(&pair, &pair.a, &call);
		vectors_check(&v, kind, first);

		vectors_init(&v, target);
		memset(first, 0, sizeof(first));
		memset(second, 0, sizeof(second));
		memcpy(second + 1, target, 56);
		memcpy(first, target + 7, 80);
		memcpy(second + 8, target + 17, 56);
		post(&pair, start_msg(&pair.a, kind, &v, &msg, FI_COMPLETION));
		finish(&pair, &pair.a, kind, &msg);
		flush(&pair, &pair.a, &call);
		memcpy(target, second + 1, 56);
		memcpy(target + 7, first, 80);
		memcpy(target + 17, second + 8, 56);
		vectors_check(&v, kind, target);
		gives(second[0], 0);
		gives(second[15], 0);
		gives(first[10], 0);
	}
	region_close(&b);
	region_close(&a);
	pair_close(&pair);
}

/* A read has no operands: what is said of them does not matter. */
static void reads(void)
{
	static uint64_t target[WORDS];
	struct pair_want want = { .caps = CAPS };
	struct fi_rma_ioc remote;
	struct fi_msg_atomic msg;
	struct region region;
	struct vectors v;
	struct pair pair;

	pair_open(&pair, &want);
	region = region_open(&pair, target, sizeof(target), FI_REMOTE_READ);
	vectors_init(&v, target);
	post(&pair, fi_fetch_atomicv(pair.a.ep, NULL, NULL, 0, v.result_iov, NULL, v.result_count,
				     pair.a.peer, region.base, region.key, FI_UINT64, FI_ATOMIC_READ, &v));
	finish(&pair, &pair.a, FETCH, &v);
	must(!memcmp(v.result, target, sizeof(target)));
	memset(v.result, 0, sizeof(v.result));
	remote = (struct fi_rma_ioc){ region.base, WORDS, region.key };
	msg = message(FETCH, pair.a.peer, &remote, 1, &msg);
	msg.op = FI_ATOMIC_READ;
	v.operand_count = 0;
	post(&pair, start_msg(&pair.a, FETCH, &v, &msg, FI_COMPLETION));
	finish(&pair, &pair.a, FETCH, &msg);
	must(!memcmp(v.result, target, sizeof(target)));
	region_close(&region);
	pair_close(&pair);
}

/* The call refuses vectors that cannot be right, and does nothing. */
static void bad_vectors(void)
{
	static uint64_t target[WORDS], before[WORDS];
	struct pair_want want = { .caps = CAPS };
	struct region region;
	struct pair pair;

	pair_open(&pair, &want);
	region = region_open(&pair, target, sizeof(target), ACCESS);
	for (int kind = 0; kind < KINDS; kind++) {
		struct call call = {
			.dest = pair.a.peer, .addr = region.base, .key = region.key, .context = &call
		};
		struct fi_rma_ioc remote[9] = { { region.base, WORDS, region.key } };
		struct fi_msg_atomic msg = message(kind, pair.a.peer, remote, 1, &msg), bad;
		struct vectors v, good;

		vectors_init(&good, before);
		memcpy(target, before, sizeof(target));
#define REFUSED(change)                                                                                   \
	do {                                                                                              \
		v = good;                                                                                 \
		bad = msg;                                                                                \
		change;                                                                                   \
		gives(start_msg(&pair.a, kind, &v, &bad, 0), -FI_EINVAL);                                 \
	} while (0)
		REFUSED(v.operand_count = 9);
		REFUSED(v.operand_count = SIZE_MAX);
		REFUSED(v.operand_count = 2);
		REFUSED(v.operand_count = 0);
		REFUSED(v.operand_iov[1].addr = NULL);
		REFUSED(v.operand_iov[2].count++);
		REFUSED(v.operand_iov[2].count = SIZE_MAX);
		REFUSED(bad.rma_iov_count = 9);
		REFUSED(bad.rma_iov_count = 0);
		REFUSED(bad.rma_iov = NULL);
		REFUSED(bad.addr = 77);
		REFUSED(bad.addr = FI_ADDR_UNSPEC);
		remote[0].count--;
		REFUSED((void)0);
		remote[0].count++;
		if (kind != BASE) {
			REFUSED(v.result_count = 7);
			REFUSED(v.result_count = 9);
			REFUSED(v.result_iov[0].addr = NULL);
			REFUSED(v.result_iov[0].count++);
		}
		if (kind == COMPARE) {
			REFUSED(v.compare_count = 1);
			REFUSED(v.compare_count = 9);
			REFUSED(v.compare_iov[1].addr = NULL);
			REFUSED(v.compare_iov[1].count--);
		}
		v = good;
		v.operand_count = 9;
		gives(start_v(&pair.a, kind, &v, &call), -FI_EINVAL);
		v.operand_count = 0;
		gives(start_v(&pair.a, kind, &v, &call), -FI_EINVAL);
		call.dest = 77;
		gives(start_v(&pair.a, kind, &good, &call), -FI_EINVAL);
		must(!memcmp(target, before, sizeof(target)));
	}
	pair_quiet(&pair, &pair.a);
	region_close(&region);
	pair_close(&pair);
}

/* ---- flags ----------------------------------------------------------------------------------- */

static void flags_with(uint64_t bind, uint64_t op_flags)
{
	static const uint64_t each[] = { 0,
					 FI_COMPLETION,
					 FI_MORE,
					 FI_FENCE,
					 FI_INJECT,
					 FI_INJECT_COMPLETE,
					 FI_TRANSMIT_COMPLETE,
					 FI_DELIVERY_COMPLETE,
					 FI_INJECT | FI_COMPLETION,
					 FI_FENCE | FI_COMPLETION | FI_DELIVERY_COMPLETE };
	struct pair_want want = { .caps = CAPS, .tx_bind = bind, .tx_op_flags = op_flags };
	static uint64_t target[WORDS];
	struct region region;
	struct pair pair;

	pair_open(&pair, &want);
	region = region_open(&pair, target, sizeof(target), ACCESS);
	for (int kind = 0; kind < KINDS; kind++) {
		struct call call = {
			.dest = pair.a.peer, .addr = region.base, .key = region.key, .context = &call
		};
		struct fi_rma_ioc remote = { region.base, WORDS, region.key };
		struct fi_msg_atomic msg = message(kind, pair.a.peer, &remote, 1, &msg);
		struct vectors v;

		for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
			struct vectors kept;

			vectors_init(&v, target);
			kept = v;
			post(&pair, start_msg(&pair.a, kind, &v, &msg, each[i]));
			if (each[i] & FI_INJECT) {
				memset(v.operands, 0xff, sizeof(v.operands));
				memset(v.compare, 0xff, sizeof(v.compare));
			}
			if (!bind || each[i] & FI_COMPLETION)
				finish(&pair, &pair.a, kind, &msg);
			pair_quiet(&pair, &pair.a); /* long enough for it to be done */
			memcpy(kept.result, v.result, sizeof(v.result));
			vectors_check(&kept, kind, target);
		}
		vectors_init(&v, target);
		post(&pair, start_v(&pair.a, kind, &v, &call));
		if (!bind || op_flags & FI_COMPLETION)
			finish(&pair, &pair.a, kind, &call);
		pair_quiet(&pair, &pair.a);
		vectors_check(&v, kind, target);
		gives(start_msg(&pair.a, kind, &v, &msg, FI_TAGGED), -FI_EBADFLAGS);
		gives(start_msg(&pair.a, kind, &v, &msg, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
		gives(start_msg(&pair.a, kind, &v, &msg, FI_PEEK), -FI_EBADFLAGS);
		gives(start_msg(&pair.a, kind, &v, &msg, 1ULL << 62), -FI_EBADFLAGS);
	}
	region_close(&region);
	pair_close(&pair);
}

static void flags(void)
{
	flags_with(0, 0);
	flags_with(FI_SELECTIVE_COMPLETION, 0);
	flags_with(FI_SELECTIVE_COMPLETION, FI_COMPLETION);
	flags_with(0, FI_INJECT);
	flags_with(0, FI_DELIVERY_COMPLETE);
	flags_with(0, FI_COMPLETION | FI_TRANSMIT_COMPLETE);
}

/* Injected ones complete silently; their buffer is the caller's at once. */
static void inject(void)
{
	struct pair_want want = { .caps = CAPS };
	uint64_t target = 0, sum = 0;
	struct region region;
	struct pair pair;

	pair_open(&pair, &want);
	region = region_open(&pair, &target, sizeof(target), ACCESS);
	for (uint64_t i = 0; i < 3000; i++) {
		uint64_t operand = i;

		post(&pair, fi_inject_atomic(pair.a.ep, &operand, 1, pair.a.peer, region.base, region.key,
					     FI_UINT64, FI_SUM));
		operand = ~0ULL;
		sum += i;
	}
	while (__atomic_load_n(&target, __ATOMIC_RELAXED) != sum)
		pair_progress(&pair);
	pair_quiet(&pair, &pair.a);
	gives(target, sum);
	region_close(&region);
	pair_close(&pair);
}

/* As many as are taken: each is done once, and in order if the attributes say so. */
static void outstanding(void)
{
	enum { MANY = 5000 };
	struct pair_want want = { .caps = CAPS };
	static uint64_t result[MANY];
	static bool seen[MANY];
	uint64_t target = 0, one = 1;
	struct region region;
	struct pair pair;
	bool ordered;

	pair_open(&pair, &want);
	ordered = pair.info->tx_attr->msg_order & FI_ORDER_ATOMIC_RAR;
	region = region_open(&pair, &target, sizeof(target), ACCESS);
	for (int i = 0, done = 0; done < MANY;) {
		struct fi_cq_tagged_entry entry;
		ssize_t ret = -FI_EAGAIN;

		if (i < MANY)
			ret = fi_fetch_atomic(pair.a.ep, &one, 1, NULL, &result[i], NULL, pair.a.peer,
					      region.base, region.key, FI_UINT64, FI_SUM, &result[i]);
		if (!ret) {
			i++;
			continue;
		}
		gives(ret, -FI_EAGAIN);
		ret = fi_cq_read(pair.a.cq, &entry, 1);
		if (ret == -FI_EAGAIN) {
			pair_progress(&pair);
			continue;
		}
		gives(ret, 1);
		must(entry.op_context >= (void *)result && entry.op_context < (void *)(result + MANY));
		done++;
	}
	for (size_t i = 0; i < MANY; i++) {
		must(result[i] < MANY && !seen[result[i]]);
		seen[result[i]] = true;
		if (ordered)
			gives(result[i], i);
	}
	gives(target, MANY);
	region_close(&region);
	pair_close(&pair);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The operation completes with that error; the memory that it would have changed is unchanged. */
static void check_error(struct pair *pair, int kind, struct call call, int code)
{
	static const uint64_t value = 0x0101010101010101, compare = 0x7777777777777777;
	uint64_t operands[4] = { value, value, value, value };
	uint64_t compares[4] = { compare, compare, compare, compare }, result[4];
	struct fi_cq_err_entry error;

	memset(memory, 0x77, sizeof(memory));
	call.operands = call.op == FI_ATOMIC_READ ? NULL : operands;
	call.compare = compares;
	call.result = result;
	call.context = &call;
	post(pair, start(&pair->a, kind, &call));
	error = pair_error(pair, &pair->a);
	gives(error.err, code);
	must(error.op_context == &call);
	gives(error.flags & (FI_ATOMIC | FI_READ | FI_WRITE),
	      FI_ATOMIC | (kind == BASE ? FI_WRITE : FI_READ));
	must(fi_cq_strerror(pair->a.cq, error.prov_errno, error.err_data, NULL, 0));
	for (size_t i = 0; i < sizeof(memory); i++)
		gives(memory[i], 0x77);
	pair_quiet(pair, &pair->a);
}

static void errors_of(struct pair *pair, int kind, int type, int op)
{
	size_t size = sizes[type], len = 100 * size;
	struct region region = region_open(pair, memory, len, ACCESS);
	struct call call = { .dest = pair->a.peer,
			     .addr = region.base,
			     .key = region.key,
			     .type = type,
			     .op = op,
			     .count = 1 };
	struct call bad = call;

	bad.key ^= 1ULL << 40;
	check_error(pair, kind, bad, FI_EKEYREJECTED);
	bad = call;
	bad.addr += len; /* behind by one element */
	check_error(pair, kind, bad, FI_EINVAL);
	bad.addr -= size;
	bad.count = 2;
	check_error(pair, kind, bad, FI_EINVAL);
	bad = call;
	bad.addr -= size; /* before the first, or at the end of all addresses */
	check_error(pair, kind, bad, FI_EINVAL);
	if (size > 1) {
		bad.addr = call.addr + 1;
		check_error(pair, kind, bad, FI_EINVAL);
	}
	memset(memory, 0, len);
	call.operands = call.compare = call.result = call.context = memory + BYTES_LIMIT;
	perform(pair, &pair->a, kind, &call);
	flush(pair, &pair->a, &call);
	region_close(&region);
	check_error(pair, kind, call, FI_EKEYREJECTED);
}

static void access_of(struct pair *pair, int kind, int op, uint64_t access, bool granted)
{
	struct region region = region_open(pair, memory, 64, access);
	struct call call = { .dest = pair->a.peer,
			     .addr = region.base,
			     .key = region.key,
			     .type = FI_UINT32,
			     .op = op,
			     .count = 3 };

	if (granted) {
		call.operands = call.compare = call.result = call.context = memory + BYTES_LIMIT;
		perform(pair, &pair->a, kind, &call);
	} else {
		check_error(pair, kind, call, FI_EACCES);
	}
	region_close(&region);
}

static void errors(void)
{
	static const int types[] = { FI_INT8,	FI_UINT16,	  FI_FLOAT,	    FI_UINT64,
				     FI_DOUBLE, FI_FLOAT_COMPLEX, FI_DOUBLE_COMPLEX };
	struct pair_want want = { .caps = CAPS };
	struct pair pair;

	pair_open(&pair, &want);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		errors_of(&pair, BASE, types[i], FI_SUM);
		errors_of(&pair, FETCH, types[i], FI_ATOMIC_WRITE);
		errors_of(&pair, FETCH, types[i], FI_ATOMIC_READ);
		errors_of(&pair, COMPARE, types[i], FI_CSWAP_NE);
	}
	access_of(&pair, BASE, FI_SUM, FI_REMOTE_READ, false);
	access_of(&pair, BASE, FI_SUM, FI_REMOTE_WRITE, true);
	access_of(&pair, FETCH, FI_SUM, FI_REMOTE_READ, false);
	access_of(&pair, FETCH, FI_SUM, FI_REMOTE_WRITE, false);
	access_of(&pair, FETCH, FI_ATOMIC_READ, FI_REMOTE_READ, true);
	access_of(&pair, FETCH, FI_ATOMIC_READ, FI_REMOTE_WRITE, false);
	access_of(&pair, COMPARE, FI_CSWAP_NE, FI_REMOTE_READ, false);
	access_of(&pair, COMPARE, FI_CSWAP_NE, FI_REMOTE_WRITE, false);
	pair_close(&pair);
}

/* A failure completes in any case; that of an injected operation has the endpoint's context. */
static void silent_errors(void)
{
	struct pair_want want = { .caps = CAPS, .tx_bind = FI_SELECTIVE_COMPLETION };
	uint64_t operand = 1;
	struct pair pair;

	pair_open(&pair, &want);
	post(&pair, fi_inject_atomic(pair.a.ep, &operand, 1, pair.a.peer, 0, 0xbad, FI_UINT64, FI_SUM));
	must(pair_error(&pair, &pair.a).op_context == &pair.a);
	post(&pair,
	     fi_atomic(pair.a.ep, &operand, 1, NULL, pair.a.peer, 0, 0xbad, FI_UINT64, FI_SUM, &operand));
	must(pair_error(&pair, &pair.a).op_context == &operand);
	pair_quiet(&pair, &pair.a);
	pair_close(&pair);
}

/* An element that lies across two ranges of a region is none. */
static void torn_element(void)
{
	struct iovec ranges[] = { { memory, 12 }, { memory + 1024, 20 } };
	struct pair_want want = { .caps = CAPS };
	struct region region = { .base = 0 };
	struct pair pair;
	struct call call;

	pair_open(&pair, &want);
	if (pair.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		region.base = (uintptr_t)memory;
	gives(fi_mr_regv(pair.domain, ranges, 2, ACCESS, 0, 42, 0, &region.mr, NULL), 0);
	region.key = fi_mr_key(region.mr);
	call = (struct call){ .dest = pair.a.peer,
			      .addr = region.base,
			      .key = region.key,
			      .type = FI_UINT64,
			      .op = FI_SUM,
			      .count = 2 };
	check_error(&pair, FETCH, call, FI_EINVAL);
	check_error(&pair, BASE, call, FI_EINVAL);
	/* as words of 32 bits they are whole */
	call.type = FI_UINT32;
	call.count = 8;
	call.operands = call.result = call.context = memory + BYTES_LIMIT;
	memset(memory, 0, sizeof(memory));
	memset(memory + BYTES_LIMIT, 1, 32);
	perform(&pair, &pair.a, BASE, &call);
	flush(&pair, &pair.a, &call);
	for (size_t i = 0; i < 32; i++) {
		gives(memory[i], i < 12);
		gives(memory[1024 + i], i < 20);
	}
	region_close(&region);
	pair_close(&pair);
}

/* More elements than one record takes, past the end of the region: those inside are done once or not at all. */
static void past_the_end(void)
{
	enum { INSIDE = 500, ALL = 512 };
	struct pair_want want = { .caps = CAPS };
	uint64_t operands[ALL], result[ALL], values[ALL];
	struct region region;
	struct pair pair;
	struct call call;

	pair_open(&pair, &want);
	region = region_open(&pair, memory, INSIDE * sizeof(uint64_t), ACCESS);
	for (int i = 0; i < ALL; i++)
		operands[i] = 1;
	for (int kind = BASE; kind <= FETCH; kind++) {
		struct fi_cq_err_entry error;
		size_t done = 0;

		memset(memory, 0, sizeof(memory));
		call = (struct call){ .dest = pair.a.peer,
				      .addr = region.base,
				      .key = region.key,
				      .type = FI_UINT64,
				      .op = FI_SUM,
				      .operands = operands,
				      .result = result,
				      .count = ALL,
				      .context = &call };
		post(&pair, start(&pair.a, kind, &call));
		error = pair_error(&pair, &pair.a);
		gives(error.err, FI_EINVAL);
		memcpy(values, memory, sizeof(values));
		for (int i = 0; i < ALL; i++) {
			must(values[i] <= (i < INSIDE));
			done += values[i];
		}
		must(error.olen <= done * sizeof(uint64_t));
	}
	region_close(&region);
	pair_close(&pair);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void refuse_all(struct side *side, int code)
{
	struct vectors v;
	uint64_t target[WORDS], data = 0;

	vectors_init(&v, target);
	for (int kind = 0; kind < KINDS; kind++) {
		struct call call = { .type = FI_UINT64,
				     .op = kind == COMPARE ? FI_CSWAP : FI_SUM,
				     .count = 1,
				     .operands = &data,
				     .compare = &data,
				     .result = &data };
		struct fi_rma_ioc remote = { 0, WORDS, 0 };
		struct fi_msg_atomic msg = message(kind, 0, &remote, 1, NULL);

		gives(start(side, kind, &call), code);
		gives(start_v(side, kind, &v, &call), code);
		gives(start_msg(side, kind, &v, &msg, 0), code);
	}
	gives(fi_inject_atomic(side->ep, &data, 1, 0, 0, 0, FI_UINT64, FI_SUM), code);
}

/* Before fi_enable no call is possible, but the questions are; without the capability neither. */
static void states(void)
{
	struct pair_want want = { .caps = CAPS }, without = { .caps = FI_MSG };
	struct side side = { .ep = NULL };
	struct pair pair;
	size_t count;

	pair_open_domain(&pair, &want);
	side.ep = pair_open_ep(&pair);
	refuse_all(&side, -FI_EOPBADSTATE);
	for (int kind = 0; kind < KINDS; kind++) {
		gives(ask_valid(&side, kind, FI_UINT64, kind == COMPARE ? FI_CSWAP : FI_SUM, &count), 0);
		gives(count, BYTES_LIMIT / 8);
	}
	side_close(&side);
	pair_close(&pair);
	pair_open(&pair, &without);
	refuse_all(&pair.a, -FI_EOPNOTSUPP);
	for (int kind = 0; kind < KINDS; kind++)
		gives(ask_valid(&pair.a, kind, FI_UINT64, kind == COMPARE ? FI_CSWAP : FI_SUM, &count),
		      -FI_EOPNOTSUPP);
	pair_close(&pair);
}

/* ---- many processes -------------------------------------------------------------------------- */

#define CROWD_MAX 9
#define ROUNDS 1500

/*
 * The memory that the processes of a crowd share without the provider. Number 0 owns the memory that all
 * operations are on; it is the test's own process, the others are its children.
 */
struct crowd {
	char names[CROWD_MAX][64];
	uint64_t key, base;
	int arrived;
	bool resting, done;
	unsigned char seen[CROWD_MAX * ROUNDS];
	_Alignas(64) char memory[ELEMENTS * SIZE_LARGEST + 4096];
};

struct member {
	struct crowd *crowd;
	int number, count, met;
	struct pair pair;
	struct region region;
	struct call owner; /* how the owner's memory is reached */
};

/* A child that failed never comes to the point that the others wait for. */
static void member_progress(struct member *member)
{
	siginfo_t info = { .si_pid = 0 };

	pair_progress(&member->pair);
	if (member->number == 0 && !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
		must(info.si_code == CLD_EXITED && info.si_status == 0);
}

/* All come to this point. */
static void member_meet(struct member *member)
{
	int all = ++member->met * member->count;

	__atomic_fetch_add(&member->crowd->arrived, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&member->crowd->arrived, __ATOMIC_ACQUIRE) < all)
		member_progress(member);
}

static void member_open(struct member *member)
{
	struct pair_want want = { .caps = CAPS };
	struct crowd *crowd = member->crowd;
	struct pair *pair = &member->pair;

	pair_open_domain(pair, &want);
	pair->link = STDERR_FILENO; /* others may be waiting for this processor */
	side_open(pair, &pair->a);
	memcpy(crowd->names[member->number], pair->a.name, sizeof(pair->a.name));
	if (member->number == 0) {
		member->region = region_open(pair, crowd->memory, sizeof(crowd->memory), ACCESS);
		crowd->key = member->region.key;
		crowd->base = member->region.base;
	}
	member_meet(member);
	member->owner = (struct call){ .dest = pair_insert(pair->a.av, crowd->names[0]),
				       .addr = crowd->base,
				       .key = crowd->key };
}

static void member_close(struct member *member)
{
	if (member->region.mr)
		region_close(&member->region);
	pair_close(&member->pair);
}

static void member_run(struct member *member, void (*work)(struct member *member))
{
	member_open(member);
	work(member);
	member_meet(member);
	member_close(member);
}

/* `count` processes, each does the work. The shared part, to be looked at afterwards. */
static struct crowd *crowd_run(int count, void (*work)(struct member *member))
{
	struct crowd *crowd =
		mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct member member = { .crowd = crowd, .count = count };
	int status;

	must(crowd != MAP_FAILED);
	for (int i = 1; i < count; i++) {
		pid_t pid = fork();

		must(pid >= 0);
		if (pid)
			continue;
		pair_end_with_parent();
		member.number = i;
		member_run(&member, work);
		exit(0);
	}
	member_run(&member, work);
	for (int i = 1; i < count; i++) {
		must(wait(&status) > 0);
		must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return crowd;
}

/* The other's every operation; the owner makes progress, if it has to, and nothing else. */
static void operations_work(struct member *member)
{
	bool passive = member->pair.info->domain_attr->data_progress == FI_PROGRESS_AUTO;
	bool *done = &member->crowd->done;

	if (member->number == 0) {
		while (!__atomic_load_n(done, __ATOMIC_ACQUIRE))
			passive ? (void)sched_yield() : member_progress(member);
		return;
	}
	check_operations(&member->pair, &member->pair.a, member->owner, member->crowd->memory);
	__atomic_store_n(done, true, __ATOMIC_RELEASE);
}

static void between_processes(void)
{
	crowd_run(2, operations_work);
}

/* Fetch and add by all, the owner by its processor's own instruction: every value exactly once. */
static void fetch_add_work(struct member *member)
{
	uint64_t *target = (uint64_t *)member->crowd->memory;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t former;

		if (member->number == 0) {
			former = __atomic_fetch_add(target, 1, __ATOMIC_RELAXED);
			side_progress(&member->pair.a);
		} else {
			former = word(&member->pair, member->owner, FI_SUM, 1, 0);
		}
		must(former < CROWD_MAX * ROUNDS);
		gives(__atomic_fetch_add(&member->crowd->seen[former], 1, __ATOMIC_RELAXED), 0);
	}
}

static void fetch_add(void)
{
	struct crowd *crowd = crowd_run(9, fetch_add_work);
	uint64_t value;

	memcpy(&value, crowd->memory, sizeof(value));
	gives(value, 9 * ROUNDS);
	for (size_t i = 0; i < 9 * ROUNDS; i++)
		gives(crowd->seen[i], 1);
}

/* A lock made of compare and swap guards a sum that is read, then written. */
static void lock_work(struct member *member)
{
	struct call lock = member->owner, sum = member->owner;

	sum.addr += 64;
	for (int i = 0; i < ROUNDS / 10; i++) {
		uint64_t value;

		while (word(&member->pair, lock, FI_CSWAP, (uint64_t)member->number + 1, 0))
			;
		value = word(&member->pair, sum, FI_ATOMIC_READ, 0, 0);
		word(&member->pair, sum, FI_ATOMIC_WRITE, value + 1, 0);
		gives(word(&member->pair, lock, FI_ATOMIC_WRITE, 0, 0), member->number + 1);
	}
}

static void lock(void)
{
	struct crowd *crowd = crowd_run(4, lock_work);
	uint64_t words[9];

	memcpy(words, crowd->memory, sizeof(words));
	gives(words[0], 0);
	gives(words[8], 4 * (ROUNDS / 10));
}

/* Sums in an element of each type; of the owner's own to a double by its processor's compare and swap. */
static void sums_work(struct member *member)
{
	uint64_t *number = (uint64_t *)(member->crowd->memory + FI_DOUBLE * 64), seen, bits;
	struct call call = member->owner;
	char one[SIZE_LARGEST];
	double value;

	call.count = 1;
	call.op = FI_SUM;
	call.operands = one;
	call.context = one;
	for (int i = 0; i < 100; i++) {
		for (call.type = 0; call.type < TYPES; call.type++) {
			encode(call.type, one, 1);
			call.addr = member->owner.addr + (uint64_t)call.type * 64;
			if (member->number || call.type != FI_DOUBLE) {
				perform(&member->pair, &member->pair.a, BASE, &call);
				continue;
			}
			seen = __atomic_load_n(number, __ATOMIC_RELAXED);
			do {
				memcpy(&value, &seen, sizeof(value));
				value += 1;
				memcpy(&bits, &value, sizeof(bits));
			} while (!__atomic_compare_exchange_n(number, &seen, bits, false, __ATOMIC_RELAXED,
							      __ATOMIC_RELAXED));
		}
	}
	flush(&member->pair, &member->pair.a, &call);
}

static void sums(void)
{
	struct crowd *crowd = crowd_run(4, sums_work);

	for (int type = 0; type < TYPES; type++)
		gives(decode(type, crowd->memory + type * 64), sizes[type] == 1 ? 400 % 256 : 400);
}

/* All towards one's own extreme, with MIN and MAX; the owner's processor looks on: never back. */
static void extremes_work(struct member *member)
{
	struct call low = member->owner, high = member->owner;
	uint64_t *words = (uint64_t *)member->crowd->memory;
	uint64_t last_low = ~0ULL, last_high = 0;

	high.addr += 8;
	if (member->number == 0)
		words[0] = last_low;
	member_meet(member);
	for (uint64_t i = 0; i < ROUNDS / 5; i++) {
		uint64_t mine = i * CROWD_MAX + (uint64_t)member->number, now_low, now_high;

		if (member->number) {
			now_low = word(&member->pair, low, FI_MIN, 1000000 - mine, 0);
			now_high = word(&member->pair, high, FI_MAX, mine, 0);
		} else {
			now_low = __atomic_load_n(&words[0], __ATOMIC_RELAXED);
			now_high = __atomic_load_n(&words[1], __ATOMIC_RELAXED);
			side_progress(&member->pair.a);
		}
		must(now_low <= last_low && now_high >= last_high);
		last_low = now_low;
		last_high = now_high;
	}
}

static void extremes(void)
{
	uint64_t words[2], last = (ROUNDS / 5 - 1) * CROWD_MAX + 3;
	struct crowd *crowd = crowd_run(4, extremes_work);

	memcpy(words, crowd->memory, sizeof(words));
	gives(words[0], 1000000 - last);
	gives(words[1], last);
}

/* ---- the end of the owner -------------------------------------------------------------------- */

#define PENDING 20

static ssize_t start_pending(struct member *member, uint64_t *result)
{
	static const uint64_t one = 1;

	return fi_fetch_atomic(member->pair.a.ep, &one, 1, NULL, result, NULL, member->owner.dest,
			       member->owner.addr, member->owner.key, FI_UINT64, FI_SUM, result);
}

/* Each operation that the owner has not done when it leaves fails once; a later one is refused at once. */
static void depart_work(struct member *member)
{
	uint64_t results[PENDING];

	if (member->number)
		gives(word(&member->pair, member->owner, FI_SUM, 1, 0), 0);
	member_meet(member);
	if (member->number == 0) {
		__atomic_store_n(&member->crowd->resting, true, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&member->crowd->done, __ATOMIC_ACQUIRE))
			sched_yield(); /* without progress */
		region_close(&member->region);
		member->region.mr = NULL;
		side_close(&member->pair.a);
		member->pair.a = (struct side){ .ep = NULL };
		return;
	}
	while (!__atomic_load_n(&member->crowd->resting, __ATOMIC_ACQUIRE))
		sched_yield(); /* it may still be in the progress of the meeting */
	for (int i = 0; i < PENDING; i++)
		gives(start_pending(member, &results[i]), 0);
	__atomic_store_n(&member->crowd->done, true, __ATOMIC_RELEASE);
	for (int i = 0; i < PENDING; i++) {
		struct fi_cq_err_entry error = pair_error(&member->pair, &member->pair.a);

		must(error.op_context == &results[i]);
		gives(error.err, FI_ECONNRESET);
	}
	pair_quiet(&member->pair, &member->pair.a);
	gives(start_pending(member, &results[0]), -FI_ECONNRESET);
}

static void departed_owner(void)
{
	uint64_t value;

	memcpy(&value, crowd_run(2, depart_work)->memory, sizeof(value));
	gives(value, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(every_operation),
		ALONE(valid),
		ALONE(limits),
		ALONE(vectors),
		ALONE(reads),
		ALONE(bad_vectors),
		ALONE(flags),
		ALONE(inject),
		ALONE(outstanding),
		ALONE(errors),
		ALONE(silent_errors),
		ALONE(torn_element),
		ALONE(past_the_end),
		ALONE(states),
		ALONE(between_processes),
		ALONE_ENV(between_processes, "FI_SHMCMA_CMA=0"),
		ALONE_ENV(between_processes, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(errors, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(fetch_add, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(sums, "FI_SHMCMA_RMA=strict"),
		ALONE(fetch_add),
		ALONE(lock),
		ALONE(sums),
		ALONE(extremes),
		ALONE(departed_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
