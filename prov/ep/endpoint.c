/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ep.c: fid_ep: an endpoint from fi_endpoint to fi_close, its names, ties and aliases.
 *
 * State         entered by     data calls           bind, setname   getname
 * disabled      fi_endpoint    -FI_EOPBADSTATE      yes             the service, once it has one
 * enabled       fi_enable      by capabilities      no              its address
 *
 * The state is shmcma_ep.core, made by fi_enable. No data call looks at it: each fid handed out has the
 * operation tables of the state (shmcma_ep_set_tables()). Contexts of scalable endpoints are endpoints of which one
 * direction is missing; sep.c has the rest of them, and shared.c has contexts that endpoints share.
 *
 * Locks: all of the domain for what changes the ties or the flags; see lock.h.
 */
#define _GNU_SOURCE 1

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/caps.h"
#include "base/node.h"
#include "coll/coll.h"
#include "ep/ep.h"
#include "ep/unable.h"
#include "obj/cntr.h"
#include "obj/cq.h"
#include "op/post.h"
#include "wait/polled.h"
#include "wait/progress.h"
#include "wait/wait.h"

static struct shmcma_ep_fid *fid_of(struct fid *fid)
{
	return container_of(fid, struct shmcma_ep_fid, fid.fid);
}

/* ---- capabilities and default flags ---------------------------------------------------------- */

/* Without FI_SEND and FI_RECV both are meant. */
static bool able(uint64_t caps, uint64_t kind, uint64_t way)
{
	return caps & kind && (caps & way || !(caps & (FI_SEND | FI_RECV)));
}

static bool sends(const struct shmcma_ep *ep, uint64_t kind)
{
	return able(ep->caps, kind, FI_SEND) && able(ep->tx_caps, kind, FI_SEND);
}

static bool receives(const struct shmcma_ep *ep, uint64_t kind)
{
	return able(ep->caps, kind, FI_RECV) && able(ep->rx_caps, kind, FI_RECV);
}

/* `kind`: FI_MSG or FI_TAGGED. */
static enum shmcma_post post_of(const struct shmcma_ep *ep, uint64_t kind)
{
	bool send = sends(ep, kind), recv = receives(ep, kind) && !ep->shares_rx;

	if (!send && !recv)
		return SHMCMA_POST_UNABLE;
	if (!ep->rxq)
		return SHMCMA_POST_DISABLED;
	if (send && recv)
		return SHMCMA_POST_BOTH;
	return send ? SHMCMA_POST_SEND : SHMCMA_POST_RECV;
}

/* Without any of the four all are meant, of the endpoint's as of the transmit attributes' capabilities. */
static bool accesses(const struct shmcma_ep *ep, uint64_t kind, uint64_t way)
{
	const uint64_t ways = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

	return ep->caps & kind && ep->tx_caps & kind && (ep->caps & way || !(ep->caps & ways)) &&
	       (ep->tx_caps & way || !(ep->tx_caps & ways));
}

/* `kind`: FI_RMA or FI_ATOMIC. */
static enum shmcma_rma rma_of(const struct shmcma_ep *ep, uint64_t kind)
{
	bool read = accesses(ep, kind, FI_READ), write = accesses(ep, kind, FI_WRITE);

	if (!read && !write)
		return SHMCMA_RMA_UNABLE;
	if (!ep->core)
		return SHMCMA_RMA_DISABLED;
	if (read && write)
		return SHMCMA_RMA_BOTH;
	return read ? SHMCMA_RMA_READ : SHMCMA_RMA_WRITE;
}

static enum shmcma_collectives collectives_of(const struct shmcma_ep *ep)
{
	if (!(ep->caps & FI_COLLECTIVE))
		return SHMCMA_COLL_UNABLE;
	return ep->core ? SHMCMA_COLL_ABLE : SHMCMA_COLL_DISABLED;
}

