/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share.h: the chunks of one copy, taken from both ends by the two processes that do it.
 *
 * The receiver of a rendezvous opens a share in its own segment and tells the sender. From then on each
 * takes chunks, the receiver from the front, the sender from the back, by compare and swap of one word that
 * holds both counts and the generation of the share:
 *
 *   claim   { generation, front, back }   front + back <= chunks; a chunk that is taken is never given back
 *   done    { generation, copied, error } written by the sender alone
 *
 *   receiver   sc_share_open() --> sc_share_take() ... nothing left --> sc_share_outstanding() until 0
 *   sender     sc_share_join() --> sc_share_take() --copy--> sc_share_report() ... nothing left
 *
 * Of a put or get the initiator opens it, in the target's segment, and the target joins (assist.c): the initiator is the
 * receiver then, in what is said here, and the target the sender, wherever the bytes go.
 *
 * When the front has met the back the sender's part is final, and it has ended with the memory when it has
 * reported that much, or an error: then the receiver copies the chunks that the sender has taken and not copied. A side
 * that is alone takes all.
 *
 *   S1 release, sc_share_report(): bytes copied before the report   pairs with  S1' sc_share_outstanding()
 *
 * The record that tells of the share publishes the words that sc_share_open() writes (R1 in ring.h).
 *
 * Death: a receiver that dies leaves a share that nobody looks at; its memory went with it. A sender that
 * dies before it has taken a chunk has no part in it. One that dies with a chunk in hand leaves taken chunks
 * without report; the kernel frees its life lock after its last access to any memory, so a receiver that finds that
 * lock free and no report knows that nothing more is written. A sender that is stopped there is alive and may still
 * write: the receiver waits.
 *
 * A sender that is late, with the word of a share that has ended, finds another generation: -ESTALE. A value that the
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
	bool front;		     /* the receiver's view */
	uint64_t size;
	uint64_t head, chunk; /* the first chunk, each of the others but the last */
	uint32_t chunks;
	uint32_t mine, theirs; /* chunks taken: by this side; by the other, as last seen */
	uint32_t copied;       /* the sender's view: of mine, reported */
};

/* Bytes of the message. */
struct sc_share_part {
	uint64_t offset, len;
};

/*
 * Receiver: offer `size` bytes, not 0, that are in `from_count` elements of the sender's memory and go to `to_count`
 * of its own, at least 1 each: the side with more elements on the other side, where they cost time, copies less.
 */
void sc_share_open(struct sc_share *share, struct sc_abi_chunks *words, uint32_t generation, uint64_t size,
		   size_t from_count, size_t to_count);

/* Sender: take part in what a record offers. -EPROTO: it cannot be. */
int sc_share_join(struct sc_share *share, struct sc_abi_chunks *words, uint32_t generation, uint64_t size,
		  uint64_t head, uint64_t chunk);

/* Either side: take a chunk. 1: *part; 0: none is left; -ESTALE (sender), -EPROTO. */
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

/* Receiver: leave nothing to take. -EPROTO */
int sc_share_close(struct sc_share *share);

/* Sender: it has come to what it was asked to share, and has copied nothing yet. */
void sc_share_come(struct sc_share *share);

/* Sender: the chunk that it took last is copied; or `error` (positive errno): not, nor will be others. */
void sc_share_report(struct sc_share *share, int error);

/*
 * Receiver, nothing is left to take: chunks that the sender has in hand, at least 0. 0: it has ended; *error
 * (positive errno) is then why it left *undone to the receiver; undone->len 0: it did not. -EPROTO.
 */
int sc_share_outstanding(const struct sc_share *share, int *error, struct sc_share_part *undone);

#endif
