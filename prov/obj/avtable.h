/* SPDX-License-Identifier: BSD-2-Clause */
/* avtable.h: address vectors and their entries (avtable.c). */
#ifndef SHMCMA_AVTABLE_H
#define SHMCMA_AVTABLE_H

#include "wait/objects.h"

/*
 * The entry of an address; fi_addr_t is its index, in both types of vectors. An entry never moves, in memory or to
 * another index; a later insertion reuses the index of a removed entry.
 */
struct shmcma_av_entry {
	char address[SC_ADDR_SIZE];  /* in endpoint form; empty: removed */
	char inserted[SC_ADDR_SIZE]; /* as given by the application, for fi_av_lookup */
	/*
	 * reported by completions: the entry's index, or the identifier that an insertion with FI_AV_USER_ID gave; in a
	 * vector with FI_AV_USER_ID what fi_av_set_user_id() gave, and FI_ADDR_NOTAVAIL before
	 */
	uint64_t user;
	/* of an insertion that names the sender: a later one has a larger number; else 0 */
	uint64_t turn;
	uint32_t next; /* next of the same hash bucket */
};

struct shmcma_av {
	struct fid_av fid;
	struct shmcma_domain *domain;
	shmcma_refs refs;
	struct shmcma_eq *eq;
	enum fi_av_type type;
	uint64_t flags;
	unsigned int rx_ctx_bits; /* highest bits of an fi_addr_t: receive context, see shmcma_ep_peer() */
	struct sc_directory *shared; /* of a named vector: the part that other processes see; else NULL */
	pthread_mutex_t lock;	     /* only avtable.c uses the following fields, under this lock */
	struct shmcma_av_entry **chunks;
	size_t chunk_count;
	size_t count, live; /* indices given out so far; indices in use */
	uint64_t turns;	    /* insertions so far that name the sender */
	uint32_t *holes;    /* heap of the free indices below count, lowest on top */
	size_t hole_count;
	uint32_t *buckets; /* hash of the live entries by address */
	size_t bucket_mask;
	struct shmcma_ep *eps; /* bound endpoints, linked by av_next; under all locks of the domain */
	struct shmcma_object object;
};

/*
 * Returns the address of fi_addr, or NULL if there is no such entry. The memory stays valid until the vector is closed,
 * its content until fi_addr is removed.
 */
const char *shmcma_av_address(struct shmcma_av *av, fi_addr_t fi_addr);
/* Returns the number of indices given out: one more than the highest. A reader of a shared vector learns of new ones here. */
size_t shmcma_av_count(struct shmcma_av *av);
/*
 * Returns the name in completions of the sender with that address (endpoint form), or of another context of its
 * endpoint: that of the fi_addr_t that was named last, see shmcma_av_name_locked(), else of its lowest fi_addr_t;
 * FI_ADDR_NOTAVAIL if it is not inserted.
 */
fi_addr_t shmcma_av_find(struct shmcma_av *av, const char *address);
/* Tells whether the vector has the address of any context of that endpoint. */
bool shmcma_av_has(struct shmcma_av *av, const char *address);
/*
 * Returns one after the other of the fi_addr_t that have the address of any context of that endpoint. `last`: the one
 * before, which is in the vector. FI_ADDR_NOTAVAIL: for the first one, and after the last.
 */
fi_addr_t shmcma_av_next_of(struct shmcma_av *av, const char *address, fi_addr_t last);

static inline bool shmcma_av_is_reader(const struct shmcma_av *av)
{
	return av->flags & FI_READ;
}

/*
 * Return the entry of an index: of one that is given out; of any, or NULL if it is not in use; the same, but a reader
 * of a shared vector also looks there.
 */
struct shmcma_av_entry *shmcma_av_entry_at(const struct shmcma_av *av, size_t index);
struct shmcma_av_entry *shmcma_av_entry_locked(const struct shmcma_av *av, fi_addr_t fi_addr);
struct shmcma_av_entry *shmcma_av_look_up_locked(struct shmcma_av *av, fi_addr_t fi_addr);
/* Takes the lowest free index; its entry is empty. -FI_ENOMEM; -FI_ENOSPC: the directory has no space for another. */
int shmcma_av_take_index_locked(struct shmcma_av *av, uint32_t *index);
void shmcma_av_give_back_locked(struct shmcma_av *av, uint32_t index);
/* Gives the address the lowest free index. Errors as above. */
int shmcma_av_put_locked(struct shmcma_av *av, const char *given, const char *address, uint32_t *index);
/* From now on the entry of an index names the sender, by this identifier. */
void shmcma_av_name_locked(struct shmcma_av *av, uint32_t index, uint64_t user);
/* False: there is no entry, because one call names it twice. */
bool shmcma_av_remove_locked(struct shmcma_av *av, fi_addr_t fi_addr);

#endif
