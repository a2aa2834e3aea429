/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rx: receiving: multi-receive, peek, claim, discard, cancel, sources, wildcards; and records that a peer which
 * keeps the rules does not write: each costs its writer the connection, and harms nobody else.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core_pair.h"
#include "core_test.h"
#include "ep/rx.h"
#include "link/connect.h"

static struct end pair[2];
static uint8_t from[100000], into[200000];

static int setup(void **state)
{
	pattern_fill(from, 0, sizeof(from), 1);
	return pair_setup(state);
}

/* From pair[0] to pair[1], and let it arrive. */
static void send_to_1(size_t size, uint64_t tag, uint32_t flags)
{
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, size, tag, flags), 0);
	ends_settle(pair, 2);
}

static void drop_sent(void)
{
	while (sc_comp_ring_peek(&pair[0].tx))
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
}

/* ---- matching -------------------------------------------------------------------------------- */

static void test_tags_and_queues(void **state)
{
	uint8_t a[8], b[8], c[8];

	(void)state;
	pair_open(pair, NULL, WAY_LOCAL);
	/* posted: tagged and plain do not mix; ignored bits */
	assert_int_equal(end_recv(&pair[1], NULL, a, 8, 5, SC_TAGGED), 0);
	assert_int_equal(end_recv(&pair[1], NULL, b, 8, 0, 0), 0);
	assert_int_equal(end_recvv(&pair[1], NULL, &(struct iovec){ c, 8 }, 1, 0xf00, 0xff, SC_TAGGED, c),
			 0);
	send_to_1(8, 0xf42, SC_TAGGED);
	send_to_1(8, 0, 0);
	send_to_1(8, 5, SC_TAGGED);
	expect_received(&pair[1], pair[1].peer, c, 8, 0xf42);
	expect_received(&pair[1], pair[1].peer, b, 8, 0);
	expect_received(&pair[1], pair[1].peer, a, 8, 5);
	/* waiting */
	send_to_1(8, 0xf42, SC_TAGGED);
	send_to_1(8, 0, 0);
	send_to_1(8, 5, SC_TAGGED);
	assert_int_equal(end_recv(&pair[1], NULL, a, 8, 5, SC_TAGGED), 0);
	expect_received(&pair[1], pair[1].peer, a, 8, 5);
	assert_int_equal(
		end_recvv(&pair[1], NULL, &(struct iovec){ c, 8 }, 1, 0, UINT64_MAX, SC_TAGGED, c), 0);
	expect_received(&pair[1], pair[1].peer, c, 8, 0xf42);
	assert_int_equal(end_recv(&pair[1], NULL, b, 8, 0, 0), 0);
	expect_received(&pair[1], pair[1].peer, b, 8, 0);
	assert_int_equal(pair[1].ep->counters.rx_unexpected, 3);
	pair_close(pair);
}

/* Directed receives take from their source only, in the order of posting with undirected ones. */
static void test_sources(void **state)
{
	struct end ends[3];
	struct sc_peer *peers[3];
	uint8_t a[8], b[8], c[8];

	(void)state;
	for (int i = 0; i < 3; i++)
		end_open(&ends[i], NULL);
	for (int i = 1; i < 3; i++) {
		ends[i].peer = end_find(&ends[i], &ends[0]);
		peers[i] = end_find(&ends[0], &ends[i]);
	}
	assert_int_equal(end_recv(&ends[0], peers[2], a, 8, 1, SC_TAGGED), 0);
	assert_int_equal(end_recv(&ends[0], NULL, b, 8, 1, SC_TAGGED), 0);
	assert_int_equal(end_recv(&ends[0], peers[1], c, 8, 1, SC_TAGGED), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(end_send(&ends[1], ends[1].peer, from, 8, 1, SC_TAGGED), 0);
		ends_settle(ends, 3);
	}
	assert_int_equal(end_send(&ends[2], ends[2].peer, from, 8, 1, SC_TAGGED), 0);
	ends_settle(ends, 3);
	expect_received(&ends[0], peers[1], b, 8, 1);
	expect_received(&ends[0], peers[1], c, 8, 1);
	expect_received(&ends[0], peers[2], a, 8, 1);
	/* the same with messages that wait */
	for (int i = 1; i < 3; i++)
		assert_int_equal(end_send(&ends[i], ends[i].peer, from, 8, 1, SC_TAGGED), 0);
	ends_settle(ends, 3);
	assert_int_equal(end_recv(&ends[0], peers[2], a, 8, 1, SC_TAGGED), 0);
	expect_received(&ends[0], peers[2], a, 8, 1);
	assert_int_equal(end_recv(&ends[0], peers[2], a, 8, 1, SC_TAGGED), 0);
	assert_null(sc_comp_ring_peek(&ends[0].rx));
	assert_int_equal(end_recv(&ends[0], NULL, b, 8, 1, SC_TAGGED), 0);
	expect_received(&ends[0], peers[1], b, 8, 1);
	for (int i = 0; i < 3; i++)
		end_close(&ends[i]);
}

static void test_room(void **state)
{
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.rx_size = 2;
	pair_open(pair, &attr, WAY_LOCAL);
	assert_int_equal(sc_rxq_room(sc_ep_rxq(pair[1].ep)), 2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(end_recv(&pair[1], NULL, into, 8, 0, 0), 0);
	assert_int_equal(sc_rxq_room(sc_ep_rxq(pair[1].ep)), 0);
	for (int i = 0; i < 3; i++)
		send_to_1(8, 0, 0);
	assert_int_equal(sc_rxq_room(sc_ep_rxq(pair[1].ep)), 2);
	pair_close(pair);
}

/* ---- cancel ---------------------------------------------------------------------------------- */

static void test_cancel(void **state)
{
	struct sc_comp comp;
	uint8_t a[8], b[8];

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	assert_int_equal(sc_rx_cancel(pair[1].ep, a), -ENOENT);
	assert_int_equal(end_recv(&pair[1], NULL, a, 8, 1, SC_TAGGED), 0);
	assert_int_equal(end_recv(&pair[1], NULL, a, 8, 2, SC_TAGGED), 0);
	assert_int_equal(end_recv(&pair[1], NULL, b, 8, 0, 0), 0);
	assert_int_equal(sc_rx_cancel(pair[1].ep, a), 0); /* the newer */
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.err, ECANCELED);
	assert_ptr_equal(comp.context, a);
	assert_int_equal(comp.tag, 2);
	assert_int_equal(comp.cq_flags, 0x7ec4);
	send_to_1(8, 2, SC_TAGGED);
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	send_to_1(8, 1, SC_TAGGED);
	expect_received(&pair[1], pair[1].peer, a, 8, 1);
	assert_int_equal(sc_rx_cancel(pair[1].ep, a), -ENOENT);
	assert_int_equal(sc_rx_cancel(pair[1].ep, b), 0);
	assert_int_equal(comp_take(&pair[1].rx).err, ECANCELED);
	/* matched and under way: too late */
	assert_int_equal(end_recv(&pair[1], NULL, into, sizeof(into), 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, sizeof(from), 0, 0), 0);
	sc_ep_poll(pair[1].ep);
	assert_false(sc_list_empty(&pair[1].peer->recv.transfers));
	assert_int_equal(sc_rx_cancel(pair[1].ep, into), -ENOENT);
	ends_settle(pair, 2);
	expect_received(&pair[1], pair[1].peer, into, sizeof(from), 0);
	pair_close(pair);
}

static void expect_cancelled(uint8_t *buf, uint64_t tag)
{
	struct sc_comp comp;

	assert_int_equal(sc_rx_cancel(pair[1].ep, buf), 0);
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.err, ECANCELED);
	assert_ptr_equal(comp.context, buf);
	assert_int_equal(comp.tag, tag);
}

/* Of two receives with one context, the search meets the one that is nearer to an end of the queue: it goes no farther. */
static void test_cancel_looks_from_both_ends(void **state)
{
	uint8_t bufs[64], *of[64];

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	for (int i = 0; i < 64; i++)
		of[i] = &bufs[i];
	of[50] = of[2];
	of[61] = of[20];
	for (int i = 0; i < 64; i++)
		assert_int_equal(end_recv(&pair[1], NULL, of[i], 1, (uint64_t)i, SC_TAGGED), 0);
	expect_cancelled(of[2], 2);
	expect_cancelled(of[20], 61);
	expect_cancelled(of[2], 50);
	expect_cancelled(of[20], 20);
	assert_int_equal(sc_rx_cancel(pair[1].ep, of[2]), -ENOENT);
	pair_close(pair);
}

/* Each receive of a queue is found, also in its middle. */
static void test_cancel_each(void **state)
{
	uint8_t bufs[5];

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	for (uint64_t count = 1; count <= 5; count++)
		for (uint64_t first = 0; first < count; first++) {
			for (uint64_t i = 0; i < count; i++)
				assert_int_equal(end_recv(&pair[1], NULL, &bufs[i], 1, i, SC_TAGGED), 0);
			for (uint64_t i = 0; i < count; i++)
				expect_cancelled(&bufs[(first + i) % count], (first + i) % count);
			assert_int_equal(sc_rx_cancel(pair[1].ep, &bufs[first]), -ENOENT);
		}
	pair_close(pair);
}

/* ---- peek, claim, discard -------------------------------------------------------------------- */

static int peek(uint64_t tag, uint32_t flags, void *context)
{
	struct sc_recv recv = { .tag = tag,
				.context = context,
				.cq_flags = 0x7ec4,
				.flags = SC_TAGGED | SC_RECV_PEEK | flags };

	return sc_rx_recv(pair[1].ep, &recv);
}

static void expect_peek(int err, size_t size, uint64_t tag, void *context)
{
	struct sc_comp comp = comp_take(&pair[1].rx);

	assert_int_equal(comp.err, err);
	assert_ptr_equal(comp.context, context);
	assert_int_equal(comp.cq_flags, 0x7ec4);
	assert_int_equal(comp.tag, tag);
	if (!err) {
		assert_int_equal(comp.len, size);
		assert_ptr_equal(comp.source, pair[1].peer);
		assert_true(comp.flags & SC_COMP_DATA);
		assert_true(comp.data == ~tag);
	}
	assert_null(sc_comp_ring_peek(&pair[1].rx));
}

