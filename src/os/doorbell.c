/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doorbell.c: how a process wakes a thread of another one that sleeps in poll(2).
 *
 * A door is a pipe of the process that sleeps. Others reach it as /proc/<pid>/task/<tid>/fd/<number>: number,
 * device and inode stand in the owner's presence (abi.h), the pid comes from the kernel (the holder of the
 * life lock), the thread is the one with the word of life, or the first one: that of a process whose first
 * thread has ended shows no descriptors. So it has no name that could be left behind, takes no instance of
 * anything that is counted for each user, and works where processes share /dev/shm but no network namespace.
 * It needs what reading another's /proc/<pid>/fd needs (PTRACE_MODE_READ: same user, dumpable, no
 * capabilities that the caller lacks; no matter of Yama's), and a pid that is visible from here.
 *
 * A presence is input from another process. The path is within /proc/<pid of the owner>, so nobody but the owner is
 * reached whatever the number; nothing is opened but a pipe with that inode: it is looked at through an O_PATH
 * descriptor first, which has no effect on what is behind it. It is opened for reading too, for then a write raises no
 * SIGPIPE, and never blocks.
 *
 * A byte says nothing but "look": 0 from the process itself, anything else from another. A full pipe is as
 * good as one with a byte in it, and so is SC_ABI_DOOR_HEARD to processes that knock so that the owner looks: it stands
 * for a while after a knock, or an event that causes a look as a knock does, and ends before the look (daemon.c). A
 * process that dies in the middle of knocking has knocked or has not. The owner may be stopped for any length; then it
 * hears it all at once.
 *
 * closefrom(3) by the application: nothing is believed or closed here that is not this pipe's inode any more.
 *
 *   N1 release, sc_doorbell_show(): where the door is before that there is one. A process that reads a mixture of two
 *      doors finds another inode, and does not knock; the owner has to look around after it has changed its door.
 */
#define _GNU_SOURCE 1
#include "os/doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/fault.h"
#include "os/shmfile.h"

#define PROC_PATH_MAX 64
#define RING 0
#define KNOCK 1

/* ---- one's own ------------------------------------------------------------------------------- */

int sc_doorbell_open(struct sc_doorbell *door)
{
	struct stat st;

	*door = (struct sc_doorbell)SC_DOORBELL_NONE;
	if (SC_TRY("doorbell.pipe", pipe2(door->ends, O_CLOEXEC | O_NONBLOCK))) {
		door->ends[0] = door->ends[1] = -1;
		return -errno;
	}
	/* both ends have one inode */
	if (SC_TRY("doorbell.pipe_stat", fstat(door->ends[0], &st))) {
		int err = errno;

		SC_CALL("doorbell.unpipe", close(door->ends[0]));
		SC_CALL("doorbell.unpipe_too", close(door->ends[1]));
		door->ends[0] = door->ends[1] = -1;
		return -err;
	}
	door->dev = st.st_dev;
	door->ino = st.st_ino;
	return 0;
}

bool sc_doorbell_has_end(const struct sc_doorbell *door, int end)
{
	return sc_shmfile_is_open(door->ends[end], door->dev, door->ino);
}

static void close_end(struct sc_doorbell *door, int end)
{
	if (sc_doorbell_has_end(door, end))
		SC_CALL("doorbell.close", close(door->ends[end]));
	door->ends[end] = -1;
}

void sc_doorbell_close(struct sc_doorbell *door)
{
	close_end(door, 0);
	close_end(door, 1);
	door->rung = door->heard = false;
}

void sc_doorbell_hang_up(struct sc_doorbell *door)
{
	close_end(door, 1);
}

bool sc_doorbell_ring(struct sc_doorbell *door)
{
	const char byte = RING;

	/*
	 * Nothing is written where the application has closed the end that is read: a thread that is not in poll(2)
	 * just then does not hold on to it, and the writer gets SIGPIPE.
	 */
	if (!sc_doorbell_has_end(door, 1) || !sc_doorbell_has_end(door, 0))
		return false;
	if (!door->rung)
		door->rung = SC_TRY("doorbell.ring", write(door->ends[1], &byte, 1)) == 1 || errno == EAGAIN;
	return door->rung;
}

