/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * otherfile.c: how this process opens and closes the files of other processes in shared memory, without dropping its
 * own life locks. Any thread may call.
 *
 * POSIX locks of a process on an inode go with *any* of its descriptors of it that is closed. Hence:
 *   - an own file is never opened a second time: sc_otherfile_open() looks at what has the name before it
 *     opens it, and at what it has opened before that can be closed. Should the name have become an own
 *     file's in between, the descriptor is left open for good. By a name that is another process's it is looked
 *     at when it is open (sc_otherfile_open_peer()): should somebody have given such a name to an own file, that
 *     descriptor is left open, and from then on every name is looked at before;
 *   - "own" is what the list says, and also what another copy of this library in the same process holds:
 *     the kernel shows in fdinfo which locks belong to this process (/proc/thread-self: what is in
 *     /proc/self cannot be looked at any more once the first thread has ended);
 *   - a descriptor of another's file is closed by sc_otherfile_close() only, which waits for a reaper in
 *     another thread, because that one relies on a lock on the same inode.
 *
 * If this process dies at any step the kernel closes what it has open.
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

/* Does a lock of this process hang on the open file behind that descriptor? */
static bool has_lock(const char *fd)
{
	char path[PROC_PATH_MAX], line[128];
	bool found = false;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%.10s", fd);
	info = SC_TRY_PTR("otherfile.fdinfo", NULL, fopen(path, "re"));
	while (info && !found && fgets(line, sizeof(line), info))
		found = !strncmp(line, "lock:", 5) && strstr(line, "POSIX");
	if (info)
		SC_CALL("otherfile.fdinfo_close", fclose(info));
	return found;
}

/*
 * Look through all descriptors for one of this inode with a lock. -errno, or whether there is one. -ENODEV: there is no
 * /proc; -ENOENT would say that there is no such file.
 */
static int search_descriptors(const struct stat *st)
{
	DIR *dir = SC_TRY_PTR("otherfile.fds", NULL, opendir("/proc/thread-self/fd"));
	struct dirent *entry;
	int found = 0;

	if (!dir)
		return errno == ENOENT ? -ENODEV : -errno;
	while (!found && (entry = SC_TRY_PTR("otherfile.readdir", NULL, readdir(dir)))) {
		struct stat other;

		if (SC_TRY("otherfile.fd_stat", fstatat(dirfd(dir), entry->d_name, &other, 0)))
			continue;
		if (other.st_dev == st->st_dev && other.st_ino == st->st_ino)
			found = has_lock(entry->d_name);
	}
	SC_CALL("otherfile.fds_close", closedir(dir));
	return found;
}

/*
 * A name that a second copy of this library in this process may have given, to what is its own by a lock: a
 * calibration is nobody's.
 */
static bool may_be_twins(const char *name)
{
	const struct sc_host *host;
	struct sc_addr addr;

	if (sc_addr_is_calibration_file(name))
		return false;
	return sc_addr_parse_file(name, &addr) || sc_host_get(&host) || addr.pid == (uint32_t)host->pid;
}

/* Does it look like a file that a copy of the library of this user has made? */
static bool is_plain(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 07777) == 0600;
}

/* May it be opened, or be closed now that it is? */
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
 * The name is another file's since it was looked at: a service's that has been opened again, or somebody plays. A
 * descriptor of a file that may not be opened stays open.
 */
static int check_opened_slow(const char *name, int fd, struct stat *st)
{
	/* if it cannot be told what it is: nothing that may be closed */
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

bool sc_otherfile_is_unchanged(int fd, const struct stat *as)
{
	struct stat st;

	return !SC_TRY("otherfile.unchanged", fstat(fd, &st)) && st.st_dev == as->st_dev &&
	       st.st_ino == as->st_ino && st.st_size == as->st_size && st.st_nlink == as->st_nlink &&
	       is_plain(&st);
}

/* Says why there is no descriptor, unless that is as it may be. Returns it. */
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
 * The name is of a thing that must not be opened: a symbolic link, a directory, a socket; or of a file of another user,
 * who may use the name.
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
