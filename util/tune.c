/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tune.c: shmcma tune prints the cost of copies on this machine, as the provider has measured it, or measured anew,
 * and the values that follow from it. shmcma(1).
 *
 * It may be run at any time and be killed at any instant: see src/proc/calibration.c.
 */
#define _GNU_SOURCE 1
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <shmcma/core.h>

#define PREFIX "FI_SHMCMA_"

extern char **environ;

static const char usage[] =
	"usage: shmcma tune [-m]\n"
	"Shows what copies cost on this machine, by which libfabric's provider shmcma chooses their way.\n"
	"\n"
	"  -m, --measure  measure it anew, for all processes of this user that begin from now on\n"
	"  -h, --help     this\n"
	"      --version\n"
	"\n"
	"Exit status: 0, 1 if it could not be done, 2 for wrong arguments.\n";

static void log_line(enum sc_log_level level, const char *line)
{
	(void)level;
	fprintf(stderr, "%s: %s\n", command_name, line);
}

static void show_costs(const struct sc_calibration *calibration, const char *path)
{
	time_t when = (time_t)calibration->time;
	struct tm tm;
	char text[64] = "?";

	if (localtime_r(&when, &tm))
		(void)strftime(text, sizeof(text), "%F %T", &tm);
	printf("measured          %s, %s\n", text, path);
	printf("process_vm_readv  %.3f us + %.3f us/KiB\n", calibration->cma_start / 1e3,
	       calibration->cma_per_kib / 1e3);
	printf("shared buffers    %.3f us/KiB within a core, %.3f without a common cache\n",
	       calibration->near_per_kib / 1e3, calibration->far_per_kib / 1e3);
}

/* The largest message that goes through shared buffers unasked. */
static void show_eager(const struct sc_calibration *calibration)
{
	struct sc_config config;
	uint32_t usual, least, most;

	sc_config_init(&config);
	usual = config.eager_max;
	if (!calibration) {
		printf("eager_max         %u, as usual\n", usual);
		return;
	}
	sc_calibration_apply(calibration, &config);
	sc_calibration_limits(calibration, &least, &most);
	printf("eager_max         %u: usually %u, here from %u to %u\n", config.eager_max, usual, least,
	       most);
}

/* Prints the environment variables that override it in this process. */
static void show_environment(void)
{
	for (char **each = environ; *each; each++)
		if (!strncmp(*each, PREFIX, strlen(PREFIX)))
			printf("environment       %s\n", *each);
}

static int show(const char *path)
{
	struct sc_calibration calibration;
	int ret = sc_calibration_load(&calibration);

	if (ret)
		printf("measured          not yet for this user and boot\n");
	else
		show_costs(&calibration, path);
	show_eager(ret ? NULL : &calibration);
	show_environment();
	return ret && ret != -ENOENT && ret != -ESTALE ? COMMAND_FAULT : COMMAND_OK;
}

static int measure(const char *path)
{
	struct sc_calibration calibration;
	int ret = sc_calibration_measure(&calibration);

	if (ret) {
		fprintf(stderr, "%s: cannot measure: %s\n", command_name, strerror(-ret));
		return COMMAND_FAULT;
	}
	ret = sc_calibration_store(&calibration);
	if (ret && ret != -EEXIST) {
		fprintf(stderr, "%s: cannot write %s: %s\n", command_name, path, strerror(-ret));
		return COMMAND_FAULT;
	}
	return show(path);
}

int tune_run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "measure", no_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int (*act)(const char *path) = show;
	char path[SC_CALIBRATION_PATH_MAX];
	int option;

	while ((option = getopt_long(argc, argv, "mh", options, NULL)) != -1) {
		switch (option) {
		case 'm':
			act = measure;
			break;
		default:
			return command_other(option, usage);
		}
	}
	if (optind < argc)
		return command_misused(usage);
	sc_log_set(log_line);
	sc_calibration_path(path);
	return command_end(act(path));
}
