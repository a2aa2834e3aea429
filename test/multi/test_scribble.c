/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_scribble: a peer whose shared memory is written over while traffic runs.
 *
 * Five ranks: the victim, two that keep the rules, a mad one, and the pen, which writes random words over the
 * memory that the mad one may write; it is a process of its own, so that no race of this test's making hides
 * others. In each round all open new endpoints. The two exchange messages of all protocols, one-sided operations
 * and atomics with the victim, and check every byte. The mad one exchanges the same with the victim, but nobody
 * checks its bytes, and it is killed in the end.
 *
 *   own    all of the mad one's segment is written over
 *   slot   its slot in the victim's
 *   all    the victim's segment except the table: also the words of the two that keep the rules. Without CMA,
 *          because the words written there name memory of the two
 *
 * No process crashes or hangs, each operation with the mad one ends once; except in `all`, the traffic of the two
 * is right and ends well. The victim gives the mad one up, says so once, and counts it: in every other round the
 * pen writes only words that break the rules, until it does. When the mad one has been killed, nothing of it is left:
 * in the victim neither mapping nor descriptor, in the victim's segment no claim, and of its own segment no name
 * once another process has started.
 *
 * TEST_SEED repeats a run as far as the scheduler lets it, SCRIBBLE_SECONDS (0.4, in the full tests 1) is how long each
 * case takes, and two rounds at least. The format of the file is that of include/shmcma/abi.h.
 */
#define _GNU_SOURCE 1
#include "rma.h"
#include "../rounds.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { VICTIM, HONEST, MAD = 3, PEN, RANKS };

#define HONESTS 2
#define LARGEST ((size_t)300000)
#define LANE ((size_t)64 << 10)
#define ROUNDS_MAX 120 /* names are published once for each */
#define ROUND_SECONDS 0.08
#define GRACE 0.3

enum where { OWN, SLOT, ALL };

struct mode {
	const char *name;
	enum where where;
	const char *env[2]; /* NAME=value */
};

/* Flags: the round in which it is so. */
enum { FLAG_OPEN, FLAG_READY, FLAG_STOP, FLAG_DEAD, FLAG_CLEAN, FLAG_LAST, FLAG_DONE };

static struct board {
	struct rma_place lanes[RANKS], counters[RANKS];
	_Atomic uint64_t quarantines; /* that the victim has logged */
	_Atomic uint64_t exchanged[RANKS];
	char segments[ROUNDS_MAX + 1][128]; /* of the mad ones, by round */
} * board;

static const struct mode *mode;
static uint64_t seed, the_round;
static double case_seconds;

static bool is_wild(void)
{
	return mode->where == ALL;
}

/* Does the pen write what cannot be until the victim has given the mad one up? Else anything. */
static bool ends_in_quarantine(void)
{
	return the_round % 2 && !is_wild();
}

