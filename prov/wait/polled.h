/* SPDX-License-Identifier: BSD-2-Clause */
/* polled.h: sets of endpoints that are polled together, and their progress (polled.c). */
#ifndef SHMCMA_POLLED_H
#define SHMCMA_POLLED_H

#include "wait/objects.h"

/* Adds the endpoint once. -FI_ENOMEM. */
int shmcma_polled_add(struct shmcma_polled *polled, struct shmcma_ep *ep);
void shmcma_polled_del(struct shmcma_polled *polled, const struct shmcma_ep *ep);
void shmcma_polled_fini(struct shmcma_polled *polled);

/* Makes progress for the groups of endpoints. Returns 0 if there was nothing to do. */
int shmcma_coll_progress_locked(struct shmcma_domain *domain);

static inline int shmcma_poll_each(const struct shmcma_polled *polled)
{
	int done = 0;

	for (size_t i = 0; i < polled->count; i++)
		done += sc_ep_poll(polled->eps[i]->core);
	return done;
}

/* Does the rest of a poll, in the few domains that have one. */
int shmcma_poll_rest_locked(struct shmcma_domain *domain, const struct shmcma_polled *polled);

/*
 * Makes progress, under the lock of the polled endpoints. Returns 0 if there was nothing to do. Every read also polls
 * the endpoints without queue and counter (pure targets), which no other reader could poll.
 */
static inline int shmcma_poll_locked(struct shmcma_domain *domain, const struct shmcma_polled *polled)
{
	int done = shmcma_poll_each(polled);

	if (__builtin_expect(domain->silent.count | (uintptr_t)domain->colls | (uintptr_t)domain->triggers,
			     0))
		done += shmcma_poll_rest_locked(domain, polled);
	return done;
}

/* The same in a call of the application: the thread of automatic progress, if there is one, may rest. */
static inline void shmcma_progress_locked(struct shmcma_domain *domain, const struct shmcma_polled *polled)
{
	if (__builtin_expect(domain->progress.wanted, 0)) /* then there is one lock */
		domain->progress.polls++;
	shmcma_poll_locked(domain, polled);
}

#endif
