/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_many_peers: one server endpoint and more peers than libfabric's shm survives (256); and a server
 * that has no place for one more peer: that one is told so, the others go on.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <string.h>

/* ---- three hundred --------------------------------------------------------------------------- */

#define CLIENTS 30 /* processes */
#define EACH 10	   /* endpoints of one */
#define PEERS (CLIENTS * EACH)
#define LARGEST ((size_t)100000)

static size_t many_size(int peer, int round)
{
	static const size_t sizes[] = { 8, 100, 1000, 5000, LARGEST };

	return sizes[(size_t)(peer + round) % 5];
}

/* Small endpoints, so that the test runs where shared memory is short. */
static void small_endpoints(void)
{
	setenv("FI_SHMCMA_BOUNCE_COUNT", "8", 1);
	setenv("FI_SHMCMA_PEERS", "16", 1);
}

static void many_client(void)
{
	struct mt_ep eps[EACH];
	struct mt_op send = { 0 }, recv = { 0 };
	uint8_t *buf = malloc(LARGEST);
	fi_addr_t server[EACH];

	small_endpoints();
	mt_require(buf, "no memory");
	for (int i = 0; i < EACH; i++) {
		mt_open(&eps[i], NULL);
		mt_publish(&eps[i], 1 + (mt_rank - 1) * EACH + i);
		server[i] = mt_lookup(&eps[i], 0);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < EACH; i++) {
			int peer = (mt_rank - 1) * EACH + i;
			size_t size = many_size(peer, round);
			uint64_t tag = (uint64_t)peer << 8 | (uint64_t)round;

			mt_doing("round %d: peer %d asks with %zu bytes", round, peer, size);
			mt_fill(buf, size, tag, 0);
			mt_tsend(&eps[i], &send, buf, size, server[i], tag);
			mt_wait(&eps[i], &send);
			memset(buf, 0, size);
			mt_doing("round %d: peer %d waits for the answer of %zu bytes", round, peer, size);
			mt_trecv(&eps[i], &recv, buf, LARGEST, server[i], tag);
			mt_wait(&eps[i], &recv);
			mt_require(recv.len == size && mt_verify(buf, size, tag + 1, 0) < 0,
				   "wrong answer");
		}
	mt_doing("done, waiting for the others");
	mt_barrier(NULL);
	for (int i = 0; i < EACH; i++)
		mt_close(&eps[i]);
	free(buf);
}

/* Answer the question that has come. */
static void many_answer(struct mt_ep *ep, struct mt_op *question, uint8_t *buf, const fi_addr_t *peers)
{
	int peer = (int)(question->tag >> 8), round = (int)(question->tag & 0xFF);
	size_t size = many_size(peer, round);
	struct mt_op send = { 0 };

	mt_require(question->source == peers[peer], "peer %d came as %#llx", peer,
		   (unsigned long long)question->source);
	mt_require(question->len == size && mt_verify(buf, size, question->tag, 0) < 0, "wrong question");
	mt_fill(buf, size, question->tag + 1, 0);
	mt_doing("round %d: answering peer %d", round, peer);
	mt_tsend(ep, &send, buf, size, peers[peer], question->tag);
	mt_wait(ep, &send);
}

static void many_server(void)
{
	uint8_t *buf = malloc(LARGEST);
	struct mt_op recv = { 0 };
	fi_addr_t peers[PEERS];
	struct iovec iov = { buf, LARGEST };
	struct mt_message any = {
		.tagged = true, .iov = &iov, .pieces = 1, .peer = FI_ADDR_UNSPEC, .ignore = ~0ULL
	};
	struct mt_ep ep;

	setenv("FI_SHMCMA_PEERS", "512", 1);
	mt_require(buf, "no memory");
	mt_open(&ep, NULL);
	mt_publish(&ep, 0);
	for (int i = 0; i < PEERS; i++)
		peers[i] = mt_lookup(&ep, 1 + i);
	for (int i = 0; i < PEERS * 3; i++) {
		mt_doing("waiting for question %d of %d", i, PEERS * 3);
		mt_post_recv(&ep, &recv, &any);
		mt_wait(&ep, &recv);
		many_answer(&ep, &recv, buf, peers);
	}
	mt_doing("done, waiting for the others");
	mt_barrier(&ep);
	mt_close(&ep);
	free(buf);
}

