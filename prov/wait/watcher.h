/* SPDX-License-Identifier: BSD-2-Clause */
/* watcher.h: threads that sleep for those who wait with an object of the system (watcher.c). */
#ifndef SHMCMA_WATCHER_H
#define SHMCMA_WATCHER_H

#include "wait/state.h"

/* The watcher of that endpoint, started if there is none, signals it too. -FI_EAGAIN: none can be had. */
int shmcma_watcher_add_locked(struct shmcma_watcher **watcher, struct sc_ep *core, struct shmcma_wait *wait);
/* It does not know it any more. NULL: no watcher. */
void shmcma_watcher_del(struct shmcma_watcher *watcher, const struct shmcma_wait *wait);
/* The watcher is to signal by then. One that is sleeping for longer is stirred. */
void shmcma_watcher_limit(struct shmcma_watcher *watcher, int64_t limit);
/* The endpoint that is watched is about to end; with the domain's lock. */
void shmcma_watcher_end_locked(const struct shmcma_domain *domain, struct shmcma_watcher **watcher);

#endif
