/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cntr.c: fid_cntr. The core adds to the counter (struct sc_cntr) while an endpoint is polled or posted to; this file
 * reads it, sets it and waits for it.
 *
 * Any thread may call. The core, fi_cntr_add() and the like write both words under the counter's lock (lock.h), so no
 * addition is lost; fi_cntr_set() overwrites the value, see fi_cntr(3).
 *
 * Progress: each read polls the endpoints that count here, so a program that reads only counters makes progress. A
 * counter for deferred work or registered memory, or one that is not bound yet, may count operations of any endpoint of
 * the domain: a read of it polls all.
 */
#include "obj/cntr.h"

#include <stdlib.h>
#include "wait/polled.h"
#include "wait/wait.h"
#include "wait/work.h"

static struct shmcma_cntr *cntr_of(struct fid_cntr *fid)
{
	return container_of(fid, struct shmcma_cntr, fid);
}

const struct shmcma_polled *shmcma_cntr_polled(const struct shmcma_cntr *cntr)
{
	return cntr->elsewhere || !cntr->polled.count ? &cntr->domain->enabled : &cntr->polled;
}

/* The set of polled endpoints may change while no lock is held; with all held, that makes no difference. */
bool shmcma_cntr_enter(struct shmcma_cntr *cntr)
{
	shmcma_lock_enter(&cntr->locked);
	if (__builtin_expect(shmcma_cntr_polled(cntr) == &cntr->polled || cntr->domain->locks.coarse, 1))
		return false;
	shmcma_lock_leave(&cntr->locked);
	shmcma_lock(cntr->domain);
	return true;
}

void shmcma_cntr_leave(struct shmcma_cntr *cntr, bool all)
{
	if (all)
		shmcma_unlock(cntr->domain);
	else
		shmcma_lock_leave(&cntr->locked);
}

static struct sc_cntr read_both(const struct shmcma_cntr *cntr)
{
	return (struct sc_cntr){ .value = sc_cntr_read(&cntr->count.value),
				 .errors = sc_cntr_read(&cntr->count.errors) };
}

static bool differs(const struct shmcma_wait *wait, const void *arg)
{
	struct sc_cntr now = read_both(container_of(wait, struct shmcma_cntr, wait));
	const struct sc_cntr *known = arg;

	return now.value != known->value || now.errors != known->errors;
}

static bool has(const struct shmcma_wait *wait)
{
	return differs(wait, &container_of(wait, struct shmcma_cntr, wait)->seen);
}

/*
 * Reports a change to one thread. Others may sleep until the counter has the new value, or wait for its set: these look
 * after a signal, which has disarmed the counter, and then has() finds nothing.
 */
static bool found(struct shmcma_wait *wait)
{
	struct shmcma_cntr *cntr = container_of(wait, struct shmcma_cntr, wait);
	bool changed = has(wait);

	if (__builtin_expect(changed && (wait->armed || wait->set), 0))
		shmcma_wait_wake_locked(wait);
	cntr->seen = read_both(cntr);
	return changed;
}

static const struct shmcma_polled *polled(const struct shmcma_wait *wait)
{
	return shmcma_cntr_polled(container_of(wait, struct shmcma_cntr, wait));
}

static const struct shmcma_wait_ops wait_ops = { polled, has, found, differs, shmcma_wait_try };

static struct sc_cntr poll_both(struct shmcma_cntr *cntr)
{
	bool all = shmcma_cntr_enter(cntr);
	struct sc_cntr got;
	bool due;

	shmcma_wait_rise(&cntr->wait);
	shmcma_progress_locked(cntr->domain, shmcma_cntr_polled(cntr));
	due = !found(&cntr->wait) && shmcma_yield_is_due(&cntr->wait.yield);
	got = cntr->seen;
	shmcma_cntr_leave(cntr, all);
	if (__builtin_expect(due, 0))
		shmcma_yield_slow(&cntr->wait.yield);
	return got;
}

