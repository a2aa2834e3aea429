/* SPDX-License-Identifier: BSD-2-Clause */
/* program.c: the process that owns a segment, in words. */
#include "program.h"

#include <stdio.h>
#include <string.h>

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
	for (char *at = name; *at; at++) /* the process chooses its name: no control characters for the terminal */
		if (*at < ' ' || *at > '~')
			*at = '?';
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
	default:
		return "dead";
	}
}
