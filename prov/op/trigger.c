/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trigger.c: fi_trigger(3): operations that wait until a counter has reached a threshold.
 *
 *   data call with FI_TRIGGER --> waits --threshold reached--> posted to the core, forgotten here
 *   FI_QUEUE_WORK --> the same data call --^  |
 *                                             +--FI_CANCEL_WORK, FI_FLUSH_WORK, fi_close(ep)--> forgotten
 *                                             +--fi_cancel(), cannot be posted--> ends with an error
 *
 * A waiting operation is an operation of the core, ready to be posted. Each data call makes it in the usual way and
 * passes it on (trigger.h), so this file reads none of the call's arguments, and errors in them are found at once.
 * Deferred work also goes through the call of its endpoint, with a context that leads back to the work.
 *
 * Locks, and how long the counters of an operation stay: wait/work.c.
 */
#include "op/trigger.h"

#include <stdlib.h>
#include <string.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include "obj/cntr.h"
#include "obj/peermap.h"
#include "wait/lock.h"
#include "wait/wait.h"
#include "wait/work.h"

/*
 * The context of a deferred work in the data call. Its event type is none of libfabric's, which tells it from an
 * application's context.
 */
#define EVENT_DEFERRED 0x53434d41
struct deferred {
	struct fi_triggered_context context; /* first */
	const struct fi_deferred_work *work;
	void *reported; /* the context for completions */
	uint64_t flags; /* of the operation */
};

/* ---- submission ------------------------------------------------------------------------------ */

static int adopt_threshold(struct shmcma_work *work, const struct shmcma_domain *domain,
			   const struct fi_triggered_context *context)
{
	const struct fi_trigger_threshold *threshold = &context->trigger.threshold;

	if (context->event_type != FI_TRIGGER_THRESHOLD)
		return -FI_ENOSYS;
	work->cntr = shmcma_cntr_of(threshold->cntr ? &threshold->cntr->fid : NULL, domain);
	work->threshold = threshold->threshold;
	return work->cntr ? 0 : -FI_EINVAL;
}

/* Deferred work that asks for no completion counts only at its completion counter. */
static int adopt_deferred(struct shmcma_work *work, struct shmcma_domain *domain,
			  const struct deferred *deferred)
{
	const struct fi_deferred_work *asked = deferred->work;

	work->deferred = asked;
	work->context = deferred->reported;
	work->threshold = asked->threshold;
	work->cntr = shmcma_cntr_of(asked->triggering_cntr ? &asked->triggering_cntr->fid : NULL, domain);
	if (!work->cntr)
		return -FI_EINVAL;
	if (!(deferred->flags & FI_COMPLETION)) {
		work->flags = SC_SILENT;
		work->counted = &domain->uncounted;
	}
	if (!asked->completion_cntr)
		return 0;
	work->done = shmcma_cntr_of(&asked->completion_cntr->fid, domain);
	if (!work->done)
		return -FI_EINVAL;
	work->counted = &work->done->count;
	return 0;
}

static int work_create(struct shmcma_ep_fid *fid, fi_addr_t peer, void *context,
		       struct shmcma_work **created)
{
	const struct fi_triggered_context *trigger = context;
	struct shmcma_work *work;
	int ret;

	if (!(fid->ep->caps & FI_TRIGGER))
		return -FI_EOPNOTSUPP;
	if (!trigger)
		return -FI_EINVAL;
	work = calloc(1, sizeof(*work));
	if (!work)
		return -FI_EAGAIN;
	work->ep = fid->ep;
	work->peer = peer;
	work->context = context;
	if ((unsigned int)trigger->event_type == EVENT_DEFERRED)
		ret = adopt_deferred(work, fid->domain, context);
	else
		ret = adopt_threshold(work, fid->domain, trigger);
	if (ret)
		free(work);
	else
		*created = work;
	return ret;
}

/* Returns the core's flags of the waiting operation, from the `flags` of the data call. */
static uint32_t adopt_flags(struct shmcma_work *work, uint32_t flags)
{
	flags &= ~SHMCMA_TRIGGER;
	if (work->deferred)
		flags = (flags & ~SC_SILENT) | work->flags;
	work->flags = flags;
	return flags;
}

/* -FI_EMSGSIZE: the operation could not be posted when it is due either. */
static int check_size(const struct iovec *iov, size_t count, size_t limit, size_t *size)
{
	*size = 0;
	for (size_t i = 0; i < count; i++) {
		if (iov[i].iov_len > limit - *size)
			return -FI_EMSGSIZE;
		*size += iov[i].iov_len;
	}
	return 0;
}

