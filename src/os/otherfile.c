/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * otherfile.c: opens and closes the files of other processes in shared memory, without dropping this process's own life
 * locks. Any thread may call.
 *
 * A process loses its POSIX locks on an inode when it closes *any* descriptor of that inode. Hence:
 *   - This process never opens an own file a second time: sc_otherfile_open() checks the file of that name before it
 *     opens it, and checks the opened file before that can be closed. If the name has become an own file's in between,
 *     the descriptor stays open for good. A name that is another process's is opened first and checked afterwards
 *     (sc_otherfile_open_peer()). If it leads to an own file, that descriptor stays open, and from then on every name
 *     is checked first.
 *   - An own file is one in the list, or one that another copy of this library in the same process has locked: fdinfo
 *     shows which locks belong to this process (in /proc/thread-self: /proc/self shows nothing any more once the first
 *     thread has ended).
 *   - Only sc_otherfile_close() closes a descriptor of another process's file. It waits for a reaper in another thread,
 *     which relies on a lock on the same inode.
 *
 * If this process dies at any step, the kernel closes its descriptors.
 */
#define _GNU_SOURCE 1
#include "os/otherfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/log.h"
#include "os/addr.h"
#include "os/host.h"
#include "os/self.h"
#include "os/shmfile.h"

#define PROC_PATH_MAX 40

/* Returns whether this process has a lock on the open file of that descriptor, or -errno. */
static int has_lock(const char *fd)
{
	char path[PROC_PATH_MAX], line[128];
	int found = 0, err;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%.10s", fd);
	info = SC_TRY_PTR("otherfile.fdinfo", NULL, fopen(path, "re"));
	if (!info)
		return errno == ENOENT ? 0 : -errno; /* closed meanwhile: the lock is dropped */
	errno = 0;				     /* the end of the file leaves it so */
	while (!found && SC_TRY_PTR("otherfile.fdinfo_read", NULL, fgets(line, sizeof(line), info)))
		found = !strncmp(line, "lock:", 5) && strstr(line, "POSIX");
	err = found ? 0 : errno;
	SC_CALL("otherfile.fdinfo_close", fclose(info));
	return err ? -err : found;
}

/*
 * Looks for a descriptor of this inode with a lock. Returns whether there is one, or -errno; -ENODEV: there is no
 * /proc, because -ENOENT would mean that there is no such file.
 */
static int search_descriptors(const struct stat *st)
{
	DIR *dir = SC_TRY_PTR("otherfile.fds", NULL, opendir("/proc/thread-self/fd"));
	int found = 0;

	if (!dir)
		return errno == ENOENT ? -ENODEV : -errno;
	while (!found) {
		struct dirent *entry;
		struct stat other;

		errno = 0; /* the end of the directory leaves it so */
		entry = SC_TRY_PTR("otherfile.readdir", NULL, readdir(dir));
		if (!entry) {
			found = -errno;
			break;
		}
		if (SC_TRY("otherfile.fd_stat", fstatat(dirfd(dir), entry->d_name, &other, 0)))
			continue;
		if (other.st_dev == st->st_dev && other.st_ino == st->st_ino)
			found = has_lock(entry->d_name);
	}
	SC_CALL("otherfile.fds_close", closedir(dir));
	return found;
}

/*
 * Tells whether a second copy of this library in this process may have made that name for a file that it holds locked.
 * A calibration has no owner.
 */
static bool may_be_twins(const char *name)
{
	const struct sc_host *host;
	struct sc_addr addr;

	if (sc_addr_is_calibration_file(name))
		return false;
	return sc_addr_parse_file(name, &addr) || sc_host_get(&host) || addr.pid == (uint32_t)host->pid;
}

/* Tells whether this looks like a file of this library, made for this user. */
static bool is_plain(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 07777) == 0600;
}

/* Checks whether the file may be opened or, once it is open, be closed. */
static int check_other(const char *name, const struct stat *st)
{
	int twins;

	if (!is_plain(st))
		return -EACCES;
	if (sc_shmfile_is_listed(st))
		return -EBUSY;
	if (!may_be_twins(name))
		return 0;
	twins = search_descriptors(st);
	return twins > 0 ? -EBUSY : twins;
}

/*
 * The name belongs to another file since the check: a service was opened again, or another process has renamed files.
 * The descriptor of a file that must not be opened stays open.
 */
static int check_opened_slow(const char *name, int fd, struct stat *st)
{
	/* an unknown file must not be closed */
	int err = SC_TRY("otherfile.other", fstat(fd, st)) ? -errno : check_other(name, st);

	if (err)
		sc_info("descriptor %d, of what has taken the name %s, is left open", fd, name);
	return err ? err : fd;
}

static int open_looked_at(const char *path, const char *name, struct stat *st)
{
	/* O_NONBLOCK: it may be a pipe by now */
	int fd = SC_TRY("otherfile.open", open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
	struct stat opened;

	if (fd < 0)
		return -errno;
	if (SC_TRY("otherfile.opened", fstat(fd, &opened)) || opened.st_dev != st->st_dev ||
	    opened.st_ino != st->st_ino)
		return check_opened_slow(name, fd, st);
	*st = opened;
	return fd;
}

/* Logs why there is no descriptor, except for the errors that the caller logs. Returns `fd`. */
static int opened(const char *path, int fd)
{
	if (fd < 0 && fd != -ENOENT && fd != -EACCES && fd != -EBUSY)
		sc_warn("cannot open %s: %s; %s", path, strerror(-fd), sc_shmfile_remedy(-fd));
	return fd;
}

int sc_otherfile_open(const char *name, struct stat *st)
{
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	sc_shmfile_path(name, path);
	fd = SC_TRY("otherfile.other_stat", fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW))
		     ? -errno
		     : check_other(name, st);
	if (!fd)
		fd = open_looked_at(path, name, st);
	return opened(path, fd);
}

/*
 * Tells whether the name belongs to something that must not be opened: a symbolic link, a directory, a socket, or a
 * file of another user, who may use the name.
 */
static bool is_of_wrong_kind(int err)
{
	return err == ELOOP || err == EISDIR || err == ENXIO || err == EACCES || err == EWOULDBLOCK ||
	       err == ETXTBSY;
}

int sc_otherfile_open_peer(const char *name, struct stat *st)
{
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	if (sc_self.misnamed || may_be_twins(name))
		return sc_otherfile_open(name, st);
	sc_shmfile_path(name, path);
	fd = SC_TRY("otherfile.peer", open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
	if (fd < 0)
		return opened(path, is_of_wrong_kind(errno) ? -EACCES : -errno);
	if (SC_TRY("otherfile.peer_stat", fstat(fd, st)))
		return opened(path, check_opened_slow(name, fd, st));
	if (sc_shmfile_is_listed(st)) {
		sc_self.misnamed = true;
		return -EBUSY; /* it stays open */
	}
	if (is_plain(st))
		return fd;
	sc_otherfile_close(fd);
	return -EACCES;
}

void sc_otherfiles_hold(void)
{
	(void)sc_self_begin();
	pthread_mutex_lock(&sc_self.others_mutex);
}

void sc_otherfiles_release(void)
{
	pthread_mutex_unlock(&sc_self.others_mutex);
}

void sc_otherfile_close(int fd)
{
	sc_otherfiles_hold();
	SC_CALL("otherfile.other_close", close(fd));
	sc_otherfiles_release();
}

int sc_otherfile_move(int fd)
{
	int moved = sc_shmfile_above_streams(fd);

	if (moved != fd)
		sc_otherfile_close(fd);
	return moved;
}
