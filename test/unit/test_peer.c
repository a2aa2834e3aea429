/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_peer: how two endpoints come together and part, in every order; connections that are refused; and
 * claims, introductions and answers that a peer which keeps the rules does not write.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "os/addr.h"
#include "link/accept.h"
#include "link/connect.h"
#include "link/review.h"
#include "core_pair.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "rma/reg.h"
#include "shm/attach.h"
#include "shm/create.h"
#include "shm/memory.h"

/* Of nobody, in another namespace: nobody says that it is dead. */
#define TICKET 0x9234567800000000ull

static struct end pair[2], third;
static uint8_t from[100000], into[100000];

static int setup(void **state)
{
	pattern_fill(from, 0, sizeof(from), 1);
	return pair_setup(state);
}

static void three_open(const struct sc_ep_attr *attr)
{
	end_open(&pair[0], attr);
	end_open(&pair[1], attr);
	end_open(&third, attr);
}

static void three_close(void)
{
	end_close(&third);
	pair_close(pair);
}

/* A small message arrives. */
static void check_message(struct end *a, struct end *b, size_t size)
{
	memset(into, 0, size);
	assert_int_equal(end_send(a, end_find(a, b), from, size, 99, SC_TAGGED | SC_SILENT), 0);
	for (int i = 0; i < 4; i++) {
		ends_settle(a, 1);
		ends_settle(b, 1);
	}
	assert_int_equal(end_recv(b, NULL, into, size, 99, SC_TAGGED), 0);
	ends_settle(b, 1);
	expect_received(b, end_find(b, a), into, size, 99);
	assert_true(pattern_is(into, 0, size, 1));
}

static void check_traffic(struct end *a, struct end *b)
{
	check_message(a, b, 8);
	check_message(a, b, 1000);
}

/* pair[1] has a single slot, which the third has taken. */
static void full_open(void)
{
	struct sc_ep_attr one = end_attr();

	one.config.slots = 1;
	end_open(&pair[0], NULL);
	end_open(&pair[1], &one);
	end_open(&third, NULL);
	check_traffic(&third, &pair[1]);
}

/* ---- together -------------------------------------------------------------------------------- */

/* The first message makes the connection, and the other side need not do anything for it. */
static void test_connect(void **state)
{
	struct sc_peer *peer, *again;

	(void)state;
	three_open(NULL);
	peer = end_find(&pair[0], &pair[1]);
	again = end_find(&pair[0], &pair[1]);
	assert_ptr_equal(peer, again);
	assert_string_equal(sc_peer_address(peer), sc_ep_address(pair[1].ep));
	assert_int_equal(peer->link, SC_LINK_NONE);
	assert_int_equal(pair[0].ep->counters.connects, 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), 0);
	assert_int_equal(peer->link, SC_LINK_UP);
	assert_int_equal(pair[0].ep->counters.connects, 1);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0] & SC_ABI_CLAIM_STATE, SC_ABI_PUBLISHED);
	assert_false(sc_list_empty(&pair[0].ep->work[SC_WORK_UNANSWERED]));
	for (int i = 0; i < 10; i++)
		sc_ep_poll(pair[0].ep);
	ends_settle(pair, 2);
	assert_int_equal(pair[1].ep->counters.accepts, 1);
	assert_int_equal(pair[1].ep->counters.connects, 0);
	assert_int_equal(pair[1].ep->counters.rx_unexpected, 10);
	assert_true(sc_list_empty(&pair[0].ep->work[SC_WORK_UNANSWERED]));
	/* and back */
	check_traffic(&pair[1], &pair[0]);
	check_traffic(&pair[0], &third);
	check_traffic(&third, &pair[0]);
	check_traffic(&third, &pair[1]);
	assert_int_equal(pair[0].ep->counters.accepts, 2);
	three_close();
}

/* Both at once. */
static void test_cross(void **state)
{
	(void)state;
	three_open(NULL);
	pair[0].peer = end_find(&pair[0], &pair[1]);
	pair[1].peer = end_find(&pair[1], &pair[0]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(end_send(&pair[i], pair[i].peer, from, 8, 0, 0), 0);
	ends_settle(pair, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(end_recv(&pair[i], NULL, into, 8, 0, 0), 0);
		expect_received(&pair[i], pair[i].peer, into, 8, 0);
		assert_int_equal(pair[i].ep->counters.connects, 1);
		assert_int_equal(pair[i].ep->counters.accepts, 1);
	}
	three_close();
}

static void test_self(void **state)
{
	struct sc_peer *self;

	(void)state;
	three_open(NULL);
	self = end_find(&pair[0], &pair[0]);
	assert_int_equal(end_send(&pair[0], self, from, 8, 0, 0), 0);
	ends_settle(pair, 1);
	assert_int_equal(self->link, SC_LINK_UP);
	assert_int_equal(self->feed, SC_FEED_UP);
	check_traffic(&pair[0], &third);
	check_traffic(&third, &pair[0]);
	check_traffic(&pair[0], &pair[0]);
	three_close();
}

static void test_users(void **state)
{
	struct sc_peer *peers[1000];
	char address[SC_ADDR_SIZE];

	(void)state;
	three_open(NULL);
	memcpy(address, sc_ep_address(pair[1].ep), sizeof(address));
	for (uint64_t i = 0; i < 1000; i++) {
		char digits[5];

		snprintf(digits, sizeof(digits), "%04x", (unsigned)i);
		memcpy(address + SC_ADDR_SIZE - 5, digits, 4);
		assert_int_equal(sc_peer_get(pair[0].ep, address, &peers[i]), 0);
		assert_true(sc_peer_user(peers[i]) == UINT64_MAX || i >= 1000);
		sc_peer_set_user(peers[i], i);
	}
	for (uint64_t i = 0; i < 1000; i++) {
		struct sc_peer *again;

		assert_int_equal(sc_peer_get(pair[0].ep, sc_peer_address(peers[i]), &again), 0);
		assert_ptr_equal(again, peers[i]);
		assert_int_equal(sc_peer_user(again), i);
	}
	assert_int_equal(sc_peer_get(pair[0].ep, "fi_shmcma://service", &peers[0]), -EINVAL);
	assert_int_equal(sc_peer_get(pair[0].ep, "", &peers[0]), -EINVAL);
	three_close();
}

/* An endpoint remembers peers that have come, by the stem of their addresses; a peer that is only known is not one. */
static void test_has_come(void **state)
{
	char address[SC_ADDR_SIZE], context[SC_ADDR_SIZE];

	(void)state;
	three_open(NULL);
	memcpy(address, sc_ep_address(third.ep), SC_ADDR_SIZE);
	assert_int_equal(sc_addr_context(address, 7, context), 0);
	(void)end_find(&pair[0], &third);
	assert_false(sc_peers_have_heard(pair[0].ep, address));
	check_traffic(&pair[0], &pair[1]);
	assert_false(sc_peers_have_heard(pair[0].ep, address));
	assert_true(sc_peers_have_heard(pair[1].ep, sc_ep_address(pair[0].ep)));
	check_traffic(&third, &pair[0]);
	assert_true(sc_peers_have_heard(pair[0].ep, address));
	assert_true(sc_peers_have_heard(pair[0].ep, context));
	end_close(&third);
	ends_settle(pair, 2);
	assert_true(sc_peers_have_heard(pair[0].ep, address));
	assert_false(sc_peers_have_heard(pair[1].ep, address));
	end_open(&third, NULL);
	three_close();
}

/* ---- refused --------------------------------------------------------------------------------- */

static void test_slots_taken(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	uint8_t byte;

	(void)state;
	attr.config.slots = 1;
	three_open(&attr);
	check_traffic(&pair[0], &pair[1]);
	peer = end_find(&third, &pair[1]);
	assert_int_equal(end_recv(&third, peer, &byte, 1, 5, SC_TAGGED), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(end_send(&third, peer, from, 8, 0, 0), -EUSERS);
		ends_settle(&third, 1);
	}
	assert_true(end_idle(&third)); /* the receive from there may yet have its message */
	check_traffic(&pair[0], &pair[1]);
	/* the slot is free when the first has gone: the one that was refused has it next */
	end_close(&pair[0]);
	ends_settle(&pair[1], 1);
	check_traffic(&third, &pair[1]);
	assert_int_equal(third.ep->counters.connects, 1);
	assert_int_equal(end_send(&pair[1], end_find(&pair[1], &third), from, 1, 5, SC_TAGGED | SC_SILENT),
			 0);
	for (int i = 0; i < 2; i++) {
		ends_settle(&pair[1], 1);
		ends_settle(&third, 1);
	}
	expect_received(&third, peer, &byte, 1, 5);
	end_open(&pair[0], &attr);
	assert_int_equal(end_send(&pair[0], end_find(&pair[0], &pair[1]), from, 8, 0, 0), -EUSERS);
	end_close(&third);
	ends_settle(pair, 2);
	check_traffic(&pair[0], &pair[1]);
	end_close(&pair[0]);
	end_close(&pair[1]);
}

/*
 * An endpoint cannot reach a peer, which has no free slot. Messages of the peer arrive all the same, or their sends
 * fail: they do not wait for an answer that the endpoint cannot give.
 */
static void test_heard_but_not_reached(void **state)
{
	for (int sent_before = 0; sent_before < 2; sent_before++)
		for (int f = 0; f < 3; f++) {
			static const uint32_t flags[] = { SC_SEND_DELIVERY, 0, SC_SEND_MATCH };
			static const size_t sizes[] = { 8, 50000, 1000 };
			struct sc_peer *back, *there;
			uint8_t byte;
			int ret;

			(void)state;
			full_open();
			back = end_find(&pair[0], &pair[1]);
			there = end_find(&pair[1], &pair[0]);
			if (sent_before) {
				assert_int_equal(end_send(&pair[1], there, from, 8, 0, SC_SILENT), 0);
				ends_settle(pair, 2);
			}
			assert_int_equal(end_send(&pair[0], back, from, 8, 0, 0), -EUSERS);
			ends_settle(pair, 2);
			assert_int_equal(end_recvv(&pair[0], NULL, &(struct iovec){ into, 50000 }, 1, 5, 0,
						   SC_TAGGED, into),
					 0);
			ret = end_send(&pair[1], there, from, sizes[f], 5, SC_TAGGED | flags[f]);
			ends_settle(pair, 2);
			if (!ret) { /* it ends, one way or the other */
				assert_non_null(sc_comp_ring_peek(&pair[1].tx));
				assert_int_equal(sc_slab_used(&pair[1].ep->tx_ops), 0);
			}
			check_traffic(&third, &pair[1]);
			/* a slot is free, and nothing is left of the earlier tries: both directions connect anew */
			assert_int_equal(end_recv(&pair[0], back, &byte, 1, 6, SC_TAGGED), 0);
			end_close(&third);
			if (sent_before)
				assert_int_equal(end_recv(&pair[0], NULL, into, 8, 0, 0), 0);
			ends_settle(pair, 2);
			while (sc_comp_ring_peek(&pair[0].rx))
				sc_comp_ring_release(&pair[0].rx);
			while (sc_comp_ring_peek(&pair[1].tx))
				sc_comp_ring_release(&pair[1].tx);
			check_traffic(&pair[1], &pair[0]);
			check_traffic(&pair[0], &pair[1]);
			assert_int_equal(end_send(&pair[1], there, from, 1, 6, SC_TAGGED | SC_SILENT), 0);
			ends_settle(pair, 2);
			expect_received(&pair[0], back, &byte, 1, 6);
			end_close(&pair[0]);
			end_close(&pair[1]);
		}
}

/* An endpoint that could not be reached has gone, and a message of its waits: it is not taken for new before that is received. */
static void test_not_reached_and_gone(void **state)
{
	struct sc_peer *back;

	(void)state;
	full_open();
	back = end_find(&pair[0], &pair[1]);
	assert_int_equal(
		end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, 5, SC_TAGGED | SC_SILENT), 0);
	ends_settle(pair, 2);
	assert_int_equal(end_send(&pair[0], back, from, 8, 0, 0), -EUSERS);
	end_close(&pair[1]);
	ends_settle(pair, 1);
	for (int i = 0; i < 2; i++)
		assert_int_equal(end_send(&pair[0], back, from, 8, 0, 0), -ECONNRESET);
	assert_int_equal(end_recv(&pair[0], back, into, 8, 5, SC_TAGGED), 0);
	expect_received(&pair[0], back, into, 8, 5);
	assert_int_equal(end_send(&pair[0], back, from, 8, 0, 0), -ECONNREFUSED); /* a new try */
	end_close(&third);
	end_close(&pair[0]);
}

/* One that was given up connects again before its last claim is seen to have departed: it is let in behind that. */
static void test_again_before_it_departs(void **state)
{
	struct sc_peer *there, *back;

	(void)state;
	full_open();
	check_traffic(&third, &pair[0]);
	there = end_find(&pair[1], &pair[0]);
	assert_int_equal(end_recv(&pair[0], NULL, into, 8, 5, SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[1], there, from, 8, 5, SC_TAGGED | SC_SEND_DELIVERY), 0);
	ends_settle(&pair[0], 1); /* it cannot be answered */
	assert_int_equal(comp_take(&pair[0].rx).err, 0);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	back = end_find(&pair[0], &pair[1]);
	end_close(&third);
	ends_settle(&pair[0], 1);
	ends_settle(&pair[1], 1);
	/* there is room, but the last claim is not seen to have departed: this side does not begin anew before */
	assert_true(back->full && sc_peer_is_parted(back) && back->in_slot != SC_PEER_NO_SLOT);
	assert_int_equal(end_send(&pair[0], back, from, 8, 0, 0), -EUSERS);
	assert_int_equal(comp_take(&pair[1].tx).err, EUSERS);
	assert_int_equal(end_send(&pair[1], there, from, 8, 6, SC_TAGGED | SC_SILENT), 0);
	assert_int_equal(there->out_slot, 0); /* before its last one, which was 1 */
	assert_int_equal(end_recv(&pair[0], NULL, into, 8, 6, SC_TAGGED), 0);
	while (end_idle(&pair[0]) && !pair[0].ep->counters.refusals)
		sc_ep_poll(pair[0].ep);
	assert_int_equal(pair[0].ep->counters.refusals, 0);
	expect_received(&pair[0], end_find(&pair[0], &pair[1]), into, 8, 6);
	pair_close(pair);
}

/* A full endpoint gave up a peer that still has a message of it: it is full to that peer until the message is received. */
static void test_again_with_a_message(void **state)
{
	struct sc_peer *there;

	(void)state;
	full_open();
	there = end_find(&pair[1], &pair[0]);
	assert_int_equal(end_send(&pair[1], there, from, 8, 5, SC_TAGGED | SC_SILENT), 0);
	ends_settle(pair, 2);
	assert_int_equal(end_recv(&pair[0], NULL, into, 8, 6, SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[1], there, from, 8, 6, SC_TAGGED | SC_SEND_DELIVERY), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].rx).err, 0);
	assert_int_equal(comp_take(&pair[1].tx).err, EUSERS);
	end_close(&third);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(sc_peer_reach(there), 0);
		ends_settle(pair, 2);
		assert_int_equal(there->link, SC_LINK_DOWN);
		assert_int_equal(there->error, -EUSERS);
		assert_true(there->full);
	}
	assert_int_equal(end_recv(&pair[0], NULL, into, 8, 5, SC_TAGGED), 0);
	expect_received(&pair[0], end_find(&pair[0], &pair[1]), into, 8, 5);
	check_traffic(&pair[1], &pair[0]);
	check_traffic(&pair[0], &pair[1]);
	pair_close(pair);
}

/* A connection that fails half-way leaves nothing behind, whatever happens before the next poll. */
static void test_half_way(void **state)
{
	struct sc_peer *peer;

	(void)state;
	three_open(NULL);
	/* pair[1] is known to pair[0] and attached, then the slot's memory cannot be had */
	assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, 0, 0), 0);
	ends_settle(pair, 2);
	peer = end_find(&pair[0], &pair[1]);
	assert_non_null(peer->seg);
	peer->seg->lender->file.made_by++; /* no descriptor for us */
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -EPERM);
	peer->seg->lender->file.made_by--;
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	/* the slot that it had for a moment is another's now */
	assert_int_equal(end_send(&third, end_find(&third, &pair[1]), from, 8, 0, SC_SILENT), 0);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0] & SC_ABI_CLAIM_STATE, SC_ABI_PUBLISHED);
	ends_settle(pair, 2);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0] & SC_ABI_CLAIM_STATE, SC_ABI_PUBLISHED);
	assert_int_equal(end_recv(&pair[1], NULL, into, 8, 0, 0), 0);
	expect_received(&pair[1], end_find(&pair[1], &third), into, 8, 0);
	check_traffic(&third, &pair[1]);
	three_close();
}

static void dead_child(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	(void)arg;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
}

static void test_nobody_there(void **state)
{
	char closed[SC_ADDR_SIZE], elsewhere[SC_ADDR_SIZE];
	struct sc_peer *peer;
	struct child child;

	(void)state;
	three_open(NULL);
	memcpy(closed, sc_ep_address(third.ep), sizeof(closed));
	memcpy(elsewhere, closed, sizeof(closed));
	elsewhere[strlen(SC_ADDR_PREFIX)] = elsewhere[strlen(SC_ADDR_PREFIX)] == '0' ? '1' : '0';
	assert_int_equal(sc_addr_kind(elsewhere), SC_ADDR_ENDPOINT);
	end_close(&third);
	assert_int_equal(sc_peer_get(pair[0].ep, closed, &peer), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -ECONNREFUSED);
		sc_ep_poll(pair[0].ep);
	}
	assert_int_equal(sc_peer_get(pair[0].ep, elsewhere, &peer), 0);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -EHOSTUNREACH);
	assert_true(child_start(&child, dead_child, NULL));
	assert_int_equal(child_reap(&child), 0);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -ECONNREFUSED);
	assert_true(end_idle(&pair[0]));
	(void)sc_reap_scan(); /* another process may have been first */
	check_traffic(&pair[0], &pair[1]);
	pair_close(pair);
}

/* ---- hand-made claims ------------------------------------------------------------------------ */

/* The ticket of the endpoint of that address. */
static uint64_t ticket_of(const char *address)
{
	struct sc_addr parts;
	uint32_t nonce;

	assert_int_equal(sc_addr_parse(address, &parts), 0);
	memcpy(&nonce, parts.nonce, sizeof(nonce));
	return (uint64_t)parts.pid << 32 | (nonce & ~(uint32_t)SC_ABI_CLAIM_BITS);
}

/* Claim a slot of pair[1] as a connecting side does, calling itself so. */
static struct sc_abi_slot *claim_by_hand(uint32_t index, const char *address, uint64_t value)
{
	struct sc_seg *seg = pair[1].ep->seg;
	struct sc_abi_slot *slot = sc_seg_slot(seg, index);

