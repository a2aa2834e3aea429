/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef UTIL_PROGRAM_H
#define UTIL_PROGRAM_H

#include <shmcma/core.h>

#define PROGRAM_MAX 64
/* Writes the name of the program that the process runs; "-" if it is not known. Only printable ASCII. */
void program_name(int pid, char name[PROGRAM_MAX]);

/* Returns the state of a segment's owner as a word. */
const char *program_state(enum sc_survey_state state);

#endif
