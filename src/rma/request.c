/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * request.c: requests to a peer, for operations on its memory that this process may not touch: records in the peer's
 * ring, which the peer executes in order (target.c) and answers. They serve all atomics, operations that are not direct
 * (direct.c), and notes of those that were.
 *
 * Operations queue here while they have records to write. A peer executes its requests in their order, with two
 * exceptions. Gets may take longer: a put waits until the gets before it are answered; an atomic does so only if the
 * endpoint asks for that order. Puts that the peer cannot copy from our memory are written again, in their order, so
 * nothing else is written behind such a put before its answer. Until a put or a get ends here, later ones come here too.
 *
 * The peer counts a put, and tells its application the remote data, when it has executed the last record. So a put that
 * the peer copies from our memory is one record, and has one range. An operation under several keys is one event for the
 * endpoint, and one for each registration, with the last record under its key. After an error under a later key the
 * registrations of the earlier ones have counted what has been done in them.
 *
 * An atomic that nobody waits for has no answer: like a message, it is over when its record is written (sc_request_one()),
 * and what follows a fence waits until the peer has taken it (fence.h).
 *
 * The answers of peers are checked against the requests: an answer with more bytes than asked for, or without a
 * request, ends the connection.
 *
 * If the peer dies, requests that wait for an answer fail with it, done or not. If this process dies between any two
 * records, the peer executes the written ones.
 */
#include "rma/request.h"

#include <errno.h>
#include <string.h>
#include "base/fault.h"
#include "base/iov.h"
#include "os/probe.h"
#include "link/fence.h"
#include "link/record.h"
#include "rma/rmaop.h"

/* Bounce buffers of a put's record: few enough for both sides to copy at the same time. */
#define PUT_BUFS 4
/* Bytes of operands, and of former values, in a record. */
#define OPERANDS_MAX (SC_ABI_ATOMIC_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)
#define VALUES_MAX (SC_ABI_RESULT_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)

/* ---- queue ----------------------------------------------------------------------------------- */

static int advance(struct sc_peer *peer);

/* Tells whether later puts and gets wait for the operation: notes are of puts and gets that are done. */
static bool holds_others(const struct sc_rma_op *op)
{
	return op->kind == SC_RMA_PUT || op->kind == SC_RMA_GET;
}

/* Ends a request or a note. */
static void end(struct sc_rma_op *op)
{
	op->peer->rma.undone -= holds_others(op);
	sc_rmaop_end(op, op->error);
}

void sc_request_queue(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;

	peer->rma.pending++;
	peer->rma.undone += holds_others(op);
	sc_list_append(&peer->rma.queued, &op->of_peer);
	if (peer->rma.queued.next == &op->of_peer)
		(void)advance(peer);
	if (!sc_list_empty(&peer->rma.queued))
		sc_peer_begin(peer, SC_WORK_RMA_BUSY);
}

void sc_request_note(struct sc_rma_op *op)
{
	op->kind = SC_RMA_NOTE;
	op->begun = 0;
	op->moved = op->size;
	sc_list_remove(&op->of_peer);
	op->peer->rma.pending--;
	sc_request_queue(op);
}

bool sc_request_fits(struct sc_peer *peer, const struct sc_remote *remote, size_t count)
{
	uint32_t records = 0, buffers = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t here = sc_record_bufs(peer->ep, remote[i].len);

		buffers += here;
		records += (here + PUT_BUFS - 1) / PUT_BUFS;
	}
	return peer->rma.requests < SC_RMA_REQUESTS_MAX && !peer->rma.fars && !peer->rma.gets &&
	       !sc_record_room(peer, records ? records : 1) &&
	       (!buffers || sc_record_may_lend(peer, buffers, 0) || !peer->bounce.loans.count);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Fills the words that begin each request, for the remote part at op->begun. Returns the bytes of the part. */
static uint64_t begin(struct sc_rma_op *op, uint64_t words[7])
{
	const struct sc_remote *remote = op->remote;
	uint64_t skip = op->begun;

	while (skip && skip >= remote->len)
		skip -= remote++->len;
	memset(words, 0, 7 * sizeof(words[0]));
	words[0] = sc_slab_id(op);
	words[1] = remote->key;
	words[2] = remote->addr + skip;
	return remote->len - skip;
}

