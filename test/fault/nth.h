/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * nth.h: one of the two processes of a run of test_nth.c: its libfabric objects, its operations, and the checks
 * of every call and completion.
 *
 * Only calls of the subject fail; the partner has no failing calls and sees the consequences. An operation or a
 * call that fails ends the traffic: the process that sees it first says so and closes everything at once;
 * the other withdraws its receives, waits for all its other operations, and then closes. So the run
 * shows that one side's failure ends every operation of the other, once.
 *
 * A check that fails ends the process, with the reason in struct nth_shared.
 */
#ifndef NTH_H
#define NTH_H

#include "interpose.h"

#include <sched.h>
#include <signal.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include <rdma/providers/fi_prov.h>

enum role { SUBJECT, PARTNER, ROLES };

#define NTH_SECONDS 60	     /* of processor time, of a process; only ends what hangs */
#define NTH_REGION (1 << 20) /* bytes that each has registered */
#define NTH_BUFFER (2 << 20)
#define NTH_EPS 70
#define NTH_POLLS 3000	 /* more than a side ever needs to find a message that is there */
#define NTH_HOPELESS 200 /* calls that fail without any progress: there will be none */

/* One process's part of the memory that the processes and their parent share. */
struct nth_side {
	char name[NTH_EPS][64];
	uint64_t key, addr;
	atomic_int phase;
	atomic_bool gone;     /* all is closed */
	atomic_uint failures; /* of its calls */
	bool to_warn;	      /* the log must say why */
	char doing[96];	      /* its last activity */
	char failed[96];      /* the first call or operation that failed */
	int code;	      /* with what, positive */
	char trouble[1200];   /* the check that failed */
};

#define NTH_LEFT 64

/* The number of resources that the provider held, by kind and site. */
struct nth_left {
	enum resource resource;
	uint32_t site;
	unsigned int count;
};

struct nth_shared {
	struct interpose_plan plan;
	struct nth_side side[ROLES];
	atomic_int abandoned;		 /* role + 1 of the first that abandoned the traffic */
	unsigned int call_count, set_up; /* the subject's calls, and those when it was ready */
	struct interpose_call log[INTERPOSE_CALLS];
	/* when everything is closed, and after cleanup(), where nothing fails; the subject's */
	struct nth_left closed[NTH_LEFT], cleaned[NTH_LEFT];
	int closed_fds; /* descriptors, likewise, more than at the beginning */
};

struct nth;

struct nth_scenario {
	const char *name;
	const char *env;
	void (*run)(struct nth *nth);
	bool alone; /* without partner */
	bool later; /* another scenario has the same set-up: only what follows is made to fail */
	bool partner_dies;
	bool thread; /* progress by thread */
	bool service;
	bool wait; /* completion queues and counters to wait on */
};

enum op_kind { OP_SEND, OP_RECV, OP_RMA };

struct op {
	struct fi_triggered_context2 context; /* first: what libfabric is given */
	enum op_kind kind;
	int ep;
	int expect; /* an error that it is to end with */
	int may;    /* one that it may end with */
	bool pending, cancelled;
	bool many; /* multi-receive: completes more than once */
	bool last;
	int done; /* completions */
	int error;
	uint64_t flags;
	size_t len;
	void *buf;
};

#define NTH_OPS 256

/* One process. */
struct nth {
	const struct nth_scenario *scenario;
	struct nth_shared *shared;
	enum role role;
	struct nth_side *own, *other;
	bool broken; /* the traffic has ended early */
	bool deaf;   /* no more completions can be had */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_cntr *cntr, *writes;
	struct fid_mr *mr;
	struct fid_ep *ep[NTH_EPS];
	fi_addr_t peer[NTH_EPS], self;
	uint8_t *region, *out, *in;
	struct op ops[NTH_OPS];
	int op_count;
	int phase;
	int fds; /* open at the beginning */
};

/* ---- trouble --------------------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 2, 3))) static inline void nth_trouble(struct nth *nth,
									       const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(nth->own->trouble, sizeof(nth->own->trouble), format, args);
	va_end(args);
	atomic_store(&nth->own->gone, true);
	_exit(1);
}

static inline bool nth_had_failure(const struct nth *nth)
{
	return nth->role == SUBJECT && atomic_load(&interpose.failures);
}

/* May anything end badly by now? */
static inline bool nth_excused(const struct nth *nth)
{
	return nth_had_failure(nth) || atomic_load(&nth->shared->abandoned) ||
	       nth->shared->side[SUBJECT].failures || nth->scenario->partner_dies;
}

