/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_words: an endpoint at work with a peer that writes anything anywhere it can: into each word of its own
 * segment and of its slot here, records with true and false operations in them, at any time in between.
 *
 * Input: a byte of how the two are set up, then struct step again and again, a record's 56 bytes behind those
 * that write one. `ep` does what applications do; `mad` is written for, and never polled; `third` keeps the
 * rules. mad's memory is that of a child, as in fuzz_record.
 *
 * Every operation with mad that was accepted ends exactly once. The traffic between third and ep is right, unless
 * the input sets WILD, which lets it write over third's words, too.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_child.h"
#include "link/hold.h"
#include "link/peer.h"
#include "link/connect.h"
#include "rma/rma.h"
#include "link/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const unsigned long fuzz_rounds; /* see replay.c */
const unsigned long fuzz_rounds = 10;

enum { WILD = 1, READABLE = 2, MAD_STRICT = 4, ONE_WAY = 8, NO_RMA = 16 };

struct step {
	uint8_t what, how;
	uint16_t small;
	uint32_t at;
	uint64_t value;
};

enum what { RECV, SEND, READ, WRITE, ATOMIC, RECORD, WORD, POLL, ANSWERS_READ, REG_CLOSE, THIRD, WHATS };
enum where {
	OWN_PRESENCE,
	OWN_CLAIM,
	OWN_SLOT,
	OWN_TABLE,
	OWN_POOL,
	SLOT,
	CLAIM,
	PRESENCE,
	CLAIMS,
	OTHERS,
	WHERES
};

#define STEPS_MAX 150
#define OPS_MAX 512
#define SIZE_MAX_ 300000
#define GUARD 64

/* An operation of the application's: its address is the context. */
static struct op {
	bool used, receives, multi, done;
} ops[OPS_MAX];
static size_t op_count;

static struct sc_comp_ring tx_cq, rx_cq;
static uint8_t space[SIZE_MAX_ + 2 * GUARD], asked[SIZE_MAX_ + 2 * GUARD];
static uint8_t registered[100000 + 2 * GUARD];
static struct sc_ep *ep, *mad, *third;
static struct sc_peer *of_mad, *to_ep, *of_third, *third_to_ep;
static struct sc_regtab *tab, *mad_tab;
static struct sc_reg *reg, *mad_reg;
static struct sc_comp_ring third_tx, third_rx;
static uint64_t numbers_sent; /* numbers sent to and from the third */

/* ---- the application ------------------------------------------------------------------------- */

static struct op *op_get(bool receives)
{
	if (op_count == OPS_MAX)
		return NULL;
	ops[op_count] = (struct op){ .used = true, .receives = receives };
	return &ops[op_count++];
}

static void op_unused(struct op *op)
{
	op->used = false;
}

static void take_completions(struct sc_comp_ring *cq)
{
	struct sc_comp *comp;

	for (; (comp = sc_comp_ring_peek(cq)); sc_comp_ring_release(cq)) {
		struct op *op = comp->context;

		CHECK(comp->err >= 0 && comp->err <= 4095);
		if (!op)
			continue; /* a peer's write, a peek */
		CHECK(op >= ops && op < ops + op_count && op->used);
		if (op->multi && !(comp->flags & SC_COMP_MULTI_DONE))
			continue;
		CHECK(!op->done);
		op->done = true;
	}
}

static void take_all(void)
{
	take_completions(&tx_cq);
	take_completions(&rx_cq);
}

