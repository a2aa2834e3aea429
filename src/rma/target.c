/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * target.c: requests of peers to this process for operations on its registered memory, because they may not touch it
 * themselves (strict, or CMA is not permitted) or cannot (atomics).
 *
 *   put       bytes from the peer's bounce buffers, when the record is taken
 *   put far   bytes from the peer's memory, in steps; the record stays in the ring until all are here
 *   get       bytes to the peer's memory, or to it through bounce buffers of ours, in steps
 *   atomic    done when the record is taken; its result is an answer like a get's
 *   note      the peer has done something to memory here by itself: tell the application
 *   offer     a small put or get that the peer does itself unless it is taken here first (delegate.c)
 *
 * Every step asks the private table (regtab.c), which nobody else can write: a key that is closed between
 * two steps ends the request. Requests of a peer are executed in their order; only what a get or an atomic
 * answers may take longer, in order as well: nothing is written past answers that wait for room (reply.c). An
 * answer never waits in the ring's way: an answer that finds no room is kept here, up to SC_RMA_REQUESTS_MAX for each
 * peer, which is as many as it may ask at once.
 *
 * A get's bytes are written to the peer's memory under a hazard word in our slot with it, as direct.c describes:
 * its endpoint does not end, and give the memory back, before the word is taken back; nor does the get, if the peer has
 * given us up (sc_peer_writes()).
 *
 * A get that was offered is answered in its record, or in bounce buffers of ours that the record names then.
 * They are lent by the number of the answer, and come back when the peer says that it has read so many, or
 * has gone. Where there are none to spare the record stays in the ring: others of the peer's give theirs back,
 * or it withdraws this one.
 *
 * If the peer dies: its requests have been done or not, record by record; the answer goes nowhere. If this process
 * dies, the operation ends with its peer.
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

/* Bytes copied in one step. */
#define STEP ((uint64_t)4 << 20)
/* Bounce buffers of one record. */
#define GOT_BUFS 4
/* Records written for one peer in one call. */
#define BURST 16
/* Bytes of the elements of one request for an atomic, each of which may be in a range of its own. */
#define ATOMIC_BYTES sizeof(((struct sc_target_op *)NULL)->values)
#define ANSWER_BYTES (SC_ABI_GET_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)
#define OFFER_BYTES (SC_ABI_OFFER_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)
#define OPERANDS_MAX (SC_ABI_ATOMIC_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)

/* ---- this process's memory ------------------------------------------------------------------- */

/* The registration that a request names, if it allows that. -EKEYREJECTED, -EACCES, -EINVAL. */
static int find(const struct sc_ep *ep, uint64_t key, uint64_t addr, uint64_t len, uint32_t access,
		struct sc_reg **found)
{
	struct sc_reg *reg = ep->regtab ? sc_regtab_own(ep->regtab, key) : NULL;

	*found = reg;
	return reg ? sc_reg_check(reg, addr, len, access) : -EKEYREJECTED;
}

/* Is it the one of the request's earlier pieces? An application may have given its key to another since. */
static int keep_to(struct sc_reg_use *use, const struct sc_reg *reg)
{
	if (use->tag && use->key == reg->key && use->tag != reg->tag)
		return -EKEYREJECTED;
	*use = (struct sc_reg_use){ reg->key, reg->tag };
	return 0;
}

/* Into registered memory, `len` bytes of the vector. */
static int store(struct sc_ep *ep, const struct sc_reg *reg, uint64_t addr, const struct iovec *from,
		 size_t from_count, uint64_t len)
{
	struct iovec to[SC_IOV_MAX], part[SC_IOV_MAX];
	struct sc_probe_copy copy = { .to = to, .from = part };
	int ret = 0;

	for (uint64_t done = 0, here; done < len && !ret; done += here) {
		here = len - done;
		copy.to_count = sc_reg_slice(reg, addr + done, &here, to, SC_IOV_MAX);
		copy.from_count = sc_iov_slice(from, from_count, done, here, part);
		copy.len = here;
		ret = sc_probe_write(&ep->memory, &copy);
	}
	return ret;
}