static void test_peek(void **state)
{
	static const size_t sizes[] = { 0, 100, 1000, 50000 };

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		assert_int_equal(peek(1, 0, &way), 0);
		expect_peek(ENOMSG, 0, 1, &way);
		for (uint64_t i = 0; i < 4; i++)
			send_to_1(sizes[i], i, SC_TAGGED | SC_SEND_DATA);
		for (uint64_t i = 4; i-- > 0;) {
			for (int again = 0; again < 2; again++) {
				assert_int_equal(peek(i, 0, &way), 0);
				expect_peek(0, sizes[i], i, &way);
			}
			memset(into, 0, sizes[i]);
			assert_int_equal(end_recv(&pair[1], NULL, into, sizeof(into), i, SC_TAGGED), 0);
			ends_settle(pair, 2);
			expect_received(&pair[1], pair[1].peer, into, sizes[i], i);
			assert_true(pattern_is(into, 0, sizes[i], 1));
			assert_int_equal(peek(i, 0, &way), 0);
			expect_peek(ENOMSG, 0, i, &way);
		}
		/* it looks into the ring by itself */
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 9, SC_TAGGED | SC_SEND_DATA),
				 0);
		assert_int_equal(peek(9, 0, &way), 0);
		expect_peek(0, 8, 9, &way);
		pair_close(pair);
	}
}

/* An endpoint that only peeks sees a message of a peer that has just come. */
static void test_peek_sees_newcomers(void **state)
{
	struct end ends[2];
	struct sc_recv recv = { .flags = SC_RECV_PEEK };
	int err = ENOMSG;

	(void)state;
	end_open(&ends[0], NULL);
	end_open(&ends[1], NULL);
	assert_int_equal(end_send(&ends[0], end_find(&ends[0], &ends[1]), from, 8, 0, 0), 0);
	for (int i = 0; i < 100 && err; i++) {
		assert_int_equal(sc_rx_recv(ends[1].ep, &recv), 0);
		err = comp_take(&ends[1].rx).err;
	}
	assert_int_equal(err, 0);
	end_close(&ends[0]);
	end_close(&ends[1]);
}

/* One peek sees a message that was sent before it, also of a peer whose ring is not looked at in each poll. */
static void test_peek_sees_all_peers(void **state)
{
	enum { PEERS = 24 };
	struct sc_ep_attr attr = end_attr();
	struct end ends[PEERS + 1];

	(void)state;
	attr.config.slots = PEERS;
	for (int i = 0; i <= PEERS; i++)
		end_open(&ends[i], &attr);
	for (int i = 1; i <= PEERS; i++)
		assert_int_equal(sc_peer_connect(end_find(&ends[i], &ends[0])), 0);
	ends_settle(ends, PEERS + 1);
	for (int i = 1; i <= PEERS; i++) {
		struct sc_recv recv = { .tag = (uint64_t)i, .flags = SC_TAGGED | SC_RECV_PEEK };

		assert_int_equal(end_send(&ends[i], end_find(&ends[i], &ends[0]), from, 8, (uint64_t)i,
					  SC_TAGGED | SC_SILENT),
				 0);
		assert_int_equal(sc_rx_recv(ends[0].ep, &recv), 0);
		assert_int_equal(comp_take(&ends[0].rx).err, 0);
	}
	for (int i = 0; i <= PEERS; i++)
		end_close(&ends[i]);
}

static void test_claim(void **state)
{
	static const size_t sizes[] = { 0, 100, 1000, 50000 };
	int a, b;

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (int i = 0; i < 4; i++) {
			struct sc_recv claim = { .iov = &(struct iovec){ into, sizeof(into) },
						 .iov_count = 1,
						 .context = &a,
						 .cq_flags = 0x7ec4,
						 .flags = SC_TAGGED | SC_RECV_CLAIM };

			assert_int_equal(sc_rx_recv(pair[1].ep, &claim), -EINVAL);
			send_to_1(sizes[i], 7, SC_TAGGED | SC_SEND_DATA | SC_SEND_DELIVERY);
			send_to_1(8, 7, SC_TAGGED | SC_SEND_DATA);
			assert_int_equal(peek(7, SC_RECV_CLAIM, &a), 0);
			expect_peek(0, sizes[i], 7, &a);
			/* out of the others' sight */
			assert_int_equal(peek(7, SC_RECV_CLAIM, &b), 0);
			expect_peek(0, 8, 7, &b);
			assert_int_equal(peek(7, 0, &b), 0);
			expect_peek(ENOMSG, 0, 7, &b);
			assert_int_equal(sc_rx_recv(pair[1].ep, &claim), 0);
			ends_settle(pair, 2);
			expect_received(&pair[1], pair[1].peer, &a, sizes[i], 7);
			assert_true(pattern_is(into, 0, sizes[i], 1));
			claim.context = &b;
			claim.iov_count = 0; /* truncated to nothing */
			assert_int_equal(sc_rx_recv(pair[1].ep, &claim), 0);
			assert_int_equal(comp_take(&pair[1].rx).err, EMSGSIZE);
			assert_int_equal(sc_rx_recv(pair[1].ep, &claim), -EINVAL);
			ends_settle(pair, 2);
			drop_sent();
			assert_int_equal(sc_slab_used(&pair[0].ep->tx_ops), 0);
			assert_int_equal(pair[1].peer->recv.units_held, 0);
		}
		pair_close(pair);
	}
}

static void test_discard(void **state)
{
	static const size_t sizes[] = { 0, 100, 1000, 50000 };
	struct sc_recv drop = { .context = &drop,
				.cq_flags = 0x7ec4,
				.flags = SC_TAGGED | SC_RECV_CLAIM | SC_RECV_DISCARD };

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(peek(7, SC_RECV_DISCARD, &drop), 0);
			expect_peek(ENOMSG, 0, 7, &drop);
			send_to_1(sizes[i], 7, SC_TAGGED | SC_SEND_DATA);
			assert_int_equal(peek(7, SC_RECV_DISCARD, &drop), 0);
			expect_peek(0, sizes[i], 7, &drop);
			ends_settle(pair, 2);
			expect_sent(&pair[0], from, sizes[i]);
			assert_int_equal(peek(7, 0, &drop), 0);
			expect_peek(ENOMSG, 0, 7, &drop);
			/* after a claim */
			assert_int_equal(sc_rx_recv(pair[1].ep, &drop), -EINVAL);
			send_to_1(sizes[i], 7, SC_TAGGED | SC_SEND_DATA);
			assert_int_equal(peek(7, SC_RECV_CLAIM, &drop), 0);
			expect_peek(0, sizes[i], 7, &drop);
			assert_int_equal(sc_rx_recv(pair[1].ep, &drop), 0);
			expect_peek(0, sizes[i], 7, &drop);
			ends_settle(pair, 2);
			expect_sent(&pair[0], from, sizes[i]);
			assert_int_equal(sc_rx_recv(pair[1].ep, &drop), -EINVAL);
			assert_int_equal(pair[1].peer->recv.units_held, 0);
		}
		pair_close(pair);
	}
}

/* A tagged message and one without a tag, claimed with one context: each claim takes that of its kind. */
static void test_claim_of_each_kind(void **state)
{
	struct sc_recv claim = { .iov = &(struct iovec){ into, sizeof(into) },
				 .iov_count = 1,
				 .context = &claim };

	(void)state;
	for (uint32_t first = 0; first <= SC_TAGGED; first += SC_TAGGED) {
		pair_open(pair, NULL, WAY_LOCAL);
		send_to_1(10, 7, SC_TAGGED | SC_SEND_DATA);
		send_to_1(20, 0, SC_SEND_DATA);
		for (uint32_t tagged = 0; tagged <= SC_TAGGED; tagged += SC_TAGGED) {
			struct sc_recv look = { .tag = tagged ? 7 : 0,
						.context = &claim,
						.flags = tagged | SC_RECV_PEEK | SC_RECV_CLAIM };

			assert_int_equal(sc_rx_recv(pair[1].ep, &look), 0);
			assert_int_equal(comp_take(&pair[1].rx).err, 0);
		}
		for (int i = 0; i < 2; i++) {
			uint32_t tagged = i ? SC_TAGGED - first : first;

			claim.flags = tagged | SC_RECV_CLAIM;
			assert_int_equal(sc_rx_recv(pair[1].ep, &claim), 0);
			assert_int_equal(comp_take(&pair[1].rx).len, tagged ? 10 : 20);
		}
		drop_sent();
		pair_close(pair);
	}
}

/* The sender of claimed messages closes: an eager payload is still there, the payload of a rendezvous is not. */
static void test_claim_of_the_gone(void **state)
{
	struct sc_recv claim = { .iov = &(struct iovec){ into, sizeof(into) },
				 .iov_count = 1,
				 .flags = SC_TAGGED | SC_RECV_CLAIM };
	int contexts[3];

	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, NULL, way);
		send_to_1(100, 0, SC_TAGGED | SC_SEND_DATA | SC_SEND_DELIVERY);
		send_to_1(1000, 1, SC_TAGGED | SC_SEND_DATA);
		send_to_1(50000, 2, SC_TAGGED | SC_SEND_DATA);
		for (uint64_t i = 0; i < 3; i++) {
			assert_int_equal(peek(i, SC_RECV_CLAIM, &contexts[i]), 0);
			assert_int_equal(comp_take(&pair[1].rx).err, 0);
		}
		end_close(&pair[0]);
		ends_settle(pair, 2);
		for (int i = 0; i < 3; i++) {
			claim.context = &contexts[i];
			assert_int_equal(sc_rx_recv(pair[1].ep, &claim), 0);
			assert_int_equal(comp_take(&pair[1].rx).err, i < 2 ? 0 : ECONNRESET);
			if (i < 2)
				assert_true(pattern_is(into, 0, i ? 1000 : 100, 1));
		}
		pair_close(pair);
	}
}

/* ---- multi-receive --------------------------------------------------------------------------- */

static int post_multi(uint8_t *buf, size_t size, size_t least, uint32_t flags)
{
	struct sc_recv recv = { .iov = &(struct iovec){ buf, size },
				.iov_count = 1,
				.context = buf,
				.cq_flags = 0x7ec4,
				.multi_min = least,
				.flags = SC_RECV_MULTI | flags };

	return sc_rx_recv(pair[1].ep, &recv);
}

/* The next piece of the buffer; `done`: and with it the buffer is the application's. */
static void expect_multi(uint8_t *buf, size_t at, size_t size, bool done)
{
	struct sc_comp comp = comp_take(&pair[1].rx);

	assert_int_equal(comp.err, 0);
	assert_ptr_equal(comp.context, buf);
	assert_ptr_equal(comp.buf, buf + at);
	assert_int_equal(comp.len, size);
	assert_true(comp.flags & SC_COMP_RECV);
	assert_int_equal(!!(comp.flags & SC_COMP_MULTI_DONE), done);
	assert_true(pattern_is(buf + at, 0, size, 1));
}

