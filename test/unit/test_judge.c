/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_judge: which processes count as alive, by evidence that a healthy system does not show: files of /proc with
 * other content, headers and services that are wrong, an owner that has lost its lock. A process counts as alive if
 * nothing shows that it is dead.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "child.h"
#include "core_test.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/attach.h"
#include "shm/create.h"
#include "shm/memory.h"
#include "proc/service.h"

#define UUID "01234567-89ab-cdef-0123-456789abcdef"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static const struct sc_seg_geometry geometry = {
	.slots = 4, .buf_size = 4096, .buf_count = 2, .window = 1000, .capabilities = SC_ABI_CAP_MSG
};

static bool may_mount; /* and is in a /dev/shm of its own */

/* ---- the host -------------------------------------------------------------------------------- */

/* Another content for a file, in this process's mount namespace. */
static void put_over(const char *path, const char *content)
{
	char name[] = "/dev/shm/test_judge.XXXXXX";
	int fd = mkstemp(name);

	CHILD_CHECK(fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content));
	close(fd);
	CHILD_CHECK(!mount(name, path, NULL, MS_BIND, NULL));
	unlink(name);
}

static void own_mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		_exit(CHILD_SKIPS);
}

struct boot {
	const char *text;
	int expected;
};

static void read_boot(struct child *self, void *arg)
{
	const struct boot *boot = arg;
	const struct sc_host *host;

	(void)self;
	own_mounts();
	put_over(BOOT_ID, boot->text);
	CHILD_CHECK(sc_host_get(&host) == boot->expected);
	CHILD_CHECK(!boot->expected == (host != NULL));
}

static void test_boot_id(void **state)
{
	static const struct boot boots[] = {
		{ UUID "\n", 0 },     { UUID, 0 },	  { "", -EIO },
		{ UUID "0\n", -EIO }, { "0123\n", -EIO }, { "no uuid\n", -EIO },
	};

	(void)state;
	if (!may_mount)
		skip();
	for (size_t i = 0; i < sizeof(boots) / sizeof(boots[0]); i++)
		assert_int_equal(child_run(read_boot, (void *)&boots[i]), 0);
}

/* /proc has nothing but the id of the boot. */
static void read_little(struct child *self, void *arg)
{
	const struct sc_host *host;
	int fd;

	(void)self;
	(void)arg;
	own_mounts();
	CHILD_CHECK(!mount("none", "/proc", "tmpfs", 0, NULL));
	CHILD_CHECK(!mkdir("/proc/sys", 0700) && !mkdir("/proc/sys/kernel", 0700) &&
		    !mkdir("/proc/sys/kernel/random", 0700));
	fd = open(BOOT_ID, O_CREAT | O_WRONLY, 0600);
	CHILD_CHECK(write(fd, UUID, strlen(UUID)) == (ssize_t)strlen(UUID));
	close(fd);
	CHILD_CHECK(!sc_host_get(&host));
	CHILD_CHECK(!host->pid_ns && !host->start_time);
	CHILD_CHECK(sc_host_runs(getpid(), 1, 0)); /* nothing shows that it does not */
	CHILD_CHECK(!sc_host_is_stopped(getpid()));
	CHILD_CHECK(!sc_host_is_pidfd(0, getpid(), 0));
}

static void no_memory(struct child *self, void *arg)
{
	const struct sc_host *host;

	(void)self;
	(void)arg;
	CHILD_CHECK(!sc_host_self()); /* a process does not know itself before it asks */
	CHILD_CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){ 4096, RLIM_INFINITY }));
	CHILD_CHECK(sc_host_get(&host) == -ENOMEM);
	CHILD_CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY }));
}

static void test_little_known(void **state)
{
	(void)state;
	if (!may_mount)
		skip();
	assert_int_equal(child_run(read_little, NULL), 0);
	assert_int_equal(child_run(no_memory, NULL), 0);
}

/* ---- processes ------------------------------------------------------------------------------- */

static void just_wait(struct child *self, void *arg)
{
	(void)arg;
	child_tell(self, "");
	child_wait(self);
}

static void *tell_tid(void *tid)
{
	atomic_store((_Atomic int *)tid, (int)syscall(SYS_gettid));
	pause();
	return NULL;
}

