/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_OWNER_H
#define SC_OWNER_H

#include <stdbool.h>
#include <sys/types.h>
#include <shmcma/abi.h>
#include "shm/seg.h"

/*
 * The second opinion, once a life lock was found free: does the process that made the file live, and
 * still have its cookie in its memory? It may have lost the lock by mistake. `life`: its word of life, 0: has
 * none. True when it cannot be told; of a process of another pid namespace the lock decides alone.
 */
bool sc_owner_lives(const struct sc_abi_owner *owner, uint32_t life);

/*
 * Does the writer of a directory live? `held`: a process, `holder`, has its life lock; it may be a reaper. One that has
 * lost its lock by mistake, and has no thread that takes it again, still lives.
 */
bool sc_owner_has_writer(const struct sc_abi_owner *owner, bool held, pid_t holder);

/*
 * Has the process of an attached segment died? Its life lock is free, and nothing else says that it lives:
 * after that it touches no memory any more. A system call, or a few. If so, the state there is ENDED from then on.
 */
bool sc_owner_is_dead(const struct sc_seg *seg);

/*
 * The second opinion of a file of that name, open as `fd`, whose life lock is free. The caller keeps others from closing
 * descriptors (sc_otherfiles_hold()), or holds no lock of them.
 */
bool sc_owner_may_live(const char *name, int fd);

/* Is the file of the endpoint with that address there, and its owner dead? False when it cannot be told. */
bool sc_owner_left(const char *addr);

/*
 * The same of a service or a directory by the name of its file, which may be gone by now; of other files nothing
 * says whose they are. Somebody who holds its lock all the same is a reaper, or a live process that is none of this
 * version of the library.
 */
bool sc_owner_left_service(const char *name);

#endif
