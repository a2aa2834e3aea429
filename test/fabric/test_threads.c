/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_threads.c: each threading level of fi_domain(3), used as freely as it allows:
 *
 *   FI_THREAD_SAFE                  many threads on one endpoint and one queue; objects come and go meanwhile
 *   FI_THREAD_FID                   an endpoint for each thread, a queue for all that another one reads
 *   FI_THREAD_ENDPOINT, COMPLETION  an endpoint with its queue for each thread; so are contexts
 *   FI_THREAD_DOMAIN                a domain for each thread
 *
 * Every message has its sender's number and its own: each comes once, and whole. The thread sanitizer sees calls
 * that should be serialized and are not.
 */
#include "pair.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define MESSAGES 120 /* of each thread */
#define SIZE_MAX_HERE 40000

static const size_t sizes[] = { 8, 150, 1000, SIZE_MAX_HERE };

struct message {
	uint32_t from, number;
	uint8_t rest[SIZE_MAX_HERE - 8];
};

static size_t size_of(uint32_t number)
{
	return sizes[number % 4];
}

static void message_fill(struct message *message, uint32_t from, uint32_t number)
{
	message->from = from;
	message->number = number;
	pattern_fill(message->rest, 0, size_of(number) - 8, from * 100 + number);
}

/* Which have come, of all senders. */
static atomic_uchar seen[THREADS][MESSAGES];
static atomic_uint seen_count;

static void message_check(const struct message *message, size_t len)
{
	must(message->from < THREADS && message->number < MESSAGES);
	gives(len, size_of(message->number));
	must(pattern_is(message->rest, 0, len - 8, message->from * 100 + message->number));
	must(!atomic_exchange(&seen[message->from][message->number], 1));
	atomic_fetch_add(&seen_count, 1);
}

static void all_seen(void)
{
	gives(atomic_load(&seen_count), THREADS * MESSAGES);
	for (int from = 0; from < THREADS; from++)
		for (int number = 0; number < MESSAGES; number++)
			must(atomic_load(&seen[from][number]));
}

/* A part of the test that a thread does. */
struct part {
	pthread_t thread;
	uint32_t id;
	struct fid_ep *tx, *rx;
	struct fid_cq *cq; /* NULL: another thread reads it */
	fi_addr_t to;
	void *arg;
	struct message out, in;
};

static void parts_run(struct part *parts, size_t count, void *(*run)(void *part))
{
	for (size_t i = 0; i < count; i++)
		gives(pthread_create(&parts[i].thread, NULL, run, &parts[i]), 0);
	for (size_t i = 0; i < count; i++)
		gives(pthread_join(parts[i].thread, NULL), 0);
}

static void part_init(struct part *part, size_t id, struct fid_ep *ep, struct fid_cq *cq)
{
	part->id = (uint32_t)id;
	part->tx = part->rx = ep;
	part->cq = cq;
}

static struct part *parts_new(size_t count)
{
	struct part *parts = calloc(count, sizeof(*parts));

	must(parts);
	return parts;
}

/* ---- one endpoint for each thread ------------------------------------------------------------ */

/* Sends to the next and receives from the one before, one message at a time. */
static void *ring_part(void *arg)
{
	struct part *part = arg;

	for (uint32_t number = 0; number < MESSAGES; number++) {
		bool sent = false, received = false;
		ssize_t ret;

		message_fill(&part->out, part->id, number);
		gives(fi_recv(part->rx, &part->in, sizeof(part->in), NULL, FI_ADDR_UNSPEC, &part->in), 0);
		while ((ret = fi_send(part->tx, &part->out, size_of(number), NULL, part->to,
				      &part->out)) == -FI_EAGAIN)
			fi_cq_read(part->cq, NULL, 0);
		gives(ret, 0);
		while (!sent || !received) {
			struct fi_cq_tagged_entry entry;

			ret = fi_cq_read(part->cq, &entry, 1);
			if (ret == -FI_EAGAIN) {
				sched_yield();
				continue;
			}
			gives(ret, 1);
			if (entry.op_context == &part->out) {
				sent = true;
			} else {
				message_check(&part->in, entry.len);
				received = true;
			}
		}
	}
	return NULL;
}

