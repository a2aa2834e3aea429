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
 * tables show the median of all turns: messages per second, and the processor time that both processes
 * spend on one message, polls in vain among it; the ratios are how many times better the first provider is.
 * It prints and judges nothing.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "endpoint.h"
#include "group.h"
#include "table.h"

#define PROVIDERS_MAX 8
#define THREADS_MAX 64
#define COUNTS_MAX 16
#define SIZE_MAX_BYTES 256
#define WINDOW 64
#define WARM_UP 4   /* windows of each thread */
#define DEADLINE 60 /* seconds for one pair */
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
static long messages = 400000;
static size_t size = 8;
static bool pinned;

/* ---- one process of a pair --------------------------------------------------------------------- */

/* Of a receive; the provider's first. */
struct slot {
	struct fi_context2 context;
	struct thread *owner;
};

struct thread {
	struct endpoint *lane; /* the endpoint that the thread uses, alone or with others */
	uint64_t tag;
	long windows;
	double began, ended; /* the first process's: the windows after the first few */
	uint64_t to_receive;
	_Atomic uint64_t received; /* counted by any thread that reads the queue */
	struct slot slots[WINDOW];
	uint8_t bufs[WINDOW][SIZE_MAX_BYTES];
	pthread_t id;
} __attribute__((aligned(64)));

static struct {
	const char *provider;
	int shape, threads;
	struct endpoint lanes[THREADS_MAX];
	int lane_count;
	struct thread each[THREADS_MAX];
	pthread_barrier_t warm;
} run;

/* Completions are anybody's who shares the queue: each is told to its owner. */
static void poll_cq(struct endpoint *lane)
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
	struct endpoint *lane = thread->lane;
	ssize_t ret;

	while ((ret = fi_trecv(lane->ep, thread->bufs[slot], bytes, NULL, lane->peer, tag, 0,
			       &thread->slots[slot])) == -FI_EAGAIN)
		poll_cq(lane);
	must("fi_trecv", ret);
	thread->to_receive++;
}

static void post_send(struct thread *thread, const void *buf, size_t bytes, uint64_t tag)
{
	struct endpoint *lane = thread->lane;
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
	pthread_barrier_wait(&run.warm);
	thread->began = now();
	send_windows(thread, WARM_UP, end);
	thread->ended = now();
	return NULL;
}

/* The provider may need us while we wait for the other process. */
static void poll_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < run.lane_count; i++)
		poll_cq(&run.lanes[i]);
}

/* Both sides have come to this point. Returns the processor time that they have taken to come there. */
static double barrier(void)
{
	double used;

	group_seat(me.rank)->cpu = cpu_time();
	group_barrier(poll_all, NULL);
	used = group_seat(0)->cpu + group_seat(1)->cpu;
	group_barrier(poll_all, NULL);
	return used;
}

/* From the first thread's begin to the last one's end. */
static double seconds(void)
{
	double began = run.each[0].began, ended = run.each[0].ended;

	for (int i = 1; i < run.threads; i++) {
		began = run.each[i].began < began ? run.each[i].began : began;
		ended = run.each[i].ended > ended ? run.each[i].ended : ended;
	}
	return ended - began;
}

static void measure(void)
{
	long windows = messages / WINDOW / run.threads + 1;
	double total = (double)(windows * WINDOW * run.threads), used;

	pthread_barrier_init(&run.warm, NULL, (unsigned int)run.threads);
	for (int i = 0; i < run.threads; i++) {
		struct thread *thread = &run.each[i];

		thread->lane = &run.lanes[i % run.lane_count];
		thread->tag = (uint64_t)i;
		thread->windows = windows;
		for (int slot = 0; slot < WINDOW; slot++)
			thread->slots[slot].owner = thread;
		if (me.rank)
			post_window(thread);
	}
	used = barrier();
	for (int i = 0; i < run.threads; i++)
		must("pthread_create", -pthread_create(&run.each[i].id, NULL, run_thread, &run.each[i]));
	for (int i = 0; i < run.threads; i++)
		pthread_join(run.each[i].id, NULL);
	used = barrier() - used;
	if (me.rank)
		return;
	group_sample(2 * run.shape, run.threads, total / seconds());
	group_sample(2 * run.shape + 1, run.threads, used / total);
}

/* ---- opening ----------------------------------------------------------------------------------- */

/* Each lane has a queue and an endpoint; the domain is the first one's, or its own. */
static void open_lane(struct endpoint *lane, const struct shape *shape)
{
	if (!lane->domain)
		endpoint_open_domain(lane, THREADS_MAX);
	endpoint_open_queue(lane, (size_t)(4 * WINDOW) * (size_t)(shape->one_endpoint ? run.threads : 1));
	lane->ep = endpoint_open_more(lane);
	endpoint_get_name(lane->ep, group_name(me.rank * THREADS_MAX + (int)(lane - run.lanes)));
}

