/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * table.h: the samples of all subjects and turns, and their two printed forms: medians side by side, or
 * every sample as a line of CSV. Subjects are compared with each other: a subject is a provider, with its variants.
 */
#ifndef SHMCMA_TEST_BENCH_TABLE_H
#define SHMCMA_TEST_BENCH_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "group.h"

#define TURNS_MAX 101

struct figure {
	const char *name;  /* in CSV, where figures are in seconds, bytes, and per second */
	const char *title; /* with the unit of the table */
	const char *rows;  /* the name of x */
	double scale;	   /* from CSV's unit to the table's */
	int digits;	   /* behind the point */
	bool less;	   /* is better */
};

struct entry {
	int subject;
	struct sample sample;
};

struct table {
	const struct figure *figures;
	int figure_count;
	char **subjects;
	int subject_count;
	struct entry *entries;
	size_t count, room;
};

void table_add(struct table *table, int subject, const struct result *result);
void table_print(const struct table *table);
void table_print_csv(const struct table *table);

/* Prints the meaning of CSV's figures: lines "name|title|rows|scale|digits|whether less is better". */
void table_list_figures(const struct table *table);

/* Parses numbers with commas between them, as in options; returns their count, 0 if it is no list of up to `most`. */
size_t table_parse_list(char *text, size_t *list, size_t most);

#endif