void shmcma_ep_set_tables(struct shmcma_ep *ep)
{
	for (struct shmcma_ep_fid *fid = ep->fids; fid; fid = fid->next) {
		fid->fid.msg = shmcma_msg_ops(post_of(ep, FI_MSG));
		fid->fid.tagged = shmcma_tagged_ops(post_of(ep, FI_TAGGED));
		fid->fid.rma = shmcma_rma_ops(rma_of(ep, FI_RMA));
		fid->fid.atomic = shmcma_atomic_ops(rma_of(ep, FI_ATOMIC));
		fid->fid.collective = shmcma_collective_ops(collectives_of(ep));
	}
}

static void set_flags(struct shmcma_ep *ep)
{
	for (struct shmcma_ep_fid *fid = ep->fids; fid; fid = fid->next) {
		shmcma_set(fid->send_flags,
			   shmcma_send_flags(shmcma_now(fid->tx_op_flags), ep->tx_selective));
		shmcma_set(fid->recv_flags,
			   shmcma_recv_flags(shmcma_now(fid->rx_op_flags), shmcma_now(ep->rx_selective)));
	}
}

void shmcma_ep_set_selective(struct shmcma_ep *ep)
{
	shmcma_set(ep->rx_selective, true);
	set_flags(ep);
}

/* One direction's op flags; `flags` names it by FI_TRANSMIT or FI_RECV. */
static int put_op_flags(struct shmcma_ep_fid *fid, uint64_t flags)
{
	uint64_t way = flags & (FI_TRANSMIT | FI_RECV);

	flags &= ~way;
	if (way != FI_TRANSMIT && way != FI_RECV)
		return -FI_EINVAL;
	if (flags & ~(way == FI_TRANSMIT ? SHMCMA_TX_OP_FLAGS : SHMCMA_RX_OP_FLAGS))
		return -FI_EBADFLAGS;
	if (way == FI_TRANSMIT)
		shmcma_set(fid->tx_op_flags, flags);
	else
		shmcma_set(fid->rx_op_flags, flags);
	return 0;
}

static int set_op_flags(struct shmcma_ep_fid *fid, const uint64_t *flags)
{
	int ret = put_op_flags(fid, *flags);

	if (!ret)
		set_flags(fid->ep);
	return ret;
}

