/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * waitfd.c: the pipes by which applications wait with a descriptor. Any thread; see waitfd.h.
 */
#define _GNU_SOURCE 1
#include "wait/waitfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/provider.h"

int shmcma_pipe_open(struct shmcma_pipe *pipe)
{
	struct stat st;

	if (pipe2(pipe->ends, O_CLOEXEC | O_NONBLOCK)) {
		int err = errno;

		pipe->ends[0] = pipe->ends[1] = -1;
		shmcma_warn(FI_LOG_CORE, "no descriptor to wait on: %s; see ulimit -n\n", strerror(err));
		return -err;
	}
	(void)fstat(pipe->ends[0], &st); /* both ends have one inode */
	pipe->dev = st.st_dev;
	pipe->ino = st.st_ino;
	return 0;
}

static bool is_ours(const struct shmcma_pipe *pipe, int end)
{
	struct stat st;

	return pipe->ends[end] >= 0 && !fstat(pipe->ends[end], &st) && st.st_dev == pipe->dev &&
	       st.st_ino == pipe->ino;
}

void shmcma_pipe_close(struct shmcma_pipe *pipe)
{
	for (int end = 0; end < 2; end++) {
		if (is_ours(pipe, end))
			close(pipe->ends[end]);
		pipe->ends[end] = -1;
	}
}

void shmcma_pipe_raise(struct shmcma_pipe *pipe)
{
	ssize_t written = 0;

	/* without the read end, which the application may have closed, the writer gets SIGPIPE */
	if (!atomic_exchange(&pipe->readable, true) && is_ours(pipe, 1) && is_ours(pipe, 0))
		written = write(pipe->ends[1], "", 1); /* if the pipe is full, it is readable */
	(void)written;
}

/*
 * Reads the byte first: a byte that is written after `readable` has become false must stay. No byte: another thread is
 * between the two steps of shmcma_pipe_raise(), and its byte, for an event before this call, makes a later call necessary.
 */
bool shmcma_pipe_lower(struct shmcma_pipe *pipe)
{
	char byte;

	if (!atomic_load(&pipe->readable) || !is_ours(pipe, 0))
		return false;
	if (read(pipe->ends[0], &byte, 1) != 1)
		return false;
	atomic_exchange(&pipe->readable, false);
	return true;
}
