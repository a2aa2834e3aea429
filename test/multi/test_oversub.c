/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_oversub: more processes than processors. A process that another waits for is most often not running; all must
 * come to an end all the same, with and without yielding the processor while they wait.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <rdma/fi_eq.h>

#define RANKS 16
#define CPUS 2
#define SIZE_MAX_HERE ((size_t)128 << 10)
#define SHM_SIZE ((size_t)64 << 20)

struct params {
	int exchanges; /* rounds of all-to-all */
	int barriers;  /* rounds of message barriers */
	bool spin;     /* never give up the processor while waiting */
};

struct member {
	struct mt_ep ep;
	fi_addr_t peers[RANKS];
	struct mt_op sends[RANKS], recvs[RANKS];
	uint8_t *out[RANKS], *in[RANKS];
	bool spin;
};

static void wait_op(struct member *m, struct mt_op *op)
{
	while (m->spin && !op->done)
		mt_progress(&m->ep);
	mt_wait(&m->ep, op);
}

/* The size of the message from `from` to `to` in a round. */
static size_t round_size(int round, int from, int to)
{
	static const size_t sizes[] = { 8, 0, 200, 4096, 64, 20000, 1, 1000, 16384, 8, 3000, 128 << 10 };

	return sizes[(size_t)(round * 5 + from * 3 + to) % (sizeof(sizes) / sizeof(sizes[0]))];
}

static uint64_t round_seed(int round, int from, int to)
{
	return (uint64_t)round << 16 | (uint64_t)from << 8 | (uint64_t)to;
}

static void exchange(struct member *m, int round)
{
	for (int i = 0; i < RANKS; i++)
		if (i != mt_rank)
			mt_trecv(&m->ep, &m->recvs[i], m->in[i], SIZE_MAX_HERE, m->peers[i],
				 (uint64_t)round);
	for (int k = 1; k < RANKS; k++) {
		int to = (mt_rank + k) % RANKS;
		size_t size = round_size(round, mt_rank, to);

		mt_doing("round %d: sending %zu bytes to rank %d", round, size, to);
		pattern_fill(m->out[to], 0, size, round_seed(round, mt_rank, to));
		mt_tsend(&m->ep, &m->sends[to], m->out[to], size, m->peers[to], (uint64_t)round);
	}
	for (int k = 1; k < RANKS; k++) {
		int from = (mt_rank + RANKS - k) % RANKS;
		size_t size = round_size(round, from, mt_rank);

		mt_doing("round %d: waiting for rank %d", round, from);
		wait_op(m, &m->recvs[from]);
		mt_require(m->recvs[from].len == size &&
				   pattern_differs(m->in[from], 0, size,
						   round_seed(round, from, mt_rank)) < 0,
			   "%zu of %zu bytes from rank %d, or wrong ones", m->recvs[from].len, size, from);
		mt_doing("round %d: waiting for the send to rank %d", round, from);
		wait_op(m, &m->sends[from]);
	}
}

/* Dissemination: in step k each rank hears from the one 2^k before it. */
static void barrier(struct member *m, int round)
{
	for (int step = 1; step < RANKS; step *= 2) {
		int to = (mt_rank + step) % RANKS, from = (mt_rank + RANKS - step) % RANKS;
		uint64_t tag = 1ULL << 32 | (uint64_t)round << 8 | (uint64_t)step;
		uint64_t token = tag, got = 0;
		struct mt_op send = { 0 }, recv = { 0 };

		mt_doing("barrier %d, step %d: from rank %d, to rank %d", round, step, from, to);
		mt_trecv(&m->ep, &recv, &got, sizeof(got), m->peers[from], tag);
		mt_tsend(&m->ep, &send, &token, sizeof(token), m->peers[to], tag);
		wait_op(m, &recv);
		wait_op(m, &send);
		mt_require(got == tag, "token %#llx", (unsigned long long)got);
	}
}

static void oversub_rank(const void *arg)
{
	const struct params *params = arg;
	struct member m;

	memset(&m, 0, sizeof(m));
	m.spin = params->spin;
	for (int i = 0; i < RANKS; i++) {
		m.in[i] = malloc(SIZE_MAX_HERE);
		m.out[i] = malloc(SIZE_MAX_HERE);
		mt_require(m.in[i] && m.out[i], "no memory");
	}
	mt_open(&m.ep, NULL);
	mt_join(&m.ep, m.peers);
	for (int i = 0; i < params->exchanges; i++)
		exchange(&m, i);
	for (int i = 0; i < params->barriers; i++)
		barrier(&m, i);
	mt_doing("finished, waiting for the others");
	mt_barrier(&m.ep);
	mt_close(&m.ep);
	for (int i = 0; i < RANKS; i++) {
		free(m.in[i]);
		free(m.out[i]);
	}
}

/* ---- a caller that polls in vain ------------------------------------------------------------- */

