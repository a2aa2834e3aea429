/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rma_churn: 8 processes put into and get from each other's memory while each of them closes its
 * registrations at random and opens others, of other ranges and rights, over the same memory.
 *
 * A block of memory is registered in part. Opening fills all of it with words of this opening (its
 * generation); a put writes other words of the generation whose key it uses. So when a block is closed,
 * each byte outside the registered range must be of the filling, each byte inside of the filling or of a put
 * with this very key, and each byte that a successful put covered must be of a put. A get must have brought
 * bytes of the generation whose key it used, also when it failed.
 *
 * Operations out of range, of the wrong right, or posted after the close was announced must fail, all others
 * succeed unless their key was being closed meanwhile. Each completes exactly once: mt_op and the last wait
 * see to it. TEST_RMA_SECONDS: how long each case takes, 1; in the full tests 3.
 */
#define _GNU_SOURCE 1
#include "../rounds.h"
#include "rma.h"

#define RANKS 8
#define BLOCKS 4
#define BLOCK ((size_t)64 << 10)
#define IN_FLIGHT 12
#define LOGGED 8 /* the newest successful puts of a rank into a block */

/* An owner's announcement of a block. All fields are of the newest opening when `state` is the same before and
 * after reading them. */
struct notice {
	_Atomic uint64_t state; /* generation * 4 + STATE_* */
	_Atomic uint64_t key, addr, from, to, access;
};
enum { STATE_CHANGING, STATE_OPEN, STATE_CLOSING, STATE_CLOSED };

/* A put that has succeeded; `generation` is written last, and 0 first. */
struct done {
	_Atomic uint64_t generation, from, to;
};

static struct board {
	struct notice notices[RANKS][BLOCKS];
	struct done done[RANKS][BLOCKS][RANKS][LOGGED];
} * board;

enum count { SUCCEEDED, CLOSED_BEFORE, CLOSED_MEANWHILE, OUT_OF_RANGE, NO_RIGHT, OPENED, PROVEN, COUNTS };

static const char *const count_names[COUNTS] = {
	"successful operations",	  "operations with a closed key", "operations closed meanwhile",
	"operations out of range",	  "operations without the right", "openings",
	"successful puts found in place",
};

/* ---- bytes of a generation ------------------------------------------------------------------- */

static uint64_t block_seed(int owner, int block, uint64_t generation, bool put)
{
	return mt_hash(((uint64_t)owner << 8 | (uint64_t)block << 1 | put) << 40 | generation);
}

/* Is every byte of [from, to) of the filling, or, with `puts`, of a put? -1, or the first that is not. */
static ssize_t verify_mixed(const uint8_t *bytes, size_t from, size_t to, int owner, int block,
			    uint64_t generation)
{
	static uint8_t filling[BLOCK], put[BLOCK];

	if (from >= to)
		return -1;
	pattern_fill(filling + from, from, to - from, block_seed(owner, block, generation, false));
	pattern_fill(put + from, from, to - from, block_seed(owner, block, generation, true));
	for (size_t i = from; i < to; i++)
		if (bytes[i - from] != filling[i] && bytes[i - from] != put[i])
			return (ssize_t)i;
	return -1;
}

/* ---- an owner's blocks ----------------------------------------------------------------------- */

struct block {
	int index;
	uint8_t *memory;
	struct fid_mr *mr;
	uint64_t generation;
	size_t from, to;
	uint64_t access;
};

struct member {
	struct mt_ep ep;
	fi_addr_t peers[RANKS];
	struct mt_random random;
	struct block blocks[BLOCKS];
	struct flight *flights;
	uint64_t counts[COUNTS], reported[COUNTS];
	size_t local_pieces, remote_pieces;
};

static void announce(const struct block *block, int state)
{
	atomic_store(&board->notices[mt_rank][block->index].state,
		     block->generation * 4 + (uint64_t)state);
}

