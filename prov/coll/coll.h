/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coll.h: groups of endpoints and what they do together; see fi_collective(3).
 *
 * An endpoint with FI_COLLECTIVE has a second endpoint of the core for it (group.c), found under a name made
 * of the first one's address: messages of its groups are matched, windowed and counted apart from the application's. A
 * collective operation (struct shmcma_collop) is up to three phases (collective.c), each of which is a pattern of
 * messages between the members (pattern.c, group.c).
 *
 * All of it is used under the lock of the endpoint's domain, which is one where there is such an endpoint.
 */
#ifndef SHMCMA_COLL_H
#define SHMCMA_COLL_H

#include <rdma/fi_collective.h>
#include "obj/avset.h"
#include "obj/eq.h"

/* Messages of an operation under way in each direction: as many processes read one's memory at a time. */
#define SHMCMA_COLL_WINDOW 4
#define SHMCMA_COLL_PHASES 3
/* The most members of a group: the peers that may connect to an endpoint, and itself. */
#define SHMCMA_COLL_MEMBERS_MAX 1025

/* The pairs of sender and receiver in a phase. Every member has a rank in it, its place in the address vector set. */
enum shmcma_pattern {
	SHMCMA_MEET, /* dissemination: in round k to rank + 2^k, from rank - 2^k; nobody is through before all came */
	SHMCMA_SPREAD, /* each to each, nearest rank first, or those that have nothing left out */
	SHMCMA_DOWN,   /* along a binomial tree from the root */
	SHMCMA_UP,     /* along the same tree to the root, reduced on the way */
};

/* Memory that is divided among the members, bytes. */
struct shmcma_blocks {
	enum {
		SHMCMA_NOTHING,
		SHMCMA_WHOLE,  /* the same `size` bytes for each */
		SHMCMA_EQUAL,  /* `size` bytes for each, one behind the other */
		SHMCMA_SLICES, /* `size` bytes in all, whole elements, as even as can be */
	} kind;
	char *base;
	size_t size;
};

struct shmcma_phase {
	enum shmcma_pattern pattern;
	struct shmcma_blocks out, in; /* UP, DOWN: one WHOLE, in `in` */
	/* SPREAD: the only rank that is sent to, received from; or SHMCMA_ALL */
	uint32_t to, from;
	uint32_t root; /* UP, DOWN */
	bool reduce;   /* SPREAD: what comes is reduced into `in`, not put there */
	/* UP, SPREAD with `reduce`: what this member contributes itself; NULL: it is there already */
	const char *own;
};
#define SHMCMA_ALL UINT32_MAX

/* A message of an operation. */
struct shmcma_transfer {
	struct shmcma_collop *op;
	enum { SHMCMA_IDLE, SHMCMA_BUSY, SHMCMA_DONE } state;
	bool standing; /* of a group, not of an operation */
	struct shmcma_group *group;
	size_t size; /* bytes that are to come */
	char *temp;  /* data to be reduced; the operation's */
};

/* The messages of a phase in one direction, each in its turn: how many there are, have been begun, are over. */
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
	int error; /* negative errno: it ends when no transfer is busy */
	uint32_t seq;
	enum sc_atomic_type type;
	enum sc_atomic_code code;
	size_t element; /* bytes */
	struct shmcma_phase phases[SHMCMA_COLL_PHASES];
	int phase_count, at;
	struct shmcma_way sends, recvs; /* of the phase */
	void *work;			/* memory of its own, freed with it */
	void *temps;			/* SHMCMA_COLL_WINDOW blocks for what is to be reduced */
};

/* A group that an endpoint has joined, or is about to. */
struct shmcma_group {
	struct fid_mc mc;
	struct shmcma_coll *coll;
	struct shmcma_group *next; /* shmcma_coll.groups */
	uint32_t id;		   /* its messages to this member carry it; never used again */
	bool joined, closed;
	int error;	     /* negative errno: a member has been lost; nothing works any more */
	uint32_t to_be_told; /* rank of the next member that is to be told of it */
	uint32_t rank, count;
	uint64_t flags;	  /* FI_*_SET */
	uint32_t seq;	  /* operations begun */
	uint64_t joint;	  /* messages of fi_join carry it: a hash of all members' addresses */
	uint32_t busy;	  /* operations under way */
	fi_addr_t *addrs; /* by rank, as the set had them; then the arrays below, in the same memory */
	struct sc_peer **peers;
	uint32_t *ids;
	struct shmcma_transfer alarm; /* a receive for the word that a member has been lost */
	struct shmcma_transfer drain; /* once it has: takes what others have sent before they knew */
	struct shmcma_object object;
};

static inline bool shmcma_set_is_for(uint64_t flags, enum fi_collective_op op)
{
	return !(flags & SHMCMA_SET_OPS) || flags & FI_BARRIER_SET << op;
}

/* Of all members' blocks together. */
#define SHMCMA_COLL_BYTES_MAX (SIZE_MAX / 4)

/* ---- group.c --------------------------------------------------------------------------------- */

/* With fi_enable of an endpoint with FI_COLLECTIVE, and with its end. */
int shmcma_coll_open(struct shmcma_ep *ep);
void shmcma_coll_close(struct shmcma_ep *ep);

/* fi_join: the group is there at once, usable after FI_JOIN_COMPLETE. */
int shmcma_group_join_locked(struct shmcma_coll *coll, const struct shmcma_av_set *set, void *context,
			     struct shmcma_group **group);

/* The group of that address, joined and whole; else NULL and an error. */
struct shmcma_group *shmcma_group_find(struct shmcma_coll *coll, fi_addr_t addr, int *error);

/* An operation without phases yet. -FI_EAGAIN: its completion has no room now. -FI_ENOMEM. */
int shmcma_collop_new(struct shmcma_group *group, void *context, struct shmcma_collop **op);
void shmcma_collop_free(struct shmcma_collop *op);
/* It is the group's next. */
void shmcma_collop_begin(struct shmcma_collop *op);

/* ---- pattern.c ------------------------------------------------------------------------------- */

/* The steps of the phase that begins, in each direction. */
void shmcma_pattern_count_steps(struct shmcma_collop *op);
/* The rank that step `step` sends to, or receives from, or SHMCMA_ALL: none. The largest part of the tree first. */
uint32_t shmcma_pattern_send_peer(const struct shmcma_collop *op, size_t step);
uint32_t shmcma_pattern_recv_peer(const struct shmcma_collop *op, size_t step);
/* Is what step `step` sends there to be sent? */
bool shmcma_pattern_may_send(const struct shmcma_collop *op, size_t step);

/* That member's part of them. */
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
