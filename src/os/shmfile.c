/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shmfile.c: the files of this process in shared memory: how they get and lose their names, and how this process keeps
 * its own life locks.
 *
 * Owns the list of this process's files. Any thread may call.
 *
 * A file is made without name, filled by its maker, locked, then named. If the process dies before the link(2), the
 * kernel removes the file. If it dies later, the name belongs to a complete file whose lock is free, which means dead
 * to every process, and a reaper removes it. At the end the name goes first and the lock last, so a name without lock
 * never means a living owner.
 *
 * A process loses its POSIX locks on an inode when it closes *any* descriptor of it. Hence an own file is never opened
 * a second time: otherfile.c prevents that.
 *
 * A file that stays open never gets the number of a standard stream: an application that has closed its streams and
 * writes to them all the same must not write into a segment.
 *
 * When the process ends (sc_shmfile_unlink_all()), which may be before its threads end, a name is removed only if no
 * process needs it. Otherwise the process leaves the file as a killed process does, and the same reapers remove it.
 *
 *   E1 fence, sc_peer_connect(): claim before sc_shmfile.end  pairs with  E1' sc_shmfile_unlink_all(): the reverse
 *
 * A forked child inherits descriptors but no locks and, by the list, no files: its parent's files are other processes'
 * files to it.
 */
#define _GNU_SOURCE 1
#include "os/shmfile.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "os/host.h"
#include "base/fault.h"
#include "os/lifelock.h"
#include "base/log.h"
#include "os/self.h"

#define PROC_PATH_MAX 40

static void lock_list(void)
{
	(void)sc_self_begin();
	pthread_mutex_lock(&sc_self.files_mutex);
}

static void unlock_list(void)
{
	pthread_mutex_unlock(&sc_self.files_mutex);
}

void sc_shmfile_path(const char *name, char path[SC_SHMFILE_PATH_MAX])
{
	snprintf(path, SC_SHMFILE_PATH_MAX, SC_HOST_DIR "/%s", name);
}

int sc_shmfile_check_size(uint64_t size)
{
	struct rlimit limit;

	/* without an answer the kernel still enforces the limit */
	if (SC_TRY("shmfile.limit", getrlimit(RLIMIT_FSIZE, &limit)) || limit.rlim_cur == RLIM_INFINITY ||
	    limit.rlim_cur >= size)
		return 0;
	sc_warn("a file in " SC_HOST_DIR
		" of %llu bytes is larger than this process may make: raise the limit "
		"of %llu bytes (ulimit -f)",
		(unsigned long long)size, (unsigned long long)limit.rlim_cur);
	return -EFBIG;
}

int sc_shmfile_fallocate(int fd, int mode, off_t offset, off_t len)
{
	off_t part = len;

	do {
		int ret;

		part = part < len ? part : len;
		ret = fallocate(fd, mode, offset, part);
		if (!ret) {
			offset += part;
			len -= part;
		} else if (errno == EINTR) {
			part = (part / 2 + SC_ABI_PAGE - 1) / SC_ABI_PAGE * SC_ABI_PAGE;
		} else {
			return -1;
		}
	} while (len);
	return 0;
}

bool sc_shmfile_is_named(const char *name, dev_t dev, ino_t ino)
{
	char path[SC_SHMFILE_PATH_MAX];
	struct stat st;

	sc_shmfile_path(name, path);
	errno = 0;
	return !SC_TRY("shmfile.named", fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW)) &&
	       st.st_dev == dev && st.st_ino == ino;
}

bool sc_shmfile_is_open(int fd, dev_t dev, ino_t ino)
{
	struct stat st;

	return fd >= 0 && !SC_TRY("shmfile.is_open", fstat(fd, &st)) && st.st_dev == dev && st.st_ino == ino;
}

