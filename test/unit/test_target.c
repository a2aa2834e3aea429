/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_target: one-sided requests, and answers to them, that a peer which keeps the rules does not write. Each costs
 * its writer the connection at most, or is answered with an error: nothing is read or written outside the
 * registered memory or the buffers of the operation, and others go on undisturbed.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "core_pair.h"
#include "rma/rma.h"
#include "link/connect.h"
#include "rma/target.h"

#define SPACE ((size_t)100000)
#define LARGE ((size_t)13 << 20) /* four steps */

/* pair[1] is the victim, pair[0] writes to it what the test says, `third` keeps the rules. */
static struct end pair[2], third;
static struct end *writer;			 /* raw_record() writes for this endpoint */
static void (*adjust)(struct sc_config *config); /* changes the configuration, if not NULL */
static struct sc_regtab *tab;
static struct sc_reg *reg;
static struct sc_cntr written, read_of;
static uint8_t *space; /* registered with the victim, between guards */
static uint8_t from[SPACE], into[SPACE];

static int setup(void **state)
{
	pattern_fill(from, 0, sizeof(from), 1);
	return pair_setup(state);
}

static struct sc_reg *reg_open(void *buf, size_t len, uint32_t flags)
{
	struct iovec range = { buf, len };
	struct sc_reg_attr attr = { .ranges = &range, .range_count = 1, .flags = flags };
	struct sc_reg *opened;

	assert_int_equal(sc_reg_open(tab, &attr, &opened), 0);
	return opened;
}

static void victim_open(enum way way)
{
	struct sc_ep_attr attr = end_attr();

	writer = &pair[0];
	written = read_of = (struct sc_cntr){ 0 };
	assert_int_equal(sc_regtab_create(&tab), 0);
	attr.config.strict = true;
	if (adjust)
		adjust(&attr.config);
	end_open(&pair[0], &attr);
	end_open(&third, &attr);
	attr.regtab = tab;
	attr.cntrs[SC_EVENT_REMOTE_WRITE] = &written;
	attr.cntrs[SC_EVENT_REMOTE_READ] = &read_of;
	end_open(&pair[1], &attr);
	pair_connect(pair, way);
	third.peer = end_find(&third, &pair[1]);
	space = guarded_alloc(SPACE);
	reg = reg_open(space, SPACE, SC_REG_READ | SC_REG_WRITE);
}

static void victim_close(void)
{
	assert_int_equal(sc_reg_close(reg), 0);
	end_close(&third);
	pair_close(pair);
	sc_regtab_destroy(tab);
	assert_true(guarded_intact(space, SPACE, SPACE));
	guarded_free(space);
}

static bool is_untouched(void)
{
	for (size_t i = 0; i < SPACE; i++)
		if (space[i] != 0xa5)
			return false;
	return guarded_intact(space, SPACE, SPACE);
}

/* The third gets what it asks for. */
static void expect_served(void)
{
	struct iovec iov = { from, 5000 };
	struct sc_remote remote = { 7, 5000, sc_reg_key(reg) };
	struct sc_rma rma = { .iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1 };

	for (uint32_t flags = SC_RMA_WRITE;; flags = 0) {
		rma.flags = flags;
		iov.iov_base = flags ? from : into;
		assert_int_equal(sc_rma_post(third.ep, third.peer, &rma), 0);
		for (int i = 0; i < 4; i++) {
			ends_settle(&third, 1);
			ends_settle(&pair[1], 1);
		}
		assert_int_equal(comp_take(&third.tx).err, 0);
		if (!flags)
			break;
	}
	assert_memory_equal(into, from, 5000);
	assert_memory_equal(space + 7, from, 5000);
}

/* The victim has given up the one, and serves the third. */
static void expect_given_up(void)
{
	ends_settle(pair, 2);
	assert_int_equal(pair[1].ep->counters.quarantines, 1);
	assert_int_equal(pair[1].peer->link, SC_LINK_DOWN);
	assert_int_equal(pair[1].peer->feed, SC_FEED_DONE);
	assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
	assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_SERVING]));
	assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_RMA_BUSY]));
	assert_int_equal(pair[1].peer->target.count, 0);
	assert_int_equal(sc_slab_used(&pair[1].ep->rma_ops), 0);
	expect_served();
	victim_close();
}

#define CTL(kind, flags, lines, size)                                                                     \
	((uint64_t)(kind) << SC_ABI_CTL_KIND_SHIFT | (uint64_t)(flags) << SC_ABI_CTL_FLAGS_SHIFT |        \
	 (uint64_t)(lines) << SC_ABI_CTL_LINES_SHIFT | (uint32_t)(size))

#define WORDS (7 * SC_ABI_RECORD_LINES)

/* A record of that ctl; `words` are those of its lines, one line after the other. */
static void raw_record(uint64_t ctl, const uint64_t *words)
{
	struct sc_ring_tx *tx = &writer->peer->tx;
	struct sc_abi_line *line = sc_ring_reserve(tx);
	uint32_t lines = sc_ctl_lines(ctl);

	assert_false(sc_ring_refresh(tx));
	assert_true(sc_ring_has_room(tx, lines));
	for (uint32_t i = 0; i < lines; i++, line = sc_ring_next(&tx->at, line))
		memcpy(line->words, words + 7 * i, SC_ABI_LINE_BYTES);
	sc_ring_commit(tx, ctl, lines);
}

/* The victim's next record to the writer, which is there, behind one that says that the ring has grown. */
static struct sc_abi_ack answer_take(enum sc_abi_kind kind)
{
	struct sc_ring_rx *rx = &pair[0].peer->rx;
	uint64_t ctl = sc_ring_peek(rx);
	struct sc_abi_ack ack;

	if (ctl && sc_ctl_kind(ctl) == SC_ABI_CONTINUE) {
		sc_ring_grown(rx);
		sc_ring_release(rx, 1);
		ctl = sc_ring_peek(rx);
	}
	assert_true(ctl);
	assert_int_equal(sc_ctl_kind(ctl), kind);
	memcpy(&ack, sc_ring_first(rx)->bytes, sizeof(ack));
	sc_ring_release(rx, sc_ctl_lines(ctl));
	sc_ring_publish(rx, 0);
	return ack;
}

static void bad_record(uint64_t ctl, const uint64_t *words)
{
	victim_open(WAY_PULL);
	raw_record(ctl, words);
	ends_settle(&pair[1], 1);
	assert_true(is_untouched());
	assert_int_equal(written.value + read_of.value, 0);
	expect_given_up();
}

/* The request makes sense, but the open victim cannot do it: it answers with `err`. */
static void wrong_record(uint64_t ctl, const uint64_t *words, int err)
{
	struct sc_abi_ack ack;

	raw_record(ctl, words);
	ends_settle(&pair[1], 1);
	ack = answer_take(SC_ABI_DONE);
	assert_true(ack.op == words[0]);
	assert_int_equal(ack.status, err);
	assert_int_equal(ack.moved, 0);
	assert_int_equal(sc_ring_peek(&pair[0].peer->rx), 0);
	assert_true(is_untouched());
	assert_int_equal(written.value + read_of.value, 0);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
}

/* ---- puts ------------------------------------------------------------------------------------ */

/* Buffers from `first` on, in a record for a delegated operation and in an answer to a get. */
static void set_bufs(uint64_t words[WORDS], uint16_t first)
{
	uint16_t bufs[SC_ABI_RECORD_BUFS];

	for (uint16_t i = 0; i < SC_ABI_RECORD_BUFS; i++)
		bufs[i] = (uint16_t)(first + i);
	memcpy(&words[3], bufs, sizeof(bufs));
}

/* The same in a put. */
static void set_put_bufs(uint64_t words[WORDS], uint16_t first)
{
	struct sc_abi_put *put = (struct sc_abi_put *)words;

	for (uint16_t i = 0; i < SC_ABI_PUT_BUFS; i++)
		put->bufs[i] = (uint16_t)(first + i);
}

static void test_bad_puts(void **state)
{
	uint32_t size = end_attr().config.buf_size, count = end_attr().config.buf_count;
	uint64_t words[WORDS] = { 1 };

	(void)state;
	for (uint32_t flags = 0; flags <= SC_ABI_F_ACK; flags += SC_ABI_F_ACK) {
		set_put_bufs(words, 0);
		bad_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | flags, 1, SC_ABI_PUT_BUFS * size + 1),
			   words);
		bad_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | flags, 1, UINT32_MAX), words);
		set_put_bufs(words, (uint16_t)count);
		bad_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | flags, 1, 1), words);
		set_put_bufs(words, (uint16_t)(count - 3));
		bad_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | flags, 1, 3 * size + 1), words);
		set_put_bufs(words, UINT16_MAX);
		bad_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | flags, 1, size), words);
		memset(&words[4], 0,
		       SC_ABI_PUT_BUFS * sizeof(uint16_t)); /* one that there is, twelve times */
		bad_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | flags, 1, SC_ABI_PUT_BUFS * size + 1),
			   words);
	}
}

