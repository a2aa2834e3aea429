/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ps.c: shmcma ps shows the segments of this user on this machine. shmcma(1).
 *
 * It only reads: see src/proc/survey.c.
 */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <shmcma/core.h>
#include "json.h"
#include "program.h"

static const char usage[] =
	"usage: shmcma ps [--json]\n"
	"Shows the endpoints of this user on this machine, one a line, and changes nothing.\n"
	"\n"
	"      --json     print one JSON document\n"
	"  -h, --help     this\n"
	"      --version\n"
	"\n"
	"Exit status: 0; 1 if there is no endpoint, or /dev/shm cannot be read; 2 for wrong arguments.\n";

static unsigned int shown;

static void show_json(const struct sc_survey_seg *seg, void *arg)
{
	char program[PROGRAM_MAX];

	(void)arg;
	shown++;
	program_name(seg->pid, program);
	json_open_object(NULL);
	json_string("file", seg->name);
	json_string("address", seg->fault ? NULL : seg->address);
	json_string("fault", seg->fault);
	json_number("pid", seg->pid);
	json_string("program", program);
	json_string("state", program_state(seg->state));
	json_number("age_seconds", seg->age);
	json_count("peers", seg->peers);
	json_count("slots", seg->slots);
	json_count("buffers", seg->bufs);
	json_count("buffers_max", seg->bufs_max);
	json_count("buffer_bytes", seg->buf_size);
	json_count("unread_records", seg->records);
	json_count("unread_lines", seg->record_lines);
	json_count("ring_lines", seg->ring_lines);
	json_count("overflowed_rings", seg->overflows);
	json_count("memory_bytes", seg->bytes);
	json_close_object();
}

/* Writes the age with its two largest units. */
static void format_age(int64_t age, char text[32])
{
	if (age < 0)
		strcpy(text, "-");
	else if (age < 3600)
		snprintf(text, 32, "%" PRId64 ":%02d", age / 60, (int)(age % 60));
	else if (age < 86400)
		snprintf(text, 32, "%" PRId64 "h%02d", age / 3600, (int)(age / 60 % 60));
	else
		snprintf(text, 32, "%" PRId64 "d%02dh", age / 86400, (int)(age / 3600 % 24));
}

/* A + behind the number of records: more are in bounce buffers. */
static void show_line(const struct sc_survey_seg *seg, void *arg)
{
	char program[PROGRAM_MAX], age[32];

	(void)arg;
	if (!shown++)
		printf("%7s  %-15s  %-7s  %6s  %5s  %5s  %9s  %6s  %8s  %s\n", "PID", "PROGRAM", "STATE", "AGE",
		       "PEERS", "SLOTS", "BUFFERS", "UNREAD", "KIB", "ADDRESS");
	program_name(seg->pid, program);
	format_age(seg->age, age);
	printf("%7d  %-15s  %-7s  %6s  ", seg->pid, program, program_state(seg->state), age);
	if (seg->fault)
		printf("%5s  %5s  %9s  %6s  %8" PRIu64 "  /dev/shm/%s: %s\n", "-", "-", "-", "-", seg->bytes / 1024,
		       seg->name, seg->fault);
	else
		printf("%5" PRIu32 "  %5" PRIu32 "  %4" PRIu32 "/%-4" PRIu32 "  %5" PRIu32 "%s  %8" PRIu64 "  %s\n",
		       seg->peers, seg->slots, seg->bufs, seg->bufs_max, seg->records, seg->overflows ? "+" : " ",
		       seg->bytes / 1024, seg->address);
}

static int show(bool json)
{
	int err;

	if (json) {
		json_open_object(NULL);
		json_open_array("endpoints");
	}
	err = sc_survey_list(json ? show_json : show_line, NULL);
	if (json) {
		json_close_array();
		json_close_object();
	}
	if (err)
		fprintf(stderr, "%s: cannot read /dev/shm: %s; a tmpfs must be mounted there\n", command_name,
			strerror(-err));
	else if (!shown)
		fprintf(stderr, "%s: this user has no endpoint on this machine\n", command_name);
	return command_end(shown ? COMMAND_OK : COMMAND_FAULT);
}

int ps_run(int argc, char **argv)
{
	bool json = false;
	int status = command_options(argc, argv, usage, &json);

	if (status >= 0)
		return status;
	return optind < argc ? command_misused(usage) : show(json);
}
