/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rma.c: one-sided operations, the side that begins them.
 *
 *   direct     The peer lets its memory be touched and this process may (CMA, or the same process): check
 *              the key in the peer's table, copy, check again. Over when the call returns; the peer's
 *              processor has no part in it.
 *   requests   Else, and for all atomics: records in the peer's ring, which it executes in order (serve.c)
 *              and answers. Operations queue here as long as they have records to write.
 *   note       A direct operation that the peer's application is to hear of (remote data, counters there)
 *              writes a record that says so, after its bytes.
 *
 * A direct copy goes in steps, each under hazard words in the slot that we have claimed with the peer:
 *
 *   1. hazard words name the registrations                                 (H1)
 *   2. full fence
 *   3. in use, in bounds, allowed? is the endpoint open?                   (H2)
 *   4. copy
 *   5. in use still? else the operation fails, whatever has been copied
 *   6. hazard words back to 0, release
 *
 * The owner closes in the other order: registration out of use, full fence, then it looks at the hazard
 * words. So it sees H1, or H2 sees it closed (mr.pml). If this process dies in between, its hazard words
 * stay: its life lock is free, and the owner goes on. If it stops, the owner's close says so. If the owner
 * dies: its table stays mapped here, its memory is gone, the copy fails; before a write its life lock or its
 * cookie must be seen (sc_peer_is_there()), as a pid may be used again.
 *
 * Order. Direct operations are over one after the other. Requests of one peer are executed in their order,
 * but for gets, which may take their time: a put waits until the gets before it are answered. And for puts
 * that the peer is to copy from our memory and cannot: they are written again, in their order, so nothing
 * else is written behind one that is not answered. Between operations on memory and atomics there is none.
 *
 * A peer that does not read its ring is pushed back: so many operations may be pending with one
 * (OPS_MAX), then it is -EAGAIN, before anything is done.
 *
 * What peers answer is checked against what they were asked: more bytes than asked for, or an answer to
 * nothing, ends the connection.
 */
#include "rma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "inject.h"
#include "iov.h"
#include "log.h"
#include "peer.h"
#include "record.h"

/* Bytes copied under one raising of the hazard words. */
#define STEP ((size_t)4 << 20)
/* Bounce buffers of a put's record: small enough for both sides to copy at the same time. */
#define PUT_BUFS 4
/* Bytes of operands, and of former values, in a record. */
#define OPERANDS_MAX (SC_ABI_ATOMIC_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)
#define VALUES_MAX (SC_ABI_RESULT_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)
/* Operations with one peer that are not over. */
#define OPS_MAX 1024

/* ---- completions ----------------------------------------------------------------------------- */

/* How an operation ends. */
struct ending {
	void *context;
	struct sc_cntr *cntr;
	uint64_t cq_flags;
	uint32_t flags;
	enum sc_event event;
	size_t size, moved;
	int error; /* negative errno */
};

static void complete(struct sc_ep *ep, const struct ending *ending)
{
	struct sc_comp *comp;

	sc_ep_count(ep, ending->event, ending->cntr, ending->flags, ending->error);
	if (!ep->tx_cq || (!ending->error && ending->flags & SC_SILENT))
		return;
	comp = sc_cq_reserve(ep->tx_cq);
	if (!comp)
		return;
	*comp = (struct sc_comp){ .context = ending->context,
				  .cq_flags = ending->cq_flags,
				  .len = ending->size,
				  .olen = ending->error ? ending->moved : 0,
				  .err = -ending->error };
	sc_cq_commit(ep->tx_cq);
}

static bool wants_data(const struct sc_rma *rma)
{
	return (rma->flags & (SC_RMA_WRITE | SC_SEND_DATA)) == (SC_RMA_WRITE | SC_SEND_DATA);
}

/* ---- direct ---------------------------------------------------------------------------------- */

/* A direct copy under way. */
struct direct {
	struct sc_peer *peer;
	const struct sc_rma *rma;
	struct sc_regtab_view table;
	struct sc_reg_ref refs[SC_REMOTE_MAX];
	struct sc_reg_span spans[SC_REMOTE_MAX];
	struct sc_rma_op *note; /* the peer is to hear of it */
	size_t size, done;
};

static bool may_touch(const struct sc_peer *peer)
{
	uint32_t capabilities = peer->seg->header.capabilities;

	return capabilities & SC_ABI_CAP_RMA && !(capabilities & SC_ABI_CAP_STRICT) &&
	       (peer->can_read || peer->seg->local);
}