static void open_lanes(const struct shape *shape)
{
	struct endpoint *first = &run.lanes[0];

	endpoint_find(first, &(struct wanted){ run.provider, FI_MSG | FI_TAGGED, shape->threading, 0 });
	if (first->info->tx_attr->inject_size < size)
		finish(UNAVAILABLE, "inject_size", "too small for these messages");
	open_lane(first, shape);
	for (int i = 1; i < run.lane_count; i++) {
		run.lanes[i].info = first->info;
		run.lanes[i].fabric = first->fabric;
		if (!shape->own_domains) {
			run.lanes[i].domain = first->domain;
			run.lanes[i].av = first->av;
		}
		open_lane(&run.lanes[i], shape);
	}
	group_barrier(poll_all, NULL);
	for (int i = 0; i < run.lane_count; i++)
		run.lanes[i].peer = endpoint_insert(&run.lanes[i], group_name(!me.rank * THREADS_MAX + i));
}

static void close_lanes(const struct shape *shape)
{
	for (int i = 0; i < run.lane_count; i++) {
		must("fi_close(ep)", fi_close(&run.lanes[i].ep->fid));
		must("fi_close(cq)", fi_close(&run.lanes[i].cq->fid));
	}
	for (int i = 0; i < run.lane_count && (!i || shape->own_domains); i++) {
		must("fi_close(av)", fi_close(&run.lanes[i].av->fid));
		must("fi_close(domain)", fi_close(&run.lanes[i].domain->fid));
	}
	must("fi_close(fabric)", fi_close(&run.lanes[0].fabric->fid));
	fi_freeinfo(run.lanes[0].info);
}

/* Without -c the threads run on all the processors that there are. */
static void run_process(void *arg)
{
	const struct shape *shape = &shapes[run.shape];

	(void)arg;
	if (!pinned)
		group_use_all_cpus();
	run.lane_count = shape->one_endpoint ? 1 : run.threads;
	open_lanes(shape);
	measure();
	close_lanes(shape);
}

/* ---- the parent -------------------------------------------------------------------------------- */

static bool left_out[SHAPES][COUNTS_MAX][PROVIDERS_MAX];

/* False: it has failed, and is not tried again. A measurement that is UNAVAILABLE is not tried again either. */
static bool measure_one(struct table *table, int count, int subject)
{
	static const struct group_attr attr = { 2, DEADLINE, run_process, NULL };
	static struct result result;

	if (left_out[run.shape][count][subject])
		return true;
	run.provider = table->subjects[subject];
	run.threads = thread_counts[count];
	group_run(&attr, &result);
	table_add(table, subject, &result);
	left_out[run.shape][count][subject] = result.outcome != MEASURED;
	if (result.outcome != FAILED)
		return true;
	fprintf(stderr, "thread_bench: %s, %s, %d threads: failed (%s); left out there\n", run.provider,
		shapes[run.shape].title, run.threads, result.why);
	return false;
}

/* One turn of everything. */
static bool measure_turn(struct table *table, const char *only)
{
	bool good = true;

	for (run.shape = 0; run.shape < (int)SHAPES; run.shape++) {
		if (strncmp(shapes[run.shape].title, only, strlen(only)))
			continue;
		for (int count = 0; count < thread_count_count; count++)
			for (int subject = 0; subject < table->subject_count; subject++)
				good &= measure_one(table, count, subject);
	}
	return good;
}

/* Of each shape the rate, and what a message costs. */
static void set_figures(struct figure *figures)
{
	static char titles[2 * SHAPES][128];

	for (size_t i = 0; i < SHAPES; i++) {
		snprintf(titles[2 * i], sizeof(titles[0]), "%s: million messages per second",
			 shapes[i].title);
		snprintf(titles[2 * i + 1], sizeof(titles[0]),
			 "%s: processor time of both processes for a message, microseconds",
			 shapes[i].title);
		figures[2 * i] =
			(struct figure){ shapes[i].title, titles[2 * i], "threads", 1e-6, 3, false };
		figures[2 * i + 1] =
			(struct figure){ shapes[i].title, titles[2 * i + 1], "threads", 1e6, 3, true };
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
	static struct figure figures[2 * SHAPES];
	struct table table = { .figures = figures, .figure_count = 2 * SHAPES };
	const char *only = "", *cpu_list = NULL;
	bool good = true;
	int option, turns = 7;

	while ((option = getopt(argc, argv, "n:t:m:s:c:r:")) != -1) {
		if (option == 'n')
			turns = atoi(optarg);
		else if (option == 't')
			parse_threads(optarg);
		else if (option == 'm')
			messages = atol(optarg);
		else if (option == 's')
			size = strtoul(optarg, NULL, 0);
		else if (option == 'r')
			only = optarg;
		else if (option == 'c')
			cpu_list = optarg;
		else
			usage();
	}
	table.subjects = argv + optind;
	table.subject_count = argc - optind;
	pinned = cpu_list;
	if (turns < 1 || turns > TURNS_MAX || messages < 1 || size < 2 || size > SIZE_MAX_BYTES ||
	    !thread_count_count || !table.subject_count || table.subject_count > PROVIDERS_MAX ||
	    !group_choose_cpus(cpu_list))
		usage();
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_figures(figures);
	for (int turn = 0; turn < turns; turn++)
		good &= measure_turn(&table, only);
	printf("libfabric %u.%u, tagged messages of %zu bytes, medians of %d\n", FI_MAJOR(fi_version()),
	       FI_MINOR(fi_version()), size, turns);
	table_print(&table);
	return !good;
}
