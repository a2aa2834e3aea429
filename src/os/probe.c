/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * probe.c: access of a process to its own registered memory.
 *
 * The application may unmap or write-protect memory after it has registered it. A copy to or from such memory must end
 * as an error of the operation, not as a signal. So the kernel makes the pages present first (MADV_POPULATE_READ,
 * _WRITE, Linux 5.14), and the copy is a plain one. If the kernel does not know that call, it does the copy itself
 * (process_vm_writev(2) of this process). If that is forbidden, too, a fault hits the application. Cheaper calls check
 * a single page (docs/MEASUREMENTS.md, "Touching registered memory").
 *
 * We do not ask again for a page that is known to be there; the caller chooses how long it stays known (access.c). If the
 * application takes it away meanwhile, a fault hits the application. The knowledge of a registration takes a
 * byte for each page, because a system call for each put to another page of a large heap costs ten times the put.
 *
 * The same checks serve shared memory, if only the word of another process says that its part of the file has memory: a
 * read of a hole while /dev/shm is full is a signal, too. They also serve pointers of the application that may not
 * point to memory.
 *
 * No other process sees anything of this file, whenever one dies.
 */
#define _GNU_SOURCE 1
#include <shmcma/core.h>
#include "os/probe.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "os/cma.h"
#include "base/atomic.h"
#include "base/fault.h"
#include "base/iov.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14; asked for at run time */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Pages of a read that are cheaper to ask for one by one. */
#define PEEKED 16

/* In the byte of a page: it could be read, or read and written. */
#define READABLE 1
#define WRITABLE 3

static uintptr_t page_size(void)
{
	static long size; /* each thread finds the same */
	long here = __atomic_load_n(&size, __ATOMIC_RELAXED);

	if (!here) {
		here = sysconf(_SC_PAGESIZE);
		__atomic_store_n(&size, here, __ATOMIC_RELAXED);
	}
	return (uintptr_t)here;
}

/* Tells whether the kernel makes pages present on request. */
static bool can_populate(void)
{
	static uint64_t here;
	static int known; /* 0 not yet, 1 yes, -1 no; each thread finds the same */
	uintptr_t size = page_size(), page = (uintptr_t)&here & ~(size - 1);
	int can = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!can) {
		can = SC_TRY("probe.can", madvise((void *)page, size, MADV_POPULATE_WRITE)) ? -1 : 1;
		__atomic_store_n(&known, can, __ATOMIC_RELAXED);
	}
	return can > 0;
}

/*
 * For whole pages. -EINVAL: the mapping does not allow it, or the kernel takes its pages from no process's page tables:
 * memory of memfd_secret(2), of a device. The process that has mapped it may read and write such memory.
 */
static int populate(uintptr_t first, uintptr_t len, bool write)
{
	if (!can_populate())
		return -ENOSYS;
	/* len 0: the last byte of the address space, which no process has */
	if (len && !SC_TRY("probe.populate",
			   madvise((void *)first, len, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ)))
		return 0;
	return len && errno == EINVAL ? -EINVAL : -EIO;
}

/* Checks one page where no cheaper call does. */
static int ask(uintptr_t page, bool write)
{
	int ret = populate(page, page_size(), write);

	return ret == -EINVAL ? -EIO : ret;
}

/*
 * Checks a page for a write by an atomic "or" with 0: half the cost of populate(). Its comparison wakes only a thread
 * that waits there on a word of less than -2048, in vain.
 */
static int touch(uintptr_t page)
{
	static uint32_t nobody_waits;
	static const uint32_t op = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LT, 0x800);

	if (SC_TRY("probe.touch",
		   syscall(SYS_futex, &nobody_waits, FUTEX_WAKE_OP_PRIVATE, 0, 0, page, op)) >= 0)
		return 0;
	return errno == EFAULT ? -EIO : ask(page, true);
}

/*
 * The kernel reads a signal set at that address for a change of the mask that does not exist. Returns EFAULT or EINVAL.
 */
static int peek_errno(uintptr_t address)
{
	return SC_TRY("probe.peek", syscall(SYS_rt_sigprocmask, -1, address, NULL, sizeof(uint64_t)))
		       ? errno
		       : 0;
}