static void hazards_raise(const struct direct *direct)
{
	struct sc_peer *peer = direct->peer;
	struct sc_abi_hazards *hazards = &sc_seg_slot(peer->seg, peer->out_slot)->hazards;
	uint64_t count = ++peer->hazard_count << 32;

	for (size_t i = 0; i < direct->rma->remote_count; i++)
		sc_store_relaxed_64(&hazards->words[i], count | (direct->refs[i].index + 1));
	/* H1 before H2; pairs with the fence in sc_reg_close() */
	sc_fence_seq_cst();
	(void)SC_INJECT("rma.hazard");
}

static void hazards_clear(const struct direct *direct)
{
	struct sc_peer *peer = direct->peer;
	struct sc_abi_hazards *hazards = &sc_seg_slot(peer->seg, peer->out_slot)->hazards;

	(void)SC_INJECT("rma.copied");
	for (size_t i = 0; i < direct->rma->remote_count; i++)
		sc_store_release_64(&hazards->words[i], 0);
}

static int find_all(struct direct *direct)
{
	for (size_t i = 0; i < direct->rma->remote_count; i++) {
		int ret = sc_regtab_find(&direct->table, direct->rma->remote[i].key, &direct->refs[i]);

		if (ret)
			return ret;
	}
	return 0;
}

static int check_all(struct direct *direct)
{
	const struct sc_rma *rma = direct->rma;
	uint32_t access = rma->flags & SC_RMA_WRITE ? SC_REG_WRITE : SC_REG_READ;

	if (sc_load_acquire_32(&sc_seg_presence(direct->peer->seg)->state) == SC_ABI_CLOSED)
		return -ECONNRESET;
	for (size_t i = 0; i < rma->remote_count; i++) {
		int ret = sc_regtab_check(&direct->table, &direct->refs[i], rma->remote[i].addr,
					  rma->remote[i].len, access, &direct->spans[i]);

		if (ret)
			return ret;
	}
	return 0;
}

static bool all_hold(const struct direct *direct)
{
	for (size_t i = 0; i < direct->rma->remote_count; i++)
		if (!sc_regtab_holds(&direct->table, &direct->refs[i]))
			return false;
	return true;
}

