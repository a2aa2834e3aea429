/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.c: fid_mr: registered memory from fi_mr_reg to fi_close, and the raw keys of a domain. Any thread. Calls of the
 * core hold all locks of the domain (lock.h), because each endpoint may serve peers by the domain's table; fi_mr_reg
 * holds the common lock.
 *
 * State      entered by                                      key         bind
 * local      fi_mr_reg without access for peers              none        yes, without effect
 * disabled   fi_mr_reg in a mode that asks for fi_mr_enable  none        yes
 * open       fi_mr_reg, fi_mr_enable                         valid       counters, unless it was disabled
 * closed     fi_close, even if it returns -FI_EBUSY          not usable  no
 *
 * Nothing is done to the memory, and the data calls need no descriptor: a region is an entry in the core's table
 * (sc_reg_open()), or only this object if its access is local. regtab.c owns the part that other processes see, and
 * describes what remains when they die.
 *
 * Without FI_MR_RMA_EVENT and FI_MR_ENDPOINT in the domain's mr_mode a region is open at once. Counters may be bound to
 * it later: they count accesses of peers from then on.
 */
#include "obj/mr.h"

#include <stdlib.h>
#include <string.h>
#include "obj/cntr.h"
#include "wait/lock.h"

/* Like messages, collectives need no registration here. */
#define LOCAL_ACCESS (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_COLLECTIVE)
#define REMOTE_ACCESS (FI_REMOTE_READ | FI_REMOTE_WRITE)

struct mr {
	struct fid_mr fid;
	struct shmcma_domain *domain;
	struct sc_reg *reg; /* NULL: local or disabled */
	struct shmcma_cntr *reads, *writes;
	uint64_t base;		   /* remote address of the first byte */
	struct disabled *disabled; /* until fi_mr_enable */
	bool was_disabled, closing;
};

/* The arguments that fi_mr_enable needs. */
struct disabled {
	uint64_t key;
	uint32_t flags;
	bool on_endpoint, needs_endpoint;
	size_t range_count;
	struct iovec ranges[];
};

/* ---- enable, bind ---------------------------------------------------------------------------- */

bool shmcma_mr_is_of(const struct fid *mr, const struct shmcma_domain *domain)
{
	return container_of(mr, const struct mr, fid.fid)->domain == domain;
}

/* With all locks of the domain held, or the common lock: see open_one(). */
static int open_locked(struct mr *mr, const struct sc_reg_attr *attr)
{
	int ret = sc_reg_open(mr->domain->regtab, attr, &mr->reg);

	if (!ret)
		mr->fid.key = sc_reg_key(mr->reg);
	return shmcma_error(ret);
}

static struct sc_cntr *counts(struct shmcma_cntr *cntr)
{
	return cntr ? &cntr->count : NULL;
}

static int enable_locked(struct mr *mr)
{
	const struct disabled *disabled = mr->disabled;
	uint32_t event = mr->reads || mr->writes ? SC_REG_EVENT : 0;
	int ret;

	if (!disabled)
		return 0; /* open since fi_mr_reg */
	if (disabled->needs_endpoint && !disabled->on_endpoint)
		return -FI_EOPBADSTATE;
	ret = open_locked(mr, &(struct sc_reg_attr){ .ranges = disabled->ranges,
						     .range_count = disabled->range_count,
						     .key = disabled->key,
						     .flags = disabled->flags | event,
						     .reads = counts(mr->reads),
						     .writes = counts(mr->writes) });
	if (ret)
		return ret;
	free(mr->disabled);
	mr->disabled = NULL;
	return 0;
}

static int bind_counter(struct mr *mr, struct fid *fid, uint64_t flags)
{
	struct shmcma_cntr *cntr;

	if (!flags || flags & ~REMOTE_ACCESS)
		return -FI_EBADFLAGS;
	if ((flags & FI_REMOTE_READ && mr->reads) || (flags & FI_REMOTE_WRITE && mr->writes))
		return -FI_EINVAL; /* one counter of each kind */
	cntr = shmcma_cntr_get_locked(fid, mr->domain);
	if (!cntr)
		return -FI_EINVAL;
	if (flags & FI_REMOTE_READ)
		mr->reads = cntr;
	if (flags & FI_REMOTE_WRITE)
		mr->writes = cntr;
	if (flags == REMOTE_ACCESS)
		shmcma_cntr_get_locked(fid, mr->domain); /* each holds a reference */
	if (mr->reg)
		sc_reg_set_cntrs(mr->reg, counts(mr->reads), counts(mr->writes));
	return 0;
}

