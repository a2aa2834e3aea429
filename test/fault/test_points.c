/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_points: every point of src/base/fault.h, in every protocol and role that reaches it: the process is killed
 * there, or stopped for a while, or sees the call fail with each errno that it may have. protocols.h says
 * what the two processes must find then; the driver checks that no name is left.
 *
 * First the test checks that it finds each wrong of a side (enum sabotage), also in the survivor of the other.
 *
 * Then each protocol is run without injection, to learn which points each side reaches and how often; so only
 * schedules that can fire are run: at the first, a middle and the last time (polls may reach a point less often the
 * next time). Points that only a failed call or a death leads to are reached by that in a second pass.
 * With FAULT_POINTS=once in the environment each point is visited the first time it is reached in each protocol
 * and role, by one of the actions that it can have, in turn, and then by each of them that has not fired yet.
 * For each processor there is a process of the test, with a /dev/shm of its own, which takes every n-th point, or
 * protocol.
 * Either way each action fires once at least at each point, and each role of each protocol meets each of its
 * points; else the test has failed.
 *
 *	test_points				all; the last line sums up
 *	test_points PROTOCOL [SIDE [POINT]]	these only (SIDE 0 or 1), every schedule printed
 *	test_points PROTOCOL SIDE POINT kill|stop|ERRNO [NTH]	this one
 */
#define _GNU_SOURCE 1
#undef SC_FAULT_INJECTION /* its own code has no points: in builds without any it is compiled, too, and skips */
#include "schedule.h"
#include "protocols.h"
#include "../unit/child.h"

#define NAMES_DIR "/dev/shm"
#define CHANCES 10    /* rounds, to find the points that only some runs of a protocol reach */
#define INSISTENCE 50 /* tries to let such a point fire */
#define ACTIONS_MAX 8
#define FIRST_FAILURE 2 /* of the actions of a point, see action_of() */

/* An injection that has led to a point that no protocol reaches by itself; some depend on which side is quicker. */
#define WAYS 8
struct way {
	const struct protocol *protocol; /* NULL: not known */
	struct injection injection;
	int side;
};

static unsigned counts[PROTOCOLS][2][POINTS_MAX]; /* how often a protocol's sides reach a point, at most */
static bool met[PROTOCOLS][2][POINTS_MAX];	  /* has it fired there? */
static struct way ways[POINTS_MAX][WAYS];
static unsigned fired[POINTS_MAX]; /* by which of its actions, a bit for each; see action_of() */
static unsigned long schedules, violations;
static bool verbose;
static const char *expected; /* a violation of this kind, see check_the_checks() */
static bool seen;

static bool is_done_point(const char *name)
{
	size_t len = strlen(name);

	return len > 5 && !strcmp(name + len - 5, ".done");
}

/* The errnos that a call may fail with, by its name; the lists end with 0. */
static const int *errnos_of(const struct sc_fault_site *site)
{
	static const struct {
		const char *call;
		int errnos[6];
	} lists[] = {
		{ "open(", { EMFILE, ENOMEM, EACCES } },
		{ "opendir", { EMFILE, ENOMEM } },
		{ "fopen", { EMFILE } },
		{ "readdir", { EIO } },
		{ "linkat", { EEXIST, ENOSPC, EPERM } },
		{ "unlink", { EPERM, EBUSY } },
		{ "fallocate", { ENOSPC, EPERM } },
		{ "ftruncate", { ENOSPC, EPERM } },
		{ "mmap", { ENOMEM, EMFILE } },
		{ "madvise", { ENOMEM, EINVAL } },
		{ "process_vm_readv", { EPERM, ENOSYS, ENOMEM, EFAULT, ESRCH } },
		{ "process_vm_writev", { EPERM, ENOSYS, ENOMEM, EFAULT, ESRCH } },
		{ "F_SETLK", { ENOLCK, EAGAIN } },
		{ "F_GETLK", { ENOLCK } },
		{ "pwrite", { ENOSPC, EIO } },
		{ "pidfd_open", { EMFILE, ENOSYS, EPERM } },
		{ "getrandom", { EINTR, ENOSYS } },
		{ "poll(", { EINTR } },
		{ "kill(", { EPERM } },
		{ "getrlimit", { EINVAL } },
		{ "mprotect", { ENOMEM } },
		{ "futex", { ENOSYS, EFAULT } },
		{ "pipe2", { EMFILE } },
		{ "write(", { ENOMEM } },
		{ "read(", { EIO } },
		{ "pthread_atfork", { ENOMEM } },
		{ "fstat(", { ENOMEM } },
		{ "stat", { ENOMEM, EACCES } },
	};
	/* of points without a call's text, and those that are more particular */
	static const struct {
		const char *point;
		int errnos[6];
	} own[] = {
		{ "memory.slot", { ENOSPC, EPERM } },
		{ "memory.table", { ENOSPC, EPERM } },
		/* fail only when the descriptor has been closed, or always */
		{ "shmfile.is_open", { 0 } },
		{ "otherfile.other", { 0 } },
		{ "host.fstat", { 0 } },
		{ "host.fstatfs", { 0 } },
	};
	static const int other[] = { EIO, 0 };

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(site->point, own[i].point))
			return own[i].errnos;
	for (size_t i = 0; site->call && i < sizeof(lists) / sizeof(lists[0]); i++)
		if (strstr(site->call, lists[i].call))
			return lists[i].errnos;
	return other;
}

