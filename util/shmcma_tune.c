/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shmcma-tune: what copies cost on this machine, as the provider has measured it, or anew. shmcma-tune(1).
 *
 * It may be run at any time and be killed at any instant: see src/calibration.c.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <shmcma/core.h>

#define PREFIX "FI_SHMCMA_"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

extern char **environ;

static const char usage[] =
	"usage: shmcma-tune [-m | -r]\n"
	"Shows what copies cost on this machine, by which libfabric's provider shmcma chooses their way.\n"
	"\n"
	"  -m, --measure  measure it anew, for all processes of this user that begin from now on\n"
	"  -r, --remove   forget it; the next process measures it\n"
	"  -h, --help     this\n"
	"      --version\n"
	"\n"
	"Exit status: 0, 1 if it could not be done, 2 for wrong arguments.\n";

static void log_line(enum sc_log_level level, const char *line)
{
	(void)level;
	fprintf(stderr, "shmcma-tune: %s\n", line);
}

static int failed(const char *what, int ret)
{
	fprintf(stderr, "shmcma-tune: %s: %s\n", what, strerror(-ret));
	return EXIT_FAILED;
}

static void show_cost(const char *what, const struct sc_cost *cost)
{
	printf("%s  %6.3f us + %.3f us/KiB\n", what, cost->start / 1e3, cost->per_kib / 1e3);
}

static void show_source(const struct sc_calibration *calibration, const char *path)
{
	time_t when = (time_t)calibration->time;
	struct tm tm;
	char text[64] = "?";

	if (localtime_r(&when, &tm))
		(void)strftime(text, sizeof(text), "%F %T", &tm);
	printf("measured             %s, %s\n", text, path);
}

/* What overrides it, here. */
static void show_environment(void)
{
	for (char **each = environ; *each; each++)
		if (!strncmp(*each, PREFIX, strlen(PREFIX)))
			printf("environment          %s\n", *each);
}

static int show(const char *path)
{
	struct sc_calibration calibration;
	struct sc_config config;
	int ret = sc_calibration_load(&calibration);

	sc_config_init(&config);
	if (!ret) {
		sc_calibration_apply(&calibration, &config);
		show_source(&calibration, path);
		show_cost("process_vm_readv   ", &calibration.cma);
	} else {
		printf("measured             not yet, or not for this boot; taken as usual\n");
	}
	show_cost("one rendezvous     ", &config.rendezvous);
	show_environment();
	return ret && ret != -ENOENT && ret != -ESTALE ? EXIT_FAILED : EXIT_SUCCESS;
}

static int measure(const char *path)
{
	struct sc_calibration calibration;
	int ret = sc_calibration_measure(&calibration);

	if (ret)
		return failed("cannot measure", ret);
	ret = sc_calibration_store(&calibration);
	return ret ? failed(path, ret) : show(path);
}

static int forget(const char *path)
{
	int ret = sc_calibration_remove();

	return ret && ret != -ENOENT ? failed(path, ret) : EXIT_SUCCESS;
}

static int misused(void)
{
	fputs(usage, stderr);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "measure", no_argument, NULL, 'm' }, { "remove", no_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },    { "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int (*act)(const char *path) = show;
	char path[SC_CALIBRATION_PATH_MAX];
	int option, ret;

	while ((option = getopt_long(argc, argv, "mrh", options, NULL)) != -1) {
		switch (option) {
		case 'm':
		case 'r':
			if (act != show)
				return misused();
			act = option == 'm' ? measure : forget;
			break;
		case 'h':
			fputs(usage, stdout);
			return EXIT_SUCCESS;
		case 'V':
			puts("shmcma-tune " SHMCMA_VERSION);
			return EXIT_SUCCESS;
		default:
			return misused();
		}
	}
	if (optind < argc)
		return misused();
	sc_log_set(log_line);
	sc_calibration_path(path);
	ret = act(path);
	return fflush(stdout) ? EXIT_FAILED : ret;
}
