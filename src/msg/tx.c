/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tx.c: sends a message: one record in the peer's ring, or several for a message in parts.
 *
 *   inline      The record holds the payload. The send is complete on return.
 *   bounce      Bounce buffers hold the payload, and the record names them (bounce.c). The send is complete on return.
 *               A payload that fits a record goes this way too from SC_ROUTE_BUFFER_MIN bytes on, or from
 *               SC_ROUTE_BUFFER_MIN_BEHIND bytes on if the receiver is behind.
 *   rendezvous  The record holds the addresses of the payload. After the match the receiver copies the payload, alone
 *               or with the sender (xfer.h), or asks for it in pieces. The acknowledgement completes the send (txop.c).
 *
 * With delivery or match completion, inline and bounce messages wait for an acknowledgement too.
 *
 * The call writes the message or refuses it (-EAGAIN); it never queues a message. So the messages of a pair are in the
 * order of the calls, whatever way their payloads take. Only answers to the peer (reply.c) queue for a full ring: each
 * peer always reads its ring, so answers never wait for one another.
 *
 * Two limits push a sender back: the ring, with the buffers that it overflows into (record.c), and the window: the
 * messages that a peer may leave unmatched at the receiver. If the window or the pool has no space for an eager
 * payload, the message goes by rendezvous, which costs the receiver an entry only. So a receiver that polls or matches
 * late does not stop a sender that has messages for others. The sender then copies an injected payload to its own
 * memory. tx_size is no limit: if it were, a caller that repeats a send until it succeeds could wait for a receiver
 * that waits for the caller's next message. Yet a caller that never polls gets -EAGAIN in the end (OPS_MAX in txop.c):
 * it reads no acknowledgements.
 *
 * Owns nothing: a message that is not complete on return is an operation of txop.c. If this process dies before the
 * record is published (R1 in ring.h), the message was never sent. After that, an inline message is complete in shared
 * memory.
 */
#include <errno.h>
#include <string.h>
#include "base/fault.h"
#include "base/iov.h"
#include "base/log.h"
#include "link/fence.h"
#include "link/record.h"
#include "link/review.h"
#include "link/route.h"
#include "link/turn.h"
#include "msg/bounce.h"
#include "msg/send.h"
#include "msg/txop.h"

/*
 * Larger payloads go into a record only while half of the ring and half of the window are free. So the ring keeps space
 * for records whose payloads are elsewhere if the peer does not poll, and the window keeps space for rendezvous messages
 * if the peer does not match.
 */
#define INLINE_ALWAYS 200

static void vector_write(struct sc_peer *peer, struct sc_abi_line *first, uint32_t flags,
			 const struct sc_send *send, uint32_t size)
{
	uint8_t flat[SC_INLINE_MAX];

	sc_iov_read(send->iov, send->iov_count, flat, size);
	sc_inline_write(&peer->tx.at, first, flags, flat, size);
}

static inline void payload_write(struct sc_peer *peer, struct sc_abi_line *first, uint32_t flags,
				 const struct sc_send *send, uint32_t size)
{
	if (__builtin_expect(send->iov_count == 1, 1))
		sc_inline_write(&peer->tx.at, first, flags, send->iov[0].iov_base, size);
	else
		vector_write(peer, first, flags, send, size);
}

struct inline_record {
	uint32_t size; /* bytes of payload */
	uint32_t flags, lines;
};

/*
 * Publishes an inline record. The caller has reserved `line` and written the payload there and in the lines behind, and
 * wakes the reader afterwards.
 */
static inline __attribute__((always_inline)) void inline_store(struct sc_peer *peer,
							       struct sc_abi_line *line, uint64_t tag,
							       uint64_t data, struct inline_record record)
{
	(void)SC_FAULT("tx.inline_payload");
	/* relaxed: ctl publishes both; one store for each word, as the reader loads them, maybe on the same core */
	sc_store_relaxed_64(&line->words[0], tag);
	sc_store_relaxed_64(&line->words[1], data);
	(void)SC_FAULT("tx.inline");
	sc_ring_store(&peer->tx, line, sc_ring_ctl(SC_ABI_INLINE, record.flags, record.lines, record.size),
		      record.lines);
	sc_send_count(peer, record.size, SC_ABI_UNITS(record.size), &peer->ep->counters.tx_inline);
}