bool sc_doorbell_hear(struct sc_doorbell *door, bool *knocked)
{
	char bytes[256];
	ssize_t got;

	*knocked = false;
	if (!sc_doorbell_has_end(door, 0) || !sc_doorbell_has_end(door, 1))
		return false;
	door->rung = false;
	/*
	 * Once: poll(2) tells at once of bytes that are left, and a process that floods the pipe does not keep us here.
	 */
	got = SC_TRY("doorbell.hear", read(door->ends[0], bytes, sizeof(bytes)));
	for (ssize_t i = 0; i < got; i++)
		*knocked |= bytes[i] != RING;
	return true;
}

/* N1 */
void sc_doorbell_show(const struct sc_doorbell *door, struct sc_abi_presence *presence)
{
	sc_store_release_32(&presence->door, 0);
	(void)SC_FAULT("doorbell.hidden");
	if (!door || door->ends[0] < 0)
		return;
	sc_store_relaxed_64(&presence->door_ino, door->ino);
	sc_store_relaxed_64(&presence->door_dev, door->dev);
	(void)SC_FAULT("doorbell.described");
	sc_doorbell_show_heard(door, presence);
}

void sc_doorbell_show_heard(const struct sc_doorbell *door, struct sc_abi_presence *presence)
{
	if (door->ends[0] < 0)
		return;
	sc_store_release_32(&presence->door,
			    ((uint32_t)door->ends[0] + 1) | (door->heard ? SC_ABI_DOOR_HEARD : 0));
	(void)SC_FAULT("doorbell.shown");
}

/* ---- another process's ----------------------------------------------------------------------- */

static int find(pid_t pid, pid_t tid, int fd)
{
	char path[PROC_PATH_MAX];
	int found;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%d", (int)pid, (int)tid, fd);
	found = SC_TRY("doorbell.find", open(path, O_PATH | O_CLOEXEC));
	return found < 0 ? -errno : found;
}

/* Is it the pipe that the presence tells of, as far as can be told? */
static bool is_described(int path_fd, const struct sc_abi_presence *presence)
{
	struct stat st;

	return !SC_TRY("doorbell.stat", fstat(path_fd, &st)) && S_ISFIFO(st.st_mode) &&
	       st.st_dev == presence->door_dev && st.st_ino == presence->door_ino;
}

static int open_pipe(int path_fd)
{
	char path[PROC_PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", path_fd);
	fd = SC_TRY("doorbell.reach", open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
	return fd < 0 ? -errno : fd;
}

int sc_doorbell_reach(pid_t pid, const struct sc_abi_presence *presence)
{
	pid_t tid = (pid_t)(presence->life & SC_ABI_LIFE_TID);
	int path_fd, fd;

	fd = (int)(presence->door & ~SC_ABI_DOOR_HEARD) - 1;
	if (fd < 0)
		return -ENOENT;
	path_fd = find(pid, tid, fd);
	if (path_fd == -ENOENT) /* a tid of another pid namespace, or none */
		path_fd = find(pid, pid, fd);
	if (path_fd < 0)
		return path_fd;
	fd = is_described(path_fd, presence) ? open_pipe(path_fd) : -ENOENT;
	SC_CALL("doorbell.found", close(path_fd));
	return fd;
}

int sc_doorbell_knock(pid_t pid, const struct sc_abi_presence *presence)
{
	const char byte = KNOCK;
	int fd = sc_doorbell_reach(pid, presence);
	int err = 0;

	if (fd < 0)
		return fd;
	if (SC_TRY("doorbell.knock", write(fd, &byte, 1)) < 0 && errno != EAGAIN)
		err = -errno;
	SC_CALL("doorbell.reached", close(fd));
	return err;
}
