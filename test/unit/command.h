/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command.h: runs a command of this build, and looks at what it prints.
 */
#ifndef COMMAND_TEST_H
#define COMMAND_TEST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define COMMAND_TEXT 32768

/* Runs the shell's line, with the commands of this build in its path. Returns the exit status; `text`: the output. */
static inline int run_command(const char *line, char text[COMMAND_TEXT])
{
	const char *build = getenv("abs_top_builddir");
	char whole[512];
	size_t got;
	FILE *out;
	int status;

	snprintf(whole, sizeof(whole), "PATH=%s/util:$PATH; %s", build ? build : ".", line);
	out = popen(whole, "re");
	assert_non_null(out);
	got = fread(text, 1, COMMAND_TEXT - 1, out);
	text[got] = '\0';
	status = pclose(out);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static inline void says(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no \"%s\" in: %s", part, text);
}

#endif
