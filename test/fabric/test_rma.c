/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rma: fi_rma(3): every call, what it completes with, and the bytes on both sides. Scenarios (onesided.h)
 * run to oneself, to another endpoint of the process, and to another process: directly, without CMA and with a
 * target that serves its peers itself.
 */
#include "onesided.h"
#include "../rounds.h"

#include <limits.h>
#include <sys/resource.h>
#include <rdma/fi_eq.h>

#define READ (FI_RMA | FI_READ)
#define WRITTEN (FI_RMA | FI_WRITE)

/* ---- checks ---------------------------------------------------------------------------------- */

static void expect_done(struct stage *stage, void *context, uint64_t flags)
{
	struct done done = pair_done(stage->pair, stage->side);

	must(done.entry.op_context == context);
	gives(done.entry.flags, flags);
}

/* The target's bytes are the pattern in [from, from + len) and as they were just next to it. */
static void clear_target(struct stage *stage, size_t from, size_t len)
{
	size_t before = from < GUARD ? from : GUARD;
	size_t behind = STAGE_LEN - from - len < GUARD ? STAGE_LEN - from - len : GUARD;

	memset(stage->seen + from - before, 0xee, before + len + behind);
}

static bool target_is(struct stage *stage, size_t from, size_t len, unsigned int seed)
{
	for (size_t i = 1; i <= GUARD; i++) {
		if (from >= i && stage->seen[from - i] != 0xee)
			return false;
		if (from + len + i <= STAGE_LEN && stage->seen[from + len + i - 1] != 0xee)
			return false;
	}
	return pattern_is(stage->seen + from, 0, len, seed);
}

static uint64_t at(const struct stage *stage, size_t offset)
{
	return stage->target.addr + offset;
}

static ssize_t put(struct stage *stage, const void *buf, size_t len, size_t offset, void *context)
{
	return fi_write(stage->side->ep, buf, len, NULL, stage->peer, at(stage, offset), stage->target.key,
			context);
}

