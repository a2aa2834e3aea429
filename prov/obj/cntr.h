/* SPDX-License-Identifier: BSD-2-Clause */
/* cntr.h: counters (cntr.c). */
#ifndef SHMCMA_CNTR_H
#define SHMCMA_CNTR_H

#include "wait/state.h"

/* The counter of that fid if it is one of this domain, else NULL. */
struct shmcma_cntr *shmcma_cntr_of(struct fid *fid, const struct shmcma_domain *domain);
/*
 * For something other than an endpoint, such as registered memory: the counter, counted (refs + 1) until it
 * is put back, or NULL. Under all locks of the domain, which are one from then on.
 */
struct shmcma_cntr *shmcma_cntr_get_locked(struct fid *fid, struct shmcma_domain *domain);
/* The endpoints that a read of the counter polls. */
const struct shmcma_polled *shmcma_cntr_polled(const struct shmcma_cntr *cntr);
/*
 * Take its lock, or all of the domain's if all endpoints are polled when it is read; true: all, which is to
 * be said again when they are let go.
 */
bool shmcma_cntr_enter(struct shmcma_cntr *cntr);
void shmcma_cntr_leave(struct shmcma_cntr *cntr, bool all);
/* The domain closes: those that were kept for operations under way. */
void shmcma_cntr_free_retired(struct shmcma_domain *domain);

int shmcma_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);

#endif
