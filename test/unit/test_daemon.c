/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_daemon: the thread that watches other processes: what it finds out while no endpoint polls, which files it
 * removes, and which it leaves alone.
 *
 * A test waits until the thread has done its work; only a test that hangs ends by time.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#include "core_pair.h"
#include "pidfds.h"
#include "thread.h"
#include "os/addr.h"
#include "link/connect.h"
#include "link/review.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "os/otherfile.h"
#include "os/pidfd.h"
#include "proc/daemon.h"
#include "proc/process.h"
#include "proc/owner.h"
#include "proc/reap.h"

#define STOPPED_CHECKS 100000
#define JOB 12

static uint8_t from[64], large[8000];

static _Atomic time_t seconds_ahead;
static _Atomic int64_t stopped_ns; /* not 0: the clock stands there */

/* The core's clock, which a test may set ahead, or stop. */
int clock_gettime(clockid_t id, struct timespec *now)
{
	int64_t stopped = stopped_ns;
	int ret = (int)syscall(SYS_clock_gettime, id, now);

	now->tv_sec += seconds_ahead;
	if (stopped)
		*now = (struct timespec){ .tv_sec = stopped / 1000000000,
					  .tv_nsec = stopped % 1000000000 };
	return ret;
}

static void stop_clock(void)
{
	stopped_ns = sc_clock_ns();
}

/* No poll of anybody: the thread alone. */
static void await_unnamed(const char *address)
{
	watchdog_await(!core_has_file(address));
}

/* ---- a process with an endpoint -------------------------------------------------------------- */

/* Tells its address, polls until it is let go. */
static void live(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;
	char byte;

	if (arg)
		attr = *(struct sc_ep_attr *)arg;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	while (recv(self->down, &byte, 1, MSG_DONTWAIT) < 0) {
		sc_ep_poll(ep);
		watchdog_nap();
	}
	sc_ep_destroy(ep);
	sc_process_fini();
}

/* Two endpoints, the second one's address on request. */
static void live_twice(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *eps[2];

	(void)arg;
	for (int i = 0; i < 2; i++) {
		CHILD_CHECK(!sc_ep_create(&attr, &eps[i]));
		child_tell(self, sc_ep_address(eps[i]));
	}
	child_wait(self);
}

static struct sc_peer *connect_to(struct end *end, const char *address)
{
	struct sc_peer *peer = NULL;

	assert_int_equal(sc_peer_get(end->ep, address, &peer), 0);
	assert_int_equal(end_send(end, peer, from, 8, 0, SC_SILENT), 0);
	assert_non_null(peer->seg);
	return peer;
}

/* An endpoint here and a process, connected to. */
static struct sc_peer *meet(struct end *end, struct child *child, child_body *body)
{
	end_open(end, NULL);
	assert_true(child_start(child, body, NULL));
	return connect_to(end, child->line);
}

static void await_loss(struct end *end, const struct sc_peer *peer)
{
	while (peer->link != SC_LINK_DOWN || peer->seg)
		sc_ep_poll(end->ep);
}

/* It ends of itself, and is not taken for dead. */
static void see_leave(struct end *end, const struct sc_peer *peer, struct child *child)
{
	assert_int_equal(child_end(child), 0);
	await_loss(end, peer);
	assert_int_equal(end->ep->counters.deaths, 0);
	end_close(end);
}

/* ---- death ----------------------------------------------------------------------------------- */

/* Found while nobody polls: the mark, the bell, the name. Then one poll ends what was in flight. */
static void test_death(void **state)
{
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	peer = meet(&end, &child, live);
	thread_await(1);
	assert_true(peer->watch.process);
	pidfds_await(0, 1);
	assert_int_equal(end_send(&end, peer, from, sizeof(from), 7, SC_SEND_DELIVERY), 0);
	child_kill(&child);
	await_unnamed(child.line);
	assert_true(sc_watch_has_ended(&peer->watch));
	assert_true(sc_bell_has_rung(&end.ep->bell));
	assert_int_equal(pidfds_count(0, 0), 0);
	sc_ep_poll(end.ep);
	sc_ep_poll(end.ep);
	assert_false(sc_bell_has_rung(&end.ep->bell));
	assert_int_equal(comp_take(&end.tx).err, ECONNRESET);
	assert_true(end_idle(&end));
	assert_null(peer->seg);
	assert_int_equal(end_send(&end, peer, from, 8, 0, 0), -ECONNRESET);
	assert_int_equal(end.ep->counters.deaths, 1);
	end_close(&end);
}

/* Each operation that fails is counted once: by the counter of its kind, or by the counter that the operation names. */
static void test_counters(void **state)
{
	struct sc_cntr cntrs[SC_EVENTS] = { 0 }, own = { 0 };
	struct iovec iov = { from, sizeof(from) };
	struct sc_ep_attr attr = end_attr();
	struct sc_send send = {
		.iov = &iov, .iov_count = 1, .flags = SC_SEND_DELIVERY | SC_SILENT, .cntr = &own
	};
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	for (int i = 0; i < SC_EVENTS; i++)
		attr.cntrs[i] = &cntrs[i];
	end_open(&end, &attr);
	assert_true(child_start(&child, live, NULL));
	peer = connect_to(&end, child.line); /* a send that is well */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(end_send(&end, peer, from, 8, 1, SC_SEND_DELIVERY | SC_SILENT), 0);
		assert_int_equal(sc_tx_send(end.ep, peer, &send), 0);
		assert_int_equal(end_recv(&end, peer, from, 8, 1, SC_SILENT), 0);
	}
	child_kill(&child);
	await_loss(&end, peer);
	assert_int_equal(cntrs[SC_EVENT_SEND].value, 1);
	assert_int_equal(cntrs[SC_EVENT_SEND].errors, 3);
	assert_int_equal(own.value, 0);
	assert_int_equal(own.errors, 3);
	assert_int_equal(cntrs[SC_EVENT_RECV].value, 0);
	assert_int_equal(cntrs[SC_EVENT_RECV].errors, 3);
	await_unnamed(child.line);
	end_close(&end);
}

/* Room for the descriptors of many peers is made before there is a second thread, which it would cost much more. */
static void test_room_for_descriptors(void **state)
{
	unsigned long size = 0;
	char line[200];
	struct end end;
	FILE *file;

	(void)state;
	end_open(&end, NULL);
	file = fopen("/proc/self/status", "r");
	assert_non_null(file);
	while (!size && fgets(line, sizeof(line), file))
		(void)sscanf(line, "FDSize: %lu", &size);
	(void)fclose(file);
	assert_true(size >= 512);
	end_close(&end);
}

/* A peer dies while an endpoint sleeps: the thread wakes the endpoint. */
static void test_sleeper_is_woken(void **state)
{
	int64_t limit = INT64_MAX;
	struct sc_sleep sleep;
	struct sc_peer *peer;
	struct child child;
	uint64_t *word;
	struct end end;

	(void)state;
	peer = meet(&end, &child, live);
	ends_settle(&end, 1);
	while (!sc_list_empty(&end.ep->work[SC_WORK_UNANSWERED]) || sc_ep_rest(end.ep, &sleep, &limit))
		sc_ep_poll(end.ep);
	word = &sc_seg_presence(end.ep->seg)->sleep;
	assert_int_equal(sc_load_relaxed_64(word) & SC_ABI_SLEEP_ASLEEP, SC_ABI_SLEEP_ASLEEP);
	child_kill(&child);
	watchdog_await(sc_watch_has_ended(&peer->watch));
	(void)sc_bell_is_first(); /* takes the lock that the thread rings under: it has rung */
	assert_int_equal(sc_load_relaxed_64(word) & SC_ABI_SLEEP_FLAGS, 0);
	assert_int_equal(sc_sleep(&sleep, 1, INT64_MAX), 0);
	assert_true(sc_bell_has_rung(&end.ep->bell));
	await_loss(&end, peer);
	end_close(&end);
}

