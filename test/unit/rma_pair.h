/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rma_pair.h: a pair as in core_pair.h whose second end has memory registered, and processes that have
 * some, for the unit tests of one-sided operations.
 *
 * To be included after cmocka.h.
 */
#ifndef RMA_PAIR_H
#define RMA_PAIR_H

#include <pthread.h>
#include <sched.h>
#include "core_pair.h"
#include "link/record.h"
#include "rma/rma.h"

/* How bytes get from one to the other. */
static const struct route {
	const char *name;
	bool strict;
	enum way way;
} routes[] = {
	{ "copied inside the process", false, WAY_LOCAL },
	{ "copied by CMA", false, WAY_CMA },
	{ "done by the owner, by CMA", true, WAY_CMA },
	{ "done by the owner, through bounce buffers", true, WAY_PULL },
	{ "not permitted: through bounce buffers", false, WAY_PULL },
};
#define ROUTES (sizeof(routes) / sizeof(routes[0]))

#define SPACE 600000
static struct end pair[2];
static struct sc_regtab *tab[2];
static struct sc_cntr cntrs[2][SC_EVENTS];
static uint8_t *space; /* registered with pair[1], between guards */
static uint8_t from[SPACE];
static struct sc_reg *reg;
static void (*adjust)(struct sc_config *config); /* changes the configuration of both endpoints, if not NULL */
static bool uncounted; /* no endpoint has counters, so that no target has to hear of an operation */

static inline int setup(void **state)
{
	pattern_fill(from, 0, sizeof(from), 1);
	return pair_setup(state);
}

static inline struct sc_reg *reg_open(struct sc_regtab *of, void *buf, size_t len, uint32_t flags)
{
	struct iovec range = { buf, len };
	struct sc_reg_attr attr = { .ranges = &range, .range_count = 1, .flags = flags };
	struct sc_reg *opened;

	assert_int_equal(sc_reg_open(of, &attr, &opened), 0);
	return opened;
}

static inline void rma_open(const struct route *route)
{
	memset(cntrs, 0, sizeof(cntrs));
	for (int i = 0; i < 2; i++) {
		struct sc_ep_attr attr = end_attr();

		attr.config.strict = route->strict;
		if (adjust)
			adjust(&attr.config);
		assert_int_equal(sc_regtab_create(&tab[i]), 0);
		attr.regtab = tab[i];
		for (int event = 0; event < SC_EVENTS && !uncounted; event++)
			attr.cntrs[event] = &cntrs[i][event];
		end_open(&pair[i], &attr);
	}
	pair_connect(pair, route->way);
	space = guarded_alloc(SPACE);
	reg = reg_open(tab[1], space, SPACE, SC_REG_READ | SC_REG_WRITE);
}

static inline void rma_close(void)
{
	assert_int_equal(sc_reg_close(reg), 0);
	pair_close(pair);
	sc_regtab_destroy(tab[0]);
	sc_regtab_destroy(tab[1]);
	guarded_free(space);
}

static inline struct sc_remote at(uint64_t addr, uint64_t len)
{
	return (struct sc_remote){ addr, len, sc_reg_key(reg) };
}

static inline int post(const struct iovec *iov, size_t iov_count, const struct sc_remote *remote,
		       size_t remote_count, uint32_t flags)
{
	struct sc_rma rma = { .iov = iov,
			      .iov_count = iov_count,
			      .remote = remote,
			      .remote_count = remote_count,
			      .data = 0xda7a,
			      .context = &rma,
			      .cq_flags = 0x52,
			      .flags = flags };

	return sc_rma_post(pair[0].ep, pair[0].peer, &rma);
}

/* One operation, and what it completes with. */
static inline struct sc_comp run(const void *buf, struct sc_remote remote, uint32_t flags)
{
	struct iovec iov = { (void *)buf, remote.len };

	assert_int_equal(post(&iov, 1, &remote, 1, flags), 0);
	ends_settle(pair, 2);
	return comp_take(&pair[0].tx);
}

/* Is the registered memory as it was but for that part of it? */
static inline bool is_untouched(size_t offset, size_t size)
{
	for (size_t i = 0; i < SPACE; i++)
		if ((i < offset || i >= offset + size) && space[i] != 0xa5)
			return false;
	return guarded_intact(space, SPACE, SPACE);
}

/* A ring that has overflowed leaves its buffer with the next record only, or when buffers are short. */
static inline void leave_overflows(void)
{
	for (int i = 0; i < 2; i++)
		sc_list_for (entry, &pair[i].ep->peers) {
			struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

			assert_true(!sc_ring_overflows(&peer->tx) || !sc_record_room(peer, 1));
			assert_false(sc_ring_overflows(&peer->tx));
		}
	ends_settle(pair, 2);
}