static void many_rank(const void *arg)
{
	(void)arg;
	if (mt_rank == 0)
		many_server();
	else
		many_client();
}

/* ---- one too many ---------------------------------------------------------------------------- */

#define PLACES 8
#define FULL_RANKS (1 + PLACES + 2) /* the server, those who fit, those who do not */
#define FLAG_IN 0		    /* clients that have been answered */
#define FLAG_OUT 1		    /* those who do not fit that were told so */
#define FLAG_STOP 2		    /* the server need not answer any more */

/* Answers whoever it hears from, at once and for as long as wanted. */
static void full_server(void)
{
	struct mt_op recv = { 0 }, send = { 0 };
	fi_addr_t peers[FULL_RANKS];
	uint64_t question, answer;
	struct iovec iov = { &question, sizeof(question) };
	struct mt_message any = {
		.tagged = true, .iov = &iov, .pieces = 1, .peer = FI_ADDR_UNSPEC, .tag = 1
	};
	struct mt_ep ep;

	setenv("FI_SHMCMA_PEERS", "8", 1);
	mt_open(&ep, NULL);
	mt_publish(&ep, 0);
	for (int i = 1; i < FULL_RANKS; i++)
		peers[i] = mt_lookup(&ep, i);
	mt_post_recv(&ep, &recv, &any);
	mt_doing("answering");
	while (!atomic_load(mt_flag(FLAG_STOP))) {
		mt_poll(&ep);
		if (!recv.done)
			continue;
		mt_require(recv.err == 0, "receive: %s", fi_strerror(recv.err));
		mt_require(question >> 32 <= PLACES, "rank %d got through", (int)(question >> 32));
		answer = ~question;
		mt_tsend(&ep, &send, &answer, sizeof(answer), peers[question >> 32], 2);
		mt_wait(&ep, &send);
		mt_post_recv(&ep, &recv, &any);
	}
	mt_must(fi_cancel(&ep.ep->fid, &recv));
	mt_wait_any(&ep, &recv);
	mt_close(&ep);
}

static void ask(struct mt_ep *ep, fi_addr_t server, int number)
{
	uint64_t question = (uint64_t)mt_rank << 32 | (uint64_t)number, answer = 0;
	struct mt_op send = { 0 }, recv = { 0 };

	mt_doing("asking, question %d", number);
	mt_trecv(ep, &recv, &answer, sizeof(answer), server, 2);
	mt_tsend(ep, &send, &question, sizeof(question), server, 1);
	mt_wait(ep, &send);
	mt_wait(ep, &recv);
	mt_require(answer == ~question, "wrong answer");
}

/* One that fits: in, and on until those who do not fit have been told. */
static void full_client(struct mt_ep *ep, fi_addr_t server)
{
	int number = 0;

	mt_flag_wait(ep, FLAG_IN, (uint64_t)mt_rank - 1);
	ask(ep, server, number++);
	atomic_fetch_add(mt_flag(FLAG_IN), 1);
	mt_flag_wait(ep, FLAG_IN, PLACES);
	while (atomic_load(mt_flag(FLAG_OUT)) < 2)
		ask(ep, server, number++);
	for (int i = 0; i < 50; i++)
		ask(ep, server, number++);
}

