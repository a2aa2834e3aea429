/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_reap: a reaper removes the files of dead processes, and no file of a living one; names of services. The test has
 * a /dev/shm of its own where that is allowed; else other tests may reap its dead before it does.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include <cmocka.h>

#include "child.h"
#include "core_test.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/attach.h"
#include "shm/create.h"
#include "proc/service.h"

static bool alone; /* in a /dev/shm of our own */

static const struct sc_seg_geometry geometry = {
	.slots = 4, .buf_size = 4096, .buf_count = 2, .window = 1000, .capabilities = SC_ABI_CAP_MSG
};

static void file_of(const char *addr, char name[SC_ADDR_NAME_MAX])
{
	struct sc_addr parts;

	if (sc_addr_parse(addr, &parts))
		abort();
	sc_addr_file(&parts, name);
}

static bool exists(const char *name)
{
	char path[SC_SHMFILE_PATH_MAX];
	struct stat st;

	sc_shmfile_path(name, path);
	return !lstat(path, &st);
}

static int remove_file(const char *name)
{
	char path[SC_SHMFILE_PATH_MAX];

	sc_shmfile_path(name, path);
	return unlink(path);
}

static void assert_reaped(const char *name)
{
	int ret;

	assert_true(!alone || exists(name));
	ret = sc_reap_name(name);
	assert_true(ret == 1 || (!alone && ret == 0));
	assert_false(exists(name));
	assert_int_equal(sc_reap_name(name), 0);
}

static void assert_stays(const char *name, int expected)
{
	assert_int_equal(sc_reap_name(name), expected);
	assert_true(exists(name));
}

/* ---- owners ---------------------------------------------------------------------------------- */

static void own(struct child *self, void *arg)
{
	struct sc_seg *seg;

	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	if (arg)
		CHILD_CHECK(!prctl(PR_SET_DUMPABLE, 0));
	child_tell(self, seg->header.address);
	child_wait(self);
	/* ends without a word, as a crash does */
}

static void start_owner(struct child *owner, child_body *body, char name[SC_ADDR_NAME_MAX])
{
	assert_true(child_start(owner, body, NULL));
	file_of(owner->line, name);
}

static void test_dead(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	start_owner(&owner, own, name);
	assert_int_equal(child_end(&owner), 0);
	assert_reaped(name);
	start_owner(&owner, own, name);
	child_kill(&owner);
	assert_reaped(name);
}

static void test_live(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	start_owner(&owner, own, name);
	assert_stays(name, -EBUSY);
	sc_reap_scan();
	assert_stays(name, -EBUSY);
	assert_int_equal(sc_seg_find(owner.line), 0);
	child_kill(&owner);
	assert_reaped(name);
}

static void test_stopped(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	start_owner(&owner, own, name);
	kill(owner.pid, SIGSTOP);
	assert_int_equal(waitpid(owner.pid, NULL, WUNTRACED), owner.pid);
	assert_stays(name, -EBUSY);
	assert_int_equal(sc_seg_find(owner.line), 0);
	kill(owner.pid, SIGCONT);
	child_kill(&owner);
	assert_reaped(name);
}

/* ---- lost locks ------------------------------------------------------------------------------ */

static void lose_lock(const char *addr)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];

	file_of(addr, name);
	sc_shmfile_path(name, path);
	close(open(path, O_RDONLY));
}

static void own_and_lose(struct child *self, void *arg)
{
	struct sc_seg *seg;

	(void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	lose_lock(seg->header.address);
	child_tell(self, seg->header.address);
	child_wait(self);
	sc_seg_destroy(seg);
}

static void test_lost_lock(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	start_owner(&owner, own_and_lose, name);
	child_log_lines = 0;
	assert_stays(name, -EBUSY);
	assert_int_equal(child_log_lines, 1);
	child_kill(&owner);
	assert_reaped(name);
}

/* Runs the operator's command by the shell. Returns its exit status. */
static int run_command(const char *arguments)
{
	const char *build = getenv("abs_top_builddir");
	char line[512];
	int status;

	snprintf(line, sizeof(line), "%s/util/shmcma-reap %s", build ? build : ".", arguments);
	status = system(line);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The command writes no line into a file that it looks at, though that file could get the number of standard error. */
static void test_command_without_streams(void **state)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX], before[4096], after[4096];
	struct child owner;
	int fd;

	(void)state;
	start_owner(&owner, own_and_lose, name);
	sc_shmfile_path(name, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, before, sizeof(before), 0), sizeof(before));
	assert_int_equal(run_command("2>&-"), 1);
	assert_int_equal(run_command(">&- 2>&-"), 1);
	assert_int_equal(run_command("<&- >&- 2>&-"), 1);
	assert_int_equal(pread(fd, after, sizeof(after), 0), sizeof(after));
	assert_memory_equal(before, after, sizeof(before));
	close(fd);
	child_kill(&owner);
	assert_reaped(name);
}

/* The command says that it cannot write its output, and its exit status tells it. */
static void test_command_output(void **state)
{
	(void)state;
	if (!alone)
		skip(); /* others' files may not be as they should */
	assert_int_equal(run_command("-l >/dev/null"), 0);
	assert_int_equal(run_command("--help >/dev/full 2>/dev/null"), 1);
	assert_int_equal(run_command("--version >/dev/full 2>/dev/null"), 1);
	assert_int_equal(run_command("--version 2>&1 >/dev/full | grep -q 'cannot write'"), 0);
	assert_int_equal(run_command("--version >&- 2>/dev/null"), 1);
	assert_int_equal(run_command("-x 2>/dev/null"), 2);
	assert_int_equal(run_command("more 2>/dev/null"), 2);
}

/* A reaper that may not read others' memory. */
static void reap_without_cma(struct child *self, void *arg)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	int ret;

	(void)self;
	CHILD_CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(CHILD_SKIPS);
	ret = sc_reap_name(arg);
	_exit(ret < 0 ? -ret : ret);
}

