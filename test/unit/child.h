/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * child.h: other processes for the unit tests of shared memory.
 *
 * A child runs a function, which tells its parent one line (child_tell) and waits until the parent lets it go
 * (child_wait). A child dies with its parent, and has a watchdog of its own.
 */
#ifndef CHILD_H
#define CHILD_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shmcma/core.h>
#include "../watchdog.h"

#define CHILD_LINE 256

struct child {
	pid_t pid;
	int up, down; /* parent: read its line from `up`; a byte in `down` lets it go */
	char line[CHILD_LINE];
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHILD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHILD_SANITIZED 1
#endif
#endif
#ifndef CHILD_SANITIZED
#define CHILD_SANITIZED 0
#endif

/* A check in a child: cmocka's do not work there. */
#define CHILD_CHECK(condition)                                                                            \
	do {                                                                                              \
		if (!(condition)) {                                                                       \
			fprintf(stderr, "%s:%d: in a child: %s\n", __FILE__, __LINE__, #condition);       \
			_exit(1);                                                                         \
		}                                                                                         \
	} while (0)

/* The exit status of a child that cannot do its part of the test on this machine or in this build. */
#define CHILD_SKIPS 77

/* A child has done the test: skips it or fails by the child's status, which waitpid(2) has returned. */
#define CHILD_ASSERT(status)                                                                              \
	do {                                                                                              \
		int status_ = (status);                                                                   \
		if (WIFEXITED(status_) && WEXITSTATUS(status_) == CHILD_SKIPS)                            \
			skip();                                                                           \
		assert_int_equal(status_, 0);                                                             \
	} while (0)

typedef void child_body(struct child *self, void *arg);

static inline void child_tell(struct child *self, const char *line)
{
	char text[CHILD_LINE] = "";

	snprintf(text, sizeof(text), "%s", line);
	CHILD_CHECK(write(self->up, text, sizeof(text)) == sizeof(text));
}

/* Until the parent lets it go. */
static inline void child_wait(struct child *self)
{
	char byte;

	while (read(self->down, &byte, 1) < 0 && errno == EINTR)
		;
}

/* Start without waiting for its line. */
static inline void child_spawn(struct child *child, child_body *body, void *arg)
{
	int up[2], down[2];

	if (pipe2(up, O_CLOEXEC) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, down))
		abort();
	fflush(NULL);
	child->pid = fork();
	if (child->pid < 0)
		abort();
	if (!child->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		watchdog_start(NULL, 0);
		close(up[0]);
		close(down[1]);
		child->up = up[1];
		child->down = down[0];
		body(child, arg);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	child->up = up[0];
	child->down = down[1];
}

/* Start and wait for its line; false: it ended without a word. */
static inline bool child_start(struct child *child, child_body *body, void *arg)
{
	child_spawn(child, body, arg);
	return read(child->up, child->line, sizeof(child->line)) == sizeof(child->line);
}

static inline int child_reap(struct child *child)
{
	int status = -1;

	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(child->up);
	close(child->down);
	return status;
}

/*
 * Let it go on to its end (by a byte: that the other side closes is not seen by the older of two children,
 * for the younger has it open too); its status as of waitpid(2), 0 if all was well.
 */
static inline int child_end(struct child *child)
{
	(void)!send(child->down, "", 1, MSG_NOSIGNAL);
	return child_reap(child);
}

static inline void child_kill(struct child *child)
{
	kill(child->pid, SIGKILL);
	child_reap(child);
}

/* Run the function in a child to its end; 0 if all was well there. */
static inline int child_run(child_body *body, void *arg)
{
	struct child child;

	child_spawn(&child, body, arg);
	return child_end(&child);
}

/* ---- a /dev/shm that nobody else uses -------------------------------------------------------- */

static inline void child_write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		perror(path);
	close(fd);
}

/* Give this process and its future children a /dev/shm of their own. False: not allowed here. */
static inline bool child_private_shm(const char *options)
{
	unsigned int uid = geteuid(), gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWNS)) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
			return false;
		child_write_file("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "%u %u 1", uid, uid);
		child_write_file("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "%u %u 1", gid, gid);
		child_write_file("/proc/self/gid_map", map);
	}
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	return !mount("shmcma-test", "/dev/shm", "tmpfs", 0, options);
}

/* ---- log ------------------------------------------------------------------------------------- */

static enum sc_log_level child_log_level;
static char child_log_line[512];
static unsigned int child_log_lines;

/* The core's own thread may log a line at any time: child_log() does not count its lines. */
static inline bool child_is_daemon(void)
{
	char name[16] = "";

	return !prctl(PR_GET_NAME, name) && !strcmp(name, "shmcma-daemon");
}

static inline void child_log(enum sc_log_level level, const char *line)
{
	if (child_is_daemon()) {
		if (getenv("TEST_VERBOSE"))
			fprintf(stderr, "[%d, thread] %s\n", (int)getpid(), line);
		return;
	}
	__atomic_fetch_add(&child_log_lines, 1, __ATOMIC_RELAXED);
	child_log_level = level;
	snprintf(child_log_line, sizeof(child_log_line), "%s", line);
	if (getenv("TEST_VERBOSE"))
		fprintf(stderr, "[%d] %s\n", (int)getpid(), line);
}

#endif
