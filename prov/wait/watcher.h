/* SPDX-License-Identifier: BSD-2-Clause */
/* watcher.h: threads that sleep on endpoints for waiting threads (watcher.c). */
#ifndef SHMCMA_WATCHER_H
#define SHMCMA_WATCHER_H

#include "wait/objects.h"

/*
 * Makes the watcher of that endpoint, started if there is none, signal the object, too. -FI_EAGAIN: no memory or
 * thread.
 */
int shmcma_watcher_add_locked(struct shmcma_watcher **watcher, struct sc_ep *core, struct shmcma_wait *wait);
/* Makes the watcher forget the object. NULL: no watcher. */
void shmcma_watcher_del(struct shmcma_watcher *watcher, const struct shmcma_wait *wait);
/* Makes the watcher signal at `limit` (ns) at the latest; if it sleeps for longer, it looks again. */
void shmcma_watcher_limit(struct shmcma_watcher *watcher, int64_t limit);
/*
 * Ends the watcher before its endpoint is destroyed; with the domain's locks. `resume`: called for each object that listens
 * still; shmcma_wait_resume_locked().
 */
void shmcma_watcher_end_locked(struct shmcma_domain *domain, struct shmcma_watcher **watcher,
			       void (*resume)(struct shmcma_domain *, struct shmcma_wait *));

#endif
