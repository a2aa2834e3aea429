/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shared.c: shared contexts: one transmit or receive queue for several endpoints.
 *
 * A shared receive context is a receive queue of the core (struct sc_rxq) that receives are posted to, and that
 * every endpoint bound to it puts its messages into. It is a struct shmcma_ep without core, so that the data
 * calls are those of an endpoint. Completions go to the queue and the counter of the endpoint that the message
 * came to; those of receives that no message ends (cancel, peek in vain) go to the queue and the counter of the
 * endpoint that was enabled first. Sources are named by the address vector, which all its endpoints must have in
 * common: before one of them is enabled there is none to name one by.
 *
 * A shared transmit context is what the endpoints bound to it have in common of their transmit attributes: the
 * number of operations that all together may have outstanding, and the order of
 * messages and of completions. There is no queue: each endpoint has the rings to
 * its peers, which are no others'.
 *
 * Locks: a shared context and all its endpoints have one; all of the domain for what changes who they are.
 */

#include <stdlib.h>
#include "base/caps.h"
#include "ep/ep.h"
#include "wait/lock.h"

#define KINDS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)

struct shmcma_stx {
	struct fid_stx fid;
	struct shmcma_domain *domain;
	struct shmcma_locked locked;
	shmcma_refs refs; /* endpoints bound to it */
	uint64_t caps;
	uint64_t order, comp_order; /* of messages, of completions */
	size_t size;
	struct shmcma_ep *users; /* that are enabled, by stx_next */
	struct shmcma_object object;
};

/* ---- bind, enable, close of endpoints ---------------------------------------------------------- */

int shmcma_stx_bind_locked(struct shmcma_ep *ep, struct fid *fid, uint64_t flags)
{
	struct shmcma_stx *stx = container_of(fid, struct shmcma_stx, fid.fid);

	if (flags)
		return -FI_EBADFLAGS;
	if (!ep->shares_tx || ep->stx || stx->domain != ep->domain)
		return -FI_EINVAL;
	if (ep->tx_caps & KINDS & ep->caps & ~stx->caps) {
		shmcma_warn(FI_LOG_EP_CTRL,
			    "the shared transmit context has not all that the endpoint is to send\n");
		return -FI_EINVAL;
	}
	ep->tx_order |= stx->order;
	ep->tx_comp_order |= stx->comp_order;
	ep->stx = stx;
	shmcma_lock_merge_locked(&ep->locked, &stx->locked);
	atomic_fetch_add(&stx->refs, 1);
	return 0;
}

int shmcma_srx_bind_locked(struct shmcma_ep *ep, struct fid *fid, uint64_t flags)
{
	struct shmcma_ep *srx = container_of(fid, struct shmcma_ep_fid, fid.fid)->ep;

	if (flags)
		return -FI_EBADFLAGS;
	if (!ep->shares_rx || ep->srx || srx->domain != ep->domain)
		return -FI_EINVAL;
	if (ep->rx_caps & (FI_MSG | FI_TAGGED) & ep->caps & ~srx->caps) {
		shmcma_warn(FI_LOG_EP_CTRL,
			    "the shared receive context has not all that the endpoint is to receive\n");
		return -FI_EINVAL;
	}
	ep->srx = srx;
	shmcma_lock_merge_locked(&ep->locked, &srx->locked);
	atomic_fetch_add(&srx->refs, 1);
	return 0;
}

int shmcma_shared_check_locked(const struct shmcma_ep *ep)
{
	if ((ep->shares_tx && !ep->stx) || (ep->shares_rx && !ep->srx)) {
		shmcma_warn(FI_LOG_EP_CTRL, "FI_SHARED_CONTEXT: no shared context is bound to it\n");
		return -FI_EINVAL;
	}
	if (ep->srx && ep->srx->namer && ep->srx->namer->av != ep->av) {
		shmcma_warn(FI_LOG_EP_CTRL, "endpoints that share a receive context have one address "
					    "vector\n");
		return -FI_EINVAL;
	}
	return 0;
}

void shmcma_shared_enabled_locked(struct shmcma_ep *ep)
{
	if (ep->stx) {
		ep->stx_next = ep->stx->users;
		ep->stx->users = ep;
	}
	if (ep->srx) {
		struct shmcma_ep **last = &ep->srx->namer;

		while (*last)
			last = &(*last)->srx_next;
		*last = ep;
	}
}

void shmcma_shared_leave_locked(struct shmcma_ep *ep)
{
	if (ep->stx) {
		struct shmcma_ep **link = &ep->stx->users;

		while (*link && *link != ep)
			link = &(*link)->stx_next;
		if (*link)
			*link = ep->stx_next;
		atomic_fetch_sub(&ep->stx->refs, 1);
	}
	if (ep->srx) {
		struct shmcma_ep **link = &ep->srx->namer;

		while (*link && *link != ep)
			link = &(*link)->srx_next;
		if (*link)
			*link = ep->srx_next;
		atomic_fetch_sub(&ep->srx->refs, 1);
	}
}

