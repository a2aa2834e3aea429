/* SPDX-License-Identifier: BSD-2-Clause */
/* finding.h: the result of one check of shmcma doctor, and how it is printed. */
#ifndef UTIL_FINDING_H
#define UTIL_FINDING_H

#include <stdbool.h>

enum finding_level { FINDING_OK, FINDING_WARNING, FINDING_FAULT };

#define FINDING_TEXT 512
struct finding {
	enum finding_level level;
	const char *check;
	char what[FINDING_TEXT];
	char why[FINDING_TEXT], remedy[FINDING_TEXT]; /* empty if there is nothing to say */
};

/* Begins a finding of that check: ok. */
void finding_init(struct finding *finding, const char *check);

/* Write one of the texts. */
void finding_what(struct finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
void finding_why(struct finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
void finding_remedy(struct finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Begin and end the list; the second function returns the worst level that was shown. */
void findings_begin(bool json);
enum finding_level findings_end(void);
void finding_show(const struct finding *finding);

#endif
