/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REAP_H
#define SC_REAP_H

/*
 * Remove the file of that name in the shared memory directory if its owner is dead.
 * 1: removed; 0: there is none; -EBUSY: its owner lives; -EACCES: not ours to judge.
 */
int sc_reap_name(const char *name);

#endif
