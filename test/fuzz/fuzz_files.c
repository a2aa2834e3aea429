/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_files: files in /dev/shm whose names this library gives, with a content that it would not have written. They
 * are read by the search for a service, by the attacher of a segment, by the opener of a directory, and by the reaper.
 *
 * Input: a byte that says whether the owner lives, then the content of the file. The library never removes a file
 * while a child holds its life lock, and believes the content only if it is an address; a file without a holder is
 * removed, or left alone with a reason. A segment, or a directory, whose first 8 bytes are 0 gets the magic number
 * and the other fields by which this build knows its files.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "../unit/child.h"
#include "os/addr.h"
#include "fuzz_child.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/attach.h"
#include "proc/service.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned long fuzz_rounds; /* see replay.c */
const unsigned long fuzz_rounds = 100;

enum { SEGMENT, SERVICE, DIRECTORY, FILES };
#define LENGTH_MAX 8192

/* The files of one owner: `living` is a child that holds their life locks, nobody holds those of `dead`. */
static struct owner {
	uint16_t ep;
	char names[FILES][SC_ADDR_NAME_MAX], paths[FILES][128], addrs[FILES][SC_ADDR_SIZE], service[32];
	int fds[FILES];
} living = { .ep = 7 }, dead = { .ep = 8 };
static pid_t parent;

