/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RECV_H
#define SC_RECV_H

#include "link/state.h"

/* See core.h for what applications call. */

/* sc_rxq_recv() without SC_RECV_PEEK. */
int sc_recv_post(struct sc_rxq *rxq, const struct sc_recv *recv);

/* Complete a receive that gets no data: it tells of `msg`; NULL: there is no message (ENOMSG). */
void sc_recv_report(struct sc_rxq *rxq, const struct sc_recv *recv, const struct sc_rx_msg *msg);

/* The link is lost: if it was the last of its source, receives from there alone end with `error` (negative errno). */
void sc_recv_end_peer(struct sc_peer *peer, int error);

/* The endpoint closes: forget what is posted, waiting and under way, without completions. */
void sc_recv_fini(struct sc_ep *ep);

#endif
