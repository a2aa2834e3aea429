/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_reach: memory that CMA does not reach, because only its own process can read and write it (special.h), and
 * memory that is not there at all. Each operation on the first succeeds, on each side; for the second the error tells
 * which side's memory it is.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rma_pair.h"
#include "ep/rx.h"
#include "special.h"

#define BEHIND 4096 /* bytes of a vector's last element */

static uint8_t into[SPACE];

/* ---- whose memory it is ---------------------------------------------------------------------- */

/* Each is one or the other side's, or both's. */
enum side { SENDER = 1, RECEIVER = 2, BOTH = 3 };

/* The bytes of an operation on one side: special, or not; in one element, or with a last one that is ordinary. */
static size_t place(struct iovec iov[2], uint8_t *special, uint8_t *ordinary, size_t size, bool mixed)
{
	iov[0] = (struct iovec){ special ? special : ordinary, mixed ? size - BEHIND : size };
	iov[1] = (struct iovec){ ordinary + size - BEHIND, BEHIND };
	return mixed ? 2 : 1;
}

static void scatter(const struct iovec *iov, size_t count, const uint8_t *bytes, size_t size)
{
	sc_iov_write(iov, count, 0, bytes, size);
}

static bool holds(const struct iovec *iov, size_t count, const uint8_t *bytes, size_t size)
{
	static uint8_t flat[SPACE];

	sc_iov_read(iov, count, flat, size);
	return !memcmp(flat, bytes, size);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void messages_open(enum way way, size_t share_min)
{
	struct sc_ep_attr attr = end_attr();

	attr.config.share_min = share_min;
	pair_open(pair, &attr, way);
}

static void message(uint8_t *special, enum side side, size_t size, bool mixed, uint32_t flags)
{
	static uint8_t ordinary[2][SPACE];
	struct iovec out[2], in[2];
	size_t out_count = place(out, side & SENDER ? special : NULL, ordinary[0], size, mixed);
	size_t in_count = place(in, side & RECEIVER ? special + SPACE : NULL, ordinary[1], size, mixed);

	scatter(out, out_count, from, size);
	memset(in[0].iov_base, 0, in[0].iov_len);
	assert_int_equal(end_recvv(&pair[1], NULL, in, in_count, 5, 0, 0, into), 0);
	assert_int_equal(end_sendv(&pair[0], pair[0].peer, out, out_count, 5, flags, from), 0);
	if (flags & SC_SEND_INJECT)
		memset(out[0].iov_base, 0, out[0].iov_len);
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, size);
	expect_received(&pair[1], pair[1].peer, into, size, 5);
	assert_true(holds(in, in_count, from, size));
}

static void all_messages(uint8_t *special, size_t share_min)
{
	static const size_t sizes[] = { 1, 5000, 16384, 60000, 100000, 524288, 600000 };

	for (enum side side = SENDER; side <= BOTH; side++) {
		messages_open(WAY_CMA, share_min);
		for (int mixed = 0; mixed < 2; mixed++)
			for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
				if (!mixed || sizes[i] > BEHIND)
					message(special, side, sizes[i], mixed, 0);
		message(special, side, 4096, false, SC_SEND_INJECT);
		assert_true(pair[1].ep->counters.rx_pulled_bytes > 0 || side == RECEIVER);
		assert_true(special_failures > 0 || side == RECEIVER);
		/* nothing is concluded for other memory */
		assert_true(pair[1].peer->can_read == SC_REACH_YES &&
			    pair[0].peer->rma.fetch != SC_FETCH_NO);
		assert_false(pair[0].peer->writes_fail || pair[1].peer->xfer.copies_not);
		pair_close(pair);
	}
}

static void test_messages(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (enum special_kind kind = 0; kind < SPECIAL_KINDS; kind++) {
		uint8_t *special = special_map(kind, (size_t)2 * SPACE);

		if (special == MAP_FAILED)
			continue;
		all_messages(special, SIZE_MAX); /* copied by the receiver */
		all_messages(special, 40000);	 /* by both */
		special_unmap(special, (size_t)2 * SPACE);
	}
}

