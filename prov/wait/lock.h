/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h: the locks of a domain (lock.c).
 *
 * Endpoints, completion queues, counters and shared contexts that have to do with each other have one lock in common:
 * objects that are bound together, or to the same object. A data call, and each read of a queue or a counter, holds the
 * lock of its object (shmcma_lock_enter()); so threads that use objects which share nothing do not wait for each other.
 * Calls that bind, enable and close endpoints, end a registration or change an address vector hold all locks of the
 * domain (shmcma_lock()): a thread that holds any lock sees no change of these. fi_mr_reg holds the common one
 * (shmcma_lock_common()), as no other thread uses the region that it adds before it is there (mr.c).
 *
 * The price: docs/MEASUREMENTS.md, "Locks of a domain".
 *
 * Binding makes one lock of two; that is never undone. All locks of a domain become one ("common") when
 * something of it is begun that goes beyond what is bound together:
 *
 *   when the domain is opened       FI_THREAD_DOMAIN, which has no lock at all; automatic progress, asked for or
 *                                   needed to be strict; FI_COLLECTIVE
 *   endpoint with FI_COLLECTIVE     is enabled: every poll of any object goes on with its groups
 *   endpoint without queue and      is enabled: every poll of any object polls it, too (shmcma_domain.silent)
 *   counter
 *   counter bound to memory, or of  any endpoint of the domain may count there, and all are polled when it
 *   deferred work                   is read (shmcma_cntr.elsewhere)
 *   triggered operation             is submitted: every poll of any object looks whether it is due
 *   counter without endpoint        is slept on: all are slept on. Such a counter is read with all locks held.
 *
 * Wait sets and poll sets are no such ties: their members are looked at one by one.
 *
 * With FI_THREAD_DOMAIN no data call takes a lock, and all objects have the common one. Control calls take it all the
 * same: fi_domain(3) has them "always considered thread safe", so they are among themselves.
 */
#ifndef SHMCMA_LOCK_H
#define SHMCMA_LOCK_H

#include "wait/state.h"

/* `taken`: by data calls, too; `coarse`: the domain has one lock. */
void shmcma_locks_init(struct shmcma_domain *domain, bool taken, bool coarse, const struct shmcma_unlock_hook *hook);
void shmcma_locks_fini(struct shmcma_domain *domain);

/* The object is made, and goes: known to one thread, with no lock held. Bound to nothing any more. */
void shmcma_lock_join(struct shmcma_domain *domain, struct shmcma_locked *object, bool may_be_common);
void shmcma_lock_quit(struct shmcma_domain *domain, struct shmcma_locked *object);

/* The two have to do with each other from now on; so has all. With all locks of the domain held. */
void shmcma_lock_merge_locked(struct shmcma_locked *one, struct shmcma_locked *other);
void shmcma_lock_merge_all_locked(struct shmcma_domain *domain);

/* Around fork(2), once the common one is held; false: another call holds one, see shmcma_fork_hold(). */
bool shmcma_lock_hold_others(struct shmcma_domain *domain, unsigned int *tries);
void shmcma_lock_drop_others(struct shmcma_domain *domain);
/* In the child: nobody sleeps there, and nobody holds any but this thread. */
void shmcma_lock_forked(struct shmcma_domain *domain);

/*
 * The rest of taking the lock, if it is not the object's any more: it was merged into another meanwhile, or belongs to
 * no object, or to others, by now.
 */
void shmcma_lock_enter_slow(struct shmcma_locked *object, struct shmcma_lock *lock);

/* Takes the lock of the object; a thread that holds it must not take all. */
static inline void shmcma_lock_enter(struct shmcma_locked *object)
{
	/* acquire: pairs with the release in move(), where the lock may be new */
	struct shmcma_lock *lock = atomic_load_explicit(&object->lock, memory_order_acquire);

	if (!lock->taken)
		return;
	pthread_mutex_lock(&lock->mutex);
	/* relaxed: the thread that has changed it has held this lock */
	if (__builtin_expect(atomic_load_explicit(&object->lock, memory_order_relaxed) != lock, 0))
		shmcma_lock_enter_slow(object, lock);
}

/* Has who uses the object nothing to enter, and nobody to look after when he leaves? So it is till the call ends. */
static inline bool shmcma_lock_is_idle(const struct shmcma_locked *object)
{
	/* relaxed: a lock that is not taken is never changed for another */
	const struct shmcma_lock *lock = atomic_load_explicit(&object->lock, memory_order_relaxed);

	return __builtin_expect(!lock->taken && !lock->armed, 1);
}

/* Somebody waits for something under it. */
void shmcma_lock_leave_slow(struct shmcma_lock *lock);

static inline void shmcma_lock_leave(struct shmcma_locked *object)
{
	/* relaxed: nobody changes it meanwhile */
	struct shmcma_lock *lock = atomic_load_explicit(&object->lock, memory_order_relaxed);

	if (__builtin_expect(lock->armed != NULL, 0))
		shmcma_lock_leave_slow(lock);
	else if (lock->taken)
		pthread_mutex_unlock(&lock->mutex);
}

/* The common lock alone, of a control call. */
void shmcma_lock_common(struct shmcma_domain *domain);
void shmcma_unlock_common(struct shmcma_domain *domain);

/* All locks of the domain. */
void shmcma_lock(struct shmcma_domain *domain);
void shmcma_unlock(struct shmcma_domain *domain);

#endif
