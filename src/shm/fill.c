/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.c: the two ways to fill a bounce buffer, and the trial of them. See fill.h.
 *
 * A trial uses plain stores for TRIAL fills, so that each buffer in turn has been filled this way, and measures the
 * last TIMED of them. The lowest time counts: disturbances only make a copy slower. If that time says that the reader
 * may be far away, the trial does the same with non-temporal stores. Then the better way is used for `pause` fills;
 * `pause` grows while the result stays the same. Nothing is measured between trials.
 *
 * Nothing here is shared. After a wrong result a slower way is used until the next trial.
 */
#include "shm/fill.h"

#include <stdatomic.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif
#include <shmcma/abi.h>
#include "base/atomic.h"
#include "base/copy.h"

#define TRIAL 72
#define TIMED 8
#define PAUSE_FIRST 64
#define PAUSE_MIN 2048
#define PAUSE_MAX 65536
/* The smallest fill that counts as large, bytes. */
#define LARGE 4096
/*
 * The highest cost of plain stores at which small fills and fetched lines use them, picoseconds for each byte. With a
 * reader further away, streaming is better for small fills too, and fetches come too late ("Streamed or plain").
 */
#define PLAIN_COST_MAX 200

/*
 * The smallest fill that goes past the caches, bytes. The reader has a smaller fill sooner from this processor's cache,
 * and also lines that were fetched ahead ("Streamed or plain"). A trial streams all fills: its result is for larger
 * fills too.
 */
#define STREAM_MIN 1024

#ifdef __x86_64__
#define STREAMS true

/* Whole lines go past the caches; plain stores copy the bytes before and after them. */
static void stream(void *to_, const void *from_, size_t size)
{
	const uint8_t *from = from_;
	uint8_t *to = to_;
	size_t head = -(uintptr_t)to_ % 64;

	head = head < size ? head : size;
	memcpy(to, from, head);
	to += head;
	from += head;
	size -= head;
	for (; size >= 64; size -= 64, to += 64, from += 64) {
		const __m128i a = _mm_loadu_si128((const __m128i *)from);
		const __m128i b = _mm_loadu_si128((const __m128i *)(from + 16));
		const __m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
		const __m128i d = _mm_loadu_si128((const __m128i *)(from + 48));

		_mm_stream_si128((__m128i *)to, a);
		_mm_stream_si128((__m128i *)(to + 16), b);
		_mm_stream_si128((__m128i *)(to + 32), c);
		_mm_stream_si128((__m128i *)(to + 48), d);
	}
	memcpy(to, from, size);
	_mm_sfence(); /* non-temporal stores are not ordered with the store that publishes the buffer */
}

#else
#define STREAMS false

static void stream(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
}

#endif

void sc_fill_init(struct sc_fill *fill, enum sc_fill_way way)
{
	*fill = (struct sc_fill){ .left = PAUSE_FIRST, .pause = PAUSE_FIRST };
	if (way == SC_FILL_TRIED)
		return;
	fill->pause = 0;
	if (way != SC_FILL_STREAMED || STREAMS)
		fill->way = fill->best[SC_FILL_ALONE] = fill->best[SC_FILL_STREAM] = way;
}

static void copy(enum sc_fill_way way, void *to, const void *from, size_t size)
{
	if (way == SC_FILL_STREAMED)
		stream(to, from, size);
	else
		sc_copy_by_words(to, from, size);
}

/* Returns the nanoseconds that timing adds to a copy. */
static int64_t timing_time(void)
{
	int64_t least = INT64_MAX;

	for (int turn = 0; turn < 4; turn++) {
		int64_t begin = sc_clock_ns(), took;

		atomic_thread_fence(memory_order_seq_cst);
		took = sc_clock_ns() - begin;
		least = took < least ? took : least;
	}
	return least;
}

static void copy_timed(struct sc_fill *fill, void *to, const void *from, size_t size)
{
	int64_t begin = sc_clock_ns(), took;
	uint64_t cost;

	copy(fill->way, to, from, size);
	/* wait until the stores have left this processor's store buffer */
	atomic_thread_fence(memory_order_seq_cst);
	took = sc_clock_ns() - begin - fill->timing;
	cost = took > 0 ? 1 + (uint64_t)took * 1000 / size : 1;
	if (cost < fill->costs.any[fill->way])
		fill->costs.any[fill->way] = (uint32_t)cost;
	if (size >= LARGE && cost < fill->costs.large[fill->way])
		fill->costs.large[fill->way] = (uint32_t)cost;
}

/*
 * The reader gets lines from the writer's cache in half of the time that the stores needed to get them from the reader's:
 * docs/MEASUREMENTS.md, "Cost of reading".
 */
static uint32_t read_cost(const uint32_t costs[SC_FILL_WAYS], enum sc_fill_way way)
{
	return way == SC_FILL_STREAMED ? SC_FILL_FROM_MEMORY : costs[SC_FILL_CACHED] / 2;
}