static void test_lost_lock_without_cma(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;
	int status;

	(void)state;
	start_owner(&owner, own_and_lose, name);
	status = child_run(reap_without_cma, name);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == CHILD_SKIPS) {
		child_end(&owner);
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), EBUSY);
	assert_true(exists(name));
	kill(owner.pid, SIGKILL);
	child_reap(&owner);
	status = child_run(reap_without_cma, name);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= (alone ? 1 : EBUSY));
	assert_false(exists(name));
}

static void own_and_exec(struct child *self, void *arg)
{
	struct sc_seg *seg;

	(void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	child_tell(self, seg->header.address);
	execlp("sleep", "sleep", "60", (char *)NULL);
	_exit(127);
}

/* The pid lives on, the endpoint does not. */
static void test_exec(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;
	char byte;

	(void)state;
	start_owner(&owner, own_and_exec, name);
	assert_int_equal(read(owner.up, &byte, 1), 0);
	watchdog_await(sc_reap_name(name) != -EBUSY); /* exec closes one after the other */
	assert_false(exists(name));
	assert_int_equal(kill(owner.pid, 0), 0);
	child_kill(&owner);
}

static struct child *leader;
static struct sc_seg *leaders;

static void *follow(void *arg)
{
	char path[64], text[64];
	FILE *stat_file;

	(void)arg;
	/* until the first thread has ended */
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
	do {
		usleep(1000);
		stat_file = fopen(path, "re");
		CHILD_CHECK(stat_file && fgets(text, sizeof(text), stat_file));
		fclose(stat_file);
	} while (!strstr(text, ") Z"));
	lose_lock(leaders->header.address);
	child_tell(leader, leaders->header.address);
	child_wait(leader);
	_exit(0);
}

static void own_without_leader(struct child *self, void *arg)
{
	pthread_t thread;

	(void)arg;
	leader = self;
	CHILD_CHECK(!sc_seg_create(&geometry, &leaders));
	CHILD_CHECK(!pthread_create(&thread, NULL, follow, NULL));
	syscall(SYS_exit, 0); /* this thread alone */
}

/* The thread that the header names has ended, others have not, and the lock is lost: still alive. */
static void test_leader_ended(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	start_owner(&owner, own_without_leader, name);
	assert_stays(name, -EBUSY);
	child_kill(&owner);
	assert_reaped(name);
}

/* ---- own ------------------------------------------------------------------------------------- */

static void find(struct child *self, void *arg)
{
	(void)self;
	sc_log_set(NULL);
	_exit(-sc_seg_find(arg));
}

/* A process that cannot tell which segments of peers await its file leaves the file. */
static void end_blindly(struct child *self, void *arg)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_seg *seg;

	(void)self, (void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	file_of(seg->header.address, name);
	atomic_store(&sc_segs.unshared, true);
	sc_reap_own();
	CHILD_CHECK(exists(name));
	atomic_store(&sc_segs.unshared, false);
	sc_reap_own();
	CHILD_CHECK(!exists(name));
}

static void test_end(void **state)
{
	(void)state;
	assert_int_equal(child_run(end_blindly, NULL), 0);
}

static void test_own(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_seg *seg;

	(void)state;
	assert_int_equal(sc_seg_create(&geometry, &seg), 0);
	file_of(seg->header.address, name);
	assert_stays(name, -EBUSY);
	assert_true(sc_reap_scan() >= 0);
	assert_int_equal(child_run(find, seg->header.address), 0); /* lock and name are there */
	lose_lock(seg->header.address);
	assert_stays(name, -EBUSY); /* not even then */
	sc_seg_destroy(seg);
	assert_false(exists(name));
}

/* A file as another copy of this library in this process would have it: locked here, in no list. */
static int twin(const char *name)
{
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	sc_shmfile_path(name, path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(sc_lifelock_lock(fd), 0);
	return fd;
}

static void check_locked(struct child *self, void *arg)
{
	char path[SC_SHMFILE_PATH_MAX];
	pid_t pid;

	(void)self;
	sc_shmfile_path(arg, path);
	CHILD_CHECK(sc_lifelock_check(open(path, O_RDWR), &pid) == 1 && pid == getppid());
}

static void test_twin(void **state)
{
	char addr[SC_ADDR_SIZE], name[SC_ADDR_NAME_MAX], dead[SC_ADDR_NAME_MAX], out[SC_ADDR_SIZE];
	const struct sc_host *host;
	struct sc_addr parts = { .pid = (uint32_t)getpid(), .ep = 1 };
	struct child owner;
	struct sc_seg *seg;
	int fd;

	(void)state;
	assert_int_equal(sc_host_get(&host), 0);
	parts.host = host->id;
	assert_int_equal(sc_host_random(parts.nonce, sizeof(parts.nonce)), 0);
	sc_addr_format(&parts, addr);
	file_of(addr, name);
	fd = twin(name);
	assert_stays(name, -EBUSY);
	assert_int_equal(sc_seg_attach(addr, &seg), -ECONNREFUSED);
	assert_true(sc_reap_scan() >= 0);
	start_owner(&owner, own, dead);
	child_kill(&owner);
	assert_stays(dead, -EBUSY); /* the other copy may have unread messages there */
	assert_int_equal(child_run(check_locked, name), 0);
	close(fd);
	assert_reaped(name);
	assert_reaped(dead);

	sc_addr_service_file("test_reap.twin", name);
	fd = twin(name);
	assert_stays(name, -EBUSY);
	assert_int_equal(sc_service_find("test_reap.twin", out), -ECONNREFUSED);
	assert_int_equal(child_run(check_locked, name), 0);
	close(fd);
	assert_reaped(name);
}

/* ---- not ours -------------------------------------------------------------------------------- */

static void make_file(const char *name, mode_t mode, const char *text)
{
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	sc_shmfile_path(name, path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* The name of a segment of that user. */
static void name_of(uint32_t uid, int i, char name[SC_ADDR_NAME_MAX])
{
	const struct sc_addr parts = { .uid = uid, .pid = 1, .ep = (uint16_t)i };

	sc_addr_file(&parts, name);
}

static void test_not_ours(void **state)
{
	static const char *const others[] = { "shmcma-notes", "shmcma.service-test_reap",
					      "test_reap.file" };
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		make_file(others[i], 0600, "mine");
		sc_reap_scan();
		assert_stays(others[i], -EACCES);
		assert_int_equal(remove_file(others[i]), 0);
	}
	assert_int_equal(sc_reap_name("../shm/x"), -EACCES);
	assert_int_equal(sc_reap_name(""), -EACCES);

	name_of(geteuid(), 1, name);
	sc_shmfile_path(name, path);
	make_file(name, 0644, "");
	assert_stays(name, -EACCES);
	assert_int_equal(unlink(path), 0);

	assert_int_equal(mkdir(path, 0600), 0);
	assert_stays(name, -EACCES);
	assert_int_equal(rmdir(path), 0);

	assert_int_equal(mkfifo(path, 0600), 0);
	assert_stays(name, -EACCES);
	assert_int_equal(unlink(path), 0);

	make_file("test_reap.target", 0600, "");
	assert_int_equal(symlink("test_reap.target", path), 0);
	assert_stays(name, -EACCES);
	assert_true(exists("test_reap.target"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(remove_file("test_reap.target"), 0);
}

static void test_other_user(void **state)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];

	(void)state;
	name_of(geteuid(), 2, name); /* a forged one: anybody may give it */
	sc_shmfile_path(name, path);
	make_file(name, 0600, "");
	if (chown(path, geteuid() + 1, (gid_t)-1)) {
		unlink(path);
		skip();
	}
	assert_stays(name, -EACCES);
	child_log_lines = 0;
	sc_reap_scan(); /* not a word about other users' files */
	assert_true(!alone || !child_log_lines);
	assert_int_equal(unlink(path), 0);
}

/* A reaper leaves a name of another user alone, also if the file belongs to the user of the reaper. */
static void test_named_by_other_user(void **state)
{
	char names[3][SC_ADDR_NAME_MAX];

	(void)state;
	name_of(geteuid() + 1, 4, names[0]);
	snprintf(names[1], sizeof(names[1]), "shmcma.service-%u-test_reap", (unsigned int)geteuid() + 1);
	snprintf(names[2], sizeof(names[2]), "shmcma.av-%u-test_reap", (unsigned int)geteuid() + 1);
	for (int i = 0; i < 3; i++) {
		make_file(names[i], 0600, "");
		assert_true(sc_reap_scan() >= 0);
		assert_stays(names[i], -EACCES);
		assert_int_equal(remove_file(names[i]), 0);
	}
}

/* The kernel ends a process that looks at a file, or opens one that is no directory. */
static bool forbid_files(void)
{
	const uint32_t flags = offsetof(struct seccomp_data, args[2]), at = offsetof(struct seccomp_data, args[3]);
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 7, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_DIRECTORY, 0, 4),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, AT_EMPTY_PATH, 0, 1), /* fstat(3) */
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void scan_without_files(struct child *self, void *arg)
{
	(void)self;
	(void)arg;
	CHILD_CHECK(!sc_reap_scan()); /* makes the system calls that a process makes once */
	if (!forbid_files())
		_exit(CHILD_SKIPS);
	/* not _exit(), which opens a file to write counts of coverage */
	(void)syscall(SYS_exit_group, sc_reap_scan());
}

/* Names of other users cost no system call each. */
static void test_names_passed_over(void **state)
{
	char names[12][SC_ADDR_NAME_MAX];
	int status;

	(void)state;
	if (!alone)
		skip(); /* there may be names of others that are looked at */
	for (int i = 0; i < 12; i++) {
		name_of(geteuid() + 1 + (uint32_t)i, i, names[i]);
		if (i % 2)
			snprintf(names[i], sizeof(names[i]), "shmcma.service-%u-%d",
				 (unsigned int)geteuid() + 1, i);
		make_file(names[i], 0600, "");
	}
	status = child_run(scan_without_files, NULL);
	for (int i = 0; i < 12; i++)
		assert_int_equal(remove_file(names[i]), 0);
	CHILD_ASSERT(status);
}

/* In a user namespace that maps no user; it has an endpoint and a service, and is killed. */
static void dies_elsewhere(struct child *self, void *arg)
{
	struct sc_service *service;
	struct sc_seg *seg;

	(void)arg;
	if (unshare(CLONE_NEWUSER)) {
		child_tell(self, "");
		return;
	}
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	CHILD_CHECK(!sc_service_create("elsewhere", seg->header.address, &service));
	child_tell(self, seg->header.address);
	raise(SIGKILL);
}

/* The name of the segment does not tell the user, so it is looked at; that of the service is for those who ask for it. */
static void test_user_namespace(void **state)
{
	char name[SC_ADDR_NAME_MAX], service[SC_ADDR_NAME_MAX];
	struct child child;

	(void)state;
	assert_true(child_start(&child, dies_elsewhere, NULL));
	(void)child_reap(&child);
	if (!child.line[0]) {
		puts("needs a user namespace of its own");
		skip();
	}
	file_of(child.line, name);
	snprintf(service, sizeof(service), "shmcma.service-%u-elsewhere", 65534); /* fs/overflowuid */
	assert_true(sc_reap_scan() >= 0);
	assert_true(!alone || !exists(name));
	assert_true(exists(service));
	assert_true(sc_reap_scan_unsure() >= 0);
	assert_false(exists(name));
	assert_true(!alone || !exists(service));
}

/* By its name and type ours, its content nobody's, its lock free: dead. */
static void test_garbage(void **state)
{
	static const char *const contents[] = { "", "garbage", "SCSHMCMA" };
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];

	(void)state;
	name_of(geteuid(), 3, name);
	sc_shmfile_path(name, path);
	for (size_t i = 0; i < sizeof(contents) / sizeof(contents[0]); i++) {
		make_file(name, 0600, contents[i]);
		assert_reaped(name);
	}
}

static void test_scan(void **state)
{
	char dead[2][SC_ADDR_NAME_MAX], live[SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	for (int i = 0; i < 2; i++) {
		start_owner(&owner, own, dead[i]);
		child_kill(&owner);
	}
	start_owner(&owner, own, live);
	if (alone)
		assert_int_equal(sc_reap_scan(), 2);
	else
		assert_true(sc_reap_scan() >= 0);
	assert_false(exists(dead[0]) || exists(dead[1]));
	assert_true(exists(live));
	if (alone)
		assert_int_equal(sc_reap_scan(), 0);
	child_kill(&owner);
	assert_reaped(live);
}

static void count_dead(const struct sc_reap_file *file, void *arg)
{
	*(int *)arg += file->dead;
}

/* A process without descriptors logs that once for a scan, not for each file. */
static void test_scan_without_descriptors(void **state)
{
	static const struct {
		const char *point;
		int error, passes;
	} cases[] = { { "otherfile.open", EMFILE, 7 },
		      { "otherfile.open", ENFILE, 2 },
		      { "reap.scan", EMFILE, 2 } };
	char dead[3][SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	if (!alone || !core_failing(NULL, 0))
		skip();
	for (int i = 0; i < 3; i++) {
		start_owner(&owner, own, dead[i]);
		child_kill(&owner);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int passes = 0; passes < cases[i].passes; passes++) {
			int ret, count = 0;

			(void)core_failing_after(cases[i].point, cases[i].error, passes);
			child_log_lines = 0;
			ret = sc_reap_scan();
			assert_int_equal(child_log_lines, 1);
			assert_int_equal(ret, -cases[i].error);
			(void)core_failing_after(cases[i].point, cases[i].error, passes);
			child_log_lines = 0;
			ret = sc_reap_list(count_dead, &count);
			assert_int_equal(child_log_lines, 1);
			assert_int_equal(ret, -cases[i].error);
			assert_true(count < 3);
		}
	(void)core_failing(NULL, 0);
	assert_int_equal(sc_reap_scan(), 3);
}

/*
 * A dead segment stays while the reaper cannot read all living ones: a living peer may have messages in it. A file that
 * vanishes, or is no segment, is no reason.
 */
static void test_blind(void **state)
{
	static const struct {
		const char *point;
		int error, passes;
		bool stays;
	} cases[] = { { "reap.scan", EMFILE, 0, true },	      { "reap.entry", EIO, 0, true },
		      { "otherfile.open", EMFILE, 1, true },  { "otherfile.open", EACCES, 1, false },
		      { "otherfile.open", ENOENT, 1, false }, { "lifelock.check", ENOLCK, 0, true },
		      { "reap.awaits", EIO, 0, true },	      { "reap.claims", EIO, 0, true } };
	char dead[SC_ADDR_NAME_MAX], live[SC_ADDR_NAME_MAX];
	struct child owner, living;

	(void)state;
	if (!alone || !core_failing(NULL, 0))
		skip();
	start_owner(&living, own, live);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start_owner(&owner, own, dead);
		child_kill(&owner);
		(void)core_failing_after(cases[i].point, cases[i].error, cases[i].passes);
		assert_int_equal(sc_reap_name(dead), cases[i].stays ? -EBUSY : 1);
		(void)core_failing(NULL, 0);
		if (cases[i].stays)
			assert_reaped(dead);
	}
	child_kill(&living);
	assert_reaped(live);
}

/* A dead segment stays for a claim that is published or given up, and not answered; not for one that was refused. */
static void test_claims(void **state)
{
	static const struct {
		uint64_t bits;
		uint32_t answer;
		bool stays;
	} claims[] = { { SC_ABI_CLAIMED, SC_ABI_PENDING, false },
		       { SC_ABI_PUBLISHED, SC_ABI_PENDING, true },
		       { SC_ABI_PUBLISHED, SC_ABI_ACCEPTED, false },
		       { SC_ABI_PUBLISHED | SC_ABI_CLAIM_REFUSED, SC_ABI_PENDING, false },
		       { SC_ABI_DEPARTED, SC_ABI_PENDING, true },
		       { SC_ABI_DEPARTED | SC_ABI_CLAIM_UNREAD, SC_ABI_PENDING, true },
		       { SC_ABI_DEPARTED, SC_ABI_REFUSED, false } };
	char dead[SC_ADDR_NAME_MAX];
	struct sc_addr parts;
	struct child owner;
	struct sc_seg *seg;
	uint64_t nonce;

	(void)state;
	assert_int_equal(sc_seg_create(&geometry, &seg), 0);
	for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
		start_owner(&owner, own, dead);
		child_kill(&owner);
		assert_int_equal(sc_addr_parse_file(dead, &parts), 0);
		memcpy(&nonce, parts.nonce, sizeof(nonce));
		sc_seg_slot(seg, 0)->consumer.answer = claims[i].answer;
		sc_seg_claims(seg)[0] = SC_ABI_TICKET(parts.pid, nonce) | claims[i].bits;
		assert_int_equal(sc_reap_name(dead), claims[i].stays ? -EBUSY : 1);
		sc_seg_claims(seg)[0] = 0;
		if (claims[i].stays)
			assert_reaped(dead);
	}
	sc_seg_destroy(seg);
}

struct awaits {
	char dead[SC_ADDR_NAME_MAX];
	bool loses; /* its life lock */
};

/* A living process that has not let in the owner of the dead file yet. */
static void await(struct child *self, void *arg)
{
	const struct awaits *awaits = arg;
	struct sc_addr parts;
	struct sc_seg *seg;
	uint64_t nonce;

	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	CHILD_CHECK(!sc_addr_parse_file(awaits->dead, &parts));
	memcpy(&nonce, parts.nonce, sizeof(nonce));
	sc_seg_claims(seg)[0] = SC_ABI_TICKET(parts.pid, nonce) | SC_ABI_PUBLISHED;
	if (awaits->loses)
		lose_lock(seg->header.address);
	child_tell(self, seg->header.address);
	child_wait(self);
}

/* A living peer counts as one that awaits messages also without its life lock. */
static void test_awaited_without_lock(void **state)
{
	struct awaits awaits = { .loses = true };
	char living[SC_ADDR_NAME_MAX];
	struct child owner;

	(void)state;
	start_owner(&owner, own, awaits.dead);
	child_kill(&owner);
	assert_true(child_start(&owner, await, &awaits));
	file_of(owner.line, living);
	assert_stays(awaits.dead, -EBUSY);
	child_kill(&owner);
	assert_reaped(awaits.dead);
	assert_reaped(living);
}

static void reap_elsewhere(struct child *self, void *arg)
{
	(void)self;
	if (unshare(CLONE_NEWUSER))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(sc_reap_name(arg) == -EBUSY);
}

/* A reaper in a user namespace sees that a peer outside awaits messages. */
static void test_awaited_outside(void **state)
{
	struct awaits awaits = { .loses = false };
	char living[SC_ADDR_NAME_MAX];
	struct child owner;
	int status;

	(void)state;
	assert_true(child_start(&owner, dies_elsewhere, NULL));
	(void)child_reap(&owner);
	if (!owner.line[0])
		skip();
	file_of(owner.line, awaits.dead);
	assert_true(child_start(&owner, await, &awaits));
	file_of(owner.line, living);
	status = child_run(reap_elsewhere, awaits.dead);
	CHILD_ASSERT(status);
	child_kill(&owner);
	assert_reaped(awaits.dead);
	assert_reaped(living);
	assert_true(sc_reap_scan_unsure() >= 0);
}

/* ---- services -------------------------------------------------------------------------------- */

static char service[40]; /* a name for this run */

struct held {
	struct sc_seg *seg;
	struct sc_service *service;
};

static void hold(struct held *held, const char *name)
{
	CHILD_CHECK(!sc_seg_create(&geometry, &held->seg));
	CHILD_CHECK(!sc_service_create(name, held->seg->header.address, &held->service));
}

static void let_go(struct held *held)
{
	sc_service_destroy(held->service);
	sc_seg_destroy(held->seg);
}

static void serve(struct child *self, void *arg)
{
	struct held held;

	(void)arg;
	hold(&held, service);
	child_tell(self, held.seg->header.address);
	child_wait(self);
	let_go(&held);
}

static void assert_resolves(const char *expected)
{
	char addr[SC_ADDR_SIZE], out[SC_ADDR_SIZE];

	assert_int_equal(sc_addr_service(service, addr), 0);
	assert_int_equal(sc_addr_resolve(addr, out), 0);
	assert_string_equal(out, expected);
	assert_int_equal(sc_addr_resolve(out, out), 0);
	assert_string_equal(out, expected);
}

static void assert_nobody(void)
{
	char addr[SC_ADDR_SIZE], out[SC_ADDR_SIZE] = "as it was";

	assert_int_equal(sc_addr_service(service, addr), 0);
	child_log_lines = 0;
	assert_int_equal(sc_addr_resolve(addr, out), -ECONNREFUSED);
	assert_int_equal(child_log_lines, 1);
	assert_string_equal(out, "as it was");
}

static void test_service(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child holder;

	(void)state;
	sc_addr_service_file(service, name);
	assert_nobody();
	assert_true(child_start(&holder, serve, NULL));
	assert_true(exists(name));
	assert_resolves(holder.line);
	assert_stays(name, -EBUSY);
	assert_int_equal(child_end(&holder), 0);
	assert_false(exists(name));
	assert_nobody();
}

static void serve_without_files(struct child *self, void *arg)
{
	struct rlimit none = { 0, RLIM_INFINITY };
	struct sc_service *held;
	struct sc_seg *seg;

	(void)self, (void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &none));
	child_log_lines = 0;
	CHILD_CHECK(sc_service_create(service, seg->header.address, &held) == -EFBIG);
	CHILD_CHECK(child_log_lines == 1 && strstr(child_log_line, "ulimit -f"));
	none.rlim_cur = RLIM_INFINITY;
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &none));
	CHILD_CHECK(!sc_service_create(service, seg->header.address, &held));
	sc_service_destroy(held);
	sc_seg_destroy(seg);
}