static uint64_t start_of(pid_t pid)
{
	char path[32], text[1024] = "", *at;
	unsigned long long start = 0;
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	stat = fopen(path, "re");
	if (!stat || !fgets(text, sizeof(text), stat))
		abort();
	fclose(stat);
	at = strrchr(text, ')') + 2;
	for (int field = 3; field < 22; field++)
		at = strchr(at, ' ') + 1;
	sscanf(at, "%llu", &start);
	return start;
}

/* In a child: it mounts, and starts a thread. */
static void judge_process(struct child *self, void *arg)
{
	static const char *const garbage[] = { "", "no name", "1 (a)S 1", "1 (a) S 1 2 3" };
	struct child other;
	uint64_t start, inode;
	char path[32];
	int fd;

	(void)self;
	(void)arg;
	CHILD_CHECK(child_start(&other, just_wait, NULL));
	start = start_of(other.pid);
	fd = sc_host_open_pidfd(other.pid);
	inode = sc_host_pidfd_inode(fd);
	CHILD_CHECK(sc_host_runs(other.pid, start, 0));
	CHILD_CHECK(!sc_host_runs(other.pid, start + 1, 0));
	CHILD_CHECK(sc_host_runs(other.pid, start, inode));
	CHILD_CHECK(!inode || !sc_host_runs(other.pid, start, inode + 1));
	CHILD_CHECK(!sc_host_has_ended(other.pid, inode));
	CHILD_CHECK(!inode || sc_host_has_ended(other.pid, inode + 1));
	CHILD_CHECK(!sc_host_is_stopped(other.pid));
	CHILD_CHECK(!kill(other.pid, SIGSTOP) && waitpid(other.pid, NULL, WUNTRACED) == other.pid);
	CHILD_CHECK(sc_host_is_stopped(other.pid));
	CHILD_CHECK(sc_host_is_pidfd(fd, other.pid, inode) && sc_host_is_pidfd(fd, other.pid, 0));
	CHILD_CHECK(!sc_host_is_pidfd(fd, other.pid + 1, 0) && !sc_host_is_pidfd(0, other.pid, 0));
	CHILD_CHECK(!sc_host_pidfd_inode(0) && !sc_host_pidfd_inode(-1));
	own_mounts();
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)other.pid);
	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		put_over(path, garbage[i]);
		CHILD_CHECK(sc_host_runs(other.pid, start, 0));
		CHILD_CHECK(!sc_host_is_stopped(other.pid));
		CHILD_CHECK(!umount(path));
	}
	put_over(path, "1 (a) t 1");
	CHILD_CHECK(sc_host_is_stopped(other.pid));
	kill(other.pid, SIGKILL);
	CHILD_CHECK(!waitid(P_PID, (id_t)other.pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT));
	CHILD_CHECK(!sc_host_runs(other.pid, start, inode) && sc_host_has_ended(other.pid, inode));
	CHILD_CHECK(sc_host_is_pidfd(fd, other.pid, 0));
	waitpid(other.pid, NULL, 0);
	CHILD_CHECK(!sc_host_runs(other.pid, start, inode) && sc_host_has_ended(other.pid, inode));
	CHILD_CHECK(sc_host_is_pidfd(fd, other.pid, 0)); /* of one that has been waited for */
	close(fd);
}

static void judge_thread(struct child *self, void *arg)
{
	_Atomic int tid = 0;
	pthread_t thread;

	(void)self;
	(void)arg;
	CHILD_CHECK(!pthread_create(&thread, NULL, tell_tid, &tid));
	while (!atomic_load(&tid))
		sched_yield();
	CHILD_CHECK(sc_host_has_ended(tid, 0)); /* now a thread has the number: a process that had it has ended */
	CHILD_CHECK(!sc_host_runs(tid, 1, 0));
}