/* Where the next bytes are in the peer's address space. Returns the elements, *len: their bytes. */
static int remote_slice(const struct direct *direct, struct iovec iov[SC_IOV_MAX], size_t *len)
{
	uint64_t skip = direct->done;
	int count = 0;

	*len = 0;
	for (size_t i = 0; i < direct->rma->remote_count && *len < STEP && count < SC_IOV_MAX; i++) {
		const struct sc_remote *remote = &direct->rma->remote[i];
		uint64_t here, got;
		int ret;

		if (skip >= remote->len) {
			skip -= remote->len;
			continue;
		}
		here = remote->len - skip < STEP - *len ? remote->len - skip : STEP - *len;
		got = here;
		ret = sc_regtab_slice(&direct->table, &direct->spans[i], remote->addr + skip, &got,
				      iov + count, (size_t)(SC_IOV_MAX - count));
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

static int copy(const struct direct *direct, const struct iovec *remote, size_t remote_count, size_t len,
		size_t *moved)
{
	const struct sc_rma *rma = direct->rma;
	struct sc_peer *peer = direct->peer;
	struct iovec local[SC_IOV_MAX];
	size_t local_count = sc_iov_slice(rma->iov, rma->iov_count, direct->done, len, local);
	int ret;

	*moved = 0;
	if (peer->seg->local) {
		if (rma->flags & SC_RMA_WRITE)
			sc_iov_copy(remote, remote_count, local, local_count, len);
		else
			sc_iov_copy(local, local_count, remote, remote_count, len);
		ret = 0;
	} else if (rma->flags & SC_RMA_WRITE) {
		ret = sc_peer_is_there(peer) ? 0 : -ESRCH;
		if (!ret)
			ret = sc_cma_write(peer->cma.pid, local, local_count, remote, remote_count, len,
					   moved);
		if (ret == -EFAULT)
			ret = sc_cma_fault(&peer->cma);
	} else {
		ret = sc_cma_read(&peer->cma, local, local_count, remote, remote_count, len);
	}
	if (!ret)
		*moved = len;
	return ret;
}

static struct sc_rma_op *rma_op(struct sc_peer *peer, enum sc_rma_kind kind, const struct sc_rma *rma);

/* A note is made before the copy, which cannot be taken back if there is no memory for one. */
static int prepare_note(struct direct *direct)
{
	bool wanted =
		wants_data(direct->rma) || direct->peer->seg->header.capabilities & SC_ABI_CAP_EVENTS;

	for (size_t i = 0; i < direct->rma->remote_count; i++)
		wanted |= direct->spans[i].flags & SC_REG_EVENT;
	if (wanted && !direct->note)
		direct->note = rma_op(direct->peer, SC_RMA_NOTE, direct->rma);
	return wanted && !direct->note ? -EAGAIN : 0;
}

static int step(struct direct *direct)
{
	struct iovec remote[SC_IOV_MAX];
	size_t len = 0, moved = 0;
	int ret;

	hazards_raise(direct);
	ret = check_all(direct);
	if (!ret)
		ret = prepare_note(direct);
	if (!ret && direct->size) {
		ret = remote_slice(direct, remote, &len);
		if (ret >= 0)
			ret = copy(direct, remote, (size_t)ret, len, &moved);
	}
	if (!ret && !all_hold(direct)) {
		ret = -EKEYREJECTED;
		moved = 0; /* of what is not known */
	}
	hazards_clear(direct);
	direct->done += moved;
	return ret;
}

/* What has gone wrong with the copy? -EOPNOTSUPP: this way does not work with this peer, another may. */
static int direct_failed(struct sc_peer *peer, int error)
{
	switch (error) {
	case -EFAULT:
		return -EIO;
	case -EKEYREJECTED:
	case -EACCES:
	case -EINVAL:
		return error;
	case -EAGAIN:
	case -ESRCH:
		if (sc_peer_is_dead(peer)) {
			error = -ECONNRESET;
			break;
		}
		if (error == -EAGAIN)
			return error;
		/* fallthrough */
	default: /* -EPERM, -ENOSYS, -ENOMEM... */
		sc_info("%s: one copy is not possible any more (%s); one-sided operations are its own work "
			"from now on",
			peer->address, strerror(-error));
		peer->can_read = false;
		return -EOPNOTSUPP;
	case -ECONNRESET:
		break;
	}
	sc_info("%s: its process has closed it or ended; one-sided operations fail", peer->address);
	sc_peer_ended(peer);
	return error;
}

/* The whole operation. -EAGAIN: not now, nothing has been done; -EOPNOTSUPP: use requests. */
static int run_direct(struct direct *direct)
{
	struct sc_peer *peer = direct->peer;
	int ret;

	direct->table = sc_seg_table(peer->seg);
	ret = find_all(direct);
	while (!ret) {
		ret = step(direct);
		if (direct->done >= direct->size)
			break;
	}
	peer->ep->counters.rma_direct_bytes += direct->done;
	return ret ? direct_failed(peer, ret) : 0;
}

/* ---- operations that queue ------------------------------------------------------------------- */

static struct sc_rma_op *op_begin(struct sc_peer *peer, enum sc_rma_kind kind,
				  const struct sc_remote *remote, size_t remote_count)
{
	struct sc_ep *ep = peer->ep;
	struct sc_rma_op *op = sc_slab_get(&ep->rma_ops);

	if (!op)
		return NULL;
	op->kind = kind;
	op->peer = peer;
	op->size = op->begun = op->moved = op->got = 0;
	op->started = op->far = op->again = false;
	op->answers = 0;
	op->error = 0;
	op->copy = NULL;
	op->iov_count = 0;
	op->remote_count = 0;
	for (size_t i = 0; i < remote_count; i++) {
		op->size += remote[i].len;
		/* an empty one has nothing to be asked for, unless there is nothing else */
		if (remote[i].len || (i + 1 == remote_count && !op->size))
			op->remote[op->remote_count++] = remote[i];
	}
	sc_list_init(&op->of_peer);
	return op;
}

/* One that has not been queued. */
static void op_forget(struct sc_rma_op *op)
{
	free(op->copy);
	sc_slab_put(&op->peer->ep->rma_ops, op);
}

static void op_end(struct sc_rma_op *op, int error)
{
	struct sc_ep *ep = op->peer->ep;
	const struct ending ending = { .context = op->context,
				       .cntr = op->cntr,
				       .cq_flags = op->cq_flags,
				       .flags = op->flags,
				       .event = op->event,
				       .size = op->size,
				       .moved = op->moved,
				       .error = error };

	complete(ep, &ending);
	sc_list_remove(&op->of_peer);
	op->peer->rma_pending--;
	op_forget(op);
}

static int advance(struct sc_peer *peer);

/* Behind the others; what has room is written at once. */
static void op_queue(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;

	peer->rma_pending++;
	sc_list_append(&peer->rma_queued, &op->of_peer);
	if (peer->rma_queued.next == &op->of_peer)
		(void)advance(peer);
	if (!sc_list_empty(&peer->rma_queued) && sc_list_empty(&peer->rma_busy))
		sc_list_append(&peer->ep->rma_busy, &peer->rma_busy);
}

/* Everything that it asked for has been answered. */
static void op_finish(struct sc_rma_op *op)
{
	if (op->error || op->kind == SC_RMA_NOTE || !(op->flags & SC_SEND_DATA)) {
		op_end(op, op->error);
		return;
	}
	op->kind = SC_RMA_NOTE;
	sc_list_remove(&op->of_peer);
	op->peer->rma_pending--;
	op_queue(op);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The part of the remote side that begins at op->begun: where it is, *left: its bytes. */
static const struct sc_remote *remote_at(const struct sc_rma_op *op, uint64_t *offset, uint64_t *left)
{
	const struct sc_remote *remote = op->remote;
	uint64_t skip = op->begun;

	while (skip && skip >= remote->len)
		skip -= remote++->len;
	*offset = skip;
	*left = remote->len - skip;
	return remote;
}

/* Flag of a record that is written up to there: the peer counts the operation with its last. */
static uint32_t event_flag(const struct sc_rma_op *op)
{
	return op->begun == op->size ? SC_ABI_F_EVENT : 0;
}

static void asked(struct sc_rma_op *op)
{
	op->answers++;
	op->peer->rma_requests++;
	op->peer->rma_gets += op->kind == SC_RMA_GET;
	op->peer->rma_fars += op->far;
	op->peer->ep->counters.rma_requests++;
}

/* The next bytes of a put, in bounce buffers. */
static bool put_write(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_ep *ep = peer->ep;
	uint64_t words[7], offset, left;
	struct sc_abi_put *record = (struct sc_abi_put *)words;
	const struct sc_remote *remote = remote_at(op, &offset, &left);
	uint32_t buffers = left ? PUT_BUFS : 0, size;
	bool last;

	while (buffers && !sc_record_may_lend(peer, buffers, 0))
		if (!(buffers /= 2))
			return false;
	size = buffers << ep->buf_shift;
	if (left < size)
		size = (uint32_t)left;
	memset(words, 0, sizeof(words));
	record->op = sc_slab_id(op);
	record->key = remote->key;
	record->addr = remote->addr + offset;
	sc_record_fill(peer, op->iov, op->iov_count, op->begun, size, record->bufs);
	op->begun += size;
	last = op->begun == op->size;
	sc_record_put(peer, SC_ABI_PUT, last ? SC_ABI_F_ACK | SC_ABI_F_EVENT : 0, size, words);
	if (last)
		asked(op);
	return true;
}

/* The next part of a put that the peer fetches, or of a get that it may store. */
static bool far_write(struct sc_rma_op *op, enum sc_abi_kind kind)
{
	struct sc_peer *peer = op->peer;
	struct iovec segments[SC_IOV_MAX];
	struct sc_abi_line *line;
	struct sc_abi_far *record;
	uint64_t offset, left;
	const struct sc_remote *remote = remote_at(op, &offset, &left);
	size_t count = sc_iov_slice(op->iov, op->iov_count, op->begun, left, segments);
	uint32_t lines = SC_ABI_SEGMENT_LINES((uint32_t)count);

	if (sc_record_room(peer, lines))
		return false;
	line = sc_ring_reserve(&peer->tx);
	record = (struct sc_abi_far *)line->bytes;
	*record = (struct sc_abi_far){
		.op = sc_slab_id(op), .key = remote->key, .addr = remote->addr + offset, .size = left
	};
	if (count)
		record->first =
			(struct sc_abi_segment){ (uintptr_t)segments[0].iov_base, segments[0].iov_len };
	(void)sc_record_segments_write(peer, segments, count);
	op->begun += left;
	(void)SC_INJECT("rma.far");
	sc_ring_commit(&peer->tx, sc_ring_ctl(kind, event_flag(op), lines, (uint32_t)count), lines);
	asked(op);
	return true;
}

static bool goes_far(const struct sc_rma_op *op)
{
	return !op->copy && !op->again && op->size > op->peer->ep->config.eager_max &&
	       op->peer->fetch != SC_FETCH_NO;
}

/* The first of these tells whether the peer can; none is written behind it until that is known. */
static bool put_far_write(struct sc_rma_op *op)
{
	if (!far_write(op, SC_ABI_PUT_FAR))
		return false;
	if (op->peer->fetch == SC_FETCH_UNKNOWN)
		op->peer->fetch = SC_FETCH_ASKED;
	return true;
}

static bool atomic_fetches(const struct sc_rma_op *op)
{
	return op->atomic_kind != SC_ATOMIC_BASE;
}

/* The next elements of an atomic operation. */
static bool atomic_write(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	size_t element = sc_atomic_size(op->atomic_type);
	uint64_t offset, left;
	const struct sc_remote *remote = remote_at(op, &offset, &left);
	uint32_t sets = op->atomic_code == SC_ATOMIC_READ      ? 0
			: op->atomic_kind == SC_ATOMIC_COMPARE ? 2
							       : 1;
	size_t fit = (sets ? OPERANDS_MAX / sets : VALUES_MAX) / element * element;
	uint32_t size = (uint32_t)(left < fit ? left : fit);
	uint32_t lines = sc_lines_count(SC_ABI_ATOMIC_FIRST, sets * size);
	struct sc_abi_atomic *record;
	struct sc_abi_line *line;
	uint8_t operands[OPERANDS_MAX];

	if (sc_record_room(peer, lines))
		return false;
	line = sc_ring_reserve(&peer->tx);
	record = (struct sc_abi_atomic *)line->bytes;
	record->op = sc_slab_id(op);
	record->key = remote->key;
	record->addr = remote->addr + offset;
	record->kind = (uint8_t)op->atomic_kind;
	record->type = (uint8_t)op->atomic_type;
	record->code = (uint8_t)op->atomic_code;
	record->pad = 0;
	record->count = (uint32_t)(size / element);
	for (uint32_t i = 0; i < sets; i++)
		memcpy(operands + i * size, op->copy + i * op->size + op->begun, size);
	sc_lines_write(peer->tx.lines, line, SC_ABI_ATOMIC_FIRST, operands, sets * size);
	op->begun += size;
	(void)SC_INJECT("rma.atomic");
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_ATOMIC, event_flag(op), lines, sets * size), lines);
	asked(op);
	return true;
}

static void note_put(struct sc_peer *peer, const struct sc_rma_op *op)
{
	uint64_t words[7] = { 0 };
	struct sc_abi_note *note = (struct sc_abi_note *)words;
	uint32_t flags = op->flags & SC_SEND_DATA ? SC_ABI_F_DATA : 0;

	note->data = op->data;
	note->key = op->remote[0].key;
	note->len = op->size;
	note->access = op->event == SC_EVENT_WRITE ? SC_REG_WRITE : SC_REG_READ;
	if (!op->started) /* else the peer has served it, and counted */
		flags |= SC_ABI_F_EVENT;
	sc_record_put(peer, SC_ABI_NOTE, flags, 0, words);
}

/* One more record of the operation. False: it has to wait. */
static bool write_one(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;

	if (sc_record_room(peer, 1))
		return false;
	if (op->kind == SC_RMA_NOTE) {
		note_put(peer, op);
		return true;
	}
	if (peer->rma_requests >= SC_RMA_REQUESTS_MAX || peer->fetch == SC_FETCH_ASKED)
		return false;
	if (op->kind == SC_RMA_PUT && !op->begun)
		op->far = goes_far(op);
	if (peer->rma_fars && !op->far)
		return false;
	op->started = true;
	switch (op->kind) {
	case SC_RMA_PUT:
		if (peer->rma_gets)
			return false;
		return op->far ? put_far_write(op) : put_write(op);
	case SC_RMA_GET:
		return far_write(op, SC_ABI_GET);
	default:
		return atomic_write(op);
	}
}

static int advance(struct sc_peer *peer)
{
	int written = 0;

	while (!sc_list_empty(&peer->rma_queued) && peer->link == SC_LINK_UP) {
		struct sc_rma_op *op = sc_list_entry(peer->rma_queued.next, struct sc_rma_op, of_peer);

		if (!op->error) {
			if (!write_one(op))
				break;
			written++;
			if (op->kind != SC_RMA_NOTE && op->begun < op->size)
				continue;
		}
		sc_list_remove(&op->of_peer);
		if (op->answers)
			sc_list_append(&peer->rma_waiting, &op->of_peer);
		else
			op_finish(op);
	}
	return written;
}

int sc_rma_progress(struct sc_ep *ep)
{
	int written = 0;

	sc_list_for_safe (entry, next, &ep->rma_busy) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, rma_busy);

		written += advance(peer);
		if (sc_list_empty(&peer->rma_queued))
			sc_list_remove(&peer->rma_busy);
	}
	return written;
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct sc_rma_op *op_of_peer(struct sc_peer *peer, sc_abi_op id)
{
	struct sc_rma_op *op = sc_slab_find(&peer->ep->rma_ops, id);

	return op && op->peer == peer && op->answers ? op : NULL;
}

