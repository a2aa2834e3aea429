/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread_bench.c: messages per second of processes with several threads, for several libfabric providers
 * in one run.
 *
 *	thread_bench [-n repetitions] [-t threads,threads...] [-m messages] [-s size] [-c cpu,cpu] [-r shape]
 *		     provider ...
 *
 * Two processes with as many threads each. A thread of the first one sends windows of WINDOW tagged
 * messages (fi_tinject) to its partner in the second one, which has receives posted ahead and answers each
 * window with an empty message. Shapes (-r: that one alone, by the first word or words of its title):
 *
 *   one endpoint      of each process, and one completion queue, for all its threads
 *   endpoints         one for each thread, each with its own completion queue, in one domain
 *   domains           the same, each in a domain of its own
 *
 * The threading model follows; a provider that does not have it is shown as "-". The messages are divided
 * among the threads, and the time is that of the slowest. A thread that finds nothing to read gives way
 * (sched_yield(2)), with any provider: there may be more threads than processors. They run on all the
 * processors that there are; with -c, those of either process on one. The content of each message (2 to
 * 256 bytes, -s) is checked.
 *
 * Each measurement is a fresh pair of processes; shapes and providers take turns (A B A B...), and the
 * table shows the median of all turns: messages per second, then the processor time that both processes
 * spend on one message, polls in vain among it; the ratios are how many times better the first provider is.
 * It prints and judges nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define PROVIDERS_MAX 8
#define THREADS_MAX 64
#define COUNTS_MAX 16
#define REPS_MAX 101
#define SIZE_MAX_BYTES 256
#define WINDOW 64
#define WARM_UP 4   /* windows of each thread */
#define DEADLINE 60 /* seconds for one pair */
#define NAME_MAX_BYTES 512
#define TAG_ANSWER (1ULL << 32)

struct shape {
	const char *title;
	bool one_endpoint, own_domains;
	enum fi_threading threading;
};

static const struct shape shapes[] = {
	{ "one endpoint, FI_THREAD_SAFE", true, false, FI_THREAD_SAFE },
	{ "endpoints, FI_THREAD_SAFE", false, false, FI_THREAD_SAFE },
	{ "endpoints, FI_THREAD_FID", false, false, FI_THREAD_FID },
	{ "endpoints, FI_THREAD_ENDPOINT", false, false, FI_THREAD_ENDPOINT },
	{ "endpoints, FI_THREAD_COMPLETION", false, false, FI_THREAD_COMPLETION },
	{ "domains, FI_THREAD_SAFE", false, true, FI_THREAD_SAFE },
	{ "domains, FI_THREAD_DOMAIN", false, true, FI_THREAD_DOMAIN },
};

#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static int thread_counts[COUNTS_MAX] = { 1, 2, 4, 16 };
static int thread_count_count = 4;
static int reps = 7;
static long messages = 400000;
static size_t size = 8;
static int cpus[2] = { -1, -1 };
static char **providers;
static int provider_count;

enum outcome { MEASURED, UNAVAILABLE, FAILED };

/* What the pair's first process writes to the parent. */
struct report {
	enum outcome outcome;
	char why[256];
	double rate; /* messages per second */
	double cost; /* processor time of both for a message, seconds */
};

/* ---- one process of a pair --------------------------------------------------------------------- */

/* What a thread uses, alone or with others. */
struct lane {
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
};

/* Of a receive; the provider's first. */
struct slot {
	struct fi_context2 context;
	struct thread *owner;
};

struct thread {
	struct lane *lane;
	uint64_t tag;
	long windows;
	double began, ended; /* the first process's: the windows after the first few */
	uint64_t to_receive;
	_Atomic uint64_t received; /* by whoever reads the queue */
	struct slot slots[WINDOW];
	uint8_t bufs[WINDOW][SIZE_MAX_BYTES];
	pthread_t id;
} __attribute__((aligned(64)));

static struct {
	int rank;
	int sock; /* to the peer: names, and "are you there" */
	int out;  /* to the parent */
	int threads;
	const struct shape *shape;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct lane lanes[THREADS_MAX];
	int lane_count;
	struct thread each[THREADS_MAX];
	pthread_barrier_t warm;
	struct report report;
} me;