static ssize_t get(struct stage *stage, void *buf, size_t len, size_t offset, void *context)
{
	return fi_read(stage->side->ep, buf, len, NULL, stage->peer, at(stage, offset), stage->target.key,
		       context);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Both ways, at both ends of what is registered and in the middle. */
static void check_size(struct stage *stage, size_t len)
{
	const size_t places[] = { 0, 4096 - 3, STAGE_LEN - len };
	uint8_t *buf = guarded_alloc(len);

	for (int i = 0; i < 3; i++) {
		unsigned int seed = (unsigned int)(len + i);

		clear_target(stage, places[i], len);
		pattern_fill(buf, 0, len, seed);
		post(stage->pair, put(stage, buf, len, places[i], stage));
		expect_done(stage, stage, WRITTEN);
		must(target_is(stage, places[i], len, seed));
		must(pattern_is(buf, 0, len, seed));

		pattern_fill(stage->seen + places[i], 0, len, seed + 1);
		memset(buf, 0xcc, len);
		post(stage->pair, get(stage, buf, len, places[i], buf));
		expect_done(stage, buf, READ);
		must(pattern_is(buf, 0, len, seed + 1));
		must(guarded_intact(buf, len));
	}
	guarded_free(buf);
}

static void test_sizes(struct stage *stage)
{
	for (size_t i = 0; i < PAIR_SIZES && pair_sizes[i] <= STAGE_LEN - 4096; i++)
		check_size(stage, pair_sizes[i]);
}

/* ---- every call ------------------------------------------------------------------------------ */

static void test_calls(struct stage *stage)
{
	enum { LEN = 3000, HALF = LEN / 2 };
	uint8_t *buf = guarded_alloc(LEN);
	struct iovec iov[2] = { { buf, HALF }, { buf + HALF, HALF } };
	void *descs[2] = { NULL, NULL };
	struct side *side = stage->side;
	uint64_t key = stage->target.key;
	struct access access = { .iov = { iov[0], iov[1] },
				 .iov_count = 2,
				 .remote = { { at(stage, 100), LEN, key } },
				 .remote_count = 1,
				 .peer = stage->peer,
				 .context = &access };

	pattern_fill(buf, 0, LEN, 1);
	clear_target(stage, 100, LEN);
	post(stage->pair, fi_writev(side->ep, iov, descs, 2, stage->peer, at(stage, 100), key, iov));
	expect_done(stage, iov, WRITTEN);
	must(target_is(stage, 100, LEN, 1));

	memset(buf, 0, LEN);
	post(stage->pair, fi_readv(side->ep, iov, descs, 2, stage->peer, at(stage, 100), key, descs));
	expect_done(stage, descs, READ);
	must(pattern_is(buf, 0, LEN, 1));

	pattern_fill(buf, 0, LEN, 2);
	clear_target(stage, 100, LEN);
	post(stage->pair, access_post(side, &access, true, 0));
	expect_done(stage, &access, WRITTEN);
	must(target_is(stage, 100, LEN, 2));
	memset(buf, 0, LEN);
	post(stage->pair, access_post(side, &access, false, 0));
	expect_done(stage, &access, READ);
	must(pattern_is(buf, 0, LEN, 2));

	/* no descriptors, which nobody needs, and an empty vector */
	post(stage->pair, fi_writev(side->ep, iov, NULL, 2, stage->peer, at(stage, 100), key, iov));
	expect_done(stage, iov, WRITTEN);
	post(stage->pair, fi_readv(side->ep, NULL, NULL, 0, stage->peer, at(stage, 100), key, iov));
	expect_done(stage, iov, READ);

	pattern_fill(buf, 0, LEN, 3);
	clear_target(stage, 100, LEN);
	post(stage->pair, fi_inject_write(side->ep, buf, LEN, stage->peer, at(stage, 100), key));
	memset(buf, 0, LEN); /* the caller's again */
	/* no completion of its own: what is behind it tells that it is over */
	post(stage->pair, get(stage, buf, LEN, 100, &access));
	expect_done(stage, &access, READ);
	must(pattern_is(buf, 0, LEN, 3));
	must(target_is(stage, 100, LEN, 3));
	must(guarded_intact(buf, LEN));
	guarded_free(buf);
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* `pieces` of uneven lengths that are `len` bytes together, with gaps between them. */
static size_t cut(size_t len, int pieces, size_t lens[16], size_t starts[16])
{
	size_t left = len, start = 0;

	for (int i = 0; i < pieces; i++) {
		size_t part = i + 1 == pieces ? left : left * (size_t)(i % 3) / 4;

		lens[i] = part;
		starts[i] = start;
		start += part + 1 + (size_t)(i * 37 % 300);
		left -= part;
	}
	return start;
}

static void check_vectors(struct stage *stage, size_t len, int locals, int remotes)
{
	size_t local_lens[16], local_starts[16], remote_lens[16], remote_starts[16];
	size_t room = cut(len, locals, local_lens, local_starts);
	struct access access = { .iov_count = (size_t)locals,
				 .remote_count = (size_t)remotes,
				 .peer = stage->peer,
				 .context = &access };
	uint8_t *buf = guarded_alloc(room);
	size_t done = 0;

	must(cut(len, remotes, remote_lens, remote_starts) <= STAGE_LEN);
	for (int i = 0; i < locals; i++)
		access.iov[i] = (struct iovec){ buf + local_starts[i], local_lens[i] };
	/* the other way round than local ones, so that no two sides have the same gaps */
	for (int i = 0; i < remotes; i++)
		access.remote[i] =
			(struct fi_rma_iov){ at(stage, STAGE_LEN - remote_starts[i] - remote_lens[i]),
					     remote_lens[i], stage->target.key };
	memset(stage->seen, 0xee, STAGE_LEN);
	for (int i = 0; i < locals; done += local_lens[i++])
		pattern_fill(access.iov[i].iov_base, done, local_lens[i], 5);
	post(stage->pair, access_post(stage->side, &access, true, 0));
	expect_done(stage, &access, WRITTEN);
	done = 0;
	for (int i = 0; i < remotes; done += remote_lens[i++]) {
		uint8_t *piece = stage->seen + STAGE_LEN - remote_starts[i] - remote_lens[i];

		must(pattern_is(piece, done, remote_lens[i], 5));
		must(piece == stage->seen || piece[-1] == 0xee); /* the gap */
		pattern_fill(piece, done, remote_lens[i], 6);
	}
	memset(buf, 0xee, room);
	post(stage->pair, access_post(stage->side, &access, false, 0));
	expect_done(stage, &access, READ);
	done = 0;
	for (int i = 0; i < locals; done += local_lens[i++]) {
		must(pattern_is(access.iov[i].iov_base, done, local_lens[i], 6));
		must(i + 1 == locals || buf[local_starts[i] + local_lens[i]] == 0xee);
	}
	must(guarded_intact(buf, room));
	guarded_free(buf);
}

static void test_vectors(struct stage *stage)
{
	static const size_t lens[] = { 0, 1, 64, 1000, 5000, 70000, 1 << 20 };

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		check_vectors(stage, lens[i], 1, 8);
		check_vectors(stage, lens[i], 8, 1);
		check_vectors(stage, lens[i], 8, 8);
		check_vectors(stage, lens[i], 3, 5);
	}
}

/* Vectors that are too long, that do not agree, or that are empty. */
static void test_arguments(struct stage *stage)
{
	uint8_t buf[64] = { 0 };
	struct side *side = stage->side;
	uint64_t key = stage->target.key;
	struct iovec iov[16];
	struct access good = { .iov = { { buf, 64 } },
			       .iov_count = 1,
			       .remote = { { at(stage, 0), 64, key } },
			       .remote_count = 1,
			       .peer = stage->peer };
	struct access bad;

	for (int i = 0; i < 16; i++)
		iov[i] = (struct iovec){ buf, 1 };
	gives(fi_writev(side->ep, iov, NULL, 9, stage->peer, at(stage, 0), key, NULL), -FI_EINVAL);
	gives(fi_readv(side->ep, iov, NULL, 9, stage->peer, at(stage, 0), key, NULL), -FI_EINVAL);
	gives(fi_writev(side->ep, NULL, NULL, 1, stage->peer, at(stage, 0), key, NULL), -FI_EINVAL);
	for (int write = 0; write < 2; write++) {
		bad = good;
		bad.iov_count = 9;
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		bad = good;
		bad.iov[0].iov_base = NULL;
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		bad = good;
		bad.remote_count = 9;
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		bad.remote_count = 0;
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		bad = good;
		bad.remote[0].len = 63;
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		bad.remote[0].len = 65;
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		/* lengths whose sum is no length */
		bad.remote_count = 2;
		bad.remote[0].len = SIZE_MAX;
		bad.remote[1] = (struct fi_rma_iov){ at(stage, 0), 65, key };
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		bad = good;
		bad.iov_count = 2;
		bad.iov[0].iov_len = SIZE_MAX;
		bad.iov[1] = (struct iovec){ buf, 65 };
		gives(access_post(side, &bad, write, 0), -FI_EINVAL);
		for (int bit = 0; bit < 64; bit++) {
			uint64_t flag = 1ULL << bit;
			uint64_t legal = FI_COMPLETION | FI_MORE | FI_FENCE | FI_INJECT_COMPLETE |
					 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;

			if (write)
				legal |= FI_INJECT | FI_REMOTE_CQ_DATA;
			if (!(flag & (legal | FI_TRIGGER)))
				gives(access_post(side, &good, write, flag), -FI_EBADFLAGS);
		}
	}
	gives(fi_write(side->ep, NULL, 64, NULL, stage->peer, at(stage, 0), key, NULL), -FI_EINVAL);
	gives(fi_inject_write(side->ep, NULL, 64, stage->peer, at(stage, 0), key), -FI_EINVAL);
	gives(fi_read(side->ep, NULL, 64, NULL, stage->peer, at(stage, 0), key, NULL), -FI_EINVAL);
	iov[1] = (struct iovec){ NULL, 1 };
	gives(fi_writev(side->ep, iov, NULL, 2, stage->peer, at(stage, 0), key, NULL), -FI_EINVAL);
	gives(fi_readv(side->ep, iov, NULL, 2, stage->peer, at(stage, 0), key, NULL), -FI_EINVAL);
	gives(fi_write(side->ep, buf, 64, NULL, FI_ADDR_UNSPEC, at(stage, 0), key, NULL), -FI_EINVAL);
	gives(fi_read(side->ep, buf, 64, NULL, 12345, at(stage, 0), key, NULL), -FI_EINVAL);
	gives(fi_inject_write(side->ep, buf, 4097, stage->peer, at(stage, 0), key), -FI_EMSGSIZE);
	pair_quiet(stage->pair, side);
}

/* ---- flags ----------------------------------------------------------------------------------- */

static void test_flags(struct stage *stage)
{
	static const uint64_t levels[] = { FI_COMPLETION,	 FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
					   FI_DELIVERY_COMPLETE, FI_FENCE,	     FI_MORE };
	static const size_t lens[] = { 0, 8, 500, 4096, 100000 };
	uint8_t *buf = guarded_alloc(100000);

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (size_t j = 0; j < sizeof(levels) / sizeof(levels[0]); j++) {
			struct access access = { .iov = { { buf, lens[i] } },
						 .iov_count = 1,
						 .remote = { { at(stage, 99), lens[i],
							       stage->target.key } },
						 .remote_count = 1,
						 .peer = stage->peer,
						 .context = &access };

			pattern_fill(buf, 0, lens[i], (unsigned int)j);
			clear_target(stage, 99, lens[i]);
			post(stage->pair, access_post(stage->side, &access, true, levels[j]));
			expect_done(stage, &access, WRITTEN);
			must(target_is(stage, 99, lens[i], (unsigned int)j));
			post(stage->pair, access_post(stage->side, &access, false, levels[j]));
			expect_done(stage, &access, READ);
			if (lens[i] > 4096)
				continue;
			/* with a completion, and the buffer is the caller's at once */
			post(stage->pair, access_post(stage->side, &access, true, FI_INJECT | levels[j]));
			memset(buf, 0xaa, lens[i]);
			expect_done(stage, &access, WRITTEN);
			must(target_is(stage, 99, lens[i], (unsigned int)j));
		}
	guarded_free(buf);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Sizes that go different ways are mixed, and none overtakes another. */
static size_t order_len(int i)
{
	static const size_t lens[] = { 70000, 8, 3000, 40000, 500, 100000, 1, 9000 };

	return lens[i % 8];
}

/* Writes of one place: the last one stays, and a read behind them sees it. */
static void test_order(struct stage *stage)
{
	enum { ROUNDS = 30, MOST = 100000 };
	uint8_t *bufs[8], *back = guarded_alloc(MOST);

	for (int i = 0; i < 8; i++)
		bufs[i] = guarded_alloc(MOST);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 8; i++) {
			memset(bufs[i], round + i, order_len(i));
			post(stage->pair, put(stage, bufs[i], order_len(i), 0, bufs[i]));
		}
		post(stage->pair, get(stage, back, MOST, 0, back));
		/* a write behind a read is not seen by it */
		post(stage->pair, fi_inject_write(stage->side->ep, "x", 1, stage->peer,
						  at(stage, MOST - 1), stage->target.key));
		for (int i = 0; i < 9; i++)
			pair_done(stage->pair, stage->side);
		/* in each byte the last write that is long enough; so in all from there to its end */
		for (size_t from = 0; from < MOST;) {
			int last = 7;

			while (order_len(last) <= from)
				last--;
			must(bytes_are(back + from, order_len(last) - from, (uint8_t)(round + last)));
			from = order_len(last);
		}
	}
	for (int i = 0; i < 8; i++)
		guarded_free(bufs[i]);
	guarded_free(back);
}

