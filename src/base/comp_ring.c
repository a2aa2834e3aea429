/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * comp_ring.c: the completion queue of core.h, a ring in private memory that doubles when it is full.
 *
 * The owner of the queue serializes; no other process sees it. head and tail only grow and are masked on use, so grow()
 * moves entry i from ring[i & mask] to ring[i & larger mask] and changes neither count. An entry that
 * sc_comp_ring_peek() returned must outlive a completion that is added before its release, so an outgrown ring stays
 * allocated until sc_comp_ring_fini(). All outgrown rings together are smaller than the ring in use.
 */
#include "base/comp_ring.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>

static_assert(sizeof(struct sc_comp) == 64, "a completion has a cache line of its own");

struct block {
	struct block *outgrown;
	alignas(64) struct sc_comp ring[];
};

static struct block *block_of(struct sc_comp *ring)
{
	return (struct block *)((char *)ring - offsetof(struct block, ring));
}

static struct block *block_create(size_t entries)
{
	struct block *block;

	if (entries > (PTRDIFF_MAX - sizeof(*block)) / sizeof(block->ring[0]))
		return NULL;
	block = aligned_alloc(alignof(struct block), sizeof(*block) + entries * sizeof(block->ring[0]));
	if (block)
		block->outgrown = NULL;
	return block;
}

/* `entries` is rounded up to a power of two. */
int sc_comp_ring_init(struct sc_comp_ring *cq, size_t entries)
{
	struct block *block;
	size_t size = 1;

	*cq = (struct sc_comp_ring){ 0 };
	while (size < entries && size <= SIZE_MAX / 2)
		size *= 2;
	block = size < entries ? NULL : block_create(size);
	if (!block)
		return -ENOMEM;
	cq->ring = block->ring;
	cq->mask = size - 1;
	cq->room = size;
	cq->limit = entries;
	return 0;
}

void sc_comp_ring_fini(struct sc_comp_ring *cq)
{
	struct block *block = cq->ring ? block_of(cq->ring) : NULL;

	while (block) {
		struct block *outgrown = block->outgrown;

		free(block);
		block = outgrown;
	}
	cq->ring = NULL;
}

static bool grow(struct sc_comp_ring *cq)
{
	size_t mask = cq->mask * 2 + 1;
	struct block *block = mask > cq->mask ? block_create(mask + 1) : NULL;

	if (!block)
		return false;
	for (size_t i = cq->head; i != cq->tail; i++)
		block->ring[i & mask] = cq->ring[i & cq->mask];
	block->outgrown = block_of(cq->ring);
	cq->ring = block->ring;
	cq->mask = mask;
	cq->room = mask + 1;
	return true;
}

bool sc_comp_ring_grow_slow(struct sc_comp_ring *cq)
{
	/* After a loss the order has a hole: the queue takes no more completions, even if there is room again. */
	if (sc_comp_ring_is_overrun(cq) || !grow(cq)) {
		cq->room = 0;
		return false;
	}
	return true;
}

void sc_comp_ring_put_slow(struct sc_comp_ring *cq, const struct sc_comp *comp)
{
	struct sc_comp *slot = sc_comp_ring_reserve(cq);

	if (slot) {
		*slot = *comp;
		sc_comp_ring_commit(cq);
	}
}
