/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * multi.c: ranks as processes, their watch dog, and the calls of libfabric that every test needs.
 *
 * Parent and ranks share one anonymous mapping per case (struct shared): each rank writes its own line
 * of it, the parent reads. A rank's stderr is a memory file that the parent reads when the rank has
 * ended; the provider's counters are in it.
 */
#define _GNU_SOURCE 1
#include "multi.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MT_DOING_SIZE 160
#define MT_FAILED_SIZE 600
#define MT_LOG_LINES 40 /* the last ones of a failed rank's stderr */
#define IDLE_SPINS 2000 /* polls in vain before a rank begins to sleep in between */
#define IDLE_NAP 50000 /* ns */
#define MT_LOG_RANKS 4	/* of at most that many of them */

struct rank_line {
	char doing[MT_DOING_SIZE];
	char failed[MT_FAILED_SIZE];
	_Atomic int expect_death;
	_Atomic pid_t pid;
	uint64_t closed; /* endpoints closed in order */
	uint64_t sent_msgs, sent_bytes, received_msgs, received_bytes;
};

struct shared {
	_Atomic uint32_t barrier_count, barrier_round;
	_Atomic uint64_t flags[MT_FLAGS_MAX];
	_Atomic uint32_t name_len[MT_NAMES_MAX];
	char names[MT_NAMES_MAX][MT_NAME_SIZE];
	struct rank_line rank[MT_RANKS_MAX];
};

/* A rank, as the parent sees it. */
struct child {
	pid_t pid;
	int log; /* its stderr */
	bool ended, killed, failed;
	int status;
	struct mt_counters counters;
};

static struct {
	const char *program, *provider, *only;
	bool verbose;
	int passed, failed, skipped;
} mt;

static struct shared *shared;
int mt_rank = -1, mt_ranks;

/* ---- the parent ------------------------------------------------------------------------------ */

void mt_init(const char *name)
{
	mt.program = name;
	mt.provider = getenv("TEST_PROVIDER");
	if (!mt.provider)
		mt.provider = "shmcma";
	mt.only = getenv("TEST_ONLY");
	mt.verbose = getenv("TEST_VERBOSE") != NULL;
	setenv("FI_LOG_LEVEL", "info", 1);
	setenv("FI_LOG_PROV", mt.provider, 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
}

bool mt_is_shmcma(void)
{
	return strcmp(mt.provider, "shmcma") == 0;
}

int mt_result(const char *name, int result, const char *reason)
{
	if (result == MT_OK)
		mt.passed++;
	else if (result == MT_SKIP)
		mt.skipped++;
	else
		mt.failed++;
	printf("%s %s ... %s", mt.program, name,
	       result == MT_OK	   ? "ok"
	       : result == MT_SKIP ? "skipped"
				   : "FAIL");
	if (reason && *reason)
		printf(": %s", reason);
	putchar('\n');
	return result;
}

/* With SHMCMA_NO_SKIP the machine has all that any case needs. Sanitizers make some cases impossible all the same. */
static bool may_skip(void)
{
	const char *no_skip = getenv("SHMCMA_NO_SKIP");

	return MT_SANITIZED || !no_skip || !*no_skip;
}

int mt_end(void)
{
	if (mt.skipped && !may_skip()) {
		printf("%s: %d skipped, but SHMCMA_NO_SKIP is set\n", mt.program, mt.skipped);
		return MT_FAIL;
	}
	if (mt.failed)
		return MT_FAIL;
	return mt.passed ? MT_OK : MT_SKIP;
}

void mt_confine(int cpus)
{
	cpu_set_t have, want;
	int n = 0;

	CPU_ZERO(&want);
	if (sched_getaffinity(0, sizeof(have), &have))
		return;
	for (int i = 0; i < CPU_SETSIZE && n < cpus; i++)
		if (CPU_ISSET(i, &have)) {
			CPU_SET(i, &want);
			n++;
		}
	sched_setaffinity(0, sizeof(want), &want);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd >= 0) {
		if (write(fd, text, strlen(text)) < 0)
			perror(path);
		close(fd);
	}
}

/* A mount namespace of our own, with privilege or in a user namespace. */
static bool unshare_mounts(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();
	char map[64];

	if (unshare(CLONE_NEWNS) == 0)
		return true;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return false;
	write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	write_file("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "0 %u 1", gid);
	write_file("/proc/self/gid_map", map);
	return true;
}

bool mt_private_shm(size_t bytes)
{
	char options[64];

	if (!unshare_mounts())
		return false;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	snprintf(options, sizeof(options), "size=%zu,mode=1777", bytes);
	return mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options) == 0;
}

