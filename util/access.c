/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access.c: see access.h. The kernel says only that it forbids a copy. The cause is found by the order of its own
 * checks: the system call at all (a process may always read itself), then the users and user namespaces, the
 * capabilities, the dumpable flag, and then the security modules, Yama among them.
 */
#define _GNU_SOURCE 1
#include "access.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define YAMA "/proc/sys/kernel/yama/ptrace_scope"
#define TEXT_MAX 256

/* Returns 0 if this process may read that one's memory, else the errno. No process has mapped the address. */
static int try_read(pid_t pid)
{
	uint64_t word;
	struct iovec local = { &word, sizeof(word) }, remote = { (void *)8, sizeof(word) };

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT ? 0 : errno;
}

/* Reads the first bytes of a small file, as a string. */
static bool read_text(const char *path, char text[TEXT_MAX])
{
	FILE *file = fopen(path, "re");
	size_t got = file ? fread(text, 1, TEXT_MAX - 1, file) : 0;

	if (file)
		fclose(file);
	text[got] = '\0';
	return got > 0;
}

/* Reads the rest of the line that begins with `key` in /proc/PID/status. */
static bool read_status(pid_t pid, const char *key, char text[TEXT_MAX])
{
	char path[32];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	while (file && !found && fgets(text, TEXT_MAX, file))
		found = !strncmp(text, key, strlen(key));
	if (file)
		fclose(file);
	if (found)
		memmove(text, text + strlen(key), strlen(text + strlen(key)) + 1);
	return found;
}

/* Tells whether the line of the other process's status is known and differs from this one's. */
static bool differs(pid_t pid, const char *key)
{
	char own[TEXT_MAX], other[TEXT_MAX];

	return read_status(getpid(), key, own) && read_status(pid, key, other) && strcmp(own, other) != 0;
}

static bool is_filtered(void)
{
	char mode[TEXT_MAX];

	return read_status(getpid(), "Seccomp:", mode) && atoi(mode) != 0;
}

/* Maps of user numbers are readable where the namespaces themselves are not. */
static bool is_in_other_user_namespace(pid_t pid)
{
	char path[32], own[TEXT_MAX], other[TEXT_MAX];
	struct stat own_ns, other_ns;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (!stat("/proc/self/ns/user", &own_ns) && !stat(path, &other_ns))
		return own_ns.st_ino != other_ns.st_ino;
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	return read_text("/proc/self/uid_map", own) && read_text(path, other) && strcmp(own, other) != 0;
}

static bool has_more_capabilities(pid_t pid)
{
	char own[TEXT_MAX], other[TEXT_MAX];

	return read_status(getpid(), "CapPrm:", own) && read_status(pid, "CapPrm:", other) &&
	       strtoull(other, NULL, 16) & ~strtoull(own, NULL, 16);
}

/* The kernel gives the files of a process that is not dumpable to root. */
static bool is_undumpable(pid_t pid)
{
	char path[32];
	struct stat st;

	if (pid == getpid())
		return prctl(PR_GET_DUMPABLE) != 1;
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	return geteuid() && !stat(path, &st) && st.st_uid != geteuid();
}

static int yama_scope(void)
{
	char text[TEXT_MAX];

	return read_text(YAMA, text) ? atoi(text) : 0;
}

/* The system call itself is forbidden, or the kernel lacks it. */
static void explain_call(struct finding *finding, int err)
{
	if (is_filtered()) {
		finding_why(finding, "a seccomp filter forbids process_vm_readv (%s)", strerror(err));
		finding_remedy(finding, "allow process_vm_readv and process_vm_writev in the profile of the "
					"container or sandbox (docker: --cap-add SYS_PTRACE, or a profile of its own)");
	} else {
		finding_why(finding, "this kernel has no process_vm_readv (%s)", strerror(err));
		finding_remedy(finding, "use a kernel with CONFIG_CROSS_MEMORY_ATTACH");
	}
}

static void explain_yama(struct finding *finding)
{
	finding_why(finding, "Yama forbids it: " YAMA " is %d", yama_scope());
	finding_remedy(finding, "as root: sysctl kernel.yama.ptrace_scope=0%s",
		       yama_scope() == 3 ? ", and boot again, as 3 cannot be changed" : "");
}

