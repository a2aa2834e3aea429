/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stats.c: shmcma stats shows the counters of endpoints, read from the memory of their owners. shmcma(1).
 *
 * The owners do nothing for it: see src/proc/survey.c.
 */
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shmcma/core.h>
#include "access.h"
#include "finding.h"
#include "json.h"
#include "program.h"

/* The endpoints to show. */
struct wanted {
	const char *name; /* as it was given */
	int pid;	  /* 0: the name is no number */
	bool failed;
	unsigned int found;
};

static bool is_wanted(const struct sc_survey_seg *seg, const struct wanted *wanted)
{
	static const char dir[] = "/dev/shm/";
	const char *name = wanted->name;

	if (wanted->pid)
		return seg->pid == wanted->pid;
	if (!strncmp(name, dir, strlen(dir)))
		name += strlen(dir);
	return !strcmp(name, seg->name) || (!seg->fault && !strcmp(name, seg->address));
}

#define ADVICE_MAX (2 * FINDING_TEXT + 8)

/* Writes what forbids this process to read the memory of the owner, and the remedy. */
static void explain(int err, const struct sc_survey_seg *seg, char text[ADVICE_MAX])
{
	struct finding finding;

	finding_init(&finding, "process");
	if (seg->pid)
		access_check_process(&finding, seg->pid);
	if (*finding.why)
		snprintf(text, ADVICE_MAX, "%s; %s", finding.why, finding.remedy);
	else
		snprintf(text, ADVICE_MAX, "the kernel forbids it: %s", strerror(err));
}

/* Writes why the counters cannot be read, and the remedy. */
static void advise(int err, const struct sc_survey_seg *seg, char text[ADVICE_MAX])
{
	if (seg->fault)
		snprintf(text, ADVICE_MAX, "%s", seg->fault);
	else if (err == ESRCH)
		snprintf(text, ADVICE_MAX, "its process has ended, and the counters with it");
	else if (err == EPROTO)
		snprintf(text, ADVICE_MAX, "it is of another version of shmcma; use the command of that version");
	else
		explain(err, seg, text);
}

static void show_json(const struct sc_survey_seg *seg, const struct sc_counters *now, const char *fault)
{
	json_open_object(NULL);
	program_json(seg);
	json_string("fault", fault);
	if (!fault)
		program_json_counters("counters", now);
	json_close_object();
}

static void show_lines(const struct sc_survey_seg *seg, const struct sc_counters *now)
{
	char program[PROGRAM_MAX];

	program_name(seg->pid, program);
	printf("%s, pid %d, %s, %s\n", seg->address, seg->pid, program, program_state(seg->state));
	for (size_t i = 0; i < SC_COUNTERS; i++)
		printf("%20" PRIu64 "  %s\n", sc_counter_value(now, &sc_counter_names[i]),
		       sc_counter_names[i].words);
}

static void show_seg(const struct sc_survey_seg *seg, void *arg)
{
	struct wanted *wanted = arg;
	struct sc_counters now = { 0 };
	char fault[ADVICE_MAX];
	int err;

	if (!is_wanted(seg, wanted))
		return;
	wanted->found++;
	err = sc_survey_counters(seg, &now);
	wanted->failed |= err < 0;
	if (err) {
		advise(-err, seg, fault);
		fprintf(stderr, "%s: cannot read the counters of /dev/shm/%s: %s\n", command_name, seg->name, fault);
	}
	if (command_json)
		show_json(seg, &now, err ? fault : NULL);
	else if (!err)
		show_lines(seg, &now);
}

static int show(struct wanted *wanted)
{
	int err;

	if (command_json) {
		json_open_object(NULL);
		json_open_array("endpoints");
	}
	err = sc_survey_list(show_seg, wanted);
	if (command_json) {
		json_close_array();
		json_close_object();
	}
	if (err)
		command_lacks_shm(-err);
	else if (!wanted->found)
		fprintf(stderr, "%s: this user has no endpoint %s on this machine; shmcma ps shows them\n",
			command_name, wanted->name);
	return command_end(wanted->found && !wanted->failed ? COMMAND_OK : COMMAND_FAULT);
}

static int run(int argc, char **argv)
{
	struct wanted wanted = { 0 };

	if (argc != 1)
		return command_misused();
	wanted.name = argv[0];
	if (*wanted.name && !wanted.name[strspn(wanted.name, "0123456789")] &&
	    !command_count(wanted.name, INT_MAX, &wanted.pid))
		return command_misused();
	return show(&wanted);
}

static const struct command_option options[] = { COMMAND_JSON, { 0 } };

const struct command stats_command = {
	.name = "stats",
	.full = "shmcma stats",
	.arguments = "PID|NAME",
	.words = "show the counters of an endpoint",
	.about = "Shows the counters of the endpoints of a process, or of one endpoint, as they are now.\n"
		 "NAME is the address of the endpoint or the name of its file, both as shmcma ps shows "
		 "them.",
	.status = "0; 1 if there is no such endpoint, or counters cannot be read",
	.options = options,
	.run = run,
};
