/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_locks.c: endpoints of one domain that share nothing, each used by a thread of its own, while all that
 * locks of a domain have to stand happens beside them:
 *
 *	apart		one endpoint's call does not end, and others' calls do all the same; queues and counters
 *			that nobody has slept on come and go
 *	beside		addresses, memory, endpoints, queues and counters come and go
 *	tied		queues that are in use, and slept on, get endpoints in common, until all are tied
 *	at once		something that goes beyond what is bound together is begun in the middle
 *	forked		children are made, which close what they have inherited
 *
 * And threads that make control calls alone, of a domain whose data calls are not locked.
 *
 * Every message is checked: it comes once, and whole. The thread sanitizer sees calls that should be
 * serialized and are not; the time limit of each test shows a wake-up that is lost.
 */
#include "pair.h"
#include "../rounds.h"
#include <pthread.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>
#include <signal.h>
#include <stdatomic.h>

#define ENDS 16
#define ROUNDS (SANITIZED ? 60 : rounds_of(300, 100))
#define CAPS (PAIR_CAPS | FI_RMA | FI_ATOMIC | FI_RMA_EVENT | FI_TRIGGER)

/* How a thread gets on while its queue is empty. */
enum way { SPINS, READS, POLLS, WAYS };

struct message {
	uint32_t from, round;
	uint8_t rest[120];
};

struct end {
	enum way way;
	uint32_t id;
	pthread_t thread;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t self;
	char name[64];
	struct end *to;
	struct message out, in[2];
	uint64_t target, sum; /* memory that the one before writes and adds to */
	uint64_t value;
};

struct bench {
	struct pair pair;
	struct fid_av *av;
	struct fid_mr *mr;
	struct end *ends;
	atomic_uint done;   /* threads that have come to their end */
	atomic_uint rounds; /* of all together */
	atomic_bool waits;  /* no endpoint begins its last round before this is false */
};

/* ---- the endpoints --------------------------------------------------------------------------- */

static void end_open(struct bench *bench, struct end *end)
{
	static const enum fi_wait_obj objects[WAYS] = { FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD };
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = objects[end->way] };

	gives(fi_cq_open(bench->pair.domain, &attr, &end->cq, NULL), 0);
	end->ep = pair_open_ep(&bench->pair);
	pair_bind(end->ep, end->cq, bench->av);
	gives(fi_enable(end->ep), 0);
	gives(fi_getname(&end->ep->fid, end->name, &(size_t){ sizeof(end->name) }), 0);
	end->self = pair_insert(bench->av, end->name);
}

#define OWN_KEYS (FI_MR_VIRT_ADDR | FI_MR_PROV_KEY)

static struct bench *bench_open(enum fi_threading threading, int mr_mode)
{
	struct bench *bench = calloc(1, sizeof(*bench));

	must(bench);
	bench->ends = calloc(ENDS, sizeof(*bench->ends));
	must(bench->ends);
	pair_open_domain(&bench->pair,
			 &(struct pair_want){ .caps = CAPS, .threading = threading, .mr_mode = mr_mode });
	bench->av = pair_open_av(&bench->pair);
	for (uint32_t i = 0; i < ENDS; i++) {
		bench->ends[i].id = i;
		bench->ends[i].way = (enum way)(i % WAYS);
		bench->ends[i].to = &bench->ends[(i + 1) % ENDS];
		end_open(bench, &bench->ends[i]);
	}
	gives(fi_mr_reg(bench->pair.domain, bench->ends, ENDS * sizeof(*bench->ends), FI_REMOTE_WRITE, 0,
			0, 0, &bench->mr, NULL),
	      0);
	return bench;
}

static void bench_close(struct bench *bench)
{
	for (int i = 0; i < ENDS; i++) {
		gives(fi_close(&bench->ends[i].ep->fid), 0);
		gives(fi_close(&bench->ends[i].cq->fid), 0);
	}
	gives(fi_close(&bench->mr->fid), 0);
	gives(fi_close(&bench->av->fid), 0);
	pair_close(&bench->pair);
	free(bench->ends);
	free(bench);
}

