/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rma: reads, writes and atomics on a peer's registered memory, by all ways that they can take: which are refused,
 * in what order they are done, which are counted, and how they end when either side closes or dies. Requests and
 * answers of peers that do not keep the rules are in test_target.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "../meminfo.h"
#include "../rounds.h"
#include "clock.h"
#include "base/iov.h"
#include "link/connect.h"
#include "link/fence.h"
#include "link/review.h"
#include "rma_pair.h"

static uint8_t into[SPACE];

/* ---- sizes and vectors ----------------------------------------------------------------------- */

static const size_t sizes[] = {
	0, 1, 8, 63, 64, 65, 4095, 4096, 4097, 32768, 32769, 65536, 65537, 500001
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void test_sizes(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		for (size_t i = 0; i < SIZES; i++) {
			size_t size = sizes[i];
			struct sc_comp comp;

			memset(space, 0xa5, SPACE);
			comp = run(from, at(7, size), SC_RMA_WRITE);
			assert_int_equal(comp.err, 0);
			assert_int_equal(comp.cq_flags, 0x52);
			assert_int_equal(comp.len, size);
			assert_memory_equal(space + 7, from, size);
			assert_true(is_untouched(7, size));
			memset(into, 0, sizeof(into));
			assert_int_equal(run(into, at(7, size), 0).err, 0);
			assert_memory_equal(into, from, size);
			assert_int_equal(into[size], 0);
		}
		assert_int_equal(cntrs[0][SC_EVENT_WRITE].value, SIZES);
		assert_int_equal(cntrs[0][SC_EVENT_READ].value, SIZES);
		expect_idle();
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, SIZES);
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_READ].value, SIZES);
		if (routes[r].strict)
			assert_int_equal(pair[0].ep->counters.rma_direct_bytes, 0);
		rma_close();
	}
}

/* A write behind a message in parts is not done before the last of them has been taken. */
static void test_write_behind_parts(void **state)
{
	struct iovec iov = { from, 100000 };
	struct sc_remote remote = { 0, 100000, 0 };
	uint8_t *part = into;

	(void)state;
	if (!way_possible(WAY_CMA))
		skip();
	rma_open(&routes[1]);
	remote.key = sc_reg_key(reg);
	pair[0].ep->order = SC_ORDER_AFTER_SEND;
	pair[0].ep->short_end = 0;
	assert_int_equal(end_send(&pair[0], pair[0].peer, part, 8192, 0, SC_SILENT), 0);
	assert_int_equal(pair[0].peer->tx.tail, 2);
	pair[0].peer->tx.consumer->head = 1; /* as if the first had been read while the second was written */
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	assert_int_equal(pair[0].ep->counters.rma_direct_bytes, 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_memory_equal(space, from, 100000);
	assert_int_equal(end_recv(&pair[1], NULL, part, 8192, 0, 0), 0);
	assert_int_equal(comp_take(&pair[1].rx).err, 0);
	expect_idle();
	/* and when all has been taken, it is done from here */
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	assert_int_equal(pair[0].ep->counters.rma_direct_bytes, 100000);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	rma_close();
}

/* 8 pieces on either side that do not meet; the registration too is in pieces. */
static void test_vectors(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct iovec ranges[5], iov[8];
		struct sc_remote remote[8];
		struct sc_reg_attr attr = { .ranges = ranges,
					    .range_count = 5,
					    .flags = SC_REG_READ | SC_REG_WRITE };
		struct sc_reg *parts;
		static uint8_t flat[80000];
		size_t total = 0;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		for (size_t i = 0; i < 5; i++)
			ranges[i] = (struct iovec){ space + 100000 * i, 16000 };
		assert_int_equal(sc_reg_open(tab[1], &attr, &parts), 0);
		for (size_t i = 0; i < 8; i++) {
			remote[i] = (struct sc_remote){ 9000 * i + 11, 8000 - 100 * i, sc_reg_key(parts) };
			iov[i].iov_base = from + 20000 * i;
			iov[i].iov_len = 100 * i;
			total += remote[i].len;
		}
		iov[7].iov_len = total - (100 + 600) * 6 / 2;
		assert_int_equal(post(iov, 8, remote, 8, SC_RMA_WRITE), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		/* by hand: what is where */
		for (size_t i = 0; i < 5; i++)
			memcpy(flat + 16000 * i, ranges[i].iov_base, 16000);
		memset(into, 0, sizeof(into));
		sc_iov_read(iov, 8, into, total);
		for (size_t i = 0, done = 0; i < 8; done += remote[i++].len)
			assert_memory_equal(flat + remote[i].addr, into + done, remote[i].len);
		/* and back, into other places */
		memset(into, 0, sizeof(into));
		for (size_t i = 0; i < 8; i++)
			iov[i].iov_base = into + 25000 * i;
		assert_int_equal(post(iov, 8, remote, 8, 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		{
			static uint8_t back[80000];

			sc_iov_read(iov, 8, back, total);
			for (size_t i = 0, done = 0; i < 8; done += remote[i++].len)
				assert_memory_equal(flat + remote[i].addr, back + done, remote[i].len);
		}
		expect_idle();
		assert_int_equal(sc_reg_close(parts), 0);
		rma_close();
	}
}

/* Many at once, more than there may be requests: in order, each once. */
static void test_many(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		for (uint64_t i = 0; i < 500; i++) {
			struct iovec iov = { &i, sizeof(i) };
			struct sc_remote remote = at(i % 10 * 8, 8);
			int ret;

			while ((ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT)) == -EAGAIN)
				ends_settle(pair, 2);
			assert_int_equal(ret, 0);
			if (i % 7 ==
			    0) { /* a read behind a write sees it, and a write behind it is not seen */
				uint64_t got[10], later = 77;
				struct iovec there = { got, sizeof(got) },
					     over = { &later, sizeof(later) };
				struct sc_remote all = at(0, sizeof(got)), one = at(i % 10 * 8, 8);

				assert_int_equal(post(&there, 1, &all, 1, 0), 0);
				while ((ret = post(&over, 1, &one, 1, SC_RMA_WRITE | SC_SEND_INJECT)) ==
				       -EAGAIN) /* a request that must wait for the get */
					ends_settle(pair, 2);
				assert_int_equal(ret, 0);
				ends_settle(pair, 2);
				assert_int_equal(got[i % 10], i);
			}
		}
		ends_settle(pair, 2);
		for (int i = 0; i < 500 + 2 * 72; i++)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		expect_idle();
		rma_close();
	}
}

static void test_remote_data(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		for (size_t i = 0; i < SIZES; i++) {
			struct sc_comp comp = run(from, at(0, sizes[i]), SC_RMA_WRITE | SC_SEND_DATA);

			assert_int_equal(comp.err, 0);
			comp = comp_take(&pair[1].rx);
			assert_int_equal(comp.flags, SC_COMP_WRITTEN | SC_COMP_DATA);
			assert_int_equal(comp.data, 0xda7a);
			assert_int_equal(comp.len, sizes[i]);
		}
		expect_idle();
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, SIZES);
		rma_close();
	}
}

/* A put to two ranges, of which the first does not exist, fails as a whole: the application does not hear of the second. */
static void test_remote_data_in_parts(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct iovec iov = { from, 200000 };
		struct sc_remote remote[2];

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		remote[0] = at(SPACE, 100000);
		remote[1] = at(0, 100000);
		assert_int_equal(post(&iov, 1, remote, 2, SC_RMA_WRITE | SC_SEND_DATA), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, EINVAL);
		assert_null(sc_comp_ring_peek(&pair[1].rx));
		expect_idle();
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 0);
		remote[0] = at(100000, 100000);
		assert_int_equal(post(&iov, 1, remote, 2, SC_RMA_WRITE | SC_SEND_DATA), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[1].rx).len, 200000);
		assert_null(sc_comp_ring_peek(&pair[1].rx));
		expect_idle();
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 1);
		rma_close();
	}
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void expect_error(struct sc_remote remote, uint32_t flags, int err)
{
	uint64_t errors = cntrs[0][SC_EVENT_READ].errors + cntrs[0][SC_EVENT_WRITE].errors;
	struct sc_comp comp;

	memset(space, 0xa5, SPACE);
	memset(into, 0, sizeof(into));
	comp = run(flags & SC_RMA_WRITE ? from : into, remote, flags);
	assert_int_equal(comp.err, err);
	assert_int_equal(comp.olen, 0);
	assert_true(is_untouched(0, 0));
	assert_int_equal(into[0], 0);
	assert_int_equal(cntrs[0][SC_EVENT_READ].errors + cntrs[0][SC_EVENT_WRITE].errors, errors + 1);
	expect_idle();
}

static void test_errors(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct sc_reg *readable, *writable, *closed;
		uint64_t key;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		readable = reg_open(tab[1], space, 100, SC_REG_READ);
		writable = reg_open(tab[1], space, 100, SC_REG_WRITE);
		closed = reg_open(tab[1], space, 100, SC_REG_READ | SC_REG_WRITE);
		key = sc_reg_key(closed);
		assert_int_equal(sc_reg_close(closed), 0);
		for (uint32_t flags = 0; flags <= SC_RMA_WRITE; flags += SC_RMA_WRITE) {
			expect_error(at(SPACE - 9, 10), flags, EINVAL);
			expect_error(at(SPACE, 1), flags, EINVAL);
			expect_error(at(SPACE + 1, 1), flags, EINVAL);
			expect_error(at(UINT64_MAX - 1, 8), flags, EINVAL);
			expect_error(at(UINT64_MAX - 39999, 40000), flags, EINVAL);
			expect_error((struct sc_remote){ 0, 8, key }, flags, EKEYREJECTED);
			expect_error((struct sc_remote){ 0, 100, sc_reg_key(reg) ^ 1ULL << 60 }, flags,
				     EKEYREJECTED);
			expect_error((struct sc_remote){ 0, 40000, 0 }, flags, EKEYREJECTED);
			expect_error((struct sc_remote){ 0, 8, UINT64_MAX }, flags, EKEYREJECTED);
		}
		expect_error((struct sc_remote){ 0, 8, sc_reg_key(readable) }, SC_RMA_WRITE, EACCES);
		expect_error((struct sc_remote){ 0, 8, sc_reg_key(writable) }, 0, EACCES);
		assert_int_equal(run(from, at(0, SPACE), SC_RMA_WRITE).err, 0);
		assert_int_equal(sc_reg_close(readable), 0);
		assert_int_equal(sc_reg_close(writable), 0);
		rma_close();
	}
}

