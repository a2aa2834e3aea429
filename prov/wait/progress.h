/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * progress.h: the lists of endpoints that objects poll; the thread that polls them by itself (progress.c).
 */
#ifndef SHMCMA_PROGRESS_H
#define SHMCMA_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "wait/wait.h"

struct shmcma_domain;
struct shmcma_ep;

/* Enabled endpoints, each once. Changed with all locks of the domain held. */
struct shmcma_polled {
	struct shmcma_ep **eps;
	size_t count, capacity;
};

/* Twice is the same as once. -FI_ENOMEM. */
int shmcma_polled_add(struct shmcma_polled *polled, struct shmcma_ep *ep);
void shmcma_polled_del(struct shmcma_polled *polled, const struct shmcma_ep *ep);
void shmcma_polled_fini(struct shmcma_polled *polled);

/* The thread of a domain with automatic progress. */
struct shmcma_progress {
	bool wanted;		 /* set when the domain is opened, never changed */
	uint64_t polls;		 /* by the application; under the domain's lock */
	struct shmcma_wait wait; /* of the domain: told of what is begun while the thread sleeps */
	atomic_bool stop;
	atomic_bool
		asleep; /* on words of the domain's endpoints, or about to; set under the domain's lock */
	/* progress.c's alone */
	pthread_mutex_t
		starting; /* one thread starts it, others that enable an endpoint wait; none in a child of fork(2) */
	bool running;
	pthread_t thread;
	struct shmcma_progress *next;
};

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
