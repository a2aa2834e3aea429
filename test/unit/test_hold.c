/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_hold: a receiver answers a message in the bounce buffers that it came in; when it does not hold a buffer, or not
 * for long; a message that is unread in a buffer that the owner needs; and a peer that closes, dies or breaks the rules
 * while it holds a buffer.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "core_pair.h"
#include "link/hold.h"
#include "link/record.h"
#include "link/rxq.h"
#include "base/slab.h"

#define SIZE 1000
#define MOST 4096 /* bytes of a bounce buffer */
#define RETURNED_PARTS (SC_ABI_F_RETURNED | SC_ABI_F_TAGGED | SC_ABI_F_PARTS)

static struct end pair[2], third;
static uint8_t from[10 * MOST], into[10 * MOST];

/* There is no trial of the ways to fill buffers: its result depends on the load of the machine. */
static struct sc_ep_attr cached_attr(void)
{
	struct sc_ep_attr attr = end_attr();

	attr.config.fill = SC_FILL_CACHED;
	return attr;
}

/* Besides, all that may goes through buffers. */
static struct sc_ep_attr eager_attr(void)
{
	struct sc_ep_attr attr = cached_attr();

	attr.config.eager_adapts = false;
	return attr;
}

/* One message, and its receive; `seed` is its tag, too. */
static void talk(int who, size_t size, uint64_t seed)
{
	struct end *sender = &pair[who], *receiver = &pair[!who];

	pattern_fill(from, 0, size, seed);
	memset(into, 0, size);
	assert_int_equal(end_recv(receiver, receiver->peer, into, size, seed, SC_TAGGED), 0);
	assert_int_equal(end_send(sender, sender->peer, from, size, seed, SC_TAGGED), 0);
	memset(from, 0xee, size); /* the send has copied it */
	expect_sent(sender, from, size);
	(void)sc_ep_poll(receiver->ep);
	expect_received(receiver, receiver->peer, into, size, seed);
	assert_true(pattern_is(into, 0, size, seed));
}

static uint64_t bounced(int who)
{
	return pair[who].ep->counters.tx_bounce;
}

static uint32_t lent_by(int who)
{
	return pair[who].peer->bounce.loans.count;
}

/* Returns the buffer that pair[who] holds; SC_POOL_NONE: none. */
static uint16_t held_by(int who)
{
	const struct sc_hold *hold = &pair[who].peer->hold;

	assert_in_range(hold->count, 0, 1);
	return hold->count ? *hold->bufs : SC_POOL_NONE;
}

static uint16_t returnable(int who)
{
	const struct sc_peer *peer = pair[who].peer;

	assert_in_range(peer->bounce.returnables.count, 0, 1);
	return peer->bounce.returnables.count ? *peer->bounce.returnables.bufs : SC_POOL_NONE;
}

/* pair[1] has read a message of pair[0]'s and holds its buffer. */
static uint16_t open_holding(const struct sc_ep_attr *attr)
{
	struct sc_ep_attr cached = cached_attr();

	pair_open(pair, attr ? attr : &cached, WAY_CMA);
	assert_false(sc_hold_has(pair[1].peer));
	talk(0, SIZE, 1);
	assert_true(sc_hold_has(pair[1].peer));
	assert_int_equal(lent_by(0), 1);
	assert_int_equal(returnable(0), held_by(1));
	assert_false(sc_list_empty(&pair[1].ep->holding));
	return held_by(1);
}

/* Posts a receive for a message that waits, and checks its bytes. */
static void expect_waiting(struct end *receiver, size_t size, uint64_t seed)
{
	memset(into, 0, size);
	assert_int_equal(end_recv(receiver, receiver->peer, into, size, seed, SC_TAGGED), 0);
	(void)sc_ep_poll(receiver->ep);
	expect_received(receiver, receiver->peer, into, size, seed);
	assert_true(pattern_is(into, 0, size, seed));
}

static void send_only(int who, size_t size, uint64_t seed)
{
	pattern_fill(from, 0, size, seed);
	assert_int_equal(end_send(&pair[who], pair[who].peer, from, size, seed, SC_TAGGED | SC_SILENT), 0);
}

/* pair[0] lends all its buffers to a third endpoint, which reads nothing yet. */
static void lend_all(void)
{
	struct sc_peer *to;
	uint64_t seed = 1000;

	end_open(&third, NULL);
	to = end_find(&pair[0], &third);
	do
		pattern_fill(from, 0, SIZE, seed);
	while (!end_send(&pair[0], to, from, SIZE, seed, SC_TAGGED | SC_SILENT) &&
	       to->ep->counters.tx_rdv == 0 && ++seed);
	assert_true(to->bounce.loans.count > 8);
}

/* The third reads all of them, unharmed. */
static void third_reads(void)
{
	struct sc_peer *to = end_find(&pair[0], &third);
	uint32_t lent = to->bounce.loans.count;

	third.peer = end_find(&third, &pair[0]);
	for (uint64_t seed = 1000; seed < 1000 + lent; seed++) {
		assert_int_equal(end_recv(&third, NULL, into, SIZE, seed, SC_TAGGED), 0);
		(void)sc_ep_poll(third.ep);
		expect_received(&third, third.peer, into, SIZE, seed);
		assert_true(pattern_is(into, 0, SIZE, seed));
	}
	end_close(&third);
}

/* Writes a record of one line to the peer without any check. */
static void put_raw(struct sc_peer *peer, enum sc_abi_kind kind, uint32_t flags, uint32_t size,
		    const struct sc_abi_bounce *record)
{
	struct sc_abi_line *line = sc_ring_reserve(&peer->tx);

	memcpy(line->bytes, record, sizeof(*record));
	sc_ring_commit(&peer->tx, sc_ring_ctl(kind, flags, 1, size), 1);
}

/* ---- that it is ------------------------------------------------------------------------------ */

/* One buffer does for all, whichever side it is of, and nobody says how far it has read. */
static void test_in_turn(void **state)
{
	struct sc_ep_attr attr = cached_attr();
	static const size_t sizes[] = { 320, 321, 511, 512, 1000, 2048, MOST - 1, MOST };

	(void)state;
	for (int first = 0; first < 2; first++) {
		uint64_t head, seed = 0;
		uint16_t buf;

		pair_open(pair, &attr, WAY_CMA);
		talk(first, SIZE, ++seed);
		buf = held_by(!first);
		head = sc_load_relaxed_64(&pair[first].peer->tx.consumer->head);
		for (int n = 0; n < 20; n++) {
			size_t size = sizes[n % 8];

			assert_int_equal(held_by(!first), buf);
			assert_int_equal(returnable(first), buf);
			talk(!first, size, ++seed);
			assert_int_equal(lent_by(0) + lent_by(1), 0);
			assert_false(sc_hold_has(pair[!first].peer));
			assert_true(sc_list_empty(&pair[!first].ep->holding));
			assert_int_equal(pair[first].ep->pool.free_first, buf);
			talk(first, size, ++seed);
			assert_int_equal(lent_by(first), 1);
		}
		assert_int_equal(sc_load_relaxed_64(&pair[first].peer->tx.consumer->head), head);
		assert_int_equal(bounced(first), 21);
		assert_int_equal(bounced(!first), 20);
		for (int n = 0; n < 2 * SC_ABI_RING_LINES; n++) { /* and around the rings */
			talk(!first, sizes[n % 8], ++seed);
			talk(first, sizes[(n + 3) % 8], ++seed);
		}
		assert_int_equal(pair[first].ep->pool.have, pair[!first].ep->pool.have);
		assert_int_equal(pair[!first].ep->counters.quarantines, 0);
		pair_close(pair);
	}
}