static void test_multi(void **state)
{
	static const size_t sizes[] = { 100, 0, 1000, 40000, 8, 50000 };
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.config.share_min = UINT32_MAX; /* a message that both sides copy would end later, too */
	for (enum way way = 0; way < WAYS; way++)
		for (int late = 0; late < 2; late++) {
			size_t at = 0;

			if (!way_possible(way))
				continue;
			pair_open(pair, &attr, way);
			memset(into, 0xa5, sizeof(into));
			if (!late)
				assert_int_equal(post_multi(into, 91108 + 63, 64, 0), 0);
			for (int i = 0; i < 6; i++)
				send_to_1(sizes[i], 0, 0);
			if (late)
				assert_int_equal(post_multi(into, 91108 + 63, 64, 0), 0);
			ends_settle(pair, 2);
			if (late && way == WAY_PULL) {
				/* large ones take longer; places are given in order of the messages */
				expect_multi(into, 0, 100, false);
				expect_multi(into, 100, 0, false);
				expect_multi(into, 100, 1000, false);
				expect_multi(into, 41100, 8, false);
				for (int i = 0; i < 2; i++) {
					struct sc_comp comp = comp_take(&pair[1].rx);

					assert_int_equal(comp.err, 0);
					assert_int_equal(!!(comp.flags & SC_COMP_MULTI_DONE), i);
					assert_ptr_equal(comp.buf,
							 into + (comp.len == 40000 ? 1100 : 41108));
					assert_true(pattern_is(comp.buf, 0, comp.len, 1));
				}
			} else {
				for (int i = 0; i < 6; i++) {
					expect_multi(into, at, sizes[i], i == 5);
					at += sizes[i];
				}
			}
			for (size_t i = 91108; i < sizeof(into); i++)
				assert_int_equal(into[i], 0xa5);
			drop_sent();
			assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
			assert_int_equal(sc_slab_used(&pair[1].ep->rxq->ops), 0);
			assert_int_equal(core_posted(pair[1].ep), 0);
			pair_close(pair);
		}
}

/* A message larger than what is left is cut; then the buffer is used up. */
static void test_multi_truncation(void **state)
{
	static const size_t sizes[] = { 100, 1000, 50000 };

	(void)state;
	for (enum way way = 0; way < WAYS; way++)
		for (int i = 0; i < 3; i++)
			for (int late = 0; late < 2; late++) {
				struct sc_comp comp;

				if (!way_possible(way))
					continue;
				pair_open(pair, NULL, way);
				memset(into, 0xa5, sizeof(into));
				if (!late)
					assert_int_equal(
						post_multi(into, 20 + sizes[i] - 1, 10, SC_TAGGED), 0);
				send_to_1(20, 0, SC_TAGGED);
				send_to_1(sizes[i], 0, SC_TAGGED);
				send_to_1(8, 0, SC_TAGGED);
				if (late)
					assert_int_equal(
						post_multi(into, 20 + sizes[i] - 1, 10, SC_TAGGED), 0);
				ends_settle(pair, 2);
				expect_multi(into, 0, 20, false);
				comp = comp_take(&pair[1].rx);
				assert_int_equal(comp.err, EMSGSIZE);
				assert_int_equal(comp.len, sizes[i] - 1);
				assert_int_equal(comp.olen, 1);
				assert_true(comp.flags & SC_COMP_MULTI_DONE);
				assert_ptr_equal(comp.buf, into + 20);
				assert_true(pattern_is(into + 20, 0, sizes[i] - 1, 1));
				assert_int_equal(into[20 + sizes[i] - 1], 0xa5);
				assert_null(
					sc_comp_ring_peek(&pair[1].rx)); /* the third waits for another buffer */
				assert_int_equal(pair[1].ep->rxq->tagged.waiting_count, 1);
				pair_close(pair);
			}
}

/* Used up, or withdrawn, while large messages are on their way into it: the last of them gives it back. */
static void test_multi_under_way(void **state)
{
	(void)state;
	for (int cancel = 0; cancel < 3; cancel++) {
		struct sc_comp comp;

		pair_open(pair, NULL, WAY_PULL);
		assert_int_equal(post_multi(into, 100000, cancel ? 1 : 20001, 0), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, 0), 0);
		if (cancel < 2)
			sc_ep_poll(pair[1].ep); /* both matched, asked for, not there */
		if (cancel) {
			assert_int_equal(sc_rx_cancel(pair[1].ep, into), 0);
			comp = comp_take(&pair[1].rx);
			assert_int_equal(comp.err, ECANCELED);
			assert_int_equal(!!(comp.flags & SC_COMP_MULTI_DONE), cancel == 2);
			assert_int_equal(sc_rx_cancel(pair[1].ep, into), -ENOENT);
		}
		assert_int_equal(core_posted(pair[1].ep), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), 0);
		ends_settle(pair, 2);
		for (int i = 0; i < 2 && cancel < 2; i++)
			expect_multi(into, i * 40000u, 40000, i == 1);
		assert_true(end_idle(&pair[1]));
		assert_int_equal(sc_slab_used(&pair[1].ep->rxq->ops), 0);
		pair_close(pair);
	}
}

static void test_multi_sender_gone(void **state)
{
	(void)state;
	for (int used_up = 0; used_up < 2; used_up++) {
		pair_open(pair, NULL, WAY_PULL);
		assert_int_equal(post_multi(into, 90000, used_up ? 20000 : 1, 0), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 0, 0), 0);
		sc_ep_poll(pair[1].ep);
		end_close(&pair[0]);
		ends_settle(pair, 2);
		for (int i = 0; i < 2; i++) {
			struct sc_comp comp = comp_take(&pair[1].rx);

			assert_int_equal(comp.err, ECONNRESET);
			assert_int_equal(comp.len, 0);
			assert_int_equal(!!(comp.flags & SC_COMP_MULTI_DONE), used_up && i == 1);
		}
		assert_true(end_idle(&pair[1]));
		assert_int_equal(sc_slab_used(&pair[1].ep->rxq->ops), used_up ? 0 : 1);
		pair_close(pair);
	}
}

/* Buffers smaller than their own limit, or of nothing: one message, then they are back. */
static void test_multi_small(void **state)
{
	(void)state;
	for (size_t size = 0; size < 3; size++)
		for (int late = 0; late < 2; late++) {
			struct sc_comp comp;

			pair_open(pair, NULL, WAY_LOCAL);
			if (late)
				send_to_1(1, 0, 0);
			assert_int_equal(post_multi(into, size, 100, 0), 0);
			if (!late)
				send_to_1(1, 0, 0);
			ends_settle(pair, 2);
			comp = comp_take(&pair[1].rx);
			assert_true(comp.flags & SC_COMP_MULTI_DONE);
			assert_int_equal(comp.err, size ? 0 : EMSGSIZE);
			assert_int_equal(sc_slab_used(&pair[1].ep->rxq->ops), 0);
			pair_close(pair);
		}
	pair_open(pair, NULL, WAY_LOCAL);
	assert_int_equal(sc_rx_recv(pair[1].ep, &(struct sc_recv){ .flags = SC_RECV_MULTI }), -EINVAL);
	assert_int_equal(sc_rx_recv(pair[1].ep, &(struct sc_recv){ .flags = SC_RECV_DISCARD }), -EINVAL);
	pair_close(pair);
}

/* Several buffers, many messages, from two senders. */
static void test_multi_many(void **state)
{
	enum { MESSAGES = 20000, BUFFER = 4096, BUFFERS = 4 };
	struct end ends[3];
	struct sc_peer *to[3];
	uint32_t sent[3] = { 0 }, received[3] = { 0 };
	uint8_t out[400];

	(void)state;
	for (int i = 0; i < 3; i++)
		end_open(&ends[i], NULL);
	pair[1] = ends[0];
	for (uint64_t i = 1; i < 3; i++) {
		to[i] = end_find(&ends[i], &ends[0]);
		sc_peer_set_user(end_find(&ends[0], &ends[i]), i);
	}
	for (int i = 0; i < BUFFERS; i++)
		assert_int_equal(post_multi(into + i * BUFFER, BUFFER, 300, SC_TAGGED), 0);
	for (long rounds = 0; received[1] + received[2] < 2 * MESSAGES; rounds++) {
		assert_true(rounds < PAIR_ROUNDS);
		for (int i = 1; i < 3; i++) {
			for (int n = 0; n < 40 && sent[i] < MESSAGES; n++) {
				memcpy(out, &sent[i], 4);
				if (end_send(&ends[i], to[i], out, 4 + sent[i] % 297, 0,
					     SC_TAGGED | SC_SEND_INJECT | SC_SILENT))
					break;
				sent[i]++;
			}
			sc_ep_poll(ends[i].ep);
		}
		sc_ep_poll(ends[0].ep);
		while (sc_comp_ring_peek(&ends[0].rx)) {
			struct sc_comp comp = comp_take(&ends[0].rx);
			uint64_t who = sc_peer_user(comp.source);

			assert_int_equal(comp.err, 0);
			assert_int_equal(comp.len, 4 + received[who] % 297);
			assert_memory_equal(comp.buf, &received[who], 4);
			received[who]++;
			if (comp.flags & SC_COMP_MULTI_DONE)
				assert_int_equal(post_multi(comp.context, BUFFER, 300, SC_TAGGED), 0);
		}
	}
	memset(pair, 0, sizeof(pair));
	for (int i = 0; i < 3; i++)
		end_close(&ends[i]);
}

/* ---- a sender that closes -------------------------------------------------------------------- */

/*
 * The sender has closed, so its application may use the buffers again, and nobody may copy from them: a receive of the
 * message fails, also before the receiver has polled.
 */
static void test_payload_of_the_closed(void **state)
{
	(void)state;
	for (enum way way = 0; way < WAYS; way++)
		for (int polled = 0; polled < 2; polled++) {
			struct sc_comp comp;
			uint8_t *out;

			if (!way_possible(way))
				continue;
			out = malloc(50000);
			assert_non_null(out);
			memset(out, 1, 50000);
			pair_open(pair, NULL, way);
			assert_int_equal(end_send(&pair[0], pair[0].peer, out, 50000, 0, 0), 0);
			ends_settle(pair, 2);
			end_close(&pair[0]);
			memset(out, 2, 50000);
			if (polled)
				ends_settle(pair, 2);
			memset(into, 0, 50000);
			assert_int_equal(end_recv(&pair[1], NULL, into, sizeof(into), 0, 0), 0);
			ends_settle(pair, 2);
			comp = comp_take(&pair[1].rx);
			assert_int_equal(comp.err, ECONNRESET);
			assert_int_equal(comp.len, 0);
			assert_true(end_idle(&pair[1]));
			pair_close(pair);
			free(out);
		}
}

