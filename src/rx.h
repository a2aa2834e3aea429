/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RX_H
#define SC_RX_H

#include "state.h"

/* Rings that are looked at in each poll; beyond them a few at a time, in turn. */
#define SC_BUSY_RINGS 8

/* Take in what peers have written: the busy ones' rings and a few of the others'. Returns the records. */
int sc_rx_poll(struct sc_ep *ep);

#endif
