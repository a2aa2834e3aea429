/* SPDX-License-Identifier: BSD-2-Clause */
/* test_trigger.c: fi_trigger(3): operations with FI_TRIGGER, and deferred work. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>

static const struct pair_want triggers = { .caps = PAIR_CAPS | FI_TRIGGER };

static struct fid_cntr *open_cntr(struct pair *pair)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntr;

	gives(fi_cntr_open(pair->domain, &attr, &cntr, NULL), 0);
	return cntr;
}

static void close_cntr(struct fid_cntr *cntr)
{
	gives(fi_close(&cntr->fid), 0);
}

/* ---- operations with FI_TRIGGER ---------------------------------------------------------------- */

static struct fi_triggered_context at(struct fid_cntr *cntr, size_t threshold)
{
	return (struct fi_triggered_context){ .event_type = FI_TRIGGER_THRESHOLD,
					      .trigger.threshold = { cntr, threshold } };
}

static ssize_t triggered_send(bool tagged, struct side *side, const void *buf, size_t len,
			      struct fi_triggered_context *context)
{
	struct kind_msg msg = { .iov_count = 1, .addr = side->peer, .context = context };

	msg.iov[0] = (struct iovec){ (void *)(uintptr_t)buf, len };
	return kind_sendmsg(tagged, side, &msg, FI_TRIGGER | FI_COMPLETION);
}

/* Nothing goes before the counter has got there; then the buffer as it is then, with its context. */
static void waits(bool tagged)
{
	struct fi_triggered_context context;
	char out[8] = "before", in[8] = "";
	struct fid_cntr *cntr;
	struct pair pair;
	struct done done;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	context = at(cntr, 3);
	gives(kind_recv(tagged, &pair.b, in, sizeof(in), FI_ADDR_UNSPEC, in), 0);
	gives(triggered_send(tagged, &pair.a, out, sizeof(out), &context), 0);
	pair_quiet(&pair, &pair.b);
	gives(fi_cntr_add(cntr, 2), 0);
	gives(fi_cntr_adderr(cntr, 5), 0); /* errors are no progress */
	pair_quiet(&pair, &pair.b);
	strcpy(out, "after");
	gives(fi_cntr_add(cntr, 1), 0);
	done = pair_done(&pair, &pair.b);
	gives(done.entry.len, 8);
	must(!strcmp(in, "after"));
	must(pair_done(&pair, &pair.a).entry.op_context == &context);
	gives(fi_cntr_read(cntr), 3);
	close_cntr(cntr);
	pair_close(&pair);
}

static void plain_waits(void)
{
	waits(false);
}

static void tagged_waits(void)
{
	waits(true);
}

/* By threshold, then in the order of submission, even if the counter gets to all of them at once. */
static void order(void)
{
	static const size_t thresholds[] = { 3, 1, 2, 1, 7, 3 };
	static const char expected[] = "bdcaf";
	struct fi_triggered_context contexts[6];
	struct fid_cntr *cntr;
	struct pair pair;
	char in;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	for (int i = 0; i < 6; i++) {
		contexts[i] = at(cntr, thresholds[i]);
		gives(triggered_send(false, &pair.a, &"abcdef"[i], 1, &contexts[i]), 0);
	}
	gives(fi_cntr_set(cntr, 5), 0);
	for (const char *each = expected; *each; each++) {
		gives(fi_recv(pair.b.ep, &in, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		pair_done(&pair, &pair.b);
		gives(in, *each);
		pair_done(&pair, &pair.a);
	}
	pair_quiet(&pair, &pair.a);
	gives(fi_close(&cntr->fid), -FI_EBUSY); /* one waits yet */
	gives(fi_cntr_add(cntr, 2), 0);
	pair_done(&pair, &pair.a);
	close_cntr(cntr);
	pair_close(&pair);
}

static void due_at_once(void)
{
	struct fi_triggered_context context;
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	gives(fi_cntr_set(cntr, 5), 0);
	context = at(cntr, 5);
	gives(triggered_send(false, &pair.a, "x", 1, &context), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == &context);
	close_cntr(cntr);
	pair_close(&pair);
}

/* The payload of an injected message is taken in the call. */
static void injected(void)
{
	struct kind_msg msg = { .iov_count = 2 };
	struct fi_triggered_context context;
	static char large[8192];
	char out[2][4] = { "abc", "def" }, in[8] = "";
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	context = at(cntr, 1);
	msg.iov[0] = (struct iovec){ out[0], 3 };
	msg.iov[1] = (struct iovec){ out[1], 4 };
	msg.addr = pair.a.peer;
	msg.context = &context;
	gives(kind_sendmsg(false, &pair.a, &msg, FI_TRIGGER | FI_INJECT), 0);
	memset(out, 'x', sizeof(out));
	msg.iov[0] = (struct iovec){ large, sizeof(large) };
	gives(kind_sendmsg(false, &pair.a, &msg, FI_TRIGGER | FI_INJECT), -FI_EMSGSIZE);
	gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_cntr_add(cntr, 1), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 7);
	must(!strcmp(in, "abcdef"));
	close_cntr(cntr);
	pair_close(&pair);
}

/* A receive that is posted late does not get what another has got. */
static void receives(void)
{
	struct fi_triggered_context context;
	struct kind_msg msg = { .iov_count = 1, .addr = FI_ADDR_UNSPEC };
	char late[8] = "", now[8] = "";
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	context = at(cntr, 1);
	msg.iov[0] = (struct iovec){ late, sizeof(late) };
	msg.context = &context;
	gives(kind_recvmsg(true, &pair.b, &msg, FI_TRIGGER), 0);
	gives(kind_recv(true, &pair.b, now, sizeof(now), FI_ADDR_UNSPEC, now), 0);
	gives(kind_inject(true, &pair.a, "first", 6, pair.a.peer), 0);
	gives(kind_inject(true, &pair.a, "second", 7, pair.a.peer), 0);
	must(pair_done(&pair, &pair.b).entry.op_context == now);
	must(!strcmp(now, "first"));
	pair_quiet(&pair, &pair.b);
	gives(fi_cntr_add(cntr, 1), 0);
	must(pair_done(&pair, &pair.b).entry.op_context == &context);
	must(!strcmp(late, "second"));
	close_cntr(cntr);
	pair_close(&pair);
}

/* An alias with FI_TRIGGER: each of its calls that has a context waits. */
static void alias(void)
{
	struct fi_triggered_context contexts[3];
	char in[8];
	struct fid_cntr *cntr;
	struct fid_ep *alias;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	for (int i = 0; i < 3; i++)
		contexts[i] = at(cntr, 1);
	gives(fi_ep_alias(pair.a.ep, &alias, FI_TRANSMIT | FI_TRIGGER), 0);
	for (int i = 0; i < 4; i++)
		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_send(alias, "send", 5, NULL, pair.a.peer, &contexts[0]), 0);
	gives(fi_senddata(alias, "data", 5, NULL, 9, pair.a.peer, &contexts[1]), 0);
	gives(fi_send(alias, "null", 5, NULL, pair.a.peer, NULL), -FI_EINVAL);
	gives(fi_inject(alias, "inject", 7, pair.a.peer), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 7);
	gives(fi_send(pair.a.ep, "ep", 3, NULL, pair.a.peer, NULL), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 3);
	pair_done(&pair, &pair.a);
	pair_quiet(&pair, &pair.b);
	gives(fi_cntr_add(cntr, 1), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 5);
	gives(pair_done(&pair, &pair.b).entry.data, 9);
	gives(fi_close(&alias->fid), 0);
	close_cntr(cntr);
	pair_close(&pair);
}

