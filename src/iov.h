/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * iov.h: vectors of memory of this process. Offsets and lengths in bytes.
 */
#ifndef SC_IOV_H
#define SC_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

static inline size_t sc_iov_size(const struct iovec *iov, size_t count)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++)
		size += iov[i].iov_len;
	return size;
}

/* The part [offset, offset + len) of the vector as a vector, out[count]. Returns its elements. */
static inline size_t sc_iov_slice(const struct iovec *iov, size_t count, size_t offset, size_t len,
				  struct iovec *out)
{
	size_t used = 0;

	for (size_t i = 0; i < count && len; i++) {
		size_t here = iov[i].iov_len;

		if (offset >= here) {
			offset -= here;
			continue;
		}
		here -= offset;
		if (here > len)
			here = len;
		/* an address of another process is a number: no pointer arithmetic */
		out[used].iov_base = (void *)((uintptr_t)iov[i].iov_base + offset);
		out[used++].iov_len = here;
		len -= here;
		offset = 0;
	}
	return used;
}

/* Copy bytes into the vector at `offset`; the vector is long enough. */
static inline void sc_iov_write(const struct iovec *iov, size_t count, size_t offset, const void *from,
				size_t len)
{
	for (size_t i = 0; i < count && len; i++) {
		size_t here = iov[i].iov_len;

		if (offset >= here) {
			offset -= here;
			continue;
		}
		here -= offset;
		if (here > len)
			here = len;
		memcpy((char *)iov[i].iov_base + offset, from, here);
		from = (const char *)from + here;
		len -= here;
		offset = 0;
	}
}

/* Copy `len` bytes of the vector from `offset` on; the vector is long enough. */
static inline void sc_iov_read(const struct iovec *iov, size_t count, size_t offset, void *to, size_t len)
{
	for (size_t i = 0; i < count && len; i++) {
		size_t here = iov[i].iov_len;

		if (offset >= here) {
			offset -= here;
			continue;
		}
		here -= offset;
		if (here > len)
			here = len;
		memcpy(to, (const char *)iov[i].iov_base + offset, here);
		to = (char *)to + here;
		len -= here;
		offset = 0;
	}
}

#endif