/* For those who have nothing to do meanwhile: the others need the processors. */
static void sleep_until(int flag)
{
	while (atomic_load(mt_flag(flag)) < the_round)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static bool is_over(void)
{
	return atomic_load(mt_flag(FLAG_STOP)) >= the_round;
}

static size_t size_of(uint64_t number)
{
	static const size_t sizes[] = {
		0, 8, 150, 201, 872, 873, 1000, 4096, 20000, 32769, 100000, LARGEST
	};

	return sizes[mt_hash(number) % (sizeof(sizes) / sizeof(sizes[0]))];
}

static uint64_t pattern_of(int rank, uint64_t number)
{
	return (uint64_t)rank << 32 ^ number ^ the_round << 40;
}

static int name_slot(int rank)
{
	return (int)the_round * 4 + rank;
}

static void open_in_round(struct mt_ep *ep)
{
	struct mt_open open = { .caps = FI_RMA | FI_ATOMIC | FI_MULTI_RECV };

	for (size_t i = 0; i < 2 && mode->env[i]; i++)
		putenv((char *)mode->env[i]);
	mt_open(ep, &open);
	ep->silent = true;
	mt_publish(ep, name_slot(mt_rank));
}

/* ---- those who keep the rules ---------------------------------------------------------------- */

#define TAG(rank, number, reply) ((uint64_t)(rank) << 40 | (uint64_t)(reply) << 39 | (number))

static struct mt_ep ep;
static fi_addr_t victim;
static uint8_t out[LARGEST], in[LARGEST];

/* Should the caller try again? In `all` it should not, once the round is over. */
static bool try_again(ssize_t rc)
{
	if (rc != -FI_EAGAIN)
		return false;
	mt_poll(&ep);
	return !is_wild() || !is_over();
}

/* Accepted and ended well? In `all` it may end badly, or never. */
static bool ended_well(ssize_t rc, struct mt_op *op)
{
	double end = 0;

	mt_require(rc == 0 || is_wild(), "a call failed: %s", fi_strerror((int)-rc));
	if (rc)
		return false;
	while (!op->done) {
		mt_poll(&ep);
		if (!is_wild() || !is_over())
			continue;
		end = end > 0 ? end : mt_now() + GRACE;
		if (mt_now() > end)
			return false;
	}
	mt_require(!op->err || is_wild(), "an operation failed: %s", fi_strerror(op->err));
	return !op->err;
}

static void must_be(const void *buf, size_t len, uint64_t pattern, const char *what)
{
	mt_require(is_wild() || pattern_differs(buf, 0, len, pattern) < 0, "%s: wrong bytes in %zu", what,
		   len);
}

static struct mt_op ops[4]; /* send, receive, one-sided, small */

static bool exchange(uint64_t number)
{
	size_t len = size_of(number + (uint64_t)mt_rank);
	struct iovec from = { out, len }, to = { in, len };
	struct mt_message send = { .tagged = true, .iov = &from, .pieces = 1, .peer = victim },
			  recv = { .tagged = true, .iov = &to, .pieces = 1, .peer = victim };
	ssize_t rc;

	send.tag = TAG(mt_rank, number, 0);
	recv.tag = TAG(mt_rank, number, 1);
	pattern_fill(out, 0, len, pattern_of(mt_rank, number));
	do
		rc = mt_try_recv(&ep, &ops[1], &recv);
	while (try_again(rc));
	mt_require(rc == 0 || is_wild(), "a receive: %s", fi_strerror((int)-rc));
	if (rc)
		return false;
	do
		rc = mt_try_send(&ep, &ops[0], &send);
	while (try_again(rc));
	if (!ended_well(rc, &ops[0]) || !ended_well(0, &ops[1]))
		return false;
	mt_require(is_wild() || ops[1].len == len, "%zu bytes for %zu", ops[1].len, len);
	must_be(in, len, ~pattern_of(mt_rank, number), "the victim's answer");
	return true;
}

/* Into the victim's multi-receive buffer: the number, then its pattern. */
static bool send_small(uint64_t number)
{
	size_t len = 16 + number % 500;
	struct iovec from = { out, len };
	struct mt_message send = { .iov = &from, .pieces = 1, .peer = victim };
	uint64_t head[2] = { (uint64_t)mt_rank, number };
	ssize_t rc;

	memcpy(out, head, sizeof(head));
	pattern_fill(out + sizeof(head), 0, len - sizeof(head), pattern_of(mt_rank, number));
	do
		rc = mt_try_send(&ep, &ops[3], &send);
	while (try_again(rc));
	return ended_well(rc, &ops[3]);
}

static bool move(bool write, void *local, size_t len)
{
	const struct rma_place *place = &board->lanes[mt_rank];
	struct rma_request request = { .write = write,
				       .peer = victim,
				       .local_count = 1,
				       .remote_count = 1,
				       .local = { { local, len } },
				       .remote = {
					       { .addr = place->addr, .len = len, .key = place->key } } };
	ssize_t rc;

	do
		rc = rma_try(&ep, &ops[2], &request);
	while (try_again(rc));
	return ended_well(rc, &ops[2]);
}

static bool put_and_get(uint64_t number)
{
	size_t len = size_of(number + 7) % LANE;

	pattern_fill(out, 0, len, pattern_of(mt_rank, ~number));
	memset(in, 0, len);
	if (!move(true, out, len) || !move(false, in, len))
		return false;
	must_be(in, len, pattern_of(mt_rank, ~number), "memory of the victim's");
	return true;
}

static bool count_up(uint64_t number)
{
	const struct rma_place *place = &board->counters[mt_rank];
	uint64_t one = 1, before = 0;
	ssize_t rc;

	do {
		memset(&ops[2], 0, sizeof(ops[2]));
		ops[2].pending = true;
		rc = fi_fetch_atomic(ep.ep, &one, 1, NULL, &before, NULL, victim, place->addr, place->key,
				     FI_UINT64, FI_SUM, &ops[2]);
		if (rc)
			ops[2].pending = false;
	} while (try_again(rc));
	if (!ended_well(rc, &ops[2]))
		return false;
	mt_require(is_wild() || before == number, "counted to %llu, not %llu", (unsigned long long)before,
		   (unsigned long long)number);
	return true;
}

/* The victim has closed: what is still under way ends. */
static void drain(void)
{
	mt_doing("waiting for what is under way with a victim that has closed");
	for (int i = 0; i < 4; i++) {
		if (!ops[i].pending)
			continue;
		if (i == 1)
			(void)fi_cancel(&ep.ep->fid, &ops[i]);
		mt_wait_any(&ep, &ops[i]);
	}
}

static void honest_round(void)
{
	uint64_t number = 0;
	bool fine = true;

	open_in_round(&ep);
	victim = mt_lookup(&ep, name_slot(VICTIM));
	memset(ops, 0, sizeof(ops));
	mt_barrier(&ep); /* the victim's memory is known */
	for (; fine && (!is_over() || number < 3); number++) {
		mt_doing("round %llu, number %llu", (unsigned long long)the_round,
			 (unsigned long long)number);
		fine = exchange(number) && send_small(number) && put_and_get(number) && count_up(number);
	}
	mt_require(fine || is_wild(), "traffic failed");
	atomic_fetch_add(&board->exchanged[mt_rank], number);
	while (!is_over())
		mt_poll(&ep);
	atomic_fetch_add(mt_flag(FLAG_DONE), 1);
	mt_barrier(&ep); /* the victim has closed */
	drain();
	mt_close(&ep);
}

/* ---- the victim ------------------------------------------------------------------------------ */

enum kind { NONE, REQUEST, REPLY, MULTI, MAD_OP };

/* With the mad one. Each has jobs of its own: one that it leaves undone is not to keep the others from it. */
enum { MAD_RECVS = 4, MAD_SENDS = 8, MAD_JOBS = 12 };

/* An operation of the victim's. */
struct job {
	struct fi_context2 context; /* first */
	enum kind kind;
	int rank;
	uint64_t number;
	size_t len;
	uint8_t *buf;
};

#define MULTI_SIZE 100000

static struct job requests[RANKS], replies[RANKS], multis[2], mad_jobs[MAD_JOBS];
static struct fid_mr *mrs[2 * RANKS];
static fi_addr_t addresses[RANKS];
static uint8_t *lanes[RANKS];
static uint64_t counters[RANKS], smalls[RANKS];
static uint64_t mad_ended;

static void job_posted(struct job *job, ssize_t rc, const char *what)
{
	mt_require(rc == 0 || is_wild(), "%s: %s", what, fi_strerror((int)-rc));
	if (rc)
		job->kind = NONE;
}

static void post_request(int rank, uint64_t number)
{
	struct job *job = &requests[rank];
	ssize_t rc;

	job->kind = REQUEST;
	job->rank = rank;
	job->number = number;
	memset(job->buf, 0, 16);
	rc = fi_trecv(ep.ep, job->buf, LARGEST, NULL, addresses[rank], TAG(rank, number, 0), 0, job);
	job_posted(job, rc, "posting a receive");
}

static void post_multi(struct job *job)
{
	struct iovec iov = { job->buf, MULTI_SIZE };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = job };

	job->kind = MULTI;
	job_posted(job, fi_recvmsg(ep.ep, &msg, FI_MULTI_RECV), "posting a multi-receive");
}

