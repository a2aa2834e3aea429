/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * schedule.h: two processes and the actions that happen to them at the points of src/base/fault.h.
 *
 * The driver lays out a schedule in memory that both share with it (struct control) and forks them; it makes
 * no call of the core itself. Each process counts how often it reaches a point; at the point that the schedule
 * names, it dies, stops, or sees a call fail. The driver continues a stopped process once the other has polled
 * for a while, tells each when the other has ended, and gives both a minute, or more if they hardly get a
 * processor.
 *
 * To be included once, by the driver.
 */
#ifndef FAULT_SCHEDULE_H
#define FAULT_SCHEDULE_H

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POINTS_MAX 1024
#define INJECTIONS 4
/* After so long a schedule hangs, if both have had so much of a processor; without, after so long. */
#define HANG_MS 60000
#define HANG_CPU_MS 5000
#define HANG_IDLE_MS 600000
#define RECENT 12
/* How long a process is stopped: so many polls of the other's (it asks after a peer each 1,024), */
#define STOP_POLLS 2500
/* or so long, if the other is in a call that waits for it. */
#define STOP_MS 30

/* ---- points ---------------------------------------------------------------------------------- */

/* As in src/base/fault.h of a build with fault injection; the section is empty without. */
struct sc_fault_site {
	const char *point, *call;
	bool fails;
	const char *file;
	int line;
};
extern struct sc_fault_site *__start_sc_fault_sites[] __attribute__((weak));
extern struct sc_fault_site *__stop_sc_fault_sites[] __attribute__((weak));
extern int (*_Atomic sc_fault_hook)(const char *point) __attribute__((weak));

static const struct sc_fault_site *points[POINTS_MAX]; /* by name */
static int point_count;

static int by_name(const void *left, const void *right)
{
	return strcmp((*(const struct sc_fault_site *const *)left)->point,
		      (*(const struct sc_fault_site *const *)right)->point);
}

/* Inline functions have their points in several objects. */
static void points_init(void)
{
	int used = 0;

	for (struct sc_fault_site **site = __start_sc_fault_sites; site < __stop_sc_fault_sites;
	     site++) {
		if (point_count == POINTS_MAX) {
			fprintf(stderr, "more than %d points\n", POINTS_MAX);
			exit(1);
		}
		points[point_count++] = *site;
	}
	qsort(points, (size_t)point_count, sizeof(points[0]), by_name);
	for (int i = 0; i < point_count; i++)
		if (!used || strcmp(points[i]->point, points[used - 1]->point))
			points[used++] = points[i];
	point_count = used;
}

static int point_find(const char *name)
{
	struct sc_fault_site key = { .point = name };
	const struct sc_fault_site *at = &key, **found;

	found = bsearch(&at, points, (size_t)point_count, sizeof(points[0]), by_name);
	return found ? (int)(found - points) : -1;
}

/* One that the tests themselves name: it is there. */
static int point_named(const char *name)
{
	int point = point_find(name);

	if (point < 0) {
		fprintf(stderr, "no point is named %s\n", name);
		exit(1);
	}
	return point;
}

/* The same by the name's address, which is the same at each visit: a table that fills as it goes. */
static int point_of(const char *name)
{
	static struct {
		_Atomic(const char *) name;
		atomic_int id; /* + 1 */
	} table[4096];
	uint32_t at = (uint32_t)((uintptr_t)name * 0x9e3779b97f4a7c15u >> 52);

	for (;; at = (at + 1) % 4096) {
		const char *there = NULL;

		if (atomic_compare_exchange_strong(&table[at].name, &there, name) || there == name)
			break;
	}
	if (!table[at].id)
		table[at].id = point_find(name) + 1;
	return table[at].id - 1;
}

/* ---- the schedule ---------------------------------------------------------------------------- */

enum action { NOTHING, KILL, STOP, FAIL };