/* Of other sizes than their records, or in buffers that there are not. */
static void test_bad_offers(void **state)
{
	uint32_t size = end_attr().config.buf_size, count = end_attr().config.buf_count;
	uint64_t words[WORDS] = { 1 };

	(void)state;
	bad_record(CTL(SC_ABI_DELEGATE_PUT, 0, 1, 33), words);
	bad_record(CTL(SC_ABI_DELEGATE_PUT, 0, 2, 32), words);
	bad_record(CTL(SC_ABI_DELEGATE_PUT, 0, 16, 32 + 15 * 56 + 1), words);
	bad_record(CTL(SC_ABI_DELEGATE_PUT, SC_ABI_F_DATA, 1, UINT32_MAX), words);
	set_bufs(words, 0);
	bad_record(CTL(SC_ABI_DELEGATE_PUT, SC_ABI_F_BOUNCED, 1, SC_ABI_RECORD_BUFS * size + 1), words);
	bad_record(CTL(SC_ABI_DELEGATE_PUT, SC_ABI_F_BOUNCED, 1, UINT32_MAX), words);
	set_bufs(words, (uint16_t)count);
	bad_record(CTL(SC_ABI_DELEGATE_PUT, SC_ABI_F_BOUNCED, 1, 1), words);
	set_bufs(words, UINT16_MAX);
	bad_record(CTL(SC_ABI_DELEGATE_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_DATA, 1, size), words);
	bad_record(CTL(SC_ABI_DELEGATE_GET, 0, 1, 49), words);
	bad_record(CTL(SC_ABI_DELEGATE_GET, 0, 2, 48), words);
	bad_record(CTL(SC_ABI_DELEGATE_GET, 0, 16, 48 + 15 * 56 + 1), words);
	bad_record(CTL(SC_ABI_DELEGATE_GET, 0, 1, UINT32_MAX), words);
	bad_record(CTL(SC_ABI_DELEGATE_GET, SC_ABI_F_BOUNCED, 1, SC_ABI_RECORD_BUFS * size + 1), words);
	bad_record(CTL(SC_ABI_DELEGATE_GET, SC_ABI_F_BOUNCED, 1, UINT32_MAX), words);
}

/* Of more lines than a record has, and withdrawn, so that nothing else of it is read. */
static void test_bad_withdrawn_offer(void **state)
{
	const uint64_t words[WORDS + 7] = { 1 };

	(void)state;
	victim_open(WAY_PULL);
	sc_seg_slot(pair[1].ep->seg, pair[1].peer->in_slot)->delegation.claim = (uint64_t)1 << 32;
	raw_record(CTL(SC_ABI_DELEGATE_PUT, 0, SC_ABI_RECORD_LINES + 1, 8), words);
	ends_settle(&pair[1], 1);
	assert_true(is_untouched());
	expect_given_up();
}

/* A withdrawn put that its initiator has not done when it closes: the victim does it if its record makes sense. */
static void left_offer(uint32_t flags, uint32_t lines, uint32_t size, uint16_t first, bool sound)
{
	uint64_t words[WORDS];

	memset(words, 0x5b, sizeof(words));
	victim_open(WAY_PULL);
	words[1] = sc_reg_key(reg);
	words[2] = 0;
	if (flags & SC_ABI_F_BOUNCED)
		set_bufs(words, first);
	sc_seg_slot(pair[1].ep->seg, pair[1].peer->in_slot)->delegation.claim = (uint64_t)1 << 32;
	raw_record(CTL(SC_ABI_DELEGATE_PUT, flags, lines, size), words);
	ends_settle(&pair[1], 1);
	assert_true(is_untouched());
	end_close(&pair[0]);
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].ep->counters.departures, 1);
	assert_int_equal(written.value, sound);
	assert_int_equal(is_untouched(), !sound);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	expect_served();
	victim_close();
}

static void test_left_offers(void **state)
{
	uint32_t size = end_attr().config.buf_size, count = end_attr().config.buf_count;

	(void)state;
	left_offer(0, 1, 32, 0, true);
	left_offer(0, 1, 33, 0, false);
	left_offer(0, 2, 32, 0, false);
	left_offer(0, 16, 32 + 15 * 56 + 1, 0, false);
	left_offer(0, 1, UINT32_MAX, 0, false);
	left_offer(SC_ABI_F_BOUNCED, 1, size, 0, true);
	left_offer(SC_ABI_F_BOUNCED, 1, SC_ABI_RECORD_BUFS * size + 1, 0, false);
	left_offer(SC_ABI_F_BOUNCED, 1, 1, (uint16_t)count, false);
}

/* Addresses and lengths that leave the registered memory, keys of none; of PUT, bounced and not, and GET. */
static void test_wrong_places(void **state)
{
	static const int kinds[] = { SC_ABI_PUT, SC_ABI_PUT, SC_ABI_GET };

	(void)state;
	for (int k = 0; k < 3; k++) {
		bool far = k > 0;
		uint64_t ctl = CTL(kinds[k], (far ? 0 : SC_ABI_F_BOUNCED) | SC_ABI_F_ACK | SC_ABI_F_EVENT, 1,
				   far ? 1 : 100);
		uint64_t words[WORDS] = { 0 };
		struct sc_reg *other;

		victim_open(cma_allowed() ? WAY_CMA : WAY_PULL);
		other = reg_open(space, SPACE, kinds[k] == SC_ABI_GET ? SC_REG_WRITE : SC_REG_READ);
		for (int op = 0; op < 3; op++) { /* the id is the writer's own: 0 too */
			words[0] = op == 2 ? UINT64_MAX : (uint64_t)op;
			words[3] = 100;
			words[4] = (uintptr_t)(kinds[k] == SC_ABI_GET ? into : from);
			words[5] = 100;
			if (!far)
				set_put_bufs(words, 0);
			words[1] = sc_reg_key(reg);
			words[2] = SPACE - 99;
			wrong_record(ctl, words, EINVAL);
			words[2] = SPACE;
			wrong_record(ctl, words, EINVAL);
			words[2] = UINT64_MAX;
			wrong_record(ctl, words, EINVAL);
			words[2] = UINT64_MAX - 99;
			wrong_record(ctl, words, EINVAL);
			words[2] = (uintptr_t)space;
			wrong_record(ctl, words, EINVAL);
			words[2] = 0;
			words[1] ^= 1;
			wrong_record(ctl, words, EKEYREJECTED);
			words[1] = 0;
			wrong_record(ctl, words, EKEYREJECTED);
			words[1] = UINT64_MAX;
			wrong_record(ctl, words, EKEYREJECTED);
			words[1] = sc_reg_key(other);
			wrong_record(ctl, words, EACCES);
			if (far) {
				words[1] = sc_reg_key(reg);
				words[3] = words[5] = SPACE + 1;
				wrong_record(ctl, words, EINVAL);
				words[3] = words[5] = UINT64_MAX;
				wrong_record(ctl, words, EINVAL);
			}
		}
		assert_int_equal(sc_reg_close(other), 0);
		expect_served();
		victim_close();
	}
}

/* A put in many records that never ends, begins anew, is mixed with another: what is asked for is done. */
static void test_strange_puts(void **state)
{
	uint64_t words[WORDS] = { 0 };
	struct sc_abi_ack ack;

	(void)state;
	victim_open(WAY_PULL);
	memset(sc_seg_buf(pair[0].ep->seg, 0), 0x33, 100);
	set_put_bufs(words, 0);
	words[1] = sc_reg_key(reg);
	for (int i = 0; i < 500; i++) {
		words[0] = (uint64_t)i % 3;
		raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED, 1, 100), words);
		ends_settle(&pair[1], 1);
		sc_ring_publish(&pair[1].peer->rx, 0);
	}
	assert_int_equal(sc_ring_peek(&pair[0].peer->rx), 0);
	assert_int_equal(written.value, 0);
	/* one that failed in the middle says so at its end, and does nothing behind the failure */
	words[0] = 5;
	words[2] = SPACE;
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED, 1, 100), words);
	words[2] = 1000;
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_ACK | SC_ABI_F_EVENT, 1, 100), words);
	ends_settle(&pair[1], 1);
	ack = answer_take(SC_ABI_DONE);
	assert_true(ack.op == 5 && ack.status == EINVAL && ack.moved == 0);
	assert_int_equal(space[1000], 0xa5);
	assert_int_equal(written.value, 0);
	/* and the next of that id is another one */
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_ACK | SC_ABI_F_EVENT, 1, 100), words);
	ends_settle(&pair[1], 1);
	ack = answer_take(SC_ABI_DONE);
	assert_true(ack.op == 5 && ack.status == 0 && ack.moved == 100);
	assert_int_equal(space[1000], 0x33);
	assert_int_equal(written.value, 1);
	expect_served();
	victim_close();
}

/*
 * The application gets the data of the last record of a put when all its bytes are there, and only if they are: once,
 * whatever earlier records say. Without space for the completion the record waits.
 */
