/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_TAKER_H
#define SC_TAKER_H

#include "link/state.h"

/* Takes a delegated put. -ENOMEM: no space for its completion, so it stays in the ring; -EPROTO with *why. */
int sc_taker_put(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Tells whether the last operation of the peer was taken: it had not withdrawn it. */
static inline bool sc_taker_has_taken(const struct sc_peer *peer)
{
	return peer->taker.taken == peer->taker.seen;
}

/* Takes a delegated get. -ENOMEM: no free buffers, so it stays in the ring; -EPROTO with *why. */
int sc_taker_get(struct sc_peer *peer, uint64_t ctl, const char **why);

/* A note has told that the peer has done the put of that number, if this process has passed over it. */
void sc_taker_noted(struct sc_peer *peer, uint32_t number);

/*
 * The peer is dead or has departed, and its ring is read to its end. Does the puts that it has withdrawn and not done.
 * False: one needs space for its completion; call again. A peer that has only vanished may still do them: no effect.
 */
bool sc_taker_inherit(struct sc_peer *peer);

void sc_taker_report_slow(struct sc_peer *peer);

/* Reports the puts that have ended since the last call to the initiator. The caller has taken records of its ring. */
static inline void sc_taker_report(struct sc_peer *peer)
{
	if (peer->taker.unreported)
		sc_taker_report_slow(peer);
}

#endif
