/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * attach.c: this process attaches segments of other endpoints, and detaches them.
 *
 * Owns the structures of attached segments. All endpoints of this process share the structure of a live peer's segment,
 * because the mapping takes longer than the rest of a connection. Any thread calls these.
 *
 * Attach believes nothing. It checks type, owner, mode and links of the file and that its lock is held, then header.c
 * checks a copy of the whole header. Only the copy is used from then on, so all offsets stay inside the mapping
 * whatever is written to the shared page later. An attacher that dies leaves nothing.
 */
#include "shm/attach.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/list.h"
#include "base/log.h"
#include "os/lifelock.h"
#include "os/otherfile.h"
#include "shm/guard.h"
#include "shm/header.h"

/* A forked child has one thread, and none of the segments that its parent has attached. */
static void atfork_child(void)
{
	sc_segs.shared_mutex = sc_segs.access_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	memset(sc_segs.shared, 0, sizeof(sc_segs.shared));
}

static void init_once(void)
{
	sc_segs.can_fork = !SC_TRY("attach.atfork", pthread_atfork(NULL, NULL, atfork_child));
}

bool sc_attach_init(void)
{
	pthread_once(&sc_segs.once, init_once);
	return sc_segs.can_fork;
}

static int parse_here(const char *addr, char name[SC_ADDR_NAME_MAX])
{
	const struct sc_host *host;
	struct sc_addr parts;
	int err = sc_addr_parse(addr, &parts);

	if (err) {
		sc_warn("\"%.63s\" is not the address of an endpoint", addr);
		return err;
	}
	err = sc_host_get(&host);
	if (err)
		return err;
	if (parts.host != host->id) {
		sc_log(sc_log_first(SC_LOG_OTHER_HOST),
		       "%s is of another machine, another boot of this one, or another " SC_HOST_DIR
		       " (container); reach it by a network provider",
		       addr);
		return -EHOSTUNREACH;
	}
	sc_addr_file(&parts, name);
	return 0;
}

static int refuse_dead(const char *addr)
{
	sc_info("%s is not there: its process has ended or closed it", addr);
	return -ECONNREFUSED;
}

static int reject(const char *addr, int err, const char *fault)
{
	sc_warn("cannot attach to %s: %s", addr, fault);
	return err;
}

/* Its file is not a regular one of this user with mode 0600. */
static int reject_user(const char *addr)
{
	const struct sc_host *host;
	struct sc_addr parts;
	uint32_t own;

	if (sc_addr_parse(addr, &parts) || sc_host_get(&host))
		return -EACCES;
	own = sc_addr_uid(host);
	if (parts.uid == own || parts.uid == SC_ADDR_ANY_UID || own == SC_ADDR_ANY_UID)
		return reject(addr, -EACCES, "its file is not a regular one of this user with mode 0600");
	sc_log(sc_log_first(SC_LOG_OTHER_USER),
	       "cannot attach to %s: it belongs to uid %" PRIu32 ", and this process is uid %" PRIu32
	       "; run both as one user",
	       addr, parts.uid, own);
	return -EACCES;
}

static int open_file(const char *addr, const char *name, struct stat *st)
{
	int fd = sc_otherfile_open_peer(name, st);

	switch (fd) {
	case -ENOENT:
		return refuse_dead(addr);
	case -EACCES:
		return reject_user(addr);
	case -EBUSY:
		return reject(addr, -ECONNREFUSED,
			      "this process holds it, but not by this copy of the library; load it once");
	default:
		return sc_otherfile_move(fd);
	}
}

static int read_header(int fd, const char *addr, const struct stat *st, struct sc_abi_header *header)
{
	ssize_t got = SC_TRY("attach.pread", pread(fd, header, sizeof(*header), 0));
	const char *fault;

	if (got < 0) {
		int err = errno;

		sc_warn("cannot attach to %s: cannot read its header: %s", addr, strerror(err));
		return -err;
	}
	if ((size_t)got < sizeof(*header))
		return reject(addr, -EPROTO, "its file is too short");
	fault = sc_header_fault(header, (uint64_t)st->st_size, addr);
	return fault ? reject(addr, -EPROTO, fault) : 0;
}

/*
 * A reaper also holds the lock of a dead owner's file for a moment. An attacher in another pid namespace cannot tell
 * the reaper from the owner; it finds the lock free at its next look.
 */
static int check_holder(const char *addr, bool left, struct sc_seg *seg)
{
	const struct sc_host *host;
	int err = sc_host_get(&host);

	if (err)
		return err;
	if (seg->header.owner.pid_ns != host->pid_ns || seg->header.owner.pid == seg->cma_pid)
		return 0;
	seg->cma_pid = 0;
	return left ? 0 : refuse_dead(addr);
}

