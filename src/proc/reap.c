/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reap.c: removes what dead processes have left. The protocol of record is reap.pml.
 *
 *	open -> take the life lock -> second opinion -> is the name still that of this inode? -> unlink
 *	-> close, which frees the lock
 *
 * Only the holder of the life lock may unlink, so of several reapers one does, and no owner can come between: an owner
 * takes its lock before it has a name. The comparison of inodes is for the reaper that waited while another removed the
 * name and a new owner took it.
 *
 * A free lock proves death, but for an owner that lost its lock by mistake (a second descriptor closed,
 * closefrom(3)): hence the second opinion, which reads the owner's cookie out of its memory, and where
 * that is not allowed asks whether the very same process still runs. It may run another program by now, which
 * we may not look into: the kernel has marked the word of life then. In doubt the file stays. The name is
 * compared after it: until then such an owner may still give its name back, and another take it.
 *
 * A segment, dead or closed, may be awaited by those who have unread messages in it: then its name stays, as
 * long as one of them lives. That is looked at after it has been found dead: from then on it claims no more.
 *
 * A reaper that dies at any step leaves the name, or leaves no name; its lock goes with it.
 *
 * Locks do not tell threads apart: one thread of a process reaps at a time, and meanwhile no other closes
 * a descriptor of another's file (sc_shmfile_hold_others()).
 */
#define _GNU_SOURCE 1
#include "proc/reap.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include "os/addr.h"
#include "shm/header.h"
#include "os/host.h"
#include "base/fault.h"
#include "os/lifelock.h"
#include "base/log.h"
#include "os/shmfile.h"
#include "shm/seg.h"

/* ---- second opinion -------------------------------------------------------------------------- */

static int read_cookie(pid_t tid, uint64_t addr, uint64_t *cookie)
{
	struct iovec local = { .iov_base = cookie, .iov_len = sizeof(*cookie) };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr, .iov_len = sizeof(*cookie) };
	ssize_t got = SC_TRY("reap.cookie", process_vm_readv(tid, &local, 1, &remote, 1, 0));

	if (got == (ssize_t)sizeof(*cookie))
		return 0;
	return got >= 0 ? -EFAULT : -errno;
}

/* Through any of its threads: the one that was named may have ended before the others. */
static int read_cookie_slow(pid_t pid, uint64_t addr, uint64_t *cookie)
{
	char path[32];
	struct dirent *entry;
	int err = -ESRCH;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = SC_TRY_PTR("reap.task", NULL, opendir(path));
	if (!dir)
		return errno == ENOENT ? err : -errno;
	while (err == -ESRCH && (entry = SC_TRY_PTR("reap.thread", NULL, readdir(dir)))) {
		if (isdigit((unsigned char)entry->d_name[0]))
			err = read_cookie(atoi(entry->d_name), addr, cookie);
	}
	SC_CALL("reap.task_close", closedir(dir));
	return err;
}

/* Marked by the kernel, which leaves no tid. */
static bool has_ended(uint32_t life)
{
	return (life & (SC_ABI_LIFE_ENDED | SC_ABI_LIFE_TID)) == SC_ABI_LIFE_ENDED;
}

bool sc_reap_lives(const struct sc_abi_owner *owner, uint32_t life)
{
	const struct sc_host *host;
	uint64_t cookie;
	int err;

	if (sc_host_get(&host))
		return true;
	/* The pid of another namespace names nobody here, or the wrong one: the lock decides alone. */
	if (memcmp(owner->boot_id, host->boot_id, sizeof(host->boot_id)) || owner->pid_ns != host->pid_ns)
		return false;
	err = read_cookie(owner->cma_tid, owner->cookie_addr, &cookie);
	if (err == -ESRCH)
		err = read_cookie_slow(owner->pid, owner->cookie_addr, &cookie);
	switch (err) {
	case 0:
		return cookie == owner->cookie;
	case -EFAULT: /* exec, or another process with that pid */
	case -ESRCH:
		return false;
	default:
		return !has_ended(life) && sc_host_runs(owner->pid, owner->start_time, owner->pidfs_ino);
	}
}