/* Registered, and then not there any more, or not to be written to. */
static void test_unmapped(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		size_t page = (size_t)getpagesize(), len = 4 * page;
		uint8_t *mapped;
		struct sc_reg *gone;
		struct sc_comp comp;

		if (!cma_allowed())
			skip();
		rma_open(&routes[r]);
		mapped = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(mapped, MAP_FAILED);
		gone = reg_open(tab[1], mapped, len, SC_REG_READ | SC_REG_WRITE);
		assert_int_equal(mprotect(mapped + page, page, PROT_READ), 0);
		comp = run(from, (struct sc_remote){ 0, len, sc_reg_key(gone) }, SC_RMA_WRITE);
		assert_int_equal(comp.err, EIO);
		assert_true(comp.olen <= page);
		assert_int_equal(run(into, (struct sc_remote){ 0, len, sc_reg_key(gone) }, 0).err, 0);
		assert_int_equal(munmap(mapped + page, page), 0);
		/* an owner that copies asks once for what was all there */
		assert_int_equal(sc_reg_close(gone), 0);
		gone = reg_open(tab[1], mapped, len, SC_REG_READ | SC_REG_WRITE);
		assert_int_equal(run(into, (struct sc_remote){ 0, len, sc_reg_key(gone) }, 0).err, EIO);
		assert_int_equal(
			run(from, (struct sc_remote){ 2 * page, page, sc_reg_key(gone) }, SC_RMA_WRITE)
				.err,
			0);
		expect_idle();
		assert_int_equal(sc_reg_close(gone), 0);
		munmap(mapped, page);
		munmap(mapped + 2 * page, 2 * page);
		rma_close();
	}
}

static void test_refused_calls(void **state)
{
	struct iovec iov = { into, 8 };
	struct sc_remote remote[9];

	(void)state;
	rma_open(&routes[0]);
	remote[0] = at(0, 9);
	assert_int_equal(post(&iov, 1, remote, 1, 0), -EINVAL);
	assert_int_equal(post(&iov, 1, remote, 0, 0), -EINVAL);
	for (int i = 0; i < 9; i++)
		remote[i] = at(0, UINT64_MAX / 4);
	assert_int_equal(post(&iov, 1, remote, 8, 0), -EINVAL);
	for (int i = 0; i < 9; i++)
		remote[i] = at(0, 1);
	iov.iov_len = 9;
	assert_int_equal(post(&iov, 1, remote, 9, 0), -EINVAL);
	iov.iov_len = remote[0].len = SC_INJECT_MAX + 1;
	assert_int_equal(post(&iov, 1, remote, 1, SC_RMA_WRITE | SC_SEND_INJECT), -EMSGSIZE);
	iov.iov_len = remote[0].len = SC_MESSAGE_MAX + 1;
	assert_int_equal(post(&iov, 1, remote, 1, 0), -EMSGSIZE);
	expect_idle();
	rma_close();
}

static struct sc_abi_reg *late_reg;

static void hide_late(void)
{
	sc_store_relaxed_64(&late_reg->tag, late_reg->tag + 1);
}

/* Closed when the hazard word is visible, and no earlier: the owner has not waited for it, so nothing is copied. */
static void test_closed_at_the_fence(void **state)
{
	struct sc_reg_ref ref;

	(void)state;
	if (!cma_allowed() || !core_failing(NULL, 0))
		skip();
	for (uint32_t flags = 0; flags <= SC_RMA_WRITE; flags += SC_RMA_WRITE) {
		static uint8_t into
			[60000]; /* too many bytes for the owner to be asked, too few for it to assist */

		rma_open(&routes[1]);
		assert_int_equal(run(from, at(0, 8), SC_RMA_WRITE).err, 0);
		assert_int_equal(sc_regtab_find(&pair[1].ep->table, sc_reg_key(reg), &ref), 0);
		late_reg = &pair[1].ep->table.regs[ref.index];
		memset(space, 0x5a, sizeof(into));
		assert_true(core_fencing("direct.hazard_word", hide_late));
		assert_int_equal(run(flags ? from : into, at(0, sizeof(into)), flags).err, EKEYREJECTED);
		core_failing(NULL, 0);
		for (size_t i = 0; i < sizeof(into); i++)
			assert_int_equal(flags ? space[i] : into[i], flags ? 0x5a : 0);
		sc_store_relaxed_64(&late_reg->tag, ref.tag);
		expect_idle();
		rma_close();
	}
}

/* The caller may reuse injected memory at once; a silent operation has a completion only if it fails. */
static void test_injected_and_silent(void **state)
{
	static uint8_t out[SC_INJECT_MAX];

	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct iovec iov = { out, sizeof(out) };
		struct sc_remote remote, bad;
		size_t posted;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		/* more than there are buffers for, until the owner polls */
		for (posted = 0; posted < SPACE / SC_INJECT_MAX; posted++) {
			remote = at(posted * sizeof(out), sizeof(out));
			memset(out, (int)posted, sizeof(out));
			if (post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT))
				break;
		}
		assert_true(posted > 1);
		memset(out, 0xee, sizeof(out));
		ends_settle(pair, 2);
		for (size_t i = 0; i < posted; i++)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		for (size_t i = 0; i < posted * sizeof(out); i++)
			assert_int_equal(space[i], i / sizeof(out));

		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SILENT), 0);
		ends_settle(pair, 2);
		assert_null(sc_comp_ring_peek(&pair[0].tx));
		bad = at(0, sizeof(out));
		bad.key ^= 1ULL << 60;
		assert_int_equal(post(&iov, 1, &bad, 1, SC_RMA_WRITE | SC_SILENT), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, EKEYREJECTED);
		expect_idle();
		rma_close();
	}
}

static bool is_injected(size_t size, size_t ranges, uint64_t data)
{
	struct sc_remote remote[SC_REMOTE_MAX];
	struct iovec iov = { from, size };
	struct sc_rma rma = { .iov = &iov,
			      .iov_count = 1,
			      .remote = remote,
			      .remote_count = ranges,
			      .data = data,
			      .flags = SC_RMA_WRITE | SC_SEND_INJECT | SC_SILENT | SC_SEND_DATA };
	int ret;

	for (size_t i = 0, begin = 0; i < ranges; i++) {
		size_t end = size * (i + 1) / ranges;

		remote[i] = at(2 * begin, end - begin); /* the ranges do not meet */
		begin = end;
	}
	ret = sc_rma_post(pair[0].ep, pair[0].peer, &rma);
	assert_true(!ret || ret == -EAGAIN);
	assert_true(ret || sc_list_empty(&pair[0].peer->rma.queued));
	return !ret;
}

static void config_few_buffers(struct sc_config *config)
{
	config->buf_size = 512;
	config->buf_count = 20;
	config->cma = false;
}

/* The owner alone does what has been injected, and reads the messages before it. */
static void owner_ends(uint64_t puts, uint64_t messages)
{
	ends_settle(&pair[1], 1);
	for (; puts; puts--)
		assert_int_equal(comp_take(&pair[1].rx).flags, SC_COMP_WRITTEN | SC_COMP_DATA);
	for (; messages; messages--) {
		assert_int_equal(end_recv(&pair[1], NULL, NULL, 0, 0, 0), 0);
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
	}
	assert_null(sc_comp_ring_peek(&pair[1].rx));
	ends_settle(pair, 2);
}

/*
 * A caller that injects need not call again. So a put that is taken has its records, with the remote data, and the owner
 * alone does the rest. One for which there is too little space in the ring or in buffers is refused.
 */
static void test_injected_requests(void **state)
{
	static const size_t some[] = { 0, 1, 512, 513, 1536, 3000, SC_INJECT_MAX };
	uint64_t refused = 0, taken = 0;

	(void)state;
	adjust = config_few_buffers;
	rma_open(&routes[4]);
	adjust = NULL;
	pair_grow(&pair[0], &pair[1]);
	for (size_t ranges = 1; ranges <= SC_REMOTE_MAX; ranges += 3)
		for (size_t lent = 0; lent < 18; lent++)
			for (size_t room = 0; room < 5; room++) {
				uint64_t puts = 0, messages = 0;

				for (size_t i = 0; i < lent; i++)
					puts += is_injected(512, 1, 0);
				for (; messages < PAIR_RING_ROOM - lent - room; messages++)
					assert_int_equal(
						end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT),
						0);
				for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
					bool done = is_injected(some[i], ranges, 0);

					taken += done;
					refused += !done;
					puts += done;
				}
				owner_ends(puts, messages);
			}
	assert_true(taken && refused);
	expect_idle();
	rma_close();
}

static void config_no_overflow(struct sc_config *config)
{
	config->buf_size = 512;
}

/* One that this side copies needs a note if the registration counts it: without space for that it is refused. */
static void test_injected_and_counted(void **state)
{
	struct sc_cntr counted = { 0 };
	struct iovec iov = { from, 8 };
	struct sc_remote remote;

	(void)state;
	if (!way_possible(WAY_CMA))
		skip();
	adjust = config_no_overflow;
	uncounted = true;
	rma_open(&routes[1]);
	adjust = NULL;
	uncounted = false;
	sc_reg_set_cntrs(reg, NULL, &counted);
	remote = at(0, 8);
	pair_grow(&pair[0], &pair[1]);
	for (uint64_t round = 0; round < 2; round++) {
		uint64_t messages = 0;

		while (!end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT))
			messages++;
		pair[0].peer->delegate.pause = 100; /* this side copies */
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT | SC_SILENT),
				 -EAGAIN);
		owner_ends(0, messages);
		pair[0].peer->delegate.pause = 100;
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT | SC_SILENT), 0);
		assert_int_equal(pair[0].ep->counters.rma_direct_bytes, 8 * (round + 1));
		ends_settle(&pair[1], 1);
		assert_int_equal(counted.value, round + 1);
	}
	sc_reg_set_cntrs(reg, NULL, NULL);
	expect_idle();
	rma_close();
}

static void config_fewest_buffers(struct sc_config *config)
{
	config->buf_size = 256;
	config->buf_count = 4;
	config->cma = false;
}

