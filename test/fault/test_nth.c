/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_nth.c: the failure of every system call and of every allocation that the provider makes, in turn: a
 * clear error or none at all, no crash, no hang, no leak.
 *
 * Each scenario is run once with nothing failing, which gives the list of the provider's calls (interpose.h).
 * Then it is run again for the first, the second and the last call of each site (with TEST_EVERY in the
 * environment: for all), with each errno that the call may fail with, once alone and once with all that
 * follow; each time in new processes, of which one, the subject, has the failures. The test demands:
 *
 *	the call or the operation that fails returns a code that names the lacking resource, with a warning in
 *	the log unless the code alone says enough; or nothing fails and every byte arrives;
 *	every operation under way, here and at the partner, ends exactly once (nth.h), or with its endpoint;
 *	everything can be closed, then opened and used again in the same process;
 *	no allocation, mapping, descriptor, stream or name is left, when all is closed and after cleanup(), except
 *	the one that is also left when nothing fails: one page with the identity of the process.
 *
 * The provider is called as libfabric calls it: its own start, which takes longer than a run, is made once and
 * without it. Calls of threads and of loops that poll are not the same from run to run; a call that is not
 * reached is counted, and most must be.
 *
 * TEST_ONLY runs the scenarios whose name contains it, TEST_SITE=0x... the calls of one site, as it is printed
 * (addr2line(1) names it), TEST_VERBOSE prints the result of each.
 *
 * Exit code: 0 all is as it must be, 1 not so, 77 cannot be run.
 */
#include "nth.h"
#include "../watchdog.h"

#include <sys/wait.h>
#include <time.h>

/* ---- scenarios ------------------------------------------------------------------------------- */

static void pattern(uint8_t *buf, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(i * 131 + (i >> 8) + seed * 29 + 1);
}

static bool is_pattern(const uint8_t *buf, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != (uint8_t)(i * 131 + (i >> 8) + seed * 29 + 1))
			return false;
	return true;
}

static bool introduce(struct nth *nth)
{
	return nth_meet(nth) && nth_insert(nth, nth->own->name[0], &nth->self) &&
	       nth_insert(nth, nth->other->name[0], &nth->peer[0]) && nth_meet(nth);
}

static void check_received(struct nth *nth, const struct op *op, size_t len, unsigned int seed)
{
	if (op->len != len)
		nth_trouble(nth, "%zu bytes received, not %zu", op->len, len);
	if (!is_pattern(op->buf, len, seed))
		nth_trouble(nth, "wrong bytes received (%zu)", len);
}

static bool send_one(struct nth *nth, size_t len, unsigned int seed, uint64_t flags)
{
	struct op *op = nth_op(nth, OP_SEND, nth->out, len);
	struct iovec iov = { nth->out, len };
	struct fi_msg_tagged msg = { .msg_iov = &iov,
				     .iov_count = 1,
				     .addr = nth->peer[0],
				     .tag = seed,
				     .data = seed,
				     .context = &op->context };

	pattern(nth->out, len, seed);
	return NTH_POST(nth, op, fi_tsendmsg(nth->ep[0], &msg, flags | FI_COMPLETION)) &&
	       nth_wait(nth, op);
}

static bool receive_one(struct nth *nth, size_t len, unsigned int seed, bool expected)
{
	struct op *op = nth_op(nth, OP_RECV, nth->in, len);

	memset(nth->in, 0xee, len);
	if (!expected)
		for (int i = 0; i < 20; i++)
			nth_poll(nth);
	if (!NTH_POST(nth, op,
		      fi_trecv(nth->ep[0], nth->in, len, NULL, nth->peer[0], seed, 0, &op->context)) ||
	    (expected && !nth_meet(nth)) || !nth_wait(nth, op))
		return false;
	check_received(nth, op, len, seed);
	return true;
}

/* One message from one to the other. */
static bool message(struct nth *nth, enum role from, size_t len, bool expected)
{
	unsigned int seed = (unsigned int)nth->phase + 1;

	if (!nth_meet(nth))
		return false;
	if (nth->role != from)
		return receive_one(nth, len, seed, expected);
	return (!expected || nth_meet(nth)) && send_one(nth, len, seed, 0);
}

/* From both sides, expected or not. */
static bool messages(struct nth *nth, size_t len)
{
	for (int way = 0; way < 4; way++)
		if (!message(nth, way & 1 ? PARTNER : SUBJECT, len, way & 2))
			return false;
	return true;
}

static void run_messages(struct nth *nth)
{
	static const size_t sizes[] = { 8, 4096, 20000, 300000, NTH_BUFFER };

	if (!nth_open(nth) || !introduce(nth))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (!messages(nth, sizes[i]))
			return;
	nth_meet(nth);
}

/* ---- other kinds of messages ----------------------------------------------------------------- */

enum { SENDS = 6, PIECE = 700 };