/* A side does one of these wrongs on purpose, to show that the test finds it. */
enum sabotage {
	HONEST,
	KEEPS_DESCRIPTOR,
	KEEPS_MAPPING,
	KEEPS_NAME,
	KEEPS_BUFFER,
	COMPLETES_TWICE,
	COMPLETES_NEVER,
	LOSES_MESSAGE,
	SPOILS_MESSAGE,
	DIES,
	HANGS,
};

struct injection {
	enum action action;
	int side, point, err;
	unsigned nth;
	atomic_bool fired;
};

/* Each process tells the others this about itself. */
struct side_state {
	char address[64];
	char left[64]; /* of an endpoint whose process has died */
	uint64_t keys[4], addr;
	_Atomic unsigned stage;	   /* of its work, see wait_stage() */
	atomic_bool settled;	   /* its own operations are over, */
	atomic_bool finished;	   /* and it waits for nothing any more */
	atomic_bool leaving;	   /* it is closing its endpoint, */
	atomic_bool closed;	   /* and has */
	atomic_bool gone, killed;  /* its process, by the driver */
	_Atomic unsigned begun;	   /* sends that have been called, */
	_Atomic unsigned returned; /* that have been accepted, */
	_Atomic unsigned eager;	   /* of those, whose payload is in shared memory */
	_Atomic unsigned long polls;
	char where[64], complaint[256];
	_Atomic unsigned recent_at;
	int recent[RECENT];
	_Atomic unsigned hits[POINTS_MAX];
};

struct control {
	struct injection injections[INJECTIONS];
	enum sabotage sabotage; /* of one side */
	int saboteur;
	struct side_state sides[2];
};

static struct control *control;
static int my_side = -1; /* -1: nothing is injected */

/* ---- in the processes ------------------------------------------------------------------------ */

static int injected(struct injection *injection)
{
	atomic_store(&injection->fired, true);
	switch (injection->action) {
	case KILL:
		raise(SIGKILL);
		_exit(137); /* the first process of a pid namespace */
	case STOP:
		kill(getpid(), SIGSTOP);
		return 0;
	default:
		return injection->err;
	}
}

static int at_point(const char *name)
{
	struct side_state *me;
	unsigned nth;
	int id;

	if (my_side < 0)
		return 0;
	me = &control->sides[my_side];
	id = point_of(name);
	nth = atomic_fetch_add(&me->hits[id], 1) + 1;
	me->recent[atomic_fetch_add(&me->recent_at, 1) % RECENT] = id;
	for (int i = 0; i < INJECTIONS; i++) {
		struct injection *injection = &control->injections[i];

		if (injection->action && injection->side == my_side && injection->point == id &&
		    injection->nth == nth)
			return injected(injection);
	}
	return 0;
}

__attribute__((format(printf, 1, 2), noreturn)) static void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(control->sides[my_side].complaint, sizeof(control->sides[my_side].complaint), format,
		  args);
	va_end(args);
	_exit(1);
}

/* ---- the driver ------------------------------------------------------------------------------ */

/* Sides' work, each in a process of its own. */
typedef void side_body(void *arg, int side);

static void run_side(side_body *body, void *arg, int side)
{
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)setpgid(0, 0); /* for collect() */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	my_side = side;
	sc_fault_hook = at_point;
	body(arg, side);
	_exit(0);
}

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

struct run {
	pid_t pids[2];
	int status[2];
	bool running[2];
	bool hung;
	uint64_t begun;
};

/* It has stopped: the other goes on for a while, then it goes on, too. */
static void sit_out(const struct run *run, int side)
{
	struct side_state *other = &control->sides[!side];
	unsigned long polls = other->polls;
	uint64_t begin = now_ms();

	while (!other->gone && !other->closed && other->polls - polls < STOP_POLLS &&
	       now_ms() - begin < STOP_MS) {
		struct timespec moment = { 0, 50000 };
		siginfo_t info = { 0 };

		/* does it live? (left for collect() to reap) */
		if (!run->running[!side] ||
		    (!waitid(P_PID, (id_t)run->pids[!side], &info, WEXITED | WNOHANG | WNOWAIT) &&
		     info.si_pid))
			break;
		nanosleep(&moment, NULL);
	}
	kill(run->pids[side], SIGCONT);
}