	if (address) {
		assert_int_equal(sc_seg_slot_alloc(seg, index), 0);
		memcpy(slot->intro.address, address, SC_ADDR_SIZE);
	}
	sc_store_release_64(&sc_seg_claims(seg)[index], value);
	sc_add_acq_rel_32(&sc_seg_presence(seg)->membership, 1);
	return slot;
}

static void depart_by_hand(uint32_t index)
{
	claim_by_hand(index, NULL, TICKET | SC_ABI_DEPARTED);
	ends_settle(pair, 2);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[index], 0);
}

static void test_bad_introductions(void **state)
{
	char text[SC_ADDR_SIZE], elsewhere[SC_ADDR_SIZE];

	(void)state;
	three_open(NULL);
	check_traffic(&pair[0], &pair[1]); /* slot 0 */
	memcpy(elsewhere, sc_ep_address(third.ep), SC_ADDR_SIZE);
	elsewhere[strlen(SC_ADDR_PREFIX)] = elsewhere[strlen(SC_ADDR_PREFIX)] == '0' ? '1' : '0';
	for (int variant = 0; variant < 6; variant++) {
		struct sc_abi_slot *slot;

		memset(text, variant == 0 ? 0 : variant == 1 ? 0xff : 'a', sizeof(text));
		if (variant == 3)
			memcpy(text, "fi_shmcma://service", 20);
		if (variant == 4) { /* no NUL; of nobody */
			memcpy(text, sc_ep_address(third.ep), SC_ADDR_SIZE);
			memset(text + SC_ADDR_SIZE - 5, 'f', 5);
		}
		if (variant == 5)
			memcpy(text, elsewhere, SC_ADDR_SIZE);
		slot = claim_by_hand(1, text,
				     (variant == 5 ? ticket_of(text) : TICKET) | SC_ABI_PUBLISHED);
		ends_settle(pair, 2);
		assert_non_null(strstr(child_log_line, variant < 3 ? "'(no address)'" : "'fi_shmcma://"));
		if (variant != 4) {
			assert_int_equal(slot->consumer.answer, SC_ABI_REFUSED);
			assert_int_equal(slot->consumer.reason, variant == 5 ? EHOSTUNREACH : EINVAL);
		}
		check_traffic(&pair[0], &pair[1]);
		depart_by_hand(1);
	}
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	check_traffic(&third, &pair[1]);
	three_close();
}

/* Claims at every stage of being made are left alone. */
static void test_claims_under_way(void **state)
{
	(void)state;
	three_open(NULL);
	claim_by_hand(0, NULL, TICKET | SC_ABI_CLAIMED);
	claim_by_hand(1, NULL, TICKET); /* no state at all */
	ends_settle(pair, 2);
	assert_int_equal(pair[1].ep->counters.accepts + pair[1].ep->counters.refusals, 0);
	check_traffic(&pair[0], &pair[1]);
	assert_int_equal(end_find(&pair[0], &pair[1])->out_slot, 2);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], TICKET | SC_ABI_CLAIMED);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[1], TICKET);
	/* published without memory, and gone before it was looked at */
	claim_by_hand(0, NULL, TICKET | SC_ABI_PUBLISHED);
	claim_by_hand(1, NULL, TICKET | SC_ABI_DEPARTED);
	ends_settle(pair, 2);
	assert_int_equal(pair[1].ep->counters.refusals, 2);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[1], 0);
	check_traffic(&pair[0], &pair[1]);
	depart_by_hand(0);
	three_close();
}

/* One that calls itself what another is, or itself a second time. */
static void test_claimed_twice(void **state)
{
	struct sc_abi_slot *slot;

	(void)state;
	three_open(NULL);
	check_traffic(&pair[0], &pair[1]);
	slot = claim_by_hand(1, sc_ep_address(pair[0].ep),
			     ticket_of(sc_ep_address(pair[0].ep)) | SC_ABI_PUBLISHED);
	ends_settle(pair, 2);
	assert_int_equal(slot->consumer.answer, SC_ABI_REFUSED);
	check_traffic(&pair[0], &pair[1]);
	depart_by_hand(1);
	check_traffic(&pair[0], &pair[1]);
	three_close();
}

/* A record by hand in a slot that was claimed by hand. */
static void write_by_hand(struct sc_abi_slot *slot, uint32_t at, enum sc_abi_kind kind, uint32_t size,
			  const uint64_t *words)
{
	memcpy(slot->ring[at].words, words, SC_ABI_LINE_BYTES);
	sc_store_release_64(&slot->ring[at].ctl,
			    sc_ring_ctl(kind, 0, 1, size) | 1ull << SC_ABI_CTL_LAP_SHIFT);
}

/* The peer is gone when it is let in: what lies in the ring is delivered, what lay with it is not. */
static void test_gone_when_accepted(void **state)
{
	uint64_t words[7] = { 0, 0, 1ull << 32, 100, (uintptr_t)from, 100 };

	for (int kind = SC_ABI_INLINE; kind <= SC_ABI_KIND_MAX; kind++) {
		char gone[SC_ADDR_SIZE];
		struct sc_abi_slot *slot;

		(void)state;
		three_open(NULL);
		memcpy(gone, sc_ep_address(third.ep), SC_ADDR_SIZE);
		end_close(&third);
		end_open(&third, NULL);
		slot = claim_by_hand(0, gone, ticket_of(gone) | SC_ABI_PUBLISHED);
		write_by_hand(slot, 0, SC_ABI_INLINE, 8, words);
		write_by_hand(slot, 1, (enum sc_abi_kind)kind, kind == SC_ABI_RDV ? 1 : 8, words);
		assert_int_equal(end_recv(&pair[1], NULL, into, 100, 0, 0), 0);
		assert_int_equal(end_recv(&pair[1], NULL, into, 100, 0, 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
		if (kind <= SC_ABI_RDV && kind != SC_ABI_BOUNCE)
			assert_int_equal(comp_take(&pair[1].rx).err,
					 kind == SC_ABI_INLINE ? 0 : ECONNRESET);
		depart_by_hand(0);
		check_traffic(&third, &pair[1]);
		three_close();
	}
}

/*
 * One that calls itself an endpoint of this very process, and says where its payload is: no address that
 * another process has written is followed without care.
 */
static void impostor(struct child *self, void *arg)
{
	static const uint64_t places[] = { 0, 64, UINT64_MAX - 49999, 1ull << 47, 0x123456789000 };
	int caller = *(int *)arg;

	(void)self;
	child_on_its_own();
	for (int i = 0; i < 5; i++) {
		uint64_t words[7] = { 0, 0, 1ull << 32, 50000, places[i], 50000 };
		struct sc_abi_slot *slot;
		const char *address;

		three_open(NULL);
		address = sc_ep_address(caller ? third.ep : pair[1].ep);
		slot = claim_by_hand(0, address, ticket_of(address) | SC_ABI_PUBLISHED);
		CHILD_CHECK(!end_recv(&pair[1], NULL, into, 50000, 0, 0));
		write_by_hand(slot, 0, SC_ABI_RDV, 1, words);
		for (int n = 0; n < 10; n++)
			sc_ep_poll(pair[1].ep);
		CHILD_CHECK(!sc_comp_ring_peek(&pair[1].rx) || sc_comp_ring_peek(&pair[1].rx)->err);
		three_close();
	}
}

static void test_impostor(void **state)
{
	(void)state;
	for (int caller = 0; caller < 2; caller++)
		assert_int_equal(child_run(impostor, &caller), 0);
}

/* Thousands of claims that come to nothing take no slot for good. */
static void test_claims_come_and_go(void **state)
{
	(void)state;
	three_open(NULL);
	for (int i = 0; i < 300; i++) {
		char address[SC_ADDR_SIZE];
		char digits[5];

		memcpy(address, sc_ep_address(third.ep), SC_ADDR_SIZE);
		snprintf(digits, sizeof(digits), "%04x", (unsigned)i + 0x8000);
		memcpy(address + SC_ADDR_SIZE - 5, digits, 4); /* of nobody */
		claim_by_hand((uint32_t)i % 16, address, ticket_of(address) | SC_ABI_PUBLISHED);
		if (i % 3)
			ends_settle(pair, 2);
		depart_by_hand((uint32_t)i % 16);
	}
	assert_int_equal(pair[1].ep->inbound_count, 0);
	check_traffic(&third, &pair[1]);
	three_close();
}

static void nothing(struct child *self, void *arg)
{
	(void)self, (void)arg;
}

static pid_t ended_pid(void)
{
	struct child child;

	child_spawn(&child, nothing, NULL);
	assert_int_equal(child_end(&child), 0);
	return child.pid;
}

/* A claim whose maker died before it was published, or after it was refused, is no slot lost. */
static void test_claims_of_the_dead(void **state)
{
	uint64_t dead = (uint64_t)ended_pid() << 32, mine = (uint64_t)getpid() << 32;
	const struct {
		uint64_t claim;
		bool returned;
	} cases[] = {
		{ dead | SC_ABI_CLAIMED, true },
		{ dead | SC_ABI_CLAIM_ELSEWHERE | SC_ABI_CLAIMED, false },
		{ mine | SC_ABI_CLAIMED, false },
		{ 8 | SC_ABI_CLAIMED, false }, /* of nobody */
		{ dead | SC_ABI_PUBLISHED, true },
		{ dead | SC_ABI_PUBLISHED | SC_ABI_CLAIM_ELSEWHERE, false },
		{ mine | SC_ABI_PUBLISHED, false },
	};
	const uint32_t count = sizeof(cases) / sizeof(cases[0]);
	const char nobody[SC_ADDR_SIZE] = "no address, so refused";
	uint64_t *claims;

	(void)state;
	three_open(NULL);
	check_traffic(&pair[0], &pair[1]); /* slot 0 */
	claims = sc_seg_claims(pair[1].ep->seg);
	for (uint32_t i = 0; i < count; i++)
		claim_by_hand(1 + i, nobody, cases[i].claim);
	ends_settle(pair, 2);
	for (int round = 0; round < 2; round++) {
		sc_peers_hear(pair[1].ep);
		for (uint32_t i = 0; i < count; i++)
			assert_int_equal(claims[1 + i] & SC_ABI_CLAIM_STATE,
					 cases[i].returned ? 0 : cases[i].claim & SC_ABI_CLAIM_STATE);
	}
	check_traffic(&third, &pair[1]);
	check_traffic(&pair[0], &pair[1]);
	assert_int_equal(pair[1].ep->accepted[0] >> 1 & 1, 1); /* third's now */
	three_close();
}

#ifdef SC_FAULT_INJECTION

static uint64_t *late_claim;

static int publish_late(const char *point)
{
	if (!strcmp(point, "accept.ended"))
		sc_store_release_64(late_claim, (*late_claim & ~SC_ABI_CLAIM_STATE) | SC_ABI_PUBLISHED);
	return 0;
}

/* Opens an endpoint with a claim, which the hook changes after the endpoint has read it. */
static void open_with_claim(uint64_t claim, int (*hook)(const char *point))
{
	end_open(&pair[1], NULL);
	late_claim = &sc_seg_claims(pair[1].ep->seg)[1];
	*late_claim = claim;
	(void)core_failing(NULL, 0);
	sc_fault_hook = hook;
}

/* The maker of a claim publishes it and ends after this endpoint has read the claim: the slot is not taken back. */
static void test_claim_published_late(void **state)
{
	(void)state;
	open_with_claim((uint64_t)ended_pid() << 32 | SC_ABI_CLAIMED, publish_late);
	assert_int_equal(sc_peer_reclaim(pair[1].ep), 0);
	(void)core_failing(NULL, 0);
	assert_int_equal(*late_claim & SC_ABI_CLAIM_STATE, SC_ABI_PUBLISHED);
	end_close(&pair[1]);
}

static int depart_without_memory(const char *point)
{
	if (strcmp(point, "memory.slot"))
		return 0;
	sc_store_release_64(late_claim, (*late_claim & ~SC_ABI_CLAIM_STATE) | SC_ABI_DEPARTED);
	return EIO;
}

/* A peer departs while this endpoint finds no memory to let it in: the refusal leaves its goodbye, and its slot comes back. */
static void test_departs_while_refused(void **state)
{
	(void)state;
	open_with_claim((uint64_t)getpid() << 32 | SC_ABI_PUBLISHED, depart_without_memory);
	assert_int_equal(sc_peer_review_claims(pair[1].ep), 1);
	(void)core_failing(NULL, 0);
	assert_int_equal(pair[1].ep->counters.refusals, 1);
	assert_int_equal(*late_claim & SC_ABI_CLAIM_STATE, SC_ABI_DEPARTED);
	assert_int_equal(sc_peer_review_claims(pair[1].ep), 1);
	assert_int_equal(*late_claim, 0);
	end_close(&pair[1]);
}

#endif

/* ---- hand-made answers ----------------------------------------------------------------------- */

static void test_answers(void **state)
{
	static const struct {
		uint32_t answer;
		int32_t reason;
		int expected; /* of what is under way, and of the next send */
	} cases[] = {
		{ SC_ABI_REFUSED, EUSERS, -EUSERS }, /* but for the next send, which tries again */
		{ SC_ABI_REFUSED, 0, -EPROTO },
		{ SC_ABI_REFUSED, -1, -EPROTO },
		{ SC_ABI_REFUSED, 4096, -EPROTO },
		{ SC_ABI_REFUSED, INT32_MIN, -EPROTO },
		{ SC_ABI_REFUSED, EAGAIN, -EPROTO },
		{ SC_ABI_REFUSED, ENOMEM, -EPROTO },
		{ SC_ABI_BROKEN, EPROTO, -ECONNRESET },
		{ SC_ABI_BROKEN, INT32_MAX, -ECONNRESET },
		{ SC_ABI_ACCEPTED, 77, 0 },
		{ 77, 77, 0 },
		{ UINT32_MAX, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sc_peer *peer;
		int ended = 0;

		three_open(NULL);
		peer = end_find(&pair[0], &pair[1]);
		check_traffic(&pair[0], &third);
		assert_int_equal(end_send(&pair[0], peer, from, 50000, 0, 0), 0);
		assert_int_equal(end_send(&pair[0], peer, from, 1000, 0, SC_SEND_DELIVERY), 0);
		peer->tx.consumer->reason = cases[i].reason;
		peer->tx.consumer->answer = cases[i].answer;
		child_log_line[0] = '\0';
		for (int n = 0; n < 10; n++)
			sc_ep_poll(pair[0].ep);
		if (cases[i].reason == EPROTO)
			assert_non_null(strstr(child_log_line, "breach of the protocol by this process"));
		for (; sc_comp_ring_peek(&pair[0].tx); ended++)
			assert_int_equal(comp_take(&pair[0].tx).err, -cases[i].expected);
		assert_int_equal(ended, cases[i].expected ? 2 : 0);
		assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT),
				 cases[i].expected == -EUSERS ? 0 : cases[i].expected);
		assert_int_equal(pair[0].ep->pool.free_count + peer->bounce.loans.count +
					 end_find(&pair[0], &third)->bounce.loans.count,
				 pair[0].ep->pool.have);
		check_traffic(&pair[0], &third);
		three_close();
	}
}

/*
 * Somebody has written over the claim of an endpoint, so that its records go to nobody, or to another peer that has the
 * slot by now. The endpoint ends the connection, and leaves the claim as it is.
 */
static void test_claim_overwritten(void **state)
{
	static const uint64_t values[] = { 0, TICKET | SC_ABI_PUBLISHED, TICKET | SC_ABI_CLAIMED };

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct sc_peer *peer;
		uint64_t *claim;

		three_open(NULL);
		check_traffic(&pair[0], &pair[1]);
		check_traffic(&pair[0], &third);
		peer = end_find(&pair[0], &pair[1]);
		claim = &sc_seg_claims(pair[1].ep->seg)[peer->out_slot];
		assert_int_equal(end_send(&pair[0], peer, from, 50000, 0, 0), 0);
		sc_store_release_64(claim, values[i]);
		sc_add_acq_rel_32(&sc_seg_presence(pair[0].ep->seg)->membership, SC_ABI_CHANGED);
		ends_settle(pair, 1);
		assert_int_equal(comp_take(&pair[0].tx).err, EPROTO);
		assert_int_equal(pair[0].ep->counters.quarantines, 1);
		assert_non_null(strstr(child_log_line, sc_ep_address(pair[1].ep)));
		assert_non_null(strstr(child_log_line, "overwritten"));
		assert_non_null(strstr(child_log_line, "restart"));
		assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -EPROTO);
		assert_int_equal(*claim, values[i]);
		check_traffic(&pair[0], &third);
		three_close();
	}
}

/* A peer gives an endpoint up long after it answered: the endpoint learns of it though it sends nothing more. */
static void test_given_up(void **state)
{
	struct sc_peer *peer;

	(void)state;
	three_open(NULL);
	check_traffic(&pair[0], &pair[1]);
	peer = end_find(&pair[0], &pair[1]);
	assert_true(sc_list_empty(&pair[0].ep->work[SC_WORK_UNANSWERED]));
	assert_int_equal(end_send(&pair[0], peer, from, 50000, 0, 0), 0);
	sc_ring_commit(&peer->tx, sc_ring_ctl(SC_ABI_INLINE, 0, 1, 99), 1);
	ends_settle(pair, 2);
	assert_int_equal(pair[1].ep->counters.quarantines, 1);
	assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	three_close();
}

/* A peer that comes changes nothing about the others: the endpoint does not look at their claims, see abi.h. */
static void test_only_come(void **state)
{
	struct sc_peer *peer;
	uint64_t *claim;

	(void)state;
	three_open(NULL);
	check_traffic(&pair[0], &pair[1]);
	peer = end_find(&pair[0], &pair[1]);
	claim = &sc_seg_claims(pair[1].ep->seg)[peer->out_slot];
	sc_store_release_64(claim, TICKET | SC_ABI_CLAIMED); /* which a look would find */
	sc_add_acq_rel_32(&sc_seg_presence(pair[0].ep->seg)->membership, SC_ABI_CAME);
	check_traffic(&third, &pair[0]);
	assert_int_equal(pair[0].ep->counters.quarantines, 0);
	sc_add_acq_rel_32(&sc_seg_presence(pair[0].ep->seg)->membership, SC_ABI_CHANGED);
	ends_settle(pair, 1);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	three_close();
}

/* ---- apart ----------------------------------------------------------------------------------- */

static void test_departures(void **state)
{
	(void)state;
	for (int first = 0; first < 2; first++)
		for (int polled = 0; polled < 2; polled++)
			for (int both_ways = 0; both_ways < 2; both_ways++) {
				struct end *stays = &pair[!first];
				struct sc_peer *peer;

				three_open(NULL);
				check_traffic(&pair[0], &pair[1]);
				if (both_ways)
					check_traffic(&pair[1], &pair[0]);
				check_traffic(&third, stays);
				peer = end_find(stays, &pair[first]);
				end_close(&pair[first]);
				if (polled) {
					ends_settle(stays, 1);
					assert_int_equal(peer->link, SC_LINK_DOWN);
					assert_null(peer->seg);
					assert_int_equal(end_send(stays, peer, from, 8, 0, 0),
							 -ECONNRESET);
					assert_int_equal(stays->ep->counters.departures,
							 both_ways || first == 0);
					assert_int_equal(stays->ep->inbound_count, 1);
				}
				check_traffic(&third, stays);
				three_close();
			}
}

