/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rx.c: polls the rings; takes each record of a peer, checks it, matches it and hands it on:
 *
 *   ring --> take_message() --posted--> sc_deliver_message() --> completion
 *                 |                            ^
 *                 +--not posted--> sc_waiting_keep() --sc_rx_recv()--+
 *
 * The first record of a message in parts begins it; the pieces go to the same receive or waiting message.
 *
 * The control words of a record are copied to private memory once and checked; only the copy is used. The delivery
 * reads the payload. A record that breaks the protocol ends the connection with its peer (sc_peer_quarantine()),
 * nothing else. After -ENOMEM the record stays in the ring for the next poll.
 *
 * The payload of bounce buffers goes into the receive buffer or a waiting message when their record is taken, so the
 * buffers go back in ring order; some may be held for the answer (hold.h). The window limits the messages that a peer
 * may leave waiting; a peer that exceeds it breaks the protocol.
 *
 * If the peer dies, messages that it has published in the ring can be delivered, unless a part is missing. If this
 * process dies at any step, it holds nothing of the peer except the buffers named in the ring; the peer's ledger takes
 * these back.
 */
#include "ep/rx.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "rma/assist.h"
#include "link/connect.h"
#include "msg/deliver.h"
#include "link/hold.h"
#include "base/log.h"
#include "link/peer.h"
#include "msg/fast.h"
#include "link/record.h"
#include "rma/request.h"
#include "rma/taker.h"
#include "rma/target.h"
#include "msg/transfer.h"
#include "msg/txop.h"
#include "msg/waiting.h"

/* Rings beyond SC_BUSY_RINGS that one poll looks at, in turn. */
#define QUIET_RINGS 4
/* Bytes read in the writer's buffers before the reader publishes: the writer can fill them meanwhile. */
#define PUBLISH_BYTES 16384

/* ---- records --------------------------------------------------------------------------------- */

static bool is_bounce(enum sc_abi_kind kind)
{
	return kind == SC_ABI_BOUNCE || kind == SC_ABI_PIECE;
}

/* Tells whether the payload is in a buffer of this endpoint, which comes back with the record. */
static inline bool is_returned(uint64_t ctl)
{
	return sc_ctl_flags(ctl) & SC_ABI_F_RETURNED;
}

/* Tells whether a message of `size` bytes can begin in parts: with a full buffer of this segment. */
static inline bool begins_in_parts(const struct sc_peer *peer, const struct sc_seg *seg, uint64_t size)
{
	return size > seg->header.buf_size && !peer->recv.arriving_op && !peer->recv.arriving;
}

/* Sets the bytes in this record if the message is in parts. Returns an error as text, or NULL. */
static const char *parse_parts(struct sc_message *message, const struct sc_seg *seg)
{
	if (!(message->flags & SC_ABI_F_PARTS))
		return NULL;
	if (!begins_in_parts(message->peer, seg, message->size))
		return "a part of a message that has none, or in the midst of another";
	message->here = seg->header.buf_size;
	return NULL;
}

static const char *parse_bounce(struct sc_message *message)
{
	struct sc_seg *seg = message->peer->seg;
	const char *why = parse_parts(message, seg);
	struct sc_abi_bounce record;

	memcpy(&record, message->first->bytes, sizeof(record));
	message->tag = record.tag;
	message->data = record.data;
	message->op = message->flags & SC_ABI_F_ACK ? record.op : 0;
	memcpy(message->bufs, record.bufs, sizeof(message->bufs));
	if (!why && !sc_seg_has_bufs(seg, message->bufs, (uint32_t)message->here))
		return "bounce buffers that do not exist";
	return why;
}

/* The flags that a message in a buffer of this endpoint may have. */
#define RETURNED_FLAGS (SC_ABI_F_RETURNED | SC_ABI_F_TAGGED | SC_ABI_F_DATA | SC_ABI_F_PARTS)

