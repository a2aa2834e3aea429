/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * comp_ring.h: how the core adds to a completion queue (struct sc_comp_ring of core.h) on its hot path.
 *
 * 	struct sc_comp *comp = sc_comp_ring_reserve(cq);
 *
 * 	if (comp) {
 * 		... fill every field that the flags make valid: the slot holds an earlier completion ...
 * 		sc_comp_ring_commit(cq);
 * 	}
 *
 * At most one slot is reserved at a time; a reservation without commit has no effect.
 */
#ifndef SC_COMP_RING_H
#define SC_COMP_RING_H

#include <shmcma/core.h>

/* Tells whether an operation that would add a completion is refused; receives never are. */
static inline bool sc_comp_ring_is_full(const struct sc_comp_ring *cq)
{
	return cq->tail - cq->head >= cq->limit;
}

/* Enlarges a full ring. False: the queue is overrun. */
bool sc_comp_ring_grow_slow(struct sc_comp_ring *cq);

/* Tells whether the next completion may go to the entries of sc_comp_ring_by_pass(), if an entry has all its fields. */
static inline bool sc_comp_ring_may_by_pass(const struct sc_comp_ring *cq)
{
	return cq->direct != cq->direct_end && sc_comp_ring_is_empty(cq);
}

/* False: the queue is overrun and the completion is lost. */
static inline bool sc_comp_ring_has_room(struct sc_comp_ring *cq)
{
	return __builtin_expect(cq->tail - cq->head < cq->room, 1) || sc_comp_ring_grow_slow(cq);
}

/* Returns the slot of the next completion, if there is room. */
static inline struct sc_comp *sc_comp_ring_next(const struct sc_comp_ring *cq)
{
	return &cq->ring[cq->tail & cq->mask];
}

/* Returns that slot, or NULL if the queue is overrun. */
static inline struct sc_comp *sc_comp_ring_reserve(struct sc_comp_ring *cq)
{
	return sc_comp_ring_has_room(cq) ? sc_comp_ring_next(cq) : NULL;
}

/* Writes flags and error of a completion in one store: the answer to a message waits for each store before it. */
static inline void sc_comp_say(struct sc_comp *comp, uint32_t cq_flags, uint16_t err, uint16_t flags)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	comp->said = cq_flags | (uint64_t)err << 32 | (uint64_t)flags << 48;
#else
	comp->said = (uint64_t)cq_flags << 32 | (uint64_t)err << 16 | flags;
#endif
}

static inline void sc_comp_ring_commit(struct sc_comp_ring *cq)
{
	cq->tail++;
}

#endif