/* One descriptor for each process, and none without need. */
static void test_one_pidfd(void **state)
{
	struct child child, other;
	char second[CHILD_LINE];
	struct sc_peer *peers[4];
	struct end ends[2];

	(void)state;
	end_open(&ends[0], NULL);
	end_open(&ends[1], NULL);
	assert_true(child_start(&child, live_twice, NULL));
	assert_int_equal(read(child.up, second, CHILD_LINE), CHILD_LINE);
	for (int i = 0; i < 2; i++) {
		peers[2 * i] = connect_to(&ends[i], child.line);
		peers[2 * i + 1] = connect_to(&ends[i], second);
	}
	pidfds_await(0, 1);
	assert_true(child_start(&other, live, NULL));
	connect_to(&ends[0], other.line);
	pidfds_await(0, 2);
	end_close(&ends[0]);
	assert_int_equal(child_end(&other), 0);
	pidfds_await(0, 1);
	child_kill(&child);
	await_unnamed(child.line);
	await_unnamed(second);
	await_loss(&ends[1], peers[2]);
	await_loss(&ends[1], peers[3]);
	end_close(&ends[1]);
	assert_int_equal(pidfds_count(0, 0), 0);
}

/* A job is killed of which we know one process. */
static void test_job(void **state)
{
	struct child job[JOB];
	struct end end;

	(void)state;
	end_open(&end, NULL);
	for (int i = 0; i < JOB; i++)
		assert_true(child_start(&job[i], live, NULL));
	connect_to(&end, job[0].line);
	for (int i = 0; i < JOB; i++)
		kill(job[i].pid, SIGKILL);
	for (int i = 0; i < JOB; i++)
		await_unnamed(job[i].line);
	for (int i = 0; i < JOB; i++)
		child_reap(&job[i]);
	end_close(&end);
}

/* Processes that become peers when nothing else wakes the thread: one by itself, or one right after the other. */
static void gathered(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peers[JOB];
	struct child job[JOB];
	struct end end;

	(void)self, (void)arg;
	child_on_its_own();
	for (int i = 0; i < JOB; i++)
		assert_true(child_start(&job[i], live, NULL));
	attr.config.scan = attr.config.calibrate = false;
	end_open(&end, &attr);
	thread_await(1);
	thread_await_sleep();
	for (int i = 0; i < JOB; i++) {
		peers[i] = connect_to(&end, job[i].line);
		while (i % 4 != 2 && !pidfds_count(0, job[i].pid)) {
			assert_false(thread_sleeps_to_its_tick() && !pidfds_count(0, job[i].pid));
			watchdog_nap();
		}
	}
	for (int i = JOB - 1; i >= 0; i--) {
		kill(job[i].pid, SIGKILL);
		watchdog_await(sc_watch_has_ended(&peers[i]->watch));
		child_reap(&job[i]);
	}
	for (int i = 0; i < JOB; i++)
		await_loss(&end, peers[i]);
	end_close(&end);
	sc_process_fini();
}

static void test_gathered(void **state)
{
	(void)state;
	assert_int_equal(child_run(gathered, NULL), 0);
}

/* Operations in flight end also where the application has two threads with endpoints. */
static void *poll_until_lost(void *arg)
{
	struct end *end = arg;

	await_loss(end, end->peer);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[4];
	struct end ends[4];
	struct child child;

	(void)state;
	sc_log_set(NULL); /* several at a time */
	assert_true(child_start(&child, live, NULL));
	for (int i = 0; i < 4; i++) {
		end_open(&ends[i], NULL);
		ends[i].peer = connect_to(&ends[i], child.line);
		assert_int_equal(pthread_create(&threads[i], NULL, poll_until_lost, &ends[i]), 0);
	}
	thread_await(1);
	child_kill(&child);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		end_close(&ends[i]);
	}
	sc_log_set(child_log);
}

/* ---- alive ----------------------------------------------------------------------------------- */

/* Stopped for any length: no look at it ever says dead. */
static void test_stopped(void **state)
{
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	peer = meet(&end, &child, live);
	kill(child.pid, SIGSTOP);
	assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
	for (int i = 0; i < STOPPED_CHECKS; i++)
		assert_false(sc_peer_is_dead(peer));
	for (int i = 0; i < 100; i++) {
		assert_int_equal(sc_peers_watch(end.ep), 0);
		assert_true(peer->seg->guarded);
		assert_false(sc_owner_is_dead(peer->seg));
	}
	assert_true(sc_reap_scan() >= 0);
	assert_true(core_has_file(child.line));
	assert_false(sc_watch_has_ended(&peer->watch));
	kill(child.pid, SIGCONT);
	assert_int_equal(end_send(&end, peer, from, 8, 0, SC_SEND_DELIVERY | SC_SILENT), 0);
	see_leave(&end, peer, &child);
}

static void *outlive(void *arg)
{
	live(arg, NULL);
	_exit(0);
}

/* The first thread ends, another goes on: the pidfd keeps still, and so does everybody. */
static void leader_ends(struct child *self, void *arg)
{
	pthread_t thread;

	(void)arg;
	CHILD_CHECK(!pthread_create(&thread, NULL, outlive, self));
	syscall(SYS_exit, 0);
}

static void test_leader_ended(void **state)
{
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	peer = meet(&end, &child, leader_ends);
	for (int i = 0; i < 1000; i++)
		assert_false(sc_peer_is_dead(peer));
	pidfds_await(0, 1);
	see_leave(&end, peer, &child);
}

static uint32_t life_of(const struct sc_peer *peer)
{
	return sc_load_acquire_32(&sc_seg_presence(peer->seg)->life);
}

/* exec(2) ends it as an endpoint though the process lives on: no pidfd tells, the lock does. */
static void become_another(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	(void)arg;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	execl("/bin/sleep", "sleep", "60", (char *)NULL);
	_exit(1);
}

static void test_exec(void **state)
{
	(void)state;
	/* the second time no lock tells: descriptors are scarce, and the name has been removed */
	for (int named = 1; named >= 0; named--) {
		char path[SC_SHMFILE_PATH_MAX];
		struct sc_peer *peer;
		struct child child;
		struct end end;

		peer = meet(&end, &child, become_another);
		core_path(child.line, 0, path);
		if (!named) {
			watchdog_await(life_of(peer)); /* its thread may have to begin */
			sc_process_lock(); /* the daemon looks at the descriptor */
			sc_seg_drop_descriptor(peer->seg);
			sc_process_unlock();
			assert_int_equal(unlink(path), 0);
		}
		assert_int_equal(send(child.down, "", 1, 0), 1);
		await_loss(&end, peer);
		assert_int_equal(waitpid(child.pid, NULL, WNOHANG), 0); /* it runs */
		child_kill(&child);
		assert_true(sc_reap_scan() >= 0);
		assert_false(core_has_file(child.line));
		end_close(&end);
	}
}

static void scan_alone(struct child *self, void *arg)
{
	(void)self, (void)arg;
	CHILD_CHECK(sc_reap_scan() >= 0);
}

