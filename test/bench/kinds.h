/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kinds.h: what fabric_bench measures. Each kind is a group of processes that runs one of these functions;
 * the first process has the samples. A kind that its provider does not have is UNAVAILABLE.
 */
#ifndef SHMCMA_TEST_BENCH_KINDS_H
#define SHMCMA_TEST_BENCH_KINDS_H

#include <stddef.h>

enum figure_id {
	TAGGED_LATENCY,
	PLAIN_LATENCY,
	/* the sender's buffer in so many fragments; the receiver's; both */
	SENT_IN_4,
	RECEIVED_IN_4,
	BOTH_IN_4,
	SENT_IN_8,
	RECEIVED_IN_8,
	BOTH_IN_8,
	BANDWIDTH,
	RATE,
	STREAM_CPU,
	BIDIRECTIONAL,
	PAIRS_RATE,
	PAIRS_BANDWIDTH,
	WAKEUP_FD,
	WAKEUP_FD_CPU,
	WAKEUP_SREAD,
	WAKEUP_SREAD_CPU,
	POSTED_IN_ORDER,
	POSTED_REVERSE,
	UNEXPECTED_IN_ORDER,
	UNEXPECTED_REVERSE,
	/* one-sided: the target polls, the target computes */
	PUT_LATENCY,
	PUT_LATENCY_PASSIVE,
	GET_LATENCY,
	GET_LATENCY_PASSIVE,
	PUT_BANDWIDTH,
	PUT_BANDWIDTH_PASSIVE,
	GET_BANDWIDTH,
	GET_BANDWIDTH_PASSIVE,
	CMA_WRITE_BANDWIDTH,
	CMA_READ_BANDWIDTH,
	FETCH_ADD_LATENCY,
	FETCH_ADD_LATENCY_PASSIVE,
	COMPARE_SWAP_LATENCY,
	COMPARE_SWAP_LATENCY_PASSIVE,
	FETCH_ADD_RATE,
	FETCH_ADD_RATE_PASSIVE,
	COMPARE_SWAP_RATE,
	COMPARE_SWAP_RATE_PASSIVE,
	SUM_LATENCY,
	SUM_LATENCY_PASSIVE,
	SUM_RATE,
	SUM_RATE_PASSIVE,
	/* as programs post them: injected where they fit; with data; both processes at once */
	PUT_PINGPONG,
	PUT_DATA_PINGPONG,
	PUT_INJECTED_RATE,
	PUT_INJECTED_RATE_PASSIVE,
	PUT_INJECTED_LANDING,
	PUT_DATA_RATE,
	PUT_BOTH_WAYS,
	GET_BOTH_WAYS,
	/* to random places of a memory */
	PUT_SCATTERED_RATE,
	SUM_SCATTERED_RATE,
	REGISTRATION,
	ENDPOINT_TIME,
	STARTUP_TIME,
	ENDPOINT_SHM,
	ENDPOINT_RSS,
	PEER_SHM,
	PEER_RSS,
	TOTAL_SHM,
	JOB_TIME,
	JOB_SHM,
	FIGURES
};

#define SIZES_MAX 64

/* A window is WINDOW messages, fewer of the large ones: no more than WINDOW_BYTES, but at least four. */
#define WINDOW 64
#define WINDOW_BYTES (64UL << 20)

struct sizes {
	size_t count;
	size_t bytes[SIZES_MAX];
};

static inline int window_of(size_t size)
{
	size_t fits = size ? WINDOW_BYTES / size : WINDOW;

	return fits > WINDOW ? WINDOW : fits < 4 ? 4 : (int)fits;
}

static inline size_t largest_of(const struct sizes *sizes)
{
	size_t largest = 0;

	for (size_t i = 0; i < sizes->count; i++)
		largest = sizes->bytes[i] > largest ? sizes->bytes[i] : largest;
	return largest;
}

/* The task of a process: from the kind's row in fabric_bench.c, and from the command line. */
struct task {
	const char *subject;
	const struct sizes *sizes;
	int number; /* of peers, in those kinds that have several */
};

typedef void kind_fn(const struct task *task);

kind_fn pingpong_tagged, pingpong_plain, pingpong_fragments, pingpong_wakeup_fd, pingpong_wakeup_sread;
kind_fn stream_one_way, stream_both_ways, stream_pairs;
kind_fn matching_posted, matching_unexpected;
kind_fn onesided_moves, onesided_atomics, onesided_styles, onesided_scattered;
kind_fn registration_alone, registration_among_many;
kind_fn startup_with_peers;
kind_fn startup_of_job;

#endif
