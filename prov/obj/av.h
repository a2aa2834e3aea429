/* SPDX-License-Identifier: BSD-2-Clause */
/* av.h: address vectors (av.c). */
#ifndef SHMCMA_AV_H
#define SHMCMA_AV_H

#include <rdma/fi_domain.h>

int shmcma_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);

#endif
