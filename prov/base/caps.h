/* SPDX-License-Identifier: BSD-2-Clause */
/* caps.h: what is offered and granted (caps.c), and what hints ask for (hints.c). */
#ifndef SHMCMA_CAPS_H
#define SHMCMA_CAPS_H

#include <rdma/fabric.h>

/*
 * Would an endpoint / domain with these attributes be granted? Used by getinfo for hints and by
 * fi_domain, fi_endpoint for the info handed in (info.c). 0 or -FI_ENODATA with the reason logged.
 */
int shmcma_check_hints(uint32_t version, const struct fi_info *hints);
/* The capabilities that an info grants: with the modifiers that they imply, and those that are granted unasked. */
uint64_t shmcma_granted_caps(const struct fi_info *info);

/*
 * Attributes of a context of an endpoint with these capabilities: as asked for in *attr, completed there.
 * -FI_EINVAL: not supported, with the reason logged. (info.c)
 */
int shmcma_tx_attr_complete(struct fi_tx_attr *attr, uint64_t caps);
int shmcma_rx_attr_complete(struct fi_rx_attr *attr, uint64_t caps);

#endif
