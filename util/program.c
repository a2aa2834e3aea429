/* SPDX-License-Identifier: BSD-2-Clause */
/* program.c: the process that owns a segment, in words. */
#include "program.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include "json.h"

/* Names are chosen by others: no control characters for the terminal, and no spaces, which would be more columns. */
static void make_word(char *name)
{
	if (!*name)
		strcpy(name, "-");
	for (; *name; name++)
		if (*name <= ' ' || *name > '~')
			*name = '?';
}

void program_name(int pid, char name[PROGRAM_MAX])
{
	char path[32];
	FILE *comm = NULL;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (pid > 0)
		comm = fopen(path, "re");
	if (!comm || !fgets(name, PROGRAM_MAX, comm))
		strcpy(name, "-");
	if (comm)
		fclose(comm);
	name[strcspn(name, "\n")] = '\0';
	make_word(name);
}

void program_age(int64_t age, char text[PROGRAM_AGE])
{
	if (age < 0)
		strcpy(text, "-");
	else if (age < 3600)
		snprintf(text, PROGRAM_AGE, "%" PRId64 ":%02d", age / 60, (int)(age % 60));
	else if (age < 86400)
		snprintf(text, PROGRAM_AGE, "%" PRId64 "h%02d", age / 3600, (int)(age / 60 % 60));
	else
		snprintf(text, PROGRAM_AGE, "%" PRId64 "d%02dh", age / 86400, (int)(age / 3600 % 24));
}

void program_user(uint32_t uid, char name[PROGRAM_MAX])
{
	static uint32_t known =
		UINT32_MAX; /* mostly all files are of one user, and a directory service may be slow */
	static char name_known[PROGRAM_MAX];
	const struct passwd *user;

	if (uid == known && uid != UINT32_MAX) {
		strcpy(name, name_known);
		return;
	}
	user = uid == UINT32_MAX ? NULL : getpwuid(uid);
	if (user)
		snprintf(name, PROGRAM_MAX, "%s", user->pw_name);
	else if (uid == UINT32_MAX)
		strcpy(name, "-");
	else
		snprintf(name, PROGRAM_MAX, "%" PRIu32, uid);
	make_word(name);
	known = uid;
	strcpy(name_known, name);
}

const char *program_state(enum sc_survey_state state)
{
	switch (state) {
	case SC_SURVEY_LIVE:
		return "live";
	case SC_SURVEY_STOPPED:
		return "stopped";
	case SC_SURVEY_CLOSED:
		return "closed";
	case SC_SURVEY_DEAD:
		return "dead";
	default:
		return "unknown";
	}
}

void program_json(const struct sc_survey_seg *seg)
{
	char program[PROGRAM_MAX];

	program_name(seg->pid, program);
	json_string("file", seg->name);
	json_string("address", seg->fault ? NULL : seg->address);
	json_number("pid", seg->pid);
	json_string("program", program);
	json_string("state", program_state(seg->state));
}

void program_json_counters(const char *key, const struct sc_counters *counters)
{
	json_open_object(key);
	for (size_t i = 0; i < SC_COUNTERS; i++)
		json_count(sc_counter_names[i].name, sc_counter_value(counters, &sc_counter_names[i]));
	json_close_object();
}