/* Both send before either looks. */
static void test_at_once(void **state)
{
	struct sc_ep_attr attr = cached_attr();

	(void)state;
	pair_open(pair, &attr, WAY_CMA);
	for (uint64_t seed = 1; seed < 300; seed += 2) {
		send_only(0, SIZE, seed);
		send_only(1, SIZE, seed + 1);
		expect_waiting(&pair[1], SIZE, seed);
		expect_waiting(&pair[0], SIZE, seed + 1);
		assert_in_range(lent_by(0) + lent_by(1), 0, 2);
		/* if one side has lent a buffer, the other side has it to answer in */
		for (int who = 0; who < 2; who++)
			assert_int_equal(lent_by(who), sc_hold_has(pair[!who].peer));
	}
	pair_close(pair);
}

/* The owner's receives are reported in order: its messages go the longer way on both sides. */
static void test_ordered_owner(void **state)
{
	static const size_t sizes[] = { SIZE, 3 * MOST };
	struct sc_ep_attr attr = eager_attr(), ordered = attr;

	(void)state;
	ordered.order = SC_ORDER_RECEIVE;
	end_open(&pair[0], &ordered);
	end_open(&pair[1], &attr);
	pair_connect(pair, WAY_CMA);
	talk(1, 8, 1);
	for (uint64_t seed = 2; seed < 40; seed += 2) {
		size_t size = sizes[seed / 2 % 2];

		talk(0, size, seed);
		assert_int_equal(pair[1].peer->hold.count, lent_by(0));
		talk(1, size, seed + 1);
		assert_int_equal(lent_by(0) + lent_by(1), 0);
	}
	pair_close(pair);
}

/* Buffers of the one are twice as large as the other's. */
static void test_sizes_of_buffers(void **state)
{
	(void)state;
	for (int larger = 0; larger < 2; larger++) {
		struct sc_ep_attr attr = eager_attr();
		uint64_t seed = 1;

		end_open(&pair[!larger], &attr);
		attr.config.buf_size = 2 * MOST;
		end_open(&pair[larger], &attr);
		pair_connect(pair, WAY_CMA);
		talk(1, 8, seed);
		for (size_t size = SIZE; size <= 8 * MOST; size += MOST - 9) {
			talk(0, size, ++seed);
			talk(1, size, ++seed);
			assert_int_equal(lent_by(0) + lent_by(1), 0);
			talk(0, size, ++seed);
			talk(1, size > MOST ? size - MOST : size, ++seed);
			assert_int_equal(lent_by(1), 0);
		}
		assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
		pair_close(pair);
	}
}

/* An endpoint sends to itself: it holds the buffer that it has lent. */
static void test_to_itself(void **state)
{
	static const size_t sizes[] = { SIZE, SIZE, 3 * MOST, 3 * MOST, 2 * MOST };
	struct sc_ep_attr attr = eager_attr();
	struct sc_peer *self;

	(void)state;
	end_open(&pair[0], &attr);
	self = end_find(&pair[0], &pair[0]);
	for (uint64_t seed = 1; seed < 300; seed++) {
		size_t size = sizes[seed % 5];

		pattern_fill(from, 0, size, seed);
		assert_int_equal(end_send(&pair[0], self, from, size, seed, SC_TAGGED | SC_SILENT), 0);
		ends_settle(pair, 1);
		assert_int_equal(end_recv(&pair[0], NULL, into, size, seed, SC_TAGGED), 0);
		(void)sc_ep_poll(pair[0].ep);
		expect_received(&pair[0], self, into, size, seed);
		assert_true(pattern_is(into, 0, size, seed));
	}
	end_close(&pair[0]);
}

enum kind { PLAIN, SHORT, VECTOR, MULTI, KINDS };

/* An answer of `size` bytes, of which so many are received, by a receive that is posted before it, or late. */
static void receive_kind(enum kind kind, size_t size, size_t done, int late, uint32_t flags)
{
	uint32_t recv_flags = flags | (kind == MULTI ? SC_RECV_MULTI : 0);
	struct iovec iov[2] = { { into, kind == SHORT ? done : sizeof(into) } };
	struct sc_ep_attr attr = eager_attr();
	struct sc_comp comp;

	if (kind == VECTOR) {
		iov[0].iov_len = 300;
		iov[1] = (struct iovec){ into + 300, size };
	}
	pair_open(pair, &attr, WAY_CMA);
	talk(1, 8, 1);
	talk(0, size, 2);
	pattern_fill(from, 0, size, 7);
	memset(into, 0, sizeof(into));
	for (int n = 0; n < 2; n++) {
		if (n == late)
			assert_int_equal(end_recvv(&pair[0], NULL, iov, 1 + (kind == VECTOR), 7, 0,
						   recv_flags, into),
					 0);
		else
			assert_int_equal(
				end_send(&pair[1], pair[1].peer, from, size, 7, flags | SC_SEND_DATA), 0);
		(void)sc_ep_poll(pair[0].ep);
	}
	comp = comp_take(&pair[0].rx);
	assert_int_equal(comp.err, kind == SHORT ? EMSGSIZE : 0);
	assert_int_equal(comp.len, done);
	if (comp.err)
		assert_int_equal(comp.olen, size - done);
	assert_int_equal(comp.data, ~7ull);
	assert_true(comp.flags & SC_COMP_DATA);
	assert_true(pattern_is(into, 0, done, 7));
	assert_int_equal(lent_by(0), 0);
	assert_int_equal(lent_by(1), 0);
	assert_int_equal(pair[0].ep->counters.rx_unexpected, late);
	assert_int_equal(pair[0].peer->recv.units_held, 0);
	pair_close(pair);
}

/* Receives of every kind, posted before it and after; of an answer in one buffer, and in parts. */
static void test_kinds_of_receive(void **state)
{
	static const size_t sizes[] = { SIZE, 3 * MOST - 5 }, fewer[] = { 500, MOST + 500 };

	(void)state;
	for (int parts = 0; parts < 2; parts++)
		for (enum kind kind = 0; kind < KINDS; kind++)
			for (int late = 0; late < 2; late++) {
				size_t done = kind == SHORT ? fewer[parts] : sizes[parts];

				receive_kind(kind, sizes[parts], done, late, 0);
				if (kind != MULTI)
					receive_kind(kind, sizes[parts], done, late, SC_TAGGED);
			}
}

/* By an endpoint whose receives are those of a queue that it shares, and of another there. */
static void test_shared_queue(void **state)
{
	static const size_t sizes[] = { SIZE, 3 * MOST - 5 };
	struct sc_ep_attr attr = eager_attr(), sharing = eager_attr();

	(void)state;
	for (int parts = 0; parts < 2; parts++)
		for (int late = 0; late < 2; late++) {
			struct iovec iov = { into, sizeof(into) };
			struct sc_recv recv = { .iov = &iov,
						.iov_count = 1,
						.context = into,
						.tag = 7,
						.cq_flags = 0x7ec4,
						.flags = SC_TAGGED };

			assert_int_equal(sc_rxq_create(64, &sharing.rxq), 0);
			end_open(&pair[0], &sharing);
			end_open(&pair[1], &attr);
			end_open(&third, &sharing);
			pair_connect(pair, WAY_CMA);
			send_only(0, sizes[parts], 2);
			expect_waiting(&pair[1], sizes[parts], 2);
			assert_int_equal(lent_by(0), 1 + 2 * parts);
			assert_true(sc_hold_has(pair[1].peer));
			memset(into, 0, sizeof(into));
			for (int n = 0; n < 2; n++) {
				if (n == late)
					assert_int_equal(sc_rxq_recv(sharing.rxq, &recv), 0);
				else
					send_only(1, sizes[parts], 7);
				(void)sc_ep_poll(third.ep);
				(void)sc_ep_poll(pair[0].ep);
			}
			expect_received(&pair[0], pair[0].peer, into, sizes[parts], 7);
			assert_true(pattern_is(into, 0, sizes[parts], 7));
			assert_null(sc_comp_ring_peek(&third.rx));
			assert_int_equal(lent_by(0) + lent_by(1), 0);
			assert_int_equal(pair[0].peer->recv.units_held, 0);
			end_close(&third);
			pair_close(pair);
			sc_rxq_destroy(sharing.rxq);
		}
}

