/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shmcma.h: the provider's objects. Each libfabric object is a structure that begins with its fid;
 * one file each implements its calls. The work is the core's (core.h).
 *
 * Locks (lock.h): every data call and every read of a completion queue or counter holds the lock of its
 * object, which objects that have to do with each other share, if the threading model asks for locks, or if a
 * thread of ours makes progress. Calls that change the ties between objects hold all locks of the domain
 * (shmcma_lock()); "_locked" alone means either: a thread changes data of the domain with all of them held, and reads
 * it with any.
 *
 * Order: poll set, wait set; the domain's common lock; its others by address; address vector, event
 * queue, watcher (wait.c); those of the core. A data call takes one of the domain's.
 */
#ifndef SHMCMA_PROV_H
#define SHMCMA_PROV_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <shmcma/core.h>
#include "base/object.h"
#include "wait/lock.h"
#include "wait/progress.h"
#include "wait/wait.h"
#include "base/yield.h"

#define SHMCMA_NAME "shmcma"
#define SHMCMA_VERSION FI_VERSION(0, 1)
#define SHMCMA_IOV_LIMIT 8
#define SHMCMA_RMA_IOV_LIMIT SC_REMOTE_MAX
#define SHMCMA_INJECT_SIZE SC_INJECT_MAX
#define SHMCMA_DEFAULT_SIZE 1024 /* tx and rx size when the hints do not say */
#define SHMCMA_MAX_SIZE 65536
#define SHMCMA_CQ_DATA_SIZE 8
#define SHMCMA_CONTEXTS 256 /* of a scalable endpoint, each kind */
/* Of the registration modes that an application is ready for, those that are made use of. */
#define SHMCMA_MR_MODES (FI_MR_VIRT_ADDR | FI_MR_PROV_KEY)
/* Orders of RMA and atomics, each among themselves and against each other. */
#define SHMCMA_MEMORY_ORDER (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)
#define SHMCMA_MULTI_MIN 64 /* FI_OPT_MIN_MULTI_RECV unless set */

extern struct fi_provider shmcma_provider;

#define shmcma_warn(subsys, ...) FI_WARN(&shmcma_provider, subsys, __VA_ARGS__)
#define shmcma_info(subsys, ...) FI_INFO(&shmcma_provider, subsys, __VA_ARGS__)

/* The provider's parameters, read once (init.c). */
struct shmcma_env {
	struct sc_config config; /* FI_SHMCMA_CMA, RMA, and the sizes */
	int remote_comm;	 /* FI_SHMCMA_REMOTE_COMM */
	bool calibrated;	 /* FI_SHMCMA_CALIBRATE, and FI_SHMCMA_EAGER_MAX is not given */
	enum shmcma_yield_mode yield; /* FI_SHMCMA_YIELD */
};
extern struct shmcma_env shmcma_env;

/* Puts the measured costs of this machine into the parameters. Once, before the first endpoint. */
void shmcma_calibrate(void);

/* The process that has made this call is another than that which has loaded the provider (init.c). */
void shmcma_loaded_here(void);

/* Is this provider among the names of a list such as "a;b" or "a,b"? (init.c) */
bool shmcma_is_listed(const char *list);

/*
 * libfabric's code for an error of the core (negative, both): the core speaks errno, of which libfabric
 * has not all.
 */
static inline int shmcma_error(int error)
{
	switch (error) {
	case -EUSERS:
		return -FI_EBUSY; /* all slots of the peer are taken; libfabric has no EUSERS */
	case -EPROTO:
		return -FI_ECONNABORTED; /* the peer breaks the protocol, or is of another version */
	case -SC_EFAULT_RECEIVER:
		return -FI_EFAULT;
	case -SC_EIO_INITIATOR:
		return -FI_EIO;
	case -ENOKEY:
		return -FI_ENOKEY; /* another number than errno's */
	default:
		return error;
	}
}

/* A reference count of an object that others are bound to; closing it while > 0 gives -FI_EBUSY. */
typedef atomic_int shmcma_refs;

struct shmcma_fabric {
	struct fid_fabric fid;
	struct shmcma_object object;
	shmcma_refs refs;
};

