/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_seg: segments: their files, the processes that may attach, the files that remain. The test has a /dev/shm of its
 * own where that is allowed.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "child.h"
#include "core_test.h"
#include "shm/header.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "proc/reap.h"
#include "shm/attach.h"
#include "shm/create.h"
#include "shm/guard.h"
#include "shm/memory.h"

static const struct sc_seg_geometry geometry = {
	.slots = 16,
	.buf_size = 8192,
	.buf_count = 8,
	.window = 1000,
	.capabilities = SC_ABI_CAP_TAGGED,
};

#define REGS 1024
#define RANGES 512

/* Of no endpoint. */
#define TICKET 0x1234567800000000ull

/* Bytes of header and claims, and of a pool of which all buffers have memory. */
static uint64_t memory_of_all(const struct sc_seg *seg)
{
	return seg->header.slots_offset + seg->header.table_offset - seg->header.pool_offset;
}

static struct sc_seg *create_with_table(void)
{
	struct sc_seg_geometry with = geometry;
	struct sc_seg *seg = NULL;

	with.regs = REGS;
	with.ranges = RANGES;
	assert_int_equal(sc_seg_create(&with, &seg), 0);
	return seg;
}

static struct sc_seg *create(void)
{
	struct sc_seg *seg = NULL;

	assert_int_equal(sc_seg_create(&geometry, &seg), 0);
	return seg;
}

/* Path of the file behind an address, in a static buffer. */
static char *path_of(const char *addr)
{
	static char path[SC_SHMFILE_PATH_MAX];
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;

	if (sc_addr_parse(addr, &parts))
		abort();
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	return path;
}

/* An address of this host that nobody has. */
static void free_address(char addr[SC_ADDR_SIZE])
{
	const struct sc_host *host;
	struct sc_addr parts = { .pid = 1, .ep = 7 };

	assert_int_equal(sc_host_get(&host), 0);
	assert_int_equal(sc_host_random(parts.nonce, sizeof(parts.nonce)), 0);
	parts.host = host->id;
	sc_addr_format(&parts, addr);
}

/* The outcome of attaching, which is logged exactly once unless it is a success. */
static void assert_attach(const char *addr, int expected)
{
	struct sc_seg *seg = NULL;
	int err;

	child_log_lines = 0;
	err = sc_seg_attach(addr, &seg);
	if (err != expected)
		fprintf(stderr, "attach: %d instead of %d: %s\n", err, expected, child_log_line);
	assert_int_equal(err, expected);
	assert_int_equal(child_log_lines, expected ? 1 : 0);
	if (!err)
		sc_seg_detach(seg);
	else
		assert_null(seg);

	child_log_lines = 0;
	assert_int_equal(sc_seg_find(addr), expected);
	assert_int_equal(child_log_lines, expected ? 1 : 0);
}

/* ---- owners in other processes --------------------------------------------------------------- */

/* Creates a segment, lets *arg (a change) work on it if it is given, and lives until it may go. */
typedef void change(struct sc_seg *seg);

struct owner_arg {
	change *change;
};

static void own(struct child *self, void *arg)
{
	struct owner_arg *how = arg;
	struct sc_seg *seg;

	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	memset(sc_seg_buf(seg, 3), 0x5a, geometry.buf_size);
	if (how && how->change)
		how->change(seg);
	child_tell(self, seg->header.address);
	child_wait(self);
	sc_seg_destroy(seg);
}

static void start_owner(struct child *owner)
{
	assert_true(child_start(owner, own, NULL));
}

/* An unrelated process looks for the segment, and exits with the errno. */
static void find(struct child *self, void *arg)
{
	(void)self;
	sc_log_set(NULL);
	_exit(-sc_seg_find(arg));
}

static void assert_others_find(const char *addr, int expected)
{
	int status = child_run(find, (void *)(uintptr_t)addr);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), -expected);
}

/* ---- create ---------------------------------------------------------------------------------- */

