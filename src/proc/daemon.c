/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon.c: the thread of this process that finds out about the death of others, removes what they leave,
 * and keeps this process's own life locks.
 *
 * One for each process, from the first endpoint to sc_process_fini(); none in a forked child. It sleeps in
 * poll(2) over a pidfd for each process that peers belong to, and wakes for
 *
 *   a pidfd        the process has ended, its descriptors closed and so its life locks free: exit_notify()
 *                  comes after exit_files() of the last of its threads, not when the first one alone ends
 *   TICK_MS        own life locks are taken again (a no-op that heals), peers looked at by their locks, which
 *                  exec(2) frees without a sound from the pidfd, orphans removed, bells rung
 *   LOCK_MS        only while there are processes without pidfd, see below: a look at their locks
 *   a scan         some time after a death: others of the same job may have died with it, unknown to us; and once
 *                  when this process has begun, for names of the dead whose pid somebody has by now
 *   calibration    once, unless it is there: see calibration.c
 *   a look         twice a second: has a process ended that is no peer's? See leftover.c
 *   the pipe       a process to watch has come, or the end
 *   gathered       some time after such a process has come: pidfds of it and of others that have come meanwhile.
 *                  They do not delay a connection: a pidfd, and a look whether it is the right one, take a third as
 *                  long as all else of it
 *
 * It proves a death as any other process does (sc_reap_owner_is_dead()), marks the watches, rings the endpoints' bells,
 * and removes the names at once. The endpoint does the rest at its next poll: this thread touches nothing of an
 * endpoint but bell and watches, which are under sc_process.mutex, but for the words `rung` and `ended` (D1).
 *
 *   D1 release, ring(): watches marked before the count   pairs with  D1' sc_bell_hear()
 *
 * Not everything can be seen by a pidfd: not a process of another pid namespace, and none when descriptors
 * are short, see pidfd.c; and poll(2) takes no more places than the process may open descriptors by now. Of the
 * others, as far as they are peers', the life locks are polled, 0.3 us each ten times a second. So are those of all
 * where there is no place for the pipe, or poll(2) fails: then the thread sleeps without descriptors.
 *
 * closefrom(3), or a daemonising application, may close all descriptors and use their numbers again. Nothing
 * is closed, written to or believed here before its inode says that it still is ours; that is why this is
 * poll(2) and a pipe: epoll and eventfd have no inode of their own. poll(2) holds on to the files that it polls, so the
 * closing of the pipe's other end wakes the thread at once, and REPAIR_MS later the thread makes the lost descriptors again: not at once, as an application that closes
 * descriptors and uses their numbers again must not meet with others that come and go.
 *
 * The word of life (abi.h) in each own segment is a robust futex of this thread, see set_robust_list(2): when
 * the process ends or execs, the kernel walks the list of them and marks each, well before the pid is free (unless
 * the process is killed for want of memory, and has lost the list by then: that the pidfd tells). The
 * list's links lie beside the words, as the kernel wants a constant distance, so in shared memory; nothing here
 * reads them. A process that scribbles on link or word can make the kernel, in a process that ends, miss words or mark
 * others that hold this thread's tid; then peers take the slower proof without need, or trust a pid that was ours: for
 * a write that the scribbler, of the same user, could do itself, or a read of bytes that it could have written.
 *
 *   L1  a word is linked before it has the tid, and is 0 before it is unlinked: a tid that peers see is one
 *       that the kernel finds, whenever the process ends
 *
 * If the process dies at any instant, nothing else of this is shared; reap.c deals with a name half removed.
 *
 * Locks are taken in the order sc_process.mutex, then shmfile.c's and host.c's.
 */
#define _GNU_SOURCE 1
#include "proc/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#ifdef SC_HAVE_SINGLE_THREADED
#include <sys/single_threaded.h>
#else
#include <sys/stat.h>
#endif
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "os/addr.h"
#include "proc/calibration.h"
#include "os/host.h"
#include "base/fault.h"
#include "base/log.h"
#include "proc/leftover.h"
#include "os/shmfile.h"
#include "os/pidfd.h"
#include "os/pipe.h"
#include "proc/process.h"
#include "proc/reap.h"
#include "os/wake.h"

#define TICK_MS 30000
#define LOCK_MS 100
#define REPAIR_MS 200
/* After a death: soon, for what has died with it, and again for what took longer (2 GB: 130 ms). */
#define SCAN_SOON_MS 50
#define SCAN_AGAIN_MS 500
/*
 * A look for processes that have ended: all processes of the machine look at the same instants, so that a job whose
 * processes wait for each other is held up by one look, not by that of each. Figures: docs/MEASUREMENTS.md.
 */
