/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_group: address vector sets, groups and their refused calls, call by call. test/multi/test_collective tests the
 * operations of groups.
 */
#define _GNU_SOURCE 1
#include "fabric.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>

#define SET_MAX 8

static struct tf t;
static struct tf others[SET_MAX]; /* from 1 on */
static fi_addr_t addrs[SET_MAX];

/* An endpoint with collectives, in a domain of its own. */
static void open_member(struct tf *member, bool with_eq)
{
	struct fi_info *hints = tf_hints();
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	size_t len = sizeof(member->name);

	hints->caps = FI_MSG | FI_TAGGED | FI_COLLECTIVE;
	member->info = tf_getinfo(hints);
	fi_freeinfo(hints);
	assert_true(member->info->caps & FI_COLLECTIVE);
	assert_null(member->info->next);
	tf_ok(fi_fabric(member->info->fabric_attr, &member->fabric, NULL));
	tf_ok(fi_domain(member->fabric, member->info, &member->domain, NULL));
	tf_ok(fi_eq_open(member->fabric, &eq_attr, &member->eq, NULL));
	tf_ok(fi_av_open(member->domain, &av_attr, &member->av, NULL));
	tf_ok(fi_cq_open(member->domain, &cq_attr, &member->tx_cq, NULL));
	tf_ok(fi_endpoint(member->domain, member->info, &member->ep, NULL));
	tf_ok(fi_ep_bind(member->ep, &member->av->fid, 0));
	tf_ok(fi_ep_bind(member->ep, &member->tx_cq->fid, FI_TRANSMIT | FI_RECV));
	if (with_eq)
		tf_ok(fi_ep_bind(member->ep, &member->eq->fid, 0));
	tf_expect(fi_barrier(member->ep, 0, NULL), -FI_EOPBADSTATE);
	tf_ok(fi_enable(member->ep));
	tf_ok(fi_getname(&member->ep->fid, member->name, &len));
}

/* Its own address is the first in the vector; the others' are of endpoints without collectives. */
static void open_ep(bool with_eq)
{
	open_member(&t, with_eq);
	for (int i = 0; i < SET_MAX; i++) {
		if (i)
			tf_open(&others[i], NULL);
		tf_expect(fi_av_insert(t.av, i ? others[i].name : t.name, 1, &addrs[i], 0, NULL), 1);
	}
}

static void close_ep(void)
{
	for (int i = 1; i < SET_MAX; i++)
		tf_close(&others[i]);
	tf_close(&t);
}

static int setup(void **state)
{
	(void)state;
	open_ep(true);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close_ep();
	return 0;
}

static struct fid_av_set *make(const struct fi_av_set_attr *attr)
{
	struct fi_av_set_attr copy = *attr;
	struct fid_av_set *set = NULL;

	tf_ok(fi_av_set(t.av, &copy, &set, NULL));
	assert_int_equal(set->fid.fclass, FI_CLASS_AV_SET);
	return set;
}

static const struct fi_av_set_attr empty = { .start_addr = FI_ADDR_NOTAVAIL,
					     .end_addr = FI_ADDR_NOTAVAIL };

/* Checks which addresses a set holds: only those can be removed from it. */
static void check(struct fid_av_set *set, unsigned members)
{
	for (unsigned i = 0; i < SET_MAX; i++) {
		tf_expect(fi_av_set_remove(set, addrs[i]), members >> i & 1 ? 0 : -FI_EINVAL);
		if (members >> i & 1)
			tf_ok(fi_av_set_insert(set, addrs[i]));
	}
}

static void test_sets(void **state)
{
	struct fid_av_set *a, *b;
	fi_addr_t addr_a, addr_b;

	(void)state;
	a = make(&empty);
	check(a, 0);
	tf_ok(fi_av_set_insert(a, addrs[1]));
	tf_expect(fi_av_set_insert(a, addrs[1]), -FI_EINVAL); /* twice */
	tf_expect(fi_av_set_insert(a, 12345), -FI_EINVAL);    /* not in the vector */
	tf_ok(fi_av_set_insert(a, addrs[3]));
	check(a, 0x0a);
	b = make(&(struct fi_av_set_attr){ .start_addr = addrs[2], .end_addr = addrs[6], .stride = 1 });
	check(b, 0x7c);
	tf_ok(fi_av_set_union(a, b));
	check(a, 0x7e);
	tf_ok(fi_av_set_remove(b, addrs[4]));
	tf_ok(fi_av_set_diff(a, b));
	check(a, 0x12);
	tf_ok(fi_av_set_intersect(b, a));
	check(b, 0);
	tf_ok(fi_av_set_union(b, a));
	tf_ok(fi_av_set_intersect(b, b));
	check(b, 0x12);
	tf_ok(fi_av_set_diff(b, b));
	check(b, 0);
	tf_ok(fi_av_set_addr(a, &addr_a));
	tf_ok(fi_av_set_addr(b, &addr_b));
	assert_int_not_equal(addr_a, addr_b);
	tf_expect(fi_close(&t.av->fid), -FI_EBUSY);
	tf_ok(fi_close(&a->fid));
	tf_ok(fi_close(&b->fid));
}

