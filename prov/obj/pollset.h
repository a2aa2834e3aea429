/* SPDX-License-Identifier: BSD-2-Clause */
/* pollset.h: poll sets (pollset.c). */
#ifndef SHMCMA_POLLSET_H
#define SHMCMA_POLLSET_H

#include <rdma/fi_eq.h>

int shmcma_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **set);

#endif
