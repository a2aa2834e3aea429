/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regtab.c: registrations: the owner's private table, its views in shared memory, and how an initiator reads them.
 *
 * The private table is the truth. One thread at a time changes it. Threads that serve peers may read it meanwhile,
 * unless a registration ends or the number of buckets changes (reg.c). The owner reads nothing back from shared memory,
 * so a peer that scribbles into a view changes nothing here. Entries do not move; the last one freed is used first. A
 * view is one endpoint's copy of the shared entries, in the format of abi.h; the owner writes it from the private table
 * alone.
 *
 *   T1 release, sc_regtab_begin(): entry before tag, link    pairs with  T1' acquire in sc_regtab_own()
 *   R1 release, sc_regtab_show(): fields before tag          pairs with  R1' acquire in is_open()
 *   R2 release, leave_chains(): links before `chains` even    pairs with  R2' acquire in find_chained()
 *   R3 full fence, sc_reg_close(): tag before hazard words   pairs with  the initiator's, hazard before tag
 *
 * By R3 at least one of the two sees the other. If an initiator finds the tag unchanged under its hazard word, the
 * owner sees that word. So the fields that the initiator copies, and the memory that they name, do not change until the
 * initiator takes the word back.
 *
 * An initiator loads each word of another process once, checks it, and uses the copy. A wrong table costs it at most
 * reg_count steps, and never leads it out of the mapping: indices are below counts, and counts are not above the limits
 * of the checked header. Nor does it lead to a part without memory, where a read is a SIGBUS while /dev/shm is full: a
 * system call examines each part that is not yet known to have memory.
 *
 * If the owner dies between any two steps, an entry that is shown in part has an even tag. A chain that is changed in
 * part leaves `chains` odd, and an initiator that does not find its key gets -EAGAIN until it sees that the owner is
 * dead. An initiator that dies leaves a hazard word; reg.c says what becomes of it.
 */
#include "shm/regtab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/fault.h"
#include "os/probe.h"

#define INDEX_MASK ((1u << SC_ABI_KEY_INDEX_BITS) - 1)
#define RANDOM_SHIFT (SC_ABI_KEY_INDEX_BITS + SC_ABI_KEY_GENERATION_BITS)
#define FLAGS_SHARED (SC_REG_READ | SC_REG_WRITE | SC_REG_EVENT)
#define FLAGS_ALL (FLAGS_SHARED | SC_REG_KEY | SC_REG_VIRTUAL)
#define FIND_TRIES 8

_Static_assert(SC_ABI_REGS_MAX <= INDEX_MASK + 1, "an index fits into a key");