/* Messages of complete sends arrive after their sender has closed, also if the receiver does not know it yet. */
static void test_last_words(void **state)
{
	static const uint32_t flags[] = { 0, SC_SEND_DELIVERY };
	static const size_t sizes[] = { 8, 1000, 30000 };

	(void)state;
	for (int known = 0; known < 2; known++)
		for (int f = 0; f < 2; f++)
			for (int i = 0; i < 3; i++) {
				char address[SC_ADDR_SIZE];

				end_open(&pair[0], NULL);
				end_open(&pair[1], NULL);
				memcpy(address, sc_ep_address(pair[0].ep), SC_ADDR_SIZE);
				assert_true(core_has_file(address));
				pair[0].peer = end_find(&pair[0], &pair[1]);
				if (known) {
					assert_int_equal(
						end_send(&pair[0], pair[0].peer, from, 0, 9, SC_TAGGED),
						0);
					ends_settle(pair, 2);
				}
				assert_int_equal(
					end_send(&pair[0], pair[0].peer, from, sizes[i], 0, flags[f]), 0);
				assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 1, SC_TAGGED),
						 0);
				/* both sends are complete if their completions are there before the end */
				if (!f && pair[0].tx.tail - pair[0].tx.head == (known ? 3 : 2)) {
					end_close(&pair[0]);
					ends_settle(pair, 2);
					assert_int_equal(
						end_recv(&pair[1], NULL, into, sizeof(into), 0, 0), 0);
					assert_int_equal(comp_take(&pair[1].rx).len, sizes[i]);
				} else {
					end_close(&pair[0]);
					ends_settle(pair, 2);
				}
				assert_int_equal(
					end_recv(&pair[1], NULL, into, sizeof(into), 1, SC_TAGGED), 0);
				assert_int_equal(comp_take(&pair[1].rx).len, 8);
				assert_int_equal(pair[1].ep->counters.quarantines, 0);
				end_close(&pair[1]);
				assert_false(core_has_file(address)); /* the reader has removed it */
			}
}

/* ---- records that break the rules ------------------------------------------------------------ */

#define CTL(kind, flags, lines, size)                                                                     \
	((uint64_t)(kind) << SC_ABI_CTL_KIND_SHIFT | (uint64_t)(flags) << SC_ABI_CTL_FLAGS_SHIFT |        \
	 (uint64_t)(lines) << SC_ABI_CTL_LINES_SHIFT | (uint32_t)(size))

/* Writes a record with that ctl, which may lie about its length; `words` fill the first line and on. */
static void raw_record(struct sc_peer *to, uint64_t ctl, const uint64_t *words, size_t count)
{
	struct sc_abi_line *line = sc_ring_reserve(&to->tx);

	memset(line->bytes, 0, SC_ABI_LINE_BYTES);
	for (size_t i = 0; i < count; i++) {
		if (i && i % 7 == 0)
			line = sc_ring_next(&to->tx.at, line);
		line->words[i % 7] = words[i];
	}
	sc_ring_commit(&to->tx, ctl, 1);
}

/* pair[1] is the victim, pair[0] writes to it what the test says, `third` keeps the rules. */
static struct end third;

static void victim_open(void)
{
	pair_open(pair, NULL, WAY_PULL);
	end_open(&third, NULL);
	third.peer = end_find(&third, &pair[1]);
	assert_int_equal(end_send(&third, third.peer, from, 1000, 77, SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 88, SC_TAGGED), 0);
	ends_settle(pair, 2);
	ends_settle(&third, 1);
}

/* The victim has lost pair[0] and not the third, and has received nothing but the messages of both. */
static void victim_check(void)
{
	struct sc_counters *counters = &pair[1].ep->counters;
	struct sc_peer *of_third = end_find(&pair[1], &third);

	ends_settle(pair, 2);
	assert_int_equal(counters->quarantines, 1);
	assert_int_equal(pair[1].peer->link, SC_LINK_DOWN);
	assert_int_equal(pair[1].peer->feed, SC_FEED_DONE);
	assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), -ECONNRESET);
	assert_true(end_send(&pair[1], pair[1].peer, from, 8, 0, 0) < 0);
	/* earlier messages are there */
	memset(into, 0, 1000);
	assert_int_equal(end_recv(&pair[1], NULL, into, 1000, 88, SC_TAGGED), 0);
	assert_int_equal(end_recv(&pair[1], of_third, into + 1000, 1000, 77, SC_TAGGED), 0);
	/* and the third's next */
	assert_int_equal(end_send(&third, third.peer, from, 40000, 78, SC_TAGGED), 0);
	ends_settle(&third, 1);
	assert_int_equal(end_recv(&pair[1], NULL, into + 2000, 40000, 78, SC_TAGGED), 0);
	for (int i = 0; i < 4; i++) {
		ends_settle(&pair[1], 1);
		ends_settle(&third, 1);
	}
	while (sc_comp_ring_peek(&pair[1].rx) && comp_take(&pair[1].rx).context != into)
		;
	expect_received(&pair[1], of_third, into + 1000, 1000, 77);
	expect_received(&pair[1], of_third, into + 2000, 40000, 78);
	assert_true(pattern_is(into, 0, 100, 1) && pattern_is(into + 1000, 0, 1000, 1) &&
		    pattern_is(into + 2000, 0, 40000, 1));
	assert_int_equal(pair[1].peer->recv.units_held, 0);
	/* its slot is free again */
	assert_int_equal(
		sc_seg_claims(pair[1].ep->seg)[0] & SC_ABI_CLAIM_STATE,
		pair[1].peer->in_slot == 0 || !sc_seg_claims(pair[1].ep->seg)[0] ? 0 : SC_ABI_PUBLISHED);
	end_close(&third);
	pair_close(pair);
}

/* One record of one line, with and without a receive that it would fit. */
static void bad_record(uint64_t ctl, const uint64_t *words, size_t count)
{
	for (int posted = 0; posted < 3; posted++) {
		victim_open();
		if (posted)
			assert_int_equal(end_recvv(&pair[1], NULL, &(struct iovec){ into + 150000, 40000 },
						   1, 0, UINT64_MAX, posted == 1 ? 0 : SC_RECV_MULTI,
						   into + 150000),
					 0);
		raw_record(pair[0].peer, ctl, words, count);
		victim_check();
	}
}

static void test_bad_kinds(void **state)
{
	static const int kinds[] = { 0, SC_ABI_KIND_MAX + 1, 77, 255 };

	(void)state;
	for (int i = 0; i < 4; i++)
		bad_record(CTL(kinds[i], 0, 1, 8), NULL, 0);
}

static void test_bad_lengths(void **state)
{
	static const int lines[] = { 0, SC_ABI_RECORD_LINES + 1, 124, 125, 255 };

	(void)state;
	for (int kind = SC_ABI_INLINE; kind <= SC_ABI_KIND_MAX; kind++)
		for (int i = 0; i < 5; i++) {
			victim_open();
			raw_record(pair[0].peer, CTL(kind, 0, lines[i], 0), NULL, 0);
			victim_check();
		}
}

/* The ring of pair[0] overflows into its buffer, of so many lines as it says, and this record stands there. */
static void bad_record_in_overflow(uint32_t lines, uint64_t ctl, const uint64_t *words, size_t count)
{
	uint8_t *buf;

	victim_open();
	buf = sc_seg_buf(pair[0].ep->seg, 0); /* where it is whatever they say of their size */
	memset(buf, 0, 4096);
	raw_record(pair[0].peer, CTL(SC_ABI_CONTINUE, 0, 1, SC_ABI_IN_BUFFER(0)), NULL, 0);
	sc_ring_overflow(&pair[0].peer->tx, (struct sc_abi_line *)buf, 4096 / SC_ABI_LINE);
	pair[1].peer->seg->header.buf_size = lines * SC_ABI_LINE;
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	assert_ptr_not_equal(pair[1].peer->rx.left.lines, NULL);
	raw_record(pair[0].peer, ctl, words, count);
	victim_check();
}

/* A ring overflows into what is there, and resumes. */
static void test_bad_overflow(void **state)
{
	static const uint32_t none[] = { SC_ABI_IN_BUFFER(UINT16_MAX), SC_ABI_IN_BUFFER(0x10007), UINT32_MAX };
	const uint64_t get[] = { 0, 1, 2, 3, 4, 5, 6 };

	(void)state;
	bad_record(CTL(SC_ABI_CONTINUE, 0, 2, SC_ABI_IN_BUFFER(7)), NULL, 0);
	for (int i = 0; i < 3; i++) {
		bad_record(CTL(SC_ABI_CONTINUE, 0, 1, none[i]), NULL, 0);
		bad_record_in_overflow(64, CTL(SC_ABI_CONTINUE, 0, 1, none[i]), NULL, 0);
	}
	victim_open(); /* a record of more lines than the buffer has would be left for what is behind that */
	pair[1].peer->seg->header.buf_size = SC_ABI_RECORD_LINES * SC_ABI_LINE;
	raw_record(pair[0].peer, CTL(SC_ABI_CONTINUE, 0, 1, SC_ABI_IN_BUFFER(0)), NULL, 0);
	victim_check();
	bad_record_in_overflow(64, CTL(SC_ABI_CONTINUE, 0, 2, SC_ABI_IN_RING), NULL, 0);
	/* its answer would be written there, where nothing is to be written */
	bad_record_in_overflow(64, CTL(SC_ABI_DELEGATE_GET, 0, 1, 8), get, 7);
	bad_record_in_overflow(64, CTL(SC_ABI_DELEGATE_GET, SC_ABI_F_BOUNCED, 1, 1000), get, 7);
}

/* A ring grows once; if its new lines have no memory, the reader gives them some. */
static void test_grown(void **state)
{
	blkcnt_t blocks;

	(void)state;
	bad_record(CTL(SC_ABI_CONTINUE, 0, 2, SC_ABI_IN_RING), NULL, 0);
	victim_open();
	blocks = end_blocks(&pair[1]);
	raw_record(pair[0].peer, CTL(SC_ABI_CONTINUE, 0, 1, SC_ABI_IN_RING), NULL, 0); /* without memory for it */
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].peer->rx.at.count, SC_ABI_RING_LINES);
	assert_int_equal(end_blocks(&pair[1]) - blocks, (SC_ABI_SLOT_SIZE - SC_ABI_SLOT_FIRST) / 512);
	raw_record(pair[0].peer, CTL(SC_ABI_CONTINUE, 0, 1, SC_ABI_IN_RING), NULL, 0);
	victim_check();
	if (!core_failing("probe.touch", EFAULT)) /* as if there were no memory */
		return;
	bad_record(CTL(SC_ABI_CONTINUE, 0, 1, SC_ABI_IN_RING), NULL, 0);
	core_failing(NULL, 0);
}

static void test_bad_inline(void **state)
{
	(void)state;
	bad_record(CTL(SC_ABI_INLINE, 0, 1, 41), NULL, 0);
	bad_record(CTL(SC_ABI_INLINE, 0, 2, 40), NULL, 0);
	bad_record(CTL(SC_ABI_INLINE, 0, 2, 0), NULL, 0);
	bad_record(CTL(SC_ABI_INLINE, SC_ABI_F_ACK, 1, 33), NULL, 0);
	bad_record(CTL(SC_ABI_INLINE, 0, 16, SC_INLINE_MAX + 1), NULL, 0);
	bad_record(CTL(SC_ABI_INLINE, 0, 16, 880), NULL, 0);
	bad_record(CTL(SC_ABI_INLINE, 0, 1, UINT32_MAX), NULL, 0);
	bad_record(CTL(SC_ABI_INLINE, 0, 16, UINT32_MAX - 500), NULL, 0);
}

