/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_depart: endpoints that are closed in good order, and names that live longer than one endpoint.
 * Messages that were sent before are delivered; operations that cannot be done any more fail; nothing waits for ever.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE MT_FOREVER

/* ---- unread messages ------------------------------------------------------------------------- */

#define UNREAD 24   /* no more than surely fits: they are complete when the peer goes */
#define FLAG_GONE 0 /* the peer has closed its endpoint */
#define LARGEST ((size_t)4096)
#define TRIES_MAX 10000 /* sends to a peer that has gone before the first of them fails */

/* How the receiver spends the time in which the peer sends and goes. */
enum meanwhile {
	AWAY,	    /* it does not call the library; it had never heard of the peer */
	AWAY_KNOWN, /* nor does it; but they have talked before */
	READING,    /* it reads its completion queue */
};

static size_t unread_size(int i)
{
	static const size_t sizes[] = { 0, 8, 200, 880, 3000, LARGEST };

	return sizes[(size_t)i % (sizeof(sizes) / sizeof(sizes[0]))];
}

/* Send, complete, go. */
static void unread_peer(struct mt_ep *ep, fi_addr_t to)
{
	uint8_t buf[LARGEST];
	struct mt_op op = { 0 };
	struct iovec iov = { buf, 0 };
	struct mt_message m = { .iov = &iov, .pieces = 1, .peer = to };

	for (int i = 0; i < UNREAD; i++) {
		iov.iov_len = unread_size(i);
		mt_doing("sending message %d, %zu bytes", i, iov.iov_len);
		pattern_fill(buf, 0, iov.iov_len, (uint64_t)i);
		m.tagged = i / 2 % 2;
		m.tag = (uint64_t)i;
		m.data = (uint64_t)i;
		m.call = i % 3 ? MT_INJECTDATA : MT_DATA;
		mt_post_send(ep, &op, &m);
		mt_wait(ep, &op);
	}
}

static void unread_receive(struct mt_ep *ep, fi_addr_t from, int i)
{
	uint8_t buf[LARGEST];
	struct mt_op op = { 0 };
	struct iovec iov = { buf, sizeof(buf) };
	struct mt_message m = {
		.tagged = i / 2 % 2,
		.iov = &iov,
		.pieces = 1,
		.peer = i % 5 ? from : FI_ADDR_UNSPEC,
		.tag = (uint64_t)i,
	};

	mt_doing("receiving message %d of a peer that has gone", i);
	mt_post_recv(ep, &op, &m);
	mt_wait_any(ep, &op);
	mt_require(op.err == 0, "it is lost: %s", fi_strerror(op.err));
	mt_require(op.len == unread_size(i) && op.data == (uint64_t)i && op.source == from,
		   "len %zu, data %llu, source %#llx", op.len, (unsigned long long)op.data,
		   (unsigned long long)op.source);
	mt_require(pattern_differs(buf, 0, op.len, (uint64_t)i) < 0, "message %d is wrong", i);
}

/* Some sends may be on their way before it is noticed; then all fail. */
static void send_must_fail(struct mt_ep *ep, fi_addr_t to)
{
	static const int lengths[] = { 8, 4096, 60000 };
	static uint8_t buf[60000];
	int rc = 0, tries = 0;

	mt_doing("sending to a peer that has gone until it is noticed");
	while (rc == 0) {
		rc = mt_send_outcome(ep, buf, 8, to, 5, PATIENCE);
		mt_require(++tries < TRIES_MAX, "%d sends to a peer that has gone succeeded", tries);
		mt_poll(ep);
	}
	for (int i = 0; i < 6; i++) {
		mt_doing("sending %d bytes to a peer that has gone, time %d", lengths[i % 3], i);
		rc = mt_send_outcome(ep, buf, (size_t)lengths[i % 3], to, 5, PATIENCE);
		mt_require(rc != 0, "a send failed and a later one succeeded");
		mt_require(rc != -FI_EAGAIN, "a send to a peer that has gone never failed");
		mt_require(rc != -FI_EIO && rc != -FI_EOTHER, "the error says nothing: %s",
			   fi_strerror(-rc));
	}
}