/* One address vector and one domain for all. */
static void ring(enum fi_threading threading)
{
	struct part *parts = parts_new(THREADS);
	struct side sides[THREADS];
	struct pair pair;
	struct fid_av *av;

	pair_open_domain(&pair, &(struct pair_want){ .threading = threading });
	gives(pair.info->domain_attr->threading, threading);
	av = pair_open_av(&pair);
	for (size_t i = 0; i < THREADS; i++) {
		sides[i] = (struct side){ .cq = pair_open_cq(&pair), .ep = pair_open_ep(&pair) };
		pair_bind(sides[i].ep, sides[i].cq, av);
		gives(fi_enable(sides[i].ep), 0);
		gives(fi_getname(&sides[i].ep->fid, sides[i].name, &(size_t){ sizeof(sides[i].name) }), 0);
		sides[i].self = pair_insert(av, sides[i].name);
		part_init(&parts[i], i, sides[i].ep, sides[i].cq);
	}
	for (size_t i = 0; i < THREADS; i++)
		parts[i].to = sides[(i + 1) % THREADS].self;
	parts_run(parts, THREADS, ring_part);
	all_seen();
	for (size_t i = 0; i < THREADS; i++)
		side_close(&sides[i]);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
	free(parts);
}

static void test_safe_ring(void)
{
	ring(FI_THREAD_SAFE);
}

static void test_fid_ring(void)
{
	ring(FI_THREAD_FID);
}

static void test_endpoint_ring(void)
{
	ring(FI_THREAD_ENDPOINT);
}

static void test_completion_ring(void)
{
	ring(FI_THREAD_COMPLETION);
}

/* ---- one domain for each thread -------------------------------------------------------------- */

static char names[THREADS][64];
static pthread_barrier_t barrier;

static void *domain_part(void *arg)
{
	struct part *part = arg;
	struct pair pair;

	pair_open_domain(&pair, &(struct pair_want){ .threading = FI_THREAD_DOMAIN });
	side_open(&pair, &pair.a);
	memcpy(names[part->id], pair.a.name, sizeof(names[0]));
	pthread_barrier_wait(&barrier);
	part_init(part, part->id, pair.a.ep, pair.a.cq);
	part->to = pair_insert(pair.a.av, names[(part->id + 1) % THREADS]);
	ring_part(part);
	/* nobody waits for one that has closed */
	while (atomic_load(&seen_count) < THREADS * MESSAGES)
		fi_cq_read(pair.a.cq, NULL, 0);
	pthread_barrier_wait(&barrier);
	pair_close(&pair);
	return NULL;
}

static void test_domain_ring(void)
{
	struct part *parts = parts_new(THREADS);

	gives(pthread_barrier_init(&barrier, NULL, THREADS), 0);
	for (size_t i = 0; i < THREADS; i++)
		parts[i].id = (uint32_t)i;
	parts_run(parts, THREADS, domain_part);
	all_seen();
	pthread_barrier_destroy(&barrier);
	free(parts);
}

/* ---- a context for each thread --------------------------------------------------------------- */

static void contexts(enum fi_threading threading)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .rx_ctx_bits = 3 };
	struct part *parts = parts_new(THREADS);
	struct pair pair;
	struct fid_av *av;
	struct fid_ep *sep;
	fi_addr_t self;
	char name[64];

	pair_open_domain(&pair,
			 &(struct pair_want){ .caps = FI_MSG | FI_NAMED_RX_CTX, .threading = threading });
	gives(fi_av_open(pair.domain, &av_attr, &av, NULL), 0);
	pair.info->ep_attr->tx_ctx_cnt = pair.info->ep_attr->rx_ctx_cnt = THREADS;
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), 0);
	gives(fi_scalable_ep_bind(sep, &av->fid, 0), 0);
	gives(fi_enable(sep), 0);
	for (int i = 0; i < THREADS; i++) {
		part_init(&parts[i], (size_t)i, NULL, pair_open_cq(&pair));
		gives(fi_tx_context(sep, i, NULL, &parts[i].tx, NULL), 0);
		gives(fi_rx_context(sep, i, NULL, &parts[i].rx, NULL), 0);
		gives(fi_ep_bind(parts[i].tx, &parts[i].cq->fid, FI_TRANSMIT), 0);
		gives(fi_ep_bind(parts[i].rx, &parts[i].cq->fid, FI_RECV), 0);
		gives(fi_enable(parts[i].tx), 0);
		gives(fi_enable(parts[i].rx), 0);
	}
	gives(fi_getname(&sep->fid, name, &(size_t){ sizeof(name) }), 0);
	self = pair_insert(av, name);
	for (int i = 0; i < THREADS; i++)
		parts[i].to = fi_rx_addr(self, (i + 1) % THREADS, 3);
	parts_run(parts, THREADS, ring_part);
	all_seen();
	for (int i = 0; i < THREADS; i++) {
		gives(fi_close(&parts[i].tx->fid), 0);
		gives(fi_close(&parts[i].rx->fid), 0);
		gives(fi_close(&parts[i].cq->fid), 0);
	}
	gives(fi_close(&sep->fid), 0);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
	free(parts);
}