/* The bounce buffers of an endpoint that is made as victim_open() does. */
static uint32_t default_buf_size(void)
{
	return end_attr().config.buf_size;
}

static uint32_t default_buf_count(void)
{
	return end_attr().config.buf_count;
}

static void test_bad_bounce(void **state)
{
	uint64_t words[7] = { 0 };
	uint16_t bufs[SC_ABI_RECORD_BUFS];

	(void)state;
	for (uint16_t i = 0; i < SC_ABI_RECORD_BUFS; i++)
		bufs[i] = i;
	memcpy(&words[3], bufs, sizeof(bufs));
	bad_record(CTL(SC_ABI_BOUNCE, 0, 1, SC_ABI_RECORD_BUFS * default_buf_size() + 1), words,
		   7); /* one more */
	bad_record(CTL(SC_ABI_BOUNCE, 0, 1, UINT32_MAX), words, 7);
	for (uint32_t i = 0; i < SC_ABI_RECORD_BUFS; i++) {
		uint16_t good = bufs[i];

		bufs[i] = i % 2 ? (uint16_t)default_buf_count() : UINT16_MAX;
		memcpy(&words[3], bufs, sizeof(bufs));
		bad_record(CTL(SC_ABI_BOUNCE, 0, 1, i * default_buf_size() + 1), words, 7);
		bufs[i] = good;
	}
}

/* Not all that is strange is wrong. */
static void test_strange_but_right(void **state)
{
	uint64_t words[7] = { 1, 2, 0, 0, 0, 0, 0 };
	struct sc_comp comp;

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	for (int i = 0; i < 4; i++)
		assert_int_equal(end_recvv(&pair[1], NULL, &(struct iovec){ into, 100 }, 1, 0, UINT64_MAX,
					   SC_TAGGED, into),
				 0);
	raw_record(pair[0].peer, CTL(SC_ABI_BOUNCE, SC_ABI_F_TAGGED, 1, 0), words, 7); /* of no bytes */
	raw_record(pair[0].peer, CTL(SC_ABI_RDV, SC_ABI_F_TAGGED, 1, 0), words, 0);    /* of no segments */
	raw_record(pair[0].peer, CTL(SC_ABI_INLINE, 0xfc | SC_ABI_F_TAGGED, 1, 8), words,
		   7); /* flags to come */
	ends_settle(&pair[1], 1);
	for (int i = 0; i < 3; i++) {
		comp = comp_take(&pair[1].rx);
		assert_int_equal(comp.err, 0);
		assert_int_equal(comp.len, i < 2 ? 0 : 8);
	}
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	pair_close(pair);
}

/* words of a rendezvous: tag, data, op, size, first segment, pad, further segments */
static void bad_rdv(uint32_t lines, uint32_t count, uint64_t size, uint64_t len, uint64_t first_len)
{
	uint64_t words[7 * SC_ABI_RECORD_LINES] = { 0, 0, 1ull << 32, size, (uintptr_t)from, first_len };

	for (uint32_t i = 7; i < 7 * SC_ABI_RECORD_LINES; i++)
		words[i] = i % 7 % 2 ? len : (uintptr_t)from;
	bad_record(CTL(SC_ABI_RDV, 0, lines, count), words, lines * 7);
}

static void test_bad_rdv(void **state)
{
	(void)state;
	bad_rdv(1, 2, 200, 100, 100); /* lines for fewer segments */
	bad_rdv(2, 1, 100, 100, 100); /* and for more */
	bad_rdv(2, 0, 0, 0, 0);
	bad_rdv(2, 5, 500, 100, 100);
	bad_rdv(7, 17, 1700, 100, 100); /* too many, in the right number of lines */
	bad_rdv(16, 46, 4600, 100, 100);
	bad_rdv(1, UINT32_MAX, 100, 100, 100);
	bad_rdv(1, 0, 1, 0, 0); /* shorter than the message */
	bad_rdv(1, 1, 101, 0, 100);
	bad_rdv(6, 16, 1601, 100, 100);
	bad_rdv(1, 1, 99, 0, 100); /* longer */
	bad_rdv(6, 16, 1599, 100, 100);
	bad_rdv(1, 1, 0, 0, 1);
	bad_rdv(2, 2, 100, UINT64_MAX - 99, 200); /* the sum wraps to the size */
	bad_rdv(2, 3, 98, UINT64_MAX / 2 + 1, 98);
	bad_rdv(1, 1, 100, 0, UINT64_MAX);
}

/* More unmatched than the window allows: by messages that nobody receives. */
static void test_window_overrun(void **state)
{
	struct sc_ep_attr attr = end_attr();
	uint64_t words[7] = { 0 };
	long written = 0;

	(void)state;
	for (int kind = SC_ABI_INLINE; kind <= SC_ABI_RDV; kind++) {
		attr.config.window = 1024;
		pair_open(pair, &attr, WAY_PULL);
		end_open(&third, NULL);
		third.peer = end_find(&third, &pair[1]);
		assert_int_equal(end_send(&third, third.peer, from, 1000, 77, SC_TAGGED), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 88, SC_TAGGED), 0);
		while (!pair[1].ep->counters.quarantines) {
			assert_true(++written < 100000);
			if (sc_ring_has_room(&pair[0].peer->tx, 1))
				raw_record(pair[0].peer, CTL(kind, 0, 1, kind == SC_ABI_RDV ? 0 : 30),
					   words, 7);
			else
				ends_settle(pair, 2), (void)sc_ring_refresh(&pair[0].peer->tx);
			assert_true(pair[1].peer->recv.units_held <= 1024);
			if (pair[0].peer->link == SC_LINK_DOWN)
				break;
		}
		assert_int_equal(pair[1].ep->rxq->plain.waiting_count,
				 (1024 - SC_ABI_UNITS(100)) / SC_ABI_UNITS(kind == SC_ABI_RDV ? 0 : 30));
		for (; pair[1].ep->rxq->plain.waiting_count;) {
			assert_int_equal(end_recv(&pair[1], NULL, into, 100, 0, 0), 0);
			comp_take(&pair[1].rx);
		}
		victim_check();
	}
}

/* Fenced messages that cost the receiver nothing but the memory of what it owes the sender for each. */
static void test_fence_flood(void **state)
{
	uint64_t words[7] = { 0, 0, 1 };
	long written = 0;

	(void)state;
	victim_open(); /* a message of its waits, so all those behind it do */
	assert_int_equal(post_multi(into, 100000, 8, 0), 0);
	while (pair[0].peer->link == SC_LINK_UP) {
		assert_true(++written < 10000);
		if (sc_ring_has_room(&pair[0].peer->tx, 1))
			raw_record(pair[0].peer, CTL(SC_ABI_INLINE, SC_ABI_F_ACK | SC_ABI_F_FENCE, 1, 0),
				   words, 7);
		else
			ends_settle(pair, 2), (void)sc_ring_refresh(&pair[0].peer->tx);
		while (sc_comp_ring_peek(&pair[1].rx))
			(void)comp_take(&pair[1].rx);
	}
	assert_true(written > 1000);
	assert_int_equal(sc_rx_cancel(pair[1].ep, into), 0);
	while (sc_comp_ring_peek(&pair[1].rx))
		(void)comp_take(&pair[1].rx);
	victim_check();
}

static void test_bad_pieces(void **state)
{
	(void)state;
	for (int variant = 0; variant < 12; variant++) {
		struct sc_peer *of_third;
		struct sc_rx_op *op;
		uint64_t words[7] = { 0 };
		uint32_t size = default_buf_size();

		victim_open();
		/* a transfer of 80000 bytes from the bad one, nothing of it there yet */
		assert_int_equal(end_recv(&pair[1], pair[1].peer, into + 50000, 80000, 5, SC_TAGGED), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 90000, 5, SC_TAGGED), 0);
		sc_ep_poll(pair[1].ep);
		assert_false(sc_list_empty(&pair[1].peer->recv.transfers));
		op = sc_list_entry(pair[1].peer->recv.transfers.next, struct sc_rx_op, of_peer);
		words[0] = sc_slab_id(op);
		switch (variant) {
		case 0: /* not the first */
			words[1] = 1;
			break;
		case 1:
			words[1] = default_buf_size();
			break;
		case 2:
			words[1] = UINT64_MAX;
			break;
		case 3: /* longer than the buffers that it can name */
			size = SC_ABI_RECORD_BUFS * default_buf_size() + 1;
			break;
		case 4: /* nothing more, behind nothing */
			size = 0;
			words[1] = 1;
			break;
		case 5:
			size = UINT32_MAX;
			break;
		case 6: /* buffers that are none */
			words[3] = default_buf_count();
			break;
		case 7:
			size++;
			words[3] = (uint64_t)UINT16_MAX << 16;
			break;
		case 8: /* nothing of that id */
			words[0] ^= 1ull << 33;
			break;
		case 9:
			words[0] = UINT64_MAX;
			break;
		case 10: /* posted, matched with nothing */
			assert_int_equal(end_recv(&pair[1], NULL, into + 140000, 20000, 6, SC_TAGGED), 0);
			op = sc_list_entry(pair[1].ep->rxq->tagged.posted.prev, struct sc_rx_op,
					   match.all);
			words[0] = sc_slab_id(op);
			break;
		default: /* of another's message */
			of_third = end_find(&pair[1], &third);
			end_take_way(&pair[1], of_third, WAY_PULL);
			assert_int_equal(end_recv(&pair[1], of_third, into + 140000, 50000, 9, SC_TAGGED),
					 0);
			assert_int_equal(end_send(&third, third.peer, from, 50000, 9, SC_TAGGED), 0);
			sc_ep_poll(pair[1].ep);
			op = sc_list_entry(of_third->recv.transfers.next, struct sc_rx_op, of_peer);
			words[0] = sc_slab_id(op);
		}
		raw_record(pair[0].peer, CTL(SC_ABI_PIECE, 0, 1, size), words, 7);
		sc_ep_poll(pair[1].ep);
		assert_true(sc_list_empty(&pair[1].peer->recv.transfers));
		if (variant == 11) {
			for (int i = 0; i < 20; i++) {
				ends_settle(&pair[1], 1);
				ends_settle(&third, 1);
			}
			assert_int_equal(comp_take(&pair[1].rx).err, EPROTO);
			assert_int_equal(comp_take(&pair[1].rx).len, 50000);
			assert_true(pattern_is(into + 140000, 0, 50000, 1));
		}
		victim_check();
	}
}