static int copy_bytes(struct shmcma_vector *to, const struct iovec *iov, size_t *count, size_t size)
{
	to->bytes = malloc(size + 1);
	if (!to->bytes)
		return -FI_EAGAIN;
	to->iov[0] = (struct iovec){ to->bytes, 0 };
	for (size_t i = 0; i < *count; i++) {
		if (iov[i].iov_len)
			memcpy((char *)to->bytes + to->iov[0].iov_len, iov[i].iov_base, iov[i].iov_len);
		to->iov[0].iov_len += iov[i].iov_len;
	}
	*count = 1;
	return 0;
}

static int copy_iov(struct shmcma_vector *to, const struct iovec **iov, size_t count)
{
	if (count > SC_IOV_MAX)
		return -FI_EINVAL;
	if (count)
		memcpy(to->iov, *iov, count * sizeof(to->iov[0]));
	*iov = to->iov;
	return 0;
}

/*
 * Replaces the caller's vector at *iov by a copy. It also copies the bytes of an injected payload, but not of deferred
 * work, whose bytes must not be touched before it is due; their number is known now.
 */
static int copy_vector(struct shmcma_work *work, struct shmcma_vector *to, const struct iovec **iov,
		       size_t *count)
{
	bool injects = work->flags & SC_SEND_INJECT;
	size_t size;
	int ret;

	if (*count > SC_IOV_MAX)
		return -FI_EINVAL;
	ret = check_size(*iov, *count, injects ? SC_INJECT_MAX : SC_MESSAGE_MAX, &size);
	if (ret)
		return ret;
	if (!injects || work->deferred || !*count)
		return copy_iov(to, iov, *count);
	ret = copy_bytes(to, *iov, count, size);
	*iov = to->iov;
	return ret;
}

static int copy_remote(struct shmcma_work *work, const struct sc_remote **remote, size_t count)
{
	if (count > SC_REMOTE_MAX)
		return -FI_EINVAL;
	if (count)
		memcpy(work->remote, *remote, count * sizeof(work->remote[0]));
	*remote = work->remote;
	return 0;
}

static void submit_locked(struct shmcma_work *work)
{
	struct shmcma_domain *domain = work->cntr->domain;

	shmcma_lock_merge_all_locked(domain);
	if (work->done) {
		work->done->lent = true;
		shmcma_cntr_widen_locked(work->done);
	}
	if (!domain->triggers)
		shmcma_wait_again_locked(&domain->locks.itself);
	shmcma_work_insert_locked(work);
	shmcma_work_run_locked(domain);
}

/* Tells whether the peer is known now. */
static bool has_peer(const struct shmcma_work *work)
{
	struct sc_peer *peer;

	if (work->event == SC_EVENT_RECV)
		return shmcma_recv_source(work->ep, work->recv.cq_flags, work->peer, &peer);
	return shmcma_ep_peer(work->ep, work->peer) != NULL;
}

/* Submits an operation of an endpoint. `ret`: the result of the copy. */
static ssize_t submit(struct shmcma_work *work, int ret)
{
	struct shmcma_domain *domain = work->cntr->domain;

	shmcma_lock(domain);
	if (!ret && !has_peer(work))
		ret = shmcma_ep_no_peer(work->ep, work->peer);
	if (!ret)
		submit_locked(work);
	shmcma_unlock(domain);
	if (ret)
		shmcma_work_free(work);
	return ret;
}

/* ---- one kind of operation after the other ------------------------------------------------------ */

#define POST(member, post)                                                                                \
	static int post_##member(struct shmcma_work *work)                                                \
	{                                                                                                 \
		struct sc_peer *peer = shmcma_ep_peer(work->ep, work->peer);                              \
                                                                                                          \
		return peer ? post(work->ep->core, peer, &work->member)                                   \
			    : shmcma_ep_no_peer(work->ep, work->peer);                                    \
	}
POST(send, sc_tx_send)
POST(rma, sc_rma_post)
POST(atomic, sc_atomic_post)

/* Copies the core's operation and changes the fields that its submission changes. */
#define ADOPT(member, given)                                                                              \
	do {                                                                                              \
		work->post = post_##member;                                                               \
		work->cq_flags = given->cq_flags;                                                         \
		work->member = *given;                                                                    \
		work->member.context = work->context;                                                     \
		work->member.cntr = work->counted;                                                        \
		work->member.flags = adopt_flags(work, given->flags);                                     \
	} while (0)

ssize_t shmcma_trigger_send(struct shmcma_ep_fid *fid, fi_addr_t dest, const struct sc_send *send)
{
	struct shmcma_work *work;
	int ret = work_create(fid, dest, send->context, &work);

	if (ret)
		return ret;
	ADOPT(send, send);
	work->event = SC_EVENT_SEND;
	return submit(work, copy_vector(work, &work->iov, &work->send.iov, &work->send.iov_count));
}

