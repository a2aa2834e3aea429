/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_regtab: the table of registrations in plain memory: keys, bounds, ranges; the look of an initiator into a
 * view that its owner has written, and into one that a hostile process has written.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "core_test.h"
#include "base/fault.h"
#include "base/iov.h"
#include "shm/regtab.h"

#define REGS 4096
#define RANGES 2048
#define RW (SC_REG_READ | SC_REG_WRITE)
#define INDEX(key) ((uint32_t)((key) & ((1u << SC_ABI_KEY_INDEX_BITS) - 1)))
#define GENERATION(key) ((uint32_t)((key) >> SC_ABI_KEY_INDEX_BITS))

static struct sc_regtab tab;
static struct sc_abi_presence presence;
static struct sc_regtab_seen seen;
static struct sc_regtab_view view = {
	.seen = &seen, .presence = &presence, .reg_max = REGS, .range_max = RANGES
};

static int setup(void **state)
{
	(void)state;
	sc_regtab_init(&tab, 42);
	presence = (struct sc_abi_presence){ .reg_count = REGS, .range_count = RANGES };
	seen = (struct sc_regtab_seen){ 0 };
	view.chains = 0;
	view.buckets = calloc(1, SC_ABI_TABLE_BUCKETS);
	view.regs = calloc(REGS, sizeof(*view.regs));
	view.ranges = calloc(RANGES, sizeof(*view.ranges));
	return !view.buckets || !view.regs || !view.ranges;
}

static int teardown(void **state)
{
	(void)state;
	sc_regtab_fini(&tab);
	free(view.buckets);
	free(view.regs);
	free(view.ranges);
	return 0;
}

static uint64_t next_random(void)
{
	static uint64_t x = 7;

	return x = x * 6364136223846793005u + 1442695040888963407u, x >> 16;
}

/* In use. */
static int take(const struct sc_reg_attr *attr, struct sc_reg **reg)
{
	int ret = sc_regtab_get(&tab, attr, reg);

	if (!ret)
		sc_regtab_begin(&tab, *reg);
	return ret;
}

static int get(uint32_t flags, uint64_t key, uint64_t addr, uint64_t len, struct sc_reg **reg)
{
	struct iovec range = { (void *)(uintptr_t)addr, len };
	struct sc_reg_attr attr = { .ranges = &range, .range_count = 1, .key = key, .flags = flags };

	if (flags & SC_REG_KEY && tab.keyed >= tab.keyed_most) {
		assert_int_equal(sc_regtab_rehash(&tab, tab.bucket_bits + 1), 0);
		sc_regtab_show_buckets(&tab, &view);
	}
	return take(&attr, reg);
}

/* Registered and shown. */
static struct sc_reg *open_one(uint32_t flags, uint64_t key, uint64_t addr, uint64_t len)
{
	struct sc_reg *reg = NULL;

	assert_int_equal(get(flags, key, addr, len, &reg), 0);
	sc_regtab_show(&tab, &view, reg);
	return reg;
}

static void close_one(struct sc_reg *reg)
{
	sc_regtab_end(&tab, reg);
	sc_regtab_hide(&tab, &view, reg);
	sc_regtab_put(&tab, reg);
}

static int find(uint64_t key)
{
	struct sc_reg_ref ref;

	return sc_regtab_find(&view, key, &ref);
}

