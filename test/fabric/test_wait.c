/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_wait.c: wait objects, fi_trywait(), blocking reads, wait sets and poll sets: fi_poll(3) and what fi_cq(3),
 * fi_cntr(3), fi_eq(3) say of waiting, call by call. That nothing is slept through: test/multi/test_wait.c.
 */
#include "pair.h"
#include "refuse.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>

static char out[64], in[64], large_out[1 << 20], large_in[1 << 20];

static const enum fi_wait_obj objects[] = { FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_POLLFD,
					    FI_WAIT_YIELD };
#define OBJECTS (sizeof(objects) / sizeof(objects[0]))

static int try_one(struct pair *pair, struct fid *fid)
{
	return fi_trywait(pair->fabric, &fid, 1);
}

/* Of FI_WAIT_FD or FI_WAIT_POLLFD. */
static int fd_of(struct fid *fid)
{
	struct pollfd polls[1] = { { .fd = -1 } };
	struct fi_wait_pollfd shown = { .nfds = 1, .fd = polls };
	enum fi_wait_obj obj;

	gives(fi_control(fid, FI_GETWAITOBJ, &obj), 0);
	gives(fi_control(fid, FI_GETWAIT, obj == FI_WAIT_POLLFD ? (void *)&shown : &polls[0].fd), 0);
	must(polls[0].fd >= 0);
	return polls[0].fd;
}

static int is_readable(int fd, int timeout)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	return poll(&wait, 1, timeout);
}

static void send_to(struct side *from)
{
	ssize_t ret;

	while ((ret = fi_send(from->ep, out, sizeof(out), NULL, from->peer, out)) == -FI_EAGAIN)
		(void)fi_cq_read(from->cq, NULL, 0);
	gives(ret, 0);
	pair_seen.sent++;
}

static void post_to(struct side *side)
{
	gives(fi_recv(side->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
}

/* All completions of that queue; how many. */
static int drain(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;
	int count = 0;
	ssize_t ret;

	while ((ret = fi_cq_read(cq, &entry, 1)) == 1) {
		pair_seen.received += !!(entry.flags & FI_RECV);
		count++;
	}
	gives(ret, -FI_EAGAIN);
	return count;
}

/*
 * A thread may sleep on the object: fi_trywait() says so, and the descriptor. A wake-up that comes late, or without a
 * completion, is consumed by further tries.
 */
static void may_sleep_on(struct pair *pair, struct fid *fid)
{
	while (try_one(pair, fid) || is_readable(fd_of(fid), 0))
		if (fid->fclass == FI_CLASS_CQ)
			drain((struct fid_cq *)fid);
}

static struct fid_cntr *open_cntr(struct pair *pair, enum fi_wait_obj obj, struct fid_wait *set)
{
	struct fi_cntr_attr attr = { .wait_obj = obj, .wait_set = set };
	struct fid_cntr *cntr;

	gives(fi_cntr_open(pair->domain, &attr, &cntr, &attr), 0);
	return cntr;
}

/* A further endpoint, whose receives are counted. */
static struct fid_ep *open_counted(struct pair *pair, struct fid_cq *cq, struct fid_cntr *cntr)
{
	struct fid_ep *ep = pair_open_ep(pair);
	char name[64];
	size_t len = sizeof(name);

	pair_bind(ep, cq, pair->b.av);
	gives(fi_ep_bind(ep, &cntr->fid, FI_RECV), 0);
	gives(fi_enable(ep), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	pair->a.peer = pair_insert(pair->a.av, name);
	return ep;
}

/* ---- objects --------------------------------------------------------------------------------- */

/* The one descriptor of a FI_WAIT_POLLFD object: only a caller with room for it gets it. */
static void check_pollfd(struct fid *fid)
{
	struct pollfd polls[2] = { { .fd = -1 }, { .fd = -1 } };
	struct fi_wait_pollfd shown = { .nfds = 0 };
	uint64_t index;

	gives(fi_control(fid, FI_GETWAIT, &shown), -FI_ETOOSMALL);
	gives(shown.nfds, 1);
	index = shown.change_index;
	gives(fi_control(fid, FI_GETWAIT, &shown), -FI_EINVAL); /* room, and no array */
	shown = (struct fi_wait_pollfd){ .nfds = 2, .fd = polls };
	gives(fi_control(fid, FI_GETWAIT, &shown), 0);
	gives(shown.nfds, 1);
	must(shown.change_index == index && index);
	must(polls[0].fd >= 0 && polls[0].events == POLLIN && polls[1].fd == -1);
	gives(poll(polls, 1, 0), 0);
}

static void check_object(struct fid *fid, enum fi_wait_obj obj)
{
	enum fi_wait_obj got = FI_WAIT_NONE;
	struct fi_mutex_cond condition = { NULL, NULL };
	void *nothing;

	gives(fi_control(fid, FI_GETWAITOBJ, &got), 0);
	gives(got, obj);
	gives(fi_control(fid, FI_GETWAIT, NULL), -FI_EINVAL);
	gives(fi_control(fid, FI_GETWAITOBJ, NULL), -FI_EINVAL);
	if (obj == FI_WAIT_FD) {
		gives(is_readable(fd_of(fid), 0), 0);
	} else if (obj == FI_WAIT_POLLFD) {
		check_pollfd(fid);
	} else if (obj == FI_WAIT_MUTEX_COND) {
		gives(fi_control(fid, FI_GETWAIT, &condition), 0);
		must(condition.mutex && condition.cond);
		gives(pthread_mutex_trylock(condition.mutex), 0);
		gives(pthread_mutex_unlock(condition.mutex), 0);
	} else {
		gives(fi_control(fid, FI_GETWAIT, &nothing), -FI_ENODATA);
	}
}

static void every_object(void)
{
	struct pair pair;

	pair_open_domain(&pair, NULL);
	for (size_t i = 0; i < OBJECTS; i++) {
		struct fi_cq_attr cq_attr = { .wait_obj = objects[i] };
		struct fi_cntr_attr cntr_attr = { .wait_obj = objects[i] };
		struct fi_eq_attr eq_attr = { .wait_obj = objects[i] };
		struct fi_wait_attr set_attr = { .wait_obj = objects[i] };
		struct fid_wait *set;
		struct fid_cntr *cntr;
		struct fid_cq *cq;
		struct fid_eq *eq;

		gives(fi_cq_open(pair.domain, &cq_attr, &cq, NULL), 0);
		gives(fi_cntr_open(pair.domain, &cntr_attr, &cntr, NULL), 0);
		gives(fi_eq_open(pair.fabric, &eq_attr, &eq, NULL), 0);
		gives(fi_wait_open(pair.fabric, &set_attr, &set), 0);
		check_object(&cq->fid, objects[i]);
		check_object(&cntr->fid, objects[i]);
		check_object(&eq->fid, objects[i]);
		check_object(&set->fid, objects[i]);
		gives(try_one(&pair, &cq->fid), 0);
		gives(try_one(&pair, &cntr->fid), 0);
		gives(try_one(&pair, &eq->fid), 0);
		gives(try_one(&pair, &set->fid), 0);
		gives(fi_close(&cq->fid), 0);
		gives(fi_close(&cntr->fid), 0);
		gives(fi_close(&eq->fid), 0);
		gives(fi_close(&set->fid), 0);
	}
	pair_close(&pair);
}

static void no_descriptor_left(void)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_cq *cq;
	struct pair pair;
	int taken[4096], count = 0;

	pair_open_domain(&pair, NULL);
	while (count < 4096 && (taken[count] = dup(STDERR_FILENO)) >= 0)
		count++;
	if (count < 4096)
		gives(fi_cq_open(pair.domain, &attr, &cq, NULL), -FI_EMFILE);
	while (count)
		close(taken[--count]);
	gives(fi_cq_open(pair.domain, &attr, &cq, NULL), 0);
	gives(fi_close(&cq->fid), 0);
	pair_close(&pair);
}

/* ---- fi_trywait ------------------------------------------------------------------------------ */

static void trywait_errors(void)
{
	struct pair pair;
	struct fid *both[2];

	pair_open(&pair, NULL); /* queues with FI_WAIT_NONE */
	gives(try_one(&pair, &pair.a.cq->fid), -FI_EINVAL);
	gives(try_one(&pair, &pair.a.ep->fid), -FI_EINVAL);
	gives(fi_trywait(pair.fabric, both, 0), 0);
	gives(fi_cq_signal(pair.a.cq), -FI_ENOSYS);
	gives(fi_cq_sread(pair.a.cq, in, 1, NULL, 0), -FI_ENOSYS);
	pair_close(&pair);
}

/* A message makes the descriptor readable; it stays so until the application has read and tried again. */
static void check_descriptor(enum fi_wait_obj obj)
{
	struct pair_want want = { .wait_obj = obj };
	struct pair pair;
	int fd;

	pair_open(&pair, &want);
	fd = fd_of(&pair.b.cq->fid);
	for (int i = 0; i < 20; i++) {
		gives(drain(pair.b.cq), 0);
		may_sleep_on(&pair, &pair.b.cq->fid);
		post_to(&pair.b);
		send_to(&pair.a);
		gives(is_readable(fd, -1), 1);
		gives(is_readable(fd, 0), 1);
		gives(try_one(&pair, &pair.b.cq->fid), -FI_EAGAIN); /* it takes the message in */
		gives(drain(pair.b.cq), 1);
		drain(pair.a.cq);
	}
	pair_close(&pair);
}

static void descriptor(void)
{
	check_descriptor(FI_WAIT_FD);
}

static void descriptor_array(void)
{
	check_descriptor(FI_WAIT_POLLFD);
}

/* Operations that end in the call of another thread, or of this one, are signalled, too. */
static void descriptor_local(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_FD };
	struct pair pair;
	int fd;

	pair_open(&pair, &want);
	fd = fd_of(&pair.a.cq->fid);
	for (int i = 0; i < 20; i++) {
		post_to(&pair.b);
		gives(try_one(&pair, &pair.a.cq->fid), 0);
		send_to(&pair.a);
		gives(is_readable(fd, -1), 1);
		gives(drain(pair.a.cq), 1);
		while (!drain(pair.b.cq))
			;
		may_sleep_on(&pair, &pair.a.cq->fid);
	}
	gives(fi_cq_signal(pair.a.cq), 0);
	gives(is_readable(fd, 0), 1);
	gives(try_one(&pair, &pair.a.cq->fid), -FI_EAGAIN); /* told of the signal, */
	gives(try_one(&pair, &pair.a.cq->fid), 0);	    /* once */
	pair_close(&pair);
}

/* The application closes all descriptors and uses their numbers: nothing is written there, nor closed. */
static void descriptors_taken(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_FD };
	int fds[2][2], ends[2];
	char byte;
	struct pair pair;

	pair_open(&pair, &want);
	ends[0] = fd_of(&pair.a.cq->fid);
	ends[1] = ends[0] + 1;
	gives(try_one(&pair, &pair.a.cq->fid), 0);
	for (int i = 0; i < 2; i++) {
		gives(pipe2(fds[i], O_NONBLOCK), 0);
		must(dup2(fds[i][1], ends[i]) == ends[i]);
	}
	post_to(&pair.b);
	send_to(&pair.a);
	gives(drain(pair.a.cq), 1);
	while (!drain(pair.b.cq))
		;
	gives(fi_close(&pair.a.ep->fid), 0);
	gives(fi_close(&pair.a.cq->fid), 0);
	pair.a.ep = NULL;
	pair.a.cq = NULL;
	for (int i = 0; i < 2; i++) {
		gives(read(fds[i][0], &byte, 1), -1);
		must(fcntl(ends[i], F_GETFD) >= 0);
		close(ends[i]);
		close(fds[i][0]);
		close(fds[i][1]);
	}
	pair_close(&pair);
}

