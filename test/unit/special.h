/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * special.h: memory that its process can read and write and the kernel does not reach for others, by
 * process_vm_readv(2) and process_vm_writev(2): of memfd_secret(2) where there is such, else memory that these
 * two calls, which are a unit test's own here, refuse as they would that.
 */
#ifndef SPECIAL_H
#define SPECIAL_H

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

enum special_kind { SPECIAL_REFUSED, SPECIAL_SECRET, SPECIAL_KINDS };

/* Refused by the two calls. */
static struct iovec special_refused;
static unsigned int special_failures; /* so often */

static inline int special_touches(const struct iovec *remote, unsigned long count)
{
	uintptr_t first = (uintptr_t)special_refused.iov_base, end = first + special_refused.iov_len;

	for (unsigned long i = 0; i < count; i++)
		if ((uintptr_t)remote[i].iov_base < end &&
		    (uintptr_t)remote[i].iov_base + remote[i].iov_len > first)
			return 1;
	return 0;
}

static inline ssize_t special_result(ssize_t result)
{
	special_failures += result < 0 && errno == EFAULT;
	return result;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
			 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	if (special_touches(remote, remote_count)) {
		errno = EFAULT;
		return special_result(-1);
	}
	return special_result(syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags));
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
			  const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	if (special_touches(remote, remote_count)) {
		errno = EFAULT;
		return special_result(-1);
	}
	return special_result(
		syscall(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, flags));
}

/* MAP_FAILED: this kernel has no such memory. Not more than one at a time of those that are refused. */
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
	if (kind == SPECIAL_REFUSED)
		special_refused = (struct iovec){ mapped, size };
	special_failures = 0;
	return mapped;
}

static inline void special_unmap(uint8_t *mapped, size_t size)
{
	special_refused.iov_len = 0;
	munmap(mapped, size);
}

#endif
