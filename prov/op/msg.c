/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * msg.c: fi_ops_msg, messages without tag. Called by the thread that uses the endpoint; see post.h.
 */
#include "op/post.h"

#define SENT (FI_SEND | FI_MSG)
#define RECEIVED (FI_RECV | FI_MSG)

static inline struct sc_op_flags sent(uint32_t flags)
{
	return (struct sc_op_flags){ flags, SENT };
}

/* With the endpoint's default flags. */
static inline struct sc_op_flags received(const struct shmcma_ep_fid *fid)
{
	return (struct sc_op_flags){ shmcma_now(fid->recv_flags), RECEIVED };
}

SHMCMA_DATA_CALL(msg_recv, struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_recv_buf(fid, buf, len, source, 0, 0, received(fid), context);
}

SHMCMA_DATA_CALL(msg_recvv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t source,
		 void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_recv recv = { .context = context,
				.cq_flags = RECEIVED,
				.flags = shmcma_now(fid->recv_flags) };

	return shmcma_post_recv_iov(fid, iov, count, source, &recv);
}

/* Makes a tagged message of it, so that both kinds share the rest of the way. */
static struct fi_msg_tagged untagged(const struct fi_msg *msg)
{
	return (struct fi_msg_tagged){
		.msg_iov = msg->msg_iov,
		.iov_count = msg->iov_count,
		.addr = msg->addr,
		.context = msg->context,
		.data = msg->data,
	};
}

SHMCMA_DATA_CALL(msg_recvmsg, struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	struct fi_msg_tagged same = untagged(msg);
	struct sc_recv recv = { .cq_flags = RECEIVED };

	return shmcma_post_recvmsg(shmcma_ep_of(ep), &same, flags, SHMCMA_RECVMSG_FLAGS | FI_MULTI_RECV,
				   &recv);
}

SHMCMA_DATA_CALL(msg_send, struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, 0, 0, sent(shmcma_now(fid->send_flags)), context);
}

SHMCMA_DATA_CALL(msg_sendv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
		 void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_send send = { .context = context,
				.cq_flags = SENT,
				.flags = shmcma_now(fid->send_flags) };

	return shmcma_post_send_iov(fid, iov, count, dest, &send);
}

SHMCMA_DATA_CALL(msg_sendmsg, struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	struct fi_msg_tagged same = untagged(msg);
	struct sc_send send = { .cq_flags = SENT };

	return shmcma_post_sendmsg(shmcma_ep_of(ep), &same, flags, &send);
}

/* If an injected message fails later, the error has the endpoint's context. */
SHMCMA_DATA_CALL(msg_inject, struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, 0, 0, sent(shmcma_inject_flags(fid)),
				    ep->fid.context);
}

SHMCMA_DATA_CALL(msg_senddata, struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
		 fi_addr_t dest, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, 0, data,
				    sent(shmcma_now(fid->send_flags) | SC_SEND_DATA), context);
}

SHMCMA_DATA_CALL(msg_injectdata, struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, 0, data,
				    sent(shmcma_inject_flags(fid) | SC_SEND_DATA), ep->fid.context);
}

struct fi_ops_msg shmcma_msg_ops[] = SHMCMA_POST_OPS(struct fi_ops_msg, msg);
