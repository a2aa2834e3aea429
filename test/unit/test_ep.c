/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_ep: endpoints come and go and leave nothing; many endpoints; ends with traffic in every state.
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

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include "core_pair.h"
#include "msg/bounce.h"

static struct end pair[2];
static uint8_t from[200000], into[200000];

static int setup(void **state)
{
	pattern_fill(from, 0, sizeof(from), 1);
	return pair_setup(state);
}

/* ---- what there is --------------------------------------------------------------------------- */

struct traces {
	int descriptors, mappings, names;
	long long bytes; /* of shared memory under names of this process */
};

static struct traces look(void)
{
	struct traces traces = { 0 };
	struct dirent *entry;
	char line[512], mark[16];
	FILE *maps = fopen("/proc/self/maps", "r");
	DIR *dir = opendir("/proc/self/fd");

	assert_true(maps && dir);
	while (readdir(dir))
		traces.descriptors++;
	closedir(dir);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "/dev/shm/"))
			traces.mappings++;
	fclose(maps);
	snprintf(mark, sizeof(mark), "-%08x-", (unsigned)getpid());
	dir = opendir("/dev/shm");
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		struct stat st;

		if (!strstr(entry->d_name, mark) || fstatat(dirfd(dir), entry->d_name, &st, 0))
			continue;
		traces.names++;
		traces.bytes += (long long)st.st_blocks * 512;
	}
	closedir(dir);
	return traces;
}

/* With no endpoint open. The thread is ended: it opens files of others for a moment now and then. */
static struct traces look_alone(void)
{
	sc_process_fini();
	return look();
}

static void expect_no_traces(const struct traces *before)
{
	struct traces now = look_alone();

	assert_int_equal(now.descriptors, before->descriptors);
	assert_int_equal(now.mappings, before->mappings);
	assert_int_equal(now.names, before->names);
}

/* ---- come and go ----------------------------------------------------------------------------- */

static void test_nothing_is_left(void **state)
{
	struct traces before;
	struct end end;

	(void)state;
	end_open(&end, NULL); /* the first endpoint makes what a process makes once */
	end_close(&end);
	before = look_alone();
	assert_int_equal(before.names, 0);
	for (int i = 0; i < 1000; i++) {
		end_open(&end, NULL);
		if (i == 0)
			assert_int_equal(look().names, 1);
		end_close(&end);
	}
	expect_no_traces(&before);
	for (int i = 0; i < 200; i++) {
		pair_open(pair, NULL, WAY_LOCAL);
		assert_int_equal(end_send(&pair[0], pair[0].peer, from, 8, 0, 0), 0);
		end_close(&pair[i % 2]);
		end_close(&pair[!(i % 2)]);
	}
	expect_no_traces(&before);
}

static void test_config(void **state)
{
	struct sc_ep_attr attr = end_attr();
	const struct sc_config *config;
	struct end end;

	(void)state;
	memset(&attr.config, 0, sizeof(attr.config));
	end_open(&end, &attr);
	config = &end.ep->config;
	assert_int_equal(config->slots, 1);
	assert_true(config->buf_count >= 2);
	assert_true(config->buf_size * SC_ABI_RECORD_BUFS >= SC_INJECT_MAX);
	assert_true(config->window > 0);
	end_close(&end);
	memset(&attr.config, 0xff, sizeof(attr.config));
	attr.config.cma = attr.config.daemon = attr.config.scan = true;
	attr.config.strict = attr.config.calibrate = false;
	attr.config.buf_count = 3;
	end_open(&end, &attr);
	config = &end.ep->config;
	assert_int_equal(config->slots, SC_ABI_SLOTS_MAX);
	assert_int_equal(config->buf_size & (config->buf_size - 1), 0);
	assert_true(config->inline_max <= SC_INLINE_MAX);
	assert_true(config->eager_max <= (uint64_t)SC_ABI_RECORD_BUFS * config->buf_size);
	end_close(&end);
}

