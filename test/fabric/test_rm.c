/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rm: resource management, fi_domain(3), FI_RM_ENABLED: whatever is short is told by -FI_EAGAIN or waits, and
 * goes on when there is room again; nothing is lost, done twice or overrun. Messages without receives, and sends
 * without reads of the queue, are in traffic.h.
 */
#include "onesided.h"

#include <rdma/fi_atomic.h>

#define STRICT "FI_SHMCMA_RMA=strict"
#define NO_CMA "FI_SHMCMA_CMA=0"

enum { LIMIT = 3000000 }; /* if more operations are accepted, there is no limit */

static uint8_t bytes[1 << 20], landing[1 << 20];
static uint64_t words[64];

static const struct pair_want small = { .caps = ONESIDED_CAPS, .mr_mode = ONESIDED_MODE, .cq_size = 4 };

static void target_open(struct pair *pair, struct region *region)
{
	pair_open(pair, &small);
	region_open(pair, region, words, sizeof(words), FI_REMOTE_READ | FI_REMOTE_WRITE);
}

static void target_close(struct pair *pair, struct region *region)
{
	region_close(region);
	pair_close(pair);
}

/* ---- a small queue --------------------------------------------------------------------------- */

static size_t length_of(uint64_t number)
{
	static const size_t lens[] = { 8, 100, 4000, 20000, 1 << 20 };

	return lens[number % (sizeof(lens) / sizeof(lens[0]))];
}

/* The next operation of the row; its context is its number. */
static ssize_t start(struct pair *pair, const struct remote *remote, uint64_t number)
{
	static const uint64_t one = 1;
	void *context = (void *)(uintptr_t)number;
	struct fid_ep *ep = pair->a.ep;
	fi_addr_t peer = pair->a.peer;

	switch (number % 4) {
	case 0:
		return fi_writedata(ep, &one, 8, NULL, number, peer, remote->addr + 8, remote->key,
				    context);
	case 1:
		return fi_atomic(ep, &one, 1, NULL, peer, remote->addr, remote->key, FI_UINT64, FI_SUM,
				 context);
	default:
		return fi_tsend(ep, bytes, length_of(number), NULL, peer, number, context);
	}
}

/* Entries that there are, each of them known and seen once; a queue that is overrun fails. */
static unsigned int read_some(struct side *side, uint64_t flags, bool *seen, size_t count)
{
	struct fi_cq_tagged_entry entries[3];
	ssize_t got = fi_cq_read(side->cq, entries, 3);

	if (got == -FI_EAGAIN)
		return 0;
	must(got > 0);
	for (ssize_t i = 0; i < got; i++) {
		bool written = entries[i].flags & FI_REMOTE_WRITE;
		uint64_t number = written ? entries[i].data : (uintptr_t)entries[i].op_context;

		must(number < count && !seen[number]);
		must(!flags || written || entries[i].flags & flags);
		seen[number] = true;
		pair_saw(&entries[i]);
	}
	return (unsigned int)got;
}

/* Far more operations than the queues have room for, read when the dice say so. */
static void small_queue(void)
{
	enum { MANY = 8000 };
	static bool started[MANY], arrived[MANY];
	unsigned int seed = 7, ended = 0, got = 0;
	uint64_t next = 0;
	struct region region;
	struct pair pair;

	memset(words, 0, sizeof(words));
	target_open(&pair, &region);
	for (uint64_t i = 0; i < MANY; i++)
		if (i % 4 > 1)
			gives(fi_trecv(pair.b.ep, landing, length_of(i), NULL, FI_ADDR_UNSPEC, i, 0,
				       (void *)(uintptr_t)i),
			      0);
	while (ended < MANY || got < MANY * 3 / 4) {
		if (next < MANY && rand_r(&seed) % 2) {
			ssize_t ret = start(&pair, &region.remote, next);

			must(!ret || ret == -FI_EAGAIN);
			next += !ret;
		}
		if (next == MANY || rand_r(&seed) % 16 == 0)
			ended += read_some(&pair.a, 0, started, MANY);
		if (next == MANY || rand_r(&seed) % 16 == 0)
			got += read_some(&pair.b, FI_RECV, arrived, MANY);
	}
	gives(words[0], MANY / 4);
	pair_quiet(&pair, &pair.a);
	pair_quiet(&pair, &pair.b);
	target_close(&pair, &region);
}

