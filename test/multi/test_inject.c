/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_inject: injected puts land although neither their initiator nor their target calls again, and whatever becomes of
 * the initiator. Rank 0 owns the memory, which all see. In each round rank 1 forks an initiator, which opens an endpoint
 * of its own; rank 0 polls until that one is connected, and then computes.
 *
 *   sleeps     the initiator's last call is the last put: then it sleeps, and nobody polls
 *   exits      it calls exit(3) right after the last put, without fi_close
 *   killed     it is killed right after the last put; then the target polls
 *   data       each put has remote data, and the initiator sleeps; the target reads the completions
 *   secret     CMA does not reach the memory; the initiator sleeps, and the target polls some milliseconds later
 *
 * Without CMA (-nocma), and in secret memory, only the target can write the bytes. It polls after the initiator's last
 * call, and also while more puts are posted than may be open.
 *
 * In each second round the target has sent the initiator a message, in whose bounce buffer the first put of 400 bytes goes.
 *
 * A round is one size and one number of puts. TEST_INJECT_ROUNDS: how often each round is made, default 1, in the full
 * tests 10.
 */
#define _GNU_SOURCE 1
#include "../rounds.h"
#include "rma.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

enum ending { SLEEPS, EXITS, KILLED, DATA, SECRET };

struct params {
	const char *name;
	enum ending ending;
	bool nocma;
};

enum {
	FLAG_ROUND,	/* rank 0 polls in this round */
	FLAG_CONNECTED, /* the initiator has seen that its messages are read */
	FLAG_AWAY,	/* rank 0 polls no more */
	FLAG_POSTED,
	FLAG_LANDED, /* rank 0 has seen it */
	FLAG_END,
};

#define MOST 1000 /* puts of a round */
#define MAY_BE_OPEN 32
#define LARGEST ((size_t)4096)

static struct board {
	struct rma_place place;
	char initiator[256]; /* its address */
	uint8_t memory[MOST * LARGEST];
} * board;

static uint8_t *memory; /* of rank 0, registered */

static const size_t sizes[] = { 1, 8, 64, 400, 4096 };
#define LENT                                                                                              \
	400 /* bytes of the message: no trial of the ways to fill buffers keeps one of that size from coming back */
