/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * owner.c: tells whether the process that has made a file lives.
 *
 * A life lock that is held proves that the owner lives. A free lock proves its death, unless the owner has lost the
 * lock by mistake (a second descriptor closed, closefrom(3)). Hence the second opinion: it reads the owner's cookie in
 * the owner's memory. Where the kernel does not allow that, it asks whether the same process still runs. The process
 * may have executed another program, which may not be read; the kernel has then marked the word of life. In doubt the
 * owner lives.
 *
 * Any thread. This file writes only the state of a segment whose owner is dead, by one compare and swap: any process
 * may do that, and may die at any step.
 */
#define _GNU_SOURCE 1
#include "proc/owner.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/fault.h"
#include "os/addr.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "os/otherfile.h"
#include "shm/header.h"

static int read_cookie(pid_t tid, uint64_t addr, uint64_t *cookie)
{
	struct iovec local = { .iov_base = cookie, .iov_len = sizeof(*cookie) };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr, .iov_len = sizeof(*cookie) };
	ssize_t got = SC_TRY("owner.cookie", process_vm_readv(tid, &local, 1, &remote, 1, 0));

	if (got == (ssize_t)sizeof(*cookie))
		return 0;
	return got >= 0 ? -EFAULT : -errno;
}

struct reading {
	uint64_t addr, *cookie;
	int err;
};

static int visit_cookie(pid_t tid, void *arg)
{
	struct reading *reading = arg;

	reading->err = read_cookie(tid, reading->addr, reading->cookie);
	return reading->err != -ESRCH;
}

/* Reads the cookie through any thread of the owner: the thread in the file may have ended before the others. */
static int read_cookie_slow(pid_t pid, uint64_t addr, uint64_t *cookie)
{
	struct reading reading = { addr, cookie, -ESRCH };
	int ret = sc_host_threads(pid, visit_cookie, &reading);

	return ret < 0 && ret != -ENOENT ? ret : reading.err;
}

/* Tells whether the kernel has marked the word of life; the mark replaces the tid. */
static bool has_ended(uint32_t life)
{
	return (life & (SC_ABI_LIFE_ENDED | SC_ABI_LIFE_TID)) == SC_ABI_LIFE_ENDED;
}

bool sc_owner_lives(const struct sc_abi_owner *owner, uint32_t life)
{
	const struct sc_host *host;
	uint64_t cookie;
	int err;

	if (sc_host_get(&host))
		return true;
	/* A pid of another namespace names no process here, or a wrong one: the lock alone decides. */
	if (memcmp(owner->boot_id, host->boot_id, sizeof(host->boot_id)) || owner->pid_ns != host->pid_ns)
		return false;
	err = read_cookie(owner->cma_tid, owner->cookie_addr, &cookie);
	if (err == -ESRCH)
		err = read_cookie_slow(owner->pid, owner->cookie_addr, &cookie);
	switch (err) {
	case 0:
		return cookie == owner->cookie;
	case -EFAULT: /* exec, or another process with this pid */
	case -ESRCH:
		return false;
	default:
		return !has_ended(life) && sc_host_runs(owner->pid, owner->start_time, owner->pidfs_ino);
	}
}

/* Reads the cookie by the owner's pid as seen from here: the owner may be in another namespace. */
static bool shows_cookie(const struct sc_seg *seg)
{
	uint64_t cookie;

	return seg->cma_pid && !read_cookie(seg->cma_pid, seg->header.owner.cookie_addr, &cookie) &&
	       cookie == seg->header.owner.cookie;
}

/*
 * Writes the state for the dead owner. All processes that have the segment attached refuse operations from now on. A
 * closed segment stays CLOSED, as peers rely on what its owner has left (sc_seg_leave()).
 */
static void mark_ended(const struct sc_seg *seg)
{
	(void)sc_cas_acq_rel_32(&sc_seg_presence(seg)->state, SC_ABI_OPEN, SC_ABI_ENDED);
	(void)SC_FAULT("owner.ended");
}

/*
 * Tells whether the owner runs another program, where neither descriptor nor name is left by which to ask the life lock.
 * Both signs are needed: any process may have scribbled the mark, and a read may fail for other reasons.
 */
static bool runs_another_program(const struct sc_seg *seg)
{
	uint64_t cookie;
	int err;

	if (!seg->cma_pid || !has_ended(sc_load_relaxed_32(&sc_seg_presence(seg)->life)))
		return false;
	err = read_cookie(seg->cma_pid, seg->header.owner.cookie_addr, &cookie);
	return err == -EFAULT || (!err && cookie != seg->header.owner.cookie);
}

bool sc_owner_is_dead(const struct sc_seg *seg)
{
	int alive = sc_seg_check_owner(seg);

	if (alive == -ENOENT && runs_another_program(seg))
		alive = 0;
	/* relaxed: the word matters only when the lock is free, and the kernel marks it before */
	if (alive != 0 || shows_cookie(seg) ||
	    sc_owner_lives(&seg->header.owner, sc_load_relaxed_32(&sc_seg_presence(seg)->life)))
		return false;
	mark_ended(seg);
	return true;
}

/* Returns zeros if the presence cannot be read. */
static struct sc_abi_presence read_presence(int fd)
{
	struct sc_abi_presence presence;

	if (SC_TRY("owner.presence", pread(fd, &presence, sizeof(presence), SC_ABI_PRESENCE)) !=
	    (ssize_t)sizeof(presence))
		return (struct sc_abi_presence){ 0 };
	return presence;
}

