/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.c: sets of endpoints that are polled together, and automatic progress: a thread for each domain
 * that was opened with it, from the first fi_enable() until the domain is closed.
 *
 * The thread polls the enabled endpoints of its domain, one round at a time under the domain's lock, and
 * what completes goes to the same queues and counters as ever. It only tries the lock: who holds it is the
 * application, and never pays for waking this thread. While the application polls by itself the thread
 * sleeps, for on a full machine it could only take the processor from those who wait for messages.
 *
 *   round         next
 *   work done     another round at once
 *   nothing       SPINS rounds with pauses, YIELDS with sched_yield(2), then sleeps, twice as long each time
 *   app polls     sleep, likewise
 *
 * So an idle thread finds what comes after SLEEP_MAX at the latest; nothing wakes it yet.
 *
 * fork(2): in the child no thread runs and there is none to join. The domains' locks are fork.c's to see to.
 */
#define _GNU_SOURCE 1
#include "shmcma.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPINS 200
#define YIELDS 100
#define SLEEP_MIN 20000	  /* ns */
#define SLEEP_MAX 1000000 /* ns */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shmcma_progress *running_first;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

/* ---- sets of endpoints ----------------------------------------------------------------------- */

int shmcma_polled_add(struct shmcma_polled *polled, struct shmcma_ep *ep)
{
	for (size_t i = 0; i < polled->count; i++)
		if (polled->eps[i] == ep)
			return 0;
	if (polled->count == polled->capacity) {
		size_t capacity = polled->capacity ? polled->capacity * 2 : 4;
		struct shmcma_ep **eps = realloc(polled->eps, capacity * sizeof(struct shmcma_ep *));

		if (!eps)
			return -FI_ENOMEM;
		polled->eps = eps;
		polled->capacity = capacity;
	}
	polled->eps[polled->count++] = ep;
	return 0;
}

void shmcma_polled_del(struct shmcma_polled *polled, const struct shmcma_ep *ep)
{
	for (size_t i = 0; i < polled->count; i++) {
		if (polled->eps[i] != ep)
			continue;
		polled->eps[i] = polled->eps[--polled->count];
		return;
	}
}

void shmcma_polled_fini(struct shmcma_polled *polled)
{
	free(polled->eps);
}

int64_t shmcma_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the thread ------------------------------------------------------------------------------ */

enum round { ROUND_DONE, ROUND_NOTHING, ROUND_LEFT };

/* `seen`: polls of the application up to the last round. LEFT: it makes progress by itself. */
static enum round poll_round(struct shmcma_domain *domain, uint64_t *seen)
{
	uint64_t polls;
	int done = 0;

	if (pthread_mutex_trylock(&domain->lock))
		return ROUND_NOTHING; /* held for a call that may or may not poll: look again */
	polls = domain->progress.polls;
	if (polls == *seen)
		done = shmcma_poll_locked(domain, &domain->enabled);
	shmcma_unlock(domain); /* who sleeps is told of what has been found */
	if (polls != *seen) {
		*seen = polls;
		return ROUND_LEFT;
	}
	return done ? ROUND_DONE : ROUND_NOTHING;
}

static void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static void rest(unsigned int idle)
{
	struct timespec time = { .tv_nsec = SLEEP_MAX };

	if (idle < SPINS) {
		for (int i = 0; i < 20; i++)
			relax();
		return;
	}
	if (idle < SPINS + YIELDS) {
		sched_yield();
		return;
	}
	idle -= SPINS + YIELDS;
	if (idle < 8 && SLEEP_MIN << idle < SLEEP_MAX)
		time.tv_nsec = SLEEP_MIN << idle;
	nanosleep(&time, NULL);
}

static void *run(void *arg)
{
	struct shmcma_domain *domain = arg;
	unsigned int idle = 0;
	uint64_t seen = 0;

	while (!atomic_load_explicit(&domain->progress.stop, memory_order_relaxed)) {
		switch (poll_round(domain, &seen)) {
		case ROUND_DONE:
			idle = 0;
			continue;
		case ROUND_NOTHING:
			idle++;
			break;
		case ROUND_LEFT:
			idle = idle < SPINS + YIELDS ? SPINS + YIELDS : idle + 1;
			break;
		}
		rest(idle);
	}
	return NULL;
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void)
{
	struct shmcma_progress *all = running_first;

	after_fork();
	running_first = NULL;
	for (; all; all = all->next)
		all->running = false;
}

static void prepare(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- start, stop ----------------------------------------------------------------------------- */

/* Signals are the application's: none is delivered to the thread. */
static int create(struct shmcma_domain *domain)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&domain->progress.thread, NULL, run, domain);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret) {
		shmcma_warn(FI_LOG_DOMAIN, "no thread for automatic progress: %s\n", strerror(ret));
		return -ret;
	}
	(void)pthread_setname_np(domain->progress.thread, SHMCMA_NAME);
	return 0;
}

int shmcma_progress_start(struct shmcma_domain *domain)
{
	struct shmcma_progress *progress = &domain->progress;
	int ret = 0;

	if (!progress->wanted)
		return 0;
	pthread_once(&prepared, prepare);
	pthread_mutex_lock(&list_lock);
	if (!progress->running) {
		ret = create(domain);
		if (!ret) {
			progress->running = true;
			progress->next = running_first;
			running_first = progress;
		}
	}
	pthread_mutex_unlock(&list_lock);
	return ret;
}

/* Out of the list, so that it is this caller's to join. */
static bool take(struct shmcma_progress *progress)
{
	struct shmcma_progress **link = &running_first;
	bool running;

	pthread_mutex_lock(&list_lock);
	running = progress->running;
	progress->running = false;
	while (running && *link != progress)
		link = &(*link)->next;
	if (running)
		*link = progress->next;
	pthread_mutex_unlock(&list_lock);
	return running;
}

static void stop(struct shmcma_progress *progress)
{
	if (!take(progress))
		return;
	atomic_store(&progress->stop, true);
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
