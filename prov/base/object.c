/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * object.c: the list of open objects, how inherited objects behave after fork(2), and operations that objects do not
 * have. Any thread.
 *
 * Registered memory is not in the list, because it comes and goes too often: its few calls ask its domain
 * (shmcma_is_forked()). A group, which another thread may close before fi_join returns, is not there either; its close
 * asks the domain. fork.c does the work around fork(2).
 */
#include "base/object.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/provider.h"

#define NAP 20000 /* ns */

struct fi_ops shmcma_forked_ops[SHMCMA_CLASSES];
bool shmcma_torn;
static struct {
	pthread_mutex_t lock;
	sigset_t owner_signals; /* signal mask that the owner of the lock had before */
	struct shmcma_object *first, **last;
} lists = { .lock = PTHREAD_MUTEX_INITIALIZER, .last = &lists.first };
static _Atomic pid_t warned;

/* ---- the list -------------------------------------------------------------------------------- */

void shmcma_lists_lock(void)
{
	sigset_t all, signals;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &signals);
	pthread_mutex_lock(&lists.lock);
	lists.owner_signals = signals;
}

void shmcma_lists_unlock(void)
{
	sigset_t signals = lists.owner_signals;

	pthread_mutex_unlock(&lists.lock);
	pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

void shmcma_object_add(struct shmcma_object *object, struct fid *fid, pthread_mutex_t *lock,
		       void (*forked)(struct fid *fid))
{
	*object = (struct shmcma_object){ .fid = fid, .lock = lock, .forked = forked };
	shmcma_lists_lock();
	object->link = lists.last;
	*lists.last = object;
	lists.last = &object->next;
	shmcma_lists_unlock();
}

void shmcma_object_del(struct shmcma_object *object)
{
	shmcma_lists_lock();
	if (object->next)
		object->next->link = object->link;
	else
		lists.last = object->link;
	*object->link = object->next;
	shmcma_lists_unlock();
}

struct shmcma_object *shmcma_objects_locked(void)
{
	return lists.first;
}

/* ---- inherited objects ----------------------------------------------------------------------- */

int shmcma_forked(void)
{
	pid_t self = getpid();

	if (atomic_exchange(&warned, self) != self)
		shmcma_warn(FI_LOG_CORE,
			    "process %d was forked while libfabric objects were open: it may close those, "
			    "and nothing else; open new ones after fork(2), from fi_getinfo() on\n",
			    (int)self);
	return SHMCMA_FORKED;
}

bool shmcma_is_forked(const struct fid *fid)
{
	return fid->ops == &shmcma_forked_ops[fid->fclass];
}

bool shmcma_is_torn(const struct fid *fid)
{
	return shmcma_torn && shmcma_is_forked(fid);
}

/* Polls the lock, because the thread sanitizer does not know locks with a time limit. */
bool shmcma_fork_hold(pthread_mutex_t *lock, unsigned int *tries)
{
	while (pthread_mutex_trylock(lock)) {
		if (!*tries)
			return false;
		--*tries;
		nanosleep(&(struct timespec){ .tv_nsec = NAP }, NULL);
	}
	return true;
}

void shmcma_fork_renew(pthread_mutex_t *lock, bool held)
{
	if (held)
		pthread_mutex_unlock(lock);
	else
		pthread_mutex_init(lock, NULL);
}

void *shmcma_grow(void *array, size_t count, size_t *capacity, size_t size)
{
	size_t larger = *capacity ? *capacity * 2 : 8;

	if (count < *capacity)
		return array;
	array = realloc(array, larger * size);
	if (array)
		*capacity = larger;
	return array;
}

/* ---- operations that an object does not have ------------------------------------------------- */

int shmcma_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	return -FI_ENOSYS;
}

ssize_t shmcma_no_cancel(fid_t fid, void *context)
{
	return -FI_EOPNOTSUPP;
}

int shmcma_no_control(struct fid *fid, int command, void *arg)
{
	return -FI_ENOSYS;
}

int shmcma_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	return -FI_ENOSYS;
}

int shmcma_no_ops_set(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context)
{
	return -FI_ENOSYS;
}

int shmcma_no_export(struct fid *fid, uint64_t flags, void *xpu)
{
	return -FI_ENOSYS;
}

/* Applications see no objects of other classes. */
static const char *const kinds[SHMCMA_CLASSES] = {
	[FI_CLASS_FABRIC] = "fabric",
	[FI_CLASS_DOMAIN] = "domain",
	[FI_CLASS_EP] = "endpoint",
	[FI_CLASS_SEP] = "scalable endpoint",
	[FI_CLASS_TX_CTX] = "transmit context",
	[FI_CLASS_RX_CTX] = "receive context",
	[FI_CLASS_STX_CTX] = "shared transmit context",
	[FI_CLASS_SRX_CTX] = "shared receive context",
	[FI_CLASS_AV] = "address vector",
	[FI_CLASS_AV_SET] = "address vector set",
	[FI_CLASS_MC] = "group",
	[FI_CLASS_MR] = "memory region",
	[FI_CLASS_EQ] = "event queue",
	[FI_CLASS_CQ] = "completion queue",
	[FI_CLASS_CNTR] = "counter",
	[FI_CLASS_WAIT] = "wait set",
	[FI_CLASS_POLL] = "poll set",
};

/* Appends to the text in `buf`, as libfabric does for its own objects (fi_tostr(3), FI_TYPE_FID). */
int shmcma_tostr(const struct fid *fid, char *buf, size_t len)
{
	size_t used = strnlen(buf, len);

	if (used < len)
		snprintf(buf + used, len - used, "fid: %p shmcma %s\n", (const void *)fid,
			 kinds[fid->fclass]);
	return 0;
}
