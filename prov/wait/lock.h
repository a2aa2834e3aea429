/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h: the locks of a domain (lock.c).
 *
 * Endpoints, completion queues, counters and shared contexts share a lock if they are bound together, or to the same
 * object. A data call, and each read of a queue or a counter, holds the lock of its object (shmcma_lock_enter()), so
 * threads that use unrelated objects do not wait for each other. Calls that bind, enable and close endpoints, end a
 * registration or change an address vector hold all locks of the domain (shmcma_lock()): a thread that holds any lock
 * sees none of these changes. fi_mr_reg holds only the common lock (shmcma_lock_common()), because no other thread uses
 * the new region before the call returns (mr.c).
 *
 * The cost: docs/MEASUREMENTS.md, "Locks of a domain".
 *
 * Binding merges two locks for good. All locks of a domain become one ("common") when an operation concerns more than
 * the objects that are bound together:
 *
 *   when the domain is opened       FI_THREAD_DOMAIN; automatic progress, asked for or needed for a strict target;
 *                                   FI_COLLECTIVE; FI_PEER: functions of the other provider are called under the lock,
 *                                   and may register memory here, so its holder can take it again
 *   endpoint with FI_COLLECTIVE     is enabled: every poll of any object makes progress for its groups
 *   endpoint without queue and      is enabled: every poll of any object polls it, too (shmcma_domain.silent)
 *   counter
 *   counter bound to memory, or of  any endpoint of the domain may count there, and a read of the counter polls all
 *   deferred work                   endpoints (shmcma_cntr.elsewhere)
 *   triggered operation             is submitted: every poll of any object looks whether it is due
 *   counter without endpoint        a thread sleeps on it, and so on all endpoints. A read of it holds all locks.
 *
 * Wait sets and poll sets do not merge locks: they look at one member after the other.
 *
 * With FI_THREAD_DOMAIN, and neither automatic progress nor FI_COLLECTIVE, no data call takes a lock. Control calls
 * still take the common one: fi_domain(3) has them "always considered thread safe", which holds among them.
 * So do calls that wait, and a data call if a thread waits, or may, for an object of the domain: they change a list that
 * a thread which closes another object changes, too (armed.c).
 */
#ifndef SHMCMA_LOCK_H
#define SHMCMA_LOCK_H

#include "wait/objects.h"

/* `taken`: data calls take locks, too; `coarse`: the domain has only the common lock. */
void shmcma_locks_init(struct shmcma_domain *domain, bool taken, bool coarse, const struct shmcma_unlock_hook *hook);
void shmcma_locks_fini(struct shmcma_domain *domain);

/* Give a new object a lock, and take it back at its end. Only one thread knows the object, and holds no lock. */
void shmcma_lock_join(struct shmcma_domain *domain, struct shmcma_locked *object, bool may_be_common);
void shmcma_lock_quit(struct shmcma_domain *domain, struct shmcma_locked *object);

/* Merge the locks of two objects, or of all. The caller holds all locks of the domain. */
void shmcma_lock_merge_locked(struct shmcma_locked *one, struct shmcma_locked *other);
void shmcma_lock_merge_all_locked(struct shmcma_domain *domain);

/*
 * Take and release the other locks around fork(2) while the common lock is held. False: a call holds one, see
 * shmcma_fork_hold().
 */
bool shmcma_lock_hold_others(struct shmcma_domain *domain, unsigned int *tries);
void shmcma_lock_drop_others(struct shmcma_domain *domain);
/* In the child: frees all locks; no other thread exists there. */
void shmcma_lock_forked(struct shmcma_domain *domain);

/*
 * Called if the lock is not the object's any more: it was merged into another, or now belongs to other objects or to
 * none.
 */
void shmcma_lock_enter_slow(struct shmcma_locked *object, struct shmcma_lock *lock);

/* Takes the lock of the object. A thread that holds it must not take all locks. */
static inline void shmcma_lock_enter(struct shmcma_locked *object)
{
	/* acquire: pairs with the release in move(), where the lock may be new */
	struct shmcma_lock *lock = atomic_load_explicit(&object->lock, memory_order_acquire);

	if (!lock->taken)
		return;
	pthread_mutex_lock(&lock->mutex);
	/* relaxed: a thread that changes it holds this lock */
	if (__builtin_expect(atomic_load_explicit(&object->lock, memory_order_relaxed) != lock, 0))
		shmcma_lock_enter_slow(object, lock);
}

/*
 * Tells whether the caller need not enter the lock: it is not taken, and no thread waits under it. Holds until the call
 * ends.
 */
static inline bool shmcma_lock_is_idle(const struct shmcma_locked *object)
{
	/* acquire: as in shmcma_lock_enter(). A lock that is not taken is never replaced */
	const struct shmcma_lock *lock = atomic_load_explicit(&object->lock, memory_order_acquire);

	return __builtin_expect(!lock->taken && !lock->armed, 1);
}

/* Looks at the objects that threads wait for under the lock, then releases it. A lock that was not taken is, for the look. */
void shmcma_lock_leave_slow(struct shmcma_lock *lock);

static inline void shmcma_lock_leave(struct shmcma_locked *object)
{
	/* relaxed: no thread changes it while the lock is held */
	struct shmcma_lock *lock = atomic_load_explicit(&object->lock, memory_order_relaxed);

	if (__builtin_expect(lock->armed != NULL, 0))
		shmcma_lock_leave_slow(lock);
	else if (lock->taken)
		pthread_mutex_unlock(&lock->mutex);
}

/* Take and release the object's lock even if data calls take none, for calls that wait, or close what is waited for. */
void shmcma_lock_hold(struct shmcma_locked *object);
void shmcma_lock_release(struct shmcma_locked *object);

/* The common lock alone, for a control call. */
void shmcma_lock_common(struct shmcma_domain *domain);
void shmcma_unlock_common(struct shmcma_domain *domain);

/* All locks of the domain. */
void shmcma_lock(struct shmcma_domain *domain);
void shmcma_unlock(struct shmcma_domain *domain);

#endif
