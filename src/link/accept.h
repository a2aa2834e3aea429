/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ACCEPT_H
#define SC_ACCEPT_H

#include "link/peer.h"

/* For review.c, and ep.c. */

/* Looks at all claims of slots here, lets in new peers, and sees which have departed. Returns how many changed. */
int sc_peer_review_claims(struct sc_ep *ep);
/* Looks at the claims in the segments of all endpoints with this receive queue. */
void sc_peers_meet(struct sc_rxq *rxq);
/* The same, behind the proof that a peer has ended: claims that were put off are tried at once. */
void sc_peers_meet_last(struct sc_rxq *rxq);
/*
 * Frees the slots of processes that died before they published their claim, or after they were refused. The claims of a
 * dead process do not change any more. Returns how many have ended.
 */
int sc_peer_reclaim(struct sc_ep *ep);

#endif
