/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TX_H
#define SC_TX_H

#include "link/state.h"

/*
 * Bytes that are better in a buffer than in a record, also for two that answer each other in the same buffer (hold.h):
 * docs/MEASUREMENTS.md, "Inline or bounce buffer".
 */
#define SC_TX_BUFFER_MIN 320

/* Answer a peer (ack, pull): written now or, if its ring is full, as soon as it has room. */
void sc_tx_reply(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t size, const uint64_t words[7]);

/* The receiver has ended with an operation; an id that is none of ours with this peer: -EPROTO. */
int sc_tx_acked(struct sc_peer *peer, const struct sc_abi_ack *ack);

/* The receiver wants the payload in pieces. -EPROTO. */
int sc_tx_pulled(struct sc_peer *peer, const struct sc_abi_pull *pull);

/* The receiver copies a payload and we may copy along: an SC_ABI_SHARE that is whole in the ring. -EPROTO. */
int sc_tx_shared(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl);

/* Go on with pieces and queued answers. Returns the number of records. */
int sc_tx_progress(struct sc_ep *ep);

/* The peer is lost: its sends end with `error` (negative errno). */
void sc_tx_end_peer(struct sc_peer *peer, int error);

/* The endpoint is about to close: answers that there is room for by now are written. */
void sc_tx_leave(struct sc_ep *ep);

/* It has, as its peers can see: forget what is pending, without completions. Until then they may copy it. */
void sc_tx_fini(struct sc_ep *ep);

#endif
