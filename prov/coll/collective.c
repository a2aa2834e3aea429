/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * collective.c: fi_ops_collective: each call as phases of messages (group.c); and fi_query_collective. Only the thread
 * that uses the endpoint posts; any thread may call the query.
 *
 *              up to LARGE bytes                  beyond
 *   barrier    MEET
 *   broadcast  DOWN                               the same: each copies from its parent's memory
 *   alltoall, allgather, scatter, gather: SPREAD: each block is copied once, from its source to its destination
 *   reduce     UP                                 SPREAD reduced: each member one slice; SPREAD of slices to the root
 *   allreduce  UP, DOWN                           SPREAD reduced: each member one slice; SPREAD of slices to all
 *   reduce_scatter   SPREAD reduced
 *
 * `count` is the number of elements that one member sends to, or receives from, one other; of broadcast and the
 * reductions, the elements of each member; of reduce_scatter, the elements that each gets. The order of reduction
 * depends only on the number of members, and all members get the same bits.
 *
 * The application does not touch the buffers before the completion; `buf` and `result` may be the same for reduce,
 * allreduce.
 */
#include "coll/coll.h"

#include <stdlib.h>
#include "op/post.h"

/* Beyond this size each member reduces a slice: two copies of all bytes then cost more than two more rounds. */
#define LARGE 32768

#define COLLECTIVE_FLAGS (FI_COMPLETION | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_INJECT_COMPLETE)

struct asked {
	enum fi_collective_op what;
	const void *buf;
	void *result;
	size_t count;
	fi_addr_t group, root;
	enum fi_datatype type;
	enum fi_op op;
	uint64_t flags;
	void *context;
};

/* ---- what there is --------------------------------------------------------------------------- */

static bool reduces(enum fi_collective_op what)
{
	return what == FI_ALLREDUCE || what == FI_REDUCE_SCATTER || what == FI_REDUCE;
}

static bool has_root(enum fi_collective_op what)
{
	return what == FI_BROADCAST || what == FI_REDUCE || what == FI_SCATTER || what == FI_GATHER;
}

/* `size`: bytes of an element, 0 for a barrier. */
static int check_type(enum fi_collective_op what, enum fi_datatype type, enum fi_op op, size_t *size)
{
	*size = 0;
	if ((unsigned int)what > FI_GATHER)
		return -FI_EOPNOTSUPP;
	if (what == FI_BARRIER)
		return 0;
	*size = sc_atomic_size((enum sc_atomic_type)type);
	if (!*size)
		return -FI_EOPNOTSUPP;
	if (reduces(what) &&
	    !sc_atomic_valid(SC_ATOMIC_BASE, (enum sc_atomic_type)type, (enum sc_atomic_code)op))
		return -FI_EOPNOTSUPP;
	return 0;
}

int shmcma_query_collective(struct fid_domain *fid, enum fi_collective_op what,
			    struct fi_collective_attr *attr, uint64_t flags)
{
	struct shmcma_domain *domain = container_of(fid, struct shmcma_domain, fid);
	size_t size;
	int ret;

	/* FI_SCATTER, as in the manual: it is the number of an operation, and `what` is then FI_REDUCE_SCATTER */
	if (flags && flags != FI_SCATTER)
		return -FI_EBADFLAGS;
	if (!(domain->caps & FI_COLLECTIVE))
		return -FI_EOPNOTSUPP;
	if (!attr || attr->mode)
		return -FI_EINVAL;
	ret = check_type(flags ? FI_REDUCE_SCATTER : what, attr->datatype, attr->op, &size);
	if (ret)
		return ret;
	attr->datatype_attr.size = size;
	attr->datatype_attr.count = size ? SHMCMA_COLL_BYTES_MAX / SHMCMA_COLL_MEMBERS_MAX / size : 0;
	attr->max_members = SHMCMA_COLL_MEMBERS_MAX;
	return 0;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static struct shmcma_blocks blocks(int kind, const void *base, size_t size)
{
	struct shmcma_blocks made = { .base = (char *)base, .size = size };

	made.kind = kind;
	return made;
}

static struct shmcma_phase *next_phase(struct shmcma_collop *op, enum shmcma_pattern pattern)
{
	struct shmcma_phase *phase = &op->phases[op->phase_count++];

