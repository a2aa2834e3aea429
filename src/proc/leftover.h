/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LEFTOVER_H
#define SC_LEFTOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* So many living processes are looked at, those that come next by their pids. */
#define SC_LEFTOVER_NEXT 8

/* The daemon's thread keeps it from one look to the next. All 0: nothing. */
struct sc_leftovers {
	uint32_t *pids; /* of the names, ascending, each once */
	size_t count, room;
	struct timespec changed; /* the directory, when its names were read */
	bool settled;		 /* it had not changed since the look before */
	uint64_t ended;		 /* a sum over the pids that no process had */
};

/* Is there a name whose pid no process has? Then a scan may find files of the dead. Any thread. */
bool sc_leftover_is_here(void);

/*
 * The same of the processes next to this one, and true only if they are others than at the last look: those of
 * another pid namespace are nobody's for long. One thread at a time.
 */
bool sc_leftover_look(struct sc_leftovers *leftovers);

void sc_leftover_fini(struct sc_leftovers *leftovers);

#endif
