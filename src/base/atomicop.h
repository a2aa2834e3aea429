/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ATOMICOP_H
#define SC_ATOMICOP_H

#include <stddef.h>
#include <sys/uio.h>
#include <shmcma/core.h>

/*
 * An operation on memory of this process. The buffers are private and as long as the target; they may have
 * any alignment, and `result` may be one of the others: an element is taken before its former value is put.
 * Those that the kind or the code does without may be NULL.
 */
struct sc_atomicop {
	enum sc_atomic_kind kind;
	enum sc_atomic_type type;
	enum sc_atomic_code code;
	const void *operands;
	const void *compare; /* SC_ATOMIC_COMPARE */
	void *result;	     /* FETCH, COMPARE: former values */
};

/*
 * Do it to each element of the target, which is whole elements in each of its pieces, aligned as the type
 * is in C. -EOPNOTSUPP: no such operation; -EINVAL: misaligned, or an element in two pieces; nothing is done
 * then.
 */
int sc_atomicop_apply(const struct sc_atomicop *op, const struct iovec *target, size_t target_count);

#endif
