/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_collective: collective operations of 1 to 9 processes: every operation, datatype and reduction, many
 * sizes and roots, several operations and groups at once, members that sleep, members that die.
 *
 * Each rank computes the expected result from the pattern that all know, with loops of its own. Values are
 * small integers, which every type has, so that sums and products are exact in any order.
 */
#define _GNU_SOURCE 1
#include "multi.h"

#include <complex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_eq.h>

#define RANKS_MAX 9

static struct mt_ep own;
static struct fid_eq *eq;
static fi_addr_t peers[MT_RANKS_MAX];
static enum fi_wait_obj wait_obj = FI_WAIT_NONE; /* of both queues */
static enum fi_progress progress = FI_PROGRESS_MANUAL;

/* ---- the endpoint and its groups ------------------------------------------------------------- */

static void open_all(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_eq_attr eq_attr = { .wait_obj = wait_obj };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait_obj };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };

	hints->caps = FI_TAGGED | FI_COLLECTIVE;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->control_progress = hints->domain_attr->data_progress = progress;
	hints->fabric_attr->prov_name = strdup("shmcma");
	mt_must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &own.info));
	fi_freeinfo(hints);
	mt_require(own.info->caps & FI_COLLECTIVE, "fi_getinfo did not grant FI_COLLECTIVE");
	mt_must(fi_fabric(own.info->fabric_attr, &own.fabric, NULL));
	mt_must(fi_domain(own.fabric, own.info, &own.domain, NULL));
	mt_must(fi_eq_open(own.fabric, &eq_attr, &eq, NULL));
	mt_must(fi_cq_open(own.domain, &cq_attr, &own.cq, NULL));
	mt_must(fi_av_open(own.domain, &av_attr, &own.av, NULL));
	mt_must(fi_endpoint(own.domain, own.info, &own.ep, NULL));
	if (mt_rank % 2 == 0)
		mt_must(fi_ep_bind(own.ep, &eq->fid, 0));
	mt_must(fi_ep_bind(own.ep, &own.av->fid, 0));
	mt_must(fi_ep_bind(own.ep, &own.cq->fid, FI_TRANSMIT | FI_RECV));
	mt_must(fi_enable(own.ep));
	if (mt_rank % 2)
		mt_must(fi_domain_bind(own.domain, &eq->fid, 0)); /* serves the endpoint as well */
	own.name_len = sizeof(own.name);
	mt_must(fi_getname(&own.ep->fid, own.name, &own.name_len));
	mt_join(&own, peers);
}

static void close_all(void)
{
	mt_must(fi_close(&own.ep->fid));
	mt_must(fi_close(&own.cq->fid));
	mt_must(fi_close(&own.av->fid));
	mt_must(fi_close(&own.domain->fid));
	mt_must(fi_close(&eq->fid));
	mt_must(fi_close(&own.fabric->fid));
	fi_freeinfo(own.info);
}

/* A set of the ranks from `first` on, each `stride`-th. */
static struct fid_av_set *make_set(int first, int stride)
{
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	struct fid_av_set *set;

	mt_must(fi_av_set(own.av, &attr, &set, NULL));
	for (int i = first; i < mt_ranks; i += stride)
		mt_must(fi_av_set_insert(set, peers[i]));
	return set;
}

/* fi_join until the event, by reading its queue alone; returns its error, positive. */
static int join_event(struct fid_mc *mc, void *context)
{
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry;
	uint32_t event;
	ssize_t rc;

	while ((rc = fi_eq_read(eq, &event, &entry, sizeof(entry), 0)) == -FI_EAGAIN)
		mt_poll(NULL);
	if (rc == -FI_EAVAIL) {
		mt_must(fi_eq_readerr(eq, &error, 0));
		mt_require(error.fid == &mc->fid && error.context == context, "another fid's error");
		return error.err;
	}
	mt_must(rc);
	mt_require(event == FI_JOIN_COMPLETE && entry.fid == &mc->fid && entry.context == context,
		   "event %u of another fid", event);
	return 0;
}

static struct fid_mc *join(struct fid_av_set *set)
{
	struct fid_mc *mc;
	fi_addr_t addr;
	int err;

	mt_must(fi_av_set_addr(set, &addr));
	mt_must(fi_join_collective(own.ep, addr, set, 0, &mc, &mc));
	err = join_event(mc, &mc);
	mt_require(!err, "fi_join_collective: %s", fi_strerror(err));
	return mc;
}

