/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint.c: fid_ep: an endpoint from fi_endpoint to fi_close, and its aliases. For its bindings see bind.c, for
 * its names cm.c.
 *
 * State         entered by     data calls           bind, setname   getname
 * disabled      fi_endpoint    -FI_EOPBADSTATE      yes             the service, if it has one
 * enabled       fi_enable      by capabilities      no              its address
 *
 * The state is shmcma_ep.core, which fi_enable creates. No data call looks at it: each fid has the operation tables of
 * the state (tables.c). A context of a scalable endpoint is an endpoint without one direction; sep.c opens these, and
 * shared.c opens the contexts that endpoints share.
 *
 * Locks: all of the domain for changes of the bindings or the flags; see lock.h.
 */
#include "ep/endpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/attr.h"
#include "base/param.h"
#include "base/node.h"
#include "coll/coll.h"
#include "ep/report.h"
#include "obj/eq.h"
#include "obj/peercq.h"
#include "obj/peermap.h"
#include "wait/lock.h"
#include "wait/progress.h"
#include "wait/wait.h"
#include "wait/watcher.h"
#include "wait/work.h"

static struct shmcma_ep_fid *fid_of(struct fid *fid)
{
	return container_of(fid, struct shmcma_ep_fid, fid.fid);
}

static int ep_bind(struct fid *fid, struct fid *object, uint64_t flags)
{
	struct shmcma_ep *ep = fid_of(fid)->ep;
	int ret;

	if (!object)
		return -FI_EINVAL;
	shmcma_lock(ep->domain);
	ret = shmcma_ep_bind_locked(ep, object, flags);
	shmcma_unlock(ep->domain);
	return ret;
}

/* ---- enable, alias, control ------------------------------------------------------------------ */

static const char *service_of(const struct shmcma_ep *ep)
{
	const char *name = ep->sep ? ep->sep->ep->name : ep->name;

	return ep->index == 0 && *name ? name : NULL;
}

/* Returns the order to keep beyond the usual one, between kinds of operations that the endpoint has. */
static uint32_t order_of(const struct shmcma_ep *ep)
{
	uint64_t caps = ep->caps & ep->tx_caps, order = ep->tx_order;
	uint32_t kept = (ep->tx_comp_order ? SC_ORDER_COMPLETE : 0) |
			(ep->rx_comp_order || (ep->srx && ep->srx->rx_comp_order) ? SC_ORDER_RECEIVE : 0);

	if (caps & FI_RMA && caps & FI_ATOMIC && order & SHMCMA_MEMORY_ORDER)
		kept |= SC_ORDER_MEMORY;
	if (!(caps & (FI_RMA | FI_ATOMIC)) || !(caps & (FI_MSG | FI_TAGGED)))
		return kept;
	if (order & (FI_ORDER_RAS | FI_ORDER_WAS))
		kept |= SC_ORDER_AFTER_SEND;
	if (order & (FI_ORDER_SAR | FI_ORDER_SAW))
		kept |= SC_ORDER_SEND;
	return kept;
}

/*
 * Tells whether a thread of this process is to watch the peers of the endpoint. For messages of another provider (FI_PEER)
 * it starts none in a process with one thread: glibc's mutexes and epoll_wait(2) are quicker there, and the difference is
 * more than shmcma's part of a small message. That provider polls in each call that reads its queue, and these polls find
 * deaths. Threads that start later change nothing. See docs/MEASUREMENTS.md, "Through lnx".
 */
static bool has_daemon(const struct shmcma_ep *ep)
{
	bool messages = shmcma_domain_is_peer(ep->domain) && !(ep->caps & (FI_RMA | FI_ATOMIC));

	return shmcma_env.config.daemon && !(messages && sc_process_is_single_threaded());
}