static int post_recv(struct shmcma_work *work)
{
	if (!shmcma_recv_source(work->ep, work->recv.cq_flags, work->peer, &work->recv.source))
		return shmcma_ep_no_peer(work->ep, work->peer);
	return sc_rxq_recv(work->ep->rxq, &work->recv);
}

ssize_t shmcma_trigger_recv(struct shmcma_ep_fid *fid, fi_addr_t source, const struct sc_recv *recv)
{
	struct shmcma_work *work;
	int ret = work_create(fid, source, recv->context, &work);

	if (ret)
		return ret;
	ADOPT(recv, recv);
	work->event = SC_EVENT_RECV;
	/* receives have other flags, and nothing is injected */
	return submit(work, copy_iov(&work->iov, &work->recv.iov, recv->iov_count));
}

ssize_t shmcma_trigger_rma(struct shmcma_ep_fid *fid, fi_addr_t peer, const struct sc_rma *rma)
{
	struct shmcma_work *work;
	int ret = work_create(fid, peer, rma->context, &work);

	if (ret)
		return ret;
	ADOPT(rma, rma);
	work->event = rma->flags & SC_RMA_WRITE ? SC_EVENT_WRITE : SC_EVENT_READ;
	ret = copy_vector(work, &work->iov, &work->rma.iov, &work->rma.iov_count);
	if (!ret)
		ret = copy_remote(work, &work->rma.remote, work->rma.remote_count);
	return submit(work, ret);
}

static int copy_atomic(struct shmcma_work *work)
{
	struct sc_atomic *atomic = &work->atomic;
	int ret = copy_vector(work, &work->iov, &atomic->iov, &atomic->iov_count);

	if (!ret)
		ret = copy_vector(work, &work->compare, &atomic->compare, &atomic->compare_count);
	if (!ret)
		ret = copy_iov(&work->result, &atomic->result, atomic->result_count);
	return ret ? ret : copy_remote(work, &atomic->remote, atomic->remote_count);
}

ssize_t shmcma_trigger_atomic(struct shmcma_ep_fid *fid, fi_addr_t peer, const struct sc_atomic *atomic)
{
	struct shmcma_work *work;
	int ret = work_create(fid, peer, atomic->context, &work);

	if (ret)
		return ret;
	ADOPT(atomic, atomic);
	work->event = atomic->kind == SC_ATOMIC_BASE ? SC_EVENT_WRITE : SC_EVENT_READ;
	return submit(work, copy_atomic(work));
}

static int post_add(struct shmcma_work *work)
{
	sc_cntr_add(&work->done->count.value, work->value);
	return 0;
}

static int post_set(struct shmcma_work *work)
{
	uint64_t *value = &work->done->count.value;

	sc_cntr_add(value, work->value - sc_cntr_read(value));
	return 0;
}

/* ---- deferred work --------------------------------------------------------------------------- */

static ssize_t queue_cntr(struct shmcma_domain *domain, const struct fi_deferred_work *asked)
{
	const struct fi_op_cntr *op = asked->op.cntr;
	struct shmcma_work *work;

	if (asked->completion_cntr || !op->cntr || !asked->triggering_cntr)
		return -FI_EINVAL;
	work = calloc(1, sizeof(*work));
	if (!work)
		return -FI_ENOMEM;
	work->post = asked->op_type == FI_OP_CNTR_ADD ? post_add : post_set;
	work->deferred = asked;
	work->value = op->value;
	work->threshold = asked->threshold;
	work->cntr = shmcma_cntr_of(&asked->triggering_cntr->fid, domain);
	work->done = shmcma_cntr_of(&op->cntr->fid, domain);
	if (!work->cntr || !work->done) {
		free(work);
		return -FI_EINVAL;
	}
	shmcma_lock(domain);
	submit_locked(work);
	shmcma_unlock(domain);
	return 0;
}

static bool is_ours(const struct shmcma_domain *domain, struct fid_ep *ep)
{
	if (!ep || (ep->fid.fclass != FI_CLASS_EP && ep->fid.fclass != FI_CLASS_TX_CTX &&
		    ep->fid.fclass != FI_CLASS_RX_CTX))
		return false;
	return shmcma_ep_of(ep)->domain == domain;
}

/* Replaces the context of the operation by one that leads back to the work. */
#define QUEUE(kind, type, message, call)                                                                  \
	static ssize_t queue_##kind(struct shmcma_domain *domain, const struct fi_deferred_work *work)    \
	{                                                                                                 \
		const struct type *op = work->op.kind;                                                    \
		const uint64_t flags = op->flags | FI_TRIGGER;                                            \
		struct deferred deferred = { .context.event_type = EVENT_DEFERRED,                        \
					     .work = work,                                                \
					     .reported = op->msg.context,                                 \
					     .flags = op->flags };                                        \
		struct message msg = op->msg;                                                             \
                                                                                                          \
		msg.context = &deferred.context;                                                          \
		return is_ours(domain, op->ep) ? (call) : -FI_EINVAL;                                     \
	}