/* There is no memory to receive the first part: all of them stay in their buffers until there is. */
static void test_no_memory(void **state)
{
	struct iovec iov = { into, sizeof(into) };
	struct sc_ep_attr attr = eager_attr();
	struct sc_slab *ops, had;

	(void)state;
	pair_open(pair, &attr, WAY_CMA);
	talk(1, 8, 1);
	talk(0, 3 * MOST, 2);
	assert_int_equal(end_recvv(&pair[0], NULL, &iov, 1, 7, 0, SC_TAGGED | SC_RECV_MULTI, into), 0);
	ops = &pair[0].ep->rxq->ops;
	had = *ops;
	ops->free = NULL;
	ops->chunk_count = UINT32_MAX / 64; /* as many as there may be */
	send_only(1, 3 * MOST, 7);
	for (int polls = 0; polls < 3; polls++) {
		(void)sc_ep_poll(pair[0].ep);
		assert_int_equal(lent_by(0), 3);
		assert_int_equal(pair[0].peer->bounce.returnables.count, 3);
		assert_null(sc_comp_ring_peek(&pair[0].rx));
	}
	*ops = had;
	(void)sc_ep_poll(pair[0].ep);
	expect_received(&pair[0], pair[0].peer, into, 3 * MOST, 7);
	assert_true(pattern_is(into, 0, 3 * MOST, 7));
	assert_int_equal(lent_by(0) + lent_by(1), 0);
	assert_int_equal(pair[0].ep->counters.quarantines, 0);
	pair_close(pair);
}

/* In parts: their buffers do for all that need no more of them. */
static void test_parts_in_turn(void **state)
{
	static const size_t sizes[] = { MOST + 1, 2 * MOST, 5 * MOST - 1, 8 * MOST };
	struct sc_ep_attr attr = eager_attr();

	(void)state;
	for (int first = 0; first < 2; first++) {
		uint64_t seed = 0, head;

		pair_open(pair, &attr, WAY_CMA);
		talk(!first, 8, ++seed); /* both have come */
		talk(first, 8, ++seed);
		head = sc_load_relaxed_64(&pair[first].peer->tx.consumer->head);
		for (int n = 0; n < 20; n++) {
			size_t size = sizes[n % 4];
			uint32_t buffers = (uint32_t)(size + MOST - 1) / MOST;

			talk(first, size, ++seed);
			assert_int_equal(lent_by(first), buffers);
			assert_int_equal(pair[!first].peer->hold.count, buffers);
			assert_int_equal(pair[first].peer->bounce.returnables.count, buffers);
			assert_int_equal(pair[first].peer->bounce.loans.first,
					 *pair[!first].peer->hold.bufs);
			talk(!first, size, ++seed);
			assert_int_equal(lent_by(0) + lent_by(1), 0);
			assert_int_equal(pair[first].peer->bounce.returnables.count, 0);
			assert_false(sc_hold_has(pair[!first].peer));
			assert_true(sc_list_empty(&pair[!first].ep->holding));
		}
		assert_int_equal(sc_load_relaxed_64(&pair[first].peer->tx.consumer->head), head);
		assert_int_equal(bounced(first), 20);
		assert_int_equal(bounced(!first), 20);
		for (int n = 0; n < SC_ABI_RING_LINES; n++) { /* and around the rings */
			talk(first, sizes[n % 4], ++seed);
			talk(!first, sizes[(n + n / 4) % 4], ++seed);
		}
		assert_int_equal(pair[!first].ep->counters.quarantines, 0);
		pair_close(pair);
	}
}

/* An answer in fewer buffers takes the last of them, and all come back with it; one that needs more takes none. */
static void test_answer_of_another_size(void **state)
{
	struct sc_ep_attr attr = eager_attr();

	(void)state;
	for (uint32_t lent = 1; lent <= SC_ABI_RETURN_BUFS; lent++)
		for (uint32_t answer = 1; answer <= SC_ABI_RETURN_BUFS; answer++) {
			size_t size = answer > 1 ? answer * MOST - 3 : SIZE;

			pair_open(pair, &attr, WAY_CMA);
			talk(1, 8, 1);
			talk(0, lent * MOST, 2);
			assert_int_equal(pair[1].peer->hold.count, lent);
			talk(1, size, 3);
			if (answer <= lent) {
				assert_int_equal(lent_by(0), 0);
				assert_int_equal(lent_by(1), 0);
				assert_int_equal(pair[0].peer->tx.head, pair[0].peer->tx.tail);
				assert_int_equal(pair[0].ep->pool.free_count, pair[0].ep->pool.have);
			} else {
				assert_int_equal(lent_by(0), lent);
				assert_int_equal(lent_by(1), answer);
				assert_int_equal(pair[1].peer->hold.count, lent);
			}
			talk(0, SIZE, 4);
			pair_close(pair);
		}
}

/* From several places, or with another order of completions: in a buffer that is held as well. */
static void test_vector(void **state)
{
	struct sc_ep_attr attr = eager_attr();

	(void)state;
	for (uint32_t buffers = 1; buffers < 4; buffers++) {
		size_t size = buffers * MOST - 7;
		struct iovec iov[3] = { { from, 100 }, { from + 100, 0 }, { from + 100, size - 100 } };

		pair_open(pair, &attr, WAY_CMA);
		talk(1, 8, 1);
		talk(0, size, 2);
		pattern_fill(from, 0, size, 3);
		assert_int_equal(end_sendv(&pair[1], pair[1].peer, iov, 3, 3, SC_TAGGED, from), 0);
		assert_int_equal(lent_by(1), 0);
		assert_false(sc_hold_has(pair[1].peer));
		memset(from, 0xee, size);
		expect_sent(&pair[1], from, size);
		expect_waiting(&pair[0], size, 3);
		assert_int_equal(lent_by(0), 0);
		pair_close(pair);
	}
}

/* One of two parts of a message of pair[0]'s, with a poll of pair[1]'s behind it. */
static uint16_t part(int i, uint64_t seed)
{
	struct sc_peer *peer = pair[0].peer;
	uint64_t words[7] = { i ? 0 : seed, i ? MOST : ~seed };
	uint16_t buf;

	assert_true(sc_record_may_lend(peer, 1, 0));
	buf = sc_pool_lend(&pair[0].ep->pool, &peer->bounce.loans, peer->tx.tail);
	sc_hold_returnables_add(peer, buf);
	pattern_fill(from, 0, 2 * MOST, seed);
	memcpy(sc_seg_buf(pair[0].ep->seg, buf), from + i * MOST, MOST);
	words[3] = buf;
	if (i) {
		sc_record_put(peer, SC_ABI_PIECE, SC_ABI_F_RETURNABLE, MOST, words);
	} else {
		peer->units_sent += SC_ABI_UNITS(2 * MOST);
		sc_record_put(peer, SC_ABI_BOUNCE, SC_ABI_F_TAGGED | SC_ABI_F_RETURNABLE | SC_ABI_F_PARTS,
			      2 * MOST, words);
	}
	(void)sc_ep_poll(pair[1].ep);
	return buf;
}

/* The first is answered in, or the head passes it, before the second has been written. */
static void test_between_parts(void **state)
{
	enum { NOTHING, ANSWER, HEAD, BETWEEN };

	(void)state;
	for (int between = 0; between < BETWEEN; between++) {
		struct sc_ep_attr attr = eager_attr();
		uint16_t first, second;

		pair_open(pair, &attr, WAY_CMA);
		talk(1, 8, 1);
		memset(into, 0, 2 * MOST);
		assert_int_equal(end_recv(&pair[1], pair[1].peer, into, 2 * MOST, 2, SC_TAGGED), 0);
		first = part(0, 2);
		assert_int_equal(held_by(1), first);
		if (between == ANSWER)
			send_only(1, SIZE, 50);
		else if (between == HEAD)
			sc_peer_publish(pair[1].peer);
		second = part(1, 2);
		expect_received(&pair[1], pair[1].peer, into, 2 * MOST, 2);
		assert_true(pattern_is(into, 0, 2 * MOST, 2));
		assert_int_equal(pair[1].peer->hold.count, 1 + (between == NOTHING));
		assert_int_equal(pair[1].peer->hold.bufs[between == NOTHING], second);
		send_only(1, SIZE, 51); /* in the second in any case */
		assert_int_equal(lent_by(1), 0);
		assert_false(sc_hold_has(pair[1].peer));
		if (between == ANSWER)
			expect_waiting(&pair[0], SIZE, 50);
		expect_waiting(&pair[0], SIZE, 51);
		assert_int_equal(lent_by(0), 0);
		assert_int_equal(pair[0].peer->bounce.returnables.count, 0);
		assert_int_equal(pair[0].ep->pool.free_count, pair[0].ep->pool.have);
		pair_close(pair);
	}
}

