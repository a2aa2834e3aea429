/* SPDX-License-Identifier: BSD-2-Clause */
/* av.h: address vectors (av.c) and sets of addresses (avset.c). */
#ifndef SHMCMA_AV_H
#define SHMCMA_AV_H

#include "wait/state.h"

/*
 * An address vector (av.c). fi_addr_t is the index of the entry in both types. Entries are never moved
 * to another index, nor in memory; a removed index is reused by a later insertion.
 */
struct shmcma_av_entry {
	char address[SC_ADDR_SIZE]; /* endpoint form; empty: removed */
	char inserted
		[SC_ADDR_SIZE]; /* as the application gave it (a service keeps its form): fi_av_lookup */
	uint64_t user;		/* FI_AV_USER_ID: what completions report; else the entry's own index */
	uint32_t next;		/* next of the same hash bucket */
};

struct shmcma_av {
	struct fid_av fid;
	struct shmcma_domain *domain;
	shmcma_refs refs;
	struct shmcma_eq *eq;
	enum fi_av_type type;
	uint64_t flags;
	unsigned int
		rx_ctx_bits; /* highest bits of an fi_addr_t: the receive context, see shmcma_ep_peer() */
	struct sc_directory *shared; /* a named one: what other processes see of it; else NULL */
	pthread_mutex_t lock;	     /* only av.c uses the rest, under it */
	struct shmcma_av_entry **chunks;
	size_t chunk_count;
	size_t count, live; /* indices handed out so far; of those, not removed */
	uint32_t *holes;    /* heap of indices below count that are free, lowest on top */
	size_t hole_count;
	uint32_t *buckets; /* hash of the live entries by address */
	size_t bucket_mask;
	struct shmcma_ep *eps; /* bound endpoints, linked by av_next; under all locks of the domain */
	struct shmcma_object object;
};

/*
 * Address of fi_addr, or NULL if there is no such entry. The memory stays valid until the vector is
 * closed, its content until fi_addr is removed.
 */
const char *shmcma_av_address(struct shmcma_av *av, fi_addr_t fi_addr);
/* Addresses that have been handed out: one more than the highest. */
size_t shmcma_av_count(struct shmcma_av *av);
/*
 * How a completion names the sender with that address (endpoint form), be it any context of the endpoint: the lowest fi_addr it was inserted
 * as, or the identifier given with FI_AV_USER_ID; FI_ADDR_NOTAVAIL if it was not inserted.
 */
fi_addr_t shmcma_av_find(struct shmcma_av *av, const char *address);
/* Is it, or another context's of that endpoint, in the vector? */
bool shmcma_av_has(struct shmcma_av *av, const char *address);

int shmcma_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);

/* Addresses in the order of their ranks (avset.c). */
struct shmcma_av_set {
	struct fid_av_set fid;
	struct shmcma_av *av;
	fi_addr_t *addrs;
	size_t count, capacity;
	uint64_t flags;
	fi_addr_t coll_addr;
	struct shmcma_object object;
};

/* An address that fi_av_set_addr() returns has the first bit, one that fi_mc_addr() returns the second. */
#define SHMCMA_ADDR_SET (1ULL << 61)
#define SHMCMA_ADDR_GROUP (1ULL << 62)

/* Which operation a set is for: without any such flag for all. */
#define SHMCMA_SET_OPS                                                                                    \
	(FI_BARRIER_SET | FI_BROADCAST_SET | FI_ALLTOALL_SET | FI_ALLREDUCE_SET | FI_ALLGATHER_SET |      \
	 FI_REDUCE_SCATTER_SET | FI_REDUCE_SET | FI_SCATTER_SET | FI_GATHER_SET)
_Static_assert(FI_BARRIER_SET << FI_GATHER == FI_GATHER_SET, "in the order of enum fi_collective_op");

/* ---- avset.c --------------------------------------------------------------------------------- */

int shmcma_av_set_open(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set,
		       void *context);
struct shmcma_av_set *shmcma_av_set_of(const struct fid_av_set *fid);

#endif
