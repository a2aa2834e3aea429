/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.h: the private ledger of an endpoint's bounce buffers: which are free, which are lent, and to which peer.
 *
 * A buffer is lent with a record of one peer's ring, and `at` is the ring position of the line that names it. The
 * buffer comes back when that peer's head has passed the position, or when a message in a lent buffer tells the same
 * (hold.h). Peers read records in order, so the loans of a peer are a queue. (A buffer that the ring overflows into
 * gets the position of the record that leaves it, once that record is written: record.c.) Nothing of this is shared: a
 * peer can keep what it was lent, but can take or free no other buffer. When a peer has gone, sc_pool_reclaim() takes
 * its loans back. Loans that answer a peer's gets have a queue of their own, by the number of the answer (taker.c).
 *
 * A peer may hold up to four times the buffers that are left free. So a peer that does not read cannot take the last
 * ones from the others. A buffer that comes back is lent again first, so that few are in use and stay in the caches.
 *
 * Only the first `have` buffers have memory. sc_pool_may_lend() counts as if all had; before the loan, sc_pool_has()
 * must find enough buffers with memory, see sc_record_may_lend().
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
	uint16_t free_first, free_last; /* free buffers with memory: a queue like struct sc_loans */
	uint32_t free_count, have;
	uint32_t count; /* usable buffers: `most`, or `have` when there is no memory for more */
	uint32_t most;
	uint32_t short_of; /* times that more were wanted since memory ran out */
	uint16_t warm; /* free, just read here: its lines are in this processor's cache; or SC_POOL_NONE */
	uint16_t *next; /* of each buffer */
	uint64_t *at;	/* of each buffer: ring position of its loan */
};

/* have <= count */
int sc_pool_init(struct sc_pool *pool, uint32_t count, uint32_t have);
void sc_pool_fini(struct sc_pool *pool);

/* The first `have` buffers have memory now. */
void sc_pool_grow(struct sc_pool *pool, uint32_t have);

/* There is no memory for more. */
static inline void sc_pool_grow_failed(struct sc_pool *pool)
{
	pool->count = pool->have;
	pool->short_of = 0;
}

/* Tells whether the next `buffers` to be lent have memory. */
static inline bool sc_pool_has(const struct sc_pool *pool, uint32_t buffers)
{
	return pool->free_count >= buffers;
}

/* Tells whether the next buffer to be lent is warm. */
static inline bool sc_pool_is_warm(const struct sc_pool *pool)
{
	return pool->free_first == pool->warm && pool->free_count;
}

static inline void sc_loans_init(struct sc_loans *loans)
{
	*loans = (struct sc_loans){ SC_POOL_NONE, SC_POOL_NONE, 0 };
}

/* Returns the buffers that are not lent, with memory or without. */
static inline uint32_t sc_pool_left(const struct sc_pool *pool)
{
	return pool->free_count + (pool->count - pool->have);
}

/* Tells whether this borrower may have `buffers` more, while `reserve` others stay free. */
static inline bool sc_pool_may_lend(const struct sc_pool *pool, const struct sc_loans *loans,
				    uint32_t buffers, uint32_t reserve)
{
	uint32_t left = sc_pool_left(pool);

	return left >= buffers + reserve && loans->count + buffers <= 4 * (left - buffers - reserve) + 4;
}

static inline void sc_loans_append(struct sc_pool *pool, struct sc_loans *loans, uint16_t buf)
{
	pool->next[buf] = SC_POOL_NONE;
	if (loans->count++)
		pool->next[loans->last] = buf;
	else
		loans->first = buf;
	loans->last = buf;
}

/* Lends a buffer at ring position `at`, after sc_pool_may_lend() and sc_pool_has() have agreed. */
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

/* Takes back the buffers that were lent before ring position `head`. */
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

/* The same, except for the buffers in `kept`, which stay lent; `kept` is in the order of the loans. */
static inline void sc_pool_return_others(struct sc_pool *pool, struct sc_loans *loans, uint64_t head,
					 const uint16_t *kept, uint32_t kept_count)
{
	if (__builtin_expect(kept_count, 0))
		sc_pool_return_others_slow(pool, loans, head, kept, kept_count);
	else
		sc_pool_return(pool, loans, head);
}

/* Takes all buffers back from a borrower that has gone. */
static inline void sc_pool_reclaim(struct sc_pool *pool, struct sc_loans *loans)
{
	sc_pool_return(pool, loans, UINT64_MAX);
}

#endif
