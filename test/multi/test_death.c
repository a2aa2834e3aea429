/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_death: rank 1 is killed while rank 0 has something of every kind under way with it; rank 2 lives on.
 *
 * Each operation that was under way completes once: with FI_ECONNRESET and nothing else, or well if the peer had done
 * its part before. Messages that the peer had sent completely are received. A later operation is refused at once. Then
 * rank 0 talks with rank 2, with as much data as its whole pool of bounce buffers, and with a process that comes after
 * the dead one under a new address.
 *
 * Rank 1 is stopped first (by itself, at a place that the case chooses), so that the operations under way do not
 * depend on luck; then rank 0 kills it.
 */
#define _GNU_SOURCE 1
#include "rma.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <rdma/fi_trigger.h>

#define LARGE ((size_t)1 << 20)
#define SOME 6	      /* operations of a kind */
#define POOL_MSGS 300 /* of 4 KiB: several pools of bounce buffers */

enum { VICTIM = 1, OTHER = 2, RANKS = 4 };
/* flags */
enum { READY, OVER, SECOND, RELEASE, TAKEN };
/* tags */
enum { TAG_TALK = 100, TAG_EAGER, TAG_LARGE, TAG_NEVER, TAG_POOL, TAG_ANY, TAG_MULTI };

struct mode {
	const char *env; /* NAME=value, or NULL */
	bool automatic;
};

/* Rank 0, or the victim, with the objects of the operations between them. */
struct scene {
	struct mt_ep ep;
	fi_addr_t victim, other;
	struct rma_place place; /* of the victim's memory */
	uint8_t *mine, *theirs; /* LARGE bytes each; theirs: the victim registers it */
};

static _Atomic uint64_t *place_key, *place_addr;
static uint8_t *far_memory;

/* ---- the victim ------------------------------------------------------------------------------ */

/* Stopped here until it is killed. */
static void stop_here(void)
{
	mt_expect_death(mt_rank);
	atomic_store(mt_flag(READY), 1);
	for (;;)
		raise(SIGSTOP);
}

/*
 * Kill it. When the kernel was done with it: a pidfd says so when the last of its threads has given back
 * memory and descriptors, which is some time after the first of them is seen as a zombie in /proc.
 */