/* A process that may write no file gets an error, and does not end. */
static void test_service_without_files(void **state)
{
	(void)state;
	assert_int_equal(child_run(serve_without_files, NULL), 0);
}

/* Holds the lock of the file with that name, as a reaper does for a moment. */
static void hold_lock(struct child *self, void *arg)
{
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	sc_shmfile_path(arg, path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHILD_CHECK(fd >= 0 && !sc_lifelock_lock(fd));
	child_tell(self, "");
	child_wait(self);
}

static void test_service_taken(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_service *held = NULL;
	struct child holder, reaper;
	struct sc_seg *seg;

	(void)state;
	assert_int_equal(sc_seg_create(&geometry, &seg), 0);
	assert_true(child_start(&holder, serve, NULL));
	child_log_lines = 0;
	assert_int_equal(sc_service_create(service, seg->header.address, &held), -EADDRINUSE);
	assert_int_equal(child_log_lines, 1);
	assert_non_null(strstr(child_log_line, "taken by a live process"));
	assert_null(held);
	assert_resolves(holder.line);
	kill(holder.pid, SIGSTOP); /* also a stopped one lives */
	assert_int_equal(waitpid(holder.pid, NULL, WUNTRACED), holder.pid);
	assert_int_equal(sc_service_create(service, seg->header.address, &held), -EADDRINUSE);
	kill(holder.pid, SIGCONT);
	assert_resolves(holder.line);
	child_kill(&holder);
	assert_nobody();
	/* and from the dead it is taken over, even while its segment is being reaped */
	file_of(holder.line, name);
	assert_true(child_start(&reaper, hold_lock, name));
	assert_true(sc_owner_left(holder.line));
	assert_int_equal(sc_service_create(service, seg->header.address, &held), 0);
	assert_int_equal(child_end(&reaper), 0);
	assert_resolves(seg->header.address);
	sc_service_destroy(held);
	assert_nobody();
	sc_seg_destroy(seg);
	sc_reap_scan();
}

static struct child slow_reaper;

/* It goes on when it is seen that somebody waits for it. */
static void let_reaper_go(enum sc_log_level level, const char *line)
{
	if (slow_reaper.pid && strstr(line, "waiting for that") && !child_is_daemon()) {
		child_end(&slow_reaper);
		slow_reaper.pid = 0;
	}
	child_log(level, line);
}

/* From the dead it is taken over while the file of the service itself is being reaped. */
static void test_service_being_reaped(void **state)
{
	struct sc_service *held = NULL;
	char name[SC_ADDR_NAME_MAX], segment[SC_ADDR_NAME_MAX];
	struct child holder;
	struct sc_seg *seg;

	(void)state;
	if (!alone)
		skip(); /* others reap, too */
	assert_int_equal(sc_seg_create(&geometry, &seg), 0);
	sc_addr_service_file(service, name);
	assert_true(sc_owner_left_service(name)); /* by now it may be gone */
	for (int gone = 0; gone < 2; gone++) {	      /* its segment has been removed already */
		assert_true(child_start(&holder, serve, NULL));
		assert_false(sc_owner_left_service(name));
		child_kill(&holder);
		file_of(holder.line, segment);
		if (gone)
			assert_reaped(segment);
		assert_true(child_start(&slow_reaper, hold_lock, name));
		assert_true(sc_owner_left_service(name));
		assert_nobody();
		sc_log_set(let_reaper_go);
		assert_int_equal(sc_service_create(service, seg->header.address, &held), 0);
		sc_log_set(child_log);
		assert_int_equal(slow_reaper.pid, 0);
		assert_resolves(seg->header.address);
		sc_service_destroy(held);
	}
	/* but not waited for without end: it may be stopped */
	assert_true(child_start(&holder, serve, NULL));
	child_kill(&holder);
	assert_true(child_start(&slow_reaper, hold_lock, name));
	assert_int_equal(sc_service_create(service, seg->header.address, &held), -EADDRINUSE);
	assert_non_null(strstr(child_log_line, "another process is removing"));
	assert_int_equal(child_end(&slow_reaper), 0);
	sc_seg_destroy(seg);
	sc_reap_scan();
	assert_false(exists(name));
}

static void write_directory(struct child *self, void *arg)
{
	struct sc_directory *directory;

	(void)arg;
	CHILD_CHECK(!sc_directory_create(service, 10, &directory));
	child_tell(self, "");
	child_wait(self);
	sc_directory_close(directory);
}

/* So is the name of a directory, which nobody reads any more. */
static void test_directory_being_reaped(void **state)
{
	struct sc_directory *directory;
	char name[SC_ADDR_NAME_MAX];
	struct child writer;

	(void)state;
	if (!alone)
		skip();
	assert_int_equal(sc_addr_directory_file(service, name), 0);
	assert_true(child_start(&writer, write_directory, NULL));
	assert_false(sc_owner_left_service(name));
	assert_int_equal(sc_directory_create(service, 10, &directory), -EADDRINUSE);
	child_kill(&writer);
	assert_true(child_start(&slow_reaper, hold_lock, name));
	assert_true(sc_owner_left_service(name));
	assert_int_equal(sc_directory_open(service, &directory), -ENOENT);
	sc_log_set(let_reaper_go);
	assert_int_equal(sc_directory_create(service, 10, &directory), 0);
	sc_log_set(child_log);
	assert_int_equal(slow_reaper.pid, 0);
	sc_directory_close(directory);
	assert_false(exists(name));
}

static void resolve_it(struct child *self, void *arg)
{
	char addr[SC_ADDR_SIZE], out[SC_ADDR_SIZE];

	(void)self;
	CHILD_CHECK(!sc_addr_service(service, addr));
	CHILD_CHECK(!sc_addr_resolve(addr, out));
	CHILD_CHECK(!strcmp(out, arg));
}

static void test_service_own(void **state)
{
	struct sc_service *second = NULL;
	struct held held;

	(void)state;
	hold(&held, service);
	assert_resolves(held.seg->header.address);
	assert_int_equal(sc_service_create(service, held.seg->header.address, &second), -EADDRINUSE);
	assert_true(sc_reap_scan() >= 0);
	assert_int_equal(child_run(resolve_it, held.seg->header.address), 0); /* locks are there */
	let_go(&held);
	assert_nobody();
}

/* Held as its name says, but the endpoint behind it has gone. */
static void test_service_without_endpoint(void **state)
{
	struct held held;

	(void)state;
	hold(&held, service);
	sc_seg_destroy(held.seg);
	assert_nobody();
	sc_service_destroy(held.service);
}

static void inherit(struct child *self, void *arg)
{
	struct held *held = arg;
	char address[SC_ADDR_SIZE];

	(void)self;
	memcpy(address, held->seg->header.address, sizeof(address));
	sc_process_fini();
	let_go(held);
	resolve_it(self, address);
}

static void test_service_fork(void **state)
{
	struct held held;

	(void)state;
	hold(&held, service);
	assert_int_equal(child_run(inherit, &held), 0);
	assert_resolves(held.seg->header.address);
	assert_int_equal(child_run(resolve_it, held.seg->header.address), 0);
	let_go(&held);
}

static void test_process_fini(void **state)
{
	char name[SC_ADDR_NAME_MAX], service_name[SC_ADDR_NAME_MAX];
	struct held held;

	(void)state;
	hold(&held, service);
	file_of(held.seg->header.address, name);
	sc_addr_service_file(service, service_name);
	assert_true(exists(name) && exists(service_name));
	sc_process_fini();
	assert_false(exists(name) || exists(service_name));
	sc_process_fini();
	let_go(&held);
}

static void test_service_bad_files(void **state)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX], out[SC_ADDR_SIZE];
	struct sc_service *held = NULL;
	struct sc_seg *seg;

	(void)state;
	assert_int_equal(sc_seg_create(&geometry, &seg), 0);
	sc_addr_service_file(service, name);
	sc_shmfile_path(name, path);

	assert_int_equal(mkfifo(path, 0600), 0);
	child_log_lines = 0;
	assert_int_equal(sc_service_find(service, out), -EACCES);
	assert_int_equal(child_log_lines, 1);
	assert_int_equal(sc_service_create(service, seg->header.address, &held), -EACCES);
	assert_int_equal(child_log_lines, 2);
	assert_int_equal(unlink(path), 0);

	make_file(name, 0600, "no service");
	assert_false(sc_owner_left_service(name)); /* nobody knows whose it would be */
	assert_int_equal(sc_service_find(service, out), -ECONNREFUSED);
	assert_int_equal(sc_service_create(service, seg->header.address, &held), 0);
	sc_service_destroy(held);

	assert_int_equal(sc_service_create("a/b", seg->header.address, &held), -EINVAL);
	assert_int_equal(sc_service_create("", seg->header.address, &held), -EINVAL);
	assert_int_equal(sc_service_create(service, "fi_shmcma://x", &held), -EINVAL);
	assert_int_equal(sc_service_find("a b", out), -EINVAL);
	assert_int_equal(sc_addr_resolve("shm://x", out), -EINVAL);
	sc_seg_destroy(seg);
}

