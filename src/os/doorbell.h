/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DOORBELL_H
#define SC_DOORBELL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <shmcma/abi.h>

/* A pipe that a thread of this process polls, and that others of its user can write to. */
struct sc_doorbell {
	int ends[2]; /* the thread's, and one to write to; -1: none */
	dev_t dev;
	ino_t ino;
	bool rung;  /* by this process, and not heard yet */
	bool heard; /* shown: nobody needs to knock for a while */
};
#define SC_DOORBELL_NONE                                                                                      \
	{                                                                                                 \
		.ends = { -1, -1 }                                                                        \
	}

/* ---- one's own: one thread at a time --------------------------------------------------------- */

int sc_doorbell_open(struct sc_doorbell *door);
void sc_doorbell_close(struct sc_doorbell *door);
/* Is that end (0, 1) still this pipe's? The application may have closed it (closefrom(3)). */
bool sc_doorbell_has_end(const struct sc_doorbell *door, int end);

/* Close the writer's end: the poller sees that, unless another process has it open. */
void sc_doorbell_hang_up(struct sc_doorbell *door);

/* Wake who polls it. False: the pipe has been lost. */
bool sc_doorbell_ring(struct sc_doorbell *door);
/* Take what has come; *knocked: some of it from another process. False: the pipe has been lost. */
bool sc_doorbell_hear(struct sc_doorbell *door, bool *knocked);

/* Let others know where it is; NULL: that there is none. */
void sc_doorbell_show(const struct sc_doorbell *door, struct sc_abi_presence *presence);
/* It is where it was, `heard` has changed. */
void sc_doorbell_show_heard(const struct sc_doorbell *door, struct sc_abi_presence *presence);

/* ---- another process's: any thread ----------------------------------------------------------- */

/*
 * Knock at the door that a copy of the presence of a process tells of. `pid`: of that process as seen from
 * here, from a trustworthy source (sc_lifelock_check()). 0, or a negative errno: -ENOENT there is none, or it has
 * just been changed; -EACCES, -EPERM: it is not to be reached from here.
 */
int sc_doorbell_knock(pid_t pid, const struct sc_abi_presence *presence);

/*
 * The same in two steps, for those who knock often: a descriptor, to be closed by the caller; write() one
 * byte that is not 0 to it, EAGAIN is as good as done.
 */
int sc_doorbell_reach(pid_t pid, const struct sc_abi_presence *presence);

#endif
