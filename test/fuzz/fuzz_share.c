/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_share: the words of a shared copy, which the other side may write anything into between any two steps.
 *
 * Input: struct offer, then struct step again and again. With any value of the words, each part that is taken
 * lies within the copy, and no byte is taken twice.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shm/share.h"

struct offer {
	uint64_t size, unused, chunk;
	uint32_t generation, front;
};

enum {
	SET_CLAIM = 1,
	SET_DONE = 2,
	KEEP_GENERATION = 4,
	MOVE = 8,
	TAKE = 16,
	CLOSE = 32,
	REPORT = 64,
	LOOK = 128
};

struct step {
	uint64_t what, claim, done;
};

#define STEPS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                  \
	do {                                                                                              \
		if (!(condition))                                                                         \
			abort();                                                                          \
	} while (0)

/* All parts so far were taken from the front up to `taken`, or from the back down to it. */
static void check_part(const struct sc_share *share, const struct sc_share_part *part, uint64_t *taken)
{
	CHECK(part->len && part->len <= share->chunk);
	CHECK(part->offset < share->size && part->len <= share->size - part->offset);
	if (share->front) {
		CHECK(part->offset >= *taken);
		*taken = part->offset + part->len;
	} else {
		CHECK(part->offset + part->len <= *taken);
		*taken = part->offset;
	}
}

static void scribble(struct sc_abi_chunks *words, const struct sc_share *share, const struct step *step)
{
	uint64_t claim = step->claim, done = step->done;

	if (step->what & MOVE) { /* from where they are */
		claim = words->claim + (int8_t)claim + ((uint64_t)(int8_t)(claim >> 8) << 16);
		done = words->done + (int8_t)done + ((uint64_t)(int8_t)(done >> 8) << 16);
	}
	if (step->what & KEEP_GENERATION) {
		claim = (uint32_t)claim | (uint64_t)share->generation << 32;
		done = (uint32_t)done | (uint64_t)share->generation << 32;
	}
	if (step->what & SET_CLAIM)
		words->claim = claim;
	if (step->what & SET_DONE)
		words->done = done;
}

static void look(struct sc_share *share)
{
	struct sc_share_part undone;
	int error, ret = sc_share_outstanding(share, &error, &undone);

	CHECK(ret == -EPROTO || ret >= 0);
	CHECK(ret < 0 || (uint32_t)ret <= share->theirs);
	if (ret || !undone.len)
		return;
	CHECK(error > 0 && error <= 4095);
	CHECK(undone.offset < share->size && undone.len <= share->size - undone.offset);
}

static void run(struct sc_share *share, struct sc_abi_chunks *words, const uint8_t *data, size_t size)
{
	uint64_t taken = share->front ? 0 : share->size;
	struct step step;

	for (int i = 0; size >= sizeof(step) && i < STEPS_MAX; i++) {
		struct sc_share_part part;
		int ret = 0;

		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		scribble(words, share, &step);
		if (step.what & TAKE)
			ret = sc_share_take(share, &part);
		if (ret > 0)
			check_part(share, &part, &taken);
		if (step.what & REPORT && !share->front && share->copied < share->mine)
			sc_share_report(share, (int)(step.done & 4095));
		if (!ret && step.what & CLOSE)
			ret = sc_share_close(share);
		CHECK(share->mine <= share->chunks && share->theirs <= share->chunks - share->mine);
		if (ret < 0)
			return; /* that was the end of it */
		if (step.what & LOOK && share->front && !sc_share_left(share))
			look(share);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sc_abi_chunks *words = calloc(1, sizeof(*words));
	struct sc_abi_share record;
	struct sc_share share;
	struct offer offer;

	if (!words || size < sizeof(offer))
		goto out;
	memcpy(&offer, data, sizeof(offer));
	record = (struct sc_abi_share){
		.size = offer.size,
		.chunk = (uint32_t)(offer.chunk / SC_ABI_PAGE),
		.generation = offer.generation,
	};
	if (offer.front & 1) {
		if (!offer.size || offer.size > SC_SHARE_MAX || !offer.generation)
			goto out; /* the caller's own */
		sc_share_open(&share, words, &record);
	} else {
		if (sc_share_join(&share, words, &record))
			goto out;
		words->claim = (uint64_t)offer.generation << 32;
	}
	CHECK(share.chunks && share.chunks <= SC_ABI_CHUNKS_MAX);
	run(&share, words, data + sizeof(offer), size - sizeof(offer));
out:
	free(words);
	return 0;
}
