/* SPDX-License-Identifier: BSD-2-Clause */
/* peercntr.h: counters of another provider (peercntr.c). */
#ifndef SHMCMA_PEERCNTR_H
#define SHMCMA_PEERCNTR_H

#include "wait/objects.h"

int shmcma_peercntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr,
			 void *context);

#endif