/* Find and check, as an initiator does. */
static int look(uint64_t key, uint64_t addr, uint64_t len, uint32_t access)
{
	struct sc_reg_span span;
	struct sc_reg_ref ref;
	int ret = sc_regtab_find(&view, key, &ref);

	return ret ? ret : sc_regtab_check(&view, &ref, &(struct sc_remote){ addr, len, 0 }, access, &span);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void test_own_keys(void **state)
{
	struct sc_reg *a, *b;
	uint64_t stale;

	(void)state;
	a = open_one(RW, 99, 0x1000, 16); /* the key is not asked for */
	b = open_one(RW, 99, 0x1000, 16);
	assert_int_equal(INDEX(a->key), 0);
	assert_int_equal(INDEX(b->key), 1);
	assert_true(a->key >> 49 || b->key >> 49);
	assert_ptr_equal(sc_regtab_own(&tab, a->key), a);
	assert_ptr_equal(sc_regtab_own(&tab, b->key), b);
	assert_null(sc_regtab_own(&tab, a->key ^ 1ull << 63));
	assert_null(sc_regtab_own(&tab, a->key ^ 1ull << 20));
	assert_null(sc_regtab_own(&tab, a->key + 2)); /* no such index */
	assert_null(sc_regtab_own(&tab, UINT64_MAX));
	assert_int_equal(find(a->key), 0);
	assert_int_equal(find(a->key ^ 1ull << 63), -EKEYREJECTED);

	for (int i = 0; i < 1000; i++) {
		uint32_t generation = GENERATION(a->key);

		stale = a->key;
		close_one(a);
		assert_null(sc_regtab_own(&tab, stale));
		assert_int_equal(find(stale), -EKEYREJECTED);
		a = open_one(RW, 0, 0x1000, 16);
		assert_int_equal(INDEX(a->key), 0);
		assert_int_equal(GENERATION(a->key), generation + 1);
		assert_null(sc_regtab_own(&tab, stale));
		assert_int_equal(find(stale), -EKEYREJECTED);
		assert_int_equal(find(a->key), 0);
	}
	close_one(a);
	close_one(b);
	assert_int_equal(tab.count, 2);
}

/* An entry whose generations are used up is not used again. */
static void test_retired(void **state)
{
	struct sc_reg *reg = open_one(RW, 0, 0, 16);

	(void)state;
	reg->first = reg->generation + 2;
	close_one(reg);
	assert_ptr_equal(open_one(RW, 0, 0, 16), reg);
	close_one(reg);
	assert_ptr_not_equal(open_one(RW, 0, 0, 16), reg);
	assert_ptr_not_equal(open_one(RW, 0, 0, 16), reg);
}

/* Past the largest generation comes 0. */
static void test_generation_wraps(void **state)
{
	struct sc_reg *reg = open_one(RW, 0, 0, 16);

	(void)state;
	reg->generation = UINT32_MAX;
	close_one(reg);
	assert_ptr_equal(open_one(RW, 0, 0, 16), reg);
	assert_int_equal(GENERATION(reg->key), 0);
	assert_int_equal(INDEX(reg->key), 0);
	assert_int_equal(find(reg->key), 0);
}

static void test_application_keys(void **state)
{
	static const uint64_t keys[] = { 0, 1, 77, 1ull << 17, UINT64_MAX, UINT64_MAX - 1, 1ull << 63 };
	enum { KEYS = sizeof(keys) / sizeof(keys[0]) };
	struct sc_reg *regs[KEYS], *ours, *taken;

	(void)state;
	assert_int_equal(find(0), -EKEYREJECTED);
	ours = open_one(RW, 0, 0, 16);
	for (int i = 0; i < KEYS; i++) {
		regs[i] = open_one(RW | SC_REG_KEY, keys[i], 0x1000 * (uint64_t)i, 16);
		assert_true(regs[i]->key == keys[i]);
	}
	for (int i = 0; i < KEYS; i++) {
		assert_int_equal(get(RW | SC_REG_KEY, keys[i], 0, 16, &taken), -ENOKEY);
		assert_ptr_equal(sc_regtab_own(&tab, keys[i]), regs[i]);
		assert_int_equal(find(keys[i]), 0);
	}
	assert_int_equal(get(RW | SC_REG_KEY, ours->key, 0, 16, &taken), -ENOKEY);
	assert_int_equal(find(78), -EKEYREJECTED);

	/* closed in the middle of chains, and again under the same key */
	for (int i = 0; i < KEYS; i += 2)
		close_one(regs[i]);
	for (int i = 0; i < KEYS; i++) {
		assert_int_equal(find(keys[i]), i % 2 ? 0 : -EKEYREJECTED);
		assert_ptr_equal(sc_regtab_own(&tab, keys[i]), i % 2 ? regs[i] : NULL);
	}
	for (int i = 0; i < KEYS; i += 2)
		regs[i] = open_one(RW | SC_REG_KEY, keys[i], 0, 16);
	for (int i = 0; i < KEYS; i++)
		assert_int_equal(find(keys[i]), 0);
}

/* A key is closed and taken again: an initiator that found it before does not take the new one for the old one. */
static void test_application_key_again(void **state)
{
	struct sc_reg *reg = open_one(RW | SC_REG_KEY, 5, 0x1000, 16);
	struct sc_reg_span span;
	struct sc_reg_ref before, after;

	(void)state;
	assert_int_equal(sc_regtab_find(&view, 5, &before), 0);
	assert_true(sc_regtab_holds(&view, &before));
	close_one(reg);
	assert_false(sc_regtab_holds(&view, &before));
	assert_int_equal(sc_regtab_check(&view, &before, &(struct sc_remote){ 0, 16, 0 }, SC_REG_READ, &span),
				 -EKEYREJECTED);
	assert_ptr_equal(open_one(RW | SC_REG_KEY, 5, 0x2000, 16), reg);
	assert_false(sc_regtab_holds(&view, &before));
	assert_int_equal(sc_regtab_check(&view, &before, &(struct sc_remote){ 0, 16, 0 }, SC_REG_READ, &span),
				 -EKEYREJECTED);
	assert_int_equal(sc_regtab_find(&view, 5, &after), 0);
	assert_int_equal(after.index, before.index);
	assert_int_equal(sc_regtab_check(&view, &after, &(struct sc_remote){ 0, 16, 0 }, SC_REG_READ, &span), 0);
	assert_true(span.addr == 0x2000);
}

/* A key of ours is made anew if an application has it already: known from a table with the same seed. */
static void test_own_key_taken(void **state)
{
	struct sc_reg *reg;
	uint64_t wanted;

	(void)state;
	open_one(RW | SC_REG_KEY, 123, 0, 16);
	wanted = open_one(RW, 0, 0, 16)->key;
	sc_regtab_fini(&tab);
	sc_regtab_init(&tab, 42);
	memset(view.regs, 0, REGS * sizeof(*view.regs));
	open_one(RW | SC_REG_KEY, wanted, 0, 16);
	reg = open_one(RW, 0, 0, 16);
	assert_true(reg->key != wanted);
	assert_int_equal(INDEX(reg->key), INDEX(wanted));
	assert_int_equal(GENERATION(reg->key), GENERATION(wanted));
	assert_ptr_equal(sc_regtab_own(&tab, reg->key), reg);
	assert_ptr_not_equal(sc_regtab_own(&tab, wanted), reg);
	assert_int_equal(find(wanted), 0);
	assert_int_equal(find(reg->key), 0);
}

/* Doubling, with registrations between that are not shown, and closing in an order of its own. */
static void test_many_application_keys(void **state)
{
	static struct sc_reg *regs[REGS];

	(void)state;
	for (uint64_t i = 0; i < REGS; i++) {
		uint32_t flags = SC_REG_KEY | (i % 3 ? RW : 0);

		assert_int_equal(get(flags, i * 64, i, 16, &regs[i]), 0);
		if (i % 3)
			sc_regtab_show(&tab, &view, regs[i]);
	}
	assert_int_equal(presence.bucket_bits, 12);
	assert_int_equal(tab.keyed, REGS);
	for (uint64_t round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < REGS; i++) {
			bool open = !round || i % 7;

			assert_int_equal(find(i * 64), open && i % 3 ? 0 : -EKEYREJECTED);
			assert_ptr_equal(sc_regtab_own(&tab, i * 64), open ? regs[i] : NULL);
		}
		for (uint64_t i = 0; !round && i < REGS; i += 7) {
			sc_regtab_end(&tab, regs[i]);
			if (i % 3)
				sc_regtab_hide(&tab, &view, regs[i]);
			sc_regtab_put(&tab, regs[i]);
		}
	}
	assert_false(presence.chains & 1);
}

