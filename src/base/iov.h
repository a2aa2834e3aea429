/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iov.h: vectors of memory of this process. Offsets and lengths in bytes.
 */
#ifndef SC_IOV_H
#define SC_IOV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/* Returns the bytes of the vector; SIZE_MAX, which no limit allows: too many. */
static inline size_t sc_iov_size(const struct iovec *iov, size_t count)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(size, iov[i].iov_len, &size))
			return SIZE_MAX;
	return size;
}

/* A walk through [offset, offset + len) of a vector, element by element. */
struct sc_iov_walk {
	const struct iovec *at;
	size_t count; /* elements from `at` on */
	size_t offset, left;
};

/*
 * Returns the next piece of memory and skips empty elements; false: there is none. The address may be one of another
 * process, so it is a number: no pointer arithmetic.
 */
static inline bool sc_iov_next(struct sc_iov_walk *walk, uintptr_t *base, size_t *len)
{
	for (; walk->left && walk->count; walk->at++, walk->count--) {
		size_t here = walk->at->iov_len;

		if (walk->offset >= here) {
			walk->offset -= here;
			continue;
		}
		here -= walk->offset;
		*base = (uintptr_t)walk->at++->iov_base + walk->offset;
		walk->count--;
		*len = here < walk->left ? here : walk->left;
		walk->left -= *len;
		walk->offset = 0;
		return true;
	}
	return false;
}

/* Stores the part [offset, offset + len) of the vector in out[count]. Returns its number of elements. */
static inline size_t sc_iov_slice(const struct iovec *iov, size_t count, size_t offset, size_t len,
				  struct iovec *out)
{
	struct sc_iov_walk walk = { iov, count, offset, len };
	uintptr_t base;
	size_t used, here;

	for (used = 0; sc_iov_next(&walk, &base, &here); used++)
		out[used] = (struct iovec){ (void *)base, here };
	return used;
}

/* Copies bytes into the vector at `offset`; the vector is long enough. */
static inline void sc_iov_write(const struct iovec *iov, size_t count, size_t offset, const void *from,
				size_t len)
{
	struct sc_iov_walk walk = { iov, count, offset, len };
	uintptr_t base;
	size_t here;

	for (; sc_iov_next(&walk, &base, &here); from = (const char *)from + here)
		memcpy((void *)base, from, here);
}

/* Copies the first `len` bytes of the vector; it is long enough. */
static inline void sc_iov_read(const struct iovec *iov, size_t count, void *to, size_t len)
{
	struct sc_iov_walk walk = { iov, count, 0, len };
	uintptr_t base;
	size_t here;

	for (; sc_iov_next(&walk, &base, &here); to = (char *)to + here)
		memcpy(to, (const void *)base, here);
}

/* Copies from the front of one vector to the front of another; both are at least `len` bytes long. */
static inline void sc_iov_copy(const struct iovec *to, size_t to_count, const struct iovec *from,
			       size_t from_count, size_t len)
{
	struct sc_iov_walk walk = { from, from_count, 0, len };
	uintptr_t base;
	size_t here, done = 0;

	for (; sc_iov_next(&walk, &base, &here); done += here)
		sc_iov_write(to, to_count, done, (const void *)base, here);
}

#endif
