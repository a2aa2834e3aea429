/* SPDX-License-Identifier: BSD-2-Clause */
/* test_msg.c: fi_msg(3), call by call; traffic.h has the tests that it shares with tagged messages. */
#include "traffic.h"

#include <pthread.h>
#include <stdatomic.h>

TRAFFIC(false)

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

/* ---- buffers that are not there, or nobody else's to read ------------------------------------- */

#define BLAMED 400000 /* bytes that are copied without a buffer in between, where that can be */

/* A message ends in an error here, which says what has happened, and where. */
static void expect_blamed(struct pair *pair, const char *text)
{
	struct fi_cq_err_entry error = pair_error(pair, &pair->a);

	gives(error.err, FI_EFAULT);
	must(strstr(fi_cq_strerror(pair->a.cq, error.prov_errno, error.err_data, NULL, 0), text));
}

/* First the sender's buffer is bad, then those of the receiver. */
static void *bad_buffer(int protection)
{
	void *map = mmap(NULL, BLAMED, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(map != MAP_FAILED);
	return map;
}

static void blame_sender(struct pair *pair)
{
	static uint8_t good[BLAMED];

	pattern_fill(good, 0, BLAMED, 3);
	pair_meet(pair); /* the receives are posted */
	post(pair, fi_send(pair->a.ep, bad_buffer(PROT_NONE), BLAMED, NULL, pair->a.peer, NULL));
	expect_blamed(pair, "the sender's buffer could not be read");
	for (int i = 0; i < 2; i++) {
		post(pair, fi_send(pair->a.ep, good, BLAMED, NULL, pair->a.peer, NULL));
		expect_blamed(pair, "the receiver's buffer could not be written");
	}
	post(pair, fi_send(pair->a.ep, good, BLAMED, NULL, pair->a.peer, good));
	must(pair_done(pair, &pair->a).entry.op_context == good);
	pair_meet(pair);
}

static void blame_receiver(struct pair *pair)
{
	static uint8_t good[BLAMED];
	void *bufs[] = { good, bad_buffer(PROT_READ), bad_buffer(PROT_NONE), good };

	for (int i = 0; i < 4; i++)
		gives(fi_recv(pair->a.ep, bufs[i], BLAMED, NULL, FI_ADDR_UNSPEC, bufs[i]), 0);
	pair_meet(pair);
	expect_blamed(pair, "the sender's buffer could not be read");
	for (int i = 0; i < 2; i++)
		expect_blamed(pair, "the receiver's buffer could not be written");
	must(pair_done(pair, &pair->a).entry.op_context == good);
	must(pattern_is(good, 0, BLAMED, 3));
	pair_meet(pair);
}

static const size_t secrets[] = { 8, 3000, 20000, 60000, 100000, 1000000 };
#define SECRETS (sizeof(secrets) / sizeof(secrets[0]))
#define SECRET_MAX 1000000

/* Each of the two buffers is secret in turn, and both are. */
static void secret_sender(struct pair *pair)
{
	static uint8_t plain[SECRET_MAX];
	uint8_t *secret = secret_alloc(SECRET_MAX);

	for (int whose = 1; whose <= 3; whose++)
		for (size_t i = 0; i < SECRETS; i++) {
			uint8_t *buf = whose & 1 ? secret : plain;

			pattern_fill(buf, 0, secrets[i], (unsigned int)i);
			post(pair, fi_send(pair->a.ep, buf, secrets[i], NULL, pair->a.peer, buf));
			must(pair_done(pair, &pair->a).entry.op_context == buf);
			pair_meet(pair);
		}
}

static void secret_receiver(struct pair *pair)
{
	static uint8_t plain[SECRET_MAX];
	uint8_t *secret = secret_alloc(SECRET_MAX);

	for (int whose = 1; whose <= 3; whose++)
		for (size_t i = 0; i < SECRETS; i++) {
			uint8_t *buf = whose & 2 ? secret : plain;

			memset(buf, 0, secrets[i]);
			gives(fi_recv(pair->a.ep, buf, secrets[i], NULL, FI_ADDR_UNSPEC, buf), 0);
			must(pair_done(pair, &pair->a).entry.op_context == buf);
			must(pattern_is(buf, 0, secrets[i], (unsigned int)i));
			pair_meet(pair);
		}
}

#define SHARED_NOT "FI_SHMCMA_SHARE_MIN=100000000"

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(immediate_data),
		ALONE(posted_order),
		ALONE(directed),
		ALONE(queues_apart),
		ALONE(threads),
		TRAFFIC_TESTS,
		BOTH(blame_sender, blame_receiver),
		BOTH_ENV(blame_sender, blame_receiver, SHARED_NOT),
		BOTH_ENV(blame_sender, blame_receiver, "FI_SHMCMA_CMA=0"),
		BOTH(secret_sender, secret_receiver),
		BOTH_ENV(secret_sender, secret_receiver, SHARED_NOT),
		BOTH_ENV(secret_sender, secret_receiver, "FI_SHMCMA_CMA=0"),
	};
	const struct CMUnitTest full[] = { TRAFFIC_LARGE_TESTS };
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	if (rounds_are_full())
		failed += cmocka_run_group_tests(full, NULL, NULL);
	return failed;
}
