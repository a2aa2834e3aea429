/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * assist.c: large puts and gets that the process whose memory it is copies along, if it polls just now.
 *
 * One processor moves what a CMA call moves. So the target of a large operation is asked to assist: a record in its ring
 * says where the bytes are on both sides, and each takes chunks from its end (share.h), the initiator from the front.
 * The initiator copies in the call that posts it, and goes on until nothing is left to take: an initiator that is alone
 * does all, and it is over in the call, as any direct operation (direct.c). If the target has a chunk in hand then, it
 * ends in a poll.
 *
 *   initiator   post --> ask --> take, copy ... nothing left --> the target has reported --> the tail --> over
 *   target      record --> in use, in bounds, allowed? --> take, copy, report, one in each poll
 *
 * A target that computes is not asked: whether it has come to the last record shows in the share's words. It costs
 * the record and one operation in chunks to find out that it polls no more.
 *
 * Key, bounds and access are checked by both for each chunk, by the initiator in the target's table under a hazard word,
 * by the target in its private table, and the record names the registration's tag: memory that is registered anew has
 * another tag. When all is copied the initiator looks whether the registration is in use still. On any error the
 * initiator does the operation once more by itself (sc_direct_do()), which finds the cause.
 *
 * Order: the operations to one peer are done one after the other, and nothing else is done to its memory meanwhile. The
 * last TAIL bytes of a put are written when all others are: a reader that sees the last byte sees all of them.
 *
 * Death. The words are in the target's segment, in the slot that the initiator has claimed. If the initiator dies, the
 * target's copy fails, or comes from or goes to memory that nobody has any more; nobody looks at its reports. If the
 * target dies, before it has taken a chunk or after its report, the initiator's next copy says so; with one in hand,
 * its life lock does, and the operation fails. If it is stopped with a chunk in hand it is waited for: it may still
 * read or write the initiator's memory, also when the endpoint closes, or has given it up. A target that closes does so
 * between two chunks.
 */
#include "rma/assist.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include "rma/direct.h"
#include "base/fault.h"
#include "base/iov.h"
#include "base/log.h"
#include "link/peer.h"
#include "link/review.h"
#include "link/record.h"
#include "rma/rmaop.h"

/* The last bytes of a put. */
#define TAIL 64

/* ---- ours ------------------------------------------------------------------------------------ */

static struct sc_abi_chunks *words_of(const struct sc_peer *peer)
{
	return &sc_seg_slot(peer->seg, peer->out_slot)->offers.assist;
}

static struct sc_rma_op *oldest(const struct sc_peer *peer)
{
	return sc_list_entry(peer->assisted.next, struct sc_rma_op, of_peer);
}

static struct sc_rma rma_of(const struct sc_rma_op *op)
{
	return (struct sc_rma){ .iov = op->iov,
				.iov_count = op->iov_count,
				.remote = op->remote,
				.remote_count = op->remote_count,
				.flags = op->flags };
}

bool sc_assist_may_ask(struct sc_peer *peer)
{
	/* relaxed: only a guess is made of it */
	uint64_t done = sc_load_relaxed_64(&words_of(peer)->done);

	return sc_direct_may(peer) && !peer->assists_not && done >> 32 == peer->assist_generation &&
	       sc_peer_has_come(peer) && !(sc_load_relaxed_64(peer->tx.sleep) & SC_ABI_SLEEP_ASLEEP) &&
	       !sc_record_room(peer, 1);
}

/* Tell the target. False: not just now, or not this one; nothing has been done. */
static bool ask(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	const struct sc_rma rma = rma_of(op);
	bool put = op->kind == SC_RMA_PUT;
	struct sc_abi_assist *record;

	if (!sc_assist_may_ask(peer) || sc_direct_look(peer, &rma, &op->ref))
		return false;
	if (!++peer->assist_generation)
		++peer->assist_generation;
	sc_share_open(&op->share, words_of(peer), peer->assist_generation, op->size - (put ? TAIL : 0), 1, 1);
	record = (struct sc_abi_assist *)sc_ring_reserve(&peer->tx)->bytes;
	*record = (struct sc_abi_assist){ .key = op->remote[0].key,
					  .addr = op->remote[0].addr,
					  .tag = op->ref.tag,
					  .there = (uintptr_t)op->iov[0].iov_base,
					  .size = op->share.size,
					  .chunk = op->share.head,
					  .generation = peer->assist_generation };
	(void)SC_FAULT("assist.record");
	sc_ring_commit(&peer->tx, sc_ring_ctl(put ? SC_ABI_ASSIST_PUT : SC_ABI_ASSIST_GET, 0, 1, 0), 1);
	return true;
}

