/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_leftover: processes that have no connection with each other remove each other's leftovers.
 *
 * No process polls. The test has a /dev/shm of its own where that is allowed; else others may remove the files.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "core_pair.h"
#include "os/addr.h"
#include "os/host.h"
#include "proc/leftover.h"
#include "proc/reap.h"

#define JOB 12
#define FOREIGN (SC_LEFTOVER_OTHERS + 8)

static bool alone;

static void await_unnamed(const char *address)
{
	watchdog_await(!core_has_file(address));
}

/* ---- processes ------------------------------------------------------------------------------- */

/* An endpoint that nobody talks to; `arg`: of its own kind. */
static void idle(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	if (arg)
		attr = *(struct sc_ep_attr *)arg;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	sc_ep_destroy(ep);
	sc_process_fini();
}

/* Without thread: it looks for nobody. */
static void idle_alone(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();

	(void)arg;
	attr.config.daemon = false;
	idle(self, &attr);
}

static void kill_all(struct child *job, int count)
{
	for (int i = 0; i < count; i++)
		kill(job[i].pid, SIGKILL);
	for (int i = 0; i < count; i++)
		await_unnamed(job[i].line); /* also of a zombie */
	for (int i = 0; i < count; i++)
		child_reap(&job[i]);
}

/* Before the job, in its middle, or after it: a process that lives is there to see it end. */
static void test_job(void **state)
{
	(void)state;
	for (int when = 0; when <= JOB; when += JOB / 2) {
		struct child job[JOB];
		struct end end = { 0 };

		for (int i = 0; i < JOB; i++) {
			if (i == when)
				end_open(&end, NULL);
			assert_true(child_start(&job[i], i % 3 ? idle : idle_alone, NULL));
		}
		if (when == JOB)
			end_open(&end, NULL);
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
	end_open(&end, NULL);
	for (int i = 0; i < JOB; i++)
		assert_true(child_start(&job[i], idle, NULL));
	for (int i = 0; i < JOB; i++)
		kill_all(&job[i], 1);
	end_close(&end);
}

/* Those that are stopped see nothing, and hide nothing. */
static void test_stopped(void **state)
{
	struct child stopped[SC_LEFTOVER_NEXT - 1], job[2];
	struct end end;

	(void)state;
	end_open(&end, NULL);
	for (int i = 0; i < SC_LEFTOVER_NEXT - 1; i++) {
		assert_true(child_start(&stopped[i], idle, NULL));
		kill(stopped[i].pid, SIGSTOP);
	}
	for (int i = 0; i < 2; i++)
		assert_true(child_start(&job[i], idle, NULL));
	kill_all(job, 2);
	for (int i = 0; i < SC_LEFTOVER_NEXT - 1; i++) {
		assert_true(core_has_file(stopped[i].line));
		kill(stopped[i].pid, SIGCONT);
		assert_int_equal(child_end(&stopped[i]), 0);
	}
	end_close(&end);
}

/* ---- looks ----------------------------------------------------------------------------------- */

static pid_t sleeper(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static void path_of(pid_t pid, char path[SC_SHMFILE_PATH_MAX])
{
	const struct sc_addr parts = { .uid = geteuid(), .pid = (uint32_t)pid };
	char name[SC_ADDR_NAME_MAX];

	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
}

static void make_file(const char *path)
{
	assert_int_equal(close(open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)), 0);
}

static void make_name(pid_t pid)
{
	char path[SC_SHMFILE_PATH_MAX];

	path_of(pid, path);
	make_file(path);
}

static void remove_name(pid_t pid)
{
	char path[SC_SHMFILE_PATH_MAX];

	path_of(pid, path);
	assert_int_equal(unlink(path), 0);
}

/* Killed, and not waited for. */
static void make_zombie(pid_t pid)
{
	siginfo_t info;

	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

/* A look tells of an end once: of a zombie, or of a pid that no process has. */
static void test_look(void **state)
{
	struct sc_leftovers leftovers = { 0 };
	pid_t pids[2] = { sleeper(), sleeper() };

	(void)state;
	if (!alone)
		skip();
	assert_false(sc_leftover_look(&leftovers));
	for (int i = 0; i < 2; i++)
		make_name(pids[i]);
	for (int i = 0; i < 3; i++)
		assert_false(sc_leftover_look(&leftovers));
	assert_false(sc_leftover_is_here());
	make_zombie(pids[0]);
	assert_true(sc_leftover_look(&leftovers));
	assert_false(sc_leftover_look(&leftovers));
	assert_true(sc_leftover_is_here());
	assert_int_equal(waitpid(pids[0], NULL, 0), pids[0]);
	assert_false(sc_leftover_look(&leftovers)); /* the same one */
	make_zombie(pids[1]);
	assert_int_equal(waitpid(pids[1], NULL, 0), pids[1]);
	assert_true(sc_leftover_look(&leftovers));
	for (int i = 0; i < 2; i++)
		remove_name(pids[i]);
	assert_false(sc_leftover_look(&leftovers));
	assert_false(sc_leftover_is_here());
	sc_leftover_fini(&leftovers);
}

static void name_of_foreign(uint32_t i, char path[SC_SHMFILE_PATH_MAX])
{
	struct sc_addr parts = { .uid = geteuid(), .pid = INT32_MAX - 1 }; /* more than pid_max may be */
	char name[SC_ADDR_NAME_MAX];

	memcpy(parts.nonce, &i, sizeof(i));
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
}

/*
 * Names of this user that another user has given, with pids that no process has, stay: no scan can remove them. A look
 * asks about each once, also if the directory changes, and still tells of what ends later. A process that begins looks
 * at a few of them.
 */
static void test_foreign(void **state)
{
	struct sc_leftovers leftovers = { 0 };
	char path[SC_SHMFILE_PATH_MAX];
	pid_t pid = sleeper();

	(void)state;
	if (!alone || geteuid() || !core_failing(NULL, 0))
		skip();
	for (uint32_t i = 0; i < FOREIGN; i++) {
		name_of_foreign(i, path);
		make_file(path);
		assert_int_equal(chown(path, 65534, 65534), 0);
	}
	core_failing("leftover.kill", ESRCH);
	assert_false(sc_leftover_is_here());
	assert_int_equal(core_failed(), SC_LEFTOVER_OTHERS);
	core_failing("leftover.kill", ESRCH);
	assert_true(sc_leftover_look(&leftovers));
	assert_int_equal(core_failed(), FOREIGN);
	core_failing(NULL, 0);
	assert_false(sc_leftover_look(&leftovers));
	make_name(pid);
	core_failing("leftover.kill", EPERM);
	assert_false(sc_leftover_look(&leftovers));
	assert_int_equal(core_failed(), 1); /* about the new one */
	core_failing(NULL, 0);
	make_zombie(pid);
	assert_true(sc_leftover_look(&leftovers));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	remove_name(pid);
	for (uint32_t i = 0; i < FOREIGN; i++) {
		name_of_foreign(i, path);
		assert_int_equal(unlink(path), 0);
	}
	sc_leftover_fini(&leftovers);
}

/* There may be more names than there is space for at first. */
static void test_many(void **state)
{
	struct sc_addr parts = { .uid = geteuid(), .pid = (uint32_t)getpid() };
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_leftovers leftovers = { 0 };
	pid_t pid = sleeper();

	(void)state;
	if (!alone)
		skip();
	for (parts.ep = 0; parts.ep < 100; parts.ep++) {
		sc_addr_file(&parts, name);
		sc_shmfile_path(name, path);
		make_file(path);
	}
	make_name(pid);
	assert_false(sc_leftover_look(&leftovers));
	assert_int_equal(leftovers.count, 2); /* processes */
	make_zombie(pid);
	assert_true(sc_leftover_look(&leftovers));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	remove_name(pid);
	for (parts.ep = 0; parts.ep < 100; parts.ep++) {
		sc_addr_file(&parts, name);
		sc_shmfile_path(name, path);
		assert_int_equal(unlink(path), 0);
	}
	sc_leftover_fini(&leftovers);
}

static int by_pid(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* A process looks at the next living processes, and at the dead between them; other processes look at the rest. */
static void test_next(void **state)
{
	struct sc_leftovers leftovers = { 0 };
	pid_t pids[SC_LEFTOVER_NEXT + 3];
	const int count = sizeof(pids) / sizeof(pids[0]);

	(void)state;
	if (!alone)
		skip();
	for (int i = 0; i < count; i++) {
		pids[i] = sleeper();
		make_name(pids[i]);
	}
	qsort(pids, (size_t)count, sizeof(pids[0]), by_pid);
	if (pids[0] > getpid()) { /* else the numbers have begun again in between */
		make_zombie(pids[count - 1]);
		assert_false(sc_leftover_look(&leftovers));
		for (int i = 0; i < 2; i++) {
			make_zombie(pids[i]);
			assert_true(sc_leftover_look(&leftovers));
		}
		make_zombie(pids[count - 2]); /* by now it is one of those that are looked at */
		assert_true(sc_leftover_look(&leftovers));
	}
	for (int i = 0; i < count; i++) {
		kill(pids[i], SIGKILL);
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
		remove_name(pids[i]);
	}
	sc_leftover_fini(&leftovers);
}

/* The name of a service that an application has chosen, or with a number that is no process's, says nothing of a process. */
static void test_others(void **state)
{
	char service[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_leftovers leftovers = { 0 };

	(void)state;
	if (!alone)
		skip();
	sc_addr_service_file("leftover", service);
	sc_shmfile_path(service, path);
	make_file(path);
	make_name(0);
	make_name(-1);
	assert_false(sc_leftover_look(&leftovers));
	assert_false(sc_leftover_is_here());
	assert_int_equal(unlink(path), 0);
	remove_name(0);
	remove_name(-1);
	sc_leftover_fini(&leftovers);
}

/* Announces an address, and opens no endpoint. */
static void announce(struct child *self, void *arg)
{
	const struct sc_host *host;
	struct sc_service *held;
	struct sc_addr parts;
	char addr[SC_ADDR_SIZE];

	(void)arg;
	CHILD_CHECK(!sc_host_get(&host));
	parts = (struct sc_addr){ .host = host->id, .uid = geteuid(), .pid = (uint32_t)host->pid };
	sc_addr_format(&parts, addr);
	CHILD_CHECK(!sc_service_announce(addr, &held));
	child_tell(self, addr);
	child_wait(self);
}

/* The file of an announced address may be all that a process leaves: its name tells of the process. */
static void test_announced(void **state)
{
	struct sc_leftovers leftovers = { 0 };
	struct child dead;

	(void)state;
	if (!alone)
		skip();
	assert_true(child_start(&dead, announce, NULL));
	assert_false(sc_leftover_look(&leftovers));
	assert_false(sc_leftover_is_here());
	make_zombie(dead.pid);
	assert_true(sc_leftover_look(&leftovers));
	assert_true(sc_leftover_is_here());
	assert_int_equal(sc_reap_scan(), 1);
	assert_false(sc_leftover_is_here());
	child_reap(&dead);
	sc_leftover_fini(&leftovers);
}

/* A process that cannot be asked about lives; names that are not read now are read once that succeeds again. */
static void test_calls_fail(void **state)
{
	static const struct {
		const char *point;
		int error;
	} reading[] = { { "reap.scan", EMFILE }, { "reap.entry", EIO }, { "leftover.processes", ENOMEM } },
	  asking[] = { { "leftover.dir", EACCES },
		       { "leftover.kill", EPERM },
		       { "leftover.zombie", EPERM },
		       { "host.pidfd", EMFILE } };
	struct sc_leftovers leftovers = { 0 };
	pid_t pid = sleeper();

	(void)state;
	if (!alone || !core_failing(NULL, 0))
		skip();
	make_name(pid);
	for (size_t i = 0; i < sizeof(reading) / sizeof(reading[0]); i++) {
		core_failing(reading[i].point, reading[i].error);
		/* from the second on the directory has not changed */
		for (int looks = 0; looks < 3; looks++)
			assert_false(sc_leftover_look(&leftovers));
		assert_int_equal(leftovers.count, 0);
		core_failing(NULL, 0);
		assert_false(sc_leftover_look(&leftovers));
		assert_int_equal(leftovers.count, 1);
		sc_leftover_fini(&leftovers);
	}
	make_zombie(pid);
	for (size_t i = 0; i < sizeof(asking) / sizeof(asking[0]); i++) {
		core_failing(asking[i].point, asking[i].error);
		assert_false(sc_leftover_look(&leftovers));
	}
	core_failing("leftover.file", ENOENT);
	assert_false(sc_leftover_is_here());
	core_failing(NULL, 0);
	assert_true(sc_leftover_look(&leftovers));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	remove_name(pid);
	sc_leftover_fini(&leftovers);
}

/* ---- what was left before -------------------------------------------------------------------- */

/* A process comes; nobody else is there. `arg`: the address of the process that has ended. */
static void come(struct child *self, void *arg)
{
	struct end end;

	(void)self;
	child_on_its_own();
	end_open(&end, NULL);
	assert_false(core_has_file(arg));
	end_close(&end);
	sc_process_fini();
}

/* It is removed before a new process has a name: that may need the memory. */
static void test_left_before(void **state)
{
	struct child dead;

	(void)state;
	if (!alone)
		skip();
	assert_true(child_start(&dead, idle, NULL));
	child_kill(&dead);
	assert_true(core_has_file(dead.line));
	assert_int_equal(child_run(come, dead.line), 0);
	/* and with its parent yet to ask for its status */
	assert_true(child_start(&dead, idle, NULL));
	make_zombie(dead.pid);
	assert_true(core_has_file(dead.line));
	assert_int_equal(child_run(come, dead.line), 0);
	child_reap(&dead);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_look, pair_setup), /* before there is a thread here */
		cmocka_unit_test_setup(test_foreign, pair_setup),
		cmocka_unit_test_setup(test_many, pair_setup),
		cmocka_unit_test_setup(test_next, pair_setup),
		cmocka_unit_test_setup(test_others, pair_setup),
		cmocka_unit_test_setup(test_announced, pair_setup),
		cmocka_unit_test_setup(test_calls_fail, pair_setup),
		cmocka_unit_test_setup(test_left_before, pair_setup),
		cmocka_unit_test_setup(test_job, pair_setup),
		cmocka_unit_test_setup(test_one_by_one, pair_setup),
		cmocka_unit_test_setup(test_stopped, pair_setup),
	};

	/* a child is forked while the thread allocates: it would find a sanitizer's allocator locked for ever */
	if (CHILD_SANITIZED) {
		printf("SKIP: not with a sanitizer\n");
		return 77;
	}
	alone = child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
