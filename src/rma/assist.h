/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ASSIST_H
#define SC_ASSIST_H

#include "link/state.h"

/* ---- ours: the target may assist -------------------------------------------------------------- */

/*
 * Does the target poll, and can both copy, as far as is known? It has come to the last record, and is not asleep. If
 * not, looking for room may have shown that it is to be given up.
 */
bool sc_assist_may_ask(struct sc_peer *peer);

/*
 * A large put or get, which the target is asked to copy along, or which waits for such. Nothing else is under way to
 * that peer. -EAGAIN: no memory.
 */
int sc_assist_post(struct sc_peer *peer, const struct sc_rma *rma);

int sc_assist_settle_slow(struct sc_peer *peer);

/*
 * Before anything goes another way: end what is assisted. -EAGAIN: the target has something of it in hand; else what
 * has become of the peer.
 */
static inline int sc_assist_settle(struct sc_peer *peer)
{
	return __builtin_expect(sc_list_empty(&peer->assist.ops), 1) ? 0 : sc_assist_settle_slow(peer);
}

/* The endpoint closes: posted operations are done. Before anything else of it ends. */
void sc_assist_fini(struct sc_ep *ep);

/* ---- theirs: we assist ------------------------------------------------------------------------- */

/* A share of a put or get, see xfer.h. -EPROTO: it cannot be. */
int sc_assist_take(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl);

/* ---- both -------------------------------------------------------------------------------------- */

/* Go on with ours. Returns the steps done. */
int sc_assist_progress(struct sc_ep *ep);

/*
 * The peer is lost: nothing of its is copied any more, our operations end with `error` (negative errno). False: it has
 * some of it in hand, to be asked again.
 */
bool sc_assist_end_peer(struct sc_peer *peer, int error);

#endif