static void get_to_know(struct mt_ep *ep, fi_addr_t peer)
{
	uint64_t out = 1, in = 0;
	struct mt_op send = { 0 }, recv = { 0 };

	mt_doing("talking");
	mt_trecv(ep, &recv, &in, sizeof(in), peer, 0xC0FFEE);
	mt_tsend(ep, &send, &out, sizeof(out), peer, 0xC0FFEE);
	mt_wait(ep, &send);
	mt_wait(ep, &recv);
	mt_barrier(ep);
}

static void unread_rank(const void *arg)
{
	enum meanwhile meanwhile = *(const enum meanwhile *)arg;
	struct mt_op waiting = { 0 };
	fi_addr_t peers[2];
	uint64_t word;
	struct mt_ep ep;

	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	if (meanwhile == AWAY_KNOWN)
		get_to_know(&ep, peers[1 - mt_rank]);
	if (mt_rank == 1) {
		mt_barrier(NULL);
		unread_peer(&ep, peers[0]);
		mt_close(&ep);
		atomic_store(mt_flag(FLAG_GONE), 1);
		return;
	}
	/* this connects to the peer, which is to stay unknown in AWAY */
	if (meanwhile != AWAY)
		mt_trecv(&ep, &waiting, &word, sizeof(word), peers[1], 0xDEAD);
	mt_barrier(NULL);
	mt_doing("waiting for the peer to go");
	mt_flag_wait(meanwhile == READING ? &ep : NULL, FLAG_GONE, 1);
	for (int i = 0; i < UNREAD; i++)
		unread_receive(&ep, peers[1], i);
	send_must_fail(&ep, peers[1]);
	if (meanwhile != AWAY) {
		mt_doing("waiting for the receive from a peer that has gone to fail");
		mt_wait_any(&ep, &waiting);
		mt_require(waiting.err == FI_ECONNRESET, "a message that was never sent: %s", fi_strerror(waiting.err));
	}
	mt_close(&ep);
}

/* ---- expected -------------------------------------------------------------------------------- */

#define FLAG_WAITS 7 /* rank 0 has posted its receive, or is about to */

/* How rank 1 ends, which has never sent anything; and how rank 0, which has a receive from it and no other, waits. */
struct expected {
	enum { CLOSES, SENDS, DIES } then;
	bool sleeps; /* fi_cq_sread(3) */
	bool late;   /* it posts the receive once rank 1 has gone */
};

static void expected_peer(struct mt_ep *ep, const struct expected *expected, fi_addr_t to)
{
	if (!expected->late)
		mt_flag_wait(NULL, FLAG_WAITS, 1);
	if (expected->then == DIES) {
		mt_expect_death(mt_rank);
		kill(getpid(), SIGKILL);
	}
	if (expected->then == SENDS) {
		struct mt_op op = { 0 };

		mt_tsend(ep, &op, "expected", 8, to, 1);
		mt_wait(ep, &op);
	}
	mt_close(ep);
	atomic_store(mt_flag(FLAG_GONE), 1);
	/* the process lives on: its end is not what ends the receive */
	mt_flag_wait(NULL, FLAG_WAITS, 2);
}

static void await_end(const struct expected *expected)
{
	mt_doing("waiting for rank 1 to go");
	if (expected->then == DIES)
		while (kill(mt_pid(1), 0) == 0)
			mt_poll(NULL);
	else
		mt_flag_wait(NULL, FLAG_GONE, 1);
}

