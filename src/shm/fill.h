/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.h: how a bounce buffer is filled, as the processors' caches are concerned. The lines that a buffer's last reader
 * has in its cache have to leave it before the buffer can be written again, and the time for that depends on where the
 * two processors are, and on how the lines came there:
 *
 *   cached    plain stores, to few buffers in turn. Best where both share a core, or a last cache that is fast
 *   spread    plain stores, to all buffers in turn: a buffer is no longer in its reader's own cache when it is
 *             written again. Best on some where both share the last cache, and cleaned lines do not stay in it
 *   cleaned   plain stores, and the reader of the buffer writes its lines back to memory (CLWB), which leaves them
 *             in its cache, but clean
 *   streamed  stores past the caches, to memory, from where the reader gets them; plain ones where there is little to
 *             store, into lines that are fetched ahead, unless those come too late. Best where they share none
 *
 * Measured on a Zen 5 with 2 processors that are moved about by the machine's owner, one way in microseconds, and GB/s
 * of a stream. The reader copies by memcpy(3), which takes string instructions from 2 KiB on: plain loads are slower for
 * both sides, up to a third. String instructions (rep movsb) that fill were the best way in no row, and are gone: 0.37 and
 * 17, 0.98 and 18, 0.96 and 10, 2.35 and 11.
 *
 *                     cached          cleaned         streamed
 *   one last cache    4 KiB 0.24  41   0.31  16        0.78  13
 *                    16 KiB 0.62  43   1.10  9
 *   none              4 KiB 1.23  6.2  1.19  6.8       0.83  13
 *                    16 KiB 2.95  6.6  2.90  7.2       2.04  12
 *
 * ("Cached" has become faster since: more than 1 KiB was filled by a string instruction of gcc's, see copy.h.) On a
 * Zen 4, where it was memcpy(3):
 *
 *                     cached          cleaned         streamed
 *   one core          4 KiB 0.18  43   0.27  20        0.96  10
 *                    16 KiB 0.79  29   1.17  16        2.4   14
 *   one last cache    4 KiB 0.68   9   0.46  20        0.83  10
 *                    16 KiB 2.6    7   1.4   18        2.3   14
 *   none              4 KiB 2.4    1.7 2.3    2.8      0.95  12
 *                    16 KiB 10     1.7 8.6    4.0      2.5   13
 *
 * On a 2-processor Xeon (Rocket Lake) a cleaned line is evicted, and windows of 1, 2, 4 and 8 KiB have 3.8, 6.1, 8.6 and
 * 8.9 GB/s with 16 buffers in turn, no more with 31, 6.2, 9.8, 12.9 and 12.7 with 60, 6.4, 9.9, 13.7 and 14.4 with 250,
 * and 0.95 of the latency. On the Zen 4 60 are worse than 16 (record.h).
 *
 * A ring's lines are written by plain stores, and are cleaned where that keeps them in a cache and they are not fetched
 * ahead (ring.h).
 *
 * From SC_FILL_MIN on (and somewhat less, SC_BOUNCE_MIN) a buffer is better than the ring's lines too, as what is in it
 * is aligned as it was, and not cut into what a line holds: of messages of 512, 640 and 872 B in turn with those in
 * records 0.78, 0.75 and 0.63 of the time on that Zen 5, and windows 1.7, 1.6 and 1.5 times as fast (256 and 384 B: 1.15 and 1.04 of the time, windows 1.5
 * and 1.6); on the Zen 4, apart and streamed, 0.83, 0.72 and 0.70, and 1.4, 1.4 and 1.7. Smaller fills are plain
 * whatever the way: what they take is not told apart by their filling.
 *
 * Nobody tells where a processor is, and a scheduler may move us; so the ways are tried (fill.c), for each peer by
 * itself: the time of filling shows it, and the time of plain stores shows how far the reader is.
 *
 * Private to the sender, but for the flag that asks the reader to clean.
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

/* The lowest that each way took in a trial, picoseconds for each byte; UINT32_MAX: it was not used. */
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
 * The best way by what each takes, picoseconds for each byte, UINT32_MAX: not known; SC_FILL_CACHED is. The one used so
 * far, if known, stays unless another is better by an eighth.
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
 * Bytes that are worth going past the caches: fewer are read sooner from this processor than they have left it. Of 512,
 * 640 and 768 B between processors of a Zen 5 that are apart, by words and streamed, one way 0.47, 0.48 and 0.48 us for
 * 0.54, in windows 4.3, 5.1 and 5.9 GB/s for 1.9, 2.5 and 3.5; of 1 KiB 0.61 for 0.56, and 6.1 for 4.6. In a trial they
 * are streamed: the way that it finds is for larger ones too.
 *
 * Lines that have been fetched ahead are in the cache: 1, 1.5 and 2 KiB by words 0.49, 0.59 and 0.55 us for 0.59, 0.63
 * and 0.67 streamed (0.62, 0.63 and 0.76 by words without), in windows 5.5, 7.2 and 7.7 GB/s for 4.6, 5.9 and 7.4; 3
 * KiB 0.65 us for 0.77, but in windows 7.4 GB/s for 10.6; 4 KiB 0.88 for 0.76 and 6.7 for 13.8.
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
 * stores go past the caches otherwise: within a last cache a plain store has its line soon enough (1 and 2 KiB one way 0.98 of the time, 4 and 8
 * KiB 1.02 and 1.04; 8 KiB in windows 0.95 of the rate).
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

/*
 * Does a line that is cleaned stay in a cache? A Zen 4 keeps it in the last one, from where it is loaded in 18 ns
 * (memory: 150 ns); others evict it. Looked at once in a process, for 30 microseconds.
 */
bool sc_fill_cleaned_stay(void);

/* To be called by the reader of what has been filled so by SC_FILL_CLEANED. No more than a hint. */
void sc_fill_clean(const void *at, size_t size);

#endif
