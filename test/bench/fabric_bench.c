/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_bench.c: latency, bandwidth and rate of tagged messages between two processes of this machine,
 * for several libfabric providers in one run.
 *
 *	fabric_bench [-n repetitions] [-s size,size...] [-c cpu,cpu] provider [provider...]
 *
 * Each measurement is a fresh pair of processes, each on its own processor where there are two; the
 * providers take turns (A B A B...), and the table shows the median of all turns. Addresses go over a
 * socket pair, so any provider with FI_EP_RDM and FI_TAGGED can take part. All sizes are checked for
 * content once per pair, before they are timed.
 *
 * Latency: half a round trip, receives posted ahead. Bandwidth: windows of WINDOW messages from one
 * buffer into one buffer, each window answered by an empty message. Sends that fit the provider's
 * inject_size are injected, as most users of libfabric do.
 *
 * It prints and judges nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
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
#define SIZES_MAX 64
#define REPS_MAX 101
#define WINDOW 64
#define DEADLINE 120 /* seconds for one pair and all sizes */
#define NAME_MAX_BYTES 512
#define TAG_PING 1
#define TAG_STREAM 2
#define TAG_ANSWER 3

static size_t sizes[SIZES_MAX] = {
	1, 4, 8, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304
};
static size_t size_count = 13;
static int reps = 7;
static int cpus[2] = { -1, -1 };

enum outcome { MEASURED, UNAVAILABLE, FAILED };

/* What the pair's first process writes to the parent. */
struct report {
	enum outcome outcome;
	char why[256];
	double latency[SIZES_MAX];   /* seconds, one way */
	double bandwidth[SIZES_MAX]; /* bytes per second */
};

struct subject {
	const char *name;
	struct report reports[REPS_MAX];
};

static struct subject subjects[PROVIDERS_MAX];

/* ---- one process of a pair --------------------------------------------------------------------- */

/* A process has one endpoint and talks to one peer; everything below is its private state. */
static struct {
	int rank;
	int sock;   /* to the peer: names, and "are you there" */
	int out;    /* to the parent */
	bool alone; /* both processes share one processor: give way when idle */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
	uint8_t *sendbuf, *recvbuf;
	struct fi_context2 send_ctx[WINDOW], recv_ctx[WINDOW], answer_ctx;
	uint64_t sent, received;      /* completions seen */
	uint64_t to_send, to_receive; /* completions owed by what was posted */
	struct report report;
} me;

static void finish(enum outcome outcome, const char *what, const char *why)
{
	me.report.outcome = outcome;
	snprintf(me.report.why, sizeof(me.report.why), "%s: %s", what, why);
	if (me.rank && outcome == FAILED)
		fprintf(stderr, "fabric_bench: second process: %s\n", me.report.why);
	else if (!me.rank && write(me.out, &me.report, sizeof(me.report)) != sizeof(me.report))
		_exit(3);
	_exit(outcome == MEASURED ? 0 : 1);
}