static void block_open(struct member *m, struct block *block)
{
	static const uint64_t rights[] = { FI_REMOTE_READ | FI_REMOTE_WRITE,
					   FI_REMOTE_READ | FI_REMOTE_WRITE,
					   FI_REMOTE_READ | FI_REMOTE_WRITE, FI_REMOTE_READ,
					   FI_REMOTE_WRITE };
	struct notice *notice = &board->notices[mt_rank][block->index];
	struct rma_place place;

	block->generation++;
	announce(block, STATE_CHANGING);
	block->from = mt_below(&m->random, BLOCK / 2);
	block->to = block->from + 1 + mt_below(&m->random, BLOCK - block->from);
	block->access = rights[mt_below(&m->random, sizeof(rights) / sizeof(rights[0]))];
	pattern_fill(block->memory, 0, BLOCK, block_seed(mt_rank, block->index, block->generation, false));
	block->mr = rma_register(&m->ep, block->memory + block->from, block->to - block->from,
				 block->access, &place);
	atomic_store(&notice->key, place.key);
	atomic_store(&notice->addr, place.addr);
	atomic_store(&notice->from, block->from);
	atomic_store(&notice->to, block->to);
	atomic_store(&notice->access, block->access);
	announce(block, STATE_OPEN);
	m->counts[OPENED]++;
}

/* The bytes that other ranks say to have put with this key must be there. */
static void check_done(struct member *m, const struct block *block)
{
	uint64_t seed = block_seed(mt_rank, block->index, block->generation, true);

	for (int origin = 0; origin < RANKS; origin++)
		for (int i = 0; i < LOGGED; i++) {
			struct done *done = &board->done[mt_rank][block->index][origin][i];
			uint64_t generation = atomic_load(&done->generation);
			size_t from = atomic_load(&done->from), to = atomic_load(&done->to);

			if (generation != block->generation ||
			    atomic_load(&done->generation) != generation)
				continue;
			mt_require(pattern_differs(block->memory + from, from, to - from, seed) < 0,
				   "block %d, generation %llu: rank %d put bytes %zu to %zu, which are "
				   "not there",
				   block->index, (unsigned long long)generation, origin, from, to);
			m->counts[PROVEN]++;
		}
}

static void block_check(struct member *m, const struct block *block)
{
	uint64_t seed = block_seed(mt_rank, block->index, block->generation, false);
	const uint8_t *memory = block->memory;
	ssize_t bad;

	bad = pattern_differs(memory, 0, block->from, seed);
	mt_require(bad < 0, "block %d: byte %zd was written, registered from %zu", block->index, bad,
		   block->from);
	bad = pattern_differs(memory + block->to, block->to, BLOCK - block->to, seed);
	mt_require(bad < 0, "block %d: byte %zd behind the range was written", block->index, bad);
	if (!(block->access & FI_REMOTE_WRITE)) {
		bad = pattern_differs(memory + block->from, block->from, block->to - block->from, seed);
		mt_require(bad < 0, "block %d: byte %zd of a range for reading was written", block->index,
			   bad);
	}
	bad = verify_mixed(memory + block->from, block->from, block->to, mt_rank, block->index,
			   block->generation);
	mt_require(bad < 0, "block %d: byte %zd is of another generation", block->index, bad);
	check_done(m, block);
}

