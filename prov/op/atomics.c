/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * atomics.c: fi_ops_atomic and fi_query_atomic. Only the thread that uses the endpoint posts; any thread may call the
 * queries.
 *
 * A base operation completes when its record is in the target's ring, as FI_TRANSMIT_COMPLETE has it, or when the target
 * has done it, with FI_DELIVERY_COMPLETE or where the core must ask the target; a fetching one when its values are here.
 *
 * All calls end in post(), which takes a struct fi_msg_atomic and the arguments that this lacks. After the call only
 * the caller's result buffers are used: operands and values to compare with are copied, with FI_INJECT or without.
 */
#include "op/post.h"

#include <rdma/fi_atomic.h>

#define SAME(name) _Static_assert((int)SC_##name == (int)FI_##name, #name)
SAME(INT8); SAME(UINT8); SAME(INT16); SAME(UINT16); SAME(INT32); SAME(UINT32); SAME(INT64);
SAME(UINT64); SAME(FLOAT); SAME(DOUBLE); SAME(FLOAT_COMPLEX); SAME(DOUBLE_COMPLEX);
SAME(LONG_DOUBLE); SAME(LONG_DOUBLE_COMPLEX); SAME(INT128); SAME(UINT128); SAME(MIN); SAME(MAX);
SAME(SUM); SAME(PROD); SAME(LOR); SAME(LAND); SAME(BOR); SAME(BAND); SAME(LXOR); SAME(BXOR);
SAME(ATOMIC_READ); SAME(ATOMIC_WRITE); SAME(CSWAP); SAME(CSWAP_NE); SAME(CSWAP_LE); SAME(CSWAP_LT);
SAME(CSWAP_GE); SAME(CSWAP_GT); SAME(MSWAP);

/* The flags of a message; remote data cannot go with an atomic operation. */
#define MSG_FLAGS (SHMCMA_TX_OP_FLAGS | FI_MORE | FI_FENCE)
/* The flags of a send that apply here: nothing is matched. */
#define CORE_FLAGS                                                                                        \
	(SC_SILENT | SC_SEND_INJECT | SC_SEND_DELIVERY | SC_SEND_MATCH | SC_SEND_FENCE | SHMCMA_TRIGGER)

/* ---- what there is --------------------------------------------------------------------------- */

static int valid(enum sc_atomic_kind kind, enum fi_datatype type, enum fi_op op)
{
	if (!sc_atomic_valid(kind, (enum sc_atomic_type)type, (enum sc_atomic_code)op))
		return -FI_EOPNOTSUPP;
	return 0;
}

static size_t size_of(enum fi_datatype type)
{
	return sc_atomic_size((enum sc_atomic_type)type);
}

/* Returns the largest number of elements in one call. */
static size_t limit_of(enum fi_datatype type)
{
	return SC_ATOMIC_MAX / size_of(type);
}

static int valid_count(enum sc_atomic_kind kind, enum fi_datatype type, enum fi_op op, size_t *count)
{
	int ret = valid(kind, type, op);

	if (!ret && count)
		*count = limit_of(type);
	return ret;
}

/* Defines a query, which an application may call before it enables the endpoint. */
#define VALID(name, kind)                                                                                 \
	SHMCMA_FORKED_CALL(int, name, VALID_PARAMETERS)                                                   \
	static int unable_##name(VALID_PARAMETERS)                                                        \
	{                                                                                                 \
		return -FI_EOPNOTSUPP;                                                                    \
	}                                                                                                 \
	static int disabled_##name(VALID_PARAMETERS)                                                      \
	{                                                                                                 \
		return valid_count(kind, type, op, count);                                                \
	}                                                                                                 \
	static int name(VALID_PARAMETERS)                                                                 \
	{                                                                                                 \
		return valid_count(kind, type, op, count);                                                \
	}
#define VALID_PARAMETERS struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count
VALID(atomic_writevalid, SC_ATOMIC_BASE)
VALID(atomic_readwritevalid, SC_ATOMIC_FETCH)
VALID(atomic_compwritevalid, SC_ATOMIC_COMPARE)

