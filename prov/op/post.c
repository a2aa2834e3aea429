/* SPDX-License-Identifier: BSD-2-Clause */
/* post.c: data calls out of line: with a lock, a trigger, or a peer that is not looked up yet. See post.h. */
#include "op/post.h"

ssize_t shmcma_send_refused_locked(struct shmcma_ep *ep, int error)
{
	if (error == -EAGAIN)
		shmcma_poll_for_room_locked(ep);
	return shmcma_error(error);
}

void shmcma_poll_for_room_locked(struct shmcma_ep *ep)
{
	if (!shmcma_ep_is_matched(ep))
		sc_ep_poll(ep->core);
}

ssize_t shmcma_post_send_buf_slow(struct shmcma_ep_fid *fid, const void *buf, size_t len, fi_addr_t dest,
				  uint64_t tag, uint64_t data, struct sc_op_flags flags, void *context)
{
	struct shmcma_ep *ep = fid->ep;
	struct sc_peer *peer;
	ssize_t ret;

	if (shmcma_is_nowhere(buf, len))
		return -FI_EINVAL;
	if (flags.flags & SHMCMA_TRIGGER) {
		const struct iovec iov = { (void *)buf, len };

		return shmcma_trigger_send(fid, dest,
					   &(struct sc_send){ .iov = &iov,
							      .iov_count = 1,
							      .tag = tag,
							      .data = data,
							      .context = context,
							      .flags = flags.flags,
							      .cq_flags = flags.cq_flags });
	}
	shmcma_lock_enter(&ep->locked);
	peer = shmcma_ep_peer(ep, dest);
	ret = peer ? sc_tx_send_buf(peer, (struct iovec){ (void *)buf, len }, (struct sc_tag_data){ tag, data }, flags,
				    context)
		   : shmcma_ep_no_peer(ep, dest);
	if (__builtin_expect(ret, 0))
		ret = shmcma_send_refused_locked(ep, (int)ret);
	shmcma_lock_leave(&ep->locked);
	return ret;
}

ssize_t shmcma_post_recv_buf_slow(struct shmcma_ep_fid *fid, void *buf, size_t len, fi_addr_t source,
				  uint64_t tag, uint64_t ignore, struct sc_op_flags flags, void *context)
{
	struct shmcma_ep *ep = fid->ep;
	struct sc_peer *peer;
	ssize_t ret;

	if (shmcma_is_nowhere(buf, len))
		return -FI_EINVAL;
	if (!shmcma_recv_is_plain(flags)) {
		const struct iovec iov = { buf, len };

		return shmcma_post_recv(fid, source,
					&(struct sc_recv){ .iov = &iov,
							   .iov_count = 1,
							   .tag = tag,
							   .ignore = ignore,
							   .context = context,
							   .flags = flags.flags,
							   .cq_flags = flags.cq_flags });
	}
	shmcma_lock_enter(&ep->locked);
	ret = shmcma_recv_source(ep, flags.cq_flags, source, &peer)
		      ? shmcma_error(sc_rxq_recv_buf(ep->rxq, peer, (struct iovec){ buf, len },
						     (struct sc_tag_mask){ tag, ignore },
						     (struct sc_op_args){ flags, context }))
		      : shmcma_ep_no_peer(ep, source);
	shmcma_lock_leave(&ep->locked);
	return ret;
}

ssize_t shmcma_post_recv_buf_from(struct shmcma_ep_fid *fid, void *buf, size_t len, fi_addr_t source,
				  uint64_t tag, uint64_t ignore, struct sc_op_flags flags, void *context)
{
	struct shmcma_ep *ep = fid->ep;
	struct sc_peer *peer = ep->namer ? shmcma_ep_peer_known(ep->namer, source) : NULL;
	int ret;

	if (__builtin_expect(!peer, 0))
		return shmcma_post_recv_buf_slow(fid, buf, len, source, tag, ignore, flags, context);
	ret = sc_rxq_recv_buf(ep->rxq, peer, (struct iovec){ buf, len },
			      (struct sc_tag_mask){ tag, ignore }, (struct sc_op_args){ flags, context });
	return __builtin_expect(ret, 0) ? shmcma_error(ret) : 0;
}