/* Returns the lines that a record of `size` payload bytes leaves free besides its own. */
static inline uint32_t lines_left(const struct sc_peer *peer, size_t size)
{
	return size > INLINE_ALWAYS ? peer->tx.at.count / 2 : 0;
}

/* Returns -ENOBUFS if a larger payload must take another way now; a small payload has no other way. */
static int send_inline(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	struct inline_record record = { .size = size, .flags = sc_send_abi_flags(send) };
	int ret, no_room = size > INLINE_ALWAYS ? -ENOBUFS : -EAGAIN;
	struct sc_abi_line *line;

	if (size > INLINE_ALWAYS && sc_ring_overflows(&peer->tx))
		return -ENOBUFS; /* a ring that overflows keeps the buffers for records */
	record.lines = sc_inline_lines(record.flags, size);
	if (!sc_send_window_room(peer, SC_ABI_UNITS(size) + sc_send_units_left(peer, size > INLINE_ALWAYS)))
		return peer->error ? peer->error : no_room;
	ret = sc_record_room(peer, record.lines + lines_left(peer, size));
	if (ret)
		return ret == -EAGAIN ? no_room : ret;
	line = sc_ring_reserve(&peer->tx);
	if (record.flags & SC_ABI_F_ACK) {
		struct sc_tx_op *op = sc_txop_begin(peer, send, size);

		if (!op)
			return -EAGAIN;
		line->words[2] = sc_slab_id(op);
		(void)SC_FAULT("tx.inline_op");
	}
	if (size)
		payload_write(peer, line, record.flags, send, size);
	inline_store(peer, line, send->tag, send->data, record);
	sc_ring_wake(&peer->tx);
	sc_send_done(peer, send, size, record.flags);
	return 0;
}

/* A message takes the short way only with these flags. */
#define SHORT_FLAGS (SC_TAGGED | SC_SILENT | SC_SEND_DATA | SC_SEND_INJECT)

/*
 * Sends a message the short way, or returns false. It checks first for each case that needs a call, and wakes the
 * reader last, so it needs few registers. `lines` and `units` are those of the record: a message of one line has code
 * of its own, where they are constants.
 */
static inline __attribute__((always_inline)) bool send_short(struct sc_peer *peer,
							     const struct sc_send *send, uint32_t size,
							     uint32_t lines, uint64_t units)
{
	struct inline_record record = { size, send->flags & SC_MESSAGE_FLAGS, lines };
	struct sc_abi_line *line;

	if (!sc_send_is_ready(peer, units, size > INLINE_ALWAYS) ||
	    !sc_ring_has_room(&peer->tx, lines + lines_left(peer, size)))
		return false;
	line = sc_ring_reserve(&peer->tx);
	sc_inline_write(&peer->tx.at, line, 0, send->iov->iov_base, size);
	inline_store(peer, line, send->tag, send->data, record);
	sc_send_short_done(peer, send, size);
	return true;
}

/* Bytes of payload that a record of two lines holds. */
#define TWO_LINES (sc_inline_first(0) + SC_ABI_LINE_BYTES)

/*
 * Messages of two lines have code of their own as well. If the sender has sent another one since its last poll, more
 * are likely to follow: the sender then takes the lines of the fourth record after this one out of the reader's cache.
 * docs/MEASUREMENTS.md, "Lines fetched by the sender".
 */
static __attribute__((noinline)) bool send_two_lines(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	if (!send_short(peer, send, size, 2, SC_ABI_UNITS(TWO_LINES)))
		return false;
	if (sc_burst_add(&peer->two_lines, peer->ep))
		sc_ring_fetch_to_write(&peer->tx, 2 * 3, 2);
	return true;
}

static __attribute__((noinline)) bool send_lines(struct sc_peer *peer, const struct sc_send *send, uint32_t size)
{
	return send_short(peer, send, size, sc_inline_lines(0, size), SC_ABI_UNITS(size));
}