/* ---- operations ------------------------------------------------------------------------------ */

static int completed(struct fi_context2 *context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t rc;

	while ((rc = fi_cq_read(own.cq, &entry, 1)) == -FI_EAGAIN)
		mt_poll(NULL);
	if (rc == -FI_EAVAIL) {
		mt_must(fi_cq_readerr(own.cq, &error, 0));
		mt_require(error.op_context == context, "another operation's error");
		mt_require(error.flags & FI_COLLECTIVE, "flags %#lx", (unsigned long)error.flags);
		return error.err;
	}
	mt_must(rc);
	mt_require(entry.op_context == context, "another operation's completion");
	mt_require(entry.flags & FI_COLLECTIVE, "flags %#lx", (unsigned long)entry.flags);
	return 0;
}

static void wait_for(struct fi_context2 *context)
{
	int err = completed(context);

	mt_require(!err, "%s", fi_strerror(err));
}

#define DO(call)                                                                                          \
	do {                                                                                              \
		struct fi_context2 context;                                                               \
		ssize_t rc;                                                                               \
                                                                                                          \
		while ((rc = (call)) == -FI_EAGAIN)                                                       \
			mt_poll(NULL);                                                                    \
		mt_must(rc);                                                                              \
		wait_for(&context);                                                                       \
	} while (0)

static const enum fi_datatype types[] = { FI_INT8,	    FI_UINT8,
					  FI_INT16,	    FI_UINT16,
					  FI_INT32,	    FI_UINT32,
					  FI_INT64,	    FI_UINT64,
					  FI_FLOAT,	    FI_DOUBLE,
					  FI_FLOAT_COMPLEX, FI_DOUBLE_COMPLEX,
					  FI_LONG_DOUBLE,   FI_LONG_DOUBLE_COMPLEX,
					  FI_INT128,	    FI_UINT128 };
#define TYPES (sizeof(types) / sizeof(types[0]))

static size_t type_size(enum fi_datatype type)
{
	struct fi_collective_attr attr = { .datatype = type };

	mt_must(fi_query_collective(own.domain, FI_BROADCAST, &attr, 0));
	return attr.datatype_attr.size;
}

/* The value that a type holds there, and put there: whole and small. */
static long get(enum fi_datatype type, const void *at)
{
#define GET(TYPE, ctype)                                                                                  \
	case TYPE: {                                                                                      \
		ctype value;                                                                              \
		memcpy(&value, at, sizeof(value));                                                        \
		return (long)value;                                                                       \
	}
	switch ((int)type) {
		GET(FI_INT8, int8_t)
		GET(FI_UINT8, uint8_t)
		GET(FI_INT16, int16_t)
		GET(FI_UINT16, uint16_t)
		GET(FI_INT32, int32_t)
		GET(FI_UINT32, uint32_t)
		GET(FI_INT64, int64_t)
		GET(FI_UINT64, uint64_t)
		GET(FI_FLOAT, float)
		GET(FI_DOUBLE, double)
		GET(FI_FLOAT_COMPLEX, float complex)
		GET(FI_DOUBLE_COMPLEX, double complex)
		GET(FI_LONG_DOUBLE, long double)
		GET(FI_LONG_DOUBLE_COMPLEX, long double complex)
		GET(FI_INT128, __int128)
		GET(FI_UINT128, unsigned __int128)
	}
	mt_fail("type %d", (int)type);
}

static void put(enum fi_datatype type, void *at, long number)
{
#define PUT(TYPE, ctype)                                                                                  \
	case TYPE: {                                                                                      \
		ctype value = (ctype)number;                                                              \
		memset(at, 0, sizeof(value));                                                             \
		memcpy(at, &value, sizeof(value));                                                        \
		return;                                                                                   \
	}
	switch ((int)type) {
		PUT(FI_INT8, int8_t)
		PUT(FI_UINT8, uint8_t)
		PUT(FI_INT16, int16_t)
		PUT(FI_UINT16, uint16_t)
		PUT(FI_INT32, int32_t)
		PUT(FI_UINT32, uint32_t)
		PUT(FI_INT64, int64_t)
		PUT(FI_UINT64, uint64_t)
		PUT(FI_FLOAT, float)
		PUT(FI_DOUBLE, double)
		PUT(FI_FLOAT_COMPLEX, float complex)
		PUT(FI_DOUBLE_COMPLEX, double complex)
		PUT(FI_LONG_DOUBLE, long double)
		PUT(FI_LONG_DOUBLE_COMPLEX, long double complex)
		PUT(FI_INT128, __int128)
		PUT(FI_UINT128, unsigned __int128)
	}
	mt_fail("type %d", (int)type);
}

