/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * domain.c: the domain object. Any thread.
 *
 * The domain's locks guard all objects that belong to it, see lock.h. The first domain of a process loads the measured
 * costs of this machine.
 */
#include "fabric/fabric.h"

#include <sched.h>
#include <stdlib.h>
#include "base/attr.h"
#include "base/param.h"
#include "coll/coll.h"
#include "ep/endpoint.h"
#include "obj/av.h"
#include "obj/cntr.h"
#include "obj/cq.h"
#include "obj/eq.h"
#include "obj/mr.h"
#include "obj/peercntr.h"
#include "obj/peercq.h"
#include "obj/pollset.h"
#include "op/post.h"
#include "wait/polled.h"
#include "wait/progress.h"
#include "wait/wait.h"

static pthread_once_t calibrated = PTHREAD_ONCE_INIT;

int shmcma_check_peer_flags(const char *call, uint64_t flags)
{
	if (!flags)
		return 0;
	shmcma_warn(FI_LOG_DOMAIN, "%s: flags %#llx: no peer objects here\n", call, (unsigned long long)flags);
	return flags == FI_PEER ? -FI_ENOSYS : -FI_EBADFLAGS;
}

SHMCMA_CALL(int, domain_endpoint2, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, uint64_t flags,
	    void *context)
{
	int ret = shmcma_check_peer_flags("fi_endpoint2", flags);

	return ret ? ret : shmcma_ep_open(domain, info, ep, context);
}

/* With FI_PEER the object belongs to another provider. */
SHMCMA_CALL(int, cq_open, struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
	    void *context)
{
	return (attr && attr->flags & FI_PEER ? shmcma_peercq_open : shmcma_cq_open)(domain, attr, cq,
										     context);
}

SHMCMA_CALL(int, cntr_open, struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr,
	    void *context)
{
	return (attr && attr->flags & FI_PEER ? shmcma_peercntr_open : shmcma_cntr_open)(domain, attr,
											 cntr, context);
}

static int domain_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct shmcma_domain *domain = container_of(fid, struct shmcma_domain, fid.fid);
	struct shmcma_eq *eq, *none = NULL;

	if (flags & FI_REG_MR) {
		shmcma_warn(FI_LOG_DOMAIN, "FI_REG_MR: memory is not registered asynchronously here\n");
		return -FI_ENOSYS;
	}
	if (flags)
		return -FI_EBADFLAGS;
	eq = shmcma_eq_get(bfid);
	if (!eq)
		return -FI_EINVAL;
	if (!atomic_compare_exchange_strong(&domain->eq, &none, eq)) {
		shmcma_eq_put_ref(eq);
		shmcma_warn(FI_LOG_DOMAIN, "the domain has an event queue already\n");
		return -FI_EINVAL;
	}
	return 0;
}

static int domain_close(struct fid *fid)
{
	struct shmcma_domain *domain = container_of(fid, struct shmcma_domain, fid.fid);

	if (atomic_load(&domain->refs))
		return -FI_EBUSY;
	shmcma_ep_end_lent(domain);
	shmcma_object_del(&domain->object);
	shmcma_progress_stop(domain);
	while (atomic_load(&domain->visitors)) /* the endpoints are closed, so no new ones come */
		sched_yield();
	shmcma_wait_fini(&domain->progress.wait);
	if (shmcma_domain_eq(domain))
		shmcma_eq_put_ref(shmcma_domain_eq(domain));
	atomic_fetch_sub(&domain->fabric->refs, 1);
	shmcma_polled_fini(&domain->enabled);
	shmcma_polled_fini(&domain->silent);
	sc_regtab_destroy(domain->regtab);
	shmcma_cntr_free_retired(domain);
	shmcma_locks_fini(domain);
	free(domain);
	return 0;
}

/* A key needs no mapping, so FI_UNMAP_KEY has nothing to undo. */
static int domain_control(struct fid *fid, int command, void *arg)
{
	switch (command) {
	case FI_MAP_RAW_MR:
		return arg ? shmcma_mr_map_raw(arg) : -FI_EINVAL;
	case FI_UNMAP_KEY:
		return arg ? 0 : -FI_EINVAL;
	default:
		return shmcma_trigger_control(fid, command, arg);
	}
}

static struct fi_ops domain_fid_ops = SHMCMA_FID_OPS(domain_close, domain_bind, domain_control);

SHMCMA_FORKED_CALL(int, shmcma_av_open, struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
		   void *context)
SHMCMA_FORKED_CALL(int, shmcma_ep_open, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
		   void *context)
SHMCMA_FORKED_CALL(int, shmcma_sep_open, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
		   void *context)
SHMCMA_FORKED_CALL(int, shmcma_poll_open, struct fid_domain *domain, struct fi_poll_attr *attr,
		   struct fid_poll **pollset)
SHMCMA_FORKED_CALL(int, shmcma_stx_open, struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
		   void *context)
SHMCMA_FORKED_CALL(int, shmcma_srx_open, struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep,
		   void *context)
