/* SPDX-License-Identifier: BSD-2-Clause */
/* send.c: the rare cases of send.h: the window looks full; a completion waits for others. */
#include "msg/send.h"

#include <errno.h>
#include "link/turn.h"

bool sc_send_window_room_slow(struct sc_peer *peer, uint64_t units)
{
	uint64_t back =
		sc_load_relaxed_64(&peer->tx.consumer->window); /* an independent count, orders nothing */
	if (back > peer->units_sent) {
		sc_peer_quarantine(peer, -EPROTO, "its window is out of range");
		return false;
	}
	peer->units_limit = back + peer->seg->header.window;
	if (peer->units_sent + units <= peer->units_limit)
		return true;
	peer->ep->wants_room = true;
	return false;
}

static void done_slow(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	const struct sc_comp comp = { .context = send->context,
				      .cq_flags = send->cq_flags,
				      .len = size,
				      .data = send->data,
				      .tag = send->tag };

	sc_turn_end(peer, sc_turn_pass(peer), send->flags & SC_SILENT ? NULL : &comp);
}

void sc_send_done(struct sc_peer *peer, const struct sc_send *send, size_t size, uint32_t flags)
{
	if (flags & SC_ABI_F_ACK)
		return;
	sc_ep_count(peer->ep, SC_EVENT_SEND, send->cntr, send->flags, 0);
	if (__builtin_expect(peer->order.turn != NULL, 0))
		done_slow(peer, send, size);
	else if (!(send->flags & SC_SILENT) && peer->ep->tx_cq && sc_comp_ring_has_room(peer->ep->tx_cq))
		sc_send_complete(peer->ep->tx_cq, send, size);
}
