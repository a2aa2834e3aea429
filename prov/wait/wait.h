/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wait.h: waiting for completion queues, counters, event queues and wait sets (wait.c, armed.c, waitset.c).
 */
#ifndef SHMCMA_WAIT_H
#define SHMCMA_WAIT_H

#include "wait/lock.h"

/* Is it waited for by a descriptor? */
static inline bool shmcma_wait_has_pipe(const struct shmcma_wait *wait)
{
	return wait->obj == FI_WAIT_FD || wait->obj == FI_WAIT_POLLFD;
}

/* -FI_EMFILE... `set`: with FI_WAIT_SET, see shmcma_wait_check(). `ops`: of a member of a set, or of a domain. */
int shmcma_wait_init(struct shmcma_wait *wait, enum fi_wait_obj obj, struct fid_wait *set,
		     const struct shmcma_wait_ops *ops);
/*
 * Its object is complete: from now on threads that wait for a set look at it, with FI_WAIT_SET. Those that sleep
 * already are woken for that. Until shmcma_wait_fini().
 */
void shmcma_wait_join(struct shmcma_wait *wait);
/* Nobody waits for it, but maybe for its set. Before anything that a look at its object needs is taken away. */
void shmcma_wait_fini(struct shmcma_wait *wait);
/* In a child that has inherited it. */
void shmcma_wait_forked(struct shmcma_wait *wait);

/*
 * fi_control(): FI_GETWAIT, FI_GETWAITOBJ. -FI_ENODATA: it has none to show; -FI_ETOOSMALL: FI_WAIT_POLLFD, of more
 * descriptors than there is room for; -FI_ENOSYS: another command.
 */
int shmcma_wait_control(struct shmcma_wait *wait, int command, void *arg);

/* There may be something, look. Any thread, any lock; without any, and without its mutex, if it has a condition. */
void shmcma_wait_signal(struct shmcma_wait *wait);

/*
 * The same, for the signals that are given in place of another thread: given up when `stop` is set, as the holder of
 * the application's mutex may wait for that. NULL: never.
 */
void shmcma_wait_signal_until(struct shmcma_wait *wait, const atomic_bool *stop);

/* So for all threads that wait for it, or for its set, in calls: each of these calls returns. */
void shmcma_wait_signal_all(struct shmcma_wait *wait);

/*
 * A queue or a counter that was found to have nothing: sleep until it may have, or until `end` (ns of
 * CLOCK_MONOTONIC, INT64_MAX: none). `found`: what the counter was then (struct sc_cntr), or the signal that the wait
 * for the queue knows of (unsigned int). 0: look, -FI_EINTR: a signal; -FI_EAGAIN: look, and tell the application: it
 * may be able to send now.
 */
int shmcma_wait_sleep(struct shmcma_wait *wait, const void *found, int64_t end);

/*
 * A counter has changed, and one thread is told of it, by which it is told: threads that sleep for it have to look,
 * too.
 */
void shmcma_wait_told_locked(struct shmcma_wait *wait);

/* fi_trywait() of a queue or counter: 0, -FI_EAGAIN; others: it cannot be waited for just now. */
int shmcma_wait_try(struct shmcma_wait *wait);

/* A thread has looked at it again: nobody is signalled any more, unless others sleep, or may. With its lock. */
void shmcma_wait_rise_slow(struct shmcma_wait *wait);
static inline void shmcma_wait_rise_locked(struct shmcma_wait *wait)
{
	if (__builtin_expect(wait->armed, 0))
		shmcma_wait_rise_slow(wait);
}

/* Of each domain: see struct shmcma_unlock_hook. */
extern const struct shmcma_unlock_hook shmcma_wait_unlock_hook;

/*
 * An endpoint has been enabled, or closes: those who wait under its lock are to look, and to wait for others, once
 * the lock is let go.
 */
void shmcma_wait_again_locked(const struct shmcma_locked *ep);

/*
 * fi_join, which is reported to an event queue, goes on with messages to an endpoint of the core. All with the
 * domain's lock.
 */
/* It begins: its end can be told without taking the application's mutex then. -FI_EAGAIN. */
int shmcma_wait_join_locked(struct shmcma_wait *wait, struct shmcma_coll *coll);
/* It has ended, and the queue says so. */
void shmcma_wait_joined_locked(struct shmcma_wait *wait, struct shmcma_coll *coll);
/* That queue was found empty; as sc_ep_rest(). */
int shmcma_wait_rest_joins_locked(struct shmcma_wait *wait, const struct shmcma_eq *eq,
				  struct shmcma_domain *domain, int64_t *limit);

/*
 * The thread of a domain, which has polled all of it and found nothing: 0, it may sleep on these words until then,
 * and is told (shmcma_progress.wait) when something begins that goes on with polls; -FI_EAGAIN: there is something
 * to do. With the domain's lock.
 */
struct shmcma_rest {
	struct sc_sleep sleeps[SC_SLEEPS_MAX];
	int count;
	int64_t limit;
	bool watched; /* by the caller: to have one word only, which watchers change */
};
int shmcma_wait_rest_all_locked(struct shmcma_domain *domain, struct shmcma_rest *rest);

/* Milliseconds of an fi_* call, negative: for ever; as the end of the wait. */
int64_t shmcma_wait_end(int timeout);

/* ---- waitset.c ------------------------------------------------------------------------------- */

/*
 * May such an object be asked for? -FI_EINVAL: there is none such, or a wait set is asked for, and that is none of the
 * fabric.
 */
int shmcma_wait_check(const struct shmcma_fabric *fabric, enum fi_wait_obj obj, const struct fid_wait *set);

int shmcma_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **set);

#endif
