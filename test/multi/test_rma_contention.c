/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rma_contention: all at once, and all from one.
 *
 *   contention  8 processes fetch and add on one word, whose tickets must be given once each, and put into and
 *               get from each other meanwhile, random sizes and vectors; every lane is compared in the end
 *   passive     the target computes and never calls libfabric while another puts and gets; by default its
 *               help is not needed, with automatic progress not even in strict mode nor for atomics
 */
#define _GNU_SOURCE 1
#include "rma.h"

#include <time.h>

#define RANKS 8
#define TICKETS 1500		 /* of each rank */
#define LANE ((size_t)256 << 10) /* the part of a rank's memory that one other rank writes */
#define PUTS 6			 /* at once, to different parts of the lane */
#define PART (LANE / PUTS)
#define ROUNDS 150
#define LARGEST ((size_t)4 << 20)

struct places {
	struct rma_place memory, counter;
	_Atomic uint64_t lane_hash[RANKS]; /* of each origin's lane, in the end */
};

static struct shared_board {
	struct places places[RANKS];
	_Atomic uint32_t ticket_given[RANKS * TICKETS];
	_Atomic int computing;
} * board;

/* ---- contention ------------------------------------------------------------------------------ */

struct member {
	struct mt_ep ep;
	fi_addr_t peers[RANKS];
	struct mt_random random;
	uint8_t *memory, *mirror, *buffer; /* ours; a copy of our lane of each rank; the data of an operation */
	uint64_t counter;		   /* rank 0's is the one */
	struct fid_mr *memory_mr, *counter_mr;
	size_t local_pieces, remote_pieces;
};

static uint64_t hash_bytes(const uint8_t *bytes, size_t len)
{
	uint64_t hash = len, word;

	for (size_t i = 0; i + 8 <= len; i += 8) {
		memcpy(&word, bytes + i, 8);
		hash = mt_hash(hash ^ word);
	}
	return hash;
}

/* Cut a range of bytes into 1 to max pieces: their lengths. */
static size_t cut(struct member *m, size_t len, size_t max, size_t *lens)
{
	size_t count = 1 + mt_below(&m->random, max);

	for (size_t i = 0; i + 1 < count; i++) {
		lens[i] = mt_below(&m->random, len + 1);
		len -= lens[i];
	}
	lens[count - 1] = len;
	return count;
}

/* From or into one part of our lane of a rank: a range of it cut at random on both sides. */
static void start_move(struct member *m, struct mt_op *op, bool write, int to, size_t at, size_t len,
		       uint8_t *local)
{
	const struct rma_place *place = &board->places[to].memory;
	struct rma_request request = { .write = write, .peer = m->peers[to] };
	size_t lens[RMA_PIECES], offset = (size_t)mt_rank * LANE + at;

	request.local_count = cut(m, len, m->local_pieces, lens);
	for (size_t i = 0; i < request.local_count; local += lens[i++])
		request.local[i] = (struct iovec){ local, lens[i] };
	request.remote_count = cut(m, len, m->remote_pieces, lens);
	for (size_t i = 0; i < request.remote_count; offset += lens[i++])
		request.remote[i] = (struct fi_rma_iov){ .addr = place->addr + offset,
							 .len = lens[i],
							 .key = place->key };
	rma_post(&m->ep, op, &request);
}

static size_t random_len(struct member *m)
{
	size_t most = (size_t)1 << mt_below(&m->random, 17);

	return mt_below(&m->random, (most < PART ? most : PART) + 1);
}

/* Several puts into different parts of our lane, then gets of these very parts. */
static void exchange(struct member *m, int to, int round)
{
	struct mt_op ops[PUTS];
	size_t at[PUTS], len[PUTS];
	uint8_t *lane = m->mirror + (size_t)to * LANE;

	memset(ops, 0, sizeof(ops));
	mt_doing("round %d: puts to rank %d", round, to);
	for (size_t i = 0; i < PUTS; i++) {
		len[i] = random_len(m);
		at[i] = i * PART + mt_below(&m->random, PART - len[i] + 1);
		pattern_fill(lane + at[i], 0, len[i], mt_random(&m->random));
		start_move(m, &ops[i], true, to, at[i], len[i], lane + at[i]);
	}
	for (size_t i = 0; i < PUTS; i++)
		mt_wait(&m->ep, &ops[i]);
	mt_doing("round %d: gets from rank %d", round, to);
	memset(m->buffer, 0, LANE);
	for (size_t i = 0; i < PUTS; i++) {
		memset(&ops[i], 0, sizeof(ops[i]));
		start_move(m, &ops[i], false, to, at[i], len[i], m->buffer + at[i]);
	}
	for (size_t i = 0; i < PUTS; i++) {
		mt_wait(&m->ep, &ops[i]);
		mt_require(memcmp(m->buffer + at[i], lane + at[i], len[i]) == 0,
			   "round %d, rank %d: a get of %zu bytes is not what was put", round, to, len[i]);
	}
}