/* ---- transmit -------------------------------------------------------------------------------- */

/* Each user has the whole size for itself as far as the core knows. */
size_t shmcma_stx_room_locked(const struct shmcma_stx *stx)
{
	size_t left = stx->size;

	for (const struct shmcma_ep *ep = stx->users; ep; ep = ep->stx_next) {
		size_t used = ep->tx_size - sc_tx_room(ep->core);

		left -= used < left ? used : left;
	}
	return left;
}

static int stx_close(struct fid *fid)
{
	struct shmcma_stx *stx = container_of(fid, struct shmcma_stx, fid.fid);

	if (atomic_load(&stx->refs))
		return -FI_EBUSY;
	shmcma_object_del(&stx->object);
	shmcma_lock_quit(stx->domain, &stx->locked);
	atomic_fetch_sub(&stx->domain->refs, 1);
	free(stx);
	return 0;
}

static int no_option(fid_t fid, int level, int name, void *value, size_t *len)
{
	(void)fid, (void)level, (void)name, (void)value, (void)len;
	return -FI_ENOPROTOOPT;
}

static int no_set_option(fid_t fid, int level, int name, const void *value, size_t len)
{
	(void)fid, (void)level, (void)name, (void)value, (void)len;
	return -FI_ENOPROTOOPT;
}

/* Operations are posted to its endpoints, options are theirs. */
static struct fi_ops_ep stx_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = shmcma_no_cancel,
	.getopt = no_option,
	.setopt = no_set_option,
};

static struct fi_ops stx_fid_ops = SHMCMA_FID_OPS(stx_close, shmcma_no_bind, shmcma_no_control);

int shmcma_stx_open(struct fid_domain *handle, struct fi_tx_attr *attr, struct fid_stx **out,
		    void *context)
{
	struct shmcma_domain *domain = container_of(handle, struct shmcma_domain, fid);
	struct shmcma_stx *stx;
	int ret = attr ? shmcma_tx_attr_complete(attr, domain->caps) : 0;

	if (ret)
		return ret;
	stx = calloc(1, sizeof(*stx));
	if (!stx)
		return -FI_ENOMEM;
	stx->fid.fid.fclass = FI_CLASS_STX_CTX;
	stx->fid.fid.context = context;
	stx->fid.fid.ops = &stx_fid_ops;
	stx->fid.ops = &stx_ops;
	stx->domain = domain;
	stx->caps = attr ? attr->caps : domain->caps;
	stx->order = attr ? attr->msg_order : 0;
	stx->comp_order = attr ? attr->comp_order : 0;
	stx->size = shmcma_size_or_default(attr ? attr->size : 0);
	shmcma_lock_join(domain, &stx->locked, false);
	atomic_fetch_add(&domain->refs, 1);
	shmcma_object_add(&stx->object, &stx->fid.fid, NULL);
	*out = &stx->fid;
	return 0;
}

/* ---- receive --------------------------------------------------------------------------------- */

void shmcma_srx_free(struct shmcma_ep *srx)
{
	if (srx->rxq)
		sc_rxq_destroy(srx->rxq);
}

/* An info that says no more than that. */
static struct fi_info *srx_info(const struct shmcma_domain *domain, const struct fi_rx_attr *attr)
{
	struct fi_info *info = fi_allocinfo();

	if (!info)
		return NULL;
	info->caps = attr ? attr->caps : domain->caps;
	info->caps &= ~FI_TRIGGER; /* only operations of an endpoint wait for triggers */
	info->rx_attr->caps = info->caps;
	if (attr) {
		info->rx_attr->op_flags = attr->op_flags;
		info->rx_attr->comp_order = attr->comp_order;
		info->rx_attr->size = attr->size;
	}
	return info;
}

int shmcma_srx_open(struct fid_domain *handle, struct fi_rx_attr *attr, struct fid_ep **out, void *context)
{
	struct shmcma_domain *domain = container_of(handle, struct shmcma_domain, fid);
	int ret = attr ? shmcma_rx_attr_complete(attr, domain->caps) : 0;
	struct fi_info *info;
	struct shmcma_ep *srx;

	if (ret)
		return ret;
	info = srx_info(domain, attr);
	ret = info ? shmcma_ep_create(domain, info, FI_CLASS_SRX_CTX, context, &srx) : -FI_ENOMEM;
	fi_freeinfo(info);
	if (ret)
		return ret;
	shmcma_ep_set_selective(srx); /* if all are reported is the endpoint's to say, see sc_ep_attr */
	ret = sc_rxq_create(srx->rx_size, &srx->rxq);
	if (ret) {
		shmcma_ep_discard(srx);
		return ret;
	}
	shmcma_ep_set_tables(srx);
	shmcma_ep_show(srx, out);
	return 0;
}
