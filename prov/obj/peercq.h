/* SPDX-License-Identifier: BSD-2-Clause */
/* peercq.h: completion queues of another provider (peercq.c). */
#ifndef SHMCMA_PEERCQ_H
#define SHMCMA_PEERCQ_H

#include "wait/objects.h"

/*
 * Returns the owner's object for an opening call in the domain of another provider. NULL: -FI_EINVAL, as there is none, or
 * the call asks for a wait object; a log line says so. FI_WAIT_UNSPEC and FI_WAIT_YIELD, which a provider may hand on from
 * its application, ask for none: the object that is opened gets FI_WAIT_NONE.
 */
void *shmcma_peer_object(const char *call, struct fid_domain *domain, enum fi_wait_obj wait_obj,
			 void *context);

/*
 * The endpoint ends: gives the queued completions to the other provider, under the queue's lock. If the other provider
 * refuses one, that one and those behind it stay in the queue, but receives of this endpoint are lost.
 */
void shmcma_peercq_end_locked(struct shmcma_cq *cq, const struct shmcma_ep *ep);

int shmcma_peercq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
		       void *context);

#endif
