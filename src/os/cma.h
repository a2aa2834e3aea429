/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CMA_H
#define SC_CMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "base/iov.h"

#define SC_CMA_IOV 17 /* remote elements: SC_ABI_RDV_SEGMENTS and the cookie */

/* The owner of the memory: a process, and 8 bytes in it that no other process has. */
struct sc_cma {
	pid_t pid;
	uint64_t cookie_addr, cookie; /* address 0: the caller proves it afterwards */
};

/* Both vectors are `len` bytes long, and of fewer than SC_CMA_IOV elements. */
struct sc_cma_copy {
	const struct iovec *local;
	size_t local_count;
	const struct iovec *remote;
	size_t remote_count;
	size_t len;
};

/*
 * Read the process's memory, remote -> local. The cookie is read after the bytes in the same call, which proves whose
 * they are, and those of all earlier reads from that process: a pid does not come back.
 * Returns 0, or: -EFAULT an address of the other side is not mapped; -ESRCH no such process, or no longer
 * the same; -EPERM, -ENOSYS, -ENOMEM: not possible between these two processes. On failure the
 * destination's content is undefined.
 */
int sc_cma_read(const struct sc_cma *cma, const struct sc_cma_copy *copy);

/*
 * One element more on the other side's vector takes as long as so many bytes more, of those copied by the same call. On
 * a 2-processor Xeon 45 ns for each, while a KiB takes 31 (elements of less than a page longer); on a Zen 5 160 to 200,
 * and 65. On this side's hardly anything.
 */
#define SC_CMA_ELEMENT 2048

/*
 * One copy of parts of several payloads: a call costs 0.6 to 3 microseconds before it copies anything, the most where
 * both processes are in one. So as many as there are, but not more bytes of large ones than a few, as nobody hears of
 * the first before the last is copied. Both sides of a 2-processor Zen 5, apart, which copy halves of 64 KiB, move 16
 * GB/s with one of them in a call, 25 with 2, 35 with 4, 48 with 8. Windows, GB/s, with so many messages in a call:
 *
 *            1     4     8     16    32
 *   8 KiB    5.7   5.7  10.9  13.5  15.9   copied by the receiver
 *   16 KiB         9.3  16.9  20.8  20.6
 *   32 KiB        13.9  24.5  24.9  24.0
 *   64 KiB  11.3  27.0  28.8  29.1  28.6   by both; with no more than 128 KiB 27.0
 *   256 KiB 23.4  38.4  36.5               with no more than 256 KiB 32.0
 *   1 MiB   32.7  35.8  34.5               likewise 26.3
 *
 * From 64 KiB on twice as many may be shared as go in a call, so that neither side waits for the other's next: 16, for
 * 8, brought windows of 64 KiB from 16.3 to 21.0 GB/s on a Zen 4.
 */
#define SC_CMA_ELEMENTS (SC_CMA_IOV - 1) /* of each side */
#define SC_CMA_PARTS SC_CMA_ELEMENTS
#define SC_CMA_FEW 4
#define SC_CMA_FEW_BYTES ((size_t)512 << 10)
#define SC_CMA_MANY_BYTES ((size_t)256 << 10)
struct sc_cma_parts {
	uint32_t count;
	size_t local_count, remote_count, len; /* bytes, of both alike */
	struct iovec local[SC_CMA_ELEMENTS], remote[SC_CMA_ELEMENTS];
};

/* All parts as one copy. */
static inline struct sc_cma_copy sc_cma_parts_copy(const struct sc_cma_parts *parts)
{
	return (struct sc_cma_copy){ parts->local, parts->local_count, parts->remote, parts->remote_count, parts->len };
}

static inline void sc_cma_parts_init(struct sc_cma_parts *parts)
{
	parts->count = 0;
	parts->local_count = parts->remote_count = parts->len = 0;
}

/* Of a stream of messages with so many elements and bytes to be copied of each: how many go in a call? */
static inline uint32_t sc_cma_together(size_t elements, size_t len)
{
	size_t most = SC_CMA_ELEMENTS / elements, room = SC_CMA_MANY_BYTES / len;

	if (room < SC_CMA_FEW)
		room = SC_CMA_FEW;
	return (uint32_t)(most < room ? most : room);
}

/* Is there room for a part of about `len` bytes, of vectors with so many elements? For one alone there always is. */
static inline bool sc_cma_has_room(const struct sc_cma_parts *parts, size_t local_count,
				   size_t remote_count, size_t len)
{
	size_t most = parts->count < SC_CMA_FEW ? SC_CMA_FEW_BYTES : SC_CMA_MANY_BYTES;

	return !parts->count || (parts->count < SC_CMA_PARTS && parts->len + len <= most &&
				 parts->local_count + local_count <= SC_CMA_ELEMENTS &&
				 parts->remote_count + remote_count <= SC_CMA_ELEMENTS);
}

/* The bytes [offset, offset + len) of both vectors, which may be longer here, are one more. */
static inline void sc_cma_add(struct sc_cma_parts *parts, const struct sc_cma_copy *copy, size_t offset)
{
	parts->count++;
	parts->local_count += sc_iov_slice(copy->local, copy->local_count, offset, copy->len,
					   parts->local + parts->local_count);
	parts->remote_count += sc_iov_slice(copy->remote, copy->remote_count, offset, copy->len,
					    parts->remote + parts->remote_count);
	parts->len += copy->len;
}

/*
 * Has the process mapped all of that, so that it can read or write it by itself, though no other can? Memory of
 * memfd_secret(2) or of a device is so. True also where it cannot be told. Reads a file: for what has failed.
 */
bool sc_cma_is_mapped(pid_t pid, const struct iovec *iov, size_t count, bool write);

/* A copy has failed with EFAULT: -EFAULT, or -ESRCH if the process is no longer the same. */
int sc_cma_fault(const struct sc_cma *cma);

/*
 * Write to the process's memory, local -> remote. Nothing proves whose memory it is: the caller has just seen that the
 * process lives. *moved: bytes written, also when it fails. Errors as sc_cma_read(), but -EFAULT may be of another
 * process: sc_cma_fault().
 */
int sc_cma_write(pid_t pid, const struct sc_cma_copy *copy, size_t *moved);

#endif