/* A request of an honest one is here: check it, answer it, wait for the next. */
static void answer(struct job *request)
{
	struct job *reply = &replies[request->rank];
	size_t len = request->len;
	ssize_t rc;

	mt_require(is_wild() || len == size_of(request->number + (uint64_t)request->rank), "%zu bytes",
		   len);
	must_be(request->buf, len, pattern_of(request->rank, request->number), "a request");
	mt_require(reply->kind == NONE || is_wild(), "a second request before the first was answered");
	if (reply->kind != NONE)
		return;
	pattern_fill(reply->buf, 0, len, ~pattern_of(request->rank, request->number));
	reply->kind = REPLY;
	do
		rc = fi_tsend(ep.ep, reply->buf, len, NULL, addresses[request->rank],
			      TAG(request->rank, request->number, 1), reply);
	while (rc == -FI_EAGAIN && (fi_cq_read(ep.cq, NULL, 0), true) && (!is_wild() || !is_over()));
	job_posted(reply, rc, "an answer");
	post_request(request->rank, request->number + 1);
}

static void check_small(const uint8_t *bytes, size_t len, fi_addr_t source)
{
	uint64_t head[2] = { 0 };

	if (is_wild() || source == addresses[MAD])
		return;
	mt_require(len >= sizeof(head), "%zu bytes", len);
	memcpy(head, bytes, sizeof(head));
	mt_require((head[0] == HONEST || head[0] == HONEST + 1) && source == addresses[head[0]],
		   "a small message from %llx that says rank %llu", (unsigned long long)source,
		   (unsigned long long)head[0]);
	mt_require(head[1] == smalls[head[0]]++, "small message %llu out of order",
		   (unsigned long long)head[1]);
	must_be(bytes + sizeof(head), len - sizeof(head), pattern_of((int)head[0], head[1]),
		"a small message");
}

static void job_ended(struct job *job, const struct fi_cq_tagged_entry *entry, fi_addr_t source, int err)
{
	enum kind kind;

	mt_require(job && job->kind != NONE, "an operation has ended twice");
	kind = job->kind;
	if (kind == MULTI) {
		if (!err && entry->flags & FI_RECV)
			check_small(entry->buf, entry->len, source);
		if (entry->flags & FI_MULTI_RECV || err == FI_ECANCELED) {
			job->kind = NONE;
			if (err != FI_ECANCELED)
				post_multi(job);
		}
		return;
	}
	job->kind = NONE;
	job->len = entry->len;
	mad_ended += kind == MAD_OP;
	if (kind == MAD_OP)
		return;
	mt_require(!err || is_wild() || err == FI_ECANCELED, "with rank %d: %s", job->rank,
		   fi_strerror(err));
	if (kind == REQUEST && !err)
		answer(job);
}

