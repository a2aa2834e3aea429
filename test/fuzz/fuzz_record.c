/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_record: an endpoint takes any records that a peer may have written into its ring.
 *
 * Input: one byte of what the endpoint has posted, one of what it has sent itself, then lines of the ring,
 * 64 bytes each. The lap in the last byte of a line is made right, so that each line is a record if the
 * records before it leave it to be one; a line with the highest bit of its lines field set ends a batch,
 * which is polled. Then what waits is received, peeked at, claimed or dropped, and both sides close.
 *
 * The endpoint has registered memory: key 1 to be read and written, 2 to be read, 3 to be written and in many
 * pieces. And it has asked for some of the peer's; the ids of those operations are 1 << 32 and up. Of a copy that it may
 * share, chunks have been taken as head ^ chunk of the record says.
 *
 * The peer is an endpoint of this process that writes nothing by itself. For the receiver it is another
 * process: its memory is that of a child, which is read by process_vm_readv(2), written to, or asked for in
 * pieces, never followed. There is some at PLACE.
 */
#define _GNU_SOURCE 1
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz_child.h"
#include "link/hold.h"
#include "link/peer.h"
#include "link/connect.h"
#include "link/record.h"
#include "rma/rma.h"
#include "link/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	POST_PLAIN = 1 << 0,
	POST_TAGGED = 1 << 1,
	POST_MULTI = 1 << 2,
	POST_SHORT = 1 << 3,
	POST_LARGE = 1 << 4,
	LATER_PEEK = 1 << 5,
	LATER_CLAIM = 1 << 6,
	READABLE = 1 << 7,

	SEND_LARGE = 1 << 0,
	SEND_DELIVERY = 1 << 1,
	SEND_OTHER = 1 << 2, /* to a third endpoint */
	LATER_DISCARD = 1 << 3,
	NO_ANSWERS = 1 << 4, /* the ring back is never read */
	ANSWERS_FIRST = 1 << 5,
	ASK = 1 << 6,	     /* for memory of the peer's */
	CLOSE_KEYS = 1 << 7, /* after the first batch */
};

enum { KEY_BOTH = 1, KEY_READ, KEY_WRITE, KEYS };
#define PIECES 64
#define PIECE 8192
#define GUARD 64
#define ASKED 70000 /* bytes of a large operation */
#define IN_BUFFERS 10000
#define BUFS 32
#define BUFS_LEFT 3

static struct sc_comp_ring tx_cq, rx_cq;
static uint8_t space[300000];

/* Registered memory and operations' buffers: nothing may touch the bytes around them, the kernel neither. */
static struct memory {
	_Alignas(GUARD) uint8_t before[GUARD];
	uint8_t bytes[ASKED + 2];
	uint8_t after[GUARD];
} registered[KEYS], asked;

static void memory_fill(struct memory *memory)
{
	memset(memory, 0xa5, sizeof(*memory));
}

static bool memory_intact(const struct memory *memory)
{
	for (int i = 0; i < GUARD; i++)
		if (memory->before[i] != 0xa5 || memory->after[i] != 0xa5)
			return false;
	return true;
}

static void register_some(struct sc_regtab *tab, struct sc_reg *regs[KEYS])
{
	static const uint32_t access[KEYS] = { 0, SC_REG_READ | SC_REG_WRITE, SC_REG_READ, SC_REG_WRITE };
	struct iovec ranges[PIECES];

	for (uint32_t key = KEY_BOTH; key < KEYS; key++) {
		struct sc_reg_attr attr = { .ranges = ranges,
					    .range_count = key == KEY_WRITE ? PIECES : 1,
					    .key = key,
					    .flags = access[key] | SC_REG_KEY };

		memory_fill(&registered[key]);
		ranges[0] = (struct iovec){ registered[key].bytes, ASKED };
		for (int i = 0; key == KEY_WRITE && i < PIECES; i++)
			ranges[i] = (struct iovec){ registered[key].bytes + i % 8 * PIECE, PIECE };
		CHECK(!sc_reg_open(tab, &attr, &regs[key]));
	}
}

static void close_keys(struct sc_reg *regs[KEYS])
{
	for (int key = KEY_BOTH; key < KEYS; key++) {
		if (regs[key])
			CHECK(!sc_reg_close(regs[key]));
		regs[key] = NULL;
	}
}

