/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_reg: nanoseconds that registering memory and ending that costs, with one endpoint that shows it.
 * Prints; asserts nothing.
 *
 *	open	sc_reg_open()
 *	close	sc_reg_close(), nobody copying
 *	find	what an initiator does before each copy: key, bounds and access
 *
 * "open at once" are opened, looked for and closed in turn; `others` are open all the time besides. Peers
 * are endpoints of this process that have connected.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <shmcma/core.h>
#include "link/peer.h"
#include "link/connect.h"
#include "link/state.h"

enum { COUNT_MAX = 100000, OPERATIONS = 2000000, PEERS_MAX = 64 };

static struct sc_reg *regs[COUNT_MAX], *others[COUNT_MAX];
static char memory[4096];

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void must(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "bench_reg: %s: %d\n", what, ret);
	exit(1);
}

/* The cost of one call of now(), which the caller subtracts from its figure. */
static double clock_cost(void)
{
	double start = now();

	for (int i = 0; i < 1000000; i++)
		(void)now();
	return (now() - start) / 1000000;
}

static struct sc_ep *open_ep(struct sc_regtab *regtab)
{
	struct sc_ep_attr attr = { .tx_size = 64, .rx_size = 64, .regtab = regtab };
	struct sc_ep *ep = NULL;

	sc_config_init(&attr.config);
	attr.config.buf_count = 2;
	must(sc_ep_create(&attr, &ep), "sc_ep_create");
	return ep;
}

/* One peer more of `ep`. */
static struct sc_ep *connect_one(struct sc_ep *ep)
{
	struct sc_ep *other = open_ep(NULL);
	struct sc_peer *peer = NULL;

	must(sc_peer_get(other, sc_ep_address(ep), &peer), "sc_peer_get");
	must(sc_peer_connect(peer), "sc_peer_connect");
	while (!ep->counters.accepts)
		sc_ep_poll(ep);
	ep->counters.accepts = 0;
	return other;
}

static void open_all(struct sc_regtab *regtab, struct sc_reg **out, size_t count, uint32_t flags)
{
	static uint64_t key = 1; /* applications count */
	struct iovec range = { memory, sizeof(memory) };
	struct sc_reg_attr attr = { .ranges = &range,
				    .range_count = 1,
				    .flags = SC_REG_READ | SC_REG_WRITE | flags };

	for (size_t i = 0; i < count; i++) {
		attr.key = key++;
		must(sc_reg_open(regtab, &attr, &out[i]), "sc_reg_open");
	}
}

static void find_all(const struct sc_regtab_view *view, size_t count)
{
	struct sc_reg_span span;
	struct sc_reg_ref ref;

	for (size_t i = 0; i < count; i++) {
		must(sc_regtab_find(view, sc_reg_key(regs[i]), &ref), "sc_regtab_find");
		must(sc_regtab_check(view, &ref, &(struct sc_remote){ 0, sizeof(memory), 0 }, SC_REG_READ, &span),
		     "sc_regtab_check");
	}
}

static void close_all(struct sc_reg **them, size_t count)
{
	for (size_t i = 0; i < count; i++)
		must(sc_reg_close(them[i]), "sc_reg_close");
}

static void bench(int peers, size_t count, size_t other_count, uint32_t flags)
{
	size_t rounds = OPERATIONS / count;
	double opening = 0, finding = 0, closing = 0, start, clock = clock_cost() / (double)count;
	struct sc_regtab *regtab = NULL;
	struct sc_ep *ep, *connected[PEERS_MAX];

	must(sc_regtab_create(&regtab), "sc_regtab_create");
	ep = open_ep(regtab);
	for (int i = 0; i < peers; i++)
		connected[i] = connect_one(ep);
	open_all(regtab, others, other_count, flags);
	for (size_t round = 0; round <= rounds; round++) {
		if (round == 1)
			opening = finding = closing = 0; /* the first has made the table grow */
		start = now();
		open_all(regtab, regs, count, flags);
		opening += now() - start;
		start = now();
		find_all(&ep->table, count);
		finding += now() - start;
		start = now();
		close_all(regs, count);
		closing += now() - start;
	}
	printf("%-12s %6d %12zu %12zu %8.1f %8.1f %8.1f\n", flags & SC_REG_KEY ? "application" : "ours",
	       peers, count, other_count, opening / (double)(rounds * count) - clock,
	       closing / (double)(rounds * count) - clock, finding / (double)(rounds * count) - clock);
	close_all(others, other_count);
	for (int i = 0; i < peers; i++)
		sc_ep_destroy(connected[i]);
	sc_ep_destroy(ep);
	sc_regtab_destroy(regtab);
}

int main(void)
{
	static const uint32_t keys[] = { 0, SC_REG_KEY };

	printf("%-12s %6s %12s %12s %8s %8s %8s\n", "key", "peers", "open at once", "others", "open ns",
	       "close ns", "find ns");
	for (int i = 0; i < 2; i++) {
		bench(0, 1, 0, keys[i]);
		bench(1, 1, 0, keys[i]);
		bench(8, 1, 0, keys[i]);
		bench(PEERS_MAX, 1, 0, keys[i]);
		bench(1, 1, COUNT_MAX, keys[i]);
		bench(1, 1000, 0, keys[i]);
		bench(1, COUNT_MAX, 0, keys[i]);
	}
	return 0;
}
