/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * armed.c: waiting for a completion queue or a counter, in a call (fi_cq_sread, fi_cntr_wait) or, after fi_trywait(),
 * with a system wait object: a descriptor or a condition.
 *
 * Three events end a wait: a peer writes something, for which the core wakes (sc_ep_rest()); another thread of this
 * process ends or begins an operation under the same lock (look_locked()); fi_cq_signal().
 *
 * Every wait depends on the endpoints that a look at the object polls, on those without queue and counter, and on groups,
 * because every poll polls these. A thread in a call sleeps on the futexes of all these endpoints of the core and on the
 * object's own at once (struct shmcma_rest); so does the thread of automatic progress (progress.c), one more waiter, of
 * the whole domain, which reads nothing.
 *
 * Watchers. An endpoint that a thread waits for with a system wait object has a thread (watcher.c). It sleeps on the
 * endpoint's futex and signals the object: it changes the object's own futex, writes to a pipe, broadcasts the condition.
 * The first wait that needs a watcher starts it. It makes no progress, and takes no lock of the domain, because a domain
 * may have none (FI_THREAD_DOMAIN). If the kernel, or a filter, does not let a thread sleep on several futexes
 * (futex_waitv(2)), and beyond 127 endpoints, watchers signal the other waiters as well; so they do for calls on an
 * object that fi_trywait() has armed once (shmcma_wait.watched).
 *
 * An endpoint may close while a thread sleeps on its futex, or is about to, and its memory goes. Before that, the thread
 * that closes it changes the futex of each object with sleepers (shmcma_wait_stir_locked()): they look again, and one
 * that is about to sleep does not.
 *
 * Armed: an object is in shmcma_lock.armed from the look that found nothing until the application looks again. While
 * this list is empty, a thread that releases the lock pays one load. Every event of the object happens under its lock.
 * A counter whose read polls all endpoints of the domain has the domain's only lock, at the latest when a thread sleeps
 * on it (enter()).
 *
 * No event is missed: a waiter reads the object's futex, or empties the pipe, before the look (shmcma_wait_ops.has),
 * and a thread that adds something signals after that. For peers see src/os/wake.c. While threads sleep in calls the
 * object stays armed, even if another thread reads it. It also stays armed while a thread may sleep on a system wait
 * object (`given`): from the success of fi_trywait() until a signal. The provider does not know whether that thread
 * sleeps, and another thread may read; if it has not slept, a peer wakes once in vain. A fi_trywait() of another thread
 * may empty the pipe before the signalled thread has seen it: as if that signal had not been given. A fi_trywait() that
 * finds something leaves the pipe as it is.
 *
 * Locks, in order: wait set, object, watcher. No thread that holds one takes the application's mutex: a thread that
 * holds the mutex calls fi_trywait(), and waits for these locks. So a thread that finds something under a lock leaves
 * the signal to a watcher. If the endpoint of that watcher closes first, another watcher has the signal. Without a
 * watcher, if there is no endpoint or thread, the signal is owed until the lock is released; so is the signal of an
 * event queue. Only calls that enable or close endpoints, submit a triggered operation, add to a counter or find that a
 * queue has lost completions owe signals; they hold no lock of a set.
 */
#include "wait/wait.h"

#include <errno.h>
#include <sched.h>
#include <time.h>
#include "base/yield.h"
#include "wait/polled.h"
#include "wait/watcher.h"
#include "wait/work.h"

/* Rounds of progress that bring nothing to read, before fi_trywait() returns -FI_EAGAIN. */
#define TRY_ROUNDS 64
#define MS 1000000
/*
 * Time between two looks while operations wait for counters: maybe only other threads poll the endpoints that raise
 * them.
 */
#define TRIGGER_MS 10

/* ---- what is slept on ------------------------------------------------------------------------ */

