/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_bench.c: latency, bandwidth and rate of tagged messages, or of one-sided operations, between two
 * processes of this machine, for several libfabric providers in one run.
 *
 *	fabric_bench [-o] [-n repetitions] [-s size,size...] [-c cpu,cpu] provider[:variant...] ...
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
 * With -o, one-sided: put and get until each is complete at the target (FI_DELIVERY_COMPLETE), one at a time
 * and in windows of WINDOW; fetch-add and compare-swap of a 64-bit word, likewise; fi_mr_reg and fi_close. Once
 * with a target that polls its completion queue, once with one that computes and does not call libfabric;
 * what makes no progress for GIVE_UP seconds then is shown as "-", as is what the provider does not have.
 *
 * Variants of a provider, columns of their own: "strict" (FI_SHMCMA_RMA=strict), "nocma" (FI_SHMCMA_CMA=0),
 * "auto" (asks for automatic progress): shmcma:strict:auto. Of any: "sleep" (poll(2) on the queue's FI_WAIT_FD while
 * it is empty), "sread" (fi_cq_sread): then the latency is that of a wake-up.
 *
 * It prints and judges nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
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
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
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
#define GIVE_UP 0.5 /* seconds without a completion while the target computes */
#define REGISTRATIONS 100000

static size_t sizes[SIZES_MAX] = {
	1, 4, 8, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304
};
static size_t size_count = 13;
static const size_t onesided_sizes[] = { 8, 4096, 65536, 1048576, 4194304 };
static bool onesided;
static int reps = 7;
static int cpus[2] = { -1, -1 };

enum outcome { MEASURED, UNAVAILABLE, FAILED };

enum direction { PUT, GET, DIRECTIONS };
enum atomic { FETCH_ADD, COMPARE_SWAP, ATOMICS };
enum target { POLLS, COMPUTES, TARGETS };

static const char *const direction_names[] = { "put", "get" };
static const char *const atomic_names[] = { "fetch-add", "compare-swap" };
static const char *const target_names[] = { "target polls", "target computes" };

