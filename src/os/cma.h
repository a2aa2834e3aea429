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
	uint64_t cookie_addr, cookie; /* address 0: the caller proves the owner afterwards */
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
 * Reads the process's memory, remote -> local. The same call reads the cookie after the bytes. This proves the owner of
 * these bytes and of all earlier reads from that process, because a pid does not come back. Returns 0, or: -EFAULT an
 * address of the other side is not mapped; -ESRCH no such process, or no longer the same; -EPERM, -ENOSYS, -ENOMEM: not
 * possible between these two processes. After a failure the destination's content is undefined.
 */
int sc_cma_read(const struct sc_cma *cma, const struct sc_cma_copy *copy);

/*
 * One more element of the remote vector takes as long as this many more bytes in the same call (docs/MEASUREMENTS.md,
 * "Elements of a vector").
 */
#define SC_CMA_ELEMENT 2048

/*
 * One copy of parts of several payloads, because a call costs as much as the copy of 4 to 16 KiB before it copies
 * anything. A call takes many small parts, but only a few large ones: no peer hears of the first part before the last
 * one is copied. From 64 KiB on twice as many messages may be shared as go in a call, so that neither side waits for
 * the next part of the other (docs/MEASUREMENTS.md, "Several copies in one call").
 */
#define SC_CMA_ELEMENTS (SC_CMA_IOV - 1) /* of each side */
#define SC_CMA_PARTS SC_CMA_ELEMENTS
#define SC_CMA_FEW 4
#define SC_CMA_FEW_BYTES ((size_t)512 << 10)
#define SC_CMA_MANY_BYTES ((size_t)256 << 10)
struct sc_cma_parts {
	struct sc_cma_copy all; /* of `local` and `remote` */
	uint32_t count;
	struct sc_cma_part {
		void *payload; /* the caller's: whose bytes these are */
		size_t len, local_count, remote_count;
		int error; /* of its copy, negative errno: 0, until the caller sets it */
	} part[SC_CMA_PARTS];
	struct iovec local[SC_CMA_ELEMENTS], remote[SC_CMA_ELEMENTS];
};

static inline void sc_cma_parts_init(struct sc_cma_parts *parts)
{
	parts->all = (struct sc_cma_copy){ .local = parts->local, .remote = parts->remote };
	parts->count = 0;
}

/* Returns how many messages of a stream go in one call, if each has this many elements and bytes to copy. */
static inline uint32_t sc_cma_together(size_t elements, size_t len)
{
	size_t most = SC_CMA_ELEMENTS / elements, room = SC_CMA_MANY_BYTES / len;

	if (room < SC_CMA_FEW)
		room = SC_CMA_FEW;
	return (uint32_t)(most < room ? most : room);
}

/*
 * Tells whether there is room for a part of about `len` bytes, of vectors with this many elements. A first part always
 * has room.
 */
static inline bool sc_cma_has_room(const struct sc_cma_parts *parts, size_t local_count,
				   size_t remote_count, size_t len)
{
	size_t most = parts->count < SC_CMA_FEW ? SC_CMA_FEW_BYTES : SC_CMA_MANY_BYTES;

	return !parts->count || (parts->count < SC_CMA_PARTS && parts->all.len + len <= most &&
				 parts->all.local_count + local_count <= SC_CMA_ELEMENTS &&
				 parts->all.remote_count + remote_count <= SC_CMA_ELEMENTS);
}

/* Adds the bytes [offset, offset + len) of both vectors as a part of `payload`; the vectors may be longer. */
static inline void sc_cma_add(struct sc_cma_parts *parts, void *payload, const struct sc_cma_copy *copy,
			      size_t offset)
{
	size_t local_count = sc_iov_slice(copy->local, copy->local_count, offset, copy->len,
					  parts->local + parts->all.local_count);
	size_t remote_count = sc_iov_slice(copy->remote, copy->remote_count, offset, copy->len,
					   parts->remote + parts->all.remote_count);

	parts->part[parts->count++] =
		(struct sc_cma_part){ payload, copy->len, local_count, remote_count, 0 };
	parts->all.local_count += local_count;
	parts->all.remote_count += remote_count;
	parts->all.len += copy->len;
}

/*
 * Tells whether the process itself has mapped all of that and can read or write it, even if no other process can:
 * memory of memfd_secret(2) or of a device. True also if the kernel does not tell. Reads a file, so only for a failed
 * copy.
 */
bool sc_cma_is_mapped(pid_t pid, const struct iovec *iov, size_t count, bool write);

/* After a copy failed with EFAULT: returns -EFAULT, or -ESRCH if the process is no longer the same. */
int sc_cma_fault(const struct sc_cma *cma);

/*
 * Writes to the process's memory, local -> remote. Nothing proves the owner of that memory: the caller has just seen
 * that the process lives. *moved: bytes written, also after a failure. Errors as sc_cma_read(), but -EFAULT may be of
 * another process: sc_cma_fault().
 */
int sc_cma_write(pid_t pid, const struct sc_cma_copy *copy, size_t *moved);

#endif
