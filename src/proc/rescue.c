/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rescue.c: the daemon's thread does delegated puts that neither the target takes nor the initiator withdraws.
 *
 * An application that injects a put may never call again, and its target may compute. So the daemon's thread looks at
 * delegated puts every millisecond while there are some. If the target has taken none of them from one look to the
 * next, the thread withdraws them by the word that decides between the two processes (delegate.c, O1), and copies them
 * by CMA, under a hazard word as direct.c does. A short payload is in the record of its put, in the peer's ring; a longer
 * one is in bounce buffers of this process, or in one of the peer (hold.h). Until the put ends, the lines stay held
 * (sc_ring_tx.held), and the buffers stay in use.
 *
 * The thread leaves gets, whose destination only the endpoint knows, and puts of which the target's application hears
 * (remote data, counters): the application can see such a put only when the target polls, and then the target takes it.
 * While an operation that the daemon leaves is open, the endpoint delegates no injected put of which the application does
 * not hear. While a put that the daemon may do is open, it delegates no injected put of which the application hears.
 *
 * The thread leaves all puts as they are, if one of them goes to memory that CMA does not reach: the target passes over a
 * put that is withdrawn, so the thread withdraws nothing that it cannot do. It reads a byte of each page before, because
 * a read changes nothing. After that a copy may still fail for now, because the target changes its table. The thread
 * tries it again at each look.
 *
 *   keeper                    written by
 *   NONE -> ENDPOINT          the endpoint's thread, before it withdraws         (K1)
 *   NONE -> COPIES            the daemon's thread, before it withdraws           (K1)
 *   COPIES -> NONE            the daemon's thread, because the target has just taken one
 *   COPIES -> RESTS           the daemon's thread, after its copies              (K2)
 *   RESTS -> COPIES           the daemon's thread, for puts that came later
 *   RESTS -> ENDPOINT         the endpoint's thread, which ends what is done, and does the others   (K2')
 *   ENDPOINT -> NONE          the endpoint's thread
 *
 *   K1 compare and swap: one of the two withdraws
 *   K2 release: done and errors before RESTS   pairs with  K2' acquire, sc_rescue_take()
 *   E1 release, sc_rescue_show() of rescue.h: place and key before end   pairs with  E1' acquire, look()
 *   W1 the endpoint's thread stores `end`, then loads sc_process.rescue_looks; the daemon's thread stores 0 there, then
 *      loads `end`: at least one of the two sees the other's store. A barrier of the daemon's thread alone orders the
 *      stores and loads of both (sc_sleep_barrier()).
 *
 * While the daemon's thread withdraws, the endpoint's thread may delegate more without knowing. So a withdrawal takes
 * back SC_ABI_DELEGATED operations more than there are: no more can be open. The endpoint's thread sets the claim to the
 * right number when it takes over. Until then the daemon's thread does what has been added, in order.
 *
 * A peer may have written anything over the records. This process takes nothing but the payload from them, and writes it
 * to the peer's own memory.
 *
 * Death. If the peer dies, the copy fails, and the endpoint reports it. If this process dies, the target does the puts when
 * it polls: it takes those that are not withdrawn, and does those that are withdrawn and of which delegation.done does
 * not say that they are done (sc_taker_inherit()). A signal that comes during the system call of a copy kills this
 * process before it can store that word; then the target writes the same bytes once more, at its next poll. exit(3) runs
 * sc_rescue_finish() before. A forked child has no daemon's thread and no use for its parent's operations.
 */
#include "proc/rescue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/fault.h"
#include "os/cma.h"
#include "os/host.h"
#include "os/wake.h"
#include "proc/process.h"
#include "shm/memory.h"
#include "shm/ring.h"

/* After so many passes over all peers, one each SC_RESCUE_MS, that find no new put, the thread makes no more. */
#define IDLE_PASSES 20
/* The hazard word of this file; direct.c uses the last one only for an operation on so many ranges, never meanwhile. */
#define HAZARD (SC_ABI_HAZARDS - 1)

