/* SPDX-License-Identifier: BSD-2-Clause */
/* pool.c: set-up of the ledger, and its growth. See pool.h for the rules. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

int sc_pool_init(struct sc_pool *pool, uint32_t count, uint32_t have)
{
	*pool = (struct sc_pool){ .count = count, .most = count };
	pool->next = calloc(count, sizeof(*pool->next));
	pool->at = calloc(count, sizeof(*pool->at));
	if (!pool->next || !pool->at) {
		sc_pool_fini(pool);
		return -ENOMEM;
	}
	sc_pool_grow(pool, have);
	return 0;
}

/* What is new comes last: those that have been used are in a cache, and mapped. */
void sc_pool_grow(struct sc_pool *pool, uint32_t have)
{
	for (uint32_t buf = pool->have; buf < have; buf++)
		sc_pool_put(pool, (uint16_t)buf, SC_POOL_LAST);
	pool->have = have;
	pool->count = pool->most;
}

void sc_pool_fini(struct sc_pool *pool)
{
	free(pool->next);
	free(pool->at);
	*pool = (struct sc_pool){ 0 };
}
