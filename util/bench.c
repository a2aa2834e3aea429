/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench.c: shmcma bench measures latency and bandwidth between two processes of this machine, of shmcma beside
 * libfabric's own shm. shmcma(1).
 *
 * The two providers take turns (util/pair.c), so that a change of the machine meets both. A figure is the median of the
 * rounds; a ratio is one of the same round.
 */
#define _GNU_SOURCE 1
#include "command.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "pair.h"

#define ROUNDS 5
#define PROVIDERS 2
#define OVERHEAD 1.3 /* seconds of a round beside the measurement: the processes start, warm up and end */
#define LEAST_SHARE 0.95
#define MOST_LOAD 0.7
#define PATIENCE 30 /* seconds */
#define BAR 40 /* characters */

static const char *const providers[PROVIDERS] = { "shmcma", "shm" };

static const struct pair_case cases[] = {
	{ 8, false },	      { 512, false },	  { 4 << 10, false }, { 32 << 10, false },
	{ 256 << 10, false }, { 2 << 20, false }, { 4 << 10, true },  { 32 << 10, true },
	{ 256 << 10, true },  { 2 << 20, true },
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

struct spread {
	double median, least, most;
};

static double seconds = 10;
static struct pair_result results[ROUNDS][PROVIDERS];
static bool is_measured[PROVIDERS];
static int cpus[2];
static char warning[256]; /* empty: none */

/* ---- the machine ----------------------------------------------------------------------------- */

/* Tells whether both processors are threads of one core. */
static bool is_one_core(int one, int other)
{
	char paths[2][96], texts[2][64] = { "one", "other" };

	for (int i = 0; i < 2; i++) {
		FILE *file;

		snprintf(paths[i], sizeof(paths[i]),
			 "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i ? other : one);
		file = fopen(paths[i], "re");
		if (!file)
			continue;
		if (!fgets(texts[i], sizeof(texts[i]), file))
			texts[i][0] = '\0';
		fclose(file);
	}
	return !strcmp(texts[0], texts[1]);
}

/* Two cores, if this process may use two; else two threads of one core, or one processor. */
static void choose_cpus(void)
{
	cpu_set_t set;
	int found = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET((unsigned int)cpu, &set))
			continue;
		if (!found)
			cpus[0] = cpus[1] = cpu;
		else if (found == 1 || (is_one_core(cpus[0], cpus[1]) && !is_one_core(cpus[0], cpu)))
			cpus[1] = cpu;
		found++;
	}
}

static const char *place(void)
{
	if (cpus[0] == cpus[1])
		return "one processor, so each message waits for a switch of processes";
	return is_one_core(cpus[0], cpus[1]) ? "two threads of one core" : "two cores";
}

static double load_average(void)
{
	FILE *file = fopen("/proc/loadavg", "re");
	double load = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%lf", &load) != 1)
		load = 0;
	fclose(file);
	return load;
}

/* The processes poll all the time, so the time in which they do not run was taken from them. */
static void judge_load(double load)
{
	double share = 1;

	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < PROVIDERS; i++)
			if (is_measured[i] && results[round][i].share < share)
				share = results[round][i].share;
	if (cpus[0] != cpus[1] && share < LEAST_SHARE)
		snprintf(warning, sizeof(warning),
			 "the machine is loaded: a process had its processor for %.0f %% of the time; the "
			 "figures say little",
			 share * 100);
	else if (load > MOST_LOAD)
		snprintf(warning, sizeof(warning),
			 "the machine is loaded: its load average was %.2f at the start; the figures may "
			 "be too bad",
			 load);
}

/* ---- measurement ----------------------------------------------------------------------------- */

static bool measure_all(void)
{
	struct pair_plan plan = {
		.cpus = { cpus[0], cpus[1] }, .patience = PATIENCE, .cases = cases, .count = CASES
	};

	plan.seconds = (seconds / ROUNDS > 2 * OVERHEAD / ROUNDS ? seconds - OVERHEAD : seconds / 4) /
		       ROUNDS / PROVIDERS / CASES;
	for (int i = 0; i < PROVIDERS; i++)
		is_measured[i] = true;
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < PROVIDERS; i++) {
			plan.provider = providers[i];
			if (!is_measured[i])
				continue;
			pair_measure(&plan, &results[round][i]);
			if (!*results[round][i].fault)
				continue;
			is_measured[i] = false;
			fprintf(stderr, "%s: %s cannot be measured: %s\n", command_name, providers[i],
				results[round][i].fault);
			if (!i)
				return false;
		}
	return true;
}