static int create_core(struct shmcma_ep *ep)
{
	struct sc_ep_attr attr = {
		.config = shmcma_env.config,
		.service = service_of(ep),
		.name = ep->sep ? &ep->sep->name : NULL,
		.index = ep->index,
		.reopens = shmcma_ep_class(ep) == FI_CLASS_RX_CTX,
		.tx_cq = ep->tx_cq ? &ep->tx_cq->queue : NULL,
		.rx_cq = ep->rx_cq ? &ep->rx_cq->queue : NULL,
		/* a context that only sends has no registrations */
		.regtab = shmcma_ep_class(ep) == FI_CLASS_TX_CTX ? NULL : ep->domain->regtab,
		.tx_size = ep->tx_size,
		.rx_size = ep->rx_size,
		.rxq = ep->srx ? ep->srx->rxq : NULL,
		.rx_report = ep->srx && !shmcma_now(ep->rx_selective),
		.order = order_of(ep),
		.release = shmcma_ep_release,
		.release_arg = ep,
	};
	int ret;

	attr.config.daemon = has_daemon(ep);
	for (int i = 0; i < SC_EVENTS; i++)
		attr.cntrs[i] = ep->cntrs[i] ? &ep->cntrs[i]->count : NULL;
	ret = sc_ep_create(&attr, &ep->core);
	if (!ret) {
		ep->rxq = sc_ep_rxq(ep->core);
		return 0;
	}
	ep->core = NULL;
	shmcma_warn(FI_LOG_EP_CTRL, "cannot enable the endpoint%s%s: %s\n",
		    attr.service ? " of service " : "", attr.service ? attr.service : "",
		    fi_strerror(-ret));
	return ret == -ENAMETOOLONG ? -FI_EINVAL : shmcma_error(ret);
}

/* Tells whether a queue or a counter reports the operations of this direction. */
static bool reports_tx(const struct shmcma_ep *ep)
{
	return ep->tx_cq || ep->cntrs[SC_EVENT_SEND] || ep->cntrs[SC_EVENT_READ] ||
	       ep->cntrs[SC_EVENT_WRITE];
}

static bool reports_rx(const struct shmcma_ep *ep)
{
	return ep->rx_cq || ep->cntrs[SC_EVENT_RECV];
}

static int enable_sep(struct shmcma_sep *sep)
{
	int ret;

	if (sep->enabled)
		return -FI_EOPBADSTATE;
	if (!sep->ep->av)
		return -FI_ENOAV;
	ret = sc_ep_name_address(&sep->name, sep->address);
	/* applications exchange the address, and insert it, before they open contexts */
	if (!ret && !sep->first)
		ret = sc_service_announce(sep->address, &sep->announced);
	if (ret)
		sep->address[0] = '\0';
	sep->enabled = !ret;
	return shmcma_error(ret);
}

static int enable(struct shmcma_ep *ep)
{
	int ret;

	switch (shmcma_ep_class(ep)) {
	case FI_CLASS_SEP:
		return enable_sep(ep->sep);
	case FI_CLASS_SRX_CTX:
		return 0; /* enabled since it was opened */
	}
	if (ep->core)
		return -FI_EOPBADSTATE;
	if ((!reports_tx(ep) && (shmcma_ep_sends(ep, FI_MSG) || shmcma_ep_sends(ep, FI_TAGGED))) ||
	    (!reports_rx(ep) && (shmcma_ep_receives(ep, FI_MSG) || shmcma_ep_receives(ep, FI_TAGGED))))
		return -FI_ENOCQ;
	if (ep->sep && !ep->av && ep->sep->ep->av)
		shmcma_ep_join_av(ep, ep->sep->ep->av);
	if (!ep->av)
		return -FI_ENOAV;
	ret = shmcma_ep_check_shared_locked(ep);
	if (!ret)
		ret = create_core(ep);
	if (ret)
		return ret;
	ret = shmcma_ep_polled_by_all(ep);
	if (!ret && ep->caps & FI_COLLECTIVE)
		ret = shmcma_coll_open(ep);
	if (ret) {
		shmcma_ep_polled_by_none(ep);
		sc_ep_destroy(ep->core);
		ep->core = NULL;
		ep->rxq = NULL;
		return ret;
	}
	shmcma_ep_join_shared_locked(ep);
	if (ep->sep && ep->index == 0)
		ep->sep->first = ep;
	shmcma_ep_set_tables(ep);
	shmcma_wait_again_locked(&ep->locked);
	return 0;
}

