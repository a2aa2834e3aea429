/* SPDX-License-Identifier: BSD-2-Clause */
/* test_msg.c: fi_msg(3), call by call; what it shares with tagged messages is in traffic.h. */
#include "traffic.h"
#include "../rounds.h"

#include <pthread.h>
#include <stdatomic.h>

TRAFFIC(false)
TRAFFIC_ALONE(large, traffic_large(tagged), false)

static char out[64], in[64];

/* Immediate data of 64 bits. */
static void immediate_data(void)
{
	static const uint64_t values[] = { 0, 1, UINT32_MAX, 1ULL << 32, UINT64_MAX, 0x0123456789abcdef };
	struct pair pair;

	pair_open(&pair, NULL);
	gives(pair.info->domain_attr->cq_data_size, 8);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		for (size_t len = 0; len < 200000; len = len * 9 + 1) {
			char *buf = calloc(1, len + 1);
			struct done done;

			gives(fi_recv(pair.b.ep, buf, len, NULL, FI_ADDR_UNSPEC, NULL), 0);
			post(&pair, fi_senddata(pair.a.ep, buf, len, NULL, values[i], pair.a.peer, NULL));
			done = pair_done(&pair, &pair.b);
			gives(done.entry.flags, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA);
			gives(done.entry.data, values[i]);
			pair_done(&pair, &pair.a);
			free(buf);
		}
	pair_close(&pair);
}

/* Receives are taken in the order of posting. */
static void posted_order(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (uintptr_t i = 0; i < 100; i++)
		gives(fi_recv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, (void *)i), 0);
	for (uintptr_t i = 0; i < 100; i++) {
		post(&pair, fi_inject(pair.a.ep, out, 8, pair.a.peer));
		must(pair_done(&pair, &pair.b).entry.op_context == (void *)i);
	}
	pair_close(&pair);
}

/* A source is looked at by endpoints with FI_DIRECTED_RECV only. */
static void directed(void)
{
	struct pair_want want = { .caps = FI_MSG | FI_SOURCE };
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_recv(pair.b.ep, in, 8, NULL, pair.b.self, (void *)1), 0);
	gives(fi_recv(pair.b.ep, in, 8, NULL, pair.b.peer, (void *)2), 0);
	post(&pair, fi_inject(pair.a.ep, out, 8, pair.a.peer));
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)2);
	pair_quiet(&pair, &pair.b);
	gives(fi_inject(pair.b.ep, out, 8, pair.b.self), 0);
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)1);
	pair_close(&pair);

	pair_open(&pair, &want);
	gives(fi_recv(pair.b.ep, in, 8, NULL, pair.b.self, (void *)1), 0);
	gives(fi_recv(pair.b.ep, in, 8, NULL, 12345, (void *)2), 0);
	for (uintptr_t i = 1; i <= 2; i++) {
		post(&pair, fi_inject(pair.a.ep, out, 8, pair.a.peer));
		must(pair_done(&pair, &pair.b).entry.op_context == (void *)i);
	}
	pair_close(&pair);
}

/* Plain and tagged messages do not meet. */
static void queues_apart(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_recv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, (void *)1), 0);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX, (void *)2), 0);
	post(&pair, fi_tinject(pair.a.ep, out, 8, pair.a.peer, 0));
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)2);
	pair_quiet(&pair, &pair.b);
	post(&pair, fi_inject(pair.a.ep, out, 8, pair.a.peer));
	must(pair_done(&pair, &pair.b).entry.op_context == (void *)1);
	pair_close(&pair);
}

/* ---- FI_THREAD_SAFE: everything at once ------------------------------------------------------- */

enum { THREAD_MESSAGES = 3000 };

static atomic_bool threads_done;

static void send_all(struct pair *pair, bool tagged)
{
	for (int i = 0; i < THREAD_MESSAGES; i++) {
		ssize_t ret;

		while ((ret = kind_send(tagged, &pair->a, out, 8, pair->a.peer, NULL)) == -FI_EAGAIN)
			sched_yield();
		gives(ret, 0);
	}
}

static void *send_msg_thread(void *pair)
{
	send_all(pair, false);
	return NULL;
}

static void *send_tagged_thread(void *pair)
{
	send_all(pair, true);
	return NULL;
}

static void *completion_thread(void *arg)
{
	struct pair *pair = arg;

	for (int i = 0; i < 2 * THREAD_MESSAGES; i++) {
		struct fi_cq_tagged_entry entry;
		ssize_t ret;

		while ((ret = fi_cq_read(pair->a.cq, &entry, 1)) == -FI_EAGAIN)
			sched_yield();
		gives(ret, 1);
	}
	return NULL;
}

/* Addresses come and go, among them the sender's own, which has more than one. */
static void *address_thread(void *arg)
{
	struct pair *pair = arg;

	while (!atomic_load(&threads_done)) {
		fi_addr_t addrs[2];

		addrs[0] = pair_insert(pair->b.av, pair->a.name);
		addrs[1] = pair_insert(pair->a.av, pair->b.name);
		gives(fi_av_remove(pair->b.av, &addrs[0], 1, 0), 0);
		gives(fi_av_remove(pair->a.av, &addrs[1], 1, 0), 0);
	}
	return NULL;
}

static void threads(void)
{
	static void *(*const starts[])(void *) = { send_msg_thread, send_tagged_thread, completion_thread,
						   address_thread };
	pthread_t threads[4];
	struct pair pair;

	pair_open(&pair, NULL);
	gives(pair.info->domain_attr->threading, FI_THREAD_SAFE);
	for (int i = 0; i < 4; i++)
		gives(pthread_create(&threads[i], NULL, starts[i], &pair), 0);
	for (int i = 0; i < 2 * THREAD_MESSAGES; i++) {
		struct fi_cq_tagged_entry entry;
		fi_addr_t source;
		ssize_t ret;

		gives(kind_recv(i & 1, &pair.b, in, 8, FI_ADDR_UNSPEC, NULL), 0);
		while ((ret = fi_cq_readfrom(pair.b.cq, &entry, 1, &source)) == -FI_EAGAIN)
			sched_yield();
		gives(ret, 1);
		gives(source, pair.b.peer);
	}
	atomic_store(&threads_done, true);
	for (int i = 0; i < 4; i++)
		gives(pthread_join(threads[i], NULL), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(immediate_data), ALONE(posted_order),
		ALONE(directed),       ALONE(queues_apart),
		ALONE(threads),	       TRAFFIC_TESTS,
		ALONE(large),
	};
	const struct CMUnitTest more[] = { BOTH_ENV(large_sender, large_receiver, "FI_SHMCMA_CMA=0") };
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	if (rounds_are_full())
		failed += cmocka_run_group_tests(more, NULL, NULL);
	return failed;
}