/* Element i of rank `rank`, small enough for the product of all in 7 bits. */
static long input(int rank, size_t i)
{
	return (rank + (long)i) % 4 == 0 ? 2 : (rank * 3 + (long)i) % 5 == 0 ? 0 : 1;
}

static long combine(enum fi_op op, long a, long b)
{
	switch ((int)op) {
	case FI_MIN:
		return a < b ? a : b;
	case FI_MAX:
		return a > b ? a : b;
	case FI_SUM:
		return a + b;
	case FI_PROD:
		return a * b;
	case FI_LOR:
		return a || b;
	case FI_LAND:
		return a && b;
	case FI_BOR:
		return a | b;
	case FI_BAND:
		return a & b;
	case FI_LXOR:
		return !a != !b;
	case FI_BXOR:
		return a ^ b;
	default:
		mt_fail("op %d", (int)op);
	}
}

static long reduced(enum fi_op op, size_t i)
{
	long value = input(0, i);

	for (int rank = 1; rank < mt_ranks; rank++)
		value = combine(op, value, input(rank, i));
	return value;
}

static void fill(enum fi_datatype type, char *buf, size_t size, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put(type, buf + i * size, input(mt_rank, i));
}

static void check_reduced(enum fi_datatype type, const char *buf, size_t first, size_t count,
			  enum fi_op op)
{
	size_t size = type_size(type);

	for (size_t i = 0; i < count; i++)
		mt_require(get(type, buf + i * size) == reduced(op, first + i),
			   "element %zu is %ld, not %ld", i, get(type, buf + i * size),
			   reduced(op, first + i));
}

/* All three reductions of one type and operation. */
static void reduce_all(fi_addr_t group, enum fi_datatype type, enum fi_op op, size_t count)
{
	size_t size = type_size(type), all = count * (size_t)mt_ranks;
	char *in = malloc(all * size + 1), *out = malloc(all * size + 1);
	int root = (int)(count % (size_t)mt_ranks);

	mt_require(in && out, "no memory");
	fill(type, in, size, all);
	memset(out, 0x5a, all * size);
	DO(fi_allreduce(own.ep, in, count, NULL, out, NULL, group, type, op, 0, &context));
	check_reduced(type, out, 0, count, op);
	memset(out, 0x5a, all * size);
	DO(fi_reduce(own.ep, in, count, NULL, mt_rank == root ? out : NULL, NULL, group, peers[root], type,
		     op, 0, &context));
	if (mt_rank == root)
		check_reduced(type, out, 0, count, op);
	else
		mt_require(mt_verify_byte(out, all * size, 0x5a) < 0, "written to although not the root");
	DO(fi_reduce_scatter(own.ep, in, count, NULL, out, NULL, group, type, op, 0, &context));
	check_reduced(type, out, count * (size_t)mt_rank, count, op);
	/* in place */
	DO(fi_allreduce(own.ep, in, count, NULL, in, NULL, group, type, op, 0, &context));
	check_reduced(type, in, 0, count, op);
	free(in);
	free(out);
}

/* Bytes of the pattern of (from, to): what `from` has for `to`. */
static uint64_t seed(int from, int to)
{
	return (uint64_t)from * 1000 + (uint64_t)to;
}

static void check_block(const char *buf, size_t len, uint64_t expected, const char *what)
{
	ssize_t at = pattern_differs(buf, 0, len, expected);

	mt_require(at < 0, "%s: byte %zd is wrong", what, at);
}