/* A kernel without pidfs: the start of the process tells. */
static void judge_without_pidfs(struct child *self, void *arg)
{
	const struct sc_host *host;

	(void)self;
	(void)arg;
	CHILD_CHECK(!sc_host_get(&host));
	if (!core_failing("host.fstatfs", EINVAL))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(sc_host_runs(host->pid, host->start_time, 1));
	CHILD_CHECK(!sc_host_runs(host->pid, host->start_time + 1, 1));
	CHILD_CHECK(!sc_host_has_ended(host->pid, 1));
	/* a kernel, or a filter of system calls, without pidfds */
	core_failing("host.pidfd", ENOSYS);
	CHILD_CHECK(sc_host_runs(host->pid, host->start_time + 1, 0));
	CHILD_CHECK(!sc_host_has_ended(host->pid, 0));
	/* of a number that is a thread's: as either kernel says it */
	core_failing("host.pidfd", EINVAL);
	CHILD_CHECK(!sc_host_runs(host->pid, host->start_time, 0));
	core_failing("host.pidfd", ENOENT);
	CHILD_CHECK(!sc_host_runs(host->pid, host->start_time, 0));
	core_failing("host.kill", ESRCH);
	CHILD_CHECK(sc_host_has_ended(host->pid, 0));
}

static void test_without_pidfs(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(judge_without_pidfs, NULL));
}

static void test_processes(void **state)
{
	(void)state;
	assert_int_equal(child_run(judge_thread, NULL), 0);
	CHILD_ASSERT(child_run(judge_process, NULL));
}

#define THREADS 16 /* beside the first, that is more than sc_host_is_running() asks */

static void *sleep_on(void *unused)
{
	pause();
	return unused;
}

/* Has a single one of them until it is let go once. A sanitizer may have a thread, too. */
static void have_threads(struct child *self, void *arg)
{
	pthread_t thread;
	char byte;

	(void)arg;
	for (int i = 0; i < THREADS; i++) {
		if (i == 1) {
			child_tell(self, "");
			CHILD_CHECK(read(self->down, &byte, 1) == 1);
		}
		CHILD_CHECK(!pthread_create(&thread, NULL, sleep_on, NULL));
	}
	child_tell(self, "");
	child_wait(self);
}

static void stop(const struct child *child)
{
	assert_return_code(kill(child->pid, SIGSTOP), errno);
	assert_int_equal(waitpid(child->pid, NULL, WUNTRACED), child->pid);
}

/* A process is taken for one that runs unless each of its threads is seen not to; all threads of a stopped one are. */
static void test_running(void **state)
{
	char line[CHILD_LINE];
	struct child child;

	(void)state;
	assert_true(sc_host_is_running(getpid()));
	assert_true(child_start(&child, have_threads, NULL));
	stop(&child);
	assert_false(sc_host_is_running(child.pid));
	if (core_failing("host.tasks", EMFILE))
		assert_true(sc_host_is_running(child.pid));
	if (core_failing("host.task", EIO))
		assert_true(sc_host_is_running(child.pid));
	core_failing(NULL, 0);
	assert_return_code(kill(child.pid, SIGCONT), errno);
	assert_int_equal(send(child.down, "", 1, 0), 1);
	assert_int_equal(read(child.up, line, sizeof(line)), sizeof(line));
	stop(&child);
	assert_true(sc_host_is_running(child.pid)); /* it has too many threads to ask each */
	child_kill(&child);
	assert_true(sc_host_is_running(child.pid)); /* nothing shows that it sleeps */
}

/* ---- segments -------------------------------------------------------------------------------- */

static void file_of(const char *addr, char name[SC_ADDR_NAME_MAX])
{
	struct sc_addr parts;

	CHILD_CHECK(!sc_addr_parse(addr, &parts));
	sc_addr_file(&parts, name);
}

/* Says its address, loses its lock, says so; lives on. */
static void lose_lock(struct child *self, void *arg)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_seg *seg;

	(void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	child_tell(self, seg->header.address);
	child_wait(self);
	file_of(seg->header.address, name);
	sc_shmfile_path(name, path);
	close(open(path, O_RDWR | O_CLOEXEC));
	child_tell(self, "");
	child_wait(self);
}

