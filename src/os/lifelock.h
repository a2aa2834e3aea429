/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LIFELOCK_H
#define SC_LIFELOCK_H

#include <sys/types.h>

/* Take the life lock of the file: a POSIX write lock on SC_ABI_LIFE_BYTE. -EAGAIN: another process has it. */
int sc_lifelock_lock(int fd);

/*
 * Who holds the life lock? 1: another process, *pid its pid as seen from here (0: not visible); 0: nobody,
 * its owner is dead, or it is this process itself (POSIX locks do not conflict with one's own); negative
 * errno.
 */
int sc_lifelock_check(int fd, pid_t *pid);

#endif