/* A shared receive context refuses FI_TRIGGER, whatever its attributes ask for: fi_shmcma(7), Shared contexts. */
static void shared_receives(void)
{
	struct fi_rx_attr attrs[] = { { .caps = 0 },
				      { .caps = FI_TRIGGER },
				      { .caps = FI_MSG | FI_RECV | FI_TRIGGER } };
	struct iovec iov = { NULL, 0 };
	struct fi_triggered_context context;
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &context
	};
	struct fid_cntr *cntr;
	struct fid_ep *srx;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	context = at(cntr, 1);
	for (size_t i = 0; i <= sizeof(attrs) / sizeof(attrs[0]); i++) {
		gives(fi_srx_context(pair.domain, i ? &attrs[i - 1] : NULL, &srx, NULL), 0);
		must(!i || !(attrs[i - 1].caps & FI_TRIGGER));
		gives(fi_recvmsg(srx, &msg, FI_TRIGGER), -FI_EOPNOTSUPP);
		gives(fi_close(&srx->fid), 0);
	}
	close_cntr(cntr);
	pair_close(&pair);
}

static void bad_arguments(void)
{
	struct pair_want without = { .caps = FI_MSG | FI_TAGGED };
	struct fi_triggered_context context;
	struct fid_cntr *cntr, *foreign;
	struct fid_domain *domain;
	struct pair pair;
	fi_addr_t peer;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	gives(fi_domain(pair.fabric, pair.info, &domain, NULL), 0);
	gives(fi_cntr_open(domain, NULL, &foreign, NULL), 0);
	gives(triggered_send(false, &pair.a, "x", 1, NULL), -FI_EINVAL);
	context = at(NULL, 1);
	gives(triggered_send(false, &pair.a, "x", 1, &context), -FI_EINVAL);
	context = at(foreign, 1);
	gives(triggered_send(false, &pair.a, "x", 1, &context), -FI_EINVAL);
	context = at((struct fid_cntr *)pair.a.ep, 1);
	gives(triggered_send(false, &pair.a, "x", 1, &context), -FI_EINVAL);
	context = at(cntr, 1);
	context.event_type = FI_TRIGGER_XPU;
	gives(triggered_send(false, &pair.a, "x", 1, &context), -FI_ENOSYS);
	context = at(cntr, 1);
	peer = pair.a.peer;
	pair.a.peer = 1234;
	gives(triggered_send(false, &pair.a, "x", 1, &context), -FI_EINVAL);
	pair.a.peer = peer;
	gives(fi_cntr_set(cntr, 100), 0);
	pair_quiet(&pair, &pair.a);
	close_cntr(cntr);
	close_cntr(foreign);
	gives(fi_close(&domain->fid), 0);
	pair_close(&pair);

	pair_open_domain(&pair, &without);
	pair.info->caps &= ~FI_TRIGGER;
	pair.info->tx_attr->caps &= ~FI_TRIGGER;
	pair.info->rx_attr->caps &= ~FI_TRIGGER;
	side_open(&pair, &pair.a);
	side_open(&pair, &pair.b);
	pair_introduce(&pair);
	cntr = open_cntr(&pair);
	context = at(cntr, 0);
	gives(triggered_send(false, &pair.a, "x", 1, &context), -FI_EOPNOTSUPP);
	close_cntr(cntr);
	pair_close(&pair);
}

static void cancelled(void)
{
	struct fi_triggered_context contexts[2];
	struct fi_cq_err_entry error;
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	contexts[0] = at(cntr, 1);
	contexts[1] = at(cntr, 1);
	gives(triggered_send(false, &pair.a, "x", 1, &contexts[0]), 0);
	gives(triggered_send(true, &pair.a, "x", 1, &contexts[1]), 0);
	gives(fi_cancel(&pair.b.ep->fid, &contexts[0]), -FI_ENOENT);
	gives(fi_cancel(&pair.a.ep->fid, &contexts[0]), 0);
	gives(fi_cancel(&pair.a.ep->fid, &contexts[0]), -FI_ENOENT);
	error = pair_error(&pair, &pair.a);
	gives(error.err, FI_ECANCELED);
	gives(error.flags, FI_SEND | FI_MSG);
	must(error.op_context == &contexts[0]);
	gives(fi_cntr_add(cntr, 1), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == &contexts[1]);
	pair_quiet(&pair, &pair.a);
	close_cntr(cntr);
	pair_close(&pair);
}

/* A multi-receive buffer is given back. */
static void is_failed_recv(struct pair *pair, uint64_t flags, uint64_t tag, int err)
{
	struct fi_cq_err_entry error = pair_error(pair, &pair->b);

	gives(error.err, err);
	gives(error.flags, flags);
	gives(error.tag, tag);
}

/* Receives that are cancelled, or that cannot be posted when they are due. */
static void failed_receives(void)
{
	struct fi_triggered_context contexts[3];
	char in[3][8];
	struct kind_msg msg = { .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 7 };
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	for (int i = 0; i < 3; i++) {
		contexts[i] = at(cntr, 1);
		msg.iov[0] = (struct iovec){ in[i], sizeof(in[i]) };
		msg.context = &contexts[i];
		msg.addr = i == 2 ? pair.b.peer : FI_ADDR_UNSPEC;
		gives(kind_recvmsg(i == 1, &pair.b, &msg, FI_TRIGGER | (i == 1 ? 0 : FI_MULTI_RECV)), 0);
	}
	gives(fi_cancel(&pair.b.ep->fid, &contexts[0]), 0);
	is_failed_recv(&pair, FI_RECV | FI_MSG | FI_MULTI_RECV, 0, FI_ECANCELED);
	gives(fi_cancel(&pair.b.ep->fid, &contexts[1]), 0);
	is_failed_recv(&pair, FI_RECV | FI_TAGGED, 7, FI_ECANCELED);
	gives(fi_av_remove(pair.b.av, &pair.b.peer, 1, 0), 0);
	gives(fi_cntr_add(cntr, 1), 0);
	is_failed_recv(&pair, FI_RECV | FI_MSG | FI_MULTI_RECV, 0, FI_EINVAL);
	pair_quiet(&pair, &pair.b);
	close_cntr(cntr);
	pair_close(&pair);
}

