/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_nth.c: the failure of every system call and every allocation of the provider, in turn.
 */
#include "nth.h"

#include <sys/wait.h>
#include <time.h>

/* ---- scenarios ------------------------------------------------------------------------------- */

static void pattern(uint8_t *buf, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(i * 131 + (i >> 8) + seed * 29 + 1);
}

static bool is_pattern(const uint8_t *buf, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != (uint8_t)(i * 131 + (i >> 8) + seed * 29 + 1))
			return false;
	return true;
}

static bool introduce(struct nth *nth)
{
	return nth_meet(nth) && nth_insert(nth, nth->own->name[0], &nth->self) &&
	       nth_insert(nth, nth->other->name[0], &nth->peer[0]) && nth_meet(nth);
}

static void check_received(struct nth *nth, const struct op *op, size_t len, unsigned int seed)
{
	if (op->len != len)
		nth_trouble(nth, "%zu bytes received, not %zu", op->len, len);
	if (!is_pattern(op->buf, len, seed))
		nth_trouble(nth, "wrong bytes received (%zu)", len);
}

static bool send_one(struct nth *nth, size_t len, unsigned int seed, uint64_t flags)
{
	struct op *op = nth_op(nth, OP_SEND, nth->out, len);
	struct iovec iov = { nth->out, len };
	struct fi_msg_tagged msg = { .msg_iov = &iov,
				     .iov_count = 1,
				     .addr = nth->peer[0],
				     .tag = seed,
				     .data = seed,
				     .context = &op->context };

	pattern(nth->out, len, seed);
	return NTH_POST(nth, op, fi_tsendmsg(nth->ep[0], &msg, flags | FI_COMPLETION)) && nth_wait(nth, op);
}

static bool receive_one(struct nth *nth, size_t len, unsigned int seed, bool expected)
{
	struct op *op = nth_op(nth, OP_RECV, nth->in, len);

	memset(nth->in, 0xee, len);
	if (!expected)
		for (int i = 0; i < 20; i++)
			nth_poll(nth);
	if (!NTH_POST(nth, op,
		      fi_trecv(nth->ep[0], nth->in, len, NULL, nth->peer[0], seed, 0, &op->context)) ||
	    (expected && !nth_meet(nth)) || !nth_wait(nth, op))
		return false;
	check_received(nth, op, len, seed);
	return true;
}

/* One message from one to the other. */
static bool message(struct nth *nth, enum role from, size_t len, bool expected)
{
	unsigned int seed = (unsigned int)nth->phase + 1;

	if (!nth_meet(nth))
		return false;
	if (nth->role != from)
		return receive_one(nth, len, seed, expected);
	return (!expected || nth_meet(nth)) && send_one(nth, len, seed, 0);
}

/* From both sides, expected or not. */
static bool messages(struct nth *nth, size_t len)
{
	for (int way = 0; way < 4; way++)
		if (!message(nth, way & 1 ? PARTNER : SUBJECT, len, way & 2))
			return false;
	return true;
}

static void run_messages(struct nth *nth)
{
	static const size_t sizes[] = { 8, 4096, 20000, 300000, NTH_BUFFER };

	if (!nth_open(nth) || !introduce(nth))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!messages(nth, sizes[i]))
			return;
	nth_meet(nth);
}

static void run_setup(struct nth *nth)
{
	struct op *ops[2];

	if (!nth_open(nth) || !nth_insert(nth, nth->own->name[0], &nth->self))
		return;
	ops[0] = nth_op(nth, OP_RECV, nth->in, 100);
	ops[1] = nth_op(nth, OP_SEND, nth->out, 100);
	pattern(nth->out, 100, 1);
	if (NTH_POST(nth, ops[0],
		     fi_trecv(nth->ep[0], nth->in, 100, NULL, nth->self, 1, 0, &ops[0]->context)) &&
	    NTH_POST(nth, ops[1], fi_tsend(nth->ep[0], nth->out, 100, NULL, nth->self, 1, &ops[1]->context)) &&
	    (!ops[0]->pending || nth_wait(nth, ops[0])) && (!ops[1]->pending || nth_wait(nth, ops[1])))
		check_received(nth, ops[0], 100, 1);
}

