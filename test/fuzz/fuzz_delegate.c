/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_delegate: small puts that either side may do (delegate.c, and target.c on the other side), and a peer that
 * writes anything into the words that say who does which.
 *
 * Input: struct step again and again. `ep` puts into mad's memory, and is offered puts into its own; `mad` is
 * written for, and never polled. Its memory is that of a child, as in fuzz_record.
 *
 * Every operation that was accepted ends exactly once; nothing around the registered memory is written.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_child.h"
#include "link/peer.h"
#include "link/connect.h"
#include "rma/rma.h"
#include "link/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned long fuzz_rounds; /* see replay.c */
const unsigned long fuzz_rounds = 20;

struct step {
	uint8_t what, how;
	uint16_t small;
	uint32_t value;
};

/* The steps of ep, the correct steps of mad, and the words that mad writes over. */
enum what { PUT, GET, POLL, TAKE, END, OFFER, WITHDRAW, CLAIM, DONE, ERROR, THEIR_CLAIM, ANSWER, WHATS };

#define STEPS_MAX 200
#define OPS_MAX 512
#define KEY 5
#define SPACE 65536
#define GUARD 64

static bool op_pending[OPS_MAX]; /* the address of each is a context */
static size_t op_count;
static struct sc_comp_ring tx_cq, rx_cq;
static uint8_t source[SPACE], into[SPACE], registered[SPACE + 2 * GUARD];
static struct sc_ep *ep, *mad;
static struct sc_peer *of_mad, *to_ep;
static struct sc_regtab *tab, *mad_tab;
static struct sc_reg *reg, *mad_reg;

/* ---- set-up ---------------------------------------------------------------------------------- */

static struct sc_ep *open_ep(struct sc_regtab *of, struct sc_comp_ring *tx, struct sc_comp_ring *rx)
{
	struct sc_ep_attr attr = { .tx_cq = tx, .rx_cq = rx, .regtab = of, .tx_size = 64, .rx_size = 64 };
	struct sc_ep *opened;

	sc_config_init(&attr.config);
	attr.config.slots = 4;
	attr.config.buf_count = 16;
	CHECK(!sc_ep_create(&attr, &opened));
	return opened;
}

static void register_one(struct sc_regtab **of, struct sc_reg **one, void *memory)
{
	struct iovec range = { memory, SPACE };
	struct sc_reg_attr attr = { .ranges = &range,
				    .range_count = 1,
				    .key = KEY,
				    .flags = SC_REG_READ | SC_REG_WRITE | SC_REG_KEY };

	CHECK(!sc_regtab_create(of));
	CHECK(!sc_reg_open(*of, &attr, one));
}

static struct sc_abi_slot *slot_of_mad(void)
{
	return sc_seg_slot(ep->seg, of_mad->in_slot);
}

static struct sc_abi_slot *slot_of_ep(void)
{
	return sc_seg_slot(mad->seg, of_mad->out_slot);
}

/* Connected both ways; ep takes mad for another process, which has let it in. */
static void set_up(void)
{
	set_up_child();
	op_count = 0;
	memset(registered, 0xa5, sizeof(registered));
	CHECK(!sc_comp_ring_init(&tx_cq, 1024) && !sc_comp_ring_init(&rx_cq, 1024));
	register_one(&tab, &reg, registered + GUARD);
	register_one(&mad_tab, &mad_reg, PLACE);
	ep = open_ep(tab, &tx_cq, &rx_cq);
	mad = open_ep(mad_tab, NULL, NULL);
	CHECK(!sc_peer_get(mad, sc_ep_address(ep), &to_ep));
	CHECK(!sc_peer_get(ep, sc_ep_address(mad), &of_mad));
	CHECK(!sc_peer_connect(to_ep) && !sc_peer_connect(of_mad));
	sc_ep_poll(ep);
	CHECK(of_mad->feed == SC_FEED_UP && of_mad->link == SC_LINK_UP);
	of_mad->seg->local = false;
	of_mad->can_read = SC_REACH_YES;
	of_mad->cma = (struct sc_cma){ child, (uintptr_t)&unread, unread };
	slot_of_ep()->consumer.answer = SC_ABI_ACCEPTED;
}