int mt_with_shm(size_t bytes, int (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(MT_FAIL);
	}
	if (pid == 0) {
		if (!mt_private_shm(bytes))
			_exit(MT_SKIP);
		status = fn();
		fflush(stdout);
		_exit(status);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	status = WIFEXITED(status) ? WEXITSTATUS(status) : MT_FAIL;
	if (status == MT_OK)
		mt.passed++;
	else if (status == MT_SKIP)
		mt.skipped++;
	else
		mt.failed++;
	return status;
}

static const struct {
	const char *name;
	size_t offset;
} counter_names[] = {
#define COUNTER(name)                                                                                     \
	{                                                                                                 \
#name "=", offsetof(struct mt_counters, name)                                             \
	}
	COUNTER(tx_msgs),	  COUNTER(tx_bytes),	     COUNTER(tx_inline),
	COUNTER(tx_bounce),	  COUNTER(tx_rdv),	     COUNTER(rx_msgs),
	COUNTER(rx_bytes),	  COUNTER(rx_unexpected),    COUNTER(rx_cma_bytes),
	COUNTER(rx_pulled_bytes), COUNTER(rx_local_bytes),   COUNTER(shared_bytes),
	COUNTER(connects),	  COUNTER(accepts),	     COUNTER(refusals),
	COUNTER(quarantines),	  COUNTER(departures),	     COUNTER(deaths),
	COUNTER(rma_ops),	  COUNTER(rma_direct_bytes), COUNTER(rma_requests),
	COUNTER(rma_served),	  COUNTER(rma_delegated),    COUNTER(rma_delegated_taken),
	COUNTER(rma_rescued),	  COUNTER(rma_batched),	     COUNTER(rma_assisted),
	COUNTER(tx_overflows),
#undef COUNTER
};

/* Add one line of counters; false if a counter is not in it. */
static bool counters_add(struct mt_counters *counters, const char *line)
{
	const char *at;
	uint64_t *sum;

	for (size_t i = 0; i < sizeof(counter_names) / sizeof(counter_names[0]); i++) {
		at = line;
		do
			at = strstr(at + 1, counter_names[i].name);
		while (at && at[-1] != ' ');
		if (!at)
			return false;
		sum = (uint64_t *)((char *)counters + counter_names[i].offset);
		*sum += strtoull(at + strlen(counter_names[i].name), NULL, 10);
	}
	counters->lines++;
	return true;
}

static char *read_log(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char *text;
	ssize_t n;

	if (size < 0)
		size = 0;
	text = malloc((size_t)size + 1);
	if (!text)
		return NULL;
	n = pread(fd, text, (size_t)size, 0);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static bool is_report(const char *line)
{
	return strstr(line, "runtime error:") || strstr(line, "ERROR: AddressSanitizer") ||
	       strstr(line, "ERROR: LeakSanitizer") || strstr(line, "WARNING: ThreadSanitizer");
}

/*
 * Go through a rank's stderr and gather the counters. False: a sanitizer reported, or a line of counters
 * is not as expected.
 */
static bool log_scan(struct child *child, int rank)
{
	char *text = read_log(child->log), *save = NULL;
	bool fine = text != NULL;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *counters = strstr(line, "shmcma: counters: ");

		if (counters && !counters_add(&child->counters, counters + 16)) {
			printf("  rank %d: counters not understood: %s\n", rank, line);
			fine = false;
		}
		if (is_report(line))
			fine = false;
		if (mt.verbose)
			printf("  rank %d| %s\n", rank, line);
	}
	free(text);
	return fine;
}

/* The end of a failed rank's stderr, from a sanitizer's report on if there is one. */
static void log_print(const struct child *child, int rank)
{
	const char *lines[MT_LOG_LINES] = { NULL };
	char *text = read_log(child->log), *save = NULL;
	unsigned n = 0;
	bool report = false;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		report |= is_report(line);
		if (report)
			printf("  rank %d| %s\n", rank, line);
		else if (!strstr(line, "<info>") && !strstr(line, ":fi_getinfo_():"))
			lines[n++ % MT_LOG_LINES] = line;
	}
	for (unsigned i = n > MT_LOG_LINES ? n - MT_LOG_LINES : 0; !report && i < n; i++)
		printf("  rank %d| %s\n", rank, lines[i % MT_LOG_LINES]);
	free(text);
}

static unsigned deadline_of(const struct mt_case *test)
{
	return test->deadline ? test->deadline : MT_DEADLINE;
}