/* Parses a message in a buffer of this endpoint. As with a waiting message, its payload is then in own memory. */
static const char *parse_returned(struct sc_message *message)
{
	struct sc_peer *peer = message->peer;
	const struct sc_seg *seg = peer->ep->seg;
	const char *why = parse_parts(message, seg);
	struct sc_abi_bounce record;

	memcpy(&record, message->first->bytes, sizeof(record));
	message->tag = record.tag;
	message->data = record.data;
	message->op = 0;
	if (why)
		return why;
	if (!sc_hold_comes_back(peer, record.bufs[0]) || message->here > seg->header.buf_size ||
	    message->flags & ~RETURNED_FLAGS)
		return "a message in a buffer that it has not been lent for that";
	message->bytes = sc_seg_buf(seg, record.bufs[0]);
	return NULL;
}

static const char *parse_rdv(struct sc_message *message)
{
	struct sc_record_segments segments = {
		.line = message->first,
		.lines = message->lines,
		.count = (uint32_t)message->size, /* the size in ctl is the number of segments */
	};
	struct sc_abi_rdv record;

	memcpy(&record, message->first->bytes, sizeof(record));
	segments.first = record.first;
	segments.size = record.size;
	message->tag = record.tag;
	message->data = record.data;
	message->op = record.op;
	message->size = record.size;
	message->segment_count = segments.count;
	return sc_record_segments_read(message->peer, &segments, message->segments);
}

static const char *parse_inline(struct sc_message *message)
{
	const struct sc_abi_line *line = message->first;

	/* relaxed: ctl has published the words; each is loaded once */
	message->tag = sc_load_relaxed_64(&line->words[0]);
	message->data = sc_load_relaxed_64(&line->words[1]);
	message->op = message->flags & SC_ABI_F_ACK ? sc_load_relaxed_64(&line->words[2]) : 0;
	if (message->size > SC_INLINE_MAX ||
	    sc_inline_lines(message->flags, (uint32_t)message->size) != message->lines)
		return "an inline message of another size than its record";
	return NULL;
}

/* Matches a message, and delivers or keeps it. -ENOMEM: it stays in the ring; -EPROTO, with *why. */
static int take_message(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	struct sc_ep *ep = peer->ep;
	struct sc_message message;
	int ret;

	message.peer = peer;
	message.kind = sc_ctl_kind(ctl);
	message.flags = sc_ctl_flags(ctl);
	message.lines = sc_ctl_lines(ctl);
	message.size = message.here = sc_ctl_size(ctl);
	message.first = sc_ring_first(&peer->rx);
	message.bytes = NULL;
	message.segment_count = 0;
	message.arrival = peer->recv.arrivals + 1;
	if (message.kind == SC_ABI_INLINE)
		*why = parse_inline(&message);
	else if (message.kind == SC_ABI_BOUNCE)
		*why = is_returned(ctl) ? parse_returned(&message) : parse_bounce(&message);
	else
		*why = parse_rdv(&message);
	if (*why)
		return -EPROTO;
	message.units = SC_ABI_UNITS(message.kind == SC_ABI_RDV ? 0 : message.size);
	if (message.units > ep->config.window - peer->recv.units_held) {
		*why = "more unmatched messages than its window allows";
		return -EPROTO;
	}
	ret = sc_deliver_to_posted(&message);
	if (ret)
		return ret < 0 ? ret : 0;
	return sc_waiting_keep(&message);
}

/* Tells whether this part may be in a buffer of this endpoint: a returnable one, without other flags. */
static bool may_be_returned(struct sc_peer *peer, const struct sc_abi_piece *piece, uint64_t ctl)
{
	return !piece->to && sc_ctl_flags(ctl) == SC_ABI_F_RETURNED &&
	       sc_ctl_size(ctl) <= peer->ep->config.buf_size && sc_hold_comes_back(peer, piece->bufs[0]);
}

/* Takes a part of a message, or a piece that this endpoint has asked for. */
static int take_piece(struct sc_peer *peer, const struct sc_abi_piece *piece, uint64_t ctl)
{
	struct sc_seg *seg = is_returned(ctl) ? peer->ep->seg : peer->seg;

	if (is_returned(ctl) && !may_be_returned(peer, piece, ctl))
		return -EPROTO;
	if (!piece->to && peer->recv.arriving)
		return sc_waiting_piece(peer, seg, piece, ctl);
	return sc_transfer_piece(peer, seg, piece, ctl);
}

