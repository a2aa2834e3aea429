/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xfer.c: copies that two processes share; xfer.h says which side does what, and what death leaves behind.
 *
 * Owns the list SC_WORK_JOINED and sc_peer.xfer.
 *
 * The joiner looks up memory of a registration for each chunk, in its private table. The record names the
 * registration's tag: memory that is registered anew has another one. The joiner writes only to a process that has just
 * shown that it lives, and proves after a read whose memory it was (cma.c).
 */
#include "link/xfer.h"

#include <errno.h>
#include <string.h>
#include "base/fault.h"
#include "base/iov.h"
#include "base/log.h"
#include "link/peer.h"
#include "link/record.h"
#include "link/review.h"

/*
 * Polls that find chunks in the peer's hand, between two checks whether the peer lives: a check costs as much as 100 of
 * these polls.
 */
#define LIFE_CHECK_POLLS 1024

/* ---- both ------------------------------------------------------------------------------------ */

static int copy_one(const struct sc_peer *peer, const struct sc_cma_copy *copy, enum sc_xfer_way way)
{
	size_t moved;

	if (way != SC_XFER_WRITE)
		return sc_peer_read(peer, copy, way == SC_XFER_READ_PROVEN);
	if (!sc_peer_is_there(peer))
		return -ESRCH;
	return sc_cma_write(peer->cma.pid, copy, &moved);
}

void sc_xfer_copy(const struct sc_peer *peer, struct sc_cma_parts *parts, enum sc_xfer_way way)
{
	int all = copy_one(peer, &parts->all, way);
	struct sc_cma_copy copy = parts->all;

	for (uint32_t i = 0; all && i < parts->count; i++) {
		struct sc_cma_part *part = &parts->part[i];

		copy.local_count = part->local_count;
		copy.remote_count = part->remote_count;
		copy.len = part->len;
		part->error = parts->count > 1 ? copy_one(peer, &copy, way) : all;
		copy.local += part->local_count;
		copy.remote += part->remote_count;
	}
}

/* ---- opener ---------------------------------------------------------------------------------- */

static struct sc_abi_chunks *words_of(const struct sc_peer *peer, uint32_t index)
{
	return &sc_seg_slot(peer->seg, peer->out_slot)->chunks[index];
}

bool sc_xfer_is_crowded(const struct sc_ep *ep)
{
	enum sc_crowd crowd = ep->config.crowd;

	return crowd == SC_CROWD_ALWAYS || (crowd == SC_CROWD_ASKED && sc_oversub_is_here());
}

bool sc_xfer_may_open(struct sc_peer *peer)
{
	if (peer->link != SC_LINK_UP || peer->seg->local || peer->xfer.copies_not)
		return false;
	/* the peer was told of a share, and had not come to it when the copy was over */
	if (peer->xfer.missed_generation &&
	    sc_share_has_come(words_of(peer, peer->xfer.missed_index), peer->xfer.missed_generation))
		peer->xfer.missed_generation = 0;
	return !peer->xfer.missed_generation;
}

bool sc_xfer_open(struct sc_peer *peer, struct sc_share *share, struct sc_xfer_offer *offer)
{
	struct sc_abi_share *record = &offer->record;
	uint32_t index = (uint32_t)__builtin_ctz(~peer->xfer.opened), lines;
	struct sc_abi_line *line;

	/* waiting answers go first */
	if (index >= SC_ABI_SHARES || record->size > SC_SHARE_MAX ||
	    !sc_list_empty(&peer->reply.waiting) ||
	    sc_record_room(peer, SC_ABI_SEGMENT_LINES((uint32_t)offer->to_count)))
		return false;
	if (!++peer->xfer.generation)
		++peer->xfer.generation;
	peer->xfer.opened |= 1u << index;
	record->generation = peer->xfer.generation;
	record->index = index;
	sc_share_open(share, words_of(peer, index), record);
	if (!(offer->flags & SC_ABI_F_MEMORY))
		record->message.first =
			(struct sc_abi_segment){ (uintptr_t)offer->to[0].iov_base, offer->to[0].iov_len };
	line = sc_ring_reserve(&peer->tx);
	memcpy(line->bytes, record, sizeof(*record));
	(void)SC_FAULT("xfer.words");
	lines = sc_record_segments_write(peer, offer->to, offer->to_count);
	(void)SC_FAULT("xfer.record");
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_SHARE, offer->flags, lines, (uint32_t)offer->to_count), lines);
	return true;
}

