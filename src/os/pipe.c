/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pipe.c: how one thread of this process wakes another one that sleeps in poll(2).
 *
 * A byte means "look", nothing else; a full pipe means the same. Nothing is shared with another process.
 *
 * The application may close any descriptor (closefrom(3)) and reuse its number: these functions write to, read or close
 * a descriptor only if it still has this pipe's inode. So it is a pipe: an eventfd(2) has no inode of its own.
 */
#define _GNU_SOURCE 1
#include "os/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fault.h"
#include "os/shmfile.h"

int sc_pipe_open(struct sc_pipe *pipe)
{
	struct stat st;
	int err;

	*pipe = (struct sc_pipe)SC_PIPE_NONE;
	if (SC_TRY("pipe.open", pipe2(pipe->ends, O_CLOEXEC | O_NONBLOCK))) {
		err = errno;
		pipe->ends[0] = pipe->ends[1] = -1;
		return -err;
	}
	/* both ends have one inode */
	if (SC_TRY("pipe.stat", fstat(pipe->ends[0], &st))) {
		err = errno;
		SC_CALL("pipe.unopen", close(pipe->ends[0]));
		SC_CALL("pipe.unopen_too", close(pipe->ends[1]));
		pipe->ends[0] = pipe->ends[1] = -1;
		return -err;
	}
	pipe->dev = st.st_dev;
	pipe->ino = st.st_ino;
	return 0;
}

/* Tells whether that end (0, 1) still belongs to this pipe. */
static bool has_end(const struct sc_pipe *pipe, int end)
{
	return sc_shmfile_is_open(pipe->ends[end], pipe->dev, pipe->ino);
}

static void close_end(struct sc_pipe *pipe, int end)
{
	if (has_end(pipe, end))
		SC_CALL("pipe.close", close(pipe->ends[end]));
	pipe->ends[end] = -1;
}

void sc_pipe_close(struct sc_pipe *pipe)
{
	close_end(pipe, 0);
	close_end(pipe, 1);
	pipe->rung = false;
}

void sc_pipe_hang_up(struct sc_pipe *pipe)
{
	close_end(pipe, 1);
}

bool sc_pipe_ring(struct sc_pipe *pipe)
{
	const char byte = 0;

	/*
	 * Writes nothing once the application has closed the read end: only a thread in poll(2) keeps that end open,
	 * and without one the writer gets SIGPIPE.
	 */
	if (!has_end(pipe, 1) || !has_end(pipe, 0))
		return false;
	if (!pipe->rung)
		pipe->rung = SC_TRY("pipe.ring", write(pipe->ends[1], &byte, 1)) == 1 || errno == EAGAIN;
	return pipe->rung;
}

bool sc_pipe_hear(struct sc_pipe *pipe)
{
	char bytes[16];

	if (!has_end(pipe, 0) || !has_end(pipe, 1))
		return false;
	pipe->rung = false;
	(void)!SC_TRY("pipe.hear", read(pipe->ends[0], bytes, sizeof(bytes)));
	return true;
}
