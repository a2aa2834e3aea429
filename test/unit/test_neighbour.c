/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_neighbour: processes that have nothing to do with each other, and what they do for each other's leftovers.
 *
 * Survivors have the periodic scan switched off: what they remove they have been told of. Nobody polls. In a
 * /dev/shm of its own where that is allowed; else others may be the ones who remove it.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dirent.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#include "core_pair.h"
#include "pidfds.h"
#include "thread.h"
#include "os/addr.h"
#include "os/doorbell.h"
#include "os/lifelock.h"
#include "proc/neighbour.h"
#include "os/pidfd.h"
#include "proc/reap.h"
#include "shm/create.h"

#define JOB 12
#define FEW 4 /* pidfds of a process with few descriptors, half of them for neighbours */

static bool alone;
static bool settles; /* an idle() tells of itself when it has looked for who was there */

static bool is_named(const char *address)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_addr parts;

	assert_int_equal(sc_addr_parse(address, &parts), 0);
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	return !access(path, F_OK);
}

static void await_unnamed(const char *address)
{
	watchdog_await(!is_named(address));
}

/* Our thread has looked for who was there when we came, and looks again when somebody knocks, or a neighbour ends. */
static void await_quiet(void)
{
	thread_await(1);
	thread_await_sleep();
}

/* ---- processes ------------------------------------------------------------------------------- */

/* An endpoint that nobody talks to. It can go on for ever; `arg`: of its own kind. */
static void idle(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	attr.config.scan = false;
	if (arg)
		attr = *(struct sc_ep_attr *)arg;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	if (settles)
		await_quiet();
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	sc_ep_destroy(ep);
	sc_process_fini();
}

/* The same, with descriptors for two neighbours. */
static void idle_few(struct child *self, void *arg)
{
	struct rlimit limit = { 4 * FEW, 4 * FEW };

	for (int fd = STDERR_FILENO + 1; fd < 1000; fd++)
		if (fd != self->up && fd != self->down)
			close(fd);
	self->up = dup2(self->up, 3);
	self->down = dup2(self->down, 4);
	CHILD_CHECK(self->up == 3 && self->down == 4);
	for (int fd = 5; fd < 1000; fd++)
		close(fd);
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	idle(self, arg);
}

/* Without thread: it watches nobody, and is watched. */
static void idle_alone(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();

	(void)arg;
	attr.config.daemon = false;
	idle(self, &attr);
}

/* Shares /dev/shm with the others, and no network. */
static void idle_elsewhere(struct child *self, void *arg)
{
	if (unshare(CLONE_NEWNET)) {
		child_tell(self, "not allowed");
		return;
	}
	idle(self, arg);
}

static void end_well(struct child *child)
{
	assert_int_equal(child_end(child), 0);
}

static void open_survivor(struct end *end)
{
	struct sc_ep_attr attr = end_attr();

	attr.config.scan = false;
	end_open(end, &attr);
}

static void kill_all(struct child *job, int count)
{
	for (int i = 0; i < count; i++)
		kill(job[i].pid, SIGKILL);
	for (int i = 0; i < count; i++)
		await_unnamed(job[i].line);
	for (int i = 0; i < count; i++)
		child_reap(&job[i]);
}

/* ---- one survivor ---------------------------------------------------------------------------- */

/* Before the job, in its middle, or after it: somebody who lives is there to see it end. */
static void test_job(void **state)
{
	(void)state;
	for (int when = 0; when <= JOB; when += JOB / 2) {
		struct child job[JOB];
		struct end end = { 0 };

		for (int i = 0; i < JOB; i++) {
			if (i == when)
				open_survivor(&end);
			assert_true(child_start(&job[i], i % 3 ? idle : idle_alone, NULL));
		}
		if (when == JOB)
			open_survivor(&end);
		if (alone)
			pidfds_await(0, SC_NEIGHBOURS);
		kill_all(job, JOB);
		end_close(&end);
	}
}

/* One after the other, each before the next one is killed. */
static void test_one_by_one(void **state)
{
	struct child job[JOB];
	struct end end;

	(void)state;
	open_survivor(&end);
	for (int i = 0; i < JOB; i++)
		assert_true(child_start(&job[i], idle, NULL));
	for (int i = 0; i < JOB; i++)
		kill_all(&job[i], 1);
	end_close(&end);
}

