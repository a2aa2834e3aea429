/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cma_calls.h: process_vm_readv(2) and process_vm_writev(2), counted, or refused; for one file of a unit test.
 */
#ifndef CMA_CALLS_H
#define CMA_CALLS_H

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Calls of this thread, as the daemon's makes some too, and the parts of messages that the last of each had. */
static _Thread_local unsigned int reads, writes, read_parts, written_parts;

/* Called before each that copies something; an errno of its makes it fail. */
static _Thread_local int (*before_read)(void), (*before_write)(void);

/* Elements that are no cookie, which a read has besides where the word of life says nothing yet. */
static unsigned int parts_in(const struct iovec *iov, unsigned long count)
{
	unsigned int parts = 0;

	for (unsigned long i = 0; i < count; i++)
		parts += iov[i].iov_len > sizeof(uint64_t);
	return parts;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
			 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	reads++;
	read_parts = parts_in(remote, remote_count);
	errno = before_read && read_parts ? before_read() : 0;
	if (errno)
		return -1;
	return syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
			  const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	writes++;
	written_parts = parts_in(remote, remote_count);
	errno = before_write ? before_write() : 0;
	if (errno)
		return -1;
	return syscall(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, flags);
}

#endif
