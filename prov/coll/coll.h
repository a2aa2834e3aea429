/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coll.h: groups of endpoints and collective operations; see fi_collective(3).
 *
 * An endpoint with FI_COLLECTIVE has a second endpoint of the core for its groups (group.c), found under a name that is
 * made of the first one's address: its messages are matched, limited and counted apart from the application's. A
 * collective operation (struct shmcma_collop) has up to three phases (collective.c). Each phase is a pattern of
 * messages between the members (pattern.c, group.c).
 *
 * All of it is used under the lock of the endpoint's domain, which then has one.
 */
#ifndef SHMCMA_COLL_H
#define SHMCMA_COLL_H

#include <rdma/fi_collective.h>
#include "obj/avset.h"
#include "obj/eq.h"

/* Messages of an operation under way in each direction, and so the readers of one member's memory at a time. */
#define SHMCMA_COLL_WINDOW 4
#define SHMCMA_COLL_PHASES 3
/* The most members of a group: the peers that may connect to an endpoint, and itself. */
#define SHMCMA_COLL_MEMBERS_MAX 1025

/* The pairs of sender and receiver in a phase. The rank of a member is its place in the address vector set. */
enum shmcma_pattern {
	SHMCMA_MEET, /* dissemination: round k: to rank + 2^k, from rank - 2^k; all came before one is done */
	SHMCMA_SPREAD, /* each to each, nearest rank first, without pairs that have no data */
	SHMCMA_DOWN,   /* along a binomial tree from the root */
	SHMCMA_UP,     /* along the same tree to the root, reduced on the way */
};

/* Memory that is divided among the members, in bytes. */
struct shmcma_blocks {
	enum {
		SHMCMA_NOTHING,
		SHMCMA_WHOLE,  /* the same `size` bytes for each */
		SHMCMA_EQUAL,  /* `size` bytes for each, one after the other */
		SHMCMA_SLICES, /* `size` bytes in all, in whole elements, as even as possible */
	} kind;
	char *base;
	size_t size;
};

struct shmcma_phase {
	enum shmcma_pattern pattern;
	struct shmcma_blocks out, in; /* UP, DOWN: one WHOLE, in `in` */
	/* SPREAD: the only rank that is sent to, or received from; or SHMCMA_ALL */
	uint32_t to, from;
	uint32_t root; /* UP, DOWN */
	bool reduce;   /* SPREAD: received data is reduced into `in` */
	/* UP, SPREAD with `reduce`: this member's own contribution; NULL: it is in `in` already */
	const char *own;
};
#define SHMCMA_ALL UINT32_MAX

/* A message of an operation. */
struct shmcma_transfer {
	enum { SHMCMA_IDLE, SHMCMA_BUSY, SHMCMA_DONE } state;
	bool standing; /* belongs to a group, not to an operation */
	struct shmcma_group *group;
	uint32_t peer; /* rank of the other member */
	size_t size;   /* bytes to receive */
	char *temp;  /* data to reduce; owned by the operation */
};

/* The messages of a phase in one direction, in order: their number, how many have begun, how many have ended. */
struct shmcma_way {
	size_t count, begun, over;
	struct shmcma_transfer window[SHMCMA_COLL_WINDOW];
};

struct shmcma_collop {
	struct shmcma_collop *next; /* shmcma_coll.ops, oldest first */
	struct shmcma_group *group;
	void *context;
	bool joins; /* the operation is fi_join */
	struct shmcma_joining joining;
	bool silent;
	int error;    /* negative errno: the operation ends when no transfer is busy */
	bool settled; /* the application has been told of its end */
	uint32_t seq;
	enum sc_atomic_type type;
	enum sc_atomic_code code;
	size_t element; /* bytes */
	struct shmcma_phase phases[SHMCMA_COLL_PHASES];
	int phase_count, at;
	struct shmcma_way sends, recvs; /* of the current phase */
	void *work;			/* memory that is freed with it */
	void *temps;			/* SHMCMA_COLL_WINDOW blocks for data to reduce */
};