static void move_all(fi_addr_t group, size_t len, int root)
{
	size_t all = len * (size_t)mt_ranks;
	char *in = malloc(all + 1), *out = malloc(all + 1);

	mt_require(in && out, "no memory");
	mt_doing("%zu bytes, root %d of %d", len, root, mt_ranks);
	for (int i = 0; i < mt_ranks; i++)
		pattern_fill(in + (size_t)i * len, 0, len, seed(mt_rank, i));
	DO(fi_alltoall(own.ep, in, len, NULL, out, NULL, group, FI_UINT8, 0, &context));
	for (int i = 0; i < mt_ranks; i++)
		check_block(out + (size_t)i * len, len, seed(i, mt_rank), "alltoall");
	memset(out, 0, all);
	DO(fi_allgather(own.ep, in, len, NULL, out, NULL, group, FI_UINT8, 0, &context));
	for (int i = 0; i < mt_ranks; i++)
		check_block(out + (size_t)i * len, len, seed(i, 0), "allgather");
	memset(out, 0, all);
	DO(fi_scatter(own.ep, mt_rank == root ? in : NULL, len, NULL, out, NULL, group, peers[root],
		      FI_UINT8, 0, &context));
	check_block(out, len, seed(root, mt_rank), "scatter");
	memset(out, 0, all);
	DO(fi_gather(own.ep, in, len, NULL, mt_rank == root ? out : NULL, NULL, group, peers[root],
		     FI_UINT8, 0, &context));
	for (int i = 0; i < mt_ranks && mt_rank == root; i++)
		check_block(out + (size_t)i * len, len, seed(i, 0), "gather");
	memset(out, 0, all);
	DO(fi_broadcast(own.ep, mt_rank == root ? in : out, len, NULL, group, peers[root], FI_UINT8, 0,
			&context));
	if (mt_rank != root)
		check_block(out, len, seed(root, 0), "broadcast");
	free(in);
	free(out);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static const enum fi_op reductions[] = { FI_MIN,  FI_MAX, FI_SUM,  FI_PROD, FI_LOR,
					 FI_LAND, FI_BOR, FI_BAND, FI_LXOR, FI_BXOR };
#define REDUCTIONS (sizeof(reductions) / sizeof(reductions[0]))

static void reduce_rank(const void *arg)
{
	struct fid_av_set *set;
	struct fid_mc *mc;
	size_t done = 0;

	(void)arg;
	open_all();
	set = make_set(0, 1);
	mc = join(set);
	mt_must(fi_close(&set->fid)); /* the group has a copy */
	for (size_t t = 0; t < TYPES; t++)
		for (size_t o = 0; o < REDUCTIONS; o++) {
			struct fi_collective_attr attr = { .datatype = types[t], .op = reductions[o] };
			int rc = fi_query_collective(own.domain, FI_ALLREDUCE, &attr, 0);
			struct fi_context2 context;

			mt_doing("type %d, op %d", (int)types[t], (int)reductions[o]);
			if (rc) {
				char buf[64] = "";

				mt_require(rc == -FI_EOPNOTSUPP, "query: %s", fi_strerror(-rc));
				mt_require(fi_allreduce(own.ep, buf, 1, NULL, buf, NULL, fi_mc_addr(mc),
							types[t], reductions[o], 0,
							&context) == -FI_EOPNOTSUPP,
					   "a reduction that there is not was accepted");
				continue;
			}
			done++;
			reduce_all(fi_mc_addr(mc), types[t], reductions[o], 1);
			reduce_all(fi_mc_addr(mc), types[t], reductions[o], 37);
		}
	mt_require(done > 100, "only %zu reductions", done);
	reduce_all(fi_mc_addr(mc), FI_DOUBLE, FI_SUM, 0);
	reduce_all(fi_mc_addr(mc), FI_DOUBLE, FI_SUM, 4097);
	reduce_all(fi_mc_addr(mc), FI_UINT16, FI_MAX, 100001);
	mt_must(fi_close(&mc->fid));
	mt_barrier(&own);
	close_all();
}

static void move_rank(const void *arg)
{
	static const size_t lens[] = { 0, 1, 8, 100, 4096, 4097, 40000, 300000 };
	struct fid_av_set *set;
	struct fid_mc *mc;

	(void)arg;
	open_all();
	set = make_set(0, 1);
	mc = join(set);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (int root = 0; root < mt_ranks; root += 1 + mt_ranks / 3)
			move_all(fi_mc_addr(mc), lens[i], root);
	mt_must(fi_close(&mc->fid));
	mt_must(fi_close(&set->fid));
	mt_barrier(&own);
	close_all();
}

/* No rank leaves the barrier before the last has come, 200 times; another rank is last each time. */
static void barrier_rank(const void *arg)
{
	struct fid_av_set *set;
	struct fid_mc *mc;

	(void)arg;
	open_all();
	set = make_set(0, 1);
	mc = join(set);
	for (int i = 0; i < 200; i++) {
		uint64_t come;

		mt_doing("barrier %d", i);
		if (i % mt_ranks == mt_rank)
			mt_poll_for(&own, 0.001);
		atomic_fetch_add(mt_flag(1 + i), 1);
		DO(fi_barrier(own.ep, fi_mc_addr(mc), &context));
		come = atomic_load(mt_flag(1 + i));
		mt_require(come == (uint64_t)mt_ranks, "through when %d of %d had come", (int)come,
			   mt_ranks);
	}
	mt_must(fi_close(&mc->fid));
	mt_must(fi_close(&set->fid));
	mt_barrier(&own);
	close_all();
}

/*
 * Three groups: all, the even ranks, the others from the last to the first. Eight operations of each are under
 * way at once, and messages of the application between them with tags like theirs.
 */
static void many_rank(const void *arg)
{
	enum { OPS = 8, COUNT = 700 };
	static uint64_t in[COUNT], out[3][OPS][COUNT];
	struct fi_context2 contexts[3][OPS];
	struct fid_av_set *sets[2];
	struct fid_mc *mcs[3];
	fi_addr_t addr;
	int pending = 0, of[3];

	(void)arg;
	open_all();
	sets[0] = make_set(0, 1);
	mcs[0] = join(sets[0]);
	sets[1] = make_set(mt_rank % 2, 2);
	mcs[1] = join(sets[1]);
	mt_must(fi_av_set_addr(sets[0], &addr));
	/* a group made of a group: the same members */
	mt_must(fi_join_collective(own.ep, fi_mc_addr(mcs[0]), sets[0], 0, &mcs[2], NULL));
	mt_require(!join_event(mcs[2], NULL), "the second group of all");
	of[0] = of[2] = mt_ranks;
	of[1] = (mt_ranks + (mt_rank % 2 == 0)) / 2;
	for (int i = 0; i < COUNT; i++)
		in[i] = (uint64_t)i;
	for (int k = 0; k < OPS; k++)
		for (int g = 0; g < 3; g++) {
			ssize_t rc;

			while ((rc = fi_allreduce(own.ep, in, COUNT, NULL, out[g][k], NULL,
						  fi_mc_addr(mcs[g]), FI_UINT64, FI_SUM, 0,
						  &contexts[g][k])) == -FI_EAGAIN)
				mt_poll(NULL);
			mt_must(rc);
			pending++;
		}
	mt_require(fi_close(&mcs[0]->fid) == -FI_EBUSY || !pending, "closed under its operations");
	while (pending) {
		struct fi_cq_tagged_entry entry;
		ssize_t rc = fi_cq_read(own.cq, &entry, 1);

		if (rc == -FI_EAGAIN) {
			mt_poll(NULL);
			continue;
		}
		mt_must(rc);
		pending--;
	}
	for (int g = 0; g < 3; g++)
		for (int k = 0; k < OPS; k++)
			for (int i = 0; i < COUNT; i++)
				mt_require(out[g][k][i] == (uint64_t)(i * of[g]),
					   "group %d, operation %d, element %d: %lu", g, k, i,
					   (unsigned long)out[g][k][i]);
	for (int g = 0; g < 3; g++)
		mt_must(fi_close(&mcs[g]->fid));
	for (int i = 0; i < 2; i++)
		mt_must(fi_close(&sets[i]->fid));
	mt_barrier(&own);
	close_all();
}

/* ---- asleep ---------------------------------------------------------------------------------- */

/* Until that queue may have something, without a time limit. */
static void sleep_on(struct fid *fid)
{
	struct fi_mutex_cond condition;
	struct pollfd wait = { .events = POLLIN };

	if (wait_obj == FI_WAIT_FD) {
		mt_must(fi_control(fid, FI_GETWAIT, &wait.fd));
		if (!fi_trywait(own.fabric, &fid, 1))
			mt_require(poll(&wait, 1, -1) == 1, "poll");
		return;
	}
	mt_must(fi_control(fid, FI_GETWAIT, &condition));
	pthread_mutex_lock(condition.mutex);
	if (!fi_trywait(own.fabric, &fid, 1))
		pthread_cond_wait(condition.cond, condition.mutex);
	pthread_mutex_unlock(condition.mutex);
}

static void sleep_for_join(struct fid_mc *mc)
{
	struct fi_eq_entry entry;
	uint32_t event;
	ssize_t rc;

	do {
		if (wait_obj == FI_WAIT_UNSPEC) {
			rc = fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0);
			continue;
		}
		rc = fi_eq_read(eq, &event, &entry, sizeof(entry), 0);
		if (rc == -FI_EAGAIN)
			sleep_on(&eq->fid);
	} while (rc == -FI_EAGAIN);
	mt_must(rc);
	mt_require(event == FI_JOIN_COMPLETE && entry.fid == &mc->fid, "event %u of another fid", event);
}