static void make_files(struct owner *owner)
{
	for (int i = 0; i < FILES; i++) {
		owner->fds[i] =
			open(owner->paths[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		CHECK(owner->fds[i] >= 0);
	}
}

static void remove_files(struct owner *owner)
{
	for (int i = 0; i < FILES; i++) {
		(void)unlink(owner->paths[i]);
		close(owner->fds[i]);
	}
}

static void remove_living(void)
{
	if (getpid() == parent)
		remove_files(&living);
}

static void name_files(struct owner *owner, pid_t pid)
{
	struct sc_addr addr = { .pid = (uint32_t)pid, .nonce = { 0xfe, 0xed }, .ep = owner->ep };
	const struct sc_host *host;

	CHECK(!sc_host_get(&host));
	addr.host = host->id;
	sc_addr_format(&addr, owner->addrs[SEGMENT]);
	sc_addr_file(&addr, owner->names[SEGMENT]);
	snprintf(owner->service, sizeof(owner->service), "fuzz-files.%d.%d", (int)parent, owner->ep);
	CHECK(!sc_addr_service(owner->service, owner->addrs[SERVICE]));
	sc_addr_service_file(owner->service, owner->names[SERVICE]);
	CHECK(!sc_addr_directory_file(owner->service, owner->names[DIRECTORY]));
	for (int i = 0; i < FILES; i++)
		snprintf(owner->paths[i], sizeof(owner->paths[i]), "%s/%s", SC_HOST_DIR, owner->names[i]);
}

/* Once there are files it takes their life locks, tells so, and waits. */
static void hold(int made, int held)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	name_files(&living, getpid());
	if (read(made, &byte, 1) != 1)
		_exit(1);
	for (int i = 0; i < FILES; i++) {
		int fd = open(living.paths[i], O_RDWR | O_CLOEXEC);

		if (fd < 0 || sc_lifelock_lock(fd))
			_exit(1);
	}
	if (write(held, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* The living one's are named after who holds them: a lock that another holds is a reaper's. */
static void start_holder(void)
{
	int made[2], held[2];
	char byte;
	pid_t pid;

	CHECK(!pipe(made) && !pipe(held));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		hold(made[0], held[1]);
	close(held[1]);
	name_files(&living, pid);
	make_files(&living);
	CHECK(write(made[1], "", 1) == 1);
	CHECK(read(held[0], &byte, 1) == 1);
	close(held[0]);
	close(made[0]);
	close(made[1]);
}

static void set_up(void)
{
	if (parent)
		return;
	parent = getpid();
	(void)child_private_shm("mode=1777"); /* where nobody else removes what the dead have left */
	name_files(&dead, parent ^ 0x40000000); /* nobody */
	start_holder();
	atexit(remove_living);
}

static void fill(int fd, const uint8_t *data, size_t size)
{
	CHECK(!ftruncate(fd, (off_t)size));
	CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
}

static void fill_segment(const struct owner *owner, const uint8_t *data, size_t size)
{
	_Alignas(struct sc_abi_header) uint8_t bytes[LENGTH_MAX] = { 0 };
	struct sc_abi_header *header = (struct sc_abi_header *)bytes;
	struct sc_addr parts;

	memcpy(bytes, data, size);
	if (size >= sizeof(*header) && !header->magic) {
		CHECK(!sc_addr_parse(owner->addrs[SEGMENT], &parts));
		header->magic = SC_ABI_MAGIC;
		header->major = SC_ABI_MAJOR;
		header->layout = SC_ABI_LAYOUT;
		header->owner.pid = (int32_t)parts.pid;
		memcpy(header->nonce, parts.nonce, sizeof(parts.nonce));
		memcpy(header->address, owner->addrs[SEGMENT], SC_ADDR_SIZE);
	}
	fill(owner->fds[SEGMENT], bytes, size);
	if (header->length > size && header->length < 1u << 30) /* the rest is a hole */
		CHECK(!ftruncate(owner->fds[SEGMENT], (off_t)header->length));
}

static void fill_directory(const struct owner *owner, const uint8_t *data, size_t size)
{
	_Alignas(struct sc_abi_directory) uint8_t bytes[LENGTH_MAX];
	struct sc_abi_directory *directory = (struct sc_abi_directory *)bytes;

	memcpy(bytes, data, size);
	if (size >= sizeof(*directory) && !directory->magic) {
		directory->magic = SC_ABI_DIRECTORY_MAGIC;
		CHECK(!sc_shmfile_describe(&directory->owner));
		directory->owner.cookie = 0; /* nobody's */
	}
	fill(owner->fds[DIRECTORY], bytes, size);
}

static void look(const struct owner *owner)
{
	struct sc_directory *directory;
	char out[SC_ADDR_SIZE];
	struct sc_seg *seg;

	if (!sc_service_find(owner->service, out))
		CHECK(owner == &living && sc_addr_kind(out) == SC_ADDR_ENDPOINT);
	if (!sc_addr_resolve(owner->addrs[SERVICE], out))
		CHECK(owner == &living && sc_addr_kind(out) == SC_ADDR_ENDPOINT);
	if (!sc_directory_open(owner->service, &directory)) {
		CHECK(owner == &living);
		for (uint32_t i = 0; i <= sc_directory_count(directory); i++)
			if (sc_directory_get(directory, i, out))
				CHECK(sc_addr_kind(out) == SC_ADDR_ENDPOINT);
		sc_directory_close(directory);
	}
	if (!sc_seg_attach(owner->addrs[SEGMENT], &seg)) {
		CHECK(owner == &living && !strcmp(seg->header.address, owner->addrs[SEGMENT]));
		sc_seg_detach(seg);
	}
	if (!sc_seg_attach_left(owner->addrs[SEGMENT], &seg))
		sc_seg_detach(seg);
	CHECK(!sc_owner_left(owner->addrs[SEGMENT]) || owner == &dead);
}

/* With nobody's lock the names go, unless the second opinion has found an owner. */
static void reap(const struct owner *owner)
{
	for (int i = 0; i < FILES; i++) {
		int ret = sc_reap_name(owner->names[i]);
		struct stat st;

		/* the files of the dead may be gone already: the daemon thread of another process removes them, too */
		if (lstat(owner->paths[i], &st))
			CHECK(owner == &dead);
		else
			CHECK(ret == -EBUSY);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct owner *owner;

	if (!size || size > LENGTH_MAX)
		return 0;
	set_up();
	owner = *data++ & 1 ? &living : &dead;
	size--;
	if (owner == &dead)
		make_files(owner);
	fill_segment(owner, data, size);
	fill(owner->fds[SERVICE], data, size);
	fill_directory(owner, data, size);
	look(owner);
	reap(owner);
	if (owner == &dead)
		remove_files(owner);
	return 0;
}
