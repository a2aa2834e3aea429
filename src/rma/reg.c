/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reg.c: registers memory: the private table (regtab.c), its copies in the segments of a domain's endpoints, and the
 * wait for peers that copy when a registration ends.
 *
 * One thread at a time registers, ends a registration, creates or destroys an endpoint. While one registers, other
 * threads may poll and post to the endpoints, unless sc_reg_wants_all(); during the other calls they may not. In a
 * forked child the segments are not mapped: the child opens nothing, and closes in its private copy alone.
 *
 * Open: takes an entry, makes space for it in all views, then sets it in use and shows it in each view. If one view has
 * no space, the entry is shown in none.
 *
 * Close: takes the entry out of use in the private table and in all views, issues a full fence (R3 of regtab.c), then
 * looks in the slots of each endpoint for hazard words that name the entry:
 *
 *   - A peer's connection is counted in the presence's membership before the peer can set a hazard word, and the fence
 *     orders that count like the words. So slots of peers that are not accepted yet need a look only if the count has
 *     changed again after a review, or if one of these peers could not be let in.
 *   - The owner waits until a word that names the entry changes. The new value does not matter: an initiator that sets
 *     the word again finds the entry closed.
 *   - A peer whose life lock is free copies no more, because the kernel frees the lock after the last access of the
 *     process. The owner clears its words, and so asks for that peer only once.
 *
 * The last case covers the death of a peer between any two steps. If this process dies, the peers see it by its life
 * lock, and the memory is gone with it.
 */
#define _GNU_SOURCE 1
#include "rma/reg.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "os/host.h"
#include "os/probe.h"
#include "base/fault.h"
#include "base/log.h"
#include "link/peer.h"
#include "link/review.h"
#include "proc/owner.h"
#include "shm/memory.h"

#define BUCKET_BITS_MIN 10 /* one page */
#define SPINS 4000	   /* a few microseconds, the end of a small copy */
#define YIELDS 64	   /* between two checks that the peer lives */

int sc_regtab_create(struct sc_regtab **created)
{
	struct sc_regtab *regtab;
	const struct sc_host *host;
	uint64_t seed;
	int ret = sc_host_get(&host);

	if (!ret)
		ret = sc_host_random(&seed, sizeof(seed));
	if (ret)
		return ret;
	regtab = malloc(sizeof(*regtab));
	if (!regtab)
		return -ENOMEM;
	sc_regtab_init(regtab, seed);
	regtab->cookie = &host->cookie;
	regtab->made_by = host->cookie;
	*created = regtab;
	return 0;
}

void sc_regtab_destroy(struct sc_regtab *regtab)
{
	sc_regtab_fini(regtab);
	free(regtab);
}

/* Makes no system call: a forked child finds another cookie there, or none. */
static bool is_forked(const struct sc_regtab *regtab)
{
	return *regtab->cookie != regtab->made_by;
}

static struct sc_ep *ep_of(struct sc_list *entry)
{
	return sc_list_entry(entry, struct sc_ep, of_regtab);
}

/* ---- open ------------------------------------------------------------------------------------ */

/* Longer chains are better than a failed registration, once there are buckets. */
static int add_buckets_slow(struct sc_regtab *regtab)
{
	uint32_t bits = regtab->bucket_bits ? regtab->bucket_bits + 1 : BUCKET_BITS_MIN;
	int ret = 0;

	sc_list_for (entry, &regtab->eps)
		if (!ret)
			ret = sc_seg_table_grow(ep_of(entry)->seg, SC_SEG_BUCKETS, bits);
	if (!ret)
		ret = sc_regtab_rehash(regtab, bits);
	if (ret && !regtab->bucket_bits)
		return ret;
	if (ret) {
		regtab->keyed_most *= 2; /* the next try */
		return 0;
	}
	sc_list_for (entry, &regtab->eps)
		sc_regtab_show_buckets(regtab, &ep_of(entry)->table);
	return 0;
}

static int make_room(struct sc_ep *ep, const struct sc_reg *reg)
{
	int ret = sc_seg_table_grow(ep->seg, SC_SEG_REGS, reg->index + 1);

	if (!ret && reg->range_count > 1)
		ret = sc_seg_table_grow(ep->seg, SC_SEG_RANGES, reg->first_range + reg->range_count);
	return ret;
}

