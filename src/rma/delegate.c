/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * delegate.c: small puts and gets that either side may do, the side that posts them.
 *
 * To touch another process's memory is two system calls and the pinning of its pages; a peer that polls takes
 * a record from its ring and copies by itself, sooner and while this side goes on. But it may be computing,
 * and no process may wait for it. So such an operation is offered: its record lies in the peer's ring, and the peer may
 * take it until this side withdraws it, which it does when the peer has not come to it after some polls (LOOKS), or
 * when something else is to go to that peer another way. This side copies withdrawn offers (direct.c), and the peer
 * passes over their records.
 *
 *   of this side's choice         of the peer's                      the word that says so
 *   OFFERED                                                          claim: not below either half
 *      |  \---------------------> TAKEN                              claim, low half     (O1)
 *      |                             \--> ENDED, well or badly       put: offers_done    (O2)
 *      |                                                             get: its `ended`    (O3)
 *      \--> WITHDRAWN --> done directly                              claim, high half    (O1)
 *
 *   O1 compare and swap of one word by both: each offer is one side's. A withdrawal takes back all that is
 *      not taken, so what a side has is a stretch of numbers: the peer's [first, ours), this side's
 *      [ours, end)
 *   O2 release, offers_tell() in target.c: bytes, error before offers_done      pairs with  O2' put_ended()
 *   O3 release, offer_get_end() in target.c: answer before `ended`              pairs with  O3' get_ended()
 *   A1 release, give_back(): buffers read before the count that gives them back
 *                                                             pairs with  A1' may_answer() in target.c
 *
 * The answer of a get lies in its record, in the peer's ring: the bytes, or which of its own bounce buffers
 * they are in. So the peer needs nothing but its own segment, and no link to this side. The lines are held
 * (sc_ring_tx.held) until the operation is over, though the peer has read them; the buffers are the peer's
 * again when the count of answers that have been read says so.
 *
 * Order: the peer takes them in the order of its ring. Those withdrawn are all younger than those taken, and
 * are copied, in order, when the taken ones have ended. New ones are made when that is over.
 *
 * A peer that has not taken an offer is spared some operations, more each time, which go directly: so a peer
 * that never polls costs next to nothing. One that has not accepted our connection yet has never polled.
 *
 * This side checks every word that the peer writes against its offers: an impossible value ends the connection. The
 * length of an answer, and the place of its bytes, are this side's own knowledge.
 *
 * Death. If the peer dies, or closes, offers that it has not taken are withdrawn, and the copy says that it is dead; an
 * offer that it has ended is done, like a record that it has written, no matter whether this side first sees the answer
 * or the peer's end (sc_delegate_end_peer()); an offer that it has taken and not ended ends with it, once its life lock
 * is free, and this side looks at none of its bytes. If the peer is stopped in between, this side waits: the peer is
 * alive and will write. If this process dies: before the commit nothing was offered; after it the peer may take offers
 * that are not withdrawn, as all that it needs is in its ring; an offer that is withdrawn and not copied is not done;
 * buffers of an answer are the peer's again when it sees that this side has gone. No process waits for either. An
 * endpoint that closes withdraws its offers first, and does them.
 */
#include "rma/delegate.h"

#include <errno.h>
#include <string.h>
#include "proc/calibration.h"
#include "rma/direct.h"
#include "base/fault.h"
#include "base/iov.h"
#include "link/peer.h"
#include "link/record.h"
#include "rma/request.h"
#include "rma/rmaop.h"

