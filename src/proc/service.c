/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * service.c: well-known names for endpoints. A service is a small file with the address of its endpoint; it is
 * published, locked and reaped like a segment (shmfile.c, reap.c).
 *
 * An address is announced in the same way, before its endpoint has a segment: a service whose name no application can
 * choose tells that the process lives.
 *
 * Owns struct sc_service. Any thread may call; one thread at a time uses a structure.
 *
 * If the holder dies at any step, there is no name, or a complete file with a free lock. The next process that wants
 * the name removes that file, or waits for a limited time while another process removes it. No process touches the name
 * of a live holder, as linkat(2) does not replace a name. The address in a named file does not change, so a reader that
 * finds the lock held reads what the holder wrote.
 */
#define _GNU_SOURCE 1
#include "proc/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include "os/addr.h"
#include "os/host.h"
#include "base/fault.h"
#include "base/list.h"
#include "os/lifelock.h"
#include "base/log.h"
#include "os/otherfile.h"
#include "os/shmfile.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/attach.h"

#define REAP_TRIES 16
#define REAP_WAIT_MS 1000 /* another reaper needs only a moment, unless it is stopped */

struct sc_service {
	struct sc_shmfile file;
	char address[SC_ADDR_SIZE];
};

static int file_name(const char *service, char name[SC_ADDR_NAME_MAX])
{
	char addr[SC_ADDR_SIZE];

	if (sc_addr_service(service, addr)) {
		sc_warn("\"%.63s\" cannot be the name of a service: 1 to 51 characters of A-Z a-z 0-9 . _ "
			": @ + -",
			service);
		return -EINVAL;
	}
	sc_addr_service_file(service, name);
	return 0;
}

static int fill(int fd, const char *addr)
{
	struct sc_abi_service content = { .magic = SC_ABI_SERVICE_MAGIC };
	int err = sc_shmfile_check_size(sizeof(content));
	ssize_t put;

	if (err)
		return err;
	memcpy(content.address, addr, strnlen(addr, sizeof(content.address) - 1));
	put = SC_TRY("service.pwrite", pwrite(fd, &content, sizeof(content), 0));
	if (put == (ssize_t)sizeof(content))
		return 0;
	return put < 0 && errno != EDQUOT ? -errno : -ENOSPC;
}

/*
 * Waits until another reaper, which has the lock, has removed a dead process's name. Polls: no event tells of that, and
 * a stopped reaper keeps the lock.
 */
static int reap_slow(const char *name)
{
	const struct timespec moment = { 0, 1000000 };
	int ret = -EBUSY;

	for (int i = 0; ret == -EBUSY && i < REAP_WAIT_MS && sc_owner_left_service(name); i++) {
		if (!i)
			sc_info(SC_HOST_DIR "/%s is a dead process's, and another process is removing it: "
					    "waiting for that",
				name);
		nanosleep(&moment, NULL);
		ret = sc_reap_name(name);
	}
	return ret;
}

int sc_service_publish(struct sc_shmfile *file, const char *name)
{
	int err = -EEXIST;

	for (int tries = 0; err == -EEXIST && tries < REAP_TRIES; tries++) {
		int reaped;

		err = sc_shmfile_publish(file, name);
		if (err != -EEXIST)
			return err;
		reaped = sc_reap_name(name);
		if (reaped == -EBUSY)
			reaped = reap_slow(name);
		if (reaped == -EACCES)
			sc_warn(SC_HOST_DIR
				"/%s is in the way and not a regular file of this user with mode "
				"0600; remove it or choose another name",
				name);
		if (reaped < 0)
			return reaped == -EBUSY ? -EADDRINUSE : reaped;
	}
	return -EADDRINUSE; /* each time another process was faster */
}

static int hold(const char *service, const char *name, const char *addr, struct sc_service **held)
{
	struct sc_service *new;
	int err;

	if (sc_addr_kind(addr) != SC_ADDR_ENDPOINT)
		return -EINVAL;
	new = calloc(1, sizeof(*new));
	if (!new) {
		sc_warn("no memory for the service %s", service);
		return -ENOMEM;
	}
	memcpy(new->address, addr, sizeof(new->address));
	err = sc_shmfile_create(&new->file);
	if (err)
		goto free_new;
	err = fill(new->file.fd, addr);
	if (err) {
		if (err != -EFBIG)
			sc_warn("cannot write the file of service %s: %s; is " SC_HOST_DIR " full?",
				service, strerror(-err));
		goto close_file;
	}
	err = sc_service_publish(&new->file, name);
	if (err == -EADDRINUSE && sc_owner_left_service(name))
		sc_warn("cannot take the service name %s: another process is removing or taking it; try "
			"again (" SC_HOST_DIR "/%s)",
			service, name);
	else if (err == -EADDRINUSE)
		sc_warn("the service %s is taken by a live process (" SC_HOST_DIR "/%s); choose another",
			service, name);
	if (err)
		goto close_file;
	*held = new;
	return 0;

close_file:
	(void)sc_shmfile_put(&new->file); /* without a name: no reader borrows it */
	sc_shmfile_close(&new->file);
free_new:
	free(new);
	return err;
}