static void block_close(struct member *m, struct block *block)
{
	announce(block, STATE_CLOSING);
	rma_unregister(&m->ep, block->mr);
	announce(block, STATE_CLOSED);
	block_check(m, block);
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The announcement of a block as the origin saw it when it posted. */
struct view {
	uint64_t state, key, addr;
	size_t from, to;
	uint64_t access;
};

struct flight {
	struct mt_op op;
	bool write, wrong;
	int owner, block;
	struct view view;
	size_t pieces, at[RMA_PIECES],
		len[RMA_PIECES]; /* of the block; one behind the other in `buffer` */
	uint8_t buffer[BLOCK + 8];
	size_t total;
};

static bool look(struct view *view, int owner, int block)
{
	struct notice *notice = &board->notices[owner][block];

	view->state = atomic_load(&notice->state);
	view->key = atomic_load(&notice->key);
	view->addr = atomic_load(&notice->addr);
	view->from = atomic_load(&notice->from);
	view->to = atomic_load(&notice->to);
	view->access = atomic_load(&notice->access);
	return view->state % 4 != STATE_CHANGING && atomic_load(&notice->state) == view->state;
}

/* Pieces of the range, some beyond its end by a little if that is wanted. */
static void choose_pieces(struct member *m, struct flight *f)
{
	size_t range = f->view.to - f->view.from, room = BLOCK;

	f->pieces = 1 + (mt_below(&m->random, 3) ? 0 : mt_below(&m->random, m->remote_pieces));
	f->total = 0;
	for (size_t i = 0; i < f->pieces; i++) {
		size_t most = (size_t)1 << mt_below(&m->random, 17);

		most = most > range ? range : most;
		most = most > room / (f->pieces - i) ? room / (f->pieces - i) : most;
		f->len[i] = mt_below(&m->random, most + 1);
		f->at[i] = f->view.from + mt_below(&m->random, range - f->len[i] + 1);
		room -= f->len[i];
		f->total += f->len[i];
	}
	f->wrong = mt_below(&m->random, 16) == 0 && f->len[f->pieces - 1] > 0;
	if (f->wrong) /* the last byte is the first behind */
		f->at[f->pieces - 1] = f->view.to - f->len[f->pieces - 1] + 1;
}

static void fill_buffer(struct flight *f)
{
	uint64_t seed = block_seed(f->owner, f->block, f->view.state / 4, true);
	uint8_t *at = f->buffer;

	for (size_t i = 0; i < f->pieces; at += f->len[i++])
		pattern_fill(at, f->at[i], f->len[i], seed);
}

static void build_request(struct member *m, struct flight *f, struct rma_request *request)
{
	size_t left = f->total, count = 1 + mt_below(&m->random, m->local_pieces);
	uint8_t *at = f->buffer;

	request->write = f->write;
	request->peer = m->peers[f->owner];
	request->remote_count = f->pieces;
	for (size_t i = 0; i < f->pieces; i++)
		request->remote[i] = (struct fi_rma_iov){ .addr = f->view.addr + (f->at[i] - f->view.from),
							  .len = f->len[i],
							  .key = f->view.key };
	request->local_count = count;
	for (size_t i = 0; i < count; i++) {
		size_t len = i + 1 == count ? left : mt_below(&m->random, left + 1);

		request->local[i] = (struct iovec){ at, len };
		at += len;
		left -= len;
	}
}

/* Posts an operation on a random block; false: the block cannot take one just now. */
static bool flight_start(struct member *m, struct flight *f)
{
	struct rma_request request;
	ssize_t rc;

	f->owner = (int)mt_below(&m->random, RANKS);
	f->block = (int)mt_below(&m->random, BLOCKS);
	f->write = mt_below(&m->random, 2);
	if (!look(&f->view, f->owner, f->block))
		return false;
	/* mostly an open block, now and then a closed one */
	if (f->view.state % 4 != STATE_OPEN && mt_below(&m->random, 8))
		return false;
	choose_pieces(m, f);
	if (f->write)
		fill_buffer(f);
	else
		pattern_fill(f->buffer, 0, f->total, 1);
	build_request(m, f, &request);
	mt_doing("%s of %zu bytes, rank %d, block %d, generation %llu", f->write ? "put" : "get", f->total,
		 f->owner, f->block, (unsigned long long)(f->view.state / 4));
	rc = rma_try(&m->ep, &f->op, &request);
	mt_require(rc == 0 || rc == -FI_EAGAIN, "%s: %s", f->write ? "put" : "get", fi_strerror((int)-rc));
	return rc == 0;
}

static bool has_right(const struct flight *f)
{
	return f->view.access & (f->write ? FI_REMOTE_WRITE : FI_REMOTE_READ);
}

static void check_failed(struct member *m, const struct flight *f, uint64_t now)
{
	int err = f->op.err;

	if (f->view.state % 4 == STATE_CLOSED)
		m->counts[CLOSED_BEFORE]++;
	else if (f->wrong)
		m->counts[OUT_OF_RANGE]++;
	else if (!has_right(f))
		m->counts[NO_RIGHT]++;
	else
		m->counts[CLOSED_MEANWHILE]++;
	if (!mt_is_shmcma())
		return;
	if (f->view.state == now && now % 4 == STATE_OPEN)
		mt_require((f->wrong && err == FI_EINVAL) || (!has_right(f) && err == FI_EACCES),
			   "%s with an open key failed: %s", f->write ? "put" : "get", fi_strerror(err));
	else
		mt_require(err == FI_EKEYREJECTED || (f->wrong && err == FI_EINVAL) ||
				   (!has_right(f) && err == FI_EACCES),
			   "%s with a closed key failed: %s", f->write ? "put" : "get", fi_strerror(err));
}

/* Checks the bytes that a get brought; after a failure a part of the buffer may be unchanged. */
static void check_got(const struct flight *f)
{
	static uint8_t before[BLOCK + 8];
	const uint8_t *at = f->buffer;
	size_t offset = 0;

	pattern_fill(before, 0, f->total, 1);
	for (size_t i = 0; i < f->pieces; at += f->len[i], offset += f->len[i], i++) {
		size_t whole = f->len[i];
		ssize_t bad;

		if (f->wrong && f->op.err && i + 1 == f->pieces)
			whole--; /* the byte behind the range */
		bad = verify_mixed(at, f->at[i], f->at[i] + whole, f->owner, f->block, f->view.state / 4);
		if (bad < 0)
			continue;
		mt_require(f->op.err, "get: byte %zd of the block is of another generation", bad);
		for (size_t k = 0; k < f->len[i]; k++)
			if (at[k] != before[offset + k])
				mt_require(verify_mixed(at + k, f->at[i] + k, f->at[i] + k + 1, f->owner,
							f->block, f->view.state / 4) < 0,
					   "a get that failed brought a byte of another generation");
	}
	if (f->op.err && (f->wrong || f->view.state % 4 == STATE_CLOSED || !has_right(f)) &&
	    f->pieces == 1)
		mt_require(pattern_differs(f->buffer, 0, f->total, 1) < 0,
			   "a get that was not allowed brought something");
}

/* A put that succeeded is told to the owner, one entry after the other. */
static void log_put(const struct flight *f)
{
	static unsigned next[RANKS][BLOCKS];

	for (size_t i = 0; i < f->pieces; i++) {
		struct done *done =
			&board->done[f->owner][f->block][mt_rank][next[f->owner][f->block]++ % LOGGED];

		atomic_store(&done->generation, 0);
		atomic_store(&done->from, f->at[i]);
		atomic_store(&done->to, f->at[i] + f->len[i]);
		atomic_store(&done->generation, f->view.state / 4);
	}
}

static void flight_end(struct member *m, struct flight *f)
{
	uint64_t now = atomic_load(&board->notices[f->owner][f->block].state);

	mt_doing("judging a %s of %zu bytes in %zu pieces, rank %d, block %d, generation %llu",
		 f->write ? "put" : "get", f->total, f->pieces, f->owner, f->block,
		 (unsigned long long)(f->view.state / 4));
	if (f->op.err) {
		check_failed(m, f, now);
	} else {
		mt_require(f->view.state % 4 != STATE_CLOSED, "success with a key closed before");
		mt_require(!f->wrong, "success of %zu bytes, one out of the range", f->total);
		mt_require(!f->total || has_right(f), "success without the right");
		m->counts[SUCCEEDED]++;
		if (f->write)
			log_put(f);
	}
	if (!f->write)
		check_got(f);
	f->op.done = false;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void step(struct member *m)
{
	for (int i = 0; i < IN_FLIGHT; i++) {
		struct flight *f = &m->flights[i];

		if (f->op.done)
			flight_end(m, f);
		if (!f->op.pending)
			flight_start(m, f);
	}
	if (mt_below(&m->random, 6) == 0) {
		struct block *block = &m->blocks[mt_below(&m->random, BLOCKS)];

		mt_doing("closing block %d, generation %llu", block->index,
			 (unsigned long long)block->generation);
		block_close(m, block);
		/* for a while the newest key is a dead one */
		if (mt_below(&m->random, 4) == 0)
			mt_poll_for(&m->ep, 0.001);
		block_open(m, block);
	}
	mt_poll(&m->ep);
}

static void tell_counts(struct member *m)
{
	for (int i = 0; i < COUNTS; i++) {
		atomic_fetch_add(mt_flag(i), m->counts[i] - m->reported[i]);
		m->reported[i] = m->counts[i];
	}
}

/* Each outcome has been seen by some rank, however slow this machine is just now. */
static bool all_were_seen(struct member *m)
{
	bool all = true;

	tell_counts(m);
	for (int i = 0; i < COUNTS; i++)
		all &= !mt_is_shmcma() || atomic_load(mt_flag(i));
	return all;
}

static void finish(struct member *m)
{
	for (int i = 0; i < IN_FLIGHT; i++) {
		struct flight *f = &m->flights[i];

		if (!f->op.pending && !f->op.done)
			continue;
		mt_doing("waiting for the last operations: %s of %zu bytes, rank %d",
			 f->write ? "put" : "get", f->total, f->owner);
		mt_wait_any(&m->ep, &f->op);
		flight_end(m, f);
	}
	mt_doing("finished, waiting for the others");
	mt_barrier(&m->ep);
	for (int i = 0; i < BLOCKS; i++)
		block_close(m, &m->blocks[i]);
	tell_counts(m);
	mt_barrier(&m->ep);
	for (int i = 0; mt_rank == 0 && i < COUNTS; i++)
		fprintf(stderr, "%llu %s\n", (unsigned long long)atomic_load(mt_flag(i)), count_names[i]);
}

static double seconds(void)
{
	const char *text = getenv("TEST_RMA_SECONDS");

	return text && atof(text) > 0 ? atof(text) : rounds_of(3, 1);
}

static void churn_rank(const void *arg)
{
	const struct rma_mode *mode = arg;
	struct member m;
	double end;

	memset(&m, 0, sizeof(m));
	m.random.state = 4242 + (uint64_t)mt_rank * 1000003;
	m.flights = calloc(IN_FLIGHT, sizeof(*m.flights));
	mt_require(m.flights, "no memory");
	rma_open(&m.ep, mode);
	m.local_pieces = rma_pieces_max(&m.ep, false);
	m.remote_pieces = rma_pieces_max(&m.ep, true);
	for (int i = 0; i < BLOCKS; i++) {
		m.blocks[i].index = i;
		m.blocks[i].memory = malloc(BLOCK);
		mt_require(m.blocks[i].memory, "no memory");
		block_open(&m, &m.blocks[i]);
	}
	mt_join(&m.ep, m.peers);
	end = mt_now() + seconds();
	while (mt_now() < end || !all_were_seen(&m))
		step(&m);
	finish(&m);
	mt_close(&m.ep);
	for (int i = 0; i < BLOCKS; i++)
		free(m.blocks[i].memory);
	free(m.flights);
}

int main(void)
{
	static const struct rma_mode modes[] = {
		{ .name = "churn", .to_self = true },
		{ .name = "churn-nocma", .env = { "FI_SHMCMA_CMA=0" }, .served = true, .to_self = true },
		{ .name = "churn-strict",
		  .env = { "FI_SHMCMA_RMA=strict" },
		  .automatic = true,
		  .served = true,
		  .to_self = true },
	};

	mt_init("test_rma_churn");
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		board = rma_shared(sizeof(*board));
		mt_run(&(struct mt_case){ .name = modes[i].name,
					  .ranks = RANKS,
					  .deadline = 60 + 2 * (unsigned)seconds(),
					  .rank = churn_rank,
					  .arg = &modes[i],
					  .judge = rma_judge,
					  .flags = i ? MT_CASE_SHMCMA : 0 });
		munmap(board, sizeof(*board));
	}
	return mt_end();
}
