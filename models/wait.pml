/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wait.pml: sleeping until another process has written something, and waking (src/os/wake.c, src/ep/sleep.c).
 *
 * One sleeper, NW writers with a ring each, MSGS records a writer. A writer publishes, looks at the sleeper's
 * word, and wakes; it has a store buffer for its records (x86: loads pass it, read-modify-write instructions and
 * system calls empty it). Any writer may be killed between any two steps; the stores in its store buffer still
 * become visible, then the daemon thread of the sleeper's process notices the death, counts it, and wakes.
 *
 *   Sleeper   sc_sleep_arm() (A1), sc_sleep_barrier() (A2), has_work() (A3), sc_sleep() (A4), and polling
 *   Writer    sc_ring_commit() (P1), sc_wake() (P2), sc_wake_slow() (P3 to P5)
 *   Daemon    sc_bell_ring(): P1 is its count
 *   Watcher   (-DWATCHER) the thread of watcher.c between the futex and the descriptor that the sleeper sleeps on:
 *             shmcma_wait_try() empties the pipe, arms, looks; watch() fills it
 *
 * The futex is `count`, which armings and wakes change, and the flag; futex_wait() compares and sleeps in one
 * step, futex_wake() wakes the sleeper if it is asleep then.
 *
 * Asserted, when no process can take a step any more: the sleeper has taken all records, also those of dead writers,
 * and knows of every death. A sleeper that is asleep with a record in a ring is an invalid end state.
 *
 * Mutants, each of which must fail:
 *            BARRIER=0  no membarrier: the look (A3) misses what is in a store buffer, the writer the flag
 *            ARM=2      the flag is set after the look
 *            SEEN=2     the value to sleep on is read after the look
 *            COUNT=0    waking does not change the futex
 *            CLEAR=2    P5 takes the flag back whatever has happened since P3
 *            CLEAR=3    P5 takes place before P4: a death in between leaves a sleeper that nobody knows of
 *            ARMING=0   arming does not change the count (CLEAR by value takes another's flag)
 *            BELL=0     no daemon thread: nobody wakes the sleeper for the records of dead writers
 *            LOWER=2    (WATCHER) the pipe is emptied after the look
 *            HEARD=2    (WATCHER) the watcher reads what it has heard of after it has signalled
 */
#ifndef NW
#define NW 2
#endif
#ifndef MSGS
#define MSGS 1
#endif
#ifndef BARRIER
#define BARRIER 1
#endif
#ifndef ARM
#define ARM 1
#endif
#ifndef SEEN
#define SEEN 1
#endif
#ifndef COUNT
#define COUNT 1
#endif
#ifndef CLEAR
#define CLEAR 1
#endif
#ifndef ARMING
#define ARMING 1
#endif
#ifndef BELL
#define BELL 1
#endif
#ifndef LOWER
#define LOWER 1
#endif
#ifndef HEARD
#define HEARD 1
#endif

#define WAKE 1
#define ARMED 8 /* armings are counted apart */

/* ---- shared memory ---- */

byte ring[NW];           /* records published, as others see it */
byte buffered[NW];       /* published, and still in the writer's store buffer */
byte wakes, armings;     /* together the count of the word; the futex is both and the flag */
bool flag;
byte rung;               /* the daemon's bell */

/* ---- the kernel ---- */

bool asleep;             /* the sleeper (or the watcher) is in futex_wait() */
bool readable;           /* WATCHER: the pipe, which the sleeper is in epoll_wait() for */
byte dead;               /* writers that have died */

byte taken[NW];          /* by the sleeper */
byte heard;
byte written[NW];        /* in all: what has been published, by the living and the dead */

#define FUTEX_IS(w, a, f) (wakes == (w) && armings == (a) && flag == (f))

inline wake_up()
{
	asleep = false
}

/* P3 to P5. `my` are the waker's own: what the word was after P3. */
#define WAKING(mortal)                                                        \
	atomic { mortal; if :: COUNT -> wakes++ :: else fi;                     \
		my_wakes = wakes; my_armings = armings; my_flag = flag }       \
	if                                                                      \
	:: my_flag ->                                                           \
		if                                                              \
		:: CLEAR == 3 -> atomic { mortal; if :: wakes == my_wakes && armings == my_armings -> \
			flag = false :: else fi }                               \
		:: else                                                         \
		fi;                                                             \
		atomic { mortal; wake_up() }                                    \
		if                                                              \
		:: CLEAR == 2 -> atomic { mortal; flag = false }                \
		:: CLEAR == 1 -> atomic { mortal; if :: wakes == my_wakes && armings == my_armings -> \
			flag = false :: else fi }                               \
		:: else                                                         \
		fi                                                              \
	:: else                                                                 \
	fi

#define MORTAL if :: skip :: goto dies fi

/* The store buffer of a writer: one record at a time becomes visible, in order. */
active [NW] proctype Buffer()
{
	byte me = _pid;
end:
	do
	:: atomic { buffered[me] > 0 -> buffered[me]--; ring[me]++ }
	od
}

proctype Writer(byte me)
{
	byte my_wakes, my_armings;
	bool my_flag, saw;
	byte left = MSGS;

	do
	:: left > 0 ->
		atomic { MORTAL; buffered[me]++; written[me]++; left-- } /* P1 */
		atomic { MORTAL; saw = flag }                            /* P2 */
		if
		:: saw ->
			buffered[me] == 0;                               /* P3 is a locked instruction */
			WAKING(MORTAL)
		:: else
		fi
	:: else -> break
	od;
	goto done;
dies:
	atomic { buffered[me] == 0 -> dead++ } /* long before its life lock is free */
done:
	skip
}

/* Its stores are as any other's, so it fences by P1, which is a locked instruction. */
active proctype Daemon()
{
	byte my_wakes, my_armings, known;
	bool my_flag;
end:
	do
	:: BELL && dead > known ->
		atomic { known = dead; rung = dead }
		if
		:: flag -> WAKING(skip)
		:: else
		fi
	od
}

#define WORK (ring[0] != taken[0] || (NW > 1 && ring[NW - 1] != taken[NW - 1]) || rung != heard)

inline poll()
{
	atomic {
		taken[0] = ring[0];
		taken[NW - 1] = ring[NW - 1];
		heard = rung
	}
}

inline arm()
{
	atomic {
		flag = true;
		if :: ARMING -> armings = (armings + 1) % ARMED :: else fi
	}
}

inline see()
{
	atomic { seen_wakes = wakes; seen_armings = armings; seen_flag = flag }
}

proctype Sleeper()
{
	byte seen_wakes, seen_armings;
	bool seen_flag, work;

	do
	::
#ifdef WATCHER
		if
		:: LOWER == 1 -> readable = false
		:: else
		fi;
#endif
		poll();
		if
		:: ARM == 1 -> atomic { arm(); see() }           /* A1 */
		:: else -> see()
		fi;
		if
		:: BARRIER -> buffered[0] == 0; buffered[NW - 1] == 0 /* A2: each processor, at a time of its own */
		:: else
		fi;
		work = WORK;                                      /* A3 */
		if
		:: ARM == 2 -> atomic { arm(); see() }
		:: else
		fi;
		if
		:: SEEN == 2 -> see()
		:: else
		fi;
#ifdef WATCHER
		if
		:: LOWER == 2 -> readable = false
		:: else
		fi;
#endif
		if
		:: work -> skip
		:: else ->
#ifdef WATCHER
endpoll:
			readable                                  /* epoll_wait() */
#else
			atomic {                                  /* A4 */
				if
				:: FUTEX_IS(seen_wakes, seen_armings, seen_flag) -> asleep = true
				:: else
				fi
			}
endasleep:
			!asleep
#endif
		fi
	od
}

#ifdef WATCHER
proctype Watcher()
{
	byte now_wakes, now_armings, last;
	bool now_flag;

end:
	do
	::
		atomic { now_wakes = wakes; now_armings = armings; now_flag = flag }
		if
		:: now_wakes != last ->
			if :: HEARD == 1 -> last = now_wakes :: else fi;
			readable = true;
			if :: HEARD == 2 -> last = wakes :: else fi
		:: else ->
			atomic {
				if
				:: FUTEX_IS(now_wakes, now_armings, now_flag) -> asleep = true
				:: else
				fi
			}
endasleep:
			!asleep
		fi
	od
}
#endif

init
{
	byte i;

	atomic {
		i = 0;
		do
		:: i < NW -> run Writer(i); i++
		:: else -> break
		od;
		run Sleeper()
#ifdef WATCHER
		;
		run Watcher()
#endif
	}
	/* nothing else can happen: all that was published has been taken, all deaths have been heard of */
	timeout;
	assert(taken[0] == written[0] && taken[NW - 1] == written[NW - 1]);
	assert(!BELL || heard == dead)
}