/* Several to one buffer; the sender's way is another each time. */
static bool send_pieces(struct nth *nth)
{
	struct op *ops[SENDS];

	pattern(nth->out, SENDS * PIECE, 3);
	for (int i = 0; i < SENDS; i++) {
		uint8_t *from = nth->out + i * PIECE;
		struct iovec iov[3] = { { from, 100 }, { from + 100, 1 }, { from + 101, PIECE - 101 } };
		struct fi_msg msg = { .msg_iov = iov, .iov_count = 3, .addr = nth->peer[0] };

		ops[i] = nth_op(nth, OP_SEND, from, PIECE);
		msg.context = &ops[i]->context;
		if (!NTH_POST(nth, ops[i],
			      fi_sendmsg(nth->ep[0], &msg,
					 i & 1 ? FI_DELIVERY_COMPLETE | FI_COMPLETION
					       : FI_INJECT | FI_COMPLETION)))
			return false;
	}
	for (int i = 0; i < SENDS; i++)
		if (!nth_wait(nth, ops[i]))
			return false;
	return true;
}

static bool receive_pieces(struct nth *nth)
{
	struct iovec iov = { nth->in, SENDS * PIECE };
	struct op *op = nth_op(nth, OP_RECV, nth->in, 0);
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &op->context
	};

	op->many = true;
	if (!NTH_POST(nth, op, fi_recvmsg(nth->ep[0], &msg, FI_MULTI_RECV | FI_COMPLETION)))
		return false;
	while (op->done < SENDS)
		if (!nth_wait(nth, op))
			return false;
	if (!is_pattern(nth->in, SENDS * PIECE, 3))
		nth_trouble(nth, "wrong bytes in a buffer of several messages");
	return nth_wait(nth, op);
}

/* Waiting messages are looked at, set aside, taken and dropped. */
static bool look(struct nth *nth, struct op *op, uint64_t tag, uint64_t flags, size_t len)
{
	struct iovec iov = { nth->in, len };
	struct fi_msg_tagged msg = { .msg_iov = &iov,
				     .iov_count = !(flags & FI_PEEK),
				     .addr = nth->peer[0],
				     .tag = tag,
				     .context = &op->context };

	return NTH_POST(nth, op, fi_trecvmsg(nth->ep[0], &msg, flags | FI_COMPLETION)) &&
	       nth_wait(nth, op);
}

static bool receive_peeked(struct nth *nth, size_t len)
{
	struct op *op = nth_op(nth, OP_RECV, nth->in, 0);
	unsigned int failures = atomic_load(&interpose.failures);
	int polls = 0;

	do { /* until it is there */
		op->may = FI_ENOMSG;
		if (!look(nth, op, 5, FI_PEEK, 0) && op->error != FI_ENOMSG)
			return false;
	} while (op->error && !nth_over(nth) && !nth_hopeless(nth, failures) &&
		 !nth_lost(nth, op, &polls));
	op->may = 0;
	if (nth_over(nth) || !look(nth, op, 5, FI_PEEK | FI_CLAIM, 0) || !look(nth, op, 5, FI_CLAIM, len))
		return false;
	op->buf = nth->in;
	check_received(nth, op, len, 5);
	return true;
}

static bool truncated(struct nth *nth, size_t len)
{
	struct op *op = nth_op(nth, OP_RECV, nth->in, len);

	op->expect = FI_ETRUNC;
	return NTH_POST(nth, op,
			fi_trecv(nth->ep[0], nth->in, len, NULL, FI_ADDR_UNSPEC, 9, 0, &op->context)) &&
	       nth_wait(nth, op);
}

static bool cancelled(struct nth *nth)
{
	struct op *op = nth_op(nth, OP_RECV, nth->in, 10);
	ssize_t ret;

	if (!NTH_POST(nth, op, fi_trecv(nth->ep[0], nth->in, 10, NULL, nth->peer[0], 99, 0, &op->context)))
		return false;
	op->cancelled = true;
	op->expect = FI_ECANCELED;
	ret = fi_cancel(&nth->ep[0]->fid, &op->context);
	if (ret)
		nth_trouble(nth, "fi_cancel: %zd", ret);
	return nth_wait(nth, op);
}

static bool injected(struct nth *nth)
{
	static struct op none;

	pattern(nth->out, 3000, 6);
	return NTH_POST(nth, &none, fi_tinjectdata(nth->ep[0], nth->out, 3000, 6, nth->peer[0], 6)) &&
	       NTH_POST(nth, &none, fi_tinject(nth->ep[0], nth->out, 60, nth->peer[0], 6));
}

static bool kinds(struct nth *nth, enum role from)
{
	static const size_t sizes[] = { 10, 5000, 200000 };

	if (!nth_meet(nth) || (nth->role == from ? !send_pieces(nth) : !receive_pieces(nth)))
		return false;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (!nth_meet(nth) || (nth->role == from ? !send_one(nth, sizes[i], 5, FI_REMOTE_CQ_DATA)
							 : !receive_peeked(nth, sizes[i])))
			return false;
		if (!nth_meet(nth) ||
		    (nth->role == from ? !send_one(nth, sizes[i], 9, 0) : !truncated(nth, sizes[i] / 2)))
			return false;
	}
	if (!nth_meet(nth) || !cancelled(nth))
		return false;
	if (nth->role == from)
		return injected(nth);
	return receive_one(nth, 3000, 6, false) && receive_one(nth, 60, 6, false);
}

