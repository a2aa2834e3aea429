/* SPDX-License-Identifier: BSD-2-Clause */
/* ring.c: the parts of a ring that need not be inline. See ring.h for the rules. */
#include "ring.h"

#include <errno.h>
#include "inject.h"

int sc_ring_refresh(struct sc_ring_tx *tx)
{
	/* R2' acquire: pairs with R2 in sc_ring_publish(); lines up to head may be written again */
	uint64_t head = sc_load_acquire_64(&tx->consumer->head);

	if (head - tx->head > tx->tail - tx->head)
		return -EPROTO;
	tx->head = head < tx->held ? head : tx->held;
	return 0;
}

/* A payload in the lines of a record: what of it is in this line, and the rest. */
struct walk {
	struct sc_abi_line *lines, *line;
	uint8_t *at;
	uint32_t here; /* bytes at `at` */
};

static inline struct walk walk_begin(struct sc_abi_line *lines, struct sc_abi_line *first, uint32_t here)
{
	return (struct walk){ lines, first, first->bytes + SC_ABI_LINE_BYTES - here, here };
}

static inline void walk_on(struct walk *walk)
{
	walk->line = sc_ring_next(walk->lines, walk->line);
	walk->at = walk->line->bytes;
	walk->here = SC_ABI_LINE_BYTES;
}

void sc_lines_write_slow(struct sc_abi_line *lines, struct sc_abi_line *first, uint32_t here,
			 const void *from, uint32_t size)
{
	struct walk walk = walk_begin(lines, first, here);

	for (; size > walk.here; walk_on(&walk)) {
		memcpy(walk.at, from, walk.here);
		(void)SC_INJECT("ring.payload");
		from = (const uint8_t *)from + walk.here;
		size -= walk.here;
	}
	memcpy(walk.at, from, size);
}

void sc_lines_read_slow(struct sc_abi_line *lines, const struct sc_abi_line *first, uint32_t here,
			void *to, uint32_t size)
{
	struct walk walk = walk_begin(lines, (struct sc_abi_line *)first, here);

	for (; size > walk.here; walk_on(&walk)) {
		memcpy(to, walk.at, walk.here);
		to = (uint8_t *)to + walk.here;
		size -= walk.here;
	}
	memcpy(to, walk.at, size);
}