/*
 * Writes the keeper if it is `from`; no other function writes it. False: the other thread was faster. Moves out of
 * ENDPOINT and COPIES succeed: only the thread of that name makes them.
 */
static bool keeper_move(struct sc_rescue *rescue, enum sc_rescue_keeper from, enum sc_rescue_keeper to)
{
	assert(to == SC_RESCUE_NONE    ? from == SC_RESCUE_ENDPOINT || from == SC_RESCUE_COPIES
	       : to == SC_RESCUE_RESTS ? from == SC_RESCUE_COPIES
				       : from == SC_RESCUE_NONE || from == SC_RESCUE_RESTS);
	bool moved = sc_cas_acq_rel_32(&rescue->keeper, from, to);

	assert(moved || from == SC_RESCUE_NONE || from == SC_RESCUE_RESTS);
	return moved;
}

/* ---- the endpoint's side --------------------------------------------------------------------- */

struct sc_rescue *sc_rescue_open(const struct sc_seg *own, struct sc_seg *seg, uint32_t slot,
				 uint32_t number, bool thread)
{
	struct sc_rescue *rescue = SC_TRY_PTR("rescue.open", NULL, calloc(1, sizeof(*rescue)));

	if (!rescue)
		return NULL;
	sc_list_init(&rescue->listed);
	rescue->opened_by = sc_host_self();
	rescue->own = own;
	rescue->seg = seg;
	rescue->slot = slot;
	rescue->end = rescue->seen_end = rescue->ended = number;
	if (!thread)
		return rescue;
	(void)sc_process_begin();
	sc_process_lock();
	sc_list_append(&sc_process.rescues, &rescue->listed);
	sc_process_unlock();
	return rescue;
}

void sc_rescue_quit(struct sc_rescue *rescue)
{
	if (rescue->opened_by != sc_host_self())
		return; /* a forked child: its lists are new */
	sc_process_lock();
	sc_list_remove(&rescue->listed);
	sc_process_unlock();
}

void sc_rescue_close(struct sc_rescue *rescue)
{
	if (!rescue)
		return;
	sc_rescue_quit(rescue);
	free(rescue);
}

void sc_rescue_wake(void)
{
	sc_process_lock();
	sc_process.rescue_idle = 0;
	if (!sc_load_relaxed_32(&sc_process.rescue_looks)) {
		sc_store_relaxed_32(&sc_process.rescue_looks, 1);
		(void)sc_process_wake_locked();
	}
	sc_process_unlock();
}

int sc_rescue_take(struct sc_rescue *rescue)
{
	uint32_t keeper = sc_load_acquire_32(&rescue->keeper); /* K2' */

	if (keeper == SC_RESCUE_COPIES || !keeper_move(rescue, keeper, SC_RESCUE_ENDPOINT))
		return -EAGAIN;
	return keeper == SC_RESCUE_RESTS;
}

void sc_rescue_release(struct sc_rescue *rescue)
{
	(void)keeper_move(rescue, SC_RESCUE_ENDPOINT, SC_RESCUE_NONE);
}

/* ---- one put --------------------------------------------------------------------------------- */

static struct sc_abi_slot *slot_of(const struct sc_rescue *rescue)
{
	return sc_seg_slot(rescue->seg, rescue->slot);
}

/* Tells whether the peer has not closed. */
static bool is_open(const struct sc_rescue *rescue)
{
	return sc_load_acquire_32(&sc_seg_presence(rescue->seg)->state) == SC_ABI_OPEN;
}

/* Tells whether the word of life still proves that the pid is the peer's. */
static bool is_there(const struct sc_rescue *rescue)
{
	uint32_t life = sc_load_relaxed_32(&sc_seg_presence(rescue->seg)->life);

	return life & SC_ABI_LIFE_TID && !(life & SC_ABI_LIFE_ENDED);
}

