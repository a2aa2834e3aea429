/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork.c: fork(2). A child has no use of its parent's objects: the shared memory is not mapped there, its
 * parent's threads do not run there, and to peers it is nobody. So in the child each inherited object gets
 * other tables of operations: fi_close() gives back what is private, every other call is SHMCMA_FORKED. That
 * costs the data calls nothing. The child may open objects of its own, which are as good as its parent's.
 *
 * Locks. The thread that forks holds all of them, in the order lists, poll sets, wait sets, domains (all locks of
 * each, see lock.h), address vectors, event queues, so that the child finds whole what they guard.
 *
 *   The lock of the lists lets one thread fork at a time: a second one waits until the first has its child. This wait
 *   needs no limit. A thread has this lock for a few stores, or for its fork(2), and handles no signal meanwhile, so no
 *   handler that forks can have interrupted its owner. The lock guards what one fork notes for its end, too.
 *
 *   A lock of an object may be held for long: by the interrupted thread itself (a signal handler forks in the middle
 *   of one of our calls), or by a thread that writes to a log which nobody reads. The fork looks SHMCMA_FORK_TRIES
 *   times, with a nap between two looks, and goes on without the lock; then the child leaves inherited objects as they
 *   are when it closes them. The limit counts looks and not time: on a machine that is short of processors the naps
 *   grow longer, and the owner of the lock runs in them.
 *
 * A domain that takes no lock is used by one thread at a time; the application sees to that also for fork(2).
 *
 * Children that are not told of: one of vfork(2) has the right to exec and _exit only. A child of clone(2) or of
 * fork(2) as a bare system call keeps the tables: a call that needs a segment crashes there. Either can do no harm to
 * the parent, whose segments it does not have, and whose names it takes for another process's.
 */
#define _GNU_SOURCE 1

#include <unistd.h>
#include "coll/coll.h"
#include "fabric/fabric.h"
#include "op/post.h"
#include "wait/progress.h"
#include "wait/wait.h"

static bool missed; /* this fork goes on without a lock */
static atomic_bool told_torn;
static pid_t process; /* has loaded the provider, or was made by a fork(2) that we were told of */

