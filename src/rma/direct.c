/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * direct.c: one-sided operations that this process does by itself: it checks the key in the peer's table, copies, and
 * checks again. The peer is not strict, and CMA is permitted in that direction, or the peer is in this process. An
 * operation is over when the call returns, unless it is put off.
 *
 * A copy goes in steps, each under hazard words in the slot that this process has claimed at the peer:
 *
 *   1. hazard words name the registrations                                 (H1)
 *   2. full fence
 *   3. in use, in bounds, allowed? is the endpoint open?                   (H2)
 *   4. copy
 *   5. in use still? else the operation fails, even if bytes have been copied
 *   6. hazard words back to 0, release
 *
 * The owner closes a registration in the other order: out of use, full fence, then it reads the hazard words. So the
 * owner sees H1, or H2 sees the registration closed (mr.pml). If this process dies in between, its hazard words stay:
 * its life lock is free, and the owner goes on. If this process is stopped, the close of the owner says so. If the
 * owner dies, its table stays mapped here, its memory is gone, and the copy fails. Another process may get the owner's
 * pid: before a write this process must see the owner's word of life, life lock or cookie (sc_peer_is_there()). After a
 * read the word of life is the proof (sc_peer_read()), which costs a load; if that word says nothing, the cookie is
 * read in the same call, 350 ns.
 *
 * Inside one process the copy is a plain one, once the pages are known to be mapped (probe.h).
 *
 * If the peer's application must hear of an operation (remote data, counters there), a record follows: a note. For an
 * operation that is over in the call, the note is made before the copy; one that is put off, or is assisted, becomes the
 * note itself.
 *
 * A process_vm_readv or writev takes 0.6 to 3 microseconds before it copies anything, as long as for 4 to 16 KiB. An
 * application that has posted some operations without a poll between is likely to post more, and sees no completion
 * before the next poll. So from then on operations are put off: until they are as many as fit one call
 * (SC_ROUTE_TOGETHER, SC_REMOTE_MAX), until the next poll, or until another operation needs the peer's memory. The
 * first ones are over when the call returns. (To read a queue that has completions mostly takes no poll, so an
 * application that reads one after each post also posts without a poll.)
 *
 * Order: operations are done in the order of their posts, and before any one-sided operation that is posted later.
 * Messages do not wait for them; an endpoint that asks for that order puts none off.
 *
 * An operation that is put off behaves as if it were posted when it is done: its key is checked then. If the copy of
 * several fails, each that it has not finished is done alone, to find the one that fails. An operation that is over is
 * never done again: the peer may have seen its bytes, and gone on from there.
 *
 * If this process dies, operations that are put off are not done; if the peer dies, they fail with it. An endpoint that
 * closes does them first.
 */
#include "rma/direct.h"

#include <errno.h>
#include <string.h>
#include "base/fault.h"
#include "base/iov.h"
#include "base/log.h"
#include "os/probe.h"
#include "link/peer.h"
#include "link/review.h"
#include "link/route.h"
#include "rma/request.h"
#include "rma/rmaop.h"
#include "link/turn.h"

/* Bytes copied each time the hazard words are set. */
#define STEP ((size_t)4 << 20)

/* A direct copy under way. */
struct direct {
	struct sc_peer *peer;
	const struct sc_rma *rma;
	struct sc_rma_op *note; /* for the peer's application; */
	bool *follows; /* not NULL: the caller makes it, and hears here whether one has to follow */
	int *outcomes; /* of several operations in one, each of one range */
	size_t size, done, end; /* bytes of all; the copy goes from `done` to `end` */
	struct sc_regtab_view table;
	/* one for each key, found and checked */
	struct sc_reg_ref refs[SC_REMOTE_MAX];
	struct sc_reg_span spans[SC_REMOTE_MAX];
};

/* Leaves out the arrays, which are long and little used. */
static void direct_init(struct direct *direct, struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	direct->peer = peer;
	direct->rma = rma;
	direct->note = NULL;
	direct->follows = NULL;
	direct->outcomes = NULL;
	direct->size = direct->end = size;
	direct->done = 0;
	direct->table = sc_seg_table(peer->seg);
}

