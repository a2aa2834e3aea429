/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rxq.c: receive queues of several endpoints, names of several endpoints, and sources.
 *
 * ends[0] sends to ends[1] and ends[2], which share a queue; each has a completion queue of its own. A message
 * larger than eager_max is a transfer, which can be caught under way.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "os/addr.h"
#include "child.h"
#include "core_pair.h"
#include "link/rxq.h"

#define ENDS 3
#define BIG ((size_t)12 << 20)

struct crowd {
	struct sc_rxq *rxq;
	struct end ends[ENDS];
	struct sc_peer *to[ENDS];   /* of ends[0] */
	struct sc_peer *from[ENDS]; /* ends[0], as they know it */
};

static void crowd_open(struct crowd *crowd)
{
	struct sc_ep_attr attr = end_attr();

	memset(crowd, 0, sizeof(*crowd));
	assert_int_equal(sc_rxq_create(64, &crowd->rxq), 0);
	end_open(&crowd->ends[0], NULL);
	attr.rxq = crowd->rxq;
	for (int i = 1; i < ENDS; i++) {
		end_open(&crowd->ends[i], &attr);
		assert_ptr_equal(sc_ep_rxq(crowd->ends[i].ep), crowd->rxq);
		crowd->to[i] = end_find(&crowd->ends[0], &crowd->ends[i]);
		crowd->from[i] = end_find(&crowd->ends[i], &crowd->ends[0]);
	}
}

static void crowd_close(struct crowd *crowd)
{
	for (int i = 0; i < ENDS; i++)
		end_close(&crowd->ends[i]);
	sc_rxq_destroy(crowd->rxq);
}

static void settle(struct crowd *crowd)
{
	ends_settle(crowd->ends, ENDS);
}

static void send_from(struct sc_ep *ep, struct sc_peer *peer, const void *buf, size_t len)
{
	struct iovec iov = { (void *)buf, len };
	struct sc_send send = { .iov = &iov, .iov_count = 1, .context = (void *)buf };

	assert_int_equal(sc_tx_send(ep, peer, &send), 0);
}

static int receive(struct sc_rxq *rxq, struct sc_peer *source, void *buf, size_t len)
{
	struct iovec iov = { buf, len };
	struct sc_recv recv = { .iov = &iov, .iov_count = 1, .source = source, .context = buf };

	return sc_rxq_recv(rxq, &recv);
}

/* The next completion of receives there, which is for that buffer. */
static struct sc_comp received(struct end *end, const void *buf)
{
	struct sc_comp *comp = sc_comp_ring_peek(&end->rx), copy;

	assert_non_null(comp);
	copy = *comp;
	sc_comp_ring_release(&end->rx);
	assert_ptr_equal(copy.context, buf);
	return copy;
}

