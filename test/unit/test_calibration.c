/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_calibration: the file that keeps the costs of this machine: which contents are believed, which process writes
 * it, and which ways endpoints choose by it. The figures are made up.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "proc/calibration.h"
#include "command.h"
#include "child.h"
#include "core_test.h"
#include "shm/fill.h"
#include "proc/reap.h"
#include "rma_pair.h"

static bool alone; /* with a /dev/shm of our own */
static char path[SC_CALIBRATION_PATH_MAX];
static const struct sc_calibration usual = { .cma_start = 1700,
					     .cma_per_kib = 80,
					     .near_per_kib = 50,
					     .far_per_kib = 150,
					     .time = 1234567890,
					     .rounds = SC_CALIBRATION_ROUNDS };

/* FNV-1a of all but the checksum itself. */
static void sign(struct sc_abi_calibration *file)
{
	const uint8_t *bytes = (const uint8_t *)file;

	file->checksum = 0xcbf29ce484222325u;
	for (size_t i = 0; i < offsetof(struct sc_abi_calibration, checksum); i++)
		file->checksum = (file->checksum ^ bytes[i]) * 0x100000001b3u;
}

static struct sc_abi_calibration formatted(void)
{
	struct sc_abi_calibration file;

	assert_int_equal(sc_calibration_format(&usual, &file), 0);
	return file;
}

static void is_usual(const struct sc_calibration *calibration)
{
	assert_int_equal(calibration->cma_start, usual.cma_start);
	assert_int_equal(calibration->cma_per_kib, usual.cma_per_kib);
	assert_int_equal(calibration->near_per_kib, usual.near_per_kib);
	assert_int_equal(calibration->far_per_kib, usual.far_per_kib);
	assert_int_equal(calibration->time, usual.time);
	assert_int_equal(calibration->rounds, usual.rounds);
}

/* Can it be measured here? */
static bool can_measure(void)
{
	struct sc_fill fill;

	sc_fill_init(&fill, SC_FILL_STREAMED);
	return alone && cma_allowed() && fill.way == SC_FILL_STREAMED;
}

/* ---- the bytes ------------------------------------------------------------------------------- */

static void test_format_and_parse(void **state)
{
	struct sc_abi_calibration file = formatted(), same = file;
	struct sc_calibration calibration;

	(void)state;
	assert_int_equal(sc_calibration_parse(&file, &calibration), 0);
	is_usual(&calibration);
	sign(&same);
	assert_int_equal(same.checksum, file.checksum);
	for (size_t bit = 0; bit < 8 * sizeof(file); bit++) {
		file = formatted();
		((uint8_t *)&file)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(sc_calibration_parse(&file, &calibration), -EPROTO);
	}
}

/* Well formed, and yet not for here. */
static void test_parse_other(void **state)
{
	static const struct sc_calibration strange[] = {
		{ 0, 80, 50, 150, 0, 1 },
		{ 19, 80, 50, 150, 0, 1 },
		{ 100001, 80, 50, 150, 0, 1 },
		{ UINT32_MAX, 80, 50, 150, 0, 1 },
		{ 1700, 0, 50, 150, 0, 1 },
		{ 1700, 10001, 50, 150, 0, 1 },
		{ 1700, UINT32_MAX, 50, 150, 0, 1 },
		{ 1700, 80, 0, 150, 0, 1 },
		{ 1700, 80, 50, 0, 0, 1 },
		{ 1700, 80, 50, 10001, 0, 1 },
		{ 1700, 80, 151, 150, 0, 1 },
		{ 1700, 80, UINT32_MAX, UINT32_MAX, 0, 1 },
	};
	struct sc_calibration calibration;
	struct sc_abi_calibration file = formatted();

	(void)state;
	file.boot_id[1]++;
	sign(&file);
	assert_int_equal(sc_calibration_parse(&file, &calibration), -ESTALE);
	file = formatted();
	file.machine++;
	sign(&file);
	assert_int_equal(sc_calibration_parse(&file, &calibration), -ESTALE);
	file = formatted();
	file.magic++;
	sign(&file);
	assert_int_equal(sc_calibration_parse(&file, &calibration), -EPROTO);
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		file = formatted();
		file.cma_start = strange[i].cma_start;
		file.cma_per_kib = strange[i].cma_per_kib;
		file.near_per_kib = strange[i].near_per_kib;
		file.far_per_kib = strange[i].far_per_kib;
		sign(&file);
		assert_int_equal(sc_calibration_parse(&file, &calibration), -EPROTO);
		assert_int_equal(sc_calibration_format(&strange[i], &file), -ERANGE);
		assert_int_equal(sc_calibration_store(&strange[i]), -ERANGE);
	}
}