static void finish(enum outcome outcome, const char *what, const char *why)
{
	me.report.outcome = outcome;
	snprintf(me.report.why, sizeof(me.report.why), "%s: %s", what, why);
	if (me.rank && outcome == FAILED)
		fprintf(stderr, "thread_bench: second process: %s\n", me.report.why);
	else if (!me.rank && write(me.out, &me.report, sizeof(me.report)) != sizeof(me.report))
		_exit(3);
	_exit(outcome == MEASURED ? 0 : 1);
}

static void must(const char *what, ssize_t ret)
{
	if (ret)
		finish(FAILED, what, fi_strerror((int)-ret));
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Completions are anybody's who shares the queue: each is told to its owner. */
static void poll_cq(struct lane *lane)
{
	struct fi_cq_tagged_entry entries[16];
	struct fi_cq_err_entry err;
	ssize_t n = fi_cq_read(lane->cq, entries, 16);

	if (n == -FI_EAGAIN) {
		sched_yield();
		return;
	}
	if (n == -FI_EAVAIL) {
		memset(&err, 0, sizeof(err));
		fi_cq_readerr(lane->cq, &err, 0);
		finish(FAILED, "completion", fi_strerror(err.err));
	}
	if (n < 0)
		must("fi_cq_read", n);
	for (ssize_t i = 0; i < n; i++) {
		struct slot *slot = entries[i].op_context;

		atomic_fetch_add_explicit(&slot->owner->received, 1, memory_order_release);
	}
}

static void wait_received(struct thread *thread)
{
	while (atomic_load_explicit(&thread->received, memory_order_acquire) < thread->to_receive)
		poll_cq(thread->lane);
}

static void post_recv(struct thread *thread, int slot, size_t bytes, uint64_t tag)
{
	struct lane *lane = thread->lane;
	ssize_t ret;

	while ((ret = fi_trecv(lane->ep, thread->bufs[slot], bytes, NULL, lane->peer, tag, 0,
			       &thread->slots[slot])) == -FI_EAGAIN)
		poll_cq(lane);
	must("fi_trecv", ret);
	thread->to_receive++;
}

static void post_send(struct thread *thread, const void *buf, size_t bytes, uint64_t tag)
{
	struct lane *lane = thread->lane;
	ssize_t ret;

	while ((ret = fi_tinject(lane->ep, buf, bytes, lane->peer, tag)) == -FI_EAGAIN)
		poll_cq(lane);
	must("fi_tinject", ret);
}

static void post_window(struct thread *thread)
{
	for (int i = 0; i < WINDOW; i++)
		post_recv(thread, i, size, thread->tag);
}

/* The first byte counts, the last one tells whose it is. */
static void check_window(struct thread *thread, long window)
{
	for (int i = 0; i < WINDOW; i++) {
		const uint8_t *buf = thread->bufs[i];

		if (buf[0] != (uint8_t)(window * WINDOW + i) ||
		    buf[size - 1] != (uint8_t)(thread->tag + 1))
			finish(FAILED, "received data", "wrong, or out of order");
	}
}

static void send_windows(struct thread *thread, long first, long end)
{
	uint8_t bytes[SIZE_MAX_BYTES] = { 0 };

	bytes[size - 1] = (uint8_t)(thread->tag + 1);
	for (long window = first; window < end; window++) {
		post_recv(thread, 0, 0, thread->tag | TAG_ANSWER);
		for (int i = 0; i < WINDOW; i++) {
			bytes[0] = (uint8_t)(window * WINDOW + i);
			post_send(thread, bytes, size, thread->tag);
		}
		wait_received(thread);
	}
}

static void receive_windows(struct thread *thread, long end)
{
	for (long window = 0; window < end; window++) {
		wait_received(thread);
		check_window(thread, window);
		if (window < end - 1)
			post_window(thread);
		post_send(thread, NULL, 0, thread->tag | TAG_ANSWER);
	}
}

static void *run_thread(void *arg)
{
	struct thread *thread = arg;
	long end = WARM_UP + thread->windows;

	if (me.rank) {
		receive_windows(thread, end);
		return NULL;
	}
	send_windows(thread, 0, WARM_UP);
	pthread_barrier_wait(&me.warm);
	thread->began = now(CLOCK_MONOTONIC);
	send_windows(thread, WARM_UP, end);
	thread->ended = now(CLOCK_MONOTONIC);
	return NULL;
}

/*
 * Both sides have come to this point; the provider may need us meanwhile. Returns the processor time that
 * they have taken to come there.
 */
static double barrier(void)
{
	double mine = now(CLOCK_PROCESS_CPUTIME_ID), theirs;
	struct pollfd waiting = { .fd = me.sock, .events = POLLIN };

	if (write(me.sock, &mine, sizeof(mine)) != sizeof(mine))
		finish(FAILED, "barrier", "the peer is gone");
	while (poll(&waiting, 1, 0) == 0)
		for (int i = 0; i < me.lane_count; i++)
			poll_cq(&me.lanes[i]);
	if (read(me.sock, &theirs, sizeof(theirs)) != sizeof(theirs))
		finish(FAILED, "barrier", "the peer is gone");
	return mine + theirs;
}

/* From the first thread's begin to the last one's end. */
static double seconds(void)
{
	double began = me.each[0].began, ended = me.each[0].ended;

	for (int i = 1; i < me.threads; i++) {
		began = me.each[i].began < began ? me.each[i].began : began;
		ended = me.each[i].ended > ended ? me.each[i].ended : ended;
	}
	return ended - began;
}

static void measure(void)
{
	long windows = messages / WINDOW / me.threads + 1;
	double total = (double)(windows * WINDOW * me.threads), used;

	pthread_barrier_init(&me.warm, NULL, (unsigned int)me.threads);
	for (int i = 0; i < me.threads; i++) {
		struct thread *thread = &me.each[i];

		thread->lane = &me.lanes[i % me.lane_count];
		thread->tag = (uint64_t)i;
		thread->windows = windows;
		for (int slot = 0; slot < WINDOW; slot++)
			thread->slots[slot].owner = thread;
		if (me.rank)
			post_window(thread);
	}
	used = barrier();
	for (int i = 0; i < me.threads; i++)
		must("pthread_create", -pthread_create(&me.each[i].id, NULL, run_thread, &me.each[i]));
	for (int i = 0; i < me.threads; i++)
		pthread_join(me.each[i].id, NULL);
	me.report.rate = total / seconds();
	me.report.cost = (barrier() - used) / total;
}

/* ---- opening ----------------------------------------------------------------------------------- */

static struct fi_info *find(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int ret;

	if (!hints)
		finish(FAILED, "fi_allocinfo", "no memory");
	hints->caps = FI_MSG | FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = me.shape->threading;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(provider);
	ret = fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	if (ret == -FI_ENODATA)
		finish(UNAVAILABLE, "fi_getinfo", fi_strerror(-ret));
	must("fi_getinfo", ret);
	if (info->tx_attr->inject_size < size)
		finish(UNAVAILABLE, "inject_size", "too small for these messages");
	return info;
}

static void open_domain(struct lane *lane)
{
	struct fi_av_attr av_attr = { .type = me.info->domain_attr->av_type, .count = THREADS_MAX };

	must("fi_domain", fi_domain(me.fabric, me.info, &lane->domain, NULL));
	must("fi_av_open", fi_av_open(lane->domain, &av_attr, &lane->av, NULL));
}

static void open_lane(struct lane *lane)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };

	cq_attr.size = (size_t)(4 * WINDOW) * (size_t)(me.shape->one_endpoint ? me.threads : 1);
	must("fi_cq_open", fi_cq_open(lane->domain, &cq_attr, &lane->cq, NULL));
	must("fi_endpoint", fi_endpoint(lane->domain, me.info, &lane->ep, NULL));
	must("fi_ep_bind", fi_ep_bind(lane->ep, &lane->av->fid, 0));
	must("fi_ep_bind", fi_ep_bind(lane->ep, &lane->cq->fid, FI_TRANSMIT | FI_RECV));
	must("fi_enable", fi_enable(lane->ep));
}