static void test_data_of_puts(void **state)
{
	uint32_t last = SC_ABI_F_BOUNCED | SC_ABI_F_ACK | SC_ABI_F_EVENT | SC_ABI_F_DATA;
	uint64_t words[WORDS] = { 5 };
	struct sc_abi_put *put = (struct sc_abi_put *)words;
	struct sc_comp comp;

	(void)state;
	victim_open(WAY_PULL);
	memset(sc_seg_buf(pair[0].ep->seg, 0), 0x33, 100);
	set_put_bufs(words, 0);
	put->key = sc_reg_key(reg);
	put->data = 1;
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_DATA, 1, 100), words);
	put->addr = 100;
	put->data = UINT64_MAX;
	raw_record(CTL(SC_ABI_PUT, last, 1, 50), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).moved, 150);
	comp = comp_take(&pair[1].rx);
	assert_true(comp.data == UINT64_MAX && comp.len == 150 &&
		    comp.flags == (SC_COMP_WRITTEN | SC_COMP_DATA));
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	assert_int_equal(written.value, 1);

	/* one that fails in its first record */
	put->addr = SPACE;
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED, 1, 100), words);
	put->addr = 0;
	raw_record(CTL(SC_ABI_PUT, last, 1, 100), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).status, EINVAL);
	assert_null(sc_comp_ring_peek(&pair[1].rx));

	/* one more than the queue has space for */
	pair[1].rx.limit = 1;
	for (put->data = 7; put->data < 9; put->data++)
		raw_record(CTL(SC_ABI_PUT, last, 1, 100), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).status, 0);
	assert_int_equal(sc_ring_peek(&pair[0].peer->rx), 0);
	assert_int_equal(written.value, 2);
	assert_int_equal(comp_take(&pair[1].rx).data, 7);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).status, 0);
	assert_int_equal(comp_take(&pair[1].rx).data, 8);
	expect_served();
	victim_close();
}

/* The same for a put that the victim copies from the peer's memory. */
static void test_data_of_far_puts(void **state)
{
	uint64_t words[WORDS] = { 5 };
	struct sc_abi_far *far = (struct sc_abi_far *)words;
	uint64_t ctl = CTL(SC_ABI_PUT, SC_ABI_F_EVENT | SC_ABI_F_DATA, 1, 1);
	struct sc_comp comp;

	(void)state;
	if (!cma_allowed())
		skip();
	victim_open(WAY_CMA);
	*far = (struct sc_abi_far){ 5, sc_reg_key(reg), 0, 100, { (uintptr_t)from, 100 }, 77 };
	raw_record(ctl, words);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).moved, 100);
	comp = comp_take(&pair[1].rx);
	assert_true(comp.data == 77 && comp.len == 100 && comp.flags == (SC_COMP_WRITTEN | SC_COMP_DATA));
	far->first.addr =
		4096; /* nothing is there: the peer writes the bytes through buffers, with the data */
	raw_record(ctl, words);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).status, EFAULT);
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	assert_int_equal(written.value, 1);
	expect_served();
	victim_close();
}

/*
 * Something that keeps the victim busy, for as long as the peer likes: a peek does not wait for the end of it.
 * Here a put of 4 GiB into the same 4 MiB again and again.
 */
static void test_busy_peek(void **state)
{
	size_t step = (size_t)4 << 20, part = (size_t)256 << 20;
	uint64_t words[WORDS] = { 5, 0, 0, 16 * part };
	struct iovec ranges[SC_REG_RANGES_MAX];
	struct sc_reg_attr attr = { .ranges = ranges,
				    .range_count = SC_REG_RANGES_MAX,
				    .flags = SC_REG_WRITE };
	struct sc_reg *again;
	void *source;

	(void)state;
	if (!way_possible(WAY_CMA))
		skip();
	source = mmap(NULL, part, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(source != MAP_FAILED);
	victim_open(WAY_CMA);
	ranges[0] = (struct iovec){ malloc(step), step };
	assert_non_null(ranges[0].iov_base);
	for (int i = 1; i < SC_REG_RANGES_MAX; i++)
		ranges[i] = ranges[0];
	assert_int_equal(sc_reg_open(tab, &attr, &again), 0);
	words[1] = sc_reg_key(again);
	for (int i = 0; i < 16; i++) { /* three segments to a line of seven words, from the second on */
		uint64_t *segment = i ? &words[7 + (i - 1) / 3 * 7 + (i - 1) % 3 * 2] : &words[4];

		segment[0] = (uintptr_t)source;
		segment[1] = part;
	}
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_ACK | SC_ABI_F_EVENT, 6, 16), words);
	assert_int_equal(end_recv(&pair[1], NULL, NULL, 0, 0, SC_RECV_PEEK), 0);
	assert_int_equal(comp_take(&pair[1].rx).err, ENOMSG);
	assert_int_equal(written.value, 0);
	assert_true(pair[1].peer->target.put.moved > 0);
	assert_int_equal(sc_reg_close(again), 0); /* which ends it */
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).status, EKEYREJECTED);
	expect_served();
	victim_close();
	free(ranges[0].iov_base);
	munmap(source, part);
}

/* ---- lists of segments ------------------------------------------------------------------------ */

static void bad_far(uint32_t lines, uint32_t count, uint64_t size, uint64_t len, uint64_t first_len)
{
	uint64_t words[WORDS] = { 1, 0, 0, size, (uintptr_t)from, first_len };

	for (uint32_t i = 7; i < WORDS; i++)
		words[i] = i % 7 % 2 ? len : (uintptr_t)from;
	bad_record(CTL(SC_ABI_PUT, 0, lines, count), words);
	bad_record(CTL(SC_ABI_GET, 0, lines, count), words);
}

static void test_bad_segments(void **state)
{
	(void)state;
	bad_far(1, 2, 200, 100, 100); /* lines for fewer segments */
	bad_far(2, 1, 100, 100, 100); /* and for more */
	bad_far(2, 0, 0, 0, 0);
	bad_far(2, 5, 500, 100, 100);
	bad_far(7, 17, 1700, 100, 100); /* too many, in the right number of lines */
	bad_far(16, 46, 4600, 100, 100);
	bad_far(1, UINT32_MAX, 100, 100, 100);
	bad_far(1, 0, 1, 0, 0); /* shorter than it says */
	bad_far(1, 0, UINT64_MAX, 0, 0);
	bad_far(6, 16, 1601, 100, 100);
	bad_far(1, 1, 99, 0, 100); /* longer */
	bad_far(6, 16, 1599, 100, 100);
	bad_far(2, 2, 100, UINT64_MAX - 99, 200); /* the sum wraps to the size */
	bad_far(2, 3, 98, UINT64_MAX / 2 + 1, 98);
	bad_far(1, 1, 100, 0, UINT64_MAX);
}

/* The victim cannot read or write the peer's memory, so that the peer has to move the bytes: it answers so. */
static void answer_of_fault(uint64_t op, enum sc_abi_kind kind)
{
	struct sc_abi_ack ack;
	struct sc_abi_got got;

	if (kind == SC_ABI_GET) {
		ack = answer_take(SC_ABI_GOT);
		memcpy(&got, &ack, sizeof(got));
		assert_true(got.op == op && !got.offset && got.fault);
	}
	ack = answer_take(SC_ABI_DONE);
	assert_true(ack.op == op);
	assert_int_equal(ack.status, kind == SC_ABI_GET ? 0 : EFAULT);
	assert_int_equal(ack.moved, kind == SC_ABI_GET ? 100 : 0);
}

/* Segments that point to nothing. */
static void test_segments_anywhere(void **state)
{
	static const uint64_t places[] = { 0, 4096, UINT64_MAX, UINT64_MAX - 99, 1ull << 47, 1ull << 63 };

	(void)state;
	if (!cma_allowed())
		skip();
	victim_open(WAY_CMA);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		for (int kind = SC_ABI_PUT; kind <= SC_ABI_GET; kind++) {
			uint64_t words[WORDS] = { 1, sc_reg_key(reg), 0, 100, places[i], 100 };

			raw_record(CTL(kind, 0, 1, 1), words);
			ends_settle(&pair[1], 1);
			answer_of_fault(words[0], (enum sc_abi_kind)kind);
			assert_int_equal(sc_ring_peek(&pair[0].peer->rx), 0);
			assert_true(is_untouched());
			assert_int_equal(written.value + read_of.value, 0);
		}
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	assert_true(pair[1].peer->can_read);
	expect_served();
	victim_close();
}

/* ---- more than allowed ------------------------------------------------------------------------ */

