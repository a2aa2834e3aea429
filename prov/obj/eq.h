/* SPDX-License-Identifier: BSD-2-Clause */
/* eq.h: event queues (eq.c). */
#ifndef SHMCMA_EQ_H
#define SHMCMA_EQ_H

#include "wait/objects.h"

/* Add a copy of an event to the queue. Errors: -FI_ENOMEM, -FI_EOVERRUN. */
int shmcma_eq_put(struct shmcma_eq *eq, uint32_t event, const struct fi_eq_entry *entry);
int shmcma_eq_put_err(struct shmcma_eq *eq, const struct fi_eq_err_entry *entry);
/* The same with a lock held: the signal joins `owed`, for shmcma_wait_give() without a lock. */
void shmcma_eq_put_err_locked(struct shmcma_eq *eq, const struct fi_eq_err_entry *entry,
			      struct shmcma_wait **owed);
/* For binding: returns the event queue of that fid, counted (refs + 1), or NULL. */
struct shmcma_eq *shmcma_eq_get(struct fid *fid);
void shmcma_eq_put_ref(struct shmcma_eq *eq);
struct shmcma_wait *shmcma_eq_wait(struct fid *fid);
/*
 * A fi_join under way, for which a read of the queue makes progress. Embedded; under the lock of the endpoint's domain.
 */
struct shmcma_joining {
	struct shmcma_domain *domain; /* NULL: not under way */
	struct shmcma_joining *next;  /* in the queue's list, under its lock */
};
/* Begins a fi_join. -FI_EAGAIN: not now. */
int shmcma_eq_join_begin(struct shmcma_eq *eq, struct shmcma_coll *coll, struct shmcma_joining *joining);
/* Reports its end: FI_JOIN_COMPLETE, or the entry's error. */
void shmcma_eq_join_report(struct shmcma_eq *eq, struct shmcma_coll *coll, const struct fi_eq_err_entry *entry);
void shmcma_eq_join_end(struct shmcma_eq *eq, struct shmcma_joining *joining);

int shmcma_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context);

#endif