static void test_lost_lock(void **state)
{
	uint64_t other_cookie = 0;
	char line[CHILD_LINE], name[SC_ADDR_NAME_MAX];
	struct sc_abi_header forged;
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	assert_true(child_start(&owner, lose_lock, NULL));
	file_of(owner.line, name);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	assert_false(sc_owner_is_dead(seg));
	assert_int_equal(send(owner.down, "", 1, 0), 1);
	assert_int_equal(read(owner.up, line, sizeof(line)), sizeof(line));
	assert_int_equal(sc_seg_check_owner(seg), 0);
	assert_false(sc_owner_is_dead(seg)); /* by its cookie */
	seg->cma_pid = 0;
	assert_false(sc_owner_is_dead(seg)); /* by that in its header */
	assert_false(sc_owner_left(owner.line));
	assert_int_equal(sc_reap_name(name), -EBUSY);

	assert_true(sc_owner_lives(&seg->header.owner, 0));
	assert_true(
		sc_owner_lives(&seg->header.owner, SC_ABI_LIFE_ENDED)); /* anybody may have written that */
	if (core_failing("owner.cookie", EPERM)) {
		assert_true(sc_owner_lives(&seg->header.owner, 0));
		assert_true(sc_owner_lives(&seg->header.owner, SC_ABI_LIFE_ENDED | 1));
		assert_false(sc_owner_lives(&seg->header.owner, SC_ABI_LIFE_ENDED));
		core_failing(NULL, 0);
	}
	forged = seg->header;
	forged.owner.boot_id[0]++;
	assert_false(sc_owner_lives(&forged.owner, 0));
	forged = seg->header;
	forged.owner.pid_ns++;
	assert_false(sc_owner_lives(&forged.owner, 0));
	forged = seg->header;
	forged.owner.cookie++;
	assert_false(sc_owner_lives(&forged.owner, 0));
	forged = seg->header;
	forged.owner.cookie_addr = 8;
	assert_false(sc_owner_lives(&forged.owner, 0));
	/* another process has the pid by now, and another value at the address of the cookie */
	seg->cma_pid = getpid();
	seg->header.owner.cookie_addr = (uintptr_t)&other_cookie;
	assert_true(sc_owner_is_dead(seg));
	sc_seg_detach(seg);
	assert_int_equal(child_end(&owner), 0);
}

/*
 * Neither a descriptor nor a name is left by which to ask the life lock, and a process with the owner's pid runs. It is
 * another program only if the kernel has marked the word of life and the memory does not show the cookie.
 */
static void test_nameless(void **state)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	assert_true(child_start(&owner, lose_lock, NULL));
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	sc_seg_drop_descriptor(seg);
	file_of(owner.line, name);
	sc_shmfile_path(name, path);
	assert_return_code(unlink(path), errno);
	assert_int_equal(sc_seg_check_owner(seg), -ENOENT);
	for (int marked = 0; marked < 2; marked++) {
		sc_store_release_32(&sc_seg_presence(seg)->life, marked ? SC_ABI_LIFE_ENDED : 1);
		assert_false(sc_owner_is_dead(seg));
		if (core_failing("owner.cookie", EPERM))
			assert_false(sc_owner_is_dead(seg)); /* perhaps the cookie is there */
		if (core_failing("owner.cookie", EFAULT))
			assert_int_equal(sc_owner_is_dead(seg), marked);
		core_failing(NULL, 0);
		seg->header.owner.cookie++;
		assert_int_equal(sc_owner_is_dead(seg), marked);
		seg->cma_pid = 0; /* its pid is not visible here: a mark alone proves nothing */
		assert_false(sc_owner_is_dead(seg));
		seg->cma_pid = owner.pid;
		seg->header.owner.cookie--;
	}
	sc_seg_detach(seg);
	child_kill(&owner);
}

/* The cookie at the end of what is mapped. */
static void test_half_a_cookie(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct sc_host *host;
	struct sc_abi_header forged = { 0 };

	(void)state;
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(munmap(memory + page, page), 0);
	assert_int_equal(sc_host_get(&host), 0);
	memcpy(forged.owner.boot_id, host->boot_id, sizeof(forged.owner.boot_id));
	forged.owner.pid_ns = host->pid_ns;
	forged.owner.pid = forged.owner.cma_tid = getpid();
	forged.owner.cookie_addr = (uintptr_t)memory + page - 4;
	assert_false(sc_owner_lives(&forged.owner, 0));
	munmap(memory, page);
}