/* It comes and goes all the time; each pidfd goes with its process. */
static void test_churn(void **state)
{
	struct child child;
	struct end end;

	(void)state;
	open_survivor(&end);
	for (int i = 0; i < 10; i++) {
		assert_true(child_start(&child, idle, NULL));
		if (i % 2)
			kill_all(&child, 1);
		else
			end_well(&child);
	}
	if (alone)
		pidfds_await(0, 0);
	assert_true(child_start(&child, idle, NULL));
	if (alone)
		pidfds_await(0, 1);
	end_close(&end);
	assert_int_equal(pidfds_count(0, 0), 0); /* without endpoint there is nothing to take part in */
	open_survivor(&end);
	if (alone)
		pidfds_await(0, 1);
	kill_all(&child, 1);
	end_close(&end);
}

/* ---- a newcomer that dies -------------------------------------------------------------------- */

static const struct sc_seg_geometry geometry = {
	.slots = 4, .buf_size = 4096, .buf_count = 2, .window = 1000, .capabilities = SC_ABI_CAP_MSG
};

/* Between the steps of sc_ep_create(): it has a name, and has not knocked since. */
static void dies_named(struct child *self, void *arg)
{
	struct sc_seg *seg;

	(void)arg;
	(void)sc_neighbours_come();
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	child_tell(self, seg->header.address);
	raise(SIGKILL);
}

static void test_dies_named(void **state)
{
	struct child child;
	struct end end;

	(void)state;
	open_survivor(&end);
	for (int i = 0; i < 5; i++) {
		await_quiet();
		assert_true(child_start(&child, dies_named, NULL));
		await_unnamed(child.line);
		child_reap(&child);
	}
	end_close(&end);
}

