/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold.pml: bounce buffers that come back with a message (src/hold.h, src/record.c, src/record.h, src/rx.c,
 * src/tx.c, src/peer.c, src/pool.c).
 *
 * An owner with NB buffers, a peer that it talks to, and another that it lends buffers to as well. MSGS messages
 * of the owner's, each in a buffer to either of the two; of those to the peer one at a time may come back with a
 * message. ANSWERS messages of the peer's, inline or in the buffer that it holds. Rings of L lines. The peer may be
 * killed between any two steps, and may close between any two calls; the owner may give it up whenever it looks at
 * what it says, though it keeps the rules, and may be writing to the buffer.
 *
 *   Owner     send_buffer(), return_flag(), sc_pool_lend(); sc_ring_refresh() (R2'), take_back();
 *             take_return(), sc_record_returned(); sc_peer_quarantine(), end_link(), sc_pool_return_others();
 *             review_claims(), bury(), sc_peer_drained(), end_feed(); slot_forget()
 *   Peer      take_buffer(), sc_hold_begin(); send_return(), sc_hold_take(); sc_peer_publish() (R2),
 *             sc_peers_give_back(); say_goodbye(), when it closes, or sees that it has been given up
 *   Other     a reader as in ring.pml
 *
 * Abstracted: lines and laps, the window, the owner's stores (ring.pml): a record is in the ring as a whole or not
 * at all. Nor does the owner die: its memory is then nobody's but the readers'. Departed and dead are one: in either
 * case the peer does nothing more, and what it has done can be seen.
 *
 * Weak memory: what the peer writes into a buffer becomes visible at any time until its next release store, of a
 * record, of its head, of its claim, and so does a record until the one after that; at last before its life lock is
 * free.
 *
 * Asserted: all messages are taken, once, in order, with the bytes that were sent, but of and by one that has been
 * given up; no line is written over that is unread; nobody who keeps the rules is found to have broken them; a
 * buffer is free or lent once, and comes back in the end, also from one that lives and does not leave; nobody waits
 * for ever.
 *
 * Mutants, each of which must fail:
 *            PEEK=0     a head is believed though there are records unread
 *            PEEK=2     it is looked whether there are, and the head is read then
 *            ONE=0      several may come back with a message
 *            FLAG=0     one is held that may not
 *            HELD=2     one is still held when the head has passed it
 *            GIVE=0     what is held comes back with a message only
 *            FIRST=1    the message's record is published before the bytes
 *            RELEASE=0  it is published without release
 *            PUBLISH=0  head is
 *            READ=2     the buffer goes back to the pool first, and is read then
 *            LEARN=2    the owner takes the message to say that everything has been read
 *            SAID=2     the peer does
 *            BOTH=1     what has come back with a message comes back by the head once more
 *            KEEP=0     who is given up keeps nothing
 *            KEEP=2     it keeps what it may write to until it can see that it has been given up
 *            FORGET=0   it keeps that for ever
 *            DRAIN=0    the buffers of one that has gone come back before its records have been read
 */
#ifndef MSGS
#define MSGS 4
#endif
#ifndef ANSWERS
#define ANSWERS 3
#endif
#ifndef L
#define L 2
#endif
#ifndef PEEK
#define PEEK 1
#endif
#ifndef ONE
#define ONE 1
#endif
#ifndef FLAG
#define FLAG 1
#endif
#ifndef HELD
#define HELD 1
#endif
#ifndef GIVE
#define GIVE 1
#endif
#ifndef FIRST
#define FIRST 0
#endif
#ifndef RELEASE
#define RELEASE 1
#endif
#ifndef READ
#define READ 1
#endif
#ifndef PUBLISH
#define PUBLISH 1
#endif
#ifndef LEARN
#define LEARN 1
#endif
#ifndef SAID
#define SAID 1
#endif
#ifndef BOTH
#define BOTH 0
#endif
#ifndef KEEP
#define KEEP 1
#endif
#ifndef FORGET
#define FORGET 1
#endif
#ifndef DRAIN
#define DRAIN 1
#endif

#define NB 2
#define NONE 255
#define ALL 255

/* rings, by who reads them */
#define PEER 0
#define OTHER 1
#define OWNER 2
#define LINE(r, n) record[(r) * L + (n) % L]
#define MESSAGE(r, n) ((r) * 16 + (n) + 1) /* the bytes of the n-th in that ring */

/* a record: inline, or the buffer + 1; and whether that may come back with a message */
#define INLINE 0
#define MAY_RETURN 8

/* ---- shared memory ---- */

byte record[3 * L];
byte tail[3];            /* records published */
byte head[2];            /* as it is in the consumer lines; of the owner's it is `taken` */
byte buf[NB];
bool broken;             /* the owner's answer: the peer has been given up */
bool gone;               /* the peer has departed, or its life lock is free */

/* ---- the peer's stores that are not visible yet: into a buffer, and its last record ---- */

bool late, late_record;
byte where, what, last;
#define ALL_VISIBLE !(late || late_record)

/* ---- records that the reader of each ring has read ---- */

byte taken[3];

/* ---- the owner's ledger, and its messages so far ---- */

byte free = NB;
byte lent[NB] = NONE;    /* to whom */
byte at[NB];             /* with which record */
byte sent;

/* sc_pool_return(), sc_pool_reclaim_others(): what was lent to r before `until`, but for `kept` */
inline give_back(r, until, kept)
{
	b = 0;
	do
	:: b < NB ->
		if
		:: lent[b] == r && at[b] < until && b != kept ->
			free++;
			assert(free <= NB);
			lent[b] = NONE;
			at[b] = 0
		:: else
		fi;
		b++
	:: else -> b = 0; break
	od
}

inline publish(r, what_record)
{
	assert(tail[r] - taken[r] < L);
	LINE(r, tail[r]) = what_record;
	tail[r]++
}

active proctype Memory()
{
end:	do
	:: atomic { late -> buf[where] = what; late = false; where = 0; what = 0 }
	:: atomic { late_record -> publish(OWNER, last); late_record = false; last = 0 }
	od
}

/* ---- the owner ---- */

/* feed */
#define UP 0
#define DRAINING 1
#define DONE 2

#define UNREAD (taken[OWNER] != tail[OWNER])
#define PASSED (returnable != NONE && at[returnable] < known[PEER])
#define BEHIND(b) (lent[b] == PEER && at[b] < known[PEER])
#define COMES_BACK(b) (BEHIND(b) && !(returnable == b && UNREAD))
#define ROOM(r) (tail[r] - known[r] < L)

/* sc_peer_quarantine(), end_link() */
inline give_up()
{
	feed = DONE;
	broken = true;
#if !KEEP
	returnable = NONE;
#endif
	give_back(PEER, ALL, returnable)
}

/* sc_record_returned(): buffer x has come back with a message */
inline returned()
{
#if LEARN == 2
	until = tail[PEER];
#else
	until = at[x] + 1;
#endif
	if
	:: known[PEER] < until -> known[PEER] = until
	:: else
	fi;
#if BOTH
	free++;
	assert(free <= NB);
#else
	give_back(PEER, known[PEER], NONE);
#endif
	until = 0;
	returnable = NONE
}

active proctype Owner()
{
	byte known[2], returnable = NONE, feed = UP;
	byte r, b, x, pick, until;
#if PEEK == 2
	bool unread;
#endif
#if READ == 2
	byte late_read = NONE, late_bytes;
#endif

	do
	/* a message */
	:: atomic {
		sent < MSGS && free && ((feed == UP && ROOM(PEER)) || ROOM(OTHER)) ->
		if
		:: feed == UP && ROOM(PEER) -> r = PEER
		:: ROOM(OTHER) -> r = OTHER
		fi;
		assert(lent[0] == NONE || lent[1] == NONE);
		if
		:: lent[0] == NONE -> pick = 0
		:: lent[1] == NONE -> pick = 1
		fi;
		sent++;
		free--;
		lent[pick] = r;
		at[pick] = tail[r]
	   };
		buf[pick] = MESSAGE(r, tail[r]);
		atomic {
			if
			:: r == PEER && (returnable == NONE || !ONE) ->
				returnable = pick;
				publish(r, pick + 1 + MAY_RETURN)
			:: publish(r, pick + 1)
			fi;
			r = 0; pick = 0
		}

	/* how far is the peer? */
	:: feed != DONE && (head[PEER] > known[PEER] || COMES_BACK(0) || COMES_BACK(1)) ->
#if PEEK == 2
		unread = UNREAD;
#endif
		atomic {
			if
			:: head[PEER] > known[PEER] -> known[PEER] = head[PEER] /* R2' */
			:: else
			fi
		};
		atomic {
			if
#if PEEK == 1
			:: PASSED && UNREAD -> pick = returnable
#elif PEEK == 2
			:: PASSED && unread -> pick = returnable
#endif
			:: else ->
				pick = NONE;
				if
				:: PASSED -> returnable = NONE
				:: else
				fi
			fi;
			give_back(PEER, known[PEER], pick);
			pick = 0
		}
	:: atomic { feed != DONE && head[PEER] > known[PEER] -> give_up() }

	/* and the other? */
	:: atomic { head[OTHER] > known[OTHER] -> known[OTHER] = head[OTHER]; give_back(OTHER, known[OTHER], NONE) }

	/* a record of the peer's */
	:: atomic {
		feed != DONE && UNREAD ->
		x = LINE(OWNER, taken[OWNER]);
		if
		:: x == INLINE
		:: x != INLINE ->
			x--;
#if DRAIN
			assert(x == returnable);
#endif
#if READ == 2
			late_read = x;
			late_bytes = MESSAGE(OWNER, taken[OWNER]);
#else
			assert(buf[x] == MESSAGE(OWNER, taken[OWNER]));
#endif
			if
			:: x == returnable -> returned()
			:: else
			fi
		fi;
		x = 0;
		taken[OWNER]++
	   }
	:: atomic { feed != DONE && UNREAD -> give_up() }
#if READ == 2
	:: atomic { late_read != NONE -> assert(buf[late_read] == late_bytes); late_read = NONE; late_bytes = 0 }
#endif

	/* it has gone */
	:: atomic {
		feed == UP && gone ->
		feed = DRAINING;
#if !DRAIN
		give_back(PEER, ALL, NONE);
		returnable = NONE
#endif
	   }
	:: atomic { feed == DRAINING && !UNREAD -> feed = DONE; give_back(PEER, ALL, NONE); returnable = NONE }
	:: atomic {
		feed == DONE && returnable != NONE && FORGET && (gone || KEEP == 2) ->
		give_back(PEER, ALL, NONE);
		returnable = NONE
	   }
	:: sent == MSGS && free == NB && feed == DONE && gone -> break
	od;
	assert(lent[0] == NONE && lent[1] == NONE && returnable == NONE);
	assert(broken || !UNREAD);
	assert(taken[OTHER] == tail[OTHER])
}

/* ---- the peer ---- */

#define MORTAL if :: skip :: goto dies fi
#define CALL if :: skip :: goto dies :: goto departs fi
#define ANSWER_ROOM (count - taken[OWNER] < L)

inline fill()
{
	atomic { !late -> MORTAL; where = x; what = MESSAGE(OWNER, count); late = true }
}

inline answer(what_record)
{
	atomic { (ALL_VISIBLE || !RELEASE) && !late_record -> MORTAL; last = what_record; late_record = true } /* R1 */
}

active proctype Peer()
{
	byte x, count, held = NONE;
	byte behind;                            /* records read with what is held */
	byte said;                              /* sc_ring_rx.published: those that the owner knows of, or will */

	do
	/* a message is read */
	:: atomic { taken[PEER] != tail[PEER] -> CALL; x = LINE(PEER, taken[PEER]) };
		atomic {
			MORTAL;
			assert(broken || buf[(x - 1) % MAY_RETURN] == MESSAGE(PEER, taken[PEER]));
			if
			:: x > MAY_RETURN || !FLAG -> held = (x - 1) % MAY_RETURN; behind = taken[PEER] + 1
			:: else
			fi;
			x = 0;
			taken[PEER]++
		}

	/* all that has been read is given back; or some window, and head goes with it */
	:: atomic {
		(said != taken[PEER] || (head[PEER] != taken[PEER] && count < ANSWERS && ANSWER_ROOM)) &&
				(ALL_VISIBLE || !PUBLISH) && (GIVE || held == NONE) ->
		CALL;
		if
		:: HELD == 1 -> held = NONE; behind = 0
		:: else
		fi;
		head[PEER] = taken[PEER];        /* R2 */
		said = taken[PEER]
	   }

	/* a message in the buffer that is held */
	:: atomic {
		count < ANSWERS && held != NONE && ANSWER_ROOM && !late ->
		CALL;
		x = held;
		held = NONE;
		if
		:: SAID == 1 -> said = behind
		:: SAID == 2 -> said = taken[PEER]
		fi;
		behind = 0
	   };
#if FIRST
		answer(x + 1);
		fill();
#else
		fill();
		answer(x + 1);
#endif
		atomic { count++; x = 0 }

	/* another */
	:: atomic { count < ANSWERS && ANSWER_ROOM -> CALL };
		answer(INLINE);
		count++

	:: broken -> goto departs
	:: count == ANSWERS && said == tail[PEER] && sent == MSGS && free == NB -> goto departs
	od;
departs:
dies:	atomic { ALL_VISIBLE -> gone = true; x = 0; count = 0; held = 0; behind = 0; said = 0 }
}

/* ---- the other ---- */

active proctype Other()
{
end:	do
	:: atomic {
		taken[OTHER] != tail[OTHER] ->
		assert(buf[LINE(OTHER, taken[OTHER]) - 1] == MESSAGE(OTHER, taken[OTHER]));
		taken[OTHER]++
	   };
		head[OTHER] = taken[OTHER]       /* R2 */
	od
}
