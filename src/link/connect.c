/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect.c: this endpoint connects to a peer: it attaches the segment, claims a slot there and publishes the claim. It
 * does not wait for the peer. peer.h has the steps, and what holds if either side dies between two of them.
 */
#include "link/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "link/rxq.h"
#include "os/addr.h"
#include "os/shmfile.h"
#include "proc/oversub.h"
#include "proc/service.h"
#include "shm/attach.h"
#include "shm/memory.h"

/* The time between two tries to connect for an answer when memory or descriptors are short. */
#define LATER 20000000 /* nanoseconds */

/* Tells whether the peer has come, and has departed or died since. Then it has had a name in this machine. */
static bool has_departed(const struct sc_peer *peer)
{
	return peer->feed == SC_FEED_DONE ? peer->in_slot == SC_PEER_NO_SLOT
					  : peer->feed == SC_FEED_DRAINING && !peer->vanished;
}

/* Tells whether another file than that of the lost peer has its name. Costs a system call. */
static bool is_back(const struct sc_peer *peer)
{
	ino_t ino = peer->seg ? peer->seg->ino : peer->ino;
	dev_t dev = peer->seg ? peer->seg->dev : peer->dev;
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;

	/* a peer from elsewhere, or whose file could not be examined, stays lost */
	if ((!ino && peer->error != -ECONNREFUSED && !peer->departed && !has_departed(peer)) ||
	    !sc_list_empty(&peer->recv.waiting) || sc_addr_parse(peer->address, &parts))
		return false;
	sc_addr_file(&parts, name);
	return !sc_shmfile_is_named(name, dev, ino) && !errno;
}

bool sc_peer_is_back(const struct sc_peer *peer)
{
	int ret = is_back(peer) ? sc_seg_find(peer->address) : -ECONNREFUSED;

	return !ret || sc_peer_is_transient(ret);
}

/* Sets what is known of access to the peer's memory without a try. */
static void prepare_cma(struct sc_peer *peer)
{
	const struct sc_abi_header *header = &peer->seg->header;

	peer->cma = (struct sc_cma){ peer->seg->cma_pid, header->owner.cookie_addr, header->owner.cookie };
	peer->can_read = SC_REACH_NO;
	if (!peer->ep->config.cma)
		sc_info("%s: reading its memory is off (FI_SHMCMA_CMA); large messages from it go through "
			"shared memory",
			peer->address);
	else if (!peer->cma.pid)
		sc_log(sc_log_first(SC_LOG_PID_NAMESPACE),
		       "%s: not visible in this pid namespace; large messages from it go through shared "
		       "memory (containers "
		       "that share a pid namespace would allow one copy)",
		       peer->address);
	else
		peer->can_read = SC_REACH_UNKNOWN;
}

void sc_peer_meet_seg(struct sc_peer *peer, struct sc_seg *seg)
{
	sc_peer_enter(peer);
	peer->seg = seg;
	prepare_cma(peer);
	sc_watch_add(&peer->watch, seg, &peer->ep->bell);
	sc_oversub_look_soon();
}

int sc_peer_attach(struct sc_peer *peer)
{
	struct sc_seg *seg;
	int ret;

	if (peer->seg)
		return peer->left ? -ECONNREFUSED : 0;
	ret = sc_seg_attach(peer->address, &seg);
	if (!ret)
		sc_peer_meet_seg(peer, seg);
	return ret == -ECONNREFUSED && sc_service_announces(peer->address) ? -EAGAIN : ret;
}

static int claim(struct sc_peer *peer)
{
	uint64_t *claims = sc_seg_claims(peer->seg);
	uint64_t mine = sc_peer_ticket(peer) | SC_ABI_CLAIMED;

	/* P5' acquire, by the compare and swap: pairs with P5 in sc_peer_slot_return() */
	for (uint32_t i = 0; i < peer->seg->header.slot_count; i++)
		if (!sc_load_relaxed_64(&claims[i]) && sc_cas_acq_rel_64(&claims[i], 0, mine)) {
			(void)SC_FAULT("connect.claimed");
			peer->out_slot = i;
			return 0;
		}
	return -EUSERS;
}

/*
 * The peer lets this endpoint in if it has opened our segment by its name, or already has it because it has connected
 * to us. When this process ends (exit(3), in another thread, or before this call), the name goes, unless a claim shows
 * that it is needed. -EAGAIN: that is not decided yet.
 */
static int check_name(const struct sc_peer *peer)
{
	enum sc_shmfile_end end;

	sc_fence_seq_cst(); /* E1: our claim before that load; pairs with E1' in sc_shmfile_unlink_all() */
	end = sc_shmfile_end(&peer->ep->seg->file);
	if (sc_peer_is_heard(peer) || end == SC_SHMFILE_NAMED || end == SC_SHMFILE_KEPT)
		return 0;
	return end == SC_SHMFILE_ASKED ? -EAGAIN : -ESHUTDOWN;
}

/* Another endpoint may have the slot from now on. */
static void unclaim(struct sc_peer *peer)
{
	sc_store_release_64(&sc_seg_claims(peer->seg)[peer->out_slot], 0);
	(void)SC_FAULT("connect.unclaimed");
	peer->out_slot = SC_PEER_NO_SLOT;
}