/* Sends a payload that one line does not hold the short way, or returns false. */
static inline bool send_short_longer(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	if (size <= TWO_LINES && size <= peer->ep->config.inline_max)
		return send_two_lines(peer, send, (uint32_t)size);
	sc_bounce_begin(peer);
	if (sc_hold_fits(peer, size, 1))
		return sc_bounce_send_return(peer, send, (uint32_t)size);
	if (size <= peer->ep->config.inline_max &&
	    !(sc_route_prefers_buffer(size, peer->bounce.is_behind) && size < peer->ep->buffer_end))
		return send_lines(peer, send, (uint32_t)size);
	return sc_bounce_send_buffer(peer, send, (uint32_t)size);
}

/*
 * Tells whether the peer could read a message sent now before it has carried out all earlier requests for its memory.
 * It carries out puts and atomics when it takes their records; gets take longer. A put that it cannot fetch is sent
 * again.
 */
static bool overtakes_memory(const struct sc_peer *peer)
{
	return !sc_list_empty(&peer->rma.queued) || sc_peer_has_delegated(peer) || peer->rma.gets ||
	       peer->rma.fars;
}

/* For an endpoint that asks for an order: returns -EAGAIN if the message may not go yet. */
static int take_turn(struct sc_peer *peer)
{
	if (peer->ep->order & SC_ORDER_SEND && overtakes_memory(peer))
		return -EAGAIN;
	return sc_turn_take(peer);
}

/* Checks the conditions that the fast path does not: no connection yet, a lost connection, a fence, an order. */
static int prepare(struct sc_peer *peer, const struct sc_send *send)
{
	bool connects = peer->link == SC_LINK_NONE; /* connecting logs its own failure */
	int ret;

	if (send->flags & SC_SEND_FENCE && peer->link == SC_LINK_UP) {
		if (!sc_list_empty(&peer->ops) || peer->rma.pending)
			return -EAGAIN;
		sc_fence_raise(peer);
	}
	ret = sc_peer_reach(peer);
	if (ret && ret != -EAGAIN && !connects) {
		if (!peer->loss_logged)
			sc_warn("sends to the peer %s fail: %s; its process has closed the endpoint or "
				"ended, or an earlier line names the cause",
				peer->address, strerror(-ret));
		peer->loss_logged = true;
	}
	return !ret && peer->ep->order ? take_turn(peer) : ret;
}

/* Returns the facts that are known before any way has been tried. */
static uint32_t facts_of(struct sc_peer *peer, const struct sc_send *send, size_t size,
			 struct sc_route_costs *costs)
{
	const struct sc_ep *ep = peer->ep;
	uint32_t facts = 0;

	if (size <= ep->config.inline_max)
		facts |= SC_FACT_RECORD | (size < ep->buffer_end ? SC_FACT_BUFFER : 0);
	if (size > TWO_LINES)
		sc_bounce_begin(peer);
	if (size <= ep->config.eager_max)
		facts |= SC_FACT_BUFFERS | sc_bounce_costs(peer, send, size, costs);
	return facts | (peer->bounce.is_behind ? SC_FACT_BEHIND : 0);
}

/* Returns -ENOBUFS to take another way. Only a payload that no record can hold waits for a buffer (`waits`). */
static int send_bounce(struct sc_peer *peer, const struct sc_send *send, uint32_t size, bool waits)
{
	int ret = -ENOBUFS;

	if (waits || sc_record_may_spare(peer, sc_bounce_reserve(peer)))
		ret = sc_bounce_send(peer, send, size);
	return ret == -EAGAIN && !waits ? -ENOBUFS : ret;
}

