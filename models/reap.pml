/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reap.pml: names of dead processes are removed, those of live ones never (src/os/shmfile.c, src/os/otherfile.c, src/proc/reap.c, src/os/lifelock.c).
 *
 * One name of /dev/shm that NOWN processes want and NREAP others remove if its owner is dead. Inodes have a
 * life lock (a POSIX lock: of a process, not of a descriptor; it goes with any descriptor of the inode that
 * the process closes). Any process may be killed between any two steps: its memory goes first, its locks
 * after that, the name stays.
 *
 *   Owner   sc_shmfile_create(), the filling, sc_shmfile_publish(), sc_shmfile_unlink(), sc_shmfile_close(); a name that is
 *           taken is reaped and tried again (service.c). While it runs it may lose its lock LOSE times
 *           (closefrom(3), a second descriptor) and may take it again.
 *   reap    reap_held(), unlink_dead(): each system call one step.
 *
 * Abstracted: what an owner does to a file without name is one step, as nobody sees it; the second opinion is
 * one step and knows whether the owner's memory is there (its answers of doubt leave the file, which is no
 * danger), by the memory itself, or by the mark that the kernel makes when it takes the memory away; a process's
 * pid is not given to another.
 *
 * Asserted: no reaper takes a name away that a living owner has; there is one owner at a time; a process that opens
 * the name finds the file filled; once all is over, one more reaper leaves no name.
 *
 * Variant:   THREADS  the reapers are two threads of one process (sc_otherfiles_hold())
 * Mutants, each of which must fail:
 *            NAMED=0      reaper: no look at whether the name is still of the locked inode
 *            NAMED=2      reaper: that look comes before the second opinion only: an owner whose lock is lost
 *                         gives the name back in between, and another takes it
 *            TAKE=0       reaper: the lock is looked at, not taken
 *            OPINION=0    reaper: no second opinion
 *            ORDER=2      owner: the name is given before the lock is taken
 *            ORDER=3      owner: the name is given before the file is filled
 *            GOODBYE=2    owner: says that it has closed before it takes its name away
 *            THREADS HOLD=0   threads do not keep each other from closing
 */
#ifndef NOWN
#define NOWN 2
#endif
#ifndef NREAP
#define NREAP 2
#endif
#ifndef LOSE
#define LOSE 1
#endif
#ifndef NAMED
#define NAMED 1
#endif
#ifndef TAKE
#define TAKE 1
#endif
#ifndef OPINION
#define OPINION 1
#endif
#ifndef ORDER
#define ORDER 1
#endif
#ifndef GOODBYE
#define GOODBYE 1
#endif
#ifndef HOLD
#define HOLD 1
#endif

#define TRIES 2
#define NI (NOWN * TRIES)
#define NP (NOWN + NREAP)
#define NONE 255

byte name = NONE;
byte lk[NI];      /* life lock: holder + 1, or 0 */
bool mind[NI];    /* its owner's memory shows the cookie, and does not say CLOSED */
bool has[NI];     /* its living owner has been given the name, and has not begun to give it back */
bool filled[NI];
byte inodes, over;
bool held;        /* sc_otherfiles_hold() */

/* Each step is taken, or the process dies instead: all but Last, and for simplicity those with threads. */
#ifdef THREADS
#define REAPER NOWN
#define MORTAL if :: skip :: me < NOWN -> goto dead fi
#else
#define REAPER _pid
#define MORTAL if :: skip :: me < NP -> goto dead fi
#endif

inline close_file(inode)
{
	if
	:: lk[inode] == me + 1 -> lk[inode] = 0
	:: else -> skip
	fi
}

inline drop_locks()
{
	atomic {
	q = 0;
	do
	:: q < NI -> close_file(q); q++
	:: q == NI -> q = 0; break
	od
	}
}

