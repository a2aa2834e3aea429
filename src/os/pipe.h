/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PIPE_H
#define SC_PIPE_H

#include <stdbool.h>
#include <sys/types.h>

/* A pipe that a thread of this process polls, and that others of its threads write to. One thread at a time. */
struct sc_pipe {
	int ends[2]; /* the thread's, and one to write to; -1: none */
	dev_t dev;
	ino_t ino;
	bool rung; /* and not heard yet */
};
#define SC_PIPE_NONE                                                                                          \
	{                                                                                                 \
		.ends = { -1, -1 }                                                                        \
	}

int sc_pipe_open(struct sc_pipe *pipe);
/* Also when the application has closed it; a descriptor that the application has put in its place is left alone. */
void sc_pipe_close(struct sc_pipe *pipe);

/* Close the writer's end: the poller sees that, unless a forked child has it open. */
void sc_pipe_hang_up(struct sc_pipe *pipe);

/* Wake the thread that polls it. False: the pipe has been lost. */
bool sc_pipe_ring(struct sc_pipe *pipe);
/* Take what has come. False: the pipe has been lost. */
bool sc_pipe_hear(struct sc_pipe *pipe);

#endif
