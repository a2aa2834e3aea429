/* SPDX-License-Identifier: BSD-2-Clause */
/* work.h: operations that wait for a counter (work.c). All calls hold the domain's lock. */
#ifndef SHMCMA_WORK_H
#define SHMCMA_WORK_H

#include "wait/objects.h"

/* A copy of the vector of an operation; for an injected payload also of its bytes. */
struct shmcma_vector {
	struct iovec iov[SC_IOV_MAX];
	void *bytes;
};

struct shmcma_work {
	struct shmcma_work *next; /* shmcma_cntr.works */
	struct shmcma_cntr *cntr; /* the counter that it waits for */
	uint64_t threshold;
	const struct fi_deferred_work *deferred; /* NULL: an operation with FI_TRIGGER */
	struct shmcma_cntr *done;		 /* completion counter, or the one to change; NULL: none */
	int (*post)(struct shmcma_work *work);	 /* negative errno; -EAGAIN: try again later */

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
		uint64_t value; /* of operations on counters */
	};
	struct shmcma_vector iov, compare, result;
	struct sc_remote remote[SC_REMOTE_MAX];
};

/* Adds it to its counter's list, which keeps its counters open. */
void shmcma_work_insert_locked(struct shmcma_work *work);
void shmcma_work_free(struct shmcma_work *work);

/* Forgets the waiting operations of the domain for which `is_meant` says true; returns their number. */
int shmcma_work_forget_all_locked(struct shmcma_domain *domain,
				  bool (*is_meant)(const struct shmcma_work *work, const void *by),
				  const void *by);

/* fi_cancel(): one triggered operation with that context ends with ECANCELED. -FI_ENOENT: there is none. */
int shmcma_work_cancel_locked(struct shmcma_ep *ep, const void *context);

/* Forgets the operations that wait to be posted to an endpoint that closes. */
void shmcma_work_forget_locked(struct shmcma_ep *ep);

/* Posts the operations whose counters have reached their thresholds. */
void shmcma_work_run_locked(struct shmcma_domain *domain);
/* Tells whether a due operation waits because there was no space. */
bool shmcma_work_is_due_locked(struct shmcma_domain *domain);

#endif
