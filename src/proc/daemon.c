/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * daemon.c: the thread of this process that learns of the deaths of other processes, removes their files, and keeps
 * this process's own life locks.
 *
 * Each process has one such thread, from its first endpoint with sc_config.daemon to sc_process_fini(); a forked child has
 * none. The thread sleeps in poll(2) over a pidfd for each process that peers belong to, and wakes for these reasons:
 *
 *   a pidfd        a process has ended. Its descriptors are closed, and so its life locks are free: the kernel calls
 *                  exit_notify() after exit_files() of the last thread, not when the first thread alone ends
 *   TICK_MS        the thread takes own life locks again (usually a no-op), checks the life locks of all peers, which
 *                  exec(2) frees without an event of the pidfd, scans for orphans and rings all bells
 *   LOCK_MS        only while a watched process has no pidfd, see watch.c: the thread checks its locks
 *   a scan         some time after a death, as other processes of the job may have died that are no peers; and once
 *                  after the begin of this process, for files of a dead process whose pid another process has by now
 *   calibration    once, unless the machine has a calibration, see calibration.c
 *   a look         twice a second, for processes that have ended and are no peers, see leftover.c
 *   the pipe       another thread has a new process to watch, has proven a death first, or stops this thread
 *   SC_RESCUE_MS   while there are delegated puts that an application may have injected, see rescue.c
 *   gathered       some time after new processes to watch: the thread opens their pidfds together. A connecting thread
 *                  does not: to open and verify a pidfd takes a third of the time of all the rest
 *
 * The thread proves a death as any other process does (sc_owner_is_dead()). It marks the watches, rings the bells of
 * the endpoints, and removes the names at once. Each endpoint does the rest at its next poll: this thread touches
 * nothing of an endpoint except its bell and watches (bell.c, watch.c).
 *
 * The application may close all descriptors and use their numbers again, by closefrom(3) or when it daemonises. So this
 * thread checks the inode of a descriptor before it closes it, writes to it or trusts it. It uses poll(2) and a pipe
 * because epoll and eventfd have no inode of their own. poll(2) holds references to the polled files, so the thread
 * wakes at once when the application closes the pipe's other end. It makes the lost descriptors again REPAIR_MS later:
 * while the application reuses the numbers, no other descriptors may come and go.
 *
 * If the process dies at any instant, no other process depends on this state; reap.c handles a removal half done.
 *
 * Threads take locks in this order: sc_process.mutex, then the mutexes of src/os/self.h.
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
#include "proc/rescue.h"

#define TICK_MS 30000
#define LOCK_MS 100
#define REPAIR_MS 200
/* Scans after a death: soon, for processes that died with it; again, for slower ones (2 GB take 130 ms to end). */
#define SCAN_SOON_MS 50
#define SCAN_AGAIN_MS 500
/*
 * Time between two looks for leftovers. All processes of the machine look at the same instants: a job whose processes
 * wait for each other then loses the time of one look, not of all. See docs/MEASUREMENTS.md, "Looking for leftovers".
 */
#define LOOK_MS 500

/*
 * Times after the thread's begin, when the application has started: of the calibration, and of the scan for files of
 * dead processes whose pid another process has. The processes of a job add different delays, below SPREAD_MS: the first
 * ones measure, the others find their file. CALIBRATE_AGAIN_MS: between two measurements of one process.
 */
#define CALIBRATE_MS 200
#define CALIBRATE_AGAIN_MS 500
#define SETTLED_MS 1200
#define SPREAD_MS 1024

#define STACK_SIZE (256 << 10) /* address space; the application's log function runs on this stack, too */

/* The shortest time slice that the kernel gives; the thread needs less after each wake-up. */
#define SLICE_NS 100000
/* The kernel's table of descriptors has space for so many before the thread starts. */
#define DESCRIPTORS 512

/* ---- the thread ------------------------------------------------------------------------------ */

/* poll(2) refuses more places than the present limit of descriptors, however few are open. */
static nfds_t most_places(nfds_t wanted)
{
	struct rlimit limit;

	if (SC_TRY("daemon.limit", getrlimit(RLIMIT_NOFILE, &limit)))
		return 0;
	return limit.rlim_cur < wanted ? (nfds_t)limit.rlim_cur : wanted;
}

