/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watcher.c: the thread that sleeps on an endpoint for threads that wait with a system wait object; see armed.c.
 *
 * It signals the objects that listen (shmcma_wait_try_signal()), and ends with its endpoint. It does not run in a
 * child of fork(2). If a thread of the application holds the mutex of an object, the watcher signals the others, and
 * tries that one again after each SHMCMA_MUTEX_NAP (shmcma_wait.held).
 *
 * Lock: a watcher's own lock comes after all of the domain; a signal does not hold it. A thread that gives an endpoint
 * a watcher, or ends it, holds the domain's locks.
 */
#define _GNU_SOURCE 1
#include "wait/watcher.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "wait/wait.h"

#define STACK_SIZE (64 << 10)

struct shmcma_watcher {
	struct sc_ep *core;
	pthread_t thread;
	uint32_t heard; /* count of wakes before it began */
	uint64_t round; /* only the thread uses it; from 1 on */
	atomic_bool stop;
	_Atomic int64_t limit; /* ns: it signals then in any case; INT64_MAX: never */
	pid_t made_by;	       /* a child of fork(2) does not run the thread */
	pthread_mutex_t lock;  /* guards the following fields */
	struct watched {
		struct shmcma_wait *wait;
		uint64_t round; /* the round that looked at it last */
	} * waits;
	size_t count, capacity;
	const struct shmcma_wait *signals; /* the object that it signals now, without the lock */
};

static bool is_to_signal(struct shmcma_wait *wait, bool woken)
{
	bool held = atomic_exchange(&wait->held, false);

	return (woken && atomic_exchange(&wait->listens, false)) || held;
}

/*
 * Finds the next object to signal. A round looks at each object once: an object that listens again in the meantime
 * waits for the next wake.
 */
static struct shmcma_wait *next_to_signal(struct shmcma_watcher *watcher, bool woken)
{
	struct shmcma_wait *next = NULL;

	pthread_mutex_lock(&watcher->lock);
	for (size_t i = 0; i < watcher->count && !next; i++) {
		struct watched *each = &watcher->waits[i];

		if (each->round == watcher->round)
			continue;
		each->round = watcher->round;
		if (is_to_signal(each->wait, woken))
			next = each->wait;
	}
	watcher->signals = next;
	pthread_mutex_unlock(&watcher->lock);
	return next;
}

/* Returns whether some are held. If not `woken`, tries only those that were held. */
static bool signal_all(struct shmcma_watcher *watcher, bool woken)
{
	struct shmcma_wait *wait;
	bool held = false;

	watcher->round++;
	while ((wait = next_to_signal(watcher, woken)))
		if (!shmcma_wait_try_signal(wait)) {
			atomic_store(&wait->held, true);
			held = true;
		}
	return held;
}

static void *run(void *arg)
{
	struct shmcma_watcher *watcher = arg;
	uint32_t heard = watcher->heard;
	bool held = false;

	while (!atomic_load(&watcher->stop)) {
		struct sc_sleep sleep = sc_ep_sleep(watcher->core);
		int64_t limit = atomic_load(&watcher->limit);

		if (sleep.seen >> 16 != heard || sc_clock_ns() >= limit) {
			heard = sleep.seen >> 16;
			atomic_compare_exchange_strong(&watcher->limit, &limit, INT64_MAX);
			held = signal_all(watcher, true);
			continue;
		}
		(void)sc_sleep(&sleep, 1, held ? sc_clock_ns() + SHMCMA_MUTEX_NAP : limit);
		if (held)
			held = signal_all(watcher, false);
	}
	return NULL;
}

static int start(struct shmcma_watcher *watcher)
{
	static atomic_bool warned; /* each wait tries again */
	int ret = sc_thread_start(&watcher->thread, STACK_SIZE, run, watcher);

	if (ret) {
		if (!atomic_exchange(&warned, true))
			shmcma_warn(FI_LOG_CORE, "no thread for a wait object: %s; see ulimit -u\n",
				    strerror(-ret));
		return ret;
	}
	(void)pthread_setname_np(watcher->thread, "shmcma-watch");
	return 0;
}

