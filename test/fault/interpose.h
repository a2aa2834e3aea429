/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * interpose.h: stands between the provider and the C library: notes every call, makes a chosen one fail, and
 * knows the resources that the provider has not given back.
 *
 * interpose_install() loads the provider as libfabric will do later (the same file, so the same object) and
 * puts functions of this file into the provider's global offset table, in place of those that the dynamic
 * linker found. So exactly the provider's own calls come here, not those of libfabric, of the C library or
 * of the test; nothing has to be preloaded, and a sanitizer's allocator is called as before, through what the
 * table held. In libfabric's own table only free() is replaced, for what the provider gives away.
 *
 * A call is told by its site, the return address relative to the provider, and by its number among the calls
 * from there. The sites stay the same as long as the provider does; numbers of calls that poll do not.
 *
 * Children of fork() inherit all of this. The plan says which calls fail: only the chosen one, or also all later
 * calls that need the same resource (memory, descriptors) or are of the same function.
 */
#ifndef INTERPOSE_H
#define INTERPOSE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <link.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <rdma/fabric.h>

/* ---- what can fail --------------------------------------------------------------------------- */

#define SHORTENED (-1) /* no errno: the call does half of its work */

/* The resource that is lacking when the call fails. */
enum lack { LACK_MEMORY, LACK_DESCRIPTORS, LACK_OTHER };

struct function {
	const char *name;
	enum lack lack;
	int errors[6]; /* to fail with, 0 at the end */
};

enum {
	F_MALLOC,
	F_CALLOC,
	F_REALLOC,
	F_STRDUP,
	F_ALIGNED,
	F_DUPINFO,
	F_MMAP,
	F_MADVISE,
	F_MPROTECT,
	F_FTRUNCATE,
	F_FALLOCATE,
	F_OPEN,
	F_OPENDIR,
	F_READDIR,
	F_FOPEN,
	F_FGETS,
	F_READ,
	F_PREAD,
	F_WRITE,
	F_PWRITE,
	F_LINKAT,
	F_UNLINK,
	F_FCHMOD,
	F_SETLK_,
	F_GETLK_,
	F_FCNTL,
	F_FSTAT,
	F_FSTATAT,
	F_STAT,
	F_FSTATFS,
	F_EVENTFD,
	F_EVENTFD_READ,
	F_EVENTFD_WRITE,
	F_EPOLL_CREATE,
	F_EPOLL_CTL,
	F_EPOLL_WAIT,
	F_TIMERFD,
	F_TIMERFD_SET,
	F_PIPE,
	F_POLL,
	F_KILL,
	F_SYSCALL,
	F_GETRANDOM,
	F_READV,
	F_WRITEV,
	F_THREAD,
	F_MUTEX,
	F_MUTEXATTR,
	F_COND,
	F_ATFORK,
	F_GETADDRINFO,
	F_GETIFADDRS,
	FUNCTIONS
};