/*
 * Bytes that are offered, and of those, in the record itself. Measured by test/bench/fabric_bench on a
 * 2-processor Zen 5 virtual machine, trusted, the peer polls; one at a time in microseconds, windows of 64
 * in million a second:
 *
 *                 8 B           1 KiB         4 KiB         16 KiB        32 KiB        64 KiB
 *   direct     2.0   0.45    2.0   0.51    2.0   0.49    2.7   0.37    3.7   0.27    5.9   0.17
 *   offered    0.62  17      0.64  12      0.68  8.2     1.8   0.75    3.0   0.30
 *
 * Gets, another day, direct and offered; windows in MB/s:
 *
 *                 8 B           1 KiB         4 KiB         16 KiB        32 KiB        64 KiB
 *   direct     1.9   4.3     1.9   540     1.9   2200    2.7   6300    3.9   8700    5.8   11300
 *   offered    0.54  149     0.53  15100   0.74  12900   2.0   15000   3.6   9000    7.0   11000
 *   far apart  0.96  44                    1.6   7700    3.6   10300
 *
 * When the caches of the two are far apart, which is the host's to say, it is 1.0 for 8 B. In the record or
 * in buffers, windows: 128 B 17 and 12, 256 B 15 and 13, 368 B 12 and 10. A peer that computes: 2.0 either
 * way.
 *
 * On another such machine, offered and direct, now that windows are copied together (batch.c): microseconds, and windows
 * in MB/s.
 *
 *              4 KiB        8 KiB        16 KiB       32 KiB
 *   put      2.9   2.5    3.8   2.9    5.2   3.4    8.4   3.9     apart
 *           6500  6200   3500 10800   5200 16000   6700 23000
 *   put                   2.5   2.9    2.9   3.3    4.3   4.2     within a last cache
 *                        4100 10000   7400 15000  11200 22000
 *   get      2.7   2.6    4.5   2.8    8.5   3.1                  apart
 *           6200  5700   7400 10700   5800 16200
 *   get                                6.1   3.3                  within a last cache
 *                                     5100 15000
 *
 * So of what is larger than OFFERED_ANYWHERE no get is offered, nor any of a stream, and a put if that is sooner for this
 * peer; behind small ones that it has not taken yet, each is.
 */
#define OFFERED_ANYWHERE 4096
#define PUT_MAX 32768
#define PUT_INLINE_MAX 256
#define GET_MAX 16384
#define GET_INLINE_MAX 104
/* The time that an offer takes besides its bytes, nanoseconds. */
#define OFFER_NS 600
/* Polls without news before offers are withdrawn: about a microsecond. */
#define LOOKS 100
/* Puts that are not offered before an absent peer is asked again. */
#define SPARED_MAX 255
#define ERRNO_MAX 4095

static struct sc_rma_op *oldest(const struct sc_peer *peer)
{
	return sc_list_entry(peer->offers.next, struct sc_rma_op, of_peer);
}

/* ---- offer ----------------------------------------------------------------------------------- */

static size_t put_max(const struct sc_peer *peer)
{
	size_t most = (size_t)SC_ABI_RECORD_BUFS << peer->ep->buf_shift;

	return PUT_MAX < most ? PUT_MAX : most;
}

/* The peer answers in half of its buffers at most. */
static size_t get_max(const struct sc_peer *peer)
{
	const struct sc_abi_header *header = &peer->seg->header;
	uint32_t half = header->buf_count / 2;
	size_t most = (size_t)(half < SC_ABI_RECORD_BUFS ? half : SC_ABI_RECORD_BUFS) * header->buf_size;

	return GET_MAX < most ? GET_MAX : most;
}

/*
 * An application that injects may never poll again. An offer behind records that wait for room would come too early;
 * answers that we owe the peer in its ring do not matter to it. An operation that cannot be done directly is not
 * offered: a get that waits in the ring for buffers must be one that can be withdrawn, or two sides that ask each other
 * wait for ever, each behind the other's.
 */
static bool is_suited(struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	bool put = rma->flags & SC_RMA_WRITE;

	return size <= (put ? put_max(peer) : get_max(peer)) && !(put && rma->flags & SC_SEND_INJECT) &&
	       rma->remote_count == 1 && !peer->seg->local && sc_direct_may(peer) && sc_peer_has_come(peer) &&
	       sc_list_empty(&peer->rma_queued) && sc_list_empty(&peer->batch) &&
	       sc_list_empty(&peer->assisted);
}

/*
 * Is it sooner copied from here than put into buffers and taken out of them? The cost of buffers is known when some
 * large ones have been filled for this peer; until then a put is offered, which fills some.
 */
static bool is_sooner_direct(struct sc_peer *peer, const struct sc_rma *rma, size_t size, bool stream)
{
	uint64_t write = peer->fill.write_cost, read = peer->fill.read_cost, direct;

	if (size <= OFFERED_ANYWHERE)
		return false;
	if (stream || !(rma->flags & SC_RMA_WRITE))
		return true;
	direct = sc_calibration_cma_ns(size, rma->iov_count, 1);
	return read && direct && direct < size * (write + read) / 1000 + OFFER_NS &&
	       !sc_fill_has_trial(&peer->fill);
}

static bool is_spared(struct sc_peer *peer)
{
	if (!peer->offers_spared)
		return false;
	peer->offers_spared--;
	return true;
}