/* Answers that find no room are kept, as many as there may be requests; one more is a breach. */
static void test_too_many(void **state)
{
	(void)state;
	for (int fetch = 0; fetch < 2; fetch++)
		for (uint32_t many = SC_RMA_REQUESTS_MAX; many <= SC_RMA_REQUESTS_MAX + 1; many++) {
			uint64_t words[WORDS] = { 1, 0, 0, 8, (uintptr_t)into, 8 };
			uint64_t ctl = CTL(SC_ABI_GET, SC_ABI_F_EVENT, 1, 1);
			struct sc_abi_atomic *atomic = (struct sc_abi_atomic *)words;

			victim_open(WAY_PULL);
			pair_grow(&pair[0], &pair[1]);
			words[1] = sc_reg_key(reg);
			if (fetch) {
				atomic->kind = SC_ATOMIC_FETCH;
				atomic->type = SC_UINT8;
				atomic->code = SC_SUM;
				atomic->pad = 0;
				atomic->count = 8;
				memset(atomic->operands, 1, 8);
				ctl = CTL(SC_ABI_ATOMIC, SC_ABI_F_ACK | SC_ABI_F_EVENT, 1, 8);
			}
			for (int i = 0; i < PAIR_RING_ROOM; i++)
				assert_int_equal(end_send(&pair[1], pair[1].peer, from, 0, 0, SC_SILENT),
						 0);
			for (uint32_t i = 0; i < many; i++)
				raw_record(ctl, words);
			ends_settle(&pair[1], 1);
			assert_int_equal(pair[1].ep->counters.quarantines, many > SC_RMA_REQUESTS_MAX);
			/* each is done once: an atomic at once, whenever its answer goes */
			for (int i = 0; i < 8; i++)
				assert_int_equal(space[i], 0xa5 + (fetch ? SC_RMA_REQUESTS_MAX : 0));
			if (many > SC_RMA_REQUESTS_MAX) {
				expect_given_up();
				continue;
			}
			assert_int_equal(pair[1].peer->target.count, SC_RMA_REQUESTS_MAX);
			for (int i = 0; i < PAIR_RING_ROOM; i++)
				answer_take(SC_ABI_INLINE);
			ends_settle(&pair[1], 1);
			for (uint32_t i = 0; i < many; i++) {
				while (!sc_ring_peek(&pair[0].peer->rx))
					assert_true(sc_ep_poll(pair[1].ep));
				if (!fetch)
					answer_take(SC_ABI_GOT);
				while (!sc_ring_peek(&pair[0].peer->rx))
					assert_true(sc_ep_poll(pair[1].ep));
				assert_true(answer_take(fetch ? SC_ABI_RESULT : SC_ABI_DONE).op ==
					    words[0]);
				ends_settle(&pair[1], 1);
			}
			assert_int_equal(pair[1].peer->target.count, 0);
			assert_int_equal(read_of.value, many);
			expect_served();
			victim_close();
		}
}

/* ---- keys closed between two steps ------------------------------------------------------------ */

/* An application that has one key for all. */
static struct sc_reg *keyed_open(void *buf, size_t len)
{
	struct iovec range = { buf, len };
	struct sc_reg_attr attr = { .ranges = &range,
				    .range_count = 1,
				    .key = 77,
				    .flags = SC_REG_READ | SC_REG_WRITE | SC_REG_KEY };
	struct sc_reg *opened;

	assert_int_equal(sc_reg_open(tab, &attr, &opened), 0);
	return opened;
}

/* `i` & 1: which kind; & 2: the key is another registration's at once. */
static void test_key_closed(void **state)
{
	uint8_t *large, *source;

	(void)state;
	if (!cma_allowed())
		skip();
	large = malloc(LARGE);
	source = malloc(LARGE);
	assert_true(large && source);
	for (int i = 0; i < 4; i++) {
		uint64_t words[WORDS] = { 1, 0, 0, LARGE, (uintptr_t)source, LARGE };
		int kind = i & 1 ? SC_ABI_PUT : SC_ABI_GET;
		struct sc_reg *closing;
		struct sc_abi_ack ack;

		victim_open(WAY_CMA);
		memset(large, 1, LARGE);
		memset(source, 2, LARGE);
		closing = keyed_open(large, LARGE);
		words[1] = sc_reg_key(closing);
		raw_record(CTL(kind, SC_ABI_F_EVENT, 1, 1), words);
		sc_ep_poll(pair[1].ep);
		assert_int_equal(sc_ring_peek(&pair[0].peer->rx), 0);
		assert_int_equal(sc_reg_close(closing), 0);
		closing = i & 2 ? keyed_open(large, LARGE) : NULL;
		memset(large, 3, LARGE);
		ends_settle(&pair[1], 1);
		ack = answer_take(SC_ABI_DONE);
		assert_int_equal(ack.status, EKEYREJECTED);
		assert_true(ack.moved && ack.moved < LARGE);
		for (size_t at = 0; at < LARGE; at++) {
			assert_true(large[at] == 3);
			assert_true(kind == SC_ABI_PUT || source[at] == (at < ack.moved ? 1 : 2));
		}
		if (closing)
			assert_int_equal(sc_reg_close(closing), 0);
		assert_int_equal(written.value + read_of.value, 0);
		expect_served();
		victim_close();
	}
	free(large);
	free(source);
}

/* The same through bounce buffers, for puts between two records. */
static void test_key_closed_bounced(void **state)
{
	uint64_t words[WORDS] = { 1, 0, 0, 0 };
	struct sc_reg *closing;
	struct sc_abi_ack ack;
	uint64_t moved = 0;

	(void)state;
	victim_open(WAY_PULL);
	pair_grow(&pair[1], &pair[0]);
	closing = keyed_open(space, SPACE);
	words[1] = sc_reg_key(closing);
	set_put_bufs(words, 0);
	memset(sc_seg_buf(pair[0].ep->seg, 0), 0x33, 100);
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED, 1, 100), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(space[99], 0x33);
	assert_int_equal(sc_reg_close(closing), 0);
	closing = keyed_open(space, SPACE); /* the same key, but not the same memory to the put */
	words[2] = 100;
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_ACK | SC_ABI_F_EVENT, 1, 100), words);
	ends_settle(&pair[1], 1);
	ack = answer_take(SC_ABI_DONE);
	assert_true(ack.status == EKEYREJECTED && ack.moved == 100);
	assert_int_equal(space[100], 0xa5);
	assert_int_equal(sc_reg_close(closing), 0);

	closing = reg_open(space, SPACE, SC_REG_READ | SC_REG_WRITE);
	for (int i = 0; i < SC_ABI_RING_LINES - 2; i++)
		assert_int_equal(end_send(&pair[1], pair[1].peer, from, 0, 0, SC_SILENT), 0);
	memcpy(words, (uint64_t[]){ 2, sc_reg_key(closing), 0, SPACE, (uintptr_t)into, SPACE }, 48);
	raw_record(CTL(SC_ABI_GET, SC_ABI_F_EVENT, 1, 1), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_reg_close(closing), 0);
	for (int i = 0; i < SC_ABI_RING_LINES - 2; i++)
		answer_take(SC_ABI_INLINE);
	ends_settle(&pair[1], 1);
	while (sc_ctl_kind(sc_ring_peek(&pair[0].peer->rx)) == SC_ABI_GOT) {
		moved += sc_ctl_size(sc_ring_peek(&pair[0].peer->rx));
		answer_take(SC_ABI_GOT);
	}
	ack = answer_take(SC_ABI_DONE);
	assert_int_equal(ack.status, EKEYREJECTED);
	assert_true(ack.moved == moved && moved && moved < SPACE);
	expect_served();
	victim_close();
}

/* ---- atomics --------------------------------------------------------------------------------- */

struct request {
	uint64_t words[WORDS];
	uint64_t ctl;
};

static struct request atomic_request(int kind, int type, int code, uint32_t count, uint32_t bytes)
{
	struct request request = { .words = { 1 } };
	struct sc_abi_atomic *record = (struct sc_abi_atomic *)request.words;

	record->kind = (uint8_t)kind;
	record->type = (uint8_t)type;
	record->code = (uint8_t)code;
	record->count = count;
	request.ctl = CTL(SC_ABI_ATOMIC, SC_ABI_F_ACK | SC_ABI_F_EVENT,
			  bytes > 24 + 15 * 56 ? 16 : sc_lines_count(24, bytes), bytes);
	return request;
}

static void bad_atomic(struct request request)
{
	bad_record(request.ctl, request.words);
}

static void test_bad_atomics(void **state)
{
	static const uint32_t counts[] = { 0, 2, 3, 1u << 29, 1u << 31, UINT32_MAX };
	struct request request;

	(void)state;
	bad_atomic(atomic_request(3, SC_UINT64, SC_SUM, 1, 8));
	bad_atomic(atomic_request(255, SC_UINT64, SC_SUM, 1, 8));
	bad_atomic(atomic_request(0, SC_ATOMIC_TYPES, SC_SUM, 1, 8));
	bad_atomic(atomic_request(0, 255, SC_SUM, 1, 8));
	bad_atomic(atomic_request(0, SC_UINT64, SC_ATOMIC_CODES, 1, 8));
	bad_atomic(atomic_request(0, SC_UINT64, 255, 1, 8));
	bad_atomic(atomic_request(SC_ATOMIC_BASE, SC_UINT64, SC_ATOMIC_READ, 1,
				  0)); /* there is no such one */
	bad_atomic(atomic_request(SC_ATOMIC_BASE, SC_UINT64, SC_CSWAP, 1, 8));
	bad_atomic(atomic_request(SC_ATOMIC_COMPARE, SC_UINT64, SC_SUM, 1, 16));
	bad_atomic(atomic_request(SC_ATOMIC_FETCH, SC_DOUBLE, SC_BOR, 1, 8));
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		bad_atomic(atomic_request(SC_ATOMIC_BASE, SC_UINT64, SC_SUM, counts[i], 8));
		bad_atomic(atomic_request(SC_ATOMIC_COMPARE, SC_UINT64, SC_CSWAP, counts[i], 16));
		bad_atomic(atomic_request(SC_ATOMIC_FETCH, SC_UINT64, SC_ATOMIC_READ,
					  i == 1 || i == 2 ? 112 * counts[i] : counts[i], 0));
	}
	bad_atomic(
		atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, 865, 865)); /* more than a record holds */
	bad_atomic(atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, UINT32_MAX, UINT32_MAX));
	bad_atomic(atomic_request(SC_ATOMIC_FETCH, SC_UINT8, SC_ATOMIC_READ, 889,
				  0)); /* than an answer holds */
	request = atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, 24,
				 24); /* in too many lines, in too few */
	request.ctl += 1ull << SC_ABI_CTL_LINES_SHIFT;
	bad_atomic(request);
	request = atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, 81, 81);
	request.ctl -= 1ull << SC_ABI_CTL_LINES_SHIFT;
	bad_atomic(request);
}