static const struct function functions[FUNCTIONS] = {
	[F_MALLOC] = { "malloc", LACK_MEMORY, { ENOMEM } },
	[F_CALLOC] = { "calloc", LACK_MEMORY, { ENOMEM } },
	[F_REALLOC] = { "realloc", LACK_MEMORY, { ENOMEM } },
	[F_STRDUP] = { "strdup", LACK_MEMORY, { ENOMEM } },
	[F_ALIGNED] = { "posix_memalign", LACK_MEMORY, { ENOMEM } },
	[F_DUPINFO] = { "fi_dupinfo", LACK_MEMORY, { ENOMEM } },
	[F_MMAP] = { "mmap", LACK_MEMORY, { ENOMEM, EPERM } },
	[F_MADVISE] = { "madvise", LACK_OTHER, { ENOMEM, EINVAL } },
	[F_MPROTECT] = { "mprotect", LACK_MEMORY, { ENOMEM, EACCES } },
	[F_FTRUNCATE] = { "ftruncate", LACK_OTHER, { EINTR, ENOSPC, EIO } },
	[F_FALLOCATE] = { "fallocate", LACK_OTHER, { ENOSPC, EINTR, EOPNOTSUPP } },
	[F_OPEN] = { "open", LACK_DESCRIPTORS, { EMFILE, EACCES, ENOENT, ENOMEM } },
	[F_OPENDIR] = { "opendir", LACK_DESCRIPTORS, { EMFILE, EACCES } },
	[F_READDIR] = { "readdir", LACK_OTHER, { EIO } },
	[F_FOPEN] = { "fopen", LACK_DESCRIPTORS, { EMFILE, ENOMEM } },
	[F_FGETS] = { "fgets", LACK_OTHER, { EIO } },
	[F_READ] = { "read", LACK_OTHER, { EINTR, EIO, SHORTENED } },
	[F_PREAD] = { "pread", LACK_OTHER, { EINTR, EIO, SHORTENED } },
	/* EAGAIN is for a full pipe alone, of which a reader is told by poll(2) */
	[F_WRITE] = { "write", LACK_OTHER, { EINTR, ENOMEM } },
	[F_PWRITE] = { "pwrite", LACK_OTHER, { ENOSPC, EIO, SHORTENED } },
	[F_LINKAT] = { "linkat", LACK_OTHER, { EEXIST, ENOSPC, EPERM, ENOENT } },
	[F_UNLINK] = { "unlink", LACK_OTHER, { EACCES, ENOENT } },
	[F_FCHMOD] = { "fchmod", LACK_OTHER, { EPERM } },
	[F_SETLK_] = { "fcntl(F_SETLK)", LACK_OTHER, { ENOLCK, EAGAIN } },
	[F_GETLK_] = { "fcntl(F_GETLK)", LACK_OTHER, { ENOLCK, EINVAL } },
	[F_FCNTL] = { "fcntl", LACK_DESCRIPTORS, { EMFILE } },
	[F_FSTAT] = { "fstat", LACK_OTHER, { ENOMEM, EIO } },
	[F_FSTATAT] = { "fstatat", LACK_OTHER, { ENOMEM, EACCES, ENOENT } },
	[F_STAT] = { "stat", LACK_OTHER, { ENOMEM, EACCES, ENOENT } },
	[F_FSTATFS] = { "fstatfs", LACK_OTHER, { ENOSYS } },
	[F_EVENTFD] = { "eventfd", LACK_DESCRIPTORS, { EMFILE, ENOMEM } },
	[F_EVENTFD_READ] = { "eventfd_read", LACK_OTHER, { EINTR } },
	[F_EVENTFD_WRITE] = { "eventfd_write", LACK_OTHER, { EINTR } },
	[F_EPOLL_CREATE] = { "epoll_create1", LACK_DESCRIPTORS, { EMFILE, ENOMEM } },
	[F_EPOLL_CTL] = { "epoll_ctl", LACK_OTHER, { ENOSPC, ENOMEM } },
	[F_EPOLL_WAIT] = { "epoll_wait", LACK_OTHER, { EINTR } },
	[F_TIMERFD] = { "timerfd_create", LACK_DESCRIPTORS, { EMFILE, ENOMEM } },
	[F_TIMERFD_SET] = { "timerfd_settime", LACK_OTHER, { ENOMEM } },
	[F_PIPE] = { "pipe2", LACK_DESCRIPTORS, { EMFILE } },
	[F_POLL] = { "poll", LACK_OTHER, { EINTR, ENOMEM } },
	[F_KILL] = { "kill", LACK_OTHER, { EPERM } },
	[F_SYSCALL] = { "syscall", LACK_DESCRIPTORS, { EMFILE, ENOSYS, EPERM } },
	[F_GETRANDOM] = { "getrandom", LACK_OTHER, { ENOSYS, EINTR, SHORTENED } },
	[F_READV] = { "process_vm_readv",
		      LACK_OTHER,
		      { EPERM, ENOSYS, ENOMEM, EFAULT, ESRCH, SHORTENED } },
	[F_WRITEV] = { "process_vm_writev",
		       LACK_OTHER,
		       { EPERM, ENOSYS, ENOMEM, EFAULT, ESRCH, SHORTENED } },
	[F_THREAD] = { "pthread_create", LACK_OTHER, { EAGAIN, EPERM } },
	[F_MUTEX] = { "pthread_mutex_init", LACK_MEMORY, { ENOMEM } },
	[F_MUTEXATTR] = { "pthread_mutexattr_init", LACK_MEMORY, { ENOMEM } },
	[F_COND] = { "pthread_cond_init", LACK_MEMORY, { ENOMEM } },
	[F_ATFORK] = { "pthread_atfork", LACK_MEMORY, { ENOMEM } },
	[F_GETADDRINFO] = { "getaddrinfo", LACK_OTHER, { ENOMEM, EAGAIN } },
	[F_GETIFADDRS] = { "getifaddrs", LACK_OTHER, { ENOMEM, EMFILE } },
};