static void post_recv(const struct step *step)
{
	static const size_t sizes[] = { 0, 8, 100, 3000, 40000, 100000, 200000, SIZE_MAX_ };
	struct iovec iov[2] = { { space + GUARD, sizes[step->small % 8] } };
	struct sc_recv recv = {
		.iov = iov, .iov_count = 1, .tag = step->value & 3, .flags = step->how & SC_TAGGED
	};
	struct op *op;

	if (step->how & 2)
		recv.source = of_mad;
	if (step->how & 4) /* not of the third's messages */
		recv.ignore = recv.flags & SC_TAGGED ? 3 : UINT64_MAX;
	if (step->how & 8) {
		recv.flags |= SC_RECV_PEEK | (step->how & 16 ? SC_RECV_DISCARD : 0);
		(void)sc_rx_recv(ep, &recv);
		return;
	}
	op = op_get(true);
	if (!op)
		return;
	if (step->how & 32) {
		recv.flags |= SC_RECV_MULTI;
		recv.multi_min = 64;
		op->multi = true;
	} else if (step->how & 64) {
		iov[1] = (struct iovec){ (char *)iov[0].iov_base + iov[0].iov_len / 3,
					 iov[0].iov_len - iov[0].iov_len / 3 };
		iov[0].iov_len /= 3;
		recv.iov_count = 2;
	}
	recv.context = op;
	if (sc_rx_recv(ep, &recv))
		op_unused(op);
	else if (step->how & 128 && !op->done)
		(void)sc_rx_cancel(ep, op);
}

static void post_send(const struct step *step)
{
	static const size_t sizes[] = { 0, 8, 150, 1000, 20000, 50000, 100000, SIZE_MAX_ };
	static const uint32_t flags[] = { 0,
					  SC_SEND_DELIVERY,
					  SC_SEND_MATCH,
					  SC_SEND_FENCE,
					  SC_SEND_FENCE | SC_SEND_DELIVERY,
					  SC_SEND_DATA,
					  SC_TAGGED,
					  SC_TAGGED };
	struct iovec iov = { space + GUARD, sizes[step->small % 8] };
	struct op *op = op_get(false);
	struct sc_send send = {
		.iov = &iov, .iov_count = 1, .context = op, .flags = flags[step->how % 8]
	};

	if (!op)
		return;
	if (step->how & 128 && iov.iov_len <= SC_INJECT_MAX)
		send.flags |= SC_SEND_INJECT;
	if (sc_tx_send(ep, of_mad, &send))
		op_unused(op);
}

static void post_rma(const struct step *step, bool write)
{
	static const size_t sizes[] = { 0, 8, 4096, 4097, 40000, 100000, 65536, 1 };
	struct iovec iov = { asked + GUARD, sizes[step->small % 8] };
	struct sc_remote remote[2] = { { step->at, iov.iov_len, sc_reg_key(mad_reg) } };
	struct op *op = op_get(false);
	struct sc_rma rma = { .iov = &iov,
			      .iov_count = 1,
			      .remote = remote,
			      .remote_count = 1,
			      .context = op,
			      .flags = write ? SC_RMA_WRITE : 0 };

	if (!op)
		return;
	if (step->how & 1)
		remote[0].addr = step->value % 2000;
	if (step->how & 2)
		remote[0].key = step->value;
	if (step->how & 4) {
		remote[1] = (struct sc_remote){ 0, iov.iov_len / 2, remote[0].key };
		remote[0].len -= remote[1].len;
		rma.remote_count = 2;
	}
	if (step->how & 8)
		rma.flags |= SC_SEND_DATA;
	if (step->how & 16)
		rma.flags |= SC_SEND_FENCE;
	if (step->how & 32 && iov.iov_len <= SC_INJECT_MAX)
		rma.flags |= SC_SEND_INJECT;
	if (sc_rma_post(ep, of_mad, &rma))
		op_unused(op);
}

static void post_atomic(const struct step *step)
{
	struct iovec iov = { asked + GUARD, 8u << step->small % 9 };
	struct sc_remote remote = { step->at % 1000 * 8, iov.iov_len, sc_reg_key(mad_reg) };
	struct op *op = op_get(false);
	struct sc_atomic atomic = { .kind = step->how % 3,
				    .type = SC_UINT64,
				    .code = step->how % 3 == SC_ATOMIC_COMPARE ? SC_CSWAP : SC_SUM,
				    .iov = &iov,
				    .iov_count = 1,
				    .compare = &iov,
				    .compare_count = 1,
				    .result = &iov,
				    .result_count = 1,
				    .remote = &remote,
				    .remote_count = 1,
				    .context = op };

	if (op && sc_atomic_post(ep, of_mad, &atomic))
		op_unused(op);
}

