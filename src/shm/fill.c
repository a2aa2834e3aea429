/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.c: the ways to fill a bounce buffer, and the trial of them. See fill.h.
 *
 * A trial uses one way after the other for TRIAL fills, so that all buffers in turn have been through it, and takes the
 * time of the last TIMED ones; the lowest counts, as nothing makes a copy faster than it is. A way that is hopeless
 * after the first few fills is given up. SPREAD takes longer, as the pool grows meanwhile, and new buffers are to be
 * read once. Then the best is used for `pause` fills, which grows while the result stays the same. Between trials
 * nothing is measured.
 *
 * Nothing here is shared, and no result is wrong: at worst a slower way is used until the next trial.
 */
#include "shm/fill.h"

#include <pthread.h>
#include <stdatomic.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <emmintrin.h>
#endif
#include <shmcma/abi.h>
#include "base/atomic.h"
#include "base/copy.h"

#define TRIAL 72
#define TRIAL_SPREAD 192
#define TIMED 8
#define PAUSE_FIRST 64
#define PAUSE_MIN 2048
#define PAUSE_MAX 65536
/*
 * The time that a reader takes to clean lines, and for lines from memory, picoseconds for each byte, as measured. The
 * second follows from the times of 4, 8, 16 and 32 KiB one way between processors of a Zen 5 that are apart: 0.83,
 * 1.17, 1.93 and 3.43 us.
 */
#define CLEANING 25
#define FROM_MEMORY 90
/* Bytes. */
#define LARGE 4096
/*
 * The most time that plain stores may take for either, picoseconds for each byte: with a reader that is further away,
 * smaller sizes gain from stores past the caches, and lines are not fetched in time. That Zen 5 takes up to 160. A Zen
 * 4, apart, takes 250 to 550; plain and streamed 512, 768 and 1023 B take 0.81, 0.98 and 1.11 us one way, 0.68, 0.65
 * and 0.78, in windows 1.1, 1.2 and 1.3 GB/s, 2.0, 2.9 and 3.8; fetched and streamed 1 and 2 KiB 1.01 and 1.59 us, 0.62
 * and 0.88, 1.6 and 2.0 GB/s, 4.0 and 5.6.
 */
#define PLAIN_COST_MAX 200

#ifdef __x86_64__

/* Of leaf 7 of CPUID, EBX. */
#define HAS_CLWB (1u << 24)
#define IS_KNOWN (1u << 0) /* not a question of ours */

static bool has(unsigned int feature)
{
	static atomic_uint known; /* relaxed: each thread gets the same answer */
	unsigned int features = atomic_load_explicit(&known, memory_order_relaxed), a, c, d;

	if (!features) {
		if (!__get_cpuid_count(7, 0, &a, &features, &c, &d))
			features = 0;
		features |= IS_KNOWN;
		atomic_store_explicit(&known, features, memory_order_relaxed);
	}
	return features & feature;
}

static bool is_available(enum sc_fill_way way)
{
	return way != SC_FILL_CLEANED || has(HAS_CLWB);
}

/* Past the caches, whole lines; the rest as ever. */
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
	_mm_sfence(); /* these stores are not ordered with the one that publishes them */
}

__attribute__((target("clwb"))) static void write_back(const void *at, size_t size)
{
	for (size_t i = 0; i < size; i += 64)
		__asm__ volatile("clwb %0" : : "m"(((const char *)at)[i]));
}

void sc_fill_clean(const void *at, size_t size)
{
	if (has(HAS_CLWB))
		write_back(at, size);
}

#define CHAIN 32

/* Each line names another, each once, in no order that is foreseen. Volatile: loaded though nobody wants it. */
static _Alignas(64) volatile uint8_t chain[CHAIN][64];
static bool stay;

static void evict(void)
{
	for (int i = 0; i < CHAIN; i++)
		_mm_clflush((const void *)chain[i]);
}

