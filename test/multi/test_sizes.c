/* SPDX-License-Identifier: BSD-2-Clause */
/* test_sizes: every size around every threshold, and one message of more than 4 GiB. */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

/* ---- more than 4 GiB ------------------------------------------------------------------------- */

#define WINDOW ((size_t)64 << 20)
#define WINDOWS 64			 /* of the same memory, one after the other: 4 GiB */
#define TAIL ((size_t)(1 << 20) + 12345) /* memory of its own */
#define HUGE_SIZE (WINDOW * WINDOWS + TAIL)

/* 4 GiB of address space over 64 MiB of memory, and a tail. */
static uint8_t *huge_map(void)
{
	uint8_t *p = mmap(NULL, HUGE_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = memfd_create("window", MFD_CLOEXEC);

	mt_require(p != MAP_FAILED && fd >= 0 && ftruncate(fd, (off_t)WINDOW) == 0, "no memory");
	for (size_t i = 0; i < WINDOWS; i++)
		mt_require(mmap(p + i * WINDOW, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
				0) != MAP_FAILED,
			   "no address space");
	close(fd);
	return p;
}

static void huge_rank(const void *arg)
{
	struct mt_op op = { 0 };
	fi_addr_t peers[2];
	struct mt_ep ep;
	uint8_t *p;

	(void)arg;
	if (MT_SANITIZED)
		mt_skip("a sanitizer keeps shadows of all that is written");
	mt_open(&ep, NULL);
	if (ep.info->ep_attr->max_msg_size < HUGE_SIZE)
		mt_skip("max_msg_size is %zu", ep.info->ep_attr->max_msg_size);
	mt_join(&ep, peers);
	p = huge_map();
	if (mt_rank == 0) {
		pattern_fill(p, 0, WINDOW, 1);
		pattern_fill(p + WINDOWS * WINDOW, 0, TAIL, 2);
		mt_doing("sending %zu bytes", HUGE_SIZE);
		mt_tsend(&ep, &op, p, HUGE_SIZE, peers[1], 1);
		mt_wait(&ep, &op);
	} else {
		mt_doing("receiving %zu bytes", HUGE_SIZE);
		mt_trecv(&ep, &op, p, HUGE_SIZE, peers[0], 1);
		mt_wait(&ep, &op);
		mt_require(op.len == HUGE_SIZE, "len %zu", op.len);
		mt_require(pattern_differs(p, 0, WINDOW, 1) < 0, "the first 4 GiB are wrong");
		mt_require(pattern_differs(p + WINDOWS * WINDOW, 0, TAIL, 2) < 0,
			   "the bytes beyond 4 GiB are wrong");
	}
	munmap(p, HUGE_SIZE);
	mt_barrier(&ep);
	mt_close(&ep);
}

/* ---- judgement ------------------------------------------------------------------------------- */

/* All three ways were used in both directions. */
static bool judge_ways(const struct mt_counters *c, int ranks, const void *arg)
{
	(void)arg;
	for (int i = 0; i < ranks; i++)
		if (!c[i].tx_inline || !c[i].tx_bounce || !c[i].tx_rdv || !c[i].rx_unexpected) {
			printf("  rank %d: inline %llu, bounce %llu, rendezvous %llu, unexpected %llu\n",
			       i, (unsigned long long)c[i].tx_inline, (unsigned long long)c[i].tx_bounce,
			       (unsigned long long)c[i].tx_rdv, (unsigned long long)c[i].rx_unexpected);
			return false;
		}
	return true;
}

int main(void)
{
	static const struct sizes_params params = { .max = (64 << 20) + 1 };
	static const struct mt_case cases[] = {
		{ .name = "sizes",
		  .ranks = 2,
		  .deadline = 120,
		  .rank = sizes_rank,
		  .arg = &params,
		  .judge = judge_ways },
		{ .name = "huge", .ranks = 2, .deadline = 120, .rank = huge_rank },
	};

	mt_init("test_sizes");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mt_run(&cases[i]);
	return mt_end();
}