static void test_judge(void **state)
{
	static const struct sc_calibration_times strange[] = {
		{ 0, 5000, 800, 2400 },		{ -5, 5000, 800, 2400 },
		{ 2000, 2000, 800, 2400 },	{ 2000, 1999, 800, 2400 },
		{ 2000, 2059, 800, 2400 },	{ 4, 60004, 800, 2400 },
		{ 2000, INT64_MAX, 800, 2400 }, { INT64_MIN, 1, 800, 2400 },
		{ 2000, 1000000, 800, 2400 },	{ 2000, 6800, 0, 2400 },
		{ 2000, 6800, 800, 0 },		{ 2000, 6800, -1, 2400 },
		{ 2000, 6800, 800, INT64_MAX }, { 2000, 6800, INT64_MIN, 2400 },
	};
	struct sc_calibration calibration;

	(void)state;
	assert_int_equal(sc_calibration_judge(&(struct sc_calibration_times){ 2000, 6800, 800, 2400 },
					      &calibration),
			 0);
	assert_int_equal(calibration.cma_per_kib, 80);
	assert_int_equal(calibration.cma_start, 2000 - 4 * 80);
	assert_int_equal(calibration.near_per_kib, 50);
	assert_int_equal(calibration.far_per_kib, 150);
	/* the range, whichever of the two is the dearer one */
	assert_int_equal(sc_calibration_judge(&(struct sc_calibration_times){ 2000, 6800, 2400, 800 },
					      &calibration),
			 0);
	assert_int_equal(calibration.near_per_kib, 50);
	assert_int_equal(calibration.far_per_kib, 150);
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
		assert_int_equal(sc_calibration_judge(&strange[i], &calibration), -ERANGE);
}

/* ---- what follows ---------------------------------------------------------------------------- */

static uint32_t eager(uint32_t start, uint32_t cma, uint32_t near, uint32_t far)
{
	const struct sc_calibration calibration = { start, cma, near, far, 0, 1 };
	struct sc_config config;
	uint32_t least, most;

	sc_config_init(&config);
	sc_calibration_limits(&calibration, &least, &most);
	assert_true(least >= 8192 && least <= most && most <= 65536);
	assert_int_equal(least % 4096 + most % 4096, 0);
	sc_calibration_apply(&calibration, &config);
	assert_true(config.eager_max >= least && config.eager_max <= most);
	return config.eager_max;
}

static void test_eager(void **state)
{
	struct sc_config config;

	(void)state;
	/* between: where the two processes run decides, so it stays as usual */
	assert_int_equal(eager(1700, 80, 50, 150), 32768);
	assert_int_equal(eager(1300, 69, 26, 120), 32768);
	/* a rendezvous is dear: 4.6 us, and what streams takes 110 ns a KiB more than half of a copy */
	assert_int_equal(eager(4600, 80, 50, 150), 40960);
	assert_int_equal(eager(50000, 80, 50, 150), 65536);
	assert_int_equal(eager(1700, 400, 50, 150), 65536);
	/* a rendezvous is cheap: 1.7 us and 1 for its records, and plain copies, at the same time, take
	 * 150 ns a KiB more than its one */
	assert_int_equal(eager(1700, 50, 400, 500), 16384);
	assert_int_equal(eager(20, 1, 10000, 10000), 8192);
	/* bounce buffers that are not filled the best way */
	for (unsigned int way = 0; way < SC_FILL_WAYS; way++) {
		sc_config_init(&config);
		config.fill = (enum sc_fill_way)way;
		sc_calibration_apply(&(struct sc_calibration){ 50000, 80, 50, 150, 0, 1 }, &config);
		assert_int_equal(config.eager_max, 32768);
	}
}

static void test_cma_ns(void **state)
{
	(void)state;
	if (!alone)
		skip();
	/* nothing is known before it is kept, or read */
	assert_int_equal(sc_calibration_cma_ns(1, 1, 1), 0);
	assert_int_equal(sc_calibration_store(&usual), 0);
	/* 1.7 us, and 80 ns for each KiB */
	assert_int_equal(sc_calibration_cma_ns(16384, 1, 1), 1700 + 16 * 80);
	/* 160 ns for each fragment more */
	assert_int_equal(sc_calibration_cma_ns(16384, 8, 1), 1700 + 16 * 80 + 7 * 160);
	/* 16 in a call, and 4 of two fragments */
	assert_int_equal(sc_calibration_cma_ns(16384, 1, 16), 106 + 16 * 80);
	assert_int_equal(sc_calibration_cma_ns(16384, 2, 4), 425 + 16 * 80 + 160);
	unlink(path);
}

/* Did it go through bounce buffers? */
static bool is_bounced(struct end pair[2], size_t size)
{
	static uint8_t from[32768], into[32768];
	uint64_t bounced = pair[0].ep->counters.tx_bounce;

	memset(into, 0, size);
	memset(from, (int)(size & 0xff) | 1, size);
	assert_int_equal(end_recv(&pair[1], NULL, into, size, 7, SC_TAGGED), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, size, 7, SC_TAGGED), 0);
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_int_equal(comp_take(&pair[1].rx).err, 0);
	assert_memory_equal(from, into, size);
	return pair[0].ep->counters.tx_bounce != bounced;
}

static void set_costs(struct sc_peer *peer, uint32_t writing, uint32_t reading)
{
	peer->bounce.fill.write_cost = writing;
	peer->bounce.fill.read_cost = reading;
	peer->bounce.fill.stream_cost = writing > reading ? writing : reading;
}

/* Opens two endpoints that know the costs of copies here, and may adapt to the costs that they find for the peer. */
static void adapting_pair_open(struct end pair[2], const struct sc_ep_attr *attr)
{
	if (!can_measure())
		skip();
	assert_int_equal(sc_calibration_store(&usual), 0);
	pair_open(pair, attr, WAY_CMA);
}

