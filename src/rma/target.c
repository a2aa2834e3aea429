/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * target.c: serves requests of peers for operations on registered memory of this process, which the peers may not touch
 * themselves (strict, or no permission for CMA) or cannot (atomics).
 *
 *   put       bytes from the peer's bounce buffers, when the record is taken
 *   put far   bytes from the peer's memory, in steps; the record stays in the ring until all are here
 *   get       bytes to the peer's memory, directly or through bounce buffers of ours, in steps
 *   atomic    done when the record is taken; its result is an answer like a get's; without SC_ABI_F_ACK there is no answer
 *   note      the peer has accessed memory here by itself: tell the application
 *
 * Every step searches the private table (regtab.c), which no other process can write: a key that is closed between two
 * steps ends the request. Requests of a peer are executed in their order. Only the answers to gets and atomics may take
 * longer, in order too: they stay behind answers that wait for space (reply.c). An answer never blocks the ring:
 * without space it is kept here, up to SC_RMA_REQUESTS_MAX for each peer, which may have as many open requests.
 *
 * A get writes to the peer's memory under a hazard word in our slot with the peer, as direct.c describes. Until the
 * word is taken back, the peer's endpoint does not end and give the memory back. Nor does the get end, if the peer has
 * given us up (sc_peer_writes()).
 *
 * If the peer dies, each record of its requests is executed or not, and the answers go nowhere. If this process dies,
 * the operation ends with its peer.
 */
#define _GNU_SOURCE 1
#include "rma/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomicop.h"
#include "base/fault.h"
#include "base/iov.h"
#include "base/log.h"
#include "os/probe.h"
#include "link/peer.h"
#include "link/connect.h"
#include "link/record.h"
#include "link/reply.h"
#include "rma/access.h"
#include "rma/taker.h"

/* Bytes copied in one step. */
#define STEP ((uint64_t)4 << 20)
/* Bounce buffers of one record. */
#define GOT_BUFS 4
/* Records written for one peer in one call. */
#define BURST 16
/* Bytes of all elements of one atomic request; each may be in a range of its own. */
#define ATOMIC_BYTES sizeof(((struct sc_target_op *)NULL)->values)
#define OPERANDS_MAX (SC_ABI_ATOMIC_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)

/* Finds the registration of the request's earlier pieces only: its key may have been given to another since. */
static int find_again(const struct sc_ep *ep, struct sc_access *access, struct sc_reg_use *use)
{
	int ret = sc_access_find(ep, access);

	if (!ret && use->tag && use->key == access->key && use->tag != access->reg->tag)
		ret = -EKEYREJECTED;
	if (!ret)
		*use = (struct sc_reg_use){ access->key, access->reg->tag };
	return ret;
}

/* Makes an answer that takes longer. -ENOMEM; -EPROTO with *why: too many open requests. */
static int defer(struct sc_peer *peer, struct sc_target_op **deferred, const char **why)
{
	struct sc_target_op *op;

	if (peer->target.count >= SC_RMA_REQUESTS_MAX) {
		*why = "more one-sided requests at once than there may be";
		return -EPROTO;
	}
	op = malloc(sizeof(*op));
	if (!op)
		return -ENOMEM;
	op->done = 0;
	op->use.tag = 0;
	op->segment_count = 0;
	sc_list_append(&peer->target.ops, &op->of_peer);
	sc_peer_begin(peer, SC_WORK_SERVING);
	peer->target.count++;
	*deferred = op;
	return 0;
}

static void serve_end(struct sc_peer *peer, struct sc_target_op *op)
{
	sc_list_remove(&op->of_peer);
	peer->target.count--;
	free(op);
}

/* Tells whether there is space for a record, behind answers that wait for space. */
static bool has_room(struct sc_peer *peer, uint32_t lines)
{
	return sc_list_empty(&peer->reply.waiting) && !sc_record_room(peer, lines);
}

/*
 * When the target has refused a request of an operation, it does not do the later requests of that operation. The
 * initiator writes no more of them once it sees the error. The target ends the gets of a peer in order, and the atomics
 * as well. Each operation of several requests has an id of its own; `failed` is 0 if no request has failed.
 */