/* The application closes the descriptor that it has got; the provider has no reader then. */
static void descriptor_closed(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_FD };
	struct pair pair;

	pair_open(&pair, &want);
	close(fd_of(&pair.a.cq->fid));
	gives(fi_cq_signal(pair.a.cq), 0);
	pair_close(&pair);
}

static struct pair *_Atomic trying; /* its next signal meets a fi_trywait(); NULL: none does */
static struct fid *tried;

/* Takes the place of the C library's: a fi_trywait() comes between the two steps of a signal. */
__attribute__((visibility("default"))) ssize_t write(int fd, const void *buf, size_t len)
{
	struct pair *pair = atomic_exchange(&trying, NULL);

	while (pair && try_one(pair, tried))
		; /* -FI_EAGAIN: it takes the signal */
	return syscall(SYS_write, fd, buf, len);
}

/*
 * The descriptor is readable after that signal, and a later fi_trywait() empties it. Nothing else signals this queue,
 * because it has no endpoint.
 */
static void descriptor_tried_meanwhile(void)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_FD };
	struct fid_cq *cq;
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_cq_open(pair.domain, &attr, &cq, NULL), 0);
	gives(try_one(&pair, &cq->fid), 0);
	tried = &cq->fid;
	trying = &pair;
	gives(fi_cq_signal(cq), 0);
	must(!trying);
	gives(is_readable(fd_of(&cq->fid), 0), 1);
	gives(try_one(&pair, &cq->fid), 0);
	gives(is_readable(fd_of(&cq->fid), 0), 0);
	gives(fi_close(&cq->fid), 0);
	pair_close(&pair);
}

/* ---- a thread that waits --------------------------------------------------------------------- */

struct waiter {
	struct pair *pair;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	struct fid_wait *set;
	uint64_t threshold;
	int limit; /* ms; 0: none */
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;
	atomic_bool begun, ended;
	atomic_long ret;
	pthread_t thread;
	pid_t tid;
	clockid_t clock;  /* the thread's processor time */
	int64_t clock_at; /* when it began; ns */
	int64_t took;	  /* ns */
};

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now))
		return INT64_MAX; /* the thread has ended */
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static long wait_call(struct waiter *waiter, int timeout)
{
	struct fi_eq_entry event;
	uint32_t type;

	if (waiter->cq)
		return fi_cq_sreadfrom(waiter->cq, &waiter->entry, 1, &waiter->source, NULL, timeout);
	if (waiter->cntr)
		return fi_cntr_wait(waiter->cntr, waiter->threshold, timeout);
	if (waiter->eq)
		return fi_eq_sread(waiter->eq, &type, &event, sizeof(event), timeout, 0);
	return fi_wait(waiter->set, timeout);
}

static void *wait_in_thread(void *arg)
{
	struct waiter *waiter = arg;
	int64_t start = clock_ns(CLOCK_MONOTONIC);

	waiter->tid = gettid();
	gives(pthread_getcpuclockid(pthread_self(), &waiter->clock), 0);
	waiter->clock_at = clock_ns(waiter->clock);
	waiter->begun = true;
	waiter->ret = wait_call(waiter, waiter->limit ? waiter->limit : -1);
	waiter->took = clock_ns(CLOCK_MONOTONIC) - start;
	waiter->ended = true;
	return NULL;
}

static bool is_asleep(const struct waiter *waiter)
{
	return pair_is_asleep(waiter->tid);
}

static void await_asleep(const struct waiter *waiter)
{
	while (!is_asleep(waiter))
		usleep(1000);
}

/* It is in its call for certain: it sleeps, or, as with FI_WAIT_YIELD, it has been there for processor time enough. */
static void waiter_await(const struct waiter *waiter)
{
	while (!waiter->begun)
		sched_yield();
	while (!waiter->ended && !is_asleep(waiter) &&
	       clock_ns(waiter->clock) < waiter->clock_at + 2000000)
		usleep(1000);
}

/* It is asleep, as far as can be told; if it should not be, the test is easier. */
static void waiter_start(struct waiter *waiter)
{
	gives(pthread_create(&waiter->thread, NULL, wait_in_thread, waiter), 0);
	while (!waiter->begun)
		sched_yield();
	usleep(20000);
}

static long waiter_end(struct waiter *waiter)
{
	gives(pthread_join(waiter->thread, NULL), 0);
	return waiter->ret;
}

/* ---- fi_cq_sread ----------------------------------------------------------------------------- */

static void sread_message(enum fi_wait_obj obj)
{
	struct pair_want want = { .wait_obj = obj, .caps = FI_MSG | FI_TAGGED | FI_SOURCE };
	struct waiter waiter = { 0 };
	struct pair pair;

	pair_open(&pair, &want);
	gives(fi_cq_sread(pair.b.cq, &waiter.entry, 1, NULL, 0), -FI_EAGAIN);
	gives(fi_cq_sread(pair.b.cq, &waiter.entry, 1, NULL, 20), -FI_EAGAIN);
	post_to(&pair.b);
	waiter.cq = pair.b.cq;
	waiter_start(&waiter);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 1);
	must(waiter.entry.op_context == in && waiter.source == pair.b.peer);
	pair_seen.received++;
	drain(pair.a.cq);
	pair_close(&pair);
}

static void sread_every_object(void)
{
	for (size_t i = 0; i < OBJECTS; i++)
		sread_message(objects[i]);
}

static void sread_signal(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct waiter waiter = { 0 };
	struct pair pair;

	pair_open(&pair, &want);
	waiter.cq = pair.b.cq;
	waiter_start(&waiter);
	gives(fi_cq_signal(pair.b.cq), 0);
	gives(waiter_end(&waiter), -FI_EAGAIN);
	/* one that nobody waits for ends the next wait */
	gives(fi_cq_signal(pair.b.cq), 0);
	gives(fi_cq_sread(pair.b.cq, &waiter.entry, 1, NULL, -1), -FI_EAGAIN);
	gives(fi_cq_sread(pair.b.cq, &waiter.entry, 1, NULL, 1), -FI_EAGAIN);
	pair_close(&pair);
}

/* A thread cannot sleep on several words. It sleeps all the same. */
static void sread_without_waitv(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct waiter waiter = { 0 };
	struct pair pair;

	without_waitv();
	pair_open(&pair, &want);
	post_to(&pair.b);
	waiter.cq = pair.b.cq;
	waiter_start(&waiter);
	await_asleep(&waiter);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 1);
	pair_seen.received++;
	drain(pair.a.cq);
	pair_close(&pair);
}

static atomic_ulong polls;
static struct fi_ops_cq counted_ops;
static const struct fi_ops_cq *real_ops;

static ssize_t counted_readfrom(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *source)
{
	polls++;
	return real_ops->readfrom(cq, buf, count, source);
}

/* A call of fi_cq_sread(3) counts its polls from now on. */
static void count_polls(struct fid_cq *cq)
{
	real_ops = cq->ops;
	counted_ops = *real_ops;
	counted_ops.readfrom = counted_readfrom;
	cq->ops = &counted_ops;
}

/*
 * A thread that wakes to serve a request polls as often before it sleeps again as before it slept first, since the next
 * request may be near.
 */
static void sread_polls_again(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC, .caps = FI_MSG | FI_ATOMIC };
	struct fi_cq_tagged_entry entry;
	uint64_t memory = 0, one = 1, old;
	struct waiter waiter = { 0 };
	unsigned long before;
	struct fid_mr *mr;
	struct pair pair;

	pair_open(&pair, &want);
	gives(fi_mr_reg(pair.domain, &memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0,
			&mr, NULL),
	      0);
	post_to(&pair.b);
	count_polls(pair.b.cq);
	waiter.cq = pair.b.cq;
	waiter_start(&waiter);
	await_asleep(&waiter);
	before = polls;
	must(before >= 10);
	for (int i = 0; i < 20; i++) {
		post(&pair, fi_fetch_atomic(pair.a.ep, &one, 1, NULL, &old, NULL, pair.a.peer, 0, 7,
					    FI_UINT64, FI_SUM, NULL));
		while (fi_cq_read(pair.a.cq, &entry, 1) != 1)
			;
		await_asleep(&waiter);
	}
	must(memory == 20);
	must(polls - before >= 20 * 10);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 1);
	pair_seen.received++;
	drain(pair.a.cq);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

/* The endpoint on whose word a thread sleeps closes: it looks again. On the word of a new one, too, it is woken. */
static void sread_closed(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct waiter waiter = { 0 };
	struct pair pair;
	unsigned long before;
	size_t len = sizeof(pair.b.name);

	pair_open(&pair, &want);
	count_polls(pair.b.cq);
	waiter.cq = pair.b.cq;
	waiter_start(&waiter);
	await_asleep(&waiter);
	before = polls;
	gives(fi_close(&pair.b.ep->fid), 0);
	while (polls == before)
		usleep(1000);
	await_asleep(&waiter);
	pair.b.ep = pair_open_ep(&pair);
	gives(fi_ep_bind(pair.b.ep, &pair.b.av->fid, 0), 0);
	gives(fi_ep_bind(pair.b.ep, &pair.b.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	gives(fi_enable(pair.b.ep), 0);
	gives(fi_getname(&pair.b.ep->fid, pair.b.name, &len), 0);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	post_to(&pair.b);
	await_asleep(&waiter);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 1);
	pair_seen.received++;
	drain(pair.a.cq);
	pair_close(&pair);
}

/* The condition of an object, with its mutex held. */
static struct fi_mutex_cond held_condition(struct fid *fid)
{
	struct fi_mutex_cond condition;

	gives(fi_control(fid, FI_GETWAIT, &condition), 0);
	gives(pthread_mutex_lock(condition.mutex), 0);
	return condition;
}

/* The thread that closes the last endpoint of a queue, and of a counter, holds the mutex of its condition. */
static void closed_with_the_mutex(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_mutex_cond condition;
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, &want);
	condition = held_condition(&pair.b.cq->fid);
	gives(try_one(&pair, &pair.b.cq->fid), 0);
	gives(fi_close(&pair.b.ep->fid), 0);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(fi_close(&pair.a.ep->fid), 0);
	pair.a.ep = pair.b.ep = NULL;
	cntr = open_cntr(&pair, FI_WAIT_MUTEX_COND, NULL);
	ep = open_counted(&pair, pair.b.cq, cntr);
	condition = held_condition(&cntr->fid);
	gives(try_one(&pair, &cntr->fid), 0);
	gives(fi_close(&ep->fid), 0);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

static void *close_in_thread(void *fid)
{
	gives(fi_close(fid), 0);
	return NULL;
}

/*
 * A thread closes an endpoint, and with it the signals of two queues are left to it. Another thread holds the mutex of one and
 * closes the other.
 */
static void closed_beside_a_holder(void)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_mutex_cond condition;
	struct fid_cq *cqs[2];
	struct fid_ep *ep;
	pthread_t thread;
	struct pair pair;

	pair_open(&pair, NULL);
	for (int held = 0; held < 2; held++) {
		ep = pair_open_ep(&pair);
		for (int i = 0; i < 2; i++) {
			gives(fi_cq_open(pair.domain, &attr, &cqs[i], NULL), 0);
			gives(fi_ep_bind(ep, &cqs[i]->fid, i ? FI_RECV : FI_TRANSMIT), 0);
		}
		gives(fi_ep_bind(ep, &pair.b.av->fid, 0), 0);
		gives(fi_enable(ep), 0);
		condition = held_condition(&cqs[held]->fid);
		for (int i = 0; i < 2; i++)
			gives(try_one(&pair, &cqs[i]->fid), 0);
		gives(pthread_create(&thread, NULL, close_in_thread, &ep->fid), 0);
		usleep(20000); /* it waits for the mutex, as far as can be told; else the test is easier */
		while (fi_close(&cqs[!held]->fid) == -FI_EBUSY)
			sched_yield();
		gives(pthread_mutex_unlock(condition.mutex), 0);
		gives(pthread_join(thread, NULL), 0);
		gives(fi_close(&cqs[held]->fid), 0);
	}
	pair_close(&pair);
}