static void expected_receive(struct mt_ep *ep, const struct expected *expected, fi_addr_t from)
{
	struct mt_op op = { 0 };
	char buf[16] = "";
	struct iovec iov = { buf, sizeof(buf) };
	struct mt_message m = { .tagged = true, .iov = &iov, .pieces = 1, .peer = from, .tag = 1 };
	struct fi_cq_tagged_entry entry;
	ssize_t rc;

	if (expected->late) {
		await_end(expected);
		rc = mt_try_recv(ep, &op, &m);
		mt_require(rc == -FI_ECONNREFUSED, "a receive from an address that nobody has: %s", fi_strerror((int)-rc));
		return;
	}
	mt_post_recv(ep, &op, &m);
	atomic_store(mt_flag(FLAG_WAITS), 1);
	mt_doing("waiting for a receive whose source goes");
	if (expected->sleeps) {
		rc = fi_cq_sread(ep->cq, &entry, 1, NULL, -1);
		mt_require(rc == -FI_EAVAIL, "fi_cq_sread: %zd", rc);
	}
	mt_wait_any(ep, &op);
	if (expected->then == SENDS)
		mt_require(!op.err && op.len == 8 && !memcmp(buf, "expected", 8), "a sent message is lost: %s", fi_strerror(op.err));
	else
		mt_require(op.err == FI_ECONNRESET, "%s", op.err ? fi_strerror(op.err) : "success");
}

static void expected_rank(const void *arg)
{
	const struct expected *expected = arg;
	const struct mt_open open = { .caps = FI_DIRECTED_RECV, .wait_obj = FI_WAIT_UNSPEC };
	fi_addr_t peers[2];
	struct mt_ep ep;

	mt_open(&ep, &open);
	mt_join(&ep, peers);
	if (mt_rank == 1) {
		expected_peer(&ep, expected, peers[0]);
		return;
	}
	expected_receive(&ep, expected, peers[1]);
	atomic_store(mt_flag(FLAG_WAITS), 2);
	mt_close(&ep);
}

/* ---- under way ------------------------------------------------------------------------------- */

#define LARGE ((size_t)1 << 20)
#define UNDER_WAY 5

/* Large messages in both directions, none of them received, when one side closes. */
static void underway_rank(const void *arg)
{
	uint8_t *buf = malloc(LARGE);
	struct mt_op ops[UNDER_WAY], recv = { 0 };
	fi_addr_t peers[2];
	struct mt_ep ep;

	(void)arg;
	mt_require(buf, "no memory");
	memset(ops, 0, sizeof(ops));
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	pattern_fill(buf, 0, LARGE, 1);
	for (int i = 0; i < UNDER_WAY; i++)
		mt_tsend(&ep, &ops[i], buf, LARGE, peers[1 - mt_rank], 1);
	mt_barrier(&ep);
	mt_poll_for(&ep, 0.02);
	if (mt_rank == 1) {
		mt_close(&ep);
		atomic_store(mt_flag(FLAG_GONE), 1);
		free(buf);
		return;
	}
	mt_doing("waiting for the peer to go");
	mt_flag_wait(&ep, FLAG_GONE, 1);
	for (int i = 0; i < UNDER_WAY; i++) {
		mt_doing("waiting for send %d to fail", i);
		mt_wait_any(&ep, &ops[i]);
		mt_require(ops[i].err, "a send was complete though nobody received it");
	}
	/* its own large messages went with it: an error or nothing, but no success */
	mt_doing("receiving what has gone");
	mt_trecv(&ep, &recv, buf, LARGE, FI_ADDR_UNSPEC, 1);
	if (!mt_wait_for(&ep, &recv, 0.5)) {
		mt_must(fi_cancel(&ep.ep->fid, &recv));
		mt_doing("waiting for a receive that is cancelled");
		mt_wait_any(&ep, &recv);
	}
	mt_require(recv.err, "success without the sender");
	mt_close(&ep);
	free(buf);
}

/* ---- services -------------------------------------------------------------------------------- */

#define FLAG_LIVES 4 /* how many servers have been up so far */
#define FLAG_ENDED 5 /* how many are down again */
#define FLAG_STEP 6  /* steps that the others have done */
#define SERVERS 3    /* one after the other; the second one dies, by force */

