/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.c: decides which objects of a domain share a lock, and takes all locks of a domain. See lock.h.
 *
 * Owns the locks of each domain and the lists of their objects. Any thread; private memory, which no peer sees. At
 * fork(2), fork.c takes all of them.
 *
 * Order: the common lock, then the others by address. Only a thread that holds the common lock takes more than one of
 * the others; a data call takes one lock, and waits for no other lock while it holds one. (By address, because the
 * thread sanitizer does not see that the common lock comes first. It can follow 64 locks that are held at once; with
 * more, it needs detect_deadlocks=0.)
 *
 *   object->lock is    changed with                       read with
 *   its lock           all locks held (merge), or the     nothing (then the reader takes the lock and reads again),
 *                      common lock before another thread  or either of the two
 *                      knows the object (join)
 *
 * A lock may be merged into another after a thread has read it and before it takes it. So the memory of a lock stays a
 * lock until the domain is closed: the thread can take it, see that it is the wrong one and release it. Nothing is read
 * or written under a wrong lock.
 *
 * The first endpoint of a domain, and the objects bound to it, have the common lock, so a domain with one endpoint pays
 * for one lock in all calls. If there is no memory for another lock, the object gets the common lock.
 */
#define _GNU_SOURCE 1
#include "wait/lock.h"

#include <stdlib.h>

/* No two locks share a cache line, because different threads write them. */
#define LINE 64
#define LOCK_SIZE ((sizeof(struct shmcma_lock) + LINE - 1) / LINE * LINE)

static void lock_init(struct shmcma_lock *lock, struct shmcma_domain *domain, bool taken)
{
	*lock = (struct shmcma_lock){ .mutex = PTHREAD_MUTEX_INITIALIZER,
				      .taken = taken,
				      .domain = domain };
}

#ifndef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP /* the C library has no mutex that spins for a while */
#define PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP PTHREAD_MUTEX_INITIALIZER
#endif

/* A thread that holds it can take it again. Errors are of other types of mutexes. */
static void make_recursive(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	(void)pthread_mutex_init(mutex, &attr);
	(void)pthread_mutexattr_destroy(&attr);
}

/* The thread of automatic progress holds the lock for one round of polling at most, so a few spins are worthwhile. */
void shmcma_locks_init(struct shmcma_domain *domain, bool taken, bool coarse,
		       const struct shmcma_unlock_hook *hook)
{
	struct shmcma_locks *locks = &domain->locks;

	lock_init(&locks->common, domain, taken);
	if (domain->progress.wanted)
		locks->common.mutex = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	else if (shmcma_domain_is_peer(domain))
		make_recursive(&locks->common.mutex);
	atomic_init(&locks->itself.lock, &locks->common);
	locks->coarse = coarse || !taken;
	locks->hook = hook;
}

