/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * objects.h: the structures of objects that several files use. Each libfabric object is a structure that begins with its
 * fid; one file implements its calls. The core does the work (core.h).
 *
 * Locks (lock.h): a data call or a read of a completion queue or counter holds the lock of its object, unless the
 * domain takes none. Calls that change the ties between objects hold all locks of the domain (shmcma_lock()). "_locked"
 * alone means either: a thread that changes data of the domain holds all of them, a thread that reads it holds any.
 *
 * Order: poll set, wait set; the domain's common lock; its others by address; address vector, event queue, watcher
 * (watcher.c); locks of the core. A data call takes one lock of the domain.
 */
#ifndef SHMCMA_OBJECTS_H
#define SHMCMA_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <shmcma/core.h>
#include "base/newer.h"
#include "base/object.h"
#include "base/provider.h"
#include "base/yield.h"
#include "wait/waitfd.h"

struct shmcma_cntr_owner;
struct shmcma_cq_owner;
struct shmcma_domain;
struct shmcma_ep;
struct shmcma_eq;
struct shmcma_locked;
struct shmcma_rx_entry;
struct shmcma_srx_owner;
struct shmcma_wait;
struct shmcma_watcher;

/* Counts the objects bound to an object; fi_close() returns -FI_EBUSY while it is > 0. */
typedef atomic_int shmcma_refs;

/*
 * Access to words that fi_control() and fi_setopt() change at any time, while data calls of other threads
 * (FI_THREAD_SAFE) read them without a lock. Relaxed: each word is independent; its old or new value will do.
 */
#define shmcma_now(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define shmcma_set(word, value) atomic_store_explicit(&(word), value, memory_order_relaxed)

/* ---- lists: the first element, and the member of each that points to the next ------------------ */

#define shmcma_list_remove(first, element, next)                                                          \
	do {                                                                                              \
		__typeof__(first) *link_ = &(first);                                                      \
                                                                                                          \
		while (*link_ && *link_ != (element))                                                     \
			link_ = &(*link_)->next;                                                          \
		if (*link_)                                                                               \
			*link_ = (element)->next;                                                         \
	} while (0)

#define shmcma_list_append(first, elements, next)                                                         \
	do {                                                                                              \
		__typeof__(first) *link_ = &(first);                                                      \
                                                                                                          \
		while (*link_)                                                                            \
			link_ = &(*link_)->next;                                                          \
		*link_ = (elements);                                                                      \
	} while (0)

/* ---- locks (lock.c) ------------------------------------------------------------------------ */

/* It stays a lock until the domain is closed, because a thread that has read it may still take it. */
struct shmcma_lock {
	pthread_mutex_t mutex;
	bool taken; /* data calls take it; the same for all of a domain, never changed */
	struct shmcma_domain *domain;
	struct shmcma_wait *armed; /* objects for which a thread sleeps, or is about to (armed.c) */
	/* under the common lock */
	struct shmcma_locked *objects;
	struct shmcma_lock *next; /* shmcma_locks.others by address, or .spare */
	struct shmcma_lock *prev; /* of others */
	bool held;		  /* around fork(2) */
};

/* Embedded in each object that has a lock. */
struct shmcma_locked {
	struct shmcma_lock *_Atomic lock; /* changed with the old and the new lock held */
	struct shmcma_locked *next;	  /* shmcma_lock.objects */
	struct shmcma_locked **link;	  /* the link that points to it there */
};

/* Called when a lock under which an object is armed is released (armed.c). */
struct shmcma_unlock_hook {
	/*
	 * Called before the lock is released. Adds to `owed` the signals that may wait for the application; `give`
	 * gives them without a lock.
	 */
	void (*look_locked)(struct shmcma_lock *lock, struct shmcma_wait **owed);
	void (*give)(struct shmcma_wait *owed);
};