static double kill_victim(void)
{
	pid_t pid = mt_pid(VICTIM);
	struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

	mt_require(end.fd >= 0, "pidfd_open: %s", strerror(errno));
	mt_doing("killing the victim");
	kill(pid, SIGKILL);
	mt_require(poll(&end, 1, -1) == 1, "poll: %s", strerror(errno));
	close(end.fd);
	return mt_now();
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static void talk(struct mt_ep *ep, fi_addr_t peer)
{
	struct mt_op send = { 0 }, recv = { 0 };
	uint64_t out = 1, in = 0;

	mt_trecv(ep, &recv, &in, sizeof(in), peer, TAG_TALK);
	mt_tsend(ep, &send, &out, sizeof(out), peer, TAG_TALK);
	mt_wait(ep, &send);
	mt_wait(ep, &recv);
}

static void await_reset(struct mt_ep *ep, struct mt_op *op, const char *what)
{
	mt_doing("waiting for the end of %s", what);
	mt_wait_any(ep, op);
	mt_require(op->err == FI_ECONNRESET, "%s: %s", what, op->err ? fi_strerror(op->err) : "success");
}

/* Once it is known, everything is refused at once. */
static void refused(const struct scene *s, struct mt_ep *ep, fi_addr_t victim)
{
	uint8_t word[8] = { 0 };
	struct iovec iov = { word, sizeof(word) };
	struct rma_request request = {
		.peer = victim,
		.local_count = 1,
		.remote_count = 1,
		.local = { iov },
		.remote = { { .addr = s->place.addr, .len = sizeof(word), .key = s->place.key } },
	};
	struct mt_message m = {
		.tagged = true, .iov = &iov, .pieces = 1, .peer = victim, .tag = TAG_NEVER
	};
	struct mt_op op = { 0 };

	mt_doing("posting to a dead peer");
	for (int plain = 0; plain < 2; plain++) {
		m.tagged = !plain;
		for (int call = MT_SEND; call <= MT_INJECTDATA; call++) {
			m.call = (enum mt_call)call;
			mt_require(mt_try_send(ep, &op, &m) == -FI_ECONNRESET, "send %d is taken",
				   call);
		}
		m.call = MT_SEND;
		mt_require(mt_try_recv(ep, &op, &m) == -FI_ECONNRESET, "a receive is taken");
	}
	for (int write = 0; write < 2; write++) {
		request.write = write;
		mt_require(rma_try(ep, &op, &request) == -FI_ECONNRESET, "an access is taken");
	}
	mt_require(fi_atomic(ep->ep, word, 1, NULL, victim, s->place.addr, s->place.key, FI_UINT64,
			     FI_SUM, &op) == -FI_ECONNRESET,
		   "an atomic is taken");
}

/*
 * Of an endpoint that is connected to the victim, and makes no call until another of this process has found the victim
 * dead.
 */
static struct mt_ep second;
static fi_addr_t second_victim;

static void unpolled_begin(struct scene *s)
{
	const struct mt_open open = { .caps = FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_TRIGGER };
	struct mt_op op = { 0 };

	(void)s;
	mt_open(&second, &open);
	second_victim = mt_lookup(&second, VICTIM);
	mt_tsend(&second, &op, "connect", 8, second_victim, TAG_NEVER);
	mt_wait(&second, &op);
}

static void sizes_refused(void)
{
	static const size_t sizes[] = { 0, 8, 200, 870, 3000, 20000, 32768, 100000, LARGE };
	struct iovec iov = { far_memory, 0 };
	struct mt_message m = { .tagged = true, .iov = &iov, .pieces = 1, .peer = second_victim, .tag = TAG_NEVER };
	struct mt_op op = { 0 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		iov.iov_len = sizes[i];
		mt_require(mt_try_send(&second, &op, &m) == -FI_ECONNRESET, "a send of %zu bytes is taken", sizes[i]);
	}
}

static void unpolled_known(struct scene *s)
{
	mt_doing("posting to a dead peer by an endpoint that has not been polled");
	sizes_refused();
	refused(s, &second, second_victim);
	mt_close(&second);
}

/* Several pools of bounce buffers, to one that receives them late. */
static void pool_is_whole(struct scene *s)
{
	static uint8_t buf[4096];
	struct mt_op op = { 0 };

	mt_doing("sending to the other");
	for (int i = 0; i < POOL_MSGS; i++) {
		pattern_fill(buf, 0, sizeof(buf), (uint64_t)i);
		mt_tsend(&s->ep, &op, buf, sizeof(buf), s->other, TAG_POOL);
		mt_wait(&s->ep, &op);
	}
}

static void take_pool(struct mt_ep *ep, fi_addr_t from)
{
	static uint8_t buf[4096];
	struct mt_op op = { 0 };

	for (int i = 0; i < POOL_MSGS; i++) {
		mt_doing("receiving number %d of a pool", i);
		mt_trecv(ep, &op, buf, sizeof(buf), from, TAG_POOL);
		mt_wait(ep, &op);
		mt_require(op.len == sizeof(buf) && pattern_differs(buf, 0, sizeof(buf), (uint64_t)i) < 0,
			   "message %d is wrong", i);
	}
}

/* ---- the cases ------------------------------------------------------------------------------- */

struct death {
	struct mode mode;
	bool away;			    /* rank 0 does not poll while the victim is at work */
	void (*begin)(struct scene *s);	    /* rank 0: before the victim stops */
	void (*victim)(struct scene *s);    /* until it stops */
	void (*under_way)(struct scene *s); /* rank 0: once it is stopped */
	void (*after)(struct scene *s);	    /* rank 0: once it is killed */
	void (*known)(struct scene *s);	    /* rank 0: once the death is known */
};

static struct mt_op ops[SOME], more[SOME];

/* Sends of all ways: in the record, in bounce buffers, in our memory; nobody has received them. */
static void sends_under_way(struct scene *s)
{
	static const size_t sizes[SOME] = { 8, 200, 4000, 30000, 40000, LARGE };
	struct iovec iov = { s->mine, 0 };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = s->victim, .tag = TAG_NEVER
	};

	for (int i = 0; i < SOME; i++) {
		ssize_t rc;

		iov.iov_len = sizes[i];
		memset(&ops[i], 0, sizeof(ops[i]));
		ops[i].pending = true;
		msg.context = &ops[i];
		rc = fi_tsendmsg(s->ep.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
		mt_require(!rc, "send %d: %s", i, fi_strerror((int)-rc));
	}
	mt_poll_for(&s->ep, 0.01);
	for (int i = 0; i < SOME; i++)
		mt_require(!ops[i].done, "send %d is complete though nobody received it", i);
}

static void sends_after(struct scene *s)
{
	for (int i = 0; i < SOME; i++)
		await_reset(&s->ep, &ops[i], "a send");
}

/* Directed receives that nothing has come for, and one that anybody may match. */
static uint64_t any_word;
static struct mt_op any_op;

static void receives_under_way(struct scene *s)
{
	struct iovec iov = { s->mine, 4096 };
	struct mt_message m = { .iov = &iov, .pieces = 1, .peer = s->victim, .tag = TAG_NEVER };

	for (int i = 0; i < SOME; i++) {
		m.tagged = i % 2;
		m.ignore = i % 3 ? 0 : 0xff;
		mt_post_recv(&s->ep, &ops[i], &m);
	}
	mt_trecv(&s->ep, &any_op, &any_word, sizeof(any_word), FI_ADDR_UNSPEC, TAG_ANY);
}

static void receives_after(struct scene *s)
{
	for (int i = 0; i < SOME; i++)
		await_reset(&s->ep, &ops[i], "a directed receive");
	mt_doing("receiving from anybody");
	mt_require(!any_op.done, "a receive from anybody has ended");
	atomic_store(mt_flag(RELEASE), 1); /* the other one sends to it */
	mt_wait(&s->ep, &any_op);
	mt_require(any_op.source == s->other, "another source");
}

/* The victim has sent: complete messages are received, also after its death; those that need its memory are not. */
static void victim_sends(struct scene *s)
{
	static const size_t sizes[SOME] = { 8, 200, 4000, 30000, 40000, LARGE };
	fi_addr_t to = mt_lookup(&s->ep, 0);

	for (int i = 0; i < SOME; i++) {
		pattern_fill(s->mine, 0, LARGE, 7);
		mt_tsend(&s->ep, &ops[i], s->mine, sizes[i], to, (uint64_t)(TAG_EAGER * 100 + i));
		if (sizes[i] <= 30000)
			mt_wait(&s->ep, &ops[i]);
	}
	mt_poll_for(&s->ep, 0.01);
}

static void received_after(struct scene *s)
{
	static const size_t sizes[SOME] = { 8, 200, 4000, 30000, 40000, LARGE };

	for (int i = 0; i < SOME; i++) {
		struct mt_op op = { 0 };

		mt_doing("receiving message %d of a dead peer", i);
		memset(s->mine, 0, LARGE);
		mt_trecv(&s->ep, &op, s->mine, LARGE, s->victim, (uint64_t)(TAG_EAGER * 100 + i));
		if (sizes[i] > 30000) {
			await_reset(&s->ep, &op, "a receive of what has gone with its sender");
			continue;
		}
		mt_wait(&s->ep, &op);
		mt_require(op.len == sizes[i] && pattern_differs(s->mine, 0, sizes[i], 7) < 0,
			   "it is wrong");
	}
}

/*
 * An access to the victim's memory finds its death, while more of its messages are unread than one poll takes:
 * an operation that is posted after that error is refused all the same, and the messages are received.
 */
#define UNREAD 100

static void victim_writes(struct scene *s)
{
	fi_addr_t to = mt_lookup(&s->ep, 0);
	struct mt_op op = { 0 };

	for (uint64_t i = 0; i < UNREAD; i++) {
		mt_tsend(&s->ep, &op, &i, sizeof(i), to, TAG_EAGER);
		mt_wait(&s->ep, &op);
	}
}

static void unread_after(struct scene *s)
{
	struct rma_request request = {
		.peer = s->victim,
		.local_count = 1,
		.remote_count = 1,
		.local = { { s->mine, 8 } },
		.remote = { { .addr = s->place.addr, .len = 8, .key = s->place.key } },
	};
	struct mt_op op = { 0 };
	ssize_t rc;

	mt_doing("reading memory of a dead peer");
	/* if the thread has seen the death first, the endpoint reads the messages before it refuses */
	while ((rc = rma_try(&s->ep, &op, &request)) == -FI_EAGAIN)
		mt_poll(&s->ep);
	mt_require(!rc || rc == -FI_ECONNRESET, "a read: %s", fi_strerror((int)-rc));
	if (!rc)
		await_reset(&s->ep, &op, "a read");
	refused(s, &s->ep, s->victim);
	for (uint64_t i = 0; i < UNREAD; i++) {
		uint64_t word = 0;

		mt_doing("receiving message %d of a dead peer", (int)i);
		mt_trecv(&s->ep, &op, &word, sizeof(word), s->victim, TAG_EAGER);
		mt_wait(&s->ep, &op);
		mt_require(word == i, "it is wrong");
	}
}

/* Large messages in the middle: some of it has been moved, either way, when the sender or receiver dies. */
static void large_begin(struct scene *s)
{
	for (int i = 0; i < SOME; i++)
		mt_trecv(&s->ep, &ops[i], s->mine, LARGE, s->victim, TAG_LARGE);
}

static void victim_large(struct scene *s)
{
	fi_addr_t to = mt_lookup(&s->ep, 0);

	for (int i = 0; i < SOME; i++) {
		mt_tsend(&s->ep, &ops[i], s->mine, LARGE, to, TAG_LARGE);
		mt_trecv(&s->ep, &more[i], s->theirs, LARGE, to, TAG_LARGE);
	}
	for (int i = 0; i < 5; i++)
		mt_progress(&s->ep);
}

static void large_under_way(struct scene *s)
{
	for (int i = 0; i < SOME; i++)
		mt_tsend(&s->ep, &more[i], s->theirs, LARGE, s->victim, TAG_LARGE);
	mt_poll_for(&s->ep, 0.02);
}

/* Those that the victim had done its part of are well. */
static void large_after(struct scene *s)
{
	for (int i = 0; i < SOME; i++) {
		struct mt_op *both[2] = { &ops[i], &more[i] };

		for (int n = 0; n < 2; n++) {
			mt_doing("waiting for large message %d", i);
			mt_wait_any(&s->ep, both[n]);
			mt_require(!both[n]->err || both[n]->err == FI_ECONNRESET, "it ends with: %s",
				   fi_strerror(both[n]->err));
		}
	}
	mt_require(more[SOME - 1].err, "a send to a stopped process is complete");
}

/* A multi-receive buffer that only the victim may write to, and has written to. */
static void multi_begin(struct scene *s)
{
	struct iovec iov = { s->mine, LARGE };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = s->victim, .context = &ops[0] };

	memset(&ops[0], 0, sizeof(ops[0]));
	ops[0].pending = ops[0].multi = true;
	mt_must(fi_recvmsg(s->ep.ep, &msg, FI_MULTI_RECV));
}

