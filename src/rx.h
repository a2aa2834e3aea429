/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RX_H
#define SC_RX_H

#include "memory.h"
#include "ring.h"
#include "state.h"

/* Rings that are looked at in each poll; beyond them a few at a time, in turn. */
#define SC_BUSY_RINGS 8

/*
 * Take in what the peer has written, from the record with this ctl on, which is the next (0: there is none). Returns
 * the records, 1 when it has been drained.
 */
int sc_rx_poll_peer(struct sc_peer *peer, uint64_t ctl);

/* Of the rings that are not looked at in each poll the next ones. Returns the records. */
int sc_rx_poll_quiet(struct sc_ep *ep);

/* Have one looked at. Returns the records. */
static inline int sc_rx_glance(struct sc_peer *peer)
{
	uint64_t ctl = sc_ring_peek(&peer->rx);

	if (__builtin_expect(!ctl && sc_list_empty(&peer->unproven) && peer->feed != SC_FEED_DRAINING, 1))
		return 0;
	return sc_rx_poll_peer(peer, ctl);
}

/* Take in what peers have written: the busy ones' rings and a few of the others'. Returns the records. */
static inline int sc_rx_poll(struct sc_ep *ep)
{
	int taken = 0;

	sc_memory_forget(&ep->memory);
	for (uint32_t i = 0; i < SC_BUSY_RINGS && i < ep->inbound_count; i++)
		taken += sc_rx_glance(ep->inbound[i]);
	if (__builtin_expect(ep->inbound_count > SC_BUSY_RINGS, 0))
		taken += sc_rx_poll_quiet(ep);
	return taken;
}

#endif