/* The actions that a point can have, by number; false: there are not so many. */
static bool action_of(int point, unsigned number, struct injection *injection)
{
	const struct sc_fault_site *site = points[point];
	const int *errnos = errnos_of(site);

	if (number < FIRST_FAILURE) {
		injection->action = number ? STOP : KILL;
		return true;
	}
	if (!site->fails || is_done_point(site->point))
		return false;
	for (unsigned i = 0; i < number - FIRST_FAILURE; i++)
		if (!errnos[i])
			return false;
	injection->action = FAIL;
	injection->err = errnos[number - FIRST_FAILURE];
	return injection->err != 0;
}

static unsigned action_number(const struct injection *injection)
{
	struct injection other = { 0 };
	unsigned number = 0;

	while (action_of(injection->point, number, &other) &&
	       (other.action != injection->action || other.err != injection->err))
		number++;
	return number;
}

/* ---- one schedule ---------------------------------------------------------------------------- */

static const char *action_name(const struct injection *injection, char text[32])
{
	if (injection->action == FAIL) {
		snprintf(text, 32, "%d", injection->err);
		return text;
	}
	return injection->action == KILL ? "kill" : injection->action == STOP ? "stop" : "nothing";
}

static void print_schedule(const struct protocol *protocol)
{
	bool any = false;

	printf("'%s'", protocol->name);
	for (int i = 0; i < INJECTIONS; i++) {
		const struct injection *injection = &control->injections[i];
		char text[32];

		if (!injection->action)
			continue;
		printf("%s %d %s %s %u (%s%s)", any ? ", and" : "", injection->side,
		       points[injection->point]->point, action_name(injection, text), injection->nth,
		       protocol->roles[injection->side], injection->fired ? "" : ", not reached");
		any = true;
	}
}

static void violation(const struct protocol *protocol, const char *what)
{
	if (expected) {
		seen |= strstr(what, expected) != NULL;
		return;
	}
	violations++;
	printf("VIOLATION: %s\n  ", what);
	print_schedule(protocol);
	printf("\n");
	fflush(stdout);
}

/* Names that are left; they are removed, so that the next schedule begins with none. */
static bool has_names(char *text, size_t size)
{
	DIR *dir = opendir(NAMES_DIR);
	struct dirent *entry;
	bool found = false;

	while (dir && (entry = readdir(dir))) {
		char path[300];

		if (strncmp(entry->d_name, "shmcma", 6))
			continue;
		if (strncmp(entry->d_name, "shmcma.calibration-", 19)) { /* which is to stay */
			found = true;
			snprintf(text, size, "the name %.200s is left", entry->d_name);
		}
		snprintf(path, sizeof(path), NAMES_DIR "/%s", entry->d_name);
		unlink(path);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Nobody has survived who could have removed names: as the next to start does. */
static void scan_as_third(void)
{
	pid_t child = fork();

	if (!child) {
		while (sc_reap_scan() > 0)
			;
		_exit(0);
	}
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Has a process that a side made outlived both, so that nobody was there to see it end? It is waited for. */
static bool had_orphans(void)
{
	bool any = false;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, 0)) > 0 || errno == EINTR)
		any |= pid > 0;
	return any;
}