/* Nobody waits for these: done or not, there is no answer. */
static void test_atomics_unasked(void **state)
{
	struct request request = atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, 1, 1);

	(void)state;
	request.ctl = CTL(SC_ABI_ATOMIC, SC_ABI_F_EVENT, 1, 1);
	((struct sc_abi_atomic *)request.words)->operands[0] = 3;
	victim_open(WAY_PULL);
	request.words[1] = sc_reg_key(reg);
	for (int i = 0; i < 2; i++) {
		raw_record(request.ctl, request.words);
		ends_settle(&pair[1], 1);
		assert_int_equal(space[0], 0xa8);
		assert_int_equal(written.value, 1);
		assert_int_equal(pair[1].peer->target.lost, i);
		request.words[1]++;
	}
	assert_false(sc_ring_peek(&pair[0].peer->rx));
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	expect_served();
	victim_close();
}

static void test_wrong_atomics(void **state)
{
	(void)state;
	for (int kind = SC_ATOMIC_BASE; kind <= SC_ATOMIC_COMPARE; kind++) {
		struct request request =
			atomic_request(kind, SC_UINT64, kind == SC_ATOMIC_COMPARE ? SC_CSWAP : SC_SUM, 2,
				       kind == SC_ATOMIC_COMPARE ? 32 : 16);
		struct sc_reg *readable, *scattered;
		struct iovec ranges[2];
		struct sc_reg_attr attr = { .ranges = ranges,
					    .range_count = 2,
					    .flags = SC_REG_READ | SC_REG_WRITE };
		uint64_t aligned;

		victim_open(WAY_PULL);
		aligned = 8 - (uintptr_t)space % 8;
		readable = reg_open(space, SPACE, SC_REG_READ);
		ranges[0] = (struct iovec){ space + aligned, 12 };
		ranges[1] = (struct iovec){ space + 64 + aligned, 12 };
		assert_int_equal(sc_reg_open(tab, &attr, &scattered), 0);
		request.words[1] = sc_reg_key(reg);
		request.words[2] = aligned + 4;
		wrong_record(request.ctl, request.words, EINVAL);
		request.words[2] = SPACE - 15;
		wrong_record(request.ctl, request.words, EINVAL);
		request.words[2] = UINT64_MAX - 7;
		wrong_record(request.ctl, request.words, EINVAL);
		request.words[2] = aligned;
		request.words[1]++;
		wrong_record(request.ctl, request.words, EKEYREJECTED);
		request.words[1] = sc_reg_key(readable);
		wrong_record(request.ctl, request.words, EACCES);
		request.words[1] = sc_reg_key(scattered); /* an element in two pieces */
		request.words[2] = 0;
		wrong_record(request.ctl, request.words, EINVAL);
		assert_int_equal(sc_reg_close(readable), 0);
		assert_int_equal(sc_reg_close(scattered), 0);
		expect_served();
		victim_close();
	}
}

/*
 * One range of an operation cannot be reached, so the requests for the ranges behind it are not done, and the operation
 * is not counted. The next operation is.
 */
static void test_range_failed(void **state)
{
	const struct request requests[] = {
		atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, 1, 1),
		atomic_request(SC_ATOMIC_FETCH, SC_UINT8, SC_SUM, 1, 1),
		atomic_request(SC_ATOMIC_FETCH, SC_UINT8, SC_ATOMIC_READ, 1, 0),
		{ { 1, 0, 0, 1, (uintptr_t)into, 1 }, CTL(SC_ABI_GET, SC_ABI_F_EVENT, 1, 1) },
	};
	static const enum sc_abi_kind answers[] = { SC_ABI_DONE, SC_ABI_RESULT, SC_ABI_RESULT,
						    SC_ABI_GOT };

	(void)state;
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		struct request request = requests[i];
		uint64_t last = request.ctl;
		uint64_t before = last & ~((uint64_t)SC_ABI_F_EVENT << SC_ABI_CTL_FLAGS_SHIFT);

		request.words[0] = 1;
		victim_open(WAY_PULL);
		request.words[1] = sc_reg_key(reg) + 1;
		wrong_record(before, request.words, EKEYREJECTED);
		request.words[1] = sc_reg_key(reg);
		wrong_record(before, request.words, ECANCELED);
		wrong_record(last, request.words, ECANCELED);
		raw_record(last, request.words);
		ends_settle(&pair[1], 1);
		answer_take(answers[i]);
		assert_int_equal(written.value + read_of.value, 1);
		expect_served();
		victim_close();
	}
}

/* ---- requests whose parts do not fit together -------------------------------------------------- */

/* Records of one put are of two registrations, or in two ways: each is checked by itself. */
static void test_mixed_puts(void **state)
{
	uint64_t words[WORDS] = { 5 }, far[WORDS] = { 5, 0, 0, 50, (uintptr_t)from, 50 };
	struct sc_abi_ack ack;
	struct sc_reg *other;

	(void)state;
	victim_open(WAY_PULL);
	other = reg_open(space + 1000, 1000, SC_REG_WRITE);
	set_put_bufs(words, 0);
	words[1] = sc_reg_key(reg);
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED, 1, 100), words);
	words[1] = sc_reg_key(other);
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_ACK | SC_ABI_F_EVENT, 1, 100), words);
	ends_settle(&pair[1], 1);
	ack = answer_take(SC_ABI_DONE);
	assert_int_equal(ack.status, 0);
	assert_int_equal(ack.moved, 200);
	assert_int_equal(written.value, 1);

	/* more than the second way is asked for has gone the first one already */
	far[1] = words[1] = sc_reg_key(reg);
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED, 1, 100), words);
	pair[1].peer->can_read = true;
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_EVENT, 1, 1), far);
	ends_settle(&pair[1], 1);
	ack = answer_take(SC_ABI_DONE);
	assert_int_equal(ack.status, 0);
	assert_int_equal(ack.moved, 100);
	assert_int_equal(sc_reg_close(other), 0);
	expect_served();
	victim_close();
}

#define RANGES (SC_IOV_MAX + 2)

/* The application has unmapped the first of many pieces: an error, and nothing is done behind it. */
static void test_hole(void **state)
{
	struct sc_reg_attr attr = { .range_count = RANGES, .flags = SC_REG_READ | SC_REG_WRITE };
	uint64_t words[WORDS] = { 1 }, get[WORDS] = { 1, 0, 0, 8 * RANGES, (uintptr_t)into, 8 * RANGES };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct iovec ranges[RANGES];
	struct sc_reg *scattered;
	uint8_t *gone;

	(void)state;
	victim_open(WAY_PULL);
	gone = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(gone != MAP_FAILED);
	for (size_t i = 0; i < RANGES; i++)
		ranges[i] = (struct iovec){ i ? space + 16 * i : gone, 8 };
	attr.ranges = ranges;
	assert_int_equal(sc_reg_open(tab, &attr, &scattered), 0);
	assert_int_equal(munmap(gone, page), 0);
	set_put_bufs(words, 0);
	get[1] = words[1] = sc_reg_key(scattered);
	wrong_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_ACK | SC_ABI_F_EVENT, 1, 8 * RANGES), words, EIO);
	raw_record(CTL(SC_ABI_GET, SC_ABI_F_EVENT, 1, 1), get);
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_ctl_size(sc_ring_peek(&pair[0].peer->rx)), 0); /* the buffers come back */
	answer_take(SC_ABI_GOT);
	assert_int_equal(answer_take(SC_ABI_DONE).status, EIO);
	assert_int_equal(read_of.value, 0);
	assert_true(is_untouched());
	assert_int_equal(sc_reg_close(scattered), 0);
	expect_served();
	victim_close();
}

static void small_buffers(struct sc_config *config)
{
	config->buf_size = 512;
	config->buf_count = 1024;
}