static void run_kinds(struct nth *nth)
{
	if (nth_open(nth) && introduce(nth) && kinds(nth, SUBJECT) && kinds(nth, PARTNER))
		nth_meet(nth);
}

/* ---- one-sided ------------------------------------------------------------------------------- */

static bool put(struct nth *nth, size_t len, unsigned int seed)
{
	struct op *op = nth_op(nth, OP_RMA, nth->out, len);

	pattern(nth->out, len, seed);
	return NTH_POST(nth, op,
			fi_writedata(nth->ep[0], nth->out, len, NULL, seed, nth->peer[0], nth->other->addr,
				     nth->other->key, &op->context)) &&
	       nth_wait(nth, op);
}

static bool get(struct nth *nth, size_t len, unsigned int seed)
{
	struct op *op = nth_op(nth, OP_RMA, nth->in, len);

	memset(nth->in, 0, len);
	if (!NTH_POST(nth, op,
		      fi_read(nth->ep[0], nth->in, len, NULL, nth->peer[0], nth->other->addr,
			      nth->other->key, &op->context)) ||
	    !nth_wait(nth, op))
		return false;
	if (!is_pattern(nth->in, len, seed))
		nth_trouble(nth, "wrong bytes read (%zu)", len);
	return true;
}

/* Adds to the last words of the region. */
static bool atomics(struct nth *nth)
{
	uint64_t *one = (uint64_t *)nth->out, *was = (uint64_t *)nth->in;
	uint64_t at = nth->other->addr + NTH_REGION - 64;
	struct op *op = nth_op(nth, OP_RMA, was, 8);
	struct op *none = nth_op(nth, OP_RMA, one, 8);

	*one = 3;
	if (!NTH_POST(nth, none,
		      fi_atomic(nth->ep[0], one, 1, NULL, nth->peer[0], at, nth->other->key, FI_UINT64,
				FI_SUM, &none->context)) ||
	    !nth_wait(nth, none))
		return false;
	*was = 0;
	if (!NTH_POST(nth, op,
		      fi_fetch_atomic(nth->ep[0], one, 1, NULL, was, NULL, nth->peer[0], at,
				      nth->other->key, FI_UINT64, FI_SUM, &op->context)) ||
	    !nth_wait(nth, op))
		return false;
	if (*was % 3 || !*was)
		nth_trouble(nth, "an atomic found %llu", (unsigned long long)*was);
	return true;
}

static bool wrong_key(struct nth *nth)
{
	struct op *op = nth_op(nth, OP_RMA, nth->in, 8);

	op->expect = FI_EKEYREJECTED;
	return NTH_POST(nth, op,
			fi_read(nth->ep[0], nth->in, 8, NULL, nth->peer[0], nth->other->addr,
				nth->other->key ^ 1ULL << 40, &op->context)) &&
	       nth_wait(nth, op);
}

static bool accesses(struct nth *nth, enum role from)
{
	static const size_t sizes[] = { 8, 3000, 100000, NTH_REGION - 64 };

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (!nth_meet(nth))
			return false;
		if (nth->role == from && (!put(nth, sizes[i], i) || !get(nth, sizes[i], i)))
			return false;
		if (!nth_meet(nth))
			return false;
		if (nth->role != from && !is_pattern(nth->region, sizes[i], i))
			nth_trouble(nth, "wrong bytes written (%zu)", sizes[i]);
	}
	return nth_meet(nth) && (nth->role != from || (atomics(nth) && wrong_key(nth))) && nth_meet(nth);
}

/* Many registrations of many ranges, so that their table grows; all are closed again. */
static bool register_many(struct nth *nth)
{
	enum { MANY = 150, RANGES = 20 };
	struct fid_mr *mr[MANY];
	struct iovec iov[RANGES];
	int count = 0;

	for (int i = 0; i < RANGES; i++)
		iov[i] = (struct iovec){ nth->region + i * 4096, 100 };
	while (count < MANY && NTH_OK(nth, fi_mr_regv(nth->domain, iov, RANGES, FI_REMOTE_READ, 0, 2, 0,
						      &mr[count], NULL)))
		count++;
	for (int i = 0; i < count; i++)
		nth_close_fid(nth, "mr of many", &mr[i]->fid);
	return count == MANY;
}

static void run_onesided(struct nth *nth)
{
	if (nth_open(nth) && introduce(nth) && register_many(nth) && accesses(nth, SUBJECT) &&
	    accesses(nth, PARTNER))
		nth_meet(nth);
}

/* ---- counters and what waits for them --------------------------------------------------------- */

static bool count_to(struct nth *nth, uint64_t value)
{
	unsigned int failures = atomic_load(&interpose.failures);
	int ret = -FI_ETIMEDOUT;

	while (ret == -FI_ETIMEDOUT && !nth_over(nth) && !nth_hopeless(nth, failures)) {
		ret = fi_cntr_wait(nth->cntr, value, 2);
		nth_poll(nth);
	}
	if (ret && ret != -FI_ETIMEDOUT && !(ret == -FI_EAVAIL && nth_excused(nth)))
		nth_ok(nth, "fi_cntr_wait", ret);
	return !ret;
}