/* splitmix64. A key must be hard to hit by accident; it is no secret. */
static uint64_t next_random(struct sc_regtab *regtab)
{
	uint64_t x = regtab->random += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

void sc_regtab_init(struct sc_regtab *regtab, uint64_t seed)
{
	*regtab = (struct sc_regtab){ .random = seed };
	sc_list_init(&regtab->eps);
}

static void free_parts(struct sc_reg *reg)
{
	if (reg->ranges != &reg->one)
		free((void *)reg->ranges);
	reg->ranges = &reg->one;
	free(reg->memory);
	reg->memory = NULL;
}

void sc_regtab_fini(struct sc_regtab *regtab)
{
	for (uint32_t i = 0; i < regtab->count; i++)
		free_parts(sc_regtab_at(regtab, i));
	for (uint32_t i = 0; i * SC_REGTAB_CHUNK < regtab->count; i++)
		free(regtab->chunks[i]);
	free(regtab->buckets);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static uint32_t *bucket_of(const struct sc_regtab *regtab, uint64_t key)
{
	return &regtab->buckets[SC_ABI_BUCKET(key, regtab->bucket_bits)];
}

static struct sc_reg *find_keyed(const struct sc_regtab *regtab, uint64_t key)
{
	struct sc_reg *reg;

	if (!regtab->bucket_bits)
		return NULL;
	/* T1' acquire: pairs with T1 in chain_insert() */
	for (uint32_t link = sc_load_acquire_32(bucket_of(regtab, key)); link; link = reg->next) {
		reg = sc_regtab_at(regtab, link - 1);
		if (reg->key == key)
			return reg;
	}
	return NULL;
}

struct sc_reg *sc_regtab_own(const struct sc_regtab *regtab, uint64_t key)
{
	uint32_t index = key & INDEX_MASK;

	/* acquire: pairs with the release in make_entry() */
	if (index < sc_load_acquire_32(&regtab->count)) {
		struct sc_reg *reg = sc_regtab_at(regtab, index);

		/* T1' acquire: pairs with T1 in sc_regtab_begin() */
		if (sc_load_acquire_64(&reg->tag) & 1 && reg->key == key)
			return reg;
	}
	return find_keyed(regtab, key);
}

/* Makes a key of the library that no application uses. All ones is left out, because callers may mean "none" by it. */
static void make_key(struct sc_regtab *regtab, struct sc_reg *reg)
{
	uint64_t low = (uint64_t)reg->generation << SC_ABI_KEY_INDEX_BITS | reg->index;

	do
		reg->key = next_random(regtab) >> RANDOM_SHIFT << RANDOM_SHIFT | low;
	while (reg->key == UINT64_MAX || find_keyed(regtab, reg->key));
}

static void chain_insert(struct sc_regtab *regtab, struct sc_reg *reg)
{
	uint32_t *bucket = bucket_of(regtab, reg->key);

	reg->next = *bucket;
	/* T1 release: pairs with T1' in find_keyed() */
	sc_store_release_32(bucket, reg->index + 1);
	regtab->keyed++;
}

static void chain_remove(struct sc_regtab *regtab, struct sc_reg *reg)
{
	uint32_t *link = bucket_of(regtab, reg->key);

	while (*link != reg->index + 1)
		link = &sc_regtab_at(regtab, *link - 1)->next;
	*link = reg->next;
	regtab->keyed--;
}

int sc_regtab_rehash(struct sc_regtab *regtab, uint32_t bits)
{
	uint32_t *buckets = calloc((size_t)1 << bits, sizeof(*buckets));

	if (!buckets)
		return -ENOMEM;
	free(regtab->buckets);
	regtab->buckets = buckets;
	regtab->bucket_bits = bits;
	regtab->keyed = 0;
	for (uint32_t i = 0; i < regtab->count; i++) {
		struct sc_reg *reg = sc_regtab_at(regtab, i);

		if (reg->tag & 1 && reg->flags & SC_REG_KEY)
			chain_insert(regtab, reg);
	}
	regtab->keyed_most = bits == SC_ABI_BUCKET_BITS_MAX ? UINT32_MAX : 1u << bits;
	return 0;
}

/* ---- entries --------------------------------------------------------------------------------- */

static struct sc_reg *make_entry(struct sc_regtab *regtab)
{
	struct sc_reg **chunk = &regtab->chunks[regtab->count / SC_REGTAB_CHUNK];
	struct sc_reg *reg;

	if (regtab->count % SC_REGTAB_CHUNK == 0) {
		*chunk = calloc(SC_REGTAB_CHUNK, sizeof(**chunk));
		if (!*chunk)
			return NULL;
	}
	reg = &(*chunk)[regtab->count % SC_REGTAB_CHUNK];
	reg->regtab = regtab;
	reg->ranges = &reg->one;
	reg->index = regtab->count;
	reg->generation = reg->first = (uint32_t)next_random(regtab);
	/* release: pairs with the acquire in sc_regtab_own() */
	sc_store_release_32(&regtab->count, regtab->count + 1);
	return reg;
}

static int take_entry(struct sc_regtab *regtab, struct sc_reg **reg)
{
	if (regtab->free) {
		*reg = sc_regtab_at(regtab, regtab->free - 1);
		regtab->free = (*reg)->next;
		return 0;
	}
	if (regtab->count == SC_ABI_REGS_MAX)
		return -ENOSPC;
	*reg = make_entry(regtab);
	return *reg ? 0 : -ENOMEM;
}

/* After its last generation the entry is not used again, because its first key would come back. */
static void return_entry(struct sc_regtab *regtab, struct sc_reg *reg)
{
	if (++reg->generation == reg->first)
		return;
	reg->next = regtab->free;
	regtab->free = reg->index + 1;
}

/* Takes the first `count` adjacent free places for ranges in the views. */
static int take_places(struct sc_regtab *regtab, uint32_t count, uint32_t *first)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < SC_ABI_RANGES_MAX; i++) {
		uint64_t word = regtab->ranges[i / 64];

		if (i % 64 == 0 && word == UINT64_MAX) {
			run = 0;
			i += 63;
			continue;
		}
		run = word >> i % 64 & 1 ? 0 : run + 1;
		if (run < count)
			continue;
		*first = i + 1 - count;
		for (uint32_t place = *first; place <= i; place++)
			regtab->ranges[place / 64] |= 1ULL << place % 64;
		return 0;
	}
	return -ENOSPC;
}