	phase->pattern = pattern;
	phase->to = phase->from = SHMCMA_ALL;
	return phase;
}

static void tree(struct shmcma_collop *op, enum shmcma_pattern pattern, struct shmcma_blocks whole,
		 uint32_t root)
{
	struct shmcma_phase *phase = next_phase(op, pattern);

	phase->in = whole;
	phase->root = root;
}

static struct shmcma_phase *spread(struct shmcma_collop *op, struct shmcma_blocks out,
				   struct shmcma_blocks in)
{
	struct shmcma_phase *phase = next_phase(op, SHMCMA_SPREAD);

	phase->out = out;
	phase->in = in;
	return phase;
}

/* Allocates space for the messages of one window that are to be reduced, `size` bytes each. */
static int need_temps(struct shmcma_collop *op, size_t size)
{
	op->temps = malloc(size ? size * SHMCMA_COLL_WINDOW : 1);
	if (!op->temps)
		return -FI_ENOMEM;
	for (int i = 0; i < SHMCMA_COLL_WINDOW; i++)
		op->recvs.window[i].temp = (char *)op->temps + (size_t)i * size;
	return 0;
}

static int need_work(struct shmcma_collop *op, size_t size)
{
	op->work = malloc(size ? size : 1);
	return op->work ? 0 : -FI_ENOMEM;
}

static size_t slice_size(const struct shmcma_collop *op, size_t size)
{
	size_t elements = size / op->element;

	return (elements / op->group->count + 1) * op->element;
}

/* Reduces every member's `out` for this member into `in`, where its own is stored first. */
static void reduce_spread(struct shmcma_collop *op, struct shmcma_blocks out, struct shmcma_blocks in,
			  const void *own)
{
	struct shmcma_phase *phase = spread(op, out, in);

	phase->reduce = true;
	phase->own = own;
}

static struct iovec own_slice(const struct shmcma_collop *op, const void *base, size_t size)
{
	const struct shmcma_blocks slices = blocks(SHMCMA_SLICES, base, size);