/* The codes that name the lacking resource, besides the errno itself. */
static inline bool nth_fits_plan(const struct interpose_plan *plan, int code)
{
	static const struct {
		uint32_t function;
		int error, code;
	} also[] = {
		{ F_PWRITE, SHORTENED, ENOSPC },
		{ F_PREAD, SHORTENED, FI_ECONNABORTED },
		{ F_READ, SHORTENED, EIO },
		{ F_LINKAT, EEXIST, EADDRINUSE }, /* a service name, time and again */
		{ F_FSTAT, ENOMEM, EBADF },	  /* taken for a descriptor that was closed */
		{ F_FSTAT, EIO, EBADF },
	};

	if (code == plan->error)
		return true;
	for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++)
		if (also[i].function == plan->call.function && also[i].error == plan->error &&
		    also[i].code == code)
			return true;
	return false;
}

static inline void nth_note(struct nth *nth, const char *what, int code)
{
	nth->broken = true;
	if (nth->own->failed[0])
		return;
	snprintf(nth->own->failed, sizeof(nth->own->failed), "%.95s", what);
	nth->own->code = code;
}

/* The result of a call that sets something up: 0, or the code of the lacking resource. */
static inline bool nth_ok(struct nth *nth, const char *what, long ret)
{
	const struct interpose_plan *plan = &nth->shared->plan;

	snprintf(nth->own->doing, sizeof(nth->own->doing), "%.95s", what);
	if (!ret)
		return true;
	if (ret > 0)
		nth_trouble(nth, "%s: %ld", what, ret);
	if (!nth_had_failure(nth))
		nth_trouble(nth, "%s: %ld (%s), and nothing had failed", what, ret,
			    fi_strerror((int)-ret));
	if (!nth_fits_plan(plan, (int)-ret))
		nth_trouble(nth, "%s: %ld (%s) does not fit", what, ret, fi_strerror((int)-ret));
	nth->own->to_warn |= !nth->broken;
	nth_note(nth, what, (int)-ret);
	return false;
}

#define NTH_OK(nth, call) nth_ok(nth, #call, (long)(call))

static struct fi_provider *nth_provider; /* as fi_prov_ini() gave it to this process */

/* ---- objects --------------------------------------------------------------------------------- */

#define NTH_CAPS                                                                                          \
	(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE |         \
	 FI_FENCE | FI_RMA_EVENT | FI_TRIGGER)

static inline bool nth_getinfo(struct nth *nth)
{
	struct fi_info *hints = fi_allocinfo();
	char service[32];
	long ret;

	if (!hints)
		abort();
	snprintf(service, sizeof(service), "nth-%d", (int)getpid());
	hints->caps = NTH_CAPS;
	hints->fabric_attr->prov_name = strdup("shmcma");
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->data_progress = nth->scenario->thread ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	hints->tx_attr->size = hints->rx_attr->size = 64;
	ret = nth_provider->getinfo(FI_VERSION(1, 17), nth->scenario->service ? "localhost" : NULL,
				    nth->scenario->service ? service : NULL,
				    nth->scenario->service ? FI_SOURCE : 0, hints, &nth->info);
	fi_freeinfo(hints);
	return nth_ok(nth, "getinfo", ret);
}

static inline bool nth_open_queues(struct nth *nth)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_FD, .flags = FI_WRITE };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED,
				 .size = 16,
				 .wait_obj = nth->scenario->wait ? FI_WAIT_UNSPEC : FI_WAIT_NONE };
	struct fi_cntr_attr cntr = { .wait_obj = nth->scenario->wait ? FI_WAIT_UNSPEC : FI_WAIT_NONE };

	return NTH_OK(nth, fi_eq_open(nth->fabric, &eq, &nth->eq, NULL)) &&
	       NTH_OK(nth, fi_domain_bind(nth->domain, &nth->eq->fid, 0)) &&
	       NTH_OK(nth, fi_av_open(nth->domain, &av, &nth->av, NULL)) &&
	       NTH_OK(nth, fi_cq_open(nth->domain, &cq, &nth->cq, NULL)) &&
	       NTH_OK(nth, fi_cntr_open(nth->domain, &cntr, &nth->cntr, NULL)) &&
	       NTH_OK(nth, fi_cntr_open(nth->domain, &cntr, &nth->writes, NULL));
}

