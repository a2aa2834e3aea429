/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peercq.c: a completion queue that belongs to another provider, its owner: FI_PEER, see fi_peer(3).
 *
 * The core writes completions into a queue as of any endpoint. The owner calls fi_cq_read() for no entries: the call
 * polls, and then gives all completions to the owner by the owner's functions. No other call does, except the end of an
 * endpoint (shmcma_peercq_end_locked()): so a send never calls the owner. The application reads the owner's queue.
 *
 * A receive that the owner has posted (peersrx.c) completes under the owner's context, and then its entry goes back.
 *
 * The owner's functions are called under the lock of this queue. The owner calls this provider under its own locks, and
 * must not hold them in these functions.
 */
#include "obj/peercq.h"

#include "base/newer.h"
#include "base/peerowner.h"
#include "obj/cq.h"
#include "wait/lock.h"
#include "wait/polled.h"

/* The owner's flags of a receive: with FI_COMPLETION it is reported also if it succeeds. */
static bool is_reported(uint64_t flags)
{
	return flags & (FI_COMPLETION | FI_REMOTE_CQ_DATA);
}

static ssize_t give_entry(struct shmcma_cq *cq, const struct sc_comp *comp)
{
	struct fi_cq_tagged_entry entry;
	fi_addr_t source = shmcma_cq_put_entry(cq, &entry, comp);
	const struct shmcma_rx_entry *posted = comp->context;
	const struct iovec *iov;
	size_t count;

	if (comp->cq_flags & SHMCMA_COMP_ENTRY) {
		entry.flags &= ~(uint64_t)SHMCMA_COMP_ENTRY;
		entry.flags |= shmcma_entry_flags(posted) & ~FI_REMOTE_CQ_DATA;
		if (!is_reported(entry.flags))
			return 0;
		entry.flags &= ~FI_COMPLETION;
		entry.op_context = shmcma_entry_context(posted);
		/* the owner may have cut it from the buffer of a multi-receive, whose completions say where */
		iov = shmcma_entry_iov(posted, &count);
		entry.buf = count ? iov[0].iov_base : NULL;
	}
	return shmcma_owner_write(cq->owner, &entry, source);
}

static ssize_t give_error(struct shmcma_cq *cq, const struct sc_comp *comp)
{
	union shmcma_any_err_entry error = { .newer = { .src_addr = 0 } };
	struct fi_cq_tagged_entry entry;
	fi_addr_t source = shmcma_cq_put_entry(cq, &entry, comp);

	shmcma_cq_put_error(cq, &error.entry, comp);
	error.newer.src_addr = source;
	if (comp->cq_flags & SHMCMA_COMP_ENTRY) {
		error.entry.flags &= ~(uint64_t)SHMCMA_COMP_ENTRY;
		error.entry.op_context = shmcma_entry_context(comp->context);
	}
	return shmcma_owner_write_error(cq->owner, &error);
}

/* The queue had no memory to grow; tells this once. */
static void tell_overrun(struct shmcma_cq *cq)
{
	union shmcma_any_err_entry error = { .newer = { .src_addr = FI_ADDR_NOTAVAIL } };

	if (cq->overrun_reported)
		return;
	cq->overrun_reported = true;
	error.entry.err = error.entry.prov_errno = FI_EOVERRUN;
	(void)shmcma_owner_write_error(cq->owner, &error);
}

/* Returns the receive context whose entry a completion has. `closes`: see give(). */
static const struct shmcma_ep *srx_of(const struct sc_comp *comp, const struct shmcma_ep *closes)
{
	return comp->source ? sc_rxq_arg(sc_ep_rxq(sc_peer_ep(comp->source))) : closes->srx;
}

/*
 * Gives completions to the owner until it refuses one. Returns their number. `closes`: the endpoint that ends, or NULL.
 * A receive of it may have no source any more.
 */
static size_t give(struct shmcma_cq *cq, const struct shmcma_ep *closes)
{
	const struct sc_comp *comp;
	size_t given = 0;

	for (; (comp = sc_comp_ring_peek(&cq->queue)); given++) {
		const struct shmcma_ep *srx =
			comp->cq_flags & SHMCMA_COMP_ENTRY ? srx_of(comp, closes) : NULL;

		if (!srx || !srx->owner_ended) {
			if ((comp->err ? give_error(cq, comp) : give_entry(cq, comp)) < 0)
				return given;
			if (srx)
				shmcma_owner_free(srx->owner, comp->context);
		}
		sc_comp_ring_release(&cq->queue);
	}
	if (__builtin_expect(sc_comp_ring_is_overrun(&cq->queue), 0))
		tell_overrun(cq);
	return given;
}