static void test_create(void **state)
{
	const struct sc_host *host;
	const struct sc_abi_header *header;
	struct sc_abi_header shared;
	struct sc_seg *seg = create();
	struct stat st;

	(void)state;
	header = &seg->header;
	assert_int_equal(sc_host_get(&host), 0);
	assert_int_equal(header->slot_count, geometry.slots);
	assert_int_equal(header->buf_size, geometry.buf_size);
	assert_int_equal(header->buf_count, geometry.buf_count);
	assert_int_equal(header->window, geometry.window);
	assert_int_equal(header->capabilities, geometry.capabilities);
	assert_int_equal(header->owner.pid, getpid());
	assert_int_equal(header->owner.cma_tid, getpid());
	assert_true(header->owner.start_time == host->start_time && host->start_time);
	assert_true(header->owner.pid_ns == host->pid_ns && host->pid_ns);
	assert_true(header->owner.cookie == *(uint64_t *)(uintptr_t)header->owner.cookie_addr &&
		    header->owner.cookie);
	assert_true(seg->own && seg->local);

	assert_int_equal(stat(path_of(header->address), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(st.st_ino, seg->ino);
	assert_int_equal(st.st_size, header->length);
	/* memory for header, claims and pool, none for the slots between */
	assert_int_equal(st.st_blocks * 512, memory_of_all(seg));

	memcpy(&shared, seg->base, sizeof(shared));
	assert_memory_equal(&shared, header, sizeof(shared));
	assert_null(sc_header_fault(&shared, header->length, header->address));
	assert_int_equal(sc_seg_presence(seg)->state, SC_ABI_OPEN);
	for (uint32_t i = 0; i < header->slot_count; i++)
		assert_true(!sc_seg_claims(seg)[i]);

	assert_others_find(header->address, 0);
	strcpy(child_log_line, header->address);
	sc_seg_destroy(seg);
	assert_false(core_has_file(child_log_line));
	assert_others_find(child_log_line, -ECONNREFUSED);
}

static void create_too_large(struct child *self, void *arg)
{
	struct rlimit limit = { 4096, RLIM_INFINITY };
	struct sc_seg *seg;

	(void)self;
	(void)arg;
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
	CHILD_CHECK(sc_seg_create(&geometry, &seg) == -EFBIG);
	limit.rlim_cur = RLIM_INFINITY;
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	sc_seg_destroy(seg);
}

/* A file beyond the limit is an error, not the end of the process. */
static void test_file_limit(void **state)
{
	(void)state;
	assert_int_equal(child_run(create_too_large, NULL), 0);
}

/* mlockall(2) has locked as much as the limit allows. No later try helps, as EAGAIN would say. */
static void test_lock_limit(void **state)
{
	struct sc_seg *seg;

	(void)state;
	if (!core_failing("seg.mmap", EAGAIN))
		skip();
	sc_log_set(child_log);
	assert_int_equal(sc_seg_create(&geometry, &seg), -ENOMEM);
	assert_non_null(strstr(child_log_line, "ulimit -l"));
	core_failing(NULL, 0);
}

static void test_umask(void **state)
{
	mode_t old = umask(0777);
	struct sc_seg *seg = create();
	struct stat st;

	(void)state;
	umask(old);
	assert_int_equal(stat(path_of(seg->header.address), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	sc_seg_destroy(seg);
}

static void test_two_endpoints(void **state)
{
	struct sc_seg *a = create(), *b = create();
	struct sc_addr first, second;
	char addr[SC_ADDR_SIZE];

	(void)state;
	assert_int_equal(sc_addr_parse(a->header.address, &first), 0);
	assert_int_equal(sc_addr_parse(b->header.address, &second), 0);
	assert_int_equal(first.ep, 0); /* under its own name */
	assert_int_equal(second.ep, 0);
	assert_memory_not_equal(first.nonce, second.nonce, sizeof(first.nonce));
	assert_true(first.host == second.host);

	memcpy(addr, a->header.address, sizeof(addr));
	sc_seg_destroy(a);
	assert_others_find(addr, -ECONNREFUSED);
	assert_others_find(b->header.address, 0);
	sc_seg_destroy(b);
}

/* ---- attach ---------------------------------------------------------------------------------- */

static void test_attach(void **state)
{
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	assert_false(seg->own || seg->local);
	assert_int_equal(seg->cma_pid, owner.pid);
	assert_true(seg->fd >= 0);
	assert_string_equal(seg->header.address, owner.line);
	for (uint32_t i = 0; i < geometry.buf_size; i++)
		assert_int_equal(sc_seg_buf(seg, 3)[i], 0x5a);
	assert_int_equal(sc_seg_check_owner(seg), 1);
	child_kill(&owner);
	assert_int_equal(sc_seg_check_owner(seg), 0);
	assert_int_equal(sc_seg_buf(seg, 3)[0], 0x5a); /* the memory is there as long as we want it */
	assert_attach(owner.line, -ECONNREFUSED);
	sc_seg_detach(seg);
	assert_true(core_has_file(owner.line));
	assert_int_equal(unlink(path_of(owner.line)), 0);
}

/* A process writes to standard streams that it has closed: it writes into no segment, its own or a peer's. */
static void without_streams(struct child *self, void *arg)
{
	struct sc_seg *own_seg, *seg;
	pid_t pid;

	(void)self;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		close(fd);
	CHILD_CHECK(!sc_seg_create(&geometry, &own_seg));
	CHILD_CHECK(own_seg->fd > STDERR_FILENO && own_seg->file.fd == own_seg->fd);
	CHILD_CHECK(!sc_seg_attach(arg, &seg));
	CHILD_CHECK(seg->fd > STDERR_FILENO && sc_seg_check_owner(seg) == 1);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		CHILD_CHECK(fcntl(fd, F_GETFD) == -1);
	/* opened again, as after closefrom(3) */
	close(own_seg->fd);
	CHILD_CHECK(sc_shmfile_fd(&own_seg->file) > STDERR_FILENO);
	CHILD_CHECK(!sc_lifelock_check(own_seg->file.fd, &pid)); /* no other process's */
	sc_seg_detach(seg);
	sc_seg_destroy(own_seg);
}

static void test_without_streams(void **state)
{
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(child_run(without_streams, owner.line), 0);
	assert_int_equal(child_end(&owner), 0);
}

/* Holds the lock of a dead owner's file, as a reaper does for a moment. */
static void hold(struct child *self, void *arg)
{
	int fd = open(arg, O_RDWR | O_CLOEXEC);

	CHILD_CHECK(fd >= 0 && !sc_lifelock_lock(fd));
	child_tell(self, "");
	child_wait(self);
}

/* A process sees that the owner is dead also while another process reaps its file, and can read the file. */
static void test_dead_while_reaped(void **state)
{
	struct child owner, reaper;
	struct sc_seg *seg, *left;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	child_kill(&owner);
	assert_true(child_start(&reaper, hold, (void *)(uintptr_t)path_of(owner.line)));
	assert_int_equal(sc_seg_check_owner(seg), 0);
	assert_attach(owner.line, -ECONNREFUSED);
	assert_int_equal(sc_seg_attach_left(owner.line, &left), 0);
	sc_seg_detach(left);
	close(seg->fd);
	assert_int_equal(sc_seg_check_owner(seg), 0); /* by its name */
	assert_int_equal(child_end(&reaper), 0);
	sc_seg_detach(seg);
	assert_int_equal(unlink(path_of(owner.line)), 0);
}

static void test_closed_while_attached(void **state)
{
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	assert_int_equal(child_end(&owner), 0);
	assert_int_equal(sc_seg_check_owner(seg), 0);
	assert_false(core_has_file(owner.line));
	sc_seg_detach(seg);
}

/* Can a byte be written there? The kernel is asked to, so that the answer is no signal. */
static bool is_writable(uint8_t *at)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	uint8_t kept = *at;
	bool can;

	can = read(zero, at, 1) == 1;
	if (can)
		*at = kept;
	else
		assert_int_equal(errno, EFAULT);
	close(zero);
	return can;
}

static void own_with_table(struct child *self, void *arg)
{
	struct sc_seg *seg = create_with_table();

	(void)arg;
	child_tell(self, seg->header.address);
	child_wait(self);
	sc_seg_destroy(seg);
}

/* A slot that cannot be made writable, for too many mappings, can be later. */
static void test_opened_again(void **state)
{
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	sc_seg_guard(seg);
	core_failing("guard.writable", ENOMEM);
	assert_int_equal(sc_seg_slot_alloc(seg, 1), -ENOMEM);
	core_failing("guard.slots", ENOMEM);
	assert_int_equal(sc_seg_slot_alloc(seg, 1), -ENOMEM);
	core_failing(NULL, 0);
	assert_int_equal(sc_seg_slot_alloc(seg, 1), 0);
	assert_true(is_writable((uint8_t *)sc_seg_slot(seg, 1)));
	sc_seg_detach(seg);
	assert_int_equal(child_end(&owner), 0);
}

enum pool { POOL_SHUT, POOL_OPENED_BEFORE, POOL_OPENED_LATER };

/* An attacher that is guarded can write to what is its to write, and to nothing else but the words beside it. */
static void test_read_only(void **state)
{
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	assert_true(child_start(&owner, own_with_table, NULL));
	for (enum pool pool = POOL_SHUT; pool <= POOL_OPENED_LATER; pool++) {
		assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
		/* claimed before and after, in any order, and again */
		assert_int_equal(sc_seg_slot_alloc(seg, 5), 0);
		assert_int_equal(sc_seg_slot_alloc(seg, 1), 0);
		if (pool == POOL_OPENED_BEFORE)
			assert_int_equal(sc_seg_pool_open(seg), 0);
		sc_seg_guard(seg);
		assert_int_equal(sc_seg_slot_alloc(seg, 3), 0);
		assert_int_equal(sc_seg_slot_alloc(seg, 5), 0);
		sc_seg_guard(seg);
		for (int again = 0; again < 2 && pool == POOL_OPENED_LATER; again++)
			assert_int_equal(sc_seg_pool_open(seg), 0);
		for (uint32_t slot = 0; slot < 7; slot++) {
			assert_int_equal(is_writable((uint8_t *)sc_seg_slot(seg, slot)), slot % 2);
			assert_int_equal(is_writable((uint8_t *)sc_seg_slot(seg, slot + 1) - 1), slot % 2);
		}
		assert_true(is_writable((uint8_t *)&sc_seg_presence(seg)->membership));
		assert_true(is_writable((uint8_t *)&sc_seg_claims(seg)[15]));
		assert_int_equal(is_writable(sc_seg_buf(seg, 0)), pool != POOL_SHUT);
		assert_int_equal(is_writable(sc_seg_buf(seg, seg->header.buf_count) - 1),
				 pool != POOL_SHUT);
		assert_false(is_writable(seg->base + seg->header.table_offset));
		assert_false(is_writable(seg->base + seg->header.length - 1));
		sc_seg_detach(seg);
	}
	assert_int_equal(child_end(&owner), 0);
}

/* Memory cannot be made read-only, for too many mappings: that is less protection, and no error. */
static void test_not_read_only(void **state)
{
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	core_failing("guard.read_only", ENOMEM);
	sc_seg_guard(seg);
	assert_true(core_failed() > 0);
	core_failing(NULL, 0);
	assert_true(is_writable(sc_seg_buf(seg, 0)));
	assert_int_equal(sc_seg_slot_alloc(seg, 1), 0);
	assert_true(is_writable((uint8_t *)sc_seg_slot(seg, 1)));
	assert_int_equal(sc_seg_pool_open(seg), 0);
	sc_seg_detach(seg);
	assert_int_equal(child_end(&owner), 0);
}

static void test_slots(void **state)
{
	struct child owner;
	struct sc_seg *seg;
	struct stat before, st;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	assert_int_equal(fstat(seg->fd, &before), 0);
	assert_int_equal(sc_seg_slot_alloc(seg, 5), 0);
	assert_int_equal(sc_seg_slot_alloc(seg, 15), 0);
	assert_int_equal(fstat(seg->fd, &st), 0);
	assert_int_equal((st.st_blocks - before.st_blocks) * 512, 2 * SC_ABI_SLOT_FIRST);
	assert_int_equal(sc_seg_slot_grow(seg, 5), 0);
	assert_int_equal(sc_seg_slot_alloc(seg, 5), 0);
	assert_int_equal(fstat(seg->fd, &st), 0);
	assert_int_equal((st.st_blocks - before.st_blocks) * 512, SC_ABI_SLOT_FIRST + SC_ABI_SLOT_SIZE);
	assert_int_equal(st.st_size, before.st_size);
	memset(sc_seg_slot(seg, 5), 0xff, SC_ABI_SLOT_SIZE);
	sc_seg_slot_free(seg, 5);
	sc_seg_slot_free(seg, 15);
	assert_int_equal(fstat(seg->fd, &st), 0);
	assert_int_equal(st.st_blocks, before.st_blocks);
	assert_int_equal(st.st_size, before.st_size);
	assert_int_equal(sc_seg_slot_alloc(seg, 5), 0);
	assert_true(!sc_seg_slot(seg, 5)->ring[0].ctl);
	sc_seg_detach(seg);
	assert_int_equal(child_end(&owner), 0);
}

static void chmod_it(struct sc_seg *seg)
{
	CHILD_CHECK(!fchmod(seg->fd, 0640));
}

static void chown_it(struct sc_seg *seg)
{
	CHILD_CHECK(!fchown(seg->fd, geteuid() + 1, (gid_t)-1));
}

static void link_it(struct sc_seg *seg)
{
	char other[SC_SHMFILE_PATH_MAX + 8];

	snprintf(other, sizeof(other), "%s.2", path_of(seg->header.address));
	CHILD_CHECK(!link(path_of(seg->header.address), other));
}

static void shorten_it(struct sc_seg *seg)
{
	CHILD_CHECK(!ftruncate(seg->fd, (off_t)seg->header.length - 1));
}

static void empty_it(struct sc_seg *seg)
{
	CHILD_CHECK(!ftruncate(seg->fd, 0));
}

static void behead_it(struct sc_seg *seg)
{
	CHILD_CHECK(!ftruncate(seg->fd, sizeof(struct sc_abi_header) - 1));
}

static void garble_it(struct sc_seg *seg)
{
	memset(seg->base, 0xa5, SC_ABI_PAGE);
}

static void zero_it(struct sc_seg *seg)
{
	memset(seg->base, 0, SC_ABI_PAGE);
}

static void change_layout(struct sc_seg *seg)
{
	((struct sc_abi_header *)seg->base)->layout++;
}

static void change_major(struct sc_seg *seg)
{
	((struct sc_abi_header *)seg->base)->major++;
}

static void change_minor(struct sc_seg *seg)
{
	((struct sc_abi_header *)seg->base)->minor++;
}

static void change_address(struct sc_seg *seg)
{
	((struct sc_abi_header *)seg->base)->address[62] ^= 1;
}

static void move_pool(struct sc_seg *seg)
{
	((struct sc_abi_header *)seg->base)->pool_offset += seg->header.length;
}

static void unlink_it(struct sc_seg *seg)
{
	CHILD_CHECK(!unlink(path_of(seg->header.address)));
}

/* Its lock, like that of a file whose owner has died while a reaper holds it, belongs to somebody else. */
static void pretend_other_owner(struct sc_seg *seg)
{
	const char *old = seg->header.address;
	struct sc_abi_header *header = (struct sc_abi_header *)seg->base;
	struct sc_addr parts;
	char path[SC_SHMFILE_PATH_MAX];

	strcpy(path, path_of(old));
	CHILD_CHECK(!sc_addr_parse(old, &parts));
	parts.pid++;
	header->owner.pid++;
	sc_addr_format(&parts, header->address);
	CHILD_CHECK(!rename(path, path_of(header->address)));
	memcpy(seg->header.address, header->address, sizeof(header->address));
}

static void test_outcomes(void **state)
{
	static const struct {
		change *change;
		int expected;
	} cases[] = {
		{ NULL, 0 },
		{ chmod_it, -EACCES },
		{ link_it, -EACCES },
		{ shorten_it, -EPROTO },
		{ empty_it, -EPROTO },
		{ behead_it, -EPROTO },
		{ garble_it, -EPROTO },
		{ zero_it, -EPROTO },
		{ change_layout, -EPROTO },
		{ change_major, -EPROTO },
		{ change_minor, 0 },
		{ change_address, -EPROTO },
		{ move_pool, -EPROTO },
		{ unlink_it, -ECONNREFUSED },
		{ pretend_other_owner, -ECONNREFUSED },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct owner_arg how = { cases[i].change };
		char other[SC_SHMFILE_PATH_MAX + 8];
		struct child owner;

		assert_true(child_start(&owner, own, &how));
		assert_attach(owner.line, cases[i].expected);
		snprintf(other, sizeof(other), "%s.2", path_of(owner.line));
		child_kill(&owner);
		unlink(other);
		unlink(path_of(owner.line));
	}
}

/* Left is what has closed, or whose owner has died; never what is in use. */
static void test_left_by_dead(void **state)
{
	struct sc_seg *seg = NULL;
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach_left(owner.line, &seg), -ECONNREFUSED);
	assert_null(seg);
	child_kill(&owner);
	assert_attach(owner.line, -ECONNREFUSED);
	assert_int_equal(sc_seg_attach_left(owner.line, &seg), 0);
	assert_string_equal(seg->header.address, owner.line);
	sc_seg_detach(seg);
	unlink(path_of(owner.line));
}

static void test_other_user(void **state)
{
	struct owner_arg how = { chown_it };
	struct child owner;

	(void)state;
	if (geteuid())
		skip();
	if (!child_start(&owner, own, &how)) { /* a user namespace without that uid */
		child_reap(&owner);
		skip();
	}
	assert_attach(owner.line, -EACCES);
	assert_int_equal(child_end(&owner), 0);
}

static void test_no_address(void **state)
{
	char addr[SC_ADDR_SIZE];

	(void)state;
	assert_attach("", -EINVAL);
	assert_attach("fi_shmcma://service", -EINVAL);
	assert_attach("/dev/shm/x", -EINVAL);

	free_address(addr);
	assert_attach(addr, -ECONNREFUSED);
	addr[sizeof(SC_ADDR_PREFIX)] = addr[sizeof(SC_ADDR_PREFIX)] == '7' ? '8' : '7';
	assert_attach(addr, -EHOSTUNREACH);
}

/* The log names both uids: at the first address of another user as a warning, then as information. */
static void test_names_both_uids(void **state)
{
	const struct sc_host *host;
	char addr[SC_ADDR_SIZE], uids[80];
	struct sc_addr parts;

	(void)state;
	free_address(addr);
	assert_int_equal(sc_addr_parse(addr, &parts), 0);
	assert_int_equal(sc_host_get(&host), 0);
	if (sc_addr_uid(host) == SC_ADDR_ANY_UID) { /* a private /dev/shm has needed a user namespace */
		puts("needs the first user namespace");
		skip();
	}
	parts.uid = sc_addr_uid(host) + 1;
	sc_addr_format(&parts, addr);
	assert_int_equal(mkdir(path_of(addr), 0600), 0);
	assert_int_equal(sc_seg_find(addr), -EACCES);
	assert_int_equal(child_log_level, SC_LOG_WARN);
	snprintf(uids, sizeof(uids), "belongs to uid %u, and this process is uid %u;",
		 (unsigned int)parts.uid, (unsigned int)sc_addr_uid(host));
	assert_non_null(strstr(child_log_line, uids));
	assert_attach(addr, -EACCES);
	assert_int_equal(child_log_level, SC_LOG_INFO);
	assert_non_null(strstr(child_log_line, uids));
	assert_int_equal(rmdir(path_of(addr)), 0);
	parts.uid = SC_ADDR_ANY_UID;
	sc_addr_format(&parts, addr);
	assert_int_equal(mkdir(path_of(addr), 0600), 0);
	assert_attach(addr, -EACCES);
	assert_non_null(strstr(child_log_line, "not a regular one"));
	assert_int_equal(rmdir(path_of(addr)), 0);
}

/* A process in a user namespace of its own cannot tell users by their uids: its log names none. */
static void find_without_uid(struct child *self, void *arg)
{
	(void)self;
	if (unshare(CLONE_NEWUSER)) {
		puts("needs a user namespace");
		fflush(stdout);
		_exit(CHILD_SKIPS);
	}
	CHILD_CHECK(sc_seg_find(arg) == -EACCES);
	CHILD_CHECK(strstr(child_log_line, "not a regular one"));
}

static void test_names_no_uid(void **state)
{
	const struct sc_host *host;
	char addr[SC_ADDR_SIZE];
	struct sc_addr parts;
	int status;

	(void)state;
	free_address(addr);
	assert_int_equal(sc_addr_parse(addr, &parts), 0);
	assert_int_equal(sc_host_get(&host), 0);
	parts.uid = sc_addr_uid(host) + 1;
	sc_addr_format(&parts, addr);
	assert_int_equal(mkdir(path_of(addr), 0600), 0);
	status = child_run(find_without_uid, addr);
	assert_int_equal(rmdir(path_of(addr)), 0);
	CHILD_ASSERT(status);
}

static void test_wrong_types(void **state)
{
	char addr[SC_ADDR_SIZE];
	int fd;

	(void)state;
	free_address(addr);
	assert_int_equal(mkdir(path_of(addr), 0600), 0);
	assert_attach(addr, -EACCES);
	assert_int_equal(rmdir(path_of(addr)), 0);

	assert_int_equal(mkfifo(path_of(addr), 0600), 0); /* an open for reading would hang */
	assert_attach(addr, -EACCES);
	assert_int_equal(unlink(path_of(addr)), 0);

	assert_int_equal(symlink("/dev/null", path_of(addr)), 0);
	assert_attach(addr, -EACCES);
	assert_int_equal(unlink(path_of(addr)), 0);

	fd = open(path_of(addr), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0); /* no lock, no content */
	assert_attach(addr, -ECONNREFUSED);
	close(fd);
	assert_int_equal(unlink(path_of(addr)), 0);
}

static void test_symlink_to_live(void **state)
{
	char addr[SC_ADDR_SIZE], target[SC_SHMFILE_PATH_MAX];
	struct child owner;

	(void)state;
	start_owner(&owner);
	strcpy(target, path_of(owner.line));
	free_address(addr);
	assert_int_equal(symlink(target, path_of(addr)), 0);
	assert_attach(addr, -EACCES);
	assert_int_equal(unlink(path_of(addr)), 0);
	assert_int_equal(child_end(&owner), 0);
}

/* ---- own ------------------------------------------------------------------------------------- */

static void test_local(void **state)
{
	struct sc_seg *seg = create(), *a, *b;

	(void)state;
	assert_int_equal(sc_seg_attach(seg->header.address, &a), 0);
	assert_int_equal(sc_seg_attach(seg->header.address, &b), 0);
	assert_true(a->local && !a->own);
	assert_ptr_equal(a->base, seg->base);
	assert_int_equal(a->fd, seg->fd);
	assert_int_equal(a->cma_pid, getpid());
	assert_int_equal(sc_seg_check_owner(a), 1);
	assert_int_equal(sc_seg_find(seg->header.address), 0);
	sc_seg_detach(a);
	assert_others_find(seg->header.address, 0); /* the lock is still there */
	sc_seg_detach(b);
	assert_others_find(seg->header.address, 0);
	sc_seg_destroy(seg);
}

static void test_destroy_with_borrowers(void **state)
{
	struct sc_seg *seg = create(), *a, *b;
	char addr[SC_ADDR_SIZE];
	int fd = seg->fd;

	(void)state;
	memcpy(addr, seg->header.address, sizeof(addr));
	assert_int_equal(sc_seg_attach(addr, &a), 0);
	assert_int_equal(sc_seg_attach(addr, &b), 0);
	sc_seg_destroy(seg);
	assert_false(core_has_file(addr));
	assert_attach(addr, -ECONNREFUSED);
	assert_int_equal(sc_seg_check_owner(a), 0);
	memset(sc_seg_buf(a, 0), 1, geometry.buf_size);
	sc_seg_detach(a);
	memset(sc_seg_buf(b, 0), 2, geometry.buf_size);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	sc_seg_detach(b);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* A second name for one's own file: not attached, the lock stays. */
static void test_own_by_other_name(void **state)
{
	struct sc_seg *seg = create();
	char addr[SC_ADDR_SIZE], path[SC_SHMFILE_PATH_MAX];

	(void)state;
	strcpy(path, path_of(seg->header.address));
	free_address(addr);
	assert_int_equal(link(path, path_of(addr)), 0);
	assert_attach(addr, -ECONNREFUSED);
	assert_int_equal(unlink(path_of(addr)), 0);
	assert_others_find(seg->header.address, 0);
	sc_seg_destroy(seg);
}

/* Somebody has taken the name away and given it to another file: not ours to remove. */
static void test_name_of_another(void **state)
{
	struct sc_seg *seg = create();
	char path[SC_SHMFILE_PATH_MAX];
	int fd;

	(void)state;
	strcpy(path, path_of(seg->header.address));
	assert_int_equal(unlink(path), 0);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	sc_seg_destroy(seg);
	assert_int_equal(unlink(path), 0);
}

/* ---- fork ------------------------------------------------------------------------------------ */

struct inherited {
	struct sc_seg *own, *lender, *local, *peer;
};

/* Put something else where the parent had its mapping. NULL: a sanitizer's own memory is there by now. */
static char *plug(const struct sc_seg *seg)
{
	char *hole = mmap(seg->base, SC_ABI_PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (CHILD_SANITIZED && hole == MAP_FAILED && errno == EEXIST)
		return NULL;
	CHILD_CHECK(hole == (char *)seg->base);
	*hole = 42;
	return hole;
}

static void use_as_child(struct child *self, void *arg)
{
	struct inherited *had = arg;
	char addr[SC_ADDR_SIZE];
	struct sc_seg *mine, *parents;
	char *holes[] = { plug(had->own), plug(had->lender), plug(had->peer) };

	(void)self;
	memcpy(addr, had->own->header.address, sizeof(addr));
	CHILD_CHECK(!sc_seg_attach(addr, &parents)); /* a stranger like any other */
	CHILD_CHECK(!parents->local && parents->cma_pid == getppid());
	CHILD_CHECK(sc_seg_check_owner(parents) == 1);
	sc_seg_detach(parents);
	CHILD_CHECK(!sc_seg_create(&geometry, &mine));
	CHILD_CHECK(strcmp(mine->header.address, addr));
	CHILD_CHECK(mine->header.owner.pid == getpid());
	CHILD_CHECK(mine->header.owner.cookie != had->own->header.owner.cookie);
	sc_process_fini();
	CHILD_CHECK(!core_has_file(mine->header.address) && core_has_file(addr));
	sc_seg_destroy(mine);
	sc_seg_detach(had->local);
	sc_seg_detach(had->peer);
	sc_seg_destroy(had->own);
	sc_seg_destroy(had->lender);
	for (int i = 0; i < 3; i++)
		CHILD_CHECK(!holes[i] || *holes[i] == 42);
	CHILD_CHECK(core_has_file(addr));
	CHILD_CHECK(!sc_seg_find(addr));
}

static void test_fork(void **state)
{
	struct inherited had = { .own = create(), .lender = create() };
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(had.lender->header.address, &had.local), 0);
	assert_int_equal(sc_seg_attach(owner.line, &had.peer), 0);
	assert_int_equal(child_run(use_as_child, &had), 0);
	assert_others_find(had.own->header.address, 0);
	had.own->base[had.own->header.pool_offset] = 1;
	assert_int_equal(sc_seg_check_owner(had.peer), 1);
	assert_others_find(owner.line, 0);
	sc_seg_detach(had.peer);
	sc_seg_detach(had.local);
	sc_seg_destroy(had.lender);
	sc_seg_destroy(had.own);
	assert_int_equal(child_end(&owner), 0);
}

static void read_parents_cookie(struct child *self, void *arg)
{
	const struct sc_abi_header *header = arg;
	struct iovec local, remote;
	uint64_t cookie = 0;

	(void)self;
	CHILD_CHECK(
		!*(uint64_t *)(uintptr_t)header->owner.cookie_addr); /* a child does not answer to it */
	local = (struct iovec){ &cookie, sizeof(cookie) };
	remote = (struct iovec){ (void *)(uintptr_t)header->owner.cookie_addr, sizeof(cookie) };
	if (process_vm_readv(header->owner.cma_tid, &local, 1, &remote, 1, 0) < 0)
		_exit(errno == EPERM || errno == ENOSYS ? 77 : 1);
	CHILD_CHECK(cookie == header->owner.cookie);
}

static void test_cookie(void **state)
{
	struct sc_seg *seg = create();
	int status;

	(void)state;
	status = child_run(read_parents_cookie, &seg->header);
	sc_seg_destroy(seg);
	CHILD_ASSERT(status);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

#define MANY 24

/* As own(), many of them; their addresses in shared memory. */
static void own_many(struct child *self, void *arg)
{
	char(*addresses)[SC_ADDR_SIZE] = arg;
	struct sc_seg *segs[MANY];

	for (int i = 0; i < MANY; i++) {
		CHILD_CHECK(!sc_seg_create(&geometry, &segs[i]));
		memcpy(addresses[i], segs[i]->header.address, SC_ADDR_SIZE);
	}
	child_tell(self, "");
	child_wait(self);
	for (int i = 0; i < MANY; i++)
		sc_seg_destroy(segs[i]);
}

struct owner_of_many {
	struct child child;
	char (*addresses)[SC_ADDR_SIZE];
};

static void start_owner_of_many(struct owner_of_many *owner)
{
	owner->addresses =
		mmap(NULL, MANY * SC_ADDR_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(owner->addresses != MAP_FAILED);
	assert_true(child_start(&owner->child, own_many, owner->addresses));
}

static void attach_many(struct child *self, void *arg)
{
	struct rlimit limit = { 64, 64 };
	struct owner_of_many *owner = arg;
	struct sc_seg *segs[MANY], *left;
	unsigned int kept = 0;

	(void)self;
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	for (int i = 0; i < MANY; i++) {
		CHILD_CHECK(!sc_seg_attach(owner->addresses[i], &segs[i]));
		kept += segs[i]->fd >= 0;
	}
	CHILD_CHECK(kept == 16);
	CHILD_CHECK(segs[MANY - 1]->fd == -1);
	CHILD_CHECK(sc_seg_check_owner(segs[MANY - 1]) == 1);
	CHILD_CHECK(!sc_seg_slot_alloc(segs[MANY - 1], 2) && !sc_seg_slot_grow(segs[MANY - 1], 2));
	memset(sc_seg_slot(segs[MANY - 1], 2), 1, SC_ABI_SLOT_SIZE);
	sc_seg_slot_free(segs[MANY - 1], 2);
	CHILD_CHECK(!sc_seg_slot_alloc(segs[MANY - 1], 2));
	CHILD_CHECK(!sc_seg_slot(segs[MANY - 1], 2)->ring[0].ctl);
	kill(owner->child.pid, SIGKILL);
	watchdog_await(!sc_seg_check_owner(segs[0]));
	watchdog_await(sc_seg_check_owner(segs[MANY - 1]) != 1); /* the locks go one after the other */
	CHILD_CHECK(sc_seg_check_owner(segs[MANY - 1]) == 0);
	/* that of an owner whose pid is not known here keeps its descriptor: nothing else may tell of the death */
	CHILD_CHECK(!sc_seg_attach_left(owner->addresses[0], &left));
	CHILD_CHECK(!left->cma_pid && left->fd >= 0);
	sc_seg_detach(left);
	for (int i = 0; i < MANY; i++) {
		sc_seg_detach(segs[i]);
		CHILD_CHECK(!unlink(path_of(owner->addresses[i])));
	}
}

static void test_many(void **state)
{
	struct owner_of_many owner;

	(void)state;
	start_owner_of_many(&owner);
	assert_int_equal(child_run(attach_many, &owner), 0);
	child_reap(&owner.child);
	munmap(owner.addresses, MANY * SC_ADDR_SIZE);
}

/* No descriptor is kept, and the name is removed by somebody else: that is no death. */
static void attach_nameless(struct child *self, void *arg)
{
	struct rlimit limit = { 64, 64 };
	struct sc_seg *segs[MANY], *last;
	struct owner_of_many owner;

	(void)self, (void)arg;
	start_owner_of_many(&owner);
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	for (int i = 0; i < MANY; i++)
		CHILD_CHECK(!sc_seg_attach(owner.addresses[i], &segs[i]));
	last = segs[MANY - 1];
	CHILD_CHECK(last->fd == -1 && sc_seg_check_owner(last) == 1);
	CHILD_CHECK(!unlink(path_of(owner.addresses[MANY - 1])));
	CHILD_CHECK(sc_seg_check_owner(last) == -ENOENT);
	kill(owner.child.pid, SIGSTOP);
	CHILD_CHECK(sc_seg_check_owner(last) == -ENOENT);
	kill(owner.child.pid, SIGKILL);
	watchdog_await(!sc_seg_check_owner(segs[0]));
	/* the lock goes a moment before the process is a zombie */
	watchdog_await(sc_seg_check_owner(last) != -ENOENT);
	CHILD_CHECK(sc_seg_check_owner(last) == 0);
	child_reap(&owner.child);
	CHILD_CHECK(sc_seg_check_owner(last) == 0); /* nor is there anything of that number */
	last->cma_pid = 0;
	CHILD_CHECK(sc_seg_check_owner(last) == -ENOENT); /* as if it could not be seen from here */
	for (int i = 0; i < MANY; i++) {
		sc_seg_detach(segs[i]);
		(void)!unlink(path_of(owner.addresses[i])); /* not the last */
	}
}

/* A process maps a segment once for all endpoints while the owner lives; it maps that of a dead owner each time. */
static void attach_shared(struct child *self, void *arg)
{
	struct child *owner = arg;
	struct sc_seg *first, *second, *left, *other;
	int fd;

	(void)self;
	CHILD_CHECK(!sc_seg_attach(owner->line, &first));
	CHILD_CHECK(!sc_seg_attach(owner->line, &second));
	CHILD_CHECK(first == second && first->users == 2);
	fd = first->fd;
	sc_seg_detach(second);
	CHILD_CHECK(sc_seg_check_owner(first) == 1 && fcntl(fd, F_GETFD) >= 0);
	kill(owner->pid, SIGKILL);
	watchdog_await(!sc_seg_check_owner(first));
	CHILD_CHECK(sc_seg_attach(owner->line, &other) == -ECONNREFUSED);
	CHILD_CHECK(first->users == 1);
	CHILD_CHECK(!sc_seg_attach_left(owner->line, &left));
	CHILD_CHECK(left != first);
	sc_seg_detach(left);
	sc_seg_detach(first);
	CHILD_CHECK(fcntl(fd, F_GETFD) < 0);
	CHILD_CHECK(!unlink(path_of(owner->line)));
}

static void test_shared(void **state)
{
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(child_run(attach_shared, &owner), 0);
	child_reap(&owner);
}

/* A forked child attaches anew, whatever its parent has. */
static void attach_forked(struct child *self, void *arg)
{
	struct sc_seg *parents = arg, *seg;

	(void)self;
	CHILD_CHECK(!sc_seg_attach(parents->header.address, &seg));
	CHILD_CHECK(seg != parents && parents->users == 1);
	CHILD_CHECK(*(volatile uint32_t *)&sc_seg_presence(seg)->state == SC_ABI_OPEN);
	sc_seg_detach(parents); /* inherited */
	CHILD_CHECK(*(volatile uint32_t *)&sc_seg_presence(seg)->state == SC_ABI_OPEN);
	sc_seg_detach(seg);
}

static void test_shared_and_forked(void **state)
{
	struct sc_seg *seg;
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	assert_int_equal(child_run(attach_forked, seg), 0);
	assert_int_equal(sc_seg_check_owner(seg), 1);
	sc_seg_detach(seg);
	assert_int_equal(child_end(&owner), 0);
}

/* A child that has been forked without the library, so that no handler has run, finds nothing of its parent's either. */
static void use_as_raw_child(struct sc_seg *parents)
{
	struct sc_seg *seg, *again;

	CHILD_CHECK(!sc_seg_next_claimed(NULL, TICKET));
	CHILD_CHECK(!sc_seg_attach(parents->header.address, &seg));
	CHILD_CHECK(seg != parents && parents->users == 1);
	CHILD_CHECK(!sc_seg_attach(parents->header.address, &again) && again == seg);
	sc_seg_detach(again);
	sc_seg_detach(seg);
}

static void fork_raw(struct child *self, void *arg)
{
	struct child *owners = arg;
	struct sc_seg *mine, *seg;
	int status;
	long pid;

	(void)self;
	CHILD_CHECK(!sc_seg_create(&geometry, &mine));
	CHILD_CHECK(!sc_seg_attach(owners[0].line, &seg));
	sc_store_release_64(&sc_seg_claims(seg)[0], TICKET | SC_ABI_CLAIMED);
	pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	CHILD_CHECK(pid >= 0);
	if (!pid) {
		use_as_raw_child(seg);
		_exit(0);
	}
	CHILD_CHECK(waitpid((pid_t)pid, &status, 0) == pid && !status);
	CHILD_CHECK(sc_seg_check_owner(seg) == 1);
	CHILD_CHECK(sc_seg_next_claimed(NULL, TICKET) == seg);
	sc_seg_detach(seg);
	sc_store_release_64(&sc_seg_claims(seg)[0], 0);
	sc_seg_detach(seg);
	sc_seg_destroy(mine);
}

static void test_shared_and_cloned(void **state)
{
	struct child owners[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		start_owner(&owners[i]);
	assert_int_equal(child_run(fork_raw, owners), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(child_end(&owners[i]), 0);
}

/* A ticket of this process is found in the segments that it has attached, in claims that the owner has yet to answer. */
static void test_claimed(void **state)
{
	struct sc_abi_consumer *consumer;
	struct child owner;
	struct sc_seg *seg;
	uint64_t *claim;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	claim = &sc_seg_claims(seg)[3];
	consumer = &sc_seg_slot(seg, 3)->consumer;
#define FOUND(wanted)                                                                                     \
	do {                                                                                              \
		struct sc_seg *found_ = sc_seg_next_claimed(NULL, TICKET);                                \
		assert_ptr_equal(found_, (wanted) ? seg : NULL);                                          \
		if (found_)                                                                               \
			assert_null(sc_seg_next_claimed(found_, TICKET)); /* detaches */                  \
	} while (0)
	FOUND(false);
	sc_store_release_64(claim, TICKET | SC_ABI_CLAIMED);
	FOUND(true);
	assert_null(sc_seg_next_claimed(NULL, TICKET + 8)); /* of another one */
	/* by nobody of this process: the slot may have no memory */
	sc_store_release_64(claim, TICKET | SC_ABI_PUBLISHED);
	FOUND(false);
	assert_int_equal(sc_seg_slot_alloc(seg, 3), 0);
	FOUND(true);
	sc_store_release_32(&consumer->answer, SC_ABI_ACCEPTED);
	FOUND(false);
	sc_store_release_32(&consumer->answer, SC_ABI_PENDING);
	sc_store_release_64(claim, TICKET | SC_ABI_PUBLISHED | SC_ABI_CLAIM_REFUSED);
	FOUND(false);
	sc_store_release_64(claim, TICKET | SC_ABI_DEPARTED);
	FOUND(false);
	sc_store_release_64(claim, TICKET | SC_ABI_CLAIMED);
	sc_store_release_32(&sc_seg_presence(seg)->state, SC_ABI_CLOSED); /* answers nobody */
	FOUND(false);
#undef FOUND
	sc_seg_detach(seg);
	assert_int_equal(child_end(&owner), 0);
}

static void test_nameless(void **state)
{
	(void)state;
	assert_int_equal(child_run(attach_nameless, NULL), 0);
}

/* The application closes what it did not open, and its own files get the numbers. */
static void close_all(struct child *self, void *arg)
{
	struct child *owner = arg;
	struct sc_seg *mine, *peer;
	int numbers[2];

	(void)self;
	CHILD_CHECK(!sc_seg_create(&geometry, &mine));
	CHILD_CHECK(!sc_seg_attach(owner->line, &peer));
	numbers[0] = mine->fd;
	numbers[1] = peer->fd;
	for (int i = 0; i < 2; i++) {
		close(numbers[i]);
		CHILD_CHECK(dup2(STDERR_FILENO, numbers[i]) == numbers[i]);
	}
	CHILD_CHECK(sc_seg_check_owner(peer) == 1);
	CHILD_CHECK(!sc_seg_slot_alloc(peer, 1));
	CHILD_CHECK(!sc_seg_slot_alloc(mine, 1));
	CHILD_CHECK(mine->file.fd != numbers[0]);
	sc_seg_detach(peer);
	sc_seg_destroy(mine);
	for (int i = 0; i < 2; i++)
		CHILD_CHECK(fcntl(numbers[i], F_GETFD) >= 0);
}

static void test_closefrom(void **state)
{
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(child_run(close_all, &owner), 0);
	assert_int_equal(child_end(&owner), 0);
}

static void no_descriptors(struct child *self, void *arg)
{
	struct rlimit limit = { 0, 0 };
	struct child *owner = arg;
	struct sc_seg *seg = NULL;

	(void)self;
	CHILD_CHECK(!sc_seg_attach(owner->line, &seg));
	sc_seg_detach(seg);
	CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	CHILD_CHECK(sc_seg_create(&geometry, &seg) == -EMFILE);
	CHILD_CHECK(sc_seg_attach(owner->line, &seg) == -EMFILE);
}

static void test_no_descriptors(void **state)
{
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(child_run(no_descriptors, &owner), 0);
	assert_int_equal(child_end(&owner), 0);
}

/* ---- a full /dev/shm ------------------------------------------------------------------------- */

static unsigned int count_files(void)
{
	DIR *dir = opendir("/dev/shm");
	unsigned int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

static void fill_up(struct child *self, void *arg)
{
	struct sc_seg_geometry big = geometry;
	struct sc_seg *seg, *second, *third = NULL;
	struct statvfs fs;
	int fd;

	(void)self;
	(void)arg;
	if (!child_private_shm("size=1m,mode=1777"))
		_exit(CHILD_SKIPS);
	big.buf_count = 1024; /* 8 MiB */
	CHILD_CHECK(!sc_seg_create(&big, &seg));
	CHILD_CHECK(seg->header.buf_count == 1024);
	CHILD_CHECK(seg->buf_count == 64); /* 512 KiB; 128 would fill all but the header */
	for (uint32_t i = 0; i < seg->buf_count; i++)
		memset(sc_seg_buf(seg, i), 1, seg->header.buf_size);
	CHILD_CHECK(!sc_seg_create(&big, &second));
	CHILD_CHECK(second->buf_count == 32);
	child_log_lines = 0;
	CHILD_CHECK(sc_seg_pool_grow(second, 128) == -ENOSPC && second->buf_count == 32);
	CHILD_CHECK(sc_seg_presence(second)->buf_count == 32);
	CHILD_CHECK(child_log_lines == 1 && strstr(child_log_line, "32 of 1024"));
	CHILD_CHECK(!sc_seg_find(second->header.address));

	/* all the rest goes to somebody else */
	CHILD_CHECK(!statvfs("/dev/shm", &fs));
	fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
	CHILD_CHECK(!fallocate(fd, 0, 0, (off_t)(fs.f_bavail * fs.f_bsize)));
	child_log_lines = 0;
	CHILD_CHECK(sc_seg_create(&big, &third) == -ENOSPC && !third);
	CHILD_CHECK(child_log_lines == 1 && strstr(child_log_line, "FI_SHMCMA_BOUNCE_COUNT"));
	CHILD_CHECK(sc_seg_slot_alloc(seg, 0) == -ENOSPC);
	CHILD_CHECK(child_log_lines == 2);
	CHILD_CHECK(count_files() == 2);

	CHILD_CHECK(!ftruncate(fd, 0));
	CHILD_CHECK(!sc_seg_slot_alloc(seg, 0));
	memset(sc_seg_slot(seg, 0), 1, SC_ABI_SLOT_FIRST);
	CHILD_CHECK(!sc_seg_slot_grow(seg, 0));
	memset(sc_seg_slot(seg, 0), 1, SC_ABI_SLOT_SIZE);
	sc_seg_destroy(seg);
	sc_seg_destroy(second);
	CHILD_CHECK(count_files() == 0);
	CHILD_CHECK(!statvfs("/dev/shm", &fs) && fs.f_bfree == fs.f_blocks);
}

static void test_full(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(fill_up, NULL));
}

/* ---- pool ------------------------------------------------------------------------------------ */

static blkcnt_t blocks_of(const struct sc_seg *seg)
{
	struct stat st;

	assert_return_code(fstat(seg->fd, &st), errno);
	return st.st_blocks;
}

/* Few of the buffers have memory from the start; a peer does not accept the number of a buffer without memory. */
static void test_pool(void **state)
{
	struct sc_seg_geometry few = geometry;
	uint16_t bufs[SC_ABI_RECORD_BUFS] = { 2 };
	struct sc_seg *seg, *peer;
	blkcnt_t blocks;

	(void)state;
	few.bufs_first = 3;
	assert_int_equal(sc_seg_create(&few, &seg), 0);
	assert_int_equal(sc_seg_attach(seg->header.address, &peer), 0);
	assert_int_equal(seg->buf_count, 3);
	blocks = blocks_of(seg);
	assert_int_equal(blocks * 512, seg->header.slots_offset + 3 * geometry.buf_size);
	assert_true(sc_seg_has_bufs(peer, bufs, 1));
	bufs[0] = 3;
	assert_false(sc_seg_has_bufs(peer, bufs, 1));
	bufs[0] = UINT16_MAX;
	assert_false(sc_seg_has_bufs(peer, bufs, 1));
	assert_int_equal(sc_seg_pool_grow(seg, 6), 0);
	assert_int_equal(blocks_of(seg) - blocks, 3 * geometry.buf_size / 512);
	bufs[0] = 5;
	assert_true(sc_seg_has_bufs(peer, bufs, 1));
	bufs[0] = 6;
	assert_false(sc_seg_has_bufs(peer, bufs, 1));
	/* an impossible count */
	sc_seg_presence(seg)->buf_count = UINT32_MAX;
	bufs[0] = (uint16_t)geometry.buf_count;
	assert_false(sc_seg_has_bufs(peer, bufs, 1));
	assert_int_equal(sc_seg_pool_grow(seg, geometry.buf_count + 1), -ENOSPC);
	assert_int_equal(sc_seg_pool_grow(seg, geometry.buf_count), 0);
	assert_int_equal(blocks_of(seg) * 512, memory_of_all(seg));
	sc_seg_detach(peer);
	sc_seg_destroy(seg);
}

/* Buffers that lie in a page with others that have memory need none. */
static void test_pool_of_small_buffers(void **state)
{
	struct sc_seg_geometry small = geometry;
	struct sc_seg *seg, *peer;
	blkcnt_t blocks;

	(void)state;
	small.buf_size = 1024;
	small.bufs_first = 2;
	assert_int_equal(sc_seg_create(&small, &seg), 0);
	assert_int_equal(sc_seg_attach(seg->header.address, &peer), 0);
	blocks = blocks_of(seg);
	assert_false(sc_seg_has_buf(peer, 2));
	if (core_failing("memory.part", ENOSPC))
		assert_int_equal(sc_seg_pool_grow(seg, 3), 0);
	core_failing(NULL, 0);
	assert_int_equal(sc_seg_pool_grow(seg, 4), 0);
	assert_int_equal(blocks_of(seg), blocks);
	assert_true(sc_seg_has_buf(peer, 3));
	assert_int_equal(sc_seg_pool_grow(seg, 5), 0);
	assert_int_equal(blocks_of(seg) - blocks, SC_ABI_PAGE / 512);
	sc_seg_detach(peer);
	sc_seg_destroy(seg);
}

static void set_length(const struct sc_seg *seg, uint64_t length)
{
	assert_return_code(ftruncate(seg->fd, (off_t)length), errno);
}

/* The owner counts buffers without memory: a peer does not believe it. There is no memory behind the end of a file. */
static void test_pool_without_memory(void **state)
{
	struct sc_seg_geometry few = geometry;
	struct sc_seg *seg, *peer;

	(void)state;
	few.bufs_first = 2;
	assert_int_equal(sc_seg_create(&few, &seg), 0);
	assert_int_equal(sc_seg_attach(seg->header.address, &peer), 0);
	assert_true(sc_seg_has_buf(peer, 1));
	set_length(seg, seg->header.pool_offset + 4 * seg->header.buf_size);
	sc_seg_presence(seg)->buf_count = geometry.buf_count;
	assert_false(sc_seg_has_buf(peer, geometry.buf_count - 1));
	assert_false(sc_seg_has_buf(peer, 4));
	/* those that have some are there all the same */
	assert_true(sc_seg_has_buf(peer, 3));
	memset(sc_seg_buf(peer, 3), 1, seg->header.buf_size);
	assert_false(sc_seg_has_buf(peer, 4));
	set_length(seg, seg->header.length);
	assert_true(sc_seg_has_buf(peer, geometry.buf_count - 1));
	/* the peer does not ask again for the memory of buffers that it knows */
	set_length(seg, seg->header.pool_offset);
	for (uint32_t buf = 0; buf < geometry.buf_count; buf++)
		assert_true(sc_seg_has_buf(peer, buf));
	sc_seg_detach(peer);
	sc_seg_destroy(seg);
}

/* The owner counts a large pool without memory: a peer that reads one buffer does not give memory to all of it. */
static void test_large_pool(void **state)
{
	struct sc_seg_geometry large = geometry;
	struct sc_seg *seg, *peer;
	blkcnt_t blocks;

	(void)state;
	large.buf_size = SC_ABI_BUF_SIZE_MAX;
	large.buf_count = 3 * SC_ABI_RECORD_BUFS;
	large.bufs_first = 1;
	assert_int_equal(sc_seg_create(&large, &seg), 0);
	assert_int_equal(sc_seg_attach(seg->header.address, &peer), 0);
	blocks = blocks_of(seg);
	sc_seg_presence(seg)->buf_count = large.buf_count;
	assert_true(sc_seg_has_buf(peer, large.buf_count - 1));
	assert_int_equal((blocks_of(seg) - blocks) * 512, SC_ABI_BUF_SIZE_MAX);
	assert_int_equal(peer->buf_count, 0);
	assert_true(sc_seg_has_buf(peer, 1));
	assert_int_equal((blocks_of(seg) - blocks) * 512, SC_ABI_RECORD_BUFS * SC_ABI_BUF_SIZE_MAX);
	assert_int_equal(peer->buf_count, SC_ABI_RECORD_BUFS);
	sc_seg_detach(peer);
	sc_seg_destroy(seg);
}

/* ---- registration table ----------------------------------------------------------------------- */

static void test_table(void **state)
{
	struct sc_seg *seg = create_with_table(), *peer = NULL;
	struct sc_regtab_view view = sc_seg_table(seg), its;
	struct sc_abi_presence *presence = sc_seg_presence(seg);
	blkcnt_t rest = blocks_of(seg);

	(void)state;
	assert_int_equal(seg->header.reg_max, REGS);
	assert_int_equal(seg->header.range_max, RANGES);
	assert_int_equal(seg->header.length - seg->header.table_offset,
			 SC_ABI_TABLE_BUCKETS + REGS * 64 + RANGES * 16);
	assert_int_equal(rest * 512, memory_of_all(seg)); /* it has no memory yet */
	assert_ptr_equal(view.presence, presence);
	assert_ptr_equal((uint8_t *)view.buckets, seg->base + seg->header.table_offset);
	assert_ptr_equal((uint8_t *)view.regs, (uint8_t *)view.buckets + SC_ABI_TABLE_BUCKETS);
	assert_ptr_equal(view.ranges, (struct sc_abi_segment *)(view.regs + REGS));
	assert_ptr_equal((uint8_t *)(view.ranges + RANGES), seg->base + seg->header.length);

	/* nothing, then a page, then entries that fit into that page */
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 0), 0);
	assert_int_equal(presence->reg_count, 0);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 1), 0);
	assert_int_equal(presence->reg_count, 64);
	assert_int_equal(blocks_of(seg), rest + 8);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 64), 0);
	assert_int_equal(blocks_of(seg), rest + 8);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_RANGES, 3), 0);
	assert_int_equal(presence->range_count, 256);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_BUCKETS, 10), 0);
	assert_int_equal(blocks_of(seg), rest + 24);
	assert_int_equal(presence->bucket_bits, 0); /* not filled yet */

	/* the whole table, no more; its entries stay as they are */
	memset(view.regs, 0x77, 64 * sizeof(*view.regs));
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, REGS + 1), -ENOSPC);
	assert_int_equal(presence->reg_count, 64);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, REGS), 0);
	assert_int_equal(presence->reg_count, REGS);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_RANGES, RANGES), 0);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_RANGES, RANGES + 1), -ENOSPC);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_BUCKETS, SC_ABI_BUCKET_BITS_MAX), 0);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_BUCKETS, SC_ABI_BUCKET_BITS_MAX + 1), -ENOSPC);
	assert_int_equal(view.regs[63].tag, 0x7777777777777777);
	assert_int_equal(view.regs[64].tag, 0);

	assert_int_equal(sc_seg_attach(seg->header.address, &peer), 0);
	its = sc_seg_table(peer);
	assert_ptr_not_equal(its.seen, view.seen);
	/* of one process: the same mapping */
	assert_ptr_equal(its.presence, view.presence);
	assert_ptr_equal(its.buckets, view.buckets);
	assert_ptr_equal(its.regs, view.regs);
	assert_ptr_equal(its.ranges, view.ranges);
	assert_int_equal(its.reg_max, view.reg_max);
	assert_int_equal(its.range_max, view.range_max);
	sc_seg_detach(peer);
	sc_seg_destroy(seg);
}