/*
 * A peer names an endpoint of the domain and a key: it can access a region through all endpoints, even if the region is
 * bound to one, as FI_MR_ENDPOINT asks.
 */
static int bind_endpoint(struct mr *mr, struct fid *fid, uint64_t flags)
{
	if (flags)
		return -FI_EBADFLAGS;
	if (container_of(fid, struct shmcma_ep_fid, fid.fid)->domain != mr->domain)
		return -FI_EINVAL;
	if (mr->disabled)
		mr->disabled->on_endpoint = true;
	return 0;
}

static int bind_locked(struct mr *mr, struct fid *fid, uint64_t flags)
{
	if (mr->closing || (mr->was_disabled && !mr->disabled))
		return -FI_EOPBADSTATE;
	switch (fid->fclass) {
	case FI_CLASS_CNTR:
		return bind_counter(mr, fid, flags);
	case FI_CLASS_EP:
	case FI_CLASS_SEP:
	case FI_CLASS_RX_CTX:
	case FI_CLASS_TX_CTX:
		return bind_endpoint(mr, fid, flags);
	default:
		return -FI_EINVAL;
	}
}

static int mr_bind(struct fid *fid, struct fid *object, uint64_t flags)
{
	struct mr *mr = container_of(fid, struct mr, fid.fid);
	int ret;

	if (shmcma_is_forked(&mr->domain->fid.fid))
		return shmcma_forked();
	if (!object)
		return -FI_EINVAL;
	shmcma_lock(mr->domain);
	ret = bind_locked(mr, object, flags);
	shmcma_unlock(mr->domain);
	return ret;
}

/* ---- control --------------------------------------------------------------------------------- */

/* The kernel looks up the pages at each copy: there is nothing to refresh. */
static int refresh(const struct fi_mr_modify *modify)
{
	if (modify->flags)
		return -FI_EBADFLAGS;
	return modify->attr.iov_count && !modify->attr.mr_iov ? -FI_EINVAL : 0;
}

/* A raw key is the key. */
static int get_raw(const struct mr *mr, const struct fi_mr_raw_attr *attr)
{
	size_t room;

	if (attr->flags)
		return -FI_EBADFLAGS;
	if (!mr->reg)
		return -FI_ENOKEY;
	if (!attr->key_size)
		return -FI_EINVAL;
	room = *attr->key_size;
	*attr->key_size = sizeof(mr->fid.key);
	if (room < sizeof(mr->fid.key))
		return -FI_ETOOSMALL;
	if (!attr->raw_key)
		return -FI_EINVAL;
	memcpy(attr->raw_key, &mr->fid.key, sizeof(mr->fid.key));
	if (attr->base_addr)
		*attr->base_addr = mr->base;
	return 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	struct mr *mr = container_of(fid, struct mr, fid.fid);
	int ret;

	if (shmcma_is_forked(&mr->domain->fid.fid))
		return shmcma_forked();
	if (command == FI_ENABLE) {
		shmcma_lock(mr->domain);
		ret = enable_locked(mr);
		shmcma_unlock(mr->domain);
		return ret;
	}
	if (command != FI_REFRESH && command != FI_GET_RAW_MR)
		return -FI_ENOSYS;
	if (!arg)
		return -FI_EINVAL;
	return command == FI_REFRESH ? refresh(arg) : get_raw(mr, arg);
}

int shmcma_mr_map_raw(const struct fi_mr_map_raw *map)
{
	if (map->flags)
		return -FI_EBADFLAGS;
	if (map->key_size != sizeof(*map->key) || !map->raw_key || !map->key)
		return -FI_EINVAL;
	memcpy(map->key, map->raw_key, sizeof(*map->key));
	return 0;
}

