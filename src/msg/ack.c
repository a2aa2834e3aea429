/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ack.c: acknowledgements: a receiver tells the sender that an operation has ended.
 *
 * Owns struct sc_fenced, in the list of the peer: the acknowledgement of a fenced message, while an earlier message of
 * the sender waits. peer.c frees those of a lost peer. If this process dies, the sender's operation fails with its
 * peer.
 */
#include "msg/ack.h"

#include <errno.h>
#include <stdlib.h>
#include "link/peer.h"
#include "link/reply.h"

/* Fenced messages that wait for their acknowledgement. A sender that keeps the rules has one at a time. */
#define FENCED_MAX 1024

/* Tells whether a message waits that was sent before the one with this arrival. */
static bool is_behind(const struct sc_peer *peer, uint64_t arrival)
{
	return !sc_list_empty(&peer->recv.waiting) &&
	       sc_list_entry(peer->recv.waiting.next, struct sc_rx_msg, of_peer)->arrival < arrival;
}

void sc_ack_message(struct sc_peer *peer, sc_abi_op op, uint64_t moved, uint64_t fence)
{
	struct sc_fenced *fenced;

	if (!fence || !is_behind(peer, fence)) {
		sc_reply_end(peer, SC_ABI_ACK, op, moved, 0);
		return;
	}
	if (peer->recv.fenced_count >= FENCED_MAX) {
		sc_peer_quarantine(peer, -EPROTO, "it has sent more fenced messages than there can be");
		return;
	}
	fenced = malloc(sizeof(*fenced));
	if (!fenced) {
		sc_peer_quarantine(peer, -ENOMEM, "there is no memory for a fenced acknowledgement to it");
		return;
	}
	*fenced = (struct sc_fenced){ .arrival = fence, .op = op, .moved = moved };
	sc_list_append(&peer->recv.fenced, &fenced->of_peer);
	peer->recv.fenced_count++;
}

void sc_ack_fenced_slow(struct sc_peer *peer)
{
	sc_list_for_safe (entry, next, &peer->recv.fenced) {
		struct sc_fenced *fenced = sc_list_entry(entry, struct sc_fenced, of_peer);
		struct sc_fenced due = *fenced;

		if (is_behind(peer, due.arrival))
			continue;
		sc_list_remove(&fenced->of_peer);
		peer->recv.fenced_count--;
		free(fenced);
		sc_reply_end(peer, SC_ABI_ACK, due.op, due.moved, 0);
		if (sc_list_empty(&peer->recv.fenced))
			return; /* also if the peer is lost, and all of them freed */
	}
}
