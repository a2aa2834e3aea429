/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reap.c: shmcma reap removes what dead processes have left in shared memory, as every process does that uses the
 * provider, for the time when there is none. shmcma(1).
 *
 * It harms no living process, whenever it runs, and may be killed at any instant: see src/proc/reap.c.
 */
#define _GNU_SOURCE 1
#include "command.h"

#include <getopt.h>
#include <stdio.h>
#include <shmcma/core.h>

static bool verbose, failed;

static const char usage[] =
	"usage: shmcma reap [-lnv]\n"
	"Removes what dead processes of this user have left of libfabric's provider shmcma in /dev/shm.\n"
	"\n"
	"  -l, --list     show all files of the provider, the living's too, and remove none\n"
	"  -n, --dry-run  show what would be removed, and remove nothing\n"
	"  -v, --verbose  say what is removed\n"
	"  -h, --help     this\n"
	"      --version\n"
	"\n"
	"Exit status: 0, 1 if something could not be looked at or removed, 2 for wrong arguments.\n";

static void log_line(enum sc_log_level level, const char *line)
{
	failed |= level == SC_LOG_WARN;
	if (level == SC_LOG_WARN || verbose)
		fprintf(stderr, "%s: %s\n", command_name, line);
}

static void show_file(const struct sc_reap_file *file, void *arg)
{
	const bool *all = arg;

	if (!file->dead && !*all)
		return;
	if (!*all)
		printf("/dev/shm/%s\n", file->name);
	else if (file->dead)
		printf("dead        -  %8llu KiB  /dev/shm/%s\n", (unsigned long long)file->bytes / 1024,
		       file->name);
	else
		printf("alive %7d  %8llu KiB  /dev/shm/%s\n", file->pid,
		       (unsigned long long)file->bytes / 1024, file->name);
}

int reap_run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "list", no_argument, NULL, 'l' },    { "dry-run", no_argument, NULL, 'n' },
		{ "verbose", no_argument, NULL, 'v' }, { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' }, { NULL, 0, NULL, 0 },
	};
	bool all = false, dry = false;
	int option, ret;

	while ((option = getopt_long(argc, argv, "lnvh", options, NULL)) != -1) {
		switch (option) {
		case 'l':
			all = true;
			break;
		case 'n':
			dry = true;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			return command_other(option, usage);
		}
	}
	if (optind < argc)
		return command_misused(usage);
	sc_log_set(log_line);
	ret = all || dry ? sc_reap_list(show_file, &all) : sc_reap_scan();
	if (!all && !dry)
		failed |= sc_reap_scan_unsure() < 0;
	return command_end(ret < 0 || failed ? COMMAND_FAULT : COMMAND_OK);
}