/* Several are on their way, special and not, copied in one call where they can be. */
static void several(uint8_t *special, size_t share_min)
{
	static uint8_t to[6][50000];

	messages_open(WAY_CMA, share_min);
	memcpy(special, from, 50000);
	memset(to, 0, sizeof(to));
	for (int i = 0; i < 6; i++)
		assert_int_equal(end_send(&pair[0], pair[0].peer, i % 2 ? special : from, 50000, (uint64_t)i, 0), 0);
	ends_settle(pair, 2);
	for (int i = 0; i < 6; i++)
		assert_int_equal(end_recv(&pair[1], NULL, to[i], 50000, (uint64_t)i, 0), 0);
	ends_settle(pair, 2);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
		assert_memory_equal(to[i], from, 50000);
	}
	assert_int_equal(pair[1].ep->counters.rx_pulled_bytes, 150000);
	pair_close(pair);
}

static void test_several(void **state)
{
	uint8_t *special = special_map(SPECIAL_REFUSED, SPACE);

	(void)state;
	if (!cma_allowed())
		skip();
	several(special, SIZE_MAX);
	several(special, 40000);
	special_unmap(special, SPACE);
}

/* ---- memory that is not there ----------------------------------------------------------------- */

/* Why an access fails. */
enum lack { NO_MAPPING, NO_ACCESS, NO_WRITING, LACKS };

