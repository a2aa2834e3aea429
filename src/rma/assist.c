/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * assist.c: large puts and gets that the initiator copies together with the target, if the target polls.
 *
 * One CMA call copies on one processor. So the initiator asks the target of a large operation to assist: a record in
 * the target's ring says where the bytes are on both sides, and each side takes chunks from its end (share.h), the
 * initiator from the front. The initiator copies in the call that posts the operation, until nothing is left to take.
 * An initiator that is alone does all, and the operation is over in the call, like a direct one (direct.c). If the
 * target then has a chunk in hand, the operation ends in a poll.
 *
 *   initiator   post --> ask --> take, copy ... nothing left --> the target has reported --> the tail --> over
 *   target      record --> in use, in bounds, allowed? --> take, copy, report, one in each poll
 *
 * The initiator does not ask a target that computes: the words of the share show whether the target has come to the
 * last record. To find out that a target no longer polls costs the record, and one operation in chunks.
 *
 * Both sides check key, bounds and access for each chunk: the initiator in the target's table under a hazard word, the
 * target in its private table. The record names the registration's tag, because memory that is registered anew has
 * another tag. After the copy the initiator checks that the registration is still in use. On any error the initiator
 * does the operation once more alone (sc_direct_do()), which finds the cause.
 *
 * Order: the operations to one peer are done one after the other, and nothing else is done to its memory meanwhile. The
 * last TAIL bytes of a put are written after all others: a reader that sees the last byte sees all of them. If the
 * target's application must hear of the operation, a note follows the last byte (request.c).
 *
 * Death. The words are in the target's segment, in the slot that the initiator has claimed. If the initiator dies, the
 * target's copy fails, or comes from or goes to memory that no process has any more, and nobody reads its reports. If
 * the target dies before it has taken a chunk, or after its report, the next copy of the initiator says so. If it dies
 * with a chunk in hand, its life lock says so, and the operation fails. If it is stopped with a chunk in hand, the
 * initiator waits, also when the endpoint closes or has given the target up, as the target may still access the
 * initiator's memory. A target closes only between two chunks.
 */
#include "rma/assist.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include "rma/direct.h"
#include "link/peer.h"
#include "link/record.h"
#include "link/xfer.h"
#include "rma/request.h"
#include "rma/rmaop.h"

/* The last bytes of a put. */
#define TAIL 64

/* ---- ours ------------------------------------------------------------------------------------ */

static struct sc_rma_op *oldest(const struct sc_peer *peer)
{
	return sc_list_entry(peer->assist.ops.next, struct sc_rma_op, of_peer);
}

bool sc_assist_may_ask(struct sc_peer *peer)
{
	/* relaxed: only a guess depends on it */
	return sc_direct_may(peer) && sc_xfer_may_open(peer) && sc_peer_has_come(peer) &&
	       !(sc_load_relaxed_64(peer->tx.sleep) & SC_ABI_SLEEP_ASLEEP) && !sc_record_room(peer, 1);
}

/* Tells the target. False: not now, or not for this operation; nothing has been done. */
static bool ask(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	const struct sc_rma rma = sc_rmaop_rma(op);
	bool put = op->kind == SC_RMA_PUT;
	struct sc_xfer_offer offer = { .flags = SC_ABI_F_MEMORY | (put ? SC_ABI_F_PUT : 0),
				       .to_count = 1 };

	if (!sc_assist_may_ask(peer) || sc_direct_look(peer, &rma, &op->ref, &op->heard))
		return false;
	offer.record.size = op->size - (put ? TAIL : 0);
	offer.record.memory.key = op->remote[0].key;
	offer.record.memory.addr = op->remote[0].addr;
	offer.record.memory.tag = op->ref.tag;
	offer.record.memory.there = (uintptr_t)op->iov[0].iov_base;
	return sc_xfer_open(peer, &op->share, &offer);
}

/* Copies a part here. After a failure the target can take nothing more. */
static void copy_part(struct sc_rma_op *op, const struct sc_share_part *part)
{
	const struct sc_rma rma = sc_rmaop_rma(op);
	int error = sc_direct_part(op->peer, &rma, &op->ref, part, &op->heard);

	if (error)
		sc_xfer_fail(op->peer, &op->share, error);
}

static void op_end(struct sc_rma_op *op, int error)
{
	sc_xfer_leave(op->peer, &op->share);
	sc_rmaop_end(op, error);
}

/* Ends the operation, or does it alone if something went wrong. -EAGAIN: not now. */
static int end(struct sc_rma_op *op)
{
	const struct sc_share_part tail = { op->share.size, op->size - op->share.size };
	struct sc_peer *peer = op->peer;
	const struct sc_regtab_view table = sc_seg_table(peer->seg);

	if (op->share.theirs && tail.len && !op->share.failed)
		copy_part(op, &tail);
	sc_xfer_leave(peer, &op->share);
	if (op->share.failed || !sc_regtab_holds(&table, &op->ref))
		return sc_direct_do(op);
	peer->ep->counters.rma_assisted += op->share.theirs > 0;
	if (op->heard)
		sc_request_note(op);
	else
		sc_rmaop_end(op, 0);
	return 0;
}