/* One for which there are never enough buffers is done all the same, in later calls. The caller's memory is its own then. */
static void test_injected_in_few_buffers(void **state)
{
	static uint8_t out[SC_INJECT_MAX];
	struct iovec iov = { out, sizeof(out) };
	struct sc_remote remote;

	(void)state;
	adjust = config_fewest_buffers;
	rma_open(&routes[4]);
	adjust = NULL;
	for (int i = 0; i < 3; i++) {
		memcpy(out, from + i, sizeof(out));
		remote = at(0, sizeof(out));
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT), 0);
		assert_false(sc_list_empty(&pair[0].peer->rma.queued));
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT), -EAGAIN);
		memset(out, 0xee, sizeof(out));
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_memory_equal(space, from + i, sizeof(out));
	}
	expect_idle();
	rma_close();
}

/* One that would have to wait for another operation is refused, too. */
static void test_injected_behind_others(void **state)
{
	struct iovec iov = { into, 40 * 512 };
	struct sc_remote remote;

	(void)state;
	adjust = config_few_buffers;
	rma_open(&routes[4]);
	adjust = NULL;
	/* as many as may be open */
	pair_grow(&pair[0], &pair[1]);
	for (int i = 0; i < SC_RMA_REQUESTS_MAX; i++)
		assert_true(is_injected(0, 1, 0));
	assert_false(is_injected(0, 1, 0));
	owner_ends(SC_RMA_REQUESTS_MAX, 0);
	/* a get */
	remote = at(0, 40 * 512);
	assert_int_equal(post(&iov, 1, &remote, 1, 0), 0);
	assert_false(is_injected(8, 1, 0));
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_int_equal(run(into, remote, SC_RMA_WRITE).err, 0); /* it shows that the owner cannot copy */
	/* a put that waits for buffers; they are free again, but this side does not know yet */
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	assert_false(sc_list_empty(&pair[0].peer->rma.queued));
	ends_settle(&pair[1], 1);
	assert_false(is_injected(8, 1, 0));
	ends_settle(pair, 2);
	assert_true(is_injected(8, 1, 0));
	owner_ends(1, 0);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	expect_idle();
	rma_close();
}

/* ---- atomics --------------------------------------------------------------------------------- */

static struct sc_comp atomic_run(const struct sc_atomic *atomic)
{
	ends_settle(pair, 2);
	assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, atomic), 0);
	ends_settle(pair, 2);
	return comp_take(&pair[0].tx);
}

static void test_atomics(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		uint64_t operand[512], compare[256], result[512];
		uint64_t *words;
		struct iovec op = { operand, sizeof(operand) }, cmp = { compare, sizeof(compare) };
		struct iovec res = { result, sizeof(result) };
		struct sc_remote remote;
		struct sc_atomic atomic = { .type = SC_UINT64,
					    .code = SC_SUM,
					    .iov = &op,
					    .iov_count = 1,
					    .compare = &cmp,
					    .result = &res,
					    .remote = &remote,
					    .remote_count = 1 };

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		words = (uint64_t *)(((uintptr_t)space + 63) & ~(uintptr_t)63);
		remote = at((uint64_t)((uint8_t *)words - space), sizeof(operand));
		for (size_t i = 0; i < 512; i++) {
			words[i] = i;
			operand[i] = 1000 * i;
		}
		assert_int_equal(atomic_run(&atomic).err, 0);
		for (size_t i = 0; i < 512; i++)
			assert_int_equal(words[i], 1001 * i);
		atomic.kind = SC_ATOMIC_FETCH;
		atomic.result_count = 1;
		assert_int_equal(atomic_run(&atomic).err, 0);
		for (size_t i = 0; i < 512; i++) {
			assert_int_equal(words[i], 2001 * i);
			assert_int_equal(result[i], 1001 * i);
		}
		atomic.kind = SC_ATOMIC_COMPARE;
		atomic.code = SC_CSWAP;
		atomic.compare_count = 1;
		op.iov_len = res.iov_len = remote.len = sizeof(compare);
		for (size_t i = 0; i < 256; i++)
			compare[i] = i % 2 ? 2001 * i : 5;
		assert_int_equal(atomic_run(&atomic).err, 0);
		for (size_t i = 0; i < 256; i++) {
			assert_int_equal(words[i], i % 2 ? 1000 * i : 2001 * i);
			assert_int_equal(result[i], 2001 * i);
		}
		atomic.kind = SC_ATOMIC_FETCH;
		atomic.code = SC_ATOMIC_READ;
		atomic.iov_count = atomic.compare_count = 0;
		op.iov_len = 0;
		res.iov_len = remote.len = sizeof(result);
		assert_int_equal(atomic_run(&atomic).err, 0);
		assert_memory_equal(result, words, sizeof(result));
		/* misaligned, out of bounds, wrong key */
		remote.addr += 4;
		assert_int_equal(atomic_run(&atomic).err, EINVAL);
		remote.addr = SPACE;
		assert_int_equal(atomic_run(&atomic).err, EINVAL);
		remote.key++;
		assert_int_equal(atomic_run(&atomic).err, EKEYREJECTED);
		expect_idle();
		rma_close();
	}
}

/* A sum of one 64-bit word of registered memory; each test changes what it needs. */
struct sum {
	uint64_t one;
	struct iovec operand;
	struct sc_remote remote;
	struct sc_atomic atomic;
};

static void sum_init(struct sum *sum)
{
	*sum = (struct sum){ .one = 1, .operand = { &sum->one, 8 } };
	sum->remote = at(8 - (uintptr_t)space % 8, 8);
	sum->atomic = (struct sc_atomic){ .type = SC_UINT64,
					  .code = SC_SUM,
					  .iov = &sum->operand,
					  .iov_count = 1,
					  .remote = &sum->remote,
					  .remote_count = 1 };
}

static uint64_t sum_word(const struct sum *sum)
{
	uint64_t word;

	memcpy(&word, space + sum->remote.addr, 8);
	return word;
}

/* Tells whether the operation is over before the owner polls, and with that error in the end. */
static bool sum_is_at_once(const struct sum *sum, int err)
{
	bool over;

	assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &sum->atomic), 0);
	over = sc_comp_ring_peek(&pair[0].tx);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, err);
	return over;
}

/*
 * An operation that brings nothing back is over when it is posted, unless the application asks for its end at the owner,
 * or the owner may refuse it.
 */
static void test_atomics_at_once(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct sc_remote two[2];
		struct sc_reg *readable, *scattered;
		struct iovec ranges[2];
		struct sc_reg_attr attr = { .ranges = ranges,
					    .range_count = 2,
					    .flags = SC_REG_READ | SC_REG_WRITE };
		uint64_t result;
		struct iovec results = { &result, 8 };
		struct sum sum;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		memset(space, 0, SPACE);
		readable = reg_open(tab[1], space, SPACE, SC_REG_READ);
		sum_init(&sum);
		/* a strict owner shows nobody what is registered */
		assert_int_equal(sum_is_at_once(&sum, 0), !routes[r].strict);
		assert_int_equal(sum_word(&sum), 1);
		assert_int_equal(cntrs[0][SC_EVENT_WRITE].value, 1);
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 1);
		sum.atomic.flags = SC_SEND_DELIVERY;
		assert_false(sum_is_at_once(&sum, 0));
		sum.atomic.flags = SC_SEND_MATCH;
		assert_false(sum_is_at_once(&sum, 0));
		sum.atomic.flags = 0;
		sum.atomic.kind = SC_ATOMIC_FETCH;
		sum.atomic.result = &results;
		sum.atomic.result_count = 1;
		assert_false(sum_is_at_once(&sum, 0));
		assert_int_equal(result, 3);
		sum.atomic.kind = SC_ATOMIC_BASE;
		sum.remote.addr += 4;
		assert_false(sum_is_at_once(&sum, EINVAL));
		sum.remote.addr = SPACE;
		assert_false(sum_is_at_once(&sum, EINVAL));
		sum_init(&sum);
		sum.remote.key++;
		assert_false(sum_is_at_once(&sum, EKEYREJECTED));
		sum.remote.key = sc_reg_key(readable);
		assert_false(sum_is_at_once(&sum, EACCES));
		sum_init(&sum);
		ranges[0] = (struct iovec){ space + sum.remote.addr, 4 }; /* an element in two pieces */
		ranges[1] = (struct iovec){ space + sum.remote.addr + 64, 4 };
		assert_int_equal(sc_reg_open(tab[1], &attr, &scattered), 0);
		sum.remote = (struct sc_remote){ 0, 8, sc_reg_key(scattered) };
		assert_false(sum_is_at_once(&sum, EINVAL));
		assert_int_equal(sc_reg_close(scattered), 0);
		sum_init(&sum);
		two[0] = two[1] = sum.remote;
		sum.operand = (struct iovec){ from, 16 };
		sum.atomic.remote = two;
		sum.atomic.remote_count = 2;
		assert_false(sum_is_at_once(&sum, 0));
		assert_int_equal(sc_reg_close(readable), 0);
		expect_idle();
		rma_close();
	}
}

/* No more requests wait for an answer than the owner keeps. */
static void test_many_atomics(void **state)
{
	uint64_t former[2 * SC_RMA_REQUESTS_MAX];
	struct iovec result = { NULL, 8 };
	struct sum sum;

	(void)state;
	rma_open(&routes[0]);
	memset(space, 0, SPACE);
	sum_init(&sum);
	sum.atomic.kind = SC_ATOMIC_FETCH;
	sum.atomic.result = &result;
	sum.atomic.result_count = 1;
	for (uint64_t i = 0; i < 2 * SC_RMA_REQUESTS_MAX; i++) {
		result.iov_base = &former[i];
		assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &sum.atomic), 0);
		assert_int_equal(pair[0].peer->rma.requests,
				 i < SC_RMA_REQUESTS_MAX ? i + 1 : SC_RMA_REQUESTS_MAX);
	}
	ends_settle(pair, 2);
	for (uint64_t i = 0; i < 2 * SC_RMA_REQUESTS_MAX; i++) {
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(former[i], i);
	}
	expect_idle();
	rma_close();
}

