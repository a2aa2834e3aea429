/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_failing: a process that uses all functions of segments, services and reaping while system calls fail: each
 * point of fault.h that yields an errno, with each errno that may come, the first and the second time (in builds with
 * fault injection); with few descriptors; without /proc. A function that fails returns a negative errno, no living
 * process is harmed, and no name and no descriptor is left.
 *
 * The parent never reaches a point itself, so that each child reads its own setting.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "child.h"
#include "core_test.h"
#include "os/host.h"
#include "base/fault.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/attach.h"
#include "shm/create.h"
#include "shm/memory.h"
#include "proc/service.h"

static const struct sc_seg_geometry geometry = { .slots = 4,
						 .buf_size = 4096,
						 .buf_count = 8,
						 .window = 1000,
						 .capabilities = SC_ABI_CAP_MSG,
						 .regs = 64,
						 .ranges = 64 };

static bool alone; /* in a /dev/shm of our own */
static struct child owner, dead;

#define OWNERS_SERVICE "failing.owner"
#define DEADS_SERVICE "failing.dead"

static void live(struct child *self, void *arg)
{
	struct sc_service *service;
	struct sc_seg *seg;

	(void)arg;
	watchdog_stop(); /* it lives as long as the tests take, and dies with its parent */
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	CHILD_CHECK(!sc_service_create(OWNERS_SERVICE, seg->header.address, &service));
	child_tell(self, seg->header.address);
	child_wait(self);
	sc_service_destroy(service);
	sc_seg_destroy(seg);
}

static void leave(struct child *self, void *arg)
{
	struct sc_service *service;
	struct sc_seg *seg;

	(void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	CHILD_CHECK(!sc_service_create(DEADS_SERVICE, seg->header.address, &service));
	child_tell(self, seg->header.address);
	raise(SIGKILL);
}

/* ---- a life ---------------------------------------------------------------------------------- */

static int count_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static bool is_error(int ret)
{
	return ret <= 0 && ret > -4096;
}

/* A positive result where that means something. */
static bool is_result(int ret)
{
	return ret > -4096 && ret < 1000;
}

static void use_own(struct sc_seg *seg)
{
	struct sc_service *service;
	int ret = sc_service_create("failing.mine", seg->header.address, &service);

	CHILD_CHECK(is_error(ret));
	if (!ret)
		sc_service_destroy(service);
	CHILD_CHECK(is_error(sc_seg_table_grow(seg, SC_SEG_REGS, 1)));
	CHILD_CHECK(is_error(sc_seg_table_grow(seg, SC_SEG_RANGES, 40)));
	CHILD_CHECK(is_error(sc_seg_slot_alloc(seg, 1)));
	CHILD_CHECK(is_error(sc_seg_slot_free(seg, 1)));
}

/* For a process that does not know its pid namespace the lock alone decides whether an owner lives. */
static bool knows_namespace(void)
{
	const struct sc_host *host;

	return !sc_host_get(&host) && host->pid_ns;
}

static void use_others(void)
{
	char found[SC_ADDR_SIZE];
	struct sc_seg *seg;
	int ret = sc_seg_attach(owner.line, &seg);

	CHILD_CHECK(is_error(ret));
	if (!ret) {
		CHILD_CHECK(is_result(sc_seg_check_owner(seg)));
		CHILD_CHECK(is_error(sc_seg_slot_alloc(seg, 0)));
		CHILD_CHECK(sc_owner_lives(&seg->header.owner, 0) || !knows_namespace());
		CHILD_CHECK(sc_host_runs(seg->header.owner.pid, seg->header.owner.start_time, 0));
		sc_seg_detach(seg);
	}
	CHILD_CHECK(is_error(sc_seg_find(owner.line)));
	CHILD_CHECK(is_error(sc_addr_resolve(owner.line, found)));
	CHILD_CHECK(is_error(sc_addr_resolve(SC_ADDR_PREFIX OWNERS_SERVICE, found)));
	CHILD_CHECK(is_error(sc_service_find(OWNERS_SERVICE, found)));
	CHILD_CHECK(!sc_owner_left(owner.line));
	(void)sc_owner_left(dead.line);
}

static void count_alive(const struct sc_reap_file *file, void *count)
{
	*(int *)count += !file->dead;
}

static void live_through(struct child *self, void *arg)
{
	const char *setting = arg;
	const struct sc_host *host;
	int before = count_descriptors(), alive = 0;
	struct sc_addr parts;
	char name[SC_ADDR_NAME_MAX];
	struct sc_seg *seg;
	int ret;

	(void)self;
	if (setting)
		setenv("SHMCMA_FAULT", setting, 1);
	CHILD_CHECK(!sc_owner_left(owner.line));
	CHILD_CHECK(is_result(sc_reap_scan())); /* of one that does not know yet who it is */
	CHILD_CHECK(is_error(sc_host_get(&host)));
	CHILD_CHECK(!sc_addr_parse(owner.line, &parts));
	sc_addr_file(&parts, name);
	CHILD_CHECK(is_error(sc_reap_name(name))); /* 0: it looked as if it was not there */
	CHILD_CHECK(!sc_host_has_ended(owner.pid, 0));
	(void)sc_host_is_stopped(owner.pid);
	ret = sc_seg_create(&geometry, &seg);
	CHILD_CHECK(is_error(ret));
	if (!ret)
		use_own(seg);
	use_others();
	if (!ret)
		sc_seg_destroy(seg);
	CHILD_CHECK(is_error(sc_reap_list(count_alive, &alive)));
	CHILD_CHECK(is_result(sc_reap_scan()));
	sc_process_fini();
	CHILD_CHECK(count_descriptors() == before);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static int count_names(pid_t pid)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	char prefix[32];
	int count = 0;

	if (!dir)
		abort();
	snprintf(prefix, sizeof(prefix), "shmcma-%08x-%08x-", (unsigned int)geteuid(), (unsigned int)pid);
	while ((entry = readdir(dir)))
		count += !strncmp(entry->d_name, prefix, strlen(prefix));
	closedir(dir);
	return count;
}

/* A process whose calls to remove names fail may leave names; their owner is dead. */
static void run(const char *setting, bool names_stay)
{
	struct child child;

	if (!core_has_file(dead.line))
		assert_true(child_start(&dead, leave, NULL) && child_reap(&dead));
	child_spawn(&child, live_through, (void *)setting);
	if (child_end(&child))
		fail_msg("with %s", setting ? setting : "no setting of a failing call");
	if (!names_stay)
		assert_int_equal(count_names(child.pid), 0);
	assert_true(core_has_file(owner.line));
}

static void test_nothing_fails(void **state)
{
	(void)state;
	run(NULL, false);
}

#ifdef SC_FAULT_INJECTION

extern struct sc_fault_site *__start_sc_fault_sites[], *__stop_sc_fault_sites[];

/* Is the point one of what a life here goes through, and may fail? */
static bool is_tried(const struct sc_fault_site *site)
{
	static const char *const files[] = { "host.",   "lifelock.", "shmfile.", "otherfile.", "owner.", "reap.", "seg.",
					     "attach.", "create.",   "guard.",   "memory.", "service." };

	for (size_t i = 0; site->fails && i < sizeof(files) / sizeof(files[0]); i++)
		if (!strncmp(site->point, files[i], strlen(files[i])))
			return true;
	return false;
}

/* Can the call fail so, though it concerns a living process, or this process? */
static bool makes_sense(const char *point, int error)
{
	if (!strcmp(point, "owner.cookie"))
		return error != EFAULT;
	if (!strcmp(point, "host.kill"))
		return error != ESRCH;
	if (!strcmp(point, "host.pidfd"))
		return error != ESRCH && error != EINVAL && error != ENOENT;
	return strcmp(point, "shmfile.is_open"); /* a descriptor that is not the core's file any more stays open */
}

static void fail_at(const char *point)
{
	static const int errors[] = { EPERM,  ENOENT, ESRCH,  EINTR,  EIO,	 EAGAIN,
				      ENOMEM, EACCES, EFAULT, EEXIST, EISDIR,	 EINVAL,
				      EMFILE, ENOSPC, EROFS,  EDQUOT, EOPNOTSUPP };
	char setting[64];

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (!makes_sense(point, errors[i]))
			continue;
		for (int nth = 1; nth <= 2; nth++) {
			snprintf(setting, sizeof(setting), "%s:%d:%d", point, errors[i], nth);
			run(setting, strstr(point, "unlink"));
		}
	}
}

