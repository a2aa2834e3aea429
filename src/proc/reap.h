/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REAP_H
#define SC_REAP_H

#include <stdbool.h>
#include <shmcma/abi.h>
#include "shm/seg.h"

/*
 * Remove the file of that name in the shared memory directory if its owner is dead.
 * 1: removed; 0: there is none; -EBUSY: its owner lives, or somebody has to read in it yet; -EACCES: not ours to judge.
 */
int sc_reap_name(const char *name);

/*
 * The second opinion, once a life lock was found free: does the process that made the file live, and
 * still have its cookie in its memory? It may have lost the lock by mistake. `life`: its word of life, 0: has
 * none. True when it cannot be told; of a process of another pid namespace the lock decides alone.
 */
bool sc_reap_lives(const struct sc_abi_owner *owner, uint32_t life);

/*
 * Does the writer of a directory live? `held`: a process, `holder`, has its life lock; it may be a reaper. One that has
 * lost its lock by mistake, and has no thread that takes it again, still lives.
 */
bool sc_reap_has_writer(const struct sc_abi_owner *owner, bool held, pid_t holder);

/*
 * Has the process of an attached segment died? Its life lock is free, and nothing else says that it lives:
 * after that it touches no memory any more. A system call, or a few. If so, the state there is ENDED from then on.
 */
bool sc_reap_owner_is_dead(const struct sc_seg *seg);

/*
 * This process ends: remove the names of its files. A segment keeps its name as long as a living peer has yet to let in
 * one of its endpoints, as messages may lie there; then it is removed as if this process had been killed.
 */
void sc_reap_own(void);

/* Call `visit` with each name of this user's library in the shared memory directory. -errno: it cannot be read. */
int sc_reap_names(void (*visit)(const char *name, void *arg), void *arg);

/* Is the file of the endpoint with that address there, and its owner dead? False when it cannot be told. */
bool sc_reap_is_orphan(const char *addr);

/*
 * The same of a service or a directory by the name of its file, which may be gone by now; of other files nothing
 * says whose they are. Somebody who holds its lock all the same is a reaper, or a live process that is none of this
 * version of the library.
 */
bool sc_reap_service_is_orphan(const char *name);

#endif
