/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.c: automatic progress: a domain that is opened with it has a thread from the first fi_enable() until the
 * domain is closed.
 *
 * The thread polls the enabled endpoints of its domain, one round at a time, under the domain's only lock (lock.h).
 * Completions go to the same queues and counters as without the thread. It only tries the lock: a call of the
 * application that holds it never pays for waking this thread.
 *
 *   round         what it was                           next
 *   DONE          work done                             another round at once
 *   AGAIN         the thread found something to do      another round at once
 *                 on the way to sleep
 *   NOTHING       nothing to do                         IDLE_ROUNDS rounds with pauses, then the way to sleep (REST)
 *   BUSY          another thread holds the lock         the same rounds, then a nap
 *   LEFT          the application has polled since      a nap, then another round
 *                 the last round
 *   REST          nothing for IDLE_ROUNDS rounds, and   sleep until woken, then NOTHING from the start; woken by
 *                 endpoints are armed                   the limit (sleep.c), REST after one round
 *
 * A process that stores something for one of the endpoints wakes the thread from its sleep in the kernel. The thread
 * itself looks only for events that no process wakes for, see sleep.c (a connection that is not answered yet,
 * operations that a peer is working on). Why it misses no such store: src/os/wake.c, models/wait.pml. In this process
 * the thread is a waiter like any other (armed.c). While it is armed, a thread that has enabled an endpoint, or begun
 * an operation that needs polls, signals it when it releases the domain's lock: after the thread has read its futex, or
 * while it sleeps on the futex. While it is not armed it polls soon anyway, and no caller pays more than a load.
 *
 * If the application polls by itself (`polls`), the thread keeps out of its way: it is not armed, so peers need not
 * wake it, and it looks every NAP whether the application still polls. The count costs the application nothing more,
 * but does not tell when the last poll was, so the thread takes over between one and two naps after it. Calls of the
 * application do not end the thread's sleep. When a peer wakes it, it polls once, and learns by the next round whether
 * the application polls.
 *
 * The word of an endpoint is freed with its memory, so a thread that closes one waits until this thread has returned
 * from its sleep (shmcma_progress_leave_locked()); it cannot sleep again without the domain's lock.
 *
 * Death or stop of a peer: sleep.c. If this process dies, only ASLEEP stays, for which peers make a system call in
 * vain.
 *
 * fork(2): in the child the thread does not run, and cannot be joined. fork.c restores the domains' locks and the lock
 * of the list of threads (shmcma_lists_lock()).
 */
#define _GNU_SOURCE 1
#include "wait/progress.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include "wait/polled.h"
#include "wait/wait.h"

/*
 * Rounds before the thread sleeps. It does not call sched_yield(2) in them: on a full machine each call costs a time
 * slice, but a thread that is woken runs at once: docs/MEASUREMENTS.md, "Rounds of the progress thread".
 */
#define IDLE_ROUNDS 200
#define NAP 500000 /* ns */

static struct shmcma_progress *running_first; /* under shmcma_lists_lock() */

/* ---- the thread ------------------------------------------------------------------------------ */

enum round { ROUND_DONE, ROUND_AGAIN, ROUND_NOTHING, ROUND_BUSY, ROUND_LEFT, ROUND_REST };

/* Only the thread uses it. */
struct self {
	struct shmcma_domain *domain;
	unsigned int idle; /* rounds that found nothing */
	uint64_t seen;	   /* polls of the application up to the last round */
	bool woken;	   /* slept since: the thread that polled may have ended */
	struct shmcma_rest rest;
};

static enum round round_locked(struct self *self)
{
	struct shmcma_domain *domain = self->domain;
	struct shmcma_progress *progress = &domain->progress;
	bool left = progress->polls != self->seen && !self->woken;

	self->seen = progress->polls;
	self->woken = false;
	if (left || shmcma_poll_locked(domain, &domain->enabled)) {
		shmcma_wait_rise(&progress->wait);
		return left ? ROUND_LEFT : ROUND_DONE;
	}
	if (self->idle < IDLE_ROUNDS)
		return ROUND_NOTHING;
	if (shmcma_wait_rest_all_locked(domain, &self->rest))
		return ROUND_AGAIN;
	atomic_store_explicit(&progress->asleep, true, memory_order_relaxed); /* read under the lock */
	return ROUND_REST;
}

static enum round poll_round(struct self *self)
{
	enum round round;

	if (pthread_mutex_trylock(&self->domain->locks.common.mutex)) /* the only lock */
		return ROUND_BUSY; /* the call may poll or not: look again */
	round = round_locked(self);
	shmcma_unlock(self->domain); /* also tells sleepers of new completions */
	return round;
}