/* What the pair's first process writes to the parent. */
struct report {
	enum outcome outcome;
	char why[256];
	double latency[SIZES_MAX];   /* seconds, one way */
	double bandwidth[SIZES_MAX]; /* bytes per second */
	/* one-sided; NAN: not to be had */
	double move_latency[DIRECTIONS][TARGETS][SIZES_MAX];
	double move_bandwidth[DIRECTIONS][TARGETS][SIZES_MAX];
	double atomic_latency[ATOMICS][TARGETS];
	double atomic_rate[ATOMICS][TARGETS];
	double registration[2]; /* seconds for one and its close: alone, with REGISTRATIONS others */
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
	bool automatic;		      /* asks for automatic progress */
	enum { SPINS, SLEEPS, SREADS } idle;
	int wait_fd; /* SLEEPS */
	struct fid_mr *mr;	      /* of recvbuf */
	uint64_t there, key;	      /* the peer's recvbuf */
	uint64_t results[WINDOW];
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

static void rest(void)
{
	struct pollfd wait = { .fd = me.wait_fd, .events = POLLIN };
	struct fid *fid = &me.cq->fid;

	if (fi_trywait(me.fabric, &fid, 1) == 0)
		(void)poll(&wait, 1, -1);
}

static void poll_cq(void)
{
	struct fi_cq_tagged_entry entries[16];
	struct fi_cq_err_entry err;
	ssize_t n = me.idle == SREADS ? fi_cq_sread(me.cq, entries, 16, NULL, -1) :
					fi_cq_read(me.cq, entries, 16);

	if (n == -FI_EAGAIN && me.idle == SLEEPS) {
		rest();
		return;
	}
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
	int idle = (int)me.idle;

	if (write(me.sock, &byte, 1) != 1)
		finish(FAILED, "barrier", "the peer is gone");
	me.idle = SPINS; /* the queue is not all that is waited for */
	while (poll(&waiting, 1, 0) == 0) /* the provider may need us meanwhile */
		poll_cq();
	me.idle = idle;
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

/* ---- one-sided --------------------------------------------------------------------------------- */

struct remote {
	uint64_t addr, key;
};

static uint64_t next_key; /* for a provider that leaves the choice to us */

static int register_memory(void *memory, size_t size, struct fid_mr **mr)
{
	return fi_mr_reg(me.domain, memory, size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, ++next_key, 0, mr,
			 NULL);
}

static void exchange_memory(size_t size)
{
	bool virtual = me.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	struct remote mine, theirs;

	must("fi_mr_reg", register_memory(me.recvbuf, size, &me.mr));
	mine = (struct remote){ virtual ? (uint64_t)(uintptr_t)me.recvbuf : 0, fi_mr_key(me.mr) };
	if (write(me.sock, &mine, sizeof(mine)) != sizeof(mine) ||
	    recv(me.sock, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs))
		finish(FAILED, "keys", "the peer is gone");
	me.there = theirs.addr;
	me.key = theirs.key;
}

/* Until so many are complete; false: nothing has moved for GIVE_UP seconds. */
static bool wait_complete(uint64_t count)
{
	uint64_t before = me.sent;
	unsigned polls = 0;
	double since = 0;

	while (me.sent < count) {
		poll_cq();
		if (++polls % 4096 && !me.alone)
			continue;
		if (!since || me.sent != before)
			since = now();
		else if (now() - since > GIVE_UP)
			return false;
		before = me.sent;
	}
	return true;
}

/* What is to be measured: a put, a get or an atomic. */
struct onesided {
	enum direction direction;
	size_t size; /* 0: an atomic */
	enum atomic atomic;
};

static ssize_t try_post(const struct onesided *what, int slot)
{
	static uint64_t operand = 1, compare;
	void *context = &me.send_ctx[slot];

	if (what->size && what->direction == PUT)
		return fi_write(me.ep, me.sendbuf, what->size, NULL, me.peer, me.there, me.key, context);
	if (what->size)
		return fi_read(me.ep, me.sendbuf, what->size, NULL, me.peer, me.there, me.key, context);
	if (what->atomic == FETCH_ADD)
		return fi_fetch_atomic(me.ep, &operand, 1, NULL, &me.results[slot], NULL, me.peer,
				       me.there, me.key, FI_UINT64, FI_SUM, context);
	return fi_compare_atomic(me.ep, &operand, 1, NULL, &compare, NULL, &me.results[slot], NULL,
				 me.peer, me.there, me.key, FI_UINT64, FI_CSWAP, context);
}

static bool post_onesided(const struct onesided *what, int slot)
{
	ssize_t ret;

	while ((ret = try_post(what, slot)) == -FI_EAGAIN)
		if (me.sent == me.to_send)
			poll_cq();
		else if (!wait_complete(me.sent + 1))
			return false;
	must("one-sided operation", ret);
	me.to_send++;
	return true;
}

static bool in_windows(const struct onesided *what, long windows, int width)
{
	for (long i = 0; i < windows; i++) {
		for (int slot = 0; slot < width; slot++)
			if (!post_onesided(what, slot))
				return false;
		if (!wait_complete(me.to_send))
			return false;
	}
	return true;
}

/* Seconds for one operation, so many outstanding; NAN: none to be had. */
static double time_onesided(const struct onesided *what, long windows, int width)
{
	double start;

	if (!in_windows(what, (windows + 9) / 10, width))
		return NAN;
	start = now();
	if (!in_windows(what, windows, width))
		return NAN;
	return (now() - start) / (double)windows / width;
}

/* Does nothing for the provider until the peer has a word for us. */
static void compute(void)
{
	struct pollfd waiting = { .fd = me.sock, .events = POLLIN };
	volatile double sum = 1;

	while (poll(&waiting, 1, 0) == 0)
		for (int i = 0; i < 20000; i++)
			sum = sum * 1.0000001 + 0.5;
}

/*
 * The first process measures; the second one is the target, and polls or computes until that is done. What
 * was given up completes when the target polls again.
 */
static void with_target(enum target target, const struct onesided *what, double *latency,
			double *per_window)
{
	size_t size = what->size ? what->size : sizeof(uint64_t);

	barrier();
	if (me.rank && target == COMPUTES) {
		compute();
	} else if (!me.rank) {
		*latency = time_onesided(what, latency_rounds(size), 1);
		*per_window = isnan(*latency) ? NAN : time_onesided(what, bandwidth_windows(size), WINDOW);
	}
	barrier();
	if (!me.rank)
		wait_sent();
	barrier();
}

/* Once: what is put there comes back. */
static void check_onesided(size_t size)
{
	struct onesided put = { .direction = PUT, .size = size }, get = { .direction = GET, .size = size };

	barrier();
	if (!me.rank) {
		fill(size, TAG_STREAM);
		post_onesided(&put, 0);
		wait_sent();
		memset(me.sendbuf, 0, size);
		post_onesided(&get, 0);
		wait_sent();
		for (size_t i = 0; i < size; i++)
			if (me.sendbuf[i] != pattern(i, size, me.rank, TAG_STREAM))
				finish(FAILED, "put and get", "what came back is not what was put");
	}
	barrier();
}

static void measure_moves(size_t index)
{
	struct onesided what = { .size = sizes[index] };
	double per_window = NAN;

	check_onesided(what.size);
	for (int d = 0; d < DIRECTIONS; d++)
		for (int t = 0; t < TARGETS; t++) {
			what.direction = (enum direction)d;
			with_target((enum target)t, &what, &me.report.move_latency[d][t][index],
				    &per_window);
			me.report.move_bandwidth[d][t][index] = (double)what.size / per_window;
		}
}

static bool has_atomic(enum atomic atomic)
{
	size_t count = 0;

	if (atomic == FETCH_ADD)
		return fi_fetch_atomicvalid(me.ep, FI_UINT64, FI_SUM, &count) == 0 && count;
	return fi_compare_atomicvalid(me.ep, FI_UINT64, FI_CSWAP, &count) == 0 && count;
}

static void measure_atomics(void)
{
	struct onesided what = { .size = 0 };
	double per_window = NAN;

	for (int a = 0; a < ATOMICS; a++)
		for (int t = 0; t < TARGETS; t++) {
			me.report.atomic_latency[a][t] = me.report.atomic_rate[a][t] = NAN;
			if (!has_atomic((enum atomic)a))
				continue;
			what.atomic = (enum atomic)a;
			with_target((enum target)t, &what, &me.report.atomic_latency[a][t], &per_window);
			me.report.atomic_rate[a][t] = 1 / per_window;
		}
}

/* Register and close one piece of memory after the other. */
static double time_registrations(void)
{
	enum { ROUNDS = 20000 };
	double start = now();
	struct fid_mr *mr;

	for (int i = 0; i < ROUNDS; i++) {
		if (register_memory(me.sendbuf, 4096, &mr))
			return NAN;
		must("fi_close(mr)", fi_close(&mr->fid));
	}
	return (now() - start) / ROUNDS;
}

static void measure_registration(void)
{
	struct fid_mr **mrs = calloc(REGISTRATIONS, sizeof(mrs[0]));
	int open = 0;

	if (!mrs)
		finish(FAILED, "registrations", "no memory");
	me.report.registration[0] = time_registrations();
	while (open < REGISTRATIONS && register_memory(me.sendbuf, 4096, &mrs[open]) == 0)
		open++;
	me.report.registration[1] = open == REGISTRATIONS ? time_registrations() : NAN;
	while (open--)
		must("fi_close(mr)", fi_close(&mrs[open]->fid));
	free(mrs);
}

static void measure_onesided(size_t largest)
{
	exchange_memory(largest);
	for (size_t i = 0; i < size_count; i++)
		measure_moves(i);
	measure_atomics();
	if (!me.rank)
		measure_registration();
	barrier();
	must("fi_close(mr)", fi_close(&me.mr->fid));
}

/* ---- opening ----------------------------------------------------------------------------------- */

static struct fi_info *find(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int ret;

	if (!hints)
		finish(FAILED, "fi_allocinfo", "no memory");
	hints->caps = FI_MSG | FI_TAGGED;
	if (onesided) {
		hints->caps |= FI_RMA | FI_ATOMIC;
		hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	}
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = me.automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
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
	if (me.idle != SPINS)
		cq_attr.wait_obj = me.idle == SLEEPS ? FI_WAIT_FD : FI_WAIT_UNSPEC;
	av_attr.type = me.info->domain_attr->av_type;
	must("fi_fabric", fi_fabric(me.info->fabric_attr, &me.fabric, NULL));
	must("fi_domain", fi_domain(me.fabric, me.info, &me.domain, NULL));
	must("fi_av_open", fi_av_open(me.domain, &av_attr, &me.av, NULL));
	must("fi_cq_open", fi_cq_open(me.domain, &cq_attr, &me.cq, NULL));
	must("fi_endpoint", fi_endpoint(me.domain, me.info, &me.ep, NULL));
	must("fi_ep_bind", fi_ep_bind(me.ep, &me.av->fid, 0));
	must("fi_ep_bind", fi_ep_bind(me.ep, &me.cq->fid, FI_TRANSMIT | FI_RECV));
	must("fi_enable", fi_enable(me.ep));
	if (me.idle == SLEEPS)
		must("FI_GETWAIT", fi_control(&me.cq->fid, FI_GETWAIT, &me.wait_fd));
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

/* Of "provider:variant:variant" the provider; the variants go to where they work. */
static void choose_variants(const char *subject, char *provider, size_t room)
{
	char *save, *variant;

	snprintf(provider, room, "%s", subject);
	strtok_r(provider, ":", &save);
	while ((variant = strtok_r(NULL, ":", &save))) {
		if (strcmp(variant, "strict") == 0)
			setenv("FI_SHMCMA_RMA", "strict", 1);
		else if (strcmp(variant, "nocma") == 0)
			setenv("FI_SHMCMA_CMA", "0", 1);
		else if (strcmp(variant, "auto") == 0)
			me.automatic = true;
		else if (strcmp(variant, "sleep") == 0)
			me.idle = SLEEPS;
		else if (strcmp(variant, "sread") == 0)
			me.idle = SREADS;
		else
			finish(UNAVAILABLE, variant, "no such variant");
	}
}

static void run_process(int rank, int sock, int out, const char *subject)
{
	char provider[NAME_MAX_BYTES];
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

	choose_variants(subject, provider, sizeof(provider));
	open_endpoint(provider);
	exchange_names();
	if (onesided)
		measure_onesided(largest);
	for (size_t i = 0; i < size_count && !onesided; i++) {
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

/* Of the figure at that place of the reports; NAN if one of them is. */
static double median(const struct subject *subject, size_t place)
{
	double values[REPS_MAX];

	for (int i = 0; i < reps; i++) {
		memcpy(&values[i], (const char *)&subject->reports[i] + place, sizeof(values[i]));
		if (isnan(values[i]))
			return NAN;
	}
	qsort(values, (size_t)reps, sizeof(values[0]), compare_doubles);
	return reps % 2 ? values[reps / 2] : (values[reps / 2 - 1] + values[reps / 2]) / 2;
}

#define PLACE(figure, index) (offsetof(struct report, figure) + (index) * sizeof(double))

static int column(const char *name)
{
	return strlen(name) > 12 ? (int)strlen(name) : 12;
}

static void print_head(const char *title, const char *rows, int count)
{
	printf("\n%s\n%10s", title, rows);
	for (int i = 0; i < count; i++)
		printf(" %*s", column(subjects[i].name), subjects[i].name);
	for (int i = 1; i < count; i++)
		printf("   %s/%s", subjects[0].name, subjects[i].name);
	printf("\n");
}

/* `better` is how many times better the first is; the columns are as wide as their titles. */
static void print_ratio(int other, double better)
{
	int width = (int)(strlen(subjects[0].name) + strlen(subjects[other].name)) + 4;

	if (isnan(better))
		printf(" %*s", width - 1, "-");
	else
		printf(" %*.2fx", width - 2, better);
}

/* A figure of all, in units of which there are `scale` in one, and the comparison; `less` is better or not. */
static void print_row(int count, size_t place, double scale, int digits, bool less)
{
	double first = median(&subjects[0], place), other;

	for (int i = 0; i < count; i++) {
		other = median(&subjects[i], place);
		if (isnan(other))
			printf(" %*s", column(subjects[i].name), "-");
		else
			printf(" %*.*f", column(subjects[i].name), digits, other * scale);
	}
	for (int i = 1; i < count; i++) {
		other = median(&subjects[i], place);
		print_ratio(i, less ? other / first : first / other);
	}
	printf("\n");
}

static void print_latency(int count)
{
	print_head("tagged ping-pong, one way, microseconds; last columns: how many times faster", "bytes",
		   count);
	for (size_t s = 0; s < size_count; s++) {
		printf("%10zu", sizes[s]);
		print_row(count, PLACE(latency, s), 1e6, 3, true);
	}
}

static void print_bandwidth(int count)
{
	print_head("tagged bandwidth, windows of 64, MB/s; last columns: how many times more", "bytes",
		   count);
	for (size_t s = 0; s < size_count; s++) {
		if (!sizes[s])
			continue;
		printf("%10zu", sizes[s]);
		print_row(count, PLACE(bandwidth, s), 1e-6, 1, false);
	}
}

static void print_rate(int count)
{
	for (size_t s = 0; s < size_count; s++) {
		if (sizes[s] != 64)
			continue;
		print_head("tagged rate, million messages per second", "bytes", count);
		printf("%10zu", sizes[s]);
		print_row(count, PLACE(bandwidth, s), 1 / 64e6, 2, false);
	}
}

static void print_moves(int count, enum direction direction, enum target target)
{
	char title[160];

	snprintf(title, sizeof(title), "%s, %s: one at a time until complete, microseconds",
		 direction_names[direction], target_names[target]);
	print_head(title, "bytes", count);
	for (size_t s = 0; s < size_count; s++) {
		printf("%10zu", sizes[s]);
		print_row(
			count,
			PLACE(move_latency[0][0], ((size_t)direction * TARGETS + target) * SIZES_MAX + s),
			1e6, 3, true);
	}
	snprintf(title, sizeof(title), "%s, %s: windows of 64, MB/s", direction_names[direction],
		 target_names[target]);
	print_head(title, "bytes", count);
	for (size_t s = 0; s < size_count; s++) {
		printf("%10zu", sizes[s]);
		print_row(count,
			  PLACE(move_bandwidth[0][0],
				((size_t)direction * TARGETS + target) * SIZES_MAX + s),
			  1e-6, 1, false);
	}
}

static void print_atomics(int count, enum atomic atomic)
{
	char title[160];

	snprintf(title, sizeof(title),
		 "%s of 64 bits: one at a time, microseconds; windows of 64, million a second",
		 atomic_names[atomic]);
	print_head(title, "target", count);
	for (size_t t = 0; t < TARGETS; t++) {
		printf("%10s", t == POLLS ? "polls" : "computes");
		print_row(count, PLACE(atomic_latency[0], (size_t)atomic * TARGETS + t), 1e6, 3, true);
		printf("%10s", "");
		print_row(count, PLACE(atomic_rate[0], (size_t)atomic * TARGETS + t), 1e-6, 3, false);
	}
}

static void print_onesided(int count)
{
	for (int d = 0; d < DIRECTIONS; d++)
		for (int t = 0; t < TARGETS; t++)
			print_moves(count, (enum direction)d, (enum target)t);
	for (int a = 0; a < ATOMICS; a++)
		print_atomics(count, (enum atomic)a);
	print_head("fi_mr_reg and fi_close of 4 KiB, nanoseconds", "open", count);
	for (size_t i = 0; i < 2; i++) {
		printf("%10d", i ? REGISTRATIONS : 0);
		print_row(count, PLACE(registration, i), 1e9, 0, true);
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
	fprintf(stderr, "usage: fabric_bench [-o] [-n repetitions] [-s size,size...] [-c cpu,cpu] "
			"provider[:variant...] ...\n");
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
	bool failed = false, sizes_given = false;
	int option, count = 0;

	while ((option = getopt(argc, argv, "on:s:c:")) != -1) {
		sizes_given |= option == 's';
		if (option == 'o')
			onesided = true;
		else if (option == 'n')
			reps = atoi(optarg);
		else if (option == 's')
			parse_sizes(optarg);
		else if (option != 'c' || sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2)
			usage();
	}
	if (onesided && !sizes_given) {
		size_count = sizeof(onesided_sizes) / sizeof(onesided_sizes[0]);
		memcpy(sizes, onesided_sizes, sizeof(onesided_sizes));
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
		if (onesided) {
			print_onesided(count);
			return failed;
		}
		print_latency(count);
		print_bandwidth(count);
		print_rate(count);
	}
	return failed || !count;
}
