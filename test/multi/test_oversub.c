/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_oversub: more processes than processors. Whoever is waited for is most often not running; all must
 * come to an end all the same, with and without giving up the processor while waiting.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <string.h>

#define RANKS 16
#define CPUS 2
#define SIZE_MAX_HERE ((size_t)128 << 10)

struct params {
	int exchanges; /* rounds of all-to-all */
	int barriers;  /* rounds of message barriers */
	bool spin;     /* never give up the processor while waiting */
};

struct member {
	struct mt_ep ep;
	fi_addr_t peers[RANKS];
	struct mt_op sends[RANKS], recvs[RANKS];
	uint8_t *out[RANKS], *in[RANKS];
	bool spin;
};

static void wait_op(struct member *m, struct mt_op *op)
{
	while (m->spin && !op->done)
		mt_progress(&m->ep);
	mt_wait(&m->ep, op);
}

/* What `from` sends to `to` in a round. */
static size_t round_size(int round, int from, int to)
{
	static const size_t sizes[] = { 8, 0, 200, 4096, 64, 20000, 1, 1000, 16384, 8, 3000, 128 << 10 };

	return sizes[(size_t)(round * 5 + from * 3 + to) % (sizeof(sizes) / sizeof(sizes[0]))];
}

static uint64_t round_seed(int round, int from, int to)
{
	return (uint64_t)round << 16 | (uint64_t)from << 8 | (uint64_t)to;
}

static void exchange(struct member *m, int round)
{
	for (int i = 0; i < RANKS; i++)
		if (i != mt_rank)
			mt_trecv(&m->ep, &m->recvs[i], m->in[i], SIZE_MAX_HERE, m->peers[i],
				 (uint64_t)round);
	for (int k = 1; k < RANKS; k++) {
		int to = (mt_rank + k) % RANKS;
		size_t size = round_size(round, mt_rank, to);

		mt_doing("round %d: sending %zu bytes to rank %d", round, size, to);
		mt_fill(m->out[to], size, round_seed(round, mt_rank, to), 0);
		mt_tsend(&m->ep, &m->sends[to], m->out[to], size, m->peers[to], (uint64_t)round);
	}
	for (int k = 1; k < RANKS; k++) {
		int from = (mt_rank + RANKS - k) % RANKS;
		size_t size = round_size(round, from, mt_rank);

		mt_doing("round %d: waiting for rank %d", round, from);
		wait_op(m, &m->recvs[from]);
		mt_require(m->recvs[from].len == size &&
				   mt_verify(m->in[from], size, round_seed(round, from, mt_rank), 0) < 0,
			   "%zu of %zu bytes from rank %d, or wrong ones", m->recvs[from].len, size, from);
		mt_doing("round %d: waiting for the send to rank %d", round, from);
		wait_op(m, &m->sends[from]);
	}
}

/* Dissemination: in step k everybody hears from the one 2^k before. */
static void barrier(struct member *m, int round)
{
	for (int step = 1; step < RANKS; step *= 2) {
		int to = (mt_rank + step) % RANKS, from = (mt_rank + RANKS - step) % RANKS;
		uint64_t tag = 1ULL << 32 | (uint64_t)round << 8 | (uint64_t)step;
		uint64_t token = tag, got = 0;
		struct mt_op send = { 0 }, recv = { 0 };

		mt_doing("barrier %d, step %d: from rank %d, to rank %d", round, step, from, to);
		mt_trecv(&m->ep, &recv, &got, sizeof(got), m->peers[from], tag);
		mt_tsend(&m->ep, &send, &token, sizeof(token), m->peers[to], tag);
		wait_op(m, &recv);
		wait_op(m, &send);
		mt_require(got == tag, "token %#llx", (unsigned long long)got);
	}
}

