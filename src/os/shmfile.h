/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_SHMFILE_H
#define SC_SHMFILE_H

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <shmcma/abi.h>
#include "os/addr.h"
#include "base/atomic.h"

/*
 * Whether a file keeps its name when its process ends, see sc_shmfile_unlink_all(): NAMED -> ASKED -> KEPT or GONE.
 * KEPT becomes NAMED again if the process asks once more.
 */
enum sc_shmfile_end {
	SC_SHMFILE_NAMED,
	SC_SHMFILE_ASKED, /* the ending thread looks for processes that still need the name */
	SC_SHMFILE_KEPT,  /* some need it: a reaper removes the name after this process */
	SC_SHMFILE_GONE,  /* none needs it: no process opens the file any more */
};

/* A file that this process has made in SC_HOST_DIR. Part of its user's structure (segment, service). */
struct sc_shmfile {
	struct sc_shmfile *next;
	char name[SC_ADDR_NAME_MAX]; /* "": no name yet, or no more */
	int fd;
	dev_t dev;
	ino_t ino;
	pid_t pid;
	uint64_t made_by;   /* sc_host_self() of its maker; a forked child of the maker unlinks nothing */
	unsigned int users; /* its maker and its borrowers */
	uint32_t end;	    /* enum sc_shmfile_end; written under files_mutex, read by any thread */
};

/* Describes this process for a file that it makes. */
int sc_shmfile_describe(struct sc_abi_owner *owner);

/* Makes a file without name, mode 0600, empty; the caller fills it. */
int sc_shmfile_create(struct sc_shmfile *own);

/* Locks the file, then gives it its name. -EEXIST: the name is taken; the caller may try another. */
int sc_shmfile_publish(struct sc_shmfile *own, const char *name);

/* Removes its name, if the name still belongs to this file. */
void sc_shmfile_unlink(struct sc_shmfile *own);

/* Returns this process's file of that name and adds a user; NULL: there is none. */
struct sc_shmfile *sc_shmfile_borrow(const char *name);

/* Removes a user. True: it was the last; the caller unmaps, closes and frees. */
bool sc_shmfile_put(struct sc_shmfile *own);

/* Closes the descriptor, which frees the life lock: the last step. */
void sc_shmfile_close(struct sc_shmfile *own);

/*
 * Returns the descriptor, for use at once. If the application has closed it (closefrom(3)), opens the file again by its
 * name and locks it again. -errno: not possible.
 */
int sc_shmfile_fd(struct sc_shmfile *own);

/* The same for all files with a name; takes their life locks again. -EAGAIN: call it again soon. */
int sc_shmfile_keep_all(void);

/*
 * Tells whether look() says yes to a named file of this process. look() must not open or close any of them. `fd`: -1 if
 * the application has closed the descriptor.
 */
bool sc_shmfile_any(bool (*look)(int fd, void *arg), void *arg);

/*
 * The process ends: unlinks its files, except those to which is_awaited(), called without a lock, says yes. Other
 * threads may go on: messages of theirs that would need the file after is_awaited() has looked are refused, see
 * sc_shmfile_end().
 */
void sc_shmfile_unlink_all(bool (*is_awaited)(const char *name));

/*
 * Tells whether others may still be told to open the file by its name. The caller asks after it has told them, and
 * after a full fence: E1, pairs with E1' in sc_shmfile_unlink_all(). Either the answer is ASKED or GONE, or
 * is_awaited() sees what they were told.
 */
static inline enum sc_shmfile_end sc_shmfile_end(const struct sc_shmfile *own)
{
	/* relaxed: ordered by the fence */
	return (enum sc_shmfile_end)sc_load_relaxed_32(&own->end);
}

bool sc_shmfile_has_name(const struct sc_shmfile *own);

/* For otherfile.c: tells whether this process has that file. Returns the remedy of an error, for the log. */
bool sc_shmfile_is_listed(const struct stat *st);
const char *sc_shmfile_remedy(int err);
/* Returns a descriptor of that file above the standard streams: `fd` itself if it is, or if no other number is free. */
int sc_shmfile_above_streams(int fd);

/* SC_HOST_DIR/<name> */
#define SC_SHMFILE_PATH_MAX (SC_ADDR_NAME_MAX + 16)
void sc_shmfile_path(const char *name, char path[SC_SHMFILE_PATH_MAX]);

/* Tells whether the name belongs to this inode. False also if the kernel does not tell: then errno is set, else 0. */
bool sc_shmfile_is_named(const char *name, dev_t dev, ino_t ino);

/*
 * Checks whether this process may make a file of that size. -EFBIG, and a line in the log: the kernel would send
 * SIGXFSZ, which ends the process.
 */
int sc_shmfile_check_size(uint64_t size);

/*
 * Calls fallocate(2) until it is done: tmpfs gives up halfway and takes all back when a signal comes (shmem_fallocate()
 * in older kernels). After a signal this function asks for half as much at a time, down to one page, so that it returns
 * although a timer is faster than the whole. -1 and errno; the pieces before then keep their memory.
 */
int sc_shmfile_fallocate(int fd, int mode, off_t offset, off_t len);

/* Tells whether the descriptor still belongs to this inode. The application may reuse its number after closefrom(3). */
bool sc_shmfile_is_open(int fd, dev_t dev, ino_t ino);

#endif
