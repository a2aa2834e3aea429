/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * delegate.c: small puts and gets that either side may do; this file is the side that posts them.
 *
 * To access another process's memory costs a system call and the pinning of its pages. A peer that polls takes a record
 * from its ring and copies by itself, sooner, while this side goes on. But the peer may compute, and no process may
 * wait for it. So the operation is delegated: its record lies in the peer's ring, and the peer may take it until this
 * side withdraws it. This side withdraws it if the peer has not taken it after some polls (WITHDRAW_POLLS), or if
 * another operation for that peer must go another way. It copies withdrawn operations itself (direct.c), and the peer
 * passes over their records. If the application does not poll, the daemon's thread withdraws puts and does them
 * (rescue.c). The payload of an injected put is in its record, or in the buffers that the record names, until the put
 * ends. Such a buffer may be one of the peer, which this side holds; after the put the peer may hold ours (hold.h). Of a
 * put from one piece this side keeps a few words and no struct sc_rma_op (delegated.c), and if the payload is in the
 * record, sc_delegate_short() posts it after the few checks that can fail.
 *
 *   edge                      written by                                           recorded in
 *   none -> DELEGATED         this side: post_record()                             the ring: a record
 *   DELEGATED -> TAKEN        the peer: claim_next() of taker.c                    claim, low half     (O1)
 *   DELEGATED -> WITHDRAWN    this side, the thread that the keeper of rescue.c    claim, high half    (O1)
 *                             names: withdraw_from(), or withdraw() of rescue.c
 *   TAKEN -> ENDED            the peer: put_end() and sc_taker_report_slow(),      put: delegated_done (O2)
 *                             or get_end(), of taker.c                             get: its `ended`    (O3)
 *   WITHDRAWN -> DONE         this side: copy_some() of rescue.c,                  delegation.done
 *                             or do_directly(); the peer, once this side is dead
 *   any -> FAILED             this side: sc_delegate_end_peer(), for a peer that   none
 *                             is lost
 *
 * No field and no enum holds the state of an operation: its number, compared with these words, gives the state. Of the
 * private numbers, post_record() sets `ours` to `end`, withdraw_from() lowers it, and pass_done() raises it again.
 * No assertion depends on a half of the claim, because the peer can write both: each side compares its own half with
 * its own count, and an impossible one ends the connection.
 *
 *   O1 compare and swap of one word by both: each operation belongs to one side. A withdrawal takes back all that is
 *      not taken, so each side has a range of numbers: the peer [first, ours), this side [ours, end)
 *   O2 release, sc_taker_report_slow() in taker.c: bytes, error before delegated_done pairs with  O2' collect_puts()
 *   O3 release, get_end() in taker.c: answer before `ended`              pairs with  O3' collect_get()
 *   A1 release, give_back(): buffers read before the count that gives them back
 *                                                             pairs with  A1' may_answer() in taker.c
 *
 * The answer of a get lies in its record, in the peer's ring: the bytes, or the numbers of the peer's own bounce
 * buffers that hold them. So the peer needs only its own segment, and no link to this side. This side does not reuse
 * the lines (sc_ring_tx.held) before the operation has ended, even if the peer has read them. The buffers return to the
 * peer by the count of answers that are read.
 *
 * Order: the peer takes operations in the order of its ring. All withdrawn operations are younger than all taken ones.
 * This side copies them in order after the taken ones have ended, and delegates new ones after that. If one becomes a
 * request, those behind it do as well, and this side delegates none before they have ended.
 *
 * If a peer has not taken an operation, this side sends the next ones directly, more of them each time, so a peer that
 * never polls costs almost nothing. A peer that has not accepted the connection yet has never polled.
 *
 * This side checks every word that the peer writes against its operations: an impossible value ends the connection.
 * This side knows the length of an answer and the place of its bytes itself.
 *
 * Death. If the peer dies or closes, this side withdraws operations that are not taken, and their copy reports the
 * death. An operation that the peer has ended is done, like a published record, whether this side sees the answer or
 * the peer's end first (sc_delegate_end_peer()). One that is taken and not ended fails with the peer, once its life
 * lock is free, done or not, and this side reads none of its bytes. If the peer is stopped in between, this side waits:
 * the peer is alive and will write. If this process dies before the commit, nothing was delegated. After the commit the
 * peer may take what is not withdrawn, as its ring holds all that it needs. When it sees the death, it does the puts that
 * are withdrawn and not done (rescue.c), and takes answer buffers back. No process waits for either. An endpoint that
 * closes first withdraws its operations and does them; if the peer has one in hand, the peer does the others. Notes and
 * requests that find no space in the ring go into a buffer then; without a free buffer they are lost.
 *
 * For the peer a put is done that has become a request, or whose note waits for space. If this process dies then, the
 * request is lost, or the peer's application does not hear of the put.
 */
