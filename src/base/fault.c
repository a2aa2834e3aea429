/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fault.c: arms the points of fault.h from the environment; in builds for tests only.
 *
 * 	SHMCMA_FAULT=shmfile.link:kill		SIGKILL, the first time the point is reached
 * 	SHMCMA_FAULT=shmfile.link:stop:3		SIGSTOP, the third time; goes on after SIGCONT
 * 	SHMCMA_FAULT=shmfile.link:28		the point yields ENOSPC, the first time
 *
 * A test program that has the core linked in may use a function of its own instead (sc_fault_hook).
 *
 * The first point that is reached reads the environment, once; a child of fork() inherits the setting and the count. An
 * invalid setting ends the process: a test with a typing error must not pass. Any thread may reach a point; there is no
 * lock that a fork could leave taken.
 */
#include "base/fault.h"

#ifndef SC_FAULT_INJECTION

typedef int sc_fault_is_not_built;

#else

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	ACTION_KILL = -1,
	ACTION_STOP = -2,
	ERRNO_MAX = 4095,
};

static struct {
	pthread_once_t once;
	_Atomic unsigned long reached; /* count for the point */
	char point[128];	       /* "": none */
	int action;		       /* an errno or ACTION_* */
	unsigned long nth;
} armed = { .once = PTHREAD_ONCE_INIT };

static bool parse_number(const char *text, long max, long *number)
{
	char *end;

	*number = strtol(text, &end, 10);
	return end != text && !*end && *number >= 1 && *number <= max;
}

static bool parse_action(const char *text, int *action)
{
	long number;

	if (!strcmp(text, "kill"))
		*action = ACTION_KILL;
	else if (!strcmp(text, "stop"))
		*action = ACTION_STOP;
	else if (parse_number(text, ERRNO_MAX, &number))
		*action = (int)number;
	else
		return false;
	return true;
}

/* point:action[:nth] */
static bool parse(const char *text)
{
	char copy[sizeof(armed.point) + 32], *action, *nth;
	long number = 1;

	if (strlen(text) >= sizeof(copy))
		return false;
	strcpy(copy, text);
	action = strchr(copy, ':');
	if (!action || action == copy || (size_t)(action - copy) >= sizeof(armed.point))
		return false;
	*action++ = '\0';
	nth = strchr(action, ':');
	if (nth)
		*nth++ = '\0';
	if (!parse_action(action, &armed.action) || (nth && !parse_number(nth, 1000000000, &number)))
		return false;
	armed.nth = (unsigned long)number;
	strcpy(armed.point, copy);
	return true;
}

static void arm(void)
{
	const char *text = getenv("SHMCMA_FAULT");

	if (text && *text && !parse(text)) {
		fprintf(stderr, "shmcma: SHMCMA_FAULT=%s is not point:kill|stop|<errno number>[:nth]\n",
			text);
		abort();
	}
}

static int act(void)
{
	switch (armed.action) {
	case ACTION_KILL:
		raise(SIGKILL);
		_exit(128 + SIGKILL); /* the first process of a pid namespace survives its own SIGKILL */
	case ACTION_STOP:
		raise(SIGSTOP); /* to this thread: it does not run past this line until SIGCONT */
		return 0;
	default:
		return armed.action;
	}
}

static int from_environment(const char *point)
{
	pthread_once(&armed.once, arm);
	if (strcmp(point, armed.point) || atomic_fetch_add(&armed.reached, 1) + 1 != armed.nth)
		return 0;
	return act();
}

int (*_Atomic sc_fault_hook)(const char *point) = from_environment;

int sc_fault(const char *point)
{
	int saved = errno;
	int err = sc_fault_hook(point);

	errno = saved;
	return err;
}

long sc_fault_done(const char *point, long result)
{
	(void)sc_fault(point);
	return result;
}

void *sc_fault_done_ptr(const char *point, void *result)
{
	(void)sc_fault(point);
	return result;
}

#endif