static void must(const char *what, ssize_t ret)
{
	if (ret)
		finish(FAILED, what, fi_strerror((int)-ret));
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void poll_cq(void)
{
	struct fi_cq_tagged_entry entries[16];
	struct fi_cq_err_entry err;
	ssize_t n = fi_cq_read(me.cq, entries, 16);

	if (n == -FI_EAGAIN) {
		if (me.alone)
			sched_yield();
		return;
	}
	if (n == -FI_EAVAIL) {
		memset(&err, 0, sizeof(err));
		fi_cq_readerr(me.cq, &err, 0);
		finish(FAILED, "completion", fi_strerror(err.err));
	}
	if (n < 0)
		must("fi_cq_read", n);
	for (ssize_t i = 0; i < n; i++) {
		if (entries[i].flags & FI_RECV)
			me.received++;
		else
			me.sent++;
	}
}

static void wait_received(void)
{
	while (me.received < me.to_receive)
		poll_cq();
}

static void wait_sent(void)
{
	while (me.sent < me.to_send)
		poll_cq();
}

static void post_recv(size_t size, uint64_t tag, struct fi_context2 *context)
{
	ssize_t ret;

	while ((ret = fi_trecv(me.ep, me.recvbuf, size, NULL, me.peer, tag, 0, context)) == -FI_EAGAIN)
		poll_cq();
	must("fi_trecv", ret);
	me.to_receive++;
}

static void post_send(size_t size, uint64_t tag, struct fi_context2 *context)
{
	ssize_t ret;

	if (size <= me.info->tx_attr->inject_size) {
		while ((ret = fi_tinject(me.ep, me.sendbuf, size, me.peer, tag)) == -FI_EAGAIN)
			poll_cq();
		must("fi_tinject", ret);
		return;
	}
	while ((ret = fi_tsend(me.ep, me.sendbuf, size, NULL, me.peer, tag, context)) == -FI_EAGAIN)
		poll_cq();
	must("fi_tsend", ret);
	me.to_send++;
}

/* Send and receive one message each way; receives are posted ahead by the caller. */
static void round_trip(size_t size)
{
	if (me.rank == 0) {
		post_send(size, TAG_PING, &me.send_ctx[0]);
		wait_received();
		wait_sent();
		post_recv(size, TAG_PING, &me.recv_ctx[0]);
	} else {
		wait_received();
		post_recv(size, TAG_PING, &me.recv_ctx[0]);
		post_send(size, TAG_PING, &me.send_ctx[0]);
		wait_sent();
	}
}

/* Every rank, size and purpose has a pattern of its own. */
static uint8_t pattern(size_t at, size_t size, int rank, uint64_t tag)
{
	return (uint8_t)(at * 7 + at / 251 + size + (size_t)rank * 101 + tag * 57);
}

static void fill(size_t size, uint64_t tag)
{
	for (size_t i = 0; i < size; i++)
		me.sendbuf[i] = pattern(i, size, me.rank, tag);
}

static void check(size_t size, uint64_t tag)
{
	char where[64];

	for (size_t i = 0; i < size; i++) {
		if (me.recvbuf[i] == pattern(i, size, !me.rank, tag))
			continue;
		snprintf(where, sizeof(where), "byte %zu of %zu is wrong", i, size);
		finish(FAILED, "received data", where);
	}
}

/* Both sides have come to this point, and nothing is on its way. */
static void barrier(void)
{
	char byte = 0;
	struct pollfd waiting = { .fd = me.sock, .events = POLLIN };

	if (write(me.sock, &byte, 1) != 1)
		finish(FAILED, "barrier", "the peer is gone");
	while (poll(&waiting, 1, 0) == 0) /* the provider may need us meanwhile */
		poll_cq();
	if (read(me.sock, &byte, 1) != 1)
		finish(FAILED, "barrier", "the peer is gone");
}

static long latency_rounds(size_t size)
{
	long rounds = size <= 4096 ? 10000 : size <= 65536 ? 2000 : size <= 1048576 ? 400 : 100;

	return me.alone ? rounds / 10 : rounds;
}

/* One way, seconds. A receive stays posted at the end of each round: the last round takes it away. */
static double measure_latency(size_t size)
{
	long rounds = latency_rounds(size);
	double start;

	fill(size, TAG_PING);
	memset(me.recvbuf, 0, size);
	post_recv(size, TAG_PING, &me.recv_ctx[0]);
	barrier();
	round_trip(size);
	check(size, TAG_PING);
	for (long i = 0; i < rounds / 10; i++)
		round_trip(size);
	start = now();
	for (long i = 0; i < rounds; i++)
		round_trip(size);
	start = now() - start;
	/* use up the receives that are still posted */
	post_send(size, TAG_PING, &me.send_ctx[0]);
	wait_sent();
	wait_received();
	return start / (double)rounds / 2;
}

static void window(size_t size)
{
	if (me.rank == 0) {
		post_recv(0, TAG_ANSWER, &me.answer_ctx);
		for (int i = 0; i < WINDOW; i++)
			post_send(size, TAG_STREAM, &me.send_ctx[i]);
		wait_sent();
		wait_received();
	} else {
		wait_received();
		for (int i = 0; i < WINDOW; i++)
			post_recv(size, TAG_STREAM, &me.recv_ctx[i]);
		post_send(0, TAG_ANSWER, &me.answer_ctx);
		wait_sent();
	}
}

static long bandwidth_windows(size_t size)
{
	long windows = size <= 4096 ? 300 : size <= 65536 ? 60 : size <= 1048576 ? 10 : 4;

	return me.alone ? (windows + 9) / 10 : windows;
}

/* Bytes per second. The receiver has one window of receives posted ahead, also after the last. */
static double measure_bandwidth(size_t size)
{
	long windows = bandwidth_windows(size);
	double start;

	fill(size, TAG_STREAM);
	memset(me.recvbuf, 0, size);
	if (me.rank)
		for (int i = 0; i < WINDOW; i++)
			post_recv(size, TAG_STREAM, &me.recv_ctx[i]);
	barrier();
	window(size);
	if (me.rank)
		check(size, TAG_STREAM);
	for (long i = 0; i < (windows + 9) / 10; i++)
		window(size);
	start = now();
	for (long i = 0; i < windows; i++)
		window(size);
	start = now() - start;
	if (me.rank) {
		wait_received();
	} else {
		for (int i = 0; i < WINDOW; i++)
			post_send(size, TAG_STREAM, &me.send_ctx[i]);
		wait_sent();
	}
	return (double)size * WINDOW * (double)windows / start;
}

static struct fi_info *find(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int ret;

	if (!hints)
		finish(FAILED, "fi_allocinfo", "no memory");
	hints->caps = FI_MSG | FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
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
	return info;
}

static void open_endpoint(const char *provider)
{
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av_attr = { .count = 2 };

	me.info = find(provider);
	cq_attr.size = 4 * WINDOW;
	av_attr.type = me.info->domain_attr->av_type;
	must("fi_fabric", fi_fabric(me.info->fabric_attr, &me.fabric, NULL));
	must("fi_domain", fi_domain(me.fabric, me.info, &me.domain, NULL));
	must("fi_av_open", fi_av_open(me.domain, &av_attr, &me.av, NULL));
	must("fi_cq_open", fi_cq_open(me.domain, &cq_attr, &me.cq, NULL));
	must("fi_endpoint", fi_endpoint(me.domain, me.info, &me.ep, NULL));
	must("fi_ep_bind", fi_ep_bind(me.ep, &me.av->fid, 0));
	must("fi_ep_bind", fi_ep_bind(me.ep, &me.cq->fid, FI_TRANSMIT | FI_RECV));
	must("fi_enable", fi_enable(me.ep));
}

static void exchange_names(void)
{
	char mine[NAME_MAX_BYTES] = { 0 }, theirs[NAME_MAX_BYTES];
	size_t length = sizeof(mine);

	must("fi_getname", fi_getname(&me.ep->fid, mine, &length));
	if (write(me.sock, mine, sizeof(mine)) != sizeof(mine) ||
	    recv(me.sock, theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		finish(FAILED, "names", "the peer is gone");
	if (fi_av_insert(me.av, theirs, 1, &me.peer, 0, NULL) != 1)
		finish(FAILED, "fi_av_insert", "the peer's address was refused");
}

static void close_endpoint(void)
{
	must("fi_close(ep)", fi_close(&me.ep->fid));
	must("fi_close(cq)", fi_close(&me.cq->fid));
	must("fi_close(av)", fi_close(&me.av->fid));
	must("fi_close(domain)", fi_close(&me.domain->fid));
	must("fi_close(fabric)", fi_close(&me.fabric->fid));
	fi_freeinfo(me.info);
}

static void *buffer(size_t size)
{
	void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);

	if (!memory)
		finish(FAILED, "buffers", "no memory");
	memset(memory, 0, size);
	return memory;
}

static void run_process(int rank, int sock, int out, const char *provider)
{
	size_t largest = 4096;
	cpu_set_t set;

	me.rank = rank;
	me.sock = sock;
	me.out = out;
	me.alone = cpus[0] == cpus[1];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(DEADLINE);
	CPU_ZERO(&set);
	CPU_SET((size_t)cpus[rank], &set);
	sched_setaffinity(0, sizeof(set), &set);
	/* The providers are named by the arguments. */
	unsetenv("FI_PROVIDER");
	for (size_t i = 0; i < size_count; i++)
		largest = sizes[i] > largest ? sizes[i] : largest;
	me.sendbuf = buffer(largest);
	me.recvbuf = buffer(largest);

	open_endpoint(provider);
	exchange_names();
	for (size_t i = 0; i < size_count; i++) {
		me.report.latency[i] = measure_latency(sizes[i]);
		me.report.bandwidth[i] = measure_bandwidth(sizes[i]);
	}
	barrier();
	close_endpoint();
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
	run_process(rank, socks[rank], out[1], provider);
	_exit(3);
}

static void run_pair(const char *provider, struct report *report)
{
	int socks[2], out[2];
	pid_t pids[2];
	size_t got = 0;

	memset(report, 0, sizeof(*report));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) || pipe(out)) {
		perror("fabric_bench");
		exit(1);
	}
	for (int rank = 0; rank < 2; rank++) {
		pids[rank] = start_process(rank, socks, out, provider);
		if (pids[rank] < 0) {
			perror("fabric_bench: fork");
			exit(1);
		}
	}
	close(socks[0]);
	close(socks[1]);
	close(out[1]);
	while (got < sizeof(*report)) {
		ssize_t n = read(out[0], (char *)report + got, sizeof(*report) - got);

		if (n <= 0)
			break;
		got += (size_t)n;
	}
	if (got < sizeof(*report)) {
		report->outcome = FAILED;
		snprintf(report->why, sizeof(report->why), "it died, or took more than %d s", DEADLINE);
	}
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

static double median(const struct subject *subject, size_t size, bool latency)
{
	double values[REPS_MAX];

	for (int i = 0; i < reps; i++)
		values[i] =
			latency ? subject->reports[i].latency[size] : subject->reports[i].bandwidth[size];
	qsort(values, (size_t)reps, sizeof(values[0]), compare_doubles);
	return reps % 2 ? values[reps / 2] : (values[reps / 2 - 1] + values[reps / 2]) / 2;
}

static void print_head(const char *title, int count)
{
	printf("\n%s\n%10s", title, "bytes");
	for (int i = 0; i < count; i++)
		printf(" %12s", subjects[i].name);
	for (int i = 1; i < count; i++)
		printf("   %s/%s", subjects[0].name, subjects[i].name);
	printf("\n");
}

/* `better` is how many times better the first is; the columns are as wide as their titles. */
static void print_ratio(int other, double better)
{
	int width = (int)(strlen(subjects[0].name) + strlen(subjects[other].name)) + 4;

	printf(" %*.2fx", width - 2, better);
}

static void print_latency(int count)
{
	print_head("tagged ping-pong, one way, microseconds; last columns: how many times faster", count);
	for (size_t s = 0; s < size_count; s++) {
		printf("%10zu", sizes[s]);
		for (int i = 0; i < count; i++)
			printf(" %12.3f", median(&subjects[i], s, true) * 1e6);
		for (int i = 1; i < count; i++)
			print_ratio(i, median(&subjects[i], s, true) / median(&subjects[0], s, true));
		printf("\n");
	}
}

static void print_bandwidth(int count)
{
	print_head("tagged bandwidth, windows of 64, MB/s; last columns: how many times more", count);
	for (size_t s = 0; s < size_count; s++) {
		if (!sizes[s])
			continue;
		printf("%10zu", sizes[s]);
		for (int i = 0; i < count; i++)
			printf(" %12.1f", median(&subjects[i], s, false) / 1e6);
		for (int i = 1; i < count; i++)
			print_ratio(i, median(&subjects[0], s, false) / median(&subjects[i], s, false));
		printf("\n");
	}
}

static void print_rate(int count)
{
	for (size_t s = 0; s < size_count; s++) {
		if (sizes[s] != 64)
			continue;
		print_head("tagged rate, million messages per second", count);
		printf("%10zu", sizes[s]);
		for (int i = 0; i < count; i++)
			printf(" %12.2f", median(&subjects[i], s, false) / 64e6);
		for (int i = 1; i < count; i++)
			print_ratio(i, median(&subjects[0], s, false) / median(&subjects[i], s, false));
		printf("\n");
	}
}

/* All turns of all providers; one that is not there or fails is said so and left out. */
static int measure_all(int count, bool *failed)
{
	for (int rep = 0; rep < reps; rep++) {
		for (int i = 0; i < count; i++) {
			struct report *report = &subjects[i].reports[rep];

			run_pair(subjects[i].name, report);
			if (report->outcome == MEASURED)
				continue;
			printf("%s: %s (%s); left out\n", subjects[i].name,
			       report->outcome == UNAVAILABLE ? "not available" : "failed", report->why);
			*failed |= report->outcome == FAILED;
			memmove(&subjects[i], &subjects[i + 1],
				sizeof(subjects[0]) * (size_t)(count - i - 1));
			count--;
			i--;
		}
	}
	return count;
}

static void usage(void)
{
	fprintf(stderr, "usage: fabric_bench [-n repetitions] [-s size,size...] [-c cpu,cpu] "
			"provider [provider...]\n");
	exit(2);
}

static void parse_sizes(char *text)
{
	size_count = 0;
	for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
		char *end;

		if (size_count == SIZES_MAX)
			usage();
		sizes[size_count++] = strtoul(item, &end, 0);
		if (end == item || *end)
			usage();
	}
}