static void oversub_rank(const void *arg)
{
	const struct params *params = arg;
	struct member m;

	memset(&m, 0, sizeof(m));
	m.spin = params->spin;
	for (int i = 0; i < RANKS; i++) {
		m.in[i] = malloc(SIZE_MAX_HERE);
		m.out[i] = malloc(SIZE_MAX_HERE);
		mt_require(m.in[i] && m.out[i], "no memory");
	}
	mt_open(&m.ep, NULL);
	mt_join(&m.ep, m.peers);
	for (int i = 0; i < params->exchanges; i++)
		exchange(&m, i);
	for (int i = 0; i < params->barriers; i++)
		barrier(&m, i);
	mt_doing("finished, waiting for the others");
	mt_barrier(&m.ep);
	mt_close(&m.ep);
	for (int i = 0; i < RANKS; i++) {
		free(m.in[i]);
		free(m.out[i]);
	}
}

/* ---- a caller that polls in vain ------------------------------------------------------------- */

/*
 * Two ranks on one processor that poll and do nothing else. What a rank waits for comes when the other runs, which the
 * provider's reads see to: else each message takes all polls of a time slice, some 100,000. The polls are counted, since
 * other load makes neither more of them nor fewer.
 */
#define TURNS 1000
#define TURNS_LARGE 50
#define LARGE ((size_t)1 << 20)
/* Until the provider has noticed that the processor is shared. */
#define POLLS_FIRST (40 * 16384)
#define POLLS_A_TURN 400

static uint64_t polls_until_done(struct mt_ep *ep, const struct mt_op *op)
{
	uint64_t polls = 0;

	for (; !op->done; polls++)
		mt_progress(ep);
	mt_require(!op->err, "%s", fi_strerror(op->err));
	return polls;
}

static uint64_t turns(struct mt_ep *ep, fi_addr_t peer, int count, size_t size)
{
	struct mt_op send = { 0 }, recv = { 0 };
	uint8_t *out = malloc(size), *in = malloc(size);
	uint64_t polls = 0;

	mt_require(out && in, "no memory");
	for (int i = 0; i < count; i++) {
		mt_doing("turn %d of %d, %zu bytes", i, count, size);
		mt_fill(out, size, (uint64_t)i, 0);
		mt_trecv(ep, &recv, in, size, peer, 1);
		if (!mt_rank) {
			mt_tsend(ep, &send, out, size, peer, 1);
			polls += polls_until_done(ep, &send);
		}
		polls += polls_until_done(ep, &recv);
		if (mt_rank) {
			mt_tsend(ep, &send, out, size, peer, 1);
			polls += polls_until_done(ep, &send);
		}
		mt_require(mt_verify(in, size, (uint64_t)i, 0) < 0, "wrong bytes");
	}
	free(out);
	free(in);
	return polls;
}

static void turns_rank(const void *arg)
{
	fi_addr_t peers[2];
	struct mt_ep ep;
	uint64_t polls;

	(void)arg;
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	polls = turns(&ep, peers[!mt_rank], TURNS, 8);
	polls += turns(&ep, peers[!mt_rank], TURNS_LARGE, LARGE);
	mt_require(polls < POLLS_FIRST + (TURNS + TURNS_LARGE) * POLLS_A_TURN,
		   "%llu polls: the other rank runs when this one's time slice has ended", (unsigned long long)polls);
	mt_barrier(&ep);
	mt_close(&ep);
}

int main(void)
{
	static const struct params yielding = { .exchanges = 60, .barriers = 200 };
	static const struct params spinning = { .exchanges = 3, .barriers = 5, .spin = true };

	mt_init("test_oversub");
	mt_confine(CPUS);
	mt_run(&(struct mt_case){ .name = "yielding",
				  .ranks = RANKS,
				  .deadline = 90,
				  .rank = oversub_rank,
				  .arg = &yielding });
	mt_run(&(struct mt_case){ .name = "spinning",
				  .ranks = RANKS,
				  .deadline = 90,
				  .rank = oversub_rank,
				  .arg = &spinning });
	mt_confine(1);
	mt_run(&(struct mt_case){
		.name = "one processor", .ranks = 2, .flags = MT_CASE_SHMCMA, .rank = turns_rank });
	return mt_end();
}
