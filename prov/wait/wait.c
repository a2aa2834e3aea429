/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wait.c: the wait object (futex, pipe, condition, wait set) and how it is signalled. Any thread.
 *
 * A condition's mutex belongs to the application. It is of the kind that knows its owner (PTHREAD_MUTEX_ERRORCHECK), so a
 * thread that holds it may signal the object itself.
 *
 * A thread that calls shmcma_wait_signal() holds no lock that the holder of the application's mutex may wait for. Other
 * threads leave the signal to a watcher, or owe it (armed.c). A thread with signals for several objects waits for no
 * mutex: while another thread holds one, it gives the other signals, and tries again.
 */
#include "wait/wait.h"

#include <errno.h>
#include <time.h>

#define MS 1000000

int64_t shmcma_wait_end(int timeout)
{
	return timeout < 0 ? INT64_MAX : sc_clock_ns() + (int64_t)timeout * MS;
}

static void condition_init(struct shmcma_wait *wait)
{
	pthread_mutexattr_t attr;

	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	(void)pthread_mutex_init(&wait->mutex, &attr);
	(void)pthread_mutexattr_destroy(&attr);
	(void)pthread_cond_init(&wait->cond, NULL);
}

int shmcma_wait_init(struct shmcma_wait *wait, enum fi_wait_obj obj, struct fid_wait *set,
		     const struct shmcma_wait_ops *ops)
{
	int ret = 0;

	*wait = (struct shmcma_wait){ .ops = ops, .obj = obj, .pipe.ends = { -1, -1 } };
	condition_init(wait);
	if (shmcma_wait_has_pipe(wait))
		ret = shmcma_pipe_open(&wait->pipe);
	if (obj == FI_WAIT_SET) {
		wait->set = container_of(set, struct shmcma_wait_set, fid);
		atomic_fetch_add(&wait->set->refs, 1);
	}
	return ret;
}

void shmcma_wait_forked(struct shmcma_wait *wait)
{
	wait->armed = false;
	atomic_store(&wait->given, false);
	atomic_store(&wait->sleepers, 0);
	atomic_store(&wait->owed, false);
	atomic_store(&wait->giving, 0);
	condition_init(wait);
}

/*
 * Holds the application's mutex, so that the signal is not missed between fi_trywait() and pthread_cond_wait(). EDEADLK:
 * this thread holds it. False: another one holds it, and this one does not wait (`waits`).
 */
static bool broadcast(struct shmcma_wait *wait, bool waits)
{
	static const struct timespec past = { 0 };
	/* the time is over at once; unlike trylock, this tells whose the mutex is */
	int ret = waits ? pthread_mutex_lock(&wait->mutex) : pthread_mutex_timedlock(&wait->mutex, &past);

	if (ret && ret != EDEADLK)
		return false;
	pthread_cond_broadcast(&wait->cond);
	if (!ret)
		pthread_mutex_unlock(&wait->mutex);
	return true;
}

bool shmcma_wait_has_condition(const struct shmcma_wait *wait)
{
	return wait->obj == FI_WAIT_MUTEX_COND || (wait->set && wait->set->wait.obj == FI_WAIT_MUTEX_COND);
}

/* Clears `given` first: if a fi_trywait() empties the pipe and succeeds meanwhile, its `given` stays. */
static bool signal_one(struct shmcma_wait *wait, bool waits)
{
	atomic_store(&wait->given, false);
	sc_sleep_bump(&wait->futex);
	if (shmcma_wait_has_pipe(wait))
		shmcma_pipe_raise(&wait->pipe);
	return wait->obj != FI_WAIT_MUTEX_COND || broadcast(wait, waits);
}

static bool signal_with_set(struct shmcma_wait *wait, bool waits)
{
	bool given = signal_one(wait, waits);

	if (wait->set)
		given &= signal_one(&wait->set->wait, waits);
	return given;
}

