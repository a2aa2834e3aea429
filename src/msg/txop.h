/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TXOP_H
#define SC_TXOP_H

#include "link/state.h"

/* Bounce buffers of a piece: small enough for both sides to copy at the same time. */
#define SC_TXOP_PIECE_BUFS 4

/* A pending send. NULL: no memory, or there are as many as there may be. */
struct sc_tx_op *sc_txop_begin(struct sc_peer *peer, const struct sc_send *send, size_t size);

/* Send by rendezvous. -EAGAIN: no room just now; others as sc_tx_send(). */
int sc_txop_send_rdv(struct sc_peer *peer, const struct sc_send *send, size_t size);

/* The receiver has ended with an operation; an id that is none of ours with this peer: -EPROTO. */
int sc_txop_acked(struct sc_peer *peer, const struct sc_abi_ack *ack);

/* The receiver wants the payload in pieces. -EPROTO. */
int sc_txop_pulled(struct sc_peer *peer, const struct sc_abi_pull *pull);

/* The receiver copies a payload and we may copy along: an SC_ABI_SHARE that is whole in the ring. -EPROTO. */
int sc_txop_shared(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl);

/* Go on with pieces. Returns the number of records. */
int sc_txop_progress(struct sc_ep *ep);

/* The peer is lost: its sends end with `error` (negative errno). */
void sc_txop_end_peer(struct sc_peer *peer, int error);

/* The endpoint has closed, as its peers can see: forget what is pending, without completions. Until then they may copy it. */
void sc_txop_fini(struct sc_ep *ep);

#endif