static void learn(struct sc_peer *peer, bool alone)
{
	uint32_t more = 2 * peer->offers_alone + 1;

	peer->offers_alone = !alone ? 0 : more < SPARED_MAX ? more : SPARED_MAX;
	peer->offers_spared = peer->offers_alone;
}

/* For a get, room is all: its bytes come in buffers of the peer's. */
static bool get_has_room(struct sc_peer *peer, size_t size)
{
	return !sc_record_room(
		peer, size <= GET_INLINE_MAX ? sc_lines_count(SC_ABI_GET_FIRST, (uint32_t)size) : 1);
}

/* Half of the buffers are left to others: those of a peer that does not come to its ring stay lent. */
static bool put_has_room(struct sc_peer *peer, size_t size)
{
	const struct sc_ep *ep = peer->ep;
	uint32_t buffers = (uint32_t)((size + ep->config.buf_size - 1) >> ep->buf_shift);

	if (size <= PUT_INLINE_MAX)
		return !sc_record_room(peer, sc_lines_count(SC_ABI_OFFER_FIRST, (uint32_t)size));
	return !sc_record_room(peer, 1) && sc_record_may_lend(peer, buffers, ep->pool.count / 2);
}

static void put_write(const struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);
	struct sc_abi_offer *record = (struct sc_abi_offer *)line->bytes;
	enum sc_abi_kind kind = op->size <= PUT_INLINE_MAX ? SC_ABI_OFFER : SC_ABI_OFFER_BOUNCE;
	uint32_t flags = op->flags & SC_SEND_DATA ? SC_ABI_F_DATA : 0;
	uint32_t size = (uint32_t)op->size, lines = 1;
	uint8_t flat[PUT_INLINE_MAX];

	record->key = op->remote[0].key;
	record->addr = op->remote[0].addr;
	record->data = op->data;
	if (kind == SC_ABI_OFFER) {
		lines = sc_lines_count(SC_ABI_OFFER_FIRST, size);
		sc_iov_read(op->iov, op->iov_count, 0, flat, size);
		sc_lines_write(&peer->tx.at, line, SC_ABI_OFFER_FIRST, flat, size);
	} else {
		sc_record_fill(peer, op->iov, op->iov_count, 0, size, record->bufs);
	}
	(void)SC_FAULT("delegate.line");
	sc_ring_commit(&peer->tx, sc_ring_ctl(kind, flags, lines, size), lines);
}

/* Its answer's lines are made ours: the ring's writer says which lap they are of. */
static void get_write(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);
	struct sc_abi_offer_get *record = (struct sc_abi_offer_get *)line->bytes;
	enum sc_abi_kind kind = op->size <= GET_INLINE_MAX ? SC_ABI_OFFER_GET : SC_ABI_OFFER_GET_BOUNCE;
	uint32_t size = (uint32_t)op->size;
	uint32_t lines = kind == SC_ABI_OFFER_GET ? sc_lines_count(SC_ABI_GET_FIRST, size) : 1;

	record->ended = 0;
	record->key = op->remote[0].key;
	record->addr = op->remote[0].addr;
	(void)SC_FAULT("delegate.get");
	sc_ring_commit(&peer->tx, sc_ring_ctl(kind, 0, lines, size), lines);
}

/* Lines of the oldest and of all behind it are not written again before it is over: its answer is there. */
static void hold(struct sc_peer *peer)
{
	bool none = sc_list_empty(&peer->offers);

	peer->tx.held = none ? UINT64_MAX : oldest(peer)->at;
}

/* ---- what the peer has done ------------------------------------------------------------------ */

/* 1: it has ended; 0: not yet; -EPROTO. */
static int put_ended(const struct sc_peer *peer, int *error)
{
	const struct sc_abi_consumer *consumer = peer->tx.consumer;
	/* O2' acquire: pairs with O2 in offers_tell() of target.c */
	uint32_t done = sc_load_acquire_32(&consumer->offers_done), count = done - peer->offers_first;

	if ((int32_t)count <= 0)
		return 0; /* the last that it did is followed by some that were withdrawn, or by gets */
	/* ordered by O2' */
	*error = sc_load_relaxed_8(&consumer->offer_errors[peer->offers_first % SC_ABI_OFFERS]);
	return count <= peer->offers_ours - peer->offers_first ? 1 : -EPROTO;
}

/* Those of the ring, of which tx says no more once the link has ended. */
static struct sc_abi_line *lines_of(const struct sc_peer *peer)
{
	return sc_seg_slot(peer->seg, peer->out_slot)->ring;
}

