/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ep.c: creates an endpoint from its parts, destroys it, and polls it. One thread at a time uses an endpoint.
 *
 * One call of sc_ep_poll() looks once at all that can have changed: peers that came or went, records, operations under
 * way. Then it fails the operations with lost peers. A poll that finds nothing reads a few lines that stay in this
 * core's cache.
 */
#include "base/atomic.h"

#include <errno.h>
#include <stdlib.h>
#include "rma/assist.h"
#include "link/accept.h"
#include "link/forget.h"
#include "link/hold.h"
#include "proc/daemon.h"
#include "proc/leftover.h"
#include "rma/delegate.h"
#include "rma/request.h"
#include "rma/direct.h"
#include "link/peer.h"
#include "link/review.h"
#include "link/record.h"
#include "link/reply.h"
#include "msg/recv.h"
#include "msg/transfer.h"
#include "rma/reg.h"
#include "rma/rma.h"
#include "ep/rx.h"
#include "link/rxq.h"
#include "shm/create.h"
#include "rma/target.h"
#include "link/state.h"
#include "link/xfer.h"
#include "msg/txop.h"
#include "msg/waiting.h"

/* Polls between two looks at a peer's word of life. */
#define LIFE_POLLS 4
/*
 * Polls between two checks of a peer's life lock: a check takes half a microsecond, so many polls take 30 or more. With
 * the daemon's thread, only a peer without a word of life needs these checks.
 */
#define WATCH_POLLS 1024
#define WATCH_POLLS_DAEMON 16384

/* Bounce buffers that have memory from the start, see sc_record_may_lend(). */
#define BUFS_FIRST 8

/*
 * Sets the defaults. These have sections of docs/MEASUREMENTS.md:
 *
 *   inline_max  docs/MEASUREMENTS.md, "Inline or bounce buffer": the most that a record can hold. From
 *               SC_ROUTE_BUFFER_MIN on only without a free buffer; above INLINE_ALWAYS (tx.c) only while half of the
 *               ring is free
 *   buf_size    docs/MEASUREMENTS.md, "Bounce buffer size"
 *   eager_max   docs/MEASUREMENTS.md, "Eager or rendezvous". The calibration of the machine may change it
 *               (calibration.c); sc_route() lowers it for a peer whose buffers are slow to fill
 *   share_min   docs/MEASUREMENTS.md, "Who copies a rendezvous"
 *
 * With these sizes of pool and slots, 75 busy endpoints connected all-to-all fit into 64 MiB of /dev/shm, and some 120
 * that send little (test/bench/growth.md).
 */
void sc_config_init(struct sc_config *config)
{
	*config = (struct sc_config){
		.slots = SC_ABI_SLOTS_MAX,
		.buf_size = 4096,
		.buf_count = 88,
		.inline_max = SC_INLINE_MAX,
		.eager_max = 32768,
		.eager_adapts = true,
		.window = 262144,
		.share_min = 16384,
		.crowd = SC_CROWD_NEVER,
		.fill = SC_FILL_TRIED,
		.cma = true,
		.daemon = true,
		.scan = true,
	};
}

static uint32_t clamp(uint32_t value, uint32_t least, uint32_t most)
{
	return value < least ? least : value > most ? most : value;
}

/* Returns the largest payload of the short way (tx.c): in a record, or in one buffer, whether injected or not. */
static uint32_t short_most(const struct sc_config *config, uint32_t buffer_most)
{
	if (config->inline_max < sc_inline_first(0))
		return config->inline_max; /* sc_tx_send_buf() checks no limit of one line */
	return buffer_most > config->inline_max ? buffer_most : config->inline_max;
}

