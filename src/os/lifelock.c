/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lifelock.c: the life lock, which shows whether the owner of a file lives.
 *
 * It is a POSIX record lock because of the promises of the kernel: a forked child does not inherit the lock; exec and
 * exit free it after the process has ended all its memory access; a stopped process keeps it; F_GETLK names the holder
 * in the caller's pid namespace. The price: the owner loses the lock when it closes *any* descriptor of the inode;
 * otherfile.c prevents that.
 *
 * If the owner dies at any step, the lock is free from then on, and only a reaper takes it.
 */
#define _GNU_SOURCE 1
#include "os/lifelock.h"

#include <errno.h>
#include <fcntl.h>
#include <shmcma/abi.h>
#include "base/fault.h"

static struct flock life_byte(short type)
{
	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = SC_ABI_LIFE_BYTE, .l_len = 1
	};
}

int sc_lifelock_lock(int fd)
{
	struct flock lock = life_byte(F_WRLCK);

	if (!SC_TRY("lifelock.lock", fcntl(fd, F_SETLK, &lock)))
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

int sc_lifelock_check(int fd, pid_t *pid)
{
	struct flock lock = life_byte(F_RDLCK); /* only a write lock conflicts with a read lock */

	if (SC_TRY("lifelock.check", fcntl(fd, F_GETLK, &lock)))
		return -errno;
	if (lock.l_type == F_UNLCK)
		return 0;
	if (pid)
		*pid = lock.l_pid > 0 ? lock.l_pid : 0;
	return 1;
}
