/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * taker.c: takes small puts and gets that a peer has delegated to this process, and does them, unless the peer has
 * withdrawn them before. delegate.c has the states and memory orders of both sides.
 *
 * The answer to a get lies in its record, or in bounce buffers of ours that the record then names. They are lent by the
 * number of the answer, and come back when the peer says that it has read so many answers, or has gone. If no buffers
 * are free, the record stays in the ring: the peer gives others back, or withdraws the get.
 *
 * A put that the peer has withdrawn stays in the lines of the ring, or in buffers of either side, until it is done.
 * So this process keeps where its record is, and does the put if the peer has gone before (sc_taker_inherit()). The peer
 * tells by delegation.done how far it has come, and by the number in a note that it has done that put.
 *
 * This process reports the puts that it has ended once for each look at the initiator's ring. If the peer dies,
 * operations that are taken are done, or done in part; no process reads the answer, and its buffers come back with the
 * end of the peer. If this process dies, operations that it has taken and not reported end with it, done or not.
 */
#include "rma/taker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/fault.h"
#include "link/hold.h"
#include "link/peer.h"
#include "link/record.h"
#include "rma/access.h"

/* Bytes in the lines of a put, and of a get. */
#define PUT_MAX (SC_ABI_DELEGATE_PUT_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)
#define GET_MAX (SC_ABI_DELEGATE_GET_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)

/*
 * Any number of withdrawn operations may be unread. 2^31 operations after the last withdrawal the next ones look
 * withdrawn; the initiator then withdraws them, and does them.
 */
static bool is_withdrawn(uint64_t claim, uint32_t number)
{
	return (int32_t)((uint32_t)(claim >> 32) - number) > 0;
}

/* Claims the next delegated operation. 1: we do it; 0: it is withdrawn, and still the next; -EPROTO with *why. */
static int claim_next(struct sc_peer *peer, const char **why)
{
	uint64_t *word = &sc_seg_slot(peer->ep->seg, peer->in_slot)->delegation.claim;
	uint32_t number = peer->taker.seen;

	/* if the word changes between the two tries, the second one finds the operation withdrawn */
	for (int tries = 0; tries < 2; tries++) {
		uint64_t claim = sc_load_relaxed_64(word); /* the record was read by R1' of ring.h */
		uint64_t withdrawn = claim >> 32;

		if ((uint32_t)claim != peer->taker.taken)
			break;
		if (is_withdrawn(claim, number))
			return 0;
		/* O1 */
		if (sc_cas_acq_rel_64(word, claim, withdrawn << 32 | (number + 1))) {
			peer->taker.taken = ++peer->taker.seen;
			return 1;
		}
	}
	*why = "an impossible claim of its delegated operations";
	return -EPROTO;
}

/*
 * The initiator takes the number that is reported as the nearest one, in the past or the future. Any number of gets may
 * come between two puts, so this process reports the number after so many gets, too.
 */
#define UNREPORTED_MAX (1u << 30)

static __attribute__((noinline)) void put_error(struct sc_peer *peer, uint32_t place, int error)
{
	/* relaxed: O2 orders it */
	sc_store_relaxed_8(&peer->rx.consumer->delegated_errors[place], (uint8_t)-error);
	(void)SC_FAULT("taker.error");
	peer->taker.failed &= ~(1u << place);
	peer->taker.failed |= (uint32_t)(error != 0) << place;
}

/*
 * Ends the put that was taken last. The initiator polls the line of both words, so each access to it moves the line from
 * one processor to the other and back. Hence the number is stored once for all puts of a look at the ring, and the
 * result of a put only if it, or the one in its place, is an error.
 */
static void put_end(struct sc_peer *peer, int error)
{
	uint32_t place = (peer->taker.taken - 1) % SC_ABI_DELEGATED;

	if (__builtin_expect(error || peer->taker.failed >> place & 1, 0))
		put_error(peer, place, error);
	peer->taker.unreported = true;
}

void sc_taker_report_slow(struct sc_peer *peer)
{
	peer->taker.unreported = false;
	peer->taker.reported = peer->taker.taken;
	/* O2 release: pairs with O2' in collect_puts() of delegate.c */
	sc_store_release_32(&peer->rx.consumer->delegated_done, peer->taker.reported);
	(void)SC_FAULT("taker.delegated_reported");
	sc_peer_wake(peer, SC_ABI_SLEEP_ASLEEP);
}