	return shmcma_block(op, &slices, op->group->rank);
}

/* Reduces up a tree: into the root's result, else into own memory. */
static int small_reduce(struct shmcma_collop *op, const struct asked *asked, size_t size, void *result,
			uint32_t root)
{
	int ret = need_temps(op, size);

	if (!ret && !result) {
		ret = need_work(op, size);
		result = op->work;
	}
	if (ret)
		return ret;
	tree(op, SHMCMA_UP, blocks(SHMCMA_WHOLE, result, size), root);
	op->phases[op->phase_count - 1].own = asked->buf;
	return 0;
}

static int large_reduce(struct shmcma_collop *op, const struct asked *asked, size_t size, uint32_t root)
{
	struct iovec own = own_slice(op, asked->buf, size);
	bool is_root = op->group->rank == root;
	char *slice;
	int ret = need_temps(op, slice_size(op, size));

	if (!ret && !is_root)
		ret = need_work(op, own.iov_len);
	if (ret)
		return ret;
	slice = is_root ? own_slice(op, asked->result, size).iov_base : op->work;
	reduce_spread(op, blocks(SHMCMA_SLICES, asked->buf, size),
		      blocks(SHMCMA_WHOLE, slice, own.iov_len), own.iov_base);
	if (is_root)
		spread(op, blocks(SHMCMA_NOTHING, NULL, 0), blocks(SHMCMA_SLICES, asked->result, size));
	else
		spread(op, blocks(SHMCMA_WHOLE, slice, own.iov_len), blocks(SHMCMA_NOTHING, NULL, 0))->to =
			root;
	return 0;
}

static int large_allreduce(struct shmcma_collop *op, const struct asked *asked, size_t size)
{
	struct iovec own = own_slice(op, asked->buf, size), slice = own_slice(op, asked->result, size);
	struct shmcma_blocks whole = blocks(SHMCMA_WHOLE, slice.iov_base, slice.iov_len);
	int ret = need_temps(op, slice_size(op, size));

	if (ret)
		return ret;
	reduce_spread(op, blocks(SHMCMA_SLICES, asked->buf, size), whole, own.iov_base);
	spread(op, whole, blocks(SHMCMA_SLICES, asked->result, size));
	return 0;
}

static int reduce_scatter(struct shmcma_collop *op, const struct asked *asked, size_t size)
{
	int ret = need_temps(op, size);

	if (!ret)
		reduce_spread(op, blocks(SHMCMA_EQUAL, asked->buf, size),
			      blocks(SHMCMA_WHOLE, asked->result, size),
			      (const char *)asked->buf + op->group->rank * size);
	return ret;
}

/* `size`: bytes of `count` elements. */
static int plan(struct shmcma_collop *op, const struct asked *asked, size_t size, uint32_t root)
{
	bool is_root = op->group->rank == root;
	int ret;

	switch (asked->what) {
	case FI_BARRIER:
		next_phase(op, SHMCMA_MEET);
		return 0;
	case FI_BROADCAST:
		tree(op, SHMCMA_DOWN, blocks(SHMCMA_WHOLE, asked->buf, size), root);
		return 0;
	case FI_ALLTOALL:
		spread(op, blocks(SHMCMA_EQUAL, asked->buf, size),
		       blocks(SHMCMA_EQUAL, asked->result, size));
		return 0;
	case FI_ALLGATHER:
		spread(op, blocks(SHMCMA_WHOLE, asked->buf, size),
		       blocks(SHMCMA_EQUAL, asked->result, size));
		return 0;
	case FI_SCATTER:
		spread(op, blocks(is_root ? SHMCMA_EQUAL : SHMCMA_NOTHING, asked->buf, size),
		       blocks(SHMCMA_WHOLE, asked->result, size))
			->from = root;
		return 0;
	case FI_GATHER:
		spread(op, blocks(SHMCMA_WHOLE, asked->buf, size),
		       blocks(is_root ? SHMCMA_EQUAL : SHMCMA_NOTHING, asked->result, size))
			->to = root;
		return 0;
	case FI_REDUCE_SCATTER:
		return reduce_scatter(op, asked, size);
	case FI_REDUCE:
		if (size > LARGE)
			return large_reduce(op, asked, size, root);
		return small_reduce(op, asked, size, is_root ? asked->result : NULL, root);
	default: /* FI_ALLREDUCE */
		if (size > LARGE)
			return large_allreduce(op, asked, size);
		ret = small_reduce(op, asked, size, asked->result, 0);
		if (!ret)
			tree(op, SHMCMA_DOWN, blocks(SHMCMA_WHOLE, asked->result, size), 0);
		return ret;
	}
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Returns the group of that address, joined and not broken; else NULL and an error. */
static struct shmcma_group *find_group(struct shmcma_coll *coll, fi_addr_t addr, int *error)
{
	struct shmcma_group *group = coll->groups;

	while (group && group->mc.fi_addr != addr)
		group = group->next;
	if (!group || group->closed)
		*error = -FI_EINVAL;
	else
		*error = group->error ? group->error : group->joined ? 0 : -FI_EOPBADSTATE;
	return *error ? NULL : group;
}

/* Finds the rank of the root, given by its address in the vector. */
static int find_root(const struct shmcma_group *group, const struct asked *asked, uint32_t *root)
{
	*root = 0;
	if (!has_root(asked->what))
		return 0;
	for (uint32_t i = 0; i < group->count; i++)
		if (group->addrs[i] == asked->root) {
			*root = i;
			return 0;
		}
	return -FI_EINVAL;
}

/* A member that sends needs a buffer, a member that receives needs a result. */
static bool has_buffers(const struct shmcma_group *group, const struct asked *asked, uint32_t root)
{
	bool is_root = group->rank == root;

	if (asked->what == FI_BARRIER || !asked->count)
		return true;
	if (!asked->buf && (asked->what != FI_SCATTER || is_root))
		return false;
	if (asked->what == FI_BROADCAST ||
	    (!is_root && (asked->what == FI_REDUCE || asked->what == FI_GATHER)))
		return true;
	return asked->result;
}

static ssize_t post_locked(struct shmcma_ep *ep, const struct asked *asked)
{
	struct shmcma_collop *op;
	struct shmcma_group *group;
	uint32_t root;
	size_t element;
	int ret = check_type(asked->what, asked->type, asked->op, &element);

	if (ret)
		return ret;
	group = find_group(ep->coll, asked->group, &ret);
	if (!group)
		return ret;
	if (!shmcma_set_is_for(group->flags, asked->what))
		return -FI_EOPNOTSUPP;
	if (element && asked->count > SHMCMA_COLL_BYTES_MAX / element / group->count)
		return -FI_EMSGSIZE;
	ret = find_root(group, asked, &root);
	if (!ret && !has_buffers(group, asked, root))
		ret = -FI_EINVAL;
	if (!ret)
		ret = shmcma_collop_new(group, asked->context, &op);
	if (ret)
		return ret;
	op->silent = ep->tx_selective && !(asked->flags & FI_COMPLETION);
	op->type = (enum sc_atomic_type)asked->type;
	op->code = (enum sc_atomic_code)asked->op;
	op->element = element;
	ret = plan(op, asked, asked->count * element, root);
	if (ret) {
		shmcma_collop_free(op);
		return ret;
	}
	shmcma_collop_begin(op);
	return 0;
}

static ssize_t post(struct fid_ep *fid, const struct asked *asked)
{
	struct shmcma_ep *ep = shmcma_ep_of(fid)->ep;
	ssize_t ret;

	if (asked->flags & ~COLLECTIVE_FLAGS)
		return -FI_EBADFLAGS;
	shmcma_lock(ep->domain);
	ret = post_locked(ep, asked);
	shmcma_unlock(ep->domain);
	return ret;
}

SHMCMA_DATA_CALL(coll_barrier2, struct fid_ep *ep, fi_addr_t group, uint64_t flags, void *context)
{
	return post(ep, &(struct asked){
				.what = FI_BARRIER, .group = group, .flags = flags, .context = context });
}

SHMCMA_DATA_CALL(coll_barrier, struct fid_ep *ep, fi_addr_t group, void *context)
{
	return coll_barrier2(ep, group, shmcma_now(shmcma_ep_of(ep)->tx_op_flags) & COLLECTIVE_FLAGS, context);
}

SHMCMA_DATA_CALL(coll_broadcast, struct fid_ep *ep, void *buf, size_t count, void *desc, fi_addr_t group,
		 fi_addr_t root, enum fi_datatype type, uint64_t flags, void *context)
{
	return post(ep, &(struct asked){ FI_BROADCAST, buf, NULL, count, group, root, type, FI_NOOP, flags,
					 context });
}

SHMCMA_DATA_CALL(coll_alltoall, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t group, enum fi_datatype type, uint64_t flags, void *context)
{
	return post(ep, &(struct asked){ FI_ALLTOALL, buf, result, count, group, 0, type, FI_NOOP, flags,
					 context });
}

SHMCMA_DATA_CALL(coll_allreduce, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t group, enum fi_datatype type, enum fi_op op, uint64_t flags,
		 void *context)
{
	return post(ep, &(struct asked){ FI_ALLREDUCE, buf, result, count, group, 0, type, op, flags,
					 context });
}

SHMCMA_DATA_CALL(coll_allgather, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t group, enum fi_datatype type, uint64_t flags, void *context)
{
	return post(ep, &(struct asked){ FI_ALLGATHER, buf, result, count, group, 0, type, FI_NOOP, flags,
					 context });
}

SHMCMA_DATA_CALL(coll_reduce_scatter, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t group, enum fi_datatype type, enum fi_op op, uint64_t flags,
		 void *context)
{
	return post(ep, &(struct asked){ FI_REDUCE_SCATTER, buf, result, count, group, 0, type, op, flags,
					 context });
}

SHMCMA_DATA_CALL(coll_reduce, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t group, fi_addr_t root, enum fi_datatype type, enum fi_op op,
		 uint64_t flags, void *context)
{
	return post(ep, &(struct asked){ FI_REDUCE, buf, result, count, group, root, type, op, flags,
					 context });
}

SHMCMA_DATA_CALL(coll_scatter, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t group, fi_addr_t root, enum fi_datatype type, uint64_t flags,
		 void *context)
{
	return post(ep, &(struct asked){ FI_SCATTER, buf, result, count, group, root, type, FI_NOOP, flags,
					 context });
}

SHMCMA_DATA_CALL(coll_gather, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
		 void *result_desc, fi_addr_t group, fi_addr_t root, enum fi_datatype type, uint64_t flags,
		 void *context)
{
	return post(ep, &(struct asked){ FI_GATHER, buf, result, count, group, root, type, FI_NOOP, flags,
					 context });
}

/* Allows one buffer and one result: members need not agree how their memory is divided, but a block may be anywhere. */
SHMCMA_DATA_CALL(coll_msg, struct fid_ep *ep, const struct fi_msg_collective *msg, struct fi_ioc *result,
		 void **result_desc, size_t result_count, uint64_t flags)
{
	const struct fi_ioc none = { 0 };
	const struct fi_ioc *from = msg->iov_count ? msg->msg_iov : &none;
	const struct fi_ioc *to = result_count ? result : &none;

	if (msg->iov_count > 1 || result_count > 1)
		return -FI_EINVAL;
	return post(ep, &(struct asked){ msg->coll, from->addr, to->addr,
					 msg->iov_count ? from->count : to->count, msg->coll_addr,
					 msg->root_addr, msg->datatype, msg->op, flags, msg->context });
}

#define TABLE(kind)                                                                                       \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_collective), .barrier = kind##_barrier,                      \
		.broadcast = kind##_broadcast, .alltoall = kind##_alltoall, .allreduce = kind##_allreduce,\
		.allgather = kind##_allgather, .reduce_scatter = kind##_reduce_scatter,                   \
		.reduce = kind##_reduce, .scatter = kind##_scatter, .gather = kind##_gather,              \
		.msg = kind##_msg, .barrier2 = kind##_barrier2,                                           \
	}

struct fi_ops_collective shmcma_collective_ops[] = {
	[SHMCMA_COLL_UNABLE] = TABLE(unable_coll),
	[SHMCMA_COLL_DISABLED] = TABLE(disabled_coll),
	[SHMCMA_COLL_ABLE] = TABLE(coll),
	[SHMCMA_COLL_FORKED] = TABLE(forked_coll),
};

/* ---- fi_join --------------------------------------------------------------------------------- */

/* The set determines the members. The address must still be one that this endpoint has returned. */
static int check_join_addr(struct shmcma_coll *coll, const struct fi_collective_addr *addr,
			   const struct shmcma_av_set *set)
{
	int error;

	if (addr->coll_addr == FI_ADDR_NOTAVAIL || addr->coll_addr == set->coll_addr)
		return 0;
	if (addr->coll_addr & SHMCMA_ADDR_GROUP)
		return find_group(coll, addr->coll_addr, &error) ? 0 : error;
	return -FI_EINVAL;
}

int shmcma_join(struct fid_ep *fid, const void *arg, uint64_t flags, struct fid_mc **mc, void *context)
{
	struct shmcma_ep *ep = shmcma_ep_of(fid)->ep;
	const struct fi_collective_addr *addr = arg;
	const struct shmcma_av_set *set;
	struct shmcma_group *group = NULL;
	int ret;

	if (!(flags & FI_COLLECTIVE))
		return -FI_ENOSYS; /* there is no multicast */
	if (flags & ~(FI_COLLECTIVE | FI_SEND | FI_RECV))
		return -FI_EBADFLAGS;
	if (!(ep->caps & FI_COLLECTIVE))
		return -FI_EOPNOTSUPP;
	if (!addr || !addr->set || !mc)
		return -FI_EINVAL;
	set = shmcma_av_set_of(addr->set);
	if (!set || set->av != ep->av || !set->count || set->count > SHMCMA_COLL_MEMBERS_MAX)
		return -FI_EINVAL;
	shmcma_lock(ep->domain);
	if (!ep->coll)
		ret = -FI_EOPBADSTATE;
	else if (!shmcma_ep_eq(ep))
		ret = -FI_ENOEQ;
	else
		ret = check_join_addr(ep->coll, addr, set);
	if (!ret)
		ret = shmcma_group_join_locked(ep->coll, set, context, &group);
	if (!ret)
		*mc = &group->mc;
	shmcma_unlock(ep->domain);
	return ret; /* another thread may have closed the group */
}
