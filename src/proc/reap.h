/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REAP_H
#define SC_REAP_H

/*
 * Removes the file of this name from /dev/shm if its owner is dead. 1: removed; 0: there is no such file; -EBUSY: the
 * owner lives, or a peer must still read in the file; -EACCES: not a file of this user and this library.
 */
int sc_reap_name(const char *name);

/*
 * Removes the names of this process's files, as the process ends. The segment of an endpoint that a living peer has not
 * let in yet keeps its name, as it may hold messages; a reaper removes it like a file of a killed process.
 */
void sc_reap_own(void);

/* Calls `visit` with each name of this user and this library in /dev/shm. -errno: the directory cannot be read. */
int sc_reap_names(void (*visit)(const char *name, void *arg), void *arg);

#endif
