/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * directory.c: a directory is a table of addresses, by number, in a file in shared memory. One process writes it, other
 * processes read it. The file is published, locked and reaped like the file of a service.
 *
 * Owns struct sc_directory. Any thread may open and close; one thread at a time uses a directory.
 *
 * The reader trusts nothing. It reads the size of the file once, which limits the number of entries, and ignores an
 * address that does not parse.
 *
 *   D1 release, sc_directory_put(): address before its number     pairs with  D1' sc_directory_get()
 *   D2 release, sc_directory_put(): number before the count       pairs with  D2' sc_directory_count()
 *
 * If the writer dies between any two steps, a number has no address or the whole address. A mapping stays readable when
 * the name has gone. A number gets an address only once, so nothing overwrites an address that a process reads.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "os/addr.h"
#include "base/atomic.h"
#include "os/host.h"
#include "base/fault.h"
#include "base/list.h"
#include "os/lifelock.h"
#include "base/log.h"
#include "os/otherfile.h"
#include "os/shmfile.h"
#include "proc/owner.h"
#include "proc/service.h"

_Static_assert(SC_DIRECTORY_MAX == SC_ABI_DIRECTORY_MAX, "one limit");

struct sc_directory {
	struct sc_shmfile file; /* of the writer only */
	struct sc_abi_directory *base;
	uint64_t *numbers;
	char (*addresses)[SC_ABI_ADDR_SIZE];
	size_t size;
	uint32_t capacity;
	uint64_t mapped_by;	     /* sc_host_self(): a forked child has nothing mapped */
	struct sc_directory *lender; /* reader in the writer's process: owner of the mapping; else NULL */
	bool writer;
};

static void set_base(struct sc_directory *directory, void *base, uint32_t capacity)
{
	directory->base = base;
	directory->numbers = (uint64_t *)(directory->base + 1);
	directory->addresses = (void *)(directory->numbers + capacity);
	directory->capacity = capacity;
	directory->mapped_by = sc_host_self();
}

/* MADV_DONTFORK: a forked child gets no mapping, and so has none to undo. */
static int map(struct sc_directory *directory, int fd, int protection, uint32_t capacity)
{
	size_t size = SC_ABI_DIRECTORY_SIZE(capacity);
	void *base = 
		SC_TRY_PTR("directory.map", MAP_FAILED, mmap(NULL, size, protection, MAP_SHARED, fd, 0));

	if (base == MAP_FAILED)
		return errno == EAGAIN ? -ENOMEM : -errno; /* EAGAIN: as in sc_seg_map() */
	SC_CALL("directory.apart", madvise(base, size, MADV_DONTFORK));
	directory->size = size;
	set_base(directory, base, capacity);
	return 0;
}

static void unmap(struct sc_directory *directory)
{
	if (directory->mapped_by == sc_host_self())
		SC_CALL("directory.unmap", munmap(directory->base, directory->size));
}

/* ---- the writer ------------------------------------------------------------------------------ */

static int fill(struct sc_directory *directory, uint32_t capacity)
{
	off_t size = (off_t)SC_ABI_DIRECTORY_SIZE(capacity);
	struct sc_abi_owner owner;
	int ret = sc_shmfile_check_size((uint64_t)size);

	if (!ret)
		ret = sc_shmfile_describe(&owner);
	if (ret)
		return ret;
	if (SC_TRY("directory.fallocate", sc_shmfile_fallocate(directory->file.fd, 0, 0, size)))
		return errno == EDQUOT ? -ENOSPC : -errno;
	ret = map(directory, directory->file.fd, PROT_READ | PROT_WRITE, capacity);
	if (ret)
		return ret;
	directory->base->magic =
		SC_ABI_DIRECTORY_MAGIC; /* plain: no other process sees it before it has a name */
	directory->base->capacity = capacity;
	directory->base->owner = owner;
	memset(directory->numbers, 0xff, capacity * sizeof(uint64_t));
	return 0;
}

int sc_directory_create(const char *name, uint32_t capacity, struct sc_directory **created)
{
	struct sc_directory *directory;
	char file[SC_ADDR_NAME_MAX];
	int ret = sc_addr_directory_file(name, file);

	if (ret || !capacity || capacity > SC_DIRECTORY_MAX)
		return -EINVAL;
	directory = calloc(1, sizeof(*directory));
	if (!directory)
		return -ENOMEM;
	directory->writer = true;
	ret = sc_shmfile_create(&directory->file);
	if (ret)
		goto no_file;
	ret = fill(directory, capacity);
	if (ret == -ENOSPC && sc_reap_scan() > 0)
		ret = fill(directory, capacity);
	if (ret) {
		if (ret != -EFBIG)
			sc_warn("cannot make the shared address vector %s: %s; %s", name, strerror(-ret),
				sc_shmfile_remedy(-ret));
		goto no_memory;
	}
	ret = sc_service_publish(&directory->file, file);
	if (ret)
		goto no_name;
	*created = directory;
	return 0;

no_name:
	unmap(directory);
no_memory:
	(void)sc_shmfile_put(&directory->file); /* without a name: no reader borrows it */
	sc_shmfile_close(&directory->file);
no_file:
	free(directory);
	return ret;
}