#define FUNCTION_ERRORS (sizeof(functions[0].errors) / sizeof(functions[0].errors[0]))

/* ---- state, one for each process ------------------------------------------------------------- */

struct interpose_call {
	uint32_t function;
	uint32_t site;
};

struct interpose_plan {
	struct interpose_call call;
	uint32_t number; /* among the calls of that site, from 1; 0: nothing fails */
	int error;
	bool lasting;
};

#define INTERPOSE_CALLS (1u << 16)
#define INTERPOSE_LIVE (1u << 15)

enum resource { R_NONE, R_MEMORY, R_MAPPING, R_DESCRIPTOR, R_DIRECTORY, R_FILE, R_ADDRINFO, R_IFADDRS };

struct live {
	enum resource resource;
	uint64_t name; /* address or number */
	uint32_t site;
};

static struct {
	uintptr_t base;
	struct interpose_plan plan;
	bool armed; /* the plan is in force */
	bool recording;
	atomic_uint seen; /* calls of the plan's site */
	atomic_uint failures;
	atomic_uint *shared_failures; /* the same, for other processes */
	atomic_uint calls;	    /* that were recorded */
	struct interpose_call *log; /* INTERPOSE_CALLS, while recording */
	struct live live[INTERPOSE_LIVE];
	unsigned int live_count;
	pthread_mutex_t lock;
} interpose = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint32_t site_of(const void *return_address)
{
	return (uint32_t)((uintptr_t)return_address - interpose.base);
}

static enum lack plan_lack(const struct interpose_plan *plan)
{
	const struct function *function = &functions[plan->call.function];

	return plan->error == (function->lack == LACK_MEMORY ? ENOMEM : EMFILE) ? function->lack
										: LACK_OTHER;
}

static int fail(int error)
{
	atomic_fetch_add(&interpose.failures, 1);
	if (interpose.shared_failures)
		atomic_fetch_add(interpose.shared_failures, 1);
	return error;
}

static void record(uint32_t function, uint32_t site)
{
	unsigned int at = atomic_fetch_add(&interpose.calls, 1);

	if (at >= INTERPOSE_CALLS)
		abort(); /* make it larger */
	interpose.log[at] = (struct interpose_call){ function, site };
}

/* 0: go ahead; else what to fail with. */
static int verdict(uint32_t function, uint32_t site)
{
	const struct interpose_plan *plan = &interpose.plan;
	bool same = plan->call.function == function && plan->call.site == site;

	if (interpose.recording)
		record(function, site);
	if (!interpose.armed || !plan->number)
		return 0;
	if (same && atomic_fetch_add(&interpose.seen, 1) + 1 == plan->number)
		return fail(plan->error);
	if (!plan->lasting || !atomic_load(&interpose.failures))
		return 0;
	if (plan_lack(plan) == LACK_OTHER ? function != plan->call.function
					  : functions[function].lack != plan_lack(plan))
		return 0;
	return fail(function == plan->call.function ? plan->error : functions[function].errors[0]);
}

/* ---- what the provider holds ----------------------------------------------------------------- */

static void live_add(enum resource resource, uint64_t name, uint32_t site)
{
	pthread_mutex_lock(&interpose.lock);
	for (uint64_t i = name * 0x9e3779b97f4a7c15u >> 40;; i++) {
		struct live *live = &interpose.live[i % INTERPOSE_LIVE];

		if (live->resource != R_NONE && !(live->resource == resource && live->name == name))
			continue;
		interpose.live_count += live->resource == R_NONE;
		*live = (struct live){ resource, name, site };
		break;
	}
	if (interpose.live_count > INTERPOSE_LIVE / 2)
		abort(); /* make it larger */
	pthread_mutex_unlock(&interpose.lock);
}

/* The following entries of the same run move up, so that a search still finds them. */
static void live_close_gap(uint64_t gap)
{
	for (uint64_t i = gap + 1; interpose.live[i % INTERPOSE_LIVE].resource != R_NONE; i++) {
		struct live *live = &interpose.live[i % INTERPOSE_LIVE];
		uint64_t home = (live->name * 0x9e3779b97f4a7c15u >> 40) % INTERPOSE_LIVE;

		if ((i - home) % INTERPOSE_LIVE < (i - gap) % INTERPOSE_LIVE)
			continue;
		interpose.live[gap % INTERPOSE_LIVE] = *live;
		live->resource = R_NONE;
		gap = i;
	}
}