#define LOOK_MS 500

/*
 * After a process to watch has come, pidfds of those that came with it are opened and polled: soon, or, where many come
 * one after the other, as all of a job do, so long after the last time, or after this process itself has come. A
 * sleeper hears so much later of one that ends meanwhile: a poller sees its word of life.
 */
#define GATHER_MS 5
#define GATHER_APART_MS 50

/*
 * The thread measures properties of the machine when its process has lasted for so long, not while it begins; of a job
 * that begins together the processes do so at different times, so that the first one measures and the others find the
 * result. Names of the dead whose pid somebody has by now are looked for later still.
 */
#define CALIBRATE_MS 200
#define SETTLED_MS 1200
#define SPREAD_MS 1024

#define STACK_SIZE (256 << 10) /* address space; the application's log function is called on it, too */

/* Of its time on a processor: the shortest that the kernel gives. It needs less each time that it wakes. */
#define SLICE_NS 100000
/* That there is room for from the start. */
#define DESCRIPTORS 512

/* The kernel follows a robust list for ROBUST_LIST_LIMIT (2048) links. */
#define LIVES_MAX 1024

/* A process that peers of ours belong to. */
struct sc_daemon_process {
	struct sc_list all;
	struct sc_list watches;
	pid_t pid;	 /* as seen from here, 0: not visible */
	uint64_t cookie; /* and with that, which process */
	bool gathered; /* a pidfd has been asked for: in sc_process.watched those first of which none has */
	int pidfd;	 /* its place, SC_NO_PIDFD: its locks are polled */
};

static int64_t now_ms(void)
{
	return sc_clock_ns() / 1000000;
}

/* ---- processes ------------------------------------------------------------------------------- */

static void pidfd_forget(struct sc_daemon_process *process)
{
	if (process->pidfd != SC_NO_PIDFD)
		sc_pidfd_put(process->pidfd);
	process->pidfd = SC_NO_PIDFD;
}

/* The owner is seen alive after the descriptor was opened, so it was it that had the pid. */
static void pidfd_get(struct sc_daemon_process *process, const struct sc_seg *seg)
{
	if (!process->pid)
		return;
	process->pidfd = sc_pidfd_get(process->pid);
	if (process->pidfd != SC_NO_PIDFD && sc_seg_check_owner(seg) != 1)
		pidfd_forget(process);
}

static struct sc_daemon_process *process_find(const struct sc_seg *seg)
{
	sc_list_for (entry, &sc_process.watched) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);

		if (process->pid == seg->cma_pid && process->cookie == seg->header.owner.cookie)
			return process;
	}
	return NULL;
}

/* One has come that is to be gathered. */
static void gather_soon_locked(void)
{
	int64_t apart = sc_process.gathered + GATHER_APART_MS;

	if (sc_process.gathers)
		return;
	sc_process.gathers = now_ms() + GATHER_MS;
	if (sc_process.gathers < apart)
		sc_process.gathers = apart;
	if (sc_process.gathers < sc_process.sleeps)
		(void)sc_process_wake_locked();
}

static struct sc_daemon_process *process_new(const struct sc_seg *seg)
{
	struct sc_daemon_process *process = calloc(1, sizeof(*process));

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
	struct sc_daemon_process *process = NULL;

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

static void process_put(struct sc_daemon_process *process)
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
	sc_list_remove(&watch->of_process);
	process_put(watch->process);
	watch->process = NULL;
	sc_process_unlock();
}

/* ---- words of life --------------------------------------------------------------------------- */

static struct robust_list *link_of(const struct sc_bell *bell)
{
	return (struct robust_list *)&bell->presence->life_next;
}

/* The one before in sc_process.bells that has a word, whose links go the same way; NULL: it is the first. */
static struct sc_bell *life_before(const struct sc_bell *bell)
{
	for (struct sc_list *entry = bell->all.prev; entry != &sc_process.bells; entry = entry->prev) {
		struct sc_bell *before = sc_list_entry(entry, struct sc_bell, all);

		if (before->presence)
			return before;
	}
	return NULL;
}

static struct robust_list *life_after(const struct sc_bell *bell)
{
	for (struct sc_list *entry = bell->all.next; entry != &sc_process.bells; entry = entry->next) {
		struct sc_bell *after = sc_list_entry(entry, struct sc_bell, all);

		if (after->presence)
			return link_of(after);
	}
	return &sc_process.lives.list;
}