struct shmcma_domain {
	struct fid_domain fid;
	struct shmcma_fabric *fabric;
	shmcma_refs refs;
	struct shmcma_eq *_Atomic eq; /* see shmcma_domain_eq() */
	enum fi_threading threading;
	struct shmcma_locks locks;
	struct shmcma_polled enabled; /* all enabled endpoints */
	struct shmcma_polled silent;  /* of these, those with neither queue nor counter */
	struct shmcma_progress progress;
	struct shmcma_coll *colls;    /* endpoints that have groups, or may */
	atomic_int visitors;	      /* threads in reads of event queues that make progress here (eq.c) */
	struct shmcma_cntr *triggers; /* counters that operations wait for */
	struct shmcma_cntr *retired;  /* closed counters that the core may count in yet */
	struct sc_cntr uncounted;     /* deferred work without a counter of its own */
	uint64_t caps;
	int mr_mode; /* FI_MR_*, in the bits of API 1.5 and later */
	struct sc_regtab *regtab;
	uint32_t api_version;
	struct shmcma_object object;
};

/* fi_ops_mr of every domain, and fi_mr_map_raw (mr.c). */
extern struct fi_ops_mr shmcma_mr_ops;
int shmcma_mr_map_raw(const struct fi_mr_map_raw *map);

struct shmcma_eq; /* eq.c */

/*
 * fi_domain_bind: the event queue of objects that have none of their own. NULL: none yet. It may come at any time, also
 * while locks are held, and is the domain's then until it is closed: a thread that has found it may go on with it.
 */
static inline struct shmcma_eq *shmcma_domain_eq(const struct shmcma_domain *domain)
{
	return atomic_load_explicit(&domain->eq, memory_order_acquire);
}

/* An event of another object: copied into the queue (eq.c). -FI_ENOMEM. */
int shmcma_eq_put(struct shmcma_eq *eq, uint32_t event, const struct fi_eq_entry *entry);
int shmcma_eq_put_err(struct shmcma_eq *eq, const struct fi_eq_err_entry *entry);
/* fi_eq_open's fid, for binding: the object of that fid, counted (refs + 1), or NULL if it is no EQ. */
struct shmcma_eq *shmcma_eq_get(struct fid *fid);
void shmcma_eq_put_ref(struct shmcma_eq *eq);
/* fi_trywait: 0 when the queue is empty, so that its wait object may be slept on, else -FI_EAGAIN. */
int shmcma_eq_trywait(struct fid *fid);
/*
 * fi_join under way: reading the queue makes progress for it. Embedded; with the lock of the endpoint's domain.
 */
struct shmcma_joining {
	struct shmcma_domain *domain; /* NULL: not under way */
	struct shmcma_joining *next;  /* the queue's, under its lock */
};
/* -FI_EAGAIN: not now. */
int shmcma_eq_join_begin(struct shmcma_eq *eq, struct shmcma_coll *coll, struct shmcma_joining *joining);
/* It has ended: with FI_JOIN_COMPLETE, or the entry's error. */
void shmcma_eq_join_report(struct shmcma_eq *eq, struct shmcma_coll *coll,
			   const struct fi_eq_err_entry *entry);
void shmcma_eq_join_end(struct shmcma_eq *eq, struct shmcma_joining *joining);

/* In a child that has inherited it: nobody waits there. */
void shmcma_eq_forked(struct fid *fid);

/*
 * An address vector (av.c). fi_addr_t is the index of the entry in both types. Entries are never moved
 * to another index, nor in memory; a removed index is reused by a later insertion.
 */
struct shmcma_av_entry {
	char address[SC_ADDR_SIZE]; /* endpoint form; empty: removed */
	char inserted
		[SC_ADDR_SIZE]; /* as the application gave it (a service keeps its form): fi_av_lookup */
	uint64_t user;		/* FI_AV_USER_ID: what completions report; else the entry's own index */
	uint32_t next;		/* next of the same hash bucket */
};

struct shmcma_av {
	struct fid_av fid;
	struct shmcma_domain *domain;
	shmcma_refs refs;
	struct shmcma_eq *eq;
	enum fi_av_type type;
	uint64_t flags;
	unsigned int
		rx_ctx_bits; /* highest bits of an fi_addr_t: the receive context, see shmcma_ep_peer() */
	struct sc_directory *shared; /* a named one: what other processes see of it; else NULL */
	pthread_mutex_t lock;	     /* only av.c uses the rest, under it */
	struct shmcma_av_entry **chunks;
	size_t chunk_count;
	size_t count, live; /* indices handed out so far; of those, not removed */
	uint32_t *holes;    /* heap of indices below count that are free, lowest on top */
	size_t hole_count;
	uint32_t *buckets; /* hash of the live entries by address */
	size_t bucket_mask;
	struct shmcma_ep *eps; /* bound endpoints, linked by av_next; under all locks of the domain */
	struct shmcma_object object;
};