/* A slow read does not see the writes that are posted behind it. */
static void test_write_behind_read(struct stage *stage)
{
	uint8_t *back = guarded_alloc(STAGE_LEN);

	for (unsigned int i = 0; i < 10; i++) {
		pattern_fill(stage->seen, 0, STAGE_LEN, i);
		post(stage->pair, get(stage, back, STAGE_LEN, 0, back));
		post(stage->pair, fi_inject_write(stage->side->ep, i % 2 ? "xyz" : "abc", 3, stage->peer,
						  at(stage, STAGE_LEN - 3), stage->target.key));
		expect_done(stage, back, READ);
		must(pattern_is(back, 0, STAGE_LEN, i));
		/* and what comes behind that sees it */
		post(stage->pair, get(stage, back, 3, STAGE_LEN - 3, stage));
		expect_done(stage, stage, READ);
		must(!memcmp(back, i % 2 ? "xyz" : "abc", 3));
	}
	must(guarded_intact(back, STAGE_LEN));
	guarded_free(back);
}

/* Many under way at once, in both directions, each on memory of its own. */
static void test_many(struct stage *stage)
{
	/* no more than the queue has room for: what posts does not read it, and all may be done by then */
	enum { OPS = 500, LEN = 3000 };
	uint8_t *out = guarded_alloc(OPS * LEN), *in = guarded_alloc(OPS * LEN);
	int done = 0;

	pattern_fill(out, 0, OPS * LEN, 7);
	for (int i = 0; i < OPS; i++) {
		post(stage->pair, put(stage, out + i * LEN, LEN, (size_t)i * LEN, NULL));
		post(stage->pair, get(stage, in + i * LEN, LEN, (size_t)i * LEN, NULL));
		if (i % 3 == 0)
			done += fi_cq_read(stage->side->cq, &(struct fi_cq_tagged_entry){ 0 }, 1) == 1;
	}
	for (; done < 2 * OPS; done++)
		pair_done(stage->pair, stage->side);
	must(pattern_is(in, 0, OPS * LEN, 7));
	must(pattern_is(stage->seen, 0, OPS * LEN, 7));
	guarded_free(out);
	guarded_free(in);
}

/* A fenced write follows all operations that were posted before it, messages too. */
static void test_fence(struct stage *stage)
{
	static uint8_t large[300000], flag = 1;
	struct access access = { .iov = { { &flag, 1 } },
				 .iov_count = 1,
				 .remote = { { at(stage, STAGE_LEN - 1), 1, stage->target.key } },
				 .remote_count = 1,
				 .peer = stage->peer,
				 .context = &flag };

	for (int i = 0; i < 20; i++) {
		pattern_fill(large, 0, sizeof(large), (unsigned int)i);
		stage->seen[STAGE_LEN - 1] = 0;
		post(stage->pair, put(stage, large, sizeof(large), 0, large));
		post(stage->pair, access_post(stage->side, &access, true, FI_FENCE));
		expect_done(stage, large, WRITTEN);
		must(pattern_is(stage->seen, 0, sizeof(large), (unsigned int)i));
		expect_done(stage, &flag, WRITTEN);
		gives(stage->seen[STAGE_LEN - 1], 1);
	}
}