/* Its pid as seen from here, which may be of another namespace. */
static bool shows_cookie(const struct sc_seg *seg)
{
	uint64_t cookie;

	return seg->cma_pid && !read_cookie(seg->cma_pid, seg->header.owner.cookie_addr, &cookie) &&
	       cookie == seg->header.owner.cookie;
}

/*
 * The dead owner writes its state no more, so this process does, for all that have the segment attached: their
 * operations are refused from now on. One that has closed stays CLOSED: others count on what it has left
 * (sc_seg_leave()).
 */
static void mark_ended(const struct sc_seg *seg)
{
	(void)sc_cas_acq_rel_32(&sc_seg_presence(seg)->state, SC_ABI_OPEN, SC_ABI_ENDED);
	(void)SC_FAULT("reap.ended");
}

bool sc_reap_owner_is_dead(const struct sc_seg *seg)
{
	/* relaxed: it is of interest when the lock is free, and the mark comes first */
	if (sc_seg_check_owner(seg) != 0 || shows_cookie(seg) ||
	    sc_reap_lives(&seg->header.owner, sc_load_relaxed_32(&sc_seg_presence(seg)->life)))
		return false;
	mark_ended(seg);
	return true;
}

/* All zero: it cannot be read. */
static struct sc_abi_presence read_presence(int fd)
{
	struct sc_abi_presence presence;

	if (SC_TRY("reap.presence", pread(fd, &presence, sizeof(presence), SC_ABI_PRESENCE)) !=
	    (ssize_t)sizeof(presence))
		return (struct sc_abi_presence){ 0 };
	return presence;
}

/* A file that is no segment that we can read has no owner to ask: the lock decides alone. */
static bool segment_is_alive(int fd, const struct sc_addr *parts)
{
	uint8_t bytes[sizeof(struct sc_abi_header)];
	char addr[SC_ADDR_SIZE];
	struct sc_abi_presence presence;
	struct sc_abi_header header;
	struct stat st;
	ssize_t got = SC_TRY("reap.header", pread(fd, bytes, sizeof(bytes), 0));

	if (got < 0 || SC_TRY("reap.fstat", fstat(fd, &st)))
		return true;
	sc_addr_format(parts, addr);
	if (sc_header_check(bytes, (size_t)got, (uint64_t)st.st_size, addr, &header))
		return false;
	presence = read_presence(fd);
	/* closed by its owner, which may live on, and left for others to read (sc_seg.keep_name) */
	return presence.state != SC_ABI_CLOSED && sc_reap_lives(&header.owner, presence.life);
}

/*
 * Is it the owner who holds its life lock? Another reaper may, for a moment: of the same pid namespace it is told by
 * its pid. In doubt it is the owner.
 */
static bool is_owner(const struct sc_abi_owner *owner, pid_t holder)
{
	const struct sc_host *host;

	return sc_host_get(&host) || owner->pid_ns != host->pid_ns || owner->pid == holder;
}

bool sc_reap_has_writer(const struct sc_abi_owner *owner, bool held, pid_t holder)
{
	return (held && is_owner(owner, holder)) || sc_reap_lives(owner, 0);
}

/* The header of a segment's file, if that has this build's layout. */
static bool read_header(int fd, struct sc_abi_header *header)
{
	return SC_TRY("reap.holder", pread(fd, header, sizeof(*header), 0)) == (ssize_t)sizeof(*header) &&
	       header->magic == SC_ABI_MAGIC && header->layout == SC_ABI_LAYOUT;
}

/* Does the owner of a segment hold its life lock? In doubt it is the owner. */
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

	return SC_TRY("reap.service", pread(fd, &service, sizeof(service), 0)) == (ssize_t)sizeof(service) &&
	       service.magic == SC_ABI_SERVICE_MAGIC && !sc_addr_parse(service.address, parts);
}

static bool endpoint_is_alive(const struct sc_addr *parts)
{
	char name[SC_ADDR_NAME_MAX];
	struct stat st;
	bool alive;
	int fd;

	sc_addr_file(parts, name);
	fd = sc_shmfile_open_other(name, &st);
	if (fd < 0)
		return fd != -ENOENT && fd != -EACCES;
	alive = owner_holds(fd) || segment_is_alive(fd, parts);
	/* not sc_shmfile_close_other(): the caller holds others */
	SC_CALL("reap.service_close", close(fd));
	return alive;
}