static int alias(struct shmcma_ep_fid *fid, const struct fi_alias *wanted)
{
	struct shmcma_ep_fid *copy = malloc(sizeof(*copy));
	int ret;

	if (!copy)
		return -FI_ENOMEM;
	*copy = *fid;
	ret = shmcma_ep_put_op_flags(copy, wanted->flags);
	if (ret) {
		free(copy);
		return ret;
	}
	copy->next = fid->ep->fids->next;
	fid->ep->fids->next = copy;
	shmcma_ep_set_flags(fid->ep);
	atomic_fetch_add(&fid->ep->refs, 1);
	*wanted->fid = &copy->fid.fid;
	return 0;
}

static int control_locked(struct shmcma_ep_fid *fid, int command, void *arg)
{
	if (command == FI_ENABLE)
		return enable(fid->ep);
	if (!arg)
		return -FI_EINVAL;
	switch (command) {
	case FI_GETOPSFLAG:
		return shmcma_ep_get_op_flags(fid, arg);
	case FI_SETOPSFLAG:
		return shmcma_ep_set_op_flags(fid, arg);
	case FI_ALIAS:
		/* a scalable endpoint has no operations that flags apply to */
		return shmcma_ep_class(fid->ep) == FI_CLASS_SEP ? -FI_EINVAL : alias(fid, arg);
	default:
		return -FI_ENOSYS;
	}
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct shmcma_ep_fid *ep = fid_of(fid);
	int ret;

	if (command == FI_ENABLE) {
		ret = shmcma_progress_start(ep->domain);
		if (ret)
			return ret;
	}
	shmcma_lock(ep->domain);
	ret = control_locked(ep, command, arg);
	shmcma_unlock(ep->domain);
	if (command == FI_ALIAS && !ret) {
		struct shmcma_ep_fid *copy = fid_of(*((struct fi_alias *)arg)->fid);

		shmcma_object_add(&copy->object, &copy->fid.fid, NULL, copy->object.forked);
	}
	return ret;
}

/* ---- close ----------------------------------------------------------------------------------- */

static void withdraw_address(struct shmcma_sep *sep)
{
	if (sep->announced)
		sc_service_destroy(sep->announced);
	sep->announced = NULL;
}

static void leave_sep(struct shmcma_ep *context)
{
	struct shmcma_sep *sep = context->sep;
	struct shmcma_ep **place = sep->tx;

	if (shmcma_ep_class(context) == FI_CLASS_RX_CTX)
		place = &sep->rx[context->index];
	while (*place != context)
		place++;
	*place = NULL;
	if (sep->first == context) {
		withdraw_address(sep); /* before its segment goes: others must not wait for it */
		sep->first = NULL;
	}
	atomic_fetch_sub(&sep->ep->refs, 1);
}

/*
 * Another provider posts the receives: those that have ended go back to it, while their sources have names; and then
 * those that the end of the core's endpoint ends.
 */
static void give_back_locked(const struct shmcma_ep *ep)
{
	if (ep->core && shmcma_ep_is_matched(ep) && !shmcma_is_forked(&ep->fids->fid.fid))
		shmcma_peercq_end_locked(ep->rx_cq, ep);
}

/* Unbinds the queues first: their completions name peers that the core's endpoint owns. Counters stay. */
static void destroy_locked(struct shmcma_ep *ep)
{
	shmcma_progress_leave_locked(ep->domain);
	shmcma_wait_stir_locked(&ep->locked);
	shmcma_work_forget_locked(ep);
	give_back_locked(ep);
	shmcma_ep_unbind_locked(ep);
	shmcma_coll_close(ep);
	if (ep->sep && ep != ep->sep->ep)
		leave_sep(ep);
	else if (ep->sep)
		withdraw_address(ep->sep);
	if (ep->core) {
		if (!shmcma_is_forked(&ep->fids->fid.fid))
			shmcma_report(ep->core);
		shmcma_watcher_end_locked(ep->domain, &ep->watcher, shmcma_wait_resume_locked);
		sc_ep_destroy(ep->core);
		give_back_locked(ep);
	}
	if (ep->eq)
		shmcma_eq_put_ref(ep->eq);
}

