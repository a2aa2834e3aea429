/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tables.c: the operation tables of an endpoint, by its capabilities and its state, which no data call looks at. With
 * all locks of the domain held, or before another thread knows the endpoint.
 */
#include "ep/endpoint.h"

#include "coll/coll.h"
#include "op/post.h"

/* Without FI_SEND and FI_RECV both are meant. */
static bool able(uint64_t caps, uint64_t kind, uint64_t way)
{
	return caps & kind && (caps & way || !(caps & (FI_SEND | FI_RECV)));
}

bool shmcma_ep_sends(const struct shmcma_ep *ep, uint64_t kind)
{
	return able(ep->caps, kind, FI_SEND) && able(ep->tx_caps, kind, FI_SEND);
}

bool shmcma_ep_receives(const struct shmcma_ep *ep, uint64_t kind)
{
	return able(ep->caps, kind, FI_RECV) && able(ep->rx_caps, kind, FI_RECV);
}

/* `kind`: FI_MSG or FI_TAGGED. */
static enum shmcma_post post_of(const struct shmcma_ep *ep, uint64_t kind)
{
	bool send = shmcma_ep_sends(ep, kind);
	bool recv = shmcma_ep_receives(ep, kind) && !ep->shares_rx && !ep->owner;

	if (!send && !recv)
		return SHMCMA_POST_UNABLE;
	if (!ep->rxq)
		return SHMCMA_POST_DISABLED;
	if (send && recv)
		return SHMCMA_POST_BOTH;
	return send ? SHMCMA_POST_SEND : SHMCMA_POST_RECV;
}

/* If none of the four is set, all are meant; of the endpoint's and of the transmit attributes' capabilities. */
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
		fid->fid.msg = &shmcma_msg_ops[post_of(ep, FI_MSG)];
		fid->fid.tagged = &shmcma_tagged_ops[post_of(ep, FI_TAGGED)];
		fid->fid.rma = &shmcma_rma_ops[rma_of(ep, FI_RMA)];
		fid->fid.atomic = &shmcma_atomic_ops[rma_of(ep, FI_ATOMIC)];
		fid->fid.collective = &shmcma_collective_ops[collectives_of(ep)];
	}
}

void shmcma_ep_set_forked_tables(struct fid_ep *ep)
{
	ep->msg = &shmcma_msg_ops[SHMCMA_POST_FORKED];
	ep->tagged = &shmcma_tagged_ops[SHMCMA_POST_FORKED];
	ep->rma = &shmcma_rma_ops[SHMCMA_RMA_FORKED];
	ep->atomic = &shmcma_atomic_ops[SHMCMA_RMA_FORKED];
	ep->collective = &shmcma_collective_ops[SHMCMA_COLL_FORKED];
}
