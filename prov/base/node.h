/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * node.h: from the words of fi_getinfo(3) and fi_av(3) to addresses (node.c).
 */
#ifndef SHMCMA_NODE_H
#define SHMCMA_NODE_H

#include <stdbool.h>
#include <rdma/fabric.h>
#include <shmcma/core.h>

/* Node and service of fi_getinfo and fi_av_insertsvc: address of the service they name,
 * out[SC_ADDR_SIZE]. -FI_ENODATA: the node is not this machine; -FI_EINVAL: no possible name. */
int shmcma_node_address(const char *node, const char *service, uint64_t flags, char *out);
/* Is the node this machine? With the reason logged if not. */
bool shmcma_node_is_here(const char *node, uint64_t flags);
/* Is the node, which may be NULL, meant to be an address, SC_ADDR_PREFIX...? */
bool shmcma_node_is_address(const char *node);

/*
 * src_addr of an info whose endpoint is to have no name but its own address, which it gets when it is
 * enabled.
 */
#define SHMCMA_ADDR_ANY SC_ADDR_PREFIX

/*
 * An address handed in, such as info->src_addr: checked and copied to out[SC_ADDR_SIZE].
 * SHMCMA_ADDR_ANY gives SC_ADDR_INVALID and an empty string. -FI_EINVAL: no address of ours.
 */
int shmcma_address_copy(const void *addr, size_t addrlen, char *out, enum sc_addr_kind *kind);
/*
 * The service that an endpoint of this info is to be found under (its src_addr), name[SC_ADDR_SIZE];
 * empty: none. -FI_EINVAL: no address of ours; -FI_EADDRNOTAVAIL: an endpoint's own, which nobody chooses.
 */
int shmcma_source_service(const struct fi_info *info, char *name);

#endif