/* Sends the way that sc_route() decides. If that way is not open, removes the fact that it needs and asks again. */
static int send_routed(struct sc_peer *peer, const struct sc_send *send, size_t size)
{
	struct sc_route_costs costs;
	uint32_t facts = facts_of(peer, send, size, &costs);
	int ret;

	do {
		bool record = facts & SC_FACT_RECORD;

		switch (sc_route(SC_ROUTE_MESSAGE, size, facts, &costs)) {
		case SC_WAY_INLINE:
			ret = send_inline(peer, send, (uint32_t)size);
			facts &= ~SC_FACT_RECORD;
			break;
		case SC_WAY_BOUNCE:
			ret = send_bounce(peer, send, (uint32_t)size, !record);
			facts &= ~(record ? SC_FACT_BUFFER : SC_FACT_BUFFERS);
			break;
		default:
			return sc_txop_send_rdv(peer, send, size);
		}
	} while (ret == -ENOBUFS);
	return ret;
}

static __attribute__((noinline)) int message_send(struct sc_ep *ep, struct sc_peer *peer,
						  const struct sc_send *send)
{
	size_t size = __builtin_expect(send->iov_count == 1, 1) ? send->iov[0].iov_len
								: sc_iov_size(send->iov, send->iov_count);
	int ret;

	if (__builtin_expect(!peer->tx.at.lines || send->flags & SC_SEND_FENCE || ep->order ||
				     sc_peer_has_closed(peer),
			     0)) {
		ret = prepare(peer, send);
		if (ret)
			return ret;
	}
	if (__builtin_expect(size > (send->flags & SC_SEND_INJECT ? SC_INJECT_MAX : SC_MESSAGE_MAX), 0))
		return -EMSGSIZE;
	/* the caller must first read completions, else they would pile up */
	if (__builtin_expect(ep->tx_cq && !(send->flags & SC_SILENT) && sc_comp_ring_is_full(ep->tx_cq), 0))
		return -EAGAIN;
	return send_routed(peer, send, size);
}

/* Sends any message, on any way but the short one. */
static int send_any(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send)
{
	int ret = message_send(ep, peer, send);

	if (__builtin_expect(ret, 0)) {
		sc_turn_drop(peer);
		ep->refusals += ret == -EAGAIN;
	}
	return ret;
}

static int send_one(struct sc_peer *peer, const struct sc_send *send)
{
	return send->iov->iov_base || !send->iov->iov_len ? send_any(peer->ep, peer, send) : -EINVAL;
}

static __attribute__((noinline)) int send_whole(struct sc_peer *peer, struct iovec payload, struct sc_tag_data word,
						struct sc_op_flags flags, void *context)
{
	const struct sc_send send = sc_send_of(&payload, word, flags, context);

	return send_one(peer, &send);
}

/* Out of line, so that the code for a payload of one line needs few registers. */
static __attribute__((noinline)) int send_longer(struct sc_peer *peer, struct iovec payload, struct sc_tag_data word,
						 struct sc_op_flags flags, void *context)
{
	const struct sc_send send = sc_send_of(&payload, word, flags, context);

	return send_short_longer(peer, &send, payload.iov_len) ? 0 : send_one(peer, &send);
}

int sc_tx_send_buf(struct sc_peer *peer, struct iovec payload, struct sc_tag_data word, struct sc_op_flags flags,
		   void *context)
{
	const struct sc_send send = sc_send_of(&payload, word, flags, context);

	if (__builtin_expect(payload.iov_len >= peer->ep->short_end || flags.flags & ~SHORT_FLAGS, 0))
		return send_whole(peer, payload, word, flags, context);
	if (__builtin_expect(payload.iov_len > sc_inline_first(0), 0))
		return send_longer(peer, payload, word, flags, context);
	if (__builtin_expect(!send_short(peer, &send, (uint32_t)payload.iov_len, 1,
					 SC_ABI_UNITS(sc_inline_first(0))),
			     0))
		return send_whole(peer, payload, word, flags, context);
	return 0;
}

int sc_tx_send(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send)
{
	const struct sc_tag_data word = { send->tag, send->data };
	const struct sc_op_flags flags = { send->flags, send->cq_flags };

	if (send->iov_count != 1 || send->cntr)
		return send_any(ep, peer, send);
	return sc_tx_send_buf(peer, *send->iov, word, flags, send->context);
}

size_t sc_tx_room(const struct sc_ep *ep)
{
	size_t used = sc_slab_used(&ep->tx_ops);

	return used < ep->tx_size ? ep->tx_size - used : 0;
}
