/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work.c: operations that wait until a counter has reached a threshold (fi_trigger(3)), and are posted then.
 *
 * Each counter has a list of the operations that wait for it, sorted by threshold, then in the order of submission.
 * They are posted in that order: an operation that finds no space (-EAGAIN) stays first, and the next progress tries it
 * again. shmcma_work_run_locked() runs after each round of progress and each change of a counter by the application.
 * The next round sees a counter that rises in a data call. If the domain's thread sleeps, and so makes no rounds, the
 * end of the call sees it. A thread of the application that sleeps looks now and then while operations wait (armed.c);
 * one that has slept since before the first of them looks when that is submitted.
 *
 * All calls hold the domain's lock, which is the only one from the first such operation on (lock.h). A waiting
 * operation keeps its counters from being closed (refs). Once it is posted, the core knows the completion counter by
 * its address: see shmcma_cntr.lent.
 */
#include "wait/work.h"

#include <stdlib.h>

/* ---- the lists ------------------------------------------------------------------------------- */

void shmcma_work_insert_locked(struct shmcma_work *work)
{
	struct shmcma_cntr *cntr = work->cntr;
	struct shmcma_work *last = cntr->last_work;
	struct shmcma_work **link = &cntr->works;

	if (!last) {
		cntr->next_trigger = cntr->domain->triggers;
		cntr->domain->triggers = cntr;
	} else if (last->threshold <= work->threshold) {
		link = &last->next;
	}
	while (*link && (*link)->threshold <= work->threshold)
		link = &(*link)->next;
	work->next = *link;
	*link = work;
	if (!work->next)
		cntr->last_work = work;
	atomic_fetch_add(&cntr->refs, 1);
	if (work->done)
		atomic_fetch_add(&work->done->refs, 1);
}

static void remove_locked(struct shmcma_work *work)
{
	struct shmcma_cntr *cntr = work->cntr;
	struct shmcma_work **link = &cntr->works, *before = NULL;

	for (; *link != work; link = &before->next)
		before = *link;
	*link = work->next;
	if (!work->next)
		cntr->last_work = before;
	if (!cntr->works)
		shmcma_list_remove(cntr->domain->triggers, cntr, next_trigger);
	atomic_fetch_sub(&cntr->refs, 1);
	if (work->done)
		atomic_fetch_sub(&work->done->refs, 1);
}

void shmcma_work_free(struct shmcma_work *work)
{
	free(work->iov.bytes);
	free(work->compare.bytes);
	free(work);
}

static void forget_locked(struct shmcma_work *work)
{
	remove_locked(work);
	shmcma_work_free(work);
}

int shmcma_work_forget_all_locked(struct shmcma_domain *domain,
			     bool (*is_meant)(const struct shmcma_work *work, const void *by),
			     const void *by)
{
	struct shmcma_cntr *cntr = domain->triggers;
	int forgotten = 0;

	while (cntr) {
		struct shmcma_cntr *next_cntr = cntr->next_trigger;

		for (struct shmcma_work *work = cntr->works, *next; work; work = next) {
			next = work->next;
			if (!is_meant(work, by))
				continue;
			forget_locked(work);
			forgotten++;
		}
		cntr = next_cntr;
	}
	return forgotten;
}

/* ---- when it is due -------------------------------------------------------------------------- */

/* fi_trigger(3): for deferred work, errors count as well. */
static struct shmcma_work *due_locked(struct shmcma_cntr *cntr)
{
	uint64_t value = sc_cntr_read(&cntr->count.value);
	uint64_t with_errors = value + sc_cntr_read(&cntr->count.errors);

	for (struct shmcma_work *work = cntr->works; work && work->threshold <= with_errors;
	     work = work->next)
		if (work->deferred || work->threshold <= value)
			return work;
	return NULL;
}

/* Nothing has come into a multi-receive buffer that waits, so its error gives it back. */
static void describe_message(const struct shmcma_work *work, struct sc_comp *comp)
{
	if (work->event == SC_EVENT_SEND)
		comp->tag = work->send.tag;
	if (work->event != SC_EVENT_RECV)
		return;
	comp->tag = work->recv.tag;
	if (work->flags & SC_RECV_MULTI)
		comp->flags = SC_COMP_MULTI_DONE;
}

/* Reports an operation that is cancelled or cannot be posted, like any failed operation. */
static void fail_locked(struct shmcma_work *work, int error)
{
	struct shmcma_ep *ep = work->ep;
	struct shmcma_cntr *own = ep->cntrs[work->event];
	struct shmcma_cq *cq = work->event == SC_EVENT_RECV ? ep->rx_cq : ep->tx_cq;
	struct sc_comp comp = { .context = work->context, .cq_flags = work->cq_flags, .err = -error };

	describe_message(work, &comp);
	if (work->counted)
		sc_cntr_add(&work->counted->errors, 1);
	if (own && &own->count != work->counted && !(work->counted && work->flags & SC_SILENT))
		sc_cntr_add(&own->count.errors, 1);
	if (cq)
		sc_comp_ring_put_slow(&cq->queue, &comp);
}

/* Notes a refused post, because it ends no wait of the application (armed.c). */
static int post_locked(struct shmcma_work *work)
{
	const struct sc_ep *core = work->ep ? work->ep->core : NULL;
	uint64_t before = core ? sc_ep_refusals(core) : 0;
	int ret = work->post(work);

	if (core)
		work->ep->work_refusals += sc_ep_refusals(core) - before;
	return ret;
}

/* Returns whether an operation was posted, or has failed. */
static bool run_cntr_locked(struct shmcma_cntr *cntr)
{
	struct shmcma_work *work;
	bool moved = false;

	while ((work = due_locked(cntr))) {
		int ret = post_locked(work);

		if (ret == -EAGAIN)
			break;
		if (ret)
			fail_locked(work, ret);
		forget_locked(work);
		moved = true;
	}
	return moved;
}

/* A posted operation may end at once and raise another's counter: then all counters are looked at again. */
void shmcma_work_run_locked(struct shmcma_domain *domain)
{
	struct shmcma_cntr *cntr = domain->triggers;

	while (cntr) {
		struct shmcma_cntr *next = cntr->next_trigger;

		cntr = run_cntr_locked(cntr) ? domain->triggers : next;
	}
}

bool shmcma_work_is_due_locked(struct shmcma_domain *domain)
{
	for (struct shmcma_cntr *cntr = domain->triggers; cntr; cntr = cntr->next_trigger)
		if (due_locked(cntr))
			return true;
	return false;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

int shmcma_work_cancel_locked(struct shmcma_ep *ep, const void *context)
{
	for (struct shmcma_cntr *cntr = ep->domain->triggers; cntr; cntr = cntr->next_trigger)
		for (struct shmcma_work *work = cntr->works; work; work = work->next) {
			if (work->ep != ep || work->deferred || work->context != context)
				continue;
			fail_locked(work, -ECANCELED);
			forget_locked(work);
			return 0;
		}
	return -FI_ENOENT;
}

static bool is_of_ep(const struct shmcma_work *work, const void *ep)
{
	return work->ep == ep;
}

void shmcma_work_forget_locked(struct shmcma_ep *ep)
{
	shmcma_work_forget_all_locked(ep->domain, is_of_ep, ep);
}
