/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_OTHERFILE_H
#define SC_OTHERFILE_H

#include <stdbool.h>
#include <sys/stat.h>

/*
 * Opens another process's file for reading and writing, after a check of its type, owner and mode; *st is of the opened
 * file. Returns a descriptor, or -ENOENT; -EACCES: not a regular file of this user with mode 0600; -EBUSY: this process
 * itself holds it, and it was not opened; -EMFILE... The caller logs the first three.
 */
int sc_otherfile_open(const char *name, struct stat *st);
void sc_otherfile_close(int fd);

/*
 * For a descriptor (or error) that stays open: returns `fd` unless it is the number of a standard stream, else another
 * descriptor in its place.
 */
int sc_otherfile_move(int fd);

/*
 * The same, but a name that can only be another process's is opened first and checked afterwards. The caller does not
 * hold sc_otherfiles_hold().
 */
int sc_otherfile_open_peer(const char *name, struct stat *st);

/*
 * Keeps all other threads from sc_otherfile_close(), which would drop a lock that this process has just taken on
 * another process's file. In between, the caller closes by close(2).
 */
void sc_otherfiles_hold(void);
void sc_otherfiles_release(void);

#endif