#include "rma/delegate.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include "rma/direct.h"
#include "rma/request.h"
#include "base/fault.h"
#include "base/iov.h"
#include "link/peer.h"
#include "link/record.h"
#include "link/route.h"
#include "rma/delegated.h"

/* Bytes that a record itself holds; more go through buffers. Figures: docs/MEASUREMENTS.md. */
#define PUT_INLINE_MAX SC_ROUTE_RECORD
#define GET_INLINE_MAX 104
/*
 * Polls without news for each open operation before all are withdrawn: about a microsecond, as long as this process needs
 * to copy one. So the wait costs at most what it could have saved.
 */
#define WITHDRAW_POLLS 100
/* Operations that go directly before an absent peer is asked again. */
#define PAUSE_MAX 255
#define ERRNO_MAX 4095

static void learn(struct sc_peer *peer, bool alone)
{
	uint32_t more = 2 * peer->delegate.alone + 1;

	peer->delegate.alone = !alone ? 0 : more < PAUSE_MAX ? more : PAUSE_MAX;
	peer->delegate.pause = peer->delegate.alone;
}

/* ---- the record ------------------------------------------------------------------------------ */

/* Tells whether there are buffers. Half of them stay free for others, as an absent peer keeps those lent to it. */
static bool has_buffers(struct sc_peer *peer, size_t size)
{
	const struct sc_ep *ep = peer->ep;

	return sc_record_may_lend(peer, sc_record_bufs(ep, size), ep->pool.count / 2);
}

struct record {
	const struct sc_rma *rma;
	uint32_t size; /* bytes */
	bool put;
	int heard; /* sc_delegate_is_heard() */
	/* record_measure(): */
	bool bounced;
	uint32_t lines;
	/* record_bounce(): */
	bool returned;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
};

static void record_measure(struct record *record)
{
	uint32_t first = record->put ? SC_ABI_DELEGATE_PUT_FIRST : SC_ABI_DELEGATE_GET_FIRST;

	record->bounced = record->size > (record->put ? PUT_INLINE_MAX : GET_INLINE_MAX);
	record->lines = record->bounced ? 1 : sc_lines_count(first, record->size);
}

/*
 * Copies the payload of a put into buffers: into one of the peer that is held, or into ours, of which one may come back
 * (hold.h). Returns the flags of the record.
 */
static uint32_t record_bounce(struct sc_peer *peer, struct record *record)
{
	struct sc_iov_walk payload = { record->rma->iov, record->rma->iov_count, 0, record->size };
	uint32_t buffers = sc_record_bufs(peer->ep, record->size);
	bool returnable;

	memset(record->bufs, 0, sizeof(record->bufs));
	sc_fill_choose(&peer->bounce.fill,
		       sc_burst_is_stream(&peer->rma.burst) ? SC_FILL_STREAM : SC_FILL_ALONE);
	record->returned = sc_hold_fits(peer, record->size, 1);
	if (record->returned) {
		record->bufs[0] = *sc_hold_take(peer, 1);
		sc_hold_fill(peer, record->bufs[0], payload);
		return SC_ABI_F_BOUNCED | SC_ABI_F_RETURNED;
	}
	returnable = buffers == 1 && sc_record_may_return(peer, record->size, 1);
	sc_record_fill(peer, payload, record->bufs);
	return SC_ABI_F_BOUNCED | sc_record_return_flag(peer, record->bufs[0], returnable);
}

/*
 * The initiator writes the record. The payload of a put goes into its lines, or into buffers whose numbers are in the
 * record. The target answers a get in the lines of the record, or in buffers of its own.
 */