/* The smallest configuration carries everything, if slowly. */
static void test_smallest(void **state)
{
	static const size_t sizes[] = { 0, 1, 100, 5000, 100000 };
	struct sc_ep_attr attr = end_attr();

	(void)state;
	memset(&attr.config, 0, sizeof(attr.config));
	for (enum way way = 0; way < WAYS; way++) {
		if (!way_possible(way))
			continue;
		pair_open(pair, &attr, way);
		for (int i = 0; i < 5; i++) {
			memset(into, 0, sizes[i]);
			assert_int_equal(end_send(&pair[0], pair[0].peer, from, sizes[i], 0, 0), 0);
			assert_int_equal(end_recv(&pair[1], NULL, into, sizes[i], 0, 0), 0);
			ends_settle(pair, 2);
			expect_sent(&pair[0], from, sizes[i]);
			expect_received(&pair[1], pair[1].peer, into, sizes[i], 0);
			assert_true(pattern_is(into, 0, sizes[i], 1));
		}
		pair_close(pair);
	}
}

/* Up to the largest eager messages, of all the buffers a record can name, or the largest in a record. */
static void sizes_pass(uint32_t eager_max, uint64_t in_records)
{
	struct sc_ep_attr attr = end_attr();

	attr.config.inline_max = UINT32_MAX;
	attr.config.eager_max = eager_max;
	pair_open(pair, &attr, WAY_PULL);
	for (size_t size = 0; size <= 70000; size += size < 1000 ? 1 : 997) {
		memset(into, 0, size);
		assert_int_equal(end_recv(&pair[1], NULL, into, size, 0, 0), 0);
		assert_int_equal(
			end_send(&pair[0], pair[0].peer, from, size, 0, size % 2 ? SC_SEND_DELIVERY : 0),
			0);
		ends_settle(pair, 2);
		expect_sent(&pair[0], from, size);
		expect_received(&pair[1], pair[1].peer, into, size, 0);
		assert_true(pattern_is(into, 0, size, 1));
	}
	assert_int_equal(pair[0].ep->counters.tx_inline, in_records);
	pair_close(pair);
}

static void test_largest(void **state)
{
	(void)state;
	sizes_pass(UINT32_MAX, SC_ROUTE_BUFFER_MIN);
	sizes_pass(SC_ROUTE_BUFFER_MIN - 1, SC_INLINE_MAX + 1); /* buffers hold too little */
}

static void test_service(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_comp_ring cq;
	struct sc_ep *first, *second;
	char name[32], address[SC_ADDR_SIZE], found[SC_ADDR_SIZE];

	(void)state;
	snprintf(name, sizeof(name), "test_ep.%d", (int)getpid());
	assert_int_equal(sc_comp_ring_init(&cq, 16), 0);
	attr.rx_cq = &cq;
	attr.service = name;
	assert_int_equal(sc_ep_create(&attr, &first), 0);
	assert_int_equal(sc_addr_service(name, address), 0);
	assert_int_equal(sc_addr_resolve(address, found), 0);
	assert_string_equal(found, sc_ep_address(first));
	assert_int_equal(sc_ep_create(&attr, &second), -EADDRINUSE);
	assert_int_equal(sc_addr_resolve(address, found), 0);
	sc_ep_destroy(first);
	assert_int_equal(sc_addr_resolve(address, found), -ECONNREFUSED);
	assert_int_equal(sc_ep_create(&attr, &second), 0);
	sc_ep_destroy(second);
	sc_comp_ring_fini(&cq);
}

/* A failed creation leaves nothing, too. */
static void test_failed_creation(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct traces before = look_alone();
	struct sc_ep *ep;

	(void)state;
	attr.service = "a/b";
	assert_int_equal(sc_ep_create(&attr, &ep), -EINVAL);
	expect_no_traces(&before);
}