/* A function of its own for test/tsan.supp: the application may use the memory at the same time. */
static inline void lines_to_page(const struct sc_ring_place *at, void *to, uint32_t size)
{
	sc_lines_read(at, at->next, SC_ABI_DELEGATE_PUT_FIRST, to, size);
}

/* Copies the payload from the lines of the record, which the caller has checked: in one step if it can. */
static int copy_lines(struct sc_peer *peer, const struct sc_ring_place *at, const struct sc_access *access)
{
	void *to = sc_access_known(peer->ep, access);
	uint8_t bytes[PUT_MAX];

	if (to) {
		lines_to_page(at, to, (uint32_t)access->len);
		return 0;
	}
	sc_lines_read(at, at->next, SC_ABI_DELEGATE_PUT_FIRST, bytes, (uint32_t)access->len);
	return sc_access_copy(peer->ep, access, &(struct iovec){ bytes, access->len }, 1);
}

/* Copies the payload from buffers of that segment, which the caller has checked. */
static int copy_buffers(struct sc_ep *ep, const struct sc_access *access, const struct sc_seg *seg,
			const uint16_t bufs[SC_ABI_RECORD_BUFS])
{
	struct iovec iov[SC_ABI_RECORD_BUFS];
	size_t count = sc_seg_bufs(seg, bufs, (uint32_t)access->len, iov);

	return sc_access_copy(ep, access, iov, count);
}

/*
 * Returns the segment with the buffers of a put: the peer's, or ours if the peer returns one of them (hold.h). NULL, with
 * *why: the peer may not name them.
 */
static struct sc_seg *buffers_of(struct sc_peer *peer, uint64_t ctl,
				 const uint16_t bufs[SC_ABI_RECORD_BUFS], const char **why)
{
	uint32_t size = sc_ctl_size(ctl);

	if (sc_ctl_flags(ctl) & SC_ABI_F_RETURNED) {
		*why = "a put in a buffer that it has not been lent for that";
		return size <= peer->ep->config.buf_size && sc_hold_comes_back(peer, bufs[0])
			       ? peer->ep->seg
			       : NULL;
	}
	*why = "bounce buffers that do not exist";
	return sc_seg_has_bufs(peer->seg, bufs, size) ? peer->seg : NULL;
}

static inline const struct sc_abi_delegate *record_at(const struct sc_ring_place *at)
{
	return (const void *)at->next->bytes;
}

/*
 * Does the put of the record at `at`, if a registration allows it. -EPROTO with *why; another negative errno: for the
 * initiator. Always inline: a call costs a twentieth of the instructions of a small put.
 */
static inline __attribute__((always_inline)) int put_do(struct sc_peer *peer,
							const struct sc_ring_place *at, uint64_t ctl,
							struct sc_access *access, const char **why)
{
	const struct sc_abi_delegate *record = record_at(at);
	bool bounced = sc_ctl_flags(ctl) & SC_ABI_F_BOUNCED;
	uint32_t size = sc_ctl_size(ctl);
	uint16_t bufs[SC_ABI_RECORD_BUFS];
	struct sc_seg *seg = NULL;
	int ret;

	if (bounced) {
		memcpy(bufs, record->bufs, sizeof(bufs));
		seg = buffers_of(peer, ctl, bufs, why);
		if (!seg)
			return -EPROTO;
	} else {
		*why = "a put of another size than its record";
		if (size > PUT_MAX || sc_lines_count(SC_ABI_DELEGATE_PUT_FIRST, size) != sc_ctl_lines(ctl))
			return -EPROTO;
	}
	/* relaxed: ctl has published them */
	access->key = sc_load_relaxed_64(&record->key);
	access->addr = sc_load_relaxed_64(&record->addr);
	access->len = size;
	access->how = SC_REG_WRITE;
	ret = sc_access_find(peer->ep, access);
	if (ret)
		return ret;
	return bounced ? copy_buffers(peer->ep, access, seg, bufs) : copy_lines(peer, at, access);
}

/* Counts a put that is done, and reports its data. */
static inline void put_tell(struct sc_peer *peer, const struct sc_ring_place *at, uint64_t ctl,
			    const struct sc_access *access)
{
	sc_access_served(peer->ep, access, SC_ABI_F_EVENT);
	if (sc_ctl_flags(ctl) & SC_ABI_F_DATA)
		sc_access_complete(peer, sc_load_relaxed_64(&record_at(at)->data), access->len);
}

/* ---- puts that are withdrawn ----------------------------------------------------------------- */

