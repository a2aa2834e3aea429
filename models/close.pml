/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * close.pml: an endpoint closes, or dies, while others close or die (src/link/peer.c, src/shm/create.c,
 * src/shm/attach.c, src/ep/ep.c).
 *
 * Two endpoints, connected to each other in both directions; ONEWAY: the first to the second, which may not
 * have heard of it yet. A writer sends up to MSGS messages, inline or in a bounce buffer of its own
 * segment, and closes; a reader polls, and may close as well. Either may be killed between any two steps. A
 * reaper takes a name away once, or never. (Several readers of one kept segment: only its `unread` is shared.)
 *
 *   closing   sc_peers_close() (has_unread(), keep_name, unread, CLOSED: P3), leave_unseen(), say_goodbye()
 *             (DEPARTED: P1, the mark: P6, detach), sc_seg_destroy()
 *   polling   sc_peer_review_claims(), accept_slot(), meet(), poll_ring(), sc_peer_drained(), end_feed(),
 *             sc_seg_leave(), sc_peer_slot_return(), review_link() (P3'), sc_peer_ended(), sc_peer_bury(), sc_peer_part()
 *
 * Abstracted: membership (connect.pml), rings (ring.pml), the reaper's steps (reap.pml). A reaper takes the
 * name of a closed endpoint's segment, kept or not: a reader that has not attached the segment by then cannot
 * read it any more.
 *
 * No reader attaches a segment whose owner was killed: messages in its bounce buffers are lost if they come before
 * the reader has let the owner in.
 *
 * Asserted: no process touches a segment that it has not mapped; a reader that lives and does not close reads all
 * published messages, except those that the two paragraphs above name; when nothing moves any more, the slots of
 * writers that have gone are free, and a segment that was closed in order has no name, unless the reader for which
 * the name was kept was killed, or has gone without having let the owner in (a reaper will find the name).
 *
 * Mutants, each of which must fail:
 *            KEEP=0     the name is not kept for readers that have messages to read
 *            ANSWER=2   a connection is accepted before its segment is attached
 *            UNREAD=2   `unread` is stored after DEPARTED
 *            DRAIN=0    DEPARTED ends a ring that has records
 *            CLOSED=2   CLOSED ends a ring that has records
 *            LOOK=0     the reader does not look for the claim of an endpoint that has closed
 *            ENDED=0    the reader does not look for the claim of an endpoint that has died
 *            LEAVE=0    the last reader leaves the name
 *            LEFT=0     only a living endpoint's segment is attached
 *            DETACH=2   a segment is unmapped before the goodbye in it
 *            SEEN=0     an endpoint that closes does not look for a goodbye that it has not seen
 *            MARK=0     an endpoint that says goodbye does not look whether the other has closed
 *            MARK=2     it looks before it says goodbye
 */
#define NP 2
#ifndef MSGS
#define MSGS 1
#endif
#ifndef KEEP
#define KEEP 1
#endif
#ifndef ANSWER
#define ANSWER 1
#endif
#ifndef UNREAD
#define UNREAD 1
#endif
#ifndef DRAIN
#define DRAIN 1
#endif
#ifndef CLOSED
#define CLOSED 1
#endif
#ifndef LOOK
#define LOOK 1
#endif
#ifndef ENDED
#define ENDED 1
#endif
#ifndef LEAVE
#define LEAVE 1
#endif
#ifndef LEFT
#define LEFT 1
#endif
#ifndef DETACH
#define DETACH 1
#endif
#ifndef SEEN
#define SEEN 1
#endif
#ifndef MARK
#define MARK 1
#endif

/* the writer of messages to p, NP if there is none; and p's reader number i */
#define READERS 1
#ifdef ONEWAY
#define WRITER(p) ((p) == 0 -> NP : 0)
#define READER(p, i) 1
#else
#define WRITER(p) (1 - (p))
#define READER(p, i) (1 - (p))
#endif

/* a claim */
#define PUBLISHED 1
#define DEPARTED 2
#define DEPARTED_UNREAD 3

/* ---- of each segment; its one slot is the writer's ---- */

bool closed[NP];                 /* presence.state */
byte unread[NP];                 /* presence.unread */
bool named[NP] = true;
byte claim[NP] = PUBLISHED;
bool answered[NP];
byte written[NP], taken[NP];     /* records */
byte bounced[NP];                /* those of them in the writer's buffers, a bit for each */

/* ---- of each process ---- */

bool gone[NP];                   /* its life lock is free */
bool dead[NP];                   /* it was killed */
bool reaped[NP], kept[NP];
bool mapped[NP * 4];             /* p has mapped q's segment */
#define MAPPED(p, q) mapped[(p) * 4 + (q)]

#define MORTAL if :: skip :: goto dies fi

/* feed */
#define NONE 0
#define UP 1
#define DRAINING 2
#define DONE 3
byte feed[NP];
bool down[NP];                   /* the link to the writer */

/* There are messages of p's in its buffers that this reader has not read. */
#define LOANS(q) (bounced[q] >> taken[q])

inline attach()
{
	atomic {
		MORTAL;
		if
		:: MAPPED(me, w) -> skip
		:: !MAPPED(me, w) && named[w] && !gone[w] -> MAPPED(me, w) = true
		:: !MAPPED(me, w) && named[w] && gone[w] && closed[w] && LEFT -> MAPPED(me, w) = true
		:: else -> skip
		fi
	}
}

/* sc_peer_review_claims(), accept_slot(), meet() */
inline review()
{
	atomic { MORTAL; c = claim[me] };
	if
	:: c && feed[me] == NONE && !down[me] ->
#if ANSWER == 2
		atomic { MORTAL; answered[me] = true };
		attach();
#else
		attach();
		atomic { MORTAL; answered[me] = true };
#endif
		/* sc_owner_left() */
		feed[me] = (!MAPPED(me, w) && named[w] && dead[w] -> DRAINING : UP)
	:: else -> skip
	fi;
	if
	:: c >= DEPARTED && feed[me] == UP ->
		feed[me] = DRAINING;
#if !DRAIN
		end_feed()
#endif
	:: else -> skip
	fi;
	c = 0
}

/* end_feed(), sc_seg_leave(), sc_peer_slot_return() */
inline end_feed()
{
	feed[me] = DONE;
	atomic { MORTAL; c = claim[me] };
	if
	:: c == DEPARTED_UNREAD && MAPPED(me, w) && LEAVE ->
		atomic { MORTAL; unread[w]--; last = (unread[w] == 0) };
		if
		:: last -> atomic { MORTAL; named[w] = false }
		:: else -> skip
		fi
	:: else -> skip
	fi;
	atomic { MORTAL; claim[me] = 0; c = 0; last = false }
}

/* sc_peer_lose(), and sc_peer_part() of a peer whose ring we have written */
inline lose()
{
	down[me] = true;
	if
	:: MAPPED(me, w) -> part(w)
	:: else -> skip
	fi
}

/* The mark in the claim in that slot, for which `by` has kept its name. */
inline unmark(slot, by)
{
	atomic {
		MORTAL;
		mine = (claim[slot] == DEPARTED_UNREAD);
		claim[slot] = (mine -> DEPARTED : claim[slot])
	};
	if
	:: mine ->
		atomic { MORTAL; unread[by]--; last = (unread[by] == 0); mine = false };
		if
		:: last -> atomic { MORTAL; named[by] = false; last = false }
		:: else -> skip
		fi
	:: else -> skip
	fi
}

inline part(q)
{
#if DETACH == 2
	MAPPED(me, q) = false;
#endif
	if
	:: WRITER(q) == me && claim[q] == PUBLISHED ->
#if MARK == 2
		atomic { MORTAL; other = closed[q] };
#endif
		atomic {
			MORTAL;
			assert(MAPPED(me, q));
			claim[q] = (keeps[q] -> DEPARTED_UNREAD : DEPARTED)
		};
#if MARK == 1
		atomic { MORTAL; other = closed[q] };
#endif
		if
		:: keeps[q] && other -> unmark(q, me)
		:: else -> skip
		fi
	:: else -> skip
	fi;
	atomic { MORTAL; MAPPED(me, q) = false; other = false }
}

proctype Endpoint(byte me)
{
	byte w = WRITER(me), q, i, c, sent[NP];
	bool keeps[NP], last, stays, mine, other;

	if :: w < NP -> stays = true :: skip fi;
end:	do
	/* sends */
	:: READER(me, i) < NP && WRITER(READER(me, i)) == me && sent[READER(me, i)] < MSGS && !down[me] ->
		atomic {
			MORTAL;
			q = READER(me, i);
			if
			:: MAPPED(me, q) && claim[q] == PUBLISHED ->
				if
				:: bounced[q] = bounced[q] | (1 << written[q])
				:: skip
				fi;
				written[q]++
			:: else -> skip
			fi;
			sent[q]++;
			i = (i + 1) % READERS;
			q = 0
		}
	/* polls */
	:: w < NP && claim[me] && (feed[me] == NONE || (feed[me] == UP && claim[me] >= DEPARTED)) && !down[me] ->
		review()
	:: w < NP && (feed[me] == UP || feed[me] == DRAINING) && taken[me] < written[me] ->
		atomic {
			MORTAL;
			assert(MAPPED(me, w) || !(bounced[me] >> taken[me] & 1) || reaped[w] || dead[w]);
			taken[me]++
		}
	:: w < NP && feed[me] == DRAINING && taken[me] == written[me] ->
		end_feed();
		lose()
	:: w < NP && MAPPED(me, w) && !down[me] && closed[w] &&          /* review_link() */
			(CLOSED == 2 || (feed[me] != UP && feed[me] != DRAINING)) ->
#if LOOK
		if
		:: feed[me] == NONE -> review()
		:: else -> skip
		fi;
#endif
		if
		:: CLOSED == 1 && (feed[me] == UP || feed[me] == DRAINING) -> skip
		:: CLOSED == 2 && (feed[me] == UP || feed[me] == DRAINING) -> end_feed(); lose()
		:: else -> lose()
		fi
	:: w < NP && MAPPED(me, w) && !down[me] && feed[me] != DRAINING && dead[w] ->
#if ENDED
		review();                                               /* sc_peer_ended() */
#endif
		if
		:: feed[me] == UP -> feed[me] = DRAINING
		:: feed[me] == NONE -> lose()
		:: else -> skip
		fi
	/* closes */
	:: !stays -> break
	od;

	i = 0;
	do
	:: i < READERS ->
		q = READER(me, i);
		atomic {
			MORTAL;
			if
			:: MAPPED(me, q) && WRITER(q) == me && claim[q] == PUBLISHED && LOANS(q) && !answered[q] && KEEP ->
				keeps[q] = true;
				kept[me] = true;
				c++
			:: else -> skip
			fi
		};
		i++
	:: i == READERS -> break
	od;
#if UNREAD == 1
	atomic { MORTAL; unread[me] = c };
#endif
	atomic { MORTAL; closed[me] = true };
#if SEEN
	if
	:: w < NP && MAPPED(me, w) && (feed[me] == UP || feed[me] == DRAINING) -> unmark(me, w)
	:: else -> skip
	fi;
#endif
	i = 0;
	do
	:: i < READERS ->
		q = READER(me, i);
		if
		:: q != me && MAPPED(me, q) -> part(q)
		:: else -> skip
		fi;
		i++
	:: i == READERS -> break
	od;
#if UNREAD == 2
	atomic { MORTAL; unread[me] = c };
#endif
	if
	:: w < NP && MAPPED(me, w) -> part(w)
	:: else -> skip
	fi;
	atomic { MORTAL; if :: !kept[me] -> named[me] = false :: else -> skip fi };
	atomic { gone[me] = true; goto over };

dies:	atomic { dead[me] = true; gone[me] = true };
over:	skip
}

/* Once, of one of them. */
proctype Reaper()
{
	byte p;

	if :: goto idle :: skip fi;
end:	if
	:: atomic { gone[0] && named[0] && (dead[0] || closed[0]) -> named[0] = false; reaped[0] = true }
#ifndef ONEWAY
	:: atomic { gone[1] && named[1] && (dead[1] || closed[1]) -> named[1] = false; reaped[1] = true }
#endif
	fi;
idle:	skip
}

init
{
	byte p;

	atomic {
		do
		:: p < NP ->
			if
			:: WRITER(p) < NP -> MAPPED(WRITER(p), p) = true
			:: else -> claim[p] = 0
			fi;
			run Endpoint(p);
			p++
		:: p == NP -> break
		od;
		run Reaper();
		p = 0
	};
	timeout;
	do
	:: p < NP ->
		if
		:: !gone[p] && WRITER(p) < NP ->
			assert(taken[p] == written[p]);
			/* one that was let in without its segment, as its name was gone, and died, is not seen to */
			assert(!gone[WRITER(p)] || !claim[p] || (!named[WRITER(p)] && !MAPPED(p, WRITER(p))))
		:: else -> skip
		fi;
		if
		:: gone[p] && !dead[p] ->
			assert(!named[p] || (kept[p] && gone[READER(p, 0)] &&
				(dead[READER(p, 0)] || feed[READER(p, 0)] == NONE)))
		:: else -> skip
		fi;
		p++
	:: p == NP -> break
	od
}
