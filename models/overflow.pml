/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * overflow.pml: a ring that goes on in bounce buffers of its writer's while its reader does not look (src/shm/ring.h,
 * src/link/record.c, src/ep/rx.c).
 *
 * One writer, one reader, as in ring.pml, which has memory order; a store is visible at once here. Records have one
 * line. When the writer finds no room, it overflows into a buffer or waits for room. From a full buffer it may go on
 * in the next one. It goes back to the ring as soon as it knows that the reader has come to the first buffer. The old
 * content of a buffer looks like records. Any process may be killed between any two steps.
 *
 *   Writer    find_room(), overflow(), resume(), sc_ring_overflow(), sc_ring_resume(), sc_pool_return()
 *   Reader    poll_ring(), take_in_buffer(), take_in_ring(), sc_ring_release(), sc_ring_publish()
 *
 * Asserted: a reader takes all that has been published, once, in order, and nothing else; nobody writes past the end of a
 * buffer, nor to one that the other has to read; nobody waits for ever, and a message finds room when all is read.
 *
 * Mutants, each of which must fail:
 *            CLEAR=0    what was in a buffer stays there
 *            CLEAR=2    it is cleared after the reader has been told
 *            RESUME=0   the writer goes back before the reader has left the ring
 *            LEFT=0     no line is left for the record that leaves a buffer
 *            BACK=0     a buffer comes back when the record that names it has been read
 *            LAP=0      the reader goes back to the ring in the buffer's lap
 *            PLACE=0    it goes back to the ring's first line
 *            SINCE=2    a ring that resumes has room for a line too much
 */
#ifndef MSGS
#define MSGS 9
#endif
#ifndef CLEAR
#define CLEAR 1
#endif
#ifndef RESUME
#define RESUME 1
#endif
#ifndef LEFT
#define LEFT 1
#endif
#ifndef BACK
#define BACK 1
#endif
#ifndef LAP
#define LAP 1
#endif
#ifndef PLACE
#define PLACE 1
#endif
#ifndef SINCE
#define SINCE 1
#endif

#define RING 3           /* lines of the ring, the first ones */
#define ROOM (RING - 1)  /* of which may be unread */
#define BUF 3            /* of a buffer */
#define BUFS 2
#define LINES (RING + BUFS * BUF)
#define FIRST(buf) (RING + (buf) * BUF)

#define RESUMES 200      /* instead of the number of a message: SC_ABI_IN_RING, */
#define OVERFLOWS 201    /* + a buffer: SC_ABI_IN_BUFFER() */
#define NEVER 255

/* ---- shared memory: a line's lap, and what the record there says ---- */

byte lap[LINES], says[LINES];
byte head;

bool gone, dead;         /* the writer is; the reader */
byte published, order[60];

#define MORTAL if :: skip :: goto dies fi

/* The lines that a side is in end here. */
#define END(place) (place < RING -> RING : (place < FIRST(1) -> FIRST(1) : LINES))

/* Of the writer: lines that it may come to in the ring, and the first of a buffer that is for leaving it. */
#define LIMIT ((known > since -> known : since) + ROOM + ((SINCE == 2 && since > 0) -> 1 : 0))
#define LAST (LEFT -> (END(at) - 1) : END(at))
#define IS_FULL (overflows -> (known < since && at >= LAST) : tail >= LIMIT)

active proctype Writer()
{
	byte n, tail, known, since, at, turn = 1, buf, i, what;
	byte kept_at, kept_turn;         /* in the ring, while it overflows */
	bool overflows;
	bool lent[BUFS];
	byte until[BUFS];

	/* of what they were used for before */
	atomic {
		i = RING;
		do :: i < LINES -> lap[i] = 1; says[i] = 99; i++ :: else -> break od;
		i = 0
	};
	do
	:: n == MSGS -> break
	:: n < MSGS ->
		n++;
again:		do
		:: atomic { known != head -> MORTAL; known = head }
		/* a buffer that has been read is the writer's own again */
		:: atomic { lent[0] && until[0] < known -> lent[0] = false }
		:: atomic { lent[1] && until[1] < known -> lent[1] = false }
		:: atomic { (!overflows && tail < LIMIT) -> what = n; goto put }
		:: atomic { (overflows && (!RESUME || known >= since)) -> what = RESUMES; goto put }
		:: atomic { (overflows && known < since && at < LAST) -> what = n; goto put }
		:: atomic { (IS_FULL && !lent[0]) -> buf = 0; goto spill }
		:: atomic { (IS_FULL && lent[0] && !lent[1]) -> buf = 1; goto spill }
		:: dead -> goto dies
		od;
spill:		lent[buf] = true;
		until[buf] = NEVER;
#if CLEAR == 1
		i = 0;
		do
		:: i < BUF -> atomic { MORTAL; lap[FIRST(buf) + i] = 0; i++ }
		:: i == BUF -> break
		od;
#endif
		what = OVERFLOWS + buf;
put:		atomic { MORTAL; says[at] = what };
		atomic {
			MORTAL;
			assert(LEFT || !overflows || at < END(at));
			lap[at] = turn;
			order[published] = what;
			published++;
			tail++;
			at++;
			if
			:: at == RING -> at = 0; turn = 3 - turn
			:: else -> skip
			fi;
			if
			:: what >= OVERFLOWS ->
				if
				:: overflows -> until[(buf == 0 -> 1 : 0)] = (BACK -> tail - 1 : 0)
				:: else ->
					kept_at = at;
					kept_turn = turn;
					since = tail
				fi;
				if :: !BACK -> until[buf] = tail - 1 :: else -> skip fi;
				overflows = true;
				at = FIRST(buf);
				turn = 1
			:: what == RESUMES ->
				/* the one that it was in is the one that was lent last */
				until[buf] = (BACK -> tail - 1 : until[buf]);
				at = kept_at;
				turn = kept_turn;
				overflows = false;
				since = tail
			:: else -> skip
			fi
		};
#if CLEAR == 2
		if
		:: what >= OVERFLOWS ->
			i = 0;
			do
			:: i < BUF -> atomic { MORTAL; lap[FIRST(buf) + i] = 0; i++ }
			:: i == BUF -> break
			od
		:: else -> skip
		fi;
#endif
		if :: what >= RESUMES -> goto again :: else -> skip fi
	od;
dies:	gone = true
}

active proctype Reader()
{
	byte here, turn = 1, at, stored, taken, what;
	byte kept_here, kept_turn;
	bool saw, elsewhere;

	do
	:: atomic { lap[here] == turn -> MORTAL; what = says[here] };
		atomic {
			assert(taken < published);
			assert(what == order[taken]);
			taken++;
			at++;
			here++;
			if :: here == RING -> here = 0; turn = 3 - turn :: else -> skip fi;
			if
			:: what >= OVERFLOWS ->
				if :: !elsewhere -> kept_here = here; kept_turn = turn :: else -> skip fi;
				elsewhere = true;
				here = FIRST(what - OVERFLOWS);
				turn = 1
			:: what == RESUMES ->
				assert(elsewhere);
				elsewhere = false;
				here = (PLACE -> kept_here : 0);
				if :: LAP -> turn = kept_turn :: else -> skip fi
			:: else -> skip
			fi;
			what = 0
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
