/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_RESCUE_H
#define SC_RESCUE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "base/atomic.h"
#include "base/list.h"
#include "proc/process.h"
#include "shm/regtab.h"
#include "shm/seg.h"

/* Which thread may withdraw delegated operations of this peer, and do them. */
enum sc_rescue_keeper {
	SC_RESCUE_NONE,	    /* either, by a compare and swap of this word */
	SC_RESCUE_ENDPOINT, /* the thread that polls the endpoint */
	SC_RESCUE_COPIES,   /* the daemon's thread, which copies now, */
	SC_RESCUE_RESTS, /* or does so again when others follow, until the endpoint's thread takes over */
};

/* The first line of a record, and the number of lines that the ring has in use; both fit 15 bits. */
#define SC_RESCUE_PLACE(line, lines) ((uint32_t)(line) | (uint32_t)(lines) << 15)
#define SC_RESCUE_LINE(place) ((place)&0x7fffu)
#define SC_RESCUE_LINES(place) ((place) >> 15 & 0x7fffu)
/* In a place: the daemon's thread leaves the operation to others. */
#define SC_RESCUE_NOT (1u << 31)

/* A delegated operation. */
struct sc_rescue_kept {
	uint32_t place;		 /* SC_RESCUE_PLACE, perhaps with SC_RESCUE_NOT */
	bool bounced;		 /* put: its payload is in these buffers, else in the record; */
	bool returned;		 /* it is one buffer of the peer */
	struct sc_remote remote; /* where it goes */
	uint16_t bufs[SC_ABI_RECORD_BUFS];
};

/* The delegated puts to one peer that the daemon's thread does if nobody else does; see rescue.c. Private memory. */
struct sc_rescue {
	struct sc_list listed;	  /* sc_process.rescues */
	uint64_t opened_by;	  /* sc_host_self() */
	const struct sc_seg *own; /* our segment */
	struct sc_seg *seg;	  /* of the peer, */
	uint32_t slot;		  /* and our slot in it */

	/* written by the endpoint's thread */
	uint32_t end;	/* 1 + number of the last operation that is delegated; */
	uint32_t ended; /* at that time all before this number had ended */
	struct sc_rescue_kept kept[SC_ABI_DELEGATED]; /* by number */

	uint32_t keeper; /* enum sc_rescue_keeper, both */

	/* written by the daemon's thread; the endpoint's thread reads them in ENDPOINT */
	uint32_t from, done;		  /* the puts from this number on, before that one, are done */
	uint32_t withdrawn;		  /* its half of the claim */
	uint8_t errors[SC_ABI_DELEGATED]; /* by number: 0, or a positive errno */

	/* of the daemon's thread alone */
	uint32_t seen_end, seen_first; /* at its last look */
	bool waits;		       /* it saw operations then, from seen_first on */
	uint32_t hazards;	       /* number of copies so far */
	struct sc_regtab_seen seen;
};