static void victim_multi(struct scene *s)
{
	struct iovec iov = { s->mine, 40000 };
	struct mt_message m = { .iov = &iov, .pieces = 1, .peer = mt_lookup(&s->ep, 0) };
	struct mt_op op = { 0 };

	iov.iov_len = 100;
	mt_post_send(&s->ep, &op, &m);
	mt_wait(&s->ep, &op);
}

static void multi_after(struct scene *s)
{
	mt_doing("waiting for the multi-receive buffer");
	mt_wait_any(&s->ep, &ops[0]);
	mt_require(ops[0].arrived == 1, "%u messages, not the one that was sent", ops[0].arrived);
	mt_require(ops[0].err == FI_ECONNRESET, "the buffer ends with %s", fi_strerror(ops[0].err));
}

/* Reads, writes and atomics that the victim is to do its part of. */
static uint64_t results[SOME];

static void rma_under_way(struct scene *s)
{
	static const uint64_t one = 1;

	for (int i = 0; i < SOME; i++) {
		rma_atomic(&s->ep, &more[i], FI_SUM, &one, i % 2 ? &results[i] : NULL, s->victim,
			   &s->place, 0);
		rma_move(&s->ep, &ops[i], i % 2, s->mine, i < 2 ? 8 : LARGE, s->victim, &s->place, 0);
	}
	mt_poll_for(&s->ep, 0.01);
	for (int i = 0; i < SOME; i++)
		mt_require(!more[i].done, "an atomic is done by a stopped process");
}