static void hazards_raise(const struct direct *direct)
{
	struct sc_peer *peer = direct->peer;
	struct sc_abi_hazards *hazards = &sc_seg_slot(peer->seg, peer->out_slot)->hazards;
	uint64_t count = (uint64_t)++peer->rma.hazard_count << 32;

	for (size_t i = 0; i < direct->rma->remote_count; i++) {
		sc_store_relaxed_64(&hazards->words[i], count | (direct->refs[i].index + 1));
		(void)SC_FAULT("direct.hazard_word");
	}
	/* H1 before H2; pairs with the fence in sc_reg_close() */
	sc_fence_seq_cst();
	(void)SC_FAULT("direct.hazard");
}

static void hazards_clear(const struct direct *direct)
{
	struct sc_peer *peer = direct->peer;
	struct sc_abi_hazards *hazards = &sc_seg_slot(peer->seg, peer->out_slot)->hazards;

	(void)SC_FAULT("direct.copied");
	for (size_t i = 0; i < direct->rma->remote_count; i++) {
		sc_store_release_64(&hazards->words[i], 0);
		(void)SC_FAULT("direct.hazard_clear");
	}
}

static int find_all(struct direct *direct)
{
	const struct sc_reg_use *unreachable = &direct->peer->rma.unreachable;

	for (size_t i = 0; i < direct->rma->remote_count; i++) {
		uint64_t key = direct->rma->remote[i].key;
		int ret = sc_regtab_find(&direct->table, key, &direct->refs[i]);

		if (ret)
			return ret;
		if (__builtin_expect(key == unreachable->key && direct->refs[i].tag == unreachable->tag, 0))
			return -EOPNOTSUPP;
	}
	return 0;
}

static int check_all(struct direct *direct)
{
	const struct sc_rma *rma = direct->rma;
	uint32_t access = rma->flags & SC_RMA_WRITE ? SC_REG_WRITE : SC_REG_READ;

	if (!sc_peer_is_open(direct->peer))
		return -ECONNRESET;
	for (size_t i = 0; i < rma->remote_count; i++) {
		int ret = sc_regtab_check(&direct->table, &direct->refs[i], &rma->remote[i], access,
					  &direct->spans[i]);

		if (ret)
			return ret;
	}
	return 0;
}

/* Tells whether the keys were in use all the time. 0, -EKEYREJECTED. Each of several operations has its own outcome. */
static int judge(const struct direct *direct)
{
	int ret = 0;

	for (size_t i = 0; i < direct->rma->remote_count; i++) {
		int one = sc_regtab_holds(&direct->table, &direct->refs[i]) ? 0 : -EKEYREJECTED;

		if (direct->outcomes)
			direct->outcomes[i] = one;
		else if (one)
			ret = one;
	}
	return ret;
}

/* Finds the next bytes in the peer's address space. Returns the number of elements, and their bytes in *len. */
static int remote_slice(const struct direct *direct, struct iovec iov[SC_IOV_MAX], size_t *len)
{
	size_t most = direct->end - direct->done < STEP ? direct->end - direct->done : STEP;
	uint64_t skip = direct->done;
	int count = 0;

	*len = 0;
	for (size_t i = 0; i < direct->rma->remote_count && *len < most && count < SC_IOV_MAX; i++) {
		const struct sc_remote *remote = &direct->rma->remote[i];
		uint64_t here, got;
		int ret;

		if (skip >= remote->len) {
			skip -= remote->len;
			continue;
		}
		here = remote->len - skip < most - *len ? remote->len - skip : most - *len;
		got = here;
		ret = sc_regtab_slice(&direct->spans[i], remote->addr + skip, &got, iov + count,
				      (size_t)(SC_IOV_MAX - count));
		if (ret < 0)
			return ret;
		count += ret;
		*len += got;
		if (got < here)
			break;
		skip = 0;
	}
	return count;
}

