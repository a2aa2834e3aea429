/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.h: automatic progress: the thread of a domain that polls its endpoints (progress.c).
 */
#ifndef SHMCMA_PROGRESS_H
#define SHMCMA_PROGRESS_H

#include "wait/objects.h"

/*
 * Starts the thread if the domain wants it, before an endpoint is enabled. Without the domain's lock. Errors:
 * -FI_EAGAIN...
 */
int shmcma_progress_start(struct shmcma_domain *domain);
/* Ends a sleep of the thread before an endpoint is destroyed, with the domain's lock. */
void shmcma_progress_leave_locked(struct shmcma_domain *domain);
/* Stops the thread if it runs. Without the domain's lock. */
void shmcma_progress_stop(struct shmcma_domain *domain);
/* In a child of fork(2): no thread runs. Under shmcma_lists_lock(). */
void shmcma_progress_forked_locked(void);
/* Stops all threads before the provider is unloaded. */
void shmcma_progress_stop_all(void);

#endif