/* Makes the configuration valid: powers of two, limits of the record formats. */
static void config_settle(struct sc_ep *ep)
{
	struct sc_config *config = &ep->config;
	uint32_t buffer_most;

	config->slots = clamp(config->slots, 1, SC_ABI_SLOTS_MAX);
	config->buf_count = clamp(config->buf_count, 2, SC_ABI_BUFS_MAX);
	ep->buf_shift =
		31 - (uint32_t)__builtin_clz(clamp(config->buf_size, SC_INJECT_MAX / SC_ABI_RECORD_BUFS,
						   SC_ABI_BUF_SIZE_MAX));
	config->buf_size = 1u << ep->buf_shift;
	config->inline_max = clamp(config->inline_max, 0, SC_INLINE_MAX);
	ep->line_end = ep->order & SC_ORDER_RECEIVE ? 0 : sc_inline_first(0) + 1;
	config->eager_max = clamp(config->eager_max, 0, SC_ABI_RECORD_BUFS << ep->buf_shift);
	/* a larger payload may be too large to inject, or not go by a buffer */
	buffer_most = clamp(config->eager_max, 0, clamp(config->buf_size, 0, SC_INJECT_MAX));
	ep->buffer_end = buffer_most + 1;
	ep->short_end = ep->order || !ep->tx_cq ? 0 : short_most(config, buffer_most) + 1;
	if (config->window < 1024)
		config->window = 1024;
	ep->window_step = config->window / 4;
}

static uint32_t capabilities(const struct sc_ep *ep)
{
	uint32_t all = SC_ABI_CAP_TAGGED | SC_ABI_CAP_MSG;

	if (ep->regtab)
		all |= SC_ABI_CAP_RMA;
	if (ep->config.strict)
		all |= SC_ABI_CAP_STRICT;
	if (ep->cntrs[SC_EVENT_REMOTE_READ] || ep->cntrs[SC_EVENT_REMOTE_WRITE])
		all |= SC_ABI_CAP_EVENTS;
	if (ep->barrier)
		all |= SC_ABI_CAP_BARRIER;
	return all;
}

/* The segment has a table of registrations only if peers may read it. */
static int segment_create(struct sc_ep *ep, const struct sc_ep_attr *attr)
{
	bool shows = ep->regtab && !ep->config.strict;
	struct sc_seg_geometry geometry = {
		.slots = ep->config.slots,
		.buf_size = ep->config.buf_size,
		.buf_count = ep->config.buf_count,
		.bufs_first = BUFS_FIRST,
		.window = ep->config.window,
		.capabilities = capabilities(ep),
		.regs = shows ? SC_ABI_REGS_MAX : 0,
		.ranges = shows ? SC_ABI_RANGES_MAX : 0,
		.counters = &ep->counters,
		.free_bufs = &ep->pool.free_count,
		.name = attr->name,
		.index = attr->index,
	};

	return sc_seg_create(&geometry, &ep->seg);
}

uint64_t sc_ep_memory(const struct sc_config *config, uint32_t peers)
{
	uint64_t first = SC_ABI_PAGE + sc_seg_align((uint64_t)config->slots * sizeof(uint64_t), SC_ABI_PAGE);
	uint64_t pool = sc_seg_align((uint64_t)config->buf_count * config->buf_size, SC_ABI_PAGE);

	return first + pool + (uint64_t)peers * SC_ABI_SLOT_SIZE;
}

static int rxq_join(struct sc_ep *ep, const struct sc_ep_attr *attr)
{
	int ret = attr->rxq ? 0 : sc_rxq_init(&ep->own_rxq, attr->rx_size);

	ep->rxq = attr->rxq ? attr->rxq : &ep->own_rxq;
	ep->rx_silent = attr->rx_report ? 0 : SC_SILENT;
	if (!ret)
		sc_list_append(&ep->rxq->eps, &ep->of_rxq);
	return ret;
}

static void rxq_leave(struct sc_ep *ep)
{
	sc_list_remove(&ep->of_rxq);
	if (!sc_ep_shares_rxq(ep))
		sc_rxq_fini(ep->rxq);
}