const char *sc_peer_connect_advice(int error)
{
	switch (error) {
	case -EUSERS:
		return "it is full: as many peers are connected to it as FI_SHMCMA_PEERS allows there; the next "
		       "operation tries again, or raise that limit";
	case -ENOSPC:
		return "/dev/shm is full; free space there or give the container a larger one";
	case -ECONNREFUSED:
		return "nobody has that address: the process has closed it or ended";
	case -EMFILE:
	case -ENFILE:
		return sc_shmfile_remedy(-error);
	case -EAGAIN:
		return "the next call tries again";
	case -ENOMEM:
		return "this process has no memory or can map no more; raise its limit (ulimit -v) or "
		       "vm.max_map_count";
	case -EINVAL:
		return "the slot holds no address of an endpoint: a process has overwritten it";
	case -EHOSTUNREACH:
		return "it is on another machine or uses another /dev/shm";
	case -EALREADY:
		return "it is connected already";
	case -EPROTO:
		return "it is not what it says it is, or another version";
	case -ESHUTDOWN:
		return "this process is ending: exit(3) has been called, and no new peer can attach its endpoint";
	default:
		return "an earlier line says more";
	}
}

bool sc_peer_is_transient(int error)
{
	return error == -EAGAIN || error == -EMFILE || error == -ENFILE || error == -ENOMEM ||
	       error == -ENOSPC;
}

/*
 * The peer has come to us, and no endpoint has its address any more: its process has ended or is ending by exit(3), or
 * its file has lost its name, which the answer tells the peer. This endpoint first takes in the published records, see
 * sc_peer_drained(). The peer keeps its slot until it departs, or is known to be dead.
 */
static int vanish(struct sc_peer *peer)
{
	if (peer->feed == SC_FEED_UP) {
		sc_peer_set_feed(peer, SC_FEED_DRAINING);
		peer->vanished = true;
		sc_peer_answer_broken(peer, -ECONNRESET);
	}
	sc_peer_end_link(peer, -ECONNRESET);
	return -ECONNRESET;
}

int sc_peer_connect(struct sc_peer *peer)
{
	struct sc_abi_slot *slot;
	int ret;

	ret = sc_peer_attach(peer);
	if (!ret)
		ret = claim(peer);
	if (ret)
		goto failed;
	ret = check_name(peer);
	if (!ret)
		ret = sc_seg_slot_alloc(peer->seg, peer->out_slot);
	if (ret) {
		unclaim(peer);
		if (ret == -ENOENT)
			ret = -ECONNREFUSED; /* its file has no name any more */
		goto failed;
	}
	slot = sc_seg_slot(peer->seg, peer->out_slot);
	memcpy(slot->intro.address, peer->ep->seg->header.address, SC_ADDR_SIZE);
	(void)SC_FAULT("connect.intro");
	sc_ring_tx_init(&peer->tx, slot);
	peer->has_come = false;
	peer->tx.sleep = &sc_seg_presence(peer->seg)->sleep;
	peer->units_limit = peer->seg->header.window;
	sc_peer_set_link(peer, SC_LINK_UP);
	peer->full = false;
	peer->answers_at = 0;
	sc_source_meet(peer);
	peer->ep->counters.connects++;
	/* P1 release: pairs with P1' in sc_peer_review_claims() */
	sc_store_release_64(&sc_seg_claims(peer->seg)[peer->out_slot], sc_peer_ticket(peer) | SC_ABI_PUBLISHED);
	(void)SC_FAULT("connect.published");
	sc_peer_bump(peer->seg, SC_ABI_CAME);
	sc_peer_begin(peer, SC_WORK_UNANSWERED);
	return 0;

failed:
	if (ret == -EAGAIN)
		return ret;			    /* no fault, so no line in the log */
	sc_log_again(peer->answers_at || (ret == -EUSERS && peer->full)); /* no warning */
	sc_warn("cannot connect to %s: %s: %s", peer->address, strerror(-ret), sc_peer_connect_advice(ret));
	sc_log_again(false);
	peer->full = ret == -EUSERS;
	if (ret == -ECONNREFUSED && sc_peer_is_heard(peer))
		ret = vanish(peer);
	else if (!peer->full && !sc_peer_is_transient(ret))
		sc_peer_lose(peer, ret);
	return ret;
}

static void give_up(struct sc_peer *peer, int error)
{
	char why[128];

	snprintf(why, sizeof(why), "it needs an answer, and this endpoint cannot connect to it (%s)",
		 strerror(-error));
	sc_peer_quarantine(peer, error, why);
}

int sc_peer_prepare_answer(struct sc_peer *peer)
{
	int ret;

	if (peer->link != SC_LINK_NONE || peer->feed != SC_FEED_UP)
		return 0;
	if (peer->answers_at && sc_clock_ns() < peer->answers_at)
		return -ENOMEM;
	sc_log_again(peer->answers_at);
	ret = sc_peer_connect(peer);
	sc_log_again(false);
	if (sc_peer_is_transient(ret)) {
		peer->answers_at = sc_clock_ns() + LATER;
		return -ENOMEM;
	}
	/* the record of a full peer is still taken, before sc_peer_can_answer() gives the peer up */
	if (!ret || ret == -EUSERS || peer->vanished)
		return 0;
	give_up(peer, ret);
	return -ECONNRESET;
}

bool sc_peer_can_answer(struct sc_peer *peer)
{
	int ret;

	if (peer->feed == SC_FEED_DRAINING || peer->feed == SC_FEED_DONE)
		return false;
	ret = peer->link == SC_LINK_NONE   ? sc_peer_connect(peer)
	      : peer->link == SC_LINK_DOWN ? peer->error
					   : 0;
	if (ret && !peer->vanished)
		give_up(peer, ret);
	return !ret;
}