/* A process that does not know itself yet, and cannot find out, takes each owner for alive. */
static void judge_as_nobody(struct child *self, void *arg)
{
	const struct sc_abi_owner nobody = { 0 };
	char name[SC_ADDR_NAME_MAX], address[SC_ADDR_SIZE];
	struct sc_ep_name own;

	(void)self;
	file_of(arg, name);
	CHILD_CHECK(!sc_host_self());
	if (!core_failing("host.page", ENOMEM))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(sc_owner_lives(&nobody, 0));
	CHILD_CHECK(!sc_owner_left(arg));
	CHILD_CHECK(sc_reap_name(name) == -EBUSY);
	CHILD_CHECK(!sc_ep_name_init(&own));
	CHILD_CHECK(sc_ep_name_address(&own, address) ==
		    -ENOMEM); /* its address has parts that it does not know */
	core_failing(NULL, 0);
	CHILD_CHECK(!sc_ep_name_address(&own, address));
	CHILD_CHECK(sc_addr_kind(address) == SC_ADDR_ENDPOINT);
	CHILD_CHECK(sc_reap_name(name) == 1);
}

/* In a child, which has not asked who it is: its own children have not either. */
static void judge_early(struct child *self, void *arg)
{
	struct child owner;
	int status;

	(void)self;
	(void)arg;
	CHILD_CHECK(child_start(&owner, lose_lock, NULL));
	child_kill(&owner);
	status = child_run(judge_as_nobody, owner.line);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_SKIPS)
		_exit(CHILD_SKIPS);
	CHILD_CHECK(!status);
}

static void test_nobody(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(judge_early, NULL));
}

/* Each thread that /proc names has ended by the time that it is asked. */
static void test_no_thread_answers(void **state)
{
	struct sc_abi_header header = { 0 };
	const struct sc_host *host;

	(void)state;
	if (!core_failing("owner.cookie", ESRCH))
		skip();
	assert_int_equal(sc_host_get(&host), 0);
	memcpy(header.owner.boot_id, host->boot_id, sizeof(header.owner.boot_id));
	header.owner.pid_ns = host->pid_ns;
	header.owner.pid = header.owner.cma_tid = getpid();
	assert_false(sc_owner_lives(&header.owner, 0));
	header.owner.cma_tid = INT32_MAX;
	header.owner.start_time = host->start_time;
	core_failing("host.task", EIO); /* /proc does not name them: one may be there */
	assert_true(sc_owner_lives(&header.owner, 0));
	core_failing("host.tasks", EMFILE);
	assert_true(sc_owner_lives(&header.owner, 0));
	core_failing(NULL, 0);
}

/* Closes with messages unread, says so and lives on. */
static void close_unread(struct child *self, void *arg)
{
	char addr[SC_ADDR_SIZE];
	struct sc_seg *seg;

	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	memcpy(addr, seg->header.address, sizeof(addr));
	seg->keep_name = true;
	sc_store_relaxed_32(&sc_seg_presence(seg)->unread, *(const uint32_t *)arg);
	sc_store_release_32(&sc_seg_presence(seg)->state, SC_ABI_CLOSED);
	sc_seg_destroy(seg);
	child_tell(self, addr);
	child_wait(self);
}

static bool exists(const char *name)
{
	char path[SC_SHMFILE_PATH_MAX];
	struct stat st;

	sc_shmfile_path(name, path);
	return !lstat(path, &st);
}

static void test_left_to_be_read(void **state)
{
	const uint32_t readers = 2;
	char name[SC_ADDR_NAME_MAX];
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	assert_true(child_start(&owner, close_unread, (void *)&readers));
	file_of(owner.line, name);
	assert_true(exists(name));
	if (may_mount) { /* else another may reap it */
		assert_int_equal(sc_seg_attach_left(owner.line, &seg), 0);
		sc_seg_leave(seg);
		assert_true(exists(name));
		sc_seg_leave(seg);
		assert_false(exists(name)); /* the last one takes the name away */
		sc_seg_leave(seg);
		sc_seg_detach(seg);
	}
	assert_int_equal(child_end(&owner), 0);
	assert_true(child_start(&owner, close_unread, (void *)&readers));
	file_of(owner.line, name);
	assert_int_equal(sc_reap_name(name), 1); /* though who closed it lives */
	assert_int_equal(child_end(&owner), 0);
}