static int query_kind(uint64_t flags, enum sc_atomic_kind *kind)
{
	if (flags & ~(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED))
		return -FI_EBADFLAGS;
	if (flags & FI_FETCH_ATOMIC && flags & FI_COMPARE_ATOMIC)
		return -FI_EBADFLAGS;
	if (flags & FI_TAGGED)
		return -FI_EOPNOTSUPP; /* no atomics on tagged receive buffers */
	*kind = flags & FI_FETCH_ATOMIC	    ? SC_ATOMIC_FETCH
		: flags & FI_COMPARE_ATOMIC ? SC_ATOMIC_COMPARE
					    : SC_ATOMIC_BASE;
	return 0;
}

int shmcma_query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
			struct fi_atomic_attr *attr, uint64_t flags)
{
	enum sc_atomic_kind kind;
	int ret = query_kind(flags, &kind);

	if (!ret)
		ret = valid(kind, type, op);
	if (!ret && attr) {
		attr->count = limit_of(type);
		attr->size = size_of(type);
	}
	return ret;
}

/* ---- posting --------------------------------------------------------------------------------- */

/* The arguments of a call besides its message. */
struct extra {
	enum sc_atomic_kind kind;
	uint32_t flags; /* the core's */
	const struct fi_ioc *compare, *result;
	size_t compare_count, result_count;
};

/* The vectors of an operation as the core takes them. */
struct vectors {
	struct iovec operands[SHMCMA_IOV_LIMIT], compare[SHMCMA_IOV_LIMIT], result[SHMCMA_IOV_LIMIT];
	struct sc_remote remote[SC_REMOTE_MAX];
};

/*
 * Returns the elements of a vector, 0 if it is invalid. Each count is limited to SC_ATOMIC_MAX + 1, so that the sum
 * does not overflow.
 */
static size_t elements_of(const struct fi_ioc *ioc, size_t count)
{
	size_t elements = 0;

	if (!ioc || count > SHMCMA_IOV_LIMIT)
		return 0;
	for (size_t i = 0; i < count; i++)
		elements += ioc[i].count <= SC_ATOMIC_MAX ? ioc[i].count : SC_ATOMIC_MAX + 1;
	return elements;
}

/* Translates a local vector, which must have `elements` elements. */
static ssize_t local_vector(const struct fi_ioc *ioc, size_t count, size_t size, size_t elements,
			    struct iovec *iov)
{
	if (elements_of(ioc, count) != elements)
		return -FI_EINVAL;
	for (size_t i = 0; i < count; i++) {
		if (!ioc[i].addr && ioc[i].count)
			return -FI_EINVAL;
		iov[i] = (struct iovec){ .iov_base = ioc[i].addr, .iov_len = ioc[i].count * size };
	}
	return 0;
}

/* Translates the remote vector, which defines the number of elements. */
static ssize_t remote_vector(const struct fi_msg_atomic *msg, struct sc_remote *remote, size_t *elements)
{
	const struct fi_rma_ioc *rma = msg->rma_iov;
	size_t limit = limit_of(msg->datatype), sum = 0;

	if (!rma || msg->rma_iov_count > SC_REMOTE_MAX)
		return -FI_EINVAL;
	for (size_t i = 0; i < msg->rma_iov_count; i++) {
		if (rma[i].count > limit - sum)
			return -FI_EMSGSIZE;
		sum += rma[i].count;
		remote[i] = (struct sc_remote){ .addr = rma[i].addr,
						.len = rma[i].count * size_of(msg->datatype),
						.key = rma[i].key };
	}
	*elements = sum;
	return sum ? 0 : -FI_EINVAL;
}

static ssize_t translate(const struct fi_msg_atomic *msg, const struct extra *extra,
			 struct vectors *vectors, struct sc_atomic *atomic)
{
	size_t size = size_of(msg->datatype), elements;
	ssize_t ret = remote_vector(msg, vectors->remote, &elements);

	atomic->remote = vectors->remote;
	atomic->remote_count = msg->rma_iov_count;
	if (!ret && msg->op != FI_ATOMIC_READ) {
		atomic->iov = vectors->operands;
		atomic->iov_count = msg->iov_count;
		ret = local_vector(msg->msg_iov, msg->iov_count, size, elements, vectors->operands);
	}
	if (!ret && extra->kind == SC_ATOMIC_COMPARE) {
		atomic->compare = vectors->compare;
		atomic->compare_count = extra->compare_count;
		ret = local_vector(extra->compare, extra->compare_count, size, elements, vectors->compare);
	}
	if (!ret && extra->kind != SC_ATOMIC_BASE) {
		atomic->result = vectors->result;
		atomic->result_count = extra->result_count;
		ret = local_vector(extra->result, extra->result_count, size, elements, vectors->result);
	}
	return ret;
}