static int copy_here(const struct direct *direct, const struct sc_cma_copy *copy)
{
	const struct sc_probe_copy out = { .to = copy->remote,
					   .to_count = copy->remote_count,
					   .from = copy->local,
					   .from_count = copy->local_count,
					   .len = copy->len };
	const struct sc_probe_copy in = { .to = copy->local,
					  .to_count = copy->local_count,
					  .from = copy->remote,
					  .from_count = copy->remote_count,
					  .len = copy->len };

	return direct->rma->flags & SC_RMA_WRITE ? sc_probe_write(NULL, &out) : sc_probe_read(NULL, &in);
}

/*
 * Explains EFAULT: our memory is not mapped, or the peer's is not; or the peer's is mapped, and only the peer itself
 * can access it. Then the peer is asked to do the operation.
 */
static int explain_fault(const struct direct *direct, const struct sc_cma_copy *copy)
{
	bool write = direct->rma->flags & SC_RMA_WRITE;

	if (sc_probe_check(NULL, copy->local, copy->local_count, !write) == -EIO)
		return -SC_EIO_INITIATOR;
	if (!sc_cma_is_mapped(direct->peer->cma.pid, copy->remote, copy->remote_count, write))
		return -EIO;
	sc_info("%s: CMA does not reach all of its registered memory; it does this operation itself",
		direct->peer->address);
	if (direct->rma->remote_count == 1)
		direct->peer->rma.unreachable =
			(struct sc_reg_use){ direct->rma->remote[0].key, direct->refs[0].tag };
	return -EOPNOTSUPP;
}

/*
 * Keeps what a copy has cost. The kernel may have run another thread in between, so no copy counts for more than twice
 * the cost that is known.
 */
static void learn_cost(struct sc_peer *peer, size_t len, int64_t took)
{
	uint64_t cost = (uint64_t)took * 1000 / len, known = peer->rma.copy_cost;

	if (known && cost > 2 * known)
		cost = 2 * known;
	if (known)
		cost = (3 * known + cost + 3) / 4;
	peer->rma.copy_cost = cost < UINT32_MAX / 2 ? (uint32_t)cost : UINT32_MAX / 2;
}

/* Copies by CMA. *moved: bytes of a put. */
static int copy_there(const struct direct *direct, const struct sc_cma_copy *copy, size_t *moved)
{
	struct sc_peer *peer = direct->peer;
	int64_t begin = copy->len >= SC_DIRECT_TIMED ? sc_clock_ns() : 0;
	int ret;

	if (!(direct->rma->flags & SC_RMA_WRITE)) {
		ret = sc_peer_read(peer, copy, true);
	} else {
		ret = sc_peer_is_there(peer) ? 0 : -ESRCH;
		if (!ret)
			ret = sc_cma_write(peer->cma.pid, copy, moved);
		if (ret == -EFAULT)
			ret = sc_cma_fault(&peer->cma);
	}
	if (!ret && copy->len >= SC_DIRECT_TIMED)
		learn_cost(peer, copy->len, sc_clock_ns() - begin);
	return ret;
}

static int copy_step(const struct direct *direct, const struct iovec *remote, size_t remote_count, size_t len,
		     size_t *moved)
{
	const struct sc_rma *rma = direct->rma;
	struct iovec part[SC_IOV_MAX];
	struct sc_cma_copy copy = { rma->iov, rma->iov_count, remote, remote_count, len };
	int ret;

	*moved = 0;
	if (len < direct->size) {
		copy.local = part;
		copy.local_count = sc_iov_slice(rma->iov, rma->iov_count, direct->done, len, part);
	}
	ret = direct->peer->seg->local ? copy_here(direct, &copy) : copy_there(direct, &copy, moved);
	if (!ret)
		*moved = len;
	return ret == -EFAULT ? explain_fault(direct, &copy) : ret;
}