/*
 * In a stream non-temporal stores and the reads of what was stored before overlap, so the slower decides. Plain stores
 * and reads wait for each other's lines, in a stream as well.
 */
static uint64_t cost_of(const uint32_t costs[SC_FILL_WAYS], enum sc_fill_use use, enum sc_fill_way way)
{
	uint64_t write = costs[way], read = read_cost(costs, way);

	if (costs[way] == UINT32_MAX)
		return UINT64_MAX;
	if (use == SC_FILL_STREAM && way == SC_FILL_STREAMED)
		return write > read ? write : read;
	return write + read;
}

enum sc_fill_way sc_fill_best(const uint32_t costs[SC_FILL_WAYS], enum sc_fill_use use,
			      enum sc_fill_way so_far)
{
	enum sc_fill_way other = so_far == SC_FILL_CACHED ? SC_FILL_STREAMED : SC_FILL_CACHED;
	uint64_t now = cost_of(costs, use, so_far);

	return cost_of(costs, use, other) < now - now / 8 ? other : so_far;
}

static void try_way(struct sc_fill *fill, enum sc_fill_way way)
{
	fill->way = way;
	fill->left = TRIAL;
}

void sc_fill_begin_slow(struct sc_fill *fill)
{
	memset(&fill->costs, 0xff, sizeof(fill->costs));
	fill->trying = true;
	fill->timing = timing_time();
	try_way(fill, SC_FILL_CACHED);
}

/* Large fills tell the costs of both uses, if the trial has met some. */
static void learn_costs(struct sc_fill *fill)
{
	const uint32_t *costs = fill->costs.large;
	enum sc_fill_way alone = fill->best[SC_FILL_ALONE], stream = fill->best[SC_FILL_STREAM];

	if (costs[SC_FILL_CACHED] == UINT32_MAX || costs[alone] == UINT32_MAX ||
	    costs[stream] == UINT32_MAX)
		return;
	fill->write_cost = costs[alone];
	fill->read_cost = read_cost(costs, alone);
	fill->stream_cost = (uint32_t)cost_of(costs, SC_FILL_STREAM, stream);
}

static void trial_end(struct sc_fill *fill)
{
	bool changed = false;

	for (enum sc_fill_use use = SC_FILL_ALONE; use < SC_FILL_USES; use++) {
		enum sc_fill_way best = sc_fill_best(fill->costs.any, use, fill->best[use]);

		changed |= best != fill->best[use];
		fill->best[use] = best;
	}
	if (changed || fill->pause < PAUSE_MIN)
		fill->pause = PAUSE_MIN;
	else if (fill->pause < PAUSE_MAX)
		fill->pause *= 2;
	learn_costs(fill);
	fill->trying = false;
	fill->way = fill->best[SC_FILL_ALONE];
	fill->left = fill->pause;
}

static void trial_fill(struct sc_fill *fill, void *to, const void *from, size_t size)
{
	copy_timed(fill, to, from, size);
	fill->left--;
	if (fill->left == TIMED) /* the fills so far used buffers that were last filled the other way */
		fill->costs.any[fill->way] = fill->costs.large[fill->way] = UINT32_MAX;
	if (fill->left)
		return;
	if (STREAMS && fill->way == SC_FILL_CACHED &&
	    fill->costs.any[SC_FILL_CACHED] >= SC_FILL_FROM_MEMORY)
		try_way(fill, SC_FILL_STREAMED);
	else
		trial_end(fill);
}

/* With a given way the distance is not known, and counts as near. */
static bool is_reader_near(const struct sc_fill *fill)
{
	return fill->costs.any[SC_FILL_CACHED] <= PLAIN_COST_MAX;
}

/* Tells whether this fill is plain although larger ones go past the caches. */
static bool is_for_caches(const struct sc_fill *fill, const void *to, size_t size)
{
	return fill->way == SC_FILL_STREAMED && is_reader_near(fill) &&
	       (size < STREAM_MIN || (to == fill->fetched && size <= fill->fetched_size));
}

void sc_fill_fetch_slow(struct sc_fill *fill, const void *next, size_t size)
{
	if (fill->trying || !is_reader_near(fill))
		return; /* trials compare the ways without fetched lines */
	for (size_t i = 0; i < size; i += SC_ABI_LINE)
		sc_fetch_to_write((const uint8_t *)next + i);
	fill->fetched = next;
	fill->fetched_size = size;
}

void sc_fill_write_slow(struct sc_fill *fill, void *to, const void *from, size_t size)
{
	if (fill->trying) {
		trial_fill(fill, to, from, size);
		return;
	}
	copy(is_for_caches(fill, to, size) ? SC_FILL_CACHED : fill->way, to, from, size);
	if (size >= LARGE && !fill->read_cost && !fill->hastened && fill->left > PAUSE_FIRST) {
		fill->hastened = true; /* the first trial has met no large fills */
		fill->left = PAUSE_FIRST;
	}
	if (fill->pause && !--fill->left)
		sc_fill_begin_slow(fill);
}