QUEUE(msg, fi_op_msg, fi_msg,
      work->op_type == FI_OP_SEND ? fi_sendmsg(op->ep, &msg, flags) : fi_recvmsg(op->ep, &msg, flags))
QUEUE(tagged, fi_op_tagged, fi_msg_tagged,
      work->op_type == FI_OP_TSEND ? fi_tsendmsg(op->ep, &msg, flags) : fi_trecvmsg(op->ep, &msg, flags))
QUEUE(rma, fi_op_rma, fi_msg_rma,
      work->op_type == FI_OP_WRITE ? fi_writemsg(op->ep, &msg, flags) : fi_readmsg(op->ep, &msg, flags))
QUEUE(atomic, fi_op_atomic, fi_msg_atomic, fi_atomicmsg(op->ep, &msg, flags))
QUEUE(fetch_atomic, fi_op_fetch_atomic, fi_msg_atomic,
      fi_fetch_atomicmsg(op->ep, &msg, op->fetch.msg_iov, op->fetch.desc, op->fetch.iov_count, flags))
QUEUE(compare_atomic, fi_op_compare_atomic, fi_msg_atomic,
      fi_compare_atomicmsg(op->ep, &msg, op->compare.msg_iov, op->compare.desc, op->compare.iov_count,
			   op->fetch.msg_iov, op->fetch.desc, op->fetch.iov_count, flags))

static ssize_t (*const queues[])(struct shmcma_domain *domain, const struct fi_deferred_work *work) = {
	[FI_OP_RECV] = queue_msg,
	[FI_OP_SEND] = queue_msg,
	[FI_OP_TRECV] = queue_tagged,
	[FI_OP_TSEND] = queue_tagged,
	[FI_OP_READ] = queue_rma,
	[FI_OP_WRITE] = queue_rma,
	[FI_OP_ATOMIC] = queue_atomic,
	[FI_OP_FETCH_ATOMIC] = queue_fetch_atomic,
	[FI_OP_COMPARE_ATOMIC] = queue_compare_atomic,
	[FI_OP_CNTR_SET] = queue_cntr,
	[FI_OP_CNTR_ADD] = queue_cntr,
};

static ssize_t queue(struct shmcma_domain *domain, const struct fi_deferred_work *work)
{
	return (unsigned int)work->op_type <= FI_OP_CNTR_ADD ? queues[work->op_type](domain, work)
							     : -FI_ENOSYS;
}

/* Returns the error that fi_trigger(3) specifies for an operation that the endpoint does not have. */
static int queue_work(struct shmcma_domain *domain, const struct fi_deferred_work *work)
{
	ssize_t ret = work && work->op.msg ? queue(domain, work) : -FI_EINVAL;

	return ret == -FI_EOPNOTSUPP ? -FI_ENOSYS : (int)ret;
}

static bool is_work(const struct shmcma_work *work, const void *asked)
{
	return work->deferred == asked;
}

/* -FI_ENOENT: it does not wait any more. */
static int cancel_work(struct shmcma_domain *domain, const struct fi_deferred_work *asked)
{
	int cancelled;

	if (!asked)
		return -FI_EINVAL;
	shmcma_lock(domain);
	cancelled = shmcma_work_forget_all_locked(domain, is_work, asked);
	shmcma_unlock(domain);
	return cancelled ? 0 : -FI_ENOENT;
}

static bool is_flushed(const struct shmcma_work *work, const void *cntr)
{
	return work->deferred && (!cntr || &work->cntr->fid == cntr);
}

/* Forgets all deferred work, or only work that waits for the triggering counter of `asked`. */
static int flush_work(struct shmcma_domain *domain, const struct fi_deferred_work *asked)
{
	shmcma_lock(domain);
	shmcma_work_forget_all_locked(domain, is_flushed, asked ? asked->triggering_cntr : NULL);
	shmcma_unlock(domain);
	return 0;
}

int shmcma_trigger_control(struct fid *fid, int command, void *arg)
{
	struct shmcma_domain *domain = container_of(fid, struct shmcma_domain, fid.fid);

	switch (command) {
	case FI_QUEUE_WORK:
		return queue_work(domain, arg);
	case FI_CANCEL_WORK:
		return cancel_work(domain, arg);
	case FI_FLUSH_WORK:
		return flush_work(domain, arg);
	default:
		return -FI_ENOSYS;
	}
}