/*
 * Address of fi_addr, or NULL if there is no such entry. The memory stays valid until the vector is
 * closed, its content until fi_addr is removed.
 */
const char *shmcma_av_address(struct shmcma_av *av, fi_addr_t fi_addr);
/* Addresses that have been handed out: one more than the highest. */
size_t shmcma_av_count(struct shmcma_av *av);
/*
 * How a completion names the sender with that address (endpoint form), be it any context of the endpoint: the lowest fi_addr it was inserted
 * as, or the identifier given with FI_AV_USER_ID; FI_ADDR_NOTAVAIL if it was not inserted.
 */
fi_addr_t shmcma_av_find(struct shmcma_av *av, const char *address);
/* Is it, or another context's of that endpoint, in the vector? */
bool shmcma_av_has(struct shmcma_av *av, const char *address);

/* A completion queue (cq.c). */
struct shmcma_cq {
	struct fid_cq fid;
	struct shmcma_domain *domain;
	struct shmcma_locked locked;
	shmcma_refs refs;
	struct sc_comp_ring queue;
	enum fi_cq_format format;
	struct shmcma_polled polled; /* when this queue is read */
	struct shmcma_wait wait;
	atomic_uint signals;	     /* of fi_cq_signal(); by any thread, without lock */
	atomic_uint heard;	     /* the newest signal that a call has returned for */
	bool overrun_told;	     /* event queues know that completions were lost */
	uint32_t full_reads;	     /* that found it not empty */
	struct shmcma_yield yield;   /* reads that found nothing */
	char stranger
		[SC_ADDR_SIZE]; /* FI_SOURCE_ERR: the last one's address, for a reader without room for it */
	struct shmcma_object object;
};

/* Completions in the queue, or an error: fi_cq_read() has something to say. Under the queue's lock. */
bool shmcma_cq_has_entry(const struct shmcma_cq *cq);
/* Is there something to read, or to be told of? `found`: that the application is told of now. */
bool shmcma_cq_has(const struct shmcma_cq *cq);
bool shmcma_cq_found(struct shmcma_cq *cq);
/* Has there been a signal that a wait, which began when `known` was the newest heard, does not know of? */
bool shmcma_cq_differs(const struct shmcma_cq *cq, const unsigned int *known);

/* The endpoint is polled no more, for its peers are about to go; completions stay, with unknown source. */
void shmcma_cq_del_ep(struct shmcma_cq *cq, struct shmcma_ep *ep);

/* A counter (cntr.c). */
struct shmcma_cntr {
	struct fid_cntr fid;
	struct shmcma_domain *domain;
	struct shmcma_locked locked;
	shmcma_refs refs;
	struct sc_cntr count;	     /* written under the counter's lock */
	struct shmcma_polled polled; /* when this counter is read, unless it counts `elsewhere` */
	bool elsewhere;		     /* it may count on any endpoint of the domain */
	struct shmcma_wait wait;
	struct sc_cntr told;	   /* value that the application has seen; under its lock */
	struct shmcma_yield yield; /* reads that found nothing */
	_Atomic uint64_t known_errors; /* of its errors those that the application knows of */
	struct sc_cntr given;	   /* its value when the application changed it last, */
	uint64_t changes;	   /* so many times */
	struct shmcma_work *works; /* wait for it (trigger.c) */
	struct shmcma_cntr *next_trigger; /* shmcma_domain.triggers, while there are any */
	bool lent;			  /* operations under way may count here after fi_close() */
	struct shmcma_cntr *next_retired; /* shmcma_domain.retired */
	struct shmcma_object object;
};

/* The counter of that fid if it is one of this domain, else NULL. */
struct shmcma_cntr *shmcma_cntr_of(struct fid *fid, const struct shmcma_domain *domain);
/*
 * For something other than an endpoint, such as registered memory: the counter, counted (refs + 1) until it
 * is put back, or NULL. Under all locks of the domain, which are one from then on.
 */
struct shmcma_cntr *shmcma_cntr_get_locked(struct fid *fid, struct shmcma_domain *domain);
void shmcma_cntr_put(struct shmcma_cntr *cntr);
/* The endpoints that a read of the counter polls. */
const struct shmcma_polled *shmcma_cntr_polled(const struct shmcma_cntr *cntr);
/*
 * Take its lock, or all of the domain's if all endpoints are polled when it is read; true: all, which is to
 * be said again when they are let go.
 */