/* Only errors beyond these end a wait. Relaxed: no other data goes with this number. */
static void know_errors(struct shmcma_cntr *cntr, uint64_t errors)
{
	atomic_store_explicit(&cntr->known_errors, errors, memory_order_relaxed);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	return poll_both(cntr_of(fid)).value;
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	uint64_t errors = poll_both(cntr_of(fid)).errors;

	know_errors(cntr_of(fid), errors);
	return errors;
}

/* Notes a change by the application. fi_poll(3) reports no change of the value by it. */
static void changed_locked(struct shmcma_cntr *cntr, bool value)
{
	if (value)
		cntr->given = read_both(cntr);
	cntr->changes++;
}

/* `sets`: adds the difference to the value, since the lock keeps the word unchanged. */
static int change(struct shmcma_cntr *cntr, uint64_t *word, uint64_t value, bool sets)
{
	shmcma_lock_enter(&cntr->locked);
	sc_cntr_add(word, sets ? value - sc_cntr_read(word) : value);
	changed_locked(cntr, word == &cntr->count.value);
	shmcma_work_run_locked(cntr->domain);
	shmcma_lock_leave(&cntr->locked);
	return 0;
}

SHMCMA_CALL(int, cntr_add, struct fid_cntr *fid, uint64_t value)
{
	return change(cntr_of(fid), &cntr_of(fid)->count.value, value, false);
}

SHMCMA_CALL(int, cntr_adderr, struct fid_cntr *fid, uint64_t value)
{
	atomic_fetch_add_explicit(&cntr_of(fid)->known_errors, value, memory_order_relaxed);
	return change(cntr_of(fid), &cntr_of(fid)->count.errors, value, false);
}

SHMCMA_CALL(int, cntr_set, struct fid_cntr *fid, uint64_t value)
{
	return change(cntr_of(fid), &cntr_of(fid)->count.value, value, true);
}

SHMCMA_CALL(int, cntr_seterr, struct fid_cntr *fid, uint64_t value)
{
	know_errors(cntr_of(fid), value);
	return change(cntr_of(fid), &cntr_of(fid)->count.errors, value, true);
}

/*
 * A counter with FI_WAIT_NONE may be waited for, too. A signal to the process, or space for another send, ends no wait,
 * because there is no error code for it. An error that is unknown to the application ends it, even if it was counted
 * earlier: most errors of one-sided operations are counted in the call that posts.
 */
SHMCMA_CALL(int, cntr_wait, struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct shmcma_cntr *cntr = cntr_of(fid);
	uint64_t known = atomic_load_explicit(&cntr->known_errors, memory_order_relaxed);
	int64_t end = shmcma_wait_end(timeout);
	struct shmcma_patience patience = { 0 };
	bool first = true;

	if (cntr->wait.obj == FI_WAIT_SET)
		return -FI_ENOSYS;
	for (;;) {
		struct sc_cntr now = poll_both(cntr);

		if (now.value >= threshold)
			return 0;
		if (first && now.errors < known) /* they were reset before */
			known = now.errors;
		first = false;
		if (now.errors != known) {
			know_errors(cntr, now.errors);
			return -FI_EAVAIL;
		}
		if (end != INT64_MAX && sc_clock_ns() >= end)
			return -FI_ETIMEDOUT;
		(void)shmcma_wait_rest(&cntr->wait, &now, &patience, end);
	}
}

static int cntr_control(struct fid *fid, int command, void *arg)
{
	struct shmcma_cntr *cntr = container_of(fid, struct shmcma_cntr, fid.fid);

	if (!arg)
		return -FI_EINVAL;
	switch (command) {
	case FI_GETOPSFLAG: /* a counter has no flags */
		*(uint64_t *)arg = 0;
		return 0;
	case FI_SETOPSFLAG:
		return *(uint64_t *)arg ? -FI_EBADFLAGS : 0;
	default:
		return shmcma_wait_control(&cntr->wait, command, arg);
	}
}

