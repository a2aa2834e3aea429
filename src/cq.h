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

/* The queue is full or overrun: grow, or NULL. */
struct sc_comp *sc_cq_reserve_slow(struct sc_cq *cq);

/* The slot of the next completion; NULL: the queue is overrun and the completion is lost. */
static inline struct sc_comp *sc_cq_reserve(struct sc_cq *cq)
{
	if (__builtin_expect((cq->tail - cq->head > cq->mask) | cq->overrun, 0))
		return sc_cq_reserve_slow(cq);
	return &cq->ring[cq->tail & cq->mask];
}

static inline void sc_cq_commit(struct sc_cq *cq)
{
	cq->tail++;
}

#endif