/* Checks a file that has just been opened, and stores the results in *seg. */
static int examine(const char *addr, bool left, const struct stat *st, struct sc_seg *seg)
{
	int alive = sc_lifelock_check(seg->fd, &seg->cma_pid);
	int err;

	if (alive < 0)
		return reject(addr, alive, "its life lock cannot be read");
	if ((!alive && !left) || !st->st_nlink)
		return refuse_dead(addr);
	if (st->st_nlink > 1)
		return reject(addr, -EACCES, "its file has more than one name");
	err = read_header(seg->fd, addr, st, &seg->header);
	return err ? err : check_holder(addr, left, seg);
}

/* Opens another process's segment, live or `left`, and checks its header; maps nothing. */
static int open_other(const char *addr, const char *name, bool left, struct sc_seg *seg)
{
	struct stat st;
	int err;

	seg->fd = open_file(addr, name, &st);
	if (seg->fd < 0)
		return seg->fd;
	seg->dev = st.st_dev;
	seg->ino = st.st_ino;
	err = examine(addr, left, &st, seg);
	if (err)
		sc_otherfile_close(seg->fd);
	return err;
}

/*
 * Keeps the descriptor, for a quick look at the lock, while the application has plenty left. If the process is not
 * visible from here, it is kept in any case: nothing else tells of the death once the name is removed.
 */
static void keep_descriptor(struct sc_seg *seg)
{
	if (!sc_seg_count_descriptor() && seg->cma_pid)
		sc_seg_drop_descriptor(seg);
}

static int attach_other(const char *addr, const char *name, bool left, struct sc_seg *seg)
{
	int err = open_other(addr, name, left, seg);

	if (err)
		return err;
	err = sc_seg_map(seg);
	if (err) {
		sc_otherfile_close(seg->fd);
		return err;
	}
	keep_descriptor(seg);
	return 0;
}

static void attach_local(struct sc_seg *lender, struct sc_seg *seg)
{
	seg->header = lender->header;
	seg->base = lender->base;
	seg->fd = lender->fd;
	seg->dev = lender->dev;
	seg->ino = lender->ino;
	seg->local = true;
	seg->cma_pid = lender->file.pid;
	seg->lender = lender;
}

static struct sc_seg **shared_chain(const char *addr)
{
	return &sc_segs.shared[sc_seg_hash(addr) % SC_SEGS_SHARED];
}

static void shared_add(struct sc_seg *seg)
{
	struct sc_seg **chain = shared_chain(seg->header.address);

	if (!sc_attach_init()) {
		atomic_store(&sc_segs.unshared, true);
		return;
	}
	pthread_mutex_lock(&sc_segs.shared_mutex);
	seg->next = *chain;
	*chain = seg;
	pthread_mutex_unlock(&sc_segs.shared_mutex);
}

/* Removes one user. True: it was the last, and no thread finds the segment any more. */
static bool shared_put(struct sc_seg *seg)
{
	struct sc_seg **at = shared_chain(seg->header.address);
	bool last;

	pthread_mutex_lock(&sc_segs.shared_mutex);
	last = !--seg->users;
	if (last) {
		while (*at && *at != seg)
			at = &(*at)->next;
		if (*at)
			*at = seg->next;
	}
	pthread_mutex_unlock(&sc_segs.shared_mutex);
	return last;
}

static struct sc_seg *shared_find_locked(const char *addr)
{
	for (struct sc_seg *seg = *shared_chain(addr); seg; seg = seg->next)
		if (sc_seg_is_here(seg) && !strcmp(seg->header.address, addr))
			return seg;
	return NULL;
}

/*
 * Adds a user to a segment that this process has attached, that is not closed, and whose owner lives. NULL: there is
 * none, or it cannot tell.
 */
static struct sc_seg *shared_get(const char *addr)
{
	struct sc_seg *seg;

	pthread_mutex_lock(&sc_segs.shared_mutex);
	seg = shared_find_locked(addr);
	if (seg)
		seg->users++;
	pthread_mutex_unlock(&sc_segs.shared_mutex);
	/* a closed one may have kept its lock, and the name may be the next endpoint's */
	if (!seg || (sc_load_acquire_32(&sc_seg_presence(seg)->state) != SC_ABI_CLOSED &&
		     sc_seg_check_owner(seg) == 1))
		return seg;
	sc_seg_detach(seg);
	return NULL;
}

static struct sc_seg *new_attached(const char *addr)
{
	struct sc_seg *seg = calloc(1, sizeof(*seg));

	if (!seg) {
		sc_warn("no memory to attach to %s", addr);
		return NULL;
	}
	seg->made_by = sc_host_self();
	seg->users = 1;
	return seg;
}

