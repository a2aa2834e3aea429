/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RXQ_H
#define SC_RXQ_H

#include "link/state.h"

/* core.h has the functions that applications call. */

/* Makes the endpoint's own queue, in its memory. -ENOMEM. */
int sc_rxq_init(struct sc_rxq *rxq, size_t size);
void sc_rxq_fini(struct sc_rxq *rxq);

/* Returns the source of a peer with that address (endpoint form), or makes it; NULL: no memory. */
struct sc_source *sc_rxq_source(struct sc_rxq *rxq, const char *addr);
/* Returns that source, if there is one. */
struct sc_source *sc_rxq_source_find(const struct sc_rxq *rxq, const char *addr);
/* Frees a source that has no peer, and that no posted receive names. */
void sc_rxq_source_free(struct sc_rxq *rxq, struct sc_source *source);
/* Sets sc_source.named of the sources that posted receives name. Returns how many receives are posted. */
size_t sc_rxq_mark_named(struct sc_rxq *rxq);

/*
 * sc_source.error of a source that has neither come nor been sent anything, or that could not be attached since: the
 * next receive from it connects to it (sc_peer_expect()). Positive, as it is no error.
 */
#define SC_SOURCE_UNMET 1

/*
 * The peer is connected; it is lost with `error` (negative errno), or this endpoint closes, with 0. Another endpoint of
 * the receive queue may have to connect then.
 */
static inline void sc_source_meet(struct sc_peer *peer)
{
	if (peer->source->error == SC_SOURCE_UNMET || peer->source->lost == peer) {
		peer->source->error = 0;
		peer->source->lost = NULL;
	}
	peer->source->met += !peer->met;
	peer->met = true;
}

static inline void sc_source_part(struct sc_peer *peer, int error)
{
	peer->source->met -= peer->met;
	peer->met = false;
	if (error) {
		peer->source->error = error;
		peer->source->lost = peer;
		return;
	}
	if (peer->source->lost == peer)
		peer->source->lost = NULL;
	if (!peer->source->met && !peer->source->lost)
		peer->source->error = SC_SOURCE_UNMET;
}

#endif
