/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.h: how the sender fills a bounce buffer. The sender's stores take the lines of the buffer from the cache of its
 * last reader. The time for that depends on where the two processors are:
 *
 *   cached    plain stores. Best where both processors share a core or a last-level cache.
 *   streamed  non-temporal stores: past the caches, to memory, where the reader gets the bytes. Small fills, and fills
 *             of lines fetched ahead, are plain, unless the reader is too far away. Best where they share no cache.
 *
 * Nothing tells the sender where the reader runs, and the scheduler may move both. So the sender tries the ways for
 * each peer (fill.c): the time of plain stores shows how far away the reader is. Figures: docs/MEASUREMENTS.md, "Ways
 * to fill a bounce buffer".
 *
 * From SC_FILL_MIN bytes on, and already from SC_ROUTE_BUFFER_MIN on, a buffer is also better than lines of the ring:
 * the payload keeps its alignment and is not cut into lines ("Inline or bounce buffer"). Fills below SC_FILL_MIN are
 * always plain: the two ways do not differ for them.
 *
 * Private to the sender.
 */
#ifndef SC_FILL_H
#define SC_FILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <shmcma/core.h>

/* The smallest fill that takes part in trials, bytes. */
#define SC_FILL_MIN 512

/*
 * The time that a reader takes for lines from memory, picoseconds for each byte (docs/MEASUREMENTS.md, "Cost of
 * reading"). Stores to memory take about as long: where plain stores take less, streaming was better on no machine.
 */
#define SC_FILL_FROM_MEMORY 90

/* The lowest cost of each way in the last trial, picoseconds for each byte; UINT32_MAX: the way was not tried. */
struct sc_fill_costs {
	uint32_t any[SC_FILL_WAYS];
	uint32_t large[SC_FILL_WAYS]; /* of large fills only: start and end of a copy weigh little there */
};

/*
 * The use of a fill. ALONE: no other message follows, so the time of this one counts. STREAM: one buffer is filled while
 * another is read, so the rate counts.
 */
enum sc_fill_use { SC_FILL_ALONE, SC_FILL_STREAM, SC_FILL_USES };

struct sc_fill {
	enum sc_fill_way way, best[SC_FILL_USES]; /* of the next fill; results of the last trial */
	bool trying;
	bool hastened;	     /* the next trial was brought forward, once, to learn the two costs below */
	uint32_t left;	     /* fills until a trial begins, or the trial of one way ends */
	int64_t timing;	     /* nanoseconds that the measurement adds to a fill */
	uint32_t pause;	     /* fills between two trials; 0: no trials, the caller has given the way */
	const void *fetched; /* the buffer that is probably filled next, */
	size_t fetched_size; /* bytes of it that were fetched ahead; 0: none */
	struct sc_fill_costs costs;
	/*
	 * Cost of large copies, picoseconds for each byte; 0: not known. By the best way for a message alone: into buffers,
	 * and out of them; by that for a stream: of each message.
	 */
	uint32_t write_cost, read_cost, stream_cost;
};

/* SC_FILL_TRIED: trials find the way. A way that this processor does not have becomes SC_FILL_CACHED. */
void sc_fill_init(struct sc_fill *fill, enum sc_fill_way way);

/*
 * Returns the better way for both sides. `costs`: picoseconds for each byte, UINT32_MAX if not known; SC_FILL_CACHED is
 * known. `so_far` stays, if its cost is known, unless the other way is better by an eighth.
 */
enum sc_fill_way sc_fill_best(const uint32_t costs[SC_FILL_WAYS], enum sc_fill_use use,
			      enum sc_fill_way so_far);

/* Before the fills of a message: takes the best way for that use. A trial goes on as it is. */
static inline void sc_fill_choose(struct sc_fill *fill, enum sc_fill_use use)
{
	if (__builtin_expect(!fill->trying, 1))
		fill->way = fill->best[use];
}

/* The cold paths: begin a trial; fill, and count the fill. */
void sc_fill_begin_slow(struct sc_fill *fill);
void sc_fill_write_slow(struct sc_fill *fill, void *to, const void *from, size_t size);

/* Fills a buffer, or a part of it. The caller may publish it right after. */
static inline void sc_fill_write(struct sc_fill *fill, void *to, const void *from, size_t size)
{
	if (size < SC_FILL_MIN)
		memcpy(to, from, size);
	else
		sc_fill_write_slow(fill, to, from, size);
}

/* Tells whether a trial measures fills of `size` bytes: they go into buffers whose lines are not in this cache. */
static inline bool sc_fill_is_tried(const struct sc_fill *fill, size_t size)
{
	return fill->trying && size >= SC_FILL_MIN;
}

/* The largest fill whose lines are fetched ahead, bytes. */
#define SC_FILL_FETCH_MAX 2048

void sc_fill_fetch_slow(struct sc_fill *fill, const void *next, size_t size);

/*
 * The caller has published a record with a buffer. The next record probably uses `next`, with a like size. So its lines
 * are fetched from the last reader's cache, if the reader is not too far away, while the application does something
 * else. Only for streamed: with a shared last-level cache a plain store gets its line soon enough.
 */
static inline void sc_fill_fetch(struct sc_fill *fill, const void *next, size_t size)
{
	if (fill->way == SC_FILL_STREAMED && size >= SC_FILL_MIN && size <= SC_FILL_FETCH_MAX)
		sc_fill_fetch_slow(fill, next, size);
}

/*
 * Counts a payload of SC_FILL_MIN bytes or more as a fill, although it goes another way or into lines that are in this
 * cache; so the next trial comes nearer. Returns true while a trial runs: the payload must then go into buffers whose
 * lines are not in this cache.
 */
static inline bool sc_fill_has_trial(struct sc_fill *fill)
{
	if (!fill->trying && fill->pause && !--fill->left)
		sc_fill_begin_slow(fill);
	return fill->trying;
}

/* The same for any size; a payload below SC_FILL_MIN does not count. */
static inline bool sc_fill_wants(struct sc_fill *fill, size_t size)
{
	return size >= SC_FILL_MIN && sc_fill_has_trial(fill);
}

#endif