static void child_main(const struct mt_case *test, int rank, int log)
{
	dup2(log, STDERR_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	watchdog_start(test->name, deadline_of(test));
	watchdog_stop(); /* the parent has the last resort for all ranks */
	mt_rank = rank;
	mt_ranks = test->ranks;
	/* the parent does the same, perhaps later */
	atomic_store(&shared->rank[rank].pid, getpid());
	mt_doing("starting");
	test->rank(test->arg);
	mt_doing("leaving the process");
	exit(0);
}

static int children_start(const struct mt_case *test, struct child *children)
{
	for (int i = 0; i < test->ranks; i++) {
		struct child *child = &children[i];

		child->log = memfd_create("stderr", MFD_CLOEXEC);
		if (child->log < 0) {
			perror("memfd_create");
			return i;
		}
		fcntl(child->log, F_SETFL, O_APPEND);
		fflush(stdout);
		child->pid = fork();
		if (child->pid == 0)
			child_main(test, i, child->log);
		if (child->pid < 0) {
			perror("fork");
			close(child->log);
			return i;
		}
		atomic_store(&shared->rank[i].pid, child->pid);
	}
	return test->ranks;
}

/* Look which have ended; true: one of them failed or was skipped, so the others need not go on. */
static bool children_check(struct child *children, int count, int *running)
{
	bool stop = false;

	*running = 0;
	for (int i = 0; i < count; i++) {
		struct child *child = &children[i];

		if (child->ended)
			continue;
		if (waitpid(child->pid, &child->status, WNOHANG) != child->pid) {
			(*running)++;
			continue;
		}
		child->ended = true;
		if (WIFSIGNALED(child->status) ? !atomic_load(&shared->rank[i].expect_death)
					       : child->status)
			stop = true;
	}
	return stop;
}

static void children_kill(struct child *children, int count)
{
	for (int i = 0; i < count; i++)
		if (!children[i].ended) {
			children[i].killed = true;
			kill(children[i].pid, SIGKILL);
		}
	for (int i = 0; i < count; i++)
		if (children[i].killed) {
			waitpid(children[i].pid, &children[i].status, 0);
			children[i].ended = true;
		}
}

/* Wait for all; true: the last resort, some still run. */
static bool children_watch(struct child *children, int count, double seconds)
{
	double end = mt_now() + seconds, ended = 0;
	struct timespec nap = { 0, 2000000 };
	int running;

	for (;;) {
		bool stop = children_check(children, count, &running);

		if (!running)
			return false;
		if (stop && !ended)
			ended = mt_now();
		/* a moment for those who are about to fail by themselves and say why */
		if (ended && mt_now() - ended > 0.2) {
			children_kill(children, count);
			return false;
		}
		if (mt_now() > end)
			return true;
		nanosleep(&nap, NULL);
	}
}

static void report_hang(const struct child *children, int count, double seconds)
{
	printf("  %.0f s passed; still running:\n", seconds);
	for (int i = 0; i < count; i++)
		if (!children[i].ended)
			printf("  rank %d (pid %d) was %s\n", i, (int)children[i].pid,
			       shared->rank[i].doing);
}

static bool watchdog_has_bitten(const struct child *children, int count)
{
	for (int i = 0; i < count; i++)
		if (WIFEXITED(children[i].status) && WEXITSTATUS(children[i].status) == WATCHDOG_EXIT)
			return true;
	return false;
}

/* Prints the last activity of each rank that was killed: the hanging rank may have waited for one of them. */
static void report_others(const struct child *children, int count)
{
	for (int i = 0; i < count; i++)
		if (children[i].killed)
			printf("  rank %d (pid %d) was %s\n", i, (int)children[i].pid,
			       shared->rank[i].doing);
}

/* How a rank ended: MT_OK, MT_FAIL, MT_SKIP. */
static int child_result(const struct child *child, int rank)
{
	const struct rank_line *line = &shared->rank[rank];

	if (atomic_load(&line->expect_death) && WIFSIGNALED(child->status))
		return MT_OK;
	if (child->killed)
		return MT_OK; /* because of another; that one is reported */
	if (WIFSIGNALED(child->status)) {
		printf("  rank %d: died of %s while %s\n", rank, strsignal(WTERMSIG(child->status)),
		       line->doing);
		return MT_FAIL;
	}
	if (WEXITSTATUS(child->status) == MT_SKIP)
		return MT_SKIP;
	if (WEXITSTATUS(child->status) == 0)
		return MT_OK;
	if (line->failed[0])
		printf("  rank %d: %s\n    while %s\n", rank, line->failed, line->doing);
	else
		printf("  rank %d: exit code %d while %s\n", rank, WEXITSTATUS(child->status),
		       line->doing);
	return MT_FAIL;
}

/* Did the provider carry what the rank posted? */
static bool judge_rank(const struct mt_case *test, const struct child *child, int rank)
{
	const struct rank_line *line = &shared->rank[rank];
	const struct mt_counters *c = &child->counters;

	if (c->lines < line->closed) {
		printf("  rank %d: %u lines of counters from %llu endpoints: shmcma did not carry the "
		       "traffic\n",
		       rank, c->lines, (unsigned long long)line->closed);
		return false;
	}
	if (test->flags & MT_CASE_LOSSY)
		return true;
	if (c->tx_msgs < line->sent_msgs || c->tx_bytes < line->sent_bytes ||
	    c->rx_msgs < line->received_msgs || c->rx_bytes < line->received_bytes) {
		printf("  rank %d: shmcma counted %llu messages, %llu bytes out and %llu, %llu in; it was "
		       "given\n"
		       "    %llu, %llu and gave %llu, %llu\n",
		       rank, (unsigned long long)c->tx_msgs, (unsigned long long)c->tx_bytes,
		       (unsigned long long)c->rx_msgs, (unsigned long long)c->rx_bytes,
		       (unsigned long long)line->sent_msgs, (unsigned long long)line->sent_bytes,
		       (unsigned long long)line->received_msgs, (unsigned long long)line->received_bytes);
		return false;
	}
	return true;
}

static bool judge(const struct mt_case *test, const struct child *children)
{
	struct mt_counters *counters;
	bool fine = true;

	if (!mt_is_shmcma())
		return true;
	counters = calloc((size_t)test->ranks, sizeof(*counters));
	if (!counters)
		return false;
	for (int i = 0; i < test->ranks; i++) {
		counters[i] = children[i].counters;
		if (children[i].status == 0 && !judge_rank(test, &children[i], i))
			fine = false;
	}
	if (fine && test->judge)
		fine = test->judge(counters, test->ranks, test->arg);
	free(counters);
	return fine;
}

/* All have ended, or hang. */
static int children_judge(const struct mt_case *test, struct child *children, int count, bool hung)
{
	int result = hung || count < test->ranks ? MT_FAIL : MT_OK, shown = 0;

	for (int i = 0; i < count; i++) {
		struct child *child = &children[i];
		int one = child_result(child, i);

		if (!log_scan(child, i))
			one = MT_FAIL;
		child->failed = one == MT_FAIL || (hung && child->killed);
		if (one == MT_FAIL || (one == MT_SKIP && result == MT_OK))
			result = one;
	}
	if (result == MT_OK && !judge(test, children))
		result = MT_FAIL;
	for (int i = 0; i < count; i++) {
		if (children[i].failed && !mt.verbose && shown++ < MT_LOG_RANKS)
			log_print(&children[i], i);
		close(children[i].log);
	}
	return result;
}

static const char *skip_reason(int ranks)
{
	for (int i = 0; i < ranks; i++)
		if (shared->rank[i].failed[0])
			return shared->rank[i].failed;
	return NULL;
}

static int case_run(const struct mt_case *test, char *reason, size_t size)
{
	double seconds = watchdog_wall() + deadline_of(test) * watchdog_scale();
	static struct child *children; /* found by a leak checker also in a rank that has left this stack */
	double start = mt_now();
	const char *skipped;
	int count, result;
	bool hung;

	children = calloc((size_t)test->ranks, sizeof(*children));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!children || shared == MAP_FAILED) {
		perror("memory for the ranks");
		exit(MT_FAIL);
	}
	count = children_start(test, children);
	hung = children_watch(children, count, count < test->ranks ? 0 : seconds);
	if (hung) {
		report_hang(children, count, seconds);
		children_kill(children, count);
	} else if (watchdog_has_bitten(children, count))
		report_others(children, count);
	result = children_judge(test, children, count, hung);
	skipped = skip_reason(test->ranks);
	if (result == MT_SKIP && skipped)
		snprintf(reason, size, "%s", skipped);
	else
		snprintf(reason, size, "%.1f s", mt_now() - start);
	munmap(shared, sizeof(*shared));
	free(children);
	return result;
}