static void return_places(struct sc_regtab *regtab, const struct sc_reg *reg)
{
	for (uint32_t place = reg->first_range; place < reg->first_range + reg->range_count; place++)
		regtab->ranges[place / 64] &= ~(1ULL << place % 64);
}

/* Checks that the ranges are possible memory, and counts those that are not empty. */
static int measure(const struct sc_reg_attr *attr, struct sc_reg *reg)
{
	reg->size = reg->base = 0;
	reg->range_count = 0;
	reg->one = (struct iovec){ 0 };
	if (attr->range_count > SC_REG_RANGES_MAX || attr->flags & ~FLAGS_ALL)
		return -EINVAL;
	for (size_t i = 0; i < attr->range_count; i++) {
		const struct iovec *range = &attr->ranges[i];

		if (range->iov_len > UINTPTR_MAX - (uintptr_t)range->iov_base ||
		    range->iov_len > UINT64_MAX - reg->size)
			return -EINVAL;
		if (!i || (!reg->range_count && range->iov_len))
			reg->one = *range;
		reg->range_count += range->iov_len != 0;
		reg->size += range->iov_len;
	}
	if (attr->flags & SC_REG_VIRTUAL)
		reg->base = (uintptr_t)reg->one.iov_base;
	return reg->size > UINT64_MAX - reg->base ? -EINVAL : 0;
}

/* The rare case of several ranges: they go on the heap, and a shared registration gets places in the views. */
static int copy_ranges_slow(struct sc_regtab *regtab, const struct sc_reg_attr *attr, struct sc_reg *reg)
{
	struct iovec *ranges = malloc(reg->range_count * sizeof(*ranges));
	uint32_t used = 0;

	if (!ranges)
		return -ENOMEM;
	if (sc_reg_is_shared(reg) && take_places(regtab, reg->range_count, &reg->first_range)) {
		free(ranges);
		return -ENOSPC;
	}
	for (size_t i = 0; i < attr->range_count; i++)
		if (attr->ranges[i].iov_len)
			ranges[used++] = attr->ranges[i];
	reg->ranges = ranges;
	return 0;
}

int sc_regtab_get(struct sc_regtab *regtab, const struct sc_reg_attr *attr, struct sc_reg **taken)
{
	struct sc_reg *reg;
	int ret;

	if (attr->flags & SC_REG_KEY && sc_regtab_own(regtab, attr->key))
		return -ENOKEY;
	ret = take_entry(regtab, &reg);
	if (ret)
		return ret;
	ret = measure(attr, reg);
	if (ret)
		goto no_ranges;
	reg->flags = attr->flags;
	reg->first_range = 0;
	if (reg->range_count > 1) {
		ret = copy_ranges_slow(regtab, attr, reg);
		if (ret)
			goto no_ranges;
	}
	reg->reads = attr->reads;
	reg->writes = attr->writes;
	if (attr->flags & SC_REG_KEY)
		reg->key = attr->key;
	else
		make_key(regtab, reg);
	*taken = reg;
	return 0;

no_ranges:
	reg->next = regtab->free; /* no generation is used up */
	regtab->free = reg->index + 1;
	return ret;
}

