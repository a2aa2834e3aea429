/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replay.c: runs a fuzz target over its corpus, as a test.
 *
 * A target fuzz_<name>.c defines LLVMFuzzerTestOneInput() and nothing else. With this file it is the test
 * fuzz_<name>: every file of test/fuzz/corpus/<name> as it is, then a fixed sequence of small changes to
 * each, the same in every run. With clang's -fsanitize=fuzzer instead of this file it is a fuzzer.
 *
 *	fuzz_<name> [-r rounds] [file or directory...]
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../rounds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A target whose inputs take long says how many changes of each are enough. */
extern const unsigned long fuzz_rounds __attribute__((weak));

#define INPUT_MAX (1u << 20)
#define ROUNDS 500 /* changed inputs per file */
#define CHANGES_MAX 8

static unsigned long rounds = ROUNDS;
static unsigned long files, inputs;

static void die(const char *what, const char *name)
{
	fprintf(stderr, "replay: %s %s: %s\n", what, name, strerror(errno));
	exit(2);
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* The target gets memory of exactly that size, so that a sanitizer sees a read past it. */
static void run(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		die("no memory for", "an input");
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

/* Values at which parsers often fail: limits of the integer types. */
static uint64_t odd_value(uint64_t *state)
{
	static const uint64_t values[] = { 0,	       1,	   0x7f,       0xff,	    0xffff,
					   0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, INT64_MAX,
					   UINT64_MAX, 4096,	   64,	       63,	    65 };

	return values[next_random(state) % (sizeof(values) / sizeof(values[0]))];
}

/* One small change in place; returns the new size. */
static size_t change(uint8_t *data, size_t size, uint64_t *state)
{
	static const size_t widths[] = { 1, 2, 4, 8 };
	uint64_t value;
	size_t at, width;

	if (!size)
		return 0;
	at = next_random(state) % size;
	switch (next_random(state) % 5) {
	case 0:
		data[at] ^= (uint8_t)(1u << next_random(state) % 8);
		return size;
	case 1:
		data[at] = (uint8_t)next_random(state);
		return size;
	case 2: /* an odd value in an aligned field */
		width = widths[next_random(state) % 4];
		at -= at % width;
		value = odd_value(state);
		memcpy(data + at, &value, width < size - at ? width : size - at);
		return size;
	case 3: /* a field one up or down */
		width = widths[next_random(state) % 4];
		at -= at % width;
		if (size - at < width)
			return size;
		value = 0;
		memcpy(&value, data + at, width);
		value += next_random(state) % 2 ? 1 : -1ull;
		memcpy(data + at, &value, width);
		return size;
	default:
		return next_random(state) % 8 ? size : at;
	}
}

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *original = malloc(INPUT_MAX), *changed = malloc(INPUT_MAX);
	uint64_t state = 1;
	size_t size;

	if (!file || !original || !changed)
		die("cannot open", path);
	size = fread(original, 1, INPUT_MAX, file);
	if (ferror(file))
		die("cannot read", path);
	fclose(file);
	run(original, size);
	for (unsigned long round = 0; round < rounds; round++) {
		size_t changed_size = size;

		memcpy(changed, original, size);
		for (uint64_t n = 1 + next_random(&state) % CHANGES_MAX; n; n--)
			changed_size = change(changed, changed_size, &state);
		run(changed, changed_size);
	}
	free(original);
	free(changed);
	files++;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void replay(const char *path)
{
	struct dirent **entries;
	struct stat stat_of;
	int n;

	if (stat(path, &stat_of))
		die("cannot find", path);
	if (!S_ISDIR(stat_of.st_mode)) {
		replay_file(path);
		return;
	}
	n = scandir(path, &entries, visible, alphasort);
	if (n < 0)
		die("cannot read", path);
	for (int i = 0; i < n; i++) {
		char name[4096];

		snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
		replay_file(name);
		free(entries[i]);
	}
	free(entries);
}

/* Without arguments: the corpus named after the program, in the source tree. */
static void replay_own_corpus(const char *program)
{
	const char *top = getenv("abs_top_srcdir");
	const char *name = strstr(program, "fuzz_");
	char path[4096];

	for (const char *again = name; again; again = strstr(again + 1, "fuzz_"))
		name = again;
	if (!name) {
		fprintf(stderr, "replay: %s is not called fuzz_<name>: name its corpus\n", program);
		exit(2);
	}
	snprintf(path, sizeof(path), "%s/test/fuzz/corpus/%s", top ? top : ".", name + strlen("fuzz_"));
	replay(path);
}

int main(int argc, char **argv)
{
	int option;

	if (&fuzz_rounds)
		rounds = fuzz_rounds;
	if (!rounds_are_full())
		rounds = (rounds + 3) / 4;
	while ((option = getopt(argc, argv, "r:")) != -1) {
		if (option != 'r') {
			fprintf(stderr, "usage: %s [-r rounds] [file or directory...]\n", argv[0]);
			return 2;
		}
		rounds = strtoul(optarg, NULL, 0);
	}
	if (optind == argc)
		replay_own_corpus(argv[0]);
	for (; optind < argc; optind++)
		replay(argv[optind]);
	printf("%lu files, %lu inputs\n", files, inputs);
	if (!files) {
		fprintf(stderr, "replay: the corpus is empty\n");
		return 1;
	}
	return 0;
}