static void test_no_table(void **state)
{
	struct sc_seg *seg = create();
	struct sc_regtab_view view;

	(void)state;
	assert_int_equal(seg->header.length, seg->header.table_offset);
	view = sc_seg_table(seg);
	assert_int_equal(view.reg_max, 0);
	assert_ptr_equal((uint8_t *)view.ranges, seg->base + seg->header.length);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 1), -ENOSPC);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_RANGES, 1), -ENOSPC);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_BUCKETS, 1), -ENOSPC);
	sc_seg_destroy(seg);
}

/* ---- header check ---------------------------------------------------------------------------- */

static void test_check_header(void **state)
{
	struct sc_seg *seg = create_with_table();
	const struct sc_abi_header good = seg->header;
	struct sc_abi_header out;

#define REJECTED(statement)                                                                               \
	do {                                                                                              \
		struct sc_abi_header h = good;                                                            \
		statement;                                                                                \
		assert_non_null(sc_header_fault(&h, good.length, good.address));                          \
	} while (0)

	(void)state;
	sc_seg_destroy(seg);
	assert_null(sc_header_fault(&good, good.length, good.address));
	assert_non_null(sc_header_fault(&good, good.length + 1, good.address));
	assert_non_null(sc_header_fault(&good, good.length, "fi_shmcma://a"));

	REJECTED(h.magic++);
	REJECTED(h.major++);
	REJECTED(h.layout--);
	REJECTED(h.length--);
	REJECTED(h.length = UINT64_MAX);
	REJECTED(h.claims_offset = 0);
	REJECTED(h.claims_offset = SC_ABI_PAGE - SC_ABI_LINE);
	REJECTED(h.claims_offset++);
	REJECTED(h.claims_offset = UINT32_MAX - 63);
	REJECTED(h.claims_offset = (uint32_t)h.slots_offset);
	REJECTED(h.slot_count = 0);
	REJECTED(h.slot_count++);
	REJECTED(h.slot_count = SC_ABI_SLOTS_MAX + 1);
	REJECTED(h.slot_count = UINT32_MAX);
	REJECTED(h.pool_offset = 0);
	REJECTED(h.pool_offset++);
	REJECTED(h.pool_offset += SC_ABI_PAGE);
	REJECTED(h.pool_offset = UINT64_MAX - 63);
	REJECTED(h.pool_offset -= SC_ABI_LINE);
	REJECTED(h.pool_offset = h.table_offset + SC_ABI_LINE);
	REJECTED(h.buf_size = 0);
	REJECTED(h.buf_size++);
	REJECTED(h.buf_size += SC_ABI_LINE);
	REJECTED(h.buf_size = UINT32_MAX - 63);
	REJECTED(h.buf_count = 0);
	REJECTED(h.buf_count++);
	REJECTED(h.buf_count = SC_ABI_BUFS_MAX + 1);
	REJECTED(h.buf_count = UINT32_MAX);
	REJECTED(h.slots_offset = 0);
	REJECTED(h.slots_offset += SC_ABI_LINE);
	REJECTED(h.slots_offset += SC_ABI_PAGE);
	REJECTED(h.slots_offset -= SC_ABI_PAGE);
	REJECTED(h.slots_offset = UINT64_MAX - SC_ABI_PAGE + 1);
	REJECTED(h.table_offset = 0);
	REJECTED(h.table_offset += SC_ABI_LINE);
	REJECTED(h.table_offset += SC_ABI_PAGE);
	REJECTED(h.table_offset -= SC_ABI_PAGE);
	REJECTED(h.table_offset = UINT64_MAX - SC_ABI_PAGE + 1);
	REJECTED(h.table_offset = h.length);
	REJECTED(h.reg_max++);
	REJECTED(h.reg_max = SC_ABI_REGS_MAX + 1);
	REJECTED(h.reg_max = UINT32_MAX);
	REJECTED(h.reg_max = 0); /* but ranges */
	REJECTED(h.range_max++);
	REJECTED(h.range_max = SC_ABI_RANGES_MAX + 1);
	REJECTED(h.range_max = UINT32_MAX);
	REJECTED(h.window = 63);
	REJECTED(h.window = (1ULL << 32) + 1);
	REJECTED(h.slot_size *= 2);
	REJECTED(h.ring_lines--);
	REJECTED(h.owner.pid = 0);
	REJECTED(h.owner.pid = -h.owner.pid);
	REJECTED(h.owner.pid++);
	REJECTED(h.owner.cma_tid = 0);
	REJECTED(h.owner.cma_tid = -1);
	REJECTED(h.nonce[0]++);
	REJECTED(h.owner.cookie = 0);
	REJECTED(h.owner.cookie_addr = 0);
	REJECTED(h.owner.cookie_addr++);
	REJECTED(h.address[63] = 'x');
	REJECTED(h.address[0] = '\0');
	REJECTED(h.address[62] = '\0');
	REJECTED(memset(h.address, 'a', sizeof(h.address)));

	/* headers that agree with the request, and are impossible all the same */
	out = good;
	out.buf_count = 1;
	out.buf_size = SC_ABI_BUF_SIZE_MAX;
	out.table_offset = out.pool_offset + SC_ABI_BUF_SIZE_MAX + SC_ABI_PAGE;
	out.length = out.table_offset + SC_ABI_TABLE_SIZE(out.reg_max, out.range_max);
	assert_null(sc_header_fault(&out, out.length, good.address));
	out.buf_size += SC_ABI_LINE;
	assert_non_null(sc_header_fault(&out, out.length, good.address));
	out = good;
	out.length = 1ULL << 63;
	assert_non_null(sc_header_fault(&out, out.length, good.address));
	out = good;
	out.address[0] = 'x';
	assert_non_null(sc_header_fault(&out, good.length, out.address));
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static void test_creation_fails(void **state)
{
	struct sc_seg_geometry three = geometry;
	struct sc_seg *seg;

	(void)state;
	three.buf_count = 3; /* a half of it would be one, and two are the least */
	if (!core_failing("create.fallocate", ENOSPC))
		skip();
	assert_int_equal(sc_seg_create(&three, &seg), -ENOSPC);
	core_failing("shmfile.link", EEXIST); /* all names are taken */
	assert_int_equal(sc_seg_create(&geometry, &seg), -EEXIST);
	core_failing(NULL, 0);
	seg = create_with_table();
	core_failing("memory.table", ENOSPC);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 1), -ENOSPC);
	core_failing(NULL, 0);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 1), 0);
	sc_seg_destroy(seg);
}

