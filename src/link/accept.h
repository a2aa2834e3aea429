/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACCEPT_H
#define SC_ACCEPT_H

#include "link/peer.h"

/* For review.c. */

/* Looks at all claims of slots here, lets in new peers, and sees which have departed. Returns how many changed. */
int sc_peer_review_claims(struct sc_ep *ep);
/*
 * Frees the slots of processes that died before they published their claim, or after they were refused. The claims of a
 * dead process do not change any more. Returns how many have ended.
 */
int sc_peer_reclaim(struct sc_ep *ep);

#endif