static void test_orphans_of_others(void **state)
{
	(void)state;
	assert_false(sc_owner_left("nothing"));
	assert_false(sc_owner_left(SC_ADDR_PREFIX "service"));
	assert_false(
		sc_owner_left(SC_ADDR_PREFIX "00000000001-00000000-00000001-0000000000000000-0000"));
}

/* ---- those who are awaited ------------------------------------------------------------------- */

/* One claim in the segment of a living endpoint, and what it is to say. */
struct claim {
	uint64_t state; /* besides the ticket */
	bool another;	/* and of another ticket */
	uint32_t answer;
	bool awaited;
};

static const struct claim claims[] = {
	{ SC_ABI_PUBLISHED, false, SC_ABI_PENDING, true },
	{ SC_ABI_DEPARTED, false, SC_ABI_PENDING, true },
	{ SC_ABI_PUBLISHED, false, SC_ABI_ACCEPTED, false },
	{ SC_ABI_PUBLISHED, true, SC_ABI_PENDING, false },
	{ SC_ABI_PUBLISHED | SC_ABI_CLAIM_REFUSED, false, SC_ABI_PENDING, false },
	{ SC_ABI_CLAIMED, false, SC_ABI_PENDING, false },
};

static uint64_t ticket_of(const char *addr)
{
	struct sc_addr parts;
	uint64_t nonce;

	CHILD_CHECK(!sc_addr_parse(addr, &parts));
	memcpy(&nonce, parts.nonce, sizeof(nonce));
	return SC_ABI_TICKET(parts.pid, nonce);
}

static void put_claim(struct sc_seg *seg, uint32_t slot, const char *dead, const struct claim *claim)
{
	sc_seg_slot(seg, slot)->consumer.answer = claim->answer;
	sc_seg_claims(seg)[slot] =
		(claim->another ? ticket_of(seg->header.address) : ticket_of(dead)) | claim->state;
}

struct awaiting {
	const char *dead;
	const struct claim *claim;
};

/* Three living endpoints: after the first one that the directory shows there is another one. */
static void await_dead(struct child *self, void *arg)
{
	const struct awaiting *awaiting = arg;
	struct sc_seg *seg[3];

	for (int i = 0; i < 3; i++) {
		CHILD_CHECK(!sc_seg_create(&geometry, &seg[i]));
		CHILD_CHECK(!sc_seg_slot_alloc(seg[i], 1));
		put_claim(seg[i], 1, awaiting->dead, awaiting->claim);
	}
	child_tell(self, "");
	child_wait(self);
	for (int i = 0; i < 3; i++)
		sc_seg_destroy(seg[i]);
}

/* A file that is no segment of this layout awaits nobody, in spite of its claims. */
static void await_garbled(struct child *self, void *arg)
{
	const struct awaiting *awaiting = arg;
	struct sc_abi_header *header;
	struct sc_seg *seg[5];

	for (int i = 0; i < 5; i++) {
		CHILD_CHECK(!sc_seg_create(&geometry, &seg[i]));
		CHILD_CHECK(!sc_seg_slot_alloc(seg[i], 1));
		put_claim(seg[i], 1, awaiting->dead, awaiting->claim);
		header = (struct sc_abi_header *)seg[i]->base;
		header->magic += i == 0;
		header->layout += i == 1;
		header->slot_count = i == 2 ? SC_ABI_SLOTS_MAX + 1 : header->slot_count;
		header->claims_offset = i == 3 ? UINT32_MAX : header->claims_offset;
		header->slots_offset |= i == 4 ? UINT64_C(1) << 63 : 0;
	}
	child_tell(self, "");
	child_wait(self);
	for (int i = 0; i < 5; i++)
		sc_seg_destroy(seg[i]);
}

/* Reaps the file of a dead process while `others` have such segments. */
static void reap_while(child_body *others, const struct claim *claim, int expected)
{
	struct awaiting awaiting = { .claim = claim };
	char name[SC_ADDR_NAME_MAX];
	struct child dead, other;

	assert_true(child_start(&dead, lose_lock, NULL));
	child_kill(&dead);
	file_of(dead.line, name);
	awaiting.dead = dead.line;
	assert_true(child_start(&other, others, &awaiting));
	assert_int_equal(sc_reap_name(name), expected);
	assert_int_equal(child_end(&other), 0);
	core_failing(NULL, 0);
	if (expected < 0)
		assert_int_equal(sc_reap_name(name), 1);
}

