/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DIRECT_H
#define SC_DIRECT_H

#include "link/peer.h"
#include "shm/share.h"

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

/*
 * Of an operation on one range: may it be done now, and without the peer's hearing of it (-EOPNOTSUPP)? *ref: the
 * registration.
 */
int sc_direct_look(struct sc_peer *peer, const struct sc_rma *rma, struct sc_reg_ref *ref);

/* A part of it, under that registration. -EKEYREJECTED: it has been closed; -EFAULT, -ESRCH... */
int sc_direct_part(struct sc_peer *peer, const struct sc_rma *rma, const struct sc_reg_ref *ref,
		   const struct sc_share_part *part);

/*
 * As sc_direct_post(), of one that is counted as pending and in a list of the peer; it leaves that and ends, or it is
 * a request from then on. -EAGAIN: not now, nothing has been done.
 */
int sc_direct_do(struct sc_rma_op *op);

/* ---- several together ------------------------------------------------------------------------ */

/* Puts off a put or get of `size` bytes, one of a stream, to be done with others. -EAGAIN: no memory. */
int sc_direct_put_off(struct sc_peer *peer, const struct sc_rma *rma, size_t size);

int sc_direct_settle_slow(struct sc_peer *peer);

/* Before anything goes another way: do what has been put off. -EAGAIN: not now; else what has become of the peer. */
static inline int sc_direct_settle(struct sc_peer *peer)
{
	return __builtin_expect(sc_list_empty(&peer->batch.ops), 1) ? 0 : sc_direct_settle_slow(peer);
}

/* Do what has been put off. Returns the operations done. */
int sc_direct_progress(struct sc_ep *ep);

/* The endpoint closes: operations that were put off are done. Before anything else of it ends. */
void sc_direct_fini(struct sc_ep *ep);

#endif
