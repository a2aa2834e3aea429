/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * delegate.pml: puts and gets that either side may do (src/rma/delegate.c, src/rma/taker.c).
 *
 * An initiator has N operations on one word, each of a kind of its own choosing: put, get answered in the
 * lines of the ring, get answered in the target's only buffer. It offers them, or does them directly when
 * none is offered; withdraws at any moment; collects. The target takes what is in the ring of L lines,
 * tells of puts at once or of several together, or computes for ever between two records. Either may be
 * killed anywhere. Stores are seen in their order, as their releases have it; the order of what is stored
 * is what some mutants change.
 *
 * Asserted: each operation is done in its order, once at most, and never after it was told of; it is told of
 * once, a success was done, and a get has brought what it found when it was done. The initiator comes to its
 * end, whatever the target does.
 *
 * Mutants, each of which must fail:
 *            TAKE=0 WITHDRAW=0   the target, the initiator changes the claim without comparing
 *            PASS=0              the target does not pass over what is withdrawn
 *            SETTLE=0            what is withdrawn is done while the target still has some in hand
 *            NEW=0               more is offered while what is withdrawn is not done
 *            OTHER=0             something goes directly while some are offered
 *            HELD=0              lines are written again when the target has read them, answered or not
 *            ENDED=2             a get is ended first, answered then
 *            DONE=2              a put is told of first, done then
 *            READ=2              a buffer is given back first, read then
 *            RETURN=0            the target does not ask whether its buffer has been given back
 *            DEATH=2             dead is who has been sent SIGKILL, not whose life lock is free
 */
#ifndef N
#define N 3
#endif
#ifndef L
#define L 2
#endif
#ifndef OFFERS
#define OFFERS 3
#endif
#ifndef TAKE
#define TAKE 1
#endif
#ifndef WITHDRAW
#define WITHDRAW 1
#endif
#ifndef PASS
#define PASS 1
#endif
#ifndef SETTLE
#define SETTLE 1
#endif
#ifndef NEW
#define NEW 1
#endif
#ifndef OTHER
#define OTHER 1
#endif
#ifndef HELD
#define HELD 1
#endif
#ifndef ENDED
#define ENDED 1
#endif
#ifndef DONE
#define DONE 1
#endif
#ifndef READ
#define READ 1
#endif
#ifndef RETURN
#define RETURN 1
#endif
#ifndef DEATH
#define DEATH 1
#endif

#define PUT 0
#define GET 1
#define BOUNCE 2
#define NONE 255

/* ---- shared memory ---- */

byte record[L], kind[L];     /* number of the offer there + 1 */
byte ended[L], answer[L];
byte withdrawn, taken;       /* the claim, one word */
byte delegated_done, head, read;
byte buffer;
byte cell;                   /* the target's memory: of the last put, its operation + 1 */
bool lockheld = true;        /* the target's life */
bool killed, crash;          /* SIGKILL is sent; it has come */

/* ---- what is known of each operation, and nobody reads ---- */

byte of_offer[N];            /* operation of each offer */
byte done[N], reported[N], found[N];
byte last;                   /* operation done last + 1 */

/* The word is touched. */
inline do_it(op, what)
{
	assert(!reported[op] && !done[op] && last <= op);
	done[op]++;
	last = op + 1;
	if
	:: what == PUT -> cell = op + 1
	:: else -> found[op] = cell
	fi
}

inline tell(op)
{
	assert(!reported[op]);
	reported[op]++
}

inline succeed(op, what, value)
{
	assert(done[op] && (what == PUT || value == found[op]));
	tell(op)
}

/* ---- the target ---- */

active proctype Target()
{
	byte n, w, t, what, lent, answers, unreported; /* the put that was done last and not told of, + 1 */

	{
end_idle:
	do
	:: record[head % L] == head + 1 ->
		n = head;
		what = kind[n % L];
again:
		if
		:: what == BOUNCE && lent && withdrawn <= n ->
			if
			:: read == answers || !RETURN -> lent = 0
			:: read != answers && RETURN -> goto end_idle /* or till it is withdrawn */
			fi
		:: else
		fi;
		atomic { w = withdrawn; t = taken };
		if
		:: w > n && PASS -> skip                  /* passed over */
		:: else ->
			if
			:: TAKE ->
				atomic {
					if
					:: withdrawn == w && taken == t -> taken = n + 1
					:: else -> goto again
					fi
				}
			:: !TAKE -> taken = n + 1
			fi;
			if
			:: what == PUT ->
				if
				:: DONE == 2 -> delegated_done = n + 1
				:: else
				fi;
				atomic { do_it(of_offer[n], what); unreported = n + 1 }
			:: what == GET ->
				if
				:: ENDED == 2 -> ended[n % L] = 1
				:: else
				fi;
				atomic { do_it(of_offer[n], what); t = cell };
				answer[n % L] = t;
				ended[n % L] = 1
			:: what == BOUNCE ->
				atomic { do_it(of_offer[n], what); t = cell };
				buffer = t;
				lent = 1;
				answers++;
				ended[n % L] = 1
			fi
		fi;
		atomic { t = 0; w = 0; what = 0; n = 0 };
		head++
	:: unreported -> atomic { delegated_done = unreported; unreported = 0 }
	:: !unreported -> goto end_computes
	od;
end_computes:
	false
	} unless { crash };
	lockheld = false
}

