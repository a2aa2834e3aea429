/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided.c: fi_ops_rma: reads and writes of a peer's registered memory, from the arguments to struct sc_rma on the stack,
 * and from there into the core. Called by the thread that uses the endpoint.
 *
 * As with messages (post.h), no call checks the endpoint's state or capabilities: the operation tables decide that
 * (enum shmcma_rma). The completion, not the call, reports an error of the remote side (key, bounds, access). The core
 * decides how an operation ends after the peer's death or a refused connection.
 */
#include "op/post.h"

#include <rdma/fi_rma.h>

#define READ (FI_RMA | FI_READ)
#define WRITTEN (FI_RMA | FI_WRITE)

/*
 * FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE and FI_DELIVERY_COMPLETE make no difference: each operation completes when
 * its bytes have arrived. FI_MORE only says that others follow, which the core finds out by itself. There is no
 * persistent memory, so FI_COMMIT_COMPLETE is refused.
 */
#define READMSG_FLAGS                                                                                     \
	(FI_COMPLETION | FI_MORE | FI_FENCE | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |                 \
	 FI_DELIVERY_COMPLETE | FI_TRIGGER)
#define WRITEMSG_FLAGS (READMSG_FLAGS | FI_INJECT | FI_REMOTE_CQ_DATA)

/* The default flags of the endpoint that apply here. */
#define READ_DEFAULTS (SC_SILENT | SC_SEND_DELIVERY | SHMCMA_TRIGGER)
#define WRITE_DEFAULTS (READ_DEFAULTS | SC_SEND_INJECT)

/* ---- post ------------------------------------------------------------------------------------ */

SHMCMA_POST_TO_PEER(post_rma, struct sc_rma, sc_rma_post, shmcma_trigger_rma)

/* One range of the peer's memory. */
struct target {
	fi_addr_t peer;
	uint64_t addr, key;
};

static inline __attribute__((always_inline)) ssize_t post_buf(struct shmcma_ep_fid *fid, const void *buf,
							      size_t len, const struct target *target,
							      struct sc_rma *rma)
{
	const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	const struct sc_remote remote = { .addr = target->addr, .len = len, .key = target->key };

	if (shmcma_is_nowhere(buf, len))
		return -FI_EINVAL;
	rma->iov = &iov;
	rma->iov_count = 1;
	rma->remote = &remote;
	rma->remote_count = 1;
	return post_rma(fid, target->peer, rma);
}

static ssize_t post_iov(struct shmcma_ep_fid *fid, const struct iovec *iov, size_t count,
			const struct target *target, struct sc_rma *rma)
{
	struct sc_remote remote = { .addr = target->addr, .key = target->key };

	if (count > SHMCMA_IOV_LIMIT || (count && !iov) || shmcma_sum_iov(iov, count, &remote.len) ||
	    shmcma_has_nowhere(iov, count))
		return -FI_EINVAL;
	rma->iov = iov;
	rma->iov_count = count;
	rma->remote = &remote;
	rma->remote_count = 1;
	return post_rma(fid, target->peer, rma);
}

/* fi_readmsg, fi_writemsg: their flags replace the endpoint's. `rma` has the fields that differ between the two. */
static ssize_t post_msg(struct shmcma_ep_fid *fid, const struct fi_msg_rma *msg, uint64_t flags,
			struct sc_rma *rma)
{
	struct sc_remote remote[SHMCMA_RMA_IOV_LIMIT];
	uint64_t bytes, remote_bytes = 0;
	size_t count = 0;

	if (msg->iov_count > SHMCMA_IOV_LIMIT || (msg->iov_count && !msg->msg_iov) ||
	    !msg->rma_iov_count || msg->rma_iov_count > SHMCMA_RMA_IOV_LIMIT || !msg->rma_iov ||
	    shmcma_sum_iov(msg->msg_iov, msg->iov_count, &bytes) ||
	    shmcma_has_nowhere(msg->msg_iov, msg->iov_count))
		return -FI_EINVAL;
	for (size_t i = 0; i < msg->rma_iov_count; i++) {
		const struct fi_rma_iov *from = &msg->rma_iov[i];

		if (__builtin_add_overflow(remote_bytes, from->len, &remote_bytes))
			return -FI_EINVAL;
		/* an empty range is no access, unless there is nothing else */
		if (from->len || (i + 1 == msg->rma_iov_count && !remote_bytes))
			remote[count++] = (struct sc_remote){ .addr = from->addr,
							      .len = from->len,
							      .key = from->key };
	}
	if (bytes != remote_bytes)
		return -FI_EINVAL;
	rma->iov = msg->msg_iov;
	rma->iov_count = msg->iov_count;
	rma->remote = remote;
	rma->remote_count = count;
	rma->data = msg->data;
	rma->context = msg->context;
	rma->flags |= shmcma_send_flags(flags, fid->ep->tx_selective);
	return post_rma(fid, msg->addr, rma);
}

