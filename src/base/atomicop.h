/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ATOMICOP_H
#define SC_ATOMICOP_H

#include <stddef.h>
#include <sys/uio.h>
#include <shmcma/core.h>

/*
 * An operation on memory of this process. The buffers are private and as long as the target, and may have any
 * alignment. `result` may be the same buffer as another one: each element is read before its old value is written. A
 * buffer that the kind or the code does not use may be NULL.
 */
struct sc_atomicop {
	enum sc_atomic_kind kind;
	enum sc_atomic_type type;
	enum sc_atomic_code code;
	const void *operands;
	const void *compare; /* SC_ATOMIC_COMPARE */
	void *result;	     /* FETCH, COMPARE: old values */
};

/*
 * Applies the operation to each element of the target. Each piece of the target holds whole elements, aligned as C
 * aligns the type. -EOPNOTSUPP: no such operation; -EINVAL: misaligned, or an element in two pieces. After an error
 * nothing is done.
 */
int sc_atomicop_apply(const struct sc_atomicop *op, const struct iovec *target, size_t target_count);

#endif