/* An operation that waits for its trigger goes with its endpoint. */
static void endpoint_closed(void)
{
	struct fi_triggered_context contexts[4];
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	for (size_t i = 0; i < 4; i++) {
		contexts[i] = at(cntr, i + 1);
		gives(triggered_send(false, i % 2 ? &pair.a : &pair.b, "x", 1, &contexts[i]), 0);
	}
	gives(fi_close(&pair.a.ep->fid), 0);
	pair.a.ep = NULL;
	gives(fi_close(&cntr->fid), -FI_EBUSY);
	gives(fi_cntr_set(cntr, 1), 0);
	gives(fi_close(&pair.b.ep->fid), 0);
	pair.b.ep = NULL;
	close_cntr(cntr);
	pair_close(&pair);
}

/* More than there is room for: none is lost, and their order stays. */
static void more_than_room(void)
{
	enum { MESSAGES = SANITIZED ? 6000 : 20000 };
	struct fi_triggered_context *contexts = calloc(MESSAGES, sizeof(*contexts));
	struct fid_cntr *cntr;
	struct pair pair;

	must(contexts);
	pair_open(&pair, &triggers);
	cntr = open_cntr(&pair);
	for (size_t i = 0; i < MESSAGES; i++) {
		uint32_t number = (uint32_t)i;
		struct kind_msg msg = { .iov_count = 1, .context = &contexts[i] };

		contexts[i] = at(cntr, 1);
		msg.addr = pair.a.peer;
		msg.iov[0] = (struct iovec){ &number, sizeof(number) };
		gives(kind_sendmsg(false, &pair.a, &msg, FI_TRIGGER | FI_INJECT), 0);
	}
	gives(fi_cntr_add(cntr, 1), 0);
	for (size_t i = 0; i < MESSAGES; i++) {
		uint32_t number = UINT32_MAX;

		gives(fi_recv(pair.b.ep, &number, sizeof(number), NULL, FI_ADDR_UNSPEC, NULL), 0);
		pair_done(&pair, &pair.b);
		gives(number, i);
		must(pair_done(&pair, &pair.a).entry.op_context == &contexts[i]);
	}
	close_cntr(cntr);
	pair_close(&pair);
	free(contexts);
}

/* ---- while a thread sleeps ---------------------------------------------------------------------- */

static const struct pair_want sleeping = { .caps = PAIR_CAPS | FI_TRIGGER, .wait_obj = FI_WAIT_UNSPEC };

struct sleeper {
	struct fid_cq *cq;
	struct fi_cq_tagged_entry entry;
	atomic_int tid;
	atomic_bool ended;
	ssize_t ret;
	pthread_t thread;
};

static void *sleep_in_read(void *arg)
{
	struct sleeper *sleeper = arg;

	atomic_store(&sleeper->tid, gettid());
	sleeper->ret = fi_cq_sread(sleeper->cq, &sleeper->entry, 1, NULL, -1);
	atomic_store(&sleeper->ended, true);
	return NULL;
}

static void sleeper_start(struct sleeper *sleeper)
{
	gives(pthread_create(&sleeper->thread, NULL, sleep_in_read, sleeper), 0);
	while (!atomic_load(&sleeper->ended) &&
	       (!atomic_load(&sleeper->tid) || !pair_is_asleep(atomic_load(&sleeper->tid))))
		usleep(1000);
}