bool shmcma_cntr_enter(struct shmcma_cntr *cntr);
void shmcma_cntr_leave(struct shmcma_cntr *cntr, bool all);
/* Is it another than that by now? With its lock, as what follows. */
bool shmcma_cntr_differs(const struct shmcma_cntr *cntr, const struct sc_cntr *known);
/* Has it changed since the application last looked? `found`: it is told of now. */
bool shmcma_cntr_has(const struct shmcma_cntr *cntr);
bool shmcma_cntr_found(struct shmcma_cntr *cntr);
/* The domain closes: those that were kept for operations under way. */
void shmcma_cntr_free_retired(struct shmcma_domain *domain);

/*
 * Access to words that fi_control() and fi_setopt() change at any time, and that data calls read before they have a
 * lock, in other threads with FI_THREAD_SAFE. Relaxed: each is a value of its own, and either will do.
 */
#define shmcma_now(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define shmcma_set(word, value) atomic_store_explicit(&(word), value, memory_order_relaxed)

struct shmcma_stx; /* shared.c */
struct shmcma_sep; /* sep.c */

/*
 * The structure that an endpoint and its aliases share: an alias is another fid with flags of its own. The fid's class
 * tells what it is:
 *
 *   FI_CLASS_EP                an endpoint
 *   FI_CLASS_TX_CTX, _RX_CTX   a context of a scalable endpoint: one that can do nothing but send, or receive
 *   FI_CLASS_SEP               a scalable endpoint: a name for its contexts (sep.c); never has a core
 *   FI_CLASS_SRX_CTX           a shared receive context: a receive queue and no core (shared.c)
 */
struct shmcma_ep {
	struct sc_ep *core;	 /* NULL until fi_enable */
	struct sc_rxq *rxq;	 /* where receives are posted; NULL likewise */
	struct shmcma_locked locked;
	struct shmcma_ep *namer; /* its address vector names sources: itself; NULL: see shared.c */
	struct shmcma_domain *domain;
	struct shmcma_av *av;
	struct shmcma_ep *av_next;
	struct shmcma_eq *eq;
	struct shmcma_cq *tx_cq, *rx_cq;
	struct shmcma_cntr *cntrs[SC_EVENTS];
	bool tx_selective;	   /* FI_SELECTIVE_COMPLETION; */
	_Atomic bool rx_selective; /* of a shared context also by those that are bound to it: shmcma_now() */
	/* peers by fi_addr, turned by rx_ctx_bits, a reference each; NULL: not looked up yet (shmcma_ep_peer()) */
	struct sc_peer **peers;
	size_t peer_count;
	unsigned int rx_ctx_bits; /* of the address vector */
	/* peers whose sc_peer_user() holds what completions call them: their addresses are in the vector, so they stay */
	struct sc_peer **named;
	size_t named_count, named_capacity;
	uint64_t caps, tx_caps, rx_caps; /* tx_caps, rx_caps: all of caps unless an attribute narrows it */
	uint64_t tx_order, tx_comp_order, rx_comp_order; /* FI_ORDER_* of messages, of completions */
	size_t tx_size, rx_size;
	_Atomic size_t multi_min;	/* shmcma_now() */
	struct shmcma_coll *coll;	/* with FI_COLLECTIVE, once enabled (group.c) */
	char name[SC_ADDR_SIZE];	/* service to be found under; empty: none */
	struct shmcma_watcher *watcher; /* wait.c's, NULL: none */
	shmcma_refs refs;		/* aliases; contexts; endpoints that share it */
	struct shmcma_ep_fid *fids;	/* the endpoint itself, then its aliases, linked by next */
	struct shmcma_sep *sep;		/* a scalable endpoint's, also of its contexts; else NULL */
	uint16_t index;			/* context: in the scalable endpoint's addresses */
	bool shares_tx, shares_rx;	/* FI_SHARED_CONTEXT: to be bound to one */
	struct shmcma_stx *stx;
	struct shmcma_ep *stx_next; /* shmcma_stx.users */
	struct shmcma_ep *srx;
	struct shmcma_ep *srx_next; /* enabled endpoints of one, from its `namer` on */
};

/* Where it reports. An enabled endpoint keeps its event queue. */
static inline struct shmcma_eq *shmcma_ep_eq(const struct shmcma_ep *ep)
{
	return ep->eq ? ep->eq : shmcma_domain_eq(ep->domain);
}

/* Go on with what groups of endpoints do together (group.c). 0: there was nothing to do. */
int shmcma_coll_progress_locked(struct shmcma_domain *domain);