static int make_rooms(struct sc_regtab *regtab, const struct sc_reg *reg)
{
	sc_list_for (entry, &regtab->eps) {
		int ret = make_room(ep_of(entry), reg);

		if (ret)
			return ret;
	}
	return 0;
}

static void show(struct sc_regtab *regtab, const struct sc_reg *reg)
{
	sc_list_for (entry, &regtab->eps)
		sc_regtab_show(regtab, &ep_of(entry)->table, reg);
}

bool sc_reg_wants_all(const struct sc_regtab *regtab, uint32_t flags)
{
	return flags & SC_REG_KEY && regtab->keyed >= regtab->keyed_most;
}

int sc_reg_open(struct sc_regtab *regtab, const struct sc_reg_attr *attr, struct sc_reg **opened)
{
	struct sc_reg *reg;
	int ret;

	if (is_forked(regtab))
		return -EPERM;
	if (sc_reg_wants_all(regtab, attr->flags)) {
		ret = add_buckets_slow(regtab);
		if (ret)
			return ret;
	}
	ret = sc_regtab_get(regtab, attr, &reg);
	if (ret)
		return ret;
	if (sc_reg_is_shared(reg)) {
		ret = make_rooms(regtab, reg);
		if (ret)
			goto no_room;
	}
	sc_regtab_begin(regtab, reg);
	if (sc_reg_is_shared(reg))
		show(regtab, reg);
	*opened = reg;
	return 0;

no_room:
	sc_regtab_put(regtab, reg);
	return ret;
}

uint64_t sc_reg_key(const struct sc_reg *reg)
{
	return reg->key;
}

void sc_reg_set_cntrs(struct sc_reg *reg, struct sc_cntr *reads, struct sc_cntr *writes)
{
	struct sc_regtab *regtab = reg->regtab;

	reg->reads = reads;
	reg->writes = writes;
	reg->flags = reads || writes ? reg->flags | SC_REG_EVENT : reg->flags & ~SC_REG_EVENT;
	if (sc_reg_is_shared(reg) && !is_forked(regtab))
		sc_list_for (entry, &regtab->eps)
			sc_regtab_show_flags(&ep_of(entry)->table, reg);
}

/* ---- close: those who copy ------------------------------------------------------------------- */

/* The copies that a close waits for. */
struct watch {
	struct sc_ep *ep;
	uint32_t name;	   /* low bits of the hazard words; 0: any */
	uint64_t deadline; /* nanoseconds; 0: no wait yet */
	uint32_t slot;	   /* of the peer that the close has not waited for */
};

enum condition { GONE, RUNS, STOPPED };

/*
 * Tells whether the process of an address has ended. The pid is valid in the peer's pid namespace. A peer that copies
 * our memory by our pid sees this process, so its namespace is ours or encloses ours. None encloses the first
 * namespace, so there the pid is valid here too.
 */
static bool has_ended(const char *address)
{
	const struct sc_host *host;
	struct sc_addr parts;

	if (sc_addr_parse(address, &parts) || sc_host_get(&host) || host->pid_ns != SC_HOST_FIRST_PID_NS)
		return false;
	return sc_host_has_ended((pid_t)parts.pid, 0);
}

static void get_address(const struct sc_ep *ep, uint32_t slot, char address[SC_ADDR_SIZE])
{
	memcpy(address, sc_seg_slot(ep->seg, slot)->intro.address, SC_ADDR_SIZE);
	address[SC_ADDR_SIZE - 1] = '\0';
}

/*
 * Judges a peer that is not let in, or whose segment is detached, by the address in its slot. A missing file proves
 * nothing, see sc_seg_check_owner().
 */
static enum condition condition_by_name(const struct sc_ep *ep, uint32_t slot)
{
	char address[SC_ADDR_SIZE];

	get_address(ep, slot, address);
	return sc_owner_left(address) || has_ended(address) ? GONE : RUNS;
}