static void test_awaited(void **state)
{
	static const char *const points[] = { "reap.awaits", "reap.claims", "reap.answer" };

	(void)state;
	for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++)
		reap_while(await_dead, &claims[i], claims[i].awaited ? -EBUSY : 1);
	reap_while(await_garbled, &claims[0], 1);
	/* claims that the reaper cannot read keep the name until it can */
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]) && core_failing(points[i], EIO); i++)
		reap_while(await_dead, &claims[0], -EBUSY);
}

/* ---- services -------------------------------------------------------------------------------- */

static void put_service(const char *name, const void *content, size_t size)
{
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	sc_shmfile_path(name, path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, 0600), 0);
	assert_int_equal(write(fd, content, size), size);
	close(fd);
}

static void test_services(void **state)
{
	char name[SC_ADDR_NAME_MAX], endpoint[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_abi_service service = { .magic = SC_ABI_SERVICE_MAGIC };
	struct child owner;

	(void)state;
	sc_addr_service_file("judge.test", name);
	put_service(name, "short", 5);
	assert_int_equal(sc_reap_name(name), 1);
	put_service(name, &service, sizeof(service)); /* names nobody */
	assert_int_equal(sc_reap_name(name), 1);

	assert_true(child_start(&owner, lose_lock, NULL));
	memcpy(service.address, owner.line, sizeof(service.address));
	put_service(name, &service, sizeof(service)); /* of an endpoint that lives */
	assert_int_equal(sc_reap_name(name), -EBUSY);
	file_of(owner.line, endpoint);
	sc_shmfile_path(endpoint, path);
	assert_int_equal(chmod(path, 0644), 0); /* it looks like no endpoint's file now */
	assert_int_equal(sc_reap_name(name), 1);
	assert_int_equal(chmod(path, 0600), 0);
	if (core_failing_after("otherfile.open", EMFILE, 1)) { /* its endpoint cannot be looked at */
		put_service(name, &service, sizeof(service));
		assert_int_equal(sc_reap_name(name), -EBUSY);
	}
	core_failing(NULL, 0);
	service.magic++;
	put_service(name, &service, sizeof(service));
	assert_int_equal(sc_reap_name(name), 1);
	service.magic--;
	child_kill(&owner);
	put_service(name, &service, sizeof(service));
	assert_int_equal(sc_reap_name(name), 1);
	(void)sc_reap_name(endpoint);
	put_service(name, &service, sizeof(service)); /* its endpoint's file is gone as well */
	assert_int_equal(sc_reap_name(name), 1);
}

struct fake {
	struct sc_abi_header header;
	char address[SC_ADDR_SIZE];
};

/* Makes a file with the name of that endpoint and this header, and holds its life lock. */
static void hold_fake(struct child *self, void *arg)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	const struct fake *fake = arg;
	int fd;

	file_of(fake->address, name);
	sc_shmfile_path(name, path);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	CHILD_CHECK(fd >= 0 && !fchmod(fd, 0600) && !sc_lifelock_lock(fd));
	CHILD_CHECK(write(fd, &fake->header, sizeof(fake->header)) == sizeof(fake->header));
	child_tell(self, "");
	child_wait(self);
	unlink(path);
}

/* A process that does not know itself cannot tell that the holder of the lock is not the process in the header. */
static void judge_unknowing(struct child *self, void *name)
{
	(void)self;
	if (core_failing("host.dir", EACCES)) /* a child has yet to find out */
		CHILD_CHECK(sc_reap_name(name) == -EBUSY);
}

/*
 * A process holds the lock of the file of a service's endpoint: it counts as the owner, and the service stays. But if
 * the header says that the owner is another process of this pid namespace, the service is removed. A header of
 * another layout says nothing.
 */
