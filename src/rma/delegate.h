/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DELEGATE_H
#define SC_DELEGATE_H

#include "link/peer.h"
#include "link/route.h"

/*
 * Tells whether an operation of `size` bytes may be delegated to the peer: the peer has polled, and a record holds the
 * operation, with the bytes of a put in our buffers, or of a get in half of the peer's at most. A delegated operation
 * must not overtake operations that wait for space; answers that we owe the peer in its ring do not matter to it. An
 * operation that this process cannot do itself is not delegated: a get that waits in the ring for buffers must be
 * withdrawable, else two sides that ask each other wait for ever, each behind the other's.
 */
static inline bool sc_delegate_may(struct sc_peer *peer, bool put, size_t size)
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

/* Tells whether an operation with a number before this one has not ended. The number may be of any time ago. */
static inline bool sc_delegate_is_open(const struct sc_peer *peer, uint32_t before)
{
	return before - peer->delegate.first - 1 < SC_ABI_DELEGATED;
}

/* Tells whether a registration counts puts under that key, as sc_regtab_counts() does. Out of line: few do. */
int sc_delegate_is_counted(struct sc_peer *peer, uint64_t key);

/*
 * Tells whether the peer's application hears of a put to one range, as far as one look tells: by remote data, or because
 * the registration counts it. Most peers have none that counts: then one load tells. -EAGAIN: the peer changes its table.
 */
static inline int sc_delegate_is_heard(struct sc_peer *peer, const struct sc_rma *rma)
{
	if (rma->flags & SC_SEND_DATA)
		return 1;
	return __builtin_expect(sc_load_relaxed_32(&sc_seg_presence(peer->seg)->counting), 0)
		       ? sc_delegate_is_counted(peer, rma->remote[0].key)
		       : 0;
}

/*
 * Tells whether an injected put, of which sc_delegate_is_heard() has said `heard`, may follow the operations that are
 * delegated. The daemon's thread stops at a put that is heard of, but would withdraw a new one that it does not see yet; so
 * puts of the two kinds are never open together. A put that may be of either kind is not delegated.
 */
static inline bool sc_delegate_is_clear(const struct sc_peer *peer, int heard)
{
	if (heard < 0)
		return false;
	if (heard)
		return !sc_delegate_is_open(peer, peer->delegate.rescuable);
	return !sc_delegate_is_open(peer, peer->delegate.unrescuable) && sc_peer_shows_life(peer);
}

/*
 * Tells whether an injected put may be delegated: either the daemon's thread does it if nobody else does (rescue.h), or
 * the peer's application hears of it, and must poll for that.
 */
static inline bool sc_delegate_may_inject(const struct sc_peer *peer, int heard)
{
	return !peer->ep->alone && peer->ep->barrier && sc_delegate_is_clear(peer, heard) &&
	       (heard || !(peer->seg->header.capabilities & SC_ABI_CAP_EVENTS));
}

/* Collects delegated operations that have ended. Tells whether others are open; false also if the peer is given up. */
bool sc_delegate_has_open(struct sc_peer *peer);

/*
 * Delegates a put or a get. 1: it must go another way, as there is no space now, the peer is not asked this time, or
 * sc_delegate_may_inject() refuses an injected put; -EAGAIN: no memory, or some delegated operations must end first;
 * else the error of the peer.
 */
int sc_delegate_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size);

/* Tells whether an operation is a put from one piece, with its payload in its record, without a fence. */
static inline bool sc_delegate_is_short(const struct sc_rma *rma)
{
	return rma->iov_count == 1 && rma->remote_count == 1 &&
	       rma->remote[0].len == rma->iov[0].iov_len && rma->remote[0].len <= SC_ROUTE_RECORD &&
	       (rma->flags & (SC_RMA_WRITE | SC_SEND_FENCE)) == SC_RMA_WRITE;
}

/*
 * Delegates such a put to a peer that is connected, if that is simple; sc_route() would delegate it, too. False: nothing
 * is done.
 */
bool sc_delegate_short(struct sc_peer *peer, const struct sc_rma *rma);

int sc_delegate_settle_slow(struct sc_peer *peer);

/*
 * Withdraws and does operations that the peer has not taken, before one goes another way. -EAGAIN: the peer has taken
 * some, or the daemon's thread copies now; else the error of the peer.
 */
static inline int sc_delegate_settle(struct sc_peer *peer)
{
	return __builtin_expect(!sc_peer_has_delegated(peer), 1) ? 0 : sc_delegate_settle_slow(peer);
}

/* Collects operations that have ended, and withdraws those that have waited too long. Returns the number of steps. */
int sc_delegate_progress(struct sc_peer *peer);

/* Ends operations with a lost peer, with `error` (negative errno) if the peer had not ended them; it is still attached. */
void sc_delegate_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: does operations that are not taken, if there is memory. Called before anything else of it ends. */
void sc_delegate_fini(struct sc_ep *ep);

#endif
