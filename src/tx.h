/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TX_H
#define SC_TX_H

#include "state.h"

/* Answer a peer (ack, pull): written now or, if its ring is full, as soon as it has room. */
void sc_tx_reply(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t size, const uint64_t words[7]);

/* The receiver has ended with an operation; an id that is none of ours with this peer: -EPROTO. */
int sc_tx_acked(struct sc_peer *peer, const struct sc_abi_ack *ack);

/* The receiver wants the payload in pieces. -EPROTO. */
int sc_tx_pulled(struct sc_peer *peer, const struct sc_abi_pull *pull);

/* Go on with pieces and queued answers. Returns the number of records written. */
int sc_tx_progress(struct sc_ep *ep);

/* The peer is lost: its sends end with `error` (negative errno). */
void sc_tx_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: forget what is pending, without completions. */
void sc_tx_fini(struct sc_ep *ep);

#endif