static inline bool nth_open_ep(struct nth *nth, int i)
{
	size_t len = sizeof(nth->own->name[i]);

	return NTH_OK(nth, fi_endpoint(nth->domain, nth->info, &nth->ep[i], NULL)) &&
	       NTH_OK(nth, fi_ep_bind(nth->ep[i], &nth->eq->fid, 0)) &&
	       NTH_OK(nth, fi_ep_bind(nth->ep[i], &nth->av->fid, 0)) &&
	       NTH_OK(nth, fi_ep_bind(nth->ep[i], &nth->cq->fid, FI_TRANSMIT | FI_RECV)) &&
	       NTH_OK(nth, fi_ep_bind(nth->ep[i], &nth->cntr->fid, FI_SEND | FI_READ)) &&
	       NTH_OK(nth, fi_ep_bind(nth->ep[i], &nth->writes->fid, FI_WRITE)) &&
	       NTH_OK(nth, fi_enable(nth->ep[i])) &&
	       NTH_OK(nth, fi_getname(&nth->ep[i]->fid, nth->own->name[i], &len));
}

static inline bool nth_register(struct nth *nth)
{
	nth->region = calloc(1, NTH_REGION);
	if (!nth->region)
		abort();
	if (!NTH_OK(nth, fi_mr_reg(nth->domain, nth->region, NTH_REGION, FI_REMOTE_READ | FI_REMOTE_WRITE,
				   0, 1, 0, &nth->mr, NULL)))
		return false;
	nth->own->key = fi_mr_key(nth->mr);
	nth->own->addr = (uintptr_t)nth->region;
	return true;
}

static inline bool nth_open_domain(struct nth *nth)
{
	return nth_getinfo(nth) &&
	       NTH_OK(nth, nth_provider->fabric(nth->info->fabric_attr, &nth->fabric, NULL)) &&
	       NTH_OK(nth, fi_domain(nth->fabric, nth->info, &nth->domain, NULL));
}

static inline bool nth_open(struct nth *nth)
{
	bool ok = nth_open_domain(nth) && nth_open_queues(nth) && nth_open_ep(nth, 0) && nth_register(nth);

	if (nth->role == SUBJECT && !nth->shared->plan.number)
		nth->shared->set_up = atomic_load(&interpose.calls);
	return ok;
}

static inline bool nth_not_inserted(struct nth *nth, int error)
{
	if (error != FI_ECONNREFUSED || !nth_excused(nth))
		return nth_ok(nth, "fi_av_insert (its error)", error ? -error : -FI_EOTHER);
	nth_note(nth, "fi_av_insert (its error)", error); /* that endpoint is gone, or seems so */
	return false;
}

/* Inserts a name into the address vector; a failure is in an array of errors. */
static inline bool nth_insert(struct nth *nth, const char *name, fi_addr_t *addr)
{
	int error = 0;
	int inserted = fi_av_insert(nth->av, name, 1, addr, FI_SYNC_ERR, &error);

	if (inserted == 1 && !error)
		return true;
	if (inserted < 0 || inserted > 1)
		return nth_ok(nth, "fi_av_insert", inserted);
	if (nth->role == SUBJECT && *addr != FI_ADDR_NOTAVAIL)
		nth_trouble(nth, "fi_av_insert: failed, and gives an address");
	return nth_not_inserted(nth, error);
}

static inline void nth_close_fid(struct nth *nth, const char *what, struct fid *fid)
{
	int ret;

	if (!fid)
		return;
	snprintf(nth->own->doing, sizeof(nth->own->doing), "fi_close(%s)", what);
	ret = fi_close(fid);
	if (ret)
		nth_trouble(nth, "fi_close(%s): %d (%s)", what, ret, fi_strerror(-ret));
}

#define NTH_CLOSE(nth, object) nth_close_fid(nth, #object, (nth)->object ? &(nth)->object->fid : NULL)

