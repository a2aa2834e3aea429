/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TRANSFER_H
#define SC_TRANSFER_H

#include "link/state.h"

/*
 * The operation is matched with a rendezvous message and knows all about it: move the payload. `more`: the
 * next record of the peer is there already, and a rendezvous, which may be copied in the same call.
 * A peer's payloads are copied in the order of their matches; those that wait may be shared already.
 */
void sc_transfer_start(struct sc_ep *ep, struct sc_rx_op *op, bool more);

/*
 * A piece of a payload, in buffers of `seg`, that was asked for, or of the one whose parts arrive. -EPROTO: it is
 * neither.
 */
int sc_transfer_piece(struct sc_peer *peer, struct sc_seg *seg, const struct sc_abi_piece *piece,
		     uint64_t ctl);

/* Go on with copies of large messages. Returns the steps done. */
int sc_transfer_progress(struct sc_ep *ep);

/*
 * The peer is lost: transfers from it end with `error` (negative errno). False: some cannot yet, the peer is
 * alive and copying; call again.
 */
bool sc_transfer_end_peer(struct sc_peer *peer, int error);

/*
 * The endpoint closes: returns when no peer writes to receive buffers any more. Messages on their way into receive
 * buffers of a shared queue are cancelled.
 */
void sc_transfer_fini(struct sc_ep *ep);

#endif
