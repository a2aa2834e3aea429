/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork.c: fork(2). A child has no use of its parent's objects: the shared memory is not mapped there, its
 * parent's threads do not run there, and to peers it is nobody. So in the child each inherited object gets
 * other tables of operations: fi_close() gives back what is private, every other call is SHMCMA_FORKED. That
 * costs the data calls nothing. The child may open objects of its own, which are as good as its parent's.
 *
 * Locks. The thread that forks holds all of them, in the order lists, poll sets, wait sets, domains (all locks of
 * each, see lock.h), address vectors, event queues, so that the child finds whole what they guard.
 *
 *   The lock of the lists lets one thread fork at a time: a second one waits until the first has its child. This wait
 *   needs no limit. A thread has this lock for a few stores, or for its fork(2), and handles no signal meanwhile, so no
 *   handler that forks can have interrupted its owner. The lock guards what one fork notes for its end, too.
 *
 *   A lock of an object may be held for long: by the interrupted thread itself (a signal handler forks in the middle
 *   of one of our calls), or by a thread that writes to a log which nobody reads. The fork looks SHMCMA_FORK_TRIES
 *   times, with a nap between two looks, and goes on without the lock; then the child leaves inherited objects as they
 *   are when it closes them. The limit counts looks and not time: on a machine that is short of processors the naps
 *   grow longer, and the owner of the lock runs in them.
 *
 * A domain that takes no lock is used by one thread at a time; the application sees to that also for fork(2).
 *
 * Children that are not told of: one of vfork(2) has the right to exec and _exit only. A child of clone(2) or of
 * fork(2) as a bare system call keeps the tables: a call that needs a segment crashes there. Either can do no harm to
 * the parent, whose segments it does not have, and whose names it takes for another process's.
 */
#include "wait/fork.h"

#include <unistd.h>
#include "wait/lock.h"
#include "wait/progress.h"

static bool missed; /* this fork goes on without a lock */
static atomic_bool told_torn;
static pid_t process; /* has loaded the provider, or was made by a fork(2) that we were told of */

/* ---- in the child ---------------------------------------------------------------------------- */

SHMCMA_FORKED_CALL(int, fid_bind, struct fid *fid, struct fid *bfid, uint64_t flags)
SHMCMA_FORKED_CALL(int, fid_control, struct fid *fid, int command, void *arg)
SHMCMA_FORKED_CALL(int, fid_ops_open, struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
SHMCMA_FORKED_CALL(int, fid_tostr, const struct fid *fid, char *buf, size_t len)
SHMCMA_FORKED_CALL(int, fid_ops_set, struct fid *fid, const char *name, uint64_t flags, void *ops, void *context)

static int close_torn(struct fid *fid)
{
	if (!atomic_exchange(&told_torn, true))
		shmcma_warn(
			FI_LOG_CORE,
			"process %d was forked while another call held a lock for long: objects of its "
			"parent that it closes keep their memory and descriptors\n",
			(int)getpid());
	return 0;
}

static void replace_fid(struct fid *fid)
{
	struct fi_ops *ops = &shmcma_forked_ops[fid->fclass];

	*ops = (struct fi_ops){ .size = sizeof(*ops),
				.close = shmcma_torn ? close_torn : fid->ops->close,
				.bind = forked_fid_bind,
				.control = forked_fid_control,
				.ops_open = forked_fid_ops_open,
				.tostr = forked_fid_tostr,
				.ops_set = forked_fid_ops_set };
	fid->ops = ops;
}

/* ---- around fork(2) -------------------------------------------------------------------------- */

/* The object's own lock; a domain has more. False: this thread does not have all of them. */
static bool hold(struct shmcma_object *object, unsigned int *tries)
{
	object->held = shmcma_fork_hold(object->lock, tries);
	if (!object->held || object->fid->fclass != FI_CLASS_DOMAIN)
		return object->held;
	return shmcma_lock_hold_others(container_of(object->fid, struct shmcma_domain, fid.fid), tries);
}

static void before(void)
{
	static const size_t order[] = { FI_CLASS_POLL, FI_CLASS_WAIT, FI_CLASS_DOMAIN, FI_CLASS_AV,
					FI_CLASS_EQ };
	unsigned int tries = SHMCMA_FORK_TRIES;

	shmcma_lists_lock();
	missed = false;
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		for (struct shmcma_object *each = shmcma_objects_locked(); each; each = each->next)
			if (each->fid->fclass == order[i] && each->lock && !hold(each, &tries))
				missed = true;
}

static void in_parent(void)
{
	for (struct shmcma_object *each = shmcma_objects_locked(); each; each = each->next) {
		if (each->held && each->fid->fclass == FI_CLASS_DOMAIN)
			shmcma_lock_drop_others(container_of(each->fid, struct shmcma_domain, fid.fid));
		if (each->held)
			pthread_mutex_unlock(each->lock);
		each->held = false;
	}
	shmcma_lists_unlock();
}

static void in_child(void)
{
	shmcma_torn = shmcma_torn || missed;
	for (struct shmcma_object *each = shmcma_objects_locked(); each; each = each->next) {
		if (each->lock)
			shmcma_fork_renew(each->lock, each->held);
		each->held = false;
		replace_fid(each->fid);
		if (each->forked)
			each->forked(each->fid);
	}
	shmcma_progress_forked_locked();
	atomic_store(&told_torn, false);
	process = getpid();
	shmcma_lists_unlock();
}

bool shmcma_fork_is_known(void)
{
	return getpid() == process;
}

void shmcma_fork_init(void)
{
	process = getpid();
	if (pthread_atfork(before, in_parent, in_child))
		shmcma_warn(FI_LOG_CORE,
			    "no memory to watch fork(2): a child must not use what is open\n");
}