/* `pid`: a process that this one may not read. */
static void explain(struct finding *finding, pid_t pid, int err)
{
	int own = try_read(getpid());

	if (own || err == ENOSYS) {
		explain_call(finding, own ? own : err);
	} else if (differs(pid, "Uid:")) {
		finding_why(finding, "the process has other user numbers (real, effective or saved)");
		finding_remedy(finding, "run both as one user");
	} else if (differs(pid, "Gid:")) {
		finding_why(finding, "the process has other group numbers (real, effective or saved)");
		finding_remedy(finding, "run both with one primary group, and no program with a set-group-id bit");
	} else if (is_in_other_user_namespace(pid)) {
		finding_why(finding, "the process is in another user namespace");
		finding_remedy(finding, "run both in one container");
	} else if (has_more_capabilities(pid)) {
		finding_why(finding, "the process has capabilities that this one lacks");
		finding_remedy(finding, "start both with the same capabilities");
	} else if (is_undumpable(pid)) {
		finding_why(finding, "the process is not dumpable");
		finding_remedy(finding, "remove its call of prctl(PR_SET_DUMPABLE), and the set-user-id bit or the "
					"file capabilities of its program, and let this user read the file of the program");
	} else if (yama_scope() > 0) {
		explain_yama(finding);
	} else {
		finding_why(finding, "a security module forbids it (%s)", strerror(err));
		finding_remedy(finding, "see the kernel's log for messages of AppArmor or SELinux");
	}
}

static void show_forbidden(struct finding *finding, pid_t pid, int err)
{
	finding->level = FINDING_WARNING;
	explain(finding, pid, err);
}

/* A child that lives until the other end of the pipe is closed. */
static pid_t start_target(int pipe_fds[2])
{
	pid_t pid = fork();
	char byte;

	if (pid)
		return pid;
	close(pipe_fds[1]);
	while (read(pipe_fds[0], &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

/* Returns the errno of a read by a child that is no ancestor of the target: Yama makes a difference of that. */
static int try_beside(pid_t target)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(try_read(target));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return ECHILD;
	return WEXITSTATUS(status);
}

void access_check_siblings(struct finding *finding)
{
	int pipe_fds[2], err;
	pid_t target;

	if (pipe(pipe_fds) || (target = start_target(pipe_fds)) < 0) {
		finding->level = FINDING_WARNING;
		finding_what(finding, "this could not be tried: %s", strerror(errno));
		return;
	}
	err = try_beside(target);
	finding_what(finding, err ? "two processes of this user cannot read each other's memory, so large messages go "
				    "through shared memory"
				  : "two processes of this user can read each other's memory");
	if (err)
		show_forbidden(finding, target, err);
	close(pipe_fds[1]);
	close(pipe_fds[0]);
	(void)waitpid(target, NULL, 0);
}

/* Tells whether the process has another /dev/shm, as in another container. False if the kernel does not tell. */
static bool has_other_shm(pid_t pid)
{
	struct stat own, other;
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/root/dev/shm", (int)pid);
	return !stat("/dev/shm", &own) && !stat(path, &other) && own.st_dev != other.st_dev;
}

void access_check_process(struct finding *finding, pid_t pid)
{
	int err = try_read(pid);

	if (!err && has_other_shm(pid)) {
		finding->level = FINDING_FAULT;
		finding_what(finding, "process %d has another /dev/shm", (int)pid);
		finding_why(finding, "it is in another container or mount namespace");
		finding_remedy(finding, "give both one /dev/shm (docker: --ipc=shareable and --ipc=container:NAME, or "
					"--ipc=host)");
	} else if (!err) {
		finding_what(finding, "this process can read the memory of process %d", (int)pid);
	} else if (err == ESRCH) {
		finding->level = FINDING_FAULT;
		finding_what(finding, "there is no process %d here", (int)pid);
		finding_why(finding, "it has ended, or is in another pid namespace");
	} else {
		finding_what(finding, "this process cannot read the memory of process %d", (int)pid);
		show_forbidden(finding, pid, err);
	}
}
