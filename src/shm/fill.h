/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.h: how a bounce buffer is filled, as the processors' caches are concerned. The lines that a buffer's last reader
 * has in its cache have to leave it before the buffer can be written again, and the time for that depends on where the
 * two processors are:
 *
 *   cached    plain stores. Best where both share a core, or a last cache
 *   streamed  stores past the caches, to memory, from where the reader gets them; plain ones where there is little to
 *             store, into lines that are fetched ahead, unless those come too late. Best where they share none
 *
 * Nobody tells where a processor is, and a scheduler may move us; so the ways are tried (fill.c), for each peer by
 * itself: the time of plain stores shows how far the reader is. Figures: docs/MEASUREMENTS.md, "Ways to fill a bounce
 * buffer".
 *
 * From SC_FILL_MIN on (and somewhat less, SC_ROUTE_BUFFER_MIN) a buffer is better than the ring's lines too, as what is in
 * it is aligned as it was, and not cut into what a line holds ("Inline or bounce buffer"). Smaller fills are plain
 * whatever the way: what they take is not told apart by their filling.
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

/* Bytes that are worth it. */
#define SC_FILL_MIN 512

/* The lowest that each way took in the last trial, picoseconds for each byte; UINT32_MAX: it was not used. */
struct sc_fill_costs {
	uint32_t any[SC_FILL_WAYS];
	uint32_t large[SC_FILL_WAYS]; /* of large fills only, whose begin and end cost little */
};

struct sc_fill {
	enum sc_fill_way way, best; /* of what is filled now; between two trials */
	bool trying;
	bool hastened;	/* the trial to come, for the sake of the two below: once */
	uint32_t left;	/* fills before the next step */
	int64_t timing; /* nanoseconds that a fill takes longer for being timed */
	uint32_t pause; /* fills between two trials; 0: none, the way is given */
	const void *fetched; /* likely the next to be filled, */
	size_t fetched_size; /* so many bytes of it have been asked for; 0: nothing has */
	struct sc_fill_costs costs;
	/* of large ones by the best way, into buffers and out again, picoseconds for each byte; 0: not known */
	uint32_t write_cost, read_cost;
};

/* SC_FILL_TRIED: which one is found out. One that this processor does not have is SC_FILL_CACHED. */
void sc_fill_init(struct sc_fill *fill, enum sc_fill_way way);

/*
 * The better way by what each takes, picoseconds for each byte, UINT32_MAX: not known; SC_FILL_CACHED is. The one used
 * so far, if known, stays unless the other is better by an eighth.
 */
enum sc_fill_way sc_fill_best(const uint32_t costs[SC_FILL_WAYS], enum sc_fill_way so_far);

/* The parts that need not be inline: a trial begins; a fill that may be one of it. */
void sc_fill_begin_slow(struct sc_fill *fill);
void sc_fill_write_slow(struct sc_fill *fill, void *to, const void *from, size_t size);

/* Fill a buffer, or a part of one. It may be published right after. */
static inline void sc_fill_write(struct sc_fill *fill, void *to, const void *from, size_t size)
{
	if (size < SC_FILL_MIN)
		memcpy(to, from, size);
	else
		sc_fill_write_slow(fill, to, from, size);
}

/*
 * Bytes that are worth going past the caches: fewer are read sooner from this processor than they have left it, and so are
 * lines that have been fetched ahead (docs/MEASUREMENTS.md, "Streamed or plain"). In a trial all are streamed: the way
 * that it finds is for larger ones too.
 */
#define SC_FILL_STREAM_MIN 1024

/*
 * Is a buffer of one's own better for so many bytes than one that has just been read (hold.h)? As it is filled past the
 * caches; or as a trial is to find out which way is the best for those.
 */
static inline bool sc_fill_is_better(const struct sc_fill *fill, size_t size)
{
	return (fill->way == SC_FILL_STREAMED && size >= SC_FILL_STREAM_MIN) ||
	       (fill->trying && size >= SC_FILL_MIN);
}

/* Bytes that are worth being fetched ahead. */
#define SC_FILL_FETCH_MAX 2048

void sc_fill_fetch_slow(struct sc_fill *fill, const void *next, size_t size);

/*
 * A record with a buffer has been published. The next will be in `next`, of like size if it goes on so: its lines may
 * come from the last reader's cache while the application does something else, if that is not too far away. Only where
 * stores go past the caches otherwise: within a last cache a plain store has its line soon enough.
 */
static inline void sc_fill_fetch(struct sc_fill *fill, const void *next, size_t size)
{
	if (fill->way == SC_FILL_STREAMED && size >= SC_FILL_MIN && size <= SC_FILL_FETCH_MAX)
		sc_fill_fetch_slow(fill, next, size);
}

/*
 * Counts a payload that could be filled, SC_FILL_MIN bytes or more, and goes another way, or into lines that are here,
 * as a fill, so that it brings the next trial nearer. True: a trial runs, which needs the payload in buffers, and in
 * some that are not here.
 */
static inline bool sc_fill_has_trial(struct sc_fill *fill)
{
	if (!fill->trying && fill->pause && !--fill->left)
		sc_fill_begin_slow(fill);
	return fill->trying;
}

/* The same of any size: less than SC_FILL_MIN tells nothing. */
static inline bool sc_fill_wants(struct sc_fill *fill, size_t size)
{
	return size >= SC_FILL_MIN && sc_fill_has_trial(fill);
}

#endif