static void test_full(void **state)
{
	struct sc_reg *reg, *last = NULL;

	(void)state;
	for (uint32_t i = 0; i < SC_ABI_REGS_MAX; i++) {
		assert_int_equal(get(0, 0, 0, 16, &reg), 0);
		assert_int_equal(INDEX(reg->key), i);
		last = reg;
	}
	assert_int_equal(get(0, 0, 0, 16, &reg), -ENOSPC);
	assert_ptr_equal(sc_regtab_own(&tab, last->key), last);
	sc_regtab_end(&tab, last);
	assert_int_equal(get(0, 0, 0, 16, &reg), -ENOSPC); /* ended, but not given back */
	sc_regtab_put(&tab, last);
	assert_int_equal(get(0, 0, 0, 16, &reg), 0);
	assert_ptr_equal(reg, last);
}

/* ---- what can be registered ------------------------------------------------------------------ */

static int get_ranges(const struct iovec *ranges, size_t count, uint32_t flags, struct sc_reg **reg)
{
	struct sc_reg_attr attr = { .ranges = ranges, .range_count = count, .flags = flags };

	return take(&attr, reg);
}

static void test_impossible(void **state)
{
	static struct iovec many[SC_REG_RANGES_MAX + 1];
	struct iovec two[2] = { { NULL, SIZE_MAX }, { NULL, 1 } };
	struct sc_reg *reg = NULL;

	(void)state;
	assert_int_equal(get(RW, 0, 1, SIZE_MAX, &reg), -EINVAL); /* behind the end of all */
	assert_int_equal(get(RW, 0, UINT64_MAX - 1, 1, &reg), 0);
	close_one(reg);
	assert_int_equal(get(RW, 0, UINT64_MAX, 1, &reg), -EINVAL); /* its end is no number */
	assert_int_equal(get_ranges(two, 2, RW, &reg), -EINVAL);    /* more bytes than numbers */
	assert_int_equal(get(1u << 30, 0, 0, 1, &reg), -EINVAL);
	for (int i = 0; i <= SC_REG_RANGES_MAX; i++)
		many[i] = (struct iovec){ (void *)(uintptr_t)(0x1000 * i), 16 };
	assert_int_equal(get_ranges(many, SC_REG_RANGES_MAX + 1, RW, &reg), -EINVAL);
	assert_int_equal(get_ranges(many, SC_REG_RANGES_MAX, RW, &reg), 0);
	/* from the first address on there are not so many */
	two[0] = (struct iovec){ (void *)(UINTPTR_MAX - 100), 50 };
	two[1] = (struct iovec){ NULL, 100 };
	assert_int_equal(get_ranges(two, 2, RW | SC_REG_VIRTUAL, &reg), -EINVAL);
	assert_int_equal(get_ranges(two, 2, RW, &reg), 0);
	assert_int_equal(tab.count, 2);
}