/* Everyone is connected with everyone, in little memory. */
static void test_sixty_four(void **state)
{
	enum { ENDS = 64 };
	struct traces before = look_alone(), now;
	struct sc_ep_attr attr = end_attr();
	struct end *ends = calloc(ENDS, sizeof(*ends));
	uint8_t out[ENDS];

	(void)state;
	assert_non_null(ends);
	sc_config_init(&attr.config); /* as delivered */
	for (int i = 0; i < ENDS; i++) {
		end_open(&ends[i], &attr);
		out[i] = (uint8_t)i;
	}
	for (int i = 0; i < ENDS; i++)
		for (int j = 0; j < ENDS; j++)
			assert_int_equal(end_send(&ends[i], end_find(&ends[i], &ends[j]), &out[i], 1,
						  (uint64_t)j, SC_TAGGED | SC_SILENT),
					 0);
	now = look();
	assert_int_equal(now.names - before.names, ENDS);
	assert_true(now.bytes - before.bytes < 64ll << 20);
	ends_settle(ends, ENDS);
	for (int i = 0; i < ENDS; i++)
		for (int j = 0; j < ENDS; j++) {
			uint8_t got = 0xff;

			assert_int_equal(end_recv(&ends[i], end_find(&ends[i], &ends[j]), &got, 1,
						  (uint64_t)i, SC_TAGGED),
					 0);
			assert_int_equal(comp_take(&ends[i].rx).err, 0);
			assert_int_equal(got, j);
		}
	for (int i = 0; i < ENDS; i++)
		end_close(&ends[i]);
	free(ends);
	expect_no_traces(&before);
}

/* ---- ends with traffic ----------------------------------------------------------------------- */

enum { POSTED = 6 };

/* Something of everything, at some stage of its way. */
static void make_traffic(int stage, uint64_t *random)
{
	static const size_t sizes[] = { 0, 8, 200, 1000, 32768, 40000, 150000 };
	static const uint32_t flags[] = { 0, SC_SEND_DELIVERY, SC_SEND_MATCH, SC_SILENT };

	for (int round = 0; round < 40; round++) {
		int i = (int)(pair_random(random) % 2);
		size_t size = sizes[pair_random(random) % 7];
		uint32_t flag = flags[pair_random(random) % 4] | (pair_random(random) % 2 ? SC_TAGGED : 0);
		struct sc_recv recv = { .iov = &(struct iovec){ into, sizeof(into) },
					.iov_count = 1,
					.ignore = UINT64_MAX,
					.context = &pair[i],
					.multi_min = 1000,
					.flags = flag & SC_TAGGED };

		if (size <= SC_INJECT_MAX && pair_random(random) % 2)
			flag |= SC_SEND_INJECT;
		if (pair[i].ep && pair[i].peer->link == SC_LINK_UP)
			(void)end_send(&pair[i], pair[i].peer, from, size, 0, flag);
		switch (pair_random(random) % 8) {
		case 0 ... 2:
			assert_int_equal(sc_rx_recv(pair[!i].ep, &recv), 0);
			break;
		case 3:
			recv.flags |= SC_RECV_MULTI;
			assert_int_equal(sc_rx_recv(pair[!i].ep, &recv), 0);
			break;
		case 4:
			recv.flags |= SC_RECV_PEEK | SC_RECV_CLAIM;
			assert_int_equal(sc_rx_recv(pair[!i].ep, &recv), 0);
			break;
		default:
			break;
		}
		if (stage && (uint64_t)stage > pair_random(random) % 8)
			sc_ep_poll(pair[pair_random(random) % 2].ep);
	}
}

static void test_ends_with_traffic(void **state)
{
	struct traces before = look_alone();
	uint64_t random = 3;

	(void)state;
	for (enum way way = 0; way < WAYS; way++)
		for (int i = 0; i < 200 && way_possible(way); i++) {
			int last = i % 2;

			pair_open(pair, NULL, way);
			make_traffic(i % 9, &random);
			end_close(&pair[!last]);
			if (i % 4 < 2)
				ends_settle(pair, 2);
			for (int n = 0; n < POSTED; n++)
				assert_int_equal(end_recvv(&pair[last], NULL,
							   &(struct iovec){ into, sizeof(into) }, 1, 0,
							   UINT64_MAX, n % 2 ? SC_TAGGED : 0, into),
						 0);
			if (i % 8 < 4) {
				ends_settle(pair, 2);
				assert_int_equal(sc_slab_used(&pair[last].ep->tx_ops), 0);
				assert_int_equal(pair[last].ep->pool.free_count, pair[last].ep->pool.have);
				assert_true(sc_list_empty(&pair[last].ep->work[SC_WORK_PULLING]));
				assert_true(sc_list_empty(&pair[last].ep->work[SC_WORK_PUSHING]));
			}
			end_close(&pair[last]);
		}
	expect_no_traces(&before);
}

/* ---- fork, signals --------------------------------------------------------------------------- */