static void victim_poll(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	static unsigned idle; /* that a peer has died is noticed after so many looks */
	fi_addr_t source;
	ssize_t n = fi_cq_readfrom(ep.cq, &entry, 1, &source);

	if (n == 1) {
		job_ended(entry.op_context, &entry, source, 0);
	} else if (n == -FI_EAVAIL) {
		mt_require(fi_cq_readerr(ep.cq, &error, 0) == 1, "no error");
		entry = (struct fi_cq_tagged_entry){ .flags = error.flags, .len = error.len };
		job_ended(error.op_context, &entry, FI_ADDR_NOTAVAIL, error.err);
	} else {
		mt_require(n == -FI_EAGAIN, "fi_cq_readfrom: %s", fi_strerror((int)-n));
		if (++idle % 64 == 0)
			sched_yield();
	}
}

static ssize_t post_to_mad(struct mt_random *random, struct job *job)
{
	const struct rma_place *place = &board->lanes[MAD];
	fi_addr_t mad = addresses[MAD];
	size_t len = size_of(mt_random(random)), part = len % LANE;
	uint64_t tag = mt_below(random, 8), one = 1;

	if (job < &mad_jobs[MAD_RECVS])
		return fi_trecv(ep.ep, job->buf, len, NULL, mad, tag, 0, job);
	if (job < &mad_jobs[MAD_SENDS])
		return mt_below(random, 3) ? fi_tsend(ep.ep, job->buf, len, NULL, mad, tag, job)
					   : fi_send(ep.ep, job->buf, len % 2000, NULL, mad, job);
	switch (mt_below(random, 3)) {
	case 0:
		return fi_write(ep.ep, job->buf, part, NULL, mad, place->addr, place->key, job);
	case 1:
		return fi_read(ep.ep, job->buf, part, NULL, mad, place->addr, place->key, job);
	default:
		return fi_fetch_atomic(ep.ep, &one, 1, NULL, job->buf, NULL, mad, place->addr, place->key,
				       FI_UINT64, FI_SUM, job);
	}
}

/* Posts one more operation with the mad one, of any kind; any result is right. */
static void bother_mad(struct mt_random *random)
{
	struct job *job = &mad_jobs[mt_below(random, MAD_JOBS)];

	if (job->kind != NONE)
		return;
	job->kind = MAD_OP;
	if (post_to_mad(random, job))
		job->kind = NONE;
}

static void publish_lane(int rank)
{
	mrs[2 * rank] = rma_register(&ep, lanes[rank], LANE, FI_REMOTE_READ | FI_REMOTE_WRITE,
				     &board->lanes[rank == MAD ? VICTIM : rank]);
	counters[rank] = smalls[rank] = 0;
	mrs[2 * rank + 1] = rma_register(&ep, &counters[rank], 8, FI_REMOTE_READ | FI_REMOTE_WRITE,
					 &board->counters[rank == MAD ? VICTIM : rank]);
}

static void victim_open(void)
{
	size_t least = 1024; /* of a multi-receive: what all small messages fit into */

	open_in_round(&ep);
	mt_must(fi_setopt(&ep.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	for (int i = HONEST; i <= MAD; i++)
		publish_lane(i);
	addresses[MAD] = FI_ADDR_NOTAVAIL;
	for (int i = HONEST; i < MAD; i++) {
		addresses[i] = mt_lookup(&ep, name_slot(i));
		post_request(i, 0);
	}
	post_multi(&multis[0]);
	post_multi(&multis[1]);
	mt_barrier(NULL);
	mt_doing("waiting for the mad one");
	while (atomic_load(mt_flag(FLAG_OPEN)) < the_round)
		victim_poll();
	addresses[MAD] = mt_insert(&ep, mt_published(&ep, name_slot(MAD)));
}

static void cancel(struct job *jobs, int count)
{
	for (int i = 0; i < count; i++)
		if (jobs[i].kind != NONE)
			(void)fi_cancel(&ep.ep->fid, &jobs[i]);
}

/* Has this process anything of that file, mapped or open? */
static bool holds_file(const char *name)
{
	char line[512], path[64], target[256];
	FILE *maps = fopen("/proc/self/maps", "r");
	bool found = false;

	mt_require(maps, "/proc/self/maps: %s", strerror(errno));
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, name);
	fclose(maps);
	for (int fd = 0; fd < 256 && !found; fd++) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, target, sizeof(target) - 1);
		target[len > 0 ? len : 0] = '\0';
		found = strstr(target, name);
	}
	return found;
}

/* How often has the victim said that it has given up the peer of that address? "" stands for all. */
static uint64_t given_up(const char *address)
{
	const char *words[] = { "<warn>", address, "nothing more is taken", NULL };
	char line[2000];

	return mt_logged(line, sizeof(line), words);
}

/* The victim has given the mad one up, and has nothing of its segment mapped or open. */
static void check_mad(void)
{
	const char *address = mt_published(NULL, name_slot(MAD));
	uint64_t times = given_up(address);

	mt_require(times <= 1, "a peer was given up %llu times", (unsigned long long)times);
	mt_require(times || !ends_in_quarantine(), "the mad one was not given up in round %llu",
		   (unsigned long long)the_round);
	while (holds_file(strrchr(board->segments[the_round], '/')))
		victim_poll();
}