/* ---- that it is not -------------------------------------------------------------------------- */

/* Sizes that go another way leave it where it is. */
static void test_other_sizes(void **state)
{
	static const size_t sizes[] = { 0, 8, 96, 319, MOST + 1, 8192 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint16_t buf = open_holding(NULL);

		talk(1, sizes[i], 2);
		assert_int_equal(lent_by(1), (sizes[i] + MOST - 1) / MOST * (sizes[i] > 319));
		assert_int_equal(held_by(1), buf);
		talk(1, SIZE, 3);
		assert_int_equal(lent_by(0), 0);
		pair_close(pair);
	}
}

/* A holder that does not answer gives the buffer back after a while, with the next message, or before it sleeps. */
static void test_given_back(void **state)
{
	enum { POLLS, PEEKS, ANOTHER, SLEEP, HOWS };

	(void)state;
	for (int how = 0; how < HOWS; how++) {
		uint64_t head;

		open_holding(NULL);
		head = pair[1].peer->rx.head;
		assert_true(sc_load_relaxed_64(&pair[0].peer->tx.consumer->head) < head);
		if (how == POLLS) {
			for (int n = 0; n < SC_HOLD_POLLS - 4; n++)
				(void)sc_ep_poll(pair[1].ep);
			assert_true(sc_hold_has(pair[1].peer));
			for (int n = 0; n < 8; n++)
				(void)sc_ep_poll(pair[1].ep);
		} else if (how == PEEKS) {
			for (int n = 0; n < SC_HOLD_POLLS + 4; n++) {
				struct sc_recv peek = { .flags = SC_TAGGED | SC_RECV_PEEK };

				assert_int_equal(sc_rx_recv(pair[1].ep, &peek), 0);
				assert_int_equal(comp_take(&pair[1].rx).err, ENOMSG);
			}
		} else if (how == ANOTHER) {
			talk(0, SIZE, 2);
			head++;
		} else {
			struct sc_sleep sleep;
			int64_t limit = INT64_MAX;

			while (sc_ep_poll(pair[1].ep))
				;
			assert_true(sc_hold_has(pair[1].peer));
			assert_int_equal(sc_ep_rest(pair[1].ep, &sleep, &limit), 0);
			sc_ep_rise(pair[1].ep);
		}
		assert_false(sc_hold_has(pair[1].peer));
		assert_true(sc_list_empty(&pair[1].ep->holding));
		assert_int_equal(sc_load_relaxed_64(&pair[0].peer->tx.consumer->head), head);
		talk(1, SIZE, 3); /* in one of its own */
		assert_int_equal(lent_by(1), 1);
		lend_all(); /* and it is one of those */
		assert_int_equal(lent_by(0), 0);
		assert_int_equal(returnable(0), SC_POOL_NONE);
		third_reads();
		pair_close(pair);
	}
}

/* Of no more than one message at a time, none of a pool that is short, none whose fill a trial measures. */
static void test_not_to_be_held(void **state)
{
	struct sc_ep_attr attr = end_attr(), few = end_attr(), ordered = end_attr();

	(void)state;
	few.config.buf_count = 32;
	open_holding(NULL);
	send_only(0, SIZE, 2);
	send_only(0, SIZE, 3);
	expect_waiting(&pair[1], SIZE, 2);
	expect_waiting(&pair[1], SIZE, 3);
	assert_false(sc_hold_has(pair[1].peer));
	pair_close(pair);

	pair_open(pair, &few, WAY_CMA);
	lend_all();
	talk(0, SIZE, 1);
	assert_int_equal(lent_by(0), 1);
	assert_false(sc_hold_has(pair[1].peer));
	end_close(&third);
	pair_close(pair);

	for (int who = 0; who < 2;
	     who++) { /* an order of puts behind messages, the lender's; any, the holder's */
		ordered.order = who ? SC_ORDER_SEND : SC_ORDER_AFTER_SEND;
		for (int i = 0; i < 2; i++)
			end_open(&pair[i], i == who ? &ordered : NULL);
		pair_connect(pair, WAY_CMA);
		talk(0, SIZE, 1);
		assert_int_equal(returnable(0) == SC_POOL_NONE, !who);
		assert_false(sc_hold_has(pair[1].peer));
		pair_close(pair);
	}

	attr.config.fill = SC_FILL_TRIED;
	pair_open(pair, &attr, WAY_CMA);
	sc_fill_begin_slow(&pair[0].peer->bounce.fill);
	talk(0, SIZE, 1);
	assert_false(sc_hold_has(pair[1].peer));
	talk(0, SC_FILL_MIN - 1, 2);
	assert_true(sc_hold_has(pair[1].peer));
	pair_close(pair);
}

/* A held buffer has its lines in the holder's cache, so it is better than a free one, however free ones are filled. */
static void test_held_however_filled(void **state)
{
	(void)state;
	for (enum sc_fill_way way = SC_FILL_CACHED; way < SC_FILL_WAYS; way++) {
		struct sc_ep_attr attr = end_attr();

		attr.config.fill = way;
		pair_open(pair, &attr, WAY_CMA);
		for (size_t size = SC_FILL_MIN; size <= attr.config.buf_size; size *= 2) {
			talk(0, size, 1);
			assert_true(sc_hold_has(pair[1].peer));
			talk(1, size, 2);
			assert_int_equal(lent_by(0) + lent_by(1), 0);
		}
		pair_close(pair);
	}
}

/* None of a message of more parts than may be, of one that is not in parts, or that leaves too few behind. */
static void test_parts_not_to_be_held(void **state)
{
	enum { PARTS, MORE, NOT_IN_PARTS, SHORT_POOL, ACKED, CASES };

	(void)state;
	for (int what = 0; what < CASES; what++) {
		uint32_t parts = what == MORE ? SC_ABI_RETURN_BUFS + 1 : SC_ABI_RETURN_BUFS;
		struct sc_ep_attr attr = eager_attr();
		struct sc_loans elsewhere;
		struct sc_pool *pool;

		attr.config.eager_max = 16 * MOST;
		pair_open(pair, &attr, WAY_CMA);
		pool = &pair[0].ep->pool;
		sc_loans_init(&elsewhere);
		talk(1, 8, 1);
		if (what == SHORT_POOL)
			while (sc_pool_left(pool) >= parts + SC_ABI_RECORD_BUFS + 4 &&
			       sc_record_grow(pair[0].ep, 1))
				(void)sc_pool_lend(pool, &elsewhere, 0);
		pair[0].peer->bounce.is_behind = what == NOT_IN_PARTS;
		talk(0, parts * MOST, 2);
		assert_int_equal(lent_by(0), parts);
		assert_int_equal(pair[1].peer->hold.count, what == PARTS || what == ACKED ? parts : 0);
		assert_int_equal(pair[0].peer->bounce.returnables.count, pair[1].peer->hold.count);
		if (what == ACKED) { /* an answer that is acknowledged goes another way */
			assert_int_equal(end_send(&pair[1], pair[1].peer, from, 2 * MOST, 3,
						  SC_TAGGED | SC_SEND_DELIVERY),
					 0);
			assert_int_equal(lent_by(1), 2);
		}
		sc_pool_reclaim(pool, &elsewhere);
		pair_close(pair);
	}
}

