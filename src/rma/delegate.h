/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DELEGATE_H
#define SC_DELEGATE_H

#include "link/peer.h"

/*
 * May an operation of `size` bytes be delegated to the peer? It has polled; and a record holds the operation, with bytes
 * of a put in buffers of ours, or of a get in half of the peer's at most. A delegated operation behind records that wait
 * for room would come too early; answers that we owe the peer in its ring do not matter to it. An operation that this
 * process cannot do itself is not delegated: a get that waits in the ring for buffers must be one that can be withdrawn,
 * or two sides that ask each other wait for ever, each behind the other's.
 */
static inline bool sc_delegate_may(const struct sc_peer *peer, bool put, size_t size)
{
	const struct sc_abi_header *header = &peer->seg->header;

	if (!sc_peer_has_come(peer) || peer->delegate.ours != peer->delegate.end ||
	    (peer->rma.pending != peer->delegate.end - peer->delegate.first &&
	     !(sc_list_empty(&peer->rma.queued) && sc_list_empty(&peer->batch.ops) &&
	       sc_list_empty(&peer->assist.ops))))
		return false;
	return put ? size <= (size_t)SC_ABI_RECORD_BUFS << peer->ep->buf_shift
		   : size <= (uint64_t)header->buf_size * SC_ABI_RECORD_BUFS &&
			     size <= (uint64_t)header->buf_size * (header->buf_count / 2);
}

/* Looks which delegated operations have ended: are there others? False also if the peer has just been given up. */
bool sc_delegate_has_open(struct sc_peer *peer);

/*
 * Delegates a put or a get. 1: it goes another way, as there is no room now, or the peer is spared this one; -EAGAIN: not
 * before some that are delegated have ended, or no memory; else what has become of the peer.
 */
int sc_delegate_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size);

int sc_delegate_settle_slow(struct sc_peer *peer);

/*
 * Before an operation goes another way: operations that the peer has not taken are taken back and done. -EAGAIN: it has
 * some in hand; else what has become of the peer.
 */
static inline int sc_delegate_settle(struct sc_peer *peer)
{
	return __builtin_expect(sc_list_empty(&peer->delegate.ops), 1) ? 0 : sc_delegate_settle_slow(peer);
}

/* See what has been done; take back what has waited too long. Returns the steps done. */
int sc_delegate_progress(struct sc_ep *ep);

/* The peer is lost, and its segment still attached: operations that it ended before it went are over, and done. */
void sc_delegate_end_peer(struct sc_peer *peer);

/* The endpoint closes: operations that have not been taken are done. Before anything else of it ends. */
void sc_delegate_fini(struct sc_ep *ep);

#endif