/*
 * Two ranks poll and do nothing else. On one processor, what a rank waits for comes when the other rank runs, and the
 * yields of the provider see to that: without them each message takes all polls of a time slice, some 100,000. The test
 * counts polls, since other load makes neither more of them nor fewer. On two processors that no other process with
 * endpoints uses, the provider does not yield at all, whatever else the machine does.
 */
#define LARGE ((size_t)1 << 20)
/* In so many empty polls there are some after which the provider asks whether it is to yield. */
#define POLLS_ENOUGH (3 * 16384)
#define POLLS_SLACK (40 * 16384)
#define POLLS_A_TURN 400

enum way { BY_CQ, BY_CNTR, BY_POLL };

struct polling {
	const char *mode; /* FI_SHMCMA_YIELD */
	enum way way;	  /* fi_cq_read(), fi_cntr_read() or fi_poll() */
	bool yields;
	int turns, large_turns;
};

struct poller {
	struct mt_ep ep;
	enum way way;
	struct fid_cntr *cntr;
	struct fid_poll *set;
	uint64_t counted; /* the value of the counter at the last poll */
};

/* The calls of this thread, in the provider too: the dynamic linker finds this function before that of the C library. */
static _Thread_local unsigned long yields;

__attribute__((visibility("default"))) int sched_yield(void)
{
	yields++;
	return (int)syscall(SYS_sched_yield);
}

/* The endpoint of mt_open() has no counter, so that another one takes its place. */
static void poller_open(struct poller *p, enum way way)
{
	struct fi_cntr_attr cntr_attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE };
	struct fi_poll_attr poll_attr = { 0 };

	memset(p, 0, sizeof(*p));
	p->way = way;
	mt_open(&p->ep, NULL);
	mt_must(fi_close(&p->ep.ep->fid));
	mt_must(fi_endpoint(p->ep.domain, p->ep.info, &p->ep.ep, NULL));
	mt_must(fi_cntr_open(p->ep.domain, &cntr_attr, &p->cntr, NULL));
	mt_must(fi_ep_bind(p->ep.ep, &p->ep.av->fid, 0));
	mt_must(fi_ep_bind(p->ep.ep, &p->ep.cq->fid, FI_TRANSMIT | FI_RECV));
	mt_must(fi_ep_bind(p->ep.ep, &p->cntr->fid, FI_SEND | FI_RECV));
	mt_must(fi_enable(p->ep.ep));
	p->ep.name_len = sizeof(p->ep.name);
	mt_must(fi_getname(&p->ep.ep->fid, p->ep.name, &p->ep.name_len));
	mt_must(fi_poll_open(p->ep.domain, &poll_attr, &p->set));
	mt_must(fi_poll_add(p->set, &p->ep.cq->fid, 0));
	mt_must(fi_poll_add(p->set, &p->cntr->fid, 0));
}

static void poller_close(struct poller *p)
{
	mt_must(fi_close(&p->ep.ep->fid));
	p->ep.ep = NULL;
	mt_must(fi_poll_del(p->set, &p->ep.cq->fid, 0));
	mt_must(fi_poll_del(p->set, &p->cntr->fid, 0));
	mt_must(fi_close(&p->set->fid));
	mt_must(fi_close(&p->cntr->fid));
	mt_close(&p->ep);
}

/* Looks whether there are completions. */
static bool is_due(struct poller *p)
{
	void *contexts[2];
	uint64_t value;
	int found;

	switch (p->way) {
	case BY_CNTR:
		value = fi_cntr_read(p->cntr);
		if (value == p->counted)
			return false;
		p->counted = value;
		return true;
	case BY_POLL:
		found = fi_poll(p->set, contexts, 2);
		mt_must(found);
		return found > 0;
	default:
		return true;
	}
}

static void poll_once(struct poller *p)
{
	if (is_due(p))
		mt_progress(&p->ep);
}

static uint64_t polls_until_done(struct poller *p, const struct mt_op *op)
{
	uint64_t polls = 0;

	for (; !op->done; polls++)
		poll_once(p);
	mt_require(!op->err, "%s", fi_strerror(op->err));
	return polls;
}

static uint64_t turns(struct poller *p, fi_addr_t peer, int count, size_t size)
{
	struct mt_op send = { 0 }, recv = { 0 };
	uint8_t *out = malloc(size), *in = malloc(size);
	uint64_t polls = 0;

	mt_require(out && in, "no memory");
	for (int i = 0; i < count; i++) {
		mt_doing("turn %d of %d, %zu bytes", i, count, size);
		pattern_fill(out, 0, size, (uint64_t)i);
		mt_trecv(&p->ep, &recv, in, size, peer, 1);
		if (!mt_rank) {
			mt_tsend(&p->ep, &send, out, size, peer, 1);
			polls += polls_until_done(p, &send);
		}
		polls += polls_until_done(p, &recv);
		if (mt_rank) {
			mt_tsend(&p->ep, &send, out, size, peer, 1);
			polls += polls_until_done(p, &send);
		}
		mt_require(pattern_differs(in, 0, size, (uint64_t)i) < 0, "wrong bytes");
	}
	free(out);
	free(in);
	return polls;
}

