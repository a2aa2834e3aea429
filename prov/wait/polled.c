/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * polled.c: sets of endpoints that are polled together, and the rest of a poll: endpoints without queue and counter,
 * groups of endpoints, operations that wait for counters. A poll holds the lock of the endpoints it polls; a change of
 * a set holds all locks of the domain.
 */
#include "wait/polled.h"

#include <stdlib.h>
#include "wait/work.h"

int shmcma_polled_add(struct shmcma_polled *polled, struct shmcma_ep *ep)
{
	struct shmcma_ep **eps;

	for (size_t i = 0; i < polled->count; i++)
		if (polled->eps[i] == ep)
			return 0;
	eps = shmcma_grow(polled->eps, polled->count, &polled->capacity, sizeof(struct shmcma_ep *));
	if (!eps)
		return -FI_ENOMEM;
	polled->eps = eps;
	polled->eps[polled->count++] = ep;
	return 0;
}

void shmcma_polled_del(struct shmcma_polled *polled, const struct shmcma_ep *ep)
{
	for (size_t i = 0; i < polled->count; i++) {
		if (polled->eps[i] != ep)
			continue;
		polled->eps[i] = polled->eps[--polled->count];
		return;
	}
}

void shmcma_polled_fini(struct shmcma_polled *polled)
{
	free(polled->eps);
}

int shmcma_coll_progress_locked(struct shmcma_domain *domain)
{
	int done = 0;

	for (struct shmcma_coll *coll = domain->colls; coll; coll = coll->next)
		done += coll->progress(coll);
	return done;
}

int shmcma_poll_rest_locked(struct shmcma_domain *domain, const struct shmcma_polled *polled)
{
	int done = 0;

	if (domain->silent.count && polled != &domain->enabled)
		done += shmcma_poll_each(&domain->silent);
	if (domain->colls)
		done += shmcma_coll_progress_locked(domain);
	if (domain->triggers)
		shmcma_work_run_locked(domain);
	return done;
}