/* There are buffers for all of it at once: it goes by several polls all the same, for others' sake. */
static void test_long_get(void **state)
{
	uint64_t get[WORDS] = { 1, 0, 0, SPACE, (uintptr_t)into, SPACE };
	size_t got = 0;

	(void)state;
	adjust = small_buffers;
	victim_open(WAY_PULL);
	adjust = NULL;
	get[1] = sc_reg_key(reg);
	raw_record(CTL(SC_ABI_GET, 0, 1, 1), get);
	sc_ep_poll(pair[1].ep);
	assert_int_equal(pair[1].peer->target.count, 1);
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].peer->target.count, 0);
	while (got < SPACE) {
		got += sc_ctl_size(sc_ring_peek(&pair[0].peer->rx));
		answer_take(SC_ABI_GOT);
	}
	assert_int_equal(answer_take(SC_ABI_DONE).moved, SPACE);
	expect_served();
	victim_close();
}

#define PUT_BYTES (24 + 15 * 56) /* the most that a record holds, */
#define GET_BYTES (48 + 15 * 56) /* and the most that an answer does */

/* Each byte in a range of its own, and ranges of none in between. */
static struct sc_reg *scattered_open(void)
{
	static struct iovec ranges[SC_REG_RANGES_MAX];
	struct sc_reg_attr attr = { .ranges = ranges,
				    .range_count = SC_REG_RANGES_MAX,
				    .flags = SC_REG_READ | SC_REG_WRITE };
	struct sc_reg *opened;

	for (size_t i = 0; i < SC_REG_RANGES_MAX; i++)
		ranges[i] = (struct iovec){ space + 2 * i, i % 8 != 7 };
	assert_int_equal(sc_reg_open(tab, &attr, &opened), 0);
	return opened;
}

/* Where byte `i` of it is. */
static uint8_t *scattered_at(size_t i)
{
	return space + 2 * (i / 7 * 8 + i % 7);
}

static void test_atomic_in_pieces(void **state)
{
	struct request put = atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, PUT_BYTES, PUT_BYTES);
	struct request get = atomic_request(SC_ATOMIC_FETCH, SC_UINT8, SC_ATOMIC_READ, GET_BYTES, 0);
	struct sc_ring_rx *rx;
	struct sc_reg *scattered;
	uint8_t values[GET_BYTES];
	size_t changed = 0;

	(void)state;
	victim_open(WAY_PULL);
	scattered = scattered_open();
	put.words[1] = get.words[1] = sc_reg_key(scattered);
	for (size_t i = 0; i < PUT_BYTES; i++)
		((uint8_t *)put.words)[32 + i] = (uint8_t)(i % 255 + 1);
	raw_record(put.ctl, put.words);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).status, 0);
	for (size_t i = 0; i < PUT_BYTES; i++)
		assert_int_equal(*scattered_at(i), (uint8_t)(0xa5 + i % 255 + 1));
	for (size_t i = 0; i < SPACE; i++)
		changed += space[i] != 0xa5;
	assert_int_equal(changed, PUT_BYTES);
	raw_record(get.ctl, get.words);
	ends_settle(&pair[1], 1);
	rx = &pair[0].peer->rx;
	assert_int_equal(sc_ctl_kind(sc_ring_peek(rx)), SC_ABI_RESULT);
	sc_lines_read(&rx->at, sc_ring_first(rx), SC_ABI_RESULT_FIRST, values, GET_BYTES);
	for (size_t i = 0; i < GET_BYTES; i++)
		assert_int_equal(values[i], *scattered_at(i));
	answer_take(SC_ABI_RESULT);
	assert_int_equal(sc_reg_close(scattered), 0);
	expect_served();
	victim_close();
}

/* One that cannot be done, while there is no room for its result. */
static void test_wrong_fetch_queued(void **state)
{
	struct request request = atomic_request(SC_ATOMIC_FETCH, SC_UINT64, SC_SUM, 1, 8);

	(void)state;
	victim_open(WAY_PULL);
	request.words[1] = sc_reg_key(reg);
	request.words[2] = 8 - (uintptr_t)space % 8 + 4; /* between two elements */
	for (int i = 0; i < PAIR_RING_ROOM; i++)
		assert_int_equal(end_send(&pair[1], pair[1].peer, from, 0, 0, SC_SILENT), 0);
	raw_record(request.ctl, request.words);
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].peer->target.count, 0);
	for (int i = 0; i < PAIR_RING_ROOM; i++)
		answer_take(SC_ABI_INLINE);
	ends_settle(&pair[1], 1);
	assert_int_equal(answer_take(SC_ABI_DONE).status, EINVAL);
	assert_true(is_untouched());
	expect_served();
	victim_close();
}

/* Answers that wait for room go with their peer. */
static void test_lost_with_answers(void **state)
{
	uint64_t words[WORDS] = { 1 };

	(void)state;
	victim_open(WAY_PULL);
	for (int i = 0; i < PAIR_RING_ROOM; i++)
		assert_int_equal(end_send(&pair[1], pair[1].peer, from, 0, 0, SC_SILENT), 0);
	set_put_bufs(words, 0);
	words[1] = sc_reg_key(reg) + 1;
	for (int i = 0; i < 3; i++)
		raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_ACK, 1, 100), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].peer->reply.count, 3);
	assert_false(sc_list_empty(&pair[1].ep->work[SC_WORK_REPLYING]));
	set_put_bufs(words, UINT16_MAX);
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_BOUNCED | SC_ABI_F_ACK, 1, 100), words);
	ends_settle(&pair[1], 1);
	assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_REPLYING]));
	assert_true(is_untouched());
	expect_given_up();
}

/* ---- notes ----------------------------------------------------------------------------------- */

static void test_notes(void **state)
{
	static const uint32_t accesses[] = { 0, 3, 4, 1u << 31, UINT32_MAX };
	uint64_t words[WORDS] = { 42, 77, 1000 };

	(void)state;
	for (size_t i = 0; i < sizeof(accesses) / sizeof(accesses[0]); i++)
		for (uint32_t flags = 0; flags < 2; flags++) {
			words[3] = accesses[i];
			bad_record(CTL(SC_ABI_NOTE, flags ? SC_ABI_F_DATA | SC_ABI_F_EVENT : 0, 1, 0),
				   words);
		}
	/* of a key that is none: it has been closed since */
	victim_open(WAY_PULL);
	words[3] = SC_REG_WRITE;
	raw_record(CTL(SC_ABI_NOTE, SC_ABI_F_DATA | SC_ABI_F_EVENT, 1, 0), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(comp_take(&pair[1].rx).data, 42);
	assert_int_equal(written.value, 1);
	expect_served();
	victim_close();
}

/* More than there is a place for, from one that has gone: they are waited for, then it has left. */
static void test_notes_of_the_gone(void **state)
{
	uint64_t words[WORDS] = { 42, 77, 1000, SC_REG_WRITE };

	(void)state;
	victim_open(WAY_PULL);
	pair[1].rx.limit = 1;
	for (int i = 0; i < 2; i++)
		raw_record(CTL(SC_ABI_NOTE, SC_ABI_F_DATA | SC_ABI_F_EVENT, 1, 0), words);
	end_close(&pair[0]);
	ends_settle(&pair[1], 1);
	assert_int_equal(written.value, 1);
	assert_int_equal(pair[1].peer->feed, SC_FEED_DRAINING);
	assert_int_equal(comp_take(&pair[1].rx).data, 42);
	ends_settle(&pair[1], 1);
	assert_int_equal(written.value, 2);
	assert_int_equal(comp_take(&pair[1].rx).data, 42);
	assert_int_equal(pair[1].peer->feed, SC_FEED_DONE);
	assert_int_equal(pair[1].ep->counters.departures, 1);
	expect_served();
	victim_close();
}

/* Notes to an endpoint whose queue is overrun, and to one without counters, registrations and queue. */
static void test_notes_unwanted(void **state)
{
	uint64_t words[WORDS] = { 42, 77, 1000, SC_REG_WRITE };
	struct sc_ep_attr attr = end_attr();
	struct end ends[2];
	size_t room;

	(void)state;
	victim_open(WAY_PULL);
	room = pair[1].rx.room;
	pair[1].rx.room = 0;
	raw_record(CTL(SC_ABI_NOTE, SC_ABI_F_DATA | SC_ABI_F_EVENT, 1, 0), words);
	ends_settle(&pair[1], 1);
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	assert_int_equal(written.value, 1);
	pair[1].rx.room = room;
	expect_served();
	victim_close();

	end_open(&ends[0], NULL);
	ends[1] = (struct end){ 0 };
	assert_int_equal(sc_ep_create(&attr, &ends[1].ep), 0);
	pair_connect(ends, WAY_PULL);
	writer = &ends[0];
	raw_record(CTL(SC_ABI_NOTE, SC_ABI_F_DATA | SC_ABI_F_EVENT, 1, 0), words);
	ends_settle(&ends[1], 1);
	assert_int_equal(ends[1].ep->counters.quarantines, 0);
	assert_int_equal(ends[1].peer->feed, SC_FEED_UP);
	sc_ep_destroy(ends[1].ep);
	end_close(&ends[0]);
}

/* ---- who cannot be answered, or written to ----------------------------------------------------- */

/* It has connected to us; we cannot to it, when it wants an answer. */
static void test_not_linked(void **state)
{
	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	for (int fetch = 0; fetch < 2; fetch++) {
		struct request request = atomic_request(SC_ATOMIC_FETCH, SC_UINT8, SC_SUM, 1, 1);
		uint64_t get[WORDS] = { 1, 0, 0, 8, (uintptr_t)into, 8 };
		struct sc_peer *peer;

		victim_open(WAY_PULL);
		get[1] = request.words[1] = sc_reg_key(reg);
		assert_int_equal(sc_peer_connect(third.peer), 0);
		ends_settle(&third, 1);
		ends_settle(&pair[1], 1);
		peer = end_find(&pair[1], &third);
		assert_int_equal(peer->feed, SC_FEED_UP);
		assert_int_equal(peer->link, SC_LINK_NONE);
		writer = &third;
		if (fetch)
			raw_record(request.ctl, request.words);
		else
			raw_record(CTL(SC_ABI_GET, 0, 1, 1), get);
		core_failing("memory.slot", EIO);
		sc_ep_poll(pair[1].ep);
		core_failing(NULL, 0);
		assert_int_equal(pair[1].ep->counters.quarantines, 1);
		assert_non_null(strstr(child_log_line, strerror(EIO))); /* the cause */
		assert_int_equal(peer->link, SC_LINK_DOWN);
		ends_settle(&pair[1], 1);
		assert_true(is_untouched());
		victim_close();
	}
}

/* Takes one record as of a peer that is known by its name only, or that has left before it was let in. */
static int take_from(struct sc_seg *seg, enum sc_link link, const char **why)
{
	struct sc_peer *peer = pair[1].peer, before = *peer;
	uint64_t ctl = sc_ring_peek(&peer->rx);
	int ret;

	assert_true(ctl);
	peer->seg = seg;
	peer->link = link;
	peer->feed = SC_FEED_DRAINING;
	ret = sc_target_take(peer, ctl, why);
	peer->seg = before.seg;
	peer->link = before.link;
	peer->feed = before.feed;
	sc_ring_release(&peer->rx, sc_ctl_lines(ctl));
	return ret;
}

/* The victim does not put bytes that are in the memory of such a peer. */
static void test_left(void **state)
{
	uint64_t far[WORDS] = { 1, 0, 0, 50, (uintptr_t)from, 50 };
	const char *why = NULL;

	(void)state;
	victim_open(cma_allowed() ? WAY_CMA : WAY_PULL);
	far[1] = sc_reg_key(reg);
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_EVENT, 1, 1), far);
	assert_int_equal(take_from(NULL, SC_LINK_NONE, &why), 0);
	raw_record(CTL(SC_ABI_PUT, SC_ABI_F_EVENT, 1, 1), far);
	assert_int_equal(take_from(pair[1].peer->seg, SC_LINK_DOWN, &why), 0);
	assert_int_equal(written.value, 0);
	assert_true(is_untouched());
	expect_served();
	victim_close();
}