int mt_run(const struct mt_case *test)
{
	char reason[MT_FAILED_SIZE] = "";
	int result;

	if (mt.only && (*mt.only == '=' ? strcmp(test->name, mt.only + 1) : !strstr(test->name, mt.only)))
		return MT_OK;
	if ((test->flags & MT_CASE_SHMCMA) && !mt_is_shmcma())
		return mt_result(test->name, MT_SKIP, "only for shmcma");
	if (test->ranks > MT_RANKS_MAX)
		return mt_result(test->name, MT_FAIL, "too many ranks for multi.h");
	result = case_run(test, reason, sizeof(reason));
	return mt_result(test->name, result, reason);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

void mt_doing(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(shared->rank[mt_rank].doing, MT_DOING_SIZE, format, args);
	va_end(args);
}

void mt_fail_at(const char *file, int line, const char *format, ...)
{
	char *text = shared->rank[mt_rank].failed;
	const char *base = strrchr(file, '/');
	va_list args;
	int n;

	n = snprintf(text, MT_FAILED_SIZE, "%s:%d: ", base ? base + 1 : file, line);
	va_start(args, format);
	vsnprintf(text + n, (size_t)(MT_FAILED_SIZE - n), format, args);
	va_end(args);
	_exit(MT_FAIL);
}

void mt_skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(shared->rank[mt_rank].failed, MT_FAILED_SIZE, format, args);
	va_end(args);
	_exit(MT_SKIP);
}

double mt_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool has_words(const char *line, const char *const *words)
{
	for (; *words; words++)
		if (!strstr(line, *words))
			return false;
	return true;
}