/* We copy a part of it. A failure leaves the target nothing more to take. */
static void copy_part(struct sc_rma_op *op, const struct sc_share_part *part)
{
	const struct sc_rma rma = rma_of(op);

	op->error = sc_direct_part(op->peer, &rma, &op->ref, part);
}

/* Take the next part and copy it. False: none is left. */
static bool copy_next(struct sc_rma_op *op)
{
	struct sc_share_part part;
	int ret = op->error ? sc_share_close(&op->share) : sc_share_take(&op->share, &part);

	if (ret < 0)
		sc_peer_quarantine(op->peer, ret, "chunks of a put or get that were taken twice");
	if (ret <= 0)
		return false;
	(void)SC_FAULT("assist.taken");
	if (!sc_share_left(&op->share) && !op->share.theirs)
		part.len = op->size - part.offset; /* alone: the tail with the rest */
	copy_part(op, &part);
	return true;
}

/* It is over, or, if something went wrong, to be done by us alone. -EAGAIN: not now. */
static int end(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	const struct sc_regtab_view table = sc_seg_table(peer->seg);

	op->share.words = NULL;
	if (op->error || !sc_regtab_holds(&table, &op->ref)) {
		op->error = 0;
		return sc_direct_do(op);
	}
	op->moved = op->size;
	peer->ep->counters.rma_assisted += op->share.theirs > 0;
	sc_rmaop_end(op, 0);
	return 0;
}

/* Nothing is left to take. -EAGAIN: the target has some of it in hand. */
static int settle(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_share_part part;
	int error, ret;

	ret = sc_peer_outstanding(peer, &op->share, &error, &part);
	if (ret)
		return ret < 0 ? peer->error : -EAGAIN;
	peer->assists_not |= error && error != EFAULT && error != EKEYREJECTED;
	if (part.len && !op->error)
		copy_part(op, &part);
	part = (struct sc_share_part){ op->share.size, op->size - op->share.size };
	if (op->share.theirs && part.len && !op->error)
		copy_part(op, &part);
	return end(op);
}

/* One step of the oldest. -EAGAIN: it waits for the target; 1: a step; 0: it is over; else why it ends with the peer. */
static int go_on(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	bool asked = op->share.words || ask(op);

	if (asked && copy_next(op))
		return 1;
	if (peer->link == SC_LINK_DOWN)
		return peer->error;
	return asked ? settle(op) : sc_direct_do(op);
}

int sc_assist_settle_slow(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->assisted)) {
		int ret = go_on(oldest(peer));

		if (peer->link == SC_LINK_DOWN)
			return peer->error;
		if (ret < 0)
			return ret;
	}
	sc_list_remove(&peer->asking);
	return 0;
}

int sc_assist_post(struct sc_peer *peer, const struct sc_rma *rma)
{
	bool first = sc_list_empty(&peer->assisted);
	struct sc_rma_op *op;

	op = sc_rmaop_get(peer, rma->flags & SC_RMA_WRITE ? SC_RMA_PUT : SC_RMA_GET, rma);
	if (!op)
		return -EAGAIN;
	op->share.words = NULL;
	sc_list_append(&peer->assisted, &op->of_peer);
	peer->rma_pending++;
	if (!first)
		return 0;
	sc_ep_begin(peer->ep);
	sc_list_append(&peer->ep->asking, &peer->asking);
	(void)sc_assist_settle_slow(peer); /* a later poll does the rest, or it ends with the peer */
	return 0;
}

/* May the target have something of the oldest in hand? It is left nothing more to take. */
static bool is_in_hand(struct sc_peer *peer)
{
	struct sc_rma_op *op = oldest(peer);

	/* one that has closed has done so between two chunks */
	return op->share.words && sc_peer_is_open(peer) && !sc_peer_leaves(peer, &op->share);
}

static bool ours_progress(struct sc_peer *peer)
{
	int ret = 0;

	while (!ret && peer->link != SC_LINK_DOWN && !sc_list_empty(&peer->assisted))
		ret = go_on(oldest(peer));
	if (sc_list_empty(&peer->assisted)) {
		sc_list_remove(&peer->asking);
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

/* It is lost, and our operations have not ended yet: it may have some of them in hand. */
static void wait_for(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->assisted) && is_in_hand(peer))
		sched_yield();
}

void sc_assist_fini(struct sc_ep *ep)
{
	if (!sc_seg_is_here(ep->seg))
		return; /* a forked child: its parent's */
	sc_list_for_safe (entry, next, &ep->asking) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, asking);

		if (peer->link == SC_LINK_UP)
			finish(peer);
		if (peer->link != SC_LINK_UP)
			wait_for(peer);
	}
}

/* ---- theirs ---------------------------------------------------------------------------------- */