/* A thread sleeps already when the operation is submitted and the counter rises; no other thread polls. */
static void submitted_beside_a_sleeper(void)
{
	struct fi_triggered_context context;
	struct sleeper sleeper = { .tid = 0 };
	struct fid_cntr *sends;
	struct side third;
	struct pair pair;
	char in[8];

	pair_open(&pair, &sleeping);
	sends = open_cntr(&pair);
	third = pair.b;
	third.ep = pair_open_ep(&pair);
	third.cq = pair_open_cq(&pair);
	pair_bind(third.ep, third.cq, third.av);
	gives(fi_ep_bind(third.ep, &sends->fid, FI_SEND), 0);
	gives(fi_enable(third.ep), 0);
	gives(fi_recv(pair.a.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	while (fi_inject(third.ep, "connects", 8, third.peer)) { /* to a */
		side_progress(&third);
		side_progress(&pair.a);
	}
	pair_done(&pair, &pair.a);
	for (int i = 0; i < 100; i++) { /* a sleeper looks for the answer of its peer */
		side_progress(&pair.a);
		side_progress(&third);
	}
	gives(fi_cntr_read(sends), 1);
	sleeper.cq = third.cq;
	sleeper_start(&sleeper);
	context = at(sends, 2);
	gives(triggered_send(false, &third, "x", 1, &context), 0);
	gives(fi_inject(third.ep, "counts", 6, third.peer), 0);
	gives(pthread_join(sleeper.thread, NULL), 0);
	gives(sleeper.ret, 1);
	must(sleeper.entry.op_context == &context);
	gives(fi_close(&third.ep->fid), 0);
	gives(fi_close(&third.cq->fid), 0);
	close_cntr(sends);
	pair_close(&pair);
}

/* Takes the completions that are there, without the other side's help. Returns their number. */
static size_t drain(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	size_t count = 0;

	while (fi_cq_read(side->cq, &entry, 1) == 1)
		count++;
	return count;
}

/* An operation that is due finds no space. The application is refused nothing, so its wait lasts until there is space. */
static void no_room_beside_a_sleeper(void)
{
	enum { MESSAGES = SANITIZED ? 6000 : 20000 };
	struct fi_triggered_context *contexts = calloc(MESSAGES, sizeof(*contexts));
	struct sleeper sleeper = { .tid = 0 };
	struct fid_cntr *cntr;
	struct pair pair;
	size_t done;
	char in;

	must(contexts);
	pair_open(&pair, &sleeping);
	cntr = open_cntr(&pair);
	gives(fi_recv(pair.b.ep, &in, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	post(&pair, fi_inject(pair.a.ep, "x", 1, pair.a.peer));
	pair_done(&pair, &pair.b);
	for (size_t i = 0; i < MESSAGES; i++) {
		contexts[i] = at(cntr, 1);
		gives(triggered_send(false, &pair.a, "x", 1, &contexts[i]), 0);
	}
	gives(fi_cntr_add(cntr, 1), 0);
	done = 0;
	for (int i = 0; i < 1000; i++)
		done += drain(&pair.a);
	must(done < MESSAGES);
	sleeper.cq = pair.a.cq;
	sleeper_start(&sleeper);
	usleep(50000); /* if it is too short, the test is easier */
	while (!atomic_load(&sleeper.ended))
		side_progress(&pair.b);
	gives(pthread_join(sleeper.thread, NULL), 0);
	gives(sleeper.ret, 1);
	for (done++; done < MESSAGES; done += drain(&pair.a))
		pair_progress(&pair);
	for (size_t i = 0; i < MESSAGES; i++) {
		gives(fi_recv(pair.b.ep, &in, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		pair_done(&pair, &pair.b);
	}
	close_cntr(cntr);
	pair_close(&pair);
	free(contexts);
}

/* A thread of the provider posts them, while the application looks at its own memory. */
__attribute__((no_sanitize_thread)) static char look(const void *where)
{
	return *(const volatile char *)where;
}

/* ---- deferred work --------------------------------------------------------------------------- */

/* Each endpoint counts what it sends and receives, and has a completion queue too. */
struct bench {
	struct pair pair;
	struct fid_cntr *sends, *recvs; /* of both endpoints */
	struct fid_cntr *accesses;	/* likewise by peers, with FI_RMA_EVENT */
	struct fid_cntr *go, *done;
};

static void counted_side(struct bench *bench, struct side *side)
{
	size_t len = sizeof(side->name);

	side->av = pair_open_av(&bench->pair);
	side->cq = pair_open_cq(&bench->pair);
	side->ep = pair_open_ep(&bench->pair);
	pair_bind(side->ep, side->cq, side->av);
	gives(fi_ep_bind(side->ep, &bench->sends->fid, FI_SEND | FI_READ | FI_WRITE), 0);
	gives(fi_ep_bind(side->ep, &bench->recvs->fid, FI_RECV), 0);
	if (bench->pair.want.caps & FI_RMA_EVENT)
		gives(fi_ep_bind(side->ep, &bench->accesses->fid, FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
	gives(fi_enable(side->ep), 0);
	gives(fi_getname(&side->ep->fid, side->name, &len), 0);
}

static void bench_open(struct bench *bench, const struct pair_want *want)
{
	pair_open_domain(&bench->pair, want);
	bench->sends = open_cntr(&bench->pair);
	bench->recvs = open_cntr(&bench->pair);
	bench->accesses = open_cntr(&bench->pair);
	bench->go = open_cntr(&bench->pair);
	bench->done = open_cntr(&bench->pair);
	counted_side(bench, &bench->pair.a);
	counted_side(bench, &bench->pair.b);
	pair_introduce(&bench->pair);
}

static void bench_close(struct bench *bench)
{
	side_close(&bench->pair.a);
	side_close(&bench->pair.b);
	bench->pair.a = bench->pair.b = (struct side){ .ep = NULL };
	close_cntr(bench->sends);
	close_cntr(bench->recvs);
	close_cntr(bench->accesses);
	close_cntr(bench->go);
	close_cntr(bench->done);
	pair_close(&bench->pair);
}

static int queue(struct bench *bench, struct fi_deferred_work *work)
{
	return fi_control(&bench->pair.domain->fid, FI_QUEUE_WORK, work);
}

static int cancel(struct bench *bench, struct fi_deferred_work *work)
{
	return fi_control(&bench->pair.domain->fid, FI_CANCEL_WORK, work);
}

/*
 * A receive and a send from the same structures, one after the other, as what is queued is copied. They
 * complete at the completion counter and nowhere else, unless that is asked for.
 */
static void message_works(bool tagged, uint64_t flags)
{
	char out[8] = "nothing", in[8] = "";
	struct iovec iov = { in, sizeof(in) };
	struct fi_deferred_work work = { .threshold = 2 };
	struct fi_op_msg msg = { .flags = flags };
	struct fi_op_tagged tmsg = { .flags = flags };
	struct bench bench;

	bench_open(&bench, &triggers);
	work.triggering_cntr = bench.go;
	work.completion_cntr = bench.done;
	if (tagged)
		work.op.tagged = &tmsg;
	else
		work.op.msg = &msg;
	tmsg.ep = msg.ep = bench.pair.b.ep;
	msg.msg =
		(struct fi_msg){ .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in };
	tmsg.msg = (struct fi_msg_tagged){
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = in, .tag = 5
	};
	work.op_type = tagged ? FI_OP_TRECV : FI_OP_RECV;
	gives(queue(&bench, &work), 0);
	iov = (struct iovec){ out, sizeof(out) };
	tmsg.ep = msg.ep = bench.pair.a.ep;
	tmsg.msg.addr = msg.msg.addr = bench.pair.a.peer;
	tmsg.msg.context = msg.msg.context = out;
	work.op_type = tagged ? FI_OP_TSEND : FI_OP_SEND;
	gives(queue(&bench, &work), 0);
	memset(&work, 0xee, sizeof(work));
	memset(&msg, 0xee, sizeof(msg));
	memset(&tmsg, 0xee, sizeof(tmsg));
	iov = (struct iovec){ NULL, 0 };

	gives(fi_cntr_add(bench.go, 1), 0);
	pair_quiet(&bench.pair, &bench.pair.a);
	strcpy(out, "message");
	gives(fi_cntr_adderr(bench.go, 1), 0); /* errors count here */
	gives(fi_cntr_wait(bench.done, 2, -1), 0);
	must(!strcmp(in, "message"));
	gives(fi_cntr_read(bench.sends), flags ? 1 : 0);
	gives(fi_cntr_read(bench.recvs), flags ? 1 : 0);
	if (flags) {
		must(pair_done(&bench.pair, &bench.pair.a).entry.op_context == out);
		must(pair_done(&bench.pair, &bench.pair.b).entry.op_context == in);
	}
	pair_quiet(&bench.pair, &bench.pair.a);
	pair_quiet(&bench.pair, &bench.pair.b);
	gives(fi_cntr_read(bench.done), 2);
	bench_close(&bench);
}

static void deferred_messages(void)
{
	message_works(false, 0);
	message_works(true, 0);
	message_works(false, FI_COMPLETION);
	message_works(true, FI_COMPLETION);
}

/* Each peek and each discard counts, found or not; only with FI_COMPLETION, or for an error, the queue tells it. */
static void deferred_peeks(void)
{
	static const struct {
		uint64_t tag, flags;
	} steps[] = { { 1, FI_PEEK },
		      { 1, FI_PEEK | FI_DISCARD },
		      { 2, FI_PEEK | FI_CLAIM },
		      { 2, FI_CLAIM | FI_DISCARD },
		      { 3, FI_PEEK | FI_COMPLETION },
		      { 9, FI_PEEK } };
	struct fi_cq_err_entry error = { 0 };
	struct fi_context2 claims;
	struct bench bench;

	bench_open(&bench, &triggers);
	for (uint64_t tag = 1; tag <= 3; tag++)
		gives(fi_tinject(bench.pair.a.ep, "x", 1, bench.pair.a.peer, tag), 0);
	for (uint64_t i = 0; i < 6; i++) {
		struct fi_op_tagged op = {
			.ep = bench.pair.b.ep,
			.msg = { .addr = FI_ADDR_UNSPEC, .tag = steps[i].tag, .context = &claims },
			.flags = steps[i].flags
		};
		struct fi_deferred_work work = { .triggering_cntr = bench.go,
						 .completion_cntr = bench.done,
						 .op_type = FI_OP_TRECV,
						 .op.tagged = &op };

		gives(queue(&bench, &work), 0);
		gives(fi_cntr_read(bench.done), i < 5 ? i + 1 : 5);
		gives(fi_cntr_readerr(bench.done), i < 5 ? 0 : 1);
		if (steps[i].flags & FI_COMPLETION)
			must(pair_done(&bench.pair, &bench.pair.b).entry.tag == 3);
		else if (i < 5)
			pair_quiet(&bench.pair, &bench.pair.b);
	}
	gives(fi_cq_readerr(bench.pair.b.cq, &error, 0), 1);
	gives(error.err, FI_ENOMSG);
	pair_seen.sent += 3;
	pair_seen.peeks++;
	bench_close(&bench);
}

/* A work that sends `out` to b. */
struct send_work {
	struct iovec iov;
	struct fi_op_msg msg;
	struct fi_deferred_work work;
};

static struct send_work *send_work(struct bench *bench, const void *buf, size_t len, uint64_t threshold)
{
	struct send_work *send = calloc(1, sizeof(*send));

	must(send);
	send->iov = (struct iovec){ (void *)(uintptr_t)buf, len };
	send->msg.ep = bench->pair.a.ep;
	send->msg.msg = (struct fi_msg){ .msg_iov = &send->iov,
					 .iov_count = 1,
					 .addr = bench->pair.a.peer,
					 .context = &send->work.context };
	send->work = (struct fi_deferred_work){ .threshold = threshold,
						.triggering_cntr = bench->go,
						.completion_cntr = bench->done,
						.op_type = FI_OP_SEND,
						.op.msg = &send->msg };
	return send;
}

/* The endpoint's counter, named as the completion counter, counts once. */
static void endpoint_counter(void)
{
	struct send_work *work;
	struct bench bench;

	bench_open(&bench, &triggers);
	work = send_work(&bench, "x", 1, 0);
	work->work.completion_cntr = bench.sends;
	gives(queue(&bench, &work->work), 0);
	gives(fi_cntr_read(bench.sends), 1);
	work->msg.flags = FI_COMPLETION;
	gives(queue(&bench, &work->work), 0);
	gives(fi_cntr_read(bench.sends), 2);
	pair_done(&bench.pair, &bench.pair.a);
	/* with no counter it counts nowhere */
	work->msg.flags = 0;
	work->work.completion_cntr = NULL;
	gives(queue(&bench, &work->work), 0);
	for (int i = 0; i < 3; i++) {
		char in;

		gives(fi_recv(bench.pair.b.ep, &in, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		pair_done(&bench.pair, &bench.pair.b);
	}
	gives(fi_cntr_read(bench.sends), 2);
	pair_quiet(&bench.pair, &bench.pair.a);
	bench_close(&bench);
	free(work);
}

/* Adding to one counter is what the next work waits for. */
static void counter_works(void)
{
	struct fi_op_cntr op = { .value = 5 };
	struct fi_deferred_work work = { .op_type = FI_OP_CNTR_SET, .op.cntr = &op, .threshold = 3 };
	struct fid_cntr *last;
	struct bench bench;

	bench_open(&bench, &triggers);
	last = open_cntr(&bench.pair);
	work.triggering_cntr = bench.go;
	op.cntr = bench.done;
	gives(queue(&bench, &work), 0);
	work.op_type = FI_OP_CNTR_ADD;
	gives(queue(&bench, &work), 0);
	op = (struct fi_op_cntr){ .cntr = last, .value = 7 };
	work.triggering_cntr = bench.done;
	work.threshold = 10;
	gives(queue(&bench, &work), 0);
	gives(fi_cntr_set(bench.done, 1), 0);
	gives(fi_cntr_set(bench.go, 2), 0);
	gives(fi_cntr_read(bench.done), 1);
	gives(fi_cntr_set(bench.go, 4), 0);
	gives(fi_cntr_read(bench.done), 10);
	gives(fi_cntr_read(last), 7);
	work.completion_cntr = bench.go;
	gives(queue(&bench, &work), -FI_EINVAL);
	close_cntr(last);
	bench_close(&bench);
}

/* A message that arrives at b goes on to a from there, though the application only looks at counters. */
static void chain(void)
{
	char first[8] = "message", middle[8] = "", last[8] = "";
	struct send_work *forward;
	struct bench bench;

	bench_open(&bench, &triggers);
	forward = send_work(&bench, middle, sizeof(middle), 1);
	forward->msg.ep = bench.pair.b.ep;
	forward->msg.msg.addr = bench.pair.b.peer;
	forward->work.triggering_cntr = bench.recvs;
	gives(queue(&bench, &forward->work), 0);
	gives(fi_recv(bench.pair.b.ep, middle, sizeof(middle), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_recv(bench.pair.a.ep, last, sizeof(last), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_send(bench.pair.a.ep, first, sizeof(first), NULL, bench.pair.a.peer, NULL), 0);
	gives(fi_cntr_wait(bench.recvs, 2, -1), 0);
	must(!strcmp(last, "message"));
	gives(fi_cntr_wait(bench.done, 1, -1), 0);
	bench_close(&bench);
	free(forward);
}

static void cancel_and_flush(void)
{
	struct fi_deferred_work some = { .threshold = 0 };
	struct send_work *works[4];
	struct bench bench;

	bench_open(&bench, &triggers);
	for (int i = 0; i < 4; i++)
		works[i] = send_work(&bench, "x", 1, 1);
	works[3]->work.triggering_cntr = bench.recvs;
	for (int i = 0; i < 4; i++)
		gives(queue(&bench, &works[i]->work), 0);
	gives(cancel(&bench, &works[1]->work), 0);
	gives(cancel(&bench, &works[1]->work), -FI_ENOENT);
	gives(cancel(&bench, NULL), -FI_EINVAL);
	/* those of one counter, then all */
	some.triggering_cntr = bench.recvs;
	gives(fi_control(&bench.pair.domain->fid, FI_FLUSH_WORK, &some), 0);
	gives(cancel(&bench, &works[3]->work), -FI_ENOENT);
	for (int i = 0; i < 2; i++) { /* the last one of its counter */
		gives(cancel(&bench, &works[2]->work), 0);
		gives(queue(&bench, &works[2]->work), 0);
	}
	gives(queue(&bench, &works[3]->work), 0);
	gives(fi_close(&bench.done->fid), -FI_EBUSY);
	gives(fi_close(&bench.go->fid), -FI_EBUSY);
	gives(fi_control(&bench.pair.domain->fid, FI_FLUSH_WORK, NULL), 0);
	gives(fi_control(&bench.pair.domain->fid, FI_FLUSH_WORK, NULL), 0);
	gives(fi_cntr_set(bench.go, 9), 0);
	pair_quiet(&bench.pair, &bench.pair.b);
	gives(fi_cntr_read(bench.done), 0);
	for (int i = 0; i < 4; i++)
		free(works[i]);
	bench_close(&bench);
}

static void bad_works(void)
{
	struct send_work *work;
	struct bench bench, other;

	bench_open(&bench, &triggers);
	bench_open(&other, &triggers);
	work = send_work(&bench, "x", 1, 1);
	gives(queue(&bench, NULL), -FI_EINVAL);
	gives(queue(&other, &work->work), -FI_EINVAL);
	work->work.triggering_cntr = NULL;
	gives(queue(&bench, &work->work), -FI_EINVAL);
	work->work.triggering_cntr = other.go;
	gives(queue(&bench, &work->work), -FI_EINVAL);
	work->work.triggering_cntr = bench.go;
	work->work.completion_cntr = other.done;
	gives(queue(&bench, &work->work), -FI_EINVAL);
	work->work.completion_cntr = bench.done;
	work->work.op_type = FI_OP_CNTR_ADD + 1;
	gives(queue(&bench, &work->work), -FI_ENOSYS);
	work->work.op_type = FI_OP_SEND;
	work->msg.msg.addr = 1234;
	gives(queue(&bench, &work->work), -FI_EINVAL);
	work->msg.msg.addr = bench.pair.a.peer;
	work->msg.flags = FI_PEEK;
	gives(queue(&bench, &work->work), -FI_EBADFLAGS);
	work->msg.flags = 0;
	work->msg.ep = NULL;
	gives(queue(&bench, &work->work), -FI_EINVAL);
	work->work.op.msg = NULL;
	gives(queue(&bench, &work->work), -FI_EINVAL);
	gives(fi_cntr_set(bench.go, 9), 0);
	pair_quiet(&bench.pair, &bench.pair.a);
	free(work);
	bench_close(&other);
	bench_close(&bench);
}

/* Posted and then failed, or not to be posted any more: an error at the counter and in the queue. */
static void failed_works(void)
{
	static char large[1 << 20];
	struct send_work *pending, *late;
	struct fi_cq_err_entry error;
	struct bench bench;
	fi_addr_t peer;

	bench_open(&bench, &triggers);
	pending = send_work(&bench, large, sizeof(large), 1);
	late = send_work(&bench, "x", 1, 2);
	gives(queue(&bench, &pending->work), 0);
	gives(queue(&bench, &late->work), 0);
	gives(fi_cntr_add(bench.go, 1), 0);
	pair_quiet(&bench.pair, &bench.pair.b);
	gives(fi_close(&bench.pair.b.ep->fid), 0);
	bench.pair.b.ep = NULL;
	gives(fi_cntr_wait(bench.done, 1, -1), -FI_EAVAIL);
	gives(fi_cntr_readerr(bench.done), 1);
	error = pair_error(&bench.pair, &bench.pair.a);
	gives(error.err, FI_ECONNRESET);
	must(error.op_context == &pending->work.context);
	peer = bench.pair.a.peer;
	gives(fi_av_remove(bench.pair.a.av, &peer, 1, 0), 0);
	gives(fi_cntr_add(bench.go, 1), 0);
	gives(fi_cntr_readerr(bench.done), 2);
	gives(fi_cntr_readerr(bench.sends), 0);
	error = pair_error(&bench.pair, &bench.pair.a);
	gives(error.err, FI_EINVAL);
	must(error.op_context == &late->work.context);
	gives(fi_cntr_read(bench.done), 0);
	free(pending);
	free(late);
	bench_close(&bench);
}

/* A completion counter may be closed while its operation is under way. */
static void counter_closed_early(void)
{
	static char large[1 << 20], in[1 << 20];
	struct send_work *work;
	struct bench bench;

	bench_open(&bench, &triggers);
	memset(large, 'x', sizeof(large));
	work = send_work(&bench, large, sizeof(large), 0);
	gives(queue(&bench, &work->work), 0);
	close_cntr(bench.done);
	gives(fi_recv(bench.pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(pair_done(&bench.pair, &bench.pair.b).entry.len, sizeof(in));
	pair_quiet(&bench.pair, &bench.pair.a);
	must(!memcmp(in, large, sizeof(in)));
	bench.done = open_cntr(&bench.pair);
	free(work);
	bench_close(&bench);
}

static void automatic(void)
{
	const struct pair_want want = { .caps = PAIR_CAPS | FI_TRIGGER, .progress = FI_PROGRESS_AUTO };
	char middle[8] = "", last[8] = "";
	struct send_work *forward;
	struct bench bench;

	bench_open(&bench, &want);
	forward = send_work(&bench, middle, sizeof(middle), 1);
	forward->msg.ep = bench.pair.b.ep;
	forward->msg.msg.addr = bench.pair.b.peer;
	forward->work.triggering_cntr = bench.recvs;
	gives(queue(&bench, &forward->work), 0);
	gives(fi_recv(bench.pair.b.ep, middle, sizeof(middle), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_recv(bench.pair.a.ep, last, sizeof(last), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_inject(bench.pair.a.ep, "message", 8, bench.pair.a.peer), 0);
	while (!look(&last[6]))
		sched_yield();
	gives(fi_cntr_wait(bench.recvs, 2, -1), 0);
	must(!strcmp(last, "message"));
	gives(fi_cntr_wait(bench.done, 1, -1), 0);
	bench_close(&bench);
	free(forward);
}

/* ---- one-sided ------------------------------------------------------------------------------- */

static const struct pair_want one_sided = { .caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_TRIGGER };

struct target {
	uint64_t words[8];
	struct fid_mr *mr;
	struct fi_rma_iov iov;
	struct fi_rma_ioc ioc;
};

static void target_open(struct bench *bench, struct target *target)
{
	const int mode = bench->pair.info->domain_attr->mr_mode;

	gives(fi_mr_reg(bench->pair.domain, target->words, sizeof(target->words),
			FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 17, 0, &target->mr, NULL),
	      0);
	target->iov.addr = mode == FI_MR_BASIC || mode & FI_MR_VIRT_ADDR ? (uintptr_t)target->words : 0;
	target->iov.key = fi_mr_key(target->mr);
	target->iov.len = sizeof(uint64_t);
	target->ioc = (struct fi_rma_ioc){ .addr = target->iov.addr, .count = 1, .key = target->iov.key };
}

/* Every one-sided kind, from the same structures, in the order of their thresholds. */
static void one_sided_works(void)
{
	static struct target target;
	uint64_t out = 0, in = 0, fetched = 0, compared = 0, operand = 2, compare = 7, swap = 100;
	struct iovec iov = { &out, sizeof(out) };
	struct fi_ioc ioc = { &operand, 1 }, result = { &fetched, 1 }, compare_ioc = { &compare, 1 };
	struct fi_deferred_work work = { .threshold = 1 };
	struct fi_op_rma rma = { .flags = 0 };
	struct fi_op_atomic atomic = { .flags = 0 };
	struct fi_op_fetch_atomic fetch = { .flags = 0 };
	struct fi_op_compare_atomic cswap = { .flags = 0 };
	struct bench bench;

	bench_open(&bench, &one_sided);
	target_open(&bench, &target);
	work.triggering_cntr = bench.go;
	work.completion_cntr = bench.done;
	rma.ep = atomic.ep = fetch.ep = cswap.ep = bench.pair.a.ep;
	rma.msg = (struct fi_msg_rma){ .msg_iov = &iov,
				       .iov_count = 1,
				       .addr = bench.pair.a.peer,
				       .rma_iov = &target.iov,
				       .rma_iov_count = 1 };
	atomic.msg = (struct fi_msg_atomic){ .msg_iov = &ioc,
					     .iov_count = 1,
					     .addr = bench.pair.a.peer,
					     .rma_iov = &target.ioc,
					     .rma_iov_count = 1,
					     .datatype = FI_UINT64,
					     .op = FI_SUM };
	fetch.msg = cswap.msg = atomic.msg;
	fetch.fetch = cswap.fetch = (struct fi_msg_fetch){ .msg_iov = &result, .iov_count = 1 };
	cswap.compare = (struct fi_msg_compare){ .msg_iov = &compare_ioc, .iov_count = 1 };
	cswap.msg.op = FI_CSWAP;

	work.op_type = FI_OP_WRITE;
	work.op.rma = &rma;
	gives(queue(&bench, &work), 0);
	work.threshold = 2;
	work.op_type = FI_OP_ATOMIC;
	work.op.atomic = &atomic;
	gives(queue(&bench, &work), 0);
	work.threshold = 3;
	work.op_type = FI_OP_FETCH_ATOMIC;
	work.op.fetch_atomic = &fetch;
	gives(queue(&bench, &work), 0);
	work.threshold = 4;
	ioc.addr = &swap;
	result.addr = &compared;
	work.op_type = FI_OP_COMPARE_ATOMIC;
	work.op.compare_atomic = &cswap;
	gives(queue(&bench, &work), 0);
	work.threshold = 5;
	iov.iov_base = &in;
	work.op_type = FI_OP_READ;
	work.op.rma = &rma;
	gives(queue(&bench, &work), 0);
	iov = (struct iovec){ NULL, 0 };
	ioc = result = compare_ioc = (struct fi_ioc){ NULL, 0 };

	pair_quiet(&bench.pair, &bench.pair.a);
	gives(target.words[0], 0);
	out = 3; /* 3, +2, +2, then 7 becomes 100 */
	for (uint64_t i = 1; i <= 5; i++) {
		gives(fi_cntr_read(bench.done), i - 1);
		gives(fi_cntr_add(bench.go, 1), 0);
		gives(fi_cntr_wait(bench.done, i, -1), 0);
	}
	gives(fetched, 5);
	gives(compared, 7);
	gives(in, 100);
	gives(target.words[0], 100);
	gives(fi_cntr_read(bench.sends), 0);
	gives(fi_cntr_readerr(bench.done), 0);
	pair_quiet(&bench.pair, &bench.pair.a);
	gives(fi_close(&target.mr->fid), 0);
	bench_close(&bench);
}

/* A deferred operation has the limits of the call, and is refused when it is queued. */
static void too_large_works(void)
{
	static char out[8192], in[8192];
	struct iovec iov[2] = { { out, 1 } };
	struct fi_rma_iov remote = { .len = sizeof(out) };
	struct fi_op_rma write = { .flags = FI_INJECT };
	struct send_work *work;
	struct bench bench;
	size_t limit;

	bench_open(&bench, &one_sided);
	limit = bench.pair.info->tx_attr->inject_size;
	must(limit < sizeof(out));
	work = send_work(&bench, out, bench.pair.info->ep_attr->max_msg_size + 1, 1);
	gives(queue(&bench, &work->work), -FI_EMSGSIZE);
	work->iov.iov_len = limit + 1;
	work->msg.flags = FI_INJECT;
	gives(queue(&bench, &work->work), -FI_EMSGSIZE);
	work->msg.msg.msg_iov = iov;
	work->msg.msg.iov_count = 2;
	iov[1] = (struct iovec){ out, limit };
	gives(queue(&bench, &work->work), -FI_EMSGSIZE);
	iov[1].iov_len = SIZE_MAX;
	gives(queue(&bench, &work->work), -FI_EMSGSIZE);
	iov[1].iov_len = limit - 1;
	gives(queue(&bench, &work->work), 0);
	gives(fi_recv(bench.pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_cntr_add(bench.go, 1), 0);
	gives(fi_cntr_wait(bench.done, 1, -1), 0);
	gives(pair_done(&bench.pair, &bench.pair.b).entry.len, limit);

	iov[1].iov_len = limit;
	remote.len = limit + 1;
	write.ep = bench.pair.a.ep;
	write.msg = (struct fi_msg_rma){ .msg_iov = iov,
					 .iov_count = 2,
					 .addr = bench.pair.a.peer,
					 .rma_iov = &remote,
					 .rma_iov_count = 1 };
	work->work.op_type = FI_OP_WRITE;
	work->work.op.rma = &write;
	gives(queue(&bench, &work->work), -FI_EMSGSIZE);
	gives(fi_cntr_readerr(bench.done), 0);
	pair_quiet(&bench.pair, &bench.pair.a);
	free(work);
	bench_close(&bench);
}

/* With FI_TRIGGER: a write that waits for a write, and one whose payload is injected. */
static void triggered_writes(void)
{
	static struct target target;
	struct fi_triggered_context first, second;
	struct iovec iov;
	struct fi_msg_rma msg = { .msg_iov = &iov, .iov_count = 1, .rma_iov_count = 1 };
	uint64_t one = 1, two = 2;
	struct fid_ep *alias;
	struct bench bench;

	memset(&target, 0, sizeof(target));
	bench_open(&bench, &one_sided);
	target_open(&bench, &target);
	gives(fi_ep_alias(bench.pair.a.ep, &alias, FI_TRANSMIT | FI_TRIGGER), 0);
	first = at(bench.sends, 1);
	second = at(bench.sends, 2);
	msg.addr = bench.pair.a.peer;
	msg.rma_iov = &target.iov;
	msg.context = &second;
	iov = (struct iovec){ &two, sizeof(two) };
	gives(fi_writemsg(bench.pair.a.ep, &msg, FI_TRIGGER | FI_INJECT | FI_COMPLETION), 0);
	two = 99;
	gives(fi_write(alias, &one, sizeof(one), NULL, bench.pair.a.peer, target.iov.addr + 8,
		       target.iov.key, &first),
	      0);
	pair_quiet(&bench.pair, &bench.pair.a);
	gives(target.words[0], 0);
	gives(target.words[1], 0);
	gives(fi_write(bench.pair.a.ep, &one, sizeof(one), NULL, bench.pair.a.peer, target.iov.addr + 16,
		       target.iov.key, NULL),
	      0);
	gives(fi_cntr_wait(bench.sends, 3, -1), 0);
	gives(target.words[0], 2);
	gives(target.words[1], 1);
	gives(target.words[2], 1);
	must(pair_done(&bench.pair, &bench.pair.a).entry.op_context == NULL);
	must(pair_done(&bench.pair, &bench.pair.a).entry.op_context == &first);
	must(pair_done(&bench.pair, &bench.pair.a).entry.op_context == &second);
	gives(fi_close(&alias->fid), 0);
	gives(fi_close(&target.mr->fid), 0);
	bench_close(&bench);
}

/*
 * As the newest fi_rdm_deferred_wq has it, with a counter for the peer's accesses beside that for receives: one write
 * sets off a receive and a send at both sides. Each side waits for a counter that no endpoint is bound to, in a domain
 * without locks.
 */
static void set_off_by_peer(void)
{
	static const struct pair_want want = { .caps = FI_MSG | FI_TAGGED | FI_RMA | FI_RMA_EVENT |
						       FI_TRIGGER,
					       .threading = FI_THREAD_DOMAIN };
	static struct target target;
	const uint64_t one = 1;

	for (int tagged = 0; tagged < 2; tagged++) {
		uint64_t values[2] = { 11, 22 }, got[2] = { 0, 0 };
		struct bench bench;

		memset(&target, 0, sizeof(target));
		bench_open(&bench, &want);
		target_open(&bench, &target);
		for (int i = 0; i < 4; i++) {
			struct side *side = i % 2 ? &bench.pair.b : &bench.pair.a;
			struct iovec iov = { i < 2 ? &got[i] : &values[i - 2], sizeof(uint64_t) };
			struct fi_op_msg msg = { .ep = side->ep,
						 .msg = { .msg_iov = &iov, .iov_count = 1 } };
			struct fi_op_tagged tmsg = {
				.ep = side->ep, .msg = { .msg_iov = &iov, .iov_count = 1, .tag = 7 }
			};
			static struct fi_deferred_work works[4];

			msg.msg.addr = tmsg.msg.addr = i < 2 ? FI_ADDR_UNSPEC : side->peer;
			works[i] =
				(struct fi_deferred_work){ .threshold = 1, .completion_cntr = bench.done };
			works[i].triggering_cntr = i % 2 ? bench.accesses : bench.sends;
			if (tagged)
				works[i].op.tagged = &tmsg;
			else
				works[i].op.msg = &msg;
			works[i].op_type = i < 2 ? (tagged ? FI_OP_TRECV : FI_OP_RECV)
						 : (tagged ? FI_OP_TSEND : FI_OP_SEND);
			gives(queue(&bench, &works[i]), 0);
		}
		gives(fi_cntr_wait(bench.done, 1, 20), -FI_ETIMEDOUT);
		gives(fi_write(bench.pair.a.ep, &one, sizeof(one), NULL, bench.pair.a.peer,
			       target.iov.addr, target.iov.key, NULL),
		      0);
		gives(fi_cntr_wait(bench.done, 4, -1), 0);
		gives(got[0], 22);
		gives(got[1], 11);
		gives(target.words[0], 1);
		gives(fi_cntr_read(bench.accesses), 1);
		gives(fi_cntr_read(bench.sends), 1);
		gives(fi_cntr_read(bench.recvs), 0);
		gives(fi_close(&target.mr->fid), 0);
		bench_close(&bench);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(plain_waits),
		ALONE(tagged_waits),
		ALONE(order),
		ALONE(due_at_once),
		ALONE(injected),
		ALONE(receives),
		ALONE(alias),
		ALONE(shared_receives),
		ALONE(bad_arguments),
		ALONE(cancelled),
		ALONE(failed_receives),
		ALONE(endpoint_closed),
		ALONE(more_than_room),
		ALONE_ENV(submitted_beside_a_sleeper,
			  "FI_SHMCMA_SCAN=no"), /* a scan wakes all endpoints */
		ALONE(no_room_beside_a_sleeper),
		ALONE(deferred_messages),
		ALONE(deferred_peeks),
		ALONE(endpoint_counter),
		ALONE(counter_works),
		ALONE(chain),
		ALONE(cancel_and_flush),
		ALONE(bad_works),
		ALONE(failed_works),
		ALONE(counter_closed_early),
		ALONE(automatic),
		ALONE(one_sided_works),
		ALONE(too_large_works),
		ALONE(triggered_writes),
		ALONE(set_off_by_peer),
		ALONE_ENV(one_sided_works, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(triggered_writes, "FI_SHMCMA_RMA=strict"),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