/* The last messages of one that closes are delivered, then its slot is another's. */
static void test_slot_is_used_again(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end keeper;

	(void)state;
	attr.config.slots = 1;
	attr.config.buf_count = 4;
	end_open(&keeper, &attr);
	for (int i = 0; i < 1000; i++) {
		struct end guest;
		int messages = i % 200;

		end_open(&guest, &attr);
		guest.peer = end_find(&guest, &keeper);
		for (int n = 0; n < messages; n++)
			if (end_send(&guest, guest.peer, &n, sizeof(n), 0, SC_SILENT | SC_SEND_INJECT)) {
				ends_settle(&keeper, 1);
				assert_int_equal(end_send(&guest, guest.peer, &n, sizeof(n), 0,
							  SC_SILENT | SC_SEND_INJECT),
						 0);
			}
		end_close(&guest);
		ends_settle(&keeper, 1);
		for (int n = 0; n < messages; n++) {
			int got = -1;

			assert_int_equal(end_recv(&keeper, NULL, &got, sizeof(got), 0, 0), 0);
			assert_int_equal(comp_take(&keeper.rx).err, 0);
			assert_int_equal(got, n);
		}
		assert_int_equal(sc_seg_claims(keeper.ep->seg)[0], 0);
	}
	assert_int_equal(keeper.ep->counters.quarantines, 0);
	end_close(&keeper);
}

/* A payload that went away with its sender costs that message, not the slot. */
static void test_slot_after_a_broken_end(void **state)
{
	static const size_t sizes[] = { 8, 1000, 50000 };
	struct sc_ep_attr attr = end_attr();

	(void)state;
	attr.config.slots = 1;
	for (int i = 0; i < 3; i++)
		for (int rule_broken = 0; rule_broken < 2; rule_broken++) {
			struct end guest, next;

			end_open(&pair[1], &attr);
			end_open(&guest, &attr);
			guest.peer = end_find(&guest, &pair[1]);
			assert_int_equal(end_send(&guest, guest.peer, from, sizes[i], 0, 0), 0);
			if (rule_broken)
				sc_ring_commit(&guest.peer->tx, sc_ring_ctl(SC_ABI_INLINE, 0, 1, 99), 1);
			end_close(&guest);
			ends_settle(&pair[1], 1);
			assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
			end_open(&next, &attr);
			check_traffic(&next, &pair[1]);
			end_close(&next);
			end_close(&pair[1]);
		}
}

/* A guest that was given up, then went: its slot is the next one's, and nothing that is its reaches there. */
static void test_slot_after_a_quarantine(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end guest, next;
	struct sc_peer *peer;

	(void)state;
	attr.config.slots = 1;
	end_open(&pair[1], &attr);
	end_open(&guest, &attr);
	check_traffic(&guest, &pair[1]);
	peer = end_find(&pair[1], &guest);
	assert_int_equal(peer->in_slot, 0);
	assert_int_equal(end_send(&pair[1], peer, from, 4096, 0, 0), 0);
	expect_sent(&pair[1], from, 4096);
	sc_peer_quarantine(peer, -ENOMEM, "a test");
	ends_settle(&pair[1], 1);
	assert_int_equal(peer->bounce.loans.count, 1); /* it may be reading yet */
	end_close(&guest);
	ends_settle(&pair[1], 1);
	assert_int_equal(peer->bounce.loans.count, 0);
	assert_int_equal(pair[1].ep->pool.free_count, pair[1].ep->pool.have);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	end_open(&next, &attr);
	check_traffic(&next, &pair[1]);
	assert_int_equal(end_find(&pair[1], &next)->in_slot, 0);
	assert_int_equal(peer->in_slot, UINT32_MAX);
	end_close(&next);
	end_close(&pair[1]);
}

/* A guest that went, and is given up while its messages are read: it reads no more what it was lent. */
static void test_quarantine_after_departure(void **state)
{
	struct sc_peer *peer;
	struct end guest;

	(void)state;
	end_open(&pair[1], NULL);
	end_open(&guest, NULL);
	check_traffic(&guest, &pair[1]);
	peer = end_find(&pair[1], &guest);
	assert_int_equal(end_send(&pair[1], peer, from, 4096, 0, SC_SILENT), 0);
	end_close(&guest);
	(void)sc_peers_review(pair[1].ep, true);
	assert_int_equal(peer->feed, SC_FEED_DRAINING);
	assert_int_equal(peer->bounce.loans.count, 1);
	sc_peer_quarantine(peer, -ENOMEM, "a test");
	assert_int_equal(peer->bounce.loans.count, 0);
	assert_int_equal(pair[1].ep->pool.free_count, pair[1].ep->pool.have);
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	end_close(&pair[1]);
}

/* The memory of a slot could not be given back: the next one finds it as if it had been. */
static void test_slot_keeps_its_memory(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end guest;

	(void)state;
	attr.config.slots = 1;
	end_open(&pair[1], &attr);
	for (int i = 0; i < 4; i++) {
		end_open(&guest, &attr);
		do /* until the ring has grown */
			check_message(&guest, &pair[1], 8);
		while (end_find(&guest, &pair[1])->tx.at.count < SC_ABI_RING_LINES);
		for (int n = 0; n < 60 * i; n++) /* two lines each: so it ends in one lap or the other */
			check_traffic(&guest, &pair[1]);
		end_close(&guest);
		pair[1].ep->seg->file.made_by++;
		ends_settle(&pair[1], 1);
		pair[1].ep->seg->file.made_by--;
		assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
		assert_null(sc_comp_ring_peek(&pair[1].rx));
		assert_int_equal(pair[1].ep->rxq->plain.waiting_count + pair[1].ep->rxq->tagged.waiting_count, 0);
	}
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	end_close(&pair[1]);
}

/* A peer whose link was lost already is let go of altogether when it departs. */
static void test_departure_after_loss(void **state)
{
	struct sc_peer *peer;

	(void)state;
	full_open();
	peer = end_find(&pair[0], &pair[1]);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -EUSERS);
	sc_peer_lose(peer, -EACCES);
	ends_settle(pair, 1);
	assert_null(peer->seg);
	(void)end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, 0, SC_SILENT);
	ends_settle(pair, 2);
	end_close(&pair[1]);
	ends_settle(pair, 1);
	assert_null(peer->seg);
	three_close();
}

/* Receives from a peer that has gone: what it had sent, then its error; posted before it went, or after. */
static void test_directed(void **state)
{
	struct iovec multi = { into, 1000 };
	struct sc_comp comp;
	struct sc_peer *peer;

	(void)state;
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	peer = end_find(&pair[0], &pair[1]);
	for (int i = 0; i < 4; i++)
		assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, i,
					  SC_SILENT | SC_TAGGED),
				 0);
	assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, 0, SC_SILENT), 0);
	ends_settle(pair, 2);
	assert_int_equal(end_recv(&pair[0], peer, into, 8, 9, SC_TAGGED), 0);
	assert_int_equal(end_recv(&pair[0], NULL, into, 8, 9, SC_TAGGED), 0);
	assert_int_equal(end_recvv(&pair[0], peer, &multi, 1, 9, 0, SC_TAGGED | SC_RECV_MULTI, into), 0);
	assert_int_equal(sc_match_posted(&pair[0].ep->rxq->tagged), 3);
	end_close(&pair[1]);
	assert_int_equal(end_recv(&pair[0], peer, into, 8, 8, SC_TAGGED), 0); /* not known yet */
	ends_settle(pair, 1);
	assert_int_equal(sc_match_posted(&pair[0].ep->rxq->tagged), 1); /* from anybody */
	for (int i = 0; i < 3; i++) {
		comp = comp_take(&pair[0].rx);
		assert_int_equal(comp.err, ECONNRESET);
		assert_int_equal(comp.tag, i < 2 ? 9 : 8);
		assert_int_equal(comp.flags & SC_COMP_MULTI_DONE, i == 1 ? SC_COMP_MULTI_DONE : 0);
	}
	assert_true(end_idle(&pair[0]));
	assert_int_equal(end_recv(&pair[0], peer, into, 8, 9, SC_TAGGED), -ECONNRESET);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(end_recv(&pair[0], peer, into, 8, i, SC_TAGGED), 0);
		expect_received(&pair[0], peer, into, 8, i);
		assert_int_equal(end_recv(&pair[0], peer, into, 8, i, SC_TAGGED), -ECONNRESET);
	}
	/* one buffer for all that is left */
	assert_int_equal(end_recvv(&pair[0], peer, &multi, 1, 0, ~0ull, SC_TAGGED | SC_RECV_MULTI, into),
			 0);
	for (int i = 2; i < 4; i++)
		assert_int_equal(comp_take(&pair[0].rx).tag, i);
	comp = comp_take(&pair[0].rx);
	assert_int_equal(comp.err, ECONNRESET);
	assert_int_equal(comp.flags & SC_COMP_MULTI_DONE, SC_COMP_MULTI_DONE);
	assert_int_equal(end_recvv(&pair[0], peer, &multi, 1, 0, ~0ull, SC_TAGGED | SC_RECV_MULTI, into),
			 -ECONNRESET);
	assert_int_equal(end_recv(&pair[0], peer, into, 8, 9, SC_TAGGED), -ECONNRESET); /* none waits */
	/* or as much as there is room for */
	multi.iov_len = 8;
	assert_int_equal(end_recvv(&pair[0], peer, &multi, 1, 0, 0, SC_RECV_MULTI, into), 0);
	comp = comp_take(&pair[0].rx);
	assert_int_equal(comp.err, 0);
	assert_int_equal(comp.flags & SC_COMP_MULTI_DONE, SC_COMP_MULTI_DONE);
	assert_true(end_idle(&pair[0]));
	assert_int_equal(core_posted(pair[0].ep), 1);
	assert_int_equal(sc_rx_cancel(pair[0].ep, into), 0);
	assert_int_equal(comp_take(&pair[0].rx).err, ECANCELED);
	end_close(&pair[0]);
}

/* ---- between processes ----------------------------------------------------------------------- */

struct visit {
	char address[SC_ADDR_SIZE];
	size_t size;
	bool stays; /* until the parent lets it go, then closes */
	bool waits; /* for its message to be received */
	bool tells; /* late_visitor(): when it has sent, and waits again; parter_at_once(): see there */
};

static void visitor(struct child *self, void *arg)
{
	const struct visit *visit = arg;
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	struct sc_ep *ep;
	struct iovec iov = { from, visit->size };
	struct sc_send send = { .iov = &iov,
				.iov_count = 1,
				.flags = visit->waits ? SC_SEND_DELIVERY : 0 };
	struct sc_comp_ring tx;

	CHILD_CHECK(!sc_comp_ring_init(&tx, 16));
	attr.tx_cq = &tx;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_peer_get(ep, visit->address, &peer));
	CHILD_CHECK(!sc_tx_send(ep, peer, &send));
	child_tell(self, sc_ep_address(ep));
	while (visit->waits && !sc_comp_ring_peek(&tx))
		sc_ep_poll(ep);
	CHILD_CHECK(!visit->waits || !sc_comp_ring_peek(&tx)->err);
	if (visit->stays)
		child_wait(self);
	sc_ep_destroy(ep);
	sc_comp_ring_fini(&tx);
}

static void test_visitors(void **state)
{
	static const size_t sizes[] = { 8, 1000, 50000 };

	(void)state;
	for (int i = 0; i < 3; i++)
		for (int waits = 0; waits < 2; waits++) {
			struct visit visit = { .size = sizes[i], .stays = true, .waits = waits };
			struct sc_peer *peer;
			struct child child;

			end_open(&pair[1], NULL);
			memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
			assert_true(child_start(&child, visitor, &visit));
			assert_int_equal(end_recv(&pair[1], NULL, into, 50000, 0, 0), 0);
			memset(into, 0, 50000);
			assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
			/* one that only sends and does not poll is read by this process alone, if it may */
			while (!sc_comp_ring_peek(&pair[1].rx)) {
				sc_ep_poll(pair[1].ep);
				if (sizes[i] == 50000 && !waits && peer->seg && !peer->can_read)
					break;
			}
			if (sc_comp_ring_peek(&pair[1].rx)) {
				expect_received(&pair[1], peer, into, sizes[i], 0);
				assert_true(pattern_is(into, 0, sizes[i], 1));
			}
			while (!sc_list_empty(&pair[1].ep->work[SC_WORK_REPLYING]))
				sc_ep_poll(pair[1].ep);
			assert_int_equal(child_end(&child), 0);
			ends_settle(&pair[1], 1);
			assert_int_equal(peer->link, SC_LINK_DOWN);
			assert_int_equal(pair[1].ep->counters.departures, 1);
			assert_int_equal(pair[1].ep->inbound_count, 0);
			end_close(&pair[1]);
		}
}

/* Come, with a message of visit->size bytes if that is not 0, and say who it is. */
static struct sc_ep *come(struct child *self, const struct visit *visit)
{
	struct sc_ep_attr attr = end_attr();
	struct iovec iov = { from, visit->size };
	struct sc_send send = { .iov = &iov, .iov_count = 1 };
	struct sc_peer *peer;
	struct sc_ep *ep;

	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_peer_get(ep, visit->address, &peer));
	if (visit->size)
		CHILD_CHECK(!sc_tx_send(ep, peer, &send));
	child_tell(self, sc_ep_address(ep));
	return ep;
}

static void come_and_wait(struct child *self, void *arg)
{
	(void)come(self, arg);
	child_wait(self);
}

/* The sender closes and goes on living with other things in the same memory: nothing of them is received. */
static void forger_goes_on(struct child *self, void *arg)
{
	struct sc_ep *ep = come(self, arg);
	char byte;

	CHILD_CHECK(read(self->down, &byte, 1) == 1); /* the other has seen the message */
	sc_ep_destroy(ep);
	memset(from, 0xbb, 50000);
	child_tell(self, "closed");
	child_wait(self);
}

static void test_closed_but_alive(void **state)
{
	struct visit visit = { .size = 50000 };
	struct sc_comp comp;
	struct child child;

	(void)state;
	end_open(&pair[1], NULL);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, forger_goes_on, &visit));
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].ep->counters.rx_unexpected, 1);
	assert_int_equal(write(child.down, "x", 1), 1);
	assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
	assert_int_equal(end_recv(&pair[1], NULL, into, 50000, 0, 0), 0);
	ends_settle(&pair[1], 1);
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.err, ECONNRESET);
	assert_int_equal(child_end(&child), 0);
	end_close(&pair[1]);
}

/* As often as it takes until each peer has been looked at, by this thread and not the core's own. */
static void poll_long(struct end *end)
{
	end->ep->watch_mask = 1023;
	for (int i = 0; i < 10000; i++)
		sc_ep_poll(end->ep);
}

/* Peers that are known by their addresses only, as from an address vector. */
static void know_strangers(struct end *end, int count)
{
	char address[SC_ADDR_SIZE], digits[9];
	struct sc_peer *peer;

	for (int i = 0; i < count; i++) {
		memcpy(address, sc_ep_address(end->ep), SC_ADDR_SIZE);
		snprintf(digits, sizeof(digits), "%08x", 0x7f000000 + i);
		memcpy(address + strlen(SC_ADDR_PREFIX) + 21, digits, 8); /* pid */
		assert_int_equal(sc_peer_get(end->ep, address, &peer), 0);
	}
}

/* However many there are, an address has one peer, and each is found again. */
static void test_many_addresses(void **state)
{
	struct sc_peer *last;

	(void)state;
	end_open(&pair[0], NULL);
	for (int round = 0; round < 2; round++) {
		know_strangers(&pair[0], 1000);
		assert_int_equal(pair[0].ep->peer_count, 1000);
	}
	last = sc_list_entry(pair[0].ep->peers.prev, struct sc_peer, all);
	sc_list_for (entry, &pair[0].ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all), *found;

		assert_int_equal(sc_peer_get(pair[0].ep, peer->address, &found), 0);
		assert_ptr_equal(found, peer);
	}
	assert_ptr_equal(sc_list_entry(pair[0].ep->peers.prev, struct sc_peer, all), last);
	end_close(&pair[0]);
}

/*
 * Killed with a message in the ring: the message is there, its payload is where it was left. That there are
 * many who need not be watched does not keep us from seeing it.
 */
static void test_killed(void **state)
{
	struct visit visit = { .size = 50000 };
	struct sc_peer *peer;
	struct child child;

	(void)state;
	end_open(&pair[1], NULL);
	know_strangers(&pair[1], 400);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, come_and_wait, &visit));
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	assert_int_equal(peer->feed, SC_FEED_UP);
	assert_int_equal(sc_peer_error(peer), 0);
	child_kill(&child);
	assert_int_equal(end_recv(&pair[1], NULL, into, 50000, 0, 0), 0);
	poll_long(&pair[1]);
	assert_int_equal(comp_take(&pair[1].rx).err, ECONNRESET);
	assert_int_equal(pair[1].ep->counters.deaths, 1);
	assert_int_equal(sc_peer_error(peer), -ECONNRESET);
	(void)sc_reap_scan(); /* another process may have been first */
	end_close(&pair[1]);
}

static void hear(struct child *child, const char *line)
{
	char text[CHILD_LINE];

	assert_int_equal(read(child->up, text, sizeof(text)), sizeof(text));
	assert_string_equal(text, line);
}

/* Waits to be killed; `arg`: it is closing when it is. */
static void wait_for_death(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	if (arg)
		sc_peers_close(ep);
	child_tell(self, "ready");
	child_wait(self);
}

/* One endpoint proves the death of an owner: the other ones refuse at once to send to it. One that has closed stays so. */
static void test_death_is_shared(void **state)
{
	(void)state;
	for (int closed = 0; closed < 2; closed++) {
		struct sc_peer *peers[2];
		struct child child;

		for (int i = 0; i < 2; i++)
			end_open(&pair[i], NULL);
		assert_true(child_start(&child, wait_for_death, closed ? &child : NULL));
		for (int i = 0; i < 2; i++) {
			assert_int_equal(sc_peer_get(pair[i].ep, child.line, &peers[i]), 0);
			assert_int_equal(sc_peer_connect(peers[i]), 0);
		}
		assert_int_equal(write(child.down, "x", 1), 1);
		hear(&child, "ready");
		child_kill(&child);
		assert_true(sc_owner_is_dead(peers[0]->seg));
		assert_int_equal(sc_load_acquire_32(&sc_seg_presence(peers[1]->seg)->state),
				 closed ? SC_ABI_CLOSED : SC_ABI_ENDED);
		for (int i = 0; i < 2; i++)
			assert_int_equal(end_send(&pair[i], peers[i], from, 8, 0, SC_SILENT), -ECONNRESET);
		(void)sc_reap_scan();
		pair_close(pair);
	}
}