/* More than was asked for: the last piece is longer than what is missing. */
static void test_pieces_too_long(void **state)
{
	uint32_t size = default_buf_size();
	uint64_t words[7] = { 0 };

	(void)state;
	victim_open();
	assert_int_equal(end_recv(&pair[1], pair[1].peer, into + 60000, size + 100, 5, SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 40000, 5, SC_TAGGED), 0);
	sc_ep_poll(pair[1].ep);
	memset(into + 60000, 0xa5, 3 * size);
	words[0] = sc_slab_id(sc_list_entry(pair[1].peer->recv.transfers.next, struct sc_rx_op, of_peer));
	raw_record(pair[0].peer, CTL(SC_ABI_PIECE, 0, 1, size), words, 7);
	words[1] = size;
	raw_record(pair[0].peer, CTL(SC_ABI_PIECE, 0, 1, 101), words, 7);
	sc_ep_poll(pair[1].ep);
	for (uint32_t i = size; i < 3 * size; i++)
		assert_int_equal(into[60000 + i], 0xa5);
	victim_check();
}

/* ---- messages in parts: pair[0] writes their records one by one -------------------------------- */

#define PARTS_SIZE 10000 /* in buffers 0, 1 and 2 of pair[0] */

static void parts_fill(void)
{
	assert_int_equal(default_buf_size(), 4096);
	for (uint16_t i = 0; i < 3; i++)
		memcpy(sc_seg_buf(pair[0].ep->seg, i), from + i * 4096, i < 2 ? 4096 : PARTS_SIZE - 8192);
}

static void parts_open(void)
{
	pair_open(pair, NULL, WAY_PULL);
	send_to_1(20000, 99, SC_TAGGED); /* the buffers have memory */
	assert_int_equal(end_recv(&pair[1], NULL, into, sizeof(into), 99, SC_TAGGED), 0);
	ends_settle(pair, 2);
	expect_received(&pair[1], pair[1].peer, into, 20000, 99);
	drop_sent();
	parts_fill();
	memset(into, 0xa5, sizeof(into));
}

static void part(int i)
{
	uint64_t words[7] = { i ? 0 : 5, i ? (uint64_t)i * 4096 : 6, 0, (uint64_t)i };

	if (i)
		raw_record(pair[0].peer, CTL(SC_ABI_PIECE, 0, 1, i < 2 ? 4096 : PARTS_SIZE - 8192), words,
			   7);
	else
		raw_record(pair[0].peer,
			   CTL(SC_ABI_BOUNCE, SC_ABI_F_PARTS | SC_ABI_F_TAGGED | SC_ABI_F_DATA, 1,
			       PARTS_SIZE),
			   words, 7);
	for (int polls = 0; polls < 3; polls++)
		sc_ep_poll(pair[1].ep);
}

/* Before the part of that number, or after the last, a receive is posted. Each part is read when it is there. */
static void test_parts(void **state)
{
	static const size_t rooms[] = { PARTS_SIZE, PARTS_SIZE + 1, 9000, 8192, 5000, 4096, 100, 0 };

	(void)state;
	parts_open();
	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
		for (int multi = 0; multi < 2; multi++)
			for (int posted = 0; posted < 4; posted++) {
				size_t len = rooms[i] < PARTS_SIZE ? rooms[i] : PARTS_SIZE;
				struct iovec room = { into, rooms[i] };
				uint64_t back = pair[1].peer->units_back;
				struct sc_comp comp;

				if (multi && !rooms[i])
					continue;
				memset(into, 0xa5, PARTS_SIZE + 2);
				for (int at = 0; at < 4; at++) {
					assert_true((at == 3 && posted < 3) || !sc_comp_ring_peek(&pair[1].rx));
					if (at == posted)
						assert_int_equal(
							end_recvv(&pair[1], NULL, &room, 1, 5, 0,
								  SC_TAGGED | (multi ? SC_RECV_MULTI : 0),
								  into),
							0);
					if (at == 3)
						break;
					part(at);
					if (!posted && at < 2)
						assert_true(
							pattern_is(into, 0,
								   len < 4096u * (unsigned)(at + 1)
									   ? len
									   : 4096u * (unsigned)(at + 1),
								   1));
					assert_true(!posted == !pair[1].peer->recv.arriving || at == 2);
				}
				comp = comp_take(&pair[1].rx);
				assert_ptr_equal(comp.context, into);
				assert_int_equal(comp.err, len < PARTS_SIZE ? EMSGSIZE : 0);
				assert_int_equal(comp.len, len);
				if (comp.err)
					assert_int_equal(comp.olen, PARTS_SIZE - len);
				assert_int_equal(comp.tag, 5);
				assert_int_equal(comp.data, 6);
				assert_int_equal(comp.flags & SC_COMP_DATA, SC_COMP_DATA);
				assert_true(pattern_is(into, 0, len, 1));
				assert_int_equal(into[len], 0xa5);
				assert_int_equal(pair[1].peer->recv.units_held, 0);
				assert_int_equal(pair[1].peer->units_back - back,
						 SC_ABI_UNITS(PARTS_SIZE));
				if (multi && rooms[i] > PARTS_SIZE)
					assert_int_equal(sc_rx_cancel(pair[1].ep, into), 0);
				while (sc_comp_ring_peek(&pair[1].rx))
					(void)comp_take(&pair[1].rx);
				assert_true(sc_list_empty(&pair[1].peer->recv.transfers));
				assert_null(pair[1].peer->recv.arriving);
				assert_null(pair[1].peer->recv.arriving_op);
			}
	pair_close(pair);
}

/* A peek does not find a message of which only a part has arrived. */
static void test_peek_at_parts(void **state)
{
	(void)state;
	parts_open();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(peek(5, 0, into), 0);
		assert_int_equal(comp_take(&pair[1].rx).err, ENOMSG);
		part(i);
	}
	assert_int_equal(peek(5, SC_RECV_DISCARD, into), 0);
	assert_int_equal(comp_take(&pair[1].rx).len, PARTS_SIZE);
	assert_int_equal(pair[1].peer->recv.units_held, 0);
	pair_close(pair);
}

/* The sender ends, or the receiver, with a part still to come: a receive that has matched fails, no other does. */
static void test_parts_end(void **state)
{
	(void)state;
	for (int posted = 0; posted < 2; posted++)
		for (int parts = 1; parts < 3; parts++)
			for (int closer = 0; closer < 2; closer++) {
				parts_open();
				if (posted)
					assert_int_equal(
						end_recv(&pair[1], NULL, into, sizeof(into), 5, SC_TAGGED),
						0);
				for (int i = 0; i < parts; i++)
					part(i);
				end_close(&pair[closer]);
				if (closer) {
					end_close(&pair[0]);
					continue;
				}
				ends_settle(&pair[1], 1);
				if (posted)
					assert_int_equal(comp_take(&pair[1].rx).err, ECONNRESET);
				assert_null(sc_comp_ring_peek(&pair[1].rx));
				assert_null(pair[1].peer->recv.arriving);
				assert_null(pair[1].peer->recv.arriving_op);
				assert_int_equal(pair[1].peer->recv.units_held, 0);
				assert_int_equal(pair[1].ep->counters.quarantines, 0);
				end_close(&pair[1]);
			}
}

/* Messages in parts behind a rendezvous that is not over, whose receives are to be reported in the order of posts. */
static void test_parts_in_order(void **state)
{
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.order = SC_ORDER_RECEIVE;
	pair_open(pair, &attr, WAY_PULL);
	memset(into, 0xa5, sizeof(into));
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(end_recv(&pair[1], NULL, into + i * 50000, 50000, i, SC_TAGGED), 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, i ? 9000 : 40000, i, SC_TAGGED), 0);
	for (int polls = 0; polls < 3; polls++)
		sc_ep_poll(pair[1].ep);
	assert_true(pattern_is(into + 50000, 0, 9000, 1) && pattern_is(into + 100000, 0, 9000, 1));
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	assert_null(pair[1].peer->recv.arriving_op);
	ends_settle(pair, 2);
	for (size_t i = 0; i < 3; i++)
		expect_received(&pair[1], pair[1].peer, into + i * 50000, i ? 9000 : 40000, i);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	drop_sent();
	pair_close(pair);
}

/* ---- receives that are posted elsewhere: `elsewhere` matches the messages of pair[1] -------------- */

static struct {
	struct sc_rxq *rxq;
	const struct sc_recv *posted; /* for the next message; NULL: it has to wait */
	struct sc_envelope envelope;  /* of the last message */
	struct sc_rx_msg *kept;	      /* the last one that waits */
	int asked, offered;	      /* calls of match, keep */
	int error;		      /* of match, instead of an answer */
	int refusal;		      /* of keep */
} elsewhere;

static int match_elsewhere(void *arg, const struct sc_envelope *envelope, struct sc_recv *recv)
{
	assert_ptr_equal(arg, &elsewhere);
	elsewhere.asked++;
	elsewhere.envelope = *envelope;
	if (elsewhere.error)
		return elsewhere.error;
	if (!elsewhere.posted)
		return 0;
	*recv = *elsewhere.posted;
	elsewhere.posted = NULL;
	return 1;
}

static int keep_elsewhere(void *arg, struct sc_rx_msg *msg)
{
	assert_ptr_equal(arg, &elsewhere);
	elsewhere.offered++;
	if (!elsewhere.refusal)
		elsewhere.kept = msg;
	return elsewhere.refusal;
}

/* Connected; the first buffers of pair[0] have memory, and what part() announces. */
static void elsewhere_open(void)
{
	static const struct sc_matcher matcher = { match_elsewhere, keep_elsewhere };
	struct sc_ep_attr attr = end_attr();

	memset(&elsewhere, 0, sizeof(elsewhere));
	assert_int_equal(sc_rxq_create_matched(&matcher, &elsewhere, &elsewhere.rxq), 0);
	assert_ptr_equal(sc_rxq_arg(elsewhere.rxq), &elsewhere);
	attr.rxq = elsewhere.rxq;
	attr.rx_report = true;
	end_open(&pair[0], NULL);
	end_open(&pair[1], &attr);
	pair_connect(pair, WAY_PULL);
	send_to_1(20000, 99, SC_TAGGED);
	assert_non_null(elsewhere.kept);
	sc_waiting_drop(elsewhere.kept);
	ends_settle(pair, 2);
	drop_sent();
	parts_fill();
	elsewhere.kept = NULL;
	elsewhere.asked = elsewhere.offered = 0;
}

static void elsewhere_close(void)
{
	pair_close(pair);
	sc_rxq_destroy(elsewhere.rxq);
}

static struct sc_recv recv_into(const struct iovec *room)
{
	return (struct sc_recv){
		.iov = room, .iov_count = 1, .context = into, .cq_flags = 0x7ec4, .flags = SC_TAGGED
	};
}

