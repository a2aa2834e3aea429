/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log.c: hands lines to whoever uses the core. Set once, before the first endpoint; any thread may log.
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define LINE_SIZE 512

static void (*log_sink)(enum sc_log_level level, const char *line);
static _Thread_local bool log_again;

void sc_log_set(void (*sink)(enum sc_log_level level, const char *line))
{
	__atomic_store_n(&log_sink, sink, __ATOMIC_RELAXED);
}

void sc_log_again(bool again)
{
	log_again = again;
}

void sc_log(enum sc_log_level level, const char *format, ...)
{
	void (*sink)(enum sc_log_level, const char *) = __atomic_load_n(&log_sink, __ATOMIC_RELAXED);
	char line[LINE_SIZE];
	int saved = errno;
	va_list args;

	if (!sink)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	sink(log_again && level == SC_LOG_WARN ? SC_LOG_INFO : level, line);
	errno = saved;
}