/* The bytes of a get, where they belong. -EPROTO. */
static int get_bytes(const struct sc_rma_op *op, struct sc_abi_line *line)
{
	const struct sc_abi_offer_get *record = (const struct sc_abi_offer_get *)line->bytes;
	const struct sc_peer *peer = op->peer;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
	uint8_t flat[GET_INLINE_MAX];
	uint32_t size = (uint32_t)op->size;

	if (size <= GET_INLINE_MAX) {
		struct sc_ring_place ring = peer->tx.at;

		ring.lines = lines_of(peer);
		sc_lines_read(&ring, line, SC_ABI_GET_FIRST, flat, size);
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
	/* A1 release: bytes read before; pairs with A1' in may_answer() of target.c */
	sc_store_release_64(&sc_seg_slot(peer->seg, peer->out_slot)->answers.read, ++peer->answers_read);
	(void)SC_FAULT("delegate.read");
}

/* As put_ended(); the bytes of one that went well are where they belong. */
static int get_ended(const struct sc_rma_op *op, int *error)
{
	struct sc_abi_line *line = lines_of(op->peer) + op->line;
	/* O3' acquire: pairs with O3 in offer_get_end() of target.c */
	uint64_t ended = sc_load_acquire_64(&line->words[0]);

	if (!ended)
		return 0;
	if (ended > 1 + ERRNO_MAX)
		return -EPROTO;
	*error = (int)ended - 1;
	if (!*error && get_bytes(op, line))
		return -EPROTO;
	if (op->size > GET_INLINE_MAX)
		give_back(op->peer);
	return 1;
}

/* The oldest, if it has ended: 1; 0: not yet; -EPROTO. */
static int collect_one(struct sc_peer *peer)
{
	struct sc_rma_op *op = oldest(peer);
	int error = 0, ret = op->kind == SC_RMA_PUT ? put_ended(peer, &error) : get_ended(op, &error);

	if (ret <= 0)
		return ret;
	peer->offers_first++;
	op->moved = error ? 0 : op->size;
	sc_rmaop_end(op, -error);
	peer->ep->counters.rma_offers_taken++;
	return 1;
}

/* Returns the offers that have ended; -EPROTO. */
static int collect(struct sc_peer *peer)
{
	uint32_t before = peer->offers_first;
	int ret = 1;

	while (ret > 0 && peer->offers_first != peer->offers_ours)
		ret = collect_one(peer);
	if (ret < 0) {
		sc_peer_quarantine(peer, ret, "an end of what it was not offered");
		return ret;
	}
	if (peer->offers_first == before)
		return 0;
	hold(peer);
	learn(peer, false);
	peer->offer_looks = 0;
	return (int)(peer->offers_first - before);
}

/* ---- post ------------------------------------------------------------------------------------ */

/*
 * Is all over that has been offered, so that another may be copied from here? -EAGAIN: not yet, and it would have to be
 * taken back from a peer that is about to take it, and done one by one; else what has become of the peer.
 */
static int make_way(struct sc_peer *peer)
{
	if (sc_list_empty(&peer->offers))
		return 0;
	if (collect(peer) < 0)
		return peer->error;
	if (!sc_list_empty(&peer->offers))
		return -EAGAIN;
	sc_list_remove(&peer->offering);
	return 0;
}

int sc_delegate_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size, bool stream)
{
	bool put = rma->flags & SC_RMA_WRITE, first;
	struct sc_rma_op *op;

	if (!is_suited(peer, rma, size) || peer->offers_ours != peer->offers_end || is_spared(peer))
		return -EOPNOTSUPP;
	if (is_sooner_direct(peer, rma, size, stream)) {
		int ret = make_way(peer);

		if (ret != -EAGAIN)
			return ret ? ret : -EOPNOTSUPP;
	}
	first = sc_list_empty(&peer->offers);
	if (peer->offers_end - peer->offers_first == SC_ABI_OFFERS ||
	    !(put ? put_has_room(peer, size) : get_has_room(peer, size)) || sc_ring_overflows(&peer->tx)) {
		if (peer->link == SC_LINK_DOWN)
			return peer->error; /* looking for room has shown what it is */
		return first ? -EOPNOTSUPP : -EAGAIN;
	}
	op = sc_rmaop_get(peer, put ? SC_RMA_PUT : SC_RMA_GET, rma);
	if (!op)
		return -EAGAIN;
	op->at = peer->tx.tail;
	op->line = (uint32_t)(sc_ring_reserve(&peer->tx) - peer->tx.at.lines);
	if (put)
		put_write(op);
	else
		get_write(op);
	peer->offers_ours = ++peer->offers_end;
	peer->rma_pending++;
	peer->ep->counters.rma_offers++;
	if (first) {
		sc_ep_begin(peer->ep, SC_WORK_OFFERING, &peer->offering);
		peer->offer_looks = 0;
	}
	sc_list_append(&peer->offers, &op->of_peer);
	if (first)
		hold(peer);
	return 0;
}