/* Operations of each kind, small and large: ids 1 << 32 to 1 << 32 | 5. */
static void ask_for_some(struct sc_ep *ep, struct sc_peer *to)
{
	struct iovec iov = { asked.bytes, 0 };
	struct sc_remote remote = { 0, 0, 1 };
	struct sc_rma rma = { .iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1 };
	struct sc_atomic atomic = { .type = SC_UINT16,
				    .code = SC_SUM,
				    .iov = &iov,
				    .iov_count = 1,
				    .result = &iov,
				    .remote = &remote,
				    .remote_count = 1 };

	memory_fill(&asked);
	for (int large = 0; large < 2; large++) {
		iov.iov_len = remote.len = large ? ASKED : 100;
		rma.flags = 0;
		CHECK(!sc_rma_post(ep, to, &rma));
		iov.iov_len = remote.len = large ? 2000 : 10;
		atomic.result_count = 1 - (size_t)large;
		atomic.kind = large ? SC_ATOMIC_BASE : SC_ATOMIC_FETCH;
		CHECK(!sc_atomic_post(ep, to, &atomic));
		iov.iov_len = remote.len = large ? ASKED : 100;
		rma.flags = SC_RMA_WRITE;
		CHECK(!sc_rma_post(ep, to, &rma));
	}
}

static struct sc_ep *open_ep(struct sc_regtab *tab)
{
	struct sc_ep_attr attr = { .tx_cq = &tx_cq, .rx_cq = &rx_cq, .tx_size = 64, .rx_size = 64 };
	struct sc_ep *ep;

	sc_config_init(&attr.config);
	attr.config.strict = true;
	attr.regtab = tab;
	attr.config.slots = 2;
	attr.config.buf_count = BUFS;
	attr.config.window = 1024;
	CHECK(!sc_ep_create(&attr, &ep));
	return ep;
}

static void post(struct sc_ep *ep, uint32_t flags, size_t size)
{
	struct iovec iov[3] = { { space, size / 3 }, { NULL, 0 }, { space + size / 3, size - size / 3 } };
	struct sc_recv recv = {
		.iov = iov, .iov_count = 3, .ignore = UINT64_MAX, .context = &iov, .flags = flags
	};

	if (flags & SC_RECV_MULTI) {
		iov[0].iov_len = size;
		recv.iov_count = 1;
		recv.multi_min = 64;
	}
	(void)sc_rx_recv(ep, &recv);
}

static void post_some(struct sc_ep *ep, uint8_t what)
{
	for (int i = 0; i < 3; i++) {
		if (what & POST_SHORT)
			post(ep, i % 2 ? SC_TAGGED : 0, 30);
		if (what & POST_MULTI)
			post(ep, SC_RECV_MULTI | (i % 2 ? SC_TAGGED : 0), 5000);
		if (what & POST_PLAIN)
			post(ep, 0, 10000);
		if (what & POST_TAGGED)
			post(ep, SC_TAGGED, 10000);
		if (what & POST_LARGE)
			post(ep, i % 2 ? SC_TAGGED : 0, sizeof(space));
	}
}

static void send(struct sc_ep *ep, struct sc_peer *to, size_t size, uint32_t flags)
{
	struct iovec iov = { space, size };
	struct sc_send message = { .iov = &iov, .iov_count = 1, .flags = flags };

	(void)sc_tx_send(ep, to, &message);
}

static void drop_completions(struct sc_comp_ring *cq)
{
	while (sc_comp_ring_peek(cq))
		sc_comp_ring_release(cq);
}

static void poll_some(struct sc_ep *ep)
{
	for (int i = 0; i < 12; i++)
		sc_ep_poll(ep);
	drop_completions(&tx_cq);
	drop_completions(&rx_cq);
}

/* The peer does not look at the records that `ep` writes back; with `read` it frees their place in the ring. */
static void poll_read(struct sc_ep *ep, struct sc_peer *peer, bool read)
{
	for (int i = 0; i < 12; i++) {
		sc_ep_poll(ep);
		if (read && peer->link == SC_LINK_UP)
			peer->tx.consumer->head = peer->tx.tail;
	}
	drop_completions(&tx_cq);
	drop_completions(&rx_cq);
}

