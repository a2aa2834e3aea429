/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bind.c: the objects that an endpoint is bound to: queues, counters, address vector, event queue, shared contexts; and
 * the objects whose reads poll it. With all locks of the domain held.
 */
#include "ep/endpoint.h"

#include "coll/coll.h"
#include "obj/cntr.h"
#include "obj/cq.h"
#include "obj/eq.h"
#include "obj/mr.h"
#include "wait/lock.h"
#include "wait/polled.h"
#include "wait/wait.h"

/* The capabilities of a shared transmit context. */
#define KINDS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)

/* A context has one direction, and cannot use a queue of the other. */
static bool has_ways(const struct shmcma_ep *ep, uint64_t flags)
{
	switch (shmcma_ep_class(ep)) {
	case FI_CLASS_TX_CTX:
		return !(flags & (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE));
	case FI_CLASS_RX_CTX:
		return !(flags & (FI_TRANSMIT | FI_READ | FI_WRITE));
	default:
		return true;
	}
}

static int bind_cq(struct shmcma_ep *ep, struct shmcma_cq *cq, uint64_t flags)
{
	if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
		return -FI_EBADFLAGS;
	if (cq->domain != ep->domain || !(flags & (FI_TRANSMIT | FI_RECV)) || !has_ways(ep, flags))
		return -FI_EINVAL;
	if ((flags & FI_TRANSMIT && ep->tx_cq) || (flags & FI_RECV && ep->rx_cq))
		return -FI_EINVAL; /* one queue for each direction */
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
		atomic_fetch_add(&cq->refs, 1);
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		shmcma_set(ep->rx_selective, flags & FI_SELECTIVE_COMPLETION);
		atomic_fetch_add(&cq->refs, 1);
	}
	shmcma_lock_merge_locked(&ep->locked, &cq->locked);
	shmcma_ep_set_flags(ep);
	return 0;
}

void shmcma_ep_join_av(struct shmcma_ep *ep, struct shmcma_av *av)
{
	ep->av = av;
	ep->rx_ctx_bits = av->rx_ctx_bits;
	ep->av_next = av->eps;
	av->eps = ep;
	atomic_fetch_add(&av->refs, 1);
}

static int bind_av(struct shmcma_ep *ep, struct shmcma_av *av, uint64_t flags)
{
	if (flags)
		return -FI_EBADFLAGS;
	if (av->domain != ep->domain || ep->av)
		return -FI_EINVAL;
	shmcma_ep_join_av(ep, av);
	return 0;
}

static int bind_eq(struct shmcma_ep *ep, struct fid *fid, uint64_t flags)
{
	if (flags)
		return -FI_EBADFLAGS;
	if (ep->eq)
		return -FI_EINVAL;
	ep->eq = shmcma_eq_get(fid);
	return ep->eq ? 0 : -FI_EINVAL;
}

/* The flags for binding a counter, by enum sc_event. */
static const uint64_t event_flags[SC_EVENTS] = {
	[SC_EVENT_SEND] = FI_SEND,
	[SC_EVENT_RECV] = FI_RECV,
	[SC_EVENT_READ] = FI_READ,
	[SC_EVENT_WRITE] = FI_WRITE,
	[SC_EVENT_REMOTE_READ] = FI_REMOTE_READ,
	[SC_EVENT_REMOTE_WRITE] = FI_REMOTE_WRITE,
};
#define CNTR_FLAGS (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Accesses of peers are visible only with FI_RMA_EVENT; if peers can access nothing, there is nothing to see. */
static bool sees_accesses(const struct shmcma_ep *ep)
{
	return ep->caps & FI_RMA_EVENT || !(ep->caps & (FI_RMA | FI_ATOMIC));
}

/*
 * Binds one counter for each kind of event. Without any flag it counts nothing; some applications ask for that. Kinds
 * without a capability of the endpoint are allowed, and count nothing: other applications bind one counter for all.
 */
static int bind_cntr(struct shmcma_ep *ep, struct fid *fid, uint64_t flags)
{
	struct shmcma_cntr *cntr = shmcma_cntr_of(fid, ep->domain);

	if (flags & ~CNTR_FLAGS)
		return -FI_EBADFLAGS;
	if (!cntr || !has_ways(ep, flags) ||
	    (flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) && !sees_accesses(ep)))
		return -FI_EINVAL;
	for (int i = 0; i < SC_EVENTS; i++)
		if (flags & event_flags[i] && ep->cntrs[i])
			return -FI_EINVAL;
	for (int i = 0; i < SC_EVENTS; i++) {
		if (!(flags & event_flags[i]))
			continue;
		ep->cntrs[i] = cntr;
		atomic_fetch_add(&cntr->refs, 1);
		shmcma_lock_merge_locked(&ep->locked, &cntr->locked);
	}
	return 0;
}