/* Returns the flags by which the peer counts the operation, and its application gets the data. */
static uint32_t tell_flags(const struct sc_rma_op *op)
{
	return SC_ABI_F_EVENT | (op->flags & SC_SEND_DATA ? SC_ABI_F_DATA : 0);
}

/* Returns those flags for the last range of the operation; for others, the flag by which its registration counts. */
static uint32_t range_flags(const struct sc_rma_op *op, size_t range)
{
	if (range + 1 == op->remote_count)
		return tell_flags(op);
	for (size_t i = range + 1; i < op->remote_count; i++)
		if (op->remote[i].key == op->remote[range].key)
			return 0;
	return SC_ABI_F_KEYED;
}

/* Returns the flags of a record that ends at op->begun: those of the range that ends there. */
static uint32_t last_flags(const struct sc_rma_op *op)
{
	size_t range = 0, end = op->remote[0].len;

	while (end < op->begun)
		end += op->remote[++range].len;
	return end == op->begun ? range_flags(op, range) : 0;
}

static void asked(struct sc_rma_op *op)
{
	op->answers++;
	op->at = op->peer->tx.tail;
	op->peer->rma.requests++;
	op->peer->rma.gets += op->kind == SC_RMA_GET;
	op->peer->rma.fars += op->far;
	op->peer->ep->counters.rma_requests++;
}

/* Writes the next bytes of a put, in bounce buffers. */
static bool put_write(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_ep *ep = peer->ep;
	uint64_t words[7], left = begin(op, words);
	struct sc_abi_put *record = (struct sc_abi_put *)words;
	uint32_t buffers =
		left < (uint64_t)PUT_BUFS << ep->buf_shift ? sc_record_bufs(ep, left) : PUT_BUFS;
	uint32_t size, flags = SC_ABI_F_BOUNCED;
	uint16_t bufs[SC_ABI_RECORD_BUFS] = {
		0
	}; /* the record has place for PUT_BUFS of them, and some more */
	bool last;

	if (!op->begun && op->size > ep->config.eager_max &&
	    sc_probe_check_ends(op->iov, op->iov_count, false) == -EIO) {
		op->error = -SC_EIO_INITIATOR;
		return true;
	}
	while (buffers && !sc_record_may_lend(peer, buffers, 0))
		if (!(buffers /= 2))
			return false;
	size = buffers << ep->buf_shift;
	if (left < size)
		size = (uint32_t)left;
	sc_record_fill(peer, (struct sc_iov_walk){ op->iov, op->iov_count, op->begun, size }, bufs);
	memcpy(record->bufs, bufs, PUT_BUFS * sizeof(bufs[0]));
	op->begun += size;
	record->data = op->data;
	last = op->begun == op->size;
	flags |= last_flags(op) | (last ? SC_ABI_F_ACK : 0);
	sc_record_put(peer, SC_ABI_PUT, flags, size, words);
	if (last)
		asked(op);
	return true;
}

/* Writes the next part of a put that the peer copies from our memory, or of a get that it may store there. */
static bool far_write(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct iovec segments[SC_IOV_MAX];
	uint64_t words[7], left = begin(op, words);
	struct sc_abi_far *record = (struct sc_abi_far *)words;
	size_t count = sc_iov_slice(op->iov, op->iov_count, op->begun, left, segments);
	uint32_t lines = SC_ABI_SEGMENT_LINES((uint32_t)count);
	enum sc_abi_kind kind = op->kind == SC_RMA_GET ? SC_ABI_GET : SC_ABI_PUT;

	if (sc_record_room(peer, lines))
		return false;
	record->size = left;
	record->data = op->data;
	if (count)
		record->first =
			(struct sc_abi_segment){ (uintptr_t)segments[0].iov_base, segments[0].iov_len };
	memcpy(sc_ring_reserve(&peer->tx)->words, words, sizeof(words));
	(void)SC_FAULT("request.far_words");
	(void)sc_record_segments_write(peer, segments, count);
	op->begun += left;
	(void)SC_FAULT("request.far");
	sc_ring_commit(&peer->tx, sc_ring_ctl(kind, last_flags(op), lines, (uint32_t)count), lines);
	asked(op);
	return true;
}

static bool goes_far(const struct sc_rma_op *op)
{
	return !(op->flags & SC_SEND_INJECT) && !op->again && op->remote_count == 1 &&
	       op->size > op->peer->ep->config.eager_max && op->peer->rma.fetch != SC_FETCH_NO;
}