/* ---- operations in the child ----------------------------------------------------------------- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define FORKED(type, name, ...)                                                                           \
	static type name(__VA_ARGS__)                                                                     \
	{                                                                                                 \
		return shmcma_forked();                                                                   \
	}

FORKED(int, fid_bind, struct fid *fid, struct fid *bfid, uint64_t flags)
FORKED(int, fid_control, struct fid *fid, int command, void *arg)
FORKED(int, fid_ops_open, struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
FORKED(int, fid_tostr, const struct fid *fid, char *buf, size_t len)
FORKED(int, fid_ops_set, struct fid *fid, const char *name, uint64_t flags, void *ops, void *context)

FORKED(int, fabric_domain, struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
       void *context)
FORKED(int, fabric_passive_ep, struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
       void *context)
FORKED(int, fabric_eq_open, struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
       void *context)
FORKED(int, fabric_wait_open, struct fid_fabric *fabric, struct fi_wait_attr *attr,
       struct fid_wait **waitset)
FORKED(int, fabric_trywait, struct fid_fabric *fabric, struct fid **fids, int count)
FORKED(int, fabric_domain2, struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
       uint64_t flags, void *context)

FORKED(int, domain_av_open, struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
       void *context)
FORKED(int, domain_cq_open, struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
       void *context)
FORKED(int, domain_endpoint, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
       void *context)
FORKED(int, domain_cntr_open, struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr,
       void *context)
FORKED(int, domain_poll_open, struct fid_domain *domain, struct fi_poll_attr *attr,
       struct fid_poll **pollset)
FORKED(int, domain_stx_ctx, struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
       void *context)
FORKED(int, domain_srx_ctx, struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep,
       void *context)
FORKED(int, domain_query_atomic, struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
       struct fi_atomic_attr *attr, uint64_t flags)
FORKED(int, domain_query_collective, struct fid_domain *domain, enum fi_collective_op op,
       struct fi_collective_attr *attr, uint64_t flags)
FORKED(int, domain_endpoint2, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
       uint64_t flags, void *context)

FORKED(int, mr_reg, struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
       uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
FORKED(int, mr_regv, struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
       uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
FORKED(int, mr_regattr, struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr)

FORKED(ssize_t, ep_cancel, fid_t fid, void *context)
FORKED(int, ep_getopt, fid_t fid, int level, int optname, void *optval, size_t *optlen)
FORKED(int, ep_setopt, fid_t fid, int level, int optname, const void *optval, size_t optlen)
FORKED(int, ep_ctx_tx, struct fid_ep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **ep,
       void *context)
FORKED(int, ep_ctx_rx, struct fid_ep *sep, int index, struct fi_rx_attr *attr, struct fid_ep **ep,
       void *context)
FORKED(ssize_t, ep_size_left, struct fid_ep *ep)

FORKED(int, cm_setname, fid_t fid, void *addr, size_t addrlen)
FORKED(int, cm_getname, fid_t fid, void *addr, size_t *addrlen)
FORKED(int, cm_getpeer, struct fid_ep *ep, void *addr, size_t *addrlen)
FORKED(int, cm_connect, struct fid_ep *ep, const void *addr, const void *param, size_t paramlen)
FORKED(int, cm_listen, struct fid_pep *pep)
FORKED(int, cm_accept, struct fid_ep *ep, const void *param, size_t paramlen)
FORKED(int, cm_reject, struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
FORKED(int, cm_shutdown, struct fid_ep *ep, uint64_t flags)
FORKED(int, cm_join, struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc,
       void *context)

FORKED(int, av_insert, struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr,
       uint64_t flags, void *context)
FORKED(int, av_insertsvc, struct fid_av *av, const char *node, const char *service, fi_addr_t *fi_addr,
       uint64_t flags, void *context)
FORKED(int, av_insertsym, struct fid_av *av, const char *node, size_t nodes, const char *service,
       size_t services, fi_addr_t *fi_addr, uint64_t flags, void *context)
FORKED(int, av_remove, struct fid_av *av, fi_addr_t *fi_addr, size_t count, uint64_t flags)
FORKED(int, av_lookup, struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen)
FORKED(int, av_set, struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set, void *context)

FORKED(int, av_set_combine, struct fid_av_set *dst, const struct fid_av_set *src)
FORKED(int, av_set_change, struct fid_av_set *set, fi_addr_t addr)
FORKED(int, av_set_addr, struct fid_av_set *set, fi_addr_t *coll_addr)

FORKED(ssize_t, eq_read, struct fid_eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
FORKED(ssize_t, eq_readerr, struct fid_eq *eq, struct fi_eq_err_entry *entry, uint64_t flags)
FORKED(ssize_t, eq_write, struct fid_eq *eq, uint32_t event, const void *buf, size_t len, uint64_t flags)
FORKED(ssize_t, eq_sread, struct fid_eq *eq, uint32_t *event, void *buf, size_t len, int timeout,
       uint64_t flags)

FORKED(ssize_t, cq_read, struct fid_cq *cq, void *buf, size_t count)
FORKED(ssize_t, cq_readfrom, struct fid_cq *cq, void *buf, size_t count, fi_addr_t *source)
FORKED(ssize_t, cq_readerr, struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags)
FORKED(ssize_t, cq_sread, struct fid_cq *cq, void *buf, size_t count, const void *cond, int timeout)
FORKED(ssize_t, cq_sreadfrom, struct fid_cq *cq, void *buf, size_t count, fi_addr_t *source,
       const void *cond, int timeout)
FORKED(int, cq_signal, struct fid_cq *cq)

FORKED(int, wait_wait, struct fid_wait *set, int timeout)
FORKED(int, poll_poll, struct fid_poll *set, void **context, int count)
FORKED(int, poll_change, struct fid_poll *set, struct fid *fid, uint64_t flags)

FORKED(int, cntr_change, struct fid_cntr *cntr, uint64_t value)
FORKED(int, cntr_wait, struct fid_cntr *cntr, uint64_t threshold, int timeout)

#pragma GCC diagnostic pop

/* These two can give no error: they return the counts at the time of fork(2). */
static uint64_t cntr_read(struct fid_cntr *fid)
{
	(void)shmcma_forked();
	return sc_cntr_read(&container_of(fid, struct shmcma_cntr, fid)->count.value);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	(void)shmcma_forked();
	return sc_cntr_read(&container_of(fid, struct shmcma_cntr, fid)->count.errors);
}

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = fabric_domain,
	.passive_ep = fabric_passive_ep,
	.eq_open = fabric_eq_open,
	.wait_open = fabric_wait_open,
	.trywait = fabric_trywait,
	.domain2 = fabric_domain2,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = domain_av_open,
	.cq_open = domain_cq_open,
	.endpoint = domain_endpoint,
	.scalable_ep = domain_endpoint,
	.cntr_open = domain_cntr_open,
	.poll_open = domain_poll_open,
	.stx_ctx = domain_stx_ctx,
	.srx_ctx = domain_srx_ctx,
	.query_atomic = domain_query_atomic,
	.query_collective = domain_query_collective,
	.endpoint2 = domain_endpoint2,
};