/* ---- the short way, see fast.h -------------------------------------------------------------- */

static inline bool take_inline(struct sc_peer *peer, uint64_t ctl)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	uint32_t size = sc_ctl_size(ctl), lines = sc_ctl_lines(ctl);
	struct sc_ep *ep = peer->ep;
	struct sc_rx_op *op;
	uint64_t tag, data;

	if (sc_ctl_kind(ctl) != SC_ABI_INLINE || sc_ctl_flags(ctl) & SC_ABI_F_ACK || !ep->line_end ||
	    size > SC_INLINE_MAX || sc_inline_lines(0, size) != lines)
		return false;
	tag = sc_load_relaxed_64(&line->words[0]); /* published by ctl */
	data = sc_load_relaxed_64(&line->words[1]);
	op = sc_fast_match(ep->rxq, peer, tag, ctl);
	if (!op)
		return false;
	sc_inline_read(&peer->rx.at, line, 0, op->iov[0].iov_base, size);
	sc_fast_end(ep, op, peer, (struct sc_tag_data){ tag, data }, ctl);
	sc_ring_release(&peer->rx, lines);
	sc_ring_fetch(&peer->rx, lines);
	return true;
}

/* Counts `size` bytes in buffers of a taken record. Publishes the head after PUBLISH_BYTES. */
static inline void buffers_read(struct sc_peer *peer, uint32_t size)
{
	peer->recv.lent += size + 1;
	if (peer->recv.lent > PUBLISH_BYTES)
		sc_peer_publish(peer);
}

/* Holds the one buffer of a record, if the peer allows that. Returns whether it is held. */
static inline bool is_held(struct sc_peer *peer, uint64_t ctl, uint16_t buf)
{
	return sc_ctl_flags(ctl) & SC_ABI_F_RETURNABLE &&
	       sc_hold_begin(peer, buf, peer->rx.head + sc_ctl_lines(ctl));
}

/* Releases a record of one line; holds its one buffer, of `here` bytes, or gives it back. */
static inline __attribute__((always_inline)) void buffer_taken(struct sc_peer *peer, uint64_t ctl,
							       uint16_t buf, uint32_t here)
{
	bool gives_back = !is_returned(ctl) && !is_held(peer, ctl, buf);

	sc_ring_release(&peer->rx, 1);
	if (is_returned(ctl))
		sc_record_returned(peer);
	else if (gives_back)
		buffers_read(peer, here);
}

/* Tells whether the peer may name this buffer of the segment. */
static inline bool is_buffer(struct sc_peer *peer, struct sc_seg *seg, uint16_t buf, uint64_t ctl)
{
	return is_returned(ctl) ? sc_hold_comes_back(peer, buf) : sc_seg_has_buf(seg, buf);
}

/*
 * Takes a message in one buffer, or the first part of a message. The buffer is the peer's, if its segment is attached,
 * or this endpoint's, and comes back with the record.
 */
static inline bool take_buffer(struct sc_peer *peer, uint64_t ctl)
{
	const struct sc_abi_bounce *record = (const void *)sc_ring_first(&peer->rx)->bytes;
	bool parts = sc_ctl_flags(ctl) & SC_ABI_F_PARTS;
	struct sc_ep *ep = peer->ep;
	struct sc_seg *seg = is_returned(ctl) ? ep->seg : peer->seg;
	uint32_t here = sc_ctl_size(ctl);
	struct sc_rx_op *op;
	uint64_t tag, data;
	uint16_t buf;

	if (sc_ctl_kind(ctl) != SC_ABI_BOUNCE ||
	    sc_ctl_flags(ctl) & (is_returned(ctl) ? ~RETURNED_FLAGS : SC_ABI_F_ACK) ||
	    sc_ctl_lines(ctl) != 1 || !ep->line_end || !seg)
		return false;
	if (parts) {
		if (!begins_in_parts(peer, seg, here))
			return false;
		here = seg->header.buf_size;
	}
	buf = sc_load_relaxed_16(&record->bufs[0]); /* ctl has published it and the tag */
	if (!here || here > seg->header.buf_size || !is_buffer(peer, seg, buf, ctl))
		return false;
	tag = sc_load_relaxed_64(&record->tag);
	op = sc_fast_match(ep->rxq, peer, tag, ctl);
	if (!op)
		return false;
	sc_record_copy_bytes(op->iov[0].iov_base, sc_seg_buf(seg, buf), here);
	data = sc_load_relaxed_64(&record->data);
	if (parts)
		sc_fast_begin(op, peer, (struct sc_tag_data){ tag, data }, ctl, here);
	else
		sc_fast_end(ep, op, peer, (struct sc_tag_data){ tag, data }, ctl);
	buffer_taken(peer, ctl, buf, here);
	return true;
}