/* If bounce buffers cost more than CMA for this peer, a message goes through them only if it may be injected. */
static void test_adapts(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct end pair[2];

	(void)state;
	adapting_pair_open(pair, &attr);
	assert_true(is_bounced(pair, 32768)); /* the cost of buffers is not known */
	/*
	 * 4 buffers: 1.27 us for the first, 0.78 us, the time of the slower side, for each of the others. CMA: 1.9 us
	 * and 1.28 us; buffers may cost 1/8 more.
	 */
	set_costs(pair[0].peer, 120, 190);
	assert_true(is_bounced(pair, 8192));
	assert_false(is_bounced(pair, 16384));
	set_costs(pair[0].peer, 190, 120);
	assert_true(is_bounced(pair, 8192));
	assert_false(is_bounced(pair, 16384));
	set_costs(pair[0].peer, 150, 150);
	assert_true(is_bounced(pair, 16384));
	set_costs(pair[0].peer, 5000, 5000);
	assert_false(is_bounced(pair, SC_INJECT_MAX + 1));
	/* where processors are short, the receiver of a rendezvous may have none */
	pair[0].ep->config.crowd = SC_CROWD_ALWAYS;
	assert_true(is_bounced(pair, 32768));
	pair[0].ep->config.crowd = SC_CROWD_NEVER;
	set_costs(pair[0].peer, 5000, 5000);
	assert_true(is_bounced(pair, SC_INJECT_MAX)); /* an injected message would have to be copied anyway */
	/* a message by CMA counts as a fill, and a trial sends it through buffers */
	pair[0].peer->bounce.fill.left = 2;
	assert_false(is_bounced(pair, 32768));
	assert_true(is_bounced(pair, 32768));
	assert_true(pair[0].peer->bounce.fill.trying);
	for (int i = 0; pair[0].peer->bounce.fill.trying && i < 100; i++)
		assert_true(is_bounced(pair, 32768));
	assert_false(pair[0].peer->bounce.fill.trying);
	assert_in_range(pair[0].peer->bounce.fill.read_cost, 1, 4999);
	pair_close(pair);
	/* a peer that cannot copy by CMA, and says so */
	pair_open(pair, &attr, WAY_PULL);
	set_costs(pair[0].peer, 5000, 5000);
	assert_false(is_bounced(pair, 32768));
	assert_true(is_bounced(pair, 32768));
	pair_close(pair);
	/* a limit that is the user's */
	attr.config.eager_adapts = false;
	pair_open(pair, &attr, WAY_CMA);
	set_costs(pair[0].peer, 5000, 5000);
	assert_true(is_bounced(pair, 32768));
	pair_close(pair);
	unlink(path);
}

/* A put or get, `stream`: behind many without a poll between. */
static void post_one(bool put, void *into, size_t size, bool stream)
{
	struct iovec iov = { put ? from : into, size };
	struct sc_remote remote = at(0, size);

	if (stream)
		pair[0].peer->rma.burst = (struct sc_burst){ 100, pair[0].ep->polls };
	assert_int_equal(post(&iov, 1, &remote, 1, put ? SC_RMA_WRITE : 0), 0);
}

static void expect_moved(bool put, const void *into, size_t size)
{
	ends_settle(pair, 2);
	assert_int_equal(comp_take(&pair[0].tx).err, 0);
	assert_memory_equal(from, put ? space : into, size);
}

/* One by itself. */
static void move_one(bool put, size_t size, bool stream)
{
	static uint8_t into[SPACE];

	ends_settle(pair, 2);
	pair[0].peer->rma.burst = (struct sc_burst){ 0 };
	memset(put ? space : into, 0xa5, size);
	if (!put)
		memcpy(space, from, size);
	post_one(put, into, size, stream);
	expect_moved(put, into, size);
}

static bool is_offered(bool put, size_t size, bool stream)
{
	uint64_t before = pair[0].ep->counters.rma_delegated;

	move_one(put, size, stream);
	return pair[0].ep->counters.rma_delegated != before;
}

/* A put of 16 KiB, if buffers cost so much. */
static bool is_offered_at(uint32_t writing, uint32_t reading)
{
	set_costs(pair[0].peer, writing, reading);
	return is_offered(true, 16384, false);
}