/* However few descriptors there are, one or both of the reads of the directory and of the receiver's claims may fail. */
static void scan_without_descriptors(struct child *self, void *arg)
{
	struct rlimit limit = { 0 };
	int next = dup(0);

	(void)self;
	CHILD_CHECK(next >= 0 && !getrlimit(RLIMIT_NOFILE, &limit));
	close(next);
	for (int left = 8; left >= 0; left--) {
		limit.rlim_cur = (rlim_t)(next + left);
		CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
		(void)sc_reap_scan();
		CHILD_CHECK(core_has_file(arg));
	}
}

/* It sends a message that the receiver has to read in the sender's segment, and ends before the receiver looks. */
static void leave_unread(struct child *self, void *arg)
{
	struct sc_peer *peer;
	struct end end;

	child_on_its_own();
	end_open(&end, NULL);
	peer = connect_to(&end, arg);
	assert_int_equal(end_send(&end, peer, large, sizeof(large), 3, 0), 0);
	child_tell(self, sc_ep_address(end.ep));
	end_close(&end);
	sc_process_fini();
}

static void is_not_dead(const struct sc_reap_file *file, void *arg)
{
	char path[SC_SHMFILE_PATH_MAX], listed[SC_SHMFILE_PATH_MAX];

	core_path(arg, 0, path);
	sc_shmfile_path(file->name, listed);
	assert_true(strcmp(path, listed) || !file->dead);
}

/*
 * A process that reaps leaves the segment with an unread message to the reader of that message, as long as the reader
 * lives, and does not list the segment as dead.
 */
static void test_unread(void **state)
{
	(void)state;
	for (int read = 0; read < 2; read++) {
		char address[SC_ADDR_SIZE];
		struct child child;
		struct end end;

		end_open(&end, NULL);
		memcpy(address, sc_ep_address(end.ep), sizeof(address));
		assert_true(child_start(&child, leave_unread, address));
		assert_int_equal(child_end(&child), 0);
		assert_true(sc_reap_scan() >= 0);
		assert_int_equal(child_run(scan_alone, NULL), 0);
		assert_int_equal(child_run(scan_without_descriptors, child.line), 0);
		/* as closefrom(3) does, at any time for the thread; ThreadSanitizer would call it a race */
		assert_return_code(syscall(SYS_close, end.ep->seg->file.fd), errno);
		assert_true(sc_reap_scan() >= 0);
		assert_true(core_has_file(child.line));
		assert_true(sc_shmfile_fd(&end.ep->seg->file) >= 0);
		if (core_failing("reap.answer", EIO))
			assert_true(sc_reap_scan() >= 0);
		core_failing(NULL, 0);
		assert_true(core_has_file(child.line));
		assert_int_equal(sc_reap_list(is_not_dead, child.line), 0);
		if (read) {
			assert_int_equal(end_recv(&end, NULL, large, sizeof(large), 3, 0), 0);
			while (end_idle(&end))
				sc_ep_poll(end.ep);
			assert_int_equal(comp_take(&end.rx).err, 0);
			ends_settle(&end, 1);
			assert_false(core_has_file(child.line));
		}
		end_close(&end);
		assert_true(sc_reap_scan() >= 0);
		assert_false(core_has_file(child.line));
	}
}

/* Among others who are dead, in whatever order their names come; a look at the living tells who is awaited. */
static void test_unread_among_many(void **state)
{
	struct child unread[JOB], dead[JOB];
	char address[SC_ADDR_SIZE];
	struct end end;

	(void)state;
	end_open(&end, NULL);
	memcpy(address, sc_ep_address(end.ep), sizeof(address));
	for (int i = 0; i < JOB; i++) {
		assert_true(child_start(&unread[i], leave_unread, address));
		assert_true(child_start(&dead[i], live_twice, NULL));
		assert_int_equal(child_end(&unread[i]), 0);
		child_kill(&dead[i]);
	}
	assert_true(sc_reap_scan() >= 0);
	for (int i = 0; i < JOB; i++) {
		assert_true(core_has_file(unread[i].line));
		await_unnamed(dead[i].line); /* the thread may be about to remove it */
	}
	for (int i = 0; i < JOB; i++)
		assert_int_equal(end_recv(&end, NULL, large, sizeof(large), 3, 0), 0);
	for (int i = 0; i < JOB; i++) {
		while (end_idle(&end))
			sc_ep_poll(end.ep);
		assert_int_equal(comp_take(&end.rx).err, 0);
	}
	ends_settle(&end, 1);
	for (int i = 0; i < JOB; i++)
		assert_false(core_has_file(unread[i].line));
	end_close(&end);
}

/* ---- without pidfds -------------------------------------------------------------------------- */

/* All but the pipes of the test. */
static int close_all(const struct child *self)
{
	int closed = 0;

	for (int fd = STDERR_FILENO + 1; fd < 1000; fd++)
		closed += fd != self->up && fd != self->down && !close(fd);
	return closed;
}

/* Fewer descriptors than processes: of the others the life locks are polled. */
static void few_descriptors(struct child *self, void *arg)
{
	struct rlimit limit = { 4 * (JOB - 2), 4 * (JOB - 2) };
	struct sc_peer *peers[JOB];
	struct child *job = arg;
	struct end end;

	child_on_its_own();
	close_all(self);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	end_open(&end, NULL);
	for (int i = 0; i < JOB; i++)
		peers[i] = connect_to(&end, job[i].line);
	pidfds_await(0, JOB - 2);
	child_tell(self, "connected");
	for (int i = JOB - 1; i >= 0; i--) {
		await_unnamed(job[i].line);
		watchdog_await(sc_watch_has_ended(&peers[i]->watch));
	}
	for (int i = 0; i < JOB; i++)
		await_loss(&end, peers[i]);
	assert_int_equal(end.ep->counters.deaths, JOB);
	end_close(&end);
	sc_process_fini();
}

static void test_few_descriptors(void **state)
{
	struct child job[JOB], survivor;

	(void)state;
	for (int i = 0; i < JOB; i++)
		assert_true(child_start(&job[i], live, NULL));
	assert_true(child_start(&survivor, few_descriptors, job));
	for (int i = 0; i < JOB; i++)
		child_kill(&job[i]);
	assert_int_equal(child_reap(&survivor), 0);
}

/* The thread sleeps between two calls, whatever it is that poll(2) fails with: on average for 10 ms at least. */
static void check_rests(int error)
{
	int64_t begun = sc_clock_ns();
	int failed;

	if (!core_failing("daemon.poll", error))
		return;
	usleep(500000);
	failed = core_failed();
	assert_true(failed < (sc_clock_ns() - begun) / 10000000);
	core_failing(NULL, 0);
}

/* poll(2) takes fewer places than there are pidfds: of those behind them the life locks are polled. */
static void lowered_limit(struct child *self, void *arg)
{
	struct rlimit limit;
	struct sc_peer *peers[JOB];
	struct child *job = arg;
	struct end end;
	int spare[4];

	child_on_its_own();
	close_all(self);
	for (int i = 0; i < 4; i++)
		spare[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	end_open(&end, NULL);
	for (int i = 0; i < JOB; i++)
		peers[i] = connect_to(&end, job[i].line);
	pidfds_await(0, JOB);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 0; /* not even the pipe */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	check_rests(0);
	check_rests(EINVAL);
	limit.rlim_cur = JOB - 2;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int i = 0; i < 4; i++) /* to look with whether somebody lives */
		assert_int_equal(close(spare[i]), 0);
	check_rests(0);
	stop_clock(); /* no tick comes, at which all are looked at */
	child_tell(self, "connected");
	for (int i = JOB - 1; i >= 0; i--)
		watchdog_await(sc_watch_has_ended(&peers[i]->watch));
	stopped_ns = 0;
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	end_close(&end);
	sc_process_fini();
	assert_true(sc_reap_scan() >= 0);
}