/* Messages may still wait: `ep` peeks at them, claims, discards and receives them. */
static void receive_later(struct sc_ep *ep, uint8_t posted, uint8_t sent)
{
	for (uint32_t tagged = 0; tagged <= SC_TAGGED; tagged += SC_TAGGED) {
		if (posted & LATER_PEEK)
			post(ep, tagged | SC_RECV_PEEK, 0);
		if (posted & LATER_CLAIM) {
			struct sc_recv claim = { .ignore = UINT64_MAX,
						 .context = &claim,
						 .flags = tagged | SC_RECV_PEEK | SC_RECV_CLAIM };

			(void)sc_rx_recv(ep, &claim);
			claim.flags =
				tagged | SC_RECV_CLAIM | (sent & LATER_DISCARD ? SC_RECV_DISCARD : 0);
			claim.iov = &(struct iovec){ space, 1000 };
			claim.iov_count = 1;
			if (sent & SEND_OTHER)
				(void)sc_rx_recv(ep, &claim);
		}
		if (sent & LATER_DISCARD)
			post(ep, tagged | SC_RECV_PEEK | SC_RECV_DISCARD, 0);
		for (int i = 0; i < 8; i++)
			post(ep, tagged, i % 2 ? 100 : sizeof(space));
	}
}

static void claim_some(struct sc_abi_slot *slot, const struct sc_abi_line *line)
{
	struct sc_abi_share record;

	memcpy(&record, line->bytes, sizeof(record));
	slot->chunks[record.index % SC_ABI_SHARES].claim =
		(uint64_t)record.generation << 32 | record.chunk;
}

/* The next lines go where this record has its reader look for them. */
static void follow(struct sc_peer *to, uint64_t ctl)
{
	const struct sc_ep *writer = to->ep;
	uint32_t where = sc_ctl_size(ctl), buf = where - SC_ABI_IN_BUFFER(0);

	if (where == SC_ABI_IN_RING && sc_ring_overflows(&to->tx))
		sc_ring_resume(&to->tx);
	else if (buf < writer->seg->buf_count)
		sc_ring_overflow(&to->tx, (struct sc_abi_line *)sc_seg_buf(writer->seg, buf),
				 writer->config.buf_size / SC_ABI_LINE);
}

/* Lines into the ring, as they are but for the lap. Returns how many there were in this batch. */
static size_t write_lines(struct sc_peer *to, const uint8_t *data, size_t count)
{
	for (size_t i = 0; i < count; i++, data += SC_ABI_LINE) {
		struct sc_abi_line *line = sc_ring_reserve(&to->tx);
		uint64_t ctl;

		memcpy(line->bytes, data, SC_ABI_LINE_BYTES);
		memcpy(&ctl, data + SC_ABI_LINE_BYTES, sizeof(ctl));
		ctl &= ~(0xffull << SC_ABI_CTL_LAP_SHIFT | 0x80ull << SC_ABI_CTL_LINES_SHIFT);
		if (sc_ctl_kind(ctl) == SC_ABI_SHARE)
			claim_some(sc_seg_slot(to->seg, to->out_slot), line);
		if (sc_ctl_kind(ctl) == SC_ABI_CONTINUE && sc_ctl_size(ctl) == SC_ABI_IN_RING &&
		    sc_ring_may_grow(&to->tx))
			sc_ring_grow(&to->tx);
		sc_ring_commit(&to->tx, ctl, 1);
		if (sc_ctl_kind(ctl) == SC_ABI_CONTINUE)
			follow(to, ctl);
		if (data[SC_ABI_LINE_BYTES + 4] & 0x80)
			return i + 1;
	}
	return count;
}