/* ---- close ----------------------------------------------------------------------------------- */

/* -FI_EBUSY: a peer was stopped in the middle of a copy; the key is not usable any more, the object stays. */
static int mr_close(struct fid *fid)
{
	struct mr *mr = container_of(fid, struct mr, fid.fid);
	struct shmcma_domain *domain = mr->domain;
	int ret = 0;

	if (shmcma_is_torn(&domain->fid.fid))
		return 0;
	if (mr->reg) {
		shmcma_lock(domain);
		mr->closing = true;
		ret = sc_reg_close(mr->reg);
		shmcma_unlock(domain);
	}
	if (ret)
		return ret;
	if (mr->reads)
		atomic_fetch_sub(&mr->reads->refs, 1);
	if (mr->writes)
		atomic_fetch_sub(&mr->writes->refs, 1);
	free(mr->disabled);
	free(mr);
	atomic_fetch_sub(&domain->refs, 1);
	return 0;
}

static struct fi_ops mr_fid_ops = SHMCMA_FID_OPS(mr_close, mr_bind, mr_control);

/* ---- register -------------------------------------------------------------------------------- */

/* The arguments of fi_mr_reg, or the fields of struct fi_mr_attr that the application's version has. */
struct request {
	const struct iovec *ranges;
	size_t range_count;
	uint64_t access, requested_key, flags;
	void *context;
};

static int check(const struct request *request)
{
	if (request->flags & ~FI_RMA_EVENT) {
		shmcma_warn(FI_LOG_MR, "registration flags %#llx: only FI_RMA_EVENT is known\n",
			    (unsigned long long)request->flags);
		return -FI_EBADFLAGS;
	}
	if (request->access & ~(LOCAL_ACCESS | REMOTE_ACCESS)) {
		shmcma_warn(FI_LOG_MR,
			    "registration access %#llx: only FI_SEND, RECV, READ, WRITE, COLLECTIVE,"
			    " REMOTE_READ and REMOTE_WRITE are known\n",
			    (unsigned long long)request->access);
		return -FI_EINVAL;
	}
	return request->range_count && request->ranges && request->range_count <= SC_REG_RANGES_MAX
		       ? 0
		       : -FI_EINVAL;
}

static uint32_t reg_flags(const struct shmcma_domain *domain, const struct request *request)
{
	return (request->access & FI_REMOTE_READ ? SC_REG_READ : 0) |
	       (request->access & FI_REMOTE_WRITE ? SC_REG_WRITE : 0) |
	       (domain->mr_mode & FI_MR_VIRT_ADDR ? SC_REG_VIRTUAL : 0) |
	       (domain->mr_mode & FI_MR_PROV_KEY ? 0 : SC_REG_KEY);
}

static bool begins_disabled(const struct shmcma_domain *domain, const struct request *request)
{
	return domain->mr_mode & FI_MR_ENDPOINT ||
	       (domain->mr_mode & FI_MR_RMA_EVENT && request->flags & FI_RMA_EVENT);
}

static int keep_slow(struct mr *mr, const struct sc_reg_attr *attr)
{
	struct disabled *kept = malloc(sizeof(*kept) + attr->range_count * sizeof(kept->ranges[0]));

	if (!kept)
		return -FI_ENOMEM;
	*kept = (struct disabled){ .key = attr->key,
				   .flags = attr->flags,
				   .needs_endpoint = mr->domain->mr_mode & FI_MR_ENDPOINT,
				   .range_count = attr->range_count };
	memcpy(kept->ranges, attr->ranges, attr->range_count * sizeof(kept->ranges[0]));
	mr->disabled = kept;
	mr->was_disabled = true;
	return 0;
}

/* Returns the address of the first byte of the ranges. */
static uint64_t first_address(const struct request *request)
{
	size_t i = 0;

	while (i + 1 < request->range_count && !request->ranges[i].iov_len)
		i++;
	return (uintptr_t)request->ranges[i].iov_base;
}

/*
 * Takes only the common lock if possible, so that data calls of other threads go on: only its holder changes the table.
 */