/* Fills sc_process.polls with the descriptors to poll. */
static void arrange_locked(void)
{
	sc_process.polled = most_places(1 + sc_pidfds_arrange(sc_process.polls + 1));
	sc_process.polls[0] = (struct pollfd){ .fd = sc_process.pipe.ends[0], .events = POLLIN };
	sc_process.locks = !sc_process.polled /* not even the pipe */ || sc_watches_need_locks_locked();
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
	if (sc_load_relaxed_32(&sc_process.rescue_looks) && now + SC_RESCUE_MS < until)
		until = now + SC_RESCUE_MS;
	sc_process.sleeps = until;
	return until <= now ? 0 : (int)(until - now);
}

/* Moves the time `due` (0: none) to `ms` from now, unless it is earlier. */
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

/* Removes files of dead processes. Then the endpoints look at the claims of dead processes. */
static void scan(void)
{
	(void)sc_reap_scan();
	sc_bells_ring_all();
	sc_process.scans -= sc_process.scans > 0;
	sc_process.scan = sc_process.scans ? sc_process_now_ms() + SCAN_AGAIN_MS : 0;
}

/* Does the work after poll(2) that needs sc_process.mutex. False: the thread ends. */
static bool look_around(bool tick)
{
	bool on, lost = false;

	sc_process_lock();
	on = sc_process.state == SC_PROCESS_WATCHES;
	if (on) {
		lost = sc_process.pipe.ends[0] >= 0 && !sc_pipe_hear(&sc_process.pipe);
		sc_watches_look_locked(tick);
		sc_rescue_look_locked();
	}
	if (lost)
		sc_pipe_close(&sc_process.pipe);
	if (on && tick) {
		if (sc_process.pipe.ends[0] < 0)
			(void)sc_pipe_open(&sc_process.pipe); /* or the next tick does */
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

	sc_process.tick = sc_process_now_ms() + (again ? REPAIR_MS : TICK_MS);
}

static void calibrate(void)
{
	if (!sc_process.calibration || sc_process_now_ms() < sc_process.calibration)
		return;
	sc_process.calibration = sc_calibration_make() ? sc_process_now_ms() + CALIBRATE_AGAIN_MS : 0;
}

/* After EINVAL, ENOMEM and other errors that may last: the thread waits, and knows nothing of any descriptor. */
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
 * Asks for short time slices. From Linux 6.12 on, such a thread runs as soon as it is woken, so it learns of a death
 * soon although others fill the processors. Older kernels ignore that. docs/MEASUREMENTS.md, "Knowing a death"
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
		return; /* the application has chosen another policy, which stays */
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
	ask_for_short_slices();
	sc_lives_begin();
	while (round_once())
		;
	sc_lives_end();
	sc_leftover_fini(&sc_process.leftovers);
	sc_process_lock();
	sc_pipe_close(&sc_process.pipe);
	sc_process.state = SC_PROCESS_ALONE; /* the next thread may use all this */
	sc_process_unlock();
	return NULL;
}

/* ---- start and end --------------------------------------------------------------------------- */

bool sc_process_is_single_threaded(void)
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
 * Makes the kernel's table of descriptors large before this process has a second thread. With two threads, a growing
 * table waits until no processor can be reading the old one (synchronize_rcu() in expand_fdtable(), fs/file.c of the
 * kernel): 5 ms at the 64th descriptor. Peers need descriptors, so their connections would wait for that.
 */
static void make_room_for_descriptors(int any)
{
	int last;

	if (!sc_process_is_single_threaded())
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

/* Returns the time by which a thread without pipe has looked at its state again. */
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
 * Stops the thread. Endpoints may outlive it; nothing rings their bells then. If the application has closed the pipe,
 * nothing can wake the thread: it sees the stop soon by itself, or later if a child holds the pipe open; then the
 * caller does not wait for it.
 */
static void stop(void)
{
	pthread_t thread;
	bool woken;

	sc_process_lock();
	if (sc_process.state != SC_PROCESS_WATCHES) {
		sc_process_unlock();
		return;
	}
	sc_process.state = SC_PROCESS_STOPS;
	woken = sc_process_wake_locked();
	thread = sc_process.thread;
	sc_process_unlock();
	if (woken) {
		pthread_join(thread, NULL);
	} else if (!ends_soon(thread)) {
		pthread_detach(thread);
		sc_warn("the thread that watches other processes still sleeps, for %d s at most: the "
			"application has closed the descriptors that wake it, and a child process has "
			"them open; until it has ended, new endpoints find the death of a peer by "
			"polling only (close no descriptors of libraries; FI_SHMCMA_DAEMON=0 does "
			"without the thread)",
			TICK_MS / 1000);
	}
}

void sc_process_fini(void)
{
	sc_rescue_finish();
	stop();
	sc_reap_own();
}