/* The kernel reads it, in this thread or another, at any instant: one store. */
static void set_link(struct robust_list *link, struct robust_list *next)
{
	__atomic_store_n(&link->next, next, __ATOMIC_RELEASE);
}

/* L1. The bell is the first in the list. */
static void life_link_locked(struct sc_bell *bell)
{
	set_link(link_of(bell), life_after(bell));
	set_link(&sc_process.lives.list, link_of(bell));
	(void)SC_FAULT("daemon.linked");
	sc_store_release_32(&bell->presence->life, sc_process.tid);
	(void)SC_FAULT("daemon.alive");
}

/* L1 */
static void life_unlink_locked(struct sc_bell *bell)
{
	struct sc_bell *before = life_before(bell);

	sc_store_release_32(&bell->presence->life, 0);
	(void)SC_FAULT("daemon.unalive");
	set_link(before ? link_of(before) : &sc_process.lives.list, life_after(bell));
	(void)SC_FAULT("daemon.unlinked");
}

/* By the thread itself: at its beginning, with its tid, when the kernel knows the list; with 0 at its end. */
static void set_lives(uint32_t tid)
{
	sc_process_lock();
	sc_process.tid = tid;
	sc_list_for (entry, &sc_process.bells) {
		struct sc_bell *bell = sc_list_entry(entry, struct sc_bell, all);

		if (bell->presence)
			sc_store_release_32(&bell->presence->life, tid);
	}
	sc_process_unlock();
}

/* In place of libc's list for this thread, which takes no robust mutex. */
static void lives_begin(void)
{
	sc_process.lives.futex_offset = (long)offsetof(struct sc_abi_presence, life) -
				    (long)offsetof(struct sc_abi_presence, life_next);
	if (!SC_TRY("daemon.robust", syscall(SYS_set_robust_list, &sc_process.lives, sizeof(sc_process.lives))))
		set_lives((uint32_t)syscall(SYS_gettid));
}

/* ---- bells ----------------------------------------------------------------------------------- */

static void ring(struct sc_bell *bell)
{
	/* D1 release: pairs with D1' in sc_bell_hear() */
	sc_add_acq_rel_32(&bell->rung, 1);
	sc_wake(bell->sleep, SC_ABI_SLEEP_ASLEEP);
}

void sc_bell_open(struct sc_bell *bell, struct sc_seg *seg)
{
	*bell = (struct sc_bell){ .opened_by = sc_host_self(), .sleep = &sc_seg_presence(seg)->sleep };
	(void)sc_process_begin();
	sc_process_lock();
	sc_list_prepend(&sc_process.bells, &bell->all);
	if (sc_process.lives_count < LIVES_MAX) {
		sc_process.lives_count++;
		bell->presence = sc_seg_presence(seg);
		life_link_locked(bell);
	}
	sc_process_unlock();
}

bool sc_bell_is_first(void)
{
	bool first;

	(void)sc_process_begin();
	sc_process_lock();
	first = sc_list_empty(&sc_process.bells);
	sc_process_unlock();
	return first;
}

void sc_bell_close(struct sc_bell *bell)
{
	if (bell->opened_by != sc_host_self())
		return;
	sc_process_lock();
	if (bell->presence) {
		life_unlink_locked(bell);
		sc_process.lives_count--;
	}
	sc_list_remove(&bell->all);
	sc_process_unlock();
}

