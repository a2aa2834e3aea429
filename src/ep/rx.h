/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RX_H
#define SC_RX_H

#include "msg/fast.h"
#include "shm/ring.h"
#include "link/state.h"

/* Each poll looks at so many rings, and at a few of the others in turn. */
#define SC_BUSY_RINGS 8

/* Records that a poll takes from one ring before it looks at the next ring. */
#define SC_RX_BURST 32
/* Tells whether to publish the head, so that the writer can fill lines while the reader reads others. */
static inline bool sc_rx_is_to_publish(const struct sc_peer *peer)
{
	return peer->rx.head - peer->rx.published >= peer->rx.at.count / 4;
}

/*
 * Takes the records of a peer. `ctl`: of the next record, 0: there is none; `taken`: records that this poll has taken
 * already. Returns the records including `taken`, or 1 when the ring of a departed peer is empty.
 */
int sc_rx_poll_peer(struct sc_peer *peer, uint64_t ctl, int taken);

/* Looks at the next few rings beyond SC_BUSY_RINGS. Returns the records taken. */
int sc_rx_poll_quiet(struct sc_ep *ep);

/* Tells whether a ring has a record, or was left by its writer. The next poll looks at that ring. */
bool sc_rx_has_record(struct sc_ep *ep);

/* Looks at the ring of one peer. Returns the records taken. */
static inline __attribute__((always_inline)) int sc_rx_poll_one(struct sc_ep *ep, struct sc_peer *peer)
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

/* Looks at the busy rings and a few of the others. Returns the records taken. */
static inline int sc_rx_poll(struct sc_ep *ep)
{
	int taken = 0;

	for (uint32_t i = 0; i < SC_BUSY_RINGS && i < ep->inbound_count; i++)
		taken += sc_rx_poll_one(ep, ep->inbound[i]);
	if (__builtin_expect(ep->inbound_count > SC_BUSY_RINGS, 0))
		taken += sc_rx_poll_quiet(ep);
	return taken;
}

#endif