/* Passes over the next put, which is withdrawn, and keeps its place. -ENOMEM; -EPROTO with *why. */
static __attribute__((noinline)) int pass_over(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_peer_taker *taker = &peer->taker;

	*why = "a delegated put in an overflow buffer, in which it does not stay";
	if (peer->rx.left.lines)
		return -EPROTO;
	if (!taker->passed)
		taker->passed = SC_TRY_PTR("taker.passed", NULL,
					   calloc(SC_ABI_DELEGATED, sizeof(taker->passed[0])));
	if (!taker->passed)
		return -ENOMEM;
	taker->passed[taker->seen % SC_ABI_DELEGATED] =
		(struct sc_passed){ .at = peer->rx.at, .ctl = ctl, .number = taker->seen };
	if (sc_ctl_flags(ctl) & SC_ABI_F_RETURNED)
		sc_hold_pin(peer, taker->seen);
	taker->seen++;
	return 0;
}

/* Returns the put of that number, if this process has passed over it and no note of it has come; or NULL. */
static struct sc_passed *passed_find(const struct sc_peer *peer, uint32_t number)
{
	struct sc_passed *put = peer->taker.passed ? &peer->taker.passed[number % SC_ABI_DELEGATED] : NULL;

	return put && put->ctl && put->number == number ? put : NULL;
}

void sc_taker_noted(struct sc_peer *peer, uint32_t number)
{
	struct sc_passed *put = passed_find(peer, number);

	if (put)
		put->ctl = 0;
}

/* Does a put that its initiator has not done. False: there is no space for its completion. */
static __attribute__((noinline)) bool inherit(struct sc_peer *peer, struct sc_passed *put)
{
	struct sc_access access;
	const char *why;

	if (sc_access_is_crowded(peer, put->ctl))
		return false;
	/* a peer that has gone before its segment was attached again has taken its buffers with it */
	if ((peer->seg || sc_ctl_flags(put->ctl) & SC_ABI_F_RETURNED ||
	     !(sc_ctl_flags(put->ctl) & SC_ABI_F_BOUNCED)) &&
	    !put_do(peer, &put->at, put->ctl, &access, &why))
		put_tell(peer, &put->at, put->ctl, &access);
	put->ctl = 0;
	return true;
}

bool sc_taker_inherit(struct sc_peer *peer)
{
	const struct sc_abi_slot *slot = sc_seg_slot(peer->ep->seg, peer->in_slot);
	uint32_t end = peer->taker.seen;

	if (!peer->taker.passed || peer->vanished)
		return true;
	for (uint32_t number = end - SC_ABI_DELEGATED; number != end; number++) {
		struct sc_passed *put = passed_find(peer, number);

		if (put && !sc_rescue_has_done(slot, number) && !inherit(peer, put))
			return false;
	}
	return true;
}

/* ---- puts ------------------------------------------------------------------------------------ */

/* The peer reads only the end of the put, so it may go on before we count the put. */
int sc_taker_put(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_access access;
	int ret;

	if (sc_access_is_crowded(peer, ctl))
		return -ENOMEM;
	ret = claim_next(peer, why);
	if (ret <= 0)
		return ret ? ret : pass_over(peer, ctl, why);
	(void)SC_FAULT("taker.taken");
	ret = put_do(peer, &peer->rx.at, ctl, &access, why);
	if (ret == -EPROTO)
		return ret;
	(void)SC_FAULT("taker.written");
	put_end(peer, ret);
	if (!ret)
		put_tell(peer, &peer->rx.at, ctl, &access);
	return 0;
}

/* ---- gets ------------------------------------------------------------------------------------ */

/*
 * A delegated get, copied and checked, and the place of its bytes: gathered for the record's lines, or in our buffers,
 * which the peer reads until it says so.
 */
struct taken {
	struct sc_abi_delegate record;
	struct sc_access access;
	bool bounced;
	uint32_t size, buffers;
	struct iovec iov[SC_ABI_RECORD_BUFS];
	size_t count;
	uint8_t bytes[GET_MAX];
};

