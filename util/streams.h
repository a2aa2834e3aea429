/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * streams.h: the standard streams of the operator's commands.
 */
#ifndef UTIL_STREAMS_H
#define UTIL_STREAMS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t streams_too_large;

/* SIGXFSZ, which would end the process: the write fails instead. A command that this one runs has the default again. */
static inline void streams_note(int number)
{
	(void)number;
	streams_too_large = 1;
}

/*
 * Before any file is opened: one that got the number of a stream that is closed (2>&-) would be written to, and it may
 * be a living process's segment. A descriptor of "/" opened with O_PATH takes the place of each closed stream: it can
 * be neither read nor written.
 */
static inline bool streams_init(void)
{
	if (signal(SIGXFSZ, streams_note) == SIG_IGN)
		signal(SIGXFSZ, SIG_IGN);
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH) != fd)
			return false;
	return true;
}

/* At the end: has all been written? */
static inline bool streams_fini(const char *command)
{
	bool failed = ferror(stdout);

	if (!fflush(stdout) && !failed)
		return true;
	fprintf(stderr, "%s: cannot write: %s\n", command,
		streams_too_large
			? "the file is too large; raise the limit of the size of files (ulimit -f)"
		: failed ? "the output is not complete"
			 : strerror(errno));
	return false;
}

#endif
