/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_MATCH_H
#define SC_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/list.h"

/*
 * Matching of messages and receives: one struct sc_match for each queue (plain, tagged).
 *
 * A receive {source or any, tag, ignore} fits a message {source, tag} if it takes any source or this one, and the tags
 * are equal outside `ignore`. A message goes to the oldest receive that fits; a receive takes the oldest message that
 * fits.
 *
 * Private memory, one thread at a time. Costs are given in match.c.
 */

/* A search scans this many posted receives. If none of them fits and there are more, all are hashed. */
#define SC_MATCH_SCANNED 8

/* Number of kinds of searches (any source?, ignore) that can have an index of the waiting messages. */
#define SC_MATCH_INDEXES 4

/* An entry of a hash table; private to the matcher. */
struct sc_match_node {
	const void *source; /* the key, masked by its table */
	uint64_t tag;
	struct sc_match_node *newer, *older; /* ring of this key's nodes; the oldest is in the bucket */
	struct sc_match_node *next;	     /* in the bucket: the next key */
	struct sc_match_node **link;	     /* in the bucket: the pointer to this; NULL: not in it */
};

/* The keys of one class of receives. */
struct sc_match_table {
	uintptr_t source_mask; /* 0: any source */
	uint64_t tag_mask;     /* ~ignore */
	struct sc_match_node **buckets;
	size_t mask; /* buckets - 1 */
	size_t keys;
};

/* Part of a posted receive. The caller fills source, tag, tag_mask; the other fields belong to the matcher. */
struct sc_match_recv {
	const void *source; /* NULL: any */
	uint64_t tag;
	uint64_t tag_mask;	      /* ~ignore */
	uint64_t seq;		      /* if sc_match.hashed: order of posting */
	struct sc_list all;	      /* in sc_match.posted */
	struct sc_match_class *class; /* if sc_match.hashed, and the node */
	struct sc_match_node node;
};

/* Part of a waiting message. The caller fills source and tag. */
struct sc_match_msg {
	const void *source; /* never NULL */
	uint64_t tag;
	uint64_t seq;				      /* order of arrival */
	struct sc_list all;			      /* in sc_match.waiting */
	struct sc_match_node nodes[SC_MATCH_INDEXES]; /* valid if sc_match.live has the bit */
};

/* The posted receives with the same (any source?, ignore). */
struct sc_match_class {
	struct sc_match_table table;
	size_t count;	 /* receives */
	size_t position; /* in sc_match.classes */
};

/* All waiting messages, with the keys of one kind of search. */
struct sc_match_index {
	struct sc_match_table table;
	uint64_t last; /* sc_match.searches at its last use */
};

struct sc_match {
	struct sc_list posted;	/* all posted receives, oldest first */
	struct sc_list waiting; /* all waiting messages, oldest first */
	size_t waiting_count;
	uint64_t seq;
	bool hashed; /* all posted receives are in the tables of their classes; else none */

	struct sc_match_class **classes; /* first `populated` with receives, then empty ones */
	size_t populated, class_count, class_room;

	unsigned live; /* bit i: indexes[i] holds all waiting messages; else it is empty */
	uint64_t searches;
	struct sc_match_index indexes[SC_MATCH_INDEXES];
};

/* Takes no memory: the tables come with their first use. */
void sc_match_init(struct sc_match *match);
/* The receives and messages in the lists still belong to the caller. */
void sc_match_fini(struct sc_match *match);

/* Puts a receive into the hash table, or takes it out; the table replaces a short list. For the functions below. */
int sc_match_hash(struct sc_match *match, struct sc_match_recv *recv);
void sc_match_unhash(struct sc_match *match, struct sc_match_recv *recv);

/* Posts a receive. -ENOMEM: nothing has changed. */
static inline int sc_match_post(struct sc_match *match, struct sc_match_recv *recv)
{
	int ret = match->hashed ? sc_match_hash(match, recv) : 0;

	if (ret)
		return ret;
	sc_list_append(&match->posted, &recv->all);
	return 0;
}

static inline void sc_match_unpost(struct sc_match *match, struct sc_match_recv *recv)
{
	sc_list_unlink(&recv->all);
	if (__builtin_expect(match->hashed, 0)) {
		sc_match_unhash(match, recv);
		match->hashed = !sc_list_empty(&match->posted); /* else all tables are empty now */
	}
}

/* Returns the number of posted receives; walks the whole list. */
size_t sc_match_posted(const struct sc_match *match);

/* Keeps a waiting message. */
void sc_match_keep(struct sc_match *match, struct sc_match_msg *msg);
void sc_match_drop(struct sc_match *match, struct sc_match_msg *msg);

/* The two searches in a queue that is not empty; for the functions below. */
struct sc_match_recv *sc_match_find_posted(struct sc_match *match, const void *source, uint64_t tag);
struct sc_match_msg *sc_match_find_waiting(struct sc_match *match, const void *source, uint64_t tag,
					   uint64_t ignore);

static inline bool sc_match_fits(const struct sc_match_recv *recv, const void *source, uint64_t tag)
{
	if ((recv->tag ^ tag) & recv->tag_mask)
		return false;
	return __builtin_expect(!recv->source, 1) || recv->source == source;
}

/* Returns the oldest posted receive if it fits, which is usual; or NULL. */
static inline struct sc_match_recv *sc_match_first_recv(struct sc_match *match, const void *source,
							uint64_t tag)
{
	struct sc_match_recv *first = sc_list_entry(match->posted.next, struct sc_match_recv, all);

	if (__builtin_expect(sc_list_empty(&match->posted), 0))
		return NULL;
	return sc_match_fits(first, source, tag) ? first : NULL;
}

/* Returns the oldest posted receive that fits, still posted; or NULL. */
static inline struct sc_match_recv *sc_match_find_recv(struct sc_match *match, const void *source,
						       uint64_t tag)
{
	struct sc_match_recv *first = sc_match_first_recv(match, source, tag);

	return first || sc_list_empty(&match->posted) ? first : sc_match_find_posted(match, source, tag);
}

/* Returns the oldest waiting message that fits, still kept; or NULL. */
static inline struct sc_match_msg *sc_match_find_msg(struct sc_match *match, const void *source,
						     uint64_t tag, uint64_t ignore)
{
	return match->waiting_count ? sc_match_find_waiting(match, source, tag, ignore) : NULL;
}

#endif