static void live_del(enum resource resource, uint64_t name)
{
	pthread_mutex_lock(&interpose.lock);
	for (uint64_t i = name * 0x9e3779b97f4a7c15u >> 40;; i++) {
		struct live *live = &interpose.live[i % INTERPOSE_LIVE];

		if (live->resource == R_NONE)
			break;
		if (live->resource != resource || live->name != name)
			continue;
		live->resource = R_NONE;
		interpose.live_count--;
		live_close_gap(i);
		break;
	}
	pthread_mutex_unlock(&interpose.lock);
}

static void *keep(enum resource resource, void *what, uint32_t site)
{
	if (what)
		live_add(resource, (uintptr_t)what, site);
	return what;
}

static int keep_fd(int fd, uint32_t site)
{
	if (fd >= 0)
		live_add(R_DESCRIPTOR, (uint64_t)fd, site);
	return fd;
}

/* ---- the functions --------------------------------------------------------------------------- */

/* Of each function what the provider's table held; NULL: it does not call it. */
#define SITE site_of(__builtin_extract_return_addr(__builtin_return_address(0)))

/* The usual kind: fails by `bad` and errno. */
#define FAILS(function, site, bad)                                                                        \
	do {                                                                                              \
		int failed_ = verdict(function, site);                                                    \
		if (failed_) {                                                                            \
			errno = failed_;                                                                  \
			return bad;                                                                       \
		}                                                                                         \
	} while (0)