uint32_t sc_directory_capacity(const struct sc_directory *directory)
{
	return directory->capacity;
}

int sc_directory_put(struct sc_directory *directory, uint32_t number, const char *addr)
{
	if (number >= directory->capacity)
		return -ENOSPC;
	memcpy(directory->addresses[number], addr, strnlen(addr, SC_ABI_ADDR_SIZE - 1));
	(void)SC_FAULT("directory.address");
	/* D1 release: pairs with D1' in sc_directory_get() */
	sc_store_release_64(&directory->numbers[number], number);
	(void)SC_FAULT("directory.number");
	if (number < directory->base->count)
		return 0;
	/* D2 release: pairs with D2' in sc_directory_count() */
	sc_store_release_32(&directory->base->count, number + 1);
	(void)SC_FAULT("directory.count");
	return 0;
}

void sc_directory_del(struct sc_directory *directory, uint32_t number)
{
	sc_store_release_64(&directory->numbers[number], UINT64_MAX);
	(void)SC_FAULT("directory.removed");
}

/* ---- readers --------------------------------------------------------------------------------- */

static int map_other(struct sc_directory *directory, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size, header = sizeof(*directory->base);
	uint64_t capacity = size < header ? 0 : (size - header) / (sizeof(uint64_t) + SC_ABI_ADDR_SIZE);
	struct sc_abi_owner owner;
	pid_t holder = 0;
	int held = sc_lifelock_check(fd, &holder);
	int ret;

	if (held < 0)
		return held;
	if (!capacity || capacity > SC_DIRECTORY_MAX || size != SC_ABI_DIRECTORY_SIZE(capacity))
		return held ? -EPROTO : -ENOENT;
	ret = map(directory, fd, PROT_READ, (uint32_t)capacity);
	if (ret)
		return ret;
	owner = directory->base->owner;
	if (directory->base->magic != SC_ABI_DIRECTORY_MAGIC || directory->base->capacity != capacity)
		ret = held ? -EPROTO : -ENOENT;
	else if (!sc_owner_has_writer(&owner, held, holder))
		ret = -ENOENT;
	if (ret)
		unmap(directory);
	return ret;
}

static int open_other(struct sc_directory *directory, const char *file)
{
	struct stat st;
	int fd = sc_otherfile_open(file, &st), ret;

	if (fd < 0)
		return fd == -EBUSY ? -ENOENT
				    : fd; /* -EBUSY: another copy of the library in this process has it */
	ret = map_other(directory, fd, &st);
	sc_otherfile_close(fd);
	return ret;
}

int sc_directory_open(const char *name, struct sc_directory **opened)
{
	struct sc_directory *directory;
	char file[SC_ADDR_NAME_MAX];
	struct sc_shmfile *own;
	int ret = sc_addr_directory_file(name, file);

	if (ret)
		return ret;
	directory = calloc(1, sizeof(*directory));
	if (!directory)
		return -ENOMEM;
	own = sc_shmfile_borrow(file);
	if (own) {
		directory->lender = sc_list_entry(own, struct sc_directory, file);
		set_base(directory, directory->lender->base, directory->lender->capacity);
	} else {
		ret = open_other(directory, file);
	}
	if (ret)
		free(directory);
	else
		*opened = directory;
	return ret;
}

uint32_t sc_directory_count(const struct sc_directory *directory)
{
	/* D2' acquire: pairs with D2 in sc_directory_put() */
	uint32_t count = sc_load_acquire_32(&directory->base->count);

	return count < directory->capacity ? count : directory->capacity;
}

bool sc_directory_get(const struct sc_directory *directory, uint32_t number, char *addr)
{
	/* D1' acquire: pairs with D1 in sc_directory_put() */
	if (number >= directory->capacity || sc_load_acquire_64(&directory->numbers[number]) != number)
		return false;
	memcpy(addr, directory->addresses[number], SC_ADDR_SIZE);
	addr[SC_ADDR_SIZE - 1] = '\0';
	return sc_addr_kind(addr) == SC_ADDR_ENDPOINT;
}

const uint64_t *sc_directory_numbers(const struct sc_directory *directory)
{
	return directory->numbers;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Frees the writer's memory with its last user. */
static void put(struct sc_directory *writer)
{
	if (!sc_shmfile_put(&writer->file))
		return;
	unmap(writer);
	sc_shmfile_close(&writer->file);
	free(writer);
}

void sc_directory_close(struct sc_directory *directory)
{
	if (directory->writer) {
		sc_shmfile_unlink(&directory->file); /* does nothing in a forked child */
		put(directory);
		return;
	}
	if (directory->lender)
		put(directory->lender);
	else
		unmap(directory);
	free(directory);
}
