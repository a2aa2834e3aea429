/* SPDX-License-Identifier: BSD-2-Clause */
/* mr.h: registered memory (mr.c). */
#ifndef SHMCMA_MR_H
#define SHMCMA_MR_H

#include "wait/objects.h"

/* The fi_ops_mr of domains, and of those in a child of fork(2). */
extern struct fi_ops_mr shmcma_mr_ops, shmcma_mr_forked_ops;
int shmcma_mr_map_raw(const struct fi_mr_map_raw *map);
/* Tells whether the memory is registered with that domain. Any thread. */
bool shmcma_mr_is_of(const struct fid *mr, const struct shmcma_domain *domain);

#endif