static struct fi_ops_mr mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = ep_setopt,
	.tx_ctx = ep_ctx_tx,
	.rx_ctx = ep_ctx_rx,
	.rx_size_left = ep_size_left,
	.tx_size_left = ep_size_left,
};

static struct fi_ops_cm cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = cm_setname,
	.getname = cm_getname,
	.getpeer = cm_getpeer,
	.connect = cm_connect,
	.listen = cm_listen,
	.accept = cm_accept,
	.reject = cm_reject,
	.shutdown = cm_shutdown,
	.join = cm_join,
};

/* Calls that only turn a value into text still do so: straddr, strerror. */
static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = av_insertsvc,
	.insertsym = av_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.av_set = av_set,
};

static struct fi_ops_av_set av_set_ops = {
	.size = sizeof(struct fi_ops_av_set),
	.set_union = av_set_combine,
	.intersect = av_set_combine,
	.diff = av_set_combine,
	.insert = av_set_change,
	.remove = av_set_change,
	.addr = av_set_addr,
};

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq),
	.read = eq_read,
	.readerr = eq_readerr,
	.write = eq_write,
	.sread = eq_sread,
};

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
};

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_change,
	.set = cntr_change,
	.wait = cntr_wait,
	.adderr = cntr_change,
	.seterr = cntr_change,
};

static struct fi_ops_wait wait_ops = { .size = sizeof(struct fi_ops_wait), .wait = wait_wait };

static struct fi_ops_poll poll_ops = {
	.size = sizeof(struct fi_ops_poll),
	.poll = poll_poll,
	.poll_add = poll_change,
	.poll_del = poll_change,
};

static int close_torn(struct fid *fid)
{
	(void)fid;
	if (!atomic_exchange(&told_torn, true))
		shmcma_warn(
			FI_LOG_CORE,
			"process %d was forked while another call held a lock for long: objects of its "
			"parent that it closes keep their memory and descriptors\n",
			(int)getpid());
	return 0;
}

static void replace_fid(struct fid *fid)
{
	struct fi_ops *ops = &shmcma_forked_ops[fid->fclass];

	*ops = (struct fi_ops){ .size = sizeof(*ops),
				.close = shmcma_torn ? close_torn : fid->ops->close,
				.bind = fid_bind,
				.control = fid_control,
				.ops_open = fid_ops_open,
				.tostr = fid_tostr,
				.ops_set = fid_ops_set };
	fid->ops = ops;
}

static void replace_ep(struct fid_ep *ep)
{
	ep->ops = &ep_ops;
	ep->cm = &cm_ops;
	ep->msg = shmcma_msg_ops(SHMCMA_POST_FORKED);
	ep->tagged = shmcma_tagged_ops(SHMCMA_POST_FORKED);
	ep->rma = shmcma_rma_ops(SHMCMA_RMA_FORKED);
	ep->atomic = shmcma_atomic_ops(SHMCMA_RMA_FORKED);
	ep->collective = shmcma_collective_ops(SHMCMA_COLL_FORKED);
}

