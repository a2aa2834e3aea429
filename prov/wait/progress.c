/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.c: automatic progress: a thread for each domain that was opened with it, from the first fi_enable() until
 * the domain is closed.
 *
 * The thread polls the enabled endpoints of its domain, one round at a time under the domain's lock, of which
 * there is one then (lock.h), and completions go to the same queues and counters as ever. It only tries the lock: the
 * application holds it, and never pays for waking this thread.
 *
 *   round         what it was                           next
 *   DONE          work done                             another round at once
 *   AGAIN         something to do was found on the      another round at once
 *                 way to sleep
 *   NOTHING       nothing to do                         LOOKS rounds with pauses, then the way to sleep (REST)
 *   BUSY          the lock is held                      likewise, then a nap
 *   LEFT          the application has polled since      a nap, then another round
 *                 the last round
 *   REST          nothing for so long, and slept on     sleep until woken, then NOTHING from the start; woken by
 *                 what others store in                  the limit (sleep.c), REST after one round
 *
 * Each process that stores something for one of the endpoints wakes it from its sleep in the kernel; in between it
 * looks by itself only for events that no process wakes for, see sleep.c (a connection that has not been answered,
 * operations that a peer has in hand). How no such store is missed: src/os/wake.c, models/wait.pml. In this process the
 * thread is a waiter like any other (armed.c): a thread that leaves the domain's lock while it is armed, and has begun
 * an operation that goes on with polls, or enabled an endpoint, signals it, after the futex was read and before it is
 * slept on, or while it is. While it is not armed it polls sooner or later anyhow, and nobody pays more than a load.
 *
 * The application polls by itself (`polls`): then the thread keeps out of its way, is not armed, so that peers
 * need not wake it for what the application will find, and looks every NAP whether it still does so: polls that
 * cost the application nothing more cannot tell when the last of them was. Between one and two naps after that it
 * takes over. Calls of the application while the thread sleeps do not wake it: woken by a peer, it polls once, and
 * learns by the next round whether it is alone.
 *
 * An endpoint's word goes with its memory, so the thread that closes one waits until this thread has returned from its
 * sleep (shmcma_progress_leave_locked()); it cannot sleep again without the domain's lock.
 *
 * Death or stop of a peer: sleep.c. Of this process: only ASLEEP stays, for which others make a system call in vain.
 *
 * fork(2): in the child no thread runs and there is none to join. fork.c sees to the domains' locks and to that of the
 * list of threads (shmcma_lists_lock()).
 */
#define _GNU_SOURCE 1
#include "wait/progress.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include "wait/polled.h"
#include "wait/wait.h"

/*
 * Rounds before it sleeps. None of them gives way by sched_yield(2): on a full machine that costs a time slice
 * each, while one that is woken runs at once: docs/MEASUREMENTS.md, "Rounds of the progress thread".
 */
#define LOOKS 200
#define NAP 500000 /* ns */

static struct shmcma_progress *running_first; /* under shmcma_lists_lock() */

/* ---- the thread ------------------------------------------------------------------------------ */

enum round { ROUND_DONE, ROUND_AGAIN, ROUND_NOTHING, ROUND_BUSY, ROUND_LEFT, ROUND_REST };

/* The thread's own. */
struct self {
	struct shmcma_domain *domain;
	unsigned int idle; /* rounds that came to nothing */
	uint64_t seen;	   /* polls of the application up to the last round */
	bool woken;	   /* has slept since: the thread that polled meanwhile may be long gone */
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
		shmcma_wait_rise_locked(&progress->wait);
		return left ? ROUND_LEFT : ROUND_DONE;
	}
	if (self->idle < LOOKS)
		return ROUND_NOTHING;
	if (shmcma_wait_rest_all_locked(domain, &self->rest))
		return ROUND_AGAIN;
	atomic_store_explicit(&progress->asleep, true, memory_order_relaxed); /* read under the lock */
	return ROUND_REST;
}

static enum round poll_round(struct self *self)
{
	enum round round;

	if (pthread_mutex_trylock(&self->domain->locks.common.mutex)) /* there are no others */
		return ROUND_BUSY; /* for a call that may or may not poll: look again */
	round = round_locked(self);
	shmcma_unlock(self->domain); /* this tells sleepers of completions that have been found */
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
	if (self->idle >= LOOKS) {
		nap();
		return;
	}
	for (int i = 0; i < 20; i++)
		relax();
	self->idle++;
}

/* To be stopped is told by its futex, too, which was read before this is. */
static void sleep_well(struct self *self)
{
	struct shmcma_progress *progress = &self->domain->progress;
	int ret = 0;

	if (!atomic_load(&progress->stop))
		ret = sc_sleep(self->rest.sleeps, self->rest.count, self->rest.limit);
	/* release: pairs with the load in shmcma_progress_leave_locked(): the words are not used after this */
	atomic_store_explicit(&progress->asleep, false, memory_order_release);
	self->woken = true;
	if (!ret)
		self->idle = 0;
	else if (ret == -ENOSYS)
		self->rest.watched = true;
	else if (ret != -ETIMEDOUT)
		nap(); /* no reason to do so is known */
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
			self.idle = LOOKS;
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
		shmcma_warn(FI_LOG_DOMAIN, "no thread for automatic progress: %s\n", strerror(-ret));
		return ret;
	}
	(void)pthread_setname_np(domain->progress.thread, SHMCMA_NAME);
	return 0;
}

/* A thread takes a while to start: fork(2) does not wait for that, and the child knows of no thread then. */
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

/* Out of the list, so that it is this caller's to join. */
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

/* libfabric calls this once, when nobody opens or closes any more. */
void shmcma_progress_stop_all(void)
{
	while (running_first)
		stop(running_first);
}