static void open_lanes(void)
{
	must("fi_fabric", fi_fabric(me.info->fabric_attr, &me.fabric, NULL));
	for (int i = 0; i < me.lane_count; i++) {
		if (!i || me.shape->own_domains) {
			open_domain(&me.lanes[i]);
		} else {
			me.lanes[i].domain = me.lanes[0].domain;
			me.lanes[i].av = me.lanes[0].av;
		}
		open_lane(&me.lanes[i]);
	}
}

static void exchange_names(struct lane *lane)
{
	char mine[NAME_MAX_BYTES] = { 0 }, theirs[NAME_MAX_BYTES];
	size_t length = sizeof(mine);

	must("fi_getname", fi_getname(&lane->ep->fid, mine, &length));
	if (write(me.sock, mine, sizeof(mine)) != sizeof(mine) ||
	    recv(me.sock, theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		finish(FAILED, "names", "the peer is gone");
	if (fi_av_insert(lane->av, theirs, 1, &lane->peer, 0, NULL) != 1)
		finish(FAILED, "fi_av_insert", "the peer's address was refused");
}

static void close_lanes(void)
{
	for (int i = 0; i < me.lane_count; i++) {
		must("fi_close(ep)", fi_close(&me.lanes[i].ep->fid));
		must("fi_close(cq)", fi_close(&me.lanes[i].cq->fid));
	}
	for (int i = 0; i < me.lane_count && (!i || me.shape->own_domains); i++) {
		must("fi_close(av)", fi_close(&me.lanes[i].av->fid));
		must("fi_close(domain)", fi_close(&me.lanes[i].domain->fid));
	}
	must("fi_close(fabric)", fi_close(&me.fabric->fid));
	fi_freeinfo(me.info);
}

static void run_process(const char *provider)
{
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(DEADLINE);
	CPU_ZERO(&set);
	if (cpus[0] >= 0) {
		CPU_SET((size_t)cpus[me.rank], &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	/* The providers are named by the arguments. */
	unsetenv("FI_PROVIDER");
	me.lane_count = me.shape->one_endpoint ? 1 : me.threads;
	me.info = find(provider);
	open_lanes();
	for (int i = 0; i < me.lane_count; i++)
		exchange_names(&me.lanes[i]);
	measure();
	close_lanes();
	finish(MEASURED, provider, "measured");
}

/* ---- the parent -------------------------------------------------------------------------------- */

static pid_t start_process(int rank, const int *socks, const int *out, const char *provider)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	close(socks[!rank]);
	close(out[0]);
	me.rank = rank;
	me.sock = socks[rank];
	me.out = out[1];
	run_process(provider);
	_exit(3);
}

static void read_report(int out, struct report *report)
{
	memset(report, 0, sizeof(*report));
	if (read(out, report, sizeof(*report)) == sizeof(*report))
		return;
	report->outcome = FAILED;
	snprintf(report->why, sizeof(report->why), "it died, or took more than %d s", DEADLINE);
}

static void run_pair(const char *provider, struct report *report)
{
	int socks[2], out[2];
	pid_t pids[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) || pipe(out)) {
		perror("thread_bench");
		exit(1);
	}
	for (int rank = 0; rank < 2; rank++) {
		pids[rank] = start_process(rank, socks, out, provider);
		if (pids[rank] < 0) {
			perror("thread_bench: fork");
			exit(1);
		}
	}
	close(socks[0]);
	close(socks[1]);
	close(out[1]);
	read_report(out[0], report);
	if (report->outcome != MEASURED)
		kill(pids[1], SIGKILL);
	close(out[0]);
	waitpid(pids[0], NULL, 0);
	waitpid(pids[1], NULL, 0);
}

static int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* ---- the table --------------------------------------------------------------------------------- */

/* One provider, one shape, so many threads: of all turns. */
struct cell {
	double rates[REPS_MAX], costs[REPS_MAX];
	bool left_out;
};

static struct cell cells[SHAPES][COUNTS_MAX][PROVIDERS_MAX];

static double median(double *values)
{
	qsort(values, (size_t)reps, sizeof(values[0]), compare_doubles);
	return reps % 2 ? values[reps / 2] : (values[reps / 2 - 1] + values[reps / 2]) / 2;
}

/* False: it has failed, and is tried no more. One that is not to be had is left out, too. */
static bool measure_cell(struct cell *cell, const char *provider, int rep)
{
	struct report report;

	if (cell->left_out)
		return true;
	run_pair(provider, &report);
	cell->rates[rep] = report.rate;
	cell->costs[rep] = report.cost;
	cell->left_out = report.outcome != MEASURED;
	if (report.outcome != FAILED)
		return true;
	fprintf(stderr, "thread_bench: %s, %s, %d threads: failed (%s); left out there\n", provider,
		me.shape->title, me.threads, report.why);
	return false;
}

/* One turn of everything. */
static bool measure_turn(int rep, const char *only)
{
	bool good = true;

	for (size_t shape = 0; shape < SHAPES; shape++) {
		me.shape = &shapes[shape];
		if (strncmp(me.shape->title, only, strlen(only)))
			continue;
		for (int i = 0; i < thread_count_count; i++) {
			me.threads = thread_counts[i];
			for (int p = 0; p < provider_count; p++)
				good &= measure_cell(&cells[shape][i][p], providers[p], rep);
		}
	}
	return good;
}

static int column(const char *name)
{
	return strlen(name) > 10 ? (int)strlen(name) : 10;
}

static void print_head(const struct shape *shape)
{
	printf("\n%s\n%8s", shape->title, "threads");
	for (int kind = 0; kind < 2; kind++) {
		for (int i = 0; i < provider_count; i++)
			printf(" %*s", column(providers[i]), providers[i]);
		for (int i = 1; i < provider_count; i++)
			printf("   %s/%s", providers[0], providers[i]);
		printf(kind ? "\n" : "  |");
	}
}

/* `better` is how many times better the first is; the columns are as wide as their titles. */
static void print_ratio(const char *first, const char *other, double better)
{
	int width = (int)(strlen(first) + strlen(other)) + 4;

	if (better > 0)
		printf(" %*.2fx", width - 2, better);
	else
		printf(" %*s", width - 1, "-");
}

/* In millions, or microseconds; `less` is better or not. */
static void print_figures(const double *figures, bool less)
{
	for (int i = 0; i < provider_count; i++) {
		if (figures[i] > 0)
			printf(" %*.3f", column(providers[i]), figures[i] * (less ? 1e6 : 1e-6));
		else
			printf(" %*s", column(providers[i]), "-");
	}
	for (int i = 1; i < provider_count; i++) {
		bool both = figures[0] > 0 && figures[i] > 0;
		double ratio = both ? figures[0] / figures[i] : 0;

		print_ratio(providers[0], providers[i], both && less ? 1 / ratio : ratio);
	}
}

static void print_row(int threads, struct cell *row)
{
	double rates[PROVIDERS_MAX] = { 0 }, costs[PROVIDERS_MAX] = { 0 };

	for (int p = 0; p < provider_count; p++) {
		if (row[p].left_out)
			continue;
		rates[p] = median(row[p].rates);
		costs[p] = median(row[p].costs);
	}
	printf("%8d", threads);
	print_figures(rates, false);
	printf("  |");
	print_figures(costs, true);
	printf("\n");
}

static void print_table(const char *only)
{
	printf("libfabric %u.%u, tagged messages of %zu bytes: million per second | processor time of "
	       "both\n"
	       "processes for one, microseconds; medians of %d\n",
	       FI_MAJOR(fi_version()), FI_MINOR(fi_version()), size, reps);
	for (size_t shape = 0; shape < SHAPES; shape++) {
		if (strncmp(shapes[shape].title, only, strlen(only)))
			continue;
		print_head(&shapes[shape]);
		for (int i = 0; i < thread_count_count; i++)
			print_row(thread_counts[i], cells[shape][i]);
	}
}

static void usage(void)
{
	fprintf(stderr,
		"usage: thread_bench [-n repetitions] [-t threads,threads...] [-m messages] [-s size] "
		"[-c cpu,cpu] [-r shape] provider ...\n");
	exit(2);
}

static void parse_threads(char *text)
{
	thread_count_count = 0;
	for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
		int count = atoi(item);

		if (thread_count_count == COUNTS_MAX || count < 1 || count > THREADS_MAX)
			usage();
		thread_counts[thread_count_count++] = count;
	}
}

int main(int argc, char **argv)
{
	const char *only = "";
	bool good = true;
	int option;

	while ((option = getopt(argc, argv, "n:t:m:s:c:r:")) != -1) {
		if (option == 'n')
			reps = atoi(optarg);
		else if (option == 't')
			parse_threads(optarg);
		else if (option == 'm')
			messages = atol(optarg);
		else if (option == 's')
			size = strtoul(optarg, NULL, 0);
		else if (option == 'r')
			only = optarg;
		else if (option != 'c' || sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2)
			usage();
	}
	if (reps < 1 || reps > REPS_MAX || messages < 1 || size < 2 || size > SIZE_MAX_BYTES ||
	    !thread_count_count || optind == argc || argc - optind > PROVIDERS_MAX)
		usage();
	providers = argv + optind;
	provider_count = argc - optind;
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int rep = 0; rep < reps; rep++)
		good &= measure_turn(rep, only);
	print_table(only);
	return !good;
}
