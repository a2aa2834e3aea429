/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PIPE_H
#define SC_PIPE_H

#include <stdbool.h>
#include <sys/types.h>

/* A pipe that a thread of this process polls, and other threads of the process write to. One thread at a time. */
struct sc_pipe {
	int ends[2]; /* the read end and the write end; -1: none */
	dev_t dev;
	ino_t ino;
	bool rung; /* rung since the last sc_pipe_hear() */
};
#define SC_PIPE_NONE                                                                                          \
	{                                                                                                 \
		.ends = { -1, -1 }                                                                        \
	}

int sc_pipe_open(struct sc_pipe *pipe);
/* Closes the pipe, if the application has not; leaves a descriptor alone that the application has put in its place. */
void sc_pipe_close(struct sc_pipe *pipe);

/* Closes the write end: the poller sees that, unless a forked child has it open. */
void sc_pipe_hang_up(struct sc_pipe *pipe);

/* Wakes the thread that polls the pipe. False: the pipe is lost. */
bool sc_pipe_ring(struct sc_pipe *pipe);
/* Empties the pipe. False: the pipe is lost. */
bool sc_pipe_hear(struct sc_pipe *pipe);

#endif