static struct shmcma_watcher *get_locked(struct shmcma_watcher **link, struct sc_ep *core)
{
	struct shmcma_watcher *watcher = *link;

	if (watcher)
		return watcher;
	watcher = calloc(1, sizeof(*watcher));
	if (!watcher)
		return NULL;
	watcher->core = core;
	watcher->heard = sc_ep_sleep(core).seen >> 16;
	watcher->made_by = getpid();
	watcher->limit = INT64_MAX;
	watcher->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	if (start(watcher)) {
		free(watcher);
		return NULL;
	}
	*link = watcher;
	return watcher;
}

static bool knows(const struct shmcma_watcher *watcher, const struct shmcma_wait *wait)
{
	for (size_t i = 0; i < watcher->count; i++)
		if (watcher->waits[i].wait == wait)
			return true;
	return false;
}

static bool add(struct shmcma_watcher *watcher, struct shmcma_wait *wait)
{
	struct watched *waits;
	bool known;

	pthread_mutex_lock(&watcher->lock);
	known = knows(watcher, wait);
	waits = shmcma_grow(watcher->waits, watcher->count, &watcher->capacity, sizeof(*waits));
	if (waits)
		watcher->waits = waits;
	if (!known && waits) {
		waits[watcher->count++] = (struct watched){ wait, 0 };
		known = true;
	}
	pthread_mutex_unlock(&watcher->lock);
	return known;
}

/*
 * Two tests: a child in its own pid namespace may have its parent's pid, and a child of clone(2) is not marked as
 * forked.
 */
static bool runs_here(const struct shmcma_watcher *watcher, const struct shmcma_domain *domain)
{
	return watcher->made_by == getpid() && !shmcma_is_forked(&domain->fid.fid);
}

void shmcma_watcher_del(struct shmcma_watcher *watcher, const struct shmcma_wait *wait)
{
	if (!watcher || !runs_here(watcher, wait->domain))
		return; /* a thread that is not in this child may have held its lock */
	pthread_mutex_lock(&watcher->lock);
	for (size_t i = 0; i < watcher->count; i++)
		if (watcher->waits[i].wait == wait)
			watcher->waits[i--] = watcher->waits[--watcher->count];
	while (watcher->signals == wait) { /* it waits for no mutex meanwhile */
		pthread_mutex_unlock(&watcher->lock);
		sched_yield();
		pthread_mutex_lock(&watcher->lock);
	}
	pthread_mutex_unlock(&watcher->lock);
}

int shmcma_watcher_add_locked(struct shmcma_watcher **link, struct sc_ep *core, struct shmcma_wait *wait)
{
	struct shmcma_watcher *watcher = get_locked(link, core);

	wait->watched = true;
	return watcher && add(watcher, wait) ? 0 : -FI_EAGAIN;
}

/* Other watchers, or this thread, give the signals that the watcher has not given. */
static void resume_locked(const struct shmcma_watcher *watcher, struct shmcma_domain *domain,
			  void (*resume)(struct shmcma_domain *, struct shmcma_wait *))
{
	for (size_t i = 0; i < watcher->count; i++) {
		struct shmcma_wait *wait = watcher->waits[i].wait;

		if ((atomic_load(&wait->listens) || atomic_load(&wait->held)) &&
		    !atomic_load(&wait->closes))
			resume(domain, wait);
	}
}

void shmcma_watcher_end_locked(struct shmcma_domain *domain, struct shmcma_watcher **ended,
			       void (*resume)(struct shmcma_domain *, struct shmcma_wait *))
{
	struct shmcma_watcher *watcher = *ended;

	if (!watcher)
		return;
	*ended = NULL;
	if (runs_here(watcher, domain)) {
		atomic_store(&watcher->stop, true);
		sc_ep_wake(watcher->core);
		pthread_join(watcher->thread, NULL);
		resume_locked(watcher, domain, resume);
	}
	free(watcher->waits);
	free(watcher);
}

void shmcma_watcher_limit(struct shmcma_watcher *watcher, int64_t limit)
{
	int64_t old = atomic_load(&watcher->limit);

	while (old > limit)
		if (atomic_compare_exchange_weak(&watcher->limit, &old, limit)) {
			sc_ep_stir(watcher->core);
			return;
		}
}