/* A send that waits for a counter, and a deferred one. */
static bool triggered(struct nth *nth)
{
	struct op *op = nth_op(nth, OP_SEND, nth->out, 50), *second = nth_op(nth, OP_SEND, nth->out, 50);
	uint64_t before = fi_cntr_read(nth->cntr), go = fi_cntr_read(nth->writes);
	struct iovec iov = { nth->out, 50 };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = nth->peer[0], .tag = 7, .context = &op->context
	};
	struct fi_op_tagged tagged = { .ep = nth->ep[0], .msg = msg, .flags = FI_COMPLETION };
	static struct fi_deferred_work work;

	op->context = (struct fi_triggered_context2){ .event_type = FI_TRIGGER_THRESHOLD,
						      .trigger.threshold = { nth->writes, go + 2 } };
	tagged.msg.context = &second->context;
	work = (struct fi_deferred_work){ .threshold = go + 2,
					  .triggering_cntr = nth->writes,
					  .completion_cntr = nth->cntr,
					  .op_type = FI_OP_TSEND,
					  .op.tagged = &tagged };
	pattern(nth->out, 50, 7);
	if (!NTH_POST(nth, op, fi_tsendmsg(nth->ep[0], &msg, FI_TRIGGER | FI_COMPLETION)) ||
	    !NTH_POST(nth, second, fi_control(&nth->domain->fid, FI_QUEUE_WORK, &work)) ||
	    !NTH_OK(nth, fi_cntr_add(nth->writes, 2)))
		return false;
	return nth_wait(nth, op) && nth_wait(nth, second) && count_to(nth, before + 2);
}

static bool counted(struct nth *nth, enum role from)
{
	if (!nth_meet(nth))
		return false;
	if (nth->role == from)
		return triggered(nth);
	return receive_one(nth, 50, 7, false) && receive_one(nth, 50, 7, false);
}

static void run_counters(struct nth *nth)
{
	if (nth_open(nth) && introduce(nth) && counted(nth, SUBJECT) && counted(nth, PARTNER) &&
	    messages(nth, 40000))
		nth_meet(nth);
}

/* ---- many peers ------------------------------------------------------------------------------ */

/* The partner has many endpoints, which the subject's one writes to, and which write to it. */
static bool open_many(struct nth *nth)
{
	for (int i = 1; i < NTH_EPS && nth->role == PARTNER; i++)
		if (!nth_open_ep(nth, i))
			return false;
	return introduce(nth);
}

static bool insert_many(struct nth *nth)
{
	static char names[NTH_EPS][64];
	size_t len = sizeof(names[0]);
	int errors[NTH_EPS];
	int inserted;

	memcpy(names, nth->other->name, sizeof(names));
	if (nth->role == PARTNER)
		for (int i = 0; i < NTH_EPS; i++)
			memcpy(names[i], nth->other->name[0], sizeof(names[i]));
	inserted = fi_av_insert(nth->av, names, NTH_EPS, nth->peer, FI_SYNC_ERR, errors);
	for (int i = 0; i < NTH_EPS && inserted != NTH_EPS; i++)
		if (inserted < 0 || errors[i])
			return nth_not_inserted(nth, inserted < 0 ? -inserted : errors[i]);
	return NTH_OK(nth, fi_av_lookup(nth->av, nth->peer[NTH_EPS - 1], names, &len));
}

static bool post_many(struct nth *nth, bool sender)
{
	struct op *ops[NTH_EPS];

	for (int i = 0; i < NTH_EPS; i++) {
		uint8_t *at = (sender ? nth->out : nth->in) + i * 64;
		uint64_t tag = (uint64_t)i;

		ops[i] = nth_op(nth, sender ? OP_SEND : OP_RECV, at, 64);
		ops[i]->ep = nth->role == PARTNER ? i : 0;
		if (sender)
			pattern(at, 64, (unsigned int)i);
		if (!(sender ? NTH_POST(nth, ops[i],
					fi_tsend(nth->ep[ops[i]->ep], at, 64, NULL, nth->peer[i], tag,
						 &ops[i]->context))
			     : NTH_POST(nth, ops[i],
					fi_trecv(nth->ep[ops[i]->ep], at, 64, NULL, nth->peer[i], tag, 0,
						 &ops[i]->context))))
			return false;
	}
	for (int i = 0; i < NTH_EPS; i++)
		if (!nth_wait(nth, ops[i]))
			return false;
	for (int i = 0; i < NTH_EPS && !sender; i++)
		check_received(nth, ops[i], 64, (unsigned int)i);
	return true;
}

static void run_many(struct nth *nth)
{
	if (!nth_open(nth) || !open_many(nth) || !insert_many(nth) || !nth_meet(nth))
		return;
	if (!post_many(nth, nth->role == SUBJECT) || !nth_meet(nth) ||
	    !post_many(nth, nth->role == PARTNER) || !nth_meet(nth))
		return;
	if (NTH_OK(nth, fi_av_remove(nth->av, nth->peer, NTH_EPS, 0)))
		nth_meet(nth);
}

/* ---- the partner dies ------------------------------------------------------------------------ */