unsigned mt_logged(char *found, size_t size, const char *const *words)
{
	char *text = read_log(STDERR_FILENO), *save = NULL;
	unsigned lines = 0;

	mt_require(text, "no memory");
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (has_words(line, words)) {
			snprintf(found, size, "%s", line);
			lines++;
		}
	free(text);
	return lines;
}

void mt_expect_death(int rank)
{
	atomic_store(&shared->rank[rank].expect_death, 1);
}

pid_t mt_pid(int rank)
{
	return atomic_load(&shared->rank[rank].pid);
}

void mt_await_stop(int rank)
{
	char path[40], text[256];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)mt_pid(rank));
	for (;;) {
		FILE *file = fopen(path, "re");
		const char *at;

		mt_require(file && fgets(text, sizeof(text), file), "rank %d is not there", rank);
		fclose(file);
		at = strrchr(text, ')');
		if (at && (at[2] == 'T' || at[2] == 't'))
			return;
		usleep(100);
	}
}

const char *mt_failure(int rank)
{
	return shared->rank[rank].failed;
}

const char *mt_deed(int rank)
{
	return shared->rank[rank].doing;
}

_Atomic uint64_t *mt_flag(int index)
{
	return &shared->flags[index];
}

/* ---- payload --------------------------------------------------------------------------------- */

uint64_t mt_hash(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

uint64_t mt_random(struct mt_random *random)
{
	return mt_hash(random->state++);
}

uint64_t mt_below(struct mt_random *random, uint64_t bound)
{
	return mt_random(random) % bound;
}

ssize_t mt_verify_byte(const void *buf, size_t len, uint8_t value)
{
	const uint8_t *p = buf;

	if (!len || (p[0] == value && memcmp(p, p + 1, len - 1) == 0))
		return -1;
	for (size_t i = 0; i < len; i++)
		if (p[i] != value)
			return (ssize_t)i;
	return -1;
}

/* ---- endpoint -------------------------------------------------------------------------------- */

static struct fi_info *make_hints(const struct mt_open *open)
{
	struct fi_info *hints = fi_allocinfo();

	mt_require(hints, "fi_allocinfo");
	hints->caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE | open->caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->data_progress = open->automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	if (open->caps & (FI_RMA | FI_ATOMIC))
		hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->fabric_attr->prov_name = strdup(mt.provider);
	return hints;
}

static struct fi_info *get_info(const struct mt_open *open)
{
	const char *node = open->node, *service = open->service;
	struct fi_info *hints = make_hints(open), *info = NULL;
	int rc = fi_getinfo(FI_VERSION(1, 17), node, service, open->flags, hints, &info);

	fi_freeinfo(hints);
	mt_require(rc == 0, "fi_getinfo(%s, %s, %#llx) of provider %s: %s; is FI_PROVIDER_PATH right?",
		   node ? node : "NULL", service ? service : "NULL", (unsigned long long)open->flags,
		   mt.provider, fi_strerror(-rc));
	return info;
}

/* Address vector and queue, bound. */
static void open_around(struct mt_ep *ep, const struct mt_open *open)
{
	struct fi_av_attr av = { .type = mt_rank % 2 ? FI_AV_MAP : FI_AV_TABLE,
				 .count = 64,
				 .rx_ctx_bits = open->rx_ctx_bits };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED,
				 .wait_obj = open->wait_obj,
				 .size = 4096 };

	mt_must(fi_av_open(ep->domain, &av, &ep->av, NULL));
	mt_must(fi_cq_open(ep->domain, &cq, &ep->cq, NULL));
}

static int open_endpoint(struct mt_ep *ep)
{
	int rc = fi_endpoint(ep->domain, ep->info, &ep->ep, NULL);

	if (rc) {
		ep->ep = NULL;
		return rc;
	}
	mt_must(fi_ep_bind(ep->ep, &ep->av->fid, 0));
	mt_must(fi_ep_bind(ep->ep, &ep->cq->fid, FI_TRANSMIT | FI_RECV));
	return fi_enable(ep->ep);
}

/* In the order in which libfabric wants it. */
static void close_all(struct mt_ep *ep)
{
	if (ep->ep)
		mt_must(fi_close(&ep->ep->fid));
	mt_must(fi_close(&ep->cq->fid));
	mt_must(fi_close(&ep->av->fid));
	mt_must(fi_close(&ep->domain->fid));
	mt_must(fi_close(&ep->fabric->fid));
	fi_freeinfo(ep->info);
	memset(ep, 0, sizeof(*ep));
}

/* Writers: threads that are in libfabric itself, which has a lock of its own there. Readers: threads that fork. */
static pthread_rwlock_t in_libfabric = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

pid_t mt_fork(void)
{
	pid_t pid;

	mt_must(-pthread_rwlock_rdlock(&in_libfabric));
	pid = fork();
	if (pid)
		mt_must(-pthread_rwlock_unlock(&in_libfabric));
	else
		in_libfabric = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
	return pid;
}