static void nothing(struct end *end)
{
	assert_null(sc_comp_ring_peek(&end->rx));
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_name(void **state)
{
	struct sc_ep_attr attr = end_attr();
	char found[SC_ADDR_SIZE], wanted[SC_ADDR_SIZE];
	struct sc_ep_name name, other;
	struct end ends[2];
	struct sc_ep *again;

	(void)state;
	assert_int_equal(sc_ep_name_init(&name), 0);
	assert_int_equal(sc_ep_name_init(&other), 0);
	assert_memory_not_equal(name.nonce, other.nonce, sizeof(name.nonce));
	attr.name = &name;
	assert_int_equal(sc_ep_name_address(&name, wanted), 0);
	end_open(&ends[0], &attr);
	assert_string_equal(wanted, sc_ep_address(ends[0].ep));
	attr.index = 5;
	end_open(&ends[1], &attr);
	assert_memory_equal(sc_ep_address(ends[0].ep), sc_ep_address(ends[1].ep), SC_ADDR_STEM);
	assert_string_not_equal(sc_ep_address(ends[0].ep), sc_ep_address(ends[1].ep));
	assert_int_equal(sc_addr_context(sc_ep_address(ends[0].ep), 5, wanted), 0);
	assert_string_equal(wanted, sc_ep_address(ends[1].ep));
	assert_int_equal(sc_addr_resolve(wanted, found), 0);
	assert_int_equal(sc_addr_context(wanted, (uint16_t)-5, wanted), 0);
	assert_string_equal(wanted, sc_ep_address(ends[0].ep));
	assert_int_equal(sc_addr_first(sc_ep_address(ends[1].ep), wanted), 0);
	assert_string_equal(wanted, sc_ep_address(ends[0].ep));
	assert_int_equal(sc_addr_context("fi_shmcma://service", 1, wanted), -EINVAL);
	assert_int_equal(sc_addr_first("fi_shmcma://service", wanted), -EINVAL);
	/* each index once */
	assert_int_equal(sc_ep_create(&attr, &again), -EADDRINUSE);
	/* without a name of its own none is like another */
	attr.name = NULL;
	end_close(&ends[1]);
	end_open(&ends[1], &attr);
	assert_memory_not_equal(sc_ep_address(ends[0].ep), sc_ep_address(ends[1].ep), SC_ADDR_STEM);
	end_close(&ends[0]);
	end_close(&ends[1]);
}

/* ---- addresses that are announced ------------------------------------------------------------- */

static int try_send(struct sc_ep *ep, struct sc_peer *peer)
{
	static char byte = 'a';
	struct iovec iov = { &byte, 1 };

	return sc_tx_send(ep, peer, &(struct sc_send){ .iov = &iov, .iov_count = 1, .context = &byte });
}

/* Operations to an announced address, and receives from it, come again until its endpoint is there. */
static void test_announced(void **state)
{
	struct sc_ep_attr attr = end_attr();
	char address[SC_ADDR_SIZE], found[SC_ADDR_SIZE], in = 0;
	struct sc_service *announced;
	struct sc_ep_name name;
	struct sc_peer *peer;
	struct end ends[2];

	(void)state;
	assert_int_equal(sc_ep_name_init(&name), 0);
	assert_int_equal(sc_ep_name_address(&name, address), 0);
	assert_int_equal(sc_addr_resolve(address, found), -ECONNREFUSED);
	assert_int_equal(sc_service_announce(address, &announced), 0);
	assert_int_equal(sc_addr_resolve(address, found), 0);
	assert_string_equal(found, address);
	end_open(&ends[0], NULL);
	assert_int_equal(sc_peer_get(ends[0].ep, address, &peer), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(try_send(ends[0].ep, peer), -EAGAIN);
		assert_int_equal(receive(ends[0].ep->rxq, peer, &in, 1), -EAGAIN);
	}
	attr.name = &name;
	end_open(&ends[1], &attr);
	assert_int_equal(receive(ends[0].ep->rxq, peer, &in, 1), 0);
	assert_int_equal(try_send(ends[0].ep, peer), 0);
	ends_settle(ends, 2);
	assert_int_equal(peer->link, SC_LINK_UP);
	sc_service_destroy(announced);
	end_close(&ends[1]);
	assert_int_equal(sc_addr_resolve(address, found), -ECONNREFUSED);
	end_close(&ends[0]);
}

static void announce(struct child *self, void *arg)
{
	char address[SC_ADDR_SIZE];
	struct sc_service *announced;
	struct sc_ep_name name;

	(void)arg;
	CHILD_CHECK(!sc_ep_name_init(&name));
	CHILD_CHECK(!sc_ep_name_address(&name, address));
	CHILD_CHECK(!sc_service_announce(address, &announced));
	child_tell(self, address);
	child_wait(self);
}

/* A process that dies before its endpoint is there is told, for both directions. */
static void test_announced_dead(void **state)
{
	char found[SC_ADDR_SIZE], in;
	struct sc_peer *peer;
	struct child child;
	struct end end;

	(void)state;
	assert_true(child_start(&child, announce, NULL));
	assert_int_equal(sc_addr_resolve(child.line, found), 0);
	end_open(&end, NULL);
	assert_int_equal(sc_peer_get(end.ep, child.line, &peer), 0);
	assert_int_equal(try_send(end.ep, peer), -EAGAIN);
	assert_int_equal(receive(end.ep->rxq, peer, &in, 1), -EAGAIN);
	child_kill(&child);
	assert_int_equal(sc_addr_resolve(child.line, found), -ECONNREFUSED);
	assert_int_equal(receive(end.ep->rxq, peer, &in, 1), -ECONNREFUSED);
	assert_int_equal(try_send(end.ep, peer), -ECONNREFUSED);
	end_close(&end);
}

/* ---- sources --------------------------------------------------------------------------------- */

/* One for all addresses of a name, and it stays where it is however many there are. */
static void test_sources(void **state)
{
	struct sc_addr parts = { .host = 1, .pid = 2 };
	struct sc_source *sources[300];
	char addr[SC_ADDR_SIZE], addrs[300][SC_ADDR_SIZE];
	struct sc_rxq *rxq;

	(void)state;
	assert_int_equal(sc_rxq_create(1, &rxq), 0);
	for (uint16_t pass = 0; pass < 2; pass++)
		for (uint16_t i = 0; i < 300; i++) {
			struct sc_source *source;

			parts.nonce[0] = (uint8_t)i;
			parts.nonce[7] = (uint8_t)(i >> 8);
			parts.ep = pass;
			sc_addr_format(&parts, addr);
			source = sc_rxq_source(rxq, addr);
			assert_non_null(source);
			if (pass)
				assert_ptr_equal(source, sources[i]);
			sources[i] = source;
			memcpy(addrs[i], addr, sizeof(addr));
			assert_true(!i || source != sources[i - 1]);
		}
	assert_int_equal(rxq->source_count, 300);
	/* one that goes takes no other with it */
	for (int i = 0; i < 300; i += 3)
		sc_rxq_source_free(rxq, sources[i]);
	for (int i = 0; i < 300; i++)
		assert_ptr_equal(sc_rxq_source_find(rxq, addrs[i]), i % 3 ? sources[i] : NULL);
	assert_int_equal(rxq->source_count, 200);
	sc_rxq_destroy(rxq);
}

/* Senders of one name are one source: lost when the last of them is. */
static void test_one_source(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *to[2], *from[2];
	struct sc_ep_name name;
	struct end ends[3];
	char buf[2];

	(void)state;
	assert_int_equal(sc_ep_name_init(&name), 0);
	end_open(&ends[2], NULL);
	attr.name = &name;
	for (uint16_t i = 0; i < 2; i++) {
		attr.index = i;
		end_open(&ends[i], &attr);
		to[i] = end_find(&ends[i], &ends[2]);
		from[i] = end_find(&ends[2], &ends[i]);
	}
	assert_ptr_equal(from[0]->source, from[1]->source);
	send_from(ends[0].ep, to[0], "0", 1);
	send_from(ends[1].ep, to[1], "1", 1);
	ends_settle(ends, 3);
	assert_int_equal(from[0]->source->met, 2);
	for (int i = 0; i < 2; i++)
		assert_int_equal(receive(sc_ep_rxq(ends[2].ep), from[0], &buf[i], 1), 0);
	for (int i = 0; i < 2; i++)
		assert_ptr_equal(received(&ends[2], &buf[i]).source, from[buf[i] - '0']);
	assert_int_equal(receive(sc_ep_rxq(ends[2].ep), from[1], buf, 1), 0);
	end_close(&ends[0]);
	ends_settle(ends, 3);
	nothing(&ends[2]);
	assert_int_equal(from[0]->source->met, 1);
	end_close(&ends[1]);
	ends_settle(ends, 3);
	assert_int_equal(received(&ends[2], buf).err, ECONNRESET);
	assert_int_equal(receive(sc_ep_rxq(ends[2].ep), from[0], buf, 1), -ECONNRESET);
	end_close(&ends[2]);
}

/* ---- sharing --------------------------------------------------------------------------------- */

static void test_shared(void **state)
{
	struct crowd crowd;
	char buf[4];

	(void)state;
	crowd_open(&crowd);
	assert_int_equal(sc_rxq_room(crowd.rxq), 64);
	assert_ptr_equal(crowd.from[1]->source, crowd.from[2]->source);
	/* the first receive takes the first message; if it names a source, it is that of the peers of both endpoints */
	assert_int_equal(receive(crowd.rxq, crowd.from[1], &buf[0], 1), 0);
	assert_int_equal(receive(crowd.rxq, NULL, &buf[1], 1), 0);
	assert_int_equal(sc_rxq_room(crowd.rxq), 62);
	send_from(crowd.ends[0].ep, crowd.to[2], "2", 1);
	settle(&crowd);
	assert_ptr_equal(received(&crowd.ends[2], &buf[0]).source, crowd.from[2]);
	/* it has come to one of the two, and the other one only knows it */
	for (int i = 1; i < ENDS; i++)
		assert_int_equal(sc_peers_have_heard(crowd.ends[i].ep, sc_ep_address(crowd.ends[0].ep)),
				 i == 2);
	send_from(crowd.ends[0].ep, crowd.to[1], "1", 1);
	settle(&crowd);
	assert_ptr_equal(received(&crowd.ends[1], &buf[1]).source, crowd.from[1]);
	assert_memory_equal(buf, "21", 2);
	/* messages that wait are in one order */
	for (int i = 0; i < 4; i++) {
		send_from(crowd.ends[0].ep, crowd.to[1 + i % 2], &"abcd"[i], 1);
		settle(&crowd);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(receive(crowd.rxq, NULL, &buf[i], 1), 0);
		(void)received(&crowd.ends[1 + i % 2], &buf[i]);
	}
	assert_memory_equal(buf, "abcd", 4);
	crowd_close(&crowd);
}

/*
 * A sender that one endpoint has met, or heard, comes to another one, sends and closes. A receive from it gets the
 * message, whichever endpoint is polled first, and whether the receive was posted before the sender came or after.
 */
static void test_shared_by_the_departed(void **state)
{
	struct sc_peer *from;
	struct crowd crowd;
	struct end sender;
	char buf[2];

	(void)state;
	crowd_open(&crowd);
	for (int i = 0; i < 4; i++) {
		bool late = i & 1, known = i & 2;

		end_open(&sender, NULL);
		from = end_find(&crowd.ends[1], &sender);
		if (known) {
			send_from(sender.ep, end_find(&sender, &crowd.ends[1]), "k", 1);
			settle(&crowd);
			assert_int_equal(receive(crowd.rxq, from, buf, 1), 0);
			assert_int_equal(received(&crowd.ends[1], buf).err, 0);
		}
		if (!late)
			assert_int_equal(receive(crowd.rxq, from, buf, 1), 0);
		send_from(sender.ep, end_find(&sender, &crowd.ends[2]), "a", 1);
		end_close(&sender);
		if (late)
			assert_int_equal(receive(crowd.rxq, from, buf, 1), 0);
		assert_int_equal(receive(crowd.rxq, from, &buf[1], 1), 0);
		for (int polls = 0; polls < 10; polls++)
			sc_ep_poll(crowd.ends[1].ep);
		settle(&crowd);
		assert_int_equal(received(&crowd.ends[2], buf).err, 0);
		assert_int_equal(buf[0], 'a');
		assert_int_equal(received(&crowd.ends[1], &buf[1]).err, ECONNRESET);
		nothing(&crowd.ends[1]);
		nothing(&crowd.ends[2]);
	}
	crowd_close(&crowd);
}

/* The first endpoint reports a receive that ends without a message; if there is no endpoint, nobody reports it. */
static void test_reporter(void **state)
{
	struct crowd crowd;
	char buf[3];

	(void)state;
	crowd_open(&crowd);
	for (int i = 0; i < 3; i++)
		assert_int_equal(receive(crowd.rxq, NULL, &buf[i], 1), 0);
	assert_int_equal(sc_rxq_cancel(crowd.rxq, &buf[0]), 0);
	assert_int_equal(received(&crowd.ends[1], &buf[0]).err, ECANCELED);
	end_close(&crowd.ends[1]);
	assert_int_equal(sc_rxq_cancel(crowd.rxq, &buf[1]), 0);
	assert_int_equal(received(&crowd.ends[2], &buf[1]).err, ECANCELED);
	end_close(&crowd.ends[2]);
	assert_int_equal(sc_rxq_cancel(crowd.rxq, &buf[2]), 0);
	assert_int_equal(sc_rxq_cancel(crowd.rxq, &buf[2]), -ENOENT);
	assert_int_equal(sc_rxq_room(crowd.rxq), 64);
	crowd_close(&crowd);
}

/* An endpoint closes: its messages go, and claimed ones; those of others and what is posted stay. */
static void test_leave(void **state)
{
	struct sc_recv peek = { .flags = SC_RECV_PEEK | SC_RECV_CLAIM, .context = &peek };
	struct sc_recv keep = { .context = &keep };
	struct crowd crowd;
	char buf;

	(void)state;
	crowd_open(&crowd);
	send_from(crowd.ends[0].ep, crowd.to[1], "c", 1);
	settle(&crowd);
	assert_int_equal(sc_rxq_recv(crowd.rxq, &peek), 0);
	assert_int_equal(received(&crowd.ends[1], &peek).err, 0);
	send_from(crowd.ends[0].ep, crowd.to[2], "k", 1);
	settle(&crowd);
	keep.flags = SC_RECV_PEEK | SC_RECV_CLAIM;
	assert_int_equal(sc_rxq_recv(crowd.rxq, &keep), 0);
	assert_int_equal(received(&crowd.ends[2], &keep).err, 0);
	send_from(crowd.ends[0].ep, crowd.to[1], "1", 1);
	settle(&crowd);
	send_from(crowd.ends[0].ep, crowd.to[2], "2", 1);
	settle(&crowd);
	assert_int_equal(crowd.rxq->plain.waiting_count, 2);
	end_close(&crowd.ends[1]);
	assert_int_equal(crowd.rxq->plain.waiting_count, 1);
	assert_false(sc_list_empty(&crowd.rxq->claimed));
	keep.flags = SC_RECV_CLAIM;
	keep.iov = &(struct iovec){ &buf, 1 };
	keep.iov_count = 1;
	assert_int_equal(sc_rxq_recv(crowd.rxq, &keep), 0);
	assert_int_equal(received(&crowd.ends[2], &keep).err, 0);
	assert_int_equal(buf, 'k');
	assert_true(sc_list_empty(&crowd.rxq->claimed));
	assert_int_equal(receive(crowd.rxq, NULL, &buf, 1), 0);
	(void)received(&crowd.ends[2], &buf);
	assert_int_equal(buf, '2');
	assert_int_equal(receive(crowd.rxq, crowd.from[2], &buf, 1), 0);
	settle(&crowd);
	send_from(crowd.ends[0].ep, crowd.to[2], "3", 1);
	settle(&crowd);
	(void)received(&crowd.ends[2], &buf);
	assert_int_equal(sc_slab_used(&crowd.rxq->ops), 0);
	crowd_close(&crowd);
}

static void wait_for_parent(struct child *self, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, NULL);
	child_tell(self, sc_ep_address(end.ep));
	child_wait(self);
}