/* ---- the target's side ----------------------------------------------------------------------- */

#define DATA 0x1122334455667788

static void expect_written(struct pair *pair, struct side *target, uint64_t data, size_t len)
{
	struct done done = pair_done(pair, target);

	gives(done.entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
	must(done.entry.data == data);
	gives(done.entry.len, len);
}

static const size_t data_lens[] = { 0, 1, 8, 64, 700, 4096, 5000, 65536, 1 << 20 };
#define DATA_LENS (sizeof(data_lens) / sizeof(data_lens[0]))

/*
 * The target has looked at its memory before it is written to again. The thread sanitizer knows nothing of the other
 * process, but of the lock that is taken here and by a thread that serves it.
 */
static void in_step(struct pair *pair)
{
	if (pair->link < 0)
		return;
	pair_progress(pair);
	pair_meet(pair);
}

static void write_with_data(struct pair *pair, struct side *side, const struct remote *remote)
{
	static uint8_t buf[1 << 20];

	for (size_t i = 0; i < DATA_LENS; i++) {
		size_t len = data_lens[i];
		struct access access = { .iov = { { buf, len } },
					 .iov_count = 1,
					 .remote = { { remote->addr, len, remote->key } },
					 .remote_count = 1,
					 .peer = side->peer,
					 .data = DATA + i + 200 };

		pattern_fill(buf, 0, len, (unsigned int)i);
		post(pair, fi_writedata(side->ep, buf, len, NULL, DATA + i, side->peer, remote->addr,
					remote->key, &access));
		must(pair_done(pair, side).entry.op_context == &access);
		in_step(pair);
		if (len <= 4096)
			post(pair, fi_inject_writedata(side->ep, buf, len, DATA + i + 100, side->peer,
						       remote->addr, remote->key));
		post(pair, access_post(side, &access, true, FI_REMOTE_CQ_DATA));
		gives(pair_done(pair, side).entry.flags, WRITTEN);
		in_step(pair);
	}
}

/* The bytes are there when the data is; alone, all has been written before anything is looked at. */
static void read_data(struct pair *pair, struct side *target, const uint8_t *memory)
{
	for (size_t i = 0; i < DATA_LENS; i++) {
		size_t len = data_lens[i];

		expect_written(pair, target, DATA + i, len);
		must(pattern_is(memory, 0, len, (unsigned int)i) || (pair->link < 0 && i + 1 < DATA_LENS));
		in_step(pair);
		if (len <= 4096)
			expect_written(pair, target, DATA + i + 100, len);
		expect_written(pair, target, DATA + i + 200, len);
		must(pattern_is(memory, 0, len, (unsigned int)i) || (pair->link < 0 && i + 1 < DATA_LENS));
		in_step(pair);
	}
}

static void remote_data_alone(void)
{
	static uint8_t memory[1 << 20];
	struct region region;
	struct pair pair;

	pair_open(&pair, &onesided_usual);
	region_open(&pair, &region, memory, sizeof(memory), FI_REMOTE_WRITE);
	write_with_data(&pair, &pair.a, &region.remote);
	read_data(&pair, &pair.b, memory);
	pair_quiet(&pair, &pair.a);
	pair_quiet(&pair, &pair.b);
	region_close(&region);
	pair_close(&pair);
}

static void remote_data_write(struct pair *pair)
{
	struct remote remote = region_exchange(pair, NULL);

	write_with_data(pair, &pair->a, &remote);
	pair_meet(pair);
	pair_quiet(pair, &pair->a);
}

static void remote_data_read(struct pair *pair)
{
	static uint8_t memory[1 << 20];
	struct region region;

	region_open(pair, &region, memory, sizeof(memory), FI_REMOTE_WRITE);
	region_exchange(pair, &region);
	read_data(pair, &pair->a, memory);
	pair_meet(pair);
	pair_quiet(pair, &pair->a);
	region_close(&region);
}

/* Remote data has a source, as messages have. */
static void remote_data_source(void)
{
	uint8_t memory[8];
	struct region region;
	struct done done;
	struct pair pair;

	pair_open(&pair, &onesided_usual);
	region_open(&pair, &region, memory, sizeof(memory), FI_REMOTE_WRITE);
	post(&pair, fi_inject_writedata(pair.a.ep, "abc", 3, 7, pair.a.peer, region.remote.addr,
					region.remote.key));
	done = pair_done(&pair, &pair.b);
	gives(done.entry.data, 7);
	gives(done.source, pair.b.peer);
	region_close(&region);
	pair_close(&pair);
}

/* Counters of the endpoint and of the memory count each access once; other memory is counted by the former. */
static void count_accesses(void)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	static uint8_t memory[100000], buf[100000];
	static const size_t lens[] = { 0, 8, 3000, 100000 };
	struct region counted, other;
	struct fid_cntr *of_mr, *reads, *writes;
	struct pair pair;
	size_t len = sizeof(pair.b.name);
	uint64_t ops = 0;

	pair_open(&pair, &onesided_usual);
	side_close(&pair.b);
	gives(fi_cntr_open(pair.domain, &attr, &of_mr, NULL), 0);
	gives(fi_cntr_open(pair.domain, &attr, &reads, NULL), 0);
	gives(fi_cntr_open(pair.domain, &attr, &writes, NULL), 0);
	pair.b.av = pair_open_av(&pair);
	pair.b.cq = pair_open_cq(&pair);
	pair.b.ep = pair_open_ep(&pair);
	pair_bind(pair.b.ep, pair.b.cq, pair.b.av);
	gives(fi_ep_bind(pair.b.ep, &reads->fid, FI_REMOTE_READ), 0);
	gives(fi_ep_bind(pair.b.ep, &writes->fid, FI_REMOTE_WRITE), 0);
	gives(fi_enable(pair.b.ep), 0);
	gives(fi_getname(&pair.b.ep->fid, pair.b.name, &len), 0);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	region_open(&pair, &counted, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_open(&pair, &other, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE);
	gives(fi_mr_bind(counted.mr, &of_mr->fid, FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		const struct region *regions[] = { &counted, &other };

		for (int j = 0; j < 2; j++) {
			const struct remote *remote = &regions[j]->remote;

			post(&pair, fi_write(pair.a.ep, buf, lens[i], NULL, pair.a.peer, remote->addr,
					     remote->key, NULL));
			post(&pair, fi_read(pair.a.ep, buf, lens[i], NULL, pair.a.peer, remote->addr,
					    remote->key, NULL));
			pair_done(&pair, &pair.a);
			pair_done(&pair, &pair.a);
		}
		ops += 2;
		while (fi_cntr_read(reads) < ops || fi_cntr_read(writes) < ops ||
		       fi_cntr_read(of_mr) < ops)
			pair_progress(&pair);
	}
	pair_quiet(&pair, &pair.b);
	gives(fi_cntr_read(reads), ops);
	gives(fi_cntr_read(writes), ops);
	gives(fi_cntr_read(of_mr), ops);
	region_close(&counted);
	region_close(&other);
	pair.b.self = pair.b.peer = 0;
	side_close(&pair.b);
	memset(&pair.b, 0, sizeof(pair.b));
	gives(fi_close(&of_mr->fid), 0);
	gives(fi_close(&reads->fid), 0);
	gives(fi_close(&writes->fid), 0);
	pair_close(&pair);
}

/* ---- selective completion, capabilities, states ----------------------------------------------- */

static void selective(void)
{
	struct pair_want want = onesided_usual;
	uint8_t memory[64], buf[64];
	struct region region;
	struct access access;
	struct pair pair;

	want.tx_bind = FI_SELECTIVE_COMPLETION;
	pair_open(&pair, &want);
	region_open(&pair, &region, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE);
	access = (struct access){ .iov = { { buf, 64 } },
				  .iov_count = 1,
				  .remote = { { region.remote.addr, 64, region.remote.key } },
				  .remote_count = 1,
				  .peer = pair.a.peer,
				  .context = &access };
	pattern_fill(buf, 0, 64, 1);
	post(&pair,
	     fi_write(pair.a.ep, buf, 64, NULL, pair.a.peer, region.remote.addr, region.remote.key, buf));
	post(&pair, access_post(&pair.a, &access, true, 0));
	post(&pair, access_post(&pair.a, &access, false, 0));
	pair_quiet(&pair, &pair.a);
	must(pattern_is(memory, 0, 64, 1));
	post(&pair, access_post(&pair.a, &access, true, FI_COMPLETION));
	must(pair_done(&pair, &pair.a).entry.op_context == &access);
	post(&pair, access_post(&pair.a, &access, false, FI_COMPLETION));
	must(pair_done(&pair, &pair.a).entry.op_context == &access);
	/* errors are told in any case */
	post(&pair, fi_write(pair.a.ep, buf, 64, NULL, pair.a.peer, region.remote.addr,
			     region.remote.key + 1, buf));
	gives(pair_error(&pair, &pair.a).err, FI_EKEYREJECTED);
	region_close(&region);
	pair_close(&pair);
}

/* Flags of the endpoint: an injected write completes, a read does not know of injection. */
static void op_flags(void)
{
	struct pair_want want = onesided_usual;
	uint8_t memory[8000] = { 0 }, buf[8000];
	struct region region;
	struct pair pair;

	want.tx_op_flags = FI_INJECT | FI_MATCH_COMPLETE;
	pair_open(&pair, &want);
	region_open(&pair, &region, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE);
	pattern_fill(buf, 0, sizeof(buf), 1);
	post(&pair, fi_write(pair.a.ep, buf, 4096, NULL, pair.a.peer, region.remote.addr,
			     region.remote.key, memory));
	memset(buf, 0, sizeof(buf));
	must(pair_done(&pair, &pair.a).entry.op_context == memory);
	must(pattern_is(memory, 0, 4096, 1));
	gives(fi_write(pair.a.ep, buf, 4097, NULL, pair.a.peer, region.remote.addr, region.remote.key,
		       memory),
	      -FI_EMSGSIZE);
	post(&pair,
	     fi_read(pair.a.ep, buf, 8000, NULL, pair.a.peer, region.remote.addr, region.remote.key, buf));
	must(pair_done(&pair, &pair.a).entry.op_context == buf);
	must(pattern_is(buf, 0, 4096, 1));
	region_close(&region);
	pair_close(&pair);
}

/* All calls of one kind, on an endpoint that is not to do any. */
static void check_calls(struct fid_ep *ep, int read, int write)
{
	uint8_t buf[8];
	struct iovec iov = { buf, 8 };
	struct fi_rma_iov remote = { 0, 8, 0 };
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .iov_count = 1, .rma_iov = &remote, .rma_iov_count = 1
	};

	if (read) {
		gives(fi_read(ep, buf, 8, NULL, 0, 0, 0, NULL), read);
		gives(fi_readv(ep, &iov, NULL, 1, 0, 0, 0, NULL), read);
		gives(fi_readmsg(ep, &msg, 0), read);
	}
	if (write) {
		gives(fi_write(ep, buf, 8, NULL, 0, 0, 0, NULL), write);
		gives(fi_writev(ep, &iov, NULL, 1, 0, 0, 0, NULL), write);
		gives(fi_writemsg(ep, &msg, 0), write);
		gives(fi_inject_write(ep, buf, 8, 0, 0, 0), write);
		gives(fi_writedata(ep, buf, 8, NULL, 0, 0, 0, 0, NULL), write);
		gives(fi_inject_writedata(ep, buf, 8, 0, 0, 0, 0), write);
	}
}

static void check_able(uint64_t caps, bool read, bool write)
{
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = caps, .mr_mode = ONESIDED_MODE });
	check_calls(pair.a.ep, read ? 0 : -FI_EOPNOTSUPP, write ? 0 : -FI_EOPNOTSUPP);
	ep = pair_open_ep(&pair);
	check_calls(ep, read ? -FI_EOPBADSTATE : 0, write ? -FI_EOPBADSTATE : 0);
	if (!read && !write)
		check_calls(ep, -FI_EOPNOTSUPP, -FI_EOPNOTSUPP);
	gives(fi_close(&ep->fid), 0);
	pair_close(&pair);
}