static void test_services_of_fakes(void **state)
{
	struct sc_abi_service service = { .magic = SC_ABI_SERVICE_MAGIC };
	char name[SC_ADDR_NAME_MAX];
	const struct sc_host *host;

	(void)state;
	assert_int_equal(sc_host_get(&host), 0);
	sc_addr_service_file("judge.fake", name);
	for (int i = 0; i < 4; i++) {
		const struct sc_addr parts = { .host = host->id, .pid = 1, .ep = (uint16_t)i };
		struct fake fake = { .header = { .magic = SC_ABI_MAGIC + (i == 0),
						 .layout = SC_ABI_LAYOUT + (i == 1),
						 .owner.pid_ns = host->pid_ns + (i == 2),
						 .owner.pid = 1 } };
		struct child holder;

		sc_addr_format(&parts, fake.address);
		memcpy(service.address, fake.address, sizeof(service.address));
		assert_true(child_start(&holder, hold_fake, &fake));
		put_service(name, &service, sizeof(service));
		assert_int_equal(child_run(judge_unknowing, name), 0);
		assert_int_equal(sc_reap_name(name), i < 3 ? -EBUSY : 1);
		assert_int_equal(child_end(&holder), 0);
		assert_int_equal(sc_reap_name(name), i < 3 ? 1 : 0);
	}
}

/* One that holds a service. */
static void serve(struct child *self, void *arg)
{
	struct sc_service *service;
	struct sc_seg *seg;

	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	CHILD_CHECK(!sc_service_create(arg, seg->header.address, &service));
	child_tell(self, seg->header.address);
	child_wait(self);
	sc_service_destroy(service);
	sc_seg_destroy(seg);
}

/* A name that is taken each time one tries, and free when one looks; a lock that cannot be asked for. */
static void test_services_fail(void **state)
{
	char found[SC_ADDR_SIZE];
	struct sc_service *service;
	struct child holder;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	assert_true(child_start(&holder, serve, "judge.held"));
	core_failing("shmfile.link", EEXIST);
	assert_int_equal(sc_service_create("judge.free", holder.line, &service), -EADDRINUSE);
	core_failing("lifelock.check", ENOLCK);
	assert_int_equal(sc_service_find("judge.held", found), -ENOLCK);
	core_failing(NULL, 0);
	assert_int_equal(sc_service_find("judge.held", found), 0);
	assert_string_equal(found, holder.line);
	assert_int_equal(child_end(&holder), 0);
}

/* ---- stopped --------------------------------------------------------------------------------- */

#define CHECKS 100000

/* A process that is stopped is alive, however often one asks. */
static void test_stopped(void **state)
{
	char name[SC_ADDR_NAME_MAX];
	struct child owner;
	struct sc_seg *seg;
	int dead = 0;

	(void)state;
	assert_true(child_start(&owner, lose_lock, NULL));
	file_of(owner.line, name);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	kill(owner.pid, SIGSTOP);
	assert_int_equal(waitpid(owner.pid, NULL, WUNTRACED), owner.pid);
	for (int i = 0; i < CHECKS; i++) {
		dead += sc_owner_is_dead(seg);
		if (i % 100 == 0)
			dead += !sc_owner_lives(&seg->header.owner, 0) + (sc_reap_name(name) != -EBUSY) +
				sc_host_has_ended(owner.pid, seg->header.owner.pidfs_ino);
	}
	assert_int_equal(dead, 0);
	print_message("%d checks of a stopped process, 0 took it for dead\n", CHECKS);
	sc_seg_detach(seg);
	child_kill(&owner);
	assert_int_equal(sc_reap_name(name), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody), /* before this process knows who it is */
		cmocka_unit_test(test_boot_id),
		cmocka_unit_test(test_little_known),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_without_pidfs),
		cmocka_unit_test(test_running),
		cmocka_unit_test(test_lost_lock),
		cmocka_unit_test(test_nameless),
		cmocka_unit_test(test_half_a_cookie),
		cmocka_unit_test(test_no_thread_answers),
		cmocka_unit_test(test_left_to_be_read),
		cmocka_unit_test(test_orphans_of_others),
		cmocka_unit_test(test_awaited),
		cmocka_unit_test(test_services),
		cmocka_unit_test(test_services_of_fakes),
		cmocka_unit_test(test_services_fail),
		cmocka_unit_test(test_stopped),
	};

	may_mount = child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
