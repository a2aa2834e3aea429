/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rescue.pml: puts that two threads of the initiator, or the target, may do (src/proc/rescue.c, src/rma/delegate.c).
 *
 * The endpoint's thread delegates N puts, at most D at a time. It looks at the keeper first, and commits the record
 * later. It withdraws at any moment, or never. The daemon's thread withdraws at any moment, and does what it has
 * withdrawn and what the endpoint's thread adds. The target takes puts, or computes for ever. Stores are seen in their
 * order, as their releases have it.
 *
 * DIES=1: both threads of the initiator may die at any moment, together. Then the target reads the records that are left,
 * and does the puts over which it has passed and which are not said to be done.
 *
 * Asserted: each put is done once, in order; it is told of once, when it is done; the endpoint's thread comes to its end,
 * whatever the target does. After a death each put is done by a target that polls; only the one that was in hand may be
 * done twice.
 *
 * Mutants, each of which must fail:
 *            MORE=0    the daemon's thread withdraws only what it has seen
 *            KEEPER=0  the endpoint's thread withdraws without the keeper
 *            WAIT=0    it takes over while the daemon's thread copies
 *            ADDED=0   the daemon's thread leaves puts that are added, and says that they are done
 *            ENDED=0   the daemon's thread does not wait for the end of what the target has taken
 *            RIGHT=0   the endpoint's thread leaves the number of the claim as it is
 *          and with DIES=1 and D=3:
 *            TOLD=0    the initiator does not say what it has done
 *            BEFORE=0  it says so before it does it
 *            AGAIN=0   the endpoint's thread says again what the daemon's thread has said, when it ends those puts
 *            HEIR=0    the target leaves what it has passed over
 */
#ifndef N
#define N 4
#endif
#ifndef D
#define D 2
#endif
#ifndef MORE
#define MORE 1
#endif
#ifndef KEEPER
#define KEEPER 1
#endif
#ifndef WAIT
#define WAIT 1
#endif
#ifndef ADDED
#define ADDED 1
#endif
#ifndef ENDED
#define ENDED 1
#endif
#ifndef RIGHT
#define RIGHT 1
#endif

#ifndef DIES
#define DIES 0
#endif
#ifndef TOLD
#define TOLD 1
#endif
#ifndef BEFORE
#define BEFORE 1
#endif
#ifndef AGAIN
#define AGAIN 1
#endif
#ifndef HEIR
#define HEIR 1
#endif

#define NONE 0
#define ENDPOINT 1
#define COPIES 2
#define RESTS 3

/* ---- shared memory ---- */
byte withdrawn, taken;       /* the claim, one word */
byte delegated_done, head;
byte told;                   /* withdrawn puts before this number are done */
bool dead;                   /* the initiator */

/* ---- shared by the two threads ---- */
byte end, keeper, from, rescued_to;
byte ended;                  /* puts before this number had been told of at the last post */
bool over;                   /* the endpoint's thread has come to its end */

/* ---- nobody reads these ---- */
byte done[N], reported[N], last;
bool passed[N];              /* private to the target */

inline do_it(n)
{
	atomic { assert(!done[n] && !reported[n] && last == n); done[n]++; last = n + 1 }
}

inline tell(n)
{
	atomic { assert(done[n] && !reported[n]); reported[n]++ }
}

/* Does a put that is withdrawn, and says so. */
inline do_and_tell(n)
{
	if
	:: !BEFORE && TOLD -> told = n + 1
	:: else
	fi;
	do_it(n);
	if
	:: BEFORE && TOLD -> told = n + 1
	:: else
	fi
}

/* The initiator is dead, and its records are read. */
inline inherit()
{
	atomic { t = 0; w = 0 };
	do
	:: t < head ->
		if
		:: HEIR && passed[t] && t >= told ->
			atomic { assert(!done[t] || !w); done[t] = 1; w = 1 } /* the first one was in hand */
		:: else
		fi;
		t++
	:: else -> break
	od;
	t = 0;
	do
	:: t < head -> assert(done[t]); t++
	:: else -> break
	od
}