static bool has_failed(sc_abi_op failed, sc_abi_op op)
{
	return failed && failed == op;
}

/* Keeps the id of the operation whose request has failed, unless this is the last request, as its flags tell. */
static void keep_failed(sc_abi_op *failed, sc_abi_op op, uint32_t flags)
{
	*failed = flags & SC_ABI_F_EVENT ? 0 : op;
}

/* ---- puts ------------------------------------------------------------------------------------ */

/* Begins a put of several records, or goes on with one. */
static void put_begin(struct sc_peer *peer, sc_abi_op op)
{
	if (peer->target.put.op == op)
		return;
	peer->target.put.op = op;
	peer->target.put.use.tag = 0;
	peer->target.put.moved = 0;
	peer->target.put.error = 0;
}

static void put_end(struct sc_peer *peer, const struct sc_access *access, uint64_t ctl, uint64_t data)
{
	sc_abi_op op = peer->target.put.op;

	if (!peer->target.put.error) {
		sc_access_served(peer->ep, access, sc_ctl_flags(ctl));
		if (sc_ctl_flags(ctl) & SC_ABI_F_DATA)
			sc_access_complete(peer, data, peer->target.put.moved);
	}
	sc_reply_end(peer, SC_ABI_DONE, op, peer->target.put.moved, peer->target.put.error);
	peer->target.put.op = 0; /* no operation has this id */
	peer->target.put.moved = 0;
	peer->target.put.error = 0;
}

static int take_put(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_ep *ep = peer->ep;
	uint32_t size = sc_ctl_size(ctl);
	uint16_t numbers[SC_ABI_RECORD_BUFS];
	struct iovec bufs[SC_ABI_RECORD_BUFS];
	struct sc_abi_put record;
	struct sc_access access;
	uint32_t count;
	int ret;

	memcpy(&record, sc_ring_first(&peer->rx)->bytes, sizeof(record));
	memset(numbers, 0xff, sizeof(numbers)); /* there is no such buffer */
	memcpy(numbers, record.bufs, sizeof(record.bufs));
	if (!sc_seg_has_bufs(peer->seg, numbers, size)) {
		*why = "bounce buffers that do not exist";
		return -EPROTO;
	}
	put_begin(peer, record.op);
	count = sc_seg_bufs(peer->seg, numbers, size, bufs);
	access = (struct sc_access){ record.key, record.addr, size, SC_REG_WRITE, NULL };
	ret = find_again(ep, &access, &peer->target.put.use);
	if (!ret && !peer->target.put.error)
		ret = sc_access_copy(ep, &access, bufs, count);
	if (!peer->target.put.error)
		peer->target.put.error = ret;
	if (!peer->target.put.error)
		peer->target.put.moved += size;
	if (sc_ctl_flags(ctl) & SC_ABI_F_ACK)
		put_end(peer, &access, ctl, record.data);
	else if (!peer->target.put.error)
		sc_access_count(ep, access.reg, access.how, sc_ctl_flags(ctl) & SC_ABI_F_KEYED);
	return 0;
}

/* Reads a record that names the peer's memory, to copy from or to. */
static int far_read(struct sc_peer *peer, uint64_t ctl, struct sc_abi_far *record,
		    struct iovec segments[SC_ABI_RDV_SEGMENTS], const char **why)
{
	struct sc_record_segments list = { .line = sc_ring_first(&peer->rx),
					   .lines = sc_ctl_lines(ctl),
					   .count = sc_ctl_size(ctl) };

	memcpy(record, list.line->bytes, sizeof(*record));
	list.first = record->first;
	list.size = record->size;
	*why = sc_record_segments_read(peer, &list, segments);
	return *why ? -EPROTO : 0;
}

