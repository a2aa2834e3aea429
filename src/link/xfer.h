/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xfer.h: a large copy between two processes that both of them do, if the other one polls just now.
 *
 * One processor moves what a CMA call moves. So the side that needs the bytes moved, the opener, tells the other one, the
 * joiner, where they are on both sides, and each copies chunks from its end (share.h). An opener that is alone copies
 * all.
 *
 *                opener                            joiner                        the opener's file
 *   message      receiver of a rendezvous, reads   its sender, writes            msg/transfer.c
 *   put          initiator, writes                 target, reads                 rma/assist.c
 *   get          initiator, reads                  target, writes                rma/assist.c
 *
 * The words of a share are in the joiner's segment, in the slot that the opener has claimed, so they are the opener's until it
 * gives up that slot, which it does when all its operations with the joiner have ended.
 *
 *   opener   sc_xfer_open() --> sc_xfer_take(), copy ... nothing left --> sc_xfer_settle() until 0 --> sc_xfer_leave()
 *   joiner   sc_xfer_join() --> sc_xfer_progress(): in use, in bounds, allowed? take, copy, report ... nothing left
 *
 * A joiner that computes is not asked again: it costs the opener the record, and one copy in chunks, to find out that
 * it does not poll; until it has come to that record no other share is opened.
 *
 * Death. A joiner takes chunks, copies and reports them in one call of sc_xfer_progress(), so between two calls it has
 * nothing in hand, and may close. If it dies in that call, the opener finds chunks without report, and the joiner's life
 * lock free. If it is stopped there, it may still read or write the opener's memory: no operation of the opener ends, and
 * its endpoint does not close, before the joiner has gone on or is dead (sc_xfer_is_over()). If the opener dies, the
 * joiner's copy fails, or comes from or goes to memory that no process has any more, and nobody reads its reports.
 *
 * Private memory, but for the words; for the thread that uses the endpoint.
 */
#ifndef SC_XFER_H
#define SC_XFER_H

#include "link/state.h"

/* ---- opener ---------------------------------------------------------------------------------- */

/* A copy that the opener wants to share. */
struct sc_xfer_offer {
	struct sc_abi_share record; /* the caller sets `size`, and `message.op` or `memory` */
	uint32_t flags;		    /* SC_ABI_F_MEMORY, SC_ABI_F_PUT */
	const struct iovec *to;	     /* of a message: the opener's memory */
	size_t to_count, from_count; /* elements of the opener's memory, and of the joiner's; 1 of a put or get */
};

/* May copies be shared with this peer, which is attached, as far as is known? */
bool sc_xfer_may_open(struct sc_peer *peer);

/*
 * Begin to share a copy with the peer, and tell it. False: not now, the ring is full or so many are shared; nothing has
 * been done, but that looking for room may have shown that the peer is to be given up.
 */
bool sc_xfer_open(struct sc_peer *peer, struct sc_share *share, struct sc_xfer_offer *offer);

/* Take a chunk. 1: *part; 0: none is left; negative errno: the peer has broken the rules and is given up. */
int sc_xfer_take(struct sc_peer *peer, struct sc_share *share, struct sc_share_part *part);

/* The opener copies no more: leave the joiner nothing to take. */
void sc_xfer_stop(struct sc_peer *peer, struct sc_share *share);

/*
 * Nothing is left to take. 0: the joiner has ended, and the opener copies *undone, if undone->len is not 0. Positive: it has
 * chunks in hand. Negative errno: the peer has broken the rules and is given up. A peer that is found dead is lost.
 */
int sc_xfer_settle(struct sc_peer *peer, struct sc_share *share, struct sc_share_part *undone);

/*
 * An operation of the opener's ends early, and the joiner may have chunks of it in hand: it is left nothing more to
 * take. True: it copies none of it any more. It has reported, or closed, or is dead, proven by its life lock, which the
 * kernel frees after the last access of a process to any memory; or it breaks the rules: its words cannot be, or it runs
 * and does not report. A chunk is taken, copied and reported in one call, so after 20 seconds of that it has none,
 * whatever the words say. False: it may, at the next call too if it is stopped.
 */
bool sc_xfer_is_over(struct sc_peer *peer, struct sc_share *share);

/* The joiner copies no more of it, or breaks the rules. */
void sc_xfer_leave(struct sc_peer *peer, struct sc_share *share);

/* ---- joiner ---------------------------------------------------------------------------------- */

/*
 * Take part in what a peer's record tells of. The caller has set `peer`, what the memory is, and `pull`. -EPROTO: it
 * cannot be.
 */
int sc_xfer_join(struct sc_xfer *xfer, const struct sc_abi_share *record);

/* Take part no more. */
void sc_xfer_part(struct sc_xfer *xfer);

/* Copy a chunk of each of the oldest in SC_WORK_JOINED. Returns the chunks. */
int sc_xfer_progress(struct sc_ep *ep);

#endif