/* A file under the service's name, locked by a live process, with this content. */
static void hold_content(struct child *self, void *arg)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct iovec *content = arg;
	int fd;

	sc_addr_service_file(service, name);
	sc_shmfile_path(name, path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	CHILD_CHECK(fd >= 0 && !sc_lifelock_lock(fd));
	CHILD_CHECK(write(fd, content->iov_base, content->iov_len) == (ssize_t)content->iov_len);
	child_tell(self, path);
	child_wait(self);
	unlink(path);
}

static void test_service_bad_content(void **state)
{
	struct sc_abi_service good = { .magic = SC_ABI_SERVICE_MAGIC };
	struct sc_addr parts = { .pid = 1 };

	(void)state;
	sc_addr_format(&parts, good.address);
	for (int i = 0; i < 5; i++) {
		struct sc_abi_service bad = good;
		struct iovec content = { &bad, sizeof(bad) };
		char out[SC_ADDR_SIZE];
		struct child holder;

		switch (i) {
		case 0:
			bad.magic++;
			break;
		case 1:
			content.iov_len--;
			break;
		case 2:
			memset(bad.address, 'a', sizeof(bad.address));
			break;
		case 3:
			bad.address[5] = '\0';
			break;
		}
		assert_true(child_start(&holder, hold_content, &content));
		child_log_lines = 0;
		assert_int_equal(sc_service_find(service, out), i < 4 ? -EPROTO : 0);
		assert_int_equal(child_log_lines, i < 4);
		assert_int_equal(child_end(&holder), 0);
	}
}