static void test_set_attributes(void **state)
{
	static uint8_t key[1];
	static const struct {
		struct fi_av_set_attr attr;
		int error;
	} wrong[] = {
		{ { .start_addr = 0, .end_addr = 3, .stride = 0 }, -FI_EINVAL },
		{ { .start_addr = 3, .end_addr = 2, .stride = 1 }, -FI_EINVAL },
		{ { .start_addr = 0, .end_addr = 3, .stride = 1, .count = 3 }, -FI_EINVAL },
		{ { .start_addr = 0, .end_addr = FI_ADDR_NOTAVAIL, .stride = 1 }, -FI_EINVAL },
		{ { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL, .flags = FI_PEEK },
		  -FI_EBADFLAGS },
		{ { .start_addr = FI_ADDR_NOTAVAIL,
		    .end_addr = FI_ADDR_NOTAVAIL,
		    .comm_key_size = 1,
		    .comm_key = key },
		  -FI_EOPNOTSUPP },
	};
	struct fid_av_set *set;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct fi_av_set_attr attr = wrong[i].attr;

		tf_expect(fi_av_set(t.av, &attr, &set, NULL), wrong[i].error);
	}
	set = make(&(struct fi_av_set_attr){ .start_addr = 1, .end_addr = 7, .stride = 3, .count = 3 });
	check(set, 0x92);
	tf_ok(fi_close(&set->fid));
	set = make(&(struct fi_av_set_attr){ .flags = FI_UNIVERSE });
	check(set, 0xff);
	tf_ok(fi_close(&set->fid));
	/* the end may lie beyond the vector */
	set = make(&(struct fi_av_set_attr){ .start_addr = 6, .end_addr = 1000, .stride = 1 });
	check(set, 0xc0);
	tf_ok(fi_close(&set->fid));
}

/* A group of the endpoint alone. */
static struct fid_mc *join(uint64_t set_flags)
{
	struct fid_av_set *set = make(&(struct fi_av_set_attr){
		.start_addr = 0, .end_addr = 0, .stride = 1, .flags = set_flags });
	struct fi_eq_entry entry;
	struct fid_mc *mc;
	fi_addr_t addr;
	uint32_t event;
	int context;

