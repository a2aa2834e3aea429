/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * post.h: the common part of data calls: the operation tables, and for plain and tagged messages the way from the
 * arguments to struct sc_send or struct sc_recv on the stack, and from there into the core.
 *
 * A data call never checks whether the endpoint is enabled or has the capability: the endpoint's operation tables
 * decide that (enum shmcma_post). Plain and tagged messages differ in SC_TAGGED, tag, ignore bits and completion flags,
 * which the caller fills in.
 */
#ifndef SHMCMA_POST_H
#define SHMCMA_POST_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include "base/attr.h"
#include "obj/peermap.h"
#include "wait/lock.h"
#include "op/trigger.h"

/* The calls that a table allows. */
enum shmcma_post {
	SHMCMA_POST_UNABLE,   /* none: not among the endpoint's capabilities, -FI_EOPNOTSUPP */
	SHMCMA_POST_DISABLED, /* none: before fi_enable, -FI_EOPBADSTATE */
	SHMCMA_POST_SEND,     /* send; receives -FI_EOPNOTSUPP */
	SHMCMA_POST_RECV,     /* receive; sends -FI_EOPNOTSUPP */
	SHMCMA_POST_BOTH,
	SHMCMA_POST_FORKED, /* none: inherited by fork(2), SHMCMA_FORKED */
};

/* The same for memory of peers: RMA and atomics. */
enum shmcma_rma {
	SHMCMA_RMA_UNABLE,
	SHMCMA_RMA_DISABLED,
	SHMCMA_RMA_READ,  /* writes: -FI_EOPNOTSUPP */
	SHMCMA_RMA_WRITE, /* reads: -FI_EOPNOTSUPP */
	SHMCMA_RMA_BOTH,
	SHMCMA_RMA_FORKED,
};

/*
 * Defines a data call, whose body follows, and the functions that replace it: for an endpoint without the capability,
 * before fi_enable, in a child of fork(2).
 */
#define SHMCMA_DATA_CALL(name, ...)                                                                       \
	static ssize_t unable_##name(__VA_ARGS__)                                                         \
	{                                                                                                 \
		return -FI_EOPNOTSUPP;                                                                    \
	}                                                                                                 \
	static ssize_t disabled_##name(__VA_ARGS__)                                                       \
	{                                                                                                 \
		return -FI_EOPBADSTATE;                                                                   \
	}                                                                                                 \
	static ssize_t forked_##name(__VA_ARGS__)                                                         \
	{                                                                                                 \
		return shmcma_forked();                                                                   \
	}                                                                                                 \
	static ssize_t name(__VA_ARGS__)

#define SHMCMA_POST_TABLE(type, tx, rx)                                                                   \
	{                                                                                                 \
		.size = sizeof(type), .recv = rx##_recv, .recvv = rx##_recvv, .recvmsg = rx##_recvmsg,    \
		.send = tx##_send, .sendv = tx##_sendv, .sendmsg = tx##_sendmsg, .inject = tx##_inject,   \
		.senddata = tx##_senddata, .injectdata = tx##_injectdata,                                 \
	}