/* An operation behind an atomic one, by a fence or by the order of the endpoint, finds it done. */
static void test_behind_atomics(void **state)
{
	(void)state;
	for (int ordered = 0; ordered < 2; ordered++) {
		struct iovec to;
		uint64_t seen = 0;
		struct sum sum;

		if (!way_possible(WAY_CMA))
			skip();
		rma_open(&routes[1]);
		memset(space, 0, SPACE);
		sum_init(&sum);
		pair[0].ep->order = ordered ? SC_ORDER_MEMORY : 0;
		pair[0].peer->delegate.pause = 100; /* this side would copy */
		to = (struct iovec){ &seen, 8 };
		assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &sum.atomic), 0);
		while (post(&to, 1, &sum.remote, 1, ordered ? 0 : SC_SEND_FENCE) == -EAGAIN)
			ends_settle(pair, 2);
		ends_settle(pair, 2);
		assert_int_equal(seen, 1);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		expect_idle();
		rma_close();
	}
}

/* Without space for its record an operation is refused; each that is taken is done once, behind one that waits. */
static void test_atomics_without_space(void **state)
{
	struct sc_remote two[2];
	uint64_t count = 0;
	struct sum sum;
	int ret;

	(void)state;
	rma_open(&routes[0]);
	memset(space, 0, SPACE);
	sum_init(&sum);
	sum.atomic.flags = SC_SILENT;
	while (!(ret = sc_atomic_post(pair[0].ep, pair[0].peer, &sum.atomic)))
		count++;
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(sc_ep_refusals(pair[0].ep), 1);
	assert_true(count > 1);
	assert_int_equal(pair[0].peer->rma.pending, 0);
	two[0] = two[1] = sum.remote;
	sum.operand = (struct iovec){ (uint64_t[]){ 70, 80 }, 16 };
	sum.atomic.code = SC_ATOMIC_WRITE;
	sum.atomic.remote = two;
	sum.atomic.remote_count = 2;
	assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &sum.atomic), 0);
	assert_int_equal(pair[0].peer->rma.pending, 1);
	ends_settle(&pair[1], 1);
	assert_int_equal(sum_word(&sum), count);
	sum_init(&sum);
	assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &sum.atomic), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_int_equal(sum_word(&sum), 81);
	expect_idle();
	rma_close();
}

/* The owner says that it has read more than there was. The search for space finds that out, and nothing stays behind. */
static void test_atomics_to_one_gone_mad(void **state)
{
	uint64_t former;
	struct iovec result = { &former, 8 };
	struct sum sum;

	(void)state;
	for (int fetches = 0; fetches < 2; fetches++) {
		rma_open(&routes[0]);
		sum_init(&sum);
		sum.atomic.flags = SC_SILENT;
		while (!sc_atomic_post(pair[0].ep, pair[0].peer, &sum.atomic))
			;
		sc_store_relaxed_64(&sc_seg_slot(pair[0].peer->seg, pair[0].peer->out_slot)->consumer.head,
				    UINT64_MAX / 2);
		sum.atomic.kind = fetches ? SC_ATOMIC_FETCH : SC_ATOMIC_BASE;
		sum.atomic.result = &result;
		sum.atomic.result_count = 1;
		assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &sum.atomic), -EPROTO);
		assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
		assert_int_equal(sc_slab_used(&pair[0].ep->rma_ops), 0);
		assert_int_equal(pair[0].peer->rma.pending, 0);
		rma_close();
	}
}

/* ---- counters, and completions --------------------------------------------------------------- */

/* One operation is one event on either side, in however many records it goes. */
static void test_counted_once(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct sc_cntr reads = { 0 }, writes = { 0 };
		struct iovec range, iov = { from, 8 * 40000 }, op, res;
		struct sc_reg_attr attr = { .ranges = &range,
					    .range_count = 1,
					    .flags = SC_REG_READ | SC_REG_WRITE | SC_REG_EVENT,
					    .reads = &reads,
					    .writes = &writes };
		struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
					    .type = SC_UINT64,
					    .code = SC_SUM,
					    .iov = &op,
					    .iov_count = 1,
					    .result = &res,
					    .result_count = 1,
					    .remote_count = 2 };
		struct sc_remote remote[8];
		struct sc_reg *counted;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		range = (struct iovec){ space + (8 - (uintptr_t)space % 8), 8 * 60000 };
		assert_int_equal(sc_reg_open(tab[1], &attr, &counted), 0);
		for (size_t i = 0; i < 8; i++)
			remote[i] = (struct sc_remote){ 50000 * i, 40000, sc_reg_key(counted) };
		assert_int_equal(post(&iov, 1, remote, 8, SC_RMA_WRITE), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		iov.iov_base = into;
		assert_int_equal(post(&iov, 1, remote, 8, 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(writes.value, 1);
		assert_int_equal(reads.value, 1);
		/* 4096 bytes in two parts: several records each */
		op = (struct iovec){ from, 4096 };
		res = (struct iovec){ into, 4096 };
		remote[0].len = remote[1].len = 2048;
		atomic.remote = remote;
		assert_int_equal(atomic_run(&atomic).err, 0);
		assert_true(writes.value == 2 && reads.value == 2); /* of the memory it is both */
		atomic.kind = SC_ATOMIC_BASE;
		assert_int_equal(atomic_run(&atomic).err, 0);
		assert_true(writes.value == 3 && reads.value == 2);
		/* failed ones are not */
		remote[0].addr++;
		remote[1].addr++;
		assert_int_equal(atomic_run(&atomic).err, EINVAL);
		atomic.kind = SC_ATOMIC_FETCH;
		assert_int_equal(atomic_run(&atomic).err, EINVAL);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(cntrs[i][SC_EVENT_READ].value, i ? 0 : 2);
			assert_int_equal(cntrs[i][SC_EVENT_WRITE].value, i ? 0 : 2);
			assert_int_equal(cntrs[i][SC_EVENT_REMOTE_READ].value, i ? 2 : 0);
			assert_int_equal(cntrs[i][SC_EVENT_REMOTE_WRITE].value, i ? 2 : 0);
		}
		assert_int_equal(cntrs[0][SC_EVENT_READ].errors, 1);
		assert_int_equal(cntrs[0][SC_EVENT_WRITE].errors, 1);
		assert_true(writes.value == 3 && reads.value == 2);
		assert_int_equal(sc_reg_close(counted), 0);
		expect_idle();
		rma_close();
	}
}

/* One operation under several keys is one event for each registration, and one for the endpoint, whatever its errors. */
static void test_counted_apart(void **state)
{
	static const uint64_t kinds[] = { SC_RMA_WRITE, SC_RMA_WRITE | SC_SEND_INJECT, 0 };

	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct sc_cntr reads[2] = { { 0 } }, writes[2] = { { 0 } };
		struct iovec op, res, iov = { from, 3 * 40000 };
		struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
					    .type = SC_UINT64,
					    .code = SC_SUM,
					    .iov = &op,
					    .iov_count = 1,
					    .result = &res,
					    .result_count = 1,
					    .remote_count = 3 };
		struct sc_remote remote[3];
		struct sc_reg *counted[2];

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		for (size_t i = 0; i < 2; i++) {
			counted[i] = reg_open(tab[1], space + (8 - (uintptr_t)space % 8) + 200000 * i,
					      200000, SC_REG_READ | SC_REG_WRITE);
			sc_reg_set_cntrs(counted[i], &reads[i], &writes[i]);
		}
		for (size_t i = 0; i < 3; i++)
			remote[i] = (struct sc_remote){ 50000 * i, 40000, sc_reg_key(counted[i % 2]) };
		atomic.remote = remote;
		for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
			for (size_t i = 0; i < 3; i++)
				remote[i].len = kind == 1 ? 1000 : 40000;
			iov = (struct iovec){ kind == 2 ? into : from, 3 * remote[0].len };
			assert_int_equal(post(&iov, 1, remote, 3, (uint32_t)kinds[kind]), 0);
			ends_settle(pair, 2);
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		}
		op = (struct iovec){ from, 3 * 1024 }; /* several records each */
		res = (struct iovec){ into, 3 * 1024 };
		remote[0].len = remote[1].len = remote[2].len = 1024;
		assert_int_equal(atomic_run(&atomic).err, 0);
		for (size_t i = 0; i < 2; i++)
			assert_true(writes[i].value == 3 && reads[i].value == 2);
		atomic.kind = SC_ATOMIC_BASE;
		assert_int_equal(atomic_run(&atomic).err, 0);
		for (size_t i = 0; i < 2; i++)
			assert_true(writes[i].value == 4 && reads[i].value == 2);
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_READ].value, 2);
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 3);
		/* the first range fails: nothing is done in a later one, and nothing counts */
		remote[0].addr = 200000;
		iov = (struct iovec){ from, 3 * 1024 };
		assert_int_equal(post(&iov, 1, remote, 3, SC_RMA_WRITE), 0);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, EINVAL);
		assert_true(writes[0].value == 4 && writes[1].value == 4);
		for (size_t i = 0; i < 2; i++)
			assert_int_equal(sc_reg_close(counted[i]), 0);
		expect_idle();
		rma_close();
	}
}

/* Data and inject are of writes: a read gets its bytes, and nobody hears of it. */
static void test_flags_of_reads(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		memcpy(space, from, 100);
		memset(into, 0, 100);
		assert_int_equal(run(into, at(0, 100), SC_SEND_DATA | SC_SEND_INJECT).err, 0);
		assert_memory_equal(into, from, 100);
		assert_int_equal(run(into, at(0, SC_INJECT_MAX + 1), SC_SEND_INJECT).err, 0);
		expect_idle();
		rma_close();
	}
}

/* A process that does not read its completions pushes back who tells it of writes; none is lost. */
static void test_data_pushed_back(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct iovec iov = { from, 8 };
		struct sc_remote remote;
		int posted = 0, completed = 0, ret;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		remote = at(0, 8);
		pair[1].rx.limit = 100;
		for (int i = 0; i < 100000; i++) {
			ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_DATA | SC_SILENT);
			if (ret)
				break;
			posted++;
			ends_settle(pair, 2);
			assert_true(pair[1].rx.tail - pair[1].rx.head <= 100);
		}
		assert_int_equal(ret, -EAGAIN);
		while (completed < posted) {
			ends_settle(pair, 2);
			assert_non_null(sc_comp_ring_peek(&pair[1].rx));
			for (; sc_comp_ring_peek(&pair[1].rx); completed++)
				assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
		}
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, posted);
		expect_idle();
		rma_close();
	}
}