/* Out of registered memory. */
static int load(struct sc_ep *ep, const struct sc_reg *reg, uint64_t addr, const struct iovec *to,
		size_t to_count, uint64_t len)
{
	struct iovec from[SC_IOV_MAX], part[SC_IOV_MAX];
	struct sc_probe_copy copy = { .to = part, .from = from };
	int ret = 0;

	for (uint64_t done = 0, here; done < len && !ret; done += here) {
		here = len - done;
		copy.from_count = sc_reg_slice(reg, addr + done, &here, from, SC_IOV_MAX);
		copy.to_count = sc_iov_slice(to, to_count, done, here, part);
		copy.len = here;
		ret = sc_probe_read(&ep->memory, &copy);
	}
	return ret;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer(struct sc_peer *peer, sc_abi_op op, uint64_t moved, int error)
{
	uint64_t words[7] = { 0 };
	struct sc_abi_ack *record = (struct sc_abi_ack *)words;

	record->op = op;
	record->moved = moved;
	record->status = -error;
	sc_reply(peer, SC_ABI_DONE, 0, words);
}

/*
 * Counts an access to memory here in the counters that are bound for that. reg NULL: closed meanwhile. An operation
 * that returns former values and changes them counts as a read for the endpoint, by fi_endpoint(3), and for the memory
 * as a write as well, as fi_mr(3) has it for all that modifies it; a counter for both counts it once.
 */
static void count(struct sc_ep *ep, const struct sc_reg *reg, uint32_t access)
{
	struct sc_cntr *reads = reg && access & SC_REG_READ ? reg->reads : NULL;
	struct sc_cntr *writes = reg && access & SC_REG_WRITE ? reg->writes : NULL;

	sc_ep_count(ep, access & SC_REG_READ ? SC_EVENT_REMOTE_READ : SC_EVENT_REMOTE_WRITE, NULL, 0, 0);
	if (writes)
		sc_cntr_add(&writes->value, 1);
	if (reads && reads != writes)
		sc_cntr_add(&reads->value, 1);
}

/* A request has been done; `event`: the last of its operation. */
static void served(struct sc_ep *ep, const struct sc_reg *reg, uint32_t access, bool event)
{
	ep->counters.rma_served++;
	if (event)
		count(ep, reg, access);
}

/* An answer that takes longer. -ENOMEM; -EPROTO with *why: the peer asks more than it may. */
static int defer(struct sc_peer *peer, struct sc_target_op **deferred, const char **why)
{
	struct sc_target_op *op;

	if (peer->serving_count >= SC_RMA_REQUESTS_MAX) {
		*why = "more one-sided requests at once than there may be";
		return -EPROTO;
	}
	op = malloc(sizeof(*op));
	if (!op)
		return -ENOMEM;
	op->done = 0;
	op->use.tag = 0;
	op->segment_count = 0;
	sc_list_append(&peer->serving, &op->of_peer);
	sc_ep_begin(peer->ep, SC_WORK_SERVING, &peer->serving_peer);
	peer->serving_count++;
	*deferred = op;
	return 0;
}

static void serve_end(struct sc_peer *peer, struct sc_target_op *op)
{
	sc_list_remove(&op->of_peer);
	peer->serving_count--;
	free(op);
}

/* Room for a record, behind the answers that wait for room? */
static bool has_room(struct sc_peer *peer, uint32_t lines)
{
	return sc_list_empty(&peer->replies) && !sc_record_room(peer, lines);
}

/* ---- puts ------------------------------------------------------------------------------------ */

/* A put of several records: what its earlier ones have come to. */
static void put_begin(struct sc_peer *peer, sc_abi_op op)
{
	if (peer->put_op == op)
		return;
	peer->put_op = op;
	peer->put_use.tag = 0;
	peer->put_moved = 0;
	peer->put_error = 0;
}

static void put_end(struct sc_peer *peer)
{
	sc_abi_op op = peer->put_op;

	answer(peer, op, peer->put_moved, peer->put_error);
	peer->put_op = 0; /* the id of none */
	peer->put_moved = 0;
	peer->put_error = 0;
}

static int take_put(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_ep *ep = peer->ep;
	uint32_t size = sc_ctl_size(ctl);
	struct iovec bufs[SC_ABI_RECORD_BUFS];
	struct sc_abi_put record;
	struct sc_reg *reg;
	uint32_t count_bufs;
	int ret;

	memcpy(&record, sc_ring_first(&peer->rx)->bytes, sizeof(record));
	if (!sc_seg_has_bufs(peer->seg, record.bufs, size)) {
		*why = "bounce buffers that do not exist";
		return -EPROTO;
	}
	put_begin(peer, record.op);
	count_bufs = sc_record_bufs(peer->seg, record.bufs, size, bufs);
	ret = find(ep, record.key, record.addr, size, SC_REG_WRITE, &reg);
	if (!ret)
		ret = keep_to(&peer->put_use, reg);
	if (!ret && !peer->put_error)
		ret = store(ep, reg, record.addr, bufs, count_bufs, size);
	if (!peer->put_error)
		peer->put_error = ret;
	if (!peer->put_error)
		peer->put_moved += size;
	if (!(sc_ctl_flags(ctl) & SC_ABI_F_ACK))
		return 0;
	if (!peer->put_error)
		served(ep, reg, SC_REG_WRITE, sc_ctl_flags(ctl) & SC_ABI_F_EVENT);
	put_end(peer);
	return 0;
}

/* A record whose payload is, or is to be, in the peer's memory. */
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
	struct sc_reg *reg;
	uint64_t here;
	size_t from_count, to_count;
	int ret = far_read(peer, ctl, &record, segments, why);

	if (ret)
		return ret;
	put_begin(peer, record.op);
	peer->put_error = find(peer->ep, record.key, record.addr, record.size, SC_REG_WRITE, &reg);
	if (!peer->put_error)
		peer->put_error = keep_to(&peer->put_use, reg);
	if (!peer->put_error && !sc_peer_may_copy(peer))
		peer->put_error = -EOPNOTSUPP;
	if (!peer->put_error && peer->put_moved < record.size) {
		here = record.size - peer->put_moved < STEP ? record.size - peer->put_moved : STEP;
		to_count = sc_reg_slice(reg, record.addr + peer->put_moved, &here, to, SC_IOV_MAX);
		from_count = sc_iov_slice(segments, sc_ctl_size(ctl), peer->put_moved, here, from);
		ret = sc_cma_read(&peer->cma, &(struct sc_cma_copy){ to, to_count, from, from_count, here });
		if (ret == -EFAULT) /* of ours: an error; of the peer's: it moves them */
			peer->put_error = sc_probe_check(&peer->ep->memory, to, to_count, true) ? -EIO
												 : -EFAULT;
		else
			peer->put_error = ret ? -EOPNOTSUPP : 0;
		if (!ret)
			peer->put_moved += here;
		else if (ret != -EFAULT)
			peer->can_read = SC_REACH_NO;
	}
	if (!peer->put_error && peer->put_moved < record.size)
		return -EAGAIN; /* the next step in the next poll, before anything behind it */
	if (!peer->put_error)
		served(peer->ep, reg, SC_REG_WRITE, sc_ctl_flags(ctl) & SC_ABI_F_EVENT);
	put_end(peer);
	return 0;
}