static inline __attribute__((always_inline)) void record_write(struct sc_peer *peer, struct record *record)
{
	const struct sc_rma *rma = record->rma;
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);
	struct sc_abi_delegate *words = (struct sc_abi_delegate *)line->bytes;
	uint32_t flags = record->bounced ? SC_ABI_F_BOUNCED : 0;
	uint8_t flat[PUT_INLINE_MAX];
	const void *bytes = flat;

	words->ended = 0;
	words->key = rma->remote[0].key;
	words->addr = rma->remote[0].addr;
	if (record->put) {
		words->data = rma->data;
		flags |= rma->flags & SC_SEND_DATA ? SC_ABI_F_DATA : 0;
	}
	if (record->put && record->bounced) {
		flags |= record_bounce(peer, record);
		memcpy(words->bufs, record->bufs, sizeof(words->bufs));
	} else if (record->put) {
		if (rma->iov_count == 1)
			bytes = rma->iov[0].iov_base;
		else
			sc_iov_read(rma->iov, rma->iov_count, flat, record->size);
		sc_lines_write(&peer->tx.at, line, SC_ABI_DELEGATE_PUT_FIRST, bytes, record->size);
	}
	(void)SC_FAULT("delegate.line");
	sc_ring_commit(&peer->tx,
		       sc_ring_ctl(record->put ? SC_ABI_DELEGATE_PUT : SC_ABI_DELEGATE_GET, flags,
				   record->lines, record->size),
		       record->lines);
}

/*
 * Keeps the lines from the oldest operation on from being written again, because they hold answers of gets and payloads
 * of puts; keeps the buffers of the puts, too.
 */
static void hold(struct sc_peer *peer)
{
	bool none = !sc_peer_has_delegated(peer);

	peer->tx.held = none ? UINT64_MAX : sc_delegated_oldest(peer)->at;
	if (none)
		sc_list_remove(&peer->work[SC_WORK_DELEGATED]);
}

/* ---- what the peer has done ------------------------------------------------------------------ */

/*
 * Returns how many operations, from the oldest one on, are before a number that the peer writes. 0: none is, or the
 * number is an old one. A result above the number of open operations shows an impossible number.
 */
static uint32_t passed(const struct sc_peer *peer, uint32_t number)
{
	uint32_t count = number - peer->delegate.first;

	return count <= 2 * SC_ABI_DELEGATED ? count : 0;
}

/* Ends the puts that the peer has ended, up to the next get. 1: there were some; 0: there were none; -EPROTO. */
static int collect_puts(struct sc_peer *peer)
{
	struct sc_peer_delegate *delegate = &peer->delegate;
	const struct sc_abi_consumer *consumer = peer->tx.consumer;
	/* O2' acquire: pairs with O2 in sc_taker_report_slow() of taker.c */
	uint32_t done = sc_load_acquire_32(&consumer->delegated_done), count = passed(peer, done);

	if (!count)
		return 0; /* the last put that the peer has ended is older than this one */
	if (count > delegate->ours - delegate->first)
		return -EPROTO;
	for (; delegate->first != done && !sc_delegated_is_get(peer); delegate->first++)
		/* relaxed: ordered by O2' */
		sc_delegated_end(peer,
				 -sc_load_relaxed_8(
					 &consumer->delegated_errors[delegate->first % SC_ABI_DELEGATED]));
	return 1;
}

/* Returns the lines of the ring; after the end of the link, tx does not name them. */
static struct sc_abi_line *lines_of(const struct sc_peer *peer)
{
	return sc_seg_slot(peer->seg, peer->out_slot)->ring;
}