static void clean(void)
{
	write_back((const void *)chain, sizeof(chain));
}

/* The time to load them after that, one after the other, nanoseconds. */
static int64_t chain_time(void (*treat)(void))
{
	int64_t least = INT64_MAX;

	for (int turn = 0; turn < 2; turn++) {
		int64_t begin, took;
		uint8_t at = 0;

		for (int i = 0; i < CHAIN; i++)
			chain[i][0] = (uint8_t)(i * 5 + 23) % CHAIN;
		treat();
		atomic_thread_fence(memory_order_seq_cst);
		begin = sc_clock_ns();
		for (int i = 0; i < CHAIN; i++)
			at = chain[at][0];
		took = sc_clock_ns() - begin;
		least = took < least ? took : least;
	}
	return least;
}

static void look_whether_stay(void)
{
	stay = chain_time(clean) < chain_time(evict) / 2;
}

bool sc_fill_cleaned_stay(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (has(HAS_CLWB))
		pthread_once(&once, look_whether_stay);
	return stay;
}

#else

static bool is_available(enum sc_fill_way way)
{
	return way == SC_FILL_CACHED || way == SC_FILL_SPREAD;
}

static void stream(void *to, const void *from, size_t size)
{
	memcpy(to, from, size);
}

void sc_fill_clean(const void *at, size_t size)
{
	(void)at;
	(void)size;
}

bool sc_fill_cleaned_stay(void)
{
	return false;
}

#endif

void sc_fill_init(struct sc_fill *fill, enum sc_fill_way way)
{
	*fill = (struct sc_fill){ .left = PAUSE_FIRST, .pause = PAUSE_FIRST };
	if (way == SC_FILL_TRIED)
		return;
	fill->pause = 0;
	if (is_available(way))
		fill->way = fill->best = way;
}

static void copy(enum sc_fill_way way, void *to, const void *from, size_t size)
{
	if (way == SC_FILL_STREAMED)
		stream(to, from, size);
	else
		sc_copy_by_words(to, from, size);
}

/* Nothing, timed as a copy is, nanoseconds. */
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
	/* until the stores have left this processor, not only wait in it */
	atomic_thread_fence(memory_order_seq_cst);
	took = sc_clock_ns() - begin - fill->timing;
	cost = took > 0 ? 1 + (uint64_t)took * 1000 / size : 1;
	if (cost < fill->costs.any[fill->way])
		fill->costs.any[fill->way] = (uint32_t)cost;
	if (size >= LARGE && cost < fill->costs.large[fill->way])
		fill->costs.large[fill->way] = (uint32_t)cost;
}

static void forget(struct sc_fill *fill, enum sc_fill_way way)
{
	fill->costs.any[way] = fill->costs.large[way] = UINT32_MAX;
}

/*
 * Lines that the other has in its cache come to the reader no later than from the last one, from where stores get what
 * was cleaned, if that stays there. Stores to lines that the reader has as well take longer: on a Zen 4, one last cache,
 * 90 ps for each byte to 45, and the reader 50 in either case.
 */
static uint32_t read_cost(const uint32_t costs[SC_FILL_WAYS], unsigned int way)
{
	if (way == SC_FILL_STREAMED)
		return FROM_MEMORY;
	return costs[SC_FILL_CLEANED] < costs[SC_FILL_CACHED] ? costs[SC_FILL_CLEANED]
							      : costs[SC_FILL_CACHED];
}

/* Both sides, but for cleaning, which nobody waits for. */
static uint64_t cost_of(const uint32_t costs[SC_FILL_WAYS], unsigned int way)
{
	return costs[way] == UINT32_MAX ? UINT64_MAX : (uint64_t)costs[way] + read_cost(costs, way);
}

enum sc_fill_way sc_fill_best(const uint32_t costs[SC_FILL_WAYS], enum sc_fill_way so_far)
{
	uint64_t least = cost_of(costs, so_far) - cost_of(costs, so_far) / 8;
	enum sc_fill_way best = so_far;

