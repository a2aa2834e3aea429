/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mpitest.h - the common functions of the MPI programs of this directory.
 *
 * Include it first. Each program is one file: mt_init(), sections, mt_done().
 *
 *  - Data: every byte is a function of a seed and its offset, so any rank can say what any
 *    other rank must have sent. mt_fill() writes the pattern; mt_landed() compares every byte,
 *    and also that the rest of the buffer and the guard bytes around it were left alone.
 *  - Failure: one line on stderr that names the program, rank, section and cause, then
 *    MPI_Abort(): mpirun ends with a non-zero status.
 *  - A hang: each section has a deadline (MPITEST_SECTION_SECONDS, 0 = none); the rank that
 *    misses it says in which section and ends the job.
 *
 * All ranks run on one machine, the only kind of job that shmcma can carry alone; check-lnx.sh has two.
 */
#ifndef SHMCMA_TEST_MPI_MPITEST_H
#define SHMCMA_TEST_MPI_MPITEST_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <mpi.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MT_GUARD 64
#define MT_FREE_BYTE 0x5a
#define MT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *mt_program;
static const char *mt_where = "start";
static char mt_stuck[256];
static int mt_rank, mt_size;
static unsigned mt_deadline;
static unsigned long long mt_checks;

/* ---- failing ---- */

static inline void mt_fail(int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 2, 3)));

static inline void mt_fail(int line, const char *format, ...)
{
	char cause[512];
	va_list args;

	va_start(args, format);
	vsnprintf(cause, sizeof(cause), format, args);
	va_end(args);
	fprintf(stderr, "%s: rank %d of %d, section \"%s\", line %d: FAILED: %s\n", mt_program, mt_rank,
		mt_size, mt_where, line, cause);
	fflush(stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
	_exit(1);
}

/* MT_CHECK(condition, format, arguments...): the text says what was found. */
#define MT_CHECK(condition, ...)                                                                          \
	do {                                                                                              \
		mt_checks++;                                                                              \
		if (!(condition))                                                                         \
			mt_fail(__LINE__, __VA_ARGS__);                                                   \
	} while (0)

static inline void mt_on_deadline(int signal_number)
{
	ssize_t written = write(STDERR_FILENO, mt_stuck, strlen(mt_stuck));

	(void)signal_number;
	sleep(1); /* mpirun may drop what a rank that is gone has just written */
	_exit(written < 0 ? 4 : 3);
}

/* ---- a program's life ---- */

static inline void mt_init(int *argc, char ***argv, const char *program)
{
	const char *seconds = getenv("MPITEST_SECTION_SECONDS");
	struct sigaction action = { .sa_handler = mt_on_deadline };

	mt_program = program;
	mt_deadline = seconds ? (unsigned)strtoul(seconds, NULL, 10) : 600;
	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &mt_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &mt_size);
	sigemptyset(&action.sa_mask);
	sigaction(SIGALRM, &action, NULL);
}

static inline void mt_enter(const char *name)
{
	mt_where = name;
	snprintf(mt_stuck, sizeof(mt_stuck),
		 "%s: rank %d of %d, section \"%s\": FAILED: not done after %u s\n", mt_program, mt_rank,
		 mt_size, name, mt_deadline);
	alarm(mt_deadline);
}

static inline int mt_listed(const char *list, const char *name)
{
	size_t length;

	for (;; list += length + 1) {
		length = strcspn(list, "|");
		if (length == strlen(name) && memcmp(list, name, length) == 0)
			return 1;
		if (!list[length])
			return 0;
	}
}

/*
 * Begin a section; 0: leave it out. Sections do not overlap in time, so a stray message cannot
 * be taken for the next one's. MPITEST_ONLY holds one section's name, MPITEST_SKIP several, with '|' between them.
 */
static inline int mt_section(const char *name)
{
	const char *only = getenv("MPITEST_ONLY"), *skip = getenv("MPITEST_SKIP");

	if ((only && strcmp(only, name) != 0) || (skip && mt_listed(skip, name)))
		return 0;
	mt_enter(name);
	MPI_Barrier(MPI_COMM_WORLD);
	if (getenv("MPITEST_VERBOSE") && mt_rank == 0)
		fprintf(stderr, "%s: %.3f %s\n", mt_program, MPI_Wtime(), name);
	return 1;
}

