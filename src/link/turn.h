/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TURN_H
#define SC_TURN_H

#include "link/state.h"

/* Makes peer->order.turn for the operation that is about to be posted. -EAGAIN: no memory, or too many turns. */
int sc_turn_take_slow(struct sc_peer *peer);
void sc_turn_drop_slow(struct sc_peer *peer);

static inline int sc_turn_take(struct sc_peer *peer)
{
	return peer->ep->order & SC_ORDER_COMPLETE && peer->ep->tx_cq ? sc_turn_take_slow(peer) : 0;
}

/* Drops that turn: the operation has not been posted. */
static inline void sc_turn_drop(struct sc_peer *peer)
{
	if (__builtin_expect(peer->order.turn != NULL, 0))
		sc_turn_drop_slow(peer);
}

/* Gives that turn to the operation. */
static inline struct sc_turn *sc_turn_pass(struct sc_peer *peer)
{
	struct sc_turn *turn = peer->order.turn;

	peer->order.turn = NULL;
	return turn;
}

/* Ends an operation and its turn; `comp` NULL: it has no completion. */
void sc_turn_end(struct sc_peer *peer, struct sc_turn *turn, const struct sc_comp *comp);

#endif