/* ---- the peer -------------------------------------------------------------------------------- */

/* The n-th operation of the endpoint that is in use, or one that is not. */
static uint64_t true_id(uint32_t n)
{
	static struct sc_slab *slabs[3];
	struct sc_slab *slab;

	slabs[0] = &ep->tx_ops;
	slabs[1] = &ep->rxq->ops;
	slabs[2] = &ep->rma_ops;
	slab = slabs[n % 3];
	n /= 3;
	for (uint32_t index = 0, left = n % 64; index < slab->chunk_count * 64; index++) {
		for (uint32_t generation = 1; generation < 20; generation += 2) {
			uint64_t id = (uint64_t)generation << 32 | index;

			if (sc_slab_find(slab, id) && !left--)
				return id;
		}
	}
	return 1ull << 32 | n % 64;
}

static void write_record(const struct step *step, const uint8_t bytes[SC_ABI_LINE_BYTES])
{
	struct sc_ring_tx *tx = &to_ep->tx;
	uint32_t lines = step->how >> 4 & 7 ? step->how >> 4 & 7 : 1;
	enum sc_abi_kind kind = (enum sc_abi_kind)((step->how & 15) + (step->at >> 31));
	struct sc_abi_line *line;

	if (!tx->at.lines || sc_ring_refresh(tx) || !sc_ring_has_room(tx, lines))
		return;
	line = sc_ring_reserve(tx);
	memcpy(line->bytes, bytes, SC_ABI_LINE_BYTES);
	if (step->at & 1)
		line->words[step->at & 2 ? 2 : 0] = true_id(step->at >> 2 & 255);
	if (step->at & 1024) /* memory that is there */
		line->words[4] = (uintptr_t)PLACE, line->words[5] = line->words[3];
	if (step->at & 2048)
		line->words[2] = (uintptr_t)PLACE, line->words[3] = line->words[1];
	for (uint32_t i = 1; i < lines; i++) {
		line = sc_ring_next(&tx->at, line);
		memcpy(line->bytes, bytes, SC_ABI_LINE_BYTES);
	}
	sc_ring_commit(tx, sc_ring_ctl(kind, step->small >> 8, lines, (uint32_t)step->value), lines);
}

/* Somewhere in `size` bytes from `base` on, aligned; near the beginning more often than not. */
static uint8_t *place(void *base, size_t size, uint32_t at)
{
	return (uint8_t *)base + (at & 1 ? at : at % 512) % (size - 8) / 4 * 4;
}

/* A word that mad may write to; one of third's only with WILD. NULL: there is no such word. */
static uint8_t *word_at(const struct step *step, bool wild)
{
	struct sc_seg *own = mad->seg, *seg = ep->seg;
	const struct sc_regtab_view table = sc_seg_table(own);
	uint32_t in = of_mad->in_slot, out = of_mad->out_slot;

	switch (step->how % WHERES) {
	case OWN_PRESENCE:
		return place(sc_seg_presence(own), sizeof(struct sc_abi_presence), step->at);
	case OWN_CLAIM:
		return (uint8_t *)&sc_seg_claims(own)[step->at % own->header.slot_count];
	case OWN_SLOT:
		return out == UINT32_MAX ? NULL : place(sc_seg_slot(own, out), SC_ABI_SLOT_SIZE, step->at);
	case OWN_TABLE:
		if (!table.reg_max) /* strict: where its table would be, the segment has ended */
			return NULL;
		if (step->at & 2)
			return place(table.regs, sizeof(struct sc_abi_reg), step->at >> 2);
		return place(table.buckets, 4096, step->at);
	case OWN_POOL:
		return place(sc_seg_buf(own, 0), 4096, step->at);
	case SLOT:
		return in == UINT32_MAX ? NULL : place(sc_seg_slot(seg, in), SC_ABI_SLOT_SIZE, step->at);
	case CLAIM:
		return in == UINT32_MAX ? NULL : (uint8_t *)&sc_seg_claims(seg)[in];
	case PRESENCE:
		if (wild)
			return place(sc_seg_presence(seg), sizeof(struct sc_abi_presence), step->at);
		return (uint8_t *)&sc_seg_presence(seg)->membership;
	case CLAIMS:
		return wild ? (uint8_t *)&sc_seg_claims(seg)[step->at % seg->header.slot_count] : NULL;
	default:
		if (wild && of_third->in_slot != UINT32_MAX)
			return place(sc_seg_slot(seg, of_third->in_slot), SC_ABI_SLOT_SIZE, step->at);
		return NULL;
	}
}