/* The first two processors we may use, or the same twice. */
static void choose_cpus(void)
{
	cpu_set_t set;

	if (cpus[0] >= 0)
		return;
	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET((size_t)cpu, &set))
			continue;
		if (cpus[0] < 0) {
			cpus[0] = cpus[1] = cpu;
		} else {
			cpus[1] = cpu;
			return;
		}
	}
}

int main(int argc, char **argv)
{
	bool failed = false;
	int option, count = 0;

	while ((option = getopt(argc, argv, "n:s:c:")) != -1) {
		if (option == 'n')
			reps = atoi(optarg);
		else if (option == 's')
			parse_sizes(optarg);
		else if (option != 'c' || sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2)
			usage();
	}
	if (reps < 1 || reps > REPS_MAX || !size_count || optind == argc || argc - optind > PROVIDERS_MAX)
		usage();
	for (; optind < argc; optind++)
		subjects[count++].name = argv[optind];
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	choose_cpus();

	count = measure_all(count, &failed);
	if (count) {
		printf("libfabric %u.%u, processors %d and %d, medians of %d\n", FI_MAJOR(fi_version()),
		       FI_MINOR(fi_version()), cpus[0], cpus[1], reps);
		print_latency(count);
		print_bandwidth(count);
		print_rate(count);
	}
	return failed || !count;
}
