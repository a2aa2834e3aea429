/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * share.c: the words of a shared copy; share.h says which side owns which, and what death leaves behind.
 *
 * Each attempt loads the other side's word once, checks it against what this side knows, and uses the copy. A compare
 * and swap fails only if the other side has taken more. Each next attempt must find that; so a peer that stores
 * other values causes -EPROTO and no endless loop.
 */
#include "shm/share.h"

#include <errno.h>
#include "base/atomic.h"
#include "base/fault.h"

/*
 * A chunk is half of the copy, one call for each side, but at most this, or little more: each side waits for the chunk
 * that the other has in hand (docs/MEASUREMENTS.md, "Chunks of a shared copy").
 */
#define CHUNK_MAX ((uint64_t)262144)
#define PAGE ((uint64_t)SC_ABI_PAGE)

static uint64_t word(uint32_t generation, uint32_t high, uint32_t low)
{
	return (uint64_t)generation << 32 | high << 16 | low;
}

/* Chunks are at most an even number, as equal as whole pages allow. A side takes one when it has time. */
static uint64_t chunk_pages(uint64_t size)
{
	uint64_t pairs = (size - 1) / (2 * CHUNK_MAX) + 1;

	if (pairs > SC_ABI_CHUNKS_MAX / 2)
		pairs = SC_ABI_CHUNKS_MAX / 2;
	return (size - 1) / (2 * pairs) / PAGE + 1;
}

/* Returns the number of chunks. */
static uint64_t view_init(struct sc_share *share, struct sc_abi_chunks *words, const struct sc_abi_share *record)
{
	*share = (struct sc_share){ .words = words,
				    .generation = record->generation,
				    .index = record->index,
				    .size = record->size,
				    .chunk = record->chunk * PAGE };
	return (share->size - 1) / share->chunk + 1;
}

void sc_share_open(struct sc_share *share, struct sc_abi_chunks *words, struct sc_abi_share *record)
{
	record->chunk = (uint32_t)chunk_pages(record->size);
	share->chunks = (uint32_t)view_init(share, words, record);
	share->front = true;
	sc_store_relaxed_64(&words->claim, word(record->generation, 0, 0)); /* the record publishes it */
	(void)SC_FAULT("share.opened");
}

int sc_share_join(struct sc_share *share, struct sc_abi_chunks *words, const struct sc_abi_share *record)
{
	uint64_t chunks;

	if (!record->generation || !record->size || !record->chunk)
		return -EPROTO;
	chunks = view_init(share, words, record);
	if (chunks > SC_ABI_CHUNKS_MAX)
		return -EPROTO;
	share->chunks = (uint32_t)chunks;
	/* relaxed: nothing has been copied */
	sc_store_relaxed_64(&words->done, word(record->generation, 0, 0));
	(void)SC_FAULT("share.come");
	return 0;
}

/* Loads the claim word and learns what the other side has taken. */
static int refresh(struct sc_share *share, uint64_t *claim)
{
	uint32_t mine, theirs;

	*claim = sc_load_relaxed_64(&share->words->claim); /* only counts: no memory is read by them */
	mine = share->front ? *claim >> 16 & 0xffff : *claim & 0xffff;
	theirs = share->front ? *claim & 0xffff : *claim >> 16 & 0xffff;
	if (*claim >> 32 != share->generation)
		return share->front ? -EPROTO : -ESTALE;
	if (mine != share->mine || theirs < share->theirs || mine + theirs > share->chunks)
		return -EPROTO;
	share->theirs = theirs;
	return 0;
}

/* Takes up to `most` chunks. Returns their number, 0: none is left; -ESTALE, -EPROTO. */
static int take(struct sc_share *share, uint32_t most)
{
	for (bool again = false;; again = true) {
		uint32_t count, known = share->theirs;
		uint64_t claim;
		int ret = refresh(share, &claim);

		if (ret)
			return ret;
		if (again && share->theirs == known)
			return -EPROTO;
		count = sc_share_left(share) < most ? sc_share_left(share) : most;
		if (!count)
			return 0;
		if (sc_cas_acq_rel_64(&share->words->claim, claim,
				      claim + ((uint64_t)count << (share->front ? 16 : 0)))) {
			(void)SC_FAULT("share.taken");
			share->mine += count;
			return (int)count;
		}
	}
}

/* Returns where a chunk begins, or where the copy ends. */
static uint64_t chunk_start(const struct sc_share *share, uint32_t index)
{
	return index == share->chunks ? share->size : index * share->chunk;
}

/* Finds the bytes of the chunks [first, end). */
static void locate(const struct sc_share *share, uint32_t first, uint32_t end, struct sc_share_part *part)
{
	part->offset = chunk_start(share, first);
	part->len = chunk_start(share, end) - part->offset;
}

int sc_share_take(struct sc_share *share, struct sc_share_part *part)
{
	int ret = take(share, 1);
	uint32_t first = share->front ? share->mine - 1 : share->chunks - share->mine;

	if (ret > 0)
		locate(share, first, first + 1, part);
	return ret;
}

int sc_share_close(struct sc_share *share)
{
	int ret = take(share, SC_ABI_CHUNKS_MAX);

	return ret < 0 ? ret : 0;
}

void sc_share_report(struct sc_share *share, int error)
{
	if (!error)
		share->copied++;
	/* S1 release: the bytes are copied; pairs with S1' in sc_share_outstanding() */
	sc_store_release_64(&share->words->done, word(share->generation, share->copied, (uint32_t)error));
	(void)SC_FAULT("share.reported");
}

int sc_share_outstanding(const struct sc_share *share, int *error, struct sc_share_part *undone)
{
	/* S1' acquire: pairs with S1 in sc_share_report() */
	uint64_t done = sc_load_acquire_64(&share->words->done);
	uint32_t copied = done >> 16 & 0xffff;

	*error = 0;
	undone->len = 0;
	if (done >> 32 != share->generation)
		return (int)share->theirs; /* of an earlier share: nothing yet */
	*error = done & 0xffff;
	if (copied > share->theirs || *error > 4095)
		return -EPROTO;
	if (copied == share->theirs)
		return 0;
	if (!*error)
		return (int)(share->theirs - copied);
	locate(share, share->chunks - share->theirs, share->chunks - copied, undone);
	return 0;
}