int mt_try_open(struct mt_ep *ep, const struct mt_open *open)
{
	static const struct mt_open plain;
	int rc;

	if (!open)
		open = &plain;
	memset(ep, 0, sizeof(*ep));
	mt_doing("opening an endpoint");
	mt_must(-pthread_rwlock_wrlock(&in_libfabric));
	ep->info = get_info(open);
	mt_must(fi_fabric(ep->info->fabric_attr, &ep->fabric, NULL));
	mt_must(-pthread_rwlock_unlock(&in_libfabric));
	mt_must(fi_domain(ep->fabric, ep->info, &ep->domain, NULL));
	open_around(ep, open);
	rc = open_endpoint(ep);
	if (rc) {
		close_all(ep);
		return rc;
	}
	ep->name_len = sizeof(ep->name);
	mt_must(fi_getname(&ep->ep->fid, ep->name, &ep->name_len));
	mt_doing("beginning, endpoint open");
	return 0;
}

void mt_open(struct mt_ep *ep, const struct mt_open *open)
{
	int rc = mt_try_open(ep, open);

	mt_require(rc == 0, "opening the endpoint: %s", fi_strerror(-rc));
}

void mt_close(struct mt_ep *ep)
{
	mt_doing("closing the endpoint");
	close_all(ep);
	shared->rank[mt_rank].closed++;
	mt_doing("going on, endpoint closed");
}

fi_addr_t mt_insert(struct mt_ep *ep, const void *name)
{
	fi_addr_t addr = FI_ADDR_NOTAVAIL;
	int rc = fi_av_insert(ep->av, name, 1, &addr, 0, NULL);

	mt_require(rc == 1, "fi_av_insert: %d", rc);
	return addr;
}

fi_addr_t mt_insert_service(struct mt_ep *ep, const char *node, const char *service)
{
	struct fi_info *info = get_info(&(struct mt_open){ .node = node, .service = service });
	fi_addr_t addr;

	mt_require(info->dest_addr, "fi_getinfo(%s, %s): no dest_addr", node ? node : "NULL", service);
	addr = mt_insert(ep, info->dest_addr);
	fi_freeinfo(info);
	return addr;
}

static void op_done(struct mt_op *op)
{
	mt_require(op, "a completion without context");
	mt_require(op->pending && !op->done, "a completion for an operation that is not pending");
	op->pending = false;
	op->done = true;
}

static void take_error(struct mt_ep *ep)
{
	struct fi_cq_err_entry entry = { 0 };
	struct mt_op *op;
	ssize_t rc = fi_cq_readerr(ep->cq, &entry, 0);

	mt_require(rc == 1, "fi_cq_readerr after -FI_EAVAIL: %zd", rc);
	mt_require(entry.err > 0, "fi_cq_readerr: err %d", entry.err);
	op = entry.op_context;
	op_done(op);
	op->err = entry.err;
	op->flags = entry.flags;
	op->len = entry.len;
	op->olen = entry.olen;
	op->data = entry.data;
	op->tag = entry.tag;
	op->source = FI_ADDR_NOTAVAIL;
}

static void take_completion(struct mt_ep *ep, const struct fi_cq_tagged_entry *entry, fi_addr_t source)
{
	struct rank_line *line = &shared->rank[mt_rank];
	struct mt_op *op = entry->op_context;

	if (op && op->multi && op->pending && !(entry->flags & FI_MULTI_RECV))
		op->arrived++;
	else
		op_done(op);
	op->err = 0;
	op->flags = entry->flags;
	op->len = entry->len;
	op->olen = 0;
	op->data = entry->data;
	op->tag = entry->tag;
	op->source = source;
	if ((entry->flags & FI_RECV) && !ep->silent) {
		line->received_msgs++;
		line->received_bytes += entry->len;
	}
}

int mt_progress(struct mt_ep *ep)
{
	struct fi_cq_tagged_entry entries[8];
	fi_addr_t sources[8];
	ssize_t n = fi_cq_readfrom(ep->cq, entries, 8, sources);

	if (n == -FI_EAGAIN)
		return 0;
	if (n == -FI_EAVAIL) {
		take_error(ep);
		return 1;
	}
	mt_require(n > 0 && n <= 8, "fi_cq_readfrom: %zd (%s)", n, fi_strerror((int)-n));
	for (ssize_t i = 0; i < n; i++)
		take_completion(ep, &entries[i], sources[i]);
	return (int)n;
}

void mt_poll(struct mt_ep *ep)
{
	static unsigned idle;

	if (ep && mt_progress(ep)) {
		idle = 0;
		return;
	}
	/*
	 * Where ranks outnumber processors, the rank that is waited for needs this one's. Sleeping gives it, and yielding
	 * would do as well on a quiet machine; but beside a busy process each yield takes a whole time slice.
	 */
	if (++idle > IDLE_SPINS)
		nanosleep(&(struct timespec){ .tv_nsec = IDLE_NAP }, NULL);
}

