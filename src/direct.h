/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DIRECT_H
#define SC_DIRECT_H

#include "peer.h"

/* May the peer's memory be touched by this process, as far as is known? */
static inline bool sc_direct_may(struct sc_peer *peer)
{
	uint32_t capabilities = peer->seg->header.capabilities;

	return capabilities & SC_ABI_CAP_RMA && !(capabilities & SC_ABI_CAP_STRICT) &&
	       (peer->seg->local || sc_peer_can_read(peer));
}

/*
 * The whole operation, of `size` bytes; it completes in the call, but for what the peer is to hear of, and for
 * what fails because the peer has gone.
 * -EAGAIN: not now, nothing has been done; -EOPNOTSUPP: not possible with this peer, use requests.
 */
int sc_direct_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size);

#endif