static void test_whole_address_space(void **state)
{
	struct sc_reg *reg = open_one(RW | SC_REG_VIRTUAL, 0, 0, SIZE_MAX);
	struct iovec out;
	uint64_t len = 100;

	(void)state;
	assert_int_equal(look(reg->key, 0, SIZE_MAX, RW), 0);
	assert_int_equal(look(reg->key, 1, SIZE_MAX, RW), -EINVAL);
	assert_int_equal(look(reg->key, 0x7fff12345678, 4096, RW), 0);
	assert_int_equal(look(reg->key, UINT64_MAX - 1, 1, RW), 0);
	assert_int_equal(look(reg->key, UINT64_MAX - 1, 2, RW), -EINVAL);
	assert_int_equal(look(reg->key, UINT64_MAX, 0, RW), 0);
	assert_int_equal(look(reg->key, UINT64_MAX, 1, RW), -EINVAL);
	assert_int_equal(sc_reg_check(reg, UINT64_MAX - 1, 2, RW), -EINVAL);
	assert_int_equal(sc_reg_slice(reg, 0x7fff12345678, &len, &out, 1), 1);
	assert_ptr_equal(out.iov_base, (void *)0x7fff12345678);
	assert_int_equal(len, 100);
}

static void test_empty(void **state)
{
	struct iovec empty[3] = { { (void *)0x10, 0 }, { (void *)0x20, 0 }, { (void *)0x30, 0 } };
	struct iovec mixed[3] = { { (void *)0x10, 0 }, { (void *)0x2000, 5 }, { (void *)0x30, 0 } };
	struct sc_reg *none, *three, *one;
	struct iovec out;
	uint64_t len = 0;

	(void)state;
	assert_int_equal(get_ranges(NULL, 0, RW | SC_REG_VIRTUAL, &none), 0);
	assert_int_equal(get_ranges(empty, 3, RW | SC_REG_VIRTUAL, &three), 0);
	assert_int_equal(get_ranges(mixed, 3, RW | SC_REG_VIRTUAL, &one), 0);
	sc_regtab_show(&tab, &view, none);
	sc_regtab_show(&tab, &view, three);
	sc_regtab_show(&tab, &view, one);
	assert_int_equal(look(none->key, 0, 0, RW), 0);
	assert_int_equal(look(none->key, 0, 1, RW), -EINVAL);
	assert_int_equal(look(three->key, 0x10, 0, RW), 0);
	assert_int_equal(look(three->key, 0xf, 0, RW), -EINVAL);
	assert_int_equal(look(three->key, 0x10, 1, RW), -EINVAL);
	assert_int_equal(sc_reg_slice(three, 0x10, &len, &out, 1), 0);
	assert_int_equal(look(one->key, 0x2000, 5, RW), 0);
	assert_int_equal(one->range_count, 1);
}

/* Every combination of rights, on both sides. */
static void test_access(void **state)
{
	(void)state;
	for (uint32_t has = 0; has < 4; has++) {
		struct sc_reg *reg = NULL;

		assert_int_equal(get(has, 0, 0x1000, 16, &reg), 0);
		assert_int_equal(sc_reg_is_shared(reg), has != 0);
		if (has)
			sc_regtab_show(&tab, &view, reg);
		for (uint32_t wants = 0; wants < 4; wants++) {
			int expected = (has & wants) == wants ? 0 : -EACCES;

			assert_int_equal(sc_reg_check(reg, 0, 16, wants), expected);
			assert_int_equal(look(reg->key, 0, 16, wants), has ? expected : -EKEYREJECTED);
		}
	}
}