static void take_tickets(struct member *m, int count)
{
	uint64_t one = 1, ticket, last = 0;
	struct mt_op op = { 0 };

	mt_doing("taking tickets");
	for (int i = 0; i < count; i++) {
		rma_atomic(&m->ep, &op, FI_SUM, &one, &ticket, m->peers[0], &board->places[0].counter, 0);
		mt_wait(&m->ep, &op);
		mt_require(ticket < RANKS * TICKETS, "ticket %llu", (unsigned long long)ticket);
		mt_require(i == 0 || ticket > last, "ticket %llu after %llu", (unsigned long long)ticket,
			   (unsigned long long)last);
		mt_require(atomic_fetch_add(&board->ticket_given[ticket], 1) == 0,
			   "ticket %llu was given twice", (unsigned long long)ticket);
		last = ticket;
	}
}

static void open_member(struct member *m, const struct rma_mode *mode)
{
	struct places *mine = &board->places[mt_rank];

	memset(m, 0, sizeof(*m));
	m->random.state = 99 + (uint64_t)mt_rank * 7919;
	m->memory = calloc(RANKS, LANE);
	m->mirror = calloc(RANKS, LANE);
	m->buffer = malloc(LANE);
	mt_require(m->memory && m->mirror && m->buffer, "no memory");
	rma_open(&m->ep, mode);
	m->local_pieces = rma_pieces_max(&m->ep, false);
	m->remote_pieces = rma_pieces_max(&m->ep, true);
	m->memory_mr = rma_register(&m->ep, m->memory, RANKS * LANE, FI_REMOTE_READ | FI_REMOTE_WRITE,
				    &mine->memory);
	m->counter_mr = rma_register(&m->ep, &m->counter, sizeof(m->counter),
				     FI_REMOTE_READ | FI_REMOTE_WRITE, &mine->counter);
	mt_join(&m->ep, m->peers);
}

static void close_member(struct member *m)
{
	rma_unregister(&m->ep, m->counter_mr);
	rma_unregister(&m->ep, m->memory_mr);
	mt_close(&m->ep);
	free(m->memory);
	free(m->mirror);
	free(m->buffer);
}

static void contention_rank(const void *arg)
{
	struct member m;

	open_member(&m, arg);
	for (int round = 0; round < ROUNDS; round++) {
		exchange(&m, (int)mt_below(&m.random, RANKS), round);
		take_tickets(&m, TICKETS / ROUNDS);
	}
	mt_doing("finished, waiting for the others");
	mt_barrier(&m.ep);
	mt_require(mt_rank || m.counter == RANKS * TICKETS, "the counter is %llu",
		   (unsigned long long)m.counter);
	/* each lane as its owner has it, against what its writer thinks it wrote */
	for (int i = 0; i < RANKS; i++)
		atomic_store(&board->places[mt_rank].lane_hash[i],
			     hash_bytes(m.memory + (size_t)i * LANE, LANE));
	mt_barrier(&m.ep);
	for (int i = 0; i < RANKS; i++)
		mt_require(atomic_load(&board->places[i].lane_hash[mt_rank]) ==
				   hash_bytes(m.mirror + (size_t)i * LANE, LANE),
			   "the content of rank %d's lane of rank %d differs", i, mt_rank);
	mt_barrier(&m.ep);
	close_member(&m);
}

/* ---- passive target -------------------------------------------------------------------------- */

static const size_t passive_sizes[] = { 0, 1, 8, 100, 4096, 4097, 20000, 65536, 300000, 1 << 20, LARGEST };

static void passive_target(struct mt_ep *ep)
{
	uint8_t *memory = malloc(LARGEST);
	struct fid_mr *mr;

	mt_require(memory, "no memory");
	memset(memory, 0, LARGEST);
	mr = rma_register(ep, memory, LARGEST, FI_REMOTE_READ | FI_REMOTE_WRITE, &board->places[0].memory);
	mt_barrier(ep);
	mt_doing("computing");
	/* processors may be fewer than ranks: the scheduler, not libfabric, gets a call now and then */
	while (atomic_load(&board->computing))
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	mt_require(pattern_differs(memory, 0, LARGEST, LARGEST) < 0, "the last put is not in place");
	rma_unregister(ep, mr);
	free(memory);
}

