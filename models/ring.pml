/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring.pml: records, window and bounce buffers between a writer and its readers (src/shm/ring.h, src/shm/pool.h,
 * src/ep/rx.c, src/link/record.c).
 *
 * One writer, NR readers: a ring of L lines for each, one pool of NB bounce buffers for all. Rings share
 * nothing else, so more writers are more of the same. MSGS messages, each to any reader: inline in one or
 * two lines, or in a bounce buffer. A record may begin in the last line and go on in the first. Any process
 * may be killed between any two steps; the kernel frees its life lock when its last store is visible.
 *
 *   Writer    sc_record_room(), sc_ring_refresh(), sc_send_window_room(), sc_pool_lend(), sc_ring_commit() (R1),
 *             sc_pool_return(), sc_pool_reclaim()
 *   Reader    poll_ring(): sc_ring_peek() (R1'), the reading, sc_ring_release(), sc_ring_publish() (R2);
 *             sc_peer_give_back(); bury() and sc_rx_poll_peer(), when the writer has died or closed
 *
 * Weak memory: plain stores of the writer (bytes of lines and buffers, ctl of further lines) become visible
 * in any order, at any time until its next release store. The reader's loads of bytes stay behind its
 * acquire load of ctl.
 *
 * Asserted: a reader takes what has been published, all of it, once, in order, and no other bytes; nothing
 * that is unread is written over; no more messages are unmatched than the window allows; a buffer is free
 * or lent once, and comes back in the end also from the dead; nobody waits for ever.
 *
 * Mutants, each of which must fail:
 *            RELEASE=0  ctl is stored without release
 *            ACQUIRE=0  bytes are loaded before ctl
 *            FIRST=1    ctl is stored before the bytes
 *            LAPS=0     further lines keep their old ctl
 *            HEAD=2     head is stored before the bytes are read
 *            ROOM=0     the writer does not look at head
 *            PUBLISH=3  a reader may keep more lines to itself than leave room for the longest record
 *            CREDIT=2   a match gives its window back twice
 *            RETURN=2   buffers come back with the record behind which they are
 *            RECLAIM=0  what the dead were lent stays lent
 *            RECLAIM=2  a slow reader counts as dead
 *            RECLAIM=3  what is reclaimed from the dead is taken back once more
 *            DRAIN=0    records of the dead are dropped
 *            DRAIN=2    the ring is found empty first, the writer dead after that
 */
#ifndef NR
#define NR 2
#endif
#ifndef MSGS
#define MSGS 3
#endif
#ifndef RELEASE
#define RELEASE 1
#endif
#ifndef ACQUIRE
#define ACQUIRE 1
#endif
#ifndef FIRST
#define FIRST 0
#endif
#ifndef LAPS
#define LAPS 1
#endif
#ifndef HEAD
#define HEAD 1
#endif
#ifndef ROOM
#define ROOM 1
#endif
#ifndef PUBLISH
#define PUBLISH 2
#endif
#ifndef CREDIT
#define CREDIT 1
#endif
#ifndef RETURN
#define RETURN 1
#endif
#ifndef RECLAIM
#define RECLAIM 1
#endif
#ifndef DRAIN
#define DRAIN 1
#endif

#define L 3
#define NB 2
#define WINDOW 2
#define NONE 255
#define AT(r, i) ((r) * L + (i))
#define NEXT(i) (((i) + 1) % L)
#define CTL(lap, bounce, lines) ((lap) * 8 + (bounce) * 4 + (lines))

/* ---- shared memory ---- */

byte bytes[NR * L];      /* of each line: number of the message, or of its buffer */
byte ctl[NR * L];        /* lap, bounce, lines */
byte buf[NB];            /* number of the message */
byte head[NR], window[NR];

/* ---- the writer's stores that are not visible yet ---- */

#define BYTES 0
#define MORE_BYTES 1     /* of the second line */
#define MORE_CTL 2
#define BUF 3
bool late[4];
byte where[4], what[4];
#define ALL_VISIBLE !(late[0] || late[1] || late[2] || late[3])

/* ---- life locks, and what the assertions need ---- */

bool gone;               /* the writer is dead, or has closed */
bool dead[NR];
byte published[NR];      /* messages */
byte order[MSGS * NR];   /* their numbers */

#define MORTAL if :: skip :: goto dies fi

inline store(kind, place, value)
{
	atomic { MORTAL; where[kind] = place; what[kind] = value; late[kind] = true }
}

active proctype Memory()
{
end:	do
	:: atomic { late[0] -> bytes[where[0]] = what[0]; late[0] = false; where[0] = 0; what[0] = 0 }
	:: atomic { late[1] -> bytes[where[1]] = what[1]; late[1] = false; where[1] = 0; what[1] = 0 }
	:: atomic { late[2] -> ctl[where[2]] = what[2]; late[2] = false; where[2] = 0; what[2] = 0 }
	:: atomic { late[3] -> buf[where[3]] = what[3]; late[3] = false; where[3] = 0; what[3] = 0 }
	od
}

/* sc_pool_return(): what was lent to reader r before `until` */
inline give_back(until, keep)
{
	b = 0;
	do
	:: b < NB ->
		if
		:: lent[b] == r && at[b] < until ->
			free++;
			assert(free <= NB);
			if :: !keep -> lent[b] = NONE; at[b] = 0 :: else -> skip fi
		:: else -> skip
		fi;
		b++
	:: b == NB -> b = 0; break
	od
}

/* Of reader r: sc_ring_refresh(), and what has come back with it; or it is dead. */
inline look()
{
	if
	:: !dead[r] && !down[r] -> atomic {
		MORTAL;
		known[r] = head[r];
		if
		:: RETURN == 1 -> give_back(known[r], false)
		:: RETURN == 2 -> give_back(known[r] + 1, false)
		fi
	}
#if RECLAIM == 2
	:: !down[r] -> atomic { down[r] = true; give_back(NONE, false) }
#endif
	:: dead[r] -> atomic {
		MORTAL;
		if
		:: RECLAIM == 3 -> give_back(NONE, true)
		:: RECLAIM && RECLAIM != 3 && !down[r] -> give_back(NONE, false)
		:: else -> skip
		fi;
		down[r] = true
	}
	fi
}

/* The record of message `n` for reader r begins at line `from` of its ring and has `lines`. */
inline commit()
{
	atomic {
		MORTAL;
		ctl[AT(r, from)] = CTL(laps[r], bounce, lines); /* R1 */
		order[r * MSGS + published[r]] = n;
		published[r]++
	}
}

active proctype Writer()
{
	byte n, r, b, from, lines, bounce, free = NB, pick = NONE;
	byte tail[NR], known[NR], laps[NR], sent[NR], limit[NR];
	byte lent[NB], at[NB];
	bool down[NR];

	atomic {
		laps[0] = 1; limit[0] = WINDOW;
#if NR > 1
		laps[1] = 1; limit[1] = WINDOW;
#endif
		lent[0] = NONE; lent[1] = NONE
	};
	do
	:: n == MSGS -> break
	:: n < MSGS ->
		atomic {
			n++;
			r = 0;
#if NR > 1
			if :: r = 0 :: r = 1 fi;
#endif
			if :: lines = 1; bounce = 0 :: lines = 2; bounce = 0 :: lines = 1; bounce = 1 fi
		};
		do                                              /* -EAGAIN, until there is room */
		:: down[r] -> goto next
		:: !down[r] && dead[r] -> look()
		:: !down[r] && sent[r] == limit[r] && limit[r] != window[r] + WINDOW ->
			atomic { MORTAL; limit[r] = window[r] + WINDOW }
		:: !down[r] && ((ROOM && tail[r] - known[r] + lines > L) || (bounce && !free)) &&
				known[r] != head[r] -> look()
		:: !down[r] && bounce && !free &&               /* collect() */
				(NR == 2 && ((known[1 - r] != head[1 - r] && !down[1 - r]) || (dead[1 - r] && !down[1 - r]))) ->
			atomic { r = 1 - r };
			look();
			atomic { r = 1 - r }
#if RECLAIM == 2
		:: !down[r] && free < NB -> atomic { down[r] = true; give_back(NONE, false) }
#endif
		:: !down[r] && sent[r] < limit[r] && (!ROOM || tail[r] - known[r] + lines <= L) &&
				(!bounce || free) -> break
		od;
		atomic {
			from = tail[r] % L;
			sent[r]++;
			if
			:: bounce ->
				if :: lent[0] == NONE -> pick = 0 :: else -> pick = 1 fi;
				lent[pick] = r;
				at[pick] = tail[r];
				free--
			:: else -> skip
			fi
		};
#if FIRST
		commit();
#endif
		if
		:: bounce -> store(BUF, pick, n); store(BYTES, AT(r, from), pick)
		:: !bounce -> store(BYTES, AT(r, from), n)
		fi;
		if
		:: lines == 2 ->
			store(MORE_BYTES, AT(r, NEXT(from)), n);
#if LAPS
			store(MORE_CTL, AT(r, NEXT(from)), CTL((NEXT(from) == 0 -> 3 - laps[r] : laps[r]), 0, 0))
#endif
		:: else -> skip
		fi;
#if RELEASE && !FIRST
		ALL_VISIBLE;
#endif
#if !FIRST
		commit();
#endif
#if !RELEASE || FIRST
		ALL_VISIBLE;                                    /* one record at a time is enough */
#endif
		atomic {
			if :: from + lines >= L -> laps[r] = 3 - laps[r] :: else -> skip fi;
			tail[r] = tail[r] + lines;
			from = 0; pick = NONE
		};
next:		skip
	od;
	do
	:: free == NB -> break
	:: free < NB ->
		if
		:: (known[0] != head[0] && !down[0]) || (dead[0] && !down[0]) -> r = 0
#if NR > 1
		:: (known[1] != head[1] && !down[1]) || (dead[1] && !down[1]) -> r = 1
#endif
		fi;
		look()
	od;
	assert(lent[0] == NONE && lent[1] == NONE);
dies:	ALL_VISIBLE;
	gone = true
}

active [NR] proctype Reader()
{
	byte r = _pid - 2;
	byte here, lap = 1, c, x, y, lines, at, stored, taken, held, back;
	bool saw;

	do
#if ACQUIRE
	:: atomic { ctl[AT(r, here)] / 8 == lap -> MORTAL; c = ctl[AT(r, here)] };
#else
	:: ctl[AT(r, here)] / 8 != lap -> x = bytes[AT(r, here)]; y = bytes[AT(r, NEXT(here))];
		atomic { ctl[AT(r, here)] / 8 == lap -> c = ctl[AT(r, here)] };
#endif
		atomic {
			lines = c % 4;
			assert(lines > 0);
			assert(taken < published[r])
		};
#if HEAD == 2
		atomic { MORTAL; head[r] = at + lines };
#endif
#if ACQUIRE
		atomic { MORTAL; x = bytes[AT(r, here)] };
		if
		:: lines == 2 -> atomic { MORTAL; y = bytes[AT(r, NEXT(here))] }
		:: else -> skip
		fi;
#endif
		if
		:: c / 4 % 2 ->
			atomic { MORTAL; assert(x < NB); x = buf[x]; }
		:: else -> skip
		fi;
		atomic {
			assert(x == order[r * MSGS + taken]);
			assert(lines == 1 || y == x);
			assert(held < WINDOW);
			held++;
			taken++;
			at = at + lines;
			here = here + lines;
			if :: here >= L -> here = here - L; lap = 3 - lap :: else -> skip fi;
			x = 0; y = 0
		};
		if
		:: at - stored >= PUBLISH || c / 4 % 2 ->
			atomic { MORTAL; window[r] = back };
			atomic { MORTAL; head[r] = at; stored = at }    /* R2 */
		:: else -> skip
		fi;
		atomic { c = 0; lines = 0 }
	:: held -> atomic { MORTAL; held--; back = back + CREDIT; window[r] = back }
#if DRAIN == 2
	:: !saw && ctl[AT(r, here)] / 8 != lap -> saw = true
	:: saw && gone -> break
#else
	:: gone && !saw -> saw = true
	:: saw && (!DRAIN || ctl[AT(r, here)] / 8 != lap) -> break
#endif
	od;
	assert(taken == published[r]);
dies:	atomic {
		dead[r] = true;
		here = 0; lap = 0; c = 0; x = 0; y = 0; at = 0; stored = 0; held = 0; back = 0; taken = 0
	}
}
