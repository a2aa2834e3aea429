/* SPDX-License-Identifier: BSD-2-Clause */
/* pool.c: set-up of the ledger. See pool.h for the rules. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

int sc_pool_init(struct sc_pool *pool, uint32_t count)
{
	*pool = (struct sc_pool){ .count = count, .free_count = count };
	pool->free = calloc(count, sizeof(*pool->free));
	pool->next = calloc(count, sizeof(*pool->next));
	pool->at = calloc(count, sizeof(*pool->at));
	if (!pool->free || !pool->next || !pool->at) {
		sc_pool_fini(pool);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++)
		pool->free[i] = (uint16_t)(count - 1 - i);
	return 0;
}

void sc_pool_fini(struct sc_pool *pool)
{
	free(pool->free);
	free(pool->next);
	free(pool->at);
	*pool = (struct sc_pool){ 0 };
}
