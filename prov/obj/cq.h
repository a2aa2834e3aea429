/* SPDX-License-Identifier: BSD-2-Clause */
/* cq.h: completion queues (cq.c). */
#ifndef SHMCMA_CQ_H
#define SHMCMA_CQ_H

#include "wait/state.h"

/* Completions in the queue, or an error: fi_cq_read() has something to say. Under the queue's lock. */
bool shmcma_cq_has_entry(const struct shmcma_cq *cq);

/* The endpoint is polled no more, for its peers are about to go; completions stay, with unknown source. */
void shmcma_cq_del_ep(struct shmcma_cq *cq, struct shmcma_ep *ep);

int shmcma_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);

#endif