/* ---- the initiator ---- */

#define DEAD (DEATH == 2 && killed || DEATH == 1 && !lockheld)

byte op;                     /* the next one */
byte first, ours, end;       /* offers, by number */
byte got, gave;

/* Is the line of the next record free? Those not collected are held. */
#define KNOWN (HELD && first < head -> first : head)
#define ROOM (end - KNOWN < L)

inline forget_oldest()
{
	first++;
	if
	:: ours < first -> ours = first
	:: else
	fi
}

inline collect()
{
	if
	:: kind_of[first] == PUT && delegated_done > first ->
		atomic { succeed(of_offer[first], PUT, 0); forget_oldest() }
	:: kind_of[first] == GET && ended[first % L] ->
		got = answer[first % L];
		atomic { succeed(of_offer[first], GET, got); forget_oldest(); got = 0 }
	:: kind_of[first] == BOUNCE && ended[first % L] ->
		gave++;
		if
		:: READ == 2 -> read = gave
		:: else
		fi;
		got = buffer;
		atomic { succeed(of_offer[first], BOUNCE, got); forget_oldest(); got = 0 };
		read = gave
	:: else
	fi
}

byte kind_of[N];             /* of each offer, its own copy */

active proctype Initiator()
{
	byte w, t, what;
	bool dies;

	do
	:: op < N && ROOM && end - first < OFFERS && (ours == end || !NEW) ->
		select(what: PUT .. BOUNCE);
		atomic {
			of_offer[end] = op;
			kind_of[end] = what;
			ended[end % L] = 0;
			kind[end % L] = what
		};
		atomic {
			if
			:: ours == end -> ours++
			:: else
			fi;
			record[end % L] = end + 1;
			end++;
			op++;
			what = 0
		}
	:: op < N && (first == end || !OTHER) ->          /* another way */
		if
		:: DEAD -> tell(op)
		:: else ->
			select(what: PUT .. GET);
			atomic { do_it(op, what); succeed(op, what, cell) }
		fi;
		atomic { op++; what = 0 }
	:: first != ours -> collect()
	:: first != end && ours == end ->                 /* withdraw */
		atomic { w = withdrawn; t = taken };
		if
		:: t < first -> t = first
		:: else
		fi;
		if
		:: t == end -> skip
		:: else ->
			if
			:: WITHDRAW ->
				atomic {
					if
					:: (taken == t || taken < first && t == first) && withdrawn == w ->
						withdrawn = end;
						ours = t
					:: else
					fi
				}
			:: !WITHDRAW -> atomic { withdrawn = end; ours = t }
			fi
		fi;
		atomic { w = 0; t = 0 }
	:: ours != end && (first == ours || !SETTLE) ->   /* do the first that is withdrawn */
		if
		:: DEAD -> atomic { tell(of_offer[ours]) }
		:: else ->
			atomic { do_it(of_offer[ours], kind_of[ours]); succeed(of_offer[ours], kind_of[ours], cell) }
		fi;
		atomic {
			ours++;
			if
			:: first + 1 == ours || first == end -> first = ours
			:: else
			fi
		}
	:: DEAD && first != end ->                        /* all end with it, in whatever hands */
		do
		:: first != end ->
			atomic {
				if
				:: !reported[of_offer[first]] -> tell(of_offer[first])
				:: else
				fi;
				first++
			}
		:: else -> break
		od;
		ours = end
	:: op == N && first == end -> break
	:: true -> dies = true; break                     /* it is killed */
	od;
	if
	:: dies -> skip
	:: else ->
		w = 0;
		do
		:: w < N -> assert(reported[w] == 1); w++
		:: else -> break
		od
	fi
}

active proctype Killer()
{
	if
	:: killed = true; crash = true
	:: true
	fi
}