static void collect(struct run *run)
{
	for (int side = 0; side < 2; side++) {
		int status;

		if (!run->running[side] ||
		    waitpid(run->pids[side], &status, WNOHANG | WUNTRACED) != run->pids[side])
			continue;
		if (WIFSTOPPED(status)) {
			sit_out(run, side);
			continue;
		}
		/* its children, the driver's by now (it is their subreaper): they may be making a name still */
		while (waitpid(-run->pids[side], NULL, 0) > 0)
			;
		run->running[side] = false;
		run->status[side] = status;
		atomic_store(&control->sides[side].killed, WIFSIGNALED(status));
		atomic_store(&control->sides[side].gone, true);
	}
}

static uint64_t cpu_ms(pid_t pid)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &time))
		return 0;
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* A line of /proc of a process of ours. */
static void read_stat(pid_t pid, char *text, int size)
{
	char path[64];
	FILE *file;

	text[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (file && !fgets(text, size, file))
		text[0] = '\0';
	if (file)
		fclose(file);
}

static bool wants_cpu(pid_t pid)
{
	char text[160];

	read_stat(pid, text, sizeof(text));
	return strstr(text, ") R ") != NULL;
}

/*
 * A process that the system does not let run, or waits for such a one, is no hang. One that turns in circles
 * has had its time of the processor soon; one that sleeps for so long is never to wake.
 */
static bool has_hung(const struct run *run)
{
	uint64_t elapsed = now_ms() - run->begun, limit = HANG_MS;

	if (control->sabotage == HANGS)
		return elapsed > HANG_CPU_MS;
	for (int side = 0; side < 2; side++) {
		if (!run->running[side] || cpu_ms(run->pids[side]) >= HANG_CPU_MS)
			continue;
		if (wants_cpu(run->pids[side]))
			return false;
		limit = HANG_IDLE_MS;
	}
	return elapsed > limit;
}

static void tell_hang(const struct run *run)
{
	for (int side = 0; side < 2; side++) {
		const struct side_state *state = &control->sides[side];
		char text[160];

		read_stat(run->pids[side], text, sizeof(text));
		printf("  side %d: %s, in %s, %lu polls, /proc/<pid>/stat %s; last points:", side,
		       run->running[side] ? "runs" : "has ended", state->where, state->polls, text);
		for (unsigned i = state->recent_at > RECENT ? state->recent_at - RECENT : 0;
		     i < state->recent_at; i++)
			printf(" %s", points[state->recent[i % RECENT]]->point);
		printf("\n");
	}
}

/* The schedule in `control`, to its end. */
static struct run run_both(side_body *body, void *arg)
{
	struct run run = { .running = { true, true }, .begun = now_ms() };
	sigset_t child;

	fflush(NULL);
	for (int side = 0; side < 2; side++) {
		run.pids[side] = fork();
		if (run.pids[side] < 0) {
			perror("fork");
			exit(1);
		}
		if (!run.pids[side])
			run_side(body, arg, side);
	}
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD); /* blocked in the driver */
	while (run.running[0] || run.running[1]) {
		struct timespec while_ = { 1, 0 };

		collect(&run);
		if (!run.running[0] && !run.running[1])
			break;
		if (!run.hung && has_hung(&run)) {
			run.hung = true;
			if (control->sabotage != HANGS)
				tell_hang(&run);
			for (int side = 0; side < 2; side++)
				if (run.running[side])
					kill(run.pids[side], SIGKILL);
		}
		(void)sigtimedwait(&child, NULL, &while_);
	}
	return run;
}

#endif