	tf_ok(fi_av_set_addr(set, &addr));
	tf_ok(fi_join_collective(t.ep, addr, set, 0, &mc, &context));
	tf_ok(fi_close(&set->fid));
	tf_expect(fi_eq_read(t.eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	assert_int_equal(event, FI_JOIN_COMPLETE);
	assert_ptr_equal(entry.fid, &mc->fid);
	assert_ptr_equal(entry.context, &context);
	return mc;
}

static void test_join_refused(void **state)
{
	struct fid_av_set *set = make(&empty), *strangers = make(&empty);
	struct fid_mc *mc;
	fi_addr_t addr;

	(void)state;
	tf_ok(fi_av_set_addr(set, &addr));
	tf_expect(fi_join_collective(t.ep, addr, set, 0, &mc, NULL), -FI_EINVAL); /* of nobody */
	tf_ok(fi_av_set_insert(set, addrs[0]));
	tf_expect(fi_join_collective(t.ep, addr + 1000, set, 0, &mc, NULL), -FI_EINVAL);
	tf_expect(fi_join_collective(t.ep, addr, set, FI_PEEK, &mc, NULL), -FI_EBADFLAGS);
	tf_expect(fi_join_collective(t.ep, addr, NULL, 0, &mc, NULL), -FI_EINVAL);
	tf_expect(fi_join(t.ep, t.name, 0, &mc, NULL), -FI_ENOSYS); /* multicast */
	/* a member that is not there */
	tf_ok(fi_av_set_insert(set, addrs[1]));
	tf_expect(fi_join_collective(t.ep, addr, set, 0, &mc, NULL), -FI_ECONNREFUSED);
	/* not a member */
	tf_ok(fi_av_set_insert(strangers, addrs[2]));
	tf_expect(fi_join_collective(t.ep, FI_ADDR_NOTAVAIL, strangers, 0, &mc, NULL), -FI_ECONNREFUSED);
	tf_ok(fi_close(&set->fid));
	tf_ok(fi_close(&strangers->fid));
}

static void test_join_without_queue(void **state)
{
	struct fid_av_set *set;
	struct fid_mc *mc;

	(void)state;
	open_ep(false);
	set = make(&(struct fi_av_set_attr){ .start_addr = 0, .end_addr = 0, .stride = 1 });
	tf_expect(fi_join_collective(t.ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL), -FI_ENOEQ);
	tf_ok(fi_close(&set->fid));
	close_ep();
}

/* The domain's, which may have come after all else, is for an endpoint that has none. */
static void test_join_by_domain(void **state)
{
	struct fid_eq *other;
	struct fid_mc *mc;
	uint32_t event;

	(void)state;
	open_ep(false);
	tf_ok(fi_domain_bind(t.domain, &t.eq->fid, 0));
	mc = join(0);
	tf_expect(fi_close(&t.eq->fid), -FI_EBUSY);
	tf_ok(fi_close(&mc->fid));
	mc = join(0);
	tf_ok(fi_close(&t.ep->fid));
	t.ep = NULL;
	tf_expect(fi_close(&t.eq->fid), -FI_EBUSY); /* it is the domain's until that is closed */
	tf_ok(fi_close(&mc->fid));
	close_ep();
	/* the endpoint's own goes before it */
	open_ep(true);
	other = tf_open_eq(&t, 0, FI_WAIT_NONE);
	tf_ok(fi_domain_bind(t.domain, &other->fid, 0));
	mc = join(0);
	tf_expect(fi_eq_read(other, &event, &event, sizeof(event), 0), -FI_EAGAIN);
	TF_CLOSE(t.ep);
	TF_CLOSE(t.tx_cq);
	TF_CLOSE(t.av);
	tf_expect(fi_close(&t.domain->fid), -FI_EBUSY); /* the group's */
	tf_ok(fi_close(&mc->fid));
	TF_CLOSE(t.domain);
	t.ep = NULL;
	t.tx_cq = NULL;
	t.av = NULL;
	t.domain = NULL;
	tf_ok(fi_close(&other->fid));
	close_ep();
}

static bool amid_join; /* the thread is in fi_join_collective(), which has let go of the domain */

static bool close_joined(void)
{
	struct fi_eq_entry entry;
	uint32_t event;

	if (fi_eq_read(t.eq, &event, &entry, sizeof(entry), 0) != sizeof(entry))
		return false;
	assert_int_equal(event, FI_JOIN_COMPLETE);
	tf_ok(fi_close(entry.fid));
	return true;
}

/* In its place: the provider calls it before it changes the list of open objects. */
__attribute__((visibility("default"))) int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	int (*mask)(int, const sigset_t *, sigset_t *);

	if (amid_join)
		amid_join = !close_joined();
	*(void **)&mask = dlsym(RTLD_NEXT, "pthread_sigmask");
	return mask(how, set, old);
}

/* Another thread may read that the group is joined, and close it, before fi_join_collective() returns. */
static void test_close_amid_join(void **state)
{
	struct fid_av_set *set = make(
		&(struct fi_av_set_attr){ .start_addr = addrs[0], .end_addr = addrs[0], .stride = 1 });
	struct fid_mc *mc;

	(void)state;
	amid_join = true;
	tf_ok(fi_join_collective(t.ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL));
	if (amid_join)
		assert_true(close_joined());
	amid_join = false;
	tf_ok(fi_close(&set->fid));
}

static void *close_endpoint(void *unused)
{
	(void)unused;
	tf_ok(fi_close(&t.ep->fid));
	return NULL;
}

/* One thread closes the endpoint and another the group: calls that close exclude each other. */
static void test_closes_at_once(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct fid_mc *mc;
		pthread_t thread;

		open_ep(true);
		mc = join(0);
		tf_expect(pthread_create(&thread, NULL, close_endpoint, NULL), 0);
		tf_ok(fi_close(&mc->fid));
		tf_expect(pthread_join(thread, NULL), 0);
		t.ep = NULL;
		close_ep();
	}
}