#ifdef SC_FAULT_INJECTION

/* Nothing tells whether a page is there (an old kernel): then it is there. */
static int never_looks(const char *point)
{
	return !strcmp(point, "probe.touch") ? ENOSYS : !strcmp(point, "probe.can") ? EINVAL : 0;
}

static void do_atomic_unseen(struct child *self, void *arg)
{
	struct request request = atomic_request(SC_ATOMIC_BASE, SC_UINT8, SC_SUM, 1, 1);
	struct sc_abi_ack ack;

	(void)self, (void)arg;
	child_on_its_own();
	sc_fault_hook = never_looks;
	victim_open(WAY_PULL);
	request.words[1] = sc_reg_key(reg);
	raw_record(request.ctl, request.words);
	ends_settle(&pair[1], 1);
	ack = answer_take(SC_ABI_DONE);
	assert_int_equal(ack.status, 0);
	assert_int_equal(ack.moved, 1);
	assert_int_equal(written.value, 1);
	victim_close();
}

/* Before anything is looked at in this process. */
static void test_unseen(void **state)
{
	(void)state;
	assert_int_equal(child_run(do_atomic_unseen, NULL), 0);
}

static struct sc_abi_presence *dying;

/* The kernel says that the writer ends, just when its memory is to be written to, and its cookie is not there. */
static int die_at_hazard(const char *point)
{
	if (dying && !strcmp(point, "target.hazard"))
		sc_store_release_32(&dying->life, SC_ABI_LIFE_ENDED);
	return !strcmp(point, "cma.readv") ? ESRCH : 0;
}

static struct sc_abi_presence *closing;

/* The writer closes just when its memory is to be written to. */
static int close_at_hazard(const char *point)
{
	if (closing && !strcmp(point, "target.hazard"))
		sc_store_release_32(&closing->state, SC_ABI_CLOSED);
	return 0;
}

static void get_through_buffers(void)
{
	uint64_t get[WORDS] = { 1, sc_reg_key(reg), 0, 8, (uintptr_t)into, 8 };

	raw_record(CTL(SC_ABI_GET, 0, 1, 1), get);
	sc_ep_poll(pair[1].ep);
}

static void expect_buffers(void)
{
	assert_false(pair[1].peer->can_read);
	answer_take(SC_ABI_GOT);
	assert_int_equal(answer_take(SC_ABI_DONE).status, 0);
	expect_served();
	victim_close();
}

static void test_get_not_written(void **state)
{
	uint32_t life;

	(void)state;
	if (!cma_allowed())
		skip();
	victim_open(WAY_CMA);
	core_failing("cma.writev", EPERM);
	get_through_buffers();
	core_failing(NULL, 0);
	expect_buffers();

	victim_open(WAY_CMA);
	closing = sc_seg_presence(pair[1].peer->seg);
	sc_fault_hook = close_at_hazard;
	get_through_buffers();
	sc_store_release_32(&closing->state, 0);
	closing = NULL;
	core_failing(NULL, 0);
	expect_buffers();

	victim_open(WAY_CMA);
	dying = sc_seg_presence(pair[1].peer->seg);
	life = sc_load_relaxed_32(&dying->life);
	sc_fault_hook = die_at_hazard;
	get_through_buffers();
	sc_store_release_32(&dying->life, life);
	dying = NULL;
	core_failing(NULL, 0);
	expect_buffers();
}

/* It cannot be told whether it was its memory: it is not said to be its mistake. */
static int fault_of_another(const char *point)
{
	return !strcmp(point, "cma.writev") ? EFAULT : !strcmp(point, "cma.readv") ? ESRCH : 0;
}

static void test_get_fault(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	victim_open(WAY_CMA);
	assert_true(pair[1].peer->cma.cookie_addr);
	sc_fault_hook = fault_of_another;
	get_through_buffers();
	core_failing(NULL, 0);
	expect_buffers();
}

#else

