/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reap.c: removes what dead processes have left. The protocol of record is reap.pml.
 *
 *	open -> take the life lock -> is the name still that of this inode? -> second opinion -> unlink
 *	-> close, which frees the lock
 *
 * Whoever holds the life lock alone may unlink, so of several reapers one does, and no owner can come
 * between: an owner takes its lock before it has a name. The comparison of inodes is for the reaper that
 * waited while another removed the name and a new owner took it.
 *
 * A free lock proves death, but for an owner that lost its lock by mistake (a second descriptor closed,
 * closefrom(3)): hence the second opinion, which reads the owner's cookie out of its memory, and where
 * that is not allowed asks whether the very same process still runs. In doubt the file stays.
 *
 * A file that a closed endpoint has left for others to read stays as long as one of those lives.
 *
 * A reaper that dies at any step leaves the name, or leaves no name; its lock goes with it.
 *
 * Locks do not tell threads apart: one thread of a process reaps at a time, and meanwhile no other closes
 * a descriptor of another's file (sc_own_hold_others()).
 */
#define _GNU_SOURCE 1
#include "reap.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include "addr.h"
#include "header.h"
#include "host.h"
#include "inject.h"
#include "live.h"
#include "log.h"
#include "own.h"
#include "seg.h"

/* ---- second opinion -------------------------------------------------------------------------- */

static int read_cookie(pid_t tid, uint64_t addr, uint64_t *cookie)
{
	struct iovec local = { .iov_base = cookie, .iov_len = sizeof(*cookie) };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr, .iov_len = sizeof(*cookie) };
	int err = SC_INJECT("reap.cookie");
	ssize_t got = err ? -1 : process_vm_readv(tid, &local, 1, &remote, 1, 0);

	if (got == (ssize_t)sizeof(*cookie))
		return 0;
	if (got >= 0)
		return -EFAULT;
	return err ? -err : -errno;
}

/* Through any of its threads: the one that was named may have ended before the others. */
static int read_cookie_slow(pid_t pid, uint64_t addr, uint64_t *cookie)
{
	char path[32];
	struct dirent *entry;
	int err = -ESRCH;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? err : -errno;
	while (err == -ESRCH && (entry = readdir(dir))) {
		if (isdigit((unsigned char)entry->d_name[0]))
			err = read_cookie(atoi(entry->d_name), addr, cookie);
	}
	closedir(dir);
	return err;
}

bool sc_reap_lives(const struct sc_abi_header *header)
{
	const struct sc_host *host;
	uint64_t cookie;
	int err;

	if (sc_host_get(&host))
		return true;
	/* The pid of another namespace names nobody here, or the wrong one: the lock decides alone. */
	if (memcmp(header->boot_id, host->boot_id, sizeof(host->boot_id)) ||
	    header->pid_ns != host->pid_ns)
		return false;
	err = read_cookie(header->cma_tid, header->cookie_addr, &cookie);
	if (err == -ESRCH)
		err = read_cookie_slow(header->pid, header->cookie_addr, &cookie);
	switch (err) {
	case 0:
		return cookie == header->cookie;
	case -EFAULT: /* exec, or another process with that pid */
	case -ESRCH:
		return false;
	default:
		return sc_host_runs(header->pid, header->start_time, header->pidfs_ino);
	}
}

/* Its pid as seen from here, which may be of another namespace. */
static bool shows_cookie(const struct sc_seg *seg)
{
	uint64_t cookie;

	return seg->cma_pid && !read_cookie(seg->cma_pid, seg->header.cookie_addr, &cookie) &&
	       cookie == seg->header.cookie;
}

bool sc_reap_owner_is_dead(const struct sc_seg *seg)
{
	return sc_seg_check_owner(seg) == 0 && !shows_cookie(seg) && !sc_reap_lives(&seg->header);
}

/* Closed by its owner, who may live on, and left for others to read (sc_seg.keep_name). */
static bool is_closed(int fd)
{
	struct sc_abi_presence presence;

	return pread(fd, &presence, sizeof(presence), SC_ABI_PRESENCE) == (ssize_t)sizeof(presence) &&
	       presence.state == SC_ABI_CLOSED;
}

