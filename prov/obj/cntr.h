/* SPDX-License-Identifier: BSD-2-Clause */
/* cntr.h: counters (cntr.c). */
#ifndef SHMCMA_CNTR_H
#define SHMCMA_CNTR_H

#include "wait/objects.h"

/* Returns the counter of that fid if it belongs to this domain, else NULL. */
struct shmcma_cntr *shmcma_cntr_of(struct fid *fid, const struct shmcma_domain *domain);
/*
 * For objects other than endpoints, such as registered memory: the counter, counted (refs + 1) until it is put back, or
 * NULL. The caller holds all locks of the domain, which become one.
 */
struct shmcma_cntr *shmcma_cntr_get_locked(struct fid *fid, struct shmcma_domain *domain);
/*
 * From now on the counter counts for any endpoint of the domain: threads that sleep on it look again. The caller holds all
 * locks of the domain, which become one.
 */
void shmcma_cntr_widen_locked(struct shmcma_cntr *cntr);
/* Returns the endpoints that a read of the counter polls. */
const struct shmcma_polled *shmcma_cntr_polled(const struct shmcma_cntr *cntr);
/*
 * Take and release the counter's lock, or all locks of the domain if a read of it polls all endpoints. True: all are
 * taken; the caller passes this to shmcma_cntr_leave().
 */
bool shmcma_cntr_enter(struct shmcma_cntr *cntr);
void shmcma_cntr_leave(struct shmcma_cntr *cntr, bool all);
/* Frees counters that were kept for operations under way, when the domain closes. */
void shmcma_cntr_free_retired(struct shmcma_domain *domain);

int shmcma_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);

#endif