/* Post what waits for counters that have got there by now (trigger.c). */
void shmcma_trigger_run_locked(struct shmcma_domain *domain);
/* Is there something that could not be posted, for want of room? */
bool shmcma_trigger_is_due_locked(struct shmcma_domain *domain);

static inline int shmcma_poll_each(const struct shmcma_polled *polled)
{
	int done = 0;

	for (size_t i = 0; i < polled->count; i++)
		done += sc_ep_poll(polled->eps[i]->core);
	return done;
}

/* progress.c: what is left of it, in the few domains where there is something. */
int shmcma_poll_rest_locked(struct shmcma_domain *domain, const struct shmcma_polled *polled);

/*
 * Progress, with the lock of what is polled held. 0: there was nothing to do. An endpoint that is nothing but
 * a target may have no queue and no counter whose reader could poll it: so every read polls it.
 */
static inline int shmcma_poll_locked(struct shmcma_domain *domain, const struct shmcma_polled *polled)
{
	int done = shmcma_poll_each(polled);

	if (__builtin_expect(domain->silent.count | (uintptr_t)domain->colls | (uintptr_t)domain->triggers,
			     0))
		done += shmcma_poll_rest_locked(domain, polled);
	return done;
}

/* The same for an application that asks for it: its thread, if it has one, may rest. */
static inline void shmcma_progress_locked(struct shmcma_domain *domain, const struct shmcma_polled *polled)
{
	if (__builtin_expect(domain->progress.wanted, 0)) /* then there is one lock */
		domain->progress.polls++;
	shmcma_poll_locked(domain, polled);
}

/* The fid handed out: the endpoint itself or an alias (ep.c). */
struct shmcma_ep_fid {
	struct fid_ep fid;
	struct shmcma_ep *ep;
	struct shmcma_domain *domain; /* of ep */
	/* Ready-made from op flags and selective completion: what fi_send, fi_tsend... pass to the core. */
	_Atomic uint32_t send_flags, recv_flags;   /* shmcma_now() */
	_Atomic uint64_t tx_op_flags, rx_op_flags; /* from the attributes, or the alias's own */
	struct shmcma_ep_fid *next;	   /* shmcma_ep.fids */
	struct shmcma_object object;
};

/* The flags that op_flags of an endpoint may hold. */
#define SHMCMA_TX_OP_FLAGS                                                                                \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |   \
	 FI_MATCH_COMPLETE | FI_TRIGGER)
#define SHMCMA_RX_OP_FLAGS (FI_COMPLETION | FI_MULTI_RECV | FI_TRIGGER)

/* The peer of fi_addr, or NULL (no such entry, no memory); slow path of the inline one in msg code. */
struct sc_peer *shmcma_ep_peer_slow(struct shmcma_ep *ep, fi_addr_t fi_addr);
/* Why there was none: -FI_EINVAL, no such entry, or -FI_EAGAIN, no memory just now. */
int shmcma_ep_no_peer(struct shmcma_ep *ep, fi_addr_t fi_addr);

/* The context in the low bits, so that what is in use is close together. */
static inline uint64_t shmcma_ep_place(const struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	return fi_addr << ep->rx_ctx_bits | fi_addr >> (-ep->rx_ctx_bits & 63);
}

/* The peer of fi_addr if it has been asked for before; NULL says nothing. */
static inline struct sc_peer *shmcma_ep_peer_known(const struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	uint64_t place = shmcma_ep_place(ep, fi_addr);

	return __builtin_expect(place < ep->peer_count, 1) ? ep->peers[place] : NULL;
}

static inline struct sc_peer *shmcma_ep_peer(struct shmcma_ep *ep, fi_addr_t fi_addr)
{
	struct sc_peer *peer = shmcma_ep_peer_known(ep, fi_addr);

	return __builtin_expect(peer != NULL, 1) ? peer : shmcma_ep_peer_slow(ep, fi_addr);
}

/* The name of the peer in completions: fi_addr_t, or FI_ADDR_NOTAVAIL (not in the AV, or without FI_SOURCE). */
fi_addr_t shmcma_ep_source_slow(struct shmcma_ep *ep, struct sc_peer *peer);

/* av.c tells each bound endpoint that fi_addr has a new address, or is gone; all locks of the domain are held. */
void shmcma_ep_forget_peer(struct shmcma_ep *ep, fi_addr_t fi_addr);
void shmcma_ep_forget_address(struct shmcma_ep *ep, fi_addr_t fi_addr, const char *address);