/* A service lives with its endpoint, which the same process holds. */
static bool service_is_alive(int fd)
{
	struct sc_addr parts;

	return read_service(fd, &parts) && endpoint_is_alive(&parts);
}

static bool read_directory(int fd, struct sc_abi_directory *directory)
{
	return SC_TRY("reap.directory", pread(fd, directory, sizeof(*directory), 0)) ==
		       (ssize_t)sizeof(*directory) &&
	       directory->magic == SC_ABI_DIRECTORY_MAGIC;
}

/* A directory has no endpoint: its writer may never open one. */
static bool directory_is_alive(int fd)
{
	struct sc_abi_directory directory;

	return read_directory(fd, &directory) && sc_reap_lives(&directory.owner, 0);
}

/* Has its writer died, though somebody may hold its lock? */
static bool directory_is_orphan(int fd)
{
	struct sc_abi_directory directory;
	pid_t holder = 0;
	int held = sc_lifelock_check(fd, &holder);

	return held >= 0 && read_directory(fd, &directory) &&
	       !sc_reap_has_writer(&directory.owner, held, holder);
}

static bool service_is_orphan(int fd)
{
	struct sc_addr parts;

	return read_service(fd, &parts) && !endpoint_is_alive(&parts);
}

/* A segment of an earlier version, whose address this one does not know: its owner can be asked if it is of one layout. */
static bool old_is_alive(int fd)
{
	struct sc_abi_header header;

	return read_header(fd, &header) && sc_reap_lives(&header.owner, 0);
}

static bool second_opinion(const char *name, int fd)
{
	const struct sc_host *host;
	struct sc_addr parts;

	if (sc_addr_is_old_file(name))
		return old_is_alive(fd);
	if (sc_addr_parse_file(name, &parts))
		return service_is_alive(fd) || directory_is_alive(fd);
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
	fd = sc_shmfile_open_other(name, &st);
	if (fd < 0)
		return false;
	dead = !owner_holds(fd) && !segment_is_alive(fd, &parts);
	sc_shmfile_close_other(fd);
	return dead;
}

bool sc_reap_service_is_orphan(const char *name)
{
	struct stat st;
	bool dead;
	int fd;

	sc_shmfile_hold_others();
	fd = sc_shmfile_open_other(name, &st);
	dead = fd < 0 ? fd == -ENOENT : service_is_orphan(fd) || directory_is_orphan(fd);
	if (fd >= 0)
		SC_CALL("reap.orphan_close", close(fd));
	sc_shmfile_release_others();
	return dead;
}

/* ---- names ----------------------------------------------------------------------------------- */

/*
 * The names that a look through the directory visits. A name is input: any process may have given it to any file. So
 * the name decides only which files are passed over; the others are opened with sc_shmfile_open_other(), which looks at
 * the owner first.
 */
typedef bool name_filter(const char *name, uint32_t uid);

/*
 * A name that does not tell whose it is, so this user's are among them: an earlier version's; or a service's, whose
 * holder may be in a user namespace.
 */
static bool is_unsure(const char *name, uint32_t uid)
{
	return sc_addr_is_old_file(name) || sc_addr_is_foreign_service_file(name, uid);
}

static int names(name_filter *filter, void (*visit)(const char *name, void *arg), void *arg)
{
	DIR *dir = SC_TRY_PTR("reap.scan", NULL, opendir(SC_HOST_DIR));
	uint32_t uid = geteuid();
	struct dirent *entry;

	if (!dir)
		return -errno;
	while ((entry = SC_TRY_PTR("reap.entry", NULL, readdir(dir)))) {
		if (filter(entry->d_name, uid))
			visit(entry->d_name, arg);
	}
	SC_CALL("reap.scan_close", closedir(dir));
	return 0;
}

