/* SPDX-License-Identifier: BSD-2-Clause */
/* test_cntr.c: fi_cntr(3), call by call, and what endpoints count. */
#include "pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

/* ---- objects --------------------------------------------------------------------------------- */

enum { SENDS, RECVS, READS, WRITES, REMOTE_READS, REMOTE_WRITES, KINDS };

static const uint64_t kind_flags[KINDS] = {
	FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE,
};

static struct fid_cntr *open_cntr(struct pair *pair, enum fi_wait_obj wait_obj)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = wait_obj };
	struct fid_cntr *cntr;

	gives(fi_cntr_open(pair->domain, &attr, &cntr, &attr), 0);
	return cntr;
}

/* A side that reports to counters, one for each kind that is asked for, and to no queue unless it has one. */
struct counted {
	struct side side;
	struct fid_cntr *cntrs[KINDS];
};

static void counted_open(struct pair *pair, struct counted *counted, uint64_t kinds, uint64_t cq_flags)
{
	struct side *side = &counted->side;
	size_t len = sizeof(side->name);

	memset(counted, 0, sizeof(*counted));
	side->av = pair_open_av(pair);
	side->ep = pair_open_ep(pair);
	gives(fi_ep_bind(side->ep, &side->av->fid, 0), 0);
	if (cq_flags) {
		side->cq = pair_open_cq(pair);
		gives(fi_ep_bind(side->ep, &side->cq->fid, cq_flags), 0);
	}
	for (int i = 0; i < KINDS; i++) {
		if (!(kinds & kind_flags[i]))
			continue;
		counted->cntrs[i] = open_cntr(pair, FI_WAIT_UNSPEC);
		gives(fi_ep_bind(side->ep, &counted->cntrs[i]->fid, kind_flags[i]), 0);
	}
	gives(fi_enable(side->ep), 0);
	gives(fi_getname(&side->ep->fid, side->name, &len), 0);
}

static void counted_close(struct counted *counted)
{
	side_close(&counted->side);
	for (int i = 0; i < KINDS; i++)
		if (counted->cntrs[i])
			gives(fi_close(&counted->cntrs[i]->fid), 0);
}

/* Two of them, `a` knows `b`. */
struct couple {
	struct pair pair;
	struct counted a, b;
};

static void couple_open(struct couple *couple, const struct pair_want *want, uint64_t kinds,
			uint64_t cq_flags)
{
	pair_open_domain(&couple->pair, want);
	counted_open(&couple->pair, &couple->a, kinds, cq_flags);
	counted_open(&couple->pair, &couple->b, kinds, cq_flags);
	couple->a.side.peer = pair_insert(couple->a.side.av, couple->b.side.name);
	couple->b.side.peer = pair_insert(couple->b.side.av, couple->a.side.name);
}

static void couple_close(struct couple *couple)
{
	counted_close(&couple->a);
	counted_close(&couple->b);
	pair_close(&couple->pair);
}

static uint64_t value(const struct counted *counted, int kind)
{
	return fi_cntr_read(counted->cntrs[kind]);
}

static uint64_t errors(const struct counted *counted, int kind)
{
	return fi_cntr_readerr(counted->cntrs[kind]);
}

/* Reading both sides is all the progress there is. */
static void couple_progress(struct couple *couple)
{
	value(&couple->a, SENDS);
	value(&couple->b, RECVS);
}

#define until(couple, condition)                                                                          \
	while (!(condition))                                                                              \
	couple_progress(couple)

/* ---- calls ----------------------------------------------------------------------------------- */

static int open_with(struct pair *pair, const struct fi_cntr_attr *wanted)
{
	struct fi_cntr_attr attr = *wanted;
	struct fid_cntr *cntr;
	int ret = fi_cntr_open(pair->domain, &attr, &cntr, &attr);

	if (!ret) {
		gives(cntr->fid.fclass, FI_CLASS_CNTR);
		must(cntr->fid.context == &attr);
		gives(fi_close(&cntr->fid), 0);
	}
	return ret;
}

static void open_attributes(void)
{
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	must(pair.info->domain_attr->cntr_cnt > 0);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_NONE }), 0);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_UNSPEC }), 0);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_YIELD }), 0);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_FD }), 0);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_MUTEX_COND }), 0);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_SET }), -FI_EINVAL); /* none given */
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_POLLFD }), 0);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .wait_obj = 99 }), -FI_EINVAL);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .events = FI_CNTR_EVENTS_COMP + 1 }), -FI_ENOSYS);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .flags = FI_AFFINITY }), -FI_EBADFLAGS);
	gives(open_with(&pair, &(struct fi_cntr_attr){ .flags = 1ULL << 63 }), -FI_EBADFLAGS);

	gives(fi_cntr_open(pair.domain, NULL, &cntr, NULL), 0);
	gives(fi_close(&pair.domain->fid), -FI_EBUSY);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

