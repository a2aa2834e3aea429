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
 *   a scan         some time after a death: others of the same job may have died with it, unknown to us
 *   the pipe       a process to watch has come, or the end
 *
 * It proves a death as everybody does (sc_reap_owner_is_dead()), marks the watches, rings the endpoints'
 * bells, and removes the names at once. What follows is the endpoint's own work at its next poll: this thread
 * touches nothing of an endpoint but bell and watches, which are under daemon_mutex, but for the words `rung`
 * and `ended` (D1).
 *
 *   D1 release, ring(): watches marked before the count   pairs with  D1' sc_bell_hear()
 *
 * Not everything can be seen by a pidfd: not a process of another pid namespace, and none when descriptors
 * are short: there are at most PIDFDS_MAX, and no more than a quarter of what the process may open (the
 * segments' own descriptors may be another quarter). Of the others the life locks are polled, 0.3 us each ten
 * times a second.
 *
 * closefrom(3), or a daemonising application, may close all descriptors and use their numbers again. Nothing
 * is closed, written to or believed here before its inode says that it still is ours; that is why this is
 * poll(2) and a pipe: epoll and eventfd have no inode of their own. poll(2) holds on to what it polls, so the
 * closing of the pipe's other end wakes the thread at once, and REPAIR_MS later what was lost is made again:
 * not at once, as who is closing and using numbers again must not meet with descriptors that come and go.
 *
 * The word of life (abi.h) in each own segment is a robust futex of this thread, see set_robust_list(2): when
 * the process ends or execs, the kernel walks the list of them and marks each, well before the pid is free. The
 * list's links lie beside the words, as the kernel wants a constant distance, so in shared memory; nothing here
 * reads them. Who scribbles on link or word can make the kernel, in a process that ends, miss words or mark
 * others that hold this thread's tid; then peers take the slower proof without need, or trust a pid that was
 * ours: for a write that the scribbler, of the same user, could do itself.
 *
 *   L1  a word is linked before it has the tid, and is 0 before it is unlinked: a tid that peers see is one
 *       that the kernel finds, whenever the process ends
 *
 * Should the process die at any instant, nothing else of this is shared; a name half removed is reap.c's affair.
 *
 * Locks are taken in the order daemon_mutex, then own.c's and host.c's.
 */
#define _GNU_SOURCE 1
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "addr.h"
#include "host.h"
#include "inject.h"
#include "log.h"
#include "own.h"
#include "reap.h"
#include "wake.h"

#define TICK_MS 30000
#define LOCK_MS 100
#define REPAIR_MS 200
/* After a death: soon, for what has died with it, and again for what took longer (2 GB: 130 ms). */
#define SCAN_SOON_MS 50
#define SCAN_AGAIN_MS 500

#define PIDFDS_MAX 256
#define STACK_SIZE (256 << 10) /* address space; the application's log function is called on it, too */
#define NAMES_MAX 32	       /* removed at once; more are left to the scan */

#define NO_PIDFD -1

/* The kernel follows a robust list for ROBUST_LIST_LIMIT (2048) links. */
#define LIVES_MAX 1024

/* A process that peers of ours belong to. */
struct sc_daemon_process {
	struct sc_list all;
	struct sc_list watches;
	pid_t pid;	 /* as seen from here, 0: not visible */
	uint64_t cookie; /* and with that, which process */
	int pidfd;	 /* in daemon_pidfds, NO_PIDFD: its locks are polled */
};

/* In a table, not in the processes, for a forked child: its copy of lists may be half changed. */
struct pidfd {
	bool used, polled; /* polled: since it was opened */
	int fd;
	pid_t pid;
	uint64_t ino; /* 0: not known */
};

enum state { STATE_NONE, STATE_RUNS, STATE_STOPS };

static pthread_once_t daemon_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t daemon_mutex = PTHREAD_MUTEX_INITIALIZER; /* all but what the thread alone uses */
static enum state daemon_state;
static pthread_t daemon_thread;
static bool daemon_said; /* why it cannot be started */
static struct sc_list daemon_processes, daemon_bells;
static struct sc_list
	daemon_inherited[8]; /* by forked children, who leave it alone; so that it is no leak */
static unsigned int daemon_forks;
static uint32_t daemon_tid; /* for words of life; 0: none, or not yet */
static struct robust_list_head daemon_lives;
static int daemon_lives_count;
static struct pidfd daemon_pidfds[PIDFDS_MAX];
static int daemon_pidfd_count;
static struct {
	int ends[2]; /* -1: none */
	dev_t dev;
	ino_t ino;
	bool written; /* and not read yet */
} daemon_pipe = { .ends = { -1, -1 } };

/* The thread's own. Times in ms of CLOCK_MONOTONIC, which no change of the clock moves. */
static struct pollfd daemon_polls[1 + PIDFDS_MAX]; /* the pipe, then as daemon_pidfds */
static int64_t daemon_tick, daemon_scan; /* when the next one is due; 0: no scan but with the tick */
static int daemon_scans;		 /* left to do after a death */
static bool daemon_locks;		 /* some process's locks are to be polled */
static char daemon_dead[NAMES_MAX][SC_ADDR_NAME_MAX];
static int daemon_dead_count;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- pipe ------------------------------------------------------------------------------------ */

static bool pipe_is_open(int end)
{
	return sc_own_is_open(daemon_pipe.ends[end], daemon_pipe.dev, daemon_pipe.ino);
}

static void pipe_close_locked(void)
{
	for (int end = 0; end < 2; end++) {
		if (pipe_is_open(end))
			close(daemon_pipe.ends[end]);
		daemon_pipe.ends[end] = -1;
	}
	daemon_pipe.written = false;
}

static int pipe_open_locked(void)
{
	struct stat st;

	if (SC_TRY("daemon.pipe", pipe2(daemon_pipe.ends, O_CLOEXEC | O_NONBLOCK))) {
		daemon_pipe.ends[0] = daemon_pipe.ends[1] = -1;
		return -errno;
	}
	(void)fstat(daemon_pipe.ends[0], &st); /* of a descriptor just opened; both ends have one inode */
	daemon_pipe.dev = st.st_dev;
	daemon_pipe.ino = st.st_ino;
	return 0;
}

/* False: it will wake when its time has come. */
static bool wake_locked(void)
{
	if (daemon_state == STATE_NONE || !pipe_is_open(1))
		return false;
	if (!daemon_pipe.written)
		daemon_pipe.written = write(daemon_pipe.ends[1], "", 1) == 1;
	(void)SC_INJECT("daemon.wake");
	return daemon_pipe.written;
}

/* False: the application has closed it. */
static bool pipe_read_locked(void)
{
	char bytes[16];

	if (!pipe_is_open(0) || !pipe_is_open(1)) {
		pipe_close_locked();
		return false;
	}
	while (read(daemon_pipe.ends[0], bytes, sizeof(bytes)) > 0)
		;
	daemon_pipe.written = false;
	return true;
}

/* ---- processes ------------------------------------------------------------------------------- */

static int pidfds_most(void)
{
	struct rlimit limit;
	rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) ? 0 : limit.rlim_cur / 4;

	return most < PIDFDS_MAX ? (int)most : PIDFDS_MAX;
}