static bool was_to_die(int side)
{
	for (int i = 0; i < INJECTIONS; i++)
		if (control->injections[i].action == KILL && control->injections[i].side == side &&
		    control->injections[i].fired)
			return true;
	return false;
}

static void judge(const struct protocol *protocol, const struct run *run)
{
	char text[512];

	for (int side = 0; side < 2; side++) {
		int status = run->status[side];
		const struct side_state *state = &control->sides[side];

		if (run->hung || (WIFEXITED(status) && !WEXITSTATUS(status)))
			continue;
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && was_to_die(side))
			continue;
		if (WIFSIGNALED(status))
			snprintf(text, sizeof(text), "the %s died by signal %d in %s",
				 protocol->roles[side], WTERMSIG(status), state->where);
		else
			snprintf(text, sizeof(text), "the %s in %s: %s", protocol->roles[side],
				 state->where, state->complaint[0] ? state->complaint : "it exited");
		violation(protocol, text);
	}
	if (run->hung)
		violation(protocol, "a hang");
	if (had_orphans() || run->hung || (WIFSIGNALED(run->status[0]) && WIFSIGNALED(run->status[1])))
		scan_as_third();
	if (has_names(text, sizeof(text)))
		violation(protocol, text);
}

static void schedule_clear(const struct protocol *protocol)
{
	memset(control, 0, sizeof(*control));
	if (!protocol->given.point)
		return;
	control->injections[INJECTIONS - 1] = (struct injection){
		.action = protocol->given.action,
		.side = protocol->given.side,
		.point = point_named(protocol->given.point),
		.err = protocol->given.err,
		.nth = 1,
	};
}

static void schedule_run(const struct protocol *protocol)
{
	struct run run;

	schedules++;
	run = run_both(side_run, (void *)protocol);
	for (int i = 0; i < INJECTIONS; i++) {
		const struct injection *injection = &control->injections[i];

		if (!injection->fired)
			continue;
		fired[injection->point] |= 1u << action_number(injection);
		met[protocol - protocols][injection->side][injection->point] = true;
	}
	if (verbose) {
		print_schedule(protocol);
		printf("\n");
	}
	judge(protocol, &run);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* One for each protocol. */
static bool remember_way(struct way *of_point, const struct way *way)
{
	for (int i = 0; i < WAYS; i++) {
		if (of_point[i].protocol == way->protocol)
			return false;
		if (of_point[i].protocol)
			continue;
		of_point[i] = *way;
		return true;
	}
	return false;
}

/* Remembers the points that only a failed call, or the other's end, has led to. True: there is a new one. */
static bool remember_ways(const struct protocol *protocol)
{
	bool found = false;

	for (int side = 0; side < 2; side++) {
		struct way way = { protocol, control->injections[0], side };

		for (int i = 0; i < point_count; i++)
			if (control->sides[side].hits[i] && !fired[i])
				found |= remember_way(ways[i], &way);
	}
	return found;
}

/* Has it fired? */
static bool inject(const struct protocol *protocol, struct injection injection)
{
	schedule_clear(protocol);
	control->injections[0] = injection;
	schedule_run(protocol);
	(void)remember_ways(protocol);
	return control->injections[0].fired;
}

/* All that can happen at a point the nth time. */
static void visit(const struct protocol *protocol, int side, int point, unsigned nth, bool first)
{
	struct injection injection = { .side = side, .point = point, .nth = nth };

	for (unsigned i = 0;
	     i < (first ? ACTIONS_MAX : FIRST_FAILURE + 1) && action_of(point, i, &injection); i++)
		(void)inject(protocol, injection);
}

static void learn(size_t index)
{
	schedule_clear(&protocols[index]);
	schedule_run(&protocols[index]);
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < point_count; i++)
			if (control->sides[side].hits[i] > counts[index][side][i])
				counts[index][side][i] = control->sides[side].hits[i];
}

static void visit_all(size_t index, int side, int point)
{
	unsigned count = counts[index][side][point];

	if (!count)
		return;
	visit(&protocols[index], side, point, 1, true);
	if (count > 2)
		visit(&protocols[index], side, point, count / 2 + 1, false);
	if (count > 1)
		visit(&protocols[index], side, point, count, false);
}

