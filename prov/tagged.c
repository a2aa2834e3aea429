/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tagged.c: fi_ops_tagged, messages with a tag. Called by the thread that uses the endpoint; see post.h.
 */
#include "post.h"

#define SENT (FI_SEND | FI_TAGGED)
#define RECEIVED (FI_RECV | FI_TAGGED)

/* With the endpoint's default flags; a multi-receive buffer is for messages without tag only. */
static inline struct sc_recv receive(const struct shmcma_ep_fid *fid, uint64_t tag, uint64_t ignore,
				     void *context)
{
	return (struct sc_recv){ .tag = tag,
				 .ignore = ignore,
				 .context = context,
				 .cq_flags = RECEIVED,
				 .flags = (shmcma_now(fid->recv_flags) & ~SC_RECV_MULTI) | SC_TAGGED };
}

static inline struct sc_send message(uint64_t tag, uint64_t data, void *context, uint32_t flags)
{
	return (struct sc_send){
		.tag = tag, .data = data, .context = context, .cq_flags = SENT, .flags = flags | SC_TAGGED
	};
}

static ssize_t tagged_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source,
			   uint64_t tag, uint64_t ignore, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_recv recv = receive(fid, tag, ignore, context);

	(void)desc;
	return shmcma_post_recv_buf(fid, buf, len, source, recv);
}

static ssize_t tagged_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
			    fi_addr_t source, uint64_t tag, uint64_t ignore, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_recv recv = receive(fid, tag, ignore, context);

	(void)desc;
	return shmcma_post_recv_iov(fid, iov, count, source, &recv);
}

static ssize_t tagged_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct sc_recv recv = { .cq_flags = RECEIVED, .flags = SC_TAGGED };

	return shmcma_post_recvmsg(shmcma_ep_of(ep), msg, flags, SHMCMA_RECVMSG_FLAGS, &recv);
}

static ssize_t tagged_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
			   uint64_t tag, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_send send = message(tag, 0, context, shmcma_now(fid->send_flags));

	(void)desc;
	return shmcma_post_send_buf(fid, buf, len, dest, send);
}

static ssize_t tagged_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
			    fi_addr_t dest, uint64_t tag, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_send send = message(tag, 0, context, shmcma_now(fid->send_flags));

	(void)desc;
	return shmcma_post_send_iov(fid, iov, count, dest, &send);
}

static ssize_t tagged_sendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct sc_send send = { .cq_flags = SENT, .flags = SC_TAGGED };

	return shmcma_post_sendmsg(shmcma_ep_of(ep), msg, flags, &send);
}

/* Should an injected message fail later, the error carries the endpoint's context. */
static ssize_t tagged_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
	struct sc_send send = message(tag, 0, ep->fid.context, SHMCMA_INJECT_FLAGS);

	return shmcma_post_send_buf(shmcma_ep_of(ep), buf, len, dest, send);
}

static ssize_t tagged_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
			       fi_addr_t dest, uint64_t tag, void *context)
{
	struct shmcma_ep_fid *fid = shmcma_ep_of(ep);
	struct sc_send send = message(tag, data, context, shmcma_now(fid->send_flags) | SC_SEND_DATA);

	(void)desc;
	return shmcma_post_send_buf(fid, buf, len, dest, send);
}

static ssize_t tagged_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
				 fi_addr_t dest, uint64_t tag)
{
	struct sc_send send = message(tag, data, ep->fid.context, SHMCMA_INJECT_FLAGS | SC_SEND_DATA);

	return shmcma_post_send_buf(shmcma_ep_of(ep), buf, len, dest, send);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
SHMCMA_REFUSE(recv, struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t tag,
	      uint64_t ignore, void *context)
SHMCMA_REFUSE(recvv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
	      fi_addr_t source, uint64_t tag, uint64_t ignore, void *context)
SHMCMA_REFUSE(recvmsg, struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
SHMCMA_REFUSE(send, struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
	      uint64_t tag, void *context)
SHMCMA_REFUSE(sendv, struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
	      uint64_t tag, void *context)
SHMCMA_REFUSE(sendmsg, struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
SHMCMA_REFUSE(inject, struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
SHMCMA_REFUSE(senddata, struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
	      fi_addr_t dest, uint64_t tag, void *context)
SHMCMA_REFUSE(injectdata, struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
	      uint64_t tag)
#pragma GCC diagnostic pop

static struct fi_ops_tagged tables[] = SHMCMA_POST_OPS(struct fi_ops_tagged, tagged);

struct fi_ops_tagged *shmcma_tagged_ops(enum shmcma_post post)
{
	return &tables[post];
}