/* No memory for an operation that has to queue: nothing has been done, not even the copy. */
static void test_no_memory(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct iovec iov[] = { { from, 60 },
				       { from + 60, 40 } }; /* one piece needs no operation on each way */
		struct sc_remote remote;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		memset(space, 0xa5, SPACE);
		remote = at(0, 100);
		pair[0].ep->rma_ops.chunk_count = UINT32_MAX / 64; /* as many as there may be */
		assert_int_equal(post(iov, 2, &remote, 1, SC_RMA_WRITE | SC_SEND_DATA), -EAGAIN);
		pair[0].ep->rma_ops.chunk_count = 0;
		ends_settle(pair, 2);
		assert_true(is_untouched(0, 0));
		assert_int_equal(pair[0].ep->counters.rma_ops, 0);
		expect_idle();
		assert_int_equal(cntrs[1][SC_EVENT_REMOTE_WRITE].value, 0);
		assert_int_equal(run(from, remote, SC_RMA_WRITE | SC_SEND_DATA).err, 0);
		assert_int_equal(comp_take(&pair[1].rx).data, 0xda7a);
		expect_idle();
		rma_close();
	}
}

/* ---- order ----------------------------------------------------------------------------------- */

/* A fence waits for what is under way, of either kind. */
static void test_fence(void **state)
{
	(void)state;
	for (size_t r = 2; r < ROUTES; r++) {
		struct iovec iov = { from, 100 };
		struct sc_remote remote;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		remote = at(0, 100);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_FENCE), -EAGAIN);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), -EAGAIN);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_FENCE), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, SC_SEND_DELIVERY), 0);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_FENCE), -EAGAIN);
		for (int i = 0; i < 3; i++)
			assert_int_equal(end_recv(&pair[1], NULL, into, 8, 0, 0), 0);
		ends_settle(pair, 2);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_FENCE), 0);
		ends_settle(pair, 2);
		for (int i = 0; i < 5; i++)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		for (int i = 0; i < 3; i++)
			assert_int_equal(comp_take(&pair[1].rx).err, 0);
		expect_idle();
		rma_close();
	}
}

/* Behind a fence nothing is done to the peer's memory before it has taken the messages in front, and received them. */
static void test_fence_behind_messages(void **state)
{
	enum { FENCED_READ, FENCED_WRITE, FENCED_MESSAGE, FENCED };

	(void)state;
	for (size_t r = 0; r < ROUTES; r++)
		for (int fenced = 0; fenced < FENCED; fenced++) {
			struct iovec read = { into, 100 }, write = { from + 100, 50 };
			bool messages = fenced == FENCED_MESSAGE;
			struct sc_remote remote;

			if (!way_possible(routes[r].way))
				continue;
			rma_open(&routes[r]);
			memset(space, 0xa5, SPACE);
			memset(into, 0, sizeof(into));
			for (int i = 0; i < 1 + messages; i++)
				assert_int_equal(end_recv(&pair[1], NULL, space, 100, 0, 0), 0);
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 0, SC_SILENT), 0);
			remote = at(0, 50);
			if (fenced == FENCED_WRITE)
				assert_int_equal(post(&write, 1, &remote, 1, SC_RMA_WRITE | SC_SEND_FENCE),
						 0);
			else if (messages)
				assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 0,
							  SC_SILENT | SC_SEND_FENCE),
						 0);
			remote = at(0, 100); /* behind it, or the fenced one itself */
			assert_int_equal(
				post(&read, 1, &remote, 1, fenced == FENCED_READ ? SC_SEND_FENCE : 0), 0);
			for (int polls = 0; polls < 10; polls++)
				(void)sc_ep_poll(pair[0].ep);
			assert_true(end_idle(&pair[0]));
			assert_true(is_untouched(0, 0));
			ends_settle(pair, 2);
			for (int i = 0; i < 1 + (fenced == FENCED_WRITE); i++)
				assert_int_equal(comp_take(&pair[0].tx).err, 0);
			for (int i = 0; i < 1 + messages; i++)
				assert_int_equal(comp_take(&pair[1].rx).err, 0);
			assert_memory_equal(into, fenced == FENCED_WRITE ? from + 100 : from, 50);
			assert_memory_equal(into + 50, from + 50, 50);
			expect_idle();
			/* there is none any more */
			assert_int_equal(post(&read, 1, &remote, 1, SC_SEND_FENCE), 0);
			assert_int_equal(sc_list_empty(&pair[0].peer->rma.waiting) &&
						 sc_list_empty(&pair[0].peer->rma.queued),
					 !routes[r].strict && routes[r].way != WAY_PULL);
			ends_settle(pair, 2);
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
			rma_close();
		}
}

/* An access is posted while the peer has a fenced one in hand, and has taken the message in front of that one. */
enum behind { PUT_BEHIND_PUT, GET_BEHIND_PUT, PUT_BEHIND_GET, BEHINDS };

#define UNFINISHED ((size_t)12 << 20) /* the peer copies some of it in a poll */

static void behind_unfinished(const struct route *route, enum behind behind, size_t size, uint8_t *there,
			      uint8_t *here)
{
	struct iovec first = { here, UNFINISHED }, second = { into, size };
	bool fetches = behind == PUT_BEHIND_GET, puts = behind != GET_BEHIND_PUT;
	struct sc_remote all, end;
	struct sc_reg *large;

	memset(there, 0, UNFINISHED);
	memset(here, 1, UNFINISHED);
	memset(into, 2, size);
	rma_open(route);
	large = reg_open(tab[1], there, UNFINISHED, SC_REG_READ | SC_REG_WRITE);
	all = (struct sc_remote){ 0, UNFINISHED, sc_reg_key(large) };
	end = (struct sc_remote){ UNFINISHED - size, size, sc_reg_key(large) };
	assert_int_equal(end_recv(&pair[1], NULL, space, 100, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 100, 0, SC_SILENT), 0);
	assert_int_equal(post(&first, 1, &all, 1, SC_SEND_FENCE | (fetches ? 0 : SC_RMA_WRITE)), 0);
	(void)sc_ep_poll(pair[1].ep);
	sc_peer_publish(pair[1].peer);
	assert_int_equal(comp_take(&pair[1].rx).err, 0);
	assert_false(sc_fence_stands(pair[0].peer));
	assert_true(fetches ? here[UNFINISHED - 1] == 1 : !there[UNFINISHED - 1]);
	assert_int_equal(post(&second, 1, &end, 1, puts ? SC_RMA_WRITE : 0), 0);
	for (int polls = 0; polls < 1000; polls++)
		(void)sc_ep_poll(pair[0].ep);
	assert_true(end_idle(&pair[0]));
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	for (size_t i = 0; i < size; i++) {
		assert_int_equal(there[UNFINISHED - size + i], puts ? 2 : 1);
		assert_int_equal(here[UNFINISHED - size + i], !fetches);
		assert_int_equal(into[i], puts ? 2 : 1);
	}
	/* nothing is under way any more: a copy is over in the call */
	end = (struct sc_remote){ 0, 60000, sc_reg_key(large) };
	assert_int_equal(post(&(struct iovec){ here, 60000 }, 1, &end, 1, 0), 0);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	expect_idle();
	assert_int_equal(sc_reg_close(large), 0);
	rma_close();
}

static void test_behind_unfinished(void **state)
{
	static const size_t small[] = { 8, 3000, 60000, 300000 };
	uint8_t *there = malloc(UNFINISHED), *here = malloc(UNFINISHED);

	(void)state;
	assert_true(there && here);
	uncounted = true;
	for (size_t r = 0; r < 2; r++)
		for (int behind = 0; behind < BEHINDS; behind++)
			for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
				if (way_possible(routes[r].way))
					behind_unfinished(&routes[r], (enum behind)behind, small[i], there,
							  here);
	uncounted = false;
	free(there);
	free(here);
}

/*
 * Puts that the peer was to copy and cannot are made again: in their order, and before later ones. It finds out
 * with the first of them, or (`later`) it could and cannot any more.
 */
static void test_order_of_puts_made_again(void **state)
{
	static const struct route strict = { "", true, WAY_CMA };

	(void)state;
	if (!cma_allowed())
		skip();
	for (int later = 0; later < 3; later++) {
		static uint8_t values[4][60000];
		struct sc_remote remote;
		struct iovec iov;

		rma_open(&strict);
		if (later)
			assert_int_equal(run(from, at(0, 60000), SC_RMA_WRITE).err, 0);
		assert_int_equal(pair[0].peer->rma.fetch, later ? SC_FETCH_YES : SC_FETCH_UNKNOWN);
		if (later == 2)
			pair[1].peer->cma.cookie ^= 1; /* it looks like another process */
		else
			pair[1].peer->can_read = false;
		for (int i = 0; i < 4; i++) {
			memset(values[i], i + 1, sizeof(values[i]));
			remote = at(0, 60000);
			iov = (struct iovec){ values[i], sizeof(values[i]) };
			assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
		}
		remote = at(100, 1);
		iov = (struct iovec){ from + 77, 1 };
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
		iov = (struct iovec){ into, 60000 };
		remote = at(0, 60000);
		assert_int_equal(post(&iov, 1, &remote, 1, 0), 0);
		ends_settle(pair, 2);
		for (int i = 0; i < 6; i++)
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
		for (size_t i = 0; i < 60000; i++) {
			assert_int_equal(space[i], i == 100 ? from[77] : 4);
			assert_int_equal(into[i], space[i]);
		}
		assert_int_equal(pair[0].peer->rma.fetch, SC_FETCH_NO);
		expect_idle();
		rma_close();
	}
}

/*
 * A get needs a proof that the memory was its owner's: the word of life before and after the copy, else the cookie. If
 * there is none, the owner does the get again.
 */