void sc_rescue_tell_done(const struct sc_rescue *rescue, uint32_t number)
{
	/* D1 release: bytes before; pairs with D1' in sc_rescue_has_done() */
	sc_store_release_32(&slot_of(rescue)->delegation.done, number);
	(void)SC_FAULT("rescue.told");
}

void sc_rescue_payload(const struct sc_rescue *rescue, const struct sc_rescue_kept *kept,
		       struct sc_rescue_payload *payload)
{
	struct sc_abi_line *ring = slot_of(rescue)->ring;
	const struct sc_ring_place lines = { .lines = ring,
					     .last = ring + SC_RESCUE_LINES(kept->place) - 1 };
	uint32_t size = (uint32_t)kept->remote.len;

	if (kept->bounced) {
		payload->count = sc_seg_bufs(kept->returned ? rescue->seg : rescue->own, kept->bufs, size,
					     payload->iov);
		return;
	}
	sc_lines_read(&lines, ring + SC_RESCUE_LINE(kept->place), SC_ABI_DELEGATE_PUT_FIRST,
		      payload->bytes, size);
	payload->iov[0] = (struct iovec){ payload->bytes, size };
	payload->count = 1;
}

static int put_copy(const struct sc_rescue *rescue, const struct sc_rescue_kept *kept,
		    const struct sc_reg_span *span)
{
	struct sc_rescue_payload payload;
	struct iovec to[SC_IOV_MAX];
	uint64_t len = kept->remote.len;
	int count = sc_regtab_slice(span, kept->remote.addr, &len, to, SC_IOV_MAX);
	struct sc_cma_copy copy = { payload.iov, 0, to, (size_t)count, len };
	size_t moved;

	if (count < 0)
		return count;
	if (len < kept->remote.len || !is_there(rescue))
		return -EAGAIN;
	sc_rescue_payload(rescue, kept, &payload);
	copy.local_count = payload.count;
	return len ? sc_cma_write(rescue->seg->cma_pid, &copy, &moved) : 0;
}

/* Does one put. 0, or the error of the put; -EAGAIN: the endpoint's thread must do it. */
static int put_do(struct sc_rescue *rescue, const struct sc_rescue_kept *kept)
{
	uint64_t *hazard = &slot_of(rescue)->hazards.words[HAZARD];
	struct sc_regtab_view table = sc_seg_table(rescue->seg);
	struct sc_reg_span span;
	struct sc_reg_ref ref;
	int ret;

	table.seen = &rescue->seen;
	ret = sc_regtab_find(&table, kept->remote.key, &ref);
	if (ret)
		return ret;
	sc_store_relaxed_64(hazard, (uint64_t)++rescue->hazards << 32 | (ref.index + 1));
	/* pairs with the fence in sc_reg_close(), as H1 of direct.c */
	sc_fence_seq_cst();
	(void)SC_FAULT("rescue.hazard");
	ret = is_open(rescue) ? 0 : -EAGAIN;
	if (!ret)
		ret = sc_regtab_check(&table, &ref, &kept->remote, SC_REG_WRITE, &span);
	if (!ret && span.flags & SC_REG_EVENT)
		ret = -EAGAIN; /* the target's application counts it */
	if (!ret)
		ret = put_copy(rescue, kept, &span);
	if (!ret && !sc_regtab_holds(&table, &ref))
		ret = -EKEYREJECTED;
	(void)SC_FAULT("rescue.copied");
	sc_store_release_64(hazard, 0);
	(void)SC_FAULT("rescue.hazard_clear");
	return ret == -EKEYREJECTED || ret == -EACCES || ret == -EINVAL || !ret ? ret : -EAGAIN;
}

/* ---- all puts to one peer -------------------------------------------------------------------- */