SHMCMA_POST_TO_PEER(post_to, struct sc_atomic, sc_atomic_post, shmcma_trigger_atomic)

static ssize_t post(struct fid_ep *ep, const struct fi_msg_atomic *msg, const struct extra *extra)
{
	struct vectors vectors;
	struct sc_atomic atomic = {
		.kind = extra->kind,
		.type = (enum sc_atomic_type)msg->datatype,
		.code = (enum sc_atomic_code)msg->op,
		.context = msg->context,
		.cq_flags = FI_ATOMIC | (extra->kind == SC_ATOMIC_BASE ? FI_WRITE : FI_READ),
		.flags = extra->flags & CORE_FLAGS,
	};
	ssize_t ret = valid(extra->kind, msg->datatype, msg->op);

	if (!ret)
		ret = translate(msg, extra, &vectors, &atomic);
	return ret ? ret : post_to(shmcma_ep_of(ep), msg->addr, &atomic);
}

/* fi_atomicmsg and the like: their flags replace the endpoint's. */
static ssize_t post_msg(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags,
			struct extra *extra)
{
	if (flags & ~MSG_FLAGS)
		return -FI_EBADFLAGS;
	extra->flags = shmcma_send_flags(flags, shmcma_ep_of(ep)->ep->tx_selective);
	return post(ep, msg, extra);
}

/* The message of a call without one, made from its parameters by their names. */
#define MESSAGE(iov, iov_count_)                                                                          \
	{                                                                                                 \
		.msg_iov = iov, .iov_count = iov_count_, .addr = dest, .rma_iov = &remote,                \
		.rma_iov_count = 1, .datatype = type, .op = operation, .context = context                 \
	}

/* ---- base ------------------------------------------------------------------------------------ */

SHMCMA_DATA_CALL(atomic_writev, struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t dest,
		 uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op operation, void *context)
{
	struct fi_rma_ioc remote = { .addr = addr, .count = elements_of(iov, count), .key = key };
	struct fi_msg_atomic msg = MESSAGE(iov, count);
	struct extra extra = { .kind = SC_ATOMIC_BASE, .flags = shmcma_now(shmcma_ep_of(ep)->send_flags) };

	return post(ep, &msg, &extra);
}

SHMCMA_DATA_CALL(atomic_write, struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest,
		 uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op operation, void *context)
{
	struct fi_ioc iov = { .addr = (void *)buf, .count = count };

	return atomic_writev(ep, &iov, &desc, 1, dest, addr, key, type, operation, context);
}

SHMCMA_DATA_CALL(atomic_writemsg, struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags)
{
	struct extra extra = { .kind = SC_ATOMIC_BASE };

	return post_msg(ep, msg, flags, &extra);
}

/* If the operation fails later, the error has the endpoint's context. */
SHMCMA_DATA_CALL(atomic_inject, struct fid_ep *ep, const void *buf, size_t count, fi_addr_t dest, uint64_t addr,
		 uint64_t key, enum fi_datatype type, enum fi_op operation)
{
	void *context = ep->fid.context;
	struct fi_ioc iov = { .addr = (void *)buf, .count = count };
	struct fi_rma_ioc remote = { .addr = addr, .count = count, .key = key };
	struct fi_msg_atomic msg = MESSAGE(&iov, 1);
	struct extra extra = { .kind = SC_ATOMIC_BASE, .flags = shmcma_inject_flags(shmcma_ep_of(ep)) };

	return post(ep, &msg, &extra);
}

/* ---- fetch ----------------------------------------------------------------------------------- */

/* The results define the number of elements, because a read has no operands. */
SHMCMA_DATA_CALL(atomic_readwritev, struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
		 struct fi_ioc *result, void **result_desc, size_t result_count, fi_addr_t dest, uint64_t addr,
		 uint64_t key, enum fi_datatype type, enum fi_op operation, void *context)
{
	struct fi_rma_ioc remote = { .addr = addr,
				     .count = elements_of(result, result_count),
				     .key = key };
	struct fi_msg_atomic msg = MESSAGE(iov, count);
	struct extra extra = { .kind = SC_ATOMIC_FETCH,
			       .flags = shmcma_now(shmcma_ep_of(ep)->send_flags),
			       .result = result,
			       .result_count = result_count };

	return post(ep, &msg, &extra);
}

