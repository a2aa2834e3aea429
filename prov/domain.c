/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * domain.c: the domain object. Any thread.
 *
 * The domain's lock is there for all that belongs to it: taken by data calls if the threading model asks
 * for it, see shmcma.h. The first domain of a process clears away what dead processes have left.
 *
 * Memory can be registered for local use, which nothing here needs: it is for programs that do so
 * everywhere. Such a region has neither key nor descriptor.
 */
#include "shmcma.h"

#include <stdlib.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shmcma_domain *open_first; /* oldest first */
static pthread_once_t scanned = PTHREAD_ONCE_INIT;

static int no_scalable_ep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep,
			  void *context)
{
	(void)domain, (void)info, (void)sep, (void)context;
	return -FI_ENOSYS;
}

static int no_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr,
			void *context)
{
	(void)domain, (void)attr, (void)cntr, (void)context;
	return -FI_ENOSYS;
}

static int no_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **pollset)
{
	(void)domain, (void)attr, (void)pollset;
	return -FI_ENOSYS;
}

static int no_stx_ctx(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
		      void *context)
{
	(void)domain, (void)attr, (void)stx, (void)context;
	return -FI_ENOSYS;
}

static int no_srx_ctx(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep,
		      void *context)
{
	(void)domain, (void)attr, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_query_atomic(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
			   struct fi_atomic_attr *attr, uint64_t flags)
{
	(void)domain, (void)datatype, (void)op, (void)attr, (void)flags;
	return -FI_ENOSYS;
}

static int no_query_collective(struct fid_domain *domain, enum fi_collective_op op,
			       struct fi_collective_attr *attr, uint64_t flags)
{
	(void)domain, (void)op, (void)attr, (void)flags;
	return -FI_ENOSYS;
}

static int domain_endpoint2(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
			    uint64_t flags, void *context)
{
	if (flags) {
		shmcma_warn(FI_LOG_DOMAIN, "fi_endpoint2: flags %#llx: no peer endpoints here\n",
			    (unsigned long long)flags);
		return flags == FI_PEER ? -FI_ENOSYS : -FI_EBADFLAGS;
	}
	return shmcma_ep_open(domain, info, ep, context);
}

static int domain_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct shmcma_domain *domain = container_of(fid, struct shmcma_domain, fid.fid);
	struct shmcma_eq *eq;

	if (flags & FI_REG_MR) {
		shmcma_warn(FI_LOG_DOMAIN, "FI_REG_MR: memory is not registered asynchronously here\n");
		return -FI_ENOSYS;
	}
	if (flags)
		return -FI_EBADFLAGS;
	eq = shmcma_eq_get(bfid);
	if (!eq)
		return -FI_EINVAL;
	shmcma_lock(domain);
	if (domain->eq) {
		shmcma_unlock(domain);
		shmcma_eq_put_ref(eq);
		shmcma_warn(FI_LOG_DOMAIN, "the domain has an event queue already\n");
		return -FI_EINVAL;
	}
	domain->eq = eq;
	shmcma_unlock(domain);
	return 0;
}

static int domain_close(struct fid *fid)
{
	struct shmcma_domain *domain = container_of(fid, struct shmcma_domain, fid.fid);
	struct shmcma_domain **link;

	pthread_mutex_lock(&open_lock);
	if (atomic_load(&domain->refs)) {
		pthread_mutex_unlock(&open_lock);
		return -FI_EBUSY;
	}
	for (link = &open_first; *link != domain; link = &(*link)->next)
		;
	*link = domain->next;
	pthread_mutex_unlock(&open_lock);

	if (domain->eq)
		shmcma_eq_put_ref(domain->eq);
	atomic_fetch_sub(&domain->fabric->refs, 1);
	pthread_mutex_destroy(&domain->lock);
	free(domain);
	return 0;
}

static struct fi_ops domain_fid_ops = SHMCMA_FID_OPS(domain_close, domain_bind, shmcma_no_control);

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = shmcma_av_open,
	.cq_open = shmcma_cq_open,
	.endpoint = shmcma_ep_open,
	.scalable_ep = no_scalable_ep,
	.cntr_open = no_cntr_open,
	.poll_open = no_poll_open,
	.stx_ctx = no_stx_ctx,
	.srx_ctx = no_srx_ctx,
	.query_atomic = no_query_atomic,
	.query_collective = no_query_collective,
	.endpoint2 = domain_endpoint2,
};