static void take_attr(struct sc_ep *ep, const struct sc_ep_attr *attr)
{
	ep->config = attr->config;
	ep->order = attr->order;
	ep->tx_cq = attr->tx_cq;
	ep->rx_cq = attr->rx_cq;
	config_settle(ep);
	ep->tx_size = attr->tx_size;
	ep->regtab = attr->regtab;
	ep->reopens = attr->reopens;
	ep->release = attr->release;
	ep->release_arg = attr->release_arg;
	for (int event = 0; event < SC_EVENTS; event++)
		ep->cntrs[event] = attr->cntrs[event];
	sc_slab_init(&ep->tx_ops, sizeof(struct sc_tx_op));
	sc_slab_init(&ep->rma_ops, sizeof(struct sc_rma_op));
	sc_slab_init(&ep->turns, sizeof(struct sc_turn));
	for (int work = 0; work < SC_WORK_COUNT; work++)
		sc_list_init(&ep->work[work]);
}

int sc_ep_create(const struct sc_ep_attr *attr, struct sc_ep **created)
{
	struct sc_ep *ep = calloc(1, sizeof(*ep));
	bool first = sc_bell_is_first();
	int ret = -ENOMEM;

	if (!ep)
		return ret;
	take_attr(ep, attr);
	ret = rxq_join(ep, attr);
	if (ret)
		goto no_rxq;
	if (first && sc_leftover_is_here())
		(void)sc_reap_scan();
	ep->barrier = sc_wake_join();
	ret = segment_create(ep, attr);
	if (ret == -ENOSPC && sc_reap_scan() > 0)
		ret = segment_create(ep, attr);
	if (ret)
		goto no_segment;
	ret = sc_pool_init(&ep->pool, ep->seg->header.buf_count, ep->seg->buf_count);
	if (ret)
		goto no_pool;
	ret = sc_peers_init(ep);
	if (ret)
		goto no_peers;
	ret = sc_regs_join(ep);
	if (ret)
		goto no_service;
	if (attr->service) {
		ret = sc_service_create(attr->service, ep->seg->header.address, &ep->service);
		if (ret)
			goto no_service;
	}
	sc_bell_open(&ep->bell, ep->seg);
	ep->alone = !ep->config.daemon || !sc_daemon_start(&ep->config);
	ep->watch_mask = (ep->alone ? WATCH_POLLS : WATCH_POLLS_DAEMON) - 1;
	if (first && !ep->config.daemon)
		(void)sc_reap_scan(); /* in place of the daemon's thread */
	*created = ep;
	return 0;

no_service:
	sc_peers_close(ep);
	sc_regs_leave(ep);
	sc_peers_fini(ep);
no_peers:
	sc_pool_fini(&ep->pool);
no_pool:
	sc_seg_destroy(ep->seg);
no_segment:
	rxq_leave(ep);
no_rxq:
	free(ep);
	return ret;
}

static int step(struct sc_ep *ep, int work);

void sc_ep_destroy(struct sc_ep *ep)
{
	ep->closes = true;
	sc_delegate_fini(ep);
	sc_direct_fini(ep);
	sc_assist_fini(ep);
	if (ep->service)
		sc_service_destroy(ep->service);
	if (sc_seg_is_here(ep->seg)) {
		(void)step(ep, SC_WORK_REPLYING); /* answers to messages that were received */
		(void)step(ep, SC_WORK_RMA_BUSY); /* notes of puts, and injected puts */
	}
	sc_rma_fini(ep);
	sc_target_fini(ep);
	sc_transfer_fini(ep);
	sc_waiting_fini(ep);
	sc_peers_close(ep);
	sc_txop_fini(ep);
	sc_regs_leave(ep);
	sc_peers_leave_rxq(ep);
	sc_peers_fini(ep);
	sc_bell_close(&ep->bell);
	sc_pool_fini(&ep->pool);
	sc_seg_destroy(ep->seg);
	rxq_leave(ep);
	sc_slab_fini(&ep->turns);
	free(ep);
}

const char *sc_ep_address(const struct sc_ep *ep)
{
	return ep->seg->header.address;
}

const struct sc_counters *sc_ep_counters(const struct sc_ep *ep)
{
	return &ep->counters;
}

/*
 * Fails the operations in flight with peers that were lost since the last poll. Another peer of the same source may have
 * come, to this endpoint or to another one of the receive queue: it is met before the receives from the source end.
 */