/*
 * Does one step of the oldest. -EAGAIN: the target is not ready; 1: a step; 0: it has ended; else the error of the
 * peer.
 */
static int go_on(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	bool asked = op->share.words || ask(op);
	struct sc_share_part part;
	int ret = asked ? sc_xfer_next(peer, &op->share, &part) : 0;

	if (ret > 0) {
		if (!sc_share_left(&op->share) && !op->share.theirs)
			part.len = op->size - part.offset; /* alone: the tail with the rest */
		copy_part(op, &part);
		return 1;
	}
	if (peer->link == SC_LINK_DOWN)
		return peer->error;
	if (ret)
		return ret;
	return asked ? end(op) : sc_direct_do(op);
}

int sc_assist_settle_slow(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->assist.ops)) {
		int ret = go_on(oldest(peer));

		if (peer->link == SC_LINK_DOWN)
			return peer->error;
		if (ret < 0)
			return ret;
	}
	sc_list_remove(&peer->work[SC_WORK_ASKING]);
	return 0;
}

int sc_assist_post(struct sc_peer *peer, const struct sc_rma *rma)
{
	bool first = sc_list_empty(&peer->assist.ops);
	struct sc_rma_op *op;

	op = sc_rmaop_get(peer, rma->flags & SC_RMA_WRITE ? SC_RMA_PUT : SC_RMA_GET, rma);
	if (!op)
		return -EAGAIN;
	op->share.words = NULL;
	sc_list_append(&peer->assist.ops, &op->of_peer);
	peer->rma.pending++;
	if (!first)
		return 0;
	sc_peer_begin(peer, SC_WORK_ASKING);
	(void)sc_assist_settle_slow(peer); /* a later poll does the rest, or it ends with the peer */
	return 0;
}

/* Tells whether the target may have chunks of the oldest in hand. It can take no more of them. */
static bool is_in_hand(struct sc_peer *peer)
{
	struct sc_rma_op *op = oldest(peer);

	return !sc_xfer_is_over(peer, &op->share);
}

int sc_assist_progress(struct sc_peer *peer)
{
	int ret = 0;

	while (!ret && peer->link != SC_LINK_DOWN && !sc_list_empty(&peer->assist.ops))
		ret = go_on(oldest(peer));
	if (sc_list_empty(&peer->assist.ops)) {
		sc_list_remove(&peer->work[SC_WORK_ASKING]);
		return true;
	}
	return ret > 0;
}

static void finish(struct sc_peer *peer)
{
	while (sc_assist_settle(peer) == -EAGAIN) {
		if (!is_in_hand(peer)) {
			(void)sc_assist_settle(peer);
			return;
		}
		sched_yield();
	}
}

/* Waits while a lost peer may have chunks in hand of operations that have not ended. */
static void wait_for(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->assist.ops) && is_in_hand(peer))
		sched_yield();
}

void sc_assist_fini(struct sc_ep *ep)
{
	if (!sc_seg_is_here(ep->seg))
		return; /* a forked child: the operations are its parent's */
	sc_list_for_safe (entry, next, &ep->work[SC_WORK_ASKING]) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, work[SC_WORK_ASKING]);

		if (peer->link == SC_LINK_UP)
			finish(peer);
		if (peer->link != SC_LINK_UP)
			wait_for(peer);
	}
}

/* ---- theirs ---------------------------------------------------------------------------------- */

int sc_assist_take(struct sc_peer *peer, const struct sc_abi_line *first, uint64_t ctl)
{
	struct sc_xfer *assist = &peer->assist.xfer;
	struct sc_abi_share record;

	memcpy(&record, first->bytes, sizeof(record));
	sc_xfer_part(assist); /* an initiator that asks again has ended its last operation */
	if (peer->feed != SC_FEED_UP)
		return 0; /* the peer has gone */
	if (record.memory.there + record.size < record.size)
		return -EPROTO;
	peer->assist.there = (struct iovec){ (void *)(uintptr_t)record.memory.there, record.size };
	*assist = (struct sc_xfer){ .peer = peer,
				    .pull = sc_ctl_flags(ctl) & SC_ABI_F_PUT,
				    .memory = true,
				    .key = record.memory.key,
				    .addr = record.memory.addr,
				    .tag = record.memory.tag,
				    .theirs = &peer->assist.there,
				    .theirs_count = 1 };
	return sc_xfer_join(assist, &record);
}

/* ---- both ------------------------------------------------------------------------------------ */

bool sc_assist_end_peer(struct sc_peer *peer, int error)
{
	sc_xfer_part(&peer->assist.xfer);
	if (!sc_list_empty(&peer->assist.ops) && is_in_hand(peer))
		return false;
	while (!sc_list_empty(&peer->assist.ops))
		op_end(oldest(peer), error);
	sc_list_remove(&peer->work[SC_WORK_ASKING]);
	return true;
}