static void test_points(void **state)
{
	(void)state;
	for (struct sc_fault_site **at = __start_sc_fault_sites; at < __stop_sc_fault_sites; at++)
		if (is_tried(*at))
			fail_at((*at)->point);
}

#else

static void test_points(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

#endif

/* ---- descriptors short, no /proc ------------------------------------------------------------- */

static void short_of_descriptors(struct child *self, void *arg)
{
	rlim_t most = (rlim_t)(intptr_t)arg;
	struct rlimit before;

	/* open descriptors stay open, and a few more can be opened */
	CHILD_CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){ most, before.rlim_max }));
	live_through(self, NULL);
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &before));
}

static void test_descriptors(void **state)
{
	int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	close(lowest);
	for (int more = 0; more < 12; more++) {
		struct child child;

		/* two pipes' ends that child_spawn() leaves open there */
		child_spawn(&child, short_of_descriptors, (void *)(intptr_t)(lowest + more));
		if (child_end(&child))
			fail_msg("with %d descriptors", more);
		assert_int_equal(count_names(child.pid), 0);
	}
}

static void hide_proc(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc", "tmpfs", 0, NULL))
		_exit(CHILD_SKIPS);
}

static void without_proc(struct child *self, void *arg)
{
	hide_proc();
	live_through(self, arg);
}

/* That a service's file cannot be looked at is not that there is none. */
static void reap_without_proc(struct child *self, void *arg)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	int fd;

	(void)self;
	(void)arg;
	sc_addr_service_file("failing.proc", name);
	sc_shmfile_path(name, path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	CHILD_CHECK(fd >= 0 && !close(fd));
	hide_proc();
	sc_log_set(child_log);
	child_log_lines = 0;
	CHILD_CHECK(sc_reap_name(name) == -ENODEV);
	CHILD_CHECK(child_log_lines == 1);
	CHILD_CHECK(!unlink(path));
}

static void test_no_proc(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(without_proc, "nothing:1")); /* no such point: what is asked for may fail */
	assert_true(core_has_file(owner.line));
	if (!alone)
		skip();
	CHILD_ASSERT(child_run(reap_without_proc, NULL));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_fails),
		cmocka_unit_test(test_points),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_no_proc),
	};
	int failed;

	alone = child_private_shm("size=64m,mode=1777");
	if (!child_start(&owner, live, NULL) || !child_start(&dead, leave, NULL))
		return 1;
	child_reap(&dead);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return child_end(&owner) || failed;
}
