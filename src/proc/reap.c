/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reap.c: removes the files of dead processes. models/reap.pml is the model of the protocol:
 *
 *	open -> take the life lock -> second opinion -> is the name still that of this inode? -> unlink
 *	-> close, which frees the lock
 *
 * Only the holder of the life lock may unlink, so one of several reapers does. No owner can come between, as an owner
 * takes its lock before its name. The reaper compares inodes because another reaper may have removed the name, and a
 * new owner may have taken it.
 *
 * A free lock proves death, unless the owner has lost its lock by mistake: hence the second opinion (owner.c). In doubt
 * the file stays. The reaper compares the name after the second opinion: until then an owner without lock may remove
 * its name, and another owner may take it.
 *
 * A dead or closed segment is awaited if living peers have unread messages in it. It keeps its name while one of them
 * lives. The reaper looks for such peers after it has found the owner dead: a dead owner makes no new claims. A reaper
 * that cannot read all living segments, as it has no descriptor left, takes each dead segment for awaited. The daemon's
 * next scan, or another process, removes it.
 *
 * If the reaper dies at any step, the name is there or it has gone, and the kernel frees the reaper's lock.
 *
 * POSIX locks do not tell threads apart. So one thread of a process reaps at a time, and no other thread closes a
 * descriptor of another process's file meanwhile (sc_otherfiles_hold()).
 */
#define _GNU_SOURCE 1
#include "proc/reap.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include "os/addr.h"
#include "os/host.h"
#include "base/fault.h"
#include "os/lifelock.h"
#include "proc/owner.h"
#include "base/log.h"
#include "os/otherfile.h"
#include "os/shmfile.h"
#include "shm/attach.h"

/* ---- names ----------------------------------------------------------------------------------- */

/*
 * Tells whether to visit a name. A name is input: any process may give it to any file. So it only decides which files
 * are skipped; sc_otherfile_open() opens the others, after a check of the user.
 */
typedef bool name_filter(const char *name, uint32_t uid);

static int names(name_filter *filter, void (*visit)(const char *name, void *arg), void *arg)
{
	DIR *dir = SC_TRY_PTR("reap.scan", NULL, opendir(SC_HOST_DIR));
	uint32_t uid = geteuid();
	struct dirent *entry;
	int err;

	if (!dir)
		return -errno;
	do {
		errno = 0; /* the end of the directory leaves it so */
		entry = SC_TRY_PTR("reap.entry", NULL, readdir(dir));
		err = entry ? 0 : -errno;
		if (entry && filter(entry->d_name, uid))
			visit(entry->d_name, arg);
	} while (entry);
	SC_CALL("reap.scan_close", closedir(dir));
	return err;
}

/* Visits only the names that this library gives: not a user's own "shmcma-notes", and no file of another user. */
int sc_reap_names(void (*visit)(const char *name, void *arg), void *arg)
{
	return names(sc_addr_is_file_of, visit, arg);
}

/*
 * Logs an error, for callers that need the names. Visits none if this process does not know who it is (there is no
 * /proc): it could judge no file, and each would log that.
 */
static int each(name_filter *filter, void (*visit)(const char *name, void *arg), void *arg)
{
	const struct sc_host *host;
	int err = sc_host_get(&host);

	if (err)
		return err;
	err = names(filter, visit, arg);
	if (err)
		sc_warn("cannot read " SC_HOST_DIR ": %s; %s", strerror(-err), sc_shmfile_remedy(-err));
	return err;
}

static int each_name(void (*visit)(const char *name, void *arg), void *arg)
{
	return each(sc_addr_is_file_of, visit, arg);
}

/* ---- unread messages ------------------------------------------------------------------------- */

/*
 * Messages that a dead process has sent in bounce buffers are in its own segment. A receiver that has not attached this
 * segment yet finds it by its name. So the name stays while a living endpoint has not answered the dead process's
 * claim. The receiver that reads the messages removes the name.
 */

/* A dead file that a pass over all names has found; a pass sorts these by ticket. */
struct dead {
	uint64_t ticket; /* of a segment; 0: a service, which no peer awaits */
	bool certain;	 /* the second opinion says dead, too */
	bool awaited;	 /* a living peer has not let it in yet */
	char name[SC_ADDR_NAME_MAX];
};

struct pass {
	struct dead *dead;
	size_t count, room;
	const struct stat *held; /* the file whose life lock this reaper has; NULL: none */
	bool blind;		 /* some living peer's claims could not be read */
	int lack;		 /* of descriptors: no further file can be opened; 0: none */
	int removed;
};

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

/*
 * Tells whether a read of a living segment's file has got all. A file that is too short for the place, or that names an
 * impossible one (EINVAL), is no segment, and awaits nobody.
 */
static bool has_read(struct pass *pass, ssize_t got, size_t size)
{
	pass->blind |= got < 0 && errno != EINVAL;
	return got == (ssize_t)size;
}

