/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core_pair.h: endpoints of one process for the unit tests of the data path.
 *
 * Two connected endpoints take the way of large payloads that a test asks for: inside the process, by
 * process_vm_readv(2) of the process itself, or in pieces as between processes that may not read each
 * other. Nothing here waits: endpoints are polled until nothing moves, in a number of rounds with a limit.
 *
 * To be included after cmocka.h.
 */
#ifndef CORE_PAIR_H
#define CORE_PAIR_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "child.h"
#include "core_test.h"
#include "link/peer.h"
#include "link/connect.h"
#include "link/state.h"
#include "shm/memory.h"
#include "../pattern.h"

#define PAIR_ROUNDS 1000000
#define PAIR_GUARD 64 /* bytes on each side of a receive buffer */

enum way { WAY_LOCAL, WAY_CMA, WAY_PULL, WAYS };

/* For a child that may crash, or fail in cmocka's checks: it ends by that, and does not go on with the tests. */
static inline void child_on_its_own(void)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_DFL);
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

struct end {
	struct sc_ep *ep;
	struct sc_comp_ring tx, rx;
	struct sc_peer *peer; /* the other of a pair */
};

static inline int pair_setup(void **state)
{
	(void)state;
	watchdog_start(NULL, 0);
	sc_log_set(child_log);
	return 0;
}

static inline struct sc_ep_attr end_attr(void)
{
	struct sc_ep_attr attr = { .tx_size = 256, .rx_size = 1024 };

	sc_config_init(&attr.config);
	attr.config.slots = 16;
	return attr;
}

/* `attr` NULL: the defaults. Its queues are made here. */
static inline void end_open(struct end *end, const struct sc_ep_attr *attr)
{
	struct sc_ep_attr own = attr ? *attr : end_attr();

	*end = (struct end){ 0 };
	assert_return_code(sc_comp_ring_init(&end->tx, 1024), 0);
	assert_return_code(sc_comp_ring_init(&end->rx, 1024), 0);
	own.tx_cq = &end->tx;
	own.rx_cq = &end->rx;
	assert_int_equal(sc_ep_create(&own, &end->ep), 0);
}

static inline void end_close(struct end *end)
{
	if (end->ep)
		sc_ep_destroy(end->ep);
	sc_comp_ring_fini(&end->tx);
	sc_comp_ring_fini(&end->rx);
	*end = (struct end){ 0 };
}

/* Memory that its segment has, in blocks of 512 bytes. */
static inline blkcnt_t end_blocks(struct end *end)
{
	struct stat st;

	assert_return_code(fstat(sc_shmfile_fd(&end->ep->seg->file), &st), errno);
	return st.st_blocks;
}

static inline struct sc_peer *end_find(struct end *end, const struct end *other)
{
	struct sc_peer *peer = NULL;

	assert_int_equal(sc_peer_get(end->ep, sc_ep_address(other->ep), &peer), 0);
	return peer;
}

/* Poll all of them until nothing has moved for some rounds: there are more rings than one poll looks at. */
static inline void ends_settle(struct end *ends, size_t count)
{
	int quiet = 0;

	for (long rounds = 0; quiet < 8; rounds++) {
		int moved = 0;

		assert_true(rounds < PAIR_ROUNDS);
		for (size_t i = 0; i < count; i++)
			if (ends[i].ep)
				moved += sc_ep_poll(ends[i].ep);
		quiet = moved ? 0 : quiet + 1;
	}
}

/* Receives that are posted there. */
static inline size_t core_posted(const struct sc_ep *ep)
{
	return sc_match_posted(&ep->rxq->tagged) + sc_match_posted(&ep->rxq->plain);
}

/* How payload for `end` from that peer is to go. */
static inline void end_take_way(struct end *end, struct sc_peer *peer, enum way way)
{
	(void)end;
	assert_non_null(peer->seg);
	peer->seg->local = way == WAY_LOCAL;
	peer->can_read = way == WAY_CMA || way == WAY_LOCAL;
}

/* Connected in both directions. */
static inline void pair_connect(struct end *pair, enum way way)
{
	for (int i = 0; i < 2; i++) {
		pair[i].peer = end_find(&pair[i], &pair[!i]);
		if (pair[i].peer->link == SC_LINK_NONE)
			assert_int_equal(sc_peer_connect(pair[i].peer), 0);
	}
	ends_settle(pair, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pair[i].peer->link, SC_LINK_UP);
		assert_int_equal(pair[i].peer->feed, SC_FEED_UP);
		end_take_way(&pair[i], pair[i].peer, way);
	}
}

static inline void pair_open(struct end *pair, const struct sc_ep_attr *attr, enum way way)
{
	end_open(&pair[0], attr);
	end_open(&pair[1], attr);
	pair_connect(pair, way);
}

/* Records of a line that find room in a ring that nobody reads: one says that it has grown, one is for an overflow. */
#define PAIR_RING_ROOM (SC_RING_ROOM - 1)

/* Of a pair that has exchanged nothing yet: the first one's ring to the other has grown. */
static inline void pair_grow(struct end *from, struct end *to)
{
	assert_true(sc_ring_may_grow(&from->peer->tx) && from->peer->tx.tail == to->peer->rx.head);
	assert_int_equal(sc_seg_slot_grow(from->peer->seg, from->peer->out_slot), 0);
	sc_ring_grow(&from->peer->tx);
	sc_ring_grown(&to->peer->rx);
}

static inline void pair_close(struct end *pair)
{
	end_close(&pair[0]);
	end_close(&pair[1]);
}

/* May this process read itself? Some sandboxes forbid it. */
static inline bool cma_allowed(void)
{
	uint64_t there = 42, here = 0;
	struct iovec to = { &here, sizeof(here) }, from = { &there, sizeof(there) };

	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof(here) && here == there)
		return true;
	puts("needs cross memory attach");
	return false;
}