active proctype Target()
{
	byte w, t;

	do
	:: head < end ->
		atomic { w = withdrawn; t = taken };
		if
		:: w > head -> passed[head] = true
		:: else ->
			atomic {
				if
				:: withdrawn == w && taken == t -> taken = head + 1; t = 255
				:: else
				fi
			};
			if
			:: t == 255 -> do_it(head); delegated_done = head + 1
			:: else -> goto again
			fi
		fi;
		head++;
again:
		atomic { w = 0; t = 0 }
	:: true -> goto end_computes
	:: over -> break
	:: dead && head == end -> inherit(); break
	od;
end_computes:
	skip
}

/* Does what is withdrawn, and what is added meanwhile. */
inline copy_some()
{
	do
	:: end != rescued_to ->
		if
		:: ADDED || rescued_to < e -> do_and_tell(rescued_to)
		:: else
		fi;
		rescued_to++
	:: else -> break
	od;
	keeper = RESTS
}

active proctype Daemon()
{
	byte w, t, e, f;
	bool ok;

	{
	do
	:: over -> break
	:: keeper == NONE && end > taken && end > withdrawn ->
		e = end;
		atomic { w = withdrawn; t = taken };
		f = (w > t -> w : t);
		if
		:: e <= f || (ENDED && delegated_done < t && ended < t) -> skip
		:: else ->
			if
			:: atomic { keeper == NONE -> keeper = COPIES };
				atomic {
					ok = (withdrawn == w && taken == t);
					if
					:: ok -> withdrawn = (MORE -> e + D : e)
					:: else
					fi
				};
				if
				:: ok -> from = f; rescued_to = f; copy_some()
				:: else -> keeper = NONE
				fi
			:: keeper != NONE -> skip
			fi
		fi;
		atomic { w = 0; t = 0; e = 0; f = 0; ok = false }
	:: keeper == RESTS && end != rescued_to ->
		if
		:: atomic { keeper == RESTS -> keeper = COPIES };
			e = rescued_to;
			copy_some();
			e = 0
		:: keeper != RESTS -> skip
		fi
	od
	} unless { dead }
}

active proctype Endpoint()
{
	byte first, ours, rescued, high, k, w, t;
	bool ok;

	{
	do
	:: end < N && end - first < D && ours == end && keeper < COPIES ->
		/* the daemon's thread may withdraw here */
		atomic { ended = first; end++; ours = end }
	:: first != ours && delegated_done > first -> tell(first); first++
	:: first != end && ours == end ->                 /* withdraw, or take over */
		k = keeper;
		atomic {
			ok = (keeper == k && (k != COPIES || !WAIT));
			if
			:: ok && KEEPER -> keeper = ENDPOINT
			:: else
			fi
		};
		if
		:: ok && (k == RESTS || k == COPIES) ->
			atomic {
				assert(withdrawn > high);
				if
				:: RIGHT -> withdrawn = end
				:: else
				fi;
				high = withdrawn
			};
			ours = from;
			rescued = rescued_to - from;
			keeper = NONE
		:: ok && k == NONE ->
			atomic { w = withdrawn; t = taken };
			t = (t < first -> first : t);
			if
			:: t < end ->
				atomic {
					if
					:: withdrawn == w && (taken == t || taken < first && t == first) ->
						assert(w == high);
						withdrawn = end;
						high = end;
						ours = t
					:: else
					fi
				}
			:: else
			fi;
			if
			:: KEEPER -> keeper = NONE
			:: else
			fi
		:: else
		fi;
		atomic { w = 0; t = 0; k = 0; ok = false }
	:: ours != end && first == ours ->
		if
		:: rescued > 0 ->
			rescued--;
			if
			:: AGAIN
			:: else -> told = first + 1
			fi
		:: else -> do_and_tell(first)
		fi;
		tell(first);
		atomic { first++; ours = first }
	:: end == N && first == end -> break
	od;
	over = true
	} unless { dead }
}

active proctype Death()
{
	if
	:: DIES -> dead = true
	:: true
	fi
}