static inline void nth_close(struct nth *nth)
{
	NTH_CLOSE(nth, mr);
	for (int i = 0; i < NTH_EPS; i++)
		NTH_CLOSE(nth, ep[i]);
	NTH_CLOSE(nth, writes);
	NTH_CLOSE(nth, cntr);
	NTH_CLOSE(nth, cq);
	NTH_CLOSE(nth, av);
	NTH_CLOSE(nth, domain);
	NTH_CLOSE(nth, eq);
	NTH_CLOSE(nth, fabric);
	fi_freeinfo(nth->info);
	free(nth->region);
	atomic_store(&nth->own->gone, true);
}

/* ---- operations ------------------------------------------------------------------------------ */

static inline struct op *nth_op(struct nth *nth, enum op_kind kind, void *buf, size_t len)
{
	struct op *op = &nth->ops[nth->op_count++];

	if (nth->op_count > NTH_OPS)
		abort();
	*op = (struct op){ .kind = kind, .buf = buf, .len = len };
	return op;
}

/* Codes that an operation may end with because something has failed, here or there. */
static inline bool nth_fits_traffic(const struct nth *nth, int code)
{
	static const int codes[] = { ECONNRESET, ECONNREFUSED, ECONNABORTED, EIO, EFAULT, ENOMEM, ENOSPC };

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (code == codes[i])
			return true;
	return nth->role == SUBJECT && nth_fits_plan(&nth->shared->plan, code);
}

static inline void nth_done(struct nth *nth, struct op *op, int error)
{
	if (op < nth->ops || op >= nth->ops + nth->op_count)
		nth_trouble(nth, "a completion of no operation");
	if (!op->pending)
		nth_trouble(nth, "an operation completed twice, the second time with %d (%s)", error,
			    fi_strerror(error));
	op->done++;
	op->error = error;
	op->pending = op->many && !op->last && !error;
	if (error == op->expect || (error && error == op->may) || (op->cancelled && error == FI_ECANCELED))
		return;
	if (!error)
		nth_trouble(nth, "an operation succeeded that was to end with %d (%s)", op->expect,
			    fi_strerror(op->expect));
	if (!nth_excused(nth))
		nth_trouble(nth, "a %s ended with %d (%s), and nothing had failed",
			    op->kind == OP_SEND	  ? "send"
			    : op->kind == OP_RECV ? "receive"
						  : "one-sided operation",
			    error, fi_strerror(error));
	if (!nth_fits_traffic(nth, error))
		nth_trouble(nth, "an operation ended with %d (%s), which does not fit", error,
			    fi_strerror(error));
	nth_note(nth, "an operation", error);
}

static inline void nth_take_error(struct nth *nth)
{
	struct fi_cq_err_entry entry = { .err = 0 };
	ssize_t ret = fi_cq_readerr(nth->cq, &entry, 0);

	if (ret != 1)
		nth_trouble(nth, "fi_cq_readerr: %zd", ret);
	if (entry.err <= 0)
		nth_trouble(nth, "fi_cq_readerr: the error is %d", entry.err);
	if (entry.err == FI_EOVERRUN && !entry.op_context) {
		nth->deaf = true;
		nth_note(nth, "the completion queue", entry.err);
		return;
	}
	nth_done(nth, entry.op_context, entry.err);
}

static inline void nth_take(struct nth *nth, bool sleep)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret = nth->deaf ? -FI_EAGAIN
		      : sleep	? fi_cq_sread(nth->cq, &entry, 1, NULL, 1)
				: fi_cq_read(nth->cq, &entry, 1);

	if (ret == 1) {
		struct op *op = entry.op_context;

		if (op) {
			op->last = entry.flags & FI_MULTI_RECV;
			op->flags = entry.flags;
			op->len = entry.len;
			if (op->many)
				op->buf = entry.buf;
		}
		if (op || !(entry.flags & FI_REMOTE_CQ_DATA))
			nth_done(nth, op, 0);
	} else if (ret == -FI_EAVAIL) {
		nth_take_error(nth);
	} else if (ret == -FI_EAGAIN) {
		sched_yield();
	} else {
		nth->deaf = true;
		if (!nth_excused(nth) || !nth_fits_plan(&nth->shared->plan, (int)-ret))
			nth_trouble(nth, "fi_cq_read: %zd (%s)", ret, fi_strerror((int)-ret));
		nth_note(nth, "fi_cq_read", (int)-ret);
	}
}

