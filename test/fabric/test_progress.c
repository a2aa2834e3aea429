/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_progress.c: progress (fi_domain(3)). FI_PROGRESS_AUTO: who moves data when nobody calls; and with
 * FI_PROGRESS_MANUAL, what is done for an endpoint that no queue and no counter is bound to.
 */
#include "pair.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <rdma/fi_atomic.h>

static const struct pair_want automatic = { .progress = FI_PROGRESS_AUTO };
static const struct pair_want automatic_domain = { .progress = FI_PROGRESS_AUTO,
						   .threading = FI_THREAD_DOMAIN };

/* ---- the thread ------------------------------------------------------------------------------ */

/* Threads of this process that are the provider's; `blocked`: the signals that each of them blocks. */
static int threads(uint64_t *blocked)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	must(dir);
	*blocked = UINT64_MAX;
	while ((entry = readdir(dir))) {
		char path[300], line[128];
		bool ours = false;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (file && fgets(line, sizeof(line), file)) {
			ours |= !strcmp(line, "Name:\tshmcma\n");
			if (ours && !strncmp(line, "SigBlk:", 7))
				*blocked &= strtoull(line + 7, NULL, 16);
		}
		count += ours;
		if (file)
			fclose(file);
	}
	closedir(dir);
	return count;
}

/* It has its name a moment after it was made. */
static void wait_for_threads(int count, uint64_t *blocked)
{
	while (threads(blocked) != count)
		usleep(1000);
}