/* ---- memory for local use -------------------------------------------------------------------- */

#define LOCAL_ACCESS (FI_SEND | FI_RECV | FI_READ | FI_WRITE)

struct local_mr {
	struct fid_mr fid;
	struct shmcma_domain *domain;
};

static int mr_close(struct fid *fid)
{
	struct local_mr *mr = container_of(fid, struct local_mr, fid.fid);

	atomic_fetch_sub(&mr->domain->refs, 1);
	free(mr);
	return 0;
}

static struct fi_ops mr_fid_ops = SHMCMA_FID_OPS(mr_close, shmcma_no_bind, shmcma_no_control);

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr)
{
	struct local_mr *opened;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr || (attr->iov_count && !attr->mr_iov) || attr->offset)
		return -FI_EINVAL;
	if (attr->iov_count > SHMCMA_IOV_LIMIT)
		return -FI_EINVAL;
	if (flags)
		return -FI_EBADFLAGS;
	if (attr->access & ~LOCAL_ACCESS) {
		shmcma_warn(FI_LOG_MR, "memory can be registered for local use alone: access %#llx\n",
			    (unsigned long long)attr->access);
		return -FI_ENOSYS;
	}
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -FI_ENOMEM;
	opened->fid.fid.fclass = FI_CLASS_MR;
	opened->fid.fid.context = attr->context;
	opened->fid.fid.ops = &mr_fid_ops;
	opened->fid.key = FI_KEY_NOTAVAIL;
	opened->domain = container_of(fid, struct shmcma_domain, fid.fid);
	atomic_fetch_add(&opened->domain->refs, 1);
	*mr = &opened->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
		   uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr,
		   void *context)
{
	struct fi_mr_attr attr = { .mr_iov = iov,
				   .iov_count = count,
				   .access = access,
				   .offset = offset,
				   .requested_key = requested_key,
				   .context = context };

	return mr_regattr(fid, &attr, flags, mr);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
		  uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };

	return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr, context);
}

static struct fi_ops_mr domain_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};

/* ---- open ------------------------------------------------------------------------------------ */

static void scan_once(void)
{
	int removed = sc_reap_scan();

	if (removed > 0)
		shmcma_info(FI_LOG_DOMAIN, "removed %d names that dead processes had left\n", removed);
}

int shmcma_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
		       void *context)
{
	struct shmcma_domain *opened;
	struct shmcma_domain **link;
	int ret;

	if (!info || !info->domain_attr)
		return -FI_EINVAL;
	ret = shmcma_check_hints(fabric->api_version, info);
	if (ret)
		return ret;
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -FI_ENOMEM;
	opened->fid.fid.fclass = FI_CLASS_DOMAIN;
	opened->fid.fid.context = context;
	opened->fid.fid.ops = &domain_fid_ops;
	opened->fid.ops = &domain_ops;
	opened->fid.mr = &domain_mr_ops;
	opened->fabric = container_of(fabric, struct shmcma_fabric, fid);
	opened->threading = info->domain_attr->threading;
	opened->locked = opened->threading != FI_THREAD_DOMAIN;
	opened->caps = info->caps;
	opened->api_version = fabric->api_version;
	pthread_mutex_init(&opened->lock, NULL);
	atomic_fetch_add(&opened->fabric->refs, 1);
	pthread_once(&scanned, scan_once);

	pthread_mutex_lock(&open_lock);
	for (link = &open_first; *link; link = &(*link)->next)
		;
	*link = opened;
	pthread_mutex_unlock(&open_lock);
	*domain = &opened->fid;
	return 0;
}

struct fid_domain *shmcma_domain_find(const struct fid_domain *fid, const struct fid_fabric *fabric)
{
	struct fid_domain *found = NULL;

	pthread_mutex_lock(&open_lock);
	for (struct shmcma_domain *each = open_first; each && !found; each = each->next)
		if ((!fid || fid == &each->fid) && (!fabric || fabric == &each->fabric->fid))
			found = &each->fid;
	pthread_mutex_unlock(&open_lock);
	return found;
}
