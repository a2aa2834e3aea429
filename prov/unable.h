/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * unable.h: tables for what an endpoint cannot do at all: one-sided and atomic operations,
 * connections. A caller who tries gets an error code, not a jump to address 0. Only for ep.c.
 */
#ifndef SHMCMA_UNABLE_H
#define SHMCMA_UNABLE_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>

#define UNABLE(type, error, name, ...)                                                                    \
	static type name(__VA_ARGS__)                                                                     \
	{                                                                                                 \
		return error;                                                                             \
	}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define RMA(name, ...) UNABLE(ssize_t, -FI_EOPNOTSUPP, rma_##name, struct fid_ep *ep, __VA_ARGS__)
RMA(read, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
RMA(readv, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, uint64_t addr, uint64_t key,
    void *context)
RMA(readmsg, const struct fi_msg_rma *msg, uint64_t flags)
RMA(write, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key,
    void *context)
RMA(writev, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
    void *context)
RMA(writemsg, const struct fi_msg_rma *msg, uint64_t flags)
RMA(inject, const void *buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key)
RMA(writedata, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t addr,
    uint64_t key, void *context)
RMA(injectdata, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key)

static struct fi_ops_rma unable_rma = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};

#define ATOMIC(name, ...) UNABLE(ssize_t, -FI_EOPNOTSUPP, atomic_##name, struct fid_ep *ep, __VA_ARGS__)
ATOMIC(write, const void *buf, size_t count, void *desc, fi_addr_t to, uint64_t addr, uint64_t key,
       enum fi_datatype type, enum fi_op op, void *context)
ATOMIC(writev, const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr,
       uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
ATOMIC(writemsg, const struct fi_msg_atomic *msg, uint64_t flags)
ATOMIC(inject, const void *buf, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
       enum fi_datatype type, enum fi_op op)
ATOMIC(readwrite, const void *buf, size_t count, void *desc, void *result, void *result_desc, fi_addr_t to,
       uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
ATOMIC(readwritev, const struct fi_ioc *iov, void **desc, size_t count, struct fi_ioc *result,
       void **result_desc, size_t result_count, fi_addr_t to, uint64_t addr, uint64_t key,
       enum fi_datatype type, enum fi_op op, void *context)
ATOMIC(readwritemsg, const struct fi_msg_atomic *msg, struct fi_ioc *result, void **result_desc,
       size_t result_count, uint64_t flags)
ATOMIC(compwrite, const void *buf, size_t count, void *desc, const void *compare, void *compare_desc,
       void *result, void *result_desc, fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type,
       enum fi_op op, void *context)
ATOMIC(compwritev, const struct fi_ioc *iov, void **desc, size_t count, const struct fi_ioc *compare,
       void **compare_desc, size_t compare_count, struct fi_ioc *result, void **result_desc,
       size_t result_count, fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type,
       enum fi_op op, void *context)
ATOMIC(compwritemsg, const struct fi_msg_atomic *msg, const struct fi_ioc *compare, void **compare_desc,
       size_t compare_count, struct fi_ioc *result, void **result_desc, size_t result_count,
       uint64_t flags)
UNABLE(int, -FI_EOPNOTSUPP, atomic_valid, struct fid_ep *ep, enum fi_datatype type, enum fi_op op,
       size_t *count)

static struct fi_ops_atomic unable_atomic = {
	.size = sizeof(struct fi_ops_atomic),
	.write = atomic_write,
	.writev = atomic_writev,
	.writemsg = atomic_writemsg,
	.inject = atomic_inject,
	.readwrite = atomic_readwrite,
	.readwritev = atomic_readwritev,
	.readwritemsg = atomic_readwritemsg,
	.compwrite = atomic_compwrite,
	.compwritev = atomic_compwritev,
	.compwritemsg = atomic_compwritemsg,
	.writevalid = atomic_valid,
	.readwritevalid = atomic_valid,
	.compwritevalid = atomic_valid,
};

/* An endpoint of type RDM has no connections; as elsewhere in libfabric, -FI_ENOSYS. */
#define CM(name, ...) UNABLE(int, -FI_ENOSYS, cm_##name, __VA_ARGS__)
CM(getpeer, struct fid_ep *ep, void *addr, size_t *addrlen)
CM(connect, struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
CM(listen, struct fid_pep *pep)
CM(accept, struct fid_ep *ep, const void *param, size_t paramlen)
CM(reject, struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
CM(shutdown, struct fid_ep *ep, uint64_t flags)
CM(join, struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)

/* Contexts of a scalable endpoint. */
UNABLE(int, -FI_ENOSYS, no_tx_ctx, struct fid_ep *sep, int index, struct fi_tx_attr *attr,
       struct fid_ep **ep, void *context)
UNABLE(int, -FI_ENOSYS, no_rx_ctx, struct fid_ep *sep, int index, struct fi_rx_attr *attr,
       struct fid_ep **ep, void *context)

#pragma GCC diagnostic pop

#endif