/* Makes the note before the copy, because a copy cannot be undone if there is no memory for the note. */
static int prepare_note(struct direct *direct)
{
	bool wanted = sc_rma_wants_data(direct->rma) ||
		      direct->peer->seg->header.capabilities & SC_ABI_CAP_EVENTS;

	for (size_t i = 0; i < direct->rma->remote_count; i++)
		wanted |= direct->spans[i].flags & SC_REG_EVENT;
	if (direct->follows) {
		*direct->follows = wanted;
		return 0;
	}
	if (wanted && !direct->note)
		direct->note = sc_rmaop_get(direct->peer, SC_RMA_NOTE, direct->rma);
	return wanted && !direct->note ? -EAGAIN : 0;
}

static int step(struct direct *direct)
{
	struct iovec remote[SC_IOV_MAX];
	size_t len = 0, moved = 0;
	int ret, closed;

	hazards_raise(direct);
	ret = check_all(direct);
	if (!ret)
		ret = prepare_note(direct);
	if (!ret && direct->size) {
		ret = remote_slice(direct, remote, &len);
		if (ret >= 0)
			ret = copy_step(direct, remote, (size_t)ret, len, &moved);
	}
	closed = judge(direct);
	if (!ret && closed) {
		ret = closed;
		moved = 0; /* nobody knows of which memory */
	}
	hazards_clear(direct);
	direct->done += moved;
	return ret;
}

/* Handles an error of the copy. -EOPNOTSUPP: this way does not work with this peer, another may. */
static int direct_failed(struct sc_peer *peer, int error)
{
	switch (error) {
	case -EOPNOTSUPP:
	case -EIO:
	case -SC_EIO_INITIATOR:
	case -EKEYREJECTED:
	case -EACCES:
	case -EINVAL:
		return error;
	case -EAGAIN:
	case -ESRCH:
		if (sc_peer_is_dead(peer))
			break;
		if (error == -EAGAIN)
			return error;
		/* fallthrough */
	default: /* -EPERM, -ENOSYS, -ENOMEM... */
		sc_log(sc_peer_cma_level(error),
		       "%s: process_vm_readv or process_vm_writev fails (%s): the target does all puts "
		       "and gets from now on, and must make progress; shmcma doctor %d looks for the "
		       "cause",
		       peer->address, strerror(-error), (int)peer->cma.pid);
		peer->can_read = SC_REACH_NO;
		return -EOPNOTSUPP;
	case -ECONNRESET:
		break;
	}
	sc_info("%s: its process has closed it or ended; one-sided operations fail", peer->address);
	sc_peer_ended(peer);
	return -ECONNRESET;
}

static int copy_all(struct direct *direct)
{
	int ret = find_all(direct);

	while (!ret) {
		ret = step(direct);
		if (direct->done >= direct->end)
			break;
	}
	return ret;
}

/*
 * Lets an operation fail with a peer that has gone. The peer's records, with its answers to sends, are still unread.
 * Nothing fails before they are read: once one operation has failed, no later one may succeed.
 */
static int end_with_peer(const struct direct *direct)
{
	struct sc_rma_op *op =
		sc_rmaop_get(direct->peer, SC_RMA_NOTE, direct->rma); /* it has nothing more to do */

	if (!op)
		return -EAGAIN;
	op->moved = direct->done;
	direct->peer->rma.pending++;
	sc_list_append(&direct->peer->rma.waiting, &op->of_peer);
	return 0;
}

static void complete(const struct direct *direct, int error)
{
	const struct sc_rma *rma = direct->rma;
	const struct sc_ending ending = { .context = rma->context,
					  .cntr = rma->cntr,
					  .turn = sc_turn_pass(direct->peer),
					  .cq_flags = rma->cq_flags,
					  .flags = rma->flags,
					  .event = rma->flags & SC_RMA_WRITE ? SC_EVENT_WRITE
									     : SC_EVENT_READ,
					  .size = direct->size,
					  .moved = direct->done,
					  .error = error };

	sc_rmaop_complete(direct->peer, &ending);
}