/* Copies the bytes of a get to their destination. -EPROTO. */
static int get_bytes(const struct sc_rma_op *op, struct sc_abi_line *line)
{
	const struct sc_abi_delegate *record = (const struct sc_abi_delegate *)line->bytes;
	const struct sc_peer *peer = op->peer;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
	uint8_t flat[GET_INLINE_MAX];
	uint32_t size = (uint32_t)op->size;

	if (size <= GET_INLINE_MAX) {
		struct sc_ring_place ring = peer->tx.at;

		ring.lines = lines_of(peer);
		sc_lines_read(&ring, line, SC_ABI_DELEGATE_GET_FIRST, flat, size);
		sc_iov_write(op->iov, op->iov_count, 0, flat, size);
		return 0;
	}
	memcpy(bufs, record->bufs, sizeof(bufs));
	if (!sc_seg_has_bufs(peer->seg, bufs, size))
		return -EPROTO;
	sc_record_copy(peer->seg, bufs, op->iov, op->iov_count, size);
	return 0;
}

/* Gives the buffers of the answer back to the peer. */
static void give_back(struct sc_peer *peer)
{
	/* A1 release: bytes read before; pairs with A1' in may_answer() of taker.c */
	sc_store_release_64(&sc_seg_slot(peer->seg, peer->out_slot)->answers.read,
			    ++peer->delegate.answers_read);
	(void)SC_FAULT("delegate.read");
}

/* Ends the oldest operation, a get, if the peer has ended it; its bytes are then at their destination. As collect_puts(). */
static int collect_get(struct sc_peer *peer)
{
	const struct sc_rma_op *op = sc_delegated_oldest(peer)->op;
	struct sc_abi_line *line = lines_of(peer) + SC_RESCUE_LINE(sc_delegated_kept(peer)->place);
	/* O3' acquire: pairs with O3 in get_end() of taker.c */
	uint64_t ended = sc_load_acquire_64(&line->words[0]);

	if (!ended)
		return 0;
	if (ended > 1 + ERRNO_MAX || (ended == 1 && get_bytes(op, line)))
		return -EPROTO;
	if (op->size > GET_INLINE_MAX)
		give_back(peer);
	sc_delegated_end(peer, 1 - (int)ended);
	peer->delegate.first++;
	return 1;
}

/* Ends all that the peer has ended. Returns their number; -EPROTO. */
static int collect_here(struct sc_peer *peer)
{
	uint32_t before = peer->delegate.first, count;
	int ret = 1;

	while (ret > 0 && peer->delegate.first != peer->delegate.ours)
		ret = sc_delegated_is_get(peer) ? collect_get(peer) : collect_puts(peer);
	count = peer->delegate.first - before;
	peer->ep->counters.rma_delegated_taken += count;
	return ret < 0 ? ret : (int)count;
}

/* Does the same for a peer that is not lost. */
static int collect(struct sc_peer *peer)
{
	int ended = collect_here(peer);

	if (ended < 0) {
		sc_peer_quarantine(peer, ended, "it has ended an operation that we have not delegated");
		return ended;
	}
	if (!ended)
		return 0;
	hold(peer);
	learn(peer, false);
	peer->delegate.polls = 0;
	return ended;
}

int sc_delegate_is_counted(struct sc_peer *peer, uint64_t key)
{
	const struct sc_regtab_view table = sc_seg_table(peer->seg);

	return sc_regtab_counts(&table, key);
}

bool sc_delegate_has_open(struct sc_peer *peer)
{
	return collect(peer) >= 0 && sc_peer_has_delegated(peer);
}

/* ---- post ------------------------------------------------------------------------------------ */

/* Tells whether the daemon's thread has withdrawn operations, which this thread has not taken over. */
static bool is_rescued(const struct sc_peer *peer)
{
	return sc_rescue_has_begun(peer->delegate.rescue);
}

/* Tells whether the daemon's thread never does the operation: a get, or a put of which the target's application hears. */
static inline bool is_unrescuable(const struct sc_peer *peer, const struct record *record)
{
	return !record->put || record->heard || !peer->delegate.injects;
}

/* Tells the daemon's thread of the operation whose record has been written, from line `line` of the ring on. */
static inline __attribute__((always_inline)) void tell(struct sc_peer *peer, const struct record *record,
						       uint32_t line)
{
	struct sc_peer_delegate *delegate = &peer->delegate;
	struct sc_rescue *rescue = delegate->rescue;
	bool injected = record->put && record->rma->flags & SC_SEND_INJECT;
	bool unrescuable = is_unrescuable(peer, record);

	sc_rescue_keep(rescue, delegate->end,
		       SC_RESCUE_PLACE(line, peer->tx.at.count) | (unrescuable ? SC_RESCUE_NOT : 0),
		       record->rma->remote);
	if (record->put && record->bounced)
		sc_rescue_keep_bufs(rescue, delegate->end, record->bufs, record->returned);
	if (unrescuable)
		delegate->unrescuable = delegate->end + 1;
	else
		delegate->rescuable = delegate->end + 1;
	if (!injected)
		delegate->awaited = delegate->end + 1;
	sc_rescue_show(rescue, delegate->first, delegate->end, injected && !unrescuable);
}