/* A thread that holds the mutex of a condition signals it: by a call for that, and by what it adds to the object. */
static void signalled_with_the_mutex(void)
{
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_eq_attr eq_attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_wait_attr set_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_eq_entry event = { 0 };
	struct fi_mutex_cond condition;
	struct fid_cntr *cntr;
	struct fid_wait *set;
	struct fid_cq *cq;
	struct fid_eq *eq;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	gives(fi_cq_open(pair.domain, &cq_attr, &cq, NULL), 0);
	condition = held_condition(&cq->fid);
	gives(try_one(&pair, &cq->fid), 0);
	gives(fi_cq_signal(cq), 0);
	gives(try_one(&pair, &cq->fid), -FI_EAGAIN);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(fi_close(&cq->fid), 0);

	gives(fi_eq_open(pair.fabric, &eq_attr, &eq, NULL), 0);
	condition = held_condition(&eq->fid);
	gives(try_one(&pair, &eq->fid), 0);
	gives(fi_eq_write(eq, FI_NOTIFY, &event, sizeof(event), 0), sizeof(event));
	gives(try_one(&pair, &eq->fid), -FI_EAGAIN);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(fi_close(&eq->fid), 0);

	cntr = open_cntr(&pair, FI_WAIT_MUTEX_COND, NULL);
	condition = held_condition(&cntr->fid);
	gives(try_one(&pair, &cntr->fid), 0);
	gives(fi_cntr_add(cntr, 1), 0);
	gives(try_one(&pair, &cntr->fid), -FI_EAGAIN);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(fi_close(&cntr->fid), 0);

	gives(fi_wait_open(pair.fabric, &set_attr, &set), 0);
	condition = held_condition(&set->fid);
	cq_attr = (struct fi_cq_attr){ .wait_obj = FI_WAIT_SET, .wait_set = set };
	gives(fi_cq_open(pair.domain, &cq_attr, &cq, NULL), 0);
	gives(try_one(&pair, &set->fid), 0);
	gives(fi_cq_signal(cq), 0);
	gives(try_one(&pair, &set->fid), -FI_EAGAIN);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&set->fid), 0);
	pair_close(&pair);
}

#define TOGETHER 4

/* Threads that wait for the same at one time. */
static void waiters_start(struct waiter waiters[TOGETHER], const struct waiter *as)
{
	for (int i = 0; i < TOGETHER; i++) {
		waiters[i] = *as;
		gives(pthread_create(&waiters[i].thread, NULL, wait_in_thread, &waiters[i]), 0);
	}
	for (int i = 0; i < TOGETHER; i++)
		waiter_await(&waiters[i]);
}

static void waiters_end(struct waiter waiters[TOGETHER], long ret)
{
	for (int i = 0; i < TOGETHER; i++)
		gives(waiter_end(&waiters[i]), ret);
}

/* Each thread that waits returns, for one signal and for more signals than there are threads. */
static void sread_signal_all(void)
{
	for (size_t i = 0; i < OBJECTS * 2; i++) {
		struct pair_want want = { .wait_obj = objects[i / 2] };
		struct waiter waiters[TOGETHER], waiter = { 0 };
		struct pair pair;

		pair_open(&pair, &want);
		waiter.cq = pair.b.cq;
		waiters_start(waiters, &waiter);
		for (int n = 0; n < (i % 2 ? TOGETHER + 1 : 1); n++)
			gives(fi_cq_signal(waiter.cq), 0);
		waiters_end(waiters, -FI_EAGAIN);
		pair_close(&pair);
	}
}

/* A thread waits for an operation that completes in another thread's call. */
static void sread_local(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct waiter waiter = { 0 };
	struct pair pair;

	pair_open(&pair, &want);
	post_to(&pair.b);
	waiter.cq = pair.a.cq;
	waiter_start(&waiter);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 1);
	must(waiter.entry.op_context == out);
	while (!drain(pair.b.cq))
		;
	pair_close(&pair);
}

static void sread_error(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_err_entry error = { 0 };
	struct waiter waiter = { 0 };
	struct pair pair;

	pair_open(&pair, &want);
	post_to(&pair.b);
	waiter.cq = pair.b.cq;
	waiter_start(&waiter);
	gives(fi_cancel(&pair.b.ep->fid, in), 0);
	gives(waiter_end(&waiter), -FI_EAVAIL);
	gives(fi_cq_readerr(pair.b.cq, &error, 0), 1);
	gives(error.err, FI_ECANCELED);
	pair_close(&pair);
}

#define MANY 5

/* One queue of several endpoints: whichever gets the message. */
static void sread_many(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_ep *eps[MANY];
	struct fid_cq *cq;
	struct pair pair;

	pair_open(&pair, &want);
	cq = pair_open_cq(&pair);
	for (int i = 0; i < MANY; i++) {
		eps[i] = pair_open_ep(&pair);
		pair_bind(eps[i], cq, pair.b.av);
		gives(fi_enable(eps[i]), 0);
	}
	for (int i = 0; i < 3 * MANY; i++) {
		struct waiter waiter = { .cq = cq };
		char name[64];
		size_t len = sizeof(name);

		gives(fi_getname(&eps[i % MANY]->fid, name, &len), 0);
		gives(fi_recv(eps[i % MANY], in, sizeof(in), NULL, FI_ADDR_UNSPEC, eps[i % MANY]), 0);
		pair.a.peer = pair_insert(pair.a.av, name);
		waiter_start(&waiter);
		send_to(&pair.a);
		gives(waiter_end(&waiter), 1);
		must(waiter.entry.op_context == eps[i % MANY]);
		pair_seen.received++;
		drain(pair.a.cq);
	}
	for (int i = 0; i < MANY; i++)
		gives(fi_close(&eps[i]->fid), 0);
	gives(fi_close(&cq->fid), 0);
	pair_close(&pair);
}

/* A sender that found no room, and sleeps, is told when there is some: by -FI_EAGAIN, as nothing has completed. */
static void sread_refused(struct pair *pair)
{
	struct fi_cq_tagged_entry entry;
	int sent = 0;
	ssize_t ret;
	char byte = 0;

	while ((ret = fi_send(pair->a.ep, out, sizeof(out), NULL, pair->a.peer, out)) == 0) {
		sent++;
		while (fi_cq_read(pair->a.cq, &entry, 1) == 1)
			;
	}
	gives(ret, -FI_EAGAIN);
	gives(write(pair->link, &byte, 1), 1);
	do
		gives(fi_cq_sread(pair->a.cq, &entry, 1, NULL, -1), -FI_EAGAIN);
	while ((ret = fi_send(pair->a.ep, out, sizeof(out), NULL, pair->a.peer, out)) == -FI_EAGAIN);
	gives(ret, 0);
	pair_seen.sent += sent + 1;
	sent++;
	gives(write(pair->link, &sent, sizeof(sent)), sizeof(sent));
	while (read(pair->link, &byte, 1) != 1)
		(void)fi_cq_read(pair->a.cq, &entry, 0);
	drain(pair->a.cq);
}

static void sread_refusing(struct pair *pair)
{
	int sent, got = 0;
	char byte;

	gives(read(pair->link, &byte, 1), 1);
	usleep(50000);
	for (got = 0; got < 500; got++) {
		post_to(&pair->a);
		if (!fi_cq_read(pair->a.cq, NULL, 0))
			continue;
	}
	gives(read(pair->link, &sent, sizeof(sent)), sizeof(sent));
	for (; got < sent; got++)
		post_to(&pair->a);
	for (got = 0; got < sent; got += drain(pair->a.cq))
		;
	gives(write(pair->link, &byte, 1), 1);
}

/* A large message that has come is received by another thread than the one that sleeps, which goes on with it. */
static void sread_begun(struct pair *pair)
{
	struct waiter waiter = { .cq = pair->a.cq };
	char byte;

	/* it is sent, and waits here */
	gives(read(pair->link, &byte, 1), 1);
	for (int i = 0; i < 1000; i++)
		gives(fi_cq_read(pair->a.cq, NULL, 0), -FI_EAGAIN);
	waiter_start(&waiter);
	gives(fi_recv(pair->a.ep, large_in, sizeof(large_in), NULL, FI_ADDR_UNSPEC, large_in), 0);
	gives(waiter_end(&waiter), 1);
	must(waiter.entry.op_context == large_in && waiter.entry.len == sizeof(large_in));
	gives(memcmp(large_in, large_out, sizeof(large_in)), 0);
	pair_seen.received++;
	gives(write(pair->link, &byte, 1), 1);
}

/* It makes no progress meanwhile. */
static void sread_begins(struct pair *pair)
{
	char byte = 0;
	ssize_t ret;

	while ((ret = fi_send(pair->a.ep, large_out, sizeof(large_out), NULL, pair->a.peer, large_out)) ==
	       -FI_EAGAIN)
		(void)fi_cq_read(pair->a.cq, NULL, 0);
	gives(ret, 0);
	pair_seen.sent++;
	gives(write(pair->link, &byte, 1), 1);
	gives(read(pair->link, &byte, 1), 1);
	while (!drain(pair->a.cq))
		;
}

/* An endpoint is enabled on a queue that a thread sleeps on: its messages are waited for, too. */
static void sread_enabled(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct waiter waiter = { 0 };
	struct pair pair;
	struct fid_ep *ep;
	char name[64];
	size_t len = sizeof(name);

	pair_open(&pair, &want);
	waiter.cq = pair_open_cq(&pair);
	ep = pair_open_ep(&pair);
	pair_bind(ep, waiter.cq, pair.b.av);
	waiter_start(&waiter);
	gives(fi_enable(ep), 0);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, ep), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	pair.a.peer = pair_insert(pair.a.av, name);
	usleep(20000);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 1);
	must(waiter.entry.op_context == ep);
	pair_seen.received++;
	drain(pair.a.cq);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&waiter.cq->fid), 0);
	pair_close(&pair);
}

/* An endpoint that is a target and nothing else; a wait for a queue of its domain makes progress for it. */
struct target {
	struct pair pair;
	struct fid_ep *ep;
	struct fid_mr *mr;
	uint64_t word;
	char name[64];
};

static void target_open(struct target *target, enum fi_wait_obj obj)
{
	struct pair_want want = { .wait_obj = obj, .caps = FI_RMA | FI_ATOMIC };

	pair_open(&target->pair, &want);
	target->ep = pair_open_ep(&target->pair);
	target->word = 0;
	gives(fi_ep_bind(target->ep, &target->pair.a.av->fid, 0), 0);
	gives(fi_mr_reg(target->pair.domain, &target->word, sizeof(target->word), FI_REMOTE_WRITE, 0, 77,
			0, &target->mr, NULL),
	      0);
}

static void target_enable(struct target *target)
{
	size_t len = sizeof(target->name);

	gives(fi_enable(target->ep), 0);
	gives(fi_getname(&target->ep->fid, target->name, &len), 0);
}

static void target_close(struct target *target)
{
	gives(fi_close(&target->mr->fid), 0);
	gives(fi_close(&target->ep->fid), 0);
	pair_close(&target->pair);
}

