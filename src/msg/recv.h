/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RECV_H
#define SC_RECV_H

#include "link/state.h"

/* Does sc_rxq_recv() without SC_RECV_PEEK. core.h describes the calls of applications. */
int sc_recv_post(struct sc_rxq *rxq, const struct sc_recv *recv);

/* Completes a receive that gets no data: reports `msg`; NULL: there is no message (ENOMSG). */
void sc_recv_report(struct sc_rxq *rxq, const struct sc_recv *recv, const struct sc_rx_msg *msg);

/* Ends receives that are directed to a lost peer with `error` (negative errno), if it was the last of its source. */
void sc_recv_end_peer(struct sc_peer *peer, int error);

#endif