/* A file that is no segment that we can read has no owner to ask: the lock decides alone. */
static bool segment_is_alive(int fd, const struct sc_addr *parts)
{
	uint8_t bytes[sizeof(struct sc_abi_header)];
	char addr[SC_ADDR_SIZE];
	struct sc_abi_header header;
	struct stat st;
	ssize_t got = pread(fd, bytes, sizeof(bytes), 0);

	if (got < 0 || fstat(fd, &st))
		return true;
	sc_addr_format(parts, addr);
	if (sc_header_check(bytes, (size_t)got, (uint64_t)st.st_size, addr, &header) || is_closed(fd))
		return false;
	return sc_reap_lives(&header);
}

/* A service lives with its endpoint, which the same process holds. */
static bool service_is_alive(int fd)
{
	struct sc_abi_service service;
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;
	struct stat st;
	bool alive;

	if (pread(fd, &service, sizeof(service), 0) != (ssize_t)sizeof(service) ||
	    service.magic != SC_ABI_SERVICE_MAGIC || sc_addr_parse(service.address, &parts))
		return false;
	sc_addr_file(&parts, name);
	fd = sc_own_open_other(name, &st);
	if (fd < 0)
		return fd != -ENOENT && fd != -EACCES;
	alive = sc_live_check(fd, NULL) != 0 || segment_is_alive(fd, &parts);
	close(fd); /* not sc_own_close_other(): the caller holds others */
	return alive;
}

static bool second_opinion(const char *name, int fd)
{
	const struct sc_host *host;
	struct sc_addr parts;

	if (sc_addr_parse_file(name, &parts))
		return service_is_alive(fd);
	if (sc_host_get(&host))
		return true;
	parts.host = host->id;
	return segment_is_alive(fd, &parts);
}

bool sc_reap_is_orphan(const char *addr)
{
	char name[SC_ADDR_NAME_MAX];
	const struct sc_host *host;
	struct sc_addr parts;
	struct stat st;
	bool dead;
	int fd;

	if (sc_addr_parse(addr, &parts) || sc_host_get(&host) || parts.host != host->id)
		return false;
	sc_addr_file(&parts, name);
	fd = sc_own_open_other(name, &st);
	if (fd < 0)
		return false;
	dead = sc_live_check(fd, NULL) == 0 && !segment_is_alive(fd, &parts);
	sc_own_close_other(fd);
	return dead;
}

/* ---- left to be read ------------------------------------------------------------------------- */

/* Claims that a segment shows, `own`: this process's, else behind fd. Returns how many; 0: not to be had. */
static uint32_t read_claims(const char *name, int fd, uint64_t claims[SC_ABI_SLOTS_MAX])
{
	struct sc_abi_header header;
	bool own = fd == -EBUSY;
	size_t size = sizeof(header);
	ssize_t got;

	if (fd < 0 && !own)
		return 0;
	got = own ? sc_own_pread(name, &header, size, 0) : pread(fd, &header, size, 0);
	if (got != (ssize_t)size || header.magic != SC_ABI_MAGIC || header.layout != SC_ABI_LAYOUT ||
	    header.slot_count > SC_ABI_SLOTS_MAX || header.claims_offset != SC_ABI_PAGE)
		return 0;
	size = header.slot_count * sizeof(*claims);
	got = own ? sc_own_pread(name, claims, size, SC_ABI_PAGE) : pread(fd, claims, size, SC_ABI_PAGE);
	return got == (ssize_t)size ? header.slot_count : 0;
}