/* From another domain, whose queues alone are read here. */
static void target_add(struct pair *pair, const struct target *target, uint64_t more)
{
	fi_addr_t to = pair_insert(pair->a.av, target->name);

	post(pair,
	     fi_atomic(pair->a.ep, &more, 1, NULL, to, 0, fi_mr_key(target->mr), FI_UINT64, FI_SUM, NULL));
	pair_done(pair, &pair->a);
}

static void sread_target(void)
{
	struct pair_want want = { .caps = FI_RMA | FI_ATOMIC, .tx_op_flags = FI_DELIVERY_COMPLETE };
	struct pair pair;

	pair_open(&pair, &want);
	for (size_t i = 0; i < OBJECTS * 2; i++) {
		struct waiter waiter = { 0 };
		struct target target;

		target_open(&target, objects[i / 2]);
		waiter.cq = target.pair.a.cq;
		if (i % 2)
			target_enable(&target);
		waiter_start(&waiter);
		if (!(i % 2)) { /* while it sleeps */
			target_enable(&target);
			usleep(20000);
		}
		target_add(&pair, &target, 5);
		gives(target.word, 5);
		gives(fi_cq_signal(waiter.cq), 0);
		gives(waiter_end(&waiter), -FI_EAGAIN);
		target_close(&target);
	}
	pair_close(&pair);
}

static void nothing_happens(int number)
{
	(void)number;
}

/* A signal to the thread ends the wait. */
static void sread_interrupted(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct sigaction action = { .sa_handler = nothing_happens };
	struct waiter waiter = { 0 };
	struct pair pair;

	gives(sigaction(SIGUSR1, &action, NULL), 0);
	pair_open(&pair, &want);
	waiter.cq = pair.b.cq;
	waiter_start(&waiter);
	while (!waiter.ret) {
		gives(pthread_kill(waiter.thread, SIGUSR1), 0);
		usleep(10000);
	}
	gives(waiter_end(&waiter), -FI_EAGAIN);
	pair_close(&pair);
}

static atomic_uint interrupts;

static void interrupted(int number)
{
	(void)number;
	interrupts++;
}

#define LIMIT 200 /* ms */

/* Signals come while it waits; it returns when the time is over, and not before. True: one came in time. */
static bool waits_until(const struct waiter *as, int limit, long ret)
{
	struct waiter waiter = *as;
	unsigned int before = interrupts;

	waiter.limit = limit;
	gives(pthread_create(&waiter.thread, NULL, wait_in_thread, &waiter), 0);
	waiter_await(&waiter);
	while (!waiter.ended) {
		gives(pthread_kill(waiter.thread, SIGUSR1), 0);
		usleep(1000);
	}
	gives(waiter_end(&waiter), ret);
	must(waiter.took >= limit * INT64_C(1000000));
	return interrupts != before;
}

/* On a machine with other load this thread may come too late to signal: then it has more time. */
static void waits_out(const struct waiter *as, long ret)
{
	int limit = LIMIT;

	while (!waits_until(as, limit, ret))
		limit *= 2;
}

static void interrupted_with_limit(void)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		struct pair_want want = { .wait_obj = objects[i] };
		struct fi_eq_attr eq_attr = { .wait_obj = objects[i] };
		struct fi_cntr_attr cntr_attr = { .wait_obj = objects[i] };
		struct sigaction action = { .sa_handler = interrupted };
		struct fid_cntr *cntr;
		struct fid_eq *eq;
		struct pair pair;

		gives(sigaction(SIGUSR1, &action, NULL), 0);
		pair_open(&pair, &want);
		gives(fi_eq_open(pair.fabric, &eq_attr, &eq, NULL), 0);
		gives(fi_cntr_open(pair.domain, &cntr_attr, &cntr, NULL), 0);
		waits_out(&(struct waiter){ .cq = pair.b.cq }, -FI_EAGAIN);
		waits_out(&(struct waiter){ .eq = eq }, -FI_EAGAIN);
		waits_out(&(struct waiter){ .cntr = cntr, .threshold = 1 }, -FI_ETIMEDOUT);
		gives(fi_close(&cntr->fid), 0);
		gives(fi_close(&eq->fid), 0);
		pair_close(&pair);
	}
}

/* ---- counters -------------------------------------------------------------------------------- */

/*
 * A counter counts for memory, and so for another endpoint, while a thread sleeps on it: from then on the thread makes
 * progress for that endpoint.
 */
static void counter_bound_later(void)
{
	struct pair_want want = { .caps = FI_RMA | FI_ATOMIC, .tx_op_flags = FI_DELIVERY_COMPLETE };
	struct waiter waiter = { .threshold = 1 };
	struct target target;
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, &want);
	target_open(&target, FI_WAIT_UNSPEC);
	gives(fi_ep_bind(target.ep, &target.pair.a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	target_enable(&target);
	waiter.cntr = open_cntr(&target.pair, FI_WAIT_UNSPEC, NULL);
	ep = open_counted(&target.pair, target.pair.b.cq, waiter.cntr);
	gives(drain(target.pair.a.cq), 0); /* now all endpoints of the domain are idle */
	gives(drain(target.pair.b.cq), 0);
	gives(pthread_create(&waiter.thread, NULL, wait_in_thread, &waiter), 0);
	waiter_await(&waiter);
	gives(fi_mr_bind(target.mr, &waiter.cntr->fid, FI_REMOTE_WRITE), 0);
	target_add(&pair, &target, 5);
	gives(waiter_end(&waiter), 0);
	gives(fi_close(&target.mr->fid), 0);
	gives(fi_close(&waiter.cntr->fid), -FI_EBUSY);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&waiter.cntr->fid), 0);
	gives(fi_close(&target.ep->fid), 0);
	pair_close(&target.pair);
	pair_close(&pair);
}

/* An error ends all waits, without a time-out and under signals, too; so does the count that they wait for. */
static void counter_ends_all(void)
{
	static const enum fi_wait_obj obj[] = { FI_WAIT_NONE,	    FI_WAIT_UNSPEC, FI_WAIT_FD,
						FI_WAIT_MUTEX_COND, FI_WAIT_POLLFD, FI_WAIT_YIELD };
	struct sigaction action = { .sa_handler = interrupted };

	gives(sigaction(SIGUSR1, &action, NULL), 0);
	for (size_t i = 0; i < sizeof(obj) / sizeof(obj[0]) * 2; i++) {
		struct waiter waiters[TOGETHER], waiter = { .threshold = 3 };
		struct pair pair;

		pair_open(&pair, NULL);
		waiter.cntr = open_cntr(&pair, obj[i / 2], NULL);
		waiters_start(waiters, &waiter);
		for (int n = 0; n < TOGETHER; n++)
			gives(pthread_kill(waiters[n].thread, SIGUSR1), 0);
		gives(i % 2 ? fi_cntr_adderr(waiter.cntr, 1) : fi_cntr_add(waiter.cntr, 3), 0);
		waiters_end(waiters, i % 2 ? -FI_EAVAIL : 0);
		gives(fi_close(&waiter.cntr->fid), 0);
		pair_close(&pair);
	}
}

static void counter_waits(enum fi_wait_obj obj)
{
	struct waiter waiter = { .threshold = 2 };
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, NULL);
	cntr = waiter.cntr = open_cntr(&pair, obj, NULL);
	ep = open_counted(&pair, pair.b.cq, cntr);
	for (int i = 0; i < 2; i++)
		gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	waiter_start(&waiter);
	send_to(&pair.a);
	usleep(2000);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 0);
	gives(fi_cntr_wait(cntr, 3, 20), -FI_ETIMEDOUT);

	waiter.threshold = 10; /* by another thread */
	waiter.begun = false;
	waiter_start(&waiter);
	gives(fi_cntr_add(cntr, 8), 0);
	gives(waiter_end(&waiter), 0);

	waiter.threshold = 11;
	waiter.begun = false;
	waiter_start(&waiter);
	gives(fi_cntr_adderr(cntr, 1), 0);
	gives(waiter_end(&waiter), -FI_EAVAIL);
	gives(drain(pair.b.cq), 2);
	drain(pair.a.cq);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

static void counter_every_object(void)
{
	for (size_t i = 0; i < OBJECTS; i++)
		counter_waits(objects[i]);
}

static void counter_descriptor(void)
{
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct pair pair;
	int fd;

	pair_open(&pair, NULL);
	cntr = open_cntr(&pair, FI_WAIT_FD, NULL);
	ep = open_counted(&pair, pair.b.cq, cntr);
	fd = fd_of(&cntr->fid);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	may_sleep_on(&pair, &cntr->fid);
	send_to(&pair.a);
	gives(is_readable(fd, -1), 1);
	gives(try_one(&pair, &cntr->fid), -FI_EAGAIN);
	gives(fi_cntr_read(cntr), 1);
	gives(try_one(&pair, &cntr->fid), 0);
	gives(fi_cntr_add(cntr, 1), 0);
	gives(is_readable(fd, -1), 1);
	gives(drain(pair.b.cq), 1);
	drain(pair.a.cq);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/* ---- several threads ------------------------------------------------------------------------- */

/* A thread sleeps in a call; another one reads, or waits for a while, before that comes. */
static void read_beside(bool counts, bool waits)
{
	struct waiter waiter = { .threshold = 1 };
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntr;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, NULL);
	cntr = open_cntr(&pair, FI_WAIT_UNSPEC, NULL);
	gives(fi_cq_open(pair.domain, &attr, &cq, NULL), 0);
	ep = open_counted(&pair, cq, cntr);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	if (counts)
		waiter.cntr = cntr;
	else
		waiter.cq = cq;
	waiter_start(&waiter);
	if (counts && waits)
		gives(fi_cntr_wait(cntr, 2, 20), -FI_ETIMEDOUT);
	else if (counts)
		gives(fi_cntr_read(cntr), 0);
	else if (waits)
		gives(fi_cq_sread(cq, &waiter.entry, 1, NULL, 20), -FI_EAGAIN);
	else
		gives(fi_cq_read(cq, &waiter.entry, 1), -FI_EAGAIN);
	send_to(&pair.a);
	gives(waiter_end(&waiter), counts ? 0 : 1);
	pair_seen.received++;
	drain(pair.a.cq);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

static void read_beside_a_sleeper(void)
{
	for (int i = 0; i < 4; i++)
		read_beside(i & 1, i & 2);
}

/* Something is sent, which the descriptor tells. */
static void read_when_told(struct pair *pair, int fd)
{
	send_to(&pair->a);
	gives(is_readable(fd, -1), 1);
	gives(drain(pair->b.cq), 1);
	drain(pair->a.cq);
}

/*
 * A thread has fi_trywait()'s word for a descriptor, and sleeps; another one reads that object, and finds nothing,
 * before something comes. (Which of them calls makes no difference: both are this one.)
 */
static void descriptor_read_beside(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_FD };
	struct pair pair;
	int fd;

	pair_open(&pair, &want);
	fd = fd_of(&pair.b.cq->fid);
	for (int i = 0; i < 20; i++) {
		post_to(&pair.b);
		may_sleep_on(&pair, &pair.b.cq->fid);
		gives(drain(pair.b.cq), 0);
		read_when_told(&pair, fd);
	}
	pair_close(&pair);
}

/* Likewise of a counter. */
static void counter_read_beside(void)
{
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, NULL);
	cntr = open_cntr(&pair, FI_WAIT_FD, NULL);
	ep = open_counted(&pair, pair.b.cq, cntr);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	may_sleep_on(&pair, &cntr->fid);
	gives(fi_cntr_read(cntr), 0);
	send_to(&pair.a);
	gives(is_readable(fd_of(&cntr->fid), -1), 1);
	gives(fi_cntr_read(cntr), 1);
	gives(drain(pair.b.cq), 1);
	drain(pair.a.cq);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/* It has been signalled, and has not run yet, when another thread reads what came, and tries. */