static void replace(struct fid *fid)
{
	struct shmcma_wait *wait = shmcma_wait_of(fid);

	replace_fid(fid);
	if (wait)
		shmcma_wait_forked(wait);
	switch (fid->fclass) {
	case FI_CLASS_FABRIC:
		container_of(fid, struct fid_fabric, fid)->ops = &fabric_ops;
		break;
	case FI_CLASS_DOMAIN:
		container_of(fid, struct fid_domain, fid)->ops = &domain_ops;
		container_of(fid, struct fid_domain, fid)->mr = &mr_ops;
		shmcma_lock_forked(container_of(fid, struct shmcma_domain, fid.fid));
		break;
	case FI_CLASS_EP:
	case FI_CLASS_SEP:
	case FI_CLASS_RX_CTX:
	case FI_CLASS_SRX_CTX:
	case FI_CLASS_TX_CTX:
		replace_ep(container_of(fid, struct fid_ep, fid));
		break;
	case FI_CLASS_STX_CTX:
		container_of(fid, struct fid_stx, fid)->ops = &ep_ops;
		break;
	case FI_CLASS_AV:
		av_ops.straddr = container_of(fid, struct fid_av, fid)->ops->straddr;
		container_of(fid, struct fid_av, fid)->ops = &av_ops;
		break;
	case FI_CLASS_AV_SET:
		container_of(fid, struct fid_av_set, fid)->ops = &av_set_ops;
		break;
	case FI_CLASS_EQ:
		eq_ops.strerror = container_of(fid, struct fid_eq, fid)->ops->strerror;
		container_of(fid, struct fid_eq, fid)->ops = &eq_ops;
		break;
	case FI_CLASS_CQ:
		cq_ops.strerror = container_of(fid, struct fid_cq, fid)->ops->strerror;
		container_of(fid, struct fid_cq, fid)->ops = &cq_ops;
		break;
	case FI_CLASS_CNTR:
		container_of(fid, struct fid_cntr, fid)->ops = &cntr_ops;
		break;
	case FI_CLASS_WAIT:
		container_of(fid, struct fid_wait, fid)->ops = &wait_ops;
		break;
	case FI_CLASS_POLL:
		container_of(fid, struct fid_poll, fid)->ops = &poll_ops;
		break;
	}
}

/* ---- around fork(2) -------------------------------------------------------------------------- */

/* The object's own lock; a domain has more. False: this thread does not have all of them. */
static bool hold(struct shmcma_object *object, unsigned int *tries)
{
	object->held = shmcma_fork_hold(object->lock, tries);
	if (!object->held || object->fid->fclass != FI_CLASS_DOMAIN)
		return object->held;
	return shmcma_lock_hold_others(container_of(object->fid, struct shmcma_domain, fid.fid), tries);
}

static void before(void)
{
	static const size_t order[] = { FI_CLASS_POLL, FI_CLASS_WAIT, FI_CLASS_DOMAIN, FI_CLASS_AV,
					FI_CLASS_EQ };
	unsigned int tries = SHMCMA_FORK_TRIES;

	shmcma_lists_lock();
	missed = false;
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		for (struct shmcma_object *each = shmcma_objects_locked(); each; each = each->next)
			if (each->fid->fclass == order[i] && each->lock && !hold(each, &tries))
				missed = true;
}

static void in_parent(void)
{
	for (struct shmcma_object *each = shmcma_objects_locked(); each; each = each->next) {
		if (each->held && each->fid->fclass == FI_CLASS_DOMAIN)
			shmcma_lock_drop_others(container_of(each->fid, struct shmcma_domain, fid.fid));
		if (each->held)
			pthread_mutex_unlock(each->lock);
		each->held = false;
	}
	shmcma_lists_unlock();
}

static void in_child(void)
{
	shmcma_torn = shmcma_torn || missed;
	for (struct shmcma_object *each = shmcma_objects_locked(); each; each = each->next) {
		if (each->lock)
			shmcma_fork_renew(each->lock, each->held);
		each->held = false;
		replace(each->fid);
	}
	shmcma_progress_forked_locked();
	atomic_store(&told_torn, false);
	process = getpid();
	shmcma_lists_unlock();
}

bool shmcma_fork_is_known(void)
{
	return getpid() == process;
}

void shmcma_fork_init(void)
{
	process = getpid();
	if (pthread_atfork(before, in_parent, in_child))
		shmcma_warn(FI_LOG_CORE,
			    "no memory to watch fork(2): a child must not use what is open\n");
}