static int get_op_flags(const struct shmcma_ep_fid *fid, uint64_t *flags)
{
	switch (*flags & (FI_TRANSMIT | FI_RECV)) {
	case FI_TRANSMIT:
		*flags = shmcma_now(fid->tx_op_flags);
		return 0;
	case FI_RECV:
		*flags = shmcma_now(fid->rx_op_flags);
		return 0;
	default:
		return -FI_EINVAL;
	}
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* The entry of the address vector that it means, and the receive context of that. */
static fi_addr_t split(const struct shmcma_ep *ep, fi_addr_t fi_addr, uint16_t *index)
{
	unsigned int bits = ep->rx_ctx_bits;

	*index = bits ? (uint16_t)(fi_addr >> (64 - bits)) : 0;
	return bits ? fi_addr << bits >> bits : fi_addr;
}

static bool grow_peers(struct shmcma_ep *ep, size_t count)
{
	struct sc_peer **peers;

	if (count < ep->peer_count * 2)
		count = ep->peer_count * 2;
	peers = realloc(ep->peers, count * sizeof(struct sc_peer *));
	if (!peers)
		return false;
	memset(peers + ep->peer_count, 0, (count - ep->peer_count) * sizeof(struct sc_peer *));
	ep->peers = peers;
	ep->peer_count = count;
	return true;
}

struct sc_peer *shmcma_ep_peer_slow(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint64_t place = shmcma_ep_place(ep, fi_addr);
	char of_context[SC_ADDR_SIZE];
	const char *address;
	struct sc_peer *peer;
	uint16_t index;

	address = shmcma_av_address(ep->av, split(ep, fi_addr, &index));
	if (!address)
		return NULL;
	if (place >= ep->peer_count && !grow_peers(ep, place + 1))
		return NULL;
	if (index && !sc_addr_context(address, index, of_context))
		address = of_context;
	if (sc_peer_get(ep->core, address, &peer))
		return NULL;
	ep->peers[place] = peer;
	return peer;
}

int shmcma_ep_no_peer(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint16_t index;

	if (!ep->namer)
		return -FI_EOPBADSTATE;
	ep = ep->namer;
	return shmcma_av_address(ep->av, split(ep, fi_addr, &index)) ? -FI_EAGAIN : -FI_EINVAL;
}

fi_addr_t shmcma_ep_source_slow(struct shmcma_ep *ep, struct sc_peer *peer)
{
	fi_addr_t source;

	if (!(ep->caps & FI_SOURCE))
		return FI_ADDR_NOTAVAIL;
	source = shmcma_av_find(ep->av, sc_peer_address(peer));
	if (source == FI_ADDR_NOTAVAIL)
		return source;
	if (ep->named_count == ep->named_capacity) {
		size_t capacity = ep->named_capacity ? ep->named_capacity * 2 : 16;
		struct sc_peer **named = realloc(ep->named, capacity * sizeof(struct sc_peer *));

		if (!named)
			return source; /* found again next time */
		ep->named = named;
		ep->named_capacity = capacity;
	}
	ep->named[ep->named_count++] = peer;
	sc_peer_set_user(peer, source);
	return source;
}

/* Which peer the address had, or whether it stays in the vector once more, is not asked: all names go. */
void shmcma_ep_forget_peer(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint64_t place = shmcma_ep_place(ep, fi_addr), end = place + (1ull << ep->rx_ctx_bits);

	while (ep->named_count)
		sc_peer_set_user(ep->named[--ep->named_count], UINT64_MAX);
	for (; place < end && place < ep->peer_count; place++) {
		struct sc_peer *peer = ep->peers[place];

		ep->peers[place] = NULL;
		if (peer)
			sc_peer_put(peer);
	}
}

void shmcma_ep_forget_address(struct shmcma_ep *ep, fi_addr_t fi_addr, const char *address)
{
	shmcma_ep_forget_peer(ep, fi_addr);
	if (ep->core)
		sc_peers_unknown(ep->core, address);
}

bool shmcma_ep_knows(void *arg, const char *address)
{
	struct shmcma_ep *ep = arg;

	return ep->av && shmcma_av_has(ep->av, address);
}

/* ---- what the data calls need of an endpoint, out of line ------------------------------------- */

ssize_t shmcma_send_refused_locked(struct shmcma_ep *ep, int error)
{
	if (error == -EAGAIN)
		sc_ep_poll(ep->core);
	return shmcma_error(error);
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
	ret = peer ? sc_tx_send_buf(peer, buf, len, tag, data, flags, context)
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
	ret = shmcma_recv_source(ep, source, &peer)
		      ? shmcma_error(sc_rxq_recv_buf(ep->rxq, peer, buf, len, tag, ignore, flags, context))
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
	ret = sc_rxq_recv_buf(ep->rxq, peer, buf, len, tag, ignore, flags, context);
	return __builtin_expect(ret, 0) ? shmcma_error(ret) : 0;
}

/* ---- bind ------------------------------------------------------------------------------------ */

/* A context has one direction, and no use for a queue of the other. */
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
	set_flags(ep);
	return 0;
}

static void join_av(struct shmcma_ep *ep, struct shmcma_av *av)
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
	join_av(ep, av);
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

/* The flag that a counter is bound with, by enum sc_event. */
static const uint64_t event_flags[SC_EVENTS] = {
	[SC_EVENT_SEND] = FI_SEND,
	[SC_EVENT_RECV] = FI_RECV,
	[SC_EVENT_READ] = FI_READ,
	[SC_EVENT_WRITE] = FI_WRITE,
	[SC_EVENT_REMOTE_READ] = FI_REMOTE_READ,
	[SC_EVENT_REMOTE_WRITE] = FI_REMOTE_WRITE,
};
#define CNTR_FLAGS (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/*
 * An endpoint sees accesses of peers to our memory with FI_RMA_EVENT only; where they can do nothing, there is nothing
 * to see.
 */
