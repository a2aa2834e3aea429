/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.h: automatic progress: the thread of a domain that polls its endpoints (progress.c).
 */
#ifndef SHMCMA_PROGRESS_H
#define SHMCMA_PROGRESS_H

#include "wait/state.h"

/*
 * An endpoint is about to be enabled: the thread runs, if it is wanted. Without the domain's lock.
 * -FI_EAGAIN...
 */
int shmcma_progress_start(struct shmcma_domain *domain);
/* An endpoint of the domain is about to end: the thread does not sleep on it. With the domain's lock. */
void shmcma_progress_leave_locked(struct shmcma_domain *domain);
/* It has ended, if it ran. Without the domain's lock. */
void shmcma_progress_stop(struct shmcma_domain *domain);
/* In a child of fork(2): none runs. Under shmcma_lists_lock(). */
void shmcma_progress_forked_locked(void);
/* All that run: the provider is about to go. */
void shmcma_progress_stop_all(void);

#endif