/* An endpoint of the core, and its watcher. */
struct slept {
	struct sc_ep *core;
	struct shmcma_watcher **watcher;
	bool busy; /* a thread must poll it before it sleeps on it */
	bool kept; /* stays armed for a sleeper on an event queue, which no domain lists */
	bool refused; /* a message of a group waits for space */
	int64_t again_at; /* when a broken group tries again; 0: it owes nothing */
};

static struct slept slept_group(struct shmcma_coll *coll)
{
	bool kept = coll->join_wait && atomic_load(&coll->join_wait->listens);

	return (struct slept){ coll->core,
			       &coll->watcher,
			       coll->begun,
			       kept,
			       sc_ep_refusals(coll->core) != coll->refusals,
			       coll->again_at };
}

/* Finds the n-th endpoint of the set. If there are fewer, returns false and lowers *n by their number. */
static bool slept_endpoint(const struct shmcma_polled *polled, size_t *n, struct slept *slept)
{
	if (*n >= polled->count) {
		*n -= polled->count;
		return false;
	}
	*slept = (struct slept){ .core = polled->eps[*n]->core, .watcher = &polled->eps[*n]->watcher };
	return true;
}

/* Finds the n-th endpoint that a look at the object polls. False: there are fewer. */
static bool slept_on(const struct shmcma_wait *wait, size_t n, struct slept *slept)
{
	const struct shmcma_polled *polled = wait->ops->polled(wait);
	const struct shmcma_domain *domain = wait->domain;
	struct shmcma_coll *coll = domain->colls;

	if (slept_endpoint(polled, &n, slept) ||
	    (polled != &domain->enabled && slept_endpoint(&domain->silent, &n, slept)))
		return true;
	for (; coll && n; n--)
		coll = coll->next;
	if (coll)
		*slept = slept_group(coll);
	return coll;
}

/* -FI_EAGAIN: no watcher signals the object when the endpoint is woken. */
static int watch(const struct slept *slept, struct shmcma_wait *wait)
{
	return shmcma_watcher_add_locked(slept->watcher, slept->core, wait);
}

static int watch_all_locked(struct shmcma_wait *wait)
{
	struct slept slept;
	int ret = 0;

	for (size_t i = 0; !ret && slept_on(wait, i, &slept); i++)
		ret = watch(&slept, wait);
	return ret;
}

/* ---- armed ----------------------------------------------------------------------------------- */

/* The caller holds the lock. */
static struct shmcma_lock *lock_of(const struct shmcma_locked *locked)
{
	return atomic_load_explicit(&locked->lock, memory_order_relaxed);
}

static void arm_locked(struct shmcma_wait *wait)
{
	struct shmcma_lock *lock = lock_of(wait->locked);

	if (wait->armed)
		return;
	wait->armed = true;
	wait->next_armed = lock->armed;
	lock->armed = wait;
}

static void unlink_locked(struct shmcma_wait *wait)
{
	shmcma_list_remove(lock_of(wait->locked)->armed, wait, next_armed);
	wait->armed = wait->again = false;
}

/* Peers learn that nobody sleeps only when no object under this lock is armed; else a peer wakes once in vain. */
static void disarm_locked(struct shmcma_wait *wait)
{
	const struct shmcma_lock *lock = lock_of(wait->locked);
	struct slept slept;

	unlink_locked(wait);
	atomic_store_explicit(&wait->listens, false, memory_order_relaxed); /* harmless if late */
	for (size_t i = 0; !lock->armed && slept_on(wait, i, &slept); i++)
		if (!slept.kept)
			sc_ep_rise(slept.core);
}

/* Disarms an object that no thread uses any more. Returns whether watchers may know it. */
static bool was_watched(struct shmcma_wait *wait)
{
	bool watched;

	shmcma_lock_hold(wait->locked);
	if (wait->armed)
		disarm_locked(wait);
	watched = wait->watched;
	shmcma_lock_release(wait->locked);
	return watched;
}