/* The first such put tells whether the peer can copy; until that is known, no request is written behind it. */
static bool put_far_write(struct sc_rma_op *op)
{
	if (!far_write(op))
		return false;
	if (op->peer->rma.fetch == SC_FETCH_UNKNOWN)
		op->peer->rma.fetch = SC_FETCH_ASKED;
	return true;
}

/* Returns how many vectors of operands the operation has. */
static uint32_t sets_of(enum sc_atomic_kind kind, enum sc_atomic_code code)
{
	return code == SC_ATOMIC_READ ? 0 : kind == SC_ATOMIC_COMPARE ? 2 : 1;
}

/* Writes a record with so many bytes of operands. The ring has space. */
static void atomic_record(struct sc_peer *peer, const struct sc_abi_atomic *record, uint32_t flags,
			  const uint8_t *operands, uint32_t bytes)
{
	uint32_t lines = sc_lines_count(SC_ABI_ATOMIC_FIRST, bytes);
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);

	memcpy(line->words, record, sizeof(*record));
	(void)SC_FAULT("request.atomic_words");
	sc_lines_write(&peer->tx.at, line, SC_ABI_ATOMIC_FIRST, operands, bytes);
	(void)SC_FAULT("request.atomic");
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_ATOMIC, flags, lines, bytes), lines);
}

static bool atomic_write(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	size_t element = sc_atomic_size(op->atomic_type);
	uint64_t words[7], left = begin(op, words);
	struct sc_abi_atomic *record = (struct sc_abi_atomic *)words;
	uint32_t sets = sets_of(op->atomic_kind, op->atomic_code);
	size_t fit = (sets ? OPERANDS_MAX / sets : VALUES_MAX) / element * element;
	uint32_t size = (uint32_t)(left < fit ? left : fit);
	uint8_t operands[OPERANDS_MAX];

	if (sc_record_room(peer, sc_lines_count(SC_ABI_ATOMIC_FIRST, sets * size)))
		return false;
	record->kind = (uint8_t)op->atomic_kind;
	record->type = (uint8_t)op->atomic_type;
	record->code = (uint8_t)op->atomic_code;
	record->count = (uint32_t)(size / element);
	for (uint32_t i = 0; i < sets; i++)
		memcpy(operands + i * size, op->copy + i * op->size + op->begun, size);
	op->begun += size;
	atomic_record(peer, record, SC_ABI_F_ACK | last_flags(op), operands, sets * size);
	asked(op);
	return true;
}

bool sc_request_is_one(const struct sc_peer *peer, const struct sc_atomic *atomic, size_t size)
{
	uint32_t sets = sets_of(atomic->kind, atomic->code);

	return atomic->remote_count == 1 && sc_list_empty(&peer->rma.queued) &&
	       peer->rma.requests < SC_RMA_REQUESTS_MAX && !(peer->ep->order & SC_ORDER_MEMORY) &&
	       (sets ? sets * size <= OPERANDS_MAX : size <= VALUES_MAX);
}

int sc_request_one(struct sc_peer *peer, const struct sc_atomic *atomic, size_t size, struct sc_rma_op *op)
{
	uint32_t sets = sets_of(atomic->kind, atomic->code), bytes = sets * (uint32_t)size;
	struct sc_abi_atomic record = { .op = op ? sc_slab_id(op) : 0,
					.key = atomic->remote[0].key,
					.addr = atomic->remote[0].addr,
					.kind = (uint8_t)atomic->kind,
					.type = (uint8_t)atomic->type,
					.code = (uint8_t)atomic->code,
					.count = (uint32_t)(size / sc_atomic_size(atomic->type)) };
	uint32_t lines = sc_lines_count(SC_ABI_ATOMIC_FIRST, bytes);
	uint8_t operands[OPERANDS_MAX];

	if (sc_record_room(peer, lines))
		return peer->link == SC_LINK_DOWN ? peer->error : -EAGAIN;
	if (sets)
		sc_iov_read(atomic->iov, atomic->iov_count, operands, size);
	if (sets == 2)
		sc_iov_read(atomic->compare, atomic->compare_count, operands + size, size);
	atomic_record(peer, &record, SC_ABI_F_EVENT | (op ? SC_ABI_F_ACK : 0), operands, bytes);
	if (!op) {
		peer->ep->counters.rma_requests++;
		sc_fence_behind(peer);
		/* as send_two_lines() of tx.c */
		if (sc_burst_add(&peer->rma.unanswered, peer->ep) && lines <= 2)
			sc_ring_fetch_to_write(&peer->tx, 3 * lines, lines);
		return 0;
	}
	op->begun = size;
	asked(op);
	peer->rma.pending++;
	sc_list_append(&peer->rma.waiting, &op->of_peer);
	return 0;
}

