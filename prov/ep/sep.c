/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sep.c: scalable endpoints: one name for several transmit and receive contexts.
 *
 * Each context is an endpoint of its own (endpoint.c), with its own segment, rings and peers. The contexts share a name
 * (struct sc_ep_name), and differ in the last number of the address:
 *
 *   0 ... rx_count - 1     receive contexts, by their index
 *   TX_FIRST ...           transmit contexts, in the order of opening: no fi_rx_addr() names one
 *
 * So other processes insert the address of number 0; the address of receive context n has n in place of 0, and messages
 * from all transmit contexts come from one name. fi_getname(3) tells it once the scalable endpoint is enabled. From then
 * on others can insert it, because the process announces it (src/proc/service.c). Others find a receive context once it
 * is enabled. Operations to number 0 before that get -FI_EAGAIN.
 *
 * A receive context that is closed and opened again has its old address, because others compute that from the address
 * of number 0. They find the new context (src/link/peer.c). An operation under way to the old one fails with
 * FI_ECONNRESET, or had ended and was dropped with the old queue; none reaches the new one. Messages that are sent
 * after the new one is enabled reach it, or get -FI_EAGAIN until the sender has ended the operations under way.
 * Messages of a closed transmit context may wait at its peers, which identify the sender by its number: so a transmit
 * context that is opened again gets another number while there is one.
 *
 * The scalable endpoint itself is a struct shmcma_ep without core. It holds the data that its contexts share: the
 * address vector, the service name, the initial attributes.
 *
 * Locks: the domain's, except for data that never changes after opening.
 */
#include "ep/endpoint.h"

#include <stdlib.h>
#include "base/attr.h"
#include "wait/lock.h"

#define TX_FIRST 0x8000u
#define TX_MOST 0x8000u /* transmit contexts that can be opened in its life */

/* ---- contexts -------------------------------------------------------------------------------- */

/* Copies only the fields of 1.0: the structures have grown, and the application's may end there. */
static void tx_attr_copy(struct fi_tx_attr *to, const struct fi_tx_attr *from)
{
	to->caps = from->caps;
	to->mode = from->mode;
	to->op_flags = from->op_flags;
	to->msg_order = from->msg_order;
	to->comp_order = from->comp_order;
	to->inject_size = from->inject_size;
	to->size = from->size;
	to->iov_limit = from->iov_limit;
	to->rma_iov_limit = from->rma_iov_limit;
}

static void rx_attr_copy(struct fi_rx_attr *to, const struct fi_rx_attr *from)
{
	to->caps = from->caps;
	to->mode = from->mode;
	to->op_flags = from->op_flags;
	to->msg_order = from->msg_order;
	to->comp_order = from->comp_order;
	to->total_buffered_recv = from->total_buffered_recv;
	to->size = from->size;
	to->iov_limit = from->iov_limit;
}

/* Takes the place of a new context. */
static int take(struct shmcma_ep **places, size_t count, int index, struct shmcma_ep *context)
{
	struct shmcma_sep *sep = context->sep;
	int ret = 0;

	if (index < 0 || (size_t)index >= count)
		return -FI_EINVAL;
	shmcma_lock(context->domain);
	if (places[index])
		ret = -FI_EBUSY;
	else if (places == sep->tx && sep->tx_opened == TX_MOST)
		ret = -FI_EADDRNOTAVAIL;
	if (!ret) {
		context->index =
			places == sep->rx ? (uint16_t)index : (uint16_t)(TX_FIRST | sep->tx_opened++);
		places[index] = context;
		atomic_fetch_add(&sep->ep->refs, 1);
	}
	shmcma_unlock(context->domain);
	return ret;
}

/*
 * Opens an endpoint with the attributes in `info` at that place. The capabilities in the attributes are a subset of the
 * capabilities of the whole endpoint, not of its direction: see fi_endpoint(3), and check_tx() in attr.c for
 * capabilities that mean nothing in a direction.
 */
static int context_open(struct shmcma_ep *sep, struct fi_info *info, size_t fclass, int index,
			struct fid_ep **out, void *user_context)
{
	const struct fi_info *all = sep->sep->info;
	bool sends = fclass == FI_CLASS_TX_CTX;
	struct shmcma_ep *ep;
	int ret;

	if (!info->tx_attr->caps)
		info->tx_attr->caps = all->tx_attr->caps;
	if (!info->rx_attr->caps)
		info->rx_attr->caps = all->rx_attr->caps;
	ret = sends ? shmcma_tx_attr_complete(info->tx_attr, all->caps)
		    : shmcma_rx_attr_complete(info->rx_attr, all->caps);
	if (!ret)
		ret = shmcma_ep_create(sep->domain, info, fclass, user_context, &ep);
	if (ret)
		return ret;
	ep->sep = sep->sep;
	shmcma_set(ep->multi_min, shmcma_now(sep->multi_min));
	ret = take(sends ? ep->sep->tx : ep->sep->rx, sends ? ep->sep->tx_count : ep->sep->rx_count, index, ep);
	if (ret)
		shmcma_ep_discard(ep);
	else
		shmcma_ep_show(ep, out);
	return ret;
}

