/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * match.c: finds the receive for a message, and the message for a receive.
 *
 * Both searches use one kind of hash table. A table serves one class of receives: those with the same (any source?,
 * ignore). When a message's source and tag are masked as the class has it, the message fits a receive exactly if their
 * keys are equal. A bucket chains distinct keys. The entries of one key form a ring, oldest first; the oldest is in the
 * bucket. So neither many entries of one key nor the place in the order costs anything.
 *
 * 	buckets[hash & mask] --next--> key A, oldest --next--> key B, oldest
 * 	                                 | newer                (ring of one)
 * 	                               key A, newest --newer--> back to the oldest
 *
 * Posted receives: a search scans the first SC_MATCH_SCANNED in the order of posting; mostly the first one fits. So
 * receives whose messages come in order need only a list. If none of them fits and there are more, all go to the tables
 * of their classes, until none is posted. A message then asks each class that has receives once, and takes the
 * candidate with the lowest seq.
 * 	post, unpost	O(1); post amortised, as tables double; plus the search for the class
 * 	find_recv	O(1) if it is the oldest; else O(classes that have receives), whatever their number of
 * 			receives, plus SC_MATCH_SCANNED; amortised, as each receive is put into a table once
 *
 * Waiting messages: a search looks at the oldest first, as receives mostly come in the order in which the messages were
 * sent; then no table is needed. It scans up to FEW messages in order of arrival. With more, it builds the table of its
 * class over all of them, an index, which is kept up to date until no message waits.
 * 	keep, drop	O(indexes), at most SC_MATCH_INDEXES
 * 	find_waiting	O(1) if it is the oldest, or with an index; building it is O(waiting), once for its class.
 * 			Classes beyond SC_MATCH_INDEXES scan, or replace an index that was not used for long.
 *
 * Invariants: a node is in a bucket exactly if its `link` is set, and then *link points to it. No two nodes in the
 * buckets of one table have equal keys. classes[0 .. populated) have receives; the rest have none, and their tables are
 * empty. All posted receives are in tables (`hashed`), or none is. An index holds all waiting messages (bit in `live`),
 * or none. Without memory for tables or an index searches become slower, never wrong; only while receives are hashed,
 * the post of a receive of a new class fails.
 */
#include "base/match.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIRST_BUCKETS = 16,
	FIRST_CLASSES = 4,
	KEPT_CLASSES = 8, /* empty classes that keep their tables for later */
	FEW = 16,	  /* up to this many waiting messages are scanned, not indexed */
	STALE = 64,	  /* searches after which an index that served none may be replaced */
};

/* Tests count the entries that are looked at. */
#ifdef SC_MATCH_COUNT
static unsigned long sc_match_probes;
#define PROBE() ((void)sc_match_probes++)
#else
#define PROBE() ((void)0)
#endif

/* ---- table ----------------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 product;

/* Folds the upper half of the product, too: this brings high bits into the low ones. */
static inline uint64_t folded_product(uint64_t a, uint64_t b)
{
	product p = (product)a * b;

	return (uint64_t)(p >> 64) ^ (uint64_t)p;
}

/*
 * Tags differ in any of their bits, in some applications only in the highest. Sources are addresses, which differ from
 * run to run. With a single product of tag and source some addresses map such tags to few buckets (11 probes for an
 * entry, where 3 are usual). Two products by constants do not depend on the address.
 */
static inline size_t hash(const void *source, uint64_t tag)
{
	uint64_t key = tag + (uintptr_t)source * 0xe7037ed1a0b428dbu;

	return folded_product(folded_product(key, 0x9e3779b97f4a7c15u), 0xa0761d6478bd642fu);
}

static inline const void *mask_source(const struct sc_match_table *table, const void *source)
{
	return (const void *)((uintptr_t)source & table->source_mask);
}

static inline uintptr_t source_mask_of(const void *source)
{
	return source ? UINTPTR_MAX : 0;
}

static inline bool table_serves(const struct sc_match_table *table, uintptr_t source_mask,
				uint64_t tag_mask)
{
	return table->source_mask == source_mask && table->tag_mask == tag_mask;
}

/* Returns the oldest entry with the key; source and tag are masked already. */
static inline struct sc_match_node *bucket_find(struct sc_match_node *node, const void *source,
						uint64_t tag)
{
	for (; node; node = node->next) {
		PROBE();
		if (node->tag == tag && node->source == source)
			break;
	}
	return node;
}

