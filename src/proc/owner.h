/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_OWNER_H
#define SC_OWNER_H

#include <stdbool.h>
#include <sys/types.h>
#include <shmcma/abi.h>
#include "shm/seg.h"

/*
 * The second opinion, for an owner whose life lock is free: the owner may have lost it by mistake. Tells whether the
 * process that made the file lives and has its cookie in its memory. `life`: its word of life; 0: there is none. True
 * in doubt. False for a process of another pid namespace, for which the lock alone decides.
 */
bool sc_owner_lives(const struct sc_abi_owner *owner, uint32_t life);

/*
 * Tells whether the writer of a directory lives. `held`: the process `holder`, maybe a reaper, has the life lock. A
 * writer that has lost its lock by mistake, and has no thread that takes it again, still lives.
 */
bool sc_owner_has_writer(const struct sc_abi_owner *owner, bool held, pid_t holder);

/*
 * Tells whether the owner of an attached segment has died: its life lock is free, and nothing else says that it lives.
 * A dead owner touches no memory any more, and the function changes the segment's state from OPEN to ENDED (CLOSED
 * stays CLOSED). One system call, or a few.
 */
bool sc_owner_is_dead(const struct sc_seg *seg);

/*
 * The second opinion, for a file with a free life lock, open as `fd`. The caller has called sc_otherfiles_hold(), or
 * this process holds no lock of other processes' files.
 */
bool sc_owner_may_live(const char *name, int fd);

/* Tells whether the file of the endpoint with this address is there and its owner is dead. False in doubt. */
bool sc_owner_left(const char *addr);

/*
 * Tells the same of a service or a directory by the name of its file; true too if the file has gone. False for other
 * files, which do not tell their owner. A process that holds the lock of an orphan is a reaper, or has another version
 * of the library.
 */
bool sc_owner_left_service(const char *name);

#endif
