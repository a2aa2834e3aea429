/* SPDX-License-Identifier: BSD-2-Clause */
/* pipe.h: a descriptor that an application sleeps on (pipe.c). */
#ifndef SHMCMA_PIPE_H
#define SHMCMA_PIPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * A pipe that is readable while there may be something: of two ends, as eventfd(2) has no inode by which it could
 * be told whether the application has closed it (closefrom(3)) and uses its number for something else.
 */
struct shmcma_pipe {
	int ends[2]; /* -1: none */
	dev_t dev;
	ino_t ino;
	atomic_bool readable;
};
int shmcma_pipe_open(struct shmcma_pipe *pipe);
void shmcma_pipe_close(struct shmcma_pipe *pipe);
void shmcma_pipe_raise(struct shmcma_pipe *pipe);
/* An event after this call is seen by the look that follows, or makes the pipe readable again. Was it readable? */
bool shmcma_pipe_lower(struct shmcma_pipe *pipe);

#endif
