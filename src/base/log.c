/* SPDX-License-Identifier: BSD-2-Clause */
/* log.c: passes lines to the user of the core. The sink is set once, before the first endpoint; any thread may log. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#define LINE_SIZE 512

static struct {
	void (*sink)(enum sc_log_level level, const char *line);
	uint32_t causes;     /* a bit for each that a warning has named */
	unsigned long again; /* the thread, as pthread_self(3) has it; 0: none */
} log_state;

void sc_log_set(void (*sink)(enum sc_log_level level, const char *line))
{
	__atomic_store_n(&log_state.sink, sink, __ATOMIC_RELAXED);
}

void sc_log_again(bool again)
{
	__atomic_store_n(&log_state.again, again ? (unsigned long)pthread_self() : 0, __ATOMIC_RELAXED);
}

enum sc_log_level sc_log_first(enum sc_log_cause cause)
{
	uint32_t bit = 1u << cause;

	return __atomic_fetch_or(&log_state.causes, bit, __ATOMIC_RELAXED) & bit ? SC_LOG_INFO
										 : SC_LOG_WARN;
}

void sc_log(enum sc_log_level level, const char *format, ...)
{
	void (*sink)(enum sc_log_level, const char *) = __atomic_load_n(&log_state.sink, __ATOMIC_RELAXED);
	char line[LINE_SIZE];
	int saved = errno;
	va_list args;

	if (!sink)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (level == SC_LOG_WARN &&
	    __atomic_load_n(&log_state.again, __ATOMIC_RELAXED) == (unsigned long)pthread_self())
		level = SC_LOG_INFO;
	sink(level, line);
	errno = saved;
}
