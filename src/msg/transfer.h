/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TRANSFER_H
#define SC_TRANSFER_H

#include "link/state.h"

/*
 * Moves the payload of a rendezvous message into the operation that has matched it and holds its description. `more`:
 * the next record of the peer is there, and is a rendezvous that the same call may copy. The payloads of a peer are
 * copied in the order of their matches; those that wait may be shared already.
 */
void sc_transfer_start(struct sc_ep *ep, struct sc_rx_op *op, bool more);

/*
 * Takes a piece, in buffers of `seg`, of a payload that was pulled or of the message that arrives in parts. -EPROTO: it
 * is neither.
 */
int sc_transfer_piece(struct sc_peer *peer, struct sc_seg *seg, const struct sc_abi_piece *piece,
		     uint64_t ctl);

/* Goes on with copies of large messages. Returns the number of steps. */
int sc_transfer_progress(struct sc_peer *peer);

/*
 * Ends the transfers of a lost peer with `error` (negative errno). Returns false if some cannot end yet because the
 * peer is alive and copies; the caller then calls again.
 */
bool sc_transfer_end_peer(struct sc_peer *peer, int error);

/*
 * The endpoint closes: returns when no peer writes to receive buffers any more. Cancels messages on their way into
 * receive buffers of a shared queue.
 */
void sc_transfer_fini(struct sc_ep *ep);

#endif
