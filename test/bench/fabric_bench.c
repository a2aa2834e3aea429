/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_bench.c: what messages and one-sided operations between processes of this machine cost, for several
 * libfabric providers in one run.
 *
 *	fabric_bench [-k kind,kind...] [-o] [-n turns] [-s size,size...] [-c cpu,cpu...] [-b milliseconds]
 *		     [-C] provider[:variant...] ...
 *	fabric_bench -L
 *
 * Kinds (-k) are the rows of the list below; -o is short for the one-sided ones. Each measurement is a fresh
 * group of processes, each on its own processor while there are enough (-c: those and in that order); the
 * providers take turns, kind by kind (A B A B...), and the table shows the median of all turns. -b is the
 * time that each figure may take, besides warming up. A figure that a provider does not have is shown as "-"; the
 * reason, and any failure, is on stderr. -C: every sample as a line "figure,provider,x,value" instead, in seconds,
 * bytes, and per second; -L lists these figures (table.h).
 *
 * Any provider with FI_EP_RDM and FI_TAGGED can take part; variants are in endpoint.h. It prints and judges
 * nothing. The status is 1 if something failed, or there was nothing to measure.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/fabric.h>

#include "group.h"
#include "kinds.h"
#include "repeat.h"
#include "table.h"

#define PROVIDERS_MAX 8
#define DEADLINE 300 /* seconds for one group */

struct kind {
	const char *name;
	kind_fn *run;
	int processes;
	int number;
};

