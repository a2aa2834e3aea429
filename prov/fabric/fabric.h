/* SPDX-License-Identifier: BSD-2-Clause */
/* fabric.h: calls that the files of this folder share. */
#ifndef SHMCMA_FABRIC_H
#define SHMCMA_FABRIC_H

#include "wait/objects.h"

int shmcma_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		   const struct fi_info *hints, struct fi_info **info);
int shmcma_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
/* Checks the flags of fi_domain2 and fi_endpoint2. Only 0 is valid: there are no peer objects here. */
int shmcma_check_peer_flags(const char *call, uint64_t flags);
int shmcma_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);

#endif