/* Tells whether the kernel reads the set before it checks the kind of change. No process has the last page. */
static bool can_peek(void)
{
	static int known; /* 0 not yet, 1 yes, -1 no; each thread finds the same */
	static const uint64_t here;
	int can = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (!can) {
		can = peek_errno((uintptr_t)&here) == EINVAL && peek_errno(-page_size()) == EFAULT ? 1
												   : -1;
		__atomic_store_n(&known, can, __ATOMIC_RELAXED);
	}
	return can > 0;
}

/* Checks a page for a read. */
static int peek(uintptr_t page)
{
	int seen = can_peek() ? peek_errno(page) : ENOSYS;

	if (seen == EINVAL)
		return 0;
	return seen == EFAULT ? -EIO : ask(page, false);
}

static uintptr_t number_of(uintptr_t address)
{
	return address >> __builtin_ctzl(page_size());
}

/* Returns the byte of the page, or NULL. */
static uint8_t *byte_of(const struct sc_probe *memory, uintptr_t page)
{
	size_t at = number_of(page) - memory->first;

	return at < memory->count ? &memory->known[at] : NULL;
}

/* relaxed, here and in learn(): a byte stands alone, and of two threads each stores what it has found */
static bool is_known(const struct sc_probe *memory, uintptr_t page, bool write)
{
	const uint8_t *byte = byte_of(memory, page);
	uint8_t wanted = write ? WRITABLE : READABLE;

	return byte && (sc_load_relaxed_8(byte) & wanted) == wanted;
}

static void learn(struct sc_probe *memory, uintptr_t page, bool write)
{
	uint8_t *byte = byte_of(memory, page);

	if (byte)
		sc_store_relaxed_8(byte, write ? WRITABLE : READABLE);
}

struct sc_probe *sc_probe_new(const struct iovec *iov, size_t count)
{
	uintptr_t first = UINTPTR_MAX, last = 0;
	struct sc_probe *memory;
	size_t pages;

	for (size_t i = 0; i < count; i++) {
		uintptr_t begin = (uintptr_t)iov[i].iov_base, end = begin + iov[i].iov_len - 1;

		first = number_of(begin) < first ? number_of(begin) : first;
		last = number_of(end) > last ? number_of(end) : last;
	}
	pages = first <= last && sc_probe_is_mapped(iov, count) ? last - first + 1 : 0;
	if (pages > SC_PROBE_PAGES)
		pages = 0;
	memory = SC_TRY_PTR("probe.new", NULL, calloc(1, sizeof(*memory) + pages));
	if (!memory)
		return NULL;
	memory->first = first;
	memory->count = pages;
	memory->known = (uint8_t *)(memory + 1);
	return memory;
}

struct sc_probe *sc_probe_around(struct sc_probe_brief *brief, const void *at, uint32_t poll)
{
	struct sc_probe *memory = &brief->memory;

	if (number_of((uintptr_t)at) - memory->first < memory->count && brief->poll == poll)
		return memory;
	brief->poll = poll;
	memory->first = number_of((uintptr_t)at) / SC_PROBE_AROUND * SC_PROBE_AROUND;
	memory->count = SC_PROBE_AROUND;
	memory->known = brief->known;
	memset(brief->known, 0, sizeof(brief->known));
	return memory;
}

static int check_page(struct sc_probe *memory, uintptr_t page, bool write)
{
	int ret;

	if (memory && is_known(memory, page, write))
		return 0;
	ret = write ? touch(page) : peek(page);
	if (!ret && memory)
		learn(memory, page, write);
	return ret;
}

static bool are_known(const struct sc_probe *memory, uintptr_t first, uintptr_t last, bool write)
{
	uintptr_t page = first, size = page_size();

	while (page <= last && is_known(memory, page, write))
		page += size;
	return page > last;
}

/* -EINVAL: the mapping does not allow it. */
static int check_together(struct sc_probe *memory, uintptr_t first, uintptr_t last, bool write)
{
	uintptr_t size = page_size();
	int ret;

	if (memory && are_known(memory, first, last, write))
		return 0;
	ret = populate(first, last - first + size, write);
	for (uintptr_t page = first; memory && !ret && page <= last; page += size)
		learn(memory, page, write);
	return ret;
}

/*
 * Checks some pages: each by itself if this is cheaper, for a read of few, or if the kernel does not populate the mapping.
 */
static int check_pages(struct sc_probe *memory, uintptr_t first, uintptr_t last, bool write)
{
	uintptr_t size = page_size();
	int ret = 0;

	if (first != last && (write || last - first >= PEEKED * size)) {
		ret = check_together(memory, first, last, write);
		if (ret != -EINVAL)
			return ret;
		ret = 0;
	}
	for (uintptr_t page = first; page <= last && !ret; page += size)
		ret = check_page(memory, page, write);
	return ret;
}