int sc_direct_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	struct direct direct;
	int ret;

	direct_init(&direct, peer, rma, size);
	ret = copy_all(&direct);
	peer->ep->counters.rma_direct_bytes += direct.done;
	if (ret)
		ret = direct_failed(peer, ret);
	if (!ret && direct.note) {
		sc_request_queue(direct.note); /* after its bytes */
		return 0;
	}
	if (direct.note)
		sc_rmaop_forget(direct.note);
	if (ret == -EOPNOTSUPP || ret == -EAGAIN)
		return ret;
	if (ret == -ECONNRESET && peer->link != SC_LINK_DOWN)
		return end_with_peer(&direct);
	complete(&direct, ret);
	return 0;
}

int sc_direct_look(struct sc_peer *peer, const struct sc_rma *rma, struct sc_reg_ref *ref, bool *note)
{
	struct direct direct;
	int ret, outcome;

	direct_init(&direct, peer, rma, 0);
	direct.outcomes = &outcome;
	direct.follows = note;
	ret = find_all(&direct);
	if (!ret)
		ret = step(&direct);
	if (!ret)
		*ref = direct.refs[0];
	return ret ? ret : outcome;
}

int sc_direct_part(struct sc_peer *peer, const struct sc_rma *rma, const struct sc_reg_ref *ref,
		   const struct sc_share_part *part, bool *note)
{
	struct direct direct;
	int ret = 0, outcome = 0;

	direct_init(&direct, peer, rma, rma->remote[0].len);
	direct.outcomes = &outcome;
	direct.follows = note;
	direct.refs[0] = *ref;
	direct.done = part->offset;
	direct.end = part->offset + part->len;
	while (!ret && !outcome && direct.done < direct.end)
		ret = step(&direct);
	peer->ep->counters.rma_direct_bytes += direct.done - part->offset;
	return ret ? ret : outcome;
}

int sc_direct_try(struct sc_rma_op *op)
{
	const struct sc_rma rma = sc_rmaop_rma(op);
	struct sc_peer *peer = op->peer;
	struct sc_turn *posting = peer->order.turn;
	int ret;

	peer->order.turn = op->turn;
	op->turn = NULL;
	ret = sc_direct_may(peer) ? sc_direct_post(peer, &rma, op->size) : -EOPNOTSUPP;
	if (ret)
		op->turn = peer->order.turn;
	peer->order.turn = posting;
	if (ret == -EAGAIN)
		return ret;
	peer->rma.pending--;
	sc_list_remove(&op->of_peer);
	if (ret == -EOPNOTSUPP)
		return 1;
	sc_rmaop_forget(op);
	return 0;
}

int sc_direct_do(struct sc_rma_op *op)
{
	int ret = sc_direct_try(op);

	if (ret <= 0)
		return ret;
	sc_request_queue(op);
	return 0;
}

/* ---- several together ------------------------------------------------------------------------ */

/*
 * Copies the bytes of several operations, each of one remote range, as if they were one. Returns how many of the first
 * have ended, each with an outcome: 0, or -EKEYREJECTED if its key was closed meanwhile. Some bytes of the next one may
 * be copied, none of later ones; sc_direct_do() finds the error. *note: a note has to follow each.
 */
static uint32_t copy_several(struct sc_peer *peer, const struct sc_rma *several, size_t size,
			     int outcomes[SC_REMOTE_MAX], bool *note)
{
	struct direct direct;
	uint32_t count = 0;
	size_t bytes = 0;

	direct_init(&direct, peer, several, size);
	direct.outcomes = outcomes;
	direct.follows = note;
	(void)copy_all(&direct);
	while (count < several->remote_count && several->remote[count].len <= direct.done - bytes)
		bytes += several->remote[count++].len;
	peer->ep->counters.rma_direct_bytes += bytes;
	return count;
}

/*
 * Operations at the head of the list that fit one copy, all puts or all gets. They make one operation, not sc_cma_parts:
 * each step of its copy raises the hazards of all ranges, and finds the peer's addresses.
 */
struct batch {
	size_t size;
	struct sc_rma rma; /* one remote range for each operation */
	struct iovec iov[SC_IOV_MAX];
	struct sc_remote remote[SC_REMOTE_MAX];
};