/* Nobody who has not come to the owner is lent one so: it could not tell a message in it from one that is not there. */
static void test_not_come(void **state)
{
	(void)state;
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	pair[0].peer = end_find(&pair[0], &pair[1]);
	for (uint64_t seed = 1; seed < 9; seed++)
		send_only(0, SIZE, seed);
	pair[1].peer = end_find(&pair[1], &pair[0]);
	for (uint64_t seed = 1; seed < 9; seed++) {
		expect_waiting(&pair[1], SIZE, seed);
		assert_false(sc_hold_has(pair[1].peer));
	}
	assert_int_equal(returnable(0), SC_POOL_NONE);
	pair_close(pair);
}

/* An answer in parts that finds no room for all of them in the ring goes another way, and what is unread there stays. */
static void test_parts_in_a_full_ring(void **state)
{
	struct sc_ep_attr attr = eager_attr();
	const struct sc_ring_tx *tx;
	uint64_t sent = 0;

	(void)state;
	pair_open(pair, &attr, WAY_CMA);
	talk(1, 8, 1);
	talk(0, 8 * MOST, 2);
	tx = &pair[1].peer->tx;
	while (tx->tail - tx->head < tx->at.count - 3)
		send_only(1, 8, 100 + sent++);
	send_only(1, 8 * MOST, 3);
	assert_int_equal(lent_by(1), 8);
	for (uint64_t i = 0; i < sent; i++)
		expect_waiting(&pair[0], 8, 100 + i);
	expect_waiting(&pair[0], 8 * MOST, 3);
	assert_int_equal(lent_by(0), 8);
	assert_int_equal(pair[0].ep->counters.quarantines, 0);
	pair_close(pair);
}

/* Its buffers cannot be written to, as this process has too many mappings: all goes the longer way. */
static void test_not_writable(void **state)
{
	struct sc_ep_attr attr = cached_attr();
	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	pair_open(pair, &attr, WAY_CMA);
	talk(0, 8, 0);			   /* in no buffer */
	pair[1].peer->seg->guarded = true; /* as a segment of another process would be */
	core_failing("guard.writable", ENOMEM);
	for (uint64_t seed = 1; seed < 40; seed += 2) {
		talk(0, SIZE, seed);
		assert_false(sc_hold_has(pair[1].peer));
		talk(1, SIZE, seed + 1);
	}
	assert_int_equal(pair[1].peer->can_return, SC_REACH_NO);
	core_failing(NULL, 0);
	pair_close(pair);
}

/* The same, and more is lent so: it is tried once. */
static void test_not_writable_again(void **state)
{
	struct sc_ep_attr attr = cached_attr();

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	pair_open(pair, &attr, WAY_CMA);
	talk(0, 8, 0); /* in no buffer */
	pair[1].peer->seg->guarded = true;
	core_failing("guard.writable", ENOMEM);
	for (int n = 0; n < 3; n++) {
		struct sc_abi_bounce record = { .tag = 5, .bufs = { 0 } };

		assert_int_equal(end_recv(&pair[1], NULL, into, SIZE, 5, SC_TAGGED), 0);
		put_raw(pair[0].peer, SC_ABI_BOUNCE, SC_ABI_F_TAGGED | SC_ABI_F_RETURNABLE, SIZE, &record);
		(void)sc_ep_poll(pair[1].ep);
		expect_received(&pair[1], pair[1].peer, into, SIZE, 5);
		assert_false(sc_hold_has(pair[1].peer));
		assert_int_equal(core_failed(), 1);
	}
	core_failing(NULL, 0);
	pair_close(pair);
}

/* While the ways of filling are tried, for what is told apart by them, each has its own; after that it goes on. */
static void test_trial(void **state)
{
	static const size_t sizes[] = { SC_FILL_MIN - 1, SC_FILL_MIN };
	struct sc_ep_attr attr = end_attr();

	(void)state;
	for (int i = 0; i < 2; i++) {
		uint64_t seed = 1;
		int tried = 0, held = 0, turns = 0;

		open_holding(&attr);
		while (turns < 3000 && !(tried && !pair[0].peer->bounce.fill.trying &&
					 !pair[1].peer->bounce.fill.trying)) {
			for (int who = 0; who < 2; who++) {
				bool trying = pair[who].peer->bounce.fill.trying;

				talk(who, sizes[i], ++seed);
				tried += trying;
				held += sc_hold_has(pair[!who].peer);
				if (trying && pair[who].peer->bounce.fill.trying)
					assert_false(sc_hold_has(pair[!who].peer));
			}
			turns++;
		}
		assert_int_equal(!tried, !i);
		assert_int_equal(turns == 3000, !i);
		assert_true(held > 50);
		pair_close(pair);
	}
}

/* ---- a message that is unread ---------------------------------------------------------------- */

/* The head has passed it and the owner wants buffers: it stays until the message has been read. */
static void test_head_is_ahead(void **state)
{
	(void)state;
	for (uint64_t more = 0; more < 3; more++) {
		uint16_t buf = open_holding(NULL);

		send_only(1, SIZE, 2);
		for (uint64_t seed = 3; seed < 3 + more; seed++) /* others, read too */
			talk(0, SIZE, seed);
		sc_peer_publish(pair[1].peer);
		send_only(0, SIZE, 9); /* and one that is not */
		assert_int_equal(lent_by(0), 2 + more);
		lend_all();
		assert_int_equal(lent_by(0), 2);
		assert_int_equal(pair[0].peer->bounce.loans.first, buf);
		expect_waiting(&pair[0], SIZE, 2);
		assert_int_equal(lent_by(0), 1);
		expect_waiting(&pair[1], SIZE, 9);
		third_reads();
		pair_close(pair);
	}
}

/* The same of an answer in parts: all stay that the head has passed, and each comes back when its part has been read. */
static void test_head_is_ahead_of_parts(void **state)
{
	struct sc_ep_attr attr = eager_attr();

	(void)state;
	for (uint32_t answer = 1; answer < 4; answer++)
		for (int another = 0; another < 2; another++) {
			pair_open(pair, &attr, WAY_CMA);
			talk(1, 8, 1);
			talk(0, 3 * MOST, 2);
			send_only(1, answer * MOST, 3);
			sc_peer_publish(pair[1].peer);
			if (another)
				send_only(0, 3 * MOST, 9);
			lend_all();
			assert_int_equal(lent_by(0), another ? 6 : 3);
			assert_int_equal(pair[0].peer->bounce.returnables.count, 3);
			expect_waiting(&pair[0], answer * MOST, 3);
			assert_int_equal(lent_by(0), another ? 3 : 0);
			assert_int_equal(pair[0].peer->bounce.returnables.count, 0);
			if (another)
				expect_waiting(&pair[1], 3 * MOST, 9);
			third_reads();
			pair_close(pair);
		}
}

/* And the others stay when a part has been read. */
static void test_head_is_ahead_of_a_part(void **state)
{
	struct sc_ep_attr attr = eager_attr();
	struct sc_peer *peer;
	uint16_t bufs[2];

	(void)state;
	pair_open(pair, &attr, WAY_CMA);
	talk(1, 8, 1);
	talk(0, 2 * MOST, 2);
	peer = pair[1].peer;
	memcpy(bufs, peer->hold.bufs, sizeof(bufs));
	peer->units_sent += SC_ABI_UNITS(2 * MOST);
	pattern_fill(from, 0, 2 * MOST, 3);
	memset(into, 0, 2 * MOST);
	assert_int_equal(end_recv(&pair[0], NULL, into, 2 * MOST, 3, SC_TAGGED), 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct sc_abi_bounce record = { .tag = i ? 0 : 3, .data = i * MOST, .bufs = { bufs[i] } };

		memcpy(sc_seg_buf(peer->seg, bufs[i]), from + i * MOST, MOST);
		if (i)
			put_raw(peer, SC_ABI_PIECE, SC_ABI_F_RETURNED, MOST, &record);
		else
			put_raw(peer, SC_ABI_BOUNCE, RETURNED_PARTS, 2 * MOST, &record);
		sc_peer_publish(peer);
		(void)sc_record_may_lend(pair[0].peer, pair[0].ep->pool.count, 0); /* looks at all */
		assert_int_equal(pair[0].peer->tx.head, pair[0].peer->tx.tail);
		assert_int_equal(lent_by(0), 2 - i);
		(void)sc_ep_poll(pair[0].ep);
		assert_int_equal(lent_by(0), 1 - i);
	}
	expect_received(&pair[0], pair[0].peer, into, 2 * MOST, 3);
	assert_true(pattern_is(into, 0, 2 * MOST, 3));
	pair_close(pair);
}