static const struct nth_scenario scenarios[] = {
	{ .name = "set-up", .run = run_setup, .alone = true },
	{ .name = "set-up with a service", .run = run_setup, .alone = true, .service = true },
	{ .name = "messages", .run = run_messages },
};

/* ---- one process ----------------------------------------------------------------------------- */

static struct fi_provider *(*provider_ini)(void);

/* As libfabric's destructor does. */
static void cleanup(struct nth *nth)
{
	snprintf(nth->own->doing, sizeof(nth->own->doing), "cleanup()");
	interpose.armed = nth->role == SUBJECT;
	nth_provider->cleanup();
	interpose.armed = interpose.recording = false;
	if (nth->role != SUBJECT)
		return;
	nth->own->failures = atomic_load(&interpose.failures);
	if (!nth->shared->plan.number) {
		nth->shared->call_count = atomic_load(&interpose.calls);
		nth_left(nth->shared->cleaned);
	} else {
		nth_compare_left(nth, "after cleanup()", nth->shared->cleaned);
	}
}

static void prepare(struct nth *nth)
{
	static char env[256];

	snprintf(env, sizeof(env), "%s", nth->scenario->env ? nth->scenario->env : "");
	for (char *each = strtok(env, " "); each; each = strtok(NULL, " "))
		putenv(each);
	nth->own = &nth->shared->side[nth->role];
	nth->other = &nth->shared->side[!nth->role];
	nth->in = malloc(NTH_BUFFER);
	nth->out = malloc(NTH_BUFFER);
	if (!nth->in || !nth->out)
		abort();
	nth->fds = nth_count_fds();
	interpose.plan = nth->shared->plan;
	interpose.log = nth->shared->log;
	interpose.recording = nth->role == SUBJECT && !interpose.plan.number;
	interpose.armed = nth->role == SUBJECT;
}

static void check_closed(struct nth *nth)
{
	int fds = nth_count_fds();

	if (nth_is_mapped())
		nth_trouble(nth, "a segment is mapped when all is closed");
	/* one that cannot be looked at may be another's by now, and stays open */
	if (fds > nth->fds && nth->shared->plan.call.function != F_FSTAT)
		nth_trouble(nth, "%d descriptors are open when all is closed, at first %d", fds, nth->fds);
	if (nth->role != SUBJECT)
		return;
	if (!nth->shared->plan.number)
		nth_left(nth->shared->closed);
	else
		nth_compare_left(nth, "when all is closed", nth->shared->closed);
}

/* Nothing fails any more: all of it works. */
static void run_again(struct nth *nth)
{
	static const struct nth_scenario again = { .alone = true };
	static struct nth second;

	second = (struct nth){ .scenario = &again,
			       .shared = nth->shared,
			       .role = PARTNER,
			       .own = nth->own,
			       .other = nth->other,
			       .in = nth->in,
			       .out = nth->out };
	run_setup(&second);
	if (second.broken)
		nth_trouble(nth, "it does not work afterwards");
	nth_close(&second);
}

static void run_process(struct nth *nth)
{
	alarm(NTH_SECONDS);
	prepare(nth);
	nth_provider = provider_ini();
	nth->scenario->run(nth);
	nth_leave(nth);
	nth_close(nth);
	interpose.armed = interpose.recording = false;
	run_again(nth);
	check_closed(nth);
	interpose.recording = nth->role == SUBJECT && !interpose.plan.number;
	cleanup(nth);
	exit(0);
}

/* ---- one run --------------------------------------------------------------------------------- */

struct child {
	pid_t pid;
	int log;
	int status;
};

static void start(struct child *child, const struct nth_scenario *scenario, struct nth_shared *shared,
		  enum role role)
{
	static struct nth nth;

