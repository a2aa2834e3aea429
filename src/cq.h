/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.h: how the core adds to a completion queue (struct sc_cq of core.h) on its hot path.
 *
 *	struct sc_comp *comp = sc_cq_reserve(cq);
 *
 *	if (comp) {
 *		... fill every field: the slot holds what an earlier completion left ...
 *		sc_cq_commit(cq);
 *	}
 *
 * At most one slot is reserved at a time; a reservation without commit has no effect.
 */
#ifndef SC_CQ_H
#define SC_CQ_H

#include <shmcma/core.h>

/* So many are queued that what would add to them is pushed back, but for receives. */
static inline bool sc_cq_is_full(const struct sc_cq *cq)
{
	return cq->tail - cq->head >= cq->limit;
}

/* The ring is full: a larger one. False: the queue is overrun. */
bool sc_cq_grow_slow(struct sc_cq *cq);

/* False: the queue is overrun and the completion is lost. */
static inline bool sc_cq_has_room(struct sc_cq *cq)
{
	return __builtin_expect(cq->tail - cq->head < cq->room, 1) || sc_cq_grow_slow(cq);
}

/* The slot of the next completion, if there is room. */
static inline struct sc_comp *sc_cq_next(const struct sc_cq *cq)
{
	return &cq->ring[cq->tail & cq->mask];
}

/* Both; or NULL. */
static inline struct sc_comp *sc_cq_reserve(struct sc_cq *cq)
{
	return sc_cq_has_room(cq) ? sc_cq_next(cq) : NULL;
}

static inline void sc_cq_commit(struct sc_cq *cq)
{
	cq->tail++;
}

#endif