/* ---- gets ------------------------------------------------------------------------------------ */

/* Under a hazard word. -ECONNRESET: the peer has closed, has given us up, or may be dead. */
static int write_far(const struct sc_peer *peer, const struct iovec *to, size_t to_count,
		     const struct iovec *from, size_t from_count, size_t len)
{
	size_t moved;

	if (!sc_peer_is_open(peer) || sc_peer_has_given_up(peer) || !sc_peer_is_there(peer))
		return -ECONNRESET;
	return sc_cma_write(peer->cma.pid, &(struct sc_cma_copy){ from, from_count, to, to_count, len }, &moved);
}

/* To the peer's memory, the next step. -EOPNOTSUPP: not possible. */
static int get_store(struct sc_peer *peer, struct sc_target_op *op, const struct sc_reg *reg)
{
	uint64_t *hazard = &sc_seg_slot(peer->seg, peer->out_slot)->hazards.words[0];
	uint64_t here = op->size - op->done < STEP ? op->size - op->done : STEP;
	struct iovec from[SC_IOV_MAX], to[SC_ABI_RDV_SEGMENTS];
	size_t from_count = sc_reg_slice(reg, op->addr + op->done, &here, from, SC_IOV_MAX);
	size_t to_count = sc_iov_slice(op->segments, op->segment_count, op->done, here, to);
	int ret;

	sc_store_relaxed_64(hazard, ++peer->hazard_count << 32 | SC_ABI_HAZARD_OP);
	/* before its state and answer are looked at; pairs with the fences in sc_regs_leave() and sc_peer_writes() */
	sc_fence_seq_cst();
	(void)SC_FAULT("target.hazard");
	ret = write_far(peer, to, to_count, from, from_count, here);
	(void)SC_FAULT("target.stored");
	sc_store_release_64(hazard, 0);
	(void)SC_FAULT("target.hazard_clear");
	if (ret == -EFAULT && sc_cma_fault(&peer->cma) == -EFAULT) {
		op->fault = true;
		return sc_probe_check(&peer->ep->memory, from, from_count, false) ? -EIO : -EOPNOTSUPP;
	}
	if (ret) {
		peer->can_read = SC_REACH_NO;
		return -EOPNOTSUPP;
	}
	op->done += here;
	return 0;
}