/* The locks of a domain. */
struct shmcma_locks {
	const struct shmcma_unlock_hook *hook;
	struct shmcma_lock common;   /* a thread that takes all takes it first */
	struct shmcma_lock *others;  /* under the common lock, like the following fields */
	struct shmcma_lock *near;    /* of others: where the last one came or went; NULL: the first */
	struct shmcma_lock *spare;   /* locks without objects */
	bool coarse;		     /* for good: the domain has only the common lock */
	struct shmcma_locked itself; /* for data of the domain: has the common lock */
	struct shmcma_wait *owed; /* signals that a thread with all locks gives after it releases them */
};

/* ---- waiting ------------------------------------------------------------------------------- */

/* The calls by which a wait asks its object, under the object's lock. */
struct shmcma_wait_ops {
	/* returns the endpoints that a look at the object polls */
	const struct shmcma_polled *(*polled)(const struct shmcma_wait *wait);
	bool (*has)(const struct shmcma_wait *wait); /* whether there is something to read or to report */
	bool (*found)(struct shmcma_wait *wait);     /* the same; the call itself reports it */
	/* whether another thread knows something newer than `known`, the newest when this wait began */
	bool (*differs)(const struct shmcma_wait *wait, const void *known);
	/* fi_trywait(); without the object's lock. `alone`: it asks for no other object */
	int (*try)(struct shmcma_wait *wait, bool alone);
};

/* Embedded in the object that is waited for. */
struct shmcma_wait {
	const struct shmcma_wait_ops *ops;
	enum fi_wait_obj obj;
	struct shmcma_domain *domain; /* of queue, counter, or the domain's thread; else NULL */
	struct shmcma_locked *locked; /* lock of the object; else NULL */
	uint32_t futex;		      /* changed by each signal */
	atomic_bool listens;	      /* watchers signal it, once */
	atomic_bool held; /* a watcher has not signalled it yet: a thread holds the application's mutex */
	/* fi_trywait() has succeeded, and no signal since: a thread may sleep on that */
	atomic_bool given;
	struct shmcma_pipe pipe; /* FI_WAIT_FD, FI_WAIT_POLLFD */
	pthread_mutex_t mutex;	 /* FI_WAIT_MUTEX_COND: for the application to wait with */
	pthread_cond_t cond;
	/* threads that sleep in calls, or are about to; of a queue or counter under its lock */
	atomic_int sleepers;
	/* of a set: counts events for all its waiters, of which one may have consumed the event */
	atomic_uint events;
	struct shmcma_wait_set *set; /* FI_WAIT_SET */
	struct shmcma_wait *next;    /* in the set, under its lock */

	/* under its lock */
	bool watched; /* watchers may know it, until the object is closed */
	bool eager;   /* the last sleep behind fi_trywait() was brief */
	uint64_t refusals; /* the refused posts of its endpoints for which a wait has ended already */
	uint64_t asked;	   /* the refused posts when fi_trywait() succeeded */
	int64_t tried; /* when fi_trywait() succeeded, ns of CLOCK_MONOTONIC; 0: no sleep since the last call */
	bool armed;
	bool again;			/* armed, and signalled at the next look in any case */
	struct shmcma_yield yield;	/* looks at the object that found nothing */
	struct shmcma_wait *next_armed; /* shmcma_lock.armed */

	/* a signal that no watcher can give */
	atomic_bool owed;	       /* in the list of a thread that has not begun to give it */
	struct shmcma_wait *next_owed; /* in that list */
	atomic_int giving;	       /* threads that have it in their list, or are giving it */
	atomic_bool closes;	       /* it closes, so signals are given up */
};

/* FI_WAIT_SET: objects of one fabric that share a wait object (waitset.c). */
struct shmcma_wait_set {
	struct fid_wait fid;
	struct shmcma_object object;
	struct shmcma_fabric *fabric;
	shmcma_refs
		refs; /* its members, each until its close is over: a watcher may signal it meanwhile */
	struct shmcma_wait wait;
	pthread_mutex_t lock;
	struct shmcma_wait *members;
};

