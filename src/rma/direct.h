/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DIRECT_H
#define SC_DIRECT_H

#include "link/peer.h"
#include "shm/share.h"

/*
 * Tells whether this process may touch the peer's memory now, as far as is known: no put or get that the peer itself
 * must do comes first.
 */
static inline bool sc_direct_may(struct sc_peer *peer)
{
	uint32_t capabilities = peer->seg->header.capabilities;

	return !peer->rma.undone && capabilities & SC_ABI_CAP_RMA && !(capabilities & SC_ABI_CAP_STRICT) &&
	       (peer->seg->local || sc_peer_can_read(peer));
}

/*
 * The size of the smallest copy that is timed, bytes: the clock takes a hundredth of its time. The calibration copies
 * the same bytes again and again, so it cannot tell what bytes cost that come from memory.
 */
#define SC_DIRECT_TIMED 65536

/*
 * Does the whole operation, of `size` bytes. It completes in the call, unless a note follows, or it fails because the
 * peer has gone. -EAGAIN: not now, nothing has been done; -EOPNOTSUPP: not possible with this peer, use requests.
 */
int sc_direct_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size);

/* Tells whether an operation on one range may be done now. *ref: the registration; *note: a note has to follow. */
int sc_direct_look(struct sc_peer *peer, const struct sc_rma *rma, struct sc_reg_ref *ref, bool *note);

/* Does a part of it, under that registration. *note: as above. -EKEYREJECTED: it has been closed; -EFAULT, -ESRCH... */
int sc_direct_part(struct sc_peer *peer, const struct sc_rma *rma, const struct sc_reg_ref *ref,
		   const struct sc_share_part *part, bool *note);

/*
 * Does what sc_direct_post() does for an operation that is pending and in a list of the peer. It leaves the list and
 * ends, or becomes a request. -EAGAIN: not now, nothing has been done.
 */
int sc_direct_do(struct sc_rma_op *op);

/* The same, but 1: only the peer can do it; it is in no list and not pending, and the caller makes it a request. */
int sc_direct_try(struct sc_rma_op *op);

/* ---- several together ------------------------------------------------------------------------ */

/* Puts off a put or get of `size` bytes, one of a stream, to do it with others. -EAGAIN: no memory. */
int sc_direct_put_off(struct sc_peer *peer, const struct sc_rma *rma, size_t size);

int sc_direct_settle_slow(struct sc_peer *peer);

/* Does what has been put off, before an operation goes another way. -EAGAIN: not now; else the error of the peer. */
static inline int sc_direct_settle(struct sc_peer *peer)
{
	return __builtin_expect(sc_list_empty(&peer->batch.ops), 1) ? 0 : sc_direct_settle_slow(peer);
}

/* Does what has been put off. Returns the number of operations done. */
int sc_direct_progress(struct sc_peer *peer);

/* The endpoint closes: does what has been put off. Called before anything else of the endpoint ends. */
void sc_direct_fini(struct sc_ep *ep);

#endif