static void test_lowered_limit(void **state)
{
	struct child job[JOB], survivor;

	(void)state;
	for (int i = 0; i < JOB; i++)
		assert_true(child_start(&job[i], live, NULL));
	assert_true(child_start(&survivor, lowered_limit, job));
	for (int i = 0; i < JOB; i++)
		child_kill(&job[i]);
	assert_int_equal(child_reap(&survivor), 0);
}

/* The first process of a pid namespace: it sees nobody outside. */
static void watch_unseen(struct child *self, void *arg)
{
	struct child *other = arg;
	struct sc_peer *peer;
	struct end end;

	child_on_its_own();
	end_open(&end, NULL);
	peer = connect_to(&end, other->line);
	assert_int_equal(peer->seg->cma_pid, 0);
	assert_non_null(peer->watch.process);
	assert_int_equal(pidfds_count(0, 0), 0);
	child_tell(self, "connected");
	await_unnamed(other->line);
	watchdog_await(sc_watch_has_ended(&peer->watch));
	await_loss(&end, peer);
	end_close(&end);
	sc_process_fini();
}

static void enter_namespace(struct child *self, void *arg)
{
	int status = 0;
	pid_t pid;

	if (unshare(CLONE_NEWPID)) {
		child_tell(self, "not allowed");
		return;
	}
	pid = fork();
	CHILD_CHECK(pid >= 0);
	if (!pid) {
		watch_unseen(self, arg);
		_exit(0);
	}
	CHILD_CHECK(waitpid(pid, &status, 0) == pid && !status);
}

static void test_pid_namespace(void **state)
{
	struct child other, inside;
	bool allowed;

	(void)state;
	assert_true(child_start(&other, live, NULL));
	assert_true(child_start(&inside, enter_namespace, &other));
	allowed = !strcmp(inside.line, "connected");
	child_kill(&other);
	assert_int_equal(child_reap(&inside), 0);
	assert_true(sc_reap_scan() >= 0);
	if (!allowed)
		skip();
}

/* ---- own locks ------------------------------------------------------------------------------- */

/* Is a thread of this process other than the caller on a processor, or about to be? */
static bool others_run(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	bool run = false;

	while (tasks && !run && (entry = readdir(tasks))) {
		char path[300], text[16] = "";
		int fd;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)syscall(SYS_gettid))
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/syscall", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		run = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && !strncmp(text, "running", 7);
		close(fd);
	}
	if (tasks)
		closedir(tasks);
	return run;
}

/* The application closes all descriptors, and uses the numbers again. */
static void lose_all(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	struct sc_ep *ep;
	int closed;
	char byte;

	child_on_its_own();
	assert_int_equal(sc_ep_create(&attr, &ep), 0);
	assert_int_equal(sc_peer_get(ep, arg, &peer), 0);
	assert_int_equal(sc_peer_connect(peer), 0);
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	while (!ep->counters.accepts)
		sc_ep_poll(ep); /* only the thread still needs descriptors */
	/* a descriptor that is open for the length of a call only: its number cannot be told from a later one */
	while (others_run())
		sched_yield();
	closed = close_all(self);
	for (int i = 0; i < closed; i++)
		assert_true(fcntl(STDERR_FILENO, F_DUPFD, 3) >= 0);
	child_tell(self, "lost");
	while (recv(self->down, &byte, 1, MSG_DONTWAIT) < 0) {
		sc_ep_poll(ep);
		watchdog_nap();
	}
	assert_int_equal(peer->link, SC_LINK_UP);
	sc_ep_destroy(ep);
	sc_process_fini();
	assert_int_equal(close_all(self), closed); /* the descriptors of the application are still open */
}

/* It takes its lock again by itself; nobody takes it for dead meanwhile, and it can be reached as ever. */
static void test_closefrom(void **state)
{
	char line[CHILD_LINE], address[SC_ADDR_SIZE];
	struct sc_peer *peer;
	struct child child;
	struct end ends[2];

	(void)state;
	if (!cma_allowed())
		skip();
	end_open(&ends[0], NULL);
	memcpy(address, sc_ep_address(ends[0].ep), sizeof(address));
	assert_true(child_start(&child, lose_all, address));
	peer = connect_to(&ends[0], child.line);
	assert_int_equal(send(child.down, "", 1, 0), 1);
	assert_int_equal(read(child.up, line, CHILD_LINE), CHILD_LINE);
	do {
		assert_true(sc_reap_scan() >= 0);
		assert_true(core_has_file(child.line));
		assert_false(sc_peer_is_dead(peer));
	} while (sc_seg_check_owner(peer->seg) != 1);
	end_open(&ends[1], NULL);
	ends[1].peer = connect_to(&ends[1], child.line);
	while (!sc_list_empty(&ends[1].ep->work[SC_WORK_UNANSWERED]))
		sc_ep_poll(ends[1].ep);
	assert_int_equal(ends[1].peer->link, SC_LINK_UP);
	assert_int_equal(child_end(&child), 0);
	assert_false(core_has_file(child.line));
	for (int i = 0; i < 2; i++) {
		while (end_send(&ends[i], i ? ends[1].peer : peer, from, 8, 0, SC_SILENT) != -ECONNRESET)
			sc_ep_poll(ends[i].ep);
		assert_int_equal(ends[i].ep->counters.deaths, 0);
		end_close(&ends[i]);
	}
}

/* A lock dropped by mistake (a second descriptor closed) is taken again; so is one of a lost descriptor. */
static void drop_lock(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;
	char path[SC_SHMFILE_PATH_MAX];

	(void)arg;
	attr.config.daemon = false;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ep->seg->file.fd);
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	close(open(path, O_RDONLY | O_CLOEXEC));
	child_tell(self, "dropped");
	child_wait(self);
	CHILD_CHECK(!sc_shmfile_keep_all());
	child_tell(self, "kept");
	child_wait(self);
	CHILD_CHECK(!close(ep->seg->file.fd));
	child_tell(self, "closed");
	child_wait(self);
	CHILD_CHECK(!sc_shmfile_keep_all());
	child_tell(self, "kept");
	child_wait(self);
	CHILD_CHECK(!close(ep->seg->file.fd));
	sc_shmfile_path(ep->seg->file.name, path);
	CHILD_CHECK(!unlink(path));
	CHILD_CHECK(sc_shmfile_fd(&ep->seg->file) == -EBADF && !sc_shmfile_keep_all());
	sc_ep_destroy(ep);
}

static void test_lock_kept(void **state)
{
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	peer = meet(&end, &child, drop_lock);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(send(child.down, "", 1, 0), 1);
		assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
		assert_int_equal(sc_seg_check_owner(peer->seg), i % 2);
	}
	assert_int_equal(child_end(&child), 0);
	await_loss(&end, peer);
	end_close(&end);
}

/* ---- ticks ----------------------------------------------------------------------------------- */

#define TICK_SECONDS 31 /* one is due after that */
#define SETTLE_SECONDS 3

/* Its next tick, to the end: that is a look at all names, after which it rings. */
static void tick(struct sc_ep *ep)
{
	uint32_t rung = sc_load_acquire_32(&ep->bell.rung);
	int64_t due = __atomic_load_n(&sc_process.tick, __ATOMIC_RELAXED);

	seconds_ahead += TICK_SECONDS;
	watchdog_await(__atomic_load_n(&sc_process.tick, __ATOMIC_RELAXED) != due);
	watchdog_await(sc_load_acquire_32(&ep->bell.rung) != rung);
}