static void serve_and_lose(struct child *self, void *arg)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct held held;

	hold(&held, service);
	sc_addr_service_file(service, name);
	sc_shmfile_path(name, path);
	close(open(path, O_RDONLY));
	if (*(bool *)arg)
		lose_lock(held.seg->header.address);
	child_tell(self, held.seg->header.address);
	child_wait(self);
	let_go(&held);
}

static void test_service_lost_lock(void **state)
{
	char name[SC_ADDR_NAME_MAX];

	(void)state;
	sc_addr_service_file(service, name);
	for (int both = 0; both < 2; both++) {
		bool arg = both;
		struct child holder;

		assert_true(child_start(&holder, serve_and_lose, &arg));
		assert_stays(name, -EBUSY);
		child_kill(&holder);
		assert_reaped(name);
		sc_reap_scan();
	}
}

/* ---- the model, for real --------------------------------------------------------------------- */

#define FIGHTERS 5
#define FIGHT_MS 1500

static ino_t inode_of(const char *name)
{
	char path[SC_SHMFILE_PATH_MAX];
	struct stat st;

	sc_shmfile_path(name, path);
	return stat(path, &st) ? 0 : st.st_ino;
}

static void fight(struct child *self, void *arg)
{
	char name[SC_ADDR_NAME_MAX];

	(void)arg;
	sc_log_set(NULL);
	sc_addr_service_file(service, name);
	fcntl(self->down, F_SETFL, O_NONBLOCK);
	for (;;) {
		struct sc_service *held;
		struct sc_seg *seg;
		ino_t inode = 0;
		char byte;
		int err;

		if (read(self->down, &byte, 1) >= 0)
			return;
		CHILD_CHECK(!sc_seg_create(&geometry, &seg));
		err = sc_service_create(service, seg->header.address, &held);
		CHILD_CHECK(!err || err == -EADDRINUSE);
		if (!err)
			inode = inode_of(name);
		for (int i = 0; !err && i < 20; i++) {
			char segment[SC_ADDR_NAME_MAX];

			/* the process that holds a name keeps it, in spite of the others */
			file_of(seg->header.address, segment);
			CHILD_CHECK(inode_of(name) == inode);
			CHILD_CHECK(sc_shmfile_is_named(segment, seg->dev, seg->ino));
		}
		if (!err)
			sc_service_destroy(held);
		sc_reap_scan();
		CHILD_CHECK(!sc_seg_find(seg->header.address));
		sc_seg_destroy(seg);
	}
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void test_fight(void **state)
{
	struct child fighters[FIGHTERS];
	char name[SC_ADDR_NAME_MAX];
	unsigned int random = 1;

	(void)state;
	for (int i = 0; i < FIGHTERS; i++)
		child_spawn(&fighters[i], fight, NULL);
	for (uint64_t end = now_ms() + FIGHT_MS; now_ms() < end;) {
		struct child *victim = &fighters[rand_r(&random) % FIGHTERS];

		usleep(rand_r(&random) % 5000);
		assert_int_equal(waitpid(victim->pid, NULL, WNOHANG), 0); /* a failed check ends it */
		child_kill(victim);
		child_spawn(victim, fight, NULL);
	}
	for (int i = 0; i < FIGHTERS; i++)
		assert_int_equal(child_end(&fighters[i]), 0);
	sc_reap_scan();
	sc_addr_service_file(service, name);
	assert_false(exists(name));
}

#ifdef SC_FAULT_INJECTION

/* A process of its own: points are armed when a process reaches the first one. It stops at `point`. */
struct reaper {
	const char *point;
	char *name;
};

static void exec_reaper(struct child *self, void *arg)
{
	const struct reaper *reaper = arg;
	char *const argv[] = { (char *)"test_reap", reaper->name, NULL };
	char setting[64];

	snprintf(setting, sizeof(setting), "%s:stop", reaper->point);
	setenv("SHMCMA_FAULT", setting, 1);
	execv("/proc/self/exe", argv);
	CHILD_CHECK(!self);
}

/* Lets the reaper go on and end. Returns its exit status. */
static int end_reaper(struct child *child)
{
	int status;

	kill(child->pid, SIGCONT);
	status = child_reap(child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/*
 * A reaper has found a service's holder dead, and is slow. Others have taken the name away meanwhile, and a
 * living process has it: that one keeps it. See NAMED=2 in models/reap.pml for how it comes about.
 */
static void check_named_again(const char *point)
{
	char name[SC_ADDR_NAME_MAX];
	struct reaper reaper = { point, name };
	struct sc_shmfile old, new;
	struct child child;
	int status;

	sc_addr_service_file(service, name);
	/* a dead holder leaves a name without lock */
	assert_int_equal(sc_shmfile_create(&old), 0);
	assert_int_equal(sc_shmfile_publish(&old, name), 0);
	close(old.fd);
	child_spawn(&child, exec_reaper, &reaper);
	assert_int_equal(waitpid(child.pid, &status, WUNTRACED), child.pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(remove_file(name), 0);
	assert_int_equal(sc_shmfile_create(&new), 0);
	assert_int_equal(sc_shmfile_publish(&new, name), 0);
	assert_int_equal(end_reaper(&child), 0);
	assert_true(sc_shmfile_is_named(name, new.dev, new.ino));
	sc_shmfile_unlink(&new);
	assert_true(sc_shmfile_put(&new));
	sc_shmfile_close(&new);
	assert_true(sc_shmfile_put(&old));
}

/* A segment's file, and a reaper that stops at `point` on the way to remove it. */
static void stop_reaper(const char *point, char name[SC_ADDR_NAME_MAX], struct child *child)
{
	struct reaper reaper = { point, name };
	struct child owner;
	int status;

	start_owner(&owner, own, name);
	child_kill(&owner);
	child_spawn(child, exec_reaper, &reaper);
	assert_int_equal(waitpid(child->pid, &status, WUNTRACED), child->pid);
	assert_true(WIFSTOPPED(status));
}

/* A reaper that looks through all names for peers of a dead file holds its life lock until it has removed the name. */
static void test_locked_to_the_end(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child child;

	(void)state;
	if (!alone)
		skip();
	stop_reaper("reap.judged", name, &child);
	assert_stays(name, -EBUSY);
	assert_int_equal(end_reaper(&child), 1);
	assert_false(exists(name));
}

/* Somebody else has removed it just then: it is gone, as was wanted. */
static void test_gone_at_the_end(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child child;

	(void)state;
	if (!alone)
		skip();
	stop_reaper("reap.unlink", name, &child);
	assert_int_equal(remove_file(name), 0);
	assert_int_equal(end_reaper(&child), 0);
}

static void test_named_again(void **state)
{
	(void)state;
	check_named_again("reap.locked");
	check_named_again("reap.judged");
}

#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifdef SC_FAULT_INJECTION
		cmocka_unit_test(test_named_again),
		cmocka_unit_test(test_locked_to_the_end),
		cmocka_unit_test(test_gone_at_the_end),
#endif
		cmocka_unit_test(test_dead),
		cmocka_unit_test(test_live),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_lost_lock),
		cmocka_unit_test(test_command_without_streams),
		cmocka_unit_test(test_command_output),
		cmocka_unit_test(test_lost_lock_without_cma),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_leader_ended),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_twin),
		cmocka_unit_test(test_not_ours),
		cmocka_unit_test(test_other_user),
		cmocka_unit_test(test_named_by_other_user),
		cmocka_unit_test(test_names_passed_over),
		cmocka_unit_test(test_user_namespace),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_scan_without_descriptors),
		cmocka_unit_test(test_blind),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_awaited_without_lock),
		cmocka_unit_test(test_awaited_outside),
		cmocka_unit_test(test_service),
		cmocka_unit_test(test_service_taken),
		cmocka_unit_test(test_service_without_files),
		cmocka_unit_test(test_service_being_reaped),
		cmocka_unit_test(test_directory_being_reaped),
		cmocka_unit_test(test_service_own),
		cmocka_unit_test(test_service_without_endpoint),
		cmocka_unit_test(test_service_fork),
		cmocka_unit_test(test_process_fini),
		cmocka_unit_test(test_service_bad_files),
		cmocka_unit_test(test_service_bad_content),
		cmocka_unit_test(test_service_lost_lock),
		cmocka_unit_test(test_fight),
	};

	if (argc > 1)
		return sc_reap_name(argv[1]); /* see exec_reaper() */
	snprintf(service, sizeof(service), "test_reap.%d", (int)getpid());
	sc_log_set(child_log);
	alone = child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