/* Buffers that were lent before the held one come back all the same. */
static void test_others_come_back(void **state)
{
	struct sc_ep_attr attr = cached_attr();
	uint64_t seed = 1;

	(void)state;
	pair_open(pair, &attr, WAY_CMA);
	for (; seed < 4; seed++) {
		talk(0, SIZE, seed);
		for (int n = 0; n < SC_HOLD_POLLS + 8; n++)
			(void)sc_ep_poll(pair[1].ep);
	}
	assert_int_equal(lent_by(0), 3);
	assert_int_equal(returnable(0),
			 pair[0].peer->bounce.loans.first); /* the first, as far as it knows */
	lend_all();
	assert_int_equal(lent_by(0), 0);
	third_reads();
	(void)sc_record_may_lend(pair[0].peer, pair[0].ep->pool.count, 0); /* asks for all */
	talk(0, SIZE, ++seed);
	assert_true(sc_hold_has(pair[1].peer));
	talk(1, SIZE, ++seed);
	assert_int_equal(lent_by(0), 0);
	assert_int_equal(pair[0].peer->tx.head, pair[0].peer->tx.tail); /* all of it has been read */
	pair_close(pair);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Its writer closes, and the owner hears of that before it reads the message. */
static void test_writer_closes(void **state)
{
	(void)state;
	for (int posts = 0; posts < 2; posts++) {
		open_holding(NULL);
		send_only(1, SIZE, 2);
		end_close(&pair[1]);
		if (posts)
			assert_true(end_send(&pair[0], pair[0].peer, from, 8, 3, SC_TAGGED) < 0);
		assert_int_equal(lent_by(0), 1);
		lend_all();
		ends_settle(pair, 1);
		assert_int_equal(pair[0].peer->feed, SC_FEED_DONE);
		memset(into, 0, SIZE);
		assert_int_equal(end_recv(&pair[0], NULL, into, SIZE, 2, SC_TAGGED), 0);
		expect_received(&pair[0], pair[0].peer, into, SIZE, 2);
		assert_true(pattern_is(into, 0, SIZE, 2));
		assert_int_equal(lent_by(0), 0);
		third_reads();
		end_close(&pair[0]);
	}
}

/* The owner of the buffer closes: the holder cannot send to it, and gives the buffer up. */
static void test_owner_closes(void **state)
{
	(void)state;
	for (int polls = 0; polls < 2; polls++) {
		open_holding(NULL);
		end_close(&pair[0]);
		if (polls)
			ends_settle(&pair[1], 1);
		assert_true(end_send(&pair[1], pair[1].peer, from, SIZE, 2, SC_TAGGED) < 0);
		ends_settle(&pair[1], 1);
		assert_false(sc_hold_has(pair[1].peer));
		assert_true(sc_list_empty(&pair[1].ep->holding));
		end_close(&pair[1]);
	}
}

/* Given up, it may be in the midst of writing: what it could write to stays lent until it has gone, and no more. */
static void test_given_up(void **state)
{
	(void)state;
	open_holding(NULL);
	send_only(0, SIZE, 2);
	send_only(0, SIZE, 3);
	assert_int_equal(lent_by(0), 3);
	sc_peer_quarantine(pair[0].peer, -EPROTO, "a test says so");
	assert_int_equal(lent_by(0), 1);
	assert_int_equal(pair[0].peer->bounce.loans.first, held_by(1));
	assert_int_equal(pair[0].peer->bounce.loans.last, held_by(1));
	lend_all();
	assert_int_equal(lent_by(0), 1);
	memset(sc_seg_buf(pair[1].peer->seg, held_by(1)), 0x77, MOST);
	ends_settle(pair, 2);
	assert_int_equal(pair[1].peer->link, SC_LINK_DOWN);
	assert_false(sc_hold_has(pair[1].peer));
	assert_int_equal(lent_by(0), 0); /* it has seen that, and departed */
	assert_int_equal(returnable(0), SC_POOL_NONE);
	third_reads();
	pair_close(pair);
}

/* The same with several. */
static void test_given_up_with_parts(void **state)
{
	struct sc_ep_attr attr = eager_attr();
	struct sc_hold held;

	(void)state;
	pair_open(pair, &attr, WAY_CMA);
	talk(1, 8, 1);
	talk(0, 3 * MOST, 2);
	send_only(0, SIZE, 3);
	held = pair[1].peer->hold;
	assert_int_equal(lent_by(0), 4);
	sc_peer_quarantine(pair[0].peer, -EPROTO, "a test says so");
	assert_int_equal(lent_by(0), 3);
	lend_all();
	for (uint32_t i = 0; i < 3; i++)
		memset(sc_seg_buf(pair[1].peer->seg, held.bufs[i]), 0x77, MOST);
	ends_settle(pair, 2);
	assert_int_equal(lent_by(0), 0);
	assert_int_equal(pair[0].peer->bounce.returnables.count, 0);
	third_reads();
	pair_close(pair);
}

struct writer {
	char address[SC_ADDR_SIZE];
	bool writes;
};

static void writer_child(struct child *self, void *arg)
{
	const struct writer *writer = arg;
	struct sc_ep_attr attr = end_attr();
	struct end own;

	child_on_its_own();
	end_open(&own, &attr);
	CHILD_CHECK(!sc_peer_get(own.ep, writer->address, &own.peer));
	CHILD_CHECK(!end_recv(&own, NULL, into, SIZE, 1, SC_TAGGED));
	CHILD_CHECK(!end_send(&own, own.peer, from, 8, 0, SC_TAGGED));
	while (!sc_comp_ring_peek(&own.rx))
		sc_ep_poll(own.ep);
	CHILD_CHECK(sc_hold_has(own.peer));
	pattern_fill(from, 0, SIZE, 2);
	if (writer->writes) {
		CHILD_CHECK(!end_send(&own, own.peer, from, SIZE, 2, SC_TAGGED));
		CHILD_CHECK(!own.peer->bounce.loans.count);
	}
	child_tell(self, "");
	child_wait(self);
}

/* It is killed while it holds it, or once it has written its message, which is read all the same. */
static void test_writer_dies(void **state)
{
	(void)state;
	for (int writes = 0; writes < 2; writes++) {
		struct writer writer = { .writes = writes };
		struct child child;
		char line[CHILD_LINE];

		end_open(&pair[0], NULL);
		memcpy(writer.address, sc_ep_address(pair[0].ep), SC_ADDR_SIZE);
		assert_int_equal(end_recv(&pair[0], NULL, into, 8, 0, SC_TAGGED), 0);
		child_spawn(&child, writer_child, &writer);
		while (!sc_comp_ring_peek(&pair[0].rx))
			sc_ep_poll(pair[0].ep);
		/* with a reference, as it is looked at when it has gone */
		assert_int_equal(sc_peer_get(pair[0].ep, sc_peer_address(comp_take(&pair[0].rx).source),
					     &pair[0].peer),
				 0);
		send_only(0, SIZE, 1); /* connects */
		assert_int_equal(read(child.up, line, sizeof(line)), sizeof(line));
		child_kill(&child);
		if (writes) {
			memset(into, 0, SIZE);
			assert_int_equal(end_recv(&pair[0], NULL, into, SIZE, 2, SC_TAGGED), 0);
		}
		while (pair[0].peer->feed != SC_FEED_DONE)
			sc_ep_poll(pair[0].ep);
		if (writes) {
			expect_received(&pair[0], pair[0].peer, into, SIZE, 2);
			assert_true(pattern_is(into, 0, SIZE, 2));
		}
		assert_int_equal(lent_by(0), 0);
		assert_int_equal(pair[0].ep->pool.free_count, pair[0].ep->pool.have);
		assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
		end_close(&pair[0]);
	}
}

/* ---- who breaks the rules -------------------------------------------------------------------- */

enum bad {
	NOT_LENT,
	NOT_FOR_THAT,
	NO_BUFFER,
	TOO_LONG,
	ACKED,
	RETURNABLE,
	IN_PARTS,
	TWO_LINES,
	TWICE,
	UNLENT,
	BADS
};

static void bad_return(enum bad bad)
{
	struct sc_peer *peer = pair[1].peer;
	struct sc_abi_line *line;
	struct sc_abi_bounce record = { .tag = 5, .bufs = { held_by(1) } };
	uint32_t flags = SC_ABI_F_RETURNED | SC_ABI_F_TAGGED, lines = 1, size = SIZE;

	switch (bad) {
	case NOT_LENT:
		record.bufs[0] ^= 1;
		break;
	case NOT_FOR_THAT: /* of two */
		send_only(0, SIZE, 77);
		record.bufs[0] = pair[0].peer->bounce.loans.last;
		assert_int_not_equal(record.bufs[0], held_by(1));
		break;
	case NO_BUFFER:
		record.bufs[0] = SC_POOL_NONE;
		break;
	case TOO_LONG:
		size = MOST + 1;
		break;
	case ACKED:
		flags |= SC_ABI_F_ACK;
		break;
	case RETURNABLE: /* in turn */
		flags |= SC_ABI_F_RETURNABLE;
		break;
	case IN_PARTS:
		flags |= SC_ABI_F_PARTS;
		break;
	case TWO_LINES:
		lines = 2;
		break;
	case TWICE:
		talk(1, SIZE, 4);
		break;
	case UNLENT: /* there is none */
		talk(1, SIZE, 4);
		record.bufs[0] = SC_POOL_NONE;
		break;
	default:
		break;
	}
	line = sc_ring_reserve(&peer->tx);
	memcpy(line->bytes, &record, sizeof(record));
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_BOUNCE, flags, lines, size), 1);
}