/* The messages that the partner has written are delivered, and all operations of the subject end. */
static void survive(struct nth *nth)
{
	struct op *large = nth_op(nth, OP_SEND, nth->out, NTH_BUFFER), *small;
	struct op *write = nth_op(nth, OP_RMA, nth->out, NTH_REGION);
	struct op *never = nth_op(nth, OP_RECV, nth->in, 10);
	unsigned int failures;

	if (!NTH_POST(
		    nth, large,
		    fi_tsend(nth->ep[0], nth->out, NTH_BUFFER, NULL, nth->peer[0], 1, &large->context)) ||
	    !NTH_POST(nth, write,
		      fi_write(nth->ep[0], nth->out, NTH_REGION, NULL, nth->peer[0], nth->other->addr,
			       nth->other->key, &write->context)) ||
	    !NTH_POST(nth, never,
		      fi_trecv(nth->ep[0], nth->in, 10, NULL, nth->peer[0], 2, 0, &never->context)) ||
	    !nth_meet(nth))
		return;
	while (!atomic_load(&nth->other->gone))
		nth_poll(nth);
	failures = atomic_load(&interpose.failures);
	small = nth_op(nth, OP_RECV, nth->in + 64, 64);
	if (NTH_POST(
		    nth, small,
		    fi_trecv(nth->ep[0], nth->in + 64, 64, NULL, FI_ADDR_UNSPEC, 3, 0, &small->context))) {
		for (int i = 0; i < NTH_POLLS && small->pending; i++)
			nth_poll(nth);
		if (!small->pending && !small->error)
			check_received(nth, small, 64, 3);
	}
	small = nth_op(nth, OP_SEND, nth->out, 8);
	while (large->pending && !nth->deaf && !nth_hopeless(nth, failures))
		nth_poll(nth);
	if (NTH_POST(nth, small,
		     fi_tsend(nth->ep[0], nth->out, 8, NULL, nth->peer[0], 1, &small->context)) &&
	    !small->pending && !nth_had_failure(nth))
		nth_trouble(nth, "a send to a dead peer succeeded");
}

static void run_death(struct nth *nth)
{
	struct op *op;

	if (!nth_open(nth) || !introduce(nth))
		return;
	if (nth->role == SUBJECT) {
		survive(nth);
		return;
	}
	op = nth_op(nth, OP_SEND, nth->out, 64);
	pattern(nth->out, 64, 3);
	(void)NTH_POST(nth, op, fi_tsend(nth->ep[0], nth->out, 64, NULL, nth->peer[0], 3, &op->context));
	op = nth_op(nth, OP_SEND, nth->out, NTH_BUFFER);
	(void)NTH_POST(nth, op,
		       fi_tsend(nth->ep[0], nth->out, NTH_BUFFER, NULL, nth->peer[0], 3, &op->context));
	atomic_store(&nth->own->phase, nth->phase + 1);
	while (atomic_load(&nth->other->phase) <= nth->phase && !nth_over(nth))
		sched_yield();
	raise(SIGKILL);
}

static void run_setup(struct nth *nth)
{
	struct op *ops[2];

	if (!nth_open(nth) || !nth_insert(nth, nth->own->name[0], &nth->self))
		return;
	ops[0] = nth_op(nth, OP_RECV, nth->in, 100);
	ops[1] = nth_op(nth, OP_SEND, nth->out, 100);
	pattern(nth->out, 100, 1);
	if (NTH_POST(nth, ops[0],
		     fi_trecv(nth->ep[0], nth->in, 100, NULL, nth->self, 1, 0, &ops[0]->context)) &&
	    NTH_POST(nth, ops[1],
		     fi_tsend(nth->ep[0], nth->out, 100, NULL, nth->self, 1, &ops[1]->context)) &&
	    nth_wait(nth, ops[0]) && nth_wait(nth, ops[1]))
		check_received(nth, ops[0], 100, 1);
}

static const struct nth_scenario scenarios[] = {
	{ .name = "set-up", .run = run_setup, .alone = true },
	{ .name = "set-up with a service", .run = run_setup, .alone = true, .service = true },
	{ .name = "set-up with a thread", .run = run_setup, .alone = true, .thread = true, .wait = true },
	{ .name = "messages", .run = run_messages },
	{ .name = "messages without CMA", .run = run_messages, .env = "FI_SHMCMA_CMA=0", .later = true },
	{ .name = "kinds of messages", .run = run_kinds, .later = true },
	{ .name = "one-sided", .run = run_onesided, .later = true },
	{ .name = "one-sided, strict", .run = run_onesided, .env = "FI_SHMCMA_RMA=strict", .later = true },
	{ .name = "one-sided without CMA", .run = run_onesided, .env = "FI_SHMCMA_CMA=0", .later = true },
	{ .name = "counters", .run = run_counters, .wait = true, .later = true },
	{ .name = "progress thread", .run = run_counters, .thread = true, .later = true },
	{ .name = "many peers", .run = run_many, .later = true },
	{ .name = "death", .run = run_death, .partner_dies = true, .later = true },
};

/* ---- one process ----------------------------------------------------------------------------- */

static struct fi_provider *(*provider_ini)(void);

