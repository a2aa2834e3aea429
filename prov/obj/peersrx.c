/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peersrx.c: a shared receive context that belongs to another provider, its owner: FI_PEER, see fi_peer(3). The
 * application posts its receives to the owner, so that a receive can get a message of any provider that the owner uses.
 *
 *   a message comes     match(): get_msg, get_tag --found--> received; completes by peercq.c, and then free_entry
 *                          |
 *                          +--not found--> keep(): queue_msg, queue_tag
 *   the owner finds     start(): received, and so on; discard(): dropped
 *
 * An entry is the owner's structure for one receive. It is this provider's from match(), or from start(), until
 * free_entry. While a message waits its entry is the owner's, and has a pointer to the message.
 *
 * An owner may close the context before the endpoints that are bound to it, and free its own context and all entries:
 * EFA of libfabric 2.x does. From then on nothing here reads or calls the owner's; the last endpoint ends the context.
 * EFA of 1.19 to 1.22 binds its own context in place of this provider's, and closes neither: the domain ends it
 * (shared.c). Messages that wait may be discarded until then.
 *
 * Only a read of the owner's objects polls the endpoints (peercq.c, peercntr.c): there alone match() and keep() are
 * called, and so the owner's functions. An endpoint of such a context is never polled by a send that finds no room
 * (post.c), and a domain with FI_PEER has no thread (domain.c).
 *
 * Locks: the owner serializes its calls that concern one context with its own locks. It may hold them here, so start()
 * and discard() take the lock of the context behind them; and it must not take them in get_msg and the like, because
 * this provider then holds the lock of the context. In these functions it may call this provider: lnx registers the
 * memory of a receive in get_tag. So a domain with FI_PEER has one lock, which its holder can take again (lock.h).
 */
#include "obj/peersrx.h"

#include "base/peerowner.h"
#include "obj/peermap.h"
#include "wait/lock.h"

/* Returns the endpoint of a peer, of those with this context. */
static struct shmcma_ep *ep_of(const struct shmcma_ep *srx, const struct sc_peer *peer)
{
	struct shmcma_ep *ep = srx->namer;

	while (ep && ep->core != sc_peer_ep(peer))
		ep = ep->srx_next;
	return ep;
}

static fi_addr_t source_of(const struct shmcma_ep *srx, struct sc_peer *peer)
{
	fi_addr_t source = sc_peer_user(peer);
	struct shmcma_ep *ep = source == FI_ADDR_NOTAVAIL ? ep_of(srx, peer) : NULL;

	return ep ? shmcma_ep_source_slow(ep, peer) : source;
}

/* The application's vector may have more elements than the core takes; then the receive is shorter. */
static struct sc_recv recv_of(struct shmcma_rx_entry *entry, bool tagged)
{
	struct sc_recv recv = { .context = entry,
				.cq_flags = SHMCMA_COMP_ENTRY | FI_RECV |
					    (uint32_t)(tagged ? FI_TAGGED : FI_MSG),
				.flags = tagged ? SC_TAGGED : 0 };

	recv.iov = shmcma_entry_iov(entry, &recv.iov_count);
	if (recv.iov_count > SC_IOV_MAX)
		recv.iov_count = SC_IOV_MAX;
	return recv;
}

static int match(void *arg, const struct sc_envelope *envelope, struct sc_recv *recv)
{
	struct shmcma_ep *srx = arg;
	fi_addr_t source = source_of(srx, envelope->source);
	bool tagged = envelope->flags & SC_TAGGED;
	struct shmcma_rx_entry *entry = NULL;
	int ret;

	if (srx->owner_ended)
		return -FI_ESHUTDOWN; /* the message stays where it is until the endpoint closes */
	ret = shmcma_owner_get(srx->owner, tagged, source, envelope->size, tagged ? envelope->tag : 0,
			       &entry);
	if (!ret) {
		*recv = recv_of(entry, tagged);
		return 1;
	}
	if (ret != -FI_ENOENT)
		return ret;
	shmcma_entry_describe(entry, envelope->size, envelope->flags & SC_SEND_DATA, envelope->data);
	srx->unmatched = entry;
	srx->unmatched_tagged = tagged;
	if (source == FI_ADDR_NOTAVAIL)
		srx->has_strangers = true;
	return 0;
}

static int keep(void *arg, struct sc_rx_msg *msg)
{
	struct shmcma_ep *srx = arg;
	int ret = msg ? shmcma_owner_queue(srx->owner, srx->unmatched_tagged, srx->unmatched, msg) : 0;

	if (!msg || ret)
		shmcma_owner_free(srx->owner, srx->unmatched);
	return ret;
}

static const struct sc_matcher matcher = { match, keep };

/* ---- the owner calls ---------------------------------------------------------------------------- */

static int start(struct shmcma_rx_entry *entry, bool tagged)
{
	struct sc_rx_msg *msg = shmcma_entry_message(entry);
	struct shmcma_ep *srx = sc_rxq_arg(sc_waiting_rxq(msg));
	const struct sc_recv recv = recv_of(entry, tagged);
	int ret;

	if (shmcma_is_forked(&srx->fids->fid.fid))
		return shmcma_forked();
	shmcma_lock_enter(&srx->locked);
	ret = sc_waiting_receive(msg, &recv);
	shmcma_lock_leave(&srx->locked);
	return shmcma_error(ret);
}

static int discard(struct shmcma_rx_entry *entry)
{
	struct sc_rx_msg *msg = shmcma_entry_message(entry);
	struct shmcma_ep *srx = sc_rxq_arg(sc_waiting_rxq(msg));

	if (shmcma_is_forked(&srx->fids->fid.fid))
		return shmcma_forked();
	shmcma_lock_enter(&srx->locked);
	sc_waiting_drop(msg);
	shmcma_lock_leave(&srx->locked);
	return 0;
}

static int start_msg(struct shmcma_rx_entry *entry)
{
	return start(entry, false);
}

static int start_tag(struct shmcma_rx_entry *entry)
{
	return start(entry, true);
}

static struct shmcma_srx_peer_ops peer_ops = {
	.size = sizeof(peer_ops),
	.start_msg = start_msg,
	.start_tag = start_tag,
	.discard_msg = discard,
	.discard_tag = discard,
};

int shmcma_peersrx_init(struct shmcma_ep *srx, struct shmcma_srx_owner *owner)
{
	int ret = sc_rxq_create_matched(&matcher, srx, &srx->rxq);

	if (ret)
		return ret;
	srx->owner = owner;
	owner->peer_ops = &peer_ops;
	return 0;
}

/* ---- names of sources --------------------------------------------------------------------------- */

/* The context whose owner asks this thread for names: the owner's call takes no argument of this provider. */
static __thread struct shmcma_ep *asked;

/* The owner may also ask for entries of its other providers: their pointers are none of the queue's messages. */
static fi_addr_t name_of(struct shmcma_rx_entry *entry)
{
	struct sc_peer *peer = sc_waiting_source(asked->rxq, shmcma_entry_message(entry));
	fi_addr_t source = peer ? source_of(asked, peer) : FI_ADDR_UNSPEC;

	if (peer && source == FI_ADDR_UNSPEC)
		asked->has_strangers = true;
	return source;
}

void shmcma_peersrx_name_locked(struct shmcma_av *av)
{
	for (struct shmcma_ep *ep = av->eps; ep; ep = ep->av_next) {
		if (!shmcma_ep_is_matched(ep) || !ep->srx->has_strangers || ep->srx->owner_ended)
			continue;
		asked = ep->srx;
		asked->has_strangers = false;
		shmcma_owner_name(asked->owner, name_of);
	}
}
