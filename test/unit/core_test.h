/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core_test.h: for the unit tests of what lies in shared memory: files, and calls that fail.
 *
 * core_failing() needs a build with fault injection; in other builds it returns false, and the test does without the
 * failing call. A forked child inherits the failing call of its parent.
 */
#ifndef CORE_TEST_H
#define CORE_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "os/addr.h"
#include "base/fault.h"
#include "os/shmfile.h"

/* The file of the endpoint with that address, or, `pid` not 0, by the name that a process of that pid would have given. */
static inline void core_path(const char *address, pid_t pid, char path[SC_SHMFILE_PATH_MAX])
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;

	if (sc_addr_parse(address, &parts))
		abort();
	parts.pid = pid ? (uint32_t)pid : parts.pid;
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
}

/* Has the endpoint of that address a file? */
static inline bool core_has_file(const char *address)
{
	char path[SC_SHMFILE_PATH_MAX];

	core_path(address, 0, path);
	return !access(path, F_OK);
}

#ifdef SC_FAULT_INJECTION

/* The core's own thread reads them, too. */
static const char *_Atomic core_failing_point;
static _Atomic int core_failing_error, core_failing_passes;

static inline int core_at_point(const char *point)
{
	const char *failing = core_failing_point;

	if (!failing || strcmp(point, failing))
		return 0;
	return core_failing_passes-- > 0 ? 0 : core_failing_error;
}

/*
 * In this process the call at that point of fault.h succeeds `passes` times and fails from then on. Returns false if
 * this build cannot do that.
 */
static inline bool core_failing_after(const char *point, int error, int passes)
{
	core_failing_error = error;
	core_failing_passes = passes;
	core_failing_point = point;
	sc_fault_hook = core_at_point;
	return true;
}

/* Returns how often the call has failed since, if it fails from the first pass on. */
static inline int core_failed(void)
{
	return -core_failing_passes;
}

/* core_fencing() */
static const char *core_fenced_point;
static void (*core_fenced)(void);

static inline int core_at_fence(const char *point)
{
	static bool is_next;

	if (!strcmp(point, "atomic.fence") && (is_next || !core_fenced_point))
		core_fenced();
	is_next = core_fenced_point && !strcmp(point, core_fenced_point);
	return 0;
}

/*
 * At each full fence of this process that follows the point `before` (NULL: at each), the other side's stores become
 * visible: `body` makes them. It is the latest instant at which they may, so the loads behind the fence must see
 * them. False: cannot be; core_failing(NULL, 0) ends it.
 */
static inline bool core_fencing(const char *before, void (*body)(void))
{
	core_fenced_point = before;
	core_fenced = body;
	sc_fault_hook = core_at_fence;
	return true;
}

#else

/* test/report.sh gives this line as the reason of what is skipped. It is flushed, as a child may end by _exit(2). */
static inline bool core_without_points(void)
{
	puts("needs a build with fault injection");
	fflush(stdout);
	return false;
}

static inline bool core_fencing(const char *before, void (*body)(void))
{
	(void)before;
	(void)body;
	return core_without_points();
}

static inline bool core_failing_after(const char *point, int error, int passes)
{
	(void)point;
	(void)error;
	(void)passes;
	return core_without_points();
}

static inline int core_failed(void)
{
	return 0;
}

#endif

/* From now on. NULL: none fails any more. */
static inline bool core_failing(const char *point, int error)
{
	return core_failing_after(point, error, 0);
}

#endif