struct names {
	const char *node;
	bool number; /* the service is a port number */
};

static void service_name(const struct names *names, char *text, size_t size)
{
	if (names->number)
		snprintf(text, size, "%d", 20000 + getppid() % 20000);
	else
		snprintf(text, size, "depart.%d", (int)getppid());
}

/* The first message of a client: its number and its name. */
struct hello {
	uint64_t number;
	char name[MT_NAME_SIZE];
};

static void client_ask(struct mt_ep *ep, fi_addr_t server, uint64_t number)
{
	struct hello hello = { .number = number };
	struct mt_op send = { 0 }, recv = { 0 };
	uint64_t answer = 0;

	memcpy(hello.name, ep->name, ep->name_len);
	mt_trecv(ep, &recv, &answer, sizeof(answer), FI_ADDR_UNSPEC, 2);
	mt_tsend(ep, &send, &hello, sizeof(hello), server, 1);
	mt_wait(ep, &send);
	mt_wait(ep, &recv);
	mt_require(answer == ~number, "wrong answer");
}

static void server_answer(struct mt_ep *ep, const struct hello *hello)
{
	uint64_t answer = ~hello->number;
	struct mt_op send = { 0 };

	mt_tsend(ep, &send, &answer, sizeof(answer), mt_insert(ep, hello->name), 2);
	mt_wait(ep, &send);
}

/* Server `number` (from 1): lives until the others have done their steps. */
static void serve(const struct mt_open *open, uint64_t number, bool die)
{
	struct mt_op recv = { 0 };
	struct hello hello;
	struct mt_ep ep;

	mt_flag_wait(NULL, FLAG_ENDED, number - 1);
	mt_open(&ep, open);
	atomic_store(mt_flag(FLAG_LIVES), number);
	mt_doing("serving as number %d", (int)number);
	mt_trecv(&ep, &recv, &hello, sizeof(hello), FI_ADDR_UNSPEC, 1);
	while (atomic_load(mt_flag(FLAG_STEP)) < number * 2) {
		mt_poll(&ep);
		if (!recv.done)
			continue;
		mt_require(recv.err == 0, "receive: %s", fi_strerror(recv.err));
		server_answer(&ep, &hello);
		mt_trecv(&ep, &recv, &hello, sizeof(hello), FI_ADDR_UNSPEC, 1);
	}
	if (die) {
		mt_expect_death(mt_rank);
		kill(getpid(), SIGKILL);
	}
	mt_must(fi_cancel(&ep.ep->fid, &recv));
	mt_wait_any(&ep, &recv);
	mt_close(&ep);
	atomic_store(mt_flag(FLAG_ENDED), number);
}

/* The client that lives through all servers. */
static void service_client(const struct names *names, const char *service)
{
	uint64_t number = 0;
	struct mt_ep ep;

	mt_open(&ep, NULL);
	for (uint64_t i = 1; i <= SERVERS; i++) {
		fi_addr_t server;

		mt_doing("waiting for server %d", (int)i);
		mt_flag_wait(&ep, FLAG_LIVES, i);
		mt_doing("asking server %d", (int)i);
		server = mt_insert_service(&ep, names->node, service);
		for (int k = 0; k < 20; k++)
			client_ask(&ep, server, number++);
		atomic_fetch_add(mt_flag(FLAG_STEP), 1);
		/* the other one's turn; then again */
		mt_flag_wait(&ep, FLAG_STEP, i * 2);
		mt_doing("seeing server %d go", (int)i);
		if (i == 2)
			while (kill(mt_pid(3), 0) == 0)
				mt_poll(&ep);
		if (i == 2)
			atomic_store(mt_flag(FLAG_ENDED), 2);
		mt_flag_wait(&ep, FLAG_ENDED, i);
		/* that it died is not noticed yet */
		if (mt_is_shmcma() && i != 2)
			send_must_fail(&ep, server);
		mt_must(fi_av_remove(ep.av, &server, 1, 0));
	}
	mt_close(&ep);
}