static void taken_twice(struct sc_peer *peer, int error)
{
	sc_peer_quarantine(peer, error, "chunks of a shared copy have been taken twice");
}

void sc_xfer_fail(struct sc_peer *peer, struct sc_share *share, int error)
{
	int ret = sc_share_close(share);

	share->failed = error;
	if (ret < 0)
		taken_twice(peer, ret);
}

/* When nothing is left to take. 1: *part, what the joiner leaves to the opener; else as sc_xfer_next(). */
static int settle(struct sc_peer *peer, struct sc_share *share, struct sc_share_part *part)
{
	int error, ret = sc_share_outstanding(share, &error, part);

	if (ret < 0) {
		sc_peer_quarantine(peer, ret, "it reports chunks that it cannot have copied");
		return ret;
	}
	if (ret) {
		if (++peer->xfer.polls % LIFE_CHECK_POLLS == 0 && sc_peer_is_dead(peer))
			sc_peer_ended(peer);
		return -EAGAIN;
	}
	peer->xfer.copies_not |= error && error != EFAULT && error != EKEYREJECTED;
	if (!sc_share_has_come(share->words, share->generation)) {
		peer->xfer.missed_index = share->index;
		peer->xfer.missed_generation = share->generation;
	}
	if (!part->len || share->undone || share->failed)
		return 0;
	share->undone = true;
	return 1;
}

int sc_xfer_next(struct sc_peer *peer, struct sc_share *share, struct sc_share_part *part)
{
	int ret = sc_share_take(share, part);

	if (ret < 0)
		taken_twice(peer, ret);
	else if (ret)
		(void)SC_FAULT("xfer.taken");
	else
		ret = settle(peer, share, part);
	return ret;
}

bool sc_xfer_is_over(struct sc_peer *peer, struct sc_share *share)
{
	struct sc_share_part undone;
	int error;

	/* a peer closes only between two chunks */
	return !share->words || !sc_peer_is_open(peer) || sc_share_close(share) ||
	       sc_share_outstanding(share, &error, &undone) <= 0 || sc_peer_is_dead(peer) || sc_peer_is_overdue(peer);
}

/* ---- joiner ---------------------------------------------------------------------------------- */

int sc_xfer_join(struct sc_xfer *xfer, const struct sc_abi_share *record)
{
	struct sc_peer *peer = xfer->peer;

	sc_list_init(&xfer->of_ep);
	if (record->index >= SC_ABI_SHARES ||
	    sc_share_join(&xfer->share,
			  &sc_seg_slot(peer->ep->seg, peer->in_slot)->chunks[record->index], record))
		return -EPROTO;
	sc_ep_begin(peer->ep, SC_WORK_JOINED, &xfer->of_ep);
	return 0;
}

/* Reports to the opener, which may sleep until the copy is over. The words are in our own segment. */
static void report(struct sc_xfer *xfer, int error)
{
	if (error)
		sc_xfer_part(xfer);
	sc_share_report(&xfer->share, -error);
	sc_peer_wake(xfer->peer, SC_ABI_SLEEP_ASLEEP);
}

/* Finds the registration, as it is now, if the memory is of one. 0, or why the joiner cannot copy. */
static int find(const struct sc_xfer *xfer, const struct sc_reg **reg)
{
	struct sc_peer *peer = xfer->peer;

	if (!sc_peer_may_copy(peer) || peer->seg->local || (!xfer->pull && peer->writes_fail))
		return -EPERM;
	/* before it takes a chunk, which it would have to copy */
	if (!sc_peer_is_there(peer))
		return -ESRCH;
	if (!xfer->memory)
		return 0;
	*reg = peer->ep->regtab ? sc_regtab_own(peer->ep->regtab, xfer->key) : NULL;
	if (!*reg || (*reg)->tag != xfer->tag)
		return -EKEYREJECTED;
	return sc_reg_check(*reg, xfer->addr, xfer->share.size, xfer->pull ? SC_REG_WRITE : SC_REG_READ);
}