static void sleep_for(struct fi_context2 *context)
{
	struct fi_cq_tagged_entry entry;
	ssize_t rc;

	do {
		if (wait_obj == FI_WAIT_UNSPEC) {
			rc = fi_cq_sread(own.cq, &entry, 1, NULL, -1);
			continue;
		}
		rc = fi_cq_read(own.cq, &entry, 1);
		if (rc == -FI_EAGAIN)
			sleep_on(&own.cq->fid);
	} while (rc == -FI_EAGAIN);
	mt_must(rc);
	mt_require(entry.op_context == context, "another operation's completion");
}

#define SLEEP(call)                                                                                       \
	do {                                                                                              \
		struct fi_context2 context;                                                               \
		ssize_t rc;                                                                               \
                                                                                                          \
		while ((rc = (call)) == -FI_EAGAIN)                                                       \
			mt_poll(NULL);                                                                    \
		mt_must(rc);                                                                              \
		sleep_for(&context);                                                                      \
	} while (0)

struct way {
	enum fi_wait_obj obj;
	const char *name;
	enum fi_progress progress;
	bool beside;
};

/* Another thread sleeps on the completion queue for a moment, and has woken before the last member joins. */
static void *sleep_beside(void *unused)
{
	struct fi_cq_tagged_entry entry;

	(void)unused;
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	mt_require(fi_cq_sread(own.cq, &entry, 1, NULL, 1) == -FI_EAGAIN, "a completion of nothing");
	return NULL;
}