/* It never knocked. */
static void dies_silent(struct child *self, void *arg)
{
	struct sc_seg *seg;

	(void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	child_tell(self, seg->header.address);
	raise(SIGKILL);
}

/* Whoever comes next removes what it has left, or has it removed. */
static void test_next_newcomer(void **state)
{
	struct child silent, next;
	struct end end;

	(void)state;
	open_survivor(&end);
	await_quiet();
	assert_true(child_start(&silent, dies_silent, NULL));
	child_reap(&silent);
	assert_true(child_start(&next, idle_alone, NULL));
	await_unnamed(silent.line);
	end_well(&next);
	end_close(&end);
}

static void knock_again_after(unsigned int *looks, const struct sc_abi_presence *presence)
{
	if (++*looks % 16384 == 0)
		thread_knock_until_heard(presence);
	watchdog_nap();
}

/* For a while after a knock nobody else needs to; who has seen that, and dies, is found all the same. */
static void test_heard(void **state)
{
	const struct sc_abi_presence *presence;
	unsigned int looks;
	struct child child;
	struct end end;

	(void)state;
	open_survivor(&end);
	presence = sc_seg_presence(end.ep->seg);
	for (int i = 0; i < 3; i++) {
		await_quiet();
		thread_knock_until_heard(presence);
		assert_true(child_start(&child, dies_silent, NULL));
		child_reap(&child);
		looks = 0;
		/* it may be later with its name than anybody waits for */
		watchdog_await_by(!is_named(child.line), knock_again_after(&looks, presence));
	}
	end_close(&end);
}

/* Who comes shows it as if somebody had knocked: for a while only, so it may be over when this one comes to look. */
static void test_comes_heard(void **state)
{
	bool heard = false;

	(void)state;
	while (!heard) {
		struct end end;

		open_survivor(&end);
		heard = thread_shows_heard(sc_seg_presence(end.ep->seg));
		watchdog_await(!thread_shows_heard(sc_seg_presence(end.ep->seg)));
		end_close(&end);
	}
}

/* The end of a neighbour is like a knock: who has just come may have knocked at that one only. */
static void test_end_heard(void **state)
{
	const struct sc_abi_presence *presence;
	struct child child;
	struct end end;
	bool heard = false;

	(void)state;
	if (!alone)
		skip();
	open_survivor(&end);
	presence = sc_seg_presence(end.ep->seg);
	for (int i = 0; i < 20 && !heard; i++) { /* it is shown for a while only */
		assert_true(child_start(&child, idle, NULL));
		pidfds_await(0, 1);
		await_quiet();
		kill(child.pid, SIGKILL);
		while (!heard && is_named(child.line))
			heard = thread_shows_heard(presence);
		await_unnamed(child.line);
		heard |= thread_shows_heard(presence);
		child_reap(&child);
	}
	assert_true(heard);
	end_close(&end);
}

/* ---- survivors that cannot ------------------------------------------------------------------- */

/* A stopped one notices nothing, and stands in nobody's way; it is well after that. */
static void test_stopped(void **state)
{
	struct child stopped, job[JOB], late;
	struct end end;

	(void)state;
	assert_true(child_start(&stopped, idle, NULL));
	kill(stopped.pid, SIGSTOP);
	assert_int_equal(waitpid(stopped.pid, NULL, WUNTRACED), stopped.pid);
	open_survivor(&end);
	for (int i = 0; i < JOB; i++)
		assert_true(child_start(&job[i], idle, NULL));
	kill_all(job, JOB);
	assert_true(is_named(stopped.line));
	assert_true(child_start(&late, idle, NULL));
	end_close(&end);
	kill(stopped.pid, SIGCONT);
	kill_all(&late, 1); /* it is alone with that one */
	end_well(&stopped);
	assert_false(is_named(stopped.line));
}

/* Containers share /dev/shm, and the pids, but seldom the network. */
static void test_network(void **state)
{
	struct child survivor, job[2];

	(void)state;
	settles = true;
	assert_true(child_start(&survivor, idle_elsewhere, NULL));
	settles = false;
	if (strcmp(survivor.line, "not allowed")) {
		assert_true(child_start(&job[0], idle, NULL));
		assert_true(child_start(&job[1], idle_elsewhere, NULL));
		kill_all(job, 2);
	}
	end_well(&survivor);
}

/* The application has closed the door behind which it sleeps; who has knocked meanwhile is found. */
static void loses_door(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_abi_presence *presence;
	struct child child;
	struct sc_ep *ep;
	uint32_t before;

	(void)arg;
	child_on_its_own();
	attr.config.scan = false;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	presence = sc_seg_presence(ep->seg);
	before = presence->door & ~SC_ABI_DOOR_HEARD;
	CHILD_CHECK(before);
	await_quiet();
	for (int fd = STDERR_FILENO + 1; fd < 1000; fd++)
		if (fd != self->up && fd != self->down)
			close(fd);
	while (dup(STDERR_FILENO) < (int)before) /* so that it will be another number */
		;
	watchdog_await((sc_load_acquire_32(&presence->door) & ~SC_ABI_DOOR_HEARD) != before);
	child_tell(self, "lost");
	child_wait(self);
	CHILD_CHECK(child_start(&child, idle, NULL));
	kill_all(&child, 1);
	watchdog_await(sc_load_acquire_32(&presence->door));
	CHILD_CHECK(child_start(&child, idle, NULL));
	kill_all(&child, 1);
	sc_ep_destroy(ep);
	sc_process_fini();
}

static void test_closefrom(void **state)
{
	struct child child;

	(void)state;
	if (!cma_allowed())
		skip();
	assert_true(child_start(&child, loses_door, NULL));
	end_well(&child);
}

static void without_pidfds(struct child *self, void *arg)
{
	(void)self, (void)arg;
	CHILD_CHECK(!pidfds_count(0, 0));
}

/* A forked child is none of the neighbours, and has none of their descriptors. */
static void test_fork(void **state)
{
	struct child child;
	struct end end;

	(void)state;
	open_survivor(&end);
	assert_true(child_start(&child, idle, NULL));
	if (alone)
		pidfds_await(0, 1);
	assert_int_equal(child_run(without_pidfds, NULL), 0);
	kill_all(&child, 1);
	end_close(&end);
}

/* ---- more of them than descriptors ----------------------------------------------------------- */

/* Each watches two others, and all of it is clean as long as one lives, whoever dies, in whatever order. */
static void test_ring(void **state)
{
	(void)state;
	for (int at_once = 1; at_once <= JOB; at_once += 4) {
		struct child job[JOB + 1];

		for (int i = 0; i <= JOB; i++) {
			assert_true(child_start(&job[i], idle_few, NULL));
			assert_true(pidfds_count(job[i].pid, 0) <= FEW / 2);
		}
		for (int i = 0; alone && i <= JOB; i++)
			pidfds_await(job[i].pid, FEW / 2);
		for (int first = 0; first < JOB; first += at_once)
			kill_all(&job[first], JOB - first < at_once ? JOB - first : at_once);
		end_well(&job[JOB]);
	}
}

static int count_watchers(const struct child *crowd, int count, pid_t pid)
{
	int watchers = 0;

	for (int i = 0; i < count; i++)
		watchers += crowd[i].pid != pid && pidfds_count(crowd[i].pid, pid) != 0;
	return watchers;
}

static void await_watched(const struct child *crowd, int count)
{
	for (int i = 0; i < count; i++)
		watchdog_await(count_watchers(crowd, count, crowd[i].pid) == SC_NEIGHBOURS);
}

#define LATE 4 /* come one by one, when those who are there have looked at each other */

/* Of more than one can watch each is watched by as many: those that it comes next to, at whom it has knocked. */
static void test_each_is_watched(void **state)
{
	struct child crowd[2 * SC_NEIGHBOURS + LATE];
	const int count = sizeof(crowd) / sizeof(crowd[0]);

	(void)state;
	if (!alone)
		skip();
	for (int i = 0; i < count; i++) {
		assert_true(child_start(&crowd[i], idle, NULL));
		if (i >= count - LATE - 1)
			await_watched(crowd, i + 1);
	}
	for (int i = 0; i < count; i++)
		end_well(&crowd[i]);
}

/* One for each process, whoever asks. */
static void test_peers(void **state)
{
	int place = sc_pidfd_get(getpid());

	(void)state;
	assert_true(place != SC_NO_PIDFD);
	assert_true(sc_pidfd_is_open(place));
	assert_int_equal(sc_pidfd_get(getpid()), place);
	assert_int_equal(pidfds_count(0, 0), 1);
	sc_pidfd_put(place);
	assert_int_equal(pidfds_count(0, 0), 1);
	sc_pidfd_put(place);
	assert_int_equal(pidfds_count(0, 0), 0);
	assert_int_equal(sc_pidfd_get(0x7ffffff0), SC_NO_PIDFD);
	if (core_failing("pidfd.limit", EPERM))
		assert_int_equal(sc_pidfd_get(getpid()), SC_NO_PIDFD);
	if (core_failing("pidfd.open", EMFILE))
		assert_int_equal(sc_pidfd_get(getpid()), SC_NO_PIDFD);
	core_failing(NULL, 0);
}

/* A file with the life lock held, to be added as a neighbour's. */
static void holds_lock(struct child *self, void *arg)
{
	CHILD_CHECK(!sc_lifelock_lock(*(int *)arg));
	child_tell(self, "locked");
	child_wait(self);
}

static bool add(struct child *child, int fd, uint64_t distance)
{
	const struct sc_neighbour neighbour = { .distance = distance, .name = distance };

	return sc_neighbour_add(&neighbour, child->pid, fd, 1);
}

static bool is_found(uint64_t distance)
{
	const struct sc_neighbour neighbour = { .distance = distance, .name = distance };

	return sc_neighbour_find(&neighbour, 1);
}

#define CROWD (2 * SC_NEIGHBOURS)

static void set_most(int pidfds)
{
	struct rlimit limit = { 4 * (rlim_t)pidfds, 1024 };

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The nearest are kept, no more than half of what there may be, and give way to peers, the farthest first. */
static void keeps_nearest(struct child *self, void *arg)
{
	struct child crowd[CROWD];
	int fds[CROWD];

	(void)self, (void)arg;
	child_on_its_own();
	for (int i = 0; i < CROWD; i++) {
		FILE *file = tmpfile();

		CHILD_CHECK(file);
		fds[i] = fileno(file);
		CHILD_CHECK(child_start(&crowd[i], holds_lock, &fds[i]));
		close(crowd[i].up);
		crowd[i].up = -1;
	}
	set_most(2 * CROWD);
	assert_true(add(&crowd[0], fds[0], 120)); /* it lives, but nobody wants neighbours */
	assert_int_equal(pidfds_count(0, 0), 0);
	sc_neighbours_want(true);
	assert_false(is_found(120));
	for (int i = 0; i < 12; i++) {
		assert_true(add(&crowd[i], fds[i], 10 * (uint64_t)(12 - i)));
		assert_int_equal(pidfds_count(0, 0), i < 8 ? i + 1 : 8);
	}
	assert_true(add(&crowd[11], fds[11], 11)); /* the same by another name */
	assert_int_equal(pidfds_count(0, 0), 8);
	assert_true(is_found(10) && is_found(80));
	assert_true(is_found(81)); /* there is no room that far off */
	assert_false(is_found(79));
	set_most(CROWD);
	for (int i = 0; i < 4; i++)
		assert_true(sc_pidfd_get(crowd[i].pid) != SC_NO_PIDFD);
	for (int i = 12; i < CROWD; i++)
		assert_true(sc_pidfd_get(crowd[i].pid) != SC_NO_PIDFD);
	assert_true(sc_pidfd_get(crowd[11].pid) != SC_NO_PIDFD); /* has one already */
	assert_int_equal(pidfds_count(0, 0), CROWD);
	set_most(CROWD - 1);
	assert_true(sc_pidfd_get(getppid()) != SC_NO_PIDFD);
	assert_int_equal(pidfds_count(0, 0), CROWD - 1);
	assert_true(is_found(10) && is_found(60));
	assert_false(is_found(59)); /* of the seven that it may have now there are six */
	sc_neighbours_sweep(1);
	assert_int_equal(pidfds_count(0, 0), CROWD - 1);
	set_most(0); /* none at all */
	assert_true(is_found(0));
	assert_int_equal(sc_pidfd_get(getpid()), SC_NO_PIDFD);
	set_most(CROWD);
	assert_int_equal(pidfds_count(0, 0), 10);
	/* killed, and not waited for: it has a pid, and does not live */
	kill(crowd[5].pid, SIGKILL);
	watchdog_await(!sc_lifelock_check(fds[5], &(pid_t){ 0 }));
	assert_false(add(&crowd[5], fds[5], 1));
	for (int i = 0; i < CROWD; i++)
		child_kill(&crowd[i]);
	assert_false(add(&crowd[6], fds[6], 1));
	assert_int_equal(pidfds_count(0, 0), 10);
}

static void test_nearest(void **state)
{
	(void)state;
	assert_int_equal(child_run(keeps_nearest, NULL), 0);
}

/* A table that is full, for good measure: as many as there may be, and one more. */
static void fills_table(struct child *self, void *arg)
{
	pid_t pids[SC_PIDFDS_MAX + 1];
	struct rlimit limit = { 4096, 4096 };
	int places[SC_PIDFDS_MAX];

	(void)self, (void)arg;
	child_on_its_own();
	if (setrlimit(RLIMIT_NOFILE, &limit) && getrlimit(RLIMIT_NOFILE, &limit))
		abort();
	if (limit.rlim_cur < 4 * SC_PIDFDS_MAX)
		_exit(CHILD_SKIPS);
	for (int i = 0; i <= SC_PIDFDS_MAX; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	for (int i = 0; i < SC_PIDFDS_MAX; i++) {
		places[i] = sc_pidfd_get(pids[i]);
		assert_true(places[i] != SC_NO_PIDFD);
	}
	assert_int_equal(sc_pidfd_get(pids[SC_PIDFDS_MAX]), SC_NO_PIDFD);
	sc_pidfd_put(places[3]);
	assert_int_equal(sc_pidfd_get(pids[SC_PIDFDS_MAX]), places[3]);
	assert_int_equal(pidfds_count(0, 0), SC_PIDFDS_MAX);
	for (int i = 0; i <= SC_PIDFDS_MAX; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i <= SC_PIDFDS_MAX; i++)
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
}

static void test_table_full(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(fills_table, NULL));
}

/* Neighbours beside a peer: those are forgotten that a look has not seen, or whose descriptor is lost. */
static void forgets(struct child *self, void *arg)
{
	const struct sc_neighbour other_name = { .distance = 20, .name = 10 },
				  farther = { .distance = 11, .name = 10 };
	struct pollfd polls[SC_PIDFDS_MAX];
	struct child crowd[3];
	int fds[3], peer, shared = SC_NO_PIDFD;

	(void)self, (void)arg;
	child_on_its_own();
	peer = sc_pidfd_get(getppid());
	assert_true(peer != SC_NO_PIDFD);
	sc_neighbours_want(true);
	for (int i = 0; i < 3; i++) {
		FILE *file = tmpfile();

		CHILD_CHECK(file);
		fds[i] = fileno(file);
		CHILD_CHECK(child_start(&crowd[i], holds_lock, &fds[i]));
		shared = i ? shared : sc_pidfd_get(crowd[i].pid);
		assert_true(add(&crowd[i], fds[i], 10 * ((uint64_t)i + 1)));
	}
	assert_int_equal(pidfds_count(0, 0), 4);
	sc_pidfd_put(shared); /* a peer's, and still a neighbour's */
	assert_true(sc_pidfd_is_open(shared));
	assert_int_equal(pidfds_count(0, 0), 4);
	assert_false(sc_neighbour_find(&other_name, 1));
	assert_false(sc_neighbour_find(&farther, 1));
	assert_false(add(&crowd[0], fds[1], 5)); /* the lock is another process's */
	assert_false(is_found(10));
	assert_int_equal(pidfds_count(0, 0), 3);
	assert_true(add(&crowd[0], fds[0], 10));
	sc_neighbours_check(); /* all there */
	assert_int_equal(pidfds_count(0, 0), 4);
	assert_true(sc_neighbour_find(&(struct sc_neighbour){ .distance = 20, .name = 20 }, 2));
	sc_neighbours_sweep(2);
	assert_int_equal(pidfds_count(0, 0), 2);
	assert_true(is_found(20));
	assert_false(is_found(10));

	/* the application closes all */
	for (int fd = STDERR_FILENO + 1; fd < 1000; fd++) {
		char path[64], text[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, text, sizeof(text) - 1) > 0 && strstr(text, "pidfd"))
			close(fd);
	}
	sc_neighbours_check();
	assert_false(is_found(20));
	assert_false(sc_pidfd_is_open(peer));

	/* as a forked child's copy: nothing is left, whatever is asked for afterwards */
	assert_true(add(&crowd[2], fds[2], 30));
	assert_true(sc_pidfd_get(crowd[1].pid) != SC_NO_PIDFD);
	assert_int_equal(pidfds_count(0, 0), 2);
	memset(polls, 0xff, sizeof(polls));
	assert_false(sc_neighbours_bury(polls)); /* they were not polled */
	sc_pidfds_inherited();
	assert_int_equal(pidfds_count(0, 0), 0);
	assert_false(sc_neighbours_bury(polls));
	assert_true(is_found(30)); /* nobody is wanted */
	sc_neighbours_want(true);
	assert_false(is_found(30));
	assert_true(add(&crowd[2], fds[2], 30));
	assert_true(sc_pidfd_get(crowd[1].pid) != SC_NO_PIDFD);
	sc_neighbours_want(false);
	assert_int_equal(pidfds_count(0, 0), 1);
	for (int i = 0; i < 3; i++)
		child_kill(&crowd[i]);
}

static void test_forgets(void **state)
{
	(void)state;
	assert_int_equal(child_run(forgets, NULL), 0);
}

/* ---- what others have written, and what fails ------------------------------------------------- */

enum fake { FAKE_NONE, FAKE_SHORT, FAKE_MAGIC, FAKE_LAYOUT, FAKE_HEARD, FAKES };

/*
 * A file that is named like an endpoint's, with its life lock held, which says where a door is. Its owner
 * tells, when it is asked to, how often somebody has knocked.
 */
static void fake_file(struct child *self, void *arg)
{
	static uint8_t bytes[SC_ABI_PRESENCE + sizeof(struct sc_abi_presence)];
	enum fake fake = *(enum fake *)arg;
	struct sc_abi_header header = { .magic = SC_ABI_MAGIC, .layout = SC_ABI_LAYOUT };
	struct sc_abi_presence *presence = (void *)(bytes + SC_ABI_PRESENCE);
	struct sc_addr parts = { .pid = (uint32_t)getpid() };
	char path[SC_SHMFILE_PATH_MAX], name[SC_ADDR_NAME_MAX], knocks[16], line[CHILD_LINE];
	struct sc_doorbell door;
	ssize_t count;
	int fd;

	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	CHILD_CHECK(!sc_doorbell_open(&door));
	door.heard = fake == FAKE_HEARD;
	sc_doorbell_show(&door, presence);
	header.magic += fake == FAKE_MAGIC;
	header.layout += fake == FAKE_LAYOUT;
	memcpy(bytes, &header, sizeof(header));
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	CHILD_CHECK(fd >= 0 && !fchmod(fd, 0600) && !sc_lifelock_lock(fd));
	CHILD_CHECK(write(fd, bytes, sizeof(bytes) - (fake == FAKE_SHORT)) > 0);
	child_tell(self, "there");
	child_wait(self);
	count = read(door.ends[0], knocks, sizeof(knocks));
	snprintf(line, sizeof(line), "%zd", count < 0 && errno == EAGAIN ? 0 : count);
	child_tell(self, line);
	CHILD_CHECK(!unlink(path));
}

/* The file of a service is nobody's life: its endpoint's is. Whoever it belongs to is not dead. */
static void look_at_service(struct child *self, void *arg)
{
	const char path[] = "/dev/shm/shmcma.service-%u-neighbour";
	char name[sizeof(path) + 16];

	(void)self;
	(void)arg;
	child_on_its_own();
	snprintf(name, sizeof(name), path, (unsigned)geteuid());
	CHILD_CHECK(!close(open(name, O_CREAT | O_RDWR, 0600)));
	assert_true(!sc_neighbours_look() || !alone);
	CHILD_CHECK(!unlink(name));
}

static void test_service(void **state)
{
	struct child child;

	(void)state;
	child_spawn(&child, look_at_service, NULL);
	assert_int_equal(child_reap(&child), 0);
}

/* Returns how many knocks it has heard. */
static int end_fake(struct child *fake)
{
	assert_int_equal(send(fake->down, "", 1, 0), 1);
	assert_int_equal(read(fake->up, fake->line, CHILD_LINE), CHILD_LINE);
	assert_int_equal(child_reap(fake), 0);
	return atoi(fake->line);
}

/* Who is knocked at has a file that we can read, and has not just been. */
static void test_knock_at_fakes(void **state)
{
	(void)state;
	for (enum fake fake = FAKE_NONE; fake < FAKES; fake++) {
		struct child child;

		assert_true(child_start(&child, fake_file, &fake));
		(void)sc_neighbours_come();
		assert_int_equal(end_fake(&child) > 0, fake == FAKE_NONE);
	}
}

/* It looks, and knocks at nobody. */
static void look_only(struct child *self, void *arg)
{
	(void)self, (void)arg;
	child_on_its_own();
	sc_neighbours_want(true);
	(void)sc_neighbours_look();
	assert_int_equal(pidfds_count(0, 0), 1);
}

static int64_t step_ns = -1; /* not negative: of a clock that goes on by that whenever it is read */

int clock_gettime(clockid_t id, struct timespec *now)
{
	static int64_t ns = INT64_C(3600) * 1000000000;

	if (step_ns < 0)
		return (int)syscall(SYS_clock_gettime, id, now);
	ns += step_ns;
	*now = (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	return 0;
}

/* `arg`: what passes from one look at the clock to the next, ns. */
static void come_late(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	(void)self;
	child_on_its_own();
	attr.config.daemon = false;
	step_ns = *(const int64_t *)arg;
	assert_int_equal(sc_ep_create(&attr, &ep), 0);
	step_ns = -1;
	sc_ep_destroy(ep);
	sc_process_fini();
}

/* Who comes knocks before he has his name, and once more if he is late with it. */
static void test_knocks(void **state)
{
	static int64_t on_time = 0, late = SC_NEIGHBOURS_LOOK_MS * INT64_C(1000000);
	static const struct {
		void (*comes)(struct child *self, void *arg);
		void *arg;
		int knocks;
	} cases[] = { { look_only, NULL, 0 }, { come_late, &on_time, 1 }, { come_late, &late, 2 } };
	enum fake fake = FAKE_NONE;

	(void)state;
	if (!alone)
		skip();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct child child;

		assert_true(child_start(&child, fake_file, &fake));
		assert_int_equal(child_run(cases[i].comes, cases[i].arg), 0);
		assert_int_equal(end_fake(&child), cases[i].knocks);
	}
}

#ifdef SC_FAULT_INJECTION

static struct sc_ep *replaced;

static int replace(const char *point)
{
	struct sc_ep *ep = replaced;

	if (ep && !strcmp(point, "create.header")) {
		replaced = NULL;
		sc_ep_destroy(ep);
	}
	return 0;
}

/* Another thread destroys the only endpoint while the next one is being made. */
static void come_again(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	(void)self, (void)arg;
	child_on_its_own();
	attr.config.daemon = false;
	step_ns = 0;
	assert_int_equal(sc_ep_create(&attr, &replaced), 0);
	sc_fault_hook = replace;
	assert_int_equal(sc_ep_create(&attr, &ep), 0);
	step_ns = -1;
	assert_null(replaced);
	sc_ep_destroy(ep);
	sc_process_fini();
}

/* Between the two there was nobody to be found. */
static void test_comes_again(void **state)
{
	enum fake fake = FAKE_NONE;
	struct child child;

	(void)state;
	if (!alone)
		skip();
	assert_true(child_start(&child, fake_file, &fake));
	assert_int_equal(child_run(come_again, NULL), 0);
	assert_int_equal(end_fake(&child), 2);
}

#endif

/* What cannot be read is not knocked at; who cannot be asked about is neither dead nor watched. */
static void fail_to_look(struct child *self, void *arg)
{
	(void)self, (void)arg;
	child_on_its_own();
	core_failing("host.dir", EACCES); /* a child has yet to find out who it is */
	assert_false(sc_neighbours_look());
	core_failing("neighbour.presence", EIO);
	(void)sc_neighbours_come();
	sc_neighbours_want(true);
	core_failing("lifelock.check", ENOLCK);
	assert_false(sc_neighbours_look());
	assert_int_equal(pidfds_count(0, 0), 0);
	core_failing_after("lifelock.check", ENOLCK, 1); /* as if it ended while it is looked at */
	assert_true(sc_neighbours_look() || !alone);
	assert_int_equal(pidfds_count(0, 0), 0);
	core_failing(NULL, 0);
	(void)sc_neighbours_look();
	if (alone)
		assert_int_equal(pidfds_count(0, 0), 1);
	core_failing("reap.scan", EMFILE);
	assert_false(sc_neighbours_look()); /* and nobody is forgotten */
	if (alone)
		assert_int_equal(pidfds_count(0, 0), 1);
	core_failing(NULL, 0);
}

static void test_calls_fail(void **state)
{
	enum fake fake = FAKE_NONE;
	struct child child;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	assert_true(child_start(&child, fake_file, &fake));
	assert_int_equal(child_run(fail_to_look, NULL), 0);
	assert_int_equal(end_fake(&child), 0);
}

/* ---- what was left before -------------------------------------------------------------------- */

/* A process comes; nobody else is there. `arg`: the address of who has ended. */
static void come(struct child *self, void *arg)
{
	struct end end;

	(void)self;
	child_on_its_own();
	end_open(&end, NULL);
	assert_false(is_named(arg));
	end_close(&end);
	sc_process_fini();
}

/* It is removed before who comes has a name: he may need the memory. */
static void test_left_before(void **state)
{
	struct child dead;
	siginfo_t info;

	(void)state;
	if (!alone)
		skip();
	assert_true(child_start(&dead, idle, NULL));
	child_kill(&dead);
	assert_true(is_named(dead.line));
	assert_int_equal(child_run(come, dead.line), 0);
	/* and with its parent yet to ask for its status */
	assert_true(child_start(&dead, idle, NULL));
	kill(dead.pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)dead.pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(is_named(dead.line));
	assert_int_equal(child_run(come, dead.line), 0);
	child_reap(&dead);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_peers, pair_setup),
		cmocka_unit_test_setup(test_nearest, pair_setup),
		cmocka_unit_test_setup(test_table_full, pair_setup),
		cmocka_unit_test_setup(test_forgets, pair_setup),
		cmocka_unit_test_setup(test_knock_at_fakes, pair_setup),
		cmocka_unit_test_setup(test_knocks, pair_setup),
#ifdef SC_FAULT_INJECTION
		cmocka_unit_test_setup(test_comes_again, pair_setup),
#endif
		cmocka_unit_test_setup(test_calls_fail, pair_setup),
		cmocka_unit_test_setup(test_job, pair_setup),
		cmocka_unit_test_setup(test_one_by_one, pair_setup),
		cmocka_unit_test_setup(test_churn, pair_setup),
		cmocka_unit_test_setup(test_dies_named, pair_setup),
		cmocka_unit_test_setup(test_next_newcomer, pair_setup),
		cmocka_unit_test_setup(test_heard, pair_setup),
		cmocka_unit_test_setup(test_comes_heard, pair_setup),
		cmocka_unit_test_setup(test_end_heard, pair_setup),
		cmocka_unit_test_setup(test_stopped, pair_setup),
		cmocka_unit_test_setup(test_network, pair_setup),
		cmocka_unit_test_setup(test_closefrom, pair_setup),
		cmocka_unit_test_setup(test_fork, pair_setup),
		cmocka_unit_test_setup(test_ring, pair_setup),
		cmocka_unit_test_setup(test_each_is_watched, pair_setup),
		cmocka_unit_test_setup(test_service, pair_setup),
		cmocka_unit_test_setup(test_left_before, pair_setup),
	};

	/* a child is forked while the thread allocates: it would find a sanitizer's allocator locked for ever */
	if (CHILD_SANITIZED) {
		printf("SKIP: not with a sanitizer\n");
		return 77;
	}
	alone = child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