static void one_thread_per_domain(void)
{
	const int signals[] = { SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGIO, SIGPROF };
	struct pair manual, first, second;
	uint64_t blocked;

	pair_open(&manual, NULL);
	gives(manual.info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
	gives(threads(&blocked), 0);
	pair_open_domain(&first, &automatic);
	gives(first.info->domain_attr->data_progress, FI_PROGRESS_AUTO);
	gives(threads(&blocked), 0);
	side_open(&first, &first.a);
	wait_for_threads(1, &blocked);
	side_open(&first, &first.b);
	gives(threads(&blocked), 1);
	pair_open(&second, &automatic);
	wait_for_threads(2, &blocked);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		must(blocked & 1ULL << (signals[i] - 1));
	pair_close(&second);
	wait_for_threads(1, &blocked);
	pair_close(&first);
	wait_for_threads(0, &blocked);
	pair_close(&manual);
}

/* Domains come and go, with traffic until the last moment. */
static void open_and_close(void)
{
	char buf[8];

	for (int i = 0; i < 100; i++) {
		struct pair pair;

		pair_open(&pair, i % 2 ? &automatic : &automatic_domain);
		gives(fi_recv(pair.b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		gives(fi_send(pair.a.ep, "message", 8, NULL, pair.a.peer, NULL), 0);
		pair_close(&pair);
	}
}

/* A process that ends without closing anything: nothing to see but that it ends. */
static void exit_without_close(void)
{
	static struct pair pair;

	pair_open(&pair, &automatic);
	gives(fi_send(pair.a.ep, "message", 8, NULL, pair.a.peer, NULL), 0);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* A child closes what it has inherited; the parent goes on. The thread may be anywhere at the fork. */
static void fork_and_close(void)
{
	char in[8], out[8] = "message";
	struct pair pair;

	pair_open(&pair, &automatic);
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t pid;

		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
		gives(fi_send(pair.a.ep, out, sizeof(out), NULL, pair.a.peer, out), 0);
		pid = fork();
		must(pid >= 0);
		if (!pid) {
			alarm(60);
			if (i % 2)
				pair_close(&pair);
			exit(0);
		}
		gives(waitpid(pid, &status, 0), pid);
		gives(status, 0);
		must(pair_done(&pair, &pair.b).entry.op_context == in);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
	}
	pair_close(&pair);
}

/* ---- a passive target ------------------------------------------------------------------------- */

#define LARGE_SIZE ((4 << 20) + 1)

/* A pair of its own with automatic progress, between the two processes of a test. */
static void own_open(struct pair *pair, struct pair *own, const struct pair_want *want)
{
	char name[64];

	pair_open_domain(own, want);
	side_open(own, &own->a);
	pair_exchange(pair->link, own->a.name, name, sizeof(name));
	own->a.peer = pair_insert(own->a.av, name);
}

/* What a thread of the provider may be writing just now. */
__attribute__((no_sanitize_thread)) static char look(const void *at)
{
	return *(const volatile char *)at;
}

/* A byte to the other process, or from it: no call of libfabric meanwhile. */
static void tell(struct pair *pair)
{
	gives(write(pair->link, "t", 1), 1);
}

static void listen_to(struct pair *pair)
{
	char byte;

	gives(read(pair->link, &byte, 1), 1);
}

static void passive_target(struct pair *pair)
{
	static uint8_t to[LARGE_SIZE];
	struct fi_cq_tagged_entry entry;
	struct pair own;

	own_open(pair, &own, &automatic);
	for (unsigned int i = 0; i < 3; i++) {
		gives(fi_trecv(own.a.ep, to, sizeof(to), NULL, own.a.peer, 7, 0, to), 0);
		tell(pair);
		listen_to(pair); /* until it has completed there */
		gives(fi_cq_read(own.a.cq, &entry, 1), 1);
		must(entry.op_context == to);
		must(pattern_is(to, 0, sizeof(to), i));
		pair_saw(&entry);
	}
	tell(pair);
	pair_close(&own);
}

static void active_sender(struct pair *pair)
{
	static uint8_t from[LARGE_SIZE];
	struct pair own;

	own_open(pair, &own, NULL);
	for (unsigned int i = 0; i < 3; i++) {
		pattern_fill(from, 0, sizeof(from), i);
		listen_to(pair);
		gives(fi_tsend(own.a.ep, from, sizeof(from), NULL, own.a.peer, 7, from), 0);
		must(pair_done(&own, &own.a).entry.op_context == from);
		tell(pair);
	}
	listen_to(pair);
	pair_close(&own);
}

/* The sender calls nothing either: the payload arrives, which the receiver looks at in its memory. */
static void passive_sender(struct pair *pair)
{
	static uint8_t from[LARGE_SIZE];
	struct fi_cq_tagged_entry entry;
	struct pair own;

	own_open(pair, &own, &automatic);
	memset(from, 1, sizeof(from));
	gives(fi_tsend(own.a.ep, from, sizeof(from), NULL, own.a.peer, 7, from), 0);
	listen_to(pair);
	while (fi_cq_read(own.a.cq, &entry, 1) == -FI_EAGAIN)
		;
	must(entry.op_context == from);
	pair_close(&own);
}

static void looking_receiver(struct pair *pair)
{
	static uint8_t to[LARGE_SIZE];
	struct pair own;

	own_open(pair, &own, &automatic);
	gives(fi_trecv(own.a.ep, to, sizeof(to), NULL, own.a.peer, 7, 0, to), 0);
	while (!look(&to[LARGE_SIZE - 1]))
		sched_yield();
	gives(pair_done(&own, &own.a).entry.len, sizeof(to));
	tell(pair);
	pair_close(&own);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* A message arrives and is counted while nobody asks: its payload is all that is looked at. */
static void counted_unread(void)
{
	struct fid_cntr *recvs;
	struct pair pair;
	struct fid_ep *ep;
	struct fid_av *av;
	fi_addr_t addr;
	char name[64], in[8] = "";
	size_t len = sizeof(name);

	pair_open(&pair, &automatic);
	gives(fi_cntr_open(pair.domain, NULL, &recvs, NULL), 0);
	av = pair_open_av(&pair);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &av->fid, 0), 0);
	gives(fi_ep_bind(ep, &recvs->fid, FI_SEND | FI_RECV), 0);
	gives(fi_enable(ep), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	addr = pair_insert(pair.a.av, name);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_inject(pair.a.ep, "message", 8, addr), 0);
	while (!look(&in[6]))
		sched_yield();
	gives(fi_cntr_wait(recvs, 1, -1), 0);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&recvs->fid), 0);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
}

/* ---- an endpoint without queue and counter ----------------------------------------------------- */

/* A domain whose endpoint is a target and nothing else; and what there is to be read, of another endpoint. */
struct target {
	struct pair pair;
	struct fid_ep *silent, *counted;
	struct fid_cntr *cntr;
	struct fid_poll *set;
	struct fid_mr *mr;
	uint64_t word;
	char name[64];
};

static void read_queue(struct target *target)
{
	gives(fi_cq_read(target->pair.a.cq, NULL, 0), -FI_EAGAIN);
}

static void read_counter(struct target *target)
{
	gives(fi_cntr_read(target->cntr), 0);
}

static void wait_for_counter(struct target *target)
{
	gives(fi_cntr_wait(target->cntr, 1, 0), -FI_ETIMEDOUT);
}

static void poll_set(struct target *target)
{
	void *context;

	gives(fi_poll(target->set, &context, 1), 0);
}

