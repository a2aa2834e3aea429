/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * departed.c: the addresses of the last SC_DEPARTED_MAX peers that were connected, have gone and are forgotten.
 *
 * An operation with such a peer is refused with the same error as before the peer was forgotten. The application may
 * also insert the address that came with a message after its sender has gone, to have a number for it, and may ask for a
 * receive from there: that receive ends with an error, and does not wait for ever.
 *
 * Owns sc_ep.heard. Private memory, used by the thread that uses the endpoint.
 */
#include "link/departed.h"

#include <stdlib.h>
#include <string.h>
#include "os/addr.h"

struct sc_departed {
	uint32_t next;
	uint32_t stems[SC_DEPARTED_MAX]; /* hashes, 0: none yet */
	char addresses[SC_DEPARTED_MAX][SC_ADDR_SIZE];
};

static uint32_t hash_of(const char *addr)
{
	return sc_addr_hash(addr, SC_ADDR_STEM) | 1;
}

/* Without memory the address stays unknown. */
void sc_departed_add(struct sc_ep *ep, const char *addr)
{
	struct sc_departed *heard = ep->heard ? ep->heard : calloc(1, sizeof(*heard));

	ep->heard = heard;
	if (!heard)
		return;
	heard->stems[heard->next] = hash_of(addr);
	memcpy(heard->addresses[heard->next], addr, SC_ADDR_SIZE);
	heard->next = (heard->next + 1) % SC_DEPARTED_MAX;
}

bool sc_departed_has(const struct sc_ep *ep, const char *addr, size_t len)
{
	const struct sc_departed *heard = ep->heard;
	uint32_t hash = hash_of(addr);

	for (uint32_t i = 0; heard && i < SC_DEPARTED_MAX; i++)
		if (heard->stems[i] == hash && !strncmp(heard->addresses[i], addr, len))
			return true;
	return false;
}
