/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_regtab: a registration table as an initiator reads it from another process's memory.
 *
 * The input: struct question, then 16 registrations, then 16 ranges, then the buckets of 2^1 to 2^4. The
 * limits are those of the header that was checked, so they are not the input's. Memory is exactly that
 * large. The answer to a question must lie within the registration, and must have no more
 * elements than there is room for.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "shm/regtab.h"

enum { REGS = 16, RANGES = 16, BUCKETS = 32, ROOM = 8 };

struct question {
	struct sc_abi_presence presence;
	uint64_t key, addr, len;
	uint32_t access, room;
};

struct table {
	struct question question;
	struct sc_abi_reg regs[REGS];
	struct sc_abi_segment ranges[RANGES];
	uint32_t buckets[BUCKETS];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct sc_regtab_view *view, const struct question *q)
{
	struct iovec out[ROOM];
	struct sc_reg_span span;
	struct sc_reg_ref ref;
	size_t room = q->room % (ROOM + 1);
	uint64_t len = q->len;
	int used;

	if (sc_regtab_find(view, q->key, &ref))
		return;
	if (ref.index >= REGS || !(ref.tag & 1))
		abort();
	if (sc_regtab_check(view, &ref, &(struct sc_remote){ q->addr, q->len, 0 }, q->access, &span))
		return;
	if (q->addr < span.base || q->addr - span.base > span.size ||
	    q->len > span.size - (q->addr - span.base) || (span.flags & q->access) != q->access)
		abort();
	used = sc_regtab_slice(&span, q->addr, &len, out, room);
	if (used >= 0 && ((size_t)used > room || len > q->len || sc_iov_size(out, (size_t)used) != len))
		abort();
	for (int i = 0; i < used; i++)
		if (!out[i].iov_len || out[i].iov_len > UINTPTR_MAX - (uintptr_t)out[i].iov_base)
			abort();
	if (!sc_regtab_holds(view, &ref))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* each part by itself, so that a sanitizer sees a step from one into the next */
	struct table input = { 0 };
	struct sc_abi_reg *regs = malloc(sizeof(input.regs));
	struct sc_abi_segment *ranges = malloc(sizeof(input.ranges));
	uint32_t *buckets = malloc(sizeof(input.buckets));
	struct sc_regtab_seen seen = { 0 };
	struct sc_regtab_view view = { .seen = &seen,
				       .presence = &input.question.presence,
				       .buckets = buckets,
				       .regs = regs,
				       .ranges = ranges,
				       .reg_max = REGS,
				       .range_max = RANGES };

	memcpy(&input, data, size < sizeof(input) ? size : sizeof(input));
	/* the header promises room for all tables of buckets; here is room for the small ones */
	if (input.question.presence.bucket_bits <= SC_ABI_BUCKET_BITS_MAX)
		input.question.presence.bucket_bits %= 5;
	if (regs && ranges && buckets) {
		memcpy(regs, input.regs, sizeof(input.regs));
		memcpy(ranges, input.ranges, sizeof(input.ranges));
		memcpy(buckets, input.buckets, sizeof(input.buckets));
		use(&view, &input.question);
	}
	free(regs);
	free(ranges);
	free(buckets);
	return 0;
}