enum when { AT_ONCE, AFTER_CLOSE, AFTER_RECEIVE, WHENS };

/*
 * An endpoint closes that alone has met a peer in another process. A receive from that peer ends when the peer dies, if
 * it was posted before the close or while the peer lived. If the peer has died before, the receive is refused.
 */
static void leave_alone(struct child *child, enum when dies, bool early)
{
	struct sc_peer *to, *from;
	struct crowd crowd;
	char buf;

	crowd_open(&crowd);
	assert_int_equal(sc_peer_get(crowd.ends[1].ep, child->line, &to), 0);
	assert_int_equal(sc_peer_get(crowd.ends[2].ep, child->line, &from), 0);
	assert_int_equal(try_send(crowd.ends[1].ep, to), 0);
	assert_int_equal(from->source->met, 1);
	if (early)
		assert_int_equal(receive(crowd.rxq, from, &buf, 1), 0);
	if (dies == AT_ONCE)
		child_kill(child);
	sc_ep_destroy(crowd.ends[1].ep);
	crowd.ends[1].ep = NULL;
	if (dies == AFTER_CLOSE)
		child_kill(child);
	if (!early)
		assert_int_equal(receive(crowd.rxq, from, &buf, 1),
				 dies == AFTER_RECEIVE ? 0 : -ECONNREFUSED);
	if (dies == AFTER_RECEIVE)
		child_kill(child);
	if (early || dies == AFTER_RECEIVE) {
		settle(&crowd);
		if (dies != AT_ONCE)
			watchdog_await(
				(sc_ep_poll(crowd.ends[2].ep), sc_comp_ring_peek(&crowd.ends[2].rx)));
		assert_int_equal(received(&crowd.ends[2], &buf).err,
				 dies == AT_ONCE ? ECONNREFUSED : ECONNRESET);
	}
	crowd_close(&crowd);
}

