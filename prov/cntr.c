/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cntr.c: fid_cntr. The core adds to the counter (struct sc_cntr) while an endpoint is polled or posted to;
 * here it is read, set and waited for.
 *
 * Any thread may call. Both words are written under the domain's lock, by the core and by fi_cntr_add() and
 * the like, and so nothing added is lost; fi_cntr_set() overwrites what is there, see fi_cntr(3).
 *
 * Progress: each read polls the endpoints that count here, so a program that looks at nothing but counters
 * gets on. What is counted for deferred work or registered memory, or not yet for anything, may be on any
 * endpoint of the domain: then all are polled.
 */
#define _GNU_SOURCE 1
#include "shmcma.h"

#include <sched.h>
#include <stdlib.h>

static struct shmcma_cntr *cntr_of(struct fid_cntr *fid)
{
	return container_of(fid, struct shmcma_cntr, fid);
}

static void progress_locked(struct shmcma_cntr *cntr)
{
	struct shmcma_domain *domain = cntr->domain;

	shmcma_progress_locked(domain,
			       cntr->elsewhere || !cntr->polled.count ? &domain->enabled : &cntr->polled);
}

static struct sc_cntr poll_both(struct shmcma_cntr *cntr)
{
	struct sc_cntr got;

	shmcma_lock(cntr->domain);
	progress_locked(cntr);
	got.value = sc_cntr_read(&cntr->count.value);
	got.errors = sc_cntr_read(&cntr->count.errors);
	shmcma_unlock(cntr->domain);
	return got;
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	return poll_both(cntr_of(fid)).value;
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	return poll_both(cntr_of(fid)).errors;
}

static int add(struct shmcma_cntr *cntr, uint64_t *word, uint64_t more)
{
	shmcma_lock(cntr->domain);
	sc_cntr_add(word, more);
	shmcma_trigger_run_locked(cntr->domain);
	shmcma_unlock(cntr->domain);
	return 0;
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	return add(cntr_of(fid), &cntr_of(fid)->count.value, value);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	return add(cntr_of(fid), &cntr_of(fid)->count.errors, value);
}

/* The difference is added, since the lock keeps the word what it is. */
static int set(struct shmcma_cntr *cntr, uint64_t *word, uint64_t value)
{
	shmcma_lock(cntr->domain);
	sc_cntr_add(word, value - sc_cntr_read(word));
	shmcma_trigger_run_locked(cntr->domain);
	shmcma_unlock(cntr->domain);
	return 0;
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	return set(cntr_of(fid), &cntr_of(fid)->count.value, value);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	return set(cntr_of(fid), &cntr_of(fid)->count.errors, value);
}

/* Waiting is polling, so it needs no wait object: even a counter with FI_WAIT_NONE may be waited for. */
static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct shmcma_cntr *cntr = cntr_of(fid);
	uint64_t errors = sc_cntr_read(&cntr->count.errors);
	int64_t end = timeout < 0 ? INT64_MAX : shmcma_now_ms() + timeout;

	for (;;) {
		struct sc_cntr now = poll_both(cntr);

		if (now.value >= threshold)
			return 0;
		if (now.errors != errors)
			return -FI_EAVAIL;
		if (end != INT64_MAX && shmcma_now_ms() >= end)
			return -FI_ETIMEDOUT;
		sched_yield();
	}
}