/* A name whose process has ended has the pid of one that lives: only a look at all names finds that. */
static void settle(struct child *self, void *arg)
{
	char left[SC_SHMFILE_PATH_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_ep_attr attr = end_attr();
	struct child living, dead;
	struct end end;

	(void)self, (void)arg;
	child_on_its_own();
	if (!child_private_shm("mode=1777"))
		_exit(CHILD_SKIPS);
	assert_true(child_start(&living, live, NULL));
	assert_true(child_start(&dead, live, NULL));
	kill(living.pid, SIGSTOP);
	child_kill(&dead);
	core_path(dead.line, 0, left);
	core_path(dead.line, living.pid, path);
	assert_int_equal(rename(left, path), 0);
	attr.config.calibrate = false;
	end_open(&end, &attr);
	thread_await(1);
	watchdog_await(sc_load_acquire_32(&sc_seg_presence(end.ep->seg)->life)); /* it has begun */
	assert_int_equal(access(path, F_OK), 0);
	seconds_ahead += SETTLE_SECONDS;
	stop_clock(); /* no tick comes */
	watchdog_await(access(path, F_OK));
	stopped_ns = 0;
	end_close(&end);
	sc_process_fini();
	child_kill(&living);
}

static void test_settles(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(settle, NULL));
}

/* Loses its lock by closing a second descriptor, then has a tick each time that it is told to. */
static void tick_often(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	char path[SC_SHMFILE_PATH_MAX];
	struct sc_ep *ep;

	(void)arg;
	child_on_its_own();
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ep->seg->file.fd);
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	tick(ep);
	child_tell(self, "nothing had happened");
	child_wait(self);
	close(open(path, O_RDONLY | O_CLOEXEC));
	for (int i = 0; i < 2; i++) {
		child_tell(self, "done");
		child_wait(self);
		tick(ep);
	}
	child_wait(self);
	sc_ep_destroy(ep);
	sc_process_fini();
}

static void let_do(struct child *child)
{
	assert_int_equal(send(child->down, "", 1, 0), 1);
	assert_int_equal(read(child->up, child->line, CHILD_LINE), CHILD_LINE);
}

/*
 * The owner has lost its life lock without notice: it has it again after a tick. If a reaper holds the lock at that
 * time, the owner tries until it is free.
 */
static void test_tick(void **state)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_addr parts;
	struct sc_peer *peer;
	struct child child;
	struct end end;
	int fd;

	(void)state;
	peer = meet(&end, &child, tick_often);
	assert_int_equal(sc_addr_parse(child.line, &parts), 0);
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	let_do(&child);
	assert_int_equal(sc_seg_check_owner(peer->seg), 1);
	let_do(&child);
	assert_int_equal(sc_seg_check_owner(peer->seg), 0);
	sc_otherfiles_hold(); /* our own thread may look at the file, too: that would free the lock */
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(sc_lifelock_lock(fd), 0);
	let_do(&child);
	assert_int_equal(sc_seg_check_owner(peer->seg), 0);
	close(fd);
	sc_otherfiles_release();
	assert_int_equal(send(child.down, "", 1, 0), 1);
	watchdog_await(sc_seg_check_owner(peer->seg) == 1);
	see_leave(&end, peer, &child);
}

static int find_pidfd(void)
{
	for (int fd = 0; fd < 1000; fd++) {
		char path[64], text[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, text, sizeof(text) - 1) > 0 && strstr(text, "pidfd"))
			return fd;
	}
	return -1;
}

/* The inode of the pipe by which the thread is woken; 0: there is none now. */
static ino_t pipe_ino(void)
{
	ino_t ino;

	sc_process_lock();
	ino = sc_process.pipe.ends[0] >= 0 ? sc_process.pipe.ino : 0;
	sc_process_unlock();
	return ino;
}

/* The application closes both ends of it, and nothing else. Returns its inode. */
static ino_t close_pipe(void)
{
	ino_t ino;

	sc_process_lock();
	ino = sc_process.pipe.ino;
	assert_int_equal(close(sc_process.pipe.ends[0]), 0);
	assert_int_equal(close(sc_process.pipe.ends[1]), 0);
	sc_process_unlock();
	return ino;
}

static void await_another_pipe(ino_t lost)
{
	watchdog_await(pipe_ino() && pipe_ino() != lost);
}

/* Without a word from the application. */
static void see_die(struct end *end, const struct sc_peer *peer, struct child *other)
{
	child_kill(other);
	watchdog_await(sc_watch_has_ended(&peer->watch));
	await_loss(end, peer);
}

/* The thread loses some of the descriptors that it polls: it keeps the others, opens new ones, and finds deaths. */
static void lose_in_part(struct child *self, void *arg)
{
	struct child other; /* one after the other: there is one pidfd at a time */
	struct sc_peer *peer;
	int ends[2], fd;
	struct end end;
	ino_t lost;

	(void)self, (void)arg;
	child_on_its_own();
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	end_open(&end, NULL);
	assert_true(child_start(&other, live, NULL));
	peer = connect_to(&end, other.line);
	lost = close_pipe(); /* the pidfd is left */
	await_another_pipe(lost);
	see_die(&end, peer, &other);

	/* the application closes a pidfd: a tick finds that */
	assert_true(child_start(&other, live, NULL));
	peer = connect_to(&end, other.line);
	watchdog_await((fd = find_pidfd()) >= 0);
	assert_return_code(close(fd), errno);
	tick(end.ep);
	pidfds_await(0, 1);
	see_die(&end, peer, &other);

	/* the number of a pidfd is an empty pipe's now, and the thread cannot open a new pipe of its own yet */
	assert_true(child_start(&other, live, NULL));
	peer = connect_to(&end, other.line);
	watchdog_await((fd = find_pidfd()) >= 0);
	assert_int_equal(dup3(ends[0], fd, O_CLOEXEC), fd);
	core_failing("pipe.open", EMFILE);
	lost = close_pipe();
	child_kill(&other);
	watchdog_await(sc_watch_has_ended(&peer->watch));
	core_failing(NULL, 0);
	await_another_pipe(lost);
	assert_int_equal(write(ends[1], "x", 1), 1); /* the application's pipe is still open */
	tick(end.ep); /* the watch of the process that has ended is still there */
	await_loss(&end, peer);

	/* the pipe is lost when a tick is due: both at once */
	assert_true(child_start(&other, live, NULL));
	peer = connect_to(&end, other.line);
	seconds_ahead += TICK_SECONDS;
	lost = close_pipe();
	await_another_pipe(lost);
	see_die(&end, peer, &other);
	assert_int_equal(end.ep->counters.deaths, 4);
	end_close(&end);
	sc_process_fini();
}

static void test_lost_in_part(void **state)
{
	(void)state;
	assert_int_equal(child_run(lose_in_part, NULL), 0);
	assert_true(sc_reap_scan() >= 0);
}

/* ---- words of life --------------------------------------------------------------------------- */

#define LIVES 5

enum ending { KILLED, EXITS, EXECS, CLOSES, FINI, ENDINGS };

/* Some endpoints, of which some are closed again in between. */
static void have_lives(struct child *self, void *arg)
{
	enum ending ending = *(enum ending *)arg;
	struct end ends[LIVES], more;

	child_on_its_own();
	for (int i = 0; i < LIVES; i++) {
		end_open(&more, NULL);
		end_open(&ends[i], NULL);
		if (i % 2)
			end_close(&more);
		child_tell(self, sc_ep_address(ends[i].ep));
	}
	child_wait(self);
	switch (ending) {
	case EXITS:
		_exit(0);
	case EXECS:
		execl("/bin/sleep", "sleep", "60", (char *)NULL);
		_exit(1);
	case CLOSES:
		for (int i = 0; i < LIVES; i++)
			end_close(&ends[i]);
		break;
	case FINI:
		sc_process_fini();
		break;
	default:
		break;
	}
	child_tell(self, "done");
	child_wait(self);
}