static void close_alias(struct shmcma_ep_fid *fid)
{
	struct shmcma_ep_fid *before = fid->ep->fids;

	shmcma_object_del(&fid->object);
	shmcma_lock(fid->domain);
	while (before->next != fid)
		before = before->next;
	before->next = fid->next;
	atomic_fetch_sub(&fid->ep->refs, 1);
	shmcma_unlock(fid->domain);
	free(fid);
}

void shmcma_ep_discard(struct shmcma_ep *ep)
{
	size_t fclass = shmcma_ep_class(ep);

	if (fclass == FI_CLASS_SEP && ep->sep) {
		fi_freeinfo(ep->sep->info);
		free(ep->sep->tx);
		free(ep->sep->rx);
		free(ep->sep);
	}
	if (fclass == FI_CLASS_SRX_CTX && ep->rxq)
		sc_rxq_destroy(ep->rxq);
	free(ep->lent);
	free(ep->given);
	shmcma_lock_quit(ep->domain, &ep->locked);
	free(ep->fids);
	free(ep->peers);
	free(ep);
}

/* Ends an endpoint that nothing uses; then the closed context that it was the last endpoint of. */
static void end(struct shmcma_ep *ep)
{
	struct shmcma_domain *domain = ep->domain;
	struct shmcma_ep *srx;

	shmcma_object_del(&ep->fids->object);
	shmcma_lock(domain);
	if (ep->srx && ep->srx->lent)
		ep->srx->owner_ended = true; /* its entries may be gone */
	destroy_locked(ep);
	shmcma_unlock(domain);
	srx = ep->ends_srx ? ep->srx : NULL;
	shmcma_ep_discard(ep);
	atomic_fetch_sub(&domain->refs, 1);
	if (srx)
		end(srx);
}

void shmcma_ep_end_lent(struct shmcma_domain *domain)
{
	struct shmcma_ep *srx;

	while ((srx = domain->lent)) {
		domain->lent = srx->lent_next;
		atomic_fetch_add(&domain->refs, 1);
		end(srx);
	}
}

/*
 * 0: nothing uses it. 1: endpoints use the receive context of another provider, and the last of them ends it
 * (peersrx.c). -FI_EBUSY: it is in use, and stays.
 */
static int close_used_locked(struct shmcma_ep *ep)
{
	bool has_aliases = ep->fids->next;

	if (!atomic_load(&ep->refs))
		return 0;
	if (!ep->owner || has_aliases)
		return -FI_EBUSY;
	ep->closed = true;
	ep->owner_ended = true;
	return 1;
}

static int ep_close(struct fid *handle)
{
	struct shmcma_ep_fid *fid = fid_of(handle);
	struct shmcma_ep *ep = fid->ep;
	int used;

	if (fid != ep->fids) {
		close_alias(fid);
		return 0;
	}
	shmcma_lock(ep->domain);
	used = close_used_locked(ep);
	shmcma_unlock(ep->domain);
	if (!used)
		end(ep);
	return used < 0 ? used : 0;
}

/* ---- cancel, room ---------------------------------------------------------------------------- */

/*
 * -FI_ENOENT: no receive waits with that context. Other operations can be cancelled only while they wait for a trigger.
 */
SHMCMA_CALL(ssize_t, ep_cancel, fid_t fid, void *context)
{
	struct shmcma_ep *ep = fid_of(fid)->ep;
	ssize_t ret;

	if (!ep->rxq)
		return -FI_EOPBADSTATE;
	shmcma_lock_enter(&ep->locked);
	ret = shmcma_work_cancel_locked(ep, context);
	if (ret)
		ret = ep->shares_rx ? -FI_ENOENT : sc_rxq_cancel(ep->rxq, context);
	shmcma_lock_leave(&ep->locked);
	return ret;
}

/* Returns what is left of the common size; in the core each user has the whole size. */
static size_t stx_room(const struct shmcma_stx *stx)
{
	size_t left = stx->size;

	for (const struct shmcma_ep *ep = stx->users; ep; ep = ep->stx_next) {
		size_t used = ep->tx_size - sc_tx_room(ep->core);

		left -= used < left ? used : left;
	}
	return left;
}