static int cntr_control(struct fid *fid, int command, void *arg)
{
	struct shmcma_cntr *cntr = container_of(fid, struct shmcma_cntr, fid.fid);

	if (!arg)
		return -FI_EINVAL;
	switch (command) {
	case FI_GETOPSFLAG: /* there are none */
		*(uint64_t *)arg = 0;
		return 0;
	case FI_SETOPSFLAG:
		return *(uint64_t *)arg ? -FI_EBADFLAGS : 0;
	case FI_GETWAIT:
		return -FI_ENODATA; /* it waits without an object */
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)arg = cntr->wait_obj;
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

/*
 * Deferred work that is under way counts when it ends, and does not say so: a counter that was given to such
 * is kept until the domain is closed, when no endpoint is left.
 */
static void retire(struct shmcma_cntr *cntr)
{
	struct shmcma_domain *domain = cntr->domain;

	shmcma_lock(domain);
	cntr->next_retired = domain->retired;
	domain->retired = cntr;
	shmcma_unlock(domain);
}

static int cntr_close(struct fid *fid)
{
	struct shmcma_cntr *cntr = container_of(fid, struct shmcma_cntr, fid.fid);
	struct shmcma_domain *domain = cntr->domain;

	if (atomic_load(&cntr->refs))
		return -FI_EBUSY;
	shmcma_object_del(&cntr->object);
	shmcma_polled_fini(&cntr->polled);
	if (cntr->lent)
		retire(cntr);
	else
		free(cntr);
	atomic_fetch_sub(&domain->refs, 1);
	return 0;
}

void shmcma_cntr_free_retired(struct shmcma_domain *domain)
{
	while (domain->retired) {
		struct shmcma_cntr *cntr = domain->retired;

		domain->retired = cntr->next_retired;
		free(cntr);
	}
}

static struct fi_ops cntr_fid_ops = SHMCMA_FID_OPS(cntr_close, shmcma_no_bind, cntr_control);

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_add,
	.set = cntr_set,
	.wait = cntr_wait,
	.adderr = cntr_adderr,
	.seterr = cntr_seterr,
};

struct shmcma_cntr *shmcma_cntr_of(struct fid *fid, const struct shmcma_domain *domain)
{
	struct shmcma_cntr *cntr;

	if (!fid || fid->fclass != FI_CLASS_CNTR || fid->ops != &cntr_fid_ops)
		return NULL;
	cntr = container_of(fid, struct shmcma_cntr, fid.fid);
	return cntr->domain == domain ? cntr : NULL;
}

struct shmcma_cntr *shmcma_cntr_get_locked(struct fid *fid, struct shmcma_domain *domain)
{
	struct shmcma_cntr *cntr = shmcma_cntr_of(fid, domain);

	if (!cntr)
		return NULL;
	cntr->elsewhere = true;
	atomic_fetch_add(&cntr->refs, 1);
	return cntr;
}

void shmcma_cntr_put(struct shmcma_cntr *cntr)
{
	atomic_fetch_sub(&cntr->refs, 1);
}

static int check_attr(const struct fi_cntr_attr *attr)
{
	if (attr->flags) {
		shmcma_warn(FI_LOG_CNTR, "counter flags %#llx: there are none\n",
			    (unsigned long long)attr->flags);
		return -FI_EBADFLAGS;
	}
	if (attr->events != FI_CNTR_EVENTS_COMP) {
		shmcma_warn(FI_LOG_CNTR, "counter events %d: only FI_CNTR_EVENTS_COMP\n",
			    (int)attr->events);
		return -FI_ENOSYS;
	}
	switch (attr->wait_obj) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
	case FI_WAIT_YIELD:
		return 0;
	default:
		shmcma_warn(FI_LOG_CNTR,
			    "wait object %d is not implemented; use FI_WAIT_NONE, FI_WAIT_UNSPEC or "
			    "FI_WAIT_YIELD\n",
			    (int)attr->wait_obj);
		return -FI_ENOSYS;
	}
}

int shmcma_cntr_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out,
		     void *context)
{
	static const struct fi_cntr_attr defaults;
	const struct fi_cntr_attr *wanted = attr ? attr : &defaults;
	struct shmcma_cntr *cntr;
	int ret;

	ret = check_attr(wanted);
	if (ret)
		return ret;
	cntr = calloc(1, sizeof(*cntr));
	if (!cntr)
		return -FI_ENOMEM;
	cntr->fid.fid.fclass = FI_CLASS_CNTR;
	cntr->fid.fid.context = context;
	cntr->fid.fid.ops = &cntr_fid_ops;
	cntr->fid.ops = &cntr_ops;
	cntr->domain = container_of(fid, struct shmcma_domain, fid);
	cntr->wait_obj = wanted->wait_obj;
	atomic_fetch_add(&cntr->domain->refs, 1);
	shmcma_object_add(&cntr->object, &cntr->fid.fid, NULL);
	*out = &cntr->fid;
	return 0;
}