static void completes(void *context)
{
	struct fi_cq_tagged_entry entry;
	ssize_t rc;

	while ((rc = fi_cq_read(t.tx_cq, &entry, 1)) == -FI_EAGAIN)
		;
	tf_expect(rc, 1);
	assert_ptr_equal(entry.op_context, context);
	assert_true(entry.flags & FI_COLLECTIVE);
}

/* Alone in a group, everything is a copy. */
static void test_alone(void **state)
{
	struct fid_mc *mc = join(0);
	fi_addr_t group = fi_mc_addr(mc);
	uint32_t in = 77, out = 0;
	int context;

	(void)state;
	tf_ok(fi_barrier(t.ep, group, &context));
	completes(&context);
	tf_ok(fi_barrier2(t.ep, group, FI_COMPLETION, &context));
	completes(&context);
	tf_ok(fi_allreduce(t.ep, &in, 1, NULL, &out, NULL, group, FI_UINT32, FI_SUM, 0, &context));
	completes(&context);
	assert_int_equal(out, 77);
	out = 0;
	tf_ok(fi_allgather(t.ep, &in, 1, NULL, &out, NULL, group, FI_UINT32, 0, &context));
	completes(&context);
	assert_int_equal(out, 77);
	out = 0;
	tf_ok(fi_scatter(t.ep, &in, 1, NULL, &out, NULL, group, addrs[0], FI_UINT32, 0, &context));
	completes(&context);
	assert_int_equal(out, 77);
	out = 0;
	tf_ok(fi_gather(t.ep, &in, 1, NULL, &out, NULL, group, addrs[0], FI_UINT32, 0, &context));
	completes(&context);
	assert_int_equal(out, 77);
	tf_ok(fi_broadcast(t.ep, &in, 1, NULL, group, addrs[0], FI_UINT32, 0, &context));
	completes(&context);
	tf_ok(fi_close(&mc->fid));
}