/* Peers reach registered memory through every endpoint of the domain, so nothing is bound, before fi_enable or later. */
static int bind_mr(const struct shmcma_ep *ep, const struct fid *mr, uint64_t flags)
{
	if (flags)
		return -FI_EBADFLAGS;
	return shmcma_mr_is_of(mr, ep->domain) ? 0 : -FI_EINVAL;
}

static int bind_stx(struct shmcma_ep *ep, struct fid *fid, uint64_t flags)
{
	struct shmcma_stx *stx = container_of(fid, struct shmcma_stx, fid.fid);

	if (flags)
		return -FI_EBADFLAGS;
	if (!ep->shares_tx || ep->stx || stx->domain != ep->domain)
		return -FI_EINVAL;
	if (ep->tx_caps & KINDS & ep->caps & ~stx->caps) {
		shmcma_warn(FI_LOG_EP_CTRL, "fi_ep_bind: the shared context lacks a capability of the "
					    "endpoint: ask for it in the attributes of the context\n");
		return -FI_EINVAL;
	}
	ep->tx_order |= stx->order;
	ep->tx_comp_order |= stx->comp_order;
	ep->stx = stx;
	shmcma_lock_merge_locked(&ep->locked, &stx->locked);
	atomic_fetch_add(&stx->refs, 1);
	return 0;
}

/* Returns the context of this provider: another provider may bind its own (shared.c). NULL: it is unknown. */
static struct shmcma_ep *srx_of(const struct shmcma_ep *ep, const struct fid *fid)
{
	struct shmcma_ep *srx = ep->domain->lent;

	if (fid->ops == ep->fids->fid.fid.ops)
		return container_of(fid, struct shmcma_ep_fid, fid.fid)->ep;
	while (srx && srx->lender != fid)
		srx = srx->lent_next;
	return srx;
}

static int bind_srx(struct shmcma_ep *ep, struct fid *fid, uint64_t flags)
{
	struct shmcma_ep *srx = srx_of(ep, fid);

	if (flags)
		return -FI_EBADFLAGS;
	if (!srx) {
		shmcma_warn(FI_LOG_EP_CTRL,
			    "fi_ep_bind: a receive context that is none of this provider\n");
		return -FI_EINVAL;
	}
	if (!(ep->shares_rx || srx->owner) || ep->srx || srx->domain != ep->domain)
		return -FI_EINVAL;
	if (ep->rx_caps & (FI_MSG | FI_TAGGED) & ep->caps & ~srx->caps) {
		shmcma_warn(FI_LOG_EP_CTRL, "fi_ep_bind: the shared context lacks a capability of the "
					    "endpoint: ask for it in the attributes of the context\n");
		return -FI_EINVAL;
	}
	ep->srx = srx;
	ep->shares_rx = true;
	shmcma_lock_merge_locked(&ep->locked, &srx->locked);
	atomic_fetch_add(&srx->refs, 1);
	return 0;
}

int shmcma_ep_check_shared_locked(const struct shmcma_ep *ep)
{
	if ((ep->shares_tx && !ep->stx) || (ep->shares_rx && !ep->srx)) {
		shmcma_warn(FI_LOG_EP_CTRL, "FI_SHARED_CONTEXT: no shared context is bound to it\n");
		return -FI_EINVAL;
	}
	if (shmcma_ep_is_matched(ep) && (!ep->rx_cq || !ep->rx_cq->owner)) {
		shmcma_warn(FI_LOG_EP_CTRL,
			    "FI_PEER: another provider's receive context needs its completion queue, "
			    "bound with FI_RECV\n");
		return -FI_ENOCQ;
	}
	if (ep->srx && ep->srx->namer && ep->srx->namer->av != ep->av) {
		shmcma_warn(FI_LOG_EP_CTRL, "endpoints that share a receive context have one address "
					    "vector\n");
		return -FI_EINVAL;
	}
	return 0;
}

void shmcma_ep_join_shared_locked(struct shmcma_ep *ep)
{
	if (ep->stx) {
		ep->stx_next = ep->stx->users;
		ep->stx->users = ep;
	}
	if (ep->srx)
		shmcma_list_append(ep->srx->namer, ep, srx_next);
}

static void leave_shared(struct shmcma_ep *ep)
{
	if (ep->stx) {
		shmcma_list_remove(ep->stx->users, ep, stx_next);
		atomic_fetch_sub(&ep->stx->refs, 1);
	}
	if (ep->srx) {
		shmcma_list_remove(ep->srx->namer, ep, srx_next);
		ep->ends_srx = atomic_fetch_sub(&ep->srx->refs, 1) == 1 && ep->srx->closed;
	}
}