static void test_bounds(void **state)
{
	static const uint64_t bases[] = { 0, 0x10000 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		uint64_t base = bases[i];
		struct sc_reg *reg = open_one(RW | (i ? SC_REG_VIRTUAL : 0), 0, 0x10000, 100);
		const struct {
			uint64_t addr, len;
			int expected;
		} cases[] = {
			{ base, 100, 0 },
			{ base, 0, 0 },
			{ base + 100, 0, 0 },
			{ base + 99, 1, 0 },
			{ base, 101, -EINVAL },
			{ base + 1, 100, -EINVAL },
			{ base + 100, 1, -EINVAL },
			{ base + 101, 0, -EINVAL },
			{ base - 1, 1, -EINVAL },
			{ base - 1, 0, -EINVAL },
			{ base - 1, 2, -EINVAL },
			{ base + 1, UINT64_MAX, -EINVAL },
			{ base + 50, UINT64_MAX - base - 49, -EINVAL }, /* wraps to 0 */
			{ UINT64_MAX, 1, -EINVAL },
			{ UINT64_MAX, UINT64_MAX, -EINVAL },
		};

		for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
			assert_int_equal(sc_reg_check(reg, cases[c].addr, cases[c].len, RW),
					 cases[c].expected);
			assert_int_equal(look(reg->key, cases[c].addr, cases[c].len, RW),
					 cases[c].expected);
		}
	}
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* A slice has the same pieces as a walk along the vector, from any place, with room for any number of pieces. */
static void check_slices(const struct sc_reg *reg, const struct iovec *ranges, size_t count)
{
	struct sc_reg_span span;
	struct sc_reg_ref ref;

	assert_int_equal(sc_regtab_find(&view, reg->key, &ref), 0);
	for (int i = 0; i < 200; i++) {
		uint64_t offset = next_random() % (reg->size + 1),
			 want = next_random() % (reg->size - offset + 1);
		size_t room = next_random() % 20, used = 0, all, shared_used;
		uint64_t len = want, shared_len = want;
		struct iovec expected[SC_REG_RANGES_MAX + 1], out[20], shared[20];
		struct sc_remote remote;
		int ret;

		all = sc_iov_slice(ranges, count, offset, want, expected);
		remote = (struct sc_remote){ reg->base + offset, want, 0 };
		assert_int_equal(sc_regtab_check(&view, &ref, &remote, RW, &span), 0);
		used = sc_reg_slice(reg, reg->base + offset, &len, out, room);
		ret = sc_regtab_slice(&span, reg->base + offset, &shared_len, shared, room);
		assert_true(ret >= 0);
		shared_used = (size_t)ret;
		assert_int_equal(used, all < room ? all : room);
		assert_int_equal(shared_used, used);
		assert_int_equal(len, sc_iov_size(expected, used));
		assert_int_equal(shared_len, len);
		assert_memory_equal(out, expected, used * sizeof(out[0]));
		assert_memory_equal(shared, expected, used * sizeof(out[0]));
	}
}

static void test_slices(void **state)
{
	static const size_t counts[] = { 1, 2, 3, 16, 300, SC_REG_RANGES_MAX };
	static struct iovec ranges[SC_REG_RANGES_MAX];

	(void)state;
	for (size_t c = 0; c < 2 * sizeof(counts) / sizeof(counts[0]); c++) {
		size_t count = counts[c / 2];
		struct sc_reg *reg = NULL;

		for (size_t i = 0; i < count; i++)
			ranges[i] = (struct iovec){ (void *)(uintptr_t)(next_random() % (1ull << 46)),
						    next_random() % 50 };
		assert_int_equal(get_ranges(ranges, count, RW | (c % 2 ? SC_REG_VIRTUAL : 0), &reg), 0);
		sc_regtab_show(&tab, &view, reg);
		check_slices(reg, ranges, count);
		close_one(reg);
	}
}

/* Places of ranges are few, and come back. */
static void test_places(void **state)
{
	static struct iovec ranges[SC_REG_RANGES_MAX];
	enum { FULL = SC_ABI_RANGES_MAX / SC_REG_RANGES_MAX };
	struct sc_reg *regs[FULL], *reg = NULL;

	(void)state;
	for (int i = 0; i < SC_REG_RANGES_MAX; i++)
		ranges[i] = (struct iovec){ (void *)0x1000, 1 };
	for (int i = 0; i < FULL; i++) {
		assert_int_equal(get_ranges(ranges, SC_REG_RANGES_MAX, RW, &regs[i]), 0);
		assert_int_equal(regs[i]->first_range, i * SC_REG_RANGES_MAX);
	}
	assert_int_equal(get_ranges(ranges, 2, RW, &reg), -ENOSPC);
	assert_int_equal(get_ranges(ranges, 1, RW, &reg), 0); /* needs none */
	close_one(reg);					      /* and returns none */
	assert_int_equal(tab.ranges[0], UINT64_MAX);
	assert_int_equal(get_ranges(ranges, 2, 0, &reg), 0);  /* nor does this */
	sc_regtab_end(&tab, regs[5]);
	sc_regtab_put(&tab, regs[5]);
	assert_int_equal(get_ranges(ranges, 1000, RW, &reg), 0);
	assert_int_equal(reg->first_range, 5 * SC_REG_RANGES_MAX);
	assert_int_equal(get_ranges(ranges, 25, RW, &reg), -ENOSPC);
	assert_int_equal(get_ranges(ranges, 24, RW, &reg), 0);
	assert_int_equal(reg->first_range, 5 * SC_REG_RANGES_MAX + 1000);
	sc_regtab_end(&tab, regs[7]);
	sc_regtab_put(&tab, regs[7]);
	sc_regtab_end(&tab, regs[6]);
	sc_regtab_put(&tab, regs[6]);
	assert_int_equal(get_ranges(ranges, 700, RW, &reg), 0);
	assert_int_equal(get_ranges(ranges, 700, RW, &reg), 0); /* across the two */
	assert_int_equal(reg->first_range, 6 * SC_REG_RANGES_MAX + 700);
}

