/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.c: see pair.h. All load libfabric at run time, so the command itself needs none. Each of the two processes sends its
 * result through a pipe, after each case anew; the first that fails sends why, and the parent ends the other.
 */
#define _GNU_SOURCE 1
#include "pair.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
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
#include <rdma/fi_tagged.h>
#include "libfabric.h"

#define NAME_LENGTH 256
#define WINDOW 16 /* messages of a stream that are sent before an answer is awaited */
#define POLLS_IN_VAIN                                                                                     \
	2000 /* then the processor is another process's: on a machine that is loaded, or the only one */
#define QUEUE_SIZE 1024
#define WARM_UP 0.1 /* of the time of a case */

#define TAG 1

enum { GOES_ON = 1, ENDS = 2 }; /* the first byte of each message */

struct side {
	int rank, socket, results;
	const struct pair_plan *plan;
	struct pair_result result;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
	char *out, *in;
	struct fi_context2 sends[WINDOW], recvs[WINDOW];
	uint64_t to_send, sent, received;
	unsigned int in_vain; /* polls */
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
		       struct fi_info **);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*open_fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	const char *(*error_text)(int);
};

/* ---- one of the two processes ---------------------------------------------------------------- */

static void give_up(struct side *side, const char *call, const char *why)
{
	snprintf(side->result.fault, sizeof(side->result.fault), "%s: %s", call, why);
	(void)!write(side->results, &side->result, sizeof(side->result));
	_exit(1);
}

static void must(struct side *side, const char *call, ssize_t ret)
{
	if (ret < 0)
		give_up(side, call, side->error_text((int)-ret));
}

static void load(struct side *side)
{
	void *library = dlopen("libfabric.so.1", RTLD_NOW);

	if (!library)
		give_up(side, "libfabric", dlerror());
	*(void **)&side->getinfo = dlsym(library, "fi_getinfo");
	*(void **)&side->dupinfo = dlsym(library, "fi_dupinfo");
	*(void **)&side->open_fabric = dlsym(library, "fi_fabric");
	*(void **)&side->error_text = dlsym(library, "fi_strerror");
	if (!side->getinfo || !side->dupinfo || !side->open_fabric || !side->error_text)
		give_up(side, "libfabric", dlerror());
}

/* The library makes the structure: it knows its size. */
static void find_provider(struct side *side)
{
	struct fi_info *hints = side->dupinfo(NULL);

	if (!hints)
		give_up(side, "fi_dupinfo", "no memory");
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup(side->plan->provider);
	must(side, "fi_getinfo", side->getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &side->info));
}

static void open_endpoint(struct side *side)
{
	struct fi_cq_attr cq = { .size = QUEUE_SIZE, .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av = { .type = side->info->domain_attr->av_type, .count = 2 };

	must(side, "fi_fabric", side->open_fabric(side->info->fabric_attr, &side->fabric, NULL));
	must(side, "fi_domain", fi_domain(side->fabric, side->info, &side->domain, NULL));
	must(side, "fi_av_open", fi_av_open(side->domain, &av, &side->av, NULL));
	must(side, "fi_cq_open", fi_cq_open(side->domain, &cq, &side->cq, NULL));
	must(side, "fi_endpoint", fi_endpoint(side->domain, side->info, &side->ep, NULL));
	must(side, "fi_ep_bind", fi_ep_bind(side->ep, &side->av->fid, 0));
	must(side, "fi_ep_bind", fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
	must(side, "fi_enable", fi_enable(side->ep));
}

static void close_endpoint(struct side *side)
{
	must(side, "fi_close", fi_close(&side->ep->fid));
	must(side, "fi_close", fi_close(&side->cq->fid));
	must(side, "fi_close", fi_close(&side->av->fid));
	must(side, "fi_close", fi_close(&side->domain->fid));
	must(side, "fi_close", fi_close(&side->fabric->fid));
}

static void connect_to_peer(struct side *side)
{
	char own[NAME_LENGTH] = "", other[NAME_LENGTH];
	size_t length = sizeof(own);

	must(side, "fi_getname", fi_getname(&side->ep->fid, own, &length));
	if (write(side->socket, own, sizeof(own)) != (ssize_t)sizeof(own) ||
	    recv(side->socket, other, sizeof(other), MSG_WAITALL) != (ssize_t)sizeof(other))
		give_up(side, "the other process", "has ended");
	if (fi_av_insert(side->av, other, 1, &side->peer, 0, NULL) != 1)
		give_up(side, "fi_av_insert", "the address of the other process was refused");
}

static void poll_queue(struct side *side)
{
	struct fi_cq_tagged_entry entries[WINDOW];
	struct fi_cq_err_entry error = { 0 };
	ssize_t count = fi_cq_read(side->cq, entries, WINDOW);

	if (count == -FI_EAVAIL) {
		(void)fi_cq_readerr(side->cq, &error, 0);
		give_up(side, "an operation", side->error_text(error.err));
	}
	side->in_vain = count == -FI_EAGAIN ? side->in_vain + 1 : 0;
	if (side->in_vain > (side->plan->cpus[0] == side->plan->cpus[1] ? 0 : POLLS_IN_VAIN))
		sched_yield();
	if (count != -FI_EAGAIN)
		must(side, "fi_cq_read", count);
	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].flags & FI_RECV)
			side->received++;
		else
			side->sent++;
	}
}

