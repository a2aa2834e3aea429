/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * avtable.c: the entries of an address vector.
 *
 *   chunks    memory of the entries, CHUNK entries each, which never moves
 *   holes     the free indices below `count`, a heap with the lowest on top; it always has space for `count`
 *   buckets   hash of the addresses of live entries, chained by entry->next: of their stem (SC_ADDR_STEM), which all
 *             contexts of an endpoint share, because any of them may be the sender
 *
 * If a reader of a shared vector (FI_READ) does not find an address, it copies the unknown ones from the directory of
 * the core. It does not learn of addresses that are removed.
 *
 * Any thread; under the vector's lock.
 */
#include "obj/avtable.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 256
#define NONE UINT32_MAX
#define ENTRIES_MAX ((size_t)INT_MAX)

/* ---- entries --------------------------------------------------------------------------------- */

struct shmcma_av_entry *shmcma_av_entry_at(const struct shmcma_av *av, size_t index)
{
	return &av->chunks[index / CHUNK][index % CHUNK];
}

struct shmcma_av_entry *shmcma_av_entry_locked(const struct shmcma_av *av, fi_addr_t fi_addr)
{
	struct shmcma_av_entry *entry;

	if (fi_addr >= av->count)
		return NULL;
	entry = shmcma_av_entry_at(av, fi_addr);
	return *entry->address ? entry : NULL;
}

static uint32_t *bucket_of(const struct shmcma_av *av, const char *address)
{
	uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */

	for (int i = 0; i < SC_ADDR_STEM; i++)
		hash = (hash ^ (unsigned char)address[i]) * 0x100000001b3ULL;
	return &av->buckets[(hash ^ hash >> 32) & av->bucket_mask];
}

static void link_entry_locked(struct shmcma_av *av, uint32_t index)
{
	struct shmcma_av_entry *entry = shmcma_av_entry_at(av, index);
	uint32_t *bucket = bucket_of(av, entry->address);

	entry->next = *bucket;
	*bucket = index;
}

static void unlink_entry_locked(struct shmcma_av *av, uint32_t index)
{
	struct shmcma_av_entry *entry = shmcma_av_entry_at(av, index);
	uint32_t *link = bucket_of(av, entry->address);

	while (*link != index)
		link = &shmcma_av_entry_at(av, *link)->next;
	*link = entry->next;
}

/* Keeps at least as many buckets as entries. Without memory for more the chains get longer. */
static int grow_buckets_locked(struct shmcma_av *av)
{
	size_t size = av->buckets ? (av->bucket_mask + 1) * 2 : CHUNK;
	uint32_t *buckets;

	if (av->buckets && av->live <= av->bucket_mask)
		return 0;
	buckets = malloc(size * sizeof(*buckets));
	if (!buckets)
		return av->buckets ? 0 : -FI_ENOMEM;
	memset(buckets, 0xff, size * sizeof(*buckets));
	free(av->buckets);
	av->buckets = buckets;
	av->bucket_mask = size - 1;
	for (size_t i = 0; i < av->count; i++)
		if (*shmcma_av_entry_at(av, i)->address)
			link_entry_locked(av, (uint32_t)i);
	return 0;
}

/* Makes space for entry number `count`, and for one more hole. */
static int grow_entries_locked(struct shmcma_av *av)
{
	size_t chunks = av->chunk_count + 1;
	struct shmcma_av_entry **pointers;
	uint32_t *holes;

	if (av->count < av->chunk_count * CHUNK)
		return 0;
	if (av->count + CHUNK > ENTRIES_MAX)
		return -FI_ENOMEM;
	pointers = realloc(av->chunks, chunks * sizeof(*pointers));
	if (!pointers)
		return -FI_ENOMEM;
	av->chunks = pointers;
	holes = realloc(av->holes, chunks * CHUNK * sizeof(*holes));
	if (!holes)
		return -FI_ENOMEM;
	av->holes = holes;
	pointers[av->chunk_count] = calloc(CHUNK, sizeof(**pointers));
	if (!pointers[av->chunk_count])
		return -FI_ENOMEM;
	av->chunk_count = chunks;
	return 0;
}

