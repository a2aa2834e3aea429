/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fill.h: how a bounce buffer is filled, as the processors' caches are concerned. What a buffer's last reader has in
 * its cache has to be taken away from there before the buffer can be written again, and how long that takes depends
 * on where the two processors are, and on how the lines came there:
 *
 *   cached    plain stores. Best where both share a core
 *   cleaned   plain stores, and who has read the buffer writes its lines back to memory (CLWB), which leaves them in
 *             its cache, but clean. Best where both share the last cache
 *   streamed  stores past the caches, to memory, from where the reader gets them. Best where they share none
 *
 * Measured on a Zen 4 with 2 processors that are moved about by the machine's owner, one way in microseconds, and
 * GB/s of a stream:
 *
 *                     cached          cleaned         streamed
 *   one core          4 KiB 0.18  43   0.27  20        0.96  10
 *                    16 KiB 0.79  29   1.17  16        2.4   14
 *   one last cache    4 KiB 0.68   9   0.46  20        0.83  10
 *                    16 KiB 2.6    7   1.4   18        2.3   14
 *   none              4 KiB 2.4    1.7 2.3    2.8      0.95  12
 *                    16 KiB 10     1.7 8.6    4.0      2.5   13
 *
 * A ring's lines are written by plain stores, and read lines that are cleaned are no slower to be written again where
 * the last cache is not shared, and sooner where it is: windows of 8, 64, 256, 512 and 872 B 1.12, 1.31, 1.09, 1.14 and
 * 1.21 times as fast. So those of a stream are always cleaned, where that keeps them in a cache (ring.h).
 *
 * Where streaming is best, a buffer is better than the ring's lines too, from SC_FILL_MIN on: of messages of 512, 640
 * and 872 B in turn with those in records, processors apart, 0.83, 0.72 and 0.70 of the time, and windows 1.4, 1.4 and
 * 1.7 times as fast. Smaller ones are cached whatever the way: what they take is not told apart by their filling.
 *
 * Nobody tells where a processor is, and a scheduler may move us; so the ways are tried (fill.c), for each peer by
 * itself: what filling takes shows it, as the reader's part differs much less.
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
	bool hastened; /* the trial to come, for the sake of `per_kib`: once */
	uint32_t left;	/* fills before the next step */
	uint32_t pause; /* fills between two trials; 0: none, the way is given */
	struct sc_fill_costs costs;
	uint32_t per_kib; /* of large ones by the best way: into buffers and out again, nanoseconds; 0: not known */
};

/* SC_FILL_TRIED: which one is found out. One that this processor does not have is SC_FILL_CACHED. */
void sc_fill_init(struct sc_fill *fill, enum sc_fill_way way);

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
 * What could be filled, SC_FILL_MIN bytes or more, and goes another way: it counts as a fill, so that a trial comes of
 * it too. True: there is one, which needs it in buffers.
 */
static inline bool sc_fill_has_trial(struct sc_fill *fill)
{
	if (!fill->trying && fill->pause && !--fill->left)
		sc_fill_begin_slow(fill);
	return fill->trying;
}

/* Is a buffer better for what a ring's lines could hold as well? They are filled by plain stores. */
static inline bool sc_fill_beats_ring(struct sc_fill *fill)
{
	return fill->way == SC_FILL_STREAMED || sc_fill_has_trial(fill);
}

/*
 * Does a line that is cleaned stay in a cache? A Zen 4 keeps it in the last one, from where it is loaded in 18 ns
 * (memory: 150 ns); others evict it. Looked at once in a process, for 30 microseconds.
 */
bool sc_fill_cleaned_stay(void);

/* To be called by the reader of what has been filled so by SC_FILL_CLEANED. No more than a hint. */
void sc_fill_clean(const void *at, size_t size);

#endif