const char *sc_shmfile_remedy(int err)
{
	switch (err) {
	case EMFILE:
		return "raise the limit of open files (ulimit -n)";
	case ENFILE:
		return "raise the system's limit of open files (sysctl fs.file-max)";
	case ENOSPC:
		return SC_HOST_DIR " has no space or no inodes left (df -i " SC_HOST_DIR
				   "); shmcma reap -v removes files of dead processes";
	case ENOMEM:
		return "the kernel has no memory for it";
	case EOPNOTSUPP:
	case EISDIR:
		return SC_HOST_DIR " must be a tmpfs";
	case EACCES:
	case EPERM:
	case EROFS:
		return SC_HOST_DIR " must be writable for this user";
	case ENOENT:
		return SC_HOST_DIR " and /proc must be mounted";
	case ENODEV:
		return "/proc must be mounted";
	default:
		return "see the system's documentation of that error";
	}
}

/* Without the handler of self.c (a fork by a bare system call) a child still has its parent's list. */
static bool is_of_this_process(const struct sc_shmfile *own)
{
	return own->made_by == sc_host_self();
}

/* ---- own files ------------------------------------------------------------------------------- */

static void add_to_list(struct sc_shmfile *own)
{
	lock_list();
	own->next = sc_self.files;
	sc_self.files = own;
	unlock_list();
}

static void remove_from_list_locked(struct sc_shmfile *own)
{
	for (struct sc_shmfile **at = &sc_self.files; *at; at = &(*at)->next) {
		if (*at == own) {
			*at = own->next;
			return;
		}
	}
}

static bool is_stream(int fd)
{
	return fd >= STDIN_FILENO && fd <= STDERR_FILENO;
}

int sc_shmfile_above_streams(int fd)
{
	int above = -1;

	if (is_stream(fd))
		above = SC_TRY("shmfile.above", fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
	return above < 0 ? fd : above;
}

/* The file has no lock yet. */
static int move_own(int fd)
{
	int moved = sc_shmfile_above_streams(fd);

	if (moved != fd)
		SC_CALL("shmfile.moved", close(fd));
	return moved;
}

static int open_unnamed(struct stat *st)
{
	int fd = move_own(SC_TRY("shmfile.tmpfile", open(SC_HOST_DIR, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)));
	int err;

	if (fd < 0)
		return -errno;
	/* The process's umask may have taken bits away; attachers insist on exactly these. */
	if (SC_TRY("shmfile.fchmod", fchmod(fd, 0600)) || SC_TRY("shmfile.fstat", fstat(fd, st))) {
		err = -errno;
		SC_CALL("shmfile.unmake", close(fd));
		return err;
	}
	return fd;
}

int sc_shmfile_describe(struct sc_abi_owner *owner)
{
	const struct sc_host *host;
	int err = sc_host_get(&host);

	if (err)
		return err;
	memcpy(owner->boot_id, host->boot_id, sizeof(owner->boot_id));
	owner->start_time = host->start_time;
	owner->pid_ns = host->pid_ns;
	owner->pidfs_ino = host->pidfs_ino;
	owner->pid = host->pid;
	owner->cma_tid = host->pid;
	owner->cookie_addr = (uintptr_t)&host->cookie;
	owner->cookie = host->cookie;
	return 0;
}

int sc_shmfile_create(struct sc_shmfile *own)
{
	const struct sc_host *host;
	struct stat st;
	int fd = sc_host_get(&host);

	if (fd)
		return fd;
	fd = open_unnamed(&st);
	if (fd < 0) {
		sc_warn("cannot make a file in " SC_HOST_DIR ": %s; %s", strerror(-fd), sc_shmfile_remedy(-fd));
		return fd;
	}
	*own = (struct sc_shmfile){ .fd = fd,
				.dev = st.st_dev,
				.ino = st.st_ino,
				.pid = host->pid,
				.made_by = host->cookie,
				.users = 1 };
	/* Listed before it has a name, so that no thread of this process takes it for another process's file. */
	add_to_list(own);
	return 0;
}

static int link_fd(int fd, const char *name)
{
	char from[PROC_PATH_MAX], path[SC_SHMFILE_PATH_MAX];

	snprintf(from, sizeof(from), "/proc/thread-self/fd/%d", fd);
	sc_shmfile_path(name, path);
	if (SC_TRY("shmfile.link", linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW)))
		return -errno;
	return 0;
}