/* Given up, then killed: nobody watches it any more, and yet its slot and what it was lent come back. */
static void test_killed_after_a_quarantine(void **state)
{
	struct visit visit = { .size = 50000 };
	struct sc_peer *peer;
	struct child child;

	(void)state;
	end_open(&pair[1], NULL);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, come_and_wait, &visit));
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	assert_int_equal(end_send(&pair[1], peer, from, 4096, 0, 0), 0);
	sc_peer_quarantine(peer, -ENOMEM, "a test");
	poll_long(&pair[1]);
	assert_null(peer->seg);
	assert_true(sc_seg_claims(pair[1].ep->seg)[0] != 0);
	assert_int_equal(peer->bounce.loans.count, 1); /* it may be reading yet */
	child_kill(&child);
	poll_long(&pair[1]);
	assert_true(sc_seg_claims(pair[1].ep->seg)[0] == 0);
	assert_int_equal(peer->bounce.loans.count, 0);
	assert_int_equal(pair[1].ep->pool.free_count, pair[1].ep->pool.have);
	(void)sc_reap_scan(); /* another process may have been first */
	end_close(&pair[1]);
}

/* It reads nothing and answers nothing until it is killed; `arg`: it closes its endpoint before. */
static void mute(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	if (arg)
		sc_ep_destroy(ep);
	child_wait(self);
}

/* A third process, which has nothing to do with the two. */
static void reaper(struct child *self, void *arg)
{
	(void)arg;
	CHILD_CHECK(sc_reap_scan() >= 0);
	child_tell(self, "done");
}

static void reap_by_another(void)
{
	struct child child;

	assert_true(child_start(&child, reaper, NULL));
	assert_int_equal(child_end(&child), 0);
}

/*
 * Killed before it was looked at: what it has published is taken in, also out of its own segment, which nobody
 * removes before; then its slot is free, and its name is gone.
 */
static void check_killed_before_accepted(size_t size)
{
	struct visit visit = { .size = size, .stays = true };
	struct sc_peer *peer;
	struct child child;

	end_open(&pair[1], NULL);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, visitor, &visit));
	child_kill(&child);
	(void)sc_reap_scan();
	reap_by_another();
	assert_true(core_has_file(child.line));
	assert_int_equal(end_recv(&pair[1], NULL, into, size, 0, 0), 0);
	memset(into, 0, size);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	ends_settle(&pair[1], 1);
	expect_received(&pair[1], peer, into, size, 0);
	assert_true(pattern_is(into, 0, size, 1));
	assert_int_equal(pair[1].ep->counters.accepts, 1);
	assert_int_equal(pair[1].ep->counters.deaths, 1);
	assert_int_equal(pair[1].ep->inbound_count, 0);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	assert_false(peer->left);
	(void)sc_reap_scan(); /* the name of a small message's sender, if no daemon was first */
	assert_false(core_has_file(child.line));
	end_close(&pair[1]);
}

static void test_killed_before_accepted(void **state)
{
	(void)state;
	check_killed_before_accepted(8);
	check_killed_before_accepted(1000);
	check_killed_before_accepted(30000);
}

/* The reader of the message has ended as well: the reaper waits for nobody. */
static void test_killed_both(void **state)
{
	struct visit visit = { .size = 1000, .stays = true };
	struct child owner, child;

	(void)state;
	assert_true(child_start(&owner, mute, NULL));
	memcpy(visit.address, owner.line, SC_ADDR_SIZE);
	assert_true(child_start(&child, visitor, &visit));
	child_kill(&child);
	(void)sc_reap_scan();
	assert_true(core_has_file(child.line));
	child_kill(&owner);
	(void)sc_reap_scan();
	(void)sc_reap_scan(); /* the first scan may have come to the two names in the other order */
	assert_false(core_has_file(child.line));
	assert_false(core_has_file(owner.line));
}

/* The same, and we call it before we look who has come: nobody is there, but what it has left is received. */
static void test_killed_before_called(void **state)
{
	struct visit visit = { .size = 5000, .stays = true };
	struct sc_peer *peer;
	struct child child;

	(void)state;
	end_open(&pair[1], NULL);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, visitor, &visit));
	child_kill(&child);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	assert_int_equal(end_send(&pair[1], peer, from, 8, 0, SC_SILENT), -ECONNRESET);
	assert_int_equal(end_recv(&pair[1], NULL, into, 5000, 0, 0), 0);
	ends_settle(&pair[1], 1);
	expect_received(&pair[1], peer, into, 5000, 0);
	assert_int_equal(pair[1].ep->counters.deaths, 1);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	assert_int_equal(pair[1].ep->inbound_count, 0);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	assert_null(peer->seg);
	assert_int_equal(end_send(&pair[1], peer, from, 8, 0, SC_SILENT), -ECONNRESET);
	(void)sc_reap_scan();
	end_close(&pair[1]);
}

/* We try to connect to it before, and it is not there; then we see that it has come, and receive its message. */
static void test_killed_before_connected(void **state)
{
	struct visit visit = { .size = 5000, .stays = true };
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	struct child child;

	(void)state;
	sc_process_fini(); /* the thread, which would remove the file at a time of its own */
	attr.config.daemon = false;
	for (int calls = 0; calls < 2; calls++) {
		end_open(&pair[1], &attr);
		memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
		assert_true(child_start(&child, visitor, &visit));
		child_kill(&child);
		assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
		if (!calls) {
			assert_int_equal(sc_peer_connect(peer), -ECONNREFUSED);
		} else { /* it is let in, and called before it is read */
			assert_int_not_equal(sc_peers_review(pair[1].ep, true), 0);
			assert_int_equal(peer->feed, SC_FEED_DRAINING);
			assert_true(peer->left);
			assert_int_equal(end_send(&pair[1], peer, from, 8, 0, SC_SILENT), -ECONNRESET);
		}
		assert_int_equal(end_recv(&pair[1], NULL, into, 5000, 0, 0), 0);
		ends_settle(&pair[1], 1);
		expect_received(&pair[1], peer, into, 5000, 0);
		assert_true(pattern_is(into, 0, 5000, 1));
		assert_int_equal(pair[1].ep->counters.deaths, 1);
		assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
		assert_null(peer->seg);
		assert_false(core_has_file(child.line));
		end_close(&pair[1]);
	}
}

/* Let go, it closes half: as in the middle of sc_ep_destroy(). */
static void closer(struct child *self, void *arg)
{
	struct sc_ep *ep = come(self, arg);

	child_wait(self);
	sc_peers_close(ep);
	child_tell(self, "closed");
	child_wait(self);
}

/* Killed when it has said that it closes, before it departs; `comes`: it has connected to us as well. */
static void check_killed_closing(bool comes)
{
	struct visit visit = { .size = comes ? 8 : 0 };
	struct sc_peer *peer;
	struct child child;

	end_open(&pair[1], NULL);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, closer, &visit));
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	assert_int_equal(end_send(&pair[1], peer, from, 8, 0, SC_SEND_DELIVERY), 0);
	poll_long(&pair[1]);
	assert_int_equal(peer->feed, comes ? SC_FEED_UP : SC_FEED_NONE);
	assert_int_equal(write(child.down, "x", 1), 1);
	assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
	if (comes) {
		poll_long(&pair[1]);
		assert_int_equal(peer->link, SC_LINK_UP); /* it may still depart */
	}
	child_kill(&child);
	poll_long(&pair[1]);
	assert_int_equal(comp_take(&pair[1].tx).err, ECONNRESET);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	assert_int_equal(pair[1].ep->inbound_count, 0);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	(void)sc_reap_scan();
	end_close(&pair[1]);
}

static void test_killed_closing(void **state)
{
	(void)state;
	check_killed_closing(false);
	check_killed_closing(true);
}

/* The parts of sc_ep_destroy(), with a wait after each of the first two. */
static void parter(struct child *self, void *arg)
{
	struct sc_ep *ep = come(self, arg);

	sc_peers_close(ep); /* with a message that is unread */
	child_tell(self, "closed");
	child_wait(self);
	sc_regs_leave(ep);
	sc_peers_fini(ep);
	child_tell(self, "departed");
	child_wait(self);
	sc_bell_close(&ep->bell);
	sc_pool_fini(&ep->pool);
	sc_seg_destroy(ep->seg);
}

/*
 * It has seen no answer, and keeps its file for us. We read the message, and close before we have seen it depart,
 * or before it does (`first`): then the file is kept for nobody.
 */
static void check_parting(bool first, bool reads)
{
	struct sc_ep_attr attr = end_attr();
	struct visit visit = { .size = 1000 };
	struct child child;
	struct sc_peer *peer;

	attr.config.daemon = false;
	end_open(&pair[1], &attr);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, parter, &visit));
	hear(&child, "closed");
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	ends_settle(&pair[1], 1);
	if (reads) {
		assert_int_equal(end_recv(&pair[1], NULL, into, 1000, 0, 0), 0);
		ends_settle(&pair[1], 1);
		expect_received(&pair[1], peer, into, 1000, 0);
	}
	assert_int_equal(peer->feed, SC_FEED_UP);
	if (first)
		end_close(&pair[1]);
	assert_int_equal(write(child.down, "x", 1), 1);
	hear(&child, "departed");
	assert_int_equal(core_has_file(child.line), !first);
	if (!first)
		end_close(&pair[1]);
	assert_false(core_has_file(child.line));
	assert_int_equal(child_end(&child), 0);
}

static void test_parting_unseen(void **state)
{
	(void)state;
	sc_process_fini(); /* the thread, which would remove the file at a time of its own */
	for (int how = 0; how < 4; how++)
		check_parting(how & 1, how & 2);
}

/*
 * Of two that close at once each looks at what the other has stored, behind a fence (P6): at least one of them sees it.
 */
static uint64_t *late_claim, late_value;
static uint32_t *late_state, *late_unread;

static void depart_late(void)
{
	sc_store_release_64(late_claim, late_value);
}

static void close_late(void)
{
	sc_store_release_32(late_state, SC_ABI_CLOSED);
}

/* The same, and the other has seen the goodbye: it clears the mark, and leaves the file. */
static void close_and_leave_late(void)
{
	close_late();
	*late_claim &= ~SC_ABI_CLAIM_UNREAD;
	*late_unread -= 1;
}

/* As parter(), and the other has closed when it has said goodbye; it leaves the file itself if visit->tells. */
static void parter_at_once(struct child *self, void *arg)
{
	const struct visit *visit = arg;
	struct sc_ep *ep = come(self, arg);
	struct sc_peer *peer = sc_list_entry(ep->peers.next, struct sc_peer, all);

	sc_peers_close(ep);
	sc_regs_leave(ep);
	late_state = &sc_seg_presence(peer->seg)->state;
	late_claim = &sc_seg_claims(peer->seg)[peer->out_slot];
	late_unread = &sc_seg_presence(ep->seg)->unread;
	if (!core_fencing("peer.departed", visit->tells ? close_and_leave_late : close_late))
		_exit(CHILD_SKIPS);
	sc_peers_fini(ep);
	core_failing(NULL, 0);
	CHILD_CHECK(!*late_unread); /* one of the two has counted */
	child_tell(self, "departed");
	child_wait(self);
	sc_bell_close(&ep->bell);
	sc_pool_fini(&ep->pool);
	sc_seg_destroy(ep->seg);
}

/*
 * An endpoint that closes with a message unread keeps its file, unless the reader closes at the same time. The one of the
 * two that clears the mark in the claim counts the reader off, and nobody else.
 */
static void test_goodbye_to_one_that_closes(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct visit visit = { .size = 1000 };
	struct child child;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	sc_process_fini(); /* as above */
	attr.config.daemon = false;
	for (int reader_leaves = 0; reader_leaves < 2; reader_leaves++) {
		end_open(&pair[1], &attr);
		memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
		visit.tells = reader_leaves;
		assert_true(child_start(&child, parter_at_once, &visit));
		hear(&child, "departed");
		/* the one that counts also removes the file: here nobody does so for the reader */
		assert_int_equal(core_has_file(child.line), reader_leaves);
		end_close(&pair[1]);
		assert_int_equal(child_end(&child), 0);
		assert_true(sc_reap_scan() >= 0);
	}
}

/* The reader closes, and the goodbye is there when it has said so: the reader removes the file. */
static void test_goodbye_while_we_close(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct visit visit = { .size = 1000 };
	struct child child;
	struct sc_peer *peer;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	sc_process_fini(); /* as above */
	attr.config.daemon = false;
	end_open(&pair[1], &attr);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, parter, &visit));
	hear(&child, "closed");
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	ends_settle(&pair[1], 1);
	assert_int_equal(peer->feed, SC_FEED_UP);
	assert_int_equal(write(child.down, "x", 1), 1);
	hear(&child, "departed");
	assert_true(core_has_file(child.line));
	late_claim = &sc_seg_claims(pair[1].ep->seg)[peer->in_slot];
	late_value = *late_claim;
	assert_int_equal(late_value & SC_ABI_CLAIM_STATE, SC_ABI_DEPARTED);
	*late_claim = (late_value & ~(SC_ABI_CLAIM_STATE | SC_ABI_CLAIM_UNREAD)) | SC_ABI_PUBLISHED;
	assert_true(core_fencing("peer.closed", depart_late));
	end_close(&pair[1]);
	core_failing(NULL, 0);
	assert_false(core_has_file(child.line));
	assert_int_equal(child_end(&child), 0);
}

/* Operations wait for a peer that has never polled: they end when it closes (`close`), or when it is killed. */
static void check_mute(bool close)
{
	const size_t sizes[] = { 8, 100000 };
	struct child child;
	struct sc_peer *peer;

	end_open(&pair[0], NULL);
	assert_true(child_start(&child, mute, close ? &child : NULL));
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(end_send(&pair[0], peer, from, sizes[i], 0, SC_SEND_DELIVERY), 0);
	poll_long(&pair[0]);
	assert_true(end_idle(&pair[0]));
	if (close) {
		assert_int_equal(write(child.down, "x", 1), 1);
		while (!pair[0].ep->counters.deaths && end_idle(&pair[0]))
			sc_ep_poll(pair[0].ep);
	}
	child_kill(&child);
	poll_long(&pair[0]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	assert_true(end_idle(&pair[0]));
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -ECONNRESET);
	assert_int_equal(pair[0].ep->counters.deaths, close ? 0 : 1);
	(void)sc_reap_scan();
	end_close(&pair[0]);
}

struct call {
	char address[SC_ADDR_SIZE];
	int count; /* of messages */
	const char *other;
};

/* Its name is removed by somebody else, or changed to call->other; it lives, and sends. */
static void nameless(struct child *self, void *arg)
{
	const struct call *call = arg;
	char path[SC_SHMFILE_PATH_MAX];
	struct end end;
	struct sc_peer *peer;

	child_on_its_own();
	end_open(&end, NULL);
	sc_shmfile_path(end.ep->seg->file.name, path);
	assert_int_equal(call->other ? rename(path, call->other) : unlink(path), 0);
	assert_int_equal(sc_peer_get(end.ep, call->address, &peer), 0);
	for (int i = 0; i < call->count; i++)
		assert_int_equal(end_send(&end, peer, from + i, 8, 0, SC_SILENT), 0);
	child_tell(self, sc_ep_address(end.ep));
	child_wait(self);
}

/* One that was let in though its name was gone, and dies, gives its slot back, too. */
static void test_killed_nameless(void **state)
{
	struct call call = { .count = 1 };
	struct sc_peer *peer;
	struct child child;

	(void)state;
	end_open(&pair[1], NULL);
	memcpy(call.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, nameless, &call));
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	assert_int_equal(peer->feed, SC_FEED_UP);
	assert_null(peer->seg);
	sc_peers_hear(pair[1].ep);
	assert_int_equal(peer->feed, SC_FEED_UP);
	child_kill(&child);
	sc_peers_hear(pair[1].ep);
	ends_settle(&pair[1], 1);
	assert_int_equal(end_recv(&pair[1], NULL, into, 8, 0, 0), 0);
	expect_received(&pair[1], peer, into, 8, 0);
	assert_int_equal(peer->feed, SC_FEED_DONE);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	assert_int_equal(pair[1].ep->counters.deaths, 1);
	end_close(&pair[1]);
}

/* The same, and its pid says nothing, as in another namespace: it is known to be dead once its file has its name again. */
static void test_killed_nameless_elsewhere(void **state)
{
	struct call call = { .count = 1, .other = SC_HOST_DIR "/shmcma-test-other" };
	struct sc_ep_attr attr = end_attr();
	char path[SC_SHMFILE_PATH_MAX];
	struct sc_peer *peer;
	struct child child;

	(void)state;
	sc_process_fini(); /* the thread, which would remove the file at a time of its own */
	attr.config.daemon = false;
	end_open(&pair[1], &attr);
	memcpy(call.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, nameless, &call));
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	assert_int_equal(peer->feed, SC_FEED_UP);
	assert_null(peer->seg);
	sc_seg_claims(pair[1].ep->seg)[peer->in_slot] |= SC_ABI_CLAIM_ELSEWHERE;
	child_kill(&child);
	sc_peers_hear(pair[1].ep);
	assert_int_equal(peer->feed, SC_FEED_UP);
	core_path(child.line, 0, path);
	assert_return_code(rename(call.other, path), errno);
	sc_peers_hear(pair[1].ep);
	assert_int_equal(pair[1].ep->counters.deaths, 1);
	ends_settle(&pair[1], 1);
	assert_int_equal(end_recv(&pair[1], NULL, into, 8, 0, 0), 0);
	expect_received(&pair[1], peer, into, 8, 0);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	end_close(&pair[1]);
	assert_true(sc_reap_scan() >= 0);
}

/*
 * An endpoint has sent messages, of which the first needs an answer, and its file loses its name before the other lets
 * it in: as at exit(3) (`departs`), or because somebody removes the name. The other receives the messages, and the
 * operations of the endpoint end; with `call`, the other tries to send to it first.
 */
