/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef UTIL_PROGRAM_H
#define UTIL_PROGRAM_H

#include <shmcma/core.h>

#define PROGRAM_MAX 64
/* Writes the name of the program that the process runs; "-" if it is not known. Only printable ASCII. */
void program_name(int pid, char name[PROGRAM_MAX]);

#define PROGRAM_AGE 32
/* Writes the age, in seconds, with its two largest units; "-" if it is negative: not known. */
void program_age(int64_t age, char text[PROGRAM_AGE]);

/* Writes the name of the user, or the number of one that has none; "-" for UINT32_MAX: not known. Only printable ASCII. */
void program_user(uint32_t uid, char name[PROGRAM_MAX]);

/* Writes what all commands say in JSON of a segment and its owner, into the object that is open. */
void program_json(const struct sc_survey_seg *seg);

void program_json_counters(const char *key, const struct sc_counters *counters);

/* Returns the state of a segment's owner as a word. */
const char *program_state(enum sc_survey_state state);

#endif