/* Exactly the names that this library gives; a user's own "shmcma-notes" is not among them, nor is another user's. */
int sc_reap_names(void (*visit)(const char *name, void *arg), void *arg)
{
	return names(sc_addr_is_file_of, visit, arg);
}

/* For callers that rely on it. */
static int each(name_filter *filter, void (*visit)(const char *name, void *arg), void *arg)
{
	int err = names(filter, visit, arg);

	if (err)
		sc_warn("cannot read " SC_HOST_DIR ": %s", strerror(-err));
	return err;
}

static int each_name(void (*visit)(const char *name, void *arg), void *arg)
{
	return each(sc_addr_is_file_of, visit, arg);
}

/* ---- unread messages ------------------------------------------------------------------------- */

/*
 * Messages that the dead have sent in bounce buffers lie in the senders' own segments. A receiver that has not attached
 * such a segment yet finds it by its name: as long as a living endpoint has such a claim unanswered, the name stays.
 * The receiver that reads the messages removes the name.
 */

/* Is the connection in this slot of the file of a segment still to be looked at? */
static bool slot_is_pending(int fd, const struct sc_abi_header *header, uint32_t slot)
{
	off_t at = (off_t)(header->slots_offset + (uint64_t)slot * header->slot_size +
			   offsetof(struct sc_abi_slot, consumer.answer));
	uint32_t answer;

	return SC_TRY("reap.answer", pread(fd, &answer, sizeof(answer), at)) == (ssize_t)sizeof(answer) &&
	       answer == SC_ABI_PENDING;
}

/* The dead of one pass over all names, in the order of their tickets. */
struct dead {
	uint64_t ticket; /* of a segment; 0: a service, which nobody awaits */
	bool certain;	 /* no second opinion says that it lives */
	bool awaited;	 /* somebody alive has yet to let it in */
	char name[SC_ADDR_NAME_MAX];
};

struct pass {
	struct dead *dead;
	size_t count, room;
	const struct stat *held; /* the file whose life lock this reaper has; NULL: none */
	int removed;
};