static enum condition condition_of(const struct sc_ep *ep, uint32_t slot)
{
	sc_list_for (entry, &ep->peers) {
		const struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		if (peer->in_slot != slot || !peer->seg)
			continue;
		if (sc_peer_is_dead(peer))
			return GONE;
		return peer->seg->cma_pid && sc_host_is_stopped(peer->seg->cma_pid) ? STOPPED : RUNS;
	}
	return condition_by_name(ep, slot);
}

static void clear_words(struct sc_abi_hazards *hazards)
{
	for (int i = 0; i < SC_ABI_HAZARDS; i++) {
		sc_store_release_64(&hazards->words[i], 0);
		(void)SC_FAULT("reg.hazard_cleared");
	}
}

static bool has_changed(const uint64_t *word, uint64_t seen, int looks, bool yield)
{
	while (looks--) {
		if (sc_load_acquire_64(word) != seen)
			return true;
		if (yield)
			sched_yield();
	}
	return false;
}

/* Waits until the peer in that slot takes the word back, or is dead. -EBUSY: it is stopped, or takes too long. */
static int wait_slow(struct watch *watch, uint32_t slot, const uint64_t *word, uint64_t seen)
{
	if (has_changed(word, seen, SPINS, false))
		return 0;
	watch->slot = slot;
	if (!watch->deadline)
		watch->deadline = (uint64_t)sc_clock_ns() + SC_REG_WAIT_MS * 1000000ull;
	do {
		switch (condition_of(watch->ep, slot)) {
		case GONE:
			clear_words(&sc_seg_slot(watch->ep->seg, slot)->hazards);
			return 0;
		case STOPPED:
			if (watch->name)
				return -EBUSY;
			break;
		case RUNS:
			break;
		}
		if (has_changed(word, seen, YIELDS, true))
			return 0;
	} while ((uint64_t)sc_clock_ns() < watch->deadline);
	return -EBUSY;
}

/*
 * Returns the hazard words of the peer that has claimed that slot; NULL: it can have none. A peer copies nothing before
 * it has published its claim, nor after it has departed. If the peer is not accepted, or refused in its claim, we have not
 * seen that it has given the slot memory: a slot that cannot be read has none.
 */
static struct sc_abi_hazards *hazards_of(const struct sc_ep *ep, uint32_t slot)
{
	uint64_t claim = sc_load_acquire_64(&sc_seg_claims(ep->seg)[slot]);
	bool accepted = ep->accepted[slot / 64] >> slot % 64 & 1;
	struct sc_abi_hazards *hazards = &sc_seg_slot(ep->seg, slot)->hazards;

	if ((claim & SC_ABI_CLAIM_STATE) != SC_ABI_PUBLISHED)
		return NULL;
	if ((accepted && !(claim & SC_ABI_CLAIM_REFUSED)) || sc_probe_is_there(hazards, sizeof(*hazards)))
		return hazards;
	return NULL;
}

/* Tells whether the peer copies under any registration; nearly always it does not. */
static bool is_raised(const struct sc_abi_hazards *hazards)
{
	uint32_t any = 0;

	for (int i = 0; i < SC_ABI_HAZARDS; i++)
		any |= (uint32_t)sc_load_acquire_64(&hazards->words[i]);
	return any;
}

static int wait_for_slot(struct watch *watch, uint32_t slot)
{
	const struct sc_abi_hazards *hazards = hazards_of(watch->ep, slot);

	if (!hazards || !is_raised(hazards))
		return 0;
	for (int i = 0; i < SC_ABI_HAZARDS; i++) {
		/* acquire: bytes copied before the word was taken back */
		uint64_t word = sc_load_acquire_64(&hazards->words[i]);
		int ret;

		if (!(uint32_t)word || (watch->name && (uint32_t)word != watch->name))
			continue;
		ret = wait_slow(watch, slot, &hazards->words[i], word);
		if (ret)
			return ret;
	}
	return 0;
}

static int wait_for_all(struct watch *watch)
{
	int ret = 0;

	for (uint32_t slot = 0; !ret && slot < watch->ep->seg->header.slot_count; slot++)
		ret = wait_for_slot(watch, slot);
	return ret;
}