/* Reads a byte of each page of the target's memory, to no use. Tells whether CMA reaches all of them. */
static bool is_reachable(const struct sc_rescue *rescue, const struct iovec *memory, int count)
{
	const struct sc_cma cma = { .pid = rescue->seg->cma_pid };
	uint8_t byte;

	for (int i = 0; i < count; i++) {
		uintptr_t at = (uintptr_t)memory[i].iov_base, end = at + memory[i].iov_len;

		for (; at < end; at = (at / SC_ABI_PAGE + 1) * SC_ABI_PAGE) {
			const struct iovec to = { &byte, 1 }, from = { (void *)at, 1 };

			if (sc_cma_read(&cma, &(struct sc_cma_copy){ &to, 1, &from, 1, 1 }))
				return false;
		}
	}
	return true;
}

/*
 * Tells whether this thread can do the put, as far as one look tells: the peer's application need not hear of it, and CMA
 * reaches its memory, or the put fails whichever side does it. put_do() checks all but the reach, under a hazard word;
 * here there is none, because the endpoint's thread may use the words. Until this thread withdraws the put, another thread
 * may end it and keep another in its place; then the claim has changed, and withdraw() fails.
 */
static bool is_ours(struct sc_rescue *rescue, uint32_t at)
{
	const struct sc_rescue_kept *kept = &rescue->kept[at];
	const struct sc_remote remote = { .addr = sc_load_relaxed_64(&kept->remote.addr),
					  .len = sc_load_relaxed_64(&kept->remote.len),
					  .key = sc_load_relaxed_64(&kept->remote.key) };
	struct sc_regtab_view table = sc_seg_table(rescue->seg);
	struct iovec memory[SC_IOV_MAX];
	uint64_t len = remote.len;
	struct sc_reg_span span;
	struct sc_reg_ref ref;
	int ret;

	if (sc_load_relaxed_32(&kept->place) & SC_RESCUE_NOT)
		return false;
	table.seen = &rescue->seen;
	ret = sc_regtab_find(&table, remote.key, &ref);
	if (!ret)
		ret = sc_regtab_check(&table, &ref, &remote, SC_REG_WRITE, &span);
	if (ret)
		return ret != -EAGAIN;
	if (span.flags & SC_REG_EVENT)
		return false;
	ret = sc_regtab_slice(&span, remote.addr, &len, memory, SC_IOV_MAX);
	return ret < 0 || (len == remote.len && is_reachable(rescue, memory, ret));
}

/*
 * Tells whether all operations that the peer has taken are known to have ended, so that later ones may follow. The peer
 * reports puts, and gets before them; a get behind the last put counts as ended only if it had ended at the last post.
 */
static bool have_ended(const struct sc_rescue *rescue, uint32_t taken)
{
	uint32_t done =
		sc_load_acquire_32(&slot_of(rescue)->consumer.delegated_done); /* as O2' of delegate.c */

	return (int32_t)(done - taken) >= 0 || (int32_t)(sc_load_relaxed_32(&rescue->ended) - taken) >= 0;
}

/* Tells whether all operations from `first` on, before `end`, are for this thread. */
static bool are_ours(struct sc_rescue *rescue, uint32_t first, uint32_t end)
{
	if (!is_open(rescue) || !is_there(rescue))
		return false;
	for (; first != end; first++)
		if (!is_ours(rescue, first % SC_ABI_DELEGATED))
			return false;
	return true;
}

/*
 * Withdraws the operations from `first` on, if the claim has not changed. E1' in look() has made their records visible to
 * this thread.
 */
static bool withdraw(struct sc_rescue *rescue, uint64_t claim, uint32_t first, uint32_t end)
{
	uint32_t high = end + SC_ABI_DELEGATED;

	if (!keeper_move(rescue, SC_RESCUE_NONE, SC_RESCUE_COPIES)) /* K1 */
		return false;
	if (!sc_cas_acq_rel_64(&slot_of(rescue)->delegation.claim, claim,
			       (uint64_t)high << 32 | (uint32_t)claim)) {
		(void)keeper_move(rescue, SC_RESCUE_COPIES, SC_RESCUE_NONE); /* the peer has taken one */
		return false;
	}
	(void)SC_FAULT("rescue.withdrawn");
	rescue->withdrawn = high;
	rescue->from = rescue->done = first;
	return true;
}

