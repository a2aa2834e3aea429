/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * putback.pml: a delegated put whose payload is in a buffer that the target has lent (src/link/hold.h, src/link/record.c,
 * src/rma/delegate.c, src/rma/taker.c, src/proc/rescue.c, src/ep/rx.c).
 *
 * The target lends its one buffer with each of N messages. The endpoint's thread of the initiator reads them. It holds
 * the buffer and puts from it, or gives it back by its head. The daemon's thread withdraws a put at any moment, or never;
 * it reads the payload later, and says then that the put is done. Meanwhile the endpoint's thread reads and tells its
 * head. Both threads may die at any moment, together. The target takes puts, and passes over those that are withdrawn.
 * hold.pml has messages and several buffers, rescue.pml has the two threads and several puts at a time.
 *
 * Asserted: each put has the bytes that were put, on whichever side it is done; it is done once, and only one that was in
 * hand at a death may be done twice; the buffer is lent once at a time, and comes back in the end; nobody waits for ever.
 *
 * Mutants, each of which must fail:
 *            PIN=0     the target takes the buffer of a put back that is withdrawn, once the head has passed it
 *            PIN=2     it does so once the initiator has said that an earlier put is done
 *            PASS=0    it takes that buffer back as soon as it has read the record
 *            PEEK=0    it believes the head although there is a record that it has not read
 *            HOLD=0    the initiator says that the put is done before it has read the payload
 *            HEIR=0    after a death the target takes the buffer back first, and then does the put
 *            TELL=0    the initiator never tells the head of a put that it has withdrawn
 */
#ifndef N
#define N 4
#endif
#ifndef PIN
#define PIN 1
#endif
#ifndef PASS
#define PASS 1
#endif
#ifndef PEEK
#define PEEK 1
#endif
#ifndef HOLD
#define HOLD 1
#endif
#ifndef HEIR
#define HEIR 1
#endif
#ifndef TELL
#define TELL 1
#endif

#define MESSAGE(n) ((n) + 1)
#define PUT(n) (100 + (n))

/* ---- shared memory ---- */
byte buf;                    /* bytes of the target's buffer */
byte sent;                   /* messages in the initiator's ring */
byte head;                   /* of them, read and told */
byte puts;                   /* records in the target's ring */
byte taken, withdrawn;       /* the claim, one word */
byte told;                   /* withdrawn puts before this number are done */
bool dead;                   /* the initiator */

/* ---- nobody reads these ---- */
byte done[N];
bool over;                   /* the endpoint's thread has come to its end */

inline do_it(n)
{
	assert(buf == PUT(n));
	done[n]++
}

/* ---- the target ---- */

#define UNREAD (read != puts)
#define NONE 255
#define IS_DONE(n) (PIN == 0 || told > n || (PIN == 2 && told))

inline take_back()
{
	assert(lent);
	lent = false;
	buf = 0                                       /* another message fills it */
}

active proctype Target()
{
	byte read, known, pinned = NONE;
	bool lent, heir;

	do
	:: atomic { sent < N && !lent && !dead -> lent = true; buf = MESSAGE(sent); sent++ }

	/* a record: sc_taker_put(), take_next() */
	:: atomic {
		UNREAD ->
		if
		:: withdrawn > read ->
			pinned = read;
			if
			:: PASS
			:: else -> take_back(); pinned = NONE
			fi
		:: else ->
			taken = read + 1;
			do_it(read);
			take_back()
		fi;
		read++
	   }

	/* the head: returning(), sc_hold_is_pinned() */
	:: head > known -> known = head               /* R2' */
	:: atomic {
		lent && known == sent && !(PEEK && UNREAD) && (pinned == NONE || IS_DONE(pinned)) ->
		take_back();
		pinned = NONE
	   }

	/* the initiator has gone: sc_taker_inherit(), sc_peer_take_loans_back() */
	:: dead && !UNREAD -> break
	:: over && sent == N && !lent && !UNREAD -> break
	od;
	atomic {
		if
		:: dead ->
			if
			:: !HEIR && lent -> take_back()
			:: else
			fi;
			if
			:: pinned != NONE && told <= pinned -> do_it(pinned); heir = true
			:: else
			fi;
			if
			:: lent -> take_back()
			:: else
			fi
		:: else
		fi;
		read = 0;
		do
		:: read < puts ->
			assert(done[read] == 1 || (heir && read == pinned && done[read] == 2));
			read++
		:: else -> break
		od
	}
}

/* ---- the initiator ---- */

active proctype Endpoint()
{
	byte got;                                     /* messages read */
	byte said;                                    /* of which the target knows, or will */
	bool held;

	{
	do
	:: got < sent -> assert(buf == MESSAGE(got)); atomic { got++; held = true }
	/* sc_peer_publish(); not while all is said */
	:: atomic { said != got -> held = false }; head = got; said = got
	/* sc_delegate_post(), once the last put has ended */
	:: held && (puts == 0 || taken == puts || told == puts) ->
		buf = PUT(puts);
		atomic { held = false; said = got; puts++ }
	/* withdraw_from() */
	:: atomic { TELL && withdrawn && withdrawn == puts && head != got -> held = false }; head = got; said = got
	:: got == N && !held && said == N && (puts == 0 || taken == puts || told == puts) &&
			(head == N || taken == puts) -> break
	od;
	over = true
	} unless { dead }
}

active proctype Daemon()
{
	byte n;

	{
	do
	:: atomic { puts > taken && puts > withdrawn -> withdrawn = puts; n = puts - 1 };
		if
		:: HOLD -> atomic { do_it(n) }; told = n + 1
		:: else -> told = n + 1; atomic { do_it(n) }
		fi;
		n = 0
	:: over -> break
	od
	} unless { dead }
}

active proctype Death()
{
	if
	:: dead = true
	:: true
	fi
}
