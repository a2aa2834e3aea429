/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TXOP_H
#define SC_TXOP_H

#include "link/state.h"

/* Makes a pending send. NULL: no memory, or the limit is reached. */
struct sc_tx_op *sc_txop_begin(struct sc_peer *peer, const struct sc_send *send, size_t size);

/* Sends by rendezvous. -EAGAIN: no space just now; other errors as sc_tx_send(). */
int sc_txop_send_rdv(struct sc_peer *peer, const struct sc_send *send, size_t size);

/* Takes the acknowledgement of an operation. -EPROTO: the id names no operation with this peer. */
int sc_txop_acked(struct sc_peer *peer, const struct sc_abi_ack *ack);

/* Takes a request for the payload in pieces. -EPROTO. */
int sc_txop_pulled(struct sc_peer *peer, const struct sc_abi_pull *pull);

/* Takes a complete SC_ABI_SHARE from the ring: the receiver copies a payload, and we may copy along. -EPROTO. */
int sc_txop_shared(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl);

/* Goes on with pieces. Returns the number of records. */
int sc_txop_progress(struct sc_ep *ep);

/* Ends the sends to a lost peer with `error` (negative errno). */
void sc_txop_end_peer(struct sc_peer *peer, int error);

/* Frees pending sends without completions, once peers see that the endpoint has closed: until then they may copy. */
void sc_txop_fini(struct sc_ep *ep);

#endif