/* Binds the objects that the contexts of a scalable endpoint share. */
static int bind_sep(struct shmcma_ep *ep, struct fid *object, uint64_t flags)
{
	if (ep->sep->enabled)
		return -FI_EOPBADSTATE;
	switch (object->fclass) {
	case FI_CLASS_AV:
		return bind_av(ep, container_of(object, struct shmcma_av, fid.fid), flags);
	case FI_CLASS_EQ:
		return bind_eq(ep, object, flags);
	default:
		return -FI_EINVAL;
	}
}

int shmcma_ep_bind_locked(struct shmcma_ep *ep, struct fid *object, uint64_t flags)
{
	size_t fclass = shmcma_ep_class(ep);

	if (fclass == FI_CLASS_SEP)
		return bind_sep(ep, object, flags);
	if (fclass == FI_CLASS_SRX_CTX || (object->fclass == FI_CLASS_AV && fclass != FI_CLASS_EP))
		return -FI_EINVAL;
	if (object->fclass == FI_CLASS_MR)
		return bind_mr(ep, object, flags);
	if (ep->core)
		return -FI_EOPBADSTATE;
	switch (object->fclass) {
	case FI_CLASS_STX_CTX:
		return bind_stx(ep, object, flags);
	case FI_CLASS_SRX_CTX:
		return bind_srx(ep, object, flags);
	case FI_CLASS_CQ:
		return bind_cq(ep, container_of(object, struct shmcma_cq, fid.fid), flags);
	case FI_CLASS_AV:
		return bind_av(ep, container_of(object, struct shmcma_av, fid.fid), flags);
	case FI_CLASS_EQ:
		return bind_eq(ep, object, flags);
	case FI_CLASS_CNTR:
		return bind_cntr(ep, object, flags);
	default:
		return -FI_EINVAL;
	}
}

static bool is_silent(const struct shmcma_ep *ep)
{
	for (int i = 0; i < SC_EVENTS; i++)
		if (ep->cntrs[i])
			return false;
	return !ep->tx_cq && !ep->rx_cq;
}

int shmcma_ep_polled_by_all(struct shmcma_ep *ep)
{
	int ret = shmcma_polled_add(&ep->domain->enabled, ep);

	if (!ret && is_silent(ep)) {
		shmcma_lock_merge_all_locked(ep->domain);
		ret = shmcma_polled_add(&ep->domain->silent, ep);
	}
	if (!ret && ep->tx_cq)
		ret = shmcma_polled_add(&ep->tx_cq->polled, ep);
	if (!ret && ep->rx_cq)
		ret = shmcma_polled_add(&ep->rx_cq->polled, ep);
	for (int i = 0; i < SC_EVENTS && !ret; i++)
		if (ep->cntrs[i])
			ret = shmcma_polled_add(&ep->cntrs[i]->polled, ep);
	return ret;
}

void shmcma_ep_polled_by_none(struct shmcma_ep *ep)
{
	shmcma_polled_del(&ep->domain->enabled, ep);
	shmcma_polled_del(&ep->domain->silent, ep);
	if (ep->tx_cq)
		shmcma_cq_del_ep(ep->tx_cq, ep);
	if (ep->rx_cq)
		shmcma_cq_del_ep(ep->rx_cq, ep);
	for (int i = 0; i < SC_EVENTS; i++)
		if (ep->cntrs[i])
			shmcma_polled_del(&ep->cntrs[i]->polled, ep);
}

/*
 * A thread that waits for a counter without an endpoint sleeps on all endpoints of the domain (lock.h). So threads that
 * sleep on a counter which loses its last endpoint look again.
 */
static void tell_counters(struct shmcma_ep *ep)
{
	for (int i = 0; i < SC_EVENTS; i++)
		if (ep->cntrs[i] && !ep->cntrs[i]->polled.count && ep->cntrs[i]->wait.armed)
			shmcma_wait_resume_locked(ep->domain, &ep->cntrs[i]->wait);
}

static void unbind_reports(struct shmcma_ep *ep)
{
	shmcma_ep_polled_by_none(ep);
	tell_counters(ep);
	if (ep->tx_cq)
		atomic_fetch_sub(&ep->tx_cq->refs, 1);
	if (ep->rx_cq)
		atomic_fetch_sub(&ep->rx_cq->refs, 1);
	for (int i = 0; i < SC_EVENTS; i++)
		if (ep->cntrs[i])
			atomic_fetch_sub(&ep->cntrs[i]->refs, 1);
}

static void unbind_av(struct shmcma_ep *ep)
{
	if (!ep->av)
		return;
	shmcma_list_remove(ep->av->eps, ep, av_next);
	atomic_fetch_sub(&ep->av->refs, 1);
}

void shmcma_ep_unbind_locked(struct shmcma_ep *ep)
{
	unbind_reports(ep);
	unbind_av(ep);
	leave_shared(ep);
}
