/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peertable.c: finds a peer of an endpoint by its address. The table is a hash table with chains; it has at least as many
 * chains as peers, if there is memory.
 *
 * Owns peer_table, peer_table_mask and peer_count of the endpoint, and sc_peer.next, which sc_peer_renew() keeps. Private
 * memory, used by the thread that uses the endpoint.
 */
#include "link/peertable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "os/addr.h"

/* Chains at first; a power of two. */
#define CHAINS_MIN 64

int sc_peer_table_init(struct sc_ep *ep)
{
	ep->peer_table = calloc(CHAINS_MIN, sizeof(*ep->peer_table));
	ep->peer_table_mask = CHAINS_MIN - 1;
	return ep->peer_table ? 0 : -ENOMEM;
}

void sc_peer_table_fini(struct sc_ep *ep)
{
	free(ep->peer_table);
}

static struct sc_peer **chain_of(const struct sc_ep *ep, const char *addr)
{
	return &ep->peer_table[sc_addr_hash(addr, strlen(addr)) & ep->peer_table_mask];
}

struct sc_peer *sc_peer_table_find(const struct sc_ep *ep, const char *addr)
{
	struct sc_peer *peer = *chain_of(ep, addr);

	while (peer && strcmp(peer->address, addr))
		peer = peer->next;
	return peer;
}

static void table_grow(struct sc_ep *ep)
{
	uint32_t mask = ep->peer_table_mask * 2 + 1;
	struct sc_peer **table = calloc((size_t)mask + 1, sizeof(*table));

	if (!table)
		return; /* the chains get longer */
	for (uint32_t i = 0; i <= ep->peer_table_mask; i++)
		for (struct sc_peer *peer = ep->peer_table[i], *next; peer; peer = next) {
			struct sc_peer **chain =
				&table[sc_addr_hash(peer->address, strlen(peer->address)) & mask];

			next = peer->next;
			peer->next = *chain;
			*chain = peer;
		}
	free(ep->peer_table);
	ep->peer_table = table;
	ep->peer_table_mask = mask;
}

void sc_peer_table_add(struct sc_peer *peer)
{
	struct sc_ep *ep = peer->ep;
	struct sc_peer **chain = chain_of(ep, peer->address);

	peer->next = *chain;
	*chain = peer;
	if (++ep->peer_count > ep->peer_table_mask)
		table_grow(ep);
}

void sc_peer_table_remove(struct sc_peer *peer)
{
	struct sc_peer **link = chain_of(peer->ep, peer->address);

	while (*link != peer)
		link = &(*link)->next;
	*link = peer->next;
	peer->ep->peer_count--;
}