/* Tells whether it is a receive of this endpoint that the owner has posted. */
static bool is_receive_of(const struct sc_comp *comp, const struct shmcma_ep *ep)
{
	return comp->cq_flags & SHMCMA_COMP_ENTRY &&
	       (!comp->source || sc_peer_ep(comp->source) == ep->core);
}

void shmcma_peercq_end_locked(struct shmcma_cq *cq, const struct shmcma_ep *ep)
{
	(void)give(cq, ep);
	for (size_t left = cq->queue.tail - cq->queue.head; left; left--) {
		struct sc_comp comp = *sc_comp_ring_first(&cq->queue);

		sc_comp_ring_release(&cq->queue);
		if (!is_receive_of(&comp, ep))
			sc_comp_ring_put_slow(&cq->queue, &comp);
		else if (!ep->srx->owner_ended)
			shmcma_owner_free(ep->srx->owner, comp.context);
	}
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	struct shmcma_cq *cq = container_of(fid, struct shmcma_cq, fid);
	bool due;

	if (buf || count)
		return -FI_ENOSYS;
	shmcma_lock_enter(&cq->locked);
	shmcma_progress_locked(cq->domain, &cq->polled);
	due = !give(cq, NULL) && shmcma_yield_is_due(&cq->wait.yield);
	shmcma_lock_leave(&cq->locked);
	if (__builtin_expect(due, 0))
		shmcma_yield_slow(&cq->wait.yield);
	return 0;
}

/* The application reads the owner's queue, and waits there. */
SHMCMA_NO(ssize_t, no_readfrom, -FI_ENOSYS, struct fid_cq *cq, void *buf, size_t count, fi_addr_t *source)
SHMCMA_NO(ssize_t, no_readerr, -FI_ENOSYS, struct fid_cq *cq, struct fi_cq_err_entry *entry,
	  uint64_t flags)
SHMCMA_NO(ssize_t, no_sread, -FI_ENOSYS, struct fid_cq *cq, void *buf, size_t count, const void *cond,
	  int timeout)
SHMCMA_NO(ssize_t, no_sreadfrom, -FI_ENOSYS, struct fid_cq *cq, void *buf, size_t count, fi_addr_t *source,
	  const void *cond, int timeout)
SHMCMA_NO(int, no_signal, -FI_ENOSYS, struct fid_cq *cq)

static union shmcma_ops_cq peer_ops = {
	.size = sizeof(union shmcma_ops_cq),
	.read = cq_read,
	.readfrom = no_readfrom,
	.readerr = no_readerr,
	.sread = no_sread,
	.sreadfrom = no_sreadfrom,
	.signal = no_signal,
	.strerror = shmcma_cq_strerror,
	.export_xpu = shmcma_no_export,
};

void *shmcma_peer_object(const char *call, struct fid_domain *domain, enum fi_wait_obj wait_obj,
			 void *context)
{
	void *object = shmcma_owner_object(call, context);

	if (!object || !shmcma_domain_is_peer(container_of(domain, struct shmcma_domain, fid)))
		return NULL;
	if (wait_obj == FI_WAIT_NONE || wait_obj == FI_WAIT_UNSPEC || wait_obj == FI_WAIT_YIELD)
		return object;
	shmcma_warn(FI_LOG_CORE,
		    "%s: FI_PEER: use wait_obj FI_WAIT_NONE, FI_WAIT_UNSPEC or FI_WAIT_YIELD\n", call);
	return NULL;
}

int shmcma_peercq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	struct shmcma_cq_owner *owner = shmcma_peer_object("fi_cq_open", fid, attr->wait_obj, context);
	/* a field that the caller's version of the structure does not have is not read */
	struct fi_cq_attr plain = { .size = attr->size,
				    .flags = attr->flags & ~FI_PEER,
				    .format = attr->format,
				    .wait_obj = FI_WAIT_NONE };
	int ret;

	if (!owner)
		return -FI_EINVAL;
	ret = shmcma_cq_open(fid, &plain, out, NULL);
	if (ret)
		return ret;
	container_of(*out, struct shmcma_cq, fid)->owner = owner;
	(*out)->ops = &peer_ops.ops;
	return 0;
}