static void post_recv(struct side *side, size_t size, int slot)
{
	struct fi_context2 *context = &side->recvs[slot];
	ssize_t ret;

	while ((ret = fi_trecv(side->ep, side->in, size, NULL, side->peer, TAG, 0, context)) == -FI_EAGAIN)
		poll_queue(side);
	must(side, "fi_trecv", ret);
}

static void post_send(struct side *side, size_t size, int slot)
{
	bool inject = size <= side->info->tx_attr->inject_size;
	struct fi_context2 *context = &side->sends[slot];
	ssize_t ret;

	do {
		ret = inject ? fi_tinject(side->ep, side->out, size, side->peer, TAG)
			     : fi_tsend(side->ep, side->out, size, NULL, side->peer, TAG, context);
		if (ret == -FI_EAGAIN)
			poll_queue(side);
	} while (ret == -FI_EAGAIN);
	must(side, "fi_tsend", ret);
	side->to_send += !inject;
}

static void wait_until(struct side *side, uint64_t received)
{
	while (side->received < received || side->sent < side->to_send)
		poll_queue(side);
}

static double seconds_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/*
 * Sends `window` messages and awaits an answer, until the time is over; the last messages say that. Returns
 * the seconds for each such exchange.
 */
static double ask(struct side *side, const struct pair_case *test, double seconds)
{
	int window = test->is_stream ? WINDOW : 1;
	size_t answer = test->is_stream ? 1 : test->size;
	double begin = seconds_of(CLOCK_MONOTONIC), now = begin;
	uint64_t exchanges = 0, before = side->received; /* a post may poll, too */

	side->out[0] = GOES_ON;
	while (side->out[0] != ENDS) {
		if (now - begin >= seconds)
			side->out[0] = ENDS;
		post_recv(side, answer, 0);
		for (int i = 0; i < window; i++)
			post_send(side, test->size, i);
		wait_until(side, before + ++exchanges);
		now = seconds_of(CLOCK_MONOTONIC);
	}
	return (now - begin) / (double)exchanges;
}

/* The other side of it. The receives of the next messages are posted before the answer goes. */
static void answer(struct side *side, const struct pair_case *test)
{
	int window = test->is_stream ? WINDOW : 1;
	size_t size = test->is_stream ? 1 : test->size;
	uint64_t due = side->received + (uint64_t)window; /* a post may poll, too */
	bool goes_on = true;

	for (int i = 0; i < window; i++)
		post_recv(side, test->size, i);
	for (; goes_on; due += (uint64_t)window) {
		wait_until(side, due);
		goes_on = side->in[0] != ENDS;
		for (int i = 0; goes_on && i < window; i++)
			post_recv(side, test->size, i);
		post_send(side, size, 0);
	}
	wait_until(side, side->received);
}

/* The bytes of a message behind its first are the rank of its sender. The next case finds other bytes than it awaits. */
static void check_data(struct side *side, const struct pair_case *test)
{
	size_t size = test->is_stream && !side->rank ? 1 : test->size;

	for (size_t i = 1; i < size; i++)
		if (side->in[i] != !side->rank)
			give_up(side, "a message", "its data are wrong");
	memset(side->in, side->rank, size);
}

static void measure(struct side *side, size_t index)
{
	const struct pair_case *test = &side->plan->cases[index];
	double seconds;

	if (side->rank) {
		answer(side, test);
		answer(side, test);
		return;
	}
	(void)ask(side, test, WARM_UP * side->plan->seconds);
	seconds = ask(side, test, side->plan->seconds);
	side->result.values[index] =
		test->is_stream ? WINDOW * (double)test->size / seconds / 1e6 : seconds / 2 * 1e6;
}

static void measure_all(struct side *side)
{
	double begin = seconds_of(CLOCK_MONOTONIC), used = seconds_of(CLOCK_PROCESS_CPUTIME_ID);

	for (size_t i = 0; i < side->plan->count; i++) {
		measure(side, i);
		check_data(side, &side->plan->cases[i]);
		side->result.done = i + 1;
		side->result.share = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - used) /
				     (seconds_of(CLOCK_MONOTONIC) - begin);
		(void)!write(side->results, &side->result, sizeof(side->result));
	}
}

