/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LOG_H
#define SC_LOG_H

#include <shmcma/core.h>

/* One line: what failed, for which peer, why, and what to do about it. Keeps errno. */
void sc_log(enum sc_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * True: this thread repeats from now on what it has tried before, and a failure of that is logged, but not as a
 * warning. The setting holds for one thread at a time, as a library that is loaded late has no thread-local memory.
 */
void sc_log_again(bool again);

#define sc_warn(...) sc_log(SC_LOG_WARN, __VA_ARGS__)
#define sc_info(...) sc_log(SC_LOG_INFO, __VA_ARGS__)

#endif
