/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command.h: runs a command of this build, and looks at what it prints.
 */
#ifndef COMMAND_TEST_H
#define COMMAND_TEST_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND_TEXT 32768

/* Where the command of this build is. A test that uses it fails if it is not built. */
static inline void command_path(char *path, size_t size)
{
	const char *build = getenv("abs_top_builddir");

	snprintf(path, size, "%s/util/shmcma", build ? build : ".");
	if (access(path, X_OK))
		fail_msg("no %s: make first", path);
}

/* Runs the shell's line, with the commands of this build in its path. Returns the exit status; `text`: the output. */
static inline int run_command(const char *line, char text[COMMAND_TEXT])
{
	char path[512], whole[2048];
	size_t got;
	FILE *out;
	int status;

	command_path(path, sizeof(path));
	snprintf(whole, sizeof(whole), "PATH=%.*s:$PATH; %s", (int)(strrchr(path, '/') - path), path,
		 line);
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

/* Does the output of the command parse, if there is Python to tell? */
static inline bool is_json(const char *command)
{
	char line[512], text[COMMAND_TEXT];

	if (run_command("command -v python3", text))
		return true;
	snprintf(line, sizeof(line), "%s | python3 -m json.tool", command);
	return !run_command(line, text);
}

/* From now on process_vm_readv() fails in this process and in its children. Of that process it is permitted; 0: of none. */
static inline bool forbid_cma(int err, pid_t except)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)except, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#endif