static void test_safe_contexts(void)
{
	contexts(FI_THREAD_SAFE);
}

static void test_completion_contexts(void)
{
	contexts(FI_THREAD_COMPLETION);
}

/* ---- many threads on one endpoint ------------------------------------------------------------ */

static atomic_uint sends_done;
static atomic_bool over;

/* Sends all of its messages, each from memory of its own. */
static void *send_part(void *arg)
{
	struct part *part = arg;

	for (uint32_t number = 0; number < MESSAGES; number++) {
		struct message *message = malloc(sizeof(*message));
		ssize_t ret;

		must(message);
		message_fill(message, part->id, number);
		while ((ret = fi_send(part->tx, message, size_of(number), NULL, part->to, message)) ==
		       -FI_EAGAIN)
			sched_yield();
		gives(ret, 0);
	}
	return NULL;
}

/* Reads sends' and receives' completions of one queue, as others do. */
static void *read_part(void *arg)
{
	struct part *part = arg;
	struct message *ins = calloc(2, sizeof(*ins));

	must(ins);
	for (int i = 0; part->rx && i < 2; i++)
		gives(fi_recv(part->rx, &ins[i], sizeof(ins[i]), NULL, FI_ADDR_UNSPEC, &ins[i]), 0);
	while (!atomic_load(&over)) {
		struct fi_cq_tagged_entry entry;
		ssize_t ret = fi_cq_read(part->cq, &entry, 1);

		if (ret == -FI_EAGAIN) {
			sched_yield();
			continue;
		}
		gives(ret, 1);
		if (entry.flags & FI_SEND) {
			free(entry.op_context);
			atomic_fetch_add(&sends_done, 1);
			continue;
		}
		message_check(entry.op_context, entry.len);
		gives(fi_recv(part->rx, entry.op_context, sizeof(*ins), NULL, FI_ADDR_UNSPEC,
			      entry.op_context),
		      0);
	}
	part->arg = ins; /* posted until the endpoint closes, in whichever thread's name */
	return NULL;
}

static void *watch_part(void *arg)
{
	(void)arg;
	while (atomic_load(&seen_count) < THREADS * MESSAGES ||
	       atomic_load(&sends_done) < THREADS * MESSAGES)
		sched_yield();
	atomic_store(&over, true);
	return NULL;
}

/* Endpoints, address vectors, queues and memory come and go beside the traffic. */
static void *churn_part(void *arg)
{
	struct pair *pair = ((struct part *)arg)->arg;
	static uint8_t memory[4096];

	while (!atomic_load(&over)) {
		struct side side;
		struct fid_mr *mr;

		side_open(pair, &side);
		side.self = pair_insert(side.av, side.name);
		gives(fi_inject(side.ep, "x", 1, side.self), 0);
		gives(fi_mr_reg(pair->domain, memory, sizeof(memory), FI_REMOTE_READ, 0, 3, 0, &mr, NULL),
		      0);
		side_progress(&side);
		gives(fi_close(&mr->fid), 0);
		gives(fi_av_remove(side.av, &side.self, 1, 0), 0);
		side_close(&side);
	}
	return NULL;
}

static void *any_part(void *arg)
{
	struct part *part = arg;

	if (part->id < THREADS)
		return send_part(part);
	switch (part->id) {
	case THREADS:
	case THREADS + 1:
	case THREADS + 2:
		return read_part(part);
	case THREADS + 3:
		return watch_part(part);
	default:
		return churn_part(part);
	}
}

/* All send on a; two threads read b, and one a. */
static void crowd(const struct pair_want *want, size_t extra)
{
	size_t count = THREADS + 4 + extra;
	struct part *parts = parts_new(count);
	struct pair pair;

	pair_open(&pair, want);
	for (size_t i = 0; i < count; i++) {
		bool reads_b = i == THREADS || i == THREADS + 1;

		part_init(&parts[i], i, reads_b ? pair.b.ep : pair.a.ep, reads_b ? pair.b.cq : pair.a.cq);
		parts[i].to = pair.a.peer;
		parts[i].arg = &pair;
		if (i == THREADS + 2)
			parts[i].rx = NULL;
	}
	parts_run(parts, count, any_part);
	all_seen();
	pair_close(&pair);
	for (size_t i = THREADS; i < THREADS + 3; i++)
		free(parts[i].arg);
	free(parts);
}