/* The first with that ticket or a higher one. */
static size_t find_ticket(const struct pass *pass, uint64_t ticket)
{
	size_t from = 0, to = pass->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (pass->dead[middle].ticket < ticket)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static bool is_live_claim(uint64_t claim)
{
	uint64_t state = claim & SC_ABI_CLAIM_STATE;

	return state == SC_ABI_DEPARTED || (state == SC_ABI_PUBLISHED && !(claim & SC_ABI_CLAIM_REFUSED));
}

/* A claim of the file of a living segment. Of two dead with one ticket, should there be any, it is of both. */
static void note_claim(struct pass *pass, int fd, const struct sc_abi_header *header, uint32_t slot,
		       uint64_t claim)
{
	uint64_t ticket = SC_ABI_CLAIM_TICKET(claim);

	for (size_t i = find_ticket(pass, ticket); i < pass->count && pass->dead[i].ticket == ticket; i++)
		if (!pass->dead[i].awaited && is_live_claim(claim))
			pass->dead[i].awaited = slot_is_pending(fd, header, slot);
}

/* Notes the peers that the owner of that file has yet to let in. A file that is no segment of ours awaits none. */
static void note_claims(struct pass *pass, int fd)
{
	struct sc_abi_header header;
	uint64_t claims[64];

	if (SC_TRY("reap.awaits", pread(fd, &header, sizeof(header), 0)) != (ssize_t)sizeof(header) ||
	    header.magic != SC_ABI_MAGIC || header.layout != SC_ABI_LAYOUT ||
	    header.slot_count > SC_ABI_SLOTS_MAX)
		return;
	for (uint32_t first = 0; first < header.slot_count; first += 64) {
		uint32_t count = header.slot_count - first < 64 ? header.slot_count - first : 64;
		ssize_t size = (ssize_t)(count * sizeof(uint64_t));

		if (SC_TRY("reap.claims",
			   pread(fd, claims, (size_t)size,
				 (off_t)(header.claims_offset + first * sizeof(uint64_t)))) != size)
			return;
		for (uint32_t i = 0; i < count; i++)
			if (claims[i])
				note_claim(pass, fd, &header, first + i, claims[i]);
	}
}

static bool note_own(int fd, void *pass)
{
	note_claims(pass, fd);
	return false; /* go on */
}

/*
 * The caller holds others. This process's own files are not to be opened: sc_shmfile_any(). Nor is the one that is held:
 * its lock would go with the second descriptor.
 */
static void note_other(const char *name, void *arg)
{
	struct pass *pass = arg;
	struct stat st;
	int fd;

	if (sc_addr_is_service_file(name))
		return;
	if (pass->held && sc_shmfile_is_named(name, pass->held->st_dev, pass->held->st_ino))
		return;
	fd = sc_shmfile_open_other(name, &st);
	if (fd < 0)
		return;
	if (sc_lifelock_check(fd, NULL) == 1)
		note_claims(pass, fd);
	SC_CALL("reap.reader_close", close(fd));
}

/*
 * Who of the dead is awaited? One look at all the living, however many are dead: the dead make no claims any
 * more. The caller holds others.
 */
static void find_awaited(struct pass *pass)
{
	(void)sc_shmfile_any(note_own, pass);
	(void)each_name(note_other, pass);
}

static uint64_t ticket_of(const char *name)
{
	struct sc_addr parts;
	uint64_t nonce;

	if (sc_addr_parse_file(name, &parts))
		return 0;
	memcpy(&nonce, parts.nonce, sizeof(nonce));
	return SC_ABI_TICKET(parts.pid, nonce);
}

/* `held`: it is that file, and its life lock is held; NULL: it is not. */
static bool is_awaited(const char *name, const struct stat *held)
{
	struct dead dead = { .ticket = ticket_of(name) };
	struct pass pass = { .dead = &dead, .count = 1, .held = held };

	if (dead.ticket)
		find_awaited(&pass);
	return dead.awaited;
}

/* ---- protocol -------------------------------------------------------------------------------- */

/* With the life lock held. `dead`: found to be that earlier, NULL: not. */
static int unlink_dead(const char *name, int fd, const struct stat *st, const struct dead *dead)
{
	char path[SC_SHMFILE_PATH_MAX];

	(void)SC_FAULT("reap.locked");
	if (!sc_shmfile_is_named(name, st->st_dev, st->st_ino))
		return 0;
	if (second_opinion(name, fd)) {
		sc_warn(SC_HOST_DIR "/%s has lost its life lock but its owner lives: left alone; does the "
				    "application close descriptors that it did not open?",
			name);
		return -EBUSY;
	}
	if (dead ? dead->awaited : is_awaited(name, st))
		return -EBUSY;
	(void)SC_FAULT("reap.judged");
	if (!sc_shmfile_is_named(name, st->st_dev, st->st_ino))
		return 0; /* given back meanwhile: it may be a living owner's by now */
	sc_shmfile_path(name, path);
	if (SC_TRY("reap.unlink", unlink(path))) {
		int err = errno;

		if (err == ENOENT) /* by hand, or by a reaper that knows no locks */
			return 0;
		sc_warn("cannot remove %s, left by a dead process: %s", path, strerror(err));
		return -err;
	}
	(void)SC_FAULT("reap.unlinked");
	sc_info("removed %s, left by a dead process", path);
	return 1;
}

static int reap_held(const char *name, const struct dead *dead)
{
	struct stat st;
	int fd = sc_shmfile_open_other(name, &st);
	int ret;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	ret = sc_lifelock_lock(fd);
	if (!ret)
		ret = unlink_dead(name, fd, &st, dead);
	else if (ret == -EAGAIN)
		ret = -EBUSY;
	else
		sc_warn("cannot lock " SC_HOST_DIR "/%s: %s", name, strerror(-ret));
	SC_CALL("reap.close", close(fd));
	return ret;
}

static int reap(const char *name, const struct dead *dead)
{
	int ret;

	sc_shmfile_hold_others();
	ret = reap_held(name, dead);
	sc_shmfile_release_others();
	return ret;
}

int sc_reap_name(const char *name)
{
	return sc_addr_is_file_of(name, geteuid()) ? reap(name, NULL) : -EACCES;
}

static bool pass_has_room(struct pass *pass)
{
	size_t room = pass->room ? 2 * pass->room : 64;
	struct dead *dead;

	if (pass->count < pass->room)
		return true;
	dead = SC_TRY_PTR("reap.room", NULL, realloc(pass->dead, room * sizeof(*dead)));
	if (!dead)
		return false;
	pass->dead = dead;
	pass->room = room;
	return true;
}

/* Without memory for it one by one. */
static void find_dead(const char *name, void *arg)
{
	struct pass *pass = arg;
	bool dead = false, certain = false;
	struct stat st;
	int fd;

	sc_shmfile_hold_others();
	fd = sc_shmfile_open_other(name, &st);
	if (fd >= 0) {
		dead = sc_lifelock_check(fd, NULL) == 0;
		certain = dead && !second_opinion(name, fd);
		SC_CALL("reap.dead_close", close(fd));
	}
	sc_shmfile_release_others();
	if (dead && !pass_has_room(pass)) {
		pass->removed += reap(name, NULL) == 1;
	} else if (dead) {
		struct dead *entry = &pass->dead[pass->count++];

		*entry = (struct dead){ .ticket = ticket_of(name), .certain = certain };
		snprintf(entry->name, sizeof(entry->name), "%.*s", SC_ADDR_NAME_MAX - 1, name);
	}
}

static int by_ticket(const void *left, const void *right)
{
	const struct dead *a = left, *b = right;

	return a->ticket < b->ticket ? -1 : a->ticket > b->ticket;
}

/* Finds the dead, and then those of them that are awaited: in this order. */
static int scan(name_filter *filter)
{
	struct pass pass = { 0 };
	int err = each(filter, find_dead, &pass);

	if (pass.count) {
		qsort(pass.dead, pass.count, sizeof(pass.dead[0]), by_ticket);
		sc_shmfile_hold_others();
		find_awaited(&pass);
		sc_shmfile_release_others();
	}
	for (size_t i = 0; i < pass.count; i++) {
		const struct dead *dead = &pass.dead[i];

		pass.removed += reap(dead->name, dead->certain ? dead : NULL) == 1;
	}
	free(pass.dead);
	return err ? err : pass.removed;
}

int sc_reap_scan(void)
{
	return scan(sc_addr_is_file_of);
}

int sc_reap_scan_unsure(void)
{
	return scan(is_unsure);
}

/* ---- the end of this process ----------------------------------------------------------------- */

/* Only a peer that this process has connected to can have something to read there. */
static bool is_awaited_by_peers(const char *name)
{
	uint64_t ticket = ticket_of(name);
	struct sc_seg *seg = NULL;

	if (ticket && !sc_seg_finds_all())
		return true;
	while (ticket && (seg = sc_seg_next_claimed(seg, ticket))) {
		if (sc_reap_owner_is_dead(seg))
			continue;
		sc_seg_detach(seg);
		return true;
	}
	return false;
}

void sc_reap_own(void)
{
	sc_shmfile_unlink_all(is_awaited_by_peers);
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct lister {
	void (*show)(const struct sc_reap_file *file, void *arg);
	void *arg;
};

/* Judged as for removal, but for the lock, which is looked at and not taken. */
static void list_one(const char *name, void *arg)
{
	const struct lister *lister = arg;
	struct sc_reap_file file = { .name = name };
	struct stat st;
	int fd, live;

	sc_shmfile_hold_others();
	fd = sc_shmfile_open_other(name, &st);
	if (fd >= 0) {
		live = sc_lifelock_check(fd, &file.pid);
		file.dead = !live && !second_opinion(name, fd) && !is_awaited(name, NULL);
		file.bytes = (uint64_t)st.st_blocks * 512;
		SC_CALL("reap.list_close", close(fd));
	}
	sc_shmfile_release_others();
	if (fd >= 0)
		lister->show(&file, lister->arg);
}

int sc_reap_list(void (*show)(const struct sc_reap_file *file, void *arg), void *arg)
{
	struct lister lister = { .show = show, .arg = arg };
	int err = each_name(list_one, &lister);

	return err ? err : each(is_unsure, list_one, &lister);
}
