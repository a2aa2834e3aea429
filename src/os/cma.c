/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cma.c: one-copy access to another process's memory, process_vm_readv(2) and process_vm_writev(2).
 *
 * A pid alone is a racy name: the process may end and another process get its pid. So a read carries one more remote
 * element, the owner's cookie: a random word in that process's memory. A read with the right cookie came from the right
 * process as it was: an ended process has no memory, and another process, or the same one after exec(2), does not have
 * that word at that place. A caller can prove the read afterwards instead: by a later cookie, or by the owner's word of
 * life, unmarked (sc_peer_read()). After a failed read the bytes in the destination are undefined; the caller's
 * operation fails or is done again.
 *
 * A write has no such proof. Its caller looks at the owner's word of life or life lock before each write
 * (sc_peer_is_there()): while a process has either, its pid is not another's. A write can go wrong only if the process
 * ends, is reaped, and its pid comes round again between that look and the write.
 *
 * A partial transfer stops at the byte that faulted (process_vm_readv(2)). The loop goes on from there and treats a
 * call that moves nothing as the fault. Between exec(2) and the release of the life lock a process looks alive and has
 * nothing mapped at all: sc_cma_fault() tells the two cases apart by the cookie.
 */
#define _GNU_SOURCE 1
#include "os/cma.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/fault.h"
#include "base/iov.h"

_Static_assert(SC_IOV_MAX <= SC_CMA_ELEMENTS && SC_ABI_RDV_SEGMENTS <= SC_CMA_ELEMENTS,
	       "any one operation fits a call");

/* The kernel moves at most this many bytes in one call (MAX_RW_COUNT, fs/read_write.c). */
#define CALL_MAX ((size_t)0x7ffff000)

int sc_cma_fault(const struct sc_cma *cma)
{
	/* without a cookie the two cases look the same */
	return cma->cookie_addr && sc_cma_read(cma, &(struct sc_cma_copy){ 0 }) ? -ESRCH : -EFAULT;
}

/* Finds the mapping in a line of /proc/<pid>/maps. False: no mapping that allows reads, or writes. */
static bool parse_mapping(const char *line, bool write, uintptr_t *first, uintptr_t *end)
{
	char reads, writes;

	return sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c", first, end, &reads, &writes) == 4 &&
	       (write ? writes == 'w' : reads == 'r');
}

/* Extends how far each element is covered. Mappings come in the order of their addresses. */
static void cover(uintptr_t covered[SC_CMA_IOV], size_t count, uintptr_t first, uintptr_t end)
{
	for (size_t i = 0; i < count; i++)
		if (covered[i] >= first && covered[i] < end)
			covered[i] = end;
}

bool sc_cma_is_mapped(pid_t pid, const struct iovec *iov, size_t count, bool write)
{
	uintptr_t covered[SC_CMA_IOV], first, end;
	bool mapped = true, begins = true;
	char path[32], line[80];
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = SC_TRY_PTR("cma.maps", NULL, fopen(path, "re"));
	if (!maps)
		return true;
	for (size_t i = 0; i < count; i++)
		covered[i] = (uintptr_t)iov[i].iov_base;
	while (fgets(line, sizeof(line), maps)) {
		if (begins && parse_mapping(line, write, &first, &end))
			cover(covered, count, first, end);
		begins = strchr(line, '\n'); /* a long line comes in parts */
	}
	SC_CALL("cma.maps_close", fclose(maps));
	for (size_t i = 0; i < count; i++)
		mapped &= covered[i] - (uintptr_t)iov[i].iov_base >= iov[i].iov_len;
	return mapped;
}

/*
 * Returns the bytes [offset, offset + len) of a vector: the vector itself if it is one element with just these, else
 * `part`.
 */
static inline const struct iovec *cut(const struct iovec *iov, size_t *count, size_t offset, size_t len,
				      struct iovec part[SC_CMA_IOV])
{
	if (*count == 1 && !offset && iov->iov_len == len)
		return iov;
	*count = sc_iov_slice(iov, *count, offset, len, part);
	return part;
}

int sc_cma_read(const struct sc_cma *cma, const struct sc_cma_copy *copy)
{
	struct iovec to_part[SC_CMA_IOV], from_part[SC_CMA_IOV];
	size_t done = 0;

	for (;;) {
		uint64_t cookie = ~cma->cookie;
		size_t left = copy->len - done;
		size_t part = left < CALL_MAX - sizeof(cookie) ? left : CALL_MAX - sizeof(cookie);
		size_t to_count = copy->local_count, from_count = copy->remote_count;
		const struct iovec *to = to_part, *from = from_part;
		ssize_t got;

		if (cma->cookie_addr) {
			to_count = sc_iov_slice(copy->local, copy->local_count, done, part, to_part);
			from_count = sc_iov_slice(copy->remote, copy->remote_count, done, part, from_part);
			to_part[to_count++] = (struct iovec){ &cookie, sizeof(cookie) };
			from_part[from_count++] =
				(struct iovec){ (void *)(uintptr_t)cma->cookie_addr, sizeof(cookie) };
		} else {
			cookie = cma->cookie;
			to = cut(copy->local, &to_count, done, part, to_part);
			from = cut(copy->remote, &from_count, done, part, from_part);
		}
		got = SC_TRY("cma.readv", process_vm_readv(cma->pid, to, to_count, from, from_count, 0));
		if (got < 0 && errno != EFAULT)
			return -errno;
		if (got <= 0)
			return copy->len ? sc_cma_fault(cma) : -EFAULT;
		if ((size_t)got == part + (cma->cookie_addr ? sizeof(cookie) : 0)) {
			if (cookie != cma->cookie)
				return -ESRCH;
			done += part;
			if (done == copy->len)
				return 0;
		} else if ((size_t)got >= part) {
			return -ESRCH; /* the data were readable, the cookie was not: another process */
		} else {
			done += (size_t)got;
		}
	}
}

int sc_cma_write(pid_t pid, const struct sc_cma_copy *copy, size_t *moved)
{
	struct iovec from_part[SC_CMA_IOV], to_part[SC_CMA_IOV];

	for (*moved = 0; *moved < copy->len;) {
		size_t left = copy->len - *moved;
		size_t part = left < CALL_MAX ? left : CALL_MAX;
		size_t from_count = copy->local_count, to_count = copy->remote_count;
		const struct iovec *from = cut(copy->local, &from_count, *moved, part, from_part);
		const struct iovec *to = cut(copy->remote, &to_count, *moved, part, to_part);
		ssize_t put =
			SC_TRY("cma.writev", process_vm_writev(pid, from, from_count, to, to_count, 0));

		if (put < 0)
			return -errno;
		if (put == 0)
			return -EFAULT;
		*moved += (size_t)put;
	}
	return 0;
}