/* Takes all locks of the domain only for objects that watchers may know, not for each of many objects. */
void shmcma_wait_fini(struct shmcma_wait *wait)
{
	struct shmcma_domain *domain = wait->domain;

	atomic_store(&wait->closes, true); /* threads give up signals to it from now on */
	/* first, so that no thread arms it through the set */
	if (wait->set) {
		pthread_mutex_lock(&wait->set->lock);
		shmcma_list_remove(wait->set->members, wait, next);
		pthread_mutex_unlock(&wait->set->lock);
	}
	if (domain && was_watched(wait)) {
		shmcma_lock(domain);
		for (size_t i = 0; i < domain->enabled.count; i++)
			shmcma_watcher_del(domain->enabled.eps[i]->watcher, wait);
		for (struct shmcma_coll *coll = domain->colls; coll; coll = coll->next)
			shmcma_watcher_del(coll->watcher, wait);
		shmcma_unlock(domain);
	}
	while (atomic_load(&wait->giving))
		sched_yield();
	shmcma_pipe_close(&wait->pipe);
	pthread_cond_destroy(&wait->cond);
	pthread_mutex_destroy(&wait->mutex);
	if (wait->set)
		atomic_fetch_sub(&wait->set->refs, 1);
}

/* A thread that sleeps on the set counts itself before it tries the members under this lock. */
static bool is_slept_on(const struct shmcma_wait *wait)
{
	return atomic_load(&wait->given) || atomic_load_explicit(&wait->sleepers, memory_order_relaxed) ||
	       (wait->set && atomic_load(&wait->set->wait.sleepers));
}

static void rise_locked(struct shmcma_wait *wait)
{
	if (wait->armed && !is_slept_on(wait))
		disarm_locked(wait);
}

void shmcma_wait_rise_slow(struct shmcma_wait *wait)
{
	bool taken = wait->domain->locks.common.taken;

	if (!taken)
		shmcma_lock_hold(wait->locked);
	rise_locked(wait);
	if (!taken)
		shmcma_lock_release(wait->locked);
}

/* Wakes only threads that sleep in calls: a condition must not be signalled under this lock. */
void shmcma_wait_wake_locked(struct shmcma_wait *wait)
{
	struct shmcma_wait *of_set = wait->set ? &wait->set->wait : NULL;

	if (atomic_load_explicit(&wait->sleepers, memory_order_relaxed))
		sc_sleep_bump(&wait->futex);
	if (of_set && atomic_load(&of_set->sleepers)) {
		atomic_fetch_add(&of_set->events, 1);
		sc_sleep_bump(&of_set->futex);
	}
}

/*
 * Signals the object. A watcher wakes a thread in pthread_cond_wait(), because this thread has a lock. The endpoint may
 * be newer than that thread's look, and its watcher not know the object. A watcher that is about to signal does so once
 * more, because it may have signalled already. False: there is no watcher.
 */
static bool pass_on_locked(struct shmcma_wait *wait)
{
	struct slept slept;

	if (!shmcma_wait_has_condition(wait)) {
		shmcma_wait_signal(wait);
		return true;
	}
	if (!slept_on(wait, 0, &slept) || watch(&slept, wait))
		return false;
	atomic_store(&wait->listens, true);
	sc_ep_wake(slept.core);
	return true;
}

/* Tells whether another thread has begun an operation that needs polls. */
static bool wants_poll(const struct shmcma_wait *wait)
{
	struct slept slept;

	for (size_t i = 0; slept_on(wait, i, &slept); i++)
		if (slept.busy || !sc_ep_is_idle(slept.core))
			return true;
	return false;
}

static void look_locked(struct shmcma_lock *lock, struct shmcma_wait **owed)
{
	struct shmcma_domain *domain = lock->domain;
	struct shmcma_wait *wait;

	if (domain->triggers && domain->progress.wait.armed)
		shmcma_work_run_locked(domain); /* this call may have raised their counters */
	wait = lock->armed;
	while (wait) {
		struct shmcma_wait *next = wait->next_armed;

		if (wait->again || wait->ops->has(wait) || wants_poll(wait)) {
			unlink_locked(wait);
			if (!pass_on_locked(wait))
				shmcma_wait_owe_locked(wait, owed);
		}
		wait = next;
	}
}