/* ---- what each thread does ------------------------------------------------------------------- */

static void sleep_on_fd(struct bench *bench, struct end *end)
{
	struct pollfd poll_fd = { .events = POLLIN };
	struct fid *fid = &end->cq->fid;

	gives(fi_control(fid, FI_GETWAIT, &poll_fd.fd), 0);
	if (!fi_trywait(bench->pair.fabric, &fid, 1))
		must(poll(&poll_fd, 1, -1) >= 0);
}

/* The next completion. */
static struct fi_cq_tagged_entry next(struct bench *bench, struct end *end)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	for (;;) {
		if (end->way == READS)
			ret = fi_cq_sread(end->cq, &entry, 1, NULL, -1);
		else
			ret = fi_cq_read(end->cq, &entry, 1);
		if (ret == 1)
			return entry;
		gives(ret, -FI_EAGAIN);
		if (end->way == POLLS)
			sleep_on_fd(bench, end);
		else
			sched_yield();
	}
}

static void message_fill(struct message *message, uint32_t from, uint32_t round)
{
	message->from = from;
	message->round = round;
	pattern_fill(message->rest, 0, sizeof(message->rest), from * 1000 + round);
}

static void message_check(const struct message *message, uint32_t from, uint32_t round)
{
	gives(message->from, from);
	gives(message->round, round);
	must(pattern_is(message->rest, 0, sizeof(message->rest), from * 1000 + round));
}

static uint64_t address_of(const struct bench *bench, const uint64_t *word)
{
	bool from_zero = !(bench->pair.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR);

	return (uintptr_t)word - (from_zero ? (uintptr_t)bench->ends : 0);
}

/* An end may be ahead of the next one by as many rounds as there are others: that ring has room when it has been read. */
#define HAS_ROOM(end, call)                                                                               \
	do {                                                                                              \
		ssize_t posted;                                                                           \
                                                                                                          \
		while ((posted = (call)) == -FI_EAGAIN) {                                                 \
			fi_cq_read((end)->cq, NULL, 0);                                                   \
			sched_yield();                                                                    \
		}                                                                                         \
		gives(posted, 0);                                                                         \
	} while (0)

/* The next endpoint does its part of these operations under its own lock. */
static void touch_next(struct bench *bench, struct end *end)
{
	uint64_t key = fi_mr_key(bench->mr);

	HAS_ROOM(end, fi_write(end->ep, &end->value, sizeof(end->value), NULL, end->to->self,
			       address_of(bench, &end->to->target), key, NULL));
	HAS_ROOM(end, fi_atomic(end->ep, &end->value, 1, NULL, end->to->self,
				address_of(bench, &end->to->sum), key, FI_UINT64, FI_SUM, NULL));
}

/* Messages come from itself and from the one before; words are written and added to the next one's memory. */
static void one_round(struct bench *bench, struct end *end, uint32_t round)
{
	uint32_t before = (end->id + ENDS - 1) % ENDS;
	int sends = 0, writes = 0, receives = 0;

	message_fill(&end->out, end->id, round);
	end->value = round;
	for (int i = 0; i < 2; i++)
		gives(fi_trecv(end->ep, &end->in[i], sizeof(end->in[i]), NULL, FI_ADDR_UNSPEC,
			       i ? ENDS + before : end->id, 0, &end->in[i]),
		      0);
	gives(fi_tsend(end->ep, &end->out, sizeof(end->out), NULL, end->self, end->id, NULL), 0);
	HAS_ROOM(end, fi_tsend(end->ep, &end->out, sizeof(end->out), NULL, end->to->self, ENDS + end->id,
			       NULL));
	touch_next(bench, end);
	while (sends < 2 || receives < 2 || writes < 2) {
		struct fi_cq_tagged_entry entry = next(bench, end);

		sends += !!(entry.flags & FI_SEND);
		writes += !!(entry.flags & FI_WRITE);
		if (!(entry.flags & FI_RECV))
			continue;
		gives(entry.len, sizeof(end->in[0]));
		receives++;
	}
	message_check(&end->in[0], end->id, round);
	message_check(&end->in[1], before, round);
}

