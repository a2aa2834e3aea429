/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REAP_H
#define SC_REAP_H

/*
 * Remove the file of that name in the shared memory directory if its owner is dead.
 * 1: removed; 0: there is none; -EBUSY: its owner lives, or somebody has to read in it yet; -EACCES: not ours to judge.
 */
int sc_reap_name(const char *name);

/*
 * This process ends: remove the names of its files. A segment keeps its name as long as a living peer has yet to let in
 * one of its endpoints, as messages may lie there; then it is removed as if this process had been killed.
 */
void sc_reap_own(void);

/* Call `visit` with each name of this user's library in the shared memory directory. -errno: it cannot be read. */
int sc_reap_names(void (*visit)(const char *name, void *arg), void *arg);

#endif
