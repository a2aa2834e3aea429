/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * oversub.c: tells whether there are more processes with endpoints on this machine than processors that they share.
 *
 * An endpoint has a file in /dev/shm, and the name of the file contains the pid of the owner. The function counts this
 * process, and each other process of this user that may run on a processor of this process's affinity mask and has a thread
 * that runs or is ready to run; so neither ranks that are bound to different processors nor processes that sleep count. A
 * pid of a dead process (ESRCH) does not count; a pid of another pid namespace counts as the process with that pid here. The
 * count ignores processes without endpoints, and how many threads of a process run: the answer is a hint.
 *
 * The ranks of a job come within a short time. So look_at() reads the names again after LOOK_SOON_NS. It then doubles
 * the interval, up to LOOK_NS. It begins with LOOK_SOON_NS again when an endpoint meets a peer, and when the answer changes
 * from yes to no. Any thread may call; two at a time do the work twice.
 */
#define _GNU_SOURCE 1
#include <shmcma/core.h>

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include "os/addr.h"
#include "os/host.h"
#include "base/atomic.h"
#include "base/fault.h"
#include "proc/oversub.h"
#include "proc/process.h"
#include "proc/reap.h"

#define LOOK_SOON_NS 1000000
#define LOOK_NS 1000000000
/* A process spends at most one part in so many of its time on looks. */
#define LOOK_SHARE 64
/* The most processors that Linux can have on any machine. */
#define PROCESSORS_MAX 8192

typedef struct {
	unsigned long bits[PROCESSORS_MAX / (8 * sizeof(unsigned long))];
} mask;

struct pids {
	uint32_t uid; /* in the form of the names */
	uint32_t *pids;
	size_t count, room;
};

static void add_name(const char *name, void *arg)
{
	struct pids *pids = arg;
	struct sc_addr parts;

	if (sc_addr_parse_file(name, &parts) || parts.uid != pids->uid)
		return; /* a service, whose endpoint has another name; or of another user namespace */
	if (pids->count == pids->room) {
		size_t room = pids->room ? pids->room * 2 : 64;
		uint32_t *more = SC_TRY_PTR("oversub.pids", NULL, realloc(pids->pids, room * sizeof(*more)));

		if (!more)
			return;
		pids->pids = more;
		pids->room = room;
	}
	pids->pids[pids->count++] = parts.pid;
}

static int by_pid(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static bool get_mask(pid_t pid, mask *to)
{
	return !sched_getaffinity(pid, sizeof(*to), (cpu_set_t *)to);
}

static bool shares_processor(pid_t pid, const mask *here)
{
	mask its;

	if (!get_mask(pid, &its))
		return false;
	for (size_t i = 0; i < sizeof(its.bits) / sizeof(its.bits[0]); i++)
		if (its.bits[i] & here->bits[i])
			return true;
	return false;
}

/* Keeps those pids, each once, of other processes that may run on these processors. */
static void keep_neighbours(struct pids *pids, const mask *here)
{
	uint32_t self = (uint32_t)getpid(), last = self;
	size_t kept = 0;

	qsort(pids->pids, pids->count, sizeof(pids->pids[0]), by_pid);
	for (size_t i = 0; i < pids->count; i++) {
		uint32_t pid = pids->pids[i];

		if (pid != self && pid != last && shares_processor((pid_t)pid, here))
			pids->pids[kept++] = pid;
		last = pid;
	}
	pids->count = kept;
}

/*
 * Tells whether more than `most` of them want to run, this process included. To ask each whether it sleeps takes longest, so
 * a job that has a processor for each rank does not, and others ask until the answer is clear.
 */
static bool are_more(const struct pids *pids, size_t most)
{
	size_t all = 1 + pids->count, running = 1;

	for (size_t i = 0; running <= most && all > most && i < pids->count; i++)
		if (sc_host_is_running((pid_t)pids->pids[i]))
			running++;
		else
			all--;
	return all > most;
}

static bool look(void)
{
	const struct sc_host *host;
	struct pids pids = { 0 };
	mask here;
	bool more;

	if (!get_mask(0, &here) || sc_host_get(&host))
		return false;
	pids.uid = sc_addr_uid(host);
	(void)sc_reap_names(add_name, &pids); /* without names that it cannot read */
	if (pids.count)
		keep_neighbours(&pids, &here);
	more = are_more(&pids, (size_t)CPU_COUNT_S(sizeof(here), (cpu_set_t *)&here));
	free(pids.pids);
	return more;
}

/* Returns the nanoseconds until the next look. */
static uint64_t pause_after(uint64_t now)
{
	uint64_t first = sc_load_relaxed_64(&sc_process.oversub.first_look);

	if (!first)
		sc_store_relaxed_64(&sc_process.oversub.first_look, now);
	if (!first || now - first < LOOK_SOON_NS)
		return LOOK_SOON_NS;
	return now - first < LOOK_NS ? now - first : LOOK_NS;
}

/* relaxed: each word is valid without the others */
static void look_at(uint64_t now)
{
	uint64_t next = now + pause_after(now), least;
	bool more;

	sc_store_relaxed_64(&sc_process.oversub.next_look, next); /* for other threads */
	more = look();
	/* the other process may have slept only for a moment: look again soon */
	if (!more && sc_load_relaxed_32(&sc_process.oversub.answer))
		sc_store_relaxed_64(&sc_process.oversub.first_look, 0);
	sc_store_relaxed_32(&sc_process.oversub.answer, more);
	/* so it is, too, if an endpoint has met a peer meanwhile */
	if (!sc_load_relaxed_64(&sc_process.oversub.first_look))
		next = now + LOOK_SOON_NS;
	least = now + ((uint64_t)sc_clock_ns() - now) * LOOK_SHARE;
	sc_store_relaxed_64(&sc_process.oversub.least_next, least);
	sc_store_relaxed_64(&sc_process.oversub.next_look, next > least ? next : least);
}

bool sc_oversub_is_here(void)
{
	uint64_t now = (uint64_t)sc_clock_ns();

	if (now >= sc_load_relaxed_64(&sc_process.oversub.next_look))
		look_at(now);
	return sc_load_relaxed_32(&sc_process.oversub.answer);
}

void sc_oversub_look_soon(void)
{
	uint64_t soon = (uint64_t)sc_clock_ns() + LOOK_SOON_NS;
	uint64_t least = sc_load_relaxed_64(&sc_process.oversub.least_next);

	if (soon < least)
		soon = least;
	sc_store_relaxed_64(&sc_process.oversub.first_look, 0);
	if (sc_load_relaxed_64(&sc_process.oversub.next_look) > soon)
		sc_store_relaxed_64(&sc_process.oversub.next_look, soon);
}
