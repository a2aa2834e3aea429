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

static ssize_t msg_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source,
			void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	(void)desc;
	return shmcma_post_recv_buf(fid, buf, len, source, 0, 0, received(fid), context);
}

static ssize_t msg_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
			 fi_addr_t source, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_recv recv = { .context = context,
				.cq_flags = RECEIVED,
				.flags = shmcma_now(fid->recv_flags) };

	(void)desc;
	return shmcma_post_recv_iov(fid, iov, count, source, &recv);
}

/* The same without tag, so that both kinds go one way from here. */
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

static ssize_t msg_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	struct fi_msg_tagged same = untagged(msg);
	struct sc_recv recv = { .cq_flags = RECEIVED };

	return shmcma_post_recvmsg(shmcma_ep_of(ep), &same, flags, SHMCMA_RECVMSG_FLAGS | FI_MULTI_RECV,
				   &recv);
}

static ssize_t msg_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
			void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	(void)desc;
	return shmcma_post_send_buf(fid, buf, len, dest, 0, 0, sent(shmcma_now(fid->send_flags)), context);
}

static ssize_t msg_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
			 fi_addr_t dest, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_send send = { .context = context,
				.cq_flags = SENT,
				.flags = shmcma_now(fid->send_flags) };

	(void)desc;
	return shmcma_post_send_iov(fid, iov, count, dest, &send);
}

static ssize_t msg_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	struct fi_msg_tagged same = untagged(msg);
	struct sc_send send = { .cq_flags = SENT };

	return shmcma_post_sendmsg(shmcma_ep_of(ep), &same, flags, &send);
}

/* Should an injected message fail later, the error carries the endpoint's context. */
static ssize_t msg_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest)
{
	return shmcma_post_send_buf(shmcma_ep_of(ep), buf, len, dest, 0, 0, sent(SHMCMA_INJECT_FLAGS),
				    ep->fid.context);
}

static ssize_t msg_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
			    fi_addr_t dest, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);

	(void)desc;
	return shmcma_post_send_buf(fid, buf, len, dest, 0, data,
				    sent(shmcma_now(fid->send_flags) | SC_SEND_DATA), context);
}

static ssize_t msg_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
			      fi_addr_t dest)
{
	return shmcma_post_send_buf(shmcma_ep_of(ep), buf, len, dest, 0, data,
				    sent(SHMCMA_INJECT_FLAGS | SC_SEND_DATA), ep->fid.context);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
SHMCMA_REFUSE(recv, struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source, void *context)
SHMCMA_REFUSE(recvv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
	      fi_addr_t source, void *context)
SHMCMA_REFUSE(recvmsg, struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
SHMCMA_REFUSE(send, struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
	      void *context)
SHMCMA_REFUSE(sendv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
	      void *context)
SHMCMA_REFUSE(sendmsg, struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
SHMCMA_REFUSE(inject, struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest)
SHMCMA_REFUSE(senddata, struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
	      fi_addr_t dest, void *context)
SHMCMA_REFUSE(injectdata, struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest)
#pragma GCC diagnostic pop

static struct fi_ops_msg tables[] = SHMCMA_POST_OPS(struct fi_ops_msg, msg);

struct fi_ops_msg *shmcma_msg_ops(enum shmcma_post post)
{
	return &tables[post];
}
