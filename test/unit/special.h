/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * special.h: memory that its process can read and write and the kernel does not reach for others, by
 * process_vm_readv(2) and process_vm_writev(2): of memfd_secret(2) where there is such, else memory that these
 * two calls, which are a unit test's own here, refuse as they would that.
 */
#ifndef SPECIAL_H
#define SPECIAL_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

enum special_kind { SPECIAL_REFUSED, SPECIAL_SECRET, SPECIAL_KINDS };

/* The memory that is mapped; the two calls refuse it, unless the kernel does. The daemon's thread calls them, too. */
static _Atomic uintptr_t special_first, special_end;
static atomic_bool special_refused;
static atomic_uint special_failures; /* calls that have failed for it */

static inline bool special_touches(const struct iovec *remote, unsigned long count)
{
	uintptr_t first = special_first, end = special_end;

	for (unsigned long i = 0; i < count; i++)
		if ((uintptr_t)remote[i].iov_base < end &&
		    (uintptr_t)remote[i].iov_base + remote[i].iov_len > first)
			return true;
	return false;
}

/* Other memory does not count: the thread that looks after dead processes asks for memory that may be gone. */
static inline ssize_t special_call(long call, pid_t pid, const struct iovec *iov[2],
				   const unsigned long count[2], unsigned long flags)
{
	bool touches = special_touches(iov[1], count[1]);
	ssize_t result = -1;

	if (touches && special_refused)
		errno = EFAULT;
	else
		result = syscall(call, pid, iov[0], count[0], iov[1], count[1], flags);
	special_failures += touches && result < 0 && errno == EFAULT;
	return result;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
			 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	return special_call(SYS_process_vm_readv, pid, (const struct iovec *[]){ local, remote },
			    (const unsigned long[]){ local_count, remote_count }, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
			  const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	return special_call(SYS_process_vm_writev, pid, (const struct iovec *[]){ local, remote },
			    (const unsigned long[]){ local_count, remote_count }, flags);
}

/* MAP_FAILED: this kernel has no such memory. One at a time. */
static inline uint8_t *special_map(enum special_kind kind, size_t size)
{
	int fd = kind == SPECIAL_SECRET ? (int)syscall(SYS_memfd_secret, 0) : -1;
	void *mapped = MAP_FAILED;

	if (kind == SPECIAL_REFUSED)
		mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	else if (fd >= 0 && !ftruncate(fd, (off_t)size))
		mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (mapped != MAP_FAILED) {
		special_first = (uintptr_t)mapped;
		special_end = special_first + size;
	}
	special_refused = kind == SPECIAL_REFUSED;
	special_failures = 0;
	return mapped;
}

static inline void special_unmap(uint8_t *mapped, size_t size)
{
	special_end = special_first;
	munmap(mapped, size);
}

#endif
