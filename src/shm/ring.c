/* SPDX-License-Identifier: BSD-2-Clause */
/* ring.c: the parts of a ring that need not be inline. See ring.h for the rules. */
#include "shm/ring.h"

#include <errno.h>
#include "base/fault.h"

int sc_ring_refresh(struct sc_ring_tx *tx)
{
	/* R2' acquire: pairs with R2 in sc_ring_publish(); lines up to head may be written again */
	uint64_t head = sc_load_acquire_64(&tx->consumer->head);

	if (head - tx->said > tx->tail - tx->said)
		return -EPROTO;
	tx->said = head;
	sc_ring_learn(tx, head);
	return 0;
}

void sc_ring_overflow(struct sc_ring_tx *tx, struct sc_abi_line *lines, uint32_t count)
{
	if (!sc_ring_overflows(tx)) {
		tx->left = tx->at;
		tx->since = tx->tail;
	}
	tx->at = sc_ring_begin(lines, count);
	sc_ring_set_room(tx, 0);
}

void sc_ring_resume(struct sc_ring_tx *tx)
{
	tx->at = tx->left;
	tx->left.lines = NULL;
	tx->since = tx->tail;
	sc_ring_set_room(tx, tx->at.count == SC_ABI_RING_FIRST ? SC_RING_FIRST_ROOM : SC_RING_ROOM);
}

void sc_ring_overflowed(struct sc_ring_rx *rx, struct sc_abi_line *lines, uint32_t count)
{
	if (!rx->left.lines)
		rx->left = rx->at;
	rx->at = sc_ring_begin(lines, count);
}

void sc_ring_resumed(struct sc_ring_rx *rx)
{
	rx->at = rx->left;
	rx->left.lines = NULL;
}

void sc_ring_show_place(const struct sc_ring_rx *rx)
{
	uint32_t count = rx->at.count;
	uint64_t at = (uint64_t)(rx->at.next - rx->at.lines) + (rx->at.lap == SC_RING_LAP_FIRST ? 0 : count);
	uint32_t base = (uint32_t)((rx->head % (2 * count) + 2 * count - at) % (2 * count));

	/* relaxed: no endpoint reads it */
	sc_store_relaxed_32(&rx->consumer->place,
			    rx->left.lines ? SC_ABI_PLACE_BUFFER : SC_ABI_PLACE(count, base));
	(void)SC_FAULT("ring.place");
}

/* The first line is written last: the reader polls it, and would take it away between two stores. */
void sc_lines_write_slow(const struct sc_ring_place *at, struct sc_abi_line *first, uint32_t here, const void *from,
			 uint32_t size)
{
	struct sc_abi_line *line = sc_ring_next(at, first);
	const uint8_t *rest = (const uint8_t *)from + here;

	for (size -= here; size > SC_ABI_LINE_BYTES;
	     size -= SC_ABI_LINE_BYTES, rest += SC_ABI_LINE_BYTES) {
		memcpy(line->bytes, rest, SC_ABI_LINE_BYTES);
		(void)SC_FAULT("ring.payload");
		line = sc_ring_next(at, line);
	}
	sc_line_copy(line->bytes, rest, size);
	sc_line_copy(first->bytes + SC_ABI_LINE_BYTES - here, from, here);
}

void sc_lines_read_slow(const struct sc_ring_place *at, const struct sc_abi_line *first, uint32_t here, void *to,
			uint32_t size)
{
	const struct sc_abi_line *line = sc_ring_next(at, first);
	uint8_t *rest = (uint8_t *)to + here;

	sc_line_copy(to, first->bytes + SC_ABI_LINE_BYTES - here, here);
	for (size -= here; size > SC_ABI_LINE_BYTES;
	     size -= SC_ABI_LINE_BYTES, rest += SC_ABI_LINE_BYTES) {
		memcpy(rest, line->bytes, SC_ABI_LINE_BYTES);
		line = sc_ring_next(at, line);
	}
	sc_line_copy(rest, line->bytes, size);
}
