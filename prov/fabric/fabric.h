/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric.h: the calls of this room that another file of it needs.
 */
#ifndef SHMCMA_FABRIC_H
#define SHMCMA_FABRIC_H

#include "wait/state.h"

/* ---- info.c, fabric.c, domain.c -------------------------------------------------------------- */

int shmcma_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		   const struct fi_info *hints, struct fi_info **info);
int shmcma_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int shmcma_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
		       void *context);

/* The wait object of that object; NULL: it has none. */
struct shmcma_wait *shmcma_wait_of(struct fid *fid);

/* ---- fork.c ---------------------------------------------------------------------------------- */

/* Once, when the provider is loaded. */
void shmcma_fork_init(void);
/* Has this process loaded the provider, or been made by a fork(2) that fork.c was told of? */
bool shmcma_fork_is_known(void);

#endif