static void take_completions(struct sc_comp_ring *cq)
{
	struct sc_comp *comp;

	for (; (comp = sc_comp_ring_peek(cq)); sc_comp_ring_release(cq)) {
		bool *pending = comp->context;

		CHECK(comp->err >= 0 && comp->err <= 4095);
		if (!pending)
			continue; /* a put of mad's that tells of itself */
		CHECK(pending >= op_pending && pending < op_pending + op_count && *pending);
		*pending = false;
	}
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void post(const struct step *step)
{
	static const size_t sizes[] = { 0, 1, 8, 32, 33, 256, 257, 4096, 4097, 16384, 32768, 32769 };
	bool put = step->what % WHATS == PUT;
	struct iovec iov = { put ? source : into, sizes[step->small % 12] };
	struct sc_remote remote = { step->value % (SPACE / 2), iov.iov_len, KEY + (step->how & 1) };
	struct sc_rma rma = { .iov = &iov,
			      .iov_count = 1,
			      .remote = &remote,
			      .remote_count = 1,
			      .flags = (put ? SC_RMA_WRITE : 0) | (step->how & 2 ? SC_SEND_DATA : 0) };

	if (op_count == OPS_MAX)
		return;
	rma.context = &op_pending[op_count];
	op_pending[op_count++] = true;
	of_mad->delegate.pause = 0; /* each is offered, if that can be */
	if (sc_rma_post(ep, of_mad, &rma))
		op_pending[op_count - 1] = false;
}

/* A put of mad's, as it would make it, or nearly. */
static void offer(const struct step *step)
{
	struct sc_ring_tx *tx = &to_ep->tx;
	bool in_buffers = step->how & 1;
	uint32_t size = step->value % 1024;
	uint32_t lines = in_buffers ? 1 : sc_lines_count(SC_ABI_DELEGATE_PUT_FIRST, size);
	struct sc_abi_delegate *record;

	if (lines > SC_ABI_RECORD_LINES || sc_ring_refresh(tx) || !sc_ring_has_room(tx, lines))
		return;
	if (step->how & 2)
		size ^= step->small;
	record = (struct sc_abi_delegate *)sc_ring_reserve(tx)->bytes;
	*record = (struct sc_abi_delegate){ .key = KEY + (step->how >> 2 & 1), .addr = step->small };
	record->bufs[0] = step->how & 8 ? step->small : 3;
	if (step->how & 16)
		record->addr = SPACE - size / 2;
	sc_ring_commit(tx,
		       sc_ring_ctl(SC_ABI_DELEGATE_PUT,
				   (in_buffers ? SC_ABI_F_BOUNCED : 0) |
					   (step->how & 32 ? SC_ABI_F_DATA : 0),
				   lines, size),
		       lines);
}

/* One half of a claim, or the other, or all; near what is there, or far. */
static void change(uint64_t *word, const struct step *step)
{
	uint64_t by = step->how & 1 ? step->value : (uint64_t)(int8_t)step->value;

	*word = step->how & 2 ? by : *word + (by << (step->how & 4 ? 32 : 0));
}

static void do_step(const struct step *step)
{
	struct sc_abi_slot *own = of_mad->link == SC_LINK_UP ? slot_of_ep() : NULL;
	struct sc_abi_slot *theirs = of_mad->feed == SC_FEED_UP ? slot_of_mad() : NULL;
	uint64_t done;

	switch (step->what % WHATS) {
	case PUT:
	case GET:
		post(step);
		break;
	case POLL:
		for (int i = 0; i <= step->small % 300; i++)
			sc_ep_poll(ep);
		break;
	case TAKE: /* some of those that have been offered */
		if (own && (uint32_t)own->delegation.claim != of_mad->delegate.end)
			own->delegation.claim++;
		break;
	case END: /* those that have been taken; and it has read its ring */
		if (own) {
			own->consumer.delegated_done = (uint32_t)own->delegation.claim;
			own->consumer.head = of_mad->tx.tail;
		}
		break;
	case OFFER:
		offer(step);
		break;
	case WITHDRAW:
		if (theirs)
			theirs->delegation.claim += 1ull << 32;
		break;
	case CLAIM:
		if (own)
			change(&own->delegation.claim, step);
		break;
	case DONE:
		done = own ? own->consumer.delegated_done : 0;
		change(&done, step);
		if (own)
			own->consumer.delegated_done = (uint32_t)done;
		break;
	case ERROR:
		if (own)
			own->consumer.delegated_errors[step->small % SC_ABI_DELEGATED] = (uint8_t)step->value;
		break;
	case THEIR_CLAIM:
		if (theirs)
			change(&theirs->delegation.claim, step);
		break;
	default:
		if (own)
			own->consumer.answer = step->value;
	}
	take_completions(&tx_cq);
	take_completions(&rx_cq);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void end_mad(void)
{
	if (of_mad->link != SC_LINK_DOWN || of_mad->feed != SC_FEED_DONE)
		sc_peer_quarantine(of_mad, -EPROTO, "the end of the input");
	do {
		sc_ep_poll(ep);
		take_completions(&tx_cq);
		take_completions(&rx_cq);
	} while (!sc_list_empty(&ep->work[SC_WORK_ENDING]));
	for (size_t i = 0; i < op_count; i++)
		CHECK(!op_pending[i]);
	CHECK(!of_mad->seg && !of_mad->rma.pending && !of_mad->bounce.loans.count);
	CHECK(!sc_peer_has_delegated(of_mad) && sc_list_empty(&ep->work[SC_WORK_DELEGATED]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct step step;

	set_up();
	for (int i = 0; i < STEPS_MAX && size >= sizeof(step); i++) {
		memcpy(&step, data, sizeof(step));
		data += sizeof(step);
		size -= sizeof(step);
		do_step(&step);
	}
	end_mad();
	for (int i = 0; i < GUARD; i++)
		CHECK(registered[i] == 0xa5 && registered[sizeof(registered) - 1 - (size_t)i] == 0xa5);
	CHECK(!sc_reg_close(reg) && !sc_reg_close(mad_reg));
	sc_ep_destroy(ep);
	sc_ep_destroy(mad);
	sc_regtab_destroy(tab);
	sc_regtab_destroy(mad_tab);
	sc_comp_ring_fini(&tx_cq);
	sc_comp_ring_fini(&rx_cq);
	return 0;
}