static char *make_buffer(struct side *side)
{
	size_t size = 1;
	char *buffer;

	for (size_t i = 0; i < side->plan->count; i++)
		if (side->plan->cases[i].size > size)
			size = side->plan->cases[i].size;
	buffer = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	if (!buffer)
		give_up(side, "a buffer", "no memory");
	memset(buffer, side->rank, size);
	return buffer;
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned int)cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

static void be_side(struct side *side)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	stay_on(side->plan->cpus[side->rank]);
	setenv("FI_PROVIDER", side->plan->provider, 1);
	libfabric_set_path();
	libfabric_quiet();
	load(side);
	find_provider(side);
	side->in = make_buffer(side);
	side->out = make_buffer(side);
	open_endpoint(side);
	connect_to_peer(side);
	measure_all(side);
	close_endpoint(side);
	_exit(0);
}

/* ---- this process ---------------------------------------------------------------------------- */

struct child {
	pid_t pid;
	int results; /* where it says what it has measured */
	struct pair_result result;
};

/* Takes the last results of both sides. */
static void merge(const struct child children[2], const struct pair_plan *plan, struct pair_result *result)
{
	result->done = plan->count;
	for (int i = 0; i < 2; i++) {
		const struct pair_result *side = &children[i].result;

		for (size_t k = 0; k < plan->count; k++)
			result->values[k] += side->values[k]; /* of the other side: 0 */
		if (side->done < result->done)
			result->done = side->done;
		if (side->share < result->share)
			result->share = side->share;
	}
}

/* Reads a result. False: there are no more of that child. */
static bool read_result(struct child *child, const struct pair_plan *plan, struct pair_result *result)
{
	bool is_read = read(child->results, &child->result, sizeof(child->result)) ==
		       (ssize_t)sizeof(child->result);

	child->result.fault[PAIR_TEXT - 1] = '\0';
	if (*child->result.fault)
		memcpy(result->fault, child->result.fault, PAIR_TEXT);
	else if (!is_read && child->result.done < plan->count)
		snprintf(result->fault, sizeof(result->fault), "a process has ended");
	return is_read;
}

/* Reads until both processes have ended, or until one fails. */
static void collect(struct child children[2], const struct pair_plan *plan, struct pair_result *result)
{
	int timeout = 1000 * plan->patience + (int)(2000 * plan->seconds * (double)plan->count);
	struct pollfd fds[2] = { { children[0].results, POLLIN, 0 }, { children[1].results, POLLIN, 0 } };

	while (!*result->fault && (fds[0].fd >= 0 || fds[1].fd >= 0)) {
		if (poll(fds, 2, timeout) <= 0)
			snprintf(result->fault, sizeof(result->fault),
				 "the processes have reported nothing for %d s", timeout / 1000);
		for (int i = 0; i < 2 && !*result->fault; i++)
			if (fds[i].revents && !read_result(&children[i], plan, result))
				fds[i].fd = -1;
	}
	merge(children, plan, result);
}

static void end(struct child *child, struct pair_result *result)
{
	int status = 0;

	if (child->pid <= 0)
		return;
	if (*result->fault)
		(void)kill(child->pid, SIGKILL);
	(void)waitpid(child->pid, &status, 0);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		snprintf(result->fault, sizeof(result->fault), "a process has crashed: %s",
			 strsignal(WTERMSIG(status)));
}

/* A child that ends closes the only writing end, which collect() sees. */
static bool start(struct child *child, int rank, int socket, const struct pair_plan *plan)
{
	static struct side side;
	int results[2];

	if (pipe2(results, O_CLOEXEC))
		return false;
	child->results = results[0];
	child->pid = fork();
	if (!child->pid) {
		side.rank = rank;
		side.socket = socket;
		side.results = results[1];
		side.plan = plan;
		be_side(&side);
	}
	close(results[1]);
	return child->pid > 0;
}

/*
 * This process loads libfabric before it makes the children, whose patience then does not include that time. Debian's
 * libfabric loads libpsm2: its constructor repeats a measurement of the clock, for more than a minute on some virtual machines.
 */
void pair_measure(const struct pair_plan *plan, struct pair_result *result)
{
	struct child children[2] = { { .pid = -1, .results = -1 }, { .pid = -1, .results = -1 } };
	int sockets[2];

	*result = (struct pair_result){ .share = 1 };
	fflush(stdout);
	libfabric_quiet();
	(void)dlopen("libfabric.so.1", RTLD_NOW);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets)) {
		snprintf(result->fault, sizeof(result->fault), "no descriptors: %s", strerror(errno));
		return;
	}
	if (start(&children[0], 0, sockets[0], plan) && start(&children[1], 1, sockets[1], plan))
		collect(children, plan, result);
	else
		snprintf(result->fault, sizeof(result->fault), "no processes: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		close(sockets[i]);
		if (children[i].results >= 0)
			close(children[i].results);
		end(&children[i], result);
	}
}