static void descriptor_tried_beside(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_FD };
	struct pair pair;
	int fd;

	pair_open(&pair, &want);
	fd = fd_of(&pair.b.cq->fid);
	for (int i = 0; i < 20; i++) {
		post_to(&pair.b);
		post_to(&pair.b);
		may_sleep_on(&pair, &pair.b.cq->fid);
		send_to(&pair.a);
		gives(is_readable(fd, -1), 1);
		gives(try_one(&pair, &pair.b.cq->fid), -FI_EAGAIN);
		gives(is_readable(fd, 0), 1); /* a sleeper needs the signal, too */
		gives(drain(pair.b.cq), 1);
		may_sleep_on(&pair, &pair.b.cq->fid);
		gives(drain(pair.b.cq), 0);
		read_when_told(&pair, fd);
	}
	pair_close(&pair);
}

/* Any change of the errors while a thread waits ends its wait (fi_cntr(3)), also if they are taken back. */
static void errors_taken_back(void)
{
	struct waiter waiter = { .threshold = 1 };
	struct pair pair;

	pair_open_domain(&pair, NULL);
	waiter.cntr = open_cntr(&pair, FI_WAIT_UNSPEC, NULL);
	gives(fi_cntr_adderr(waiter.cntr, 3), 0);
	gives(fi_cntr_readerr(waiter.cntr), 3);
	waiter_start(&waiter);
	waiter_await(&waiter);
	gives(fi_cntr_seterr(waiter.cntr, 0), 0);
	gives(waiter_end(&waiter), -FI_EAVAIL);
	gives(fi_close(&waiter.cntr->fid), 0);
	pair_close(&pair);
}

/* ---- mutex and condition --------------------------------------------------------------------- */

struct condition {
	struct pair *pair;
	struct fid *fid; /* to be tried */
	struct fi_mutex_cond wait;
	atomic_bool begun;
	atomic_int sleeps;
	pthread_t thread;
};

static void *wait_for_condition(void *arg)
{
	struct condition *condition = arg;
	int got = 0;

	while (!got) {
		got = drain(condition->pair->b.cq);
		pthread_mutex_lock(condition->wait.mutex);
		if (!got && !try_one(condition->pair, condition->fid)) {
			condition->begun = true;
			condition->sleeps++;
			pthread_cond_wait(condition->wait.cond, condition->wait.mutex);
		}
		pthread_mutex_unlock(condition->wait.mutex);
	}
	return NULL;
}

/* Another thread reads the queue, which has nothing, while that one sleeps. */
static void read_asleep(struct condition *condition)
{
	gives(pthread_mutex_lock(condition->wait.mutex), 0);
	gives(pthread_mutex_unlock(condition->wait.mutex), 0);
	gives(drain(condition->pair->b.cq), 0);
}

static void condition(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct pair pair;
	struct condition condition = { .pair = &pair };

	pair_open(&pair, &want);
	condition.fid = &pair.b.cq->fid;
	gives(fi_control(condition.fid, FI_GETWAIT, &condition.wait), 0);
	for (int i = 0; i < 20; i++) {
		condition.begun = false;
		post_to(&pair.b);
		gives(pthread_create(&condition.thread, NULL, wait_for_condition, &condition), 0);
		while (!condition.begun)
			sched_yield();
		if (i & 1)
			read_asleep(&condition);
		send_to(&pair.a);
		gives(pthread_join(condition.thread, NULL), 0);
		drain(pair.a.cq);
	}
	/* a thread that holds the mutex may send: no call waits for the mutex */
	gives(pthread_mutex_lock(condition.wait.mutex), 0);
	gives(try_one(&pair, condition.fid), 0);
	post_to(&pair.b);
	post_to(&pair.a);
	gives(fi_send(pair.b.ep, out, 1, NULL, pair.b.peer, out), 0);
	pair_seen.sent++;
	gives(pthread_mutex_unlock(condition.wait.mutex), 0);
	while (!drain(pair.a.cq))
		;
	drain(pair.b.cq);
	pair_close(&pair);
}

/* An endpoint is enabled on a queue that had none, and whose condition a thread waits for. */
static void condition_enabled(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct pair pair;
	struct condition condition = { .pair = &pair };
	struct fid_cq *cq;
	struct fid_ep *ep;
	char name[64];
	size_t len = sizeof(name);

	pair_open(&pair, &want);
	cq = pair.b.cq;
	pair.b.cq = pair_open_cq(&pair); /* the one that is drained */
	condition.fid = &pair.b.cq->fid;
	gives(fi_control(condition.fid, FI_GETWAIT, &condition.wait), 0);
	ep = pair_open_ep(&pair);
	pair_bind(ep, pair.b.cq, pair.b.av);
	gives(pthread_create(&condition.thread, NULL, wait_for_condition, &condition), 0);
	while (!condition.begun)
		sched_yield();
	usleep(20000);
	gives(fi_enable(ep), 0);
	while (condition.sleeps < 2) /* it has tried again, with that endpoint */
		sched_yield();
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, ep), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	pair.a.peer = pair_insert(pair.a.av, name);
	send_to(&pair.a);
	gives(pthread_join(condition.thread, NULL), 0);
	drain(pair.a.cq);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&pair.b.cq->fid), 0);
	pair.b.cq = cq;
	pair_close(&pair);
}

/*
 * An endpoint closes while its watcher is about to signal a condition, whose mutex a thread holds on its way to sleep: the
 * other endpoint's watcher signals in its place.
 */
static void condition_closed(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_mutex_cond condition;
	struct fi_cq_err_entry error;
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, &want);
	ep = pair_open_ep(&pair);
	pair_bind(ep, pair.b.cq, pair.b.av);
	gives(fi_enable(ep), 0);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	condition = held_condition(&pair.b.cq->fid);
	gives(try_one(&pair, &pair.b.cq->fid), 0);
	gives(fi_cancel(&ep->fid, in), 0);
	gives(fi_close(&pair.b.ep->fid), 0);
	pair.b.ep = NULL;
	gives(pthread_cond_wait(condition.cond, condition.mutex), 0);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(fi_cq_readerr(pair.b.cq, &error, 0), 1);
	must(error.op_context == in && error.err == FI_ECANCELED);
	gives(fi_close(&ep->fid), 0);
	pair_close(&pair);
}

struct joiner {
	struct fid_ep *ep;
	struct fid_av_set *set;
	struct waiter waiter; /* its thread */
};

static void *join_and_close(void *arg)
{
	struct joiner *joiner = arg;
	struct fid_mc *mc;

	joiner->waiter.tid = gettid();
	joiner->waiter.begun = true;
	gives(fi_join_collective(joiner->ep, FI_ADDR_NOTAVAIL, joiner->set, 0, &mc, NULL), 0);
	gives(fi_close(&joiner->ep->fid), 0);
	gives(fi_close(&mc->fid), 0);
	joiner->waiter.ended = true;
	return NULL;
}

/*
 * A thread joins a group of one endpoint and closes the endpoint. Its watcher is about to signal the end of the join, by a
 * condition whose mutex another thread holds on its way to sleep: the thread that closes the endpoint signals.
 */
static void condition_joined(void)
{
	struct pair_want want = { .caps = PAIR_CAPS | FI_COLLECTIVE };
	struct fi_av_set_attr set_attr = { .stride = 1 };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_mutex_cond condition;
	struct joiner joiner = { 0 };
	struct fi_eq_entry entry;
	struct fid_eq *eq;
	struct pair pair;
	char name[64];
	size_t len = sizeof(name);
	uint32_t event;

	pair_open(&pair, &want);
	gives(fi_eq_open(pair.fabric, &eq_attr, &eq, NULL), 0);
	joiner.ep = pair_open_ep(&pair);
	pair_bind(joiner.ep, pair.b.cq, pair.b.av);
	gives(fi_ep_bind(joiner.ep, &eq->fid, 0), 0);
	gives(fi_enable(joiner.ep), 0);
	gives(fi_getname(&joiner.ep->fid, name, &len), 0);
	set_attr.start_addr = set_attr.end_addr = pair_insert(pair.b.av, name);
	gives(fi_av_set(pair.b.av, &set_attr, &joiner.set, NULL), 0);
	condition = held_condition(&eq->fid);
	gives(try_one(&pair, &eq->fid), 0);
	gives(pthread_create(&joiner.waiter.thread, NULL, join_and_close, &joiner), 0);
	while (!joiner.waiter.begun)
		sched_yield();
	while (!joiner.waiter.ended && !is_asleep(&joiner.waiter))
		usleep(1000);
	gives(pthread_cond_wait(condition.cond, condition.mutex), 0);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(pthread_join(joiner.waiter.thread, NULL), 0);
	gives(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	gives(event, FI_JOIN_COMPLETE);
	gives(fi_close(&joiner.set->fid), 0);
	gives(fi_close(&eq->fid), 0);
	pair_close(&pair);
}

static atomic_bool threadless; /* the provider gets no thread */

/* In its place: the provider calls it for each thread that it starts, the test for none. */
__attribute__((visibility("default"))) int pthread_attr_init(pthread_attr_t *attr)
{
	int (*init)(pthread_attr_t *);

	*(void **)&init = dlsym(RTLD_NEXT, "pthread_attr_init");
	return threadless ? EAGAIN : init(attr);
}

static int count_in_log(const char *words)
{
	char *text = pair_log_read(STDERR_FILENO, 0);
	int count = 0;

	for (const char *each = text; (each = strstr(each, words)); each++)
		count++;
	free(text);
	return count;
}

struct member {
	struct fid_ep *ep;
	struct fid_eq *eq;
	struct fid_mc *mc;
};

static void member_open(struct pair *pair, struct member *member, fi_addr_t *addr)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	char name[64];
	size_t len = sizeof(name);

	gives(fi_eq_open(pair->fabric, &attr, &member->eq, NULL), 0);
	member->ep = pair_open_ep(pair);
	pair_bind(member->ep, pair->b.cq, pair->b.av);
	gives(fi_ep_bind(member->ep, &member->eq->fid, 0), 0);
	gives(fi_enable(member->ep), 0);
	gives(fi_getname(&member->ep->fid, name, &len), 0);
	*addr = pair_insert(pair->b.av, name);
}

/* A thread waits for the end of a join, and there is no thread for a watcher: it sleeps nevertheless; one line says so. */
static void joined_without_watcher(void)
{
	struct pair_want want = { .caps = PAIR_CAPS | FI_COLLECTIVE };
	struct fi_av_set_attr attr = { .stride = 1 };
	struct waiter waiter = { 0 };
	struct member one, other;
	struct fi_eq_entry entry;
	struct fid_av_set *set;
	struct pair pair;
	uint32_t event;

	if (SANITIZED) /* its pthread_create(3) needs what fails here */
		_exit(PAIR_SKIP);
	pair_open(&pair, &want);
	member_open(&pair, &one, &attr.start_addr);
	member_open(&pair, &other, &attr.end_addr);
	gives(fi_av_set(pair.b.av, &attr, &set, NULL), 0);
	threadless = true;
	gives(fi_join_collective(one.ep, FI_ADDR_NOTAVAIL, set, 0, &one.mc, NULL), 0);
	waiter.eq = one.eq;
	waiter_start(&waiter);
	await_asleep(&waiter);
	gives(fi_join_collective(other.ep, FI_ADDR_NOTAVAIL, set, 0, &other.mc, NULL), 0);
	gives(fi_eq_sread(other.eq, &event, &entry, sizeof(entry), -1, 0), sizeof(entry));
	gives(waiter_end(&waiter), sizeof(entry));
	gives(count_in_log("no thread for a wait object"), 1);
	threadless = false;
	gives(fi_close(&one.mc->fid), 0);
	gives(fi_close(&other.mc->fid), 0);
	gives(fi_close(&one.ep->fid), 0);
	gives(fi_close(&other.ep->fid), 0);
	gives(fi_close(&set->fid), 0);
	gives(fi_close(&one.eq->fid), 0);
	gives(fi_close(&other.eq->fid), 0);
	pair_close(&pair);
}

