/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rma_stale: a key outlives its memory. The target registers memory, tells the key, closes the
 * registration, unmaps the memory, maps other memory at the same address and registers that, thousands of
 * times; two peers put, get and (atomically) write all the while with the key that they know, and take the
 * next one only when theirs was refused.
 *
 * Every word in the memory tells its generation: that of the target's filling, or that of the key that a peer
 * wrote with. So at the end of a generation the memory must hold words of that generation only, and a peer
 * must never have read a word of a later one, in operations that fail too. An operation that is posted after the
 * close was announced must be refused, and must have moved nothing.
 */
#define _GNU_SOURCE 1
#include "rma.h"
#include "../rounds.h"

#define PEERS 2
#define RANKS (1 + PEERS)
#define SMALL ((size_t)32 << 10)
#define LARGE ((size_t)16 << 20) /* not copied in one go: the close comes in between */
#define SLOTS 16		 /* generations whose keys can be looked up */
#define BEHIND_MAX 8		 /* a peer is no more generations behind */
#define LESS (MT_SANITIZED ? 4 : (int)rounds_of(1, 4))

struct params {
	struct rma_mode mode;
	size_t size;
	unsigned tries;
};

static size_t size, words; /* of the memory */

/* Flags: the newest generation, the newest that is being closed, and is closed; places; how far a peer is. */
#define FLAG_OPEN 0
#define FLAG_CLOSING 1
#define FLAG_CLOSED 2
#define FLAG_END 3
#define FLAG_KEY(generation) (16 + (int)((generation) % SLOTS))
#define FLAG_ADDR 14
#define FLAG_TRIED(peer) (32 + (peer)) /* generation with which it has been successful or refused */
#define FLAG_COUNT(kind) (48 + (int)(kind))

enum count { MOVED, REFUSED, RACED, COUNTS };

static const char *const count_names[COUNTS] = {
	[MOVED] = "operations with a good key",
	[REFUSED] = "operations with a key known to be closed",
	[RACED] = "operations refused that were posted with a good key",
};

/* A word of generation g: 16 bits of check, 8 of the writer's rank, 40 of g. Rank 0 is the target, which fills. */
static uint64_t word(uint64_t generation, unsigned who)
{
	uint64_t low = generation << 8 | who;

	return mt_hash(low) << 48 | low;
}

/*
 * Does the word have bytes of several words of that generation? Concurrent writes and reads need not move whole words.
 */
static bool is_mixed(uint64_t value, uint64_t generation)
{
	for (unsigned at = 0; at < 64; at += 8) {
		unsigned who = 0;

		while (who <= PEERS && ((value ^ word(generation, who)) >> at & 0xff))
			who++;
		if (who > PEERS)
			return false;
	}
	return true;
}

static bool is_word(uint64_t value, uint64_t generation)
{
	unsigned who = value & 0xff;

	return (who <= PEERS && value == word(generation, who)) || is_mixed(value, generation);
}

/* ---- the target ------------------------------------------------------------------------------ */

static void fill(uint64_t *memory, uint64_t generation)
{
	for (size_t i = 0; i < words; i++)
		memory[i] = word(generation, 0);
}

static void check(const uint64_t *memory, uint64_t generation)
{
	for (size_t i = 0; i < words; i++)
		mt_require(is_word(memory[i], generation),
			   "generation %llu: word %zu is %#llx, of generation %llu",
			   (unsigned long long)generation, i, (unsigned long long)memory[i],
			   (unsigned long long)(memory[i] << 16 >> 24));
}