/* The receive comes before the part of that number, or after the last. */
static void test_elsewhere_parts(void **state)
{
	static const size_t rooms[] = { PARTS_SIZE, 9000, 8192, 5000, 100, 0 };

	(void)state;
	elsewhere_open();
	for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++)
		for (int posted = 0; posted < 4; posted++) {
			struct iovec room = { into, rooms[i] };
			struct sc_recv recv = recv_into(&room);
			struct sc_comp comp;

			memset(into, 0xa5, PARTS_SIZE + 2);
			elsewhere.posted = posted ? NULL : &recv;
			for (int at = 0; at < 3; at++) {
				if (at && at == posted)
					assert_int_equal(sc_waiting_receive(elsewhere.kept, &recv), 0);
				part(at);
				assert_ptr_equal(sc_waiting_source(elsewhere.rxq, elsewhere.kept),
						 at < posted ? pair[1].peer : NULL);
			}
			if (posted == 3)
				assert_int_equal(sc_waiting_receive(elsewhere.kept, &recv), 0);
			assert_ptr_equal(elsewhere.envelope.source, pair[1].peer);
			assert_int_equal(elsewhere.envelope.tag, 5);
			assert_int_equal(elsewhere.envelope.data, 6);
			assert_int_equal(elsewhere.envelope.size, PARTS_SIZE);
			assert_int_equal(elsewhere.envelope.flags, SC_TAGGED | SC_SEND_DATA);
			comp = comp_take(&pair[1].rx);
			assert_ptr_equal(comp.context, into);
			assert_int_equal(comp.cq_flags, 0x7ec4);
			assert_int_equal(comp.err, rooms[i] < PARTS_SIZE ? EMSGSIZE : 0);
			assert_int_equal(comp.len, rooms[i]);
			assert_int_equal(comp.data, 6);
			assert_true(pattern_is(into, 0, rooms[i], 1));
			assert_int_equal(into[rooms[i]], 0xa5);
			assert_int_equal(pair[1].peer->recv.units_held, 0);
			assert_true(sc_list_empty(&pair[1].peer->recv.waiting));
			assert_null(pair[1].peer->recv.arriving);
			assert_null(pair[1].peer->recv.arriving_op);
			elsewhere.kept = NULL;
		}
	assert_int_equal(elsewhere.asked, 4 * sizeof(rooms) / sizeof(rooms[0]));
	assert_int_equal(elsewhere.offered, 3 * sizeof(rooms) / sizeof(rooms[0]));
	elsewhere_close();
}

/* It is dropped before a part comes, or after the last; the next message is whole. */
static void test_elsewhere_drop(void **state)
{
	(void)state;
	elsewhere_open();
	for (int dropped = 1; dropped < 4; dropped++) {
		for (int at = 0; at < 3; at++) {
			if (at == dropped) {
				sc_waiting_drop(elsewhere.kept);
				/* it takes the parts that come */
				assert_int_equal(pair[1].peer->recv.units_held, SC_ABI_UNITS(PARTS_SIZE));
			}
			part(at);
		}
		if (dropped == 3)
			sc_waiting_drop(elsewhere.kept);
		assert_int_equal(pair[1].peer->recv.units_held, 0);
		assert_true(sc_list_empty(&pair[1].peer->recv.waiting));
		assert_null(pair[1].peer->recv.arriving);
	}
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	elsewhere_close();
}

/* The sender ends with a part still to come: the receive fails; a message that is dropped is gone. */
static void test_elsewhere_sender_ends(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		struct iovec room = { into, PARTS_SIZE };
		struct sc_recv recv = recv_into(&room);

		elsewhere_open();
		part(0);
		if (how == 0)
			sc_waiting_drop(elsewhere.kept);
		if (how == 1)
			assert_int_equal(sc_waiting_receive(elsewhere.kept, &recv), 0);
		part(1);
		end_close(&pair[0]);
		ends_settle(&pair[1], 1);
		if (how == 2)
			sc_waiting_drop(elsewhere.kept);
		if (how == 3)
			assert_int_equal(sc_waiting_receive(elsewhere.kept, &recv), 0);
		if (how & 1) {
			struct sc_comp comp = comp_take(&pair[1].rx);

			assert_int_equal(comp.err, ECONNRESET);
			assert_ptr_equal(comp.context, into);
			assert_int_equal(comp.tag, 5);
		}
		assert_null(sc_comp_ring_peek(&pair[1].rx));
		assert_int_equal(pair[1].peer->recv.units_held, 0);
		assert_int_equal(pair[1].ep->counters.quarantines, 0);
		elsewhere_close();
	}
}

/* The receiver ends while whole messages wait, and one with a part still to come. */
static void test_elsewhere_receiver_ends(void **state)
{
	struct sc_rx_msg *kept[3];

	(void)state;
	for (int how = 0; how < 3; how++) {
		struct iovec room = { into, 8 };
		struct sc_recv recv = recv_into(&room);

		elsewhere_open();
		for (int i = 0; i < 2; i++) {
			send_to_1(i ? 50000 : 8, 5, SC_TAGGED);
			kept[i] = elsewhere.kept;
		}
		part(0);
		kept[2] = elsewhere.kept;
		end_close(&pair[1]);
		for (int i = 0; i < 3; i++) {
			assert_ptr_equal(sc_waiting_rxq(kept[i]), elsewhere.rxq);
			assert_null(sc_waiting_source(elsewhere.rxq, kept[i]));
			if (how == 0)
				sc_waiting_drop(kept[i]);
			if (how == 1)
				assert_int_equal(sc_waiting_receive(kept[i], &recv), -ENOTCONN);
		}
		elsewhere_close(); /* how 2: the queue drops them */
	}
}

/* No answer now, or no memory there: the message stays in the ring until a later poll. */
static void test_elsewhere_refused(void **state)
{
	static const size_t sizes[] = { 8, 2000, PARTS_SIZE, 50000 };

	(void)state;
	elsewhere_open();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int refusal = 0; refusal < 2; refusal++) {
			struct iovec room = { into, sizes[i] };
			struct sc_recv recv = recv_into(&room);

			elsewhere.kept = NULL;
			elsewhere.asked = elsewhere.offered = 0;
			elsewhere.error = refusal ? 0 : -EAGAIN;
			elsewhere.refusal = refusal ? -ENOSPC : 0;
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, sizes[i], 5, SC_TAGGED),
					 0);
			for (int polls = 0; polls < 20; polls++)
				sc_ep_poll(pair[1].ep);
			assert_true(elsewhere.asked > 1);
			assert_int_equal(elsewhere.offered, refusal ? elsewhere.asked : 0);
			assert_int_equal(pair[1].peer->recv.units_held, 0);
			assert_true(sc_list_empty(&pair[1].peer->recv.waiting));
			elsewhere.error = elsewhere.refusal = 0;
			ends_settle(pair, 2);
			assert_int_equal(sc_waiting_receive(elsewhere.kept, &recv), 0);
			ends_settle(pair, 2);
			expect_received(&pair[1], pair[1].peer, into, sizes[i], 5);
			assert_true(pattern_is(into, 0, sizes[i], 1));
			drop_sent();
		}
	elsewhere_close();
}

/* Parts that are none, or not the next; with a receive and without. */
static void test_bad_parts(void **state)
{
	(void)state;
	for (int posted = 0; posted < 2; posted++)
		for (int variant = 0; variant < 12; variant++) {
			uint64_t words[7] = { 0, 4096, 0, 1 };
			uint32_t kind = SC_ABI_PIECE, flags = 0, size = 4096;

			victim_open();
			for (int i = 0; posted && i < 2; i++)
				assert_int_equal(
					end_recv(&pair[1], NULL, into + 50000, 20000 + i, 5, SC_TAGGED),
					0);
			memset(into + 50000, 0xa5, 20001);
			if (variant > 2)
				part(0);
			switch (variant) {
			case 0: /* of nothing */
				words[1] = 0;
				break;
			case 1: /* all of it, and parts to come */
				kind = SC_ABI_BOUNCE, flags = SC_ABI_F_PARTS | SC_ABI_F_TAGGED;
				words[0] = 5;
				break;
			case 2:
				kind = SC_ABI_BOUNCE, flags = SC_ABI_F_PARTS, size = 4097;
				words[3] = default_buf_count();
				break;
			case 3: /* another in the midst of it */
				kind = SC_ABI_BOUNCE, flags = SC_ABI_F_PARTS | SC_ABI_F_TAGGED,
				size = 4097;
				words[0] = 5;
				break;
			case 4:
				words[1] = 8192;
				break;
			case 5:
				words[1] = 0;
				break;
			case 6:
				size = PARTS_SIZE - 4096 + 1;
				words[3] |= 2 << 16;
				break;
			case 7:
				size = UINT32_MAX;
				break;
			case 8:
				size = 0;
				break;
			case 9:
				words[3] = default_buf_count();
				break;
			case 10: /* in one buffer, and more than is missing */
				part(1);
				words[1] = 8192, words[3] = 2, size = PARTS_SIZE - 8192 + 1;
				break;
			default: /* as if it had been asked for */
				words[0] =
					posted ? sc_slab_id(pair[1].peer->recv.arriving_op) : 1ull << 32;
			}
			raw_record(pair[0].peer, CTL(kind, flags, 1, size), words, 7);
			sc_ep_poll(pair[1].ep);
			assert_true(sc_list_empty(&pair[1].peer->recv.transfers));
			assert_null(pair[1].peer->recv.arriving);
			assert_null(pair[1].peer->recv.arriving_op);
			for (int i = 0; posted && i < (variant < 3 ? 2 : 1); i++)
				assert_int_equal(sc_rx_cancel(pair[1].ep, into + 50000), 0);
			assert_true(into[50000 + PARTS_SIZE] == 0xa5);
			victim_check();
		}
}

/* A record that ends at a line which looks like a record of the next length, at each place of the ring. */
static void test_bad_record_everywhere(void **state)
{
	(void)state;
	for (uint32_t at = 0; at < 2 * SC_ABI_RING_LINES + 3; at += 5) {
		victim_open();
		for (uint32_t i = 0; i < at; i++) {
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT), 0);
			assert_int_equal(end_recv(&pair[1], NULL, into, 0, 0, SC_SILENT), 0);
			sc_ep_poll(pair[1].ep);
		}
		raw_record(pair[0].peer, CTL(SC_ABI_INLINE, 0, 1, 41), NULL, 0);
		victim_check();
	}
}

/* A payload that cannot be read is the error of that message, for both sides. */
static void test_unreadable_payload(void **state)
{
	struct iovec nowhere = { (void *)4096, 50000 };

	(void)state;
	if (!cma_allowed())
		skip();
	pair_open(pair, NULL, WAY_CMA);
	assert_int_equal(end_sendv(&pair[0], pair[0].peer, &nowhere, 1, 0, 0, from), 0);
	assert_int_equal(end_recv(&pair[1], NULL, into, sizeof(into), 0, 0), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, EFAULT);
	assert_int_equal(comp_take(&pair[1].rx).err, EFAULT);
	/* and the next one is well */
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 50000, 0, 0), 0);
	assert_int_equal(end_recv(&pair[1], NULL, into, sizeof(into), 0, 0), 0);
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, 50000);
	expect_received(&pair[1], pair[1].peer, into, 50000, 0);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	pair_close(pair);
}