/* ---- what is pushed back --------------------------------------------------------------------- */

/* So many tries are enough for a ring to go on in bounce buffers. */
#define STUCK 10000

/* Post until it is refused for good, the target looking after its ring (`polls`) or not at all. */
static uint64_t flood(struct pair *pair, const struct remote *remote, uint64_t kind, bool polls)
{
	struct fi_cq_tagged_entry entry;
	uint64_t count = 0;

	for (int stuck = 0; stuck < STUCK;) {
		ssize_t ret = start(pair, remote, 4 * count + kind);

		if (!ret) {
			count++;
			stuck = 0;
			must(count < LIMIT);
			continue;
		}
		gives(ret, -FI_EAGAIN);
		stuck++;
		while (fi_cq_read(pair->a.cq, &entry, 1) == 1) {
			pair_saw(&entry);
			words[63]++; /* of a's, that have ended */
		}
		if (polls)
			fi_cq_read(pair->b.cq, NULL, 0);
	}
	return count;
}

static void finish(struct pair *pair, uint64_t count)
{
	while (words[63] < count) {
		pair_done(pair, &pair->a);
		words[63]++;
	}
	pair_quiet(pair, &pair->a);
}

/* A target that does not read its completions pushes back the writer; later it finds all of them, each once. */
static void unread_written_data(void)
{
	struct region region;
	struct pair pair;
	uint64_t count;

	memset(words, 0, sizeof(words));
	target_open(&pair, &region);
	count = flood(&pair, &region.remote, 0, true);
	must(count > 4);
	for (uint64_t i = 0; i < count; i++)
		gives(pair_done(&pair, &pair.b).entry.data, 4 * i);
	finish(&pair, count);
	/* and goes on */
	post(&pair, start(&pair, &region.remote, 0));
	gives(pair_done(&pair, &pair.b).entry.flags & FI_REMOTE_WRITE, FI_REMOTE_WRITE);
	pair_done(&pair, &pair.a);
	target_close(&pair, &region);
}

/* A target that makes no progress pushes back an initiator of requests; later it does all of them, each once. */
static void absent_target(void)
{
	struct region region;
	struct pair pair;
	uint64_t count;

	memset(words, 0, sizeof(words));
	target_open(&pair, &region);
	count = flood(&pair, &region.remote, 1, false);
	must(count >= 1024); /* tx_attr->size */
	gives(words[0], 0);
	finish(&pair, count);
	gives(words[0], count);
	post(&pair, start(&pair, &region.remote, 1));
	pair_done(&pair, &pair.a);
	while (__atomic_load_n(&words[0], __ATOMIC_RELAXED) != count + 1)
		pair_progress(&pair);
	target_close(&pair, &region);
}

/*
 * A sender that tries again after -FI_EAGAIN, as a library does in MPI_Isend(3), can send many small messages to a
 * receiver that makes no progress: the receiver finds all of them, in order, also if the sender has gone.
 */
static void computing_receiver(void)
{
	static const struct {
		size_t size;
		uint64_t count;
	} rows[] = { { 8, 1024 }, { 96, 1024 }, { 1000, 1000 }, { 4096, 1000 } };

	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		size_t size = rows[row].size;
		struct pair pair;

		pair_open(&pair, NULL);
		for (uint64_t i = 0; i < rows[row].count; i++) {
			ssize_t ret;

			memset(bytes, (int)i, size);
			for (int tries = 0; (ret = fi_tinject(pair.a.ep, bytes, size, pair.a.peer, i));
			     tries++) {
				gives(ret, -FI_EAGAIN);
				must(tries < 10000);
				gives(fi_cq_read(pair.a.cq, NULL, 0), -FI_EAGAIN);
			}
			pair_seen.sent++;
		}
		if (size < 1000) { /* the others are its own to the end */
			gives(fi_close(&pair.a.ep->fid), 0);
			pair.a.ep = NULL;
		}
		for (uint64_t i = 0; i < rows[row].count; i++) {
			gives(fi_trecv(pair.b.ep, landing, size, NULL, FI_ADDR_UNSPEC, i, 0, NULL), 0);
			pair_done(&pair, &pair.b);
			must(landing[0] == (uint8_t)i && !memcmp(landing, landing + 1, size - 1));
		}
		pair_close(&pair);
	}
}

