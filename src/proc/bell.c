/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bell.c: the bells by which the daemon's thread tells the endpoints of this process to look, and the words of life by
 * which peers see that this process lives.
 *
 * Owns the list of bells in struct sc_process. Any thread opens and closes bells; the daemon's thread rings them. The
 * lock of the process protects a bell, except its words `rung` and `heard`.
 *
 *   D1 release, sc_bell_ring(): watches marked before the count   pairs with  D1' sc_bell_hear()
 *
 * Each own segment has a word of life (abi.h), a robust futex of the daemon's thread, see set_robust_list(2). When the
 * process ends or execs, the kernel walks the list of these words and marks each, well before the pid is free. (A
 * process that is killed for want of memory may have lost the list; its pidfd tells of its end.)
 *
 * The links are in shared memory, as the kernel wants them at a constant distance from the words. Nothing here reads
 * them. A process that scribbles on a link or a word can make the kernel miss words at the end of this process, or mark
 * others that hold this thread's tid. A peer then takes the slower proof, or trusts a pid that belongs to another process.
 * This gives the process that scribbles no new right: it belongs to the same user and can write that memory itself.
 *
 *   L1  a word is linked before it gets the tid, and is 0 before it is unlinked: the kernel finds each word in which
 *       peers see a tid, whenever the process ends
 *
 * No other memory is shared.
 */
#define _GNU_SOURCE 1
#include "proc/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fault.h"
#include "os/host.h"
#include "os/wake.h"
#include "proc/process.h"

/* The kernel follows a robust list for ROBUST_LIST_LIMIT (2048) links. */
#define LIVES_MAX 1024

/* ---- words of life --------------------------------------------------------------------------- */

static struct robust_list *link_of(const struct sc_bell *bell)
{
	return (struct robust_list *)&bell->presence->life_next;
}

/* Returns the previous bell with a word in sc_process.bells, and so in the links; NULL: there is none. */
static struct sc_bell *life_before(const struct sc_bell *bell)
{
	for (struct sc_list *entry = bell->all.prev; entry != &sc_process.bells; entry = entry->prev) {
		struct sc_bell *before = sc_list_entry(entry, struct sc_bell, all);

		if (before->presence)
			return before;
	}
	return NULL;
}

static struct robust_list *life_after(const struct sc_bell *bell)
{
	for (struct sc_list *entry = bell->all.next; entry != &sc_process.bells; entry = entry->next) {
		struct sc_bell *after = sc_list_entry(entry, struct sc_bell, all);

		if (after->presence)
			return link_of(after);
	}
	return &sc_process.lives.list;
}

/* One store, as the kernel may read the link at any instant. */
static void set_link(struct robust_list *link, struct robust_list *next)
{
	__atomic_store_n(&link->next, next, __ATOMIC_RELEASE);
}

/* L1. The bell is the first in sc_process.bells. */
static void life_link_locked(struct sc_bell *bell)
{
	set_link(link_of(bell), life_after(bell));
	(void)SC_FAULT("bell.link");
	set_link(&sc_process.lives.list, link_of(bell));
	(void)SC_FAULT("bell.linked");
	sc_store_release_32(&bell->presence->life, sc_process.tid);
	(void)SC_FAULT("bell.alive");
}

/* L1 */
static void life_unlink_locked(struct sc_bell *bell)
{
	struct sc_bell *before = life_before(bell);

	sc_store_release_32(&bell->presence->life, 0);
	(void)SC_FAULT("bell.unalive");
	set_link(before ? link_of(before) : &sc_process.lives.list, life_after(bell));
	(void)SC_FAULT("bell.unlinked");
}

/* Called by the daemon's thread: with its tid, once the kernel knows the list; with 0 at its end. */
static void set_lives(uint32_t tid)
{
	sc_process_lock();
	sc_process.tid = tid;
	sc_list_for (entry, &sc_process.bells) {
		struct sc_bell *bell = sc_list_entry(entry, struct sc_bell, all);

		if (!bell->presence)
			continue;
		sc_store_release_32(&bell->presence->life, tid);
		(void)SC_FAULT("bell.life");
	}
	sc_process_unlock();
}

/* The list replaces libc's list for this thread, which takes no robust mutex. */
void sc_lives_begin(void)
{
	sc_process.lives.futex_offset = (long)offsetof(struct sc_abi_presence, life) -
				    (long)offsetof(struct sc_abi_presence, life_next);
	if (!SC_TRY("bell.robust", syscall(SYS_set_robust_list, &sc_process.lives, sizeof(sc_process.lives))))
		set_lives((uint32_t)syscall(SYS_gettid));
}

void sc_lives_end(void)
{
	set_lives(0);
}

/* ---- bells ----------------------------------------------------------------------------------- */

void sc_bell_ring(struct sc_bell *bell)
{
	/* D1 release: pairs with D1' in sc_bell_hear() */
	sc_add_acq_rel_32(&bell->rung, 1);
	sc_wake(bell->sleep, SC_ABI_SLEEP_ASLEEP);
}

void sc_bell_open(struct sc_bell *bell, struct sc_seg *seg)
{
	*bell = (struct sc_bell){ .opened_by = sc_host_self(), .sleep = &sc_seg_presence(seg)->sleep };
	(void)sc_process_begin();
	sc_process_lock();
	sc_list_prepend(&sc_process.bells, &bell->all);
	if (sc_process.lives_count < LIVES_MAX) {
		sc_process.lives_count++;
		bell->presence = sc_seg_presence(seg);
		life_link_locked(bell);
	}
	sc_process_unlock();
}

bool sc_bell_is_first(void)
{
	bool first;

	(void)sc_process_begin();
	sc_process_lock();
	first = sc_list_empty(&sc_process.bells);
	sc_process_unlock();
	return first;
}

void sc_bell_close(struct sc_bell *bell)
{
	if (bell->opened_by != sc_host_self())
		return;
	sc_process_lock();
	if (bell->presence) {
		life_unlink_locked(bell);
		sc_process.lives_count--;
	}
	sc_list_remove(&bell->all);
	sc_process_unlock();
}

void sc_bells_ring_all(void)
{
	sc_process_lock();
	sc_list_for (entry, &sc_process.bells)
		sc_bell_ring(sc_list_entry(entry, struct sc_bell, all));
	sc_process_unlock();
}