static int interruptions;

/* As of older kernels: interrupted by a signal, that often. */
int fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (!interruptions)
		return (int)syscall(SYS_fallocate, fd, mode, offset, len);
	interruptions--;
	errno = EINTR;
	return -1;
}

static void test_interrupted(void **state)
{
	struct sc_seg *seg;

	(void)state;
	interruptions = 3;
	assert_int_equal(sc_seg_create(&geometry, &seg), 0);
	assert_int_equal(interruptions, 0);
	sc_seg_destroy(seg);
}

#ifdef SC_FAULT_INJECTION

static int full_once(const char *point)
{
	static int times;

	return !strcmp(point, "memory.table") && !times++ ? ENOSPC : 0;
}

/* There is no room for half as much again, but for what is needed; or not even for that. */
static void test_grows_by_less(void **state)
{
	struct sc_seg_geometry many = geometry;
	uint32_t pages = SC_ABI_PAGE / (uint32_t)sizeof(struct sc_abi_reg);
	struct sc_seg *seg;

	(void)state;
	many.regs = 16 * pages;
	many.ranges = 64;
	assert_int_equal(sc_seg_create(&many, &seg), 0);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 4 * pages), 0);
	core_failing("memory.table", ENOSPC);
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 4 * pages + 1), -ENOSPC);
	assert_int_equal(seg->reg_count, 4 * pages);
	sc_fault_hook = full_once;
	assert_int_equal(sc_seg_table_grow(seg, SC_SEG_REGS, 4 * pages + 1), 0);
	assert_int_equal(seg->reg_count, 5 * pages);
	core_failing(NULL, 0);
	sc_seg_destroy(seg);
}