/* In each role of each protocol that reaches the point one of the actions, in turn; then those that are left. */
static void visit_once(int point)
{
	struct injection injection = { .point = point, .nth = 1 };
	bool done[ACTIONS_MAX] = { false };
	unsigned actions = 0, next = 0;

	while (actions < ACTIONS_MAX && action_of(point, actions, &injection))
		actions++;
	for (size_t i = 0; i < 2 * PROTOCOLS; i++) {
		injection.side = i % 2;
		if (!counts[i / 2][injection.side][point])
			continue;
		(void)action_of(point, next, &injection);
		if (!inject(&protocols[i / 2], injection))
			continue;
		done[next] = true;
		next = (next + 1) % actions;
	}
	for (unsigned action = 0; action < actions; action++)
		for (size_t i = 0; i < 2 * PROTOCOLS && !done[action]; i++) {
			injection.side = i % 2;
			(void)action_of(point, action, &injection);
			if (counts[i / 2][injection.side][point])
				done[action] = inject(&protocols[i / 2], injection);
		}
}

static void visit_by(const struct way *way, const struct injection *injection)
{
	schedule_clear(way->protocol);
	control->injections[0] = way->injection;
	control->injections[0].fired = false;
	control->injections[1] = *injection;
	schedule_run(way->protocol);
}

static void visit_by_failure(int point)
{
	for (int i = 0; i < WAYS && ways[point][i].protocol; i++) {
		struct injection injection = { .side = ways[point][i].side, .point = point, .nth = 1 };

		for (unsigned action = 0; action_of(point, action, &injection); action++)
			visit_by(&ways[point][i], &injection);
	}
}

/* By each of its actions. */
static bool has_fired(int point)
{
	struct injection injection;

	for (unsigned action = 0; action_of(point, action, &injection); action++)
		if (!(fired[point] & 1u << action))
			return false;
	return true;
}

static bool all_fired(void)
{
	for (int i = 0; i < point_count; i++)
		if (!has_fired(i))
			return false;
	return true;
}

/* Lets each call fail the last time it is made, and visits the points that this leads to, until all have fired. */
static void visit_by_late_failure(void)
{
	for (size_t i = 0; i < 2 * PROTOCOLS; i++)
		for (int point = 0; point < point_count && !all_fired(); point++) {
			struct injection injection = { .side = i % 2,
						       .point = point,
						       .nth = counts[i / 2][i % 2][point] };

			if (injection.nth < 2 || !action_of(point, FIRST_FAILURE, &injection))
				continue;
			schedule_clear(&protocols[i / 2]);
			control->injections[0] = injection;
			schedule_run(&protocols[i / 2]);
			if (!remember_ways(&protocols[i / 2]))
				continue;
			for (int other = 0; other < point_count; other++)
				if (!fired[other])
					visit_by_failure(other);
		}
}

/* One action, where the point has been seen before; true once it has fired. */
static bool insist(int point, unsigned action)
{
	struct injection injection = { .point = point, .nth = 1 };
	bool reached = true;

	for (int round = 0; round < INSISTENCE && reached; round++) {
		reached = false;
		for (size_t i = 0; i < 2 * PROTOCOLS; i++) {
			injection.side = i % 2;
			(void)action_of(point, action, &injection);
			if (!counts[i / 2][injection.side][point])
				continue;
			reached = true;
			if (inject(&protocols[i / 2], injection))
				return true;
		}
	}
	return false;
}

/* Visits the points that only some runs of a protocol reach: tries until one does. */
static void visit_by_chance(void)
{
	for (int round = 0; round < CHANCES && !all_fired(); round++) {
		for (size_t i = 0; i < PROTOCOLS; i++)
			learn(i);
		for (int point = 0; point < point_count; point++) {
			struct injection injection;

			for (unsigned action = 0; action_of(point, action, &injection); action++)
				if (!(fired[point] & 1u << action))
					(void)insist(point, action);
			if (!has_fired(point))
				visit_by_failure(point);
		}
	}
}

static int report(bool all)
{
	unsigned actions = 0, actions_fired = 0;
	unsigned long roles = 0;
	int count = 0;

	for (size_t i = 0; i < 2 * PROTOCOLS; i++)
		for (int point = 0; point < point_count; point++)
			roles += met[i / 2][i % 2][point];
	for (int i = 0; i < point_count; i++) {
		struct injection injection;

		count += fired[i] != 0;
		for (unsigned action = 0; action_of(i, action, &injection); action++, actions++) {
			char text[32];

			actions_fired += fired[i] >> action & 1;
			if (!(fired[i] >> action & 1) && all)
				printf("never fired: %s %s (%s:%d)\n", points[i]->point,
				       action_name(&injection, text), points[i]->file, points[i]->line);
		}
	}
	printf("%u of %u actions fired; %lu times a point in a role of one of %zu protocols\n",
	       actions_fired, actions, roles, PROTOCOLS);
	printf("%d points, %d fired, %lu schedules, %lu violations\n", point_count, count, schedules,
	       violations);
	return violations || (all && actions_fired < actions);
}