static void test_safe_crowd(void)
{
	crowd(&(struct pair_want){ .caps = PAIR_CAPS | FI_RMA, .threading = FI_THREAD_SAFE }, 0);
}

static void test_safe_crowd_auto(void)
{
	crowd(&(struct pair_want){ .caps = PAIR_CAPS | FI_RMA,
				   .threading = FI_THREAD_SAFE,
				   .progress = FI_PROGRESS_AUTO },
	      0);
}

static void test_safe_churn(void)
{
	crowd(&(struct pair_want){ .caps = PAIR_CAPS | FI_RMA, .threading = FI_THREAD_SAFE }, 1);
}

/* ---- one queue for all endpoints ------------------------------------------------------------- */

static void *post_part(void *arg)
{
	struct part *part = arg;

	if (part->id == THREADS)
		return read_part(part);
	return part->id == THREADS + 1 ? watch_part(part) : send_part(part);
}

/* FI_THREAD_FID: an endpoint is one thread's, the queue another's; the last one's endpoint takes all. */
static void test_fid_one_queue(void)
{
	struct part *parts = parts_new(THREADS + 2);
	struct side sides[THREADS + 1];
	struct pair pair;
	struct fid_cq *cq;
	struct fid_av *av;

	pair_open_domain(&pair, &(struct pair_want){ .threading = FI_THREAD_FID });
	av = pair_open_av(&pair);
	cq = pair_open_cq(&pair);
	for (size_t i = 0; i <= THREADS; i++) {
		sides[i] = (struct side){ .ep = pair_open_ep(&pair) };
		pair_bind(sides[i].ep, cq, av);
		gives(fi_enable(sides[i].ep), 0);
		gives(fi_getname(&sides[i].ep->fid, sides[i].name, &(size_t){ sizeof(sides[i].name) }), 0);
		sides[i].self = pair_insert(av, sides[i].name);
		part_init(&parts[i], i, sides[i].ep, cq);
	}
	part_init(&parts[THREADS + 1], THREADS + 1, NULL, NULL);
	for (size_t i = 0; i < THREADS; i++)
		parts[i].to = sides[THREADS].self;
	parts_run(parts, THREADS + 2, post_part);
	all_seen();
	for (size_t i = 0; i <= THREADS; i++)
		side_close(&sides[i]);
	free(parts[THREADS].arg);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
	free(parts);
}

/* ---- a shared receive context ---------------------------------------------------------------- */

/* Each polls its endpoint, and posts to the context what it finds there. */
static void *member_part(void *arg)
{
	struct part *part = arg;

	if (part->id == THREADS + 3)
		return watch_part(part);
	return part->id < THREADS ? send_part(part) : read_part(part);
}

static void test_safe_shared(void)
{
	/* THREADS senders on a, two members with a reader each, a reader of a, and a watcher */
	struct part *parts = parts_new(THREADS + 4);
	struct side members[2];
	struct fid_ep *srx;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .threading = FI_THREAD_SAFE });
	gives(fi_srx_context(pair.domain, pair.info->rx_attr, &srx, NULL), 0);
	pair.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	for (size_t i = 0; i < 2; i++) {
		struct side *side = &members[i];

		*side = (struct side){ .cq = pair_open_cq(&pair), .ep = pair_open_ep(&pair) };
		pair_bind(side->ep, side->cq, pair.b.av);
		gives(fi_ep_bind(side->ep, &srx->fid, 0), 0);
		gives(fi_enable(side->ep), 0);
		gives(fi_getname(&side->ep->fid, side->name, &(size_t){ sizeof(side->name) }), 0);
		side->self = pair_insert(pair.a.av, side->name);
		part_init(&parts[THREADS + i], THREADS + i, srx, side->cq);
	}
	part_init(&parts[THREADS + 2], THREADS + 2, pair.a.ep, pair.a.cq);
	parts[THREADS + 2].rx = NULL;
	part_init(&parts[THREADS + 3], THREADS + 3, NULL, NULL);
	for (size_t i = 0; i < THREADS; i++) {
		part_init(&parts[i], i, pair.a.ep, pair.a.cq);
		parts[i].to = members[i % 2].self;
	}
	parts_run(parts, THREADS + 4, member_part);
	all_seen();
	for (size_t i = 0; i < 2; i++)
		side_close(&members[i]);
	gives(fi_close(&srx->fid), 0);
	pair_close(&pair);
	for (size_t i = THREADS; i < THREADS + 3; i++)
		free(parts[i].arg);
	free(parts);
}

/* ---- defaults that change beside the calls that they are for --------------------------------- */

struct changes {
	struct fid_ep *ep;
	atomic_bool end;
};

