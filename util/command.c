/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command.c: shmcma, the operator's command: it finds the subcommand and runs it. shmcma(1).
 *
 * The names shmcma-reap and shmcma-tune of the first checkouts are links to it, for one release.
 */
#define _GNU_SOURCE 1
#include "command.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include "streams.h"

const char *command_name = "shmcma";

static const struct command {
	const char *name, *full, *link;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "ps", "shmcma ps", NULL, ps_run },
	{ "stats", "shmcma stats", NULL, stats_run },
	{ "doctor", "shmcma doctor", NULL, doctor_run },
	{ "reap", "shmcma reap", "shmcma-reap", reap_run },
	{ "tune", "shmcma tune", "shmcma-tune", tune_run },
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const char usage[] =
	"usage: shmcma COMMAND [OPTION...] [ARGUMENT...]\n"
	"Looks after libfabric's provider shmcma on this machine, for the calling user.\n"
	"\n"
	"  ps      show the endpoints: their processes, peers, memory and unread records\n"
	"  stats   show the counters of an endpoint\n"
	"  doctor  look for the reasons why the provider is not found, fails or is slow\n"
	"  reap    remove what dead processes have left in /dev/shm\n"
	"  tune    show or measure what copies cost\n"
	"\n"
	"  -h, --help     this; behind a command: its options\n"
	"      --version\n"
	"\n"
	"Exit status: 0; 1 if a fault, or nothing, was found; 2 for wrong arguments.\n";

int command_end(int status)
{
	return streams_fini(command_name) ? status : COMMAND_FAULT;
}

int command_misused(const char *text)
{
	fputs(text, stderr);
	return COMMAND_USAGE;
}

int command_help(const char *text)
{
	fputs(text, stdout);
	return command_end(COMMAND_OK);
}

int command_version(void)
{
	printf("%s " SHMCMA_VERSION "\n", command_name);
	return command_end(COMMAND_OK);
}

int command_other(int option, const char *text)
{
	if (option == 'h')
		return command_help(text);
	return option == 'V' ? command_version() : command_misused(text);
}

int command_options(int argc, char **argv, const char *text, bool *json)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option != 'j')
			return command_other(option, text);
		*json = true;
	}
	return -1;
}

static int run(const struct command *command, const char *name, int argc, char **argv)
{
	command_name = name;
	argv[0] = (char *)name; /* for the messages of getopt_long() */
	return command->run(argc, argv);
}

static int run_named(int argc, char **argv)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return run(&commands[i], commands[i].full, argc - 1, argv + 1);
	if (!strcmp(argv[1], "--version"))
		return command_version();
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return command_help(usage);
	fprintf(stderr, "shmcma: there is no command %s\n", argv[1]);
	return command_misused(usage);
}

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc ? argv[0] : "";

	if (!streams_init())
		return COMMAND_FAULT;
	for (size_t i = 0; i < COMMANDS; i++)
		if (commands[i].link && !strcmp(name, commands[i].link))
			return run(&commands[i], commands[i].link, argc, argv);
	return argc < 2 ? command_misused(usage) : run_named(argc, argv);
}