/* Writes the next note of an operation that is done: one for each key. */
static void note_put(struct sc_peer *peer, struct sc_rma_op *op)
{
	uint64_t words[7] = { 0 };
	struct sc_abi_note *note = (struct sc_abi_note *)words;
	uint32_t flags;

	do
		flags = range_flags(op, op->begun++);
	while (!flags);
	note->data = op->data;
	note->key = op->remote[op->begun - 1].key;
	note->len = op->size;
	note->access = op->event == SC_EVENT_WRITE ? SC_REG_WRITE : SC_REG_READ;
	note->number = op->number;
	sc_record_put(peer, SC_ABI_NOTE, flags, 0, words);
}

/* Writes one more record of the operation. False: it must wait. */
static bool write_one(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;

	if (sc_record_room(peer, 1))
		return false;
	if (op->kind == SC_RMA_NOTE) {
		note_put(peer, op);
		return true;
	}
	if (peer->rma.requests >= SC_RMA_REQUESTS_MAX || peer->rma.fetch == SC_FETCH_ASKED)
		return false;
	if (op->kind == SC_RMA_PUT && !op->begun)
		op->far = goes_far(op);
	if (peer->rma.fars && !op->far)
		return false;
	switch (op->kind) {
	case SC_RMA_PUT:
		if (peer->rma.gets)
			return false;
		return op->far ? put_far_write(op) : put_write(op);
	case SC_RMA_GET:
		return far_write(op);
	default:
		if (peer->rma.gets && peer->ep->order & SC_ORDER_MEMORY)
			return false;
		return atomic_write(op);
	}
}

static int advance(struct sc_peer *peer)
{
	int written = 0;

	while (!sc_list_empty(&peer->rma.queued) && peer->link == SC_LINK_UP) {
		struct sc_rma_op *op = sc_list_entry(peer->rma.queued.next, struct sc_rma_op, of_peer);

		if (!op->error) {
			if (!write_one(op))
				break;
			written++;
			if (op->begun < (op->kind == SC_RMA_NOTE ? op->remote_count : op->size))
				continue;
		}
		sc_list_remove(&op->of_peer);
		if (op->answers)
			sc_list_append(&peer->rma.waiting, &op->of_peer);
		else
			end(op);
	}
	return written;
}

