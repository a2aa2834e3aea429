/* SPDX-License-Identifier: BSD-2-Clause */
/* ring.c: the parts of a ring that need not be inline. See ring.h for the rules. */
#include "ring.h"

#include <errno.h>
#include <string.h>

int sc_ring_refresh(struct sc_ring_tx *tx)
{
	/* R2' acquire: pairs with R2 in sc_ring_publish(); lines up to head may be written again */
	uint64_t head = sc_load_acquire_64(&tx->consumer->head);

	if (head - tx->head > tx->tail - tx->head)
		return -EPROTO;
	tx->head = head;
	return 0;
}

void sc_inline_write(struct sc_abi_line *lines, struct sc_abi_line *first, uint32_t flags,
		     const uint8_t *from, uint32_t size)
{
	uint32_t here = sc_inline_first(flags);
	uint8_t *to = first->bytes + SC_ABI_LINE_BYTES - here;

	while (size > here) {
		memcpy(to, from, here);
		from += here;
		size -= here;
		first = sc_ring_next(lines, first);
		to = first->bytes;
		here = SC_ABI_LINE_BYTES;
	}
	memcpy(to, from, size);
}

void sc_inline_read(struct sc_abi_line *lines, const struct sc_abi_line *first, uint32_t flags, uint8_t *to,
		    uint32_t size)
{
	uint32_t here = sc_inline_first(flags);
	const uint8_t *from = first->bytes + SC_ABI_LINE_BYTES - here;

	while (size > here) {
		memcpy(to, from, here);
		to += here;
		size -= here;
		first = sc_ring_next(lines, first);
		from = first->bytes;
		here = SC_ABI_LINE_BYTES;
	}
	memcpy(to, from, size);
}
