/* SPDX-License-Identifier: BSD-2-Clause */
/* table.c: see table.h. Called by the parent of the groups. */
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_add(struct table *table, int subject, const struct result *result)
{
	size_t room = table->count + (size_t)result->count;

	if (room > table->room) {
		table->room = 2 * room;
		table->entries = realloc(table->entries, table->room * sizeof(table->entries[0]));
		if (!table->entries) {
			perror("table");
			exit(1);
		}
	}
	for (int i = 0; i < result->count; i++)
		table->entries[table->count++] = (struct entry){ subject, result->samples[i] };
}

static int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double median(double *values, size_t count)
{
	if (!count)
		return NAN;
	qsort(values, count, sizeof(values[0]), compare_doubles);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* The median of all turns; NAN if one of them has not had it, or none has come so far. */
static double cell(const struct table *table, int figure, int subject, double x)
{
	double values[TURNS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < table->count; i++) {
		const struct entry *entry = &table->entries[i];

		if (entry->sample.figure != figure || entry->subject != subject || entry->sample.x != x)
			continue;
		if (isnan(entry->sample.value))
			return NAN;
		if (count < TURNS_MAX)
			values[count++] = entry->sample.value;
	}
	return median(values, count);
}

static int column(const char *name)
{
	return strlen(name) > 12 ? (int)strlen(name) : 12;
}

static void print_head(const struct table *table, const struct figure *figure)
{
	char **names = table->subjects;

	printf("\n%s\n%10s", figure->title, figure->rows);
	for (int i = 0; i < table->subject_count; i++)
		printf(" %*s", column(names[i]), names[i]);
	for (int i = 1; i < table->subject_count; i++)
		printf("   times faster than %s", names[i]);
	printf("\n");
}

/* How many times better the first is, below 1 if it is worse; as wide as its title. */
static void print_ratio(const struct table *table, int other, double better)
{
	int width = (int)strlen("   times faster than ") + (int)strlen(table->subjects[other]);

	if (!isfinite(better)) /* one of the two took too little to be measured */
		printf(" %*s", width - 1, "-");
	else
		printf(" %*.2f", width - 1, better);
}

static void print_row(const struct table *table, int figure, double x)
{
	const struct figure *what = &table->figures[figure];
	double first = cell(table, figure, 0, x);

	printf("%10.0f", x);
	for (int i = 0; i < table->subject_count; i++) {
		double value = cell(table, figure, i, x);

		if (isnan(value))
			printf(" %*s", column(table->subjects[i]), "-");
		else
			printf(" %*.*f", column(table->subjects[i]), what->digits, value * what->scale);
	}
	for (int i = 1; i < table->subject_count; i++) {
		double other = cell(table, figure, i, x);

		print_ratio(table, i, what->less ? other / first : first / other);
	}
	printf("\n");
}

/* Whether this entry is the first of its row. */
static bool begins_row(const struct table *table, size_t index)
{
	const struct sample *sample = &table->entries[index].sample;

	for (size_t i = 0; i < index; i++)
		if (table->entries[i].sample.figure == sample->figure &&
		    table->entries[i].sample.x == sample->x)
			return false;
	return true;
}

void table_print(const struct table *table)
{
	for (int figure = 0; figure < table->figure_count; figure++) {
		bool any = false;

		for (size_t i = 0; i < table->count; i++) {
			if (table->entries[i].sample.figure != figure || !begins_row(table, i))
				continue;
			if (!any)
				print_head(table, &table->figures[figure]);
			any = true;
			print_row(table, figure, table->entries[i].sample.x);
		}
	}
}

void table_print_csv(const struct table *table)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct entry *entry = &table->entries[i];

		if (!isnan(entry->sample.value))
			printf("%s,%s,%.0f,%.9g,%.3g\n", table->figures[entry->sample.figure].name,
			       table->subjects[entry->subject], entry->sample.x, entry->sample.value,
			       entry->sample.line);
	}
}

void table_list_figures(const struct table *table)
{
	for (int i = 0; i < table->figure_count; i++) {
		const struct figure *figure = &table->figures[i];

		printf("%s|%s|%s|%.9g|%d|%d\n", figure->name, figure->title, figure->rows, figure->scale,
		       figure->digits, figure->less);
	}
}

size_t table_parse_list(char *text, size_t *list, size_t most)
{
	size_t count = 0;

	for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
		char *end;

		if (count == most)
			return 0;
		list[count++] = strtoul(item, &end, 0);
		if (end == item || *end)
			return 0;
	}
	return count;
}