static void set_up(void)
{
	static int done;

	set_up_child();
	if (done++)
		return;
	signal(SIGPIPE, SIG_IGN);
	CHECK(!sc_comp_ring_init(&tx_cq, 1024));
	CHECK(!sc_comp_ring_init(&rx_cq, 1024));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sc_ep *ep, *writer, *other = NULL;
	struct sc_peer *to_ep, *of_writer, *of_other = NULL;
	struct sc_regtab *tab;
	struct sc_reg *regs[KEYS] = { NULL };
	struct sc_loans elsewhere; /* buffers of others, so that they are short */
	uint8_t posted, sent;
	size_t lines;

	if (size < 2)
		return 0;
	posted = data[0];
	sent = data[1];
	data += 2;
	lines = (size - 2) / SC_ABI_LINE;

	set_up();
	sc_loans_init(&elsewhere);
	CHECK(!sc_regtab_create(&tab));
	register_some(tab, regs);
	ep = open_ep(tab);
	writer = open_ep(NULL);
	CHECK(!sc_peer_get(writer, sc_ep_address(ep), &to_ep));
	CHECK(!sc_peer_get(ep, sc_ep_address(writer), &of_writer));
	CHECK(!sc_peer_connect(to_ep));
	poll_some(ep);
	CHECK(of_writer->feed == SC_FEED_UP);
	of_writer->seg->local = false;
	of_writer->can_read = posted & READABLE ? SC_REACH_YES : SC_REACH_NO;
	of_writer->cma = (struct sc_cma){ child, (uintptr_t)&unread, unread };

	if (!(posted & READABLE))
		post_some(ep, posted);
	else
		post_some(ep, posted & (POST_PLAIN | POST_SHORT | POST_MULTI));
	if (sent & SEND_OTHER) {
		other = open_ep(NULL);
		CHECK(!sc_peer_get(ep, sc_ep_address(other), &of_other));
		send(ep, of_other, 100000, 0);
	}
	send(ep, of_writer, IN_BUFFERS, 0); /* in buffers that may come back with a message: 0, 1 and 2 */
	CHECK(of_writer->bounce.returnables.count == 3 && of_writer->bounce.returnables.bufs[0] == 0);
	while (ep->pool.free_count + (ep->pool.count - ep->pool.have) > BUFS_LEFT && sc_record_grow(ep, 1))
		(void)sc_pool_lend(&ep->pool, &elsewhere, 0);
	if (sent & SEND_LARGE)
		send(ep, of_writer, 100000, 0);
	if (sent & SEND_DELIVERY)
		send(ep, of_writer, 100, SC_SEND_DELIVERY);
	if (sent & ASK) {
		CHECK(of_writer->link == SC_LINK_UP || !sc_peer_connect(of_writer));
		ask_for_some(ep, of_writer);
	}

	while (lines && of_writer->feed == SC_FEED_UP) {
		size_t room = to_ep->tx.at.count - 1, batch;

		if (sc_ring_refresh(&to_ep->tx))
			break;
		room -= (size_t)(to_ep->tx.tail - to_ep->tx.head);
		if (!room)
			break; /* lines that the reader leaves unread for now */
		batch = write_lines(to_ep, data, lines < room ? lines : room);
		data += batch * SC_ABI_LINE;
		lines -= batch;
		poll_read(ep, of_writer, !(sent & NO_ANSWERS));
		if (of_writer->rx.at.lines)
			sc_ring_publish(&of_writer->rx, of_writer->units_back);
		if (sent & CLOSE_KEYS)
			close_keys(regs);
	}
	CHECK(of_writer->target.count <= SC_RMA_REQUESTS_MAX);
	CHECK(of_writer->rma.requests <= SC_RMA_REQUESTS_MAX);
	CHECK(of_writer->link != SC_LINK_DOWN || !sc_slab_used(&ep->rma_ops));
	CHECK(of_writer->recv.units_held <= ep->config.window);
	CHECK(of_writer->bounce.returnables.count <= SC_ABI_RETURN_BUFS);
	CHECK(ep->counters.quarantines <= 1);
	receive_later(ep, posted, sent);
	poll_some(ep);
	CHECK(!other || of_other->link == SC_LINK_UP); /* the third is not harmed */
	if (sent & ANSWERS_FIRST) {
		sc_ep_destroy(ep);
		sc_ep_destroy(writer);
	} else {
		sc_ep_destroy(writer);
		poll_some(ep);
		CHECK(of_writer->link == SC_LINK_DOWN || of_writer->feed != SC_FEED_DONE);
		sc_ep_destroy(ep);
	}
	if (other)
		sc_ep_destroy(other);
	close_keys(regs);
	sc_regtab_destroy(tab);
	for (int key = KEY_BOTH; key < KEYS; key++)
		CHECK(memory_intact(&registered[key]));
	CHECK(!(sent & ASK) || memory_intact(&asked));
	for (size_t i = 0; i < sizeof(registered[KEY_READ].bytes); i++)
		CHECK(registered[KEY_READ].bytes[i] == 0xa5);
	drop_completions(&tx_cq);
	drop_completions(&rx_cq);
	return 0;
}