/* The identity's page stays, see src/os/host.c. */
static void check_cleaned(struct nth *nth, const struct nth_left left[NTH_LEFT])
{
	if (left[0].count > 1 || (left[0].count && left[0].resource != R_MAPPING) || left[1].count)
		nth_trouble(nth,
			    "after cleanup(): things are left of the calls before provider+%#x and %#x",
			    left[0].site, left[1].site);
}

/* As libfabric's destructor does. */
static void cleanup(struct nth *nth)
{
	snprintf(nth->own->doing, sizeof(nth->own->doing), "cleanup()");
	interpose.armed = nth->role == SUBJECT;
	nth_provider->cleanup();
	interpose.armed = interpose.recording = false;
	if (nth_count_fds() > nth->fds && !nth_is_look(nth->shared->plan.call.function))
		nth_trouble(nth, "after cleanup(): %d descriptors are open, at first %d", nth_count_fds(),
			    nth->fds);
	if (nth->role != SUBJECT)
		return;
	if (!nth->shared->plan.number) {
		nth->shared->call_count = atomic_load(&interpose.calls);
		nth_left(nth->shared->cleaned);
		check_cleaned(nth, nth->shared->cleaned);
	} else {
		nth_compare_left(nth, "after cleanup()", nth->shared->cleaned);
	}
}

static void prepare(struct nth *nth)
{
	static char env[256];

	snprintf(env, sizeof(env), "%s", nth->scenario->env ? nth->scenario->env : "");
	for (char *each = strtok(env, " "); each; each = strtok(NULL, " "))
		putenv(each);
	nth->own = &nth->shared->side[nth->role];
	nth->other = &nth->shared->side[!nth->role];
	nth->in = malloc(NTH_BUFFER);
	nth->out = malloc(NTH_BUFFER);
	if (!nth->in || !nth->out)
		abort();
	nth->fds = nth_count_fds();
	interpose.plan = nth->shared->plan;
	interpose.log = nth->shared->log;
	interpose.shared_failures = nth->role == SUBJECT ? &nth->own->failures : NULL;
	interpose.recording = nth->role == SUBJECT && !interpose.plan.number;
	interpose.armed = nth->role == SUBJECT;
}

/*
 * The thread that watches others looks through their files now and then, and has a directory and one of them
 * open for a moment: only the descriptors count that are left when it sleeps.
 */
#define NAPS 2000

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Notes the usual state: the fewest descriptors that are open within a while. */
static void note_closed(struct nth *nth)
{
	for (int i = 0; i < NAPS / 10; i++) {
		int fds = nth_count_fds() - nth->fds;

		if (!i || fds < nth->shared->closed_fds) {
			nth_left(nth->shared->closed);
			nth->shared->closed_fds = fds;
		}
		nap();
	}
}

/* A descriptor that cannot be looked at may be another's by now, and stays open. */
static bool is_closed(const struct nth *nth)
{
	struct nth_left left[NTH_LEFT];
	unsigned int usual;

	nth_left(left);
	return (nth_is_look(nth->shared->plan.call.function) ||
		nth_count_fds() - nth->fds <= nth->shared->closed_fds) &&
	       !nth_surplus(nth, left, nth->shared->closed, &usual);
}

/* Names the file of each descriptor, for the reader of the report. */
static const char *name_fds(void)
{
	static char text[1000];
	size_t used = 0;

	for (int fd = 0; fd < 64 && used < sizeof(text) - 100; fd++) {
		char path[32], link[80] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, link, sizeof(link) - 1) > 0)
			used += (size_t)snprintf(text + used, sizeof(text) - used, " %d %s", fd, link);
	}
	return text;
}

/* Do all threads but this one sleep? One that waits for a processor does not. */
static bool others_sleep(void)
{
	DIR *dir = opendir("/proc/self/task");
	bool sleep = true;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[300], text[300] = "";
		const char *state = NULL;
		FILE *file;

		if (atoi(entry->d_name) == getpid() || entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(text, sizeof(text), file))
			state = strrchr(text, ')');
		sleep &= !state || state[2] == 'S';
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return sleep;
}

static void check_closed(struct nth *nth)
{
	bool subject = nth->role == SUBJECT;
	int fds;

	if (nth_is_mapped())
		nth_trouble(nth, "a segment is mapped when all is closed");
	if (!nth->shared->plan.number) {
		if (subject)
			note_closed(nth);
		return;
	}
	for (int i = 0; i < NAPS; i += others_sleep()) {
		if (is_closed(nth))
			return;
		nap();
	}
	fds = nth_count_fds() - nth->fds;
	if (fds > nth->shared->closed_fds && !nth_is_look(nth->shared->plan.call.function))
		nth_trouble(
			nth,
			"%d descriptors more than at first are open when all is closed, usual are %d:%s",
			fds, nth->shared->closed_fds, name_fds());
	if (subject)
		nth_compare_left(nth, "when all is closed", nth->shared->closed);
}

/* Nothing fails any more: all of it works. */
static void run_again(struct nth *nth)
{
	static const struct nth_scenario again = { .alone = true };
	static struct nth second;

	second = (struct nth){ .scenario = &again,
			       .shared = nth->shared,
			       .role = PARTNER,
			       .own = nth->own,
			       .other = nth->other,
			       .in = nth->in,
			       .out = nth->out };
	run_setup(&second);
	if (second.broken)
		nth_trouble(nth, "it does not work afterwards");
	nth_close(&second);
}

