/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command.c: shmcma, the operator's command: it finds the subcommand, reads its options and runs it. shmcma(1).
 *
 * The names shmcma-reap and shmcma-tune of the first checkouts are links to it, for one release.
 */
#define _GNU_SOURCE 1
#include "command.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "streams.h"

#define OPTIONS_MAX 16

const char *command_name = "shmcma";
bool command_json;

/* In the order of the help. shmcma --help prints them with their options; the completion of the shell reads that. */
static const struct command *const commands[] = { &ps_command,	   &top_command, &stats_command,
						  &doctor_command, &run_command, &bench_command,
						  &reap_command,   &tune_command };
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *running; /* NULL: none yet */

/* ---- help ------------------------------------------------------------------------------------ */

static void print_options(FILE *to, const char *before, const char *behind)
{
	for (const struct command_option *each = running->options; each->name; each++) {
		if (each->is_short)
			fprintf(to, "%s-%c", before, each->letter);
		else
			fprintf(to, "%s--%s", before, each->name);
		fprintf(to, "%s%s%s", each->argument ? " " : "", each->argument ? each->argument : "",
			behind);
	}
}

static void print_usage(FILE *to)
{
	if (!running) {
		fputs("usage: shmcma COMMAND [OPTION...] [ARGUMENT...]\n", to);
		return;
	}
	fprintf(to, "usage: %s", command_name);
	print_options(to, " [", "]");
	fprintf(to, "%s%s\n", *running->arguments ? " " : "", running->arguments);
}

static void print_option(char letter, const char *name, const char *argument, const char *words)
{
	char left[32];

	snprintf(left, sizeof(left), "%c%c%c --%s%s%s", letter ? '-' : ' ', letter ? letter : ' ',
		 letter ? ',' : ' ', name, argument ? " " : "", argument ? argument : "");
	printf("  %-22s %s\n", left, words);
}

static int help(void)
{
	print_usage(stdout);
	printf("%s\n\n", running->about);
	for (const struct command_option *each = running->options; each->name; each++)
		print_option(each->is_short ? each->letter : '\0', each->name, each->argument,
			     each->words);
	print_option('h', "help", NULL, "this");
	print_option('\0', "version", NULL, "the version");
	printf("\nExit status: %s; 2 for wrong arguments.\n", running->status);
	return command_end(COMMAND_OK);
}

static int help_all(void)
{
	print_usage(stdout);
	puts("Looks after libfabric's provider shmcma on this machine, for the calling user.\n");
	for (size_t i = 0; i < COMMANDS; i++) {
		running = commands[i];
		printf("  %-7s %s\n         ", running->name, running->words);
		print_options(stdout, " ", "");
		putchar('\n');
	}
	puts("\nEach command has --help and --version.\n"
	     "Exit status: 0; 1 if a fault, or nothing, was found; 2 for wrong arguments.");
	return command_end(COMMAND_OK);
}

static int version(void)
{
	printf("%s " SHMCMA_VERSION "\n", command_name);
	return command_end(COMMAND_OK);
}

/* ---- for all subcommands --------------------------------------------------------------------- */

int command_end(int status)
{
	return streams_fini(command_name) ? status : COMMAND_FAULT;
}

int command_misused(void)
{
	print_usage(stderr);
	fprintf(stderr, "%s --help tells more\n", command_name);
	return COMMAND_USAGE;
}

void command_lacks_shm(int err)
{
	fprintf(stderr, "%s: cannot read /dev/shm: %s; a tmpfs must be mounted there\n", command_name,
		strerror(err));
}

bool command_number(const char *text, double least, double most, double *number)
{
	char *end;

	*number = strtod(text, &end);
	if (end != text && !*end && *number >= least && *number <= most)
		return true;
	fprintf(stderr, "%s: %s is not a number from %g to %g\n", command_name, text, least, most);
	return false;
}

bool command_count(const char *text, int most, int *count)
{
	char *end;
	long number = strtol(text, &end, 10);

	*count = (int)number;
	if (end != text && !*end && number >= 1 && number <= most)
		return true;
	fprintf(stderr, "%s: %s is not a whole number from 1 to %d\n", command_name, text, most);
	return false;
}

/* ---- options --------------------------------------------------------------------------------- */

/* The tables of getopt_long(3) for the subcommand. */
static void make_tables(struct option longs[OPTIONS_MAX], char shorts[2 * OPTIONS_MAX])
{
	static const struct option help_option = { "help", no_argument, NULL, 'h' },
				   version_option = { "version", no_argument, NULL, 'V' };
	size_t count = 0;

	if (running->runs_command)
		*shorts++ = '+';
	*shorts++ = 'h';
	for (const struct command_option *each = running->options; each->name && count < OPTIONS_MAX - 3;
	     each++) {
		int has = each->argument ? required_argument : no_argument;

		longs[count++] = (struct option){ each->name, has, NULL, each->letter };
		if (each->is_short)
			*shorts++ = each->letter;
		if (each->is_short && each->argument)
			*shorts++ = ':';
	}
	*shorts = '\0';
	longs[count++] = help_option;
	longs[count++] = version_option;
	longs[count] = (struct option){ NULL, 0, NULL, 0 };
}

static int run(const struct command *command, const char *name, int argc, char **argv)
{
	struct option longs[OPTIONS_MAX];
	char shorts[2 * OPTIONS_MAX];
	int letter;

	running = command;
	command_name = name;
	argv[0] = (char *)name; /* for the messages of getopt_long() */
	make_tables(longs, shorts);
	while ((letter = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (letter == 'h')
			return help();
		if (letter == 'V')
			return version();
		if (letter == 'j')
			command_json = true;
		else if (letter == '?' || !command->take(letter, optarg))
			return command_misused();
	}
	return command->run(argc - optind, argv + optind);
}

static int run_named(int argc, char **argv)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i]->name))
			return run(commands[i], commands[i]->full, argc - 1, argv + 1);
	if (!strcmp(argv[1], "--version"))
		return version();
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return help_all();
	fprintf(stderr, "shmcma: there is no command %s\n", argv[1]);
	return command_misused();
}

int main(int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc ? argv[0] : "";

	if (!streams_init())
		return COMMAND_FAULT;
	for (size_t i = 0; i < COMMANDS; i++)
		if (commands[i]->link && !strcmp(name, commands[i]->link))
			return run(commands[i], commands[i]->link, argc, argv);
	return argc < 2 ? command_misused() : run_named(argc, argv);
}