/* Takes a later part of a message of take_buffer(). Out of line: take_inline() needs the registers. */
static __attribute__((noinline)) bool take_part(struct sc_peer *peer, uint64_t ctl)
{
	const struct sc_abi_piece *piece = (const void *)sc_ring_first(&peer->rx)->bytes;
	struct sc_seg *seg = is_returned(ctl) ? peer->ep->seg : peer->seg;
	const struct sc_rx_op *op = peer->recv.arriving_op;
	uint32_t here = sc_ctl_size(ctl);
	uint16_t buf;

	if (sc_ctl_kind(ctl) != SC_ABI_PIECE || (is_returned(ctl) && sc_ctl_flags(ctl) != SC_ABI_F_RETURNED) ||
	    sc_ctl_lines(ctl) != 1 || !seg || !sc_fast_arrives(peer))
		return false;
	buf = sc_load_relaxed_16(&piece->bufs[0]); /* ctl has published all words */
	if (sc_load_relaxed_64(&piece->to) || sc_load_relaxed_64(&piece->offset) != op->done || !here ||
	    here > seg->header.buf_size || here > op->size - op->done ||
	    !is_buffer(peer, seg, buf, ctl))
		return false;
	sc_record_copy_bytes((char *)op->iov[0].iov_base + op->done, sc_seg_buf(seg, buf), here);
	sc_fast_part(peer, here);
	buffer_taken(peer, ctl, buf, here);
	return true;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Tells whether the record is in a buffer of its writer, into which the ring has overflowed. */
static bool is_in_overflow(const struct sc_peer *peer)
{
	return peer->rx.left.lines;
}

/*
 * Tells whether the ring can have all its lines. A system call verifies that the writer has given them memory; without
 * memory a load would raise SIGBUS.
 */
static bool may_grow(const struct sc_peer *peer)
{
	struct iovec more = { peer->rx.at.lines + SC_ABI_RING_FIRST, SC_ABI_SLOT_SIZE - SC_ABI_SLOT_FIRST };

	return peer->rx.at.count == SC_ABI_RING_FIRST && !sc_probe_check(NULL, &more, 1, true);
}

/* The next records are in the ring: again after an overflow, or in its additional lines. */
static int take_in_ring(struct sc_peer *peer)
{
	if (!is_in_overflow(peer)) {
		if (!may_grow(peer))
			return -EPROTO;
		sc_ring_grown(&peer->rx);
		sc_ring_release(&peer->rx, 1);
		sc_ring_show_place(&peer->rx);
		return 0;
	}
	sc_ring_release(&peer->rx, 1);
	sc_ring_resumed(&peer->rx);
	sc_ring_show_place(&peer->rx);
	sc_peer_publish(peer);
	return 0;
}

/* The next records are in a buffer of the peer. Publishes the head, as the peer may wait for the ring. */
static int take_in_buffer(struct sc_peer *peer, uint32_t buf)
{
	uint32_t lines = peer->seg->header.buf_size / SC_ABI_LINE;

	if (!sc_ring_may_overflow(lines) || !sc_seg_has_buf(peer->seg, buf))
		return -EPROTO;
	sc_ring_release(&peer->rx, 1);
	sc_ring_overflowed(&peer->rx, (struct sc_abi_line *)sc_seg_buf(peer->seg, buf), lines);
	sc_ring_show_place(&peer->rx);
	sc_peer_publish(peer);
	return 0;
}

static int take_continue(struct sc_peer *peer, uint64_t ctl)
{
	uint32_t where = sc_ctl_size(ctl);

	if (sc_ctl_lines(ctl) != 1)
		return -EPROTO;
	return where == SC_ABI_IN_RING ? take_in_ring(peer) : take_in_buffer(peer, where - SC_ABI_IN_BUFFER(0));
}

/* -EPROTO, with *why; -ENOMEM, -EAGAIN: the record stays in the ring. If it names buffers, the segment is attached. */
static __attribute__((noinline)) int take_record(struct sc_peer *peer, uint64_t ctl, const char **why)
{
	const struct sc_abi_line *line = sc_ring_first(&peer->rx);
	uint64_t words[7];

	switch (sc_ctl_kind(ctl)) {
	case SC_ABI_INLINE:
	case SC_ABI_BOUNCE:
	case SC_ABI_RDV:
		return take_message(peer, ctl, why);
	case SC_ABI_ACK:
		memcpy(words, line->words, sizeof(words));
		*why = "an acknowledgement of no message that we have sent";
		return sc_txop_acked(peer, (const struct sc_abi_ack *)words);
	case SC_ABI_PULL:
		memcpy(words, line->words, sizeof(words));
		*why = "a request for no message that we have sent";
		return sc_txop_pulled(peer, (const struct sc_abi_pull *)words);
	case SC_ABI_PIECE:
		memcpy(words, line->words, sizeof(words));
		*why = "a piece of no message that we have asked for, or in a buffer that we have not "
		       "lent for it";
		return take_piece(peer, (const struct sc_abi_piece *)words, ctl);
	case SC_ABI_PUT:
	case SC_ABI_GET:
	case SC_ABI_ATOMIC:
	case SC_ABI_NOTE:
	case SC_ABI_DELEGATE_PUT:
		return sc_target_take(peer, ctl, why);
	case SC_ABI_DELEGATE_GET:
		*why = "a delegated get in an overflow buffer, which has no room for the answer";
		return is_in_overflow(peer) ? -EPROTO : sc_target_take(peer, ctl, why);
	case SC_ABI_DONE:
	case SC_ABI_GOT:
	case SC_ABI_RESULT:
		return sc_request_take(peer, ctl, why);
	case SC_ABI_SHARE:
		*why = "an impossible offer to share a copy";
		return sc_ctl_flags(ctl) & SC_ABI_F_MEMORY ? sc_assist_take(peer, line, ctl) :
							     sc_txop_shared(peer, line, ctl);
	case SC_ABI_CONTINUE:
		*why = "records in a buffer that does not exist or is too short, or in lines without memory";
		return take_continue(peer, ctl);
	default:
		break;
	}
	*why = "a record of unknown kind";
	return -EPROTO;
}

/* Tells whether the record names bounce buffers of its writer, which needs them back soon. */
static bool names_buffers(uint64_t ctl)
{
	bool bounced = sc_ctl_flags(ctl) & SC_ABI_F_BOUNCED;

	switch (sc_ctl_kind(ctl)) {
	case SC_ABI_BOUNCE:
	case SC_ABI_PIECE:
		return !is_returned(ctl);
	case SC_ABI_DELEGATE_PUT:
		return bounced && !is_returned(ctl);
	case SC_ABI_PUT:
		return bounced;
	case SC_ABI_GOT:
		return true;
	default:
		return false;
	}
}

/* Tells whether the writer waits for an answer to the record, or to one that follows it. */
static bool wants_answer(uint64_t ctl)
{
	switch (sc_ctl_kind(ctl)) {
	case SC_ABI_RDV:
	case SC_ABI_PUT:
	case SC_ABI_GET:
		return true;
	case SC_ABI_INLINE:
	case SC_ABI_BOUNCE:
	case SC_ABI_ATOMIC:
		return sc_ctl_flags(ctl) & SC_ABI_F_ACK;
	default:
		return false;
	}
}

/* Tells whether a record that has been taken is a delegated put that this process has done. */
static bool is_put_done(const struct sc_peer *peer, uint64_t ctl)
{
	return sc_ctl_kind(ctl) == SC_ABI_DELEGATE_PUT && sc_taker_has_taken(peer);
}

/* Holds the buffer of a taken message or put. Checks its number again, as the peer may have changed it. */
static bool holds_first(struct sc_peer *peer, uint64_t ctl)
{
	const void *record = sc_ring_first(&peer->rx)->bytes;
	uint16_t buf;

	if (is_put_done(peer, ctl))
		buf = sc_load_relaxed_16(((const struct sc_abi_delegate *)record)->bufs);
	else if (is_bounce(sc_ctl_kind(ctl)))
		buf = sc_load_relaxed_16(((const struct sc_abi_bounce *)record)->bufs);
	else
		return false;
	return sc_seg_has_buf(peer->seg, buf) && is_held(peer, ctl, buf);
}

/* Releases the record at the ring's head and its buffers. */
static void buffers_taken(struct sc_peer *peer, uint64_t ctl)
{
	bool held = holds_first(peer, ctl);

	sc_ring_release(&peer->rx, sc_ctl_lines(ctl));
	if (!held)
		buffers_read(peer, sc_record_bytes(peer->seg, ctl));
}

/*
 * The peer closed or died, and its name went, before this endpoint attached its segment, which has the payload. Earlier
 * messages have been delivered; this one and all behind it are lost.
 */
static int lose_payload(struct sc_peer *peer)
{
	sc_warn("the peer %s has ended or closed its endpoint, and its file has no name any more: its "
		"unread messages in bounce buffers are lost; remove no file shmcma-* of /dev/shm by hand, "
		"use shmcma reap",
		peer->address);
	sc_peer_lose(peer, -ECONNRESET);
	return -ECONNRESET;
}

/* Gives up a peer for a record that breaks the rules. `why`: a noun with its article. */
static int refuse(struct sc_peer *peer, const char *why)
{
	char fault[128];

	snprintf(fault, sizeof(fault), "it has written %s", why);
	sc_taker_report(peer);
	sc_peer_quarantine(peer, -EPROTO, fault);
	return -ECONNRESET;
}

/*
 * Takes the next record of any kind. -ENOMEM: it stays in the ring; -EAGAIN: it stays, after a step of its work;
 * -ECONNRESET: nothing more is taken from this peer.
 */
static __attribute__((noinline)) int take_next(struct sc_peer *peer, uint64_t ctl)
{
	uint32_t lines = sc_ctl_lines(ctl);
	enum sc_abi_kind kind = sc_ctl_kind(ctl);
	const char *why = "a record of impossible length";
	bool bounced = names_buffers(ctl);
	int ret = wants_answer(ctl) ? sc_peer_prepare_answer(peer) : 0;

	if (ret)
		return ret;
	ret = -EPROTO;
	if (!peer->seg && (bounced || (kind == SC_ABI_CONTINUE && sc_ctl_size(ctl) != SC_ABI_IN_RING))) {
		sc_taker_report(peer);
		return lose_payload(peer);
	}
	if (lines - 1 < SC_ABI_RECORD_LINES)
		ret = take_record(peer, ctl, &why);
	if (ret == -ENOMEM || ret == -EAGAIN)
		return ret;
	if (ret)
		return refuse(peer, why);
	if (!peer->rx.at.lines)
		return -ECONNRESET; /* the answer to the record ended in quarantine */
	if (kind == SC_ABI_CONTINUE)
		return 0;
	if (bounced) {
		buffers_taken(peer, ctl);
		return 0;
	}
	if (is_bounce(kind) || (is_put_done(peer, ctl) && is_returned(ctl)))
		sc_record_returned(peer); /* in a buffer of this endpoint */
	sc_ring_release(&peer->rx, lines);
	return 0;
}

/* Does the same for a delegated put whose payload is in its record, without a search for its kind. */
static inline int take_put(struct sc_peer *peer, uint64_t ctl)
{
	const char *why;
	int ret = sc_taker_put(peer, ctl, &why);

	if (ret)
		return ret == -ENOMEM ? ret : refuse(peer, why);
	sc_ring_release(&peer->rx, sc_ctl_lines(ctl));
	sc_ring_fetch(&peer->rx, sc_ctl_lines(ctl));
	return 0;
}

static inline bool is_short_put(uint64_t ctl)
{
	return sc_ctl_kind(ctl) == SC_ABI_DELEGATE_PUT && !(sc_ctl_flags(ctl) & SC_ABI_F_BOUNCED) &&
	       sc_ctl_lines(ctl) - 1 < SC_ABI_RECORD_LINES;
}

/* Takes records of a ring, at most SC_RX_BURST including `taken`. Returns their number, including `taken`. */
static int poll_ring(struct sc_peer *peer, uint64_t ctl, int taken)
{
	int ret = 0;

	while (ctl && taken < SC_RX_BURST) {
		if (!take_inline(peer, ctl) &&
		    !(is_bounce(sc_ctl_kind(ctl)) && (take_buffer(peer, ctl) || take_part(peer, ctl))))
			ret = is_short_put(ctl) ? take_put(peer, ctl) : take_next(peer, ctl);
		taken += ret != -ENOMEM;
		if (ret == -ECONNRESET)
			return taken;
		ctl = ret ? 0 : sc_ring_peek(&peer->rx);
	}
	if (!peer->rx.at.lines)
		return taken;
	sc_taker_report(peer);
	if (taken && (peer->recv.lent || sc_rx_is_to_publish(peer)))
		sc_peer_publish(peer);
	return taken;
}

/* Moves a busy peer to the rings that each poll looks at, in the place of another. */
static void inbound_promote(struct sc_ep *ep, uint32_t index)
{
	uint32_t victim = ep->inbound_victim;
	struct sc_peer *peer = ep->inbound[index];

	ep->inbound_victim = victim + 1 < SC_BUSY_RINGS ? victim + 1 : 0;
	ep->inbound[index] = ep->inbound[victim];
	ep->inbound[index]->inbound_index = index;
	ep->inbound[victim] = peer;
	peer->inbound_index = victim;
}

int sc_rx_poll_peer(struct sc_peer *peer, uint64_t ctl, int taken)
{
	taken = poll_ring(peer, ctl, taken);
	if (__builtin_expect(!taken && peer->feed == SC_FEED_DRAINING, 0) && !sc_ring_peek(&peer->rx) &&
	    sc_taker_inherit(peer)) {
		sc_peer_drained(peer);
		return 1;
	}
	return taken;
}

int sc_rx_poll_quiet(struct sc_ep *ep)
{
	int taken = 0;

	for (uint32_t quiet = 0; quiet < QUIET_RINGS && ep->inbound_count > SC_BUSY_RINGS; quiet++) {
		uint32_t index = ep->inbound_cursor;
		struct sc_peer *peer;
		int here;

		if (index < SC_BUSY_RINGS || index >= ep->inbound_count)
			index = SC_BUSY_RINGS;
		ep->inbound_cursor = index + 1;
		peer = ep->inbound[index];
		here = sc_rx_poll_one(ep, peer);
		if (here && index < ep->inbound_count)
			inbound_promote(ep, index);
		taken += here;
	}
	return taken;
}

/* Tells whether a poll that looks at this ring has something to do there. */
static bool has_news(const struct sc_peer *peer)
{
	return sc_ring_peek(&peer->rx) || peer->feed == SC_FEED_DRAINING;
}

bool sc_rx_has_record(struct sc_ep *ep)
{
	uint32_t busy = ep->inbound_count < SC_BUSY_RINGS ? ep->inbound_count : SC_BUSY_RINGS;
	uint32_t quiet = ep->inbound_count - busy;

	for (uint32_t i = 0; i < busy; i++)
		if (has_news(ep->inbound[i]))
			return true;
	/* from where the last poll has ended: a ring whose record has to wait does not hide those behind it */
	for (uint32_t n = 0; n < quiet; n++) {
		uint32_t index = ep->inbound_cursor + n;

		if (ep->inbound_cursor < busy || ep->inbound_cursor >= ep->inbound_count)
			index = busy + n;
		else if (index >= ep->inbound_count)
			index -= quiet;
		if (has_news(ep->inbound[index])) {
			ep->inbound_cursor = index;
			return true;
		}
	}
	return false;
}
