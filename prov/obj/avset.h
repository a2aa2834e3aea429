/* SPDX-License-Identifier: BSD-2-Clause */
/* avset.h: sets of addresses of a vector (avset.c). */
#ifndef SHMCMA_AVSET_H
#define SHMCMA_AVSET_H

#include <rdma/fi_collective.h>
#include "obj/avtable.h"

/* A set of addresses, in the order of their ranks. */
struct shmcma_av_set {
	struct fid_av_set fid;
	struct shmcma_av *av;
	fi_addr_t *addrs;
	size_t count, capacity;
	uint64_t flags;
	fi_addr_t coll_addr;
	struct shmcma_object object;
};

/* Bits of addresses that fi_av_set_addr() and fi_mc_addr() return. */
#define SHMCMA_ADDR_SET (1ULL << 61)
#define SHMCMA_ADDR_GROUP (1ULL << 62)

/* The operations that a set is for; without any of these flags all. */
#define SHMCMA_SET_OPS                                                                                    \
	(FI_BARRIER_SET | FI_BROADCAST_SET | FI_ALLTOALL_SET | FI_ALLREDUCE_SET | FI_ALLGATHER_SET |      \
	 FI_REDUCE_SCATTER_SET | FI_REDUCE_SET | FI_SCATTER_SET | FI_GATHER_SET)
_Static_assert(FI_BARRIER_SET << FI_GATHER == FI_GATHER_SET, "in the order of enum fi_collective_op");

int shmcma_av_set_open(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set, void *context);
struct shmcma_av_set *shmcma_av_set_of(const struct fid_av_set *fid);

#endif
