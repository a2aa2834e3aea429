/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * leftover.c: tells whether a process of this user that has nothing to do with this one has ended, so that its files
 * are to be removed (reap.c).
 *
 * The daemon's thread looks twice a second. It reads the names in /dev/shm only when the directory has changed, and
 * asks the kernel about the next SC_LEFTOVER_NEXT living processes in the order of the pids, the first after the last.
 * Of any number that die, a living process looks at the one that comes next to it; the scan that follows removes the
 * files of all the dead. One would do; but a process that is stopped, or has no thread, does not look, and the more
 * look at a process the more of those it takes that nobody sees its end. A look takes as long whether there are
 * 16 processes or 1,000.
 *
 * A pid of another pid namespace is nobody's here, or another's. A pid that has been given to another process hides
 * the dead one. The daemon's scan every 30 seconds finds the files of both.
 *
 * Names are written by others: a false one causes a scan, once. The kernel proves the death there. If this process
 * dies at any step nothing remains.
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
		return; /* a service: its endpoint has a name of its own */
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
 * Does no process with memory have that pid? A zombie has none: to read it is an error before the kernel checks any
 * right of the reader. A fifth of the time of a look at a file.
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

/* One that ends has no memory before its files are closed, and so its life lock free. */
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

/* The clock of the directory may stand still for some milliseconds: the names are read again at the look after. */
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

/* The first pid that is higher than this process's. */
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