static uint8_t *lacking(enum lack lack, size_t size)
{
	uint8_t *mapped;

	if (lack == NO_MAPPING)
		return (uint8_t *)0x10000; /* the kernel maps nothing there unless a process asks for this address */
	mapped = mmap(NULL, size, lack == NO_WRITING ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(mapped, MAP_FAILED);
	return mapped;
}

static void lacking_end(uint8_t *mapped, enum lack lack, size_t size)
{
	if (lack != NO_MAPPING)
		munmap(mapped, size);
}

/* A message with these buffers fails on both sides with the same error. */
static void blamed(const uint8_t *out, uint8_t *in, size_t size, int err)
{
	struct sc_comp comp;

	assert_int_equal(end_recv(&pair[1], NULL, in, size, 1, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, out, size, 1, 0), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, err);
	comp = comp_take(&pair[1].rx);
	assert_int_equal(comp.err, err);
	assert_int_equal(comp.len, 0);
	/* the next message succeeds */
	memset(into, 0, size);
	assert_int_equal(end_recv(&pair[1], NULL, into, size, 2, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, size, 2, 0), 0);
	ends_settle(pair, 2);
	expect_sent(&pair[0], from, size);
	expect_received(&pair[1], pair[1].peer, into, size, 2);
	assert_memory_equal(into, from, size);
	assert_int_equal(pair[0].ep->counters.quarantines + pair[1].ep->counters.quarantines, 0);
}

/* By CMA, copied by the receiver or by both; in pieces; inside the process. */
static void test_blamed_messages(void **state)
{
	static const size_t size = 600000;

	(void)state;
	for (int way = 0; way < WAYS; way++)
		for (int shares = 0; shares < (way == WAY_CMA ? 2 : 1); shares++)
			for (int lack = 0; lack < LACKS; lack++) {
				uint8_t *none = lacking((enum lack)lack, size);

				if (!cma_allowed())
					skip();
				messages_open((enum way)way, shares ? 40000 : SIZE_MAX);
				if (lack != NO_WRITING)
					blamed(none, into, size, EFAULT);
				blamed(from, none, size, SC_EFAULT_RECEIVER);
				if (lack != NO_WRITING) /* of two the receiver looks at its own */
					blamed(none, none, size, SC_EFAULT_RECEIVER);
				pair_close(pair);
				lacking_end(none, (enum lack)lack, size);
			}
}

/* A page in the midst of it is not there; and the kernel has said so, or would have. */
static void test_blamed_hole(void **state)
{
	size_t size = 600000, page = (size_t)getpagesize();

	(void)state;
	if (!cma_allowed())
		skip();
	for (int shares = 0; shares < 2; shares++) {
		uint8_t *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		memset(mapped, 0, size);
		assert_return_code(mprotect(mapped + 40 * page, page, PROT_NONE), errno);
		messages_open(WAY_CMA, shares ? 40000 : SIZE_MAX);
		blamed(mapped, into, size, EFAULT);
		blamed(from, mapped, size, SC_EFAULT_RECEIVER);
		pair_close(pair);
		munmap(mapped, size);
	}
}

/* Special memory that is not there any more, or not to be written to. */
static void test_blamed_special(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (enum special_kind kind = 0; kind < SPECIAL_KINDS; kind++) {
		uint8_t *special = special_map(kind, SPACE);

		if (special == MAP_FAILED)
			continue;
		messages_open(WAY_CMA, 40000);
		memset(special, 7, SPACE);
		assert_return_code(mprotect(special, SPACE, PROT_READ), errno);
		blamed(from, special, SPACE, SC_EFAULT_RECEIVER);
		assert_return_code(mprotect(special + 20 * 4096, 4096, PROT_NONE), errno);
		blamed(special, into, SPACE, EFAULT);
		pair_close(pair);
		special_unmap(special, SPACE);
	}
}

/* ---- one-sided -------------------------------------------------------------------------------- */

static struct sc_reg *special_reg;
static uint8_t *target; /* the memory of special_reg */

static void target_open(const struct route *route, uint8_t *memory)
{
	rma_open(route);
	target = memory;
	special_reg = reg_open(tab[1], memory, SPACE, SC_REG_READ | SC_REG_WRITE);
}

static void target_close(void)
{
	expect_idle();
	assert_int_equal(sc_reg_close(special_reg), 0);
	rma_close();
}

static struct sc_remote of_target(size_t size)
{
	return (struct sc_remote){ 0, size, sc_reg_key(special_reg) };
}

static void put_and_get(uint8_t *local, size_t size)
{
	memcpy(local, from, size);
	memset(target, 0, size);
	assert_int_equal(run(local, of_target(size), SC_RMA_WRITE).err, 0);
	assert_memory_equal(target, from, size);
	memset(local, 0, size);
	assert_int_equal(run(local, of_target(size), 0).err, 0);
	assert_memory_equal(local, from, size);
}

static void put_injected(uint8_t *local)
{
	memcpy(local, from, 300);
	memset(target, 0, 300);
	assert_int_equal(run(local, of_target(300), SC_RMA_WRITE | SC_SEND_INJECT).err, 0);
	assert_memory_equal(target, from, 300);
}

/* A stream of them, put off and copied together otherwise. */
static void put_many(uint8_t *local)
{
	memcpy(local, from, 64 * 1000);
	memset(target, 0, 64 * 1000);
	for (size_t i = 0; i < 64; i++) {
		struct iovec iov = { local + i * 1000, 1000 };
		struct sc_remote remote = { i * 1000, 1000, sc_reg_key(special_reg) };
		int ret;

		while ((ret = post(&iov, 1, &remote, 1, SC_RMA_WRITE)) == -EAGAIN)
			ends_settle(pair, 2);
		assert_int_equal(ret, 0);
	}
	ends_settle(pair, 2);
	for (int i = 0; i < 64; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_memory_equal(target, from, 64 * 1000);
}

/* Operands, results and what it is done to, all of them special. */
static void fetch_and_add(uint64_t *local)
{
	struct iovec operand = { local, 16 }, result = { local + 2, 16 };
	struct sc_remote remote = { 4088, 16, sc_reg_key(special_reg) }; /* in two pages */
	struct sc_atomic atomic = { .kind = SC_ATOMIC_FETCH,
				    .type = SC_UINT64,
				    .code = SC_SUM,
				    .iov = &operand,
				    .iov_count = 1,
				    .result = &result,
				    .result_count = 1,
				    .remote = &remote,
				    .remote_count = 1 };
	uint64_t *words = (uint64_t *)(uintptr_t)(target + 4088);

	words[0] = words[1] = 40;
	local[0] = local[1] = 2;
	local[2] = local[3] = 0;
	assert_int_equal(sc_atomic_post(pair[0].ep, pair[0].peer, &atomic), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_true(local[2] == 40 && local[3] == 40);
	assert_true(words[0] == 42 && words[1] == 42);
}

static void one_sided(const struct route *route, uint8_t *special, enum side side)
{
	static uint8_t ordinary[2][SPACE];
	static const size_t sizes[] = { 8, 3000, 20000, 100000, SPACE };
	uint8_t *local = side & SENDER ? special : ordinary[0];

	target_open(route, side & RECEIVER ? special + SPACE : ordinary[1]);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int again = 0; again < 2; again++)
			put_and_get(local, sizes[i]);
	put_injected(local);
	put_many(local);
	fetch_and_add((uint64_t *)(uintptr_t)local);
	assert_int_equal(pair[0].peer->can_read, route->way != WAY_PULL);
	assert_int_equal(pair[1].peer->can_read, route->way != WAY_PULL);
	/* other memory goes as ever */
	assert_int_equal(run(from, at(0, SPACE), SC_RMA_WRITE).err, 0);
	assert_memory_equal(space, from, SPACE);
	if (route->way == WAY_CMA && !route->strict)
		assert_true(pair[0].ep->counters.rma_direct_bytes >= SPACE);
	target_close();
}

static void test_one_sided(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (enum special_kind kind = 0; kind < SPECIAL_KINDS; kind++) {
		uint8_t *special = special_map(kind, (size_t)2 * SPACE);

		if (special == MAP_FAILED)
			continue;
		for (size_t r = 0; r < ROUTES; r++)
			for (enum side side = SENDER; side <= BOTH; side++)
				one_sided(&routes[r], special, side);
		special_unmap(special, (size_t)2 * SPACE);
	}
}

/* The initiator tries CMA only once on a registration that CMA does not reach. */
static void test_tried_once(void **state)
{
	uint8_t *special = special_map(SPECIAL_REFUSED, SPACE);

	(void)state;
	if (!cma_allowed())
		skip();
	target_open(&routes[1], special);
	for (int i = 0; i < 5; i++)
		assert_int_equal(run(from, of_target(SPACE), SC_RMA_WRITE).err, 0);
	assert_int_equal(special_failures, 1);
	target_close();
	special_unmap(special, SPACE);
}

/* -EAGAIN is no fault: the daemon's thread may just be doing a delegated put. */
static void post_put(const struct iovec *iov, const struct sc_remote *remote)
{
	int ret;

	while ((ret = post(iov, 1, remote, 1, SC_RMA_WRITE)) == -EAGAIN)
		(void)sc_ep_poll(pair[0].ep);
	assert_int_equal(ret, 0);
}

/* Puts to other memory, one of them `flags`, come after those of a target that does not poll, whatever their way. */
static void other_memory_behind(uint8_t *special, size_t size, int stream, uint32_t flags)
{
	struct iovec iov = { from, size }, early = { from, 5000 };
	struct sc_remote to_early, remote;
	int puts = 2;

	target_open(&routes[1], special);
	memset(space, 0xa5, SPACE);
	memset(special, 0xa5, SPACE);
	to_early = at(SPACE - 5000, 5000);
	for (int i = 0; i < stream; i++)
		post_put(&early, &to_early);
	remote = of_target(size);
	post_put(&iov, &remote);
	remote = at(0, size);
	post_put(&iov, &remote);
	puts += !post(&iov, 1, &remote, 1, SC_RMA_WRITE | flags);
	for (int polls = 0; polls < 1000; polls++)
		(void)sc_ep_poll(pair[0].ep);
	assert_true(special[0] == 0xa5 && is_untouched(SPACE - 5000, 5000));
	ends_settle(pair, 2);
	for (int i = 0; i < stream + puts; i++)
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_memory_equal(special, from, size);
	assert_memory_equal(space, from, size);
	target_close();
}

static void test_other_memory_behind(void **state)
{
	static const size_t sizes[] = { 8, 3000, 20000, 60000, 300000 };
	uint8_t *special = special_map(SPECIAL_REFUSED, SPACE);

	(void)state;
	if (!cma_allowed())
		skip();
	uncounted = true;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int stream = 0; stream <= 8; stream += 4) {
			other_memory_behind(special, sizes[i], stream, 0);
			if (sizes[i] <= SC_INJECT_MAX)
				other_memory_behind(special, sizes[i], stream, SC_SEND_INJECT);
		}
	uncounted = false;
	special_unmap(special, SPACE);
}

/* An access to memory that is not there fails, a direct one without a poll of the target. The error names the side. */
static void test_blamed_one_sided(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	for (size_t r = 0; r < ROUTES; r++)
		for (int lack = 0; lack < LACKS; lack++)
			for (int write = 0; write < 2; write++) {
				uint8_t *none = lacking((enum lack)lack, SPACE);
				uint32_t flags = write ? SC_RMA_WRITE : 0;
				bool polls = routes[r].strict || routes[r].way == WAY_PULL;
				struct iovec iov = { write ? from : into, SPACE };
				struct sc_remote remote;

				target_open(&routes[r], none);
				remote = of_target(SPACE);
				if (write || lack != NO_WRITING) {
					assert_int_equal(post(&iov, 1, &remote, 1, flags), 0);
					if (polls)
						ends_settle(pair, 2);
					assert_int_equal(comp_take(&pair[0].tx).err, EIO);
				}
				/* inside the process, a plain copy faults as in any other code */
				if (routes[r].way != WAY_LOCAL && (!write || lack != NO_WRITING)) {
					struct sc_comp comp = run(none, at(0, SPACE), flags);

					assert_int_equal(comp.err, SC_EIO_INITIATOR);
					assert_int_equal(comp.olen, 0);
					assert_true(is_untouched(0, 0));
				}
				memset(into, 0, sizeof(into));
				assert_int_equal(run(from, at(0, SPACE), SC_RMA_WRITE).err, 0);
				assert_int_equal(run(into, at(0, SPACE), 0).err, 0);
				assert_memory_equal(into, from, SPACE);
				target_close();
				lacking_end(none, (enum lack)lack, SPACE);
			}
}

static int reach_setup(void **state)
{
	return setup(state);
}

/* Both errors that say that the kernel forbids the call are a warning, the first time; others say nothing of all peers. */
static void warn_once(struct child *self, void *arg)
{
	const int *err = arg;

	(void)self;
	CHILD_CHECK(sc_peer_cma_level(-ESRCH) == SC_LOG_INFO);
	CHILD_CHECK(sc_peer_cma_level(*err) == SC_LOG_WARN);
	CHILD_CHECK(sc_peer_cma_level(*err) == SC_LOG_INFO);
}

static void test_warned_once(void **state)
{
	static const int errors[] = { -EPERM, -ENOSYS };

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		assert_int_equal(child_run(warn_once, (void *)&errors[i]), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_warned_once), /* before this process has warned */
		cmocka_unit_test(test_messages),	 cmocka_unit_test(test_several),
		cmocka_unit_test(test_blamed_messages),	 cmocka_unit_test(test_blamed_hole),
		cmocka_unit_test(test_blamed_special),	 cmocka_unit_test(test_one_sided),
		cmocka_unit_test(test_tried_once),	 cmocka_unit_test(test_other_memory_behind),
		cmocka_unit_test(test_blamed_one_sided),
	};

	return cmocka_run_group_tests_name("reach", tests, reach_setup, NULL);
}
