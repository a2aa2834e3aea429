/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork.c: fork(2). A child cannot use its parent's objects: it does not map the shared memory, the parent's threads do
 * not run in it, and peers do not know it. So in the child each inherited object gets other tables of operations:
 * fi_close() frees the private memory, every other call returns SHMCMA_FORKED. Data calls pay nothing for this. The
 * child may open objects of its own, without restriction.
 *
 * Locks. The thread that forks holds all of them, so that the child finds consistent data. The order is: lists, poll
 * sets, wait sets, domains (all locks of each, see lock.h), address vectors, event queues.
 *
 *   The lock of the lists lets one thread fork at a time: a second thread waits until the first has its child. This
 *   wait needs no limit: a thread holds this lock for a few stores, or for its fork(2), and handles no signal in it,
 *   so no handler that forks interrupts its owner. The lock also guards the variables of one fork.
 *
 *   A thread may hold the lock of an object for long: the interrupted thread itself (a signal handler forks in the
 *   middle of a call of the provider), or a thread that writes to a log which nobody reads. The fork looks
 *   SHMCMA_FORK_TRIES times, with a nap between two looks, and goes on without the lock; then the child leaves
 *   inherited objects as they are when it closes them. The limit counts looks and not time: on a machine with too few
 *   processors the naps grow longer, and the owner of the lock runs during the naps.
 *
 * One thread at a time uses a domain that takes no lock; the application ensures this for fork(2), too.
 *
 * Some children do not run these handlers. A child of vfork(2) may only exec and _exit. A child of clone(2), or of
 * fork(2) as a bare system call, keeps the tables: a call that needs a segment crashes there. Neither can harm the
 * parent: it does not have the parent's segments, and takes the parent's names for another process's.
 */
#include "wait/fork.h"

#include <unistd.h>
#include "wait/lock.h"
#include "wait/progress.h"

static bool missed; /* this fork goes on without a lock */
static atomic_bool warned_torn;
/* The process that loaded the provider, or that the last known fork(2) made. */
static pid_t process;

/* ---- in the child ---------------------------------------------------------------------------- */

SHMCMA_FORKED_CALL(int, fid_bind, struct fid *fid, struct fid *bfid, uint64_t flags)
SHMCMA_FORKED_CALL(int, fid_control, struct fid *fid, int command, void *arg)
SHMCMA_FORKED_CALL(int, fid_ops_open, struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
SHMCMA_FORKED_CALL(int, fid_tostr, const struct fid *fid, char *buf, size_t len)
SHMCMA_FORKED_CALL(int, fid_ops_set, struct fid *fid, const char *name, uint64_t flags, void *ops, void *context)

static int close_torn(struct fid *fid)
{
	if (!atomic_exchange(&warned_torn, true))
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

/* Takes the object's lock; for a domain, all of its locks. Returns false if this thread does not have all of them. */
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
	atomic_store(&warned_torn, false);
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