/* Messages of another sender reach a receiver that is flooded. */
static void others_get_through(void)
{
	struct region region;
	struct side third;
	struct pair pair;
	fi_addr_t to;

	memset(words, 0, sizeof(words));
	target_open(&pair, &region);
	side_open(&pair, &third);
	to = pair_insert(third.av, pair.b.name);
	must(flood(&pair, &region.remote, 2, true) >= 64);
	for (uintptr_t i = 0; i < 100; i++) {
		gives(fi_trecv(pair.b.ep, landing, 8, NULL, FI_ADDR_UNSPEC, LIMIT + i, UINT64_C(1) << 63,
			       &third),
		      0);
		while (fi_tinject(third.ep, bytes, 8, to, LIMIT + i) == -FI_EAGAIN)
			side_progress(&pair.b);
		must(pair_done(&pair, &pair.b).entry.op_context == &third);
	}
	side_close(&third);
	target_close(&pair, &region);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Nothing is ever read, only counted: both sides know how many there were, to the last. */
static void counters_alone(void)
{
	enum { MANY = 30000, AHEAD = 500 };
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *sent, *received;
	struct fid_ep *from, *to;
	struct pair pair;
	size_t len = 64;
	fi_addr_t peer;
	char name[64];

	pair_open(&pair, &small);
	gives(fi_cntr_open(pair.domain, &attr, &sent, NULL), 0);
	gives(fi_cntr_open(pair.domain, &attr, &received, NULL), 0);
	from = pair_open_ep(&pair);
	to = pair_open_ep(&pair);
	for (int i = 0; i < 2; i++) {
		struct fid_ep *ep = i ? to : from;

		gives(fi_ep_bind(ep, &pair.a.av->fid, 0), 0);
		gives(fi_ep_bind(ep, &sent->fid, FI_SEND), 0);
		gives(fi_ep_bind(ep, &received->fid, FI_RECV), 0);
		gives(fi_enable(ep), 0);
	}
	gives(fi_getname(&to->fid, name, &len), 0);
	peer = pair_insert(pair.a.av, name);
	for (uint64_t i = 0, posted = 0; i < MANY; i++) {
		for (; posted < MANY && posted < i + AHEAD; posted++)
			gives(fi_recv(to, landing, sizeof(landing), NULL, FI_ADDR_UNSPEC, NULL), 0);
		while (fi_send(from, bytes, i % 100 ? 8 : 1 << 20, NULL, peer, NULL) == -FI_EAGAIN)
			fi_cntr_read(received);
	}
	while (fi_cntr_read(sent) < MANY || fi_cntr_read(received) < MANY)
		;
	for (int i = 0; i < 200; i++) {
		gives(fi_cntr_read(sent), MANY);
		gives(fi_cntr_read(received), MANY);
	}
	gives(fi_cntr_readerr(sent) + fi_cntr_readerr(received), 0);
	pair_seen.sent += MANY;
	pair_seen.received += MANY;
	gives(fi_close(&from->fid), 0);
	gives(fi_close(&to->fid), 0);
	gives(fi_close(&sent->fid), 0);
	gives(fi_close(&received->fid), 0);
	pair_close(&pair);
}

/* ---- FI_RM_DISABLED -------------------------------------------------------------------------- */

/* With FI_RM_DISABLED the provider manages resources all the same. */
static void disabled(void)
{
	struct fi_info *hints = pair_hints(&small), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;

	hints->domain_attr->resource_mgmt = FI_RM_DISABLED;
	gives(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	gives(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
	info->domain_attr->resource_mgmt = FI_RM_DISABLED;
	gives(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	gives(fi_domain(fabric, info, &domain, NULL), 0);
	gives(fi_close(&domain->fid), 0);
	gives(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	small_queue();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(small_queue),
		ALONE_ENV(small_queue, STRICT),
		ALONE(unread_written_data),
		ALONE_ENV(unread_written_data, STRICT),
		ALONE(absent_target),
		ALONE_ENV(absent_target, NO_CMA),
		ALONE(computing_receiver),
		ALONE_ENV(computing_receiver, NO_CMA),
		ALONE(others_get_through),
		ALONE(counters_alone),
		ALONE(disabled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