/* The mad one is dead by now: all operations with it end. */
static void end_mad(void)
{
	cancel(mad_jobs, MAD_JOBS);
	for (int i = 0; i < MAD_JOBS; i++) {
		mt_doing("waiting for operation %d with the mad one", i);
		while (mad_jobs[i].kind != NONE)
			victim_poll();
	}
}

static void victim_close(void)
{
	mt_close(&ep);
	for (int i = 0; i < RANKS; i++)
		requests[i].kind = replies[i].kind = NONE;
	multis[0].kind = multis[1].kind = NONE;
}

/* The address vector, queue and registrations go with the domain: endpoint first, as wild words may name them. */
static void close_in_order(void)
{
	mt_must(fi_close(&ep.ep->fid));
	ep.ep = NULL;
	for (int i = 2 * HONEST; i <= 2 * MAD + 1; i++)
		rma_unregister(&ep, mrs[i]);
	victim_close();
}

static void victim_round(struct mt_random *random)
{
	victim_open();
	mt_doing("round %llu", (unsigned long long)the_round);
	atomic_store(mt_flag(FLAG_READY), the_round);
	while (atomic_load(mt_flag(FLAG_DONE)) < HONESTS * the_round ||
	       atomic_load(mt_flag(FLAG_CLEAN)) < the_round) {
		if (!is_over())
			bother_mad(random);
		victim_poll();
	}
	end_mad();
	check_mad();
	close_in_order();
	mt_barrier(NULL);
}

static void *new_buffer(size_t size)
{
	void *buf = calloc(1, size);

	mt_require(buf, "no memory");
	return buf;
}

static void victim_buffers(void)
{
	for (int i = 0; i < RANKS; i++) {
		requests[i].buf = new_buffer(LARGEST);
		replies[i].buf = new_buffer(LARGEST);
		lanes[i] = new_buffer(LANE);
	}
	for (int i = 0; i < MAD_JOBS; i++)
		mad_jobs[i].buf = new_buffer(LARGEST);
	for (int i = 0; i < 2; i++)
		multis[i].buf = new_buffer(MULTI_SIZE);
}

/* ---- the mad one ----------------------------------------------------------------------------- */

/* A process for each round: it does what applications do, with no regard for what comes of it. */
static void mad_main(void)
{
	struct mt_random random = { seed + the_round };
	static struct mt_op mad_ops[16];
	uint64_t receives = 0;
	uint8_t *lane = new_buffer(LANE), *buf = new_buffer(LARGEST);
	fi_addr_t to;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_in_round(&ep);
	(void)rma_register(&ep, lane, LANE, FI_REMOTE_READ | FI_REMOTE_WRITE, &board->lanes[MAD]);
	to = mt_insert(&ep, mt_published(&ep, name_slot(VICTIM)));
	atomic_store(mt_flag(FLAG_OPEN), the_round);
	for (;;) {
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry error = { 0 };
		const struct rma_place *place = &board->lanes[VICTIM];
		struct mt_op *op = &mad_ops[mt_below(&random, 16)];
		size_t len = size_of(mt_random(&random));
		uint64_t tag = mt_below(&random, 8), one = 1;

		if (fi_cq_read(ep.cq, &entry, 1) == -FI_EAVAIL)
			(void)fi_cq_readerr(ep.cq, &error, 0);
		switch (mt_below(&random, 8)) {
		case 0:
		case 1: /* all the memory of the machine is not the question here */
			if (receives < 100000)
				receives += !fi_trecv(ep.ep, buf, len, NULL, to, tag, 0, op);
			break;
		case 2:
		case 3:
			(void)fi_tsend(ep.ep, buf, len, NULL, to, tag, op);
			break;
		case 4:
			(void)fi_write(ep.ep, buf, len % LANE, NULL, to, place->addr, place->key, op);
			break;
		case 5:
			(void)fi_read(ep.ep, buf, len % LANE, NULL, to, place->addr, place->key, op);
			break;
		case 6:
			(void)fi_fetch_atomic(ep.ep, &one, 1, NULL, buf, NULL, to, place->addr, place->key,
					      FI_UINT64, FI_SUM, op);
			break;
		default:
			(void)fi_send(ep.ep, buf, len % 1000, NULL, to, op);
		}
	}
}

static void mad_round(void)
{
	pid_t child;

	mt_barrier(NULL);
	child = fork();
	mt_require(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		mad_main();
		_exit(0);
	}
	sleep_until(FLAG_STOP);
	kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0); /* or it has died of what was written over its memory */
	atomic_store(mt_flag(FLAG_DEAD), the_round);
	mt_barrier(NULL);
}

/* A process that starts clears away what the mad ones have left: nobody is connected to them any more. */
static void clear_away(void)
{
	pid_t child = fork();
	int status;

	mt_require(child >= 0, "fork: %s", strerror(errno));
	if (!child) {
		mt_open(&ep, NULL);
		mt_close(&ep);
		_exit(0);
	}
	mt_require(waitpid(child, &status, 0) == child && !status, "a start has failed: %d", status);
	for (uint64_t round = 1; round <= the_round; round++)
		mt_require(access(board->segments[round], F_OK), "%s is left", board->segments[round]);
}