	child->log = memfd_create("stderr", MFD_CLOEXEC);
	if (child->log < 0)
		abort();
	fflush(NULL);
	child->pid = fork();
	if (child->pid < 0)
		abort();
	if (child->pid)
		return;
	dup2(child->log, STDERR_FILENO);
	nth.scenario = scenario;
	nth.shared = shared;
	nth.role = role;
	run_process(&nth);
}

static bool has_names(pid_t pid)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	bool found = false;
	char own[32], service[32];

	snprintf(own, sizeof(own), "shmcma-%08x-", (unsigned int)pid);
	snprintf(service, sizeof(service), "-nth-%d", (int)pid);
	while (dir && !found && (entry = readdir(dir)))
		found = !strncmp(entry->d_name, own, strlen(own)) || strstr(entry->d_name, service);
	closedir(dir);
	return found;
}

static void print_log(int fd)
{
	char text[4096];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		printf("    | %s\n", line);
}

static bool warned(int fd)
{
	char text[8192];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	return strstr(text, "shmcma");
}

static const char *plan_text(const struct interpose_plan *plan)
{
	static char text[200];

	if (!plan->number)
		return "nothing fails";
	snprintf(text, sizeof(text), "%s before provider+%#x, call %u%s: %s", functions[plan->call.function].name,
		 plan->call.site, plan->number, plan->lasting ? " and all after it" : "",
		 plan->error == SHORTENED ? "half done" : strerror(plan->error));
	return text;
}

static int violations, runs, missed, recovered;

static void report(const struct nth_scenario *scenario, struct nth_shared *shared, struct child child[ROLES],
		   const char *what)
{
	violations++;
	printf("FAIL %s: %s\n  %s\n", scenario->name, plan_text(&shared->plan), what);
	for (int role = 0; role < ROLES; role++) {
		if (!child[role].pid)
			continue;
		printf("  %s: status %#x, last %s; first failed: %s %d; %s\n", role ? "partner" : "subject",
		       child[role].status, shared->side[role].doing, shared->side[role].failed,
		       shared->side[role].code, shared->side[role].trouble);
		print_log(child[role].log);
	}
}

/* What cannot be removed, or looked at first, stays for a reaper. */
static bool may_leave_name(const struct interpose_plan *plan)
{
	return plan->call.function == F_UNLINK || plan->call.function == F_FSTATAT;
}

static void judge(const struct nth_scenario *scenario, struct nth_shared *shared, struct child child[ROLES])
{
	const struct nth_side *subject = &shared->side[SUBJECT];

	for (int role = 0; role < ROLES; role++) {
		if (!child[role].pid || (role == PARTNER && scenario->partner_dies))
			continue;
		if (child[role].status) {
			report(scenario, shared, child, "a process did not end well");
			return;
		}
		if (!may_leave_name(&shared->plan) && has_names(child[role].pid)) {
			report(scenario, shared, child, "a name is left");
			return;
		}
	}
	if (!shared->plan.number)
		return;
	if (!subject->failures)
		missed++;
	else if (!subject->failed[0])
		recovered++;
	if (subject->failed[0] && subject->code != ENOMEM && subject->code != EAGAIN && !warned(child[SUBJECT].log))
		report(scenario, shared, child, "no warning");
	if (getenv("TEST_VERBOSE"))
		printf("%-12s %-60s %s -> %s %s\n", scenario->name, plan_text(&shared->plan),
		       subject->failures ? "failed" : "missed", subject->failed[0] ? subject->failed : "-",
		       subject->failed[0] ? strerror(subject->code) : "");
}

/* Who waits for one that has ended, and be it by a signal, need not. */
static void wait_for(struct nth_shared *shared, struct child child[ROLES])
{
	int status;
	pid_t pid;

	while ((pid = wait(&status)) > 0) {
		int role = pid == child[SUBJECT].pid ? SUBJECT : PARTNER;

		child[role].status = status;
		atomic_store(&shared->side[role].gone, true);
	}
}