/*
 * The peer cannot copy from our memory: once more, through bounce buffers, before what has waited, and behind
 * those that it has said so of before.
 */
static void put_near(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_list *behind = &peer->rma_queued;

	op->far = false;
	op->begun = op->moved = 0;
	sc_list_remove(&op->of_peer);
	while (behind->next != &peer->rma_queued &&
	       sc_list_entry(behind->next, struct sc_rma_op, of_peer)->again)
		behind = behind->next;
	sc_list_prepend(behind, &op->of_peer);
	if (sc_list_empty(&peer->rma_busy))
		sc_list_append(&peer->ep->rma_busy, &peer->rma_busy);
}

/* Is all written and answered? One that failed has nothing more to write. */
static void answered(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;

	op->answers--;
	peer->rma_requests--;
	peer->rma_gets -= op->kind == SC_RMA_GET;
	peer->rma_fars -= op->far;
	if (op->answers)
		return;
	if (op->far && op->again && !op->error)
		put_near(op);
	else if (op->begun == op->size || op->error)
		op_finish(op);
}

static int take_done(struct sc_peer *peer, const struct sc_abi_ack *ack)
{
	struct sc_rma_op *op = op_of_peer(peer, ack->op);

	if (!op || ack->status < 0 || ack->status > 4095 || ack->moved > op->size - op->moved)
		return -EPROTO;
	if (op->far && ack->status == EOPNOTSUPP) {
		peer->fetch = SC_FETCH_NO;
		op->again = true;
		answered(op);
		return 0;
	}
	if (op->far && peer->fetch == SC_FETCH_ASKED) /* a put that was wrong otherwise tells nothing */
		peer->fetch = ack->status ? SC_FETCH_UNKNOWN : SC_FETCH_YES;
	if (op->kind == SC_RMA_GET && !ack->status && op->got && op->got != ack->moved)
		return -EPROTO;
	if (op->kind == SC_RMA_ATOMIC && !ack->status && atomic_fetches(op))
		return -EPROTO;
	op->got = 0;
	op->moved += ack->moved;
	if (ack->status && !op->error)
		op->error = -ack->status;
	answered(op);
	return 0;
}

