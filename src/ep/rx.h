/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RX_H
#define SC_RX_H

#include "os/probe.h"
#include "msg/fast.h"
#include "shm/ring.h"
#include "link/state.h"

/* Rings that are looked at in each poll; beyond them a few at a time, in turn. */
#define SC_BUSY_RINGS 8

/* Records taken from one ring before the next one's turn. */
#define SC_RX_BURST 32
/* Are there so many lines read that the writer is to be told? It fills them again while we read others. */
static inline bool sc_rx_is_to_publish(const struct sc_peer *peer)
{
	return peer->rx.head - peer->rx.published >= peer->rx.at.count / 4;
}

/*
 * Take in what the peer has written, from the record with this ctl on, which is the next (0: there is none), after
 * `taken` of the same poll. Returns the records, with those, 1 when it has been drained.
 */
int sc_rx_poll_peer(struct sc_peer *peer, uint64_t ctl, int taken);

/* Of the rings that are not looked at in each poll the next ones. Returns the records. */
int sc_rx_poll_quiet(struct sc_ep *ep);

/* Have one looked at. Returns the records. */
static inline __attribute__((always_inline)) int sc_rx_glance(struct sc_ep *ep, struct sc_peer *peer)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	uint64_t ctl = sc_ring_peek_at(&peer->rx, line);
	int taken = 0;

	while (ctl && taken < SC_RX_BURST && sc_fast_take_line(ep, peer, line, ctl)) {
		taken++;
		line = sc_ring_first(&peer->rx);
		ctl = sc_ring_peek_at(&peer->rx, line);
	}
	if (__builtin_expect(
		    !ctl && peer->feed != SC_FEED_DRAINING && (!taken || !sc_rx_is_to_publish(peer)), 1))
		return taken;
	return sc_rx_poll_peer(peer, ctl, taken);
}

/* Take in what peers have written: the busy ones' rings and a few of the others'. Returns the records. */
static inline int sc_rx_poll(struct sc_ep *ep)
{
	int taken = 0;

	sc_probe_forget(&ep->memory);
	for (uint32_t i = 0; i < SC_BUSY_RINGS && i < ep->inbound_count; i++)
		taken += sc_rx_glance(ep, ep->inbound[i]);
	if (__builtin_expect(ep->inbound_count > SC_BUSY_RINGS, 0))
		taken += sc_rx_poll_quiet(ep);
	return taken;
}

#endif