static void run(const struct nth_scenario *scenario, struct nth_shared *shared,
		const struct interpose_plan *plan)
{
	struct child child[ROLES] = { { 0 } };

	memset(shared->side, 0, sizeof(shared->side));
	atomic_store(&shared->abandoned, 0);
	shared->plan = *plan;
	runs++;
	start(&child[SUBJECT], scenario, shared, SUBJECT);
	if (!scenario->alone)
		start(&child[PARTNER], scenario, shared, PARTNER);
	wait_for(shared, child);
	judge(scenario, shared, child);
	for (int role = 0; role < ROLES; role++)
		if (child[role].pid)
			close(child[role].log);
}

/* ---- all runs of a scenario ------------------------------------------------------------------ */

static struct interpose_call *calls;
static uint32_t call_count;

static bool same(const struct interpose_call *a, const struct interpose_call *b)
{
	return a->function == b->function && a->site == b->site;
}

/* What is interrupted or cut short goes on when it is tried again. */
static bool may_last(int error)
{
	return error != EINTR && error != SHORTENED;
}

static void run_number(const struct nth_scenario *scenario, struct nth_shared *shared, uint32_t at,
		       uint32_t number)
{
	const struct function *function = &functions[calls[at].function];
	const char *site = getenv("TEST_SITE");

	if (site && strtoul(site, NULL, 16) != calls[at].site)
		return;
	for (size_t i = 0; i < FUNCTION_ERRORS && function->errors[i]; i++)
		for (int lasting = 0; lasting < (may_last(function->errors[i]) ? 2 : 1); lasting++)
			run(scenario, shared,
			    &(struct interpose_plan){ .call = calls[at],
						      .number = number,
						      .error = function->errors[i],
						      .lasting = lasting });
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void run_scenario(const struct nth_scenario *scenario, struct nth_shared *shared)
{
	static const struct interpose_plan none;
	unsigned int sites = 0;
	double begun = now();

	runs = missed = recovered = 0;
	run(scenario, shared, &none);
	call_count = shared->call_count;
	memcpy(calls, shared->log, call_count * sizeof(*calls));
	for (uint32_t i = 0; i < call_count; i++) {
		uint32_t number = 1, all;

		for (uint32_t j = 0; j < i; j++)
			number += same(&calls[i], &calls[j]);
		all = number;
		for (uint32_t j = i + 1; j < call_count; j++)
			all += same(&calls[i], &calls[j]);
		sites += number == 1;
		if (number <= 2 || number == all)
			run_number(scenario, shared, i, number);
	}
	printf("%-24s %5u calls from %3u sites, %5d runs, %4d recovered, %4d not reached, %.1f s\n",
	       scenario->name, call_count, sites, runs, recovered, missed, now() - begun);
	fflush(stdout);
}

int main(void)
{
	const char *only = getenv("TEST_ONLY"), *dir = getenv("FI_PROVIDER_PATH");
	struct nth_shared *shared;
	struct fi_info *info;
	char path[4096];

	snprintf(path, sizeof(path), "%s/libshmcma-fi.so", dir ? dir : "/usr/lib/x86_64-linux-gnu/libfabric");
	if (!interpose_install(path)) {
		printf("SKIP: no calls of %s can be made to fail here\n", path);
		return 77;
	}
	/* its start takes a tenth of a second and needs no provider */
	setenv("FI_LOG_LEVEL", "warn", 1);
	setenv("FI_LOG_PROV", "shmcma", 1);
	setenv("FI_PROVIDER", "shmcma", 1);
	setenv("FI_PROVIDER_PATH", "/nonexistent", 1);
	(void)fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info);
	provider_ini = (struct fi_provider * (*)(void)) dlsym(dlopen(path, RTLD_NOW), "fi_prov_ini");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	calls = malloc(sizeof(shared->log));
	if (shared == MAP_FAILED || !calls || !provider_ini)
		return 1;
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!only || strstr(scenarios[i].name, only))
			run_scenario(&scenarios[i], shared);
	printf("%d violations\n", violations);
	return violations != 0;
}