static int take_got(struct sc_peer *peer, const struct sc_abi_got *record, uint32_t size)
{
	struct sc_rma_op *op = op_of_peer(peer, record->op);
	struct iovec bufs[SC_ABI_RECORD_BUFS];
	size_t offset;
	uint32_t count;

	if (!op || op->kind != SC_RMA_GET || !peer->seg || record->offset != op->got ||
	    op->got + size > op->size - op->moved || !sc_seg_has_bufs(peer->seg, record->bufs, size))
		return -EPROTO;
	count = sc_record_bufs(peer->seg, record->bufs, size, bufs);
	offset = op->moved + op->got;
	for (uint32_t i = 0; i < count; i++) {
		sc_iov_write(op->iov, op->iov_count, offset, bufs[i].iov_base, bufs[i].iov_len);
		offset += bufs[i].iov_len;
	}
	op->got += size;
	return 0;
}

static int take_result(struct sc_peer *peer, uint64_t ctl, const struct sc_abi_line *line)
{
	const struct sc_abi_result *record = (const struct sc_abi_result *)line->bytes;
	struct sc_rma_op *op = op_of_peer(peer, record->op);
	uint32_t size = sc_ctl_size(ctl);
	uint8_t values[VALUES_MAX];

	if (!op || op->kind != SC_RMA_ATOMIC || !atomic_fetches(op) || size > VALUES_MAX ||
	    size > op->begun - op->moved || sc_lines_count(SC_ABI_RESULT_FIRST, size) != sc_ctl_lines(ctl))
		return -EPROTO;
	sc_lines_read(peer->rx.lines, line, SC_ABI_RESULT_FIRST, values, size);
	sc_iov_write(op->iov, op->iov_count, op->moved, values, size);
	op->moved += size;
	answered(op);
	return 0;
}