/* Direct ones are over before it dies. */
static void rma_after(struct scene *s)
{
	for (int i = 0; i < SOME; i++) {
		await_reset(&s->ep, &more[i], "an atomic");
		mt_doing("waiting for access %d", i);
		mt_wait_any(&s->ep, &ops[i]);
		mt_require(!ops[i].err || ops[i].err == FI_ECONNRESET, "it ends with: %s",
			   fi_strerror(ops[i].err));
	}
}

/* The victim accesses our memory; we close the registration: nobody hangs. */
static struct fid_mr *our_mr;

static void hazard_begin(struct scene *s)
{
	struct rma_place place;

	our_mr = rma_register(&s->ep, s->mine, LARGE, FI_REMOTE_READ | FI_REMOTE_WRITE, &place);
	atomic_store(place_key + 1, place.key);
	atomic_store(place_addr + 1, place.addr);
	atomic_store(mt_flag(SECOND), 1);
}

static void victim_hazard(struct scene *s)
{
	fi_addr_t to = mt_lookup(&s->ep, 0);
	struct rma_place place;

	mt_flag_wait(&s->ep, SECOND, 1);
	place.key = atomic_load(place_key + 1);
	place.addr = atomic_load(place_addr + 1);
	for (int i = 0; i < SOME; i++)
		rma_move(&s->ep, &ops[i], i % 2, s->theirs, LARGE, to, &place, 0);
	for (int i = 0; i < 3; i++)
		mt_progress(&s->ep);
}

