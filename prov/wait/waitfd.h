/* SPDX-License-Identifier: BSD-2-Clause */
/* waitfd.h: a descriptor on which an application sleeps (waitfd.c). */
#ifndef SHMCMA_WAITFD_H
#define SHMCMA_WAITFD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/*
 * A pipe that is readable while there may be something to read. Unlike an eventfd(2) it has an inode, which shows
 * whether the application has closed it (closefrom(3)) and reused its number.
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
/*
 * Makes the pipe unreadable. The look that follows sees an event after this call, or the event makes the pipe readable
 * again. Returns whether it was readable. One thread at a time.
 */
bool shmcma_pipe_lower(struct shmcma_pipe *pipe);

#endif