int sc_rma_take(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	uint64_t words[7];

	*why = "an answer to nothing that it was asked";
	memcpy(words, line->words, sizeof(words));
	switch (sc_ctl_kind(ctl)) {
	case SC_ABI_DONE:
		return take_done(peer, (const struct sc_abi_ack *)words);
	case SC_ABI_GOT:
		return take_got(peer, (const struct sc_abi_got *)words, sc_ctl_size(ctl));
	default:
		return take_result(peer, ctl, line);
	}
}

/* ---- post ------------------------------------------------------------------------------------ */

/* What both kinds ask first. */
static int prepare(struct sc_ep *ep, struct sc_peer *peer, uint32_t flags)
{
	if (peer->link == SC_LINK_DOWN)
		return peer->error;
	if (flags & SC_SEND_FENCE && (!sc_list_empty(&peer->ops) || peer->rma_pending))
		return -EAGAIN;
	if (ep->tx_cq && !(flags & SC_SILENT) && ep->tx_cq->tail - ep->tx_cq->head >= ep->tx_cq->limit)
		return -EAGAIN;
	if (peer->rma_pending >= OPS_MAX)
		return -EAGAIN;
	return peer->link == SC_LINK_UP ? 0 : sc_peer_connect(peer);
}

static size_t remote_size(const struct sc_remote *remote, size_t count)
{
	size_t size = 0;

	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(size, remote[i].len, &size))
			return SIZE_MAX;
	return size;
}

