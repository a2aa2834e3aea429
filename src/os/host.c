/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * host.c: owns the identity of this machine and of this process.
 *
 * The identity lies on a page of its own. A forked child finds this page empty (MADV_WIPEONFORK, and self.c where the
 * kernel lacks it) and computes its own identity, so no child has its parent's cookie. The process never unmaps the
 * page and never writes to it again. So a pointer to the identity, and the address of the cookie that peers read by
 * process_vm_readv(2), are valid as long as the process lives; exec removes the page, as it should.
 *
 * Any thread may call. Nothing here is shared with another process, so a death at any step leaves nothing behind.
 */
#define _GNU_SOURCE 1
#include "os/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/log.h"
#include "os/self.h"

#define PIDFS_MAGIC                                                                                       \
	0x50494446 /* PID_FS_MAGIC of linux/magic.h, newer than the oldest headers we build on */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* A call that fails now may succeed later: the next caller tries again. */
static int map_page_locked(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page =
		SC_TRY_PTR("host.page", MAP_FAILED,
			   mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	if (page == MAP_FAILED)
		return -errno;
	sc_self.host_wiped = !SC_TRY("host.wipe", madvise(page, size, MADV_WIPEONFORK));
	sc_self.host = page;
	sc_self.host_size = size;
	if (!sc_self_begin()) {
		SC_CALL("host.unpage", munmap(page, size));
		sc_self.host = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Reads a small file of /proc as a string. */
static int read_proc(const char *path, char *text, size_t size)
{
	int fd = SC_TRY("host.open", open(path, O_RDONLY | O_CLOEXEC));
	ssize_t got;
	int err;

	if (fd < 0)
		return -errno;
	got = SC_TRY("host.read", read(fd, text, size - 1));
	err = got < 0 ? -errno : 0;
	SC_CALL("host.close", close(fd));
	if (got >= 0)
		text[got] = '\0';
	return err;
}

/* A UUID: 32 hexadecimal digits with dashes in between. */
static int parse_uuid(const char *text, uint64_t out[2])
{
	unsigned int digits = 0;

	out[0] = out[1] = 0;
	for (; *text && *text != '\n'; text++) {
		const char digit[2] = { *text, '\0' };
		char *end;
		unsigned long value = strtoul(digit, &end, 16);

		if (*text == '-')
			continue;
		if (*end || digits == 32)
			return -EIO;
		out[digits / 16] = out[digits / 16] << 4 | value;
		digits++;
	}
	return digits == 32 ? 0 : -EIO;
}

static int boot_id(uint64_t out[2])
{
	char text[64];
	int err = read_proc(BOOT_ID, text, sizeof(text));

	if (!err)
		err = parse_uuid(text, out);
	if (err)
		sc_warn("cannot tell which boot of the machine this is from " BOOT_ID ": %s%s",
			strerror(-err),
			err == -ENOENT	 ? "; /proc must be mounted"
			: err == -EMFILE ? "; raise the limit of open files (ulimit -n)"
					 : "");
	return err;
}

/* Returns /proc/<pid>/stat from field 3 on; NULL: not readable. The name in field 2 may contain anything, also ')'. */
static const char *read_stat(pid_t pid, char *text, size_t size)
{
	char path[32];
	const char *name_end;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_proc(path, text, size))
		return NULL;
	name_end = strrchr(text, ')');
	return name_end && name_end[1] == ' ' ? name_end + 2 : NULL;
}

/* Returns field 22; 0: not readable. */
static uint64_t start_time(pid_t pid)
{
	char text[1024];
	const char *at = read_stat(pid, text, sizeof(text));

	for (int field = 3; at && field < 22; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return at ? strtoull(at, NULL, 10) : 0;
}

/* A process with more threads than this counts as one that runs, although its threads up to this number sleep. */
#define THREADS_MOST 16

/* Returns the state of one thread as a letter: R, S...; 0: not readable. */
static char state_of(pid_t tid)
{
	char text[1024];
	const char *at = read_stat(tid, text, sizeof(text));

	return at ? *at : 0;
}

int sc_host_threads(pid_t pid, int (*visit)(pid_t tid, void *arg), void *arg)
{
	struct dirent *entry;
	char path[32];
	int ret = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = SC_TRY_PTR("host.tasks", NULL, opendir(path));
	if (!dir)
		return -errno;
	do {
		pid_t tid;

		errno = 0; /* the end of the directory leaves it so */
		entry = SC_TRY_PTR("host.task", NULL, readdir(dir));
		tid = entry ? atoi(entry->d_name) : 0; /* 0: no thread */
		if (!entry)
			ret = -errno;
		else if (tid)
			ret = visit(tid, arg);
	} while (entry && !ret);
	SC_CALL("host.tasks_close", closedir(dir));
	return ret;
}

struct running {
	pid_t pid; /* its first thread has been asked */
	int others;
};

static int visit_state(pid_t tid, void *arg)
{
	struct running *process = arg;

	return tid != process->pid && (++process->others == THREADS_MOST || state_of(tid) == 'R');
}

bool sc_host_is_running(pid_t pid)
{
	struct running process = { .pid = pid };
	char first = state_of(pid);

	return !first || first == 'R' || sc_host_threads(pid, visit_state, &process);
}

uint64_t sc_host_pidfd_inode(int pidfd)
{
	struct statfs fs;
	struct stat st;

	if (SC_TRY("host.fstatfs", fstatfs(pidfd, &fs)) || fs.f_type != PIDFS_MAGIC ||
	    SC_TRY("host.fstat", fstat(pidfd, &st)))
		return 0;
	return st.st_ino;
}

int sc_host_open_pidfd(pid_t pid)
{
	return (int)SC_TRY("host.pidfd", syscall(SYS_pidfd_open, pid, 0));
}

static uint64_t pidfs_inode(pid_t pid)
{
	int fd = sc_host_open_pidfd(pid);
	uint64_t inode;

	if (fd < 0)
		return 0;
	inode = sc_host_pidfd_inode(fd);
	SC_CALL("host.pidfs_close", close(fd));
	return inode;
}

/* The finalizer of splitmix64: every bit of the input changes half of the output bits. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static int device_of_dir(uint64_t *dev)
{
	struct stat st;

	if (SC_TRY("host.dir", stat(SC_HOST_DIR, &st))) {
		int err = errno;

		sc_warn("cannot look at " SC_HOST_DIR ": %s; a tmpfs must be mounted there",
			strerror(err));
		return -err;
	}
	*dev = st.st_dev;
	return 0;
}

int sc_host_check(void)
{
	int err;

	if (!faccessat(AT_FDCWD, SC_HOST_DIR, W_OK | X_OK, AT_EACCESS))
		return 0;
	err = errno;
	sc_log(sc_log_first(SC_LOG_NO_DIR),
	       "no endpoint can be made in " SC_HOST_DIR
	       ": %s; a tmpfs that this user may write to must be mounted there",
	       strerror(err));
	return -err;
}

static uint64_t namespace_of(const char *path)
{
	struct stat ns;

	return SC_TRY("host.ns", stat(path, &ns)) ? 0 : ns.st_ino;
}

static int fill(struct sc_host *host)
{
	uint64_t dev = 0;
	int err;

	err = boot_id(host->boot_id);
	if (err)
		return err;
	err = device_of_dir(&dev);
	if (err)
		return err;
	do {
		err = sc_host_random(&host->cookie, sizeof(host->cookie));
		if (err)
			return err;
	} while (!host->cookie); /* a forked child shows 0 */
	host->id = mix(host->boot_id[0] ^ mix(host->boot_id[1] ^ mix(dev))) >> (64 - SC_HOST_ID_BITS);
	host->pid = getpid();
	host->pid_ns = namespace_of("/proc/thread-self/ns/pid");
	host->user_ns = namespace_of("/proc/thread-self/ns/user");
	host->start_time = start_time(host->pid);
	host->pidfs_ino = pidfs_inode(host->pid);
	return 0;
}

/* Avoids a system call where possible: each address needs the identity. */
static bool is_filled_locked(void)
{
	return sc_self.host->pid && (sc_self.host_wiped || sc_self.host->pid == getpid());
}

int sc_host_get(const struct sc_host **out)
{
	struct sc_host host = { 0 };
	int err = 0;

	pthread_mutex_lock(&sc_self.host_mutex);
	if (!sc_self.host)
		err = map_page_locked();
	if (err) {
		sc_warn("no memory for the identity of this process: %s", strerror(-err));
	} else if (!is_filled_locked()) {
		err = fill(&host);
		if (!err)
			*sc_self.host = host;
	}
	pthread_mutex_unlock(&sc_self.host_mutex);
	*out = err ? NULL : sc_self.host;
	return err;
}

uint64_t sc_host_self(void)
{
	return sc_self.host ? sc_self.host->cookie : 0;
}

int sc_host_random(void *bytes, size_t size)
{
	uint8_t *at = bytes;

	while (size) {
		ssize_t got = SC_TRY("host.random", getrandom(at, size, 0));
		int err = got < 0 ? errno : 0;

		if (err == EINTR)
			continue;
		if (err) {
			sc_warn("the kernel gives no random bytes: %s", strerror(err));
			return -err;
		}
		at += got;
		size -= (size_t)got;
	}
	return 0;
}

/* Tells whether the process has ended, or has another inode than this (0: not known). */
static bool has_ended(int pidfd, uint64_t pidfs_ino)
{
	struct pollfd ready = { .fd = pidfd, .events = POLLIN };
	uint64_t inode = sc_host_pidfd_inode(pidfd);

	return SC_TRY("host.poll", poll(&ready, 1, 0)) == 1 || (inode && pidfs_ino && inode != pidfs_ino);
}

/*
 * Tells whether there is no pidfd because no process has that number. EINVAL, and ENOENT from Linux 6.16 on: it is the
 * number of a thread by now. Any other error says nothing about the process.
 */
static bool is_of_none(int err)
{
	return err == ESRCH || err == EINVAL || err == ENOENT;
}

bool sc_host_runs(pid_t pid, uint64_t start, uint64_t pidfs_ino)
{
	int fd = sc_host_open_pidfd(pid);
	uint64_t started;
	bool ended;

	if (fd < 0)
		return !is_of_none(errno);
	ended = has_ended(fd, pidfs_ino);
	/* 0: the inode is proof enough, or the start time is not known */
	started = pidfs_ino && sc_host_pidfd_inode(fd) ? 0 : start_time(pid);
	SC_CALL("host.runs_close", close(fd));
	return !ended && (!started || started == start);
}

bool sc_host_has_ended(pid_t pid, uint64_t pidfs_ino)
{
	bool ended;
	int fd;

	if (SC_TRY("host.kill", kill(pid, 0)) && errno == ESRCH)
		return true; /* needs no descriptor; this process may have none left */
	fd = sc_host_open_pidfd(pid);
	if (fd < 0)
		return is_of_none(errno);
	ended = has_ended(fd, pidfs_ino);
	SC_CALL("host.ended_close", close(fd));
	return ended;
}

/* Without pidfs all pidfds, eventfds and more have one inode; but fdinfo names the process of a pidfd. */
bool sc_host_is_pidfd(int fd, pid_t pid, uint64_t inode)
{
	char path[40], text[512], line[32];

	if (inode)
		return sc_host_pidfd_inode(fd) == inode;
	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", fd);
	if (read_proc(path, text, sizeof(text)))
		return false;
	snprintf(line, sizeof(line), "\nPid:\t%d\n", (int)pid);
	return strstr(text, line) || strstr(text, "\nPid:\t-1\n"); /* -1: it has been waited for */
}

bool sc_host_is_stopped(pid_t pid)
{
	char text[1024];
	const char *at = read_stat(pid, text, sizeof(text));

	return at && (*at == 'T' || *at == 't');
}