/* All children start before this process has threads: the allocator of a sanitizer has locks that a child inherits. */
static void test_leave_alone(void **state)
{
	struct child children[WHENS][2];

	(void)state;
	for (int dies = 0; dies < WHENS; dies++)
		for (int early = 0; early < 2; early++)
			assert_true(child_start(&children[dies][early], wait_for_parent, NULL));
	for (int dies = 0; dies < WHENS; dies++)
		for (int early = 0; early < 2; early++)
			leave_alone(&children[dies][early], dies, early);
}

/* The source of a peer ends with the last endpoint that knows the peer, unless a posted receive names the source. */
static void test_leave_sources(void **state)
{
	struct crowd crowd;
	char buf;

	(void)state;
	crowd_open(&crowd);
	for (int i = 0; i < 20; i++) {
		struct end visitor;

		end_open(&visitor, NULL);
		(void)end_find(&crowd.ends[1 + i % 2], &visitor);
		end_close(&visitor);
	}
	assert_int_equal(crowd.rxq->source_count, 21);
	end_close(&crowd.ends[1]);
	assert_int_equal(crowd.rxq->source_count, 11);
	assert_int_equal(receive(crowd.rxq, crowd.from[2], &buf, 1), 0);
	end_close(&crowd.ends[2]);
	assert_int_equal(crowd.rxq->source_count, 1);
	assert_int_equal(sc_rxq_cancel(crowd.rxq, &buf), 0);
	crowd_close(&crowd);
}

