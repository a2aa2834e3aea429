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
 * Other processes, also of other users, write the names: a false name causes one scan, in which the kernel proves each
 * death. A look asks about a process until it has told of its end, so any number of names that stay costs nothing later.
 * If this process dies at any step, nothing remains.
 */
#define _GNU_SOURCE 1
#include "proc/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/fault.h"
#include "os/addr.h"
#include "os/host.h"
#include "os/shmfile.h"
#include "proc/reap.h"

/*
 * The file of an announced address may be the only one of its process. The name of another service has no pid; but
 * nearly always the segment of its endpoint has a name, too, and else the scan finds it.
 */
static bool names_process(const char *name, struct sc_addr *parts)
{
	if (sc_addr_parse_file(name, parts) && sc_addr_parse_announcement(name, parts))
		return false;
	return parts->pid && parts->pid <= INT32_MAX;
}

static void add_name(const char *name, void *arg)
{
	struct sc_leftovers *leftovers = arg;
	struct sc_leftover *process;
	struct sc_addr parts;

	if (!names_process(name, &parts))
		return;
	if (leftovers->count == leftovers->room) {
		size_t room = leftovers->room ? leftovers->room * 2 : 64;

		process = SC_TRY_PTR("leftover.processes", NULL,
				     realloc(leftovers->processes, room * sizeof(*process)));
		if (!process) {
			leftovers->settled = false;
			return;
		}
		leftovers->processes = process;
		leftovers->room = room;
	}
	process = &leftovers->processes[leftovers->count++];
	*process = (struct sc_leftover){ .pid = parts.pid };
	memcpy(&process->nonce, parts.nonce, sizeof(process->nonce));
}

static int by_pid(const void *left, const void *right)
{
	const struct sc_leftover *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return (a->nonce > b->nonce) - (a->nonce < b->nonce);
}

/* Looks the processes up among those of the last look: what had ended then has not begun again. */
static void keep_ended(struct sc_leftovers *leftovers, const struct sc_leftovers *before)
{
	size_t old = 0;

	for (size_t i = 0; i < leftovers->count; i++) {
		struct sc_leftover *process = &leftovers->processes[i];

		while (old < before->count && by_pid(&before->processes[old], process) < 0)
			old++;
		process->ended = old < before->count && !by_pid(&before->processes[old], process) &&
				 before->processes[old].ended;
	}
}

static void read_names(struct sc_leftovers *leftovers)
{
	struct sc_leftovers before = *leftovers;
	size_t kept = 0;

	leftovers->processes = NULL;
	leftovers->count = leftovers->room = 0;
	if (sc_reap_names(add_name, leftovers))
		leftovers->settled = false; /* no descriptor, say: the next look reads the names again */
	if (leftovers->count)
		qsort(leftovers->processes, leftovers->count, sizeof(leftovers->processes[0]), by_pid);
	for (size_t i = 0; i < leftovers->count; i++)
		if (!kept || by_pid(&leftovers->processes[i], &leftovers->processes[kept - 1]))
			leftovers->processes[kept++] = leftovers->processes[i];
	leftovers->count = kept;
	keep_ended(leftovers, &before);
	free(before.processes);
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

struct finding {
	uint32_t living; /* the last process that lives: often the next name is its, too */
	int others;	 /* files of other users */
	bool here;
};

static void find_leftover(const char *name, void *arg)
{
	struct finding *finding = arg;
	char path[SC_SHMFILE_PATH_MAX];
	struct sc_addr parts;
	struct stat st;

	if (finding->here || finding->others == SC_LEFTOVER_OTHERS || !names_process(name, &parts) ||
	    parts.pid == finding->living)
		return;
	if (!has_no_memory(parts.pid)) {
		finding->living = parts.pid;
		return;
	}
	sc_shmfile_path(name, path);
	if (!SC_TRY("leftover.file", fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW)) &&
	    st.st_uid == geteuid())
		finding->here = true;
	else
		finding->others++;
}

bool sc_leftover_is_here(void)
{
	struct finding finding = { 0 };

	(void)sc_reap_names(find_leftover, &finding);
	return finding.here;
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

	while (first < leftovers->count && leftovers->processes[first].pid <= self)
		first++;
	return first;
}

bool sc_leftover_look(struct sc_leftovers *leftovers)
{
	size_t first, living = 0;
	uint32_t alive = 0;
	bool new = false;

	if (has_changed(leftovers))
		read_names(leftovers);
	first = first_after_self(leftovers);
	for (size_t i = 0; i < leftovers->count && living < SC_LEFTOVER_NEXT; i++) {
		struct sc_leftover *process = &leftovers->processes[(first + i) % leftovers->count];

		if (process->ended || process->pid == alive)
			continue;
		process->ended = has_ended(process->pid);
		new |= process->ended;
		if (!process->ended) {
			alive = process->pid;
			living++;
		}
	}
	return new;
}

void sc_leftover_fini(struct sc_leftovers *leftovers)
{
	free(leftovers->processes);
	*leftovers = (struct sc_leftovers){ 0 };
}
