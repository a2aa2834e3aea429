/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * join.c: an endpoint joins a group by fi_join, and leaves it by fi_close of its fid_mc.
 *
 * Owns a group from its allocation until shmcma_group_add(), and again from shmcma_group_leave() on. group.c owns it in
 * between. Only the thread that uses the endpoint joins and leaves, under the domain's only lock (lock.h). The death of
 * another process changes nothing here.
 */
#include "coll/coll.h"

#include <stdlib.h>
#include <string.h>
#include "base/param.h"
#include "wait/lock.h"

#define JOIN_TAG (1ULL << 63)

/* ---- leave ----------------------------------------------------------------------------------- */

static int group_close(struct fid *fid)
{
	struct shmcma_group *group = container_of(fid, struct shmcma_group, mc.fid);
	struct shmcma_domain *domain = group->domain;
	int ret = 0;

	if (shmcma_is_torn(&domain->fid.fid))
		return 0;
	shmcma_lock(domain);
	if (!group->coll) /* the endpoint is closed */
		shmcma_group_free(group);
	else if (group->busy)
		ret = -FI_EBUSY;
	else
		shmcma_group_leave(group);
	shmcma_unlock(domain);
	if (!ret)
		atomic_fetch_sub(&domain->refs, 1);
	return ret;
}

static struct fi_ops group_ops = SHMCMA_FID_OPS(group_close, shmcma_no_bind, shmcma_no_control);

/* ---- join ------------------------------------------------------------------------------------ */

static struct shmcma_group *group_new(struct shmcma_coll *coll, const struct shmcma_av_set *set)
{
	struct shmcma_group *group = calloc(1, sizeof(*group));
	size_t each = sizeof(fi_addr_t) + sizeof(struct sc_peer *) + sizeof(uint32_t);

	if (!group)
		return NULL;
	group->addrs = calloc(set->count, each);
	if (!group->addrs) {
		free(group);
		return NULL;
	}
	memcpy(group->addrs, set->addrs, set->count * sizeof(fi_addr_t));
	group->peers = (struct sc_peer **)(group->addrs + set->count);
	group->ids = (uint32_t *)(group->peers + set->count);
	group->coll = coll;
	group->flags = set->flags;
	group->count = (uint32_t)set->count;
	group->rank = SHMCMA_ALL;
	group->alarm = (struct shmcma_transfer){ .standing = true, .group = group };
	group->drain = group->alarm;
	return group;
}

/* FNV-1a, 63 bits of it. */
#define FNV_PRIME 0x100000001b3ULL

static uint64_t add_to_hash(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * FNV_PRIME;
	return hash;
}

/* Finds the endpoint for collectives of one member. */
static int find_member(struct shmcma_group *group, uint32_t rank, const char *address)
{
	struct shmcma_coll *coll = group->coll;
	char service[SC_ADDR_SIZE], name[SC_ADDR_SIZE], found[SC_ADDR_SIZE];
	int ret;

	if (strcmp(address, sc_ep_address(coll->ep->core)) == 0) {
		if (group->rank != SHMCMA_ALL)
			return -FI_EINVAL; /* twice in the set */
		group->rank = rank;
		return 0;
	}
	shmcma_coll_service(address, service);
	ret = sc_addr_service(service, name);
	if (!ret)
		ret = sc_addr_resolve(name, found);
	if (!ret)
		ret = sc_peer_get(coll->core, found, &group->peers[rank]);
	if (ret)
		shmcma_warn(FI_LOG_EP_CTRL,
			    "%s cannot be in a group: it has no FI_COLLECTIVE, is not enabled, or is "
			    "gone: %s\n",
			    address, fi_strerror(-ret));
	return ret ? shmcma_error(ret) : 0;
}

/*
 * How often this endpoint has begun to join a set. All members join a set equally often, so the number tells the
 * messages of one join from those of the next, also where a join has ended with an error and some of its messages were
 * never sent.
 */
struct shmcma_joins {
	uint64_t hash; /* of the set */
	uint64_t begun;
};

/* NULL: no memory. */
static struct shmcma_joins *joins_of(struct shmcma_coll *coll, uint64_t hash)
{
	struct shmcma_joins *joins;

	for (size_t i = 0; i < coll->joins_count; i++)
		if (coll->joins[i].hash == hash)
			return &coll->joins[i];
	joins = shmcma_grow(coll->joins, coll->joins_count, &coll->joins_capacity, sizeof(*joins));
	if (!joins)
		return NULL;
	coll->joins = joins;
	joins[coll->joins_count] = (struct shmcma_joins){ .hash = hash };
	return &joins[coll->joins_count++];
}

static int find_members(struct shmcma_group *group, struct shmcma_av *av)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (uint32_t i = 0; i < group->count; i++) {
		const char *address = shmcma_av_address(av, group->addrs[i]);
		int ret = address ? find_member(group, i, address) : -FI_EINVAL;

		if (ret)
			return ret;
		hash = add_to_hash(hash, address);
	}
	if (group->rank == SHMCMA_ALL) {
		shmcma_warn(FI_LOG_EP_CTRL,
			    "the endpoint is not in the address vector set that it joins\n");
		return -FI_EINVAL;
	}
	group->joint = hash;
	return 0;
}

static void begin_join(struct shmcma_group *group, struct shmcma_collop *op)
{
	op->joins = true;
	op->phase_count = 2;
	op->phases[0] =
		(struct shmcma_phase){ .pattern = SHMCMA_SPREAD,
				       .out = { SHMCMA_WHOLE, (char *)&group->id, sizeof(group->id) },
				       .in = { SHMCMA_EQUAL, (char *)group->ids, sizeof(group->id) },
				       .to = SHMCMA_ALL,
				       .from = SHMCMA_ALL };
	op->phases[1].pattern = SHMCMA_MEET;
	shmcma_collop_begin(op);
}

int shmcma_group_join_locked(struct shmcma_coll *coll, const struct shmcma_av_set *set, void *context,
			     struct shmcma_group **out)
{
	struct shmcma_group *group = group_new(coll, set);
	struct shmcma_joins *joins = NULL;
	struct shmcma_collop *op;
	int ret;

	if (!group)
		return -FI_ENOMEM;
	ret = find_members(group, set->av);
	if (!ret) {
		joins = joins_of(coll, group->joint);
		ret = joins ? shmcma_collop_new(group, context, &op) : -FI_ENOMEM;
	}
	if (!ret) {
		ret = shmcma_eq_join_begin(shmcma_ep_eq(coll->ep), coll, &op->joining);
		if (ret)
			shmcma_collop_free(op);
	}
	if (ret) {
		shmcma_group_free(group);
		return ret;
	}
	group->joint = ((group->joint ^ ++joins->begun) * FNV_PRIME) | JOIN_TAG;
	group->id = ++coll->last_id & 0x7fffffff;
	group->mc.fid = (struct fid){ .fclass = FI_CLASS_MC, .context = context, .ops = &group_ops };
	group->mc.fi_addr = SHMCMA_ADDR_GROUP | group->id;
	group->domain = coll->ep->domain;
	atomic_fetch_add(&group->domain->refs, 1);
	shmcma_group_add(group);
	begin_join(group, op);
	*out = group;
	return 0;
}