const struct shmcma_unlock_hook shmcma_wait_unlock_hook = { look_locked, shmcma_wait_give };

void shmcma_wait_again_locked(const struct shmcma_locked *ep)
{
	for (struct shmcma_wait *wait = lock_of(ep)->armed; wait; wait = wait->next_armed)
		wait->again = true;
}

/* Tells whether threads sleep on it with a system wait object, of its own or of its set. */
static bool is_slept_on_outside(const struct shmcma_wait *wait)
{
	const struct shmcma_wait *of_set = wait->set ? &wait->set->wait : wait;

	return shmcma_wait_has_pipe(of_set) || shmcma_wait_has_condition(wait);
}

static bool sleeps_on_all_locked(const struct shmcma_wait *wait)
{
	return wait->ops->polled(wait) == &wait->domain->enabled && !wait->domain->locks.coarse;
}

/*
 * The look may start the watcher of any endpoint that the object depends on, so all must have one lock. No lock's list has
 * an event queue.
 */
void shmcma_wait_resume_locked(struct shmcma_domain *domain, struct shmcma_wait *wait)
{
	if (!wait->domain) {
		shmcma_wait_owe_locked(wait, &domain->locks.owed);
		return;
	}
	if (sleeps_on_all_locked(wait))
		shmcma_lock_merge_all_locked(wait->domain);
	arm_locked(wait);
	wait->again = true;
	if (is_slept_on_outside(wait))
		atomic_store(&wait->given, true); /* it has not been signalled, so it stays armed */
}

/*
 * Only threads that sleep in calls sleep on words of endpoints. A signal could need the mutex of the application, which the
 * thread that closes the endpoint may hold.
 */