int sc_shmfile_publish(struct sc_shmfile *own, const char *name)
{
	int err = sc_lifelock_lock(own->fd);

	if (err) {
		sc_warn("cannot take the life lock of %s: %s; %s", name, strerror(-err),
			sc_shmfile_remedy(-err));
		return err;
	}
	(void)SC_FAULT("shmfile.locked");
	err = link_fd(own->fd, name);
	if (err == -EEXIST)
		return err;
	if (err) {
		sc_warn("cannot give a file the name " SC_HOST_DIR "/%s: %s; %s", name, strerror(-err),
			sc_shmfile_remedy(-err));
		return err;
	}
	lock_list();
	snprintf(own->name, sizeof(own->name), "%s", name);
	unlock_list();
	return 0;
}

/* No other process removes the name while the lock is held, so the name keeps its file between the two calls. */
static void unlink_locked(struct sc_shmfile *own)
{
	char path[SC_SHMFILE_PATH_MAX];

	if (!own->name[0])
		return;
	sc_shmfile_path(own->name, path);
	if (sc_shmfile_is_named(own->name, own->dev, own->ino)) {
		if (SC_TRY("shmfile.unlink", unlink(path)))
			sc_warn("cannot remove %s: %s; remove it by hand", path, strerror(errno));
	} else if (errno && errno != ENOENT) {
		sc_warn("cannot look at %s to remove it: %s; remove it by hand", path, strerror(errno));
	}
	(void)SC_FAULT("shmfile.unlinked");
	own->name[0] = '\0';
}

void sc_shmfile_unlink(struct sc_shmfile *own)
{
	if (!is_of_this_process(own))
		return;
	lock_list();
	unlink_locked(own);
	unlock_list();
}

/* ---- the end of the process ------------------------------------------------------------------ */

static void set_end_locked(struct sc_shmfile *own, enum sc_shmfile_end end)
{
	assert(end != SC_SHMFILE_GONE || own->end == SC_SHMFILE_ASKED);
	sc_store_relaxed_32(&own->end, end); /* ordered by E1', and files_mutex */
}

/* Returns a file with a name in that state; `name`: with this one, NULL: with any. */
static struct sc_shmfile *find_locked(enum sc_shmfile_end end, const char *name)
{
	for (struct sc_shmfile *own = sc_self.files; own; own = own->next)
		if (is_of_this_process(own) && own->name[0] && own->end == (uint32_t)end &&
		    (!name || !strcmp(own->name, name)))
			return own;
	return NULL;
}

static void ask_all_again(void)
{
	struct sc_shmfile *own;

	lock_list();
	while ((own = find_locked(SC_SHMFILE_KEPT, NULL)))
		set_end_locked(own, SC_SHMFILE_NAMED);
	unlock_list();
}

/* False: all files have been asked about. */
static bool ask_next(char name[SC_ADDR_NAME_MAX])
{
	struct sc_shmfile *own;

	lock_list();
	own = find_locked(SC_SHMFILE_NAMED, NULL);
	if (own) {
		set_end_locked(own, SC_SHMFILE_ASKED);
		memcpy(name, own->name, SC_ADDR_NAME_MAX);
	}
	unlock_list();
	return own;
}

/* Another thread may have closed the file since. */
static void decide(const char *name, bool awaited)
{
	struct sc_shmfile *own;

	lock_list();
	own = find_locked(SC_SHMFILE_ASKED, name);
	if (own && awaited) {
		set_end_locked(own, SC_SHMFILE_KEPT);
	} else if (own) {
		set_end_locked(own, SC_SHMFILE_GONE);
		unlink_locked(own);
	}
	unlock_list();
}

void sc_shmfile_unlink_all(bool (*is_awaited)(const char *name))
{
	char name[SC_ADDR_NAME_MAX];

	ask_all_again();
	while (ask_next(name)) {
		sc_fence_seq_cst(); /* E1': ASKED before the look at what others were told */
		decide(name, is_awaited(name));
	}
}