static void *map_at(void *where)
{
	void *memory = mmap(where, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	mt_require(memory != MAP_FAILED && (!where || memory == where), "the address is taken");
	return memory;
}

/* Wait until the peers work with this generation, or only one of them, or not at all. */
static void let_them_try(struct mt_ep *ep, uint64_t generation, struct mt_random *random)
{
	unsigned waits = (unsigned)mt_below(random, 4);

	for (int peer = 1; peer <= PEERS; peer++)
		if (waits >> (peer - 1) & 1 || generation % BEHIND_MAX == 0)
			mt_flag_wait(ep, FLAG_TRIED(peer), generation);
	for (uint64_t spins = mt_below(random, 2000); spins; spins--)
		atomic_signal_fence(memory_order_seq_cst);
	mt_progress(ep);
}

static void target(struct mt_ep *ep, const struct params *params)
{
	struct mt_random random = { 77 };
	struct rma_place place;
	uint64_t *memory = map_at(NULL), last_key = 0;
	struct fid_mr *mr;

	for (uint64_t generation = 1; generation <= params->tries; generation++) {
		mt_doing("generation %llu", (unsigned long long)generation);
		fill(memory, generation);
		mr = rma_register(ep, memory, size, FI_REMOTE_READ | FI_REMOTE_WRITE, &place);
		mt_require(generation == 1 || place.key != last_key, "the new key is the old one");
		last_key = place.key;
		atomic_store(mt_flag(FLAG_KEY(generation)), place.key);
		atomic_store(mt_flag(FLAG_ADDR), place.addr);
		atomic_store(mt_flag(FLAG_OPEN), generation);
		let_them_try(ep, generation, &random);
		atomic_store(mt_flag(FLAG_CLOSING), generation);
		rma_unregister(ep, mr);
		atomic_store(mt_flag(FLAG_CLOSED), generation);
		check(memory, generation);
		mt_require(munmap(memory, size) == 0, "munmap");
		map_at(memory);
	}
	atomic_store(mt_flag(FLAG_END), 1);
}

/* ---- a peer ---------------------------------------------------------------------------------- */

struct peer {
	struct mt_ep *ep;
	fi_addr_t target;
	struct mt_random random;
	uint64_t *buffer;
	uint64_t counts[COUNTS];
};

/* After a get the buffer has words of this generation; after one that failed it may have old words, too. */
static void check_got(const struct peer *peer, size_t count, uint64_t generation, bool moved)
{
	for (size_t i = 0; i < count; i++)
		mt_require(is_word(peer->buffer[i], generation) || (!moved && peer->buffer[i] == ~0ULL),
			   "got word %zu of %zu, %#llx, with the key of generation %llu", i, count,
			   (unsigned long long)peer->buffer[i], (unsigned long long)generation);
}

static void check_untouched(const struct peer *peer, size_t count)
{
	for (size_t i = 0; i < count; i++)
		mt_require(peer->buffer[i] == ~0ULL, "word %zu of %zu was read with a dead key", i, count);
}

static void post(struct peer *peer, struct mt_op *op, uint64_t generation, unsigned kind, size_t count)
{
	struct rma_place place = { atomic_load(mt_flag(FLAG_KEY(generation))),
				   atomic_load(mt_flag(FLAG_ADDR)) };
	size_t at = mt_below(&peer->random, words - count + 1) * 8;

	for (size_t i = 0; i < count; i++)
		peer->buffer[i] = kind == 0 ? ~0ULL : word(generation, (unsigned)mt_rank);
	if (kind < 2)
		rma_move(peer->ep, op, kind == 1, peer->buffer, count * 8, peer->target, &place, at);
	else
		rma_atomic(peer->ep, op, FI_ATOMIC_WRITE, peer->buffer, NULL, peer->target, &place, at);
}

/* Words of an operation: any number, of large memory half of the time nearly all of it. */
static size_t choose_count(struct peer *peer)
{
	size_t bits = (size_t)(64 - __builtin_clzll(words));

	if (size == LARGE && mt_below(&peer->random, 2))
		return words - mt_below(&peer->random, words / 4);
	return 1 + mt_below(&peer->random, 1ULL << mt_below(&peer->random, bits));
}

/* One operation with the key of this generation; false: it was refused. */
static bool one(struct peer *peer, uint64_t generation)
{
	unsigned kind = (unsigned)mt_below(&peer->random, 9) / 4; /* get, put, now and then an atomic */
	size_t count = kind == 2 ? 1 : choose_count(peer);
	bool dead = atomic_load(mt_flag(FLAG_CLOSED)) >= generation;
	struct mt_op op = { 0 };

	post(peer, &op, generation, kind, count);
	mt_wait_any(peer->ep, &op);
	if (op.err == 0) {
		mt_require(!dead, "kind %u of %zu words with a dead key: success", kind, count);
		peer->counts[MOVED]++;
	} else {
		mt_require(!mt_is_shmcma() || op.err == FI_EKEYREJECTED, "refused with %s",
			   fi_strerror(op.err));
		mt_require(atomic_load(mt_flag(FLAG_CLOSING)) >= generation,
			   "refused while it was open: %s", fi_strerror(op.err));
		peer->counts[dead ? REFUSED : RACED]++;
	}
	if (kind == 0 && dead)
		check_untouched(peer, count);
	else if (kind == 0)
		check_got(peer, count, generation, op.err == 0);
	return op.err == 0;
}

static void peer_run(struct mt_ep *ep, fi_addr_t target_addr)
{
	struct peer peer = { .ep = ep, .target = target_addr, .random = { 1000 + (uint64_t)mt_rank } };
	uint64_t generation;

	peer.buffer = malloc(size);
	mt_require(peer.buffer, "no memory");
	mt_flag_wait(ep, FLAG_OPEN, 1);
	while (!atomic_load(mt_flag(FLAG_END))) {
		generation = atomic_load(mt_flag(FLAG_OPEN));
		mt_doing("trying generation %llu", (unsigned long long)generation);
		while (one(&peer, generation)) {
			/* the target waits for each peer's tries: this one tells of them now and then */
			if (mt_below(&peer.random, 4) == 0)
				atomic_store(mt_flag(FLAG_TRIED(mt_rank)), generation);
		}
		/* now it is known to be dead, or about to be: some more of the same */
		while (mt_below(&peer.random, 3) && !one(&peer, generation))
			;
		atomic_store(mt_flag(FLAG_TRIED(mt_rank)), generation);
	}
	for (int i = 0; i < COUNTS; i++)
		atomic_fetch_add(mt_flag(FLAG_COUNT(i)), peer.counts[i]);
	free(peer.buffer);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void stale_rank(const void *arg)
{
	const struct params *params = arg;
	fi_addr_t peers[RANKS];
	struct mt_ep ep;

	size = params->size;
	words = size / 8;
	rma_open(&ep, &params->mode);
	mt_join(&ep, peers);
	if (mt_rank == 0)
		target(&ep, params);
	else
		peer_run(&ep, peers[0]);
	mt_barrier(&ep);
	for (int i = 0; mt_rank == 0 && i < COUNTS; i++) {
		unsigned long long count = atomic_load(mt_flag(FLAG_COUNT(i)));

		fprintf(stderr, "%llu %s\n", count, count_names[i]);
		/* how often a close meets an operation is up to the machine */
		mt_require(count >= (i == RACED ? params->tries / 10000 : params->tries / 100),
			   "only %llu %s", count, count_names[i]);
	}
	mt_close(&ep);
}

int main(void)
{
	const struct params modes[] = {
		{ { .name = "stale" }, SMALL, 10000 / LESS },
		{ { .name = "stale-large" }, LARGE, MT_SANITIZED ? 25 : rounds_of(100, 12) },
		{ { .name = "stale-nocma", .env = { "FI_SHMCMA_CMA=0" }, .served = true },
		  SMALL,
		  2000 / LESS },
		{ { .name = "stale-strict",
		    .env = { "FI_SHMCMA_RMA=strict" },
		    .automatic = true,
		    .served = true },
		  SMALL,
		  2000 / LESS },
	};

	mt_init("test_rma_stale");
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		mt_run(&(struct mt_case){ .name = modes[i].mode.name,
					  .ranks = RANKS,
					  .deadline = 90,
					  .rank = stale_rank,
					  .arg = &modes[i],
					  .judge = rma_judge,
					  .flags = i ? MT_CASE_SHMCMA : 0 });
	return mt_end();
}