static void vanished(bool departs, bool call)
{
	struct sc_peer *there, *back;

	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	there = end_find(&pair[0], &pair[1]);
	back = end_find(&pair[1], &pair[0]);
	assert_int_equal(end_send(&pair[0], there, from, 8, 0, SC_SEND_DELIVERY), 0);
	for (int i = 1; i < 4; i++)
		assert_int_equal(end_send(&pair[0], there, from + i, 8, 0, SC_SILENT), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(end_recv(&pair[1], NULL, into + 8 * i, 8, 0, 0), 0);
	sc_shmfile_unlink(&pair[0].ep->seg->file);
	assert_int_equal(end_recv(&pair[1], back, into, 8, 5, SC_TAGGED), 0);
	sc_ep_poll(pair[1].ep);
	assert_null(back->seg);
	if (call)
		assert_int_equal(end_send(&pair[1], back, from, 8, 0, 0), -ECONNRESET);
	ends_settle(&pair[1], 1);
	for (int i = 0; i < 4; i++)
		expect_received(&pair[1], back, into + 8 * i, 8, 0);
	for (int i = 0; i < 4; i++)
		assert_memory_equal(into + 8 * i, from + i, 8);
	assert_int_equal(comp_take(&pair[1].rx).err, ECONNRESET); /* from it alone */
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	assert_int_equal(end_send(&pair[1], back, from, 8, 0, 0), -ECONNRESET);
	assert_int_equal(back->feed, SC_FEED_DONE);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	assert_int_not_equal(sc_seg_claims(pair[1].ep->seg)[0], 0); /* it may write yet */
	if (!departs) {
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
		assert_true(end_idle(&pair[0]));
		assert_int_equal(end_send(&pair[0], there, from, 8, 0, 0), -ECONNRESET);
	}
	end_close(&pair[0]);
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	end_open(&pair[0], NULL);
	check_traffic(&pair[0], &pair[1]);
	end_close(&pair[0]);
	end_close(&pair[1]);
}

static void test_vanished(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		vanished(i & 1, i & 2);
}

/* The other has let it in without a segment, and gives it up later: it is told, though it has looked at the slot before. */
static void test_vanished_later(void **state)
{
	struct sc_peer *there, *back;

	(void)state;
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	there = end_find(&pair[0], &pair[1]);
	back = end_find(&pair[1], &pair[0]);
	assert_int_equal(end_send(&pair[0], there, from, 8, 0, SC_SILENT), 0);
	sc_shmfile_unlink(&pair[0].ep->seg->file);
	assert_int_equal(end_recv(&pair[1], NULL, into, 8, 0, 0), 0);
	ends_settle(pair, 2);
	expect_received(&pair[1], back, into, 8, 0);
	assert_int_equal(end_send(&pair[0], there, from, 8, 0, SC_SILENT), 0);
	assert_int_equal(end_send(&pair[1], back, from, 8, 0, 0), -ECONNRESET);
	ends_settle(pair, 2);
	assert_int_equal(end_send(&pair[0], there, from, 8, 0, 0), -ECONNRESET);
	assert_int_equal(there->link, SC_LINK_DOWN);
	pair_close(pair);
}

/* More messages than one poll takes, from one without a name; one poll, and the other calls. Its peer. */
#define MANY 80

static struct sc_peer *half_read(struct end *caller, struct sc_peer *to, bool departed)
{
	struct sc_peer *back = end_find(&pair[1], caller);

	for (int i = 0; i < MANY; i++)
		assert_int_equal(end_send(caller, to, from + i, 8, 0, SC_SILENT), 0);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(end_recv(&pair[1], NULL, into + 8 * i, 8, 0, 0), 0);
	sc_shmfile_unlink(&caller->ep->seg->file);
	if (departed)
		end_close(caller);
	sc_ep_poll(pair[1].ep);
	assert_int_equal(end_send(&pair[1], back, from, 8, 0, 0), -ECONNRESET);
	assert_int_equal(back->feed, SC_FEED_DRAINING);
	assert_int_equal(back->vanished, !departed);
	return back;
}

static void check_rest(struct sc_peer *back)
{
	ends_settle(&pair[1], 1);
	for (int i = 0; i < MANY; i++)
		expect_received(&pair[1], back, into + 8 * i, 8, 0);
	for (int i = 0; i < MANY; i++)
		assert_memory_equal(into + 8 * i, from + i, 8);
	assert_int_equal(back->feed, SC_FEED_DONE);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
}

/* It departs, before the call or after it, when half of what it has written has been read. */
static void test_vanished_departs(void **state)
{
	(void)state;
	for (int before = 0; before < 2; before++) {
		struct sc_peer *back;

		end_open(&pair[0], NULL);
		end_open(&pair[1], NULL);
		back = half_read(&pair[0], end_find(&pair[0], &pair[1]), before);
		if (!before)
			end_close(&pair[0]);
		sc_peers_hear(pair[1].ep);
		assert_int_equal(pair[1].ep->counters.deaths, 0); /* it has departed, which is no death */
		check_rest(back);
		end_close(&pair[1]);
	}
}

/* It is killed then. */
static void test_vanished_killed(void **state)
{
	struct call call = { .count = MANY };
	struct sc_peer *back;
	struct child child;

	(void)state;
	end_open(&pair[1], NULL);
	memcpy(call.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, nameless, &call));
	for (int i = 0; i < MANY; i++)
		assert_int_equal(end_recv(&pair[1], NULL, into + 8 * i, 8, 0, 0), 0);
	sc_ep_poll(pair[1].ep);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &back), 0);
	assert_int_equal(end_send(&pair[1], back, from, 8, 0, 0), -ECONNRESET);
	assert_true(back->vanished);
	sc_peers_hear(pair[1].ep);
	assert_true(back->vanished);
	child_kill(&child);
	sc_peers_hear(pair[1].ep);
	assert_false(back->vanished);
	assert_int_equal(back->feed, SC_FEED_DRAINING);
	check_rest(back);
	assert_int_equal(pair[1].ep->counters.deaths, 1);
	end_close(&pair[1]);
}

/* It loses its life lock, as by closefrom(3), and lives on. */
static void lockless(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;

	(void)arg;
	attr.config.daemon = false; /* which would take it again */
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	for (int fd = STDERR_FILENO + 1; fd < 1000; fd++)
		if (fd != self->up && fd != self->down)
			close(fd);
	child_tell(self, "lost");
	child_wait(self);
}

static void test_lock_lost(void **state)
{
	struct child child;
	struct sc_peer *peer;

	(void)state;
	if (!cma_allowed())
		skip();
	end_open(&pair[0], NULL);
	assert_true(child_start(&child, lockless, NULL));
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), 0);
	assert_int_equal(write(child.down, "x", 1), 1);
	assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
	assert_int_equal(sc_seg_check_owner(peer->seg), 0);
	poll_long(&pair[0]);
	assert_int_equal(pair[0].ep->counters.deaths, 0);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), 0);
	child_kill(&child);
	poll_long(&pair[0]);
	assert_int_equal(pair[0].ep->counters.deaths, 1);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), -ECONNRESET);
	(void)sc_reap_scan();
	end_close(&pair[0]);
}

static void test_closed_unheard(void **state)
{
	(void)state;
	check_mute(true);
}

static void test_killed_unheard(void **state)
{
	(void)state;
	check_mute(false);
}

/* An introduction by a living endpoint's address, by somebody who is not that one. */
static void test_anothers_introduction(void **state)
{
	struct sc_abi_slot *slot;

	(void)state;
	three_open(NULL);
	slot = claim_by_hand(1, sc_ep_address(third.ep), TICKET | SC_ABI_PUBLISHED);
	ends_settle(pair, 2);
	assert_int_equal(slot->consumer.answer, SC_ABI_REFUSED);
	assert_int_equal(slot->consumer.reason, EPROTO);
	depart_by_hand(1);
	three_close();
}

/* Closes, leaves its file to be read, and lives on. */
static void leave_file(struct child *self, void *arg)
{
	const struct sc_seg_geometry geometry = {
		.slots = 1, .buf_size = 4096, .buf_count = 2, .window = 1000
	};
	char address[SC_ADDR_SIZE];
	struct sc_seg *seg;

	(void)arg;
	CHILD_CHECK(!sc_seg_create(&geometry, &seg));
	memcpy(address, seg->header.address, sizeof(address));
	seg->keep_name = true;
	sc_store_release_32(&sc_seg_presence(seg)->unread, 1);
	sc_store_release_32(&sc_seg_presence(seg)->state, SC_ABI_CLOSED);
	sc_seg_destroy(seg);
	child_tell(self, address);
	child_wait(self);
}

/*
 * Nobody makes this endpoint look at what another has left: a claim in the name of one that has closed, by somebody else,
 * attaches nothing. The claim of that one itself is let in after it.
 */
static void test_introduction_of_one_that_has_left(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_abi_slot *slot;
	struct sc_peer *peer;
	struct child child;

	(void)state;
	sc_process_fini(); /* the thread, which would remove the file at a time of its own */
	attr.config.daemon = false;
	for (int known = 0; known < 2; known++) {
		three_open(&attr);
		assert_true(child_start(&child, leave_file, NULL));
		assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
		if (known) /* as one that is not there */
			assert_int_equal(end_send(&pair[1], peer, from, 8, 0, 0), -ECONNREFUSED);
		slot = claim_by_hand(1, child.line, TICKET | SC_ABI_PUBLISHED);
		ends_settle(pair, 2);
		assert_int_equal(slot->consumer.answer, SC_ABI_REFUSED);
		assert_int_equal(slot->consumer.reason, EPROTO);
		assert_null(peer->seg);
		depart_by_hand(1);
		claim_by_hand(1, child.line,
			      ticket_of(child.line) | SC_ABI_DEPARTED | SC_ABI_CLAIM_UNREAD);
		ends_settle(pair, 2);
		assert_int_equal(pair[1].ep->counters.accepts, 1);
		assert_false(core_has_file(child.line));
		sc_peer_put(peer);
		assert_int_equal(pair[1].ep->peer_count, 0);
		assert_int_equal(child_end(&child), 0);
		three_close();
	}
}

/* A peer that was given up before it came is refused when it comes, for the same reason. */
static void test_comes_after_a_quarantine(void **state)
{
	struct sc_peer *peer;

	(void)state;
	three_open(NULL);
	peer = end_find(&pair[0], &pair[1]);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), 0);
	ends_settle(pair, 2);
	sc_peer_quarantine(peer, -EPROTO, "a test");
	assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, 0, SC_SEND_DELIVERY),
			 0);
	ends_settle(pair, 2);
	assert_int_equal(pair[0].ep->counters.refusals, 1);
	assert_int_equal(pair[0].ep->counters.rx_unexpected, 0);
	assert_true(comp_take(&pair[1].tx).err);
	check_traffic(&third, &pair[0]);
	three_close();
}

/*
 * A connection to a peer has just failed, because the peer's file has no name any more, and the peer comes: it is refused
 * as long as it may write, and its messages are received once it has departed.
 */
static void test_comes_after_a_failed_connection(void **state)
{
	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	for (int departs = 0; departs < 2; departs++) {
		struct sc_peer *peer;

		three_open(NULL);
		peer = end_find(&pair[0], &pair[1]);
		(void)core_failing("memory.slot", ENOENT);
		assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -ECONNREFUSED);
		(void)core_failing(NULL, 0);
		assert_non_null(peer->seg);
		assert_int_equal(
			end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 1000, 0, SC_SILENT), 0);
		if (departs)
			end_close(&pair[1]);
		ends_settle(pair, 2);
		assert_int_equal(pair[0].ep->counters.accepts, departs);
		assert_int_equal(pair[0].ep->counters.refusals, !departs);
		assert_int_equal(pair[0].ep->counters.rx_unexpected, departs);
		assert_null(peer->seg);
		if (departs) {
			assert_int_equal(end_recv(&pair[0], NULL, into, 1000, 0, 0), 0);
			expect_received(&pair[0], peer, into, 1000, 0);
			assert_true(pattern_is(into, 0, 1000, 1));
		}
		three_close();
	}
}

/* A claim that waits for memory does not keep out those that come after it. */
static void test_one_waits_another_comes(void **state)
{
	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	three_open(NULL);
	assert_int_equal(end_send(&third, end_find(&third, &pair[1]), from, 8, 0, SC_SILENT), 0);
	(void)core_failing("memory.slot", ENOSPC);
	sc_ep_poll(pair[1].ep);
	(void)core_failing(NULL, 0);
	assert_true(pair[1].ep->waits);
	pair[1].ep->later_at = INT64_MAX;
	assert_int_equal(end_send(&pair[0], end_find(&pair[0], &pair[1]), from, 8, 0, SC_SILENT), 0);
	for (int i = 0; i < 3; i++)
		sc_ep_poll(pair[1].ep);
	assert_int_equal(pair[1].ep->counters.accepts, 1);
	assert_int_equal(end_find(&pair[1], &pair[0])->feed, SC_FEED_UP);
	assert_int_equal(end_find(&pair[1], &third)->feed, SC_FEED_NONE);
	pair[1].ep->later_at = 1; /* the time has come */
	ends_settle(pair, 2);
	assert_int_equal(pair[1].ep->counters.accepts, 2);
	assert_false(pair[1].ep->waits);
	three_close();
}

static int warnings;

/* Ours: the process's thread, which looks through names at any time, has none of what we take away either, and warns. */
static void count_warning(enum sc_log_level level, const char *line)
{
	(void)line;
	if (level == SC_LOG_WARN && !child_is_daemon())
		warnings++;
}

/*
 * Without a descriptor to look at it with, a newcomer waits, and that is said when it has come; it is let in when there
 * is one again.
 */
static void test_let_in_later(void **state)
{
	struct visit visit = { .size = 8, .stays = true };
	struct rlimit limit, none;
	struct child child;

	(void)state;
	end_open(&pair[1], NULL);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, visitor, &visit));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	warnings = 0;
	sc_log_set(count_warning);
	for (int i = 0; i < 100; i++) {
		usleep(1000); /* several tries, as seldom as they are */
		for (int j = 0; j < 100; j++)
			sc_ep_poll(pair[1].ep);
	}
	sc_log_set(child_log);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(pair[1].ep->counters.accepts + pair[1].ep->counters.refusals, 0);
	assert_in_range(warnings, 1, 3);
	usleep(50000);
	ends_settle(&pair[1], 1);
	assert_int_equal(pair[1].ep->counters.accepts, 1);
	assert_int_equal(child_end(&child), 0);
	end_close(&pair[1]);
}

/* A process with very many peers may map no more, although there is memory: the log names that limit. */
static void test_no_mapping_left(void **state)
{
	struct sc_peer *peer;

	(void)state;
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	peer = end_find(&pair[0], &pair[1]);
	if (!core_failing("memory.slot", ENOMEM))
		skip();
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -ENOMEM);
	assert_non_null(strstr(child_log_line, "vm.max_map_count"));
	(void)core_failing(NULL, 0);
	check_traffic(&pair[0], &pair[1]);
	pair_close(pair);
}

/*
 * A message needs an answer, and this endpoint cannot connect for it while memory is short: that is said once. Nothing
 * is lost when there is memory again, neither that message nor those before and behind it.
 */
static void test_answered_later(void **state)
{
	static const uint32_t flags[] = { SC_SEND_DELIVERY, 0 };
	static const size_t sizes[] = { 8, 100000 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct sc_peer *there;

		end_open(&pair[0], NULL);
		end_open(&pair[1], NULL);
		there = end_find(&pair[1], &pair[0]);
		assert_int_equal(end_send(&pair[1], there, from, 8, 4, SC_TAGGED | SC_SILENT), 0);
		ends_settle(pair, 2);
		assert_int_equal(end_recv(&pair[0], NULL, into, sizes[i], 5, SC_TAGGED), 0);
		if (!core_failing("memory.slot", ENOSPC))
			skip();
		warnings = 0;
		sc_log_set(count_warning);
		assert_int_equal(end_send(&pair[1], there, from, sizes[i], 5, SC_TAGGED | flags[i]), 0);
		assert_int_equal(end_send(&pair[1], there, from, 8, 6, SC_TAGGED | SC_SILENT), 0);
		while (core_failed() < 3 && !pair[0].ep->counters.quarantines)
			ends_settle(pair, 2);
		sc_log_set(child_log);
		(void)core_failing(NULL, 0);
		assert_in_range(warnings, 1, 2);
		assert_int_equal(pair[0].ep->counters.quarantines, 0);
		assert_null(sc_comp_ring_peek(&pair[0].rx));
		while (!sc_comp_ring_peek(&pair[1].tx))
			ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[1].tx).err, 0);
		expect_received(&pair[0], end_find(&pair[0], &pair[1]), into, sizes[i], 5);
		for (uint64_t tag = 4; tag < 7; tag += 2) {
			assert_int_equal(end_recv(&pair[0], NULL, into, 8, tag, SC_TAGGED), 0);
			ends_settle(pair, 2);
			expect_received(&pair[0], end_find(&pair[0], &pair[1]), into, 8, tag);
		}
		check_traffic(&pair[0], &pair[1]);
		pair_close(pair);
	}
}

/* A ring whose record waits for memory does not hide the rings behind it from a peek. */
static void test_waits_before_others(void **state)
{
	enum { SENDERS = 14, WAITS = 8 };
	struct end ends[1 + SENDERS], *waiting = NULL, *behind = NULL;
	struct sc_recv peek = { .tag = 200, .flags = SC_TAGGED | SC_RECV_PEEK };
	struct sc_peer *peer;

	(void)state;
	end_open(&ends[0], NULL);
	for (int i = 1; i <= SENDERS; i++) {
		end_open(&ends[i], NULL);
		assert_int_equal(sc_peer_connect(end_find(&ends[i], &ends[0])), 0);
	}
	ends_settle(ends, 1 + SENDERS);
	assert_int_equal(ends[0].ep->inbound_count, SENDERS);
	peer = ends[0].ep->inbound[WAITS];
	for (int i = 1; i <= SENDERS; i++) {
		const char *address = sc_ep_address(ends[i].ep);

		waiting = strcmp(address, sc_peer_address(peer)) ? waiting : &ends[i];
		behind = strcmp(address, sc_peer_address(ends[0].ep->inbound[SENDERS - 1])) ? behind
											    : &ends[i];
	}
	peer->answers_at = INT64_MAX;
	assert_int_equal(end_send(waiting, end_find(waiting, &ends[0]), from, 8, 100,
				  SC_TAGGED | SC_SILENT | SC_SEND_DELIVERY),
			 0);
	assert_int_equal(end_send(behind, end_find(behind, &ends[0]), from, 8, 200, SC_TAGGED | SC_SILENT),
			 0);
	assert_int_equal(sc_rx_recv(ends[0].ep, &peek), 0);
	assert_int_equal(comp_take(&ends[0].rx).err, 0);
	peer->answers_at = 0;
	peek.tag = 100;
	assert_int_equal(sc_rx_recv(ends[0].ep, &peek), 0);
	assert_int_equal(comp_take(&ends[0].rx).err, 0);
	for (int i = SENDERS; i >= 0; i--)
		end_close(&ends[i]);
}

/* An owner that cannot give a slot memory says so in the claim. */
static void test_refused_in_the_claim(void **state)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_peer *peer;
	struct sc_addr parts;

	(void)state;
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	peer = end_find(&pair[0], &pair[1]);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), 0);
	/* neither descriptor nor name is left to it */
	assert_int_equal(sc_addr_parse(sc_ep_address(pair[1].ep), &parts), 0);
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(close(pair[1].ep->seg->fd), 0);
	ends_settle(pair, 2);
	assert_int_equal(pair[1].ep->counters.refusals, 1);
	assert_int_equal(peer->link, SC_LINK_DOWN);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), -ECONNREFUSED);
	pair_close(pair);
}

