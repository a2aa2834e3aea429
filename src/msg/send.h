/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * send.h: common parts of all ways of a send: the window of the peer, the flags, the completion of an eager message.
 *
 * The window is the number of units that one sender's unmatched messages may take at a receiver; SC_ABI_UNITS() returns
 * the units of a message. All of this is private memory, except the receiver's count of returned units, which is
 * checked.
 */
#ifndef SC_SEND_H
#define SC_SEND_H

#include <assert.h>
#include "base/comp_ring.h"
#include "link/peer.h"
#include "link/state.h"

bool sc_send_window_room_slow(struct sc_peer *peer, uint64_t units);

/* Tells whether messages of `units` more may wait unmatched at the peer. */
static inline bool sc_send_window_room(struct sc_peer *peer, uint64_t units)
{
	return __builtin_expect(peer->units_sent + units <= peer->units_limit, 1) ||
	       sc_send_window_room_slow(peer, units);
}

static inline uint64_t sc_send_units_left(const struct sc_peer *peer, bool half)
{
	return half ? peer->seg->header.window / 2 : 0;
}

/* Flags of the message itself, which a record has with the same values. */
#define SC_MESSAGE_FLAGS (SC_TAGGED | SC_SEND_DATA)
static_assert(SC_TAGGED == SC_ABI_F_TAGGED && SC_SEND_DATA == SC_ABI_F_DATA, "flags of a message");

/* Returns these flags, and those that ask for an acknowledgement. */
static inline uint32_t sc_send_abi_flags(const struct sc_send *send)
{
	uint32_t flags = send->flags & SC_MESSAGE_FLAGS;

	/* delivery comes at the same time as the match, and tells of both */
	if (send->flags & (SC_SEND_DELIVERY | SC_SEND_MATCH))
		flags |= SC_ABI_F_ACK | (send->flags & SC_SEND_FENCE ? SC_ABI_F_FENCE : 0);
	return flags;
}

static inline void sc_send_count(struct sc_peer *peer, size_t size, uint64_t units, uint64_t *way)
{
	struct sc_counters *counters = &peer->ep->counters;

	peer->units_sent += units;
	counters->tx_msgs++;
	counters->tx_bytes += size;
	++*way;
}

/* Makes a struct sc_send of arguments in registers. */
static inline __attribute__((always_inline)) struct sc_send
sc_send_of(const struct iovec *payload, struct sc_tag_data word, struct sc_op_flags flags, void *context)
{
	return (struct sc_send){ .iov = payload,
				 .iov_count = 1,
				 .tag = word.tag,
				 .data = word.data,
				 .context = context,
				 .flags = flags.flags,
				 .cq_flags = flags.cq_flags };
}

/*
 * Tells whether the window has space, with half of it left if `leaves_half`, the peer is there, and the completion
 * queue has space. units_limit is 0 while there is no ring.
 */
static inline __attribute__((always_inline)) bool sc_send_is_ready(const struct sc_peer *peer, uint64_t units,
								   bool leaves_half)
{
	const struct sc_comp_ring *cq = peer->ep->tx_cq;

	return peer->units_sent + units <= peer->units_limit &&
	       peer->units_sent + units + sc_send_units_left(peer, leaves_half) <= peer->units_limit &&
	       !sc_peer_has_closed(peer) && !sc_comp_ring_is_full(cq) && cq->tail - cq->head < cq->room;
}

/* Adds the completion to the queue, which has space. */
static inline __attribute__((always_inline)) void sc_send_complete(struct sc_comp_ring *cq,
								   const struct sc_send *send, size_t size)
{
	struct sc_comp *comp = sc_comp_ring_next(cq);

	comp->context = send->context;
	comp->len = size;
	comp->buf = NULL;
	comp->data = send->data;
	comp->tag = send->tag;
	sc_comp_say(comp, send->cq_flags, 0, 0);
	sc_comp_ring_commit(cq);
}

/* Completes an eager message that is written, unless it waits for an acknowledgement. */
void sc_send_done(struct sc_peer *peer, const struct sc_send *send, size_t size, uint32_t flags);

/* Completes a message that has gone the short way, and wakes its reader. */
static inline __attribute__((always_inline)) void sc_send_short_done(struct sc_peer *peer, const struct sc_send *send,
								     uint32_t size)
{
	sc_ep_count(peer->ep, SC_EVENT_SEND, NULL, send->flags, 0);
	if (!(send->flags & SC_SILENT))
		sc_send_complete(peer->ep->tx_cq, send, size);
	sc_ring_wake(&peer->tx);
}

#endif