/* A put that is small enough is not offered where that is slower for this peer; unless a trial needs it. */
static void test_adapts_offers(void **state)
{
	static uint8_t into[16384];
	struct sc_fill *fill;

	(void)state;
	if (!can_measure())
		skip();
	assert_int_equal(sc_calibration_store(&usual), 0);
	rma_open(&routes[1]);
	fill = &pair[0].peer->bounce.fill;
	fill->hastened = true; /* no trial meanwhile */
	fill->left = 1000;
	/* the costs of this peer are not known: puts through buffers measure them */
	assert_true(is_offered(true, 32768, false));
	/* 1.7 us and 1.28 by CMA; through buffers 0.3 and the bytes, twice */
	assert_true(is_offered_at(100, 63));
	assert_false(is_offered_at(63, 101));
	for (int put = 0; put < 2; put++) {
		/* no operation of a stream is offered, whatever buffers cost */
		set_costs(pair[0].peer, 1, 1);
		assert_true(is_offered(put, 4097, false));
		assert_false(is_offered(put, 4097, true));
		/* small ones are always offered, */
		set_costs(pair[0].peer, 5000, 5000);
		assert_true(is_offered(put, 4096, false));
		assert_true(is_offered(put, 4096, true));
		/* and a larger one behind a small one, since a direct copy would have to withdraw the small one */
		ends_settle(pair, 2);
		memcpy(space, from, sizeof(into));
		post_one(put, into, 8, false);
		post_one(put, into, sizeof(into), false);
		assert_int_equal(pair[0].peer->delegate.end - pair[0].peer->delegate.first, 2);
		expect_moved(put, into, 8);
		expect_moved(put, into, sizeof(into));
		/* unless the small one has ended */
		post_one(put, into, 8, false);
		ends_settle(&pair[1], 1);
		post_one(put, into, sizeof(into), false);
		assert_int_equal(pair[0].peer->delegate.end - pair[0].peer->delegate.first, 0);
		post_one(put, into, 8, false);
		assert_int_equal(pair[0].peer->delegate.end - pair[0].peer->delegate.first, 1);
		expect_moved(put, into, 8);
		expect_moved(put, into, sizeof(into));
		expect_moved(put, into, 8);
		expect_idle();
	}
	/* a direct put counts as a fill, and a trial offers it; a get does not */
	fill->left = 2;
	assert_false(is_offered(false, 32768, false));
	assert_int_equal(fill->left, 2);
	assert_false(is_offered(true, 32768, false));
	assert_true(is_offered(true, 32768, false));
	assert_true(fill->trying);
	rma_close();
	unlink(path);
}

/* So many puts without a poll between: how many of them are offered, from the first on? */
static int put_burst(int count)
{
	uint64_t before = pair[0].ep->counters.rma_delegated;
	int offered;

	ends_settle(pair, 2);
	for (int n = 0; n < count; n++)
		post_one(true, NULL, 8192, false);
	offered = (int)(pair[0].ep->counters.rma_delegated - before);
	for (int n = 0; n < count; n++)
		expect_moved(true, NULL, 8192);
	return offered;
}

/* The first ones of a stream, behind another one, are likely to be followed: they are not offered, nor are the others. */
static void test_expects_streams(void **state)
{
	(void)state;
	if (!can_measure())
		skip();
	assert_int_equal(sc_calibration_store(&usual), 0);
	rma_open(&routes[1]);
	pair[0].peer->bounce.fill.hastened = true; /* no trial meanwhile */
	pair[0].peer->bounce.fill.left = 1000;
	set_costs(pair[0].peer, 1, 1);
	assert_int_equal(put_burst(5), 5); /* nothing has said so, and what is offered is not taken back */
	assert_int_equal(put_burst(5), 0);
	assert_int_equal(put_burst(1), 0);
	assert_int_equal(put_burst(1), 1); /* behind one alone */
	assert_int_equal(put_burst(4), 4);
	assert_int_equal(put_burst(4), 4); /* too few */
	rma_close();
	unlink(path);
}

/* Is the target asked to assist, after copies have cost so many picoseconds a byte? 0: there were none. */
static uint32_t copies_have_cost;
static bool is_asked(bool put, size_t size, bool stream)
{
	uint32_t before = pair[0].peer->xfer.generation;

	pair[0].peer->rma.copy_cost = copies_have_cost;
	move_one(put, size, stream);
	return pair[0].peer->xfer.generation != before;
}

/* A target is asked where its half of the copy is worth it. */
static void test_adapts_assists(void **state)
{
	struct sc_calibration fast = usual;

	(void)state;
	if (!can_measure())
		skip();
	fast.cma_per_kib = 40;
	uncounted = true;
	rma_open(&routes[1]);
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_false(is_asked(true, 182000, false)); /* 15.9 us */
	assert_true(is_asked(true, 184000, false));
	assert_false(is_asked(false, 70000, false)); /* 7.2 us */
	assert_true(is_asked(false, 71000, false));
	assert_int_equal(sc_calibration_store(&fast), 0);
	assert_false(is_asked(true, 366000, false)); /* 16.0 us */
	assert_true(is_asked(true, 367000, false));
	assert_false(is_asked(false, 140000, false)); /* 7.2 us */
	assert_true(is_asked(false, 142000, false));
	/* of a stream several are copied in one call otherwise: here four, each in 0.4 us and 5.5 */
	assert_false(is_asked(false, 142000, true));
	assert_true(is_asked(false, 200000, true));
	/* copies have taken longer than the calibration tells */
	copies_have_cost = 109;
	assert_false(is_asked(true, 146000, false)); /* 15.9 us */
	assert_true(is_asked(true, 147000, false));
	copies_have_cost = 1;
	assert_false(is_asked(true, 366000, false)); /* never less than the calibration tells */
	copies_have_cost = 0;
	rma_close();
	uncounted = false;
	unlink(path);
}

