/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * unable.h: calls for what an endpoint cannot do at all: connections, contexts of a scalable endpoint. A
 * caller who tries gets an error code, not a jump to address 0. Only for ep.c.
 */
#ifndef SHMCMA_UNABLE_H
#define SHMCMA_UNABLE_H

#include <rdma/fi_cm.h>

#define UNABLE(type, error, name, ...)                                                                    \
	static type name(__VA_ARGS__)                                                                     \
	{                                                                                                 \
		return error;                                                                             \
	}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* An endpoint of type RDM has no connections; as elsewhere in libfabric, -FI_ENOSYS. */
#define CM(name, ...) UNABLE(int, -FI_ENOSYS, cm_##name, __VA_ARGS__)
CM(getpeer, struct fid_ep *ep, void *addr, size_t *addrlen)
CM(connect, struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
CM(listen, struct fid_pep *pep)
CM(accept, struct fid_ep *ep, const void *param, size_t paramlen)
CM(reject, struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
CM(shutdown, struct fid_ep *ep, uint64_t flags)

/* Contexts of a scalable endpoint. */
UNABLE(int, -FI_ENOSYS, no_tx_ctx, struct fid_ep *sep, int index, struct fi_tx_attr *attr,
       struct fid_ep **ep, void *context)
UNABLE(int, -FI_ENOSYS, no_rx_ctx, struct fid_ep *sep, int index, struct fi_rx_attr *attr,
       struct fid_ep **ep, void *context)

#pragma GCC diagnostic pop

#endif