static inline int mt_done(void)
{
	unsigned long long total = 0;

	mt_enter("finish");
	MPI_Reduce(&mt_checks, &total, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	alarm(0);
	if (mt_rank == 0) {
		printf("%s: %llu checks passed\n", mt_program, total);
		return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
	}
	return EXIT_SUCCESS;
}

/* ---- data ---- */

static inline uint64_t mt_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t mt_seed(uint64_t a, uint64_t b, uint64_t c)
{
	return mt_mix(mt_mix(mt_mix(a) + b) + c);
}

/* A small generator whose sequence every rank can repeat. */
static inline unsigned mt_random(uint64_t *state, unsigned below)
{
	*state = mt_mix(*state);
	return (unsigned)(*state % below);
}

static inline void mt_fill(void *buffer, size_t length, uint64_t seed)
{
	unsigned char *to = buffer;
	uint64_t word;
	size_t at;

	for (at = 0; at < length; at += sizeof(word)) {
		size_t part = length - at < sizeof(word) ? length - at : sizeof(word);

		word = mt_mix(seed + at);
		memcpy(to + at, &word, part);
	}
}

/* Offset of the first byte that differs from the pattern; length if none does. */
static inline size_t mt_differs(const void *buffer, size_t length, uint64_t seed)
{
	const unsigned char *from = buffer;
	uint64_t word;
	size_t at, i;

	for (at = 0; at < length; at += sizeof(word)) {
		size_t part = length - at < sizeof(word) ? length - at : sizeof(word);

		word = mt_mix(seed + at);
		if (memcmp(from + at, &word, part) == 0)
			continue;
		for (i = 0; from[at + i] == ((unsigned char *)&word)[i]; i++)
			;
		return at + i;
	}
	return length;
}

static inline void mt_pattern(int line, const void *buffer, size_t length, uint64_t seed)
{
	size_t at = mt_differs(buffer, length, seed);

	mt_checks++;
	if (at < length)
		mt_fail(line, "byte %zu of %zu is wrong (0x%02x)", at, length,
			((const unsigned char *)buffer)[at]);
}

#define MT_PATTERN(buffer, length, seed) mt_pattern(__LINE__, (buffer), (length), (seed))

/* [from, to) still holds what mt_clear() wrote. */
static inline void mt_untouched(int line, const unsigned char *from, const unsigned char *to,
				const char *what)
{
	const unsigned char *at;

	mt_checks++;
	for (at = from; at < to; at++)
		if (*at != MT_FREE_BYTE)
			mt_fail(line, "byte %td of %td %s was overwritten (0x%02x)", at - from, to - from,
				what, *at);
}

/* Memory with room for MT_GUARD bytes on either side, and 64 more to shift its start. */
static inline unsigned char *mt_alloc(size_t length)
{
	unsigned char *base = malloc(length + 2 * MT_GUARD + 64);

	if (!base)
		mt_fail(__LINE__, "no memory for %zu bytes", length);
	memset(base, MT_FREE_BYTE, length + 2 * MT_GUARD + 64);
	return base + MT_GUARD;
}

static inline void mt_free(unsigned char *buffer)
{
	free(buffer - MT_GUARD);
}

/* Make a receive buffer of `length` bytes and its guards ready to be compared. */
static inline void mt_clear(unsigned char *buffer, size_t length)
{
	memset(buffer - MT_GUARD, MT_FREE_BYTE, length + 2 * MT_GUARD);
}

/* `got` bytes of the pattern landed in a cleared buffer of `length`, and nothing else. */
static inline void mt_landed(int line, const unsigned char *buffer, size_t length, size_t got,
			     uint64_t seed)
{
	mt_pattern(line, buffer, got, seed);
	mt_untouched(line, buffer + got, buffer + length, "behind the message");
	mt_untouched(line, buffer - MT_GUARD, buffer, "before the buffer");
	mt_untouched(line, buffer + length, buffer + length + MT_GUARD, "behind the buffer");
}

#define MT_LANDED(buffer, length, got, seed) mt_landed(__LINE__, (buffer), (length), (got), (seed))

/* The status of a receive names this source, tag and number of bytes. */
static inline void mt_status(int line, const MPI_Status *status, int source, int tag, size_t length)
{
	int count = -1;

	MPI_Get_count(status, MPI_BYTE, &count);
	mt_checks++;
	if (status->MPI_SOURCE != source || status->MPI_TAG != tag || (size_t)count != length)
		mt_fail(line, "status says source %d, tag %d, %d bytes; expected %d, %d, %zu",
			status->MPI_SOURCE, status->MPI_TAG, count, source, tag, length);
}

#define MT_STATUS(status, source, tag, length) mt_status(__LINE__, (status), (source), (tag), (length))

#endif