SHMCMA_DATA_CALL(atomic_readwrite, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
		 enum fi_op operation, void *context)
{
	struct fi_ioc iov = { .addr = (void *)buf, .count = count };
	struct fi_ioc results = { .addr = result, .count = count };

	return atomic_readwritev(ep, &iov, &desc, 1, &results, &result_desc, 1, dest, addr, key, type,
				 operation, context);
}

SHMCMA_DATA_CALL(atomic_readwritemsg, struct fid_ep *ep, const struct fi_msg_atomic *msg, struct fi_ioc *result,
		 void **result_desc, size_t result_count, uint64_t flags)
{
	struct extra extra = { .kind = SC_ATOMIC_FETCH, .result = result, .result_count = result_count };

	return post_msg(ep, msg, flags, &extra);
}

/* ---- compare --------------------------------------------------------------------------------- */

SHMCMA_DATA_CALL(atomic_compwritev, struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
		 const struct fi_ioc *compare, void **compare_desc, size_t compare_count, struct fi_ioc *result,
		 void **result_desc, size_t result_count, fi_addr_t dest, uint64_t addr, uint64_t key,
		 enum fi_datatype type, enum fi_op operation, void *context)
{
	struct fi_rma_ioc remote = { .addr = addr, .count = elements_of(iov, count), .key = key };
	struct fi_msg_atomic msg = MESSAGE(iov, count);
	struct extra extra = { .kind = SC_ATOMIC_COMPARE,
			       .flags = shmcma_now(shmcma_ep_of(ep)->send_flags),
			       .compare = compare,
			       .compare_count = compare_count,
			       .result = result,
			       .result_count = result_count };

	return post(ep, &msg, &extra);
}

SHMCMA_DATA_CALL(atomic_compwrite, struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare,
		 void *compare_desc, void *result, void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
		 enum fi_datatype type, enum fi_op operation, void *context)
{
	struct fi_ioc iov = { .addr = (void *)buf, .count = count };
	struct fi_ioc values = { .addr = (void *)compare, .count = count };
	struct fi_ioc results = { .addr = result, .count = count };

	return atomic_compwritev(ep, &iov, &desc, 1, &values, &compare_desc, 1, &results, &result_desc, 1,
				 dest, addr, key, type, operation, context);
}

SHMCMA_DATA_CALL(atomic_compwritemsg, struct fid_ep *ep, const struct fi_msg_atomic *msg, const struct fi_ioc *compare,
		 void **compare_desc, size_t compare_count, struct fi_ioc *result, void **result_desc,
		 size_t result_count, uint64_t flags)
{
	struct extra extra = { .kind = SC_ATOMIC_COMPARE,
			       .compare = compare,
			       .compare_count = compare_count,
			       .result = result,
			       .result_count = result_count };

	return post_msg(ep, msg, flags, &extra);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* `base`: prefix of the functions for base operations; `fetch`: of functions that return old values. */
#define TABLE(base, fetch)                                                                                \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_atomic), .write = base##_write, .writev = base##_writev,     \
		.writemsg = base##_writemsg, .inject = base##_inject, .readwrite = fetch##_readwrite,     \
		.readwritev = fetch##_readwritev, .readwritemsg = fetch##_readwritemsg,                   \
		.compwrite = fetch##_compwrite, .compwritev = fetch##_compwritev,                         \
		.compwritemsg = fetch##_compwritemsg, .writevalid = base##_writevalid,                    \
		.readwritevalid = fetch##_readwritevalid, .compwritevalid = fetch##_compwritevalid,       \
	}

struct fi_ops_atomic shmcma_atomic_ops[] = {
	[SHMCMA_RMA_UNABLE] = TABLE(unable_atomic, unable_atomic),
	[SHMCMA_RMA_DISABLED] = TABLE(disabled_atomic, disabled_atomic),
	[SHMCMA_RMA_READ] = TABLE(unable_atomic, atomic),
	[SHMCMA_RMA_WRITE] = TABLE(atomic, unable_atomic),
	[SHMCMA_RMA_BOTH] = TABLE(atomic, atomic),
	[SHMCMA_RMA_FORKED] = TABLE(forked_atomic, forked_atomic),
};