	for (unsigned int way = 0; way < SC_FILL_WAYS; way++) {
		if (cost_of(costs, way) >= least)
			continue;
		best = (enum sc_fill_way)way;
		least = cost_of(costs, way);
	}
	return best;
}

void sc_fill_begin_slow(struct sc_fill *fill)
{
	for (unsigned int way = 0; way < SC_FILL_WAYS; way++)
		forget(fill, (enum sc_fill_way)way);
	fill->trying = true;
	fill->timing = timing_time();
	fill->way = SC_FILL_CACHED;
	fill->left = TRIAL;
}

static void trial_end(struct sc_fill *fill)
{
	enum sc_fill_way best = sc_fill_best(fill->costs.any, fill->best);

	if (best != fill->best || fill->pause < PAUSE_MIN)
		fill->pause = PAUSE_MIN;
	else if (fill->pause < PAUSE_MAX)
		fill->pause *= 2;
	if (fill->costs.large[SC_FILL_CACHED] != UINT32_MAX && fill->costs.large[best] != UINT32_MAX) {
		fill->write_cost = fill->costs.large[best];
		fill->read_cost =
			read_cost(fill->costs.large, best) + (best == SC_FILL_CLEANED ? CLEANING : 0);
	}
	fill->trying = false;
	fill->way = fill->best = best;
	fill->left = fill->pause;
}

/* Where a cleaned line stays in the last cache nothing has to be pushed out of the reader's own to get there. */
static bool is_worth_a_trial(enum sc_fill_way way)
{
	if (way == SC_FILL_CLEANED || way == SC_FILL_SPREAD)
		return sc_fill_cleaned_stay() == (way == SC_FILL_CLEANED);
	return is_available(way);
}

static void try_next(struct sc_fill *fill)
{
	unsigned int next = fill->way + 1;

	while (next < SC_FILL_WAYS && !is_worth_a_trial((enum sc_fill_way)next))
		next++;
	if (next == SC_FILL_WAYS) {
		trial_end(fill);
		return;
	}
	fill->way = (enum sc_fill_way)next;
	fill->left = next == SC_FILL_SPREAD ? TRIAL_SPREAD : TRIAL;
}

/* Is what this way took so far more than twice that of another? */
static bool is_hopeless(const struct sc_fill *fill)
{
	for (unsigned int way = 0; way < fill->way; way++)
		if (cost_of(fill->costs.any, fill->way) / 2 > cost_of(fill->costs.any, way))
			return true;
	return false;
}

static void trial_fill(struct sc_fill *fill, void *to, const void *from, size_t size)
{
	copy_timed(fill, to, from, size);
	fill->left--;
	if (!fill->left || (fill->left == TRIAL - TIMED && is_hopeless(fill)))
		try_next(fill);
	else if (fill->left == TIMED)
		forget(fill, fill->way); /* the times before are of buffers that were filled another way */
}

/* Where the way is given it is not known, and taken to be so. */
static bool is_reader_near(const struct sc_fill *fill)
{
	return fill->costs.any[SC_FILL_CACHED] <= PLAIN_COST_MAX;
}

/* Is it better in this processor's caches, where larger ones go past them? */
static bool is_for_caches(const struct sc_fill *fill, const void *to, size_t size)
{
	return fill->way == SC_FILL_STREAMED && is_reader_near(fill) &&
	       (size < SC_FILL_STREAM_MIN || (to == fill->fetched && size <= fill->fetched_size));
}

void sc_fill_fetch_slow(struct sc_fill *fill, const void *next, size_t size)
{
	if (fill->trying || !is_reader_near(fill))
		return; /* the ways are compared without */
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
		fill->hastened = true; /* the first trial was over before there were large ones */
		fill->left = PAUSE_FIRST;
	}
	if (fill->pause && !--fill->left)
		sc_fill_begin_slow(fill);
}