static ssize_t size_left(struct shmcma_ep *ep, bool has, bool sends)
{
	ssize_t ret;

	if (!has)
		return -FI_EOPNOTSUPP;
	if (!ep->rxq)
		return -FI_EOPBADSTATE;
	shmcma_lock_enter(&ep->locked);
	if (!sends)
		ret = (ssize_t)sc_rxq_room(ep->rxq);
	else
		ret = (ssize_t)(ep->stx ? stx_room(ep->stx) : sc_tx_room(ep->core));
	shmcma_lock_leave(&ep->locked);
	return ret;
}

SHMCMA_CALL(ssize_t, ep_rx_size_left, struct fid_ep *fid)
{
	struct shmcma_ep *ep = shmcma_ep_of(fid)->ep;

	return size_left(ep, ep->rx_caps && !ep->shares_rx, false);
}

SHMCMA_CALL(ssize_t, ep_tx_size_left, struct fid_ep *fid)
{
	struct shmcma_ep *ep = shmcma_ep_of(fid)->ep;

	return size_left(ep, ep->tx_caps, true);
}

SHMCMA_FORKED_CALL(int, shmcma_ep_getopt, fid_t fid, int level, int optname, void *optval, size_t *optlen)
SHMCMA_FORKED_CALL(int, shmcma_ep_setopt, fid_t fid, int level, int optname, const void *optval, size_t optlen)

/* Only a scalable endpoint opens contexts. */
SHMCMA_UNABLE(no_tx_ctx, -FI_ENOSYS, struct fid_ep *sep, int index, struct fi_tx_attr *attr,
	      struct fid_ep **ep, void *context)
SHMCMA_UNABLE(no_rx_ctx, -FI_ENOSYS, struct fid_ep *sep, int index, struct fi_rx_attr *attr,
	      struct fid_ep **ep, void *context)

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(union shmcma_ops_ep), .cancel = way##ep_cancel,                            \
		.getopt = way##shmcma_ep_getopt, .setopt = way##shmcma_ep_setopt,                         \
		.tx_ctx = way##no_tx_ctx, .rx_ctx = way##no_rx_ctx, .rx_size_left = way##ep_rx_size_left, \
		.tx_size_left = way##ep_tx_size_left, .export_xpu = shmcma_no_export,                     \
	}
static union shmcma_ops_ep ep_ops = OPS(), forked_ops = OPS(forked_);

static struct fi_ops ep_fid_ops = SHMCMA_FID_OPS(ep_close, ep_bind, ep_control);

/* ---- open ------------------------------------------------------------------------------------ */

static void forked(struct fid *fid)
{
	struct fid_ep *ep = container_of(fid, struct fid_ep, fid);

	ep->ops = &forked_ops.ops;
	ep->cm = &shmcma_forked_cm_ops;
	shmcma_ep_set_forked_tables(ep);
}

int shmcma_ep_check_info(const struct shmcma_domain *domain, const struct fi_info *info)
{
	if (!info || !info->ep_attr)
		return -FI_EINVAL;
	if (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC) {
		shmcma_warn(FI_LOG_EP_CTRL, "endpoint type %d: only FI_EP_RDM is supported\n",
			    (int)info->ep_attr->type);
		return -FI_EINVAL;
	}
	return shmcma_check_hints(domain->api_version, info) ? -FI_EINVAL : 0;
}

size_t shmcma_size_or_default(size_t size, size_t usual)
{
	if (!size)
		return usual;
	return size < SHMCMA_MAX_SIZE ? size : SHMCMA_MAX_SIZE;
}

/* FI_DIRECTED_RECV is for both kinds of messages. The modifier alone makes receives of both kinds directed. */
static uint64_t directed_caps(uint64_t caps)
{
	if (caps & SHMCMA_EXACT_DIRECTED_RECV &&
	    !(caps & (FI_DIRECTED_RECV | SHMCMA_TAGGED_DIRECTED_RECV)))
		caps |= FI_DIRECTED_RECV;
	return caps & FI_DIRECTED_RECV ? caps | SHMCMA_TAGGED_DIRECTED_RECV : caps;
}