static void *change_defaults(void *arg)
{
	struct changes *changes = arg;

	for (size_t i = 0; !changes->end; i++) {
		uint64_t tx = FI_TRANSMIT | (i % 2 ? FI_DELIVERY_COMPLETE : FI_INJECT_COMPLETE);
		uint64_t rx = FI_RECV | (i % 3 ? FI_COMPLETION : 0), now = FI_TRANSMIT;
		size_t min = 1 + i % 64, got = 0, len = sizeof(got);

		gives(fi_control(&changes->ep->fid, FI_SETOPSFLAG, &tx), 0);
		gives(fi_control(&changes->ep->fid, FI_SETOPSFLAG, &rx), 0);
		gives(fi_control(&changes->ep->fid, FI_GETOPSFLAG, &now), 0);
		gives(now, tx & ~FI_TRANSMIT);
		gives(fi_setopt(&changes->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)), 0);
		gives(fi_getopt(&changes->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &got, &len), 0);
		gives(got, min);
	}
	return NULL;
}

#define CHANGED_MESSAGES 300

/* Each call has the one or the other; so says the thread sanitizer. */
static void test_safe_defaults(void)
{
	struct changes changes = { .end = false };
	struct fi_cq_tagged_entry entry;
	pthread_t thread;
	struct pair pair;

	pair_open(&pair, NULL);
	changes.ep = pair.a.ep;
	gives(pthread_create(&thread, NULL, change_defaults, &changes), 0);
	for (int i = 0; i < CHANGED_MESSAGES; i++) {
		char out = (char)i, in = (char)~i;
		int done = 0;

		gives(fi_recv(pair.a.ep, &in, 1, NULL, FI_ADDR_UNSPEC, &in), 0);
		gives(fi_recv(pair.b.ep, &out, 0, NULL, FI_ADDR_UNSPEC, NULL), 0);
		gives(fi_send(pair.a.ep, &out, 0, NULL, pair.a.peer, &out), 0);
		gives(fi_send(pair.b.ep, &out, 1, NULL, pair.b.peer, NULL), 0);
		while (done < 4) {
			done += fi_cq_read(pair.a.cq, &entry, 1) == 1;
			done += fi_cq_read(pair.b.cq, &entry, 1) == 1;
		}
		must(in == out);
	}
	changes.end = true;
	gives(pthread_join(thread, NULL), 0);
	pair_close(&pair);
}

/* ---- sources that are named for the first time beside receives that name another ------------- */

#define SOURCES 16
#define BETWEEN 50 /* receives between two of them */

struct sources {
	struct pair pair;
	struct side sides[SOURCES];
	atomic_int posted;
};

static void *name_sources(void *arg)
{
	struct sources *sources = arg;
	static uint8_t in;

	for (int i = 0; i < SOURCES; i++) {
		fi_addr_t source = pair_insert(sources->pair.a.av, sources->sides[i].name);

		while (atomic_load(&sources->posted) < i * BETWEEN)
			sched_yield();
		gives(fi_recv(sources->pair.a.ep, &in, 1, NULL, source, NULL), 0);
	}
	return NULL;
}

/* Another thread changes the endpoint's list of peers: the thread sanitizer checks that a lock protects it. */
static void test_safe_sources(void)
{
	struct sources *sources = calloc(1, sizeof(*sources));
	struct pair *pair = &sources->pair;
	static uint8_t in;
	pthread_t thread;

	must(sources);
	pair_open(pair, NULL);
	for (int i = 0; i < SOURCES; i++)
		side_open(pair, &sources->sides[i]);
	gives(pthread_create(&thread, NULL, name_sources, sources), 0);
	for (int i = 0; i < SOURCES * BETWEEN; i++) {
		gives(fi_recv(pair->a.ep, &in, 1, NULL, pair->a.peer, NULL), 0);
		atomic_fetch_add(&sources->posted, 1);
	}
	gives(pthread_join(thread, NULL), 0);
	for (int i = 0; i < SOURCES; i++)
		side_close(&sources->sides[i]);
	pair_close(pair);
	free(sources);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(test_safe_ring),		 ALONE(test_fid_ring),	    ALONE(test_endpoint_ring),
		ALONE(test_completion_ring),	 ALONE(test_domain_ring),   ALONE(test_safe_contexts),
		ALONE(test_completion_contexts), ALONE(test_safe_crowd),    ALONE(test_safe_crowd_auto),
		ALONE(test_safe_defaults),	 ALONE(test_safe_churn),		 ALONE(test_fid_one_queue), ALONE(test_safe_shared),
		ALONE(test_safe_sources),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
