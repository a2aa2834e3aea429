/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share.h: the chunks of one copy, taken from both ends by the two processes that do it.
 *
 * The opener, which needs the bytes moved, begins the copy and tells the joiner, which has the other end of it. From then on
 * each takes chunks, the opener from the front, the joiner from the back, by compare and swap of one word that holds
 * both counts and the generation of the share:
 *
 *   claim   { generation, front, back }   front + back <= chunks; a chunk that is taken is never given back
 *   done    { generation, copied, error } written by the joiner alone
 *
 *   opener   sc_share_open() --> sc_share_take() ... nothing left --> sc_share_outstanding() until 0
 *   joiner   sc_share_join() --> sc_share_take() --copy--> sc_share_report() ... nothing left
 *
 * When the front has met the back the joiner's part is final, and it has ended with the memory when it has
 * reported that much, or an error: then the opener copies the chunks that the joiner has taken and not copied. A side
 * that is alone takes all.
 *
 *   S1 release, sc_share_report(): bytes copied before the report   pairs with  S1' sc_share_outstanding()
 *
 * The record that tells of the share publishes the words that sc_share_open() writes (R1 in ring.h).
 *
 * Death: an opener that dies leaves a share that nobody looks at. A joiner that dies before it has taken a chunk has no
 * part in it. One that dies with a chunk in hand leaves taken chunks without report; the kernel frees its life lock after
 * its last access to any memory, so an opener that finds that lock free and no report knows that nothing more is
 * written. A joiner that is stopped there is alive and may still write: the opener waits.
 *
 * A joiner that is late, with the word of a share that has ended, finds another generation: -ESTALE. A value that the
 * other side cannot have written is -EPROTO. All functions are for one thread of the side they name.
 */
#ifndef SC_SHARE_H
#define SC_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shmcma/abi.h>

/* One side's view of a share. Sizes in bytes. */
struct sc_share {
	struct sc_abi_chunks *words; /* NULL: not shared */
	uint32_t generation;	     /* never 0, which is what a new slot holds */
	uint32_t index;		     /* of the words in the slot */
	bool front;		     /* the opener's view */
	uint64_t size;
	uint64_t head, chunk; /* the first chunk, each of the others but the last */
	uint32_t chunks;
	uint32_t mine, theirs; /* chunks taken: by this side; by the other, as last seen */
	uint32_t copied;       /* the joiner's view: of mine, reported */
};

/* No copy of more bytes is shared: then the pages of a chunk fit 32 bits. */
#define SC_SHARE_MAX ((uint64_t)1 << 50)

/* Bytes of the copy. */
struct sc_share_part {
	uint64_t offset, len;
};

/*
 * Opener: begin a copy of record->size bytes, 1 to SC_SHARE_MAX, of record->generation, from `from_count` elements of memory to
 * `to_count`, at least 1 each: the side with more elements on the other side, where they cost time, copies less. Writes
 * the rest of what the record says of chunks.
 */
void sc_share_open(struct sc_share *share, struct sc_abi_chunks *words, struct sc_abi_share *record,
		   size_t from_count, size_t to_count);

/* Joiner: take part in what a record tells of. -EPROTO: it cannot be. */
int sc_share_join(struct sc_share *share, struct sc_abi_chunks *words, const struct sc_abi_share *record);

/* Either side: take a chunk. 1: *part; 0: none is left; -ESTALE (joiner), -EPROTO. */
int sc_share_take(struct sc_share *share, struct sc_share_part *part);

/* Chunks that nobody had taken when this side last looked. */
static inline uint32_t sc_share_left(const struct sc_share *share)
{
	return share->chunks - share->mine - share->theirs;
}

/* No chunk is larger, bytes. */
static inline uint64_t sc_share_largest(const struct sc_share *share)
{
	uint64_t rest = share->size - share->head;
	uint64_t chunk = share->chunk < rest ? share->chunk : rest;

	return share->head > chunk ? share->head : chunk;
}

/* Opener: leave nothing to take. -EPROTO */
int sc_share_close(struct sc_share *share);

/* Joiner: it has come to what it was asked to share, and has copied nothing yet. */
void sc_share_come(struct sc_share *share);

/* Has the joiner come to the last share of these words, which had this generation? A guess; it polls. */
bool sc_share_has_come(const struct sc_abi_chunks *words, uint32_t generation);

/* Joiner: the chunk that it took last is copied; or `error` (positive errno): not, nor will be others. */
void sc_share_report(struct sc_share *share, int error);

/*
 * Opener, nothing is left to take: chunks that the joiner has in hand, at least 0. 0: it has ended; *error
 * (positive errno) is then why it left *undone to the opener; undone->len 0: it did not. -EPROTO.
 */
int sc_share_outstanding(const struct sc_share *share, int *error, struct sc_share_part *undone);

#endif
