/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_header: the header of a segment, as an attacher reads it from a file that anybody may have written.
 *
 * The input is the header; a file length of 8 bytes may follow, else it is that of the corpus. Layout 0
 * stands for this build's, and a ring's lines go with it, so that the corpus outlives a change of it. An
 * accepted header must keep the promise of sc_header_fault(): every part lies inside the file, apart from the others.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shm/header.h"
#include "shm/seg.h"

#define ADDRESS "fi_shmcma://0123456789a-000003e8-0000beef-0011223344556677-00ff"
#define FILE_LENGTH 1269760

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned __int128 claims_end, pool_end, slots_end, table_end;
	uint64_t length = FILE_LENGTH;
	struct sc_abi_header h;

	if (size < sizeof(h))
		return 0;
	memcpy(&h, data, sizeof(h));
	if (!h.layout) {
		h.layout = SC_ABI_LAYOUT;
		h.ring_lines = SC_ABI_RING_LINES;
	}
	if (size >= sizeof(h) + sizeof(length))
		memcpy(&length, data + sizeof(h), sizeof(length));
	if (sc_header_fault(&h, length, ADDRESS))
		return 0;
	claims_end = (unsigned __int128)h.claims_offset + (uint64_t)h.slot_count * sizeof(uint64_t);
	pool_end = (unsigned __int128)h.pool_offset + (uint64_t)h.buf_count * h.buf_size;
	slots_end = (unsigned __int128)h.slots_offset + (uint64_t)h.slot_count * SC_ABI_SLOT_SIZE;
	table_end = (unsigned __int128)h.table_offset + SC_ABI_TABLE_SIZE(h.reg_max, h.range_max);
	if (h.length != length || h.claims_offset < SC_ABI_PAGE || claims_end > h.slots_offset ||
	    slots_end > h.pool_offset || pool_end > h.table_offset || table_end > length ||
	    h.slots_offset % sizeof(uint64_t) || h.table_offset % sizeof(uint64_t) || !h.slot_count ||
	    !h.buf_count || h.buf_size > SC_ABI_BUF_SIZE_MAX || strcmp(h.address, ADDRESS))
		abort();
	return 0;
}