/* All tables of a kind; its operations are called kind_send and so on. */
#define SHMCMA_POST_OPS(type, kind)                                                                       \
	{                                                                                                 \
		[SHMCMA_POST_UNABLE] = SHMCMA_POST_TABLE(type, unable_##kind, unable_##kind),             \
		[SHMCMA_POST_DISABLED] = SHMCMA_POST_TABLE(type, disabled_##kind, disabled_##kind),       \
		[SHMCMA_POST_SEND] = SHMCMA_POST_TABLE(type, kind, unable_##kind),                        \
		[SHMCMA_POST_RECV] = SHMCMA_POST_TABLE(type, unable_##kind, kind),                        \
		[SHMCMA_POST_BOTH] = SHMCMA_POST_TABLE(type, kind, kind),                                 \
		[SHMCMA_POST_FORKED] = SHMCMA_POST_TABLE(type, forked_##kind, forked_##kind),             \
	}

/* msg.c and tagged.c: by enum shmcma_post; onesided.c and atomics.c: by enum shmcma_rma. */
extern struct fi_ops_msg shmcma_msg_ops[];
extern struct fi_ops_tagged shmcma_tagged_ops[];
extern struct fi_ops_rma shmcma_rma_ops[];
extern struct fi_ops_atomic shmcma_atomic_ops[];

int shmcma_query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
			struct fi_atomic_attr *attr, uint64_t flags);

#define SHMCMA_SENDMSG_FLAGS (SHMCMA_TX_OP_FLAGS | FI_REMOTE_CQ_DATA | FI_MORE | FI_FENCE)
#define SHMCMA_RECVMSG_FLAGS                                                                              \
	(FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE | FI_PEEK | FI_CLAIM | FI_DISCARD | FI_TRIGGER)

/* A flag of receives that the core never sees: they need a source, and take the longer way, where that is checked. */
#define SHMCMA_EXACT (1u << 30)

#define SHMCMA_INJECT_FLAGS (SC_SEND_INJECT | SC_SILENT) /* fi_inject and the like */

/*
 * The same for an endpoint whose operations complete with their delivery or match: a counter then counts what is injected
 * at that time, too, by which the application knows when it is done.
 */
static inline uint32_t shmcma_inject_flags(const struct shmcma_ep_fid *fid)
{
	return SHMCMA_INJECT_FLAGS | (shmcma_now(fid->send_flags) & (SC_SEND_DELIVERY | SC_SEND_MATCH));
}

/*
 * Returns the core's flags of a send. Inject complete and transmit complete are the core's default; FI_MORE needs
 * nothing, because each message is published at once.
 */
static inline uint32_t shmcma_send_flags(uint64_t flags, bool selective)
{
	return (selective && !(flags & FI_COMPLETION) ? SC_SILENT : 0) |
	       (flags & FI_REMOTE_CQ_DATA ? SC_SEND_DATA : 0) | (flags & FI_INJECT ? SC_SEND_INJECT : 0) |
	       (flags & FI_DELIVERY_COMPLETE ? SC_SEND_DELIVERY : 0) |
	       (flags & FI_MATCH_COMPLETE ? SC_SEND_MATCH : 0) | (flags & FI_FENCE ? SC_SEND_FENCE : 0) |
	       (flags & FI_TRIGGER ? SHMCMA_TRIGGER : 0);
}

/* Returns the core's flags of a receive. The only result of a peek is its completion. */
static inline uint32_t shmcma_recv_flags(uint64_t flags, bool selective)
{
	return (selective && !(flags & (FI_COMPLETION | FI_PEEK)) ? SC_SILENT : 0) |
	       (flags & FI_MULTI_RECV ? SC_RECV_MULTI : 0) | (flags & FI_PEEK ? SC_RECV_PEEK : 0) |
	       (flags & FI_CLAIM ? SC_RECV_CLAIM : 0) | (flags & FI_DISCARD ? SC_RECV_DISCARD : 0) |
	       (flags & FI_TRIGGER ? SHMCMA_TRIGGER : 0);
}

/*
 * Called when the core has refused a send with this error; the caller holds the endpoint's lock. If there is no space,
 * the function makes progress, so that the next try of a caller that only sends can succeed. Returns libfabric's code
 * for the error.
 */
ssize_t shmcma_send_refused_locked(struct shmcma_ep *ep, int error);

/* The same progress; none for an endpoint whose receives another provider posts, as this would call that provider. */
void shmcma_poll_for_room_locked(struct shmcma_ep *ep);

static inline ssize_t shmcma_post_send(struct shmcma_ep_fid *fid, fi_addr_t dest, const struct sc_send *send)
{
	struct shmcma_ep *ep = fid->ep;
	struct sc_peer *peer;
	ssize_t ret;

	if (__builtin_expect(send->flags & SHMCMA_TRIGGER, 0))
		return shmcma_trigger_send(fid, dest, send);
	shmcma_lock_enter(&ep->locked);
	peer = shmcma_ep_peer(ep, dest);
	ret = peer ? sc_tx_send(ep->core, peer, send) : shmcma_ep_no_peer(ep, dest);
	if (__builtin_expect(ret, 0))
		ret = shmcma_send_refused_locked(ep, (int)ret);
	shmcma_lock_leave(&ep->locked);
	return ret;
}

/*
 * Defines `name(fid, addr, op)`, which posts an operation on a peer's memory. If there is no space, it makes progress
 * and tries once more, so that a caller that only posts makes progress.
 */
#define SHMCMA_POST_TO_PEER(name, type, post, trigger)                                                    \
	static ssize_t name##_slow(struct shmcma_ep *ep, fi_addr_t addr, const type *op, int error)       \
	{                                                                                                 \
		struct sc_peer *peer;                                                                     \
                                                                                                          \
		if (error != -EAGAIN)                                                                     \
			return shmcma_error(error);                                                       \
		shmcma_poll_for_room_locked(ep);                                                          \
		peer = shmcma_ep_peer(ep, addr); /* the poll may have freed it */                         \
		return peer ? shmcma_error(post(ep->core, peer, op)) : shmcma_ep_no_peer(ep, addr);       \
	}                                                                                                 \
	static inline __attribute__((always_inline)) ssize_t name(struct shmcma_ep_fid *fid,              \
								  fi_addr_t addr, const type *op)         \
	{                                                                                                 \
		struct shmcma_ep *ep = fid->ep;                                                           \
		struct sc_peer *peer;                                                                     \
		ssize_t ret;                                                                              \
                                                                                                          \
		if (__builtin_expect(op->flags & SHMCMA_TRIGGER, 0))                                      \
			return trigger(fid, addr, op);                                                    \
		shmcma_lock_enter(&ep->locked);                                                           \
		peer = shmcma_ep_peer(ep, addr);                                                          \
		if (__builtin_expect(peer != NULL, 1)) {                                                  \
			ret = post(ep->core, peer, op);                                                   \
			if (__builtin_expect(ret, 0))                                                     \
				ret = name##_slow(ep, addr, op, (int)ret);                                \
		} else {                                                                                  \
			ret = shmcma_ep_no_peer(ep, addr);                                                \
		}                                                                                         \
		shmcma_lock_leave(&ep->locked);                                                           \
		return ret;                                                                               \
	}

/* post.c: the same with a lock, a trigger, or a peer that is not looked up yet. */
ssize_t shmcma_post_send_buf_slow(struct shmcma_ep_fid *fid, const void *buf, size_t len, fi_addr_t dest,
				  uint64_t tag, uint64_t data, struct sc_op_flags flags, void *context);

/*
 * Sends one buffer. After the core's call the function uses only the endpoint, so the compiler need not keep the other
 * arguments during the call.
 */
static inline __attribute__((always_inline)) ssize_t
shmcma_post_send_buf(struct shmcma_ep_fid *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t tag,
		     uint64_t data, struct sc_op_flags flags, void *context)
{
	struct shmcma_ep *ep = fid->ep;
	struct sc_peer *peer = NULL;
	int ret;

	if (shmcma_lock_is_idle(&ep->locked) && __builtin_expect(!(flags.flags & SHMCMA_TRIGGER), 1))
		peer = shmcma_ep_peer_known(ep, dest);
	if (__builtin_expect(!peer, 0))
		return shmcma_post_send_buf_slow(fid, buf, len, dest, tag, data, flags, context);
	ret = sc_tx_send_buf(peer, (struct iovec){ (void *)buf, len }, (struct sc_tag_data){ tag, data }, flags, context);
	return __builtin_expect(ret, 0) ? shmcma_send_refused_locked(ep, ret) : 0;
}

/*
 * Tells whether there are bytes without an address. The calls with one buffer check this only in
 * shmcma_post_send_buf_slow(); a small message with a null pointer faults in the copy, as in memcpy(3).
 */
static inline bool shmcma_is_nowhere(const void *buf, size_t len)
{
	return __builtin_expect(!buf && len, 0);
}

static inline bool shmcma_has_nowhere(const struct iovec *iov, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (shmcma_is_nowhere(iov[i].iov_base, iov[i].iov_len))
			return true;
	return false;
}

static inline ssize_t shmcma_post_send_iov(struct shmcma_ep_fid *fid, const struct iovec *iov,
					   size_t count, fi_addr_t dest, struct sc_send *send)
{
	if (count > SHMCMA_IOV_LIMIT || (count && !iov) || shmcma_has_nowhere(iov, count))
		return -FI_EINVAL;
	send->iov = iov;
	send->iov_count = count;
	return shmcma_post_send(fid, dest, send);
}

/* fi_sendmsg, fi_tsendmsg: their flags replace the endpoint's. `send` has SC_TAGGED and the completion flags. */
static inline ssize_t shmcma_post_sendmsg(struct shmcma_ep_fid *fid, const struct fi_msg_tagged *msg,
					  uint64_t flags, struct sc_send *send)
{
	if (flags & ~SHMCMA_SENDMSG_FLAGS)
		return -FI_EBADFLAGS;
	send->tag = msg->tag;
	send->data = msg->data;
	send->context = msg->context;
	send->flags |= shmcma_send_flags(flags, fid->ep->tx_selective);
	return shmcma_post_send_iov(fid, msg->msg_iov, msg->iov_count, msg->addr, send);
}

static inline ssize_t shmcma_post_recv(struct shmcma_ep_fid *fid, fi_addr_t source, struct sc_recv *recv)
{
	struct shmcma_ep *ep = fid->ep;
	ssize_t ret;
	bool known;

	if (__builtin_expect(source == FI_ADDR_UNSPEC && shmcma_is_exact(ep, recv->cq_flags), 0))
		return -FI_EINVAL;
	recv->flags &= ~SHMCMA_EXACT;
	recv->multi_min = shmcma_now(ep->multi_min);
	if (__builtin_expect(recv->flags & SHMCMA_TRIGGER, 0))
		return shmcma_trigger_recv(fid, source, recv);
	shmcma_lock_enter(&ep->locked);
	known = shmcma_recv_source(ep, recv->cq_flags, source, &recv->source);
	ret = known ? shmcma_error(sc_rxq_recv(ep->rxq, recv)) : shmcma_ep_no_peer(ep, source);
	shmcma_lock_leave(&ep->locked);
	return ret;
}

/* post.c: the same with a lock, a trigger, a source that is not looked up yet, or a multi-receive. */
ssize_t shmcma_post_recv_buf_slow(struct shmcma_ep_fid *fid, void *buf, size_t len, fi_addr_t source,
				  uint64_t tag, uint64_t ignore, struct sc_op_flags flags, void *context);
/* post.c: the same from one source, without lock, trigger or multi-receive. */
ssize_t shmcma_post_recv_buf_from(struct shmcma_ep_fid *fid, void *buf, size_t len, fi_addr_t source,
				  uint64_t tag, uint64_t ignore, struct sc_op_flags flags, void *context);

/* Tells whether sc_rxq_recv_buf() can do the receive. */
static inline bool shmcma_recv_is_plain(struct sc_op_flags flags)
{
	return __builtin_expect(!(flags.flags & ~(SC_TAGGED | SC_SILENT)), 1);
}

/*
 * Like shmcma_post_send_buf(). The source is looked up out of line, because that needs the registers of the arguments.
 */
static inline __attribute__((always_inline)) ssize_t
shmcma_post_recv_buf(struct shmcma_ep_fid *fid, void *buf, size_t len, fi_addr_t source, uint64_t tag,
		     uint64_t ignore, struct sc_op_flags flags, void *context)
{
	struct shmcma_ep *ep = fid->ep;
	int ret;

	if (!shmcma_lock_is_idle(&ep->locked) || !shmcma_recv_is_plain(flags))
		return shmcma_post_recv_buf_slow(fid, buf, len, source, tag, ignore, flags, context);
	if (source != FI_ADDR_UNSPEC && shmcma_is_directed(ep, flags.cq_flags))
		return shmcma_post_recv_buf_from(fid, buf, len, source, tag, ignore, flags, context);
	ret = sc_rxq_recv_buf(ep->rxq, NULL, (struct iovec){ buf, len },
			      (struct sc_tag_mask){ tag, ignore }, (struct sc_op_args){ flags, context });
	return __builtin_expect(ret, 0) ? shmcma_error(ret) : 0;
}

/* -FI_EINVAL: the sum overflows. */
static inline int shmcma_sum_iov(const struct iovec *iov, size_t count, uint64_t *sum)
{
	*sum = 0;
	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(*sum, iov[i].iov_len, sum))
			return -FI_EINVAL;
	return 0;
}

/* A peek needs no buffer. */
static inline ssize_t shmcma_post_recv_iov(struct shmcma_ep_fid *fid, const struct iovec *iov,
					   size_t count, fi_addr_t source, struct sc_recv *recv)
{
	uint64_t sum;

	if (count > SHMCMA_IOV_LIMIT || (count && !iov) || shmcma_sum_iov(iov, count, &sum))
		return -FI_EINVAL;
	if (recv->flags & SC_RECV_MULTI && count != 1)
		return -FI_EINVAL;
	if (!(recv->flags & SC_RECV_PEEK) && shmcma_has_nowhere(iov, count))
		return -FI_EINVAL;
	recv->iov = iov;
	recv->iov_count = count;
	return shmcma_post_recv(fid, source, recv);
}

/* Returns false if flags contradict each other, or a claim has no context. */
static inline bool shmcma_recv_flags_fit(uint64_t flags, const void *context)
{
	bool peek = flags & FI_PEEK, claim = flags & FI_CLAIM, discard = flags & FI_DISCARD;

	if (flags & FI_MULTI_RECV && (peek || claim || discard))
		return false;
	if (discard && peek == claim)
		return false;
	return !claim || context;
}

/* fi_recvmsg, fi_trecvmsg. `legal`: the flags of this kind; `recv` has SC_TAGGED and the completion flags. */
static inline ssize_t shmcma_post_recvmsg(struct shmcma_ep_fid *fid, const struct fi_msg_tagged *msg,
					  uint64_t flags, uint64_t legal, struct sc_recv *recv)
{
	bool discard = flags & FI_DISCARD;

	if (flags & ~legal)
		return -FI_EBADFLAGS;
	if (!shmcma_recv_flags_fit(flags, msg->context))
		return -FI_EINVAL;
	recv->tag = msg->tag;
	recv->ignore = msg->ignore;
	recv->context = msg->context;
	recv->flags |= shmcma_recv_flags(flags, shmcma_now(fid->ep->rx_selective));
	return shmcma_post_recv_iov(fid, discard ? NULL : msg->msg_iov, discard ? 0 : msg->iov_count,
				    msg->addr, recv);
}

#endif