static void sleep_for_join_beside(struct fid_mc *mc)
{
	pthread_t other;

	mt_must(-pthread_create(&other, NULL, sleep_beside, NULL));
	sleep_for_join(mc);
	pthread_join(other, NULL);
}

/*
 * All members do nothing but sleep, without a time limit, until what they have begun is over: only messages of
 * each other wake them. In each round another rank comes late.
 */
static void asleep_rank(const void *arg)
{
	const struct way *way = arg;
	enum { SMALL = 16, LARGE = 50000 };
	static uint64_t in[LARGE], out[LARGE];
	int rounds = MT_SANITIZED || way->beside ? 10 : 60;

	wait_obj = way->obj;
	progress = way->progress;
	open_all();
	for (int i = 0; i < LARGE; i++)
		in[i] = (uint64_t)(mt_rank + i);
	for (int round = 0; round < rounds; round++) {
		size_t count = round % 4 ? SMALL : LARGE;
		struct fid_av_set *set = make_set(0, 1);
		struct fid_mc *mc;
		fi_addr_t addr;

		mt_doing("asleep in round %d", round);
		if (round % mt_ranks == mt_rank)
			mt_poll_for(NULL, way->beside ? 0.02 : 0.002);
		mt_must(fi_av_set_addr(set, &addr));
		mt_must(fi_join_collective(own.ep, addr, set, 0, &mc, &mc));
		if (way->beside)
			sleep_for_join_beside(mc);
		else
			sleep_for_join(mc);
		if ((round + 1) % mt_ranks == mt_rank)
			mt_poll_for(NULL, 0.002);
		SLEEP(fi_barrier(own.ep, fi_mc_addr(mc), &context));
		SLEEP(fi_allreduce(own.ep, in, count, NULL, out, NULL, fi_mc_addr(mc), FI_UINT64, FI_SUM,
				   0, &context));
		for (size_t i = 0; i < count; i++)
			mt_require(out[i] == (uint64_t)mt_ranks * i +
						     (uint64_t)(mt_ranks * (mt_ranks - 1) / 2),
				   "element %zu is %lu", i, (unsigned long)out[i]);
		SLEEP(fi_broadcast(own.ep, out, count, NULL, fi_mc_addr(mc), peers[round % mt_ranks],
				   FI_UINT64, 0, &context));
		mt_must(fi_close(&mc->fid));
		mt_must(fi_close(&set->fid));
	}
	mt_barrier(&own);
	close_all();
}