static int open_one(struct mr *mr, const struct sc_reg_attr *attr)
{
	struct shmcma_domain *domain = mr->domain;
	bool all;
	int ret = 0;

	shmcma_lock_common(domain);
	all = sc_reg_wants_all(domain->regtab, attr->flags);
	if (__builtin_expect(!all, 1))
		ret = open_locked(mr, attr);
	shmcma_unlock_common(domain);
	if (__builtin_expect(!all, 1))
		return ret;
	shmcma_lock(domain);
	ret = open_locked(mr, attr);
	shmcma_unlock(domain);
	return ret;
}

/* fi_mr_key() returns FI_KEY_NOTAVAIL for a region without key, so it is not allowed as a key. */
static int make_accessible(struct mr *mr, const struct request *request)
{
	const struct sc_reg_attr attr = { .ranges = request->ranges,
					  .range_count = request->range_count,
					  .key = request->requested_key,
					  .flags = reg_flags(mr->domain, request) };

	if (attr.flags & SC_REG_KEY && attr.key == FI_KEY_NOTAVAIL)
		return -FI_EKEYREJECTED;
	if (attr.flags & SC_REG_VIRTUAL)
		mr->base = first_address(request);
	if (begins_disabled(mr->domain, request))
		return keep_slow(mr, &attr);
	return open_one(mr, &attr);
}

static int reg(struct shmcma_domain *domain, const struct request *request, struct fid_mr **out)
{
	int ret = check(request);
	struct mr *mr;

	if (ret)
		return ret;
	mr = malloc(sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	*mr = (struct mr){ .domain = domain };
	mr->fid.fid = (struct fid){ .fclass = FI_CLASS_MR, .context = request->context, .ops = &mr_fid_ops };
	mr->fid.key = FI_KEY_NOTAVAIL;
	if (request->access & REMOTE_ACCESS)
		ret = make_accessible(mr, request);
	if (ret) {
		free(mr);
		return ret;
	}
	atomic_fetch_add_explicit(&domain->refs, 1,
				  memory_order_relaxed); /* relaxed: the caller keeps the domain open */
	*out = &mr->fid;
	return 0;
}

SHMCMA_CALL(int, mr_regv, struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
	    uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
	const struct request request = { .ranges = iov,
					 .range_count = count,
					 .access = access,
					 .requested_key = requested_key,
					 .flags = flags,
					 .context = context };

	if (fid->fclass != FI_CLASS_DOMAIN || offset)
		return -FI_EINVAL;
	return reg(container_of(fid, struct shmcma_domain, fid.fid), &request, mr);
}

SHMCMA_CALL(int, mr_reg, struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
	    uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };

	return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr, context);
}

/*
 * The structure grew: authorization keys came with 1.5, interfaces of device memory with 1.9. Fields that the
 * application's version does not have are not read.
 */
static int check_attr(const struct shmcma_domain *domain, const struct fi_mr_attr *attr)
{
	if (FI_VERSION_GE(domain->api_version, FI_VERSION(1, 5)) && attr->auth_key_size) {
		shmcma_warn(FI_LOG_MR, "fi_mr_regattr: auth_key_size must be 0\n");
		return -FI_EOPNOTSUPP;
	}
	if (domain->caps & FI_HMEM && attr->iface != FI_HMEM_SYSTEM) {
		shmcma_warn(FI_LOG_MR, "device memory cannot be registered\n");
		return -FI_EOPNOTSUPP;
	}
	return 0;
}

SHMCMA_CALL(int, mr_regattr, struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr)
{
	int ret;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr)
		return -FI_EINVAL;
	ret = check_attr(container_of(fid, struct shmcma_domain, fid.fid), attr);
	if (ret)
		return ret;
	return mr_regv(fid, attr->mr_iov, attr->iov_count, attr->access, attr->offset, attr->requested_key,
		       flags, mr, attr->context);
}

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_mr), .reg = way##mr_reg, .regv = way##mr_regv,               \
		.regattr = way##mr_regattr,                                                               \
	}
struct fi_ops_mr shmcma_mr_ops = OPS(), shmcma_mr_forked_ops = OPS(forked_);