int sc_request_progress(struct sc_peer *peer)
{
	int written = advance(peer);

	if (sc_list_empty(&peer->rma.queued))
		sc_list_remove(&peer->work[SC_WORK_RMA_BUSY]);
	return written;
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct sc_rma_op *op_of_peer(struct sc_peer *peer, sc_abi_op id)
{
	struct sc_rma_op *op = sc_slab_find(&peer->ep->rma_ops, id);

	return op && op->peer == peer && op->answers ? op : NULL;
}

/*
 * Queues a put that the peer cannot copy, to write it again through bounce buffers: before operations that waited, and
 * behind earlier puts of this kind.
 */
static void put_near(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;
	struct sc_list *behind = &peer->rma.queued;

	op->far = false;
	op->begun = op->moved = 0;
	sc_list_remove(&op->of_peer);
	while (behind->next != &peer->rma.queued &&
	       sc_list_entry(behind->next, struct sc_rma_op, of_peer)->again)
		behind = behind->next;
	sc_list_prepend(behind, &op->of_peer);
	sc_peer_begin(peer, SC_WORK_RMA_BUSY);
}

/* Counts an answer. The operation ends if all is written and answered, or if it has failed. */
static void answered(struct sc_rma_op *op)
{
	struct sc_peer *peer = op->peer;

	op->answers--;
	peer->rma.requests--;
	peer->rma.gets -= op->kind == SC_RMA_GET;
	peer->rma.fars -= op->far;
	if (op->answers)
		return;
	if (op->at > peer->order.taken)
		peer->order.taken = op->at;
	if (op->far && op->again && !op->error)
		put_near(op);
	else if (op->begun == op->size || op->error)
		end(op);
}

/* Handles a peer that can read none of our memory, or not this. If this process can, it sends the bytes itself. */
static void fetch_failed(struct sc_rma_op *op, int error)
{
	struct sc_peer *peer = op->peer;

	if (error == EOPNOTSUPP) {
		peer->rma.fetch = SC_FETCH_NO;
		op->again = true;
		return;
	}
	if (peer->rma.fetch == SC_FETCH_ASKED)
		peer->rma.fetch = SC_FETCH_UNKNOWN; /* other memory may still be readable */
	if (sc_probe_check(NULL, op->iov, op->iov_count, false))
		op->error = op->error ? op->error : -SC_EIO_INITIATOR;
	else
		op->again = true;
}

static int take_done(struct sc_peer *peer, const struct sc_abi_ack *ack)
{
	struct sc_rma_op *op = op_of_peer(peer, ack->op);

	if (!op || ack->status < 0 || ack->status > 4095 || ack->moved > op->size - op->moved)
		return -EPROTO;
	if (op->far && (ack->status == EOPNOTSUPP || ack->status == EFAULT)) {
		fetch_failed(op, ack->status);
		answered(op);
		return 0;
	}
	if (op->far &&
	    peer->rma.fetch == SC_FETCH_ASKED) /* an error of the put for another reason tells nothing */
		peer->rma.fetch = ack->status ? SC_FETCH_UNKNOWN : SC_FETCH_YES;
	if (op->kind == SC_RMA_GET && !ack->status && op->got && op->got != ack->moved)
		return -EPROTO;
	if (op->kind == SC_RMA_ATOMIC && !ack->status && op->atomic_kind != SC_ATOMIC_BASE)
		return -EPROTO;
	op->got = 0;
	if (op->error != -SC_EIO_INITIATOR)
		op->moved += ack->moved;
	if (ack->status && !op->error)
		op->error = -ack->status;
	answered(op);
	return 0;
}

/* Tells whether the rest of the get is writable here: checks all if the owner could not (`fault`), else the ends. */
static bool is_writable(const struct sc_rma_op *op, bool fault)
{
	struct iovec to[SC_IOV_MAX];
	size_t count;

	if (!fault && op->size <= op->peer->ep->config.eager_max)
		return true;
	count = sc_iov_slice(op->iov, op->iov_count, op->moved, op->size - op->moved, to);
	return fault ? !sc_probe_check(NULL, to, count, true) : sc_probe_check_ends(to, count, true) != -EIO;
}

static int take_got(struct sc_peer *peer, const struct sc_abi_got *record, uint32_t size)
{
	struct sc_rma_op *op = op_of_peer(peer, record->op);
	struct iovec to[SC_IOV_MAX];
	size_t to_count;

	if (!op || op->kind != SC_RMA_GET || !peer->seg || record->offset != op->got ||
	    op->got + size > op->size - op->moved || !sc_seg_has_bufs(peer->seg, record->bufs, size))
		return -EPROTO;
	if (!op->got && !op->error && !is_writable(op, record->fault))
		op->error = -SC_EIO_INITIATOR;
	to_count = sc_iov_slice(op->iov, op->iov_count, op->moved + op->got, size, to);
	if (!op->error)
		sc_record_copy(peer->seg, record->bufs, to, to_count, size);
	op->got += size;
	return 0;
}

static int take_result(struct sc_peer *peer, uint64_t ctl, const struct sc_abi_line *line)
{
	const struct sc_abi_result *record = (const struct sc_abi_result *)line->bytes;
	struct sc_rma_op *op = op_of_peer(peer, record->op);
	uint32_t size = sc_ctl_size(ctl);
	uint8_t values[VALUES_MAX];

	if (!op || op->kind != SC_RMA_ATOMIC || op->atomic_kind == SC_ATOMIC_BASE || size > VALUES_MAX ||
	    size > op->begun - op->moved || sc_lines_count(SC_ABI_RESULT_FIRST, size) != sc_ctl_lines(ctl))
		return -EPROTO;
	sc_lines_read(&peer->rx.at, line, SC_ABI_RESULT_FIRST, values, size);
	sc_iov_write(op->iov, op->iov_count, op->moved, values, size);
	op->moved += size;
	answered(op);
	return 0;
}

int sc_request_take(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	uint64_t words[7];

	*why = "an answer to a request that we have not sent";
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