/* Its state says that it has ended, or what no state is, and it lives: nothing is sent to it, nor is it taken for dead. */
static void test_said_to_have_ended(void **state)
{
	static const uint32_t values[] = { SC_ABI_ENDED, 0, 77, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct sc_peer *peer;

		end_open(&pair[0], NULL);
		end_open(&pair[1], NULL);
		peer = end_find(&pair[0], &pair[1]);
		assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), 0);
		sc_store_release_32(&sc_seg_presence(pair[1].ep->seg)->state, values[i]);
		for (int k = 0; k < 2; k++)
			assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), -EPROTO);
		assert_int_equal(pair[0].ep->counters.quarantines, 1);
		assert_int_equal(pair[0].ep->counters.deaths, 0);
		pair_close(pair);
	}
}

/* Its state says so, and it cannot be told whether it lives: nothing is sent to it, and it is not given up before it can. */
static void test_said_to_have_ended_unknown(void **state)
{
	struct sc_peer *peer;
	struct child child;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	end_open(&pair[0], NULL);
	assert_true(child_start(&child, mute, NULL));
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	assert_int_equal(sc_peer_connect(peer), 0);
	sc_store_release_32(&sc_seg_presence(peer->seg)->state, SC_ABI_ENDED);
	(void)core_failing("lifelock.check", ENOLCK);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), -EAGAIN);
	assert_int_equal(peer->link, SC_LINK_UP);
	(void)core_failing(NULL, 0);
	assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), -EPROTO);
	assert_int_equal(pair[0].ep->counters.quarantines, 1);
	assert_int_equal(pair[0].ep->counters.deaths, 0);
	child_kill(&child);
	end_close(&pair[0]);
	assert_true(sc_reap_scan() >= 0);
}

/* Waits until the child has stopped (WUNTRACED) or goes on (WCONTINUED). */
static void signal_and_await(const struct child *child, int signal, int what)
{
	int status;

	assert_return_code(kill(child->pid, signal), errno);
	assert_int_equal(waitpid(child->pid, &status, what), child->pid);
}

/* As sc_peer_is_overdue() some time after the last look. */
static bool is_overdue(struct sc_peer *peer)
{
	peer->xfer.seen = 0;
	return sc_peer_is_overdue(peer);
}

/*
 * A peer that has something of ours in hand is overdue once it has been seen to run often enough. That it is stopped, or
 * that nobody can tell, begins the count anew. The log says it once.
 */
static void test_overdue(void **state)
{
	struct visit visit = { .size = 8 };
	struct sc_peer *peer;
	struct child child;
	uint64_t *word;
	pid_t pid;
	int looks;

	(void)state;
	end_open(&pair[1], NULL);
	memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
	assert_true(child_start(&child, come_and_wait, &visit));
	ends_settle(&pair[1], 1);
	assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
	pid = peer->seg->cma_pid;
	assert_int_equal(pid, child.pid);
	sc_watch_del(&peer->watch); /* the core's own thread reads that pid, too */
	/* it says that it writes */
	word = &sc_seg_slot(pair[1].ep->seg, peer->in_slot)->hazards.words[0];
	assert_false(sc_peer_writes(peer));
	sc_store_release_64(word, SC_ABI_HAZARD_OP);
	assert_true(sc_peer_writes(peer));

	for (int stopped = 0; stopped < 2; stopped++) {
		assert_false(is_overdue(peer));
		assert_int_not_equal(peer->xfer.runs, 0);
		if (stopped)
			signal_and_await(&child, SIGSTOP, WUNTRACED);
		else
			peer->seg->cma_pid = 0;
		assert_false(is_overdue(peer));
		assert_int_equal(peer->xfer.runs, 0);
		if (stopped)
			signal_and_await(&child, SIGCONT, WCONTINUED);
		peer->seg->cma_pid = pid;
	}
	for (looks = 1; !is_overdue(peer); looks++)
		assert_in_range(looks, 1, 1000);
	assert_int_equal(looks, peer->xfer.runs);
	assert_non_null(strstr(child_log_line, "breaks the rules"));
	child_log_line[0] = '\0';
	assert_true(is_overdue(peer));
	assert_string_equal(child_log_line, "");
	peer->xfer.seen = 0;
	assert_false(sc_peer_writes(peer));
	peer->xfer.runs = 0;
	assert_true(sc_peer_writes(peer));

	child_kill(&child);
	assert_false(sc_peer_writes(peer));
	ends_settle(&pair[1], 1);
	sc_store_release_64(word, 0);
	end_close(&pair[1]);
	assert_true(sc_reap_scan() >= 0);
}

/*
 * This process ends, as libfabric's destructor says, and goes on for a while. The name of a segment stays as long as
 * one is to let it in who lives; without it there is no new connection.
 */
static void test_end_of_process(void **state)
{
	struct child child, second, late;
	struct sc_peer *peer;

	(void)state;
	assert_true(child_start(&child, mute, NULL));
	assert_true(child_start(&late, mute, NULL));
	end_open(&pair[0], NULL);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	assert_int_equal(end_send(&pair[0], peer, from, 3000, 0, SC_SILENT), 0);
	sc_process_fini();
	assert_true(core_has_file(sc_ep_address(pair[0].ep)));
	assert_int_equal(end_send(&pair[0], peer, from, 3000, 0, SC_SILENT), 0);
	/* a name that stays does for new connections, too */
	assert_true(child_start(&second, mute, NULL));
	assert_int_equal(sc_peer_get(pair[0].ep, second.line, &peer), 0);
	assert_int_equal(end_send(&pair[0], peer, from, 3000, 0, SC_SILENT), 0);
	child_kill(&second);
	child_kill(&child);
	sc_process_fini(); /* nobody is left who needs it */
	assert_false(core_has_file(sc_ep_address(pair[0].ep)));
	assert_int_equal(sc_peer_get(pair[0].ep, late.line, &peer), 0);
	for (int k = 0; k < 2; k++)
		assert_int_equal(end_send(&pair[0], peer, from, 3000, 0, SC_SILENT), -ESHUTDOWN);
	assert_int_equal(sc_seg_claims(peer->seg)[0], 0);
	child_kill(&late);
	end_close(&pair[0]);
}

#ifdef SC_FAULT_INJECTION

/* When the parent lets it go, it connects, sends a message and ends. */
static void late_visitor(struct child *self, void *arg)
{
	const struct visit *visit = arg;
	struct iovec iov = { from, visit->size };
	struct sc_send send = { .iov = &iov, .iov_count = 1, .tag = 5, .flags = SC_TAGGED | SC_SILENT };
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	struct sc_ep *ep;

	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	child_wait(self);
	CHILD_CHECK(!sc_peer_get(ep, visit->address, &peer));
	CHILD_CHECK(!sc_tx_send(ep, peer, &send));
	if (visit->tells) {
		child_tell(self, "sent");
		child_wait(self);
	}
	if (!visit->stays)
		sc_ep_destroy(ep);
}

static struct child late;

/* Opens pair[0], and a process that comes when it is let go. */
static struct sc_peer *late_start(struct visit *visit)
{
	struct sc_peer *peer;

	end_open(&pair[0], NULL);
	memcpy(visit->address, sc_ep_address(pair[0].ep), SC_ADDR_SIZE);
	assert_true(child_start(&late, late_visitor, visit));
	assert_int_equal(sc_peer_get(pair[0].ep, late.line, &peer), 0);
	return peer;
}

static int let_go_at_attach(const char *point)
{
	if (strcmp(point, "otherfile.peer"))
		return 0;
	(void)core_failing(NULL, 0);
	assert_int_equal(child_end(&late), 0);
	return 0;
}

/*
 * A peer comes, sends and ends between this endpoint's look at the claims and its own connection. The endpoint receives
 * the message, whether a receive from the peer or a send to it makes the connection, and whether the peer has closed.
 */
static void test_gone_amid_a_connection(void **state)
{
	struct visit visit = { .size = 1000 };
	struct sc_peer *peer;

	(void)state;
	for (int i = 0; i < 4; i++) {
		visit.stays = i & 1;
		peer = late_start(&visit);
		(void)core_failing(NULL, 0);
		sc_fault_hook = let_go_at_attach;
		if (i & 2)
			assert_int_equal(end_send(&pair[0], peer, from, 8, 0, SC_SILENT), -ECONNRESET);
		for (uint64_t tag = 5; tag < 7; tag++)
			assert_int_equal(end_recv(&pair[0], peer, into, 1000, tag, SC_TAGGED), 0);
		ends_settle(pair, 1);
		(void)expect_received(&pair[0], peer, into, 1000, 5);
		assert_int_equal(comp_take(&pair[0].rx).err, ECONNRESET); /* the second one */
		assert_true(end_idle(&pair[0]));
		end_close(&pair[0]);
	}
}

/*
 * A peer to which this endpoint is connected comes and sends while the endpoint has no memory for its slot, and ends when
 * there is memory again: its message is received, though the time for the next try has not come.
 */
static void test_gone_while_put_off(void **state)
{
	struct visit visit = { .size = 1000, .tells = true };
	char line[CHILD_LINE];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct sc_peer *peer;

		visit.stays = i;
		peer = late_start(&visit);
		for (uint64_t tag = 5; tag < 7; tag++)
			assert_int_equal(end_recv(&pair[0], peer, into, 1000, tag, SC_TAGGED), 0);
		assert_int_equal(peer->link, SC_LINK_UP);
		(void)core_failing("memory.slot", ENOSPC);
		assert_int_equal(send(late.down, "", 1, 0), 1);
		assert_int_equal(read(late.up, line, sizeof(line)), sizeof(line));
		sc_ep_poll(pair[0].ep);
		assert_true(pair[0].ep->waits);
		pair[0].ep->later_at = INT64_MAX;
		(void)core_failing(NULL, 0);
		assert_int_equal(child_end(&late), 0);
		while (end_idle(&pair[0]))
			sc_ep_poll(pair[0].ep);
		(void)expect_received(&pair[0], peer, into, 1000, 5);
		ends_settle(pair, 1);
		assert_int_equal(comp_take(&pair[0].rx).err, ECONNRESET);
		end_close(&pair[0]);
	}
}

static int let_go_at_map(const char *point)
{
	return strcmp(point, "seg.madvise") ? 0 : let_go_at_attach("otherfile.peer");
}

/* A peer closes while this endpoint, which has found it open, maps its segment: what it has sent is received. */
static void test_gone_while_mapped(void **state)
{
	struct visit visit = { .size = 1000, .tells = true };
	char line[CHILD_LINE];
	struct sc_peer *peer;

	(void)state;
	peer = late_start(&visit);
	assert_int_equal(send(late.down, "", 1, 0), 1);
	assert_int_equal(read(late.up, line, sizeof(line)), sizeof(line));
	(void)core_failing(NULL, 0);
	sc_fault_hook = let_go_at_map;
	assert_int_equal(end_recv(&pair[0], NULL, into, 1000, 5, SC_TAGGED), 0);
	sc_ep_poll(pair[0].ep);
	assert_ptr_equal(sc_fault_hook, core_at_point); /* it has gone */
	ends_settle(pair, 1);
	(void)expect_received(&pair[0], peer, into, 1000, 5);
	assert_true(pattern_is(into, 0, 1000, 1));
	assert_int_equal(pair[0].ep->counters.departures, 1);
	assert_int_equal(sc_seg_claims(pair[0].ep->seg)[0], 0);
	end_close(&pair[0]);
}

/* A peer that has come, and not been answered, closes: a send to it does not complete, and what it sent is received. */
static void test_gone_before_it_is_called(void **state)
{
	struct visit visit = { .size = 1000 };
	struct sc_peer *peer;

	(void)state;
	for (int i = 0; i < 2; i++) {
		end_open(&pair[1], NULL);
		memcpy(visit.address, sc_ep_address(pair[1].ep), SC_ADDR_SIZE);
		assert_true(child_start(&late, come_and_wait, &visit));
		assert_int_equal(sc_peer_get(pair[1].ep, late.line, &peer), 0);
		assert_true(sc_peers_have_heard(pair[1].ep, late.line)); /* no poll has been */
		assert_int_equal(peer->feed, SC_FEED_UP);
		if (i) { /* its file has lost its name */
			(void)core_failing("memory.slot", ENOENT);
			assert_int_equal(end_send(&pair[1], peer, from, 8, 0, SC_SILENT), -ECONNRESET);
			(void)core_failing(NULL, 0);
		}
		child_kill(&late);
		if (!i) {
			assert_true(sc_peer_is_dead(peer)); /* and says so to all */
			assert_int_equal(end_send(&pair[1], peer, from, 8, 0, SC_SILENT), -EAGAIN);
		}
		assert_int_equal(end_recv(&pair[1], NULL, into, 1000, 0, 0), 0);
		ends_settle(&pair[1], 1);
		(void)expect_received(&pair[1], peer, into, 1000, 0);
		assert_int_equal(end_send(&pair[1], peer, from, 8, 0, SC_SILENT), -ECONNRESET);
		end_close(&pair[1]);
	}
}

static int end_at_intro(const char *point)
{
	if (strcmp(point, "connect.intro"))
		return 0;
	(void)core_failing(NULL, 0);
	sc_process_fini();
	return 0;
}

/* This process ends while it is connecting: its claim, which is not published yet, keeps the name. */
static void test_end_amid_a_claim(void **state)
{
	struct child child;
	struct sc_peer *peer;

	(void)state;
	assert_true(child_start(&child, mute, NULL));
	end_open(&pair[0], NULL);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	(void)core_failing(NULL, 0);
	sc_fault_hook = end_at_intro;
	assert_int_equal(sc_peer_connect(peer), 0);
	assert_true(core_has_file(sc_ep_address(pair[0].ep)));
	child_kill(&child);
	end_close(&pair[0]);
}

/*
 * The end of the process and a connection in another thread: each stores, behind a fence (E1) looks at what the other has
 * stored, and so one of them at least sees the other.
 */
static struct sc_seg *late_target;

static void claim_late(void)
{
	sc_store_release_64(&sc_seg_claims(late_target)[0],
			    ticket_of(sc_ep_address(pair[0].ep)) | SC_ABI_CLAIMED);
}

static void ask_late(void)
{
	sc_store_relaxed_32(&pair[0].ep->seg->file.end, SC_SHMFILE_ASKED);
}

static void test_claim_while_it_ends(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct child child;

	(void)state;
	assert_true(child_start(&child, mute, NULL));
	sc_process_fini(); /* the thread, which has fences of its own */
	attr.config.daemon = false;
	end_open(&pair[0], &attr);
	assert_int_equal(sc_seg_attach(child.line, &late_target), 0);
	assert_true(core_fencing(NULL, claim_late));
	sc_process_fini();
	(void)core_failing(NULL, 0);
	assert_true(core_has_file(sc_ep_address(pair[0].ep)));
	sc_seg_detach(late_target);
	child_kill(&child);
	end_close(&pair[0]);
}

static void test_end_while_it_claims(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct child child;
	struct sc_peer *peer;

	(void)state;
	assert_true(child_start(&child, mute, NULL));
	sc_process_fini(); /* as above */
	attr.config.daemon = false;
	end_open(&pair[0], &attr);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
	assert_true(core_fencing("connect.claimed", ask_late));
	assert_int_equal(sc_peer_connect(peer), -EAGAIN); /* it is being decided whether the name stays */
	(void)core_failing(NULL, 0);
	assert_int_equal(sc_seg_claims(peer->seg)[0], 0);
	sc_store_relaxed_32(&pair[0].ep->seg->file.end, SC_SHMFILE_NAMED);
	assert_int_equal(sc_peer_connect(peer), 0);
	child_kill(&child);
	end_close(&pair[0]);
}

#endif

/* We have found it closed; then there is a claim of it. Unless it has taken that back, it may yet write. */
static void test_claim_of_the_closed(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_abi_slot *slot;
	struct child child;

	(void)state;
	sc_process_fini(); /* the thread, which would remove the file at a time of its own */
	attr.config.daemon = false;
	for (int how = 0; how < 4; how++) {
		uint64_t claim = how & 1 ? SC_ABI_DEPARTED | SC_ABI_CLAIM_UNREAD : SC_ABI_PUBLISHED;
		bool has_file = how & 2;
		struct sc_peer *peer;

		three_open(&attr);
		assert_true(child_start(&child, leave_file, NULL));
		if (!has_file) {
			assert_true(sc_reap_scan() >= 0); /* unless the thread has seen it first */
			assert_false(core_has_file(child.line));
		}
		assert_int_equal(sc_peer_get(pair[1].ep, child.line, &peer), 0);
		assert_int_equal(end_send(&pair[1], peer, from, 8, 0, 0), -ECONNREFUSED);
		assert_int_equal(peer->link, SC_LINK_DOWN);
		slot = claim_by_hand(2, child.line, ticket_of(child.line) | claim);
		ends_settle(&pair[1], 1);
		assert_int_equal(pair[1].ep->counters.accepts, claim != SC_ABI_PUBLISHED);
		if (claim == SC_ABI_PUBLISHED)
			assert_int_equal(slot->consumer.answer, SC_ABI_REFUSED);
		else
			assert_int_equal(sc_seg_claims(pair[1].ep->seg)[2], 0); /* read, and free again */
		/* the one reader that the file was left for has read it */
		assert_int_equal(core_has_file(child.line), has_file && claim == SC_ABI_PUBLISHED);
		assert_null(peer->seg);
		assert_false(peer->left);
		assert_int_equal(child_end(&child), 0);
		three_close();
		assert_true(sc_reap_scan() >= 0);
	}
}

/* Memory or descriptors are short for a while: nothing is lost, and the next call connects. */
static void test_short_for_a_while(void **state)
{
	static const int errors[] = { EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC };
	struct sc_peer *peer;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	three_open(NULL);
	peer = end_find(&pair[0], &pair[1]);
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		core_failing("memory.slot", errors[i]);
		assert_int_equal(end_send(&pair[0], peer, from, 8, 0, 0), -errors[i]);
		assert_int_equal(peer->link, SC_LINK_NONE);
		assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	}
	core_failing(NULL, 0);
	check_traffic(&pair[0], &pair[1]);
	three_close();
}

/* A slot whose memory cannot be given back is cleared, or kept out of use if nobody knows whether it has any. */
static void test_slot_not_given_back(void **state)
{
	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	three_open(NULL);
	check_traffic(&pair[0], &pair[1]);
	core_failing("memory.slot", EIO);
	end_close(&pair[0]);
	ends_settle(&pair[1], 1);
	core_failing(NULL, 0);
	assert_int_equal(sc_seg_claims(pair[1].ep->seg)[0], 0);
	end_open(&pair[0], NULL);
	check_traffic(&pair[0], &pair[1]);
	three_close();
}

/* sc_peer_ended() for a peer that has not ended: the peer is lost only if it has not connected to this endpoint. */
static void test_ended_alive(void **state)
{
	struct sc_peer *to;

	(void)state;
	three_open(NULL);
	to = end_find(&pair[0], &pair[1]);
	check_traffic(&pair[0], &pair[1]);
	check_traffic(&pair[1], &pair[0]);
	sc_peer_ended(to);
	assert_int_equal(to->link, SC_LINK_UP);
	assert_int_equal(to->feed, SC_FEED_UP);
	check_traffic(&third, &pair[1]);
	to = end_find(&third, &pair[1]);
	assert_int_equal(to->feed, SC_FEED_NONE);
	sc_peer_ended(to);
	assert_int_equal(to->link, SC_LINK_DOWN);
	assert_int_equal(end_send(&third, to, from, 8, 0, 0), -ECONNRESET);
	three_close();
}

