/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * leftover.c: tells whether a process of this user that is no peer has ended, so that reap.c must remove its files.
 *
 * The daemon's thread looks twice a second. It reads the names in /dev/shm only when the directory has changed. It asks
 * the kernel about the processes that follow this one in the order of pids (the first follows the last), until
 * SC_LEFTOVER_NEXT of them live. So after any number of deaths a living process looks at a dead one next to it, and its
 * scan removes the files of all dead processes. SC_LEFTOVER_NEXT is more than 1 because a process that is stopped, or
 * has no daemon's thread, does not look. A look takes the same time for 16 processes as for 1,000.
 *
 * A pid of another pid namespace belongs to no process here, or to a different one. A pid that another process has now
 * hides the dead process. The daemon's scan every 30 seconds finds the files in both cases.
 *
 * Other processes write the names: a false name causes one scan, in which the kernel proves each death. If this process
 * dies at any step, nothing remains.
 */
#define _GNU_SOURCE 1
#include "proc/leftover.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/fault.h"
#include "os/addr.h"
#include "os/host.h"
#include "proc/reap.h"

static void add_name(const char *name, void *arg)
{
	struct sc_leftovers *leftovers = arg;
	struct sc_addr parts;

	if (sc_addr_parse_file(name, &parts) || !parts.pid || parts.pid > INT32_MAX)
		return; /* a service: the segment of its endpoint has a name, too */
	if (leftovers->count == leftovers->room) {
		size_t room = leftovers->room ? leftovers->room * 2 : 64;
		uint32_t *pids = SC_TRY_PTR("leftover.pids", NULL,
					    realloc(leftovers->pids, room * sizeof(*pids)));

		if (!pids)
			return;
		leftovers->pids = pids;
		leftovers->room = room;
	}
	leftovers->pids[leftovers->count++] = parts.pid;
}

static int by_pid(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void read_names(struct sc_leftovers *leftovers)
{
	size_t kept = 0;

	leftovers->count = 0;
	(void)sc_reap_names(add_name, leftovers);
	if (leftovers->count)
		qsort(leftovers->pids, leftovers->count, sizeof(leftovers->pids[0]), by_pid);
	for (size_t i = 0; i < leftovers->count; i++)
		if (!kept || leftovers->pids[i] != leftovers->pids[kept - 1])
			leftovers->pids[kept++] = leftovers->pids[i];
	leftovers->count = kept;
}

/*
 * Tells whether no process with memory has that pid. A zombie has no memory: a read of it fails before the kernel
 * checks the rights of the reader. This takes a fifth of the time of a look at a file.
 */
static bool has_no_memory(uint32_t pid)
{
	uint8_t byte;
	struct iovec here = { &byte, sizeof(byte) }, nowhere = { NULL, sizeof(byte) };

	if (SC_TRY("leftover.kill", kill((pid_t)pid, 0)))
		return errno == ESRCH;
	return SC_TRY("leftover.zombie", process_vm_readv((pid_t)pid, &here, 1, &nowhere, 1, 0)) < 0 &&
	       errno == ESRCH;
}

/* A process that ends loses its memory before the kernel closes its files, and so frees its life lock. */
static bool has_ended(uint32_t pid)
{
	return has_no_memory(pid) && sc_host_has_ended((pid_t)pid, 0);
}

bool sc_leftover_is_here(void)
{
	struct sc_leftovers leftovers = { 0 };
	bool here = false;

	read_names(&leftovers);
	for (size_t i = 0; i < leftovers.count && !here; i++)
		here = has_no_memory(leftovers.pids[i]);
	sc_leftover_fini(&leftovers);
	return here;
}

/* The clock of the directory may stand still for some milliseconds: the look after a change reads the names again. */
static bool has_changed(struct sc_leftovers *leftovers)
{
	struct timespec before = leftovers->changed;
	bool settled = leftovers->settled;
	struct stat st;

	if (SC_TRY("leftover.dir", stat(SC_HOST_DIR, &st)))
		return false;
	leftovers->changed = st.st_mtim;
	leftovers->settled = before.tv_sec == st.st_mtim.tv_sec && before.tv_nsec == st.st_mtim.tv_nsec;
	return !leftovers->settled || !settled;
}

static size_t first_after_self(const struct sc_leftovers *leftovers)
{
	uint32_t self = (uint32_t)getpid();
	size_t first = 0;

	while (first < leftovers->count && leftovers->pids[first] <= self)
		first++;
	return first;
}

bool sc_leftover_look(struct sc_leftovers *leftovers)
{
	size_t first, living = 0;
	uint64_t ended = 0;
	bool new;

	if (has_changed(leftovers))
		read_names(leftovers);
	first = first_after_self(leftovers);
	for (size_t i = 0; i < leftovers->count && living < SC_LEFTOVER_NEXT; i++) {
		uint32_t pid = leftovers->pids[(first + i) % leftovers->count];

		if (has_ended(pid))
			ended += pid * UINT64_C(0x9e3779b97f4a7c15);
		else
			living++;
	}
	new = ended && ended != leftovers->ended;
	leftovers->ended = ended;
	return new;
}

void sc_leftover_fini(struct sc_leftovers *leftovers)
{
	free(leftovers->pids);
	*leftovers = (struct sc_leftovers){ 0 };
}
