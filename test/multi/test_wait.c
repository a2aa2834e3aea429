/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_wait: no wake-up is lost, and a sleeper uses no processor.
 *
 * One rank sleeps, in every way there is, without a time limit; the others send it messages at random moments, in
 * turns of a few, and send no more before it has seen these. So each turn is a chance for a wake-up to get lost,
 * and one that is lost ends the test at its deadline. Nothing else would wake the sleeper: no time limit, no
 * later message.
 *
 * SHMCMA_WAIT_MESSAGES is the number of messages in each case (10 million by hand, some hundreds of seconds);
 * the test prints the processor time of the sleeper. Another case sends nothing for a while: then the sleeper must
 * not run at all, except for a rare look. In the last case a peer is killed that has operations under way with the
 * sleeper: that wakes it, too, and the operations end with their error.
 */
#define _GNU_SOURCE 1
#include "multi.h"
#include "../rounds.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SLEEPER 0
#define RECVS 16
#define SEEN(rank) (rank) /* flag: messages of that rank that the sleeper has seen */
#define FLAG_QUIET 100
#define TURN_MAX 4
#define WAIT_US 40

enum way { EPOLL, CONDITION, SREAD };

static const struct plan {
	const char *name;
	enum way way;
	enum fi_wait_obj obj;
	int senders;
	size_t size_max;
	bool automatic;
} plans[] = {
	{ "epoll", EPOLL, FI_WAIT_FD, 1, 64, false },
	{ "epoll-4-senders", EPOLL, FI_WAIT_FD, 4, 64, false },
	{ "epoll-all-sizes", EPOLL, FI_WAIT_FD, 2, 200000, false },
	{ "epoll-automatic", EPOLL, FI_WAIT_FD, 1, 64, true },
	{ "condition", CONDITION, FI_WAIT_MUTEX_COND, 1, 64, false },
	{ "sread", SREAD, FI_WAIT_UNSPEC, 1, 64, false },
	{ "sread-4-senders", SREAD, FI_WAIT_FD, 4, 64, false },
	{ "sread-all-sizes", SREAD, FI_WAIT_UNSPEC, 2, 200000, false },
};

static uint64_t messages(void)
{
	const char *text = getenv("SHMCMA_WAIT_MESSAGES");

	return text ? strtoull(text, NULL, 10) : MT_SANITIZED ? 2000 : 20000;
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ---- the sleeper ----------------------------------------------------------------------------- */

struct sleeper {
	const struct plan *plan;
	struct mt_ep ep;
	int epoll;
	struct fi_mutex_cond condition;
	struct recv {
		struct fi_context2 context;
		uint8_t *buf;
	} recvs[RECVS];
	uint64_t seen, total, sleeps;
};

static void post(struct sleeper *sleeper, struct recv *recv)
{
	ssize_t ret;

	while ((ret = fi_trecv(sleeper->ep.ep, recv->buf, sleeper->plan->size_max, NULL, FI_ADDR_UNSPEC, 0,
			       UINT64_MAX, recv)) == -FI_EAGAIN)
		(void)fi_cq_read(sleeper->ep.cq, NULL, 0);
	mt_must(ret);
}

static void open_object(struct sleeper *sleeper)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd;

	if (sleeper->plan->way == CONDITION)
		mt_must(fi_control(&sleeper->ep.cq->fid, FI_GETWAIT, &sleeper->condition));
	if (sleeper->plan->way != EPOLL)
		return;
	mt_must(fi_control(&sleeper->ep.cq->fid, FI_GETWAIT, &fd));
	sleeper->epoll = epoll_create1(EPOLL_CLOEXEC);
	mt_require(sleeper->epoll >= 0, "epoll_create1: %s", strerror(errno));
	mt_require(!epoll_ctl(sleeper->epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl: %s", strerror(errno));
}

/* fi_trywait() of what the way needs: may it sleep? */
static bool may_sleep(struct sleeper *sleeper)
{
	struct fid *fid = &sleeper->ep.cq->fid;
	int ret = fi_trywait(sleeper->ep.fabric, &fid, 1);

	mt_require(!ret || ret == -FI_EAGAIN, "fi_trywait: %s", fi_strerror(-ret));
	return !ret;
}

static void sleep_epoll(struct sleeper *sleeper)
{
	struct epoll_event event;
	int ret;

	if (!may_sleep(sleeper))
		return;
	sleeper->sleeps++;
	do
		ret = epoll_wait(sleeper->epoll, &event, 1, -1);
	while (ret < 0 && errno == EINTR);
	mt_require(ret == 1, "epoll_wait: %d", ret);
}

static void sleep_condition(struct sleeper *sleeper)
{
	pthread_mutex_lock(sleeper->condition.mutex);
	if (may_sleep(sleeper)) {
		sleeper->sleeps++;
		pthread_cond_wait(sleeper->condition.cond, sleeper->condition.mutex);
	}
	pthread_mutex_unlock(sleeper->condition.mutex);
}

static void take(struct sleeper *sleeper, const struct fi_cq_tagged_entry *entry)
{
	struct recv *recv = entry->op_context;
	uint64_t rank = entry->tag >> 32;

	mt_require(entry->flags & FI_RECV, "no receive");
	mt_require((entry->tag & UINT32_MAX) == (uint32_t)(atomic_load(mt_flag(SEEN((int)rank))) + 1),
		   "a message out of order, or lost");
	mt_require(pattern_differs(recv->buf, 0, entry->len, entry->tag) < 0, "wrong bytes");
	post(sleeper, recv);
	atomic_fetch_add(mt_flag(SEEN((int)rank)), 1);
	sleeper->seen++;
}

/* All that is there; when nothing is, sleep. */
static void round_once(struct sleeper *sleeper)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	while ((ret = fi_cq_read(sleeper->ep.cq, &entry, 1)) == 1)
		take(sleeper, &entry);
	mt_require(ret == -FI_EAGAIN, "fi_cq_read: %s", fi_strerror((int)-ret));
	if (sleeper->seen == sleeper->total)
		return;
	if (sleeper->plan->way == EPOLL)
		sleep_epoll(sleeper);
	else
		sleep_condition(sleeper);
}

static void round_sread(struct sleeper *sleeper)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret = fi_cq_sread(sleeper->ep.cq, &entry, 1, NULL, -1);

	mt_require(ret == 1 || ret == -FI_EAGAIN, "fi_cq_sread: %s", fi_strerror((int)-ret));
	sleeper->sleeps++;
	if (ret == 1)
		take(sleeper, &entry);
}