/* Visits the points that were not reached without a failure, or not in this run. */
static void visit_rest(void)
{
	for (int point = 0; point < point_count; point++)
		if (!fired[point])
			visit_by_failure(point);
	visit_by_late_failure();
	visit_by_chance();
}

/* ---- a process for each processor ------------------------------------------------------------- */

/* A worker process hands these to the first process when it ends; see the variables of the same names. */
struct results {
	unsigned counts[PROTOCOLS][2][POINTS_MAX];
	bool met[PROTOCOLS][2][POINTS_MAX];
	struct way ways[POINTS_MAX][WAYS];
	unsigned fired[POINTS_MAX];
	unsigned long schedules, violations;
};

static void results_write(struct results *results)
{
	memcpy(results->counts, counts, sizeof(counts));
	memcpy(results->met, met, sizeof(met));
	memcpy(results->ways, ways, sizeof(ways));
	memcpy(results->fired, fired, sizeof(fired));
	results->schedules = schedules;
	results->violations = violations;
}

static void results_add(const struct results *results)
{
	for (size_t i = 0; i < 2 * PROTOCOLS; i++)
		for (int point = 0; point < point_count; point++) {
			unsigned count = results->counts[i / 2][i % 2][point];

			if (count > counts[i / 2][i % 2][point])
				counts[i / 2][i % 2][point] = count;
			met[i / 2][i % 2][point] |= results->met[i / 2][i % 2][point];
		}
	for (int point = 0; point < point_count; point++) {
		fired[point] |= results->fired[point];
		for (int i = 0; i < WAYS && results->ways[point][i].protocol; i++)
			(void)remember_way(ways[point], &results->ways[point][i]);
	}
	schedules += results->schedules;
	violations += results->violations;
}

/* Of this process alone: names in /dev/shm, orphans, what schedules say. */
static bool begin_alone(void)
{
	if (!child_private_shm("size=64m"))
		return false;
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* had_orphans() */
	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return control != MAP_FAILED;
}

/* Visits every `step`-th of some things, from `first` on. */
typedef void visitor(size_t first, size_t step);