static inline struct sc_match_node *table_find(const struct sc_match_table *table, const void *source,
					       uint64_t tag)
{
	source = mask_source(table, source);
	tag &= table->tag_mask;
	return bucket_find(table->buckets[hash(source, tag) & table->mask], source, tag);
}

static inline void bucket_push(struct sc_match_node **bucket, struct sc_match_node *node)
{
	node->next = *bucket;
	if (node->next)
		node->next->link = &node->next;
	node->link = bucket;
	*bucket = node;
}

static void table_grow_slow(struct sc_match_table *table)
{
	size_t old = table->mask + 1;
	struct sc_match_node **buckets = calloc(old * 2, sizeof(*buckets));

	if (!buckets)
		return; /* the old table still works, with longer chains */
	for (size_t i = 0; i < old; i++) {
		for (struct sc_match_node *node = table->buckets[i], *next; node; node = next) {
			PROBE();
			next = node->next;
			bucket_push(&buckets[hash(node->source, node->tag) & (old * 2 - 1)], node);
		}
	}
	free(table->buckets);
	table->buckets = buckets;
	table->mask = old * 2 - 1;
}

/* Adds the newest entry. */
static inline void table_add(struct sc_match_table *table, struct sc_match_node *node, const void *source,
			     uint64_t tag)
{
	struct sc_match_node **bucket, *oldest;

	node->source = source = mask_source(table, source);
	node->tag = tag &= table->tag_mask;
	bucket = &table->buckets[hash(source, tag) & table->mask];
	oldest = bucket_find(*bucket, source, tag);
	if (oldest) {
		node->link = NULL;
		node->newer = oldest;
		node->older = oldest->older;
		node->older->newer = node;
		oldest->older = node;
		return;
	}
	node->newer = node->older = node;
	bucket_push(bucket, node);
	if (++table->keys > table->mask + 1)
		table_grow_slow(table);
}

static inline void table_remove(struct sc_match_table *table, struct sc_match_node *node)
{
	struct sc_match_node *heir = node->newer;

	if (node->link && heir == node) { /* the last entry of its key */
		*node->link = node->next;
		if (node->next)
			node->next->link = node->link;
		table->keys--;
		return;
	}
	node->older->newer = node->newer;
	node->newer->older = node->older;
	if (node->link) {
		heir->next = node->next;
		heir->link = node->link;
		*heir->link = heir;
		if (heir->next)
			heir->next->link = &heir->next;
	}
}

/* ---- matcher --------------------------------------------------------------------------------- */

void sc_match_init(struct sc_match *match)
{
	memset(match, 0, sizeof(*match));
	sc_list_init(&match->posted);
	sc_list_init(&match->waiting);
}

void sc_match_fini(struct sc_match *match)
{
	for (size_t i = 0; i < match->class_count; i++) {
		free(match->classes[i]->table.buckets);
		free(match->classes[i]);
	}
	free(match->classes);
	for (size_t i = 0; i < SC_MATCH_INDEXES; i++)
		free(match->indexes[i].table.buckets);
}

/* ---- posted receives ------------------------------------------------------------------------- */

static void class_place(struct sc_match *match, struct sc_match_class *class, size_t position)
{
	match->classes[position] = class;
	class->position = position;
}

static void class_swap(struct sc_match *match, struct sc_match_class *class, size_t position)
{
	class_place(match, match->classes[position], class->position);
	class_place(match, class, position);
}

static struct sc_match_class *class_create(struct sc_match *match)
{
	struct sc_match_class *class;

	if (match->class_count == match->class_room) {
		size_t room = match->class_room ? match->class_room * 2 : FIRST_CLASSES;
		struct sc_match_class **classes =
			realloc(match->classes, room * sizeof(struct sc_match_class *));

		if (!classes)
			return NULL;
		match->classes = classes;
		match->class_room = room;
	}
	class = calloc(1, sizeof(*class));
	if (!class)
		return NULL;
	class->table.buckets = calloc(FIRST_BUCKETS, sizeof(struct sc_match_node *));
	if (!class->table.buckets) {
		free(class);
		return NULL;
	}
	class->table.mask = FIRST_BUCKETS - 1;
	class_place(match, class, match->class_count++);
	return class;
}

static struct sc_match_class *class_get_slow(struct sc_match *match, uintptr_t source_mask,
					     uint64_t tag_mask)
{
	struct sc_match_class *class = NULL;
	size_t empty = match->class_count - match->populated;

	for (size_t i = 0; i < match->class_count; i++) {
		PROBE();
		if (table_serves(&match->classes[i]->table, source_mask, tag_mask))
			return match->classes[i];
	}
	if (empty < KEPT_CLASSES)
		class = class_create(match);
	if (!class && empty)
		class = match->classes[match->class_count -
				       1]; /* about the class that is empty for longest */
	if (class) {
		class->table.source_mask = source_mask;
		class->table.tag_mask = tag_mask;
	}
	return class;
}

