/* SPDX-License-Identifier: BSD-2-Clause */
/* pool.c: set-up of the ledger, and its growth. See pool.h for the rules. */
#include "shm/pool.h"

#include <errno.h>
#include <stdlib.h>

int sc_pool_init(struct sc_pool *pool, uint32_t count, uint32_t have)
{
	*pool = (struct sc_pool){ .count = count, .most = count, .warm = SC_POOL_NONE };
	pool->next = calloc(count, sizeof(*pool->next));
	pool->at = calloc(count, sizeof(*pool->at));
	if (!pool->next || !pool->at) {
		sc_pool_fini(pool);
		return -ENOMEM;
	}
	sc_pool_grow(pool, have);
	return 0;
}

/* New buffers are lent last: used ones are mapped, and in a cache. */
void sc_pool_grow(struct sc_pool *pool, uint32_t have)
{
	for (uint32_t buf = pool->have; buf < have; buf++) {
		if (pool->free_count++)
			pool->next[pool->free_last] = (uint16_t)buf;
		else
			pool->free_first = (uint16_t)buf;
		pool->free_last = (uint16_t)buf;
	}
	pool->have = have;
	pool->count = pool->most;
}

void sc_pool_return_others_slow(struct sc_pool *pool, struct sc_loans *loans, uint64_t head,
				const uint16_t *kept, uint32_t kept_count)
{
	struct sc_loans left;

	sc_loans_init(&left);
	while (loans->count && pool->at[loans->first] < head) {
		uint16_t buf = loans->first;

		loans->first = pool->next[buf];
		loans->count--;
		if (kept_count && buf == *kept) {
			sc_loans_append(pool, &left, buf);
			kept++;
			kept_count--;
		} else {
			sc_pool_put(pool, buf);
		}
	}
	if (!loans->count) {
		*loans = left;
	} else if (left.count) {
		pool->next[left.last] = loans->first;
		loans->first = left.first;
		loans->count += left.count;
	}
}

void sc_pool_fini(struct sc_pool *pool)
{
	free(pool->next);
	free(pool->at);
	*pool = (struct sc_pool){ 0 };
}
