/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xfer.h: a large copy between two processes that both do, if the other one polls just now.
 *
 * One processor does all of a CMA call. So the side that needs the bytes moved, the opener, tells the other side, the
 * joiner, where they are on both sides, and each copies chunks from its end (share.h). An opener that is alone copies
 * all.
 *
 *                opener                            joiner                        the opener's file
 *   message      receiver of a rendezvous, reads   its sender, writes            msg/transfer.c
 *   put          initiator, writes                 target, reads                 rma/assist.c
 *   get          initiator, reads                  target, writes                rma/assist.c
 *
 * The words of a share are in the joiner's segment, in the slot that the opener has claimed. They are the opener's
 * until it gives up that slot, when all its operations with the joiner have ended.
 *
 *   opener   sc_xfer_open() --> sc_xfer_next(), copy ... until 0 --> sc_xfer_leave()
 *   joiner   sc_xfer_join() --> sc_xfer_progress(): check the memory, take, copy, report ... nothing left
 *
 * A joiner that computes is not asked again: the opener pays for the record, and for one copy in chunks, to find out
 * that the joiner does not poll. It opens no other share until the joiner has come to that record.
 *
 * Death. A joiner takes chunks, copies and reports them in one call of sc_xfer_progress(). Between two calls it has
 * nothing in hand, and may close. If it dies in that call, the opener finds chunks without report, and the joiner's
 * life lock free. If it is stopped there, it may still read or write the opener's memory: no operation of the opener
 * ends, and its endpoint does not close, before the joiner has gone on or is dead (sc_xfer_is_over()). If the opener
 * dies, the joiner's copy fails, or uses memory that no process has any more, and no process reads its reports.
 *
 * All memory but the words is private, for the thread that uses the endpoint.
 */
#ifndef SC_XFER_H
#define SC_XFER_H

#include "link/state.h"
#include "os/cma.h"

/* ---- both ------------------------------------------------------------------------------------ */

enum sc_xfer_way { SC_XFER_READ, SC_XFER_READ_PROVEN, SC_XFER_WRITE };

/*
 * Copies parts of a peer's messages in one call, with proof after a read whose memory it was, if `way` says so. If that
 * fails, copies each part alone, to learn which one cannot be copied. Each part that is not copied gets its `error`.
 */
void sc_xfer_copy(const struct sc_peer *peer, struct sc_cma_parts *parts, enum sc_xfer_way way);

/* ---- opener ---------------------------------------------------------------------------------- */

/* A copy that the opener wants to share. */
struct sc_xfer_offer {
	struct sc_abi_share record; /* the caller sets `size`, and `message.op` or `memory` */
	uint32_t flags;		    /* SC_ABI_F_MEMORY, SC_ABI_F_PUT */
	const struct iovec *to;	    /* message: the opener's memory */
	size_t to_count;	    /* elements of it; put or get: 1 */
};

/*
 * Tells whether processors are short: an opener would wait for a joiner that has a chunk in hand and no processor, and
 * the sender of a rendezvous for a receiver that has none. Takes as long as sc_oversub_is_here().
 */
bool sc_xfer_is_crowded(const struct sc_ep *ep);

/* Tells whether copies may be shared with this attached peer, as far as is known. */
bool sc_xfer_may_open(struct sc_peer *peer);

/*
 * Begins to share a copy with the peer, and tells it. False: not now, the ring is full or too many copies are shared.
 * Nothing has changed then, except that the search for space may have given up the peer.
 */
bool sc_xfer_open(struct sc_peer *peer, struct sc_share *share, struct sc_xfer_offer *offer);

/*
 * Finds what the opener copies next. 1: *part, a chunk that it has taken, or what the joiner could not copy. 0: both
 * sides have ended. -EAGAIN: the joiner has chunks in hand; a dead peer is lost. Other negative errno: the peer has
 * broken the rules and is given up.
 */
int sc_xfer_next(struct sc_peer *peer, struct sc_share *share, struct sc_share_part *part);

/* Notes that the opener could not copy (negative errno): nobody takes more. `share->failed` keeps the error. */
void sc_xfer_fail(struct sc_peer *peer, struct sc_share *share, int error);

/*
 * Ends a share early: leaves the joiner nothing more to take. True: the joiner copies none of it any more. It has
 * reported, or closed, or is dead, proven by its life lock, which the kernel frees after the last access of a process
 * to any memory; or it breaks the rules: its words are impossible, or it runs for 20 seconds and does not report. A
 * chunk is taken, copied and reported in one call, so after that time it has none, whatever the words say. False: the
 * joiner may still copy, also at the next call if it is stopped.
 */
bool sc_xfer_is_over(struct sc_peer *peer, struct sc_share *share);

/* Ends the share: the joiner copies no more of it, or has broken the rules. */
static inline void sc_xfer_leave(struct sc_peer *peer, struct sc_share *share)
{
	if (share->words)
		peer->xfer.opened &= ~(1u << share->index);
	share->words = NULL;
}

/* ---- joiner ---------------------------------------------------------------------------------- */

/*
 * Joins the copy that a peer's record names. The caller has set `peer`, `pull`, and the memory. -EPROTO: an impossible
 * record.
 */
int sc_xfer_join(struct sc_xfer *xfer, const struct sc_abi_share *record);

/* Leaves the copy. */
static inline void sc_xfer_part(struct sc_xfer *xfer)
{
	sc_list_remove(&xfer->of_ep);
}

/* Copies a chunk of each of the oldest in SC_WORK_JOINED. Returns the chunks. */
int sc_xfer_progress(struct sc_ep *ep);

#endif