static void send_three(void)
{
	for (int i = 0; i < 3; i++) {
		assert_int_equal(end_recv(&pair[1], NULL, into + i * 50000, 50000, (uint64_t)i, SC_TAGGED),
				 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 50000, (uint64_t)i, SC_TAGGED), 0);
	}
	ends_settle(pair, 2);
	for (int i = 0; i < 3; i++) {
		expect_sent(&pair[0], from, 50000);
		expect_received(&pair[1], pair[1].peer, into + i * 50000, 50000, (uint64_t)i);
		assert_true(pattern_is(into + i * 50000, 0, 50000, 1));
	}
}

/*
 * Messages read from the peer's memory are proven by its word of life, one for all that are read in one go, or by the
 * cookie; if that says no, the payload comes in pieces, now and later.
 */
static void test_proof_of_messages(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (int life = LIFE_WELL; life < LIVES; life++)
		for (int same = 0; same < 2; same++) {
			bool direct = same || life == LIFE_WELL;
			uint32_t before;

			pair_open(pair, NULL, WAY_CMA);
			memset(into, 0, 150000);
			pair[1].peer->cma.cookie ^= !same; /* it looks like another process */
			before = life_take(pair[1].peer, life);
			if (before) {
				send_three();
				life_restore(before);
				assert_int_equal(pair[1].ep->counters.rx_pulled_bytes,
						 direct ? 0 : 150000);
				assert_int_equal(pair[1].peer->can_read != SC_REACH_NO, direct);
			}
			pair_close(pair);
		}
}

static void end_late(void)
{
	sc_store_release_32(life_word, SC_ABI_LIFE_ENDED);
}

/* The sender has ended until the fence behind the read: its word of life proves nothing, and the cookie is another's. */
static void test_ended_at_the_fence(void **state)
{
	uint32_t before;

	(void)state;
	if (!cma_allowed() || !core_failing(NULL, 0))
		skip();
	pair_open(pair, NULL, WAY_CMA);
	before = life_take(pair[1].peer, LIFE_WELL);
	pair[1].peer->cma.cookie ^= 1;
	assert_int_equal(sc_peer_prove_read(pair[1].peer), 0);
	assert_true(core_fencing(NULL, end_late));
	assert_int_equal(sc_peer_prove_read(pair[1].peer), -ESRCH);
	life_restore(before);
	pair_close(pair);
}

/*
 * A record names buffers of a peer whose segment the endpoint does not have: the record is lost, and those behind it,
 * but it is no breach of the protocol.
 */
static void test_buffers_of_the_gone(void **state)
{
	static const int kinds[] = { SC_ABI_BOUNCE, SC_ABI_PIECE, SC_ABI_PUT, SC_ABI_GOT,
				     SC_ABI_DELEGATE_PUT };
	uint64_t words[7] = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct sc_seg *seg;

		pair_open(pair, NULL, WAY_PULL);
		raw_record(pair[0].peer, CTL(kinds[i], SC_ABI_F_BOUNCED, 1, 8), words, 7);
		seg = pair[1].peer->seg;
		pair[1].peer->seg = NULL;
		(void)sc_rx_poll(pair[1].ep);
		pair[1].peer->seg = seg;
		assert_int_equal(pair[1].ep->counters.quarantines, 0);
		assert_int_equal(pair[1].peer->feed, SC_FEED_DONE);
		assert_int_equal(pair[1].peer->link, SC_LINK_DOWN);
		pair_close(pair);
	}
}

/* Of those that are not looked at in each poll the last one is given up while it is looked at. */
static void test_last_of_many(void **state)
{
	enum { WRITERS = 9 };
	struct end ends[WRITERS + 1];

	(void)state;
	for (int i = 0; i <= WRITERS; i++)
		end_open(&ends[i], NULL);
	for (int i = 1; i <= WRITERS; i++) {
		ends[i].peer = end_find(&ends[i], &ends[0]);
		assert_int_equal(sc_peer_connect(ends[i].peer), 0);
		ends_settle(ends, (size_t)i + 1);
	}
	assert_int_equal(ends[0].ep->inbound_count, WRITERS);
	raw_record(ends[WRITERS].peer, CTL(255, 0, 1, 0), NULL, 0);
	ends_settle(ends, 1);
	assert_int_equal(ends[0].ep->counters.quarantines, 1);
	assert_int_equal(ends[0].ep->inbound_count, WRITERS - 1);
	for (int i = 1; i < WRITERS; i++) {
		assert_int_equal(end_send(&ends[i], ends[i].peer, from, 8, (uint64_t)i, SC_TAGGED), 0);
		assert_int_equal(end_recv(&ends[0], NULL, into, 8, (uint64_t)i, SC_TAGGED), 0);
		ends_settle(ends, 1);
		assert_int_equal(comp_take(&ends[0].rx).err, 0);
	}
	for (int i = 0; i <= WRITERS; i++)
		end_close(&ends[i]);
}

/* ---- past the queue -------------------------------------------------------------------------- */

/* Sends a message of 8 bytes to a receive of `room` bytes; `data`: with remote data. */
static void send_eight(uint64_t tag, size_t room, bool data)
{
	assert_int_equal(end_recv(&pair[1], NULL, into + tag * 8, room, tag, SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from + tag * 8, 8, tag,
				  SC_TAGGED | (data ? SC_SEND_DATA : 0)),
			 0);
}

/* `direct` of `count` messages, with the tags 1, 2, ..., are reported past the queue; the others in it, in order. */
static void expect_past(const struct sc_entry *entries, uint64_t direct, uint64_t count, uint64_t cut,
			uint64_t data)
{
	for (uint64_t tag = 1; tag <= direct; tag++) {
		assert_ptr_equal(entries[tag - 1].context, into + tag * 8);
		assert_int_equal(entries[tag - 1].tag, tag);
		assert_int_equal(entries[tag - 1].len, 8);
		assert_int_equal(entries[tag - 1].cq_flags, 0x7ec4);
		assert_null(entries[tag - 1].buf);
	}
	assert_int_equal(entries[direct].tag, 0xa5a5a5a5a5a5a5a5);
	for (uint64_t tag = direct + 1; tag <= count; tag++) {
		struct sc_comp comp = comp_take(&pair[1].rx);

		assert_int_equal(comp.tag, tag);
		assert_int_equal(comp.err, tag == cut ? EMSGSIZE : 0);
		assert_int_equal(!!(comp.flags & SC_COMP_DATA), tag == data);
	}
	assert_true(sc_comp_ring_is_empty(&pair[1].rx));
}

/* Completions go past the queue while there are entries for them, up to the first that tells more than an entry can. */
static void test_past_the_queue(void **state)
{
	static const struct {
		size_t entries, direct, cut, data;
	} cases[] = {
		{ 4, 4, 0, 0 }, { 3, 3, 0, 0 }, { 1, 1, 0, 0 }, { 0, 0, 0, 0 },
		{ 4, 1, 2, 0 }, { 4, 2, 0, 3 }, { 4, 0, 1, 0 }, { 4, 0, 0, 1 },
	};
	struct sc_entry entries[6];

	(void)state;
	pair_open(pair, NULL, WAY_CMA);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(entries, 0xa5, sizeof(entries));
		for (uint64_t tag = 1; tag <= 4; tag++)
			send_eight(tag, tag == cases[i].cut ? 4 : 8, tag == cases[i].data);
		sc_comp_ring_by_pass(&pair[1].rx, entries, cases[i].entries);
		assert_true(sc_ep_poll(pair[1].ep) > 0);
		assert_int_equal(sc_comp_ring_by_passed(&pair[1].rx, entries), cases[i].direct);
		expect_past(entries, cases[i].direct, 4, cases[i].cut, cases[i].data);
		/* a completion that waits goes before a new one, and no entry is written after its poll */
		send_eight(1, 4, false);
		sc_ep_poll(pair[1].ep);
		send_eight(2, 8, false);
		memset(entries, 0xa5, sizeof(entries));
		sc_comp_ring_by_pass(&pair[1].rx, entries, 4);
		sc_ep_poll(pair[1].ep);
		assert_int_equal(sc_comp_ring_by_passed(&pair[1].rx, entries), 0);
		expect_past(entries, 0, 2, 1, 0);
		drop_sent();
	}
	pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tags_and_queues),
		cmocka_unit_test(test_sources),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_cancel_looks_from_both_ends),
		cmocka_unit_test(test_cancel_each),
		cmocka_unit_test(test_peek),
		cmocka_unit_test(test_peek_sees_newcomers),
		cmocka_unit_test(test_peek_sees_all_peers),
		cmocka_unit_test(test_claim),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_claim_of_each_kind),
		cmocka_unit_test(test_claim_of_the_gone),
		cmocka_unit_test(test_multi),
		cmocka_unit_test(test_multi_truncation),
		cmocka_unit_test(test_multi_under_way),
		cmocka_unit_test(test_multi_sender_gone),
		cmocka_unit_test(test_multi_small),
		cmocka_unit_test(test_multi_many),
		cmocka_unit_test(test_payload_of_the_closed),
		cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_bad_kinds),
		cmocka_unit_test(test_bad_lengths),
		cmocka_unit_test(test_grown),
		cmocka_unit_test(test_bad_overflow),
		cmocka_unit_test(test_bad_inline),
		cmocka_unit_test(test_bad_bounce),
		cmocka_unit_test(test_strange_but_right),
		cmocka_unit_test(test_bad_rdv),
		cmocka_unit_test(test_window_overrun),
		cmocka_unit_test(test_fence_flood),
		cmocka_unit_test(test_bad_pieces),
		cmocka_unit_test(test_pieces_too_long),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_peek_at_parts),
		cmocka_unit_test(test_parts_end),
		cmocka_unit_test(test_parts_in_order),
		cmocka_unit_test(test_elsewhere_parts),
		cmocka_unit_test(test_elsewhere_drop),
		cmocka_unit_test(test_elsewhere_sender_ends),
		cmocka_unit_test(test_elsewhere_receiver_ends),
		cmocka_unit_test(test_elsewhere_refused),
		cmocka_unit_test(test_bad_parts),
		cmocka_unit_test(test_bad_record_everywhere),
		cmocka_unit_test(test_buffers_of_the_gone),
		cmocka_unit_test(test_last_of_many),
		cmocka_unit_test(test_unreadable_payload),
		cmocka_unit_test(test_proof_of_messages),
		cmocka_unit_test(test_ended_at_the_fence),
		cmocka_unit_test(test_past_the_queue),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests_name("rx", tests, setup, NULL);
}