static void ring_all(void)
{
	sc_process_lock();
	sc_list_for (entry, &sc_process.bells)
		ring(sc_list_entry(entry, struct sc_bell, all));
	sc_process_unlock();
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A name to remove, once sc_process.mutex is free. */
static void note_name(const struct sc_seg *seg)
{
	struct sc_addr parts;

	if (sc_addr_parse(seg->header.address, &parts))
		return;
	sc_addr_file(&parts, sc_process.dead);
	sc_process.dead_count++;
}

static void watch_check(struct sc_watch *watch)
{
	if (watch->ended || !sc_reap_owner_is_dead(watch->seg))
		return;
	note_name(watch->seg);
	sc_store_relaxed_32(&watch->ended, 1); /* ordered by the next */
	ring(watch->bell);
}

static void process_check(struct sc_daemon_process *process)
{
	sc_list_for (entry, &process->watches)
		watch_check(sc_list_entry(entry, struct sc_watch, of_process));
}

/* Its pidfd says that it has ended, or that it is not its pidfd: nothing more is to be heard from it. */
static void pidfd_event(struct sc_daemon_process *process)
{
	process_check(process);
	pidfd_forget(process);
}

static bool is_over(const struct sc_daemon_process *process)
{
	sc_list_for (entry, &process->watches)
		if (!sc_list_entry(entry, struct sc_watch, of_process)->ended)
			return false;
	return true;
}

/* Is there nothing but its locks to tell whether it lives? */
static bool has_no_pidfd(const struct sc_daemon_process *process)
{
	return process->gathered &&
	       (process->pidfd == SC_NO_PIDFD || (nfds_t)process->pidfd + 1 >= sc_process.polled);
}

/* poll(2) refuses more places than the limit is now, however many are open. */
static nfds_t most_places(nfds_t wanted)
{
	struct rlimit limit;

	if (SC_TRY("daemon.limit", getrlimit(RLIMIT_NOFILE, &limit)))
		return 0;
	return limit.rlim_cur < wanted ? (nfds_t)limit.rlim_cur : wanted;
}

/* Arranges the descriptors to poll. */
static void arrange_locked(void)
{
	sc_process.polled = most_places(1 + sc_pidfds_arrange(sc_process.polls + 1));
	sc_process.polls[0] = (struct pollfd){ .fd = sc_process.pipe.ends[0], .events = POLLIN };
	sc_process.locks = !sc_process.polled; /* nor is the pipe heard */
	sc_list_for (entry, &sc_process.watched) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);

		sc_process.locks |= has_no_pidfd(process) && !is_over(process);
	}
}

static int timeout_locked(void)
{
	int64_t now = now_ms(), until = sc_process.tick;

	if (sc_process.scan && sc_process.scan < until)
		until = sc_process.scan;
	if (sc_process.gathers && sc_process.gathers < until)
		until = sc_process.gathers;
	if (sc_process.look && sc_process.look < until)
		until = sc_process.look;
	if (sc_process.calibration && sc_process.calibration < until)
		until = sc_process.calibration;
	if (sc_process.locks && now + LOCK_MS < until)
		until = now + LOCK_MS;
	sc_process.sleeps = until;
	return until <= now ? 0 : (int)(until - now);
}

static bool has_event(const struct sc_daemon_process *process)
{
	return process->pidfd != SC_NO_PIDFD && sc_pidfd_has_event(process->pidfd, sc_process.polls + 1);
}

/* After poll(2). `all`: look at each, whatever it says. */
static void look_locked(bool all)
{
	sc_list_for (entry, &sc_process.watched) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);

		if (has_event(process))
			pidfd_event(process);
		else if (all || has_no_pidfd(process))
			process_check(process);
	}
}

static struct sc_watch *first_watch(const struct sc_daemon_process *process)
{
	return sc_list_entry(process->watches.next, struct sc_watch, of_process);
}

/* The next to be gathered. False: there is none. */
static bool gather_one_locked(void)
{
	struct sc_daemon_process *process =
		sc_list_entry(sc_process.watched.next, struct sc_daemon_process, all);

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

/* One at a time, so that a thread that connects does not wait for all of them. */
static void gather(void)
{
	bool due, more;

	sc_process_lock();
	due = sc_process.gathers && now_ms() >= sc_process.gathers;
	if (due) {
		sc_process.gathered = now_ms();
		sc_process.gathers = 0;
	}
	sc_process_unlock();
	for (more = due; more;) {
		sc_process_lock();
		more = gather_one_locked();
		sc_process_unlock();
	}
}

/* Descriptors that the application has closed, or that there was no room for. */
static void repair_locked(void)
{
	if (sc_process.pipe.ends[0] < 0)
		(void)sc_pipe_open(&sc_process.pipe); /* else at the next tick */
	sc_list_for (entry, &sc_process.watched) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);

		if (process->pidfd != SC_NO_PIDFD && !sc_pidfd_is_open(process->pidfd))
			pidfd_forget(process);
		if (process->pidfd == SC_NO_PIDFD && !is_over(process))
			pidfd_get(process, first_watch(process)->seg);
	}
}

/* The earlier of the two times. */
static void due_in(int64_t *due, int ms)
{
	int64_t at = now_ms() + ms;

	if (!*due || at < *due)
		*due = at;
}

static void reap_dead(void)
{
	if (!sc_process.dead_count)
		return;
	if (sc_process.dead_count == 1)
		(void)sc_reap_name(sc_process.dead);
	else
		(void)sc_reap_scan(); /* many: one look for peers that await them, for all */
	sc_process.dead_count = 0;
	sc_process.scans = 2;
	due_in(&sc_process.scan, SCAN_SOON_MS);
}