/* Is there something to read, in the dead or closed endpoint with that ticket, for the live owner of `name`? */
static bool is_reader(const char *name, uint64_t ticket)
{
	uint64_t claims[SC_ABI_SLOTS_MAX];
	bool found = false;
	struct stat st;
	int fd = sc_own_open_other(name, &st);
	uint32_t count = read_claims(name, fd, claims);

	for (uint32_t i = 0; i < count && !found; i++)
		found = (claims[i] & SC_ABI_CLAIM_BITS) == (SC_ABI_DEPARTED | SC_ABI_CLAIM_UNREAD) &&
			sc_seg_is_claim_of(claims[i], ticket);
	if (fd < 0)
		return found;
	found = found && sc_live_check(fd, NULL) != 0;
	close(fd); /* not sc_own_close_other(): the caller holds others */
	return found;
}

/*
 * A closed endpoint's file may keep its name for those who have not read their messages (sc_seg.keep_name).
 * While one of them lives it is not for us to remove.
 */
static bool is_left_to_read(const char *name, int fd)
{
	struct sc_abi_presence presence;
	struct sc_addr parts, other;
	struct dirent *entry;
	uint64_t nonce;
	bool found = false;
	DIR *dir;

	if (sc_addr_parse_file(name, &parts) || !is_closed(fd) ||
	    pread(fd, &presence, sizeof(presence), SC_ABI_PRESENCE) != (ssize_t)sizeof(presence) ||
	    !presence.unread)
		return false;
	dir = opendir(SC_HOST_DIR);
	if (!dir)
		return true;
	memcpy(&nonce, parts.nonce, sizeof(nonce));
	while (!found && (entry = readdir(dir)))
		found = strcmp(entry->d_name, name) && !sc_addr_parse_file(entry->d_name, &other) &&
			is_reader(entry->d_name, sc_seg_ticket(parts.pid, nonce));
	closedir(dir);
	return found;
}

/* ---- protocol -------------------------------------------------------------------------------- */

/* With the life lock held. */
static int unlink_dead(const char *name, int fd, const struct stat *st)
{
	char path[SC_OWN_PATH_MAX];

	(void)SC_INJECT("reap.locked");
	if (!sc_own_is_named(name, st->st_dev, st->st_ino))
		return 0;
	if (is_left_to_read(name, fd))
		return -EBUSY;
	if (second_opinion(name, fd)) {
		sc_warn(SC_HOST_DIR "/%s has lost its life lock but its owner lives: left alone; does the "
				    "application close descriptors that it did not open?",
			name);
		return -EBUSY;
	}
	sc_own_path(name, path);
	if (SC_OWN_TRY("reap.unlink", unlink(path))) {
		int err = errno;

		sc_warn("cannot remove %s, left by a dead process: %s", path, strerror(err));
		return -err;
	}
	(void)SC_INJECT("reap.unlinked");
	sc_info("removed %s, left by a dead process", path);
	return 1;
}

static int reap_held(const char *name)
{
	struct stat st;
	int fd = sc_own_open_other(name, &st);
	int ret;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	ret = sc_live_lock(fd);
	if (!ret)
		ret = unlink_dead(name, fd, &st);
	else if (ret == -EAGAIN)
		ret = -EBUSY;
	else
		sc_warn("cannot lock " SC_HOST_DIR "/%s: %s", name, strerror(-ret));
	close(fd);
	return ret;
}

/* Exactly the names that this library gives; a user's own "shmcma-notes" is not among them. */
static bool is_ours(const char *name)
{
	struct sc_addr parts;

	return !sc_addr_parse_file(name, &parts) || sc_addr_is_service_file(name);
}

int sc_reap_name(const char *name)
{
	int ret;

	if (!is_ours(name))
		return -EACCES;
	sc_own_hold_others();
	ret = reap_held(name);
	sc_own_release_others();
	return ret;
}

int sc_reap_scan(void)
{
	DIR *dir = opendir(SC_HOST_DIR);
	struct dirent *entry;
	int removed = 0;

	if (!dir) {
		int err = errno;

		sc_warn("cannot read " SC_HOST_DIR ": %s", strerror(err));
		return -err;
	}
	while ((entry = readdir(dir))) {
		if (sc_reap_name(entry->d_name) == 1)
			removed++;
	}
	closedir(dir);
	return removed;
}
