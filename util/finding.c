/* SPDX-License-Identifier: BSD-2-Clause */
/* finding.c: see finding.h. */
#include "finding.h"

#include <stdarg.h>
#include <stdio.h>
#include "json.h"

static const char *const levels[] = {
	[FINDING_OK] = "ok", [FINDING_WARNING] = "warning", [FINDING_FAULT] = "fault"
};

static bool as_json;
static enum finding_level worst;

void finding_init(struct finding *finding, const char *check)
{
	*finding = (struct finding){ .level = FINDING_OK, .check = check };
}

#define FORMAT_INTO(text)                                                                                 \
	do {                                                                                              \
		va_list arguments;                                                                        \
		va_start(arguments, format);                                                              \
		(void)vsnprintf(text, FINDING_TEXT, format, arguments);                                   \
		va_end(arguments);                                                                        \
	} while (0)

void finding_what(struct finding *finding, const char *format, ...)
{
	FORMAT_INTO(finding->what);
}

void finding_why(struct finding *finding, const char *format, ...)
{
	FORMAT_INTO(finding->why);
}

void finding_remedy(struct finding *finding, const char *format, ...)
{
	FORMAT_INTO(finding->remedy);
}

void findings_begin(bool json)
{
	as_json = json;
	if (!json)
		return;
	json_open_object(NULL);
	json_open_array("checks");
}

enum finding_level findings_end(void)
{
	if (as_json) {
		json_close_array();
		json_string("result", levels[worst]);
		json_close_object();
	}
	return worst;
}

static void show_json(const struct finding *finding)
{
	json_open_object(NULL);
	json_string("check", finding->check);
	json_string("level", levels[finding->level]);
	json_string("found", finding->what);
	json_string("why", *finding->why ? finding->why : NULL);
	json_string("remedy", *finding->remedy ? finding->remedy : NULL);
	json_close_object();
}

/* Texts may come from the environment and from other processes: no control characters for the terminal. */
static void print_clean(const char *before, const char *text)
{
	if (!*text)
		return;
	fputs(before, stdout);
	for (; *text; text++)
		putchar((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text);
}

void finding_show(const struct finding *finding)
{
	if (finding->level > worst)
		worst = finding->level;
	if (as_json) {
		show_json(finding);
		return;
	}
	printf("%-7s  ", levels[finding->level]);
	print_clean("", finding->check);
	print_clean(": ", finding->what);
	print_clean(": ", finding->why);
	print_clean("; ", finding->remedy);
	putchar('\n');
}
