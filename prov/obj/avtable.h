/* SPDX-License-Identifier: BSD-2-Clause */
/* avtable.h: address vectors and their entries (avtable.c). */
#ifndef SHMCMA_AVTABLE_H
#define SHMCMA_AVTABLE_H

#include "wait/state.h"

/*
 * An address vector. fi_addr_t is the index of the entry in both types. Entries are never moved
 * to another index, nor in memory; a removed index is reused by a later insertion.
 */
struct shmcma_av_entry {
	char address[SC_ADDR_SIZE]; /* endpoint form; empty: removed */
	char inserted[SC_ADDR_SIZE]; /* as the application gave it (a service keeps its form): fi_av_lookup */
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
	unsigned int rx_ctx_bits; /* highest bits of an fi_addr_t: the receive context, see shmcma_ep_peer() */
	struct sc_directory *shared; /* a named one: what other processes see of it; else NULL */
	pthread_mutex_t lock;	     /* only avtable.c uses the rest, under it */
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

static inline bool shmcma_av_is_reader(const struct shmcma_av *av)
{
	return av->flags & FI_READ;
}

/*
 * The entry of a number that has been handed out; the live one of any number, or NULL; the same, but a reader of a
 * shared vector looks there, too.
 */
struct shmcma_av_entry *shmcma_av_entry_at(const struct shmcma_av *av, size_t index);
struct shmcma_av_entry *shmcma_av_entry_locked(const struct shmcma_av *av, fi_addr_t fi_addr);
struct shmcma_av_entry *shmcma_av_look_up_locked(struct shmcma_av *av, fi_addr_t fi_addr);
/* The lowest free number; its entry is empty. -FI_ENOMEM; -FI_ENOSPC: the directory has no room for another. */
int shmcma_av_take_index_locked(struct shmcma_av *av, uint32_t *index);
void shmcma_av_give_back_locked(struct shmcma_av *av, uint32_t index);
/* Gives the address the next number. Errors as above. */
int shmcma_av_put_locked(struct shmcma_av *av, const char *given, const char *address, uint32_t *index);
/* False: there is none, it is twice in one call. */
bool shmcma_av_remove_locked(struct shmcma_av *av, fi_addr_t fi_addr, char address[SC_ADDR_SIZE]);

#endif
