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
 * Does a file keep its name when its process ends, see sc_shmfile_unlink_all()? NAMED -> ASKED -> KEPT or GONE. KEPT becomes
 * NAMED again if the process asks once more.
 */
enum sc_shmfile_end {
	SC_SHMFILE_NAMED,
	SC_SHMFILE_ASKED, /* the thread that ends the process is looking for those that still need the name */
	SC_SHMFILE_KEPT,  /* there are some: the reaper of this process removes the name */
	SC_SHMFILE_GONE,  /* there are none: nobody opens the file any more */
};

/* A file that this process has made in SC_HOST_DIR. Embedded in what it holds (segment, service). */
struct sc_shmfile {
	struct sc_shmfile *next;
	char name[SC_ADDR_NAME_MAX]; /* "": has none, not yet or no more */
	int fd;
	dev_t dev;
	ino_t ino;
	pid_t pid;
	uint64_t made_by;   /* sc_host_self() of its maker, whose forked children unlink nothing */
	unsigned int users; /* its maker, and those who borrow */
	uint32_t end;	    /* enum sc_shmfile_end; written under own_mutex, read by any thread */
};

/* This process, as a file that it makes names it. */
int sc_shmfile_describe(struct sc_abi_owner *owner);

/* Make a file without name, mode 0600, empty, to be filled by the caller. */
int sc_shmfile_create(struct sc_shmfile *own);

/* Lock it, then give it its name. -EEXIST: the name is taken, another may be tried. */
int sc_shmfile_publish(struct sc_shmfile *own, const char *name);

/* Take its name away, if it still is that of this file. */
void sc_shmfile_unlink(struct sc_shmfile *own);

/* This process's file of that name, with one user more; NULL: there is none. */
struct sc_shmfile *sc_shmfile_borrow(const char *name);

/* One user less. True: that was the last, and the caller is to unmap, close and free. */
bool sc_shmfile_put(struct sc_shmfile *own);

/* Close the descriptor, which frees the life lock: the last thing to do. */
void sc_shmfile_close(struct sc_shmfile *own);

/*
 * The descriptor, to be used at once. One that the application has closed (closefrom(3)) is opened again by
 * the name, and the life lock, which went with it, taken. -errno: that cannot be.
 */
int sc_shmfile_fd(struct sc_shmfile *own);

/* The same for all that have a name, and take their life locks again. -EAGAIN: do it again, soon. */
int sc_shmfile_keep_all(void);

/* Is there a named file of this process that `look` says yes to? It must not open or close any of them. */
bool sc_shmfile_any(bool (*look)(int fd, void *arg), void *arg);

/*
 * The process ends: unlink its files, but those that `is_awaited` says yes to, which is called without a lock. Other
 * threads may go on: messages of theirs that would need the file after `is_awaited` has looked are refused, see
 * sc_shmfile_end().
 */
void sc_shmfile_unlink_all(bool (*is_awaited)(const char *name));

/*
 * May others still be told to open the file by its name? To be asked after they have been told so, and a full fence:
 * E1, pairs with E1' in sc_shmfile_unlink_all(). Either the answer is ASKED or GONE, or `is_awaited` sees what was told.
 */
static inline enum sc_shmfile_end sc_shmfile_end(const struct sc_shmfile *own)
{
	/* relaxed: ordered by the fence */
	return (enum sc_shmfile_end)sc_load_relaxed_32(&own->end);
}

bool sc_shmfile_has_name(const struct sc_shmfile *own);

/* For otherfile.c: does this process have that file? The remedy of an error, for the log. */
bool sc_shmfile_is_listed(const struct stat *st);
const char *sc_shmfile_remedy(int err);
/* A descriptor of that file that is no standard stream's; the same if it is none, or there is no other number. */
int sc_shmfile_above_streams(int fd);

/* SC_HOST_DIR/<name> */
#define SC_SHMFILE_PATH_MAX (SC_ADDR_NAME_MAX + 16)
void sc_shmfile_path(const char *name, char path[SC_SHMFILE_PATH_MAX]);

/* Is the name that of this inode? False as well if it cannot be told: then errno says why, else it is 0. */
bool sc_shmfile_is_named(const char *name, dev_t dev, ino_t ino);

/*
 * May this process make a file of that size? -EFBIG, and a line in the log, where the kernel would send SIGXFSZ,
 * which ends the process.
 */
int sc_shmfile_check_size(uint64_t size);

/*
 * fallocate(2), to its end: tmpfs gives up halfway when a signal comes (shmem_fallocate() in older kernels). -1
 * and errno.
 */
int sc_shmfile_fallocate(int fd, int mode, off_t offset, off_t len);

/* Is there a file of that name, another than this inode? False as well if it cannot be told. */
bool sc_shmfile_is_taken(const char *name, dev_t dev, ino_t ino);

/* Is that descriptor still this inode's? After closefrom(3) by the application it may be another's. */
bool sc_shmfile_is_open(int fd, dev_t dev, ino_t ino);

#endif