/* ---- progress ------------------------------------------------------------------------------ */

/* Enabled endpoints, each once. Changed with all locks of the domain held. */
struct shmcma_polled {
	struct shmcma_ep **eps;
	size_t count, capacity;
};

/* The thread of a domain with automatic progress. */
struct shmcma_progress {
	bool wanted;		 /* set when the domain is opened, never changed */
	uint64_t polls;		 /* polls by the application; under the domain's lock */
	struct shmcma_wait wait; /* of the domain: signalled for work begun while the thread sleeps */
	atomic_bool stop;
	/* the thread sleeps on words of endpoints, or is about to; set under the domain's lock */
	atomic_bool asleep;
	/* only progress.c uses the rest */
	/* held while one thread starts it and other threads wait to enable an endpoint; free in a child of fork(2) */
	pthread_mutex_t starting;
	bool running;
	pthread_t thread;
	struct shmcma_progress *next;
};

/* ---- objects ------------------------------------------------------------------------------- */

struct shmcma_fabric {
	struct fid_fabric fid;
	struct shmcma_object object;
	shmcma_refs refs;
	atomic_bool is_peer; /* another provider has opened it for itself (FI_PEER) */
};

struct shmcma_domain {
	struct fid_domain fid;
	struct shmcma_fabric *fabric;
	shmcma_refs refs;
	struct shmcma_eq *_Atomic eq; /* see shmcma_domain_eq() */
	struct shmcma_locks locks;
	struct shmcma_polled enabled; /* all enabled endpoints */
	struct shmcma_polled silent;  /* enabled endpoints with neither queue nor counter */
	struct shmcma_ep *lent;	      /* receive contexts that nobody closes, by lent_next (shared.c) */
	struct shmcma_progress progress;
	struct shmcma_coll *colls;    /* the groups of endpoints with FI_COLLECTIVE */
	atomic_int visitors;	      /* threads in reads of event queues that make progress here (eq.c) */
	struct shmcma_cntr *triggers; /* counters for which operations wait */
	struct shmcma_cntr *retired;  /* closed counters that the core may still add to */
	struct sc_cntr uncounted;     /* for deferred work without a counter of its own */
	uint64_t caps;
	int mr_mode; /* FI_MR_*, in the bits of API 1.5 and later */
	struct sc_regtab *regtab;
	uint32_t api_version;
	struct shmcma_object object;
};

/*
 * Returns the event queue of objects without their own (fi_domain_bind), or NULL. It may be bound at any time, also
 * while locks are held, and stays until the domain is closed: a thread that has found it may use it.
 */
static inline struct shmcma_eq *shmcma_domain_eq(const struct shmcma_domain *domain)
{
	return atomic_load_explicit(&domain->eq, memory_order_acquire);
}

/* In sc_comp.cq_flags: `context` is an entry of the provider that posts the receives (peersrx.c). */
#define SHMCMA_COMP_ENTRY (1u << 31)

/* Tells whether another provider uses the domain (FI_PEER); else it must open none of the objects of fi_peer(3) here. */
static inline bool shmcma_domain_is_peer(const struct shmcma_domain *domain)
{
	return domain->caps & FI_PEER;
}

/* A completion queue (cq.c). */
struct shmcma_cq {
	struct fid_cq fid;
	struct shmcma_domain *domain;
	struct shmcma_cq_owner *owner; /* with FI_PEER: another provider's queue (peercq.c) */
	struct shmcma_locked locked;
	shmcma_refs refs;
	struct sc_comp_ring queue;
	enum fi_cq_format format;
	struct shmcma_polled polled; /* the endpoints that a read of the queue polls */
	struct shmcma_wait wait;
	atomic_uint signals;	   /* calls of fi_cq_signal(); by any thread, without lock */
	atomic_uint heard;	   /* the newest signal for which a call has returned */
	bool overrun_reported;	   /* event queues know that completions were lost */
	uint32_t full_reads;	   /* reads that found it not empty */
	/* FI_SOURCE_ERR: the last unknown address, for a reader that gives no space for it */
	char stranger[SC_ADDR_SIZE];
	struct shmcma_object object;
};