/* A child destroys the endpoints that it has inherited: this harms nobody. */
static void inherit(struct child *self, void *arg)
{
	(void)self;
	(void)arg;
	child_on_its_own();
	sc_ep_destroy(pair[0].ep);
	sc_ep_destroy(pair[1].ep);
}

static void test_forked_child_destroys(void **state)
{
	struct traces before = look_alone();

	(void)state;
	pair_open(pair, NULL, WAY_PULL);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 50000, 0, 0), 0);
	assert_int_equal(end_send(&pair[0], pair[0].peer, from, 500, 0, SC_SEND_DELIVERY), 0);
	ends_settle(pair, 2);
	assert_int_equal(child_run(inherit, NULL), 0);
	assert_int_equal(end_recv(&pair[1], NULL, into, 50000, 0, 0), 0);
	assert_int_equal(end_recv(&pair[1], NULL, into + 50000, 500, 0, 0), 0);
	ends_settle(pair, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(comp_take(&pair[0].tx).err, 0);
		assert_int_equal(comp_take(&pair[1].rx).err, 0);
	}
	pair_close(pair);
	expect_no_traces(&before);
}

static void do_nothing(int signal)
{
	(void)signal;
}

/* Signals come all the time: nothing fails for that. */
static void test_signals(void **state)
{
	struct sigaction action = { .sa_handler = do_nothing }, old;
	struct itimerspec often = { { 0, 300000 }, { 0, 300000 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	int failed = 0, not_connected = 0;
	timer_t timer;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
	assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	assert_int_equal(timer_settime(timer, 0, &often, NULL), 0);
	for (int i = 0; i < 200 && !failed && !not_connected; i++) {
		struct sc_ep_attr attr = end_attr();
		struct sc_send send = { 0 };
		struct sc_peer *peer;
		struct sc_ep *ep;

		failed = sc_ep_create(&attr, &ep);
		if (failed)
			break;
		failed = sc_peer_get(ep, sc_ep_address(ep), &peer);
		if (!failed)
			failed = sc_tx_send(ep, peer, &send);
		for (int n = 0; n < 10; n++)
			sc_ep_poll(ep);
		not_connected = peer->feed != SC_FEED_UP || peer->link != SC_LINK_UP;
		sc_ep_destroy(ep);
	}
	timer_delete(timer);
	sigaction(SIGUSR1, &old, NULL);
	assert_int_equal(failed, 0);
	assert_int_equal(not_connected, 0);
}

/* ---- what others have left ------------------------------------------------------------------- */

static void open_and_wait(struct child *self, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, NULL);
	child_tell(self, sc_ep_address(end.ep));
	child_wait(self);
}

/* /dev/shm is full, also of what one has left whose pid is somebody's: it is not looked at but for that. */
static void open_where_it_is_full(struct child *self, void *arg)
{
	char left[SC_SHMFILE_PATH_MAX], path[SC_SHMFILE_PATH_MAX];
	struct child dead;
	struct statvfs fs;
	struct end end;
	int fd;

	(void)self, (void)arg;
	child_on_its_own();
	if (!child_private_shm("size=1m,mode=1777"))
		_exit(CHILD_SKIPS);
	assert_true(child_start(&dead, open_and_wait, NULL));
	child_kill(&dead);
	core_path(dead.line, 0, left);
	core_path(dead.line, getppid(), path);
	assert_int_equal(rename(left, path), 0);
	assert_int_equal(statvfs("/dev/shm", &fs), 0);
	fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	assert_int_equal(fallocate(fd, 0, 0, (off_t)(fs.f_bavail * fs.f_bsize)), 0);
	end_open(&end, NULL);
	assert_int_equal(access(path, F_OK), -1);
	end_close(&end);
	close(fd);
}

static void test_left_in_the_way(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(open_where_it_is_full, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_left),
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_smallest),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_service),
		cmocka_unit_test(test_failed_creation),
		cmocka_unit_test(test_sixty_four),
		cmocka_unit_test(test_ends_with_traffic),
		cmocka_unit_test(test_forked_child_destroys),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_left_in_the_way),
	};

	(void)child_private_shm("mode=1777");
	return cmocka_run_group_tests_name("ep", tests, setup, NULL);
}