/* ---- a table that lies ----------------------------------------------------------------------- */

static struct sc_reg *victim(void)
{
	return open_one(RW | SC_REG_KEY, 0x50000, 0x1000, 100);
}

static void test_tag_and_index(void **state)
{
	struct sc_reg *reg = open_one(RW, 0, 0x1000, 100);
	struct sc_abi_reg *shared = &view.regs[0];

	(void)state;
	shared->tag++;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	shared->tag++;
	assert_int_equal(find(reg->key), 0);
	shared->tag = 0;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	shared->tag = UINT64_MAX;
	assert_int_equal(find(reg->key), 0);
	shared->key++;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	shared->key--;
	presence.reg_count = 0;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	presence.reg_count = REGS + 1;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	presence.reg_count = UINT32_MAX;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	presence.reg_count = 1;
	assert_int_equal(find(reg->key), 0);
	/* index of an entry without memory */
	assert_int_equal(find(reg->key + 1), -EKEYREJECTED);
	assert_int_equal(find(UINT64_MAX), -EKEYREJECTED);
}

static struct sc_abi_reg *late_reg;

static void close_late(void)
{
	sc_store_relaxed_64(&late_reg->tag, late_reg->tag + 1);
}

/* Closed until the fence behind the copy: what was copied does not count. */
static void test_closed_at_the_fence(void **state)
{
	struct sc_reg *one = open_one(RW, 0, 0x1000, 64);
	struct sc_reg_ref ref;

	(void)state;
	assert_int_equal(sc_regtab_find(&view, one->key, &ref), 0);
	assert_true(sc_regtab_holds(&view, &ref));
	late_reg = &view.regs[ref.index];
	if (!core_fencing(NULL, close_late))
		skip();
	assert_false(sc_regtab_holds(&view, &ref));
	core_failing(NULL, 0);
	close_one(one);
}

static void test_buckets_lie(void **state)
{
	struct sc_reg *reg = victim();
	uint32_t bucket = SC_ABI_BUCKET(reg->key, tab.bucket_bits);
	uint32_t *head = &view.buckets[(1u << tab.bucket_bits) + bucket];
	static const uint32_t bits[] = { 0, 18, 31, 32, 63, 64, 255, UINT32_MAX };
	static const uint32_t links[] = { 0, REGS + 1, UINT32_MAX, 0x80000000 };

	(void)state;
	/* not at the index that its key would have */
	assert_int_not_equal(INDEX(reg->key), REGS);
	view.regs[7] = view.regs[0];
	view.regs[0].tag = 2;
	*head = 8;
	assert_int_equal(find(reg->key), 0);
	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
		presence.bucket_bits = bits[i];
		assert_int_equal(find(reg->key), -EKEYREJECTED);
	}
	presence.bucket_bits = tab.bucket_bits;
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		*head = links[i];
		assert_int_equal(find(reg->key), -EKEYREJECTED);
	}
	presence.reg_count = 7; /* behind what has memory */
	*head = 8;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	presence.reg_count = 8;
	assert_int_equal(find(reg->key), 0);
}

static void test_chain_loops(void **state)
{
	struct sc_reg *reg = victim();
	uint32_t *head = &view.buckets[(1u << tab.bucket_bits) + SC_ABI_BUCKET(reg->key, tab.bucket_bits)];

	(void)state;
	view.regs[0].tag = 2;
	view.regs[0].next = 1;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	for (uint32_t i = 0; i < REGS; i++)
		view.regs[i].next = (i + 1) % REGS + 1;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	/* at the end of the longest way there is */
	view.regs[REGS - 1].key = reg->key;
	view.regs[REGS - 1].tag = 1;
	assert_int_equal(find(reg->key), 0);
	*head = UINT32_MAX;
	assert_int_equal(find(reg->key), -EKEYREJECTED);
}