static inline bool way_possible(enum way way)
{
	return way != WAY_CMA || cma_allowed();
}

/*
 * LIFE_WELL: the peer's word of life stays as it is. LIFE_ENDED: the word says at once that the peer's process has
 * ended. LIFE_ENDS: the word says so as soon as this process has read memory of the peer.
 */
enum life { LIFE_WELL, LIFE_ENDED, LIFE_ENDS, LIVES };

static uint32_t *life_word;

#ifdef SC_FAULT_INJECTION

static inline int life_at_point(const char *point)
{
	if (!strcmp(point, "cma.readv.done"))
		sc_store_release_32(life_word, SC_ABI_LIFE_ENDED);
	return 0;
}

#endif

/* Changes the peer's word of life. Returns its former value, for life_restore(); 0: this build cannot do that. */
static inline uint32_t life_take(const struct sc_peer *peer, enum life life)
{
	uint32_t before;

	if (life == LIFE_ENDS && !core_failing(NULL, 0))
		return 0;
	life_word = &sc_seg_presence(peer->seg)->life;
	watchdog_await(sc_load_acquire_32(life_word)); /* its thread may have to begin */
	before = sc_load_acquire_32(life_word);
	if (life == LIFE_ENDED)
		sc_store_release_32(life_word, SC_ABI_LIFE_ENDED);
#ifdef SC_FAULT_INJECTION
	if (life == LIFE_ENDS)
		sc_fault_hook = life_at_point;
#endif
	return before;
}

static inline void life_restore(uint32_t before)
{
	(void)core_failing(NULL, 0);
	sc_store_release_32(life_word, before);
}

/* ---- messages -------------------------------------------------------------------------------- */

static inline int end_sendv(struct end *end, struct sc_peer *to, const struct iovec *iov, size_t iov_count,
			    uint64_t tag, uint32_t flags, void *context)
{
	struct sc_send send = { .iov = iov,
				.iov_count = iov_count,
				.tag = tag,
				.data = ~tag,
				.context = context,
				.cq_flags = 0x5e4d,
				.flags = flags };

	return sc_tx_send(end->ep, to, &send);
}

static inline int end_send(struct end *end, struct sc_peer *to, const void *buf, size_t size, uint64_t tag,
			   uint32_t flags)
{
	struct iovec iov = { (void *)buf, size };

	return end_sendv(end, to, &iov, 1, tag, flags, (void *)buf);
}

static inline int end_recvv(struct end *end, struct sc_peer *source, const struct iovec *iov,
			    size_t iov_count, uint64_t tag, uint64_t ignore, uint32_t flags, void *context)
{
	struct sc_recv recv = { .iov = iov,
				.iov_count = iov_count,
				.source = source,
				.tag = tag,
				.ignore = ignore,
				.context = context,
				.cq_flags = 0x7ec4,
				.flags = flags };

	return sc_rx_recv(end->ep, &recv);
}

static inline int end_recv(struct end *end, struct sc_peer *source, void *buf, size_t size, uint64_t tag,
			   uint32_t flags)
{
	struct iovec iov = { buf, size };

	return end_recvv(end, source, &iov, 1, tag, 0, flags, buf);
}

static inline bool end_idle(struct end *end)
{
	return !sc_comp_ring_peek(&end->tx) && !sc_comp_ring_peek(&end->rx);
}

/* The next completion, which is there. */
static inline struct sc_comp comp_take(struct sc_comp_ring *cq)
{
	struct sc_comp *there = sc_comp_ring_peek(cq), comp;

	assert_non_null(there);
	comp = *there;
	sc_comp_ring_release(cq);
	return comp;
}

static inline void expect_sent(struct end *end, const void *context, size_t size)
{
	struct sc_comp comp = comp_take(&end->tx);

	assert_int_equal(comp.err, 0);
	assert_ptr_equal(comp.context, context);
	assert_int_equal(comp.len, size);
	assert_int_equal(comp.cq_flags, 0x5e4d);
	assert_int_equal(comp.flags & SC_COMP_RECV, 0);
}

static inline struct sc_comp expect_received(struct end *end, const struct sc_peer *source,
					     const void *context, size_t size, uint64_t tag)
{
	struct sc_comp comp = comp_take(&end->rx);

	assert_int_equal(comp.err, 0);
	assert_ptr_equal(comp.context, context);
	assert_int_equal(comp.len, size);
	assert_int_equal(comp.tag, tag);
	assert_int_equal(comp.cq_flags, 0x7ec4);
	assert_true(comp.flags & SC_COMP_RECV);
	assert_ptr_equal(comp.source, source);
	return comp;
}

/* ---- payload --------------------------------------------------------------------------------- */

static inline uint64_t pair_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* A receive buffer between guard bytes; free with guarded_free(). */
static inline uint8_t *guarded_alloc(size_t size)
{
	uint8_t *all = malloc(size + 2 * PAIR_GUARD);

	assert_non_null(all);
	memset(all, 0xa5, size + 2 * PAIR_GUARD);
	return all + PAIR_GUARD;
}

/* Nothing was written outside the first `used` bytes of the buffer. */
static inline bool guarded_intact(const uint8_t *buf, size_t size, size_t used)
{
	for (size_t i = 0; i < PAIR_GUARD; i++)
		if (buf[-1 - (long)i] != 0xa5)
			return false;
	for (size_t i = used; i < size + PAIR_GUARD; i++)
		if (buf[i] != 0xa5)
			return false;
	return true;
}

static inline void guarded_free(uint8_t *buf)
{
	free(buf - PAIR_GUARD);
}

#endif