static const struct kind kinds[] = {
	{ "latency", pingpong_tagged, 2, 0 },
	{ "plain", pingpong_plain, 2, 0 },
	{ "fragments", pingpong_fragments, 2, 4 },
	{ "fragments", pingpong_fragments, 2, 8 },
	{ "bandwidth", stream_one_way, 2, 0 },
	{ "bidirectional", stream_both_ways, 2, 0 },
	{ "pairs", stream_pairs, 2, 0 },
	{ "pairs", stream_pairs, 4, 0 },
	{ "pairs", stream_pairs, 8, 0 },
	{ "pairs", stream_pairs, 16, 0 },
	{ "wakeup-fd", pingpong_wakeup_fd, 2, 0 },
	{ "wakeup-sread", pingpong_wakeup_sread, 2, 0 },
	{ "posted", matching_posted, 2, 0 },
	{ "unexpected", matching_unexpected, 2, 0 },
	{ "moves", onesided_moves, 2, 0 },
	{ "atomics", onesided_atomics, 2, 0 },
	{ "styles", onesided_styles, 2, 0 },
	{ "scattered", onesided_scattered, 2, 0 },
	{ "registration", registration_alone, 1, 0 },
	{ "registration", registration_among_many, 1, 0 },
	{ "startup", startup_with_peers, 2, 1 },
	{ "startup", startup_with_peers, 2, 63 },
	{ "startup", startup_of_job, 16, 0 },
	{ "startup", startup_of_job, 32, 0 },
	{ "startup", startup_of_job, 64, 0 },
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

#define US 1e6, 3, true
#define NS 1e9, 0, true
#define MB_PER_S 1e-6, 1, false
#define MILLION_PER_S 1e-6, 3, false
#define KIB 1. / 1024, 1, true

static const struct figure figures[FIGURES] = {
	[TAGGED_LATENCY] = { "tagged_latency", "tagged ping-pong, one way, us", "bytes", US },
	[PLAIN_LATENCY] = { "plain_latency", "plain ping-pong, one way, us", "bytes", US },
	[SENT_IN_4] = { "sent_in_4", "tagged latency, sent in 4 fragments, us", "bytes", US },
	[RECEIVED_IN_4] = { "received_in_4", "tagged latency, received in 4 fragments, us", "bytes", US },
	[BOTH_IN_4] = { "both_in_4", "tagged latency, sent and received in 4 fragments, us", "bytes", US },
	[SENT_IN_8] = { "sent_in_8", "tagged latency, sent in 8 fragments, us", "bytes", US },
	[RECEIVED_IN_8] = { "received_in_8", "tagged latency, received in 8 fragments, us", "bytes", US },
	[BOTH_IN_8] = { "both_in_8", "tagged latency, sent and received in 8 fragments, us", "bytes", US },
	[BANDWIDTH] = { "bandwidth", "tagged bandwidth, windows, MB/s", "bytes", MB_PER_S },
	[RATE] = { "rate", "tagged rate, windows, million/s", "bytes", MILLION_PER_S },
	[STREAM_CPU] = { "stream_cpu", "processor time of both for a tagged message in windows, us",
			 "bytes", US },
	[BIDIRECTIONAL] = { "bidirectional", "tagged bandwidth both ways, the sum, MB/s", "bytes",
			    MB_PER_S },
	[PAIRS_RATE] = { "pairs_rate", "tagged rate of all pairs, 64 B, million/s", "processes",
			 MILLION_PER_S },
	[PAIRS_BANDWIDTH] = { "pairs_bandwidth", "tagged bandwidth of all pairs, 64 KiB, MB/s",
			      "processes", MB_PER_S },
	[WAKEUP_FD] = { "wakeup_fd", "wake-up out of poll(2) on FI_WAIT_FD, us", "bytes", US },
	[WAKEUP_FD_CPU] = { "wakeup_fd_cpu", "processor time of both for one such message, us", "bytes",
			    US },
	[WAKEUP_SREAD] = { "wakeup_sread", "wake-up out of fi_cq_sread, us", "bytes", US },
	[WAKEUP_SREAD_CPU] = { "wakeup_sread_cpu", "processor time of both for one such message, us",
			       "bytes", US },
	[POSTED_IN_ORDER] = { "posted_in_order", "message among posted receives, in order, us", "entries",
			      US },
	[POSTED_REVERSE] = { "posted_reverse", "message among posted receives, in reverse order, us",
			     "entries", US },
	[UNEXPECTED_IN_ORDER] = { "unexpected_in_order", "receive among unexpected messages, in order, us",
				  "entries", US },
	[UNEXPECTED_REVERSE] = { "unexpected_reverse", "receive among unexpected messages, in reverse, us",
				 "entries", US },
	[PUT_LATENCY] = { "put_latency", "put, one at a time, target polls, us", "bytes", US },
	[PUT_LATENCY_PASSIVE] = { "put_latency_passive", "put, one at a time, target computes, us",
				  "bytes", US },
	[GET_LATENCY] = { "get_latency", "get, one at a time, target polls, us", "bytes", US },
	[GET_LATENCY_PASSIVE] = { "get_latency_passive", "get, one at a time, target computes, us",
				  "bytes", US },
	[PUT_BANDWIDTH] = { "put_bandwidth", "put, windows, target polls, MB/s", "bytes", MB_PER_S },
	[PUT_BANDWIDTH_PASSIVE] = { "put_bandwidth_passive", "put, windows, target computes, MB/s",
				    "bytes", MB_PER_S },
	[GET_BANDWIDTH] = { "get_bandwidth", "get, windows, target polls, MB/s", "bytes", MB_PER_S },
	[GET_BANDWIDTH_PASSIVE] = { "get_bandwidth_passive", "get, windows, target computes, MB/s",
				    "bytes", MB_PER_S },
	[CMA_WRITE_BANDWIDTH] = { "cma_write_bandwidth", "process_vm_writev right after such puts, MB/s",
				  "bytes", MB_PER_S },
	[CMA_READ_BANDWIDTH] = { "cma_read_bandwidth", "process_vm_readv right after such gets, MB/s",
				 "bytes", MB_PER_S },
	[FETCH_ADD_LATENCY] = { "fetch_add_latency", "fetch-add, one at a time, target polls, us", "bytes",
				US },
	[FETCH_ADD_LATENCY_PASSIVE] = { "fetch_add_latency_passive",
					"fetch-add, one at a time, target computes, us", "bytes", US },
	[COMPARE_SWAP_LATENCY] = { "compare_swap_latency", "compare-swap, one at a time, target polls, us",
				   "bytes", US },
	[COMPARE_SWAP_LATENCY_PASSIVE] = { "compare_swap_latency_passive",
					   "compare-swap, one at a time, target computes, us", "bytes",
					   US },
	[FETCH_ADD_RATE] = { "fetch_add_rate", "fetch-add, windows, target polls, million/s", "bytes",
			     MILLION_PER_S },
	[FETCH_ADD_RATE_PASSIVE] = { "fetch_add_rate_passive",
				     "fetch-add, windows, target computes, million/s", "bytes",
				     MILLION_PER_S },
	[COMPARE_SWAP_RATE] = { "compare_swap_rate", "compare-swap, windows, target polls, million/s",
				"bytes", MILLION_PER_S },
	[COMPARE_SWAP_RATE_PASSIVE] = { "compare_swap_rate_passive",
					"compare-swap, windows, target computes, million/s", "bytes",
					MILLION_PER_S },
	[SUM_LATENCY] = { "sum_latency", "sum without a result, one at a time, target polls, us", "bytes",
			  US },
	[SUM_LATENCY_PASSIVE] = { "sum_latency_passive",
				  "sum without a result, one at a time, target computes, us", "bytes",
				  US },
	[SUM_RATE] = { "sum_rate", "sum without a result, windows, target polls, million/s", "bytes",
		       MILLION_PER_S },
	[SUM_RATE_PASSIVE] = { "sum_rate_passive",
			       "sum without a result, windows, target computes, million/s", "bytes",
			       MILLION_PER_S },
	[PUT_PINGPONG] = { "put_pingpong", "ping-pong of puts into memory, one way, us", "bytes", US },
	[PUT_DATA_PINGPONG] = { "put_data_pingpong", "ping-pong of puts with remote data, one way, us",
				"bytes", US },
	[PUT_INJECTED_RATE] = { "put_injected_rate", "injected put, windows, target polls, million/s",
				"bytes", MILLION_PER_S },
	[PUT_INJECTED_RATE_PASSIVE] = { "put_injected_rate_passive",
					"injected put, windows, target computes, million/s", "bytes",
					MILLION_PER_S },
	[PUT_INJECTED_LANDING] = { "put_injected_landing",
				   "the last of a window of injected puts lands, no process calls, us",
				   "bytes", US },
	[PUT_DATA_RATE] = { "put_data_rate", "put with remote data, windows, target polls, million/s",
			    "bytes", MILLION_PER_S },
	[PUT_BOTH_WAYS] = { "put_both_ways", "put, windows both ways, the sum, MB/s", "bytes", MB_PER_S },
	[GET_BOTH_WAYS] = { "get_both_ways", "get, windows both ways, the sum, MB/s", "bytes", MB_PER_S },
	[PUT_SCATTERED_RATE] = { "put_scattered_rate",
				 "injected puts of 8 B to random places, windows, million/s",
				 "bytes of memory", MILLION_PER_S },
	[SUM_SCATTERED_RATE] = { "sum_scattered_rate",
				 "sums without a result at random places, windows, million/s",
				 "bytes of memory", MILLION_PER_S },
	[REGISTRATION] = { "registration", "fi_mr_reg and fi_close of 4 KiB, ns", "others", NS },
	[ENDPOINT_TIME] = { "endpoint_time", "fi_fabric to fi_enable and fi_getname, us", "endpoints",
			    US },
	[STARTUP_TIME] = { "startup_time", "endpoint and first message to all peers, us", "peers", US },
	[ENDPOINT_SHM] = { "endpoint_shm", "memory of an endpoint in /dev/shm, KiB", "endpoints", KIB },
	[ENDPOINT_RSS] = { "endpoint_rss", "resident memory of an endpoint, KiB", "endpoints", KIB },
	[PEER_SHM] = { "peer_shm", "memory of a connected peer in /dev/shm, KiB", "peers", KIB },
	[PEER_RSS] = { "peer_rss", "resident memory of a connected peer, KiB", "peers", KIB },
	[TOTAL_SHM] = { "total_shm", "memory of all of them in /dev/shm, KiB", "peers", KIB },
	[JOB_TIME] = { "job_time", "a job: endpoints, first messages of each to all others, us",
		       "processes", US },
	[JOB_SHM] = { "job_shm", "its memory in /dev/shm, KiB", "processes", KIB },
};

static struct sizes sizes = {
	13, { 1, 4, 8, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304 }
};
static const struct sizes onesided_sizes = { 5, { 8, 4096, 65536, 1048576, 4194304 } };

static bool chosen[KINDS];
static bool left_out[KINDS][PROVIDERS_MAX];

struct job {
	kind_fn *run;
	struct task task;
};

static void run_job(void *arg)
{
	const struct job *job = arg;

	job->run(&job->task);
}

/* True: it did not fail. A subject that has not all of a kind is not asked for it again. */
static bool measure(struct table *table, size_t k, int subject)
{
	static struct result result;
	struct job job = { kinds[k].run, { table->subjects[subject], &sizes, kinds[k].number } };
	struct group_attr attr = { kinds[k].processes, DEADLINE, run_job, &job };

	if (left_out[k][subject])
		return true;
	group_run(&attr, &result);
	table_add(table, subject, &result);
	if (result.outcome == MEASURED)
		return true;
	left_out[k][subject] = true;
	fprintf(stderr, "fabric_bench: %s, %s: %s (%s)\n", table->subjects[subject], kinds[k].name,
		result.outcome == UNAVAILABLE ? "not available" : "failed", result.why);
	return result.outcome == UNAVAILABLE;
}

static bool measure_all(struct table *table, int turns)
{
	bool good = true;

	for (int turn = 0; turn < turns; turn++)
		for (size_t k = 0; k < KINDS; k++)
			for (int subject = 0; chosen[k] && subject < table->subject_count; subject++)
				good &= measure(table, k, subject);
	return good;
}

static void usage(void)
{
	fprintf(stderr, "usage: fabric_bench [-k kind,kind...] [-o] [-n turns] [-s size,size...] "
			"[-c cpu,cpu...] [-b milliseconds] [-C] provider[:variant...] ...\n"
			"       fabric_bench -L\nkinds:");
	for (size_t k = 0; k < KINDS; k++)
		if (!k || strcmp(kinds[k].name, kinds[k - 1].name))
			fprintf(stderr, " %s", kinds[k].name);
	fprintf(stderr, "\n");
	exit(2);
}

static void choose_kinds(const char *list)
{
	char *copy = strdup(list);

	for (char *item = strtok(copy, ","); item; item = strtok(NULL, ",")) {
		bool any = false;

		for (size_t k = 0; k < KINDS; k++)
			if (strcmp(kinds[k].name, item) == 0)
				any = chosen[k] = true;
		if (!any)
			usage();
	}
	free(copy);
}

static void parse_sizes(char *text)
{
	sizes.count = table_parse_list(text, sizes.bytes, SIZES_MAX);
	if (!sizes.count)
		usage();
}

int main(int argc, char **argv)
{
	struct table table = { .figures = figures, .figure_count = FIGURES };
	const char *list = "latency,bandwidth", *cpu_list = NULL;
	bool csv = false, sizes_given = false, good;
	int option, turns = 7;

	while ((option = getopt(argc, argv, "k:on:s:c:b:CL")) != -1) {
		if (option == 'k')
			list = optarg;
		else if (option == 'o')
			list = "moves,atomics,styles,scattered,registration";
		else if (option == 'n')
			turns = atoi(optarg);
		else if (option == 's')
			parse_sizes(optarg);
		else if (option == 'c')
			cpu_list = optarg;
		else if (option == 'b')
			repeat_budget = atof(optarg) * 1e-3;
		else if (option == 'C')
			csv = true;
		else if (option == 'L')
			return table_list_figures(&table), 0;
		else
			usage();
		sizes_given |= option == 's';
	}
	choose_kinds(list);
	if (!sizes_given && strncmp(list, "moves", 5) == 0)
		sizes = onesided_sizes;
	table.subjects = argv + optind;
	table.subject_count = argc - optind;
	if (turns < 1 || turns > TURNS_MAX || repeat_budget <= 0 || !table.subject_count ||
	    table.subject_count > PROVIDERS_MAX || !group_choose_cpus(cpu_list))
		usage();
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);

	good = measure_all(&table, turns);
	if (csv) {
		table_print_csv(&table);
	} else {
		printf("libfabric %u.%u, %d processors, medians of %d\n", FI_MAJOR(fi_version()),
		       FI_MINOR(fi_version()), cpus.count, turns);
		table_print(&table);
	}
	return !good || !table.count;
}