/* Writes the record, which has its space, and keeps the operation; `op`: see struct sc_delegated. */
static inline __attribute__((always_inline)) void post_record(struct sc_peer *peer, struct record *record,
							      struct sc_rma_op *op)
{
	uint32_t line = (uint32_t)(sc_ring_reserve(&peer->tx) - peer->tx.at.lines);
	struct sc_peer_delegate *delegate = &peer->delegate;
	bool first = !sc_peer_has_delegated(peer);

	sc_delegated_keep(peer, record->rma, op);
	record_write(peer, record);
	tell(peer, record, line);
	delegate->ours = ++delegate->end;
	peer->rma.pending++;
	peer->ep->counters.rma_delegated++;
	if (first) {
		sc_peer_begin(peer, SC_WORK_DELEGATED);
		delegate->polls = 0;
		hold(peer);
	} else if (!record->bounced) {
		/* others are open, so more are likely to follow: as send_two_lines() of tx.c */
		sc_ring_fetch_to_write(&peer->tx, 3 * record->lines, record->lines);
	}
}

/* Tells whether there is space for the record and its buffers. False: not now, or the peer has been given up. */
static bool has_space(struct sc_peer *peer, const struct record *record)
{
	return (peer->delegate.end - peer->delegate.first != SC_ABI_DELEGATED || collect(peer) > 0) &&
	       !sc_record_room(peer, record->lines) &&
	       (!record->put || !record->bounced || has_buffers(peer, record->size)) &&
	       !sc_ring_overflows(&peer->tx); /* the search for space may overflow it */
}

int sc_delegate_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	struct sc_rma_op *op = NULL;
	struct record record;

	record.rma = rma;
	record.size = (uint32_t)size;
	record.put = rma->flags & SC_RMA_WRITE;
	record.heard = sc_delegate_is_heard(peer, rma);
	if (record.put && rma->flags & SC_SEND_INJECT && !sc_delegate_may_inject(peer, record.heard))
		return 1;
	if (peer->delegate.pause) {
		peer->delegate.pause--;
		return 1;
	}
	if (!sc_delegated_begin(peer) || is_rescued(peer))
		return 1;
	record_measure(&record);
	if (!has_space(peer, &record)) {
		if (peer->link == SC_LINK_DOWN)
			return peer->error; /* the search for space has shown that it is lost */
		return sc_peer_has_delegated(peer) ? -EAGAIN : 1;
	}
	if (sc_delegated_needs_op(rma)) {
		op = sc_rmaop_get(peer, record.put ? SC_RMA_PUT : SC_RMA_GET, rma);
		if (!op)
			return -EAGAIN;
	}
	post_record(peer, &record, op);
	return 0;
}

bool sc_delegate_short(struct sc_peer *peer, const struct sc_rma *rma)
{
	const struct sc_peer_delegate *delegate = &peer->delegate;
	struct record record;

	record.rma = rma;
	record.size = (uint32_t)rma->remote[0].len;
	record.put = true;
	record.bounced = false;
	record.lines = sc_lines_count(SC_ABI_DELEGATE_PUT_FIRST, record.size);
	/* a ring that has overflowed shows no room */
	if (!delegate->plain || delegate->pause || is_rescued(peer) || delegate->ours != delegate->end ||
	    delegate->end - delegate->first == SC_ABI_DELEGATED ||
	    peer->rma.pending != delegate->end - delegate->first || peer->order.fence ||
	    peer->can_read != SC_REACH_YES || !sc_ring_has_room(&peer->tx, record.lines))
		return false;
	record.heard = sc_delegate_is_heard(peer, rma);
	if (rma->flags & SC_SEND_INJECT &&
	    !(delegate->injects && sc_delegate_is_clear(peer, record.heard)))
		return false;
	post_record(peer, &record, NULL);
	return true;
}