void sc_regtab_begin(struct sc_regtab *regtab, struct sc_reg *reg)
{
	/* T1 release: pairs with T1' in sc_regtab_own() */
	sc_store_release_64(&reg->tag, reg->tag + 1);
	if (reg->flags & SC_REG_KEY)
		chain_insert(regtab, reg);
}

void sc_regtab_end(struct sc_regtab *regtab, struct sc_reg *reg)
{
	if (reg->flags & SC_REG_KEY)
		chain_remove(regtab, reg);
	reg->tag++;
}

void sc_regtab_put(struct sc_regtab *regtab, struct sc_reg *reg)
{
	if (reg->range_count > 1 && sc_reg_is_shared(reg))
		return_places(regtab, reg);
	free_parts(reg);
	return_entry(regtab, reg);
}

/* ---- bounds, for both sides ------------------------------------------------------------------ */

static int check_bounds(const struct sc_reg_span *span, uint64_t addr, uint64_t len, uint32_t access)
{
	uint64_t offset = addr - span->base;

	if ((span->flags & access) != access)
		return -EACCES;
	if (addr < span->base || offset > span->size || len > span->size - offset)
		return -EINVAL;
	return 0;
}

/* The part of a sequence of ranges that goes into a vector. */
struct cut {
	uint64_t skip, left; /* bytes */
	struct iovec *out;
	size_t used, count;
};

/* Adds the next range of the sequence to the vector. False: the vector needs no more. */
static bool cut_range(struct cut *cut, uint64_t addr, uint64_t size)
{
	uint64_t here;

	if (cut->skip >= size) {
		cut->skip -= size;
		return true;
	}
	here = size - cut->skip < cut->left ? size - cut->skip : cut->left;
	cut->out[cut->used++] = (struct iovec){ (void *)(uintptr_t)(addr + cut->skip), here };
	cut->skip = 0;
	cut->left -= here;
	return cut->left && cut->used < cut->count;
}

int sc_reg_check(const struct sc_reg *reg, uint64_t addr, uint64_t len, uint32_t access)
{
	struct sc_reg_span span = { .base = reg->base, .size = reg->size, .flags = reg->flags };

	return check_bounds(&span, addr, len, access);
}

size_t sc_reg_slice(const struct sc_reg *reg, uint64_t addr, uint64_t *len, struct iovec *out,
		    size_t count)
{
	struct cut cut = { addr - reg->base, *len, out, 0, count };

	if (*len && count)
		for (uint32_t i = 0; i < reg->range_count; i++)
			if (!cut_range(&cut, (uintptr_t)reg->ranges[i].iov_base, reg->ranges[i].iov_len))
				break;
	*len -= cut.left;
	return cut.used;
}

/* ---- a view, by its owner -------------------------------------------------------------------- */

/* The count is private: a scribble on the shared word could make the count odd for good, or even during a change. */
static void enter_chains(struct sc_regtab_view *view)
{
	/* relaxed: each store below, up to leave_chains(), is a release */
	sc_store_relaxed_32(&view->presence->chains, ++view->chains);
	(void)SC_FAULT("regtab.chains");
}

static void leave_chains(struct sc_regtab_view *view)
{
	/* R2 release: the links before the even count; pairs with R2' in find_chained() */
	sc_store_release_32(&view->presence->chains, ++view->chains);
	(void)SC_FAULT("regtab.chains_even");
}

/*
 * Writes the shared registrations of a chain into the view. Release: a reader that has followed a changed link also
 * finds `chains` changed.
 */