static int64_t next_look(void)
{
	return (now_ms() / LOOK_MS + 1) * LOOK_MS;
}

static void look(void)
{
	if (!sc_process.look || now_ms() < sc_process.look)
		return;
	sc_process.look = next_look();
	if (!sc_leftover_look(&sc_process.leftovers))
		return;
	sc_process.scans = 2;
	sc_process.scan = now_ms();
}

/* After a scan the endpoints look at claims that the dead have blocked. */
static void scan(void)
{
	sc_seg_forget_found(); /* it may be of the dead */
	(void)sc_reap_scan();
	ring_all(); /* claims of the dead */
	sc_process.scans -= sc_process.scans > 0;
	sc_process.scan = sc_process.scans ? now_ms() + SCAN_AGAIN_MS : 0;
}

/* The work after poll(2) that needs sc_process.mutex. False: the end. */
static bool look_around(bool tick)
{
	bool on, lost = false;

	sc_process_lock();
	on = sc_process.state == SC_PROCESS_WATCHES;
	if (on) {
		lost = sc_process.pipe.ends[0] >= 0 && !sc_pipe_hear(&sc_process.pipe);
		look_locked(tick);
	}
	if (lost)
		sc_pipe_close(&sc_process.pipe);
	if (on && tick)
		repair_locked();
	sc_process_unlock();
	if (lost && sc_process.tick > now_ms() + REPAIR_MS)
		sc_process.tick = now_ms() + REPAIR_MS;
	return on;
}

static void keep(void)
{
	bool again = sc_shmfile_keep_all() == -EAGAIN || sc_process.pipe.ends[0] < 0;

	sc_seg_forget_found();
	sc_process.tick = now_ms() + (again ? REPAIR_MS : TICK_MS);
}

static void calibrate(void)
{
	if (!sc_process.calibration || now_ms() < sc_process.calibration)
		return;
	sc_process.calibration = 0;
	sc_calibration_make();
}