static void test_unseen(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

static void test_get_not_written(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

static void test_get_fault(void **state)
{
	(void)state;
	core_without_points();
	skip();
}

#endif

/* ---- answers --------------------------------------------------------------------------------- */

enum pending { NOTHING, A_PUT, A_GET, A_FETCH, A_BASE, PENDINGS };

/* The victim has asked pair[0] for something that has not been answered. Returns the id of the operation. */
static uint64_t ask(enum pending what)
{
	struct iovec iov = { into + 1000, 300 };
	struct sc_remote remote = { 0, 300, 1 };
	struct sc_rma rma = { .iov = &iov,
			      .iov_count = 1,
			      .remote = &remote,
			      .remote_count = 1,
			      .context = into,
			      .flags = what == A_PUT ? SC_RMA_WRITE : 0 };
	struct sc_atomic atomic = { .kind = what == A_FETCH ? SC_ATOMIC_FETCH : SC_ATOMIC_BASE,
				    .type = SC_UINT8,
				    .code = SC_SUM,
				    .iov = &(struct iovec){ from, 300 },
				    .iov_count = 1,
				    .result = &iov,
				    .result_count = what == A_FETCH,
				    .remote = &remote,
				    .remote_count = 1,
				    .context = into };

	if (what == NOTHING)
		return 1ull << 32;
	if (what <= A_GET)
		assert_int_equal(sc_rma_post(pair[1].ep, pair[1].peer, &rma), 0);
	else
		assert_int_equal(sc_atomic_post(pair[1].ep, pair[1].peer, &atomic), 0);
	return sc_slab_id(sc_list_entry(pair[1].peer->rma.waiting.next, struct sc_rma_op, of_peer));
}

static void expect_into_untouched(void)
{
	for (size_t i = 0; i < SPACE; i++)
		assert_true(into[i] == 0x77 || (i >= 1000 && i < 1300));
}

/* words[0] is to be the id, changed by that. */
static void bad_answer(enum pending what, uint64_t ctl, const uint64_t *words, uint64_t change)
{
	uint64_t copy[WORDS] = { 0 };

	victim_open(WAY_PULL);
	memset(into, 0x77, sizeof(into));
	memcpy(copy, words, 7 * sizeof(copy[0]));
	copy[0] = ask(what) ^ change;
	raw_record(ctl, copy);
	ends_settle(&pair[1], 1);
	expect_into_untouched();
	if (what != NOTHING) {
		struct sc_comp comp = comp_take(&pair[1].tx);

		assert_int_equal(comp.err, EPROTO);
		assert_ptr_equal(comp.context, into);
	}
	assert_null(sc_comp_ring_peek(&pair[1].tx));
	assert_true(is_untouched());
	expect_given_up();
}

static void test_bad_answers(void **state)
{
	static const int kinds[] = { SC_ABI_DONE, SC_ABI_GOT, SC_ABI_RESULT };
	uint32_t buf_size = end_attr().config.buf_size;
	uint64_t words[WORDS] = { 0 };

	(void)state;
	for (int k = 0; k < 3; k++) /* to nothing, or nothing of that id */
		for (int what = NOTHING; what < PENDINGS; what++) {
			bad_answer(what, CTL(kinds[k], 0, 1, 8), words, 1ull << 33);
			bad_answer(what, CTL(kinds[k], 0, 1, 8), words, 1);
			bad_answer(what, CTL(kinds[k], 0, 1, 8), words, 0xffff0000);
			bad_answer(what, CTL(kinds[k], 0, 1, 8), words, UINT64_MAX << 32);
		}
	for (int what = A_PUT; what < PENDINGS; what++) { /* more than was asked for; no errno */
		words[1] = 301;
		bad_answer(what, CTL(SC_ABI_DONE, 0, 1, 0), words, 0);
		words[1] = UINT64_MAX;
		bad_answer(what, CTL(SC_ABI_DONE, 0, 1, 0), words, 0);
		words[1] = 0;
		words[2] = 4096;
		bad_answer(what, CTL(SC_ABI_DONE, 0, 1, 0), words, 0);
		words[2] = UINT32_MAX;
		bad_answer(what, CTL(SC_ABI_DONE, 0, 1, 0), words, 0);
		words[2] = 0;
		if (what != A_GET)
			bad_answer(what, CTL(SC_ABI_GOT, 0, 1, 8), words, 0);
		if (what != A_FETCH)
			bad_answer(what, CTL(SC_ABI_RESULT, 0, 1, 8), words, 0);
	}
	bad_answer(A_FETCH, CTL(SC_ABI_DONE, 0, 1, 0), words, 0); /* well, and no values */
	/* bytes of a get */
	bad_answer(A_GET, CTL(SC_ABI_GOT, 0, 1, 301), words, 0);
	bad_answer(A_GET, CTL(SC_ABI_GOT, 0, 1, UINT32_MAX), words, 0);
	bad_answer(A_GET, CTL(SC_ABI_GOT, 0, 1, SC_ABI_RECORD_BUFS * buf_size + 1), words, 0);
	words[1] = 1;
	bad_answer(A_GET, CTL(SC_ABI_GOT, 0, 1, 8), words, 0);
	words[1] = UINT64_MAX;
	bad_answer(A_GET, CTL(SC_ABI_GOT, 0, 1, 8), words, 0);
	words[1] = 0;
	set_bufs(words, UINT16_MAX);
	bad_answer(A_GET, CTL(SC_ABI_GOT, 0, 1, 8), words, 0);
	set_bufs(words, (uint16_t)end_attr().config.buf_count);
	bad_answer(A_GET, CTL(SC_ABI_GOT, 0, 1, 8), words, 0);
	/* values of an atomic */
	bad_answer(A_FETCH, CTL(SC_ABI_RESULT, 0, 6, 301), words, 0);
	bad_answer(A_FETCH, CTL(SC_ABI_RESULT, 0, 16, 889), words, 0);
	bad_answer(A_FETCH, CTL(SC_ABI_RESULT, 0, 16, UINT32_MAX), words, 0);
	bad_answer(A_FETCH, CTL(SC_ABI_RESULT, 0, 1, 300), words, 0);
	bad_answer(A_FETCH, CTL(SC_ABI_RESULT, 0, 2, 48), words, 0);
}

/* One more than there are: the second answer; bytes of a get that its end knows nothing of. */
static void test_second_answers(void **state)
{
	uint64_t words[WORDS] = { 0 };

	(void)state;
	for (int what = A_PUT; what < PENDINGS; what++) {
		victim_open(WAY_PULL);
		words[0] = ask(what);
		words[2] = EKEYREJECTED;
		raw_record(CTL(SC_ABI_DONE, 0, 1, 0), words);
		raw_record(CTL(SC_ABI_DONE, 0, 1, 0), words);
		ends_settle(&pair[1], 1);
		assert_int_equal(comp_take(&pair[1].tx).err, EKEYREJECTED);
		assert_null(sc_comp_ring_peek(&pair[1].tx));
		expect_given_up();
	}
	victim_open(WAY_PULL);
	memset(into, 0x77, sizeof(into));
	words[0] = ask(A_GET);
	words[2] = 0;
	raw_record(CTL(SC_ABI_GOT, 0, 1, 200), words);
	words[1] = 100; /* the same as the offset of the next */
	raw_record(CTL(SC_ABI_DONE, 0, 1, 0), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(comp_take(&pair[1].tx).err, EPROTO);
	expect_into_untouched();
	expect_given_up();
}

/* A peer answers an operation that goes to another peer. */
static void test_answers_for_others(void **state)
{
	static const int kinds[] = { SC_ABI_DONE, SC_ABI_GOT, SC_ABI_RESULT };

	(void)state;
	for (int k = 0; k < 3; k++)
		for (int what = A_PUT; what < PENDINGS; what++) {
			struct sc_peer *bad;
			uint64_t words[WORDS] = { 0 };

			victim_open(WAY_PULL);
			assert_int_equal(end_send(&third, third.peer, from, 0, 0, SC_SILENT), 0);
			ends_settle(&pair[1], 1);
			bad = pair[1].peer;
			pair[1].peer = end_find(&pair[1], &third);
			if (pair[1].peer->link == SC_LINK_NONE)
				assert_int_equal(sc_peer_connect(pair[1].peer), 0);
			words[0] = ask(what);
			pair[1].peer = bad;
			raw_record(CTL(kinds[k], 0, 1, 8), words);
			for (int i = 0; i < 4; i++) {
				ends_settle(&pair[1], 1);
				ends_settle(&third, 1);
			}
			/* the third has no such key */
			assert_int_equal(comp_take(&pair[1].tx).err, EKEYREJECTED);
			assert_null(sc_comp_ring_peek(&pair[1].tx));
			expect_given_up();
		}
}

/* An answer may be wrong in these points: only its operation suffers. */
static void test_answers_that_lie(void **state)
{
	uint64_t words[WORDS] = { 0 };

	(void)state;
	victim_open(WAY_PULL);
	memset(into, 0x77, sizeof(into));
	words[0] = ask(A_GET); /* all moved, and nothing is */
	words[1] = 300;
	raw_record(CTL(SC_ABI_DONE, 0xff & ~SC_ABI_F_ACK, 1, UINT32_MAX), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(comp_take(&pair[1].tx).err, 0);
	words[0] = ask(A_FETCH); /* in pieces */
	raw_record(CTL(SC_ABI_RESULT, 0, 1, 5), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(comp_take(&pair[1].tx).err, 0);
	words[0] = ask(A_PUT); /* cannot copy what it was not to copy */
	words[1] = 0;
	words[2] = EOPNOTSUPP;
	raw_record(CTL(SC_ABI_DONE, 0, 1, 0), words);
	ends_settle(&pair[1], 1);
	assert_int_equal(comp_take(&pair[1].tx).err, EOPNOTSUPP);
	expect_into_untouched();
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	assert_int_equal(sc_slab_used(&pair[1].ep->rma_ops), 0);
	expect_served();
	victim_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unseen),
		cmocka_unit_test(test_bad_puts),
		cmocka_unit_test(test_bad_offers),
		cmocka_unit_test(test_bad_withdrawn_offer),
		cmocka_unit_test(test_left_offers),
		cmocka_unit_test(test_wrong_places),
		cmocka_unit_test(test_strange_puts),
		cmocka_unit_test(test_data_of_puts),
		cmocka_unit_test(test_data_of_far_puts),
		cmocka_unit_test(test_busy_peek),
		cmocka_unit_test(test_bad_segments),
		cmocka_unit_test(test_segments_anywhere),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_key_closed),
		cmocka_unit_test(test_key_closed_bounced),
		cmocka_unit_test(test_bad_atomics),
		cmocka_unit_test(test_atomics_unasked),
		cmocka_unit_test(test_wrong_atomics),
		cmocka_unit_test(test_range_failed),
		cmocka_unit_test(test_mixed_puts),
		cmocka_unit_test(test_hole),
		cmocka_unit_test(test_long_get),
		cmocka_unit_test(test_atomic_in_pieces),
		cmocka_unit_test(test_wrong_fetch_queued),
		cmocka_unit_test(test_lost_with_answers),
		cmocka_unit_test(test_notes),
		cmocka_unit_test(test_notes_of_the_gone),
		cmocka_unit_test(test_notes_unwanted),
		cmocka_unit_test(test_not_linked),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_get_not_written),
		cmocka_unit_test(test_get_fault),
		cmocka_unit_test(test_bad_answers),
		cmocka_unit_test(test_second_answers),
		cmocka_unit_test(test_answers_for_others),
		cmocka_unit_test(test_answers_that_lie),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests_name("serve", tests, setup, NULL);
}