/* Chains that change: what is there is found, of what is not nothing is known. */
static void test_chains_odd(void **state)
{
	struct sc_reg *reg = victim();

	(void)state;
	presence.chains |= 1;
	assert_int_equal(find(reg->key), 0);
	assert_int_equal(find(reg->key + 1), -EAGAIN);
	presence.chains++;
	assert_int_equal(find(reg->key + 1), -EKEYREJECTED);
}

#ifdef SC_FAULT_INJECTION
static uint32_t changes, changes_shown;

static int at_change(const char *point)
{
	if (!strcmp(point, "regtab.chain_end")) {
		changes++;
		changes_shown += presence.chains & 1;
	}
	return 0;
}
#endif

/* A peer writes into the count of the chains: the next change corrects it, and each change stays visible. */
static void test_chains_scribbled(void **state)
{
	struct sc_reg *reg = victim();
	uint32_t before = presence.chains;

	(void)state;
#ifdef SC_FAULT_INJECTION
	changes = changes_shown = 0;
	sc_fault_hook = at_change;
#endif
	presence.chains++;
	close_one(reg);
	assert_int_equal(presence.chains, before + 2);
	assert_int_equal(find(reg->key), -EKEYREJECTED);
	presence.chains++;
	reg = victim();
	assert_int_equal(presence.chains, before + 4);
	assert_int_equal(find(reg->key), 0);
	assert_int_equal(find(reg->key + 1), -EKEYREJECTED);
	presence.chains += 2;
	sc_regtab_show_buckets(&tab, &view);
	assert_int_equal(presence.chains, before + 6);
#ifdef SC_FAULT_INJECTION
	assert_int_equal(changes, 2 + (1u << tab.bucket_bits));
	assert_int_equal(changes_shown, changes);
#endif
}

static void test_ranges_lie(void **state)
{
	struct iovec two[2] = { { (void *)0x1000, 10 }, { (void *)0x2000, 10 } };
	struct sc_reg *reg = NULL;
	struct sc_abi_reg *shared = &view.regs[0], good;
	struct sc_reg_span span;
	struct sc_reg_ref ref;
	struct iovec out[4];
	uint64_t len;

#define LIE(statement)                                                                                    \
	do {                                                                                              \
		statement;                                                                                \
		assert_int_equal(look(reg->key, 0, 5, SC_REG_READ), -EKEYREJECTED);                       \
		*shared = good;                                                                           \
		presence.range_count = RANGES;                                                            \
		assert_int_equal(look(reg->key, 0, 5, SC_REG_READ), 0);                                   \
	} while (0)

	(void)state;
	assert_int_equal(get_ranges(two, 2, RW, &reg), 0);
	sc_regtab_show(&tab, &view, reg);
	good = *shared;
	LIE(shared->range_count = SC_REG_RANGES_MAX + 1);
	LIE(shared->range_count = UINT32_MAX);
	LIE(shared->range_count = 0);
	LIE(shared->first_range = RANGES - 1);
	LIE(shared->first_range = RANGES);
	LIE(shared->first_range = UINT32_MAX);
	LIE(shared->first_range = UINT32_MAX - 1);
	LIE(presence.range_count = 1);
	LIE(presence.range_count = 0);
	LIE(presence.range_count = RANGES + 1);
	LIE(presence.range_count = UINT32_MAX);
	LIE(shared->base = UINT64_MAX);
	LIE(shared->size = UINT64_MAX; shared->base = 1);
	LIE((shared->range_count = 1, shared->addr = UINT64_MAX - 18));
	LIE((shared->range_count = 1, shared->addr = 1, shared->size = UINT64_MAX));
#undef LIE
	assert_int_equal(sc_regtab_find(&view, reg->key, &ref), 0);
	/* fewer bytes in the ranges than it says */
	shared->size = 30;
	assert_int_equal(sc_regtab_check(&view, &ref, &(struct sc_remote){ 0, 30, 0 }, SC_REG_READ, &span), 0);
	len = 30;
	assert_int_equal(sc_regtab_slice(&span, 0, &len, out, 4), -EKEYREJECTED);
	len = 5;
	assert_int_equal(sc_regtab_slice(&span, 25, &len, out, 4), -EKEYREJECTED);
	len = 30;
	assert_int_equal(sc_regtab_slice(&span, 0, &len, out, 1), 1);
	assert_int_equal(len, 10);
	/* a range that ends behind the end of all addresses */
	view.ranges[reg->first_range].len = UINT64_MAX;
	len = 5;
	assert_int_equal(sc_regtab_slice(&span, 0, &len, out, 4), -EKEYREJECTED);
	len = 0;
	assert_int_equal(sc_regtab_slice(&span, 0, &len, out, 4), 0);
	len = 5;
	assert_int_equal(sc_regtab_slice(&span, 0, &len, out, 0), 0);
	assert_int_equal(len, 0);
}