static void take_until(struct sleeper *sleeper, uint64_t total)
{
	sleeper->total = total;
	while (sleeper->seen < total)
		sleeper->plan->way == SREAD ? round_sread(sleeper) : round_once(sleeper);
}

static void sleep_and_take(struct sleeper *sleeper, uint64_t total)
{
	double cpu = cpu_seconds(), begin = mt_now();

	mt_doing("sleeping for messages");
	take_until(sleeper, total);
	printf("  %s: %llu messages, %llu sleeps, %.1f s, processor %.1f s\n", sleeper->plan->name,
	       (unsigned long long)sleeper->seen, (unsigned long long)sleeper->sleeps, mt_now() - begin,
	       cpu_seconds() - cpu);
	fflush(stdout);
}

static void sleeper_open(struct sleeper *sleeper, const struct plan *plan)
{
	sleeper->plan = plan;
	mt_open(&sleeper->ep, &(struct mt_open){ .wait_obj = plan->obj, .automatic = plan->automatic });
	sleeper->ep.silent = true; /* receives are not mt_trecv()'s */
	open_object(sleeper);
	for (int i = 0; i < RECVS; i++) {
		sleeper->recvs[i].buf = malloc(plan->size_max);
		mt_require(sleeper->recvs[i].buf, "no memory");
		post(sleeper, &sleeper->recvs[i]);
	}
	mt_publish(&sleeper->ep, SLEEPER);
}

static void sleeper_close(struct sleeper *sleeper)
{
	mt_close(&sleeper->ep);
	for (int i = 0; i < RECVS; i++)
		free(sleeper->recvs[i].buf);
	if (sleeper->epoll)
		close(sleeper->epoll);
}

static uint64_t share_of(const struct plan *plan)
{
	return messages() / (plan->size_max > 64 ? 10 : 1) / (unsigned)plan->senders;
}

static void sleeper_rank(const struct plan *plan)
{
	struct sleeper sleeper = { 0 };

	sleeper_open(&sleeper, plan);
	sleep_and_take(&sleeper, share_of(plan) * (unsigned)plan->senders);
	mt_barrier(&sleeper.ep);
	sleeper_close(&sleeper);
}

/* ---- senders --------------------------------------------------------------------------------- */

static void spin(struct mt_ep *ep, double seconds)
{
	for (double end = mt_now() + seconds; mt_now() < end;)
		if (ep)
			mt_progress(ep);
}

static void send_one(struct mt_ep *ep, fi_addr_t to, uint8_t *buf, size_t size, uint64_t number)
{
	uint64_t tag = (uint64_t)mt_rank << 32 | (uint32_t)number;
	struct mt_op op = { 0 };

	pattern_fill(buf, 0, size, tag);
	mt_tsend(ep, &op, buf, size, to, tag);
	mt_wait(ep, &op);
}