static int fill(struct shmcma_ep *ep, struct shmcma_ep_fid *fid, const struct fi_info *info)
{
	const struct fi_tx_attr *tx = info->tx_attr;
	const struct fi_rx_attr *rx = info->rx_attr;
	int ret;

	ep->caps = directed_caps(info->caps ? info->caps : ep->domain->caps);
	ep->tx_caps = tx && tx->caps ? tx->caps : ep->caps;
	ep->rx_caps = rx && rx->caps ? rx->caps : ep->caps;
	ep->tx_order = tx ? tx->msg_order : 0;
	ep->tx_comp_order = tx ? tx->comp_order : 0;
	ep->rx_comp_order = rx ? rx->comp_order : 0;
	ep->tx_size = shmcma_size_or_default(tx ? tx->size : 0, shmcma_env.tx_size);
	ep->rx_size = shmcma_size_or_default(rx ? rx->size : 0, shmcma_env.rx_size);
	shmcma_set(ep->multi_min, SHMCMA_MULTI_MIN);
	shmcma_set(fid->tx_op_flags, tx ? tx->op_flags : 0);
	shmcma_set(fid->rx_op_flags, rx ? rx->op_flags : 0);
	if (shmcma_now(fid->tx_op_flags) & ~SHMCMA_TX_OP_FLAGS ||
	    shmcma_now(fid->rx_op_flags) & ~SHMCMA_RX_OP_FLAGS)
		return -FI_EBADFLAGS;
	ret = shmcma_source_service(info, ep->name);
	return ret ? ret : shmcma_ep_keep_name(ep, info->src_addr, info->src_addrlen);
}

/* Removes the direction that a context does not have, or both. */
static void narrow(struct shmcma_ep *ep, size_t fclass)
{
	if (fclass == FI_CLASS_TX_CTX || fclass == FI_CLASS_SEP)
		ep->rx_caps = 0;
	if (fclass != FI_CLASS_EP && fclass != FI_CLASS_TX_CTX)
		ep->tx_caps = 0;
}

int shmcma_ep_create(struct shmcma_domain *domain, const struct fi_info *info, size_t fclass,
		     void *context, struct shmcma_ep **out)
{
	struct shmcma_ep *ep = calloc(1, sizeof(*ep));
	struct shmcma_ep_fid *fid = calloc(1, sizeof(*fid));
	int ret = -FI_ENOMEM;

	if (!ep || !fid)
		goto failed;
	ep->domain = domain;
	ep->fids = fid;
	ret = fill(ep, fid, info);
	if (ret)
		goto failed;
	narrow(ep, fclass);
	if (fclass != FI_CLASS_SRX_CTX)
		ep->namer = ep;
	fid->ep = ep;
	fid->domain = domain;
	fid->fid.fid = (struct fid){ .fclass = fclass, .context = context, .ops = &ep_fid_ops };
	fid->fid.ops = &ep_ops.ops;
	fid->fid.cm = &shmcma_cm_ops;
	shmcma_ep_set_flags(ep);
	shmcma_lock_join(domain, &ep->locked, true);
	*out = ep;
	return 0;
failed:
	free(ep ? ep->given : NULL);
	free(ep);
	free(fid);
	return ret;
}

void shmcma_ep_show(struct shmcma_ep *ep, struct fid_ep **out)
{
	shmcma_ep_set_tables(ep);
	atomic_fetch_add(&ep->domain->refs, 1);
	shmcma_object_add(&ep->fids->object, &ep->fids->fid.fid, NULL, forked);
	*out = &ep->fids->fid;
}

static bool is_one(size_t count)
{
	return count <= 1 || count == FI_SHARED_CONTEXT;
}

int shmcma_ep_open(struct fid_domain *handle, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct shmcma_domain *domain = container_of(handle, struct shmcma_domain, fid);
	struct shmcma_ep *ep;
	int ret = shmcma_ep_check_info(domain, info);

	if (ret)
		return ret;
	if (!is_one(info->ep_attr->tx_ctx_cnt) || !is_one(info->ep_attr->rx_ctx_cnt)) {
		shmcma_warn(FI_LOG_EP_CTRL, "fi_endpoint: several contexts are for fi_scalable_ep\n");
		return -FI_EINVAL;
	}
	ret = shmcma_ep_create(domain, info, FI_CLASS_EP, context, &ep);
	if (ret)
		return ret;
	ep->shares_tx = info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT;
	ep->shares_rx = info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
	shmcma_ep_show(ep, out);
	return 0;
}