/* Through bounce buffers, the next record. -EAGAIN: no room. */
static int get_bounce(struct sc_peer *peer, struct sc_target_op *op, const struct sc_reg *reg)
{
	struct sc_ep *ep = peer->ep;
	uint64_t left = op->size - op->done, words[7] = { 0 };
	struct sc_abi_got *record = (struct sc_abi_got *)words;
	struct iovec bufs[SC_ABI_RECORD_BUFS];
	uint32_t buffers = GOT_BUFS, size, count_bufs;
	int ret;

	if (!has_room(peer, 1))
		return -EAGAIN;
	while (!sc_record_may_lend(peer, buffers, 0))
		if (!(buffers /= 2))
			return -EAGAIN;
	size = buffers << ep->buf_shift;
	if (left < size)
		size = (uint32_t)left;
	count_bufs = sc_record_lend(peer, size, record->bufs, bufs);
	ret = load(ep, reg, op->addr + op->done, bufs, count_bufs, size);
	(void)SC_FAULT("target.bounce");
	if (ret)
		size = 0; /* said all the same: the buffers come back with it */
	record->op = op->op;
	record->offset = op->done;
	record->fault = op->fault;
	sc_record_put(peer, SC_ABI_GOT, 0, size, words);
	op->done += size;
	return ret;
}

static int get_some(struct sc_peer *peer, struct sc_target_op *op, const struct sc_reg *reg)
{
	if (!op->bounced && sc_peer_may_copy(peer)) {
		int ret = get_store(peer, op, reg);

		if (ret != -EOPNOTSUPP)
			return ret;
	}
	if (!op->bounced)
		op->done = 0; /* all of it this way */
	op->bounced = true;
	return get_bounce(peer, op, reg);
}

/* Go on with a get, by some records or one large copy. True: it is over. */
static bool get_step(struct sc_peer *peer, struct sc_target_op *op, int *steps)
{
	struct sc_reg *reg;
	int ret = find(peer->ep, op->key, op->addr, op->size, SC_REG_READ, &reg);

	if (!ret)
		ret = keep_to(&op->use, reg);
	for (int i = 0; i < BURST && !ret && op->done < op->size && (!i || op->bounced); i++) {
		ret = get_some(peer, op, reg);
		*steps += ret != -EAGAIN;
	}
	if (ret == -EAGAIN || (!ret && op->done < op->size))
		return false;
	if (!ret)
		served(peer->ep, reg, SC_REG_READ, op->event);
	answer(peer, op->op, op->done, ret);
	return true;
}

/* ---- atomics --------------------------------------------------------------------------------- */

