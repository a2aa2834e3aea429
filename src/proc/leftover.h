/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LEFTOVER_H
#define SC_LEFTOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* A look goes on until so many processes live, in the order of their pids. */
#define SC_LEFTOVER_NEXT 8
/* A process that begins looks at so many files of other users that have names of this user. */
#define SC_LEFTOVER_OTHERS 64

/* A process that a name names: the same pid with another nonce is another process. */
struct sc_leftover {
	uint32_t pid, nonce; /* half of the nonce */
	bool ended;	     /* a look has told of it */
};

/* The state of the daemon's thread from one look to the next; at first all 0. */
struct sc_leftovers {
	struct sc_leftover *processes; /* in the names, ascending, each once */
	size_t count, room;
	struct timespec changed; /* time of the directory's last change, at the last look */
	bool settled;		 /* the names were read, and the look before had found the same time */
};

/*
 * Tells whether a file of this user has a name with a pid without process: a scan may then find files of dead
 * processes. False after SC_LEFTOVER_OTHERS such files of other users. Any thread.
 */
bool sc_leftover_is_here(void);

/*
 * The same for the processes next to this one. True only if no look has told of one of them before, as a file of
 * another user, or with a pid of another pid namespace, may stay for long. One thread at a time.
 */
bool sc_leftover_look(struct sc_leftovers *leftovers);

void sc_leftover_fini(struct sc_leftovers *leftovers);

#endif
