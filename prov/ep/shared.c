/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shared.c: shared contexts: one transmit or receive queue for several endpoints.
 *
 * A shared receive context is a receive queue of the core (struct sc_rxq). Receives are posted to it, and every
 * endpoint bound to it delivers its messages to it. It is a struct shmcma_ep without core, so its data calls are those
 * of an endpoint. A completion goes to the queue and the counter of the endpoint that received the message. A receive
 * that ends without a message (cancel, peek in vain) reports to the endpoint that was enabled first. The address
 * vector, which all its endpoints must share, names sources: before one of them is enabled, no source can be named.
 *
 * A shared transmit context holds transmit attributes that the endpoints bound to it share: the number of operations
 * that all together may have outstanding, and the order of messages and of completions. It has no queue: each endpoint
 * has its own rings to its peers.
 *
 * Locks: a shared context and all its endpoints have one lock; a change of its endpoints holds all locks of the domain.
 */
#include "ep/endpoint.h"

#include <stdlib.h>
#include "base/attr.h"
#include "base/peerowner.h"
#include "base/param.h"
#include "obj/peersrx.h"
#include "wait/lock.h"

/* ---- transmit -------------------------------------------------------------------------------- */

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

SHMCMA_UNABLE(no_option, -FI_ENOPROTOOPT, fid_t fid, int level, int name, void *value, size_t *len)
SHMCMA_UNABLE(no_set_option, -FI_ENOPROTOOPT, fid_t fid, int level, int name, const void *value,
	      size_t len)

/* Its endpoints have the operations and the options. */
SHMCMA_FORKED_CALL(ssize_t, shmcma_no_cancel, fid_t fid, void *context)

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(union shmcma_ops_ep), .cancel = way##shmcma_no_cancel,                     \
		.getopt = way##no_option, .setopt = way##no_set_option, .export_xpu = shmcma_no_export,   \
	}
static union shmcma_ops_ep stx_ops = OPS(), forked_ops = OPS(forked_);

static struct fi_ops stx_fid_ops = SHMCMA_FID_OPS(stx_close, shmcma_no_bind, shmcma_no_control);

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_stx, fid)->ops = &forked_ops.ops;
}

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
	stx->fid.fid = (struct fid){ .fclass = FI_CLASS_STX_CTX, .context = context, .ops = &stx_fid_ops };
	stx->fid.ops = &stx_ops.ops;
	stx->domain = domain;
	stx->caps = attr ? attr->caps : domain->caps;
	stx->order = attr ? attr->msg_order : 0;
	stx->comp_order = attr ? attr->comp_order : 0;
	stx->size = shmcma_size_or_default(attr ? attr->size : 0, shmcma_env.tx_size);
	shmcma_lock_join(domain, &stx->locked, false);
	atomic_fetch_add(&domain->refs, 1);
	shmcma_object_add(&stx->object, &stx->fid.fid, NULL, forked);
	*out = &stx->fid;
	return 0;
}

/* ---- receive --------------------------------------------------------------------------------- */

/* Makes an info from the receive attributes alone. */
static struct fi_info *srx_info(const struct shmcma_domain *domain, const struct fi_rx_attr *attr)
{
	struct fi_info *info = fi_allocinfo();

	if (!info)
		return NULL;
	info->caps = attr ? attr->caps : domain->caps & ~FI_TRIGGER;
	info->rx_attr->caps = info->caps;
	if (attr) {
		info->rx_attr->op_flags = attr->op_flags;
		info->rx_attr->comp_order = attr->comp_order;
		info->rx_attr->size = attr->size;
	}
	return info;
}

/* `owner`: another provider's receive context, which posts the receives (peersrx.c), or NULL. */
static int open_srx(struct shmcma_domain *domain, const struct fi_rx_attr *attr,
		    struct shmcma_srx_owner *owner, struct fid_ep **out, void *context)
{
	struct fi_info *info = srx_info(domain, attr);
	struct shmcma_ep *srx;
	int ret = info ? shmcma_ep_create(domain, info, FI_CLASS_SRX_CTX, context, &srx) : -FI_ENOMEM;

	fi_freeinfo(info);
	if (ret)
		return ret;
	/* Each endpoint decides which receives are reported, see sc_ep_attr. */
	shmcma_set(srx->rx_selective, true);
	shmcma_ep_set_flags(srx);
	ret = owner ? shmcma_peersrx_init(srx, owner) : sc_rxq_create(srx->rx_size, &srx->rxq);
	if (ret) {
		shmcma_ep_discard(srx);
		return ret;
	}
	shmcma_ep_show(srx, out);
	return 0;
}

/*
 * The other provider will bind `owner` itself, where its table of functions for its own messages has to stay. It closes
 * no context, and may discard messages when the endpoint has ended: so the domain has this one.
 */
static int open_lent(struct shmcma_domain *domain, const struct shmcma_srx_owner *owner)
{
	struct shmcma_srx_owner *copy = malloc(sizeof(*copy));
	struct shmcma_ep *srx;
	struct fid_ep *fid;
	int ret;

	if (!copy)
		return -FI_ENOMEM;
	*copy = *owner;
	ret = open_srx(domain, NULL, copy, &fid, NULL);
	if (ret) {
		free(copy);
		return ret;
	}
	srx = container_of(fid, struct shmcma_ep_fid, fid)->ep;
	srx->lent = copy;
	srx->lender = &owner->fid.fid;
	shmcma_lock(domain);
	srx->lent_next = domain->lent;
	domain->lent = srx;
	shmcma_unlock(domain);
	atomic_fetch_sub(&domain->refs, 1);
	return 0;
}

/* With FI_PEER the other attributes are the owner's affair. */
static int open_peer(struct shmcma_domain *domain, const struct shmcma_owner_context *context,
		     struct fid_ep **out)
{
	struct shmcma_srx_owner *owner;

	if (!shmcma_domain_is_peer(domain))
		return -FI_EINVAL;
	owner = shmcma_owner_object("fi_srx_context", context);
	if (!owner || !shmcma_owner_matches(owner))
		return -FI_EINVAL;
	if (shmcma_owner_lends(context)) {
		*out = NULL;
		return open_lent(domain, owner);
	}
	return open_srx(domain, NULL, owner, out, NULL);
}

int shmcma_srx_open(struct fid_domain *handle, struct fi_rx_attr *attr, struct fid_ep **out, void *context)
{
	struct shmcma_domain *domain = container_of(handle, struct shmcma_domain, fid);
	int ret;

	if (attr && attr->op_flags & FI_PEER)
		return open_peer(domain, context, out);
	ret = attr ? shmcma_rx_attr_complete(attr, domain->caps) : 0;
	if (attr && !ret)
		attr->caps &= ~FI_TRIGGER; /* only operations of an endpoint wait for a trigger */
	return ret ? ret : open_srx(domain, attr, NULL, out, context);
}