static void test_proof_of_a_get(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (int life = LIFE_WELL; life < LIVES; life++)
		for (int same = 0; same < 2; same++) {
			bool direct = same || life == LIFE_WELL;
			size_t size = 40000;
			uint32_t before;

			rma_open(&routes[1]);
			pattern_fill(space, 0, size, 10 * life + same);
			memset(into, 0, size);
			pair[0].peer->cma.cookie ^= !same; /* it looks like another process */
			before = life_take(pair[0].peer, life);
			if (before) {
				assert_int_equal(run(into, at(0, size), 0).err, 0);
				life_restore(before);
				assert_true(pattern_is(into, 0, size, 10 * life + same));
				assert_int_equal(pair[0].ep->counters.rma_direct_bytes, direct ? size : 0);
				assert_int_equal(pair[0].peer->can_read != SC_REACH_NO, direct);
				expect_idle();
			}
			rma_close();
		}
}

/* A large put with another error tells nothing of whether the peer can copy. */
static void test_first_large_put_fails(void **state)
{
	static const struct route strict = { "", true, WAY_PULL };

	(void)state;
	rma_open(&strict);
	expect_error(at(SPACE - 10, 40000), SC_RMA_WRITE, EINVAL);
	assert_int_equal(pair[0].peer->rma.fetch, SC_FETCH_UNKNOWN);
	for (int i = 0; i < 3; i++) {
		struct iovec iov = { from + i, 40000 };
		struct sc_remote remote = at(0, 40000);

		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	}
	ends_settle(pair, 2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_memory_equal(space, from + 2, 40000);
	expect_idle();
	rma_close();
}

/*
 * A get of two parts: the bytes of the first find room in the ring, the answer does not; then there is room and the
 * second part is asked for. Its bytes may not come before that answer.
 */
static void test_answers_in_order(void **state)
{
	static const struct route bounced = { "", true, WAY_PULL };

	(void)state;
	for (int free_lines = 0; free_lines < 4; free_lines++) {
		struct iovec iov = { into, 2000 };
		struct sc_remote remote[2];

		rma_open(&bounced);
		memcpy(space, from, 2000);
		memset(into, 0, 2000);
		remote[0] = at(0, 1000);
		remote[1] = at(1000, 1000);
		for (int i = 0; i < PAIR_RING_ROOM - 1; i++)
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, 0, 0, SC_SILENT), 0);
		for (int i = 0; i < PAIR_RING_ROOM - free_lines; i++)
			assert_int_equal(end_send(&pair[1], pair[1].peer, from, 0, 0, SC_SILENT), 0);
		assert_int_equal(post(&iov, 1, remote, 2, 0), 0);
		for (int i = 0; i < 8; i++)
			sc_ep_poll(pair[1].ep);
		for (int i = 0; i < 8; i++)
			sc_ep_poll(pair[0].ep);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_memory_equal(into, from, 2000);
		expect_idle();
		rma_close();
	}
}

/* Each asks the other for all sorts of things and neither reads before its ring is full. */
static void test_both_full(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		static uint64_t sums[2][8], got[2][8];
		struct sc_reg *other;
		int posted[2] = { 0 };

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		memset(sums, 0, sizeof(sums));
		other = reg_open(tab[0], sums[0], sizeof(sums[0]), SC_REG_READ | SC_REG_WRITE);
		assert_int_equal(sc_reg_close(reg), 0);
		reg = reg_open(tab[1], sums[1], sizeof(sums[1]), SC_REG_READ | SC_REG_WRITE);
		for (int round = 0; round < 20; round++)
			for (int i = 0; i < 2; i++) {
				uint64_t one = 1;
				struct iovec op = { &one, 8 }, res = { &got[i][0], 8 },
					     all = { got[i], 64 };
				struct sc_remote remote = { 0, 8, sc_reg_key(i ? other : reg) };
				struct sc_remote whole = { 0, 64, remote.key };
				struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
							    .type = SC_UINT64,
							    .code = SC_SUM,
							    .iov = &op,
							    .iov_count = 1,
							    .result = &res,
							    .result_count = 1,
							    .remote = &remote,
							    .remote_count = 1 };
				struct sc_rma rma = {
					.iov = &all, .iov_count = 1, .remote = &whole, .remote_count = 1
				};

				for (int n = 0; n < 20; n++) {
					int ret;

					assert_int_equal(sc_atomic_post(pair[i].ep, pair[i].peer, &atomic),
							 0);
					ret = sc_rma_post(pair[i].ep, pair[i].peer, &rma);
					if (ret != -EAGAIN || !pair[i].ep->counters.rma_delegated)
						assert_int_equal(ret, 0);
					(void)end_send(&pair[i], pair[i].peer, from, 8, 0, SC_SILENT);
					posted[i] += 1 + !ret;
				}
			}
		ends_settle(pair, 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(sums[i][0], 400);
			while (posted[i]--)
				assert_int_equal(comp_take(&pair[i].tx).err, 0);
		}
		assert_int_equal(sc_reg_close(other), 0);
		expect_idle();
		rma_close();
	}
}

/*
 * Bytes go through bounce buffers, and the reader writes an impossible head. The side that waits for the buffers, to
 * put or to answer a get, finds it, though there is room in the ring.
 */
static void test_impossible_head(void **state)
{
	static const struct route bounced = { "", true, WAY_PULL };

	(void)state;
	for (int put = 0; put < 2; put++) {
		struct iovec iov = { put ? from : into, 400000 };
		struct sc_remote remote;
		struct end *lender = &pair[!put];

		rma_open(&bounced);
		lender->peer->ep->config.eager_max = SPACE; /* no put is fetched */
		pair[0].ep->config.eager_max = SPACE;
		remote = at(0, 400000);
		assert_int_equal(post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0), 0);
		for (int i = 0; i < 100; i++)
			sc_ep_poll(lender->ep);
		assert_true(lender->peer->bounce.loans.count > 0);
		lender->peer->tx.consumer->head = UINT64_MAX / 3;
		for (int i = 0; i < 100; i++)
			sc_ep_poll(lender->ep);
		assert_int_equal(lender->ep->counters.quarantines, 1);
		assert_int_equal(lender->ep->pool.free_count, lender->ep->pool.have);
		ends_settle(pair, 2);
		assert_int_equal(comp_take(&pair[0].tx).err, put ? EPROTO : ECONNRESET);
		assert_true(end_idle(&pair[0]));
		rma_close();
	}
}

/* A peer that does not look at its ring: pushed back in time, each operation ends once when it closes. */
static void test_never_read(void **state)
{
	static const struct route kinds[] = { { "", true, WAY_CMA }, { "", false, WAY_LOCAL } };

	(void)state;
	for (int k = 0; k < 2; k++)
		for (uint32_t flags = 0; flags <= SC_RMA_WRITE; flags += SC_RMA_WRITE) {
			struct iovec iov = { from, 100 };
			struct sc_remote remote;
			int posted = 0, ret = 0;
			uint64_t written;

			if (!way_possible(kinds[k].way))
				continue;
			rma_open(&kinds[k]);
			pair[0].tx.limit = SIZE_MAX;
			remote = at(0, 100);
			iov.iov_base = flags ? from : into;
			while (posted < 100000) {
				memset(space, posted, 100);
				ret = post(&iov, 1, &remote, 1, flags);
				sc_ep_poll(pair[0].ep);
				if (ret)
					break;
				posted++;
			}
			assert_int_equal(ret, -EAGAIN);
			/* that one has done nothing: no byte, no event */
			for (int i = 0; flags && i < 100; i++)
				assert_int_equal(space[i], (uint8_t)posted);
			written = pair[0].peer->tx.tail; /* lines */
			end_close(&pair[1]);
			ends_settle(pair, 1);
			for (int i = 0; i < posted; i++) {
				int err = comp_take(&pair[0].tx).err;

				/* those are done whose notes were written */
				assert_true(err == ECONNRESET ||
					    (!kinds[k].strict && (uint64_t)i < written && !err));
			}
			assert_true(end_idle(&pair[0]));
			assert_int_equal(sc_slab_used(&pair[0].ep->rma_ops), 0);
			assert_int_equal(pair[0].peer->rma.pending, 0);
			assert_int_equal(post(&iov, 1, &remote, 1, flags), -ECONNRESET);
			rma_close();
		}
}

/* ---- small endpoints, oneself, peeking -------------------------------------------------------- */

static void config_least(struct sc_config *config)
{
	config->buf_size = 256;
	config->buf_count = 2;
	config->slots = 2;
	config->eager_max = 1024;
}

static void test_least_buffers(void **state)
{
	(void)state;
	adjust = config_least;
	test_sizes(state);
	test_vectors(state);
	test_remote_data(state);
	adjust = NULL;
}

static void test_self(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++) {
		struct sc_reg *own;
		struct sc_peer *self;
		uint64_t word = 5, one = 1, old = 0;
		struct iovec op = { &one, 8 }, res = { &old, 8 }, iov;
		struct sc_remote remote;
		struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
					    .type = SC_UINT64,
					    .code = SC_SUM,
					    .iov = &op,
					    .iov_count = 1,
					    .result = &res,
					    .result_count = 1,
					    .remote = &remote,
					    .remote_count = 1 };
		struct sc_rma rma = { .iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1 };

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		own = reg_open(tab[0], &word, 8, SC_REG_READ | SC_REG_WRITE);
		remote = (struct sc_remote){ 0, 8, sc_reg_key(own) };
		self = end_find(&pair[0], &pair[0]);
		assert_int_equal(sc_atomic_post(pair[0].ep, self, &atomic), 0);
		ends_settle(pair, 1);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_true(old == 5 && word == 6);
		end_take_way(&pair[0], self, routes[r].way);
		iov = res;
		assert_int_equal(sc_rma_post(pair[0].ep, self, &rma), 0);
		ends_settle(pair, 1);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(old, 6);
		rma.flags = SC_RMA_WRITE | SC_SEND_DATA;
		iov = op;
		assert_int_equal(sc_rma_post(pair[0].ep, self, &rma), 0);
		ends_settle(pair, 1);
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[0].rx).flags, SC_COMP_WRITTEN | SC_COMP_DATA);
		assert_int_equal(word, 1);
		assert_int_equal(sc_reg_close(own), 0);
		expect_idle();
		rma_close();
	}
}

