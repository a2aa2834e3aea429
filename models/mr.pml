/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.pml: the end of a registration against those who copy under it (src/shm/regtab.c, src/rma/reg.c, src/rma/direct.c).
 *
 * One entry of the table, opened and closed GENS times, each time for other memory; NI initiators, each of
 * which tries ROUNDS copies with any key and may be killed, or stopped and let go on, anywhere. Stores go
 * through first-in first-out buffers (TSO), one of the owner and one of each initiator.
 *
 * Asserted: nothing is copied from or to memory whose registration has been closed (close returned);
 * an initiator copies only memory that its key, and the generation that it found, name; a copy during which the
 * registration was closed does not succeed.
 *
 * Variants:  APPKEY  the key is the application's: the same for each generation
 *            STRICT  the owner does the copies itself, in pieces, from its private table
 * Mutants, each of which must fail:
 *            FI=0 FT=0       no full fence of the initiator, of the owner
 *            DEATH=2         an initiator counts as dead once SIGKILL was sent, not when its life lock is free
 *            STOP=2          a stopped initiator counts as out
 *            CHECK=0         no look at the tag after the copy
 *            ORDER=2         an entry is opened tag first, fields last
 *            REUSE=2         an entry is used again while a hazard word names it
 *            STRICT ONCE     strict: the table is looked at for the first piece only
 *            STRICT UNLOCKED strict: closing is not kept apart from a piece
 *            STRICT APPKEY ANYTAG  strict: later pieces go by the key alone
 */
#ifndef NI
#define NI 2
#endif
#ifndef GENS
#define GENS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef FI
#define FI 1
#endif
#ifndef FT
#define FT 1
#endif
#ifndef DEATH
#define DEATH 1
#endif
#ifndef STOP
#define STOP 1
#endif
#ifndef CHECK
#define CHECK 1
#endif
#ifndef ORDER
#define ORDER 1
#endif
#ifndef REUSE
#define REUSE 1
#endif
#define NONE 255

#ifdef APPKEY
#define KEY(g) 0
#else
#define KEY(g) (g)
#endif

bool copying[NI]; /* somebody's memory is being touched: */
byte mem[NI];     /* that of this generation */
bool freed[GENS]; /* close has returned: the memory is the application's */

inline free_memory(gen)
{
	atomic {
		freed[gen] = true;
		k = 0;
		do
		:: k < NI -> assert(!(copying[k] && mem[k] == gen)); k++
		:: k == NI -> k = 0; break
		od
	}
}

#ifndef STRICT

/* ---- shared memory, and what goes there ---- */

byte tag = 0;
byte keyword = NONE, field = NONE;
byte hazard[NI];
bool lockheld[NI] = true;
bool crash[NI], stopped[NI];

#define TAG 1
#define KEYWORD 2
#define FIELD 3
chan sbT = [3] of { byte, byte };
chan sbI[NI] = [1] of { byte };

active [NI] proctype Initiator() provided (!stopped[_pid] || crash[_pid])
{
	byte n, key, ref, m;
	bool late;

	{
	do
	:: n < ROUNDS ->
		n++;
		select(key: 0 .. KEY(GENS - 1));
		ref = tag;                                 /* find: tag, then key */
		if
		:: ref % 2 && keyword == key ->
			sbI[_pid]!n;                       /* the hazard word */
#if FI
			empty(sbI[_pid]);                  /* full fence */
#endif
			if
			:: tag == ref ->                   /* check */
				m = field;
				atomic {
					copying[_pid] = true;
					mem[_pid] = m;
					assert(m == ref / 2 && KEY(m) == key);
					assert(!freed[m])
				};
				atomic {
					copying[_pid] = false;
					late = (tag != ref)
				};
#if CHECK
				if
				:: tag == ref -> assert(!late)   /* success */
				:: tag != ref -> skip            /* an error */
				fi
#else
				assert(!late)
#endif
			:: tag != ref -> skip
			fi;
			sbI[_pid]!0
		:: else -> skip
		fi;
		atomic { key = 0; ref = 0; m = 0; late = false }
	:: n == ROUNDS -> break
	od
	} unless { crash[_pid] };
	/* the kernel: the call in progress ends, memory is gone, then the lock is free */
	copying[_pid] = false;
	empty(sbI[_pid]);
	lockheld[_pid] = false
}