static void hazard_after(struct scene *s)
{
	mt_doing("closing memory that a dead peer may have been using");
	rma_unregister(&s->ep, our_mr);
}

/* Deferred work: some of it is out when the victim dies, some goes out after that. */
static struct fid_cntr *trigger, *finished;

static void defer(struct scene *s, int i, size_t threshold)
{
	struct iovec iov = { s->mine, i % 3 == 2 ? 8 : LARGE };
	struct fi_rma_iov remote = { .addr = s->place.addr, .len = 8, .key = s->place.key };
	struct fi_op_tagged tagged = {
		.ep = s->ep.ep,
		.msg = { .msg_iov = &iov,
			 .iov_count = 1,
			 .addr = s->victim,
			 .tag = TAG_NEVER,
			 .context = &ops[i] },
		.flags = FI_COMPLETION,
	};
	struct fi_ioc ioc = { s->mine, 1 };
	struct fi_rma_ioc far_ioc = { .addr = remote.addr, .count = 1, .key = remote.key };
	struct fi_op_atomic atomic = {
		.ep = s->ep.ep,
		.msg = { .msg_iov = &ioc,
			 .iov_count = 1,
			 .addr = s->victim,
			 .rma_iov = &far_ioc,
			 .rma_iov_count = 1,
			 .datatype = FI_UINT64,
			 .op = FI_SUM,
			 .context = &ops[i] },
		.flags = FI_COMPLETION | FI_DELIVERY_COMPLETE,
	};
	static const enum fi_op_type kinds[3] = { FI_OP_TSEND, FI_OP_TRECV, FI_OP_ATOMIC };
	static struct fi_deferred_work work[SOME];

	memset(&ops[i], 0, sizeof(ops[i]));
	ops[i].pending = true;
	work[i] = (struct fi_deferred_work){
		.threshold = threshold,
		.triggering_cntr = trigger,
		.completion_cntr = finished,
		.op_type = kinds[i % 3],
	};
	if (i % 3 == 2)
		work[i].op.atomic = &atomic;
	else
		work[i].op.tagged = &tagged;
	mt_must(fi_control(&s->ep.domain->fid, FI_QUEUE_WORK, &work[i]));
}

