/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * node.h: node and service of fi_getinfo(3) and fi_av(3) as addresses (node.c).
 */
#ifndef SHMCMA_NODE_H
#define SHMCMA_NODE_H

#include <stdbool.h>
#include <rdma/fabric.h>
#include <shmcma/core.h>

/*
 * Finds the address of the service that node and service of fi_getinfo or fi_av_insertsvc name, out[SC_ADDR_SIZE].
 * -FI_ENODATA: the node is not this machine; -FI_EINVAL: no possible name.
 */
int shmcma_node_address(const char *node, const char *service, uint64_t flags, char *out);
/* Tells whether the node is this machine; logs the reason if it is not. */
bool shmcma_node_is_here(const char *node, uint64_t flags);
/* Tells whether the node, which may be NULL, has the form of an address: SC_ADDR_PREFIX..., or any prefix:// */
bool shmcma_node_is_address(const char *node);
/*
 * Returns the address that a text from the application stands for: the text itself; if any text is a name
 * (shmcma_module), the address of a service, in out[SC_ADDR_SIZE]. A prefix:// before the name has no meaning.
 */
const char *shmcma_address_of(const char *text, char *out);

/* src_addr of an info whose endpoint has only its own address, which it gets when it is enabled. */
#define SHMCMA_ADDR_ANY SC_ADDR_PREFIX

/*
 * Checks an address from the application, such as info->src_addr, and copies it to out[SC_ADDR_SIZE]. SHMCMA_ADDR_ANY
 * gives SC_ADDR_INVALID and an empty string. -FI_EINVAL: no address of this provider.
 */
int shmcma_address_copy(const void *addr, size_t addrlen, char *out, enum sc_addr_kind *kind);
/*
 * Finds the service name that peers use for an endpoint of this info (its src_addr), name[SC_ADDR_SIZE]; empty: none.
 * -FI_EINVAL: no address of this provider; -FI_EADDRNOTAVAIL: an endpoint's own address, which cannot be chosen.
 */
int shmcma_source_service(const struct fi_info *info, char *name);

#endif