static inline void nth_poll(struct nth *nth)
{
	nth_take(nth, false);
}

/* Since `failures`: nothing will get on any more. */
static inline bool nth_hopeless(struct nth *nth, unsigned int failures)
{
	if (!nth->shared->plan.lasting || atomic_load(&interpose.failures) - failures < NTH_HOPELESS)
		return false;
	nth_note(nth, "given up", EAGAIN);
	return true;
}

static inline bool nth_over(const struct nth *nth)
{
	return nth->broken || atomic_load(&nth->shared->abandoned) || atomic_load(&nth->other->gone);
}

/*
 * The other has gone on, so its message has come long ago, or its connection was refused: then a message whose send
 * completes when it is written may be lost, and the log says so.
 */
static inline bool nth_lost(struct nth *nth, const struct op *op, int *polls)
{
	bool gone_on = nth->scenario->alone || atomic_load(&nth->other->phase) > nth->phase;

	if (op->kind != OP_RECV || !gone_on || ++*polls < NTH_POLLS)
		return false;
	if (!nth_excused(nth))
		nth_trouble(nth, "a message was lost, and nothing had failed");
	nth->own->to_warn |= !nth->broken;
	nth_note(nth, "a message that was lost", FI_EIO);
	return true;
}

/* Until it is complete, or has been once more. */
static inline bool nth_wait(struct nth *nth, struct op *op)
{
	unsigned int failures = atomic_load(&interpose.failures);
	int had = op->done, polls = 0, turns = 0;

	snprintf(nth->own->doing, sizeof(nth->own->doing), "waiting for operation %d",
		 (int)(op - nth->ops));
	while (op->pending && op->done == had && !nth_over(nth) && !nth_hopeless(nth, failures) &&
	       !nth_lost(nth, op, &polls))
		nth_take(nth, nth->scenario->wait && !(++turns % 4));
	return (!op->pending || op->done > had) && op->error == op->expect;
}

/* Make the call until it is taken. */
#define NTH_POST(nth, op, call)                                                                           \
	({                                                                                                \
		unsigned int failures_ = atomic_load(&interpose.failures);                                \
		ssize_t ret_;                                                                             \
                                                                                                          \
		(op)->pending = true;                                                                     \
		while ((ret_ = (call)) == -FI_EAGAIN && !nth_over(nth) && !nth_hopeless(nth, failures_))  \
			nth_poll(nth);                                                                    \
		nth_posted(nth, op, #call, ret_);                                                         \
	})

static inline bool nth_posted(struct nth *nth, struct op *op, const char *what, ssize_t ret)
{
	snprintf(nth->own->doing, sizeof(nth->own->doing), "%.95s", what);
	if (!ret)
		return true;
	op->pending = false;
	if (ret > 0)
		nth_trouble(nth, "%s: %zd", what, ret);
	if (ret == -FI_EAGAIN)
		return false;
	if (!nth_excused(nth))
		nth_trouble(nth, "%s: %zd (%s), and nothing had failed", what, ret,
			    fi_strerror((int)-ret));
	if (!nth_fits_traffic(nth, (int)-ret))
		nth_trouble(nth, "%s: %zd (%s) does not fit", what, ret, fi_strerror((int)-ret));
	nth_note(nth, what, (int)-ret);
	return false;
}

/* Both are here, or it is over. */
static inline bool nth_meet(struct nth *nth)
{
	unsigned int failures = atomic_load(&interpose.failures);

	atomic_store(&nth->own->phase, ++nth->phase);
	snprintf(nth->own->doing, sizeof(nth->own->doing), "waiting for the other at %d", nth->phase);
	while (atomic_load(&nth->other->phase) < nth->phase && !nth_over(nth) &&
	       !nth_hopeless(nth, failures))
		if (nth->cq)
			nth_poll(nth);
		else
			sched_yield();
	return atomic_load(&nth->other->phase) >= nth->phase && !nth->broken;
}

static inline void nth_cancel_all(struct nth *nth)
{
	for (int i = 0; i < nth->op_count; i++) {
		struct op *op = &nth->ops[i];
		ssize_t ret;

		if (!op->pending || op->kind != OP_RECV || op->cancelled)
			continue;
		op->cancelled = true;
		ret = fi_cancel(&nth->ep[op->ep]->fid, &op->context);
		if (ret && ret != -FI_ENOENT)
			nth_trouble(nth, "fi_cancel: %zd (%s)", ret, fi_strerror((int)-ret));
	}
}

static inline int nth_pending(const struct nth *nth)
{
	int pending = 0;

	for (int i = 0; i < nth->op_count; i++)
		pending += nth->ops[i].pending;
	return pending;
}

/* All that is under way ends, once each; nothing ends that was not. */
static inline void nth_drain(struct nth *nth)
{
	unsigned int failures = atomic_load(&interpose.failures);

	snprintf(nth->own->doing, sizeof(nth->own->doing), "ending what is under way");
	if (nth->cq && nth->ep[0])
		nth_cancel_all(nth);
	while (nth_pending(nth) && !nth->deaf && !nth_hopeless(nth, failures)) {
		snprintf(nth->own->doing, sizeof(nth->own->doing), "waiting for %d operations to end",
			 nth_pending(nth));
		nth_poll(nth);
	}
	for (int i = 0; i < 20 && nth->cq; i++)
		nth_poll(nth);
}

/* The end of the traffic, see above. */
static inline void nth_leave(struct nth *nth)
{
	int nobody = 0;

	if (nth->broken && !nth->scenario->alone && !nth->scenario->partner_dies &&
	    atomic_compare_exchange_strong(&nth->shared->abandoned, &nobody, nth->role + 1))
		return;
	if (!nth->broken || !nth->scenario->alone)
		nth_drain(nth);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static inline int nth_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = -1; /* its own */

	if (!dir)
		abort();
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static inline bool nth_is_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	bool found = false;
	char line[512];

	if (!maps)
		abort();
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, "/dev/shm/");
	fclose(maps);
	return found;
}