/* pair[1] has been given up for what it wrote, and what it was lent comes back in the end. */
static void expect_given_up(void)
{
	struct sc_pool *pool = &pair[0].ep->pool;

	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
	assert_null(sc_comp_ring_peek(&pair[0].rx));
	assert_int_equal(pool->free_count + lent_by(0), pool->have);
	ends_settle(pair, 2);
	assert_int_equal(pool->free_count, pool->have);
	pair_close(pair);
}

static void test_bad_returns(void **state)
{
	(void)state;
	for (enum bad bad = 0; bad < BADS; bad++)
		for (int posted = 0; posted < 2; posted++) {
			open_holding(NULL);
			if (posted)
				assert_int_equal(end_recv(&pair[0], NULL, from, 8192, 5, SC_TAGGED), 0);
			bad_return(bad);
			(void)sc_ep_poll(pair[0].ep);
			if (bad == TWO_LINES) { /* longer than it need be, no more */
				assert_int_equal(pair[0].ep->counters.quarantines, 0);
				assert_int_equal(lent_by(0), 0);
				pair_close(pair);
				continue;
			}
			expect_given_up();
		}
}

enum bad_part {
	GOOD_PARTS,
	PART_NOT_LENT,
	PART_ORDER,
	PART_TWICE,
	PART_NO_BUFFER,
	PART_TOO_LONG,
	PART_BEGINS,
	PART_OF_ANOTHER,
	PART_FLAGS,
	PART_OFFSET,
	PART_EMPTY,
	PART_ALONE,
	BAD_PARTS
};

/* The i-th of three parts that pair[1] answers in the buffers of. */
static void bad_part(enum bad_part bad, uint32_t i, const uint16_t bufs[3])
{
	struct sc_abi_bounce piece = { .data = i * MOST, .bufs = { bufs[i] } };
	uint32_t size = MOST, flags = SC_ABI_F_RETURNED;

	switch (bad) {
	case PART_NOT_LENT:
		*piece.bufs = 7;
		break;
	case PART_ORDER:
		*piece.bufs = bufs[i - 1];
		break;
	case PART_TWICE:
		*piece.bufs = *bufs;
		break;
	case PART_NO_BUFFER:
		*piece.bufs = SC_POOL_NONE;
		break;
	case PART_TOO_LONG: /* the other as much shorter */
		size = i == 1 ? MOST + 1 : MOST - 1;
		piece.data += i - 1;
		break;
	case PART_BEGINS:
		put_raw(pair[1].peer, SC_ABI_BOUNCE, RETURNED_PARTS, 3 * MOST, &piece);
		return;
	case PART_OF_ANOTHER:
		piece.tag = 1;
		break;
	case PART_FLAGS:
		flags |= 1u << 5;
		break;
	case PART_OFFSET:
		piece.data--;
		break;
	case PART_EMPTY:
		size = 0;
		break;
	default:
		break;
	}
	put_raw(pair[1].peer, SC_ABI_PIECE, flags, size, &piece);
}

/* Of an answer in three parts one is not what it has to be. */
static void test_bad_parts(void **state)
{
	struct sc_ep_attr attr = eager_attr();

	(void)state;
	for (enum bad_part bad = 0; bad < BAD_PARTS; bad++)
		for (int posted = 0; posted < 2; posted++) {
			struct sc_abi_bounce record = { .tag = 5 };
			uint16_t bufs[3];

			pair_open(pair, &attr, WAY_CMA);
			talk(1, 8, 1);
			talk(0, 3 * MOST, 2);
			memcpy(bufs, pair[1].peer->hold.bufs, sizeof(bufs));
			if (posted)
				assert_int_equal(end_recv(&pair[0], NULL, into, 3 * MOST, 5, SC_TAGGED),
						 0);
			*record.bufs = bufs[bad == PART_ORDER];
			if (bad != PART_ALONE)
				put_raw(pair[1].peer, SC_ABI_BOUNCE, RETURNED_PARTS, 3 * MOST, &record);
			for (uint32_t i = 1; i < 3; i++)
				bad_part(bad, i, bufs);
			for (int polls = 0; polls < 3; polls++)
				(void)sc_ep_poll(pair[0].ep);
			if (bad == GOOD_PARTS) {
				assert_int_equal(pair[0].ep->counters.quarantines, 0);
				assert_int_equal(lent_by(0), 0);
				pair_close(pair);
				continue;
			}
			if (posted && bad != PART_ALONE)
				assert_int_equal(comp_take(&pair[0].rx).err, EPROTO);
			expect_given_up();
		}
}

/*
 * The copy of a part destroys the record of the part. Its buffer seems to be given back already, since the sender of
 * the part says that it has read all; the receiver looks at that word for room for an acknowledgement.
 */
static void test_taken_back(void **state)
{
	struct sc_ep_attr attr = eager_attr();
	struct sc_abi_bounce record = { .tag = 5, .op = 1ull << 32 };
	struct sc_peer *owner, *writer;
	struct iovec iov[2] = { { into, MOST } };
	uint16_t held;

	(void)state;
	pair_open(pair, &attr, WAY_CMA);
	talk(1, 8, 1);
	talk(0, 2 * MOST, 2);
	owner = pair[0].peer;
	writer = pair[1].peer;
	held = *writer->hold.bufs;
	while (!end_send(&pair[0], owner, from, 8, 50, SC_TAGGED | SC_SILENT))
		;
	/* the copy goes over the record; a peer, which shares the memory, could write there at that moment too */
	iov[1] = (struct iovec){
		&sc_ring_next(&owner->rx.at, sc_ring_first(&owner->rx))->ctl, 8
	};
	assert_int_equal(end_recvv(&pair[0], NULL, iov, 2, 5, 0, SC_TAGGED, into), 0);
	*record.bufs = 3;
	put_raw(writer, SC_ABI_BOUNCE, SC_ABI_F_TAGGED | SC_ABI_F_PARTS | SC_ABI_F_ACK, MOST + 8, &record);
	record = (struct sc_abi_bounce){ .data = MOST, .bufs = { held } };
	memset(sc_seg_buf(writer->seg, held), 0, 8);
	put_raw(writer, SC_ABI_PIECE, SC_ABI_F_RETURNED, 8, &record);
	sc_store_release_64(&owner->tx.consumer->head, owner->tx.tail);
	(void)sc_ep_poll(pair[0].ep);
	assert_int_equal(comp_take(&pair[0].rx).len, MOST + 8);
	assert_int_equal(owner->bounce.returnables.count, 0);
	(void)sc_record_may_lend(owner, pair[0].ep->pool.count, 0);
	assert_int_equal(lent_by(0), 0);
	assert_int_equal(pair[0].ep->pool.free_count, pair[0].ep->pool.have);
	pair_close(pair);
}