static void target_open(struct target *target, const struct pair_want *want)
{
	struct fi_poll_attr none = { .flags = 0 };
	size_t len = sizeof(target->name);

	pair_open(&target->pair, want);
	gives(fi_cntr_open(target->pair.domain, NULL, &target->cntr, NULL), 0);
	target->counted = pair_open_ep(&target->pair);
	gives(fi_ep_bind(target->counted, &target->pair.a.av->fid, 0), 0);
	gives(fi_ep_bind(target->counted, &target->cntr->fid, FI_READ | FI_WRITE), 0);
	gives(fi_enable(target->counted), 0);
	gives(fi_poll_open(target->pair.domain, &none, &target->set), 0);
	gives(fi_poll_add(target->set, &target->pair.b.cq->fid, 0), 0);
	target->silent = pair_open_ep(&target->pair);
	gives(fi_ep_bind(target->silent, &target->pair.a.av->fid, 0), 0);
	gives(fi_enable(target->silent), 0);
	gives(fi_getname(&target->silent->fid, target->name, &len), 0);
	target->word = 0;
	gives(fi_mr_reg(target->pair.domain, &target->word, sizeof(target->word), FI_REMOTE_WRITE, 0, 77,
			0, &target->mr, NULL),
	      0);
}

static void target_close(struct target *target)
{
	gives(fi_close(&target->mr->fid), 0);
	gives(fi_close(&target->silent->fid), 0);
	read_queue(target);
	read_counter(target);
	gives(fi_close(&target->counted->fid), 0);
	gives(fi_poll_del(target->set, &target->pair.b.cq->fid, 0), 0);
	gives(fi_close(&target->set->fid), 0);
	gives(fi_close(&target->cntr->fid), 0);
	pair_close(&target->pair);
}

/* Whatever is read in the domain, operations on it get on. */
static void silent_endpoint(void)
{
	void (*const ways[])(struct target * target) = { read_queue, read_counter, wait_for_counter,
							 poll_set };
	struct pair_want want = { .caps = FI_RMA | FI_ATOMIC };
	struct fi_cq_tagged_entry entry;
	struct target target;
	struct pair pair;
	uint64_t more = 5;
	fi_addr_t to;

	pair_open(&pair, &want);
	target_open(&target, &want);
	to = pair_insert(pair.a.av, target.name);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		ssize_t ret;

		post(&pair, fi_atomic(pair.a.ep, &more, 1, NULL, to, 0, fi_mr_key(target.mr), FI_UINT64,
				      FI_SUM, &more));
		while ((ret = fi_cq_read(pair.a.cq, &entry, 1)) == -FI_EAGAIN)
			ways[i](&target);
		gives(ret, 1);
		must(entry.op_context == &more);
		pair_saw(&entry);
		gives(target.word, (i + 1) * more);
	}
	target_close(&target);
	pair_close(&pair);
}

/* ---- threads of the application beside it ------------------------------------------------------ */

#define MESSAGES 20000

static void *receive_all(void *arg)
{
	struct side *side = arg;
	struct fi_cq_tagged_entry entry;
	char buf[8];

	for (int i = 0; i < MESSAGES; i++) {
		ssize_t ret;

		gives(fi_recv(side->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		while ((ret = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
			sched_yield();
		gives(ret, 1);
	}
	return NULL;
}

static void beside_other_threads(void)
{
	struct fi_cq_tagged_entry entry;
	struct pair pair;
	pthread_t thread;
	int sent = 0, completed = 0;

	pair_open(&pair, &automatic);
	gives(pthread_create(&thread, NULL, receive_all, &pair.b), 0);
	while (completed < MESSAGES) {
		ssize_t ret = sent < MESSAGES ? fi_send(pair.a.ep, "message", 8, NULL, pair.a.peer, NULL)
					      : -FI_EAGAIN;

		sent += !ret;
		must(!ret || ret == -FI_EAGAIN);
		ret = fi_cq_read(pair.a.cq, &entry, 1);
		completed += ret == 1;
		must(ret == 1 || ret == -FI_EAGAIN);
	}
	gives(pthread_join(thread, NULL), 0);
	pair_close(&pair);
}

/* With FI_THREAD_DOMAIN the application has one thread, and this is the second. */
static void thread_domain(void)
{
	char in[8], out[8] = "message";
	struct pair pair;

	pair_open(&pair, &automatic_domain);
	for (int i = 0; i < 5000; i++) {
		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
		gives(fi_send(pair.a.ep, out, sizeof(out), NULL, pair.a.peer, out), 0);
		must(pair_done(&pair, &pair.b).entry.op_context == in);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
	}
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(one_thread_per_domain),
		ALONE(open_and_close),
		ALONE(exit_without_close),
		ALONE(fork_and_close),
		BOTH(active_sender, passive_target),
		BOTH_ENV(active_sender, passive_target, "FI_SHMCMA_CMA=0"),
		BOTH(passive_sender, looking_receiver),
		BOTH_ENV(passive_sender, looking_receiver, "FI_SHMCMA_CMA=0"),
		ALONE(counted_unread),
		ALONE(silent_endpoint),
		ALONE(beside_other_threads),
		ALONE(thread_domain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