/* A request for an atomic operation, copied and checked; and where it is to be done. */
struct atomic {
	struct sc_abi_atomic record;
	struct sc_atomicop op;
	size_t size; /* bytes of all elements */
	struct sc_reg *reg;
	bool event;
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
	atomic->event = sc_ctl_flags(ctl) & SC_ABI_F_EVENT;
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

static uint32_t atomic_access(const struct atomic *atomic)
{
	if (atomic->op.code == SC_ATOMIC_READ)
		return SC_REG_READ;
	return atomic->op.kind == SC_ATOMIC_BASE ? SC_REG_WRITE : SC_REG_READ | SC_REG_WRITE;
}

/* Where it is to be done: registered, writable. */
static int atomic_find(struct sc_ep *ep, struct atomic *atomic)
{
	const struct sc_abi_atomic *record = &atomic->record;
	uint64_t len = atomic->size;
	int ret = find(ep, record->key, record->addr, len, atomic_access(atomic), &atomic->reg);

	if (ret)
		return ret;
	atomic->piece_count = sc_reg_slice(atomic->reg, record->addr, &len, atomic->pieces, ATOMIC_BYTES);
	ret = sc_probe_check(&ep->memory, atomic->pieces, atomic->piece_count,
			      record->code != SC_ATOMIC_READ);
	return ret == -ENOSYS ? 0 : ret; /* a fault is the application's own */
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

/* Into the ring, if there is room and nothing before it. */
static bool has_way(struct sc_peer *peer, uint32_t size)
{
	return sc_list_empty(&peer->serving) && has_room(peer, sc_lines_count(SC_ABI_RESULT_FIRST, size));
}

/* One that fetches: a place for the result is found first, as it cannot be done twice. */
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
		answer(peer, atomic->record.op, 0, ret);
		return 0;
	}
	if (!op)
		result_put(peer, atomic->record.op, values, size);
	served(peer->ep, atomic->reg, atomic_access(atomic), atomic->event);
	return 0;
}

