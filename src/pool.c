/* SPDX-License-Identifier: BSD-2-Clause */
/* pool.c: set-up of the ledger, and its growth. See pool.h for the rules. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sc_pool_init(struct sc_pool *pool, uint32_t count, uint32_t have)
{
	*pool = (struct sc_pool){ .count = count, .most = count };
	pool->free = calloc(count, sizeof(*pool->free));
	pool->next = calloc(count, sizeof(*pool->next));
	pool->at = calloc(count, sizeof(*pool->at));
	if (!pool->free || !pool->next || !pool->at) {
		sc_pool_fini(pool);
		return -ENOMEM;
	}
	sc_pool_grow(pool, have);
	return 0;
}

/* What is new comes last: those that have been used are in a cache, and mapped. */
void sc_pool_grow(struct sc_pool *pool, uint32_t have)
{
	uint32_t more = have - pool->have;

	memmove(pool->free + more, pool->free, pool->free_count * sizeof(*pool->free));
	for (uint32_t i = 0; i < more; i++)
		pool->free[i] = (uint16_t)(have - 1 - i);
	pool->free_count += more;
	pool->have = have;
	pool->count = pool->most;
}

void sc_pool_fini(struct sc_pool *pool)
{
	free(pool->free);
	free(pool->next);
	free(pool->at);
	*pool = (struct sc_pool){ 0 };
}