static bool pidfd_is_open(const struct pidfd *pidfd)
{
	return pidfd->used && sc_host_is_pidfd(pidfd->fd, pidfd->pid, pidfd->ino);
}

static void pidfd_close(struct pidfd *pidfd)
{
	bool open = pidfd_is_open(pidfd);

	pidfd->used = false; /* first: a child that is forked now does not close what may be another's */
	if (open)
		close(pidfd->fd);
}

static int pidfd_find_unused(void)
{
	for (int i = 0; i < PIDFDS_MAX; i++)
		if (!daemon_pidfds[i].used)
			return i;
	return NO_PIDFD;
}

static void pidfd_forget(struct sc_daemon_process *process)
{
	if (process->pidfd == NO_PIDFD)
		return;
	pidfd_close(&daemon_pidfds[process->pidfd]);
	daemon_pidfd_count--;
	process->pidfd = NO_PIDFD;
}

/* The owner is seen alive after the descriptor was opened, so it was it that had the pid. */
static void pidfd_get(struct sc_daemon_process *process, const struct sc_seg *seg)
{
	int fd, index = pidfd_find_unused();

	if (!process->pid || index == NO_PIDFD || daemon_pidfd_count >= pidfds_most())
		return;
	fd = SC_TRY("daemon.pidfd", sc_host_open_pidfd(process->pid));
	if (fd < 0)
		return;
	daemon_pidfds[index] = (struct pidfd){
		.used = true, .fd = fd, .pid = process->pid, .ino = sc_host_pidfd_inode(fd)
	};
	daemon_pidfd_count++;
	process->pidfd = index;
	if (sc_seg_check_owner(seg) != 1)
		pidfd_forget(process);
}

