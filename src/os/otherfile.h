/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_OTHERFILE_H
#define SC_OTHERFILE_H

#include <stdbool.h>
#include <sys/stat.h>

/*
 * Open another process's file for reading and writing, after a look at its type, owner and mode; *st is of what was
 * opened.
 * Descriptor, or -ENOENT; -EACCES: not a regular file of this user with mode 0600; -EBUSY: this process
 * itself holds it, and it was not opened; -EMFILE... The first three are for the caller to log.
 */
int sc_otherfile_open(const char *name, struct stat *st);
void sc_otherfile_close(int fd);

/* One that is to stay open: its number, or error, if it is none of the standard streams', else another one of that file. */
int sc_otherfile_move(int fd);

/*
 * The same, for a name that may say that it is another process's: then it is opened, and looked at after that.
 * To be called where others are not held.
 */
int sc_otherfile_open_peer(const char *name, struct stat *st);

/*
 * Is a descriptor that sc_otherfile_open() has opened still of that file, and that as it was: as long, with as many
 * names, of this user, with mode 0600?
 */
bool sc_otherfile_is_unchanged(int fd, const struct stat *as);

/*
 * Keep all other threads from sc_otherfile_close(), which would drop a lock that this process has just
 * taken on another's file. In between, close(2) is for the caller.
 */
void sc_otherfiles_hold(void);
void sc_otherfiles_release(void);

#endif
