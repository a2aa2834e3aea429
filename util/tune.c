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
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <shmcma/core.h>
#include "json.h"

#define PREFIX "FI_SHMCMA_"

extern char **environ;

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
	printf("measured          %s, the least of %u, %s\n", text, calibration->rounds, path);
	printf("process_vm_readv  %.3f us + %.3f us/KiB\n", calibration->cma_start / 1e3,
	       calibration->cma_per_kib / 1e3);
	printf("shared buffers    %.3f us/KiB within a core, %.3f without a common cache\n",
	       calibration->near_per_kib / 1e3, calibration->far_per_kib / 1e3);
}

/* The largest message that goes through shared buffers unasked. */
struct eager {
	uint32_t usual, here, least, most;
};

/* NULL: nothing has been measured. */
static struct eager find_eager(const struct sc_calibration *calibration)
{
	struct sc_config config;
	struct eager eager;

	sc_config_init(&config);
	eager = (struct eager){ config.eager_max, config.eager_max, config.eager_max, config.eager_max };
	if (!calibration)
		return eager;
	sc_calibration_apply(calibration, &config);
	eager.here = config.eager_max;
	sc_calibration_limits(calibration, &eager.least, &eager.most);
	return eager;
}

static void show_eager(const struct sc_calibration *calibration)
{
	struct eager eager = find_eager(calibration);

	if (!calibration)
		printf("eager_max         %u, as usual\n", eager.usual);
	else
		printf("eager_max         %u: usually %u, here from %u to %u\n", eager.here, eager.usual,
		       eager.least, eager.most);
}

static bool is_parameter(const char *variable)
{
	return !strncmp(variable, PREFIX, strlen(PREFIX));
}

static void show_text(const struct sc_calibration *calibration, const char *path)
{
	if (calibration)
		show_costs(calibration, path);
	else
		printf("measured          not yet for this user and boot\n");
	show_eager(calibration);
	for (char **each = environ; *each; each++)
		if (is_parameter(*each))
			printf("environment       %s\n", *each);
}

static void show_json(const struct sc_calibration *calibration, const char *path)
{
	struct eager eager = find_eager(calibration);

	json_open_object(NULL);
	json_string("file", calibration ? path : NULL);
	if (calibration) {
		json_number("measured", (int64_t)calibration->time);
		json_count("measurements", calibration->rounds);
		json_count("cma_start_ns", calibration->cma_start);
		json_count("cma_ns_per_kib", calibration->cma_per_kib);
		json_count("buffers_near_ns_per_kib", calibration->near_per_kib);
		json_count("buffers_far_ns_per_kib", calibration->far_per_kib);
	}
	json_count("eager_max", eager.here);
	json_count("eager_max_usual", eager.usual);
	json_count("eager_max_least", eager.least);
	json_count("eager_max_most", eager.most);
	json_open_array("environment");
	for (char **each = environ; *each; each++)
		if (is_parameter(*each))
			json_string(NULL, *each);
	json_close_array();
	json_close_object();
}

static int show(const char *path)
{
	struct sc_calibration calibration;
	int ret = sc_calibration_load(&calibration);

	(command_json ? show_json : show_text)(ret ? NULL : &calibration, path);
	return ret && ret != -ENOENT && ret != -ESTALE ? COMMAND_FAULT : COMMAND_OK;
}

/* Between two measurements: a processor that is slow for a moment spoils only some. */
#define PAUSE_NS 20000000

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
	while (sc_calibration_make())
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	return show(path);
}

static bool anew;

static bool take(int letter, const char *argument)
{
	(void)argument;
	anew |= letter == 'm';
	return true;
}

static int run(int argc, char **argv)
{
	char path[SC_CALIBRATION_PATH_MAX];

	(void)argv;
	if (argc)
		return command_misused();
	sc_log_set(log_line);
	sc_calibration_path(path);
	return command_end(anew ? measure(path) : show(path));
}

static const struct command_option options[] = {
	{ "measure", 'm', true, NULL,
	  "measure it anew, for all processes of this user that begin from now on" },
	COMMAND_JSON,
	{ 0 },
};

const struct command tune_command = {
	.name = "tune",
	.full = "shmcma tune",
	.link = "shmcma-tune",
	.arguments = "",
	.words = "show or measure what copies cost",
	.about = "Shows what copies cost on this machine, by which libfabric's provider shmcma chooses "
		 "their way.",
	.status = "0; 1 if it could not be done",
	.options = options,
	.take = take,
	.run = run,
};