/* Nothing is on its way. In the mode auto the provider asks anew after a second at most whether processors are short. */
static void poll_in_vain(struct poller *p, bool until_yield)
{
	mt_doing(until_yield ? "polling until it yields" : "polling in vain");
	for (uint64_t polls = 0; until_yield ? !yields : polls < POLLS_ENOUGH; polls++)
		poll_once(p);
}

static void polling_rank(const void *arg)
{
	const struct polling *polling = arg;
	fi_addr_t peers[2];
	struct poller p;
	uint64_t polls,
		most = POLLS_SLACK + (uint64_t)(polling->turns + polling->large_turns) * POLLS_A_TURN;

	setenv("FI_SHMCMA_YIELD", polling->mode, 1);
	poller_open(&p, polling->way);
	mt_join(&p.ep, peers);
	mt_barrier(&p.ep);
	yields = 0;
	poll_in_vain(&p, polling->yields);
	mt_barrier(NULL); /* no message is sent before that */
	polls = turns(&p, peers[!mt_rank], polling->turns, 8);
	polls += turns(&p, peers[!mt_rank], polling->large_turns, LARGE);
	if (polling->yields)
		mt_require(polls < most,
			   "%llu polls: the other rank runs when the time slice of this rank has ended",
			   (unsigned long long)polls);
	else
		mt_require(!yields, "%lu calls of sched_yield", yields);
	mt_barrier(&p.ep);
	poller_close(&p);
}

static void run_polling(const char *name, const struct polling *polling)
{
	mt_run(&(struct mt_case){ .name = name,
				  .ranks = 2,
				  .deadline = 20,
				  .flags = MT_CASE_SHMCMA,
				  .rank = polling_rank,
				  .arg = polling });
}

#define FEW_TURNS .turns = 20, .large_turns = 3
#define MANY_TURNS .turns = 300, .large_turns = 20

/* Endpoints of other programs would count, so that /dev/shm is another. */
static int on_two_processors(void)
{
	cpu_set_t set;

	mt_confine(2);
	if (sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) < 2)
		return MT_SKIP;
	run_polling("two processors: fi_cq_read", &(struct polling){ "auto", BY_CQ, false, FEW_TURNS });
	run_polling("two processors: fi_cntr_read",
		    &(struct polling){ "auto", BY_CNTR, false, FEW_TURNS });
	run_polling("two processors: fi_poll", &(struct polling){ "auto", BY_POLL, false, FEW_TURNS });
	return mt_end();
}

static void on_one_processor(void)
{
	mt_confine(1);
	run_polling("auto: fi_cq_read", &(struct polling){ "auto", BY_CQ, true, MANY_TURNS });
	run_polling("auto: fi_cntr_read", &(struct polling){ "auto", BY_CNTR, true, MANY_TURNS });
	run_polling("auto: fi_poll", &(struct polling){ "auto", BY_POLL, true, MANY_TURNS });
	run_polling("always: fi_cq_read", &(struct polling){ "always", BY_CQ, true, MANY_TURNS });
	run_polling("always: fi_cntr_read", &(struct polling){ "always", BY_CNTR, true, MANY_TURNS });
	run_polling("always: fi_poll", &(struct polling){ "always", BY_POLL, true, MANY_TURNS });
	run_polling("never: fi_cq_read", &(struct polling){ "never", BY_CQ, false, FEW_TURNS });
	run_polling("never: fi_cntr_read", &(struct polling){ "never", BY_CNTR, false, FEW_TURNS });
	run_polling("never: fi_poll", &(struct polling){ "never", BY_POLL, false, FEW_TURNS });
}

int main(void)
{
	static const struct params yielding = { .exchanges = 60, .barriers = 200 };
	static const struct params spinning = { .exchanges = 3, .barriers = 5, .spin = true };

	mt_init("test_oversub");
	if (mt_with_shm(SHM_SIZE, on_two_processors) == MT_SKIP)
		printf("test_oversub two processors ... skipped: no mount namespace, one processor, or "
		       "not for this provider\n");
	mt_confine(CPUS);
	mt_run(&(struct mt_case){ .name = "yielding",
				  .ranks = RANKS,
				  .deadline = 90,
				  .rank = oversub_rank,
				  .arg = &yielding });
	mt_run(&(struct mt_case){ .name = "spinning",
				  .ranks = RANKS,
				  .deadline = 90,
				  .rank = oversub_rank,
				  .arg = &spinning });
	on_one_processor();
	return mt_end();
}