bool sc_probe_knows(const struct sc_probe *memory, const void *at, size_t len, bool write)
{
	uintptr_t size = page_size(), offset = (uintptr_t)at & (size - 1);

	return len <= size - offset && is_known(memory, (uintptr_t)at - offset, write);
}

int sc_probe_check(struct sc_probe *memory, const struct iovec *iov, size_t count, bool write)
{
	uintptr_t size = page_size();
	int ret = 0;

	for (size_t i = 0; i < count && !ret; i++) {
		uintptr_t first = (uintptr_t)iov[i].iov_base & ~(size - 1);
		uintptr_t last = ((uintptr_t)iov[i].iov_base + iov[i].iov_len - 1) & ~(size - 1);

		if (!iov[i].iov_len)
			continue;
		ret = check_pages(memory, first, last, write);
	}
	return ret;
}

int sc_probe_check_ends(const struct iovec *iov, size_t count, bool write)
{
	uintptr_t size = page_size();
	int ret = 0;

	for (size_t i = 0; i < count && !ret; i++) {
		uintptr_t first = (uintptr_t)iov[i].iov_base, last = first + iov[i].iov_len - 1;

		if (!iov[i].iov_len)
			continue;
		ret = check_page(NULL, first & ~(size - 1), write);
		if (!ret)
			ret = check_page(NULL, last & ~(size - 1), write);
	}
	return ret;
}

/* The kernel looks whether mappings cover the range, and does nothing else since Linux 2.6.19. */
bool sc_probe_is_mapped(const struct iovec *iov, size_t count)
{
	uintptr_t size = page_size();

	for (size_t i = 0; i < count; i++) {
		uintptr_t first = (uintptr_t)iov[i].iov_base & ~(size - 1);
		uintptr_t len = (uintptr_t)iov[i].iov_base + iov[i].iov_len - first;

		/* the kernel rounds up: more than that would be 0 bytes */
		if (len > UINTPTR_MAX - size ||
		    SC_TRY("probe.mapped", msync((void *)first, len, MS_ASYNC)))
			return false;
	}
	return true;
}

/* A page that could be read is there, and a write needs no other page. */
bool sc_probe_is_there(const void *at, size_t size)
{
	const struct iovec iov = { (void *)at, size };

	return sc_probe_check(NULL, &iov, 1, false) != -EIO;
}

size_t sc_probe_readable(const void *at, size_t len)
{
	uintptr_t size = page_size();
	size_t there = 0;

	while (there < len) {
		uintptr_t next = (uintptr_t)at + there, page = next & ~(size - 1);
		size_t here = page + size - next;

		if (check_page(NULL, page, false))
			break;
		there += here < len - there ? here : len - there;
	}
	return there;
}

static void copy_plainly(const struct sc_probe_copy *copy)
{
	sc_iov_copy(copy->to, copy->to_count, copy->from, copy->from_count, copy->len);
}

/* The kernel has copied, or has returned the reason why not. */
static int copied(const struct sc_probe_copy *copy, int ret)
{
	if (ret == -EFAULT)
		return -EIO;
	if (ret)
		copy_plainly(copy);
	return 0;
}

int sc_probe_write(struct sc_probe *memory, const struct sc_probe_copy *copy)
{
	int ret = sc_probe_check(memory, copy->to, copy->to_count, true);
	size_t moved;

	if (ret == -ENOSYS) {
		ret = sc_cma_write(gettid(),
				&(struct sc_cma_copy){ copy->from, copy->from_count,
					copy->to, copy->to_count, copy->len }, &moved);
		return copied(copy, ret);
	}
	if (!ret)
		copy_plainly(copy);
	return ret;
}

int sc_probe_read(struct sc_probe *memory, const struct sc_probe_copy *copy)
{
	int ret = sc_probe_check(memory, copy->from, copy->from_count, false);

	if (ret == -ENOSYS) {
		const struct sc_cma self = { .pid = gettid() };

		ret = sc_cma_read(&self,
				&(struct sc_cma_copy){ copy->to, copy->to_count,
					copy->from, copy->from_count, copy->len });
		return copied(copy, ret);
	}
	if (!ret)
		copy_plainly(copy);
	return ret;
}