/* ---- the pen --------------------------------------------------------------------------------- */

/* A segment, and what its header says; see struct sc_abi_header. */
struct file {
	uint8_t *base;
	uint64_t size, pool, slots, table;
	uint32_t claims, slot_count, slot_size, lines; /* lines: of a slot's ring, which is at its end */
	char path[128];
};

#define LINE 64
#define PRESENCE 1024
#define POOL_REACH 65536
#define TABLE_REACH 16384

static void path_of(int rank, char path[128])
{
	const char *name = strrchr(mt_published(NULL, name_slot(rank)), '/');

	name = strchr(name, '-'); /* behind the host */
	snprintf(path, 128, "/dev/shm/shmcma%s", name);
}

static void map_file(struct file *file, int rank)
{
	struct stat st;
	int fd;

	path_of(rank, file->path);
	fd = open(file->path, O_RDWR | O_CLOEXEC);
	mt_require(fd >= 0 && !fstat(fd, &st), "%s: %s", file->path, strerror(errno));
	file->size = (uint64_t)st.st_size;
	file->base = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	mt_require(file->base != MAP_FAILED, "%s: %s", file->path, strerror(errno));
	close(fd);
	memcpy(&file->claims, file->base + 24, 4);
	memcpy(&file->slot_count, file->base + 28, 4);
	memcpy(&file->pool, file->base + 32, 8);
	memcpy(&file->slots, file->base + 48, 8);
	memcpy(&file->slot_size, file->base + 56, 4);
	memcpy(&file->lines, file->base + 60, 4);
	memcpy(&file->table, file->base + 160, 8);
	mt_require(file->claims && file->lines && file->slot_size / LINE > file->lines &&
			   file->table <= file->size,
		   "%s: header", file->path);
}

static uint64_t *claim_of(const struct file *file, uint32_t slot)
{
	return (uint64_t *)(file->base + file->claims) + slot;
}

static uint8_t *slot_of(const struct file *file, uint32_t slot)
{
	return file->base + file->slots + (uint64_t)slot * file->slot_size;
}

struct range {
	uint8_t *base;
	size_t size;
};

/* Slots that are taken, in `ranges`; `nth` of them that were, at the beginning. Each has memory. */
static size_t taken_slots(const struct file *file, struct range *ranges, size_t room)
{
	size_t used = 0;

	for (uint32_t i = 0; i < file->slot_count && used < room; i++)
		if (__atomic_load_n(claim_of(file, i), __ATOMIC_RELAXED))
			ranges[used++] = (struct range){ slot_of(file, i), file->slot_size };
	return used;
}

#define CONSUMER 64
#define ANSWER (CONSUMER + 16)

/* The slot of the process that has the segment `path`: the claim of the slot has its pid. */
static bool claimed_slot(const struct file *file, const char *path, struct range *range)
{
	uint32_t pid;

	mt_require(sscanf(path, "/dev/shm/shmcma-%*8x-%8x-", &pid) == 1, "%s", path);
	for (uint32_t i = 0; i < file->slot_count; i++)
		if (__atomic_load_n(claim_of(file, i), __ATOMIC_RELAXED) >> 32 == pid) {
			*range = (struct range){ slot_of(file, i), file->slot_size };
			return true;
		}
	return false;
}

/* It comes when it has something to say, and is let in then. */
static bool entered_slot(const struct file *file, const char *path, struct range *range)
{
	return claimed_slot(file, path, range) && __atomic_load_n(range->base + ANSWER, __ATOMIC_RELAXED);
}

#define RANGES 12

/* Everything but slots; with `table` if that is to be written over as well. */
static size_t common_ranges(const struct file *file, struct range *ranges, bool table)
{
	size_t used = 0;

	ranges[used++] = (struct range){ file->base, 240 };
	ranges[used++] = (struct range){ file->base + PRESENCE, 64 };
	ranges[used++] = (struct range){ file->base + file->claims, 64 };
	ranges[used++] = (struct range){ file->base + file->pool, POOL_REACH };
	if (table && file->table + TABLE_REACH < file->size) {
		ranges[used++] = (struct range){ file->base + file->table, TABLE_REACH };
		ranges[used++] = (struct range){ file->base + file->table + (8u << 17), 1024 };
	}
	return used;
}

static size_t find_ranges(const struct file *own, const struct file *of_victim, struct range *ranges)
{
	size_t used;

	if (mode->where == SLOT)
		return entered_slot(of_victim, own->path, ranges);
	if (mode->where == OWN) {
		used = common_ranges(own, ranges, true);
		return used + taken_slots(own, ranges + used, RANGES - used);
	}
	used = common_ranges(of_victim, ranges, false);
	return used + taken_slots(of_victim, ranges + used, RANGES - used);
}

