/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * avset.c: fid_av_set: an ordered set of addresses of a vector, from which a group is joined; see fi_av_set(3).
 *
 * All of it is private memory. One thread at a time uses a set, as libfabric specifies: only calls to the vector take a
 * lock here.
 */
#include "obj/avset.h"

#include <stdlib.h>
#include <string.h>

#define SET_FLAGS (FI_UNIVERSE | SHMCMA_SET_OPS)

static struct shmcma_av_set *set_of(struct fid_av_set *fid)
{
	return container_of(fid, struct shmcma_av_set, fid);
}

static bool has(const struct shmcma_av_set *set, fi_addr_t addr)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->addrs[i] == addr)
			return true;
	return false;
}

static int append(struct shmcma_av_set *set, fi_addr_t addr)
{
	fi_addr_t *addrs = shmcma_grow(set->addrs, set->count, &set->capacity, sizeof(*addrs));

	if (!addrs)
		return -FI_ENOMEM;
	set->addrs = addrs;
	set->addrs[set->count++] = addr;
	return 0;
}

/* Keeps the addresses that are, or are not, in the other set, in their order. */
static void keep(struct shmcma_av_set *set, const struct shmcma_av_set *other, bool in_other)
{
	size_t kept = 0;

	for (size_t i = 0; i < set->count; i++)
		if (has(other, set->addrs[i]) == in_other)
			set->addrs[kept++] = set->addrs[i];
	set->count = kept;
}

static bool same_vector(const struct fid_av_set *dst, const struct fid_av_set *src)
{
	return src && container_of(dst, struct shmcma_av_set, fid)->av ==
			      container_of(src, struct shmcma_av_set, fid)->av;
}

SHMCMA_CALL(int, set_union, struct fid_av_set *fid, const struct fid_av_set *src)
{
	const struct shmcma_av_set *from = container_of(src, struct shmcma_av_set, fid);
	struct shmcma_av_set *set = set_of(fid);

	if (!same_vector(fid, src))
		return -FI_EINVAL;
	for (size_t i = 0; i < from->count; i++) {
		int ret = has(set, from->addrs[i]) ? 0 : append(set, from->addrs[i]);

		if (ret)
			return ret;
	}
	return 0;
}

SHMCMA_CALL(int, set_intersect, struct fid_av_set *fid, const struct fid_av_set *src)
{
	if (!same_vector(fid, src))
		return -FI_EINVAL;
	keep(set_of(fid), container_of(src, struct shmcma_av_set, fid), true);
	return 0;
}

SHMCMA_CALL(int, set_diff, struct fid_av_set *fid, const struct fid_av_set *src)
{
	if (!same_vector(fid, src))
		return -FI_EINVAL;
	if (fid == src)
		set_of(fid)->count = 0;
	else
		keep(set_of(fid), container_of(src, struct shmcma_av_set, fid), false);
	return 0;
}

SHMCMA_CALL(int, set_insert, struct fid_av_set *fid, fi_addr_t addr)
{
	struct shmcma_av_set *set = set_of(fid);

	if (!shmcma_av_address(set->av, addr) || has(set, addr))
		return -FI_EINVAL;
	return append(set, addr);
}

SHMCMA_CALL(int, set_remove, struct fid_av_set *fid, fi_addr_t addr)
{
	struct shmcma_av_set *set = set_of(fid);

	for (size_t i = 0; i < set->count; i++) {
		if (set->addrs[i] != addr)
			continue;
		set->count--;
		memmove(&set->addrs[i], &set->addrs[i + 1], (set->count - i) * sizeof(*set->addrs));
		return 0;
	}
	return -FI_EINVAL;
}

SHMCMA_CALL(int, set_addr, struct fid_av_set *fid, fi_addr_t *coll_addr)
{
	if (!coll_addr)
		return -FI_EINVAL;
	*coll_addr = set_of(fid)->coll_addr;
	return 0;
}

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_av_set), .set_union = way##set_union,                        \
		.intersect = way##set_intersect, .diff = way##set_diff, .insert = way##set_insert,        \
		.remove = way##set_remove, .addr = way##set_addr,                                         \
	}
static struct fi_ops_av_set set_ops = OPS(), forked_ops = OPS(forked_);

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_av_set, fid)->ops = &forked_ops;
}

/* A group that was joined with the set has a copy of it. */
static int set_close(struct fid *fid)
{
	struct shmcma_av_set *set = container_of(fid, struct shmcma_av_set, fid.fid);

	shmcma_object_del(&set->object);
	atomic_fetch_sub(&set->av->refs, 1);
	free(set->addrs);
	free(set);
	return 0;
}

static struct fi_ops set_fid_ops = SHMCMA_FID_OPS(set_close, shmcma_no_bind, shmcma_no_control);

struct shmcma_av_set *shmcma_av_set_of(const struct fid_av_set *fid)
{
	if (fid->fid.fclass != FI_CLASS_AV_SET)
		return NULL;
	return container_of(fid, struct shmcma_av_set, fid);
}

/* Leaves out addresses that the vector does not have, such as removed ones. */
static int fill(struct shmcma_av_set *set, fi_addr_t start, fi_addr_t end, uint64_t stride)
{
	fi_addr_t count = shmcma_av_count(set->av);
	int ret = 0;

	for (fi_addr_t addr = start; !ret && addr <= end && addr < count; addr += stride) {
		if (shmcma_av_address(set->av, addr))
			ret = append(set, addr);
		if (addr > UINT64_MAX - stride)
			break;
	}
	return ret;
}

static int check_attr(const struct fi_av_set_attr *attr)
{
	if (!attr)
		return -FI_EINVAL;
	if (attr->flags & ~SET_FLAGS)
		return -FI_EBADFLAGS;
	if (attr->comm_key_size) {
		shmcma_warn(FI_LOG_AV, "fi_av_set: comm_key_size must be 0\n");
		return -FI_EOPNOTSUPP;
	}
	if (attr->flags & FI_UNIVERSE || attr->start_addr == FI_ADDR_NOTAVAIL)
		return 0;
	if (attr->end_addr == FI_ADDR_NOTAVAIL || attr->start_addr > attr->end_addr || !attr->stride)
		return -FI_EINVAL;
	if (attr->count && (attr->end_addr - attr->start_addr) / attr->stride >= attr->count)
		return -FI_EINVAL;
	return 0;
}

int shmcma_av_set_open(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **out,
		       void *context)
{
	static _Atomic uint64_t sets;
	struct shmcma_av_set *set;
	int ret = check_attr(attr);

	if (ret)
		return ret;
	set = calloc(1, sizeof(*set));
	if (!set)
		return -FI_ENOMEM;
	set->av = container_of(av, struct shmcma_av, fid);
	if (attr->flags & FI_UNIVERSE)
		ret = fill(set, 0, FI_ADDR_NOTAVAIL - 1, 1);
	else if (attr->start_addr != FI_ADDR_NOTAVAIL)
		ret = fill(set, attr->start_addr, attr->end_addr, attr->stride);
	if (ret) {
		free(set->addrs);
		free(set);
		return ret;
	}
	set->flags = attr->flags;
	set->coll_addr = SHMCMA_ADDR_SET | atomic_fetch_add(&sets, 1);
	set->fid.fid = (struct fid){ .fclass = FI_CLASS_AV_SET, .context = context, .ops = &set_fid_ops };
	set->fid.ops = &set_ops;
	atomic_fetch_add(&set->av->refs, 1);
	shmcma_object_add(&set->object, &set->fid.fid, NULL, forked);
	*out = &set->fid;
	return 0;
}
