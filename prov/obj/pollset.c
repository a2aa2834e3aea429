/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pollset.c: fid_poll: completion queues and counters of one domain that are polled together.
 *
 * A queue is reported while it is not empty. A counter is reported once for each change that is not the application's
 * own fi_cntr_set() or the like: each member remembers the values at the last look. Members stay open while they are in
 * the set (refs).
 *
 * Any thread; all under a lock of the set, which is taken before the locks of its members.
 */
#include "obj/pollset.h"

#include <stdlib.h>
#include "obj/cntr.h"
#include "obj/cq.h"
#include "wait/polled.h"
#include "wait/wait.h"

struct member {
	struct fid *fid;
	shmcma_refs *refs;   /* its */
	struct sc_cntr last; /* of a counter: the values at the last look */
	uint64_t changes;
};

struct poll_set {
	struct fid_poll fid;
	struct shmcma_object object;
	struct shmcma_domain *domain;
	pthread_mutex_t lock;
	struct member *members;
	size_t count, capacity;
	size_t turn;		   /* the member that the next poll looks at first */
	struct shmcma_yield yield; /* polls that found nothing */
};

static struct poll_set *set_of(struct fid_poll *fid)
{
	return container_of(fid, struct poll_set, fid);
}

static struct shmcma_cq *cq_of(struct fid *fid)
{
	return container_of(fid, struct shmcma_cq, fid.fid);
}

/* Tells whether the counter has changed since this was last asked. */
static bool cntr_has_changed_locked(struct member *member, struct shmcma_cntr *cntr)
{
	struct sc_cntr last, now;

	last = member->changes == cntr->changes ? member->last : cntr->given;
	now.value = sc_cntr_read(&cntr->count.value);
	now.errors = sc_cntr_read(&cntr->count.errors);
	member->last = now;
	member->changes = cntr->changes;
	return now.value != last.value || now.errors != last.errors;
}

/* Makes progress, even if the member has something. `asked`: the caller wants to know that. */
static bool member_has(struct poll_set *set, struct member *member, bool asked)
{
	struct shmcma_cntr *cntr = shmcma_cntr_of(member->fid, set->domain);
	bool has, all;

	if (!cntr) {
		shmcma_lock_enter(&cq_of(member->fid)->locked);
		shmcma_progress_locked(set->domain, &cq_of(member->fid)->polled);
		has = asked && shmcma_cq_has_entry(cq_of(member->fid));
		shmcma_lock_leave(&cq_of(member->fid)->locked);
		return has;
	}
	all = shmcma_cntr_enter(cntr);
	shmcma_progress_locked(set->domain, shmcma_cntr_polled(cntr));
	has = asked && cntr_has_changed_locked(member, cntr);
	shmcma_cntr_leave(cntr, all);
	return has;
}

/* All members make progress; each call begins with another member, so that none is left out. */
SHMCMA_CALL(int, set_poll, struct fid_poll *fid, void **context, int count)
{
	struct poll_set *set = set_of(fid);
	int found = 0;
	bool due;

	if (count < 0 || (count && !context))
		return -FI_EINVAL;
	pthread_mutex_lock(&set->lock);
	for (size_t i = 0; i < set->count; i++) {
		struct member *member = &set->members[(set->turn + i) % set->count];

		if (member_has(set, member, found < count))
			context[found++] = member->fid->context;
	}
	set->turn = set->count ? (set->turn + 1) % set->count : 0;
	due = !found && shmcma_yield_is_due(&set->yield);
	pthread_mutex_unlock(&set->lock);
	if (due)
		shmcma_yield_slow(&set->yield);
	return found;
}

static size_t find_locked(const struct poll_set *set, const struct fid *fid)
{
	size_t i = 0;

	while (i < set->count && set->members[i].fid != fid)
		i++;
	return i;
}

static shmcma_refs *refs_of(const struct poll_set *set, struct fid *fid)
{
	struct shmcma_cntr *cntr;

	if (fid && fid->fclass == FI_CLASS_CQ && cq_of(fid)->domain == set->domain)
		return &cq_of(fid)->refs;
	cntr = shmcma_cntr_of(fid, set->domain);
	return cntr ? &cntr->refs : NULL;
}