static void visit_side_by_side(visitor *visits)
{
	size_t workers = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
	struct results *results = mmap(NULL, workers * sizeof(*results), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t *pids = calloc(workers, sizeof(*pids));

	if (results == MAP_FAILED || !pids) {
		perror("memory for results");
		exit(1);
	}
	fflush(stdout);
	for (size_t i = 0; i < workers; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		schedules = violations = 0;
		if (!begin_alone())
			_exit(1);
		visits(i, workers);
		results_write(&results[i]);
		fflush(stdout);
		_exit(0);
	}
	for (size_t i = 0; i < workers; i++) {
		int status = -1;

		while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (status) {
			printf("a process of this test has ended with status %#x\n", (unsigned)status);
			exit(1);
		}
		results_add(&results[i]);
	}
	munmap(results, workers * sizeof(*results));
	free(pids);
}

static void visit_points(size_t first, size_t step)
{
	for (size_t point = first; point < (size_t)point_count; point += step)
		visit_once((int)point);
}

static int run_once(void)
{
	for (size_t i = 0; i < PROTOCOLS; i++)
		learn(i);
	visit_side_by_side(visit_points);
	visit_rest();
	return report(true);
}

static void visit_protocols(size_t first, size_t step)
{
	for (size_t i = first; i < PROTOCOLS; i += step) {
		unsigned long before = schedules;
		uint64_t begin = now_ms();

		learn(i);
		for (int side = 0; side < 2; side++)
			for (int point = 0; point < point_count; point++)
				visit_all(i, side, point);
		printf("%s: %lu schedules, %.1f s\n", protocols[i].name, schedules - before,
		       (double)(now_ms() - begin) / 1000);
		fflush(stdout);
	}
}

static int run_all(void)
{
	visit_side_by_side(visit_protocols);
	visit_rest();
	return report(true);
}

static size_t protocol_of(const char *name)
{
	for (size_t i = 0; i < PROTOCOLS; i++)
		if (!strcmp(protocols[i].name, name))
			return i;
	fprintf(stderr, "no such protocol: %s; there are:\n", name);
	for (size_t i = 0; i < PROTOCOLS; i++)
		fprintf(stderr, "\t%s\n", protocols[i].name);
	exit(2);
}

/* ---- the checks themselves ------------------------------------------------------------------- */

static const struct {
	enum sabotage sabotage;
	const char *violation;
	bool survives; /* also when the other is killed */
} sabotages[] = {
	{ KEEPS_DESCRIPTOR, "descriptors more than before", true },
	{ KEEPS_MAPPING, "a mapping is left", true },
	{ KEEPS_NAME, "the name shmcma-kept is left", true },
	{ KEEPS_BUFFER, "lent to nobody", true },
	{ COMPLETES_TWICE, "completed twice", true },
	{ COMPLETES_NEVER, "neither completed nor posted", false },
	{ LOSES_MESSAGE, "that were published", false },
	{ SPOILS_MESSAGE, "is not what was sent", false },
	{ DIES, "died by signal 9", false },
	{ HANGS, "a hang", false },
};

static bool check_one(enum sabotage sabotage, const char *violation, int side, bool kills)
{
	static const char name[] = "exchange";
	const struct protocol *protocol = &protocols[protocol_of(name)];

	schedule_clear(protocol);
	control->sabotage = sabotage;
	control->saboteur = side;
	if (kills)
		control->injections[0] = (struct injection){
			.action = KILL, .side = !side, .point = point_named("ring.committed"), .nth = 3
		};
	expected = violation;
	seen = false;
	schedule_run(protocol);
	expected = NULL;
	if (!seen)
		printf("not seen, if the %s does it%s: %s\n", protocol->roles[side],
		       kills ? " and the other dies" : "", violation);
	return seen;
}

/* Each wrong that a side can do is reported. */
static bool check_the_checks(void)
{
	unsigned done = 0, found = 0;

	for (size_t i = 0; i < sizeof(sabotages) / sizeof(sabotages[0]); i++)
		for (int how = 0; how < (sabotages[i].survives ? 4 : 2); how++) {
			found +=
				check_one(sabotages[i].sabotage, sabotages[i].violation, how % 2, how / 2);
			done++;
		}
	printf("%u wrongs done, %u reported\n", done, found);
	return found == done;
}

/* ---- by hand --------------------------------------------------------------------------------- */

static int run_one(int argc, char **argv)
{
	struct injection injection = { .side = atoi(argv[2]), .point = point_find(argv[3]) };

	if (injection.point < 0) {
		fprintf(stderr, "no such point: %s\n", argv[3]);
		return 2;
	}
	injection.action = !strcmp(argv[4], "kill") ? KILL : !strcmp(argv[4], "stop") ? STOP : FAIL;
	injection.err = atoi(argv[4]);
	injection.nth = argc > 5 ? (unsigned)atoi(argv[5]) : 1;
	inject(&protocols[protocol_of(argv[1])], injection);
	return report(false);
}

static int run_some(int argc, char **argv)
{
	size_t index = protocol_of(argv[1]);

	learn(index);
	for (int side = 0; side < 2; side++)
		for (int point = 0; point < point_count; point++)
			if ((argc < 3 || side == atoi(argv[2])) &&
			    (argc < 4 || !strcmp(points[point]->point, argv[3])))
				visit_all(index, side, point);
	return report(false);
}

static bool is_once(void)
{
	const char *points = getenv("FAULT_POINTS");

	return points && !strcmp(points, "once");
}

int main(int argc, char **argv)
{
	sigset_t child;

	if (!&sc_fault_hook) {
		printf("SKIP: the core is built without --enable-fault-injection\n");
		return 77;
	}
	points_init();
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	if (!begin_alone()) {
		printf("SKIP: the test gets no /dev/shm of its own (%s)\n", strerror(errno));
		return 77;
	}
	verbose = argc > 1;
	if (argc > 1)
		return argc > 4 ? run_one(argc, argv) : run_some(argc, argv);
	if (!check_the_checks())
		return 1;
	return is_once() ? run_once() : run_all();
}
