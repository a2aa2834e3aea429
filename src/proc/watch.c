/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watch.c: the processes of peers, and what the daemon's thread does when one dies.
 *
 * Owns the list of these processes in struct sc_process, and their places in the table of pidfds. Any thread adds and
 * deletes watches; the daemon's thread does all else. It proves a death as any process does (sc_owner_is_dead()), marks
 * the watches and rings the endpoints' bells at once, and then removes the names.
 *
 * Some processes have no pidfd to poll: those of another pid namespace; any when descriptors are short (pidfd.c), or
 * when poll(2) accepts fewer places because the limit of descriptors is lower now. The thread polls the life locks of
 * such processes ten times a second. It polls those of all processes where there is no place for the pipe or poll(2)
 * fails; it then sleeps without descriptors.
 *
 * No other process sees this memory. The lock of the process protects all of it, except the word `ended`, which bell.c
 * orders (D1).
 */
#define _GNU_SOURCE 1
#include "proc/watch.h"

#include <stdlib.h>
#include <string.h>
#include "os/addr.h"
#include "os/pidfd.h"
#include "proc/process.h"
#include "proc/owner.h"
#include "proc/reap.h"

/*
 * The thread opens the pidfds of new processes together: GATHER_MS after the first of them, but not before
 * GATHER_APART_MS after the last gathering, or after its own start, as the processes of a job come one after the other.
 * If one ends meanwhile, a sleeping endpoint learns of that later by this time; a polling one sees its word of life.
 */
#define GATHER_MS 5
#define GATHER_APART_MS 50

/* A process that peers of this process belong to. */
struct sc_watched {
	struct sc_list all;
	struct sc_list watches;
	pid_t pid;	 /* as seen from here, 0: not visible */
	uint64_t cookie; /* names the process, together with the pid */
	bool gathered;	 /* a gathering has asked for its pidfd; sc_process.watched has the others first */
	int pidfd;	 /* its place; SC_NO_PIDFD: the thread polls its locks */
};

/* ---- processes ------------------------------------------------------------------------------- */

static void pidfd_forget(struct sc_watched *process)
{
	if (process->pidfd != SC_NO_PIDFD)
		sc_pidfd_put(process->pidfd);
	process->pidfd = SC_NO_PIDFD;
}

/* Checks that the owner lives after the pidfd is open: so the owner had the pid, not a later process. */
static void pidfd_get(struct sc_watched *process, const struct sc_seg *seg)
{
	if (!process->pid)
		return;
	process->pidfd = sc_pidfd_get(process->pid);
	if (process->pidfd != SC_NO_PIDFD && sc_seg_check_owner(seg) != 1)
		pidfd_forget(process);
}

static struct sc_watched *process_find(const struct sc_seg *seg)
{
	sc_list_for (entry, &sc_process.watched) {
		struct sc_watched *process = sc_list_entry(entry, struct sc_watched, all);

		if (process->pid == seg->cma_pid && process->cookie == seg->header.owner.cookie)
			return process;
	}
	return NULL;
}

/* Sets the time of the next gathering, for a new process. */
static void gather_soon_locked(void)
{
	int64_t apart = sc_process.gathered + GATHER_APART_MS;

	if (sc_process.gathers)
		return;
	sc_process.gathers = sc_process_now_ms() + GATHER_MS;
	if (sc_process.gathers < apart)
		sc_process.gathers = apart;
	if (sc_process.gathers < sc_process.sleeps)
		(void)sc_process_wake_locked();
}

static struct sc_watched *process_new(const struct sc_seg *seg)
{
	struct sc_watched *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->pid = seg->cma_pid;
	process->cookie = seg->header.owner.cookie;
	process->pidfd = SC_NO_PIDFD;
	sc_list_init(&process->watches);
	sc_list_prepend(&sc_process.watched, &process->all);
	gather_soon_locked();
	return process;
}

void sc_watch_add(struct sc_watch *watch, const struct sc_seg *seg, struct sc_bell *bell)
{
	struct sc_watched *process = NULL;

	*watch = (struct sc_watch){ .seg = seg, .bell = bell };
	if (seg->lender) /* this process's own */
		return;
	sc_process_lock();
	if (sc_process.state == SC_PROCESS_WATCHES) {
		process = process_find(seg);
		process = process ? process : process_new(seg);
	}
	watch->process = process;
	if (process)
		sc_list_append(&process->watches, &watch->of_process);
	sc_process_unlock();
}

/* Notes a name that the thread removes later, without sc_process.mutex. */
static void note_name_locked(const struct sc_seg *seg)
{
	struct sc_addr parts;

	if (sc_addr_parse(seg->header.address, &parts))
		return;
	sc_addr_file(&parts, sc_process.dead);
	sc_process.dead_count++;
}

static void process_put(struct sc_watched *process)
{
	if (!sc_list_empty(&process->watches))
		return;
	pidfd_forget(process);
	sc_list_remove(&process->all);
	free(process);
}