void shmcma_locks_fini(struct shmcma_domain *domain)
{
	struct shmcma_locks *locks = &domain->locks;

	while (locks->spare) {
		struct shmcma_lock *lock = locks->spare;

		locks->spare = lock->next;
		pthread_mutex_destroy(&lock->mutex);
		free(lock);
	}
	pthread_mutex_destroy(&locks->common.mutex);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void look(struct shmcma_lock *lock, struct shmcma_wait **owed)
{
	if (__builtin_expect(lock->armed != NULL, 0))
		lock->domain->locks.hook->look_locked(lock, owed);
}

static void give(struct shmcma_domain *domain, struct shmcma_wait *owed)
{
	if (owed)
		domain->locks.hook->give(owed);
}

static void release(struct shmcma_lock *lock)
{
	struct shmcma_domain *domain = lock->domain;
	struct shmcma_wait *owed = NULL;

	look(lock, &owed);
	pthread_mutex_unlock(&lock->mutex);
	give(domain, owed);
}

void shmcma_lock_leave_slow(struct shmcma_lock *lock)
{
	if (!lock->taken)
		pthread_mutex_lock(&lock->mutex);
	release(lock);
}

/* A lock that data calls do not take is never replaced. */
void shmcma_lock_hold(struct shmcma_locked *object)
{
	struct shmcma_lock *lock = atomic_load_explicit(&object->lock, memory_order_acquire);

	if (lock->taken)
		shmcma_lock_enter(object);
	else
		pthread_mutex_lock(&lock->mutex);
}

void shmcma_lock_release(struct shmcma_locked *object)
{
	release(atomic_load_explicit(&object->lock, memory_order_relaxed)); /* relaxed: it is held */
}

void shmcma_lock_common(struct shmcma_domain *domain)
{
	pthread_mutex_lock(&domain->locks.common.mutex);
}

/* Releases the common lock, the last one held, then gives the owed signals. */
static void drop_common(struct shmcma_domain *domain, struct shmcma_wait *owed)
{
	look(&domain->locks.common, &owed);
	pthread_mutex_unlock(&domain->locks.common.mutex);
	give(domain, owed);
}

void shmcma_unlock_common(struct shmcma_domain *domain)
{
	drop_common(domain, NULL);
}

/* If data calls take no lock, the domain has only the common lock. */
void shmcma_lock(struct shmcma_domain *domain)
{
	shmcma_lock_common(domain);
	for (struct shmcma_lock *lock = domain->locks.others; lock; lock = lock->next)
		pthread_mutex_lock(&lock->mutex);
}

void shmcma_unlock(struct shmcma_domain *domain)
{
	struct shmcma_wait *owed = domain->locks.owed;

	domain->locks.owed = NULL;
	for (struct shmcma_lock *lock = domain->locks.others; lock; lock = lock->next) {
		look(lock, &owed);
		pthread_mutex_unlock(&lock->mutex);
	}
	drop_common(domain, owed);
}

void shmcma_lock_enter_slow(struct shmcma_locked *object, struct shmcma_lock *lock)
{
	do {
		pthread_mutex_unlock(&lock->mutex);
		lock = atomic_load_explicit(&object->lock, memory_order_acquire);
		pthread_mutex_lock(&lock->mutex);
	} while (atomic_load_explicit(&object->lock, memory_order_relaxed) != lock);
}

/* ---- objects come and go --------------------------------------------------------------------- */

/*
 * Searches from the last insertion or removal: objects that are opened or closed one after another have locks side by
 * side, so thousands of them do not walk the list each. (32,768 completion queues, opened and closed, take half a
 * second of processor time; from the head of the list it was two minutes.)
 */
static void insert(struct shmcma_locks *locks, struct shmcma_lock *lock)
{
	struct shmcma_lock *before = locks->near, *after;

	while (before && (uintptr_t)before > (uintptr_t)lock)
		before = before->prev;
	after = before ? before->next : locks->others;
	while (after && (uintptr_t)after < (uintptr_t)lock) {
		before = after;
		after = after->next;
	}
	lock->prev = before;
	lock->next = after;
	if (before)
		before->next = lock;
	else
		locks->others = lock;
	if (after)
		after->prev = lock;
	locks->near = lock;
}

/* Keeps a lock without objects as a spare. */
static void discard(struct shmcma_locks *locks, struct shmcma_lock *lock)
{
	if (lock->prev)
		lock->prev->next = lock->next;
	else
		locks->others = lock->next;
	if (lock->next)
		lock->next->prev = lock->prev;
	locks->near = lock->prev ? lock->prev : lock->next;
	lock->next = locks->spare;
	locks->spare = lock;
}

static struct shmcma_lock *another(struct shmcma_domain *domain)
{
	struct shmcma_locks *locks = &domain->locks;
	struct shmcma_lock *lock = locks->spare;

	if (lock) {
		locks->spare = lock->next;
	} else {
		lock = aligned_alloc(LINE, LOCK_SIZE);
		if (!lock)
			return &locks->common;
		lock_init(lock, domain, true);
	}
	insert(locks, lock);
	return lock;
}

/* Release: a thread that finds the lock, and holds neither lock, finds it initialized. */
static void move(struct shmcma_locked *object, struct shmcma_lock *lock)
{
	atomic_store_explicit(&object->lock, lock, memory_order_release);
	object->next = lock->objects;
	object->link = &lock->objects;
	if (object->next)
		object->next->link = &object->next;
	lock->objects = object;
}

static void leave(struct shmcma_locked *object)
{
	*object->link = object->next;
	if (object->next)
		object->next->link = object->link;
}

void shmcma_lock_join(struct shmcma_domain *domain, struct shmcma_locked *object, bool may_be_common)
{
	struct shmcma_locks *locks = &domain->locks;
	struct shmcma_lock *common = &locks->common;

	pthread_mutex_lock(&common->mutex);
	move(object, locks->coarse || (may_be_common && !common->objects) ? common : another(domain));
	pthread_mutex_unlock(&common->mutex);
}

void shmcma_lock_quit(struct shmcma_domain *domain, struct shmcma_locked *object)
{
	struct shmcma_locks *locks = &domain->locks;
	struct shmcma_lock *common = &locks->common, *lock;

	pthread_mutex_lock(&common->mutex);
	lock = atomic_load_explicit(&object->lock, memory_order_relaxed); /* relaxed: common is held */
	leave(object);
	if (!lock->objects && lock != common)
		discard(locks, lock);
	pthread_mutex_unlock(&common->mutex);
}

/* ---- one of two ------------------------------------------------------------------------------ */

/* The caller holds both and releases `from`: a thread that waits for it finds that its object has another lock. */
static void absorb(struct shmcma_lock *to, struct shmcma_lock *from)
{
	while (from->objects) {
		struct shmcma_locked *object = from->objects;

		leave(object);
		move(object, to);
	}
	shmcma_list_append(to->armed, from->armed, next_armed);
	from->armed = NULL;
	discard(&from->domain->locks, from);
	pthread_mutex_unlock(&from->mutex);
}

void shmcma_lock_merge_locked(struct shmcma_locked *one, struct shmcma_locked *other)
{
	/* relaxed: both are held */
	struct shmcma_lock *a = atomic_load_explicit(&one->lock, memory_order_relaxed);
	struct shmcma_lock *b = atomic_load_explicit(&other->lock, memory_order_relaxed);

	if (a == b)
		return;
	if (b == &b->domain->locks.common)
		absorb(b, a);
	else
		absorb(a, b);
}

void shmcma_lock_merge_all_locked(struct shmcma_domain *domain)
{
	struct shmcma_locks *locks = &domain->locks;

	locks->coarse = true;
	while (locks->others)
		absorb(&locks->common, locks->others);
}

/* ---- fork(2) --------------------------------------------------------------------------------- */

bool shmcma_lock_hold_others(struct shmcma_domain *domain, unsigned int *tries)
{
	bool all = true;

	for (struct shmcma_lock *lock = domain->locks.others; lock; lock = lock->next) {
		lock->held = shmcma_fork_hold(&lock->mutex, tries);
		all = all && lock->held;
	}
	return all;
}

void shmcma_lock_drop_others(struct shmcma_domain *domain)
{
	for (struct shmcma_lock *lock = domain->locks.others; lock; lock = lock->next) {
		if (lock->held)
			pthread_mutex_unlock(&lock->mutex);
		lock->held = false;
	}
}

static void renew(struct shmcma_lock *lock)
{
	shmcma_fork_renew(&lock->mutex, lock->held);
	lock->armed = NULL;
	lock->held = false;
}

/*
 * A thread may have taken a spare lock at that moment. A recursive mutex knows its owner by a number that the thread has
 * in the parent alone, so the child cannot release it and makes it anew.
 */
void shmcma_lock_forked(struct shmcma_domain *domain)
{
	struct shmcma_locks *locks = &domain->locks;

	locks->common.armed = NULL;
	if (shmcma_domain_is_peer(domain))
		make_recursive(&locks->common.mutex);
	for (struct shmcma_lock *lock = locks->others; lock; lock = lock->next)
		renew(lock);
	for (struct shmcma_lock *lock = locks->spare; lock; lock = lock->next)
		renew(lock);
}