static void passive_origin(struct mt_ep *ep, fi_addr_t target, bool atomics)
{
	uint8_t *out = malloc(LARGEST), *in = malloc(LARGEST);
	const struct rma_place *place = &board->places[0].memory;
	uint64_t one = 1, before, former = 0;
	struct mt_op op = { 0 };

	mt_require(out && in, "no memory");
	mt_barrier(ep);
	for (size_t i = 0; i < sizeof(passive_sizes) / sizeof(passive_sizes[0]); i++) {
		size_t size = passive_sizes[i], at = size < LARGEST ? 3 : 0;

		pattern_fill(out, 0, size, size);
		memset(in, 0, size);
		mt_doing("put of %zu bytes", size);
		rma_move(ep, &op, true, out, size, target, place, at);
		mt_wait(ep, &op);
		op.done = false;
		mt_doing("get of %zu bytes", size);
		rma_move(ep, &op, false, in, size, target, place, at);
		mt_wait(ep, &op);
		op.done = false;
		mt_require(memcmp(out, in, size) == 0, "a get of %zu bytes is not what was put", size);
	}
	memcpy(&before, in, sizeof(before));
	for (uint64_t i = 0; atomics && i < 100; i++) {
		mt_doing("fetch and add %llu", (unsigned long long)i);
		rma_atomic(ep, &op, FI_SUM, &one, &former, target, place, 0);
		mt_wait(ep, &op);
		op.done = false;
		mt_require(former == before + i, "the former value is %llu", (unsigned long long)former);
	}
	if (atomics) {
		rma_move(ep, &op, true, out, sizeof(before), target, place, 0);
		mt_wait(ep, &op);
	}
	atomic_store(&board->computing, 0);
	free(out);
	free(in);
}

static void passive_rank(const void *arg)
{
	const struct rma_mode *mode = arg;
	fi_addr_t peers[2];
	struct mt_ep ep;

	rma_open(&ep, mode);
	mt_join(&ep, peers);
	if (mt_rank == 0)
		passive_target(&ep);
	else
		passive_origin(&ep, peers[0], mode->automatic);
	mt_barrier(&ep);
	mt_close(&ep);
}

/* ---- the program ----------------------------------------------------------------------------- */

static void run(const struct rma_mode *mode, void (*rank)(const void *), int ranks, unsigned flags)
{
	board = rma_shared(sizeof(*board));
	atomic_store(&board->computing, 1);
	mt_run(&(struct mt_case){ .name = mode->name,
				  .ranks = ranks,
				  .deadline = 90,
				  .rank = rank,
				  .arg = mode,
				  .judge = rma_judge,
				  .flags = flags });
	munmap(board, sizeof(*board));
}

int main(void)
{
	static const struct rma_mode contentions[] = {
		{ .name = "contention", .to_self = true },
		{ .name = "contention-nocma",
		  .env = { "FI_SHMCMA_CMA=0" },
		  .served = true,
		  .to_self = true },
		{ .name = "contention-automatic", .automatic = true, .to_self = true },
		{ .name = "contention-strict",
		  .env = { "FI_SHMCMA_RMA=strict" },
		  .automatic = true,
		  .served = true,
		  .to_self = true },
	};
	static const struct rma_mode passives[] = {
		{ .name = "passive" },
		{ .name = "passive-automatic", .automatic = true },
		{ .name = "passive-nocma",
		  .env = { "FI_SHMCMA_CMA=0" },
		  .automatic = true,
		  .served = true },
		{ .name = "passive-strict",
		  .env = { "FI_SHMCMA_RMA=strict" },
		  .automatic = true,
		  .served = true },
	};

	mt_init("test_rma_contention");
	for (size_t i = 0; i < sizeof(contentions) / sizeof(contentions[0]); i++)
		run(&contentions[i], contention_rank, RANKS, i ? MT_CASE_SHMCMA : 0);
	for (size_t i = 0; i < sizeof(passives) / sizeof(passives[0]); i++)
		run(&passives[i], passive_rank, 2, i ? MT_CASE_SHMCMA : 0);
	return mt_end();
}