static void deferred_under_way(struct scene *s)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };

	mt_must(fi_cntr_open(s->ep.domain, &attr, &trigger, NULL));
	mt_must(fi_cntr_open(s->ep.domain, &attr, &finished, NULL));
	for (int i = 0; i < SOME; i++)
		defer(s, i, i < SOME / 2 ? 1 : 2);
	mt_must(fi_cntr_add(trigger, 1));
	mt_poll_for(&s->ep, 0.01);
	for (int i = 0; i < SOME; i++)
		mt_require(!ops[i].done, "work %d is complete", i);
}

static void deferred_after(struct scene *s)
{
	for (int i = 0; i < SOME; i++) {
		if (i == SOME / 2)
			mt_must(fi_cntr_add(trigger, 1));
		await_reset(&s->ep, &ops[i], "deferred work");
		mt_require(fi_cntr_readerr(finished) >= (uint64_t)i + 1, "it is not counted");
	}
	mt_require(fi_cntr_readerr(finished) == SOME, "%d errors are counted as %d", SOME,
		   (int)fi_cntr_readerr(finished));
	mt_require(fi_cntr_read(finished) == 0, "a success is counted");
	mt_must(fi_close(&trigger->fid));
	mt_must(fi_close(&finished->fid));
}

/* It has never looked at us: connected, not accepted; and it had just said hello, not been accepted. */
static void mute_under_way(struct scene *s)
{
	sends_under_way(s);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void scene_open(struct scene *s, const struct death *death)
{
	struct mt_open open = { .caps = FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_TRIGGER,
				.automatic = death->mode.automatic };

	if (death->mode.env)
		putenv((char *)death->mode.env);
	s->mine = malloc(LARGE);
	s->theirs = far_memory;
	mt_require(s->mine, "no memory");
	memset(s->mine, 1, LARGE);
	mt_open(&s->ep, &open);
	mt_publish(&s->ep, mt_rank);
}

static void victim_rank(const struct death *death)
{
	struct rma_place place;
	struct scene s;

	scene_open(&s, death);
	rma_register(&s.ep, s.theirs, LARGE, FI_REMOTE_READ | FI_REMOTE_WRITE, &place);
	atomic_store(place_key, place.key);
	atomic_store(place_addr, place.addr);
	if (death->under_way != mute_under_way) {
		talk(&s.ep, mt_lookup(&s.ep, 0));
		mt_flag_wait(&s.ep, SECOND, 1);
	}
	if (death->victim)
		death->victim(&s);
	stop_here();
}

static void survivor_rank(const struct death *death)
{
	double begin, seen;
	struct scene s;

	scene_open(&s, death);
	s.victim = mt_lookup(&s.ep, VICTIM);
	s.other = mt_lookup(&s.ep, OTHER);
	if (death->under_way != mute_under_way)
		talk(&s.ep, s.victim);
	if (death->begin)
		death->begin(&s);
	atomic_store(mt_flag(SECOND), 1);
	mt_flag_wait(death->away ? NULL : &s.ep, READY, 1);
	mt_await_stop(VICTIM);
	s.place.key = atomic_load(place_key);
	s.place.addr = atomic_load(place_addr);
	if (death->under_way)
		death->under_way(&s);
	begin = kill_victim();
	if (death->after)
		death->after(&s);
	mt_doing("waiting until the death is known");
	for (ssize_t rc = 0; rc != -FI_ECONNRESET;) {
		struct iovec iov = { s.mine, 8 };
		struct mt_message m = { .tagged = true,
					.iov = &iov,
					.pieces = 1,
					.peer = s.victim,
					.tag = TAG_NEVER,
					.call = MT_INJECT };
		struct mt_op op = { 0 };

		rc = mt_try_send(&s.ep, &op, &m);
		mt_require(!rc || rc == -FI_EAGAIN || rc == -FI_ECONNRESET, "a send: %s",
			   fi_strerror((int)-rc));
		mt_poll(&s.ep);
	}
	seen = mt_now();
	fprintf(stderr, "death: known after %.3f ms\n", (seen - begin) * 1e3);
	if (death->known)
		death->known(&s);
	refused(&s, &s.ep, s.victim);
	atomic_store(mt_flag(RELEASE), 1);
	pool_is_whole(&s);
	mt_doing("talking with the one that came after");
	talk(&s.ep, mt_lookup(&s.ep, RANKS - 1));
	mt_doing("waiting until the other has sent what it has to send");
	mt_flag_wait(&s.ep, TAKEN, 1);
	atomic_store(mt_flag(OVER), 1);
	mt_close(&s.ep);
	free(s.mine);
}

/* Rank 2 lives on, and sends and receives when rank 0 is ready for it. */
static void other_rank(const struct death *death)
{
	struct mt_op op = { 0 };
	uint64_t word = 1;
	struct scene s;
	fi_addr_t to;

	scene_open(&s, death);
	to = mt_lookup(&s.ep, 0);
	mt_flag_wait(&s.ep, RELEASE, 1);
	mt_tsend(&s.ep, &op, &word, sizeof(word), to, TAG_ANY);
	take_pool(&s.ep, to);
	mt_wait(&s.ep, &op);
	atomic_store(mt_flag(TAKEN), 1);
	mt_flag_wait(&s.ep, OVER, 1);
	mt_close(&s.ep);
	free(s.mine);
}

/* The last one comes when the victim is dead. */
static void next_rank(const struct death *death)
{
	struct scene s;

	mt_flag_wait(NULL, RELEASE, 1);
	scene_open(&s, death);
	talk(&s.ep, mt_lookup(&s.ep, 0));
	mt_flag_wait(&s.ep, OVER, 1);
	mt_close(&s.ep);
	free(s.mine);
}

static void death_rank(const void *arg)
{
	static void (*const roles[RANKS])(const struct death *) = { survivor_rank, victim_rank, other_rank,
								    next_rank };

	roles[mt_rank](arg);
}

static bool judge(const struct mt_counters *counters, int ranks, const void *arg)
{
	const struct death *death = arg;

	(void)ranks;
	if (counters[0].deaths == (death->known ? 2U : 1U) && !counters[0].quarantines)
		return true;
	printf("  %llu deaths, %llu quarantines\n", (unsigned long long)counters[0].deaths,
	       (unsigned long long)counters[0].quarantines);
	return false;
}

int main(void)
{
	static const struct {
		const char *name;
		struct death death;
	} scenes[] = {
		{ "sends", { .under_way = sends_under_way, .after = sends_after } },
		{ "mute", { .away = true, .under_way = mute_under_way, .after = sends_after } },
		{ "unpolled", { .begin = unpolled_begin, .known = unpolled_known } },
		{ "receives", { .under_way = receives_under_way, .after = receives_after } },
		{ "received", { .victim = victim_sends, .after = received_after } },
		{ "unread", { .away = true, .victim = victim_writes, .after = unread_after } },
		{ "large",
		  { .begin = large_begin,
		    .victim = victim_large,
		    .under_way = large_under_way,
		    .after = large_after } },
		{ "multi", { .begin = multi_begin, .victim = victim_multi, .after = multi_after } },
		{ "rma", { .under_way = rma_under_way, .after = rma_after } },
		{ "deferred", { .under_way = deferred_under_way, .after = deferred_after } },
		{ "hazard", { .begin = hazard_begin, .victim = victim_hazard, .after = hazard_after } },
	};
	static const struct {
		const char *name;
		struct mode mode;
	} modes[] = {
		{ "", { NULL, false } },
		{ "-bounce", { "FI_SHMCMA_CMA=0", false } },
		{ "-strict", { "FI_SHMCMA_RMA=strict", false } },
		{ "-auto", { NULL, true } },
		{ "-nothread", { "FI_SHMCMA_DAEMON=0", false } },
	};

	mt_init("test_death");
	place_key = rma_shared(4 * sizeof(*place_key));
	place_addr = place_key + 2;
	far_memory = rma_shared(LARGE);
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		for (size_t k = 0; k < sizeof(modes) / sizeof(modes[0]); k++) {
			struct death death = scenes[i].death;
			char name[64];

			death.mode = modes[k].mode;
			snprintf(name, sizeof(name), "%s%s", scenes[i].name, modes[k].name);
			mt_run(&(struct mt_case){ .name = name,
						  .ranks = RANKS,
						  .rank = death_rank,
						  .arg = &death,
						  .judge = judge,
						  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		}
	return mt_end();
}
