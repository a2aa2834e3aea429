/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_many_peers: one server endpoint and more peers than libfabric's shm survives (256); a server that has no
 * place for one more peer: that one is told so, the others go on, and it is let in once a place is free; and a server to
 * which many come, one after the other, and that keeps nothing of them but the addresses in its vector.
 *
 * TEST_VISITORS: how many these are, 40 or more; by default 2,000, and 20,000 in the full tests. The server prints the
 * processor time that it took for each of the first and of the last quarter.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <sys/wait.h>
#include "../rounds.h"

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
			pattern_fill(buf, 0, size, tag);
			mt_tsend(&eps[i], &send, buf, size, server[i], tag);
			mt_wait(&eps[i], &send);
			memset(buf, 0, size);
			mt_doing("round %d: peer %d waits for the answer of %zu bytes", round, peer, size);
			mt_trecv(&eps[i], &recv, buf, LARGEST, server[i], tag);
			mt_wait(&eps[i], &recv);
			mt_require(recv.len == size && pattern_differs(buf, 0, size, tag + 1) < 0,
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
	mt_require(question->len == size && pattern_differs(buf, 0, size, question->tag) < 0,
		   "wrong question");
	pattern_fill(buf, 0, size, question->tag + 1);
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
#define FULL_RANKS (1 + PLACES + 2) /* the server, the clients that fit, those that do not */
#define FLAG_IN 0		    /* clients that have been answered */
#define FLAG_OUT 1		    /* clients that do not fit and were told so */
#define FLAG_STOP 2		    /* the server need not answer any more */

/* Answers every client at once, until FLAG_STOP. */
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

/* ---- a place that becomes free --------------------------------------------------------------- */

enum parting { CLOSES, IS_KILLED };
#define FLAG_LET_IN 0  /* so many clients have been heard */
#define FLAG_REFUSED 1 /* the last one has been refused */

static void again_server(void)
{
	struct mt_op recv = { 0 };
	uint64_t word;
	struct mt_ep ep;

	setenv("FI_SHMCMA_PEERS", "2", 1);
	mt_open(&ep, NULL);
	mt_publish(&ep, 0);
	for (uint64_t i = 1; i <= 3; i++) {
		mt_doing("expecting client %d", (int)i);
		mt_trecv(&ep, &recv, &word, sizeof(word), FI_ADDR_UNSPEC, 1);
		mt_wait(&ep, &recv);
		mt_require(word == i, "client %d in the place of %d", (int)word, (int)i);
		atomic_store(mt_flag(FLAG_LET_IN), i);
	}
	mt_close(&ep);
}

static void again_client(enum parting parting)
{
	uint64_t word = (uint64_t)mt_rank;
	fi_addr_t server;
	struct mt_ep ep;
	int rc;

	mt_open(&ep, NULL);
	server = mt_lookup(&ep, 0);
	mt_flag_wait(&ep, FLAG_LET_IN, word - 1);
	rc = mt_send_outcome(&ep, &word, sizeof(word), server, 1, MT_FOREVER);
	if (mt_rank == 3) {
		mt_require(rc == -FI_EBUSY, "a full server gives %s", fi_strerror(-rc));
		atomic_store(mt_flag(FLAG_REFUSED), 1);
		if (parting == IS_KILLED) {
			mt_expect_death(1);
			kill(mt_pid(1), SIGKILL);
		}
		mt_doing("waiting for the place");
		while ((rc = mt_send_outcome(&ep, &word, sizeof(word), server, 1, MT_FOREVER)) ==
		       -FI_EBUSY)
			mt_poll(&ep);
	}
	mt_require(rc == 0, "client %d: %s", mt_rank, fi_strerror(-rc));
	if (mt_rank == 1)
		mt_flag_wait(&ep, FLAG_REFUSED, parting == CLOSES ? 1 : 2);
	else
		mt_flag_wait(&ep, FLAG_LET_IN, 3);
	mt_close(&ep);
}

static void again_rank(const void *arg)
{
	if (mt_rank == 0)
		again_server();
	else
		again_client(*(const enum parting *)arg);
}

/* ---- many, one after the other --------------------------------------------------------------- */

/*
 * The server inserts no address; inserts and removes each; removes ALL_AT_ONCE together; removes none; inserts none, and
 * they are killed.
 */
enum visitor { IS_UNKNOWN, IS_INSERTED, IS_COLLECTED, IS_KEPT, IS_KILLED_THERE };
#define ALL_AT_ONCE 100
#define FLAG_VISITS 0
/* Of the server's memory: more than the allocator's own wavering, and less than 100 bytes a visitor. */
#define GROWTH 65536
/* Bytes of an address that stays in the vector: less than a peer's, which has some 2,000. */
#define OF_ADDRESS 512
/* How many visitors before the last one has come one that is still remembered, and how many are (SC_DEPARTED_MAX). */
#define LATE 20
#define REMEMBERED 256

static int visitors(enum visitor visitor)
{
	const char *text = getenv("TEST_VISITORS");
	int count = text ? atoi(text) : (int)rounds_of(20000, 2000);

	return visitor == IS_KILLED_THERE ? count / 10 : count;
}

static void visit_once(void)
{
	struct mt_op send = { 0 }, recv = { 0 };
	fi_addr_t server;
	struct mt_ep ep;
	char answer;

	mt_open(&ep, NULL);
	server = mt_lookup(&ep, 0);
	mt_trecv(&ep, &recv, &answer, 1, FI_ADDR_UNSPEC, 2);
	mt_tsend(&ep, &send, ep.name, sizeof(ep.name), server, 1);
	mt_wait(&ep, &send);
	mt_wait(&ep, &recv);
	mt_close(&ep);
}

/* Says who it is, and dies when that has been taken in. */
static void visit_to_die(uint64_t number)
{
	struct mt_op send = { 0 };
	fi_addr_t server;
	struct mt_ep ep;

	mt_open(&ep, NULL);
	server = mt_lookup(&ep, 0);
	mt_tsend(&ep, &send, ep.name, sizeof(ep.name), server, 1);
	mt_wait(&ep, &send);
	mt_flag_wait(&ep, FLAG_VISITS, number + 1);
	kill(getpid(), SIGKILL);
}

static void visitors_client(enum visitor visitor)
{
	for (int i = 0; i < visitors(visitor); i++) {
		int status;
		pid_t pid;

		if (visitor != IS_UNKNOWN && visitor != IS_KILLED_THERE) {
			visit_once();
			continue;
		}
		if (visitor == IS_UNKNOWN) {
			struct mt_op send = { 0 };
			struct mt_ep ep;

			mt_open(&ep, NULL);
			mt_tsend(&ep, &send, ep.name, sizeof(ep.name), mt_lookup(&ep, 0), 1);
			mt_wait(&ep, &send);
			mt_close(&ep);
			continue;
		}
		pid = fork();
		mt_require(pid >= 0, "no child");
		if (!pid)
			visit_to_die((uint64_t)i);
		mt_require(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "visitor %d did not get there", i);
	}
}

static fi_addr_t answer(struct mt_ep *ep, const char *name)
{
	struct mt_op send = { 0 };
	fi_addr_t peer = mt_insert(ep, name);

	mt_tsend(ep, &send, "", 1, peer, 2);
	mt_wait(ep, &send);
	return peer;
}

static size_t memory_in_use(void)
{
	return mallinfo2().uordblks;
}

static double processor_ms(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

/* The server has forgotten a visitor that has left, but has its address in the vector. */
static void left(struct mt_ep *ep, fi_addr_t peer, int error)
{
	struct mt_op recv = { 0 };
	char byte;
	int rc;

	mt_doing("posting to a visitor that has left");
	rc = mt_send_outcome(ep, "", 1, peer, 2, 0);
	mt_require(rc == -error, "a send: %s", fi_strerror(-rc));
	rc = (int)fi_trecv(ep->ep, &byte, 1, NULL, peer, 3, 0, &recv);
	mt_require(rc == -error, "a receive: %s", fi_strerror(-rc));
}

static void visitors_server(enum visitor visitor)
{
	size_t most = GROWTH + (visitor == IS_KEPT ? OF_ADDRESS * visitors(visitor) : 0);
	int count = visitors(visitor), quarter = (count + 3) / 4;
	double begin, first = 0, last = 0;
	char name[MT_NAME_SIZE];
	struct mt_op recv = { 0 };
	size_t before = 0, after, known = 0;
	fi_addr_t peers[ALL_AT_ONCE], oldest = 0, late = 0;
	struct mt_ep ep;

	mt_open(&ep, NULL);
	mt_publish(&ep, 0);
	begin = processor_ms();
	for (int i = 0; i < count; i++) {
		mt_doing("expecting visitor %d", i);
		mt_trecv(&ep, &recv, name, sizeof(name), FI_ADDR_UNSPEC, 1);
		mt_wait(&ep, &recv);
		if (visitor != IS_UNKNOWN && visitor != IS_KILLED_THERE)
			peers[known++] = answer(&ep, name);
		if (visitor == IS_KEPT && known) {
			oldest = i ? oldest : peers[0];
			late = i == count - LATE ? peers[0] : late;
			known = 0;
		}
		if (known == (visitor == IS_COLLECTED ? ALL_AT_ONCE : 1)) {
			mt_must(fi_av_remove(ep.av, peers, known, 0));
			known = 0;
		}
		atomic_store(mt_flag(FLAG_VISITS), (uint64_t)i + 1);
		if (i + 1 == quarter) {
			before = memory_in_use();
			first = processor_ms() - begin;
		}
		if (i + 1 == count - quarter)
			last = processor_ms();
	}
	last = processor_ms() - last;
	if (known)
		mt_must(fi_av_remove(ep.av, peers, known, 0));
	after = memory_in_use();
	printf("  processor time for each of %d visitors: %.3f ms for the first %d, %.3f ms for the last "
	       "%d\n",
	       count, first / quarter, quarter, last / quarter, quarter);
	mt_require(MT_SANITIZED || after < before + most, "%zu bytes for %d visitors", after - before,
		   count - quarter);
	if (visitor == IS_KEPT) {
		left(&ep, oldest, count > REMEMBERED ? FI_ECONNREFUSED : FI_ECONNRESET);
		left(&ep, late, FI_ECONNRESET);
	}
	mt_close(&ep);
}

static void visitors_rank(const void *arg)
{
	enum visitor visitor = *(const enum visitor *)arg;

	if (mt_rank == 0)
		visitors_server(visitor);
	else
		visitors_client(visitor);
}

int main(void)
{
	static const enum parting partings[] = { CLOSES, IS_KILLED };
	static const enum visitor kinds[] = { IS_UNKNOWN, IS_INSERTED, IS_COLLECTED, IS_KEPT,
					      IS_KILLED_THERE };
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
		{ .name = "again-closed",
		  .ranks = 4,
		  .rank = again_rank,
		  .arg = &partings[0],
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "again-killed",
		  .ranks = 4,
		  .rank = again_rank,
		  .arg = &partings[1],
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "visitors-unknown",
		  .ranks = 2,
		  .deadline = 600,
		  .rank = visitors_rank,
		  .arg = &kinds[0],
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "visitors-inserted",
		  .ranks = 2,
		  .deadline = 600,
		  .rank = visitors_rank,
		  .arg = &kinds[1],
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "visitors-collected",
		  .ranks = 2,
		  .deadline = 600,
		  .rank = visitors_rank,
		  .arg = &kinds[2],
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "visitors-kept",
		  .ranks = 2,
		  .deadline = 600,
		  .rank = visitors_rank,
		  .arg = &kinds[3],
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "visitors-killed",
		  .ranks = 2,
		  .deadline = 600,
		  .rank = visitors_rank,
		  .arg = &kinds[4],
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
	};

	mt_init("test_many_peers");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mt_run(&cases[i]);
	return mt_end();
}