/* Protects the whole pages of these bytes. */
static void protect(void *from, size_t size, int how)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = -(uintptr_t)from % page;

	assert_return_code(mprotect((char *)from + skip, (size - skip) / page * page, how), errno);
}

/*
 * The view counts entries without memory: the initiator does not touch them, and finds nothing there. It finds entries
 * with memory, and asks for their memory only once.
 */
static void test_without_memory(void **state)
{
	struct iovec two[2] = { { (void *)0x1000, 10 }, { (void *)0x2000, 10 } };
	struct sc_reg *first = open_one(RW, 0, 0x1000, 100), *keyed, *ranges = NULL;
	void *buckets = view.buckets + (1u << SC_ABI_BUCKET_BITS_MAX);
	size_t buckets_size = sizeof(*view.buckets) << SC_ABI_BUCKET_BITS_MAX;
	uint32_t *head;

	(void)state;
	keyed = victim();
	head = &view.buckets[(1u << tab.bucket_bits) + SC_ABI_BUCKET(keyed->key, tab.bucket_bits)];
	assert_int_equal(get_ranges(two, 2, RW, &ranges), 0);
	sc_regtab_show(&tab, &view, ranges);
	/* memory for the first page of each, wherever that begins here */
	protect(view.regs + REGS / 2, REGS / 2 * sizeof(*view.regs), PROT_NONE);
	protect(buckets, buckets_size, PROT_NONE);
	protect(view.ranges + RANGES / 2, RANGES / 2 * sizeof(*view.ranges), PROT_NONE);
	assert_int_equal(find(first->key + REGS - 1), -EKEYREJECTED);
	assert_int_equal(find(first->key), 0);
	assert_int_equal(find(keyed->key), 0);
	*head = REGS;
	assert_int_equal(find(keyed->key), -EKEYREJECTED);
	*head = keyed->index + 1;
	presence.bucket_bits = SC_ABI_BUCKET_BITS_MAX;
	assert_int_equal(find(keyed->key), -EKEYREJECTED);
	presence.bucket_bits = tab.bucket_bits;
	assert_int_equal(find(keyed->key), 0);
	view.regs[ranges->index].first_range = RANGES - 2;
	assert_int_equal(look(ranges->key, 0, 20, SC_REG_READ), -EKEYREJECTED);
	view.regs[ranges->index].first_range = ranges->first_range;
	assert_int_equal(look(ranges->key, 0, 20, SC_REG_READ), 0);

	protect(view.regs + REGS / 2, REGS / 2 * sizeof(*view.regs), PROT_READ | PROT_WRITE);
	protect(buckets, buckets_size, PROT_READ | PROT_WRITE);
	protect(view.ranges + RANGES / 2, RANGES / 2 * sizeof(*view.ranges), PROT_READ | PROT_WRITE);
}

/* A peer scribbles into the view: the owner does not believe it, and the next use of an entry overwrites it. */
static void test_scribbled(void **state)
{
	struct sc_reg *regs[64];

	(void)state;
	for (uint64_t i = 0; i < 64; i++)
		regs[i] = open_one(RW | SC_REG_KEY, i, 0x1000, 16);
	memset(view.buckets, 0xee, SC_ABI_TABLE_BUCKETS);
	memset(view.regs, 0xee, REGS * sizeof(*view.regs));
	for (uint64_t i = 0; i < 64; i++)
		assert_ptr_equal(sc_regtab_own(&tab, i), regs[i]);
	for (uint64_t i = 0; i < 64; i++)
		close_one(regs[i]);
	for (uint64_t i = 0; i < 64; i++)
		open_one(RW | SC_REG_KEY, i, 0x1000, 16);
	for (uint64_t i = 0; i < 64; i++)
		assert_int_equal(look(i, 0, 16, RW), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_own_keys),
		TEST(test_retired),
		TEST(test_generation_wraps),
		TEST(test_application_keys),
		TEST(test_application_key_again),
		TEST(test_own_key_taken),
		TEST(test_many_application_keys),
		TEST(test_full),
		TEST(test_impossible),
		TEST(test_whole_address_space),
		TEST(test_empty),
		TEST(test_access),
		TEST(test_bounds),
		TEST(test_slices),
		TEST(test_places),
		TEST(test_tag_and_index),
		TEST(test_closed_at_the_fence),
		TEST(test_buckets_lie),
		TEST(test_chain_loops),
		TEST(test_chains_odd),
		TEST(test_chains_scribbled),
		TEST(test_ranges_lie),
		TEST(test_without_memory),
		TEST(test_scribbled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
