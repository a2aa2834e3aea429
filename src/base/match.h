/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_MATCH_H
#define SC_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/list.h"

/*
 * Matching of messages and receives: one struct sc_match per queue (plain, tagged).
 *
 * A receive {source or any, tag, ignore} fits a message {source, tag} if the source is the same or any
 * and the tags agree outside `ignore`. A message goes to the oldest fitting receive, a receive takes the
 * oldest fitting message.
 *
 * Private memory, one thread at a time. Costs are given in match.c.
 */

/* So many posted receives are scanned; when none of them is it, and there are more, all are hashed. */
#define SC_MATCH_SCANNED 8

/* Searches of this many kinds (any source?, ignore) can have an index of the waiting messages each. */
#define SC_MATCH_INDEXES 4

/* An entry of a hash table; the matcher's. */
struct sc_match_node {
	const void *source; /* the key, as its table masks it */
	uint64_t tag;
	struct sc_match_node *newer, *older; /* ring of those with this key; the oldest is in the bucket */
	struct sc_match_node *next;	     /* in the bucket: the next key */
	struct sc_match_node **link;	     /* in the bucket: the link to this; NULL: not in the bucket */
};

/* The keys of one class of receives. */
struct sc_match_table {
	uintptr_t source_mask; /* 0: any source */
	uint64_t tag_mask;     /* ~ignore */
	struct sc_match_node **buckets;
	size_t mask; /* buckets - 1 */
	size_t keys;
};

/* Embedded in a posted receive. The caller fills source, tag, tag_mask; the rest is the matcher's. */
struct sc_match_recv {
	const void *source; /* NULL: any */
	uint64_t tag;
	uint64_t tag_mask;	      /* ~ignore */
	uint64_t seq;		      /* with sc_match.hashed: order of posting */
	struct sc_list all;	      /* in sc_match.posted */
	struct sc_match_class *class; /* with sc_match.hashed, and the node */
	struct sc_match_node node;
};

/* Embedded in an unexpected message. The caller fills source and tag. */
struct sc_match_msg {
	const void *source; /* never NULL */
	uint64_t tag;
	uint64_t seq;				      /* order of arrival */
	struct sc_list all;			      /* in sc_match.waiting */
	struct sc_match_node nodes[SC_MATCH_INDEXES]; /* valid where sc_match.live has the bit */
};

/* Posted receives with the same (any source?, ignore). */
struct sc_match_class {
	struct sc_match_table table;
	size_t count;	 /* receives */
	size_t position; /* in sc_match.classes */
};

/* All waiting messages by the key of one kind of search. */
struct sc_match_index {
	struct sc_match_table table;
	uint64_t last; /* sc_match.searches when it was last used */
};

struct sc_match {
	struct sc_list posted;	/* all posted receives, oldest first */
	struct sc_list waiting; /* all unexpected messages, oldest first */
	size_t waiting_count;
	uint64_t seq;
	bool hashed; /* all posted receives are in the tables of their classes; else none is */

	struct sc_match_class **classes; /* `populated` with receives, then those kept for later */
	size_t populated, class_count, class_room;

	unsigned live; /* bit i: indexes[i] holds all waiting messages; else it is empty */
	uint64_t searches;
	struct sc_match_index indexes[SC_MATCH_INDEXES];
};

int sc_match_init(struct sc_match *match);
/* The caller still owns the receives and messages that are in the lists. */
void sc_match_fini(struct sc_match *match);

/*
 * Puts a receive into, and takes it out of, the hash table, which replaces a list of few receives; for the functions
 * below.
 */
int sc_match_hash(struct sc_match *match, struct sc_match_recv *recv);
void sc_match_unhash(struct sc_match *match, struct sc_match_recv *recv);

/* Post a receive. -ENOMEM: nothing has changed. */
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

/* Receives that are posted; looks at each. */
size_t sc_match_posted(const struct sc_match *match);

/* Keep an unexpected message. */
void sc_match_keep(struct sc_match *match, struct sc_match_msg *msg);
void sc_match_drop(struct sc_match *match, struct sc_match_msg *msg);

/* The two searches where there is something to search; for the functions below. */
struct sc_match_recv *sc_match_find_posted(struct sc_match *match, const void *source, uint64_t tag);
struct sc_match_msg *sc_match_find_waiting(struct sc_match *match, const void *source, uint64_t tag,
					   uint64_t ignore);

static inline bool sc_match_fits(const struct sc_match_recv *recv, const void *source, uint64_t tag)
{
	if ((recv->tag ^ tag) & recv->tag_mask)
		return false;
	return __builtin_expect(!recv->source, 1) || recv->source == source;
}

/* The receive that is posted for longest, which it mostly is, if it fits; or NULL. */
static inline struct sc_match_recv *sc_match_first_recv(struct sc_match *match, const void *source,
							uint64_t tag)
{
	struct sc_match_recv *first = sc_list_entry(match->posted.next, struct sc_match_recv, all);

	if (__builtin_expect(sc_list_empty(&match->posted), 0))
		return NULL;
	return sc_match_fits(first, source, tag) ? first : NULL;
}

/* The oldest posted receive that fits, still posted; or NULL. */
static inline struct sc_match_recv *sc_match_find_recv(struct sc_match *match, const void *source,
						       uint64_t tag)
{
	struct sc_match_recv *first = sc_match_first_recv(match, source, tag);

	return first || sc_list_empty(&match->posted) ? first : sc_match_find_posted(match, source, tag);
}

/* The oldest unexpected message that fits, still kept; or NULL. */
static inline struct sc_match_msg *sc_match_find_msg(struct sc_match *match, const void *source,
						     uint64_t tag, uint64_t ignore)
{
	return match->waiting_count ? sc_match_find_waiting(match, source, tag, ignore) : NULL;
}

#endif