static int attach(const char *addr, bool left, struct sc_seg **out)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_shmfile *file;
	struct sc_seg *seg;
	int err = parse_here(addr, name);

	if (err)
		return err;
	seg = left ? NULL : shared_get(addr);
	if (seg) {
		*out = seg;
		return 0;
	}
	seg = new_attached(addr);
	if (!seg)
		return -ENOMEM;
	file = sc_shmfile_borrow(name);
	if (file)
		attach_local(sc_list_entry(file, struct sc_seg, file), seg);
	else
		err = attach_other(addr, name, left, seg);
	if (err) {
		free(seg);
		return err;
	}
	if (!file && !left)
		shared_add(seg);
	*out = seg;
	return 0;
}

int sc_seg_attach(const char *addr, struct sc_seg **seg)
{
	return attach(addr, false, seg);
}

int sc_seg_attach_left(const char *addr, struct sc_seg **out)
{
	struct sc_seg *seg = NULL;
	int err = attach(addr, true, &seg);

	if (err)
		return err;
	if (sc_load_acquire_32(&sc_seg_presence(seg)->state) != SC_ABI_CLOSED &&
	    sc_seg_check_owner(seg) != 0) {
		sc_seg_detach(seg);
		return -ECONNREFUSED;
	}
	*out = seg;
	return 0;
}

void sc_seg_leave(struct sc_seg *seg)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_addr parts;

	uint32_t unread = sc_add_acq_rel_32(&sc_seg_presence(seg)->unread, UINT32_MAX);

	(void)SC_FAULT("attach.left");
	if (unread != 1 || sc_addr_parse(seg->header.address, &parts))
		return;
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	if (sc_shmfile_is_named(name, seg->dev, seg->ino) && SC_TRY("attach.unlink", unlink(path)))
		sc_info("cannot remove %s, which its owner has left to be read: %s", path,
			strerror(errno));
}

void sc_seg_detach(struct sc_seg *seg)
{
	bool here = sc_seg_is_here(seg);

	if (seg->lender) {
		if (here)
			sc_seg_put(seg->lender);
	} else {
		/* a forked child has only this thread, so it needs no mutex */
		if (here ? !shared_put(seg) : --seg->users)
			return;
		if (here)
			sc_seg_unmap(seg);
		sc_seg_drop_descriptor(seg);
		free(seg->slots);
	}
	free(seg);
}

/*
 * Tells whether an endpoint of this process with that ticket has claimed a slot that has no answer yet. A slot that
 * this process has claimed and published has memory. The answer in another slot that shows the ticket is not read.
 */
static bool is_claimed(const struct sc_seg *seg, uint64_t ticket)
{
	uint64_t *claims = sc_seg_claims(seg);

	for (uint32_t i = 0; i < seg->header.slot_count; i++) {
		uint64_t claim = sc_load_acquire_64(&claims[i]);

		if (SC_ABI_CLAIM_TICKET(claim) != ticket)
			continue;
		if ((claim & SC_ABI_CLAIM_STATE) == SC_ABI_CLAIMED)
			return true;
		if ((claim & SC_ABI_CLAIM_BITS) == SC_ABI_PUBLISHED && sc_guard_has_slot(seg, i) &&
		    sc_load_acquire_32(&sc_seg_slot(seg, i)->consumer.answer) == SC_ABI_PENDING)
			return true;
	}
	return false;
}

static struct sc_seg *find_claimed_locked(struct sc_seg *seg, uint64_t ticket)
{
	for (; seg; seg = seg->next)
		if (sc_seg_is_here(seg) && sc_load_acquire_32(&sc_seg_presence(seg)->state) != SC_ABI_CLOSED &&
		    is_claimed(seg, ticket))
			return seg;
	return NULL;
}

struct sc_seg *sc_seg_next_claimed(struct sc_seg *after, uint64_t ticket)
{
	uint32_t bucket = after ? sc_seg_hash(after->header.address) % SC_SEGS_SHARED : 0;
	struct sc_seg *seg;

	pthread_mutex_lock(&sc_segs.shared_mutex);
	seg = find_claimed_locked(after ? after->next : sc_segs.shared[0], ticket);
	while (!seg && ++bucket < SC_SEGS_SHARED)
		seg = find_claimed_locked(sc_segs.shared[bucket], ticket);
	if (seg)
		seg->users++;
	pthread_mutex_unlock(&sc_segs.shared_mutex);
	if (after)
		sc_seg_detach(after);
	return seg;
}

bool sc_seg_finds_all(void)
{
	return !atomic_load(&sc_segs.unshared);
}

int sc_seg_find(const char *addr)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_seg seg = { 0 };
	struct sc_shmfile *file;
	int err = parse_here(addr, name);

	if (err)
		return err;
	file = sc_shmfile_borrow(name);
	if (file) {
		sc_seg_put(sc_list_entry(file, struct sc_seg, file));
		return 0;
	}
	err = open_other(addr, name, false, &seg);
	if (!err)
		sc_otherfile_close(seg.fd);
	return err;
}
