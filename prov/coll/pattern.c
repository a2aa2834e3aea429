/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pattern.c: the pairs of sender and receiver in a phase of a collective operation, and the memory that they transfer.
 * Pure functions of the operation.
 */
#include "coll/coll.h"

struct iovec shmcma_block(const struct shmcma_collop *op, const struct shmcma_blocks *blocks,
			  uint32_t member)
{
	size_t elements, from, to;

	switch (blocks->kind) {
	case SHMCMA_WHOLE:
		return (struct iovec){ blocks->base, blocks->size };
	case SHMCMA_EQUAL:
		return (struct iovec){ blocks->base + member * blocks->size, blocks->size };
	case SHMCMA_SLICES:
		elements = blocks->size / op->element;
		from = elements / op->group->count * member +
		       (member < elements % op->group->count ? member : elements % op->group->count);
		to = from + elements / op->group->count + (member < elements % op->group->count);
		return (struct iovec){ blocks->base + from * op->element, (to - from) * op->element };
	default:
		return (struct iovec){ 0 };
	}
}

static uint32_t log2_up(uint32_t count)
{
	return count > 1 ? 32 - (uint32_t)__builtin_clz(count - 1) : 0;
}

/* The rank counted from the root. */
static uint32_t relative(const struct shmcma_collop *op, uint32_t root)
{
	const struct shmcma_group *group = op->group;

	return group->rank >= root ? group->rank - root : group->rank + group->count - root;
}

static uint32_t absolute(const struct shmcma_collop *op, uint32_t root, uint32_t rank)
{
	return rank + root < op->group->count ? rank + root : rank + root - op->group->count;
}

/* The children in the tree are rank + 2^k, for all 2^k below the lowest bit of the rank. */
static uint32_t children(const struct shmcma_collop *op, uint32_t rank)
{
	uint32_t limit = rank ? (uint32_t)__builtin_ctz(rank) : log2_up(op->group->count), count = 0;

	while (count < limit && rank + (1u << count) < op->group->count)
		count++;
	return count;
}

void shmcma_pattern_count_steps(struct shmcma_collop *op)
{
	const struct shmcma_phase *phase = &op->phases[op->at];
	uint32_t rank = relative(op, phase->root), below = children(op, rank);

	switch (phase->pattern) {
	case SHMCMA_MEET:
		op->sends.count = op->recvs.count = log2_up(op->group->count);
		return;
	case SHMCMA_SPREAD:
		op->sends.count = op->recvs.count = op->group->count - 1;
		return;
	case SHMCMA_DOWN:
		op->sends.count = below;
		op->recvs.count = rank != 0;
		return;
	case SHMCMA_UP:
		op->sends.count = rank != 0;
		op->recvs.count = below;
		return;
	}
}

uint32_t shmcma_pattern_send_peer(const struct shmcma_collop *op, size_t step)
{
	const struct shmcma_phase *phase = &op->phases[op->at];
	uint32_t count = op->group->count, rank = relative(op, phase->root), peer;

	switch (phase->pattern) {
	case SHMCMA_MEET:
		return (uint32_t)((op->group->rank + (1ull << step)) % count);
	case SHMCMA_SPREAD:
		peer = (uint32_t)((op->group->rank + step + 1) % count);
		if (phase->out.kind == SHMCMA_NOTHING || (phase->to != SHMCMA_ALL && phase->to != peer))
			return SHMCMA_ALL;
		return peer;
	case SHMCMA_DOWN:
		return absolute(op, phase->root, rank + (1u << (op->sends.count - 1 - step)));
	default:
		return absolute(op, phase->root, rank & (rank - 1));
	}
}

uint32_t shmcma_pattern_recv_peer(const struct shmcma_collop *op, size_t step)
{
	const struct shmcma_phase *phase = &op->phases[op->at];
	uint32_t count = op->group->count, rank = relative(op, phase->root), peer;

	switch (phase->pattern) {
	case SHMCMA_MEET:
		return (uint32_t)((op->group->rank + count - (1ull << step) % count) % count);
	case SHMCMA_SPREAD:
		peer = (uint32_t)((op->group->rank + count - step - 1) % count);
		if (phase->in.kind == SHMCMA_NOTHING || (phase->from != SHMCMA_ALL && phase->from != peer))
			return SHMCMA_ALL;
		return peer;
	case SHMCMA_DOWN:
		return absolute(op, phase->root, rank & (rank - 1));
	default:
		return absolute(op, phase->root, rank + (1u << step));
	}
}

bool shmcma_pattern_may_send(const struct shmcma_collop *op, size_t step)
{
	switch (op->phases[op->at].pattern) {
	case SHMCMA_MEET:
		return op->recvs.over >= step;
	case SHMCMA_SPREAD:
		return true;
	default:
		return op->recvs.over == op->recvs.count;
	}
}