/* A counter (cntr.c). */
struct shmcma_cntr {
	struct fid_cntr fid;
	struct shmcma_domain *domain;
	struct shmcma_cntr_owner *owner; /* with FI_PEER: another provider's counter (peercntr.c) */
	struct shmcma_locked locked;
	shmcma_refs refs;
	struct sc_cntr count;	     /* written under the counter's lock */
	struct shmcma_polled polled; /* polled by a read, unless it counts `elsewhere` */
	bool elsewhere;		     /* any endpoint of the domain may count here */
	struct shmcma_wait wait;
	struct sc_cntr seen;		  /* value that the application has seen; under its lock */
	_Atomic uint64_t known_errors;	  /* the errors that the application knows of */
	struct sc_cntr given;		  /* the value at the application's last change, */
	uint64_t changes;		  /* and the number of its changes */
	struct shmcma_work *works;	  /* operations that wait for it (work.c) */
	struct shmcma_work *last_work;	  /* the last one of `works`, where most are added */
	struct shmcma_cntr *next_trigger; /* shmcma_domain.triggers, while `works` is not empty */
	bool lent;			  /* operations under way may count here after fi_close() */
	struct shmcma_cntr *next_retired; /* shmcma_domain.retired */
	struct shmcma_object object;
};

struct shmcma_stx; /* shared.c */
struct shmcma_sep; /* sep.c */

/*
 * An endpoint, which it shares with its aliases: an alias is another fid with its own flags. The kind by the fid's
 * class:
 *
 *   FI_CLASS_EP                an endpoint
 *   FI_CLASS_TX_CTX, _RX_CTX   a context of a scalable endpoint: it can only send, or only receive
 *   FI_CLASS_SEP               a scalable endpoint: a name for its contexts (sep.c); never has a core
 *   FI_CLASS_SRX_CTX           a shared receive context: a receive queue and no core (shared.c)
 */
struct shmcma_ep {
	struct sc_ep *core; /* NULL until fi_enable */
	struct sc_rxq *rxq; /* takes the posted receives; NULL until fi_enable */
	struct shmcma_locked locked;
	struct shmcma_ep *namer; /* names sources by its address vector: itself; NULL: see shared.c */
	struct shmcma_domain *domain;
	struct shmcma_av *av;
	struct shmcma_ep *av_next;
	struct shmcma_eq *eq;
	struct shmcma_cq *tx_cq, *rx_cq;
	struct shmcma_cntr *cntrs[SC_EVENTS];
	bool tx_selective;	   /* FI_SELECTIVE_COMPLETION, for sends and receives */
	_Atomic bool rx_selective; /* shmcma_now() */
	/* peers by fi_addr, rotated by rx_ctx_bits, a reference each; NULL: not looked up yet (shmcma_ep_peer()) */
	struct sc_peer **peers;
	size_t peer_count;
	unsigned int rx_ctx_bits;	 /* of the address vector */
	uint64_t caps, tx_caps, rx_caps; /* tx_caps, rx_caps: all of caps unless an attribute narrows it */
	uint64_t tx_order, tx_comp_order, rx_comp_order; /* FI_ORDER_* of messages, of completions */
	size_t tx_size, rx_size;
	_Atomic size_t multi_min; /* shmcma_now() */
	_Atomic size_t
		sizes[SHMCMA_OPT_SIZES]; /* shmcma_now(): set by options, see option.c; 0: not set */
	struct shmcma_coll *coll;	 /* with FI_COLLECTIVE, once enabled (group.c) */
	char name[SC_ADDR_SIZE];	 /* its service name; empty: none */
	char *given; /* the text that it was named by, where any text is a name (shmcma_module); or NULL */
	struct shmcma_watcher *watcher; /* watcher.c's, NULL: none */
	uint64_t work_refusals;		/* of the core's refused posts, those of triggered operations */
	shmcma_refs refs;		/* its aliases, contexts, endpoints that share it */
	struct shmcma_ep_fid *fids;	/* the endpoint itself, then its aliases, linked by next */
	struct shmcma_sep *sep;		/* of a scalable endpoint and of its contexts; else NULL */
	uint16_t index;			/* of a context: its number in the scalable endpoint's addresses */
	bool shares_tx, shares_rx;	/* FI_SHARED_CONTEXT: must be bound to one */
	struct shmcma_stx *stx;
	struct shmcma_ep *stx_next; /* shmcma_stx.users */
	struct shmcma_ep *srx;
	bool ends_srx;		    /* it was the last endpoint of a closed context */
	struct shmcma_ep *srx_next; /* the enabled endpoints of one, from its `namer` on */

