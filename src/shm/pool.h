/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.h: the private ledger of an endpoint's bounce buffers: which are free, which are lent, and to which peer.
 *
 * A buffer is lent with a record: it is named in the line at ring position `at` of one peer's ring and
 * comes back when that peer's head has passed the position, or a message in one of them has told the same (hold.h).
 * Records are read in order, so the loans of a peer are a queue and nothing else gives buffers back. (One that its ring
 * overflows into has the position of the record that leaves it, when that has been written: record.c.) Nothing of this is
 * shared: a peer can keep what it was lent, never take or free another's. When a peer is gone, sc_pool_reclaim()
 * takes its loans back. Loans that answer a peer's gets are a queue apart, by the number of the answer instead of a
 * position (target.c).
 *
 * A peer may hold up to four times what is left free, so one that does not read cannot take the last
 * buffers from the others.
 *
 * A buffer that comes back is lent again first, so that few are in turn and stay in the processors' caches.
 *
 * Not all of them have memory: the first `have` do. The check whether a peer may be lent some counts as if all had;
 * before they are lent there have to be enough with memory, sc_pool_has(), see sc_record_may_lend().
 */
#ifndef SC_POOL_H
#define SC_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define SC_POOL_NONE UINT16_MAX

/* A queue of buffers, linked by sc_pool.next; oldest first. */
struct sc_loans {
	uint16_t first, last;
	uint32_t count;
};

struct sc_pool {
	uint16_t free_first, free_last; /* of those that have memory: a queue like a borrower's */
	uint32_t free_count, have;
	uint32_t count; /* that may be counted on: `most`, or `have` where there is no memory for more */
	uint32_t most;
	uint32_t short_of; /* times that more were wanted since then */
	uint16_t warm; /* free, and has just been read here, so that its lines are in this processor's cache; or none */
	uint16_t *next; /* by buffer */
	uint64_t *at;	/* by buffer: ring position it was lent at */
};

/* have <= count */
int sc_pool_init(struct sc_pool *pool, uint32_t count, uint32_t have);
void sc_pool_fini(struct sc_pool *pool);

/* The first `have` have memory by now. */
void sc_pool_grow(struct sc_pool *pool, uint32_t have);

/* There is no memory for more. */
static inline void sc_pool_grow_failed(struct sc_pool *pool)
{
	pool->count = pool->have;
	pool->short_of = 0;
}

/* Those that are lent next: is there memory for them? */
static inline bool sc_pool_has(const struct sc_pool *pool, uint32_t buffers)
{
	return pool->free_count >= buffers;
}

/* Is the one that is lent next warm? */
static inline bool sc_pool_is_warm(const struct sc_pool *pool)
{
	return pool->free_first == pool->warm && pool->free_count;
}

static inline void sc_loans_init(struct sc_loans *loans)
{
	*loans = (struct sc_loans){ SC_POOL_NONE, SC_POOL_NONE, 0 };
}

/* Those that are not lent, with memory or without. */
static inline uint32_t sc_pool_left(const struct sc_pool *pool)
{
	return pool->free_count + (pool->count - pool->have);
}

/* May this borrower have `buffers` more, with `reserve` left free besides? */
static inline bool sc_pool_may_lend(const struct sc_pool *pool, const struct sc_loans *loans,
				    uint32_t buffers, uint32_t reserve)
{
	uint32_t left = sc_pool_left(pool);

	return left >= buffers + reserve && loans->count + buffers <= 4 * (left - buffers - reserve) + 4;
}

/* It is the last of them. */
static inline void sc_loans_append(struct sc_pool *pool, struct sc_loans *loans, uint16_t buf)
{
	pool->next[buf] = SC_POOL_NONE;
	if (loans->count++)
		pool->next[loans->last] = buf;
	else
		loans->first = buf;
	loans->last = buf;
}

/* Lend one at ring position `at`; sc_pool_may_lend() and sc_pool_has() said yes. */
static inline uint16_t sc_pool_lend(struct sc_pool *pool, struct sc_loans *loans, uint64_t at)
{
	uint16_t buf = pool->free_first;

	pool->free_first = pool->next[buf];
	pool->free_count--;
	pool->warm = SC_POOL_NONE;
	pool->at[buf] = at;
	sc_loans_append(pool, loans, buf);
	return buf;
}

static inline void sc_pool_put(struct sc_pool *pool, uint16_t buf)
{
	if (!pool->free_count++)
		pool->free_last = buf;
	pool->next[buf] = pool->free_first;
	pool->free_first = buf;
}

/* Take back what was lent before ring position `head`. */
static inline void sc_pool_return(struct sc_pool *pool, struct sc_loans *loans, uint64_t head)
{
	while (loans->count && pool->at[loans->first] < head) {
		uint16_t buf = loans->first;

		loans->first = pool->next[buf];
		loans->count--;
		sc_pool_put(pool, buf);
	}
}

void sc_pool_return_others_slow(struct sc_pool *pool, struct sc_loans *loans, uint64_t head,
				const uint16_t *kept, uint32_t kept_count);

/* The same, but for these of them, in the order in which they were lent, which stay so. */
static inline void sc_pool_return_others(struct sc_pool *pool, struct sc_loans *loans, uint64_t head,
					 const uint16_t *kept, uint32_t kept_count)
{
	if (__builtin_expect(kept_count, 0))
		sc_pool_return_others_slow(pool, loans, head, kept, kept_count);
	else
		sc_pool_return(pool, loans, head);
}

/* Take everything back from a borrower that is gone. */
static inline void sc_pool_reclaim(struct sc_pool *pool, struct sc_loans *loans)
{
	sc_pool_return(pool, loans, UINT64_MAX);
}

#endif