#define SUM (ROUNDS * (ROUNDS - 1) / 2) /* of the rounds' numbers, which the one before adds */

static uint64_t sum_of(const struct end *end)
{
	return __atomic_load_n(&end->sum, __ATOMIC_RELAXED);
}

struct part {
	struct bench *bench;
	struct end *end;
};

static void *drive(void *arg)
{
	struct part *part = arg;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		while (round == ROUNDS - 1 && atomic_load(&part->bench->waits)) {
			fi_cq_read(part->end->cq, NULL, 0);
			sched_yield();
		}
		one_round(part->bench, part->end, round);
		atomic_fetch_add(&part->bench->rounds, 1);
	}
	atomic_fetch_add(&part->bench->done, 1);
	/* others may need its polls yet, and what they have added to its sum may still be in its ring */
	while (atomic_load(&part->bench->done) < ENDS || sum_of(part->end) < SUM) {
		fi_cq_read(part->end->cq, NULL, 0);
		sched_yield();
	}
	return NULL;
}

static bool over(struct bench *bench)
{
	return atomic_load(&bench->done) == ENDS;
}

static bool half_over(struct bench *bench)
{
	return atomic_load(&bench->rounds) > ENDS * ROUNDS / 2;
}

/* The endpoints' threads, and beside them those of `beside`. */
static void run(struct bench *bench, void *(*const beside[])(void *bench))
{
	struct part parts[ENDS];
	pthread_t others[8];
	int count = 0;

	for (int i = 0; i < ENDS; i++) {
		parts[i] = (struct part){ bench, &bench->ends[i] };
		gives(pthread_create(&bench->ends[i].thread, NULL, drive, &parts[i]), 0);
	}
	for (; beside[count]; count++)
		gives(pthread_create(&others[count], NULL, beside[count], bench), 0);
	for (int i = 0; i < ENDS; i++)
		gives(pthread_join(bench->ends[i].thread, NULL), 0);
	for (int i = 0; i < count; i++)
		gives(pthread_join(others[i], NULL), 0);
	for (int i = 0; i < ENDS; i++) {
		gives(bench->ends[i].target, ROUNDS - 1);
		gives(bench->ends[i].sum, SUM);
	}
}

/* ---- apart ----------------------------------------------------------------------------------- */

static uint8_t *guarded;
static size_t page;
static int inside[2], go_on[2];

/* The call that has touched the page is in the middle of its work until it is told to go on. */
static void held_up(int signal)
{
	char byte;

	(void)signal;
	if (write(inside[1], "", 1) != 1 || read(go_on[0], &byte, 1) != 1)
		_exit(3);
	mprotect(guarded, page, PROT_READ | PROT_WRITE);
}

static void *send_guarded(void *arg)
{
	struct end *end = arg;

	gives(fi_tinject(end->ep, guarded, 8, end->self, 1), 0);
	return NULL;
}

static void send_to_self(struct bench *bench, struct end *end, const void *data)
{
	uint64_t got = 0;

	gives(fi_trecv(end->ep, &got, sizeof(got), NULL, FI_ADDR_UNSPEC, 1, 0, &got), 0);
	if (data)
		gives(fi_tinject(end->ep, data, sizeof(got), end->self, 1), 0);
	must(next(bench, end).op_context == &got);
	gives(got, 0x1122334455667788);
}

/* Queues and counters come and go, many, though nobody can have all locks of the domain meanwhile. */
static void many_come_and_go(struct bench *bench)
{
	enum { MANY = 300 };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntrs[MANY];
	struct fid_cq *cqs[MANY];

	for (int round = 0; round < 3; round++) { /* with locks that are new, and with those of the round before */
		for (int i = 0; i < MANY; i++) {
			gives(fi_cq_open(bench->pair.domain, &cq_attr, &cqs[i], NULL), 0);
			gives(fi_cntr_open(bench->pair.domain, &cntr_attr, &cntrs[i], NULL), 0);
		}
		for (int i = 0; i < MANY; i++) {
			int at = round == 0 ? i : round == 1 ? MANY - 1 - i : i * 7 % MANY;

			gives(fi_close(&cqs[at]->fid), 0);
			gives(fi_close(&cntrs[at]->fid), 0);
		}
	}
}