/* The sleeper may be on its way to sleep, asleep, or waking: the time in between is random. */
static void sender_rank(const struct plan *plan)
{
	struct mt_random random = { (uint64_t)mt_rank * 77 + 1 };
	uint64_t sent = 0, total = share_of(plan);
	uint8_t *buf = malloc(plan->size_max);
	struct mt_ep ep;
	fi_addr_t to;

	mt_require(buf, "no memory");
	mt_open(&ep, NULL);
	ep.silent = true;
	to = mt_lookup(&ep, SLEEPER);
	mt_doing("sending");
	while (sent < total) {
		uint64_t turn = 1 + mt_below(&random, TURN_MAX);

		for (; turn && sent < total; turn--)
			send_one(&ep, to, buf, mt_below(&random, plan->size_max + 1), ++sent);
		while (atomic_load(mt_flag(SEEN(mt_rank))) < sent)
			sched_yield(); /* without progress: only the message can wake it */
		spin(NULL, (double)mt_below(&random, WAIT_US) / 1e6);
	}
	mt_barrier(&ep);
	mt_close(&ep);
	free(buf);
}

static void torture(const void *arg)
{
	if (mt_rank == SLEEPER)
		sleeper_rank(arg);
	else
		sender_rank(arg);
}

/* ---- nothing comes --------------------------------------------------------------------------- */

#define QUIET_SECONDS rounds_of(2, 1)

/* Switches that a thread asked for: each is one sleep, so one wake-up. */
static uint64_t wakeups(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_nvcsw;
}

static void quiet_sleeper(const struct plan *plan)
{
	struct sleeper sleeper = { 0 };
	double cpu, begin, elapsed;
	uint64_t before;

	sleeper_open(&sleeper, plan);
	take_until(&sleeper, 1); /* the sender is connected */
	before = wakeups();
	cpu = cpu_seconds();
	begin = mt_now();
	take_until(&sleeper, 2);
	elapsed = mt_now() - begin;
	printf("  %s: %.1f s without a message: processor %.4f s, woken %llu times\n", plan->name, elapsed,
	       cpu_seconds() - cpu, (unsigned long long)(wakeups() - before));
	fflush(stdout);
	mt_require(MT_SANITIZED || (double)(wakeups() - before) < 20 * elapsed,
		   "woken %llu times for nothing", (unsigned long long)(wakeups() - before));
	mt_barrier(&sleeper.ep);
	sleeper_close(&sleeper);
}

static void quiet_sender(void)
{
	uint8_t byte[1];
	struct mt_ep ep;
	fi_addr_t to;

	mt_open(&ep, NULL);
	ep.silent = true;
	to = mt_lookup(&ep, SLEEPER);
	send_one(&ep, to, byte, 1, 1);
	while (atomic_load(mt_flag(SEEN(mt_rank))) < 1)
		sched_yield();
	mt_poll_for(&ep, 0.1);
	sleep(QUIET_SECONDS);
	send_one(&ep, to, byte, 1, 2);
	mt_barrier(&ep);
	mt_close(&ep);
}

static void quiet(const void *arg)
{
	if (mt_rank == SLEEPER)
		quiet_sleeper(arg);
	else
		quiet_sender();
}

/* ---- the peer dies --------------------------------------------------------------------------- */

enum { VICTIM = 1, KILLER = 2 };
enum { FLAG_ASLEEP = 110 };
enum { TAG_TALK = 1, TAG_NEVER };
#define UNDER_WAY 3
#define LARGE ((size_t)1 << 20)

