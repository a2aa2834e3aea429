/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DELEGATE_H
#define SC_DELEGATE_H

#include "link/state.h"

/*
 * Offer a put or a get to the peer; `stream`: one of many. -EOPNOTSUPP: it is not one to be offered, or not just now;
 * nothing has been done. -EAGAIN: there are as many as there may be, or no memory.
 */
int sc_delegate_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size, bool stream);

int sc_delegate_settle_slow(struct sc_peer *peer);

/*
 * Before an operation goes another way: offers that the peer has not taken are taken back and done. -EAGAIN: it has
 * some in hand; else what has become of the peer.
 */
static inline int sc_delegate_settle(struct sc_peer *peer)
{
	return __builtin_expect(sc_list_empty(&peer->offers), 1) ? 0 : sc_delegate_settle_slow(peer);
}

/* See what has been done; take back what has waited too long. Returns the steps done. */
int sc_delegate_progress(struct sc_ep *ep);

/* The peer is lost, and its segment still attached: offers that it ended before it went are over, and done. */
void sc_delegate_end_peer(struct sc_peer *peer);

/* The endpoint closes: offers that have not been taken are done. Before anything else of it ends. */
void sc_delegate_fini(struct sc_ep *ep);

#endif