static struct sc_daemon_process *process_find(const struct sc_seg *seg)
{
	sc_list_for (entry, &daemon_processes) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);

		if (process->pid == seg->cma_pid && process->cookie == seg->header.cookie)
			return process;
	}
	return NULL;
}

static struct sc_daemon_process *process_new(const struct sc_seg *seg)
{
	struct sc_daemon_process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->pid = seg->cma_pid;
	process->cookie = seg->header.cookie;
	process->pidfd = NO_PIDFD;
	sc_list_init(&process->watches);
	sc_list_append(&daemon_processes, &process->all);
	pidfd_get(process, seg);
	(void)wake_locked();
	return process;
}

void sc_watch_add(struct sc_watch *watch, const struct sc_seg *seg, struct sc_bell *bell)
{
	struct sc_daemon_process *process = NULL;

	*watch = (struct sc_watch){ .seg = seg, .bell = bell };
	if (seg->own || seg->lender)
		return;
	pthread_mutex_lock(&daemon_mutex);
	if (daemon_state == STATE_RUNS) {
		process = process_find(seg);
		process = process ? process : process_new(seg);
	}
	watch->process = process;
	if (process)
		sc_list_append(&process->watches, &watch->of_process);
	pthread_mutex_unlock(&daemon_mutex);
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
	pthread_mutex_lock(&daemon_mutex);
	sc_list_remove(&watch->of_process);
	process_put(watch->process);
	watch->process = NULL;
	pthread_mutex_unlock(&daemon_mutex);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* The child has no thread, and its copies of endpoints are of no use. What its parent watches is not its. */
static void atfork_child(void)
{
	daemon_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (int i = 0; i < PIDFDS_MAX; i++)
		pidfd_close(&daemon_pidfds[i]);
	pipe_close_locked();
	daemon_state = STATE_NONE;
	daemon_tid = 0;
	daemon_lives_count = 0;
	daemon_pidfd_count = 0;
	daemon_lives.list.next = &daemon_lives.list;
	daemon_inherited[daemon_forks++ % (sizeof(daemon_inherited) / sizeof(daemon_inherited[0]))] =
		daemon_processes;
	sc_list_init(&daemon_processes);
	sc_list_init(&daemon_bells);
}

static bool can_fork;

static void init_once(void)
{
	daemon_lives.list.next = &daemon_lives.list;
	sc_list_init(&daemon_processes);
	sc_list_init(&daemon_bells);
	can_fork = !pthread_atfork(NULL, NULL, atfork_child);
}

/* ---- words of life --------------------------------------------------------------------------- */

static struct robust_list *link_of(const struct sc_bell *bell)
{
	return (struct robust_list *)&bell->presence->life_next;
}

/* The one before in daemon_bells that has a word, whose links go the same way; NULL: it is the first. */
static struct sc_bell *life_before(const struct sc_bell *bell)
{
	for (struct sc_list *entry = bell->all.prev; entry != &daemon_bells; entry = entry->prev) {
		struct sc_bell *before = sc_list_entry(entry, struct sc_bell, all);

		if (before->presence)
			return before;
	}
	return NULL;
}

static struct robust_list *life_after(const struct sc_bell *bell)
{
	for (struct sc_list *entry = bell->all.next; entry != &daemon_bells; entry = entry->next) {
		struct sc_bell *after = sc_list_entry(entry, struct sc_bell, all);

		if (after->presence)
			return link_of(after);
	}
	return &daemon_lives.list;
}

/* Who reads it is the kernel, in this thread or another, at any instant: one store. */
static void set_link(struct robust_list *link, struct robust_list *next)
{
	__atomic_store_n(&link->next, next, __ATOMIC_RELEASE);
}

/* L1. The bell is the first in the list. */
static void life_link_locked(struct sc_bell *bell)
{
	set_link(link_of(bell), life_after(bell));
	set_link(&daemon_lives.list, link_of(bell));
	(void)SC_INJECT("daemon.linked");
	sc_store_release_32(&bell->presence->life, daemon_tid);
	(void)SC_INJECT("daemon.alive");
}

/* L1 */
static void life_unlink_locked(struct sc_bell *bell)
{
	struct sc_bell *before = life_before(bell);

	sc_store_release_32(&bell->presence->life, 0);
	(void)SC_INJECT("daemon.unalive");
	set_link(before ? link_of(before) : &daemon_lives.list, life_after(bell));
	(void)SC_INJECT("daemon.unlinked");
}

/* By the thread itself: at its beginning, with its tid, when the kernel knows the list; with 0 at its end. */
static void set_lives(uint32_t tid)
{
	pthread_mutex_lock(&daemon_mutex);
	daemon_tid = tid;
	sc_list_for (entry, &daemon_bells) {
		struct sc_bell *bell = sc_list_entry(entry, struct sc_bell, all);

		if (bell->presence)
			sc_store_release_32(&bell->presence->life, tid);
	}
	pthread_mutex_unlock(&daemon_mutex);
}

/* In place of libc's list for this thread, which takes no robust mutex. */
static void lives_begin(void)
{
	daemon_lives.futex_offset = (long)offsetof(struct sc_abi_presence, life) -
				    (long)offsetof(struct sc_abi_presence, life_next);
	if (!SC_TRY("daemon.robust", syscall(SYS_set_robust_list, &daemon_lives, sizeof(daemon_lives))))
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
	pthread_once(&daemon_once, init_once);
	pthread_mutex_lock(&daemon_mutex);
	sc_list_prepend(&daemon_bells, &bell->all);
	if (daemon_lives_count < LIVES_MAX) {
		daemon_lives_count++;
		bell->presence = sc_seg_presence(seg);
		life_link_locked(bell);
	}
	pthread_mutex_unlock(&daemon_mutex);
}

void sc_bell_close(struct sc_bell *bell)
{
	if (bell->opened_by != sc_host_self())
		return;
	pthread_mutex_lock(&daemon_mutex);
	if (bell->presence) {
		life_unlink_locked(bell);
		daemon_lives_count--;
	}
	sc_list_remove(&bell->all);
	pthread_mutex_unlock(&daemon_mutex);
}

static void ring_all(void)
{
	pthread_mutex_lock(&daemon_mutex);
	sc_list_for (entry, &daemon_bells)
		ring(sc_list_entry(entry, struct sc_bell, all));
	pthread_mutex_unlock(&daemon_mutex);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* A name to remove, once daemon_mutex is free. */
static void note_name(const struct sc_seg *seg)
{
	struct sc_addr parts;

	if (daemon_dead_count < NAMES_MAX && !sc_addr_parse(seg->header.address, &parts))
		sc_addr_file(&parts, daemon_dead[daemon_dead_count++]);
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

/* What there is to poll. Returns how many places. */
static nfds_t arrange_locked(void)
{
	nfds_t count = 1;

	daemon_polls[0] = (struct pollfd){ .fd = daemon_pipe.ends[0], .events = POLLIN };
	for (int i = 0; i < PIDFDS_MAX; i++) {
		struct pidfd *pidfd = &daemon_pidfds[i];

		pidfd->polled = pidfd->used;
		daemon_polls[1 + i] =
			(struct pollfd){ .fd = pidfd->used ? pidfd->fd : -1, .events = POLLIN };
		if (pidfd->used)
			count = 2 + (nfds_t)i;
	}
	daemon_locks = false;
	sc_list_for (entry, &daemon_processes) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);

		daemon_locks |= process->pidfd == NO_PIDFD && !is_over(process);
	}
	return count;
}

static int timeout(void)
{
	int64_t now = now_ms(), until = daemon_tick;

	if (daemon_scan && daemon_scan < until)
		until = daemon_scan;
	if (daemon_locks && now + LOCK_MS < until)
		until = now + LOCK_MS;
	return until <= now ? 0 : (int)(until - now);
}

static bool has_event(const struct sc_daemon_process *process)
{
	return process->pidfd != NO_PIDFD && daemon_pidfds[process->pidfd].polled &&
	       daemon_polls[1 + process->pidfd].revents;
}

/* After poll(2). `all`: look at each, whatever it says. */
static void look_locked(bool all)
{
	sc_list_for (entry, &daemon_processes) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);

		if (has_event(process))
			pidfd_event(process);
		else if (all || process->pidfd == NO_PIDFD)
			process_check(process);
	}
}