active proctype FlushI()
{
	byte i, v;
end:	do
	:: atomic { sbI[0]?v -> hazard[0] = v; v = 0 }
#if NI > 1
	:: atomic { sbI[1]?v -> hazard[1] = v; v = 0 }
#endif
	od
}

active proctype FlushT()
{
	byte what, v;
end:	do
	:: atomic {
		sbT?what,v ->
		if
		:: what == TAG -> tag = v
		:: what == KEYWORD -> keyword = v
		:: what == FIELD -> field = v
		fi;
		what = 0; v = 0
	}
	od
}

active proctype Fate()
{
	byte i;
	do
	:: i < NI ->
		if
		:: crash[i] = true
		:: stopped[i] = true;
			if
			:: stopped[i] = false
			:: crash[i] = true
			fi
		:: skip
		fi;
		i++
	:: i == NI -> break
	od
}

active proctype Owner()
{
	byte g, i, k, seen;

	do
	:: g < GENS ->
		/* open */
#if ORDER == 1
		sbT!FIELD,g; sbT!KEYWORD,KEY(g); sbT!TAG,(2 * g + 1);
#else
		sbT!TAG,(2 * g + 1); sbT!KEYWORD,KEY(g); sbT!FIELD,g;
#endif
		/* close */
		sbT!TAG,(2 * g + 2);
#if FT
		empty(sbT);                                /* full fence */
#endif
		i = 0;
		do
		:: i < NI ->
			seen = hazard[i];
			if
			:: !seen -> i++
			:: seen ->
				if
				:: hazard[i] != seen -> i++
#if DEATH == 1
				:: !lockheld[i] -> hazard[i] = 0; i++
#else
				:: crash[i] -> i++
#endif
#if STOP == 1
				:: stopped[i] && !crash[i] ->        /* EBUSY */
#if REUSE == 1
					if
					:: skip                  /* called again */
					:: goto done             /* never again: the entry stays as it is */
					fi
#else
					goto next
#endif
#else
				:: stopped[i] -> i++
#endif
				fi
			fi
		:: i == NI -> break
		od;
		free_memory(g);
next:		atomic { g++; i = 0; seen = 0 }
	:: g == GENS -> break
	od;
done:	skip
}

#else /* STRICT */

/*
 * The owner's two threads: the application, which opens and closes, and the progress engine, which serves
 * a request of several pieces. `busy` serializes the endpoint. Only the request is left
 * of the initiator: whether it lives or dies changes nothing here.
 */
byte tag = 0, keyword = NONE, field = NONE;
bool busy;

#define PIECES 2

#ifdef ANYTAG
#define SAME true
#else
#define SAME (piece == 0 || tag == ref)
#endif

#ifdef UNLOCKED
#define ENTER skip
#define LEAVE skip
#else
#define ENTER atomic { !busy -> busy = true }
#define LEAVE busy = false
#endif

active proctype Serve()
{
	byte key, ref, m, piece;
	bool rejected;

	select(key: 0 .. KEY(GENS - 1));
	do
	:: piece < PIECES && !rejected ->
		ENTER;
#ifdef ONCE
		if
		:: piece == 0 ->
#endif
		if
		:: tag % 2 && keyword == key && SAME ->
			atomic { if :: piece == 0 -> ref = tag :: else -> skip fi; m = field }
		:: else -> rejected = true
		fi
#ifdef ONCE
		:: else -> skip
		fi
#endif
		;
		if
		:: !rejected ->
			atomic {
				copying[0] = true;
				mem[0] = m;
				assert(m == ref / 2 && KEY(m) == key);
				assert(!freed[m])
			};
			copying[0] = false
		:: else -> skip
		fi;
		LEAVE;
		piece++
	:: else -> break
	od
}

active proctype Application()
{
	byte g, k;

	do
	:: g < GENS ->
		ENTER;
		atomic { field = g; keyword = KEY(g); tag = 2 * g + 1 };
		LEAVE;
		ENTER;
		tag = 2 * g + 2;
		free_memory(g);
		LEAVE;
		g++
	:: g == GENS -> break
	od
}

#endif