/* One word, as a stray store would leave it, or as one who knows the format would write it. */
static void write_one(struct mt_random *random, const struct range *range)
{
	size_t reach = mt_below(random, 2) && range->size > 512 ? 512 : range->size;
	uint64_t *at = (uint64_t *)(range->base + mt_below(random, reach / 8) * 8);
	uint64_t old = __atomic_load_n(at, __ATOMIC_RELAXED), other, new = 0;

	switch (mt_below(random, 9)) {
	case 0:
		new = mt_random(random);
		break;
	case 1:
	case 2:
		new = old ^ 1ull << mt_below(random, 64);
		break;
	case 3:
		new = old + mt_below(random, 5) - 2;
		break;
	case 4:
		new = old + ((mt_below(random, 5) - 2) << 16 * mt_below(random, 4));
		break;
	case 5:
		new = mt_below(random, 20);
		break;
	case 6: /* halves changed over: generation and index */
		new = old << 32 | old >> 32;
		break;
	case 7: /* another word of the same */
		memcpy(&other, range->base + mt_below(random, reach / 8) * 8, 8);
		new = other;
		break;
	default:
		break;
	}
	if (mt_below(random, 4))
		__atomic_store_n(at, new, __ATOMIC_RELAXED);
	else
		__atomic_store_n((uint32_t *)at + mt_below(random, 2), (uint32_t) new, __ATOMIC_RELAXED);
}

/* Clears the hazard words: the victim's close would wait for them for 5 seconds. */
static void clear_hazards(const struct file *file)
{
	struct range ranges[RANGES];
	size_t used = taken_slots(file, ranges, RANGES);

	for (size_t i = 0; i < used; i++)
		for (size_t word = 0; word < 8; word++)
			__atomic_store_n((uint64_t *)(ranges[i].base + 128) + word, 0, __ATOMIC_RELAXED);
}

/* Writes records of no known kind to every line: the victim finds one if it is in that lap. */
static void write_bad_records(const struct file *file, uint8_t *slot, uint64_t lap)
{
	size_t lines = file->lines;
	uint8_t *ring = slot + file->slot_size - lines * LINE;

	for (size_t i = 0; i < lines; i++)
		__atomic_store_n((uint64_t *)(ring + i * LINE + LINE - 8),
				 lap << 56 | 0xffull << 48 | 1ull << 32, __ATOMIC_RELAXED);
}

#define CLAIM_STATE 3
#define CLAIM_DEPARTED 3
#define ANSWER_ACCEPTED 1

/* Has the victim given up? It says so in its claim of the mad one's slot, or in its answer to its claim. */
static bool has_ended(const struct file *file, const struct range *slot)
{
	uint32_t index = (uint32_t)((size_t)(slot->base - slot_of(file, 0)) / file->slot_size);
	uint64_t claim = __atomic_load_n(claim_of(file, index), __ATOMIC_RELAXED);

	if (!claim || (claim & CLAIM_STATE) == CLAIM_DEPARTED)
		return true;
	return mode->where == SLOT &&
	       __atomic_load_n(slot->base + ANSWER, __ATOMIC_RELAXED) != ANSWER_ACCEPTED;
}

/*
 * Writes words that break the rules again and again until the victim has seen them: a head of the ring that the
 * victim writes, or records in the ring that it reads.
 */
static void write_end(const struct file *own, const struct file *of_victim)
{
	const struct file *file = mode->where == OWN ? own : of_victim;
	struct range slot;
	uint64_t lap = 1;

	if (mode->where == OWN ? !taken_slots(own, &slot, 1) : !entered_slot(of_victim, own->path, &slot))
		return;
	mt_doing("waiting for the victim to see what cannot be, round %llu",
		 (unsigned long long)the_round);
	for (; !has_ended(file, &slot); nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL)) {
		if (mode->where == OWN)
			__atomic_store_n((uint64_t *)(slot.base + CONSUMER), UINT64_MAX / 3,
					 __ATOMIC_RELAXED);
		else
			write_bad_records(file, slot.base, lap);
		lap ^= 3;
	}
}

/*
 * Until both have connected to each other: there is something to write over. And until those who keep the rules are in
 * places of their own: one that came later might be given that of a mad one that is gone, with the pen still in it.
 */
static void wait_for_traffic(const struct file *own, const struct file *of_victim)
{
	struct range slots[RANGES];
	char path[128];

	mt_doing("waiting for traffic, round %llu", (unsigned long long)the_round);
	while (!entered_slot(of_victim, own->path, slots) || !taken_slots(own, slots, RANGES))
		mt_poll(NULL);
	for (int i = HONEST; i < MAD; i++) {
		path_of(i, path);
		while (!entered_slot(of_victim, path, slots))
			mt_poll(NULL);
	}
	mt_doing("writing, seed %llu, round %llu", (unsigned long long)seed,
		 (unsigned long long)the_round);
}