#define WRAP(type, name, parameters, arguments, function, bad)                                            \
	static type(*real_##name) parameters;                                                             \
	static type my_##name parameters                                                                  \
	{                                                                                                 \
		FAILS(function, SITE, bad);                                                               \
		return real_##name arguments;                                                             \
	}

/* It returns the errno. */
#define WRAP_RETURNS(name, parameters, arguments, function)                                               \
	static int(*real_##name) parameters;                                                              \
	static int my_##name parameters                                                                   \
	{                                                                                                 \
		int failed = verdict(function, SITE);                                                     \
                                                                                                          \
		return failed ? failed : real_##name arguments;                                           \
	}

/* It gives something that is to be given back. */
#define WRAP_GIVES(type, name, parameters, arguments, function, resource)                                 \
	static type(*real_##name) parameters;                                                             \
	static type my_##name parameters                                                                  \
	{                                                                                                 \
		uint32_t site = SITE;                                                                     \
                                                                                                          \
		FAILS(function, site, NULL);                                                              \
		return keep(resource, real_##name arguments, site);                                       \
	}

#define WRAP_DESCRIPTOR(name, parameters, arguments, function)                                            \
	static int(*real_##name) parameters;                                                              \
	static int my_##name parameters                                                                   \
	{                                                                                                 \
		uint32_t site = SITE;                                                                     \
                                                                                                          \
		FAILS(function, site, -1);                                                                \
		return keep_fd(real_##name arguments, site);                                              \
	}

/* It may do less than it was asked for. */
#define WRAP_PART(name, parameters, arguments, half, function)                                            \
	static ssize_t(*real_##name) parameters;                                                          \
	static ssize_t my_##name parameters                                                               \
	{                                                                                                 \
		int failed = verdict(function, SITE);                                                     \
                                                                                                          \
		if (failed > 0) {                                                                         \
			errno = failed;                                                                   \
			return -1;                                                                        \
		}                                                                                         \
		if (failed)                                                                               \
			return real_##name half;                                                          \
		return real_##name arguments;                                                             \
	}

#define WRAP_GIVES_BACK(type, name, pointer, resource)                                                    \
	static type (*real_##name)(pointer);                                                              \
	static type my_##name(pointer what)                                                               \
	{                                                                                                 \
		live_del(resource, (uintptr_t)what);                                                      \
		return real_##name(what);                                                                 \
	}

WRAP_GIVES(void *, malloc, (size_t size), (size), F_MALLOC, R_MEMORY)
WRAP_GIVES(void *, calloc, (size_t count, size_t size), (count, size), F_CALLOC, R_MEMORY)
WRAP_GIVES(char *, strdup, (const char *text), (text), F_STRDUP, R_MEMORY)
WRAP_GIVES_BACK(void, free, void *, R_MEMORY)

static void *(*real_realloc)(void *old, size_t size);
static void *my_realloc(void *old, size_t size)
{
	uint32_t site = SITE;

	FAILS(F_REALLOC, site, NULL);
	live_del(R_MEMORY, (uintptr_t)old);
	return keep(R_MEMORY, real_realloc(old, size), site);
}

static int (*real_posix_memalign)(void **out, size_t align, size_t size);
static int my_posix_memalign(void **out, size_t align, size_t size)
{
	uint32_t site = SITE;
	int failed = verdict(F_ALIGNED, site);

	if (!failed)
		failed = real_posix_memalign(out, align, size);
	if (!failed)
		keep(R_MEMORY, *out, site);
	return failed;
}

WRAP_GIVES(void *, aligned_alloc, (size_t align, size_t size), (align, size), F_ALIGNED, R_MEMORY)
WRAP(struct fi_info *, fi_dupinfo, (const struct fi_info *info), (info), F_DUPINFO, NULL)

static void *(*real_mmap)(void *at, size_t len, int prot, int flags, int fd, off_t offset);
static void *my_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	uint32_t site = SITE;
	void *map;

	FAILS(F_MMAP, site, MAP_FAILED);
	map = real_mmap(at, len, prot, flags, fd, offset);
	if (map != MAP_FAILED)
		live_add(R_MAPPING, (uintptr_t)map, site);
	return map;
}

static int (*real_munmap)(void *at, size_t len);
static int my_munmap(void *at, size_t len)
{
	live_del(R_MAPPING, (uintptr_t)at);
	return real_munmap(at, len);
}

WRAP(int, madvise, (void *at, size_t len, int advice), (at, len, advice), F_MADVISE, -1)
WRAP(int, mprotect, (void *at, size_t len, int prot), (at, len, prot), F_MPROTECT, -1)
WRAP(int, ftruncate, (int fd, off_t len), (fd, len), F_FTRUNCATE, -1)
WRAP(int, fallocate, (int fd, int mode, off_t offset, off_t len), (fd, mode, offset, len), F_FALLOCATE, -1)

/* The third argument, where these flags have one. */
static mode_t mode_of(int flags, va_list args)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
}

static int (*real_open)(const char *path, int flags, ...);
static int my_open(const char *path, int flags, ...)
{
	uint32_t site = SITE;
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	FAILS(F_OPEN, site, -1);
	return keep_fd(real_open(path, flags, mode), site);
}

static int (*real_openat)(int dir, const char *path, int flags, ...);
static int my_openat(int dir, const char *path, int flags, ...)
{
	uint32_t site = SITE;
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	FAILS(F_OPEN, site, -1);
	return keep_fd(real_openat(dir, path, flags, mode), site);
}

static int (*real_close)(int fd);
static int my_close(int fd)
{
	live_del(R_DESCRIPTOR, (uint64_t)fd);
	return real_close(fd);
}

WRAP_GIVES(DIR *, opendir, (const char *path), (path), F_OPENDIR, R_DIRECTORY)
WRAP(struct dirent *, readdir, (DIR * dir), (dir), F_READDIR, NULL)
WRAP_GIVES_BACK(int, closedir, DIR *, R_DIRECTORY)
WRAP_GIVES(FILE *, fopen, (const char *path, const char *mode), (path, mode), F_FOPEN, R_FILE)
WRAP(char *, fgets, (char *text, int size, FILE *file), (text, size, file), F_FGETS, NULL)
WRAP_GIVES_BACK(int, fclose, FILE *, R_FILE)
WRAP_PART(read, (int fd, void *to, size_t size), (fd, to, size), (fd, to, size / 2), F_READ)
WRAP_PART(pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), (fd, to, size / 2, at),
	  F_PREAD)
WRAP_PART(write, (int fd, const void *from, size_t size), (fd, from, size), (fd, from, size / 2), F_WRITE)
WRAP_PART(pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at),
	  (fd, from, size / 2, at), F_PWRITE)
WRAP(int, linkat, (int fd, const char *from, int to_fd, const char *to, int flags),
     (fd, from, to_fd, to, flags), F_LINKAT, -1)
WRAP(int, unlink, (const char *path), (path), F_UNLINK, -1)
WRAP(int, fchmod, (int fd, mode_t mode), (fd, mode), F_FCHMOD, -1)

static int (*real_fcntl)(int fd, int command, ...);
static int my_fcntl(int fd, int command, ...)
{
	int function = command == F_SETLK ? F_SETLK_ : command == F_GETLK ? F_GETLK_ : F_FCNTL;
	uint32_t site = SITE;
	va_list args;
	void *arg;
	int ret;

	va_start(args, command);
	arg = va_arg(args, void *);
	va_end(args);
	if (function != F_FCNTL || command == F_DUPFD_CLOEXEC || command == F_DUPFD)
		FAILS((uint32_t)function, site, -1);
	ret = real_fcntl(fd, command, arg);
	if (command == F_DUPFD_CLOEXEC || command == F_DUPFD)
		keep_fd(ret, site);
	return ret;
}

WRAP(int, fstat, (int fd, struct stat *st), (fd, st), F_FSTAT, -1)
WRAP(int, fstatat, (int fd, const char *path, struct stat *st, int flags), (fd, path, st, flags),
     F_FSTATAT, -1)
WRAP(int, stat, (const char *path, struct stat *st), (path, st), F_STAT, -1)
WRAP(int, fstatfs, (int fd, struct statfs *st), (fd, st), F_FSTATFS, -1)
WRAP_DESCRIPTOR(eventfd, (unsigned int value, int flags), (value, flags), F_EVENTFD)
WRAP(int, eventfd_read, (int fd, eventfd_t *value), (fd, value), F_EVENTFD_READ, -1)
WRAP(int, eventfd_write, (int fd, eventfd_t value), (fd, value), F_EVENTFD_WRITE, -1)
WRAP_DESCRIPTOR(epoll_create1, (int flags), (flags), F_EPOLL_CREATE)
WRAP(int, epoll_ctl, (int fd, int op, int of, struct epoll_event *event), (fd, op, of, event), F_EPOLL_CTL,
     -1)
WRAP(int, epoll_wait, (int fd, struct epoll_event *events, int max, int timeout),
     (fd, events, max, timeout), F_EPOLL_WAIT, -1)
WRAP_DESCRIPTOR(timerfd_create, (int clock, int flags), (clock, flags), F_TIMERFD)
WRAP(int, timerfd_settime, (int fd, int flags, const struct itimerspec *to, struct itimerspec *was),
     (fd, flags, to, was), F_TIMERFD_SET, -1)

static int (*real_pipe2)(int fds[2], int flags);
static int my_pipe2(int fds[2], int flags)
{
	uint32_t site = SITE;

	FAILS(F_PIPE, site, -1);
	if (real_pipe2(fds, flags))
		return -1;
	keep_fd(fds[0], site);
	keep_fd(fds[1], site);
	return 0;
}

WRAP(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout), F_POLL, -1)
WRAP(int, kill, (pid_t pid, int sig), (pid, sig), F_KILL, -1)

static long (*real_syscall)(long number, ...);
/* As many words as there may be, which is more than most have passed. */
__attribute__((no_sanitize("address", "undefined"))) static long my_syscall(long number, ...)
{
	uint32_t site = SITE;
	va_list args;
	long arg[6];
	long ret;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (number != SYS_futex) /* where that fails for what is right, no lock of the C library works */
		FAILS(F_SYSCALL, site, -1);
	ret = real_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	return number == SYS_pidfd_open ? keep_fd((int)ret, site) : ret;
}

WRAP_PART(getrandom, (void *to, size_t size, unsigned int flags), (to, size, flags),
	  (to, (size + 1) / 2, flags), F_GETRANDOM)

typedef ssize_t vm_copy(pid_t pid, const struct iovec *local, unsigned long local_count,
			const struct iovec *remote, unsigned long remote_count, unsigned long flags);

/* Half of the first piece, as if the next page were not there. */
static ssize_t copy_part(vm_copy *copy, pid_t pid, const struct iovec *local, const struct iovec *remote,
			 unsigned long remote_count)
{
	struct iovec half = { local->iov_base, local->iov_len / 2 };

	if (!half.iov_len) {
		errno = EFAULT;
		return -1;
	}
	return copy(pid, &half, 1, remote, remote_count, 0);
}

#define WRAP_COPY(name, function)                                                                         \
	static vm_copy *real_##name;                                                                      \
	static ssize_t my_##name(pid_t pid, const struct iovec *local, unsigned long local_count,         \
				 const struct iovec *remote, unsigned long remote_count,                  \
				 unsigned long flags)                                                     \
	{                                                                                                 \
		int failed = verdict(function, SITE);                                                     \
                                                                                                          \
		if (failed > 0) {                                                                         \
			errno = failed;                                                                   \
			return -1;                                                                        \
		}                                                                                         \
		if (failed)                                                                               \
			return copy_part(real_##name, pid, local, remote, remote_count);                  \
		return real_##name(pid, local, local_count, remote, remote_count, flags);                 \
	}

WRAP_COPY(process_vm_readv, F_READV)
WRAP_COPY(process_vm_writev, F_WRITEV)

typedef void *thread_start(void *arg);
typedef void fork_handler(void);

WRAP_RETURNS(pthread_create,
	     (pthread_t * thread, const pthread_attr_t *attr, thread_start *start, void *arg),
	     (thread, attr, start, arg), F_THREAD)
WRAP_RETURNS(pthread_mutex_init, (pthread_mutex_t * mutex, const pthread_mutexattr_t *attr), (mutex, attr),
	     F_MUTEX)
WRAP_RETURNS(pthread_mutexattr_init, (pthread_mutexattr_t * attr), (attr), F_MUTEXATTR)
WRAP_RETURNS(pthread_cond_init, (pthread_cond_t * cond, const pthread_condattr_t *attr), (cond, attr),
	     F_COND)
WRAP_RETURNS(__register_atfork,
	     (fork_handler * before, fork_handler *parent, fork_handler *child, void *dso),
	     (before, parent, child, dso), F_ATFORK)

static int (*real_getaddrinfo)(const char *node, const char *service, const struct addrinfo *hints,
			       struct addrinfo **out);
static int my_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			  struct addrinfo **out)
{
	uint32_t site = SITE;
	int failed = verdict(F_GETADDRINFO, site);
	int ret = failed == ENOMEM ? EAI_MEMORY : failed ? EAI_AGAIN : 0;

	if (!ret)
		ret = real_getaddrinfo(node, service, hints, out);
	if (!ret)
		keep(R_ADDRINFO, *out, site);
	return ret;
}
WRAP_GIVES_BACK(void, freeaddrinfo, struct addrinfo *, R_ADDRINFO)

static int (*real_getifaddrs)(struct ifaddrs **out);
static int my_getifaddrs(struct ifaddrs **out)
{
	uint32_t site = SITE;
	int ret;

	FAILS(F_GETIFADDRS, site, -1);
	ret = real_getifaddrs(out);
	if (!ret)
		keep(R_IFADDRS, *out, site);
	return ret;
}
WRAP_GIVES_BACK(void, freeifaddrs, struct ifaddrs *, R_IFADDRS)

/* ---- putting them there ---------------------------------------------------------------------- */

struct wrapper {
	const char *name;
	void *mine;
	void **real;
};

#define WRAPPER_AS(text, name)                                                                            \
	{                                                                                                 \
		text, (void *)my_##name, (void **)&real_##name                                            \
	}
#define WRAPPER(name) WRAPPER_AS(#name, name)
/* Large files have names of their own, and the same functions where a long has 64 bits. */
#define WRAPPER_64(name) WRAPPER(name), WRAPPER_AS(#name "64", name)

static const struct wrapper wrappers[] = {
	WRAPPER(malloc),
	WRAPPER(calloc),
	WRAPPER(realloc),
	WRAPPER(strdup),
	WRAPPER(posix_memalign),
	WRAPPER(aligned_alloc),
	WRAPPER(free),
	WRAPPER(fi_dupinfo),
	WRAPPER_64(mmap),
	WRAPPER(munmap),
	WRAPPER(madvise),
	WRAPPER(mprotect),
	WRAPPER_64(ftruncate),
	WRAPPER_64(fallocate),
	WRAPPER_64(open),
	WRAPPER_64(openat),
	WRAPPER(close),
	WRAPPER(opendir),
	WRAPPER_64(readdir),
	WRAPPER(closedir),
	WRAPPER_64(fopen),
	WRAPPER(fgets),
	WRAPPER(fclose),
	WRAPPER(read),
	WRAPPER_64(pread),
	WRAPPER(write),
	WRAPPER_64(pwrite),
	WRAPPER(linkat),
	WRAPPER(unlink),
	WRAPPER(fchmod),
	WRAPPER_64(fcntl),
	WRAPPER_64(fstat),
	WRAPPER_64(fstatat),
	WRAPPER_64(stat),
	WRAPPER_64(fstatfs),
	WRAPPER(eventfd),
	WRAPPER(eventfd_read),
	WRAPPER(eventfd_write),
	WRAPPER(epoll_create1),
	WRAPPER(epoll_ctl),
	WRAPPER(epoll_wait),
	WRAPPER(timerfd_create),
	WRAPPER(timerfd_settime),
	WRAPPER(pipe2),
	WRAPPER(poll),
	WRAPPER(kill),
	WRAPPER(syscall),
	WRAPPER(getrandom),
	WRAPPER(process_vm_readv),
	WRAPPER(process_vm_writev),
	WRAPPER(pthread_create),
	WRAPPER(pthread_mutex_init),
	WRAPPER(pthread_mutexattr_init),
	WRAPPER(pthread_cond_init),
	WRAPPER(__register_atfork),
	WRAPPER(getaddrinfo),
	WRAPPER(freeaddrinfo),
	WRAPPER(getifaddrs),
	WRAPPER(freeifaddrs),
};

static const struct wrapper *wrapper_of(const char *name)
{
	for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
		if (!strcmp(wrappers[i].name, name))
			return &wrappers[i];
	return NULL;
}

static void put_pointer(void **slot, void *value)
{
	uintptr_t page = (uintptr_t)slot & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);

	/* The table may be read-only by now. */
	if (mprotect((void *)page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE))
		abort();
	*slot = value;
}

struct dynamic {
	const char *strings;
	const ElfW(Sym) * symbols;
	const ElfW(Rela) * rela[2];
	size_t rela_bytes[2];
};

/* Some machines' linkers leave addresses there relative to the object. */
static const void *dynamic_address(const struct link_map *map, ElfW(Addr) value)
{
	return (const void *)(value < map->l_addr ? map->l_addr + value : value);
}

static struct dynamic dynamic_of(const struct link_map *map)
{
	struct dynamic dynamic = { .strings = NULL };

	for (const ElfW(Dyn) *each = map->l_ld; each->d_tag != DT_NULL; each++) {
		switch (each->d_tag) {
		case DT_STRTAB:
			dynamic.strings = dynamic_address(map, each->d_un.d_ptr);
			break;
		case DT_SYMTAB:
			dynamic.symbols = dynamic_address(map, each->d_un.d_ptr);
			break;
		case DT_JMPREL:
			dynamic.rela[0] = dynamic_address(map, each->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			dynamic.rela_bytes[0] = each->d_un.d_val;
			break;
		case DT_RELA:
			dynamic.rela[1] = dynamic_address(map, each->d_un.d_ptr);
			break;
		case DT_RELASZ:
			dynamic.rela_bytes[1] = each->d_un.d_val;
			break;
		}
	}
	return dynamic;
}

/* Each place of that object that holds one of the functions; `only`: that one. Returns how many. */
static int replace(void *object, const char *only)
{
	struct dynamic dynamic;
	struct link_map *map;
	int replaced = 0;

	if (dlinfo(object, RTLD_DI_LINKMAP, &map))
		return 0;
	dynamic = dynamic_of(map);
	for (int table = 0; table < 2; table++) {
		size_t count = dynamic.rela_bytes[table] / sizeof(ElfW(Rela));

		for (const ElfW(Rela) *each = dynamic.rela[table]; count--; each++) {
			const ElfW(Sym) *symbol = &dynamic.symbols[each->r_info >> 32];
			const char *name = dynamic.strings + symbol->st_name;
			const struct wrapper *wrapper = each->r_info >> 32 ? wrapper_of(name) : NULL;
			void **slot = (void **)(map->l_addr + each->r_offset);

			if (!wrapper || (only && strcmp(name, only)))
				continue;
			if (!*wrapper->real)
				*wrapper->real = *slot;
			put_pointer(slot, wrapper->mine);
			replaced++;
		}
	}
	return replaced;
}

/* false: there is no provider, or it cannot be done on this machine. */
static bool interpose_install(const char *path)
{
	void *provider = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *libfabric = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
	struct link_map *map;

	if (!provider) {
		fprintf(stderr, "%s\n", dlerror());
		return false;
	}
	if (!libfabric || dlinfo(provider, RTLD_DI_LINKMAP, &map))
		return false;
	interpose.base = map->l_addr;
	return sizeof(long) == 8 && replace(provider, NULL) > 0 && replace(libfabric, "free") > 0;
}

#endif