/* A message says how far its sender has read; then the sender's head goes back, or past the tail. */
static void test_bad_heads(void **state)
{
	(void)state;
	for (int past = 0; past < 2; past++) {
		struct sc_ring_tx *tx;

		open_holding(NULL);
		talk(1, SIZE, 2);
		tx = &pair[0].peer->tx;
		assert_int_equal(tx->head, tx->tail);
		assert_true(tx->said < tx->head);
		/* its own word is older, and that is right */
		for (int n = 0; n < 2; n++) {
			assert_int_equal(sc_ring_refresh(tx), 0);
			assert_int_equal(tx->head, tx->tail);
		}
		sc_store_release_64(&tx->consumer->head, past ? tx->tail + 1 : tx->said - 1);
		assert_int_equal(sc_ring_refresh(tx), -EPROTO);
		pair_close(pair);
	}
}

/* A peer lends a buffer with an impossible number to be answered in: the receiver does not hold it, and goes on. */
static void test_bad_lender(void **state)
{
	(void)state;
	for (int posted = 0; posted < 2; posted++) {
		struct sc_abi_bounce record = { .tag = 5, .bufs = { SC_POOL_NONE } };
		struct sc_abi_line *line;

		open_holding(NULL);
		if (posted)
			assert_int_equal(end_recv(&pair[1], NULL, from, 8192, 5, SC_TAGGED), 0);
		line = sc_ring_reserve(&pair[0].peer->tx);
		memcpy(line->bytes, &record, sizeof(record));
		sc_ring_commit(&pair[0].peer->tx,
			       sc_ring_ctl(SC_ABI_BOUNCE, SC_ABI_F_TAGGED | SC_ABI_F_RETURNABLE, 1, 0), 1);
		(void)sc_ep_poll(pair[1].ep);
		/* of no bytes, which need no buffer */
		assert_int_equal(pair[1].ep->counters.quarantines, 0);
		assert_false(sc_hold_has(pair[1].peer));
		talk(1, SIZE, 6);
		pair_close(pair);
	}
}

/* Nor does it hold a buffer of a peer that it has never written to, and that cannot know that it may. */
static void test_bad_lender_not_called(void **state)
{
	struct sc_abi_bounce record = { .tag = 5, .bufs = { 0 } };

	(void)state;
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	pair[0].peer = end_find(&pair[0], &pair[1]);
	pair[1].peer = end_find(&pair[1], &pair[0]);
	assert_int_equal(sc_peer_connect(pair[0].peer), 0);
	ends_settle(pair, 2);
	assert_int_equal(pair[1].peer->link, SC_LINK_NONE);
	assert_int_equal(end_recv(&pair[1], NULL, into, SIZE, 5, SC_TAGGED), 0);
	put_raw(pair[0].peer, SC_ABI_BOUNCE, SC_ABI_F_TAGGED | SC_ABI_F_RETURNABLE, SIZE, &record);
	(void)sc_ep_poll(pair[1].ep);
	expect_received(&pair[1], pair[1].peer, into, SIZE, 5);
	assert_false(sc_hold_has(pair[1].peer));
	assert_true(sc_list_empty(&pair[1].ep->holding));
	pair_close(pair);
}

/* Nor is one who says so of more of them than there may be. */
static void test_bad_lender_of_many(void **state)
{
	struct sc_ep_attr attr = cached_attr();
	struct sc_abi_bounce record = { .tag = 5, .bufs = { 0 } };

	(void)state;
	for (uint32_t many = SC_ABI_RETURN_BUFS; many < SC_ABI_RETURN_BUFS + 2; many++) {
		pair_open(pair, &attr, WAY_CMA);
		talk(1, 8, 1);
		for (uint32_t i = 0; i < many; i++)
			put_raw(pair[0].peer, SC_ABI_BOUNCE, SC_ABI_F_TAGGED | SC_ABI_F_RETURNABLE, 8,
				&record);
		(void)sc_ep_poll(pair[1].ep);
		assert_int_equal(pair[1].peer->hold.count, many == SC_ABI_RETURN_BUFS ? many : 0);
		assert_int_equal(sc_list_empty(&pair[1].ep->holding), many > SC_ABI_RETURN_BUFS);
		pair_close(pair);
	}
}

/* Several are held, each smaller than what goes the short way. */
static void test_small_buffers(void **state)
{
	struct sc_abi_bounce record = { .tag = 5 };
	struct sc_ep_attr attr = eager_attr();
	enum { HELD = 4 };

	(void)state;
	attr.config.buf_size = SIZE / 3;
	end_open(&pair[0], &attr);
	end_open(&pair[1], NULL);
	pair_connect(pair, WAY_CMA);
	talk(1, 8, 1);
	assert_true(sc_record_may_lend(pair[0].peer, HELD, 0));
	for (uint32_t i = 0; i < HELD; i++) {
		*record.bufs = sc_pool_lend(&pair[0].ep->pool, &pair[0].peer->bounce.loans,
					    pair[0].peer->tx.tail);
		sc_hold_returnables_add(pair[0].peer, *record.bufs);
		put_raw(pair[0].peer, SC_ABI_BOUNCE, SC_ABI_F_TAGGED | SC_ABI_F_RETURNABLE, 8, &record);
	}
	(void)sc_ep_poll(pair[1].ep);
	assert_int_equal(pair[1].peer->hold.count, HELD);
	send_only(1, SIZE, 6);
	assert_int_equal(lent_by(1), 0);
	expect_waiting(&pair[0], SIZE, 6);
	assert_int_equal(lent_by(0), 0);
	pair_close(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_turn),
		cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_ordered_owner),
		cmocka_unit_test(test_sizes_of_buffers),
		cmocka_unit_test(test_to_itself),
		cmocka_unit_test(test_kinds_of_receive),
		cmocka_unit_test(test_shared_queue),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_parts_in_turn),
		cmocka_unit_test(test_answer_of_another_size),
		cmocka_unit_test(test_vector),
		cmocka_unit_test(test_between_parts),
		cmocka_unit_test(test_other_sizes),
		cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_not_to_be_held),
		cmocka_unit_test(test_held_however_filled),
		cmocka_unit_test(test_parts_not_to_be_held),
		cmocka_unit_test(test_not_come),
		cmocka_unit_test(test_parts_in_a_full_ring),
		cmocka_unit_test(test_not_writable),
		cmocka_unit_test(test_not_writable_again),
		cmocka_unit_test(test_trial),
		cmocka_unit_test(test_head_is_ahead),
		cmocka_unit_test(test_head_is_ahead_of_parts),
		cmocka_unit_test(test_head_is_ahead_of_a_part),
		cmocka_unit_test(test_others_come_back),
		cmocka_unit_test(test_writer_closes),
		cmocka_unit_test(test_owner_closes),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_given_up_with_parts),
		cmocka_unit_test(test_writer_dies),
		cmocka_unit_test(test_bad_returns),
		cmocka_unit_test(test_bad_parts),
		cmocka_unit_test(test_taken_back),
		cmocka_unit_test(test_bad_heads),
		cmocka_unit_test(test_bad_lender),
		cmocka_unit_test(test_bad_lender_not_called),
		cmocka_unit_test(test_bad_lender_of_many),
		cmocka_unit_test(test_small_buffers),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