static int sep_tx_ctx(struct fid_ep *fid, int index, struct fi_tx_attr *attr, struct fid_ep **out, void *context)
{
	struct shmcma_ep *sep = shmcma_ep_of(fid)->ep;
	struct fi_info *info = fi_dupinfo(sep->sep->info);
	int ret;

	if (!info)
		return -FI_ENOMEM;
	if (attr)
		tx_attr_copy(info->tx_attr, attr);
	ret = context_open(sep, info, FI_CLASS_TX_CTX, index, out, context);
	if (!ret && attr)
		tx_attr_copy(attr, info->tx_attr);
	fi_freeinfo(info);
	return ret;
}

static int sep_rx_ctx(struct fid_ep *fid, int index, struct fi_rx_attr *attr, struct fid_ep **out, void *context)
{
	struct shmcma_ep *sep = shmcma_ep_of(fid)->ep;
	struct fi_info *info = fi_dupinfo(sep->sep->info);
	int ret;

	if (!info)
		return -FI_ENOMEM;
	if (attr)
		rx_attr_copy(info->rx_attr, attr);
	ret = context_open(sep, info, FI_CLASS_RX_CTX, index, out, context);
	if (!ret && attr)
		rx_attr_copy(attr, info->rx_attr);
	fi_freeinfo(info);
	return ret;
}

/* ---- open ------------------------------------------------------------------------------------ */

SHMCMA_NO(ssize_t, no_size_left, -FI_EOPNOTSUPP, struct fid_ep *ep)

static union shmcma_ops_ep sep_ops = {
	.size = sizeof(union shmcma_ops_ep),
	.cancel = shmcma_no_cancel,
	.getopt = shmcma_ep_getopt,
	.setopt = shmcma_ep_setopt,
	.tx_ctx = sep_tx_ctx,
	.rx_ctx = sep_rx_ctx,
	.rx_size_left = no_size_left,
	.tx_size_left = no_size_left,
	.export_xpu = shmcma_no_export,
};

/* Copies the first attributes of the contexts, and their number (default: one), from the info. */
static int adopt_info(struct shmcma_sep *sep, const struct fi_info *info)
{
	size_t tx = info->ep_attr->tx_ctx_cnt, rx = info->ep_attr->rx_ctx_cnt;
	int ret;

	if (tx == FI_SHARED_CONTEXT || rx == FI_SHARED_CONTEXT) {
		shmcma_warn(FI_LOG_EP_CTRL, "a scalable endpoint has contexts of its own, none that are "
					    "shared with others\n");
		return -FI_EINVAL;
	}
	if (!info->tx_attr || !info->rx_attr)
		return -FI_EINVAL;
	sep->info = fi_allocinfo();
	if (!sep->info)
		return -FI_ENOMEM;
	sep->info->caps =
		info->caps ? shmcma_granted_caps(sep->ep->domain->api_version, info, shmcma_offers[0])
			   : sep->ep->caps;
	if (sep->info->caps & FI_COLLECTIVE) {
		shmcma_warn(FI_LOG_EP_CTRL,
			    "a scalable endpoint has no FI_COLLECTIVE: a collective operation needs both "
			    "directions, and each context has one\n");
		return -FI_EINVAL;
	}
	tx_attr_copy(sep->info->tx_attr, info->tx_attr);
	rx_attr_copy(sep->info->rx_attr, info->rx_attr);
	ret = shmcma_tx_attr_complete(sep->info->tx_attr, sep->info->caps);
	if (!ret)
		ret = shmcma_rx_attr_complete(sep->info->rx_attr, sep->info->caps);
	sep->tx_count = tx ? tx : 1;
	sep->rx_count = rx ? rx : 1;
	return ret;
}

static int sep_create(struct shmcma_ep *ep, const struct fi_info *info)
{
	struct shmcma_sep *sep = calloc(1, sizeof(*sep));
	int ret;

	if (!sep)
		return -FI_ENOMEM;
	ep->sep = sep; /* freed with the endpoint */
	sep->ep = ep;
	ret = adopt_info(sep, info);
	if (ret)
		return ret;
	sep->tx = calloc(sep->tx_count, sizeof(*sep->tx));
	sep->rx = calloc(sep->rx_count, sizeof(*sep->rx));
	if (!sep->tx || !sep->rx)
		return -FI_ENOMEM;
	return sc_ep_name_init(&sep->name);
}

int shmcma_sep_open(struct fid_domain *handle, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct shmcma_domain *domain = container_of(handle, struct shmcma_domain, fid);
	struct shmcma_ep *ep;
	int ret = shmcma_ep_check_info(domain, info);

	if (!ret)
		ret = shmcma_ep_create(domain, info, FI_CLASS_SEP, context, &ep);
	if (ret)
		return ret;
	ret = sep_create(ep, info);
	if (ret) {
		shmcma_ep_discard(ep);
		return ret;
	}
	ep->fids->fid.ops = &sep_ops.ops;
	shmcma_ep_show(ep, out);
	return 0;
}
