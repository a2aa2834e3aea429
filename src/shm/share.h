/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share.h: two processes do one copy: they take its chunks from both ends.
 *
 * The opener needs the bytes moved. It begins the copy and tells the joiner, the process at the other end. Then both
 * take chunks, the opener from the front, the joiner from the back, by compare and swap of one word that holds both
 * counts and the generation of the share:
 *
 *   claim   { generation, front, back }   front + back <= chunks; a chunk that is taken is never given back
 *   done    { generation, copied, error } written by the joiner alone
 *
 *   opener   sc_share_open() --> sc_share_take() ... nothing left --> sc_share_outstanding() until 0
 *   joiner   sc_share_join() --> sc_share_take() --copy--> sc_share_report() ... nothing left
 *
 * When front and back meet, the joiner's part is final. The joiner has ended its accesses when it has reported all its
 * chunks, or an error. After an error the opener copies the chunks that the joiner has taken and not copied. A side
 * that is alone takes all.
 *
 *   S1 release, sc_share_report(): bytes copied before the report   pairs with  S1' sc_share_outstanding()
 *
 * The record that announces the share publishes the words that sc_share_open() writes (R1 in ring.h).
 *
 * Death: if the opener dies, nothing uses the share any more. A joiner that dies before it takes a chunk has no part in
 * the copy. A joiner that dies with a chunk in hand leaves chunks without a report. The kernel frees its life lock
 * after its last access to any memory; so when the opener finds the lock free and no report, nothing more is written. A
 * joiner that is stopped there is alive and may still write: the opener waits.
 *
 * A late joiner, with the word of a share that has ended, finds another generation: -ESTALE. A value that the other
 * side cannot have written is -EPROTO. One thread of the named side calls each function.
 */
#ifndef SC_SHARE_H
#define SC_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <shmcma/abi.h>
#include "base/atomic.h"

/* One side's view of a share. Sizes in bytes. */
struct sc_share {
	struct sc_abi_chunks *words; /* NULL: not shared */
	uint32_t generation;	     /* never 0, which a new slot holds */
	uint32_t index;		     /* index of the words in the slot */
	bool front;		     /* the opener's view */
	bool undone;		     /* the opener's view: it has got what the joiner left (xfer.c) */
	int failed;		     /* the opener's view: negative errno of its own copy (xfer.c) */
	uint64_t size;
	uint64_t chunk; /* size of each chunk but the last */
	uint32_t chunks;
	uint32_t mine, theirs; /* chunks taken by this side; by the other, as last seen */
	uint32_t copied;       /* the joiner's view: chunks copied and reported */
};

/* The largest copy that is shared: the pages of a chunk then fit 32 bits. */
#define SC_SHARE_MAX ((uint64_t)1 << 50)

/* A part of the copy, bytes. */
struct sc_share_part {
	uint64_t offset, len;
};

/* Opener: begins a copy of record->size bytes, 1 to SC_SHARE_MAX, of record->generation. Fills in record->chunk. */
void sc_share_open(struct sc_share *share, struct sc_abi_chunks *words, struct sc_abi_share *record);

/*
 * Joiner: takes part in the share that a record announces, and tells the opener that it has come. -EPROTO: the record
 * is impossible.
 */
int sc_share_join(struct sc_share *share, struct sc_abi_chunks *words, const struct sc_abi_share *record);

/* Either side: takes a chunk. 1: *part; 0: none is left; -ESTALE (joiner), -EPROTO. */
int sc_share_take(struct sc_share *share, struct sc_share_part *part);

/* Returns the chunks that neither side had taken when this side last looked. */
static inline uint32_t sc_share_left(const struct sc_share *share)
{
	return share->chunks - share->mine - share->theirs;
}

static inline uint64_t sc_share_largest(const struct sc_share *share)
{
	return share->chunk < share->size ? share->chunk : share->size;
}

/* Opener: takes all chunks that are left. -EPROTO. */
int sc_share_close(struct sc_share *share);

/*
 * Tells whether the joiner has come to the last share of these words, of this generation. A guess that the joiner
 * polls.
 */
static inline bool sc_share_has_come(const struct sc_abi_chunks *words, uint32_t generation)
{
	/* relaxed: only a guess depends on it */
	return sc_load_relaxed_64(&words->done) >> 32 == generation;
}

/* Joiner: the last chunk taken is copied; or, by `error` (positive errno), it is not, and no later one will be. */
void sc_share_report(struct sc_share *share, int error);

/*
 * Opener, when nothing is left to take: returns the number of chunks that the joiner has in hand. 0: the joiner has
 * ended; *error (positive errno) is then its reason to leave *undone to the opener; undone->len 0: it left nothing.
 * -EPROTO.
 */
int sc_share_outstanding(const struct sc_share *share, int *error, struct sc_share_part *undone);

#endif
