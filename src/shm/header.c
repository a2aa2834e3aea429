/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * header.c: checks the first bytes of a file that has the name of a segment. Another process has written them.
 *
 * Owns nothing and keeps no state; any thread may call it. The check reads a private copy, so a later write to the
 * shared page changes no result, and a header that has passed keeps every offset inside the file. A header is complete
 * before its file has a name (create.c), so this check does not depend on the life of the owner.
 */
#include "shm/header.h"

#include <string.h>
#include "os/addr.h"

static const char *identity_fault(const struct sc_abi_header *header)
{
	if (header->magic != SC_ABI_MAGIC)
		return "it is not a segment of shmcma";
	if (header->major != SC_ABI_MAJOR)
		return "it is of another version of shmcma";
	if (header->layout != SC_ABI_LAYOUT || header->slot_size != SC_ABI_SLOT_SIZE ||
	    header->ring_lines != SC_ABI_RING_LINES)
		return "its layout is that of another build of shmcma";
	return NULL;
}

/*
 * No sum overflows: counts are bounded first, a pool has at most 2^12 * 2^20 bytes, and each offset is compared with
 * the length of the file before anything is added to it. Larger buffers than an endpoint can make are refused: one
 * record could name gigabytes of a sparse file, and reading them would give them memory.
 */
static const char *geometry_fault(const struct sc_abi_header *header, uint64_t file_length)
{
	uint64_t claims_size = (uint64_t)header->slot_count * sizeof(uint64_t);
	uint64_t pool_size = (uint64_t)header->buf_count * header->buf_size;
	uint64_t slots_size = (uint64_t)header->slot_count * SC_ABI_SLOT_SIZE;
	uint64_t table_size = SC_ABI_TABLE_SIZE(header->reg_max, header->range_max);

	if (header->length != file_length || file_length > INT64_MAX)
		return "its length is not the file's";
	if (!header->slot_count || header->slot_count > SC_ABI_SLOTS_MAX)
		return "its number of slots is impossible";
	if (!header->buf_size || header->buf_size > SC_ABI_BUF_SIZE_MAX ||
	    header->buf_size % SC_ABI_LINE || !header->buf_count || header->buf_count > SC_ABI_BUFS_MAX)
		return "its bounce buffers are impossible";
	if (header->window < 64 || header->window > 1ULL << 32)
		return "its window is impossible";
	if (header->reg_max > SC_ABI_REGS_MAX || header->range_max > SC_ABI_RANGES_MAX ||
	    (header->range_max && !header->reg_max))
		return "its registration table is impossible";
	if (header->pool_offset > file_length || header->slots_offset > file_length ||
	    header->table_offset > file_length)
		return "a part begins behind its end";
	if (header->claims_offset % SC_ABI_LINE || header->pool_offset % SC_ABI_LINE ||
	    header->slots_offset % SC_ABI_PAGE || header->table_offset % SC_ABI_PAGE)
		return "a part is not aligned";
	if (header->claims_offset < SC_ABI_PAGE ||
	    header->claims_offset + claims_size > header->slots_offset ||
	    header->slots_offset + slots_size > header->pool_offset ||
	    header->pool_offset + pool_size > header->table_offset ||
	    table_size > file_length - header->table_offset)
		return "its parts overlap or reach behind its end";
	return NULL;
}

static const char *owner_fault(const struct sc_abi_header *header, const char *addr)
{
	struct sc_addr parts;

	if (memchr(header->address, '\0', sizeof(header->address)) !=
	    &header->address[sizeof(header->address) - 1])
		return "it has no address";
	if (strcmp(header->address, addr) || sc_addr_parse(addr, &parts))
		return "it is of another address";
	if (header->owner.pid <= 0 || header->owner.cma_tid <= 0 ||
	    (uint32_t)header->owner.pid != parts.pid ||
	    memcmp(header->nonce, parts.nonce, sizeof(parts.nonce)))
		return "it contradicts its address";
	if (!header->owner.cookie || !header->owner.cookie_addr ||
	    header->owner.cookie_addr % sizeof(uint64_t))
		return "it has no cookie";
	return NULL;
}

const char *sc_header_fault(const struct sc_abi_header *header, uint64_t file_length, const char *addr)
{
	const char *fault = identity_fault(header);

	if (!fault)
		fault = geometry_fault(header, file_length);
	if (!fault)
		fault = owner_fault(header, addr);
	return fault;
}