/* An endpoint that does nothing but peek serves requests, and its own operations end. */
static void test_peek_makes_progress(void **state)
{
	(void)state;
	for (size_t r = 2; r < ROUTES; r++)
		for (int who = 0; who < 2; who++) {
			struct sc_recv recv = { .flags = SC_RECV_PEEK };
			struct iovec iov = { into, 500000 };
			struct sc_remote remote;

			if (!way_possible(routes[r].way))
				continue;
			rma_open(&routes[r]);
			memcpy(space, from, 500000);
			memset(into, 0, 500000);
			remote = at(0, 500000);
			assert_int_equal(post(&iov, 1, &remote, 1, 0), 0);
			for (int i = 0; i < 100000 && !sc_comp_ring_peek(&pair[0].tx); i++) {
				assert_int_equal(sc_rx_recv(pair[who].ep, &recv), 0);
				assert_int_equal(comp_take(&pair[who].rx).err, ENOMSG);
				sc_ep_poll(pair[!who].ep);
			}
			assert_int_equal(comp_take(&pair[0].tx).err, 0);
			assert_memory_equal(into, from, 500000);
			expect_idle();
			rma_close();
		}
}

/* ---- more than 4 GiB -------------------------------------------------------------------------- */

/* Where it takes a minute, it would see no more: sanitizers look at each byte, and points at each call. */
#ifdef SC_FAULT_INJECTION
#define HUGE_POSSIBLE false
#else
#define HUGE_POSSIBLE (!CHILD_SANITIZED)
#endif
#define HUGE_SIZE (((size_t)4 << 30) + HUGE_END + 5)
#define HUGE_END ((size_t)1 << 20) /* so many bytes at the begin and at the end are looked at */

/* In large pages: a million small ones take a minute to come and go where a host keeps their tables, too. */
static uint8_t *huge_map(void)
{
	uint8_t *base = mmap(NULL, HUGE_SIZE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(base, MAP_FAILED);
	(void)madvise(base, HUGE_SIZE, MADV_HUGEPAGE);
	return base;
}

static void huge_mark(uint8_t *base, uint64_t seed)
{
	pattern_fill(base, 0, HUGE_END, seed);
	pattern_fill(base + HUGE_SIZE - HUGE_END, 0, HUGE_END, seed + 1);
}

static bool huge_is_marked(const uint8_t *base, uint64_t seed)
{
	return pattern_is(base, 0, HUGE_END, seed) &&
	       pattern_is(base + HUGE_SIZE - HUGE_END, 0, HUGE_END, seed + 1);
}

static void test_huge(void **state)
{
	uint8_t *there, *here;

	(void)state;
	/* test_rma of test/fabric moves as much in one way in each run */
	if (!HUGE_POSSIBLE || memory_is_short() || !rounds_are_full()) {
		puts("needs the full tests, and memory");
		skip();
	}
	there = huge_map();
	here = huge_map();
	for (size_t r = 1; r < 4; r++) {
		struct sc_reg *huge;
		struct sc_comp comp;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		huge = reg_open(tab[1], there, HUGE_SIZE, SC_REG_READ | SC_REG_WRITE);
		huge_mark(here, 10 * r);
		comp = run(here, (struct sc_remote){ 0, HUGE_SIZE, sc_reg_key(huge) }, SC_RMA_WRITE);
		assert_int_equal(comp.err, 0);
		assert_true(comp.len == HUGE_SIZE);
		assert_true(huge_is_marked(there, 10 * r));
		huge_mark(there, 10 * r + 5);
		comp = run(here, (struct sc_remote){ 0, HUGE_SIZE, sc_reg_key(huge) }, 0);
		assert_int_equal(comp.err, 0);
		assert_true(comp.len == HUGE_SIZE);
		assert_true(huge_is_marked(here, 10 * r + 5));
		assert_int_equal(
			run(here, (struct sc_remote){ 1, HUGE_SIZE, sc_reg_key(huge) }, SC_RMA_WRITE).err,
			EINVAL);
		expect_idle();
		assert_int_equal(sc_reg_close(huge), 0);
		rma_close();
	}
	munmap(there, HUGE_SIZE);
	munmap(here, HUGE_SIZE);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* A bit of everything, nothing of it read yet. */
static int post_all_sorts(void)
{
	struct iovec small = { from, 100 }, large = { from, 300000 }, get = { into, 300000 };
	struct iovec op = { from, 64 }, res = { into + 400000, 64 };
	struct sc_remote to_small = at(0, 100), to_large = at(1000, 300000), words = at(0, 64);
	struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
				    .type = SC_UINT8,
				    .code = SC_SUM,
				    .iov = &op,
				    .iov_count = 1,
				    .result = &res,
				    .result_count = 1,
				    .remote = &words,
				    .remote_count = 1 };
	int posted = 0;

	for (int i = 0; i < 10; i++) {
		int ret = post(&small, 1, &to_small, 1, SC_RMA_WRITE | SC_SEND_INJECT);

		/* behind others whose records wait for space it is refused, as its own would wait */
		assert_true(!ret || ret == -EAGAIN);
		assert_int_equal(post(&large, 1, &to_large, 1, SC_RMA_WRITE), 0);
		assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &atomic), 0);
		assert_int_equal(post(&get, 1, &to_large, 1, 0), 0);
		assert_int_equal(post(&small, 1, &to_small, 1, SC_RMA_WRITE | SC_SEND_DATA), 0);
		posted += 4 + !ret;
	}
	return posted;
}

/* The one or the other closes after so many polls: each operation has ended once, or is forgotten. */
static void test_closed_under_way(void **state)
{
	(void)state;
	for (size_t r = 0; r < ROUTES; r++)
		for (int who = 0; who < 2; who++)
			for (int polls = 0; polls < 24; polls++) {
				int posted;

				if (!way_possible(routes[r].way))
					continue;
				rma_open(&routes[r]);
				posted = post_all_sorts();
				for (int i = 0; i < polls; i++)
					sc_ep_poll(pair[i % 2].ep);
				end_close(&pair[who]);
				if (who)
					memset(space, 0xee, SPACE);
				else
					memset(into, 0xee, sizeof(into));
				ends_settle(pair, 2);
				for (int i = 0; who && i < posted; i++) {
					int err = comp_take(&pair[0].tx).err;

					assert_true(!err || err == ECONNRESET);
				}
				if (who) {
					assert_null(sc_comp_ring_peek(&pair[0].tx));
					assert_int_equal(sc_slab_used(&pair[0].ep->rma_ops), 0);
					assert_int_equal(pair[0].ep->counters.quarantines, 0);
				} else { /* nothing of a closed endpoint's memory is touched */
					for (size_t i = 0; i < sizeof(into); i++)
						assert_int_equal(into[i], 0xee);
					assert_true(sc_list_empty(&pair[1].ep->work[SC_WORK_SERVING]));
					assert_int_equal(pair[1].ep->counters.quarantines, 0);
				}
				rma_close();
			}
}

/* The endpoint receives the message that the peer sent before it closed. */
static void check_last_words(void)
{
	assert_int_equal(end_recv(&pair[0], NULL, into, 1000, 5, 0), 0);
	ends_settle(pair, 1);
	expect_received(&pair[0], pair[0].peer, into, 1000, 5);
}

/*
 * An operation finds that the peer has closed: the endpoint still receives the peer's earlier message. The first post
 * returns -EAGAIN; after polls, which read that message, a post returns -ECONNRESET.
 */
static void test_last_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		size_t r = i / 2;
		uint32_t inject = i % 2 ? SC_SEND_INJECT : 0;
		struct iovec iov = { from, 100 };
		struct sc_remote remote;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		remote = at(0, 100);
		assert_int_equal(end_send(&pair[1], pair[1].peer, from, 1000, 5, 0), 0);
		end_close(&pair[1]);
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | inject), -EAGAIN);
		while (pair[0].peer->link != SC_LINK_DOWN)
			sc_ep_poll(pair[0].ep);
		assert_null(sc_comp_ring_peek(&pair[0].tx));
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE | inject), -ECONNRESET);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 5, 0), -ECONNRESET);
		check_last_words();
		rma_close();
	}
}

#ifdef SC_FAULT_INJECTION

/* The owner says that it has closed when the operation has begun. */
static int close_amid(const char *point)
{
	if (!strcmp(point, "direct.hazard"))
		sc_store_release_32(&sc_seg_presence(pair[1].ep->seg)->state, SC_ABI_CLOSED);
	return 0;
}

/* The same for one that has been accepted when its peer closes: it fails behind what that has sent. */
static void test_last_words_amid(void **state)
{
	(void)state;
	for (size_t r = 0; r < 2; r++) {
		struct iovec iov = { from, 100 };
		struct sc_remote remote;

		if (!way_possible(routes[r].way))
			continue;
		rma_open(&routes[r]);
		remote = at(0, 100);
		assert_int_equal(end_send(&pair[1], pair[1].peer, from, 1000, 5, 0), 0);
		sc_fault_hook = close_amid;
		assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
		(void)core_failing(NULL, 0);
		assert_null(sc_comp_ring_peek(&pair[0].tx));
		end_close(&pair[1]);
		while (!sc_comp_ring_peek(&pair[0].tx))
			sc_ep_poll(pair[0].ep);
		assert_int_equal(pair[0].peer->link, SC_LINK_DOWN);
		assert_int_equal(comp_take(&pair[0].tx).err, ECONNRESET);
		check_last_words();
		rma_close();
	}
}

/* The initiator gives the owner up, which keeps the rules, when that is about to write what a get has asked for. */
static bool given_up, ended_early;

static int give_up_amid(const char *point)
{
	if (strcmp(point, "target.hazard") || given_up)
		return 0;
	given_up = true;
	sc_peer_quarantine(pair[0].peer, -ENOMEM, "a test");
	for (int i = 0; i < 100; i++)
		sc_ep_poll(pair[0].ep);
	ended_early = sc_comp_ring_peek(&pair[0].tx);
	return 0;
}

/* The get ends when nothing is written any more. */
static void test_get_of_the_given_up(void **state)
{
	static const struct route strict = { "", true, WAY_CMA };
	struct iovec iov = { into, 60000 };
	struct sc_remote remote;

	(void)state;
	if (!cma_allowed())
		skip();
	rma_open(&strict);
	remote = at(0, 60000);
	memset(into, 0x5a, 60000);
	assert_int_equal(post(&iov, 1, &remote, 1, 0), 0);
	given_up = false;
	sc_fault_hook = give_up_amid;
	ends_settle(&pair[1], 1);
	(void)core_failing(NULL, 0);
	assert_true(given_up);
	assert_false(ended_early);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, ENOMEM);
	assert_true(end_idle(&pair[0]));
	for (int i = 0; i < 60000; i++)
		assert_int_equal(into[i], 0x5a);
	assert_int_equal(pair[0].peer->rma.pending, 0);
	rma_close();
}