/* An endpoint that closes asks how far the peer has read. If the peer has written nonsense, no file is left for it. */
static void test_closing_to_a_scribbler(void **state)
{
	char address[SC_ADDR_SIZE];

	(void)state;
	for (int scribbles = 0; scribbles < 2; scribbles++) {
		struct sc_peer *peer;
		struct child child;

		end_open(&pair[0], NULL);
		memcpy(address, sc_ep_address(pair[0].ep), sizeof(address));
		assert_true(child_start(&child, mute, NULL));
		assert_int_equal(sc_peer_get(pair[0].ep, child.line, &peer), 0);
		assert_int_equal(end_send(&pair[0], peer, from, 1000, 0, SC_SILENT), 0);
		if (scribbles)
			sc_store_release_64(&peer->tx.consumer->head, 12345);
		end_close(&pair[0]);
		assert_int_equal(core_has_file(address), !scribbles);
		child_kill(&child);
		assert_true(sc_reap_scan() >= 0);
		assert_false(core_has_file(address));
	}
}

/* An endpoint that does not know its pid namespace says in its claim that its pid may be another process's here. */
static void test_unknown_namespace(void **state)
{
	struct end ends[2];
	uint64_t claim;

	(void)state;
	end_open(&ends[0], NULL);
	end_open(&ends[1], NULL);
	ends[0].ep->seg->header.owner.pid_ns = 0;
	ends[0].peer = end_find(&ends[0], &ends[1]);
	assert_int_equal(sc_peer_connect(ends[0].peer), 0);
	claim = sc_load_acquire_64(&sc_seg_claims(ends[1].ep->seg)[ends[0].peer->out_slot]);
	assert_true(claim & SC_ABI_CLAIM_ELSEWHERE);
	ends_settle(ends, 2);
	assert_int_equal(ends[1].ep->counters.accepts, 1);
	end_close(&ends[0]);
	ends_settle(&ends[1], 1);
	assert_int_equal(ends[1].ep->counters.departures, 1);
	end_close(&ends[1]);
}

/* ---- an address that is opened again --------------------------------------------------------- */

#define INDEX 3
#define AGAIN_MANY 10000

/* Those of pair[1], each under the same address. */
static struct sc_ep_name again_name;

static void again_open(void)
{
	struct sc_ep_attr attr = end_attr();

	attr.name = &again_name;
	attr.index = INDEX;
	attr.config.buf_count = 16;
	end_open(&pair[1], &attr);
}

static void again_begin(void)
{
	assert_int_equal(sc_ep_name_init(&again_name), 0);
	end_open(&pair[0], NULL);
	again_open();
	pair[0].peer = end_find(&pair[0], &pair[1]);
}

/* A message to pair[1], as soon as it can be: how often it could not. */
static int again_send(size_t size, uint32_t flags)
{
	int refused = 0, ret;

	while ((ret = end_send(&pair[0], pair[0].peer, from, size, 7, SC_TAGGED | flags)) == -EAGAIN) {
		assert_true(refused++ < 10);
		sc_ep_poll(pair[0].ep);
	}
	assert_int_equal(ret, 0);
	return refused;
}

static void again_receive(size_t size)
{
	memset(into, 0, size);
	assert_int_equal(end_recv(&pair[1], NULL, into, size, 7, SC_TAGGED), 0);
	ends_settle(pair, 2);
	expect_received(&pair[1], end_find(&pair[1], &pair[0]), into, size, 7);
	assert_true(pattern_is(into, 0, size, 1));
}

/* The two talk; pair[1] closes, pair[0] has seen that, and pair[1] opens again. */
static void again_come_back(void)
{
	again_begin();
	assert_int_equal(again_send(8, SC_SILENT), 0);
	again_receive(8);
	end_close(&pair[1]);
	ends_settle(pair, 1);
	again_open();
}

/* Nothing is left of the last one. */
static void check_again(void)
{
	const struct sc_ep *ep = pair[0].ep;

	assert_int_equal(ep->peer_count, 1);
	assert_int_equal(ep->inbound_count, pair[0].peer->feed == SC_FEED_UP);
	assert_int_equal(ep->pool.free_count + pair[0].peer->bounce.loans.count, ep->pool.have);
	if (pair[0].peer->link == SC_LINK_DOWN)
		assert_int_equal(pair[0].peer->bounce.loans.count, 0);
	assert_int_equal(sc_slab_used(&ep->tx_ops), 0);
	assert_int_equal(ep->counters.quarantines + ep->counters.refusals + ep->counters.deaths, 0);
	for (uint32_t i = 1; i < ep->seg->header.slot_count; i++)
		assert_int_equal(sc_seg_claims(ep->seg)[i], 0);
}

/* Has the sender noticed that the last one closed, and been told; has it been answered by it? */
static void test_again(void **state)
{
	(void)state;
	for (int known = 0; known < 3; known++)
		for (int answered = 0; answered < 2; answered++)
			for (size_t size = 8; size <= sizeof(from); size *= 100) {
				uint32_t flags = answered ? SC_SEND_DELIVERY : 0;
				struct sc_peer *peer;

				again_begin();
				peer = pair[0].peer;
				assert_int_equal(again_send(size, flags), 0);
				again_receive(size);
				assert_int_equal(comp_take(&pair[0].tx).err, 0);
				end_close(&pair[1]);
				if (known)
					ends_settle(pair, 1);
				if (known == 2)
					for (int i = 0; i < 3; i++)
						assert_int_equal(end_send(&pair[0], peer, from, size, 7, 0),
								 -ECONNRESET);
				again_open();
				assert_ptr_equal(end_find(&pair[0], &pair[1]), peer);
				assert_true(again_send(size, flags) == 0 || !known);
				again_receive(size);
				assert_int_equal(comp_take(&pair[0].tx).err, 0);
				assert_int_equal(pair[0].ep->counters.connects, 2);
				check_again();
				end_close(&pair[1]);
				ends_settle(pair, 1);
				check_again();
				end_close(&pair[0]);
			}
}

static int count_lines(const char *path)
{
	FILE *file = fopen(path, "r");
	int lines = 0, c;

	assert_non_null(file);
	while ((c = fgetc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1000; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_again_many_times(void **state)
{
	int fds, maps;

	(void)state;
	again_begin();
	fds = count_fds();
	maps = count_lines("/proc/self/maps");
	for (int i = 0; i < AGAIN_MANY; i++) {
		(void)again_send(8, i % 2 ? SC_SEND_DELIVERY : SC_SILENT);
		if (i % 4 == 3) {
			ends_settle(pair, 2); /* it is answered, or is not; it is received, or is not */
			if (i % 8 == 7)
				again_receive(8);
		}
		end_close(&pair[1]);
		if (i % 3 == 0)
			sc_ep_poll(pair[0].ep);
		again_open();
		while (sc_comp_ring_peek(&pair[0].tx))
			(void)comp_take(&pair[0].tx);
	}
	(void)again_send(8, SC_SILENT);
	again_receive(8);
	check_again();
	/* others of this process have some, too: each opening would have left one */
	assert_in_range(count_fds(), 0, fds + 50);
	assert_in_range(count_lines("/proc/self/maps"), 0, maps + 200);
	end_close(&pair[1]);
	ends_settle(pair, 1);
	check_again();
	end_close(&pair[0]);
}

/* Operations to the last endpoint end before a message goes to the new one; the answers of the last one still count. */
static void test_again_first_what_was(void **state)
{
	struct sc_peer *back;

	(void)state;
	again_begin();
	assert_int_equal(again_send(sizeof(from), 0), 0);
	assert_int_equal(again_send(8, SC_SEND_DELIVERY), 0);
	ends_settle(pair, 2);
	memset(into, 0, sizeof(into));
	assert_int_equal(end_recv(&pair[1], NULL, into, 8, 7, SC_TAGGED), 0); /* the large one, cut off */
	back = end_find(&pair[1], &pair[0]);
	assert_int_equal(sc_peer_can_answer(back), true);
	sc_ep_poll(pair[1].ep); /* its answer is on its way */
	end_close(&pair[1]);
	again_open();
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 7, SC_TAGGED | SC_SILENT), -EAGAIN);
	assert_true(again_send(8, SC_SILENT) > 0);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
	assert_true(end_idle(&pair[0]));
	again_receive(8);
	assert_int_equal(pair[1].ep->counters.rx_msgs, 1);
	check_again();
	pair_close(pair);
}

/* A receive from a source that is lost is refused, but not one from a source that is back. */
static void test_again_directed(void **state)
{
	struct sc_peer *peer;
	char byte;

	(void)state;
	again_begin();
	peer = pair[0].peer;
	assert_int_equal(again_send(8, SC_SILENT), 0);
	again_receive(8);
	assert_int_equal(end_recv(&pair[0], peer, &byte, 1, 5, SC_TAGGED), 0);
	end_close(&pair[1]);
	ends_settle(pair, 1);
	assert_int_equal(comp_take(&pair[0].rx).err, ECONNRESET);
	assert_int_equal(end_recv(&pair[0], peer, &byte, 1, 5, SC_TAGGED), -ECONNRESET);
	again_open();
	assert_int_equal(end_recv(&pair[0], peer, &byte, 1, 5, SC_TAGGED), 0);
	(void)again_send(8, SC_SILENT);
	again_receive(8);
	/* and it comes */
	assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 1, 5, SC_TAGGED), 0);
	ends_settle(pair, 2);
	expect_received(&pair[0], peer, &byte, 1, 5);
	/* one that has sent messages that still wait is not taken for another */
	assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 1, 6, SC_TAGGED), 0);
	ends_settle(pair, 2);
	end_close(&pair[1]);
	ends_settle(pair, 1);
	again_open();
	assert_int_equal(end_send(&pair[0], peer, from, 8, 7, SC_TAGGED), -ECONNRESET);
	assert_int_equal(end_recv(&pair[0], peer, &byte, 1, 6, SC_TAGGED), 0);
	expect_received(&pair[0], peer, &byte, 1, 6);
	(void)again_send(8, SC_SILENT);
	again_receive(8);
	pair_close(pair);
}

/* A receive from a source that is back is taken although the slot there has no memory yet. */
static void test_again_directed_without_slot(void **state)
{
	char byte;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	again_come_back();
	(void)core_failing("memory.slot", ENOSPC);
	assert_int_equal(end_recv(&pair[0], pair[0].peer, &byte, 1, 5, SC_TAGGED), 0);
	(void)core_failing(NULL, 0);
	assert_int_equal(pair[0].peer->link, SC_LINK_NONE);
	assert_int_equal(
		end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 1, 5, SC_TAGGED | SC_SILENT), 0);
	ends_settle(pair, 2);
	expect_received(&pair[0], pair[0].peer, &byte, 1, 5);
	pair_close(pair);
}

/* Two endpoints of one name are lost, and the first one is back: the source still knows of the second one. */
static void test_again_of_two(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_source *source;
	struct sc_peer *other;

	(void)state;
	again_begin();
	attr.name = &again_name;
	attr.index = INDEX + 1;
	end_open(&third, &attr);
	other = end_find(&pair[0], &third);
	source = pair[0].peer->source;
	assert_ptr_equal(other->source, source);
	assert_int_equal(again_send(8, SC_SILENT), 0);
	again_receive(8);
	assert_int_equal(end_send(&pair[0], other, from, 8, 7, SC_TAGGED | SC_SILENT), 0);
	end_close(&pair[1]);
	ends_settle(pair, 1);
	assert_ptr_equal(source->lost, pair[0].peer);
	end_close(&third);
	ends_settle(pair, 1);
	assert_ptr_equal(source->lost, other);
	again_open();
	assert_int_equal(again_send(8, SC_SILENT), 0);
	again_receive(8);
	assert_int_equal(source->met, 1);
	assert_ptr_equal(source->lost, other);
	assert_int_equal(source->error, -ECONNRESET);
	pair_close(pair);
}

/* There is a file, kept for a third to read in it: its owner has closed that as well. */
static void test_again_closed(void **state)
{
	char address[SC_ADDR_SIZE];

	(void)state;
	again_begin();
	assert_int_equal(again_send(8, SC_SILENT), 0);
	memcpy(address, sc_ep_address(pair[1].ep), sizeof(address));
	end_close(&pair[1]);
	ends_settle(pair, 1);
	again_open();
	end_open(&third, NULL);
	assert_int_equal(sc_peer_connect(end_find(&third, &pair[1])), 0);
	assert_int_equal(end_send(&pair[1], end_find(&pair[1], &third), from, 3000, 7, SC_TAGGED | SC_SILENT), 0);
	end_close(&pair[1]);
	assert_true(core_has_file(address));
	for (int i = 0; i < 3; i++)
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 7, SC_TAGGED), -ECONNRESET);
	ends_settle(&third, 1);
	assert_int_equal(third.ep->counters.rx_unexpected, 1);
	assert_false(core_has_file(address));
	end_close(&third);
	again_open();
	(void)again_send(8, SC_SILENT);
	again_receive(8);
	pair_close(pair);
}

/* Before a new connection all claims are looked at, as one may be of the last endpoint: one that has to wait is waited for. */
static void test_again_while_one_waits(void **state)
{
	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	again_come_back();
	end_open(&third, NULL);
	assert_int_equal(end_send(&third, end_find(&third, &pair[0]), from, 8, 0, SC_SILENT), 0);
	(void)core_failing("memory.slot", ENOSPC);
	for (int i = 0; i < 2; i++)
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 7, SC_TAGGED), -EAGAIN);
	(void)core_failing(NULL, 0);
	assert_true(pair[0].ep->waits);
	assert_int_equal(again_send(8, SC_SILENT), 0);
	assert_int_equal(pair[0].ep->counters.accepts, 1);
	again_receive(8);
	end_close(&third);
	pair_close(pair);
}

/* An endpoint that may be opened again closes: its address is free at once, although the peer has not read all answers. */
static void test_again_unread(void **state)
{
	struct sc_ep_attr attr = end_attr();

	(void)state;
	assert_int_equal(sc_ep_name_init(&again_name), 0);
	attr.name = &again_name;
	attr.index = INDEX;
	attr.reopens = true;
	end_open(&pair[0], NULL);
	end_open(&pair[1], &attr);
	pair[1].peer = end_find(&pair[1], &pair[0]);
	assert_int_equal(end_send(&pair[1], pair[1].peer, from, 2000, 7, SC_TAGGED | SC_SILENT), 0);
	assert_true(pair[1].peer->bounce.loans.count);
	end_close(&pair[1]);
	end_open(&pair[1], &attr);
	pair_close(pair);
}

/* Opens, and opens again each time it is told to. */
static void open_again_and_again(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_ep *ep;
	char byte;

	attr.name = arg;
	attr.index = INDEX;
	do {
		CHILD_CHECK(!sc_ep_create(&attr, &ep));
		child_tell(self, sc_ep_address(ep));
		CHILD_CHECK(read(self->down, &byte, 1) == 1);
		if (byte == 'c')
			sc_ep_destroy(ep);
	} while (byte == 'c');
	_exit(0); /* as a process that is killed */
}

/* Its only slot is taken. It sends a message that wants an answer, which the parent cannot give, and waits for its death. */
static void full_sender(struct child *self, void *arg)
{
	struct sc_ep_attr one = end_attr();
	struct end end;

	child_on_its_own();
	one.config.slots = 1;
	end_open(&end, &one);
	assert_int_equal(sc_peer_get(end.ep, arg, &end.peer), 0);
	child_tell(self, sc_ep_address(end.ep));
	while (!end.ep->counters.accepts)
		sc_ep_poll(end.ep);
	assert_int_equal(end_send(&end, end.peer, from, 8, 5, SC_TAGGED | SC_SEND_DELIVERY), 0);
	for (;;)
		sc_ep_poll(end.ep);
}

/*
 * A receive from a full peer that was given up ends when that peer dies. It is not taken while the peer cannot be attached
 * again.
 */
static void directed_at_one_given_up(bool lacks_memory)
{
	struct sc_peer *peer, *full;
	struct child child;

	end_open(&pair[0], NULL);
	end_open(&third, NULL);
	assert_true(child_start(&child, full_sender, (void *)sc_ep_address(pair[0].ep)));
	assert_int_equal(sc_peer_get(third.ep, child.line, &peer), 0);
	assert_int_equal(end_send(&third, peer, from, 8, 5, SC_TAGGED | SC_SILENT), 0);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &full), 0);
	assert_int_equal(end_recv(&pair[0], NULL, into, 8, 5, SC_TAGGED), 0);
	while (!pair[0].ep->counters.quarantines || full->in_slot != SC_PEER_NO_SLOT)
		sc_ep_poll(pair[0].ep);
	ends_settle(pair, 1);
	expect_received(&pair[0], full, into, 8, 5);
	assert_null(full->seg);
	if (lacks_memory) {
		end_close(&third); /* it has the child's segment mapped */
		if (core_failing("seg.mmap", ENOMEM))
			for (int i = 0; i < 2; i++)
				assert_int_equal(end_recv(&pair[0], full, into, 8, 6, SC_TAGGED), -ENOMEM);
		(void)core_failing(NULL, 0);
	}
	assert_int_equal(end_recv(&pair[0], full, into, 8, 6, SC_TAGGED), 0);
	assert_true(end_idle(&pair[0]));
	child_kill(&child);
	while (end_idle(&pair[0]))
		sc_ep_poll(pair[0].ep);
	assert_int_equal(comp_take(&pair[0].rx).err, ECONNRESET);
	if (!lacks_memory)
		end_close(&third);
	end_close(&pair[0]);
	(void)sc_reap_scan();
}

static void test_directed_at_one_given_up(void **state)
{
	(void)state;
	directed_at_one_given_up(false);
	directed_at_one_given_up(true);
}

/* Posts a receive from pair[1], which is full; `given_up`: after it has sent a message that cannot be answered. */
static struct sc_peer *direct_at_full(bool given_up)
{
	struct sc_peer *full;

	full_open();
	full = end_find(&pair[0], &pair[1]);
	if (given_up) {
		assert_int_equal(end_recv(&pair[0], NULL, into, 8, 4, SC_TAGGED), 0);
		assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, 4,
					  SC_TAGGED | SC_SEND_DELIVERY),
				 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].rx).err, 0);
		assert_true(full->full && full->link == SC_LINK_DOWN);
	}
	assert_int_equal(end_recv(&pair[0], full, into, 8, 5, SC_TAGGED), 0);
	assert_true(full->full && full->seg && full->link == SC_LINK_NONE);
	return full;
}