static void scribble(const struct file *own, const struct file *of_victim)
{
	static const long naps[] = { 0, 1000, 50000, 1000000 };
	struct mt_random random = { mt_hash(seed + the_round) };
	struct timespec nap = { .tv_nsec = naps[mt_below(&random, 4)] };
	uint64_t most = 1 + mt_below(&random, 32);
	struct range ranges[RANGES];
	size_t used = 0;
	double end;

	wait_for_traffic(own, of_victim);
	if (ends_in_quarantine()) {
		write_end(own, of_victim);
		return;
	}
	end = mt_now() + ROUND_SECONDS;
	do {
		uint64_t count = 1 + mt_below(&random, most);

		if (!used || mt_below(&random, 16) == 0)
			used = find_ranges(own, of_victim, ranges);
		for (; used && count; count--)
			write_one(&random, &ranges[mt_below(&random, used)]);
		nanosleep(&nap, NULL);
	} while (mt_now() < end);
	if (is_wild())
		clear_hazards(of_victim);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
}

/* The dead one's place is free for others. Not at once, where it had been given up before. */
static void wait_for_slot(const struct file *of_victim, const char *mad_path)
{
	struct range slot;

	mt_doing("waiting for the victim to free the dead one's slot");
	while (claimed_slot(of_victim, mad_path, &slot))
		mt_poll(NULL);
}

static void pen_round(void)
{
	struct file own, of_victim;

	mt_barrier(NULL);
	sleep_until(FLAG_READY);
	map_file(&own, MAD);
	map_file(&of_victim, VICTIM);
	memcpy(board->segments[the_round], own.path, sizeof(own.path));
	scribble(&own, &of_victim);
	if (the_round + 1 == ROUNDS_MAX || (the_round > 1 && mt_now() > case_seconds))
		atomic_store(mt_flag(FLAG_LAST), 1);
	atomic_store(mt_flag(FLAG_STOP), the_round);
	sleep_until(FLAG_DEAD);
	if (atomic_load(mt_flag(FLAG_LAST)) && !is_wild())
		wait_for_slot(&of_victim, own.path);
	atomic_store(mt_flag(FLAG_CLEAN), the_round);
	mt_barrier(NULL);
	munmap(own.base, own.size);
	munmap(of_victim.base, of_victim.size);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* The victim's log names the peer that it has given up, and says what to do. */
static void check_log(void)
{
	static const char *const words[] = { "<warn>", "fi_shmcma://", "nothing more is taken", NULL };
	char line[2000];

	atomic_store(&board->quarantines, mt_logged(line, sizeof(line), words));
	if (is_wild())
		return;
	mt_require(atomic_load(&board->quarantines), "no peer was given up in any round");
	mt_require(strstr(line, "restart"), "no remedy in: %s", line);
}

static void rank_main(const void *arg)
{
	const char *text = getenv("SCRIBBLE_SECONDS");
	struct mt_random random;
	bool last;

	mode = arg;
	text = text ? text : rounds_are_full() ? "1" : "0.4";
	case_seconds = mt_now() + strtod(text, NULL);
	random.state = seed + (uint64_t)mt_rank;
	if (mt_rank == VICTIM)
		victim_buffers();
	the_round = 0;
	do {
		the_round++; /* from 1 on: flags are 0 at first */
		mt_barrier(NULL);
		if (mt_rank == VICTIM)
			victim_round(&random);
		else if (mt_rank == MAD)
			mad_round();
		else if (mt_rank == PEN)
			pen_round();
		else
			honest_round();
		mt_barrier(NULL);
		last = atomic_load(mt_flag(FLAG_LAST));
		mt_barrier(NULL);
	} while (!last);
	if (mt_rank == VICTIM)
		check_log();
	if (mt_rank == MAD)
		clear_away();
}

static bool judge(const struct mt_counters *all, int ranks, const void *arg)
{
	uint64_t logged = atomic_load(&board->quarantines);

	(void)ranks;
	(void)arg;
	if (all[VICTIM].quarantines != logged) {
		printf("  the victim has counted %llu quarantines and logged %llu\n",
		       (unsigned long long)all[VICTIM].quarantines, (unsigned long long)logged);
		return false;
	}
	for (int i = HONEST; i < MAD; i++)
		if (!atomic_load(&board->exchanged[i])) {
			printf("  rank %d has exchanged nothing\n", i);
			return false;
		}
	return true;
}

int main(void)
{
	static const struct mode modes[] = {
		{ "own", OWN, { NULL } },
		{ "slot", SLOT, { NULL } },
		{ "all", ALL, { "FI_SHMCMA_CMA=0" } },
		{ "own-strict", OWN, { "FI_SHMCMA_RMA=strict" } },
		{ "own-no-cma", OWN, { "FI_SHMCMA_CMA=0" } },
		{ "slot-no-cma", SLOT, { "FI_SHMCMA_CMA=0" } },
	};
	size_t count = sizeof(modes) / sizeof(modes[0]);
	const char *text = getenv("TEST_SEED");

	mt_init("test_scribble");
	seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	printf("test_scribble: TEST_SEED=%llu\n", (unsigned long long)seed);
	board = rma_shared(sizeof(*board));
	for (size_t i = 0; i < count; i++) {
		memset(board, 0, sizeof(*board));
		mt_run(&(struct mt_case){ .name = modes[i].name,
					  .ranks = RANKS,
					  .deadline = 240,
					  .rank = rank_main,
					  .arg = &modes[i],
					  .judge = judge,
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	}
	return mt_end();
}
