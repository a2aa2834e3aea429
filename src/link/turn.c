/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * turn.c: completions of sends and one-sided operations in the order of the calls, of an endpoint that asks for it
 * (SC_ORDER_COMPLETE).
 *
 * An operation takes a turn when it is posted, behind the earlier ones to the same peer. When it ends, the turn keeps
 * its completion until all earlier operations have ended. While the operation is being posted, sc_peer.order holds the
 * turn; then the operation holds it until it ends, here or with its peer. So no turn stays behind, and all completions
 * come out. Counters do not wait.
 *
 * Private memory of the endpoint's thread; no other process sees it, whenever one dies.
 */
#include "link/turn.h"

#include <errno.h>

/* The most operations of an endpoint, ended or not, that are not reported yet. */
#define TURNS_MAX 65536

int sc_turn_take_slow(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	struct sc_turn *turn = ep->turns_taken < TURNS_MAX ? sc_slab_get(&ep->turns) : NULL;

	if (!turn)
		return -EAGAIN;
	ep->turns_taken++;
	turn->ended = false;
	sc_list_append(&peer->order.turns, &turn->of_peer);
	peer->order.turn = turn;
	return 0;
}

static void turn_free(struct sc_ep *ep, struct sc_turn *turn)
{
	sc_list_remove(&turn->of_peer);
	ep->turns_taken--;
	sc_slab_put(&ep->turns, turn);
}

void sc_turn_drop_slow(struct sc_peer *peer)
{
	struct sc_turn *turn = sc_turn_pass(peer);

	turn_free(peer->ep, turn); /* it is the last one: no other turn waits for it */
}

void sc_turn_end(struct sc_peer *peer, struct sc_turn *turn, const struct sc_comp *comp)
{
	struct sc_ep *ep = peer->ep;

	turn->ended = true;
	turn->silent = !comp;
	if (comp)
		turn->comp = *comp;
	while (!sc_list_empty(&peer->order.turns)) {
		turn = sc_list_entry(peer->order.turns.next, struct sc_turn, of_peer);
		if (!turn->ended)
			break;
		if (!turn->silent)
			sc_comp_ring_put_slow(ep->tx_cq, &turn->comp);
		turn_free(ep, turn);
	}
}
