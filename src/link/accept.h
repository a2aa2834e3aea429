/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACCEPT_H
#define SC_ACCEPT_H

#include "link/peer.h"

/* For review.c. */

/* Look at all claims of slots here: let in new peers, and see which have departed. Returns how many have changed. */
int sc_peer_review_claims(struct sc_ep *ep);
/*
 * Slots of the dead that nobody returns: they died before they had published, or had been refused. The claims of a
 * process that has ended do not change any more.
 */
int sc_peer_reclaim(struct sc_ep *ep);

#endif