static inline struct sc_match_class *class_get(struct sc_match *match, const void *source,
					       uint64_t tag_mask)
{
	if (match->class_count &&
	    table_serves(&match->classes[0]->table, source_mask_of(source), tag_mask))
		return match->classes[0];
	return class_get_slow(match, source_mask_of(source), tag_mask);
}

/*
 * A class has lost its last receive: it becomes the first of the empty classes. If these are too many, the last of them
 * is freed. They are about in the order of their use.
 */
static void class_emptied(struct sc_match *match, struct sc_match_class *class)
{
	class_swap(match, class, --match->populated);
	if (match->class_count - match->populated > KEPT_CLASSES) {
		class = match->classes[--match->class_count];
		free(class->table.buckets);
		free(class);
	}
}

int sc_match_hash(struct sc_match *match, struct sc_match_recv *recv)
{
	struct sc_match_class *class = class_get(match, recv->source, recv->tag_mask);

	if (!class)
		return -ENOMEM;
	if (!class->count++)
		class_swap(match, class, match->populated++);
	recv->class = class;
	recv->seq = match->seq++; /* receives posted before were hashed before, too */
	table_add(&class->table, &recv->node, recv->source, recv->tag);
	return 0;
}

void sc_match_unhash(struct sc_match *match, struct sc_match_recv *recv)
{
	struct sc_match_class *class = recv->class;

	table_remove(&class->table, &recv->node);
	if (!--class->count)
		class_emptied(match, class);
}

/* Hashes the receives that were scanned so far, oldest first. */
static int hash_posted(struct sc_match *match)
{
	sc_list_for (pos, &match->posted) {
		if (!sc_match_hash(match, sc_list_entry(pos, struct sc_match_recv, all)))
			continue;
		for (pos = pos->prev; pos != &match->posted; pos = pos->prev)
			sc_match_unhash(match, sc_list_entry(pos, struct sc_match_recv, all));
		return -ENOMEM;
	}
	match->hashed = true;
	return 0;
}

size_t sc_match_posted(const struct sc_match *match)
{
	size_t count = 0;

	for (const struct sc_list *pos = match->posted.next; pos != &match->posted; pos = pos->next)
		count++;
	return count;
}

/* Returns the first receive that fits, of `most`; NULL: there is none. *all: there are no more receives. */
static struct sc_match_recv *scan_posted(struct sc_match *match, const void *source, uint64_t tag,
					 size_t most, bool *all)
{
	*all = false;
	sc_list_for (pos, &match->posted) {
		struct sc_match_recv *recv = sc_list_entry(pos, struct sc_match_recv, all);

		if (!most--)
			return NULL;
		PROBE();
		if (sc_match_fits(recv, source, tag))
			return recv;
	}
	*all = true;
	return NULL;
}

struct sc_match_recv *sc_match_find_posted(struct sc_match *match, const void *source, uint64_t tag)
{
	struct sc_match_recv *best = NULL;
	bool all;

	if (!match->hashed) {
		best = scan_posted(match, source, tag, SC_MATCH_SCANNED, &all);
		if (best || all)
			return best;
		if (hash_posted(match))
			return scan_posted(match, source, tag, SIZE_MAX, &all);
	}
	for (size_t i = 0; i < match->populated; i++) {
		struct sc_match_node *node = table_find(&match->classes[i]->table, source, tag);

		PROBE();
		if (node) {
			struct sc_match_recv *recv = sc_list_entry(node, struct sc_match_recv, node);

			if (!best || recv->seq < best->seq)
				best = recv;
		}
	}
	return best;
}

/* ---- waiting messages ------------------------------------------------------------------------ */

/* Returns the first index of a set like sc_match.live; the loops below remove it with rest &= rest - 1. */
static inline unsigned first_of(unsigned set)
{
	return (unsigned)__builtin_ctz(set);
}

void sc_match_keep(struct sc_match *match, struct sc_match_msg *msg)
{
	msg->seq = match->seq++;
	sc_list_append(&match->waiting, &msg->all);
	match->waiting_count++;
	for (unsigned rest = match->live; rest; rest &= rest - 1) {
		unsigned i = first_of(rest);

		table_add(&match->indexes[i].table, &msg->nodes[i], msg->source, msg->tag);
	}
}