int sc_service_create(const char *service, const char *addr, struct sc_service **held)
{
	char name[SC_ADDR_NAME_MAX];
	int err = file_name(service, name);

	return err ? err : hold(service, name, addr, held);
}

/*
 * The service that announces an address is named by what follows the prefix there. No application can choose that name,
 * because such a text is an address of an endpoint.
 */
static const char *announcement(const char *addr, char name[SC_ADDR_NAME_MAX])
{
	const char *service = addr + sizeof(SC_ADDR_PREFIX) - 1;

	sc_addr_service_file(service, name);
	return service;
}

int sc_service_announce(const char *addr, struct sc_service **held)
{
	char name[SC_ADDR_NAME_MAX];

	return hold(announcement(addr, name), name, addr, held);
}

static void put(struct sc_service *held)
{
	if (!sc_shmfile_put(&held->file))
		return;
	sc_shmfile_close(&held->file);
	free(held);
}

void sc_service_destroy(struct sc_service *held)
{
	sc_shmfile_unlink(&held->file); /* does nothing in a forked child */
	put(held);
}

static bool find_own(const char *name, char *out)
{
	struct sc_shmfile *file = sc_shmfile_borrow(name);
	struct sc_service *held;

	if (!file)
		return false;
	held = sc_list_entry(file, struct sc_service, file);
	memcpy(out, held->address, SC_ADDR_SIZE);
	put(held);
	return true;
}

static int refuse(const char *service)
{
	sc_info("nobody holds the service %s: its process has ended or was never started", service);
	return -ECONNREFUSED;
}

static int read_other(const char *service, const char *name, int fd, const struct stat *st, char *out)
{
	struct sc_abi_service content;
	int alive = sc_lifelock_check(fd, NULL);
	struct sc_addr parts;

	if (alive < 0) {
		sc_warn("cannot tell whether the holder of service %s lives: %s (" SC_HOST_DIR "/%s)",
			service, strerror(-alive), name);
		return alive;
	}
	if (!alive)
		return -ECONNREFUSED;
	if (st->st_size != (off_t)sizeof(content) ||
	    SC_TRY("service.pread", pread(fd, &content, sizeof(content), 0)) != (ssize_t)sizeof(content) ||
	    content.magic != SC_ABI_SERVICE_MAGIC || sc_addr_parse(content.address, &parts)) {
		sc_warn("the file of service %s is not one of this version of shmcma (" SC_HOST_DIR
			"/%s); use one build for all processes",
			service, name);
		return -EPROTO;
	}
	memcpy(out, content.address, SC_ADDR_SIZE);
	return 0;
}

static int find(const char *service, const char *name, char *out)
{
	struct stat st;
	int fd, err;

	if (find_own(name, out))
		return 0;
	fd = sc_otherfile_open(name, &st);
	if (fd == -ENOENT ||
	    fd == -EBUSY) /* EBUSY: in this process, but held by another copy of the library */
		return -ECONNREFUSED;
	if (fd == -EACCES)
		sc_warn("the file of service %s is not a regular one of this user with mode 0600 "
			"(" SC_HOST_DIR "/%s); remove that file",
			service, name);
	if (fd < 0)
		return fd;
	err = read_other(service, name, fd, &st, out);
	sc_otherfile_close(fd);
	return err;
}

int sc_service_find(const char *service, char *out)
{
	char name[SC_ADDR_NAME_MAX];
	int err = file_name(service, name);

	if (!err)
		err = find(service, name, out);
	return err == -ECONNREFUSED ? refuse(service) : err;
}

bool sc_service_announces(const char *addr)
{
	char name[SC_ADDR_NAME_MAX], found[SC_ADDR_SIZE];
	const char *service = announcement(addr, name);

	return !find(service, name, found);
}

int sc_addr_resolve(const char *addr, char *out)
{
	char found[SC_ADDR_SIZE];
	int err = 0;

	switch (sc_addr_kind(addr)) {
	case SC_ADDR_ENDPOINT:
		memcpy(found, addr, SC_ADDR_SIZE);
		break;
	case SC_ADDR_SERVICE:
		err = sc_service_find(addr + sizeof(SC_ADDR_PREFIX) - 1, found);
		break;
	default:
		sc_warn("\"%.63s\" is not an address of shmcma (" SC_ADDR_PREFIX "...)", addr);
		err = -EINVAL;
	}
	if (!err)
		err = sc_seg_find(found);
	if (err == -ECONNREFUSED && sc_addr_kind(addr) == SC_ADDR_ENDPOINT && sc_service_announces(addr))
		err = 0;
	if (!err)
		memcpy(out, found, SC_ADDR_SIZE);
	return err;
}