	/* of a shared receive context with FI_PEER (peersrx.c); else NULL, and unused */
	struct shmcma_srx_owner *owner; /* another provider's receive context, which posts the receives */
	struct shmcma_srx_owner
		*lent;	  /* copy of a context that the other provider itself binds; NULL: none */
	const struct fid *lender; /* that context */
	struct shmcma_ep *lent_next;
	bool closed;	  /* its last endpoint ends it */
	bool owner_ended; /* the owner and its entries may be gone: nothing reads or calls them */
	struct shmcma_rx_entry *unmatched; /* for a message that has found no receive, until it waits */
	bool unmatched_tagged;
	bool has_strangers; /* messages may wait whose senders were in no address vector */
};

/* Tells whether another provider posts the receives of the endpoint. Only a read of the other's objects may poll it. */
static inline bool shmcma_ep_is_matched(const struct shmcma_ep *ep)
{
	return ep->srx && ep->srx->owner;
}

/* Returns the event queue of the endpoint. An enabled endpoint keeps its event queue. */
static inline struct shmcma_eq *shmcma_ep_eq(const struct shmcma_ep *ep)
{
	return ep->eq ? ep->eq : shmcma_domain_eq(ep->domain);
}

/* The part of an endpoint that works in groups. */
struct shmcma_coll {
	struct shmcma_ep *ep;
	struct sc_ep *core;
	struct sc_comp_ring done;	/* completions of its transfers */
	bool begun;			/* a message has begun since the last poll */
	uint64_t refusals;		/* refused messages before that poll */
	struct shmcma_watcher *watcher; /* watcher.c's, NULL: none */
	struct shmcma_wait *join_wait;	/* of the event queue, once slept on for a fi_join */
	struct shmcma_group *groups;
	struct shmcma_collop *ops;
	uint32_t last_id;
	struct shmcma_joins *joins; /* join.c's: how often each set has been joined */
	size_t joins_count, joins_capacity;
	int64_t again_at; /* when broken groups try again what they could not send or receive; 0: nothing */
	int (*progress)(struct shmcma_coll *coll); /* returns 0 if there was nothing to do */
	struct shmcma_coll *next;		   /* shmcma_domain.colls */
};

/* A fid of the application: the endpoint itself or an alias (endpoint.c). */
struct shmcma_ep_fid {
	struct fid_ep fid;
	struct shmcma_ep *ep;
	struct shmcma_domain *domain; /* of ep */
	/* Flags that fi_send, fi_tsend... pass to the core, from op flags and selective completion. */
	_Atomic uint32_t send_flags, recv_flags;   /* shmcma_now() */
	_Atomic uint32_t trecv_flags;		   /* the same for fi_trecv... */
	_Atomic uint64_t tx_op_flags, rx_op_flags; /* from the attributes; an alias has its own */
	struct shmcma_ep_fid *next;		   /* shmcma_ep.fids */
	struct shmcma_object object;
};

static inline struct shmcma_ep_fid *shmcma_ep_of(struct fid_ep *ep)
{
	return container_of(ep, struct shmcma_ep_fid, fid);
}

#endif