static int end_lost(struct sc_ep *ep)
{
	int ended = 0;

	sc_peers_meet(ep->rxq);
	sc_list_for_safe (entry, next, &ep->work[SC_WORK_ENDING]) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, work[SC_WORK_ENDING]);
		bool over;

		sc_txop_end_peer(peer, peer->error);
		sc_target_end_peer(peer);
		over = sc_rma_end_peer(peer, peer->error);
		if (!sc_transfer_end_peer(peer, peer->error) || !over)
			continue; /* the peer still copies our memory: the next poll tries again */
		sc_waiting_end_peer(peer);
		sc_recv_end_peer(peer, peer->error);
		sc_list_remove(&peer->work[SC_WORK_ENDING]);
		sc_list_remove(&peer->work[SC_WORK_REPLYING]);
		sc_peer_part(peer);
		sc_peer_reconsider(peer);
		ended++;
	}
	return ended;
}

/* A poll calls each function while its list has entries. The function returns the steps that it has done. */
static int (*const steps[SC_WORK_COUNT])(struct sc_ep *) = {
	[SC_WORK_UNANSWERED] = sc_peers_ask, [SC_WORK_PUSHING] = sc_txop_progress,
	[SC_WORK_JOINED] = sc_xfer_progress, [SC_WORK_ENDING] = end_lost,
	[SC_WORK_DOUBTED] = sc_forget,
};

/* The same for each peer in the list. */
static int (*const peer_steps[SC_WORK_COUNT])(struct sc_peer *) = {
	[SC_WORK_PULLING] = sc_transfer_progress,   [SC_WORK_REPLYING] = sc_replies_progress,
	[SC_WORK_DELEGATED] = sc_delegate_progress, [SC_WORK_BATCHING] = sc_direct_progress,
	[SC_WORK_RMA_BUSY] = sc_request_progress,   [SC_WORK_SERVING] = sc_target_progress,
	[SC_WORK_ASKING] = sc_assist_progress,
};

static int step(struct sc_ep *ep, int work)
{
	int done = 0;

	if (steps[work])
		return steps[work](ep);
	sc_list_for_safe (entry, next, &ep->work[work])
		done += peer_steps[work](sc_list_entry(entry, struct sc_peer, work[work]));
	return done;
}

/* A poll looks for answers to connections before it looks at the rings; it does all other work after that. */
#define ASKS (1u << SC_WORK_UNANSWERED)

/* Goes on with the work in the lists of the mask, see sc_ep_begin(). */
static __attribute__((noinline)) int go_on(struct sc_ep *ep, uint32_t mask)
{
	int done = 0;

	for (uint32_t due; (due = ep->due & mask);) {
		int work = __builtin_ctz(due);

		mask &= -2u << work; /* a step may begin work of a later list, which this poll does, too */
		if (!sc_list_empty(&ep->work[work]))
			done += step(ep, work);
		if (sc_list_empty(&ep->work[work]))
			ep->due &= ~(1u << work);
	}
	return done;
}

int sc_ep_poll(struct sc_ep *ep)
{
	int done = 0;

	if (__builtin_expect(!(++ep->polls % LIFE_POLLS), 0)) {
		done += ep->polls & ep->watch_mask ? sc_peers_check_life(ep) : sc_peers_watch(ep);
		sc_peers_give_back(ep, SC_HOLD_POLLS);
	}
	if (__builtin_expect(sc_bell_has_rung(&ep->bell), 0))
		done += sc_peers_hear(ep);
	if (__builtin_expect(sc_peers_changed(ep), 0))
		done += sc_peers_review(ep, false);
	if (__builtin_expect(ep->due & ASKS, 0))
		done += go_on(ep, ASKS);
	done += sc_rx_poll(ep);
	if (__builtin_expect(ep->due, 0))
		done += go_on(ep, ~ASKS);
	if (ep->idle != !done)
		ep->idle = !done;
	if (__builtin_expect(done && ep->vain, 0))
		ep->vain = 0;
	return done;
}