/* A receive from a full peer ends when that closes, and its process lives; also if the caller has put it meanwhile. */
static void test_directed_at_full(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct sc_peer *full = direct_at_full(i / 2);
		int64_t limit = INT64_MAX;
		struct sc_sleep sleep;

		if (i % 2)
			sc_peer_put(full);
		ends_settle(pair, 1);
		assert_int_equal(sc_ep_rest(pair[0].ep, &sleep, &limit), 0);
		assert_true(limit != INT64_MAX); /* a sleeper looks, too */
		sc_ep_rise(pair[0].ep);
		end_close(&pair[1]);
		ends_settle(pair, 1);
		assert_int_equal(comp_take(&pair[0].rx).err, ECONNRESET);
		end_close(&third);
		end_close(&pair[0]);
	}
}

/* A full peer that a receive waits for comes: polls look at it no longer, as it tells this side when it closes. */
static void test_full_comes(void **state)
{
	struct sc_peer *full;

	(void)state;
	full = direct_at_full(false);
	assert_false(sc_list_empty(&full->work[SC_WORK_UNANSWERED]));
	assert_int_equal(
		end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 8, 5, SC_TAGGED | SC_SILENT), 0);
	ends_settle(pair, 2);
	expect_received(&pair[0], full, into, 8, 5);
	assert_true(sc_list_empty(&full->work[SC_WORK_UNANSWERED]));
	end_close(&third);
	pair_close(pair);
}

/* Messages that a closed endpoint has left unread wait until there is memory to map its segment. */
static void test_left_unmapped(void **state)
{
	struct sc_peer *peer;

	(void)state;
	end_open(&pair[0], NULL);
	end_open(&pair[1], NULL);
	if (!core_failing("seg.mmap", ENOMEM))
		skip();
	core_failing(NULL, 0);
	assert_int_equal(
		end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 2000, 5, SC_TAGGED | SC_SILENT), 0);
	assert_int_equal(pair[1].ep->counters.tx_bounce, 1);
	peer = end_find(&pair[0], &pair[1]);
	end_close(&pair[1]);
	assert_int_equal(end_recv(&pair[0], NULL, into, 2000, 5, SC_TAGGED), 0);
	assert_true(core_failing("seg.mmap", ENOMEM));
	for (int i = 0; i < 3000; i++)
		sc_ep_poll(pair[0].ep);
	assert_true(end_idle(&pair[0]));
	core_failing(NULL, 0);
	while (end_idle(&pair[0]))
		sc_ep_poll(pair[0].ep);
	expect_received(&pair[0], peer, into, 2000, 5);
	assert_memory_equal(into, from, 2000);
	end_close(&pair[0]);
}

/* The connection between pair[0] and the last one, before the new one comes. */
enum last { ANSWERED, CAME, CAME_UNSEEN, UNANSWERED, FULL, FULL_CAME, LASTS };

static void last_meets(enum last last)
{
	struct sc_ep_attr one = end_attr();
	char byte;

	if (last == ANSWERED || last == UNANSWERED) {
		assert_int_equal(again_send(8, last == ANSWERED ? SC_SEND_DELIVERY : SC_SILENT), 0);
		again_receive(8);
		if (last == ANSWERED)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
	} else if (last < FULL) {
		assert_int_equal(end_recv(&pair[1], end_find(&pair[1], &pair[0]), &byte, 1, 5, SC_TAGGED),
				 0);
		if (last == CAME)
			ends_settle(pair, 2);
	} else {
		end_close(&pair[1]);
		one.name = &again_name;
		one.index = INDEX;
		one.config.slots = 1;
		end_open(&pair[1], &one);
		assert_int_equal(end_send(&third, end_find(&third, &pair[1]), from, 8, 0, SC_SILENT), 0);
		if (last == FULL_CAME) {
			assert_int_equal(
				end_recv(&pair[1], end_find(&pair[1], &pair[0]), &byte, 1, 5, SC_TAGGED),
				0);
			ends_settle(pair, 1);
			assert_int_equal(pair[0].peer->feed, SC_FEED_UP);
		}
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), -EUSERS);
	}
}

/* The new one first posts a receive from a peer that has known the last one: that peer lets it in. */
static void test_again_comes_first(void **state)
{
	struct sc_peer *back;
	char byte;

	(void)state;
	for (enum last last = ANSWERED; last < LASTS; last++)
		for (int seen = 0; seen < 2; seen++) {
			again_begin();
			end_open(&third, NULL);
			last_meets(last);
			end_close(&pair[1]);
			if (seen)
				ends_settle(pair, 1);
			again_open();
			back = end_find(&pair[1], &pair[0]);
			assert_int_equal(end_recv(&pair[1], back, &byte, 1, 5, SC_TAGGED), 0);
			while (!sc_peer_has_come(back) && back->link == SC_LINK_UP) {
				sc_ep_poll(pair[0].ep);
				sc_ep_poll(pair[1].ep);
			}
			assert_int_equal(back->link, SC_LINK_UP);
			assert_int_equal(pair[0].peer->feed, SC_FEED_UP);
			assert_int_equal(pair[0].peer->link, SC_LINK_NONE);
			assert_int_equal(
				end_send(&pair[0], pair[0].peer, from, 1, 5, SC_TAGGED | SC_SILENT), 0);
			ends_settle(pair, 2);
			expect_received(&pair[1], back, &byte, 1, 5);
			assert_int_equal(pair[0].ep->counters.refusals, 0);
			end_close(&third);
			pair_close(pair);
		}
}

/* This side sends before it polls: a claim that the last one has left does not end the link to the new one. */
static void test_again_written_first(void **state)
{
	(void)state;
	for (enum last last = ANSWERED; last < LASTS; last++)
		for (int looks = 0; looks < 2; looks++) {
			again_begin();
			end_open(&third, NULL);
			last_meets(last);
			end_close(&pair[1]);
			again_open();
			if (looks) /* as a receive from one peer does, when it is posted */
				(void)sc_peers_review(pair[0].ep, true);
			(void)again_send(8, SC_SILENT);
			ends_settle(pair, 2);
			again_receive(8);
			assert_int_equal(again_send(8, SC_SILENT), 0);
			again_receive(8);
			assert_int_equal(end_send(&pair[1], end_find(&pair[1], &pair[0]), from, 1, 5,
						  SC_TAGGED | SC_SILENT),
					 0);
			assert_int_equal(end_recv(&pair[0], pair[0].peer, into, 1, 5, SC_TAGGED), 0);
			ends_settle(pair, 2);
			expect_received(&pair[0], pair[0].peer, into, 1, 5);
			check_again();
			end_close(&third);
			pair_close(pair);
		}
}

static bool replaces;

/* In this side's own segment, for a claim that it has read and lets in next: the claimant is another one by then. */
int fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (replaces) {
		replaces = false;
		end_close(&pair[1]);
		again_open();
	}
	return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}

/* The last endpoint closes, and the next one opens, while this side lets the last one in. */
static void test_again_while_let_in(void **state)
{
	char byte;

	(void)state;
	again_begin();
	assert_int_equal(end_recv(&pair[1], end_find(&pair[1], &pair[0]), &byte, 1, 5, SC_TAGGED), 0);
	replaces = true;
	sc_ep_poll(pair[0].ep);
	assert_false(replaces);
	for (int i = 0; i < 2; i++) {
		(void)again_send(8, SC_SILENT);
		ends_settle(pair, 2);
		again_receive(8);
	}
	check_again();
	pair_close(pair);
}

/* Of another process; with too little of what it takes for a while, or what cannot be; and it ends. */
static void test_again_elsewhere(void **state)
{
	static const struct {
		const char *point;
		int error, ret;
	} fails[] = {
		{ "shmfile.named", EIO, -ECONNRESET }, /* it looks as if nobody is there */
		{ "otherfile.peer", EMFILE, -EMFILE }, /* it may be there */
		{ "seg.mmap", ENOMEM, -ENOMEM },       /* it is there */
		{ "seg.mmap", EPERM, -ECONNRESET },    /* it stays lost */
	};
	struct child child;
	int ret = 0;

	(void)state;
	assert_int_equal(sc_ep_name_init(&again_name), 0);
	assert_true(child_start(&child, open_again_and_again, &again_name));
	end_open(&pair[0], NULL);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &pair[0].peer), 0);
	for (int i = 0; i < 20; i++) {
		int fail = i / 2 % 4;

		if (i % 2 && core_failing(fails[fail].point, fails[fail].error)) {
			ends_settle(pair, 1);
			ret = end_send(&pair[0], pair[0].peer, from, 8, 7, SC_TAGGED | SC_SILENT);
			assert_int_equal(ret, fails[fail].ret);
			core_failing(NULL, 0);
		}
		(void)again_send(8, SC_SILENT);
		assert_int_equal(pair[0].ep->counters.connects, i + 1);
		assert_int_equal(write(child.down, "c", 1), 1);
		assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
	}
	assert_int_equal(write(child.down, "e", 1), 1);
	assert_int_equal(child_reap(&child), 0);
	ends_settle(pair, 1);
	for (int i = 0; i < 3; i++) {
		while ((ret = end_send(&pair[0], pair[0].peer, from, 8, 7, SC_TAGGED | SC_SILENT)) == -EAGAIN)
			sc_ep_poll(pair[0].ep);
		assert_int_equal(ret, -ECONNRESET);
	}
	check_again();
	end_close(&pair[0]);
	(void)sc_reap_scan();
}

/*
 * A receive from a peer that cannot be mapped just now is not taken: nothing would tell of the death of that peer. One
 * line says why. It is taken if only the slot there has no memory: this endpoint watches the peer then.
 */
static void test_directed_without_memory(void **state)
{
	struct child child;
	char byte;

	(void)state;
	assert_int_equal(sc_ep_name_init(&again_name), 0);
	assert_true(child_start(&child, open_again_and_again, &again_name));
	end_open(&pair[0], NULL);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &pair[0].peer), 0);
	warnings = 0;
	sc_log_set(count_warning);
	if (core_failing("seg.mmap", ENOMEM)) {
		assert_int_equal(end_recv(&pair[0], pair[0].peer, &byte, 1, 5, SC_TAGGED), -EAGAIN);
		assert_int_equal(warnings, 1);
	}
	sc_log_set(child_log);
	if (core_failing("memory.slot", ENOSPC)) {
		assert_int_equal(end_recv(&pair[0], pair[0].peer, &byte, 1, 5, SC_TAGGED), 0);
		assert_int_equal(pair[0].peer->link, SC_LINK_NONE);
		(void)core_failing(NULL, 0);
	} else {
		assert_int_equal(end_recv(&pair[0], pair[0].peer, &byte, 1, 5, SC_TAGGED), 0);
	}
	assert_int_equal(write(child.down, "e", 1), 1);
	assert_int_equal(child_reap(&child), 0);
	while (end_idle(&pair[0]))
		sc_ep_poll(pair[0].ep);
	assert_int_equal(comp_take(&pair[0].rx).err, ECONNRESET);
	end_close(&pair[0]);
	(void)sc_reap_scan();
}

/* Opens one, to which another one of this process is connected and stays so; opens it again when it is told to. */
static void open_again_beside(struct child *self, void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct end beside;
	struct sc_ep *ep;
	char byte;

	attr.name = arg;
	attr.index = INDEX;
	end_open(&beside, NULL);
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_peer_get(beside.ep, sc_ep_address(ep), &beside.peer));
	CHILD_CHECK(!sc_peer_reach(beside.peer));
	child_tell(self, sc_ep_address(ep));
	CHILD_CHECK(read(self->down, &byte, 1) == 1);
	sc_ep_destroy(ep);
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	child_tell(self, sc_ep_address(ep));
	CHILD_CHECK(read(self->down, &byte, 1) == 1);
	_exit(0);
}

/* Another endpoint of each process has not looked since, and still has the segment of the last one. */
static void test_again_beside_others(void **state)
{
	struct sc_peer *peer;
	struct child child;

	(void)state;
	assert_int_equal(sc_ep_name_init(&again_name), 0);
	assert_true(child_start(&child, open_again_beside, &again_name));
	end_open(&pair[0], NULL);
	end_open(&third, NULL);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &pair[0].peer), 0);
	assert_int_equal(sc_peer_get(third.ep, child.line, &peer), 0);
	assert_int_equal(sc_peer_reach(peer), 0);
	(void)again_send(8, SC_SILENT);
	assert_int_equal(write(child.down, "c", 1), 1);
	assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
	(void)again_send(8, SC_SILENT);
	assert_int_equal(pair[0].ep->counters.connects, 2);
	assert_int_equal(write(child.down, "e", 1), 1);
	assert_int_equal(child_reap(&child), 0);
	end_close(&third);
	end_close(&pair[0]);
	(void)sc_reap_scan();
}

/* It has been opened again, and its process has ended: a receive from there does not wait for it. */
static void test_again_and_dead(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct child child;
	char byte;

	(void)state;
	sc_process_fini(); /* the thread, which would remove the file at a time of its own */
	attr.config.daemon = false;
	assert_int_equal(sc_ep_name_init(&again_name), 0);
	assert_true(child_start(&child, open_again_and_again, &again_name));
	end_open(&pair[0], &attr);
	assert_int_equal(sc_peer_get(pair[0].ep, child.line, &pair[0].peer), 0);
	(void)again_send(8, SC_SILENT);
	assert_int_equal(write(child.down, "c", 1), 1);
	assert_int_equal(read(child.up, child.line, CHILD_LINE), CHILD_LINE);
	ends_settle(pair, 1);
	assert_int_equal(end_recv(&pair[0], pair[0].peer, &byte, 1, 5, SC_TAGGED), 0); /* it is back */
	assert_int_equal(write(child.down, "e", 1), 1);
	assert_int_equal(child_reap(&child), 0);
	assert_true(core_has_file(child.line));
	poll_long(&pair[0]);
	assert_int_equal(comp_take(&pair[0].rx).err, ECONNRESET);
	assert_true(core_has_file(child.line));
	assert_int_equal(end_recv(&pair[0], pair[0].peer, &byte, 1, 6, SC_TAGGED), -ECONNRESET);
	end_close(&pair[0]);
	assert_true(sc_reap_scan() >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_cross),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_has_come),
		cmocka_unit_test(test_slots_taken),
		cmocka_unit_test(test_heard_but_not_reached),
		cmocka_unit_test(test_not_reached_and_gone),
		cmocka_unit_test(test_again_before_it_departs),
		cmocka_unit_test(test_again_unread),
		cmocka_unit_test(test_again_with_a_message),
		cmocka_unit_test(test_half_way),
		cmocka_unit_test(test_nobody_there),
		cmocka_unit_test(test_unknown_namespace),
		cmocka_unit_test(test_bad_introductions),
		cmocka_unit_test(test_claims_under_way),
		cmocka_unit_test(test_claimed_twice),
		cmocka_unit_test(test_gone_when_accepted),
		cmocka_unit_test(test_impostor),
		cmocka_unit_test(test_claims_come_and_go),
		cmocka_unit_test(test_claims_of_the_dead),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_claim_overwritten),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_only_come),
		cmocka_unit_test(test_departures),
		cmocka_unit_test(test_slot_is_used_again),
		cmocka_unit_test(test_slot_after_a_broken_end),
		cmocka_unit_test(test_slot_after_a_quarantine),
		cmocka_unit_test(test_quarantine_after_departure),
		cmocka_unit_test(test_slot_keeps_its_memory),
		cmocka_unit_test(test_departure_after_loss),
		cmocka_unit_test(test_directed),
		cmocka_unit_test(test_visitors),
		cmocka_unit_test(test_closed_but_alive),
		cmocka_unit_test(test_many_addresses),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_death_is_shared),
		cmocka_unit_test(test_killed_after_a_quarantine),
		cmocka_unit_test(test_killed_before_accepted),
		cmocka_unit_test(test_killed_both),
		cmocka_unit_test(test_killed_before_called),
		cmocka_unit_test(test_killed_before_connected),
		cmocka_unit_test(test_killed_closing),
		cmocka_unit_test(test_parting_unseen),
		cmocka_unit_test(test_goodbye_to_one_that_closes),
		cmocka_unit_test(test_goodbye_while_we_close),
		cmocka_unit_test(test_killed_nameless),
		cmocka_unit_test(test_killed_nameless_elsewhere),
		cmocka_unit_test(test_vanished),
		cmocka_unit_test(test_vanished_later),
		cmocka_unit_test(test_vanished_departs),
		cmocka_unit_test(test_vanished_killed),
		cmocka_unit_test(test_lock_lost),
		cmocka_unit_test(test_closed_unheard),
		cmocka_unit_test(test_killed_unheard),
		cmocka_unit_test(test_anothers_introduction),
		cmocka_unit_test(test_introduction_of_one_that_has_left),
		cmocka_unit_test(test_comes_after_a_quarantine),
		cmocka_unit_test(test_comes_after_a_failed_connection),
		cmocka_unit_test(test_one_waits_another_comes),
		cmocka_unit_test(test_let_in_later),
		cmocka_unit_test(test_no_mapping_left),
		cmocka_unit_test(test_answered_later),
		cmocka_unit_test(test_waits_before_others),
		cmocka_unit_test(test_refused_in_the_claim),
		cmocka_unit_test(test_said_to_have_ended),
		cmocka_unit_test(test_said_to_have_ended_unknown),
		cmocka_unit_test(test_overdue),
		cmocka_unit_test(test_end_of_process),
#ifdef SC_FAULT_INJECTION
		cmocka_unit_test(test_end_amid_a_claim),
		cmocka_unit_test(test_gone_amid_a_connection),
		cmocka_unit_test(test_gone_while_put_off),
		cmocka_unit_test(test_gone_while_mapped),
		cmocka_unit_test(test_gone_before_it_is_called),
		cmocka_unit_test(test_claim_published_late),
		cmocka_unit_test(test_departs_while_refused),
		cmocka_unit_test(test_claim_while_it_ends),
		cmocka_unit_test(test_end_while_it_claims),
#endif
		cmocka_unit_test(test_claim_of_the_closed),
		cmocka_unit_test(test_short_for_a_while),
		cmocka_unit_test(test_slot_not_given_back),
		cmocka_unit_test(test_ended_alive),
		cmocka_unit_test(test_closing_to_a_scribbler),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_again_many_times),
		cmocka_unit_test(test_again_first_what_was),
		cmocka_unit_test(test_again_directed),
		cmocka_unit_test(test_again_directed_without_slot),
		cmocka_unit_test(test_again_of_two),
		cmocka_unit_test(test_again_comes_first),
		cmocka_unit_test(test_again_written_first),
		cmocka_unit_test(test_again_while_let_in),
		cmocka_unit_test(test_left_unmapped),
		cmocka_unit_test(test_directed_at_one_given_up),
		cmocka_unit_test(test_directed_at_full),
		cmocka_unit_test(test_full_comes),
		cmocka_unit_test(test_again_closed),
		cmocka_unit_test(test_again_while_one_waits),
		cmocka_unit_test(test_again_elsewhere),
		cmocka_unit_test(test_again_beside_others),
		cmocka_unit_test(test_directed_without_memory),
		cmocka_unit_test(test_again_and_dead),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests_name("peer", tests, setup, NULL);
}