/* ---- withdraw -------------------------------------------------------------------------------- */

static int disbelieve(struct sc_peer *peer)
{
	sc_peer_quarantine(peer, -EPROTO, "it has taken puts that we have not delegated");
	return -EPROTO;
}

/*
 * DELEGATED to WITHDRAWN: operations from number `from` on, which the caller has checked. No other function of this
 * thread writes the claim. False: it is no longer `claim`.
 */
static bool withdraw_from(struct sc_peer *peer, uint64_t claim, uint32_t from)
{
	struct sc_peer_delegate *delegate = &peer->delegate;
	uint64_t *word = &sc_seg_slot(peer->seg, peer->out_slot)->delegation.claim;

	assert(delegate->ours == delegate->end &&
	       from - delegate->first <= delegate->end - delegate->first);
	if (!sc_cas_acq_rel_64(word, claim, (uint64_t)delegate->end << 32 | (uint32_t)claim)) /* O1 */
		return false;
	delegate->withdrawn = delegate->end;
	delegate->ours = from;
	learn(peer, true);
	/* a record that is withdrawn does not tell how far this side has read */
	if (sc_peer_is_heard(peer))
		sc_peer_publish(peer);
	return true;
}

/* Takes over what the daemon's thread has withdrawn. The peer changes the claim no more: it finds all withdrawn. */
static int take_over(struct sc_peer *peer)
{
	const struct sc_rescue *rescue = peer->delegate.rescue;
	uint32_t from = rescue->from, taken = from - peer->delegate.first;
	uint64_t claim = sc_load_relaxed_64(&sc_seg_slot(peer->seg, peer->out_slot)->delegation.claim);

	if (taken > peer->delegate.end - peer->delegate.first || claim >> 32 != rescue->withdrawn ||
	    !withdraw_from(peer, claim, from))
		return disbelieve(peer);
	peer->delegate.rescued = rescue->done - from;
	(void)SC_FAULT("delegate.taken_over");
	return 0;
}

/* A try fails only if the peer has taken more, so the number of tries is limited. */
static int withdraw_here(struct sc_peer *peer)
{
	const uint64_t *word = &sc_seg_slot(peer->seg, peer->out_slot)->delegation.claim;
	uint32_t most = peer->delegate.end - peer->delegate.first;

	for (uint32_t tries = 0; tries <= SC_ABI_DELEGATED; tries++) {
		uint64_t claim = sc_load_relaxed_64(word); /* the CAS orders reads of the operations */
		uint32_t taken = passed(peer, (uint32_t)claim);

		if (claim >> 32 != peer->delegate.withdrawn || taken > most)
			break;
		if (taken == most)
			return 0;
		if (!withdraw_from(peer, claim, peer->delegate.first + taken))
			continue;
		(void)SC_FAULT("delegate.withdrawn");
		return 0;
	}
	return disbelieve(peer);
}

/* Withdraws all that the peer has not taken, unless the daemon's thread has. -EAGAIN: that thread copies now. */
static int withdraw(struct sc_peer *peer)
{
	struct sc_rescue *rescue = peer->delegate.rescue;
	int ret = sc_rescue_take(rescue);

	if (ret < 0)
		return ret;
	ret = ret ? take_over(peer) : withdraw_here(peer);
	sc_rescue_release(rescue);
	return ret;
}

/* WITHDRAWN to DONE: the oldest operation. */
static void pass_done(struct sc_peer *peer)
{
	assert(sc_peer_has_withdrawn(peer));
	peer->delegate.ours = ++peer->delegate.first;
}

/* Ends the oldest operation, which the daemon's thread has done. */
static void end_rescued(struct sc_peer *peer)
{
	int error = peer->delegate.rescue->errors[peer->delegate.first % SC_ABI_DELEGATED];

	peer->delegate.rescued--;
	peer->ep->counters.rma_rescued++;
	sc_delegated_end(peer, -error);
	pass_done(peer);
}