/* An endpoint closes that has lost a living peer: the other one tries the peer itself, or goes by its own loss. */
static void test_leave_lost(void **state)
{
	struct crowd crowd;
	char buf;

	(void)state;
	for (int both = 0; both < 2; both++) {
		crowd_open(&crowd);
		send_from(crowd.ends[1].ep, crowd.from[1], "", 0);
		if (both)
			send_from(crowd.ends[2].ep, crowd.from[2], "", 0);
		settle(&crowd);
		if (both)
			sc_peer_lose(crowd.from[2], -EPROTO);
		sc_peer_lose(crowd.from[1], -EPROTO);
		settle(&crowd);
		end_close(&crowd.ends[1]);
		assert_int_equal(receive(crowd.rxq, crowd.from[2], &buf, 1), both ? -EPROTO : 0);
		crowd_close(&crowd);
	}
}

/* An endpoint closes that has met a peer, which the other one has lost: posted receives from the peer end. */
static void test_leave_met(void **state)
{
	struct crowd crowd;
	char buf;

	(void)state;
	crowd_open(&crowd);
	for (int i = 1; i < ENDS; i++)
		send_from(crowd.ends[i].ep, crowd.from[i], "", 0);
	settle(&crowd);
	sc_peer_lose(crowd.from[2], -EPROTO);
	settle(&crowd);
	assert_int_equal(receive(crowd.rxq, crowd.from[2], &buf, 1), 0);
	settle(&crowd);
	nothing(&crowd.ends[1]);
	end_close(&crowd.ends[1]);
	settle(&crowd);
	assert_int_equal(received(&crowd.ends[2], &buf).err, EPROTO);
	crowd_close(&crowd);
}