/* Descriptors that the application has closed, or that there was no room for. */
static void repair_locked(void)
{
	if (daemon_pipe.ends[0] < 0)
		(void)pipe_open_locked(); /* else at the next tick; meanwhile nothing wakes us before its time */
	sc_list_for (entry, &daemon_processes) {
		struct sc_daemon_process *process = sc_list_entry(entry, struct sc_daemon_process, all);
		struct sc_watch *first = sc_list_entry(process->watches.next, struct sc_watch, of_process);

		if (process->pidfd != NO_PIDFD && !pidfd_is_open(&daemon_pidfds[process->pidfd]))
			pidfd_forget(process);
		if (process->pidfd == NO_PIDFD && !is_over(process))
			pidfd_get(process, first->seg);
	}
}

static void reap_dead(void)
{
	if (!daemon_dead_count)
		return;
	for (int i = 0; i < daemon_dead_count; i++)
		(void)sc_reap_name(daemon_dead[i]);
	daemon_dead_count = 0;
	daemon_scans = 2;
	if (!daemon_scan)
		daemon_scan = now_ms() + SCAN_SOON_MS;
}

static void scan(void)
{
	(void)sc_reap_scan();
	ring_all(); /* claims of the dead */
	daemon_scans -= daemon_scans > 0;
	daemon_scan = daemon_scans ? now_ms() + SCAN_AGAIN_MS : 0;
}

