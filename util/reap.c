/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reap.c: shmcma reap removes what dead processes have left in shared memory, as every process does that uses the
 * provider, for the time when there is none. shmcma(1).
 *
 * It harms no living process, whenever it runs, and may be killed at any instant: see src/proc/reap.c.
 */
#include "command.h"

#include <stdio.h>
#include <shmcma/core.h>
#include "json.h"

static bool all, dry, verbose, failed;

static void log_line(enum sc_log_level level, const char *line)
{
	failed |= level == SC_LOG_WARN;
	if (level == SC_LOG_WARN || verbose)
		fprintf(stderr, "%s: %s\n", command_name, line);
}

static void show_json(const struct sc_reap_file *file)
{
	json_open_object(NULL);
	json_string("file", file->name);
	json_string("state", file->dead ? "dead" : "alive");
	json_number("pid", file->pid);
	json_count("memory_bytes", file->bytes);
	json_close_object();
}

static void show_file(const struct sc_reap_file *file, void *arg)
{
	(void)arg;
	if (!file->dead && !all)
		return;
	if (command_json)
		show_json(file);
	else if (!all)
		printf("/dev/shm/%s\n", file->name);
	else if (file->dead)
		printf("dead        -  %8llu KiB  /dev/shm/%s\n", (unsigned long long)file->bytes / 1024,
		       file->name);
	else
		printf("alive %7d  %8llu KiB  /dev/shm/%s\n", file->pid,
		       (unsigned long long)file->bytes / 1024, file->name);
}

/* With --json also the files that are to be removed are shown. */
static int list(void)
{
	int ret;

	if (!command_json)
		return sc_reap_list(show_file, NULL);
	json_open_object(NULL);
	json_open_array("files");
	ret = sc_reap_list(show_file, NULL);
	json_close_array();
	json_close_object();
	return ret;
}

static bool take(int letter, const char *argument)
{
	(void)argument;
	all |= letter == 'l';
	dry |= letter == 'n';
	verbose |= letter == 'v';
	return true;
}

/* Each step logs that it cannot read /dev/shm; then the next one cannot either. */
static int run(int argc, char **argv)
{
	int ret = 0;

	(void)argv;
	if (argc)
		return command_misused();
	sc_log_set(log_line);
	if (all || dry || command_json)
		ret = list();
	if (ret >= 0 && !all && !dry)
		ret = sc_reap_scan();
	if (ret >= 0 && !all && !dry)
		ret = sc_reap_scan_unsure();
	return command_end(failed || ret < 0 ? COMMAND_FAULT : COMMAND_OK);
}

static const struct command_option options[] = {
	{ "list", 'l', true, NULL, "show all files of the provider, the living's too, and remove none" },
	{ "dry-run", 'n', true, NULL, "show what would be removed, and remove nothing" },
	{ "verbose", 'v', true, NULL, "say what is removed" },
	COMMAND_JSON,
	{ 0 },
};

const struct command reap_command = {
	.name = "reap",
	.full = "shmcma reap",
	.link = "shmcma-reap",
	.arguments = "",
	.words = "remove what dead processes have left in /dev/shm",
	.about = "Removes what dead processes of this user have left of libfabric's provider shmcma in "
		 "/dev/shm.",
	.status = "0; 1 if something could not be looked at or removed",
	.options = options,
	.take = take,
	.run = run,
};