/* In the middle of a transfer, by each way: the receive is cancelled, and names nobody. */
static void leave_amid(enum way way, bool multi)
{
	uint8_t *out = calloc(1, BIG), *in = malloc(BIG);
	struct iovec iov = { in, BIG };
	struct sc_recv recv = { .iov = &iov, .iov_count = 1, .context = in };
	struct crowd crowd;
	struct sc_comp comp;

	crowd_open(&crowd);
	if (multi) {
		recv.flags = SC_RECV_MULTI;
		recv.multi_min = 1;
	}
	send_from(crowd.ends[0].ep, crowd.to[1], "", 0);
	settle(&crowd);
	assert_int_equal(receive(crowd.rxq, NULL, in, 1), 0);
	(void)received(&crowd.ends[1], in);
	end_take_way(&crowd.ends[1], crowd.from[1], way);
	crowd.ends[1].ep->config.share_min = UINT32_MAX;
	assert_int_equal(sc_rxq_recv(crowd.rxq, &recv), 0);
	send_from(crowd.ends[0].ep, crowd.to[1], out, BIG);
	while (sc_list_empty(&crowd.from[1]->recv.transfers))
		sc_ep_poll(crowd.ends[1].ep);
	assert_int_equal(sc_rxq_room(crowd.rxq), 64); /* out of the matcher */
	sc_ep_destroy(crowd.ends[1].ep);
	crowd.ends[1].ep = NULL;
	comp = received(&crowd.ends[1], in);
	assert_int_equal(comp.err, ECANCELED);
	assert_null(comp.source);
	assert_int_equal(!!(comp.flags & SC_COMP_MULTI_DONE), multi);
	nothing(&crowd.ends[1]);
	assert_int_equal(sc_slab_used(&crowd.rxq->ops), 0);
	crowd_close(&crowd);
	free(out);
	free(in);
}

