/* SPDX-License-Identifier: BSD-2-Clause */
/* json.c: see json.h. Keeps how deep the document is, and whether a value comes first at its depth. */
#include "json.h"

#include <inttypes.h>
#include <stdio.h>

static unsigned int depth;
static bool begun; /* the object or array has a value already */

static void write_string(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte == '"' || byte == '\\')
			printf("\\%c", byte);
		else if (byte < 0x20 || byte > 0x7e)
			printf("\\u%04x", byte);
		else
			putchar(byte);
	}
	putchar('"');
}

static void new_line(void)
{
	putchar('\n');
	for (unsigned int i = 0; i < depth; i++)
		putchar('\t');
}

static void begin_value(const char *key)
{
	if (begun)
		putchar(',');
	if (depth)
		new_line();
	begun = true;
	if (!key)
		return;
	write_string(key);
	fputs(": ", stdout);
}

static void open_with(const char *key, char bracket)
{
	begin_value(key);
	putchar(bracket);
	depth++;
	begun = false;
}

static void close_with(char bracket)
{
	depth--;
	if (begun)
		new_line();
	putchar(bracket);
	begun = true;
	if (!depth)
		putchar('\n');
}

void json_open_object(const char *key)
{
	open_with(key, '{');
}

void json_close_object(void)
{
	close_with('}');
}

void json_open_array(const char *key)
{
	open_with(key, '[');
}

void json_close_array(void)
{
	close_with(']');
}

void json_string(const char *key, const char *value)
{
	begin_value(key);
	if (value)
		write_string(value);
	else
		fputs("null", stdout);
}

void json_number(const char *key, int64_t value)
{
	begin_value(key);
	printf("%" PRId64, value);
}

void json_count(const char *key, uint64_t value)
{
	begin_value(key);
	printf("%" PRIu64, value);
}

void json_real(const char *key, double value)
{
	begin_value(key);
	printf("%.6g", value);
}
