/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sleep.c: decides when a thread may sleep on an endpoint, and for how long. wake.c shows that no wake-up is lost.
 *
 * A thread that wants to sleep has just polled. It arms the sleep word of its segment (A1, A2), then looks at all that
 * others write unasked: rings, claims, the daemon's bell (A3). Operations that this side does alone (a copy, pieces to
 * write) go on in polls while these do something. sc_ep_is_idle() reports an operation that another thread begins
 * meanwhile.
 *
 * Events that wake a sleeper, the process that causes them, and the function:
 *
 *   records, acknowledgements, answers          ring: the writer             sc_ring_commit()
 *   connections, departures                     membership: its writer       sc_peer_bump()
 *   chunks of a shared copy                     the joiner                   report() in xfer.c
 *   delegated operations are done               the target                   sc_taker_report()
 *   space in a ring, window, buffers            the reader                   sc_peer_publish()
 *   death                                       this process's daemon        sc_bell_ring()
 *
 * Nothing wakes a sleeper for the following; so its sleep has a limit, and it polls then:
 *
 *   UNANSWERED_MS   a connection has no answer: a peer that refuses may not have this segment, and one that accepts
 *                   does not wake; or a receive waits for a full peer, which does not tell that it closes
 *   ROOM_MS         a post was refused for want of space, which may have come before the word was armed, or for a
 *                   cause whose end is no event; once for each sc_ep_rest_refused()
 *   HANDS_MS        operations that the other side has in hand, which works on them or is stopped; or operations that
 *                   are put off (direct.c), if they could not be done yet
 *   STUCK_MS        there is something to take, but memory for it is short
 *   WATCH_MS        no daemon's thread runs: polls find a death, and this file, as a sleeper hardly polls
 *   RECHECK_MS      no barrier, here or at a peer: once for each sleep (W2 of wake.c)
 *
 * One thread at a time for each endpoint; any thread may call sc_ep_sleep() and sc_sleep().
 */
#include "os/wake.h"

#include <errno.h>
#include "link/peer.h"
#include "link/review.h"
#include "ep/rx.h"
#include "link/state.h"

#define UNANSWERED_MS 20
#define ROOM_MS 20
#define HANDS_MS 1
#define STUCK_MS 10
#define WATCH_MS 100
#define WATCH_PEERS 64 /* checked at a time */
#define RECHECK_MS 1
/* Tries to sleep, in a row, that find work which polls do not take. After these the thread sleeps for STUCK_MS. */
#define STUCK_TRIES 16

static void lower(int64_t *limit, int64_t ms)
{
	int64_t end = sc_clock_ns() + ms * 1000000;

	if (end < *limit)
		*limit = end;
}

/* A3 */
static bool has_work(struct sc_ep *ep)
{
	return sc_bell_has_rung(&ep->bell) || sc_peers_changed(ep) || sc_rx_has_record(ep);
}

/* Tells whether all peers that write to this endpoint have registered for the barrier. */
static bool all_join(const struct sc_ep *ep)
{
	sc_list_for (entry, &ep->peers) {
		const struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		if (peer->feed == SC_FEED_UP || peer->link == SC_LINK_UP)
			if (!peer->seg || !(peer->seg->header.capabilities & SC_ABI_CAP_BARRIER))
				return false;
	}
	return true;
}

/* Tells whether the word has been armed, without a wake, for longer than a store of a peer is under way. */
static bool is_settled(const struct sc_ep *ep, uint64_t word)
{
	return ep->armed_at && (uint32_t)word == ep->armed.seen &&
	       sc_clock_ns() - ep->armed_at >= RECHECK_MS * (int64_t)1000000;
}

/* A1 and A2, or a limited sleep in place of A2. */
static void arm(struct sc_ep *ep, uint64_t who, int64_t *limit)
{
	uint64_t *word = &sc_seg_presence(ep->seg)->sleep;

	if (is_settled(ep, sc_load_relaxed_64(word)))
		return;
	sc_sleep_arm(word, who, &ep->armed);
	ep->armed_at = 0;
	if (ep->barrier && all_join(ep) && sc_sleep_barrier())
		return;
	ep->armed_at = sc_clock_ns();
	lower(limit, RECHECK_MS);
}