static void apart(enum fi_threading threading)
{
	const uint64_t word = 0x1122334455667788;
	struct bench *bench = bench_open(threading, OWN_KEYS);
	struct sigaction action = { .sa_handler = held_up };
	pthread_t thread;
	char byte;

	page = (size_t)sysconf(_SC_PAGESIZE);
	guarded = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(guarded != MAP_FAILED);
	memcpy(guarded, &word, sizeof(word));
	gives(mprotect(guarded, page, PROT_NONE), 0);
	gives(pipe(inside) | pipe(go_on), 0);
	gives(sigaction(SIGSEGV, &action, NULL), 0);
	gives(pthread_create(&thread, NULL, send_guarded, &bench->ends[3]), 0);
	gives(read(inside[0], &byte, 1), 1);
	for (int i = 0; i < ENDS; i++)
		if (i != 3)
			send_to_self(bench, &bench->ends[i], &word);
	many_come_and_go(bench);
	gives(write(go_on[1], "", 1), 1);
	gives(pthread_join(thread, NULL), 0);
	send_to_self(bench, &bench->ends[3], NULL);
	gives(munmap(guarded, page), 0);
	bench_close(bench);
}

static void test_safe_apart(void)
{
	apart(FI_THREAD_SAFE);
}

static void test_fid_apart(void)
{
	apart(FI_THREAD_FID);
}

static void test_endpoint_apart(void)
{
	apart(FI_THREAD_ENDPOINT);
}

static void test_completion_apart(void)
{
	apart(FI_THREAD_COMPLETION);
}

/* ---- beside ---------------------------------------------------------------------------------- */

static void *addresses(void *arg)
{
	struct bench *bench = arg;

	for (uint32_t i = 0; !over(bench); i++) {
		fi_addr_t again = pair_insert(bench->av, bench->ends[i % ENDS].name);

		sched_yield();
		gives(fi_av_remove(bench->av, &again, 1, 0), 0);
	}
	return NULL;
}

static void *memory(void *arg)
{
	static uint8_t bytes[4096];
	static struct fid_mr *mrs[2000];
	struct bench *bench = arg;

	/* now and then more than there is room for in the table at first */
	for (uint32_t round = 0; !over(bench); round++) {
		uint32_t count = round % 16 == 5 ? 2000 : 4;

		for (uint32_t i = 0; i < count; i++)
			gives(fi_mr_reg(bench->pair.domain, bytes, sizeof(bytes),
					FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 100 + i, 0, &mrs[i], NULL),
			      0);
		for (uint32_t i = 0; i < count; i++)
			gives(fi_close(&mrs[i]->fid), 0);
		sched_yield();
	}
	return NULL;
}

/* An endpoint of its own: sends itself a word. */
static void *endpoints(void *arg)
{
	const uint64_t word = 0x1122334455667788;
	struct bench *bench = arg;

	for (uint32_t i = 0; !over(bench); i++) {
		struct end end = { .way = (enum way)(i % WAYS) };

		end_open(bench, &end);
		send_to_self(bench, &end, &word);
		gives(fi_close(&end.ep->fid), 0);
		gives(fi_close(&end.cq->fid), 0);
		gives(fi_av_remove(bench->av, &end.self, 1, 0), 0);
	}
	return NULL;
}