/* A queue for receives, with a condition, and one for sends, of one endpoint: one lock, one watcher. */
struct halves {
	struct fid_cq *rx, *tx;
	struct fid_ep *ep;
	struct fi_mutex_cond condition;
};

static void halves_open(struct pair *pair, struct halves *halves, enum fi_wait_obj tx_obj)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_MUTEX_COND };
	char name[64];
	size_t len = sizeof(name);

	gives(fi_cq_open(pair->domain, &attr, &halves->rx, NULL), 0);
	attr.wait_obj = tx_obj;
	gives(fi_cq_open(pair->domain, &attr, &halves->tx, NULL), 0);
	halves->ep = pair_open_ep(pair);
	gives(fi_ep_bind(halves->ep, &halves->rx->fid, FI_RECV), 0);
	gives(fi_ep_bind(halves->ep, &halves->tx->fid, FI_TRANSMIT), 0);
	gives(fi_ep_bind(halves->ep, &pair->b.av->fid, 0), 0);
	gives(fi_enable(halves->ep), 0);
	gives(fi_getname(&halves->ep->fid, name, &len), 0);
	pair->a.peer = pair_insert(pair->a.av, name);
	gives(fi_control(&halves->rx->fid, FI_GETWAIT, &halves->condition), 0);
	/* once connected, a send needs no poll there */
	gives(fi_recv(halves->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	while (fi_send(pair->a.ep, out, sizeof(out), NULL, pair->a.peer, out)) {
		drain(pair->a.cq);
		drain(halves->tx);
	}
	pair_seen.sent++;
	while (!drain(halves->rx))
		drain(pair->a.cq);
}

static void halves_close(struct halves *halves)
{
	gives(fi_close(&halves->ep->fid), 0);
	gives(fi_close(&halves->rx->fid), 0);
	gives(fi_close(&halves->tx->fid), 0);
}

/* Sends until a send is refused; the receiver does not look. Returns the number of messages. */
static int send_until_refused(struct pair *pair, struct halves *halves)
{
	ssize_t ret;
	int sent = 0;

	for (; !(ret = fi_send(halves->ep, out, sizeof(out), NULL, pair->b.peer, out)); sent++)
		drain(halves->tx);
	gives(ret, -FI_EAGAIN);
	pair_seen.sent += sent;
	drain(halves->tx);
	return sent;
}

static void receive_all(struct pair *pair, int sent)
{
	for (int i = 0; i < sent; i++)
		post_to(&pair->a);
	for (int got = 0; got < sent;)
		got += drain(pair->a.cq);
}

/* Each of two queues is told of space after a send was refused: a wait for one does not take that from the other. */
static void sread_refused_twice(void)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		struct fi_cq_tagged_entry entry;
		struct waiter waiter = { 0 };
		struct halves halves;
		struct pair pair;
		int sent;

		pair_open(&pair, NULL);
		halves_open(&pair, &halves, objects[i]);
		sent = send_until_refused(&pair, &halves);
		gives(fi_cq_sread(halves.rx, &entry, 1, NULL, -1), -FI_EAGAIN);
		waiter.cq = halves.tx;
		waiter_start(&waiter);
		receive_all(&pair, sent);
		gives(waiter_end(&waiter), -FI_EAGAIN);
		halves_close(&halves);
		pair_close(&pair);
	}
}

/*
 * A descriptor tells once that there may be space, even if the application does not send again. The connection is answered
 * before, because a sleeper looks for the answer. A wake-up that comes late may end the first sleep before its limit,
 * which ends a later sleep then.
 */
static void refused_by_descriptor(void)
{
	struct halves halves;
	struct pair pair;
	int sent, ends = 0;

	pair_open(&pair, NULL);
	halves_open(&pair, &halves, FI_WAIT_FD);
	post(&pair, fi_send(halves.ep, out, sizeof(out), NULL, pair.b.peer, out));
	pair_seen.sent++;
	receive_all(&pair, 1);
	sent = send_until_refused(&pair, &halves);
	may_sleep_on(&pair, &halves.tx->fid);
	gives(is_readable(fd_of(&halves.tx->fid), -1), 1);
	do {
		must(++ends < 5);
		may_sleep_on(&pair, &halves.tx->fid);
	} while (is_readable(fd_of(&halves.tx->fid), 100));
	receive_all(&pair, sent);
	halves_close(&halves);
	pair_close(&pair);
}

#define HELD_ROUNDS 50

/*
 * The watcher has begun to signal a condition, and waits for its mutex; meanwhile what is waited for comes, in a call
 * that does not wait for the mutex. The descriptor, which the watcher mostly comes to first, tells how far it is.
 */
static void condition_held(void)
{
	struct halves halves;
	struct pair pair;

	pair_open(&pair, NULL);
	halves_open(&pair, &halves, FI_WAIT_FD);
	for (int round = 0; round < HELD_ROUNDS; round++) {
		gives(fi_recv(halves.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
		may_sleep_on(&pair, &halves.tx->fid);
		gives(pthread_mutex_lock(halves.condition.mutex), 0);
		while (try_one(&pair, &halves.rx->fid))
			;
		send_to(&pair.a);
		must(is_readable(fd_of(&halves.tx->fid), 20) >= 0);
		for (int i = 0; i < 100; i++)
			sched_yield();
		gives(drain(halves.tx), 0);
		gives(pthread_mutex_unlock(halves.condition.mutex), 0);
		gives(drain(halves.rx), 1);
		drain(pair.a.cq);
	}
	halves_close(&halves);
	pair_close(&pair);
}

/*
 * A thread holds the mutex of one condition while the other condition is signalled, to which the watcher comes later. The
 * first one is signalled when its mutex is free.
 */
static void condition_held_beside(void)
{
	struct fi_mutex_cond held;
	struct halves halves;
	struct pair pair;
	struct condition condition = { .pair = &pair };
	struct fid_cq *cq;

	pair_open(&pair, NULL);
	halves_open(&pair, &halves, FI_WAIT_MUTEX_COND);
	cq = pair.b.cq;
	pair.b.cq = halves.rx; /* the one that is drained */
	condition.fid = &halves.rx->fid;
	condition.wait = halves.condition;
	gives(fi_recv(halves.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	held = held_condition(&halves.tx->fid);
	while (try_one(&pair, &halves.tx->fid))
		;
	gives(pthread_create(&condition.thread, NULL, wait_for_condition, &condition), 0);
	while (!condition.begun)
		sched_yield();
	gives(pthread_mutex_lock(condition.wait.mutex), 0); /* it waits for the condition by now */
	gives(pthread_mutex_unlock(condition.wait.mutex), 0);
	send_to(&pair.a);
	gives(pthread_join(condition.thread, NULL), 0);
	gives(pthread_cond_wait(held.cond, held.mutex), 0);
	gives(pthread_mutex_unlock(held.mutex), 0);
	drain(pair.a.cq);
	pair.b.cq = cq;
	halves_close(&halves);
	pair_close(&pair);
}

struct adder {
	struct fid_cntr *cntr;
	atomic_bool end;
};

static void *add_to_counter(void *arg)
{
	struct adder *adder = arg;

	while (!adder->end)
		gives(fi_cntr_add(adder->cntr, 1), 0);
	return NULL;
}

#define TRY_ROUNDS (SANITIZED ? 2000 : 20000)

/*
 * A counter of no endpoint, which no watcher signals: one thread tries it with the mutex held, twice, as one that is
 * woken for nothing does, and another adds to it.
 */
static void condition_of_nothing(void)
{
	struct fi_mutex_cond condition;
	struct adder adder = { .end = false };
	pthread_t thread;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	adder.cntr = open_cntr(&pair, FI_WAIT_MUTEX_COND, NULL);
	gives(fi_control(&adder.cntr->fid, FI_GETWAIT, &condition), 0);
	gives(pthread_create(&thread, NULL, add_to_counter, &adder), 0);
	for (int round = 0; round < TRY_ROUNDS; round++) {
		gives(pthread_mutex_lock(condition.mutex), 0);
		if (!try_one(&pair, &adder.cntr->fid) && !try_one(&pair, &adder.cntr->fid))
			pthread_cond_wait(condition.cond, condition.mutex);
		gives(pthread_mutex_unlock(condition.mutex), 0);
		(void)fi_cntr_read(adder.cntr);
	}
	adder.end = true;
	gives(pthread_join(thread, NULL), 0);
	gives(fi_close(&adder.cntr->fid), 0);
	pair_close(&pair);
}

/* ---- wait sets ------------------------------------------------------------------------------- */

/* Queues and counters wait in sets of their own fabric. */
static void set_of_another_fabric(void)
{
	struct fid_wait *set;
	struct pair pair, other;
	struct fid_cntr *cntr;
	struct fid_cq *cq;
	struct fid_eq *eq;

	pair_open_domain(&pair, NULL);
	pair_open_domain(&other, NULL);
	gives(fi_wait_open(other.fabric, NULL, &set), 0);
	gives(fi_cq_open(pair.domain, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_SET, .wait_set = set },
			 &cq, NULL),
	      -FI_EINVAL);
	gives(fi_cntr_open(pair.domain, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_SET, .wait_set = set },
			   &cntr, NULL),
	      -FI_EINVAL);
	gives(fi_eq_open(pair.fabric, &(struct fi_eq_attr){ .wait_obj = FI_WAIT_SET, .wait_set = set },
			 &eq, NULL),
	      -FI_EINVAL);
	gives(fi_cq_open(other.domain, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_SET, .wait_set = set },
			 &cq, NULL),
	      0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&set->fid), 0);
	pair_close(&other);
	pair_close(&pair);
}

static void set_attributes(void)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_UNSPEC, .flags = 1 };
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_SET };
	struct fid_wait *set;
	struct fid_cq *cq;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	gives(fi_wait_open(pair.fabric, &attr, &set), -FI_EBADFLAGS);
	attr = (struct fi_wait_attr){ .wait_obj = FI_WAIT_NONE };
	gives(fi_wait_open(pair.fabric, &attr, &set), -FI_EINVAL);
	attr.wait_obj = FI_WAIT_SET;
	gives(fi_wait_open(pair.fabric, &attr, &set), -FI_EINVAL);
	attr.wait_obj = 77;
	gives(fi_wait_open(pair.fabric, &attr, &set), -FI_EINVAL);
	gives(fi_wait_open(pair.fabric, NULL, &set), 0);
	gives(set->fid.fclass, FI_CLASS_WAIT);
	gives(fi_wait(set, 0), -FI_ETIMEDOUT);
	gives(fi_wait(set, 20), -FI_ETIMEDOUT);
	gives(fi_close(&pair.fabric->fid), -FI_EBUSY);
	cq_attr.wait_set = set;
	gives(fi_cq_open(pair.domain, &cq_attr, &cq, NULL), 0);
	gives(fi_cq_sread(cq, in, 1, NULL, 0), -FI_ENOSYS);
	gives(fi_close(&set->fid), -FI_EBUSY);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&set->fid), 0);
	pair_close(&pair);
}

struct members {
	struct fid_wait *set;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	struct fid_ep *ep;
};