/* A receive, and sends of both kinds that nobody receives. */
static void post_all(struct mt_ep *ep, fi_addr_t victim, struct fi_context2 *contexts, uint8_t *buf)
{
	struct iovec iov = { buf, 64 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .addr = victim, .tag = TAG_NEVER };

	msg.context = &contexts[0];
	mt_must(fi_trecvmsg(ep->ep, &msg, FI_COMPLETION));
	msg.context = &contexts[1];
	mt_must(fi_tsendmsg(ep->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	iov.iov_len = LARGE;
	msg.context = &contexts[2];
	mt_must(fi_tsendmsg(ep->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

/* The next error, slept for. */
static void sleep_for_error(struct sleeper *sleeper)
{
	struct fi_cq_err_entry error = { 0 };
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	do {
		if (sleeper->plan->way == SREAD) {
			ret = fi_cq_sread(sleeper->ep.cq, &entry, 1, NULL, -1);
			continue;
		}
		ret = fi_cq_read(sleeper->ep.cq, &entry, 1);
		if (ret == -FI_EAGAIN)
			sleeper->plan->way == EPOLL ? sleep_epoll(sleeper) : sleep_condition(sleeper);
	} while (ret == -FI_EAGAIN);
	mt_require(ret == -FI_EAVAIL, "no error: %s", ret < 0 ? fi_strerror((int)-ret) : "a completion");
	mt_must(fi_cq_readerr(sleeper->ep.cq, &error, 0));
	mt_require(error.err == FI_ECONNRESET, "the error is %s", fi_strerror(error.err));
}

static void death_sleeper(const struct plan *plan)
{
	struct sleeper sleeper = { .plan = plan };
	struct fi_context2 contexts[UNDER_WAY];
	uint8_t *buf = malloc(LARGE);
	struct mt_op op = { 0 };
	fi_addr_t victim;

	mt_require(buf, "no memory");
	mt_open(&sleeper.ep, &(struct mt_open){ .wait_obj = plan->obj, .automatic = plan->automatic });
	sleeper.ep.silent = true;
	open_object(&sleeper);
	mt_publish(&sleeper.ep, SLEEPER);
	victim = mt_lookup(&sleeper.ep, VICTIM);
	mt_tsend(&sleeper.ep, &op, buf, 1, victim, TAG_TALK);
	mt_wait(&sleeper.ep, &op);
	mt_trecv(&sleeper.ep, &op, buf, 1, victim, TAG_TALK);
	mt_wait(&sleeper.ep, &op);
	mt_doing("sleeping while the peer dies");
	post_all(&sleeper.ep, victim, contexts, buf);
	atomic_store(mt_flag(FLAG_ASLEEP), 1);
	for (int i = 0; i < UNDER_WAY; i++)
		sleep_for_error(&sleeper);
	sleeper_close(&sleeper);
	free(buf);
}

/* It answers, and sleeps as well. */
static void death_victim(const struct plan *plan)
{
	struct fi_cq_tagged_entry entry;
	struct mt_op op = { 0 };
	uint8_t byte = 0;
	struct mt_ep ep;
	fi_addr_t from;

	mt_expect_death(mt_rank);
	mt_open(&ep, &(struct mt_open){ .wait_obj = plan->obj });
	ep.silent = true;
	mt_publish(&ep, VICTIM);
	from = mt_lookup(&ep, SLEEPER);
	mt_trecv(&ep, &op, &byte, 1, from, TAG_TALK);
	mt_wait(&ep, &op);
	mt_tsend(&ep, &op, &byte, 1, from, TAG_TALK);
	mt_wait(&ep, &op);
	mt_doing("sleeping until killed");
	for (;;)
		(void)fi_cq_sread(ep.cq, &entry, 1, NULL, -1);
}

static bool is_asleep(pid_t pid)
{
	char path[40], text[256];
	const char *at = NULL;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (file && fgets(text, sizeof(text), file))
		at = strrchr(text, ')');
	if (file)
		fclose(file);
	return at && at[2] == 'S';
}

/* Seen asleep ten times in a row, both of them; if it was for another reason, the test is easier. */
static void death_killer(void)
{
	mt_flag_wait(NULL, FLAG_ASLEEP, 1);
	for (int seen = 0; seen < 10; usleep(1000))
		seen = is_asleep(mt_pid(SLEEPER)) && is_asleep(mt_pid(VICTIM)) ? seen + 1 : 0;
	kill(mt_pid(VICTIM), SIGKILL);
}

static void death(const void *arg)
{
	if (mt_rank == SLEEPER)
		death_sleeper(arg);
	else if (mt_rank == VICTIM)
		death_victim(arg);
	else
		death_killer();
}

/* Without the thread that watches peers: it looks for itself. */
static void death_alone(const void *arg)
{
	setenv("FI_SHMCMA_DAEMON", "0", 1);
	death(arg);
}

int main(void)
{
	char name[64];

	mt_init("test_wait");
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
		mt_run(&(struct mt_case){ .name = plans[i].name,
					  .ranks = 1 + plans[i].senders,
					  .deadline = 120 + (unsigned)(messages() / 5000),
					  .rank = torture,
					  .arg = &plans[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		if (plans[i].senders > 1 || plans[i].automatic)
			continue;
		snprintf(name, sizeof(name), "quiet-%s", plans[i].name);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = 2,
					  .rank = quiet,
					  .arg = &plans[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	}
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		if (plans[i].senders > 1)
			continue;
		snprintf(name, sizeof(name), "death-%s", plans[i].name);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = KILLER + 1,
					  .rank = death,
					  .arg = &plans[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		snprintf(name, sizeof(name), "death-alone-%s", plans[i].name);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = KILLER + 1,
					  .rank = death_alone,
					  .arg = &plans[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	}
	return mt_end();
}