static void full_refused(struct mt_ep *ep, fi_addr_t server)
{
	uint64_t question = (uint64_t)mt_rank << 32;
	int rc;

	mt_flag_wait(ep, FLAG_IN, PLACES);
	mt_doing("asking the server that is full");
	for (int i = 0; i < 3; i++) {
		rc = mt_send_outcome(ep, &question, sizeof(question), server, 1, MT_FOREVER);
		mt_require(rc != 0, "one peer too many was let in");
		mt_require(rc != -FI_EAGAIN, "one peer too many was never told so");
		mt_require(rc != -FI_EIO && rc != -FI_EOTHER, "the error says nothing: %s",
			   fi_strerror(-rc));
	}
	atomic_fetch_add(mt_flag(FLAG_OUT), 1);
}

static void full_rank(const void *arg)
{
	fi_addr_t server;
	struct mt_ep ep;

	(void)arg;
	if (mt_rank == 0) {
		full_server();
		return;
	}
	mt_open(&ep, NULL);
	mt_publish(&ep, mt_rank);
	server = mt_lookup(&ep, 0);
	if (mt_rank <= PLACES)
		full_client(&ep, server);
	else
		full_refused(&ep, server);
	/* the last one out */
	if (atomic_fetch_add(mt_flag(FLAG_STOP + 1), 1) + 2 == (uint64_t)mt_ranks)
		atomic_store(mt_flag(FLAG_STOP), 1);
	mt_flag_wait(&ep, FLAG_STOP, 1);
	mt_close(&ep);
}

static bool judge_full(const struct mt_counters *c, int ranks, const void *arg)
{
	(void)arg;
	(void)ranks;
	if (c[0].accepts > PLACES)
		printf("  the server with %d places accepted %llu\n", PLACES,
		       (unsigned long long)c[0].accepts);
	return c[0].accepts <= PLACES;
}

/* ---- coming and going ------------------------------------------------------------------------ */

#define VISITS 40

/* A place that a peer has left is free for another. */
static void visits_client(void)
{
	struct mt_ep ep;
	fi_addr_t server;

	for (int i = 0; i < VISITS; i++) {
		uint64_t question = (uint64_t)i;
		int rc;

		mt_doing("visit %d", i);
		/* the place of the last visit may not be free yet: come again */
		do {
			mt_open(&ep, NULL);
			server = mt_lookup(&ep, 0);
			rc = mt_send_outcome(&ep, &question, sizeof(question), server, 1, MT_FOREVER);
			if (rc)
				mt_close(&ep);
		} while (rc);
		mt_close(&ep);
		/* not before it was seen */
		mt_flag_wait(NULL, FLAG_IN, (uint64_t)i + 1);
	}
	atomic_store(mt_flag(FLAG_STOP), 1);
}

static void visits_rank(const void *arg)
{
	struct mt_op recv = { 0 };
	uint64_t question;
	struct mt_ep ep;

	(void)arg;
	if (mt_rank == 1) {
		visits_client();
		return;
	}
	setenv("FI_SHMCMA_PEERS", "2", 1);
	mt_open(&ep, NULL);
	mt_publish(&ep, 0);
	for (int i = 0; i < VISITS; i++) {
		mt_doing("expecting visit %d", i);
		mt_trecv(&ep, &recv, &question, sizeof(question), FI_ADDR_UNSPEC, 1);
		mt_wait(&ep, &recv);
		mt_require(question == (uint64_t)i, "visit %llu instead of %d",
			   (unsigned long long)question, i);
		atomic_fetch_add(mt_flag(FLAG_IN), 1);
	}
	while (!atomic_load(mt_flag(FLAG_STOP)))
		mt_poll(&ep);
	mt_close(&ep);
}

int main(void)
{
	static const struct mt_case cases[] = {
		{ .name = "many", .ranks = 1 + CLIENTS, .deadline = 90, .rank = many_rank },
		{ .name = "full",
		  .ranks = FULL_RANKS,
		  .rank = full_rank,
		  .judge = judge_full,
		  .flags = MT_CASE_SHMCMA },
		{ .name = "visits",
		  .ranks = 2,
		  .rank = visits_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
	};

	mt_init("test_many_peers");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mt_run(&cases[i]);
	return mt_end();
}