/* EINVAL, ENOMEM and any other error that may last: not tried again at once, and nothing is known of any descriptor. */
static void sleep_without_descriptors(int timeout)
{
	int64_t ns = (timeout < LOCK_MS ? timeout : LOCK_MS) * INT64_C(1000000);

	sc_process.polled = 0;
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static void sleep_well(int timeout)
{
	if (SC_TRY("daemon.poll", poll(sc_process.polls, sc_process.polled, timeout)) >= 0)
		return;
	if (errno != EINTR)
		sleep_without_descriptors(timeout);
	memset(sc_process.polls, 0, sizeof(sc_process.polls));
}

static bool round_once(void)
{
	int timeout;
	bool tick;

	sc_process_lock();
	arrange_locked();
	timeout = timeout_locked();
	sc_process_unlock();
	sleep_well(timeout);
	tick = now_ms() >= sc_process.tick;
	if (!look_around(tick))
		return false;
	gather();
	reap_dead();
	if (tick)
		keep();
	look();
	calibrate();
	if ((tick && sc_process.scans_ticks) || (sc_process.scan && now_ms() >= sc_process.scan))
		scan();
	return true;
}

/*
 * From Linux 6.12 on who asks for short slices runs as soon as it is woken, before others that fill the processors:
 * a death is to be known soon there, too. Older kernels take no notice. Measured with test_kill, 4 and 8 workers,
 * on two processors with 40 runnable processes, from the end of a process to the wake-up of this thread: 1.0 ms at
 * the 90th percentile, 3.7 at the 95th; 0.1 and 0.5 with short slices.
 */
static void ask_for_short_slices(void)
{
	struct { /* sched_setattr(2) */
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { 0 };

	if (SC_TRY("daemon.getattr", syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0)) ||
	    attr.policy != SCHED_OTHER)
		return; /* the application has chosen another policy: its affair */
	attr.runtime = SLICE_NS;
	(void)SC_TRY("daemon.setattr", syscall(SYS_sched_setattr, 0, &attr, 0));
}

static void *run(void *unused)
{
	int64_t begun;

	(void)unused;
	(void)pthread_setname_np(pthread_self(), "shmcma-daemon");
	sc_process.tick = now_ms() + TICK_MS;
	sc_process.look = sc_process.scans_ticks ? next_look() : 0;
	begun = now_ms() + (int64_t)(sc_host_self() % SPREAD_MS);
	sc_process.scan = sc_process.scans_ticks ? begun + SETTLED_MS : 0;
	sc_process.calibration = sc_process.calibrates ? begun + CALIBRATE_MS : 0;
	sc_process.scans = 0;
	sc_process.dead_count = 0;
	ask_for_short_slices();
	lives_begin();
	while (round_once())
		;
	set_lives(0);
	sc_leftover_fini(&sc_process.leftovers);
	return NULL;
}

/* ---- start and end --------------------------------------------------------------------------- */

static bool is_single_threaded(void)
{
#ifdef SC_HAVE_SINGLE_THREADED
	return __libc_single_threaded;
#else
	struct stat tasks;

	return !SC_TRY("daemon.tasks", stat("/proc/self/task", &tasks)) &&
	       tasks.st_nlink == 3; /* ".", "..", and one thread's */
#endif
}

/*
 * Descriptors are kept for peers. As soon as a process has two threads, a table of them that has to grow waits until no
 * processor can be reading the old one (expand_fdtable() in the kernel's fs/file.c: synchronize_rcu()): 5 ms at the
 * 64th. So it grows before the first thread of a process is ours; afterwards that would be waited for here.
 */
static void make_room_for_descriptors(int any)
{
	int last;

	if (!is_single_threaded())
		return;
	last = SC_TRY("daemon.room", fcntl(any, F_DUPFD_CLOEXEC, DESCRIPTORS - 1));
	if (last >= 0)
		SC_CALL("daemon.room_close", close(last));
}

static int start_locked(void)
{
	int err = sc_process_begin() ? sc_pipe_open(&sc_process.pipe) : -ENOMEM;

	if (err)
		return err;
	make_room_for_descriptors(sc_process.pipe.ends[0]);
	sc_process.state = SC_PROCESS_WATCHES;
	sc_process.gathers = 0;
	sc_process.gathered = now_ms();
	err = -SC_FAIL("daemon.thread");
	if (!err)
		err = sc_thread_start(&sc_process.thread, STACK_SIZE, run, NULL);
	if (err) {
		sc_process.state = SC_PROCESS_ALONE;
		sc_pipe_close(&sc_process.pipe);
	}
	return err;
}

bool sc_daemon_start(const struct sc_config *config)
{
	bool runs, say;
	int err = 0;

	(void)sc_process_begin();
	sc_process_lock();
	if (sc_process.state == SC_PROCESS_ALONE) {
		sc_process.scans_ticks = config->scan;
		sc_process.calibrates = config->calibrate;
		err = start_locked();
	}
	runs = sc_process.state == SC_PROCESS_WATCHES;
	say = err && !sc_process.said;
	sc_process.said |= say;
	sc_process_unlock();
	if (say)
		sc_warn("no thread to watch other processes: %s; the death of a peer is found by polling "
			"only "
			"(see ulimit -u, ulimit -n; FI_SHMCMA_DAEMON=0 does without it)",
			strerror(-err));
	return runs;
}

/* When one that has lost its pipe has looked once more. */
static struct timespec soon(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_nsec += 2 * REPAIR_MS * 1000000L;
	time.tv_sec += time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

static bool ends_soon(pthread_t thread)
{
#ifdef SC_HAVE_CLOCKJOIN
	const struct timespec limit = soon(CLOCK_MONOTONIC);

	return !pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &limit);
#else
	const struct timespec limit = soon(CLOCK_REALTIME);

	return !pthread_timedjoin_np(thread, NULL, &limit);
#endif
}

/*
 * Endpoints may outlive it; they are rung no more. A thread that cannot be woken, because the application has
 * closed the pipe, sees the end soon by itself, or later if a child holds on to the pipe: then it is not
 * waited for.
 */
static void stop(void)
{
	pthread_t thread;
	bool woken, ended;

	sc_process_lock();
	if (sc_process.state != SC_PROCESS_WATCHES) {
		sc_process_unlock();
		return;
	}
	sc_process.state = SC_PROCESS_STOPS;
	woken = sc_process_wake_locked();
	thread = sc_process.thread;
	sc_process_unlock();
	ended = woken ? !pthread_join(thread, NULL) : ends_soon(thread);
	if (!ended)
		pthread_detach(thread);
	sc_process_lock();
	if (ended)
		sc_process.state = SC_PROCESS_ALONE; /* else what is the thread's is not for another */
	sc_pipe_close(&sc_process.pipe);
	sc_process_unlock();
}

void sc_process_fini(void)
{
	stop();
	sc_reap_own();
}