/* For the core (sc_ep_attr.knows): is the address in the endpoint's vector? */
bool shmcma_ep_knows(void *ep, const char *address);

/* ---- calls of one file that another needs ---------------------------------------------------- */

int shmcma_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		   const struct fi_info *hints, struct fi_info **info);
int shmcma_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int shmcma_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
		       void *context);
int shmcma_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context);
int shmcma_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);
int shmcma_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
int shmcma_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr,
		     void *context);
int shmcma_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int shmcma_sep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep, void *context);
int shmcma_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
		    void *context);
int shmcma_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **srx,
		    void *context);
int shmcma_query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
			struct fi_atomic_attr *attr, uint64_t flags);
int shmcma_query_collective(struct fid_domain *domain, enum fi_collective_op op,
			    struct fi_collective_attr *attr, uint64_t flags);
int shmcma_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context);
int shmcma_ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen);
int shmcma_ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen);

/*
 * The fid if it is an open object of this provider, or if fid is NULL the one opened first; else NULL
 * (fi_getinfo's fabric_attr->fabric and domain_attr->domain).
 */
struct fid_fabric *shmcma_fabric_find(const struct fid_fabric *fid);
struct fid_domain *shmcma_domain_find(const struct fid_domain *fid, const struct fid_fabric *fabric);

/*
 * Would an endpoint / domain with these attributes be granted? Used by getinfo for hints and by
 * fi_domain, fi_endpoint for the info handed in (info.c). 0 or -FI_ENODATA with the reason logged.
 */
int shmcma_check_hints(uint32_t version, const struct fi_info *hints);
/* The capabilities that an info grants: with the modifiers that they imply, and those that are granted unasked. */
uint64_t shmcma_granted_caps(const struct fi_info *info);

/*
 * Attributes of a context of an endpoint with these capabilities: as asked for in *attr, completed there.
 * -FI_EINVAL: not supported, with the reason logged. (info.c)
 */
int shmcma_tx_attr_complete(struct fi_tx_attr *attr, uint64_t caps);
int shmcma_rx_attr_complete(struct fi_rx_attr *attr, uint64_t caps);

/* Node and service of fi_getinfo and fi_av_insertsvc (node.c): address of the service they name,
 * out[SC_ADDR_SIZE]. -FI_ENODATA: the node is not this machine; -FI_EINVAL: no possible name. */
int shmcma_node_address(const char *node, const char *service, uint64_t flags, char *out);
/* Is the node this machine? With the reason logged if not. */
bool shmcma_node_is_here(const char *node, uint64_t flags);
/* Is the node, which may be NULL, meant to be an address, SC_ADDR_PREFIX...? */
bool shmcma_node_is_address(const char *node);

/*
 * src_addr of an info whose endpoint is to have no name but its own address, which it gets when it is
 * enabled.
 */
#define SHMCMA_ADDR_ANY SC_ADDR_PREFIX

/*
 * An address handed in, such as info->src_addr: checked and copied to out[SC_ADDR_SIZE] (node.c).
 * SHMCMA_ADDR_ANY gives SC_ADDR_INVALID and an empty string. -FI_EINVAL: no address of ours.
 */
int shmcma_address_copy(const void *addr, size_t addrlen, char *out, enum sc_addr_kind *kind);
/*
 * The service that an endpoint of this info is to be found under (its src_addr), name[SC_ADDR_SIZE];
 * empty: none. -FI_EINVAL: no address of ours; -FI_EADDRNOTAVAIL: an endpoint's own, which nobody chooses.
 */
int shmcma_source_service(const struct fi_info *info, char *name);

/* Operations that an object does not have, for the op tables (fabric.c). */
int shmcma_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
ssize_t shmcma_no_cancel(fid_t fid, void *context);
int shmcma_no_control(struct fid *fid, int command, void *arg);
int shmcma_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
int shmcma_no_ops_set(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
/* fi_tostr of any object. */
int shmcma_tostr(const struct fid *fid, char *buf, size_t len);

/* The operations that every object's fid has: these three, its name, and none of the rest. */
#define SHMCMA_FID_OPS(close_, bind_, control_)                                                           \
	{                                                                                                 \
		.size = sizeof(struct fi_ops), .close = close_, .bind = bind_, .control = control_,       \
		.ops_open = shmcma_no_ops_open, .tostr = shmcma_tostr, .ops_set = shmcma_no_ops_set       \
	}

#endif