/* A group that an endpoint has joined, or is joining. */
struct shmcma_group {
	struct fid_mc mc;
	struct shmcma_domain *domain; /* it stays open until the group is closed */
	struct shmcma_coll *coll;     /* NULL: the endpoint is closed */
	struct shmcma_group *next; /* shmcma_coll.groups */
	uint32_t id;		   /* in all messages of the group to this member; never used again */
	bool joined, closed;
	int error;	     /* negative errno: a member is lost, and the group stays broken */
	uint32_t next_notified; /* rank of the next member to be told of the error */
	uint32_t rank, count;
	uint64_t flags;	  /* FI_*_SET */
	uint32_t seq;	  /* number of the next operation */
	/* in messages of fi_join: a hash of all members' addresses, and which join of the set this is */
	uint64_t joint;
	uint32_t busy;	  /* operations under way */
	fi_addr_t *addrs; /* by rank, as in the set; the arrays below are in the same memory */
	struct sc_peer **peers;
	uint32_t *ids; /* 0: unknown; or the member has been told of the error, or has told of one */
	struct shmcma_transfer alarm; /* a receive for the message that a member is lost */
	struct shmcma_transfer drain; /* after that: receives what others sent before they knew */
};

static inline bool shmcma_set_is_for(uint64_t flags, enum fi_collective_op op)
{
	return !(flags & SHMCMA_SET_OPS) || flags & FI_BARRIER_SET << op;
}

/* The most bytes in the blocks of all members. */
#define SHMCMA_COLL_BYTES_MAX (SIZE_MAX / 4)

/* ---- group.c --------------------------------------------------------------------------------- */

/* Called by fi_enable of an endpoint with FI_COLLECTIVE, and at its end. */
int shmcma_coll_open(struct shmcma_ep *ep);
void shmcma_coll_close(struct shmcma_ep *ep);

/* Makes the service name of the collectives of an endpoint from the endpoint's address. */
void shmcma_coll_service(const char *address, char *service);

/* The endpoint of `group->coll` takes part in the group, until the application closes the group. */
void shmcma_group_add(struct shmcma_group *group);
/* Frees the group, or, if it is broken, lets the endpoint free it. */
void shmcma_group_leave(struct shmcma_group *group);
void shmcma_group_free(struct shmcma_group *group);

/* Creates an operation without phases. -FI_EAGAIN: no space for its completion now. -FI_ENOMEM. */
int shmcma_collop_new(struct shmcma_group *group, void *context, struct shmcma_collop **op);
void shmcma_collop_free(struct shmcma_collop *op);
/* Begins it as the group's next operation. */
void shmcma_collop_begin(struct shmcma_collop *op);

/* ---- join.c ---------------------------------------------------------------------------------- */

/* fi_join: the group exists at once, and is usable after FI_JOIN_COMPLETE. */
int shmcma_group_join_locked(struct shmcma_coll *coll, const struct shmcma_av_set *set, void *context,
			     struct shmcma_group **group);

/* ---- pattern.c ------------------------------------------------------------------------------- */

/* Computes the steps of the phase that begins, in each direction. */
void shmcma_pattern_count_steps(struct shmcma_collop *op);
/*
 * Returns the rank that step `step` sends to, or receives from, or SHMCMA_ALL: none. The largest subtree comes first.
 */
uint32_t shmcma_pattern_send_peer(const struct shmcma_collop *op, size_t step);
uint32_t shmcma_pattern_recv_peer(const struct shmcma_collop *op, size_t step);
/* Tells whether step `step` may send now. */
bool shmcma_pattern_may_send(const struct shmcma_collop *op, size_t step);

/* Returns that member's part of the blocks. */
struct iovec shmcma_block(const struct shmcma_collop *op, const struct shmcma_blocks *blocks, uint32_t member);

/* ---- collective.c ---------------------------------------------------------------------------- */

enum shmcma_collectives {
	SHMCMA_COLL_UNABLE,   /* without FI_COLLECTIVE: -FI_EOPNOTSUPP */
	SHMCMA_COLL_DISABLED, /* before fi_enable: -FI_EOPBADSTATE */
	SHMCMA_COLL_ABLE,
	SHMCMA_COLL_FORKED,
};
extern struct fi_ops_collective shmcma_collective_ops[]; /* by enum shmcma_collectives */

int shmcma_query_collective(struct fid_domain *domain, enum fi_collective_op op,
			    struct fi_collective_attr *attr, uint64_t flags);
int shmcma_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context);

#endif