static void capabilities(void)
{
	check_able(FI_MSG | FI_TAGGED, false, false);
	check_able(FI_MSG | FI_ATOMIC, false, false);
	check_able(FI_MSG | FI_RMA, true, true);
	check_able(FI_RMA, true, true);
	check_able(FI_RMA | FI_READ, true, false);
	check_able(FI_RMA | FI_WRITE, false, true);
	check_able(FI_RMA | FI_READ | FI_WRITE, true, true);
	check_able(FI_RMA | FI_REMOTE_READ, false, false);
	check_able(FI_MSG | FI_RMA | FI_REMOTE_WRITE | FI_READ, true, false);
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* One key for many pieces of memory: an access goes over their borders as if there were none. */
static void check_fragments(struct pair *pair, size_t pieces)
{
	enum { LEN = 100 };
	uint8_t *memory = malloc(pieces * LEN * 2), *buf = guarded_alloc(pieces * LEN);
	struct iovec *iov = calloc(pieces, sizeof(*iov));
	struct region region;

	must(memory && iov);
	memset(memory, 0xee, pieces * LEN * 2);
	for (size_t i = 0; i < pieces; i++)
		iov[i] = (struct iovec){ memory + (pieces - 1 - i) * LEN * 2, LEN };
	region_openv(pair, &region, iov, pieces, FI_REMOTE_READ | FI_REMOTE_WRITE);
	pattern_fill(buf, 0, pieces * LEN, 9);
	post(pair, fi_write(pair->a.ep, buf + 50, pieces * LEN - 100, NULL, pair->a.peer,
			    region.remote.addr + 50, region.remote.key, NULL));
	pair_done(pair, &pair->a);
	for (size_t i = 0; i < pieces; i++) {
		size_t from = i ? 0 : 50, to = i + 1 == pieces ? 50 : LEN;

		must(pattern_is((uint8_t *)iov[i].iov_base + from, i * LEN + from, to - from, 9));
		for (size_t j = 0; j < LEN; j++)
			must(((uint8_t *)iov[i].iov_base)[LEN + j] == 0xee);
	}
	memset(buf, 0, pieces * LEN);
	post(pair, fi_read(pair->a.ep, buf + 50, pieces * LEN - 100, NULL, pair->a.peer,
			   region.remote.addr + 50, region.remote.key, NULL));
	pair_done(pair, &pair->a);
	must(pattern_is(buf + 50, 50, pieces * LEN - 100, 9));
	must(guarded_intact(buf, pieces * LEN));
	region_close(&region);
	guarded_free(buf);
	free(memory);
	free(iov);
}

static void fragments(void)
{
	static const int modes[] = { 0, ONESIDED_MODE };

	for (int i = 0; i < 2; i++) {
		struct pair pair;

		pair_open(&pair, &(struct pair_want){ .caps = ONESIDED_CAPS, .mr_mode = modes[i] });
		check_fragments(&pair, 2);
		check_fragments(&pair, 17);
		check_fragments(&pair, pair.info->domain_attr->mr_iov_limit);
		pair_close(&pair);
	}
}

/* The same seen from another process. */
#define FRAGMENTS 300
#define FRAGMENT 777

static void fragments_write(struct pair *pair)
{
	static uint8_t buf[FRAGMENTS * FRAGMENT], back[FRAGMENTS * FRAGMENT];
	struct remote remote = region_exchange(pair, NULL);

	pattern_fill(buf, 0, sizeof(buf), 4);
	post(pair,
	     fi_write(pair->a.ep, buf, sizeof(buf), NULL, pair->a.peer, remote.addr, remote.key, NULL));
	pair_done(pair, &pair->a);
	post(pair, fi_read(pair->a.ep, back + 1, sizeof(back) - 2, NULL, pair->a.peer, remote.addr + 1,
			   remote.key, NULL));
	pair_done(pair, &pair->a);
	must(!memcmp(back + 1, buf + 1, sizeof(buf) - 2));
	gives(back[0], 0);
	gives(back[sizeof(back) - 1], 0);
	pair_meet(pair);
}

static void fragments_target(struct pair *pair)
{
	static uint8_t memory[FRAGMENTS][2][FRAGMENT];
	struct iovec iov[FRAGMENTS];
	struct region region;

	memset(memory, 0xee, sizeof(memory));
	for (size_t i = 0; i < FRAGMENTS; i++)
		iov[i] = (struct iovec){ memory[i * 7 % FRAGMENTS][0], FRAGMENT };
	region_openv(pair, &region, iov, FRAGMENTS, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &region);
	pair_meet(pair);
	for (size_t i = 0; i < FRAGMENTS; i++) {
		must(pattern_is(iov[i].iov_base, i * FRAGMENT, FRAGMENT, 4));
		for (size_t j = 0; j < FRAGMENT; j++)
			must(memory[i][1][j] == 0xee);
	}
	region_close(&region);
}

/* ---- large ----------------------------------------------------------------------------------- */

#define LARGE_LEN ((SANITIZED ? 12 : 64) << 20)

static void large_initiator(struct pair *pair)
{
	enum { LEN = LARGE_LEN };
	struct remote remote = region_exchange(pair, NULL);
	uint8_t *buf = guarded_alloc(LEN);

	pattern_fill(buf, 0, LEN, 1);
	post(pair, fi_write(pair->a.ep, buf, LEN, NULL, pair->a.peer, remote.addr, remote.key, buf));
	must(pair_done(pair, &pair->a).entry.op_context == buf);
	memset(buf, 0, LEN);
	post(pair, fi_read(pair->a.ep, buf, LEN, NULL, pair->a.peer, remote.addr, remote.key, buf));
	must(pair_done(pair, &pair->a).entry.op_context == buf);
	must(pattern_is(buf, 0, LEN, 1));
	must(guarded_intact(buf, LEN));
	guarded_free(buf);
	pair_meet(pair);
}

static void large_target(struct pair *pair)
{
	enum { LEN = LARGE_LEN };
	uint8_t *buf = guarded_alloc(LEN);
	struct region region;

	region_open(pair, &region, buf, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &region);
	pair_meet(pair);
	must(pattern_is(buf, 0, LEN, 1));
	must(guarded_intact(buf, LEN));
	region_close(&region);
	guarded_free(buf);
}

/* More than 32 bits can say. Pages that were never written are read as one and the same page of zeros. */
#define HUGE ((size_t)(4ULL << 30) + (1 << 20))
#define MARK 97

static uint8_t *map_huge(void)
{
	uint8_t *map = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(map != MAP_FAILED);
	madvise(map, HUGE, MADV_HUGEPAGE);
	return map;
}

static bool huge_is_possible(void)
{
	const char *no = getenv("SHMCMA_TEST_NO_HUGE");

	return !SANITIZED && !(no && *no) && !memory_is_short();
}

static void huge_initiator(struct pair *pair)
{
	struct remote remote = region_exchange(pair, NULL);
	uint8_t *buf = map_huge();

	if (!remote.len)
		_exit(PAIR_SKIP);
	buf[0] = buf[HUGE - 1] = buf[(size_t)4 << 30] = 1;
	post(pair, fi_read(pair->a.ep, buf, HUGE, NULL, pair->a.peer, remote.addr, remote.key, buf));
	must(pair_done(pair, &pair->a).entry.op_context == buf);
	gives(buf[0], MARK);
	gives(buf[((size_t)4 << 30) - 1], MARK + 1);
	gives(buf[(size_t)4 << 30], MARK + 2);
	gives(buf[HUGE - 1], MARK + 3);
	pair_meet(pair);
}

static void huge_target(struct pair *pair)
{
	struct region region;
	uint8_t *buf;

	if (!huge_is_possible()) {
		region_exchange(pair, NULL);
		_exit(PAIR_SKIP);
	}
	buf = map_huge();
	buf[0] = MARK;
	buf[((size_t)4 << 30) - 1] = MARK + 1;
	buf[(size_t)4 << 30] = MARK + 2;
	buf[HUGE - 1] = MARK + 3;
	region_open(pair, &region, buf, HUGE, FI_REMOTE_READ);
	region_exchange(pair, &region);
	pair_meet(pair);
	region_close(&region);
}

/* ---- accesses that the target has not finished ----------------------------------------------- */

#define UNFINISHED ((size_t)12 << 20) /* the target copies some of it in a poll */
#define END 60000		      /* its last bytes, which others access */

/* Without progress. */
static void tell(struct pair *pair)
{
	gives(write(pair->link, "t", 1), 1);
}

static void hear(struct pair *pair)
{
	char byte;

	gives(read(pair->link, &byte, 1), 1);
}

/* A read and a write behind a fenced write, once the target has taken the message in front of it and polls no more. */
static void unfinished_initiator(struct pair *pair)
{
	static uint8_t all[UNFINISHED], end[END], back[END], message[1000];
	struct remote remote = region_exchange(pair, NULL);
	uint64_t at_end = remote.addr + UNFINISHED - END;
	struct access access = { .iov = { { all, UNFINISHED } },
				 .iov_count = 1,
				 .remote = { { remote.addr, UNFINISHED, remote.key } },
				 .remote_count = 1,
				 .peer = pair->a.peer };

	memset(all, 1, UNFINISHED);
	memset(end, 2, END);
	pair_meet(pair);
	for (int i = 0; i < 2; i++) {
		post(pair, fi_send(pair->a.ep, message, sizeof(message), NULL, pair->a.peer, NULL));
		(void)pair_done(pair, &pair->a);
		if (!i)
			pair_meet(pair);
	}
	post(pair, access_post(&pair->a, &access, true, FI_FENCE));
	tell(pair);
	hear(pair);
	post(pair, fi_read(pair->a.ep, back, END, NULL, pair->a.peer, at_end, remote.key, NULL));
	post(pair, fi_write(pair->a.ep, end, END, NULL, pair->a.peer, at_end, remote.key, NULL));
	for (int polls = 0; polls < 1000; polls++)
		pair_progress(pair);
	tell(pair);
	for (int i = 0; i < 3; i++)
		(void)pair_done(pair, &pair->a);
	must(bytes_are(back, END, 1));
	pair_meet(pair);
}

static void unfinished_target(struct pair *pair)
{
	static uint8_t all[UNFINISHED], message[1000];
	struct region region;

	region_open(pair, &region, all, UNFINISHED, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &region);
	for (int i = 0; i < 2; i++)
		gives(fi_recv(pair->a.ep, message, sizeof(message), NULL, FI_ADDR_UNSPEC, NULL), 0);
	pair_meet(pair);
	(void)pair_done(pair, &pair->a);
	pair_meet(pair);
	hear(pair);
	side_progress(&pair->a);
	tell(pair);
	hear(pair);
	(void)pair_done(pair, &pair->a);
	pair_meet(pair);
	must(bytes_are(all, UNFINISHED - END, 1) && bytes_are(all + UNFINISHED - END, END, 2));
	region_close(&region);
}

/* ---- both at once ---------------------------------------------------------------------------- */

/* Each writes to and reads from the other, without waiting for it. */
static void crosswise(struct pair *pair)
{
	enum { LEN = 50000, ROUNDS = 200 };
	static uint8_t memory[LEN], out[LEN], in[LEN];
	struct region region;
	struct remote remote;

	region_open(pair, &region, memory, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE);
	remote = region_exchange(pair, &region);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		size_t len = i % 5 ? i * 131 % 3000 : LEN;

		pattern_fill(out, 0, len, i);
		post(pair,
		     fi_write(pair->a.ep, out, len, NULL, pair->a.peer, remote.addr, remote.key, out));
		post(pair, fi_read(pair->a.ep, in, len, NULL, pair->a.peer, remote.addr, remote.key, in));
		must(pair_done(pair, &pair->a).entry.op_context == out);
		must(pair_done(pair, &pair->a).entry.op_context == in);
		must(pattern_is(in, 0, len, i)); /* nobody else writes there */
	}
	pair_meet(pair);
	region_close(&region);
}