/* From the end of its process on each word says so, and not before; taken away, it says nothing. */
static void test_life(void **state)
{
	(void)state;
	for (enum ending ending = KILLED; ending < ENDINGS; ending++) {
		struct sc_peer *peers[LIVES];
		struct child child;
		struct end end;
		siginfo_t info;

		end_open(&end, NULL);
		assert_true(child_start(&child, have_lives, &ending));
		for (int i = 0; i < LIVES; i++) {
			if (i)
				assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
			peers[i] = connect_to(&end, child.line);
			watchdog_await(life_of(peers[i])); /* the thread may have to begin */
			assert_int_equal(life_of(peers[i]) & ~SC_ABI_LIFE_TID, 0);
			assert_int_equal(life_of(peers[i]), life_of(peers[0]));
			assert_true(sc_peer_is_there(peers[i]));
		}
		if (ending == KILLED)
			kill(child.pid, SIGKILL);
		else
			assert_int_equal(send(child.down, "", 1, 0), 1);
		if (ending == KILLED || ending == EXITS)
			assert_int_equal(waitid(P_PID, (id_t)child.pid, &info, WEXITED | WNOWAIT), 0);
		else if (ending == EXECS)
			watchdog_await(life_of(peers[0]) & SC_ABI_LIFE_ENDED);
		else
			assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
		for (int i = 0; i < LIVES; i++) {
			assert_int_equal(life_of(peers[i]) & SC_ABI_LIFE_ENDED,
					 ending < CLOSES ? SC_ABI_LIFE_ENDED : 0);
			assert_int_equal(life_of(peers[i]) & SC_ABI_LIFE_TID, 0);
			/* marked, and its memory not yet another's */
			watchdog_await(ending != EXECS || !sc_peer_is_there(peers[i]));
			assert_int_equal(sc_peer_is_there(peers[i]), ending >= CLOSES);
		}
		child_kill(&child);
		for (int i = 0; i < LIVES; i++)
			await_loss(&end, peers[i]);
		end_close(&end);
		assert_true(sc_reap_scan() >= 0);
	}
}

/* The pid lives on, and is another program's which we may not look into. */
static void test_exec_unseen(void **state)
{
	enum ending ending = EXECS;
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	if (!core_failing("owner.cookie", EPERM))
		skip();
	end_open(&end, NULL);
	assert_true(child_start(&child, have_lives, &ending));
	peer = connect_to(&end, child.line);
	watchdog_await(life_of(peer)); /* its thread may have to begin */
	assert_false(sc_peer_is_dead(peer));
	stop_clock(); /* no tick comes: the endpoint tells the thread */
	assert_int_equal(send(child.down, "", 1, 0), 1);
	await_loss(&end, peer);
	await_unnamed(child.line);
	stopped_ns = 0;
	assert_int_equal(waitpid(child.pid, NULL, WNOHANG), 0);
	core_failing(NULL, 0);
	child_kill(&child);
	end_close(&end);
	assert_true(sc_reap_scan() >= 0);
}

/*
 * A peer writes any value into its word of life: no living peer is taken for dead, and after the end of its process no
 * value makes the peer live.
 */
static void test_life_scribbled(void **state)
{
	static const uint32_t words[] = { 0, SC_ABI_LIFE_ENDED, SC_ABI_LIFE_ENDED | 1, UINT32_MAX,
					  0x80000000u };
	struct sc_peer *peer;
	struct child child;
	pid_t pid;
	struct end end;

	(void)state;
	if (!cma_allowed())
		skip();
	peer = meet(&end, &child, live);
	watchdog_await(life_of(peer));
	sc_seg_presence(peer->seg)->life_next = 0x5555;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		sc_store_release_32(&sc_seg_presence(peer->seg)->life, words[i]);
		assert_true(sc_peer_is_there(peer));
		assert_false(sc_peer_is_dead(peer));
	}
	/* without a visible pid: if the word says that the peer has ended, nothing proves that its memory is there */
	pid = peer->cma.pid;
	peer->cma.pid = 0;
	sc_store_release_32(&sc_seg_presence(peer->seg)->life, SC_ABI_LIFE_ENDED);
	assert_false(sc_peer_is_there(peer));
	assert_false(sc_peer_is_dead(peer));
	peer->cma.pid = pid;
	child_kill(&child);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		sc_store_release_32(&sc_seg_presence(peer->seg)->life, words[i]);
		assert_false(sc_peer_is_there(peer));
		assert_true(sc_peer_is_dead(peer));
	}
	await_loss(&end, peer);
	end_close(&end);
}

/* ---- the thread itself ----------------------------------------------------------------------- */

static void forked(struct child *self, void *arg)
{
	struct end end;

	(void)self, (void)arg;
	child_on_its_own();
	thread_await(0);
	assert_int_equal(pidfds_count(0, 0), 0);
	end_open(&end, NULL);
	thread_await(1);
	end_close(&end);
	sc_process_fini();
	thread_await(0);
}

/* A forked child closes the endpoint of its parent. */
static void forked_closes(struct child *self, void *arg)
{
	(void)self;
	end_close(arg);
	sc_process_fini();
}

static void test_fork(void **state)
{
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	peer = meet(&end, &child, live);
	assert_int_equal(child_run(forked, NULL), 0);
	assert_int_equal(child_run(forked_closes, &end), 0);
	assert_true(core_has_file(sc_ep_address(end.ep)));
	pidfds_await(0, 1);
	thread_await(1);
	child_kill(&child);
	await_unnamed(child.line);
	await_loss(&end, peer);
	end_close(&end);
}

static void without(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct child *other = arg;
	struct sc_peer *peer;
	struct end end;

	child_on_its_own();
	attr.config.daemon = false;
	end_open(&end, &attr);
	peer = connect_to(&end, other->line);
	thread_await(0);
	assert_int_equal(pidfds_count(0, 0), 0);
	child_tell(self, "connected");
	await_loss(&end, peer);
	assert_int_equal(end.ep->counters.deaths, 1);
	end_close(&end);
}

/* A process that may have no thread finds a death by polling, also of a peer whose word of life does not tell it. */
static void test_without(void **state)
{
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.config.daemon = false;
	for (int i = 0; i < 2; i++) {
		struct child child, survivor;

		assert_true(child_start(&child, live, i ? &attr : NULL));
		assert_true(child_start(&survivor, without, &child));
		child_kill(&child);
		assert_int_equal(child_reap(&survivor), 0);
		assert_true(sc_reap_scan() >= 0);
	}
}

/* Without a thread, and with no look at whether it lives that is not called for by its word of life. */
static void checks_life(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct child *other = arg;
	struct sc_peer *peer;
	struct end end;

	child_on_its_own();
	attr.config.daemon = false;
	end_open(&end, &attr);
	end.ep->watch_mask = UINT32_MAX;
	peer = connect_to(&end, other->line);
	watchdog_await(life_of(peer)); /* its thread may have to begin */
	child_tell(self, "connected");
	await_loss(&end, peer);
	end_close(&end);
}

static void test_check_life(void **state)
{
	struct child child, survivor;

	(void)state;
	assert_true(child_start(&child, live, NULL));
	assert_true(child_start(&survivor, checks_life, &child));
	child_kill(&child);
	assert_int_equal(child_reap(&survivor), 0);
	assert_true(sc_reap_scan() >= 0);
}