/* gone: there is no such name any more, or it was a dead one's */
inline reap()
{
	atomic {
		MORTAL;
		gone = (name == NONE);
		ino = name;                                     /* open */
		assert(gone || filled[ino])
	};
	if
	:: gone -> skip
	:: else ->
		atomic {
			MORTAL;
			mine = (lk[ino] == 0 || lk[ino] == me + 1); /* F_SETLK, else EAGAIN */
#if TAKE
			if :: mine -> lk[ino] = me + 1 :: else -> skip fi
#endif
		};
#if NAMED == 2
		atomic { MORTAL; same = (name == ino) };
#endif
#if OPINION
		if
		:: mine -> atomic { MORTAL; mine = !mind[ino] }   /* else EBUSY */
		:: else -> skip
		fi;
#endif
		if
		:: mine ->
#if NAMED == 1
			atomic { MORTAL; same = (name == ino) };  /* fstatat */
#elif NAMED == 0
			same = true;
#endif
			atomic {
				MORTAL;
				gone = true;
				if
				:: same ->
					assert(name == NONE || !has[name]);
					name = NONE             /* unlink */
				:: else -> skip
				fi
			}
		:: else -> skip
		fi;
		atomic { MORTAL; close_file(ino); mine = false; same = false }
	fi;
	ino = 0
}

active [NOWN] proctype Owner()
{
	byte my = NONE, ino, tries, lost, q;
	byte me = _pid;
	bool gone = true, same, mine;

	do
	:: tries == TRIES || !gone -> goto done
	:: tries < TRIES && gone ->
		atomic {
			MORTAL;
			tries++; my = inodes; inodes++;         /* O_TMPFILE */
			mind[my] = true;
			filled[my] = (ORDER != 3);
			if :: ORDER != 2 -> lk[my] = me + 1 :: else -> skip fi
		};
		atomic {
			MORTAL;
			gone = (name != NONE);                  /* linkat, else EEXIST */
			if :: !gone -> name = my; has[my] = true :: else -> skip fi
		};
		if
		:: gone ->
			atomic { MORTAL; close_file(my); mind[my] = false; my = NONE };
			reap()
		:: else -> break
		fi
	od;

#if ORDER == 2
	atomic { MORTAL; lk[my] = me + 1 };
#endif
#if ORDER == 3
	atomic { MORTAL; filled[my] = true };
#endif
	do                                                      /* runs */
	:: lost < LOSE -> atomic { MORTAL; lost++; close_file(my) }
	:: lost && lk[my] == 0 -> atomic { MORTAL; if :: lk[my] == 0 -> lk[my] = me + 1 :: else -> skip fi }
	:: break
	od;
#if GOODBYE == 2
	atomic { MORTAL; mind[my] = false };
#endif
	atomic { MORTAL; assert(name == my); has[my] = false; same = (name == my) };    /* fstatat */
	atomic {
		MORTAL;
		if
		:: same -> assert(name == NONE || !has[name]); name = NONE              /* unlink */
		:: else -> skip
		fi
	};
	atomic { MORTAL; close_file(my); mind[my] = false; my = NONE };
	goto done;

dead:	/* the kernel: memory, then locks */
	atomic { if :: my != NONE -> mind[my] = false; has[my] = false; my = NONE :: else -> skip fi };
	drop_locks();
done:	atomic { over++; ino = 0; tries = 0; lost = 0; gone = false; same = false; mine = false }
}

active [NREAP] proctype Reaper()
{
	byte ino, q;
	byte me = REAPER;
	bool gone, same, mine;

#if defined(THREADS) && HOLD
	atomic { !held -> held = true };
#endif
	reap();
#if defined(THREADS) && HOLD
	held = false;
#endif
	goto done;

dead:	drop_locks();
done:	atomic { over++; ino = 0; gone = false; same = false; mine = false }
}

active proctype Last()
{
	byte ino;
	byte me = NP;
	bool gone, same, mine;

	over == NP;
	reap();
dead:	assert(name == NONE)
}
