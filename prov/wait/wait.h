/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wait.h: waiting for completion queues, counters, event queues and wait sets (wait.c, armed.c, waitset.c).
 */
#ifndef SHMCMA_WAIT_H
#define SHMCMA_WAIT_H

#include "wait/lock.h"

/* Tells whether threads wait for it with a descriptor. */
static inline bool shmcma_wait_has_pipe(const struct shmcma_wait *wait)
{
	return wait->obj == FI_WAIT_FD || wait->obj == FI_WAIT_POLLFD;
}

/*
 * Errors: -FI_EMFILE... `set`: with FI_WAIT_SET, see shmcma_wait_check(). `ops`: of a member of a set, or of a domain.
 */
int shmcma_wait_init(struct shmcma_wait *wait, enum fi_wait_obj obj, struct fid_wait *set,
		     const struct shmcma_wait_ops *ops);
/*
 * Called when the object is complete. With FI_WAIT_SET, threads that wait for the set look at the object from now on,
 * until shmcma_wait_fini(); this wakes threads that sleep already.
 */
void shmcma_wait_join(struct shmcma_wait *wait);
/*
 * Called first when the object closes, while a look at the object still works. No thread waits for the object, but
 * threads may wait for its set.
 */
void shmcma_wait_fini(struct shmcma_wait *wait);
/* In a child of fork(2) that has inherited it. */
void shmcma_wait_forked(struct shmcma_wait *wait);

/*
 * fi_control(): FI_GETWAIT, FI_GETWAITOBJ. -FI_ENODATA: it has none to show; -FI_ETOOSMALL: FI_WAIT_POLLFD, and the
 * array has no space for the descriptor; -FI_ENOSYS: another command.
 */
int shmcma_wait_control(struct shmcma_wait *wait, int command, void *arg);

/* Tells whether a signal of the object takes the application's mutex. */
bool shmcma_wait_has_condition(const struct shmcma_wait *wait);

/*
 * Makes waiters look. Any thread, with any lock held. For an object with a condition: without any lock of the provider; the
 * caller may hold the condition's mutex.
 */
void shmcma_wait_signal(struct shmcma_wait *wait);

/* The same, but it waits for no mutex. False: another thread holds one, so the caller calls this again later. */
bool shmcma_wait_try_signal(struct shmcma_wait *wait);

/* Time between two tries to take the mutex of an application, nanoseconds. */
#define SHMCMA_MUTEX_NAP 20000

/* The same, and each call that waits for the object or its set returns. */
void shmcma_wait_signal_all(struct shmcma_wait *wait);

/* A call that waits keeps here how often it has polled in vain since it began or last slept. All zero: not yet. */
struct shmcma_patience {
	unsigned int polls;
	int64_t end; /* of its patience, ns of CLOCK_MONOTONIC; 0: not known yet */
};

/*
 * Called after a poll in vain of a queue or a counter. Returns at once while the caller's patience lasts. Then sleeps
 * until the object may have something, or until `end` (ns of CLOCK_MONOTONIC, INT64_MAX: none); without an object to
 * sleep on, yields the processor. `found`: the value of the counter (struct sc_cntr), or the signal of the queue
 * (unsigned int), that the caller knows. 0: poll again; -FI_EINTR: a signal; -FI_EAGAIN: poll, then return to the
 * application, which may be able to post now what was refused.
 */
int shmcma_wait_rest(struct shmcma_wait *wait, const void *found, struct shmcma_patience *patience,
		     int64_t end);

/* Wakes all threads that sleep on a counter that has changed, before the report to one thread clears the change. */
void shmcma_wait_wake_locked(struct shmcma_wait *wait);

/* fi_trywait() of a queue or counter: 0, -FI_EAGAIN; -FI_EINVAL: it has no wait object. */
int shmcma_wait_try(struct shmcma_wait *wait, bool alone);

/*
 * A thread has looked at it again: disarms it, unless other threads sleep on it, or may. With its lock, if data calls take
 * locks.
 */
void shmcma_wait_rise_slow(struct shmcma_wait *wait);
static inline void shmcma_wait_rise(struct shmcma_wait *wait)
{
	if (__builtin_expect(wait->armed, 0))
		shmcma_wait_rise_slow(wait);
}

extern const struct shmcma_unlock_hook shmcma_wait_unlock_hook;

/* Adds a signal that may wait for the application to the list `owed`. With any lock held. */
void shmcma_wait_owe_locked(struct shmcma_wait *wait, struct shmcma_wait **owed);
/* Gives the signals of the list. Without any lock. */
void shmcma_wait_give(struct shmcma_wait *owed);

/*
 * An endpoint has been enabled, or closes, a counter counts for more endpoints, or the first triggered operation has been
 * submitted: when the lock is released, threads that wait under it look again, then wait for what there is now.
 */
void shmcma_wait_again_locked(const struct shmcma_locked *ep);
/*
 * The watcher that was to signal the object has ended, or the object has lost its last endpoint: when the lock is released,
 * another watcher gets the signal, or the thread gives it. With the domain's locks. `wait`: of an object of the domain, or
 * of an event queue.
 */
void shmcma_wait_resume_locked(struct shmcma_domain *domain, struct shmcma_wait *wait);
/* Before the memory of that endpoint goes: threads that sleep in calls look again, and so does one that is about to. */
void shmcma_wait_stir_locked(const struct shmcma_locked *ep);

/*
 * fi_join, which reports to an event queue, makes progress by messages to an endpoint of the core. All with the
 * domain's lock.
 */
/* Called when it begins, so that its end is signalled without the application's mutex. -FI_EAGAIN: no watcher. */
int shmcma_wait_join_locked(struct shmcma_wait *wait, struct shmcma_coll *coll);
/* Called when it has ended and the queue has the event. */
void shmcma_wait_joined_locked(struct shmcma_wait *wait, struct shmcma_coll *coll);
/*
 * Called when the queue was found empty; returns as sc_ep_rest(), and -FI_ENOMEM if a watcher is missing: a call may sleep
 * for the millisecond that is left of *limit.
 */
int shmcma_wait_rest_joins_locked(struct shmcma_wait *wait, const struct shmcma_eq *eq,
				  struct shmcma_domain *domain, int64_t *limit);

/*
 * A thread sleeps on these words until `limit`: on the object's own futex, which signals change, and on those of the
 * endpoints that the object depends on.
 */
struct shmcma_rest {
	struct sc_sleep sleeps[SC_SLEEPS_MAX];
	int count;
	int64_t limit;
	bool watched; /* set by the caller: only its own, which watchers change */
};

/*
 * Called by the thread of a domain, which has polled all of it and found nothing. 0: it may sleep, and operations that
 * need polls signal it (shmcma_progress.wait); -FI_EAGAIN: there is something to do. With the domain's lock.
 */
int shmcma_wait_rest_all_locked(struct shmcma_domain *domain, struct shmcma_rest *rest);

/* Returns the end of a wait of `timeout` ms; negative: no end. */
int64_t shmcma_wait_end(int timeout);

/* ---- waitset.c ------------------------------------------------------------------------------- */

/*
 * Tells whether an object may have this wait object. -FI_EINVAL: it does not exist, or `set` is no wait set of the
 * fabric.
 */
int shmcma_wait_check(const struct shmcma_fabric *fabric, enum fi_wait_obj obj, const struct fid_wait *set);

int shmcma_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **set);

#endif