bool shmcma_wait_try_signal(struct shmcma_wait *wait)
{
	return signal_with_set(wait, false);
}

/* A thread that sleeps on a set has neither looked at this new member nor armed it, so it must look again. */
void shmcma_wait_join(struct shmcma_wait *wait)
{
	struct shmcma_wait_set *set = wait->set;

	if (!set)
		return;
	pthread_mutex_lock(&set->lock);
	wait->next = set->members;
	set->members = wait;
	pthread_mutex_unlock(&set->lock);
	(void)signal_one(&set->wait, true);
}

void shmcma_wait_signal(struct shmcma_wait *wait)
{
	(void)signal_with_set(wait, true);
}

/* The first waiter of a set that finds the signalled queue consumes the signal; `events` ends the other waits. */
void shmcma_wait_signal_all(struct shmcma_wait *wait)
{
	if (wait->set)
		atomic_fetch_add(&wait->set->wait.events, 1);
	shmcma_wait_signal(wait);
}

/* ---- owed signals ------------------------------------------------------------------------------ */

/* If a thread owes the signal already, it has not begun to give it, and its signal serves this event, too. */
void shmcma_wait_owe_locked(struct shmcma_wait *wait, struct shmcma_wait **owed)
{
	if (atomic_exchange(&wait->owed, true))
		return;
	atomic_fetch_add(&wait->giving, 1);
	wait->next_owed = *owed;
	*owed = wait;
}

/*
 * Returns the objects whose mutex another thread holds, unless a further thread owes them, too. That holder may be about to
 * close another of the objects, so each gets its turn.
 */
static struct shmcma_wait *give_each(struct shmcma_wait *owed)
{
	struct shmcma_wait *left = NULL;

	while (owed) {
		struct shmcma_wait *wait = owed;

		owed = wait->next_owed;
		atomic_store(&wait->owed, false); /* another thread may owe it from now on */
		if (!shmcma_wait_try_signal(wait) && !atomic_load(&wait->closes) &&
		    !atomic_exchange(&wait->owed, true)) {
			wait->next_owed = left;
			left = wait;
			continue;
		}
		atomic_fetch_sub(&wait->giving, 1);
	}
	return left;
}

void shmcma_wait_give(struct shmcma_wait *owed)
{
	while ((owed = give_each(owed)))
		nanosleep(&(struct timespec){ .tv_nsec = SHMCMA_MUTEX_NAP }, NULL);
}

/* ---- what an application sees ------------------------------------------------------------------ */

/* fi_poll(3). There is one descriptor, which never changes: no application begins with this change_index. */
static int show_pollfd(const struct shmcma_wait *wait, struct fi_wait_pollfd *shown)
{
	size_t room = shown->nfds;

	shown->change_index = 1;
	shown->nfds = 1;
	if (!room)
		return -FI_ETOOSMALL;
	if (!shown->fd)
		return -FI_EINVAL;
	shown->fd[0] = (struct pollfd){ .fd = wait->pipe.ends[0], .events = POLLIN };
	return 0;
}

int shmcma_wait_control(struct shmcma_wait *wait, int command, void *arg)
{
	if (command != FI_GETWAIT && command != FI_GETWAITOBJ)
		return -FI_ENOSYS;
	if (!arg)
		return -FI_EINVAL;
	if (command == FI_GETWAITOBJ) {
		*(enum fi_wait_obj *)arg = wait->obj;
		return 0;
	}
	switch (wait->obj) {
	case FI_WAIT_FD:
		*(int *)arg = wait->pipe.ends[0];
		return 0;
	case FI_WAIT_POLLFD:
		return show_pollfd(wait, arg);
	case FI_WAIT_MUTEX_COND:
		*(struct fi_mutex_cond *)arg = (struct fi_mutex_cond){ &wait->mutex, &wait->cond };
		return 0;
	default:
		return -FI_ENODATA;
	}
}