void sc_delegate_end_peer(struct sc_peer *peer)
{
	/* one that has broken the rules is not believed */
	if (peer->error != -ECONNRESET || !peer->seg)
		return;
	while (peer->offers_first != peer->offers_ours && collect_one(peer) > 0)
		;
}

/* ---- withdraw -------------------------------------------------------------------------------- */

/* A try that fails means that the peer has taken more: each must find that. */
static int withdraw(struct sc_peer *peer)
{
	uint64_t *word = &sc_seg_slot(peer->seg, peer->out_slot)->offers.claim;
	uint32_t most = peer->offers_end - peer->offers_first;

	for (uint32_t tries = 0; tries <= SC_ABI_OFFERS; tries++) {
		uint64_t claim = sc_load_relaxed_64(word); /* the CAS orders reads of the offers */
		uint32_t taken = (uint32_t)claim - peer->offers_first;

		if ((int32_t)taken < 0)
			taken = 0; /* the last that it took is followed by some that were withdrawn */
		if (claim >> 32 != peer->offers_withdrawn || taken > most)
			break;
		if (taken == most)
			return 0;
		if (!sc_cas_acq_rel_64(word, claim, (uint64_t)peer->offers_end << 32 | (uint32_t)claim))
			continue;
		(void)SC_FAULT("delegate.withdrawn");
		peer->offers_withdrawn = peer->offers_end;
		peer->offers_ours = peer->offers_first + taken;
		learn(peer, true);
		return 0;
	}
	sc_peer_quarantine(peer, -EPROTO, "puts taken that it was not offered");
	return -EPROTO;
}

/* The oldest, which is withdrawn. -EAGAIN: not now. */
static int do_directly(struct sc_peer *peer)
{
	int ret = sc_direct_do(oldest(peer));

	if (ret)
		return ret;
	peer->offers_ours = ++peer->offers_first;
	hold(peer);
	return 0;
}

int sc_delegate_settle_slow(struct sc_peer *peer)
{
	int ret = 0;

	if (peer->offers_ours == peer->offers_end)
		ret = withdraw(peer);
	if (!ret)
		ret = collect(peer);
	while (ret >= 0 && !sc_list_empty(&peer->offers)) {
		if (peer->offers_first != peer->offers_ours)
			return -EAGAIN; /* in the peer's hands */
		ret = do_directly(peer);
		if (ret)
			return ret;
		if (peer->link == SC_LINK_DOWN)
			return peer->error;
	}
	if (ret < 0)
		return ret;
	sc_list_remove(&peer->offering);
	return 0;
}

/* ---- progress -------------------------------------------------------------------------------- */

static int peer_progress(struct sc_peer *peer)
{
	uint32_t before = peer->rma_pending;

	if (peer->link == SC_LINK_DOWN)
		return 0;
	if (collect(peer) < 0)
		return 1;
	if (sc_list_empty(&peer->offers)) {
		sc_list_remove(&peer->offering);
	} else if (peer->offers_ours == peer->offers_end && peer->offer_looks < LOOKS) {
		peer->offer_looks++;
		return 1; /* this look is a step of it */
	} else {
		peer->offer_looks = 0;
		(void)sc_delegate_settle_slow(peer);
	}
	return (int)(before - peer->rma_pending);
}

int sc_delegate_progress(struct sc_ep *ep)
{
	int ended = 0;

	sc_list_for_safe (entry, next, &ep->work[SC_WORK_OFFERING])
		ended += peer_progress(sc_list_entry(entry, struct sc_peer, offering));
	return ended;
}

void sc_delegate_fini(struct sc_ep *ep)
{
	if (!sc_seg_is_here(ep->seg))
		return; /* a forked child: its parent's */
	sc_list_for_safe (entry, next, &ep->work[SC_WORK_OFFERING]) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, offering);

		if (peer->link == SC_LINK_UP)
			(void)sc_delegate_settle_slow(peer);
	}
}