/* A copy of 64 KiB or more is timed; one in which the kernel has run another thread counts for little. */
static void test_copies_are_timed(void **state)
{
	uint32_t *cost;

	(void)state;
	if (!can_measure())
		skip();
	uncounted = true;
	rma_open(&routes[1]);
	assert_int_equal(sc_calibration_store(&usual), 0);
	cost = &pair[0].peer->rma.copy_cost;
	for (int put = 0; put < 2; put++) {
		*cost = 0;
		move_one(put, 65535, false);
		assert_int_equal(*cost, 0);
		move_one(put, 65536, false);
		assert_int_not_equal(*cost, 0);
		*cost = 1; /* any copy takes more than twice as long */
		move_one(put, 65536, false);
		assert_int_equal(*cost, 2);
	}
	*cost = 100000000; /* any copy takes less, and the target is not asked for a put of 64 KiB */
	move_one(true, 65536, false);
	assert_in_range(*cost, 75000000, 99999999);
	rma_close();
	uncounted = false;
	unlink(path);
}

/* So many messages without a poll between: how many of them went through bounce buffers, from the first on? */
static int burst(struct end pair[2], int count, const struct iovec *iov, size_t iov_count)
{
	static uint8_t into[32768];
	uint64_t before = pair[0].ep->counters.tx_bounce;
	size_t size = 0;
	int bounced = 0;

	for (size_t i = 0; i < iov_count; i++)
		size += iov[i].iov_len;
	pair[0].peer->bounce.fill.left = 1000; /* no trial meanwhile */
	sc_ep_poll(pair[0].ep);
	for (int n = 0; n < count; n++) {
		assert_int_equal(end_recv(&pair[1], NULL, into, size, 7, SC_TAGGED), 0);
		assert_int_equal(end_sendv(&pair[0], pair[0].peer, iov, iov_count, 7, SC_TAGGED, NULL), 0);
		if (pair[0].ep->counters.tx_bounce - before == (uint64_t)n + 1)
			bounced++;
	}
	assert_int_equal(pair[0].ep->counters.tx_bounce - before, bounced);
	ends_settle(pair, 2);
	for (int n = 0; n < count; n++) {
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
	}
	assert_int_equal(pair[0].peer->bounce.rendezvous, 0);
	return bounced;
}

/* One call of CMA copies several messages of a stream: that is faster than buffers, where a single message is not. */
static void test_adapts_to_streams(void **state)
{
	struct sc_ep_attr attr = end_attr();
	static uint8_t from[32768];
	struct iovec one = { from, 8192 }, many[4];
	struct end pair[2];

	(void)state;
	for (size_t i = 0; i < 4; i++)
		many[i] = (struct iovec){ from, 2048 };
	adapting_pair_open(pair, &attr);
	assert_int_equal(burst(pair, 8, &one, 1), 8); /* the cost of buffers is not known */
	/*
	 * 8 KiB: the slower side takes 1.05 us with buffers, less the eighth; CMA takes 0.85 us. A single message:
	 * 1.4 us with buffers, 2.5 us by CMA.
	 */
	set_costs(pair[0].peer, 100, 145);
	for (int round = 0; round < 3; round++)
		assert_int_equal(burst(pair, 8, &one, 1), 4);
	for (int n = 0; n < 8; n++)
		assert_true(is_bounced(pair, 8192)); /* each is waited for */
	set_costs(pair[0].peer, 145, 100);
	assert_int_equal(burst(pair, 8, &one, 1), 4);
	set_costs(pair[0].peer, 110, 110);
	assert_int_equal(burst(pair, 8, &one, 1), 8);
	/* 16 fragments fit one call, so 4 messages: 0.525 us for each, and 0.48 us for its fragments but the first */
	set_costs(pair[0].peer, 215, 100);
	assert_int_equal(burst(pair, 8, many, 4), 8);
	set_costs(pair[0].peer, 240, 100);
	assert_int_equal(burst(pair, 8, many, 4), 4);
	/* those that are on their way show it as well */
	for (int n = 0; n < 12; n++) {
		assert_int_equal(end_recv(&pair[1], NULL, from, 8192, 7, SC_TAGGED), 0);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8192, 7, SC_TAGGED), 0);
		if (n >= 7) {
			assert_int_equal(pair[0].peer->bounce.rendezvous, n - 3);
			sc_ep_poll(pair[0].ep);
		}
	}
	ends_settle(pair, 2);
	assert_int_equal(pair[0].peer->bounce.rendezvous, 0);
	pair_close(pair);
	unlink(path);
}