/* What needs daemon_mutex after poll(2). False: the end. */
static bool look_around(bool tick)
{
	bool on, lost = false;

	pthread_mutex_lock(&daemon_mutex);
	on = daemon_state == STATE_RUNS;
	if (on) {
		lost = daemon_pipe.ends[0] >= 0 && !pipe_read_locked();
		look_locked(tick);
	}
	if (on && tick)
		repair_locked();
	pthread_mutex_unlock(&daemon_mutex);
	if (lost && daemon_tick > now_ms() + REPAIR_MS)
		daemon_tick = now_ms() + REPAIR_MS;
	return on;
}

static bool round_once(void)
{
	nfds_t count;
	bool tick;

	pthread_mutex_lock(&daemon_mutex);
	count = arrange_locked();
	pthread_mutex_unlock(&daemon_mutex);
	if (poll(daemon_polls, count, timeout()) < 0)
		memset(daemon_polls, 0, sizeof(daemon_polls)); /* EINVAL, ENOMEM: see what time it is */
	(void)SC_INJECT("daemon.polled");

	tick = now_ms() >= daemon_tick;
	if (!look_around(tick))
		return false;
	reap_dead();
	if (tick)
		daemon_tick = now_ms() + (sc_own_keep_all() == -EAGAIN ? REPAIR_MS : TICK_MS);
	if (tick || (daemon_scan && now_ms() >= daemon_scan))
		scan();
	return true;
}

