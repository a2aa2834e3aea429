/* SPDX-License-Identifier: BSD-2-Clause */
/* cq.h: completion queues (cq.c). */
#ifndef SHMCMA_CQ_H
#define SHMCMA_CQ_H

#include "wait/objects.h"

/* Tells whether fi_cq_read() has something to return: completions, or an error. Under the queue's lock. */
bool shmcma_cq_has_entry(const struct shmcma_cq *cq);

/* Ends the polling of the endpoint before its peers are destroyed; its completions stay, with unknown source. */
void shmcma_cq_del_ep(struct shmcma_cq *cq, struct shmcma_ep *ep);

/* Writes a completion as an entry, and returns its source; writes a failed one. */
fi_addr_t shmcma_cq_put_entry(struct shmcma_cq *cq, struct fi_cq_tagged_entry *entry,
			      const struct sc_comp *comp);
void shmcma_cq_put_error(struct shmcma_cq *cq, struct fi_cq_err_entry *entry, const struct sc_comp *comp);
const char *shmcma_cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf,
			       size_t len);

int shmcma_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);

#endif