SHMCMA_FORKED_CALL(int, shmcma_query_atomic, struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
		   struct fi_atomic_attr *attr, uint64_t flags)
SHMCMA_FORKED_CALL(int, shmcma_query_collective, struct fid_domain *domain, enum fi_collective_op op,
		   struct fi_collective_attr *attr, uint64_t flags)

SHMCMA_NO(int, no_xpu_context, -FI_ENOSYS, struct fid_domain *domain, void *attr, void **xpu,
	  void *context)

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(union shmcma_ops_domain), .av_open = way##shmcma_av_open,                  \
		.cq_open = way##cq_open, .endpoint = way##shmcma_ep_open,                                 \
		.scalable_ep = way##shmcma_sep_open, .cntr_open = way##cntr_open,                         \
		.poll_open = way##shmcma_poll_open, .stx_ctx = way##shmcma_stx_open,                      \
		.srx_ctx = way##shmcma_srx_open, .query_atomic = way##shmcma_query_atomic,                \
		.query_collective = way##shmcma_query_collective, .endpoint2 = way##domain_endpoint2,     \
		.xpu_ctx = no_xpu_context,                                                                \
	}
static union shmcma_ops_domain domain_ops = OPS(), forked_ops = OPS(forked_);

/* A domain has nothing to read: its thread only makes progress. */
static bool has(const struct shmcma_wait *wait)
{
	return false;
}

static const struct shmcma_polled *polled(const struct shmcma_wait *wait)
{
	return &wait->domain->enabled;
}

static const struct shmcma_wait_ops wait_ops = { .polled = polled, .has = has };

/* ---- open ------------------------------------------------------------------------------------ */

/* Returns the mode bits that a registration uses; the two values from before 1.5 become today's bits. */
static int mr_mode_bits(int mr_mode)
{
	switch (mr_mode) {
	case FI_MR_BASIC:
		return SHMCMA_MR_MODES;
	case FI_MR_SCALABLE:
		return 0;
	default:
		return mr_mode;
	}
}

/* fi_join is the only control operation that takes time; it progresses like data. */
static bool wants_thread(const struct fi_info *info)
{
	const struct fi_domain_attr *attr = info->domain_attr;

	return attr->data_progress == FI_PROGRESS_AUTO ||
	       (attr->control_progress == FI_PROGRESS_AUTO && info->caps & FI_COLLECTIVE);
}

static void forked(struct fid *fid)
{
	struct shmcma_domain *domain = container_of(fid, struct shmcma_domain, fid.fid);

	domain->fid.ops = &forked_ops.ops;
	domain->fid.mr = &shmcma_mr_forked_ops;
	shmcma_lock_forked(domain);
	atomic_store(&domain->visitors, 0); /* those threads are the parent's */
}

int shmcma_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
		       void *context)
{
	struct shmcma_domain *opened;
	bool threads; /* of this provider, or that read an event queue */
	int ret;

	if (!info || !info->domain_attr)
		return -FI_EINVAL;
	ret = shmcma_check_hints(fabric->api_version, info);
	if (ret)
		return ret;
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -FI_ENOMEM;
	ret = sc_regtab_create(&opened->regtab);
	if (ret) {
		free(opened);
		return shmcma_error(ret);
	}
	opened->fid.fid = (struct fid){ .fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid_ops };
	opened->fid.ops = &domain_ops.ops;
	opened->fid.mr = &shmcma_mr_ops;
	opened->fabric = container_of(fabric, struct shmcma_fabric, fid);
	(void)shmcma_wait_init(&opened->progress.wait, FI_WAIT_NONE, NULL, &wait_ops); /* needs nothing */
	opened->progress.wait.domain = opened;
	opened->progress.wait.locked = &opened->locks.itself;
	opened->progress.starting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	opened->caps = shmcma_granted_caps(fabric->api_version, info, shmcma_offers[0]);
	/* another provider's functions are called only by its own reads */
	opened->progress.wanted =
		!shmcma_domain_is_peer(opened) && (wants_thread(info) || shmcma_env.config.strict);
	/* an event queue is no object of the domain, but a read of it makes progress for fi_join */
	threads = opened->progress.wanted || opened->caps & FI_COLLECTIVE;
	shmcma_locks_init(opened, threads || info->domain_attr->threading != FI_THREAD_DOMAIN,
			  threads || shmcma_domain_is_peer(opened), &shmcma_wait_unlock_hook);
	opened->mr_mode = mr_mode_bits(info->domain_attr->mr_mode);
	opened->api_version = fabric->api_version;
	atomic_fetch_add(&opened->fabric->refs, 1);
	if (shmcma_domain_is_peer(opened))
		atomic_store(&opened->fabric->is_peer, true);
	pthread_once(&calibrated, shmcma_calibrate);
	shmcma_object_add(&opened->object, &opened->fid.fid, &opened->locks.common.mutex, forked);
	*domain = &opened->fid;
	return 0;
}