static void members_open(struct pair *pair, struct members *members, enum fi_wait_obj obj)
{
	struct fi_wait_attr attr = { .wait_obj = obj };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_SET, .flags = FI_WRITE };

	gives(fi_wait_open(pair->fabric, &attr, &members->set), 0);
	cq_attr.wait_set = eq_attr.wait_set = members->set;
	gives(fi_cq_open(pair->domain, &cq_attr, &members->cq, NULL), 0);
	gives(fi_eq_open(pair->fabric, &eq_attr, &members->eq, NULL), 0);
	members->cntr = open_cntr(pair, FI_WAIT_SET, members->set);
	members->ep = open_counted(pair, members->cq, members->cntr);
}

static void members_close(struct members *members)
{
	gives(fi_close(&members->ep->fid), 0);
	gives(fi_close(&members->cq->fid), 0);
	gives(fi_close(&members->cntr->fid), 0);
	gives(fi_close(&members->eq->fid), 0);
	gives(fi_close(&members->set->fid), 0);
}

static void write_event(struct fid_eq *eq)
{
	struct fi_eq_entry entry = { .data = 1 };

	gives(fi_eq_write(eq, 1, &entry, sizeof(entry), 0), sizeof(entry));
}

static void read_event(struct fid_eq *eq)
{
	struct fi_eq_entry entry;
	uint32_t event;

	gives(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
}

static void set_waits(enum fi_wait_obj obj)
{
	struct members members;
	struct waiter waiter = { 0 };
	struct pair pair;

	pair_open(&pair, NULL);
	members_open(&pair, &members, obj);
	waiter.set = members.set;
	gives(fi_wait(members.set, 10), -FI_ETIMEDOUT);
	gives(fi_recv(members.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	waiter_start(&waiter); /* a message */
	send_to(&pair.a);
	gives(waiter_end(&waiter), 0);
	gives(drain(members.cq), 1);
	gives(fi_cntr_read(members.cntr), 1);
	drain(pair.a.cq);
	gives(fi_wait(members.set, 10), -FI_ETIMEDOUT);
	waiter.begun = false;
	waiter_start(&waiter); /* an event */
	write_event(members.eq);
	gives(waiter_end(&waiter), 0);
	gives(fi_wait(members.set, -1), 0); /* it is there still */
	read_event(members.eq);
	waiter.begun = false;
	waiter_start(&waiter); /* a counter */
	gives(fi_cntr_add(members.cntr, 1), 0);
	gives(waiter_end(&waiter), 0);
	gives(fi_cntr_read(members.cntr), 2);
	gives(fi_wait(members.set, 0), -FI_ETIMEDOUT);
	members_close(&members);
	pair_close(&pair);
}

static void set_every_object(void)
{
	for (size_t i = 0; i < OBJECTS; i++)
		set_waits(objects[i]);
}

/* A thread sleeps on a set, and another one reads its members before that comes. */
static void set_read_beside(void)
{
	struct waiter waiter = { 0 };
	struct members members;
	struct pair pair;

	pair_open(&pair, NULL);
	members_open(&pair, &members, FI_WAIT_UNSPEC);
	waiter.set = members.set;
	gives(fi_recv(members.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	waiter_start(&waiter);
	gives(drain(members.cq), 0);
	gives(fi_cntr_read(members.cntr), 0);
	send_to(&pair.a);
	gives(waiter_end(&waiter), 0);
	gives(drain(members.cq), 1);
	drain(pair.a.cq);
	members_close(&members);
	pair_close(&pair);
}

/* Likewise with the set's descriptor, which another thread may try, too: one member has something, the other is not tried. */
static void set_descriptor_read_beside(void)
{
	struct members members;
	struct pair pair;
	int fd;

	pair_open(&pair, NULL);
	members_open(&pair, &members, FI_WAIT_FD);
	fd = fd_of(&members.set->fid);
	gives(fi_recv(members.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	may_sleep_on(&pair, &members.set->fid);
	gives(drain(members.cq), 0);
	gives(fi_cntr_read(members.cntr), 0);
	send_to(&pair.a);
	gives(is_readable(fd, -1), 1);
	gives(try_one(&pair, &members.set->fid), -FI_EAGAIN);
	gives(is_readable(fd, 0), 1);
	gives(drain(members.cq), 1);
	drain(pair.a.cq);
	members_close(&members);
	pair_close(&pair);
}

/* A member closes while the set's mutex is held, and a watcher, which signals that member, waits for it. */
static void set_held(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (int round = 0; round < HELD_ROUNDS; round++) {
		struct fi_wait_attr attr = { .wait_obj = FI_WAIT_MUTEX_COND };
		struct fi_mutex_cond condition;
		struct fid_wait *set;
		struct fid_cntr *cntr;

		gives(fi_wait_open(pair.fabric, &attr, &set), 0);
		gives(fi_control(&set->fid, FI_GETWAIT, &condition), 0);
		cntr = open_cntr(&pair, FI_WAIT_SET, set);
		post_to(&pair.b);
		gives(pthread_mutex_lock(condition.mutex), 0);
		while (try_one(&pair, &set->fid))
			;
		post(&pair, fi_send(pair.a.ep, out, sizeof(out), NULL, pair.a.peer, out));
		pair_seen.sent++;
		for (int i = 0; i < 100; i++)
			sched_yield();
		gives(fi_close(&cntr->fid), 0);
		gives(pthread_mutex_unlock(condition.mutex), 0);
		gives(fi_close(&set->fid), 0);
		while (!drain(pair.b.cq))
			;
		drain(pair.a.cq);
	}
	pair_close(&pair);
}

static struct fid_wait *closing_set; /* to be closed amid the next close of a member */

/* In its place: the provider calls it near the end of the close of an object that is waited for. */
__attribute__((visibility("default"))) int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
	struct fid_wait *set = closing_set;
	int (*destroy)(pthread_mutex_t *);

	closing_set = NULL;
	if (set)
		gives(fi_close(&set->fid), -FI_EBUSY);
	*(void **)&destroy = dlsym(RTLD_NEXT, "pthread_mutex_destroy");
	return destroy(mutex);
}

/* A watcher may signal a member, and so its set, until the member's close is over: the set is not freed before. */
static void set_closed_beside(void)
{
	struct members members;
	struct pair pair;

	pair_open(&pair, NULL);
	members_open(&pair, &members, FI_WAIT_FD);
	gives(fi_close(&members.ep->fid), 0);
	gives(fi_close(&members.eq->fid), 0);
	gives(fi_close(&members.cntr->fid), 0);
	gives(fi_close(&members.set->fid), -FI_EBUSY);
	closing_set = members.set;
	gives(fi_close(&members.cq->fid), 0);
	must(!closing_set);
	gives(fi_close(&members.set->fid), 0);
	pair_close(&pair);
}

/* fi_wait() ends when there may be space for a send that was refused, although no member of the set has an event. */
static void set_refused(void)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		struct waiter waiter = { 0 };
		struct members members;
		struct pair pair;
		ssize_t ret;
		int sent = 0;

		pair_open(&pair, NULL);
		members_open(&pair, &members, objects[i]);
		for (; !(ret = fi_send(members.ep, out, sizeof(out), NULL, pair.b.peer, out)); sent++)
			drain(members.cq);
		gives(ret, -FI_EAGAIN);
		pair_seen.sent += sent;
		drain(members.cq);
		waiter.set = members.set;
		waiter_start(&waiter);
		receive_all(&pair, sent);
		gives(waiter_end(&waiter), 0);
		members_close(&members);
		pair_close(&pair);
	}
}

/* Each of several threads that wait for a set returns when `change` changes one of its members. */
static void set_ends_all(void (*change)(const struct members *members))
{
	for (size_t i = 0; i < OBJECTS; i++) {
		struct waiter waiters[TOGETHER], waiter = { 0 };
		struct members members;
		struct pair pair;

		pair_open(&pair, NULL);
		members_open(&pair, &members, objects[i]);
		waiter.set = members.set;
		waiters_start(waiters, &waiter);
		change(&members);
		waiters_end(waiters, 0);
		members_close(&members);
		pair_close(&pair);
	}
}

static void signal_queue(const struct members *members)
{
	gives(fi_cq_signal(members->cq), 0);
}

static void set_signal_all(void)
{
	set_ends_all(signal_queue);
}

/* This thread sees the new value before the waiting threads do. */
static void add_and_read(const struct members *members)
{
	gives(fi_cntr_add(members->cntr, 1), 0);
	gives(fi_cntr_read(members->cntr), 1);
}

static void set_counter_all(void)
{
	set_ends_all(add_and_read);
}

/* New members of a set wake a thread that already sleeps on it. */
static void set_grows(void)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		struct fi_wait_attr attr = { .wait_obj = objects[i] };
		struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET };
		struct members members;
		struct waiter waiter = { 0 };
		struct pair pair;

		pair_open(&pair, NULL);
		gives(fi_wait_open(pair.fabric, &attr, &members.set), 0);
		waiter.set = cq_attr.wait_set = members.set;
		waiter_start(&waiter);
		gives(fi_cq_open(pair.domain, &cq_attr, &members.cq, NULL), 0);
		members.cntr = open_cntr(&pair, FI_WAIT_NONE, NULL);
		members.ep = open_counted(&pair, members.cq, members.cntr);
		gives(fi_recv(members.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
		send_to(&pair.a);
		gives(waiter_end(&waiter), 0);
		gives(drain(members.cq), 1);
		gives(fi_close(&members.ep->fid), 0);
		gives(fi_close(&members.cq->fid), 0);
		gives(fi_close(&members.cntr->fid), 0);
		gives(fi_close(&members.set->fid), 0);
		pair_close(&pair);
	}
}

struct opener {
	struct pair *pair;
	struct fid_wait *set;
	struct fid_cq *cq;
	struct waiter waiter; /* its thread */
};

static void *open_member(void *arg)
{
	struct opener *opener = arg;
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_SET, .wait_set = opener->set };

	opener->waiter.tid = gettid();
	opener->waiter.begun = true;
	gives(fi_cq_open(opener->pair->domain, &attr, &opener->cq, NULL), 0);
	opener->waiter.ended = true;
	return NULL;
}

/* A set grows while a thread that has tried it is about to sleep on its condition. */
static void set_grows_untold(void)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_mutex_cond condition;
	struct opener opener = { 0 };
	struct pair pair;

	pair_open_domain(&pair, NULL);
	opener.pair = &pair;
	gives(fi_wait_open(pair.fabric, &attr, &opener.set), 0);
	condition = held_condition(&opener.set->fid);
	gives(try_one(&pair, &opener.set->fid), 0);
	gives(pthread_create(&opener.waiter.thread, NULL, open_member, &opener), 0);
	while (!opener.waiter.begun)
		sched_yield();
	while (!opener.waiter.ended && !is_asleep(&opener.waiter))
		usleep(1000);
	gives(pthread_cond_wait(condition.cond, condition.mutex), 0);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(pthread_join(opener.waiter.thread, NULL), 0);
	gives(fi_close(&opener.cq->fid), 0);
	gives(fi_close(&opener.set->fid), 0);
	pair_close(&pair);
}

struct set_looker {
	struct fid_wait *set;
	atomic_bool end;
};

static void *look_at_set(void *arg)
{
	struct set_looker *looker = arg;

	while (!looker->end) {
		int ret = fi_wait(looker->set, 0);

		must(ret == 0 || ret == -FI_ETIMEDOUT);
	}
	return NULL;
}

#define MEMBERS_COME 2000

/* Members come and go while a thread looks at all that there are. */
static void set_changes(void)
{
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_SET };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_SET, .flags = FI_WRITE };
	struct set_looker looker = { .end = false };
	pthread_t thread;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	gives(fi_wait_open(pair.fabric, NULL, &looker.set), 0);
	cq_attr.wait_set = eq_attr.wait_set = looker.set;
	gives(pthread_create(&thread, NULL, look_at_set, &looker), 0);
	for (int i = 0; i < MEMBERS_COME; i++) {
		struct fid_cntr *cntr;
		struct fid_cq *cq;
		struct fid_eq *eq;

		gives(fi_cq_open(pair.domain, &cq_attr, &cq, NULL), 0);
		gives(fi_eq_open(pair.fabric, &eq_attr, &eq, NULL), 0);
		cntr = open_cntr(&pair, FI_WAIT_SET, looker.set);
		write_event(eq); /* and is left there */
		gives(fi_close(&eq->fid), 0);
		gives(fi_close(&cq->fid), 0);
		gives(fi_close(&cntr->fid), 0);
	}
	looker.end = true;
	gives(pthread_join(thread, NULL), 0);
	gives(fi_close(&looker.set->fid), 0);
	pair_close(&pair);
}