static void run_process(struct nth *nth)
{
	watchdog_start(nth->scenario->name, NTH_SECONDS);
	prepare(nth);
	nth_provider = provider_ini();
	nth->scenario->run(nth);
	nth_leave(nth);
	nth_close(nth);
	interpose.armed = interpose.recording = false;
	run_again(nth);
	check_closed(nth);
	interpose.recording = nth->role == SUBJECT && !interpose.plan.number;
	cleanup(nth);
	exit(0);
}

/* ---- one run --------------------------------------------------------------------------------- */

struct child {
	pid_t pid;
	int log;
	int status;
};

static void start(struct child *child, const struct nth_scenario *scenario, struct nth_shared *shared,
		  enum role role)
{
	static struct nth nth;

	child->log = memfd_create("stderr", MFD_CLOEXEC);
	if (child->log < 0)
		abort();
	fflush(NULL);
	child->pid = fork();
	if (child->pid < 0)
		abort();
	if (child->pid)
		return;
	dup2(child->log, STDERR_FILENO);
	nth.scenario = scenario;
	nth.shared = shared;
	nth.role = role;
	run_process(&nth);
}

/* Has that process left names? They are removed. */
static bool had_names(pid_t pid)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	bool found = false;
	char own[32], service[32];

	snprintf(own, sizeof(own), "shmcma-%08x-%08x-", (unsigned int)geteuid(), (unsigned int)pid);
	snprintf(service, sizeof(service), "-nth-%d", (int)pid);
	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, own, strlen(own)) && !strstr(entry->d_name, service))
			continue;
		found = true;
		(void)unlinkat(dirfd(dir), entry->d_name, 0);
	}
	closedir(dir);
	return found;
}

static void print_log(int fd)
{
	char text[4096];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		printf("    | %s\n", line);
}

