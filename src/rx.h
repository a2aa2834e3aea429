/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RX_H
#define SC_RX_H

#include "state.h"

/* Take in what peers have written: the busy ones' rings and a few of the others'. Returns the records. */
int sc_rx_poll(struct sc_ep *ep);

/* Go on with copies of large messages. Returns the steps done. */
int sc_rx_progress(struct sc_ep *ep);

/* The peer is lost: transfers from it end with `error` (negative errno). */
void sc_rx_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: forget what is posted, waiting and under way, without completions. */
void sc_rx_fini(struct sc_ep *ep);

#endif