static void write_word(const struct step *step, bool wild)
{
	uint8_t *at = word_at(step, wild);
	uint64_t word;
	size_t size = step->small & 1 ? 8 : 4;

	if (!at)
		return;
	memcpy(&word, at, 8);
	switch (step->small >> 1 & 7) {
	case 0:
		word = step->value;
		break;
	case 1:
		word ^= 1ull << step->value % 64;
		break;
	case 2:
		word += (uint64_t)(int8_t)step->value;
		break;
	case 3:
		word += (uint64_t)(int8_t)step->value << 16;
		break;
	case 4:
		word += (uint64_t)(int8_t)step->value << 32;
		break;
	case 5:
		word = step->value & 15;
		break;
	case 6:
		word = true_id((uint32_t)step->value);
		break;
	default:
		word = 0;
	}
	memcpy(at, &word, size);
}

/* ---- the third ------------------------------------------------------------------------------- */

static void poll_both(int rounds)
{
	while (rounds--) {
		sc_ep_poll(ep);
		sc_ep_poll(third);
		take_all();
	}
}

/* A message each way, small or large. */
static void talk_to_third(size_t size)
{
	static uint8_t from[70000], into[70000];
	struct iovec out = { from, size }, in = { into, size };
	struct op *op;

	for (int back = 0; back < 2; back++) {
		struct sc_send send = { .iov = &out, .iov_count = 1, .tag = 1000, .flags = SC_TAGGED };
		struct sc_recv recv = { .iov = &in, .iov_count = 1, .tag = 1000, .flags = SC_TAGGED };
		bool received = false;
		int ret;

		op = op_get(back);
		if (!op)
			return;
		memset(from, (int)++numbers_sent & 0xff, size);
		recv.source = back ? of_third : third_to_ep;
		*(back ? &recv.context : &send.context) = op;
		CHECK(!sc_rx_recv(back ? ep : third, &recv));
		do {
			ret = sc_tx_send(back ? third : ep, back ? third_to_ep : of_third, &send);
			poll_both(1);
		} while (ret == -EAGAIN);
		CHECK(!ret);
		for (int i = 0; i < 100000 && !received; i++) {
			poll_both(1);
			received = back ? op->done : !!sc_comp_ring_peek(&third_rx);
		}
		CHECK(received && !memcmp(into, from, size));
		for (int i = 0; i < 100000 && !(back ? !!sc_comp_ring_peek(&third_tx) : op->done); i++)
			poll_both(1);
		while (sc_comp_ring_peek(&third_rx)) {
			CHECK(!sc_comp_ring_peek(&third_rx)->err);
			sc_comp_ring_release(&third_rx);
		}
		while (sc_comp_ring_peek(&third_tx)) {
			CHECK(!sc_comp_ring_peek(&third_tx)->err);
			sc_comp_ring_release(&third_tx);
		}
	}
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static struct sc_ep *open_ep(struct sc_regtab *of, struct sc_comp_ring *tx, struct sc_comp_ring *rx, bool strict)
{
	struct sc_ep_attr attr = { .tx_cq = tx, .rx_cq = rx, .regtab = of, .tx_size = 64, .rx_size = 64 };
	struct sc_ep *opened;

	sc_config_init(&attr.config);
	attr.config.slots = 4;
	attr.config.buf_count = 16;
	attr.config.window = 1024;
	attr.config.strict = strict;
	CHECK(!sc_ep_create(&attr, &opened));
	return opened;
}

static void register_one(struct sc_regtab **of, struct sc_reg **one, void *memory, uint64_t key)
{
	struct iovec range = { memory, 100000 };
	struct sc_reg_attr attr = { .ranges = &range,
				    .range_count = 1,
				    .key = key,
				    .flags = SC_REG_READ | SC_REG_WRITE | (key ? SC_REG_KEY : 0) };

	CHECK(!sc_regtab_create(of));
	CHECK(!sc_reg_open(*of, &attr, one));
}

static void set_up(uint8_t how)
{
	static int done;

	set_up_child();
	if (!done++) {
		CHECK(!sc_comp_ring_init(&tx_cq, 1024) && !sc_comp_ring_init(&rx_cq, 1024));
		CHECK(!sc_comp_ring_init(&third_tx, 64) && !sc_comp_ring_init(&third_rx, 64));
	}
	op_count = 0;
	numbers_sent = 0;
	memset(space, 0xa5, sizeof(space));
	memset(asked, 0xa5, sizeof(asked));
	memset(registered, 0xa5, sizeof(registered));
	register_one(&tab, &reg, registered + GUARD, 5);
	register_one(&mad_tab, &mad_reg, PLACE, how & 32 ? 7 : 0);
	ep = open_ep(how & NO_RMA ? NULL : tab, &tx_cq, &rx_cq, true);
	mad = open_ep(mad_tab, NULL, NULL, how & MAD_STRICT);
	third = open_ep(NULL, &third_tx, &third_rx, true);
	CHECK(!sc_peer_get(mad, sc_ep_address(ep), &to_ep));
	CHECK(!sc_peer_get(ep, sc_ep_address(mad), &of_mad));
	CHECK(!sc_peer_get(ep, sc_ep_address(third), &of_third));
	CHECK(!sc_peer_get(third, sc_ep_address(ep), &third_to_ep));
	talk_to_third(8);
	CHECK(!sc_peer_connect(to_ep));
	poll_both(4);
	CHECK(of_mad->feed == SC_FEED_UP);
	if (!(how & ONE_WAY))
		CHECK(of_mad->link == SC_LINK_UP || !sc_peer_connect(of_mad));
	of_mad->seg->local = false;
	of_mad->can_read = how & READABLE ? SC_REACH_YES : SC_REACH_NO;
	of_mad->cma = (struct sc_cma){ child, (uintptr_t)&unread, unread };
}

static bool is_intact(const uint8_t *memory, size_t size)
{
	for (int i = 0; i < GUARD; i++)
		if (memory[i] != 0xa5 || memory[size - 1 - (size_t)i] != 0xa5)
			return false;
	return true;
}

/* All that was asked of mad has ended, or is with the application still. */
static void check_ended(void)
{
	for (size_t i = 0; i < op_count; i++)
		if (ops[i].used && !ops[i].receives)
			CHECK(ops[i].done);
}

/* An endpoint that closes waits 5 seconds for each hazard word; to wait for an invented word tests nothing more. */
static void clear_hazards(const struct sc_seg *seg)
{
	for (uint32_t i = 0; i < seg->header.slot_count; i++)
		if (seg->base && sc_load_relaxed_64(&sc_seg_claims(seg)[i]))
			memset(&sc_seg_slot(seg, i)->hazards, 0, sizeof(struct sc_abi_hazards));
}

static void end_mad(void)
{
	if (of_mad->link != SC_LINK_DOWN || of_mad->feed == SC_FEED_UP || of_mad->feed == SC_FEED_DRAINING)
		sc_peer_quarantine(of_mad, -EPROTO, "the end of the input");
	for (int i = 0; i < 4 || !sc_list_empty(&ep->work[SC_WORK_ENDING]); i++) {
		of_mad->xfer.runs = 1000; /* it has been seen to run for long enough */
		of_mad->xfer.seen = 0;
		sc_ep_poll(ep);
		take_all();
	}
	CHECK(of_mad->link == SC_LINK_DOWN && !of_mad->seg);
	CHECK(sc_list_empty(&of_mad->recv.transfers) && sc_list_empty(&of_mad->ops) &&
	      !of_mad->rma.pending);
	/* a buffer that mad may be writing to stays lent to mad until it departs */
	CHECK(of_mad->bounce.returnables.count <= SC_ABI_RETURN_BUFS);
	CHECK(!of_mad->target.count && of_mad->bounce.loans.count <= of_mad->bounce.returnables.count);
	CHECK(!of_mad->bounce.loans.count ||
	      of_mad->bounce.loans.first == *of_mad->bounce.returnables.bufs);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void close_reg(struct sc_regtab *of, struct sc_reg **one)
{
	if (*one)
		CHECK(!sc_reg_close(*one));
	*one = NULL;
	sc_regtab_destroy(of);
}

static bool take(const uint8_t **data, size_t *size, void *to, size_t len)
{
	if (*size < len)
		return false;
	memcpy(to, *data, len);
	*data += len;
	*size -= len;
	return true;
}

static void do_step(const struct step *step, const uint8_t bytes[SC_ABI_LINE_BYTES], bool wild)
{
	switch (step->what % WHATS) {
	case RECV:
		post_recv(step);
		break;
	case SEND:
		post_send(step);
		break;
	case READ:
	case WRITE:
		post_rma(step, step->what % WHATS == WRITE);
		break;
	case ATOMIC:
		post_atomic(step);
		break;
	case RECORD:
		write_record(step, bytes);
		break;
	case WORD:
		write_word(step, wild);
		break;
	case POLL:
		for (int i = 0; i <= step->how % 16; i++)
			sc_ep_poll(ep);
		break;
	case ANSWERS_READ:
		if (of_mad->link == SC_LINK_UP)
			of_mad->tx.consumer->head = of_mad->tx.tail;
		break;
	case REG_CLOSE:
		if (reg)
			CHECK(!sc_reg_close(reg));
		reg = NULL;
		break;
	default:
		if (!wild && numbers_sent < 20)
			talk_to_third(step->small & 1 ? 60000 : step->small % 300);
	}
	take_all();
}

static void run(const uint8_t *data, size_t size, bool wild)
{
	uint8_t bytes[SC_ABI_LINE_BYTES] = { 0 };
	struct step step;

	for (int i = 0; i < STEPS_MAX && take(&data, &size, &step, sizeof(step)); i++) {
		if (step.what % WHATS == RECORD && !take(&data, &size, bytes, sizeof(bytes)))
			return;
		do_step(&step, bytes, wild);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how;

	if (!take(&data, &size, &how, 1))
		return 0;
	set_up(how);
	run(data, size, how & WILD);
	if (!(how & WILD)) {
		talk_to_third(100);
		CHECK(of_third->link == SC_LINK_UP);
	}
	end_mad();
	if (!(how & WILD)) {
		talk_to_third(60000);
		check_ended();
	}
	clear_hazards(ep->seg);
	clear_hazards(mad->seg);
	sc_ep_destroy(ep);
	sc_ep_destroy(third);
	sc_ep_destroy(mad);
	take_all();
	close_reg(tab, &reg);
	close_reg(mad_tab, &mad_reg);
	CHECK(is_intact(space, sizeof(space)) && is_intact(asked, sizeof(asked)));
	CHECK(is_intact(registered, sizeof(registered)));
	return 0;
}