static int take_put_far(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct iovec segments[SC_ABI_RDV_SEGMENTS], from[SC_ABI_RDV_SEGMENTS], to[SC_IOV_MAX];
	struct sc_abi_far record;
	struct sc_access access;
	uint64_t here;
	size_t from_count, to_count;
	int ret = far_read(peer, ctl, &record, segments, why);

	if (ret)
		return ret;
	put_begin(peer, record.op);
	access = (struct sc_access){ record.key, record.addr, record.size, SC_REG_WRITE, NULL };
	peer->target.put.error = find_again(peer->ep, &access, &peer->target.put.use);
	if (!peer->target.put.error && !sc_peer_may_copy(peer))
		peer->target.put.error = -EOPNOTSUPP;
	if (!peer->target.put.error && peer->target.put.moved < record.size) {
		here = record.size - peer->target.put.moved < STEP ? record.size - peer->target.put.moved
								   : STEP;
		to_count = sc_reg_slice(access.reg, record.addr + peer->target.put.moved, &here, to,
					SC_IOV_MAX);
		from_count = sc_iov_slice(segments, sc_ctl_size(ctl), peer->target.put.moved, here, from);
		ret = sc_cma_read(&peer->cma, &(struct sc_cma_copy){ to, to_count, from, from_count, here });
		if (ret == -EFAULT) /* ours: an error; the peer's: the peer sends the bytes */
			peer->target.put.error = sc_probe_check(NULL, to, to_count, true) ? -EIO : -EFAULT;
		else
			peer->target.put.error = ret ? -EOPNOTSUPP : 0;
		if (!ret)
			peer->target.put.moved += here;
		else if (ret != -EFAULT)
			peer->can_read = SC_REACH_NO;
	}
	if (!peer->target.put.error && peer->target.put.moved < record.size)
		return -EAGAIN; /* the next poll does the next step, before later records */
	put_end(peer, &access, ctl, record.data);
	return 0;
}

/* ---- gets ------------------------------------------------------------------------------------ */

/* Tells whether a hazard word protects the peer's memory: the peer has not closed, has not given us up, and lives. */
static bool is_writable(const struct sc_peer *peer)
{
	return sc_peer_is_open(peer) && !sc_peer_has_given_up(peer) && sc_peer_is_there(peer);
}

/* Writes the next step to the peer's memory. -EOPNOTSUPP: not possible. */
static int get_store(struct sc_peer *peer, struct sc_target_op *op, const struct sc_access *access)
{
	uint64_t *hazard = &sc_seg_slot(peer->seg, peer->out_slot)->hazards.words[0];
	uint64_t here = op->size - op->done < STEP ? op->size - op->done : STEP;
	struct iovec from[SC_IOV_MAX], to[SC_ABI_RDV_SEGMENTS];
	size_t from_count = sc_reg_slice(access->reg, op->addr + op->done, &here, from, SC_IOV_MAX);
	size_t to_count = sc_iov_slice(op->segments, op->segment_count, op->done, here, to);
	struct sc_cma_copy copy;
	size_t moved;
	int ret;

	sc_store_relaxed_64(hazard, (uint64_t)++peer->rma.hazard_count << 32 | SC_ABI_HAZARD_OP);
	/* before the peer's state and answer are read; pairs with the fences in sc_regs_leave() and sc_peer_writes() */
	sc_fence_seq_cst();
	(void)SC_FAULT("target.hazard");
	copy = (struct sc_cma_copy){ from, from_count, to, to_count, here };
	ret = is_writable(peer) ? sc_cma_write(peer->cma.pid, &copy, &moved) : -ECONNRESET;
	(void)SC_FAULT("target.stored");
	sc_store_release_64(hazard, 0);
	(void)SC_FAULT("target.hazard_clear");
	if (ret == -EFAULT && sc_cma_fault(&peer->cma) == -EFAULT) {
		op->fault = true;
		return sc_probe_check(NULL, from, from_count, false) ? -EIO : -EOPNOTSUPP;
	}
	if (ret) {
		peer->can_read = SC_REACH_NO;
		return -EOPNOTSUPP;
	}
	op->done += here;
	return 0;
}