static int compare(const void *left, const void *right)
{
	const double *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

static struct spread spread_of(double values[ROUNDS])
{
	qsort(values, ROUNDS, sizeof(values[0]), compare);
	return (struct spread){ values[ROUNDS / 2], values[0], values[ROUNDS - 1] };
}

static struct spread figure(size_t index, int provider)
{
	double values[ROUNDS];

	for (int round = 0; round < ROUNDS; round++)
		values[round] = results[round][provider].values[index];
	return spread_of(values);
}

/* How many times faster shmcma is, in latency as in bandwidth. */
static struct spread times_faster(size_t index)
{
	double values[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		double own = results[round][0].values[index], other = results[round][1].values[index];

		values[round] = cases[index].is_stream ? own / other : other / own;
	}
	return spread_of(values);
}

/* ---- output ---------------------------------------------------------------------------------- */

static const char *size_text(size_t size, char text[24])
{
	if (size < 1024)
		snprintf(text, 24, "%zu B", size);
	else if (size < 1 << 20)
		snprintf(text, 24, "%zu KiB", size >> 10);
	else
		snprintf(text, 24, "%zu MiB", size >> 20);
	return text;
}

/* Four digits, or more before the point. */
static const char *value_text(double value, char text[24])
{
	snprintf(text, 24, value < 1000 ? "%.4g" : "%.0f", value);
	return text;
}

static void print_spread(struct spread spread)
{
	char median[24], least[24], most[24], range[56];

	snprintf(range, sizeof(range), "(%s-%s)", value_text(spread.least, least),
		 value_text(spread.most, most));
	printf("  %8s %-15s", value_text(spread.median, median), range);
}

static void print_title(bool is_stream)
{
	printf("\n%-18s  %-24s", is_stream ? "bandwidth, MB/s" : "latency, us", "shmcma");
	if (is_measured[1])
		printf("  %-24s  times faster", "shm");
	putchar('\n');
}

static void print_table(bool is_stream)
{
	char text[24];

	print_title(is_stream);
	for (size_t i = 0; i < CASES; i++) {
		if (cases[i].is_stream != is_stream)
			continue;
		printf("%16s", size_text(cases[i].size, text));
		print_spread(figure(i, 0));
		if (is_measured[1]) {
			struct spread times = times_faster(i);

			print_spread(figure(i, 1));
			printf("  %5.2f (%.2f-%.2f)", times.median, times.least, times.most);
		}
		putchar('\n');
	}
}

static void print_bar(const char *label, const char *provider, double value, double longest)
{
	int length = (int)(BAR * value / longest + 0.5);
	char text[24];

	printf("%16s  %-6s |", label, provider);
	for (int i = 0; i < length; i++)
		putchar('#');
	printf(" %s\n", value_text(value, text));
}

/* For each size the longer bar has full length. */
static void print_plot(bool is_stream)
{
	char text[24];

	printf("\n%s\n", is_stream ? "bandwidth, MB/s; the longer the better"
				   : "latency, us; the shorter the better");
	for (size_t i = 0; i < CASES; i++) {
		double own = figure(i, 0).median, other = figure(i, 1).median;

		if (cases[i].is_stream != is_stream)
			continue;
		print_bar(size_text(cases[i].size, text), providers[0], own, own > other ? own : other);
		print_bar("", providers[1], other, own > other ? own : other);
	}
}

static void show_text(void)
{
	printf("Two processes on processors %d and %d (%s), %d rounds: median (least-most).\n", cpus[0],
	       cpus[1], place(), ROUNDS);
	puts("Latency is half of a round trip; bandwidth is of 16 messages at a time.");
	for (int is_stream = 0; is_stream < 2; is_stream++)
		print_table(is_stream);
	for (int is_stream = 0; is_stream < 2 && is_measured[1]; is_stream++)
		print_plot(is_stream);
	if (*warning)
		printf("\nWARNING: %s\n", warning);
}

static void put_spread(const char *key, struct spread spread)
{
	json_open_object(key);
	json_real("median", spread.median);
	json_real("least", spread.least);
	json_real("most", spread.most);
	json_close_object();
}

static void show_json(void)
{
	json_open_object(NULL);
	json_open_array("processors");
	json_number(NULL, cpus[0]);
	json_number(NULL, cpus[1]);
	json_close_array();
	json_string("place", place());
	json_number("rounds", ROUNDS);
	json_string("warning", *warning ? warning : NULL);
	json_open_array("figures");
	for (size_t i = 0; i < CASES; i++) {
		json_open_object(NULL);
		json_string("kind", cases[i].is_stream ? "bandwidth" : "latency");
		json_string("unit", cases[i].is_stream ? "MB/s" : "us");
		json_count("size", cases[i].size);
		put_spread(providers[0], figure(i, 0));
		if (is_measured[1]) {
			put_spread(providers[1], figure(i, 1));
			put_spread("times_faster", times_faster(i));
		}
		json_close_object();
	}
	json_close_array();
	json_close_object();
}

static int run(int argc, char **argv)
{
	double load = load_average();

	(void)argv;
	if (argc)
		return command_misused();
	choose_cpus();
	if (!measure_all())
		return command_end(COMMAND_FAULT);
	judge_load(load);
	if (command_json)
		show_json();
	else
		show_text();
	return command_end(COMMAND_OK);
}

static bool take(int letter, const char *argument)
{
	(void)letter;
	return command_number(argument, 1, 3600, &seconds);
}

static const struct command_option options[] = {
	{ "time", 't', true, "SECONDS", "how long it takes, about; 10" },
	COMMAND_JSON,
	{ 0 },
};

const struct command bench_command = {
	.name = "bench",
	.full = "shmcma bench",
	.arguments = "",
	.words = "measure latency and bandwidth beside libfabric's own shm",
	.about = "Measures latency and bandwidth of messages between two processes of this machine, of "
		 "shmcma and of\n"
		 "libfabric's own provider shm in turns, and says how many times faster shmcma is.",
	.status = "0; 1 if shmcma could not be measured",
	.options = options,
	.take = take,
	.run = run,
};