static int wait_for_accepted(struct watch *watch)
{
	for (uint32_t i = 0; i < SC_ABI_SLOTS_MAX / 64; i++)
		for (uint64_t left = watch->ep->accepted[i]; left; left &= left - 1) {
			int ret = wait_for_slot(watch, i * 64 + (uint32_t)__builtin_ctzll(left));

			if (ret)
				return ret;
		}
	return 0;
}

static int wait_for_peers(struct watch *watch)
{
	struct sc_ep *ep = watch->ep;

	if (sc_peers_changed(ep))
		sc_peers_review(ep, true);
	/* still: a peer could not be let in just now, or comes at this moment */
	return sc_peers_changed(ep) ? wait_for_all(watch) : wait_for_accepted(watch);
}

/* ---- close ----------------------------------------------------------------------------------- */

int sc_reg_close(struct sc_reg *reg)
{
	struct sc_regtab *regtab = reg->regtab;
	struct watch watch = { .name = reg->index + 1 };
	bool shared = sc_reg_is_shared(reg) && !is_forked(regtab);

	if (reg->tag & 1) { /* else an earlier close has found a peer busy */
		sc_regtab_end(regtab, reg);
		if (shared)
			sc_list_for (entry, &regtab->eps)
				sc_regtab_hide(regtab, &ep_of(entry)->table, reg);
	}
	(void)SC_FAULT("reg.closed");
	/* R3 of regtab.c */
	if (shared)
		sc_fence_seq_cst();
	if (shared)
		sc_list_for (entry, &regtab->eps) {
			int ret;

			watch.ep = ep_of(entry);
			ret = wait_for_peers(&watch);
			if (ret)
				return ret;
		}
	sc_regtab_put(regtab, reg);
	return 0;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

/* Gives the view memory for the registrations that are open now. */
static int prepare_view(struct sc_ep *ep)
{
	const struct sc_regtab *regtab = ep->regtab;
	uint32_t regs = 0, ranges = 0;
	int ret;

	for (uint32_t i = 0; i < regtab->count; i++) {
		const struct sc_reg *reg = sc_regtab_at(regtab, i);

		if (!(reg->tag & 1) || !sc_reg_is_shared(reg))
			continue;
		regs = i + 1;
		if (reg->range_count > 1 && reg->first_range + reg->range_count > ranges)
			ranges = reg->first_range + reg->range_count;
	}
	ret = sc_seg_table_grow(ep->seg, SC_SEG_REGS, regs);
	if (!ret)
		ret = sc_seg_table_grow(ep->seg, SC_SEG_RANGES, ranges);
	if (!ret)
		ret = sc_seg_table_grow(ep->seg, SC_SEG_BUCKETS, regtab->bucket_bits);
	return ret;
}

int sc_regs_join(struct sc_ep *ep)
{
	struct sc_regtab *regtab = ep->regtab;
	int ret;

	sc_list_init(&ep->of_regtab);
	if (!regtab || ep->config.strict)
		return 0;
	ep->table = sc_seg_table(ep->seg);
	ret = prepare_view(ep);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < regtab->count; i++) {
		const struct sc_reg *reg = sc_regtab_at(regtab, i);

		if (reg->tag & 1 && sc_reg_is_shared(reg))
			sc_regtab_show(regtab, &ep->table, reg);
	}
	if (regtab->bucket_bits)
		sc_regtab_show_buckets(regtab, &ep->table);
	sc_list_append(&regtab->eps, &ep->of_regtab);
	return 0;
}

void sc_regs_leave(struct sc_ep *ep)
{
	struct watch watch = { .ep = ep };
	char peer[SC_ADDR_SIZE];

	sc_list_remove(&ep->of_regtab);
	if (!sc_seg_is_here(ep->seg))
		return;
	/* CLOSED before hazard words, as R3: an initiator that sets a word later finds the endpoint closed */
	sc_fence_seq_cst();
	if (!wait_for_all(&watch))
		return;
	get_address(ep, watch.slot, peer);
	/* the peer wrote the address: no control characters may get into the log */
	sc_warn("%s: closes while the peer %s still reports a copy of this process's memory; let that "
		"process go on (kill -CONT) or kill it before this process uses that memory for anything "
		"else",
		ep->seg->header.address, sc_addr_kind(peer) == SC_ADDR_INVALID ? "(no address)" : peer);
}