/* Writes the next record with bounce buffers. -EAGAIN: no space. */
static int get_bounce(struct sc_peer *peer, struct sc_target_op *op, const struct sc_access *access)
{
	struct sc_ep *ep = peer->ep;
	uint64_t left = op->size - op->done, words[7] = { 0 };
	struct sc_abi_got *record = (struct sc_abi_got *)words;
	struct iovec bufs[SC_ABI_RECORD_BUFS];
	uint32_t buffers = GOT_BUFS, size, count;
	struct sc_access part = *access;
	int ret;

	if (!has_room(peer, 1))
		return -EAGAIN;
	while (!sc_record_may_lend(peer, buffers, 0))
		if (!(buffers /= 2))
			return -EAGAIN;
	size = buffers << ep->buf_shift;
	if (left < size)
		size = (uint32_t)left;
	count = sc_record_lend(peer, size, record->bufs, bufs);
	part.addr += op->done;
	part.len = size;
	ret = sc_access_copy(ep, &part, bufs, count);
	(void)SC_FAULT("target.bounce");
	if (ret)
		size = 0; /* the record is sent all the same: it returns the buffers */
	record->op = op->op;
	record->offset = op->done;
	record->fault = op->fault;
	sc_record_put(peer, SC_ABI_GOT, 0, size, words);
	op->done += size;
	return ret;
}

static int get_some(struct sc_peer *peer, struct sc_target_op *op, const struct sc_access *access)
{
	if (!op->bounced && sc_peer_may_copy(peer)) {
		int ret = get_store(peer, op, access);

		if (ret != -EOPNOTSUPP)
			return ret;
	}
	if (!op->bounced)
		op->done = 0; /* buffers carry all of it */
	op->bounced = true;
	return get_bounce(peer, op, access);
}

/* Goes on with a get, by some records or one large copy. True: it has ended. */
static bool get_step(struct sc_peer *peer, struct sc_target_op *op, int *steps)
{
	struct sc_access access = { op->key, op->addr, op->size, SC_REG_READ, NULL };
	int ret = has_failed(peer->target.failed_get, op->op) ? -ECANCELED
							      : find_again(peer->ep, &access, &op->use);

	for (int i = 0; i < BURST && !ret && op->done < op->size && (!i || op->bounced); i++) {
		ret = get_some(peer, op, &access);
		*steps += ret != -EAGAIN;
	}
	if (ret == -EAGAIN || (!ret && op->done < op->size))
		return false;
	if (ret)
		keep_failed(&peer->target.failed_get, op->op, op->flags);
	else
		sc_access_served(peer->ep, &access, op->flags);
	sc_reply_end(peer, SC_ABI_DONE, op->op, op->done, ret);
	return true;
}

/* ---- atomics --------------------------------------------------------------------------------- */

/* A request for an atomic operation, copied and checked, and its memory. */
struct atomic {
	struct sc_abi_atomic record;
	struct sc_atomicop op;
	size_t size; /* bytes of all elements */
	struct sc_access access;
	uint32_t flags; /* of the record */
	struct iovec pieces[ATOMIC_BYTES];
	size_t piece_count;
	uint8_t operands[OPERANDS_MAX];
};

static const char *atomic_read(struct sc_peer *peer, uint64_t ctl, struct atomic *atomic)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	const struct sc_abi_atomic *record = &atomic->record;
	struct sc_atomicop *op = &atomic->op;
	uint32_t bytes = sc_ctl_size(ctl), sets;

	memcpy(&atomic->record, line->bytes, sizeof(atomic->record));
	atomic->flags = sc_ctl_flags(ctl);
	if (!sc_atomic_valid(record->kind, record->type, record->code))
		return "an atomic operation that does not exist";
	atomic->size = (size_t)record->count * sc_atomic_size(record->type);
	sets = record->code == SC_ATOMIC_READ ? 0 : record->kind == SC_ATOMIC_COMPARE ? 2 : 1;
	if (bytes > OPERANDS_MAX || bytes != sets * atomic->size || !atomic->size ||
	    atomic->size > ATOMIC_BYTES || sc_ctl_lines(ctl) != sc_lines_count(SC_ABI_ATOMIC_FIRST, bytes))
		return "an atomic operation of another size than its record";
	sc_lines_read(&peer->rx.at, line, SC_ABI_ATOMIC_FIRST, atomic->operands, bytes);
	*op = (struct sc_atomicop){ .kind = record->kind,
				    .type = record->type,
				    .code = record->code,
				    .operands = atomic->operands,
				    .compare = atomic->operands + (sets == 2 ? atomic->size : 0) };
	return NULL;
}

