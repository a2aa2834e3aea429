/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect.pml: how endpoints come together and part (src/link/peer.c, src/link/connect.c,
 * src/link/accept.c, src/link/review.c).
 *
 * NP endpoints with SLOTS slots each. Endpoint 0 is the owner that the others want to be connected to; with
 * NP=2 each wants the other, at the same time. Any of them may be killed between any two steps.
 *
 *   connecting  sc_peer_connect(): attach, claim() (compare and swap), memory of the slot, introduction,
 *               PUBLISHED (P1), membership, of which both halves are one here (P2); then sc_peers_ask() until it is
 *               answered
 *   owner       sc_peers_review(): membership (P2'), claims (P1'), accept_slot(), sc_peer_answer_slot() (P4),
 *               refuse_claim(); sc_peer_slot_return() (P5); sc_peer_bury() of a dead peer
 *   parting     say_goodbye(): DEPARTED, membership + 1
 *
 * Abstracted: release and acquire are the order of the steps here, the mutants take them apart. Whether a
 * peer is accepted, refused in the slot, or has its claim refused for want of memory is a free choice; a
 * look that fails for the moment (descriptors, memory) happens once to each. A record is one word.
 *
 * Asserted: no two endpoints use one slot; a claimant finds its slot clean; an owner lets no peer in that has not
 * introduced itself, and reads from a slot only the record of the peer that it has let in; a refused connector
 * knows why; when nothing moves any more, each living connector has had its answer or knows that its owner has
 * gone, and no slot of a living owner still belongs to a peer that has departed, or that died after it was let in.
 * (A peer that dies before it has published and counted its claim, or after a refusal and before its goodbye, keeps
 * the slot until the owner closes.)
 *
 * Mutants, each of which must fail:
 *            COUNT=2    membership is counted before the claim is published
 *            COUNT=0    it is not counted
 *            INTRO=2    the claim is published before the introduction
 *            CLAIM=0    a claim is looked at and taken in two steps
 *            ANSWER=2   the answer comes before its reason
 *            ANSWER=0   a refusal is not answered
 *            CLEAN=2    the slot is free before it is clean
 *            CLEAN=0    it is not cleaned
 *            LATER=0    a claim that could not be served at once is not looked at again
 *            SEEN=2     membership is loaded after the claims
 *            UNDO=0     a claim whose slot gets no memory stays
 *            WATCH=0    the owner does not look whether a connected peer lives
 *            ASK=0      the connector does not look whether the owner lives
 */
#ifndef NP
#define NP 3
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef WANTS
#if NP == 2
#define WANTS(p) (1 - (p))
#else
#define WANTS(p) ((p) == 0 -> NONE : 0)
#endif
#endif
#ifndef COUNT
#define COUNT 1
#endif
#ifndef INTRO
#define INTRO 1
#endif
#ifndef CLAIM
#define CLAIM 1
#endif
#ifndef ANSWER
#define ANSWER 1
#endif
#ifndef CLEAN
#define CLEAN 1
#endif
#ifndef LATER
#define LATER 1
#endif
#ifndef SEEN
#define SEEN 1
#endif
#ifndef UNDO
#define UNDO 1
#endif
#ifndef WATCH
#define WATCH 1
#endif
#ifndef ASK
#define ASK 1
#endif

#define NONE 255
#define AT(p, s) ((p) * SLOTS + (s))

/* a claim: ticket * 8 + state */
#define CLAIMED 1
#define PUBLISHED 2
#define DEPARTED 3
#define REFUSED 4                    /* with PUBLISHED */
#define STATE(claim) ((claim) % 4)
#define TICKET(claim) ((claim) / 8)

/* an answer */
#define PENDING 0
#define ACCEPTED 1
#define NOT_ACCEPTED 2
#define REASON 1

/* ---- shared memory: of each endpoint, and of each of its slots ---- */

byte membership[NP];
byte claim[NP * SLOTS];
byte intro[NP * SLOTS], record[NP * SLOTS], answer[NP * SLOTS], reason[NP * SLOTS];