static void member_init(const struct poll_set *set, struct member *member, struct fid *fid)
{
	struct shmcma_cntr *cntr = shmcma_cntr_of(fid, set->domain);

	*member = (struct member){ .fid = fid, .refs = refs_of(set, fid) };
	atomic_fetch_add(member->refs, 1);
	if (!cntr)
		return;
	shmcma_lock_enter(&cntr->locked);
	member->last = cntr->count;
	member->changes = cntr->changes;
	shmcma_lock_leave(&cntr->locked);
}

SHMCMA_CALL(int, set_add, struct fid_poll *fid, struct fid *object, uint64_t flags)
{
	struct poll_set *set = set_of(fid);
	struct member *members;
	int ret = 0;

	if (flags)
		return -FI_EBADFLAGS;
	if (!refs_of(set, object))
		return -FI_EINVAL;
	pthread_mutex_lock(&set->lock);
	members = shmcma_grow(set->members, set->count, &set->capacity, sizeof(*members));
	if (members)
		set->members = members;
	if (find_locked(set, object) < set->count)
		ret = -FI_EALREADY;
	else if (!members)
		ret = -FI_ENOMEM;
	else
		member_init(set, &members[set->count++], object);
	pthread_mutex_unlock(&set->lock);
	return ret;
}

SHMCMA_CALL(int, set_del, struct fid_poll *fid, struct fid *object, uint64_t flags)
{
	struct poll_set *set = set_of(fid);
	int ret = -FI_EINVAL;
	size_t at;

	if (flags)
		return -FI_EBADFLAGS;
	pthread_mutex_lock(&set->lock);
	at = find_locked(set, object);
	if (at < set->count) {
		atomic_fetch_sub(set->members[at].refs, 1);
		set->members[at] = set->members[--set->count];
		ret = 0;
	}
	pthread_mutex_unlock(&set->lock);
	return ret;
}

static int set_close(struct fid *fid)
{
	struct poll_set *set = container_of(fid, struct poll_set, fid.fid);
	bool used;

	pthread_mutex_lock(&set->lock);
	used = set->count;
	pthread_mutex_unlock(&set->lock);
	if (used && !shmcma_is_forked(fid))
		return -FI_EBUSY;
	shmcma_object_del(&set->object);
	for (size_t i = 0; i < set->count; i++) /* only in a child of fork(2), which can remove none */
		atomic_fetch_sub(set->members[i].refs, 1);
	atomic_fetch_sub(&set->domain->refs, 1);
	pthread_mutex_destroy(&set->lock);
	free(set->members);
	free(set);
	return 0;
}

static struct fi_ops set_fid_ops = SHMCMA_FID_OPS(set_close, shmcma_no_bind, shmcma_no_control);

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_poll), .poll = way##set_poll, .poll_add = way##set_add,      \
		.poll_del = way##set_del,                                                                 \
	}
static struct fi_ops_poll set_ops = OPS(), forked_ops = OPS(forked_);

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_poll, fid)->ops = &forked_ops;
}

int shmcma_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **out)
{
	struct poll_set *set;

	if (attr && attr->flags) {
		shmcma_warn(FI_LOG_DOMAIN, "poll set flags %#llx: there are none\n",
			    (unsigned long long)attr->flags);
		return -FI_EBADFLAGS;
	}
	set = calloc(1, sizeof(*set));
	if (!set)
		return -FI_ENOMEM;
	set->fid.fid = (struct fid){ .fclass = FI_CLASS_POLL, .ops = &set_fid_ops };
	set->fid.ops = &set_ops;
	set->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	set->domain = container_of(domain, struct shmcma_domain, fid);
	atomic_fetch_add(&set->domain->refs, 1);
	shmcma_object_add(&set->object, &set->fid.fid, &set->lock, forked);
	*out = &set->fid;
	return 0;
}