static bool sees_accesses(const struct shmcma_ep *ep)
{
	return ep->caps & FI_RMA_EVENT || !(ep->caps & (FI_RMA | FI_ATOMIC));
}

/*
 * One counter for each kind of event; without any flag it counts nothing, which some ask for. So it is with kinds
 * that the endpoint has not asked to be able to: others bind one counter for all that there is.
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

/* Of a scalable endpoint: the objects that its contexts have in common. */
static int bind_sep(struct shmcma_ep *ep, struct fid *object, uint64_t flags)
{
	if (shmcma_sep_is_enabled(ep))
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

static int bind_locked(struct shmcma_ep *ep, struct fid *object, uint64_t flags)
{
	size_t fclass = shmcma_ep_class(ep);

	if (fclass == FI_CLASS_SEP)
		return bind_sep(ep, object, flags);
	if (fclass == FI_CLASS_SRX_CTX || (object->fclass == FI_CLASS_AV && fclass != FI_CLASS_EP))
		return -FI_EINVAL;
	if (ep->core)
		return -FI_EOPBADSTATE;
	switch (object->fclass) {
	case FI_CLASS_STX_CTX:
		return shmcma_stx_bind_locked(ep, object, flags);
	case FI_CLASS_SRX_CTX:
		return shmcma_srx_bind_locked(ep, object, flags);
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

static int ep_bind(struct fid *fid, struct fid *object, uint64_t flags)
{
	struct shmcma_ep *ep = fid_of(fid)->ep;
	int ret;

	if (!object)
		return -FI_EINVAL;
	shmcma_lock(ep->domain);
	ret = bind_locked(ep, object, flags);
	shmcma_unlock(ep->domain);
	return ret;
}

/* ---- enable, alias, control ------------------------------------------------------------------ */

static const char *service_of(const struct shmcma_ep *ep)
{
	if (ep->sep)
		return shmcma_sep_service(ep);
	return ep->name[0] ? ep->name : NULL;
}

/* The order to keep beyond the order that always holds, between kinds of operations that the endpoint has. */
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

static int create_core(struct shmcma_ep *ep)
{
	struct sc_ep_attr attr = {
		.config = shmcma_env.config,
		.service = service_of(ep),
		.name = ep->sep ? shmcma_sep_name(ep) : NULL,
		.index = ep->index,
		.tx_cq = ep->tx_cq ? &ep->tx_cq->queue : NULL,
		.rx_cq = ep->rx_cq ? &ep->rx_cq->queue : NULL,
		/* a context that only sends shows no registrations */
		.regtab = shmcma_ep_class(ep) == FI_CLASS_TX_CTX ? NULL : ep->domain->regtab,
		.tx_size = ep->tx_size,
		.rx_size = ep->rx_size,
		.rxq = ep->srx ? ep->srx->rxq : NULL,
		.rx_report = ep->srx && !shmcma_now(ep->rx_selective),
		.order = order_of(ep),
		.knows = shmcma_ep_knows,
		.knows_arg = ep,
	};
	int ret;

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

static bool is_silent(const struct shmcma_ep *ep)
{
	for (int i = 0; i < SC_EVENTS; i++)
		if (ep->cntrs[i])
			return false;
	return !ep->tx_cq && !ep->rx_cq;
}

/* A read of one of these polls the endpoint. */
static int polled_by_all(struct shmcma_ep *ep)
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

static void polled_by_none(struct shmcma_ep *ep)
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

/* Is anybody told how the operations of this direction end? A queue or a counter will do. */
static bool reports_tx(const struct shmcma_ep *ep)
{
	return ep->tx_cq || ep->cntrs[SC_EVENT_SEND] || ep->cntrs[SC_EVENT_READ] ||
	       ep->cntrs[SC_EVENT_WRITE];
}

static bool reports_rx(const struct shmcma_ep *ep)
{
	return ep->rx_cq || ep->cntrs[SC_EVENT_RECV];
}

static int enable(struct shmcma_ep *ep)
{
	int ret;

	switch (shmcma_ep_class(ep)) {
	case FI_CLASS_SEP:
		return shmcma_sep_enable_locked(ep);
	case FI_CLASS_SRX_CTX:
		return 0; /* since it was opened */
	}
	if (ep->core)
		return -FI_EOPBADSTATE;
	if ((!reports_tx(ep) && (sends(ep, FI_MSG) || sends(ep, FI_TAGGED))) ||
	    (!reports_rx(ep) && (receives(ep, FI_MSG) || receives(ep, FI_TAGGED))))
		return -FI_ENOCQ;
	if (ep->sep && !ep->av && shmcma_sep_av(ep))
		join_av(ep, shmcma_sep_av(ep));
	if (!ep->av)
		return -FI_ENOAV;
	ret = shmcma_shared_check_locked(ep);
	if (!ret)
		ret = create_core(ep);
	if (ret)
		return ret;
	ret = polled_by_all(ep);
	if (!ret && ep->caps & FI_COLLECTIVE)
		ret = shmcma_coll_open(ep);
	if (ret) {
		polled_by_none(ep);
		sc_ep_destroy(ep->core);
		ep->core = NULL;
		ep->rxq = NULL;
		return ret;
	}
	shmcma_shared_enabled_locked(ep);
	if (ep->sep)
		shmcma_sep_enabled_locked(ep);
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
	ret = put_op_flags(copy, wanted->flags);
	if (ret) {
		free(copy);
		return ret;
	}
	copy->next = fid->ep->fids->next;
	fid->ep->fids->next = copy;
	set_flags(fid->ep);
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
		return get_op_flags(fid, arg);
	case FI_SETOPSFLAG:
		return set_op_flags(fid, arg);
	case FI_ALIAS:
		/* of a scalable endpoint there is nothing that flags are for */
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

		shmcma_object_add(&copy->object, &copy->fid.fid, NULL);
	}
	return ret;
}

/* ---- close ----------------------------------------------------------------------------------- */

#define COUNTER(name) #name, offsetof(struct sc_counters, name)
static const struct {
	const char *name;
	size_t offset;
} counters[] = {
	{ COUNTER(tx_msgs) },	       { COUNTER(tx_bytes) },	     { COUNTER(tx_inline) },
	{ COUNTER(tx_bounce) },	       { COUNTER(tx_rdv) },	     { COUNTER(tx_overflows) },
	{ COUNTER(rx_msgs) },	       { COUNTER(rx_bytes) },	     { COUNTER(rx_unexpected) },
	{ COUNTER(rx_cma_bytes) },     { COUNTER(rx_pulled_bytes) }, { COUNTER(rx_local_bytes) },
	{ COUNTER(shared_bytes) },     { COUNTER(rma_ops) },	     { COUNTER(rma_direct_bytes) },
	{ COUNTER(rma_requests) },     { COUNTER(rma_served) },	     { COUNTER(rma_offers) },
	{ COUNTER(rma_offers_taken) }, { COUNTER(rma_batched) },     { COUNTER(rma_assisted) },
	{ COUNTER(connects) },	       { COUNTER(accepts) },	     { COUNTER(refusals) },
	{ COUNTER(quarantines) },      { COUNTER(departures) },	     { COUNTER(deaths) },
};
#define COUNTERS (sizeof(counters) / sizeof(counters[0]))
_Static_assert(COUNTERS == sizeof(struct sc_counters) / sizeof(uint64_t), "all of them");

/* Logs in one line how much the endpoint has carried, so that a user sees which provider carried the data. */
static void report(const struct shmcma_ep *ep)
{
	const char *all = (const char *)sc_ep_counters(ep->core);
	char text[COUNTERS * 40];
	size_t used = 0;

	for (size_t i = 0; i < COUNTERS; i++) {
		uint64_t value;

		memcpy(&value, all + counters[i].offset, sizeof(value));
		used += (size_t)snprintf(text + used, sizeof(text) - used, " %s=%" PRIu64,
					 counters[i].name, value);
	}
	shmcma_info(FI_LOG_EP_CTRL, "shmcma: counters:%s\n", text);
}

/* A counter that this was the last endpoint of is waited for as all that have none, see lock.h. */
static void tell_counters(struct shmcma_ep *ep)
{
	for (int i = 0; i < SC_EVENTS; i++)
		if (ep->cntrs[i] && !ep->cntrs[i]->polled.count && ep->cntrs[i]->wait.armed)
			shmcma_wait_again_locked(&ep->locked);
}

static void unbind_reports(struct shmcma_ep *ep)
{
	polled_by_none(ep);
	tell_counters(ep);
	if (ep->tx_cq)
		atomic_fetch_sub(&ep->tx_cq->refs, 1);
	if (ep->rx_cq)
		atomic_fetch_sub(&ep->rx_cq->refs, 1);
	for (int i = 0; i < SC_EVENTS; i++)
		if (ep->cntrs[i])
			shmcma_cntr_put(ep->cntrs[i]);
}

static void unbind_av(struct shmcma_ep *ep)
{
	struct shmcma_ep **link;

	if (!ep->av)
		return;
	for (link = &ep->av->eps; *link != ep; link = &(*link)->av_next)
		;
	*link = ep->av_next;
	atomic_fetch_sub(&ep->av->refs, 1);
}

/* The queues let go first: their completions name peers that go with the core's endpoint. Counters stay. */
static void destroy_locked(struct shmcma_ep *ep)
{
	shmcma_progress_leave_locked(ep->domain);
	shmcma_trigger_forget_locked(ep);
	unbind_reports(ep);
	unbind_av(ep);
	shmcma_coll_close(ep);
	shmcma_shared_leave_locked(ep);
	if (ep->sep)
		shmcma_sep_leave_locked(ep);
	if (ep->core) {
		if (!shmcma_is_forked(&ep->fids->fid.fid))
			report(ep);
		shmcma_watcher_end_locked(ep->domain, &ep->watcher);
		sc_ep_destroy(ep->core);
	}
	if (ep->eq)
		shmcma_eq_put_ref(ep->eq);
}

static void close_alias_locked(struct shmcma_ep_fid *fid)
{
	struct shmcma_ep_fid *before = fid->ep->fids;

	while (before->next != fid)
		before = before->next;
	before->next = fid->next;
	atomic_fetch_sub(&fid->ep->refs, 1);
}

static void ep_free(struct shmcma_ep *ep)
{
	switch (shmcma_ep_class(ep)) {
	case FI_CLASS_SEP:
		shmcma_sep_free(ep);
		break;
	case FI_CLASS_SRX_CTX:
		shmcma_srx_free(ep);
		break;
	}
	shmcma_lock_quit(ep->domain, &ep->locked);
	free(ep->fids);
	free(ep->peers);
	free(ep->named);
	free(ep);
}

static int ep_close(struct fid *handle)
{
	struct shmcma_ep_fid *fid = fid_of(handle);
	struct shmcma_domain *domain = fid->domain;
	struct shmcma_ep *ep = fid->ep;
	bool whole = fid == ep->fids;

	if (whole && atomic_load(&ep->refs))
		return -FI_EBUSY;
	shmcma_object_del(&fid->object);
	shmcma_lock(domain);
	if (whole)
		destroy_locked(ep);
	else
		close_alias_locked(fid);
	shmcma_unlock(domain);
	if (!whole) {
		free(fid);
		return 0;
	}
	ep_free(ep);
	atomic_fetch_sub(&domain->refs, 1);
	return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Contexts of a scalable endpoint have its name, and it that of the first of them. */
static struct sc_ep *named_by(const struct shmcma_ep *ep)
{
	const struct shmcma_ep *first = ep->sep ? shmcma_sep_first(ep) : ep;

	return first ? first->core : NULL;
}

/* May it be given a name? */
static bool has_name(const struct shmcma_ep *ep)
{
	return shmcma_ep_class(ep) == FI_CLASS_EP || shmcma_ep_class(ep) == FI_CLASS_SEP;
}

/* A service may be chosen until the endpoint is enabled; its own address nobody chooses. */
static int ep_setname(fid_t fid, void *addr, size_t addrlen)
{
	struct shmcma_ep *ep = fid_of(fid)->ep;
	enum sc_addr_kind kind;
	char copy[SC_ADDR_SIZE];
	int ret;

	if (!addr || !addrlen)
		return -FI_EINVAL;
	ret = shmcma_address_copy(addr, addrlen, copy, &kind);
	if (ret)
		return ret;
	if (kind == SC_ADDR_ENDPOINT)
		return -FI_EADDRNOTAVAIL;
	if (!has_name(ep))
		return -FI_EOPNOTSUPP;
	shmcma_lock(ep->domain);
	if (named_by(ep))
		ret = -FI_EOPBADSTATE;
	else if (kind == SC_ADDR_SERVICE)
		strcpy(ep->name, copy + strlen(SC_ADDR_PREFIX));
	else
		ep->name[0] = '\0'; /* any: what fi_enable gives */
	shmcma_unlock(ep->domain);
	return ret;
}

/* All addresses have one length, so that they can be packed at a constant stride. */
static int ep_getname(fid_t fid, void *addr, size_t *addrlen)
{
	struct shmcma_ep *ep = fid_of(fid)->ep;
	const struct shmcma_ep *chosen = ep->sep ? shmcma_sep_ep(ep) : ep;
	char name[SC_ADDR_SIZE] = "";
	size_t room;

	if (!addrlen)
		return -FI_EINVAL;
	room = *addrlen;
	shmcma_lock(ep->domain);
	if (named_by(ep))
		strncpy(name, sc_ep_address(named_by(ep)), sizeof(name) - 1);
	else if (chosen->name[0])
		sc_addr_service(chosen->name, name);
	shmcma_unlock(ep->domain);
	if (!name[0])
		return -FI_EOPBADSTATE;
	if (room && !addr)
		return -FI_EINVAL;
	*addrlen = sizeof(name);
	if (room)
		memcpy(addr, name, room < sizeof(name) ? room : sizeof(name));
	return room < sizeof(name) ? -FI_ETOOSMALL : 0;
}

static struct fi_ops_cm cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = ep_setname,
	.getname = ep_getname,
	.getpeer = cm_getpeer,
	.connect = cm_connect,
	.listen = cm_listen,
	.accept = cm_accept,
	.reject = cm_reject,
	.shutdown = cm_shutdown,
	.join = shmcma_join,
};

/* ---- cancel, room ---------------------------------------------------------------------------- */

/*
 * -FI_ENOENT: no receive waits with that context. Of other operations those can be called back that wait for
 * a trigger.
 */
static ssize_t ep_cancel(fid_t fid, void *context)
{
	struct shmcma_ep *ep = fid_of(fid)->ep;
	ssize_t ret;

	if (!ep->rxq)
		return -FI_EOPBADSTATE;
	shmcma_lock_enter(&ep->locked);
	ret = shmcma_trigger_cancel_locked(ep, context);
	if (ret)
		ret = ep->shares_rx ? -FI_ENOENT : sc_rxq_cancel(ep->rxq, context);
	shmcma_lock_leave(&ep->locked);
	return ret;
}

static size_t rx_left(const struct shmcma_ep *ep)
{
	return sc_rxq_room(ep->rxq);
}

static size_t tx_left(const struct shmcma_ep *ep)
{
	return ep->stx ? shmcma_stx_room_locked(ep->stx) : sc_tx_room(ep->core);
}

/* An endpoint without this direction has no such size. */
static ssize_t size_left(struct fid_ep *fid, bool has, size_t (*left)(const struct shmcma_ep *ep))
{
	struct shmcma_ep *ep = shmcma_ep_of(fid)->ep;
	ssize_t ret;

	if (!has)
		return -FI_EOPNOTSUPP;
	if (!ep->rxq)
		return -FI_EOPBADSTATE;
	shmcma_lock_enter(&ep->locked);
	ret = (ssize_t)left(ep);
	shmcma_lock_leave(&ep->locked);
	return ret;
}

static ssize_t ep_rx_size_left(struct fid_ep *fid)
{
	const struct shmcma_ep *ep = shmcma_ep_of(fid)->ep;

	return size_left(fid, ep->rx_caps && !ep->shares_rx, rx_left);
}

static ssize_t ep_tx_size_left(struct fid_ep *fid)
{
	return size_left(fid, shmcma_ep_of(fid)->ep->tx_caps, tx_left);
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = shmcma_ep_getopt,
	.setopt = shmcma_ep_setopt,
	.tx_ctx = no_tx_ctx,
	.rx_ctx = no_rx_ctx,
	.rx_size_left = ep_rx_size_left,
	.tx_size_left = ep_tx_size_left,
};

static struct fi_ops ep_fid_ops = SHMCMA_FID_OPS(ep_close, ep_bind, ep_control);

/* ---- open ------------------------------------------------------------------------------------ */

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

size_t shmcma_size_or_default(size_t size)
{
	if (!size)
		return SHMCMA_DEFAULT_SIZE;
	return size < SHMCMA_MAX_SIZE ? size : SHMCMA_MAX_SIZE;
}

static int fill(struct shmcma_ep *ep, struct shmcma_ep_fid *fid, const struct fi_info *info)
{
	const struct fi_tx_attr *tx = info->tx_attr;
	const struct fi_rx_attr *rx = info->rx_attr;

	ep->caps = info->caps ? info->caps : ep->domain->caps;
	ep->tx_caps = tx && tx->caps ? tx->caps : ep->caps;
	ep->rx_caps = rx && rx->caps ? rx->caps : ep->caps;
	ep->tx_order = tx ? tx->msg_order : 0;
	ep->tx_comp_order = tx ? tx->comp_order : 0;
	ep->rx_comp_order = rx ? rx->comp_order : 0;
	ep->tx_size = shmcma_size_or_default(tx ? tx->size : 0);
	ep->rx_size = shmcma_size_or_default(rx ? rx->size : 0);
	shmcma_set(ep->multi_min, SHMCMA_MULTI_MIN);
	shmcma_set(fid->tx_op_flags, tx ? tx->op_flags : 0);
	shmcma_set(fid->rx_op_flags, rx ? rx->op_flags : 0);
	if (shmcma_now(fid->tx_op_flags) & ~SHMCMA_TX_OP_FLAGS ||
	    shmcma_now(fid->rx_op_flags) & ~SHMCMA_RX_OP_FLAGS)
		return -FI_EBADFLAGS;
	return shmcma_source_service(info, ep->name);
}

/* One direction is missing, or both. */
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
	fid->fid.fid.fclass = fclass;
	fid->fid.fid.context = context;
	fid->fid.fid.ops = &ep_fid_ops;
	fid->fid.ops = &ep_ops;
	fid->fid.cm = &cm_ops;
	shmcma_ep_set_tables(ep);
	set_flags(ep);
	shmcma_lock_join(domain, &ep->locked, true);
	*out = ep;
	return 0;
failed:
	free(ep);
	free(fid);
	return ret;
}

void shmcma_ep_show(struct shmcma_ep *ep, struct fid_ep **out)
{
	atomic_fetch_add(&ep->domain->refs, 1);
	shmcma_object_add(&ep->fids->object, &ep->fids->fid.fid, NULL);
	*out = &ep->fids->fid;
}

void shmcma_ep_discard(struct shmcma_ep *ep)
{
	ep_free(ep);
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
	shmcma_ep_set_tables(ep);
	shmcma_ep_show(ep, out);
	return 0;
}