bool dead[NP];                       /* its life lock is free */

#define MORTAL if :: skip :: goto dies fi

byte links[NP];                      /* private, but for the assertions at the end */
#define link links[me]
#define NEW 0
#define TRYING 1
#define UP 2
#define DOWN 3

byte letin[NP * SLOTS];              /* the peer that the owner has let in */
#define HAS_DEAD(s) (letin[AT(me, s)] && dead[letin[AT(me, s)] - 1])
#if SLOTS == 1
#define HAS_ANY_DEAD HAS_DEAD(0)
#else
#define HAS_ANY_DEAD (HAS_DEAD(0) || HAS_DEAD(1))
#endif

inline publish_claim()
{
	atomic { MORTAL; claim[AT(to, out)] = (me + 1) * 8 + PUBLISHED }
}

inline introduce()
{
	atomic { MORTAL; assert(!intro[AT(to, out)]); intro[AT(to, out)] = me + 1 }
}

inline count(p)
{
	atomic { MORTAL; membership[p]++ }
}

/* sc_peer_connect() */
inline connect()
{
	atomic { MORTAL; out = 0; link = (dead[to] -> DOWN : TRYING) };
	do
	:: link == TRYING && out == SLOTS -> out = NONE; link = DOWN; break      /* -EUSERS */
	:: link == DOWN -> out = NONE; break
	:: link == TRYING && out < SLOTS && claim[AT(to, out)] -> out++
	:: link == TRYING && out < SLOTS && !claim[AT(to, out)] ->
#if CLAIM
		atomic {
			MORTAL;
			if
			:: !claim[AT(to, out)] -> claim[AT(to, out)] = (me + 1) * 8 + CLAIMED; link = UP
			:: else -> skip
			fi
		};
#else
		atomic { MORTAL; claim[AT(to, out)] = (me + 1) * 8 + CLAIMED; link = UP };
#endif
		if
		:: link == UP -> break
		:: else -> skip
		fi
	od;
	if
	:: link == UP ->
		assert(TICKET(claim[AT(to, out)]) == me + 1);
		assert(!record[AT(to, out)] && !answer[AT(to, out)]);
		if
		:: !failed ->                                            /* -ENOSPC */
			failed = true;
#if UNDO
			atomic { MORTAL; claim[AT(to, out)] = 0 };
#endif
			out = NONE;
			link = NEW
		:: true ->
#if COUNT == 2
			count(to);
#endif
#if INTRO == 2
			publish_claim();
			introduce();
#else
			introduce();
			publish_claim();
#endif
#if COUNT == 1
			count(to);
#endif
			atomic {                                         /* a message */
				MORTAL;
				assert(TICKET(claim[AT(to, out)]) == me + 1);
				record[AT(to, out)] = me + 1
			}
		fi
	:: else -> skip
	fi
}

/* say_goodbye() */
inline part()
{
	atomic { MORTAL; claim[AT(to, out)] = (me + 1) * 8 + DEPARTED };
	count(to);
	out = NONE;
	link = DOWN
}

/* sc_peer_answer_slot() */
inline answer_with(how, why)
{
#if ANSWER == 2
	atomic { MORTAL; answer[AT(me, s)] = how };
	atomic { MORTAL; reason[AT(me, s)] = why }
#else
	atomic { MORTAL; reason[AT(me, s)] = why };
	atomic { MORTAL; answer[AT(me, s)] = how }
#endif
}

inline clean()
{
	atomic { MORTAL; intro[AT(me, s)] = 0; answer[AT(me, s)] = 0; reason[AT(me, s)] = 0; record[AT(me, s)] = 0 }
}

/* end_feed() and sc_peer_slot_return() */
inline return_slot()
{
	if
	:: record[AT(me, s)] -> assert(record[AT(me, s)] == TICKET(c))
	:: else -> skip
	fi;
#if CLEAN == 1
	clean();
#endif
	accepted[s] = false;
	letin[AT(me, s)] = 0;
	atomic { MORTAL; claim[AT(me, s)] = 0 };
#if CLEAN == 2
	clean();
#endif
}