static void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = NAP }, NULL);
}

static void pause_briefly(struct self *self)
{
	if (self->idle >= IDLE_ROUNDS) {
		nap();
		return;
	}
	for (int i = 0; i < 20; i++)
		relax();
	self->idle++;
}

/* A stop also changes the futex, which was read before `stop` is read here. */
static void sleep_well(struct self *self)
{
	struct shmcma_progress *progress = &self->domain->progress;
	int ret = 0;

	if (!atomic_load(&progress->stop))
		ret = sc_sleep(self->rest.sleeps, self->rest.count, self->rest.limit);
	/*
	 * release: pairs with the load in shmcma_progress_leave_locked(): the thread does not use the words after this
	 */
	atomic_store_explicit(&progress->asleep, false, memory_order_release);
	self->woken = true;
	if (!ret)
		self->idle = 0;
	else if (ret == -ENOSYS)
		self->rest.watched = true;
	else if (ret != -ETIMEDOUT)
		nap(); /* sc_sleep() has no other errors that are known */
}

static void *run(void *arg)
{
	struct self self = { .domain = arg };

	while (!atomic_load_explicit(&self.domain->progress.stop, memory_order_relaxed)) {
		switch (poll_round(&self)) {
		case ROUND_DONE:
			self.idle = 0;
			break;
		case ROUND_AGAIN:
			break;
		case ROUND_NOTHING:
		case ROUND_BUSY:
			pause_briefly(&self);
			break;
		case ROUND_LEFT:
			self.idle = IDLE_ROUNDS;
			nap();
			break;
		case ROUND_REST:
			sleep_well(&self);
			break;
		}
	}
	return NULL;
}

void shmcma_progress_leave_locked(struct shmcma_domain *domain)
{
	struct shmcma_progress *progress = &domain->progress;

	if (!atomic_load_explicit(&progress->asleep, memory_order_acquire))
		return;
	shmcma_wait_signal(&progress->wait);
	while (atomic_load_explicit(&progress->asleep, memory_order_acquire))
		sched_yield();
}

/* ---- fork ------------------------------------------------------------------------------------ */

void shmcma_progress_forked_locked(void)
{
	struct shmcma_progress *all = running_first;

	running_first = NULL;
	for (; all; all = all->next) {
		all->running = false;
		atomic_store_explicit(&all->asleep, false, memory_order_relaxed);
		shmcma_wait_forked(&all->wait);
	}
}

/* ---- start, stop ----------------------------------------------------------------------------- */

static int create(struct shmcma_domain *domain)
{
	int ret = sc_thread_start(&domain->progress.thread, 0, run, domain);

	if (ret) {
		shmcma_warn(FI_LOG_DOMAIN, "no thread for automatic progress: %s; see ulimit -u\n",
			    strerror(-ret));
		return ret;
	}
	(void)pthread_setname_np(domain->progress.thread, shmcma_provider.name);
	return 0;
}

/* A thread takes a while to start. fork(2) does not wait for that; the child then knows of no thread. */
static int start_locked(struct shmcma_domain *domain)
{
	struct shmcma_progress *progress = &domain->progress;
	int ret = progress->running ? 0 : create(domain);

	if (ret || progress->running)
		return ret;
	shmcma_lists_lock();
	progress->next = running_first;
	running_first = progress;
	progress->running = true;
	shmcma_lists_unlock();
	return 0;
}

int shmcma_progress_start(struct shmcma_domain *domain)
{
	struct shmcma_progress *progress = &domain->progress;
	int ret;

	if (!progress->wanted)
		return 0;
	pthread_mutex_lock(&progress->starting);
	ret = start_locked(domain);
	pthread_mutex_unlock(&progress->starting);
	return ret;
}

/* Takes the thread out of the list, so that only this caller joins it. */
static bool take(struct shmcma_progress *progress)
{
	bool running;

	shmcma_lists_lock();
	running = progress->running;
	progress->running = false;
	shmcma_list_remove(running_first, progress, next);
	shmcma_lists_unlock();
	return running;
}

static void stop(struct shmcma_progress *progress)
{
	if (!take(progress))
		return;
	atomic_store(&progress->stop, true);
	shmcma_wait_signal(&progress->wait);
	pthread_join(progress->thread, NULL);
}

void shmcma_progress_stop(struct shmcma_domain *domain)
{
	stop(&domain->progress);
}

/* libfabric calls this once, when no thread opens or closes objects any more. */
void shmcma_progress_stop_all(void)
{
	while (running_first)
		stop(running_first);
}