static inline void nth_left(struct nth_left left[NTH_LEFT])
{
	memset(left, 0, sizeof(struct nth_left) * NTH_LEFT);
	for (size_t i = 0; i < INTERPOSE_LIVE; i++) {
		const struct live *live = &interpose.live[i];
		int at = 0;

		if (live->resource == R_NONE)
			continue;
		while (left[at].count &&
		       (left[at].site != live->site || left[at].resource != live->resource))
			if (++at == NTH_LEFT)
				abort();
		left[at].resource = live->resource;
		left[at].site = live->site;
		left[at].count++;
	}
}

/* A descriptor that cannot be looked at may be another's, and is left open. */
static inline bool nth_is_look(uint32_t function)
{
	return function == F_FSTAT || function == F_FSTATFS;
}

/* The first in `left` that is more than without failures, and how many are usual; NULL: there is none. */
static inline const struct nth_left *nth_surplus(const struct nth *nth,
						 const struct nth_left left[NTH_LEFT],
						 const struct nth_left clean[NTH_LEFT],
						 unsigned int *usual)
{
	for (int i = 0; i < NTH_LEFT && left[i].count; i++) {
		*usual = 0;
		for (int j = 0; j < NTH_LEFT; j++)
			if (clean[j].count && clean[j].site == left[i].site &&
			    clean[j].resource == left[i].resource)
				*usual = clean[j].count;
		/* one that cannot be looked at may be another's by now, and stays open */
		if (left[i].resource == R_DESCRIPTOR && nth_is_look(nth->shared->plan.call.function))
			continue;
		if (left[i].count > *usual)
			return &left[i];
	}
	return NULL;
}

static inline void nth_compare_left(struct nth *nth, const char *when,
				    const struct nth_left clean[NTH_LEFT])
{
	static const char *const names[] = {
		"nothing",	    "allocations", "mappings",		 "descriptors",
		"open directories", "open files",  "lists of addresses", "lists of interfaces"
	};
	struct nth_left left[NTH_LEFT];
	const struct nth_left *surplus;
	unsigned int usual;

	nth_left(left);
	surplus = nth_surplus(nth, left, clean, &usual);
	if (surplus)
		nth_trouble(nth, "%s: %u %s of the call before provider+%#x are left, usual are %u", when,
			    surplus->count, names[surplus->resource], surplus->site, usual);
}

#endif
