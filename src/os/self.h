/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_SELF_H
#define SC_SELF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sc_host;
struct sc_shmfile;

#define SC_PIDFDS_MAX 256

/* A place in the table of pidfds. */
struct sc_pidfd {
	bool used, polled; /* polled: since it was opened */
	int fd;
	pid_t pid;
	uint64_t ino; /* 0: not known */
};

/*
 * The state of this process in the modules of this room, each part with its own mutex. The pidfds have none: the
 * mutex that callers of pidfd.h hold protects them.
 */
struct sc_self {
	pthread_mutex_t begin_mutex;
	bool begun;

	pthread_mutex_t host_mutex;
	struct sc_host *host; /* at the start of a page; NULL: not mapped yet */
	size_t host_size;     /* of that page */
	bool host_wiped;      /* the kernel empties that page in every child */

	pthread_mutex_t files_mutex; /* the list, names and users */
	struct sc_shmfile *files;
	atomic_bool misnamed;	      /* one of them had the name of another process's file */
	pthread_mutex_t others_mutex; /* see sc_otherfiles_hold() */

	struct sc_pidfd pidfds[SC_PIDFDS_MAX];
	int pidfds_used;
};

extern struct sc_self sc_self;

/*
 * Modules of this room call it before they use the structure. Any thread. False: this process cannot hear of forks; a
 * child then keeps more than it needs.
 */
bool sc_self_begin(void);

#endif