static uint32_t access_of(const struct sc_atomicop *op)
{
	if (op->code == SC_ATOMIC_READ)
		return SC_REG_READ;
	return op->kind == SC_ATOMIC_BASE ? SC_REG_WRITE : SC_REG_READ | SC_REG_WRITE;
}

/* Finds the memory: registered, writable. */
static int atomic_find(struct sc_ep *ep, struct atomic *atomic)
{
	const struct sc_abi_atomic *record = &atomic->record;
	struct sc_access *access = &atomic->access;
	uint64_t len = atomic->size;
	int ret;

	*access = (struct sc_access){ record->key, record->addr, len, access_of(&atomic->op), NULL };
	ret = sc_access_find(ep, access);
	if (ret)
		return ret;
	atomic->piece_count = sc_reg_slice(access->reg, record->addr, &len, atomic->pieces, ATOMIC_BYTES);
	ret = sc_probe_check(sc_access_memory(ep, access), atomic->pieces, atomic->piece_count,
			     record->code != SC_ATOMIC_READ);
	return ret == -ENOSYS ? 0 : ret; /* a fault is then the application's own */
}

static void result_put(struct sc_peer *peer, sc_abi_op op, const uint8_t *values, uint32_t size)
{
	uint32_t lines = sc_lines_count(SC_ABI_RESULT_FIRST, size);
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);

	line->words[0] = op;
	(void)SC_FAULT("target.result_op");
	sc_lines_write(&peer->tx.at, line, SC_ABI_RESULT_FIRST, values, size);
	(void)SC_FAULT("target.result");
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_RESULT, 0, lines, size), lines);
}

/* Tells whether the result may go into the ring: there is space, and nothing before it. */
static bool has_way(struct sc_peer *peer, uint32_t size)
{
	return sc_list_empty(&peer->target.ops) &&
	       has_room(peer, sc_lines_count(SC_ABI_RESULT_FIRST, size));
}

/* Does an atomic that fetches. It gets a place for the result first, because the atomic cannot be done twice. */
static int atomic_fetch(struct sc_peer *peer, struct atomic *atomic, const char **why)
{
	uint32_t size = (uint32_t)atomic->size;
	struct sc_target_op *op = NULL;
	uint8_t values[ATOMIC_BYTES];
	int ret;

	if (!sc_peer_can_answer(peer))
		return 0;
	if (!has_way(peer, size)) {
		ret = defer(peer, &op, why);
		if (ret)
			return ret;
		op->op = atomic->record.op;
		op->result = true;
		op->size = size;
	}
	atomic->op.result = op ? op->values : values;
	ret = sc_atomicop_apply(&atomic->op, atomic->pieces, atomic->piece_count);
	if (ret) {
		if (op)
			serve_end(peer, op);
		keep_failed(&peer->target.failed_atomic, atomic->record.op, atomic->flags);
		sc_reply_end(peer, SC_ABI_DONE, atomic->record.op, 0, ret);
		return 0;
	}
	if (!op)
		result_put(peer, atomic->record.op, values, size);
	sc_access_served(peer->ep, &atomic->access, atomic->flags);
	return 0;
}

/* Logs an operation that its initiator takes as done. The first one of a peer is a warning. */
static void atomic_lost(struct sc_peer *peer, int error)
{
	sc_log(peer->target.lost ? SC_LOG_INFO : SC_LOG_WARN,
	       "%s: an atomic operation of this peer was not done: %s. It was complete for the peer when it was "
	       "posted; close the registration, or unmap its memory, after the peer's last operation",
	       peer->address, strerror(-error));
	peer->target.lost = true;
}

static int take_atomic(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct atomic atomic;
	int ret;

	*why = atomic_read(peer, ctl, &atomic);
	if (*why)
		return -EPROTO;
	ret = has_failed(peer->target.failed_atomic, atomic.record.op) ? -ECANCELED
								       : atomic_find(peer->ep, &atomic);
	if (!ret && atomic.op.kind != SC_ATOMIC_BASE)
		return atomic_fetch(peer, &atomic, why);
	if (!ret)
		ret = sc_atomicop_apply(&atomic.op, atomic.pieces, atomic.piece_count);
	if (ret)
		keep_failed(&peer->target.failed_atomic, atomic.record.op, atomic.flags);
	else
		sc_access_served(peer->ep, &atomic.access, atomic.flags);
	if (sc_ctl_flags(ctl) & SC_ABI_F_ACK)
		sc_reply_end(peer, SC_ABI_DONE, atomic.record.op, ret ? 0 : atomic.size, ret);
	else if (ret)
		atomic_lost(peer, ret);
	return 0;
}

