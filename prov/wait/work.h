/* SPDX-License-Identifier: BSD-2-Clause */
/* work.h: operations that wait for a counter (work.c). All with the domain's lock. */
#ifndef SHMCMA_WORK_H
#define SHMCMA_WORK_H

#include "wait/state.h"

/* Elements that an operation names, copied; with their bytes if these are injected. */
struct shmcma_vector {
	struct iovec iov[SC_IOV_MAX];
	void *bytes;
};

struct shmcma_work {
	struct shmcma_work *next; /* shmcma_cntr.works */
	struct shmcma_cntr *cntr; /* which it waits for */
	uint64_t threshold;
	const struct fi_deferred_work *deferred; /* NULL: an operation with FI_TRIGGER */
	struct shmcma_cntr *done;		 /* completion counter, or the one to add to; NULL: none */
	int (*post)(struct shmcma_work *work);	 /* negative errno; -EAGAIN: again later */

	/* operations of an endpoint */
	struct shmcma_ep *ep;
	fi_addr_t peer;
	enum sc_event event;
	void *context;
	struct sc_cntr *counted; /* see core.h */
	uint32_t cq_flags;
	uint32_t flags; /* SC_* */
	union {
		struct sc_send send;
		struct sc_recv recv;
		struct sc_rma rma;
		struct sc_atomic atomic;
		uint64_t value; /* of counter operations */
	};
	struct shmcma_vector iov, compare, result;
	struct sc_remote remote[SC_REMOTE_MAX];
};

/* It waits, and keeps its counters open; its own memory goes with it. */
void shmcma_work_insert_locked(struct shmcma_work *work);
void shmcma_work_free(struct shmcma_work *work);

/* Forgets the waiting operations of the domain for which `is_meant` says true; returns their number. */
int shmcma_work_forget_all_locked(struct shmcma_domain *domain,
				  bool (*is_meant)(const struct shmcma_work *work, const void *by),
				  const void *by);

/* fi_cancel(): one triggered operation with that context ends with ECANCELED. -FI_ENOENT: there is none. */
int shmcma_work_cancel_locked(struct shmcma_ep *ep, const void *context);

/* The endpoint closes: operations that wait to be posted to it are forgotten. */
void shmcma_work_forget_locked(struct shmcma_ep *ep);

/* Post what waits for counters that have got there by now. */
void shmcma_work_run_locked(struct shmcma_domain *domain);
/* Is there something that could not be posted, for want of room? */
bool shmcma_work_is_due_locked(struct shmcma_domain *domain);

#endif