/* The payload of a delegated put. */
struct sc_rescue_payload {
	struct iovec iov[SC_ABI_RECORD_BUFS]; /* buffers, or `bytes` */
	size_t count;
	uint8_t bytes[SC_ABI_DELEGATE_PUT_FIRST +
		      (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES]; /* of the record */
};

/*
 * Begins to keep the puts to a peer, from our segment `own`. `number`: of the first operation; `thread`: the daemon's
 * thread may do them. The caller closes the rescue before it gives `own` or `seg` up. NULL: no memory.
 */
struct sc_rescue *sc_rescue_open(const struct sc_seg *own, struct sc_seg *seg, uint32_t slot,
				 uint32_t number, bool thread);

/* From now on the daemon's thread does nothing, and the caller owns all. */
void sc_rescue_quit(struct sc_rescue *rescue);

/* Does the same, and frees the memory. */
void sc_rescue_close(struct sc_rescue *rescue);

/*
 * Tells the peer that withdrawn operations before this number are done. If this process dies, the peer does the withdrawn
 * puts from this number on. The thread that has done one calls this.
 */
void sc_rescue_tell_done(const struct sc_rescue *rescue, uint32_t number);

/*
 * Tells whether the claimant of our slot has done the withdrawn put of that number, one of its last SC_ABI_DELEGATED
 * operations. Its number in the slot is from any time ago if it has done none since.
 */
static inline bool sc_rescue_has_done(const struct sc_abi_slot *slot, uint32_t number)
{
	/* D1' acquire: pairs with D1 in sc_rescue_tell_done() */
	return sc_load_acquire_32(&slot->delegation.done) - number - 1 < SC_ABI_DELEGATED;
}

/* Wakes the daemon's thread, so that it looks every millisecond. */
void sc_rescue_wake(void);

/*
 * Keeps the operation of that number, whose record is committed at `place`, for a range of the peer's memory. It copies
 * word by word: the caller has just stored the words.
 */
static inline void sc_rescue_keep(struct sc_rescue *rescue, uint32_t number, uint32_t place,
				  const struct sc_remote *remote)
{
	struct sc_rescue_kept *to = &rescue->kept[number % SC_ABI_DELEGATED];

	/* relaxed: is_ours() may look at an earlier operation of this place, which has ended */
	sc_store_relaxed_32(&to->place, place);
	sc_store_relaxed_64(&to->remote.key, remote->key);
	sc_store_relaxed_64(&to->remote.addr, remote->addr);
	sc_store_relaxed_64(&to->remote.len, remote->len);
	to->bounced = false;
}

/* After that, for a put with its payload in buffers of ours, or `returned`: in one of the peer. */
static inline void sc_rescue_keep_bufs(struct sc_rescue *rescue, uint32_t number,
				       const uint16_t bufs[SC_ABI_RECORD_BUFS], bool returned)
{
	struct sc_rescue_kept *to = &rescue->kept[number % SC_ABI_DELEGATED];

	to->bounced = true;
	to->returned = returned;
	memcpy(to->bufs, bufs, sizeof(to->bufs));
}

/*
 * Shows the operation to the daemon's thread; those before `ended` have ended. `injected`: the application may never call
 * again.
 */
static inline void sc_rescue_show(struct sc_rescue *rescue, uint32_t ended, uint32_t number, bool injected)
{
	sc_store_relaxed_32(&rescue->ended, ended);
	sc_store_release_32(&rescue->end, number + 1); /* E1, W1 */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (injected && __builtin_expect(!sc_load_relaxed_32(&sc_process.rescue_looks), 0))
		sc_rescue_wake();
}

/*
 * Reads the payload back of a put that is kept, also one that the daemon's thread leaves. The put has not ended: its
 * record and its buffers are in use until then (sc_ring_tx.held).
 */
void sc_rescue_payload(const struct sc_rescue *rescue, const struct sc_rescue_kept *kept,
		       struct sc_rescue_payload *payload);

/* Tells whether the daemon's thread has withdrawn operations that the endpoint's thread still counts as delegated. */
static inline bool sc_rescue_has_begun(const struct sc_rescue *rescue)
{
	return sc_load_relaxed_32(&rescue->keeper) >= SC_RESCUE_COPIES;
}

/*
 * Lets the endpoint's thread withdraw and do operations, until sc_rescue_release(). 1: the daemon's thread has withdrawn
 * all from `from` on, and done those before `done`; 0: it has not; -EAGAIN: it copies now.
 */
int sc_rescue_take(struct sc_rescue *rescue);
void sc_rescue_release(struct sc_rescue *rescue);

/* ---- for the daemon's thread, with the process locked ------------------------------------------ */

/* Milliseconds between two looks. */
#define SC_RESCUE_MS 1

/* Looks at all peers, if another thread has woken it. */
void sc_rescue_look_locked(void);

/* The process ends: does all that can be done. */
void sc_rescue_finish(void);

#endif