/* ---- progress -------------------------------------------------------------------------------- */

static bool result_step(struct sc_peer *peer, struct sc_target_op *op)
{
	if (!has_room(peer, sc_lines_count(SC_ABI_RESULT_FIRST, (uint32_t)op->size)))
		return false;
	result_put(peer, op->op, op->values, (uint32_t)op->size);
	return true;
}

/* Serves the requests of the peer, in order, while there is space. */
int sc_target_progress(struct sc_peer *peer)
{
	int steps = 0;

	while (!sc_list_empty(&peer->target.ops) && peer->link == SC_LINK_UP) {
		struct sc_target_op *op =
			sc_list_entry(peer->target.ops.next, struct sc_target_op, of_peer);

		if (!(op->result ? result_step(peer, op) : get_step(peer, op, &steps)))
			break;
		steps++;
		serve_end(peer, op);
	}
	if (sc_list_empty(&peer->target.ops))
		sc_list_remove(&peer->work[SC_WORK_SERVING]);
	return steps;
}

static int take_get(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct iovec segments[SC_ABI_RDV_SEGMENTS];
	struct sc_abi_far record;
	struct sc_target_op *op;
	int ret = far_read(peer, ctl, &record, segments, why);

	if (ret)
		return ret;
	if (!sc_peer_can_answer(peer))
		return 0;
	ret = defer(peer, &op, why);
	if (ret)
		return ret;
	op->op = record.op;
	op->result = op->bounced = op->fault = false;
	op->flags = sc_ctl_flags(ctl);
	op->key = record.key;
	op->addr = record.addr;
	op->size = record.size;
	op->segment_count = sc_ctl_size(ctl);
	memcpy(op->segments, segments, op->segment_count * sizeof(segments[0]));
	(void)sc_target_progress(peer);
	return 0;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static int take_note(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = sc_ctl_flags(ctl);
	struct sc_abi_note note;

	memcpy(&note, sc_ring_first(&peer->rx)->bytes, sizeof(note));
	if (note.access != SC_REG_READ && note.access != SC_REG_WRITE) {
		*why = "a note of an impossible operation";
		return -EPROTO;
	}
	if (sc_access_is_crowded(peer, ctl))
		return -ENOMEM;
	sc_taker_noted(peer, note.number);
	sc_access_count(ep, ep->regtab ? sc_regtab_own(ep->regtab, note.key) : NULL, note.access, flags);
	if (flags & SC_ABI_F_DATA)
		sc_access_complete(peer, note.data, note.len);
	return 0;
}

int sc_target_take(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	switch (sc_ctl_kind(ctl)) {
	case SC_ABI_PUT:
		if (sc_access_is_crowded(peer, ctl))
			return -ENOMEM;
		return sc_ctl_flags(ctl) & SC_ABI_F_BOUNCED ? take_put(peer, ctl, why)
							    : take_put_far(peer, ctl, why);
	case SC_ABI_GET:
		return take_get(peer, ctl, why);
	case SC_ABI_ATOMIC:
		return take_atomic(peer, ctl, why);
	case SC_ABI_DELEGATE_PUT:
		return sc_taker_put(peer, ctl, why);
	case SC_ABI_DELEGATE_GET:
		return sc_taker_get(peer, ctl, why);
	default:
		return take_note(peer, ctl, why);
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

void sc_target_end_peer(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->target.ops))
		serve_end(peer, sc_list_entry(peer->target.ops.next, struct sc_target_op, of_peer));
	sc_list_remove(&peer->work[SC_WORK_SERVING]);
}

void sc_target_fini(struct sc_ep *ep)
{
	sc_list_for (entry, &ep->peers)
		sc_target_end_peer(sc_list_entry(entry, struct sc_peer, all));
}
