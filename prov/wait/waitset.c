/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * waitset.c: fid_wait: a wait object that completion queues, counters and event queues of one fabric share
 * (FI_WAIT_SET).
 *
 * A set is one more struct shmcma_wait, without a domain. Its members signal it together with themselves
 * (shmcma_wait_signal()), so a thread that sleeps on the set sleeps on one futex, or on one system wait object. Before
 * that it looks at every member and arms it, like fi_trywait().
 *
 * Members that waiters in fi_wait() have armed stay armed while these sleep, even if other threads read the members.
 * Members that fi_trywait() has armed stay armed until a signal is given.
 *
 * Any thread. The list of members has a lock of its own, taken before the locks of the members; a signal takes none.
 */
#include "wait/wait.h"

#include <sched.h>
#include <stdlib.h>

/* A signal that another thread has not seen yet may be of a member that is not tried here, so it is given again. */
static int try_all(struct shmcma_wait *wait, bool alone)
{
	struct shmcma_wait_set *set = container_of(wait, struct shmcma_wait_set, wait);
	bool signalled;
	int ret = 0;

	pthread_mutex_lock(&set->lock);
	signalled = shmcma_pipe_lower(&set->wait.pipe);
	for (struct shmcma_wait *member = set->members; member && !ret; member = member->next)
		ret = member->ops->try(member, false);
	pthread_mutex_unlock(&set->lock);
	if (ret && signalled)
		shmcma_pipe_raise(&set->wait.pipe);
	return ret;
}

static struct shmcma_wait_set *set_of(struct fid *fid)
{
	return container_of(fid, struct shmcma_wait_set, fid.fid);
}

/* With FI_WAIT_YIELD there is nothing to sleep on. */
static int rest(struct shmcma_wait_set *set, uint32_t seen, int64_t end)
{
	struct sc_sleep own = { &set->wait.futex, seen };

	if (set->wait.obj != FI_WAIT_YIELD)
		return sc_sleep(&own, 1, end);
	sched_yield();
	return 0;
}

/* Returns 0 when a member has something, even if another thread takes that away. */
static int wait_counted(struct shmcma_wait_set *set, int64_t end)
{
	unsigned int events = atomic_load(&set->wait.events);

	for (;;) {
		uint32_t seen = __atomic_load_n(&set->wait.futex, __ATOMIC_ACQUIRE);
		int ret = try_all(&set->wait, true);

		if (!ret && atomic_load(&set->wait.events) != events)
			return 0;
		if (ret)
			return ret == -FI_EAGAIN ? 0 : ret;
		if (end != INT64_MAX && sc_clock_ns() >= end)
			return -FI_ETIMEDOUT;
		if (rest(set, seen, end) == -EINTR)
			return -FI_EINTR;
	}
}

SHMCMA_CALL(int, set_wait, struct fid_wait *fid, int timeout)
{
	struct shmcma_wait_set *set = set_of(&fid->fid);
	int ret;

	atomic_fetch_add(&set->wait.sleepers, 1);
	ret = wait_counted(set, shmcma_wait_end(timeout));
	atomic_fetch_sub(&set->wait.sleepers, 1);
	return ret;
}

static int set_control(struct fid *fid, int command, void *arg)
{
	return shmcma_wait_control(&set_of(fid)->wait, command, arg);
}

static int set_close(struct fid *fid)
{
	struct shmcma_wait_set *set = set_of(fid);

	if (atomic_load(&set->refs))
		return -FI_EBUSY;
	shmcma_object_del(&set->object);
	shmcma_wait_fini(&set->wait);
	pthread_mutex_destroy(&set->lock);
	atomic_fetch_sub(&set->fabric->refs, 1);
	free(set);
	return 0;
}

static const struct shmcma_wait_ops wait_ops = { .try = try_all };

static struct fi_ops set_fid_ops = SHMCMA_FID_OPS(set_close, shmcma_no_bind, set_control);

static struct fi_ops_wait set_ops = { .size = sizeof(struct fi_ops_wait), .wait = set_wait };
static struct fi_ops_wait forked_ops = { .size = sizeof(struct fi_ops_wait), .wait = forked_set_wait };

int shmcma_wait_check(const struct shmcma_fabric *fabric, enum fi_wait_obj obj, const struct fid_wait *set)
{
	switch (obj) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
	case FI_WAIT_FD:
	case FI_WAIT_POLLFD:
	case FI_WAIT_MUTEX_COND:
	case FI_WAIT_YIELD:
		return 0;
	case FI_WAIT_SET:
		if (set && set->fid.ops == &set_fid_ops &&
		    container_of(set, struct shmcma_wait_set, fid)->fabric == fabric)
			return 0;
		shmcma_warn(FI_LOG_CORE, "FI_WAIT_SET: wait_set is none of this fabric's\n");
		return -FI_EINVAL;
	default:
		shmcma_warn(FI_LOG_CORE, "wait object %d is unknown\n", (int)obj);
		return -FI_EINVAL;
	}
}

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_wait, fid)->ops = &forked_ops;
	shmcma_wait_forked(&set_of(fid)->wait);
}

static int check_attr(const struct fi_wait_attr *attr)
{
	if (attr->flags) {
		shmcma_warn(FI_LOG_FABRIC, "wait set flags %#llx: there are none\n",
			    (unsigned long long)attr->flags);
		return -FI_EBADFLAGS;
	}
	if (attr->wait_obj == FI_WAIT_NONE || attr->wait_obj == FI_WAIT_SET) {
		shmcma_warn(FI_LOG_FABRIC, "a wait set with %s\n",
			    attr->wait_obj == FI_WAIT_NONE ? "FI_WAIT_NONE waits for nothing"
							   : "FI_WAIT_SET: sets have no sets");
		return -FI_EINVAL;
	}
	return shmcma_wait_check(NULL, attr->wait_obj, NULL);
}

int shmcma_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **out)
{
	static const struct fi_wait_attr defaults = { .wait_obj = FI_WAIT_UNSPEC };
	const struct fi_wait_attr *wanted = attr ? attr : &defaults;
	struct shmcma_wait_set *set;
	int ret = check_attr(wanted);

	if (ret)
		return ret;
	set = calloc(1, sizeof(*set));
	if (!set)
		return -FI_ENOMEM;
	ret = shmcma_wait_init(&set->wait, wanted->wait_obj, NULL, &wait_ops);
	if (ret) {
		free(set);
		return ret;
	}
	set->fid.fid = (struct fid){ .fclass = FI_CLASS_WAIT, .ops = &set_fid_ops };
	set->fid.ops = &set_ops;
	set->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	set->fabric = container_of(fabric, struct shmcma_fabric, fid);
	atomic_fetch_add(&set->fabric->refs, 1);
	shmcma_object_add(&set->object, &set->fid.fid, &set->lock, forked);
	*out = &set->fid;
	return 0;
}