struct sc_shmfile *sc_shmfile_borrow(const char *name)
{
	struct sc_shmfile *own;

	lock_list();
	for (own = sc_self.files; own; own = own->next) {
		if (is_of_this_process(own) && !strcmp(own->name, name)) {
			own->users++;
			break;
		}
	}
	unlock_list();
	return own;
}

bool sc_shmfile_put(struct sc_shmfile *own)
{
	bool last;

	lock_list();
	last = !--own->users;
	if (last)
		remove_from_list_locked(own);
	unlock_list();
	return last;
}

void sc_shmfile_close(struct sc_shmfile *own)
{
	if (sc_shmfile_is_open(own->fd, own->dev, own->ino))
		SC_CALL("shmfile.close", close(own->fd));
	own->fd = -1;
}

/* Opens the same inode, whatever has become of the name. */
static int reopen(int path_fd)
{
	char path[PROC_PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", path_fd);
	fd = SC_TRY("shmfile.reopen", open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
	return fd < 0 ? -errno : move_own(fd);
}

/* Opens its inode by its name. Checks it by an O_PATH descriptor, because closing that drops no lock. */
static int open_own_again(const struct sc_shmfile *own)
{
	char path[SC_SHMFILE_PATH_MAX];
	int path_fd, fd;

	if (!own->name[0])
		return -EBADF;
	sc_shmfile_path(own->name, path);
	path_fd = SC_TRY("shmfile.again", open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	if (path_fd < 0)
		return errno == ENOENT ? -EBADF : -errno;
	fd = sc_shmfile_is_open(path_fd, own->dev, own->ino) ? reopen(path_fd) : -EBADF;
	SC_CALL("shmfile.again_close", close(path_fd));
	return fd;
}

/* Leaves the old number alone if it is another file's by now: that file is the application's. */
static int own_fd_locked(struct sc_shmfile *own)
{
	int fd;

	if (!is_of_this_process(own))
		return -EPERM;
	if (sc_shmfile_is_open(own->fd, own->dev, own->ino))
		return own->fd;
	fd = open_own_again(own);
	if (fd < 0)
		return fd;
	own->fd = fd;
	(void)sc_lifelock_lock(fd); /* a reaper may have it for a moment: sc_shmfile_keep_all() */
	(void)SC_FAULT("shmfile.relocked");
	sc_info("%s: the application has closed its descriptor; opened again", own->name);
	return fd;
}

int sc_shmfile_fd(struct sc_shmfile *own)
{
	int fd;

	lock_list();
	fd = own_fd_locked(own);
	unlock_list();
	return fd;
}

/* Skips files without a name: the thread that makes one is still working on it. */
int sc_shmfile_keep_all(void)
{
	int again = 0;

	lock_list();
	for (struct sc_shmfile *own = sc_self.files; own; own = own->next) {
		int fd = own->name[0] ? own_fd_locked(own) : -ENOENT;

		if (fd >= 0 && sc_lifelock_lock(fd) == -EAGAIN)
			again = -EAGAIN;
	}
	unlock_list();
	return again;
}

bool sc_shmfile_any(bool (*look)(int fd, void *arg), void *arg)
{
	bool any = false;

	lock_list();
	for (struct sc_shmfile *own = sc_self.files; own && !any; own = own->next)
		any = is_of_this_process(own) && own->name[0] &&
		      look(sc_shmfile_is_open(own->fd, own->dev, own->ino) ? own->fd : -1, arg);
	unlock_list();
	return any;
}

bool sc_shmfile_has_name(const struct sc_shmfile *own)
{
	bool has;

	lock_list();
	has = own->name[0];
	unlock_list();
	return has;
}

bool sc_shmfile_is_listed(const struct stat *st)
{
	struct sc_shmfile *own;

	lock_list();
	for (own = sc_self.files; own; own = own->next) {
		if (is_of_this_process(own) && own->dev == st->st_dev && own->ino == st->st_ino)
			break;
	}
	unlock_list();
	return own != NULL;
}
