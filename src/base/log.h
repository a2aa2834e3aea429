/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LOG_H
#define SC_LOG_H

#include <shmcma/core.h>

/* One line: what failed, for which peer, why, and what to do about it. Keeps errno. */
void sc_log(enum sc_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * What this thread tries from now on it has tried before: that it fails is no warning any more. Of several threads at a
 * time it is true for one, as a library that is loaded late has no memory of each thread's.
 */
void sc_log_again(bool again);

#define sc_warn(...) sc_log(SC_LOG_WARN, __VA_ARGS__)
#define sc_info(...) sc_log(SC_LOG_INFO, __VA_ARGS__)

#endif