void mt_poll_for(struct mt_ep *ep, double seconds)
{
	double end = mt_now() + seconds;

	do
		mt_poll(ep);
	while (mt_now() < end);
}

void mt_wait_any(struct mt_ep *ep, struct mt_op *op)
{
	while (!op->done)
		mt_poll(ep);
}

void mt_wait(struct mt_ep *ep, struct mt_op *op)
{
	mt_wait_any(ep, op);
	mt_require(op->err == 0, "operation failed: %s (len %zu, olen %zu)", fi_strerror(op->err), op->len,
		   op->olen);
}

bool mt_wait_for(struct mt_ep *ep, struct mt_op *op, double seconds)
{
	double end = mt_now() + seconds;

	while (!op->done) {
		if (mt_now() > end)
			return false;
		mt_poll(ep);
	}
	return true;
}

void mt_barrier(struct mt_ep *ep)
{
	uint32_t round = atomic_load(&shared->barrier_round);

	if (atomic_fetch_add(&shared->barrier_count, 1) + 1 == (uint32_t)mt_ranks) {
		atomic_store(&shared->barrier_count, 0);
		atomic_fetch_add(&shared->barrier_round, 1);
		return;
	}
	while (atomic_load(&shared->barrier_round) == round)
		mt_poll(ep);
}

void mt_flag_wait(struct mt_ep *ep, int index, uint64_t value)
{
	while (atomic_load(&shared->flags[index]) < value)
		mt_poll(ep);
}

void mt_publish(struct mt_ep *ep, int slot)
{
	mt_require(ep->name_len < MT_NAME_SIZE, "name of %zu bytes", ep->name_len);
	memset(shared->names[slot], 0, MT_NAME_SIZE);
	memcpy(shared->names[slot], ep->name, ep->name_len);
	atomic_store(&shared->name_len[slot], (uint32_t)ep->name_len);
}

const char *mt_published(struct mt_ep *ep, int slot)
{
	while (!atomic_load(&shared->name_len[slot]))
		mt_poll(ep);
	return shared->names[slot];
}

fi_addr_t mt_lookup(struct mt_ep *ep, int slot)
{
	return mt_insert(ep, mt_published(ep, slot));
}

void mt_join(struct mt_ep *ep, fi_addr_t *peers)
{
	mt_doing("exchanging names");
	mt_publish(ep, mt_rank);
	for (int i = 0; i < mt_ranks; i++)
		peers[i] = mt_lookup(ep, i);
	mt_barrier(ep);
	mt_doing("beginning, names exchanged");
}

/* ---- messages -------------------------------------------------------------------------------- */

static void op_start(struct mt_op *op)
{
	mt_require(!op->pending, "operation is pending already");
	memset(op, 0, sizeof(*op));
	op->pending = true;
}

/* The call was refused or, for an inject, is complete. */
static ssize_t op_settle(struct mt_op *op, ssize_t rc, bool complete)
{
	if (rc || complete)
		op->pending = false;
	if (rc == 0 && complete)
		op->done = true;
	return rc;
}

static size_t iov_length(const struct mt_message *m)
{
	size_t sum = 0;

	for (size_t i = 0; i < m->pieces; i++)
		sum += m->iov[i].iov_len;
	return sum;
}

static ssize_t call_tagged_send(struct fid_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	const struct iovec *iov = m->iov;
	struct fi_msg_tagged msg = {
		.msg_iov = iov,
		.iov_count = m->pieces,
		.addr = m->peer,
		.tag = m->tag,
		.context = op,
		.data = m->data,
	};

	switch (m->call) {
	case MT_SEND:
		return fi_tsend(ep, iov->iov_base, iov->iov_len, NULL, m->peer, m->tag, op);
	case MT_SENDV:
		return fi_tsendv(ep, iov, NULL, m->pieces, m->peer, m->tag, op);
	case MT_SENDMSG:
		return fi_tsendmsg(ep, &msg, m->flags);
	case MT_DATA:
		return fi_tsenddata(ep, iov->iov_base, iov->iov_len, NULL, m->data, m->peer, m->tag, op);
	case MT_INJECT:
		return fi_tinject(ep, iov->iov_base, iov->iov_len, m->peer, m->tag);
	case MT_INJECTDATA:
		return fi_tinjectdata(ep, iov->iov_base, iov->iov_len, m->data, m->peer, m->tag);
	}
	return -FI_EINVAL;
}