/* Tells whether the owner of a segment's file has not answered the connection in this slot. */
static bool slot_is_pending(struct pass *pass, int fd, const struct sc_abi_header *header, uint32_t slot)
{
	off_t at = (off_t)(header->slots_offset + (uint64_t)slot * header->slot_size +
			   offsetof(struct sc_abi_slot, consumer.answer));
	uint32_t answer;

	return has_read(pass, SC_TRY("reap.answer", pread(fd, &answer, sizeof(answer), at)),
			sizeof(answer)) &&
	       answer == SC_ABI_PENDING;
}

/* Notes a claim in the file of a living segment. If two dead files have its ticket, it counts for both. */
static void note_claim(struct pass *pass, int fd, const struct sc_abi_header *header, uint32_t slot,
		       uint64_t claim)
{
	uint64_t ticket = SC_ABI_CLAIM_TICKET(claim);

	for (size_t i = find_ticket(pass, ticket); i < pass->count && pass->dead[i].ticket == ticket; i++)
		if (!pass->dead[i].awaited && is_live_claim(claim))
			pass->dead[i].awaited = slot_is_pending(pass, fd, header, slot);
}

/* Notes the peers that the owner of a file has not let in yet; none if it is no segment of this layout. */
static void note_claims(struct pass *pass, int fd)
{
	struct sc_abi_header header;
	uint64_t claims[64];

	if (!has_read(pass, SC_TRY("reap.awaits", pread(fd, &header, sizeof(header), 0)),
		      sizeof(header)) ||
	    header.magic != SC_ABI_MAGIC || header.layout != SC_ABI_LAYOUT ||
	    header.slot_count > SC_ABI_SLOTS_MAX)
		return;
	for (uint32_t first = 0; first < header.slot_count; first += 64) {
		uint32_t count = header.slot_count - first < 64 ? header.slot_count - first : 64;
		off_t at = (off_t)(header.claims_offset + first * sizeof(uint64_t));
		size_t size = count * sizeof(uint64_t);

		if (!has_read(pass, SC_TRY("reap.claims", pread(fd, claims, size, at)), size))
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

/* Returns the error if it says that this process, or the system, has no descriptor left; else 0. */
static int lack_of(int err)
{
	return err == -EMFILE || err == -ENFILE ? err : 0;
}

/*
 * Tells whether a file that cannot be opened awaits nobody: it has gone, is not this library's, or note_own() reads it.
 * note_own() does not read the files of another copy of this library in this process.
 */
static bool is_no_peer(int err, const struct stat *st)
{
	return err == -ENOENT || err == -EACCES || (err == -EBUSY && sc_shmfile_is_listed(st));
}

/*
 * The caller has called sc_otherfiles_hold(). Opens no file of this process, see sc_shmfile_any(), nor the file that is
 * held: the close of a second descriptor would drop the lock.
 */
static void note_other(const char *name, void *arg)
{
	struct pass *pass = arg;
	struct stat st;
	int fd, held;

	if (pass->blind || sc_addr_is_service_file(name))
		return;
	if (pass->held && sc_shmfile_is_named(name, pass->held->st_dev, pass->held->st_ino))
		return;
	fd = sc_otherfile_open(name, &st);
	if (fd < 0) {
		pass->blind = !is_no_peer(fd, &st);
		pass->lack = lack_of(fd);
		return;
	}
	held = sc_lifelock_check(fd, NULL);
	if (held == 1 || (!held && sc_owner_may_live(name, fd)))
		note_claims(pass, fd);
	pass->blind |= held < 0;
	SC_CALL("reap.reader_close", close(fd));
}

/*
 * Tells whether the file may be that of a living peer. In a user namespace other than the first a process cannot tell
 * the user by the name, and looks at the owner of each file.
 */
static bool may_await(const char *name, uint32_t uid)
{
	const struct sc_host *host;
	struct sc_addr parts;

	return sc_addr_is_file_of(name, uid) ||
	       (!sc_host_get(&host) && sc_addr_uid(host) == SC_ADDR_ANY_UID &&
		!sc_addr_parse_file(name, &parts));
}

/*
 * Finds which dead files are awaited, by one look at all living segments: a dead process makes no new claims. The
 * caller has called sc_otherfiles_hold(). In doubt all are awaited: their messages would be lost.
 */
static void find_awaited(struct pass *pass)
{
	int err;

	(void)sc_shmfile_any(note_own, pass);
	err = each(may_await, note_other, pass);
	if (err) {
		pass->blind = true;
		pass->lack = lack_of(err);
	}
	for (size_t i = 0; i < pass->count; i++)
		pass->dead[i].awaited |= pass->blind && pass->dead[i].ticket;
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

/*
 * Tells whether a file is awaited. `held`: this reaper has the file's life lock; NULL: it does not. *lack: as of a pass.
 */
static bool is_awaited(const char *name, const struct stat *held, int *lack)
{
	struct dead dead = { .ticket = ticket_of(name) };
	struct pass pass = { .dead = &dead, .count = 1, .held = held };

	if (dead.ticket)
		find_awaited(&pass);
	*lack = pass.lack;
	return dead.awaited;
}

/* ---- protocol -------------------------------------------------------------------------------- */

/* Unlinks the name if the file is dead and not awaited. This reaper has the life lock. `dead`: of a pass, or NULL. */
static int unlink_dead(const char *name, int fd, const struct stat *st, const struct dead *dead)
{
	char path[SC_SHMFILE_PATH_MAX];
	int lack;

	(void)SC_FAULT("reap.locked");
	if (!sc_shmfile_is_named(name, st->st_dev, st->st_ino))
		return 0;
	if (sc_owner_may_live(name, fd)) {
		sc_warn(SC_HOST_DIR "/%s has lost its life lock but its owner lives: left alone; does the "
				    "application close descriptors that it did not open?",
			name);
		return -EBUSY;
	}
	if (dead ? dead->awaited : is_awaited(name, st, &lack))
		return -EBUSY;
	(void)SC_FAULT("reap.judged");
	if (!sc_shmfile_is_named(name, st->st_dev, st->st_ino))
		return 0; /* its owner gave the name back: another owner may have it now */
	sc_shmfile_path(name, path);
	if (SC_TRY("reap.unlink", unlink(path))) {
		int err = errno;

		if (err == ENOENT) /* removed by hand, or by a reaper without locks */
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
	int fd = sc_otherfile_open(name, &st);
	int ret;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	ret = sc_lifelock_lock(fd);
	if (!ret)
		ret = unlink_dead(name, fd, &st, dead);
	else if (ret == -EAGAIN)
		ret = -EBUSY;
	else
		sc_warn("cannot lock " SC_HOST_DIR "/%s: %s; %s", name, strerror(-ret),
			sc_shmfile_remedy(-ret));
	SC_CALL("reap.close", close(fd));
	return ret;
}

static int reap(const char *name, const struct dead *dead)
{
	int ret;

	sc_otherfiles_hold();
	ret = reap_held(name, dead);
	sc_otherfiles_release();
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

/* Adds a dead file to the pass. Without memory for that, reaps the file at once. */
static void find_dead(const char *name, void *arg)
{
	struct pass *pass = arg;
	bool dead = false, certain = false;
	struct stat st;
	int fd;

	if (pass->lack)
		return;
	sc_otherfiles_hold();
	fd = sc_otherfile_open(name, &st);
	pass->lack = lack_of(fd);
	if (fd >= 0) {
		dead = sc_lifelock_check(fd, NULL) == 0;
		certain = dead && !sc_owner_may_live(name, fd);
		SC_CALL("reap.dead_close", close(fd));
	}
	sc_otherfiles_release();
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

/*
 * Finds the dead files first, then the awaited ones among them. Ends at the first file for which there is no descriptor:
 * there is none for the others, and each would log that.
 */
static int scan(name_filter *filter)
{
	struct pass pass = { 0 };
	int err = each(filter, find_dead, &pass);

	if (pass.count && !pass.lack) {
		qsort(pass.dead, pass.count, sizeof(pass.dead[0]), by_ticket);
		sc_otherfiles_hold();
		find_awaited(&pass);
		sc_otherfiles_release();
	}
	for (size_t i = 0; i < pass.count && !pass.lack; i++) {
		const struct dead *dead = &pass.dead[i];
		int ret = reap(dead->name, dead->certain ? dead : NULL);

		pass.lack = lack_of(ret);
		pass.removed += ret == 1;
	}
	free(pass.dead);
	err = err ? err : pass.lack;
	return err ? err : pass.removed;
}

int sc_reap_scan(void)
{
	return scan(sc_addr_is_file_of);
}

int sc_reap_scan_unsure(void)
{
	return scan(sc_addr_is_foreign_service_file);
}

/* ---- the end of this process ----------------------------------------------------------------- */

/* Tells whether a living peer has to read in this file: only peers that this process connected to can. */
static bool is_awaited_by_peers(const char *name)
{
	uint64_t ticket = ticket_of(name);
	struct sc_seg *seg = NULL;

	if (ticket && !sc_seg_finds_all())
		return true;
	while (ticket && (seg = sc_seg_next_claimed(seg, ticket))) {
		if (sc_owner_is_dead(seg))
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
	int lack; /* as of a pass */
};

/* Judges a file as for removal, but checks its lock without taking it. */
static void list_one(const char *name, void *arg)
{
	struct lister *lister = arg;
	struct sc_reap_file file = { .name = name };
	struct stat st;
	int fd, live;

	if (lister->lack)
		return;
	sc_otherfiles_hold();
	fd = sc_otherfile_open(name, &st);
	lister->lack = lack_of(fd);
	if (fd >= 0) {
		live = sc_lifelock_check(fd, &file.pid);
		file.dead =
			!live && !sc_owner_may_live(name, fd) && !is_awaited(name, NULL, &lister->lack);
		file.bytes = (uint64_t)st.st_blocks * 512;
		SC_CALL("reap.list_close", close(fd));
	}
	sc_otherfiles_release();
	if (fd >= 0)
		lister->show(&file, lister->arg);
}

int sc_reap_list(void (*show)(const struct sc_reap_file *file, void *arg), void *arg)
{
	struct lister lister = { .show = show, .arg = arg };
	int err = each_name(list_one, &lister);

	if (!err && !lister.lack)
		err = each(sc_addr_is_foreign_service_file, list_one, &lister);
	return err ? err : lister.lack;
}