#endif

/* One that only asks, sends, and closes before it was ever answered: what it has sent arrives. */
static void test_asked_and_gone(void **state)
{
	static const struct route strict = { "", true, WAY_PULL };

	(void)state;
	for (int known = 0; known < 2; known++) {
		uint64_t old;
		struct iovec iov = { into, 8 }, op = { from, 8 }, res = { &old, 8 };
		struct sc_remote remote;
		struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
					    .type = SC_UINT8,
					    .code = SC_SUM,
					    .iov = &op,
					    .iov_count = 1,
					    .result = &res,
					    .result_count = 1,
					    .remote = &remote,
					    .remote_count = 1 };
		struct end gone;

		rma_open(&strict);
		end_open(&gone, NULL);
		gone.peer = end_find(&gone, &pair[1]);
		if (known) {
			assert_int_equal(sc_peer_connect(gone.peer), 0);
			ends_settle(&pair[1], 1);
		}
		remote = at(0, 8);
		assert_int_equal(sc_rma_post(gone.ep, gone.peer,
					     &(struct sc_rma){ .iov = &iov,
							       .iov_count = 1,
							       .remote = &remote,
							       .remote_count = 1 }),
				 0);
		assert_int_equal(sc_atomic_post(gone.ep, gone.peer, &atomic), 0);
		assert_int_equal(end_send(&gone, gone.peer, from, 8, 3, 0), 0);
		end_close(&gone);
		ends_settle(&pair[1], 1);
		assert_int_equal(end_recv(&pair[1], NULL, into, 8, 3, 0), 0);
		ends_settle(&pair[1], 1);
		assert_int_equal(comp_take(&pair[1].rx).len, 8);
		assert_int_equal(pair[1].ep->counters.quarantines, 0);
		expect_idle();
		rma_close();
	}
}

/* An initiator closes before the owner has copied its put: the owner copies nothing from it. */
static void test_put_of_the_closed(void **state)
{
	static const struct route strict = { "", true, WAY_CMA };
	static uint8_t out[60000];
	struct iovec iov = { out, sizeof(out) };
	struct sc_remote remote;

	(void)state;
	if (!cma_allowed())
		skip();
	rma_open(&strict);
	remote = at(0, sizeof(out));
	assert_int_equal(post(&iov, 1, &remote, 1, SC_RMA_WRITE), 0);
	end_close(&pair[0]);
	memset(out, 0xee, sizeof(out));
	ends_settle(&pair[1], 1);
	assert_true(is_untouched(0, 0));
	assert_int_equal(pair[1].ep->counters.quarantines, 0);
	rma_close();
}

/* The owner of registered memory in the middle of writing what a get has asked for. */
static void *write_for_a_get(void *word)
{
	struct timespec some = { .tv_nsec = 20000000 };

	nanosleep(&some, NULL);
	memset(into, 0x11, 100);
	sc_store_release_64(word, 0);
	return NULL;
}

/* The endpoint that has asked for it does not end, and give its memory back, before that is over. */
static void test_memory_of_a_get(void **state)
{
	static const struct route strict = { "", true, WAY_CMA };
	struct sc_abi_hazards *hazards;
	pthread_t thread;

	(void)state;
	if (!cma_allowed())
		skip();
	rma_open(&strict);
	assert_int_equal(run(into, at(0, 40000), 0).err, 0); /* too large to be offered */
	hazards = &sc_seg_slot(pair[1].peer->seg, pair[1].peer->out_slot)->hazards;
	assert_int_equal(pair[1].peer->rma.hazard_count, 1); /* the word has been used */
	assert_int_equal(hazards->words[0], 0);
	sc_store_release_64(&hazards->words[0], 2ull << 32 | SC_ABI_HAZARD_OP);
	clock_stop();
	assert_int_equal(pthread_create(&thread, NULL, write_for_a_get, &hazards->words[0]), 0);
	end_close(&pair[0]);
	clock_go_on();
	memset(into, 0xee, 100);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(into[0], 0xee);
	rma_close();
}

/* ---- other processes -------------------------------------------------------------------------- */

static void config_no_cma(struct sc_config *config)
{
	config->cma = false;
}

/* Operations between two processes: the owner is strict or not, and each process may copy from the other or not. */
static void test_processes(void **state)
{
	(void)state;
	for (int variant = 0; variant < 8; variant++) {
		struct far far = { .strict = variant & 1, .cma = variant & 2 };
		struct route route = { "", false, WAY_LOCAL };
		struct child child;
		struct sc_peer *peer;

		if (!far.strict && !(variant & 4))
			continue; /* through bounce buffers the owner has to poll */
		adjust = variant & 4 ? NULL : config_no_cma;
		rma_open(&route);
		adjust = NULL;
		owner_start(&child, &far, &peer);
		for (size_t i = 0; i < SIZES; i++) {
			memset(into, 0, sizes[i]);
			assert_int_equal(run_far(peer, &far, from, sizes[i], SC_RMA_WRITE).err, 0);
			assert_int_equal(run_far(peer, &far, into, sizes[i], 0).err, 0);
			assert_memory_equal(into, from, sizes[i]);
		}
		assert_int_equal(run_far(peer, &far, into, SPACE + 1, 0).err, EINVAL);
		far.key ^= 1ULL << 62;
		assert_int_equal(run_far(peer, &far, into, 8, 0).err, EKEYREJECTED);
		assert_int_equal(child_end(&child), 0);
		rma_close();
	}
}

/* The owner is killed: an operation that is posted after that fails. */
static void test_owner_killed(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (int known = 0; known < 2; known++) {
		struct far far = { .strict = false, .cma = true };
		struct iovec iov = { into, 1000 };
		struct sc_remote remote = { 0, 1000, 0 };
		struct sc_rma rma = { .iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1 };
		struct child child;
		struct sc_peer *peer;
		int ret;

		rma_open(&routes[0]);
		owner_start(&child, &far, &peer);
		if (known)
			assert_int_equal(run_far(peer, &far, from, 1000, SC_RMA_WRITE).err, 0);
		child_kill(&child);
		remote.key = far.key;
		ret = sc_rma_post(pair[0].ep, peer, &rma);
		if (!known) {
			assert_int_equal(ret, -ECONNREFUSED);
		} else if (ret) { /* a process that has a daemon may have proven the death by now */
			assert_int_equal(ret, -ECONNRESET);
		} else {
			assert_int_equal(wait_comp().err, ECONNRESET);
			assert_int_equal(peer->link, SC_LINK_DOWN);
		}
		expect_idle();
		rma_close();
	}
}

/* The owner is killed with operations under way: all of them end once the initiator looks at the owner. */
static void test_killed_under_way(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (uint32_t flags = 0; flags <= SC_RMA_WRITE; flags += SC_RMA_WRITE) {
		struct far far = { .strict = true, .cma = true };
		struct child child;
		struct sc_peer *peer;
		struct iovec iov = { into, SPACE };
		struct sc_remote remote;
		struct sc_rma rma = { .iov = &iov, .iov_count = 1, .remote = &remote, .remote_count = 1 };

		rma_open(&routes[0]);
		owner_start(&child, &far, &peer);
		assert_int_equal(run_far(peer, &far, from, SPACE, SC_RMA_WRITE).err, 0);
		assert_int_equal(kill(child.pid, SIGSTOP), 0);
		remote = (struct sc_remote){ 0, SPACE, far.key };
		rma.flags = flags;
		for (int i = 0; i < 50; i++)
			assert_int_equal(sc_rma_post(pair[0].ep, peer, &rma), 0);
		child_kill(&child);
		sc_peer_ended(peer); /* as each part of the core does that notices the death */
		for (int i = 0; i < 50; i++) {
			struct sc_comp comp = wait_comp();

			assert_true(!comp.err || comp.err == ECONNRESET);
		}
		assert_int_equal(peer->link, SC_LINK_DOWN);
		expect_idle();
		rma_close();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_write_behind_parts),
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_remote_data),
		cmocka_unit_test(test_remote_data_in_parts),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_closed_at_the_fence),
		cmocka_unit_test(test_injected_and_silent),
		cmocka_unit_test(test_injected_requests),
		cmocka_unit_test(test_injected_and_counted),
		cmocka_unit_test(test_injected_in_few_buffers),
		cmocka_unit_test(test_injected_behind_others),
		cmocka_unit_test(test_unmapped),
		cmocka_unit_test(test_refused_calls),
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_atomics_at_once),
		cmocka_unit_test(test_many_atomics),
		cmocka_unit_test(test_behind_atomics),
		cmocka_unit_test(test_atomics_without_space),
		cmocka_unit_test(test_atomics_to_one_gone_mad),
		cmocka_unit_test(test_counted_once),
		cmocka_unit_test(test_counted_apart),
		cmocka_unit_test(test_flags_of_reads),
		cmocka_unit_test(test_data_pushed_back),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_fence_behind_messages),
		cmocka_unit_test(test_behind_unfinished),
		cmocka_unit_test(test_order_of_puts_made_again),
		cmocka_unit_test(test_proof_of_a_get),
		cmocka_unit_test(test_first_large_put_fails),
		cmocka_unit_test(test_answers_in_order),
		cmocka_unit_test(test_both_full),
		cmocka_unit_test(test_impossible_head),
		cmocka_unit_test(test_never_read),
		cmocka_unit_test(test_least_buffers),
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_peek_makes_progress),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_closed_under_way),
		cmocka_unit_test(test_last_words),
#ifdef SC_FAULT_INJECTION
		cmocka_unit_test(test_last_words_amid),
		cmocka_unit_test(test_get_of_the_given_up),
#endif
		cmocka_unit_test(test_asked_and_gone),
		cmocka_unit_test(test_put_of_the_closed),
		cmocka_unit_test(test_memory_of_a_get),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_owner_killed),
		cmocka_unit_test(test_killed_under_way),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests_name("rma", tests, setup, NULL);
}