void sc_watch_del(struct sc_watch *watch)
{
	if (!watch->process || !sc_seg_is_here(watch->seg))
		return;
	sc_process_lock();
	/* the endpoint has proven the death first; after exec(2) nothing else tells the thread before its tick */
	if (!watch->ended && sc_load_relaxed_32(&sc_seg_presence(watch->seg)->state) == SC_ABI_ENDED) {
		note_name_locked(watch->seg);
		(void)sc_process_wake_locked();
	}
	sc_list_remove(&watch->of_process);
	process_put(watch->process);
	watch->process = NULL;
	sc_process_unlock();
}

/* ---- death ----------------------------------------------------------------------------------- */

static void watch_check(struct sc_watch *watch)
{
	if (watch->ended || !sc_owner_is_dead(watch->seg))
		return;
	note_name_locked(watch->seg);
	sc_store_relaxed_32(&watch->ended, 1); /* D1 in sc_bell_ring() orders it */
	sc_bell_ring(watch->bell);
}

static void process_check(struct sc_watched *process)
{
	sc_list_for (entry, &process->watches)
		watch_check(sc_list_entry(entry, struct sc_watch, of_process));
}

/* The pidfd says that its process has ended, or is another process's: it has no further use. */
static void pidfd_event(struct sc_watched *process)
{
	process_check(process);
	pidfd_forget(process);
}

static bool is_over(const struct sc_watched *process)
{
	sc_list_for (entry, &process->watches)
		if (!sc_list_entry(entry, struct sc_watch, of_process)->ended)
			return false;
	return true;
}

/* Tells whether poll(2) has no pidfd of the process, so that only its locks show a death. */
static bool has_no_pidfd(const struct sc_watched *process)
{
	return process->gathered &&
	       (process->pidfd == SC_NO_PIDFD || (nfds_t)process->pidfd + 1 >= sc_process.polled);
}

bool sc_watches_need_locks_locked(void)
{
	sc_list_for (entry, &sc_process.watched) {
		const struct sc_watched *process = sc_list_entry(entry, struct sc_watched, all);

		if (has_no_pidfd(process) && !is_over(process))
			return true;
	}
	return false;
}

static bool has_event(const struct sc_watched *process)
{
	return process->pidfd != SC_NO_PIDFD && sc_pidfd_has_event(process->pidfd, sc_process.polls + 1);
}

void sc_watches_look_locked(bool all)
{
	sc_list_for (entry, &sc_process.watched) {
		struct sc_watched *process = sc_list_entry(entry, struct sc_watched, all);

		if (has_event(process))
			pidfd_event(process);
		else if (all || has_no_pidfd(process))
			process_check(process);
	}
}

static struct sc_watch *first_watch(const struct sc_watched *process)
{
	return sc_list_entry(process->watches.next, struct sc_watch, of_process);
}

/* Opens the pidfd of the next new process. False: there is none. */
static bool gather_one_locked(void)
{
	struct sc_watched *process =
		sc_list_entry(sc_process.watched.next, struct sc_watched, all);

	if (sc_list_empty(&sc_process.watched) || process->gathered)
		return false;
	sc_list_remove(&process->all);
	sc_list_append(&sc_process.watched, &process->all);
	process->gathered = true;
	if (process->pidfd == SC_NO_PIDFD)
		pidfd_get(process, first_watch(process)->seg);
	if (process->pidfd == SC_NO_PIDFD)
		process_check(process); /* it may have ended meanwhile */
	return true;
}

/* Takes the lock for each pidfd anew, so that a connecting thread does not wait for all of them. */
void sc_watches_gather(void)
{
	bool due, more;

	sc_process_lock();
	due = sc_process.gathers && sc_process_now_ms() >= sc_process.gathers;
	if (due) {
		sc_process.gathered = sc_process_now_ms();
		sc_process.gathers = 0;
	}
	sc_process_unlock();
	for (more = due; more;) {
		sc_process_lock();
		more = gather_one_locked();
		sc_process_unlock();
	}
}

void sc_watches_repair_locked(void)
{
	sc_list_for (entry, &sc_process.watched) {
		struct sc_watched *process = sc_list_entry(entry, struct sc_watched, all);

		if (process->pidfd != SC_NO_PIDFD && !sc_pidfd_is_open(process->pidfd))
			pidfd_forget(process);
		if (process->pidfd == SC_NO_PIDFD && !is_over(process))
			pidfd_get(process, first_watch(process)->seg);
	}
}

bool sc_watches_reap(void)
{
	char name[SC_ADDR_NAME_MAX];
	int count;

	sc_process_lock();
	count = sc_process.dead_count;
	memcpy(name, sc_process.dead, sizeof(name));
	sc_process.dead_count = 0;
	sc_process_unlock();
	if (count == 1)
		(void)sc_reap_name(name);
	else if (count)
		(void)sc_reap_scan(); /* looks once for peers that await any of them */
	return count;
}