/* The operation's own copy of what it needs. */
static struct sc_rma_op *rma_op(struct sc_peer *peer, enum sc_rma_kind kind, const struct sc_rma *rma)
{
	struct sc_rma_op *op = op_begin(peer, kind, rma->remote, rma->remote_count);

	if (!op)
		return NULL;
	op->event = rma->flags & SC_RMA_WRITE ? SC_EVENT_WRITE : SC_EVENT_READ;
	op->flags = wants_data(rma) ? rma->flags : rma->flags & ~SC_SEND_DATA;
	op->context = rma->context;
	op->cntr = rma->cntr;
	op->cq_flags = rma->cq_flags;
	op->data = rma->data;
	if (kind == SC_RMA_NOTE) {
		op->moved = op->size;
		return op;
	}
	if (kind == SC_RMA_PUT && rma->flags & SC_SEND_INJECT && op->size) {
		op->copy = malloc(op->size);
		if (!op->copy) {
			op_forget(op);
			return NULL;
		}
		sc_iov_read(rma->iov, rma->iov_count, 0, op->copy, op->size);
		op->iov[op->iov_count++] = (struct iovec){ op->copy, op->size };
		return op;
	}
	for (size_t i = 0; i < rma->iov_count; i++)
		if (rma->iov[i].iov_len)
			op->iov[op->iov_count++] = rma->iov[i];
	return op;
}

/* As sc_rma_post(), or -EOPNOTSUPP: it cannot be done directly. */
static int post_direct(struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	struct direct direct = { .peer = peer, .rma = rma, .size = size };
	int ret = run_direct(&direct);
	struct ending ending = { .context = rma->context,
				 .cntr = rma->cntr,
				 .cq_flags = rma->cq_flags,
				 .flags = rma->flags,
				 .event = rma->flags & SC_RMA_WRITE ? SC_EVENT_WRITE : SC_EVENT_READ,
				 .size = size,
				 .moved = direct.done,
				 .error = ret };

	if (!ret && direct.note) {
		op_queue(direct.note); /* behind its bytes */
		return 0;
	}
	if (direct.note)
		op_forget(direct.note);
	if (ret == -EOPNOTSUPP || ret == -EAGAIN)
		return ret;
	complete(peer->ep, &ending);
	return 0;
}

int sc_rma_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_rma *rma)
{
	size_t size = sc_iov_size(rma->iov, rma->iov_count);
	struct sc_rma_op *op;
	int ret;

	if (!rma->remote_count || rma->remote_count > SC_REMOTE_MAX || rma->iov_count > SC_IOV_MAX ||
	    size != remote_size(rma->remote, rma->remote_count))
		return -EINVAL;
	if (rma->flags & SC_RMA_WRITE && rma->flags & SC_SEND_INJECT && size > SC_INJECT_MAX)
		return -EMSGSIZE;
	ret = prepare(ep, peer, rma->flags);
	if (ret)
		return ret;
	ret = may_touch(peer) ? post_direct(peer, rma, size) : -EOPNOTSUPP;
	if (ret == -EOPNOTSUPP) {
		op = rma_op(peer, rma->flags & SC_RMA_WRITE ? SC_RMA_PUT : SC_RMA_GET, rma);
		if (!op)
			return -EAGAIN;
		op_queue(op);
		ret = 0;
	}
	ep->counters.rma_ops += !ret;
	return ret;
}