static void show_chain(const struct sc_regtab *regtab, const struct sc_regtab_view *view, uint32_t bucket)
{
	uint32_t *to = &view->buckets[(1u << regtab->bucket_bits) + bucket];
	const struct sc_reg *reg;

	for (uint32_t link = regtab->buckets[bucket]; link; link = reg->next) {
		reg = sc_regtab_at(regtab, link - 1);
		if (!sc_reg_is_shared(reg))
			continue;
		sc_store_release_32(to, link);
		(void)SC_FAULT("regtab.link");
		to = &view->regs[reg->index].next;
	}
	sc_store_release_32(to, 0);
	(void)SC_FAULT("regtab.chain_end");
}

static void show_chain_of(const struct sc_regtab *regtab, struct sc_regtab_view *view,
			  const struct sc_reg *reg)
{
	enter_chains(view);
	show_chain(regtab, view, SC_ABI_BUCKET(reg->key, regtab->bucket_bits));
	leave_chains(view);
}

void sc_regtab_show_buckets(const struct sc_regtab *regtab, struct sc_regtab_view *view)
{
	enter_chains(view);
	for (uint32_t bucket = 0; bucket < 1u << regtab->bucket_bits; bucket++)
		show_chain(regtab, view, bucket);
	/* release: a reader that finds the new number also finds all heads */
	sc_store_release_32(&view->presence->bucket_bits, regtab->bucket_bits);
	(void)SC_FAULT("regtab.bits");
	leave_chains(view);
}

static void show_ranges(const struct sc_regtab_view *view, const struct sc_reg *reg)
{
	for (uint32_t i = 0; i < reg->range_count; i++) {
		struct sc_abi_segment *to = &view->ranges[reg->first_range + i];

		sc_store_relaxed_64(&to->addr, (uintptr_t)reg->ranges[i].iov_base);
		(void)SC_FAULT("regtab.range_addr");
		sc_store_relaxed_64(&to->len, reg->ranges[i].iov_len);
		(void)SC_FAULT("regtab.range");
	}
}

/* Initiators look for the flag of a registration only if the presence says that some have it. */
static void show_counting(const struct sc_regtab_view *view, const struct sc_reg *reg)
{
	if (!(reg->flags & SC_REG_EVENT))
		return;
	/* relaxed: as the flags, which follow */
	sc_store_relaxed_32(&view->presence->counting, 1);
	(void)SC_FAULT("regtab.counting");
}

void sc_regtab_show(const struct sc_regtab *regtab, struct sc_regtab_view *view, const struct sc_reg *reg)
{
	struct sc_abi_reg *to = &view->regs[reg->index];

	/* relaxed, all of them: no hazard word names the entry, and R1 orders them for readers that come later */
	if (reg->range_count > 1)
		show_ranges(view, reg);
	sc_store_relaxed_64(&to->key, reg->key);
	(void)SC_FAULT("regtab.key");
	sc_store_relaxed_64(&to->base, reg->base);
	(void)SC_FAULT("regtab.base");
	sc_store_relaxed_64(&to->size, reg->size);
	(void)SC_FAULT("regtab.size");
	sc_store_relaxed_64(&to->addr, (uintptr_t)reg->one.iov_base);
	(void)SC_FAULT("regtab.addr");
	sc_store_relaxed_32(&to->range_count, reg->range_count);
	(void)SC_FAULT("regtab.range_count");
	sc_store_relaxed_32(&to->first_range, reg->first_range);
	(void)SC_FAULT("regtab.first_range");
	show_counting(view, reg);
	sc_store_relaxed_32(&to->flags, reg->flags & FLAGS_SHARED);
	(void)SC_FAULT("regtab.fields");
	/* R1 release: pairs with R1' in is_open() */
	sc_store_release_64(&to->tag, reg->tag);
	(void)SC_FAULT("regtab.shown");
	if (reg->flags & SC_REG_KEY)
		show_chain_of(regtab, view, reg);
}