void sc_match_drop(struct sc_match *match, struct sc_match_msg *msg)
{
	for (unsigned rest = match->live; rest; rest &= rest - 1) {
		unsigned i = first_of(rest);

		table_remove(&match->indexes[i].table, &msg->nodes[i]);
	}
	sc_list_remove(&msg->all);
	if (!--match->waiting_count)
		match->live = 0; /* all indexes are empty now */
}

/* Returns the index that a new class of searches may use, or -1. */
static int index_choose(const struct sc_match *match)
{
	int oldest = 0;

	for (int i = 0; i < SC_MATCH_INDEXES; i++) {
		if (!(match->live & 1u << i))
			return i;
		if (match->indexes[i].last < match->indexes[oldest].last)
			oldest = i;
	}
	return match->searches - match->indexes[oldest].last > STALE ? oldest : -1;
}

/* Empties a table, with buckets for this many keys if there is memory, else fewer. False: no memory for any. */
static bool table_reset(struct sc_match_table *table, size_t keys)
{
	struct sc_match_node **larger;
	size_t count = FIRST_BUCKETS;

	while (count < keys)
		count *= 2;
	if (!table->buckets || count > table->mask + 1) {
		larger = calloc(count, sizeof(*larger));
		if (!larger && !table->buckets)
			return false;
		if (larger) {
			free(table->buckets);
			table->buckets = larger;
			table->mask = count - 1;
			table->keys = 0;
		}
	}
	if (table->keys)
		memset(table->buckets, 0, (table->mask + 1) * sizeof(*table->buckets));
	table->keys = 0;
	return true;
}

static struct sc_match_index *index_build_slow(struct sc_match *match, uintptr_t source_mask,
					       uint64_t tag_mask)
{
	int i = index_choose(match);
	struct sc_match_index *index = &match->indexes[i < 0 ? 0 : i];

	if (i < 0 || !table_reset(&index->table, match->waiting_count))
		return NULL;
	index->table.source_mask = source_mask;
	index->table.tag_mask = tag_mask;
	sc_list_for (pos, &match->waiting) {
		struct sc_match_msg *msg = sc_list_entry(pos, struct sc_match_msg, all);

		PROBE();
		table_add(&index->table, &msg->nodes[i], msg->source, msg->tag);
	}
	match->live |= 1u << i;
	return index;
}

/* Returns the index for such searches; NULL: scan. */
static struct sc_match_index *index_get(struct sc_match *match, uintptr_t source_mask, uint64_t tag_mask)
{
	for (unsigned rest = match->live; rest; rest &= rest - 1) {
		unsigned i = first_of(rest);

		if (table_serves(&match->indexes[i].table, source_mask, tag_mask))
			return &match->indexes[i];
	}
	return match->waiting_count > FEW ? index_build_slow(match, source_mask, tag_mask) : NULL;
}

static inline bool msg_fits(const struct sc_match_msg *msg, const void *source, uint64_t tag,
			    uint64_t tag_mask)
{
	PROBE();
	return !((msg->tag ^ tag) & tag_mask) && (!source || msg->source == source);
}

static struct sc_match_msg *scan_waiting(struct sc_match *match, const void *source, uint64_t tag,
					 uint64_t tag_mask)
{
	sc_list_for (pos, &match->waiting) {
		struct sc_match_msg *msg = sc_list_entry(pos, struct sc_match_msg, all);

		if (msg_fits(msg, source, tag, tag_mask))
			return msg;
	}
	return NULL;
}

static struct sc_match_msg *index_find(const struct sc_match *match, const struct sc_match_index *index,
				       const void *source, uint64_t tag)
{
	struct sc_match_node *node = table_find(&index->table, source, tag);
	size_t i = (size_t)(index - match->indexes);

	return node ? sc_list_entry(node - i, struct sc_match_msg, nodes) : NULL;
}

struct sc_match_msg *sc_match_find_waiting(struct sc_match *match, const void *source, uint64_t tag,
					   uint64_t ignore)
{
	struct sc_match_msg *oldest = sc_list_entry(match->waiting.next, struct sc_match_msg, all);
	struct sc_match_index *index;

	if (msg_fits(oldest, source, tag, ~ignore))
		return oldest;
	match->searches++;
	index = index_get(match, source_mask_of(source), ~ignore);
	if (!index)
		return scan_waiting(match, source, tag, ~ignore);
	index->last = match->searches;
	return index_find(match, index, source, tag);
}