static bool is_whole(const struct sc_atomic *atomic, size_t element)
{
	for (size_t i = 0; i < atomic->remote_count; i++)
		if (atomic->remote[i].len % element)
			return false;
	return true;
}

/* Are all vectors of the atomic as long as its remote side? */
static bool is_even(const struct sc_atomic *atomic, size_t size)
{
	if (atomic->code != SC_ATOMIC_READ && sc_iov_size(atomic->iov, atomic->iov_count) != size)
		return false;
	if (atomic->kind == SC_ATOMIC_COMPARE &&
	    sc_iov_size(atomic->compare, atomic->compare_count) != size)
		return false;
	return atomic->kind == SC_ATOMIC_BASE ||
	       (atomic->result_count <= SC_IOV_MAX &&
		sc_iov_size(atomic->result, atomic->result_count) == size);
}

static int atomic_copy(struct sc_rma_op *op, const struct sc_atomic *atomic)
{
	bool compares = atomic->kind == SC_ATOMIC_COMPARE;

	op->copy = malloc(op->size * (compares ? 2 : 1));
	if (!op->copy)
		return -ENOMEM;
	if (atomic->code != SC_ATOMIC_READ)
		sc_iov_read(atomic->iov, atomic->iov_count, 0, op->copy, op->size);
	if (compares)
		sc_iov_read(atomic->compare, atomic->compare_count, 0, op->copy + op->size, op->size);
	if (atomic->kind == SC_ATOMIC_BASE)
		return 0;
	for (size_t i = 0; i < atomic->result_count; i++)
		if (atomic->result[i].iov_len)
			op->iov[op->iov_count++] = atomic->result[i];
	return 0;
}

int sc_atomic_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_atomic *atomic)
{
	size_t element = sc_atomic_size(atomic->type);
	size_t size = remote_size(atomic->remote, atomic->remote_count);
	struct sc_rma_op *op;
	int ret;

	if (!sc_atomic_valid(atomic->kind, atomic->type, atomic->code))
		return -EOPNOTSUPP;
	if (!atomic->remote_count || atomic->remote_count > SC_REMOTE_MAX || !size ||
	    !is_whole(atomic, element) || !is_even(atomic, size))
		return -EINVAL;
	if (size > SC_ATOMIC_MAX)
		return -EMSGSIZE;
	ret = prepare(ep, peer, atomic->flags);
	if (ret)
		return ret;
	op = op_begin(peer, SC_RMA_ATOMIC, atomic->remote, atomic->remote_count);
	if (!op)
		return -EAGAIN;
	op->event = atomic->kind == SC_ATOMIC_BASE ? SC_EVENT_WRITE : SC_EVENT_READ;
	op->flags = atomic->flags & ~(uint32_t)SC_SEND_DATA;
	op->context = atomic->context;
	op->cntr = atomic->cntr;
	op->cq_flags = atomic->cq_flags;
	op->atomic_kind = atomic->kind;
	op->atomic_type = atomic->type;
	op->atomic_code = atomic->code;
	if (atomic_copy(op, atomic)) {
		op_forget(op);
		return -EAGAIN;
	}
	ep->counters.rma_ops++;
	op_queue(op);
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void end_list(struct sc_list *ops, int error)
{
	while (!sc_list_empty(ops))
		op_end(sc_list_entry(ops->next, struct sc_rma_op, of_peer), error);
}

void sc_rma_end_peer(struct sc_peer *peer, int error)
{
	end_list(&peer->rma_waiting, error);
	end_list(&peer->rma_queued, error);
	sc_list_remove(&peer->rma_busy);
	peer->rma_requests = peer->rma_gets = peer->rma_fars = 0;
}

static void forget(struct sc_list *ops)
{
	sc_list_for (entry, ops)
		free(sc_list_entry(entry, struct sc_rma_op, of_peer)->copy);
}

void sc_rma_fini(struct sc_ep *ep)
{
	sc_list_for (entry, &ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		forget(&peer->rma_queued);
		forget(&peer->rma_waiting);
	}
	sc_slab_fini(&ep->rma_ops);
}