/* One is read before it is bound, and waited for afterwards. */
static void *counters(void *arg)
{
	struct bench *bench = arg;

	while (!over(bench)) {
		struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
		struct fid_cntr *cntr;
		struct end end;

		memset(&end, 0, sizeof(end));
		gives(fi_cntr_open(bench->pair.domain, &attr, &cntr, NULL), 0);
		gives(fi_cntr_read(cntr), 0);
		gives(fi_cntr_add(cntr, 2), 0);
		end.cq = pair_open_cq(&bench->pair);
		end.ep = pair_open_ep(&bench->pair);
		pair_bind(end.ep, end.cq, bench->av);
		gives(fi_ep_bind(end.ep, &cntr->fid, FI_RECV), 0);
		gives(fi_enable(end.ep), 0);
		gives(fi_getname(&end.ep->fid, end.name, &(size_t){ sizeof(end.name) }), 0);
		end.self = pair_insert(bench->av, end.name);
		gives(fi_trecv(end.ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
		gives(fi_tinject(end.ep, NULL, 0, end.self, 1), 0);
		gives(fi_cntr_wait(cntr, 3, -1), 0);
		gives(fi_close(&end.ep->fid), 0);
		gives(fi_close(&end.cq->fid), 0);
		gives(fi_cntr_read(cntr), 3);
		gives(fi_close(&cntr->fid), 0);
		gives(fi_av_remove(bench->av, &end.self, 1, 0), 0);
	}
	return NULL;
}

/* All queues, looked at by one more thread, as FI_THREAD_SAFE alone allows. */
static void *poll_all(void *arg)
{
	struct bench *bench = arg;
	struct fid_poll *set;

	gives(fi_poll_open(bench->pair.domain, NULL, &set), 0);
	for (int i = 0; i < ENDS; i++)
		gives(fi_poll_add(set, &bench->ends[i].cq->fid, 0), 0);
	while (!over(bench)) {
		void *found[ENDS];

		must(fi_poll(set, found, ENDS) >= 0);
		sched_yield();
	}
	for (int i = 0; i < ENDS; i++)
		gives(fi_poll_del(set, &bench->ends[i].cq->fid, 0), 0);
	gives(fi_close(&set->fid), 0);
	return NULL;
}

static void test_beside(void)
{
	struct bench *bench = bench_open(FI_THREAD_SAFE, OWN_KEYS);

	run(bench, (void *(*const[])(void *)){ addresses, memory, endpoints, counters, poll_all, NULL });
	bench_close(bench);
}

/* Keys that the application chooses are found in another way. */
static void test_beside_chosen_keys(void)
{
	struct bench *bench = bench_open(FI_THREAD_SAFE, 0);

	run(bench, (void *(*const[])(void *)){ memory, endpoints, NULL });
	bench_close(bench);
}

static void test_beside_completion(void)
{
	struct bench *bench = bench_open(FI_THREAD_COMPLETION, OWN_KEYS);

	run(bench, (void *(*const[])(void *)){ addresses, memory, endpoints, counters, NULL });
	bench_close(bench);
}

/* ---- tied ------------------------------------------------------------------------------------ */

/* An endpoint that sends to the one queue and receives to the other, and does neither. */
static void tie(struct bench *bench, struct end *one, struct end *other)
{
	struct fid_ep *ep = pair_open_ep(&bench->pair);

	gives(fi_ep_bind(ep, &one->cq->fid, FI_TRANSMIT), 0);
	gives(fi_ep_bind(ep, &other->cq->fid, FI_RECV), 0);
	gives(fi_ep_bind(ep, &bench->av->fid, 0), 0);
	gives(fi_enable(ep), 0);
	sched_yield();
	gives(fi_close(&ep->fid), 0);
}

/* Now and then a pair, as it comes, until every one has been tied to its neighbour. */
static void *ties(void *arg)
{
	struct bench *bench = arg;

	for (uint32_t i = 0; i < ENDS; i++) {
		uint32_t at = i * 5 % ENDS;

		while (atomic_load(&bench->rounds) < ENDS * ROUNDS / (ENDS + 1) * i)
			sched_yield();
		tie(bench, &bench->ends[at], bench->ends[at].to);
	}
	return NULL;
}

static void test_tied(void)
{
	struct bench *bench = bench_open(FI_THREAD_SAFE, OWN_KEYS);

	run(bench, (void *(*const[])(void *)){ ties, addresses, memory, endpoints, NULL });
	bench_close(bench);
}

/* ---- at once --------------------------------------------------------------------------------- */

/* All threads poll an endpoint without a queue: an access to its memory is done by any of them. */
static void *silent(void *arg)
{
	struct bench *bench = arg;
	struct fi_info *info = fi_dupinfo(bench->pair.info);
	struct fid_ep *ep;

	while (!half_over(bench))
		sched_yield();
	info->caps = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_READ;
	info->tx_attr->caps = info->rx_attr->caps = 0;
	gives(fi_endpoint(bench->pair.domain, info, &ep, NULL), 0);
	gives(fi_ep_bind(ep, &bench->av->fid, 0), 0);
	gives(fi_enable(ep), 0);
	while (!over(bench))
		sched_yield();
	gives(fi_close(&ep->fid), 0);
	fi_freeinfo(info);
	return NULL;
}

static struct fid_cntr *open_counter(struct bench *bench)
{
	struct fid_cntr *cntr;

	gives(fi_cntr_open(bench->pair.domain, &(struct fi_cntr_attr){ .wait_obj = FI_WAIT_UNSPEC }, &cntr,
			   NULL),
	      0);
	return cntr;
}

/* A message that waits for a counter. */
static void *triggered(void *arg)
{
	struct bench *bench = arg;
	struct fi_triggered_context context = { .event_type = FI_TRIGGER_THRESHOLD };
	struct iovec iov = { "a word", 7 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .tag = 1, .context = &context };
	struct fid_cntr *cntr = open_counter(bench);
	char got[8] = "";
	struct end end;

	while (!half_over(bench))
		sched_yield();
	memset(&end, 0, sizeof(end));
	end_open(bench, &end);
	context.trigger.threshold.cntr = cntr;
	context.trigger.threshold.threshold = 1;
	msg.addr = end.self;
	gives(fi_tsendmsg(end.ep, &msg, FI_TRIGGER), 0);
	gives(fi_trecv(end.ep, got, sizeof(got), NULL, FI_ADDR_UNSPEC, 1, 0, got), 0);
	gives(fi_cntr_add(cntr, 1), 0);
	while (next(bench, &end).op_context != got)
		;
	must(!strcmp(got, "a word"));
	gives(fi_close(&end.ep->fid), 0);
	gives(fi_close(&end.cq->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	return NULL;
}

/* Writes to memory are counted, whichever endpoint they come by. */
static void *counted(void *arg)
{
	struct bench *bench = arg;
	struct fid_cntr *cntr = open_counter(bench);

	while (!half_over(bench))
		sched_yield();
	gives(fi_mr_bind(bench->mr, &cntr->fid, FI_REMOTE_WRITE), 0);
	atomic_store(&bench->waits, false); /* there is a write to count, however late this thread comes */
	gives(fi_cntr_wait(cntr, 1, -1), 0);
	while (!over(bench))
		sched_yield();
	/* operations that are complete for their initiator may still be in the target's ring: they need the key */
	for (int i = 0; i < ENDS; i++)
		while (sum_of(&bench->ends[i]) < SUM)
			sched_yield();
	gives(fi_close(&bench->mr->fid), 0);
	must(fi_cntr_read(cntr) > 0);
	gives(fi_close(&cntr->fid), 0);
	/* for bench_close() */
	gives(fi_mr_reg(bench->pair.domain, bench->ends, 1, FI_REMOTE_WRITE, 0, 0, 0, &bench->mr, NULL),
	      0);
	return NULL;
}

/* A counter of nothing yet is slept on. */
static void *unbound(void *arg)
{
	struct bench *bench = arg;
	struct fid_cntr *cntr = open_counter(bench);

	while (!half_over(bench))
		sched_yield();
	gives(fi_cntr_wait(cntr, 1, 20), -FI_ETIMEDOUT);
	gives(fi_close(&cntr->fid), 0);
	return NULL;
}

static void at_once(void *(*what)(void *))
{
	struct bench *bench = bench_open(FI_THREAD_SAFE, OWN_KEYS);

	bench->waits = what == counted;
	run(bench, (void *(*const[])(void *)){ what, addresses, memory, endpoints, counters, NULL });
	bench_close(bench);
}

static void test_silent(void)
{
	at_once(silent);
}

static void test_triggered(void)
{
	at_once(triggered);
}

static void test_counted(void)
{
	at_once(counted);
}

static void test_unbound(void)
{
	at_once(unbound);
}

/* ---- forked ---------------------------------------------------------------------------------- */

static void close_inherited(struct bench *bench)
{
	for (int i = 0; i < ENDS; i++) {
		gives(fi_tinject(bench->ends[i].ep, "", 1, bench->ends[i].self, 1), -FI_EPERM);
		gives(fi_close(&bench->ends[i].ep->fid), 0);
		gives(fi_close(&bench->ends[i].cq->fid), 0);
	}
	gives(fi_close(&bench->mr->fid), 0);
	gives(fi_close(&bench->av->fid), 0);
	gives(fi_close(&bench->pair.domain->fid), 0);
	gives(fi_close(&bench->pair.fabric->fid), 0);
	_exit(0);
}

static void *forks(void *arg)
{
	struct bench *bench = arg;

	for (int i = 0; i < 8 && !over(bench); i++) {
		int status;
		pid_t pid;

		tie(bench, &bench->ends[i * 5 % ENDS], bench->ends[i * 5 % ENDS].to);
		pid = fork();
		if (!pid) {
			watchdog_start("a child of test_forked", 0);
			close_inherited(bench);
		}
		must(pid > 0);
		gives(waitpid(pid, &status, 0), pid);
		gives(status, 0);
	}
	return NULL;
}

static void test_forked(void)
{
	struct bench *bench = bench_open(FI_THREAD_SAFE, OWN_KEYS);

	run(bench, (void *(*const[])(void *)){ forks, addresses, NULL });
	bench_close(bench);
}

/* ---- control calls, of FI_THREAD_DOMAIN -------------------------------------------------------- */

#define CONTROLLERS 3

struct controller {
	struct bench *bench;
	uint64_t first_key;
	pthread_t thread;
};

/* Everything that begins and ends without data, of its own and of what all share. */
static void *control(void *arg)
{
	static uint8_t bytes[4096];
	struct controller *self = arg;
	struct bench *bench = self->bench;
	struct fid_domain *domain = bench->pair.domain;
	struct fid_mr *mrs[100];

	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
		struct end end = { .way = (enum way)(round % WAYS) };
		uint32_t regions = round % 16 == 5 ? 100 : 4;
		struct fid_cntr *cntr;

		for (uint32_t i = 0; i < regions; i++)
			gives(fi_mr_reg(domain, bytes, sizeof(bytes), FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
					self->first_key + i, 0, &mrs[i], NULL),
			      0);
		gives(fi_cntr_open(domain, &attr, &cntr, NULL), 0);
		gives(fi_mr_bind(mrs[0], &cntr->fid, FI_REMOTE_WRITE), 0);
		end_open(bench, &end);
		gives(fi_close(&end.ep->fid), 0);
		gives(fi_close(&end.cq->fid), 0);
		gives(fi_av_remove(bench->av, &end.self, 1, 0), 0);
		for (uint32_t i = 0; i < regions; i++)
			gives(fi_close(&mrs[i]->fid), 0);
		gives(fi_close(&cntr->fid), 0);
	}
	return NULL;
}

static void test_control(void)
{
	struct bench *bench = bench_open(FI_THREAD_DOMAIN, 0);
	struct controller controllers[CONTROLLERS];

	for (uint32_t i = 0; i < CONTROLLERS; i++) {
		controllers[i].bench = bench;
		controllers[i].first_key = 1000 * (i + 1);
		gives(pthread_create(&controllers[i].thread, NULL, control, &controllers[i]), 0);
	}
	for (uint32_t i = 0; i < CONTROLLERS; i++)
		gives(pthread_join(controllers[i].thread, NULL), 0);
	bench_close(bench);
}

#define CLOSERS 2
#define CLOSED 100 /* queues that each of them closes */

static pthread_barrier_t closers;

static struct fid_cq *armed_queue(struct bench *bench)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
	struct fid_cq *cq;
	struct fid *fid;

	gives(fi_cq_open(bench->pair.domain, &attr, &cq, NULL), 0);
	fid = &cq->fid;
	gives(fi_trywait(bench->pair.fabric, &fid, 1), 0);
	return cq;
}

static void *close_queues(void *arg)
{
	struct fid_cq **queues = arg;

	pthread_barrier_wait(&closers);
	for (uint32_t i = 0; i < CLOSED; i++)
		gives(fi_close(&queues[i]->fid), 0);
	return NULL;
}

/* Threads close queues at once that others sleep on after fi_trywait: those that stay can be tried again. */
static void test_close_armed(void)
{
	struct bench *bench = bench_open(FI_THREAD_DOMAIN, 0);
	struct fid_cq *queues[CLOSERS][CLOSED], *stays = armed_queue(bench);
	struct fid *fid = &stays->fid;
	pthread_t threads[CLOSERS];

	gives(pthread_barrier_init(&closers, NULL, CLOSERS), 0);
	for (uint32_t round = 0; round < ROUNDS / 3; round++) {
		for (uint32_t i = 0; i < CLOSED; i++)
			for (uint32_t j = 0; j < CLOSERS; j++)
				queues[j][i] = armed_queue(bench);
		for (uint32_t j = 0; j < CLOSERS; j++)
			gives(pthread_create(&threads[j], NULL, close_queues, queues[j]), 0);
		for (uint32_t j = 0; j < CLOSERS; j++)
			gives(pthread_join(threads[j], NULL), 0);
		gives(fi_trywait(bench->pair.fabric, &fid, 1), 0);
	}
	gives(fi_close(&stays->fid), 0);
	bench_close(bench);
}

/* Another thread closes queues, the newest first, and this one tries and reads a further queue meanwhile. */
static void test_close_beside(void)
{
	struct bench *bench = bench_open(FI_THREAD_DOMAIN, 0);
	struct fid_cq *queues[CLOSED], *stays = armed_queue(bench);
	struct fid *fid = &stays->fid;
	pthread_t thread;

	gives(pthread_barrier_init(&closers, NULL, 2), 0);
	for (uint32_t round = 0; round < ROUNDS / 3; round++) {
		for (uint32_t i = 0; i < CLOSED; i++)
			queues[CLOSED - 1 - i] = armed_queue(bench);
		gives(pthread_create(&thread, NULL, close_queues, queues), 0);
		pthread_barrier_wait(&closers);
		for (uint32_t i = 0; i < CLOSED; i++) {
			gives(fi_cq_signal(stays), 0);
			/* without the lock a read sees whether the list is empty, which the thread sanitizer takes for a race */
			if (i % 2 && !SANITIZED)
				gives(fi_cq_read(stays, NULL, 0), -FI_EAGAIN);
			gives(fi_trywait(bench->pair.fabric, &fid, 1), -FI_EAGAIN);
			gives(fi_trywait(bench->pair.fabric, &fid, 1), 0);
		}
		gives(pthread_join(thread, NULL), 0);
	}
	gives(fi_close(&stays->fid), 0);
	bench_close(bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(test_safe_apart),
		ALONE(test_fid_apart),
		ALONE(test_endpoint_apart),
		ALONE(test_completion_apart),
		ALONE(test_beside),
		ALONE(test_beside_completion),
		ALONE(test_beside_chosen_keys),
		ALONE(test_tied),
		ALONE(test_silent),
		ALONE(test_triggered),
		ALONE(test_counted),
		ALONE(test_unbound),
		ALONE(test_forked),
		ALONE(test_control),
		ALONE(test_close_armed),
		ALONE(test_close_beside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