static const unsigned counts[] = {
	1, 3, 31, 33, 200, MOST
}; /* some more and some less than may be open */
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* For one that does not poll. */
static void sleep_until(int flag, uint64_t value)
{
	while (atomic_load(mt_flag(flag)) < value)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static uint64_t seed_of(uint64_t round, unsigned put)
{
	return round << 16 | put;
}

static bool has_landed(uint64_t round, unsigned put, size_t size)
{
	return pattern_differs(memory + put * LARGEST, 0, size, seed_of(round, put)) < 0;
}

static void wait_landed(uint64_t round, unsigned count, size_t size)
{
	mt_doing("waiting for %u puts of %zu bytes", count, size);
	for (unsigned i = 0; i < count; i++)
		while (!has_landed(round, i, size))
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* ---- the initiator --------------------------------------------------------------------------- */

static void inject_all(struct mt_ep *ep, fi_addr_t target, uint64_t round, unsigned count, size_t size,
		       bool data)
{
	uint8_t bytes[LARGEST];

	for (unsigned i = 0; i < count; i++) {
		uint64_t to = board->place.addr + i * LARGEST;
		ssize_t rc;

		pattern_fill(bytes, 0, size, seed_of(round, i));
		while ((rc = data ? fi_inject_writedata(ep->ep, bytes, size, i, target, to,
							board->place.key)
				  : fi_inject_write(ep->ep, bytes, size, target, to, board->place.key)) ==
		       -FI_EAGAIN)
			mt_progress(ep);
		mt_must(rc);
	}
}

static bool lends(uint64_t round)
{
	return round % 2;
}

/* The initiator polls no more after that: it holds the buffer of the message. */
static void receive(struct mt_ep *ep, uint64_t round)
{
	struct mt_op op = { .pending = true };
	uint8_t bytes[LENT];

	if (!lends(round))
		return;
	mt_must(fi_recv(ep->ep, bytes, sizeof(bytes), NULL, FI_ADDR_UNSPEC, &op));
	mt_wait(ep, &op);
}

static void initiate(const struct params *params, uint64_t round, unsigned count, size_t size)
{
	struct mt_open open = { .caps = FI_RMA | FI_MSG };
	size_t name_size = sizeof(board->initiator);
	struct mt_op op = { 0 };
	struct mt_ep ep;
	fi_addr_t target;

	mt_rank = mt_ranks; /* a process of its own */
	mt_open(&ep, &open);
	ep.silent = true;
	target = mt_insert(&ep, mt_published(&ep, 0));
	/* a get that only a target which polls ends, or this side by CMA */
	for (int i = 0; i < 50; i++) {
		uint64_t word;

		mt_must(fi_read(ep.ep, &word, 8, NULL, target, board->place.addr, board->place.key, &op));
		op.pending = true;
		mt_wait(&ep, &op);
		op = (struct mt_op){ 0 };
	}
	mt_must(fi_getname(&ep.ep->fid, board->initiator, &name_size));
	atomic_store(mt_flag(FLAG_CONNECTED), round);
	receive(&ep, round);
	if (!params->nocma)
		sleep_until(FLAG_AWAY, round);
	inject_all(&ep, target, round, count, size, params->ending == DATA);
	atomic_store(mt_flag(FLAG_POSTED), round);
	if (params->ending == KILLED)
		raise(SIGKILL);
	if (params->ending == EXITS)
		exit(0);
	sleep_until(FLAG_LANDED, round);
	mt_close(&ep);
	_exit(0);
}

static void initiator_of_round(const struct params *params, uint64_t round, unsigned count, size_t size)
{
	int status;
	pid_t child;

	sleep_until(FLAG_ROUND, round);
	child = mt_fork();
	mt_require(child >= 0, "fork: %s", strerror(errno));
	if (!child)
		initiate(params, round, count, size);
	mt_require(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
	mt_require(params->ending == KILLED ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : !status,
		   "the initiator of round %llu ended with status 0x%x: %s", (unsigned long long)round,
		   status, mt_failure(mt_ranks));
	sleep_until(FLAG_LANDED, round);
}

/* ---- the target ------------------------------------------------------------------------------ */

static void read_data(struct mt_ep *ep, unsigned count, size_t size)
{
	bool seen[MOST] = { false };

	for (unsigned got = 0; got < count;) {
		struct fi_cq_tagged_entry entry;
		ssize_t n = fi_cq_read(ep->cq, &entry, 1);

		if (n == -FI_EAGAIN) {
			sched_yield();
			continue;
		}
		mt_must(n);
		mt_require(entry.flags & FI_REMOTE_CQ_DATA && entry.len == size && entry.data < count &&
				   !seen[entry.data],
			   "data %llu of %zu bytes", (unsigned long long)entry.data, entry.len);
		mt_require(!got || seen[entry.data - 1], "data out of order");
		seen[entry.data] = true;
		got++;
	}
}

static void poll_landed(struct mt_ep *ep, uint64_t round, unsigned count, size_t size)
{
	for (unsigned i = 0; i < count; i++)
		while (!has_landed(round, i, size))
			mt_poll(ep);
}

static void lend(struct mt_ep *ep, uint64_t round)
{
	struct mt_op op = { .pending = true };
	uint8_t bytes[LENT] = { 0 };

	if (!lends(round))
		return;
	mt_must(fi_send(ep->ep, bytes, sizeof(bytes), NULL, mt_insert(ep, board->initiator), &op));
	mt_wait(ep, &op);
}

static void target_of_round(const struct params *params, struct mt_ep *ep, uint64_t round, unsigned count,
			    size_t size)
{
	memset(memory, 0, count * LARGEST);
	atomic_store(mt_flag(FLAG_ROUND), round);
	mt_doing("polling until the initiator is connected");
	mt_flag_wait(ep, FLAG_CONNECTED, round);
	lend(ep, round);
	atomic_store(mt_flag(FLAG_AWAY), round);
	if (params->ending == SECRET && count < MAY_BE_OPEN) {
		sleep_until(FLAG_POSTED, round);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 },
			  NULL); /* the initiator's thread tries meanwhile */
		poll_landed(ep, round, count, size);
	} else if ((params->nocma && params->ending != DATA) || params->ending == SECRET) {
		mt_flag_wait(ep, FLAG_POSTED, round);
		poll_landed(ep, round, count, size);
	}
	switch (params->ending) {
	case KILLED:
		sleep_until(FLAG_POSTED, round);
		poll_landed(ep, round, count, size);
		break;
	case DATA:
		read_data(ep, count, size);
		for (unsigned i = 0; i < count; i++)
			mt_require(has_landed(round, i, size), "put %u: data before the bytes", i);
		break;
	default:
		wait_landed(round, count, size);
	}
	atomic_store(mt_flag(FLAG_LANDED), round);
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Memory that the kernel copies for no other process; where there is none, the case is skipped. */
static uint8_t *secret_memory(void)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	void *map = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, sizeof(board->memory)))
		map = mmap(NULL, sizeof(board->memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		mt_skip("no secret memory: %s", strerror(errno));
	close(fd);
	return map;
}

static void inject_rank(const void *arg)
{
	const struct params *params = arg;
	struct mt_open open = { .caps = FI_RMA | FI_MSG };
	const char *given = getenv("TEST_INJECT_ROUNDS");
	unsigned long repeat = given ? strtoul(given, NULL, 10) : rounds_of(10, 1);
	struct fid_mr *mr = NULL;
	struct mt_ep ep;
	uint64_t round = 0;

	if (params->nocma)
		setenv("FI_SHMCMA_CMA", "0", 1);
	if (mt_rank == 0) {
		mt_open(&ep, &open);
		memory = params->ending == SECRET ? secret_memory() : board->memory;
		mr = rma_register(&ep, memory, sizeof(board->memory), FI_REMOTE_READ | FI_REMOTE_WRITE,
				  &board->place);
		mt_publish(&ep, 0);
	}
	for (unsigned long turn = 0; turn < repeat; turn++)
		for (size_t s = 0; s < SIZES; s++)
			for (size_t c = 0; c < COUNTS; c++) {
				if (mt_rank == 0)
					target_of_round(params, &ep, ++round, counts[c], sizes[s]);
				else
					initiator_of_round(params, ++round, counts[c], sizes[s]);
			}
	if (mt_rank == 0) {
		rma_unregister(&ep, mr);
		mt_close(&ep);
	}
}

int main(void)
{
	static const struct params cases[] = {
		{ "sleeps", SLEEPS, false },	  { "exits", EXITS, false },
		{ "killed", KILLED, false },	  { "data", DATA, false },
		{ "secret", SECRET, false },	  { "exits-nocma", EXITS, true },
		{ "killed-nocma", KILLED, true }, { "data-nocma", DATA, true }
	};

	mt_init("test_inject");
	board = rma_shared(sizeof(*board));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mt_run(&(struct mt_case){
			.name = cases[i].name, .ranks = 2, .rank = inject_rank, .arg = &cases[i] });
	return mt_end();
}