static void copy_some(struct sc_rescue *rescue)
{
	uint32_t end;

	while ((end = sc_load_acquire_32(&rescue->end)) != rescue->done) {
		uint32_t at = rescue->done % SC_ABI_DELEGATED;
		const struct sc_rescue_kept *kept = &rescue->kept[at];
		int ret = kept->place & SC_RESCUE_NOT ? -EAGAIN : put_do(rescue, kept);

		if (ret == -EAGAIN)
			break;
		rescue->errors[at] = (uint8_t)-ret;
		sc_rescue_tell_done(rescue, ++rescue->done);
	}
	(void)keeper_move(rescue, SC_RESCUE_COPIES, SC_RESCUE_RESTS); /* K2 */
}

/*
 * Returns the first operation before `end` that is neither taken nor withdrawn. All before `ended` have ended. The claim
 * was read before `end`, so a half that is beyond 1 + `end` is a number of long ago, and says nothing.
 */
static uint32_t first_open(uint64_t claim, uint32_t ended, uint32_t end)
{
	uint32_t taken = (uint32_t)claim - ended, withdrawn = (uint32_t)(claim >> 32) - ended, passed = 0;

	if (taken <= end - ended + 1)
		passed = taken;
	if (withdrawn <= end - ended + 1 && withdrawn > passed)
		passed = withdrawn;
	return ended + passed;
}

/* `now`: does not wait whether the peer takes some. True: there are operations, or there were new ones. */
static bool look(struct sc_rescue *rescue, bool now)
{
	uint64_t claim = sc_load_acquire_64(&slot_of(rescue)->delegation.claim);
	uint32_t end = sc_load_acquire_32(&rescue->end); /* E1' */
	uint32_t ended = sc_load_relaxed_32(&rescue->ended), first = first_open(claim, ended, end);
	bool news = end != rescue->seen_end, waited;

	rescue->seen_end = end;
	if (sc_load_acquire_32(&rescue->keeper) == SC_RESCUE_RESTS) {
		if (end != rescue->done && keeper_move(rescue, SC_RESCUE_RESTS, SC_RESCUE_COPIES))
			copy_some(rescue);
		/* a peer that has gone gets none of them any more */
		return news || (end != rescue->done && is_open(rescue) && is_there(rescue));
	}
	/* none; or the endpoint's thread has posted and ended more meanwhile, and the claim has changed */
	if (end - first - 1 >= SC_ABI_DELEGATED || end - ended > SC_ABI_DELEGATED) {
		rescue->waits = false;
		return news;
	}
	waited = now || (rescue->waits && first == rescue->seen_first);
	rescue->waits = true;
	rescue->seen_first = first;
	if (waited && have_ended(rescue, (uint32_t)claim) && are_ours(rescue, first, end) &&
	    withdraw(rescue, claim, first, end))
		copy_some(rescue);
	return true;
}

/* ---- all peers ------------------------------------------------------------------------------- */

static bool look_at_all(bool now)
{
	bool any = false;

	sc_list_for (entry, &sc_process.rescues)
		any |= look(sc_list_entry(entry, struct sc_rescue, listed), now);
	return any;
}

void sc_rescue_look_locked(void)
{
	if (!sc_load_relaxed_32(&sc_process.rescue_looks))
		return;
	sc_process.rescue_idle = look_at_all(false) ? 0 : sc_process.rescue_idle + 1;
	if (sc_process.rescue_idle < IDLE_PASSES)
		return;
	sc_process.rescue_idle = 0;
	sc_store_relaxed_32(&sc_process.rescue_looks, 0); /* W1 */
	if (!sc_sleep_barrier() || look_at_all(false))
		sc_store_relaxed_32(&sc_process.rescue_looks, 1);
}

void sc_rescue_finish(void)
{
	(void)sc_process_begin();
	sc_process_lock();
	(void)look_at_all(true);
	sc_process_unlock();
}