/* ---- death ----------------------------------------------------------------------------------- */

/* The last rank is killed: in an operation that needs it, before it, or while the others join again. */
static void death_rank(const void *arg)
{
	struct fi_context2 context;
	struct fid_av_set *set, *rest;
	struct fid_mc *mc, *smaller;
	static char in[100000 * RANKS_MAX], out[100000 * RANKS_MAX];
	int dies = mt_ranks - 1, err;
	bool large = arg;
	ssize_t rc;

	open_all();
	set = make_set(0, 1);
	mc = join(set);
	DO(fi_barrier(own.ep, fi_mc_addr(mc), &context));
	mt_expect_death(dies);
	mt_barrier(&own);
	if (mt_rank == dies) {
		/* it takes part in nothing, and ends when the others are in the middle */
		mt_flag_wait(NULL, 1, (uint64_t)mt_ranks - 1);
		raise(SIGKILL);
	}
	while ((rc = fi_alltoall(own.ep, in, large ? 100000 : 8, NULL, out, NULL, fi_mc_addr(mc), FI_UINT8,
				 0, &context)) == -FI_EAGAIN)
		mt_poll(NULL);
	mt_must(rc);
	atomic_fetch_add(mt_flag(1), 1);
	mt_doing("waiting for the error");
	err = completed(&context);
	mt_require(err == FI_ECONNRESET, "a member died: %s", fi_strerror(err));
	rc = fi_barrier(own.ep, fi_mc_addr(mc), &context);
	mt_require(rc == -FI_ECONNRESET, "a broken group gave %s", fi_strerror((int)-rc));
	mt_must(fi_close(&mc->fid));
	/* those that live go on without it */
	rest = make_set(0, 1);
	mt_must(fi_av_set_remove(rest, peers[dies]));
	smaller = join(rest);
	DO(fi_barrier(own.ep, fi_mc_addr(smaller), &context));
	mt_must(fi_close(&smaller->fid));
	mt_must(fi_close(&rest->fid));
	mt_must(fi_close(&set->fid));
	close_all();
}

static bool was_collective(const struct mt_counters *counters, int ranks, const void *arg)
{
	(void)counters, (void)ranks, (void)arg;
	return true;
}

int main(void)
{
	static const struct way ways[] = { { FI_WAIT_UNSPEC, "sread", FI_PROGRESS_MANUAL, false },
					   { FI_WAIT_FD, "poll", FI_PROGRESS_MANUAL, false },
					   { FI_WAIT_MUTEX_COND, "condition", FI_PROGRESS_MANUAL, false },
					   { FI_WAIT_UNSPEC, "beside", FI_PROGRESS_MANUAL, true },
					   { FI_WAIT_FD, "automatic", FI_PROGRESS_AUTO, false } };
	static const int ranks[] = { 1, 2, 3, 4, 7, 9 };

	mt_init("test_collective");
	for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		char name[32];

		snprintf(name, sizeof(name), "move-%d", ranks[i]);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = ranks[i],
					  .rank = move_rank,
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		snprintf(name, sizeof(name), "barrier-%d", ranks[i]);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = ranks[i],
					  .rank = barrier_rank,
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		if (ranks[i] > 4)
			continue;
		snprintf(name, sizeof(name), "reduce-%d", ranks[i]);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = ranks[i],
					  .rank = reduce_rank,
					  .judge = was_collective,
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		for (int members = 2; members < 5; members += 2) {
			char name[32];

			snprintf(name, sizeof(name), "asleep-%s-%d", ways[i].name, members);
			mt_run(&(struct mt_case){ .name = name,
						  .ranks = members,
						  .rank = asleep_rank,
						  .arg = &ways[i],
						  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		}
	for (int i = 2; i < 6; i++) {
		char name[32];

		snprintf(name, sizeof(name), "many-%d", i);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = i,
					  .rank = many_rank,
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		snprintf(name, sizeof(name), "death-%d", i);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = i,
					  .rank = death_rank,
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		snprintf(name, sizeof(name), "death-large-%d", i);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = i,
					  .rank = death_rank,
					  .arg = "large",
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	}
	return mt_end();
}