/* sc_peers_review() */
inline review()
{
#if SEEN == 1
	atomic { MORTAL; seen = membership[me] };
#endif
	s = 0;
	do
	:: s == SLOTS -> break
	:: s < SLOTS ->
		atomic { MORTAL; c = claim[AT(me, s)] };
		if
		:: STATE(c) >= PUBLISHED && !accepted[s] ->
			assert(intro[AT(me, s)] == TICKET(c));
			if
			:: !busy -> busy = true; c = 0;                  /* -EMFILE */
#if LATER
				seen = NONE
#endif
			:: true -> answer_with(ACCEPTED, 0); accepted[s] = true; letin[AT(me, s)] = TICKET(c)
#if ANSWER
			:: true -> answer_with(NOT_ACCEPTED, REASON); accepted[s] = true
			:: STATE(c) == PUBLISHED ->
				atomic { MORTAL; claim[AT(me, s)] = (claim[AT(me, s)] == c -> c + REFUSED : claim[AT(me, s)]) };
				accepted[s] = true
#else
			:: true -> accepted[s] = true
#endif
			fi
		:: else -> skip
		fi;
		if
		:: STATE(c) == DEPARTED && accepted[s] -> return_slot()
		:: else -> skip
		fi;
		atomic { c = 0; s++ }
	od;
#if SEEN == 2
	atomic { MORTAL; seen = (seen == NONE -> NONE : membership[me]) };
#endif
	s = 0
}

/* sc_peers_watch(): the peer in a slot of ours is dead; it has published, and writes nothing any more */
inline watch()
{
	s = 0;
	do
	:: s == SLOTS -> break
	:: s < SLOTS ->
		if
		:: HAS_DEAD(s) ->
			atomic { MORTAL; c = claim[AT(me, s)] };
			return_slot()
		:: else -> skip
		fi;
		s++
	od;
	atomic { c = 0; s = 0 }
}

#define REFUSED_ME (answer[AT(to, out)] == NOT_ACCEPTED || claim[AT(to, out)] & REFUSED)
#define ANSWERED (answer[AT(to, out)] != PENDING || REFUSED_ME)

proctype Endpoint(byte me)
{
	byte to = WANTS(me);
	byte out = NONE, seen, s, c;
	bool accepted[SLOTS];
	bool failed, busy;

end:	do
	:: to != NONE && link == NEW -> connect()
	:: link == UP && ANSWERED ->
		atomic {
			MORTAL;
			assert(answer[AT(to, out)] != NOT_ACCEPTED || reason[AT(to, out)])
		};
		part()                           /* refused, or it has done what it wanted */
#if ASK
	:: link == UP && dead[to] -> link = DOWN; out = NONE
#endif
	:: membership[me] != seen -> review()
#if WATCH
	:: HAS_ANY_DEAD -> watch()
#endif
	:: NP > 2 && link == DOWN -> break       /* nobody comes to these: they end */
	od;
dies:	atomic { dead[me] = true; link = DOWN; to = NONE; out = NONE; seen = 0; s = 0; c = 0 }
}

init
{
	byte i, c;

	atomic {
		do
		:: i < NP -> run Endpoint(i); i++
		:: i == NP -> break
		od;
		i = 0
	};
	timeout;                                 /* nothing moves any more */
	do
	:: i < NP -> assert(dead[i] || links[i] == DOWN || (links[i] == NEW && WANTS(i) == NONE)); i++
	:: i == NP -> i = 0; break
	od;
	do
	:: i < NP * SLOTS ->
		c = claim[i];
		if
		:: !c || dead[i / SLOTS] -> skip
		:: else ->
			assert(dead[TICKET(c) - 1]);
			assert(!letin[i])
		fi;
		i++
	:: i == NP * SLOTS -> break
	od
}