/* ---- memory that its process alone can read and write ---------------------------------------- */

#define SECRET 300000

/* Written to and read from where it is the target's, the initiator's, and both's. The target makes progress. */
static void secret_initiator(struct pair *pair)
{
	static const size_t sizes[] = { 8, 5000, 40000, SECRET };
	static uint8_t plain[SECRET];
	uint8_t *secret = secret_alloc(SECRET);
	struct remote remotes[2];

	for (int i = 0; i < 2; i++)
		remotes[i] = region_exchange(pair, NULL);
	for (int whose = 1; whose <= 3; whose++)
		for (unsigned int i = 0; i < 4 * 2; i++) {
			struct remote *remote = &remotes[whose & 1];
			uint8_t *buf = whose & 2 ? secret : plain;
			size_t len = sizes[i / 2];

			pattern_fill(buf, 0, len, i);
			post(pair, fi_write(pair->a.ep, buf, len, NULL, pair->a.peer, remote->addr,
					    remote->key, buf));
			must(pair_done(pair, &pair->a).entry.op_context == buf);
			memset(buf, 0, len);
			post(pair, fi_read(pair->a.ep, buf, len, NULL, pair->a.peer, remote->addr,
					   remote->key, buf));
			must(pair_done(pair, &pair->a).entry.op_context == buf);
			must(pattern_is(buf, 0, len, i));
		}
	pair_meet(pair);
}