static bool warned(int fd)
{
	char text[8192];
	ssize_t got = pread(fd, text, sizeof(text) - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	return strstr(text, "shmcma");
}

static const char *plan_text(const struct interpose_plan *plan)
{
	static char text[200];

	if (!plan->number)
		return "nothing fails";
	snprintf(text, sizeof(text), "%s before provider+%#x, call %u%s: %s",
		 functions[plan->call.function].name, plan->call.site, plan->number,
		 plan->lasting ? " and all after it" : "",
		 plan->error == SHORTENED ? "half done" : strerror(plan->error));
	return text;
}

static int violations, runs, missed, recovered;

static void report(const struct nth_scenario *scenario, struct nth_shared *shared,
		   struct child child[ROLES], const char *what)
{
	violations++;
	printf("FAIL %s: %s\n  %s\n", scenario->name, plan_text(&shared->plan), what);
	for (int role = 0; role < ROLES; role++) {
		if (!child[role].pid)
			continue;
		printf("  %s: status %#x, last %s; first failed: %s %d; %s\n",
		       role ? "partner" : "subject", child[role].status, shared->side[role].doing,
		       shared->side[role].failed, shared->side[role].code, shared->side[role].trouble);
		print_log(child[role].log);
	}
}

/* A name that the provider cannot remove, or cannot look at before that, stays for a reaper. */
static bool may_leave_name(const struct interpose_plan *plan)
{
	return plan->call.function == F_UNLINK || plan->call.function == F_FSTATAT;
}

/* It says all by itself: no memory, or nobody is there (fi_av_insert is a way to ask for that). */
static bool is_plain(int code)
{
	return code == ENOMEM || code == EAGAIN || code == ECONNREFUSED || code == ECONNRESET;
}

static void judge(const struct nth_scenario *scenario, struct nth_shared *shared,
		  struct child child[ROLES])
{
	const struct nth_side *subject = &shared->side[SUBJECT];

	for (int role = 0; role < ROLES; role++) {
		bool names = child[role].pid && had_names(child[role].pid);

		if (!child[role].pid || (role == PARTNER && scenario->partner_dies))
			continue;
		if (child[role].status) {
			report(scenario, shared, child, "a process did not end well");
			return;
		}
		if (names && !may_leave_name(&shared->plan)) {
			report(scenario, shared, child, "a name is left");
			return;
		}
	}
	if (!shared->plan.number)
		return;
	if (!subject->failures)
		missed++;
	else if (!subject->failed[0])
		recovered++;
	if (subject->to_warn && !is_plain(subject->code) && !warned(child[SUBJECT].log))
		report(scenario, shared, child, "no warning");
	if (getenv("TEST_VERBOSE") && !subject->trouble[0])
		printf("%-12s %-60s %s -> %s %s\n", scenario->name, plan_text(&shared->plan),
		       subject->failures ? "failed" : "missed", subject->failed[0] ? subject->failed : "-",
		       subject->failed[0] ? strerror(subject->code) : "");
}

/* Waits for both processes. `gone` tells the other one that a process has ended, also by a signal. */
static void wait_for(struct nth_shared *shared, struct child child[ROLES])
{
	int status;
	pid_t pid;

	while ((pid = wait(&status)) > 0) {
		int role = pid == child[SUBJECT].pid ? SUBJECT : PARTNER;

		child[role].status = status;
		atomic_store(&shared->side[role].gone, true);
	}
}

static void run(const struct nth_scenario *scenario, struct nth_shared *shared,
		const struct interpose_plan *plan)
{
	struct child child[ROLES] = { { 0 } };

	memset(shared->side, 0, sizeof(shared->side));
	atomic_store(&shared->abandoned, 0);
	shared->plan = *plan;
	runs++;
	start(&child[SUBJECT], scenario, shared, SUBJECT);
	if (!scenario->alone)
		start(&child[PARTNER], scenario, shared, PARTNER);
	wait_for(shared, child);
	judge(scenario, shared, child);
	for (int role = 0; role < ROLES; role++)
		if (child[role].pid)
			close(child[role].log);
}

/* ---- all runs of a scenario ------------------------------------------------------------------ */

static struct interpose_call *calls;
static uint32_t call_count;

static bool same(const struct interpose_call *a, const struct interpose_call *b)
{
	return a->function == b->function && a->site == b->site;
}

/* All errnos at a site's first call, one at others; with AddressSanitizer one at each. */
#if defined(__SANITIZE_THREAD__)
#define SLOW 2
#elif defined(__SANITIZE_ADDRESS__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOW 2
#elif __has_feature(address_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

/* A call that is interrupted or cut short goes on when it is tried again: such an error does not last. */
static bool may_last(int error)
{
	return error != EINTR && error != SHORTENED;
}

static void run_number(const struct nth_scenario *scenario, struct nth_shared *shared, uint32_t at,
		       uint32_t number)
{
	const struct function *function = &functions[calls[at].function];
	const char *site = getenv("TEST_SITE");

	if (site && strtoul(site, NULL, 16) != calls[at].site)
		return;
	for (size_t i = 0; i < (SLOW || number > 1 ? 1 : FUNCTION_ERRORS) && function->errors[i]; i++)
		for (int lasting = 0; lasting < (may_last(function->errors[i]) ? 2 : 1); lasting++)
			run(scenario, shared,
			    &(struct interpose_plan){ .call = calls[at],
						      .number = number,
						      .error = function->errors[i],
						      .lasting = lasting });
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void run_scenario(const struct nth_scenario *scenario, struct nth_shared *shared)
{
	static const struct interpose_plan none;
	unsigned int sites = 0;
	double begun = now();

	runs = missed = recovered = 0;
	run(scenario, shared, &none);
	call_count = shared->call_count;
	memcpy(calls, shared->log, call_count * sizeof(*calls));
	for (uint32_t i = scenario->later ? shared->set_up : 0; i < call_count; i++) {
		uint32_t number = 1, all;

		for (uint32_t j = 0; j < i; j++)
			number += same(&calls[i], &calls[j]);
		all = number;
		for (uint32_t j = i + 1; j < call_count; j++)
			all += same(&calls[i], &calls[j]);
		sites += number == 1;
		if (number <= 2 || number == all || getenv("TEST_EVERY"))
			run_number(scenario, shared, i, number);
	}
	if (sites < 15 || missed > runs / 2) {
		violations++;
		printf("FAIL %s: too few of the calls are seen\n", scenario->name);
	}
	printf("%-24s %5u calls from %3u sites, %5d runs, %4d recovered, %4d not reached, %.1f s\n",
	       scenario->name, call_count, sites, runs, recovered, missed, now() - begun);
	fflush(stdout);
}

int main(void)
{
	const char *only = getenv("TEST_ONLY");
	const char *dir = getenv("FI_PROVIDER_PATH");
	struct nth_shared *shared;
	struct fi_info *info;
	char path[4096];

	snprintf(path, sizeof(path), "%s/libshmcma-fi.so",
		 dir ? dir : "/usr/lib/x86_64-linux-gnu/libfabric");
	if (SLOW) {
		printf("SKIP: not with a sanitizer\n"); /* each process would take a second */
		return 77;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!interpose_install(path)) {
		printf("SKIP: no calls of %s can be made to fail here\n", path);
		return getenv("SHMCMA_NO_SKIP") ? 1 : 77;
	}
	/* its start takes a tenth of a second and needs no provider */
	setenv("FI_LOG_LEVEL", "warn", 1);
	setenv("FI_LOG_PROV", "shmcma", 1);
	setenv("FI_PROVIDER", "shmcma", 1);
	setenv("FI_PROVIDER_PATH", "/nonexistent", 1);
	/* the thread looks for leftovers twice a second: whether it does so during a run depends on other load */
	setenv("FI_SHMCMA_SCAN", "no", 1);
	(void)fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info);
	provider_ini = (struct fi_provider * (*)(void)) dlsym(dlopen(path, RTLD_NOW), "fi_prov_ini");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	calls = malloc(sizeof(shared->log));
	if (shared == MAP_FAILED || !calls || !provider_ini)
		return 1;
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!only || strstr(scenarios[i].name, only))
			run_scenario(&scenarios[i], shared);
	printf("%d violations\n", violations);
	return violations != 0;
}