/* Reads and checks the record. Returns NULL, or the fault. */
static const char *taken_read(struct sc_peer *peer, uint64_t ctl, struct taken *get)
{
	const struct sc_ep *ep = peer->ep;
	uint32_t size = sc_ctl_size(ctl);

	memcpy(&get->record, sc_ring_first(&peer->rx)->bytes, sizeof(get->record));
	get->access = (struct sc_access){ get->record.key, get->record.addr, size, SC_REG_READ, NULL };
	get->bounced = sc_ctl_flags(ctl) & SC_ABI_F_BOUNCED;
	get->size = size;
	get->buffers = 0;
	if (get->bounced) {
		if (size > (uint64_t)SC_ABI_RECORD_BUFS << ep->buf_shift)
			return "a get of more than there are buffers for";
		get->buffers = sc_record_bufs(ep, size);
	} else {
		if (size > GET_MAX || sc_lines_count(SC_ABI_DELEGATE_GET_FIRST, size) != sc_ctl_lines(ctl))
			return "a get of another size than its record";
		get->iov[0] = (struct iovec){ get->bytes, size };
		get->count = 1;
	}
	return NULL;
}

/* Tells whether we may lend buffers. Half of them stay free, as a peer that reads no answers keeps them lent. */
static bool may_lend(struct sc_peer *peer, uint32_t buffers)
{
	const struct sc_pool *pool = &peer->ep->pool;

	return sc_pool_may_lend(pool, &peer->taker.answers, buffers, pool->count / 2) &&
	       sc_record_grow(peer->ep, buffers);
}

/* Tells whether a get can be answered. One that is withdrawn, as far as one look tells, needs no buffers. */
static bool may_answer(struct sc_peer *peer, const struct taken *get)
{
	const struct sc_abi_slot *slot = sc_seg_slot(peer->ep->seg, peer->in_slot);

	if (!get->buffers || is_withdrawn(sc_load_relaxed_64(&slot->delegation.claim), peer->taker.seen) ||
	    may_lend(peer, get->buffers))
		return true;
	/* A1' acquire: pairs with A1 in give_back() of delegate.c; a peer that gives back too many reads other bytes */
	sc_pool_return(&peer->ep->pool, &peer->taker.answers, sc_load_acquire_64(&slot->answers.read));
	return may_lend(peer, get->buffers);
}

static void answer_lend(struct sc_peer *peer, struct taken *get)
{
	struct sc_ep *ep = peer->ep;

	for (uint32_t i = 0; i < get->buffers; i++)
		get->record.bufs[i] =
			sc_pool_lend(&ep->pool, &peer->taker.answers, peer->taker.answer_count);
	get->count = sc_seg_bufs(ep->seg, get->record.bufs, get->size, get->iov);
	peer->taker.answer_count++;
}

/* Writes the bytes, or the buffer numbers, before the peer reads `ended`. */
static void get_end(struct sc_peer *peer, const struct taken *get, int error)
{
	struct sc_abi_line *line = sc_ring_first(&peer->rx);
	struct sc_abi_delegate *record = (struct sc_abi_delegate *)line->bytes;

	if (get->bounced)
		memcpy(record->bufs, get->record.bufs, sizeof(record->bufs));
	else if (!error)
		sc_lines_write(&peer->rx.at, line, SC_ABI_DELEGATE_GET_FIRST, get->bytes, get->size);
	(void)SC_FAULT("taker.answered");
	/* O3 release: pairs with O3' in collect_get() of delegate.c */
	sc_store_release_64(&record->ended, 1 + (uint64_t)-error);
	(void)SC_FAULT("taker.ended");
}

/* -ENOMEM: no buffers; some come back, or the peer withdraws the get. A peer that has gone needs no answer. */
int sc_taker_get(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	bool gone = peer->feed == SC_FEED_DRAINING;
	struct taken get;
	int ret;

	*why = taken_read(peer, ctl, &get);
	if (*why)
		return -EPROTO;
	if (!gone && !may_answer(peer, &get))
		return -ENOMEM;
	ret = claim_next(peer, why);
	if (ret < 0)
		return ret;
	if (!ret)
		peer->taker.seen++;
	if (!ret || gone)
		return 0;
	(void)SC_FAULT("taker.get_taken");
	if (get.bounced)
		answer_lend(peer, &get);
	ret = sc_access_find(peer->ep, &get.access);
	if (!ret)
		ret = sc_access_copy(peer->ep, &get.access, get.iov, get.count);
	(void)SC_FAULT("taker.loaded");
	get_end(peer, &get, ret);
	if (peer->taker.taken - peer->taker.reported >= UNREPORTED_MAX)
		peer->taker.unreported = true;
	if (!ret)
		sc_access_served(peer->ep, &get.access, SC_ABI_F_EVENT);
	return 0;
}