/* ---- free numbers ---------------------------------------------------------------------------- */

void shmcma_av_give_back_locked(struct shmcma_av *av, uint32_t index)
{
	size_t at = av->hole_count++;

	while (at && av->holes[(at - 1) / 2] > index) {
		av->holes[at] = av->holes[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	av->holes[at] = index;
}

/* Takes the lowest hole, of at least one. */
static uint32_t hole_take_lowest_locked(struct shmcma_av *av)
{
	uint32_t lowest = av->holes[0];
	uint32_t moved = av->holes[--av->hole_count];
	size_t at = 0;

	for (size_t child = 1; child < av->hole_count; child = 2 * at + 1) {
		if (child + 1 < av->hole_count && av->holes[child + 1] < av->holes[child])
			child++;
		if (av->holes[child] >= moved)
			break;
		av->holes[at] = av->holes[child];
		at = child;
	}
	av->holes[at] = moved;
	return lowest;
}

int shmcma_av_take_index_locked(struct shmcma_av *av, uint32_t *index)
{
	int ret;

	if (av->hole_count) {
		*index = hole_take_lowest_locked(av);
		return 0;
	}
	if (av->shared && av->count >= sc_directory_capacity(av->shared))
		return -FI_ENOSPC;
	ret = grow_entries_locked(av);
	if (!ret)
		*index = (uint32_t)av->count++;
	return ret;
}

/* ---- for the data calls ---------------------------------------------------------------------- */

/* Makes indices up to this one exist, at first without address, for a shared vector, which has no holes. */
static int reach_locked(struct shmcma_av *av, uint32_t number)
{
	while (av->count <= number) {
		int ret = grow_entries_locked(av);

		if (ret)
			return ret;
		av->count++;
	}
	return 0;
}

static void adopt_locked(struct shmcma_av *av, uint32_t number, const char *given, const char *address)
{
	struct shmcma_av_entry *entry = shmcma_av_entry_at(av, number);

	strcpy(entry->address, address);
	strcpy(entry->inserted, given);
	entry->user = av->flags & FI_AV_USER_ID ? FI_ADDR_NOTAVAIL : number;
	entry->turn = 0;
	link_entry_locked(av, number);
	av->live++;
}

/* Adds the entries that a reader does not know yet. Without memory they stay unknown. */
static void refresh_locked(struct shmcma_av *av)
{
	uint32_t count = sc_directory_count(av->shared);
	char address[SC_ADDR_SIZE];

	for (uint32_t i = 0; i < count; i++) {
		if (reach_locked(av, i) || grow_buckets_locked(av))
			return;
		if (*shmcma_av_entry_at(av, i)->address || !sc_directory_get(av->shared, i, address))
			continue;
		adopt_locked(av, i, address, address);
	}
}

size_t shmcma_av_count(struct shmcma_av *av)
{
	size_t count;

	pthread_mutex_lock(&av->lock);
	if (shmcma_av_is_reader(av))
		refresh_locked(av);
	count = av->count;
	pthread_mutex_unlock(&av->lock);
	return count;
}

struct shmcma_av_entry *shmcma_av_look_up_locked(struct shmcma_av *av, fi_addr_t fi_addr)
{
	struct shmcma_av_entry *entry = shmcma_av_entry_locked(av, fi_addr);

	if (!entry && shmcma_av_is_reader(av)) {
		refresh_locked(av);
		entry = shmcma_av_entry_locked(av, fi_addr);
	}
	return entry;
}

const char *shmcma_av_address(struct shmcma_av *av, fi_addr_t fi_addr)
{
	struct shmcma_av_entry *entry;

	pthread_mutex_lock(&av->lock);
	entry = shmcma_av_look_up_locked(av, fi_addr);
	pthread_mutex_unlock(&av->lock);
	return entry ? entry->address : NULL;
}

fi_addr_t shmcma_av_next_of(struct shmcma_av *av, const char *address, fi_addr_t last)
{
	uint32_t at = NONE;

	pthread_mutex_lock(&av->lock);
	if (last != FI_ADDR_NOTAVAIL)
		at = shmcma_av_entry_at(av, last)->next;
	else if (av->buckets)
		at = *bucket_of(av, address);
	while (at != NONE && strncmp(shmcma_av_entry_at(av, at)->address, address, SC_ADDR_STEM))
		at = shmcma_av_entry_at(av, at)->next;
	pthread_mutex_unlock(&av->lock);
	return at == NONE ? FI_ADDR_NOTAVAIL : at;
}

/* Tells which of two entries of one address names the sender. */
static bool is_before(const struct shmcma_av *av, uint32_t index, uint32_t other)
{
	uint64_t turn = shmcma_av_entry_at(av, index)->turn, others = shmcma_av_entry_at(av, other)->turn;

	return turn == others ? index < other : turn > others;
}

/* Returns the index of the entry that names the sender with that address. */
static uint32_t find_name_locked(const struct shmcma_av *av, const char *address)
{
	uint32_t found = NONE;

	for (uint32_t i = av->buckets ? *bucket_of(av, address) : NONE; i != NONE;
	     i = shmcma_av_entry_at(av, i)->next)
		if (!strncmp(shmcma_av_entry_at(av, i)->address, address, SC_ADDR_STEM) &&
		    (found == NONE || is_before(av, i, found)))
			found = i;
	return found;
}

fi_addr_t shmcma_av_find(struct shmcma_av *av, const char *address)
{
	fi_addr_t found = FI_ADDR_NOTAVAIL;
	uint32_t index;

	pthread_mutex_lock(&av->lock);
	index = find_name_locked(av, address);
	if (index == NONE && shmcma_av_is_reader(av)) {
		refresh_locked(av);
		index = find_name_locked(av, address);
	}
	if (index != NONE)
		found = shmcma_av_entry_at(av, index)->user;
	pthread_mutex_unlock(&av->lock);
	return found;
}

bool shmcma_av_has(struct shmcma_av *av, const char *address)
{
	bool has;

	pthread_mutex_lock(&av->lock);
	has = find_name_locked(av, address) != NONE;
	pthread_mutex_unlock(&av->lock);
	return has;
}

/* ---- for av.c --------------------------------------------------------------------------------- */

int shmcma_av_put_locked(struct shmcma_av *av, const char *given, const char *address, uint32_t *index)
{
	int ret = grow_buckets_locked(av);

	if (!ret)
		ret = shmcma_av_take_index_locked(av, index);
	if (ret)
		return ret;
	if (av->shared)
		ret = shmcma_error(sc_directory_put(av->shared, *index, address));
	if (ret) {
		shmcma_av_give_back_locked(av, *index);
		return ret;
	}
	adopt_locked(av, *index, given, address);
	return 0;
}

/* An application that inserts an address again, as Open MPI does, uses the new fi_addr from then on. */
void shmcma_av_name_locked(struct shmcma_av *av, uint32_t index, uint64_t user)
{
	struct shmcma_av_entry *entry = shmcma_av_entry_at(av, index);

	entry->user = user;
	entry->turn = ++av->turns;
}

bool shmcma_av_remove_locked(struct shmcma_av *av, fi_addr_t fi_addr)
{
	struct shmcma_av_entry *entry = shmcma_av_entry_locked(av, fi_addr);

	if (!entry)
		return false;
	unlink_entry_locked(av, (uint32_t)fi_addr);
	entry->address[0] = '\0';
	av->live--;
	if (av->shared)
		sc_directory_del(av->shared, (uint32_t)fi_addr); /* its index is never used again */
	else
		shmcma_av_give_back_locked(av, (uint32_t)fi_addr);
	return true;
}
