/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command.h: the subcommands of shmcma, and their common options, messages and exit statuses.
 *
 * A subcommand is a table in its own file; command.c has the list of them, reads their options and prints their help.
 *
 * Exit status: 0; COMMAND_FAULT: a fault was found, nothing was found, or the output is not complete; COMMAND_USAGE:
 * wrong arguments.
 */
#ifndef UTIL_COMMAND_H
#define UTIL_COMMAND_H

#include <stdbool.h>

enum { COMMAND_OK = 0, COMMAND_FAULT = 1, COMMAND_USAGE = 2 };

/* An option of a subcommand beside --help and --version, which all have. A table ends with a name of NULL. */
struct command_option {
	const char *name;
	char letter;	      /* take() gets it */
	bool is_short;	      /* -LETTER is the same option */
	const char *argument; /* the name of its argument; NULL: it has none */
	const char *words;
};

/* Sets command_json. */
#define COMMAND_JSON                                                                                      \
	{                                                                                                 \
		"json", 'j', false, NULL, "print one JSON document"                                       \
	}

struct command {
	const char *name;
	const char *full;      /* in messages */
	const char *link;      /* a former name; NULL: none */
	const char *arguments; /* in the usage */
	const char *words;     /* in the list of the subcommands */
	const char *about;     /* lines of the help */
	const char *status;    /* the meaning of the exit status */
	bool runs_command;     /* the options end at the first argument */
	const struct command_option *options;
	bool (*take)(int letter, const char *argument); /* false: the argument is wrong */
	int (*run)(int argc, char **argv);		/* the arguments behind the options */
};

extern const struct command ps_command, top_command, stats_command, doctor_command, run_command,
	bench_command, reap_command, tune_command;

/* The name in messages: "shmcma ps", or the name of the link by which it was called. */
extern const char *command_name;
extern bool command_json;

/* Returns the status, or COMMAND_FAULT if the output could not be written. */
int command_end(int status);

/* Prints the usage to standard error. Returns COMMAND_USAGE. */
int command_misused(void);

/* Says on standard error that /dev/shm cannot be read, with that errno. */
void command_lacks_shm(int err);

/* Reads a number of that range, or says on standard error that the text is none. */
bool command_number(const char *text, double least, double most, double *number);

/* The same of a whole number, from 1 on. */
bool command_count(const char *text, int most, int *count);

#endif