static ssize_t call_send(struct fid_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	const struct iovec *iov = m->iov;
	struct fi_msg msg = {
		.msg_iov = iov,
		.iov_count = m->pieces,
		.addr = m->peer,
		.context = op,
		.data = m->data,
	};

	switch (m->call) {
	case MT_SEND:
		return fi_send(ep, iov->iov_base, iov->iov_len, NULL, m->peer, op);
	case MT_SENDV:
		return fi_sendv(ep, iov, NULL, m->pieces, m->peer, op);
	case MT_SENDMSG:
		return fi_sendmsg(ep, &msg, m->flags);
	case MT_DATA:
		return fi_senddata(ep, iov->iov_base, iov->iov_len, NULL, m->data, m->peer, op);
	case MT_INJECT:
		return fi_inject(ep, iov->iov_base, iov->iov_len, m->peer);
	case MT_INJECTDATA:
		return fi_injectdata(ep, iov->iov_base, iov->iov_len, m->data, m->peer);
	}
	return -FI_EINVAL;
}

ssize_t mt_try_send(struct mt_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	struct rank_line *line = &shared->rank[mt_rank];
	ssize_t rc;

	op_start(op);
	rc = m->tagged ? call_tagged_send(ep->ep, op, m) : call_send(ep->ep, op, m);
	if (rc == 0 && !ep->silent) {
		line->sent_msgs++;
		line->sent_bytes += iov_length(m);
	}
	return op_settle(op, rc, m->call == MT_INJECT || m->call == MT_INJECTDATA);
}

static ssize_t call_tagged_recv(struct fid_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	const struct iovec *iov = m->iov;
	struct fi_msg_tagged msg = {
		.msg_iov = iov,
		.iov_count = m->pieces,
		.addr = m->peer,
		.tag = m->tag,
		.ignore = m->ignore,
		.context = op,
	};

	switch (m->call) {
	case MT_SEND:
		return fi_trecv(ep, iov->iov_base, iov->iov_len, NULL, m->peer, m->tag, m->ignore, op);
	case MT_SENDV:
		return fi_trecvv(ep, iov, NULL, m->pieces, m->peer, m->tag, m->ignore, op);
	default:
		return fi_trecvmsg(ep, &msg, m->flags);
	}
}

static ssize_t call_recv(struct fid_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	const struct iovec *iov = m->iov;
	struct fi_msg msg = { .msg_iov = iov, .iov_count = m->pieces, .addr = m->peer, .context = op };

	switch (m->call) {
	case MT_SEND:
		return fi_recv(ep, iov->iov_base, iov->iov_len, NULL, m->peer, op);
	case MT_SENDV:
		return fi_recvv(ep, iov, NULL, m->pieces, m->peer, op);
	default:
		return fi_recvmsg(ep, &msg, m->flags);
	}
}

ssize_t mt_try_recv(struct mt_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	op_start(op);
	return op_settle(op, m->tagged ? call_tagged_recv(ep->ep, op, m) : call_recv(ep->ep, op, m),
			 false);
}

void mt_post_send(struct mt_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	ssize_t rc;

	while ((rc = mt_try_send(ep, op, m)) == -FI_EAGAIN)
		mt_poll(ep);
	mt_require(rc == 0, "send of %zu bytes: %s", iov_length(m), fi_strerror((int)-rc));
}

void mt_post_recv(struct mt_ep *ep, struct mt_op *op, const struct mt_message *m)
{
	ssize_t rc;

	while ((rc = mt_try_recv(ep, op, m)) == -FI_EAGAIN)
		mt_poll(ep);
	mt_require(rc == 0, "receive of %zu bytes: %s", iov_length(m), fi_strerror((int)-rc));
}

void mt_tsend(struct mt_ep *ep, struct mt_op *op, const void *buf, size_t len, fi_addr_t peer,
	      uint64_t tag)
{
	struct iovec iov = { (void *)buf, len };
	struct mt_message m = { .tagged = true, .iov = &iov, .pieces = 1, .peer = peer, .tag = tag };

	mt_post_send(ep, op, &m);
}

void mt_trecv(struct mt_ep *ep, struct mt_op *op, void *buf, size_t len, fi_addr_t peer, uint64_t tag)
{
	struct iovec iov = { buf, len };
	struct mt_message m = { .tagged = true, .iov = &iov, .pieces = 1, .peer = peer, .tag = tag };

	mt_post_recv(ep, op, &m);
}

int mt_send_outcome(struct mt_ep *ep, const void *buf, size_t len, fi_addr_t peer, uint64_t tag,
		    double seconds)
{
	struct iovec iov = { (void *)buf, len };
	struct mt_message m = { .tagged = true, .iov = &iov, .pieces = 1, .peer = peer, .tag = tag };
	double end = mt_now() + seconds;
	struct mt_op op;
	ssize_t rc;

	memset(&op, 0, sizeof(op));
	while ((rc = mt_try_send(ep, &op, &m)) == -FI_EAGAIN) {
		if (mt_now() > end)
			return -FI_EAGAIN;
		mt_poll(ep);
	}
	if (rc)
		return (int)rc;
	mt_require(mt_wait_for(ep, &op, seconds), "a send of %zu bytes was accepted and never completed",
		   len);
	return -op.err;
}