static void read_and_write(void)
{
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	cntr = open_cntr(&pair, FI_WAIT_UNSPEC);
	gives(fi_cntr_read(cntr), 0);
	gives(fi_cntr_readerr(cntr), 0);
	gives(fi_cntr_add(cntr, 3), 0);
	gives(fi_cntr_add(cntr, 4), 0);
	gives(fi_cntr_read(cntr), 7);
	gives(fi_cntr_readerr(cntr), 0);
	gives(fi_cntr_adderr(cntr, 5), 0);
	gives(fi_cntr_readerr(cntr), 5);
	gives(fi_cntr_set(cntr, 1), 0);
	gives(fi_cntr_read(cntr), 1);
	gives(fi_cntr_set(cntr, UINT64_MAX - 1), 0);
	must(fi_cntr_read(cntr) == UINT64_MAX - 1);
	gives(fi_cntr_add(cntr, 3), 0);
	gives(fi_cntr_read(cntr), 1);
	gives(fi_cntr_seterr(cntr, 2), 0);
	gives(fi_cntr_readerr(cntr), 2);
	gives(fi_cntr_read(cntr), 1);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

static void control(void)
{
	enum fi_wait_obj wait_obj = FI_WAIT_NONE;
	uint64_t flags = 7;
	struct fid_cntr *cntr;
	struct pair pair;
	void *object;

	pair_open_domain(&pair, NULL);
	cntr = open_cntr(&pair, FI_WAIT_YIELD);
	gives(fi_control(&cntr->fid, FI_GETWAITOBJ, &wait_obj), 0);
	gives(wait_obj, FI_WAIT_YIELD);
	gives(fi_control(&cntr->fid, FI_GETWAIT, &object), -FI_ENODATA);
	gives(fi_control(&cntr->fid, FI_GETOPSFLAG, &flags), 0);
	gives(flags, 0);
	gives(fi_control(&cntr->fid, FI_SETOPSFLAG, &flags), 0);
	flags = FI_COMPLETION;
	gives(fi_control(&cntr->fid, FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
	gives(fi_control(&cntr->fid, FI_GETWAIT, NULL), -FI_EINVAL);
	gives(fi_control(&cntr->fid, FI_BACKLOG, &object), -FI_ENOSYS);
	gives(cntr->fid.ops->bind(&cntr->fid, &pair.domain->fid, 0), -FI_ENOSYS);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/* ---- wait ------------------------------------------------------------------------------------ */

static void wait_results(void)
{
	struct timespec begin, end;
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	cntr = open_cntr(&pair, FI_WAIT_UNSPEC);
	gives(fi_cntr_wait(cntr, 0, 0), 0);
	gives(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	gives(fi_cntr_wait(cntr, 1, 30), -FI_ETIMEDOUT);
	clock_gettime(CLOCK_MONOTONIC, &end);
	must((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >= 29);
	gives(fi_cntr_set(cntr, 10), 0);
	gives(fi_cntr_wait(cntr, 10, -1), 0);
	gives(fi_cntr_wait(cntr, 9, 0), 0);
	gives(fi_cntr_wait(cntr, 11, 1), -FI_ETIMEDOUT);
	/* errors of before the call are no change */
	gives(fi_cntr_adderr(cntr, 3), 0);
	gives(fi_cntr_wait(cntr, 11, 1), -FI_ETIMEDOUT);
	gives(fi_cntr_readerr(cntr), 3);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/*
 * The clock of this thread as the provider sees it, because the dynamic linker finds these functions before those of the C
 * library: each look takes LOOK_NS, and a yield never lets another process run.
 */
#define LOOK_NS 100

static _Thread_local struct {
	bool on;
	int64_t now;
	unsigned int looks, patient; /* looks at the clock; those before the first yield */
} scene;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time)
{
	if (!scene.on)
		return (int)syscall(SYS_clock_gettime, clock, time);
	scene.looks++;
	scene.now += LOOK_NS;
	*time = (struct timespec){ scene.now / 1000000000, scene.now % 1000000000 };
	return 0;
}

__attribute__((visibility("default"))) int sched_yield(void)
{
	if (!scene.patient)
		scene.patient = scene.looks;
	return (int)syscall(SYS_sched_yield);
}

__attribute__((visibility("default"))) int getrusage(int who, struct rusage *usage)
{
	int ret = (int)syscall(SYS_getrusage, who, usage);

	if (scene.on)
		usage->ru_nivcsw = 0;
	return ret;
}

/* Opens a counter, and begins the scene. */
static struct fid_cntr *scene_begin(struct pair *pair, enum fi_wait_obj wait_obj)
{
	struct timespec now;
	struct fid_cntr *cntr;

	pair_open_domain(pair, NULL);
	cntr = open_cntr(pair, wait_obj);
	clock_gettime(CLOCK_MONOTONIC, &now);
	scene.now = now.tv_sec * 1000000000LL + now.tv_nsec;
	scene.on = true;
	return cntr;
}

static void scene_end(struct pair *pair, struct fid_cntr *cntr)
{
	scene.on = false;
	gives(fi_close(&cntr->fid), 0);
	pair_close(pair);
}

/* Returns how often a call that waits looks at the clock before it yields. It has no object to sleep on. */
static unsigned int patience(struct fid_cntr *cntr)
{
	scene.looks = scene.patient = 0;
	gives(fi_cntr_wait(cntr, 1, 1), -FI_ETIMEDOUT);
	return scene.patient;
}

/* It polls for 20 us before it rests, also where more processes than processors want to run. */
static void polls_before_it_rests(void)
{
	struct pair pair;
	struct fid_cntr *cntr = scene_begin(&pair, FI_WAIT_NONE);

	(void)patience(cntr); /* the polls yield less and less often */
	must(patience(cntr) > 100);
	scene_end(&pair, cntr);
}

/* Tells whether fi_trywait() polls for some time before it lets the thread sleep. */
static bool is_eager(struct pair *pair, struct fid_cntr *cntr)
{
	struct fid *fids[] = { &cntr->fid };

	scene.looks = scene.patient = 0;
	gives(fi_trywait(pair->fabric, fids, 1), 0);
	return scene.looks > 100;
}

/* fi_trywait() polls for 20 us if the last sleep was brief and this object was signalled. */
static void polls_after_a_brief_sleep(void)
{
	struct pair pair;
	struct fid_cntr *cntr = scene_begin(&pair, FI_WAIT_FD);

	must(!is_eager(&pair, cntr));
	gives(fi_cntr_add(cntr, 1), 0);
	gives(fi_cntr_read(cntr), 1);
	must(is_eager(&pair, cntr));
	must(!is_eager(&pair, cntr)); /* nothing came */
	gives(fi_cntr_add(cntr, 1), 0);
	gives(fi_cntr_read(cntr), 2);
	must(is_eager(&pair, cntr));
	gives(fi_cntr_add(cntr, 1), 0);
	gives(fi_cntr_read(cntr), 3);
	scene.now += 1000000; /* a long sleep */
	must(!is_eager(&pair, cntr));
	scene_end(&pair, cntr);
}

/* Where more processes than processors want to run, these polls yield. */
static void yields_after_a_brief_sleep(void)
{
	struct pair pair;
	struct fid_cntr *cntr = scene_begin(&pair, FI_WAIT_FD);

	must(!is_eager(&pair, cntr));
	gives(fi_cntr_add(cntr, 1), 0);
	must(fi_cntr_read(cntr) == 1);
	must(is_eager(&pair, cntr));
	must(scene.patient);
	scene_end(&pair, cntr);
}

/* fi_cntr_wait() in one thread until another has done what `change` does. */
struct waiter {
	struct fid_cntr *cntr;
	atomic_bool waits;
	int ret;
};

static void *wait_in_thread(void *arg)
{
	struct waiter *waiter = arg;

	waiter->waits = true;
	waiter->ret = fi_cntr_wait(waiter->cntr, 5, -1);
	return NULL;
}

static int woken_by(struct pair *pair, int (*change)(struct fid_cntr *cntr, uint64_t value),
		    uint64_t value)
{
	struct waiter waiter = { .cntr = open_cntr(pair, FI_WAIT_UNSPEC) };
	pthread_t thread;

	gives(pthread_create(&thread, NULL, wait_in_thread, &waiter), 0);
	while (!waiter.waits)
		sched_yield();
	usleep(10000); /* more than likely it is in the call; if not, a change before it counts for nothing */
	while (pthread_tryjoin_np(thread, NULL)) {
		gives(change(waiter.cntr, value), 0);
		usleep(1000);
	}
	gives(fi_close(&waiter.cntr->fid), 0);
	return waiter.ret;
}

static void woken_by_others(void)
{
	struct pair pair;

	pair_open_domain(&pair, NULL);
	gives(woken_by(&pair, fi_cntr_add, 1), 0);
	gives(woken_by(&pair, fi_cntr_set, 5), 0);
	gives(woken_by(&pair, fi_cntr_adderr, 1), -FI_EAVAIL);
	pair_close(&pair);
}

/* ---- bind ------------------------------------------------------------------------------------ */

static void bind_flags(void)
{
	struct fid fake = { .fclass = FI_CLASS_CNTR };
	struct fid_cntr *cntr, *other, *foreign;
	struct fid_domain *domain;
	struct pair pair;
	struct fid_ep *ep;
	struct fid_cq *cq;

	pair_open_domain(&pair, NULL);
	gives(fi_domain(pair.fabric, pair.info, &domain, NULL), 0);
	gives(fi_cntr_open(domain, NULL, &foreign, NULL), 0);
	cntr = open_cntr(&pair, FI_WAIT_NONE);
	other = open_cntr(&pair, FI_WAIT_NONE);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &cntr->fid, FI_SELECTIVE_COMPLETION), -FI_EBADFLAGS);
	gives(fi_ep_bind(ep, &cntr->fid, FI_SEND | 1ULL << 63), -FI_EBADFLAGS);
	gives(fi_ep_bind(ep, &foreign->fid, FI_SEND), -FI_EINVAL);
	gives(fi_ep_bind(ep, &fake, FI_SEND), -FI_EINVAL);
	gives(fi_ep_bind(ep, &cntr->fid, 0), 0); /* counts nothing */
	gives(fi_close(&cntr->fid), 0);
	cntr = open_cntr(&pair, FI_WAIT_NONE);
	/* no FI_RMA was asked for: counted like FI_READ, never */
	must(!(pair.info->caps & (FI_RMA | FI_ATOMIC | FI_RMA_EVENT)));
	gives(fi_ep_bind(ep, &cntr->fid, FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
	gives(fi_ep_bind(ep, &other->fid, FI_REMOTE_READ), -FI_EINVAL);
	gives(fi_ep_bind(ep, &other->fid, FI_REMOTE_WRITE), -FI_EINVAL);

	gives(fi_ep_bind(ep, &cntr->fid, FI_SEND | FI_READ), 0);
	gives(fi_ep_bind(ep, &other->fid, FI_SEND), -FI_EINVAL);
	gives(fi_ep_bind(ep, &other->fid, FI_READ | FI_WRITE), -FI_EINVAL);
	gives(fi_ep_bind(ep, &cntr->fid, FI_READ), -FI_EINVAL);
	gives(fi_close(&cntr->fid), -FI_EBUSY);
	gives(fi_close(&other->fid), 0); /* the refused calls have bound nothing */
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cntr->fid), 0);

	/* no more when it is enabled */
	pair.a.av = pair_open_av(&pair);
	ep = pair_open_ep(&pair);
	cq = pair_open_cq(&pair);
	cntr = open_cntr(&pair, FI_WAIT_NONE);
	pair_bind(ep, cq, pair.a.av);
	gives(fi_enable(ep), 0);
	gives(fi_ep_bind(ep, &cntr->fid, FI_SEND), -FI_EOPBADSTATE);
	gives(fi_close(&cntr->fid), 0);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&pair.a.av->fid), 0);
	pair.a.av = NULL;
	gives(fi_close(&foreign->fid), 0);
	gives(fi_close(&domain->fid), 0);
	pair_close(&pair);
}

/* Peers may read and write, and the endpoint has not asked to see it. */
static void bind_unseen(void)
{
	struct pair_want want = { .caps = FI_MSG | FI_RMA };
	struct fid_cntr *cntr;
	struct pair pair;
	struct fid_ep *ep;

	pair_open_domain(&pair, &want);
	must(pair.info->caps & FI_RMA_EVENT);
	pair.info->caps &= ~FI_RMA_EVENT;
	cntr = open_cntr(&pair, FI_WAIT_NONE);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &cntr->fid, FI_REMOTE_READ), -FI_EINVAL);
	gives(fi_ep_bind(ep, &cntr->fid, FI_SEND | FI_REMOTE_WRITE), -FI_EINVAL);
	gives(fi_ep_bind(ep, &cntr->fid, FI_SEND | FI_READ | FI_WRITE), 0);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/* fi_enable() of an endpoint that reports to these. */
static int enable_with(struct pair *pair, uint64_t cntr_flags, uint64_t cq_flags)
{
	struct fid_cntr *cntr = open_cntr(pair, FI_WAIT_NONE);
	struct fid_av *av = pair_open_av(pair);
	struct fid_cq *cq = pair_open_cq(pair);
	struct fid_ep *ep = pair_open_ep(pair);
	int ret;

	gives(fi_ep_bind(ep, &av->fid, 0), 0);
	if (cntr_flags)
		gives(fi_ep_bind(ep, &cntr->fid, cntr_flags), 0);
	if (cq_flags)
		gives(fi_ep_bind(ep, &cq->fid, cq_flags), 0);
	ret = fi_enable(ep);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&av->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	return ret;
}

static void instead_of_queues(void)
{
	struct pair_want sends = { .caps = FI_MSG | FI_SEND };
	struct pair pair;

	pair_open_domain(&pair, NULL);
	gives(enable_with(&pair, 0, 0), -FI_ENOCQ);
	gives(enable_with(&pair, FI_SEND, 0), -FI_ENOCQ);
	gives(enable_with(&pair, FI_RECV, 0), -FI_ENOCQ);
	gives(enable_with(&pair, FI_SEND | FI_RECV, 0), 0);
	gives(enable_with(&pair, FI_SEND, FI_RECV), 0);
	gives(enable_with(&pair, FI_RECV, FI_TRANSMIT), 0);
	gives(enable_with(&pair, FI_RECV, FI_RECV), -FI_ENOCQ);
	pair_close(&pair);

	pair_open_domain(&pair, &sends);
	gives(enable_with(&pair, 0, 0), -FI_ENOCQ);
	gives(enable_with(&pair, FI_SEND, 0), 0);
	pair_close(&pair);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* One of each size and way; nothing but counters tells of them. */
static void messages(bool tagged)
{
	static uint8_t from[1 << 20], to[1 << 20];
	static const size_t sizes[] = { 0, 8, 200, 4096, 32768, 100000, 1 << 20 };
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);
	struct couple couple;
	struct side *a, *b;

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	a = &couple.a.side;
	b = &couple.b.side;
	for (uint64_t i = 0; i < count; i++) {
		pattern_fill(from, 0, sizes[i], (unsigned int)i);
		gives(kind_recv(tagged, b, to, sizeof(to), FI_ADDR_UNSPEC, NULL), 0);
		gives(value(&couple.b, RECVS), i);
		post(&couple.pair, kind_send(tagged, a, from, sizes[i], a->peer, NULL));
		until(&couple, value(&couple.a, SENDS) == i + 1 && value(&couple.b, RECVS) == i + 1);
		must(pattern_is(to, 0, sizes[i], (unsigned int)i));
		pair_seen.sent++;
		pair_seen.received++;
	}
	gives(value(&couple.a, RECVS), 0);
	gives(value(&couple.b, SENDS), 0);
	gives(errors(&couple.a, SENDS), 0);
	gives(errors(&couple.b, RECVS), 0);
	couple_close(&couple);
}

static void plain_messages(void)
{
	messages(false);
}

static void tagged_messages(void)
{
	messages(true);
}

/* An operation without completion is counted all the same, once. */
static void silent_messages(void)
{
	const uint64_t flags = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;
	struct kind_msg msg = { .iov_count = 1 };
	char out[8] = "silent", in[8];
	struct couple couple;
	struct side *a, *b;

	couple_open(&couple, NULL, FI_SEND | FI_RECV, flags);
	a = &couple.a.side;
	b = &couple.b.side;
	msg.iov[0] = (struct iovec){ out, sizeof(out) };
	msg.addr = a->peer;
	for (int i = 0; i < 5; i++)
		gives(fi_recv(b->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_send(a->ep, out, sizeof(out), NULL, a->peer, NULL), 0);
	gives(fi_inject(a->ep, out, sizeof(out), a->peer), 0);
	gives(fi_injectdata(a->ep, out, sizeof(out), 1, a->peer), 0);
	gives(kind_sendmsg(false, a, &msg, FI_DELIVERY_COMPLETE), 0);
	gives(kind_sendmsg(false, a, &msg, FI_COMPLETION), 0);
	until(&couple, value(&couple.a, SENDS) == 5 && value(&couple.b, RECVS) == 5);
	gives(pair_done(&couple.pair, a).entry.flags, FI_SEND | FI_MSG);
	pair_quiet(&couple.pair, a);
	pair_quiet(&couple.pair, b);
	gives(value(&couple.a, SENDS), 5);
	gives(value(&couple.b, RECVS), 5);
	couple_close(&couple);
}

/* Each message into the buffer counts, its release does not. */
static void multi_receive(void)
{
	struct kind_msg msg = { .iov_count = 1, .addr = FI_ADDR_UNSPEC };
	struct couple couple;
	char buf[1024], filler[128] = "filler";

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	msg.iov[0] = (struct iovec){ buf, sizeof(buf) };
	gives(kind_recvmsg(false, &couple.b.side, &msg, FI_MULTI_RECV), 0);
	for (int i = 0; i < 8; i++)
		gives(fi_inject(couple.a.side.ep, filler, sizeof(filler), couple.a.side.peer), 0);
	until(&couple, value(&couple.b, RECVS) == 8);
	for (int i = 0; i < 100; i++)
		couple_progress(&couple);
	gives(value(&couple.b, RECVS), 8);
	gives(value(&couple.a, SENDS), 8);
	couple_close(&couple);
}

/* Two endpoints count in one place, and reading it polls both. */
static void shared_counter(void)
{
	struct fid_cntr *sends, *recvs;
	struct fid_ep *eps[2];
	struct pair pair;
	fi_addr_t peers[2];
	char name[64], buf[8];

	pair_open_domain(&pair, NULL);
	pair.a.av = pair_open_av(&pair);
	sends = open_cntr(&pair, FI_WAIT_UNSPEC);
	recvs = open_cntr(&pair, FI_WAIT_UNSPEC);
	for (int i = 0; i < 2; i++) {
		size_t len = sizeof(name);

		eps[i] = pair_open_ep(&pair);
		gives(fi_ep_bind(eps[i], &pair.a.av->fid, 0), 0);
		gives(fi_ep_bind(eps[i], &sends->fid, FI_SEND), 0);
		gives(fi_ep_bind(eps[i], &recvs->fid, FI_RECV), 0);
		gives(fi_enable(eps[i]), 0);
		gives(fi_getname(&eps[i]->fid, name, &len), 0);
		peers[i] = pair_insert(pair.a.av, name);
	}
	for (int i = 0; i < 2; i++) {
		gives(fi_recv(eps[i], buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		gives(fi_send(eps[i], "message", 8, NULL, peers[1 - i], NULL), 0);
	}
	gives(fi_cntr_wait(recvs, 2, -1), 0);
	gives(fi_cntr_read(recvs), 2);
	gives(fi_cntr_read(sends), 2);
	gives(fi_close(&eps[0]->fid), 0);
	gives(fi_close(&recvs->fid), -FI_EBUSY);
	gives(fi_cntr_read(recvs), 2);
	gives(fi_close(&eps[1]->fid), 0);
	gives(fi_cntr_read(recvs), 2); /* its count stays */
	gives(fi_close(&recvs->fid), 0);
	gives(fi_close(&sends->fid), 0);
	gives(fi_close(&pair.a.av->fid), 0);
	pair.a.av = NULL;
	pair_close(&pair);
}

/* A counter that is bound to nothing moves the data of its whole domain. */
static void progress_of_the_domain(void)
{
	struct couple couple;
	struct fid_cntr *cntr;
	char in[8] = "";

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	cntr = open_cntr(&couple.pair, FI_WAIT_NONE);
	gives(fi_recv(couple.b.side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_send(couple.a.side.ep, "message", 8, NULL, couple.a.side.peer, NULL), 0);
	for (int i = 0; i < 100; i++)
		gives(fi_cntr_read(cntr), 0);
	must(!strcmp(in, "message"));
	gives(fi_close(&cntr->fid), 0);
	couple_close(&couple);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void truncated(void)
{
	static uint8_t large[100000];
	struct couple couple;
	char in[4];

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	gives(fi_recv(couple.b.side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_recv(couple.b.side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_recv(couple.b.side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_send(couple.a.side.ep, large, 8, NULL, couple.a.side.peer, NULL), 0);
	gives(fi_send(couple.a.side.ep, large, sizeof(large), NULL, couple.a.side.peer, NULL), 0);
	gives(fi_send(couple.a.side.ep, large, 4, NULL, couple.a.side.peer, NULL), 0);
	until(&couple, value(&couple.b, RECVS) == 1 && value(&couple.a, SENDS) == 3);
	gives(errors(&couple.b, RECVS), 2);
	gives(errors(&couple.a, SENDS), 0);
	/* the error was there before the call: it is told of by reading it */
	gives(fi_cntr_wait(couple.b.cntrs[RECVS], 2, 1), -FI_ETIMEDOUT);
	couple_close(&couple);
}

/* The wait makes the progress that ends in the error, and ends with it. */
static void wait_for_error(void)
{
	struct couple couple;
	char in[4];

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	gives(fi_recv(couple.b.side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_send(couple.a.side.ep, "message", 8, NULL, couple.a.side.peer, NULL), 0);
	gives(fi_cntr_wait(couple.b.cntrs[RECVS], 1, -1), -FI_EAVAIL);
	gives(fi_cntr_readerr(couple.b.cntrs[RECVS]), 1);
	gives(fi_cntr_read(couple.b.cntrs[RECVS]), 0);
	couple_close(&couple);
}

/* One that has been counted before it is waited for, and that nobody has told of yet, ends one wait. */
static void wait_for_earlier_error(void)
{
	struct couple couple;
	struct fid_cntr *cntr;
	char in[4];

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	cntr = couple.b.cntrs[RECVS];
	for (int reads = 0; reads < 2; reads++) {
		gives(fi_recv(couple.b.side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
		gives(fi_cancel(&couple.b.side.ep->fid, in), 0);
		if (reads)
			gives(fi_cntr_readerr(cntr), 2);
		else
			gives(fi_cntr_wait(cntr, 1, -1), -FI_EAVAIL);
		gives(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
	}
	gives(fi_cntr_adderr(cntr, 3), 0);
	gives(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
	gives(fi_cntr_seterr(cntr, 1), 0);
	gives(fi_cntr_wait(cntr, 1, 0), -FI_ETIMEDOUT);
	gives(fi_cntr_readerr(cntr), 1);
	couple_close(&couple);
}

static void cancelled(void)
{
	struct couple couple;
	char in[4];

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	gives(fi_recv(couple.b.side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_cancel(&couple.b.side.ep->fid, in), 0);
	gives(errors(&couple.b, RECVS), 1);
	gives(value(&couple.b, RECVS), 0);
	couple_close(&couple);
}

/* A send that waits for its receiver, which closes. */
static void peer_closed(void)
{
	static uint8_t large[1 << 20];
	struct couple couple;

	couple_open(&couple, NULL, FI_SEND | FI_RECV, 0);
	gives(fi_send(couple.a.side.ep, large, sizeof(large), NULL, couple.a.side.peer, NULL), 0);
	gives(fi_send(couple.a.side.ep, large, 8, NULL, couple.a.side.peer, NULL), 0);
	gives(value(&couple.a, SENDS), 1);
	gives(value(&couple.b, RECVS), 0);
	gives(fi_close(&couple.b.side.ep->fid), 0);
	couple.b.side.ep = NULL;
	gives(fi_cntr_wait(couple.a.cntrs[SENDS], 2, -1), -FI_EAVAIL);
	gives(errors(&couple.a, SENDS), 1);
	gives(value(&couple.a, SENDS), 1);
	couple_close(&couple);
}

/* A peek finds a message and does not receive it; discarding is not receiving. */
static void peek_and_discard(void)
{
	const struct fi_msg_tagged msg = { .addr = FI_ADDR_UNSPEC, .tag = 7 };
	struct couple couple;

	couple_open(&couple, NULL, FI_SEND | FI_RECV, FI_RECV);
	gives(fi_tinject(couple.a.side.ep, "1", 2, couple.a.side.peer, 7), 0);
	do
		gives(fi_trecvmsg(couple.b.side.ep, &msg, FI_PEEK), 0);
	while (fi_cq_read(couple.b.side.cq, &(struct fi_cq_tagged_entry){ 0 }, 1) == -FI_EAVAIL &&
	       fi_cq_readerr(couple.b.side.cq, &(struct fi_cq_err_entry){ 0 }, 0) == 1);
	gives(fi_trecvmsg(couple.b.side.ep, &msg, FI_PEEK | FI_DISCARD), 0);
	for (int i = 0; i < 100; i++)
		couple_progress(&couple);
	gives(value(&couple.b, RECVS), 0);
	gives(errors(&couple.b, RECVS), 0);
	couple_close(&couple);
}

/* ---- two processes that look at nothing but counters ------------------------------------------- */

#define ROUNDS 1000

static void only_counters(struct pair *pair, bool first)
{
	static uint8_t buf[65536];
	const size_t sizes[] = { 1, 300, 20000, sizeof(buf) };
	struct counted counted;
	char name[64];

	counted_open(pair, &counted, FI_SEND | FI_RECV, 0);
	pair_exchange(pair->link, counted.side.name, name, sizeof(name));
	counted.side.peer = pair_insert(counted.side.av, name);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		gives(fi_recv(counted.side.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		if (!first)
			gives(fi_cntr_wait(counted.cntrs[RECVS], i + 1, -1), 0);
		post(pair, fi_send(counted.side.ep, buf, sizes[i % 4], NULL, counted.side.peer, NULL));
		gives(fi_cntr_wait(counted.cntrs[SENDS], i + 1, -1), 0);
		if (first)
			gives(fi_cntr_wait(counted.cntrs[RECVS], i + 1, -1), 0);
	}
	gives(value(&counted, RECVS), ROUNDS);
	pair_seen.sent = pair_seen.received = ROUNDS;
	pair_meet(pair);
	counted_close(&counted);
}

static void ping(struct pair *pair)
{
	only_counters(pair, true);
}

static void pong(struct pair *pair)
{
	only_counters(pair, false);
}

/* ---- one-sided ------------------------------------------------------------------------------- */

#define ALL_KINDS (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* Memory of b that a may read and write, or no more than `access`. */
struct target {
	uint8_t bytes[65536];
	struct fid_mr *mr;
	uint64_t addr, key;
};

static void target_open(struct couple *couple, struct target *target, uint64_t access)
{
	const int mode = couple->pair.info->domain_attr->mr_mode;

	gives(fi_mr_reg(couple->pair.domain, target->bytes, sizeof(target->bytes), access, 0, 17, 0,
			&target->mr, NULL),
	      0);
	target->addr = mode == FI_MR_BASIC || mode & FI_MR_VIRT_ADDR ? (uintptr_t)target->bytes : 0;
	target->key = fi_mr_key(target->mr);
}

static const struct pair_want one_sided = { .caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT };

static void couple_settle(struct couple *couple)
{
	for (int i = 0; i < 100; i++)
		couple_progress(couple);
}

/* Each operation counts on both sides in its own place and nowhere else. */
static void reads_and_writes(void)
{
	static struct target target;
	static uint8_t buf[sizeof(target.bytes)];
	uint64_t word = 1, result, compare = 0;
	struct couple couple;
	fi_addr_t peer;
	struct fid_ep *ep;

	couple_open(&couple, &one_sided, ALL_KINDS, 0);
	target_open(&couple, &target, FI_REMOTE_READ | FI_REMOTE_WRITE);
	ep = couple.a.side.ep;
	peer = couple.a.side.peer;
	for (uint64_t i = 0, size = 1; size <= sizeof(buf); i++, size *= 4) {
		post(&couple.pair, fi_write(ep, buf, size, NULL, peer, target.addr, target.key, NULL));
		until(&couple,
		      value(&couple.a, WRITES) == i + 1 && value(&couple.b, REMOTE_WRITES) == i + 1);
		post(&couple.pair, fi_read(ep, buf, size, NULL, peer, target.addr, target.key, NULL));
		until(&couple,
		      value(&couple.a, READS) == i + 1 && value(&couple.b, REMOTE_READS) == i + 1);
	}
	post(&couple.pair, fi_inject_write(ep, buf, 8, peer, target.addr, target.key));
	until(&couple, value(&couple.a, WRITES) == 10 && value(&couple.b, REMOTE_WRITES) == 10);
	post(&couple.pair,
	     fi_atomic(ep, &word, 1, NULL, peer, target.addr, target.key, FI_UINT64, FI_SUM, NULL));
	until(&couple, value(&couple.a, WRITES) == 11 && value(&couple.b, REMOTE_WRITES) == 11);
	post(&couple.pair, fi_fetch_atomic(ep, &word, 1, NULL, &result, NULL, peer, target.addr,
					   target.key, FI_UINT64, FI_SUM, NULL));
	until(&couple, value(&couple.a, READS) == 10 && value(&couple.b, REMOTE_READS) == 10);
	post(&couple.pair, fi_compare_atomic(ep, &word, 1, NULL, &compare, NULL, &result, NULL, peer,
					     target.addr, target.key, FI_UINT64, FI_CSWAP, NULL));
	until(&couple, value(&couple.a, READS) == 11 && value(&couple.b, REMOTE_READS) == 11);
	couple_settle(&couple);
	for (int kind = 0; kind < KINDS; kind++) {
		gives(value(&couple.a, kind), kind == READS || kind == WRITES ? 11 : 0);
		gives(value(&couple.b, kind), kind == REMOTE_READS || kind == REMOTE_WRITES ? 11 : 0);
		gives(errors(&couple.a, kind), 0);
		gives(errors(&couple.b, kind), 0);
	}
	gives(fi_close(&target.mr->fid), 0);
	couple_close(&couple);
}

/* An injected atomic of an endpoint that asks for delivery counts when the target, which does not poll, has done it. */
static void delivery(void)
{
	struct pair_want want = one_sided;
	static struct target target;
	struct couple couple;
	uint64_t word = 1;
	struct fid_ep *ep;

	want.tx_op_flags = FI_DELIVERY_COMPLETE;
	couple_open(&couple, &want, ALL_KINDS, 0);
	target_open(&couple, &target, FI_REMOTE_WRITE);
	ep = couple.a.side.ep;
	for (uint64_t count = 1; count <= 2; count++) {
		post(&couple.pair, fi_inject_atomic(ep, &word, 1, couple.a.side.peer, target.addr,
						    target.key, FI_UINT64, FI_SUM));
		for (int i = 0; count > 1 && i < 100; i++)
			gives(value(&couple.a, WRITES), count - 1);
		until(&couple, value(&couple.a, WRITES) == count);
		memcpy(&word, target.bytes, sizeof(word));
		gives(word, count);
		word = 1;
	}
	gives(fi_close(&target.mr->fid), 0);
	couple_close(&couple);
}

/* So do injected messages, of an endpoint that asks for delivery or for the match: when they are received. */
static void delivery_of_messages(void)
{
	static const uint64_t levels[] = { FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE };
	struct pair_want want = { .caps = FI_MSG | FI_TAGGED };
	struct couple couple;
	char in[8];

	for (int way = 0; way < 8; way++) {
		const struct counted *a = &couple.a;
		struct fid_ep *ep, *to;

		want.tx_op_flags = levels[way / 4];
		couple_open(&couple, &want, FI_SEND | FI_RECV, 0);
		ep = couple.a.side.ep;
		to = couple.b.side.ep;
		post(&couple.pair, way % 4 == 0	  ? fi_inject(ep, "x", 1, a->side.peer)
				   : way % 4 == 1 ? fi_injectdata(ep, "x", 1, 1, a->side.peer)
				   : way % 4 == 2 ? fi_tinject(ep, "x", 1, a->side.peer, 0)
						  : fi_tinjectdata(ep, "x", 1, 1, a->side.peer, 0));
		for (int i = 0; i < 100; i++)
			gives(value(a, SENDS), 0);
		gives(way % 4 < 2 ? fi_recv(to, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in)
				  : fi_trecv(to, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 0, 0, in),
		      0);
		until(&couple, value(a, SENDS) == 1);
		couple_settle(&couple);
		couple_close(&couple);
	}
}

/* Immediate data is a write, whatever else it reports. */
static void write_with_data(void)
{
	static struct target target;
	struct couple couple;
	char buf[8] = "data";

	couple_open(&couple, &one_sided, ALL_KINDS, FI_TRANSMIT | FI_RECV);
	target_open(&couple, &target, FI_REMOTE_WRITE);
	post(&couple.pair, fi_writedata(couple.a.side.ep, buf, sizeof(buf), NULL, 99, couple.a.side.peer,
					target.addr, target.key, NULL));
	until(&couple, value(&couple.b, REMOTE_WRITES) == 1 && value(&couple.a, WRITES) == 1);
	gives(pair_done(&couple.pair, &couple.b.side).entry.data, 99);
	couple_settle(&couple);
	gives(value(&couple.b, RECVS), 0);
	gives(value(&couple.b, REMOTE_WRITES), 1);
	gives(fi_close(&target.mr->fid), 0);
	couple_close(&couple);
}

/* A wrong key and a forbidden access count as errors of the initiator and as nothing of the target. */
static void one_sided_errors(void)
{
	static struct target target;
	struct couple couple;
	char buf[8] = "data";

	couple_open(&couple, &one_sided, ALL_KINDS, 0);
	target_open(&couple, &target, FI_REMOTE_READ);
	post(&couple.pair,
	     fi_write(couple.a.side.ep, buf, 8, NULL, couple.a.side.peer, target.addr, target.key, NULL));
	until(&couple, errors(&couple.a, WRITES) == 1);
	post(&couple.pair, fi_read(couple.a.side.ep, buf, 8, NULL, couple.a.side.peer, target.addr,
				   target.key + 1, NULL));
	until(&couple, errors(&couple.a, READS) == 1);
	couple_settle(&couple);
	gives(value(&couple.a, WRITES), 0);
	gives(value(&couple.a, READS), 0);
	gives(value(&couple.b, REMOTE_WRITES), 0);
	gives(value(&couple.b, REMOTE_READS), 0);
	gives(fi_close(&target.mr->fid), 0);
	couple_close(&couple);
}

#define ONE_SIDED(env)                                                                                    \
	ALONE_ENV(reads_and_writes, env), ALONE_ENV(write_with_data, env), ALONE_ENV(one_sided_errors, env)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(open_attributes),
		ALONE(read_and_write),
		ALONE(control),
		ALONE(wait_results),
		ALONE_ENV(polls_before_it_rests, "FI_SHMCMA_YIELD=always"),
		ALONE_ENV(polls_after_a_brief_sleep, "FI_SHMCMA_YIELD=never"),
		ALONE_ENV(yields_after_a_brief_sleep, "FI_SHMCMA_YIELD=always"),
		ALONE(woken_by_others),
		ALONE(bind_flags),
		ALONE(bind_unseen),
		ALONE(instead_of_queues),
		ALONE(plain_messages),
		ALONE(tagged_messages),
		ALONE_ENV(tagged_messages, "FI_SHMCMA_CMA=0"),
		ALONE(silent_messages),
		ALONE(multi_receive),
		ALONE(shared_counter),
		ALONE(progress_of_the_domain),
		ALONE(truncated),
		ALONE(wait_for_error),
		ALONE(wait_for_earlier_error),
		ALONE(cancelled),
		ALONE(peer_closed),
		ALONE(peek_and_discard),
		BOTH(ping, pong),
		BOTH_ENV(ping, pong, "FI_SHMCMA_CMA=0"),
		ALONE(delivery),
		ALONE(delivery_of_messages),
		ONE_SIDED(NULL),
		ONE_SIDED("FI_SHMCMA_CMA=0"),
		ONE_SIDED("FI_SHMCMA_RMA=strict"),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
