/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tagged.c: fi_ops_tagged, messages with a tag. Called by the thread that uses the endpoint; see post.h.
 */
#include "op/post.h"

#define SENT (FI_SEND | FI_TAGGED)
#define RECEIVED (FI_RECV | FI_TAGGED)

static inline struct sc_op_flags sent(uint32_t flags)
{
	return (struct sc_op_flags){ flags | SC_TAGGED, SENT };
}

/* With the endpoint's default flags. */
static inline struct sc_op_flags received(const struct shmcma_ep_fid *fid)
{
	return (struct sc_op_flags){ shmcma_now(fid->trecv_flags) | SC_TAGGED, RECEIVED };
}

SHMCMA_DATA_CALL(tagged_recv, struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t tag,
		 uint64_t ignore, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_recv_buf(fid, buf, len, source, tag, ignore, received(fid), context);
}

SHMCMA_DATA_CALL(tagged_recvv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t source,
		 uint64_t tag, uint64_t ignore, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_op_flags flags = received(fid);
	struct sc_recv recv = { .tag = tag,
				.ignore = ignore,
				.context = context,
				.cq_flags = flags.cq_flags,
				.flags = flags.flags };

	return shmcma_post_recv_iov(fid, iov, count, source, &recv);
}

SHMCMA_DATA_CALL(tagged_recvmsg, struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	uint64_t multi = fid->ep->caps & SHMCMA_TAGGED_MULTI_RECV ? FI_MULTI_RECV : 0;
	struct sc_recv recv = { .cq_flags = RECEIVED, .flags = SC_TAGGED };

	return shmcma_post_recvmsg(fid, msg, flags, SHMCMA_RECVMSG_FLAGS | multi, &recv);
}

SHMCMA_DATA_CALL(tagged_send, struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
		 void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, tag, 0, sent(shmcma_now(fid->send_flags)),
				    context);
}

SHMCMA_DATA_CALL(tagged_sendv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
		 uint64_t tag, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_send send = { .tag = tag,
				.context = context,
				.cq_flags = SENT,
				.flags = shmcma_now(fid->send_flags) | SC_TAGGED };

	return shmcma_post_send_iov(fid, iov, count, dest, &send);
}

SHMCMA_DATA_CALL(tagged_sendmsg, struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct sc_send send = { .cq_flags = SENT, .flags = SC_TAGGED };

	return shmcma_post_sendmsg(shmcma_ep_of(ep), msg, flags, &send);
}

/* If an injected message fails later, the error has the endpoint's context. */
SHMCMA_DATA_CALL(tagged_inject, struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, tag, 0, sent(shmcma_inject_flags(fid)),
				    ep->fid.context);
}

SHMCMA_DATA_CALL(tagged_senddata, struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
		 fi_addr_t dest, uint64_t tag, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, tag, data,
				    sent(shmcma_now(fid->send_flags) | SC_SEND_DATA), context);
}

SHMCMA_DATA_CALL(tagged_injectdata, struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
		 uint64_t tag)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	return shmcma_post_send_buf(fid, buf, len, dest, tag, data,
				    sent(shmcma_inject_flags(fid) | SC_SEND_DATA), ep->fid.context);
}

struct fi_ops_tagged shmcma_tagged_ops[] = SHMCMA_POST_OPS(struct fi_ops_tagged, tagged);