/* Wants the same name, gets -FI_EADDRINUSE, and then talks to the one who has it. */
static void service_rival(const struct names *names, const struct mt_open *open, const char *service)
{
	for (uint64_t i = 1; i <= SERVERS; i++) {
		struct mt_ep ep;
		int rc;

		mt_doing("waiting for server %d", (int)i);
		mt_flag_wait(NULL, FLAG_STEP, i * 2 - 1);
		for (int k = 0; k < 3; k++) {
			rc = mt_try_open(&ep, open);
			mt_require(rc == -FI_EADDRINUSE, "opening a name that is taken: %s",
				   rc ? fi_strerror(-rc) : "success");
		}
		mt_doing("asking server %d", (int)i);
		mt_open(&ep, NULL);
		client_ask(&ep, mt_insert_service(&ep, names->node, service), i);
		mt_close(&ep);
		atomic_fetch_add(mt_flag(FLAG_STEP), 1);
	}
}

static void service_rank(const void *arg)
{
	const struct names *names = arg;
	char service[32];
	struct mt_open open = { .node = names->node, .service = service, .flags = FI_SOURCE };

	service_name(names, service, sizeof(service));
	switch (mt_rank) {
	case 0:
		serve(&open, 1, false);
		serve(&open, 3, false);
		break;
	case 1:
		service_client(names, service);
		break;
	case 2:
		service_rival(names, &open, service);
		break;
	default:
		serve(&open, 2, true);
	}
}

int main(void)
{
	static const enum meanwhile away = AWAY, known = AWAY_KNOWN, reading = READING;
	static const struct names port = { .node = "127.0.0.1", .number = true };
	static const struct names named = { .node = NULL };
	static const struct expected closes = { .then = CLOSES }, sends = { .then = SENDS }, dies = { .then = DIES };
	static const struct expected closes_sleeping = { .then = CLOSES, .sleeps = true };
	static const struct expected dies_sleeping = { .then = DIES, .sleeps = true };
	static const struct expected closed = { .then = CLOSES, .late = true }, dead = { .then = DIES, .late = true };
	static const struct mt_case cases[] = {
		{ .name = "unread",
		  .ranks = 2,
		  .rank = unread_rank,
		  .arg = &away,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "unread-known",
		  .ranks = 2,
		  .rank = unread_rank,
		  .arg = &known,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "unread-reading",
		  .ranks = 2,
		  .rank = unread_rank,
		  .arg = &reading,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "expected-closes",
		  .ranks = 2,
		  .rank = expected_rank,
		  .arg = &closes,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "expected-sends",
		  .ranks = 2,
		  .rank = expected_rank,
		  .arg = &sends,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "expected-dies",
		  .ranks = 2,
		  .rank = expected_rank,
		  .arg = &dies,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "expected-closes-sleeping",
		  .ranks = 2,
		  .rank = expected_rank,
		  .arg = &closes_sleeping,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "expected-dies-sleeping",
		  .ranks = 2,
		  .rank = expected_rank,
		  .arg = &dies_sleeping,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "expected-closed",
		  .ranks = 2,
		  .rank = expected_rank,
		  .arg = &closed,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "expected-dead",
		  .ranks = 2,
		  .rank = expected_rank,
		  .arg = &dead,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "under-way",
		  .ranks = 2,
		  .rank = underway_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "service-port",
		  .ranks = 4,
		  .rank = service_rank,
		  .arg = &port,
		  .flags = MT_CASE_LOSSY },
		{ .name = "service-name",
		  .ranks = 4,
		  .rank = service_rank,
		  .arg = &named,
		  .flags = MT_CASE_LOSSY | MT_CASE_SHMCMA },
	};

	mt_init("test_depart");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mt_run(&cases[i]);
	return mt_end();
}