void shmcma_wait_stir_locked(const struct shmcma_locked *ep)
{
	for (struct shmcma_wait *wait = lock_of(ep)->armed; wait; wait = wait->next_armed)
		if (atomic_load_explicit(&wait->sleepers, memory_order_relaxed))
			sc_sleep_bump(&wait->futex);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

/* Takes the object's lock, which all endpoints that a sleep depends on have, too. */
static void enter(struct shmcma_wait *wait)
{
	shmcma_lock_hold(wait->locked);
	while (sleeps_on_all_locked(wait)) {
		shmcma_lock_release(wait->locked);
		shmcma_lock(wait->domain);
		shmcma_lock_merge_all_locked(wait->domain);
		shmcma_unlock(wait->domain);
		shmcma_lock_hold(wait->locked);
	}
}

static void lower(int64_t *limit, int64_t ms)
{
	int64_t end = sc_clock_ns() + ms * MS;

	if (end < *limit)
		*limit = end;
}

/* Tells whether a thread can sleep on the words of all endpoints and on the object's own at once. */
static bool rest_has_room(const struct shmcma_wait *wait)
{
	struct slept slept;

	return !slept_on(wait, SC_SLEEPS_MAX - 1, &slept);
}

static int rest_core(const struct slept *slept, bool refused, struct sc_sleep *sleep, int64_t *limit)
{
	if (slept->busy || (slept->again_at && slept->again_at <= sc_clock_ns()))
		return -FI_EAGAIN;
	if (slept->again_at && slept->again_at < *limit)
		*limit = slept->again_at;
	return refused || slept->refused ? sc_ep_rest_refused(slept->core, sleep, limit)
					 : sc_ep_rest(slept->core, sleep, limit);
}

/*
 * Arms the object and each endpoint that it depends on: peers wake the thread or, with rest->watched, the watchers, which
 * signal the object. `refused`: so do peers that make space. Returns -FI_EAGAIN if there is something to do.
 */
static int rest_locked(struct shmcma_wait *wait, struct shmcma_rest *rest, bool refused)
{
	bool watched = rest->watched || !rest_has_room(wait);
	struct slept slept;

	/* acquire: before the look at what else may have changed */
	rest->sleeps[0] =
		(struct sc_sleep){ &wait->futex, __atomic_load_n(&wait->futex, __ATOMIC_ACQUIRE) };
	rest->count = 1;
	if (watched && watch_all_locked(wait))
		lower(&rest->limit, 1); /* no watcher: look every millisecond */
	atomic_store(&wait->listens, watched);
	arm_locked(wait);
	for (size_t i = 0; slept_on(wait, i, &slept); i++) {
		struct sc_sleep sleep;

		if (rest_core(&slept, refused, &sleep, &rest->limit))
			return -FI_EAGAIN;
		if (!watched)
			rest->sleeps[rest->count++] = sleep;
	}
	return 0;
}

/* For a thread of the application. Returns -FI_EAGAIN also if there is something to read. */
static int rest_caller_locked(struct shmcma_wait *wait, struct shmcma_rest *rest, bool refused)
{
	/* a triggered operation that is due waits for space, too */
	if (rest_locked(wait, rest, refused || shmcma_work_is_due_locked(wait->domain)))
		return -FI_EAGAIN;
	if (wait->domain->triggers) /* no peer wakes for some of their events */
		lower(&rest->limit, TRIGGER_MS);
	return wait->ops->has(wait) ? -FI_EAGAIN : 0;
}

int shmcma_wait_rest_all_locked(struct shmcma_domain *domain, struct shmcma_rest *rest)
{
	rest->limit = SC_REST_FOREVER;
	if (rest_locked(&domain->progress.wait, rest, false)) /* it posts nothing itself */
		return -FI_EAGAIN;
	if (shmcma_work_is_due_locked(domain)) /* no event tells when they can be posted */
		lower(&rest->limit, TRIGGER_MS);
	return 0;
}

/* ---- refused posts ----------------------------------------------------------------------------- */

/*
 * After a post was refused with -FI_EAGAIN, the caller may wait for space, and no completion may come. The provider
 * cannot tell for each cause of a refusal whether the next post succeeds. So a wait ends once, for each object that is
 * waited for, when a sleep is over that asked for space: a peer has made some, ROOM_MS (src/ep/sleep.c) have gone, or
 * another event has come.
 */

/* Returns how many posts of the application the endpoints of the object have refused. */
static uint64_t refusals_locked(const struct shmcma_wait *wait)
{
	const struct shmcma_polled *polled = wait->ops->polled(wait);
	uint64_t refusals = 0;

	for (size_t i = 0; i < polled->count; i++)
		refusals += sc_ep_refusals(polled->eps[i]->core) - polled->eps[i]->work_refusals;
	return refusals;
}

/*
 * Returns whether a wait ends that began with `refusals`, when other waits had ended for `known`. Another wait may have
 * ended since, for newer refusals.
 */
static bool end_refused_locked(struct shmcma_wait *wait, uint64_t known, uint64_t refusals)
{
	if (wait->refusals == known)
		wait->refusals = wait->asked = refusals;
	return refusals != known;
}

/* ---- sleep in a call --------------------------------------------------------------------------- */

/*
 * A sleep and its end cost as much as PATIENCE_NS nanoseconds of polls. A caller that polls so long before it sleeps pays
 * at most twice of what is necessary (docs/MEASUREMENTS.md, "Sleeping and waking"). Where other processes need the
 * processor, the polls yield it (prov/base/yield.h). The first PATIENCE_MIN polls do not look at the clock.
 */
#define PATIENCE_NS 20000
#define PATIENCE_MIN 30
/* A sleep of less than this many nanoseconds, its end included, is brief. docs/MEASUREMENTS.md, "Sleeping and waking" */
#define BRIEF_NS 400000

static bool lasts(struct shmcma_patience *patience)
{
	int64_t now;

	if (patience->polls++ < PATIENCE_MIN)
		return true;
	now = sc_clock_ns();
	if (!patience->end)
		patience->end = now + PATIENCE_NS;
	return now < patience->end;
}

/* An old kernel, or a filter of system calls, does not let the thread sleep on several words: watchers from now on. */
static bool cannot_sleep(int ret)
{
	return ret && ret != -EINTR && ret != -ETIMEDOUT && ret != -EFAULT;
}

static int sleep_in_call(struct shmcma_wait *wait, const void *found, int64_t end)
{
	struct shmcma_rest rest;
	uint64_t known, refusals;
	bool refused, looks;
	int ret = 0;

	enter(wait);
	rest.limit = end;
	rest.watched = wait->watched;
	atomic_fetch_add_explicit(&wait->sleepers, 1, memory_order_relaxed);
	known = wait->refusals;
	refusals = refusals_locked(wait);
	looks = rest_caller_locked(wait, &rest, refusals != known) || wait->ops->differs(wait, found);
	shmcma_lock_release(wait->locked);
	if (!looks)
		ret = sc_sleep(rest.sleeps, rest.count, rest.limit);
	enter(wait);
	if (cannot_sleep(ret))
		(void)watch_all_locked(wait);
	atomic_fetch_sub_explicit(&wait->sleepers, 1, memory_order_relaxed);
	rise_locked(wait);
	refused = !looks && end_refused_locked(wait, known, refusals);
	shmcma_lock_release(wait->locked);
	if (refused)
		return -FI_EAGAIN;
	return ret == -EINTR ? -FI_EINTR : 0;
}

/* In place of a sleep. */
static int yield_in_call(struct shmcma_wait *wait)
{
	bool refused;

	sched_yield();
	shmcma_lock_hold(wait->locked);
	/* a counter of all endpoints has not the locks of all, and its call does not end */
	refused = !sleeps_on_all_locked(wait) &&
		  end_refused_locked(wait, wait->refusals, refusals_locked(wait));
	shmcma_lock_release(wait->locked);
	return refused ? -FI_EAGAIN : 0;
}

/*
 * An event that ends the sleep need not end the wait: the caller may serve a request of a peer, and others may follow. So
 * it polls as long again.
 */
int shmcma_wait_rest(struct shmcma_wait *wait, const void *found, struct shmcma_patience *patience,
		     int64_t end)
{
	if (lasts(patience))
		return 0;
	if (wait->obj == FI_WAIT_NONE || wait->obj == FI_WAIT_YIELD)
		return yield_in_call(wait);
	*patience = (struct shmcma_patience){ 0 };
	return sleep_in_call(wait, found, end);
}

/* ---- fi_join --------------------------------------------------------------------------------- */

int shmcma_wait_join_locked(struct shmcma_wait *wait, struct shmcma_coll *coll)
{
	const struct slept slept = slept_group(coll);

	return shmcma_wait_has_condition(wait) ? watch(&slept, wait) : 0;
}

void shmcma_wait_joined_locked(struct shmcma_wait *wait, struct shmcma_coll *coll)
{
	if (!shmcma_wait_has_condition(wait)) {
		shmcma_wait_signal(wait);
		return;
	}
	atomic_store(&wait->listens, true);
	sc_ep_wake(coll->core);
}

int shmcma_wait_rest_joins_locked(struct shmcma_wait *wait, const struct shmcma_eq *eq,
				  struct shmcma_domain *domain, int64_t *limit)
{
	int ret = 0;

	for (struct shmcma_coll *coll = domain->colls; coll; coll = coll->next) {
		const struct slept slept = slept_group(coll);
		struct sc_sleep sleep;

		if (shmcma_ep_eq(coll->ep) != eq)
			continue;
		if (watch(&slept, wait)) {
			lower(limit, 1);
			ret = -FI_ENOMEM;
		}
		coll->join_wait = wait;
		atomic_store(&wait->listens, true);
		if (rest_core(&slept, false, &sleep, limit))
			return -FI_EAGAIN;
		if (*slept.watcher && *limit != INT64_MAX)
			shmcma_watcher_limit(*slept.watcher, *limit);
	}
	return ret;
}

/* ---- fi_trywait ------------------------------------------------------------------------------ */

/* Empties the pipe first: a signal between the two steps stays in it. */
static void give_word(struct shmcma_wait *wait)
{
	shmcma_pipe_lower(&wait->pipe);
	if (is_slept_on_outside(wait))
		atomic_store(&wait->given, true);
}

static int try_locked(struct shmcma_wait *wait)
{
	struct shmcma_rest rest;
	struct slept slept;
	uint64_t refusals = refusals_locked(wait);
	int ret = watch_all_locked(wait);

	rest.limit = SC_REST_FOREVER;
	rest.watched = true;
	for (int round = 0; !ret && round < TRY_ROUNDS; round++) {
		shmcma_progress_locked(wait->domain, wait->ops->polled(wait));
		if (wait->ops->found(wait))
			return -FI_EAGAIN;
		give_word(wait);
		if (!rest_caller_locked(wait, &rest, refusals != wait->refusals)) {
			wait->asked = refusals;
			if (rest.limit != SC_REST_FOREVER && slept_on(wait, 0, &slept))
				shmcma_watcher_limit(*slept.watcher, rest.limit);
			return 0;
		}
	}
	return -FI_EAGAIN;
}

/*
 * Tells whether fi_trywait() polls like a call that waits: if the last sleep was brief, the next one would be as well. A sleep
 * that another descriptor has ended says that the application has more to do.
 */
static bool is_eager_locked(struct shmcma_wait *wait)
{
	if (wait->tried)
		wait->eager = is_slept_on_outside(wait) && !atomic_load(&wait->given) &&
			      sc_clock_ns() - wait->tried < BRIEF_NS;
	wait->tried = 0;
	return wait->eager;
}

/* Tells whether a sleep behind fi_trywait() is over that asked for space: the application may post again. */
static bool ended_refused_locked(struct shmcma_wait *wait)
{
	if (is_slept_on_outside(wait) && atomic_load(&wait->given))
		return false;
	if (!end_refused_locked(wait, wait->refusals, wait->asked))
		return false;
	shmcma_wait_wake_locked(wait); /* other threads wait for its set, too */
	return true;
}

/* Polls for PATIENCE_NS, as a call that waits does. */
static bool finds_soon(struct shmcma_wait *wait)
{
	int64_t end = sc_clock_ns() + PATIENCE_NS;
	bool found, due;

	do {
		enter(wait);
		rise_locked(wait);
		shmcma_progress_locked(wait->domain, wait->ops->polled(wait));
		found = wait->ops->found(wait);
		due = !found && shmcma_yield_is_due(&wait->yield);
		shmcma_lock_release(wait->locked);
		if (due)
			shmcma_yield_slow(&wait->yield);
	} while (!found && sc_clock_ns() < end);
	return found;
}

int shmcma_wait_try(struct shmcma_wait *wait, bool alone)
{
	bool eager;
	int ret;

	if (wait->obj == FI_WAIT_NONE)
		return -FI_EINVAL;
	enter(wait);
	eager = is_eager_locked(wait) && alone;
	shmcma_lock_release(wait->locked);
	if (eager && finds_soon(wait))
		return -FI_EAGAIN;
	enter(wait);
	ret = ended_refused_locked(wait) ? -FI_EAGAIN : try_locked(wait);
	if (ret)
		rise_locked(wait);
	else
		wait->tried = sc_clock_ns();
	shmcma_lock_release(wait->locked);
	return ret;
}
