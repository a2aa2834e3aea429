/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_forget: peers that have gone are forgotten as soon as nothing refers to them, and not before. Endpoints of this
 * process: visitors come to one of them, the host, send and leave.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core_pair.h"
#include "link/peer.h"
#include "link/connect.h"
#include "link/rxq.h"

static struct end host;
static char into[64], from[64];

/* This test has `references` references to the peer `kept`, as an address vector has. */
static struct sc_peer *kept;
static uint32_t references;

static uint32_t release(void *arg, struct sc_peer *peer)
{
	uint32_t count = peer == kept ? references : 0;

	assert_ptr_equal(arg, &kept);
	if (count)
		references = 0;
	return count;
}

static int setup(void **state)
{
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.release = release;
	attr.release_arg = &kept;
	end_open(&host, &attr);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kept = NULL;
	end_close(&host);
	return 0;
}

static size_t count(void)
{
	return host.ep->peer_count;
}

static void assert_empty(void)
{
	ends_settle(&host, 1);
	assert_int_equal(count(), 0);
	assert_int_equal(host.ep->rxq->source_count, 0);
}

/* A visitor comes, sends messages of that tag, and leaves. Its address. */
static void visit(int messages, uint64_t tag, char address[SC_ADDR_SIZE])
{
	struct end ends[2] = { host };
	struct sc_peer *peer;

	end_open(&ends[1], NULL);
	memcpy(address, sc_ep_address(ends[1].ep), SC_ADDR_SIZE);
	peer = end_find(&ends[1], &host);
	assert_int_equal(sc_peer_connect(peer), 0);
	for (int i = 0; i < messages; i++)
		assert_int_equal(end_send(&ends[1], peer, from, 8, tag, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	end_close(&ends[1]);
	ends_settle(&host, 1);
}

static void receive(uint64_t tag)
{
	assert_int_equal(end_recv(&host, NULL, into, 8, tag, SC_TAGGED), 0);
}

static void take(void)
{
	assert_non_null(sc_comp_ring_peek(&host.rx));
	sc_comp_ring_release(&host.rx);
}

static void test_visitors(void **state)
{
	char address[SC_ADDR_SIZE];

	(void)state;
	for (int i = 0; i < 300; i++) {
		receive(1);
		visit(1, 1, address);
		take();
		ends_settle(&host, 1);
		assert_true(count() <= 1);
	}
	visit(0, 1, address); /* a pass comes with it */
	assert_empty();
	assert_int_equal(host.ep->counters.departures, 301);
}

/* A message that waits names its sender, then its completion does. */
static void test_unexpected(void **state)
{
	char address[SC_ADDR_SIZE];
	struct sc_comp comp;

	(void)state;
	visit(2, 1, address);
	assert_int_equal(count(), 1);
	receive(1);
	receive(1);
	ends_settle(&host, 1);
	comp = *sc_comp_ring_peek(&host.rx);
	assert_string_equal(sc_peer_address(comp.source), address);
	take();
	take();
	visit(0, 1, address);
	assert_empty();
}

/* One that is discarded; and one that is claimed, until it is received. */
static void test_peeked(void **state)
{
	struct sc_recv peek = { .tag = 1, .flags = SC_TAGGED | SC_RECV_PEEK | SC_RECV_DISCARD };
	char address[SC_ADDR_SIZE];

	(void)state;
	visit(1, 1, address);
	assert_int_equal(count(), 1);
	assert_int_equal(sc_rx_recv(host.ep, &peek), 0);
	take();
	visit(1, 1, address);
	peek.flags = SC_TAGGED | SC_RECV_PEEK | SC_RECV_CLAIM;
	peek.context = into;
	assert_int_equal(sc_rx_recv(host.ep, &peek), 0);
	take();
	ends_settle(&host, 1);
	assert_int_equal(count(), 1);
	peek.flags = SC_TAGGED | SC_RECV_CLAIM;
	assert_int_equal(sc_rx_recv(host.ep, &peek), 0);
	assert_string_equal(sc_peer_address(sc_comp_ring_peek(&host.rx)->source), address);
	take();
	visit(0, 1, address);
	assert_empty();
}

/* Completions that nobody reads keep their senders, and with these what must not be walked for each that leaves. */
static void test_unread(void **state)
{
	char addresses[20][SC_ADDR_SIZE], other[SC_ADDR_SIZE];

	(void)state;
	for (int i = 0; i < 20; i++) {
		receive(1);
		visit(1, 1, addresses[i]);
	}
	for (int i = 0; i < 100; i++)
		visit(0, 1, other);
	assert_true(count() >= 20 && count() < 30);
	for (int i = 0; i < 20; i++) {
		assert_string_equal(sc_peer_address(sc_comp_ring_peek(&host.rx)->source), addresses[i]);
		take();
	}
	for (int i = 0; i < 10; i++)
		visit(0, 1, other);
	assert_empty();
}

static void test_users(void **state)
{
	struct sc_peer *peer, *again;
	char address[SC_ADDR_SIZE];

	(void)state;
	receive(1);
	visit(1, 1, address);
	assert_int_equal(sc_peer_get(host.ep, address, &peer), 0); /* the completion is there */
	take();
	ends_settle(&host, 1);
	assert_int_equal(sc_peer_get(host.ep, address, &again), 0);
	assert_ptr_equal(peer, again);
	assert_int_equal(end_send(&host, peer, from, 8, 1, SC_TAGGED), -ECONNRESET);
	sc_peer_put(again);
	assert_int_equal(count(), 1);
	sc_peer_put(peer);
	assert_empty();
}

/* Asked for, and given up again, without having been connected to: also one that is there. */
static void test_never_met(void **state)
{
	struct end ends[2] = { host };
	struct sc_peer *peer;

	(void)state;
	end_open(&ends[1], NULL);
	peer = end_find(&host, &ends[1]);
	assert_int_equal(count(), 1);
	sc_peer_put(peer);
	assert_int_equal(count(), 0);
	/* while it is connected it stays */
	peer = end_find(&host, &ends[1]);
	assert_int_equal(end_send(&host, peer, from, 8, 1, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	sc_peer_put(peer);
	ends_settle(ends, 2);
	assert_int_equal(count(), 1);
	end_close(&ends[1]);
	assert_empty();
}

/* The caller has references to a peer when that leaves. */
static struct sc_peer *visitor_leaves(uint32_t count, uint32_t released)
{
	struct end ends[2] = { host };
	struct sc_peer *peer;

	end_open(&ends[1], NULL);
	peer = end_find(&host, &ends[1]);
	for (uint32_t i = 1; i < count; i++)
		assert_ptr_equal(end_find(&host, &ends[1]), peer);
	assert_int_equal(end_send(&host, peer, from, 8, 1, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	kept = peer;
	references = released;
	end_close(&ends[1]);
	ends_settle(&host, 1);
	return peer;
}

/* The caller gives up its references to one that has gone, all or some; to one that is there it keeps them. */
static void test_released(void **state)
{
	struct end ends[2] = { host };
	struct sc_peer *peer;

	(void)state;
	visitor_leaves(2, 2);
	assert_int_equal(references, 0);
	assert_empty();
	peer = visitor_leaves(2, 1);
	assert_int_equal(references, 0);
	assert_int_equal(count(), 1);
	assert_int_equal(end_recv(&host, peer, into, 8, 1, SC_TAGGED), -ECONNRESET);
	sc_peer_put(peer);
	assert_empty();
	end_open(&ends[1], NULL);
	kept = end_find(&host, &ends[1]);
	references = 1;
	sc_peer_reconsider(kept);
	ends_settle(ends, 2);
	assert_int_equal(references, 1);
	assert_int_equal(sc_peer_connect(kept), 0);
	ends_settle(ends, 2);
	sc_peer_reconsider(kept);
	ends_settle(ends, 2);
	assert_int_equal(references, 1);
	end_close(&ends[1]);
	assert_empty();
}

/* A living peer that has given up the connection: the caller keeps its reference, and the peer stays lost. */
static void test_lost_and_living(void **state)
{
	struct end ends[2] = { host };

	(void)state;
	end_open(&ends[1], NULL);
	kept = end_find(&host, &ends[1]);
	references = 1;
	assert_int_equal(end_send(&host, kept, from, 8, 1, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	sc_peer_answer_slot(ends[1].ep, kept->out_slot, SC_ABI_BROKEN, -EPROTO);
	sc_peer_bump(host.ep->seg, SC_ABI_CHANGED);
	ends_settle(&host, 1);
	assert_int_equal(kept->link, SC_LINK_DOWN);
	sc_peer_reconsider(kept);
	ends_settle(&host, 1);
	assert_int_equal(references, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(end_send(&host, kept, from, 8, 1, SC_TAGGED | SC_SILENT), -ECONNRESET);
		ends_settle(ends, 2);
	}
	sc_peer_put(kept);
	end_close(&ends[1]);
	assert_empty();
}

/* An operation with a forgotten peer is refused, and leaves nothing of the peer. */
static void test_asked_for_in_vain(void **state)
{
	char address[SC_ADDR_SIZE];

	(void)state;
	visit(0, 1, address);
	assert_empty();
	assert_int_equal(sc_peer_get(host.ep, address, &kept), 0);
	references = 1;
	assert_int_equal(end_send(&host, kept, from, 8, 1, SC_TAGGED), -ECONNRESET);
	ends_settle(&host, 1);
	assert_int_equal(references, 0);
	assert_empty();
}

/* A peer that is freed loses the word of the caller; sc_peers_unset_users() takes back the words of all peers. */
static void test_words(void **state)
{
	struct end ends[2] = { host };
	struct sc_peer *peer;

	(void)state;
	end_open(&ends[1], NULL);
	kept = peer = end_find(&host, &ends[1]);
	references = 1;
	sc_peer_set_user(peer, 1);
	sc_peer_set_user(peer, 2);
	assert_int_equal(sc_peer_user(peer), 2);
	sc_peers_unset_users(host.ep);
	assert_true(sc_peer_user(peer) == UINT64_MAX);
	sc_peers_unset_users(host.ep);
	sc_peer_set_user(peer, 3);
	assert_int_equal(sc_peer_connect(peer), 0);
	ends_settle(ends, 2);
	end_close(&ends[1]);
	assert_empty();
	sc_peers_unset_users(host.ep);
}

/*
 * A receive from a sender that is asked for no more: its message still comes. `full`: the sender has no place for the
 * connection that the receive makes.
 */
static void posted(bool full)
{
	struct end ends[2] = { host }, other;
	struct sc_ep_attr attr = end_attr();
	char address[SC_ADDR_SIZE];
	struct sc_peer *peer;

	attr.config.slots = full ? 1 : attr.config.slots;
	end_open(&ends[1], &attr);
	if (full) {
		end_open(&other, NULL);
		assert_int_equal(sc_peer_connect(end_find(&other, &ends[1])), 0);
	}
	peer = end_find(&host, &ends[1]);
	assert_int_equal(end_recv(&host, peer, into, 8, 1, SC_TAGGED), 0);
	assert_int_equal(end_recv(&host, peer, from, 8, 2, SC_TAGGED), 0);
	sc_peer_put(peer);
	assert_int_equal(count(), 1);
	assert_int_equal(end_send(&ends[1], end_find(&ends[1], &host), from, 8, 1, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	assert_int_equal(sc_comp_ring_peek(&host.rx)->err, 0);
	take();
	end_close(&ends[1]);
	ends_settle(&host, 1);
	assert_int_equal(sc_comp_ring_peek(&host.rx)->err, ECONNRESET);
	take();
	if (full)
		end_close(&other);
	visit(0, 1, address);
	assert_empty();
}

static void test_posted(void **state)
{
	(void)state;
	posted(false);
	posted(true);
}

/* A receive from a full sender that this side has given up: the message comes once the sender has space. */
static void test_posted_for_one_given_up(void **state)
{
	struct end ends[2] = { host }, other;
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer, *there;
	char address[SC_ADDR_SIZE];

	(void)state;
	attr.config.slots = 1;
	end_open(&ends[1], &attr);
	end_open(&other, NULL);
	assert_int_equal(sc_peer_connect(end_find(&other, &ends[1])), 0);
	there = end_find(&ends[1], &host);
	receive(1);
	assert_int_equal(end_send(&ends[1], there, from, 8, 1, SC_TAGGED | SC_SEND_DELIVERY | SC_SILENT),
			 0);
	ends_settle(&host, 1);
	take();
	peer = end_find(&host, &ends[1]);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	assert_int_equal(end_recv(&host, peer, into, 8, 2, SC_TAGGED), 0);
	sc_peer_put(peer);
	ends_settle(ends, 2);
	for (uint32_t i = 0; i < 3; i++)
		visit(0, 1, address);
	end_close(&other);
	ends_settle(ends, 2);
	assert_int_equal(end_send(&ends[1], there, from, 8, 2, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	assert_non_null(sc_comp_ring_peek(&host.rx));
	assert_int_equal(sc_comp_ring_peek(&host.rx)->err, 0);
	take();
	end_close(&ends[1]);
	assert_empty();
}

/* The last ones that have come are known by their addresses: nobody waits for them. */
static void test_heard(void **state)
{
	char first[SC_ADDR_SIZE], second[SC_ADDR_SIZE], address[SC_ADDR_SIZE];
	struct sc_peer *peer;

	(void)state;
	visit(0, 1, first);
	visit(0, 1, second);
	assert_empty();
	assert_false(sc_peers_have_heard(host.ep, sc_ep_address(host.ep)));
	assert_true(sc_peers_have_heard(host.ep, first));
	assert_int_equal(sc_peer_get(host.ep, first, &peer), 0);
	assert_int_equal(end_recv(&host, peer, into, 8, 1, SC_TAGGED), -ECONNRESET);
	assert_int_equal(end_send(&host, peer, from, 8, 1, SC_TAGGED), -ECONNRESET);
	sc_peer_put(peer);
	assert_empty();
	/* one that is asked for again and again does not push others out */
	for (int i = 0; i < SC_DEPARTED_MAX; i++) {
		assert_int_equal(sc_peer_get(host.ep, second, &peer), 0);
		sc_peer_put(peer);
	}
	for (int i = 0; i < SC_DEPARTED_MAX - 2; i++)
		visit(0, 1, address);
	assert_true(sc_peers_have_heard(host.ep, first));
	visit(0, 1, address);
	assert_false(sc_peers_have_heard(host.ep, first));
}

/* An index of a name that is opened again under the same address is found, though the last one is forgotten. */
static void test_opened_again(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end ends[2] = { host };
	char address[SC_ADDR_SIZE];
	struct sc_ep_name name;
	struct sc_peer *peer;

	(void)state;
	assert_int_equal(sc_ep_name_init(&name), 0);
	attr.name = &name;
	end_open(&ends[1], &attr);
	memcpy(address, sc_ep_address(ends[1].ep), SC_ADDR_SIZE);
	assert_int_equal(end_send(&ends[1], end_find(&ends[1], &host), from, 8, 1, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	receive(1);
	ends_settle(ends, 2);
	take();
	end_close(&ends[1]);
	assert_empty();
	end_open(&ends[1], &attr);
	assert_string_equal(sc_ep_address(ends[1].ep), address);
	peer = end_find(&host, &ends[1]);
	assert_int_equal(end_recv(&ends[1], NULL, into, 8, 1, SC_TAGGED), 0);
	assert_int_equal(end_send(&host, peer, from, 8, 1, SC_TAGGED | SC_SILENT), 0);
	ends_settle(ends, 2);
	assert_non_null(sc_comp_ring_peek(&ends[1].rx));
	sc_peer_put(peer);
	end_close(&ends[1]);
	assert_empty();
	/* the next one has gone, too, when this one looks, and has left a message */
	assert_int_equal(sc_peer_get(host.ep, address, &peer), 0);
	end_open(&ends[1], &attr);
	assert_int_equal(end_send(&ends[1], end_find(&ends[1], &host), from, 8, 1, SC_TAGGED | SC_SILENT),
			 0);
	end_close(&ends[1]);
	receive(1);
	ends_settle(&host, 1);
	assert_int_equal(sc_comp_ring_peek(&host.rx)->err, 0);
	take();
	sc_peer_put(peer);
	visit(0, 1, address);
	assert_empty();
}

/* A peer that has come, and to which nothing has been sent, stays attached though nobody asks for it any more. */
static void test_comes_unasked(void **state)
{
	struct end ends[2] = { host };
	struct sc_peer *peer;

	(void)state;
	end_open(&ends[1], NULL);
	assert_int_equal(end_send(&ends[1], end_find(&ends[1], &host), from, 8, 1, SC_TAGGED | SC_SILENT),
			 0);
	receive(1);
	ends_settle(ends, 2);
	take();
	peer = end_find(&host, &ends[1]);
	sc_peer_put(peer);
	assert_non_null(peer->seg);
	assert_int_equal(end_send(&ends[1], end_find(&ends[1], &host), from, 64, 2, SC_TAGGED | SC_SILENT),
			 0);
	receive(2);
	ends_settle(ends, 2);
	take();
	end_close(&ends[1]);
	assert_empty();
}

static void address_of_nobody(const char *index, char address[SC_ADDR_SIZE])
{
	memcpy(address, sc_ep_address(host.ep), SC_ADDR_SIZE);
	memcpy(address + SC_ADDR_SIZE - 5, index, 4);
}

/* A peer of which anything is in a list, or under way, is not freed. */
static void test_under_way(void **state)
{
	char address[SC_ADDR_SIZE];
	struct sc_list other;
	struct sc_peer *peer;

	(void)state;
	address_of_nobody("7777", address);
	assert_int_equal(sc_peer_find_or_make(host.ep, address, &peer), 0);
	{
		struct sc_list *const lists[] = {
			&peer->ops,
			&peer->order.turns,
			&peer->work[SC_WORK_REPLYING],
			&peer->bounce.borrower,
			&peer->hold.of_ep,
			&peer->rma.queued,
			&peer->rma.waiting,
			&peer->work[SC_WORK_RMA_BUSY],
			&peer->batch.ops,
			&peer->work[SC_WORK_BATCHING],
			&peer->work[SC_WORK_DELEGATED],
			&peer->assist.ops,
			&peer->work[SC_WORK_ASKING],
			&peer->assist.xfer.of_ep,
			&peer->target.ops,
			&peer->work[SC_WORK_SERVING],
			&peer->recv.transfers,
			&peer->recv.copying,
			&peer->work[SC_WORK_PULLING],
			&peer->recv.fenced,
			&peer->work[SC_WORK_UNANSWERED],
			&peer->work[SC_WORK_ENDING],
			&peer->recv.waiting,
		};

		for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
			assert_true(sc_peer_is_free(peer));
			sc_list_init(&other);
			sc_list_append(lists[i], &other);
			assert_false(sc_peer_is_free(peer));
			sc_list_remove(&other);
		}
	}
	assert_true(sc_peer_is_free(peer));
	peer->recv.arriving = (void *)peer;
	assert_false(sc_peer_is_free(peer));
	peer->recv.arriving = NULL;
	peer->recv.arriving_op = (void *)peer;
	assert_false(sc_peer_is_free(peer));
	peer->recv.arriving_op = NULL;
	peer->rma.pending = 1;
	assert_false(sc_peer_is_free(peer));
	peer->rma.pending = 0;
	sc_peer_reconsider(peer);
	assert_empty();
}

/*
 * A pass finds a peer that nobody asked for any more when it was put there, but that has been asked for again since, and
 * with which something is under way: it goes back to those that reviews look at, and leaves these later.
 */
static void test_asked_for_again(void **state)
{
	char address[SC_ADDR_SIZE], nobody[2][SC_ADDR_SIZE];
	static char bufs[40][8];
	struct sc_peer *peer;

	(void)state;
	address_of_nobody("8888", nobody[0]);
	address_of_nobody("7777", nobody[1]);
	/* the queue is long, and a completion keeps one that has gone: a pass waits for more than one peer */
	for (uint64_t i = 0; i < 40; i++)
		assert_int_equal(end_recv(&host, NULL, bufs[i], 8, 100 + i, SC_TAGGED), 0);
	receive(1);
	visit(1, 1, address);
	assert_int_equal(host.ep->leaving_fresh, 0);
	assert_true(host.ep->leaving_step > 1);

	assert_int_equal(sc_peer_get(host.ep, nobody[0], &peer), 0);
	sc_peer_put(peer);
	assert_int_equal(host.ep->leaving_fresh, 1);
	assert_int_equal(sc_peer_get(host.ep, nobody[0], &peer), 0);
	assert_int_equal(end_send(&host, peer, from, 8, 1, SC_TAGGED), -ECONNREFUSED);
	assert_false(sc_list_empty(&peer->work[SC_WORK_ENDING]));
	assert_false(peer->present);
	while (host.ep->leaving_fresh) { /* until there is a pass */
		struct sc_peer *second;

		assert_int_equal(sc_peer_get(host.ep, nobody[1], &second), 0);
		sc_peer_put(second);
	}
	assert_true(peer->present);
	ends_settle(&host, 1);
	assert_false(peer->present);
	assert_int_equal(end_send(&host, peer, from, 8, 1, SC_TAGGED), -ECONNREFUSED);
	sc_peer_put(peer);
	take();
	for (int i = 0; i < 40; i++) {
		assert_int_equal(sc_rx_cancel(host.ep, bufs[i]), 0);
		take();
	}
	for (uint32_t i = 0; i <= host.ep->leaving_step; i++) /* until there is a pass */
		visit(0, 1, address);
	assert_empty();
}

/*
 * Of the indices of a name the first goes, then the second: the first is forgotten, the second says what became of the
 * last one that went, and what the third sends comes to a receive from it.
 */
static void test_some_indices_of_a_name(void **state)
{
	struct end ends[4] = { host };
	struct sc_ep_attr attr = end_attr();
	struct sc_ep_name name;
	struct sc_peer *peer;

	(void)state;
	assert_int_equal(sc_ep_name_init(&name), 0);
	attr.name = &name;
	for (uint16_t i = 1; i < 4; i++) {
		attr.index = i;
		end_open(&ends[i], &attr);
		assert_int_equal(sc_peer_connect(end_find(&ends[i], &host)), 0);
	}
	ends_settle(ends, 4);
	assert_int_equal(count(), 3);
	for (int i = 1; i < 3; i++) {
		end_close(&ends[i]);
		ends_settle(&host, 1);
		assert_int_equal(count(), i == 1 ? 3 : 2);
		assert_int_equal(host.ep->rxq->source_count, 1);
	}
	peer = end_find(&host, &ends[3]);
	assert_int_equal(end_recv(&host, peer, into, 8, 1, SC_TAGGED), 0);
	assert_int_equal(end_send(&ends[3], end_find(&ends[3], &host), from, 8, 1, SC_TAGGED | SC_SILENT),
			 0);
	ends_settle(ends, 4);
	assert_ptr_equal(sc_comp_ring_peek(&host.rx)->source, peer);
	take();
	sc_peer_put(peer);
	end_close(&ends[3]);
	assert_empty();
}

/* Of a name one index has come and gone; another one that is asked for for the first time is not taken for it. */
static void test_heard_by_another_index(void **state)
{
	struct end ends[2] = { host };
	struct sc_ep_attr attr = end_attr();
	char other[SC_ADDR_SIZE];
	struct sc_ep_name name;
	struct sc_peer *peer;

	(void)state;
	assert_int_equal(sc_ep_name_init(&name), 0);
	attr.name = &name;
	end_open(&ends[1], &attr);
	assert_int_equal(sc_addr_context(sc_ep_address(ends[1].ep), 1, other), 0);
	assert_int_equal(sc_peer_connect(end_find(&ends[1], &host)), 0);
	ends_settle(ends, 2);
	end_close(&ends[1]);
	assert_empty();
	assert_true(sc_peers_have_heard(host.ep, other)); /* its source */
	assert_int_equal(sc_peer_get(host.ep, other, &peer), 0);
	assert_int_equal(peer->link, SC_LINK_NONE);
	sc_peer_put(peer);
	assert_empty();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_visitors),
		TEST(test_unexpected),
		TEST(test_peeked),
		TEST(test_unread),
		TEST(test_users),
		TEST(test_never_met),
		TEST(test_released),
		TEST(test_lost_and_living),
		TEST(test_asked_for_in_vain),
		TEST(test_words),
		TEST(test_posted),
		TEST(test_posted_for_one_given_up),
		TEST(test_heard),
		TEST(test_opened_again),
		TEST(test_comes_unasked),
		TEST(test_under_way),
		TEST(test_asked_for_again),
		TEST(test_some_indices_of_a_name),
		TEST(test_heard_by_another_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
