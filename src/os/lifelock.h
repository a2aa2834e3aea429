/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LIFELOCK_H
#define SC_LIFELOCK_H

#include <sys/types.h>

/* Takes the life lock of the file: a POSIX write lock on SC_ABI_LIFE_BYTE. -EAGAIN: another process has it. */
int sc_lifelock_lock(int fd);

/*
 * Looks for the holder of the life lock. 1: another process, *pid is its pid as seen from here (0: not visible). 0: no
 * other process: the owner is dead, or is this process (a process's own POSIX locks do not conflict). Else a negative
 * errno.
 */
int sc_lifelock_check(int fd, pid_t *pid);

#endif