static void *run(void *unused)
{
	(void)unused;
	(void)pthread_setname_np(pthread_self(), "shmcma-daemon");
	daemon_tick = now_ms() + TICK_MS;
	daemon_scan = 0;
	daemon_scans = 0;
	daemon_dead_count = 0;
	lives_begin();
	while (round_once())
		;
	set_lives(0);
	return NULL;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* All signals blocked in it: they are the application's. */
static int create_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int err = pthread_attr_init(&attr);

	if (err)
		return -err;
	(void)pthread_attr_setstacksize(&attr, STACK_SIZE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = SC_FAIL("daemon.thread");
	if (!err)
		err = pthread_create(&daemon_thread, &attr, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

static int start_locked(void)
{
	int err = can_fork ? pipe_open_locked() : -ENOMEM;

	if (err)
		return err;
	daemon_state = STATE_RUNS;
	err = create_thread();
	if (err) {
		daemon_state = STATE_NONE;
		pipe_close_locked();
	}
	return err;
}

bool sc_daemon_start(void)
{
	bool runs, say;
	int err = 0;

	pthread_once(&daemon_once, init_once);
	pthread_mutex_lock(&daemon_mutex);
	if (daemon_state == STATE_NONE)
		err = start_locked();
	runs = daemon_state == STATE_RUNS;
	say = err && !daemon_said;
	daemon_said |= say;
	pthread_mutex_unlock(&daemon_mutex);
	if (say)
		sc_warn("no thread to watch other processes: %s; the death of a peer is found by polling "
			"only "
			"(see ulimit -u, ulimit -n; FI_SHMCMA_DAEMON=0 does without it)",
			strerror(-err));
	return runs;
}

/* Of CLOCK_MONOTONIC, when one that has lost its pipe has looked once more. */
static struct timespec soon(void)
{
	int64_t ms = now_ms() + 2 * REPAIR_MS;

	return (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
}

/*
 * Endpoints may outlive it; they are rung no more. A thread that cannot be woken, because the application has
 * closed the pipe, sees the end soon by itself, or later if a child holds on to the pipe: then it is not
 * waited for.
 */
static void stop(void)
{
	struct timespec limit = soon();
	pthread_t thread;
	bool woken;

	pthread_mutex_lock(&daemon_mutex);
	if (daemon_state != STATE_RUNS) {
		pthread_mutex_unlock(&daemon_mutex);
		return;
	}
	daemon_state = STATE_STOPS;
	woken = wake_locked();
	if (!woken && pipe_is_open(1)) { /* which wakes it as well, unless a child has the other end */
		SC_CALL("daemon.hang_up", close(daemon_pipe.ends[1]));
		daemon_pipe.ends[1] = -1;
	}
	thread = daemon_thread;
	pthread_mutex_unlock(&daemon_mutex);
	if (woken) {
		pthread_join(thread, NULL);
	} else if (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &limit)) {
		pthread_detach(thread);
		return;
	}
	pthread_mutex_lock(&daemon_mutex);
	daemon_state = STATE_NONE;
	pipe_close_locked();
	pthread_mutex_unlock(&daemon_mutex);
}

void sc_process_fini(void)
{
	stop();
	sc_own_unlink_all();
}