/* A file that is no readable segment names no owner: the lock alone decides. */
static bool segment_is_alive(int fd, const struct sc_addr *parts)
{
	char addr[SC_ADDR_SIZE];
	struct sc_abi_presence presence;
	struct sc_abi_header header;
	struct stat st;
	ssize_t got = SC_TRY("owner.header", pread(fd, &header, sizeof(header), 0));

	if (got < 0 || SC_TRY("owner.fstat", fstat(fd, &st)))
		return true;
	sc_addr_format(parts, addr);
	if (got != (ssize_t)sizeof(header) || sc_header_fault(&header, (uint64_t)st.st_size, addr))
		return false;
	presence = read_presence(fd);
	/* CLOSED: the owner may live on, and has left the segment for peers to read (sc_seg.keep_name) */
	return presence.state != SC_ABI_CLOSED && sc_owner_lives(&header.owner, presence.life);
}

/*
 * Tells whether the holder of a life lock is the owner. A reaper, which has another pid, may hold it for a moment. In
 * doubt (another pid namespace) it is the owner.
 */
static bool is_owner(const struct sc_abi_owner *owner, pid_t holder)
{
	const struct sc_host *host;

	return sc_host_get(&host) || owner->pid_ns != host->pid_ns || owner->pid == holder;
}

bool sc_owner_has_writer(const struct sc_abi_owner *owner, bool held, pid_t holder)
{
	return (held && is_owner(owner, holder)) || sc_owner_lives(owner, 0);
}

/* Reads the header of a segment's file. False: the file is unreadable or has another layout than this build's. */
static bool read_header(int fd, struct sc_abi_header *header)
{
	return SC_TRY("owner.holder", pread(fd, header, sizeof(*header), 0)) == (ssize_t)sizeof(*header) &&
	       header->magic == SC_ABI_MAGIC && header->layout == SC_ABI_LAYOUT;
}

/* Tells whether the owner of a segment holds its life lock. In doubt the holder is the owner. */
static bool owner_holds(int fd)
{
	struct sc_abi_header header;
	pid_t holder = 0;
	int held = sc_lifelock_check(fd, &holder);

	if (held != 1)
		return held;
	return !read_header(fd, &header) || is_owner(&header.owner, holder);
}

static bool read_service(int fd, struct sc_addr *parts)
{
	struct sc_abi_service service;

	return SC_TRY("owner.service", pread(fd, &service, sizeof(service), 0)) == (ssize_t)sizeof(service) &&
	       service.magic == SC_ABI_SERVICE_MAGIC && !sc_addr_parse(service.address, parts);
}

static bool endpoint_is_alive(const struct sc_addr *parts)
{
	char name[SC_ADDR_NAME_MAX];
	struct stat st;
	bool alive;
	int fd;

	sc_addr_file(parts, name);
	fd = sc_otherfile_open(name, &st);
	if (fd < 0)
		return fd != -ENOENT && fd != -EACCES;
	alive = owner_holds(fd) || segment_is_alive(fd, parts);
	/* not sc_otherfile_close(): the caller has called sc_otherfiles_hold() */
	SC_CALL("owner.service_close", close(fd));
	return alive;
}

/* A service lives while its endpoint, of the same process, lives. */
static bool service_is_alive(int fd)
{
	struct sc_addr parts;

	return read_service(fd, &parts) && endpoint_is_alive(&parts);
}

static bool read_directory(int fd, struct sc_abi_directory *directory)
{
	return SC_TRY("owner.directory", pread(fd, directory, sizeof(*directory), 0)) ==
		       (ssize_t)sizeof(*directory) &&
	       directory->magic == SC_ABI_DIRECTORY_MAGIC;
}

/* A directory has no endpoint; its writer may never open one. */
static bool directory_is_alive(int fd)
{
	struct sc_abi_directory directory;

	return read_directory(fd, &directory) && sc_owner_lives(&directory.owner, 0);
}

/* Tells whether the writer has died, although a reaper may hold the lock. */
static bool directory_is_orphan(int fd)
{
	struct sc_abi_directory directory;
	pid_t holder = 0;
	int held = sc_lifelock_check(fd, &holder);

	return held >= 0 && read_directory(fd, &directory) &&
	       !sc_owner_has_writer(&directory.owner, held, holder);
}

static bool service_is_orphan(int fd)
{
	struct sc_addr parts;

	return read_service(fd, &parts) && !endpoint_is_alive(&parts);
}

bool sc_owner_may_live(const char *name, int fd)
{
	const struct sc_host *host;
	struct sc_addr parts;

	if (sc_addr_parse_file(name, &parts))
		return service_is_alive(fd) || directory_is_alive(fd);
	if (sc_host_get(&host))
		return true;
	parts.host = host->id;
	return segment_is_alive(fd, &parts);
}

bool sc_owner_left(const char *addr)
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
	fd = sc_otherfile_open(name, &st);
	if (fd < 0)
		return false;
	dead = !owner_holds(fd) && !segment_is_alive(fd, &parts);
	sc_otherfile_close(fd);
	return dead;
}

bool sc_owner_left_service(const char *name)
{
	struct stat st;
	bool dead;
	int fd;

	sc_otherfiles_hold();
	fd = sc_otherfile_open(name, &st);
	dead = fd < 0 ? fd == -ENOENT : service_is_orphan(fd) || directory_is_orphan(fd);
	if (fd >= 0)
		SC_CALL("owner.orphan_close", close(fd));
	sc_otherfiles_release();
	return dead;
}