static const char *unlinked;

static int unlink_at_look(const char *point)
{
	/* by the first if an own file has been found by another's name before */
	if (!strcmp(point, "otherfile.opened") || !strcmp(point, "otherfile.peer_stat"))
		CHILD_CHECK(!unlink(unlinked));
	return 0;
}

/* It loses its name between two looks. */
static void test_unlinked_meanwhile(void **state)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_addr parts;
	struct child owner;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_addr_parse(owner.line, &parts), 0);
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	unlinked = path;
	sc_fault_hook = unlink_at_look;
	assert_attach(owner.line, -ECONNREFUSED);
	core_failing(NULL, 0);
	assert_int_equal(child_end(&owner), 0);
}

#else

static void test_grows_by_less(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

static void test_unlinked_meanwhile(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

#endif

static void test_attachment_fails(void **state)
{
	struct child owner;

	(void)state;
	start_owner(&owner);
	if (!core_failing("lifelock.check", ENOLCK)) {
		child_end(&owner);
		skip();
	}
	assert_attach(owner.line, -ENOLCK);
	core_failing(NULL, 0);
	assert_attach(owner.line, 0);
	assert_int_equal(child_end(&owner), 0);
}

/* ---- does its owner live? -------------------------------------------------------------------- */

static void test_check_owner(void **state)
{
	struct sc_seg *mine = create(), *seg;
	struct sc_abi_header header;
	struct child owner;

	(void)state;
	assert_int_equal(sc_seg_check_owner(mine), 1);
	sc_seg_destroy(mine);

	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	seg->cma_pid++; /* another process holds the lock: a reaper */
	assert_int_equal(sc_seg_check_owner(seg), 0);
	seg->cma_pid--;
	close(seg->fd); /* as closefrom(3) does: by the name from now on */
	assert_int_equal(sc_seg_check_owner(seg), 1);
	seg->ino++; /* which is another file's: its pid tells */
	assert_int_equal(sc_seg_check_owner(seg), -ENOENT);
	seg->ino--;
	header = seg->header;
	seg->header.address[0] = 'x';
	assert_int_equal(sc_seg_check_owner(seg), -ENOENT);
	seg->header = header;
	if (core_failing("otherfile.open", EMFILE))
		assert_int_equal(sc_seg_check_owner(seg), -EMFILE);
	core_failing(NULL, 0);
	sc_seg_detach(seg);
	assert_int_equal(child_end(&owner), 0);
}

/* ---- left to be read ------------------------------------------------------------------------- */

/* The last reader of the segment of a dead owner leaves it: this removes the name, if it is still that segment's. */
static void leave_last(struct sc_seg *seg)
{
	sc_store_release_32(&sc_seg_presence(seg)->unread, 1);
	sc_seg_leave(seg);
}

static void test_leave(void **state)
{
	struct sc_abi_header header;
	struct child owner;
	struct sc_seg *seg;

	(void)state;
	start_owner(&owner);
	assert_int_equal(sc_seg_attach(owner.line, &seg), 0);
	child_kill(&owner);
	header = seg->header;
	seg->header.address[0] = 'x';
	leave_last(seg);
	seg->header = header;
	assert_true(core_has_file(owner.line));
	seg->ino++; /* the name is another's */
	leave_last(seg);
	seg->ino--;
	assert_true(core_has_file(owner.line));
	if (core_failing("attach.unlink", EROFS)) {
		leave_last(seg);
		assert_true(core_has_file(owner.line));
	}
	core_failing(NULL, 0);
	leave_last(seg);
	assert_false(core_has_file(owner.line));
	sc_seg_detach(seg);
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 150

static void fight(const char *own_addr, const char *other_addr)
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_seg *mine, *seg;
	struct sc_addr parts;

	CHILD_CHECK(!sc_seg_create(&geometry, &mine));
	CHILD_CHECK(!sc_seg_attach(own_addr, &seg) && seg->local);
	sc_seg_detach(seg);
	CHILD_CHECK(!sc_seg_attach(other_addr, &seg) && !seg->local);
	CHILD_CHECK(sc_seg_check_owner(seg) == 1);
	sc_addr_parse(own_addr, &parts);
	sc_addr_file(&parts, name);
	CHILD_CHECK(sc_reap_name(name) == -EBUSY);
	sc_addr_parse(other_addr, &parts);
	sc_addr_file(&parts, name);
	CHILD_CHECK(sc_reap_name(name) == -EBUSY);
	sc_seg_detach(seg);
	CHILD_CHECK(!sc_seg_find(mine->header.address));
	sc_seg_destroy(mine);
}

struct fighters {
	char own[SC_ADDR_SIZE], other[CHILD_LINE];
};

static void *fight_thread(void *arg)
{
	struct fighters *with = arg;

	for (int i = 0; i < ROUNDS; i++)
		fight(with->own, with->other);
	return NULL;
}

/* Looks all the time, from outside, whether the lock is ever free. */
static void watch(struct child *self, void *arg)
{
	fcntl(self->down, F_SETFL, O_NONBLOCK);
	child_tell(self, "watching");
	for (;;) {
		char byte;

		CHILD_CHECK(!sc_seg_find(arg));
		if (read(self->down, &byte, 1) >= 0)
			return;
	}
}

static void test_threads(void **state)
{
	struct sc_seg *seg = create();
	struct fighters with;
	struct child owner, watcher;
	pthread_t threads[THREADS];

	(void)state;
	start_owner(&owner);
	memcpy(with.own, seg->header.address, sizeof(with.own));
	memcpy(with.other, owner.line, sizeof(with.other));
	assert_true(child_start(&watcher, watch, with.own));
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fight_thread, &with), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(child_end(&watcher), 0);
	assert_int_equal(child_end(&owner), 0);
	sc_seg_destroy(seg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_both_uids), /* before others meet files of another user */
		cmocka_unit_test(test_create),
		cmocka_unit_test(test_umask),
		cmocka_unit_test(test_file_limit),
		cmocka_unit_test(test_lock_limit),
		cmocka_unit_test(test_two_endpoints),
		cmocka_unit_test(test_attach),
		cmocka_unit_test(test_dead_while_reaped),
		cmocka_unit_test(test_closed_while_attached),
		cmocka_unit_test(test_without_streams),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_not_read_only),
		cmocka_unit_test(test_opened_again),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_outcomes),
		cmocka_unit_test(test_left_by_dead),
		cmocka_unit_test(test_other_user),
		cmocka_unit_test(test_no_address),
		cmocka_unit_test(test_names_no_uid),
		cmocka_unit_test(test_wrong_types),
		cmocka_unit_test(test_symlink_to_live),
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_destroy_with_borrowers),
		cmocka_unit_test(test_own_by_other_name),
		cmocka_unit_test(test_name_of_another),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_cookie),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_shared_and_forked),
		cmocka_unit_test(test_shared_and_cloned),
		cmocka_unit_test(test_claimed),
		cmocka_unit_test(test_nameless),
		cmocka_unit_test(test_closefrom),
		cmocka_unit_test(test_no_descriptors),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_pool_of_small_buffers),
		cmocka_unit_test(test_pool_without_memory),
		cmocka_unit_test(test_large_pool),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_no_table),
		cmocka_unit_test(test_check_header),
		cmocka_unit_test(test_creation_fails),
		cmocka_unit_test(test_interrupted),
		cmocka_unit_test(test_grows_by_less),
		cmocka_unit_test(test_unlinked_meanwhile),
		cmocka_unit_test(test_attachment_fails),
		cmocka_unit_test(test_check_owner),
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_threads),
	};

	sc_log_set(child_log);
	(void)child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