/* Takes a chunk. False: none is left, or the joiner copies no more of it. */
static bool take(struct sc_xfer *xfer, const struct sc_reg **reg, struct sc_share_part *part)
{
	struct sc_peer *peer = xfer->peer;
	int ret;

	if (peer->feed != SC_FEED_UP) { /* it has gone; another peer may soon have the slot */
		sc_xfer_part(xfer);
		return false;
	}
	ret = find(xfer, reg);
	if (ret) {
		report(xfer, ret);
		return false;
	}
	ret = sc_share_take(&xfer->share, part);
	if (ret <= 0) {
		sc_xfer_part(xfer);
		if (ret == -EPROTO)
			taken_twice(peer, ret);
		return false;
	}
	(void)SC_FAULT("xfer.joiner_taken");
	return true;
}

/* Copies a chunk of a registration, with as many elements at a time as a call takes. */
static int memory_copy(const struct sc_xfer *xfer, const struct sc_reg *reg, const struct sc_share_part *part)
{
	uint64_t at = part->offset, end = part->offset + part->len;
	enum sc_xfer_way way = xfer->pull ? SC_XFER_READ_PROVEN : SC_XFER_WRITE;
	struct iovec ours[SC_IOV_MAX], theirs[SC_IOV_MAX];
	int ret = 0;

	for (uint64_t here; at < end && !ret; at += here) {
		struct sc_cma_copy copy = { .local = ours, .remote = theirs };

		here = end - at;
		copy.local_count = sc_reg_slice(reg, xfer->addr + at, &here, ours, SC_IOV_MAX);
		copy.remote_count = sc_iov_slice(xfer->theirs, xfer->theirs_count, at, here, theirs);
		copy.len = here;
		ret = copy_one(xfer->peer, &copy, way);
	}
	return ret;
}

/* Reports a chunk that has been copied, or (`error`) cannot be: then the opener does it, or finds out why it cannot. */
static void moved(struct sc_xfer *xfer, size_t len, int error)
{
	struct sc_peer *peer = xfer->peer;

	(void)SC_FAULT("xfer.joiner_copied");
	if (peer->feed != SC_FEED_UP) { /* the peer has been given up meanwhile */
		sc_xfer_part(xfer);
		return;
	}
	if (!error)
		peer->ep->counters.shared_bytes += len;
	report(xfer, error);
	if (!error || error == -EFAULT || xfer->pull)
		return;
	sc_log(sc_peer_cma_level(error),
	       "%s: process_vm_writev fails (%s): the peer alone copies large messages to it from now on; "
	       "shmcma doctor %d looks for the cause",
	       peer->address, strerror(-error), (int)peer->cma.pid);
	peer->writes_fail = true;
}

/* Tells whether a chunk of that message goes in the same call as those of `parts`: it has room, and is for that peer. */
static bool has_room(const struct sc_cma_parts *parts, const struct sc_xfer *xfer)
{
	const struct sc_xfer *first = parts->count ? parts->part[0].payload : xfer;

	return first->peer == xfer->peer && sc_cma_has_room(parts, xfer->ours_count, xfer->theirs_count,
							    sc_share_largest(&xfer->share));
}

/*
 * Copies a chunk of each, so that other traffic goes on. Our own receives go first: of two sides that both send and
 * receive, each copies what it receives; shared copies would take 6% longer.
 */
int sc_xfer_progress(struct sc_ep *ep)
{
	const struct sc_reg *reg = NULL;
	struct sc_share_part part;
	struct sc_cma_parts parts;
	struct sc_peer *peer = NULL; /* the parts' */
	int alone = 0;

	if (!sc_list_empty(&ep->work[SC_WORK_PULLING]))
		return 0;
	sc_cma_parts_init(&parts);
	sc_list_for_safe (entry, next, &ep->work[SC_WORK_JOINED]) {
		struct sc_xfer *xfer = sc_list_entry(entry, struct sc_xfer, of_ep);

		if (xfer->memory) {
			alone++;
			if (take(xfer, &reg, &part))
				moved(xfer, part.len, memory_copy(xfer, reg, &part));
		} else if (!has_room(&parts, xfer)) {
			break;
		} else if (take(xfer, &reg, &part)) {
			sc_cma_add(&parts, xfer,
				   &(struct sc_cma_copy){ xfer->ours, xfer->ours_count, xfer->theirs,
							  xfer->theirs_count, part.len },
				   part.offset);
			peer = xfer->peer;
		}
	}
	if (parts.count)
		sc_xfer_copy(peer, &parts, SC_XFER_WRITE);
	for (uint32_t i = 0; i < parts.count; i++)
		moved(parts.part[i].payload, parts.part[i].len, parts.part[i].error);
	return alone + (int)parts.count;
}
