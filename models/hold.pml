/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold.pml: bounce buffers that come back with a message (src/link/hold.h, src/link/record.c, src/link/record.h, src/ep/rx.c,
 * src/msg/bounce.c, src/link/peer.c, src/shm/pool.c). putback.pml has those that come back with a put.
 *
 * An owner with NB buffers, a peer that it talks to, and another that it lends buffers to as well. MSGS records
 * of the owner's to either of the two, each with a buffer: some are messages, and some are parts, two of a message;
 * the buffers of one message to the peer at a time may come back with a message. ANSWERS records of the peer's, inline,
 * or in a buffer that it holds, or two, parts of a message, in both. Rings of L lines. The peer may be killed between
 * any two steps, and may close between any two calls; the owner may give it up whenever it looks at what it says,
 * though it keeps the rules, and may be writing to the buffers.
 *
 *   Owner     sc_bounce_send_buffer(), sc_bounce_send(), sc_record_may_return(), sc_record_return_flag(), sc_pool_lend();
 *             sc_ring_refresh() (R2'), take_back(), returning(); take_buffer(), take_part(), sc_hold_comes_back(), sc_record_returned();
 *             sc_peer_quarantine(), sc_peer_end_link(), sc_pool_return_others(); sc_peer_review_claims(), sc_peer_bury(), sc_peer_drained(),
 *             end_feed(); slot_forget()
 *   Peer      take_buffer(), take_part(), sc_hold_begin(); sc_bounce_send_return(), return_put(), sc_hold_take();
 *             sc_peer_publish() (R2), sc_peers_give_back(); say_goodbye(), when it closes, or sees that it has been
 *             given up
 *   Other     a reader as in ring.pml
 *
 * Abstracted: lines and laps, the window, the owner's stores (ring.pml): a record is in the ring as a whole or not
 * at all. Parts, but for what may come back: each record is read by itself, and two stand for as many as there may be.
 * Nor does the owner die: its memory is then nobody's but the readers'. Departed and dead are one: in either case the
 * peer does nothing more, and what it has done can be seen.
 *
 * Weak memory: what the peer writes into a buffer becomes visible at any time until its next release store, of a
 * record, of its head, of its claim, and so does a record until the one after that; at last before its life lock is
 * free.
 *
 * Asserted: all records are taken, once, in order, with the bytes that were sent, but of and by one that has been
 * given up; no line is written over that is unread; nobody who keeps the rules is found to have broken them; no more
 * may come back at a time than there is a place for; a buffer is free or lent once, and comes back in the end, also
 * from one that lives and does not leave; nobody waits for ever.
 *
 * Mutants, each of which must fail:
 *            PEEK=0     a head is believed though there are records unread
 *            PEEK=2     it is looked whether there are, and the head is read then
 *            PASS=2     what may come back does no more once the head has passed the first
 *            PASS=3     of what it has passed only the first stays lent while there are records unread
 *            ONE=0      several messages' may come back
 *            FLAG=0     one is held that may not
 *            HELD=2     one is still held when the head has passed it
 *            GIVE=0     what is held comes back with a message only
 *            TAKE=2     what is held before the one that a message is written into stays so
 *            LAST=0     of two the first is written into, and the record of the last said to have been read
 *            ORDER=2    parts are written into them in the other order
 *            ALONE=0    head is published between two parts
 *            FIRST=1    the message's record is published before the bytes
 *            RELEASE=0  it is published without release
 *            PUBLISH=0  head is
 *            READ=2     the buffer goes back to the pool first, and is read then
 *            LEARN=2    the owner takes the message to say that everything has been read
 *            SAID=2     the peer does
 *            BOTH=1     what has come back with a message comes back by the head once more
 *            REST=0     with a part comes back all that the head has passed, also what is unread
 *            DROP=0     when the second comes back the first is taken for it
 *            DROP=2     only the first may come back next
 *            KEEP=0     a peer that is given up keeps no buffer
 *            KEEP=2     it keeps the buffers that it may write to until it can see that it has been given up
 *            KEEP=3     it keeps the first of that
 *            FORGET=0   it keeps that for ever
 *            DRAIN=0    the buffers of one that has gone come back before its records have been read
 */
#ifndef MSGS
#define MSGS 4
#endif
#ifndef ANSWERS
#define ANSWERS 3
#endif
#ifndef NB
#define NB 3
#endif
#ifndef L
#define L 2
#endif
#ifndef PEEK
#define PEEK 1
#endif
#ifndef PASS
#define PASS 1
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
#ifndef TAKE
#define TAKE 1
#endif
#ifndef LAST
#define LAST 1
#endif
#ifndef ORDER
#define ORDER 1
#endif
#ifndef ALONE
#define ALONE 1
#endif
#ifndef FIRST
#define FIRST 0
#endif
#ifndef RELEASE
#define RELEASE 1
#endif
#ifndef PUBLISH
#define PUBLISH 1
#endif
#ifndef READ
#define READ 1
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
#ifndef REST
#define REST 1
#endif
#ifndef DROP
#define DROP 1
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

#define NONE 255
#define ALL 255

/* rings, by their reader */
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

/* ---- the owner's ledger, and its records so far ---- */

byte free = NB;
byte lent[NB] = NONE;    /* the reader of the ring that it is lent to */
byte at[NB];             /* with which record */
byte sent;

/* sc_pool_return(), sc_pool_return_others(): what was lent to r before `until`, but for the first `kept` returnables */
inline give_back(r, until, kept)
{
	b = 0;
	do
	:: b < NB ->
		if
		:: lent[b] == r && at[b] < until && !(kept && b == returnable[0]) &&
				!(kept == 2 && b == returnable[1]) ->
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
#define COMES_BACK(b) (b == returnable[0] || b == returnable[1])
#define STAYS(b) (b == returnable[0] || (b == returnable[1] && PASS != 3))
#define PASSED (returnable[0] != NONE && at[returnable[0]] < known[PEER])
#define IS_BACK(b) (lent[b] == PEER && at[b] < known[PEER] && !(STAYS(b) && UNREAD && PEEK))
#define IS_LENT(b) (lent[b] != NONE)
#define ROOM(r) (tail[r] - known[r] < L)

#if NB == 2
#define SOME(of_buffer) (of_buffer(0) || of_buffer(1))
#else
#define SOME(of_buffer) (of_buffer(0) || of_buffer(1) || of_buffer(2))
#endif

/* sc_hold_returnables_drop() */
inline drop_first()
{
	returnable[0] = returnable[1];
	returnable[1] = NONE
}

inline drop_all()
{
	returnable[0] = NONE;
	returnable[1] = NONE
}

/* A buffer, with the next record to r. */
inline lend()
{
	pick = 0;
	do
	:: pick < NB && lent[pick] != NONE -> pick++
	:: else -> break
	od;
	assert(pick < NB);
	sent++;
	free--;
	lent[pick] = r;
	at[pick] = tail[r]
}

/* sc_peer_quarantine(), sc_peer_end_link() */
inline give_up()
{
	feed = DONE;
	broken = true;
#if KEEP == 0
	drop_all();
#elif KEEP == 3
	returnable[1] = NONE;
#endif
	give_back(PEER, ALL, 2)
}

/* returning(), take_back() */
inline take_back(is_unread)
{
	if
	:: is_unread
	:: else ->
#if PASS == 2
		if
		:: PASSED -> drop_all()
		:: else
		fi
#else
		do
		:: PASSED -> drop_first()
		:: else -> break
		od
#endif
	fi;
#if PASS == 3
	give_back(PEER, known[PEER], 1)
#else
	give_back(PEER, known[PEER], 2)
#endif
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
	drop_first();
#if BOTH
	free++;
	assert(free <= NB);
#elif REST
	give_back(PEER, known[PEER], 2);
#else
	give_back(PEER, known[PEER], 0);
#endif
	until = 0
}

active proctype Owner()
{
	byte known[2], returnable[2] = NONE, feed = UP;
	byte r, b, x, pick, until;
	bool goes_on;                           /* the next record is the second part of a message */
#if PEEK == 2
	bool unread;
#endif
#if READ == 2
	byte late_read = NONE, late_bytes;
#endif

	do
	/* a message, in one record or in two */
	:: atomic {
		sent < MSGS && free && ((feed == UP && ROOM(PEER)) || ROOM(OTHER)) ->
		if
		:: feed == UP && ROOM(PEER) -> r = PEER
		:: ROOM(OTHER) -> r = OTHER
		fi;
		lend()
	   };
part:		buf[pick] = MESSAGE(r, tail[r]);
		atomic {
			if
			:: r == PEER && (returnable[0] == NONE || goes_on || !ONE) ->
				assert(returnable[1] == NONE);
				if
				:: returnable[0] == NONE -> returnable[0] = pick
				:: else -> returnable[1] = pick
				fi;
				publish(r, pick + 1 + MAY_RETURN);
				if
				:: !goes_on && free && ROOM(r) && sent < MSGS -> goes_on = true; lend(); goto part
				:: skip
				fi
			:: !goes_on -> publish(r, pick + 1)
			fi;
			goes_on = false; r = 0; pick = 0
		}

	/* how far is the peer? */
#if PEEK == 2
	:: feed != DONE && head[PEER] > known[PEER] ->
		unread = UNREAD;
		atomic { known[PEER] = head[PEER]; take_back(unread); unread = false }
#else
	:: feed != DONE && head[PEER] > known[PEER] -> known[PEER] = head[PEER] /* R2' */
#endif
	:: atomic { feed != DONE && SOME(IS_BACK) -> take_back(PEEK && UNREAD) }
	:: atomic { feed != DONE && head[PEER] > known[PEER] -> give_up() }

	/* and the other? */
	:: atomic { head[OTHER] > known[OTHER] -> known[OTHER] = head[OTHER]; give_back(OTHER, known[OTHER], 0) }

	/* a record of the peer's */
	:: atomic {
		feed != DONE && UNREAD ->
		x = LINE(OWNER, taken[OWNER]);
		if
		:: x == INLINE
		:: x != INLINE ->
			x--;
#if DRAIN
			assert(COMES_BACK(x));
#endif
#if DROP == 2
			assert(x == returnable[0]);
#elif DROP == 1
			if
			:: x == returnable[1] -> drop_first()
			:: else
			fi;
#endif
#if READ == 2
			late_read = x;
			late_bytes = MESSAGE(OWNER, taken[OWNER]);
#else
			assert(buf[x] == MESSAGE(OWNER, taken[OWNER]));
#endif
			if
			:: COMES_BACK(x) ->
#if DROP == 0
				x = returnable[0];
#endif
				returned()
			:: else
			fi
		fi;
		x = 0;
		taken[OWNER]++
	   }
#if DROP == 1
	/* which stays in the ring, as there is no memory to keep it in */
	:: atomic { feed != DONE && UNREAD && LINE(OWNER, taken[OWNER]) == returnable[1] + 1 -> drop_first() }
#endif
	:: atomic { feed != DONE && UNREAD -> give_up() }
#if READ == 2
	:: atomic { late_read != NONE -> assert(buf[late_read] == late_bytes); late_read = NONE; late_bytes = 0 }
#endif

	/* it has gone */
	:: atomic {
		feed == UP && gone ->
		feed = DRAINING;
#if !DRAIN
		drop_all();
		give_back(PEER, ALL, 0)
#endif
	   }
	:: atomic { feed == DRAINING && !UNREAD -> feed = DONE; drop_all(); give_back(PEER, ALL, 0) }
	:: atomic {
		feed == DONE && returnable[0] != NONE && FORGET && (gone || KEEP == 2) ->
		drop_all();
		give_back(PEER, ALL, 0)
	   }
	:: sent == MSGS && free == NB && feed == DONE && gone -> break
	od;
	assert(!SOME(IS_LENT) && returnable[0] == NONE);
	assert(broken || !UNREAD);
	assert(taken[OTHER] == tail[OTHER])
}

/* ---- the peer ---- */

#define MORTAL if :: skip :: goto dies fi
#define CALL if :: skip :: goto dies :: goto departs fi
#define ANSWER_ROOM(records) (count + records <= ANSWERS && count + records - taken[OWNER] <= L)

inline fill()
{
	atomic { !late -> MORTAL; where = x; what = MESSAGE(OWNER, count); late = true }
}

inline answer(what_record)
{
	atomic { (ALL_VISIBLE || !RELEASE) && !late_record -> MORTAL; last = what_record; late_record = true } /* R1 */
}

/* sc_hold_end() */
inline drop_held()
{
	held[0] = NONE;
	held[1] = NONE;
	behind = 0
}

active proctype Peer()
{
	byte count, held[2] = NONE;
	byte x, y = NONE;                       /* buffers: read, or written into next, and then */
	byte behind;                            /* records read, up to and with that of the last that is held */
	byte said;                              /* sc_ring_rx.published: those that the owner knows of, or will */

	do
	/* a message is read */
	:: atomic { taken[PEER] != tail[PEER] -> CALL; x = LINE(PEER, taken[PEER]) };
		atomic {
			MORTAL;
			assert(broken || buf[(x - 1) % MAY_RETURN] == MESSAGE(PEER, taken[PEER]));
			if
			:: (x > MAY_RETURN || !FLAG) && held[1] == NONE ->
				if
				:: held[0] == NONE -> held[0] = (x - 1) % MAY_RETURN
				:: else -> held[1] = (x - 1) % MAY_RETURN
				fi;
				behind = taken[PEER] + 1
			:: skip /* or the peer does not answer that way */
			fi;
			x = 0;
			taken[PEER]++
		}

	/* all that has been read is given back; or some window, and head goes with it */
	:: atomic {
		(said != taken[PEER] || (head[PEER] != taken[PEER] && count < ANSWERS)) &&
				(ALL_VISIBLE || !PUBLISH) && (GIVE || held[0] == NONE) ->
		CALL;
		if
		:: HELD == 1 -> drop_held()
		:: else
		fi;
		head[PEER] = taken[PEER];        /* R2 */
		said = taken[PEER]
	   }

	/* a message in what is held */
	:: atomic {
		held[0] != NONE && ANSWER_ROOM(1) && !late ->
		CALL;
		if
		:: held[1] == NONE || !LAST -> x = held[0]
		:: held[1] != NONE && LAST -> x = held[1]
		:: held[1] != NONE && ANSWER_ROOM(2) -> x = held[ORDER - 1]; y = held[2 - ORDER]
		fi;
		if
		:: SAID == 1 -> said = behind
		:: SAID == 2 -> said = taken[PEER]
		fi;
		if
		:: held[1] != NONE && y == NONE && TAKE == 2 -> held[1] = NONE
		:: else -> drop_held()
		fi
	   };
		do
		::
#if FIRST
			answer(x + 1);
			fill();
#else
			fill();
			answer(x + 1);
#endif
			atomic {
				count++;
				x = y;
				y = NONE;
				if
				:: x != NONE
				:: else -> x = 0; break
				fi
			}
#if !ALONE
			if
			:: ALL_VISIBLE -> head[PEER] = taken[PEER]
			:: skip
			fi
#endif
		od

	/* another */
	:: atomic { ANSWER_ROOM(1) -> CALL };
		answer(INLINE);
		count++

	:: broken -> goto departs
	:: count == ANSWERS && said == tail[PEER] && sent == MSGS && free == NB -> goto departs
	od;
departs:
dies:	atomic { ALL_VISIBLE -> gone = true; x = 0; y = 0; count = 0; drop_held(); said = 0 }
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