/* ---- read ------------------------------------------------------------------------------------ */

static inline struct sc_rma reading(const struct shmcma_ep_fid *fid, void *context)
{
	return (struct sc_rma){ .context = context,
				.cq_flags = READ,
				.flags = shmcma_now(fid->send_flags) & READ_DEFAULTS };
}

SHMCMA_DATA_CALL(rma_read, struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source,
		 uint64_t addr, uint64_t key, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_rma rma = reading(fid, context);

	return post_buf(fid, buf, len, &(struct target){ source, addr, key }, &rma);
}

SHMCMA_DATA_CALL(rma_readv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
		 fi_addr_t source, uint64_t addr, uint64_t key, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_rma rma = reading(fid, context);

	return post_iov(fid, iov, count, &(struct target){ source, addr, key }, &rma);
}

SHMCMA_DATA_CALL(rma_readmsg, struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	struct sc_rma rma = { .cq_flags = READ };

	if (flags & ~READMSG_FLAGS)
		return -FI_EBADFLAGS;
	return post_msg(shmcma_ep_of(ep), msg, flags, &rma);
}

/* ---- write ----------------------------------------------------------------------------------- */

static inline struct sc_rma writing(uint64_t data, void *context, uint32_t flags)
{
	return (struct sc_rma){
		.data = data, .context = context, .cq_flags = WRITTEN, .flags = flags | SC_RMA_WRITE
	};
}

static inline uint32_t write_defaults(const struct shmcma_ep_fid *fid)
{
	return shmcma_now(fid->send_flags) & WRITE_DEFAULTS;
}

SHMCMA_DATA_CALL(rma_write, struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
		 uint64_t addr, uint64_t key, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_rma rma = writing(0, context, write_defaults(fid));

	return post_buf(fid, buf, len, &(struct target){ dest, addr, key }, &rma);
}

SHMCMA_DATA_CALL(rma_writev, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
		 fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_rma rma = writing(0, context, write_defaults(fid));

	return post_iov(fid, iov, count, &(struct target){ dest, addr, key }, &rma);
}

SHMCMA_DATA_CALL(rma_writemsg, struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	struct sc_rma rma = { .cq_flags = WRITTEN, .flags = SC_RMA_WRITE };

	if (flags & ~WRITEMSG_FLAGS)
		return -FI_EBADFLAGS;
	return post_msg(shmcma_ep_of(ep), msg, flags, &rma);
}

/* If an injected write fails, the error has the endpoint's context. */
SHMCMA_DATA_CALL(rma_inject, struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t addr,
		 uint64_t key)
{
	struct sc_rma rma = writing(0, ep->fid.context, SHMCMA_INJECT_FLAGS);

	return post_buf(shmcma_ep_of(ep), buf, len, &(struct target){ dest, addr, key }, &rma);
}

SHMCMA_DATA_CALL(rma_writedata, struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
		 fi_addr_t dest, uint64_t addr, uint64_t key, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_rma rma = writing(data, context, write_defaults(fid) | SC_SEND_DATA);

	return post_buf(fid, buf, len, &(struct target){ dest, addr, key }, &rma);
}

SHMCMA_DATA_CALL(rma_injectdata, struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
		 fi_addr_t dest, uint64_t addr, uint64_t key)
{
	struct sc_rma rma = writing(data, ep->fid.context, SHMCMA_INJECT_FLAGS | SC_SEND_DATA);

	return post_buf(shmcma_ep_of(ep), buf, len, &(struct target){ dest, addr, key }, &rma);
}

/* ---- tables ---------------------------------------------------------------------------------- */

#define TABLE(reads, writes)                                                                              \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_rma), .read = reads##_read, .readv = reads##_readv,          \
		.readmsg = reads##_readmsg, .write = writes##_write, .writev = writes##_writev,           \
		.writemsg = writes##_writemsg, .inject = writes##_inject,                                 \
		.writedata = writes##_writedata, .injectdata = writes##_injectdata,                       \
	}

struct fi_ops_rma shmcma_rma_ops[] = {
	[SHMCMA_RMA_UNABLE] = TABLE(unable_rma, unable_rma),
	[SHMCMA_RMA_DISABLED] = TABLE(disabled_rma, disabled_rma),
	[SHMCMA_RMA_READ] = TABLE(rma, unable_rma),
	[SHMCMA_RMA_WRITE] = TABLE(unable_rma, rma),
	[SHMCMA_RMA_BOTH] = TABLE(rma, rma),
	[SHMCMA_RMA_FORKED] = TABLE(forked_rma, forked_rma),
};