/* Ends the oldest operation, which is withdrawn: does it, unless it is done. -EAGAIN: not now. */
static int do_directly(struct sc_peer *peer)
{
	struct sc_rma_op *op;
	int ret;

	if (peer->delegate.rescued) {
		end_rescued(peer);
	} else {
		op = sc_delegated_op(peer);
		ret = op ? sc_direct_try(op) : -EAGAIN;
		if (ret < 0)
			return ret;
		pass_done(peer);
		if (peer->link == SC_LINK_UP)
			sc_rescue_tell_done(peer->delegate.rescue, peer->delegate.first);
		if (ret) /* after that: if this process dies in between, the put is lost, and never done twice */
			sc_request_queue(op);
	}
	hold(peer);
	return 0;
}

int sc_delegate_settle_slow(struct sc_peer *peer)
{
	int ret = 0;

	if (peer->delegate.ours == peer->delegate.end)
		ret = withdraw(peer);
	if (!ret)
		ret = collect(peer);
	while (ret >= 0 && sc_peer_has_delegated(peer)) {
		if (peer->delegate.first != peer->delegate.ours)
			return -EAGAIN; /* the peer has taken some */
		ret = do_directly(peer);
		if (ret)
			return ret;
		if (peer->link == SC_LINK_DOWN)
			return peer->error;
	}
	return ret < 0 ? ret : 0;
}

void sc_delegate_end_peer(struct sc_peer *peer, int error)
{
	struct sc_peer_delegate *delegate = &peer->delegate;

	/* a peer that has broken the rules is not believed */
	if (sc_peer_has_delegated(peer) && peer->error == -ECONNRESET && peer->seg) {
		if (delegate->ours == delegate->end && is_rescued(peer))
			(void)withdraw(peer);
		(void)collect_here(peer);
		while (delegate->first == delegate->ours && delegate->rescued)
			end_rescued(peer);
	}
	/* the peer does not do what has failed here, even if this process dies next */
	if (sc_peer_has_delegated(peer) && peer->seg && peer->out_slot != SC_PEER_NO_SLOT)
		sc_rescue_tell_done(delegate->rescue, delegate->end);
	for (; sc_peer_has_delegated(peer); delegate->first++)
		sc_delegated_end(peer, error);
	delegate->ours = delegate->end;
	sc_list_remove(&peer->work[SC_WORK_DELEGATED]);
}

/* ---- progress -------------------------------------------------------------------------------- */

/*
 * Tells whether injected puts with remote data stay in the ring although the peer does not come to them: there is no
 * space for the notes that a withdrawal needs, and nobody waits for the puts. The peer's application must poll to hear
 * of them, and the peer takes them then.
 */
static bool stay(struct sc_peer *peer)
{
	return peer->delegate.ours == peer->delegate.end &&
	       sc_delegate_is_open(peer, peer->delegate.unrescuable) &&
	       !sc_delegate_is_open(peer, peer->delegate.awaited) &&
	       sc_record_room(peer, SC_ABI_DELEGATED);
}

int sc_delegate_progress(struct sc_peer *peer)
{
	uint32_t before = peer->rma.pending;

	if (peer->link == SC_LINK_DOWN)
		return 0;
	if (collect(peer) < 0)
		return 1;
	if (sc_peer_has_delegated(peer) && peer->delegate.ours == peer->delegate.end &&
	    peer->delegate.polls < WITHDRAW_POLLS * (peer->delegate.end - peer->delegate.first) &&
	    !is_rescued(peer)) {
		peer->delegate.polls++;
		return 1; /* this look counts as a step */
	}
	peer->delegate.polls = 0;
	if (stay(peer))
		return 0;
	(void)sc_delegate_settle(peer);
	return (int)(before - peer->rma.pending);
}

void sc_delegate_fini(struct sc_ep *ep)
{
	if (!sc_seg_is_here(ep->seg))
		return; /* a forked child: the operations are its parent's */
	sc_list_for_safe (entry, next, &ep->work[SC_WORK_DELEGATED]) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, work[SC_WORK_DELEGATED]);

		sc_rescue_quit(peer->delegate.rescue);
		if (peer->link == SC_LINK_UP)
			(void)sc_delegate_settle_slow(peer);
	}
}