/* One descriptor for all members. */
static void set_descriptor(void)
{
	struct members members;
	struct pair pair;
	int fd;

	pair_open(&pair, NULL);
	members_open(&pair, &members, FI_WAIT_FD);
	fd = fd_of(&members.set->fid);
	may_sleep_on(&pair, &members.set->fid);
	write_event(members.eq);
	gives(is_readable(fd, -1), 1);
	gives(try_one(&pair, &members.set->fid), -FI_EAGAIN);
	read_event(members.eq);
	may_sleep_on(&pair, &members.set->fid);
	gives(fi_recv(members.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	send_to(&pair.a);
	gives(is_readable(fd, -1), 1);
	gives(drain(members.cq), 1);
	drain(pair.a.cq);
	members_close(&members);
	pair_close(&pair);
}

/* ---- poll sets ------------------------------------------------------------------------------- */

static void poll_attributes(void)
{
	struct fi_poll_attr attr = { .flags = 1 };
	struct fid_cntr *cntr;
	struct fid_poll *set;
	struct pair pair, other;
	void *context[4];

	pair_open(&pair, NULL);
	pair_open(&other, NULL);
	gives(fi_poll_open(pair.domain, &attr, &set), -FI_EBADFLAGS);
	gives(fi_poll_open(pair.domain, NULL, &set), 0);
	gives(fi_close(&set->fid), 0);
	attr.flags = 0;
	gives(fi_poll_open(pair.domain, &attr, &set), 0);
	gives(set->fid.fclass, FI_CLASS_POLL);
	cntr = open_cntr(&pair, FI_WAIT_NONE, NULL);
	gives(fi_poll(set, context, 4), 0);
	gives(fi_poll(set, NULL, 4), -FI_EINVAL);
	gives(fi_poll(set, context, -1), -FI_EINVAL);
	gives(fi_poll_add(set, &pair.a.cq->fid, 1), -FI_EBADFLAGS);
	gives(fi_poll_add(set, &pair.a.ep->fid, 0), -FI_EINVAL);
	gives(fi_poll_add(set, &other.a.cq->fid, 0), -FI_EINVAL); /* of another domain */
	gives(fi_poll_add(set, NULL, 0), -FI_EINVAL);
	gives(fi_poll_add(set, &pair.a.cq->fid, 0), 0);
	gives(fi_poll_add(set, &pair.a.cq->fid, 0), -FI_EALREADY);
	gives(fi_poll_add(set, &cntr->fid, 0), 0);
	gives(fi_close(&set->fid), -FI_EBUSY);
	gives(fi_close(&cntr->fid), -FI_EBUSY);
	gives(fi_poll_del(set, &cntr->fid, 1), -FI_EBADFLAGS);
	gives(fi_poll_del(set, &cntr->fid, 0), 0);
	gives(fi_poll_del(set, &cntr->fid, 0), -FI_EINVAL);
	gives(fi_poll_del(set, &pair.a.cq->fid, 0), 0);
	gives(fi_close(&cntr->fid), 0);
	gives(fi_close(&set->fid), 0);
	pair_close(&other);
	pair_close(&pair);
}

/* A queue is told of while it has something, a counter once for each change that is not the application's. */
static void poll_tells(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_cntr *cntr;
	struct fid_poll *set;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct pair pair;
	struct fi_cq_tagged_entry entries[4];
	void *context[4];
	int seen = 0;

	pair_open(&pair, NULL);
	cntr = open_cntr(&pair, FI_WAIT_NONE, NULL);
	cntr->fid.context = &seen;
	gives(fi_cq_open(pair.domain, &attr, &cq, &attr), 0);
	ep = open_counted(&pair, cq, cntr);
	gives(fi_poll_open(pair.domain, NULL, &set), 0);
	gives(fi_poll_add(set, &cq->fid, 0), 0);
	gives(fi_poll_add(set, &cntr->fid, 0), 0);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_poll(set, context, 4), 0);
	send_to(&pair.a);
	while (!seen) { /* it makes progress by itself */
		int count = fi_poll(set, context, 4);

		must(count >= 0);
		for (int i = 0; i < count; i++)
			seen |= context[i] == &seen;
	}
	gives(fi_poll(set, context, 4), 1);
	must(context[0] == &attr);
	gives(fi_poll(set, context, 0), 0);
	gives(drain(cq), 1);
	gives(fi_poll(set, context, 4), 0);
	/* a later poll reports the events that a poll without room has not reported */
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	send_to(&pair.a);
	while (fi_cntr_read(cntr) < 2)
		;
	gives(fi_poll(set, NULL, 0), 0);
	gives(fi_poll(set, context, 4), 2);
	gives(fi_poll_del(set, &cntr->fid, 0), 0);
	/* a queue that is not empty makes progress, too */
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	send_to(&pair.a);
	gives(fi_poll(set, context, 4), 1);
	gives(fi_cq_read(cq, entries, 4), 2);
	pair_seen.received += 2;
	gives(fi_poll_add(set, &cntr->fid, 0), 0);
	gives(fi_cntr_adderr(cntr, 5), 0);
	gives(fi_poll(set, context, 4), 1);
	must(context[0] == &seen);
	gives(fi_cntr_seterr(cntr, 1), 0);
	gives(fi_poll(set, context, 4), 1);
	gives(fi_cntr_add(cntr, 5), 0);
	gives(fi_poll(set, context, 4), 0);
	gives(fi_cntr_set(cntr, 1), 0);
	gives(fi_poll(set, context, 4), 0);
	drain(pair.a.cq);
	gives(fi_poll_del(set, &cq->fid, 0), 0);
	gives(fi_poll_del(set, &cntr->fid, 0), 0);
	gives(fi_close(&set->fid), 0);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* The child can do nothing with what is open but close it, and that harms nobody. */
static void forked(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_FD };
	struct members members;
	struct fid_poll *set;
	void *context[1];
	struct pair pair;
	pid_t child;
	int status;

	if (SANITIZED)
		_exit(PAIR_SKIP); /* its allocator does not bear a fork beside threads */
	pair_open(&pair, &want);
	members_open(&pair, &members, FI_WAIT_FD);
	gives(fi_poll_open(pair.domain, NULL, &set), 0);
	gives(fi_poll_add(set, &members.cq->fid, 0), 0);
	gives(try_one(&pair, &members.set->fid), 0);
	child = fork();
	if (!child) {
		gives(fi_wait(members.set, 0), -FI_EPERM);
		gives(fi_poll(set, context, 1), -FI_EPERM);
		gives(fi_poll_add(set, &members.cntr->fid, 0), -FI_EPERM);
		gives(try_one(&pair, &members.set->fid), -FI_EPERM);
		gives(fi_close(&set->fid), 0);
		members_close(&members);
		side_close(&pair.a);
		side_close(&pair.b);
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child);
	gives(status, 0);
	gives(fi_recv(members.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	send_to(&pair.a);
	gives(is_readable(fd_of(&members.set->fid), -1), 1);
	gives(drain(members.cq), 1);
	drain(pair.a.cq);
	gives(fi_poll_del(set, &members.cq->fid, 0), 0);
	gives(fi_close(&set->fid), 0);
	members_close(&members);
	pair_close(&pair);
}

/* In namespaces of their own a parent and its child both have pid 1. */
static void forked_as_first(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_FD };
	struct fi_cq_tagged_entry entry;
	struct pair pair;
	pid_t child;
	int status;

	if (SANITIZED || unshare(CLONE_NEWUSER | CLONE_NEWPID))
		_exit(PAIR_SKIP);
	child = fork();
	if (!child) {
		pair_end_with_parent();
		pair_open(&pair, &want);
		gives(fi_cq_sread(pair.a.cq, &entry, 1, NULL, 1), -FI_EAGAIN);
		gives(unshare(CLONE_NEWPID), 0);
		child = fork();
		if (!child) {
			gives(getpid(), 1);
			side_close(&pair.a);
			side_close(&pair.b);
			_exit(0);
		}
		must(waitpid(child, &status, 0) == child);
		gives(status, 0);
		_exit(0);
	}
	must(waitpid(child, &status, 0) == child);
	gives(status, 0);
}

static const struct pair_want sleeping = { .wait_obj = FI_WAIT_UNSPEC };

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(every_object),
		ALONE(no_descriptor_left),
		ALONE(trywait_errors),
		ALONE(descriptor),
		ALONE(descriptor_array),
		ALONE(descriptor_local),
		ALONE(descriptors_taken),
		ALONE(descriptor_closed),
		ALONE(descriptor_tried_meanwhile),
		ALONE(sread_every_object),
		ALONE(sread_signal),
		ALONE(sread_without_waitv),
		ALONE(sread_polls_again),
		ALONE(sread_closed),
		ALONE(closed_with_the_mutex),
		ALONE(closed_beside_a_holder),
		ALONE(signalled_with_the_mutex),
		ALONE(sread_signal_all),
		ALONE(sread_local),
		ALONE(sread_error),
		ALONE(sread_many),
		ALONE(sread_enabled),
		ALONE(sread_target),
		ALONE(sread_interrupted),
		ALONE(interrupted_with_limit),
		{ .name = "sread_begun",
		  .test_func = pair_both,
		  .initial_state = &(struct pair_test){ .first = sread_begun,
							.second = sread_begins,
							.want = &sleeping } },
		{ .name = "sread_refused",
		  .test_func = pair_both,
		  .initial_state = &(struct pair_test){ .first = sread_refused,
							.second = sread_refusing,
							.want = &sleeping } },
		ALONE(counter_every_object),
		ALONE(counter_ends_all),
		ALONE(counter_bound_later),
		ALONE(counter_descriptor),
		ALONE(read_beside_a_sleeper),
		ALONE(descriptor_read_beside),
		ALONE(counter_read_beside),
		ALONE(descriptor_tried_beside),
		ALONE(errors_taken_back),
		ALONE(condition),
		ALONE(condition_enabled),
		ALONE(condition_closed),
		ALONE(condition_joined),
		ALONE(joined_without_watcher),
		ALONE(condition_held),
		ALONE(sread_refused_twice),
		ALONE(refused_by_descriptor),
		ALONE(set_refused),
		ALONE(condition_held_beside),
		ALONE(condition_of_nothing),
		ALONE(set_attributes),
		ALONE(set_of_another_fabric),
		ALONE(set_every_object),
		ALONE(set_signal_all),
		ALONE(set_counter_all),
		ALONE(set_read_beside),
		ALONE(set_held),
		ALONE(set_closed_beside),
		ALONE(set_grows),
		ALONE(set_grows_untold),
		ALONE(set_changes),
		ALONE(set_descriptor),
		ALONE(set_descriptor_read_beside),
		ALONE(poll_attributes),
		ALONE(poll_tells),
		ALONE(forked),
		ALONE(forked_as_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