static inline void expect_idle(void)
{
	ends_settle(pair, 2);
	leave_overflows();
	assert_true(end_idle(&pair[0]) && end_idle(&pair[1]));
	assert_true(sc_list_empty(&pair[0].peer->rma.waiting) && sc_list_empty(&pair[0].peer->rma.queued));
	assert_int_equal(sc_slab_used(&pair[0].ep->rma_ops), 0);
	assert_int_equal(pair[0].peer->rma.requests, 0);
	assert_int_equal(pair[0].peer->rma.gets, 0);
	assert_int_equal(pair[0].peer->rma.fars, 0);
	assert_int_equal(pair[0].peer->rma.undone, 0);
	assert_int_equal(pair[0].peer->rma.pending, 0);
	assert_true(!sc_peer_has_delegated(pair[0].peer) &&
		    sc_list_empty(&pair[0].ep->work[SC_WORK_DELEGATED]));
	assert_true(sc_list_empty(&pair[0].peer->batch.ops) &&
		    sc_list_empty(&pair[0].ep->work[SC_WORK_BATCHING]));
	assert_true(sc_list_empty(&pair[0].peer->assist.ops) &&
		    sc_list_empty(&pair[0].ep->work[SC_WORK_ASKING]));
	assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_JOINED]));
	assert_int_equal(pair[0].peer->batch.count, 0);
	assert_int_equal(pair[0].peer->batch.bytes, 0);
	assert_true(sc_list_empty(&pair[0].ep->work[SC_WORK_RMA_BUSY]));
	assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_SERVING]));
	assert_int_equal(pair[1].peer->target.count, 0);
	for (int i = 0; i < 2; i++)
		sc_peers_give_back(pair[i].ep, 0);
	for (int i = 0; i < 2; i++) { /* the peers have read all buffers that were lent */
		assert_int_equal(pair[i].ep->counters.quarantines, 0);
		sc_list_for (entry, &pair[i].ep->peers) {
			struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

			if (peer->tx.at.lines) {
				assert_int_equal(sc_ring_refresh(&peer->tx), 0);
				sc_record_reuse_slow(peer, 0);
			} else {
				sc_pool_return(&pair[i].ep->pool, &peer->bounce.loans, peer->tx.head);
			}
			if (peer->feed == SC_FEED_UP)
				sc_pool_return(&pair[i].ep->pool, &peer->taker.answers,
					       sc_seg_slot(pair[i].ep->seg, peer->in_slot)->answers.read);
		}
		assert_int_equal(pair[i].ep->pool.free_count, pair[i].ep->pool.have);
	}
}

static struct sc_reg *closing;
static pthread_t closer;

static inline void *close_it(void *arg)
{
	(void)arg;
	assert_int_equal(sc_reg_close(closing), 0);
	return NULL;
}

/*
 * A thread closes the registration of the owner, and waits there for the initiators that use it. This function returns
 * when the initiator sees that the registration is closed.
 */
static inline void close_in_thread(void)
{
	struct sc_regtab_view table = sc_seg_table(pair[0].peer->seg);
	uint64_t key = sc_reg_key(closing);
	struct sc_reg_ref ref;

	assert_int_equal(pthread_create(&closer, NULL, close_it, NULL), 0);
	while (!sc_regtab_find(&table, key, &ref))
		sched_yield();
}

/* ---- other processes -------------------------------------------------------------------------- */

struct far {
	bool strict, cma, polls; /* strict: it polls in any case */
	char address[SC_ADDR_SIZE];
	uint64_t key, length;
};

/* A process with registered memory, which polls until it is let go, or computes only. */
static inline void owner(struct child *self, void *arg)
{
	struct far *far = arg;
	struct sc_ep_attr attr = end_attr();
	struct iovec range = { space, SPACE };
	struct sc_reg_attr reg_attr = { .ranges = &range,
					.range_count = 1,
					.flags = SC_REG_READ | SC_REG_WRITE };
	struct sc_regtab *own_tab;
	struct sc_reg *own;
	struct sc_comp_ring cq;
	struct sc_ep *ep;
	char line[CHILD_LINE];

	child_on_its_own();
	attr.config.strict = far->strict;
	attr.config.cma = far->cma;
	CHILD_CHECK(!sc_comp_ring_init(&cq, 64));
	CHILD_CHECK(!sc_regtab_create(&own_tab));
	attr.regtab = own_tab;
	attr.rx_cq = &cq;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_reg_open(own_tab, &reg_attr, &own));
	snprintf(line, sizeof(line), "%s %llx", sc_ep_address(ep), (unsigned long long)sc_reg_key(own));
	child_tell(self, line);
	while (far->strict || far->polls) {
		char byte;

		sc_ep_poll(ep);
		if (recv(self->down, &byte, 1, MSG_DONTWAIT) == 1)
			break;
	}
	if (!far->strict && !far->polls)
		child_wait(self);
	CHILD_CHECK(!sc_reg_close(own));
	sc_ep_destroy(ep);
	sc_regtab_destroy(own_tab);
	sc_comp_ring_fini(&cq);
}

static inline void owner_start(struct child *child, struct far *far, struct sc_peer **peer)
{
	if (getenv("TEST_ONE_PROCESS")) /* an emulator that cannot fork a process with threads */
		skip();
	assert_true(child_start(child, owner, far));
	assert_int_equal(sscanf(child->line, "%63s %llx", far->address, (unsigned long long *)&far->key),
			 2);
	assert_int_equal(sc_peer_get(pair[0].ep, far->address, peer), 0);
}

/* Poll until one operation has ended. */
static inline struct sc_comp wait_comp(void)
{
	while (!sc_comp_ring_peek(&pair[0].tx))
		sc_ep_poll(pair[0].ep);
	return comp_take(&pair[0].tx);
}

static inline void post_far(struct sc_peer *peer, const struct far *far, void *buf, size_t size,
			    uint32_t flags)
{
	struct iovec iov = { buf, size };
	struct sc_remote remote = { 0, size, far->key };
	struct sc_rma rma = {
		.iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1, .flags = flags
	};
	int ret;

	while ((ret = sc_rma_post(pair[0].ep, peer, &rma)) == -EAGAIN)
		sc_ep_poll(pair[0].ep);
	assert_int_equal(ret, 0);
}

static inline struct sc_comp run_far(struct sc_peer *peer, const struct far *far, void *buf, size_t size,
				     uint32_t flags)
{
	post_far(peer, far, buf, size, flags);
	return wait_comp();
}

#endif