/* They are counted as atomics are, reported or not. */
static void test_counted(void **state)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *cntr;
	struct fid_mc *mc;
	int context;

	(void)state;
	tf_ok(fi_close(&t.ep->fid));
	tf_ok(fi_cntr_open(t.domain, &attr, &cntr, NULL));
	tf_ok(fi_endpoint(t.domain, t.info, &t.ep, NULL));
	tf_ok(fi_ep_bind(t.ep, &t.av->fid, 0));
	tf_ok(fi_ep_bind(t.ep, &t.tx_cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
	tf_ok(fi_ep_bind(t.ep, &t.eq->fid, 0));
	tf_ok(fi_ep_bind(t.ep, &cntr->fid, FI_WRITE));
	tf_ok(fi_enable(t.ep));
	tf_ok(fi_getname(&t.ep->fid, t.name, &(size_t){ sizeof(t.name) }));
	tf_ok(fi_av_remove(t.av, &addrs[0], 1, 0));
	tf_expect(fi_av_insert(t.av, t.name, 1, &addrs[0], 0, NULL), 1);
	mc = join(0);
	assert_int_equal(fi_cntr_read(cntr), 0);
	tf_ok(fi_barrier(t.ep, fi_mc_addr(mc), &context));
	tf_ok(fi_cntr_wait(cntr, 1, -1));
	tf_ok(fi_barrier2(t.ep, fi_mc_addr(mc), FI_COMPLETION, &context));
	tf_ok(fi_cntr_wait(cntr, 2, -1));
	completes(&context); /* the second alone */
	assert_int_equal(fi_cntr_readerr(cntr), 0);
	tf_ok(fi_close(&mc->fid));
	tf_ok(fi_close(&t.ep->fid));
	t.ep = NULL;
	tf_ok(fi_close(&cntr->fid));
}

static void test_refused(void **state)
{
	struct fid_mc *mc = join(0), *only = join(FI_BARRIER_SET | FI_GATHER_SET);
	fi_addr_t group = fi_mc_addr(mc);
	uint32_t in = 1, out;
	int context;

	(void)state;
	tf_expect(fi_barrier(t.ep, group + 100, NULL), -FI_EINVAL);
	tf_expect(fi_barrier(t.ep, 0, NULL), -FI_EINVAL);
	tf_expect(fi_barrier2(t.ep, group, FI_MULTI_RECV, NULL), -FI_EBADFLAGS);
	tf_expect(fi_allreduce(t.ep, &in, 1, NULL, &out, NULL, group, FI_UINT32, FI_CSWAP, 0, NULL),
		  -FI_EOPNOTSUPP);
	tf_expect(fi_allreduce(t.ep, &in, 1, NULL, &out, NULL, group, FI_DOUBLE, FI_BXOR, 0, NULL),
		  -FI_EOPNOTSUPP);
	tf_expect(fi_broadcast(t.ep, &in, 1, NULL, group, addrs[0], FI_VOID, 0, NULL), -FI_EOPNOTSUPP);
	tf_expect(fi_broadcast(t.ep, &in, 1, NULL, group, addrs[1], FI_UINT32, 0, NULL), -FI_EINVAL);
	tf_expect(fi_broadcast(t.ep, NULL, 1, NULL, group, addrs[0], FI_UINT32, 0, NULL), -FI_EINVAL);
	tf_expect(fi_allgather(t.ep, &in, 1, NULL, NULL, NULL, group, FI_UINT32, 0, NULL), -FI_EINVAL);
	tf_expect(fi_allgather(t.ep, &in, SIZE_MAX / 8, NULL, &out, NULL, group, FI_UINT32, 0, NULL),
		  -FI_EMSGSIZE);
	/* a set made for some operations */
	tf_ok(fi_barrier(t.ep, fi_mc_addr(only), &context));
	completes(&context);
	tf_expect(fi_allgather(t.ep, &in, 1, NULL, &out, NULL, fi_mc_addr(only), FI_UINT32, 0, NULL),
		  -FI_EOPNOTSUPP);
	tf_ok(fi_close(&only->fid));
	tf_expect(fi_barrier(t.ep, fi_mc_addr(mc) + 1, NULL), -FI_EINVAL);
	tf_ok(fi_close(&mc->fid));
	tf_expect(fi_barrier(t.ep, group, NULL), -FI_EINVAL);
}

/* ---- several joins of one set ---------------------------------------------------------------- */

#define BARRIERS 500 /* more than a ring holds */

static struct tf members[3];

static void open_members(int count)
{
	watchdog_start(NULL, 0);
	for (int i = 0; i < count; i++)
		open_member(&members[i], true);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			(void)tf_insert(&members[i], members[j].name);
}

static struct fid_mc *join_range(struct tf *member, fi_addr_t from, fi_addr_t to)
{
	struct fi_av_set_attr attr = { .start_addr = from, .end_addr = to, .stride = 1 };
	struct fid_av_set *set;
	struct fid_mc *mc;

	tf_ok(fi_av_set(member->av, &attr, &set, NULL));
	tf_ok(fi_join_collective(member->ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL));
	tf_ok(fi_close(&set->fid));
	return mc;
}

static struct fid_mc *join_both(struct tf *member)
{
	return join_range(member, 0, 1);
}

/* So many events of each. */
static void await_joins(int count)
{
	struct fi_eq_entry entry;
	uint32_t event;

	for (int left[2] = { count, count }; left[0] || left[1];)
		for (int i = 0; i < 2; i++)
			if (fi_eq_read(members[i].eq, &event, &entry, sizeof(entry), 0) > 0)
				left[i]--;
}

static int take_completions(struct tf *member)
{
	struct fi_cq_tagged_entry entries[16];
	ssize_t rc = fi_cq_read(member->tx_cq, entries, 16);

	return rc > 0 ? (int)rc : 0;
}

static void await_barriers(int first, int second)
{
	int left[2] = { first, second };

	while (left[0] || left[1])
		for (int i = 0; i < 2; i++)
			left[i] -= take_completions(&members[i]);
}

/*
 * A join finds the ring full; when the next is called there is room, and that one is not to overtake it: each
 * would have the other's number, and no operation of the two groups would end.
 */
static void test_joins_in_order(void **state)
{
	struct fid_mc *base[2], *first[2], *second[2];
	int taken = 0;

	(void)state;
	open_members(2);
	for (int i = 0; i < 2; i++)
		base[i] = join_both(&members[i]);
	await_joins(1);
	for (int i = 0; i < BARRIERS; i++)
		tf_ok(fi_barrier(members[0].ep, fi_mc_addr(base[0]), NULL));
	first[0] = join_both(&members[0]);
	for (int i = 0; i < BARRIERS; i++) {
		tf_ok(fi_barrier(members[1].ep, fi_mc_addr(base[1]), NULL));
		taken += take_completions(&members[1]);
	}
	second[0] = join_both(&members[0]);
	first[1] = join_both(&members[1]);
	second[1] = join_both(&members[1]);
	await_joins(2);
	await_barriers(BARRIERS, BARRIERS - taken);
	for (int i = 0; i < 2; i++)
		tf_ok(fi_barrier(members[i].ep, fi_mc_addr(first[i]), NULL));
	await_barriers(1, 1);
	for (int i = 0; i < 2; i++)
		tf_ok(fi_barrier(members[i].ep, fi_mc_addr(second[i]), NULL));
	await_barriers(1, 1);
	for (int i = 0; i < 2; i++) {
		tf_ok(fi_close(&base[i]->fid));
		tf_ok(fi_close(&first[i]->fid));
		tf_ok(fi_close(&second[i]->fid));
		tf_close(&members[i]);
	}
}

/* ---- a member that is lost ------------------------------------------------------------------- */

static int join_all(struct tf *member, struct fid_mc **mc)
{
	struct fi_av_set_attr attr = { .flags = FI_UNIVERSE };
	struct fid_av_set *set;
	int ret;

	tf_ok(fi_av_set(member->av, &attr, &set, NULL));
	ret = fi_join_collective(member->ep, FI_ADDR_NOTAVAIL, set, 0, mc, mc);
	tf_ok(fi_close(&set->fid));
	return ret;
}

/*
 * A member joins and closes its endpoint, and the third finds it gone. So the third sends nothing, and the join of the
 * first ends, which waits for the third only.
 */
static void test_lost_in_join(void **state)
{
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry;
	struct fid_mc *mc[2], *none;
	uint32_t event;
	ssize_t rc;

	(void)state;
	open_members(3);
	for (int i = 0; i < 2; i++)
		tf_ok(join_all(&members[i], &mc[i]));
	for (int i = 0; i < 100; i++) /* the first has the number of the second then */
		for (int j = 0; j < 2; j++)
			tf_expect(fi_eq_read(members[j].eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
	tf_ok(fi_close(&members[1].ep->fid));
	members[1].ep = NULL;
	tf_expect(join_all(&members[2], &none), -FI_ECONNREFUSED);
	while ((rc = fi_eq_read(members[0].eq, &event, &entry, sizeof(entry), 0)) == -FI_EAGAIN)
		;
	tf_expect(rc, -FI_EAVAIL);
	tf_expect(fi_eq_readerr(members[0].eq, &error, 0), sizeof(error));
	assert_ptr_equal(error.fid, &mc[0]->fid);
	assert_ptr_equal(error.context, &mc[0]);
	assert_int_equal(error.err, FI_ECONNRESET);
	tf_expect(fi_barrier(members[0].ep, fi_mc_addr(mc[0]), NULL), -FI_ECONNRESET);
	for (int i = 0; i < 2; i++)
		tf_ok(fi_close(&mc[i]->fid));
	for (int i = 0; i < 3; i++)
		tf_close(&members[i]);
}

/* Tells whether the member has joined. A join that ends otherwise fails the test. */
static bool has_joined(struct tf *member)
{
	struct fi_eq_entry entry;
	uint32_t event;
	ssize_t rc = fi_eq_read(member->eq, &event, &entry, sizeof(entry), 0);

	if (rc == -FI_EAGAIN)
		return false;
	tf_expect(rc, sizeof(entry));
	assert_int_equal(event, FI_JOIN_COMPLETE);
	return true;
}

/*
 * A member closes its group and its endpoint as soon as it has joined. The third's message to the second waits for
 * space in a ring meanwhile, and their joins end well.
 */
static void test_close_after_join(void **state)
{
	struct fid_mc *base[3], *mc[3];
	bool joined[3] = { false };

	(void)state;
	open_members(3);
	for (int i = 1; i < 3; i++)
		base[i] = join_range(&members[i], 1, 2);
	for (bool other = false; !joined[1] || !other;) {
		joined[1] |= has_joined(&members[1]);
		other |= has_joined(&members[2]);
	}
	joined[1] = false;
	for (int i = 0; i < BARRIERS; i++)
		for (int j = 1; j < 3; j++)
			tf_ok(fi_barrier(members[j].ep, fi_mc_addr(base[j]), NULL));
	for (int i = 0; i < 3; i++)
		tf_ok(join_all(&members[i], &mc[i]));
	for (int round = 1; !joined[0] || !joined[1] || !joined[2]; round++) {
		if (!joined[0] && has_joined(&members[0])) {
			joined[0] = true;
			tf_ok(fi_close(&mc[0]->fid));
			tf_ok(fi_close(&members[0].ep->fid));
			members[0].ep = NULL;
		}
		joined[1] |= has_joined(&members[1]);
		if (round % 100 == 0)
			joined[2] |= has_joined(&members[2]);
	}
	for (int i = 1; i < 3; i++) {
		tf_ok(fi_close(&base[i]->fid));
		tf_ok(fi_close(&mc[i]->fid));
	}
	for (int i = 0; i < 3; i++)
		tf_close(&members[i]);
}

/* The endpoint may be closed before its groups. */
static void test_close_order(void **state)
{
	struct fid_mc *mc = join(0);

	(void)state;
	tf_ok(fi_close(&t.ep->fid));
	t.ep = NULL;
	tf_ok(fi_close(&mc->fid));
}

static void test_query(void **state)
{
	struct fi_collective_attr attr = { .op = FI_SUM, .datatype = FI_DOUBLE };

	(void)state;
	for (int op = FI_BARRIER; op <= FI_GATHER; op++)
		tf_ok(fi_query_collective(t.domain, op, &attr, 0));
	assert_int_equal(attr.datatype_attr.size, sizeof(double));
	assert_true(attr.datatype_attr.count > 1000000);
	assert_true(attr.max_members >= 64);
	tf_expect(fi_query_collective(t.domain, FI_GATHER + 1, &attr, 0), -FI_EOPNOTSUPP);
	tf_expect(fi_query_collective(t.domain, FI_BARRIER, NULL, 0), -FI_EINVAL);
	tf_expect(fi_query_collective(t.domain, FI_BARRIER, &attr, FI_PEEK), -FI_EBADFLAGS);
	attr.mode = 1;
	tf_expect(fi_query_collective(t.domain, FI_BARRIER, &attr, 0), -FI_EINVAL);
	attr.mode = 0;
	attr.op = FI_BXOR;
	tf_expect(fi_query_collective(t.domain, FI_ALLREDUCE, &attr, 0), -FI_EOPNOTSUPP);
	tf_ok(fi_query_collective(t.domain, FI_BROADCAST, &attr, 0));
	attr.datatype = FI_VOID;
	attr.op = FI_NOOP;
	tf_ok(fi_query_collective(t.domain, FI_BARRIER, &attr, 0));
	tf_expect(fi_query_collective(t.domain, FI_ALLGATHER, &attr, 0), -FI_EOPNOTSUPP);
}

/* A domain for which nobody asked for collectives has none. */
static void test_without(void **state)
{
	struct fi_av_set_attr attr = { .start_addr = 0, .end_addr = 0, .stride = 1 };
	struct fid_av_set *set;
	struct fid_mc *mc;

	(void)state;
	tf_open(&t, NULL);
	tf_expect(fi_av_insert(t.av, t.name, 1, NULL, 0, NULL), 1);
	tf_ok(fi_av_set(t.av, &attr, &set, NULL));
	tf_expect(fi_join_collective(t.ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL), -FI_EOPNOTSUPP);
	tf_expect(fi_barrier(t.ep, 0, NULL), -FI_EOPNOTSUPP);
	tf_ok(fi_close(&set->fid));
	tf_close(&t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_sets),
		TEST(test_set_attributes),
		TEST(test_join_refused),
		cmocka_unit_test(test_join_without_queue),
		cmocka_unit_test(test_join_by_domain),
		TEST(test_close_amid_join),
		cmocka_unit_test(test_closes_at_once),
		TEST(test_alone),
		TEST(test_counted),
		TEST(test_refused),
		TEST(test_close_order),
		TEST(test_query),
		cmocka_unit_test(test_without),
		cmocka_unit_test(test_joins_in_order),
		cmocka_unit_test(test_lost_in_join),
		cmocka_unit_test(test_close_after_join),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