static void secret_target(struct pair *pair)
{
	static uint8_t plain[SECRET];
	uint8_t *secret = secret_alloc(SECRET);
	struct region regions[2];

	region_open(pair, &regions[0], plain, SECRET, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_open(pair, &regions[1], secret, SECRET, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &regions[0]);
	region_exchange(pair, &regions[1]);
	pair_meet(pair);
	must(pattern_is(plain, 0, SECRET, 7) && pattern_is(secret, 0, SECRET, 7));
	region_close(&regions[0]);
	region_close(&regions[1]);
}

/* A write that only the target can do, and one behind it that this process could do; the target does not poll. */
static const size_t behind_sizes[] = { 8, 5000, 60000, 200000 };
#define BEHINDS (sizeof(behind_sizes) / sizeof(behind_sizes[0]))

static void secret_first_initiator(struct pair *pair)
{
	static uint8_t buf[SECRET];
	struct remote plain = region_exchange(pair, NULL), secret = region_exchange(pair, NULL);

	for (size_t i = 0; i < BEHINDS; i++) {
		size_t len = behind_sizes[i];

		memset(buf, (int)i + 1, len);
		post(pair,
		     fi_write(pair->a.ep, buf, len, NULL, pair->a.peer, secret.addr, secret.key, NULL));
		post(pair,
		     fi_write(pair->a.ep, buf, len, NULL, pair->a.peer, plain.addr, plain.key, NULL));
		for (int polls = 0; polls < 2000; polls++)
			pair_progress(pair);
		tell(pair);
		for (int done = 0; done < 2; done++)
			(void)pair_done(pair, &pair->a);
		pair_meet(pair);
		hear(pair);
	}
}

static void secret_first_target(struct pair *pair)
{
	static uint8_t plain[SECRET];
	uint8_t *secret = secret_alloc(SECRET);
	struct region regions[2];

	region_open(pair, &regions[0], plain, SECRET, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_open(pair, &regions[1], secret, SECRET, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &regions[0]);
	region_exchange(pair, &regions[1]);
	for (size_t i = 0; i < BEHINDS; i++) {
		size_t len = behind_sizes[i];
		uint8_t value = (uint8_t)(i + 1);

		hear(pair);
		/* a strict target has a thread that polls */
		must(__atomic_load_n(&plain[len - 1], __ATOMIC_ACQUIRE) != value ||
		     bytes_are(secret, len, value));
		pair_meet(pair);
		must(bytes_are(secret, len, value) && bytes_are(plain, len, value));
		tell(pair);
	}
	region_close(&regions[0]);
	region_close(&regions[1]);
}

static const struct pair_want ordered = { .caps = ONESIDED_CAPS,
					  .mr_mode = ONESIDED_MODE,
					  .msg_order = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR |
						       FI_ORDER_WAW };

#define BOTH_WAYS(f, g, label, environment)                                                               \
	ONESIDED(#f label, pair_both, .test.first = f, .test.second = g, .test.want = &onesided_usual,    \
		 .test.env = environment)
#define EVERYWHERE(f, g)                                                                                  \
	BOTH_WAYS(f, g, "", NULL), BOTH_WAYS(f, g, " CMA=0", "FI_SHMCMA_CMA=0"),                          \
		BOTH_WAYS(f, g, " strict", "FI_SHMCMA_RMA=strict"),                                       \
		BOTH_WAYS(f, g, " strict CMA=0", "FI_SHMCMA_RMA=strict FI_SHMCMA_CMA=0")

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENARIO(test_sizes),
		SCENARIO(test_calls),
		SCENARIO(test_vectors),
		SCENARIO(test_arguments),
		SCENARIO(test_flags),
		SCENARIO(test_order),
		SCENARIO(test_write_behind_read),
		SCENARIO(test_many),
		SCENARIO(test_fence),
		SCENARIO_PASSIVE(test_sizes),
		SCENARIO_PASSIVE(test_calls),
		SCENARIO_PASSIVE(test_vectors),
		SCENARIO_MODE(test_sizes, 0, FI_VERSION(1, 17)),
		SCENARIO_MODE(test_vectors, FI_MR_VIRT_ADDR, FI_VERSION(1, 5)),
		SCENARIO_MODE(test_vectors, FI_MR_PROV_KEY, FI_VERSION(1, 17)),
		SCENARIO_MODE(test_calls, FI_MR_BASIC, FI_VERSION(1, 4)),
		SCENARIO_MODE(test_calls, FI_MR_SCALABLE, FI_VERSION(1, 4)),
		SCENARIO_MODE(test_calls, FI_MR_UNSPEC, FI_VERSION(1, 4)),
		ALONE(remote_data_alone),
		ALONE(remote_data_source),
		EVERYWHERE(remote_data_write, remote_data_read),
		ALONE(count_accesses),
		ALONE_ENV(count_accesses, "FI_SHMCMA_RMA=strict"),
		ALONE(selective),
		ALONE(op_flags),
		ALONE(capabilities),
		ALONE(fragments),
		ALONE_ENV(fragments, "FI_SHMCMA_RMA=strict"),
		EVERYWHERE(fragments_write, fragments_target),
		EVERYWHERE(large_initiator, large_target),
		EVERYWHERE(crosswise, crosswise),
		EVERYWHERE(secret_initiator, secret_target),
		EVERYWHERE(secret_first_initiator, secret_first_target),
		ONESIDED("secret_first_initiator ordered", pair_both, .test.first = secret_first_initiator,
			 .test.second = secret_first_target, .test.want = &ordered),
		EVERYWHERE(unfinished_initiator, unfinished_target),
	};
	const struct CMUnitTest full[] = { BOTH_WAYS(huge_initiator, huge_target, "", NULL) };
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	if (rounds_are_full())
		failed += cmocka_run_group_tests(full, NULL, NULL);
	return failed;
}
