/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RXQ_H
#define SC_RXQ_H

#include "link/state.h"

/* See core.h for what applications call. */

/* An endpoint's own, in memory of its. -ENOMEM. */
int sc_rxq_init(struct sc_rxq *rxq, size_t size);
void sc_rxq_fini(struct sc_rxq *rxq);

/* The source that a peer with that address (endpoint form) is of; NULL: no memory. */
struct sc_source *sc_rxq_source(struct sc_rxq *rxq, const char *addr);
/* The same, if there is one. */
struct sc_source *sc_rxq_source_find(const struct sc_rxq *rxq, const char *addr);
/* It has no peer any more, and no posted receive names it. */
void sc_rxq_source_free(struct sc_rxq *rxq, struct sc_source *source);

/*
 * sc_source.error of a source that has not come and that nothing has been sent to: the first receive that is directed to
 * it connects to it (sc_peer_expect()). Positive, as it is no error.
 */
#define SC_SOURCE_UNMET 1

/* The peer is connected; it is lost, with `error` (negative errno), or 0: we close. */
static inline void sc_source_meet(struct sc_peer *peer)
{
	if (peer->source->error == SC_SOURCE_UNMET)
		peer->source->error = 0;
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
	} else if (peer->source->lost == peer) {
		peer->source->lost = NULL;
	}
}

#endif
