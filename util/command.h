/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command.h: the subcommands of shmcma, and their common options, messages and exit statuses.
 *
 * Exit status: 0; COMMAND_FAULT: a fault was found, nothing was found, or the output is not complete; COMMAND_USAGE:
 * wrong arguments.
 */
#ifndef UTIL_COMMAND_H
#define UTIL_COMMAND_H

#include <stdbool.h>

enum { COMMAND_OK = 0, COMMAND_FAULT = 1, COMMAND_USAGE = 2 };

/* The name in messages: "shmcma ps", or the name of the link by which it was called. */
extern const char *command_name;

int reap_run(int argc, char **argv);
int tune_run(int argc, char **argv);
int ps_run(int argc, char **argv);
int stats_run(int argc, char **argv);
int doctor_run(int argc, char **argv);

/* Returns the status, or COMMAND_FAULT if the output could not be written. */
int command_end(int status);

/* Prints the usage to standard error. Returns COMMAND_USAGE. */
int command_misused(const char *usage);

/* Prints "COMMAND VERSION". Returns the exit status. */
int command_version(void);

/* The same for the usage. */
int command_help(const char *usage);

/* Does what getopt_long(3) has found, beside the options of a subcommand: 'h', 'V', or a wrong one. Returns the status. */
int command_other(int option, const char *usage);

/*
 * Reads the options of a subcommand that has only --json, --help and --version. Returns -1: go on, the arguments begin
 * at optind; else the exit status.
 */
int command_options(int argc, char **argv, const char *usage, bool *json);

#endif
