/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peertable.h: the peers of an endpoint by their address.
 */
#ifndef SC_PEERTABLE_H
#define SC_PEERTABLE_H

#include "link/state.h"

/* Makes the table of a new endpoint, without peers. -ENOMEM. */
int sc_peer_table_init(struct sc_ep *ep);

/* Frees the table, not the peers. */
void sc_peer_table_fini(struct sc_ep *ep);

/* Returns the peer with this whole address. NULL: there is none. */
struct sc_peer *sc_peer_table_find(const struct sc_ep *ep, const char *addr);

/* Adds a peer, whose address no peer of the endpoint has. */
void sc_peer_table_add(struct sc_peer *peer);

/* Removes a peer that was added. */
void sc_peer_table_remove(struct sc_peer *peer);

#endif
