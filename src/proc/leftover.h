/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LEFTOVER_H
#define SC_LEFTOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* A look goes on until so many processes live, in the order of their pids. */
#define SC_LEFTOVER_NEXT 8

/* The state of the daemon's thread from one look to the next; at first all 0. */
struct sc_leftovers {
	uint32_t *pids; /* in the names, ascending, each once */
	size_t count, room;
	struct timespec changed; /* time of the directory's last change, at the last look */
	bool settled;		 /* the look before had found the same time */
	uint64_t ended;		 /* hash of the pids that no process had */
};

/* Tells whether a name has a pid without process: a scan may then find files of dead processes. Any thread. */
bool sc_leftover_is_here(void);

/*
 * The same for the processes next to this one. True only if the pids without process differ from those of the last
 * look, as a pid of another pid namespace may have no process here for long. One thread at a time.
 */
bool sc_leftover_look(struct sc_leftovers *leftovers);

void sc_leftover_fini(struct sc_leftovers *leftovers);

#endif