void sc_regtab_show_flags(const struct sc_regtab_view *view, const struct sc_reg *reg)
{
	show_counting(view, reg);
	/* relaxed: an access that has already begun may be counted or not */
	sc_store_relaxed_32(&view->regs[reg->index].flags, reg->flags & FLAGS_SHARED);
	(void)SC_FAULT("regtab.flags");
}

void sc_regtab_hide(const struct sc_regtab *regtab, struct sc_regtab_view *view, const struct sc_reg *reg)
{
	/* relaxed: the caller does a full fence before it looks at hazard words */
	sc_store_relaxed_64(&view->regs[reg->index].tag, reg->tag);
	(void)SC_FAULT("regtab.hidden");
	if (reg->flags & SC_REG_KEY)
		show_chain_of(regtab, view, reg);
}

/* ---- a view, by an initiator ----------------------------------------------------------------- */

/* Loads a count of the owner. A count above its limit is taken as 0. */
static uint32_t load_count(const uint32_t *word, uint32_t most)
{
	uint32_t count = sc_load_acquire_32(word);

	return count <= most ? count : 0;
}

/*
 * Tells whether the first `need` elements of a part, of `size` bytes each, have memory. Probes whole pages, but not
 * beyond `count`: probing gives memory to pages without, and the owner's count may be wild.
 */
static bool has_memory(const void *part, uint32_t size, uint32_t *seen, uint32_t need, uint32_t count)
{
	/*
	 * relaxed: memory is never taken away; a thread may store less than another one has stored, and probes again
	 * then
	 */
	uint32_t known = sc_load_relaxed_32(seen), page = SC_ABI_PAGE / size;

	if (__builtin_expect(need <= known, 1))
		return true;
	need = (need + page - 1) / page * page;
	need = need < count ? need : count;
	if (!sc_probe_is_there((const uint8_t *)part + (size_t)known * size,
				(size_t)(need - known) * size))
		return false;
	sc_store_relaxed_32(seen, need);
	return true;
}

static bool has_reg(const struct sc_regtab_view *view, uint32_t index, uint32_t count)
{
	return index < count &&
	       has_memory(view->regs, sizeof(*view->regs), &view->seen->regs, index + 1, count);
}

static bool has_buckets(const struct sc_regtab_view *view, uint32_t bits)
{
	if (!bits || bits > SC_ABI_BUCKET_BITS_MAX)
		return false;
	/* relaxed: as in has_memory() */
	if (__builtin_expect(sc_load_relaxed_32(&view->seen->bucket_bits) == bits, 1))
		return true;
	if (!sc_probe_is_there(view->buckets + (1u << bits), sizeof(*view->buckets) << bits))
		return false;
	sc_store_relaxed_32(&view->seen->bucket_bits, bits);
	return true;
}

static bool is_open(const struct sc_regtab_view *view, uint32_t index, uint64_t key,
		    struct sc_reg_ref *ref)
{
	const struct sc_abi_reg *reg = &view->regs[index];
	/* R1' acquire: pairs with R1 in sc_regtab_show() */
	uint64_t tag = sc_load_acquire_64(&reg->tag);

	/* acquire, like all loads along a chain: `chains` is loaded again after them */
	if (!(tag & 1) || sc_load_acquire_64(&reg->key) != key)
		return false;
	*ref = (struct sc_reg_ref){ index, tag };
	return true;
}

static bool walk_chain(const struct sc_regtab_view *view, uint64_t key, struct sc_reg_ref *ref)
{
	uint32_t bits = sc_load_acquire_32(&view->presence->bucket_bits);
	uint32_t count = load_count(&view->presence->reg_count, view->reg_max);
	uint32_t link;

	if (!count || !has_buckets(view, bits))
		return false;
	link = sc_load_acquire_32(&view->buckets[(1u << bits) + SC_ABI_BUCKET(key, bits)]);
	for (uint32_t steps = 0; link && has_reg(view, link - 1, count) && steps < count; steps++) {
		if (is_open(view, link - 1, key, ref))
			return true;
		link = sc_load_acquire_32(&view->regs[link - 1].next);
	}
	return false;
}

