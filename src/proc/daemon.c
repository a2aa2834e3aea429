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
 * It proves a death as any other process does (sc_owner_is_dead()), marks the watches, rings the endpoints' bells,
 * and removes the names at once. The endpoint does the rest at its next poll: this thread touches nothing of an
 * endpoint but bell and watches (bell.c, watch.c).
 *
 * closefrom(3), or a daemonising application, may close all descriptors and use their numbers again. Nothing
 * is closed, written to or believed here before its inode says that it still is ours; that is why this is
 * poll(2) and a pipe: epoll and eventfd have no inode of their own. poll(2) holds on to the files that it polls, so the
 * closing of the pipe's other end wakes the thread at once, and REPAIR_MS later the thread makes the lost descriptors
 * again: not at once, as an application that closes descriptors and uses their numbers again must not meet with others
 * that come and go.
 *
 * If the process dies at any instant, nothing else of this is shared; reap.c deals with a name half removed.
 *
 * Locks are taken in the order sc_process.mutex, then shmfile.c's and host.c's.
 */
#define _GNU_SOURCE 1
#include "proc/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
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
#include "proc/calibration.h"
#include "os/host.h"
#include "base/fault.h"
#include "base/log.h"
#include "proc/leftover.h"
#include "os/shmfile.h"
#include "os/pidfd.h"
#include "os/pipe.h"
#include "proc/bell.h"
#include "proc/process.h"
#include "proc/watch.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/found.h"

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

/* ---- the thread ------------------------------------------------------------------------------ */

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
	sc_process.locks = !sc_process.polled /* nor is the pipe heard */ || sc_watches_need_locks_locked();
}

static int timeout_locked(void)
{
	int64_t now = sc_process_now_ms(), until = sc_process.tick;

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

/* The earlier of the two times. */
static void due_in(int64_t *due, int ms)
{
	int64_t at = sc_process_now_ms() + ms;

	if (!*due || at < *due)
		*due = at;
}

static int64_t next_look(void)
{
	return (sc_process_now_ms() / LOOK_MS + 1) * LOOK_MS;
}

static void look(void)
{
	if (!sc_process.look || sc_process_now_ms() < sc_process.look)
		return;
	sc_process.look = next_look();
	if (!sc_leftover_look(&sc_process.leftovers))
		return;
	sc_process.scans = 2;
	sc_process.scan = sc_process_now_ms();
}

/* After a scan the endpoints look at claims that the dead have blocked. */
static void scan(void)
{
	sc_found_forget(); /* it may be of the dead */
	(void)sc_reap_scan();
	sc_bells_ring_all(); /* claims of the dead */
	sc_process.scans -= sc_process.scans > 0;
	sc_process.scan = sc_process.scans ? sc_process_now_ms() + SCAN_AGAIN_MS : 0;
}

/* The work after poll(2) that needs sc_process.mutex. False: the end. */
static bool look_around(bool tick)
{
	bool on, lost = false;

	sc_process_lock();
	on = sc_process.state == SC_PROCESS_WATCHES;
	if (on) {
		lost = sc_process.pipe.ends[0] >= 0 && !sc_pipe_hear(&sc_process.pipe);
		sc_watches_look_locked(tick);
	}
	if (lost)
		sc_pipe_close(&sc_process.pipe);
	if (on && tick) {
		if (sc_process.pipe.ends[0] < 0)
			(void)sc_pipe_open(&sc_process.pipe); /* else at the next tick */
		sc_watches_repair_locked();
	}
	sc_process_unlock();
	if (lost && sc_process.tick > sc_process_now_ms() + REPAIR_MS)
		sc_process.tick = sc_process_now_ms() + REPAIR_MS;
	return on;
}

static void keep(void)
{
	bool again = sc_shmfile_keep_all() == -EAGAIN || sc_process.pipe.ends[0] < 0;

	sc_found_forget();
	sc_process.tick = sc_process_now_ms() + (again ? REPAIR_MS : TICK_MS);
}

static void calibrate(void)
{
	if (!sc_process.calibration || sc_process_now_ms() < sc_process.calibration)
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
	tick = sc_process_now_ms() >= sc_process.tick;
	if (!look_around(tick))
		return false;
	sc_watches_gather();
	if (sc_watches_reap()) {
		sc_process.scans = 2;
		due_in(&sc_process.scan, SCAN_SOON_MS);
	}
	if (tick)
		keep();
	look();
	calibrate();
	if ((tick && sc_process.scans_ticks) || (sc_process.scan && sc_process_now_ms() >= sc_process.scan))
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
	sc_process.tick = sc_process_now_ms() + TICK_MS;
	sc_process.look = sc_process.scans_ticks ? next_look() : 0;
	begun = sc_process_now_ms() + (int64_t)(sc_host_self() % SPREAD_MS);
	sc_process.scan = sc_process.scans_ticks ? begun + SETTLED_MS : 0;
	sc_process.calibration = sc_process.calibrates ? begun + CALIBRATE_MS : 0;
	sc_process.scans = 0;
	sc_process.dead_count = 0;
	ask_for_short_slices();
	sc_lives_begin();
	while (round_once())
		;
	sc_lives_end();
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
	sc_process.gathered = sc_process_now_ms();
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