static bool batch_add(struct batch *batch, const struct sc_rma_op *op)
{
	struct sc_rma *rma = &batch->rma;
	uint32_t write = op->flags & SC_RMA_WRITE;

	if (rma->remote_count && (write != rma->flags || rma->remote_count == SC_REMOTE_MAX ||
				  rma->iov_count + op->iov_count > SC_IOV_MAX))
		return false;
	memcpy(batch->iov + rma->iov_count, op->iov, op->iov_count * sizeof(op->iov[0]));
	batch->remote[rma->remote_count] = op->remote[0];
	rma->iov_count += op->iov_count;
	rma->remote_count++;
	rma->flags = write;
	batch->size += op->size;
	return true;
}

static void batch_gather(struct batch *batch, const struct sc_peer *peer)
{
	batch->size = 0;
	batch->rma = (struct sc_rma){ .iov = batch->iov, .remote = batch->remote };
	sc_list_for (entry, &peer->batch.ops)
		if (!batch_add(batch, sc_list_entry(entry, struct sc_rma_op, of_peer)))
			return;
}

static struct sc_rma_op *oldest(const struct sc_peer *peer)
{
	return sc_list_entry(peer->batch.ops.next, struct sc_rma_op, of_peer);
}

/* Does the oldest operations, in one copy or one after the other. -EAGAIN: not now. */
static int do_some(struct sc_peer *peer)
{
	int outcomes[SC_REMOTE_MAX];
	struct batch batch;
	uint32_t over = 0;
	bool note = false;

	batch_gather(&batch, peer);
	if (batch.rma.remote_count > 1 && sc_direct_may(peer))
		over = copy_several(peer, &batch.rma, batch.size, outcomes, &note);
	for (uint32_t i = 0; i < batch.rma.remote_count; i++) {
		struct sc_rma_op *op = oldest(peer);
		size_t size = op->size;
		int ret = 0;

		if (i < over && !outcomes[i] && (note || op->flags & SC_SEND_DATA))
			sc_request_note(op);
		else if (i < over)
			sc_rmaop_end(op, outcomes[i]);
		else
			ret = sc_direct_do(op);
		if (ret)
			return ret;
		peer->batch.count--;
		peer->batch.bytes -= size;
		if (peer->link == SC_LINK_DOWN)
			return peer->error;
	}
	return 0;
}

int sc_direct_settle_slow(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->batch.ops)) {
		int ret = do_some(peer);

		if (ret)
			return ret;
	}
	sc_list_remove(&peer->work[SC_WORK_BATCHING]);
	return 0;
}

int sc_direct_put_off(struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	bool write = rma->flags & SC_RMA_WRITE;
	struct sc_rma_op *op;

	op = sc_rmaop_get(peer, write ? SC_RMA_PUT : SC_RMA_GET, rma);
	if (!op)
		return -EAGAIN;
	sc_peer_begin(peer, SC_WORK_BATCHING);
	sc_list_append(&peer->batch.ops, &op->of_peer);
	peer->rma.pending++;
	peer->batch.bytes += size;
	peer->ep->counters.rma_batched++;
	if (++peer->batch.count >= SC_REMOTE_MAX || peer->batch.bytes >= SC_ROUTE_TOGETHER)
		(void)sc_direct_settle_slow(
			peer); /* a later poll does the rest, or they end with the peer */
	return 0;
}

int sc_direct_progress(struct sc_peer *peer)
{
	uint32_t before = peer->rma.pending;

	if (peer->link != SC_LINK_DOWN)
		(void)sc_direct_settle_slow(peer);
	return (int)(before - peer->rma.pending);
}

void sc_direct_fini(struct sc_ep *ep)
{
	if (sc_seg_is_here(ep->seg)) /* a forked child leaves them to its parent */
		sc_list_for_safe (entry, next, &ep->work[SC_WORK_BATCHING])
			(void)sc_direct_progress(
				sc_list_entry(entry, struct sc_peer, work[SC_WORK_BATCHING]));
}