static int find_chained(const struct sc_regtab_view *view, uint64_t key, struct sc_reg_ref *ref)
{
	for (int tries = 0; tries < FIND_TRIES; tries++) {
		/* R2' acquire: pairs with R2 in leave_chains() */
		uint32_t before = sc_load_acquire_32(&view->presence->chains);

		if (walk_chain(view, key, ref))
			return 0;
		/* relaxed: all loads of the walk are acquires */
		if (!(before & 1) && sc_load_relaxed_32(&view->presence->chains) == before)
			return -EKEYREJECTED;
	}
	return -EAGAIN;
}

int sc_regtab_find(const struct sc_regtab_view *view, uint64_t key, struct sc_reg_ref *ref)
{
	uint32_t index = key & INDEX_MASK;

	if (has_reg(view, index, load_count(&view->presence->reg_count, view->reg_max)) &&
	    is_open(view, index, key, ref))
		return 0;
	return find_chained(view, key, ref);
}

static void load_span(const struct sc_abi_reg *reg, struct sc_reg_span *span)
{
	span->base = sc_load_relaxed_64(&reg->base);
	span->size = sc_load_relaxed_64(&reg->size);
	span->addr = sc_load_relaxed_64(&reg->addr);
	span->range_count = sc_load_relaxed_32(&reg->range_count);
	span->first_range = sc_load_relaxed_32(&reg->first_range);
	span->flags = sc_load_relaxed_32(&reg->flags);
}

static bool is_possible(const struct sc_regtab_view *view, const struct sc_reg_span *span)
{
	uint32_t count;

	if (span->size > UINT64_MAX - span->base)
		return false;
	if (span->range_count <= 1)
		return span->size <= UINT64_MAX - span->addr && (span->range_count || !span->size);
	count = load_count(&view->presence->range_count, view->range_max);
	return span->range_count <= SC_REG_RANGES_MAX && span->range_count <= count &&
	       span->first_range <= count - span->range_count &&
	       has_memory(view->ranges, sizeof(*view->ranges), &view->seen->ranges,
			  span->first_range + span->range_count, count);
}

int sc_regtab_check(const struct sc_regtab_view *view, const struct sc_reg_ref *ref, const struct sc_remote *memory,
		    uint32_t access, struct sc_reg_span *span)
{
	const struct sc_abi_reg *reg = &view->regs[ref->index];

	/* R1' acquire: pairs with R1 in sc_regtab_show(); R3 as well, by the caller's fence */
	if (sc_load_acquire_64(&reg->tag) != ref->tag)
		return -EKEYREJECTED;
	load_span(reg, span);
	span->ranges = view->ranges;
	if (!is_possible(view, span))
		return -EKEYREJECTED;
	return check_bounds(span, memory->addr, memory->len, access);
}

int sc_regtab_slice(const struct sc_reg_span *span, uint64_t addr, uint64_t *len, struct iovec *out, size_t count)
{
	struct cut cut = { addr - span->base, *len, out, 0, count };
	bool more = *len && count;

	if (more && span->range_count <= 1)
		more = cut_range(&cut, span->addr, span->size);
	else
		for (uint32_t i = 0; more && i < span->range_count; i++) {
			const struct sc_abi_segment *range = &span->ranges[span->first_range + i];
			uint64_t base = sc_load_relaxed_64(&range->addr);
			uint64_t size = sc_load_relaxed_64(&range->len);

			if (size > UINT64_MAX - base)
				return -EKEYREJECTED;
			more = cut_range(&cut, base, size);
		}
	if (more)
		return -EKEYREJECTED; /* the ranges have fewer bytes than the size says */
	*len -= cut.left;
	return (int)cut.used;
}