/* Both sides copy a message in half the time. */
static void test_adapts_to_shared_streams(void **state)
{
	struct sc_ep_attr attr = end_attr();
	static uint8_t from[32768];
	struct iovec one = { from, 32768 };
	struct end pair[2];

	(void)state;
	attr.config.share_min = 32769;
	adapting_pair_open(pair, &attr);
	/* 2.6 us, by CMA 2.8 */
	set_costs(pair[0].peer, 90, 90);
	assert_int_equal(burst(pair, 6, &one, 1), 6);
	pair_close(pair);
	attr.config.share_min = 32768;
	pair_open(pair, &attr, WAY_CMA);
	set_costs(pair[0].peer, 90, 90);
	assert_int_equal(burst(pair, 6, &one, 1), 4);
	pair[0].peer->writes_fail = true;
	assert_int_equal(burst(pair, 6, &one, 1), 6);
	pair_close(pair);
	unlink(path);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_bytes(const void *bytes, size_t size, mode_t mode)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void test_store_and_load(void **state)
{
	struct sc_calibration calibration, other = usual;
	struct stat st;

	(void)state;
	if (!alone)
		skip();
	assert_int_equal(sc_calibration_load(&calibration), -ENOENT);
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	is_usual(&calibration);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, sizeof(struct sc_abi_calibration));
	assert_int_equal(st.st_mode & 07777, 0600);
	other.cma_start = 600;
	assert_int_equal(sc_calibration_store(&other), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	assert_int_equal(calibration.cma_start, 600);
	/* known costs are not measured again */
	(void)sc_calibration_make();
	assert_int_equal(sc_calibration_load(&calibration), 0);
	assert_int_equal(calibration.cma_start, 600);
	/* it stays when this process ends */
	sc_process_fini();
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

static int count_descriptors(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* The core believes no file that another user may have written, and replaces it if it can. */
static void test_files_of_others(void **state)
{
	struct sc_abi_calibration file = formatted();
	struct sc_calibration calibration;
	int descriptors = count_descriptors();
	struct stat st;

	(void)state;
	if (!alone)
		skip();
	put_bytes(&file, sizeof(file), 0644);
	assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	if (!geteuid()) {
		assert_int_equal(chown(path, 12345, 12345), 0);
		assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	}
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	assert_int_equal(sc_calibration_store(&usual), 0);
	unlink(path);
	assert_int_equal(symlink("/dev/shm/elsewhere", path), 0);
	assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_int_equal(lstat("/dev/shm/elsewhere", &st), -1);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	assert_int_equal(sc_calibration_store(&usual), -EISDIR);
	(void)sc_calibration_make();
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(count_descriptors(), descriptors);
}

/* The file is cut short, too long or of another boot: the next process measures again. */
static void test_made_anew(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 64, 71, 73 };
	struct sc_abi_calibration file[2] = { formatted() };
	struct sc_calibration calibration;

	(void)state;
	if (!can_measure())
		skip();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		put_bytes(file, sizes[i], 0600);
		assert_int_equal(sc_calibration_load(&calibration), -EPROTO);
		(void)sc_calibration_make();
		assert_int_equal(sc_calibration_load(&calibration), 0);
		assert_true(calibration.time != usual.time);
		unlink(path);
	}
	file[0].boot_id[0]++;
	sign(&file[0]);
	put_bytes(file, sizeof(file[0]), 0600);
	assert_int_equal(sc_calibration_load(&calibration), -ESTALE);
	(void)sc_calibration_make();
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

static void expect_costs(const struct sc_calibration *calibration, const uint32_t costs[4])
{
	assert_int_equal(calibration->cma_start, costs[0]);
	assert_int_equal(calibration->cma_per_kib, costs[1]);
	assert_int_equal(calibration->near_per_kib, costs[2]);
	assert_int_equal(calibration->far_per_kib, costs[3]);
}

static void test_merge(void **state)
{
	struct sc_calibration calibration = { 1000, 100, 50, 150, 7, 1 },
			      dear = { 900, 200, 60, 120, 3, 4 }, cheap = { 1400, 60, 40, 200, 5, 2 };

	(void)state;
	sc_calibration_merge(&calibration, &dear);
	expect_costs(&calibration, (const uint32_t[]){ 1000, 100, 50, 120 });
	assert_int_equal(calibration.rounds, 5);
	sc_calibration_merge(&calibration, &cheap);
	expect_costs(&calibration, (const uint32_t[]){ 1400, 60, 40, 120 });
	assert_int_equal(calibration.rounds, 7);
	assert_int_equal(calibration.time, 7);
}

/* One measurement on a processor that is slow for a while does not last: later ones put it right, until they suffice. */
static void test_measured_again(void **state)
{
	struct sc_calibration calibration, slow = { 99000, 9000, 8000, 9000, 1234567890, 1 };

	(void)state;
	if (!can_measure())
		skip();
	assert_int_equal(sc_calibration_store(&slow), 0);
	assert_true(sc_calibration_make());
	assert_int_equal(sc_calibration_load(&calibration), 0);
	assert_in_range(calibration.cma_start, 0, slow.cma_start - 1);
	assert_int_equal(calibration.rounds, 2);
	assert_true(calibration.time > slow.time);
	calibration.rounds = SC_CALIBRATION_ROUNDS - 1;
	calibration.cma_start = 20;
	calibration.cma_per_kib = 1;
	assert_int_equal(sc_calibration_store(&calibration), 0);
	assert_false(sc_calibration_make());
	assert_int_equal(sc_calibration_load(&calibration), 0);
	assert_int_equal(calibration.cma_start, 20);
	assert_int_equal(calibration.rounds, SC_CALIBRATION_ROUNDS);
	assert_false(sc_calibration_make());
	unlink(path);
}

/* On each machine the measured costs, and their form in the file, are within their limits. */
static void test_measure(void **state)
{
	struct sc_calibration calibration;
	struct sc_abi_calibration file;

	(void)state;
	if (!can_measure())
		skip();
	assert_int_equal(sc_calibration_measure(&calibration), 0);
	assert_int_equal(sc_calibration_format(&calibration, &file), 0);
	assert_true(calibration.time > usual.time);
}

/* A process that makes one after the other, and one that reads: never half a file, never two in one. */
static void keep_storing(struct child *child, void *unused)
{
	struct sc_calibration one = usual, other = usual;

	(void)unused;
	other.cma_start = 600;
	other.time = 600;
	if (sc_calibration_store(&one))
		_exit(1);
	child_tell(child, "stored");
	for (;;)
		if (sc_calibration_store(&other) || sc_calibration_store(&one))
			_exit(1);
}

#define SEEN 20

static void test_replaced_at_once(void **state)
{
	struct sc_calibration calibration;
	struct child child;
	int seen = 0;

	(void)state;
	if (!alone)
		skip();
	assert_true(child_start(&child, keep_storing, NULL));
	/* there is none for as long as the child is kept from the processor between two names */
	for (int i = 0; i < 2000 || seen < SEEN; i++) {
		int ret = sc_calibration_load(&calibration);

		assert_true(!ret || ret == -ENOENT);
		if (ret)
			continue;
		seen++;
		assert_true((calibration.cma_start == 600) == (calibration.time == 600));
	}
	child_kill(&child);
	unlink(path);
}

#define STARTS 64

static void test_many_start(void **state)
{
	struct sc_calibration calibration;
	pid_t pids[STARTS];
	int gate[2];

	(void)state;
	if (!can_measure())
		skip();
	assert_int_equal(pipe(gate), 0);
	for (int i = 0; i < STARTS; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			char byte;

			close(gate[1]);
			(void)!read(gate[0], &byte, 1); /* the end: all begin at once */
			(void)sc_calibration_make();
			_exit(0);
		}
		assert_true(pids[i] > 0);
	}
	close(gate[0]);
	close(gate[1]);
	for (int i = 0; i < STARTS; i++) {
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

/* ---- what fails ------------------------------------------------------------------------------ */

static void without_room(struct child *child, void *unused)
{
	struct sc_calibration calibration;
	char fill[4096] = { 1 };
	int fd;

	(void)unused;
	(void)child;
	child_on_its_own();
	if (!child_private_shm("size=8k,mode=1777"))
		return;
	fd = open("/dev/shm/filler", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, fill, sizeof(fill)) > 0)
		;
	assert_int_equal(sc_calibration_store(&usual), -ENOSPC);
	assert_int_equal(sc_calibration_load(&calibration), -ENOENT);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
	close(fd);
	/* and where nothing may be written */
	assert_int_equal(mount(NULL, "/dev/shm", NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(sc_calibration_store(&usual), -EROFS);
	assert_int_equal(sc_calibration_load(&calibration), -ENOENT);
}

static void store_below_limit(struct child *self, void *arg)
{
	struct rlimit limit = { sizeof(struct sc_abi_calibration) - 1, RLIM_INFINITY };

	(void)self, (void)arg;
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
	child_log_lines = 0;
	CHILD_CHECK(sc_calibration_store(&usual) == -EFBIG);
	CHILD_CHECK(child_log_lines == 1 && strstr(child_log_line, "ulimit -f"));
	limit.rlim_cur = RLIM_INFINITY;
	CHILD_CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
	CHILD_CHECK(!sc_calibration_store(&usual));
}

/* A process that may write no file of that size is not ended by it. */
static void test_file_limit(void **state)
{
	(void)state;
	if (!alone)
		skip();
	CHILD_ASSERT(child_run(store_below_limit, NULL));
	unlink(path);
}

static void test_no_room(void **state)
{
	(void)state;
	if (!alone)
		skip();
	assert_int_equal(child_run(without_room, NULL), 0);
}

/* Each call in it: it says so, what was kept stays, and no descriptor is left. */
static void test_calls_that_fail(void **state)
{
	static const char *const points[] = { "shmfile.tmpfile", "calibration.write", "shmfile.link" };
	int descriptors = count_descriptors();
	struct sc_calibration calibration;

	(void)state;
	if (!alone || !core_failing(NULL, 0))
		skip();
	assert_int_equal(sc_calibration_store(&usual), 0);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		core_failing(points[i], EIO);
		assert_int_equal(sc_calibration_store(&usual), -EIO);
		core_failing(NULL, 0);
		assert_int_equal(sc_calibration_load(&calibration), 0);
		assert_int_equal(count_descriptors(), descriptors);
	}
	core_failing("calibration.unlink", EPERM);
	assert_int_equal(sc_calibration_store(&usual), -EPERM);
	core_failing("calibration.read", EIO);
	assert_int_equal(sc_calibration_load(&calibration), -EIO);
	core_failing("calibration.memory", ENOMEM);
	assert_int_equal(sc_calibration_measure(&calibration), -ENOMEM);
	core_failing("cma.readv", EPERM);
	if (can_measure())
		assert_int_equal(sc_calibration_measure(&calibration), -EPERM);
	core_failing(NULL, 0);
	assert_int_equal(count_descriptors(), descriptors);
	unlink(path);
}

/* ---- others ---------------------------------------------------------------------------------- */

static void no_file(const struct sc_reap_file *file, void *arg)
{
	(void)arg;
	fail_msg("%s is listed", file->name);
}

static void test_not_reaped(void **state)
{
	struct sc_calibration calibration;

	(void)state;
	if (!alone)
		skip();
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_int_equal(sc_reap_list(no_file, NULL), 0);
	assert_int_equal(sc_reap_scan(), 0);
	assert_int_equal(sc_reap_name(strrchr(path, '/') + 1), -EACCES);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

static _Atomic bool measured_in_vain;

static void note_failure(enum sc_log_level level, const char *line)
{
	(void)level;
	if (strstr(line, "could not be measured"))
		measured_in_vain = true;
}

/*
 * The daemon's thread measures, for later endpoints. A machine on which other programs take every processor all the
 * time may give it no possible figures.
 */
static void test_daemon(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_calibration calibration;
	struct end end;

	(void)state;
	if (!can_measure())
		skip();
	attr.config.daemon = attr.config.calibrate = true;
	sc_log_set(note_failure);
	end_open(&end, &attr);
	watchdog_await((!sc_calibration_load(&calibration) && calibration.rounds > 1) || measured_in_vain);
	assert_int_equal(end.ep->config.eager_max, attr.config.eager_max);
	end_close(&end);
	sc_process_fini();
	sc_log_set(NULL);
	if (measured_in_vain) {
		puts("needs a processor for a while");
		skip();
	}
	assert_int_equal(unlink(path), 0);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void test_command(void **state)
{
	struct sc_calibration calibration, dear = usual;
	char text[COMMAND_TEXT];

	(void)state;
	if (!alone)
		skip();
	setenv("FI_SHMCMA_EAGER_MAX", "4711", 1);
	assert_int_equal(run_command("shmcma-tune 2>&1", text), 0);
	says(text, "not yet");
	says(text, "eager_max         32768, as usual");
	assert_true(is_json("shmcma tune --json"));
	dear.cma_start = 50000;
	assert_int_equal(sc_calibration_store(&dear), 0);
	assert_int_equal(run_command("shmcma-tune 2>&1", text), 0);
	says(text, "2009-02-1");
	says(text, path);
	says(text, "50.000 us + 0.080 us/KiB");
	says(text, "0.050 us/KiB within a core, 0.150 without");
	says(text, "65536: usually 32768, here from 65536 to 65536");
	says(text, "FI_SHMCMA_EAGER_MAX=4711");
	assert_true(is_json("shmcma tune --json"));
	assert_int_equal(run_command("shmcma tune --json", text), 0);
	says(text, "\"cma_start_ns\": 50000");
	says(text, "\"FI_SHMCMA_EAGER_MAX=4711\"");
	assert_int_equal(run_command("shmcma-tune -x 2>&1", text), 2);
	assert_int_equal(run_command("shmcma-tune again 2>&1", text), 2);
	assert_int_equal(run_command("shmcma-tune --help 2>&1", text), 0);
	assert_int_equal(run_command("shmcma-tune --version 2>&1", text), 0);
	assert_int_equal(run_command("shmcma-tune --version >/dev/full 2>&1", text), 1);
	put_bytes(text, 72, 0600);
	assert_int_equal(run_command("shmcma-tune 2>&1", text), 1);
	says(text, "is of no use");
	if (can_measure() && !CHILD_SANITIZED) { /* the thread sanitizer writes a file before main() */
		assert_int_equal(run_command("(ulimit -f 0; shmcma tune -m) 2>&1", text), 1);
		says(text, "raise the limit of 0 bytes (ulimit -f)");
		says(text, "shmcma tune: cannot write ");
	}
	if (can_measure()) {
		assert_int_equal(run_command("shmcma-tune -m 2>&1", text), 0);
		says(text, "here from");
		assert_int_equal(sc_calibration_load(&calibration), 0);
		assert_true(calibration.time > usual.time);
		assert_int_equal(calibration.rounds, SC_CALIBRATION_ROUNDS);
	}
	unsetenv("FI_SHMCMA_EAGER_MAX");
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format_and_parse),
		cmocka_unit_test(test_parse_other),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_eager),
		cmocka_unit_test(test_cma_ns),
		cmocka_unit_test(test_adapts),
		cmocka_unit_test(test_adapts_to_streams),
		cmocka_unit_test(test_adapts_offers),
		cmocka_unit_test(test_expects_streams),
		cmocka_unit_test(test_adapts_assists),
		cmocka_unit_test(test_copies_are_timed),
		cmocka_unit_test(test_adapts_to_shared_streams),
		cmocka_unit_test(test_store_and_load),
		cmocka_unit_test(test_files_of_others),
		cmocka_unit_test(test_made_anew),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_measured_again),
		cmocka_unit_test(test_measure),
		cmocka_unit_test(test_replaced_at_once),
		cmocka_unit_test(test_many_start),
		cmocka_unit_test(test_file_limit),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_calls_that_fail),
		cmocka_unit_test(test_not_reaped),
		cmocka_unit_test(test_daemon),
		cmocka_unit_test(test_command),
	};

	alone = child_private_shm("size=64m,mode=1777");
	sc_calibration_path(path);
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
