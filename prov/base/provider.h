/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * provider.h: the provider as libfabric sees it: name, limits, log, error codes (provider.c).
 */
#ifndef SHMCMA_PROVIDER_H
#define SHMCMA_PROVIDER_H

#include <errno.h>
#include <stdbool.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <shmcma/core.h>

#define SHMCMA_NAME "shmcma"
#define SHMCMA_VERSION FI_VERSION(0, 1)
#define SHMCMA_IOV_LIMIT 8
#define SHMCMA_RMA_IOV_LIMIT SC_REMOTE_MAX
#define SHMCMA_INJECT_SIZE SC_INJECT_MAX
#define SHMCMA_DEFAULT_SIZE 1024 /* tx and rx size without hints */
#define SHMCMA_MAX_SIZE 65536
#define SHMCMA_CQ_DATA_SIZE 8
#define SHMCMA_CONTEXTS 256 /* contexts of each kind in a scalable endpoint */
/* The registration modes that the provider uses if the application is ready for them. */
#define SHMCMA_MR_MODES (FI_MR_VIRT_ADDR | FI_MR_PROV_KEY)
/* Order of RMA and atomics, among themselves and against each other. */
#define SHMCMA_MEMORY_ORDER (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)
#define SHMCMA_MULTI_MIN 64 /* the default of FI_OPT_MIN_MULTI_RECV */

extern struct fi_provider shmcma_provider;

#define shmcma_warn(subsys, ...) FI_WARN(&shmcma_provider, subsys, __VA_ARGS__)
#define shmcma_info(subsys, ...) FI_INFO(&shmcma_provider, subsys, __VA_ARGS__)

/* Tells whether a list such as "a;b" or "a,b" names this provider. */
bool shmcma_is_listed(const char *list);

/*
 * Returns libfabric's code for an error of the core, both negative. The core uses errno; libfabric lacks some of its
 * values.
 */
static inline int shmcma_error(int error)
{
	switch (error) {
	case -EUSERS:
		return -FI_EBUSY; /* all slots of the peer are taken; libfabric has no EUSERS */
	case -EPROTO:
		return -FI_ECONNABORTED; /* the peer breaks the protocol, or is of another version */
	case -SC_EFAULT_RECEIVER:
		return -FI_EFAULT;
	case -SC_EIO_INITIATOR:
		return -FI_EIO;
	case -ENOKEY:
		return -FI_ENOKEY; /* another number than errno's */
	default:
		return error;
	}
}

#endif
