/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ASSIST_H
#define SC_ASSIST_H

#include "link/state.h"

/* ---- ours: the target may assist -------------------------------------------------------------- */

/*
 * Tells whether, as far as is known, the target polls and both can copy: it has come to the last record, and is not
 * asleep. After false, the search for space may have shown that the peer is to be given up.
 */
bool sc_assist_may_ask(struct sc_peer *peer);

/*
 * Posts a large put or get, which the target is asked to copy along, or which waits for others. Nothing else is under
 * way to that peer. -EAGAIN: no memory.
 */
int sc_assist_post(struct sc_peer *peer, const struct sc_rma *rma);

int sc_assist_settle_slow(struct sc_peer *peer);

/*
 * Ends assisted operations, before one goes another way. -EAGAIN: the target has chunks in hand; else the error of the
 * peer.
 */
static inline int sc_assist_settle(struct sc_peer *peer)
{
	return __builtin_expect(sc_list_empty(&peer->assist.ops), 1) ? 0 : sc_assist_settle_slow(peer);
}

/* The endpoint closes: does posted operations. Called before anything else of the endpoint ends. */
void sc_assist_fini(struct sc_ep *ep);

/* ---- theirs: we assist ------------------------------------------------------------------------- */

/* Takes the record of a shared put or get, see xfer.h. -EPROTO: it is impossible. */
int sc_assist_take(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl);

/* ---- both -------------------------------------------------------------------------------------- */

/* Goes on with our operations. Returns the number of steps. */
int sc_assist_progress(struct sc_peer *peer);

/*
 * Copies nothing more of a lost peer, and ends our operations with `error` (negative errno). False: the peer has chunks
 * in hand; call again.
 */
bool sc_assist_end_peer(struct sc_peer *peer, int error);

#endif
