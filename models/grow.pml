/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grow.pml: a ring that gets more lines while it is in use (src/shm/ring.h, src/link/record.c, src/ep/rx.c).
 *
 * One writer, one reader, as in ring.pml, which has memory order, window and buffers; a store is visible at once
 * here. The ring begins with FEW lines, and has MANY once it has grown; before that the other lines have no memory,
 * and when they get it they hold what an earlier user has left there. Messages have one or two lines and may go on
 * in the first line behind the last. The writer grows the ring when it was full, or for no reason. Any process may
 * be killed between any two steps.
 *
 *   Writer    sc_record_room_slow(), ring_grow(), sc_seg_slot_grow(), sc_ring_may_grow(), sc_ring_store()
 *   Reader    poll_ring(), take_in_ring(), sc_ring_release(), sc_ring_publish()
 *
 * Asserted: a reader takes all that has been published, once, in order, and nothing else; nothing that is unread is
 * written over; no line without memory is touched; a ring that is to grow does so before it comes to its end; nobody
 * waits for ever.
 *
 * Mutants, each of which must fail:
 *            ROOM=0     it grows though something is unread of the lap before
 *            TELL=0     the reader is not told
 *            TELL=2     the reader has more lines only behind the record that says so
 *            TELL=3     the reader is told before the lines have memory
 *            CLEAR=0    what somebody has left stays there
 *            CLEAR=2    it is cleared after the reader has been told
 *            LATER=0    a writer that could not grow the ring when it was full waits until it is full once more
 */
#ifndef MSGS
#define MSGS 7
#endif
#ifndef ROOM
#define ROOM 1
#endif
#ifndef TELL
#define TELL 1
#endif
#ifndef CLEAR
#define CLEAR 1
#endif
#ifndef LATER
#define LATER 1
#endif

#define FEW 3
#define MANY 5
#define GROWN 255        /* instead of the number of a message: SC_ABI_IN_RING */
#define NEXT(i, count) (((i) + 1) % (count))

#define HAS_ROOM (tail - known + size <= (count == FEW -> FEW - 1 : MANY))
#define MAY_GROW (count == FEW && (!ROOM || tail - known <= at))

/* ---- shared memory: a line's lap and the lines of the record that begins there, and what it says ---- */

byte lap[MANY], lines[MANY], says[MANY];
byte head;
bool memory;             /* of the lines behind the first few */

bool gone, dead;         /* the writer is; the reader */
byte published;          /* records */
byte order[MSGS + 1];    /* the number that each record says */

#define MORTAL if :: skip :: goto dies fi
#define THERE(i) assert((i) < FEW || memory)

inline forget()
{
	lap[FEW] = 0; lap[FEW + 1] = 0; lines[FEW] = 0; lines[FEW + 1] = 0; says[FEW] = 0; says[FEW + 1] = 0
}

/* A record of `size` lines from the place on. */
inline put(what, size)
{
	atomic { MORTAL; THERE(at); says[at] = what };
	if
	:: size == 2 -> atomic {
			MORTAL;
			THERE(NEXT(at, count));
			says[NEXT(at, count)] = what;
			lines[NEXT(at, count)] = 0;
			lap[NEXT(at, count)] = (NEXT(at, count) == 0 -> 3 - turn : turn)
		}
	:: else -> skip
	fi;
	atomic {
		MORTAL;
		lines[at] = size;
		lap[at] = turn;
		order[published] = what;
		published++;
		tail = tail + size;
		at = at + size;
		if
		:: at >= count ->
			at = at - count;
			turn = 3 - turn;
			assert(!wanted)
		:: else -> skip
		fi
	}
}

active proctype Writer()
{
	byte n, size, tail, known, at, turn = 1, count = FEW;
	bool wanted;             /* it has been full */

	/* the lines behind the first FEW hold records of an earlier user */
	atomic {
		if :: lap[FEW] = 0 :: lap[FEW] = 1 :: lap[FEW] = 2 fi;
		lines[FEW] = 1;
		lap[FEW + 1] = lap[FEW];
		lines[FEW + 1] = 1
	};
	do
	:: n == MSGS -> break
	:: n < MSGS ->
		atomic { n++; if :: size = 1 :: size = 2 fi };
		do
		:: atomic { known != head -> MORTAL; known = head }
		:: atomic { !HAS_ROOM && known == head && count == FEW && !wanted -> MORTAL; wanted = true }
		:: atomic { MAY_GROW && (!wanted || LATER || !HAS_ROOM) -> goto grow }
		:: atomic { HAS_ROOM && !(MAY_GROW && wanted && LATER) -> break }
		:: !HAS_ROOM && dead -> goto dies
		od;
		put(n, size);
		goto next;
grow:
#if TELL == 3
		atomic { wanted = false; count = MANY };
		put(GROWN, 1);
		atomic { MORTAL; memory = true; forget() };
#else
		atomic { MORTAL; memory = true };
#if CLEAR == 1
		atomic { MORTAL; forget() };
#endif
		atomic { wanted = false; count = MANY };
#if TELL
		put(GROWN, 1);
#endif
#if CLEAR == 2
		atomic { MORTAL; forget() };
#endif
#endif
		n--;
next:		skip
	od;
dies:	gone = true
}

active proctype Reader()
{
	byte here, turn = 1, count = FEW, size, what, at, stored, taken;
	bool saw;

	do
	:: atomic { lap[here] == turn -> MORTAL; THERE(here); size = lines[here]; what = says[here] };
		atomic {
			assert(size > 0 && taken < published);
			assert(what == order[taken]);
			if
			:: size == 2 -> THERE(NEXT(here, count)); assert(says[NEXT(here, count)] == what)
			:: else -> skip
			fi;
			taken++;
			at = at + size;
			if :: what == GROWN && TELL != 2 -> count = MANY :: else -> skip fi;
			here = here + size;
			if :: here >= count -> here = here - count; turn = 3 - turn :: else -> skip fi;
			if :: what == GROWN && TELL == 2 -> count = MANY :: else -> skip fi;
			size = 0; what = 0
		};
		if
		:: at > stored -> atomic { MORTAL; head = at; stored = at }
		:: at - stored < 2 -> skip                      /* a reader may keep a line to itself */
		fi
	:: atomic { at > stored -> MORTAL; head = at; stored = at }
	:: gone && !saw -> saw = true
	:: saw && lap[here] != turn -> break
	od;
	assert(taken == published);
dies:	dead = true
}