static int lowest_free(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

/* No descriptors for the thread: said once, and tried again with the next endpoint. */
static void refused(struct child *self, void *arg)
{
	const struct sc_host *host;
	struct rlimit limit;
	struct end ends[3];

	(void)self, (void)arg;
	child_on_its_own();
	assert_int_equal(sc_host_get(&host), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	child_log_lines = 0;
	for (int i = 0; i < 2; i++) {
		limit.rlim_cur = (rlim_t)lowest_free() + 1;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		end_open(&ends[i], NULL);
		limit.rlim_cur = limit.rlim_max;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	}
	assert_int_equal(child_log_lines, 1);
	thread_await(0);
	end_open(&ends[2], NULL);
	thread_await(1);
	for (int i = 0; i < 3; i++)
		end_close(&ends[i]);
	sc_process_fini();
	thread_await(0);
}

static void test_refused(void **state)
{
	(void)state;
	assert_int_equal(child_run(refused, NULL), 0);
}

/* Its end: joined, nothing left open; endpoints that are left are closed as ever, and it can start again. */
static void ends_early(struct child *self, void *arg)
{
	struct child *other = arg;
	struct sc_peer *peer;
	struct end ends[2];
	int before;

	(void)self;
	child_on_its_own();
	before = lowest_free();
	end_open(&ends[0], NULL);
	peer = connect_to(&ends[0], other->line);
	sc_process_fini();
	thread_await(0);
	sc_process_fini();
	end_open(&ends[1], NULL);
	thread_await(1);
	assert_non_null(peer->watch.process);
	end_close(&ends[0]);
	end_close(&ends[1]);
	sc_process_fini();
	assert_int_equal(lowest_free(), before);
}

static void test_end(void **state)
{
	struct child child;

	(void)state;
	assert_true(child_start(&child, live, NULL));
	assert_int_equal(child_run(ends_early, &child), 0);
	assert_int_equal(child_end(&child), 0);
}

/* ---- the application closes what wakes the thread, and ends ------------------------------------ */

static void lose_and_end(struct child *self, void *arg)
{
	struct end end;

	(void)arg;
	child_on_its_own();
	end_open(&end, NULL);
	thread_await(1);
	close_all(self);
	end_close(&end);
	sc_process_fini(); /* sooner or later, it ends */
	thread_await(0);
}

/* A child that no handler of pthread_atfork() has seen has all descriptors. */
static pid_t hold_all(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

/* Such a child holds the other end: the thread is not waited for, which a line says. Once it has ended, it can start again. */
static void lose_to_child(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	unsigned int lines;
	struct end end;
	pid_t pid;

	(void)arg;
	child_on_its_own();
	attr.config.scan = attr.config.calibrate = false;
	end_open(&end, &attr);
	thread_await(1);
	thread_await_sleep();
	pid = hold_all();
	close_all(self);
	lines = child_log_lines;
	sc_process_fini();
	assert_int_equal(child_log_lines, lines + 1);
	end_close(&end);
	end_open(&end, &attr);
	assert_true(end.ep->alone);
	end_close(&end);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	thread_await(0);
	end_open(&end, &attr);
	assert_false(end.ep->alone);
	end_close(&end);
	sc_process_fini();
	thread_await(0);
}

static void test_lost_at_the_end(void **state)
{
	(void)state;
	assert_int_equal(child_run(lose_and_end, NULL), 0);
	assert_int_equal(child_run(lose_to_child, NULL), 0);
}

/* ---- calls that fail, and more than there is room for ----------------------------------------- */

/* Is there a thread, or a pidfd, in spite of the failing call; is there a thread later, when the call succeeds? */
static const struct failing {
	const char *point;
	bool thread, pidfd, later;
} thread_points[] = {
	{ "process.atfork", false, false, false }, /* it is asked for once */
	{ "daemon.thread", false, false, true },  { "pipe.open", false, false, true },
	{ "daemon.room", true, true, true },	  { "bell.robust", true, true, true },
	{ "daemon.getattr", true, true, true },	  { "daemon.setattr", true, true, true },
	{ "daemon.poll", true, true, true },	  { "pidfd.open", true, false, true },
	{ "pidfd.limit", true, false, true },	  { "daemon.limit", true, true, true },
};

/* A call of the thread's fails: deaths are found all the same, by it or by polling; later all is well. */
static void do_without(struct child *self, void *arg)
{
	const struct failing *failing = arg;
	struct child other;
	struct sc_peer *peer;
	struct end ends[2];

	(void)self;
	child_on_its_own();
	assert_true(child_start(&other, live, NULL));
	assert_true(core_failing(failing->point, EAGAIN));
	end_open(&ends[0], NULL);
	peer = connect_to(&ends[0], other.line);
	thread_await(failing->thread);
	pidfds_await(0, failing->pidfd);
	child_kill(&other);
	await_loss(&ends[0], peer);
	assert_int_equal(ends[0].ep->counters.deaths, 1);
	core_failing(NULL, 0);
	end_open(&ends[1], NULL);
	thread_await(failing->later);
	end_close(&ends[0]);
	end_close(&ends[1]);
	sc_process_fini();
	assert_true(sc_reap_scan() >= 0);
}

static void test_calls_fail(void **state)
{
	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	for (size_t i = 0; i < sizeof(thread_points) / sizeof(thread_points[0]); i++)
		assert_int_equal(child_run(do_without, (void *)&thread_points[i]), 0);
}

/* Wakes the thread, whose sleep does not end by the test's clock. */
static void wake_thread(void)
{
	sc_process_lock();
	assert_true(sc_process_wake_locked());
	sc_process_unlock();
}

/* A process that is not to look for what others have left does nothing but keep its own files when a tick is due. */
static void ticks_without_scan(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct end end;
	uint32_t rung;

	(void)self, (void)arg;
	child_on_its_own();
	attr.config.scan = attr.config.calibrate = false;
	end_open(&end, &attr);
	thread_await(1);
	rung = sc_load_acquire_32(&end.ep->bell.rung);
	for (int i = 0; i < 2; i++) { /* the second one comes after all of the first */
		int64_t due = __atomic_load_n(&sc_process.tick, __ATOMIC_RELAXED);

		seconds_ahead += TICK_SECONDS;
		wake_thread();
		watchdog_await(__atomic_load_n(&sc_process.tick, __ATOMIC_RELAXED) != due);
	}
	assert_int_equal(sc_load_acquire_32(&end.ep->bell.rung), rung);
	end_close(&end);
	sc_process_fini();
}

static void test_ticks_without_scan(void **state)
{
	(void)state;
	assert_int_equal(child_run(ticks_without_scan, NULL), 0);
}

#ifdef SC_FAULT_INJECTION

static _Atomic int interruptions;

static int interrupt_polls(const char *point)
{
	return !strcmp(point, "daemon.poll") && interruptions > 0 && interruptions-- ? EINTR : 0;
}

/* Signals interrupt the thread's sleep: it sleeps again, and still knows the descriptors. */
static void is_interrupted(struct child *self, void *arg)
{
	struct child other;
	struct sc_peer *peer;
	struct end end;

	(void)self, (void)arg;
	child_on_its_own();
	assert_true(child_start(&other, live, NULL));
	interruptions = 3;
	sc_fault_hook = interrupt_polls;
	end_open(&end, NULL);
	peer = connect_to(&end, other.line);
	watchdog_await(!interruptions);
	pidfds_await(0, 1);
	child_kill(&other);
	watchdog_await(sc_watch_has_ended(&peer->watch));
	await_loss(&end, peer);
	core_failing(NULL, 0);
	end_close(&end);
	sc_process_fini();
}

static void test_interrupted(void **state)
{
	(void)state;
	assert_int_equal(child_run(is_interrupted, NULL), 0);
	assert_true(sc_reap_scan() >= 0);
}

#else

static void test_interrupted(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

#endif

/* The application has chosen a scheduling policy for itself and its threads: the thread keeps it. */
static void is_batch(struct child *self, void *arg)
{
	struct child other;
	struct sc_peer *peer;
	struct end end;

	(void)self, (void)arg;
	child_on_its_own();
	assert_int_equal(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }), 0);
	assert_true(child_start(&other, live, NULL));
	end_open(&end, NULL);
	peer = connect_to(&end, other.line);
	watchdog_await(life_of(peer));
	assert_int_equal(sched_getscheduler((pid_t)(life_of(peer) & SC_ABI_LIFE_TID)), SCHED_BATCH);
	child_kill(&other);
	watchdog_await(sc_watch_has_ended(&peer->watch));
	await_loss(&end, peer);
	end_close(&end);
	sc_process_fini();
}

static void test_batch(void **state)
{
	(void)state;
	assert_int_equal(child_run(is_batch, NULL), 0);
	assert_true(sc_reap_scan() >= 0);
}

#define BELLS 1030 /* more than the kernel would look at */

/* A bell uses nothing of a segment but its presence, so each segment here has no more than one page. */
static void many_bells(struct child *self, void *arg)
{
	static struct sc_bell bells[BELLS];
	static struct sc_seg segs[BELLS];
	const struct sc_host *host;
	struct sc_config config;
	int without = 0;

	(void)self, (void)arg;
	sc_config_init(&config);
	child_on_its_own();
	assert_int_equal(sc_host_get(&host), 0); /* as every endpoint does first */
	for (int i = 0; i < BELLS; i++) {
		segs[i].base = calloc(1, SC_ABI_PAGE);
		assert_non_null(segs[i].base);
		sc_bell_open(&bells[i], &segs[i]);
		without += !bells[i].presence;
	}
	assert_true(without > 0 && without < BELLS / 2);
	assert_true(sc_daemon_start(&config));
	for (int i = 0; i < BELLS; i++) /* the thread may have to begin */
		watchdog_await(!bells[i].presence || sc_load_acquire_32(&bells[i].presence->life));
	/* the oldest, the youngest, and some between */
	for (int i = 0; i < BELLS; i += 2) {
		sc_bell_close(&bells[i]);
		assert_int_equal(sc_seg_presence(&segs[i])->life, 0);
	}
	sc_bell_open(&bells[0], &segs[0]); /* has one of those that are free again */
	assert_non_null(bells[0].presence);
	for (int i = 1; i < BELLS; i += 2)
		sc_bell_close(&bells[i]);
	sc_bell_close(&bells[0]);
	sc_process_fini();
	for (int i = 0; i < BELLS; i++) {
		assert_int_equal(sc_seg_presence(&segs[i])->life, 0);
		free(segs[i].base);
	}
}

static void test_many_bells(void **state)
{
	(void)state;
	assert_int_equal(child_run(many_bells, NULL), 0);
}

#define WATCHES 40 /* more than it removes names at once */

/* Each watch of a process learns of its end; a watch with another cookie learns that the pid is another process's. */
static void test_many_watches(void **state)
{
	static struct sc_watch watches[WATCHES];
	struct sc_seg another, unnamed;
	struct sc_watch late, of_another, of_unnamed;
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	peer = meet(&end, &child, live);
	unnamed = *peer->seg;
	unnamed.header.address[0] = 'x'; /* nobody's name */
	sc_watch_add(&of_unnamed, &unnamed, &end.ep->bell);
	for (int i = 0; i < WATCHES; i++)
		sc_watch_add(&watches[i], peer->seg, &end.ep->bell);
	pidfds_await(0, 1);
	another = *peer->seg;
	another.header.owner.cookie++;
	sc_watch_add(&of_another, &another, &end.ep->bell);
	assert_ptr_not_equal(of_another.process, peer->watch.process);
	assert_int_equal(pidfds_count(0, 0), 1); /* one for each pid, not for each cookie */
	kill(child.pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)child.pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	await_unnamed(child.line);
	for (int i = 0; i < WATCHES; i++)
		watchdog_await(sc_watch_has_ended(&watches[i]));
	watchdog_await(sc_watch_has_ended(&of_another) && sc_watch_has_ended(&of_unnamed));
	another.header.owner.cookie++;
	/* a process is dead when its pidfd is opened: the pidfd is not kept */
	sc_watch_add(&late, &another, &end.ep->bell);
	assert_int_equal(pidfds_count(0, 0), 0);
	child_reap(&child);
	sc_watch_del(&late);
	sc_watch_del(&of_another);
	sc_watch_del(&of_unnamed);
	for (int i = 0; i < WATCHES; i++)
		sc_watch_del(&watches[i]);
	await_loss(&end, peer);
	end_close(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_calls_fail, pair_setup), /* before there is a thread here */
		cmocka_unit_test_setup(test_room_for_descriptors, pair_setup),
		cmocka_unit_test_setup(test_death, pair_setup),
		cmocka_unit_test_setup(test_counters, pair_setup),
		cmocka_unit_test_setup(test_sleeper_is_woken, pair_setup),
		cmocka_unit_test_setup(test_one_pidfd, pair_setup),
		cmocka_unit_test_setup(test_job, pair_setup),
		cmocka_unit_test_setup(test_gathered, pair_setup),
		cmocka_unit_test_setup(test_settles, pair_setup),
		cmocka_unit_test_setup(test_threads, pair_setup),
		cmocka_unit_test_setup(test_stopped, pair_setup),
		cmocka_unit_test_setup(test_leader_ended, pair_setup),
		cmocka_unit_test_setup(test_exec, pair_setup),
		cmocka_unit_test_setup(test_unread, pair_setup),
		cmocka_unit_test_setup(test_unread_among_many, pair_setup),
		cmocka_unit_test_setup(test_few_descriptors, pair_setup),
		cmocka_unit_test_setup(test_pid_namespace, pair_setup),
		cmocka_unit_test_setup(test_closefrom, pair_setup),
		cmocka_unit_test_setup(test_lock_kept, pair_setup),
		cmocka_unit_test_setup(test_tick, pair_setup),
		cmocka_unit_test_setup(test_lost_in_part, pair_setup),
		cmocka_unit_test_setup(test_life, pair_setup),
		cmocka_unit_test_setup(test_exec_unseen, pair_setup),
		cmocka_unit_test_setup(test_life_scribbled, pair_setup),
		cmocka_unit_test_setup(test_fork, pair_setup),
		cmocka_unit_test_setup(test_without, pair_setup),
		cmocka_unit_test_setup(test_check_life, pair_setup),
		cmocka_unit_test_setup(test_lowered_limit, pair_setup),
		cmocka_unit_test_setup(test_refused, pair_setup),
		cmocka_unit_test_setup(test_end, pair_setup),
		cmocka_unit_test_setup(test_lost_at_the_end, pair_setup),
		cmocka_unit_test_setup(test_interrupted, pair_setup),
		cmocka_unit_test_setup(test_ticks_without_scan, pair_setup),
		cmocka_unit_test_setup(test_batch, pair_setup),
		cmocka_unit_test_setup(test_many_bells, pair_setup),
		cmocka_unit_test_setup(test_many_watches, pair_setup),
	};

	(void)child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