/* Kinds of work that the other side may have in hand. */
#define IN_HAND                                                                                           \
	(1u << SC_WORK_PULLING | 1u << SC_WORK_DELEGATED | 1u << SC_WORK_BATCHING | 1u << SC_WORK_ASKING | \
	 1u << SC_WORK_ENDING)

/* Lowers the limit for each event that no process wakes for. */
static void limit_lower(struct sc_ep *ep, int64_t *limit)
{
	if (ep->due & 1u << SC_WORK_UNANSWERED)
		lower(limit, UNANSWERED_MS);
	if (ep->due & IN_HAND)
		lower(limit, HANDS_MS);
	if (ep->alone)
		lower(limit, WATCH_MS);
}

/* Returns whether a peer is dead. */
static bool watch(struct sc_ep *ep)
{
	int64_t now = sc_clock_ns();
	int ended = 0;

	if (now - ep->watched_at < WATCH_MS * (int64_t)1000000)
		return false;
	ep->watched_at = now;
	for (uint32_t i = 0; i < ep->peer_count && i < WATCH_PEERS; i++)
		ended += sc_peers_watch(ep);
	return ended;
}

static int rest(struct sc_ep *ep, bool room, struct sc_sleep *sleep, int64_t *limit)
{
	if (!ep->idle || (ep->alone && watch(ep)))
		return -EAGAIN;
	if (ep->vain < STUCK_TRIES && has_work(ep)) { /* before the costs of arming */
		ep->vain++;
		return -EAGAIN;
	}
	sc_peers_give_back(ep, 0);
	arm(ep, SC_ABI_SLEEP_ASLEEP | (room ? SC_ABI_SLEEP_ROOM : 0), limit);
	*sleep = ep->armed;
	if (has_work(ep)) {
		if (++ep->vain < STUCK_TRIES)
			return -EAGAIN;
		lower(limit, STUCK_MS);
	}
	if (room)
		lower(limit, ROOM_MS);
	ep->wants_room = false;
	limit_lower(ep, limit);
	return 0;
}

int sc_ep_rest(struct sc_ep *ep, struct sc_sleep *sleep, int64_t *limit)
{
	return rest(ep, ep->wants_room, sleep, limit);
}

int sc_ep_rest_refused(struct sc_ep *ep, struct sc_sleep *sleep, int64_t *limit)
{
	return rest(ep, true, sleep, limit);
}

bool sc_ep_is_idle(const struct sc_ep *ep)
{
	return ep->idle;
}

uint64_t sc_ep_refusals(const struct sc_ep *ep)
{
	return ep->refusals;
}

void sc_ep_rise(struct sc_ep *ep)
{
	sc_sleep_disarm(&sc_seg_presence(ep->seg)->sleep);
}

void sc_ep_wake(const struct sc_ep *ep)
{
	sc_wake_slow(&sc_seg_presence(ep->seg)->sleep, UINT64_MAX);
}

void sc_ep_stir(struct sc_ep *ep)
{
	uint64_t *word = &sc_seg_presence(ep->seg)->sleep;
	bool mine = (uint32_t)sc_load_relaxed_64(word) == ep->armed.seen;
	struct sc_sleep sleep;

	sc_sleep_arm(word, 0, &sleep);
	if (mine)
		ep->armed = sleep;
	sc_sleep_stir(sleep.futex);
}

struct sc_sleep sc_ep_sleep(const struct sc_ep *ep)
{
	uint64_t *word = &sc_seg_presence(ep->seg)->sleep;

	/* acquire: pairs with P3 in sc_wake_slow() */
	return (struct sc_sleep){ (uint32_t *)word, (uint32_t)sc_load_acquire_64(word) };
}