static int take_atomic(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct atomic atomic;
	int ret;

	*why = atomic_read(peer, ctl, &atomic);
	if (*why)
		return -EPROTO;
	ret = atomic_find(peer->ep, &atomic);
	if (!ret && atomic.op.kind != SC_ATOMIC_BASE)
		return atomic_fetch(peer, &atomic, why);
	if (!ret)
		ret = sc_atomicop_apply(&atomic.op, atomic.pieces, atomic.piece_count);
	if (!ret)
		served(peer->ep, atomic.reg, SC_REG_WRITE, atomic.event);
	answer(peer, atomic.record.op, ret ? 0 : atomic.size, ret);
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

/* Serves the requests of the peer, in order, as far as there is room. */
static int serve_some(struct sc_peer *peer)
{
	int steps = 0;

	while (!sc_list_empty(&peer->serving) && peer->link == SC_LINK_UP) {
		struct sc_target_op *op = sc_list_entry(peer->serving.next, struct sc_target_op, of_peer);

		if (!(op->result ? result_step(peer, op) : get_step(peer, op, &steps)))
			break;
		steps++;
		serve_end(peer, op);
	}
	if (sc_list_empty(&peer->serving))
		sc_list_remove(&peer->serving_peer);
	return steps;
}

int sc_target_progress(struct sc_ep *ep)
{
	int steps = 0;

	sc_list_for_safe (entry, next, &ep->work[SC_WORK_SERVING])
		steps += serve_some(sc_list_entry(entry, struct sc_peer, serving_peer));
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
	op->event = sc_ctl_flags(ctl) & SC_ABI_F_EVENT;
	op->key = record.key;
	op->addr = record.addr;
	op->size = record.size;
	op->segment_count = sc_ctl_size(ctl);
	memcpy(op->segments, segments, op->segment_count * sizeof(segments[0]));
	(void)serve_some(peer);
	return 0;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static void complete_written(struct sc_peer *peer, uint64_t data, uint64_t len)
{
	struct sc_ep *ep = peer->ep;
	struct sc_comp *comp = ep->rx_cq ? sc_comp_ring_reserve(ep->rx_cq) : NULL;

	if (!comp)
		return;
	*comp = (struct sc_comp){
		.len = len, .data = data, .source = peer, .flags = SC_COMP_WRITTEN | SC_COMP_DATA
	};
	sc_comp_ring_commit(ep->rx_cq);
}

/* Would its completion be one too many? The peer is pushed back then, by its ring. */
static bool is_crowded(const struct sc_comp_ring *cq)
{
	return cq && sc_comp_ring_is_full(cq);
}

static int take_note(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_ep *ep = peer->ep;
	uint32_t flags = sc_ctl_flags(ctl);
	struct sc_abi_note note;

	memcpy(&note, sc_ring_first(&peer->rx)->bytes, sizeof(note));
	if (note.access != SC_REG_READ && note.access != SC_REG_WRITE) {
		*why = "a note of something that cannot be done";
		return -EPROTO;
	}
	if (flags & SC_ABI_F_DATA && is_crowded(ep->rx_cq))
		return -ENOMEM;
	if (flags & SC_ABI_F_EVENT)
		count(ep, ep->regtab ? sc_regtab_own(ep->regtab, note.key) : NULL, note.access);
	if (flags & SC_ABI_F_DATA)
		complete_written(peer, note.data, note.len);
	return 0;
}

/* ---- offers ---------------------------------------------------------------------------------- */

static bool is_withdrawn(uint64_t claim, uint32_t number)
{
	return (int32_t)((uint32_t)(claim >> 32) - number) > 0;
}

/* The next offer. 1: it is ours to do; 0: it has been withdrawn; -EPROTO with *why. */
static int offer_claim(struct sc_peer *peer, const char **why)
{
	uint64_t *word = &sc_seg_slot(peer->ep->seg, peer->in_slot)->offers.claim;
	uint32_t number = peer->offers_seen;

	/* if the word changes between the two tries, the second one finds the offer withdrawn */
	for (int tries = 0; tries < 2; tries++) {
		uint64_t claim = sc_load_relaxed_64(word); /* the record has been read by R1' of ring.h */
		uint64_t withdrawn = claim >> 32;

		if ((uint32_t)claim != peer->offers_taken)
			break;
		if (is_withdrawn(claim, number)) {
			peer->offers_seen++;
			return 0;
		}
		/* O1 */
		if (sc_cas_acq_rel_64(word, claim, withdrawn << 32 | (number + 1))) {
			peer->offers_taken = ++peer->offers_seen;
			return 1;
		}
	}
	*why = "a word that says who does its puts, and that cannot be";
	return -EPROTO;
}

/* All that have been taken have ended. */
static void offers_tell(struct sc_peer *peer)
{
	peer->offers_told = peer->offers_taken;
	/* O2 release: pairs with O2' in put_ended() of delegate.c */
	sc_store_release_32(&peer->rx.consumer->offers_done, peer->offers_told);
	(void)SC_FAULT("target.offers_told");
}

/*
 * The initiator takes the number that this tells as one of the past or of the future, by which is nearer. There may be
 * any number of gets between two puts, so we tell it after so many gets, too.
 */
#define OFFERS_UNTOLD (1u << 30)

/* The one that was taken last. */
static void offer_end(struct sc_peer *peer, int error)
{
	struct sc_abi_consumer *consumer = peer->rx.consumer;
	uint32_t number = peer->offers_taken - 1;

	/* relaxed: ordered by the next */
	sc_store_relaxed_8(&consumer->offer_errors[number % SC_ABI_OFFERS], (uint8_t)-error);
	offers_tell(peer);
	sc_peer_wake(peer, SC_ABI_SLEEP_ASLEEP);
}

/* Where its bytes are; those in the ring are copied. NULL, or what is wrong with it. */
struct offer {
	struct sc_abi_offer record;
	struct iovec from[SC_ABI_RECORD_BUFS];
	size_t count;
	uint8_t bytes[OFFER_BYTES];
};

static const char *offer_read(struct sc_peer *peer, uint64_t ctl, struct offer *offer)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	uint32_t size = sc_ctl_size(ctl);

	memcpy(&offer->record, line->bytes, sizeof(offer->record));
	if (sc_ctl_kind(ctl) == SC_ABI_OFFER_BOUNCE) {
		if (!sc_seg_has_bufs(peer->seg, offer->record.bufs, size))
			return "bounce buffers that do not exist";
		offer->count = sc_record_bufs(peer->seg, offer->record.bufs, size, offer->from);
		return NULL;
	}
	if (size > sizeof(offer->bytes) || sc_lines_count(SC_ABI_OFFER_FIRST, size) != sc_ctl_lines(ctl))
		return "a put of another size than its record";
	sc_lines_read(&peer->rx.at, line, SC_ABI_OFFER_FIRST, offer->bytes, size);
	offer->from[0] = (struct iovec){ offer->bytes, size };
	offer->count = 1;
	return NULL;
}

/* The peer reads only how the offer ended: it may go on before we count. */
static int take_offer(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	uint32_t size = sc_ctl_size(ctl), flags = sc_ctl_flags(ctl);
	struct sc_ep *ep = peer->ep;
	struct offer offer;
	struct sc_reg *reg;
	int ret;

	if (flags & SC_ABI_F_DATA && is_crowded(ep->rx_cq))
		return -ENOMEM;
	ret = offer_claim(peer, why);
	if (ret <= 0)
		return ret;
	(void)SC_FAULT("target.taken");
	*why = offer_read(peer, ctl, &offer);
	if (*why)
		return -EPROTO;
	ret = find(ep, offer.record.key, offer.record.addr, size, SC_REG_WRITE, &reg);
	if (!ret)
		ret = store(ep, reg, offer.record.addr, offer.from, offer.count, size);
	(void)SC_FAULT("target.written");
	offer_end(peer, ret);
	if (ret)
		return 0;
	served(ep, reg, SC_REG_WRITE, true);
	if (flags & SC_ABI_F_DATA)
		complete_written(peer, offer.record.data, size);
	return 0;
}

/*
 * Where the bytes go: gathered, then into the record's lines; or into buffers of ours, which are the peer's
 * to read until it says that it has.
 */
struct offer_get {
	struct sc_abi_offer_get record;
	bool bounce;
	uint32_t size, lines, buffers;
	struct iovec to[SC_ABI_RECORD_BUFS];
	size_t count;
	uint8_t bytes[ANSWER_BYTES];
};

static const char *offer_get_read(struct sc_peer *peer, uint64_t ctl, struct offer_get *get)
{
	const struct sc_ep *ep = peer->ep;

	get->bounce = sc_ctl_kind(ctl) == SC_ABI_OFFER_GET_BOUNCE;
	get->size = sc_ctl_size(ctl);
	get->buffers = 0;
	memcpy(&get->record, sc_ring_first(&peer->rx)->bytes, sizeof(get->record));
	if (get->bounce) {
		if (get->size > (uint64_t)SC_ABI_RECORD_BUFS << ep->buf_shift)
			return "a get of more than there are buffers for";
		get->buffers = (get->size + ep->config.buf_size - 1) >> ep->buf_shift;
		return NULL;
	}
	if (get->size > sizeof(get->bytes) ||
	    sc_lines_count(SC_ABI_GET_FIRST, get->size) != sc_ctl_lines(ctl))
		return "a get of another size than its record";
	get->to[0] = (struct iovec){ get->bytes, get->size };
	get->count = 1;
	return NULL;
}

/*
 * Half of the buffers are left to others: those of a peer that does not look at its answers stay lent. One
 * that is withdrawn, as far as a glance tells, needs none.
 */
static bool may_answer(struct sc_peer *peer, const struct offer_get *get)
{
	const struct sc_abi_slot *slot = sc_seg_slot(peer->ep->seg, peer->in_slot);
	struct sc_pool *pool = &peer->ep->pool;

	if (!get->buffers || is_withdrawn(sc_load_relaxed_64(&slot->offers.claim), peer->offers_seen) ||
	    (sc_pool_may_lend(pool, &peer->answers, get->buffers, pool->count / 2) &&
	     sc_record_grow(peer->ep, get->buffers)))
		return true;
	/* A1' acquire: pairs with A1 in give_back() of delegate.c; a peer that gives back too many reads other bytes */
	sc_pool_return(pool, &peer->answers, sc_load_acquire_64(&slot->answers.read));
	return sc_pool_may_lend(pool, &peer->answers, get->buffers, pool->count / 2) &&
	       sc_record_grow(peer->ep, get->buffers);
}

static void answer_lend(struct sc_peer *peer, struct offer_get *get)
{
	struct sc_ep *ep = peer->ep;

	for (uint32_t i = 0; i < get->buffers; i++)
		get->record.bufs[i] = sc_pool_lend(&ep->pool, &peer->answers, peer->answer_count);
	get->count = sc_record_bufs(ep->seg, get->record.bufs, get->size, get->to);
	peer->answer_count++;
}

/* The bytes, or where they are, before the peer reads `ended`. */
static void offer_get_end(struct sc_peer *peer, const struct offer_get *get, int error)
{
	struct sc_abi_line *line = sc_ring_first(&peer->rx);
	struct sc_abi_offer_get *record = (struct sc_abi_offer_get *)line->bytes;

	if (get->bounce)
		memcpy(record->bufs, get->record.bufs, sizeof(record->bufs));
	else if (!error)
		sc_lines_write(&peer->rx.at, line, SC_ABI_GET_FIRST, get->bytes,
			       get->size);
	(void)SC_FAULT("target.answered");
	/* O3 release: pairs with O3' in get_ended() of delegate.c */
	sc_store_release_64(&record->ended, 1 + (uint64_t)-error);
	(void)SC_FAULT("target.ended");
}

/*
 * -ENOMEM: no buffers; they come back, or it is withdrawn. Not by a peer that has gone, which has no use for an
 * answer.
 */
static int take_offer_get(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_ep *ep = peer->ep;
	struct offer_get get;
	bool gone = peer->feed == SC_FEED_DRAINING;
	struct sc_reg *reg;
	int ret;

	*why = offer_get_read(peer, ctl, &get);
	if (*why)
		return -EPROTO;
	if (!gone && !may_answer(peer, &get))
		return -ENOMEM;
	ret = offer_claim(peer, why);
	if (ret <= 0)
		return ret;
	if (gone)
		return 0;
	(void)SC_FAULT("target.get_taken");
	if (get.bounce)
		answer_lend(peer, &get);
	ret = find(ep, get.record.key, get.record.addr, get.size, SC_REG_READ, &reg);
	if (!ret)
		ret = load(ep, reg, get.record.addr, get.to, get.count, get.size);
	(void)SC_FAULT("target.loaded");
	offer_get_end(peer, &get, ret);
	if (peer->offers_taken - peer->offers_told >= OFFERS_UNTOLD)
		offers_tell(peer);
	if (!ret)
		served(ep, reg, SC_REG_READ, true);
	return 0;
}

int sc_target_take(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	switch (sc_ctl_kind(ctl)) {
	case SC_ABI_PUT:
		return take_put(peer, ctl, why);
	case SC_ABI_PUT_FAR:
		return take_put_far(peer, ctl, why);
	case SC_ABI_GET:
		return take_get(peer, ctl, why);
	case SC_ABI_ATOMIC:
		return take_atomic(peer, ctl, why);
	case SC_ABI_OFFER:
	case SC_ABI_OFFER_BOUNCE:
		return take_offer(peer, ctl, why);
	case SC_ABI_OFFER_GET:
	case SC_ABI_OFFER_GET_BOUNCE:
		return take_offer_get(peer, ctl, why);
	default:
		return take_note(peer, ctl, why);
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

void sc_target_end_peer(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->serving))
		serve_end(peer, sc_list_entry(peer->serving.next, struct sc_target_op, of_peer));
	sc_list_remove(&peer->serving_peer);
}

void sc_target_fini(struct sc_ep *ep)
{
	sc_list_for (entry, &ep->peers)
		sc_target_end_peer(sc_list_entry(entry, struct sc_peer, all));
}