/*
 * Deferred work under way counts when it ends, which is not visible here: so a counter that was given to deferred work
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
	shmcma_wait_fini(&cntr->wait);
	shmcma_lock_quit(domain, &cntr->locked);
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

/* These two calls can return no error: they return the counts at the time of fork(2). */
static uint64_t forked_cntr_read(struct fid_cntr *fid)
{
	(void)shmcma_forked();
	return sc_cntr_read(&cntr_of(fid)->count.value);
}

static uint64_t forked_cntr_readerr(struct fid_cntr *fid)
{
	(void)shmcma_forked();
	return sc_cntr_read(&cntr_of(fid)->count.errors);
}

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(union shmcma_ops_cntr), .read = way##cntr_read,                            \
		.readerr = way##cntr_readerr, .add = way##cntr_add, .set = way##cntr_set,                 \
		.wait = way##cntr_wait, .adderr = way##cntr_adderr, .seterr = way##cntr_seterr,           \
		.export_xpu = shmcma_no_export,                                                           \
	}
static union shmcma_ops_cntr cntr_ops = OPS(), forked_ops = OPS(forked_);

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_cntr, fid)->ops = &forked_ops.ops;
	shmcma_wait_forked(&container_of(fid, struct shmcma_cntr, fid.fid)->wait);
}

struct shmcma_cntr *shmcma_cntr_of(struct fid *fid, const struct shmcma_domain *domain)
{
	struct shmcma_cntr *cntr;

	if (!fid || fid->fclass != FI_CLASS_CNTR || fid->ops != &cntr_fid_ops)
		return NULL;
	cntr = container_of(fid, struct shmcma_cntr, fid.fid);
	return cntr->domain == domain ? cntr : NULL;
}

void shmcma_cntr_widen_locked(struct shmcma_cntr *cntr)
{
	shmcma_lock_merge_all_locked(cntr->domain);
	if (cntr->elsewhere)
		return;
	cntr->elsewhere = true;
	shmcma_wait_again_locked(&cntr->locked);
}

struct shmcma_cntr *shmcma_cntr_get_locked(struct fid *fid, struct shmcma_domain *domain)
{
	struct shmcma_cntr *cntr = shmcma_cntr_of(fid, domain);

	if (!cntr)
		return NULL;
	shmcma_cntr_widen_locked(cntr);
	atomic_fetch_add(&cntr->refs, 1);
	return cntr;
}

static int check_attr(const struct shmcma_fabric *fabric, const struct fi_cntr_attr *attr)
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
	return shmcma_wait_check(fabric, attr->wait_obj, attr->wait_set);
}

int shmcma_cntr_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out,
		     void *context)
{
	static const struct fi_cntr_attr defaults;
	const struct fi_cntr_attr *wanted = attr ? attr : &defaults;
	struct shmcma_cntr *cntr;
	int ret;

	ret = check_attr(container_of(fid, struct shmcma_domain, fid)->fabric, wanted);
	if (ret)
		return ret;
	cntr = calloc(1, sizeof(*cntr));
	if (!cntr)
		return -FI_ENOMEM;
	ret = shmcma_wait_init(&cntr->wait, wanted->wait_obj, wanted->wait_set, &wait_ops);
	if (ret) {
		free(cntr);
		return ret;
	}
	cntr->fid.fid = (struct fid){ .fclass = FI_CLASS_CNTR, .context = context, .ops = &cntr_fid_ops };
	cntr->fid.ops = &cntr_ops.ops;
	cntr->domain = container_of(fid, struct shmcma_domain, fid);
	cntr->wait.domain = cntr->domain;
	cntr->wait.locked = &cntr->locked;
	shmcma_lock_join(cntr->domain, &cntr->locked, false);
	atomic_fetch_add(&cntr->domain->refs, 1);
	shmcma_object_add(&cntr->object, &cntr->fid.fid, NULL, forked);
	shmcma_wait_join(&cntr->wait);
	*out = &cntr->fid;
	return 0;
}