int sc_assist_take(struct sc_peer *peer, uint64_t ctl)
{
	struct sc_assist *assist = &peer->assist;
	struct sc_abi_assist *record = &assist->record;

	memcpy(record, sc_ring_first(&peer->rx)->bytes, sizeof(*record));
	sc_list_remove(&peer->assisting); /* an initiator that asks for another has ended the last one */
	if (peer->feed != SC_FEED_UP)
		return 0; /* it has gone */
	if (sc_share_join(&assist->share,
			  &sc_seg_slot(peer->ep->seg, peer->in_slot)->offers.assist, record->generation,
			  record->size, record->chunk, record->chunk) ||
	    record->there + record->size < record->size)
		return -EPROTO;
	assist->put = sc_ctl_kind(ctl) == SC_ABI_ASSIST_PUT;
	sc_share_come(&assist->share);
	sc_list_append(&peer->ep->assisting, &peer->assisting);
	sc_ep_begin(peer->ep);
	return 0;
}

/* The registration, as it is now. 0, or why we cannot assist. */
static int find(struct sc_peer *peer, const struct sc_reg **found)
{
	const struct sc_assist *assist = &peer->assist;
	const struct sc_regtab *regtab = peer->ep->regtab;
	const struct sc_reg *reg = regtab ? sc_regtab_own(regtab, assist->record.key) : NULL;

	if (!sc_peer_may_copy(peer) || peer->seg->local)
		return -EPERM;
	if (!reg || reg->tag != assist->record.tag)
		return -EKEYREJECTED;
	*found = reg;
	return sc_reg_check(reg, assist->record.addr, assist->record.size,
			    assist->put ? SC_REG_WRITE : SC_REG_READ);
}

static int copy(struct sc_peer *peer, const struct sc_reg *reg, const struct sc_share_part *part)
{
	const struct sc_assist *assist = &peer->assist;
	struct iovec ours[SC_IOV_MAX], theirs;
	uint64_t at = part->offset, end = part->offset + part->len;
	int ret = 0;

	for (uint64_t here; at < end && !ret; at += here) {
		size_t count, moved;

		here = end - at;
		count = sc_reg_slice(reg, assist->record.addr + at, &here, ours, SC_IOV_MAX);
		theirs = (struct iovec){ (void *)(uintptr_t)(assist->record.there + at), here };
		if (assist->put)
			ret = sc_peer_read(peer, ours, count, &theirs, 1, here, true);
		else if (sc_peer_is_there(peer))
			ret = sc_cma_write(peer->cma.pid, ours, count, &theirs, 1, here, &moved);
		else
			ret = -ESRCH;
	}
	return ret;
}

/* It is in our own segment; the initiator may sleep until it is over. */
static void report(struct sc_peer *peer, int error)
{
	if (error)
		sc_list_remove(&peer->assisting);
	sc_share_report(&peer->assist.share, -error);
	sc_peer_wake(peer, SC_ABI_SLEEP_ASLEEP);
}

static void theirs_progress(struct sc_peer *peer)
{
	const struct sc_reg *reg;
	struct sc_share_part part;
	int ret;

	if (peer->feed != SC_FEED_UP) { /* it has gone, and the slot may be another's soon */
		sc_list_remove(&peer->assisting);
		return;
	}
	ret = find(peer, &reg);
	if (ret) {
		report(peer, ret);
		return;
	}
	ret = sc_share_take(&peer->assist.share, &part);
	if (ret <= 0) {
		sc_list_remove(&peer->assisting);
		if (ret == -EPROTO)
			sc_peer_quarantine(peer, ret, "chunks of its put or get that were taken twice");
		return;
	}
	(void)SC_FAULT("assist.their_taken");
	ret = copy(peer, reg, &part);
	(void)SC_FAULT("assist.their_copied");
	if (!ret)
		peer->ep->counters.shared_bytes += part.len;
	report(peer, ret);
}

/* ---- both ------------------------------------------------------------------------------------ */

int sc_assist_progress(struct sc_ep *ep)
{
	int steps = 0;

	sc_list_for_safe (entry, next, &ep->asking)
		steps += ours_progress(sc_list_entry(entry, struct sc_peer, asking));
	sc_list_for_safe (entry, next, &ep->assisting) {
		theirs_progress(sc_list_entry(entry, struct sc_peer, assisting));
		steps++;
	}
	return steps;
}

bool sc_assist_end_peer(struct sc_peer *peer, int error)
{
	sc_list_remove(&peer->assisting);
	if (!sc_list_empty(&peer->assisted) && is_in_hand(peer))
		return false;
	while (!sc_list_empty(&peer->assisted))
		sc_rmaop_end(oldest(peer), error);
	sc_list_remove(&peer->asking);
	return true;
}