static void test_leave_amid(void **state)
{
	(void)state;
	for (int way = 0; way < WAYS; way++) {
		leave_amid(way, false);
		leave_amid(way, true);
	}
}

/* An endpoint with rx_report reports silent receives too; others do not. */
static void test_report(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_recv recv = { .flags = SC_SILENT };
	struct end loud;
	struct crowd crowd;

	(void)state;
	crowd_open(&crowd);
	attr.rxq = crowd.rxq;
	attr.rx_report = true;
	end_open(&loud, &attr);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sc_rxq_recv(crowd.rxq, &recv), 0);
	send_from(crowd.ends[0].ep, crowd.to[1], "", 0);
	settle(&crowd);
	nothing(&crowd.ends[1]);
	send_from(crowd.ends[0].ep, end_find(&crowd.ends[0], &loud), "", 0);
	ends_settle(&loud, 1);
	(void)received(&loud, NULL);
	end_close(&loud);
	crowd_close(&crowd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leave_alone), /* first */
		cmocka_unit_test(test_name),
		cmocka_unit_test(test_announced),
		cmocka_unit_test(test_announced_dead),
		cmocka_unit_test(test_sources),
		cmocka_unit_test(test_one_source),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_shared_by_the_departed),
		cmocka_unit_test(test_reporter),
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_leave_lost),
		cmocka_unit_test(test_leave_met),
		cmocka_unit_test(test_leave_sources),
		cmocka_unit_test(test_leave_amid),
		cmocka_unit_test(test_report),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
